/*
 * The error domain: one table that gives each code its name and its class.
 *
 * It must not know who raises an error; a new code needs a row here and a line in errors.h.
 */
#include "base/errors.h"

#include <string.h>

typedef struct {
    const char *name;
    LhErrorClass class;
    int exit_code;
} ErrorRow;

/* UNKNOWN_OUTCOME and COMPACTED are "look again": repeating the same request blindly is wrong.
 * CANCELLED says nothing about the object, so it must never become a condition on it. */
static const ErrorRow rows[] = {
    [LH_ERR_INVALID] = {"invalid", LH_CLASS_TERMINAL, 2},
    [LH_ERR_NOT_FOUND] = {"not_found", LH_CLASS_TERMINAL, 4},
    [LH_ERR_CONFLICT] = {"conflict", LH_CLASS_CONFLICT, 4},
    [LH_ERR_FENCED] = {"fenced", LH_CLASS_FATAL, 1},
    [LH_ERR_UNAVAILABLE] = {"unavailable", LH_CLASS_RETRY, 3},
    [LH_ERR_UNKNOWN_OUTCOME] = {"unknown_outcome", LH_CLASS_CONFLICT, 3},
    [LH_ERR_OVERLOADED] = {"overloaded", LH_CLASS_RETRY, 3},
    [LH_ERR_COMPACTED] = {"compacted", LH_CLASS_CONFLICT, 4},
    [LH_ERR_NO_SPACE] = {"no_space", LH_CLASS_RETRY, 3},
    [LH_ERR_CANCELLED] = {"cancelled", LH_CLASS_RETRY, 1},
    [LH_ERR_AUTH] = {"auth", LH_CLASS_TERMINAL, 3},
    [LH_ERR_FORBIDDEN] = {"forbidden", LH_CLASS_TERMINAL, 4},
    [LH_ERR_IO] = {"io", LH_CLASS_RETRY, 1},
    [LH_ERR_CHECKSUM] = {"checksum", LH_CLASS_TERMINAL, 1},
    [LH_ERR_LEASE_LOST] = {"lease_lost", LH_CLASS_FATAL, 1},
    [LH_ERR_INTERNAL] = {"internal", LH_CLASS_FATAL, 1},
};
G_STATIC_ASSERT(G_N_ELEMENTS(rows) == LH_N_ERRORS);

/* Any thread: what G_DEFINE_QUARK makes would write its variable while another thread reads it. */
GQuark lh_error_quark(void)
{
    static gsize quark;
    if (g_once_init_enter(&quark))
        g_once_init_leave(&quark, g_quark_from_static_string("lh-error-quark"));
    return (GQuark)quark;
}

LhErrorClass lh_error_class(LhErrorCode code)
{
    g_assert((guint)code < LH_N_ERRORS);
    return rows[code].class;
}

LhErrorClass lh_gerror_class(const GError *error)
{
    g_assert(error != NULL);
    if (error->domain != LH_ERROR || error->code < 0 || error->code >= LH_N_ERRORS)
        return LH_CLASS_RETRY;
    return rows[error->code].class;
}

int lh_gerror_exit_code(const GError *error)
{
    g_assert(error != NULL);
    if (error->domain != LH_ERROR || error->code < 0 || error->code >= LH_N_ERRORS)
        return 1;
    return rows[error->code].exit_code;
}

const char *lh_error_name(LhErrorCode code)
{
    g_assert((guint)code < LH_N_ERRORS);
    return rows[code].name;
}

char *lh_error_text(const char *text, gsize most)
{
    gsize len = strnlen(text, most + 1);
    if (len > most) {
        /* A byte 10xxxxxx continues a character. */
        for (len = most; len > 0 && ((guchar)text[len] & 0xc0) == 0x80;)
            len--;
    }
    return g_strndup(text, len);
}

/*
 * Error codes of the whole product, and the class of each.
 *
 * Code decides by class, never by message. Any thread. A function that fills a GError with a code
 * of this domain leaves its outputs untouched.
 */
#pragma once

#include <glib.h>

#define LH_ERROR (lh_error_quark())
GQuark lh_error_quark(void);

typedef enum {
    LH_ERR_INVALID,         /* wrong input: syntax, range, a limit; the message names the field */
    LH_ERR_NOT_FOUND,       /* the thing asked for does not exist */
    LH_ERR_CONFLICT,        /* a compare failed: what the decision relied on has changed */
    LH_ERR_FENCED,          /* the leader key that the decision was made under is gone */
    LH_ERR_UNAVAILABLE,     /* could not be reached, and surely nothing was done */
    LH_ERR_UNKNOWN_OUTCOME, /* a write's answer is lost: it may commit now, later, never */
    LH_ERR_OVERLOADED,      /* the server asks to slow down; nothing was done */
    LH_ERR_COMPACTED,       /* the revision asked for is gone */
    LH_ERR_NO_SPACE,        /* etcd's NOSPACE alarm, a full disk; a write may have happened */
    LH_ERR_CANCELLED,       /* the caller cancelled */
    LH_ERR_AUTH,            /* who we are was not accepted */
    LH_ERR_FORBIDDEN,       /* who we are was accepted, but may not do this */
    LH_ERR_IO,              /* files, directories, sockets */
    LH_ERR_CHECKSUM,        /* data is not what its checksum or size says */
    LH_ERR_LEASE_LOST,      /* the lease does not exist any more */
    LH_ERR_INTERNAL,        /* a bug of ours, or of a peer's protocol */
    LH_N_ERRORS
} LhErrorCode;

typedef enum {
    LH_CLASS_RETRY,    /* backoff with jitter, then again */
    LH_CLASS_CONFLICT, /* look again and plan again, at once */
    LH_CLASS_TERMINAL, /* say it on the object; the same input fails again */
    LH_CLASS_FATAL,    /* step down */
} LhErrorClass;

/* The class of @code; one table (errors.c). Retry: UNAVAILABLE OVERLOADED NO_SPACE IO CANCELLED.
 * Conflict: CONFLICT COMPACTED UNKNOWN_OUTCOME (look again; never the same request blindly).
 * Fatal: FENCED LEASE_LOST INTERNAL. Terminal: all others. */
LhErrorClass lh_error_class(LhErrorCode code);

/* The class of an error of any domain; foreign domains (GIO, …) are LH_CLASS_RETRY. Not NULL. */
LhErrorClass lh_gerror_class(const GError *error);

/* What a program that ends with this error exits with (CONTRACT.md section 3): 2 invalid input, 3 not
 * reached or not accepted, 4 refused, 1 all else and foreign domains. Not NULL. */
int lh_gerror_exit_code(const GError *error);

/* For a message: the first @most bytes of @text at most, which must be UTF-8, and no half of a character.
 * g_free. */
char *lh_error_text(const char *text, gsize most);

/* "unknown_outcome" and so on, for logs and metric labels; static storage. */
const char *lh_error_name(LhErrorCode code);

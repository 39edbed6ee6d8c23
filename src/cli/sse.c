/*
 * Server-sent events: bytes → events. Pure.
 *
 * Lines end in LF, CR LF or CR; an empty line dispatches; a comment is skipped. An event without
 * data is no event.
 */
#include "cli/sse.h"

#include <string.h>

struct LhSse {
    LhSseFunc func;
    gpointer user;
    GString *line, *data;
    char *event, *id;
    gboolean after_cr, stopped;
};

LhSse *lh_sse_new(LhSseFunc func, gpointer user)
{
    LhSse *sse = g_new0(LhSse, 1);
    sse->func = func;
    sse->user = user;
    sse->line = g_string_new(NULL);
    sse->data = g_string_new(NULL);
    sse->id = g_strdup("");
    return sse;
}

void lh_sse_free(LhSse *sse)
{
    if (sse == NULL) {
        return;
    }
    g_string_free(sse->line, TRUE);
    g_string_free(sse->data, TRUE);
    g_free(sse->event);
    g_free(sse->id);
    g_free(sse);
}

static void dispatch(LhSse *sse)
{
    if (sse->data->len > 0) {
        g_string_truncate(sse->data, sse->data->len - 1); /* the last LF */
        const char *event = sse->event != NULL ? sse->event : "message";
        sse->stopped = !sse->func(event, sse->id, sse->data->str, sse->user);
    }
    g_string_truncate(sse->data, 0);
    g_clear_pointer(&sse->event, g_free);
}

static void line_done(LhSse *sse)
{
    const char *line = sse->line->str;
    if (line[0] == '\0') {
        dispatch(sse);
    } else if (line[0] != ':') {
        gsize len = strcspn(line, ":");
        const char *value = line[len] == ':' ? line + len + 1 : "";
        value += *value == ' ';
        if (len == 4 && memcmp(line, "data", 4) == 0) {
            g_string_append_printf(sse->data, "%s\n", value);
        } else if (len == 5 && memcmp(line, "event", 5) == 0) {
            g_free(sse->event);
            sse->event = g_strdup(value);
        } else if (len == 2 && memcmp(line, "id", 2) == 0) {
            g_free(sse->id);
            sse->id = g_strdup(value);
        }
    }
    g_string_truncate(sse->line, 0);
}

gboolean lh_sse_feed(LhSse *sse, const char *data, gsize len, gboolean *too_large)
{
    *too_large = FALSE;
    for (gsize i = 0; i < len && !sse->stopped; i++) {
        gboolean second = data[i] == '\n' && sse->after_cr;
        sse->after_cr = data[i] == '\r';
        if (second) {
            continue;
        }
        if (data[i] == '\n' || data[i] == '\r') {
            line_done(sse);
        } else {
            g_string_append_c(sse->line, data[i]);
        }
        if (sse->line->len + sse->data->len > LH_SSE_MAX_BYTES) {
            *too_large = TRUE;
            return FALSE;
        }
    }
    return !sse->stopped;
}

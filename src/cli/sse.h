/*
 * Reads text/event-stream (WHATWG HTML, section 9.2) piece by piece. Pure.
 */
#pragma once

#include <glib.h>

#define LH_SSE_MAX_BYTES (4 * 1024 * 1024) /* of one event */

typedef struct LhSse LhSse;

/* @event "message" if unnamed; @id: the last one seen, "" if none. FALSE stops. */
typedef gboolean (*LhSseFunc)(const char *event, const char *id, const char *data, gpointer user);

LhSse *lh_sse_new(LhSseFunc func, gpointer user);
void lh_sse_free(LhSse *sse); /* accepts NULL */
/* FALSE: the function stopped it, or (*@too_large) an event exceeds LH_SSE_MAX_BYTES. */
gboolean lh_sse_feed(LhSse *sse, const char *data, gsize len, gboolean *too_large);

/*
 * The HTTP client of the commands: requests, whole lists, downloads and watches, on libcurl.
 * Blocking.
 *
 * Errors of LH_ERROR: UNAVAILABLE (no connection, no answer, 5xx), AUTH (401, or the server's
 * certificate is not to be trusted), NOT_FOUND, CONFLICT
 * (409, 412), COMPACTED (410), FORBIDDEN, INVALID (400 and the like, and replies that make no
 * sense are INTERNAL). Messages begin with the object: "services/api-logs: no such object".
 */
#pragma once

#include "base/env.h"

#include <cjson/cJSON.h>
#include <glib.h>
#include <stdio.h>

typedef struct LhClient LhClient;

/* All but the server may be NULL. For https: the authority to trust instead of the system's, and the
 * client's certificate with its key, both or none; PEM files. */
typedef struct {
    const char *server, *token, *cacert, *cert, *key;
} LhClientOptions;

/* Errors: INVALID (address, token, a token for a plain connection to another machine, files). */
LhClient *lh_client_new(LhEnv *env, const LhClientOptions *options, GError **error);
void lh_client_free(LhClient *client); /* accepts NULL */
const char *lh_client_server(const LhClient *client);

/* The problem object that the server gave with the error @message, or NULL. */
const cJSON *lh_client_problem(const LhClient *client, const char *message);

/* One request; @path begins with "/". @body (may be NULL) is sent as JSON. @condition (may be
 * NULL): a whole header line, If-Match or If-None-Match. NULL or the reply's object; an empty one
 * if there was no body. @status may be NULL. */
cJSON *lh_client_call(LhClient *client, const char *method, const char *path, const char *body,
                      const char *condition, guint *status, GError **error);
cJSON *lh_client_get(LhClient *client, const char *path, GError **error);

/* All pages of GET /v1/<plural> in one list, "items" and "revision" as the server gave them. Starts
 * again when the revision is gone before the last page. @selector may be NULL. */
cJSON *lh_client_list(LhClient *client, const char *plural, const char *selector, GError **error);

gboolean lh_client_download(LhClient *client, const char *path, FILE *out, GError **error);

/* "/v1/services/a%20b": slashes in @name stay. g_free. */
char *lh_client_path(const char *plural, const char *name);

/* ---- watches: watch.c ---- */

typedef struct {
    const char *plural;
    const char *selector;
    gint64 revision; /* events after it; moves on with them */
    /* May be NULL. Each time that the server has begun to send: what is read now and what is sent
     * from now on leave no gap between them. TRUE ends lh_client_watch. */
    gboolean (*opened)(gpointer data);
    /* @event "PUT" or "DELETE". TRUE ends lh_client_watch. */
    gboolean (*func)(const char *event, gint64 revision, const cJSON *object, gpointer data);
    gpointer data;
} LhWatch;

typedef enum {
    LH_WATCH_ENDED,   /* a function said so */
    LH_WATCH_TIMEOUT, /* @deadline_ms (lh_mono_ms; -1: none) */
    LH_WATCH_EXPIRED, /* a revision is too old: list again */
    LH_WATCH_ERROR,
} LhWatchEnd;

/* Lost connections are opened again for half a minute. */
LhWatchEnd lh_client_watch(LhClient *client, LhWatch *watches, guint n, gint64 deadline_ms,
                           GError **error);

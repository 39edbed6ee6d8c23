/*
 * Plain HTTP on loopback: one blocking GET, and a load on a server from a thread of its own - event
 * streams that are held open and drained, and requests at a steady rate.
 */
#pragma once

#include <glib.h>

/* The status of GET @path; 0: no answer within 10 s. */
int http_get(guint16 port, const char *path);

/* A kept connection on which POSTs go out, one after the other. NULL: it cannot be had. */
typedef struct HttpPost HttpPost;
HttpPost *http_post_open(guint16 port);
/* Whether it was answered 200, with a body that begins with @want. */
gboolean http_post(HttpPost *post, const char *path, const char *body, const char *want);
void http_post_close(HttpPost *post);

typedef struct HttpLoad HttpLoad;

typedef struct {
    guint watchers;   /* streams that were answered 200 and are open */
    guint refused;    /* closed before or after an answer, or never answered */
    guint64 answered; /* requests answered 200 */
    guint64 failed;   /* answered otherwise, or not at all */
    guint64 bytes;    /* that came over the streams, headers included */
} HttpLoadCounts;

/* Opens @watchers streams of GET @watch_path, then sends GET @path @requests_per_s times a second over a
 * few kept connections. Returns when every stream is answered or refused. */
HttpLoad *http_load_start(guint16 port, guint watchers, const char *watch_path,
                          guint requests_per_s, const char *path);
HttpLoadCounts http_load_counts(HttpLoad *load);
void http_load_stop(HttpLoad *load); /* closes everything, frees it */

/* Raises this process's soft limit of open files to its hard limit (children inherit it); how many. */
guint64 raise_file_limit(void);

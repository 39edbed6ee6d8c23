/*
 * A small file that may be replaced while we run: certificates, keys, authorities, tokens.
 *
 * Its content is looked at, not its times: Kubernetes swaps links, others write in place, and a clock
 * may stand still between two writes. Only a digest of it is kept here. Loop thread; reads block, so
 * these files are local ones.
 */
#pragma once

#include <glib.h>

#define LH_WATCHED_MAX_BYTES (1024 * 1024)
#define LH_WATCHED_PERIOD_MS 5000 /* how often its users look, at most */

typedef struct {
    const char *setting; /* "tls.cert", for messages; static */
    char *path;
    char *seen; /* digest, or the error, of the last look */
} LhWatched;

void lh_watched_init(LhWatched *file, const char *setting, const char *path);
void lh_watched_clear(LhWatched *file);
/* The content, NUL-terminated, for lh_watched_free_text; NULL: LH_ERR_INVALID with setting, file and
 * reason. *@changed is set, never cleared: when it is not what the last call found. */
char *lh_watched_read(LhWatched *file, gsize *len, gboolean *changed, GError **error);
/* Wipes it first. Accepts NULL. */
void lh_watched_free_text(char *text);
/* What came of a changed file, in the log: @error NULL: taken. */
void lh_watched_log(const LhWatched *file, const GError *error);

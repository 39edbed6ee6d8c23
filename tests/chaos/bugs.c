/*
 * That a run can fail: each planted bug of this table is run with the faults that bring it out, and must be found
 * by the check of etcd's history, not by anything else. And the opposite: managers that only the fence stops, with
 * the fence in place, do no harm.
 */
#include "chaos.h"

#include <string.h>

typedef struct {
    const char *bug;  /* NULL: none */
    const char *only; /* faults */
    const char *minutes;
    gboolean unguarded;
    const char *group; /* of the invariants that find it; NULL: nothing may be found */
    const char *what;
} BugRow;

static const BugRow rows[] = {
    {"end-without-answer", "kill-agent", "0.25", FALSE, "placement",
     "a manager frees a node before it has answered"},
    {"unfenced-write", "stop-manager,hold-requests", "0.7", TRUE, "fence",
     "a manager whose lease is over goes on, without the fence"},
    {NULL, "stop-manager,hold-requests", "0.7", TRUE, NULL,
     "a manager whose lease is over goes on, and the fence stops it"},
    {"live-while-loading", "s3-hang,kill-agent", "0.4", FALSE, "protocol",
     "an agent says live while it loads"},
    {"unknown-is-absent", "kill-manager", "0.6", FALSE, "retention",
     "a manager evicts what does not parse"},
    {"retry-at-once", "s3-500,s3-truncate", "0.4", FALSE, "placement",
     "a manager does not wait before the next attempt"},
    {"lost-node-not-failed", "stop-agent,cut,drop-requests", "0.7", FALSE, "exclusive",
     "a lost crawl manager's seeds are given away before it has failed"},
};

/* All that it printed; g_free. *code: its exit code. */
static char *run_row(const char *self, const BugRow *row, int *code)
{
    const char *argv[12] = {self, "--seed", "5", "--minutes", row->minutes, "--only", row->only};
    guint n = 7;
    char *out = NULL, *err = NULL;
    g_autoptr(GError) error = NULL;
    if (row->unguarded) {
        argv[n++] = "--unguarded";
    }
    if (row->bug != NULL) {
        argv[n++] = "--bug";
        argv[n++] = row->bug;
    }
    if (!g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out, &err, code,
                      &error)) {
        g_error("%s: %s", self, error->message);
    }
    char *all = g_strconcat(out, err, NULL);
    g_free(out);
    g_free(err);
    return all;
}

/* The first line with @words; g_free. */
static char *line_with(const char *text, const char *words)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++) {
        if (strstr(lines[i], words) != NULL) {
            return g_strdup(lines[i]);
        }
    }
    return NULL;
}

static gboolean is_found(const char *self, const BugRow *row)
{
    int code = 0;
    g_autofree char *said = run_row(self, row, &code);
    g_autofree char *words = g_strdup_printf("VIOLATION %s: ",
                                             row->group != NULL ? row->group : "");
    g_autofree char *line = line_with(said, words);
    gboolean ok = row->group == NULL ? code == 0 : code != 0 && line != NULL;
    if (line != NULL) {
        g_print("%s\n", line);
    }
    if (!ok) {
        g_auto(GStrv) lines = g_strsplit(said, "\n", -1);
        for (guint i = 0; lines[i] != NULL; i++) {
            g_print("# | %s\n", lines[i]);
        }
    }
    return ok;
}

int bugs_run(const char *self, guint most)
{
    guint n = MIN(most, G_N_ELEMENTS(rows)), failed = 0;
    g_print("1..%u\n", n);
    for (guint i = 0; i < n; i++) {
        gboolean ok = is_found(self, &rows[i]);
        g_print("%sok %u - %s: %s\n", ok ? "" : "not ", i + 1,
                rows[i].bug != NULL ? rows[i].bug : "no bug", rows[i].what);
        failed += !ok;
    }
    return failed > 0;
}

/*
 * See recorder.h. What a linearizable read tells of etcd's revision holds for a moment after the read was
 * sent: whatever has a higher revision was committed later than that.
 */
#include "recorder.h"

#include "base/errors.h"
#include "etcd/watcher.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ASK_MS 200

typedef struct {
    gint64 revision, sent_ms;
} Answer;

struct Recorder {
    LhEnv *env;
    LhEtcd *etcd;
    gint64 wall_offset_ms; /* epoch minus monotonic time: a clock that does not jump */
    Recorded *recorded;
    LhWatcher *watcher;
    LhCallId asking;
    gint64 asked_ms;
    LhTimer *ask_again;
    GArray *answers; /* Answer, rising; all but the first are above what was heard */
    FILE *file;
    char *error;
};

static gint64 now_of(const Recorder *recorder)
{
    return lh_mono_ms(recorder->env) + recorder->wall_offset_ms;
}

static void take_error(Recorder *recorder, char *text)
{
    if (recorder->error == NULL)
        recorder->error = text;
    else
        g_free(text);
}

static void write_line(Recorder *recorder, char *line)
{
    if (recorder->file != NULL &&
        (fputs(line, recorder->file) == EOF || fflush(recorder->file) != 0))
        take_error(recorder, g_strdup_printf("the file cannot be written: %s", g_strerror(errno)));
    g_free(line);
}

/* ---- where etcd is ---- */

static void ask(gpointer data);

static void on_answer(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Recorder *recorder = data;
    GArray *answers = recorder->answers;
    Answer *last = &g_array_index(answers, Answer, answers->len - 1);
    recorder->asking = 0;
    recorder->ask_again = lh_timer_in(recorder->env, ASK_MS, ask, recorder);
    if (error != NULL || reply->header.revision < last->revision)
        return;
    Answer answer = {reply->header.revision, recorder->asked_ms};
    if (last->revision == answer.revision)
        *last = answer;
    else
        g_array_append_val(answers, answer);
}

static void ask(gpointer data)
{
    Recorder *recorder = data;
    const LhRangeRequest request = {.key = recorded_prefix(recorder->recorded), .count_only = TRUE};
    recorder->ask_again = NULL;
    recorder->asked_ms = now_of(recorder);
    recorder->asking = lh_etcd_range(recorder->etcd, &request, on_answer, recorder);
}

/* When etcd was asked last before it had got to @revision. */
static gint64 since_of(Recorder *recorder, gint64 revision)
{
    GArray *answers = recorder->answers;
    guint at = 0;
    while (at + 1 < answers->len && g_array_index(answers, Answer, at + 1).revision < revision)
        at++;
    g_array_remove_range(answers, 0, at);
    return g_array_index(answers, Answer, 0).sent_ms;
}

/* ---- the watch ---- */

static void on_opened(gpointer data)
{
    (void)data;
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    Recorder *recorder = data;
    gint64 now = now_of(recorder);
    (void)revision;
    for (gsize from = 0, to; from < n; from = to) {
        gint64 of = events[from].kv.mod_rev;
        for (to = from; to < n && events[to].kv.mod_rev == of; to++)
            ;
        recorded_add(recorder->recorded, &events[from], to - from, MIN(now, since_of(recorder, of)),
                     now);
        if (recorder->file != NULL)
            write_line(recorder,
                       recorded_line(recorder->recorded, recorded_len(recorder->recorded) - 1));
    }
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    Recorder *recorder = data;
    gint64 heard = recorded_revision(recorder->recorded);
    take_error(recorder, compact_revision > 0
                             ? g_strdup_printf("etcd was compacted at revision %" G_GINT64_FORMAT
                                               ", and only %" G_GINT64_FORMAT " had been heard of",
                                               compact_revision, heard)
                             : g_strdup_printf("after revision %" G_GINT64_FORMAT
                                               " etcd went back, or it is another one",
                                               heard));
}

Recorder *recorder_start(LhEnv *env, LhEtcd *etcd, const char *prefix, const char *path,
                         GError **error)
{
    static const LhWatcherFuncs funcs = {.opened = on_opened, .events = on_events, .lost = on_lost};
    FILE *file = path == NULL ? NULL : fopen(path, "we");
    if (path != NULL && file == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s", path, g_strerror(errno));
        return NULL;
    }
    Recorder *recorder = g_new0(Recorder, 1);
    g_autofree char *end = lh_etcd_prefix_end(prefix);
    const LhWatcherOptions options = {.key = prefix, .range_end = end, .start_revision = 1};
    Answer begin = {0, 0}; /* what is there already may be of any age */
    *recorder = (Recorder){
        .env = env,
        .etcd = etcd,
        .wall_offset_ms = lh_wall_ms(env) - lh_mono_ms(env),
        .recorded = recorded_new(prefix),
        .answers = g_array_new(FALSE, FALSE, sizeof(Answer)),
        .file = file,
    };
    g_array_append_val(recorder->answers, begin);
    write_line(recorder, recorded_head_line(recorder->recorded));
    recorder->watcher = lh_watcher_start(env, etcd, &options, &funcs, recorder);
    ask(recorder);
    return recorder;
}

void recorder_free(Recorder *recorder)
{
    if (recorder == NULL)
        return;
    lh_etcd_cancel(recorder->etcd, &recorder->asking);
    lh_timer_clear(recorder->env, &recorder->ask_again);
    lh_watcher_free(recorder->watcher);
    if (recorder->file != NULL)
        fclose(recorder->file);
    recorded_free(recorder->recorded);
    g_array_unref(recorder->answers);
    g_free(recorder->error);
    g_free(recorder);
}

gint64 recorder_revision(const Recorder *recorder)
{
    return recorded_revision(recorder->recorded);
}

const char *recorder_error(const Recorder *recorder)
{
    return recorder->error;
}

void recorder_by_hand(Recorder *recorder, gint64 revision)
{
    recorded_by_hand(recorder->recorded, revision);
    write_line(recorder, recorded_hand_line(revision));
}

const Recorded *recorder_history(const Recorder *recorder)
{
    return recorder->recorded;
}

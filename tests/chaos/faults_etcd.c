/*
 * Faults of etcd itself: members that die, hang, are cut off or replaced; no space left; compaction and
 * defragmentation; another leader. What may take etcd long is asked on a thread, and looked at from the loop.
 * History is only compacted as far as it is recorded.
 */
#include "base/errors.h"
#include "chaos.h"

#include <string.h>

#define JUNK       "/chaos-junk/"
#define JUNK_BYTES 1000000
#define MARKERS    3
/* A watch that resumes looks one revision further back than the last that it has heard. */
#define BEHIND 2

static EtcdProcess *member(Chaos *chaos, guint i)
{
    return etcd_cluster_member(chaos->world->cluster, i % CHAOS_MEMBERS);
}

static gboolean say_error(Chaos *chaos, const Occurrence *o, GError *error)
{
    chaos_say(chaos, "%s, again: %.200s", o->fault->name, error->message);
    g_error_free(error);
    return FALSE;
}

/* Lowers all alarms. FALSE: one is still up. */
static gboolean disarm(Chaos *chaos)
{
    g_autofree char *alarms = etcd_process_post(member(chaos, 0), "/v3/maintenance/alarm",
                                                "{\"action\":\"GET\"}", NULL);
    const char *at = alarms;
    while (at != NULL && (at = strstr(at, "\"memberID\":\"")) != NULL) {
        at += strlen("\"memberID\":\"");
        g_autofree char *body = g_strdup_printf("{\"action\":\"DEACTIVATE\",\"memberID\":\"%.*s\","
                                                "\"alarm\":\"NOSPACE\"}",
                                                (int)strcspn(at, "\""), at);
        /* Whether it helped is seen below. */
        g_free(etcd_process_post(member(chaos, 0), "/v3/maintenance/alarm", body, NULL));
    }
    g_autofree char *left = etcd_process_post(member(chaos, 0), "/v3/maintenance/alarm",
                                              "{\"action\":\"GET\"}", NULL);
    return left != NULL && strstr(left, "NOSPACE") == NULL;
}

static gboolean defragment_member(Chaos *chaos, guint i, GError **error)
{
    g_autofree char *reply = etcd_process_post(member(chaos, i), "/v3/maintenance/defragment", "{}",
                                               error);
    return reply != NULL;
}

/* ---- requests that may take long ---- */

typedef struct Job Job;
struct Job {
    GThread *thread;
    gint over; /* atomic */
    gboolean (*func)(Job *job, GError **error);
    EtcdProcess *etcd;
    EtcdCluster *cluster;
    guint member;
    const char *path;
    char *body;
    gboolean done;
    GError *error;
};

static gpointer run_job(gpointer data)
{
    Job *job = data;
    job->done = job->func(job, &job->error);
    g_atomic_int_set(&job->over, 1);
    return NULL;
}

static void start_job(Occurrence *o, const Job *job)
{
    Job *copy = g_new(Job, 1);
    *copy = *job;
    copy->thread = g_thread_new("etcd request", run_job, copy);
    o->job = copy;
}

/* FALSE: it goes on. Says why it failed. */
static gboolean job_is_over(Chaos *chaos, Occurrence *o, gboolean *done)
{
    Job *job = o->job;
    if (g_atomic_int_get(&job->over) == 0) {
        return FALSE;
    }
    g_thread_join(job->thread);
    *done = job->done;
    if (job->error != NULL) {
        say_error(chaos, o, job->error);
    }
    g_free(job->body);
    g_free(job);
    o->job = NULL;
    return TRUE;
}

/* ---- members ---- */

static gboolean kill_member(Chaos *chaos, Occurrence *o)
{
    o->member = o->choice % CHAOS_MEMBERS;
    etcd_process_kill(member(chaos, o->member));
    o->touched = 1;
    return TRUE;
}

static gboolean kill_quorum(Chaos *chaos, Occurrence *o)
{
    kill_member(chaos, o);
    etcd_process_kill(member(chaos, o->member + 1));
    return TRUE;
}

/* All that are not there; and whether all answer. */
static gboolean revive(Chaos *chaos, Occurrence *o)
{
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        GError *error = NULL;
        if (etcd_process_pid(member(chaos, i)) == 0 &&
            !etcd_process_spawn(member(chaos, i), &error)) {
            return say_error(chaos, o, error);
        }
    }
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        if (!etcd_process_answers(member(chaos, i))) {
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean freeze_member(Chaos *chaos, Occurrence *o)
{
    o->member = o->choice % CHAOS_MEMBERS;
    etcd_process_freeze(member(chaos, o->member));
    chaos->frozen_member = (gint)o->member;
    o->touched = 1;
    return TRUE;
}

static gboolean thaw_member(Chaos *chaos, Occurrence *o)
{
    etcd_process_thaw(member(chaos, o->member));
    chaos->frozen_member = -1;
    return revive(chaos, o);
}

static gboolean isolate_member(Chaos *chaos, Occurrence *o)
{
    o->member = o->choice % CHAOS_MEMBERS;
    etcd_cluster_isolate(chaos->world->cluster, o->member);
    o->touched = 1;
    return TRUE;
}

static gboolean join_member(Chaos *chaos, Occurrence *o)
{
    etcd_cluster_join(chaos->world->cluster);
    return revive(chaos, o);
}

typedef enum { REMOVING, ADDING, JOINING } Replacing;

static gboolean job_remove(Job *job, GError **error)
{
    return etcd_cluster_remove(job->cluster, job->member, error);
}

static gboolean job_add(Job *job, GError **error)
{
    return etcd_cluster_add(job->cluster, job->member, error);
}

static void start_replacing(Chaos *chaos, Occurrence *o)
{
    start_job(o, &(Job){.func = o->step == REMOVING ? job_remove : job_add,
                        .cluster = chaos->world->cluster,
                        .member = o->member});
}

static gboolean replace_member(Chaos *chaos, Occurrence *o)
{
    o->member = o->choice % CHAOS_MEMBERS;
    o->step = REMOVING;
    start_replacing(chaos, o);
    return TRUE;
}

/* The new one has written all of the log, so what was compacted long ago takes space in it, perhaps too much;
 * and no member is healthy while an alarm is raised. */
static gboolean tidy_member(Chaos *chaos, Occurrence *o)
{
    GError *error = NULL;
    EtcdProcess *etcd = member(chaos, o->member);
    if (!etcd_cluster_has_leader(chaos->world->cluster, o->member)) {
        return FALSE;
    }
    /* A linearizable read is answered when it has written all of it. */
    g_autofree char *read = etcd_process_post(etcd, "/v3/kv/range", "{\"key\":\"eA==\"}", &error);
    if (read == NULL) {
        return say_error(chaos, o, error);
    }
    if (!defragment_member(chaos, o->member, &error)) {
        return say_error(chaos, o, error);
    }
    return disarm(chaos) && revive(chaos, o);
}

static gboolean finish_replacing(Chaos *chaos, Occurrence *o)
{
    GError *error = NULL;
    gboolean done = FALSE;
    if (o->step == JOINING) {
        return tidy_member(chaos, o);
    }
    if (!job_is_over(chaos, o, &done)) {
        return FALSE;
    }
    if (o->step == ADDING && done) {
        if (!etcd_process_rejoin(member(chaos, o->member), &error)) {
            return say_error(chaos, o, error);
        }
        o->step = JOINING;
        o->touched = 1;
        return FALSE;
    }
    o->step = done ? ADDING : o->step;
    start_replacing(chaos, o);
    return FALSE;
}

/* ---- what is asked of any member ---- */

static gboolean job_post(Job *job, GError **error)
{
    g_autofree char *reply = etcd_process_post(job->etcd, job->path, job->body, error);
    return reply != NULL;
}

static gboolean job_move(Job *job, GError **error)
{
    return etcd_cluster_move_leader(job->cluster, job->member, error);
}

/* It counts only if it was answered. */
static gboolean end_job(Chaos *chaos, Occurrence *o)
{
    gboolean done = FALSE;
    if (!job_is_over(chaos, o, &done)) {
        return FALSE;
    }
    o->touched = done;
    return TRUE;
}

/* One that is there. */
static EtcdProcess *any_member(Chaos *chaos, Occurrence *o)
{
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        guint at = (o->choice + i) % CHAOS_MEMBERS;
        if ((gint)at != chaos->frozen_member && etcd_process_pid(member(chaos, at)) != 0) {
            return member(chaos, at);
        }
    }
    return NULL;
}

/* Takes @body. */
static gboolean post_job(Chaos *chaos, Occurrence *o, const char *path, char *body)
{
    EtcdProcess *etcd = any_member(chaos, o);
    if (etcd == NULL) {
        g_free(body);
        return FALSE;
    }
    start_job(o, &(Job){.func = job_post, .etcd = etcd, .path = path, .body = body});
    return TRUE;
}

static gboolean compact(Chaos *chaos, Occurrence *o)
{
    gint64 revision = recorder_revision(chaos->recorder) - BEHIND;
    if (revision <= chaos->compacted) {
        return FALSE;
    }
    chaos->compacted = revision;
    return post_job(chaos, o, "/v3/kv/compaction",
                    g_strdup_printf("{\"revision\":\"%" G_GINT64_FORMAT "\"}", revision));
}

static gboolean defragment(Chaos *chaos, Occurrence *o)
{
    return post_job(chaos, o, "/v3/maintenance/defragment", g_strdup("{}"));
}

static gboolean move_leader(Chaos *chaos, Occurrence *o)
{
    guint leader = etcd_cluster_leader(chaos->world->cluster, -1);
    start_job(o, &(Job){.func = job_move,
                        .cluster = chaos->world->cluster,
                        .member = (leader + 1 + o->choice % 2) % CHAOS_MEMBERS});
    return TRUE;
}

/* ---- no space ---- */

typedef enum { FILLING, FULL, CLEARED, COMPACTED, DONE } NoSpace;

static gint64 number_in(const char *json, const char *name)
{
    g_autofree char *start = g_strdup_printf("\"%s\":\"", name);
    const char *at = json != NULL ? strstr(json, start) : NULL;
    return at != NULL ? g_ascii_strtoll(at + strlen(start), NULL, 10) : 0;
}

/* The reply's revision; 0: none came. */
static gint64 post_kv(Chaos *chaos, const char *path, const char *key, const char *more)
{
    g_autofree char *encoded = g_base64_encode((const guchar *)key, strlen(key));
    g_autofree char *body = g_strdup_printf("{\"key\":\"%s\"%s}", encoded, more);
    g_autofree char *reply = etcd_process_post(member(chaos, 0), path, body, NULL);
    return number_in(reply, "revision");
}

/* Keys of people: written before etcd is full, they can be deleted then, so that history goes on. */
static gboolean put_markers(Chaos *chaos)
{
    static const char value[] = "{\"spec\":{\"owner\":\"marker\"}}";
    g_autofree char *encoded = g_base64_encode((const guchar *)value, strlen(value));
    g_autofree char *more = g_strdup_printf(",\"value\":\"%s\"", encoded);
    gboolean ok = TRUE;
    for (guint i = 0; i < MARKERS; i++) {
        g_autofree char *key = g_strdup_printf(PREFIX "desired/services/marker-%u", i);
        ok = ok && post_kv(chaos, "/v3/kv/put", key, more) > 0;
    }
    return ok;
}

static gboolean delete_markers(Chaos *chaos)
{
    gboolean ok = TRUE;
    for (guint i = 0; i < MARKERS; i++) {
        g_autofree char *key = g_strdup_printf(PREFIX "desired/services/marker-%u", i);
        ok = ok && post_kv(chaos, "/v3/kv/deleterange", key, "") > 0;
    }
    return ok;
}

static gint64 delete_junk(Chaos *chaos)
{
    g_autofree char *end = lh_etcd_prefix_end(JUNK);
    g_autofree char *encoded = g_base64_encode((const guchar *)end, strlen(end));
    g_autofree char *more = g_strdup_printf(",\"range_end\":\"%s\"", encoded);
    return post_kv(chaos, "/v3/kv/deleterange", JUNK, more);
}

static void fill(Chaos *chaos);

static void on_filled(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Chaos *chaos = data;
    (void)reply;
    if (error != NULL && g_error_matches(error, LH_ERROR, LH_ERR_NO_SPACE)) {
        chaos->full = TRUE;
        return;
    }
    fill(chaos);
}

static void fill(Chaos *chaos)
{
    g_autofree char *key = g_strdup_printf(JUNK "%u", chaos->junk++);
    g_autofree char *value = g_malloc(JUNK_BYTES);
    memset(value, 'x', JUNK_BYTES);
    const LhTxnOp put = {.type = LH_TXN_PUT, .key = key, .value = value, .value_len = JUNK_BYTES};
    lh_etcd_txn(chaos->world->client, &(LhTxnRequest){.success = &put, .n_success = 1}, on_filled,
                chaos);
}

static gboolean begin_nospace(Chaos *chaos, Occurrence *o)
{
    if (!put_markers(chaos)) {
        return FALSE;
    }
    o->step = FILLING;
    chaos->full = FALSE;
    fill(chaos);
    return TRUE;
}

/* What an operator does: make room, compact, defragment each member, lower the alarm. */
static gboolean end_nospace(Chaos *chaos, Occurrence *o)
{
    switch ((NoSpace)o->step) {
    case FILLING:
        if (chaos->full) {
            chaos_say(chaos, "nospace: the alarm is raised");
            o->touched = 1;
            o->step = FULL;
            o->until_ms = chaos_ms(chaos) + (chaos->calm ? 0 : 2000 + o->choice % 4000);
        }
        return FALSE;
    case FULL:
        if (o->number == 0) {
            o->number = delete_junk(chaos);
        }
        if (o->number > 0 && delete_markers(chaos)) {
            o->step = CLEARED;
        }
        return FALSE;
    case CLEARED:
        if (recorder_revision(chaos->recorder) >= o->number + BEHIND) {
            GError *error = NULL;
            if (!etcd_process_compact(member(chaos, 0), o->number, &error)) {
                return say_error(chaos, o, error);
            }
            chaos->compacted = MAX(chaos->compacted, o->number);
            o->step = COMPACTED;
        }
        return FALSE;
    case COMPACTED:
        for (guint i = 0; i < CHAOS_MEMBERS; i++) {
            GError *error = NULL;
            if (!defragment_member(chaos, i, &error)) {
                return say_error(chaos, o, error);
            }
        }
        o->step = DONE;
        return FALSE;
    case DONE:
        return disarm(chaos);
    }
    g_assert_not_reached();
}

/* ---- the table ---- */

const Fault faults_of_etcd[] = {
    {"kill-member", "an etcd member: kill -9", FAULT_ETCD, 500, 4000, 1, kill_member, revive},
    {"kill-quorum", "two etcd members: kill -9", FAULT_ETCD, 500, 4000, 1, kill_quorum, revive},
    {"stop-member", "an etcd member stands still", FAULT_ETCD, 1000, 5000, 1, freeze_member,
     thaw_member},
    {"isolate-member", "an etcd member is cut off from the others", FAULT_ETCD, 1500, 6000, 1,
     isolate_member, join_member},
    {"replace-member", "an etcd member: kill -9, removed, a new one without data", FAULT_ETCD, 300,
     2500, 1, replace_member, finish_replacing},
    {"nospace", "etcd has no space left; operators make some", FAULT_ETCD, 0, 0, 1, begin_nospace,
     end_nospace},
    {"compact", "history is compacted", FAULT_ANY, 0, 0, 1, compact, end_job},
    {"defragment", "an etcd member is defragmented", FAULT_ANY, 0, 0, 1, defragment, end_job},
    {"move-leader", "etcd's leader moves", FAULT_ETCD, 0, 0, 1, move_leader, end_job},
    {NULL, NULL, FAULT_ANY, 0, 0, 0, NULL, NULL},
};

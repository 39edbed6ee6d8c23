/*
 * What people are told: events under events/, counted instead of repeated, on leases of an hour that are
 * shared by up to 1,000 of them, written once a second under the controller's fence, never in a decision's
 * transaction. Events are for people: one that cannot be written is dropped with a log line.
 */
#include "base/errors.h"
#include "base/log.h"
#include "runtime/internal.h"

#include <string.h>

#define FLUSH_MS       1000
#define AGGREGATE_MS   (10 * 60 * 1000)
#define LEASE_TTL_S    3600
#define LEASE_EVENTS   1000
#define LEASE_FRESH_MS (30 * 60 * 1000) /* an event lives at least half an hour */
#define MAX_PENDING    200              /* different ones a second and controller */
#define MAX_TXN        60
#define MAX_SEEN       5000
#define FOR_WARNINGS   4 /* one in so many places is kept for them */

/* One event as it is told: the same reason and object within ten minutes only count. */
typedef struct {
    char *id;
    char *controller;
    int type;
    char *reason, *object, *message;
    gint64 count, last_ms; /* last_ms: wall, of the last time */
    gint64 mono_ms;        /* of the first */
    gint64 lease;
    gboolean pending;
    guint64 order; /* … and this one since then: counts up */
} Told;

struct LhEventRecorder {
    LhRuntime *runtime;
    GHashTable *seen; /* "controller reason object" -> Told */
    gint64 lease, lease_ms;
    guint lease_events;
    LhCallId grant;
    LhTimer *flush;
    GPtrArray *flights; /* Flight: one at a time, so that etcd has them in their order */
    GPtrArray *tellers; /* Runner: whose turn is still to come in this second */
    guint64 dropped, order;
    gint64 swept_ms; /* when the old ones were looked for */
};

/* A transaction in flight. */
typedef struct {
    LhEventRecorder *recorder;
    LhCallId call;
    guint n;
    gint64 seen_rev; /* of the mirror when they were sent: the answer cannot be older */
} Flight;

static void told_free(gpointer data)
{
    Told *told = data;

    g_free(told->id);
    g_free(told->controller);
    g_free(told->reason);
    g_free(told->object);
    g_free(told->message);
    g_free(told);
}

LhEventRecorder *lh_recorder_new(LhRuntime *runtime)
{
    LhEventRecorder *recorder = g_new0(LhEventRecorder, 1);

    recorder->runtime = runtime;
    recorder->seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, told_free);
    recorder->flights = g_ptr_array_new_with_free_func(g_free);
    recorder->tellers = g_ptr_array_new();
    return recorder;
}

void lh_recorder_free(LhEventRecorder *recorder)
{
    LhRuntime *runtime = recorder->runtime;

    lh_timer_clear(runtime->env, &recorder->flush);
    lh_etcd_cancel(runtime->etcd, &recorder->grant);
    for (guint i = 0; i < recorder->flights->len; i++)
        lh_etcd_cancel(runtime->etcd, &((Flight *)g_ptr_array_index(recorder->flights, i))->call);
    g_ptr_array_unref(recorder->flights);
    g_ptr_array_unref(recorder->tellers);
    g_hash_table_unref(recorder->seen);
    g_free(recorder);
}

static char *new_id(LhRuntime *runtime)
{
    return g_strdup_printf("%012" G_GINT64_MODIFIER "x-%08x", (guint64)lh_wall_ms(runtime->env),
                           (guint32)lh_random(runtime->env));
}

static void on_flush(gpointer data);

static void schedule_flush(LhEventRecorder *recorder)
{
    if (recorder->flush == NULL && !recorder->runtime->revoking)
        recorder->flush = lh_timer_in(recorder->runtime->env, FLUSH_MS, on_flush, recorder);
}

static gboolean is_old(gpointer key, gpointer value, gpointer data)
{
    const Told *told = value;
    const gint64 *now = data;

    (void)key;
    return !told->pending && told->mono_ms + AGGREGATE_MS < *now;
}

/* However much goes well, a warning is told. */
static gboolean has_room(guint used, guint places, int type)
{
    return used < (type == LH_EVENT_WARNING ? places : places - places / FOR_WARNINGS);
}

void lh_recorder_add(LhEventRecorder *recorder, Runner *runner, const LhPlanEvent *event)
{
    LhRuntime *runtime = recorder->runtime;
    gint64 now = lh_mono_ms(runtime->env);
    g_autofree char *key = g_strjoin(" ", runner->controller->name, event->reason, event->object,
                                     NULL);
    Told *told = g_hash_table_lookup(recorder->seen, key);

    if (told != NULL && !told->pending && told->mono_ms + AGGREGATE_MS < now) {
        g_hash_table_remove(recorder->seen, key);
        told = NULL;
    }
    if (told == NULL) {
        if (!has_room(g_hash_table_size(recorder->seen), MAX_SEEN, event->type) &&
            now >= recorder->swept_ms + FLUSH_MS) {
            recorder->swept_ms = now;
            g_hash_table_foreach_remove(recorder->seen, is_old, &now);
        }
        if (!has_room(g_hash_table_size(recorder->seen), MAX_SEEN, event->type) ||
            !has_room(runner->events->len, MAX_PENDING, event->type)) {
            recorder->dropped++;
            schedule_flush(recorder);
            return;
        }
        told = g_new0(Told, 1);
        told->id = new_id(runtime);
        told->controller = g_strdup(runner->controller->name);
        told->reason = g_strdup(event->reason);
        told->object = g_strdup(event->object);
        told->mono_ms = now;
        g_hash_table_insert(recorder->seen, g_steal_pointer(&key), told);
    }
    told->type = event->type;
    g_free(told->message);
    told->message = g_strdup(event->message);
    told->count++;
    told->last_ms = lh_wall_ms(runtime->env);
    if (!told->pending) {
        told->pending = TRUE;
        told->order = recorder->order++;
        g_ptr_array_add(runner->events, told);
    }
    schedule_flush(recorder);
}

void lh_recorder_drop(Runner *runner)
{
    for (guint i = 0; i < runner->events->len; i++)
        ((Told *)g_ptr_array_index(runner->events, i))->pending = FALSE;
    g_ptr_array_set_size(runner->events, 0);
}

/* A lease that is gone (etcd was restored): what is told again gets another one. */
static void forget_lease(LhEventRecorder *recorder)
{
    GHashTableIter iter;
    gpointer told;

    recorder->lease = 0;
    g_hash_table_iter_init(&iter, recorder->seen);
    while (g_hash_table_iter_next(&iter, NULL, &told))
        ((Told *)told)->lease = 0;
}

static void tell_next(LhEventRecorder *recorder);

static void on_told(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Flight *flight = data;
    LhEventRecorder *recorder = flight->recorder;

    /* Not what the mirror has noticed since. */
    if (error == NULL && reply->header.revision < flight->seen_rev &&
        lh_mirror_revision(recorder->runtime->mirror) >= flight->seen_rev)
        lh_mirror_doubt(recorder->runtime->mirror);
    if (error != NULL || !reply->succeeded) {
        if (error != NULL && g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST))
            forget_lease(recorder);
        lh_log(LH_LOG_INFO, "events were not written", "events", lh_fmt("%u", flight->n), "why",
               error != NULL ? error->message : "leads no more", "next", "they are dropped", NULL);
    }
    g_ptr_array_remove_fast(recorder->flights, flight);
    tell_next(recorder);
}

static void flush_runner(LhEventRecorder *recorder, Runner *runner)
{
    LhRuntime *runtime = recorder->runtime;
    guint n = MIN(runner->events->len, MAX_TXN);
    g_autoptr(GPtrArray) strings = g_ptr_array_new_with_free_func(g_free);
    g_autofree LhTxnOp *ops = g_new0(LhTxnOp, n);
    LhCompare fence[2];
    LhTxnRequest request = {.compares = fence, .n_compares = 2, .success = ops, .n_success = n};
    Flight *flight;

    for (guint i = 0; i < n; i++) {
        Told *told = g_ptr_array_index(runner->events, i);
        LhEvent event = {.time = told->last_ms,
                         .controller = told->controller,
                         .type = told->type,
                         .reason = told->reason,
                         .object = told->object,
                         .message = told->message,
                         .count = told->count};
        g_autofree char *key = lh_key(LH_KIND_EVENT, told->id);
        char *whole = g_strconcat(lh_mirror_prefix(runtime->mirror), key, NULL);
        char *value = lh_object_print(LH_KIND_EVENT, &event);
        g_ptr_array_add(strings, whole);
        g_ptr_array_add(strings, value);
        if (told->lease == 0) {
            told->lease = recorder->lease;
            recorder->lease_events++;
        }
        ops[i] = lh_txn_put(whole, value, told->lease);
        told->pending = FALSE;
    }
    g_ptr_array_remove_range(runner->events, 0, n);
    lh_election_fence(runner, fence);
    flight = g_new0(Flight, 1);
    flight->recorder = recorder;
    flight->n = n;
    flight->seen_rev = lh_mirror_revision(runtime->mirror);
    flight->call = lh_etcd_txn(runtime->etcd, &request, on_told, flight);
    g_ptr_array_add(recorder->flights, flight);
}

static void on_granted(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    LhEventRecorder *recorder = data;

    (void)ttl_s;
    recorder->grant = 0;
    if (error == NULL) {
        recorder->lease = lease;
        recorder->lease_ms = lh_mono_ms(recorder->runtime->env);
        recorder->lease_events = 0;
    }
    schedule_flush(recorder);
}

static gboolean has_events(const Runner *runner)
{
    return runner->events->len > 0 && runner->leads;
}

/* Room on a lease that lives long enough; asks for a new one otherwise. */
static gboolean have_lease(LhEventRecorder *recorder)
{
    LhRuntime *runtime = recorder->runtime;

    if (recorder->lease != 0 && recorder->lease_events + MAX_TXN <= LEASE_EVENTS &&
        lh_mono_ms(runtime->env) <= recorder->lease_ms + LEASE_FRESH_MS)
        return TRUE;
    if (recorder->grant == 0)
        recorder->grant = runtime->etcd->v->lease_grant(runtime->etcd, LEASE_TTL_S,
                                                        LH_ETCD_DEADLINE_MS, on_granted, recorder);
    return FALSE;
}

static guint64 waits_since(const Runner *runner)
{
    return ((const Told *)g_ptr_array_index(runner->events, 0))->order;
}

static gint by_order(gconstpointer a, gconstpointer b)
{
    guint64 left = waits_since(*(Runner *const *)a), right = waits_since(*(Runner *const *)b);

    return (left > right) - (left < right);
}

/* The next of this second's; after the last one, another second. */
static void tell_next(LhEventRecorder *recorder)
{
    LhRuntime *runtime = recorder->runtime;

    while (recorder->flights->len == 0 && recorder->tellers->len > 0) {
        Runner *runner = g_ptr_array_steal_index(recorder->tellers, 0);
        if (has_events(runner) && lh_election_may_act(runner) &&
            !lh_mirror_in_doubt(runtime->mirror) && have_lease(recorder))
            flush_runner(recorder, runner);
    }
    for (guint i = 0; recorder->flights->len == 0 && i < runtime->n_runners; i++)
        if (has_events(&runtime->runners[i]))
            schedule_flush(recorder);
}

static void on_flush(gpointer data)
{
    LhEventRecorder *recorder = data;
    LhRuntime *runtime = recorder->runtime;

    recorder->flush = NULL;
    if (recorder->dropped > 0) {
        lh_log(LH_LOG_WARNING, "too many events", "dropped",
               lh_fmt("%" G_GUINT64_FORMAT, recorder->dropped), NULL);
        recorder->dropped = 0;
    }
    if (recorder->flights->len > 0)
        return; /* what came since is seen after the last one's answer */
    g_ptr_array_set_size(recorder->tellers, 0);
    for (guint i = 0; i < runtime->n_runners; i++)
        if (has_events(&runtime->runners[i]))
            g_ptr_array_add(recorder->tellers, &runtime->runners[i]);
    g_ptr_array_sort(recorder->tellers, by_order); /* people read first what was first */
    tell_next(recorder);
}

/*
 * Plans of partitions. A plan's intervals leave no gap and do not overlap (its
 * value says so, or is no plan), what has begun stays as it was but for an end that lies ahead, at most one
 * interval has not begun. What a plan newly takes has room for it beside all that the other plans, as they
 * stand at this commit, put there until their cut-over; what a dedicated service has, it has alone.
 *
 * Throughputs are people's and may change while a plan is on its way: a partition is only judged when nothing
 * accepted of its services has changed lately.
 */
#include "invariants.h"

#include <string.h>

#define MOST     (G_GINT64_CONSTANT(1) << 45) /* bytes per second: more counts as this */
#define STALE_MS 60000 /* by then every leader that may act has seen an edit */
#define DAY_MS   (24 * 3600 * G_GINT64_CONSTANT(1000))
#define MANY     100 /* intervals */
#define COMPARED 100 /* partitions that a transaction compares */

#define SAY(...) inv_fail(inv, INV_PARTITIONS, __VA_ARGS__)

/* When the writer decided, it was not before this, by its own clock. */
static gint64 decided_after(const Inv *inv)
{
    return inv->wall_ms - inv->options.clock_ms - inv->options.late_ms;
}

static const LhPartitionInterval *interval(const LhPartitionPlan *plan, guint i)
{
    return lh_array_at(plan->history, i);
}

static gboolean same_set(const LhPartitionInterval *a, const LhPartitionInterval *b)
{
    guint n = g_strv_length((GStrv)a->partitions);
    for (guint i = 0; i < n; i++)
        if (!g_strv_contains(b->partitions, a->partitions[i]))
            return FALSE;
    return g_strv_length((GStrv)b->partitions) == n;
}

/* ---- history ---- */

/* The interval of @before with which @after begins; G_MAXUINT: none. */
static guint kept_from(const LhPartitionPlan *before, const LhPartitionPlan *after)
{
    for (guint i = 0; i < before->history->n; i++)
        if (interval(before, i)->start == interval(after, 0)->start)
            return i;
    return G_MAXUINT;
}

static void check_past(Inv *inv, const char *key, const LhPartitionPlan *before,
                       const LhPartitionPlan *after, gboolean late)
{
    guint from = kept_from(before, after), n = before->history->n;
    if (from == G_MAXUINT) {
        SAY("%s: nothing of what was running is left", key);
        return;
    }
    /* Data of an interval is kept for a day at least; of very many, the oldest go before. */
    if (from > 0 && n < MANY && interval(before, from - 1)->end > inv->wall_ms - DAY_MS)
        SAY("%s: what ended lately was forgotten", key);
    for (guint i = from; i < n; i++) {
        const LhPartitionInterval *was = interval(before, i);
        const LhPartitionInterval *is = i - from < after->history->n ? interval(after, i - from)
                                                                     : NULL;
        gboolean kept = is != NULL && is->start == was->start && same_set(is, was);
        if (!kept && (i + 1 < n || n == 1 || (was->start <= decided_after(inv) && !late)))
            SAY("%s: its interval %u had begun and was replaced", key, i);
        /* Only what runs, or ran until the one that is replaced, gets another end. */
        if (kept && is->end != was->end &&
            (i + 2 < n || (is->end >= 0 && is->end <= decided_after(inv) && !late)))
            SAY("%s: the end of interval %u was changed", key, i);
    }
}

static void check_history(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhPartitionPlan *before = (const LhPartitionPlan *)change->before;
    const LhPartitionPlan *after = (const LhPartitionPlan *)change->after;
    guint coming = 0;
    if (after->history->n == 0) {
        SAY("%s is empty", change->key);
        return;
    }
    for (guint i = 0; i + 1 < after->history->n; i++) {
        if (interval(after, i)->end != interval(after, i + 1)->start)
            SAY("%s: a gap or an overlap after interval %u", change->key, i);
        if (same_set(interval(after, i), interval(after, i + 1)))
            SAY("%s: interval %u says nothing new", change->key, i + 1);
    }
    /* Within the margin (a minute at most) one that has not begun counts as begun. */
    for (guint i = 0; i < after->history->n; i++)
        coming += interval(after, i)->start > inv->wall_ms + inv->options.clock_ms + STALE_MS;
    if (coming > 1)
        SAY("%s: %u intervals have not begun", change->key, coming);
    if (before != NULL && lh_object_known(&before->o) && before->history->n > 0)
        check_past(inv, change->key, before, after, commit->late);
}

/* ---- room ---- */

typedef struct {
    gint64 load;
    guint users, dedicated;
    gboolean unclear; /* what is accepted of one of them does not parse, or has changed lately */
} Load;

static gint64 share_of(const LhService *spec, const LhPartitionInterval *at)
{
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    for (guint i = 0; at->partitions[i] != NULL; i++)
        g_hash_table_add(names, (gpointer)at->partitions[i]);
    gint64 n = g_hash_table_size(names);
    return (MIN(spec->throughput_bytes_per_second, MOST) + n - 1) / n;
}

static gboolean edited_lately(const Inv *inv, const char *accepted)
{
    const gint64 *at = g_hash_table_lookup(inv->edited_ms, accepted);
    return at != NULL && inv->now_ms - *at < STALE_MS + inv->options.late_ms;
}

/* @surely: only what has surely not ended; else also what may not have ended. */
static gboolean unfinished(const Inv *inv, const LhPartitionInterval *at, gboolean surely)
{
    return at->end < 0 ||
           at->end > (surely ? inv->wall_ms + inv->options.clock_ms : decided_after(inv));
}

static void add_plan(const Inv *inv, const LhPartitionPlan *plan, const char *partition,
                     const char *but, Load *load)
{
    g_autofree char *accepted = g_strconcat("services/", plan->o.name, NULL);
    const LhService *spec = lh_accepted_spec(inv_get(inv, LH_KIND_ACCEPTED, accepted),
                                             LH_KIND_SERVICE);
    gint64 most = -1;
    for (guint i = 0; i < plan->history->n; i++) {
        const LhPartitionInterval *at = interval(plan, i);
        if (unfinished(inv, at, TRUE) && g_strv_contains(at->partitions, partition))
            most = MAX(most, spec == NULL ? 0 : share_of(spec, at));
    }
    if (most < 0)
        return;
    load->users++;
    load->load += most;
    load->dedicated += spec != NULL && spec->partitions_dedicated;
    load->unclear = load->unclear || spec == NULL ||
                    (strcmp(plan->o.name, but) != 0 && edited_lately(inv, accepted));
}

/* @service: what is accepted of it was compared. */
static Load load_of(const Inv *inv, const char *partition, const char *service)
{
    Load load = {.load = 0};
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_PARTITIONPLAN]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        if (lh_object_known(value))
            add_plan(inv, value, partition, service, &load);
        else
            load.unclear = TRUE;
    }
    return load;
}

static gboolean had(const Inv *inv, const LhPartitionPlan *before, const char *partition)
{
    for (guint i = 0; before != NULL && lh_object_known(&before->o) && i < before->history->n; i++)
        if (unfinished(inv, interval(before, i), FALSE) &&
            g_strv_contains(interval(before, i)->partitions, partition))
            return TRUE;
    return FALSE;
}

/* The model has the plan already. */
static void check_taken(Inv *inv, const InvCommit *commit, const InvChange *change,
                        const LhService *spec, const char *name, gboolean compared)
{
    g_autofree char *accepted = g_strconcat("partitions/", name, NULL);
    const LhObject *object = inv_get(inv, LH_KIND_ACCEPTED, accepted);
    const LhPartition *partition = lh_accepted_spec(object, LH_KIND_PARTITION);
    Load load = load_of(inv, name, change->name);
    if (compared && !inv_relied_on(inv, INV_PARTITIONS, commit, LH_KIND_ACCEPTED, accepted,
                                   object == NULL ? 0 : object->mod_rev))
        SAY("%s takes %s, which was not compared", change->key, name);
    if (!compared)
        return;
    if (partition == NULL) {
        SAY("%s takes %s, which does not exist", change->key, name);
        return;
    }
    if (load.unclear || commit->late) {
        inv->skipped[INV_PARTITIONS]++;
        return;
    }
    inv->counters.partitions_taken++;
    if (load.dedicated > 0 && load.users > 1)
        SAY("%s takes %s: %u services have it, %u of them for themselves", change->key, name,
            load.users, load.dedicated);
    if (!spec->partitions_dedicated && load.load > MIN(partition->capacity_bytes_per_second, MOST))
        SAY("%s takes %s: then %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " bytes/s are used",
            change->key, name, load.load, partition->capacity_bytes_per_second);
}

static void check_room(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhPartitionPlan *after = (const LhPartitionPlan *)change->after;
    const LhPartitionInterval *last = interval(after, after->history->n - 1);
    g_autofree char *name = g_strconcat("services/", change->name, NULL);
    const LhObject *accepted = inv_get(inv, LH_KIND_ACCEPTED, name);
    const LhService *spec = lh_accepted_spec(accepted, LH_KIND_SERVICE);
    guint taken = 0;
    if (!inv_relied_on(inv, INV_PARTITIONS, commit, LH_KIND_ACCEPTED, name,
                       accepted == NULL ? 0 : accepted->mod_rev))
        SAY("%s: what is accepted of its service was not compared", change->key);
    if (spec == NULL && last->partitions[0] != NULL)
        SAY("%s: a service that does not exist gets partitions", change->key);
    for (guint i = 0; spec != NULL && last->partitions[i] != NULL; i++)
        if (!had(inv, (const LhPartitionPlan *)change->before, last->partitions[i]))
            check_taken(inv, commit, change, spec, last->partitions[i], taken++ < COMPARED);
}

/* Only of a deleted service, and only when it has no partitions any more. */
static void check_deleted(Inv *inv, const InvChange *change)
{
    const LhPartitionPlan *before = (const LhPartitionPlan *)change->before;
    g_autofree char *accepted = g_strconcat("services/", change->name, NULL);
    if (inv_get(inv, LH_KIND_ACCEPTED, accepted) != NULL ||
        inv_get(inv, LH_KIND_SERVICE, change->name) != NULL)
        SAY("%s was deleted; its service exists", change->key);
    if (lh_object_known(&before->o) && before->history->n > 0 &&
        interval(before, before->history->n - 1)->partitions[0] != NULL)
        SAY("%s was deleted while it had partitions", change->key);
}

/* ---- the group ---- */

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_PARTITIONPLAN && change->after == NULL)
            check_deleted(inv, change);
    }
}

static void after(Inv *inv, const InvCommit *commit)
{
    if (commit->by != INV_BY_MANAGER || (commit->facts != NULL && commit->facts->unaware))
        return;
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->after == NULL || !lh_object_known(change->after))
            continue;
        if (change->kind == LH_KIND_PARTITIONPLAN) {
            inv_did(inv, INV_PARTITIONS);
            inv->counters.plans_written++;
            check_history(inv, commit, change);
            if (((const LhPartitionPlan *)change->after)->history->n > 0)
                check_room(inv, commit, change);
        }
        if (change->kind == LH_KIND_ASSIGNMENT && change->before == NULL &&
            g_str_has_prefix(change->name, "indexer/"))
            inv->counters.partitions_loaded++; /* judged by invariants_exclusive.c */
    }
}

const InvGroup inv_partitions = {on_commit, after};

/*
 * What nodes are held for. Failed only when the registration has been gone for a full lease TTL, whatever the
 * leader's wall clock did meanwhile, and that is final; else only the steps of the table. Of a pool of four and
 * more its probes condemn few within fifteen seconds, but by a confirmed Brake. Who is in failure gets nothing
 * new; who is on probation, in a pool whose items are given one by one, half of an equal share at most.
 */
#include "invariants.h"

#include <string.h>

#define BY_PROBE   "probe: "
#define MARKS_MS   15000
#define SMALL_POOL 4
#define AWARE_MS   15000 /* by then every leader that may act knows what a NodeHealth says */
#define CONFIRM_MS 30000 /* what a confirmed Brake let go is committed by then */

/* ---- the table ---- */

/* From what to what; a registration that goes or comes is a step of its own. */
static const gboolean may_follow[LH_HEALTH_FAILED + 1][LH_HEALTH_FAILED + 1] = {
    [LH_HEALTH_HEALTHY][LH_HEALTH_FAILURE] = TRUE,
    [LH_HEALTH_FAILURE][LH_HEALTH_FAILURE] = TRUE, /* to be revoked; gone */
    [LH_HEALTH_FAILURE][LH_HEALTH_PROBATION] = TRUE,
    [LH_HEALTH_FAILURE][LH_HEALTH_FAILED] = TRUE,
    [LH_HEALTH_PROBATION][LH_HEALTH_HEALTHY] = TRUE,
    [LH_HEALTH_PROBATION][LH_HEALTH_FAILURE] = TRUE,
    [LH_HEALTH_FAILED][LH_HEALTH_FAILED] = TRUE,
};

static void check_step(Inv *inv, const InvChange *change)
{
    const LhHealth *before = (const LhHealth *)change->before;
    const LhHealth *after = (const LhHealth *)change->after;
    gboolean back = before->missing_since >= 0 && after->state == LH_HEALTH_HEALTHY &&
                    before->state != LH_HEALTH_FAILED; /* it registered again */
    if (!back && !may_follow[before->state][after->state])
        inv_fail(inv, INV_HEALTH, "%s goes from %s to %s", change->key,
                 lh_health_state_name(before->state), lh_health_state_name(after->state));
    else if (before->revoking && !after->revoking && !back)
        inv_fail(inv, INV_HEALTH, "%s: its lease was to be revoked, and is not any more",
                 change->key);
    else if (after->state == LH_HEALTH_FAILED && before->missing_since < 0)
        inv_fail(inv, INV_HEALTH, "%s is called failed; nobody has missed it", change->key);
}

static void check_failed(Inv *inv, const InvChange *change)
{
    const LhHealth *health = (const LhHealth *)change->after;
    const gint64 *gone = g_hash_table_lookup(inv->gone_ms, change->name);
    if (inv_get(inv, LH_KIND_NODE, change->name) != NULL)
        inv_fail(inv, INV_HEALTH, "%s is called failed; it is registered", change->key);
    else if (gone != NULL && inv->now_ms - *gone < health->lease_ttl_ms)
        inv_fail(inv, INV_HEALTH, "%s is called failed %" G_GINT64_FORMAT " ms after it went",
                 change->key, inv->now_ms - *gone);
}

static gint64 since_of(const GHashTable *table, const char *name)
{
    const gint64 *ms = g_hash_table_lookup((GHashTable *)table, name);
    return ms == NULL ? G_MAXINT64 : *ms;
}

/* ---- marks by probes ---- */

static guint count_nodes(const Inv *inv, const char *pool, gint64 since_ms)
{
    guint n = 0;
    GHashTableIter iter;
    gpointer key, value;
    gsize len = strlen(pool);
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_NODE]);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        n += strncmp(key, pool, len) == 0 && ((const char *)key)[len] == '/';
    g_hash_table_iter_init(&iter, inv->gone_ms);
    while (g_hash_table_iter_next(&iter, &key, &value))
        n += strncmp(key, pool, len) == 0 && ((const char *)key)[len] == '/' &&
             *(const gint64 *)value >= since_ms;
    return n;
}

static gboolean is_mark(const LhHealth *before, const LhHealth *after)
{
    return after->state == LH_HEALTH_FAILURE && before->state != LH_HEALTH_FAILURE &&
           after->missing_since < 0 && after->reason != NULL &&
           g_str_has_prefix(after->reason, BY_PROBE);
}

/* It said so itself, or says no more that it is: no doubt about who is cut off. */
static gboolean says_itself(const Inv *inv, const char *node)
{
    const LhHealth *health = (const LhHealth *)inv_get(inv, LH_KIND_HEALTH, node);
    return health != NULL && lh_object_known(&health->o) && health->reason != NULL &&
           (g_str_has_prefix(health->reason, "its own word") ||
            g_str_has_prefix(health->reason, "it reports no error"));
}

/* Other nodes of the pool that were condemned lately. */
static guint count_marks(const Inv *inv, const char *pool, const char *node, gint64 since_ms)
{
    g_autoptr(GHashTable) nodes = g_hash_table_new(g_str_hash, g_str_equal);
    gsize len = strlen(pool);
    for (guint i = 0; i < inv->marks->len; i++) {
        const InvMark *mark = &g_array_index(inv->marks, InvMark, i);
        if (mark->ms > since_ms && strncmp(mark->node, pool, len) == 0 && mark->node[len] == '/' &&
            strcmp(mark->node, node) != 0 && !says_itself(inv, mark->node))
            g_hash_table_add(nodes, (gpointer)mark->node);
    }
    return g_hash_table_size(nodes);
}

/* Two leaders' clocks differ: what is told to be older than fifteen seconds may be a little less. */
static void check_mark(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    gint64 since = commit->now_ms - MARKS_MS + 2 * inv->options.clock_ms;
    gint64 percent = inv_settings(inv, "failure-detector")->brake_percent;
    g_autofree char *pool = lh_name_part(change->name, 0);
    InvMark mark = {.ms = commit->now_ms};
    guint marks, nodes;
    while (inv->marks->len > 0 &&
           g_array_index(inv->marks, InvMark, 0).ms <= commit->now_ms - MARKS_MS)
        g_array_remove_index(inv->marks, 0);
    marks = 1 + count_marks(inv, pool, change->name, since);
    nodes = count_nodes(inv, pool, since);
    g_strlcpy(mark.node, change->name, sizeof mark.node);
    g_array_append_val(inv->marks, mark);
    if (commit->late || marks == 1 || marks * 100 <= percent * nodes ||
        since_of(inv->large_ms, pool) > commit->earliest_ms - inv->options.late_ms ||
        commit->now_ms - inv->condoned_ms < CONFIRM_MS)
        return;
    inv_fail(inv, INV_HEALTH, "%s: %u of %u nodes are condemned by their probes at once",
             change->key, marks, nodes);
}

/* ---- what nodes get ---- */

/* What there is to hold, of which there is one each, in pools where it is given one by one. */
static LhKind whole_of(const char *pool)
{
    return strcmp(pool, "recovery") == 0  ? LH_KIND_RECOVERYTASK
           : strcmp(pool, "indexer") == 0 ? LH_KIND_PARTITION
                                          : LH_N_KINDS;
}

static gint64 count_assigned(const Inv *inv, const char *below)
{
    gint64 n = 0;
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_ASSIGNMENT]);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        n += g_str_has_prefix(key, below);
    return n;
}

static gboolean takes(const Inv *inv, const LhNode *node, const char *pool)
{
    g_autofree char *policy = g_strdup_printf("nodepolicies/%s/%s", pool, node->node_name);
    const LhHealth *health = (const LhHealth *)inv_get(inv, LH_KIND_HEALTH, node->o.name);
    return inv_get(inv, LH_KIND_ACCEPTED, policy) == NULL &&
           (node->state == LH_NODE_ONLINE || node->state == LH_NODE_WAITING) &&
           (health == NULL || (lh_object_known(&health->o) && health->state != LH_HEALTH_FAILURE &&
                               health->state != LH_HEALTH_FAILED));
}

/* Half of an equal share of all that is or could be held; what holds for no time waits like the rest. */
static gint64 half_share(const Inv *inv, const char *pool)
{
    g_autofree char *below = g_strconcat(pool, "/", NULL);
    gint64 all = count_assigned(inv, below), takers = 0;
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_NODE]);
    while (g_hash_table_iter_next(&iter, &key, &value))
        takers += g_str_has_prefix(key, below) && lh_object_known(value) && takes(inv, value, pool);
    g_hash_table_iter_init(&iter, inv->kinds[whole_of(pool)]);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        all += inv_assignments_of(inv, pool, key) == NULL;
    return takers == 0 ? G_MAXINT64 : all / (2 * takers);
}

static void check_given(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_autofree char *pool = lh_name_part(change->name, 0), *id = lh_name_part(change->name, 1);
    g_autofree char *node = g_strconcat(pool, "/", id, NULL), *below = g_strconcat(node, "/", NULL);
    const LhHealth *health = (const LhHealth *)inv_get(inv, LH_KIND_HEALTH, node);
    gint64 late = AWARE_MS + (commit->facts == NULL ? inv->options.late_ms : 0);
    gint64 before = commit->earliest_ms - late;
    if (health == NULL || !lh_object_known(&health->o) || commit->late ||
        since_of(inv->said_ms, node) > before)
        return;
    if (health->state == LH_HEALTH_FAILURE || health->state == LH_HEALTH_FAILED)
        inv_fail(inv, INV_HEALTH, "%s: its node has been in failure for %" G_GINT64_FORMAT " ms",
                 change->key, commit->earliest_ms - since_of(inv->said_ms, node));
    else if (health->state == LH_HEALTH_PROBATION && whole_of(pool) != LH_N_KINDS &&
             since_of(inv->moved_ms, pool) <= before &&
             count_assigned(inv, below) > half_share(inv, pool))
        inv_fail(inv, INV_HEALTH,
                 "%s: its node is on probation, and has %" G_GINT64_FORMAT
                 "; half a share is %" G_GINT64_FORMAT,
                 change->key, count_assigned(inv, below), half_share(inv, pool));
}

/* ---- the group ---- */

static void check_health(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhObject *node = inv_get(inv, LH_KIND_NODE, change->name);
    const LhHealth *before = (const LhHealth *)change->before;
    const LhHealth *after = (const LhHealth *)change->after;
    gboolean known = before != NULL && lh_object_known(&before->o);
    inv_did(inv, INV_HEALTH);
    if (after == NULL && !(known && before->state == LH_HEALTH_FAILED))
        inv_fail(inv, INV_HEALTH, "%s is forgotten before it failed", change->key);
    if (after != NULL && known)
        check_step(inv, change);
    if (after != NULL && after->state == LH_HEALTH_FAILED &&
        !(known && before->state == LH_HEALTH_FAILED))
        check_failed(inv, change);
    if (after != NULL && known && is_mark(before, after))
        check_mark(inv, commit, change);
    if (!inv_relied_on(inv, INV_HEALTH, commit, LH_KIND_NODE, change->name,
                       node == NULL ? 0 : node->mod_rev))
        inv_fail(inv, INV_HEALTH, "%s: the registration was not compared", change->key);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_HEALTH &&
            (change->after == NULL || lh_object_known(change->after)))
            check_health(inv, commit, change);
    }
}

static int state_of(const LhObject *health)
{
    return health != NULL && lh_object_known(health) ? (int)((const LhHealth *)health)->state : -1;
}

static void note(GHashTable *table, const char *name, gint64 ms)
{
    g_hash_table_replace(table, g_strdup(name), g_memdup2(&ms, sizeof ms));
}

static void note_policy(Inv *inv, const char *accepted)
{
    g_autofree char *pool = lh_name_part(accepted, 1);
    if (pool != NULL)
        note(inv->moved_ms, pool, inv->now_ms);
}

static void note_moved(Inv *inv, const InvChange *change)
{
    g_autofree char *pool = lh_name_part(change->name, 0);
    gboolean given = change->kind == LH_KIND_ASSIGNMENT && change->before == NULL;
    if (change->kind == LH_KIND_RECOVERYTASK)
        note(inv->moved_ms, "recovery", inv->now_ms);
    else if (change->kind == LH_KIND_PARTITION || change->kind == LH_KIND_PARTITIONPLAN)
        note(inv->moved_ms, "indexer", inv->now_ms);
    else if (g_str_has_prefix(change->name, "nodepolicies/") && change->kind == LH_KIND_ACCEPTED)
        note_policy(inv, change->name);
    else if (pool != NULL && !given &&
             (change->kind == LH_KIND_NODE || change->kind == LH_KIND_HEALTH ||
              change->kind == LH_KIND_ASSIGNMENT))
        note(inv->moved_ms, pool, inv->now_ms);
}

/* Of a pool that has just become as large as that, nobody may have known. */
static void note_size(Inv *inv, const char *node)
{
    g_autofree char *pool = lh_name_part(node, 0);
    if (pool == NULL)
        return;
    if (count_nodes(inv, pool, G_MAXINT64) < SMALL_POOL)
        g_hash_table_remove(inv->large_ms, pool);
    else if (!g_hash_table_contains(inv->large_ms, pool))
        note(inv->large_ms, pool, inv->now_ms);
}

static void note_change(Inv *inv, const InvChange *change)
{
    const LhBrake *brake = (const LhBrake *)change->after;
    const LhBrake *was = (const LhBrake *)change->before;
    if (change->kind == LH_KIND_HEALTH && state_of(change->before) != state_of(change->after))
        note(inv->said_ms, change->name, inv->now_ms);
    if (change->kind == LH_KIND_BRAKE && strcmp(change->name, "failure-detector") == 0 &&
        ((brake != NULL && lh_object_known(&brake->o) && brake->confirmed_at >= 0) ||
         (was != NULL && lh_object_known(&was->o) && was->confirmed_at >= 0)))
        inv->condoned_ms = inv->now_ms;
    if (change->kind == LH_KIND_NODE)
        note_size(inv, change->name);
    note_moved(inv, change);
}

static void after(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        const LhAssignment *order = (const LhAssignment *)change->after;
        if (change->kind == LH_N_KINDS)
            continue;
        note_change(inv, change);
        if (commit->by == INV_BY_MANAGER && change->kind == LH_KIND_ASSIGNMENT &&
            change->before == NULL && order != NULL && lh_object_known(&order->o) &&
            order->action == LH_ACTION_LOAD && !(commit->facts != NULL && commit->facts->unaware))
            check_given(inv, commit, change);
    }
}

const InvGroup inv_health = {on_commit, after};

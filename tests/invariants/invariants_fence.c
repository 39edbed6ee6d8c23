/*
 * Who may write what. A manager writes under decided/ and events/ only, each transaction under the
 * fence of one controller: it compares create and mod revision of a leader key, and at that moment no
 * older key of this controller exists. Each write compares its target, is well-formed, belongs to
 * that controller, and never goes over a value that does not parse. Nobody but people writes desired/
 * and published/.
 *
 * In a recorded history the fence is what the writes themselves say: the one controller to which all of
 * a transaction belongs, which must have a leader, and the epoch that its assignments name.
 */
#include "invariants.h"

#include <string.h>

#define SAY(inv, ...) inv_fail(inv, INV_FENCE, __VA_ARGS__)

InvFence inv_fence_compared(const Inv *inv, const LhCompare *compares, gsize n)
{
    g_autofree char *prefix = g_strconcat(inv->options.prefix, "leaders/", NULL);
    InvFence fence = {.epoch = 0};
    gint64 mod;
    for (gsize i = 0; i < n; i++) {
        const LhCompare *compare = &compares[i];
        if (compare->target != LH_CMP_CREATE || compare->result != LH_CMP_EQUAL ||
            compare->number <= 0 || !g_str_has_prefix(compare->key, prefix) ||
            !inv_compares(compares, n, compare->key, LH_CMP_MOD, &mod) || mod <= 0)
            continue;
        const char *controller = compare->key + strlen(prefix);
        const char *slash = strchr(controller, '/');
        if (slash == NULL)
            continue;
        g_strlcpy(fence.controller, controller,
                  MIN(sizeof fence.controller, (gsize)(slash - controller) + 1));
        fence.key = compare->key;
        fence.epoch = compare->number;
        fence.mod = mod;
        break;
    }
    return fence;
}

/* The lowest create revision among the controller's leader keys that are bound to a lease. */
static gint64 oldest_leader(const Inv *inv, const char *controller)
{
    GHashTableIter iter;
    gpointer key, value;
    gsize len = strlen(controller);
    gint64 oldest = 0;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_LEADER]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        gint64 create = ((const LhObject *)value)->create_rev;
        if (lh_object_lease(value) == 0)
            continue;
        if (strncmp(key, controller, len) == 0 && ((const char *)key)[len] == '/' &&
            (oldest == 0 || create < oldest))
            oldest = create;
    }
    return oldest;
}

/* ---- one write under a fence ---- */

static gboolean is_of(const InvChange *change, const char *controller)
{
    guint bits = inv_rights(change);
    const char *name;
    for (guint i = 0; (name = inv_rights_name(i)) != NULL; i++)
        if ((bits >> i & 1) && strcmp(name, controller) == 0)
            return TRUE;
    return FALSE;
}

static void check_assignment(Inv *inv, const InvFence *fence, const InvChange *change)
{
    const LhAssignment *after = (const LhAssignment *)change->after;
    if (after == NULL)
        return;
    gboolean evicts = strcmp(fence->controller, "cache-evictor") == 0 ||
                      strcmp(fence->controller, "cluster-monitor") == 0;
    if (after->epoch != fence->epoch || g_strcmp0(after->controller, fence->controller) != 0)
        SAY(inv,
            "%s says %s, epoch %" G_GINT64_FORMAT
            "; it was written by %s under epoch %" G_GINT64_FORMAT,
            change->key, after->controller, after->epoch, fence->controller, fence->epoch);
    /* In an exclusive pool one controller orders both. */
    if (!inv_is_cache(change->name))
        evicts = after->action == LH_ACTION_EVICT;
    /* A seed that was edited is loaded over what it was: that is judged with the seeds. */
    if (g_str_has_prefix(change->name, "manager/") && after->action == LH_ACTION_LOAD)
        return;
    if (evicts ? after->action != LH_ACTION_EVICT || change->before == NULL
               : after->action != LH_ACTION_LOAD || change->before != NULL)
        SAY(inv, "%s: %s orders %s over %s", change->key, fence->controller,
            lh_action_name(after->action), change->before == NULL ? "nothing" : "another");
}

static void check_target(Inv *inv, const InvCommit *commit, const InvFence *fence,
                         const InvChange *change)
{
    const InvFacts *facts = inv_facts(inv, INV_FENCE, commit);
    gint64 target, prev = change->prev == NULL ? 0 : change->prev->mod_rev;
    if (facts != NULL && (!inv_compares(facts->compares, facts->n_compares, change->event->kv.key,
                                        LH_CMP_MOD, &target) ||
                          target != prev))
        SAY(inv, "%s wrote %s without comparing its revision", fence->controller, change->key);
}

static void check_fenced(Inv *inv, const InvCommit *commit, const InvFence *fence,
                         const InvChange *change)
{
    if (!is_of(change, fence->controller)) {
        SAY(inv, "%s is not %s's to write", change->key, fence->controller);
        return;
    }
    if (change->kind == LH_KIND_EVENT)
        return; /* for people: counted in place, whatever is there */
    if (change->before != NULL && !lh_object_known(change->before))
        SAY(inv, "%s wrote over %s, which does not parse", fence->controller, change->key);
    check_target(inv, commit, fence, change);
    if (change->kind == LH_KIND_ASSIGNMENT &&
        (change->after == NULL || lh_object_known(change->after)))
        check_assignment(inv, fence, change);
}

/* ---- the fence of a recorded transaction ---- */

static gboolean is_decided(const char *key)
{
    return !g_str_has_prefix(key, "desired/") && !g_str_has_prefix(key, "published/") &&
           !g_str_has_prefix(key, "leaders/") && !g_str_has_prefix(key, "actual/");
}

/* Nothing under published/ and actual/ is a manager's to write, but what has come to its end it takes away. */
static gboolean is_retired(const InvCommit *commit, const InvChange *change)
{
    return commit->by == INV_BY_MANAGER && change->event->is_delete &&
           (change->kind == LH_KIND_RECOVERYTASK ||
            (change->kind == LH_KIND_ITEM && !inv_is_cache(change->name)));
}

/* The epoch that a put assignment names; 0: none does. */
static gint64 epoch_said(const InvCommit *commit, const char **controller)
{
    for (guint i = 0; i < commit->n; i++) {
        const LhAssignment *after = (const LhAssignment *)commit->changes[i].after;
        if (commit->changes[i].kind != LH_KIND_ASSIGNMENT || after == NULL ||
            !lh_object_known(&after->o))
            continue;
        *controller = after->controller;
        return after->epoch;
    }
    return 0;
}

/* FALSE: said why, or there is nothing to judge. */
static gboolean fence_told(Inv *inv, const InvCommit *commit, InvFence *out)
{
    const char *said = NULL, *name, *key = commit->changes[0].key;
    gint64 epoch = epoch_said(commit, &said);
    guint bits = ~0u, leading = 0, led = 0;
    gboolean people = TRUE;
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        people = people && inv_people_may(change);
        if (is_decided(change->key) || is_retired(commit, change))
            bits &= inv_rights(change);
    }
    for (guint i = 0; (name = inv_rights_name(i)) != NULL; i++) {
        gint64 oldest = oldest_leader(inv, name);
        if (!(bits >> i & 1) || (said != NULL && strcmp(said, name) != 0) || oldest == 0)
            continue;
        g_strlcpy(out->controller, name, sizeof out->controller);
        out->epoch = epoch != 0 ? epoch : oldest;
        leading++;
        led += out->epoch == oldest;
    }
    if (bits == 0)
        SAY(inv, "%s: no controller may write this, or all that was written with it", key);
    else if (leading == 0 && !people)
        SAY(inv, "%s was written while nobody led who may", key);
    else if (led == 0 && !people)
        SAY(inv,
            "%s was written under epoch %" G_GINT64_FORMAT
            " of %s, whose oldest is %" G_GINT64_FORMAT,
            key, out->epoch, out->controller, oldest_leader(inv, out->controller));
    inv->skipped[INV_FENCE] += leading > 1; /* which of them it was is not known */
    return leading == 1;
}

/* ---- each area ---- */

static void check_leader_key(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    gint64 lease = change->event->kv.lease;
    g_autofree char *end = g_strdup_printf("/%016" G_GINT64_MODIFIER "x", (guint64)lease);
    if (commit->facts == NULL && inv_people_may(change))
        return;
    if (commit->by != INV_BY_MANAGER || change->event->is_delete || lease == 0 ||
        !g_str_has_suffix(change->name, end))
        SAY(inv, "%s was written by %s", change->key, inv_who(commit));
}

static void note_epoch(Inv *inv, const InvFence *fence)
{
    char *epoch = g_strdup_printf("%s/%" G_GINT64_FORMAT, fence->controller, fence->epoch);
    if (g_hash_table_add(inv->epochs, epoch))
        inv->counters.epochs++;
}

/* FALSE: there is none, and it was said. */
static gboolean check_fence(Inv *inv, const InvCommit *commit, InvFence *out)
{
    const InvFacts *facts = commit->facts;
    const char *key = commit->changes[0].key;
    if (facts == NULL)
        return fence_told(inv, commit, out);
    *out = inv_fence_compared(inv, facts->compares, facts->n_compares);
    if (out->epoch == 0) {
        SAY(inv, "%s was written by %s without a fence", key, facts->client);
        return FALSE;
    }
    gint64 oldest = oldest_leader(inv, out->controller);
    /* A backup may hold the key of a predecessor: until its successor has noticed the restoration,
     * which ends its leadership, the key that it compares is there as well. */
    if (oldest != out->epoch && !facts->unaware)
        SAY(inv,
            "%s was written by %s under epoch %" G_GINT64_FORMAT
            " of %s, whose oldest is %" G_GINT64_FORMAT,
            key, facts->client, out->epoch, out->controller, oldest);
    return TRUE;
}

static void check_well_formed(Inv *inv, const InvChange *change)
{
    if (change->after == NULL)
        return;
    const char *error = lh_object_known(change->after) ? lh_object_warning(change->after)
                                                       : lh_object_error(change->after);
    if (error != NULL && !lh_kind_is_desired((LhKind)change->after->kind))
        SAY(inv, "%s is not well-formed: %s", change->key, error);
}

/* Of what is published, controllers only retire. */
static gboolean retires(const InvCommit *commit, const InvChange *change)
{
    return change->kind == LH_KIND_SNAPSHOT && change->event->is_delete &&
           commit->by == INV_BY_MANAGER;
}

static void check_change(Inv *inv, const InvCommit *commit, const InvFence *fence,
                         const InvChange *change)
{
    const char *key = change->key;
    inv_did(inv, INV_FENCE);
    if (fence != NULL && retires(commit, change))
        check_fenced(inv, commit, fence, change);
    else if (g_str_has_prefix(key, "leaders/"))
        check_leader_key(inv, commit, change);
    else if (!is_retired(commit, change) &&
             (g_str_has_prefix(key, "desired/") || g_str_has_prefix(key, "published/") ||
              g_str_has_prefix(key, "actual/") != (commit->by == INV_BY_AGENT)))
        SAY(inv, "%s wrote %s", inv_who(commit), key);
    else if (fence != NULL && (is_decided(key) || is_retired(commit, change)))
        check_fenced(inv, commit, fence, change);
    check_well_formed(inv, change);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    InvFence fence = {.epoch = 0};
    gboolean fenced = FALSE;
    if (commit->by == INV_BY_NOBODY || commit->by_lease || commit->by_hand)
        return;
    if (commit->by == INV_BY_MANAGER && !g_str_has_prefix(commit->changes[0].key, "leaders/"))
        inv->counters.fenced_commits++;
    for (guint i = 0; i < commit->n && !fenced && commit->by == INV_BY_MANAGER; i++)
        if (is_decided(commit->changes[i].key)) {
            fenced = check_fence(inv, commit, &fence);
            break;
        }
    if (fenced)
        note_epoch(inv, &fence);
    for (guint i = 0; i < commit->n; i++)
        check_change(inv, commit, fenced ? &fence : NULL, &commit->changes[i]);
}

const InvGroup inv_fence = {on_commit, NULL};

/*
 * cache-evictor: orders away what has expired, is surplus, or has no replica.
 *
 * Its brake: before anything else it counts all that it would now evict and what it ordered in the last
 * ten minutes; too much of what is assigned, and it stops until somebody confirms exactly that plan. What
 * it is about to order it first reserves in its Status, so that small steps do not slip under the limit
 * and a new leader knows of them too.
 *
 * It also ends the copies that a drain or a node's failure, done or undone, made one too many. Those are no losses, for each
 * there is another live one, and the brake does not count them; of a restored etcd it stops them too.
 */
#include "base/planted.h"
#include "controllers/brake.h"
#include "controllers/cache_drain.h"
#include "controllers/cache_rules.h"
#include "controllers/registry.h"

#include <string.h>

#define BRAKE_MORE_THAN 10
#define WINDOW_MS       LH_BRAKE_WINDOW_MS
#define SLICE_MS        60000 /* orders within it share a row of the ledger */
#define STATUS_NAME     "settings/cache-evictor/cache-evictor"

typedef struct {
    const LhFleet *fleet;
    const LhPlanContext *context;
    const LhSettings *settings;
    const LhStatus *status; /* known, or NULL */
    const LhBrake *brake;   /* known, or NULL */
    LhPlan *plan;
} Round;

typedef GPtrArray Targets; /* LhFleetAssignment, sorted by key */

static gint by_key(gconstpointer a, gconstpointer b)
{
    return strcmp((*(LhFleetAssignment *const *)a)->key, (*(LhFleetAssignment *const *)b)->key);
}

static gboolean unchanged_since(const LhFleetAssignment *target, gint64 revision)
{
    const LhFleetReplica *replica = target->replica;
    const LhFleetSnapshot *snapshot = replica->snapshot;
    const LhReplica *object = (const LhReplica *)replica->object;

    if (target->object->mod_rev > revision)
        return FALSE;
    if (snapshot->object != NULL && snapshot->object->mod_rev > revision)
        return FALSE;
    if (snapshot->service != NULL && snapshot->service->accepted != NULL &&
        snapshot->service->accepted->mod_rev > revision)
        return FALSE;
    return object == NULL || !object->restored || object->o.mod_rev <= revision;
}

/* What was due at @at_ms; with @revision not 0 only what has not changed after it. *next_ms: when the next
 * one becomes due, 0: never. Items of lost nodes are not among them: they are not evicted, but gone. */
static Targets *eligible(const LhFleet *fleet, gint64 at_ms, gint64 revision, gint64 *next_ms)
{
    Targets *targets = g_ptr_array_new();

    *next_ms = 0;
    for (GTreeNode *n = g_tree_node_first(fleet->due_assigned); n != NULL;
         n = g_tree_node_next(n)) {
        const LhFleetReplica *replica = lh_tree_record(n);
        if (replica->fate.due_ms > at_ms) {
            *next_ms = replica->fate.due_ms;
            break;
        }
        for (guint i = 0; i < replica->assignments->len; i++) {
            LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
            if (lh_fleet_load(assignment) != NULL && !lh_fleet_node_gone(assignment->node) &&
                (revision == 0 || unchanged_since(assignment, revision)))
                g_ptr_array_add(targets, assignment);
        }
    }
    g_ptr_array_sort(targets, by_key);
    return targets;
}

static char *hash_of(const Targets *targets)
{
    g_autofree const char **names = g_new(const char *, targets->len + 1);

    for (guint i = 0; i < targets->len; i++)
        names[i] = ((const LhFleetAssignment *)g_ptr_array_index(targets, i))->key;
    return lh_brake_hash(names, targets->len);
}

static LhBraking braking(const Round *round)
{
    return (LhBraking){"cache-evictor", round->fleet, round->context, round->brake, round->plan};
}

/* ---- orders ---- */

static void put_order(Round *round, const LhFleetAssignment *target, const char *rule,
                      const char *reason)
{
    LhAssignment order = *(const LhAssignment *)target->object;

    order.action = LH_ACTION_EVICT;
    order.since = round->context->now_ms;
    order.controller = "cache-evictor";
    order.epoch = round->context->epoch;
    order.rule = rule;
    order.reason = reason;
    order.evict_grace_ms = round->settings->evict_grace_ms;
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, target->object->name, &order,
                target->object->mod_rev, rule, "%s", reason);
}

static void evict(Round *round, const LhFleetAssignment *target)
{
    const LhFleetReplica *replica = target->replica;

    lh_plan_begin(round->plan);
    put_order(round, target, replica->fate.rule, lh_cache_fate_text(&replica->fate));
    if (replica->object == NULL || ((const LhReplica *)replica->object)->restored)
        lh_plan_rely(round->plan, LH_KIND_REPLICA, replica->name,
                     replica->object == NULL ? 0 : replica->object->mod_rev);
    lh_cache_rely_on_fate(round->plan, round->fleet, replica);
    if (replica->snapshot->service != NULL)
        lh_plan_event(round->plan, LH_EVENT_NORMAL, "Evicting", LH_KIND_SERVICE,
                      replica->snapshot->service->name, "replica %s, node %s: %s", replica->name,
                      target->node->id, lh_cache_fate_text(&replica->fate));
    lh_plan_end(round->plan);
}

static void evict_all(Round *round, const Targets *targets)
{
    for (guint i = 0; i < targets->len; i++) {
        if (lh_plan_groups(round->plan) >= round->context->max_groups) {
            round->plan->more = TRUE;
            return;
        }
        evict(round, g_ptr_array_index(targets, i));
    }
}

/* Of what is wanted, and is live where it stays, the copies elsewhere. */
static void plan_moved(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->fleet->moving); n != NULL;
         n = g_tree_node_next(n)) {
        const LhFleetReplica *replica = lh_tree_record(n);
        const LhFleetAssignment *stayer = lh_drain_stayer(replica);
        if (stayer == NULL || replica->fate.type != LH_FATE_KEEP ||
            replica->fate.due_ms <= round->context->now_ms)
            continue;
        for (guint i = 0; i < replica->assignments->len; i++) {
            const LhFleetAssignment *target = g_ptr_array_index(replica->assignments, i);
            const char *rule = lh_drain_rule(target->node);
            g_autofree char *reason = NULL;
            if (!lh_drain_ends(target, stayer))
                continue;
            if (lh_plan_groups(round->plan) >= round->context->max_groups) {
                round->plan->more = TRUE;
                return;
            }
            lh_plan_begin(round->plan);
            reason = rule == NULL ? g_strdup("it is live on another node that had it first")
                                  : g_strdup_printf("its node %s, and it is live elsewhere",
                                                    lh_drain_words(target->node));
            put_order(round, target, rule == NULL ? LH_RULE_DOUBLED : rule, reason);
            lh_cache_rely_on_fate(round->plan, round->fleet, replica);
            lh_drain_rely_on_stayer(round->plan, round->fleet, target, stayer);
            lh_plan_end(round->plan);
        }
    }
}

/* ---- the ledger: what was ordered within the window ---- */

static gint64 leaves_window_at(const LhOrdered *row)
{
    return row->at + SLICE_MS + WINDOW_MS;
}

/* How many were ordered away after @revision, and are not gone yet. */
static gint64 ordered_since(const Round *round, gint64 revision)
{
    gint64 n = 0;

    for (GTreeNode *node = g_tree_node_last(round->fleet->evicting);
         node != NULL && ((const LhFleetAssignment *)lh_tree_record(node))->evicting_rev > revision;
         node = g_tree_node_previous(node))
        n += !lh_drain_is_move(
            (const LhAssignment *)((const LhFleetAssignment *)lh_tree_record(node))->object);
    return n;
}

/* How many of what was reserved last are still to be ordered: due then, and unchanged since. What is due
 * because its service or snapshot was deleted may be so since later: so no more than were not ordered yet. */
static gint64 pending(const Round *round)
{
    const LhStatus *status = round->status;
    const LhOrdered *last;
    gint64 next_ms;

    if (status == NULL || status->reserved == 0 || status->recent->n == 0)
        return 0;
    last = lh_array_at(status->recent, status->recent->n - 1);
    if (leaves_window_at(last) <= round->context->now_ms)
        return 0;
    g_autoptr(GPtrArray) targets = eligible(round->fleet, last->at, status->o.mod_rev, &next_ms);
    return MIN(MAX(0, status->reserved - ordered_since(round, status->o.mod_rev)), targets->len);
}

static gint64 ordered_lately(const Round *round)
{
    gint64 sum = 0;

    for (guint i = 0; round->status != NULL && i < round->status->recent->n; i++) {
        const LhOrdered *row = lh_array_at(round->status->recent, i);
        if (LH_BUG(BRAKE_FORGETS) && row->at < round->context->led_ms)
            continue;
        if (leaves_window_at(row) > round->context->now_ms)
            sum += row->count;
    }
    return MAX(0, sum - pending(round));
}

/* The rows of the window with @more in a row of its own, whose time says what was due; or, when @more is
 * negative, without so much of the last. */
static GArray *ledger_with(const Round *round, gint64 more)
{
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(LhOrdered));
    LhOrdered *last, row = {.at = round->context->now_ms, .count = more};

    for (guint i = 0; round->status != NULL && i < round->status->recent->n; i++) {
        const LhOrdered *old = lh_array_at(round->status->recent, i);
        if (leaves_window_at(old) > round->context->now_ms)
            g_array_append_vals(rows, old, 1);
    }
    if (more == 0 || (more < 0 && rows->len == 0))
        return rows;
    last = rows->len == 0 ? NULL : &g_array_index(rows, LhOrdered, rows->len - 1);
    if (more < 0) {
        last->count = MAX(0, last->count + more);
        return rows;
    }
    if (rows->len >= 2 && last->at < last[-1].at + SLICE_MS) {
        last[-1].count += last->count;
        g_array_set_size(rows, rows->len - 1);
    }
    g_array_append_val(rows, row);
    return rows;
}

/* Into the open group: the Status with the condition Braked, the ledger with @more in it, and @open
 * reserved. */
static void put_status(Round *round, gint64 more, gint64 open, const char *braked, const char *rule,
                       const char *reason)
{
    g_autoptr(GArray) rows = ledger_with(round, more);
    LhArray recent = {.n = rows->len, .size = sizeof(LhOrdered), .items = rows->data};
    const LhObject *accepted = g_hash_table_lookup(round->fleet->settings, "cache-evictor");
    const LhCondition *was = round->status == NULL || round->status->conditions->n == 0
                                 ? NULL
                                 : lh_array_at(round->status->conditions, 0);
    LhCondition condition = {
        .type = "Braked",
        .status = braked != NULL ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
        .reason = braked != NULL ? "TooMuchAtOnce" : "WithinLimit",
        .message = braked,
    };
    LhArray conditions = {.n = 1, .size = sizeof condition, .items = &condition};
    LhStatus status = {
        .observed_revision = accepted == NULL ? 0 : accepted->mod_rev,
        .conditions = &conditions,
        .snapshots = -1,
        .replicas_desired = -1,
        .replicas_live = -1,
        .recent = &recent,
        .reserved = open,
    };

    condition.since = was != NULL && was->status == condition.status ? was->since
                                                                     : round->context->now_ms;
    lh_plan_put(round->plan, LH_KIND_STATUS, STATUS_NAME, &status,
                round->status == NULL ? 0 : round->status->o.mod_rev, rule, "%s", reason);
}

static void write_status(Round *round, gint64 more, gint64 open, const char *rule,
                         const char *reason)
{
    lh_plan_begin(round->plan);
    put_status(round, more, open, NULL, rule, reason);
    lh_plan_end(round->plan);
}

/* ---- the brake ---- */

/* Assigned, and not ordered away. */
static gint64 held(const Round *round)
{
    return round->fleet->assigned_items - g_tree_nnodes(round->fleet->evicting);
}

static gboolean too_much(const Round *round, gint64 now_due, gint64 lately)
{
    gint64 whole = held(round);

    /* What is braked does not become less because other things come. */
    if (round->brake != NULL && round->brake->cause == LH_BRAKE_MUCH && round->brake->of > 0)
        whole = MIN(whole, round->brake->of);
    /* What was ordered lately belongs to the whole that the share is of. */
    return now_due > 0 &&
           lh_brake_exceeds(now_due + lately, whole + lately, round->settings->brake_percent);
}

static void put_brake(Round *round, guint eligible, LhBrakeCause cause, const char *hash,
                      const char *message)
{
    const LhBraking own = braking(round);
    const LhBrake made = {
        .cause = (int)cause,
        .plan_hash = hash,
        .eligible = eligible,
        .of = held(round),
        .message = message,
    };

    lh_plan_begin(round->plan);
    lh_brake_put(&own, made);
    put_status(round, -pending(round), 0, message, "brake", message);
    lh_plan_end(round->plan);
}

static void brake(Round *round, const Targets *targets, gint64 lately)
{
    g_autofree char *hash = hash_of(targets);
    g_autofree char *message = g_strdup_printf(
        "%u of %" G_GINT64_FORMAT " assigned items would go now (%" G_GINT64_FORMAT
        " more in the last 10 min): more than brakePercent allows; leasehold confirm cache-evictor "
        "--plan %s",
        targets->len, held(round), lately, hash);

    put_brake(round, targets->len, LH_BRAKE_MUCH, hash, message);
}

static void brake_restored(Round *round, const Targets *targets)
{
    const LhBraking own = braking(round);
    g_autofree char *hash = lh_brake_restored_hash(&own, NULL);
    g_autofree char *message = g_strdup_printf(
        "etcd went back in time; %u of %" G_GINT64_FORMAT
        " assigned items would go now; leasehold confirm cache-evictor --plan %s",
        targets->len, held(round), hash);

    put_brake(round, targets->len, LH_BRAKE_RESTORED, hash, message);
}

static void release(Round *round, const char *rule, const char *reason)
{
    const LhBraking own = braking(round);

    lh_plan_begin(round->plan);
    lh_brake_remove(&own, rule, reason);
    put_status(round, 0, 0, NULL, rule, reason);
    lh_plan_end(round->plan);
}

/* Also of a Confirmation that does not count. */
static void tell_braked(Round *round)
{
    const LhBraking own = braking(round);
    g_autofree char *words = lh_brake_words(&own);
    const LhCondition *said = round->status == NULL || round->status->conditions->n == 0
                                  ? NULL
                                  : lh_array_at(round->status->conditions, 0);

    if (said != NULL && g_strcmp0(said->message, words) == 0)
        return;
    lh_plan_begin(round->plan);
    put_status(round, 0, 0, words, "braked", words);
    lh_plan_end(round->plan);
}

/* Who is to confirm a plan must be able to read it. */
static void note_braked(Round *round, const Targets *frozen)
{
    tell_braked(round);
    lh_plan_note(round->plan, LH_KIND_BRAKE, "cache-evictor", "braked", "%s",
                 round->brake->message == NULL ? "" : round->brake->message);
    for (guint i = 0; round->plan->explain && i < frozen->len; i++) {
        const LhFleetAssignment *target = g_ptr_array_index(frozen, i);
        lh_plan_note(round->plan, LH_KIND_ASSIGNMENT, target->object->name, "braked",
                     "would be evicted, rule %s: %s", target->replica->fate.rule,
                     lh_cache_fate_text(&target->replica->fate));
    }
}

/* Of a restoration nobody goes on before a Confirmation, whoever leads; that itself carries nothing out. FALSE:
 * there was none. */
static gboolean plan_restored(Round *round, const Targets *due)
{
    const LhBraking own = braking(round);
    gboolean known = round->brake != NULL && !lh_brake_came_back(&own) &&
                     round->brake->cause == LH_BRAKE_RESTORED;

    if (lh_brake_stands(&own, LH_BRAKE_RESTORED, 0)) {
        if (!known)
            return FALSE;
        release(round, "confirmed", "that etcd was restored is confirmed");
    } else if (!known && !round->context->regressed) {
        return FALSE;
    } else if (!known || round->brake->confirmed_at >= 0) {
        brake_restored(round, due);
    } else if (lh_brake_is_confirmed(&own)) {
        lh_brake_confirm(&own);
    } else {
        note_braked(round, due);
    }
    return TRUE;
}

/* With a Brake: only what it stands for, and only once it is confirmed. */
static void plan_braked(Round *round, const Targets *due)
{
    gint64 next_ms, lately = ordered_lately(round);
    g_autoptr(GPtrArray) frozen = eligible(round->fleet, round->brake->since,
                                           round->brake->revision, &next_ms);
    g_autofree char *hash = hash_of(frozen);
    const LhBraking own = braking(round);

    if (round->brake->confirmed_at >= 0) {
        if (frozen->len == 0)
            release(round, "carried-out", "the confirmed plan is carried out");
        else if (frozen->len <= round->brake->eligible && lh_brake_stands(&own, LH_BRAKE_MUCH, 0))
            evict_all(round, frozen);
        else if (too_much(round, due->len, lately)) /* not what was confirmed, or long ago */
            brake(round, due, lately);
        else
            release(round, "released", "what would go now is within the limit again");
        return;
    }
    if (!too_much(round, due->len, lately)) {
        release(round, "released", "what would go now is within the limit again");
        return;
    }
    if (g_strcmp0(hash, round->brake->plan_hash) != 0) {
        brake(round, due, lately);
        return;
    }
    for (guint i = 0; round->status != NULL && i < round->status->recent->n; i++) {
        const LhOrdered *row = lh_array_at(round->status->recent, i);
        if (leaves_window_at(row) > round->context->now_ms)
            lh_plan_wake(round->plan, leaves_window_at(row));
    }
    if (lh_brake_is_confirmed(&own))
        lh_brake_confirm(&own);
    else
        note_braked(round, frozen);
}

static void plan_free(Round *round, const Targets *due)
{
    gint64 lately = LH_BUG(BRAKE_AFTER_LIMIT) ? 0 : ordered_lately(round), open = pending(round);

    if (due->len == 0) {
        if (round->status != NULL && round->status->reserved != 0)
            write_status(round, 0, 0, "ordered", "what was reserved is ordered");
        return;
    }
    if (too_much(round, due->len, lately)) {
        brake(round, due, lately);
        return;
    }
    if (open < due->len)
        write_status(round, due->len - open, due->len, "reserve",
                     "counted before it is ordered, for the brake");
    else
        evict_all(round, due);
}

static void cache_evictor_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    const LhFleet *fleet = index;
    const LhObject *brake_object = g_hash_table_lookup(fleet->brakes, "cache-evictor");
    const LhObject *status = lh_fleet_status(fleet, "settings", "cache-evictor", "cache-evictor");
    gint64 next_ms;
    g_autoptr(GPtrArray) due = eligible(fleet, context->now_ms, 0, &next_ms);
    Round round = {
        .fleet = fleet,
        .context = context,
        .settings = lh_fleet_settings(fleet, "cache-evictor"),
        .status = (const LhStatus *)status,
        .brake = (const LhBrake *)brake_object,
        .plan = plan,
    };

    if (LH_BUG(BRAKE_AFTER_LIMIT) && due->len > BRAKE_MORE_THAN)
        g_ptr_array_set_size(due, BRAKE_MORE_THAN);
    if (next_ms != 0)
        lh_plan_wake(plan, next_ms);
    if ((brake_object != NULL && !lh_object_known(brake_object)) ||
        (status != NULL && !lh_object_known(status))) {
        lh_plan_note(plan, LH_KIND_BRAKE, "cache-evictor", "unknown",
                     "its Brake or its Status does not parse: mend or remove it");
        return;
    }
    if (plan_restored(&round, due))
        return;
    if (round.brake != NULL)
        plan_braked(&round, due);
    else
        plan_free(&round, due);
    plan_moved(&round);
}

static void cache_evictor_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                 gpointer data)
{
    const LhFleet *fleet = index;

    (void)now_ms;
    gauge("brake", "controller=\"cache-evictor\"",
          g_hash_table_contains(fleet->brakes, "cache-evictor") ? 1 : 0, data);
}

static const char *const gauge_names[] = {"brake", NULL};

const LhController lh_cache_evictor = {
    .name = "cache-evictor",
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_ACCEPTED) | LH_KIND_BIT(LH_KIND_SNAPSHOT) |
             LH_KIND_BIT(LH_KIND_REPLICA) | LH_KIND_BIT(LH_KIND_ASSIGNMENT) |
             LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_ITEM) | LH_KIND_BIT(LH_KIND_HEALTH) |
             LH_KIND_BIT(LH_KIND_BRAKE) | LH_KIND_BIT(LH_KIND_STATUS) |
             LH_KIND_BIT(LH_KIND_SERVICE) | LH_KIND_BIT(LH_KIND_RESTOREPROGRESS),
    .plan = cache_evictor_plan,
    .gauges = cache_evictor_gauges,
    .gauge_names = gauge_names,
    .settings = lh_fleet_settings_of,
};

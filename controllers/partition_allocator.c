/*
 * partition-allocator: which partitions a service has from when on (decided/partitionplans/), and which
 * indexer works on which partition (indexers.c).
 *
 * A service that has all it needs and was not edited is left alone; else partition_rules.c says what it gets,
 * and partition_history.c how that goes into its plan. A service without throughput asks for nothing; one that
 * has partitions keeps its minimum. A deleted service's plan ends with an interval without partitions, and goes
 * when no snapshot names the service any more.
 *
 * No capacity is given twice: services are decided one after the other in one room; what a plan takes away
 * is not given to another in the same plan, as its groups may be committed in any subset; whoever would put
 * more on what it keeps waits while another takes a part of that, as its group might be committed first; and
 * the next plan begins after all of them are seen. What people may change meanwhile is compared.
 */
#include "base/planted.h"
#include "base/units.h"
#include "controllers/indexers.h"
#include "controllers/partition_history.h"
#include "controllers/partitions.h"
#include "controllers/pool.h"
#include "controllers/registry.h"

#define NAME   "partition-allocator"
#define DAY_MS (24 * 3600 * G_GINT64_CONSTANT(1000))
/* Compares of one transaction for partitions newly taken; with more of them, the others' edits are met by the
 * next plan, before the interval begins. */
#define COMPARES_MAX 100

typedef struct {
    const LhPartitions *partitions;
    const LhPools *pools;
    const LhPlanContext *context;
    const LhSettings *settings;
    LhPlan *plan;
    LhPartitionRoom *room; /* with what this plan gives; made when first needed */
    GHashTable *taken;     /* set of seats + 1 that a service takes newly in this plan */
} Round;

static gboolean full(Round *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    return TRUE;
}

static const LhPartitionUse *uses_of(const GArray *uses)
{
    return (const LhPartitionUse *)uses->data;
}

/* The first service whose plan changes after @start_ms. */
static GTreeNode *first_after(const LhPartitions *partitions, gint64 start_ms)
{
    const LhPartitionService key = {.name = (char *)"", .last_start = start_ms + 1};

    return g_tree_lower_bound(partitions->by_start, &key);
}

/* What a coming cut-over will take away is still used. */
static LhPartitionRoom *room_of(Round *round)
{
    gint64 now = round->context->now_ms;

    if (round->room != NULL)
        return round->room;
    round->room = lh_partition_room_copy(round->partitions->room);
    if (LH_BUG(PARTITION_OVERFULL))
        return round->room;
    for (GTreeNode *n = first_after(round->partitions, now); n != NULL; n = g_tree_node_next(n)) {
        const LhPartitionService *service = g_tree_node_key(n);
        g_autoptr(GArray) uses = lh_partition_uses(round->partitions, service,
                                                   lh_partition_service_history(service), now);
        lh_partition_room_lift(round->room, uses_of(service->uses), service->uses->len);
        lh_partition_room_put(round->room, uses_of(uses), uses->len);
    }
    return round->room;
}

/* ---- what is said ---- */

static void say(Round *round, const LhPartitionService *service, const LhCondition *condition)
{
    const LhAccepted *accepted = (const LhAccepted *)service->accepted;
    g_autofree char *name = g_strconcat("services/", service->name, "/" NAME, NULL);
    gboolean written;

    if (condition == NULL) {
        lh_plan_status(round->plan, service->status, name, 0, NULL, 0, round->context->now_ms);
        return;
    }
    written = lh_plan_status(round->plan, service->status, name,
                             lh_object_known(service->accepted) ? accepted->revision : 0, condition,
                             1, round->context->now_ms);
    if (written && condition->status == LH_CONDITION_FALSE)
        lh_plan_event(round->plan, LH_EVENT_WARNING, condition->reason, LH_KIND_SERVICE,
                      service->name, "%s", condition->message);
}

static void say_settled(Round *round, const LhPartitionService *service)
{
    LhCondition condition = lh_partition_allocated(service);

    say(round, service, &condition);
    g_free((char *)condition.message);
}

static void say_unknown(Round *round, const LhPartitionService *service, const char *reason,
                        const char *message)
{
    LhCondition condition = {
        .type = "Allocated", .status = LH_CONDITION_UNKNOWN, .reason = reason, .message = message};

    say(round, service, &condition);
    lh_plan_note(round->plan, LH_KIND_SERVICE, service->name, "unknown", "%s", message);
}

static void say_insufficient(Round *round, const LhPartitionService *service,
                             const LhPartitionAsk *ask, const LhPartitionAnswer *answer)
{
    g_autoptr(GString) message = g_string_new(NULL);
    LhCondition condition = {
        .type = "Allocated", .status = LH_CONDITION_FALSE, .reason = "InsufficientCapacity"};

    g_string_append_printf(message,
                           "needed %" G_GINT64_FORMAT
                           " partitions with enough capacity, found %" G_GINT64_FORMAT,
                           answer->needed, answer->found);
    if (ask->dedicated)
        g_string_append_printf(message, " (for itself, %" G_GINT64_FORMAT " bytes/s together)",
                               ask->throughput);
    else
        g_string_append_printf(message, " (%" G_GINT64_FORMAT " bytes/s free in each)",
                               answer->share);
    if (service->uses->len > 0)
        g_string_append_printf(message, "; keeps the %u that it has", service->uses->len);
    condition.message = message->str;
    say(round, service, &condition);
    lh_plan_note(round->plan, LH_KIND_SERVICE, service->name, "wait-capacity", "%s", message->str);
}

/* ---- changing a plan ---- */

static LhPartitionTimes times_of(const Round *round, const LhPartitionService *service)
{
    const LhService *spec = lh_partition_service_spec(service);
    gint64 buffer = lh_pools_settings(round->pools, "snapshot-cleaner")->buffer_ms;

    /* As long as its data: a snapshot ends up to a day after the interval in which it began. */
    return (LhPartitionTimes){
        .now_ms = round->context->now_ms,
        .cutover_ms = round->settings->cutover_ms,
        .keep_ms = spec == NULL ? round->context->now_ms : spec->retention_ms + buffer + DAY_MS,
    };
}

static void rely_on_partitions(Round *round, const LhPartitionService *service,
                               const char *const *partitions)
{
    guint compares = 0;

    for (guint i = 0; partitions[i] != NULL && compares < COMPARES_MAX; i++) {
        const LhPartitionRecord *record = lh_partitions_record(round->partitions, partitions[i]);
        g_autofree char *name = g_strconcat("partitions/", partitions[i], NULL);
        gboolean has = FALSE;
        for (guint u = 0; u < service->uses->len && !has; u++)
            has = g_array_index(service->uses, LhPartitionUse, u).seat == record->seat;
        if (has)
            continue;
        lh_plan_rely(round->plan, LH_KIND_ACCEPTED, name,
                     record->accepted == NULL ? 0 : record->accepted->mod_rev);
        compares++;
    }
}

/* The first time at which @partitions are in force, as the history says. */
static gint64 start_of(const GArray *history)
{
    return g_array_index(history, LhPartitionInterval, history->len - 1).start;
}

static void write_plan(Round *round, const LhPartitionService *service, const GArray *history,
                       const char *rule, const char *reason)
{
    LhArray array = {history->len, sizeof(LhPartitionInterval), history->data};
    LhPartitionPlan plan = {.history = &array};
    g_autofree char *accepted = g_strconcat("services/", service->name, NULL);
    const LhPartitionInterval *last = lh_partition_last(&array);
    g_autofree char *start = lh_time_format(MAX(0, start_of(history)));

    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_PARTITIONPLAN, service->name, &plan,
                service->plan == NULL ? 0 : service->plan->mod_rev, rule, "%s", reason);
    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, accepted,
                 service->accepted == NULL ? 0 : service->accepted->mod_rev);
    if (service->accepted == NULL)
        lh_plan_rely(round->plan, LH_KIND_SERVICE, service->name, 0);
    rely_on_partitions(round, service, last->partitions);
    lh_plan_event(round->plan, LH_EVENT_NORMAL, "PartitionsChanged", LH_KIND_SERVICE, service->name,
                  "%u partitions from %s on: %s", g_strv_length((GStrv)last->partitions), start,
                  reason);
    lh_plan_end(round->plan);
}

/* What it had counts as used as long as this plan is made: its group may be refused. */
static void keep_old(GArray *uses, const GArray *old)
{
    for (guint i = 0; i < old->len; i++) {
        LhPartitionUse was = g_array_index(old, LhPartitionUse, i);
        gint64 load = was.used + was.leaving;
        guint at = 0;
        while (at < uses->len && g_array_index(uses, LhPartitionUse, at).seat != was.seat)
            at++;
        if (at == uses->len) {
            was.last = FALSE;
            was.used = 0;
            was.leaving = load;
            g_array_append_val(uses, was);
        } else {
            LhPartitionUse *is = &g_array_index(uses, LhPartitionUse, at);
            is->leaving = MAX(is->leaving, load - is->used);
        }
    }
}

static gboolean holds(const GArray *held, guint seat)
{
    for (guint i = 0; i < held->len; i++)
        if (g_array_index(held, LhPartitionUse, i).seat == seat)
            return TRUE;
    return FALSE;
}

static gboolean takes_another(const GArray *seats, const GArray *held)
{
    for (guint i = 0; i < seats->len; i++)
        if (!holds(held, g_array_index(seats, guint, i)))
            return TRUE;
    return FALSE;
}

/* Why its partitions are changed: the rule, and a sentence; static storage. */
static const char *why(const Round *round, const LhPartitionService *service, const char **text)
{
    *text = "its first partitions";
    if (lh_partition_service_history(service) == NULL)
        return "first";
    for (guint i = 0; i < service->uses->len; i++) {
        guint seat = g_array_index(service->uses, LhPartitionUse, i).seat;
        if (lh_partition_room_capacity(round->partitions->room, seat) < 0) {
            *text = "a partition that it has was removed";
            return "partition-gone";
        }
        if (lh_partition_room_over(round->partitions->room, seat)) {
            *text = "a partition that it has is used beyond its capacity";
            return "over-capacity";
        }
    }
    *text = "what it needs has changed";
    return "needs-changed";
}

/* On fewer partitions than before, more of it is on each. */
static gboolean grows_where_another_takes(const Round *round, const GArray *seats,
                                          const GArray *held, gint64 share)
{
    for (guint i = 0; i < held->len; i++) {
        const LhPartitionUse *use = &g_array_index(held, LhPartitionUse, i);
        if (share <= use->used + use->leaving ||
            !g_hash_table_contains(round->taken, GUINT_TO_POINTER(use->seat + 1)))
            continue;
        for (guint at = 0; at < seats->len; at++)
            if (g_array_index(seats, guint, at) == use->seat)
                return TRUE;
    }
    return FALSE;
}

static void note_taken(Round *round, const GArray *seats, const GArray *held)
{
    for (guint i = 0; i < seats->len; i++) {
        guint seat = g_array_index(seats, guint, i);
        if (!holds(held, seat))
            g_hash_table_add(round->taken, GUINT_TO_POINTER(seat + 1));
    }
}

/* TRUE: it has others from then on, and a group was written. */
static gboolean change(Round *round, const LhPartitionService *service, const GArray *seats,
                       const GArray *held)
{
    const LhPartitionRoom *room = round->partitions->room;
    const LhPartitionPlan *present = (const LhPartitionPlan *)service->plan;
    const LhArray *before = lh_partition_service_history(service);
    LhPartitionTimes times = times_of(round, service);
    g_autofree const char **names = g_new0(const char *, seats->len + 1);
    g_autoptr(GArray) history = NULL;
    g_autoptr(GArray) uses = NULL;
    const char *text, *rule = why(round, service, &text);
    LhArray array;

    for (guint i = 0; i < seats->len; i++)
        names[i] = lh_partition_room_id(room, g_array_index(seats, guint, i));
    if (before != NULL && lh_partition_same(lh_partition_last(before)->partitions, names))
        return FALSE;
    if (lh_partition_interval_bytes(names) > LH_PARTITION_INTERVAL_MAX) {
        g_autofree char *message = g_strdup_printf(
            "needs %u partitions: more than a PartitionPlan can name", seats->len);
        LhCondition condition = {.type = "Allocated",
                                 .status = LH_CONDITION_FALSE,
                                 .reason = "TooManyPartitions",
                                 .message = message};
        say(round, service, &condition);
        lh_partition_room_put(round->room, uses_of(held), held->len);
        return TRUE;
    }
    history = lh_partition_history(present == NULL ? NULL : present->history, names, &times);
    write_plan(round, service, history, rule, text);
    array = (LhArray){history->len, sizeof(LhPartitionInterval), history->data};
    uses = lh_partition_uses(round->partitions, service, &array, times.now_ms);
    keep_old(uses, held);
    note_taken(round, seats, held);
    lh_partition_room_put(round->room, uses_of(uses), uses->len);
    return TRUE;
}

/* A partition that it has does not parse: nothing is known of what it can carry. */
static const LhPartitionRecord *unknown_partition(const Round *round,
                                                  const LhPartitionService *service)
{
    for (guint i = 0; i < service->uses->len; i++) {
        guint seat = g_array_index(service->uses, LhPartitionUse, i).seat;
        const LhPartitionRecord *record = lh_partitions_record(
            round->partitions, lh_partition_room_id(round->partitions->room, seat));
        if (record->accepted != NULL && !lh_object_known(record->accepted))
            return record;
    }
    return NULL;
}

static void decide(Round *round, const LhPartitionService *service)
{
    LhPartitionRoom *room = room_of(round);
    g_autoptr(GArray) held = lh_partition_uses(
        round->partitions, service, lh_partition_service_history(service), round->context->now_ms);
    LhPartitionAsk ask = lh_partition_service_ask(service, uses_of(held), held->len);
    g_autoptr(GArray) seats = g_array_new(FALSE, FALSE, sizeof(guint));
    LhPartitionAnswer answer;

    if (!lh_partition_service_edited(service) && lh_partition_room_keeps(room, &ask)) {
        say_settled(round, service);
        return;
    }
    lh_partition_room_lift(room, uses_of(held), held->len);
    answer = lh_partition_room_decide(room, &ask, seats);
    if (!answer.enough) {
        say_insufficient(round, service, &ask, &answer);
    } else if (round->partitions->unknown_plans > 0 && takes_another(seats, held)) {
        say_unknown(round, service, "PlanUnknown",
                    "a PartitionPlan does not parse, and what it uses is not known: mend or "
                    "remove it");
    } else if (grows_where_another_takes(round, seats, held, answer.share)) {
        lh_plan_note(round->plan, LH_KIND_SERVICE, service->name, "wait-other",
                     "another service takes a part of what it keeps; it is decided after that");
        round->plan->more = TRUE;
    } else if (change(round, service, seats, held)) {
        return;
    } else {
        say_settled(round, service);
    }
    lh_partition_room_put(room, uses_of(held), held->len);
}

/* ---- a service that was deleted ---- */

static void close_plan(Round *round, const LhPartitionService *service, const LhArray *history)
{
    static const char *const none[] = {NULL};
    LhPartitionTimes times = times_of(round, service);
    g_autoptr(GArray) next = lh_partition_history(history, none, &times);

    write_plan(round, service, next, "service-deleted", "the service was deleted");
}

static void delete_plan(Round *round, const LhPartitionService *service)
{
    g_autofree char *accepted = g_strconcat("services/", service->name, NULL);

    lh_plan_begin(round->plan);
    lh_plan_delete(round->plan, LH_KIND_PARTITIONPLAN, service->name, service->plan->mod_rev,
                   "data-gone", "the service was deleted, and no snapshot names it");
    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, accepted, 0);
    lh_plan_rely(round->plan, LH_KIND_SERVICE, service->name, 0);
    lh_plan_end(round->plan);
}

static void plan_deleted(Round *round, const LhPartitionService *service)
{
    const LhArray *history = lh_partition_service_history(service);
    const LhPartitionInterval *last = history == NULL ? NULL : lh_partition_last(history);
    gint64 due = last == NULL ? 0 : last->start + DAY_MS;

    say(round, service, NULL);
    if (service->desired != NULL || service->plan == NULL)
        return; /* admission has still to say whether it is in force */
    if (last != NULL && last->partitions[0] != NULL)
        close_plan(round, service, history);
    else if (service->snapshots > 0 || round->partitions->unknown_snapshots > 0)
        lh_plan_note(round->plan, LH_KIND_PARTITIONPLAN, service->name, "wait-data",
                     "the service was deleted; its plan stays as long as snapshots name it");
    else if (due > round->context->now_ms)
        lh_plan_wake(round->plan, due);
    else
        delete_plan(round, service);
}

/* ---- the plan ---- */

static void plan_service(Round *round, const LhPartitionService *service)
{
    const LhPartitionRecord *unknown;
    g_autofree char *message = NULL;

    if (service->plan != NULL && !lh_object_known(service->plan)) {
        message = g_strdup_printf("its PartitionPlan does not parse (%s): mend or remove it",
                                  lh_object_error(service->plan));
        if (service->accepted != NULL)
            say_unknown(round, service, "PlanUnknown", message);
    } else if (service->accepted == NULL) {
        plan_deleted(round, service);
    } else if (lh_partition_service_spec(service) == NULL) {
        message = g_strdup_printf("decided/accepted/services/%s does not parse: mend or remove it",
                                  service->name);
        say_unknown(round, service, "ServiceUnknown", message);
    } else if (!lh_partition_service_wants(service)) {
        say(round, service, NULL);
    } else if ((unknown = unknown_partition(round, service)) != NULL) {
        message = g_strdup_printf(
            "decided/accepted/partitions/%s does not parse: mend or remove it", unknown->name);
        say_unknown(round, service, "PartitionUnknown", message);
    } else {
        decide(round, service);
    }
}

/* First those that were edited: whose needs grew goes itself, before others make room for it. */
static void plan_services(Round *round, gboolean edited)
{
    for (GTreeNode *n = g_tree_node_first(round->partitions->todo); n != NULL && !full(round);
         n = g_tree_node_next(n)) {
        const LhPartitionService *service = g_tree_node_key(n);
        if ((service->accepted == NULL || !lh_object_known(service->accepted) ||
             lh_partition_service_edited(service)) == edited)
            plan_service(round, service);
    }
}

static void partition_allocator_plan(gconstpointer index, const LhPlanContext *context,
                                     LhPlan *plan)
{
    const LhPools *pools = index;
    Round round = {
        .partitions = pools->partitions,
        .pools = pools,
        .context = context,
        .settings = lh_pools_settings(pools, NAME),
        .plan = plan,
        .taken = g_hash_table_new(NULL, NULL),
    };
    GTreeNode *coming = first_after(pools->partitions, context->now_ms);

    plan_services(&round, TRUE);
    plan_services(&round, FALSE);
    lh_partition_room_free(round.room);
    g_hash_table_unref(round.taken);
    if (coming != NULL)
        lh_plan_wake(plan, ((const LhPartitionService *)g_tree_node_key(coming))->last_start);
    lh_indexers_plan(pools, context, plan);
}

static const char *const gauge_names[] = {"items", "parked_items", "unassigned_items", NULL};

const LhController lh_partition_allocator = {
    .name = NAME,
    .index = &lh_pools_index,
    .kinds = LH_KIND_BIT(LH_KIND_ACCEPTED) | LH_KIND_BIT(LH_KIND_SERVICE) |
             LH_KIND_BIT(LH_KIND_PARTITIONPLAN) | LH_KIND_BIT(LH_KIND_SNAPSHOT) |
             LH_KIND_BIT(LH_KIND_ASSIGNMENT) | LH_KIND_BIT(LH_KIND_ITEM) |
             LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) | LH_KIND_BIT(LH_KIND_RETRY) |
             LH_KIND_BIT(LH_KIND_STATUS),
    .plan = partition_allocator_plan,
    .gauges = lh_indexers_gauges,
    .gauge_names = gauge_names,
    .settings = lh_pools_settings_of,
};

/*
 * failure-detector: healthy → failure → probation → healthy by what a node says of itself and by what its
 * probes observed (a table); and the lease: a registration that is gone is noted (missingSince), and once a
 * full lease TTL has passed under this leader's own eyes, the node is failed, which is final.
 *
 * Every registered node gets a NodeHealth, so that its disappearance shows in what exists, not in what was
 * watched. Probes are errands, of the leader only; their Observations begin anew with each leader, so that
 * nobody is condemned on old news. An exclusive node in failure is marked `revoking`, and only what has been
 * committed so is revoked. Pure.
 */
#include "base/planted.h"
#include "base/units.h"
#include "controllers/brake.h"
#include "controllers/detector.h"
#include "controllers/fleet.h"
#include "controllers/registry.h"

#include <string.h>

/* For a node whose registration nobody recorded: longer than any lease. */
#define UNKNOWN_TTL_MS 60000
/* Health goes this long after its subject (ARCHITECTURE.md, Housekeeping). */
#define KEEP_FAILED_MS (24 * 3600 * 1000)

/* What is seen within it is one plan: of a large fleet a new leader hears node by node. */
#define QUIET_MS 50

/* Marks by probes count together for so long. */
#define MARKS_MS        (15 * 1000)
#define SMALL_POOL      4
#define BY_PROBE        "probe: "
#define OFF_AGAIN       BY_PROBE "succeeds again"
#define REVOKE_RETRY_MS 5000

typedef struct {
    const LhFleet *fleet;
    const LhPlanContext *context;
    const LhSettings *settings;
    LhPlan *plan;
    GHashTable *braked; /* set of pools in which nobody is condemned by probes now */
    GHashTable *
        doubts; /* set of pools in which that is decided when others have missed as often, or not */
} Round;

static void say(const LhFleetPresence *presence, const LhHealth *health, const char *rule,
                LhPlan *plan)
{
    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_HEALTH, presence->key, health,
                presence->health == NULL ? 0 : presence->health->mod_rev, rule, "%s",
                health->reason);
    lh_plan_rely(plan, LH_KIND_NODE, presence->key,
                 presence->node == NULL ? 0 : presence->node->mod_rev);
    if (health->state == LH_HEALTH_FAILURE)
        lh_plan_event(plan, LH_EVENT_WARNING, health->revoking ? "LeaseRevoked" : "NodeLost",
                      LH_KIND_NODE, presence->key, "%s", health->reason);
    if (health->state == LH_HEALTH_FAILED)
        lh_plan_event(plan, LH_EVENT_WARNING, "NodeFailed", LH_KIND_NODE, presence->key,
                      "it is failed; %u items were assigned to it", presence->assignments);
    lh_plan_end(plan);
}

static void plan_present(const LhFleetPresence *presence, const LhPlanContext *context,
                         LhPlan *plan)
{
    const LhNode *node = (const LhNode *)presence->node;
    gboolean back = presence->health != NULL;
    LhHealth health = {
        .state = LH_HEALTH_HEALTHY,
        .since = context->now_ms,
        .missing_since = -1,
        .reason = back ? "registered again" : "registered",
        .lease_ttl_ms = lh_object_known(presence->node) ? node->lease_ttl_ms : 0,
    };

    say(presence, &health, back ? "back" : "registered", plan);
}

static gboolean said_by_probe(const LhHealth *health)
{
    return health->reason != NULL && g_str_has_prefix(health->reason, BY_PROBE);
}

/* That its probes condemned it is still to be seen when it is gone: the brake counts it. */
static char *reason_gone(const LhHealth *present, const char *gone)
{
    return present != NULL && said_by_probe(present)
               ? g_strdup_printf("%.*s; %s", (int)strcspn(present->reason, ";"), present->reason,
                                 gone)
               : g_strdup(gone);
}

static void plan_missing(const LhFleetPresence *presence, const LhPlanContext *context,
                         LhPlan *plan)
{
    const LhHealth *present = (const LhHealth *)presence->health;
    g_autofree char *lost = reason_gone(present, "its registration is gone");
    g_autofree char *over = reason_gone(
        present, "its registration has been gone for longer than its lease lives");
    gint64 now = lh_steady_ms(context), left;
    LhHealth health = {
        .state = LH_HEALTH_FAILURE,
        .since = present != NULL && present->state == LH_HEALTH_FAILURE ? present->since : now,
        .missing_since = now,
        .reason = lost,
        .revoking = present != NULL && present->revoking,
        .lease_ttl_ms = present == NULL ? 0 : present->lease_ttl_ms,
    };

    /* A time yet to come is of another clock, and says nothing about this one's. */
    if (present == NULL || present->missing_since < 0 || present->missing_since > now) {
        say(presence, &health, "missing", plan);
        return;
    }
    left = MAX(present->missing_since, context->led_ms) +
           (present->lease_ttl_ms > 0 ? present->lease_ttl_ms : UNKNOWN_TTL_MS) - now;
    if (left > 0 && !LH_BUG(FAILED_TOO_SOON)) {
        lh_plan_wake(plan, context->now_ms + left);
        lh_plan_note(plan, LH_KIND_HEALTH, presence->key, "wait-ttl",
                     "gone is not yet stopped: failed after its lease's TTL");
        return;
    }
    health.state = LH_HEALTH_FAILED;
    health.since = now;
    health.missing_since = present->missing_since;
    health.reason = over;
    say(presence, &health, "failed", plan);
}

static void plan_failed(const LhFleetPresence *presence, const LhPlanContext *context, LhPlan *plan)
{
    const LhHealth *health = (const LhHealth *)presence->health;
    gint64 due = health->since + KEEP_FAILED_MS;

    if (presence->assignments != 0)
        return; /* what says that it failed stays as long as something is assigned to it */
    if (context->now_ms < due) {
        lh_plan_wake(plan, due);
        return;
    }
    lh_plan_begin(plan);
    lh_plan_delete(plan, LH_KIND_HEALTH, presence->key, health->o.mod_rev, "forgotten",
                   "the node has been gone for a day");
    lh_plan_rely(plan, LH_KIND_NODE, presence->key, 0);
    lh_plan_end(plan);
}

/* ---- registered nodes: the table ---- */

typedef enum { GOOD, UNPROVEN, DOUBTFUL, BAD } Sign;

/* Failed nodes are not looked at here; healthy after probation only when its time has passed. */
static const LhHealthState table[LH_HEALTH_FAILED][BAD + 1] = {
    [LH_HEALTH_HEALTHY] = {LH_HEALTH_HEALTHY, LH_HEALTH_HEALTHY, LH_HEALTH_HEALTHY,
                           LH_HEALTH_FAILURE},
    [LH_HEALTH_FAILURE] = {LH_HEALTH_PROBATION, LH_HEALTH_FAILURE, LH_HEALTH_FAILURE,
                           LH_HEALTH_FAILURE},
    [LH_HEALTH_PROBATION] = {LH_HEALTH_HEALTHY, LH_HEALTH_PROBATION, LH_HEALTH_FAILURE,
                             LH_HEALTH_FAILURE},
};

static gboolean has_url(const LhNode *node)
{
    return node->url != NULL &&
           (g_str_has_prefix(node->url, "http://") || g_str_has_prefix(node->url, "https://"));
}

/* What was observed of this very registration. */
static const LhObservation *probe_of(const LhFleetPresence *presence)
{
    const LhObservation *probe = (const LhObservation *)presence->probe;

    return probe != NULL && lh_object_known(&probe->o) && presence->node != NULL &&
                   probe->token == presence->node->create_rev
               ? probe
               : NULL;
}

static Sign sign_of(const LhFleetPresence *presence, const LhSettings *settings, gboolean *by_probe)
{
    const LhNode *node = (const LhNode *)presence->node;
    const LhObservation *probe = probe_of(presence);

    *by_probe = FALSE;
    if (node->state == LH_NODE_ERROR)
        return BAD;
    if (!has_url(node))
        return GOOD;
    if (probe == NULL)
        return UNPROVEN;
    *by_probe = TRUE;
    if (probe->missing >= settings->probe_misses)
        return BAD;
    return probe->missing > 0 ? DOUBTFUL : GOOD;
}

/* What is known and present, and may change its state by the table. */
static const LhHealth *judged(const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;

    return health != NULL && presence->node != NULL && lh_object_known(presence->node) &&
                   health->missing_since < 0 && health->state != LH_HEALTH_FAILED &&
                   !health->revoking
               ? health
               : NULL;
}

static char *pool_of(const LhFleetPresence *presence)
{
    return g_strndup(presence->key, strcspn(presence->key, "/"));
}

static char *reason_of(const LhFleetPresence *presence, LhHealthState next, gboolean by_probe)
{
    const LhObservation *probe = probe_of(presence);

    if (next == LH_HEALTH_HEALTHY)
        return g_strdup("clean through its probation");
    if (next == LH_HEALTH_PROBATION)
        return g_strdup(by_probe ? OFF_AGAIN : "it reports no error any more");
    if (!by_probe)
        return g_strdup("its own word: error");
    return probe->missing == 1
               ? g_strdup_printf(BY_PROBE "%s in probation",
                                 probe->error == NULL ? "missed" : probe->error)
               : g_strdup_printf(BY_PROBE "%s %" G_GINT64_FORMAT " times",
                                 probe->error == NULL ? "missed" : probe->error, probe->missing);
}

static void mark(const Round *round, const LhFleetPresence *presence, LhHealthState next,
                 const char *reason, gboolean revoking)
{
    static const char *const rules[] = {"healthy", "probation", "failure"};
    static const char *const events[] = {"NodeHealthy", "NodeProbation", "NodeFailure"};
    const LhHealth *before = (const LhHealth *)presence->health;
    LhHealth health = {
        .state = (int)next,
        .since = revoking ? before->since : round->context->now_ms,
        .missing_since = -1,
        .reason = reason,
        .revoking = revoking,
        .lease_ttl_ms = ((const LhNode *)presence->node)->lease_ttl_ms,
    };
    LhPlan *plan = round->plan;

    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_HEALTH, presence->key, &health, before->o.mod_rev,
                revoking ? "revoking" : rules[next], "%s", reason);
    lh_plan_rely(plan, LH_KIND_NODE, presence->key, presence->node->mod_rev);
    if (!revoking) /* LeaseRevoked is told when it is gone */
        lh_plan_event(plan, next == LH_HEALTH_FAILURE ? LH_EVENT_WARNING : LH_EVENT_NORMAL,
                      events[next], LH_KIND_NODE, presence->key, "%s", reason);
    lh_plan_end(plan);
}

static void plan_registered(const Round *round, const LhFleetPresence *presence)
{
    const LhHealth *health = judged(presence);
    g_autofree char *pool = pool_of(presence), *reason = NULL;
    LhHealthState next;
    gboolean by_probe;
    gint64 due;

    if (health == NULL)
        return;
    next = table[health->state][sign_of(presence, round->settings, &by_probe)];
    if (next == LH_HEALTH_FAILURE && health->state == LH_HEALTH_FAILURE) {
        if (strcmp(pool, LH_POOL_CACHE) != 0 && round->settings->on_failure == LH_ON_FAILURE_EVICT)
            mark(round, presence, next,
                 health->reason != NULL ? health->reason : "in failure; nothing says why", TRUE);
        return;
    }
    if ((int)next == health->state)
        return;
    if (next == LH_HEALTH_FAILURE && by_probe && g_hash_table_contains(round->braked, pool)) {
        lh_plan_note(round->plan, LH_KIND_HEALTH, presence->key, "braked",
                     "so many are not condemned by probes at once");
        return;
    }
    if (next == LH_HEALTH_FAILURE && by_probe && g_hash_table_contains(round->doubts, pool)) {
        lh_plan_note(round->plan, LH_KIND_HEALTH, presence->key, "wait-others",
                     "others miss their probes too: first it is seen how often");
        return;
    }
    due = MAX(health->since, round->context->led_ms) + round->settings->probation_ms;
    if (next == LH_HEALTH_HEALTHY && round->context->now_ms < due) {
        lh_plan_wake(round->plan, due);
        return;
    }
    reason = reason_of(presence, next, by_probe);
    mark(round, presence, next, reason, FALSE);
}

/* ---- the brake ---- */

typedef struct {
    gint64 marks, due, nodes;
    gint64 doubtful; /* miss their probes, not yet often enough */
} Marks;

static gboolean would_condemn(const Round *round, const LhFleetPresence *presence,
                              const LhHealth *health)
{
    gboolean by_probe;
    Sign sign = sign_of(presence, round->settings, &by_probe);

    return by_probe && health->state != LH_HEALTH_FAILURE &&
           table[health->state][sign] == LH_HEALTH_FAILURE;
}

static gboolean is_doubtful(const Round *round, const LhFleetPresence *presence,
                            const LhHealth *health)
{
    gboolean by_probe;

    return health->state == LH_HEALTH_HEALTHY &&
           sign_of(presence, round->settings, &by_probe) == DOUBTFUL;
}

static Marks *marks_of(GHashTable *pools, const LhFleetPresence *presence)
{
    g_autofree char *pool = pool_of(presence);
    Marks *marks = g_hash_table_lookup(pools, pool);

    if (marks == NULL) {
        marks = g_new0(Marks, 1);
        g_hash_table_insert(pools, g_steal_pointer(&pool), marks);
    }
    return marks;
}

/* When its probes condemned it, or last let it off, or by when at the latest: a node that came back, or went,
 * counts too. 0: they did not. */
static gint64 marked_ms(const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;

    if (health == NULL || !lh_object_known(&health->o) || health->state == LH_HEALTH_HEALTHY ||
        !said_by_probe(health))
        return 0;
    return health->state == LH_HEALTH_FAILED ? health->missing_since : health->since;
}

/* Until when it counts. What an earlier leader's clock, or this one's before it jumped, says of a node that
 * still is so, may be wrong: as from the beginning. */
static gint64 counts_until(const Round *round, const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;
    gint64 marked = marked_ms(presence);

    if (marked == 0)
        return 0;
    return (health->state == LH_HEALTH_FAILED ? marked : MAX(marked, round->context->led_ms)) +
           MARKS_MS;
}

static void count_marks(const Round *round, GHashTable *pools, GPtrArray *names)
{
    GHashTableIter iter;
    gpointer value;

    for (GTreeNode *n = g_tree_node_first(round->fleet->health_todo); n != NULL;
         n = g_tree_node_next(n)) {
        const LhFleetPresence *presence = lh_tree_record(n);
        const LhHealth *health = judged(presence);
        gint64 until = counts_until(round, presence);
        if (health != NULL && would_condemn(round, presence, health)) {
            Marks *marks = marks_of(pools, presence);
            marks->marks++;
            marks->due++;
            g_ptr_array_add(names, presence->key);
        } else if (until > round->context->now_ms) {
            marks_of(pools, presence)->marks++;
            lh_plan_wake(round->plan, until);
        } else if (health != NULL && is_doubtful(round, presence, health)) {
            marks_of(pools, presence)->doubtful++;
        }
    }
    if (names->len == 0)
        return;
    g_hash_table_iter_init(&iter, round->fleet->health);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        if (((const LhFleetPresence *)value)->node != NULL)
            marks_of(pools, value)->nodes++;
}

/* Not lh_brake_exceeds(): a fleet of five is lost with five of them, and one alone may always be hung. Of a few
 * it is all: who would take their work? */
static gboolean is_a_fleet(const Round *round, const Marks *marks, gint64 n)
{
    if (LH_BUG(PROBES_UNBRAKED) || marks->due == 0 || n < 2)
        return FALSE;
    return marks->nodes < SMALL_POOL ? n >= marks->nodes
                                     : n * 100 > round->settings->brake_percent * marks->nodes;
}

/* A brake is let go when each node has been probed once more since the last change of what it holds: who is
 * probed last would be condemned alone, for what all missed together. */
static gboolean lets_go(Round *round, const LhBrake *brake, const GPtrArray *names,
                        GHashTable *pools)
{
    gint64 due = brake->since + round->settings->probe_period_ms +
                 2 * round->settings->probe_timeout_ms;
    GHashTableIter iter;
    gpointer pool, marks;

    if (names->len == 0 || round->context->now_ms >= due || brake->since > round->context->now_ms)
        return TRUE; /* since a time yet to come: another clock's */
    g_hash_table_iter_init(&iter, pools);
    while (g_hash_table_iter_next(&iter, &pool, &marks))
        if (((const Marks *)marks)->due > 0 && ((const Marks *)marks)->nodes > 1)
            g_hash_table_add(round->doubts, g_strdup(pool));
    lh_plan_wake(round->plan, due);
    return FALSE;
}

static void plan_brake(Round *round)
{
    const LhObject *object = g_hash_table_lookup(round->fleet->brakes, LH_DETECTOR);
    LhBraking braking = {
        .controller = LH_DETECTOR,
        .fleet = round->fleet,
        .context = round->context,
        .present = object != NULL && lh_object_known(object) ? (const LhBrake *)object : NULL,
        .plan = round->plan,
    };
    g_autoptr(GHashTable) pools = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    g_autofree char *hash = NULL, *message = NULL;
    LhBrake made = {.cause = LH_BRAKE_MUCH};
    GHashTableIter iter;
    gpointer pool, value;

    count_marks(round, pools, names);
    g_hash_table_iter_init(&iter, pools);
    while (g_hash_table_iter_next(&iter, &pool, &value)) {
        const Marks *marks = value;
        /* Who is cut off hears of the first that it misses often enough a moment before it hears of the others. */
        if (is_a_fleet(round, marks, marks->marks + marks->doubtful))
            g_hash_table_add(round->doubts, g_strdup(pool));
        if (!is_a_fleet(round, marks, marks->marks))
            continue;
        g_hash_table_add(round->braked, g_strdup(pool));
        made.eligible += marks->marks;
        made.of += marks->nodes;
    }
    if (g_hash_table_size(round->braked) == 0) {
        if (braking.present == NULL || !lets_go(round, braking.present, names, pools))
            return;
        lh_plan_begin(round->plan);
        lh_brake_remove(&braking, "released", "few enough miss their probes again");
        lh_plan_end(round->plan);
        return;
    }
    hash = lh_brake_hash((const char *const *)names->pdata, names->len);
    if (braking.present != NULL && g_strcmp0(braking.present->plan_hash, hash) == 0 &&
        !lh_brake_came_back(&braking)) {
        if (lh_brake_stands(&braking, LH_BRAKE_MUCH, 0)) {
            g_hash_table_remove_all(round->braked);
            g_hash_table_remove_all(round->doubts);
        } else if (lh_brake_is_confirmed(&braking))
            lh_brake_confirm(&braking);
        return;
    }
    message = g_strdup_printf("%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                              " nodes miss their probes at once: is it the manager that is cut "
                              "off? Else leasehold confirm " LH_DETECTOR " --plan %s",
                              made.eligible, made.of, hash);
    made.plan_hash = hash;
    made.message = message;
    if (object != NULL && braking.present == NULL)
        return; /* it does not parse: nothing is written over it */
    lh_plan_begin(round->plan);
    lh_brake_put(&braking, made);
    lh_plan_end(round->plan);
}

/* The condition Braked, as long as there is a Brake. */
static void say_braked(const Round *round)
{
    const LhFleet *fleet = round->fleet;
    const LhBrake *brake = g_hash_table_lookup(fleet->brakes, LH_DETECTOR);
    const LhAccepted *accepted = g_hash_table_lookup(fleet->settings, LH_DETECTOR);
    gboolean known = accepted != NULL && lh_object_known(&accepted->o);
    LhCondition condition = {.type = "Braked", .reason = "TooMuchAtOnce"};

    if (brake != NULL && !lh_object_known(&brake->o))
        return;
    condition.message = brake == NULL ? NULL : brake->message;
    lh_plan_status(round->plan, lh_fleet_status(fleet, "settings", LH_DETECTOR, LH_DETECTOR),
                   "settings/" LH_DETECTOR "/" LH_DETECTOR, known ? accepted->revision : 0,
                   &condition, brake == NULL ? 0 : 1, round->context->now_ms);
}

static void plan_one(const Round *round, const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;

    if (!lh_kind_name_valid(LH_KIND_HEALTH, presence->key))
        return;
    if (presence->node != NULL && (health == NULL || health->missing_since >= 0))
        plan_present(presence, round->context, round->plan);
    else if (presence->node != NULL)
        plan_registered(round, presence);
    else if (health != NULL && health->state == LH_HEALTH_FAILED)
        plan_failed(presence, round->context, round->plan);
    else
        plan_missing(presence, round->context, round->plan);
}

static void failure_detector_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    Round round = {
        .fleet = index,
        .context = context,
        .settings = lh_fleet_settings(index, LH_DETECTOR),
        .plan = plan,
        .braked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
        .doubts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
    };

    plan_brake(&round);
    say_braked(&round);
    for (GTreeNode *node = g_tree_node_first(round.fleet->health_todo); node != NULL;
         node = g_tree_node_next(node)) {
        if (lh_plan_groups(plan) >= context->max_groups) {
            plan->more = TRUE;
            break;
        }
        plan_one(&round, lh_tree_record(node));
    }
    g_hash_table_unref(round.braked);
    g_hash_table_unref(round.doubts);
}

/* ---- errands ---- */

static void want_probe(const LhFleetPresence *presence, const LhSettings *settings,
                       LhErrands *errands)
{
    const LhNode *node = (const LhNode *)presence->node;
    g_autofree char *uri = NULL;
    gsize len;

    if (presence->probe_id == NULL || !has_url(node))
        return;
    len = strlen(node->url);
    while (len > 0 && node->url[len - 1] == '/')
        len--;
    uri = g_strdup_printf("%.*s%s", (int)len, node->url, settings->probe_path);
    lh_errands_add(errands, (LhErrand){.id = presence->probe_id,
                                       .what = LH_DETECTOR_PROBE,
                                       .uri = uri,
                                       .token = node->o.create_rev,
                                       .period_ms = settings->probe_period_ms,
                                       .timeout_ms = settings->probe_timeout_ms,
                                       .most = settings->probe_misses});
}

static void want_revoked(const LhFleet *fleet, const LhPlanContext *context,
                         const LhFleetPresence *presence, LhErrands *errands)
{
    /* That of its key: what a node says of itself could name anybody's. */
    gint64 lease = lh_object_lease(presence->node);
    const LhHealth *health = (const LhHealth *)presence->health;
    g_autofree char *id = presence->probe_id == NULL
                              ? NULL
                              : g_strconcat(LH_DETECTOR_REVOKE, strchr(presence->probe_id, '.'),
                                            NULL);
    const LhObservation *last = id == NULL ? NULL : lh_fleet_observed(fleet, LH_DETECTOR, id);
    gint64 attempt = 0;

    if (id == NULL || lease == 0)
        return;
    if (last != NULL && last->token == health->o.mod_rev) {
        if (last->error == NULL)
            return; /* its registration is about to go */
        attempt = last->attempt + 1;
        if (context->now_ms >= last->at && context->now_ms < last->at + REVOKE_RETRY_MS) {
            lh_errands_wake(errands, last->at + REVOKE_RETRY_MS);
            return;
        }
    }
    lh_errands_add(errands, (LhErrand){.id = id,
                                       .what = LH_DETECTOR_REVOKE,
                                       .token = health->o.mod_rev,
                                       .attempt = attempt,
                                       .number = lease});
}

static void failure_detector_errands(gconstpointer index, const LhPlanContext *context,
                                     LhErrands *errands)
{
    const LhFleet *fleet = index;
    const LhSettings *settings = lh_fleet_settings(fleet, LH_DETECTOR);
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, fleet->health);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhFleetPresence *presence = value;
        const LhHealth *health = (const LhHealth *)presence->health;
        if (presence->node == NULL || !lh_object_known(presence->node))
            continue;
        want_probe(presence, settings, errands);
        if (health != NULL && lh_object_known(&health->o) && health->revoking)
            want_revoked(fleet, context, presence, errands);
    }
}

static guint64 failure_detector_errands_digest(gconstpointer index)
{
    const LhFleet *fleet = index;
    const LhSettings *settings = lh_fleet_settings(fleet, LH_DETECTOR);
    const gint64 numbers[] = {settings->probe_period_ms, settings->probe_timeout_ms,
                              settings->probe_misses};
    guint64 digest = fleet->errands_digest + g_str_hash(settings->probe_path);

    for (guint i = 0; i < G_N_ELEMENTS(numbers); i++)
        digest = digest * G_GUINT64_CONSTANT(1099511628211) + (guint64)numbers[i];
    return digest;
}

/* What the cluster holds it for. */
static const char *state_name(const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;

    return health != NULL && lh_object_known(&health->o) ? lh_health_state_name(health->state)
                                                         : "unknown";
}

static void failure_detector_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                    gpointer data)
{
    const LhFleet *fleet = index;
    g_autoptr(GHashTable) counts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    GHashTableIter iter;
    gpointer key, value;

    g_hash_table_iter_init(&iter, fleet->health);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const char *slash = strchr(key, '/');
        g_autofree char *pool = g_strndup(key,
                                          slash == NULL ? 0 : (gsize)(slash - (const char *)key));
        char *labels = g_strdup_printf("pool=\"%s\",state=\"%s\"", pool, state_name(value));
        guint count = GPOINTER_TO_UINT(g_hash_table_lookup(counts, labels));
        if (lh_pool_name_valid(pool))
            g_hash_table_replace(counts, labels, GUINT_TO_POINTER(count + 1));
        else
            g_free(labels);
    }
    g_hash_table_iter_init(&iter, counts);
    while (g_hash_table_iter_next(&iter, &key, &value))
        gauge("nodes", key, (double)GPOINTER_TO_UINT(value), data);
    gauge("brake", "controller=\"" LH_DETECTOR "\"",
          g_hash_table_contains(fleet->brakes, LH_DETECTOR) ? 1 : 0, data);
}

static const char *const gauge_names[] = {"nodes", "brake", NULL};

const LhController lh_failure_detector = {
    .name = "failure-detector",
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) |
             LH_KIND_BIT(LH_KIND_ASSIGNMENT) | LH_KIND_BIT(LH_KIND_OBSERVATION) |
             LH_KIND_BIT(LH_KIND_BRAKE) | LH_KIND_BIT(LH_KIND_ACCEPTED),
    .quiet_ms = QUIET_MS,
    .plan = failure_detector_plan,
    .errands = failure_detector_errands,
    .errands_digest = failure_detector_errands_digest,
    .gauges = failure_detector_gauges,
    .gauge_names = gauge_names,
    .settings = lh_fleet_settings_of,
};

/*
 * Liveness: with the faults over and everything mended, the control plane comes to rest: one leader
 * for each controller, every further plan empty, all that is wanted and fits live and searchable, all
 * that is not wanted gone. Operators go on confirming brakes and unparking.
 */
#include "runtime/record.h"
#include "sim.h"

#include <string.h>

#define GROUP       "liveness"
#define LONGEST_MS  (25 * 60 * 1000)
#define LOOK_MS     3000
#define QUIET_MS    20000
#define GONE_BY_MS  30000 /* what expired so long ago is gone */
#define CREATION_MS 15000 /* what expires within this need not be created any more */

/* ---- what is not as it should be yet; each returns NULL or a reason (g_free) ---- */

static char *check_leaders(Sim *sim)
{
    for (guint c = 0; lh_controllers()[c] != NULL; c++) {
        const LhController *controller = lh_controllers()[c];
        SimProcess *leader = NULL;
        for (guint i = 0; i < sim->options.managers; i++) {
            SimProcess *process = &sim->processes[i];
            if (process->state != SIM_UP || !lh_runtime_leads(process->runtime, controller->name))
                continue;
            if (leader != NULL)
                return g_strdup_printf("%s is led by %s and %s", controller->name, leader->client,
                                       process->client);
            leader = process;
        }
        if (leader == NULL)
            return g_strdup_printf("nobody leads %s", controller->name);
        g_autoptr(LhPlan) plan = lh_runtime_plan(leader->runtime, controller, FALSE);
        if (lh_plan_groups(plan) > 0) {
            const LhOp *op = lh_plan_op(plan, lh_plan_group(plan, 0), 0);
            return g_strdup_printf("%s would still write %s (%s: %s)", controller->name, op->key,
                                   op->rule, op->reason);
        }
    }
    return NULL;
}

static char *check_processes(Sim *sim)
{
    for (guint i = 0; i < sim->n_processes; i++) {
        SimProcess *process = &sim->processes[i];
        if (process->state != SIM_UP)
            return g_strdup_printf("%s is not up", process->name);
        if (!process->is_manager && lh_agent_id(process->agent) == NULL)
            return g_strdup_printf("%s is not registered", process->client);
        if (process->is_manager &&
            (!lh_mirror_synced(process->mirror) || !lh_runtime_idle(process->runtime) ||
             lh_mirror_revision(process->mirror) != fake_etcd_revision(sim->server)))
            return g_strdup_printf("%s is busy or behind", process->client);
    }
    return NULL;
}

/* ---- room ---- */

static gboolean is_drained(const Sim *sim, const SimProcess *process)
{
    g_autofree char *name = g_strdup_printf("nodepolicies/%s/%s", process->pool, process->name);
    const LhNodePolicy *policy = lh_accepted_spec(sim_get(sim, LH_KIND_ACCEPTED, name),
                                                  LH_KIND_NODEPOLICY);
    return policy != NULL && policy->drain;
}

/* The name of a node that could take the replica; NULL: none. */
static const char *room_for(const Sim *sim, const LhReplica *replica)
{
    const LhSnapshot *snapshot = (const LhSnapshot *)sim_get(sim, LH_KIND_SNAPSHOT,
                                                             replica->snapshot);
    for (guint i = sim->options.managers; i < sim->n_processes; i++) {
        const SimProcess *process = &sim->processes[i];
        if (strcmp(process->pool, LH_SIM_POOL) != 0 || strcmp(process->set, replica->set) != 0 ||
            is_drained(sim, process))
            continue;
        InvUse use = inv_use(&sim->model, process->name);
        gint64 room = process->capacity_bytes - process->capacity_bytes / 100 * (SIM_RESERVE + 1);
        gint64 slots = process->capacity_items - (process->capacity_items * SIM_RESERVE + 99) / 100;
        gint64 bytes = use.bytes, items = use.items;
        if (replica->restored) {
            room = process->capacity_bytes / 100 * (SIM_RESERVE - 1);
            slots = process->capacity_items * SIM_RESERVE / 100;
            bytes = use.restored_bytes;
            items = use.restored_items;
        }
        if (inv_pair(&sim->model, process->name, replica->snapshot) == 0 &&
            bytes + snapshot->size_bytes <= room && items + 1 <= slots)
            return process->name;
    }
    return NULL;
}

/* ---- replicas ---- */

static gboolean is_live(const Sim *sim, const char *assignment, const LhReplica *replica)
{
    const LhItem *item = (const LhItem *)sim_get(sim, LH_KIND_ITEM, assignment);
    const LhObject *order = sim_get(sim, LH_KIND_ASSIGNMENT, assignment);
    g_autofree char *node = lh_name_part(assignment, 1);
    g_autofree char *search = g_strdup_printf(LH_SIM_POOL "/%s/%s", node, replica->snapshot);
    return item != NULL && lh_object_known(&item->o) && item->state == LH_ITEM_LIVE &&
           item->assignment == order->mod_rev && sim_get(sim, LH_KIND_SEARCH, search) != NULL;
}

/* One that is live, if there is one. */
static const char *node_with(const Sim *sim, const LhReplica *replica)
{
    const GPtrArray *names = inv_assignments_of(&sim->model, INV_POOL, replica->o.name);
    for (guint i = 0; names != NULL && i < names->len; i++)
        if (is_live(sim, names->pdata[i], replica))
            return names->pdata[i];
    return names == NULL ? NULL : names->pdata[0];
}

static char *check_replica(Sim *sim, const LhReplica *replica)
{
    const char *why, *name = replica->o.name, *place = node_with(sim, replica);
    gint64 now = sim_wall(sim);
    switch (inv_want(&sim->model, name, &replica->o, now, &why)) {
    case INV_UNDECIDED:
        return NULL;
    case INV_UNWANTED:
        return g_strdup_printf("replica %s is still there: %s", name, why);
    case INV_EXPIRED:
        if (inv_want(&sim->model, name, &replica->o, now - GONE_BY_MS, NULL) == INV_WANTED)
            return NULL;
        return g_strdup_printf("replica %s is still there: %s", name, why);
    case INV_WANTED:
        break;
    }
    if (place != NULL && is_live(sim, place, replica)) {
        sim->counters.settled_live++;
        return NULL;
    }
    if (place != NULL)
        return g_strdup_printf("%s is not live", place);
    const LhSnapshot *snapshot = (const LhSnapshot *)sim_get(sim, LH_KIND_SNAPSHOT,
                                                             replica->snapshot);
    const char *room = inv_snapshot_valid(&sim->model, snapshot) ? room_for(sim, replica) : NULL;
    return room == NULL ? NULL : g_strdup_printf("%s waits; %s has room", name, room);
}

static char *check_replicas(Sim *sim)
{
    GHashTableIter iter;
    gpointer value;
    char *why = NULL;
    sim->counters.settled_live = 0;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_REPLICA]);
    while (why == NULL && g_hash_table_iter_next(&iter, NULL, &value))
        why = check_replica(sim, value);
    return why;
}

/* ---- snapshots have their replicas ---- */

static char *check_snapshot(const Sim *sim, const LhSnapshot *snapshot)
{
    g_autofree char *accepted = g_strconcat("services/", snapshot->service, NULL);
    const LhService *spec = lh_accepted_spec(sim_get(sim, LH_KIND_ACCEPTED, accepted),
                                             LH_KIND_SERVICE);
    if (spec == NULL || spec->paused || snapshot->live ||
        sim_get(sim, LH_KIND_DELETION, snapshot->o.name) != NULL ||
        !inv_snapshot_valid(&sim->model, snapshot) ||
        snapshot->end_time + spec->cache_window_ms < sim_wall(sim) + CREATION_MS)
        return NULL;
    for (guint s = 0; spec->cache_sets[s] != NULL; s++) {
        for (gint64 ordinal = 0; ordinal < spec->cache_replicas; ordinal++) {
            g_autofree char *name = lh_replica_name(snapshot->o.name, spec->cache_sets[s], ordinal,
                                                    FALSE);
            if (sim_get(sim, LH_KIND_REPLICA, name) == NULL)
                return g_strdup_printf("replica %s is missing", name);
        }
    }
    return NULL;
}

static char *check_snapshots(Sim *sim)
{
    GHashTableIter iter;
    gpointer value;
    char *why = NULL;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_SNAPSHOT]);
    while (why == NULL && g_hash_table_iter_next(&iter, NULL, &value))
        if (lh_object_known(value))
            why = check_snapshot(sim, value);
    return why;
}

/* ---- nothing is left over ---- */

static char *check_leftovers(Sim *sim)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_ASSIGNMENT]);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        g_autofree char *item = lh_name_part(key, 2);
        if (item != NULL && inv_is_cache(key) && sim_get(sim, LH_KIND_REPLICA, item) == NULL &&
            inv_want(&sim->model, item, NULL, sim_wall(sim), NULL) != INV_UNDECIDED)
            return g_strdup_printf("assignment %s has no replica", (char *)key);
    }
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_ITEM]);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        if (sim_get(sim, LH_KIND_ASSIGNMENT, key) == NULL)
            return g_strdup_printf("item %s has no assignment", (char *)key);
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_SEARCH]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        g_autofree char *node = lh_name_part(key, 1);
        const LhSearch *search = value;
        g_autofree char *item = lh_object_known(value)
                                    ? g_strdup_printf(LH_SIM_POOL "/%s/%s", node, search->replica)
                                    : NULL;
        if (item == NULL || sim_get(sim, LH_KIND_ITEM, item) == NULL)
            return g_strdup_printf("search %s has no item", (char *)key);
    }
    if (g_hash_table_size(sim->model.kinds[LH_KIND_BRAKE]) > 0)
        return g_strdup("there is a Brake");
    return NULL;
}

/* ---- what cluster-monitor says ---- */

static gboolean lives(const Sim *sim, const LhReplica *replica)
{
    const GPtrArray *places = inv_assignments_of(&sim->model, INV_POOL, replica->o.name);
    for (guint i = 0; places != NULL && i < places->len; i++)
        if (is_live(sim, places->pdata[i], replica))
            return TRUE;
    return FALSE;
}

static char *check_counts(Sim *sim, const char *service)
{
    g_autofree char *name = g_strdup_printf("services/%s/cluster-monitor", service);
    const LhStatus *said = (const LhStatus *)sim_get(sim, LH_KIND_STATUS, name);
    gint64 snapshots = 0, replicas = 0, live = 0;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_SNAPSHOT]);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        snapshots += lh_object_known(value) &&
                     strcmp(((const LhSnapshot *)value)->service, service) == 0;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_REPLICA]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhReplica *replica = value;
        if (!lh_object_known(value) || strcmp(replica->service, service) != 0)
            continue;
        replicas++;
        live += lives(sim, replica);
    }
    if (said != NULL && lh_object_known(&said->o) && said->snapshots == snapshots &&
        said->replicas_desired == replicas && said->replicas_live == live)
        return NULL;
    return g_strdup_printf("service %s has %" G_GINT64_FORMAT " snapshots, %" G_GINT64_FORMAT
                           " replicas, %" G_GINT64_FORMAT " of them live, and its Status says else",
                           service, snapshots, replicas, live);
}

static char *check_monitored(Sim *sim)
{
    GHashTableIter iter;
    gpointer key;
    char *why = NULL;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_SERVICE]);
    while (why == NULL && g_hash_table_iter_next(&iter, &key, NULL))
        why = check_counts(sim, key);
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_STATUS]);
    while (why == NULL && g_hash_table_iter_next(&iter, &key, NULL))
        if (g_str_has_prefix(key, "replicas/") && g_str_has_suffix(key, "/cluster-monitor"))
            why = g_strdup_printf("%s is still there", (char *)key);
    return why;
}

/* ---- what is drained is empty, or there is no room elsewhere ---- */

static char *check_drained_item(Sim *sim, const SimProcess *drained, const char *name)
{
    g_auto(InvPlace) place = {0};
    if (!inv_place(name, &place) || strcmp(place.host, drained->name) != 0 ||
        !g_str_has_prefix(name, drained->pool))
        return NULL;
    if (!inv_is_cache(name)) {
        for (guint i = sim->options.managers; i < sim->n_processes; i++)
            if (strcmp(sim->processes[i].pool, drained->pool) == 0 &&
                !is_drained(sim, &sim->processes[i]))
                return g_strdup_printf("%s is still there, and its node is drained", name);
        return NULL;
    }
    const LhReplica *replica = (const LhReplica *)sim_get(sim, LH_KIND_REPLICA, place.item);
    if (replica == NULL || !lh_object_known(&replica->o) ||
        inv_want(&sim->model, place.item, &replica->o, sim_wall(sim), NULL) != INV_WANTED ||
        !inv_snapshot_valid(&sim->model,
                            (const LhSnapshot *)sim_get(sim, LH_KIND_SNAPSHOT, replica->snapshot)))
        return NULL;
    const char *room = room_for(sim, replica);
    return room == NULL ? NULL
                        : g_strdup_printf("%s is drained; %s has room for %s", drained->name, room,
                                          place.item);
}

static char *check_drained(Sim *sim)
{
    char *why = NULL;
    sim->counters.settled_drained = 0;
    for (guint i = sim->options.managers; why == NULL && i < sim->n_processes; i++) {
        const SimProcess *process = &sim->processes[i];
        GHashTableIter iter;
        gpointer key;
        if (!is_drained(sim, process))
            continue;
        sim->counters.settled_drained++;
        g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_ASSIGNMENT]);
        while (why == NULL && g_hash_table_iter_next(&iter, &key, NULL))
            why = check_drained_item(sim, process, key);
    }
    return why;
}

/* ---- every task that can be done is done ---- */

static char *check_tasks(Sim *sim)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_RECOVERYTASK]);
    while (g_hash_table_iter_next(&iter, &key, &value))
        if (lh_object_known(value))
            return g_strdup_printf("recovery task %s is not done", (char *)key);
    return NULL;
}

/* ---- every partition that a plan has for good is worked on ---- */

static gboolean is_worked_on(Sim *sim, const char *partition)
{
    g_autofree char *tail = g_strconcat("/", partition, NULL);
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_ITEM]);
    while (g_hash_table_iter_next(&iter, &key, &value))
        if (g_str_has_prefix(key, SIM_POOL_INDEXER "/") && g_str_has_suffix(key, tail) &&
            lh_object_known(value) && ((const LhItem *)value)->state == LH_ITEM_LIVE)
            return g_hash_table_contains(sim->hands, partition);
    return FALSE;
}

static char *check_partitions(Sim *sim)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_PARTITIONPLAN]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const LhPartitionPlan *plan = value;
        const LhPartitionInterval *last;
        if (!lh_object_known(value) || plan->history->n == 0)
            continue;
        last = lh_array_at(plan->history, plan->history->n - 1);
        for (guint i = 0; last->partitions[i] != NULL; i++)
            if (!is_worked_on(sim, last->partitions[i]))
                return g_strdup_printf("partition %s of %s is on no indexer", last->partitions[i],
                                       (char *)key);
    }
    return NULL;
}

static char *restless(Sim *sim)
{
    char *(*const checks[])(Sim * sim) = {
        check_processes,    check_leaders,   check_snapshots, check_replicas,
        sim_restores_check, check_leftovers, check_monitored, check_tasks,
        check_partitions,   check_drained,   sim_seeds_check, sim_probes_check,
    };
    char *why = NULL;
    for (guint i = 0; why == NULL && i < G_N_ELEMENTS(checks); i++)
        why = checks[i](sim);
    return why;
}

/* What the controllers would do, and why they do nothing. */
static void tell_plans(Sim *sim)
{
    const LhController *const *controllers = lh_controllers();
    const SimProcess *process = &sim->processes[0];
    while (process->state != SIM_UP && process->is_manager)
        process++;
    for (guint i = 0; controllers[i] != NULL && process->is_manager; i++) {
        g_autoptr(GString) text = g_string_new(NULL);
        g_autoptr(LhPlan) plan = lh_runtime_plan(process->runtime, controllers[i], TRUE);
        lh_plan_append_json(text, controllers[i], plan, FALSE, FALSE, NULL);
        sim_trace(sim, "plan: %s", text->str);
    }
}

static void rest(Sim *sim)
{
    gint64 end = sim_now(sim) + LONGEST_MS;
    gint64 rest_since = -1;
    g_autofree char *why = NULL;
    while (!sim->failed) {
        sim_run_ms(sim, LOOK_MS);
        sim_people_attend(sim, TRUE);
        g_free(why);
        why = restless(sim);
        if (why != NULL)
            rest_since = -1;
        else if (rest_since < 0)
            rest_since = sim_now(sim);
        else if (sim_now(sim) - rest_since >= QUIET_MS)
            break;
        if (sim_now(sim) > end) {
            tell_plans(sim);
            sim_fail(sim, GROUP, "no rest %d s after the faults ended: %s", LONGEST_MS / 1000,
                     why == NULL ? "never quiet for long" : why);
        }
    }
}

/* What a person asks for brings the seeds where they belong, and a second time there is nothing to do. */
static void rebalance_twice(Sim *sim)
{
    guint64 moves = 0;
    for (guint i = 0; i < 2 && !sim->failed; i++) {
        moves = sim->counters.seed_moves;
        sim_seeds_ask_rebalance(sim);
        rest(sim);
        g_autofree char *uneven = sim->failed ? NULL : sim_seeds_uneven(sim);
        if (uneven != NULL)
            sim_fail(sim, GROUP, "after a rebalance: %s", uneven);
    }
    if (!sim->failed && sim->counters.seed_moves != moves)
        sim_fail(sim, GROUP, "a second rebalance moved %" G_GUINT64_FORMAT " seeds",
                 sim->counters.seed_moves - moves);
}

void sim_settle(Sim *sim)
{
    rest(sim);
    rebalance_twice(sim);
    for (guint i = 0; i < sim->options.managers && !sim->failed; i++)
        sim_check_fold(&sim->processes[i]);
}

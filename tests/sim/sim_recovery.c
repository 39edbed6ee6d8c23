/*
 * A node's work without programs. In the pool recovery a task takes virtual time, is done or fails; in the pools
 * indexer and manager a partition or a seed becomes live and stays so, or fails; what crawlers ask a crawl
 * manager for is sim_crawl.c's. It goes on while its
 * agent's process is stopped, as a real program does, until the deadline that the agent named last: then
 * its watchdog kills it, which an agent that lives on hears as a failure; and when the process dies. Who works on what is known here, apart from etcd: no
 * task may be in two hands at once.
 */
#include "base/errors.h"
#include "sim.h"

#include <string.h>

#define GROUP        "hands"
#define FAIL_PERCENT 12
#define LATE_MS      1000 /* before an end after the deadline is looked at again */

typedef struct {
    SimRecovery *work;
    char *task;
    char *policy;                 /* of a seed with a throttle; else NULL */
    gboolean works, fails, stays; /* stays: it does not end by itself */
    gboolean killed;              /* by its watchdog */
    LhTimer *end;                 /* of the director: when the program ends; NULL: it has */
    LhTimer *heard;               /* of the agent's process */
    gboolean releasing;
} Thing;

struct SimRecovery {
    LhAgentWork base;
    SimProcess *process;
    const LhWorkFuncs *funcs;
    gpointer data;
    GHashTable *things; /* task → Thing */
    LhTimer *deadline;  /* of the director; NULL: none was named, or it is past */
    gboolean named;     /* a deadline was named */
    SimCrawl *crawl;    /* in the pool manager; else NULL */
};

/* ---- hands ---- */

/* Etcd was restored, or somebody deleted a registration by hand. */
gboolean sim_node_excused(const Sim *sim, const char *node, guint timeline)
{
    return timeline != fake_etcd_timeline(sim->server) ||
           (node != NULL && g_hash_table_contains(sim->by_hand, node));
}

static gboolean is_excused(const Sim *sim, const SimHand *hand)
{
    return sim_node_excused(sim, hand->node, hand->timeline);
}

static void hand_free(gpointer data)
{
    SimHand *hand = data;
    g_free(hand->node);
    g_free(hand->policy);
    g_free(hand);
}

void sim_hands_init(Sim *sim)
{
    sim->hands = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, hand_free);
    sim->by_hand = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
}

void sim_hands_clear(Sim *sim)
{
    g_clear_pointer(&sim->hands, g_hash_table_unref);
    g_clear_pointer(&sim->by_hand, g_hash_table_unref);
}

/* All seeds of one policy are on one node. */
static void check_policy(Sim *sim, const Thing *thing, const SimHand *hand)
{
    GHashTableIter iter;
    gpointer key, value;
    if (hand->policy == NULL)
        return;
    g_hash_table_iter_init(&iter, sim->hands);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const SimHand *other = value;
        if (g_strcmp0(other->policy, hand->policy) == 0 &&
            g_strcmp0(other->node, hand->node) != 0 && !is_excused(sim, other))
            sim_fail(sim, GROUP, "%s begins %s of %s; %s still crawls %s of it", hand->node,
                     thing->task, hand->policy, other->node, (char *)key);
    }
}

static void take(Thing *thing)
{
    SimProcess *process = thing->work->process;
    Sim *sim = process->sim;
    const SimHand *other = g_hash_table_lookup(sim->hands, thing->task);
    if (other != NULL && !is_excused(sim, other))
        sim_fail(sim, GROUP, "%s begins %s; %s still works on it", process->client, thing->task,
                 other->node);
    SimHand *hand = g_new0(SimHand, 1);
    hand->owner = thing;
    hand->node = g_strdup(lh_agent_id(process->agent));
    hand->policy = g_strdup(thing->policy);
    hand->since_ms = sim_now(sim);
    hand->timeline = fake_etcd_timeline(sim->server);
    check_policy(sim, thing, hand);
    g_hash_table_replace(sim->hands, g_strdup(thing->task), hand);
    thing->works = TRUE;
    sim->counters.tasks_worked++;
}

static void let_go(Thing *thing)
{
    Sim *sim = thing->work->process->sim;
    const SimHand *hand = g_hash_table_lookup(sim->hands, thing->task);
    if (thing->works && hand != NULL && hand->owner == thing)
        g_hash_table_remove(sim->hands, thing->task);
    thing->works = FALSE;
}

/* ---- things ---- */

static void thing_free(gpointer data)
{
    Thing *thing = data;
    let_go(thing);
    if (thing->work->crawl != NULL)
        sim_crawl_forget(thing->work->crawl, thing->task);
    lh_timer_clear(thing->work->process->sim->director, &thing->end);
    lh_timer_clear(thing->work->process->env, &thing->heard);
    g_free(thing->task);
    g_free(thing->policy);
    g_free(thing);
}

static void heard(gpointer data)
{
    Thing *thing = data;
    SimRecovery *work = thing->work;
    thing->heard = NULL;
    g_autofree char *task = g_strdup(thing->task);
    gboolean fails = thing->fails, killed = thing->killed, releasing = thing->releasing;
    if (thing->works && !releasing) {
        work->funcs->ready(task, NULL, work->data);
        return;
    }
    if (work->named && work->deadline == NULL) {
        thing->heard = lh_timer_in(work->process->env, LATE_MS, heard, thing);
        return; /* the agent leaves, or names a later one */
    }
    g_hash_table_remove(work->things, task);
    if (releasing) {
        work->funcs->released(task, NULL, work->data);
    } else if (fails || killed) {
        g_autoptr(GError) error = g_error_new_literal(LH_ERROR, LH_ERR_IO,
                                                      killed ? "killed by its watchdog"
                                                             : "exited with status 1: no luck");
        work->funcs->failed(task, error, work->data);
    } else {
        work->funcs->finished(task, work->data);
    }
}

/* The program is over; its agent hears of it when it runs. */
static void end(Thing *thing)
{
    let_go(thing);
    lh_timer_clear(thing->work->process->sim->director, &thing->end);
    if (thing->heard == NULL)
        thing->heard = lh_timer_in(thing->work->process->env, 0, heard, thing);
}

static void kill_thing(Thing *thing)
{
    thing->killed = TRUE;
    end(thing);
}

static void on_end(gpointer data)
{
    Thing *thing = data;
    thing->end = NULL;
    if (!thing->stays || thing->fails)
        end(thing);
    else
        thing->heard = lh_timer_in(thing->work->process->env, 0, heard, thing);
}

/* ---- the vtable ---- */

static void work_attach(LhAgentWork *base, const LhWorkFuncs *funcs, gpointer data)
{
    SimRecovery *work = (SimRecovery *)base;
    work->funcs = funcs;
    work->data = data;
}

static void work_load(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    SimRecovery *work = (SimRecovery *)base;
    Sim *sim = work->process->sim;
    gboolean faults = !sim->calm && !sim_off(sim, SIM_PART_WORK_FAULTS);
    gint64 ms = faults && sim_chance(sim, 35) ? sim_between(sim, 20000, 90000)
                                              : sim_between(sim, 100, 9000);
    Thing *thing = g_new0(Thing, 1);
    if (g_hash_table_contains(work->things, item))
        sim_fail(sim, GROUP, "%s was told to begin %s, which it works on", work->process->client,
                 item);
    thing->work = work;
    thing->task = g_strdup(item);
    thing->fails = faults && sim_chance(sim, FAIL_PERCENT);
    thing->stays = strcmp(work->process->pool, SIM_POOL_RECOVERY) != 0;
    g_hash_table_replace(work->things, thing->task, thing);
    if (work->crawl != NULL)
        thing->policy = g_strdup(sim_crawl_told(work->crawl, item, assignment));
    if (work->named && work->deadline == NULL) {
        kill_thing(thing); /* before it begins */
        return;
    }
    take(thing);
    thing->end = lh_timer_in(sim->director, ms, on_end, thing);
}

static gboolean work_update(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    SimRecovery *work = (SimRecovery *)base;
    Thing *thing = g_hash_table_lookup(work->things, item);
    if (work->crawl == NULL || thing == NULL || sim_chance(work->process->sim, 20))
        return FALSE; /* what it needs to know at its beginning has changed */
    g_free(thing->policy);
    thing->policy = g_strdup(sim_crawl_told(work->crawl, item, assignment));
    SimHand *hand = g_hash_table_lookup(work->process->sim->hands, item);
    if (hand != NULL && hand->owner == thing && g_strcmp0(hand->policy, thing->policy) != 0) {
        g_free(hand->policy);
        hand->policy = g_strdup(thing->policy);
        check_policy(work->process->sim, thing, hand);
    }
    return TRUE;
}

static void stop(gpointer data)
{
    Thing *thing = data;
    thing->end = NULL;
    end(thing);
}

static void work_release(LhAgentWork *base, const char *item)
{
    SimRecovery *work = (SimRecovery *)base;
    Sim *sim = work->process->sim;
    Thing *thing = g_hash_table_lookup(work->things, item);
    if (thing == NULL || thing->releasing) {
        sim_fail(sim, GROUP, "%s releases %s, which it does not work on", work->process->client,
                 item);
        return;
    }
    thing->releasing = TRUE;
    if (!thing->works)
        return; /* it has ended, and that is about to be heard */
    lh_timer_clear(work->process->env, &thing->heard);
    lh_timer_clear(sim->director, &thing->end);
    thing->end = lh_timer_in(sim->director, sim_between(sim, 5, 3000), stop, thing);
}

/* The watchdogs' doing. An agent that leaves does not hear of it; one whose renewal was on its way does. What
 * had ended before is over as it was. */
static void at_deadline(gpointer data)
{
    SimRecovery *work = data;
    GHashTableIter iter;
    gpointer value;
    work->deadline = NULL;
    g_hash_table_iter_init(&iter, work->things);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        Thing *thing = value;
        if (thing->works)
            kill_thing(thing);
    }
}

static void work_deadline(LhAgentWork *base, gint64 mono_ms)
{
    SimRecovery *work = (SimRecovery *)base;
    SimProcess *process = work->process;
    gint64 at = mono_ms - sim_machine_mono_offset(process->env);
    work->named = TRUE;
    lh_timer_clear(process->sim->director, &work->deadline);
    work->deadline = lh_timer_in(process->sim->director, MAX(0, at - sim_now(process->sim)),
                                 at_deadline, work);
}

static void work_drop(LhAgentWork *base)
{
    g_hash_table_remove_all(((SimRecovery *)base)->things);
}

static char **work_warm(LhAgentWork *base G_GNUC_UNUSED)
{
    return NULL;
}

SimRecovery *sim_recovery_new(SimProcess *process)
{
    static const LhAgentWorkVtable vtable = {
        .attach = work_attach,
        .load = work_load,
        .update = work_update,
        .release = work_release,
        .deadline = work_deadline,
        .drop = work_drop,
        .warm = work_warm,
    };
    SimRecovery *work = g_new0(SimRecovery, 1);
    work->base.v = &vtable;
    work->process = process;
    work->things = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, thing_free);
    if (strcmp(process->pool, SIM_POOL_CRAWL) == 0)
        work->crawl = sim_crawl_new(process, &work->base);
    return work;
}

void sim_recovery_free(SimRecovery *work)
{
    if (work == NULL)
        return;
    g_hash_table_unref(work->things);
    sim_crawl_free(work->crawl);
    lh_timer_clear(work->process->sim->director, &work->deadline);
    g_free(work);
}

LhAgentWork *sim_recovery_base(SimRecovery *work)
{
    return work->crawl != NULL ? sim_crawl_base(work->crawl) : &work->base;
}

/* ---- people ---- */

/* Tasks come in bursts; some are withdrawn, changed, or hold nothing. */
void sim_people_recover(Sim *sim)
{
    guint n = (guint)sim_between(sim, 1, 4);
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = g_strdup_printf("published/recoverytasks/task-%u",
                                               sim_chance(sim, 85) || sim->tasks == 0
                                                   ? sim->tasks++
                                                   : (guint)sim_below(sim, sim->tasks));
        gboolean there = sim_kv(sim, key) != NULL;
        gint64 start = sim_between(sim, 0, 1000);
        if (there && sim_chance(sim, 50)) {
            sim_delete(sim, key);
            continue;
        }
        g_autofree char *value = g_strdup_printf(
            "{\"partition\":\"p-%u\",\"startOffset\":%" G_GINT64_FORMAT
            ",\"endOffset\":%" G_GINT64_FORMAT ",\"createdAt\":%" G_GINT64_FORMAT "}",
            (guint)sim_below(sim, 4), start,
            sim_chance(sim, 5) ? start - 1 : start + sim_between(sim, 0, 1000), sim_wall(sim));
        sim_put(sim, key, value, 0);
        sim->counters.tasks_published += !there;
    }
}

/*
 * The recovery pool with real processes: tasks that are done, fail, are parked and tried again, take too
 * long; agents that are killed, stopped and cut off while they work; managers that change meanwhile. What
 * must hold each time: a task leaves when it is done and not before, and no two nodes work on it at once.
 */
#include "harness.h"
#include "tests/fakes/relay.h"
#include "tests/invariants/recorder.h"

#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define TASK(name) "published/recoverytasks/" name

/* ---- programs ---- */

static char *path_of(World *world, const char *name)
{
    return g_build_filename(world->dir, name, NULL);
}

/* A shell script; run with the world's directory as its argument. */
static char *script(World *world, const char *name, const char *body)
{
    g_autofree char *path = path_of(world, name);
    g_autofree char *text = g_strdup_printf("#!/bin/sh\ndir=$1\n%s\n", body);

    assert_true(g_file_set_contents(path, text, -1, NULL));
    assert_int_equal(g_chmod(path, 0755), 0);
    return g_strdup_printf("%s %s", path, world->dir);
}

/* What it says once for each run: the item and its range. */
#define SAY \
    "echo \"$LEASEHOLD_ITEM $LEASEHOLD_START_OFFSET-$LEASEHOLD_END_OFFSET\" >> \"$dir/runs\""

/* Ticks for ever, also from where only a watchdog finds it; but done at once when there is a file "finish". */
static char *ticking(World *world)
{
    g_autofree char *tick = script(world, "tick",
                                   "while :; do cut -d' ' -f1 /proc/uptime >> \"$2\"; "
                                   "sleep 0.01; done");
    g_autofree char *body = g_strdup_printf(
        SAY "\nif [ -e \"$dir/finish\" ]; then exit 0; fi\n"
            "(setsid %s \"$dir/daemon-$LEASEHOLD_NODE\" &)\nexec %s \"$dir/ticks-$LEASEHOLD_NODE\"",
        tick, tick);

    return script(world, "ticking", body);
}

static Proc *recovery_agent(World *world, const char *name, const char *exec)
{
    const char *const extra[] = {"--exec", exec, NULL};

    return agent_start(world, &(AgentOptions){.name = name, .pool = "recovery", .extra = extra});
}

static void touch(World *world, const char *name)
{
    g_autofree char *path = path_of(world, name);

    assert_true(g_file_set_contents(path, "", 0, NULL));
}

static char *content(World *world, const char *name)
{
    g_autofree char *path = path_of(world, name);
    char *text = NULL;

    return g_file_get_contents(path, &text, NULL, NULL) ? text : g_strdup("");
}

static gboolean has_content(World *world, gpointer name)
{
    g_autofree char *text = content(world, name);

    return *text != '\0';
}

/* ---- tasks ---- */

static void publish(World *world, const char *name, gint64 created_at)
{
    g_autofree char *key = g_strconcat(TASK(""), name, NULL);

    world_putf(world, key,
               "{\"partition\":\"p1\",\"startOffset\":10,\"endOffset\":19,"
               "\"createdAt\":%" G_GINT64_FORMAT "}",
               created_at);
}

static gboolean no_task(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_RECOVERYTASK) == 0;
}

/* Nothing of any task is left: no order, no answer, no retry. */
static gboolean all_retired(World *world, gpointer data)
{
    return no_task(world, NULL) && lh_mirror_count(world->mirror, LH_KIND_ASSIGNMENT) == 0 &&
           lh_mirror_count(world->mirror, LH_KIND_ITEM) == 0 &&
           lh_mirror_count(world->mirror, LH_KIND_RETRY) == 0;
}

typedef struct {
    const char *task;
    char *node; /* its present one; g_free */
} Where;

static void find_where(const LhObject *object, gpointer data)
{
    Where *where = data;
    g_autofree char *item = lh_name_part(object->name, 2);

    if (g_strcmp0(item, where->task) == 0) {
        g_free(where->node);
        where->node = lh_name_part(object->name, 1);
    }
}

/* The node that has the task; NULL: none. g_free. */
static char *holder_of(World *world, const char *task)
{
    Where where = {.task = task};

    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, find_where, &where);
    return where.node;
}

typedef struct {
    const char *task, *not_node;
} Held;

static gboolean held_elsewhere(World *world, gpointer data)
{
    const Held *held = data;
    g_autofree char *node = holder_of(world, held->task);

    return node != NULL && g_strcmp0(node, held->not_node) != 0;
}

/* The node that has it, other than @not_node (NULL: any); waits. */
static char *wait_holder(World *world, const char *task, const char *not_node)
{
    Held held = {.task = task, .not_node = not_node};

    world_wait(world, held_elsewhere, &held, "task %s is with %s", task,
               not_node == NULL ? "a node" : "another node");
    return holder_of(world, task);
}

static gboolean says(World *world, gpointer data)
{
    const LhObject *object = NULL;
    const char *const *wanted = data; /* item's name, state */

    object = world_get(world, LH_KIND_ITEM, "recovery/%s", wanted[0]);
    return object != NULL && lh_object_known(object) &&
           strcmp(lh_item_state_name(((const LhItem *)object)->state), wanted[1]) == 0;
}

static void wait_says(World *world, const char *node, const char *task, const char *state)
{
    g_autofree char *name = g_strconcat(node, "/", task, NULL);
    const char *wanted[] = {name, state};

    world_wait(world, says, wanted, "%s says %s", name, state);
}

static gboolean has_node(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_NODE) > 0;
}

/* The only node of the pool; g_free. */
static char *only_node(World *world, const char *pool)
{
    g_autofree char *below = g_strdup_printf("actual/nodes/%s/", pool);

    world_wait(world, has_node, NULL, "a node is registered");
    g_autoptr(GPtrArray) nodes = world_range(world, below);
    assert_int_equal(nodes->len, 1);
    return g_strdup(((const Kv *)nodes->pdata[0])->key + strlen(below));
}

static gboolean is_gone(World *world, gpointer node)
{
    return world_get(world, LH_KIND_NODE, "recovery/%s", (const char *)node) == NULL;
}

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every run that there was, in the order of the items. */
static void check_runs(World *world, const char *expected)
{
    g_autofree char *runs = content(world, "runs");
    g_auto(GStrv) lines = g_strsplit(runs, "\n", -1);
    g_autoptr(GString) sorted = g_string_new(NULL);

    qsort(lines, g_strv_length(lines), sizeof *lines, by_text);
    for (guint i = 0; lines[i] != NULL; i++)
        if (*lines[i] != '\0')
            g_string_append_printf(sorted, "%s\n", lines[i]);
    assert_string_equal(sorted->str, expected);
}

/* ---- who works when ---- */

static gint64 boottime_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (gint64)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Of a file of ticks the first or the last, in ms since the boot; 0: there is none. */
static gint64 tick_in(World *world, const char *prefix, const char *node, gboolean last)
{
    g_autofree char *name = g_strconcat(prefix, node, NULL);
    g_autofree char *text = content(world, name);
    char *end = strrchr(text, '\n');
    const char *line = text;

    if (end == NULL)
        return 0;
    *end = '\0';
    if (last && strrchr(text, '\n') != NULL)
        line = strrchr(text, '\n') + 1;
    return (gint64)(g_ascii_strtod(line, NULL) * 1000);
}

static gint64 last_tick(World *world, const char *node)
{
    return MAX(tick_in(world, "ticks-", node, TRUE), tick_in(world, "daemon-", node, TRUE));
}

static gboolean both_tick(World *world, gpointer node)
{
    return tick_in(world, "ticks-", node, FALSE) != 0 &&
           tick_in(world, "daemon-", node, FALSE) != 0;
}

/* After this node's registration went, nothing of it ticked; and it had stopped before @next began. */
static void check_stopped_before(World *world, const char *node, gint64 gone_ms, const char *next)
{
    gint64 last, first;

    world_poll(world, both_tick, (gpointer)next, "the next node works");
    last = last_tick(world, node);
    first = MIN(tick_in(world, "ticks-", next, FALSE), tick_in(world, "daemon-", next, FALSE));
    if (last > gone_ms)
        world_fail(world, "%s worked on for %" G_GINT64_FORMAT " ms after its lease's end", node,
                   last - gone_ms);
    if (last > first)
        world_fail(world, "%s still worked when %s had begun", node, next);
}

static gint64 wait_gone(World *world, const char *node)
{
    world_wait(world, is_gone, (gpointer)node, "the registration of %s goes", node);
    return boottime_ms();
}

/* ---- scenarios ---- */

static void tasks_are_done_once_each(void **state)
{
    World *world = *state;
    g_autofree char *exec = script(world, "work", SAY "\ncat > \"$dir/told-$LEASEHOLD_ITEM\"");
    Proc *manager = manager_start(world, "manager", NULL);

    for (guint i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("t%u", i);
        publish(world, name, world->now_ms + i);
    }
    world_put(world, TASK("empty"), "{\"partition\":\"p1\",\"startOffset\":7,\"endOffset\":6}");
    recovery_agent(world, "r-1", exec);
    recovery_agent(world, "r-2", exec);
    world_wait(world, all_retired, NULL, "all tasks are done and retired");
    check_runs(world, "t0 10-19\nt1 10-19\nt2 10-19\nt3 10-19\nt4 10-19\n");
    g_autofree char *told = content(world, "told-t3");
    g_autoptr(cJSON) json = cJSON_Parse(told);
    assert_string_equal(json_text(json, "partition"), "p1");
    assert_string_equal(json_text(json, "action"), "load");
    world_wait_event(world, "RecoveryDone", "recoverytasks/t0");
    assert_true(metric(manager, "items{pool=\"recovery\",state=\"loading\"}") == 0);
    assert_true(metric(manager, "parked_items{pool=\"recovery\"}") == 0);
}

static gboolean parked(World *world, gpointer data)
{
    return world_condition(world, "recoverytasks/bad/recovery-assigner", "Parked") != NULL;
}

/* Hazard: a failed load is assigned again at once, for ever, without backoff or count. */
static void a_failing_task_waits_is_parked_and_tried_again(void **state)
{
    World *world = *state;
    g_autofree char *exec = script(world, "work",
                                   SAY "\ntest -e \"$dir/finish\" && exit 0\n"
                                       "echo 'the broker is away' >&2\nexit 4");
    Proc *manager = manager_start(world, "manager", NULL);
    const LhRetry *retry;

    recovery_agent(world, "r-1", exec);
    publish(world, "bad", world->now_ms);
    world_wait_event(world, "RecoveryFailed", "recoverytasks/bad");
    retry = world_get(world, LH_KIND_RETRY, "recovery/bad");
    assert_non_null(retry);
    assert_int_equal(retry->attempt, 1);
    assert_non_null(strstr(retry->message, "exited with status 4: the broker is away"));
    check_runs(world, "bad 10-19\n");
    /* The fifth attempt, without waiting for the others. */
    world_put(world, "decided/retries/recovery/bad",
              "{\"attempt\":4,\"notBefore\":1,\"message\":\"before\",\"node\":\"r-1\"}");
    world_wait(world, parked, NULL, "the task is parked");
    g_autoptr(Run) listed = cli(manager, "get", "recoverytasks", NULL);
    assert_non_null(strstr(listed->out, "Parked"));
    g_autoptr(Run) why = cli(manager, "explain", "recovery/bad", NULL);
    assert_int_equal(why->code, 0);
    assert_non_null(strstr(why->out, "the broker is away"));
    check_runs(world, "bad 10-19\nbad 10-19\n");
    assert_true(metric(manager, "parked_items{pool=\"recovery\"}") == 1);
    touch(world, "finish");
    g_autoptr(Run) again = cli(manager, "retry", "recovery/bad", NULL);
    assert_int_equal(again->code, 0);
    world_wait(world, all_retired, NULL, "the task is done");
    check_runs(world, "bad 10-19\nbad 10-19\nbad 10-19\n");
}

/* Hazard: LOADING has no timeout. */
static void what_takes_too_long_goes_elsewhere(void **state)
{
    World *world = *state;
    g_autofree char *exec = ticking(world);

    Proc *manager = manager_start(world, "manager", NULL);

    world_put(world, "desired/settings/recovery-assigner",
              "{\"spec\":{\"recoveryTimeout\":\"3s\"}}");
    recovery_agent(world, "r-1", exec);
    publish(world, "slow", world->now_ms);
    g_autofree char *first = wait_holder(world, "slow", NULL);
    world_poll(world, both_tick, first, "the first node works");
    g_autoptr(Run) listed = cli(manager, "get", "recoverytasks", NULL);
    assert_non_null(strstr(listed->out, "Loading"));
    assert_non_null(strstr(listed->out, first));
    recovery_agent(world, "r-2", exec);
    g_autofree char *next = wait_holder(world, "slow", first);
    world_poll(world, both_tick, next, "the next node works");
    assert_true(last_tick(world, first) <=
                MIN(tick_in(world, "ticks-", next, FALSE), tick_in(world, "daemon-", next, FALSE)));
    world_wait_event(world, "RecoveryTakenAway", "recoverytasks/slow");
    touch(world, "finish");
    world_wait(world, no_task, NULL, "the task is done in the end");
}

/* The answer outlives the agent that gave it, and the manager that was away. */
static void done_is_not_lost_with_the_agent(void **state)
{
    World *world = *state;
    g_autofree char *exec = script(world, "work", SAY);
    Proc *manager = manager_start(world, "manager", NULL);
    Proc *agent = recovery_agent(world, "r-1", exec);
    const LhItem *item;

    /* Its order is written by hand, and nobody is there to take the answer. */
    g_autofree char *node = only_node(world, "recovery");
    proc_kill(manager);
    publish(world, "t", world->now_ms);
    g_autofree char *order = g_strdup_printf("decided/assignments/recovery/%s/t", node);
    world_put(world, order,
              "{\"action\":\"load\",\"partition\":\"p1\",\"startOffset\":10,\"endOffset\":19}");
    wait_says(world, node, "t", "done");
    proc_kill(agent);
    wait_gone(world, node);
    item = world_get(world, LH_KIND_ITEM, "recovery/%s/t", node);
    assert_non_null(item);
    assert_int_equal(lh_object_lease(&item->o), 0);
    manager_start(world, "manager-2", NULL);
    recovery_agent(world, "r-2", exec);
    world_wait(world, all_retired, NULL, "the task is retired");
    check_runs(world, "t 10-19\n");
}

typedef enum { KILLED, STOPPED, CUT_OFF, N_FAULTS } Fault;

static void lose_a_node(World *world, Fault fault)
{
    g_autofree char *exec = ticking(world);
    g_autofree char *direct = g_strdup(world->access.endpoints);
    Relay *relay = NULL;
    g_autofree char *relayed = NULL;
    Proc *agent;

    manager_start(world, "manager", NULL);
    if (fault == CUT_OFF) {
        relay = relay_new((guint16)g_ascii_strtoull(strrchr(direct, ':') + 1, NULL, 10));
        relayed = g_strdup_printf("127.0.0.1:%u", relay_port(relay));
        world->access.endpoints = relayed;
    }
    agent = recovery_agent(world, "r-1", exec);
    world->access.endpoints = direct;
    publish(world, "t", world->now_ms);
    g_autofree char *first = wait_holder(world, "t", NULL);
    world_poll(world, both_tick, first, "the first node works");
    recovery_agent(world, "r-2", exec);
    if (fault == KILLED)
        proc_kill(agent);
    else if (fault == STOPPED)
        kill(proc_pid(agent), SIGSTOP);
    else
        relay_refuse(relay, "");
    gint64 gone_ms = wait_gone(world, first);
    g_autofree char *next = wait_holder(world, "t", first);
    check_stopped_before(world, first, gone_ms, next);
    touch(world, "finish");
    if (fault == STOPPED)
        kill(proc_pid(agent), SIGCONT);
    if (fault == CUT_OFF)
        relay_refuse(relay, NULL);
    world_delete(world, TASK("t"));
    world_wait(world, all_retired, NULL, "nothing is left of the task");
    if (fault != KILLED)
        assert_int_equal(proc_stop(agent), 0);
    relay_free(relay);
    world->access.endpoints = world->endpoints;
}

static void a_killed_agent(void **state)
{
    lose_a_node(*state, KILLED);
}

static void a_stopped_agent(void **state)
{
    lose_a_node(*state, STOPPED);
}

static void an_agent_that_is_cut_off(void **state)
{
    lose_a_node(*state, CUT_OFF);
}

static Recorder *record(World *world)
{
    g_autoptr(GError) error = NULL;
    Recorder *recorder = recorder_start(world->env, world->client, PREFIX, NULL, &error);

    if (recorder == NULL)
        world_fail(world, "%s", error->message);
    return recorder;
}

typedef struct {
    const Recorder *recorder;
    gint64 revision;
} Heard;

static gboolean has_heard(World *world, gpointer data)
{
    const Heard *heard = data;

    return recorder_error(heard->recorder) != NULL ||
           recorder_revision(heard->recorder) >= heard->revision;
}

/* The history so far keeps the invariants, and so many tasks were retired in it. Frees the recorder. */
static void check_history(World *world, Recorder *recorder, guint tasks)
{
    const RecordedTolerance tolerance = RECORDED_TOLERANCE;
    Heard heard = {recorder, world_put(world, TASK("end"), "{\"partition\":7}")};
    RecordedResult result;

    world_poll(world, has_heard, &heard, "the recorder has heard of all");
    assert_null(recorder_error(recorder));
    recorded_check(recorder_history(recorder), &tolerance, &result);
    if (result.violations > 0)
        world_fail(world, "%s", (char *)result.said->pdata[0]);
    assert_true(result.did[INV_EXCLUSIVE] >= 2 * tasks);
    assert_int_equal(result.counters.tasks_begun, tasks);
    assert_int_equal(result.counters.tasks_done, tasks);
    recorded_result_clear(&result);
    recorder_free(recorder);
}

/* Three managers, of which those that lead die in the middle. */
static void managers_change_in_the_middle(void **state)
{
    World *world = *state;
    g_autofree char *exec = script(world, "work", SAY "\nsleep 0.3");
    Proc *managers[3];
    Recorder *recorder = record(world);
    GString *expected = g_string_new(NULL);

    for (guint i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("manager-%u", i);
        managers[i] = manager_start(world, name, NULL);
    }
    recovery_agent(world, "r-1", exec);
    recovery_agent(world, "r-2", exec);
    for (guint i = 0; i < 30; i++) {
        g_autofree char *name = g_strdup_printf("t%02u", i);
        publish(world, name, world->now_ms + i);
        g_string_append_printf(expected, "%s 10-19\n", name);
    }
    world_poll(world, has_content, (gpointer) "runs", "the first task runs");
    proc_kill(managers[0]); /* the first that was there leads */
    world_wait(world, no_task, NULL, "all tasks are done");
    world_wait(world, all_retired, NULL, "all tasks are retired");
    g_autofree char *text = g_string_free(expected, FALSE);
    check_runs(world, text);
    check_history(world, recorder, 30);
}

/* Each program with the rights of its role and no more. */
static void with_roles(void **state)
{
    const WorldOptions options = {.users = TRUE};
    World *world = world_new_with(&options);
    g_autofree char *exec = script(world, "work", SAY), *wrong = NULL;
    g_autoptr(Run) roles = etcd_roles(world, "roles", NULL);

    assert_int_equal(roles->code, 0);
    world_user(world, "m", "manager");
    world_user(world, "node", "node-recovery");
    world_user(world, "publisher", "publisher");
    world_as(world, "m");
    manager_start(world, "manager", NULL);
    world_as(world, "node");
    recovery_agent(world, "r-1", exec);
    g_autoptr(Run) put = etcdctl_as(world, "publisher", "put", PREFIX TASK("t"),
                                    "{\"partition\":\"p1\",\"startOffset\":10,\"endOffset\":19}",
                                    NULL);
    assert_int_equal(put->code, 0);
    world_poll(world, has_content, (gpointer) "runs", "the task runs");
    world_wait(world, all_retired, NULL, "the task is retired");
    wrong = world_free(world);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

static void an_indexer_is_held(void **state)
{
    World *world = *state;
    g_autofree char *exec = script(
        world, "work",
        "echo up > \"$dir/up\"\ntrap 'echo down > \"$dir/down\"; exit 0' TERM\n"
        "while :; do sleep 0.01; done");
    const char *const extra[] = {"--exec", exec, NULL};
    Proc *agent = agent_start(world,
                              &(AgentOptions){.name = "i-1", .pool = "indexer", .extra = extra});
    g_autofree char *node = only_node(world, "indexer");
    g_autofree char *order = g_strdup_printf("decided/assignments/indexer/%s/p1", node);

    world_put(world, order, "{\"action\":\"load\",\"partition\":\"p1\"}");
    world_poll(world, has_content, (gpointer) "up", "the program runs");
    world_put(world, order, "{\"action\":\"evict\",\"partition\":\"p1\"}");
    world_poll(world, has_content, (gpointer) "down", "the program was told to end");
    world_delete(world, order);
    assert_int_equal(proc_stop(agent), 0);
}

int main(void)
{
#define SCENARIO(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        SCENARIO(tasks_are_done_once_each),
        SCENARIO(a_failing_task_waits_is_parked_and_tried_again),
        SCENARIO(what_takes_too_long_goes_elsewhere),
        SCENARIO(done_is_not_lost_with_the_agent),
        SCENARIO(a_killed_agent),
        SCENARIO(a_stopped_agent),
        SCENARIO(an_agent_that_is_cut_off),
        SCENARIO(managers_change_in_the_middle),
        SCENARIO(an_indexer_is_held),
        cmocka_unit_test(with_roles),
    };

    return cmocka_run_group_tests_name("integration-recovery", tests, NULL, NULL);
}

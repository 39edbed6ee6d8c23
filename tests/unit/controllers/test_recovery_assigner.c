/*
 * recovery-assigner: oldest first and one each, retired when done, retried elsewhere, parked, taken away
 * when it takes too long, kept while its node may still be working; and random histories, in which no task
 * is ever in two hands.
 */
#include "tests/unit/controllers/pool_world.h"

#define RA       "recovery-assigner"
#define TASK(n)  "published/recoverytasks/" n
#define ORDER(n) "decided/assignments/recovery/" n
#define RETRY(n) "decided/retries/recovery/" n

static void put_task(World *world, const char *name, gint64 created_at)
{
    g_autofree char *key = g_strconcat(TASK(""), name, NULL);

    putf(world, key,
         "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":9,\"createdAt\":%" PRId64 "}",
         created_at);
}

static void join(World *world, const char *id)
{
    join_pool(world, "recovery", id, "");
}

static void answer_with(World *world, const char *name, const char *state, const char *message)
{
    g_autofree char *full = g_strconcat("recovery/", name, NULL);

    answer_in_pool(world, full, state, message);
}

static const LhRetry *retry_of(const World *world, const char *task)
{
    return lookf(world, RETRY("") "%s", task);
}

static void assert_action(const World *world, const char *name, int action)
{
    const LhAssignment *order = lookf(world, ORDER("") "%s", name);

    assert_non_null(order);
    assert_int_equal(order->action, action);
}

/* One node, one task on it. */
static World *assigned_at_t0(void)
{
    World *world = world_new();

    join(world, "a-00000001");
    put_task(world, "t", T0 - HOUR);
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
    return world;
}

static void oldest_first_one_each(void **state)
{
    g_autoptr(World) world = world_new();
    const LhAssignment *order;

    (void)state;
    put_task(world, "young", T0 - 1);
    put_task(world, "old", T0 - 3);
    put_task(world, "middle", T0 - 2);
    join(world, "a-00000001");
    join(world, "b-00000001");
    run(world, RA);
    assert_int_equal(count_below(world, ORDER("")), 2);
    order = lookf(world, ORDER("a-00000001/old"));
    assert_non_null(order);
    assert_string_equal(order->partition, "p");
    assert_int_equal(order->start_offset, 0);
    assert_int_equal(order->end_offset, 9);
    assert_string_equal(order->controller, RA);
    assert_non_null(lookf(world, ORDER("b-00000001/middle")));
    g_autoptr(LhPlan) plan = plan_of(world, RA);
    assert_string_equal(note_rule(plan, "recoverytasks/young"), "wait-node");
}

static void done_is_retired_in_one_transaction(void **state)
{
    g_autoptr(World) world = assigned_at_t0();
    gint64 before;

    (void)state;
    put(world, RETRY("t"), "{\"attempt\":1}");
    answer_with(world, "a-00000001/t", "done", "");
    before = world->revision;
    assert_int_equal(step(world, RA), 1);
    assert_int_equal(world->revision, before + 1);
    assert_null(look(world, TASK("t")));
    assert_null(look(world, RETRY("t")));
    assert_int_equal(count_below(world, ORDER("")), 0);
    assert_int_equal(count_below(world, "actual/items/recovery/"), 0);
    assert_nothing_to_do(world, RA);
}

/* kill -9 right after the answer. */
static void done_is_not_lost_with_its_node(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    answer_with(world, "a-00000001/t", "done", "");
    leave_pool(world, "recovery", "a-00000001");
    run(world, RA);
    assert_null(look(world, TASK("t")));
    assert_int_equal(count_below(world, ORDER("")), 0);
    assert_int_equal(count_below(world, "actual/items/recovery/"), 0);
}

static void done_of_an_older_order_does_not_count(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    answer_with(world, "a-00000001/t", "done", "");
    world->lease = 0; /* as if somebody had written the order again */
    put(world, ORDER("a-00000001/t"),
        "{\"action\":\"load\",\"since\":1700000000000,\"partition\":\"p\",\"startOffset\":0,"
        "\"endOffset\":9}");
    assert_nothing_to_do(world, RA);
    assert_non_null(look(world, TASK("t")));
}

static void done_of_what_was_changed_retires_nothing(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    answer_with(world, "a-00000001/t", "done", "");
    put(world, TASK("t"), "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":20}");
    run(world, RA);
    assert_non_null(look(world, TASK("t")));
    assert_int_equal(order_of(world, "recovery/a-00000001/t")->end_offset, 20);
}

static void what_does_not_parse_is_left_alone(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    join(world, "b-00000001");
    put(world, TASK("bad"), "garbage");
    put(world, TASK("swapped"), "{\"partition\":\"p\",\"startOffset\":9,\"endOffset\":0}");
    answer_with(world, "a-00000001/t", "done", "");
    put(world, TASK("t"), "garbage");
    world->now_ms += DAY;
    assert_nothing_to_do(world, RA);
    put_task(world, "t", T0);
    run(world, RA);
    assert_null(look(world, TASK("t")));
    assert_non_null(look(world, TASK("bad")));
    assert_non_null(look(world, TASK("swapped")));
    put(world, RETRY("u"), "garbage");
    put_task(world, "u", T0);
    assert_nothing_to_do(world, RA);
}

static void an_empty_range_is_done_at_once(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, TASK("t"), "{\"partition\":\"p\",\"startOffset\":5,\"endOffset\":4}");
    put_task(world, "u", T0);
    run(world, RA);
    assert_null(look(world, TASK("t")));
    assert_non_null(look(world, TASK("u")));
}

static void one_message_is_not_empty(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join(world, "a-00000001");
    put(world, TASK("t"), "{\"partition\":\"p\",\"startOffset\":5,\"endOffset\":5}");
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
}

static void fail_once(World *world, const char *name)
{
    answer_with(world, name, "failed", "exit status 3");
    run(world, RA);
}

static void failed_goes_elsewhere_after_ten_seconds(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    join(world, "b-00000001");
    fail_once(world, "a-00000001/t");
    assert_int_equal(count_below(world, ORDER("")), 0);
    assert_int_equal(retry_of(world, "t")->attempt, 1);
    assert_string_equal(retry_of(world, "t")->message, "exit status 3");
    g_autoptr(LhPlan) waits = plan_of(world, RA);
    assert_int_equal(waits->wake_ms, T0 + 10 * SECOND);
    world->now_ms = T0 + 10 * SECOND - 1;
    assert_nothing_to_do(world, RA);
    world->now_ms++;
    run(world, RA);
    assert_action(world, "b-00000001/t", LH_ACTION_LOAD);
}

static void who_gives_no_reason_is_said_to_give_none(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    answer_with(world, "a-00000001/t", "failed", "");
    run(world, RA);
    assert_string_equal(retry_of(world, "t")->message, "the node gave no reason");
}

static void alone_it_gets_it_again(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    fail_once(world, "a-00000001/t");
    world->now_ms += 10 * SECOND;
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
}

static void parked_after_five_attempts(void **state)
{
    static const gint64 waits[] = {10, 20, 40, 80};
    g_autoptr(World) world = assigned_at_t0();
    const LhCondition *parked;

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(waits); i++) {
        fail_once(world, "a-00000001/t");
        assert_false(retry_of(world, "t")->parked);
        assert_int_equal(retry_of(world, "t")->not_before, world->now_ms + waits[i] * SECOND);
        world->now_ms += waits[i] * SECOND;
        run(world, RA);
        assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
    }
    fail_once(world, "a-00000001/t");
    assert_true(retry_of(world, "t")->parked);
    parked = condition_of(world, "recoverytasks/t/recovery-assigner", "Parked");
    assert_non_null(parked);
    assert_string_equal(parked->message, "5 attempts failed, the last on a: exit status 3");
    world->now_ms += DAY;
    fail_over(world);
    assert_nothing_to_do(world, RA);
    del(world, RETRY("t")); /* leasehold retry */
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
    assert_null(lookf(world, "decided/status/recoverytasks/t/recovery-assigner"));
}

/* The retry that a plan read is compared: one that holds the task back, or does not parse, may come first. */
static void a_retry_that_comes_late_wins(void **state)
{
    static const char *const values[] = {
        "garbage",
        "{\"attempt\":5,\"parked\":true}",
        "{\"attempt\":1,\"notBefore\":\"2100-01-01T00:00:00.000Z\"}",
    };
    static const char *const before[] = {NULL, "{\"attempt\":1}"};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(values) * G_N_ELEMENTS(before); i++) {
        g_autoptr(World) world = world_new();
        g_autoptr(LhPlan) plan = NULL;
        join(world, "a-00000001");
        put_task(world, "t", T0);
        if (before[i % 2] != NULL)
            put(world, RETRY("t"), before[i % 2]);
        plan = plan_of(world, RA);
        assert_int_equal(lh_plan_groups(plan), 1);
        put(world, RETRY("t"), values[i / 2]);
        assert_false(apply_group(world, plan, 0));
        run(world, RA);
        assert_int_equal(count_below(world, ORDER("")), 0);
    }
}

static void a_changed_task_is_unparked(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join(world, "a-00000001");
    put_task(world, "t", T0);
    put(world, RETRY("t"), "{\"attempt\":5,\"parked\":true}");
    run(world, RA);
    assert_int_equal(count_below(world, ORDER("")), 0);
    put_task(world, "t", T0 + 1);
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
    assert_null(lookf(world, "decided/status/recoverytasks/t/recovery-assigner"));
}

static void too_slow_is_taken_away_and_counts(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    join(world, "b-00000001");
    answer_with(world, "a-00000001/t", "loading", "");
    g_autoptr(LhPlan) waits = plan_of(world, RA);
    assert_int_equal(waits->wake_ms, T0 + HOUR);
    world->now_ms = T0 + HOUR - 1;
    assert_nothing_to_do(world, RA);
    world->now_ms++;
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_EVICT);
    assert_null(lookf(world, ORDER("b-00000001/t"))); /* not before it is acknowledged */
    world->now_ms += HOUR;
    answer_with(world, "a-00000001/t", "evicting", "");
    assert_nothing_to_do(world, RA);
    answer_with(world, "a-00000001/t", "evicted", "");
    run(world, RA);
    assert_int_equal(retry_of(world, "t")->attempt, 1);
    world->now_ms += 10 * SECOND;
    run(world, RA);
    assert_action(world, "b-00000001/t", LH_ACTION_LOAD);
}

/* The answer was on its way when the time ran out. */
static void done_wins_against_the_timeout(void **state)
{
    g_autoptr(World) world = assigned_at_t0();
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    answer_with(world, "a-00000001/t", "loading", "");
    world->now_ms = T0 + HOUR;
    plan = plan_of(world, RA);
    assert_int_equal(lh_plan_groups(plan), 1);
    answer_with(world, "a-00000001/t", "done", "");
    assert_false(apply_group(world, plan, 0));
    run(world, RA);
    assert_null(look(world, TASK("t")));
}

static void a_node_that_finishes_instead_of_stopping_is_done(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    world->now_ms = T0 + HOUR;
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_EVICT);
    answer_with(world, "a-00000001/t", "done", "");
    run(world, RA);
    assert_null(look(world, TASK("t")));
}

static void a_lost_nodes_task_waits_until_it_has_failed(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    run(world, "failure-detector");
    join(world, "b-00000001");
    run(world, "failure-detector");
    leave_pool(world, "recovery", "a-00000001");
    run(world, RA);
    run(world, "failure-detector");
    world->now_ms = T0 + 4999;
    run(world, "failure-detector");
    assert_nothing_to_do(world, RA);
    world->now_ms = T0 + HOUR; /* too slow as well: but nobody would hear it */
    assert_nothing_to_do(world, RA);
    run(world, "failure-detector");
    run(world, RA);
    assert_null(lookf(world, ORDER("a-00000001/t")));
    assert_action(world, "b-00000001/t", LH_ACTION_LOAD);
    assert_null(retry_of(world, "t")); /* not the task's fault */
}

/* What was read of the lost node is compared: its answer may still be on its way. */
static void an_answer_that_comes_late_wins(void **state)
{
    g_autoptr(World) world = assigned_at_t0();
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    leave_pool(world, "recovery", "a-00000001");
    say_health(world, "recovery", "a-00000001", "failed");
    plan = plan_of(world, RA);
    answer_with(world, "a-00000001/t", "done", "");
    assert_false(apply_group(world, plan, 0));
    run(world, RA);
    assert_null(look(world, TASK("t")));
}

static void a_deleted_task_is_evicted(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    put(world, RETRY("t"), "{\"attempt\":2}");
    del(world, TASK("t"));
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_EVICT);
    answer_with(world, "a-00000001/t", "evicted", "");
    run(world, RA);
    assert_int_equal(count_below(world, ORDER("")), 0);
    assert_null(look(world, RETRY("t")));
}

/* A node that is gone hears nothing; and one order is taken away once, however many the reasons. */
static void a_deleted_task_is_evicted_once(void **state)
{
    g_autoptr(World) world = assigned_at_t0();
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    del(world, TASK("t"));
    world->now_ms = T0 + HOUR;
    plan = plan_of(world, RA);
    assert_int_equal(lh_plan_groups(plan), 1);
    leave_pool(world, "recovery", "a-00000001");
    assert_nothing_to_do(world, RA);
}

static void a_changed_task_begins_anew(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    put(world, TASK("t"), "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":99}");
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_EVICT);
    answer_with(world, "a-00000001/t", "evicted", "");
    run(world, RA);
    assert_int_equal(order_of(world, "recovery/a-00000001/t")->end_offset, 99);
    assert_null(retry_of(world, "t"));
}

static void of_two_orders_the_first_stays(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    join(world, "b-00000001");
    put(world, ORDER("b-00000001/t"),
        "{\"action\":\"load\",\"since\":1700000000000,\"partition\":\"p\",\"startOffset\":0,"
        "\"endOffset\":9}");
    run(world, RA);
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
    assert_action(world, "b-00000001/t", LH_ACTION_EVICT);
}

static void an_item_without_lease_and_assignment_goes(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    answer_with(world, "a-00000001/t", "done", "");
    del(world, ORDER("a-00000001/t"));
    run(world, RA);
    assert_null(lookf(world, "actual/items/recovery/a-00000001/t"));
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD); /* nobody knows that it was done */
}

#define DRAINED "nodepolicies/recovery/a/recovery-assigner"

static void a_drained_node_keeps_what_it_has(void **state)
{
    g_autoptr(World) world = assigned_at_t0();

    (void)state;
    put(world, "desired/nodepolicies/recovery/a", "{\"spec\":{\"drain\":true}}");
    step(world, "admission");
    put_task(world, "u", T0);
    run(world, RA);
    assert_int_equal(count_below(world, ORDER("")), 1);
    assert_action(world, "a-00000001/t", LH_ACTION_LOAD);
    assert_string_equal(condition_of(world, DRAINED, "Drained")->reason, "Running");
    assert_string_equal(condition_of(world, DRAINED, "Drained")->message,
                        "1 left: what runs there is let run to its end");
    answer_with(world, "a-00000001/t", "done", "");
    run(world, RA);
    assert_int_equal(count_below(world, ORDER("")), 0);
    assert_int_equal(condition_of(world, DRAINED, "Drained")->status, LH_CONDITION_TRUE);
    del(world, "desired/nodepolicies/recovery/a");
    step(world, "admission");
    run(world, RA);
    assert_null(lookf(world, "decided/status/" DRAINED));
}

static void no_more_groups_than_allowed(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    for (int i = 0; i < 20; i++) {
        g_autofree char *id = g_strdup_printf("n%d-00000001", i), *task = g_strdup_printf("t%d", i);
        join(world, id);
        put_task(world, task, T0);
    }
    world->max_groups = 3;
    g_autoptr(LhPlan) plan = plan_of(world, RA);
    assert_int_equal(lh_plan_groups(plan), 3);
    assert_true(plan->more);
    run(world, RA);
    assert_int_equal(count_below(world, ORDER("")), 20);
}

/* ---- random histories ---- */

typedef struct {
    World *world;
    GRand *rand;
    guint seed, step, next_node, retired, moved;
} History;

static gint32 pick(History *h, gint32 n)
{
    return g_rand_int_range(h->rand, 0, n);
}

static char *any_key(History *h, const char *prefix)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, prefix);

    return keys->len == 0 ? NULL : g_strdup(keys->pdata[pick(h, (gint32)keys->len)]);
}

static void do_task(History *h)
{
    g_autofree char *key = g_strdup_printf(TASK("t%d"), pick(h, 12));

    switch (pick(h, 12)) {
    case 0:
        del(h->world, key);
        break;
    case 1:
        put(h->world, key, "garbage");
        break;
    case 2:
        put(h->world, key, "{\"partition\":\"p\",\"startOffset\":3,\"endOffset\":2}");
        break;
    default:
        if (look(h->world, key) == NULL || pick(h, 4) == 0)
            putf(h->world, key,
                 "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":%d,\"createdAt\":%d}",
                 pick(h, 3), pick(h, 5));
    }
}

static void do_nodes(History *h)
{
    static const char *const states[] = {"healthy", "probation", "failure"};
    g_autofree char *key = any_key(h, "actual/nodes/recovery/");
    const char *id = key == NULL ? NULL : key + strlen("actual/nodes/recovery/");
    g_autofree char *fresh = g_strdup_printf("n%d-%08x", pick(h, 4), h->next_node);

    if (key == NULL || (count_below(h->world, "actual/nodes/recovery/") < 5 && pick(h, 2) == 0)) {
        h->next_node++;
        join(h->world, fresh);
    } else if (pick(h, 2) == 0) {
        leave_pool(h->world, "recovery", id);
    } else {
        say_health(h->world, "recovery", id, states[pick(h, G_N_ELEMENTS(states))]);
    }
}

static void do_answer(History *h)
{
    static const char *const states[] = {"done", "done", "failed", "evicted", "loading", "live"};
    g_autofree char *key = any_key(h, ORDER(""));
    const char *name = key == NULL ? NULL : key + strlen(ORDER(""));
    g_autofree char *node = name == NULL ? NULL : g_strndup(name, strcspn(name, "/"));

    if (node != NULL && lookf(h->world, "actual/nodes/recovery/%s", node) != NULL)
        answer_with(h->world, name, states[pick(h, G_N_ELEMENTS(states))], "m");
}

static void do_spoil(History *h)
{
    static const char *const areas[] = {"decided/retries/", "decided/status/", "decided/health/",
                                        "actual/items/recovery/", "actual/nodes/recovery/"};
    g_autofree char *key = any_key(h, areas[pick(h, G_N_ELEMENTS(areas))]);

    if (key == NULL)
        return;
    if (pick(h, 2) == 0)
        put(h->world, key, "garbage");
    else if (!g_str_has_prefix(key, "decided/health/"))
        del(h->world, key);
}

/* Before the group is committed: whether somebody may still work on the task. */
static gboolean in_hand(const History *h, const char *task)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, ORDER(""));
    g_autofree char *tail = g_strconcat("/", task, NULL);

    for (guint i = 0; i < keys->len; i++)
        if (g_str_has_suffix(keys->pdata[i], tail))
            return TRUE;
    return FALSE;
}

/* An order may go only after an answer to it, or when its node has failed. */
static void check_op(History *h, const LhOp *op)
{
    const LhAssignment *order;
    const LhItem *item;
    const LhHealth *health;
    g_autofree char *node = NULL, *task = NULL;

    if (op->kind != LH_KIND_ASSIGNMENT)
        return;
    node = lh_name_part(op->name, 1);
    task = lh_name_part(op->name, 2);
    if (op->type == LH_OP_PUT) {
        h->moved += op->expect_rev == 0;
        if (op->expect_rev == 0 && in_hand(h, task))
            fail_msg("seed %u step %u: %s is in two hands", h->seed, h->step, task);
        return;
    }
    order = look(h->world, op->key);
    item = lookf(h->world, "actual/items/%s", op->name);
    health = lookf(h->world, "decided/health/recovery/%s", node);
    if (item != NULL && lh_object_known(&item->o) && item->assignment == order->o.mod_rev &&
        item->state >= LH_ITEM_EVICTED)
        return;
    if (health == NULL || !lh_object_known(&health->o) || health->state != LH_HEALTH_FAILED)
        fail_msg("seed %u step %u: %s ends without an answer", h->seed, h->step, op->name);
}

static void do_controller(History *h)
{
    static const char *const names[] = {RA, RA, RA, "failure-detector", "admission"};
    g_autoptr(LhPlan) plan = plan_of(h->world, names[pick(h, G_N_ELEMENTS(names))]);

    for (guint i = 0; i < lh_plan_groups(plan); i++) {
        const LhGroup *group = lh_plan_group(plan, i);
        if (pick(h, 5) == 0 || !compares_hold(h->world, plan, group))
            continue;
        for (guint o = 0; o < group->n_ops; o++) {
            const LhOp *op = lh_plan_op(plan, group, o);
            check_op(h, op);
            h->retired += op->kind == LH_KIND_RECOVERYTASK;
        }
        assert_true(apply_group(h->world, plan, i));
        if (pick(h, 4) == 0)
            do_answer(h);
    }
}

static void check_rebuilt(History *h)
{
    gpointer other = rebuilt_of(h->world, &lh_pools_index, h->rand);
    g_autoptr(LhPlan) a = plan_of(h->world, RA), b = plan_on(h->world, other, RA);
    g_autofree char *left = plan_text(a), *right = plan_text(b);

    if (strcmp(left, right) != 0)
        fail_msg("seed %u step %u: incremental\n%s\nrebuilt\n%s", h->seed, h->step, left, right);
    lh_pools_index.free(other);
}

/* All tasks that parse are done in the end. */
static void check_converges(History *h)
{
    g_autoptr(GPtrArray) spoilt = keys_below(h->world, "");

    for (guint i = 0; i < spoilt->len; i++) {
        g_autofree char *key = g_strdup(spoilt->pdata[i]);
        if (!lh_object_known(look(h->world, key)))
            del(h->world, key);
    }
    join(h->world, "z-00000001");
    for (int round = 0; round < 60; round++) {
        g_autoptr(GPtrArray) retries = NULL, orders = NULL;
        run_all(h->world);
        retries = keys_below(h->world, RETRY(""));
        for (guint i = 0; i < retries->len; i++)
            del(h->world, retries->pdata[i]);
        orders = keys_below(h->world, ORDER(""));
        for (guint i = 0; i < orders->len; i++) {
            const char *name = (const char *)orders->pdata[i] + strlen(ORDER(""));
            g_autofree char *node = g_strndup(name, strcspn(name, "/"));
            if (lookf(h->world, "actual/nodes/recovery/%s", node) != NULL)
                answer_with(h->world, name, "done", "");
        }
        h->world->now_ms += 2 * MINUTE;
    }
    if (count_below(h->world, TASK("")) != 0 || count_below(h->world, ORDER("")) != 0)
        fail_msg("seed %u: %u tasks, %u orders are left", h->seed, count_below(h->world, TASK("")),
                 count_below(h->world, ORDER("")));
    check_rebuilt(h);
    assert_nothing_to_do(h->world, RA);
}

static void random_histories(void **state)
{
    static void (*const acts[])(History *) = {do_task,   do_task,       do_nodes,      do_answer,
                                              do_answer, do_controller, do_controller, do_spoil};
    guint retired = 0, moved = 0;

    (void)state;
    for (guint seed = 1; seed <= 60; seed++) {
        History h = {
            .world = world_new(), .rand = g_rand_new_with_seed(seed), .seed = seed, .next_node = 1};
        for (h.step = 0; h.step < 300; h.step++) {
            acts[pick(&h, G_N_ELEMENTS(acts))](&h);
            if (pick(&h, 6) == 0)
                h.world->now_ms += pick(&h, 30) * SECOND;
            if (h.step % 8 == 0)
                check_rebuilt(&h);
        }
        check_converges(&h);
        retired += h.retired;
        moved += h.moved;
        world_free(h.world);
        g_rand_free(h.rand);
    }
    /* Too little work would prove nothing. */
    assert_true(retired > 300 && moved > 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_first_one_each),
        cmocka_unit_test(done_is_retired_in_one_transaction),
        cmocka_unit_test(done_is_not_lost_with_its_node),
        cmocka_unit_test(done_of_an_older_order_does_not_count),
        cmocka_unit_test(done_of_what_was_changed_retires_nothing),
        cmocka_unit_test(what_does_not_parse_is_left_alone),
        cmocka_unit_test(an_empty_range_is_done_at_once),
        cmocka_unit_test(one_message_is_not_empty),
        cmocka_unit_test(failed_goes_elsewhere_after_ten_seconds),
        cmocka_unit_test(who_gives_no_reason_is_said_to_give_none),
        cmocka_unit_test(alone_it_gets_it_again),
        cmocka_unit_test(parked_after_five_attempts),
        cmocka_unit_test(a_retry_that_comes_late_wins),
        cmocka_unit_test(a_changed_task_is_unparked),
        cmocka_unit_test(too_slow_is_taken_away_and_counts),
        cmocka_unit_test(done_wins_against_the_timeout),
        cmocka_unit_test(a_node_that_finishes_instead_of_stopping_is_done),
        cmocka_unit_test(a_lost_nodes_task_waits_until_it_has_failed),
        cmocka_unit_test(an_answer_that_comes_late_wins),
        cmocka_unit_test(a_deleted_task_is_evicted),
        cmocka_unit_test(a_deleted_task_is_evicted_once),
        cmocka_unit_test(a_changed_task_begins_anew),
        cmocka_unit_test(of_two_orders_the_first_stays),
        cmocka_unit_test(an_item_without_lease_and_assignment_goes),
        cmocka_unit_test(a_drained_node_keeps_what_it_has),
        cmocka_unit_test(no_more_groups_than_allowed),
        cmocka_unit_test(random_histories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Cache nodes in failure whose lease lives: loaded elsewhere first, evicted there only then; what undoes it;
 * and what is said of it.
 */
#include "controllers/explain.h"
#include "tests/unit/controllers/harness.h"

#define SAID "nodes/cache/a-00000001/cache-assigner"

static guint held(const World *world, const char *id)
{
    g_autofree char *prefix = g_strconcat("decided/assignments/cache/", id, "/", NULL);

    return count_below(world, prefix);
}

static const LhAssignment *order_of(const World *world, const char *id, const char *item)
{
    return lookf(world, "decided/assignments/cache/%s/%s", id, item);
}

static gboolean is_load(const LhAssignment *order)
{
    return order != NULL && order->action == LH_ACTION_LOAD;
}

/* What failure-detector would say. */
static void say_health(World *world, const char *id, const char *state)
{
    g_autofree char *key = g_strconcat("decided/health/cache/", id, NULL);

    putf(world, key, "{\"state\":\"%s\",\"since\":%" PRId64 ",\"reason\":\"test\"}", state,
         world->now_ms);
}

/* Its own word, and what failure-detector makes of it. Zone and the like: @more, begins with a comma. */
static void say_word(World *world, const char *id, const char *word, const char *more)
{
    g_autofree char *key = g_strconcat("actual/nodes/cache/", id, NULL);
    g_autofree char *name = lh_node_name_of(id);
    const LhNode *node = look(world, key);

    putf(world, key,
         "{\"name\":\"%s\",\"capacityBytes\":%" PRId64 ",\"state\":\"%s\",\"leaseTtl\":\"5s\"%s}",
         name, node->capacity_bytes, word, more);
    run(world, "failure-detector");
}

static void fails(World *world, const char *id)
{
    say_word(world, id, "error", "");
}

/* How many live copies that are not ordered away the replica has, and how many orders to load it. */
static guint copies(const World *world, const char *item, gboolean live)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/assignments/cache/");
    g_autofree char *tail = g_strconcat("/", item, NULL);
    guint n = 0;

    for (guint i = 0; i < keys->len; i++) {
        const LhAssignment *order = look(world, keys->pdata[i]);
        const LhItem *said = lookf(world, "actual/items/%s", order->o.name);
        if (!g_str_has_suffix(keys->pdata[i], tail) || !is_load(order))
            continue;
        n += !live ||
             (said != NULL && said->state == LH_ITEM_LIVE && said->assignment == order->o.mod_rev);
    }
    return n;
}

static void assert_evacuated(const World *world, int status, const char *reason, const char *part)
{
    const LhCondition *condition = condition_of(world, SAID, "Evacuated");

    assert_non_null(condition);
    assert_string_equal(condition->reason, reason);
    assert_int_equal(condition->status, status);
    if (strstr(condition->message, part) == NULL)
        fail_msg("\"%s\" does not say %s", condition->message, part);
}

/* Node a with @n live replicas, and then an empty b beside it. */
static World *with_a_and_b(guint n, gint64 bytes)
{
    World *world = world_new();

    put_service(world, "api", "%s", "");
    put_settings(world, "cache-assigner", "\"restoreReservePercent\":0");
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("s%03u", i);
        put_snapshot(world, name, "api", T0 - (gint64)i * SECOND, bytes);
    }
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    put_node(world, "b-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), n);
    return world;
}

static void loaded_elsewhere_first_and_evicted_when_that_is_live(void **state)
{
    g_autoptr(World) world = with_a_and_b(5, 10);

    (void)state;
    fails(world, "a-00000001");
    run_all(world);
    assert_int_equal(held(world, "a-00000001"), 5);
    assert_int_equal(held(world, "b-00000001"), 2); /* maxConcurrentLoads */
    assert_evacuated(world, LH_CONDITION_FALSE, "Moving", "5 left, 5 on their way");
    assert_string_equal(order_of(world, "b-00000001", "s000.default.0")->rule, "node-in-failure");
    answer(world, "b-00000001/s000.default.0", "loading");
    run_all(world);
    assert_true(is_load(order_of(world, "a-00000001", "s000.default.0")));
    for (int round = 0; round < 50; round++) {
        for (guint i = 0; i < 5; i++) {
            g_autofree char *item = g_strdup_printf("s%03u.default.0", i);
            assert_true(copies(world, item, TRUE) >= 1);
        }
        if (!nodes_answer(world))
            break;
        run_all(world);
    }
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 5);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 5);
    assert_evacuated(world, LH_CONDITION_TRUE, "Empty", "nothing is assigned to it");
    say_word(world, "a-00000001", "online", "");
    settle(world);
    assert_null(lookf(world, "decided/status/" SAID));
    assert_int_equal(held(world, "b-00000001"), 5); /* nothing moves back by itself */
}

static void its_own_word_is_taken_and_taken_back(void **state)
{
    g_autoptr(World) world = with_a_and_b(3, 10);

    (void)state;
    say_word(world, "a-00000001", "error", "");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 3);
    /* Well again, it takes work again. */
    say_word(world, "a-00000001", "online", "");
    put_snapshot(world, "t000", "api", T0, 10);
    world->now_ms += 2 * MINUTE;
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 1);
}

/* A node that hangs answers nothing: its orders wait for its answer, or for the end of its lease. */
static void a_node_that_answers_nothing_keeps_its_orders_until_it_is_gone(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10);

    (void)state;
    fails(world, "a-00000001");
    run_all(world);
    answer(world, "b-00000001/s000.default.0", "live");
    run_all(world);
    assert_int_equal(order_of(world, "a-00000001", "s000.default.0")->action, LH_ACTION_EVICT);
    assert_string_equal(order_of(world, "a-00000001", "s000.default.0")->rule, "node-in-failure");
    assert_true(is_load(order_of(world, "b-00000001", "s000.default.0")));
    world->now_ms += DAY / 2;
    run(world, "cache-assigner");
    assert_non_null(order_of(world, "a-00000001", "s000.default.0"));
    lose_node(world, "a-00000001");
    settle(world);
    assert_null(order_of(world, "a-00000001", "s000.default.0"));
    assert_int_equal(held(world, "b-00000001"), 1);
    assert_null(lookf(world, "decided/status/" SAID));
}

/* What is ordered away there, and is nowhere else any more, does not wait for a node that answers nothing. */
static void what_is_wanted_again_does_not_wait_for_its_answer(void **state)
{
    static const char *const cases[] = {"the copy elsewhere is lost", "it is wanted again",
                                        "it was taken back"};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(World) world = with_a_and_b(1, 10);
        put_node(world, "c-00000001", 1000, 0, "");
        if (i == 0) {
            fails(world, "a-00000001");
            run_all(world);
            answer(world, "b-00000001/s000.default.0", "live");
            run_all(world);
            lose_node(world, "b-00000001");
            run_all(world);
            world->now_ms += 2 * MINUTE; /* failureGrace */
        } else if (i == 2) {
            answer(world, "a-00000001/s000.default.0", "loading");
            world->now_ms += HOUR;
            run(world, "cluster-monitor");
            fails(world, "a-00000001");
        } else {
            put_service(world, "api", "%s", "\"cache\":{\"sets\":[\"blue\"]}");
            run(world, "cache-evictor");
            fails(world, "a-00000001");
            put_service(world, "api", "%s", "");
        }
        assert_false(is_load(order_of(world, "a-00000001", "s000.default.0")));
        run_all(world);
        if (copies(world, "s000.default.0", FALSE) != 1)
            fail_msg("%s, and it is loaded nowhere", cases[i]);
        /* Its answer ends that order, and no more. */
        settle(world);
        assert_null(order_of(world, "a-00000001", "s000.default.0"));
        assert_int_equal(copies(world, "s000.default.0", TRUE), 1);
    }
}

static void what_is_loading_there_is_not_given_up_either(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s000", "api", T0, 10);
    put_node(world, "a-00000001", 1000, 0, "");
    run_all(world);
    put_node(world, "b-00000001", 1000, 0, "");
    fails(world, "a-00000001");
    run_all(world);
    assert_true(is_load(order_of(world, "a-00000001", "s000.default.0")));
    assert_true(is_load(order_of(world, "b-00000001", "s000.default.0")));
    answer(world, "b-00000001/s000.default.0", "live");
    run_all(world);
    assert_false(is_load(order_of(world, "a-00000001", "s000.default.0")));
}

static void without_room_it_stays_and_says_so(void **state)
{
    g_autoptr(World) world = with_a_and_b(5, 200);

    (void)state;
    put_node(world, "b-00000001", 450, 0, "");
    fails(world, "a-00000001");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 3);
    assert_int_equal(held(world, "b-00000001"), 2);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 5);
    assert_evacuated(world, LH_CONDITION_FALSE, "NoRoom",
                     "3 left, 3 have no room elsewhere (no node has so many bytes free)");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/s004.default.0"), "wait-bytes");
    put_node(world, "c-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
}

static void with_no_other_node_it_serves_on(void **state)
{
    g_autoptr(World) world = with_a_and_b(2, 10);

    (void)state;
    fails(world, "a-00000001");
    fails(world, "b-00000001");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 2);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 2);
    assert_evacuated(world, LH_CONDITION_FALSE, "NoRoom", "its set has no node that takes work");
}

/* Whatever makes it not failing: nothing new begins. Of two copies the older one stays, if its node is well; and
 * nothing goes from a node of whose health nobody can tell. */
static void what_undoes_it(void **state)
{
    static const struct {
        const char *key, *value;
        guint on_a, on_b;
    } undos[] = {
        {"decided/health/cache/a-00000001", "{\"state\":\"probation\",\"since\":1}", 4, 0},
        {"decided/health/cache/a-00000001", "{\"state\":\"healthy\",\"since\":1}", 4, 0},
        {"decided/accepted/settings/failure-detector",
         "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"onFailure\":\"keep\"}}", 2, 2},
        {"decided/accepted/settings/failure-detector",
         "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"paused\":true}}", 2, 2},
        {"decided/accepted/settings/failure-detector", "spoilt", 2, 2},
        {"decided/health/cache/a-00000001", "spoilt", 4, 2},
        {"decided/health/cache/a-00000001",
         "{\"state\":\"failure\",\"since\":1,\"missingSince\":1}", 2, 2}, /* of a lost one */
    };

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(undos); i++) {
        g_autoptr(World) world = with_a_and_b(4, 10);
        say_health(world, "a-00000001", "failure");
        run(world, "cache-assigner");
        answer(world, "b-00000001/s000.default.0", "live"); /* and s001 is not yet */
        put(world, undos[i].key, undos[i].value);
        for (int round = 0; round < 10; round++) {
            run(world, "cache-assigner");
            run(world, "cache-evictor");
            for (guint s = 0; s < 4; s++) {
                g_autofree char *item = g_strdup_printf("s%03u.default.0", s);
                assert_true(copies(world, item, TRUE) >= 1);
            }
            nodes_answer(world);
        }
        if (held(world, "a-00000001") != undos[i].on_a ||
            held(world, "b-00000001") != undos[i].on_b)
            fail_msg("%s = %s: %u and %u", undos[i].key, undos[i].value, held(world, "a-00000001"),
                     held(world, "b-00000001"));
    }
}

/* What was ordered away already is not ordered back. */
static void well_again_late_the_new_copy_stays(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10);

    (void)state;
    fails(world, "a-00000001");
    run(world, "cache-assigner");
    nodes_answer(world);
    run(world, "cache-evictor");
    say_word(world, "a-00000001", "online", "");
    for (int round = 0; round < 10; round++) {
        run_all(world);
        assert_int_equal(copies(world, "s000.default.0", FALSE), 1);
        nodes_answer(world);
    }
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 1);
}

static void kept_nothing_moves_and_nothing_new_comes(void **state)
{
    g_autoptr(World) world = with_a_and_b(3, 10);

    (void)state;
    put_settings(world, "failure-detector", "\"onFailure\":\"keep\"");
    fails(world, "a-00000001");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 3);
    assert_int_equal(held(world, "b-00000001"), 0);
    assert_null(lookf(world, "decided/status/" SAID));
    for (guint i = 0; i < 4; i++) {
        g_autofree char *name = g_strdup_printf("t%03u", i);
        put_snapshot(world, name, "api", T0, 10);
    }
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 3);
    assert_int_equal(held(world, "b-00000001"), 4);
    put_settings(world, "failure-detector", "\"onFailure\":\"evict\""); /* folds what is there */
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 7);
}

/* An order is void when what it relied on has changed. */
static void what_it_relies_on_is_compared(void **state)
{
    static const struct {
        const char *controller, *key, *value;
    } changes[] = {
        {"cache-assigner", "decided/health/cache/a-00000001",
         "{\"state\":\"probation\",\"since\":1}"},
        {"cache-assigner", "decided/accepted/settings/failure-detector",
         "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"onFailure\":\"keep\"}}"},
        {"cache-assigner", "decided/assignments/cache/a-00000001/s000.default.0", NULL},
        {"cache-evictor", "decided/health/cache/a-00000001",
         "{\"state\":\"probation\",\"since\":1}"},
        {"cache-evictor", "decided/accepted/settings/failure-detector",
         "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"onFailure\":\"keep\"}}"},
        {"cache-evictor", "decided/health/cache/b-00000001", "{\"state\":\"failure\",\"since\":1}"},
        {"cache-evictor", "actual/items/cache/b-00000001/s000.default.0", NULL},
        {"cache-evictor", "actual/nodes/cache/b-00000001", NULL},
        {"cache-evictor", "decided/assignments/cache/b-00000001/s000.default.0", NULL},
    };

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autoptr(World) world = with_a_and_b(1, 10);
        g_autoptr(LhPlan) plan = NULL;
        say_health(world, "a-00000001", "failure");
        if (strcmp(changes[i].controller, "cache-evictor") == 0) {
            run(world, "cache-assigner");
            nodes_answer(world);
        }
        plan = plan_of(world, changes[i].controller);
        assert_true(lh_plan_groups(plan) >= 1);
        if (changes[i].value == NULL)
            del(world, changes[i].key);
        else
            put(world, changes[i].key, changes[i].value);
        if (apply_group(world, plan, 0))
            fail_msg("%s acted, though %s changed", changes[i].controller, changes[i].key);
    }
}

/* Live there by its item, but it is no node to rely on. */
static void a_copy_on_another_bad_node_is_not_what_stays(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10);

    (void)state;
    fails(world, "a-00000001");
    run(world, "cache-assigner");
    nodes_answer(world);
    fails(world, "b-00000001");
    assert_nothing_to_do(world, "cache-evictor");
    say_health(world, "b-00000001", "healthy"); /* and its own word is still error */
    assert_nothing_to_do(world, "cache-evictor");
    run(world, "failure-detector");
    put_node(world, "c-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(held(world, "a-00000001") + held(world, "b-00000001"), 0);
    assert_int_equal(held(world, "c-00000001"), 1);
}

static void a_load_that_fails_elsewhere_waits(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10);

    (void)state;
    fails(world, "a-00000001");
    run_all(world);
    answer(world, "b-00000001/s000.default.0", "failed");
    run(world, "cache-assigner");
    assert_non_null(look(world, "decided/retries/cache/s000.default.0"));
    assert_int_equal(copies(world, "s000.default.0", TRUE), 1);
    assert_evacuated(world, LH_CONDITION_FALSE, "LoadFailed", "1 left, 1 could not be loaded");
    world->now_ms += MINUTE;
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_null(look(world, "decided/retries/cache/s000.default.0"));
}

/* However it ends elsewhere: the next attempt is not made in the plan that takes the end of the last one. */
static void what_ended_elsewhere_is_taken_before_the_next_attempt(void **state)
{
    static const struct {
        const char *what;
        gboolean taken_back, drained, failing; /* b: its order, its host, itself */
        const char *answer;
    } rows[] = {
        {"taken back", TRUE, FALSE, FALSE, "evicted"},
        {"taken back, drained", TRUE, TRUE, FALSE, "evicted"},
        {"taken back, failing", TRUE, FALSE, TRUE, "evicted"},
        {"failed", FALSE, FALSE, FALSE, "failed"},
        {"failed, drained", FALSE, TRUE, FALSE, "failed"},
        {"failed, failing", FALSE, FALSE, TRUE, "failed"},
    };

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(World) world = with_a_and_b(1, 10);
        fails(world, "a-00000001");
        run(world, "cache-assigner");
        if (rows[i].taken_back) {
            answer(world, "b-00000001/s000.default.0", "loading");
            world->now_ms += HOUR;
            run(world, "cluster-monitor");
            assert_false(is_load(order_of(world, "b-00000001", "s000.default.0")));
        }
        put_node(world, "c-00000001", 1000, 0, "");
        run(world, "failure-detector");
        if (rows[i].taken_back && !rows[i].failing) {
            run(world, "cache-assigner"); /* its answer comes first */
            assert_int_equal(copies(world, "s000.default.0", FALSE), 1);
        }
        if (rows[i].drained)
            put(world, "desired/nodepolicies/cache/b", "{\"spec\":{\"drain\":true}}");
        run(world, "admission");
        if (rows[i].failing)
            fails(world, "b-00000001");
        answer(world, "b-00000001/s000.default.0", rows[i].answer);
        run(world, "cache-assigner");
        assert_non_null(look(world, "decided/retries/cache/s000.default.0"));
        if (copies(world, "s000.default.0", FALSE) != 1)
            fail_msg("%s: tried again at once", rows[i].what);
        world->now_ms += MINUTE;
        run(world, "cache-assigner");
        assert_non_null(order_of(world, "c-00000001", "s000.default.0"));
    }
}

static void restored_ones_move_within_the_reserve(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "\"cache\":{\"replicas\":0}");
    put_node(world, "a-00000001", 200, 0, "");
    for (int i = 0; i < 2; i++) {
        g_autofree char *name = g_strdup_printf("s%03d", i);
        g_autofree char *key = g_strdup_printf("decided/replicas/s%03d.default.r0", i);
        put_snapshot(world, name, "api", T0 - i * SECOND, 10);
        putf(world, key,
             "{\"snapshot\":\"s%03d\",\"service\":\"api\",\"set\":\"default\",\"restored\":true,"
             "\"expiresAt\":%" PRId64 "}",
             i, T0 + DAY);
    }
    settle(world);
    put_node(world, "b-00000001", 100, 0, "");
    fails(world, "a-00000001");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 1); /* 10 % of 100 bytes has room for one */
    assert_int_equal(held(world, "b-00000001"), 1);
    assert_evacuated(world, LH_CONDITION_FALSE, "NoRoom", "1 left");
}

static void twins_stay_apart_and_find_the_zone_that_is_left(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "\"cache\":{\"replicas\":2}");
    for (guint i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("s%03u", i);
        put_snapshot(world, name, "api", T0, 10);
    }
    put_node(world, "a-00000001", 1000, 0, ",\"zone\":\"z1\"");
    put_node(world, "b-00000001", 1000, 0, ",\"zone\":\"z2\"");
    settle(world);
    say_word(world, "a-00000001", "error", ",\"zone\":\"z1\"");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 3);
    assert_evacuated(world, LH_CONDITION_FALSE, "NoRoom", "only nodes that hold this snapshot");
    put_node(world, "c-00000001", 1000, 0, ",\"zone\":\"z2\"");
    put_node(world, "d-00000001", 1000, 0, ",\"zone\":\"z1\"");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "d-00000001"), 3);
}

static void a_paused_service_and_what_does_not_parse_are_left_alone(void **state)
{
    g_autoptr(World) world = with_a_and_b(2, 10);

    (void)state;
    put_service(world, "api", "%s", "\"paused\":true");
    fails(world, "a-00000001");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 2);
    assert_evacuated(world, LH_CONDITION_FALSE, "LeftAlone",
                     "2 left, 2 are left alone (its service is paused)");
    put_service(world, "api", "%s", "");
    put(world, "decided/assignments/cache/a-00000001/s000.default.0", "spoilt");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 1);
    assert_int_equal(held(world, "b-00000001"), 1);
    assert_evacuated(world, LH_CONDITION_FALSE, "LeftAlone",
                     "1 left, 1 are left alone (an assignment does not parse");
}

/* Its lease ends meanwhile: then it is a lost node, with its grace. */
static void a_node_that_goes_in_the_middle_is_a_lost_one(void **state)
{
    g_autoptr(World) world = with_a_and_b(3, 10);

    (void)state;
    fails(world, "a-00000001");
    run(world, "cache-assigner");
    assert_int_equal(held(world, "b-00000001"), 2);
    lose_node(world, "a-00000001");
    run_all(world);
    assert_int_equal(held(world, "a-00000001"), 3);
    assert_int_equal(held(world, "b-00000001"), 2);
    put_node(world, "a-00000002", 1000, 0, "");
    settle(world);
    assert_int_equal(held(world, "a-00000002"), 1); /* what is nowhere else goes back */
    world->now_ms += 3 * MINUTE;
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "a-00000002") + held(world, "b-00000001"), 3);
    for (guint i = 0; i < 3; i++) {
        g_autofree char *item = g_strdup_printf("s%03u.default.0", i);
        assert_int_equal(copies(world, item, FALSE), 1);
    }
    assert_null(lookf(world, "decided/status/" SAID));
}

/* The node that was to take it is lost and comes back: what the failing one has keeps nothing from going there. */
static void a_target_that_comes_back_goes_on(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10);

    (void)state;
    fails(world, "a-00000001");
    run(world, "cache-assigner");
    assert_true(is_load(order_of(world, "b-00000001", "s000.default.0")));
    lose_node(world, "b-00000001");
    put_node(world, "b-00000002", 1000, 0, "");
    run(world, "cache-assigner");
    assert_true(is_load(order_of(world, "b-00000002", "s000.default.0")));
    assert_true(is_load(order_of(world, "a-00000001", "s000.default.0")));
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000002"), 1);
}

/* It was the detector's brake that weighed whether so many are ill; here nothing is lost. */
static void the_brake_does_not_count_what_moves(void **state)
{
    g_autoptr(World) world = with_a_and_b(40, 10);

    (void)state;
    fails(world, "a-00000001");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_null(look(world, "decided/brakes/cache-evictor"));
}

/* Nor do they stand in the ledger for what is reserved and not ordered yet. */
static void what_moves_is_not_what_was_reserved(void **state)
{
    g_autoptr(World) world = with_a_and_b(40, 10);

    (void)state;
    put_settings(world, "cache-assigner",
                 "\"restoreReservePercent\":0,\"maxConcurrentLoads\":1000");
    fails(world, "a-00000001");
    run(world, "cache-assigner");
    nodes_answer(world);
    for (guint i = 0; i < 5; i++) { /* ten copies: as many as may go */
        g_autofree char *key = g_strdup_printf("published/snapshots/s%03u", i);
        del(world, key);
    }
    run(world, "cache-evictor");
    assert_null(look(world, "decided/brakes/cache-evictor"));
    for (guint i = 0; i < 40; i++) {
        g_autofree char *item = g_strdup_printf("s%03u.default.0", i);
        assert_int_equal(copies(world, item, TRUE), i < 5 ? 0 : 1);
    }
}

static void a_restored_etcd_stops_it(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10);

    (void)state;
    fails(world, "a-00000001");
    run(world, "cache-assigner");
    nodes_answer(world);
    world->regressed = TRUE;
    world->regressed_rev = world->revision + 1;
    settle(world);
    assert_true(is_load(order_of(world, "a-00000001", "s000.default.0")));
}

static void assert_explained(const World *world, const char *part)
{
    const LhPlanContext context = {
        .now_ms = world->now_ms, .revision = world->revision, .max_groups = G_MAXUINT};
    const char *seen;
    g_autoptr(GPtrArray) lines = lh_explain(world->index, &context, "cache", "s000.default.0",
                                            &seen);
    g_autofree char *text = NULL;

    g_ptr_array_add(lines, NULL);
    text = g_strjoinv("\n", (char **)lines->pdata);
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say %s", text, part);
}

static void it_is_explained(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 1000);

    (void)state;
    put_node(world, "b-00000001", 10, 0, "");
    fails(world, "a-00000001");
    settle(world);
    assert_explained(world,
                     "the node is in failure (its own word: error): what it has goes elsewhere");
    assert_explained(world, "cache-assigner does nothing, rule wait-bytes: node a-00000001 is in "
                            "failure, it stays there meanwhile");
    put_node(world, "b-00000001", 1000, 0, "");
    assert_explained(world, "rule node-in-failure: node a-00000001 is in failure; evicted there "
                            "once it is live here");
    put_settings(world, "failure-detector", "\"onFailure\":\"keep\"");
    assert_explained(world,
                     "the node is in failure (its own word: error): what it has stays there");
    say_word(world, "a-00000001", "online", "");
    assert_explained(world, "the node is on probation (it reports no error any more)");
}

/* ---- probation ---- */

static World *with_nodes(const char *const *ids, const char *more)
{
    World *world = world_new();

    put_service(world, "api", "%s", "");
    put_settings(world, "cache-assigner",
                 "\"restoreReservePercent\":0,\"maxConcurrentLoads\":1000");
    for (guint i = 0; ids[i] != NULL; i++)
        put_node(world, ids[i], 1000, 0, more);
    run(world, "failure-detector");
    return world;
}

static void put_more(World *world, const char *prefix, guint n, gint64 bytes)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s%03u", prefix, i);
        put_snapshot(world, name, "api", T0 - (gint64)i * SECOND, bytes);
    }
    run(world, "replica-creator");
    run(world, "cache-assigner");
}

static void half_of_the_mean_on_probation(void **state)
{
    static const char *const ids[] = {"a-00000001", "b-00000001", "c-00000001", NULL};
    g_autoptr(World) world = with_nodes(ids, "");

    (void)state;
    say_health(world, "a-00000001", "probation");
    put_more(world, "s", 60, 10);
    assert_int_equal(held(world, "a-00000001"), 10); /* of 20 */
    assert_int_equal(held(world, "b-00000001"), 25);
    assert_int_equal(held(world, "c-00000001"), 25);
    put_more(world, "t", 6, 10);
    assert_int_equal(held(world, "a-00000001"), 11); /* of 22: what is held counts too */
    put_more(world, "u", 6, 200);                    /* 72 items, 1860 bytes */
    assert_int_equal(held(world, "a-00000001"), 12); /* 310 bytes */
    put_more(world, "v", 6, 100);                    /* 78 items, 2460 bytes: has room for 410 */
    assert_int_equal(held(world, "a-00000001"), 13);
    say_health(world, "a-00000001", "healthy");
    put_more(world, "w", 6, 10);
    assert_true(held(world, "a-00000001") > 13);
}

/* One that is lost, cordoned or in failure has its share of what is assigned, and takes none of the rest. */
static void what_others_hold_counts_to_the_mean(void **state)
{
    static const char *const ids[] = {"b-00000001", NULL};
    static const char *const troubles[] = {"lost", "failure", "cordoned"};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(troubles); i++) {
        g_autoptr(World) world = with_nodes(ids, "");
        put_more(world, "s", 40, 10);
        put_node(world, "a-00000001", 1000, 0, "");
        put_node(world, "c-00000001", 1000, 0, "");
        put_node(world, "blue-00000001", 1000, 0, ",\"set\":\"blue\"");
        run(world, "failure-detector");
        say_health(world, "a-00000001", "probation");
        if (i == 0)
            lose_node(world, "b-00000001");
        else if (i == 1)
            put_settings(world, "failure-detector", "\"onFailure\":\"keep\"");
        else
            put(world, "desired/nodepolicies/cache/b", "{\"spec\":{\"cordon\":true}}");
        if (i == 1)
            say_health(world, "b-00000001", "failure");
        run(world, "admission");
        put_more(world, "t", 40, 10);
        if (held(world, "a-00000001") != 20 || held(world, "c-00000001") != 20)
            fail_msg("%s: %u and %u", troubles[i], held(world, "a-00000001"),
                     held(world, "c-00000001"));
    }
}

static void all_on_probation_nothing_is_stuck(void **state)
{
    static const char *const ids[] = {"a-00000001", "b-00000001", NULL};
    g_autoptr(World) world = with_nodes(ids, "");

    (void)state;
    say_health(world, "a-00000001", "probation");
    say_health(world, "b-00000001", "probation");
    put_more(world, "s", 7, 10);
    assert_int_equal(held(world, "a-00000001") + held(world, "b-00000001"), 7);
    /* Those that take no work are nobody to wait for. */
    put(world, "actual/nodes/cache/c-00000001",
        "{\"name\":\"c\",\"capacityBytes\":1000,\"state\":\"paused\"}");
    put_more(world, "t", 7, 10);
    assert_int_equal(held(world, "a-00000001") + held(world, "b-00000001"), 14);
}

/* That waits for time, not for room: Capacity says nothing of it, and a move is on its way. */
static void what_waits_for_probation_says_so(void **state)
{
    static const char *const ids[] = {"a-00000001", NULL};
    g_autoptr(World) world = with_nodes(ids, "");

    (void)state;
    put_more(world, "s", 4, 100);
    put_node(world, "b-00000001", 1000, 0, "");
    put_node(world, "c-00000001", 5, 0, "");
    run(world, "failure-detector");
    say_health(world, "b-00000001", "probation");
    putf(world, "desired/nodepolicies/cache/a", "%s", "{\"spec\":{\"cordon\":true}}");
    run(world, "admission");
    put_more(world, "t", 4, 100);
    assert_int_equal(held(world, "b-00000001"), 2);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/t003.default.0"), "wait-probation");
    assert_null(condition_of(world, "settings/cache-assigner/cache-assigner", "Capacity"));
    fails(world, "a-00000001");
    run(world, "cache-assigner");
    assert_evacuated(world, LH_CONDITION_FALSE, "Moving", "4 left, 4 on their way");
    say_health(world, "b-00000001", "healthy");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_elsewhere_first_and_evicted_when_that_is_live),
        cmocka_unit_test(its_own_word_is_taken_and_taken_back),
        cmocka_unit_test(a_node_that_answers_nothing_keeps_its_orders_until_it_is_gone),
        cmocka_unit_test(what_is_wanted_again_does_not_wait_for_its_answer),
        cmocka_unit_test(what_is_loading_there_is_not_given_up_either),
        cmocka_unit_test(without_room_it_stays_and_says_so),
        cmocka_unit_test(with_no_other_node_it_serves_on),
        cmocka_unit_test(what_undoes_it),
        cmocka_unit_test(well_again_late_the_new_copy_stays),
        cmocka_unit_test(kept_nothing_moves_and_nothing_new_comes),
        cmocka_unit_test(what_it_relies_on_is_compared),
        cmocka_unit_test(a_copy_on_another_bad_node_is_not_what_stays),
        cmocka_unit_test(a_load_that_fails_elsewhere_waits),
        cmocka_unit_test(what_ended_elsewhere_is_taken_before_the_next_attempt),
        cmocka_unit_test(restored_ones_move_within_the_reserve),
        cmocka_unit_test(twins_stay_apart_and_find_the_zone_that_is_left),
        cmocka_unit_test(a_paused_service_and_what_does_not_parse_are_left_alone),
        cmocka_unit_test(a_node_that_goes_in_the_middle_is_a_lost_one),
        cmocka_unit_test(a_target_that_comes_back_goes_on),
        cmocka_unit_test(the_brake_does_not_count_what_moves),
        cmocka_unit_test(what_moves_is_not_what_was_reserved),
        cmocka_unit_test(a_restored_etcd_stops_it),
        cmocka_unit_test(it_is_explained),
        cmocka_unit_test(half_of_the_mean_on_probation),
        cmocka_unit_test(what_others_hold_counts_to_the_mean),
        cmocka_unit_test(all_on_probation_nothing_is_stuck),
        cmocka_unit_test(what_waits_for_probation_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

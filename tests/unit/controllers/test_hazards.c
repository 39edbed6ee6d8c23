/*
 * What broke a system of this kind before, and has no better place: tests/README.md lists all of these
 * hazards with their tests.
 */
#include "tests/unit/controllers/harness.h"

#include <math.h>

/* ---- the autoscaling metric never leaves zero capacity ---- */

typedef struct {
    const char *series;
    double value;
} Wanted;

static void on_gauge(const char *name, const char *labels, double value, gpointer data)
{
    Wanted *wanted = data;
    g_autofree char *series = g_strdup_printf("%s{%s}", name, labels);

    if (strcmp(series, wanted->series) == 0)
        wanted->value = value;
}

static double gauge_of(const World *world, const char *series)
{
    Wanted wanted = {series, NAN};

    lh_cache_assigner.gauges(world->index, world->now_ms, on_gauge, &wanted);
    return wanted.value;
}

static void the_demand_metric_leaves_zero_capacity(void **state)
{
    g_autoptr(World) world = world_new();
    const char *ratio = "cache_demand_ratio{set=\"default\"}";

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s0", "api", T0, 600);
    run_all(world);
    assert_true(isinf(gauge_of(world, ratio))); /* something is wanted, and there is no node */
    assert_true(gauge_of(world, "cache_wanted_bytes{set=\"default\"}") == 600);
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    assert_true(gauge_of(world, ratio) == 0.6);
    put_snapshot(world, "s1", "api", T0, 600);
    run_all(world);
    assert_true(gauge_of(world, ratio) == 1.2); /* what waits counts too */
    del(world, "published/snapshots/s0");
    del(world, "published/snapshots/s1");
    put_settings(world, "cache-evictor", "\"brakePercent\":100");
    settle(world);
    assert_true(gauge_of(world, ratio) == 1); /* nothing is wanted: the fleet is as it should be */
}

/* ---- an orphan deleted while loading waits for a new pass ---- */

static void what_is_unwanted_while_loading_goes_at_once(void **state)
{
    g_autoptr(World) world = world_new();
    g_autofree char *node = NULL, *place = NULL;

    (void)state;
    put_settings(world, "cache-evictor", "\"brakePercent\":100");
    put_service(world, "api", "%s", "");
    put_node(world, "a-00000001", 1000, 0, "");
    put_snapshot(world, "s0", "api", T0, 10);
    run_all(world);
    node = node_of(world, "s0.default.0");
    place = g_strconcat(node, "/s0.default.0", NULL);
    answer(world, place, "loading");
    del(world, "published/snapshots/s0");
    run_all(world); /* no time passes */
    const LhAssignment *order = lookf(world, "decided/assignments/cache/%s", place);
    assert_int_equal(order->action, LH_ACTION_EVICT);
    answer(world, place, "evicted");
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
}

/* ---- creation is quadratic ---- */

/* What is complete is in no set that a plan walks: it costs nothing, however much of it there is. */
static void what_has_its_replicas_is_not_looked_at(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_node(world, "a-00000001", 1000000, 0, "");
    for (int i = 0; i < 300; i++) {
        g_autofree char *name = g_strdup_printf("s%03d", i);
        put_snapshot(world, name, "api", T0, 10);
    }
    settle(world);
    put_snapshot(world, "new", "api", T0, 10);
    assert_int_equal(fleet(world)->create_todo->len, 1);
    assert_int_equal(g_tree_nnodes(fleet(world)->correct_todo), 0);
    run(world, "replica-creator");
    assert_int_equal(g_tree_nnodes(fleet(world)->waiting), 1);
    assert_int_equal(g_tree_nnodes(fleet(world)->todo), 0);
}

/* ---- each throttle policy looks at all seeds ---- */

static guint askers(const World *world, const char *throttle)
{
    GHashTable *set = g_hash_table_lookup(fleet(world)->askers, throttle);

    return set == NULL ? 0 : g_hash_table_size(set);
}

/* One that comes into force concerns the seeds that name it, and is found without looking at the others. */
static void only_the_seeds_of_a_throttle_are_looked_at(void **state)
{
    g_autoptr(World) world = world_new();
    static const char spec[] = "{\"spec\":{\"url\":\"https://e.org/\",\"throttle\":\"%s\"}}";

    (void)state;
    for (int i = 0; i < 30; i++) {
        g_autofree char *key = g_strdup_printf("desired/seeds/s%02d", i);
        putf(world, key, spec, i < 10 ? "slow" : "fast");
    }
    assert_int_equal(askers(world, "slow"), 10);
    assert_int_equal(askers(world, "fast"), 20);
    put(world, "desired/seeds/s00", "{\"spec\":{\"url\":\"https://e.org/\"}}");
    putf(world, "desired/seeds/s01", spec, "fast");
    put(world, "desired/seeds/s02", "{\"spec\":");
    del(world, "desired/seeds/s03");
    assert_int_equal(askers(world, "slow"), 6);
    assert_int_equal(askers(world, "fast"), 21);
    run_all(world);
    put(world, "decided/accepted/throttles/slow",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"requests\":1,\"period\":\"1m\"}}");
    assert_int_equal(g_tree_nnodes(fleet(world)->admit_todo),
                     6 + 1); /* and the policy: nobody wants it */
    for (int i = 4; i < 10; i++) {
        g_autofree char *key = g_strdup_printf("desired/seeds/s%02d", i);
        del(world, key);
    }
    assert_null(g_hash_table_lookup(fleet(world)->askers, "slow"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_demand_metric_leaves_zero_capacity),
        cmocka_unit_test(what_is_unwanted_while_loading_goes_at_once),
        cmocka_unit_test(what_has_its_replicas_is_not_looked_at),
        cmocka_unit_test(only_the_seeds_of_a_throttle_are_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

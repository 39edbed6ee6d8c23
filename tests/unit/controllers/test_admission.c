/*
 * admission: valid copies come into force, invalid edits leave the last good one, nothing is written over
 * what a person wrote, and what does not parse under decided/ is left alone.
 */
#include "tests/unit/controllers/harness.h"

static const LhService *in_force(const World *world, const char *name)
{
    return lh_accepted_spec(lookf(world, "decided/accepted/services/%s", name), LH_KIND_SERVICE);
}

static void assert_valid(const World *world, const char *subject, int status, const char *part)
{
    g_autofree char *name = g_strconcat(subject, "/admission", NULL);
    const LhCondition *condition = condition_of(world, name, "Valid");

    assert_non_null(condition);
    assert_int_equal(condition->status, status);
    if (part != NULL && (condition->message == NULL || strstr(condition->message, part) == NULL))
        fail_msg("%s: \"%s\" does not say %s", subject, condition->message, part);
}

static void a_valid_object_comes_into_force(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "desired/services/api",
        "{\"metadata\":{\"labels\":{\"team\":\"a\"}},\"spec\":{\"owner\":\"me\",\"cache\":{\"window\":\"2h\"}}}");
    gint64 revision = world->revision;
    run(world, "admission");
    const LhAccepted *accepted = look(world, "decided/accepted/services/api");
    assert_int_equal(accepted->revision, revision);
    assert_int_equal(accepted->accepted_at, T0);
    assert_string_equal(accepted->labels->pairs[1], "a");
    assert_int_equal(in_force(world, "api")->cache_window_ms, 2 * HOUR);
    assert_valid(world, "services/api", LH_CONDITION_TRUE, NULL);
    const LhStatus *status = look(world, "decided/status/services/api/admission");
    assert_int_equal(status->observed_revision, revision);
    assert_nothing_to_do(world, "admission");
}

static void an_invalid_edit_leaves_the_last_good_one(void **state)
{
    static const char *const bad[] = {
        "nonsense",
        "{}",
        "{\"spec\":{}}",
        "{\"spec\":{\"owner\":\"me\",\"cache\":{\"window\":\"8d\"}}}",
        "{\"spec\":{\"owner\":\"me\",\"cache\":{\"replicas\":-1}}}",
        "{\"kind\":\"Seed\",\"spec\":{\"owner\":\"me\"}}",
    };
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"window\":\"2h\"}");
    gint64 accepted = mod_rev(world, "decided/accepted/services/api");
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        world->now_ms += MINUTE;
        put(world, "desired/services/api", bad[i]);
        run(world, "admission");
        assert_int_equal(mod_rev(world, "decided/accepted/services/api"), accepted);
        assert_valid(world, "services/api", LH_CONDITION_FALSE,
                     i == 3 ? "spec.cache.window" : NULL);
        assert_string_equal(g_hash_table_lookup(world->values, "desired/services/api"), bad[i]);
        fail_over(world);
        assert_nothing_to_do(world, "admission");
    }
    /* False all the time: since the first of them. */
    assert_int_equal(condition_of(world, "services/api/admission", "Valid")->since, T0 + MINUTE);
    assert_int_equal(in_force(world, "api")->cache_window_ms, 2 * HOUR);
    put_service(world, "api", "\"cache\":{\"window\":\"3h\"}");
    run(world, "admission");
    assert_int_equal(in_force(world, "api")->cache_window_ms, 3 * HOUR);
    assert_valid(world, "services/api", LH_CONDITION_TRUE, NULL);
}

static void what_was_never_valid_is_never_in_force(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "desired/services/api", "{\"spec\":{\"owner\":7}}");
    run(world, "admission");
    assert_null(look(world, "decided/accepted/services/api"));
    assert_valid(world, "services/api", LH_CONDITION_FALSE, "spec.owner");
}

static void a_deleted_object_is_withdrawn_with_its_status(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    run(world, "admission");
    del(world, "desired/services/api");
    run(world, "admission");
    assert_int_equal(count_below(world, ""), 0);
    assert_int_equal(g_hash_table_size(fleet(world)->services), 0);
    assert_int_equal(g_hash_table_size(fleet(world)->subjects), 0);
}

static void a_new_edit_beats_the_plan_that_did_not_see_it(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "desired/services/api", "{\"spec\":{\"owner\":\"a\"}}");
    g_autoptr(LhPlan) plan = plan_of(world, "admission");
    put(world, "desired/services/api", "{\"spec\":{\"owner\":\"b\"}}");
    for (guint i = 0; i < lh_plan_groups(plan); i++)
        apply_group(world, plan, i);
    assert_null(look(world, "decided/accepted/services/api"));
    run(world, "admission");
    assert_string_equal(in_force(world, "api")->owner, "b");
}

static void a_seed_needs_its_throttle(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "desired/seeds/s", "{\"spec\":{\"url\":\"https://e.org/\",\"throttle\":\"slow\"}}");
    run(world, "admission");
    assert_null(look(world, "decided/accepted/seeds/s"));
    assert_valid(world, "seeds/s", LH_CONDITION_FALSE, "spec.throttle");
    put(world, "desired/throttles/slow", "{\"spec\":{\"requests\":1,\"period\":\"1m\"}}");
    run(world, "admission");
    assert_non_null(look(world, "decided/accepted/seeds/s"));
    assert_valid(world, "seeds/s", LH_CONDITION_TRUE, NULL);
    del(world, "desired/throttles/slow");
    run(world, "admission");
    assert_non_null(look(world, "decided/accepted/seeds/s")); /* the last good one */
    assert_valid(world, "seeds/s", LH_CONDITION_FALSE, "slow");
}

/* A plan made while the throttle was there does not commit after it has gone. */
static void a_seed_relies_on_its_throttle(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "desired/throttles/slow", "{\"spec\":{\"requests\":1,\"period\":\"1m\"}}");
    run(world, "admission");
    put(world, "desired/seeds/s", "{\"spec\":{\"url\":\"https://e.org/\",\"throttle\":\"slow\"}}");
    g_autoptr(LhPlan) plan = plan_of(world, "admission");
    del(world, "desired/throttles/slow");
    del(world, "decided/accepted/throttles/slow");
    for (guint i = 0; i < lh_plan_groups(plan); i++)
        apply_group(world, plan, i);
    assert_null(look(world, "decided/accepted/seeds/s"));
}

/* Paused, by its own Settings or by those for all, it takes Settings and nothing else. */
static void a_pause_can_be_ended(void **state)
{
    static const char *const names[] = {"admission", "all"};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(World) world = world_new();
        g_autofree char *key = g_strconcat("desired/settings/", names[i], NULL);
        put(world, key, "{\"spec\":{\"paused\":true}}");
        run(world, "admission");
        assert_true(lh_controller_paused(&lh_admission, world->index));
        assert_int_equal(lh_controller_paused(&lh_cache_evictor, world->index), i == 1);
        put_snapshot(world, "s", "api", T0, 1);
        put(world, "published/snapshots/t", "garbage");
        put(world, "desired/services/api", "{\"spec\":{\"owner\":\"me\"}}");
        run(world, "admission");
        assert_null(in_force(world, "api"));
        assert_null(condition_of(world, "snapshots/t/admission", "Valid"));
        put(world, key, "{\"spec\":{\"paused\":false}}");
        run(world, "admission");
        assert_false(lh_controller_paused(&lh_cache_evictor, world->index));
        assert_non_null(in_force(world, "api"));
        assert_valid(world, "snapshots/t", LH_CONDITION_FALSE, NULL);
    }
}

static void settings_are_read_once_accepted(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    assert_int_equal(lh_fleet_settings(fleet(world), "cache-assigner")->max_concurrent_loads, 2);
    put(world, "desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":7}}");
    assert_int_equal(lh_fleet_settings(fleet(world), "cache-assigner")->max_concurrent_loads, 2);
    run(world, "admission");
    assert_int_equal(lh_fleet_settings(fleet(world), "cache-assigner")->max_concurrent_loads, 7);
    put(world, "desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":0}}");
    run(world, "admission");
    assert_int_equal(lh_fleet_settings(fleet(world), "cache-assigner")->max_concurrent_loads, 7);
    assert_valid(world, "settings/cache-assigner", LH_CONDITION_FALSE, "spec.maxConcurrentLoads");
    put(world, "desired/settings/nobody", "{\"spec\":{}}");
    run(world, "admission");
    assert_null(look(world, "decided/accepted/settings/nobody"));
    assert_valid(world, "settings/nobody", LH_CONDITION_FALSE, "controller");
    del(world, "desired/settings/cache-assigner");
    run(world, "admission");
    assert_int_equal(lh_fleet_settings(fleet(world), "cache-assigner")->max_concurrent_loads, 2);
}

static void confirmations_are_accepted_with_their_time(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "desired/confirmations/cache-evictor", "{\"spec\":{\"planHash\":\"abc\"}}");
    run(world, "admission");
    world->now_ms += HOUR;
    put(world, "desired/confirmations/cache-evictor", "{\"spec\":{\"planHash\":\"abc\"}}");
    run(world, "admission");
    const LhAccepted *accepted = look(world, "decided/accepted/confirmations/cache-evictor");
    assert_int_equal(accepted->accepted_at, T0 + HOUR);
}

static void unknown_fields_are_a_warning(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cahce\":{}");
    run(world, "admission");
    assert_non_null(in_force(world, "api"));
    assert_valid(world, "services/api", LH_CONDITION_TRUE, "spec.cahce");
}

static void what_does_not_parse_in_decided_is_left_alone(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    run(world, "admission");
    put(world, "decided/accepted/services/api", "spoilt");
    gint64 spoilt = world->revision;
    put_service(world, "api", "\"paused\":true");
    run(world, "admission");
    assert_int_equal(mod_rev(world, "decided/accepted/services/api"), spoilt);
    del(world, "desired/services/api");
    run(world, "admission");
    assert_int_equal(mod_rev(world, "decided/accepted/services/api"), spoilt);
    del(world, "decided/accepted/services/api");
    run(world, "admission");
    assert_int_equal(count_below(world, ""), 0);
}

static void a_status_that_does_not_parse_is_left_alone(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "decided/status/services/api/admission", "spoilt");
    gint64 spoilt = world->revision;
    put_service(world, "api", "%s", "");
    run(world, "admission");
    assert_non_null(in_force(world, "api"));
    del(world, "desired/services/api");
    run(world, "admission");
    assert_int_equal(mod_rev(world, "decided/status/services/api/admission"), spoilt);
}

static void keys_of_no_known_kind_concern_nobody(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "nowhere/x", "{}");
    put(world, "desired/services/", "{\"spec\":{\"owner\":\"a\"}}");
    put(world, "desired/services/bad name", "{\"spec\":{\"owner\":\"a\"}}");
    run_all(world);
    assert_int_equal(count_below(world, "decided/"), 0);
    del(world, "nowhere/x");
    run_all(world);
}

/* ---- snapshots ---- */

static void put_at(World *world, const char *name, const char *uri)
{
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);

    putf(world, key,
         "{\"service\":\"api\",\"startTime\":1,\"endTime\":%" PRId64
         ",\"sizeBytes\":1,\"uri\":\"%s\"}",
         T0, uri);
}

static void of_two_that_overlap_the_older_is_valid(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_at(world, "first", "s3://b/x/y/");
    put_at(world, "same", "s3://b/x/y/");
    put_at(world, "above", "s3://b/x/");
    put_at(world, "below", "s3://b/x/y/z/");
    put_at(world, "beside", "s3://b/x/yy/");
    run(world, "admission");
    assert_null(look(world, "decided/status/snapshots/first/admission"));
    assert_valid(world, "snapshots/same", LH_CONDITION_FALSE, "first");
    assert_valid(world, "snapshots/above", LH_CONDITION_FALSE, "first");
    assert_valid(world, "snapshots/below", LH_CONDITION_FALSE, "first");
    assert_valid(world, "snapshots/beside", LH_CONDITION_FALSE,
                 "above"); /* though above is not valid */
    del(world, "published/snapshots/first");
    del(world, "published/snapshots/above");
    run(world, "admission");
    assert_null(look(world, "decided/status/snapshots/same/admission"));
    assert_valid(world, "snapshots/below", LH_CONDITION_FALSE, "same");
    assert_null(look(world, "decided/status/snapshots/beside/admission"));
    assert_null(look(world, "decided/status/snapshots/above/admission"));
}

static void names_and_uris_of_deletions_are_not_used_again(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "decided/deletions/gone",
        "{\"uri\":\"s3://b/x/y/\",\"snapshotRevision\":5,\"decidedAt\":1}");
    put_at(world, "gone", "s3://b/else/");
    put_at(world, "same", "s3://b/x/y/");
    put_at(world, "below", "s3://b/x/y/z/");
    put_at(world, "above", "s3://b/x/");
    put_at(world, "beside", "s3://b/x2/");
    run(world, "admission");
    assert_valid(world, "snapshots/gone", LH_CONDITION_FALSE, "name");
    assert_valid(world, "snapshots/same", LH_CONDITION_FALSE, "deletion");
    assert_valid(world, "snapshots/below", LH_CONDITION_FALSE, "deletion");
    assert_valid(world, "snapshots/above", LH_CONDITION_FALSE, "deletion");
    assert_null(look(world, "decided/status/snapshots/beside/admission"));
    del(world, "decided/deletions/gone");
    run(world, "admission");
    assert_null(look(world, "decided/status/snapshots/gone/admission"));
    assert_null(look(world, "decided/status/snapshots/same/admission"));
}

static void a_snapshot_that_does_not_parse_says_so(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "published/snapshots/s", "{\"service\":\"api\",\"sizeBytes\":-1}");
    run(world, "admission");
    assert_valid(world, "snapshots/s", LH_CONDITION_FALSE, NULL);
    /* Its Status outlives it by a moment, and goes. */
    del(world, "published/snapshots/s");
    fail_over(world);
    run(world, "admission");
    assert_int_equal(count_below(world, ""), 0);
    assert_int_equal(fleet(world)->snapshots.n, 0);
}

static void a_copy_in_force_that_does_not_parse_pauses_its_controller(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_settings(world, "cache-evictor", "{\"paused\":false}");
    run(world, "admission");
    assert_false(lh_fleet_settings(fleet(world), "cache-evictor")->paused);
    put(world, "decided/accepted/settings/cache-evictor", "junk");
    assert_true(lh_fleet_settings(fleet(world), "cache-evictor")->paused);
    run(world, "admission");
    assert_valid(world, "settings/cache-evictor", LH_CONDITION_FALSE, NULL);
    assert_non_null(look(world, "decided/accepted/settings/cache-evictor"));
    fail_over(world);
    assert_true(lh_fleet_settings(fleet(world), "cache-evictor")->paused);
    del(world, "decided/accepted/settings/cache-evictor");
    assert_false(lh_fleet_settings(fleet(world), "cache-evictor")->paused);
}

static void a_bad_recovery_task_says_so_until_it_is_mended(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "published/recoverytasks/t", "{\"partition\":\"p\",\"startOffset\":-5}");
    run(world, "admission");
    assert_valid(world, "recoverytasks/t", LH_CONDITION_FALSE, NULL);
    del(world, "published/recoverytasks/t");
    run(world, "admission");
    assert_int_equal(count_below(world, ""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_valid_object_comes_into_force),
        cmocka_unit_test(an_invalid_edit_leaves_the_last_good_one),
        cmocka_unit_test(what_was_never_valid_is_never_in_force),
        cmocka_unit_test(a_deleted_object_is_withdrawn_with_its_status),
        cmocka_unit_test(a_new_edit_beats_the_plan_that_did_not_see_it),
        cmocka_unit_test(a_seed_needs_its_throttle),
        cmocka_unit_test(a_seed_relies_on_its_throttle),
        cmocka_unit_test(settings_are_read_once_accepted),
        cmocka_unit_test(a_pause_can_be_ended),
        cmocka_unit_test(confirmations_are_accepted_with_their_time),
        cmocka_unit_test(unknown_fields_are_a_warning),
        cmocka_unit_test(what_does_not_parse_in_decided_is_left_alone),
        cmocka_unit_test(a_status_that_does_not_parse_is_left_alone),
        cmocka_unit_test(keys_of_no_known_kind_concern_nobody),
        cmocka_unit_test(of_two_that_overlap_the_older_is_valid),
        cmocka_unit_test(names_and_uris_of_deletions_are_not_used_again),
        cmocka_unit_test(a_snapshot_that_does_not_parse_says_so),
        cmocka_unit_test(a_copy_in_force_that_does_not_parse_pauses_its_controller),
        cmocka_unit_test(a_bad_recovery_task_says_so_until_it_is_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

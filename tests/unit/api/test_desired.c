/*
 * api/desired and api/settings: the defaults of CONTRACT.md, and what is refused with which words.
 */
#include "samples.h"

static void service_defaults_are_the_contracts(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_known(LH_KIND_SERVICE, "{\"owner\":\"team\"}");
    const LhService *service = (const LhService *)object;
    assert_string_equal(service->owner, "team");
    assert_null(service->pattern);
    assert_int_equal(service->throughput_bytes_per_second, 0);
    assert_int_equal(service->partitions_min, 2);
    assert_false(service->partitions_dedicated);
    assert_int_equal(service->cache_window_ms, 24 * 3600 * 1000);
    assert_int_equal(service->cache_replicas, 1);
    assert_string_equal(service->cache_sets[0], "default");
    assert_null(service->cache_sets[1]);
    assert_int_equal(service->retention_ms, 7 * 24 * 3600 * 1000);
    assert_false(service->paused);
}

static void services_are_printed_whole(void **state)
{
    (void)state;
    assert_printed(LH_KIND_SERVICE,
                   "{\"paused\":true,\"retention\":\"2w\",\"cache\":{\"sets\":[\"b\",\"a\"],"
                   "\"window\":\"1d12h\",\"replicas\":3},\"owner\":\"o\",\"pattern\":\"p\","
                   "\"throughputBytesPerSecond\":\"5M\",\"partitions\":{\"dedicated\":true}}",
                   "{\"owner\":\"o\",\"pattern\":\"p\",\"throughputBytesPerSecond\":5000000,"
                   "\"partitions\":{\"min\":2,\"dedicated\":true},\"cache\":{\"window\":\"1d12h\","
                   "\"replicas\":3,\"sets\":[\"b\",\"a\"]},\"retention\":\"2w\",\"paused\":true}");
}

static void null_counts_as_absent(void **state)
{
    (void)state;
    assert_printed(LH_KIND_SERVICE,
                   "{\"owner\":\"o\",\"pattern\":null,\"cache\":null,"
                   "\"partitions\":{\"min\":null},\"retention\":null}",
                   "{\"owner\":\"o\",\"throughputBytesPerSecond\":0,"
                   "\"partitions\":{\"min\":2,\"dedicated\":false},\"cache\":{\"window\":\"1d\","
                   "\"replicas\":1,\"sets\":[\"default\"]},\"retention\":\"7d\",\"paused\":false}");
    assert_refused(LH_KIND_SERVICE, "{\"owner\":null}", "spec.owner: is required");
}

static void bad_services_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *error;
    } cases[] = {
        {"{}", "spec.owner: is required"},
        {"{\"owner\":\"\"}", "spec.owner: is empty"},
        {"{\"owner\":7}", "spec.owner: is 7, must be a string"},
        {"{\"owner\":\"o\",\"paused\":\"yes\"}", "spec.paused: is \"yes\", must be true or false"},
        {"{\"owner\":\"o\",\"cache\":[]}", "spec.cache: is a list, must be an object"},
        {"{\"owner\":\"o\",\"cache\":{\"window\":90}}",
         "spec.cache.window: is 90, must be a duration like 15m"},
        {"{\"owner\":\"o\",\"cache\":{\"window\":\"36h\"},\"retention\":\"24h\"}",
         "spec.cache.window: 1d12h must be less than retention (1d)"},
        {"{\"owner\":\"o\",\"cache\":{\"window\":\"24h\"},\"retention\":\"24h\"}",
         "spec.cache.window: 1d must be less than retention (1d)"},
        {"{\"owner\":\"o\",\"cache\":{\"replicas\":17}}",
         "spec.cache.replicas: is 17, must be 0 to 16"},
        {"{\"owner\":\"o\",\"cache\":{\"replicas\":1.5}}",
         "spec.cache.replicas: is 1.5, must be an integer within ±(2^53-1)"},
        {"{\"owner\":\"o\",\"cache\":{\"sets\":[]}}",
         "spec.cache.sets: has 0 elements, must have 1 to 16"},
        {"{\"owner\":\"o\",\"cache\":{\"sets\":[\"a\",\"b\",\"a\"]}}",
         "spec.cache.sets[2]: is there twice"},
        {"{\"owner\":\"o\",\"cache\":{\"sets\":[\"a\",null]}}",
         "spec.cache.sets[1]: is null, must be a string"},
        {"{\"owner\":\"o\",\"cache\":{\"sets\":[\"A.b\"]}}",
         "spec.cache.sets[0]: is \"A.b\", must be 1 to 63 of a-z, 0-9 and '-'"},
        {"{\"owner\":\"o\",\"cache\":{\"sets\":\"a\"}}",
         "spec.cache.sets: is \"a\", must be a list of strings"},
        {"{\"owner\":\"o\",\"throughputBytesPerSecond\":-1}",
         "spec.throughputBytesPerSecond: is -1, must be 0 or more"},
        {"{\"owner\":\"o\",\"throughputBytesPerSecond\":9007199254740992}",
         "spec.throughputBytesPerSecond: is 9007199254740992, must be an integer or a size like "
         "15Gi"},
        {"{\"owner\":\"o\",\"partitions\":{\"min\":0}}",
         "spec.partitions.min: is 0, must be 1 to 10000"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_refused(LH_KIND_SERVICE, cases[i].json, cases[i].error);
}

static void a_seed_has_a_url_or_a_connector(void **state)
{
    (void)state;
    assert_printed(LH_KIND_SEED, "{\"url\":\"u\"}",
                   "{\"url\":\"u\",\"state\":\"started\",\"priority\":0}");
    assert_printed(LH_KIND_SEED,
                   "{\"connector\":\"c\",\"config\":{\"b\":{\"fromFile\":\"f\"},\"a\":[1,null]},"
                   "\"throttle\":\"t\",\"state\":\"paused\",\"priority\":-5}",
                   "{\"connector\":\"c\",\"config\":{\"b\":{\"fromFile\":\"f\"},\"a\":[1,null]},"
                   "\"throttle\":\"t\",\"state\":\"paused\",\"priority\":-5}");
    assert_refused(LH_KIND_SEED, "{}", "spec.url: is required, unless there is a connector");
    assert_refused(LH_KIND_SEED, "{\"url\":\"u\",\"connector\":\"c\"}",
                   "spec.connector: must not be given together with url");
    assert_refused(LH_KIND_SEED, "{\"url\":\"u\",\"state\":\"running\"}",
                   "spec.state: is \"running\", must be one of started, paused, stopped");
    assert_refused(LH_KIND_SEED, "{\"url\":\"u\",\"config\":[]}",
                   "spec.config: is a list, must be an object");
    assert_refused(LH_KIND_SEED, "{\"url\":\"u\",\"config\":{\"a\":[1,{\"n\":9007199254740992}]}}",
                   "spec.config.a[1].n: integers must be within 2^53-1");
    assert_printed(LH_KIND_SEED, "{\"url\":\"u\",\"config\":{\"n\":[-9007199254740991,1.5]}}",
                   "{\"url\":\"u\",\"config\":{\"n\":[-9007199254740991,1.5]},"
                   "\"state\":\"started\",\"priority\":0}");
}

static void a_throttle_limits_something(void **state)
{
    (void)state;
    assert_printed(LH_KIND_THROTTLE, "{\"requests\":100,\"period\":\"60s\"}",
                   "{\"requests\":100,\"period\":\"1m\"}");
    assert_printed(LH_KIND_THROTTLE, "{\"maxConcurrent\":3}", "{\"maxConcurrent\":3}");
    assert_refused(LH_KIND_THROTTLE, "{}",
                   "spec.requests: is required, unless there is maxConcurrent");
    assert_refused(LH_KIND_THROTTLE, "{\"requests\":0,\"period\":\"1m\"}",
                   "spec.requests: is 0, must be 1 to 1000000000");
    assert_refused(LH_KIND_THROTTLE, "{\"requests\":1}", "spec.period: is required with requests");
    assert_refused(LH_KIND_THROTTLE, "{\"period\":\"1s\"}",
                   "spec.requests: is required with period");
}

static void a_restore_names_a_window_or_snapshots(void **state)
{
    (void)state;
    assert_printed(LH_KIND_RESTORE,
                   "{\"service\":\"a\",\"startTime\":\"2026-05-01T12:00:00+02:00\","
                   "\"endTime\":1777636800001}",
                   "{\"service\":\"a\",\"startTime\":\"2026-05-01T10:00:00.000Z\","
                   "\"endTime\":\"2026-05-01T12:00:00.001Z\",\"ttl\":\"1h\"}");
    assert_printed(LH_KIND_RESTORE, "{\"snapshots\":[\"s2\",\"s1\"],\"ttl\":\"90s\"}",
                   "{\"snapshots\":[\"s2\",\"s1\"],\"ttl\":\"1m30s\"}");
    assert_refused(LH_KIND_RESTORE, "{}", "spec.service: is required, unless snapshots are named");
    assert_refused(LH_KIND_RESTORE, "{\"snapshots\":[]}",
                   "spec.service: is required, unless snapshots are named");
    assert_refused(LH_KIND_RESTORE, "{\"service\":\"**\",\"startTime\":1,\"endTime\":1}",
                   "spec.service: is \"**\", must be a service's name or \"*\"");
    assert_refused(LH_KIND_RESTORE, "{\"service\":\"a\",\"endTime\":1}",
                   "spec.startTime: is required with service");
    assert_refused(LH_KIND_RESTORE, "{\"service\":\"a\",\"startTime\":1}",
                   "spec.endTime: is required with service");
    assert_refused(LH_KIND_RESTORE, "{\"service\":\"a\",\"startTime\":2,\"endTime\":1}",
                   "spec.endTime: must not be before startTime");
    assert_refused(LH_KIND_RESTORE, "{\"service\":\"a\",\"snapshots\":[\"s\"]}",
                   "spec.snapshots: must not be given together with service, startTime or endTime");
    assert_refused(LH_KIND_RESTORE, "{\"snapshots\":[\"s\",\"s\"]}",
                   "spec.snapshots[1]: is there twice");
}

static void small_kinds_are_printed_whole(void **state)
{
    (void)state;
    assert_printed(LH_KIND_PARTITION, "{\"topic\":\"t\",\"capacityBytesPerSecond\":\"1Mi\"}",
                   "{\"capacityBytesPerSecond\":1048576,\"topic\":\"t\",\"kafkaPartition\":0}");
    assert_printed(LH_KIND_NODEPOLICY, "{\"drain\":true}", "{\"cordon\":false,\"drain\":true}");
    assert_printed(LH_KIND_CONFIRMATION, "{\"planHash\":\"h\"}", "{\"planHash\":\"h\"}");
    assert_refused(LH_KIND_CONFIRMATION, "{}", "spec.planHash: is required");
}

static void only_controllers_are_confirmed(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_value(LH_KIND_CONFIRMATION, "nobody",
                                             "{\"spec\":{\"planHash\":\"h\"}}");
    assert_error_is(object, "metadata.name: no controller is called \"nobody\"");
}

static void many_snapshots_are_compared_fast(void **state)
{
    (void)state;
    g_autoptr(GString) json = g_string_new("{\"snapshots\":[");
    for (guint i = 0; i < 9000; i++)
        g_string_append_printf(json, "%s\"%x\"", i > 0 ? "," : "", i);
    gsize len = json->len;
    g_string_append(json, "]}");
    g_autoptr(LhObject) unique = parse_known(LH_KIND_RESTORE, json->str);
    assert_string_equal(((const LhRestore *)unique)->snapshots[8999], "2327");
    g_string_truncate(json, len);
    g_string_append(json, ",\"0\"]}");
    assert_refused(LH_KIND_RESTORE, json->str, "spec.snapshots[9000]: is there twice");
}

/* --- Settings --- */

static void settings_defaults_are_the_contracts(void **state)
{
    (void)state;
    static const struct {
        const char *controller, *printed;
    } cases[] = {
        {"admission", "{\"paused\":false,\"brakePercent\":20}"},
        {"replica-creator", "{\"paused\":false,\"brakePercent\":20,\"debounce\":\"2s\"}"},
        {"cache-assigner", "{\"paused\":false,\"brakePercent\":20,\"debounce\":\"50ms\","
                           "\"maxConcurrentLoads\":2,\"strategy\":\"spread\","
                           "\"restoreReservePercent\":10,\"failureGrace\":\"1m\"}"},
        {"cache-evictor", "{\"paused\":false,\"brakePercent\":20,\"evictGrace\":\"5s\"}"},
        {"snapshot-cleaner", "{\"paused\":false,\"brakePercent\":20,\"buffer\":\"6h\","
                             "\"reconcileInterval\":\"6h\",\"orphanGrace\":\"1d\","
                             "\"deletesPerSecond\":10,\"dryRun\":false}"},
        {"restore-manager", "{\"paused\":false,\"brakePercent\":20,\"maxReplicasPerRestore\":200}"},
        {"recovery-assigner", "{\"paused\":false,\"brakePercent\":20,\"recoveryTimeout\":\"1h\"}"},
        {"partition-allocator", "{\"paused\":false,\"brakePercent\":20,\"cutover\":\"15m\"}"},
        {"cluster-monitor", "{\"paused\":false,\"brakePercent\":20,\"period\":\"30s\","
                            "\"stuckAssigned\":\"1m\",\"stuckLoading\":\"30m\","
                            "\"stuckEvicting\":\"10m\"}"},
        {"seed-allocator",
         "{\"paused\":false,\"brakePercent\":20,\"autoRebalance\":true,\"rebalanceThreshold\":1,"
         "\"failureGrace\":\"0s\"}"},
        {"failure-detector", "{\"paused\":false,\"brakePercent\":20,\"probePeriod\":\"5s\","
                             "\"probeTimeout\":\"2s\",\"probeMisses\":3,\"probation\":\"1m\","
                             "\"probePath\":\"/get_health_status\",\"onFailure\":\"evict\"}"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        const LhSettings *settings = lh_settings_default(cases[i].controller);
        assert_true(lh_settings_known(cases[i].controller));
        assert_known(&settings->o);
        assert_ptr_equal(settings, lh_settings_default(cases[i].controller));
        g_autofree char *text = lh_object_print(LH_KIND_SETTINGS, settings);
        assert_string_equal(text, cases[i].printed);
    }
    assert_false(lh_settings_known("nobody"));
    assert_null(lh_settings_default("nobody"));
    assert_null(lh_settings_fields("nobody"));
}

static LhObject *parse_settings(const char *controller, const char *spec)
{
    g_autofree char *value = g_strdup_printf("{\"spec\":%s}", spec);
    return parse_value(LH_KIND_SETTINGS, controller, value);
}

static void settings_have_only_their_controllers_fields(void **state)
{
    (void)state;
    g_autoptr(LhObject) mine = parse_settings("cache-evictor", "{\"evictGrace\":\"9s\"}");
    assert_known(mine);
    assert_null(lh_object_warning(mine));
    assert_int_equal(((const LhSettings *)mine)->evict_grace_ms, 9000);
    g_autoptr(LhObject) other = parse_settings("cache-evictor", "{\"cutover\":\"9s\"}");
    assert_known(other);
    assert_string_equal(lh_object_warning(other), "unknown field spec.cutover");
    assert_int_equal(((const LhSettings *)other)->cutover_ms, 0);
    g_autoptr(LhObject) nobody = parse_settings("nobody", "{}");
    assert_error_is(nobody, "metadata.name: no controller is called \"nobody\"");
}

static void settings_have_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *controller, *spec, *error;
    } cases[] = {
        {"admission", "{\"brakePercent\":0}", "spec.brakePercent: is 0, must be 1 to 100"},
        {"admission", "{\"brakePercent\":101}", "spec.brakePercent: is 101, must be 1 to 100"},
        {"cache-assigner", "{\"maxConcurrentLoads\":0}",
         "spec.maxConcurrentLoads: is 0, must be 1 to 1000"},
        {"cache-assigner", "{\"restoreReservePercent\":101}",
         "spec.restoreReservePercent: is 101, must be 0 to 100"},
        {"cache-assigner", "{\"strategy\":\"none\"}",
         "spec.strategy: is \"none\", must be one of spread, pack"},
        {"cache-evictor", "{\"evictGrace\":\"3651d\"}",
         "spec.evictGrace: is 3651d, must be 0s to 3650d"},
        {"cluster-monitor", "{\"period\":\"0s\"}", "spec.period: is 0s, must be 100ms to 3650d"},
        {"failure-detector", "{\"probePath\":\"x\"}",
         "spec.probePath: is \"x\", must begin with /"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(LhObject) object = parse_settings(cases[i].controller, cases[i].spec);
        assert_error_is(object, cases[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(service_defaults_are_the_contracts),
        cmocka_unit_test(services_are_printed_whole),
        cmocka_unit_test(null_counts_as_absent),
        cmocka_unit_test(bad_services_are_refused),
        cmocka_unit_test(a_seed_has_a_url_or_a_connector),
        cmocka_unit_test(a_throttle_limits_something),
        cmocka_unit_test(a_restore_names_a_window_or_snapshots),
        cmocka_unit_test(small_kinds_are_printed_whole),
        cmocka_unit_test(only_controllers_are_confirmed),
        cmocka_unit_test(many_snapshots_are_compared_fast),
        cmocka_unit_test(settings_defaults_are_the_contracts),
        cmocka_unit_test(settings_have_only_their_controllers_fields),
        cmocka_unit_test(settings_have_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

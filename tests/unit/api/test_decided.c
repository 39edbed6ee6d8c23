/*
 * api/decided and api/actual: golden JSON of the kinds that controllers, nodes and instances write.
 */
#include "samples.h"

static void an_accepted_holds_its_typed_spec(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_known(
        LH_KIND_ACCEPTED, "{\"revision\":7,\"acceptedAt\":0,\"labels\":{\"b\":\"2\",\"a\":\"1\"},"
                          "\"spec\":{\"owner\":\"o\",\"cache\":{\"window\":\"1h\"}}}");
    const LhAccepted *accepted = (const LhAccepted *)object;
    const LhService *service = lh_accepted_spec(object, LH_KIND_SERVICE);
    assert_non_null(service);
    assert_ptr_equal(service, accepted->parsed);
    assert_string_equal(service->o.name, "api-logs");
    assert_int_equal(service->o.create_rev, 11);
    assert_int_equal(service->o.mod_rev, 22);
    assert_int_equal(service->cache_window_ms, 3600000);
    assert_int_equal(service->cache_replicas, 1);
    assert_string_equal(accepted->spec, "{\"owner\":\"o\",\"cache\":{\"window\":\"1h\"}}");
    assert_string_equal(lh_object_labels(object)->pairs[0], "a");
    assert_null(lh_accepted_spec(object, LH_KIND_SEED));
    assert_null(lh_accepted_spec(NULL, LH_KIND_SERVICE));
    g_autofree char *text = lh_object_print(LH_KIND_ACCEPTED, object);
    assert_string_equal(text, "{\"revision\":7,\"acceptedAt\":\"1970-01-01T00:00:00.000Z\","
                              "\"labels\":{\"a\":\"1\",\"b\":\"2\"},"
                              "\"spec\":{\"owner\":\"o\",\"cache\":{\"window\":\"1h\"}}}");
}

static void an_accepted_with_a_bad_spec_is_unknown(void **state)
{
    (void)state;
    assert_refused(LH_KIND_ACCEPTED, "{\"revision\":7,\"spec\":{}}", "spec.owner: is required");
    assert_refused(LH_KIND_ACCEPTED, "{\"revision\":7}", "spec: is required");
    assert_refused(LH_KIND_ACCEPTED, "{\"revision\":7,\"spec\":[]}",
                   "spec: is a list, must be an object");
    g_autoptr(LhObject) nobody = parse_value(LH_KIND_ACCEPTED, "settings/nobody",
                                             "{\"revision\":7,\"spec\":{}}");
    assert_error_is(nobody, "metadata.name: no controller is called \"nobody\"");
    assert_null(lh_accepted_spec(nobody, LH_KIND_SETTINGS));
    g_autoptr(LhObject) settings = parse_value(LH_KIND_ACCEPTED, "settings/cache-evictor",
                                               "{\"revision\":7,\"spec\":{\"paused\":true}}");
    const LhSettings *typed = lh_accepted_spec(settings, LH_KIND_SETTINGS);
    assert_true(typed->paused);
    assert_int_equal(typed->evict_grace_ms, 5000);
}

static void a_replica_is_what_its_name_says(void **state)
{
    (void)state;
    assert_printed(LH_KIND_REPLICA,
                   "{\"snapshot\":\"snap-1\",\"service\":\"a\",\"set\":\"default\",\"ordinal\":0,"
                   "\"expiresAt\":1}",
                   "{\"snapshot\":\"snap-1\",\"service\":\"a\",\"set\":\"default\",\"ordinal\":0,"
                   "\"restored\":false,\"expiresAt\":\"1970-01-01T00:00:00.001Z\"}");
    assert_refused(LH_KIND_REPLICA,
                   "{\"snapshot\":\"snap-1\",\"service\":\"a\",\"set\":\"default\",\"ordinal\":1,"
                   "\"expiresAt\":1}",
                   "snapshot: with set, ordinal and restored it names \"snap-1.default.1\", which "
                   "is not the key's");
    g_autoptr(LhObject) restored = parse_value(
        LH_KIND_REPLICA, "s.x.r3",
        "{\"snapshot\":\"s\",\"service\":\"a\",\"set\":\"x\",\"ordinal\":3,"
        "\"restored\":true,\"expiresAt\":1}");
    assert_known(restored);
    assert_refused(LH_KIND_REPLICA,
                   "{\"snapshot\":\"snap-1\",\"service\":\"a\",\"set\":\"default\",\"ordinal\":0}",
                   "expiresAt: is required unless the replica is restored");
    g_autoptr(LhObject) loading = parse_value(
        LH_KIND_REPLICA, "s.x.r3",
        "{\"snapshot\":\"s\",\"service\":\"a\",\"set\":\"x\",\"ordinal\":3,\"restored\":true,"
        "\"restore\":\"q\",\"restoreRevision\":7,\"ttl\":\"90s\"}");
    assert_known(loading);
    assert_int_equal(((const LhReplica *)loading)->expires_at, -1);
    assert_int_equal(((const LhReplica *)loading)->ttl_ms, 90000);
}

static void assignments_carry_what_their_pool_needs(void **state)
{
    (void)state;
    const LhAssignment cache = {
        .action = LH_ACTION_LOAD,
        .since = 0,
        .controller = "cache-assigner",
        .epoch = 12,
        .rule = "spread",
        .reason = "fewest \"bytes\"",
        .snapshot = "s",
        .uri = "s3://b/k/",
        .set = "default",
    };
    g_autofree char *text = lh_object_print(LH_KIND_ASSIGNMENT, &cache);
    assert_string_equal(text, "{\"action\":\"load\",\"since\":\"1970-01-01T00:00:00.000Z\","
                              "\"controller\":\"cache-assigner\",\"epoch\":12,\"rule\":\"spread\","
                              "\"reason\":\"fewest \\\"bytes\\\"\",\"snapshot\":\"s\","
                              "\"uri\":\"s3://b/k/\",\"sizeBytes\":0,\"set\":\"default\"}");
    const LhAssignment recovery = {
        .action = LH_ACTION_EVICT, .since = -1, .partition = "p", .end_offset = 9};
    g_autofree char *second = lh_object_print(LH_KIND_ASSIGNMENT, &recovery);
    assert_string_equal(second, "{\"action\":\"evict\",\"epoch\":0,\"partition\":\"p\","
                                "\"startOffset\":0,\"endOffset\":9}");
    const LhAssignment manager = {.action = LH_ACTION_PREPARE,
                                  .since = -1,
                                  .evict_grace_ms = 5000,
                                  .seed = "{\"url\":\"u\"}"};
    g_autofree char *third = lh_object_print(LH_KIND_ASSIGNMENT, &manager);
    assert_string_equal(third, "{\"action\":\"prepare\",\"epoch\":0,\"evictGrace\":\"5s\","
                               "\"seed\":{\"url\":\"u\"}}");
    assert_refused(LH_KIND_ASSIGNMENT, "{\"action\":\"move\"}",
                   "action: is \"move\", must be one of load, evict, prepare");
    assert_refused(LH_KIND_ASSIGNMENT, "{\"action\":\"load\",\"seed\":\"x\"}",
                   "seed: is \"x\", must be an object");
}

static void a_partition_plan_has_no_gaps(void **state)
{
    (void)state;
    const char *good = "{\"history\":[{\"start\":\"1970-01-01T00:00:00.000Z\","
                       "\"end\":\"1970-01-01T00:00:00.005Z\",\"partitions\":[\"p1\"]},"
                       "{\"start\":\"1970-01-01T00:00:00.005Z\",\"end\":null,"
                       "\"partitions\":[\"p1\",\"p2\"]}]}";
    assert_printed(LH_KIND_PARTITIONPLAN, good, good);
    assert_printed(LH_KIND_PARTITIONPLAN, "{}", "{\"history\":[]}");
    static const struct {
        const char *json, *error;
    } cases[] = {
        {"{\"history\":[{\"start\":0,\"end\":5},{\"start\":6}]}",
         "history[1].start: must be the end of the one before"},
        {"{\"history\":[{\"start\":0},{\"start\":6}]}",
         "history[0].end: is null, only the last may be"},
        {"{\"history\":[{\"start\":0,\"end\":5}]}", "history[0].end: must be null in the last"},
        {"{\"history\":[{\"start\":6,\"end\":5},{\"start\":5}]}",
         "history[0].end: must not be before start"},
        {"{\"history\":[{\"end\":5}]}", "history[0].start: is required"},
        {"{\"history\":[null]}", "history[0]: is null, must be an object"},
        {"{\"history\":[{\"start\":1,\"partitions\":[\"a\",\"/\"]}]}",
         "history[0].partitions[1]: is \"/\", must be a name of letters, digits, '.', '_' and "
         "'-', at most 253 long, first and last a letter or digit"},
        {"{\"history\":{}}", "history: is an object, must be a list of objects"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_refused(LH_KIND_PARTITIONPLAN, cases[i].json, cases[i].error);
}

static void conditions_are_sorted_and_unique(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_known(
        LH_KIND_STATUS, "{\"conditions\":[{\"type\":\"Valid\",\"status\":\"False\","
                        "\"reason\":\"R\",\"message\":\"m\",\"since\":1},"
                        "{\"type\":\"Capacity\",\"status\":\"Unknown\"}],\"snapshots\":0}");
    const LhStatus *status = (const LhStatus *)object;
    const LhCondition *first = lh_array_at(status->conditions, 0);
    assert_int_equal(status->conditions->n, 2);
    assert_string_equal(first->type, "Capacity");
    assert_null(first->reason);
    assert_int_equal(first->since, -1);
    assert_int_equal(status->snapshots, 0);
    assert_int_equal(status->replicas_live, -1);
    g_autofree char *text = lh_object_print(LH_KIND_STATUS, object);
    assert_string_equal(text, "{\"observedRevision\":0,\"conditions\":["
                              "{\"type\":\"Capacity\",\"status\":\"Unknown\"},"
                              "{\"type\":\"Valid\",\"status\":\"False\",\"reason\":\"R\","
                              "\"message\":\"m\",\"since\":\"1970-01-01T00:00:00.001Z\"}],"
                              "\"snapshots\":0}");
    assert_refused(LH_KIND_STATUS,
                   "{\"conditions\":[{\"type\":\"A\",\"status\":\"True\"},"
                   "{\"type\":\"A\",\"status\":\"True\"}]}",
                   "conditions: has the type \"A\" twice");
    assert_refused(LH_KIND_STATUS, "{\"conditions\":[{\"status\":\"True\"},{\"status\":\"True\"}]}",
                   "conditions[0].type: is required");
    assert_refused(LH_KIND_STATUS, "{\"conditions\":[{\"type\":\"A\",\"status\":\"true\"}]}",
                   "conditions[0].status: is \"true\", must be one of True, False, Unknown");
}

static void other_decided_kinds_are_printed_whole(void **state)
{
    (void)state;
    assert_printed(LH_KIND_RETRY, "{\"attempt\":5,\"parked\":true,\"message\":\"m\"}",
                   "{\"attempt\":5,\"parked\":true,\"message\":\"m\"}");
    assert_printed(LH_KIND_RESTOREPROGRESS, "{\"phase\":\"Pending\",\"until\":1}",
                   "{\"phase\":\"Pending\",\"observedRevision\":0,\"replicas\":0,\"live\":0,"
                   "\"until\":\"1970-01-01T00:00:00.001Z\"}");
    assert_printed(LH_KIND_HEALTH, "{\"state\":\"failed\",\"missingSince\":0,\"revoking\":true}",
                   "{\"state\":\"failed\",\"missingSince\":\"1970-01-01T00:00:00.000Z\","
                   "\"revoking\":true}");
    assert_printed(LH_KIND_DELETION, samples[LH_KIND_DELETION].json,
                   "{\"uri\":\"file:///d/\",\"snapshotRevision\":5,"
                   "\"decidedAt\":\"1970-01-01T00:00:00.006Z\"}");
    assert_refused(LH_KIND_DELETION,
                   "{\"uri\":\"file:///\",\"snapshotRevision\":5,\"decidedAt\":6}",
                   "uri: \"file:///\" must lie below /");
    assert_printed(LH_KIND_ORPHAN, "{\"uri\":\"s3://b/x/\",\"bytes\":\"1K\",\"firstSeen\":0}",
                   "{\"uri\":\"s3://b/x/\",\"objects\":0,\"bytes\":1000,"
                   "\"firstSeen\":\"1970-01-01T00:00:00.000Z\",\"erased\":0}");
    assert_printed(LH_KIND_BRAKE, "{\"revision\":1,\"since\":0,\"planHash\":\"h\",\"of\":50}",
                   "{\"revision\":1,\"since\":\"1970-01-01T00:00:00.000Z\",\"planHash\":\"h\","
                   "\"eligible\":0,\"of\":50,\"cause\":\"much\"}");
    static const char restored[] =
        "{\"revision\":1,\"since\":\"1970-01-01T00:00:00.000Z\",\"planHash\":\"h\",\"eligible\":0,"
        "\"of\":0,\"cause\":\"restored\",\"basis\":\"b\",\"markers\":[\"0123@9\"]}";
    assert_printed(LH_KIND_BRAKE, restored, restored);
    assert_refused(LH_KIND_BRAKE,
                   "{\"revision\":1,\"since\":0,\"planHash\":\"h\",\"cause\":\"other\"}",
                   "cause: is \"other\", must be one of much, restored, hold");
    assert_printed(LH_KIND_EVENT, "{\"time\":0,\"type\":\"Warning\",\"object\":\"services/a\"}",
                   "{\"time\":\"1970-01-01T00:00:00.000Z\",\"type\":\"Warning\","
                   "\"object\":\"services/a\",\"count\":1}");
}

/* --- actual --- */

static void nodes_have_defaults_and_limits(void **state)
{
    (void)state;
    assert_printed(LH_KIND_NODE,
                   "{\"name\":\"node-a\",\"capacityBytes\":\"100Gi\",\"leaseTtl\":\"5s\","
                   "\"warm\":[\"s1\"],\"labels\":{\"k\":\"v\"}}",
                   "{\"name\":\"node-a\",\"set\":\"default\",\"capacityBytes\":107374182400,"
                   "\"capacityItems\":0,\"labels\":{\"k\":\"v\"},\"state\":\"online\","
                   "\"leaseTtl\":\"5s\",\"warm\":[\"s1\"]}");
    g_autoptr(LhObject) object = parse_known(LH_KIND_NODE, "{\"name\":\"node-a\",\"zone\":\"z\"}");
    assert_null(((const LhNode *)object)->warm[0]);
    assert_int_equal(((const LhNode *)object)->labels->n, 0);
    assert_int_equal(((const LhNode *)object)->started_at, -1);
    assert_int_equal(lh_object_labels(object)->n, 0);
    assert_refused(LH_KIND_NODE, "{\"name\":\"node-b\"}",
                   "name: is \"node-b\", the key of its node must then end in \"node-b-<8 "
                   "hexadecimal digits>\", not \"node-a-0123abcd\"");
}

static void assert_warm(guint n, guint len, const char *error)
{
    g_autoptr(GString) json = g_string_new("{\"name\":\"node-a\",\"warm\":[");
    for (guint i = 0; i < n; i++)
        g_string_append_printf(json, "%s\"%0*u\"", i > 0 ? "," : "", (int)len, i);
    g_string_append(json, "]}");
    g_autoptr(LhObject) object = parse_fields(LH_KIND_NODE, json->str);
    if (error == NULL)
        assert_known(object);
    else
        assert_error_is(object, error);
}

static void warm_lists_are_short(void **state)
{
    (void)state;
    assert_warm(500, 60, NULL);
    assert_warm(501, 10, "warm: has 501 elements, must have 0 to 500");
    assert_warm(500, 100, "warm: is 51500 bytes long, must be at most 32768");
}

static void other_actual_kinds_are_printed_whole(void **state)
{
    (void)state;
    assert_printed(LH_KIND_ITEM, "{\"state\":\"loading\",\"assignment\":77,\"bytesDone\":1}",
                   "{\"state\":\"loading\",\"assignment\":77,\"bytesDone\":1}");
    assert_refused(LH_KIND_ITEM, "{\"assignment\":77}", "state: is required");
    assert_printed(LH_KIND_SEARCH, "{\"snapshot\":\"s\",\"url\":\"u\"}",
                   "{\"snapshot\":\"s\",\"url\":\"u\"}");
    assert_printed(LH_KIND_LEADER, "{\"instance\":\"i\",\"pid\":42,\"startedAt\":0}",
                   "{\"instance\":\"i\",\"pid\":42,\"startedAt\":\"1970-01-01T00:00:00.000Z\"}");
}

static void states_have_names(void **state)
{
    (void)state;
    assert_string_equal(lh_item_state_name(LH_ITEM_DONE), "done");
    assert_string_equal(lh_node_state_name(LH_NODE_ERROR), "error");
    assert_string_equal(lh_health_state_name(LH_HEALTH_FAILED), "failed");
    assert_string_equal(lh_action_name(LH_ACTION_PREPARE), "prepare");
    assert_string_equal(lh_restore_phase_name(LH_RESTORE_REFUSED), "Refused");
    assert_string_equal(lh_condition_status_name(LH_CONDITION_UNKNOWN), "Unknown");
    assert_string_equal(lh_item_state_name(99), "unknown");
    assert_string_equal(lh_item_state_name(-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_holds_its_typed_spec),
        cmocka_unit_test(an_accepted_with_a_bad_spec_is_unknown),
        cmocka_unit_test(a_replica_is_what_its_name_says),
        cmocka_unit_test(assignments_carry_what_their_pool_needs),
        cmocka_unit_test(a_partition_plan_has_no_gaps),
        cmocka_unit_test(conditions_are_sorted_and_unique),
        cmocka_unit_test(other_decided_kinds_are_printed_whole),
        cmocka_unit_test(nodes_have_defaults_and_limits),
        cmocka_unit_test(warm_lists_are_short),
        cmocka_unit_test(other_actual_kinds_are_printed_whole),
        cmocka_unit_test(states_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

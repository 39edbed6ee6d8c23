/*
 * api/kind: the table agrees with CONTRACT.md, and what names and keys are taken.
 */
#include "samples.h"

static void each_kind_lies_where_the_contract_says(void **state)
{
    (void)state;
    static const struct {
        LhKind kind;
        const char *name, *plural, *key;
    } contract[] = {
        {LH_KIND_SERVICE, "Service", "services", "desired/services/x"},
        {LH_KIND_SEED, "Seed", "seeds", "desired/seeds/x"},
        {LH_KIND_THROTTLE, "ThrottlePolicy", "throttles", "desired/throttles/x"},
        {LH_KIND_PARTITION, "Partition", "partitions", "desired/partitions/x"},
        {LH_KIND_RESTORE, "Restore", "restores", "desired/restores/x"},
        {LH_KIND_NODEPOLICY, "NodePolicy", "nodepolicies", "desired/nodepolicies/x"},
        {LH_KIND_SETTINGS, "Settings", "settings", "desired/settings/x"},
        {LH_KIND_CONFIRMATION, "Confirmation", "confirmations", "desired/confirmations/x"},
        {LH_KIND_SNAPSHOT, "Snapshot", "snapshots", "published/snapshots/x"},
        {LH_KIND_RECOVERYTASK, "RecoveryTask", "recoverytasks", "published/recoverytasks/x"},
        {LH_KIND_ACCEPTED, "Accepted", "accepted", "decided/accepted/x"},
        {LH_KIND_REPLICA, "Replica", "replicas", "decided/replicas/x"},
        {LH_KIND_ASSIGNMENT, "Assignment", "assignments", "decided/assignments/x"},
        {LH_KIND_RETRY, "Retry", "retries", "decided/retries/x"},
        {LH_KIND_PARTITIONPLAN, "PartitionPlan", "partitionplans", "decided/partitionplans/x"},
        {LH_KIND_RESTOREPROGRESS, "RestoreProgress", "restoreprogress",
         "decided/restoreprogress/x"},
        {LH_KIND_HEALTH, "NodeHealth", "health", "decided/health/x"},
        {LH_KIND_DELETION, "Deletion", "deletions", "decided/deletions/x"},
        {LH_KIND_ORPHAN, "Orphan", "orphans", "decided/orphans/x"},
        {LH_KIND_BRAKE, "Brake", "brakes", "decided/brakes/x"},
        {LH_KIND_STATUS, "Status", "status", "decided/status/x"},
        {LH_KIND_NODE, "Node", "nodes", "actual/nodes/x"},
        {LH_KIND_ITEM, "Item", "items", "actual/items/x"},
        {LH_KIND_SEARCH, "Search", "search", "actual/search/x"},
        {LH_KIND_LEADER, "Leader", "leaders", "leaders/x"},
        {LH_KIND_EVENT, "Event", "events", "events/x"},
    };
    assert_int_equal(G_N_ELEMENTS(contract), LH_N_KINDS);
    for (guint i = 0; i < G_N_ELEMENTS(contract); i++) {
        const LhKindInfo *info = lh_kind_info(contract[i].kind);
        g_autofree char *key = lh_key(contract[i].kind, "x");
        g_autofree char *upper = g_ascii_strup(contract[i].plural, -1);
        LhKind kind = LH_N_KINDS;
        const char *name = NULL;
        assert_int_equal(info->kind, contract[i].kind);
        assert_string_equal(info->name, contract[i].name);
        assert_string_equal(info->plural, contract[i].plural);
        assert_int_equal(info->prefix_len, strlen(info->prefix));
        assert_string_equal(key, contract[i].key);
        assert_true(lh_key_split(key, &kind, &name));
        assert_int_equal(kind, contract[i].kind);
        assert_string_equal(name, "x");
        assert_int_equal(lh_kind_lookup(contract[i].name), contract[i].kind);
        assert_int_equal(lh_kind_lookup(upper), contract[i].kind);
    }
    assert_null(lh_kind_info(LH_N_KINDS));
    assert_false(lh_kind_is_desired(LH_N_KINDS));
}

static void a_shape_has_as_many_letters_as_a_name_has_parts(void **state)
{
    (void)state;
    for (LhKind kind = 0; kind < LH_N_KINDS; kind++) {
        const LhKindInfo *info = lh_kind_info(kind);
        if (info->parts > 0)
            assert_int_equal(info->parts, strlen(info->shape));
        assert_int_equal(info->size % sizeof(void *), 0);
        assert_true(lh_kind_name_valid(kind, samples[kind].name));
    }
}

static void words_for_kinds_are_unambiguous(void **state)
{
    (void)state;
    assert_int_equal(lh_kind_lookup("service"), LH_KIND_SERVICE);
    assert_int_equal(lh_kind_lookup("throttle"), LH_KIND_THROTTLE);
    assert_int_equal(lh_kind_lookup("throttlepolicies"), LH_KIND_THROTTLE);
    assert_int_equal(lh_kind_lookup("NodeHealths"), LH_KIND_HEALTH);
    assert_int_equal(lh_kind_lookup("nodepolicy"), LH_KIND_NODEPOLICY);
    assert_int_equal(lh_kind_lookup("status"), LH_KIND_STATUS);
    assert_int_equal(lh_kind_lookup("serviceses"), LH_N_KINDS);
    assert_int_equal(lh_kind_lookup("servic"), LH_N_KINDS);
    assert_int_equal(lh_kind_lookup("nodes "), LH_N_KINDS);
    assert_int_equal(lh_kind_lookup(""), LH_N_KINDS);
    assert_int_equal(lh_kind_lookup(NULL), LH_N_KINDS);
}

static void other_keys_have_no_kind(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "",       "x",         "desired/",          "desired/services",   "desired/servicesx/a",
        "actual", "decided/x", "desired/unknown/x", "Desired/services/a", "/desired/services/a",
    };
    LhKind kind = LH_KIND_EVENT;
    const char *name = "untouched";
    for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
        assert_false(lh_key_split(keys[i], &kind, &name));
    assert_int_equal(kind, LH_KIND_EVENT);
    assert_string_equal(name, "untouched");
    assert_true(lh_key_split("leaders/", &kind, &name));
    assert_string_equal(name, "");
}

static void keys_are_made_by_format(void **state)
{
    (void)state;
    g_autofree char *key = lh_keyf(LH_KIND_ASSIGNMENT, "%s/%s/%d", "cache", "n-00000000", 7);
    assert_string_equal(key, "decided/assignments/cache/n-00000000/7");
}

static void names_have_the_parts_of_their_kind(void **state)
{
    (void)state;
    static const struct {
        LhKind kind;
        const char *name;
        gboolean valid;
    } cases[] = {
        {LH_KIND_SERVICE, "a", TRUE},
        {LH_KIND_SERVICE, "A.b_c-9", TRUE},
        {LH_KIND_SERVICE, "", FALSE},
        {LH_KIND_SERVICE, "a/b", FALSE},
        {LH_KIND_SERVICE, "-a", FALSE},
        {LH_KIND_SERVICE, "a.", FALSE},
        {LH_KIND_SERVICE, "\xff", FALSE},
        {LH_KIND_NODEPOLICY, "cache/a", TRUE},
        {LH_KIND_NODEPOLICY, "cache", FALSE},
        {LH_KIND_NODEPOLICY, "cache/", FALSE},
        {LH_KIND_NODEPOLICY, "Cache/a", FALSE},
        {LH_KIND_NODEPOLICY, "ca.che/a", FALSE},
        {LH_KIND_ITEM, "cache/n/i", TRUE},
        {LH_KIND_ITEM, "cache//i", FALSE},
        {LH_KIND_ITEM, "cache/n", FALSE},
        {LH_KIND_ITEM, "cache/n/i/j", FALSE},
        {LH_KIND_ORPHAN, HEX64, TRUE},
        {LH_KIND_ORPHAN, "0123", FALSE},
        {LH_KIND_LEADER, "admission/0123456789abcdef", TRUE},
        {LH_KIND_LEADER, "admission/0123456789ABCDEF", FALSE},
        {LH_KIND_LEADER, "admission/123456789abcdef", FALSE},
        {LH_KIND_LEADER, "admission", FALSE},
        {LH_KIND_ACCEPTED, "services/a", TRUE},
        {LH_KIND_ACCEPTED, "nodepolicies/cache/a", TRUE},
        {LH_KIND_ACCEPTED, "nodepolicies/a", FALSE},
        {LH_KIND_ACCEPTED, "snapshots/a", FALSE},
        {LH_KIND_ACCEPTED, "services/", FALSE},
        {LH_KIND_ACCEPTED, "service/a", FALSE},
        {LH_KIND_ACCEPTED, "services", FALSE},
        {LH_KIND_STATUS, "services/a/admission", TRUE},
        {LH_KIND_STATUS, "items/cache/n/i/cluster-monitor", TRUE},
        {LH_KIND_STATUS, "snapshots/a/admission", TRUE},
        {LH_KIND_STATUS, "items/cache/n/cluster-monitor", FALSE},
        {LH_KIND_STATUS, "services/a", FALSE},
        {LH_KIND_STATUS, "services/a/", FALSE},
        {LH_KIND_STATUS, "services//admission", FALSE},
        {LH_KIND_STATUS, "status/services/a/admission/admission", FALSE},
        {LH_KIND_STATUS, "accepted/services/a/admission", FALSE},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        if (lh_kind_name_valid(cases[i].kind, cases[i].name) != cases[i].valid)
            fail_msg("%s %s", lh_kind_info(cases[i].kind)->name, cases[i].name);
    }
}

static void assert_longest(LhKind kind, const char *before, guint longest, const char *after)
{
    for (guint len = longest; len <= longest + 1; len++) {
        g_autofree char *part = g_strnfill(len, 'a');
        g_autofree char *name = g_strconcat(before, part, after, NULL);
        assert_int_equal(lh_kind_name_valid(kind, name), len == longest);
    }
}

static void names_have_a_longest(void **state)
{
    (void)state;
    assert_longest(LH_KIND_SERVICE, "", 253, "");
    assert_longest(LH_KIND_SNAPSHOT, "", 180, "");
    assert_longest(LH_KIND_DELETION, "", 180, "");
    assert_longest(LH_KIND_NODEPOLICY, "cache/", 244, "");
    assert_longest(LH_KIND_NODE, "cache/", 253, "");
    assert_longest(LH_KIND_NODE, "", 63, "/n");
    assert_longest(LH_KIND_ITEM, "cache/", 253, "/i");
    assert_longest(LH_KIND_ITEM, "cache/n/", 253, "");
    assert_longest(LH_KIND_SEARCH, "cache/n/", 180, "");
    assert_longest(LH_KIND_STATUS, "snapshots/", 180, "/admission");
}

static void subjects_are_split(void **state)
{
    (void)state;
    LhKind kind = LH_N_KINDS;
    const char *rest = NULL;
    assert_true(lh_subject_split("nodepolicies/cache/a", &kind, &rest));
    assert_int_equal(kind, LH_KIND_NODEPOLICY);
    assert_string_equal(rest, "cache/a");
    assert_false(lh_subject_split("Services/a", &kind, &rest));
    assert_false(lh_subject_split("services", &kind, &rest));
    assert_false(lh_subject_split("", &kind, &rest));
    assert_string_equal(rest, "cache/a");

    g_autofree char *subject = NULL;
    const char *controller = NULL;
    assert_true(
        lh_status_name_split("items/cache/n/i/cluster-monitor", &kind, &subject, &controller));
    assert_int_equal(kind, LH_KIND_ITEM);
    assert_string_equal(subject, "cache/n/i");
    assert_string_equal(controller, "cluster-monitor");
    assert_false(lh_status_name_split("", NULL, NULL, NULL));
    assert_false(lh_status_name_split("services/admission", NULL, NULL, NULL));
}

static void names_come_apart(void **state)
{
    (void)state;
    g_autofree char *pool = lh_name_part("cache/n/i", 0);
    g_autofree char *item = lh_name_part("cache/n/i", 2);
    g_autofree char *only = lh_name_part("x", 0);
    assert_string_equal(pool, "cache");
    assert_string_equal(item, "i");
    assert_string_equal(only, "x");
    assert_null(lh_name_part("cache/n/i", 3));
}

static void node_ids_end_in_eight_digits(void **state)
{
    (void)state;
    g_autofree char *name = lh_node_name_of("a-b-0123abcd");
    assert_string_equal(name, "a-b");
    assert_null(lh_node_name_of("a-0123ABCD"));
    assert_null(lh_node_name_of("a-123abcd"));
    assert_null(lh_node_name_of("a0123abcd0"));
    assert_null(lh_node_name_of("-0123abcd"));
    assert_null(lh_node_name_of("0123abcd"));
    assert_null(lh_node_name_of(""));
    assert_null(lh_node_name_of(NULL));
}

static void replica_names_go_both_ways(void **state)
{
    (void)state;
    g_autofree char *name = lh_replica_name("s.1.x", "default", 12, TRUE);
    g_autofree char *snapshot = NULL;
    g_autofree char *set = NULL;
    gint64 ordinal = -1;
    gboolean restored = FALSE;
    assert_string_equal(name, "s.1.x.default.r12");
    assert_true(lh_replica_name_split(name, &snapshot, &set, &ordinal, &restored));
    assert_string_equal(snapshot, "s.1.x");
    assert_string_equal(set, "default");
    assert_int_equal(ordinal, 12);
    assert_true(restored);
    assert_true(lh_replica_name_split("s.default.0", NULL, NULL, &ordinal, &restored));
    assert_int_equal(ordinal, 0);
    assert_false(restored);
}

static void other_names_are_no_replicas(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",      "s",       "s.0",     ".s.0",     "s..0",    "s.A.0",  "s.d.",
        "s.d.r", "s.d.-1",  "s.d.+1",  "s.d.01",   "s.d.rr1", "s.d.0x", "s.d.1000000000",
        ".d.0",  "s.d.0.x", "s/d.d.0", "\xff.d.0",
    };
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (lh_replica_name_split(names[i], NULL, NULL, NULL, NULL))
            fail_msg("taken: %s", names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_lies_where_the_contract_says),
        cmocka_unit_test(a_shape_has_as_many_letters_as_a_name_has_parts),
        cmocka_unit_test(words_for_kinds_are_unambiguous),
        cmocka_unit_test(other_keys_have_no_kind),
        cmocka_unit_test(keys_are_made_by_format),
        cmocka_unit_test(names_have_the_parts_of_their_kind),
        cmocka_unit_test(names_have_a_longest),
        cmocka_unit_test(subjects_are_split),
        cmocka_unit_test(names_come_apart),
        cmocka_unit_test(node_ids_end_in_eight_digits),
        cmocka_unit_test(replica_names_go_both_ways),
        cmocka_unit_test(other_names_are_no_replicas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

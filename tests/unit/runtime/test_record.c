/* links: fakes */
/*
 * runtime/record: what was recorded from a living mirror gives the same plan offline, byte for byte; and
 * what was not recorded so is refused with the number of the line.
 */
#include "lab.h"
#include "runtime/record.h"

static void unused_listener(G_GNUC_UNUSED LhMirror *mirror, G_GNUC_UNUSED gpointer data)
{
}

/* As GET /v1/plan prints it, without the hash of all. */
static char *live_plan(const Manager *manager)
{
    g_autoptr(LhPlan) shown = lh_runtime_plan(manager->runtime, &controller, TRUE);
    GString *out = g_string_new("{\"revision\":");

    lh_json_append_int(out, lh_mirror_revision(manager->mirror));
    g_string_append(out, ",\"controllers\":[");
    lh_plan_append_json(out, &controller, shown, FALSE, TRUE, NULL);
    g_string_append(out, "]}");
    return g_string_free(out, FALSE);
}

static void plan_all(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    plan_replicas(index, context, plan);
    lh_plan_note(plan, LH_KIND_SERVICE, "s", "nothing", "it is %" G_GINT64_FORMAT, context->now_ms);
    lh_plan_wake(plan, context->now_ms + 5000);
}

static Lab *lab_with_strange_things(Manager **manager)
{
    g_autofree char *spaces = g_strnfill(69999, ' ');
    g_autofree char *ones = g_strnfill(64 * 1024, '\x01');
    g_autofree char *late = g_strconcat("{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"size"
                                        "Bytes\":7,\"uri\":\"s3://bucket/x/\"}",
                                        spaces, NULL);
    Lab *lab = lab_new(1);

    script.plan = plan_all;
    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":true}}");
    *manager = lab_manager(lab, "m0");
    publish(lab, 0, 20);
    put(lab, "decided/replicas/gone.default.0",
        "{\"snapshot\":\"gone\",\"service\":\"s\",\"set\":\"default\",\"expiresAt\":5}");
    put(lab, "desired/services/quo\"te", "{}");
    put(lab, "published/snapshots/bytes", "{\"service\":\"\xff\"}");
    put(lab, "published/snapshots/control", ones);
    put(lab, "published/snapshots/long", late); /* good, but for its length */
    put(lab, "published/snapshots/empty", "");
    put(lab, "nonsense", "x");
    pass(lab, 2000);
    return lab;
}

static void a_replayed_plan_is_the_same(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_strange_things(&manager);
    g_autoptr(GError) error = NULL;
    g_autoptr(GString) replayed = g_string_new(NULL);
    gsize len = 0;

    g_autofree char *text = lh_record_dump(manager->mirror, lh_wall_ms(manager->env), &len);
    g_autofree char *live = live_plan(manager);
    assert_int_equal(strlen(text), len);
    lh_record_plan(text, len, controllers, NULL, replayed, &error);
    assert_null(error);
    assert_string_equal(replayed->str, live);
    assert_non_null(strstr(live, "\"rule\":\"missing\""));
    assert_non_null(strstr(live, "\"rule\":\"surplus\""));
    g_string_truncate(replayed, 0);
    assert_true(lh_record_plan(text, len, controllers, NAME, replayed, &error));
    assert_string_equal(replayed->str, live);
    assert_false(lh_record_plan(text, len, controllers, "nobody", replayed, &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_NOT_FOUND));
    lab_free(lab);
}

static void what_is_unknown_stays_unknown(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_strange_things(&manager);
    LhRecord record = {0};
    g_autoptr(GError) error = NULL;
    gsize len = 0, again_len = 0;

    g_autofree char *text = lh_record_dump(manager->mirror, 12345, &len);
    assert_true(lh_record_load(text, len, unused_listener, NULL, &record, &error));
    assert_int_equal(record.now_ms, 12345);
    assert_int_equal(record.revision, lh_mirror_revision(manager->mirror));
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        assert_int_equal(lh_mirror_count(record.mirror, kind),
                         lh_mirror_count(manager->mirror, kind));
        assert_int_equal(lh_mirror_invalid(record.mirror, kind),
                         lh_mirror_invalid(manager->mirror, kind));
    }
    assert_int_equal(lh_mirror_invalid(record.mirror, LH_KIND_SNAPSHOT), 4);
    const LhObject *was = lh_mirror_get(manager->mirror, LH_KIND_SNAPSHOT, "snap-00003");
    const LhObject *is = lh_mirror_get(record.mirror, LH_KIND_SNAPSHOT, "snap-00003");
    assert_int_equal(is->mod_rev, was->mod_rev);
    assert_int_equal(is->create_rev, was->create_rev);
    g_autofree char *hex = lh_lease_hex(lh_runtime_lease(manager->runtime));
    g_autofree char *leader = g_strconcat(NAME "/", hex, NULL);
    assert_int_equal(lh_object_lease(lh_mirror_get(record.mirror, LH_KIND_LEADER, leader)),
                     lh_runtime_lease(manager->runtime));
    g_autofree char *again = lh_record_dump(record.mirror, 12345, &again_len);
    assert_string_equal(again, text);
    lh_mirror_free(record.mirror);
    lab_free(lab);
}

/* No string of a Seed's config is shown, wherever the Seed's spec stands; what it is stays as it was. */
static void secrets_are_not_recorded(void **state)
{
    static const struct {
        const char *key, *value, *kept;
    } rows[] = {
        {"desired/seeds/a",
         "{\"metadata\":{\"labels\":{\"config\":\"label\"}},\"spec\":{\"connector\":\"s3\",\"priority\":7,"
         "\"config\":{\"user\":\"hush-1\",\"n\":9007199254740991,\"b\":true,\"deep\":[{\"x\":[\"hush-2\"]}],"
         "\"password\":{\"fromFile\":\"/etc/file-1\"},"
         "\"odd\":{\"fromFile\":\"hush-3\",\"and\":\"hush-4\"},\"odder\":{\"fromFile\":[\"hush-13\"]}}}}",
         "{\"metadata\":{\"labels\":{\"config\":\"label\"}},\"spec\":{\"connector\":\"s3\",\"priority\":7,"
         "\"config\":{\"user\":\"(redacted)\",\"n\":9007199254740991,\"b\":true,"
         "\"deep\":[{\"x\":[\"(redacted)\"]}],\"password\":{\"fromFile\":\"/etc/file-1\"},"
         "\"odd\":{\"fromFile\":\"(redacted)\",\"and\":\"(redacted)\"},\"odder\":{\"fromFile\":[\"(redacted)\"]}}}}"},
        {"desired/seeds/plain", "{\"spec\": {\"url\": \"http://x\"}}",
         "{\"spec\": {\"url\": \"http://x\"}}"},
        {"desired/seeds/broken", "{\"spec\":{\"config\":{\"p\":\"hush-5\"}}", NULL},
        {"desired/seeds/list", "[\"hush-6\"]", NULL},
        {"desired/seeds/bytes", "{\"spec\":{\"config\":{\"p\":\"hush-7\xff\"}}}", NULL},
        {"desired/seeds/text", "{\"spec\":{\"connector\":\"c\",\"config\":\"hush-8\"}}", NULL},
        {"desired/seeds/bare", "{\"config\":{\"p\":\"hush-9\"},\"Config\":{\"p\":\"hush-10\"}}",
         NULL},
        {"decided/accepted/seeds/a",
         "{\"revision\":3,\"spec\":{\"connector\":\"s3\",\"config\":{\"user\":\"hush-11\"}}}",
         NULL},
        {"decided/assignments/manager/n-00000001/a",
         "{\"action\":\"load\",\"seed\":{\"connector\":\"s3\",\"config\":{\"user\":\"hush-12\"}}}",
         NULL},
        {"desired/services/s", "{\"spec\":{\"owner\":\"me\",\"config\":\"shown\"}}",
         "\"config\":\"shown\""},
    };
    Lab *lab = lab_new(1);
    Manager *manager;
    LhRecord record = {0};
    gsize len = 0;

    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":true}}");
    manager = lab_manager(lab, "m0");
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        put(lab, rows[i].key, rows[i].value);
    pass(lab, 2000);
    g_autofree char *text = lh_record_dump(manager->mirror, 12345, &len);
    assert_null(strstr(text, "hush"));
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GString) quoted = g_string_new(NULL);
        if (rows[i].kept == NULL)
            continue;
        lh_json_append_string(quoted, rows[i].kept);
        g_string_truncate(quoted, quoted->len - 1);
        assert_non_null(strstr(text, quoted->str + 1));
    }
    assert_true(lh_record_load(text, len, unused_listener, NULL, &record, NULL));
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        assert_int_equal(lh_mirror_count(record.mirror, kind),
                         lh_mirror_count(manager->mirror, kind));
        assert_int_equal(lh_mirror_invalid(record.mirror, kind),
                         lh_mirror_invalid(manager->mirror, kind));
    }
    assert_true(lh_mirror_invalid(record.mirror, LH_KIND_SEED) >= 4);
    assert_true(lh_object_known(lh_mirror_get(record.mirror, LH_KIND_SEED, "a")));
    assert_true(lh_object_known(lh_mirror_get(record.mirror, LH_KIND_ACCEPTED, "seeds/a")));
    assert_int_equal(lh_mirror_count(record.mirror, LH_KIND_ASSIGNMENT), 1);
    lh_mirror_free(record.mirror);
    lab_free(lab);
}

static void plan_a_seed(G_GNUC_UNUSED const Index *index,
                        G_GNUC_UNUSED const LhPlanContext *context, LhPlan *plan)
{
    static const char value[] = "{\"action\":\"load\",\"seed\":{\"connector\":\"s3\","
                                "\"config\":{\"user\":\"hush\"}}}";
    g_autoptr(LhObject) assignment = lh_object_parse(LH_KIND_ASSIGNMENT, "manager/n-00000001/a",
                                                     value, strlen(value), 0, 0, 0);

    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_ASSIGNMENT, "manager/n-00000001/a", assignment, 0, "seeds",
                "it waits");
    lh_plan_end(plan);
}

static void secrets_are_not_in_plans(void **state)
{
    Lab *lab = lab_new(1);
    Manager *manager;

    script.plan = plan_a_seed;
    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":true}}");
    manager = lab_manager(lab, "m0");
    pass(lab, 2000);
    g_autofree char *shown = live_plan(manager);
    assert_non_null(strstr(shown, "\"config\":{\"user\":\"(redacted)\"}"));
    assert_null(strstr(shown, "hush"));
    lab_free(lab);
}

static void bad_lines_are_named(void **state)
{
#define HEAD "{\"input\":\"leasehold/v1\",\"prefix\":\"/x/\",\"revision\":5,\"now\":6}\n"
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "line 1: the file is empty"},
        {"\n", "line 1: "},
        {"{}\n", "line 1: not a recorded plan input"},
        {"[]\n", "line 1: not a recorded plan input"},
        {"{\"input\":\"leasehold/v2\"}\n", "line 1: not a recorded plan input"},
        {"{\"input\":\"leasehold/v1\",\"prefix\":\"/x\"}\n", "line 1: prefix"},
        {"{\"input\":\"leasehold/v1\",\"prefix\":\"\"}\n", "line 1: prefix"},
        {HEAD "{\"key\":\"a\"}", "line 2: key and value"},
        {HEAD "{\"value\":\"a\"}", "line 2: key and value"},
        {HEAD "{\"key\":\"a\",\"value\":5}", "line 2: key and value"},
        {HEAD "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":", "line 3: "},
        {HEAD "\n", "line 2: "},
        {HEAD "{\"key\":\"a\",\"value\":\"\xff\"}\n", "line 2: "},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        LhRecord record = {0};
        g_autoptr(GError) error = NULL;
        g_autoptr(GString) out = g_string_new("kept");
        assert_false(lh_record_load(rows[i].text, strlen(rows[i].text), unused_listener, NULL,
                                    &record, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        if (!g_str_has_prefix(error->message, rows[i].error))
            fail_msg("%s: %s", rows[i].error, error->message);
        assert_null(record.mirror);
        g_clear_error(&error);
        assert_false(
            lh_record_plan(rows[i].text, strlen(rows[i].text), controllers, NULL, out, &error));
        assert_string_equal(out->str, "kept");
    }
}

static void a_missing_last_line_feed_is_fine(void **state)
{
    static const char text[] = HEAD "{\"key\":\"nonsense\",\"value\":\"b\"}";
    LhRecord record = {0};

    assert_true(lh_record_load(text, strlen(text), unused_listener, NULL, &record, NULL));
    assert_int_equal(lh_mirror_invalid(record.mirror, LH_N_KINDS), 1);
    assert_string_equal(lh_mirror_prefix(record.mirror), "/x/");
    lh_mirror_free(record.mirror);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replayed_plan_is_the_same),
        cmocka_unit_test(what_is_unknown_stays_unknown),
        cmocka_unit_test(secrets_are_not_recorded),
        cmocka_unit_test(secrets_are_not_in_plans),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(a_missing_last_line_feed_is_fine),
    };

    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}

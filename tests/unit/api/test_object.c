/*
 * api/object: the envelope, warnings, unknown objects, what is kept of a value, and who holds it.
 */
#include "samples.h"

static LhObject *parse_service(const char *value)
{
    return parse_value(LH_KIND_SERVICE, "api-logs", value);
}

static void the_envelope_may_be_left_out(void **state)
{
    (void)state;
    static const char *const values[] = {
        "{\"spec\":{\"owner\":\"o\"}}",
        "{\"apiVersion\":\"leasehold/v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"api-logs\","
        "\"labels\":{}},\"spec\":{\"owner\":\"o\"}}",
        "{\"metadata\":{},\"spec\":{\"owner\":\"o\"}}",
        "{\"apiVersion\":null,\"kind\":null,\"metadata\":null,\"spec\":{\"owner\":\"o\"}}",
        "{\"metadata\":{\"name\":null,\"labels\":null,\"revision\":5},\"status\":{\"x\":1},"
        "\"spec\":{\"owner\":\"o\"}}",
        " {\"spec\" : {\"owner\" : \"o\"}} \n",
    };
    for (guint i = 0; i < G_N_ELEMENTS(values); i++) {
        g_autoptr(LhObject) object = parse_service(values[i]);
        gsize len;
        assert_known(object);
        assert_null(lh_object_warning(object));
        assert_false(object->warned);
        assert_int_equal(lh_object_labels(object)->n, 0);
        assert_string_equal(lh_object_raw(object, &len), values[i]);
        assert_int_equal(len, strlen(values[i]));
    }
}

static void the_envelope_agrees_with_the_key(void **state)
{
    (void)state;
    static const struct {
        const char *value, *error;
    } cases[] = {
        {"{\"apiVersion\":\"leasehold/v2\",\"spec\":{}}",
         "apiVersion: is \"leasehold/v2\", must be \"leasehold/v1\""},
        {"{\"apiVersion\":1,\"spec\":{}}", "apiVersion: is not a string, must be \"leasehold/v1\""},
        {"{\"kind\":\"Seed\",\"spec\":{}}",
         "kind: is \"Seed\", must be \"Service\" as the key says"},
        {"{\"metadata\":{\"name\":\"other\"},\"spec\":{}}",
         "metadata.name: is \"other\", must be \"api-logs\" as the key says"},
        {"{\"metadata\":[],\"spec\":{}}", "metadata: must be an object"},
        {"{\"metadata\":{\"labels\":{\"a\":1}},\"spec\":{}}",
         "metadata.labels.a: is 1, must be a string"},
        {"{\"metadata\":{\"labels\":[]},\"spec\":{}}",
         "metadata.labels: is a list, must be an object of strings"},
        {"{}", "spec: is required"},
        {"{\"owner\":\"o\"}", "spec: is required"},
        {"{\"spec\":null}", "spec: is required"},
        {"{\"spec\":7}", "spec: must be an object"},
        {"[]", "the value must be a JSON object"},
        {"7", "the value must be a JSON object"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(LhObject) object = parse_service(cases[i].value);
        assert_error_is(object, cases[i].error);
    }
    g_autoptr(LhObject) policy = parse_value(
        LH_KIND_NODEPOLICY, "cache/node-a",
        "{\"metadata\":{\"name\":\"cache/node-a\"},\"spec\":{\"cordon\":true}}");
    assert_known(policy);
}

static void labels_are_a_sorted_map(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_service(
        "{\"metadata\":{\"labels\":{\"b\":\"2\",\"a\":\"1\",\"c\":null}},"
        "\"spec\":{\"owner\":\"o\"}}");
    const LhStrMap *labels = lh_object_labels(object);
    assert_known(object);
    assert_int_equal(labels->n, 2);
    assert_string_equal(labels->pairs[0], "a");
    assert_string_equal(labels->pairs[1], "1");
    assert_string_equal(labels->pairs[2], "b");
    assert_string_equal(labels->pairs[3], "2");
}

static void unknown_fields_are_warned_of(void **state)
{
    (void)state;
    static const struct {
        const char *value, *warning;
    } cases[] = {
        {"{\"spec\":{\"owner\":\"o\",\"cahce\":{}}}", "unknown field spec.cahce"},
        {"{\"spec\":{\"owner\":\"o\",\"cache\":{\"windw\":1,\"x\":1}}}",
         "unknown field spec.cache.windw and 1 more"},
        {"{\"foo\":1,\"spec\":{\"owner\":\"o\"}}", "unknown field foo"},
        {"{\"metadata\":{\"anotations\":{}},\"a\":1,\"spec\":{\"owner\":\"o\",\"b\":2}}",
         "unknown field metadata.anotations and 2 more"},
        {"{\"spec\":{\"owner\":\"o\",\"a\\nb\":1}}", "unknown field spec.a?b"},
        {"{\"spec\":{\"owner\":\"o\",\"gone\":null}}", "unknown field spec.gone"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(LhObject) object = parse_service(cases[i].value);
        assert_known(object);
        assert_true(object->warned);
        assert_string_equal(lh_object_warning(object), cases[i].warning);
    }
    g_autoptr(LhObject) cut = parse_service(
        "{\"spec\":{\"owner\":\"o\",\""
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxü€\":1}}");
    assert_true(g_utf8_validate(lh_object_warning(cut), -1, NULL));
    assert_true(g_str_has_suffix(lh_object_warning(cut), "xxx…"));
    g_autoptr(LhObject) flat = parse_fields(LH_KIND_RETRY, "{\"attempt\":3,\"z\":1,\"y\":{}}");
    assert_known(flat);
    assert_string_equal(lh_object_warning(flat), "unknown field z and 1 more");
    assert_int_equal(((const LhRetry *)flat)->attempt, 3);
    assert_string_equal(flat->name, samples[LH_KIND_RETRY].name);
    assert_null(lh_object_raw(flat, NULL));
}

static void flat_objects_do_not_keep_their_value(void **state)
{
    (void)state;
    gsize len = 99;
    g_autoptr(LhObject) object = parse_known(LH_KIND_RETRY, "{}");
    assert_null(lh_object_raw(object, &len));
    assert_int_equal(len, 0);
    assert_null(lh_object_warning(object));
    assert_int_equal(lh_object_labels(object)->n, 0);
}

static void objects_know_their_key(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_known(LH_KIND_RETRY, "{}");
    assert_int_equal(object->kind, LH_KIND_RETRY);
    assert_int_equal(object->create_rev, 11);
    assert_int_equal(object->mod_rev, 22);
    assert_int_equal(lh_object_lease(object), 33);
    g_autoptr(LhObject) bad = parse_fields(LH_KIND_RETRY, "x");
    assert_false(lh_object_known(bad));
    assert_int_equal(bad->kind, LH_KIND_RETRY);
    assert_int_equal(bad->create_rev, 11);
    assert_int_equal(bad->mod_rev, 22);
    assert_int_equal(lh_object_lease(bad), 33);
    assert_string_equal(bad->name, samples[LH_KIND_RETRY].name);
}

static void bad_names_give_unknown_objects(void **state)
{
    (void)state;
    g_autoptr(LhObject) slash = parse_value(LH_KIND_SNAPSHOT, "a/b", "{}");
    assert_error_is(slash, "metadata.name: \"a/b\" is not a valid name of a Snapshot");
    assert_string_equal(slash->name, "a/b");
    g_autoptr(LhObject) empty = parse_value(LH_KIND_SERVICE, "", "{\"spec\":{\"owner\":\"o\"}}");
    assert_error_is(empty, "metadata.name: \"\" is not a valid name of a Service");
    g_autoptr(LhObject) bytes = parse_value(LH_KIND_SERVICE, "\xff\x80z\n", "{}");
    assert_false(lh_object_known(bytes));
    assert_string_equal(bytes->name, "\xff\x80z\n");
    assert_true(g_utf8_validate(lh_object_error(bytes), -1, NULL));
    assert_null(strchr(lh_object_error(bytes), '\n'));
    g_autofree char *longest = g_strnfill(100000, '\x80');
    g_autoptr(LhObject) large = parse_value(LH_KIND_SERVICE, longest, "{}");
    assert_int_equal(strlen(large->name), 100000);
    assert_true(strlen(lh_object_error(large)) < 500 &&
                g_utf8_validate(lh_object_error(large), -1, NULL));
}

static void a_key_of_no_kind_gives_an_unknown_object(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_value(LH_N_KINDS, "foo/bar", "text");
    assert_error_is(object, "the key is of no known kind");
    assert_string_equal(lh_object_raw(object, NULL), "text");
    assert_int_equal(lh_object_labels(object)->n, 0);
    assert_null(lh_object_warning(object));
}

static void unknown_objects_keep_what_was_written(void **state)
{
    (void)state;
    gsize len;
    g_autoptr(LhObject) bytes = parse_bytes(LH_KIND_RETRY, "cache/x", "a\0\xff", 3);
    assert_false(lh_object_known(bytes));
    assert_memory_equal(lh_object_raw(bytes, &len), "a\0\xff", 4);
    assert_int_equal(len, 3);
    g_autoptr(LhObject) none = parse_bytes(LH_KIND_RETRY, "cache/x", NULL, 0);
    assert_false(lh_object_known(none));
    assert_string_equal(lh_object_raw(none, &len), "");
    assert_int_equal(len, 0);
    g_autofree char *text = g_strnfill(LH_JSON_MAX_BYTES + 100, ' ');
    text[0] = '{';
    text[1] = '}';
    g_autoptr(LhObject) large = parse_value(LH_KIND_RETRY, "cache/x", text);
    assert_false(lh_object_known(large));
    assert_int_equal(strlen(lh_object_raw(large, &len)), LH_JSON_MAX_BYTES);
    assert_int_equal(len, LH_JSON_MAX_BYTES);
    text[LH_JSON_MAX_BYTES] = '\0';
    g_autoptr(LhObject) largest = parse_value(LH_KIND_RETRY, "cache/x", text);
    assert_known(largest);
}

static LhObject *parse_seed_with(char fill, gsize len)
{
    g_autofree char *text = g_strnfill(len, fill);
    g_autofree char *json = g_strdup_printf("{\"connector\":\"c\",\"config\":{\"a\":\"%s\"}}",
                                            text);
    return parse_fields(LH_KIND_SEED, json);
}

/* Else admission would write an Accepted that nobody can read. */
static void what_fits_no_accepted_is_refused(void **state)
{
    (void)state;
    g_autoptr(LhObject) plain = parse_seed_with('x', 59 * 1024);
    assert_known(plain);
    g_autoptr(LhObject) large = parse_seed_with('x', 61 * 1024);
    assert_false(lh_object_known(large));
    assert_true(g_str_has_prefix(lh_object_error(large), "spec: is "));
    g_autoptr(LhObject) escaped = parse_seed_with('\x7f', 11 * 1024);
    assert_false(lh_object_known(escaped));
    assert_true(g_str_has_prefix(lh_object_error(escaped), "spec: is "));
}

static void unknown_objects_are_safe_to_read(void **state)
{
    (void)state;
    for (LhKind kind = 0; kind < LH_N_KINDS; kind++) {
        g_autoptr(LhObject) object = parse_value(kind, samples[kind].name, "?");
        assert_false(lh_object_known(object));
        g_autofree char *text = lh_object_print(kind, object);
        assert_int_equal(text[0], '{');
        assert_true(lh_object_same(kind, object, object));
        assert_int_equal(lh_object_labels(object)->n, 0);
    }
}

static void objects_live_as_long_as_they_are_held(void **state)
{
    (void)state;
    LhObject *object = parse_known(LH_KIND_SNAPSHOT, samples[LH_KIND_SNAPSHOT].json);
    LhObject *second = lh_object_ref(object);
    assert_ptr_equal(object, second);
    lh_object_unref(object);
    assert_string_equal(((const LhSnapshot *)second)->service, "api-logs");
    lh_object_unref(second);
    assert_null(lh_object_ref(NULL));
    lh_object_unref(NULL);
}

static void a_spec_is_parsed_alone(void **state)
{
    (void)state;
    g_autoptr(GError) error = NULL;
    g_autofree char *warning = NULL;
    g_autoptr(cJSON) spec = cJSON_Parse("{\"owner\":\"o\",\"x\":1}");
    g_autoptr(LhObject) object = lh_object_parse_spec(LH_KIND_SERVICE, "api-logs", spec, &warning,
                                                      &error);
    assert_non_null(object);
    assert_null(error);
    assert_string_equal(warning, "unknown field spec.x");
    assert_string_equal(((const LhService *)object)->owner, "o");
    assert_null(lh_object_raw(object, NULL));
    assert_int_equal(object->mod_rev, 0);

    static const struct {
        const char *name, *spec, *error;
    } cases[] = {
        {"api-logs", "{\"owner\":1}", "spec.owner: is 1, must be a string"},
        {"api-logs", "[]", "spec: must be an object"},
        {"api-logs", "null", "spec: is required"},
        {"a/b", "{}", "metadata.name: \"a/b\" is not a valid name of a Service"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(cJSON) bad = cJSON_Parse(cases[i].spec);
        g_autoptr(GError) why = NULL;
        char *untouched = NULL;
        assert_null(lh_object_parse_spec(LH_KIND_SERVICE, cases[i].name, bad, &untouched, &why));
        assert_null(untouched);
        assert_true(g_error_matches(why, LH_ERROR, LH_ERR_INVALID));
        assert_string_equal(why->message, cases[i].error);
    }
    assert_null(lh_object_parse_spec(LH_KIND_SERVICE, "a", NULL, NULL, NULL));
}

static void same_looks_at_fields_only(void **state)
{
    (void)state;
    g_autoptr(LhObject) a = parse_service("{\"spec\":{\"owner\":\"o\"}}");
    g_autoptr(LhObject) b = parse_service(
        "{\"kind\":\"Service\",\"spec\":{\"owner\":\"o\",\"retention\":\"168h\",\"x\":1}}");
    g_autoptr(LhObject) c = parse_service("{\"spec\":{\"owner\":\"p\"}}");
    b->mod_rev = 99;
    assert_true(lh_object_same(LH_KIND_SERVICE, a, b));
    assert_false(lh_object_same(LH_KIND_SERVICE, a, c));
    const LhNode bare = {.node_name = "n", .set = "default", .started_at = -1};
    g_autoptr(LhObject) node = parse_value(LH_KIND_NODE, "cache/n-00000000",
                                           "{\"name\":\"n\",\"labels\":{}}");
    assert_known(node);
    assert_true(lh_object_same(LH_KIND_NODE, &bare, node));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_envelope_may_be_left_out),
        cmocka_unit_test(the_envelope_agrees_with_the_key),
        cmocka_unit_test(labels_are_a_sorted_map),
        cmocka_unit_test(unknown_fields_are_warned_of),
        cmocka_unit_test(flat_objects_do_not_keep_their_value),
        cmocka_unit_test(objects_know_their_key),
        cmocka_unit_test(bad_names_give_unknown_objects),
        cmocka_unit_test(a_key_of_no_kind_gives_an_unknown_object),
        cmocka_unit_test(unknown_objects_keep_what_was_written),
        cmocka_unit_test(what_fits_no_accepted_is_refused),
        cmocka_unit_test(unknown_objects_are_safe_to_read),
        cmocka_unit_test(objects_live_as_long_as_they_are_held),
        cmocka_unit_test(a_spec_is_parsed_alone),
        cmocka_unit_test(same_looks_at_fields_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

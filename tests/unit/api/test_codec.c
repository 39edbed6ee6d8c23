/*
 * api/codec and api/print, through the tables: what holds for every field of every kind.
 *
 * The tables are walked, so that a new field is tested the day it is added: required, null, wrong
 * types, bounds, long strings. test_roundtrip.c has the random ones.
 */
#include "base/units.h"
#include "samples.h"

typedef struct {
    LhKind kind;
    cJSON *root;      /* of the sample; tests change it */
    cJSON *container; /* the object in it that holds the field */
    const LhField *field;
    const char *path; /* as errors name it */
} Place;

typedef void (*PlaceFunc)(const Place *place, guint *count);

/* @outer: the object that the fields lie in, NULL at the top. Deeper than that no table goes. */
static void walk(LhKind kind, const LhField *fields, const LhField *outer, PlaceFunc func,
                 guint *count)
{
    for (const LhField *field = fields; field->name != NULL; field++) {
        g_autoptr(cJSON) root = cJSON_Parse(samples[kind].json);
        g_autoptr(GString) path = g_string_new(lh_kind_is_desired(kind) ? "spec." : "");
        cJSON *container = root;
        if (outer != NULL) {
            container = cJSON_AddObjectToObject(root, outer->name);
            g_string_append_printf(path, "%s.", outer->name);
        }
        g_string_append(path, field->name);
        const Place place = {kind, root, container, field, path->str};
        func(&place, count);
        if (field->type == LH_F_STRUCT) {
            assert_null(outer);
            walk(kind, ((const LhStructInfo *)field->sub)->fields, field, func, count);
        }
    }
}

/* Calls @func for every field of every kind; returns how often it did its work. */
static guint for_each_field(PlaceFunc func)
{
    guint count = 0;
    for (LhKind kind = 0; kind < LH_N_KINDS; kind++) {
        const LhKindInfo *info = lh_kind_info(kind);
        const LhField *fields = info->fields_of != NULL ? info->fields_of(samples[kind].name)
                                                        : info->fields;
        walk(kind, fields, NULL, func, &count);
    }
    return count;
}

/* The sample with this field set; takes @value (NULL: the field is removed). */
static LhObject *parse_with(const Place *place, cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(place->container, place->field->name);
    if (value != NULL)
        cJSON_AddItemToObject(place->container, place->field->name, value);
    g_autofree char *json = lh_json_print(place->root);
    return parse_fields(place->kind, json);
}

/* The error begins with the field's path and @what. */
static void assert_field_refused(const Place *place, cJSON *value, const char *what)
{
    g_autofree char *start = g_strdup_printf("%s%s", place->path, what);
    g_autoptr(LhObject) object = parse_with(place, value);
    if (lh_object_known(object))
        fail_msg("%s %s: accepted", lh_kind_info(place->kind)->name, place->path);
    if (!g_str_has_prefix(lh_object_error(object), start))
        fail_msg("\"%s\" does not begin with \"%s\"", lh_object_error(object), start);
}

/* If it is refused, then not for this value itself. */
static void assert_field_taken(const Place *place, cJSON *value)
{
    g_autofree char *start = g_strdup_printf("%s: is ", place->path);
    g_autoptr(LhObject) object = parse_with(place, value);
    if (!lh_object_known(object) && g_str_has_prefix(lh_object_error(object), start))
        fail_msg("%s", lh_object_error(object));
}

static void samples_are_accepted(void **state)
{
    (void)state;
    for (LhKind kind = 0; kind < LH_N_KINDS; kind++) {
        g_autoptr(LhObject) object = parse_known(kind, samples[kind].json);
        assert_null(lh_object_warning(object));
    }
}

static void check_required(const Place *place, guint *count)
{
    if ((place->field->flags & LH_REQUIRED) == 0)
        return;
    assert_field_refused(place, NULL, ": is required");
    assert_field_refused(place, cJSON_CreateNull(), ": is required");
    (*count)++;
}

static void required_fields_are_required(void **state)
{
    (void)state;
    assert_true(for_each_field(check_required) >= 25);
}

static void check_null(const Place *place, guint *count)
{
    g_autoptr(LhObject) absent = parse_with(place, NULL);
    g_autoptr(LhObject) null = parse_with(place, cJSON_CreateNull());
    assert_string_equal(lh_object_error(absent) != NULL ? lh_object_error(absent) : "",
                        lh_object_error(null) != NULL ? lh_object_error(null) : "");
    if (lh_object_known(absent))
        assert_true(lh_object_same(place->kind, absent, null));
    (*count)++;
}

static void null_is_absent_everywhere(void **state)
{
    (void)state;
    assert_true(for_each_field(check_null) >= 120);
}

static void check_type(const Place *place, guint *count)
{
    gboolean number = place->field->type == LH_F_INT || place->field->type == LH_F_SIZE ||
                      place->field->type == LH_F_TIME;
    if (place->field->type == LH_F_RAW && (place->field->flags & LH_OBJECT) == 0)
        return;
    if (!number)
        assert_field_refused(place, cJSON_CreateNumber(7), ": is 7, must be ");
    if (place->field->type != LH_F_BOOL)
        assert_field_refused(place, cJSON_CreateTrue(), ": is true, must be ");
    if (place->field->type != LH_F_STRV && place->field->type != LH_F_ARRAY)
        assert_field_refused(place, cJSON_CreateArray(), ": is a list, must be ");
    if (place->field->type == LH_F_INT)
        assert_field_refused(place, cJSON_CreateString("7"), ": is \"7\", must be an integer");
    if (place->field->type == LH_F_ENUM)
        assert_field_refused(place, cJSON_CreateString("nope"), ": is \"nope\", must be one of ");
    if (number) {
        assert_field_refused(place, cJSON_CreateNumber(0.5), ": is 0.5, must be ");
        assert_field_refused(place, cJSON_CreateNumber(9007199254740992.0), ": is 900719925474099");
        assert_field_refused(place, cJSON_CreateNumber(-1e300), ": is -1e+300, must be ");
    }
    (*count)++;
}

static void wrong_types_are_refused_everywhere(void **state)
{
    (void)state;
    assert_true(for_each_field(check_type) >= 120);
}

static cJSON *make_number(const LhField *field, gint64 value)
{
    if (field->type != LH_F_DURATION)
        return cJSON_CreateNumber((double)value);
    g_autofree char *text = lh_duration_format(value);
    return cJSON_CreateString(text);
}

static void check_bounds(const Place *place, guint *count)
{
    const LhField *field = place->field;
    gint64 max = field->min == 0 && field->max == 0 ? LH_JSON_MAX_INT : field->max;
    if (field->type != LH_F_INT && field->type != LH_F_SIZE && field->type != LH_F_DURATION)
        return;
    assert_true(field->min < max);
    assert_field_taken(place, make_number(field, field->min));
    assert_field_taken(place, make_number(field, max));
    if (field->type != LH_F_DURATION || field->min > 0)
        assert_field_refused(place, make_number(field, field->min - 1), ": is ");
    if (max < LH_JSON_MAX_INT)
        assert_field_refused(place, make_number(field, max + 1), ": is ");
    (*count)++;
}

static void numbers_have_bounds_everywhere(void **state)
{
    (void)state;
    assert_true(for_each_field(check_bounds) >= 45);
}

static void check_long_string(const Place *place, guint *count)
{
    const LhField *field = place->field;
    if (field->type != LH_F_STR && field->type != LH_F_ATOM)
        return;
    g_autofree char *text = g_strnfill(60 * 1024, 'x');
    if ((field->flags & (LH_NAME | LH_POOL_NAME)) == 0 && field->max == 0)
        assert_field_taken(place, cJSON_CreateString(text));
    else
        assert_field_refused(place, cJSON_CreateString(text), ": is ");
    g_autoptr(LhObject) object = parse_with(place, cJSON_CreateString(text));
    assert_true(lh_object_known(object) || strlen(lh_object_error(object)) < 400);
    if (field->min > 0)
        assert_field_refused(place, cJSON_CreateString(""), ": is empty");
    (*count)++;
}

static void long_strings_are_taken_or_refused_in_few_words(void **state)
{
    (void)state;
    assert_true(for_each_field(check_long_string) >= 50);
}

static void escapes_in_values_and_messages_are_safe(void **state)
{
    (void)state;
    assert_printed(LH_KIND_RETRY, "{\"message\":\"a\\u0001\\n\\\"\\\\\\ud83d\\ude00\"}",
                   "{\"attempt\":0,\"parked\":false,\"message\":\"a\\u0001\\n\\\"\\\\😀\"}");
    assert_refused(LH_KIND_SERVICE, "{\"owner\":\"o\",\"retention\":\"\\u0007\\n\"}",
                   "spec.retention: duration \"\\u0007\\n\": must be digits, each followed by a "
                   "unit");
    g_autoptr(LhObject) key = parse_fields(LH_KIND_SERVICE,
                                           "{\"owner\":\"o\",\"cache\":{\"sets\":[\"ü\\u0000\"]}}");
    assert_false(lh_object_known(key));
}

static void bad_utf8_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"message\":\"\xff\"}", "{\"message\":\"\xc3\"}", "{\"message\":\"\xed\xa0\x80\"}",
        "{\"\x80\":1}",           "\xef\xbb\xbf{}",
    };
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
        g_autoptr(LhObject) object = parse_fields(LH_KIND_RETRY, texts[i]);
        assert_false(lh_object_known(object));
        assert_true(g_utf8_validate(lh_object_error(object), -1, NULL));
    }
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    for (guint depth = 20; depth <= 5000; depth *= 5) {
        g_autofree char *open = g_strnfill(depth, '[');
        g_autofree char *close = g_strnfill(depth, ']');
        g_autofree char *json = g_strdup_printf("{\"url\":\"u\",\"config\":{\"a\":%s%s}}", open,
                                                close);
        g_autoptr(LhObject) object = parse_fields(LH_KIND_SEED, json);
        assert_int_equal(lh_object_known(object), depth == 20);
    }
}

static void duplicate_keys_are_refused(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_fields(LH_KIND_RETRY, "{\"attempt\":1,\"attempt\":2}");
    assert_false(lh_object_known(object));
}

/* Everything that an object's block holds grows beyond what is kept on the stack. */
static void large_objects_are_whole(void **state)
{
    (void)state;
    g_autoptr(GString) json = g_string_new("{\"history\":[");
    for (guint i = 0; i < 900; i++)
        g_string_append_printf(json, "%s{\"start\":%u,\"end\":%u,\"partitions\":[\"p%u\",\"q\"]}",
                               i > 0 ? "," : "", i, i + 1, i);
    g_string_append(json, ",{\"start\":900}]}");
    g_autoptr(LhObject) object = parse_known(LH_KIND_PARTITIONPLAN, json->str);
    const LhArray *history = ((const LhPartitionPlan *)object)->history;
    assert_int_equal(history->n, 901);
    for (guint i = 0; i < 900; i++) {
        const LhPartitionInterval *at = lh_array_at(history, i);
        g_autofree char *name = g_strdup_printf("p%u", i);
        assert_int_equal(at->start, i);
        assert_string_equal(at->partitions[0], name);
        assert_string_equal(at->partitions[1], "q");
        assert_null(at->partitions[2]);
    }
    const LhPartitionInterval *last = lh_array_at(history, 900);
    assert_int_equal(last->end, -1);
    assert_null(last->partitions[0]);
}

static void many_labels_are_sorted(void **state)
{
    (void)state;
    g_autoptr(GString) json = g_string_new("{\"name\":\"node-a\",\"labels\":{");
    for (guint i = 4000; i > 0; i--)
        g_string_append_printf(json, "%s\"k%04u\":\"%u\"", i < 4000 ? "," : "", i, i);
    g_string_append(json, "}}");
    g_autoptr(LhObject) object = parse_known(LH_KIND_NODE, json->str);
    const LhStrMap *labels = ((const LhNode *)object)->labels;
    assert_int_equal(labels->n, 4000);
    for (guint i = 0; i < 4000; i++)
        assert_int_equal(g_ascii_strtoull(labels->pairs[2 * i + 1], NULL, 10), i + 1);
}

static void hostile_strings_on_the_stack_are_printed_safely(void **state)
{
    (void)state;
    const LhRetry retry = {.not_before = -1, .message = "\xff\n\"\x01"};
    g_autofree char *text = lh_object_print(LH_KIND_RETRY, &retry);
    assert_string_equal(text, "{\"attempt\":0,\"parked\":false,\"message\":\"\xef\xbf\xbd\\n\\\""
                              "\\u0001\"}");
    const LhStatus status = {.observed_revision = 1};
    g_autofree char *empty = lh_object_print(LH_KIND_STATUS, &status);
    assert_string_equal(empty, "{\"observedRevision\":1,\"snapshots\":0,\"replicasDesired\":0,"
                               "\"replicasLive\":0}");
}

static void printing_appends(void **state)
{
    (void)state;
    const LhRetry retry = {.attempt = 2, .not_before = -1};
    g_autoptr(GString) out = g_string_new("x=");
    lh_object_append(LH_KIND_RETRY, &retry, out);
    assert_string_equal(out->str, "x={\"attempt\":2,\"parked\":false}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_accepted),
        cmocka_unit_test(required_fields_are_required),
        cmocka_unit_test(null_is_absent_everywhere),
        cmocka_unit_test(wrong_types_are_refused_everywhere),
        cmocka_unit_test(numbers_have_bounds_everywhere),
        cmocka_unit_test(long_strings_are_taken_or_refused_in_few_words),
        cmocka_unit_test(escapes_in_values_and_messages_are_safe),
        cmocka_unit_test(bad_utf8_is_refused),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(duplicate_keys_are_refused),
        cmocka_unit_test(large_objects_are_whole),
        cmocka_unit_test(many_labels_are_sorted),
        cmocka_unit_test(hostile_strings_on_the_stack_are_printed_safely),
        cmocka_unit_test(printing_appends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

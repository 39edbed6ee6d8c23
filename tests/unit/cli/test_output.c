/*
 * Output: exact tables, JSON and YAML; YAML reads back as what it was.
 */
#include "base/units.h"
#include "cli/manifest.h"
#include "cli/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW "2026-05-01T12:00:00.000Z"

typedef struct {
    LhCli cli;
    char *text;
    size_t len;
} Fixture;

static void begin(Fixture *f, LhOutputFormat format)
{
    memset(f, 0, sizeof *f);
    f->cli.out = f->cli.err = open_memstream(&f->text, &f->len);
    f->cli.format = format;
    assert_true(lh_time_parse(NOW, &f->cli.now_ms, NULL));
}

static void assert_written(Fixture *f, const char *expected)
{
    fclose(f->cli.out);
    if (strcmp(f->text, expected) != 0) {
        fail_msg("written:\n%s\nexpected:\n%s", f->text, expected);
    }
    free(f->text);
}

static void assert_list(const char *kind, LhOutputFormat format, const char *items,
                        const char *expected)
{
    Fixture f;
    g_autofree char *text = g_strdup_printf("{\"kind\":\"L\",\"items\":%s}", items);
    g_autoptr(cJSON) list = cJSON_Parse(text);
    assert_non_null(list);
    begin(&f, format);
    lh_output_objects(&f.cli, lh_kind_view(kind), list, FALSE);
    assert_written(&f, expected);
}

static const char services[] =
    "[{\"metadata\":{\"name\":\"api-logs\",\"revision\":12},\"spec\":{\"owner\":\"search\","
    "\"cache\":{\"window\":\"24h\",\"replicas\":2,\"sets\":[\"default\",\"b\"]},\"retention\":\"7d\","
    "\"paused\":false},\"status\":{\"snapshots\":5,\"replicasDesired\":4,\"replicasLive\":3,"
    "\"conditions\":[{\"type\":\"Valid\",\"status\":\"True\"}]}},"
    "{\"metadata\":{\"name\":\"w\"},\"spec\":{\"owner\":\"t\\u00e9am\"}},"
    "{\"metadata\":{\"name\":\"broken\"},\"error\":\"spec.retention: must be a duration\"}]";

static void test_tables(void **state)
{
    (void)state;
    assert_list(
        "service", LH_OUTPUT_TABLE, services,
        "NAME       OWNER    WINDOW   REPLICAS   LIVE   SNAPSHOTS   RETENTION   PAUSED   VALID\n"
        "api-logs   search   24h      2          3/4    5           7d          false    True\n"
        "w          t\xc3\xa9"
        "am     -        -          -      -           -           -        -\n"
        "broken     unknown: spec.retention: must be a duration\n");
    assert_list("Service", LH_OUTPUT_NAME, services,
                "services/api-logs\nservices/w\nservices/broken\n");
    assert_list("ITEMS", LH_OUTPUT_TABLE,
                "[{\"metadata\":{\"name\":\"cache/n-1/s.default.0\"},\"state\":\"loading\","
                "\"bytesDone\":5,\"bytesTotal\":20,\"since\":\"2026-05-01T11:55:00Z\"},"
                "{\"metadata\":{\"name\":\"cache/n-1\"},\"bytesTotal\":0,\"bytesDone\":0}]",
                "POOL    NODE   ITEM          STATE     DONE   SINCE\n"
                "cache   n-1    s.default.0   loading   25%    5m\n"
                "cache   n-1    -             -         -      -\n");
    assert_list(
        "nodes", LH_OUTPUT_TABLE,
        "[{\"metadata\":{\"name\":\"cache/n-1\"},\"name\":\"n\",\"set\":\"default\","
        "\"state\":\"online\",\"capacityBytes\":16106127360,\"warm\":[\"a\",\"b\"],"
        "\"startedAt\":1777629600000,\"status\":{\"policy\":\"drain\"}}]",
        "NAME   POOL    SET       ZONE   STATE    HEALTH   POLICY   CAPACITY   WARM   AGE\n"
        "n-1    cache   default   -      online   -        drain    15 GiB     2      120m\n");
    assert_list("replicas", LH_OUTPUT_TABLE,
                "[{\"metadata\":{\"name\":\"s.default.0\"},\"expiresAt\":\"2026-05-01T13:00:00Z\","
                "\"createdAt\":\"2026-05-01T14:00:00Z\",\"restored\":false},"
                "{\"metadata\":{\"name\":\"t\"},\"expiresAt\":\"2026-05-01T11:59:00Z\"}]",
                "NAME          SERVICE   SET   RESTORED   EXPIRES   AGE\n"
                "s.default.0   -         -     false      in 60m    0s\n"
                "t             -         -     -          60s ago   -\n");
    assert_list("status", LH_OUTPUT_TABLE,
                "[{\"metadata\":{\"name\":\"services/a/admission\"},\"conditions\":[{\"type\":"
                "\"Valid\",\"status\":\"True\"},{\"type\":\"X\"}]}]",
                "NAME                   CONDITIONS\n"
                "services/a/admission   Valid=True,X=?\n");
    assert_list("orphans", LH_OUTPUT_TABLE, "[]", "no orphans found\n");
    assert_list("partitionplans", LH_OUTPUT_WIDE,
                "[{\"metadata\":{\"name\":\"logs\",\"revision\":7},\"history\":[{\"start\":"
                "\"2026-05-01T11:00:00Z\",\"end\":\"2026-05-01T12:15:00Z\",\"partitions\":"
                "[\"a\"]},{\"start\":\"2026-05-01T12:15:00Z\",\"end\":null,\"partitions\":"
                "[\"a\",\"b\"]}]},{\"metadata\":{\"name\":\"none\"},\"history\":[]}]",
                "NAME   PARTITIONS   FROM     INTERVALS   NAMES   REVISION\n"
                "logs   2            in 15m   2           a,b     7\n"
                "none   -            -        0           -       -\n");
}

static void test_crawl_tables(void **state)
{
    static const char seeds[] =
        "[{\"metadata\":{\"name\":\"blog\",\"revision\":9},\"spec\":{\"url\":\"https://b.example/\","
        "\"state\":\"started\",\"throttle\":\"polite\",\"priority\":3},\"status\":{\"state\":\"Live\","
        "\"owner\":\"m-1-0a1b2c3d\",\"since\":\"2026-05-01T11:55:00Z\",\"reason\":\"spread\"}},"
        "{\"metadata\":{\"name\":\"wiki\"},\"spec\":{\"connector\":\"wiki\",\"state\":\"paused\"}}]";
    (void)state;
    assert_list("seeds", LH_OUTPUT_TABLE, seeds,
                "NAME   STATE   OWNER          THROTTLE   SINCE   VALID\n"
                "blog   Live    m-1-0a1b2c3d   polite     5m      -\n"
                "wiki   -       -              -          -       -\n");
    assert_list(
        "seeds", LH_OUTPUT_WIDE, seeds,
        "NAME   STATE   OWNER          THROTTLE   SINCE   VALID   WANTED    URL                  "
        "CONNECTOR   PRIORITY   REASON   REVISION\n"
        "blog   Live    m-1-0a1b2c3d   polite     5m      -       started   https://b.example/   "
        "-           3          spread   9\n"
        "wiki   -       -              -          -       -       paused    -                    "
        "wiki        -          -        -\n");
    assert_list(
        "throttles", LH_OUTPUT_TABLE,
        "[{\"metadata\":{\"name\":\"polite\"},\"spec\":{\"requests\":100,\"period\":\"1m\","
        "\"maxConcurrent\":4},\"status\":{\"seeds\":3,\"holder\":\"m-1-0a1b2c3d\"}},"
        "{\"metadata\":{\"name\":\"idle\"},\"spec\":{\"maxConcurrent\":1},\"status\":{\"seeds\":0}}]",
        "NAME     REQUESTS   PERIOD   MAX   SEEDS   HOLDER         VALID\n"
        "polite   100        1m       4     3       m-1-0a1b2c3d   -\n"
        "idle     -          -        1     0       -              -\n");
    assert_list(
        "nodes", LH_OUTPUT_TABLE,
        "[{\"metadata\":{\"name\":\"manager/m-1-0a1b2c3d\"},\"name\":\"m-1\",\"state\":\"online\","
        "\"startedAt\":1777629600000,\"status\":{\"health\":\"probation\"}}]",
        "NAME           POOL      SET   ZONE   STATE    HEALTH      POLICY   CAPACITY   WARM   AGE\n"
        "m-1-0a1b2c3d   manager   -     -      online   probation   -        -          -      120m\n");
}

/* Every kind has a table that can show an empty object. */
static void test_all_kinds(void **state)
{
    (void)state;
    guint n;
    const LhKindView *views = lh_kind_views(&n);
    assert_int_equal(n, 26);
    for (guint i = 0; i < n; i++) {
        assert_ptr_equal(lh_kind_view(views[i].kind), &views[i]);
        assert_ptr_equal(lh_kind_view(views[i].plural), &views[i]);
        Fixture f;
        g_autoptr(cJSON) list = cJSON_Parse("{\"items\":[{},{\"error\":\"e\"}]}");
        begin(&f, LH_OUTPUT_WIDE);
        lh_output_objects(&f.cli, &views[i], list, FALSE);
        fclose(f.cli.out);
        g_auto(GStrv) lines = g_strsplit(f.text, "\n", -1);
        assert_int_equal(g_strv_length(lines), 4);
        assert_true(g_str_has_prefix(lines[1], "-  "));
        free(f.text);
    }
    assert_null(lh_kind_view("nothing"));
    g_autoptr(GError) error = NULL;
    assert_null(lh_kind_view_or("nothing", &error));
    assert_non_null(strstr(error->message, "services, seeds"));
}

static void test_control_characters(void **state)
{
    (void)state;
    assert_list("confirmations", LH_OUTPUT_TABLE,
                "[{\"metadata\":{\"name\":\"a\"},\"spec\":{\"planHash\":"
                "\"x\\u001b[2J\\u009b\\ny\\u202e\\u007f\"}}]",
                "NAME   PLAN         VALID\na      x?[2J??y??   -\n");
    Fixture f;
    begin(&f, LH_OUTPUT_TABLE);
    lh_output_text(f.cli.out, "one\x1b[1m\ntwo\xff\r\n");
    assert_written(&f, "one?[1m\ntwo\xef\xbf\xbd?\n");
}

static void test_json(void **state)
{
    (void)state;
    g_autoptr(cJSON) value = cJSON_Parse(
        "{\"a\":[1,{\"b\":null}],\"c\":{},\"d\":[],\"e\":\"\\u001b\\n\","
        "\"f\":9007199254740991,\"g\":1.5}");
    g_autofree char *text = lh_json_pretty(value);
    assert_string_equal(text, "{\n  \"a\": [\n    1,\n    {\n      \"b\": null\n    }\n  ],\n"
                              "  \"c\": {},\n  \"d\": [],\n  \"e\": \"\\u001b\\n\",\n"
                              "  \"f\": 9007199254740991,\n  \"g\": 1.5\n}\n");
}

static void test_yaml(void **state)
{
    (void)state;
    g_autoptr(cJSON) value = cJSON_Parse(
        "{\"kind\":\"Service\",\"spec\":{\"window\":\"24h\",\"n\":2,\"t\":true,"
        "\"z\":null,\"sets\":[\"a\",\"no\"],\"empty\":{},\"none\":[],\"time\":"
        "\"2026-05-01T12:00:00Z\",\"text\":\"two\\nlines\\n\"}}");
    g_autofree char *text = lh_yaml_print(value);
    assert_string_equal(text,
                        "kind: Service\nspec:\n  window: 24h\n  'n': 2\n  t: true\n  z: null\n"
                        "  sets:\n  - a\n  - 'no'\n  empty: {}\n  none: []\n"
                        "  time: '2026-05-01T12:00:00Z'\n  text: |\n    two\n    lines\n");
}

/* What is written as YAML reads back as the same, also for a reader of YAML 1.1 as far as strings
 * are quoted that one would take for something else. */
static void test_yaml_reads_back(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "~",
        "null",
        "Null",
        "yes",
        "No",
        "ON",
        "y",
        "true",
        "TRUE",
        "0",
        "-1",
        "+1",
        "1.5",
        ".5",
        "1e3",
        "0o17",
        "0x1F",
        "0b11",
        "1_000",
        "1:30:00",
        ".inf",
        "-.INF",
        ".nan",
        "<<",
        "=",
        "- a",
        "? a",
        "a: b",
        "a #b",
        "#a",
        "&a",
        "*a",
        "!a",
        "!!str",
        "%a",
        "@a",
        "`a",
        "'a'",
        "\"a\"",
        "{a}",
        "[a]",
        "a,b",
        "|",
        ">",
        "a\nb",
        "a\n",
        "\na",
        "a\n\n",
        " a\n b",
        "a\tb",
        "\t",
        "a ",
        "---",
        "...",
        "--- a",
        "caf\xc3\xa9",
        "\xf0\x9f\x98\x80",
        "\x1b[0m",
        "a\r\nb",
        "\xc2\x85",
        "\xe2\x80\xa8",
        "\x7f",
        "24h",
        "15Gi",
        "2026-05-01",
        "2026-05-01T12:00:00.000Z",
        "a: |\n  b",
        "12e",
        "0x",
        "-",
    };
    g_autoptr(cJSON) value = cJSON_CreateObject();
    cJSON *all = cJSON_AddArrayToObject(value, "all");
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
        cJSON_AddItemToArray(all, cJSON_CreateString(texts[i]));
        if (cJSON_GetObjectItemCaseSensitive(value, texts[i]) == NULL) {
            cJSON_AddItemToObject(value, texts[i], cJSON_CreateString(texts[i]));
        }
    }
    cJSON_AddNumberToObject(value, "int", 9007199254740991.0);
    cJSON_AddNumberToObject(value, "float", 0.1);
    g_autofree char *yaml = lh_yaml_print(value);
    g_autoptr(GPtrArray) out = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    if (!lh_manifest_parse("f", yaml, strlen(yaml), FALSE, out, &error)) {
        fail_msg("%s\n%s", error->message, yaml);
    }
    const cJSON *again = ((LhManifest *)out->pdata[0])->object;
    g_autofree char *before = lh_json_print(value), *after = lh_json_print(again);
    assert_string_equal(before, after);
    assert_non_null(strstr(yaml, "'yes'"));
    assert_non_null(strstr(yaml, "'1:30:00'"));
}

static void test_age(void **state)
{
    (void)state;
    static const struct {
        gint64 seconds;
        const char *text;
    } cases[] = {
        {-5, "0s"},
        {0, "0s"},
        {119, "119s"},
        {120, "2m"},
        {125, "2m5s"},
        {600, "10m"},
        {659, "10m"},
        {10799, "179m"},
        {10800, "3h"},
        {11000, "3h3m"},
        {28800, "8h"},
        {172799, "47h"},
        {172800, "2d"},
        {180000, "2d2h"},
        {8 * 86400 + 5000, "8d"},
        {4000000000, "46296d"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text = lh_age_text(cases[i].seconds * 1000);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_crawl_tables),
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_yaml_reads_back),
        cmocka_unit_test(test_age),
    };
    return cmocka_run_group_tests_name("cli/output", tests, NULL, NULL);
}

/* links: http */
/*
 * The commands that go on: get --watch, events --watch, wait.
 */
#include "base/units.h"
#include "world.h"

/* ---- watching ---- */

/* The server serves one watch and refuses the next one, which ends the command. */
static void watch_once(World *world, const char *plural, const char *events)
{
    g_autofree char *text = g_strconcat(events, "\nclose", NULL);
    sends(world, plural, text);
}

/* "12:34:56Z   " and @rest. */
static void assert_row(const char *line, const char *rest)
{
    if (!g_regex_match_simple("^[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z   ", line, 0, 0) ||
        !g_str_has_prefix(line + strlen("12:34:56Z   "), rest))
        fail_msg("%s", line);
}

/* The first row makes the header as wide as it needs; what there is not is said. */
static void test_get_watch_begins_empty(void **state)
{
    World *world = *state;
    world->refuses = TRUE;
    watch_once(world, "services",
               "PUT 101 {\"metadata\":{\"name\":\"much-longer-than-its-title\"}}");
    assert_run(4, "get", "services", "-w");
    g_auto(GStrv) lines = g_strsplit(world->out, "\n", -1);
    assert_true(
        g_str_has_prefix(lines[0], "TIME        EVENT    NAME                         OWNER"));
    assert_row(lines[1], "PUT      much-longer-than-its-title   -");
    assert_true(g_str_has_prefix(world->err, "no services yet\n"));
}

/* What changes beside the columns gives no second row; with -o json it does. */
static void test_get_watch_repeats_nothing(void **state)
{
    World *world = *state;
    static const char events[] =
        "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"owner\":\"me\"}}\n"
        "PUT 102 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"owner\":\"me\",\"x\":1}}\n"
        "PUT 103 {\"metadata\":{\"name\":\"b\"},\"spec\":{\"owner\":\"me\"}}\n"
        "PUT 104 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"owner\":\"you\"}}\n"
        "DELETE 105 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"owner\":\"you\"}}\n"
        "PUT 106 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"owner\":\"you\"}}";
    static const char *const rows[] = {"PUT      a      me ", "PUT      b      me ",
                                       "PUT      a      you ", "DELETE   a      you ",
                                       "PUT      a      you "};
    world->refuses = TRUE;
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "-w");
    g_auto(GStrv) lines = g_strsplit(world->out, "\n", -1);
    assert_int_equal(g_strv_length(lines), G_N_ELEMENTS(rows) + 2);
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        assert_row(lines[i + 1], rows[i]);
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "-w", "-o", "json");
    g_auto(GStrv) all = g_strsplit(world->out, "\n", -1);
    assert_int_equal(g_strv_length(all), 6 + 1);
}

static void test_get_watch(void **state)
{
    World *world = *state;
    static const char events[] =
        "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"owner\":\"you\"}}\n"
        "OTHER 102 {}\n"
        "PUT 102 {\"metadata\":{\"name\":\"b\"}}\n"
        "DELETE 103 {\"metadata\":{\"name\":\"a\"}}";
    has_service(world, "a", "me", 10);
    world->refuses = TRUE;

    watch_once(world, "services", events);
    assert_run(4, "get", "services", "-w", "-o", "name");
    assert_string_equal(world->out, "services/a\nservices/a\nservices/b\nservices/a deleted\n");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "a", "-w", "-o", "jsonpath={.spec.owner}");
    assert_string_equal(world->out, "me\nyou\n\n");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "b", "-w", "-o", "json");
    assert_string_equal(world->out, "{\"event\":\"PUT\",\"revision\":102,\"object\":"
                                    "{\"metadata\":{\"name\":\"b\"}}}\n");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "a", "-w");
    g_auto(GStrv) lines = g_strsplit(world->out, "\n", -1);
    assert_int_equal(g_strv_length(lines), 5);
    /* The time of the line: an age would be that of the moment when it was written. */
    assert_true(g_str_has_prefix(lines[0], "TIME        EVENT    NAME   OWNER   WINDOW"));
    assert_row(lines[1], "LIST     a      me ");
    assert_row(lines[2], "PUT      a      you ");
    assert_row(lines[3], "DELETE   a      - ");
    assert_string_equal(world->err, "leasehold: services: enough\n");

    /* Forgotten: listed again. */
    answers(world, "WATCH services", "410 {\"detail\":\"compacted\"}");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "a", "-w", "-o", "name");
    assert_string_equal(world->out, "services/a\nservices/a\nservices/a\nservices/a deleted\n");
    assert_contains(world->err, "forgotten revision 100; listing again\n");

    /* Nonsense ends it. */
    watch_once(world, "services", "PUT 101 {nonsense");
    assert_run(1, "get", "services", "-w");
}

static void test_events_watch(void **state)
{
    World *world = *state;
    has(world, "events/1",
        "{\"metadata\":{\"name\":\"1\",\"revision\":50},\"object\":"
        "\"services/a\",\"reason\":\"Old\"}");
    world->refuses = TRUE;
    watch_once(world, "events",
               "PUT 101 {\"object\":\"services/b\",\"reason\":\"Other\"}\n"
               "PUT 102 {\"object\":\"services/a\",\"reason\":\"New\"}\n"
               "DELETE 103 {\"object\":\"services/a\"}");
    assert_run(4, "events", "-w", "--for", "services/a", "-o", "json");
    assert_contains(world->out, "\"Old\"}\n{\"object\":\"services/a\",\"reason\":\"New\"}\n");
    assert_null(strstr(world->out, "Other"));
}

/* Rows come one by one, and are of one width; their times are those of the events. */
static void test_events_watch_table(void **state)
{
    World *world = *state;
    g_autofree char *now = lh_time_format(g_get_real_time() / 1000);
    g_autofree char *recent = g_strdup_printf(
        "PUT 101 {\"object\":\"services/a\",\"type\":\"Normal\",\"reason\":\"DeletionDecided\","
        "\"count\":1,\"message\":\"m\",\"time\":\"%s\"}",
        now);
    g_autofree char *clock = g_strdup_printf("%.8sZ ", now + strlen("2026-05-01T"));
    has(world, "events/1",
        "{\"metadata\":{\"name\":\"1\",\"revision\":50},\"object\":\"services/a\",\"type\":"
        "\"Warning\",\"reason\":\"Old\",\"time\":\"2026-05-01T12:00:00.000Z\"}");
    world->refuses = TRUE;
    watch_once(world, "events", recent);
    assert_run(4, "events", "-w");
    g_auto(GStrv) lines = g_strsplit(world->out, "\n", -1);
    assert_true(
        g_str_has_prefix(lines[0], "TIME                   TYPE      REASON              OBJECT "));
    assert_true(g_str_has_prefix(
        lines[1], "2026-05-01T12:00:00Z   Warning   Old                 services/a "));
    assert_non_null(strstr(lines[2], "Normal    DeletionDecided     services/a "));
    assert_true(g_str_has_prefix(lines[2], clock));
}

static const char live_item[] =
    "PUT 101 {\"metadata\":{\"name\":\"cache/n/s.default.0\"},\"state\":\"live\"}";

static void test_wait_object(void **state)
{
    World *world = *state;
    has(world, "services/a",
        "{\"metadata\":{\"name\":\"a\",\"revision\":10},\"spec\":{\"n\":3},"
        "\"status\":{\"observedRevision\":10,\"state\":\"started\",\"conditions\":"
        "[{\"type\":\"Valid\",\"status\":\"True\"},{\"type\":\"Ready\",\"status\":"
        "\"False\",\"reason\":\"R\",\"message\":\"m\"}]}}");
    assert_run(0, "wait", "service", "a", "--for", "condition=Valid");
    assert_string_equal(world->out, "services/a condition met\n");
    assert_run(0, "wait", "service", "a", "--for=condition=Ready=False");
    assert_run(0, "wait", "service", "a", "--for=state=Started");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=3");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}");
    assert_run(0, "wait", "service", "gone", "--for=delete");
    assert_run(4, "wait", "service", "gone", "--for=condition=Valid");
    assert_run(1, "wait", "service", "a", "--for=condition=Ready", "--timeout=50ms");
    assert_string_equal(world->err, "leasehold: services/a: condition=Ready not met within 50ms: "
                                    "Ready=False: R: m\n");
    assert_run(2, "wait", "service", "a", "--for=delete", "--timeout=soon");

    sends(world, "services",
          "PUT 101 {\"metadata\":{\"name\":\"b\"},\"spec\":{\"n\":4}}\n"
          "PUT 102 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":4}}");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=4");
    sends(world, "services", "DELETE 103 {\"metadata\":{\"name\":\"a\"}}");
    assert_run(0, "wait", "service", "a", "--for=delete");
    sends(world, "services", "DELETE 103 {\"metadata\":{\"name\":\"a\"}}");
    assert_run(1, "wait", "service", "a", "--for=condition=Ready");
    assert_contains(world->err, "cannot come true: it was deleted\n");
}

static void test_wait_hopeless(void **state)
{
    World *world = *state;
    has(world, "services/a",
        "{\"metadata\":{\"name\":\"a\",\"revision\":10},\"status\":{"
        "\"observedRevision\":9,\"conditions\":[{\"type\":\"Valid\",\"status\":"
        "\"False\",\"reason\":\"R\",\"message\":\"m\"}]}}");
    /* Of an older revision: says nothing, neither good nor bad. */
    assert_run(1, "wait", "service", "a", "--for=condition=Valid=False", "--timeout=50ms");
    assert_contains(world->err, "not met within 50ms: Valid is not known yet");
    sends(
        world, "services",
        "PUT 101 {\"metadata\":{\"name\":\"a\",\"revision\":10},\"status\":{\"observedRevision\":10,"
        "\"conditions\":[{\"type\":\"Valid\",\"status\":\"False\",\"reason\":\"R\",\"message\":\"m\"}]}}");
    assert_run(1, "wait", "service", "a", "--for=condition=Ready");
    assert_string_equal(world->err, "leasehold: services/a: condition=Ready cannot come true: "
                                    "Valid=False: R: m\n");
    has(world, "restoreprogress/r",
        "{\"metadata\":{\"name\":\"r\"},\"phase\":\"Refused\","
        "\"message\":\"no such service\"}");
    assert_run(1, "wait", "restoreprogress", "r", "--for=state=Completed");
    assert_contains(world->err, "Refused: no such service\n");
    assert_run(0, "wait", "restoreprogress", "r", "--for=state=refused");
}

static void test_wait_live(void **state)
{
    World *world = *state;
    /* The replica does not exist yet; its item becomes live. */
    sends(world, "items", live_item);
    assert_run(0, "wait", "replica", "s.default.0", "--for=live");
    sends(world, "items", live_item);
    assert_run(0, "wait", "snapshot", "s", "--for=Live");
    /* Somebody else's. */
    sends(world, "items", live_item);
    assert_run(1, "wait", "replica", "t.default.0", "--for=live", "--timeout=200ms");
    sends(world, "items", live_item);
    assert_run(1, "wait", "snapshot", "s.default", "--for=live", "--timeout=200ms");
    /* Already so. */
    has(world, "items/cache/n/u.v.default.1",
        "{\"metadata\":{\"name\":\"cache/n/u.v.default.1\"},\"state\":\"live\"}");
    assert_run(0, "wait", "snapshot", "u.v", "--for=live");
    assert_run(1, "wait", "snapshot", "u", "--for=live", "--timeout=50ms");
    assert_run(0, "wait", "replica", "u.v.default.1", "--for=state=live");
    /* Failed, but tried again; then for good. */
    sends(world, "items",
          "PUT 101 {\"metadata\":{\"name\":\"cache/n/w.default.0\"},\"state\":\"failed\"}");
    assert_run(1, "wait", "replica", "w.default.0", "--for=live", "--timeout=200ms");
    assert_contains(world->err, "not met within 200ms: item cache/n/w.default.0 is failed\n");
    sends(world, "retries",
          "PUT 101 {\"metadata\":{\"name\":\"cache/w.default.0\"},\"attempt\":1}\n"
          "PUT 102 {\"metadata\":{\"name\":\"cache/w.default.0\"},\"parked\":true,"
          "\"message\":\"disk full\"}");
    assert_run(1, "wait", "replica", "w.default.0", "--for=live");
    assert_contains(world->err,
                    "cannot come true: cache/w.default.0 has failed for good: disk full\n");
    has(world, "replicas/x.default.0", "{\"metadata\":{\"name\":\"x.default.0\"}}");
    sends(world, "replicas", "DELETE 101 {\"metadata\":{\"name\":\"x.default.0\"}}");
    assert_run(1, "wait", "replica", "x.default.0", "--for=live");
    assert_contains(world->err, "it was deleted\n");
}

/* What changes after the first look and before the watch is seen. */
static void test_wait_gap(void **state)
{
    World *world = *state;
    has(world, "services/a", "{\"metadata\":{\"name\":\"a\"}}");
    world->late_key = g_strdup("services/a");
    world->late_text = g_strdup("{\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":4}}");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=4");
}

/* Connections that end, and revisions that are forgotten, do not end a wait. */
static void test_wait_again(void **state)
{
    World *world = *state;
    has(world, "services/a", "{\"metadata\":{\"name\":\"a\"}}");
    answers(world, "WATCH services", "410 {\"detail\":\"compacted\"}");
    sends(world, "services", "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":4}}");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=4");
    assert_int_equal(world->n_watches, 1);

    sends(world, "services", "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":5}}\nclose");
    assert_run(1, "wait", "service", "a", "--for=jsonpath={.spec.n}=6", "--timeout=1500ms");
    assert_int_equal(world->n_watches, 3);
    answers(world, "WATCH services", "403 {\"detail\":\"viewers may not\"}");
    assert_run(4, "wait", "service", "a", "--for=delete");
    assert_string_equal(world->err, "leasehold: services: viewers may not\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_get_watch),
        test_case(test_events_watch),
        test_case(test_wait_object),
        test_case(test_wait_hopeless),
        test_case(test_wait_live),
        test_case(test_wait_gap),
        test_case(test_wait_again),
        test_case(test_get_watch_begins_empty),
        test_case(test_get_watch_repeats_nothing),
        test_case(test_events_watch_table),
    };
    return cmocka_run_group_tests_name("cli/watching", tests, NULL, NULL);
}

/* links: http */
/*
 * restore: what is asked for, and how the wait ends.
 */
#include "cli/progress.h"
#include "world.h"

#define MADE "201 {\"metadata\":{\"name\":\"r\",\"revision\":50},\"spec\":{}}"

static void asked(World *world)
{
    answers(world, "POST restores", MADE);
    has(world, "restores/r", "{\"metadata\":{\"name\":\"r\",\"revision\":50},\"spec\":{}}");
}

static void has_progress(World *world, const char *fields)
{
    g_autofree char *text = g_strdup_printf(
        "{\"metadata\":{\"name\":\"r\",\"revision\":60},\"observedRevision\":50,%s}", fields);
    has(world, "restoreprogress/r", text);
}

static void test_the_request(void **state)
{
    World *world = *state;
    asked(world);
    assert_run(0, "restore", "api", "--from", "2026-01-01T00:00:00Z", "--to", "1767312000000");
    assert_string_equal(world->out, "restores/r created\n");
    assert_true(was_asked(world, "POST restores {\"spec\":{\"service\":\"api\","
                                 "\"startTime\":\"2026-01-01T00:00:00.000Z\","
                                 "\"endTime\":\"2026-01-02T00:00:00.000Z\"}}"));
    answers(world, "POST restores", MADE);
    assert_run(0, "restore", "*", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z",
               "--ttl", "2h", "--name", "r", "-o", "name");
    assert_string_equal(world->out, "restores/r\n");
    assert_true(was_asked(world, "POST restores {\"metadata\":{\"name\":\"r\"},\"spec\":{"
                                 "\"service\":\"*\",\"startTime\":\"2026-01-01T00:00:00.000Z\","
                                 "\"endTime\":\"2026-01-01T00:00:00.000Z\",\"ttl\":\"2h\"}}"));
    answers(world, "POST restores", MADE);
    assert_run(0, "restore", "api", "--from", "3d", "--to", "2d");
}

static void test_bad_usage(void **state)
{
    World *world = *state;
    assert_run(2, "restore");
    assert_run(2, "restore", "api", "--to", "1d");
    assert_string_equal(world->err, "leasehold: restore: --from TIME is missing\n");
    assert_run(2, "restore", "api", "--from", "yesterday", "--to", "1d");
    assert_contains(world->err, "--from yesterday: must be a time");
    assert_run(2, "restore", "api", "--from", "1d", "--to", "2d");
    assert_contains(world->err, "--from must not be later than --to");
    assert_run(2, "restore", "api", "--from", "2d", "--to", "1d", "--ttl", "long");
    assert_contains(world->err, "--ttl long");
    assert_run(2, "restore", "api", "--from", "2d", "--to", "1d", "--timeout", "-");
    answers(world, "POST restores", "422 {\"detail\":\"must be above 0\",\"field\":\"spec.ttl\"}");
    assert_run(2, "restore", "api", "--from", "2d", "--to", "1d", "--ttl", "0s");
    answers(world, "POST restores", "412 {\"detail\":\"Restore r exists already\"}");
    assert_run(4, "restore", "api", "--from", "2d", "--to", "1d", "--name", "r");
    answers(world, "POST restores", "403 {\"detail\":\"the role operator is needed\"}");
    assert_run(4, "restore", "api", "--from", "2d", "--to", "1d");
    assert_run(3, "restore", "api", "--from", "2d", "--to", "1d", "--server", "http://127.0.0.1:1");
}

#define WAIT "restore", "api", "--from", "2d", "--to", "1d", "--wait"

static void test_it_waits_until_all_are_live(void **state)
{
    World *world = *state;
    asked(world);
    has_progress(world, "\"phase\":\"Pending\",\"replicas\":2,\"live\":0");
    sends(world, "restoreprogress",
          "PUT 101 {\"metadata\":{\"name\":\"other\"},\"observedRevision\":99,\"phase\":\"Active\","
          "\"replicas\":0,\"live\":0}\n"
          "PUT 102 {\"metadata\":{\"name\":\"r\"},\"observedRevision\":49,\"phase\":\"Active\","
          "\"replicas\":0,\"live\":0}\n"
          "PUT 103 {\"metadata\":{\"name\":\"r\"},\"observedRevision\":50,\"phase\":\"Active\","
          "\"replicas\":2,\"live\":1}\n"
          "PUT 104 {\"metadata\":{\"name\":\"r\"},\"observedRevision\":50,\"phase\":\"Active\","
          "\"replicas\":2,\"live\":2}");
    assert_run(0, WAIT);
    assert_string_equal(world->out, "restores/r created\n"
                                    "0/2 live, Pending\n"
                                    "1/2 live, Active\n"
                                    "2/2 live, Active\n"
                                    "restores/r restored\n");
}

static void test_it_ends_at_failure(void **state)
{
    World *world = *state;
    asked(world);
    has_progress(world, "\"phase\":\"Refused\",\"replicas\":201,\"live\":0,"
                        "\"message\":\"it needs 201 replicas, maxReplicasPerRestore is 200\"");
    assert_run(4, WAIT);
    assert_string_equal(world->err, "leasehold: restores/r: refused: it needs 201 replicas, "
                                    "maxReplicasPerRestore is 200\n");
    asked(world);
    has_progress(world, "\"phase\":\"Active\",\"replicas\":3,\"live\":2,\"givenUp\":1,"
                        "\"message\":\"1 of 3 given up\"");
    assert_run(1, WAIT);
    assert_contains(world->err, "failed: 2 of 3 live, Active: 1 of 3 given up");
    asked(world);
    has_progress(world, "\"phase\":\"Active\",\"replicas\":3,\"live\":2");
    assert_run(1, WAIT, "--timeout", "50ms");
    assert_contains(world->err, "restores/r: not restored within 50ms: 2 of 3 live, Active");
    asked(world);
    sends(world, "restores", "DELETE 101 {\"metadata\":{\"name\":\"r\"}}");
    assert_run(1, WAIT);
    assert_contains(world->err, "it was deleted");
    asked(world);
    has(world, "replicas/s.default.r0",
        "{\"metadata\":{\"name\":\"s.default.r0\"},\"restore\":\"r\"}");
    has(world, "retries/cache/s.default.r0",
        "{\"metadata\":{\"name\":\"cache/s.default.r0\"},\"parked\":true,\"message\":\"no such file\"}");
    assert_run(1, WAIT);
    assert_contains(world->err, "cache/s.default.r0 has failed for good: no such file");
}

static void test_nothing_to_restore_is_done(void **state)
{
    World *world = *state;
    asked(world);
    has_progress(world, "\"phase\":\"Completed\",\"replicas\":0,\"live\":0,"
                        "\"message\":\"2 are there without it\"");
    assert_run(0, WAIT);
    assert_contains(world->out,
                    "0/0 live, Completed: 2 are there without it\nrestores/r restored\n");
    asked(world);
    assert_run(0, WAIT, "-o", "jsonpath={.results[*].result}");
    assert_string_equal(world->out, "restored");
}

static void test_the_bar(void **state)
{
    (void)state;
    static const struct {
        gint64 done, of;
        const char *bar;
    } rows[] = {
        {0, 4, "[>   ]"}, {1, 4, "[=>  ]"}, {3, 4, "[===>]"}, {4, 4, "[====]"},
        {9, 4, "[====]"}, {0, 0, "[====]"}, {1, 3, "[=>  ]"}, {2, 1000, "[>   ]"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *bar = lh_progress_bar(rows[i].done, rows[i].of, 4);
        assert_string_equal(bar, rows[i].bar);
    }
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    LhProgress progress = {.out = out, .terminal = TRUE};
    lh_progress_show(&progress, 1, 2, "live, Pending");
    lh_progress_show(&progress, 1, 2, "live, Pending");
    lh_progress_show(&progress, 2, 2, "live");
    lh_progress_end(&progress);
    fclose(out);
    assert_string_equal(text, "\r[===============>              ] 1/2 live, Pending"
                              "\r[==============================] 2/2 live         \n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_the_request),
        test_case(test_bad_usage),
        test_case(test_it_waits_until_all_are_live),
        test_case(test_it_ends_at_failure),
        test_case(test_nothing_to_restore_is_done),
        cmocka_unit_test(test_the_bar),
    };
    return cmocka_run_group_tests_name("cli/restore", tests, NULL, NULL);
}

/* links: http */
/*
 * The program as a whole: its help, its exit codes, its errors, its token.
 */
#include "world.h"

/* ---- usage, exit codes, errors ---- */

static void test_usage(void **state)
{
    World *world = *state;
    assert_run(0, "--help");
    assert_contains(world->out, "\n  apply ");
    assert_contains(world->out, "\n  manager ");
    /* Every text begins in the same column. */
    assert_contains(world->out, "\n  get         list or");
    assert_contains(world->out, "\n  completion  a script");
    assert_run(0, "help");
    assert_run(0, "help", "wait");
    assert_contains(world->out, "condition=TYPE");
    assert_run(0, "wait", "--help");
    assert_contains(world->out, "--timeout DURATION");
    assert_int_equal(run(world, NULL), 2);
    assert_contains(world->err, "usage: leasehold");
    static const struct {
        const char *args[4], *message;
    } cases[] = {
        {{"gte", "services"}, "leasehold: gte: unknown command; did you mean \"get\"?\n"},
        {{"desc"}, "leasehold: desc: unknown command; did you mean \"describe\"?\n"},
        {{"zzzzzzzz"}, "leasehold: zzzzzzzz: unknown command; see \"leasehold --help\"\n"},
        {{"help", "gte"}, "did you mean \"get\"?\n"},
        {{"get"}, "leasehold: get: wrong arguments; usage: leasehold get KIND [NAME…]\n"},
        {{"get", "services", "--nope"}, "leasehold: get: Unknown option --nope\n"},
        {{"get", "services", "-o", "xml"}, "leasehold: -o xml: must be table"},
        {{"get", "services", "-ojsonpath={.a"}, "leasehold: jsonpath {.a: expected }"},
        {{"get", "widgets"}, "leasehold: kind widgets: unknown; there are services, "},
        {{"get", "services", "a", "-lx=y"}, "leasehold: get: -l and names"},
        {{"apply"}, "leasehold: apply: -f FILE is missing\n"},
        {{"apply", "-f", "/nonexistent.yaml"}, "leasehold: /nonexistent.yaml: No such file"},
        {{"delete", "service"}, "leasehold: delete: give either"},
        {{"explain", "cache"}, "leasehold: explain: cache: must be POOL/ITEM\n"},
        {{"wait", "service", "a"}, "leasehold: wait: --for is missing"},
        {{"wait", "service", "a", "--for=x"}, "leasehold: wait: --for x: must be live"},
        {{"wait", "service", "--for=jsonpath={.a}b", "a"}, "must be jsonpath={PATH}"},
        {{"confirm", "cache-evictor"}, "leasehold: confirm: --plan HASH is missing"},
        {{"cordon", "cache"}, "usage: leasehold cordon POOL/NODE-NAME\n"},
        {{"retry", "cache/a/b"}, "usage: leasehold retry POOL/ITEM\n"},
        {{"get", "services", "--server", "ftp://x"}, "leasehold: server ftp://x: must be http"},
        {{"get", "services", "--server=http://u@x/"}, "must be http://address:port"},
        {{"events", "--for", "a"}, "leasehold: events: --for a: must be KIND/NAME\n"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *const *a = cases[i].args;
        assert_run(2, a[0], a[1], a[2], a[3]);
        assert_contains(world->err, cases[i].message);
        assert_string_equal(world->out, "");
    }
    assert_int_equal(world->requests->len, 0);
}

static void test_exit_codes(void **state)
{
    World *world = *state;
    static const struct {
        int status, code;
    } cases[] = {
        {400, 2}, {401, 3}, {403, 4}, {404, 4}, {405, 4}, {409, 4}, {410, 4}, {412, 4}, {413, 2},
        {415, 2}, {422, 2}, {429, 3}, {500, 1}, {502, 3}, {503, 3}, {504, 3}, {507, 3}, {302, 1},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *reply = g_strdup_printf("%d {\"title\":\"T\",\"detail\":\"because\"}",
                                                 cases[i].status);
        answers(world, "GET services/a", reply);
        assert_run(cases[i].code, "get", "service", "a");
        assert_string_equal(world->err, "leasehold: services/a: because\n");
    }
    answers(world, "GET services/a", "503 <html>");
    assert_run(3, "get", "service", "a");
    assert_string_equal(world->err, "leasehold: services/a: the server answered 503\n");
    answers(world, "GET services/a", "200 nonsense");
    assert_run(1, "get", "service", "a");
    answers(world, "GET services", "200 {\"items\":7}");
    assert_run(1, "get", "service");

    assert_run(3, "--server", "http://127.0.0.1:1", "get", "services");
    assert_true(g_str_has_prefix(world->err, "leasehold: server http://127.0.0.1:1: "));
    assert_run(3, "get", "services", "--server", "http://127.0.0.1:1/", "-o", "json");
    g_autoptr(cJSON) problem = cJSON_Parse(world->err);
    assert_string_equal(lh_json_get_string(problem, "title", ""), "Unreachable");
}

static void test_problems_as_json(void **state)
{
    World *world = *state;
    answers(world, "GET services/a",
            "400 {\"type\":\"about:blank\",\"status\":400,\"detail\":\"too long\",\"field\":"
            "\"spec.owner\"}");
    assert_run(2, "get", "service", "a");
    assert_string_equal(world->err, "leasehold: services/a: spec.owner: too long\n");
    assert_run(2, "get", "service", "a", "-o", "json");
    assert_string_equal(world->err, "{\"type\":\"about:blank\",\"status\":400,\"detail\":"
                                    "\"too long\",\"field\":\"spec.owner\","
                                    "\"instance\":\"/v1/services/a\"}\n");
    assert_run(2, "get", "widgets", "-ojson");
    assert_true(g_str_has_prefix(world->err,
                                 "{\"type\":\"about:blank\",\"title\":\"Invalid input\","
                                 "\"detail\":\"kind widgets: unknown"));
    answers(world, "GET services/a", "400 {\"detail\":\"a\\nb\\u001b[2J\"}");
    assert_run(2, "get", "service", "a");
    assert_string_equal(world->err, "leasehold: services/a: a b?[2J\n");
}

static void test_token(void **state)
{
    World *world = *state;
    world->token = g_strdup("s3cret");
    assert_run(3, "get", "services");
    g_autofree char *path = file(world, "token", "s3cret\n");
    assert_run(0, "get", "services", "--token-file", path);
    g_setenv("LEASEHOLD_TOKEN", "s3cret", TRUE);
    assert_run(0, "get", "services");
    g_setenv("LEASEHOLD_TOKEN", "a\r\nX-B: c", TRUE);
    assert_run(2, "get", "services");
    g_unsetenv("LEASEHOLD_TOKEN");
    g_autofree char *empty = file(world, "empty", "\n");
    assert_run(2, "get", "services", "--token-file", empty);
    assert_run(2, "get", "services", "--token-file", "/nonexistent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_usage),
        test_case(test_exit_codes),
        test_case(test_problems_as_json),
        test_case(test_token),
    };
    return cmocka_run_group_tests_name("cli/cli", tests, NULL, NULL);
}

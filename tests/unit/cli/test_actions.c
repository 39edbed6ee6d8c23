/* links: http */
/*
 * The commands about plans, leaders, events and versions.
 */
#include "world.h"

/* ---- plan, leaders, events, version ---- */

static const char plan_text[] =
    "{\"revision\":9,\"hash\":\"ff\",\"controllers\":[{\"controller\":\"replica-creator\",\"hash\":"
    "\"ee\",\"leader\":true,\"ops\":[{\"op\":\"put\",\"key\":\"decided/replicas/x\",\"kind\":"
    "\"Replica\",\"name\":\"x\",\"rule\":\"create\",\"reason\":\"window\"}],\"notes\":[]},"
    "{\"controller\":\"cache-evictor\",\"hash\":\"dd\",\"leader\":false,\"braked\":true,\"planHash\":\"dd\",\"ops\":[],"
    "\"notes\":[{\"object\":\"replicas/y\",\"rule\":\"keep\",\"reason\":\"fresh\"}]}]}";

static int plan_stub(const char *path, const char *controller, FILE *out, GError **error)
{
    if (strcmp(path, "bad") == 0) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "bad: line 3: no");
        return -1;
    }
    fprintf(out, "{\"revision\":1,\"hash\":\"%s\",\"controllers\":[]}",
            controller != NULL ? controller : "all");
    return 0;
}

static void test_plan(void **state)
{
    World *world = *state;
    g_autofree char *reply = g_strconcat("200 ", plan_text, NULL);
    answers(world, "GET plan", reply);
    assert_run(0, "plan");
    assert_string_equal(
        world->out,
        "revision 9, hash ff\n"
        "replica-creator: 1 op, hash ee\n"
        "  OP    OBJECT       RULE     REASON\n"
        "  put   replicas/x   create   window\n"
        "cache-evictor: 0 ops, led by another instance, braked (leasehold confirm cache-evictor "
        "--plan dd)\n"
        "  NOTHING FOR   RULE   REASON\n"
        "  replicas/y    keep   fresh\n");
    assert_run(0, "plan", "-o", "jsonpath={.controllers[*].ops[*].key}");
    assert_string_equal(world->out, "decided/replicas/x");
    answers(world, "GET plan/nobody", "404 {\"detail\":\"no such controller\"}");
    assert_run(4, "plan", "nobody");

    assert_run(1, "plan", "--from", "x");
    lh_cli_set_plan_from_file(plan_stub);
    assert_run(0, "plan", "--from", "x", "cache-evictor", "-o", "jsonpath={.hash}");
    assert_string_equal(world->out, "cache-evictor");
    assert_run(2, "plan", "--from", "bad");
    assert_string_equal(world->err, "leasehold: bad: line 3: no\n");
    lh_cli_set_plan_from_file(NULL);

    answers(world, "GET plan/input", "200 recorded\nbytes");
    g_autofree char *path = g_build_filename(world->dir, "input", NULL);
    assert_run(0, "plan", "--record", path);
    g_autofree char *content = NULL;
    assert_true(g_file_get_contents(path, &content, NULL, NULL));
    assert_string_equal(content, "recorded\nbytes");
    answers(world, "GET plan/input", "403 {\"detail\":\"admins only\"}");
    assert_run(4, "plan", "--record", path);
    assert_string_equal(world->err, "leasehold: plan/input: admins only\n");
}

static void test_leaders(void **state)
{
    World *world = *state;
    has(world, "leaders/b/01",
        "{\"metadata\":{\"name\":\"b/01\",\"createRevision\":9,\"revision\":90},"
        "\"instance\":\"one\",\"host\":\"h1\"}");
    has(world, "leaders/b/02",
        "{\"metadata\":{\"name\":\"b/02\",\"createRevision\":8,\"revision\":95},"
        "\"instance\":\"two\",\"host\":\"h2\"}");
    has(world, "leaders/a/02",
        "{\"metadata\":{\"name\":\"a/02\",\"revision\":5},\"instance\":\"two\"}");
    assert_run(0, "leaders");
    assert_string_equal(world->out, "CONTROLLER   LEADER   HOST   UP   STANDBYS\n"
                                    "a            two      -      -    0\n"
                                    "b            two      h2     -    1\n");
    answers(world, "POST leaders/a:move", "200 {\"revision\":7}");
    assert_run(0, "leaders", "move", "a", "two");
    assert_true(was_asked(world, "POST leaders/a:move {\"instance\":\"two\"}"));
    assert_run(2, "leaders", "move", "a");
    assert_run(2, "leaders", "shove", "a", "two");
}

static void test_events(void **state)
{
    World *world = *state;
    has(world, "events/1",
        "{\"metadata\":{\"name\":\"1\"},\"time\":\"2026-05-02T00:00:00Z\",\"object\":"
        "\"services/a\",\"reason\":\"Later\"}");
    has(world, "events/2",
        "{\"metadata\":{\"name\":\"2\"},\"time\":1777593600000,\"object\":"
        "\"services/a\",\"reason\":\"Sooner\"}");
    has(world, "events/3",
        "{\"metadata\":{\"name\":\"3\"},\"object\":\"seeds/a\",\"reason\":\"First\"}");
    assert_run(0, "events", "-o", "jsonpath={.items[*].reason}");
    assert_string_equal(world->out, "First Sooner Later");
    assert_run(0, "events", "--for", "Service/a", "-o", "jsonpath={.items[*].reason}");
    assert_string_equal(world->out, "Sooner Later");
}

static void test_version(void **state)
{
    World *world = *state;
    answers(world, "GET cluster",
            "200 {\"instances\":[{\"instance\":\"m1\",\"version\":\"9.9\"}]}");
    assert_run(0, "version");
    assert_true(g_str_has_prefix(world->out, "leasehold "));
    assert_contains(world->out, "\nserver m1: 9.9\n");
    assert_run(0, "version", "--server", "http://127.0.0.1:1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_plan),
        test_case(test_leaders),
        test_case(test_events),
        test_case(test_version),
    };
    return cmocka_run_group_tests_name("cli/actions", tests, NULL, NULL);
}

/* The command line against a real manager: what it prints, and its exit codes 0 to 4. */
#include "harness.h"

#include <string.h>

typedef struct {
    int code;
    const char *args[8];
} Row;

static Run *run_row(Proc *manager, const Row *row, gboolean json)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    g_ptr_array_add(argv, (gpointer) "leasehold");
    for (guint i = 0; row->args[i] != NULL; i++) {
        g_ptr_array_add(argv, (gpointer)row->args[i]);
    }
    g_ptr_array_add(argv, (gpointer) "--server");
    g_ptr_array_add(argv, manager->url);
    if (json) {
        g_ptr_array_add(argv, (gpointer) "-o");
        g_ptr_array_add(argv, (gpointer) "json");
    }
    g_ptr_array_add(argv, NULL);
    return run_argv(manager->world, (const char *const *)argv->pdata);
}

/* "leasehold: <what>: <why>" and nothing more. */
static gboolean is_one_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return g_str_has_prefix(text, "leasehold: ") && end != NULL && end[1] == '\0' &&
           strchr(text + strlen("leasehold: "), ':') != NULL;
}

static void check_row(Proc *manager, const Row *row)
{
    g_autofree char *line = g_strjoinv(" ", (char **)row->args);
    g_autoptr(Run) done = run_row(manager, row, FALSE);
    if (done->code != row->code) {
        fail_msg("%s: exit code %d instead of %d: %s", line, done->code, row->code, done->err);
    }
    if (row->code != 0 && !is_one_line(done->err)) {
        fail_msg("%s: not one line \"leasehold: what: why\": %s", line, done->err);
    }
}

static void check_rows(Proc *manager, const Row *rows, gsize n)
{
    for (gsize i = 0; i < n; i++) {
        check_row(manager, &rows[i]);
    }
}

static char *write_file(World *world, const char *name, const char *text)
{
    char *path = g_build_filename(world->dir, name, NULL);
    assert_true(g_file_set_contents(path, text, -1, NULL));
    return path;
}

static gboolean is_gettable(World *world, gpointer data)
{
    g_autoptr(Run) got = cli(data, "get", "service", "x", NULL);
    return got->code == 0;
}

static gboolean is_gone(World *world, gpointer data)
{
    g_autoptr(Run) got = cli(data, "get", "services", "x", NULL);
    return got->code == 4;
}

static void a_service_comes_and_goes(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    agents_start(world, 1);
    g_autofree char *file = write_file(world, "x.yaml",
                                       "apiVersion: leasehold/v1\nkind: Service\n"
                                       "metadata: {name: x, labels: {team: a}}\n"
                                       "spec: {owner: a}\n---\n"
                                       "kind: Service\nmetadata: {name: y}\nspec: {owner: b}\n");
    check_row(manager, &(Row){0, {"apply", "-f", file, "--dry-run"}});
    g_autoptr(GPtrArray) nothing = world_range(world, "desired/");
    assert_int_equal(nothing->len, 0);
    check_row(manager, &(Row){0, {"apply", "-f", file}});
    world_poll(world, is_gettable, manager, "the service can be got");
    snapshot_publish(world, "s", "x", world->now_ms - 60000, 1, 1000);
    check_row(manager, &(Row){0, {"wait", "snapshot", "s", "--for", "live", "--timeout", "60s"}});
    g_autoptr(Run) selected = cli(manager, "get", "Services", "-l", "team=a", "-o", "name", NULL);
    assert_int_equal(selected->code, 0);
    assert_non_null(strstr(selected->out, "x"));
    assert_null(strstr(selected->out, "y"));
    g_autoptr(Run) json = cli(manager, "get", "items", "-o", "json", NULL);
    g_autoptr(cJSON) items = cJSON_Parse(json->out);
    assert_string_equal(json_text(items, "items.0.state"), "live");
    g_autoptr(Run) leaders = cli(manager, "leaders", NULL);
    assert_int_equal(leaders->code, 0);
    assert_non_null(strstr(leaders->out, "cache-assigner"));
    g_autoptr(Run) described = cli(manager, "describe", "service", "x", NULL);
    assert_int_equal(described->code, 0);
    assert_non_null(strstr(described->out, "Valid"));
    check_row(manager, &(Row){0, {"events"}});
    check_row(manager, &(Row){0, {"version"}});
    check_row(manager, &(Row){0, {"delete", "service", "x"}});
    world_poll(world, is_gone, manager, "the service is gone");
}

static void exit_codes_say_what_happened(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    g_autofree char *bad = write_file(world, "bad.yaml",
                                      "kind: Service\nmetadata: {name: x}\n"
                                      "spec: {owner: a, cache: {replicas: -1}}\n");
    g_autofree char *torn = write_file(world, "torn.yaml", "kind: Service\n  spec: [\n");
    g_autofree char *published = write_file(world, "snapshot.yaml",
                                            "kind: Snapshot\nmetadata: {name: x}\nspec: {}\n");
    const Row rows[] = {
        {0, {"get", "services"}},
        {0, {"plan"}},
        {1, {"wait", "snapshot", "none", "--for", "live", "--timeout", "1s"}},
        {2, {"gett"}},
        {2, {"get"}},
        {2, {"get", "widgets"}},
        {2, {"get", "services", "-o", "xml"}},
        {2, {"get", "services", "--nonsense"}},
        {2, {"wait", "service", "x"}},
        {2, {"wait", "service", "x", "--for", "live", "--timeout", "soon"}},
        {2, {"explain", "nothing"}},
        {2, {"confirm", "cache-evictor"}},
        {2, {"apply", "-f", bad}},
        {2, {"apply", "-f", torn}},
        {2, {"apply", "-f", "/nonexistent.yaml"}},
        {4, {"get", "service", "absent"}},
        {4, {"describe", "service", "absent"}},
        {4, {"delete", "service", "absent"}},
        {4, {"explain", "cache/absent.default.0"}},
        {4, {"retry", "cache/absent.default.0"}},
        {4, {"confirm", "cache-evictor", "--plan", "0123456789abcdef"}},
        {4, {"plan", "nobody"}},
    };
    check_rows(manager, rows, G_N_ELEMENTS(rows));
    g_autoptr(Run) refused = run_row(manager, &(Row){0, {"apply", "-f", bad}}, FALSE);
    assert_non_null(strstr(refused->err, "spec.cache.replicas"));
    g_autoptr(Run) kind = run_row(manager, &(Row){0, {"apply", "-f", published}}, FALSE);
    assert_true(kind->code == 2 || kind->code == 4);
    g_autoptr(Run) json = run_row(manager, &(Row){4, {"get", "service", "absent"}}, TRUE);
    g_autoptr(cJSON) problem = cJSON_Parse(json->err);
    assert_int_equal(json->code, 4);
    assert_true(json_text(problem, "title")[0] != '\0');
    g_autoptr(GPtrArray) written = world_range(world, "desired/");
    assert_int_equal(written->len, 0);
}

typedef struct {
    const char *controller, *instance;
} Leads;

static gboolean is_led_by(World *world, gpointer data)
{
    const Leads *wanted = data;
    g_autoptr(GPtrArray) leaders = lh_mirror_list(world->mirror, LH_KIND_LEADER);
    const LhLeader *oldest = NULL;
    for (guint i = 0; i < leaders->len; i++) {
        const LhLeader *leader = g_ptr_array_index(leaders, i);
        g_autofree char *controller = lh_name_part(leader->o.name, 0);
        if (strcmp(controller, wanted->controller) == 0 &&
            (oldest == NULL || leader->o.create_rev < oldest->o.create_rev)) {
            oldest = leader;
        }
    }
    return oldest != NULL && strcmp(oldest->instance, wanted->instance) == 0;
}

static gboolean is_candidate(World *world, gpointer data)
{
    g_autoptr(GPtrArray) leaders = lh_mirror_list(world->mirror, LH_KIND_LEADER);
    for (guint i = 0; i < leaders->len; i++) {
        const LhLeader *leader = g_ptr_array_index(leaders, i);
        if (g_str_has_prefix(leader->o.name, "cache-assigner/") &&
            strcmp(leader->instance, data) == 0) {
            return TRUE;
        }
    }
    return FALSE;
}

static void leadership_is_handed_over(void **state)
{
    World *world = *state;
    Leads first = {"cache-assigner", "m1"}, second = {"cache-assigner", "m2"};
    Proc *manager = manager_ready(world, "m1");
    world_wait(world, is_led_by, &first, "m1 leads");
    manager_ready(world, "m2");
    world_wait(world, is_candidate, (gpointer) "m2", "m2 is a candidate");
    check_row(manager, &(Row){4, {"leaders", "move", "cache-assigner", "nobody"}});
    check_row(manager, &(Row){4, {"leaders", "move", "nobody", "m2"}});
    check_row(manager, &(Row){0, {"leaders", "move", "cache-assigner", "m2"}});
    world_wait(world, is_led_by, &second, "m2 leads");
    agents_start(world, 1);
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    snapshot_publish(world, "s", "x", world->now_ms - 60000, 1, 1000);
    world_wait_live(world, NULL, 1);
}

static void nobody_there_is_3(void **state)
{
    World *world = *state;
    g_autofree char *url = g_strdup_printf("http://127.0.0.1:%u", etcd_free_port());
    Proc nobody = {.world = world, .url = url};
    const Row rows[] = {
        {3, {"get", "services"}},
        {3, {"plan"}},
        {3, {"leaders"}},
        {3, {"wait", "service", "x", "--for", "delete"}},
    };
    check_rows(&nobody, rows, G_N_ELEMENTS(rows));
}

/* Programs that do not start: one line, and 2 for what the user wrote. */
static void programs_refuse_bad_usage(void **state)
{
    static const Row rows[] = {
        {2, {"agent", "--pool", "cache", "--name", "n"}},
        {2, {"agent", "--pool", "nobody", "--name", "n", "--data-dir", "d"}},
        {2, {"agent", "--name", "n", "--data-dir", "d"}},
        {2, {"agent", "--pool", "cache", "--name", "-n-", "--data-dir", "d"}},
        {2, {"manager", "--lease-ttl", "soon"}},
        {2, {"manager", "--nonsense"}},
        {2, {"manager", "--config", "/nonexistent.yaml"}},
        {2, {"manager", "--listen", "0.0.0.0:0"}},
        {2, {"dev", "--agents", "-1"}},
        {2, {"dev", "extra"}},
        {2, {NULL}},
    };
    World *world = *state;
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GPtrArray) argv = g_ptr_array_new();
        g_autofree char *line = g_strjoinv(" ", (char **)rows[i].args);
        g_ptr_array_add(argv, (gpointer) "leasehold");
        for (guint j = 0; rows[i].args[j] != NULL; j++) {
            g_ptr_array_add(argv, (gpointer)rows[i].args[j]);
        }
        g_ptr_array_add(argv, NULL);
        g_autoptr(Run) done = run_argv(world, (const char *const *)argv->pdata);
        if (done->code != rows[i].code || (line[0] != '\0' && !is_one_line(done->err))) {
            fail_msg("leasehold %s: exit code %d: %s", line, done->code, done->err);
        }
    }
}

#define SCENARIO(name_) cmocka_unit_test_setup_teardown(name_, world_setup, world_teardown)

/* What deploy/examples/ ships is taken as it is, and found valid. */
static void the_examples_are_taken(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    g_autofree char *examples = g_build_filename(g_getenv("LEASEHOLD_SOURCE_ROOT"), "deploy",
                                                 "examples", NULL);
    g_autoptr(Run) dry = cli(manager, "apply", "-f", examples, "--dry-run", NULL);
    assert_int_equal(dry->code, 0);
    g_autoptr(Run) done = cli(manager, "apply", "-f", examples, NULL);
    if (done->code != 0)
        fail_msg("apply -f deploy/examples: %s", done->err);
    static const char *const some[][2] = {{"services", "payments"},
                                          {"services", "clickstream"},
                                          {"partitions", "logs-7"},
                                          {"restores", "incident-2026-06-02"},
                                          {"settings", "cache-assigner"}};
    for (gsize i = 0; i < G_N_ELEMENTS(some); i++) {
        g_autoptr(Run) valid = cli(manager, "wait", some[i][0], some[i][1], "--for",
                                   "condition=Valid", NULL);
        if (valid->code != 0)
            fail_msg("%s/%s: %s", some[i][0], some[i][1], valid->err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_service_comes_and_goes),  SCENARIO(exit_codes_say_what_happened),
        SCENARIO(leadership_is_handed_over), SCENARIO(nobody_there_is_3),
        SCENARIO(programs_refuse_bad_usage), SCENARIO(the_examples_are_taken),
    };
    return cmocka_run_group_tests_name("integration-cli", tests, NULL, NULL);
}

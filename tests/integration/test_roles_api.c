/*
 * Who may do what over HTTPS: the commands of people with certificates and tokens of each role, those
 * of others, and what the manager's log says of them.
 */
#include "secure.h"

#include <signal.h>
#include <string.h>

/* ---- each command with each credential ---- */

typedef struct {
    const char *argv[7];
    Role needs;
    int code; /* of who may */
} Command;

static const Command commands[] = {
    {{"get", "services"}, VIEWER, 0},
    {{"get", "service", "x", "-o", "json"}, VIEWER, 0},
    {{"describe", "service", "x"}, VIEWER, 0},
    {{"events"}, VIEWER, 0},
    {{"leaders"}, VIEWER, 0},
    {{"plan"}, VIEWER, 0},
    {{"apply", "-f", "MANIFEST"}, OPERATOR, 0},
    {{"apply", "--dry-run", "-f", "MANIFEST"}, OPERATOR, 0},
    {{"cordon", "cache/agent-1"}, OPERATOR, 0},
    {{"uncordon", "cache/agent-1"}, OPERATOR, 0},
    {{"retry", "cache/none"}, OPERATOR, 4},
    {{"rebalance", "manager", "--dry-run"}, ADMIN, 0},
    {{"rebalance", "manager"}, ADMIN, 0},
    {{"rebalance", "cache"}, ADMIN, 4},
    {{"rebalance", "nothing"}, ADMIN, 4},
    {{"confirm", "cache-evictor", "--plan", "0000"}, ADMIN, 4},
    {{"leaders", "move", "admission", "manager-1"}, ADMIN, 0},
    {{"leaders", "move", "admission", "manager-2"}, ADMIN, 0},
};

static Run *run_command(Proc *server, const Identity *who, const Command *command,
                        const char *manifest)
{
    g_autoptr(GPtrArray) words = g_ptr_array_new();
    for (guint i = 0; i < G_N_ELEMENTS(command->argv) && command->argv[i] != NULL; i++) {
        gboolean is_file = strcmp(command->argv[i], "MANIFEST") == 0;
        g_ptr_array_add(words, (gpointer)(is_file ? manifest : command->argv[i]));
    }
    g_ptr_array_set_size(words, 7);
    return cli_as(server, who, words->pdata[0], words->pdata[1], words->pdata[2], words->pdata[3],
                  words->pdata[4], words->pdata[5], NULL);
}

static void check_command(Proc *server, Lab *lab, Way way, Role role, const Command *command,
                          const char *manifest)
{
    g_autoptr(Run) done = run_command(server, &lab->who[way][role], command, manifest);
    if (role < command->needs) {
        g_autofree char *says = g_strdup_printf("the role %s is needed",
                                                role_names[command->needs]);
        lab_refused(done, 4, says);
    } else if (done->code != command->code || strstr(done->err, " is needed") != NULL) {
        fail_msg("%s %s by %s %s: exit code %d: %s", command->argv[0], command->argv[1],
                 way == BY_CERT ? "certificate" : "token", role_names[role], done->code, done->err);
    }
}

/* How many requests came from those that nobody knows. */
static guint check_strangers(Lab *lab, Proc *server, const char *manifest)
{
    const char *ca = lab->authority.cert;
    const struct {
        Identity who;
        const char *says;
    } rows[] = {
        {{.cacert = ca}, "a token or a client certificate is needed"},
        {{.cacert = ca, .token_file = lab->wrong_token_file}, "the token is not known"},
        {{.cacert = ca, .cert = lab->untrusted.cert, .key = lab->untrusted.key}, "certificate"},
        {{.cacert = ca, .cert = lab->expired.cert, .key = lab->expired.key}, "expired"},
        {{.token_file = lab->token_files[ADMIN]}, "its certificate is not trusted"},
        {{.cacert = lab->stranger.cert, .token_file = lab->token_files[ADMIN]},
         "its certificate is not trusted"},
    };
    guint requests = 0;
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(Run) got = cli_as(server, &rows[i].who, "get", "services", NULL);
        lab_refused(got, 3, rows[i].says);
        g_autoptr(Run) watched = cli_as(server, &rows[i].who, "get", "services", "-w", NULL);
        lab_refused(watched, 3, rows[i].says);
        g_autoptr(Run) applied = cli_as(server, &rows[i].who, "apply", "-f", manifest, NULL);
        lab_refused(applied, 3, rows[i].says);
        requests += rows[i].who.cacert == ca ? 3 : 0; /* else the client goes before it asks */
    }
    return requests;
}

/* ---- watches ---- */

typedef struct {
    Proc *watch;
    const char *service;
} Showing;

static gboolean shows(World *world, gpointer data)
{
    const Showing *showing = data;
    g_autofree char *log = proc_log(showing->watch);
    g_autofree char *cell = g_strdup_printf(" %s  ", showing->service);
    return strstr(log, cell) != NULL;
}

static void check_watches(Lab *lab, Proc *server)
{
    World *world = lab->world;
    const Identity *cert = &lab->who[BY_CERT][VIEWER];
    const char *const by_cert[] = {"leasehold", "get",      "services",   "-w",     "--server",
                                   server->url, "--cacert", cert->cacert, "--cert", cert->cert,
                                   "--key",     cert->key,  NULL};
    const char *const by_token[] = {
        "leasehold", "get",      "services",   "-w",           "--server",
        server->url, "--cacert", cert->cacert, "--token-file", lab->token_files[VIEWER],
        NULL};
    Proc *first = proc_start(world, "watch-by-cert", by_cert);
    Proc *second = proc_start(world, "watch-by-token", by_token);
    /* y comes after the list, so it comes by the watch. */
    world_poll(world, shows, &(Showing){first, "x"}, "the watch by certificate begins");
    world_poll(world, shows, &(Showing){second, "x"}, "the watch by token begins");
    world_put(world, "desired/services/y", "{\"spec\":{\"owner\":\"a\"}}");
    world_poll(world, shows, &(Showing){first, "y"}, "the watch by certificate shows y");
    world_poll(world, shows, &(Showing){second, "y"}, "the watch by token shows y");
    proc_kill(first);
    proc_kill(second);
}

/* ---- the log ---- */

/* The writes of each who may, and what each may not: one line for each. */
static void check_audit(Proc *server)
{
    gint64 n_refused = 0;
    for (int way = 0; way < N_WAYS; way++) {
        for (int role = 0; role < N_ROLES; role++) {
            g_autofree char *who = g_strdup_printf(
                " who=%s-%s role=%s from=127.0.0.1:", way == BY_CERT ? "cert" : "token",
                role_names[role], role_names[role]);
            guint wanted = role >= OPERATOR ? 1 : 0;
            assert_int_equal(lab_lines(server, "msg=audit", who, " status=20",
                                       "method=POST path=/v1/nodepolicies/cache/agent-1:cordon ",
                                       NULL),
                             wanted);
            /* Those that the server was only asked to check, too. */
            guint applied = lab_lines(server, "msg=audit", who, " status=20",
                                      "method=PUT path=/v1/services/applied ", NULL);
            assert_true(role >= OPERATOR ? applied >= 1 : applied == 0);
            for (gsize i = 0; i < G_N_ELEMENTS(commands); i++) {
                n_refused += commands[i].needs > (Role)role;
            }
        }
    }
    assert_int_equal(lab_lines(server, "msg=audit", " who=cert-viewer ", " status=403 ",
                               "method=POST path=/v1/leaders/admission:move ", NULL),
                     2);
    assert_int_equal(lab_lines(server, "msg=audit", " status=40", " why=", NULL), n_refused);
    assert_int_equal(lab_lines(server, "msg=audit", "method=GET", "status=20", NULL), 0);
}

static void roles_decide(void **state)
{
    World *world = *state;
    Lab *lab = lab_new(world);
    Proc *server = lab_manager(lab, "manager-1", "127.0.0.1:0");
    g_autofree char *manifest = g_build_filename(world->dir, "applied.yaml", NULL);
    Proc *other = lab_manager(lab, "manager-2", "127.0.0.1:0");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (int way = 0; way < N_WAYS; way++) {
        for (int role = 0; role < N_ROLES; role++) {
            /* Something else each time, so that there is something to write. */
            g_autofree char *text = g_strdup_printf("apiVersion: leasehold/v1\nkind: Service\n"
                                                    "metadata: {name: applied}\n"
                                                    "spec: {owner: a-%d-%d}\n",
                                                    way, role);
            assert_true(g_file_set_contents(manifest, text, -1, NULL));
            for (gsize i = 0; i < G_N_ELEMENTS(commands); i++) {
                check_command(server, lab, way, role, &commands[i], manifest);
            }
        }
    }
    guint n_unknown = check_strangers(lab, other, manifest);
    check_watches(lab, server);
    assert_int_equal(proc_stop(server), 0);
    check_audit(server);
    assert_int_equal(lab_lines(other, "msg=audit", " who=anonymous role=anyone from=127.0.0.1:",
                               " status=401 why=", NULL),
                     n_unknown);
    lab_check_logs(lab);
    lab_free(lab);
}

/* ---- rebalance ---- */

static gboolean asked_for(World *world, gpointer data)
{
    const LhSettings *settings = world_get(world, LH_KIND_SETTINGS, "seed-allocator");
    return settings != NULL && settings->rebalance_at > *(gint64 *)data;
}

/* Only an admin's request reaches etcd, and what people wrote in the same place stays as it is. */
static void rebalance_by_an_admin(void **state)
{
    World *world = *state;
    Lab *lab = lab_new(world);
    Proc *server = lab_manager(lab, "manager-1", "127.0.0.1:0");
    static const char path[] = "/v1/pools/manager:rebalance";
    static const char written[] =
        "{\"metadata\":{\"labels\":{\"team\":\"crawl\"}},\"spec\":{\"autoRebalance\":false}}";
    gint64 last = 0;
    gint64 revision = world_put(world, "desired/settings/seed-allocator", written);
    for (int way = 0; way < N_WAYS; way++) {
        for (int role = VIEWER; role < ADMIN; role++) {
            g_autoptr(Reply) refused = http_as(server, &lab->who[way][role], "POST", path, "{}");
            reply_must(refused, 403);
            g_autoptr(Run) run = cli_as(server, &lab->who[way][role], "rebalance", "manager", NULL);
            lab_refused(run, 4, "the role admin is needed");
        }
        g_autoptr(Reply) dry = http_as(server, &lab->who[way][ADMIN], "POST",
                                       "/v1/pools/manager:rebalance?dryRun=true", "{}");
        reply_must(dry, 200);
        /* Nothing of all this has been written. */
        assert_int_equal((gint64)cJSON_GetNumberValue(json_at(dry->json, "revision")), revision);
        g_autoptr(Reply) asked = http_as(server, &lab->who[way][ADMIN], "POST", path, "{}");
        reply_must(asked, 200);
        revision = (gint64)cJSON_GetNumberValue(json_at(asked->json, "revision"));
        world_poll(world, asked_for, &last, "etcd has the request");
        const LhSettings *settings = world_get(world, LH_KIND_SETTINGS, "seed-allocator");
        assert_false(settings->auto_rebalance);
        assert_int_equal(settings->o.mod_rev, revision);
        const LhStrMap *labels = lh_object_labels(&settings->o);
        assert_int_equal(labels->n, 1);
        assert_string_equal(labels->pairs[1], "crawl");
        last = settings->rebalance_at;
    }
    g_autoptr(Run) admin = cli_as(server, &lab->who[BY_TOKEN][ADMIN], "rebalance", "manager", "-o",
                                  "jsonpath={.results[0].revision}", NULL);
    assert_int_equal(admin->code, 0);
    world_poll(world, asked_for, &last, "etcd has the request of the command");
    const LhSettings *settings = world_get(world, LH_KIND_SETTINGS, "seed-allocator");
    assert_int_equal(settings->o.mod_rev, g_ascii_strtoll(admin->out, NULL, 10));
    assert_int_equal(proc_stop(server), 0);
    static const char line[] = "method=POST path=/v1/pools/manager:rebalance ";
    assert_int_equal(lab_lines(server, "msg=audit", " status=200", line, NULL), 5);
    assert_int_equal(lab_lines(server, "msg=audit", " status=403", line, NULL), 8);
    lab_check_logs(lab);
    lab_free(lab);
}

/* ---- what is for everybody ---- */

static void only_health_is_for_everybody(void **state)
{
    World *world = *state;
    Lab *lab = lab_new(world);
    Proc *server = lab_manager(lab, "manager", "0.0.0.0:0");
    static const struct {
        const char *path;
        int anonymous, viewer;
    } rows[] = {
        {"/healthz", 200, 200},     {"/readyz", 200, 200},
        {"/metrics", 401, 200},     {"/", 401, 404},
        {"/v1/services", 401, 200}, {"/v1/cluster", 401, 200},
        {"/v1/none", 401, 404},     {"/none", 401, 404},
        {"/docs/", 401, 200},       {"/docs/openapi.yaml", 401, 200},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(Reply) anonymous = http_as(server, &lab->nobody, "GET", rows[i].path, NULL);
        reply_must(anonymous, rows[i].anonymous);
        for (int way = 0; way < N_WAYS; way++) {
            g_autoptr(Reply) viewer = http_as(server, &lab->who[way][VIEWER], "GET", rows[i].path,
                                              NULL);
            reply_must(viewer, rows[i].viewer);
        }
    }
    /* A manager that listens everywhere does not say that it is at 0.0.0.0. */
    g_autoptr(Reply) cluster = http_as(server, &lab->who[BY_TOKEN][VIEWER], "GET", "/v1/cluster",
                                       NULL);
    assert_non_null(strstr(cluster->body->str, "\"url\":\"https://"));
    assert_null(strstr(cluster->body->str, "0.0.0.0"));
    /* Without TLS on this port nobody gets anything. */
    g_autofree char *plain = g_strdup_printf("http://%s/healthz", server->url + strlen("https://"));
    g_autoptr(Reply) unencrypted = http_send("GET", plain, NULL, NULL);
    assert_int_equal(unencrypted->status, 0);
    lab_free(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(roles_decide, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(rebalance_by_an_admin, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(only_health_is_for_everybody, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-roles-api", tests, NULL, NULL);
}

/*
 * Manager and agent and an etcd that is not there yet, or that refuses them. What is waited for is said
 * once; what no waiting heals ends them with one line. And the password is seen nowhere.
 */
#include "etcd/contact.h"
#include "harness.h"

#include <string.h>

#define QUIET_MS 5000 /* how long it is looked whether a thing is said again */

static int setup_secure(void **state)
{
    *state = world_new_with(&(WorldOptions){.tls = TRUE, .users = TRUE});
    return 0;
}

static gboolean never(World *world, gpointer data)
{
    (void)world, (void)data;
    return FALSE;
}

static gboolean has_ended(World *world, gpointer data)
{
    (void)world;
    return ((const Proc *)data)->ended;
}

static gboolean is_ready(World *world, gpointer data)
{
    (void)world;
    g_autoptr(Reply) reply = http(data, "GET", "/readyz", NULL);
    return reply->status == 200;
}

static void must_say(Proc *proc, const char *path, int status)
{
    g_autoptr(Reply) reply = http(proc, "GET", path, NULL);
    reply_must(reply, status);
}

/* What is at risk with this etcd is said once, and only if there is something. */
static void risks_are_said_once(World *world, const Proc *proc)
{
    g_autofree char *risks = lh_etcd_version_risks(etcd_process_version(world->etcd));
    assert_int_equal(proc_logged(proc, "known faults"), risks != NULL ? 1 : 0);
}

/* ---- not there yet ---- */

static void they_wait_for_etcd_and_begin(void **state)
{
    World *world = *state;
    snapshot_publish(world, "s-1", "x", world->now_ms, 1, 1000);
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    etcd_process_stop(world->etcd);
    Proc *manager = manager_start(world, "manager", NULL);
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent"});
    Proc *const both[] = {manager, agent};
    for (guint i = 0; i < G_N_ELEMENTS(both); i++) {
        world_poll(world, proc_has_said, &(Said){both[i], "etcd not reached yet"}, "%s says it",
                   both[i]->name);
    }
    must_say(manager, "/healthz", 200);
    must_say(manager, "/readyz", 503);
    /* Dozens of attempts later it has not been said again. */
    world_until(world, never, NULL, QUIET_MS);
    for (guint i = 0; i < G_N_ELEMENTS(both); i++) {
        assert_false(both[i]->ended);
        assert_int_equal(
            proc_logged(both[i], "level=warning") + proc_logged(both[i], "level=error"), 1);
        assert_true(proc_logged(both[i], etcd_process_endpoint(world->etcd)) > 0);
    }
    must_say(manager, "/readyz", 503);
    assert_true(etcd_process_restart(world->etcd, NULL));
    world_poll(world, is_ready, manager, "the manager is ready");
    world_wait_live(world, NULL, 1);
    for (guint i = 0; i < G_N_ELEMENTS(both); i++) {
        assert_int_equal(proc_logged(both[i], "etcd reached"), 1);
        risks_are_said_once(world, both[i]);
    }
}

static void told_to_stop_before_etcd_was_there(void **state)
{
    World *world = *state;
    etcd_process_stop(world->etcd);
    Proc *manager = manager_start(world, "manager", NULL);
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent"});
    Proc *const both[] = {manager, agent};
    for (guint i = 0; i < G_N_ELEMENTS(both); i++) {
        world_poll(world, proc_has_said, &(Said){both[i], "etcd not reached yet"}, "%s says it",
                   both[i]->name);
        g_subprocess_send_signal(both[i]->process, SIGTERM);
    }
    for (guint i = 0; i < G_N_ELEMENTS(both); i++) {
        /* Before anything that waits for etcd could have given up. */
        if (!world_until(world, has_ended, both[i], WAIT_MS / 4)) {
            world_fail(world, "%s does not stop", both[i]->name);
        }
        assert_int_equal(proc_wait(both[i]), 0);
    }
    assert_true(etcd_process_restart(world->etcd, NULL));
}

/* ---- refused ---- */

/* The log is lines of the log and one line for people, which says @says and names @names. */
static void one_line_for_people(World *world, const Proc *proc, const char *says, const char *names)
{
    g_autofree char *log = proc_log(proc);
    g_auto(GStrv) lines = g_strsplit(g_strchomp(log), "\n", -1);
    const char *line = NULL;
    for (guint i = 0; lines[i] != NULL; i++) {
        if (g_str_has_prefix(lines[i], "leasehold: ") && line == NULL) {
            line = lines[i];
        } else if (!g_str_has_prefix(lines[i], "time=") ||
                   strstr(lines[i], "level=error") != NULL) {
            world_fail(world, "%s: \"%s\"", proc->name, lines[i]);
        }
    }
    if (line == NULL || strstr(line, says) == NULL || strstr(line, names) == NULL) {
        world_fail(world, "%s: \"%s\" instead of \"%s\" with \"%s\"", proc->name, line, says,
                   names);
    }
}

/* Manager and agent, as world->access is now. */
static void both_are_refused(World *world, int code, const char *says, const char *names)
{
    Proc *manager = manager_start(world, "manager", NULL);
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent"});
    Proc *const both[] = {manager, agent};
    for (guint i = 0; i < G_N_ELEMENTS(both); i++) {
        int ended = proc_wait(both[i]);
        if (ended != code) {
            world_fail(world, "%s ended with %d instead of %d for \"%s\"", both[i]->name, ended,
                       code, says);
        }
        one_line_for_people(world, both[i], says, names);
        assert_int_equal(proc_logged(both[i], "secret-4711"), 0);
    }
}

static void certificates_that_are_refused(void **state)
{
    const CertSpec old = {.cn = "etcd", .names = "IP:127.0.0.1", .from_s = -7200, .to_s = -3600};
    const CertSpec named = {.cn = "etcd", .names = "DNS:elsewhere.example"};
    World *world = *state;
    const char *endpoint = etcd_process_endpoint(world->etcd);
    g_auto(CertFiles) other = certs_authority(world->certs, "other");
    g_autoptr(Run) roles = etcd_roles(world, "roles", NULL);
    assert_int_equal(roles->code, 0);
    world_user(world, "m", "manager");
    world_as(world, "m");
    world->access.cacert = other.cert;
    both_are_refused(world, 3, "not trusted", endpoint);
    world->access.cacert = world->ca.cert;
    world_new_certificate(world, &old);
    both_are_refused(world, 3, "expired", endpoint);
    world_new_certificate(world, &named);
    both_are_refused(world, 3, "another host name", endpoint);
    /* Nothing else was wrong. */
    world_new_certificate(world, NULL);
    manager_ready(world, "manager");
}

static void users_that_are_refused(void **state)
{
    World *world = *state;
    g_autofree char *wrong = g_build_filename(world->dir, "wrong", NULL);
    g_autoptr(Run) roles = etcd_roles(world, "roles", NULL);
    assert_int_equal(roles->code, 0);
    etcdctl(world, "role", "add", "nothing", NULL);
    world_user(world, "m", "manager");
    world_user(world, "guest", "nothing");
    assert_true(g_file_set_contents(wrong, "wrong-secret-4711\n", -1, NULL));
    world_as(world, "m");
    world->access.password_file = wrong;
    both_are_refused(world, 3, "invalid user ID or password", "user m");
    world->access.user = "stranger";
    both_are_refused(world, 3, "invalid user ID or password", "user stranger");
    world_as(world, NULL);
    both_are_refused(world, 3, "user name is empty", etcd_process_endpoint(world->etcd));
    world_as(world, "guest");
    both_are_refused(world, 4, "permission denied", "user guest");
    both_are_refused(world, 4, "permission denied", etcd_process_endpoint(world->etcd));
    world_as(world, "m");
    manager_ready(world, "manager");
}

/* ---- secrets ---- */

static void must_not_hold(const char *what, const char *text, gsize len)
{
    if (memmem(text, len, "secret-4711", strlen("secret-4711")) != NULL) {
        fail_msg("%s shows the password", what);
    }
}

static void shows_no_secret(Proc *proc)
{
    static const char *const paths[] = {"/v1/cluster", "/v1/plan", "/v1/plan/input", "/metrics",
                                        "/get_health_status"};
    g_autofree char *cmdline_path = g_strdup_printf("/proc/%d/cmdline", (int)proc_pid(proc));
    g_autofree char *cmdline = NULL;
    g_autofree char *log = proc_log(proc);
    gsize len = 0;
    assert_true(g_file_get_contents(cmdline_path, &cmdline, &len, NULL));
    assert_true(len > 0);
    must_not_hold("the command line", cmdline, len);
    must_not_hold("the log", log, strlen(log));
    /* It is a log that says all it can. */
    assert_non_null(strstr(log, "level=debug"));
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_autoptr(Reply) reply = http(proc, "GET", paths[i], NULL);
        must_not_hold(paths[i], reply->body->str, reply->body->len);
    }
}

static void the_password_is_seen_nowhere(void **state)
{
    static const char *const debug[] = {"--log-level", "debug", NULL};
    World *world = *state;
    g_autoptr(Run) roles = etcd_roles(world, "roles", NULL);
    assert_int_equal(roles->code, 0);
    world_user(world, "m", "manager");
    world_user(world, "node", "node-cache");
    world_as(world, "m");
    Proc *manager = manager_start(world, "manager", debug);
    world_as(world, "node");
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent", .extra = debug});
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    snapshot_publish(world, "s-1", "x", world->now_ms, 1, 1000);
    world_wait_live(world, NULL, 1);
    g_autoptr(Reply) cluster = http(manager, "GET", "/v1/cluster", NULL);
    reply_must(cluster, 200);
    g_autoptr(Reply) input = http(manager, "GET", "/v1/plan/input", NULL);
    reply_must(input, 200);
    /* And when a token is asked for again, and refused. */
    assert_true(etcd_process_restart(world->etcd, NULL));
    etcdctl(world, "user", "delete", "node", NULL);
    etcdctl(world, "user", "delete", "m", NULL);
    world_poll(world, proc_has_said, &(Said){manager, "invalid user ID or password"},
               "it is refused");
    world_poll(world, proc_has_said, &(Said){agent, "invalid user ID or password"},
               "it is refused");
    shows_no_secret(manager);
    shows_no_secret(agent);
    world_user(world, "m", "manager");
    world_user(world, "node", "node-cache");
}

#define TEST(name, setup) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(they_wait_for_etcd_and_begin, world_setup),
        TEST(told_to_stop_before_etcd_was_there, world_setup),
        TEST(certificates_that_are_refused, setup_secure),
        TEST(users_that_are_refused, setup_secure),
        TEST(the_password_is_seen_nowhere, setup_secure),
    };
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return cmocka_run_group_tests_name("integration-first-contact", tests, NULL, NULL);
}

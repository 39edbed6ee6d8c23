/*
 * The transport and the first contact on a real etcd with TLS and passwords: what is refused and how it is
 * said, certificates that are replaced while everything runs, tokens that run out under load. Without an
 * etcd: skipped.
 */
/* links: fakes */
/* suite: slow */
/* suite: waits */
#include "base/errors.h"
#include "base/log.h"
#include "etcd/contact.h"
#include "etcd/watcher.h"
#include "tests/fakes/etcd_process.h"

#include <glib/gstdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WAIT_MS  30000
#define PASSWORD "let us in 4711"

static const CertSpec server_spec = {.cn = "etcd", .names = "IP:127.0.0.1"};
static const CertSpec client_spec = {.cn = "client"};

static char *dir;
static CertFiles ca, other_ca, server_files, client_files, foreign_client;
/* gRPC's threads log too. */
static GMutex log_lock;
static GString *logged;

static void take_line(const char *line, gpointer data)
{
    (void)data;
    g_mutex_lock(&log_lock);
    g_string_append_printf(logged, "%s\n", line);
    g_mutex_unlock(&log_lock);
}

/* What was logged since the last time. */
static char *take_log(void)
{
    g_mutex_lock(&log_lock);
    char *text = g_strdup(logged->str);
    g_string_truncate(logged, 0);
    g_mutex_unlock(&log_lock);
    return text;
}

typedef struct {
    LhEnv *env;
    LhEtcd *etcd;
    LhContact *contact;
    guint reached, refused;
    int code;
    char *message;
} Contacting;

static gboolean on_deadline(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_CONTINUE;
}

static gboolean run_until(gboolean (*condition)(gpointer data), gpointer data, guint within_ms)
{
    gboolean over = FALSE;
    guint timeout = g_timeout_add(within_ms, on_deadline, &over);
    while (!condition(data) && !over)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timeout);
    return condition(data);
}

/* --- contact --- */

static void on_reached(gpointer data)
{
    ((Contacting *)data)->reached++;
}

static void on_refused(const GError *error, gpointer data)
{
    Contacting *c = data;
    c->refused++;
    c->code = error->code;
    c->message = g_strdup(error->message);
}

static void contact_begin(Contacting *c, const LhEtcdOptions *options)
{
    static const LhContactFuncs funcs = {.reached = on_reached, .refused = on_refused};
    g_autoptr(GError) error = NULL;
    *c = (Contacting){.env = lh_env_glib_new(NULL)};
    c->etcd = lh_etcd_grpc_new(options, NULL, &error);
    if (c->etcd == NULL)
        fail_msg("%s", error->message);
    c->contact = lh_contact_start(c->env, c->etcd, options, "/p/", &funcs, c);
}

static void contact_end(Contacting *c)
{
    lh_contact_free(c->contact);
    lh_etcd_free(c->etcd);
    lh_env_free(c->env);
    g_free(c->message);
}

static gboolean is_decided(gpointer data)
{
    const Contacting *c = data;
    return c->reached + c->refused > 0;
}

static gboolean has_trouble(gpointer data)
{
    const char *trouble = lh_contact_trouble(((Contacting *)data)->contact);
    return trouble != NULL && strstr(trouble, "certificate") != NULL;
}

static void expect_reached(const LhEtcdOptions *options)
{
    Contacting c;
    contact_begin(&c, options);
    assert_true(run_until(is_decided, &c, WAIT_MS));
    if (c.refused > 0)
        fail_msg("refused: %s", c.message);
    assert_non_null(lh_contact_status(c.contact));
    assert_null(lh_contact_trouble(c.contact));
    contact_end(&c);
}

static void expect_refused(const LhEtcdOptions *options, int code, const char *says)
{
    Contacting c;
    contact_begin(&c, options);
    assert_true(run_until(is_decided, &c, WAIT_MS));
    assert_int_equal(c.reached, 0);
    assert_int_equal(c.refused, 1);
    assert_int_equal(c.code, code);
    assert_null(strchr(c.message, '\n'));
    assert_null(strstr(c.message, PASSWORD));
    if (strstr(c.message, says) == NULL)
        fail_msg("'%s' does not say '%s'", c.message, says);
    assert_string_equal(lh_contact_trouble(c.contact), c.message);
    contact_end(&c);
}

/* --- servers --- */

/* One member elects itself, the sooner the better. */
static EtcdProcess *start(const EtcdProcessOptions *options)
{
    const char *const args[] = {"--heartbeat-interval=10", "--election-timeout=100",
                                options->args != NULL ? options->args[0] : NULL, NULL};
    g_autoptr(GError) error = NULL;
    EtcdProcessOptions quick = *options;
    quick.args = args;
    EtcdProcess *etcd = etcd_process_new_with(&quick, &error);
    if (etcd == NULL)
        fail_msg("%s", error->message);
    return etcd;
}

/* A certificate under a name of its own, so that tests do not change each other's. */
static CertFiles issue(const char *name, const CertFiles *authority, const CertSpec *spec)
{
    return certs_issue(dir, name, authority, spec);
}

static void refused_certificates(void **state)
{
    (void)state;
    const CertSpec old = {.cn = "etcd", .names = "IP:127.0.0.1", .from_s = -7200, .to_s = -3600};
    const CertSpec named = {.cn = "etcd", .names = "DNS:elsewhere.example"};
    g_auto(CertFiles) server = issue("changing", &ca, &server_spec);
    EtcdProcess *etcd = start(&(EtcdProcessOptions){.server = &server, .client_ca = ca.cert});
    const char *const endpoints[] = {etcd_process_endpoint(etcd), NULL};
    LhEtcdOptions options = {.endpoints = endpoints,
                             .cacert = ca.cert,
                             .cert = client_files.cert,
                             .key = client_files.key};
    expect_reached(&options);
    /* etcd does not trust whoever signed ours, or sees none. */
    options.cert = foreign_client.cert;
    options.key = foreign_client.key;
    expect_refused(&options, LH_ERR_AUTH, "refuses our certificate");
    options.cert = options.key = NULL;
    expect_refused(&options, LH_ERR_AUTH, "refuses us without a client certificate");
    options.cert = client_files.cert;
    options.key = client_files.key;
    /* We do not trust whoever signed etcd's. */
    options.cacert = other_ca.cert;
    expect_refused(&options, LH_ERR_AUTH, "its certificate is not trusted");
    options.cacert = ca.cert;
    /* etcd reads its certificate at every handshake. */
    CertFiles changed = issue("changing", &ca, &old);
    certs_clear(&changed);
    expect_refused(&options, LH_ERR_AUTH, "has expired");
    changed = issue("changing", &ca, &named);
    certs_clear(&changed);
    expect_refused(&options, LH_ERR_AUTH, "another host name");
    changed = issue("changing", &ca, &server_spec);
    certs_clear(&changed);
    expect_reached(&options);
    etcd_process_free(etcd);
}

/* One endpoint refuses, another is only down: that may be the good one. */
static void one_of_two_refuses_and_one_is_fine(void **state)
{
    (void)state;
    g_auto(CertFiles) wrong = issue("wrong", &other_ca, &server_spec);
    EtcdProcess *bad = start(&(EtcdProcessOptions){.server = &wrong});
    EtcdProcess *good = start(&(EtcdProcessOptions){.server = &server_files});
    const char *const endpoints[] = {etcd_process_endpoint(bad), etcd_process_endpoint(good), NULL};
    const LhEtcdOptions options = {.endpoints = endpoints, .cacert = ca.cert};
    expect_reached(&options);
    etcd_process_kill(good);
    expect_refused(&options, LH_ERR_AUTH, endpoints[0]);
    etcd_process_free(bad);
    etcd_process_free(good);
}

static void unreachable_then_reached(void **state)
{
    (void)state;
    EtcdProcess *etcd = start(&(EtcdProcessOptions){.server = &server_files});
    const char *const endpoints[] = {etcd_process_endpoint(etcd), NULL};
    const LhEtcdOptions options = {.endpoints = endpoints, .cacert = ca.cert};
    Contacting c;
    etcd_process_stop(etcd);
    g_free(take_log());
    contact_begin(&c, &options);
    assert_false(run_until(is_decided, &c, 2500));
    assert_non_null(lh_contact_trouble(c.contact));
    assert_null(lh_contact_status(c.contact));
    g_autofree char *log = take_log();
    const char *said = strstr(log, "etcd not reached yet");
    assert_non_null(said);
    assert_null(strstr(said + 1, "etcd not reached yet")); /* once */
    assert_true(etcd_process_restart(etcd, NULL));
    assert_true(run_until(is_decided, &c, WAIT_MS));
    assert_int_equal(c.reached, 1);
    g_autofree char *later = take_log();
    assert_non_null(strstr(later, etcd_process_version(etcd)));
    contact_end(&c);
    etcd_process_free(etcd);
}

/* --- calls --- */

typedef struct {
    LhEtcd *etcd;
    guint started, done, failed, events, interrupted, opened;
    guint in_flight;
    char *error;
    gboolean stopping;
} Load;

static void load_next(Load *load);

static void on_put(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Load *load = data;
    load->in_flight--;
    if (reply != NULL && reply->succeeded) {
        load->done++;
    } else {
        load->failed++;
        g_free(load->error);
        load->error = g_strdup(error != NULL ? error->message : "the key was there: sent twice");
    }
    load_next(load);
}

static void load_next(Load *load)
{
    while (load->in_flight < 4 && !load->stopping) {
        g_autofree char *key = g_strdup_printf("/p/%06u", load->started++);
        LhCompare compare = lh_compare_create(key, 0);
        LhTxnOp op = lh_txn_put(key, "", 0);
        load->in_flight++;
        lh_etcd_txn(
            load->etcd,
            &(LhTxnRequest){.compares = &compare, .n_compares = 1, .success = &op, .n_success = 1},
            on_put, load);
    }
}

static gboolean is_idle(gpointer data)
{
    return ((Load *)data)->in_flight == 0;
}

static gboolean never(gpointer data)
{
    (void)data;
    return FALSE;
}

static guint wanted;

static gboolean has_done_wanted(gpointer data)
{
    return ((Load *)data)->done >= wanted;
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    (void)events, (void)revision;
    ((Load *)data)->events += (guint)n;
}

static void on_opened(gpointer data)
{
    ((Load *)data)->opened++;
}

static void on_interrupted(const GError *error, gpointer data)
{
    Load *load = data;
    load->interrupted++;
    g_free(load->error);
    load->error = g_strdup(error->message);
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    (void)compact_revision, (void)data;
    fail_msg("the watch is lost");
}

static const LhWatcherFuncs watcher_funcs = {.opened = on_opened,
                                             .events = on_events,
                                             .lost = on_lost,
                                             .interrupted = on_interrupted};

static gboolean is_open(gpointer data)
{
    return ((Load *)data)->opened > 0;
}

static gboolean is_interrupted(gpointer data)
{
    return ((Load *)data)->interrupted > 0;
}

/* The authority, the server's certificate and ours are replaced; the old authority is gone. */
static void certificates_replaced_while_running(void **state)
{
    (void)state;
    g_auto(CertFiles) authority = certs_authority(dir, "rolling-ca");
    g_auto(CertFiles) server = issue("rolling-server", &authority, &server_spec);
    g_auto(CertFiles) client = issue("rolling-client", &authority, &client_spec);
    EtcdProcess *etcd = start(
        &(EtcdProcessOptions){.server = &server, .client_ca = authority.cert});
    const char *const endpoints[] = {etcd_process_endpoint(etcd), NULL};
    const LhEtcdOptions options = {
        .endpoints = endpoints, .cacert = authority.cert, .cert = client.cert, .key = client.key};
    LhEnv *env = lh_env_glib_new(NULL);
    Load load = {.etcd = lh_etcd_grpc_new(&options, NULL, NULL)};
    load_next(&load);
    wanted = 20;
    assert_true(run_until(has_done_wanted, &load, WAIT_MS));
    CertFiles next = certs_authority(dir, "rolling-ca");
    certs_clear(&next);
    next = issue("rolling-client", &authority, &client_spec);
    certs_clear(&next);
    next = issue("rolling-server", &authority, &server_spec);
    certs_clear(&next);
    load.stopping = TRUE;
    assert_true(run_until(is_idle, &load, WAIT_MS));
    assert_int_equal(load.failed, 0); /* connections that were open went on */
    assert_true(etcd_process_restart(etcd, NULL));
    /* Until the first one that is answered: gRPC looks at the files once a second. */
    wanted = load.done + 20;
    gint64 until_us = g_get_monotonic_time() + WAIT_MS * 1000;
    load.stopping = FALSE;
    while (load.done < wanted && g_get_monotonic_time() < until_us) {
        load.in_flight = 0;
        load_next(&load);
        load.stopping = TRUE;
        assert_true(run_until(is_idle, &load, WAIT_MS));
        load.stopping = FALSE;
        run_until(never, NULL, 20);
    }
    assert_true(load.done >= wanted);
    load.stopping = TRUE;
    /* And who has still the old authority is refused. */
    lh_etcd_free(load.etcd);
    g_free(load.error);
    lh_env_free(env);
    LhEtcdOptions stale = options;
    stale.cacert = ca.cert;
    expect_refused(&stale, LH_ERR_AUTH, "not trusted");
    etcd_process_free(etcd);
}

static char *write_password(const char *text)
{
    char *path = g_build_filename(dir, "password", NULL);
    assert_true(g_file_set_contents(path, text, -1, NULL));
    return path;
}

static void post(EtcdProcess *etcd, const char *path, const char *body)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *reply = etcd_process_post(etcd, path, body, &error);
    if (reply == NULL)
        fail_msg("%s", error->message);
}

static void passwords(void **state)
{
    (void)state;
    EtcdProcess *etcd = start(&(EtcdProcessOptions){.root_password = PASSWORD});
    const char *const endpoints[] = {etcd_process_endpoint(etcd), NULL};
    g_autofree char *file = write_password(PASSWORD "\n");
    LhEtcdOptions options = {.endpoints = endpoints, .user = "root", .password_file = file};
    g_free(take_log());
    expect_reached(&options);
    g_free(write_password(PASSWORD "x"));
    expect_refused(&options, LH_ERR_AUTH, "user root");
    g_autofree char *log = take_log();
    assert_null(strstr(log, PASSWORD));
    options.user = options.password_file = NULL;
    expect_refused(&options, LH_ERR_AUTH, "user name is empty");
    /* Known, but not permitted to read the prefix. */
    g_free(write_password("secret"));
    post(etcd, "/v3/auth/user/add", "{\"name\":\"guest\",\"password\":\"secret\"}");
    options.user = "guest";
    options.password_file = file;
    expect_refused(&options, LH_ERR_FORBIDDEN, "permission denied");
    etcd_process_free(etcd);
}

/* A user is configured, and etcd has no authentication (yet). */
static void password_that_is_not_wanted(void **state)
{
    (void)state;
    EtcdProcess *etcd = start(&(EtcdProcessOptions){0});
    const char *const endpoints[] = {etcd_process_endpoint(etcd), NULL};
    g_autofree char *file = write_password(PASSWORD);
    const LhEtcdOptions options = {.endpoints = endpoints, .user = "root", .password_file = file};
    expect_reached(&options);
    etcd_process_free(etcd);
}

/* Tokens of 2 s; the load pauses for longer, so that they do run out, and watches are opened with one
 * that is over. */
static void tokens_run_out_under_load(void **state)
{
    (void)state;
    const char *const args[] = {"--auth-token-ttl=2", NULL};
    EtcdProcess *process = start(&(EtcdProcessOptions){.args = args, .root_password = PASSWORD});
    const char *const endpoints[] = {etcd_process_endpoint(process), NULL};
    g_autofree char *file = write_password(PASSWORD);
    const LhEtcdOptions options = {.endpoints = endpoints, .user = "root", .password_file = file};
    LhEnv *env = lh_env_glib_new(NULL);
    Load load = {.etcd = lh_etcd_grpc_new(&options, NULL, NULL)};
    const LhWatcherOptions all = {.key = "/p/", .range_end = "/p0", .start_revision = 1};
    for (guint round = 0; round < 2; round++) {
        load.stopping = FALSE;
        load_next(&load);
        wanted = load.done + 50;
        assert_true(run_until(has_done_wanted, &load, WAIT_MS));
        load.stopping = TRUE;
        assert_true(run_until(is_idle, &load, WAIT_MS));
        run_until(never, NULL, 3500);
        Load watch = {0};
        LhWatcher *watcher = lh_watcher_start(env, load.etcd, &all, &watcher_funcs, &watch);
        assert_true(run_until(is_open, &watch, WAIT_MS));
        assert_int_equal(watch.interrupted, 0);
        lh_watcher_free(watcher);
        run_until(never, NULL, round == 0 ? 3500 : 0);
    }
    if (load.failed > 0)
        fail_msg("%s", load.error);
    assert_int_equal(load.done, load.started);
    /* A restarted etcd has forgotten all tokens. */
    assert_true(etcd_process_restart(process, NULL));
    Load watch = {0};
    LhWatcher *watcher = lh_watcher_start(env, load.etcd, &all, &watcher_funcs, &watch);
    assert_true(run_until(is_open, &watch, WAIT_MS));
    wanted = load.started;
    lh_watcher_free(watcher);
    lh_etcd_free(load.etcd);
    lh_env_free(env);
    g_free(load.error);
    g_free(watch.error);
    etcd_process_free(process);
}

/* A denial that a new token does not heal is one. */
static void watch_that_is_not_permitted(void **state)
{
    (void)state;
    EtcdProcess *process = start(&(EtcdProcessOptions){.root_password = PASSWORD});
    const char *const endpoints[] = {etcd_process_endpoint(process), NULL};
    post(process, "/v3/auth/user/add", "{\"name\":\"guest\",\"password\":\"secret\"}");
    g_autofree char *file = write_password("secret");
    const LhEtcdOptions options = {.endpoints = endpoints, .user = "guest", .password_file = file};
    LhEnv *env = lh_env_glib_new(NULL);
    LhEtcd *etcd = lh_etcd_grpc_new(&options, NULL, NULL);
    Load watch = {0};
    LhWatcher *watcher = lh_watcher_start(
        env, etcd, &(LhWatcherOptions){.key = "/p/", .range_end = "/p0"}, &watcher_funcs, &watch);
    assert_true(run_until(is_interrupted, &watch, WAIT_MS));
    assert_int_equal(watch.opened, 0);
    assert_non_null(strstr(watch.error, "permission denied"));
    lh_watcher_free(watcher);
    lh_etcd_free(etcd);
    lh_env_free(env);
    g_free(watch.error);
    etcd_process_free(process);
}

/* After the first contact nothing ends: it is said, and asked again. */
static void trouble_after_the_first_contact(void **state)
{
    (void)state;
    g_auto(CertFiles) server = issue("later", &ca, &server_spec);
    EtcdProcess *etcd = start(&(EtcdProcessOptions){.server = &server});
    const char *const endpoints[] = {etcd_process_endpoint(etcd), NULL};
    const LhEtcdOptions options = {.endpoints = endpoints, .cacert = ca.cert};
    Contacting c;
    contact_begin(&c, &options);
    assert_true(run_until(is_decided, &c, WAIT_MS));
    CertFiles changed = issue("later", &other_ca, &server_spec);
    certs_clear(&changed);
    assert_true(etcd_process_restart(etcd, NULL));
    assert_true(run_until(has_trouble, &c, WAIT_MS));
    assert_int_equal(c.reached, 1);
    assert_int_equal(c.refused, 0);
    contact_end(&c);
    etcd_process_free(etcd);
}

static void remove_dir(void)
{
    GDir *open = g_dir_open(dir, 0, NULL);
    for (const char *name = NULL; (name = g_dir_read_name(open)) != NULL;) {
        g_autofree char *path = g_build_filename(dir, name, NULL);
        g_unlink(path);
    }
    g_dir_close(open);
    g_rmdir(dir);
    g_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_certificates),
        cmocka_unit_test(one_of_two_refuses_and_one_is_fine),
        cmocka_unit_test(unreachable_then_reached),
        cmocka_unit_test(certificates_replaced_while_running),
        cmocka_unit_test(passwords),
        cmocka_unit_test(password_that_is_not_wanted),
        cmocka_unit_test(tokens_run_out_under_load),
        cmocka_unit_test(watch_that_is_not_permitted),
        cmocka_unit_test(trouble_after_the_first_contact),
    };
    g_autoptr(GError) error = NULL;
    EtcdProcess *probe = etcd_process_new(NULL, &error);
    if (probe == NULL) {
        printf("1..0 # SKIP %s\n", error->message);
        return error->code == LH_ERR_NOT_FOUND ? 77 : 1;
    }
    etcd_process_free(probe);
    logged = g_string_new(NULL);
    if (g_getenv("LEASEHOLD_TEST_LOG") == NULL)
        lh_log_set_sink(take_line, NULL);
    dir = g_dir_make_tmp("leasehold-secure-XXXXXX", NULL);
    ca = certs_authority(dir, "ca");
    other_ca = certs_authority(dir, "other-ca");
    server_files = certs_issue(dir, "server", &ca, &server_spec);
    client_files = certs_issue(dir, "client", &ca, &client_spec);
    foreign_client = certs_issue(dir, "foreign", &other_ca, &client_spec);
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    int failed = cmocka_run_group_tests_name("etcd-secure", tests, NULL, NULL);
    CertFiles *all[] = {&ca, &other_ca, &server_files, &client_files, &foreign_client};
    for (guint i = 0; i < G_N_ELEMENTS(all); i++)
        certs_clear(all[i]);
    remove_dir();
    lh_log_set_sink(NULL, NULL);
    g_string_free(logged, TRUE);
    return failed;
}

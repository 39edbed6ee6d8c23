/*
 * The conformance suite against a real etcd of our own ($LEASEHOLD_TEST_ETCD, or the one in the PATH):
 *   plain    one member, all tests
 *   secure   one member with TLS, client certificates and a password
 *   cluster  three members; what is done to the server is done to all of them
 * Without any etcd: skipped (77).
 */
#include "base/log.h"
#include "etcd/transport_grpc.h"
#include "suite.h"
#include "tests/fakes/etcd_cluster.h"

#include <glib/gstdio.h>
#include <stdio.h>

typedef struct {
    Driver driver;
    EtcdCluster *cluster; /* or NULL, and */
    EtcdProcess *process;
    LhEtcdOptions options;
    const char *endpoints[2];
    char *dir; /* of the certificates */
    CertFiles ca, server, client;
} RealDriver;

static gboolean on_deadline(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_CONTINUE;
}

static gboolean real_run_until(Driver *base, Condition condition, gpointer data, gint64 within_ms)
{
    (void)base;
    gboolean over = FALSE;
    guint timeout = g_timeout_add((guint)within_ms, on_deadline, &over);
    while (!condition(data) && !over) {
        g_main_context_iteration(NULL, TRUE);
    }
    g_source_remove(timeout);
    return condition(data);
}

static LhEtcd *real_connect(Driver *base)
{
    g_autoptr(GError) error = NULL;
    LhEtcd *etcd = lh_etcd_grpc_new(&((RealDriver *)base)->options, NULL, &error);
    g_assert_no_error(error);
    return etcd;
}

static void must_be(gboolean done, const GError *error)
{
    if (!done) {
        fail_msg("%s", error != NULL ? error->message : "?");
    }
}

static EtcdProcess *member(RealDriver *real, guint i)
{
    return real->cluster != NULL ? etcd_cluster_member(real->cluster, i) : real->process;
}

static guint n_members(RealDriver *real)
{
    return real->cluster != NULL ? etcd_cluster_size(real->cluster) : 1;
}

static void real_compact(Driver *base, gint64 at_revision)
{
    g_autoptr(GError) error = NULL;
    must_be(etcd_process_compact(member((RealDriver *)base, 0), at_revision, &error), error);
}

static void real_freeze(Driver *base)
{
    for (guint i = 0; i < n_members((RealDriver *)base); i++) {
        etcd_process_freeze(member((RealDriver *)base, i));
    }
}

static void real_thaw(Driver *base)
{
    for (guint i = 0; i < n_members((RealDriver *)base); i++) {
        etcd_process_thaw(member((RealDriver *)base, i));
    }
}

static void real_restart(Driver *base)
{
    RealDriver *real = (RealDriver *)base;
    g_autoptr(GError) error = NULL;
    for (guint i = 0; i < n_members(real); i++) {
        etcd_process_kill(member(real, i));
    }
    for (guint i = 0; i < n_members(real); i++) {
        must_be(etcd_process_spawn(member(real, i), &error), error);
    }
    for (guint i = 0; i < n_members(real); i++) {
        must_be(etcd_process_wait(member(real, i), &error), error);
    }
}

/* Not of a cluster. */
static void real_back_up(Driver *base)
{
    g_autoptr(GError) error = NULL;
    must_be(etcd_process_back_up(((RealDriver *)base)->process, &error), error);
}

static void real_restore(Driver *base)
{
    g_autoptr(GError) error = NULL;
    must_be(etcd_process_restore(((RealDriver *)base)->process, &error), error);
}

static void real_set_nospace(Driver *base, gboolean on)
{
    g_autoptr(GError) error = NULL;
    must_be(etcd_process_set_nospace(member((RealDriver *)base, 0), on, &error), error);
}

static gboolean start_plain(RealDriver *real, GError **error)
{
    real->process = etcd_process_new(NULL, error);
    return real->process != NULL;
}

static gboolean start_secure(RealDriver *real, GError **error)
{
    const CertSpec server = {.cn = "etcd", .names = "IP:127.0.0.1"};
    const CertSpec client = {.cn = "client"};
    real->dir = g_dir_make_tmp("leasehold-conformance-XXXXXX", NULL);
    real->ca = certs_authority(real->dir, "ca");
    real->server = certs_issue(real->dir, "server", &real->ca, &server);
    real->client = certs_issue(real->dir, "client", &real->ca, &client);
    g_autofree char *password_file = g_build_filename(real->dir, "password", NULL);
    g_assert(g_file_set_contents(password_file, "over the hills\n", -1, NULL));
    real->options.cacert = real->ca.cert;
    real->options.cert = real->client.cert;
    real->options.key = real->client.key;
    real->options.user = "root";
    real->options.password_file = g_steal_pointer(&password_file);
    const EtcdProcessOptions options = {
        .server = &real->server, .client_ca = real->ca.cert, .root_password = "over the hills"};
    real->process = etcd_process_new_with(&options, error);
    return real->process != NULL;
}

static gboolean start_cluster(RealDriver *real, GError **error)
{
    real->cluster = etcd_cluster_new(3, NULL, error);
    return real->cluster != NULL;
}

static void stop(RealDriver *real)
{
    etcd_process_free(real->process);
    etcd_cluster_free(real->cluster);
    if (real->dir == NULL) {
        return;
    }
    const char *const files[] = {
        real->ca.cert,     real->ca.key,     real->server.cert,          real->server.key,
        real->client.cert, real->client.key, real->options.password_file};
    for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
        g_unlink(files[i]);
    }
    g_rmdir(real->dir);
    g_free((char *)(guintptr)real->options.password_file);
    certs_clear(&real->ca);
    certs_clear(&real->server);
    certs_clear(&real->client);
    g_free(real->dir);
}

/* What takes long, and is about what is above the transport, is left out where that is not plain. */
static const struct {
    const char *name, *group;
    gboolean (*start)(RealDriver *real, GError **error);
    const char *const skip[16];
} modes[] = {
    {"plain", "conformance-etcd", start_plain, {NULL}},
    {"secure",
     "conformance-etcd-secure",
     start_secure,
     {"keeper_", "lease_keepalive_at_its_end", "lease_keepalive_renews", "lease_expires",
      "leases_expire", "call_lease_is_rearmed", "watcher_lives_through", "watcher_stays_open",
      NULL}},
    {"cluster",
     "conformance-etcd-cluster",
     start_cluster,
     {"keeper_", "lease_keepalive_at_its_end", "lease_keepalive_renews", "lease_expires",
      "leases_expire", "call_lease_is_rearmed", "watcher_", "call_status" /* of one member */,
      NULL}},
};

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    RealDriver real = {.driver = {.connect = real_connect,
                                  .run_until = real_run_until,
                                  .compact = real_compact,
                                  .freeze = real_freeze,
                                  .thaw = real_thaw,
                                  .restart = real_restart,
                                  .back_up = real_back_up,
                                  .restore = real_restore,
                                  .set_nospace = real_set_nospace}};
    guint mode = 0;
    while (argc > 1 && strcmp(modes[mode].name, argv[1]) != 0) {
        g_assert(++mode < G_N_ELEMENTS(modes));
    }
    if (!modes[mode].start(&real, &error)) {
        printf("1..0 # SKIP %s\n", error->message);
        stop(&real);
        return error->code == LH_ERR_NOT_FOUND ? 77 : 1;
    }
    real.endpoints[0] = etcd_process_endpoint(member(&real, 0));
    real.options.endpoints = real.cluster != NULL ? etcd_cluster_endpoints(real.cluster)
                                                  : real.endpoints;
    real.driver.version = etcd_process_version(member(&real, 0));
    fprintf(stderr, "# etcd %s, %s\n", real.driver.version, modes[mode].name);
    real.driver.env = lh_env_glib_new(NULL);
    real.driver.etcd = real_connect(&real.driver);
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT); /* lost leases are wanted here */
    int failed = suite_run(&real.driver, modes[mode].group, modes[mode].skip);
    lh_etcd_free(real.driver.etcd);
    lh_env_free(real.driver.env);
    stop(&real);
    return failed;
}

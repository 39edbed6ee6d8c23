/*
 * The conformance suite against a real etcd of our own ($LEASEHOLD_TEST_ETCD, or the one in the
 * PATH). Without any: skipped (77).
 */
#include "base/log.h"
#include "etcd/transport_grpc.h"
#include "suite.h"
#include "tests/fakes/etcd_process.h"

#include <stdio.h>

typedef struct {
    Driver driver;
    EtcdProcess *process;
    const char *endpoints[2];
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
    RealDriver *real = (RealDriver *)base;
    const LhEtcdOptions options = {.endpoints = real->endpoints};
    g_autoptr(GError) error = NULL;
    LhEtcd *etcd = lh_etcd_grpc_new(&options, NULL, &error);
    g_assert_no_error(error);
    return etcd;
}

static void must_be(gboolean done, const GError *error)
{
    if (!done) {
        fail_msg("%s", error != NULL ? error->message : "?");
    }
}

static void real_compact(Driver *base, gint64 at_revision)
{
    g_autoptr(GError) error = NULL;
    must_be(etcd_process_compact(((RealDriver *)base)->process, at_revision, &error), error);
}

static void real_freeze(Driver *base)
{
    etcd_process_freeze(((RealDriver *)base)->process);
}

static void real_thaw(Driver *base)
{
    etcd_process_thaw(((RealDriver *)base)->process);
}

static void real_restart(Driver *base)
{
    g_autoptr(GError) error = NULL;
    must_be(etcd_process_restart(((RealDriver *)base)->process, &error), error);
}

static void real_set_nospace(Driver *base, gboolean on)
{
    g_autoptr(GError) error = NULL;
    must_be(etcd_process_set_nospace(((RealDriver *)base)->process, on, &error), error);
}

int main(void)
{
    g_autoptr(GError) error = NULL;
    EtcdProcess *process = etcd_process_new(NULL, &error);
    if (process == NULL) {
        printf("1..0 # SKIP %s\n", error->message);
        return error->code == LH_ERR_NOT_FOUND ? 77 : 1;
    }
    RealDriver real = {.process = process,
                       .endpoints = {etcd_process_endpoint(process), NULL},
                       .driver = {.version = etcd_process_version(process),
                                  .connect = real_connect,
                                  .run_until = real_run_until,
                                  .compact = real_compact,
                                  .freeze = real_freeze,
                                  .thaw = real_thaw,
                                  .restart = real_restart,
                                  .set_nospace = real_set_nospace}};
    fprintf(stderr, "# etcd %s\n", real.driver.version);
    real.driver.env = lh_env_glib_new(NULL);
    real.driver.etcd = real_connect(&real.driver);
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT); /* lost leases are wanted here */
    int failed = suite_run(&real.driver, "conformance-etcd");
    lh_etcd_free(real.driver.etcd);
    lh_env_free(real.driver.env);
    etcd_process_free(process);
    return failed;
}

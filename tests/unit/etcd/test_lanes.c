/*
 * What the transport's threads cost: with both lanes connected to a real etcd, traffic of the one leaves the
 * thread of the other asleep; and what this process starts inherits nothing of how that is done.
 * Without an etcd: skipped.
 */
/* links: fakes */
#include "base/errors.h"
#include "etcd/transport_grpc.h"
#include "tests/fakes/etcd_process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WAIT_S 30
#define CALLS  300
/* gRPC's own timers may wake it now and then; each answer would wake it at least once. */
#define FEW (CALLS / 4)

static EtcdProcess *process;

static gboolean on_timeout(gpointer data)
{
    (void)data;
    g_error("no answer within %d s", WAIT_S);
    return G_SOURCE_REMOVE;
}

static void wait_for(const gint64 *done)
{
    guint timeout = g_timeout_add_seconds(WAIT_S, on_timeout, NULL);

    while (*done == 0)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timeout);
}

static void on_lease(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    (void)ttl_s;
    assert_null(error);
    *(gint64 *)data = lease;
}

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    assert_null(error);
    *(gint64 *)data = reply->header.revision;
}

static void put(LhEtcd *etcd)
{
    LhTxnOp op = lh_txn_put("/lanes/a", "", 0);
    const LhTxnRequest request = {.success = &op, .n_success = 1};
    gint64 done = 0;

    lh_etcd_txn(etcd, &request, on_txn, &done);
    wait_for(&done);
}

/* How often the thread of this name has gone to sleep and was woken again. */
static guint64 sleeps_of(const char *name)
{
    g_autoptr(GDir) threads = g_dir_open("/proc/self/task", 0, NULL);
    g_autofree char *wanted = g_strdup_printf("Name:\t%s\n", name);
    const char *id;

    while ((id = g_dir_read_name(threads)) != NULL) {
        g_autofree char *path = g_strdup_printf("/proc/self/task/%s/status", id);
        g_autofree char *text = NULL;
        const char *count;
        if (!g_file_get_contents(path, &text, NULL, NULL) || !g_str_has_prefix(text, wanted))
            continue;
        count = strstr(text, "\nvoluntary_ctxt_switches:");
        assert_non_null(count);
        return g_ascii_strtoull(count + strlen("\nvoluntary_ctxt_switches:\t"), NULL, 10);
    }
    fail_msg("no thread is called %s", name);
    return 0;
}

static void calls_leave_the_thread_of_leases_asleep(void **state)
{
    const char *endpoints[] = {etcd_process_endpoint(process), NULL};
    const LhEtcdOptions options = {.endpoints = endpoints};
    LhEtcd *etcd = lh_etcd_grpc_new(&options, NULL, NULL);
    gint64 lease = 0;
    guint64 before, leases, calls;

    (void)state;
    assert_null(g_getenv("GRPC_POLL_STRATEGY"));
    etcd->v->lease_grant(etcd, 60, LH_ETCD_DEADLINE_MS, on_lease, &lease);
    wait_for(&lease);
    put(etcd);
    before = sleeps_of("etcd leases");
    calls = sleeps_of("etcd");
    for (guint i = 0; i < CALLS; i++)
        put(etcd);
    leases = sleeps_of("etcd leases") - before;
    calls = sleeps_of("etcd") - calls;
    if (leases > FEW || calls < FEW)
        fail_msg("%d calls woke the thread of leases %" G_GUINT64_FORMAT
                 " times, their own %" G_GUINT64_FORMAT " times",
                 CALLS, leases, calls);
    lh_etcd_free(etcd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_leave_the_thread_of_leases_asleep),
    };
    g_autoptr(GError) error = NULL;
    int failed;

    process = etcd_process_new(NULL, &error);
    if (process == NULL) {
        printf("1..0 # SKIP %s\n", error->message);
        return error->code == LH_ERR_NOT_FOUND ? 77 : 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    etcd_process_free(process);
    return failed;
}

/*
 * outside/etcd_clock: the Date of a real etcd, over TLS with client certificates, and why there is none.
 */
#include "base/errors.h"
#include "outside/etcd_clock.h"
#include "tests/fakes/etcd_process.h"

#include <glib/gstdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* links: fakes */
/* suite: threads */

typedef struct {
    char *dir;
    CertFiles ca, other_ca, server, client, stranger;
    EtcdProcess *etcd;
    /* The last answer. */
    guint answers;
    gint64 clock_ms;
    GError *error;
} Lab;

static void on_done(gint64 clock_ms, const GError *error, gpointer data)
{
    Lab *lab = data;

    lab->answers++;
    lab->clock_ms = clock_ms;
    lab->error = error == NULL ? NULL : g_error_copy(error);
}

static gboolean it_is_late(gpointer late)
{
    *(gboolean *)late = TRUE;
    return G_SOURCE_REMOVE;
}

static char *endpoint(gpointer data)
{
    return g_strdup(data);
}

static void ask_at(Lab *lab, const char *url, const char *cacert, const CertFiles *client)
{
    LhEtcdClock *clock = lh_etcd_clock_new(endpoint, (gpointer)url, cacert,
                                           client == NULL ? NULL : client->cert,
                                           client == NULL ? NULL : client->key);
    LhClockSource source = lh_etcd_clock_source(clock);
    gboolean late = FALSE;
    guint timeout = g_timeout_add_seconds(40, it_is_late, &late);

    lab->answers = 0;
    g_clear_error(&lab->error);
    source.ask(source.data, on_done, lab);
    while (lab->answers == 0 && !late)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timeout);
    assert_int_equal(lab->answers, 1);
    lh_etcd_clock_free(clock);
}

static void ask(Lab *lab, const char *cacert, const CertFiles *client)
{
    ask_at(lab, etcd_process_endpoint(lab->etcd), cacert, client);
}

static void refused(const Lab *lab, const char *says)
{
    assert_non_null(lab->error);
    assert_true(g_error_matches(lab->error, LH_ERROR, LH_ERR_UNAVAILABLE));
    assert_true(lab->clock_ms < 0);
    assert_null(strchr(lab->error->message, '\n'));
    assert_true(g_str_has_prefix(lab->error->message, "https://127.0.0.1:"));
    if (strstr(lab->error->message, says) == NULL)
        fail_msg("%s", lab->error->message);
}

static void answered(const Lab *lab)
{
    gint64 now_ms = g_get_real_time() / 1000;

    if (lab->error != NULL)
        fail_msg("%s", lab->error->message);
    assert_true(ABS(now_ms - lab->clock_ms) < 60000);
}

static void a_client_certificate_is_shown(void **state)
{
    Lab *lab = *state;

    ask(lab, lab->ca.cert, &lab->client);
    answered(lab);
    /* The server says why and closes at once: what is heard of that is the network's business. */
    ask(lab, lab->ca.cert, NULL);
    refused(lab, "");
    ask(lab, lab->ca.cert, &lab->stranger);
    refused(lab, "");
}

static void another_authority_is_not_trusted(void **state)
{
    Lab *lab = *state;
    g_autofree char *missing = g_build_filename(lab->dir, "none.crt", NULL);

    ask(lab, lab->other_ca.cert, &lab->client);
    refused(lab, "unable to get local issuer certificate");
    ask(lab, missing, &lab->client);
    refused(lab, "none.crt");
}

/* The files are looked at with each question. */
static void files_may_be_replaced(void **state)
{
    Lab *lab = *state;
    g_autofree char *path = g_build_filename(lab->dir, "replaced.crt", NULL);
    const char *const order[] = {lab->other_ca.cert, lab->ca.cert};
    g_autofree char *url = g_strdup(etcd_process_endpoint(lab->etcd));
    LhEtcdClock *clock = lh_etcd_clock_new(endpoint, url, path, lab->client.cert, lab->client.key);
    LhClockSource source = lh_etcd_clock_source(clock);

    for (guint i = 0; i < G_N_ELEMENTS(order); i++) {
        g_autofree char *text = NULL;
        assert_true(g_file_get_contents(order[i], &text, NULL, NULL));
        assert_true(g_file_set_contents(path, text, -1, NULL));
        lab->answers = 0;
        g_clear_error(&lab->error);
        source.ask(source.data, on_done, lab);
        while (lab->answers == 0)
            g_main_context_iteration(NULL, TRUE);
        assert_true((lab->error != NULL) == (i == 0));
    }
    answered(lab);
    lh_etcd_clock_free(clock);
}

static void nobody_listens(void **state)
{
    Lab *lab = *state;
    g_autofree char *url = g_strdup_printf("https://127.0.0.1:%u", etcd_free_port());

    ask_at(lab, url, lab->ca.cert, &lab->client);
    refused(lab, "Failed to connect");
}

static int setup(void **state)
{
    static const CertSpec server = {.cn = "etcd", .names = "IP:127.0.0.1"};
    static const CertSpec client = {.cn = "manager"};
    g_autoptr(GError) error = NULL;
    Lab *lab = g_new0(Lab, 1);

    lab->dir = g_dir_make_tmp("leasehold-clock-XXXXXX", NULL);
    assert_non_null(lab->dir);
    lab->ca = certs_authority(lab->dir, "ca");
    lab->other_ca = certs_authority(lab->dir, "other");
    lab->server = certs_issue(lab->dir, "server", &lab->ca, &server);
    lab->client = certs_issue(lab->dir, "client", &lab->ca, &client);
    lab->stranger = certs_issue(lab->dir, "stranger", &lab->other_ca, &client);
    const EtcdProcessOptions options = {.server = &lab->server, .client_ca = lab->ca.cert};
    lab->etcd = etcd_process_new_with(&options, &error);
    if (lab->etcd == NULL)
        fail_msg("%s", error->message);
    *state = lab;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"ca", "other", "server", "client", "stranger", "replaced"};
    Lab *lab = *state;

    etcd_process_free(lab->etcd);
    for (guint i = 0; i < 2 * G_N_ELEMENTS(names); i++) {
        g_autofree char *file = g_strconcat(names[i / 2], i % 2 == 0 ? ".crt" : ".key", NULL);
        g_autofree char *path = g_build_filename(lab->dir, file, NULL);
        g_unlink(path);
    }
    assert_int_equal(g_rmdir(lab->dir), 0);
    certs_clear(&lab->ca);
    certs_clear(&lab->other_ca);
    certs_clear(&lab->server);
    certs_clear(&lab->client);
    certs_clear(&lab->stranger);
    g_clear_error(&lab->error);
    g_free(lab->dir);
    g_free(lab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_certificate_is_shown),
        cmocka_unit_test(another_authority_is_not_trusted),
        cmocka_unit_test(files_may_be_replaced),
        cmocka_unit_test(nobody_listens),
    };

    return cmocka_run_group_tests_name("etcd_clock", tests, setup, teardown);
}

/*
 * etcd/endpoints: which options are accepted, and that those that are not are named with their source
 * and the file.
 */
/* links: fakes */
#include "base/errors.h"
#include "etcd/auth.h"
#include "etcd/endpoints.h"
#include "tests/fakes/certs.h"

#include <glib/gstdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char *dir;
static CertFiles ca, client, other;
static char *password, *empty, *text;

static char *put(const char *name, const char *content)
{
    char *path = g_build_filename(dir, name, NULL);
    assert_true(g_file_set_contents(path, content, -1, NULL));
    return path;
}

static int make_files(void **state)
{
    (void)state;
    dir = g_dir_make_tmp("leasehold-endpoints-XXXXXX", NULL);
    ca = certs_authority(dir, "ca");
    client = certs_issue(dir, "client", &ca, &(CertSpec){.cn = "client"});
    other = certs_issue(dir, "other", &ca, &(CertSpec){.cn = "other"});
    password = put("password", "over the hills\n");
    empty = put("empty", "\n");
    text = put("text", "neither key nor certificate");
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    const char *const files[] = {ca.cert,   ca.key,   client.cert, client.key, other.cert,
                                 other.key, password, empty,       text};
    for (guint i = 0; i < G_N_ELEMENTS(files); i++)
        g_unlink(files[i]);
    g_rmdir(dir);
    g_free(dir);
    g_free(password);
    g_free(empty);
    g_free(text);
    certs_clear(&ca);
    certs_clear(&client);
    certs_clear(&other);
    return 0;
}

static void expect_endpoints(const LhEtcdOptions *options, gboolean tls, const char *urls,
                             const char *targets)
{
    g_auto(LhEndpoints) endpoints = {0};
    g_autoptr(GError) error = NULL;
    if (!lh_endpoints_check(options, NULL, NULL, &endpoints, &error))
        fail_msg("%s", error->message);
    g_autofree char *got_urls = g_strjoinv(" ", endpoints.urls);
    g_autofree char *got_targets = g_strjoinv(" ", endpoints.targets);
    assert_string_equal(got_urls, urls);
    assert_string_equal(got_targets, targets);
    assert_int_equal(endpoints.tls, tls);
}

static void accepted(void **state)
{
    (void)state;
    LhEtcdOptions options = {
        .endpoints = (const char *const[]){"a:1", "http://b:2/", "[::1]:3", NULL}};
    expect_endpoints(&options, FALSE, "http://a:1 http://b:2 http://[::1]:3",
                     "dns:///a:1 dns:///b:2 dns:///[::1]:3");
    options.endpoints = (const char *const[]){"https://a:1", "https://b:2", NULL};
    expect_endpoints(&options, TRUE, "https://a:1 https://b:2", "dns:///a:1 dns:///b:2");
    options.endpoints = (const char *const[]){"a:1", NULL};
    options.cacert = ca.cert;
    expect_endpoints(&options, TRUE, "https://a:1", "dns:///a:1");
    options.cacert = NULL;
    options.cert = client.cert;
    options.key = client.key;
    options.user = "u";
    options.password_file = password;
    expect_endpoints(&options, TRUE, "https://a:1", "dns:///a:1");
}

static void expect_refused(const LhEtcdOptions *options, const char *source, const char *says)
{
    LhEndpoints endpoints = {0};
    g_autoptr(GError) error = NULL;
    assert_false(lh_endpoints_check(options, NULL, NULL, &endpoints, &error));
    assert_null(endpoints.urls);
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_null(strchr(error->message, '\n'));
    assert_null(strstr(error->message, "over the hills"));
    if (!g_str_has_prefix(error->message, source) || error->message[strlen(source)] != ':' ||
        strstr(error->message, says) == NULL)
        fail_msg("'%s' is not '%s: …%s…'", error->message, source, says);
}

static void refused(void **state)
{
    (void)state;
    const char *const one[] = {"https://a:1", NULL};
    const char *const plain[] = {"http://a:1", NULL};
    const struct {
        LhEtcdOptions options;
        const char *source, *says;
    } rows[] = {
        {{.endpoints = NULL}, "etcd.endpoints", "no endpoint"},
        {{.endpoints = (const char *const[]){NULL}}, "etcd.endpoints", "no endpoint"},
        {{.endpoints = (const char *const[]){"ftp://a:1", NULL}}, "etcd.endpoints", "http"},
        {{.endpoints = (const char *const[]){"a:1", "b", NULL}}, "etcd.endpoints", "host:port"},
        {{.endpoints = (const char *const[]){"https://a:1", "http://b:1", NULL}},
         "etcd.endpoints",
         "all endpoints must be https:// or none"},
        {{.endpoints = (const char *const[]){"a:1", "http://a:1", NULL}},
         "etcd.endpoints",
         "twice"},
        {{.endpoints = plain, .cacert = ca.cert}, "etcd.cacert", "http://a:1"},
        {{.endpoints = plain, .cert = client.cert, .key = client.key}, "etcd.cert", "http://a:1"},
        {{.endpoints = one, .cert = client.cert}, "etcd.cert", "needs etcd.key too"},
        {{.endpoints = one, .key = client.key}, "etcd.key", "needs etcd.cert too"},
        {{.endpoints = one, .user = "u"}, "etcd.user", "needs etcd.passwordFile too"},
        {{.endpoints = one, .password_file = password}, "etcd.passwordFile", "needs etcd.user too"},
        {{.endpoints = one, .user = "", .password_file = password}, "etcd.user", "empty"},
        {{.endpoints = one, .user = "u", .password_file = empty}, "etcd.passwordFile", empty},
        {{.endpoints = one, .user = "u", .password_file = "/none"}, "etcd.passwordFile", "/none"},
        {{.endpoints = one, .cacert = "/none"}, "etcd.cacert", "/none: cannot be read"},
        {{.endpoints = one, .cacert = text}, "etcd.cacert", "holds no certificate"},
        {{.endpoints = one, .cacert = ca.key}, "etcd.cacert", "holds no certificate"},
        {{.endpoints = one, .cert = client.key, .key = client.key}, "etcd.cert", client.key},
        {{.endpoints = one, .cert = client.cert, .key = client.cert}, "etcd.key", "no private key"},
        {{.endpoints = one, .cert = client.cert, .key = other.key},
         "etcd.key",
         "does not belong to the certificate"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        expect_refused(&rows[i].options, rows[i].source, rows[i].says);
}

static LhConfig *load(const char *const *args, guint n)
{
    const LhSetting *const tables[] = {lh_shared_settings, NULL};
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    g_ptr_array_add(argv, (gpointer) "leasehold");
    for (guint i = 0; i < n; i++)
        g_ptr_array_add(argv, (gpointer)(guintptr)args[i]);
    g_ptr_array_add(argv, NULL);
    g_autoptr(GError) error = NULL;
    LhConfig *config = lh_config_load(tables, "x", (int)argv->len - 1, (char **)argv->pdata,
                                      &error);
    if (config == NULL)
        fail_msg("%s", error->message);
    return config;
}

static void from_settings(void **state)
{
    (void)state;
    const char *const good[] = {"--etcd-endpoints=https://a:1,https://b:2",
                                "--etcd-cacert",
                                ca.cert,
                                "--etcd-user=u",
                                "--etcd-password-file",
                                password};
    g_autoptr(LhConfig) config = load(good, G_N_ELEMENTS(good));
    LhEtcdOptions options = {0};
    g_autoptr(GError) error = NULL;
    assert_true(lh_etcd_options_read(config, &options, &error));
    assert_string_equal(options.endpoints[1], "https://b:2");
    assert_string_equal(options.cacert, ca.cert);
    assert_null(options.cert);
    assert_string_equal(options.user, "u");
    assert_string_equal(options.password_file, password);

    const char *const bad[] = {"--etcd-endpoints=https://a:1", "--etcd-cacert=/none"};
    g_autoptr(LhConfig) wrong = load(bad, G_N_ELEMENTS(bad));
    LhEtcdOptions untouched = {0};
    assert_false(lh_etcd_options_read(wrong, &untouched, &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_true(g_str_has_prefix(error->message, "--etcd-cacert: /none: cannot be read"));
    assert_null(untouched.endpoints);
}

static void passwords(void **state)
{
    (void)state;
    static const struct {
        const char *content, *password; /* NULL: refused */
    } rows[] = {{"a\n", "a"}, {"a", "a"},   {"a\n\n", "a\n"}, {" a ", " a "},
                {"", NULL},   {"\n", NULL}, {"\xff", NULL}};
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *path = put("changing", rows[i].content);
        g_autoptr(GError) error = NULL;
        char *got = lh_password_read(path, &error);
        if (rows[i].password != NULL)
            assert_string_equal(got, rows[i].password);
        else
            assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        lh_password_free(got);
        g_unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(refused),
        cmocka_unit_test(from_settings),
        cmocka_unit_test(passwords),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}

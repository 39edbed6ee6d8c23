/* links: http */
/* links: fakes */
/*
 * The program against a server with TLS: which servers it trusts, how it says who it is, and what it
 * says when either does not work.
 */
#include "cli/client.h"
#include "tests/fakes/certs.h"
#include "world.h"

static char *certs_dir;
static CertFiles authority, stranger, server, client;

static CertFiles server_files(const char *names, gint64 from_s, gint64 to_s)
{
    const CertSpec spec = {.cn = "server", .names = names, .from_s = from_s, .to_s = to_s};
    return certs_issue(certs_dir, "server", &authority, &spec);
}

static int setup_files(void **state)
{
    (void)state;
    const CertSpec spec = {.cn = "vera"};
    certs_dir = g_dir_make_tmp("lh-cli-certs-XXXXXX", NULL);
    authority = certs_authority(certs_dir, "authority");
    stranger = certs_authority(certs_dir, "stranger");
    client = certs_issue(certs_dir, "client", &authority, &spec);
    g_autofree char *path = g_build_filename(certs_dir, "tokens", NULL);
    g_autofree char *viewer = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "t0ken-v", -1);
    g_autofree char *operator= g_compute_checksum_for_string(G_CHECKSUM_SHA256, "t0ken-o", -1);
    g_autofree char *text = g_strdup_printf("v viewer sha256:%s\no operator sha256:%s\n",
                                            viewer, operator);
    return g_file_set_contents(path, text, -1, NULL) ? 0 : -1;
}

static int teardown_files(void **state)
{
    (void)state;
    g_autoptr(GDir) dir = g_dir_open(certs_dir, 0, NULL);
    for (const char *name; (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *path = g_build_filename(certs_dir, name, NULL);
        g_unlink(path);
    }
    g_rmdir(certs_dir);
    certs_clear(&authority);
    certs_clear(&stranger);
    certs_clear(&client);
    g_free(certs_dir);
    return 0;
}

static int setup_serving(void **state, const char *names, gint64 from_s, gint64 to_s)
{
    g_autofree char *tokens = g_build_filename(certs_dir, "tokens", NULL);
    server = server_files(names, from_s, to_s);
    int result = setup_with(state, (LhHttpOptions){.cert = server.cert,
                                                   .key = server.key,
                                                   .client_ca = authority.cert,
                                                   .tokens_file = tokens});
    certs_clear(&server);
    return result;
}

static int setup_tls(void **state)
{
    return setup_serving(state, "IP:127.0.0.1", 0, 0);
}

static int setup_expired(void **state)
{
    return setup_serving(state, "IP:127.0.0.1", -7200, -3600);
}

static int setup_early(void **state)
{
    return setup_serving(state, "IP:127.0.0.1", 3600, 7200);
}

static int setup_other_name(void **state)
{
    return setup_serving(state, "IP:127.0.0.2,DNS:localhost", 0, 0);
}

static void test_certificate(void **state)
{
    World *world = *state;
    has_service(world, "a", "me", 7);
    assert_true(g_str_has_prefix(world->url, "https://127.0.0.1:"));
    assert_run(0, "--cacert", authority.cert, "--cert", client.cert, "--key", client.key, "get",
               "services", "-o", "name");
    assert_string_equal(world->out, "services/a\n");
    assert_run(0, "get", "services", "--cacert", authority.cert, "--cert", client.cert, "--key",
               client.key);
    /* As variables; an option goes before. */
    g_setenv("LEASEHOLD_CACERT", authority.cert, TRUE);
    g_setenv("LEASEHOLD_CERT", client.cert, TRUE);
    g_setenv("LEASEHOLD_KEY", client.key, TRUE);
    assert_run(0, "get", "services");
    assert_run(3, "get", "services", "--cacert", stranger.cert);
    assert_contains(world->err, "its certificate is not trusted");
    g_setenv("LEASEHOLD_CACERT", "", TRUE);
    assert_run(3, "get", "services");
    /* A viewer. */
    g_setenv("LEASEHOLD_CACERT", authority.cert, TRUE);
    assert_run(4, "delete", "service", "a");
    assert_string_equal(world->err, "leasehold: services/a: the role operator is needed\n");
}

static void test_token(void **state)
{
    World *world = *state;
    g_autofree char *path = file(world, "token", "t0ken-o\n");
    g_autofree char *manifest = file(world, "a.yaml",
                                     "kind: Service\nmetadata: {name: a}\nspec: {owner: me}\n");
    g_setenv("LEASEHOLD_CACERT", authority.cert, TRUE);
    assert_run(3, "get", "services");
    assert_string_equal(world->err,
                        "leasehold: services: a token or a client certificate is needed\n");
    g_setenv("LEASEHOLD_TOKEN", "t0ken-x", TRUE);
    assert_run(3, "get", "services");
    assert_string_equal(world->err, "leasehold: services: the token is not known\n");
    g_setenv("LEASEHOLD_TOKEN", "t0ken-v", TRUE);
    assert_run(0, "get", "services");
    assert_run(4, "apply", "-f", manifest);
    assert_contains(world->err, "services/a: the role operator is needed\n");
    assert_null(strstr(world->err, "t0ken"));
    assert_run(0, "apply", "-f", manifest, "--token-file", path);
    assert_run(4, "delete", "service", "a", "-o", "json");
    g_autoptr(cJSON) problem = cJSON_Parse(world->err);
    assert_int_equal(lh_json_get_int(problem, "status", 0), 403);
    assert_run(0, "delete", "service", "a", "--token-file", path);
}

static void test_untrusted(void **state)
{
    World *world = *state;
    g_setenv("LEASEHOLD_TOKEN", "t0ken-v", TRUE);
    assert_run(3, "get", "services");
    assert_contains(world->err, ": its certificate is not trusted: ");
    assert_run(3, "get", "services", "--cacert", stranger.cert);
    g_autofree char *start = g_strdup_printf("leasehold: server %s: its certificate is not "
                                             "trusted: ",
                                             world->url);
    assert_true(g_str_has_prefix(world->err, start));
    assert_ptr_equal(strchr(world->err, '\n'), world->err + strlen(world->err) - 1);
    assert_run(3, "get", "services", "-w", "--cacert", stranger.cert);
    assert_run(3, "wait", "service", "a", "--for=delete", "--cacert", stranger.cert);
    assert_contains(world->err, "its certificate is not trusted");
    assert_int_equal(world->requests->len, 0);
}

static void test_expired(void **state)
{
    World *world = *state;
    assert_run(3, "get", "services", "--cacert", authority.cert);
    assert_contains(world->err, ": its certificate has expired: ");
}

static void test_early(void **state)
{
    World *world = *state;
    assert_run(3, "get", "services", "--cacert", authority.cert);
    assert_contains(world->err, ": its certificate is not valid yet: ");
}

static void test_other_name(void **state)
{
    World *world = *state;
    assert_run(3, "get", "services", "--cacert", authority.cert);
    assert_contains(world->err, ": its certificate is not trusted: ");
    assert_contains(world->err, "127.0.0.1");
    assert_int_equal(world->requests->len, 0);
}

static void test_bad_client_certificates(void **state)
{
    World *world = *state;
    const CertSpec old = {.cn = "vera", .from_s = -7200, .to_s = -3600}, other = {.cn = "vera"};
    g_auto(CertFiles) expired = certs_issue(certs_dir, "expired", &authority, &old);
    g_auto(CertFiles) foreign = certs_issue(certs_dir, "foreign", &stranger, &other);
    g_setenv("LEASEHOLD_CACERT", authority.cert, TRUE);
    assert_run(3, "get", "services", "--cert", expired.cert, "--key", expired.key);
    assert_string_equal(world->err, "leasehold: services: the client certificate has expired\n");
    assert_run(3, "get", "services", "--cert", foreign.cert, "--key", foreign.key);
    assert_string_equal(world->err, "leasehold: services: the client certificate is not signed by "
                                    "the authority of clients\n");
    assert_int_equal(world->requests->len, 0);
}

static void test_files(void **state)
{
    World *world = *state;
    assert_run(2, "get", "services", "--cert", client.cert);
    assert_string_equal(world->err, "leasehold: --cert: needs --key too\n");
    assert_run(2, "get", "services", "--key", client.key);
    assert_string_equal(world->err, "leasehold: --key: needs --cert too\n");
    assert_run(2, "get", "services", "--cacert", "/nonexistent");
    assert_true(g_str_has_prefix(world->err, "leasehold: --cacert /nonexistent: "));
    assert_run(2, "get", "services", "--cacert", authority.cert, "--cert", "/nonexistent", "--key",
               client.key);
    assert_true(g_str_has_prefix(world->err, "leasehold: --cert /nonexistent, --key "));
    assert_run(2, "get", "services", "--cacert", authority.cert, "--cert", client.cert, "--key",
               authority.key);
    assert_true(g_str_has_prefix(world->err, "leasehold: --cert "));
}

/* A token is a secret of one server, and not of those on the way. */
static void test_plain_http(void **state)
{
    World *world = *state;
    static const char *const servers[] = {"http://192.0.2.1:8083", "http://lh.example",
                                          "http://127.example:8083", "http://[2001:db8::1]:8083"};
    g_setenv("LEASEHOLD_TOKEN", "t0ken-v", TRUE);
    for (guint i = 0; i < G_N_ELEMENTS(servers); i++) {
        g_autofree char *message = g_strdup_printf(
            "leasehold: server %s: a token is not sent to another machine without TLS; use "
            "https\n",
            servers[i]);
        assert_run(2, "get", "services", "--server", servers[i]);
        assert_string_equal(world->err, message);
    }
    assert_run(3, "get", "services", "--server", "http://127.0.0.1:1");
    assert_run(3, "get", "services", "--server", "http://[::1]:1");
    assert_run(3, "get", "services", "--server", "http://localhost:1");
}

static void test_watch(void **state)
{
    World *world = *state;
    has(world, "services/a", "{\"metadata\":{\"name\":\"a\"}}");
    g_setenv("LEASEHOLD_CACERT", authority.cert, TRUE);
    g_setenv("LEASEHOLD_TOKEN", "t0ken-v", TRUE);
    sends(world, "services", "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":4}}");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=4");
    assert_int_equal(world->n_watches, 1);
    g_setenv("LEASEHOLD_TOKEN", "t0ken-x", TRUE);
    assert_run(3, "wait", "service", "a", "--for=jsonpath={.spec.n}=5");
    assert_string_equal(world->err, "leasehold: services: the token is not known\n");
}

static gboolean no_event(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    (void)event;
    (void)revision;
    (void)object;
    (void)data;
    return FALSE;
}

/* Of a certificate that is not to be trusted a second try would say the same. */
static void test_watch_of_an_untrusted_server(void **state)
{
    World *world = *state;
    LhEnv *env = lh_env_glib_new(NULL);
    const LhClientOptions options = {.server = world->url, .cacert = stranger.cert};
    LhClient *untrusting = lh_client_new(env, &options, NULL);
    LhWatch watch = {.plural = "services", .func = no_event};
    g_autoptr(GError) error = NULL;
    LhWatchEnd end = lh_client_watch(untrusting, &watch, 1, lh_mono_ms(env) + 20000, &error);
    assert_int_equal(end, LH_WATCH_ERROR);
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_AUTH));
    assert_int_equal(world->requests->len, 0);
    lh_client_free(untrusting);
    lh_env_free(env);
}

#define with(setup_, name) cmocka_unit_test_setup_teardown(name, setup_, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with(setup_tls, test_certificate),
        with(setup_tls, test_token),
        with(setup_tls, test_untrusted),
        with(setup_expired, test_expired),
        with(setup_early, test_early),
        with(setup_other_name, test_other_name),
        with(setup_tls, test_bad_client_certificates),
        with(setup_tls, test_files),
        with(setup, test_plain_http),
        with(setup_tls, test_watch),
        with(setup_tls, test_watch_of_an_untrusted_server),
    };
    return cmocka_run_group_tests_name("cli/secure", tests, setup_files, teardown_files);
}

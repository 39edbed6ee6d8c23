/*
 * base/config: flags before environment before file before defaults, and errors that name their source.
 */
#include "base/config.h"
#include "base/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const LhSetting own[] = {
    {"name", LH_SET_STRING, NULL, "NAME", "a name"},
    {"capacity", LH_SET_SIZE, "1Gi", NULL, "how much"},
    {"items", LH_SET_INT, "7", NULL, "how many"},
    {"listen", LH_SET_STRING, "127.0.0.1:0", NULL, "replaces the shared one"},
    {"hookTimeout", LH_SET_DURATION, NULL, NULL, NULL},
    {NULL, LH_SET_STRING, NULL, NULL, NULL},
};

static const LhSetting *const tables[] = {lh_shared_settings, own, NULL};

static char *file;

static void write_file(const char *text)
{
    assert_true(g_file_set_contents(file, text, -1, NULL));
}

static int setup(void **state)
{
    (void)state;
    file = g_strdup_printf("%s/lh-config-%d.yaml", g_get_tmp_dir(), getpid());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(file);
    g_free(file);
    const char *const names[] = {"LEASEHOLD_ETCD_ENDPOINTS", "LEASEHOLD_LISTEN",
                                 "LEASEHOLD_LEASE_TTL",      "LEASEHOLD_OBJECT_STORE_ROOTS",
                                 "LEASEHOLD_INSECURE",       "LEASEHOLD_CONFIG",
                                 "LEASEHOLD_NAME",           "LEASEHOLD_CAPACITY"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++)
        g_unsetenv(names[i]);
    return 0;
}

static LhConfig *load_args(GError **error, const char *first, va_list args)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    g_ptr_array_add(argv, (gpointer) "agent");
    for (const char *arg = first; arg != NULL; arg = va_arg(args, const char *))
        g_ptr_array_add(argv, (gpointer)arg);
    g_ptr_array_add(argv, NULL);
    return lh_config_load(tables, "agent", (int)argv->len - 1, (char **)argv->pdata, error);
}

static G_GNUC_NULL_TERMINATED LhConfig *load(const char *first, ...)
{
    va_list args;
    va_start(args, first);
    g_autoptr(GError) error = NULL;
    LhConfig *config = load_args(&error, first, args);
    va_end(args);
    if (config == NULL)
        fail_msg("%s", error->message);
    return config;
}

/* @expected: what the message begins with. */
static G_GNUC_NULL_TERMINATED void refused(const char *expected, const char *first, ...)
{
    va_list args;
    va_start(args, first);
    g_autoptr(GError) error = NULL;
    LhConfig *config = load_args(&error, first, args);
    va_end(args);
    assert_null(config);
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_null(strchr(error->message, '\n'));
    if (!g_str_has_prefix(error->message, expected))
        fail_msg("\"%s\" does not begin with \"%s\"", error->message, expected);
}

static void defaults(void **state)
{
    (void)state;
    g_autoptr(LhConfig) c = load(NULL, NULL);
    assert_string_equal(lh_config_list(c, "etcd.endpoints")[0], "127.0.0.1:2379");
    assert_string_equal(lh_config_string(c, "etcd.prefix"), "/leasehold/");
    assert_int_equal(lh_config_int(c, "leaseTtl"), 5000);
    assert_int_equal(lh_config_int(c, "capacity"), 1 << 30);
    assert_int_equal(lh_config_int(c, "items"), 7);
    assert_string_equal(lh_config_string(c, "listen"), "127.0.0.1:0");
    assert_false(lh_config_bool(c, "insecure"));
    assert_false(lh_config_is_set(c, "name"));
    assert_null(lh_config_string(c, "name"));
    assert_null(lh_config_list(c, "objectStore.roots")[0]);
    assert_string_equal(lh_config_source(c, "name"), "--name");
}

static void flags(void **state)
{
    (void)state;
    g_autoptr(LhConfig) c = load("--etcd-endpoints", "a:1, b:2", "--etcd-endpoints=c:3",
                                 "--lease-ttl", "10s", "--insecure", "--capacity=15Gi", "--items",
                                 "3", "--hook-timeout", "1m", "--object-store-access-key-file",
                                 "/k", "--tls-client-ca", "/ca", NULL);
    assert_int_equal(g_strv_length((char **)lh_config_list(c, "etcd.endpoints")), 3);
    assert_string_equal(lh_config_list(c, "etcd.endpoints")[1], "b:2");
    assert_int_equal(lh_config_int(c, "leaseTtl"), 10000);
    assert_int_equal(lh_config_int(c, "hookTimeout"), 60000);
    assert_int_equal(lh_config_int(c, "capacity"), G_GINT64_CONSTANT(15) << 30);
    assert_true(lh_config_bool(c, "insecure"));
    assert_string_equal(lh_config_string(c, "objectStore.accessKeyFile"), "/k");
    assert_string_equal(lh_config_string(c, "tls.clientCa"), "/ca");
    assert_string_equal(lh_config_source(c, "leaseTtl"), "--lease-ttl");
}

static void the_file(void **state)
{
    (void)state;
    write_file("# all of it\n"
               "etcd:\n"
               "  endpoints: [\"x:1\", y:2]\n"
               "  prefix: /other/\n"
               "leaseTtl: 7s\n"
               "insecure: true\n"
               "name: \"null\"\n"
               "items:\n"
               "objectStore:\n"
               "  roots:\n"
               "    - file:///a/\n"
               "    - file:///b/\n"
               "tls:\n"
               "log: {level: debug, format: json}\n");
    g_autoptr(LhConfig) c = load("--config", file, NULL);
    assert_string_equal(lh_config_list(c, "etcd.endpoints")[1], "y:2");
    assert_string_equal(lh_config_string(c, "etcd.prefix"), "/other/");
    assert_int_equal(lh_config_int(c, "leaseTtl"), 7000);
    assert_true(lh_config_bool(c, "insecure"));
    assert_string_equal(lh_config_string(c, "name"), "null");
    assert_int_equal(lh_config_int(c, "items"), 7); /* null: as if it were not there */
    assert_string_equal(lh_config_list(c, "objectStore.roots")[1], "file:///b/");
    assert_string_equal(lh_config_string(c, "log.format"), "json");
    assert_true(g_str_has_suffix(lh_config_source(c, "leaseTtl"), ": line 5: leaseTtl"));
}

static void who_comes_first(void **state)
{
    (void)state;
    write_file("leaseTtl: 7s\nlisten: f:1\nname: file\ncapacity: 1\n");
    g_setenv("LEASEHOLD_LISTEN", "e:1", TRUE);
    g_setenv("LEASEHOLD_NAME", "env", TRUE);
    g_setenv("LEASEHOLD_CAPACITY", "", TRUE);
    g_setenv("LEASEHOLD_ETCD_ENDPOINTS", "e:1,e:2", TRUE);
    g_setenv("LEASEHOLD_OBJECT_STORE_ROOTS", "file:///e/", TRUE);
    g_setenv("LEASEHOLD_INSECURE", "true", TRUE);
    g_autoptr(LhConfig) c = load("--name", "flag", "--config", file, NULL);
    assert_string_equal(lh_config_string(c, "name"), "flag");
    assert_string_equal(lh_config_string(c, "listen"), "e:1");
    assert_int_equal(lh_config_int(c, "leaseTtl"), 7000);
    assert_int_equal(lh_config_int(c, "capacity"), 1); /* an empty variable says nothing */
    assert_string_equal(lh_config_list(c, "etcd.endpoints")[1], "e:2");
    assert_string_equal(lh_config_list(c, "objectStore.roots")[0], "file:///e/");
    assert_true(lh_config_bool(c, "insecure"));
    assert_string_equal(lh_config_source(c, "listen"), "LEASEHOLD_LISTEN");
}

static void the_file_by_the_environment(void **state)
{
    (void)state;
    write_file("name: x\n");
    g_setenv("LEASEHOLD_CONFIG", file, TRUE);
    g_autoptr(LhConfig) c = load(NULL, NULL);
    assert_string_equal(lh_config_string(c, "name"), "x");
}

/* A service has no locale: the test has none either. */
static void text_is_utf8_whatever_the_locale(void **state)
{
    (void)state;
    g_autoptr(LhConfig) c = load("--name", "\xc3\xa9t\xc3\xa9", NULL);
    assert_string_equal(lh_config_string(c, "name"), "\xc3\xa9t\xc3\xa9");
    refused("--name: must be UTF-8", "--name", "\xff", NULL);
    g_setenv("LEASEHOLD_NAME", "\xff", TRUE);
    refused("LEASEHOLD_NAME: must be UTF-8", NULL, NULL);
}

static void bad_flags(void **state)
{
    (void)state;
    refused("command line: ", "--nope", NULL);
    refused("command line: unexpected \"extra\"", "extra", NULL);
    refused("command line: ", "--name", NULL);
    refused("--lease-ttl: ", "--lease-ttl", "5", NULL);
    refused("--capacity: ", "--capacity", "lots", NULL);
    refused("--items: ", "--items", "-1", NULL);
    refused("--items: ", "--items", "9007199254740992", NULL);
    refused("--config: ", "--config", "/does/not/exist", NULL);
    g_setenv("LEASEHOLD_LEASE_TTL", "x", TRUE);
    refused("LEASEHOLD_LEASE_TTL: ", NULL, NULL);
}

static void bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"nope: 1\n", "line 1: unknown setting \"nope\""},
        {"etcd:\n  endpoint: a\n", "line 2: unknown setting \"etcd.endpoint\""},
        {"etcd: a\n", "line 1: etcd: must be a mapping"},
        {"- a\n", "line 1: the document: must be a mapping"},
        {"leaseTtl: [1, 2]\n", "line 1: leaseTtl: must be a single value"},
        {"leaseTtl: {a: b}\n", "line 1: leaseTtl: must be a single value"},
        {"etcd: {endpoints: [[a]]}\n", "line 1: etcd.endpoints: must be a list of strings"},
        {"\nleaseTtl: soon\n", "line 2: leaseTtl: duration"},
        {"insecure: yes\n", "line 1: insecure: \"yes\" must be true or false"},
        {"name: a\nname: b\n", "line 2: name: is there twice"},
        {"name: [\n", "line 2: "},
        {"? [a]\n: b\n", "line 1: a key must be a string"},
        {"\"a\\nb\": 1\n", "line 1: unknown setting \"a\\nb\""},
        {"insecure: \"a\\nb\"\n", "line 1: insecure: \"a\\nb\" must be true or false"},
        {"\"name\\0\": a\n", "line 1: a key must be a string"},
        {"name: \"a\\0b\"\n", "line 1: name: must be a single value, without NUL"},
        {"name: a\n---\nname: b\n", "line 2: there must be one document only"},
        {"name: a\n...\n}{\n", "line 3: did not find"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
        write_file(bad[i].text);
        g_autofree char *expected = g_strconcat(file, ": ", bad[i].why, NULL);
        refused(expected, "--config", file, NULL);
    }
    assert_true(g_file_set_contents(file, "name: \xff\n", -1, NULL));
    refused(file, "--config", file, NULL);
    g_autofree char *huge = g_strnfill(2 * 1024 * 1024, '#');
    write_file(huge);
    refused(file, "--config", file, NULL);
}

static void an_empty_file_is_fine(void **state)
{
    (void)state;
    write_file("");
    lh_config_free(load("--config", file, NULL));
    write_file("# nothing\n");
    lh_config_free(load("--config", file, NULL));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults),
        TEST(flags),
        TEST(the_file),
        TEST(who_comes_first),
        TEST(the_file_by_the_environment),
        TEST(text_is_utf8_whatever_the_locale),
        TEST(bad_flags),
        TEST(bad_files),
        TEST(an_empty_file_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

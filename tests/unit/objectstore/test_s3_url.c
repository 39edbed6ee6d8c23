/*
 * objectstore, s3://: the one spelling of urls that a signature covers, and where the bucket's name
 * goes. Examples of encoded texts are what Amazon's description of Signature Version 4 asks for.
 */
#include "base/errors.h"
#include "objectstore/objectstore_s3.h"
#include "objectstore/s3_url.h"
#include "objectstore/s3_xml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_encoded(const char *text, gboolean keep_slash, const char *expected)
{
    GString *out = g_string_new(NULL);
    lh_s3_encode(out, text, keep_slash);
    assert_string_equal(out->str, expected);
    g_string_free(out, TRUE);
}

static void encodes_all_but_the_unreserved(void **state)
{
    (void)state;
    assert_encoded("AZaz09-._~", FALSE, "AZaz09-._~");
    assert_encoded("a b+c=d&e/f:%*", FALSE, "a%20b%2Bc%3Dd%26e%2Ff%3A%25%2A");
    assert_encoded("a b/c+d", TRUE, "a%20b/c%2Bd");
    assert_encoded("ü日", FALSE, "%C3%BC%E6%97%A5");
    assert_encoded("\x01\x7f", FALSE, "%01%7F");
    assert_encoded("!'()#?[]@$,;", FALSE, "%21%27%28%29%23%3F%5B%5D%40%24%2C%3B");
    assert_encoded("", FALSE, "");
}

static void sorts_queries(void **state)
{
    (void)state;
    const LhS3Param list[] = {
        {"prefix", "a/b c"}, {"list-type", "2"}, {"continuation-token", "x+/="}, {"delete", ""}};
    const LhS3Param close[] = {{"b", "1"},  {"a.b", "2"}, {"a", "3"}, {"a-b", "4"},
                               {"aB", "5"}, {"A", "6"},   {"a", "2"}};
    g_autofree char *one = lh_s3_query(list, G_N_ELEMENTS(list));
    g_autofree char *two = lh_s3_query(close, G_N_ELEMENTS(close));
    g_autofree char *none = lh_s3_query(NULL, 0);
    assert_string_equal(one, "continuation-token=x%2B%2F%3D&delete=&list-type=2&prefix=a%2Fb%20c");
    /* "a" before "a-b", although '-' sorts before '='. */
    assert_string_equal(two, "A=6&a=2&a=3&a-b=4&a.b=2&aB=5&b=1");
    assert_string_equal(none, "");
}

static void decodes_keys(void **state)
{
    (void)state;
    const struct {
        const char *text, *expected;
    } rows[] = {
        {"a+b%20c", "a b c"}, {"%2B%25%2f", "+%/"}, {"%C3%BC", "ü"}, {"", ""},      {"~*", "~*"},
        {"%", NULL},          {"%4", NULL},         {"%zz", NULL},   {"%00", NULL}, {"%FF", NULL},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *decoded = lh_s3_decode(rows[i].text);
        if (g_strcmp0(decoded, rows[i].expected) != 0)
            fail_msg("%s: %s", rows[i].text, decoded);
    }
}

static void endpoints(void **state)
{
    (void)state;
    const struct {
        const char *text, *host;
        gboolean is_amazon, is_address;
    } good[] = {
        {"https://s3.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com", TRUE, FALSE},
        {"https://s3.cn-north-1.amazonaws.com.cn/", "s3.cn-north-1.amazonaws.com.cn", TRUE, FALSE},
        {"http://127.0.0.1:9000", "127.0.0.1:9000", FALSE, TRUE},
        {"http://[::1]:80/", "[::1]:80", FALSE, TRUE},
        {"https://amazonaws.com.example", "amazonaws.com.example", FALSE, FALSE},
        {"https://notamazonaws.com", "notamazonaws.com", FALSE, FALSE},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(good); i++) {
        g_auto(LhS3Endpoint) endpoint = {0};
        assert_true(lh_s3_endpoint_parse(good[i].text, &endpoint, NULL));
        assert_string_equal(endpoint.host, good[i].host);
        assert_int_equal(endpoint.is_amazon, good[i].is_amazon);
        assert_int_equal(endpoint.is_address, good[i].is_address);
    }
    const char *const bad[] = {"",
                               "s3.example",
                               "ftp://s3.example",
                               "file:///etc/passwd",
                               "https://",
                               "https://u:hunter2@s3.example",
                               "https://s3.example/path",
                               "https://s3.example?x=1",
                               "https://s3.example#x",
                               "https://s3.example:99999",
                               "https://s3 example"};
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_auto(LhS3Endpoint) endpoint = {0};
        g_autoptr(GError) error = NULL;
        if (lh_s3_endpoint_parse(bad[i], &endpoint, &error))
            fail_msg("%s was taken", bad[i]);
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        assert_null(strstr(error->message, "hunter2"));
    }
}

static void where_the_bucket_goes(void **state)
{
    (void)state;
    const struct {
        const char *endpoint;
        LhS3Addressing addressing;
        const char *bucket, *url;
    } rows[] = {
        {"https://s3.r.amazonaws.com", LH_S3_AUTO, "b", "https://b.s3.r.amazonaws.com/k%20/x?q"},
        {"https://s3.r.amazonaws.com", LH_S3_PATH, "b", "https://s3.r.amazonaws.com/b/k%20/x?q"},
        {"https://s3.r.amazonaws.com", LH_S3_AUTO, "b.c",
         "https://s3.r.amazonaws.com/b.c/k%20/x?q"},
        {"https://s3.r.amazonaws.com", LH_S3_AUTO, "B_c",
         "https://s3.r.amazonaws.com/B_c/k%20/x?q"},
        {"http://s3.r.amazonaws.com", LH_S3_AUTO, "b.c", "http://b.c.s3.r.amazonaws.com/k%20/x?q"},
        {"http://minio:9000", LH_S3_AUTO, "b", "http://minio:9000/b/k%20/x?q"},
        {"http://minio:9000", LH_S3_VIRTUAL, "b", "http://b.minio:9000/k%20/x?q"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_auto(LhS3Endpoint) endpoint = {0};
        assert_true(lh_s3_endpoint_parse(rows[i].endpoint, &endpoint, NULL));
        g_autofree char *url = lh_s3_url(&endpoint, rows[i].addressing, rows[i].bucket, "k /x",
                                         "q");
        assert_string_equal(url, rows[i].url);
    }
    g_auto(LhS3Endpoint) endpoint = {0};
    assert_true(lh_s3_endpoint_parse("http://h", &endpoint, NULL));
    g_autofree char *path = lh_s3_url(&endpoint, LH_S3_PATH, "b", NULL, "list-type=2");
    g_autofree char *virtual = lh_s3_url(&endpoint, LH_S3_VIRTUAL, "b", NULL, "");
    assert_string_equal(path, "http://h/b?list-type=2");
    assert_string_equal(virtual, "http://b.h/");
}

static void buckets(void **state)
{
    (void)state;
    assert_true(lh_s3_bucket_valid("a") && lh_s3_bucket_valid("My_bucket-1.x"));
    const char *const bad[] = {"",    ".",   "-a",  "a b", "a/b", "a@b",
                               "a:b", "a?b", "a#b", "ü",   "a%41"};
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++)
        assert_false(lh_s3_bucket_valid(bad[i]));
}

static void wrong_options_name_their_setting(void **state)
{
    (void)state;
    const struct {
        LhObjectStoreOptions options;
        const char *setting;
    } rows[] = {
        {{0}, NULL},
        {{.endpoint = "http://h:1", .region = "eu-1", .addressing = "virtual"}, NULL},
        {{.endpoint = "h:1"}, "objectStore.endpoint"},
        {{.addressing = "dns"}, "objectStore.addressing"},
        {{.endpoint = "http://127.0.0.1", .addressing = "virtual"}, "objectStore.addressing"},
        {{.region = "a:b"}, "objectStore.region"},
        {{.access_key_file = "/k"}, "objectStore.accessKeyFile"},
        {{.secret_key_file = "/k"}, "objectStore.secretKeyFile"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        const char *setting = lh_store_s3_options_check(&rows[i].options, &error);
        if (rows[i].setting == NULL) {
            assert_null(setting);
            continue;
        }
        assert_string_equal(setting, rows[i].setting);
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        g_autoptr(GError) again = NULL;
        assert_null(lh_objectstore_new(NULL, &rows[i].options, &again));
        assert_true(g_error_matches(again, LH_ERROR, LH_ERR_INVALID));
        assert_non_null(strstr(again->message, rows[i].setting));
    }
}

static void settings_are_read(void **state)
{
    (void)state;
    const LhSetting *const tables[] = {lh_shared_settings, NULL};
    char *argv[] = {(char *)"x",
                    (char *)"--object-store-endpoint",
                    (char *)"http://h:1",
                    (char *)"--object-store-roots",
                    (char *)"s3://b/k,file:///d/",
                    NULL};
    g_autoptr(GError) error = NULL;
    g_autoptr(LhConfig) config = lh_config_load(tables, "x", 5, argv, &error);
    assert_non_null(config);
    LhObjectStoreOptions options = {0};
    assert_true(lh_objectstore_options_read(config, &options, &error));
    assert_string_equal(options.endpoint, "http://h:1");
    assert_string_equal(options.addressing, "auto");
    assert_string_equal(options.roots[1], "file:///d/");
    assert_null(options.cacert);
    const struct {
        const char *flag, *value, *error;
    } bad[] = {
        {"--object-store-roots", "ftp://x/", "--object-store-roots: ftp://x/: must be"},
        {"--object-store-endpoint", "ftp://x/", "--object-store-endpoint: must begin with"},
        {"--object-store-access-key-file", "/k",
         "--object-store-access-key-file: objectStore.secretKeyFile must be given too"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
        char *args[] = {(char *)"x", (char *)bad[i].flag, (char *)bad[i].value, NULL};
        g_autoptr(GError) why = NULL;
        g_autoptr(LhConfig) wrong = lh_config_load(tables, "x", 3, args, &why);
        assert_non_null(wrong);
        assert_false(lh_objectstore_options_read(wrong, &options, &why));
        assert_true(g_str_has_prefix(why->message, bad[i].error));
    }
}

/* ---- XML ---- */

static void reads_a_page(void **state)
{
    (void)state;
    static const char xml[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n"
        "  <Name>b</Name><Prefix>p/</Prefix><IsTruncated>true</IsTruncated>\n"
        "  <Contents><Key>p/a&amp;b+&lt;</Key><Size>12</Size><Owner><ID>x</ID></Owner></Contents>"
        "  <Contents><Size>0</Size><Key>p/&#252;</Key></Contents>"
        "  <CommonPrefixes><Prefix>q</Prefix></CommonPrefixes>"
        "  <NextContinuationToken>1/+&#x3d;</NextContinuationToken></ListBucketResult>";
    g_auto(LhS3Page) page = {0};
    g_autoptr(GError) error = NULL;
    assert_true(lh_s3_page_parse(xml, strlen(xml), &page, &error));
    assert_int_equal(page.objects->len, 2);
    const LhS3Object *a = g_ptr_array_index(page.objects, 0);
    const LhS3Object *b = g_ptr_array_index(page.objects, 1);
    assert_string_equal(a->key, "p/a&b+<"); /* no EncodingType: as it is */
    assert_int_equal(a->size, 12);
    assert_string_equal(b->key, "p/ü");
    assert_string_equal(page.next_token, "1/+=");
}

/* Whatever byte is damaged or missing: a page or an error, never a crash; the outputs untouched. */
static void damaged_pages(void **state)
{
    (void)state;
    static const char xml[] =
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a%20b"
        "</Key><Size>12</Size></Contents><IsTruncated>false</IsTruncated>"
        "</ListBucketResult>";
    gsize n = strlen(xml);
    for (gsize cut = 0; cut < n; cut++) {
        g_auto(LhS3Page) page = {0};
        g_autoptr(GError) error = NULL;
        assert_false(lh_s3_page_parse(xml, cut, &page, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        assert_null(page.objects);
    }
    for (gsize i = 0; i < n; i++) {
        for (guint c = 0; c < 256; c += 17) {
            g_autofree char *damaged = g_strdup(xml);
            g_auto(LhS3Page) page = {0};
            g_auto(LhS3Error) said = {0};
            g_autoptr(GError) error = NULL;
            damaged[i] = (char)c;
            gboolean ok = lh_s3_page_parse(damaged, n, &page, &error);
            assert_true(ok == (error == NULL) && ok == (page.objects != NULL));
            lh_s3_error_parse(damaged, n, &said);
        }
    }
}

static void reads_an_error(void **state)
{
    (void)state;
    static const char xml[] = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>a\nb"
                              "</Message><Region>eu-1</Region><Code>Other</Code></Err";
    g_auto(LhS3Error) error = {0};
    lh_s3_error_parse(xml, strlen(xml), &error);
    assert_string_equal(error.code, "AuthorizationHeaderMalformed");
    assert_string_equal(error.message, "a b");
    assert_string_equal(error.region, "eu-1");
    g_auto(LhS3Error) none = {0};
    lh_s3_error_parse("<Error><Code>two words</Code>", 29, &none);
    assert_null(none.code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_all_but_the_unreserved),
        cmocka_unit_test(sorts_queries),
        cmocka_unit_test(decodes_keys),
        cmocka_unit_test(endpoints),
        cmocka_unit_test(where_the_bucket_goes),
        cmocka_unit_test(buckets),
        cmocka_unit_test(wrong_options_name_their_setting),
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(reads_a_page),
        cmocka_unit_test(damaged_pages),
        cmocka_unit_test(reads_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * objectstore, s3:// against a server that fails, stalls, cuts and lies: what is resumed, what is
 * refused, and that nothing wrong is ever left as a file.
 */
#include "s3_fixture.h"
#include "tests/fakes/certs.h"
#include "tests/fakes/etcd_process.h"
#include "tests/fakes/s3_faults.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* links: fakes */
/* suite: threads */

#define PART  (64 * 1024)
#define BYTES (5 * PART + 100)
#define URI   "s3://b/s/"

typedef struct {
    S3Fixture *f;
    S3Faults *server;
    char *data;
} Lab;

static int setup(void **state)
{
    Lab *lab = g_new0(Lab, 1);
    lab->server = s3_faults_new();
    lab->data = noise(BYTES);
    s3_faults_put(lab->server, "/b/s/x", lab->data, BYTES);
    s3_faults_put(lab->server, "/b/s/small", lab->data, 1000);
    lab->f = s3_fixture_new(s3_faults_endpoint(lab->server));
    lab->f->tuning.part_bytes = PART;
    lab->f->tuning.stall_s = 1;
    set_keys(lab->f, "AKIAEXAMPLE", "secret-of-AKIAEXAMPLE");
    open_store(lab->f);
    *state = lab;
    return 0;
}

static int teardown(void **state)
{
    Lab *lab = *state;
    s3_fixture_free(lab->f);
    s3_faults_free(lab->server);
    g_free(lab->data);
    g_free(lab);
    return 0;
}

static void fault(Lab *lab, S3Fault f)
{
    if (f.times == 0)
        f.times = 1;
    s3_faults_add(lab->server, &f);
}

static void expect_whole(Lab *lab, const char *out)
{
    fetch(lab->f, URI, "x", out);
    assert_fetched(lab->f, out, lab->data, BYTES);
}

static void expect_refused(Lab *lab, LhErrorCode code, const char *text)
{
    fetch(lab->f, URI, "x", "refused");
    assert_error(lab->f, code, text);
    assert_false(out_exists(lab->f, "refused"));
}

/* ---- what passes ---- */

static void failures_that_pass_are_waited_out(void **state)
{
    Lab *lab = *state;
    const S3Fault passing[] = {
        {.kind = S3_FAULT_REPLY, .status = 500, .code = "InternalError"},
        {.kind = S3_FAULT_REPLY, .status = 503, .code = "SlowDown"},
        {.kind = S3_FAULT_REPLY, .status = 429},
        {.kind = S3_FAULT_REPLY, .status = 502, .body = "<html>bad gateway"},
        {.kind = S3_FAULT_REPLY, .status = 400, .code = "RequestTimeout"},
        {.kind = S3_FAULT_CUT, .after = 0},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(passing); i++) {
        g_autofree char *out = g_strdup_printf("x%zu", i);
        S3Fault f = passing[i];
        f.times = 5;
        guint before = s3_faults_count(lab->server, "/b/s/small");
        f.match = "/b/s/small";
        fault(lab, f);
        fetch(lab->f, URI, "small", out);
        assert_fetched(lab->f, out, lab->data, 1000);
        assert_int_equal(s3_faults_count(lab->server, "/b/s/small") - before, 6);
        if (f.kind == S3_FAULT_CUT)
            continue;
        f.match = "list-type=2";
        fault(lab, f);
        list(lab->f, URI);
        assert_ok(lab->f);
        assert_string_equal(lab->f->names->str, "small:1000 x:327780");
    }
}

static void it_gives_up_after_so_many(void **state)
{
    Lab *lab = *state;
    fault(lab, (S3Fault){.kind = S3_FAULT_REPLY, .status = 500, .times = 100});
    fetch(lab->f, URI, "small", "x");
    assert_error(lab->f, LH_ERR_UNAVAILABLE, "it has failed (HTTP 500); given up after 6 attempts");
    assert_false(out_exists(lab->f, "x"));
    assert_int_equal(s3_faults_count(lab->server, "/b/s/small"), 6);
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_UNAVAILABLE, "given up after 6 attempts");
    assert_int_equal(s3_faults_count(lab->server, "list-type=2"), 6);
}

static void retry_after_is_honoured_within_bounds(void **state)
{
    Lab *lab = *state;
    fault(lab, (S3Fault){.kind = S3_FAULT_REPLY,
                         .status = 503,
                         .code = "SlowDown",
                         .header = "Retry-After: 1"});
    gint64 start = g_get_monotonic_time();
    expect_whole(lab, "a");
    assert_true(g_get_monotonic_time() - start >= 1000 * 1000);
    lab->f->tuning.retry_after_ms = 200;
    open_store(lab->f);
    fault(lab, (S3Fault){.kind = S3_FAULT_REPLY,
                         .status = 503,
                         .code = "SlowDown",
                         .header = "Retry-After: 3600"});
    start = g_get_monotonic_time();
    expect_whole(lab, "b");
    assert_true(g_get_monotonic_time() - start >= 200 * 1000);
}

/* ---- what goes on where it was ---- */

static void a_broken_body_is_resumed(void **state)
{
    Lab *lab = *state;
    /* In the first part, one in the middle, and the last; resumed once more in the middle. */
    fault(lab, (S3Fault){.match = "bytes=0-65535", .kind = S3_FAULT_CUT, .after = 5000});
    fault(lab, (S3Fault){.match = "bytes=131072-196607", .kind = S3_FAULT_CUT, .after = 30001});
    fault(lab, (S3Fault){.match = "bytes=161073-196607", .kind = S3_FAULT_CUT, .after = 1});
    fault(lab, (S3Fault){.match = "bytes=327680-327779", .kind = S3_FAULT_CUT, .after = 99});
    expect_whole(lab, "x");
    assert_int_equal(s3_faults_count(lab->server, "bytes=0-"), 1); /* never again */
    assert_int_equal(s3_faults_count(lab->server, "Range: bytes=5000-65535"), 1);
    assert_int_equal(s3_faults_count(lab->server, "Range: bytes=161074-196607"), 1);
    assert_int_equal(s3_faults_count(lab->server, "Range: bytes=327779-327779"), 1);
    assert_int_equal(s3_faults_count(lab->server, "GET /b/s/x"), 10);
}

static void a_body_that_does_not_go_on_is_resumed(void **state)
{
    Lab *lab = *state;
    fault(lab, (S3Fault){.match = "bytes=65536-131071", .kind = S3_FAULT_STALL, .after = 5000});
    fault(lab, (S3Fault){.match = "bytes=131072-196607", .kind = S3_FAULT_STALL, .after = 0});
    expect_whole(lab, "x");
    assert_int_equal(s3_faults_count(lab->server, "Range: bytes=70536-131071"), 1);
    assert_int_equal(s3_faults_count(lab->server, "bytes=131072-196607"), 2);
    assert_true(lab->f->progress > 0); /* on_progress sees that it never goes back */
    assert_true(lab->f->progress_bytes <= BYTES);
}

static void all_but_the_first_request_name_the_version(void **state)
{
    Lab *lab = *state;
    expect_whole(lab, "x");
    assert_int_equal(s3_faults_count(lab->server, "GET /b/s/x"), 6);
    assert_int_equal(s3_faults_count(lab->server, "If-Match: \"v1\""), 5);
}

static void fewer_bytes_than_announced_are_resumed(void **state)
{
    Lab *lab = *state;
    fault(lab, (S3Fault){.match = "bytes=65536-", .kind = S3_FAULT_CHUNKED, .after = -10});
    expect_whole(lab, "a");
    assert_int_equal(s3_faults_count(lab->server, "bytes=131062-131071"), 1);
}

static void a_server_without_ranges_is_good_for_one_piece(void **state)
{
    Lab *lab = *state;
    fault(lab, (S3Fault){.match = "/b/s/x", .kind = S3_FAULT_WHOLE});
    expect_whole(lab, "a");
    assert_int_equal(s3_faults_count(lab->server, "/b/s/x"), 1);
    /* In the second part, or after a break: a piece would be in the wrong place. */
    fault(lab, (S3Fault){.match = "bytes=65536-", .kind = S3_FAULT_WHOLE});
    expect_refused(lab, LH_ERR_INVALID, "sends all of it where a part was asked for");
    fault(lab, (S3Fault){.match = "bytes=0-65535", .kind = S3_FAULT_CUT, .after = 10});
    fault(lab, (S3Fault){.match = "bytes=10-65535", .kind = S3_FAULT_WHOLE});
    expect_refused(lab, LH_ERR_INVALID, "sends all of it where a part was asked for");
}

/* ---- lies ---- */

static void lies_are_refused(void **state)
{
    Lab *lab = *state;
    const struct {
        const char *match;
        S3FaultKind kind;
        gint64 after;
        LhErrorCode code;
        const char *text;
    } rows[] = {
        {"bytes=0-65535", S3_FAULT_RANGE, 1, LH_ERR_INVALID, "another range"},
        {"bytes=131072-", S3_FAULT_RANGE, -1, LH_ERR_INVALID, "another range"},
        {"bytes=0-65535", S3_FAULT_LENGTH, 7, LH_ERR_INVALID, "another range"},
        {"bytes=65536-", S3_FAULT_LENGTH, -7, LH_ERR_INVALID, "another range"},
        {"bytes=0-65535", S3_FAULT_CHUNKED, 1, LH_ERR_CHECKSUM, "more bytes than it announced"},
        {"bytes=327680-", S3_FAULT_CHUNKED, 100000, LH_ERR_CHECKSUM,
         "more bytes than it announced"},
        {"bytes=65536-", S3_FAULT_TOTAL, 1, LH_ERR_CONFLICT, "has changed"},
        {"bytes=0-65535", S3_FAULT_TOTAL, G_GINT64_CONSTANT(1) << 50, LH_ERR_INVALID,
         "a size that is not possible"},
        {"bytes=131072-", S3_FAULT_ETAG, 0, LH_ERR_CONFLICT, "has changed"},
        {"bytes=131072-", S3_FAULT_CHANGE, 0, LH_ERR_CONFLICT, "has changed"},
        {"bytes=131072-", S3_FAULT_NO_ETAG, 0, LH_ERR_CONFLICT, "has changed"},
        {"bytes=0-65535", S3_FAULT_NO_ETAG, 0, LH_ERR_INVALID, "gives no ETag"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *name = g_strdup_printf("lie%zu", i);
        g_autofree char *path = g_strconcat("/b/s/", name, NULL);
        s3_faults_put(lab->server, path, lab->data, BYTES);
        fault(lab, (S3Fault){.path = path,
                             .match = rows[i].match,
                             .kind = rows[i].kind,
                             .after = rows[i].after});
        fetch(lab->f, URI, name, "refused");
        assert_error(lab->f, rows[i].code, rows[i].text);
        assert_false(out_exists(lab->f, "refused"));
    }
    fault(lab, (S3Fault){.match = "/b/s/small", .kind = S3_FAULT_NO_ETAG});
    fetch(lab->f, URI, "small", "small"); /* one request needs none */
    assert_fetched(lab->f, "small", lab->data, 1000);
}

/* ---- listings ---- */

#define PAGE(inside) "<ListBucketResult>" inside "</ListBucketResult>"
#define WHOLE_PAGE   "<IsTruncated>false</IsTruncated>"
#define OBJECT       "<Contents><Key>s/k</Key><Size>1</Size></Contents>"

static void expect_listing_refused(Lab *lab, const char *body, const char *text)
{
    fault(lab,
          (S3Fault){.match = "list-type=2", .kind = S3_FAULT_REPLY, .status = 200, .body = body});
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_INVALID, text);
    assert_string_equal(lab->f->names->str, "");
}

static void listings_that_cannot_be_used(void **state)
{
    Lab *lab = *state;
    expect_listing_refused(lab, PAGE(OBJECT), "no IsTruncated");
    expect_listing_refused(lab, PAGE(OBJECT "<IsTruncated>maybe</IsTruncated>"),
                           "neither true nor");
    expect_listing_refused(lab, PAGE(WHOLE_PAGE "<Contents><Key>s/k</Key></Contents>"), "no Size");
    expect_listing_refused(lab, PAGE(WHOLE_PAGE "<Contents><Size>1</Size></Contents>"), "no Key");
    expect_listing_refused(
        lab, PAGE(WHOLE_PAGE "<Contents><Key>s/k</Key><Size>-1</Size></Contents>"), "not a number");
    expect_listing_refused(lab,
                           PAGE(WHOLE_PAGE "<Contents><Key>t/k</Key><Size>1</Size></Contents>"),
                           "a key that is not below it");
    expect_listing_refused(lab, PAGE(WHOLE_PAGE OBJECT OBJECT), "\"k\" is listed twice");
    expect_listing_refused(lab, PAGE(OBJECT "<IsTruncated>true</IsTruncated>"),
                           "no NextContinuationToken");
    expect_listing_refused(lab, "<ListBucketResult>" WHOLE_PAGE OBJECT, "not well-formed");
    expect_listing_refused(lab, "", "the answer is no listing");
    expect_listing_refused(lab, "hello", "not well-formed");
    expect_listing_refused(lab, "<Other>" WHOLE_PAGE "</Other>", "not ListBucketResult");
    expect_listing_refused(lab,
                           PAGE("<EncodingType>url</EncodingType>" WHOLE_PAGE
                                "<Contents><Key>s/%ff</Key><Size>1</Size></Contents>"),
                           "not encoded");
    /* On a busy machine one answer may take too long; the next says the same. */
    g_autofree char *huge = g_strnfill(17 * 1024 * 1024, ' ');
    fault(lab, (S3Fault){.match = "list-type=2",
                         .kind = S3_FAULT_REPLY,
                         .status = 200,
                         .times = 100,
                         .body = huge});
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_INVALID, "longer than 16777216 bytes");
    assert_string_equal(lab->f->names->str, "");
}

static void a_listing_that_never_ends(void **state)
{
    Lab *lab = *state;
    fault(lab, (S3Fault){.match = "list-type=2",
                         .kind = S3_FAULT_REPLY,
                         .status = 200,
                         .times = 1000000,
                         .body = PAGE("<IsTruncated>true</IsTruncated>"
                                      "<NextContinuationToken>t</NextContinuationToken>")});
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_INVALID, "a page is followed by itself");
    assert_int_equal(s3_faults_count(lab->server, "list-type=2"), 2);
}

/* A page that fails half-way: not what came before it. */
static void half_a_listing_is_none(void **state)
{
    Lab *lab = *state;
    fault(lab,
          (S3Fault){.match = "list-type=2",
                    .kind = S3_FAULT_REPLY,
                    .status = 200,
                    .body = PAGE(OBJECT "<IsTruncated>true</IsTruncated>"
                                        "<NextContinuationToken>t+/=</NextContinuationToken>")});
    fault(lab, (S3Fault){.match = "continuation-token=t%2B%2F%3D&encoding-type=url&list-type=2",
                         .kind = S3_FAULT_REPLY,
                         .status = 403,
                         .code = "AccessDenied"});
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_FORBIDDEN, "access is denied");
    assert_string_equal(lab->f->names->str, "");
}

/* ---- refusals ---- */

static void refusals_by_their_code(void **state)
{
    Lab *lab = *state;
    const struct {
        int status;
        const char *code, *header;
        LhErrorCode error;
        const char *text;
    } rows[] = {
        {403, "SignatureDoesNotMatch", NULL, LH_ERR_AUTH, "the secret key does not fit"},
        {403, "InvalidAccessKeyId", NULL, LH_ERR_AUTH, "the access key is not known"},
        {400, "ExpiredToken", NULL, LH_ERR_AUTH, "the session token has expired"},
        {403, "AccessDenied", NULL, LH_ERR_FORBIDDEN, "access is denied (HTTP 403 AccessDenied)"},
        {403, NULL, NULL, LH_ERR_FORBIDDEN, "access is denied (HTTP 403)"},
        {401, NULL, NULL, LH_ERR_AUTH, "not accepted"},
        {404, "NoSuchBucket", NULL, LH_ERR_NOT_FOUND, "there is no such bucket"},
        {404, "NoSuchKey", NULL, LH_ERR_NOT_FOUND, "there is no such object"},
        {404, NULL, NULL, LH_ERR_NOT_FOUND, "not there"},
        {301, "PermanentRedirect", "x-amz-bucket-region: eu-west-9", LH_ERR_INVALID,
         "served elsewhere; see objectStore.endpoint and objectStore.region (the bucket's region "
         "is eu-west-9)"},
        {400, "SomethingNew", NULL, LH_ERR_INVALID, "the request is refused: m (HTTP 400 Some"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        const S3Fault f = {.kind = S3_FAULT_REPLY,
                           .status = rows[i].status,
                           .code = rows[i].code,
                           .header = rows[i].header,
                           .times = 2};
        fault(lab, f);
        expect_refused(lab, rows[i].error, rows[i].text);
        list(lab->f, URI);
        assert_error(lab->f, rows[i].error, rows[i].text);
    }
    assert_int_equal(s3_faults_count(lab->server, "GET /"), 2 * G_N_ELEMENTS(rows));
}

/* No server here can be made to see another time: the faulty one says what a real one would. */
static void a_clock_that_differs(void **state)
{
    Lab *lab = *state;
    const struct {
        gint64 server_s;
        const char *text;
    } rows[] = {
        {-3600, "the clocks differ too much; this machine's clock is 360"},
        {7200, " s behind the server's (HTTP 403 RequestTimeTooSkewed)"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GDateTime) now = g_date_time_new_now_utc();
        g_autoptr(GDateTime) then = g_date_time_add_seconds(now, (double)rows[i].server_s);
        g_autofree char *date = g_date_time_format(then, "Date: %a, %d %b %Y %H:%M:%S GMT");
        fault(lab, (S3Fault){.kind = S3_FAULT_REPLY,
                             .status = 403,
                             .code = "RequestTimeTooSkewed",
                             .header = date});
        expect_refused(lab, LH_ERR_AUTH, rows[i].text);
    }
}

static void redirects_are_not_followed(void **state)
{
    Lab *lab = *state;
    S3Faults *other = s3_faults_new();
    s3_faults_put(other, "/b/s/x", "wrong", 5);
    g_autofree char *location = g_strdup_printf("Location: %s/b/s/x", s3_faults_endpoint(other));
    fault(lab, (S3Fault){.kind = S3_FAULT_REPLY, .status = 302, .header = location});
    expect_refused(lab, LH_ERR_INVALID, "it redirects, which is not followed");
    assert_int_equal(s3_faults_count(other, "GET"), 0);
    s3_faults_free(other);
}

static void an_error_without_an_end_is_cut(void **state)
{
    Lab *lab = *state;
    g_autofree char *huge = g_strnfill(1024 * 1024, 'x');
    fault(lab, (S3Fault){.kind = S3_FAULT_REPLY, .status = 403, .body = huge});
    expect_refused(lab, LH_ERR_FORBIDDEN, "access is denied (HTTP 403)");
    fault(
        lab,
        (S3Fault){
            .kind = S3_FAULT_REPLY,
            .status = 403,
            .body =
                "<Error><Code>Bad\nCode</Code><Message>two\nlines and AKIAEXAMPLE</Message></Error>"});
    expect_refused(lab, LH_ERR_FORBIDDEN, "access is denied (HTTP 403)");
    assert_null(strstr(lab->f->error->message, "AKIAEXAMPLE"));
}

/* ---- who and where ---- */

static void what_is_signed_and_what_is_not(void **state)
{
    Lab *lab = *state;
    list(lab->f, URI);
    assert_ok(lab->f);
    g_autofree char *heads = s3_faults_heads(lab->server);
    assert_non_null(strstr(heads, "Authorization: AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/"));
    assert_non_null(strstr(heads, "/us-east-1/s3/aws4_request"));
    assert_non_null(strstr(heads, "SignedHeaders=host;x-amz-content-sha256;x-amz-date"));
    assert_null(strstr(heads, "secret-of"));
    lab->f->options.access_key_file = lab->f->options.secret_key_file = NULL;
    open_store(lab->f);
    guint before = s3_faults_count(lab->server, "Authorization");
    list(lab->f, URI);
    assert_ok(lab->f);
    assert_int_equal(s3_faults_count(lab->server, "Authorization"), before);
    g_setenv("AWS_ACCESS_KEY_ID", "IDOFENV", TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", "s", TRUE);
    g_setenv("AWS_SESSION_TOKEN", "token+/=", TRUE);
    g_setenv("AWS_REGION", "eu-west-3", TRUE);
    open_store(lab->f);
    clean_environment();
    list(lab->f, URI);
    assert_ok(lab->f);
    assert_int_equal(s3_faults_count(lab->server, "Credential=IDOFENV/"), 1);
    assert_int_equal(s3_faults_count(lab->server, "/eu-west-3/s3/aws4_request"), 1);
    assert_int_equal(s3_faults_count(lab->server, "x-amz-date;x-amz-security-token"), 1);
    assert_int_equal(s3_faults_count(lab->server, "X-Amz-Security-Token: token+/="), 1);
}

static void the_bucket_in_the_hosts_name(void **state)
{
    Lab *lab = *state;
    g_autofree char *endpoint = g_strdup_printf("http://s3.test:%u", s3_faults_port(lab->server));
    g_autofree char *resolve = g_strdup_printf("b.s3.test:%u:127.0.0.1",
                                               s3_faults_port(lab->server));
    g_autofree char *host = g_strdup_printf("Host: b.s3.test:%u\r\n", s3_faults_port(lab->server));
    s3_faults_put(lab->server, "/s/a%20b", "12", 2);
    lab->f->options.endpoint = endpoint;
    lab->f->options.addressing = "virtual";
    lab->f->tuning.resolve = resolve;
    open_store(lab->f);
    fetch(lab->f, URI, "a b", "x");
    assert_fetched(lab->f, "x", "12", 2);
    g_autofree char *heads = s3_faults_heads(lab->server);
    assert_true(g_str_has_prefix(heads, "GET /s/a%20b HTTP/1.1\r\n"));
    assert_non_null(strstr(heads, host));
}

static void keys_are_read_again(void **state)
{
    Lab *lab = *state;
    assert_int_equal(unlink(lab->f->secret_file), 0);
    list(lab->f, URI);
    assert_true(g_error_matches(lab->f->error, LH_ERROR, LH_ERR_IO));
    assert_non_null(strstr(lab->f->error->message, "objectStore.secretKeyFile: "));
    set_keys(lab->f, "AKIAOTHER", "another");
    list(lab->f, URI); /* a failure is not remembered */
    assert_ok(lab->f);
    assert_int_equal(s3_faults_count(lab->server, "Credential=AKIAOTHER/"), 1);
}

static void nobody_listens(void **state)
{
    Lab *lab = *state;
    g_autofree char *endpoint = g_strdup_printf("http://127.0.0.1:%u", etcd_free_port());
    lab->f->options.endpoint = endpoint;
    open_store(lab->f);
    expect_refused(lab, LH_ERR_UNAVAILABLE, "the connection failed: ");
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_UNAVAILABLE, "the connection failed: ");
}

/* ---- TLS ---- */

static void die_with_parent(gpointer data G_GNUC_UNUSED)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* OpenSSL's own server: it answers a page that is no listing, which shows that TLS went well. */
static GPid start_tls(const CertFiles *files, guint16 port)
{
    g_autofree char *at = g_strdup_printf("127.0.0.1:%u", port);
    const char *argv[] = {"openssl", "s_server",  "-quiet", "-www",     "-accept", at,
                          "-cert",   files->cert, "-key",   files->key, NULL};
    GPid pid;
    assert_true(g_spawn_async(NULL, (char **)argv, NULL,
                              G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD |
                                  G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL,
                              die_with_parent, NULL, &pid, NULL));
    return pid;
}

static void tls_must_be_trusted(void **state)
{
    Lab *lab = *state;
    g_auto(CertFiles) ca = certs_authority(lab->f->dir, "ca");
    const CertSpec spec = {.cn = "s3", .names = "IP:127.0.0.1"};
    g_auto(CertFiles) server = certs_issue(lab->f->dir, "server", &ca, &spec);
    g_autofree char *missing = g_build_filename(lab->f->dir, "missing.pem", NULL);
    guint16 port = etcd_free_port();
    g_autofree char *endpoint = g_strdup_printf("https://127.0.0.1:%u", port);
    GPid pid = start_tls(&server, port);
    lab->f->options.endpoint = endpoint;
    lab->f->options.cacert = ca.cert;
    lab->f->tuning.attempts = 200; /* until it listens */
    open_store(lab->f);
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_INVALID, "the listing cannot be used");
    lab->f->options.cacert = NULL;
    open_store(lab->f);
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_UNAVAILABLE, "the server's certificate is not trusted");
    lab->f->options.cacert = missing;
    open_store(lab->f);
    list(lab->f, URI);
    assert_error(lab->f, LH_ERR_INVALID, "objectStore.cacert: ");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- the ends ---- */

static void await_request(Lab *lab, const char *match)
{
    gint64 deadline = g_get_monotonic_time() + 40 * G_USEC_PER_SEC;
    while (s3_faults_count(lab->server, match) == 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_true(s3_faults_count(lab->server, match) > 0);
}

static void cancelled_it_lets_go_at_once(void **state)
{
    Lab *lab = *state;
    lab->f->tuning.stall_s = 3600; /* nothing but the cancelling ends it */
    open_store(lab->f);
    g_autofree char *to = out_path(lab->f, "x");
    fault(lab, (S3Fault){.match = "/b/s/x", .kind = S3_FAULT_STALL, .after = 5000, .times = 10});
    forget(lab->f);
    LhStoreOp op = lh_store_fetch(lab->f->store, URI, "x", to, on_progress, on_fetch, lab->f);
    await_request(lab, "GET /b/s/x");
    lh_store_cancel(lab->f->store, &op);
    gint64 deadline = g_get_monotonic_time() + 40 * G_USEC_PER_SEC;
    while (out_exists(lab->f, "x") && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_false(out_exists(lab->f, "x"));
    /* In a pause, and by freeing the store. */
    fault(lab, (S3Fault){.match = "list-type=2",
                         .kind = S3_FAULT_REPLY,
                         .status = 503,
                         .header = "Retry-After: 3600",
                         .times = 10});
    lab->f->tuning.retry_after_ms = 3600 * 1000;
    open_store(lab->f);
    lh_store_list(lab->f->store, URI, on_list, lab->f);
    lh_store_fetch(lab->f->store, URI, "x", to, on_progress, on_fetch, lab->f);
    await_request(lab, "list-type=2");
    open_store(lab->f);
    assert_int_equal(lab->f->answers, 0);
    assert_false(out_exists(lab->f, "x"));
}

static void never_writes_over_a_file(void **state)
{
    Lab *lab = *state;
    g_autofree char *path = out_path(lab->f, "there");
    write_text(path, "mine");
    fetch(lab->f, URI, "x", "there");
    assert_error(lab->f, LH_ERR_IO, "creating: File exists");
    g_autofree char *text = NULL;
    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    assert_string_equal(text, "mine");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(failures_that_pass_are_waited_out),
        TEST(it_gives_up_after_so_many),
        TEST(retry_after_is_honoured_within_bounds),
        TEST(a_broken_body_is_resumed),
        TEST(a_body_that_does_not_go_on_is_resumed),
        TEST(all_but_the_first_request_name_the_version),
        TEST(fewer_bytes_than_announced_are_resumed),
        TEST(a_server_without_ranges_is_good_for_one_piece),
        TEST(lies_are_refused),
        TEST(listings_that_cannot_be_used),
        TEST(a_listing_that_never_ends),
        TEST(half_a_listing_is_none),
        TEST(refusals_by_their_code),
        TEST(a_clock_that_differs),
        TEST(redirects_are_not_followed),
        TEST(an_error_without_an_end_is_cut),
        TEST(what_is_signed_and_what_is_not),
        TEST(the_bucket_in_the_hosts_name),
        TEST(keys_are_read_again),
        TEST(nobody_listens),
        TEST(tls_must_be_trusted),
        TEST(cancelled_it_lets_go_at_once),
        TEST(never_writes_over_a_file),
    };
    clean_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

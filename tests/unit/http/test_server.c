/*
 * http/server: routing, decoding, replies and problems, and the checks that keep web pages of other
 * origins out.
 */
#include "base/errors.h"
#include "base/json.h"
#include "fixture.h"

/* ---- requests and replies ---- */

static void test_routes(void **state)
{
    Fixture *f = *state;
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, "hello");
    assert_ask(f, "GET /nothing HTTP/1.1", NULL, 404, "\"title\":\"Not Found\"");
    assert_ask(f, "GET /hello/more HTTP/1.1", NULL, 404, NULL);
    assert_ask(f, "GET /echo HTTP/1.1", NULL, 404, NULL);
    assert_ask(f, "GET /echo/ HTTP/1.1", NULL, 200, "GET|/echo/||(none)|0:|absent");
    assert_ask(f, "GET /echo/a/b/?x=1 HTTP/1.1", NULL, 200, "GET|/echo/a/b/|a/b/|(none)|0:|absent");
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json", "{}", 200,
               "PUT|/echo/a|a|(none)|2:{}|absent");
    assert_ask(f, "DELETE /echo/a HTTP/1.1", NULL, 200, "DELETE|/echo/a|a|");

    Client *client = ask(f, "DELETE /hello HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 405);
    assert_header(client, "Allow", "GET, HEAD");
    assert_header(client, "Content-Type", "application/problem+json");
    client = ask(f, "OPTIONS /echo/x HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 405);
    assert_header(client, "Allow", "GET, HEAD, PUT, DELETE, POST");
    assert_header(client, "Access-Control-Allow-Origin", NULL);
}

static void test_head(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "HEAD /hello HTTP/1.1", NULL);
    wait_for(reply_body(client) != NULL);
    assert_int_equal(reply_status(client), 200);
    assert_header(client, "Content-Length", "5");
    client_ask(f, client, "GET /hello HTTP/1.1", NULL);
    wait_for(g_str_has_suffix(client->in->str, "hello"));
    /* No body came in between. */
    assert_true(g_str_has_prefix(reply_body(client), "HTTP/1.1 200"));

    client = client_new(f);
    client_ask(f, client, "HEAD /events HTTP/1.1", NULL);
    wait_for(reply_body(client) != NULL && f->n_closed == 1);
    assert_header(client, "Content-Type", "text/event-stream");
}

static void test_decoding(void **state)
{
    Fixture *f = *state;
    assert_ask(f, "GET /echo/a%20b%C3%A9?q=%2Fx+y%3D HTTP/1.1", NULL, 200,
               "GET|/echo/a b\xc3\xa9|a b\xc3\xa9|/x y=|0:|absent");
    assert_ask(f, "GET /echo/?q&q=2 HTTP/1.1", NULL, 200, "|/echo/|||0:|absent");
    assert_ask(f, "GET /echo/?&&q=a=b& HTTP/1.1", NULL, 200, "|/echo/||a=b|0:|absent");
    assert_ask(f, "GET /h%65llo HTTP/1.1", NULL, 200, "hello");
    static const char *const bad[] = {
        "/echo/a%2Fb",  "/echo/a%2fb",    "/echo/%00",     "/echo/%",         "/echo/%1",
        "/echo/%zz",    "/echo/%-1",      "/echo/%ff",     "/echo/%0a",       "/echo/%7F",
        "/echo/../x",   "/echo/%2e%2e/x", "/echo/.%2E",    "/echo/.",         "/echo/./x",
        "/echo//x",     "//echo/x",       "/echo/x/..",    "/echo/?q=%00",    "/echo/?q=%f",
        "/echo/?%zz=1", "/echo/?q=%C3",   "/%2e%2e/hello", "http://a/echo/x", "*",
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *line = g_strdup_printf("GET %s HTTP/1.1", bad[i]);
        assert_ask(f, line, NULL, 400, "\"status\":400");
    }
    /* Three dots are a name. */
    assert_ask(f, "GET /echo/... HTTP/1.1", NULL, 200, "|...|");
    GString *line = g_string_new("GET /echo/?a");
    for (guint i = 0; i < 64; i++) {
        g_string_append(line, "&b=c");
    }
    g_string_append(line, " HTTP/1.1");
    assert_ask(f, line->str, NULL, 400, "too many");
    g_string_free(line, TRUE);
}

static void test_json(void **state)
{
    Fixture *f = *state;
    Client *client = ask(f, "GET /json HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 201);
    assert_string_equal(reply_body(client), "{\"a\":1}");
    assert_header(client, "ETag", "\"42\"");
    assert_header(client, "Cache-Control", "no-cache");
    assert_header(client, "Content-Type", "application/json");
    assert_header(client, "X-Content-Type-Options", "nosniff");
}

static void test_problems(void **state)
{
    Fixture *f = *state;
    static const int expected[LH_N_ERRORS] = {400, 404, 409, 503, 503, 504, 429, 410,
                                              507, 503, 401, 403, 500, 500, 503, 500};
    for (int code = 0; code < LH_N_ERRORS; code++) {
        g_autofree char *line = g_strdup_printf("GET /error/%d HTTP/1.1", code);
        assert_ask(f, line, NULL, expected[code], "\"detail\":\"because\"");
    }
    assert_ask(f, "GET /error/99 HTTP/1.1", NULL, 500, "\"detail\":\"because\"");
    Client *client = ask(f, "GET /error/field HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 422);
    assert_header(client, "Content-Type", "application/problem+json");
    assert_non_null(
        strstr(reply_body(client), "{\"type\":\"about:blank\",\"title\":\"Unprocessable"));
    assert_non_null(strstr(reply_body(client), "\"status\":422,\"detail\":\"owner \\\"x\\\": too "
                                               "long\",\"field\":\"spec.owner\"}"));
}

/* ---- who may ask ---- */

static void test_host(void **state)
{
    Fixture *f = *state;
    const struct {
        const char *host; /* "@": our port */
        int status;
    } cases[] = {
        {"127.0.0.1:@", 200},
        {"localhost:@", 200},
        {"LOCALHOST:@", 200},
        {"[::1]:@", 200},
        {"127.8.9.1:@", 200},
        {"localhost", 403},
        {"127.0.0.1", 403},
        {"127.0.0.1:1", 403},
        {"evil.example:@", 403},
        {"127.0.0.1.evil:@", 403},
        {"10.0.0.1:@", 403},
        {"[::2]:@", 403},
        {"::1:@", 403},
        {"", 403},
        {":@", 403},
        {"localhost.:@", 403},
        {"user@localhost:@@", 403},
        {"localhost:+@", 403},
        {"[127.0.0.1:@", 403},
        {"localhost:@x", 403},
        {"0.0.0.0:@", 403},
    };
    g_autofree char *port = g_strdup_printf("%u", f->port);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_auto(GStrv) parts = g_strsplit(cases[i].host, "@", -1);
        g_autofree char *host = g_strjoinv(port, parts);
        g_autofree char *request = g_strdup_printf("GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n", host);
        int status = status_with(f, request);
        if (status != cases[i].status) {
            fail_msg("Host \"%s\": %d, expected %d", host, status, cases[i].status);
        }
    }
    g_autofree char *twice = g_strdup_printf(
        "GET /hello HTTP/1.1\r\nHost: localhost:%u\r\nHost: localhost:%u\r\n\r\n", f->port,
        f->port);
    assert_int_equal(status_with(f, twice), 400);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\n\r\n"), 400);
}

static void test_origin(void **state)
{
    Fixture *f = *state;
    const struct {
        const char *origin;
        int status;
    } cases[] = {
        {"http://127.0.0.1:%u", 200},
        {"http://localhost:%u", 403},
        {"https://127.0.0.1:%u", 403},
        {"http://127.0.0.1:1", 403},
        {"http://evil.example", 403},
        {"null", 403},
        {"", 403},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        GString *line = g_string_new("GET /hello HTTP/1.1\nOrigin: ");
        g_string_append(line, cases[i].origin);
        g_autofree char *port = g_strdup_printf("%u", f->port);
        g_string_replace(line, "%u", port, 0);
        assert_ask(f, line->str, NULL, cases[i].status, NULL);
        g_string_free(line, TRUE);
    }
}

static void test_content_type(void **state)
{
    Fixture *f = *state;
    assert_ask(f, "PUT /echo/a HTTP/1.1", "{}", 415, "application/json");
    assert_ask(f, "POST /echo/a HTTP/1.1", NULL, 415, NULL);
    assert_ask(f, "POST /echo/a HTTP/1.1\nContent-Type: text/plain", "{}", 415, NULL);
    assert_ask(f, "POST /echo/a HTTP/1.1\nContent-Type: application/jsonp", "{}", 415, NULL);
    assert_ask(f, "DELETE /echo/a HTTP/1.1", "x", 415, NULL);
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: Application/JSON; charset=utf-8", "{}", 200,
               NULL);
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Encoding: gzip",
               "{}", 415, NULL);
    /* A path that does not exist says so first. */
    assert_ask(f, "PUT /nothing HTTP/1.1", "{}", 404, NULL);
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *listen;
        gboolean insecure;
        int code; /* -1: works */
    } cases[] = {
        {"127.0.0.1:0", FALSE, -1},
        {"localhost:0", FALSE, -1},
        {"0.0.0.0:0", FALSE, LH_ERR_INVALID},
        {"0.0.0.0:0", TRUE, -1},
        {"[::]:0", FALSE, LH_ERR_INVALID},
        {"::1:0", FALSE, LH_ERR_INVALID},
        {"example.com:1", FALSE, LH_ERR_INVALID},
        {"127.0.0.1", FALSE, LH_ERR_INVALID},
        {"127.0.0.1:65536", FALSE, LH_ERR_INVALID},
        {"127.0.0.1:x", FALSE, LH_ERR_INVALID},
        {NULL, FALSE, LH_ERR_INVALID},
        {"203.0.113.1:1", TRUE, LH_ERR_IO},
    };
    Clock clock = {.env.v = &clock_vtable};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        LhHttpOptions options = {.listen = cases[i].listen, .insecure = cases[i].insecure};
        LhHttpServer *server = lh_http_server_new(&clock.env, NULL, &options, &error);
        if (cases[i].code < 0) {
            assert_null(error);
            assert_false(g_str_has_suffix(lh_http_server_address(server), ":0"));
        } else {
            assert_null(server);
            assert_true(g_error_matches(error, LH_ERROR, cases[i].code));
            assert_true(g_str_has_prefix(error->message, "listen "));
        }
        lh_http_server_free(server);
    }
}

/* Probes come to what a node says of itself, which may be a port that leads here. */
static void test_advertised(void **state)
{
    const LhHttpOptions options = {.listen = "127.0.0.1:0", .advertised = "http://lh.example:90/x"};
    setup_with(state, &options);
    Fixture *f = *state;
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: LH.example:90\r\n\r\n"), 200);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example\r\n\r\n"), 403);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example:91\r\n\r\n"), 403);
    teardown(state);
}

static void test_not_loopback(void **state)
{
    const LhHttpOptions options = {.listen = "0.0.0.0:0", .insecure = TRUE};
    setup_with(state, &options);
    Fixture *f = *state;
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example\r\n\r\n"), 200);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example\r\n"
                                    "Origin: http://lh.example\r\n\r\n"),
                     200);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example\r\n"
                                    "Origin: http://evil.example\r\n\r\n"),
                     403);
    teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_routes),
        test_case(test_head),
        test_case(test_decoding),
        test_case(test_json),
        test_case(test_problems),
        test_case(test_host),
        test_case(test_origin),
        test_case(test_content_type),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_not_loopback),
        cmocka_unit_test(test_advertised),
    };
    return cmocka_run_group_tests_name("http/server", tests, NULL, NULL);
}

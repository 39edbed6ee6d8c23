/* links: fakes */
/* links: curl */
/*
 * http/server over TLS: versions, large bodies, streams, slow handshakes, limits, and certificates that
 * are replaced while it runs.
 */
#include "tls_fixture.h"

#define MIB (1024 * 1024)

static int setup_tls(void **state)
{
    return lab_setup(state, USE_TLS, (LhHttpOptions){.max_body = 16 * MIB});
}

static int setup_small_tls(void **state)
{
    return lab_setup(state, USE_TLS, (LhHttpOptions){.max_connections = 6, .max_per_ip = 3});
}

static void test_versions(void **state)
{
    Lab *lab = *state;
    static const struct {
        int max;
        gboolean works;
    } cases[] = {
        {CURL_SSLVERSION_MAX_TLSv1_0, FALSE},
        {CURL_SSLVERSION_MAX_TLSv1_1, FALSE},
        {CURL_SSLVERSION_MAX_TLSv1_2, TRUE},
        {CURL_SSLVERSION_TLSv1_3, TRUE},
    };
    assert_string_equal(lh_http_server_scheme(lab->f->server), "https");
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Call *call = call_new(lab, "GET", "/hello", NULL, NULL);
        /* What OpenSSL would not offer of itself any more. */
        curl_easy_setopt(call->curl, CURLOPT_SSL_CIPHER_LIST, "DEFAULT@SECLEVEL=0");
        curl_easy_setopt(call->curl, CURLOPT_SSLVERSION,
                         (long)(cases[i].max | CURL_SSLVERSION_TLSv1_0));
        if (cases[i].max == CURL_SSLVERSION_TLSv1_3) {
            curl_easy_setopt(call->curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
        }
        call_start(lab, call);
        lab_wait_for(call->done);
        assert_int_equal(call->code, cases[i].works ? CURLE_OK : CURLE_SSL_CONNECT_ERROR);
        call_free(lab, call);
    }
    /* Who speaks plainly is not answered. */
    Client *plain = client_new(lab->f);
    client_ask(lab->f, plain, "GET /hello HTTP/1.1", NULL);
    wait_for(plain->eof);
    assert_null(strstr(plain->in->str, "HTTP/"));
}

static void large_bodies(Lab *lab)
{
    gsize size = 8 * MIB + 17;
    g_autofree char *content = g_malloc(size + 1);
    for (gsize i = 0; i < size; i++) {
        content[i] = (char)('a' + (i * 31 + i / 251) % 26);
    }
    content[size] = '\0';
    Call *call = call_body(lab, "PUT", "/echo/a", NULL, NULL, content);
    assert_int_equal(call->status, 200);
    assert_non_null(strstr(call->body->str, "|8388625:(long)|"));
    call_free(lab, call);

    assert_true(g_file_set_contents(lab->f->file, content, (gssize)size, NULL));
    call = call_new(lab, "GET", "/file/x", NULL, NULL);
    call->headers = curl_slist_append(call->headers, "Range: bytes=5-");
    call_start(lab, call);
    lab_wait_for(call->done);
    assert_int_equal(call->status, 206);
    assert_int_equal(call->body->len, size - 5);
    assert_memory_equal(call->body->str, content + 5, size - 5);
    call_free(lab, call);
}

static void test_large_bodies(void **state)
{
    Lab *lab = *state;
    lab->upload_max = CURL_SSLVERSION_MAX_TLSv1_2;
    large_bodies(lab);
    lab->upload_max = CURL_SSLVERSION_TLSv1_3;
    large_bodies(lab);
}

/* More in one record than one request: nothing is readable on the socket any more, and yet there is
 * more to do. */
static void test_pending_data(void **state)
{
    Lab *lab = *state;
    Call *call = raw_connect(lab);
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < 60; i++) {
        g_string_append_printf(text,
                               "GET /echo/%u HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nX-A: %0150d\r\n\r\n",
                               i, lab->f->port, 0);
    }
    assert_in_range(text->len, 10000, 16384);
    raw_send(lab, call, text->str, text->len);
    lab_wait_for(raw_read(call) || strstr(call->body->str, "/echo/59|") != NULL);
    assert_non_null(strstr(call->body->str, "/echo/59|"));
    g_string_free(text, TRUE);
    call_free(lab, call);
}

/* ---- streams and late replies ---- */

static void test_stream(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *call = call_new(lab, "GET", "/events", NULL, NULL);
    call_start(lab, call);
    lab_wait_for(f->stream != NULL && strstr(call->body->str, "retry: 1000\n\n") != NULL);
    lh_http_stream_send(f->stream, 7, "PUT", "{\"a\":1}");
    lab_wait_for(strstr(call->body->str, "event: PUT\nid: 7\ndata: {\"a\":1}\n\n") != NULL);
    g_string_truncate(call->body, 0);
    clock_advance(&f->clock, 15000);
    lab_wait_for(strstr(call->body->str, ":\n\n") != NULL);
    for (guint i = 0; i < 20000; i++) {
        lh_http_stream_send(f->stream, i, "PUT", "0123456789012345678901234567890123456789");
    }
    lab_wait_for(strstr(call->body->str, "id: 19999\n") != NULL);
    assert_int_equal(f->n_closed, 0);
    lh_http_stream_close(f->stream);
    lab_wait_for(call->done);
    assert_int_equal(call->code, CURLE_OK);
    call_free(lab, call);

    /* One that leaves while nothing is sent, and one while much is. */
    for (guint i = 1; i <= 2; i++) {
        g_autofree char *large = g_strnfill(MIB, 'x');
        call = call_new(lab, "GET", "/events", NULL, NULL);
        curl_easy_setopt(call->curl, CURLOPT_FORBID_REUSE, 1L);
        call_start(lab, call);
        lab_wait_for(call->body->len > 0);
        if (i == 2) {
            lh_http_stream_send(f->stream, 1, "PUT", large);
        }
        call_free(lab, call);
        lab_wait_for(f->n_closed == i);
    }
}

/* A reader that sleeps is given up, and until then the loop does not turn for nothing. */
static void test_stream_reader_sleeps(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *call = raw_connect(lab);
    g_autofree char *large = g_strnfill(100 * 1024, 'x');
    g_autofree char *request = g_strdup_printf("GET /events HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n",
                                               f->port);
    guint sent = 0;
    raw_send(lab, call, request, strlen(request));
    lab_wait_for(f->stream != NULL);
    for (; f->stream != NULL && sent < 1000; sent++) {
        lh_http_stream_send(f->stream, sent, "PUT", large);
        settle();
    }
    assert_in_range(sent, 40, 400);
    assert_int_equal(f->n_closed, 1);
    assert_int_equal(status_of(lab, "GET", "/hello", NULL, NULL), 200);
    lab_wait_for(raw_read(call));
    call_free(lab, call);
}

static void test_late_reply(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *call = call_new(lab, "GET", "/late", NULL, NULL);
    call_start(lab, call);
    lab_wait_for(f->held != NULL);
    clock_advance(&f->clock, 600000);
    assert_int_equal(status_of(lab, "GET", "/hello", NULL, NULL), 200);
    lh_http_reply(g_steal_pointer(&f->held), 200, NULL, "done", -1);
    lab_wait_for(call->done);
    assert_string_equal(call->body->str, "done");
    call_free(lab, call);

    call = call_new(lab, "GET", "/late", NULL, NULL);
    curl_easy_setopt(call->curl, CURLOPT_FORBID_REUSE, 1L);
    call_start(lab, call);
    lab_wait_for(f->held != NULL);
    call_free(lab, call);
    lab_wait_for(f->n_gone == 1);
    lh_http_reply(g_steal_pointer(&f->held), 200, NULL, "nobody", -1);
}

static void test_free_with_open_requests(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *events = call_new(lab, "GET", "/events", NULL, NULL), *half = raw_connect(lab);
    Client *silent = client_new(f);
    call_start(lab, events);
    raw_send(lab, half, "GET /hel", 8);
    lab_wait_for(f->stream != NULL && events->body->len > 0);
    lh_http_server_free(g_steal_pointer(&f->server));
    assert_int_equal(f->n_closed, 1);
    lab_wait_for(events->done && raw_read(half) && silent->eof);
    call_free(lab, events);
    call_free(lab, half);
}

/* ---- slow clients and limits ---- */

/* The first bytes of a ClientHello: a record of 512 bytes is announced. */
static const char hello_start[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

static void test_slow_handshake(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Client *clients[14];
    for (guint i = 0; i < G_N_ELEMENTS(clients); i++) {
        clients[i] = client_new(f);
        if (i % 2 == 1) {
            client_send(clients[i], hello_start, sizeof hello_start - 1);
        }
    }
    settle();
    /* They hold nobody up, and a trickle does not make their time longer. */
    for (guint i = 0; i < 29; i++) {
        clock_advance(&f->clock, 1000);
        client_send(clients[1], "x", 1);
        settle();
    }
    assert_int_equal(status_of(lab, "GET", "/hello", NULL, NULL), 200);
    for (guint i = 0; i < G_N_ELEMENTS(clients); i++) {
        assert_false(clients[i]->eof);
    }
    clock_advance(&f->clock, 1000);
    for (guint i = 0; i < G_N_ELEMENTS(clients); i++) {
        wait_for(clients[i]->eof);
    }
    assert_int_equal(status_of(lab, "GET", "/hello", NULL, NULL), 200);
}

/* Bytes that are no handshake end the connection at once; so does a client that goes during it. */
static void test_bad_handshake(void **state)
{
    Lab *lab = *state;
    Client *noise = client_new(lab->f), *leaves = client_new(lab->f);
    client_send(noise, "\x16\x03\x01\xff\xff\xff\xff\xff\xff", 9);
    client_send(leaves, hello_start, sizeof hello_start - 1);
    settle();
    client_close(leaves);
    wait_for(noise->eof);
    assert_int_equal(status_of(lab, "GET", "/hello", NULL, NULL), 200);
}

static void test_slow_request(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *silent = raw_connect(lab), *half = raw_connect(lab);
    raw_send(lab, half, "GET /hello HTTP/1.1\r\nX-A: ", 26);
    clock_advance(&f->clock, 29000);
    settle();
    assert_false(raw_read(silent) || raw_read(half));
    clock_advance(&f->clock, 1000);
    lab_wait_for(raw_read(silent) && raw_read(half));
    assert_int_equal(silent->body->len, 0);
    assert_true(g_str_has_prefix(half->body->str, "HTTP/1.1 408 "));
    call_free(lab, silent);
    call_free(lab, half);
}

static void test_limits(void **state)
{
    Lab *lab = *state;
    Call *first = raw_connect(lab), *second = raw_connect(lab), *third = raw_connect(lab);
    Client *fourth = client_new(lab->f);
    wait_for(fourth->eof);
    assert_false(raw_read(first) || raw_read(second) || raw_read(third));
    call_free(lab, third);
    settle();
    assert_int_equal(status_of(lab, "GET", "/hello", NULL, NULL), 200);
    call_free(lab, first);
    call_free(lab, second);
}

/* Nothing to do means no turns of the loop, whatever GnuTLS keeps to itself. */
static void test_idle(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *events = call_new(lab, "GET", "/events", NULL, NULL);
    Call *late = call_new(lab, "GET", "/late", NULL, NULL), *idle = raw_connect(lab);
    Client *silent = client_new(f);
    call_start(lab, events);
    call_start(lab, late);
    lab_wait_for(f->held != NULL && f->stream != NULL && events->body->len > 0);
    settle();
    gboolean over = FALSE;
    guint timer = g_timeout_add(300, on_hopeless, &over), turns = 0;
    while (!over) {
        g_main_context_iteration(NULL, TRUE);
        turns++;
    }
    g_source_remove(timer);
    assert_in_range(turns, 1, 5);
    assert_false(silent->eof);
    lh_http_reply(f->held, 200, NULL, "", 0);
    call_free(lab, events);
    call_free(lab, late);
    call_free(lab, idle);
}

/* ---- certificates that are replaced ---- */

static void test_certificate_replaced(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *old = raw_connect(lab);
    assert_served(lab, "first");
    serve_certificate(lab, "second");
    assert_served(lab, "first"); /* not looked at again yet */
    clock_advance(&f->clock, 5000);
    assert_served(lab, "second");
    assert_line(lab, "a replaced file is in force", "setting=tls.cert");
    /* Connections that were there go on. */
    g_autofree char *request = g_strdup_printf("GET /hello HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n",
                                               f->port);
    raw_send(lab, old, request, strlen(request));
    lab_wait_for(raw_read(old) || g_str_has_suffix(old->body->str, "hello"));
    assert_true(g_str_has_suffix(old->body->str, "hello"));
    call_free(lab, old);
}

static void test_bad_replacement(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    g_autofree char *good_cert = NULL, *good_key = NULL;
    assert_true(g_file_get_contents(lab->server.cert, &good_cert, NULL, NULL));
    assert_true(g_file_get_contents(lab->server.key, &good_key, NULL, NULL));
    const struct {
        const char *cert, *key, *why;
    } cases[] = {
        {"", good_key, "tls.cert"},         {"nonsense", good_key, "tls.cert"},
        {good_cert, "nonsense", "tls.key"}, {good_key, good_key, "tls.cert"},
        {good_cert, NULL, "No such file"},  {NULL, good_key, "No such file"},
    };
    guint warnings = 0;
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        unlink(lab->server.cert);
        unlink(lab->server.key);
        assert_true(cases[i].cert == NULL ||
                    g_file_set_contents(lab->server.cert, cases[i].cert, -1, NULL));
        assert_true(cases[i].key == NULL ||
                    g_file_set_contents(lab->server.key, cases[i].key, -1, NULL));
        g_ptr_array_set_size(lab->log, 0);
        for (guint turn = 0; turn < 3; turn++) {
            clock_advance(&f->clock, 5000);
            assert_served(lab, "first");
        }
        warnings += n_lines(lab, "a replaced file is not taken", cases[i].why);
        assert_int_equal(n_lines(lab, "a replaced file is not taken", NULL), 1);
    }
    assert_int_equal(warnings, G_N_ELEMENTS(cases));
    /* Half of a replacement: the key is new, the certificate is not yet. */
    g_ptr_array_set_size(lab->log, 0);
    serve_certificate(lab, "third");
    g_autofree char *new_cert = NULL;
    assert_true(g_file_get_contents(lab->server.cert, &new_cert, NULL, NULL));
    assert_true(g_file_set_contents(lab->server.cert, good_cert, -1, NULL));
    clock_advance(&f->clock, 5000);
    assert_served(lab, "first");
    assert_line(lab, "a replaced file is not taken", "the key is not that of the certificate");
    assert_true(g_file_set_contents(lab->server.cert, new_cert, -1, NULL));
    clock_advance(&f->clock, 5000);
    assert_served(lab, "third");
}

static void test_bad_files(void **state)
{
    Lab *lab = *state;
    Clock clock = {.env.v = &clock_vtable};
    g_autofree char *missing = g_build_filename(lab->dir, "missing", NULL);
    const char *cert = lab->server.cert, *key = lab->server.key, *ca = lab->authority.cert;
    const struct {
        LhHttpOptions options;
        const char *message[2];
    } cases[] = {
        {{.cert = missing, .key = key}, {"tls.cert ", "missing: No such file"}},
        {{.cert = cert, .key = missing}, {"tls.key ", "missing: No such file"}},
        {{.cert = lab->dir, .key = key}, {"tls.cert ", ": not a regular file"}},
        {{.cert = "/dev/zero", .key = key}, {"tls.cert /dev/zero", ": not a regular file"}},
        {{.cert = key, .key = key}, {"tls.cert ", "tls.key "}},
        {{.cert = cert, .key = lab->authority.key}, {"tls.cert ", "the key is not that of"}},
        {{.cert = cert, .key = key, .client_ca = missing}, {"tls.clientCa ", "No such file"}},
        {{.cert = cert, .key = key, .client_ca = key}, {"tls.clientCa ", lab->server.key}},
        {{.cert = cert, .key = key, .client_ca = lab->tokens_file},
         {"tls.clientCa ", lab->tokens_file}},
        {{.cert = cert, .key = key, .tokens_file = missing}, {"auth.tokensFile ", "No such file"}},
        {{.cert = cert, .key = key, .tokens_file = ca}, {"auth.tokensFile ", ": line 1: must be"}},
        {{.cert = cert}, {"listen ", "both tls.cert and tls.key"}},
        {{.key = key}, {"listen ", "both tls.cert and tls.key"}},
        {{.client_ca = ca}, {"listen ", "both tls.cert and tls.key"}},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        LhHttpOptions options = cases[i].options;
        options.listen = "127.0.0.1:0";
        assert_null(lh_http_server_new(&clock.env, NULL, &options, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        if (!g_str_has_prefix(error->message, cases[i].message[0]) ||
            strstr(error->message, cases[i].message[1]) == NULL ||
            strchr(error->message, '\n') != NULL) {
            fail_msg("case %u: %s", i, error->message);
        }
    }
    assert_null(clock.timers);
}

#define tls_case(name) cmocka_unit_test_setup_teardown(name, setup_tls, lab_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        tls_case(test_versions),
        tls_case(test_large_bodies),
        tls_case(test_pending_data),
        tls_case(test_stream),
        tls_case(test_stream_reader_sleeps),
        tls_case(test_late_reply),
        tls_case(test_free_with_open_requests),
        tls_case(test_slow_handshake),
        tls_case(test_bad_handshake),
        tls_case(test_slow_request),
        cmocka_unit_test_setup_teardown(test_limits, setup_small_tls, lab_teardown),
        tls_case(test_idle),
        tls_case(test_certificate_replaced),
        tls_case(test_bad_replacement),
        tls_case(test_bad_files),
    };
    return cmocka_run_group_tests_name("http/tls", tests, NULL, NULL);
}

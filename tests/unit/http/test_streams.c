/*
 * http/server: files with ranges, and event streams.
 */
#include "fixture.h"

/* ---- files ---- */

static void assert_range(Fixture *f, const char *headers, int status, const char *body,
                         const char *range)
{
    g_autofree char *request = g_strdup_printf("GET /file/x HTTP/1.1\n%s", headers);
    Client *client = ask(f, request, NULL);
    assert_int_equal(reply_status(client), status);
    if (body != NULL) {
        assert_string_equal(reply_body(client), body);
        assert_header(client, "Content-Type", "text/x-test");
    }
    assert_header(client, "Content-Range", range);
    client_close(client);
    g_string_free(client->in, TRUE);
    f->n_clients--;
}

static void test_files(void **state)
{
    Fixture *f = *state;
    assert_range(f, "X-A: b", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=2-4", 206, "234", "bytes 2-4/10");
    assert_range(f, "Range: bytes=7-", 206, "789", "bytes 7-9/10");
    assert_range(f, "Range: bytes=-3", 206, "789", "bytes 7-9/10");
    assert_range(f, "Range: bytes=-30", 206, "0123456789", "bytes 0-9/10");
    assert_range(f, "Range: bytes=9-100", 206, "9", "bytes 9-9/10");
    assert_range(f, "Range: bytes=10-", 416, NULL, "bytes */10");
    assert_range(f, "Range: bytes=-0", 416, NULL, "bytes */10");
    assert_range(f, "Range: bytes=4-2", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=0-1,3-4", 200, "0123456789", NULL);
    assert_range(f, "Range: lines=0-1", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=-", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=99999999999999999999-", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=2-4\nIf-Range: \"other\"", 200, "0123456789", NULL);
    assert_ask(f, "GET /file/dir HTTP/1.1", NULL, 404, "not a regular file");

    Client *client = ask(f, "GET /file/x HTTP/1.1", NULL);
    g_autofree char *etag = reply_header(client, "ETag");
    g_autofree char *headers = g_strdup_printf("Range: bytes=2-4\nIf-Range: %s", etag);
    assert_range(f, headers, 206, "234", "bytes 2-4/10");
    assert_header(client, "Accept-Ranges", "bytes");

    client = client_new(f);
    client_ask(f, client, "HEAD /file/x HTTP/1.1\nRange: bytes=2-4", NULL);
    wait_for(reply_body(client) != NULL);
    settle();
    assert_int_equal(reply_status(client), 206);
    assert_header(client, "Content-Length", "3");
    assert_string_equal(reply_body(client), "");

    assert_true(g_file_set_contents(f->file, "", 0, NULL));
    assert_range(f, "X-A: b", 200, "", NULL);
    assert_range(f, "Range: bytes=0-", 416, NULL, "bytes */0");
}

static void test_large_file(void **state)
{
    Fixture *f = *state;
    gsize size = 8 * 1024 * 1024 + 17;
    g_autofree char *content = g_malloc(size);
    for (gsize i = 0; i < size; i++) {
        content[i] = (char)(i * 31 + i / 251);
    }
    assert_true(g_file_set_contents(f->file, content, (gssize)size, NULL));
    Client *client = ask(f, "GET /file/x HTTP/1.1\nRange: bytes=5-", NULL);
    assert_int_equal(reply_status(client), 206);
    assert_memory_equal(reply_body(client), content + 5, size - 5);
}

/* ---- event streams ---- */

static void test_stream(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && strstr(client->in->str, "retry: 1000\n\n") != NULL);
    assert_int_equal(reply_status(client), 200);
    assert_header(client, "Content-Type", "text/event-stream");
    assert_header(client, "Cache-Control", "no-store");
    lh_http_stream_send(f->stream, 7, "PUT", "{\"a\":1}");
    wait_for(strstr(client->in->str, "event: PUT\nid: 7\ndata: {\"a\":1}\n\n") != NULL);
    lh_http_stream_send(f->stream, -1, NULL, "one\ntwo\r\nthree");
    wait_for(strstr(client->in->str, "\ndata: one\ndata: two\ndata: three\n\n") != NULL);

    /* A sign of life every 15 s. */
    g_string_truncate(client->in, 0);
    clock_advance(&f->clock, 14999);
    settle();
    assert_int_equal(client->in->len, 0);
    clock_advance(&f->clock, 1);
    wait_for(strstr(client->in->str, ":\n\n") != NULL);

    lh_http_stream_send(f->stream, 8, "DELETE", "last");
    lh_http_stream_close(f->stream);
    wait_for(g_str_has_suffix(client->in->str, "data: last\n\n\r\n0\r\n\r\n"));
    assert_int_equal(f->n_closed, 0);
    /* The connection is good for another request. */
    g_string_truncate(client->in, 0);
    client_ask(f, client, "GET /hello HTTP/1.1", NULL);
    wait_for(reply_complete(client));
    lh_http_stream_close(NULL);
}

static void test_stream_client_leaves(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && client->in->len > 0);
    client_close(client);
    wait_for(f->n_closed == 1);

    /* While much is under way. */
    client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && client->in->len > 0);
    g_autofree char *large = g_strnfill(1024 * 1024, 'x');
    lh_http_stream_send(f->stream, 1, "PUT", large);
    client_close(client);
    wait_for(f->n_closed == 2);
}

/* A client that shuts down its sending side still gets what is answered at once, but nobody waits
 * for it. */
static void test_half_closed(void **state)
{
    Fixture *f = *state;
    Client *hello = client_new(f), *events = client_new(f);
    client_ask(f, hello, "GET /hello HTTP/1.1", NULL);
    shutdown(hello->fd, SHUT_WR);
    wait_for(reply_complete(hello));
    assert_int_equal(reply_status(hello), 200);
    Client *partial = client_new(f);
    client_send(partial, "GET /hel", 8);
    shutdown(partial->fd, SHUT_WR);
    settle();
    clock_advance(&f->clock, 1000);
    wait_for(hello->eof && partial->eof);
    client_ask(f, events, "GET /events HTTP/1.1", NULL);
    shutdown(events->fd, SHUT_WR);
    wait_for(f->n_closed == 1);
}

static void test_stream_reader_sleeps(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && client->in->len > 0);
    g_clear_handle_id(&client->source, g_source_remove);
    g_autofree char *large = g_strnfill(100 * 1024, 'x');
    guint sent = 0;
    for (; f->stream != NULL && sent < 1000; sent++) {
        lh_http_stream_send(f->stream, sent, "PUT", large);
        assert_true(f->stream != NULL); /* closed comes from the loop, not from send */
        settle();
    }
    /* More than the buffer, less than the buffer and what two kernels may hold. */
    assert_in_range(sent, 40, 400);
    assert_int_equal(f->n_closed, 1);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
    client_read(client);
    wait_for(client->eof);
}

static void test_stream_burst(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL);
    for (guint i = 0; i < 20000; i++) {
        lh_http_stream_send(f->stream, i, "PUT", "0123456789012345678901234567890123456789");
    }
    wait_for(strstr(client->in->str, "id: 19999\n") != NULL);
    assert_int_equal(f->n_closed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_files),        test_case(test_large_file),
        test_case(test_stream),       test_case(test_stream_client_leaves),
        test_case(test_half_closed),  test_case(test_stream_reader_sleeps),
        test_case(test_stream_burst),
    };
    return cmocka_run_group_tests_name("http/streams", tests, NULL, NULL);
}

/*
 * http/server: limits of bodies, headers and connections, slow clients, late replies, and clients that
 * do not wait for them.
 */
#include "fixture.h"

/* ---- limits ---- */

static void test_body_limit(void **state)
{
    Fixture *f = *state;
    g_autofree char *fits = g_strnfill(64 * 1024, 'x');
    g_autofree char *over = g_strnfill(64 * 1024 + 1, 'x');
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json", fits, 200,
               "65536:(long)");
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json", over, 413, "too large");

    /* Without a length, and in pieces. */
    GString *chunks = g_string_new(NULL);
    for (guint i = 0; i < 65; i++) {
        g_string_append_printf(chunks, "400\r\n%.1024s\r\n", over);
    }
    g_string_append(chunks, "0\r\n\r\n");
    Client *client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nTransfer-Encoding: chunked",
               NULL);
    client_send(client, chunks->str, chunks->len);
    wait_for(reply_complete(client));
    assert_int_equal(reply_status(client), 413);
    g_string_free(chunks, TRUE);

    /* Announced: refused before it is sent. */
    client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 70000\n"
               "Expect: 100-continue",
               NULL);
    wait_for(reply_complete(client));
    assert_int_equal(reply_status(client), 413);
    client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 99999999999",
               NULL);
    wait_for(reply_complete(client) && client->eof);
    assert_int_equal(reply_status(client), 413);
    client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\n"
               "Content-Length: 99999999999999999999999",
               NULL);
    wait_for(client->eof);
    assert_true(reply_status(client) == 413 || reply_status(client) == 400);
}

static void test_endless_body(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "PUT /nothing HTTP/1.1\nTransfer-Encoding: chunked", NULL);
    g_autofree char *chunk = g_strnfill(65536, 'x');
    for (guint i = 0; i < 400 && !client->eof; i++) {
        client_send(client, "10000\r\n", 7);
        client_send(client, chunk, 65536);
        client_send(client, "\r\n", 2);
        settle();
    }
    wait_for(client->eof);
}

static void test_header_limit(void **state)
{
    Fixture *f = *state;
    g_autofree char *large = g_strnfill(20 * 1024, 'h');
    g_autofree char *huge = g_strnfill(200 * 1024, 'h');
    g_autofree char *fits = g_strdup_printf("GET /hello HTTP/1.1\nX-A: %s", large);
    assert_ask(f, fits, NULL, 200, NULL);
    g_autofree char *header = g_strdup_printf("GET /hello HTTP/1.1\nX-A: %s", huge);
    Client *client = client_new(f);
    client_ask(f, client, header, NULL);
    wait_for(client->eof);
    assert_int_equal(reply_status(client), 431);
    g_autofree char *line = g_strdup_printf("GET /echo/?q=%s HTTP/1.1", huge);
    client = client_new(f);
    client_ask(f, client, line, NULL);
    wait_for(client->eof);
    assert_true(reply_status(client) == 414 || reply_status(client) == 431);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
}

static void test_slow_client(void **state)
{
    Fixture *f = *state;
    Client *silent = client_new(f), *trickle = client_new(f), *body = client_new(f);
    client_send(trickle, "GET /hello HTTP/1.1\r\nX-A: ", 26);
    client_ask(f, body, "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 9",
               NULL);
    for (guint i = 0; i < 29; i++) {
        settle();
        clock_advance(&f->clock, 1000);
        client_send(trickle, "x", 1);
        if (i < 5) {
            client_send(body, "x", 1);
        }
    }
    settle();
    assert_false(silent->eof || trickle->eof || body->eof);
    /* An honest one that came later is not touched. */
    Client *late = client_new(f);
    settle();
    clock_advance(&f->clock, 1500);
    wait_for(silent->eof && trickle->eof && body->eof);
    assert_int_equal(silent->in->len, 0);
    assert_int_equal(reply_status(trickle), 408);
    assert_int_equal(reply_status(body), 408);
    client_ask(f, late, "GET /hello HTTP/1.1", NULL);
    wait_for(reply_complete(late));
    /* Time counts anew after each reply. */
    clock_advance(&f->clock, 29000);
    settle();
    assert_false(late->eof);
    clock_advance(&f->clock, 1000);
    wait_for(late->eof);
}

static void test_slow_handler(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1", NULL);
    wait_for(f->held != NULL);
    clock_advance(&f->clock, 600000);
    settle();
    assert_false(client->eof);
    lh_http_reply(f->held, 200, NULL, "done", -1);
    wait_for(reply_complete(client));
    assert_int_equal(f->n_gone, 0);
}

static void test_connection_limits(void **state)
{
    Fixture *f = *state;
    Client *clients[4];
    for (guint i = 0; i < 4; i++) {
        clients[i] = client_new(f);
        settle();
    }
    client_ask(f, clients[0], "GET /hello HTTP/1.1", NULL);
    wait_for(reply_complete(clients[0]));
    wait_for(clients[3]->eof);
    assert_false(clients[2]->eof);
    client_close(clients[1]);
    settle();
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);

    /* Six in all: the next one, from whatever address, waits until there is room. */
    Client *others[5];
    for (guint i = 0; i < 5; i++) {
        others[i] = client_from(f, i < 3 ? "127.0.0.2" : "127.0.0.3");
        client_ask(f, others[i], "GET /hello HTTP/1.1", NULL);
        settle();
    }
    wait_for(reply_complete(others[3]));
    settle();
    assert_int_equal(others[4]->in->len, 0);
    assert_false(others[4]->eof);
    client_close(others[0]);
    wait_for(reply_complete(others[4]));
}

/* ---- late replies, and clients that do not wait for them ---- */

static void test_late_reply(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1", NULL);
    wait_for(f->held != NULL);
    settle();
    assert_int_equal(client->in->len, 0);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
    lh_http_reply_json(f->held, 200, g_strdup("[]"), NULL);
    wait_for(reply_complete(client));
    assert_string_equal(reply_body(client), "[]");
    assert_int_equal(f->n_gone, 0);
}

static void test_client_leaves(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1\nX-Mark: kept", NULL);
    wait_for(f->held != NULL);
    client_close(client);
    wait_for(f->n_gone == 1);
    settle();
    /* What the handler knows stays readable, and it still owes the reply. */
    assert_string_equal(lh_http_header(f->held, "x-mark"), "kept");
    assert_string_equal(lh_http_path(f->held), "/late");
    assert_true(g_str_has_prefix(lh_http_peer(f->held), "127.0.0.1:"));
    lh_http_reply(g_steal_pointer(&f->held), 200, NULL, "too late", -1);
    assert_int_equal(f->n_gone, 1);

    client = client_new(f);
    client_ask(f, client, "GET /cancel HTTP/1.1", NULL);
    wait_for(f->held != NULL);
    struct linger hard = {.l_onoff = 1};
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    client_close(client);
    wait_for(f->n_gone == 2);
    assert_null(f->held);

    /* Gone before the handler even runs. */
    client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1", NULL);
    client_close(client);
    wait_for(f->n_gone == 3);
    assert_null(lh_http_stream_open(f->held, on_closed, f));
    settle();
    assert_int_equal(f->n_closed, 0);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
}

static void test_free_with_open_requests(void **state)
{
    Fixture *f = *state;
    Client *late = client_new(f), *events = client_new(f), *half = client_new(f);
    client_ask(f, late, "GET /late HTTP/1.1", NULL);
    client_ask(f, events, "GET /events HTTP/1.1", NULL);
    client_ask(f, half, "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 9",
               NULL);
    wait_for(f->held != NULL && f->stream != NULL);
    settle();
    lh_http_server_free(g_steal_pointer(&f->server));
    assert_int_equal(f->n_gone, 1);
    assert_int_equal(f->n_closed, 1);
    lh_http_reply(f->held, 200, NULL, "nobody", -1);
    wait_for(late->eof && events->eof && half->eof);
}

static void test_pipeline(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    GString *text = g_string_new(NULL);
    static const char *const paths[] = {"/echo/1", "/late", "/echo/2", "/nothing", "/echo/3"};
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_string_append_printf(text, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", paths[i],
                               f->port);
    }
    client_send(client, text->str, text->len);
    g_string_free(text, TRUE);
    wait_for(f->held != NULL);
    settle();
    /* The order is kept: nothing after the late one. */
    assert_non_null(strstr(client->in->str, "/echo/1"));
    assert_null(strstr(client->in->str, "/echo/2"));
    lh_http_reply(f->held, 200, NULL, "-late-", -1);
    wait_for(strstr(client->in->str, "/echo/3") != NULL);
    const char *late = strstr(client->in->str, "-late-");
    assert_non_null(late);
    assert_true(late < strstr(client->in->str, "/echo/2"));
    assert_non_null(strstr(client->in->str, "404"));
    assert_int_equal(f->n_held, 1);
}

/* Nothing to do means no turns of the loop. */
static void test_idle(void **state)
{
    Fixture *f = *state;
    Client *late = client_new(f), *events = client_new(f), *idle = client_new(f);
    client_ask(f, late, "GET /late HTTP/1.1", NULL);
    client_ask(f, events, "GET /events HTTP/1.1", NULL);
    client_ask(f, idle, "GET /hello HTTP/1.1", NULL);
    wait_for(f->held != NULL && f->stream != NULL && reply_complete(idle));
    settle();
    gboolean over = FALSE;
    guint timer = g_timeout_add(300, on_hopeless, &over), turns = 0;
    while (!over) {
        g_main_context_iteration(NULL, TRUE);
        turns++;
    }
    g_source_remove(timer);
    assert_in_range(turns, 1, 5);
    lh_http_reply(f->held, 200, NULL, "", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_body_limit),
        test_case(test_endless_body),
        test_case(test_header_limit),
        test_case(test_slow_client),
        test_case(test_slow_handler),
        cmocka_unit_test_setup_teardown(test_connection_limits, setup_small, teardown),
        test_case(test_late_reply),
        test_case(test_client_leaves),
        test_case(test_free_with_open_requests),
        test_case(test_pipeline),
        test_case(test_idle),
    };
    return cmocka_run_group_tests_name("http/connections", tests, NULL, NULL);
}

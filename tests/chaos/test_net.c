/* What a link does to a connection between a client and a server, both of which are this test. */
#include "net.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define WITHIN_MS  10000
#define NOTHING_MS 150 /* long enough for what would come over loopback */

typedef struct {
    Net *net;
    Link *link;
    int listener, client, server;
} Lab;

static int listen_somewhere(guint16 *port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *port = ntohs(in.sin_port);
    return fd;
}

static int connect_to(guint16 port)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    return fd;
}

static gboolean readable(int fd, int ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, ms) > 0;
}

static int setup(void **state)
{
    Lab *lab = g_new0(Lab, 1);
    guint16 port;
    lab->net = net_new();
    lab->listener = listen_somewhere(&port);
    lab->link = net_link(lab->net, "127.0.0.1", port);
    lab->client = connect_to(link_port(lab->link));
    assert_true(readable(lab->listener, WITHIN_MS));
    lab->server = accept(lab->listener, NULL, NULL);
    *state = lab;
    return 0;
}

static int teardown(void **state)
{
    Lab *lab = *state;
    net_free(lab->net);
    close(lab->client);
    close(lab->server);
    close(lab->listener);
    g_free(lab);
    return 0;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* All of @text comes. */
static void must_hear(int fd, const char *text)
{
    char got[256];
    gsize n = 0, len = strlen(text);
    while (n < len) {
        assert_true(readable(fd, WITHIN_MS));
        ssize_t more = recv(fd, got + n, len - n, 0);
        assert_true(more > 0);
        n += (gsize)more;
    }
    assert_memory_equal(got, text, len);
}

/* The connection ends, and nothing comes before. */
static void must_end(int fd)
{
    char byte;
    assert_true(readable(fd, WITHIN_MS));
    assert_true(recv(fd, &byte, 1, 0) <= 0);
}

static void passes_on_both_ways(void **state)
{
    Lab *lab = *state;
    say(lab->client, "question");
    must_hear(lab->server, "question");
    say(lab->server, "answer");
    must_hear(lab->client, "answer");
    assert_int_equal(link_touched(lab->link), 0);
}

static void what_is_held_in_one_direction_comes_later(void **state)
{
    Lab *lab = *state;
    link_hold(lab->link, LINK_TO_SERVER);
    say(lab->client, "late");
    assert_false(readable(lab->server, NOTHING_MS));
    say(lab->server, "the other way");
    must_hear(lab->client, "the other way");
    assert_true(link_touched(lab->link) > 0);
    link_heal(lab->link);
    must_hear(lab->server, "late");
}

static void what_is_dropped_is_lost_with_its_connection(void **state)
{
    Lab *lab = *state;
    link_drop(lab->link, LINK_TO_CLIENT);
    say(lab->server, "lost");
    assert_false(readable(lab->client, NOTHING_MS));
    say(lab->client, "heard");
    must_hear(lab->server, "heard");
    link_heal(lab->link);
    must_end(lab->client);
    must_end(lab->server);
}

static void delay_keeps_the_order(void **state)
{
    Lab *lab = *state;
    link_delay(lab->link, LINK_BOTH, 1000);
    say(lab->client, "one");
    assert_false(readable(lab->server, NOTHING_MS));
    say(lab->client, "two");
    must_hear(lab->server, "onetwo");
    assert_true(link_touched(lab->link) >= 1);
}

static void refuses_old_connections_and_new_ones(void **state)
{
    Lab *lab = *state;
    link_refuse(lab->link);
    must_end(lab->client);
    must_end(lab->server);
    int again = connect_to(link_port(lab->link));
    must_end(again);
    close(again);
    link_heal(lab->link);
    again = connect_to(link_port(lab->link));
    assert_true(readable(lab->listener, WITHIN_MS));
    close(again);
}

static void answers_instead_of_the_server(void **state)
{
    Lab *lab = *state;
    link_answer(lab->link, "HTTP/1.1 500 no\r\n\r\n");
    say(lab->client, "GET / HTTP/1.1\r\n\r\n");
    must_hear(lab->client, "HTTP/1.1 500 no\r\n\r\n");
    must_end(lab->server);
    assert_int_equal(link_touched(lab->link), 1);
}

static void breaks_off_after_so_many_bytes(void **state)
{
    Lab *lab = *state;
    link_truncate(lab->link, 4);
    say(lab->server, "12345678");
    must_hear(lab->client, "1234");
    must_end(lab->client);
    assert_int_equal(link_touched(lab->link), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(passes_on_both_ways),
        TEST(what_is_held_in_one_direction_comes_later),
        TEST(what_is_dropped_is_lost_with_its_connection),
        TEST(delay_keeps_the_order),
        TEST(refuses_old_connections_and_new_ones),
        TEST(answers_instead_of_the_server),
        TEST(breaks_off_after_so_many_bytes),
    };
    return cmocka_run_group_tests_name("chaos-net", tests, NULL, NULL);
}

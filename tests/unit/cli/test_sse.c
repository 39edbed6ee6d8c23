/*
 * Server-sent events, whole and byte by byte.
 */
#include "cli/sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static gboolean note(const char *event, const char *id, const char *data, gpointer user)
{
    g_string_append_printf(user, "[%s|%s|%s]", event, id, data);
    return strcmp(data, "stop") != 0;
}

static void test_events(void **state)
{
    (void)state;
    static const char text[] = ": ok\n\nretry: 1000\n\nevent: PUT\nid: 7\ndata: {\"a\":1}\n\n"
                               "data: one\r\ndata:two\r\n\r\ndata\n\nid: 8\n\ndata:  x\rdata\r\r"
                               "event: none\n\nunknown: y\ndata: z\n\ndata: unfinished\n";
    static const char expected[] = "[PUT|7|{\"a\":1}][message|7|one\ntwo][message|7|]"
                                   "[message|8| x\n][message|8|z]";
    for (gsize step = 1; step <= sizeof text; step++) {
        g_autoptr(GString) seen = g_string_new(NULL);
        LhSse *sse = lh_sse_new(note, seen);
        gboolean too_large;
        for (gsize at = 0; at < sizeof text - 1; at += step) {
            assert_true(lh_sse_feed(sse, text + at, MIN(step, sizeof text - 1 - at), &too_large));
        }
        assert_string_equal(seen->str, expected);
        lh_sse_free(sse);
    }
}

static void test_stop(void **state)
{
    (void)state;
    g_autoptr(GString) seen = g_string_new(NULL);
    LhSse *sse = lh_sse_new(note, seen);
    gboolean too_large;
    static const char text[] = "data: stop\n\ndata: more\n\n";
    assert_false(lh_sse_feed(sse, text, sizeof text - 1, &too_large));
    assert_false(too_large);
    assert_false(lh_sse_feed(sse, text, sizeof text - 1, &too_large));
    assert_string_equal(seen->str, "[message||stop]");
    lh_sse_free(sse);
    lh_sse_free(NULL);
}

static void test_too_large(void **state)
{
    (void)state;
    g_autoptr(GString) seen = g_string_new(NULL);
    g_autofree char *piece = g_strnfill(1024 * 1024, 'x');
    for (int lines = 0; lines <= 1; lines++) {
        LhSse *sse = lh_sse_new(note, seen);
        gboolean ok = TRUE, too_large = FALSE;
        guint n = 0;
        for (; ok && n < 10; n++) {
            ok = lh_sse_feed(sse, "\ndata: ", lines ? 7 : 0, &too_large) &&
                 lh_sse_feed(sse, piece, 1024 * 1024, &too_large);
        }
        assert_true(too_large);
        assert_in_range(n, 4, 5);
        lh_sse_free(sse);
    }
    assert_int_equal(seen->len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests_name("cli/sse", tests, NULL, NULL);
}

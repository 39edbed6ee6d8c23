/*
 * etcd/keepalive: the n-th answer belongs to the n-th request, whatever became of its caller.
 */
#include "base/errors.h"
#include "etcd/keepalive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static LhKeepalives keepalives;
static GString *seen;

static void on_answer(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    if (error != NULL) {
        assert_int_equal(error->code, LH_ERR_UNAVAILABLE);
        assert_int_equal(lease, 0);
        g_string_append_printf(seen, "%s failed\n", (const char *)data);
    } else {
        g_string_append_printf(seen, "%s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
                               (const char *)data, lease, ttl_s);
    }
}

static int setup(void **state)
{
    (void)state;
    lh_keepalives_init(&keepalives);
    seen = g_string_new(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lh_keepalives_clear(&keepalives);
    g_string_free(seen, TRUE);
    return 0;
}

static void expect(const char *text)
{
    assert_string_equal(seen->str, text);
    g_string_truncate(seen, 0);
}

static void add(LhCallId id, gint64 lease, gint64 deadline_us, const char *name)
{
    lh_keepalives_add(&keepalives, id, lease, (gint64)id * 10, deadline_us, on_answer,
                      (gpointer)(guintptr)name);
}

static void fail_all(void)
{
    g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE, "closed");
    lh_keepalives_fail(&keepalives, error);
}

static void answers_in_order(void **state)
{
    (void)state;
    add(1, 70, 100, "a");
    add(2, 80, 100, "b");
    add(3, 70, 100, "c");
    assert_true(lh_keepalives_answer(&keepalives, 70, 5));
    assert_true(lh_keepalives_answer(&keepalives, 80, 0));
    assert_true(lh_keepalives_answer(&keepalives, 70, 6));
    expect("a 70 5\nb 80 0\nc 70 6\n");
}

static void answers_that_nobody_asked_for(void **state)
{
    (void)state;
    assert_false(lh_keepalives_answer(&keepalives, 70, 5));
    add(1, 70, 100, "a");
    assert_false(lh_keepalives_answer(&keepalives, 71, 5));
    expect("");
}

static void late_answer_is_not_the_next_ones(void **state)
{
    (void)state;
    add(1, 70, 100, "a");
    lh_keepalives_expire(&keepalives, 99);
    expect("");
    lh_keepalives_expire(&keepalives, 100);
    expect("a failed\n");
    assert_int_equal(keepalives.given_up, 1);
    add(2, 70, 200, "b");
    assert_true(lh_keepalives_answer(&keepalives, 70, 5)); /* a's */
    expect("");
    assert_int_equal(keepalives.given_up, 0);
    assert_true(lh_keepalives_answer(&keepalives, 70, 6));
    expect("b 70 6\n");
}

static void cancelled_keeps_its_place(void **state)
{
    (void)state;
    add(1, 70, 100, "a");
    add(2, 70, 100, "b");
    assert_true(lh_keepalives_cancel(&keepalives, 1));
    assert_false(lh_keepalives_cancel(&keepalives, 1));
    assert_false(lh_keepalives_cancel(&keepalives, 9));
    assert_int_equal(keepalives.given_up, 1);
    assert_true(lh_keepalives_answer(&keepalives, 70, 5));
    expect("");
    lh_keepalives_expire(&keepalives, 1000);
    expect("b failed\n");
    fail_all();
    expect("");
    assert_int_equal(keepalives.given_up, 0);
}

static void oldest_without_an_answer(void **state)
{
    (void)state;
    assert_true(lh_keepalives_oldest_us(&keepalives) == G_MAXINT64);
    add(1, 70, 100, "a");
    add(2, 70, 200, "b");
    assert_int_equal(lh_keepalives_oldest_us(&keepalives), 10);
    lh_keepalives_expire(&keepalives, 100); /* given up is not answered */
    assert_int_equal(lh_keepalives_oldest_us(&keepalives), 10);
    lh_keepalives_answer(&keepalives, 70, 5);
    assert_int_equal(lh_keepalives_oldest_us(&keepalives), 20);
    lh_keepalives_answer(&keepalives, 70, 5);
    assert_true(lh_keepalives_oldest_us(&keepalives) == G_MAXINT64);
}

static void next_deadline(void **state)
{
    (void)state;
    assert_int_equal(lh_keepalives_next_deadline(&keepalives), G_MAXINT64);
    add(1, 70, 300, "a");
    add(2, 70, 200, "b");
    assert_int_equal(lh_keepalives_next_deadline(&keepalives), 200);
    lh_keepalives_cancel(&keepalives, 2);
    assert_int_equal(lh_keepalives_next_deadline(&keepalives), 300);
    lh_keepalives_expire(&keepalives, 300);
    assert_int_equal(lh_keepalives_next_deadline(&keepalives), G_MAXINT64);
    expect("a failed\n");
}

static void add_and_cancel(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    on_answer(lease, ttl_s, error, data);
    lh_keepalives_cancel(&keepalives, 2);
    add(3, 70, 100, "new");
}

static void callbacks_may_add_and_cancel(void **state)
{
    (void)state;
    lh_keepalives_add(&keepalives, 1, 70, 10, 100, add_and_cancel, (gpointer)(guintptr) "a");
    add(2, 70, 100, "b");
    fail_all();
    expect("a failed\n");
    /* The new one belongs to the next stream: it was not failed, and it is the first. */
    assert_true(lh_keepalives_answer(&keepalives, 70, 5));
    expect("new 70 5\n");
}

static void clear_all(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    on_answer(lease, ttl_s, error, data);
    lh_keepalives_clear(&keepalives);
}

static void callbacks_may_clear(void **state)
{
    (void)state;
    lh_keepalives_add(&keepalives, 1, 70, 10, 100, clear_all, (gpointer)(guintptr) "a");
    add(2, 70, 100, "b");
    fail_all();
    expect("a failed\n");
    lh_keepalives_add(&keepalives, 3, 70, 30, 100, clear_all, (gpointer)(guintptr) "c");
    add(4, 70, 100, "d");
    lh_keepalives_expire(&keepalives, 100);
    expect("c failed\n");
    lh_keepalives_add(&keepalives, 5, 70, 50, 100, clear_all, (gpointer)(guintptr) "e");
    assert_true(lh_keepalives_answer(&keepalives, 70, 5));
    expect("e 70 5\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_in_order),
        TEST(answers_that_nobody_asked_for),
        TEST(late_answer_is_not_the_next_ones),
        TEST(cancelled_keeps_its_place),
        TEST(oldest_without_an_answer),
        TEST(next_deadline),
        TEST(callbacks_may_add_and_cancel),
        TEST(callbacks_may_clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

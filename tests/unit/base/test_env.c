/*
 * base/env: backoff stays within its bounds for every attempt, and timers set in relation to the
 * present do not overflow. The env is a stub whose clock and random numbers the test sets.
 */
#include "base/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static guint64 next_random;
static gint64 now_ms;
static gint64 asked_ms;
static guint cancelled;
static guint freed;

static gint64 stub_clock(LhEnv *env)
{
    (void)env;
    return now_ms;
}

static guint64 stub_random(LhEnv *env)
{
    (void)env;
    return next_random;
}

static LhTimer *stub_timer_at(LhEnv *env, gint64 at_ms, LhTimerFunc func, gpointer data)
{
    (void)env;
    (void)func;
    (void)data;
    asked_ms = at_ms;
    return (LhTimer *)&asked_ms;
}

static void stub_cancel(LhEnv *env, LhTimer *timer)
{
    (void)env;
    assert_ptr_equal(timer, &asked_ms);
    cancelled++;
}

static void stub_free(LhEnv *env)
{
    (void)env;
    freed++;
}

static const LhEnvVtable vtable = {.wall_ms = stub_clock,
                                   .mono_ms = stub_clock,
                                   .random = stub_random,
                                   .timer_at = stub_timer_at,
                                   .timer_cancel = stub_cancel,
                                   .free = stub_free};
static LhEnv env = {&vtable};

/* The least and the greatest that lh_backoff_ms can give: the random number decides between them.
 */
static void check_backoff(guint attempt, gint64 first, gint64 cap, gint64 base)
{
    next_random = 0;
    assert_int_equal(lh_backoff_ms(&env, attempt, first, cap), base / 2);
    next_random = (guint64)(base - base / 2);
    assert_int_equal(lh_backoff_ms(&env, attempt, first, cap), base);
    next_random++;
    assert_int_equal(lh_backoff_ms(&env, attempt, first, cap), base / 2);
    next_random = G_MAXUINT64;
    gint64 any = lh_backoff_ms(&env, attempt, first, cap);
    assert_true(any >= base / 2 && any <= base);
}

static void backoff_doubles_up_to_its_cap(void **state)
{
    (void)state;
    check_backoff(0, 100, 5000, 100);
    check_backoff(1, 100, 5000, 200);
    check_backoff(5, 100, 5000, 3200);
    check_backoff(6, 100, 5000, 5000);
    check_backoff(7, 100, 5000, 5000);
    check_backoff(0, 9000, 5000, 5000);
    check_backoff(3, 1, 8, 8);
    check_backoff(0, 1, 1, 1);
    check_backoff(1, 3, 7, 6);
    check_backoff(1, 4, 7, 7);
}

static void backoff_never_overflows(void **state)
{
    (void)state;
    for (guint attempt = 40; attempt < 200; attempt++)
        check_backoff(attempt, 100000000, 600000, 600000);
    check_backoff(G_MAXUINT, 1, 600000, 600000);
    check_backoff(62, 1, G_MAXINT64, G_GINT64_CONSTANT(1) << 62);
    check_backoff(63, 1, G_MAXINT64, G_MAXINT64);
    check_backoff(64, 1, G_MAXINT64, G_MAXINT64);
    check_backoff(1, G_MAXINT64, G_MAXINT64, G_MAXINT64);
}

static void backoff_without_a_positive_bound_is_zero(void **state)
{
    (void)state;
    next_random = 12345;
    assert_int_equal(lh_backoff_ms(&env, 3, 0, 1000), 0);
    assert_int_equal(lh_backoff_ms(&env, 3, 1000, 0), 0);
    assert_int_equal(lh_backoff_ms(&env, 3, -5, 1000), 0);
    assert_int_equal(lh_backoff_ms(&env, 3, 1000, G_MININT64), 0);
}

static void timer_in_counts_from_now_without_overflow(void **state)
{
    (void)state;
    now_ms = 1000;
    lh_timer_in(&env, 500, NULL, NULL);
    assert_int_equal(asked_ms, 1500);
    lh_timer_in(&env, -5000, NULL, NULL);
    assert_int_equal(asked_ms, -4000);
    lh_timer_in(&env, G_MAXINT64, NULL, NULL);
    assert_int_equal(asked_ms, G_MAXINT64);
    lh_timer_in(&env, G_MAXINT64 - 1000, NULL, NULL);
    assert_int_equal(asked_ms, G_MAXINT64);
    lh_timer_in(&env, G_MAXINT64 - 1001, NULL, NULL);
    assert_int_equal(asked_ms, G_MAXINT64 - 1);
    lh_timer_in(&env, G_MININT64, NULL, NULL);
    assert_true(asked_ms < 0);
}

static void clearing_a_timer_cancels_it_once(void **state)
{
    (void)state;
    cancelled = 0;
    LhTimer *timer = lh_timer_at(&env, 5, NULL, NULL);
    lh_timer_clear(&env, &timer);
    assert_null(timer);
    lh_timer_clear(&env, &timer);
    assert_int_equal(cancelled, 1);
}

static void freeing_nothing_is_allowed(void **state)
{
    (void)state;
    freed = 0;
    lh_env_free(NULL);
    assert_int_equal(freed, 0);
    lh_env_free(&env);
    assert_int_equal(freed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoff_doubles_up_to_its_cap),
        cmocka_unit_test(backoff_never_overflows),
        cmocka_unit_test(backoff_without_a_positive_bound_is_zero),
        cmocka_unit_test(timer_in_counts_from_now_without_overflow),
        cmocka_unit_test(clearing_a_timer_cancels_it_once),
        cmocka_unit_test(freeing_nothing_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

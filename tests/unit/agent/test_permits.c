/*
 * agent/permits: no window of the period ever holds more than the policy's requests, nor are more out than
 * maxConcurrent, against a checker that looks at every grant ever made; and no more is refused than must be.
 */
#include "agent/permits.h"
#include "tests/unit/every.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static guint64 next_random(gpointer data)
{
    return (guint64)g_rand_int(data) << 32 | g_rand_int(data);
}

/* ---- by hand ---- */

typedef struct {
    GRand *rand;
    LhPermits *permits;
    guint64 ids[LH_PERMITS_AT_ONCE];
    gint64 retry_ms;
} Fixture;

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->rand = g_rand_new_with_seed(1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_permits_free(f->permits);
    g_rand_free(f->rand);
    g_free(f);
    return 0;
}

static void begin(Fixture *f, gint64 requests, gint64 period_ms, gint64 max_concurrent,
                  const char *window, gint64 now_ms)
{
    const LhPermitLimits limits = {requests, period_ms, max_concurrent};
    LhWindow w;
    if (window != NULL)
        assert_true(lh_window_parse(window, &w, NULL));
    lh_permits_free(f->permits);
    f->permits = lh_permits_new(&limits, window != NULL ? &w : NULL, now_ms, next_random, f->rand);
}

static void limit(Fixture *f, gint64 requests, gint64 period_ms, gint64 max_concurrent,
                  gint64 now_ms)
{
    const LhPermitLimits limits = {requests, period_ms, max_concurrent};
    lh_permits_limit(f->permits, &limits, now_ms);
}

static guint take(Fixture *f, guint n, gint64 now_ms)
{
    return lh_permits_take(f->permits, "s", NULL, n, now_ms, f->ids, &f->retry_ms);
}

static char *window_at(Fixture *f, gint64 now_ms)
{
    LhWindow w;
    lh_permits_window(f->permits, now_ms, &w);
    return lh_window_print(&w);
}

static void test_slides(void **state)
{
    Fixture *f = *state;
    begin(f, 5, 1000, 0, "{}", 100);
    assert_int_equal(take(f, 3, 100), 3);
    assert_int_equal(f->retry_ms, 0);
    assert_int_equal(take(f, 3, 600), 2);
    assert_int_equal(f->retry_ms, 501);
    assert_int_equal(take(f, 1, 1100), 0); /* the millisecond of 100 may still be in it */
    assert_int_equal(f->retry_ms, 1);
    assert_int_equal(take(f, 9, 1101), 3);
    assert_int_equal(f->retry_ms, 500);
    assert_int_equal(take(f, 9, 1601), 2);
}

static void test_no_limit(void **state)
{
    Fixture *f = *state;
    begin(f, 0, 0, 0, "{}", 0);
    for (guint i = 0; i < 50; i++) {
        assert_int_equal(take(f, 100, 7), 100);
        assert_int_equal(f->retry_ms, 0);
    }
    assert_int_equal(take(f, 5000, 7), 100);
}

static void test_slots(void **state)
{
    Fixture *f = *state;
    begin(f, 0, 0, 2, "{}", 0);
    assert_int_equal(take(f, 1, 10), 1);
    guint64 first = f->ids[0];
    assert_int_equal(take(f, 5, 20), 1);
    assert_int_equal(f->retry_ms, 10 + LH_PERMIT_LIFE_MS + 1 - 20);
    assert_int_equal(lh_permits_in_use(f->permits, 20), 2);
    assert_false(lh_permits_return(f->permits, "other", first, 30));
    assert_false(lh_permits_return(f->permits, "s", first ^ 1, 30));
    assert_true(lh_permits_return(f->permits, "s", first, 30));
    assert_false(lh_permits_return(f->permits, "s", first, 30)); /* once */
    assert_int_equal(take(f, 5, 40), 1);
    assert_int_equal(take(f, 5, 20 + LH_PERMIT_LIFE_MS), 0);
    assert_int_equal(take(f, 5, 20 + LH_PERMIT_LIFE_MS + 1), 1); /* one was never returned */
    assert_false(lh_permits_return(f->permits, "s", first, 70000));
}

static void test_ids_are_new(void **state)
{
    Fixture *f = *state;
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    begin(f, 0, 0, 0, "{}", 0);
    for (guint i = 0; i < 100; i++) {
        guint n = take(f, 100, i);
        for (guint k = 0; k < n; k++) {
            assert_true(f->ids[k] != 0);
            assert_true(g_hash_table_add(seen, g_memdup2(&f->ids[k], sizeof f->ids[k])));
        }
    }
}

static guint64 stubborn(gpointer data)
{
    guint *calls = data; /* 0, 7, 7, 7, 8, 8 … */
    guint n = (*calls)++;
    return n == 0 ? 0 : 7 + (n - 1) / 3;
}

static void test_ids_are_drawn_again(void **state)
{
    Fixture *f = *state;
    const LhPermitLimits none = {0};
    const LhWindow known = {0};
    guint calls = 0;
    f->permits = lh_permits_new(&none, &known, 0, stubborn, &calls);
    assert_int_equal(take(f, 2, 0), 2);
    assert_int_equal(f->ids[0], 7);
    assert_int_equal(f->ids[1], 8);
}

static void test_quiet_without_a_window(void **state)
{
    Fixture *f = *state;
    begin(f, 5, 1000, 0, NULL, 100);
    assert_int_equal(take(f, 1, 1100), 0);
    assert_int_equal(f->retry_ms, 1);
    assert_int_equal(take(f, 9, 1101), 5);
    begin(f, 5, 1000, 3, NULL, 100);
    assert_int_equal(take(f, 1, 5000), 0);
    assert_int_equal(f->retry_ms, 100 + LH_PERMIT_LIFE_MS + 1 - 5000);
    assert_int_equal(take(f, 9, 100 + LH_PERMIT_LIFE_MS + 1), 3);
    begin(f, 5, 90000, 3, NULL, 100);
    assert_int_equal(take(f, 1, 90100), 0);
    assert_int_equal(take(f, 9, 90101), 3);
}

static void test_quiet_is_handed_on(void **state)
{
    Fixture *f = *state;
    begin(f, 5, 1000, 3, NULL, 100);
    g_autofree char *window = window_at(f, 400);
    begin(f, 5, 1000, 3, window, 50400);
    assert_int_equal(take(f, 1, 50400 + 702), 0); /* the slots: nobody knows */
    assert_int_equal(take(f, 1, 50400 + LH_PERMIT_LIFE_MS - 300), 0);
    assert_int_equal(take(f, 9, 50400 + LH_PERMIT_LIFE_MS), 3);
}

static void test_hand_over(void **state)
{
    Fixture *f = *state;
    begin(f, 5, 1000, 4, "{}", 100);
    assert_int_equal(take(f, 2, 100), 2);
    assert_true(lh_permits_return(f->permits, "s", f->ids[0], 150));
    assert_int_equal(take(f, 1, 300), 1);
    g_autofree char *window = window_at(f, 700);
    assert_string_equal(window, "{\"granted\":[[599,2],[399,1]],\"held\":[[599,1],[399,1]]}");
    begin(f, 5, 1000, 4, window, 9000); /* as if no time had passed */
    assert_int_equal(lh_permits_in_use(f->permits, 9000), 2);
    assert_int_equal(take(f, 9, 9000), 2);
    assert_int_equal(f->retry_ms, 59402); /* a slot, for two are out */
    assert_true(lh_permits_return(f->permits, "s", f->ids[0], 9300));
    assert_true(lh_permits_return(f->permits, "s", f->ids[1], 9300));
    assert_int_equal(take(f, 9, 9401), 0);
    assert_int_equal(take(f, 9, 9402), 2);
    assert_true(lh_permits_return(f->permits, "s", f->ids[0], 9500));
    assert_int_equal(take(f, 9, 9601), 0);
    assert_int_equal(take(f, 9, 9602), 1);
}

static void test_fewer_and_more(void **state)
{
    Fixture *f = *state;
    begin(f, 10, 1000, 0, "{}", 0);
    assert_int_equal(take(f, 4, 0), 4);
    assert_int_equal(take(f, 4, 500), 4);
    limit(f, 5, 1000, 0, 600);
    assert_int_equal(take(f, 1, 1000), 0);
    assert_int_equal(f->retry_ms, 1);
    assert_int_equal(take(f, 9, 1001), 1);
    limit(f, 12, 1000, 0, 1100);
    assert_int_equal(take(f, 9, 1100), 7);
    limit(f, 12, 100, 0, 1300);
    assert_int_equal(take(f, 99, 1300), 12);
}

static void test_a_longer_period_remembers(void **state)
{
    Fixture *f = *state;
    begin(f, 5, 100, 0, "{}", 0);
    for (gint64 t = 0; t < 1000; t += 200)
        assert_int_equal(take(f, 5, t), 5);
    limit(f, 30, 1000, 0, 1000);
    assert_int_equal(take(f, 99, 1000), 5);
    assert_int_equal(take(f, 99, 1001), 5);
    /* more than is remembered: as long as it may count */
    begin(f, 1, 1, 0, "{}", 0);
    for (gint64 t = 0; t < 1000; t += 2)
        assert_int_equal(take(f, 1, t), 1);
    limit(f, 1000, 10000, 0, 1000);
    assert_int_equal(take(f, 1, 1000), 0);
    assert_in_range(f->retry_ms, 9998 - 3 * 64, 9999 - 2 * 64);
    gint64 at = 1000 + f->retry_ms;
    assert_int_equal(take(f, 1, at - 1), 0);
    assert_int_equal(take(f, 1, at), 1);
}

static void test_a_full_ring_forgets_nothing_that_counts(void **state)
{
    static const gint64 periods_ms[] = {8191, 1000000000, 4000000000, 16000000000};
    Fixture *f = *state;
    gint64 now = 0, granted = 0;
    begin(f, 1000000, 8191, 0, "{}", 0);
    for (guint i = 0; i < G_N_ELEMENTS(periods_ms); i++) {
        limit(f, 1000000, periods_ms[i], 0, now);
        for (gint64 step = MAX(periods_ms[i] / 4096, 1); now + step <= periods_ms[i]; now += step)
            granted += take(f, 1, now);
    }
    assert_in_range(granted, 18000, 19000);
    LhWindow w;
    lh_permits_window(f->permits, now, &w);
    for (guint i = 0; i < w.n_granted; i++)
        granted -= w.granted[i].n;
    assert_int_equal(granted, 0);
    assert_false(w.granted_partial);
}

static void test_limits_that_come_later(void **state)
{
    Fixture *f = *state;
    begin(f, 0, 0, 50, "{}", 0);
    assert_int_equal(take(f, 20, 100), 20);
    limit(f, 30, 1000, 50, 200);
    assert_int_equal(take(f, 1, 1100), 0);
    assert_int_equal(take(f, 99, 1101), 30);
    limit(f, 30, 1000, 0, 1200);
    limit(f, 1000, 1000, 51, 1300);
    assert_int_equal(take(f, 99, 1300), 1); /* fifty are out */
}

static void test_forgets_the_oldest_that_nobody_counts(void **state)
{
    Fixture *f = *state;
    begin(f, 0, 0, 0, "{}", 0);
    assert_int_equal(take(f, 1, 0), 1);
    guint64 first = f->ids[0];
    for (guint n = 0; n < LH_PERMITS_LOOSE; n += 100)
        assert_int_equal(take(f, 100, 5), 100);
    assert_int_equal(lh_permits_in_use(f->permits, 5), LH_PERMITS_LOOSE);
    assert_false(lh_permits_return(f->permits, "s", first, 5));
    assert_true(lh_permits_return(f->permits, "s", f->ids[0], 5));
    limit(f, 0, 0, 1000000, 10);
    assert_int_equal(take(f, 1, LH_PERMIT_LIFE_MS), 0); /* one that is out is not known */
    assert_int_equal(take(f, 1, LH_PERMIT_LIFE_MS + 1), 1);
}

static void take_back(const char *seed, guint64 id, gpointer data)
{
    g_string_append_printf(data, "%s:%" G_GINT64_MODIFIER "x ", seed, id);
}

static void test_takes_back_from_a_worker(void **state)
{
    Fixture *f = *state;
    guint64 a[3], b[1], none[1];
    begin(f, 100, 1000, 5, "{}", 0);
    assert_int_equal(lh_permits_take(f->permits, "s", "w-1", 2, 1, a, &f->retry_ms), 2);
    assert_int_equal(lh_permits_take(f->permits, "s", "w-2", 1, 2, b, &f->retry_ms), 1);
    assert_int_equal(lh_permits_take(f->permits, "t", "w-1", 1, 3, a + 2, &f->retry_ms), 1);
    assert_int_equal(lh_permits_take(f->permits, "t", NULL, 1, 3, none, &f->retry_ms), 1);
    assert_true(lh_permits_return(f->permits, "s", a[0], 4));
    g_autoptr(GString) got = g_string_new(NULL);
    assert_int_equal(lh_permits_take_back(f->permits, "w-1", 5, take_back, got), 2);
    g_autofree char *want = g_strdup_printf("s:%" G_GINT64_MODIFIER "x t:%" G_GINT64_MODIFIER "x ",
                                            a[1], a[2]);
    assert_string_equal(got->str, want);
    assert_int_equal(lh_permits_take_back(f->permits, "w-1", 5, take_back, got), 0);
    assert_int_equal(lh_permits_in_use(f->permits, 5), 2);
    assert_false(lh_permits_return(f->permits, "s", a[1], 5));
    assert_int_equal(take(f, 9, 6), 3);
}

static void test_time_does_not_go_back(void **state)
{
    Fixture *f = *state;
    begin(f, 2, 1000, 0, "{}", 5000);
    assert_int_equal(take(f, 2, 5000), 2);
    assert_int_equal(take(f, 2, 3000), 0);
    assert_int_equal(f->retry_ms, 1001);
    assert_int_equal(take(f, 2, 6001), 2);
}

static void test_what_may_have_been_granted_besides(void **state)
{
    Fixture *f = *state;
    LhWindow w;
    begin(f, 10, 1000, 10, "{}", 0);
    assert_int_equal(take(f, 2, 100), 2);
    assert_true(lh_window_parse("{\"granted\":[[150,3],[20,1]],\"held\":[[150,4]]}", &w, NULL));
    lh_permits_add(f->permits, &w, 200);
    assert_int_equal(lh_permits_in_use(f->permits, 200), 6);
    assert_int_equal(take(f, 99, 200), 4); /* 10 less 2, 3, 1; slots 10 less 2, 4 */
    assert_int_equal(f->retry_ms, 50 + LH_PERMIT_LIFE_MS + 1 - 200);
    lh_permits_add(f->permits, NULL, 300);
    assert_int_equal(take(f, 1, 300 + LH_PERMIT_LIFE_MS), 0);
    assert_int_equal(take(f, 99, 301 + LH_PERMIT_LIFE_MS), 10);
}

/* ---- by the checker ---- */

typedef struct {
    gint64 us;       /* true time */
    gint64 ended_us; /* returned then; -1: not */
    guint64 id;
    guint holder;
} Given;

typedef struct {
    GRand *rand;
    gint64 us;
    GArray *given; /* of Given */
    LhPermits *permits;
    LhPermitLimits limits;
    gint64 clock_us; /* the holder's clock is so much ahead of true time */
    guint holder;
    gboolean precise; /* one holder since the beginning, one policy, exact times */
} World;

static gint64 clock_ms(const World *w)
{
    return (w->us + w->clock_us) / 1000;
}

/* Of true time: those of the last period, the present instant included. */
static gint64 in_window(const World *w, gint64 period_us)
{
    gint64 n = 0;
    for (guint i = w->given->len;
         i-- > 0 && g_array_index(w->given, Given, i).us >= w->us - period_us;)
        n++;
    return n;
}

static gint64 out(const World *w)
{
    gint64 n = 0;
    for (guint i = w->given->len; i-- > 0;) {
        const Given *g = &g_array_index(w->given, Given, i);
        if (g->us < w->us - LH_PERMIT_LIFE_MS * 1000)
            break;
        if (g->ended_us < 0)
            n++;
    }
    return n;
}

static void check(const World *w)
{
    if (w->limits.requests > 0)
        assert_true(in_window(w, w->limits.period_ms * 1000) <= w->limits.requests);
    if (w->limits.max_concurrent > 0)
        assert_true(out(w) <= w->limits.max_concurrent);
}

static LhPermitLimits random_limits(World *w)
{
    static const gint64 periods[] = {1, 20, 300, 1000, 7000, 60000};
    static const gint64 requests[] = {1, 2, 7, 40, 300, 20000};
    LhPermitLimits limits = {0};
    if (g_rand_int_range(w->rand, 0, 6) > 0) {
        limits.requests = requests[g_rand_int_range(w->rand, 0, G_N_ELEMENTS(requests))];
        limits.period_ms = periods[g_rand_int_range(w->rand, 0, G_N_ELEMENTS(periods))];
    }
    if (g_rand_int_range(w->rand, 0, 3) == 0)
        limits.max_concurrent = g_rand_int_range(w->rand, 1, 200);
    return limits;
}

static void new_holder(World *w, const LhWindow *window)
{
    lh_permits_free(w->permits);
    w->clock_us = g_rand_int_range(w->rand, 0, 2000000000);
    w->holder++;
    w->permits = lh_permits_new(&w->limits, window, clock_ms(w), next_random, w->rand);
}

static void pass(World *w)
{
    static const gint32 most_us[] = {300, 3000, 50000, 900000, 9000000};
    gint32 most = most_us[g_rand_int_range(w->rand, 0, G_N_ELEMENTS(most_us))];
    w->us += g_rand_int_range(w->rand, 0, most);
}

static void give(World *w, guint n)
{
    guint64 ids[LH_PERMITS_AT_ONCE];
    gint64 retry_ms = -1;
    gint64 allowed = n;
    if (w->precise && w->limits.requests > 0) /* by the holder's clock, which cuts off */
        allowed = MIN(allowed, w->limits.requests - in_window(w, (w->us + w->clock_us) % 1000 +
                                                                     w->limits.period_ms * 1000));
    guint granted = lh_permits_take(w->permits, "s", NULL, n, clock_ms(w), ids, &retry_ms);
    for (guint i = 0; i < granted; i++) {
        const Given g = {.us = w->us, .ended_us = -1, .id = ids[i], .holder = w->holder};
        g_array_append_val(w->given, g);
    }
    assert_true(granted <= n);
    assert_true(retry_ms >= 0);
    if (w->precise && w->limits.max_concurrent == 0)
        assert_true(granted >= allowed);
    if (granted > 0) /* a policy with less than what is out already grants nothing */
        check(w);
    if (granted < n) {
        assert_true(retry_ms > 0);
        /* Not sooner than it says, and then. */
        gint64 keep_us = w->us, due_us = w->us + retry_ms * 1000;
        gint64 again_ms;
        w->us = due_us - 1000;
        assert_int_equal(lh_permits_take(w->permits, "s", NULL, 1, clock_ms(w), ids, &again_ms), 0);
        w->us = due_us;
        if (g_rand_int_range(w->rand, 0, 4) == 0)
            give(w, 1);
        assert_true(w->us >= keep_us);
    }
}

static void give_back(World *w)
{
    if (w->given->len == 0)
        return;
    Given *g = &g_array_index(
        w->given, Given,
        w->given->len - 1 - (guint)g_rand_int_range(w->rand, 0, MIN((gint32)w->given->len, 300)));
    gboolean known = lh_permits_return(w->permits, "s", g->id, clock_ms(w));
    if (g->holder != w->holder || g->ended_us >= 0)
        assert_false(known);
    else if (g->us > w->us - (LH_PERMIT_LIFE_MS - 2) * 1000)
        assert_true(known);
    if (known)
        g->ended_us = w->us;
}

static void hand_over(World *w)
{
    LhWindow window, read;
    lh_permits_window(w->permits, clock_ms(w), &window);
    g_autofree char *text = lh_window_print(&window);
    assert_true(lh_window_parse(text, &read, NULL));
    assert_memory_equal(&read, &window, sizeof window);
    pass(w);
    if (g_rand_int_range(w->rand, 0, 3) == 0)
        w->limits = random_limits(w); /* edited in between */
    new_holder(w, &read);
}

static void run_world(guint32 seed)
{
    World w = {.rand = g_rand_new_with_seed(seed), .us = 1000000};
    w.given = g_array_new(FALSE, FALSE, sizeof(Given));
    w.limits = random_limits(&w);
    const LhWindow nothing = {0};
    new_holder(&w, &nothing);
    w.precise = w.limits.requests <= LH_PERMITS_EXACT;
    gboolean calm = seed % 3 == 0;
    for (guint step = 0; step < 400; step++) {
        pass(&w);
        gint32 what = g_rand_int_range(w.rand, 0, calm ? 90 : 100);
        if (what < 75)
            give(&w, (guint)g_rand_int_range(w.rand, 1, what < 40 ? 5 : LH_PERMITS_AT_ONCE + 1));
        else if (what < 90)
            give_back(&w);
        else
            w.precise = FALSE;
        if (what >= 98)
            new_holder(&w, NULL); /* the one before has crashed */
        else if (what >= 95)
            hand_over(&w);
        else if (what >= 90) {
            w.limits = random_limits(&w);
            lh_permits_limit(w.permits, &w.limits, clock_ms(&w));
        }
    }
    lh_permits_free(w.permits);
    g_array_unref(w.given);
    g_rand_free(w.rand);
}

static void test_never_too_many(void **state)
{
    (void)state;
    for (guint32 seed = 0; seed < 1500; seed += every())
        run_world(seed);
}

/* Many requests: times are rounded, and the rate is nearly what it may be. */
static void test_coarse_times_waste_little(void **state)
{
    Fixture *f = *state;
    begin(f, 200000, 60000, 0, "{}", 0);
    gint64 granted = 0, now = 0;
    while (now < 300000) {
        guint n = take(f, 100, now);
        granted += n;
        if (n == 0)
            now += f->retry_ms;
    }
    assert_in_range(granted, 200000 * 5 * 99 / 100, 200000 * 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_slides, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ids_are_new, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ids_are_drawn_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quiet_without_a_window, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quiet_is_handed_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hand_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fewer_and_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_longer_period_remembers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_ring_forgets_nothing_that_counts, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_limits_that_come_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forgets_the_oldest_that_nobody_counts, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_takes_back_from_a_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(test_time_does_not_go_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_may_have_been_granted_besides, setup, teardown),
        cmocka_unit_test(test_never_too_many),
        cmocka_unit_test_setup_teardown(test_coarse_times_waste_little, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The window of a policy: what is read and refused, and that fitting it into few pairs never forgets.
 */
#include "api/window.h"
#include "base/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_reads_what_it_prints(void **state)
{
    static const char *const texts[] = {
        "{}",
        "{\"granted\":[[61000,3],[250,40],[0,1]]}",
        "{\"granted\":[[5,1]],\"held\":[[5,1],[3,2]]}",
        "{\"grantedKnown\":0}",
        "{\"granted\":[[5,1]],\"held\":[[5,1]],\"grantedKnown\":60001,\"heldKnown\":3}",
        "{\"held\":[[9007199254740991,9007199254740991]]}",
    };
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
        LhWindow window;
        assert_true(lh_window_parse(texts[i], &window, NULL));
        g_autofree char *again = lh_window_print(&window);
        assert_string_equal(again, texts[i]);
    }
}

static void test_keeps_the_numbers(void **state)
{
    LhWindow w;
    (void)state;
    assert_true(
        lh_window_parse(" {\"held\": [[70, 2]], \"granted\": [[90, 1], [70, 4]]} ", &w, NULL));
    assert_int_equal(w.n_granted, 2);
    assert_int_equal(w.granted[0].age_ms, 90);
    assert_int_equal(w.granted[0].n, 1);
    assert_int_equal(w.granted[1].age_ms, 70);
    assert_int_equal(w.granted[1].n, 4);
    assert_int_equal(w.n_held, 1);
    assert_int_equal(w.held[0].age_ms, 70);
    assert_int_equal(w.held[0].n, 2);
}

static void test_refuses_what_it_does_not_understand(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "window: JSON"},
        {"[]", "window: must be an object"},
        {"null", "window: must be an object"},
        {"{\"granted\":{}}", "window.granted: must be an array"},
        {"{\"granted\":null}", "window.granted: must be an array"},
        {"{\"given\":[]}", "window: an unknown field \"given\""},
        {"{\"granted\":[],\"granted\":[]}", "twice"},
        {"{\"grantedKnown\":-1}", "window.grantedKnown: must be an integer of 0 or more"},
        {"{\"heldKnown\":null}", "window.heldKnown: must be an integer of 0 or more"},
        {"{\"granted\":[7]}", "window.granted[0]: must be [age in ms, number]"},
        {"{\"granted\":[[7]]}", "window.granted[0]: must be"},
        {"{\"granted\":[[7,1,1]]}", "window.granted[0]: must be"},
        {"{\"held\":[[9,1],[-1,1]]}", "window.held[1][0]: must be an integer of 0 or more"},
        {"{\"held\":[[1.5,1]]}", "window.held[0][0]: must be an integer"},
        {"{\"held\":[[\"1\",1]]}", "window.held[0][0]: must be an integer"},
        {"{\"held\":[[1,0]]}", "window.held[0][1]: must be an integer of 1 or more"},
        {"{\"held\":[[1,9007199254740992]]}", "window.held[0][1]: must be an integer"},
        {"{\"held\":[[1,1],[2,1]]}", "window.held[1][0]: must be less than the age before it"},
        {"{\"held\":[[1,1],[1,1]]}", "window.held[1][0]: must be less than the age before it"},
    };
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        LhWindow window;
        memset(&window, 7, sizeof window);
        const LhWindow before = window;
        g_autoptr(GError) error = NULL;
        assert_false(lh_window_parse(cases[i].text, &window, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        if (strstr(error->message, cases[i].why) == NULL)
            fail_msg("%s: %s", cases[i].text, error->message);
        assert_memory_equal(&window, &before, sizeof window);
    }
}

static void test_refuses_too_much(void **state)
{
    (void)state;
    for (guint n = LH_WINDOW_PAIRS; n <= LH_WINDOW_PAIRS + 1; n++) {
        g_autoptr(GString) text = g_string_new("{\"held\":[");
        for (guint i = 0; i < n; i++)
            g_string_append_printf(text, "%s[%u,1]", i > 0 ? "," : "", n - i);
        g_string_append(text, "]}");
        LhWindow window;
        assert_int_equal(lh_window_parse(text->str, &window, NULL), n <= LH_WINDOW_PAIRS);
    }
    g_autofree char *spaces = g_strnfill(LH_WINDOW_MAX_BYTES, ' ');
    g_autofree char *long_text = g_strconcat("{}", spaces, NULL);
    LhWindow window;
    assert_false(lh_window_parse(long_text, &window, NULL));
}

/* How many of @pairs are at most @age old. */
static gint64 younger(const LhWindowPair *pairs, gsize n, gint64 age)
{
    gint64 sum = 0;
    for (gsize i = 0; i < n; i++)
        if (pairs[i].age_ms <= age)
            sum += pairs[i].n;
    return sum;
}

static void check_fit(const LhWindowPair *pairs, gsize n)
{
    LhWindowPair out[LH_WINDOW_PAIRS];
    guint m = lh_window_fit(pairs, n, out);
    assert_in_range(m, n > 0 ? 1 : 0, LH_WINDOW_PAIRS);
    for (guint i = 1; i < m; i++)
        assert_true(out[i].age_ms < out[i - 1].age_ms);
    gint64 span = n > 0 ? pairs[0].age_ms - pairs[n - 1].age_ms : 0;
    gint64 slack = span / LH_WINDOW_PAIRS;
    for (gsize i = 0; i < n; i++) {
        gint64 age = pairs[i].age_ms;
        /* At no time less is counted than was granted, nor, a little later, more. */
        assert_true(younger(out, m, age) >= younger(pairs, n, age));
        assert_true(younger(out, m, age) <= younger(pairs, n, age + slack));
    }
    assert_true(younger(out, m, G_MAXINT64) == younger(pairs, n, G_MAXINT64));
}

static void test_fits_without_forgetting(void **state)
{
    (void)state;
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    check_fit(NULL, 0);
    for (guint round = 0; round < 2000; round++) {
        LhWindowPair pairs[300];
        gsize n = (gsize)g_rand_int_range(rand, 1, G_N_ELEMENTS(pairs) + 1);
        gint64 age = g_rand_int_range(rand, 0, 5);
        int gap = g_rand_int_range(rand, 1, 1 << g_rand_int_range(rand, 1, 20));
        for (gsize i = n; i-- > 0;) {
            pairs[i] = (LhWindowPair){.age_ms = age, .n = g_rand_int_range(rand, 1, 9)};
            age += g_rand_int_range(rand, 0, gap + 1);
        }
        check_fit(pairs, n);
    }
}

static void test_few_ages_stay_exact(void **state)
{
    LhWindowPair pairs[2 * LH_WINDOW_PAIRS], out[LH_WINDOW_PAIRS];
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(pairs); i++)
        pairs[i] = (LhWindowPair){.age_ms = 1000000 - (gint64)(i / 2) * (i / 2), .n = 1};
    assert_int_equal(lh_window_fit(pairs, G_N_ELEMENTS(pairs), out), LH_WINDOW_PAIRS);
    for (guint i = 0; i < LH_WINDOW_PAIRS; i++) {
        assert_int_equal(out[i].age_ms, pairs[2 * i].age_ms);
        assert_int_equal(out[i].n, 2);
    }
}

static void test_quiet(void **state)
{
    (void)state;
    assert_int_equal(lh_window_quiet_ms(0, 0, 0), 0);
    assert_int_equal(lh_window_quiet_ms(100, 2000, 0), 2000);
    assert_int_equal(lh_window_quiet_ms(100, 2000, 5), LH_PERMIT_LIFE_MS);
    assert_int_equal(lh_window_quiet_ms(100, 120000, 5), 120000);
    assert_int_equal(lh_window_quiet_ms(0, 0, 5), LH_PERMIT_LIFE_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_it_prints),
        cmocka_unit_test(test_keeps_the_numbers),
        cmocka_unit_test(test_refuses_what_it_does_not_understand),
        cmocka_unit_test(test_refuses_too_much),
        cmocka_unit_test(test_fits_without_forgetting),
        cmocka_unit_test(test_few_ages_stay_exact),
        cmocka_unit_test(test_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

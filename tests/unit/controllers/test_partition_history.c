/*
 * How a change goes into a plan's history: examples, then random changes and clocks, after each of which the
 * history is without gap or overlap, the past is what it was, and at most one interval has not begun.
 */
#include "controllers/partition_history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE G_GINT64_CONSTANT(60000)
#define T0     G_GINT64_CONSTANT(1700000000000)

static const char *const none[] = {NULL};
static const char *const ab[] = {"a", "b", NULL};
static const char *const bc[] = {"b", "c", NULL};
static const char *const cb[] = {"c", "b", NULL};
static const char *const d[] = {"d", NULL};

static const LhPartitionTimes at_t0 = {T0, 15 * MINUTE, 60 * MINUTE};

static LhArray array_of(const GArray *history)
{
    return (LhArray){history->len, sizeof(LhPartitionInterval), history->data};
}

/* "0-15:a,b 15-:b,c" in minutes after T0. */
static char *text_of(const GArray *history)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < history->len; i++) {
        const LhPartitionInterval *at = &g_array_index(history, LhPartitionInterval, i);
        g_autofree char *names = g_strjoinv(",", (GStrv)at->partitions);
        g_string_append_printf(text, "%s%d-", i == 0 ? "" : " ", (int)((at->start - T0) / MINUTE));
        if (at->end >= 0)
            g_string_append_printf(text, "%d", (int)((at->end - T0) / MINUTE));
        g_string_append_printf(text, ":%s", names);
    }
    return g_string_free(text, FALSE);
}

static GArray *change(GArray *history, const char *const *partitions, gint64 minute)
{
    LhArray present = array_of(history);
    LhPartitionTimes times = at_t0;
    GArray *next;

    times.now_ms = T0 + minute * MINUTE;
    next = lh_partition_history(&present, partitions, &times);
    g_array_unref(history);
    return next;
}

static void assert_text(const GArray *history, const char *expected)
{
    g_autofree char *text = text_of(history);

    assert_string_equal(text, expected);
}

static void test_examples(void **state)
{
    GArray *history = lh_partition_history(NULL, ab, &at_t0);

    (void)state;
    assert_text(history, "0-:a,b");
    history = change(history, bc, 10);
    assert_text(history, "0-25:a,b 25-:b,c");
    history = change(history, d, 12); /* has not begun: replaced */
    assert_text(history, "0-27:a,b 27-:d");
    history = change(history, ab, 20); /* as it was */
    assert_text(history, "0-:a,b");
    history = change(history, cb, 20);
    history = change(history, bc, 50); /* the same ones */
    assert_text(history, "0-35:a,b 35-:c,b");
    history = change(history, none, 50);
    assert_text(history, "0-35:a,b 35-65:c,b 65-:");
    history = change(history, ab, 100); /* the first ended 65 minutes ago */
    assert_text(history, "35-65:c,b 65-115: 115-:a,b");
    g_array_unref(history);
}

/* Another's clock may be ahead: what begins within the margin counts as begun. */
static void test_margin(void **state)
{
    GArray *history = change(lh_partition_history(NULL, ab, &at_t0), bc, 0);
    LhPartitionTimes times = {T0 + 14 * MINUTE, 15 * MINUTE, 60 * MINUTE};
    LhArray present = array_of(history);
    GArray *next = lh_partition_history(&present, d, &times);

    (void)state;
    assert_text(next, "0-15:a,b 15-29:b,c 29-:d");
    g_array_unref(next);
    times.now_ms -= 1;
    next = lh_partition_history(&present, d, &times);
    assert_int_equal(next->len, 2);
    g_array_unref(next);
    /* However far the clock goes back, what lies before the last interval has begun. */
    times.now_ms = T0 - 100 * MINUTE;
    next = lh_partition_history(&present, d, &times);
    assert_int_equal(next->len, 2);
    assert_int_equal(g_array_index(next, LhPartitionInterval, 0).start, T0);
    assert_int_equal(g_array_index(next, LhPartitionInterval, 1).start, T0 + 1);
    g_array_unref(next);
    g_array_unref(history);
    assert_int_equal(lh_partition_margin_ms(15 * MINUTE), MINUTE);
    assert_int_equal(lh_partition_margin_ms(0), 0);
}

static void assert_history(const GArray *history, gint64 now_ms, gint64 cutover_ms)
{
    guint coming = 0;

    assert_true(history->len > 0);
    for (guint i = 0; i < history->len; i++) {
        const LhPartitionInterval *at = &g_array_index(history, LhPartitionInterval, i);
        const LhPartitionInterval *next = at + 1;
        coming += at->start > now_ms + lh_partition_margin_ms(cutover_ms);
        if (i + 1 == history->len) {
            assert_int_equal(at->end, -1);
        } else {
            assert_int_equal(at->end, next->start);
            assert_true(at->end > at->start);
            assert_false(lh_partition_same(at->partitions, next->partitions));
        }
    }
    assert_true(coming <= 1);
}

/* All that lay before @now_ms is as it was. */
static void assert_past(const GArray *before, const GArray *after, gint64 now_ms)
{
    guint skip = 0;

    while (skip < before->len && g_array_index(before, LhPartitionInterval, skip).start !=
                                     g_array_index(after, LhPartitionInterval, 0).start)
        skip++;
    assert_true(skip < before->len);
    for (guint i = skip; i < before->len; i++) {
        const LhPartitionInterval *was = &g_array_index(before, LhPartitionInterval, i), *is;
        if (was->start > now_ms)
            break;
        assert_true(i - skip < after->len);
        is = &g_array_index(after, LhPartitionInterval, i - skip);
        assert_int_equal(was->start, is->start);
        assert_ptr_equal(was->partitions, is->partitions);
        if (was->end >= 0 && was->end <= now_ms)
            assert_int_equal(was->end, is->end);
        else
            assert_true(is->end < 0 || is->end >= now_ms);
    }
}

static void test_random_changes(void **state)
{
    static const char *const *const sets[] = {none, ab, bc, d};
    guint dropped = 0, replaced = 0, stacked = 0;

    (void)state;
    for (guint32 seed = 0; seed < 500; seed++) {
        g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
        LhPartitionTimes times = {T0, g_rand_int_range(rand, 0, 20) * MINUTE,
                                  g_rand_int_range(rand, 1, 200) * MINUTE};
        GArray *history = NULL;
        for (int step = 0; step < 60; step++) {
            LhArray present = {0, sizeof(LhPartitionInterval), NULL};
            GArray *next;
            times.now_ms += g_rand_int_range(rand, 0, 20 * MINUTE);
            if (history != NULL)
                present = array_of(history);
            next = lh_partition_history(&present, sets[g_rand_int_range(rand, 0, 4)], &times);
            assert_history(next, times.now_ms, times.cutover_ms);
            if (history != NULL) {
                const LhPartitionInterval *last = &g_array_index(next, LhPartitionInterval,
                                                                 next->len - 1);
                assert_past(history, next, times.now_ms);
                dropped += next->len < history->len;
                stacked += next->len > history->len;
                replaced += next->len == history->len &&
                            last->start !=
                                g_array_index(history, LhPartitionInterval, history->len - 1).start;
                g_array_unref(history);
            }
            history = next;
        }
        g_array_unref(history);
    }
    assert_true(dropped > 500);
    assert_true(replaced > 500);
    assert_true(stacked > 2000);
}

/* However often it changes and however long names are, it fits into a value, and can be read. */
static void test_bounded(void **state)
{
    g_autofree char *long_name = g_strnfill(250, 'x');
    const char *many[101] = {NULL}, *others[101] = {NULL};
    LhPartitionTimes times = {T0, MINUTE, G_MAXINT32};
    GArray *history = NULL;

    (void)state;
    for (int i = 0; i < 100; i++)
        many[i] = others[i] = long_name;
    others[99] = "y";
    assert_true(lh_partition_interval_bytes(many) < LH_PARTITION_INTERVAL_MAX);
    for (int i = 0; i < 5; i++) {
        LhArray present = {0, sizeof(LhPartitionInterval), NULL};
        LhPartitionPlan plan = {.history = &present};
        GArray *next;
        g_autofree char *json = NULL;
        g_autoptr(LhObject) read = NULL;
        if (history != NULL)
            present = array_of(history);
        times.now_ms += 2 * MINUTE;
        next = lh_partition_history(&present, i % 2 == 0 ? many : others, &times);
        present = array_of(next);
        json = lh_object_print(LH_KIND_PARTITIONPLAN, &plan);
        read = lh_object_parse(LH_KIND_PARTITIONPLAN, "s", json, strlen(json), 1, 1, 0);
        if (!lh_object_known(read))
            fail_msg("%s", lh_object_error(read));
        assert_true(strlen(json) < 64 * 1024);
        assert_int_equal(next->len, MIN(i + 1, 2));
        if (history != NULL)
            g_array_unref(history);
        history = next;
    }
    g_array_unref(history);
}

static void test_same(void **state)
{
    (void)state;
    assert_true(lh_partition_same(bc, cb));
    assert_false(lh_partition_same(ab, bc));
    assert_false(lh_partition_same(ab, d));
    assert_true(lh_partition_same(none, none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),       cmocka_unit_test(test_margin),
        cmocka_unit_test(test_random_changes), cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_same),
    };

    return cmocka_run_group_tests_name("partition_history", tests, NULL, NULL);
}

/*
 * agent/orders: every combination of phase, input and want is decided by exactly one named row, no row
 * is dead, and what the protocol promises holds for all of them.
 */
#include "agent/orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    LhPhase phase;
    LhInput input;
    LhWant want;
} Combination;

static const LhOrderRule *fires(const Combination *c)
{
    for (const LhOrderRule *rule = lh_order_rules; rule->id != NULL; rule++) {
        if ((rule->phases >> c->phase & 1) && (rule->inputs >> c->input & 1) &&
            (rule->wants >> c->want & 1))
            return rule;
    }
    return NULL;
}

static void each(void (*check)(const Combination *c, const LhOrderRule *rule, gpointer data),
                 gpointer data)
{
    Combination c;
    for (c.phase = 0; c.phase < LH_N_PHASES; c.phase++)
        for (c.input = 0; c.input < LH_N_INPUTS; c.input++)
            for (c.want = 0; c.want < LH_N_WANTS; c.want++)
                check(&c, fires(&c), data);
}

static void count(const Combination *c, const LhOrderRule *rule, gpointer data)
{
    (void)c;
    guint *counts = data;
    assert_non_null(rule);
    counts[rule - lh_order_rules]++;
}

static void every_combination_has_one_row_and_no_row_is_dead(void **state)
{
    (void)state;
    guint counts[64] = {0};
    each(count, counts);
    guint sum = 0;
    for (guint i = 0; lh_order_rules[i].id != NULL; i++) {
        if (counts[i] == 0)
            fail_msg("row %s never fires", lh_order_rules[i].id);
        sum += counts[i];
    }
    assert_int_equal(sum, LH_N_PHASES * LH_N_INPUTS * LH_N_WANTS);
}

/* But for the catch-all, rows do not overlap: their order does not matter. */
static void overlaps(const Combination *c, const LhOrderRule *rule, gpointer data)
{
    (void)data;
    guint n = 0;
    for (const LhOrderRule *other = lh_order_rules; other->id != NULL; other++) {
        n += (other->phases >> c->phase & 1) && (other->inputs >> c->input & 1) &&
             (other->wants >> c->want & 1);
    }
    if (n != 1 + (strcmp(rule->id, "late") != 0))
        fail_msg("phase %s input %u want %u: %u rows fit", lh_phase_name(c->phase), c->input,
                 c->want, n);
}

static void rows_do_not_overlap(void **state)
{
    (void)state;
    each(overlaps, NULL);
}

static LhOrder in_phase(const Combination *c)
{
    return (LhOrder){.phase = c->phase, .want = c->want, .told = LH_ITEM_EVICTED, .order_rev = 7};
}

static void promises(const Combination *c, const LhOrderRule *rule, gpointer data)
{
    (void)rule;
    (void)data;
    LhOrder o = in_phase(c);
    guint acts;
    if (c->input == LH_IN_ORDER) {
        acts = lh_order_want(&o, c->want, 8);
        assert_int_equal(o.order_rev, 8);
    } else {
        acts = lh_order_input(&o, c->input);
    }
    gboolean was_served = lh_order_served(&(LhOrder){.phase = c->phase});
    gboolean served = lh_order_served(&o);
    /* Readers come only with "ready", or stay; they go only by hiding and grace, or with the data. */
    if (served && !was_served)
        assert_true(c->phase == LH_PHASE_LOADING && c->input == LH_IN_READY);
    if (!served && was_served)
        assert_true(c->input == LH_IN_GRACE_OVER || c->input == LH_IN_FAILED ||
                    c->input == LH_IN_FINISHED);
    /* The work is released once for each time it held something, and never loads over itself. */
    if (acts & LH_ACT_RELEASE)
        assert_true(o.phase == LH_PHASE_RELEASING && c->phase != LH_PHASE_RELEASING);
    if (acts & LH_ACT_LOAD)
        assert_true(c->phase == LH_PHASE_NONE || c->phase == LH_PHASE_TOLD ||
                    c->input == LH_IN_RELEASED);
    /* What changes what is known is said. */
    if (o.phase != c->phase && o.phase != LH_PHASE_NONE && c->phase != LH_PHASE_NONE &&
        lh_order_state(&o) !=
            lh_order_state(&(LhOrder){.phase = c->phase, .told = LH_ITEM_EVICTED}))
        assert_true(acts & (LH_ACT_SAY | LH_ACT_RELEASE));
    /* An order is always answered: by a write at once, or by the release that it starts. */
    if (c->input == LH_IN_ORDER)
        assert_true(acts & (LH_ACT_SAY | LH_ACT_ERASE | LH_ACT_RELEASE));
    /* "evicted" only when nothing is held. */
    if (o.phase == LH_PHASE_TOLD && o.told == LH_ITEM_EVICTED && c->phase != LH_PHASE_TOLD)
        assert_true(c->phase == LH_PHASE_NONE || c->input == LH_IN_RELEASED);
}

static void promises_hold_everywhere(void **state)
{
    (void)state;
    each(promises, NULL);
}

static void old_orders_are_ignored(const Combination *c, const LhOrderRule *rule, gpointer data)
{
    (void)rule;
    (void)data;
    for (gint64 rev = 6; rev <= 7; rev++) {
        LhOrder o = in_phase(c);
        const LhOrder before = o;
        assert_int_equal(lh_order_want(&o, LH_WANT_EVICTED, rev), 0);
        assert_memory_equal(&o, &before, sizeof o);
    }
}

static void each_order_counts_once(void **state)
{
    (void)state;
    each(old_orders_are_ignored, NULL);
}

static void a_whole_life(void **state)
{
    (void)state;
    LhOrder o = {0};
    assert_int_equal(lh_order_want(&o, LH_WANT_HELD, 5), LH_ACT_LOAD | LH_ACT_SAY);
    assert_int_equal(lh_order_state(&o), LH_ITEM_LOADING);
    assert_int_equal(lh_order_input(&o, LH_IN_READY), LH_ACT_SAY);
    assert_int_equal(lh_order_state(&o), LH_ITEM_LIVE);
    assert_int_equal(lh_order_input(&o, LH_IN_SAID), 0);
    assert_int_equal(o.phase, LH_PHASE_LIVE);
    assert_int_equal(lh_order_want(&o, LH_WANT_EVICTED, 6), LH_ACT_SAY);
    assert_int_equal(lh_order_state(&o), LH_ITEM_EVICTING);
    assert_true(lh_order_served(&o));
    assert_int_equal(lh_order_input(&o, LH_IN_SAID), LH_ACT_GRACE);
    assert_int_equal(lh_order_input(&o, LH_IN_GRACE_OVER), LH_ACT_RELEASE);
    assert_false(lh_order_served(&o));
    assert_int_equal(lh_order_input(&o, LH_IN_RELEASED), LH_ACT_SAY);
    assert_int_equal(lh_order_state(&o), LH_ITEM_EVICTED);
    assert_int_equal(o.assignment, 6);
    assert_int_equal(lh_order_want(&o, LH_WANT_GONE, 9), LH_ACT_ERASE);
    assert_int_equal(o.phase, LH_PHASE_NONE);
}

static void a_load_is_cancelled(void **state)
{
    (void)state;
    LhOrder o = {0};
    lh_order_want(&o, LH_WANT_HELD, 5);
    assert_int_equal(lh_order_want(&o, LH_WANT_EVICTED, 6), LH_ACT_RELEASE);
    assert_int_equal(lh_order_input(&o, LH_IN_READY), 0); /* too late */
    assert_int_equal(lh_order_input(&o, LH_IN_RELEASED), LH_ACT_SAY);
    assert_int_equal(lh_order_state(&o), LH_ITEM_EVICTED);
}

static void the_newest_want_decides_after_a_release(void **state)
{
    (void)state;
    LhOrder o = {0};
    lh_order_want(&o, LH_WANT_HELD, 5);
    lh_order_want(&o, LH_WANT_EVICTED, 6);
    lh_order_want(&o, LH_WANT_HELD, 7);
    assert_int_equal(o.phase, LH_PHASE_RELEASING);
    assert_int_equal(lh_order_input(&o, LH_IN_RELEASED), LH_ACT_LOAD | LH_ACT_SAY);
    assert_int_equal(o.assignment, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_has_one_row_and_no_row_is_dead),
        cmocka_unit_test(rows_do_not_overlap),
        cmocka_unit_test(promises_hold_everywhere),
        cmocka_unit_test(each_order_counts_once),
        cmocka_unit_test(a_whole_life),
        cmocka_unit_test(a_load_is_cancelled),
        cmocka_unit_test(the_newest_want_decides_after_a_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

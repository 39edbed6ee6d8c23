/* The least number of seeds that move when a manager joins: against fleets of which it is known. */
#include "crawl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* @sizes of policies on each manager, ended by 0; @single: seeds without one on each. */
static CrawlHeld *held_of(guint managers, guint single, const guint sizes[][4])
{
    CrawlHeld *held = crawl_held_new(managers);

    for (guint i = 0; i < managers; i++) {
        held->free[i] = single;
        for (guint g = 0; sizes[i][g] > 0; g++) {
            CrawlGroup group = {i, sizes[i][g]};
            g_array_append_val(held->groups, group);
            held->grouped[i] += group.seeds;
        }
    }
    return held;
}

static guint least(guint managers, guint single, const guint before[][4], guint single_after,
                   const guint after[][4])
{
    CrawlHeld *was = held_of(managers, single, before);
    CrawlHeld *is = held_of(managers + 1, single_after, after);
    guint n = crawl_least(was, is);

    crawl_held_free(was);
    crawl_held_free(is);
    return n;
}

static void one_policy_of_each_size(void **state)
{
    static const guint before[2][4] = {{10, 10, 10}, {10, 10, 10}};
    static const guint after[3][4] = {{10, 10}, {10, 10}, {10, 10}};

    (void)state;
    assert_int_equal(least(2, 0, before, 0, after), 20);
}

/* The newcomer gets 6, but 8 is the least that brings the first from 16 to no more than 10. */
static void policies_are_whole(void **state)
{
    static const guint before[2][4] = {{8, 8}, {6}};
    static const guint after[3][4] = {{8}, {6}, {8}};

    (void)state;
    assert_int_equal(least(2, 0, before, 0, after), 8);
}

static void single_seeds_fill_up(void **state)
{
    static const guint none[3][4] = {{0}};

    (void)state;
    assert_int_equal(least(2, 15, none, 10, none), 10);
}

static void a_fleet_has_all_its_seeds(void **state)
{
    Crawl *crawl = crawl_new(1000, 20, 4);
    guint in_policies = 0, largest = 0;
    guint sizes[21] = {0};

    (void)state;
    for (guint i = 0; i < crawl->seeds; i++)
        sizes[crawl->policy_of[i]]++;
    for (guint p = 0; p < crawl->policies; p++) {
        in_policies += sizes[p];
        largest = MAX(largest, sizes[p]);
        assert_true(sizes[p] > 0);
    }
    assert_int_equal(in_policies + sizes[20], 1000);
    assert_int_equal(largest, 19 * sizes[0]);
    crawl_free(crawl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_policy_of_each_size),
        cmocka_unit_test(policies_are_whole),
        cmocka_unit_test(single_seeds_fill_up),
        cmocka_unit_test(a_fleet_has_all_its_seeds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

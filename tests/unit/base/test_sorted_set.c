/*
 * base/sorted_set against a sorted GPtrArray: random histories at all sizes, searches for keys that are there
 * and that are not, walks both ways; and how much room records take that come in order.
 */
#include "base/sorted_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define N_RECORDS 4000
#define STEPS     200000

static int compare(gconstpointer record, gconstpointer key)
{
    return (*(const int *)record > *(const int *)key) - (*(const int *)record < *(const int *)key);
}

/* Of the first one that is not less. */
static guint model_find(const GPtrArray *model, int key)
{
    guint at = 0, end = model->len;
    while (at < end) {
        guint middle = at + (end - at) / 2;
        if (*(const int *)g_ptr_array_index(model, middle) < key)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

static gpointer model_at(const GPtrArray *model, guint at)
{
    return at < model->len ? g_ptr_array_index(model, at) : NULL;
}

static void assert_same(const LhSortedSet *set, const GPtrArray *model)
{
    const int least = G_MININT;
    LhSortedPlace place = lh_sorted_set_find(set, &least);
    assert_int_equal(set->n, model->len);
    for (guint i = 0; i < model->len; i++)
        assert_ptr_equal(lh_sorted_set_next(set, &place), g_ptr_array_index(model, i));
    assert_null(lh_sorted_set_next(set, &place));
    assert_null(lh_sorted_set_at(set, place));
    for (guint i = model->len; i > 0; i--)
        assert_ptr_equal(lh_sorted_set_back(set, &place), g_ptr_array_index(model, i - 1));
    assert_null(lh_sorted_set_back(set, &place));
}

static void it_is_what_a_sorted_array_is(void **state)
{
    (void)state;
    GRand *rand = g_rand_new_with_seed(4);
    g_autofree int *records = g_new(int, N_RECORDS);
    g_autoptr(GPtrArray) model = g_ptr_array_new();
    LhSortedSet set;
    int next = 0;
    lh_sorted_set_init(&set, compare);
    assert_same(&set, model);
    for (int i = 0; i < N_RECORDS; i++)
        records[i] = 2 * i;
    for (guint step = 0; step < STEPS; step++) {
        gboolean grow = g_rand_int_range(rand, 0, 100) < (step / 40000 % 2 == 0 ? 75 : 25);
        /* At random, or up or down from the one before. */
        int stride = (int)(step / 1000 % 3) - 1;
        next = stride == 0 || next + stride < 0 || next + stride >= N_RECORDS
                   ? g_rand_int_range(rand, 0, N_RECORDS)
                   : next + stride;
        int *record = &records[next], odd = *record + 1;
        LhSortedPlace place = lh_sorted_set_find(&set, record);
        LhSortedPlace behind = lh_sorted_set_find(&set, &odd);
        guint at = model_find(model, *record);
        gboolean known = model_at(model, at) == record;
        assert_ptr_equal(lh_sorted_set_at(&set, place), model_at(model, at));
        assert_ptr_equal(lh_sorted_set_at(&set, behind), model_at(model, model_find(model, odd)));
        if (grow && !known) {
            place = lh_sorted_set_put(&set, place, record);
            assert_ptr_equal(lh_sorted_set_at(&set, place), record);
            g_ptr_array_insert(model, (gint)at, record);
        } else if (!grow && known) {
            lh_sorted_set_take(&set, place);
            g_ptr_array_remove_index(model, at);
        }
        if (step % 5000 == 0)
            assert_same(&set, model);
    }
    assert_same(&set, model);
    lh_sorted_set_clear(&set);
    assert_int_equal(set.n, 0);
    g_rand_free(rand);
}

/* Few blocks: a record costs little more than its pointer, in whichever order they come. */
static void blocks_are_full_enough(void **state)
{
    (void)state;
    enum { UP, DOWN, INTO_THE_MIDDLE, AT_RANDOM, SHRUNK, N_ORDERS };
    static const guint most[N_ORDERS] = {
        [UP] = 10, [DOWN] = 17, [INTO_THE_MIDDLE] = 13, [AT_RANDOM] = 13, [SHRUNK] = 30};
    const guint n = 100000;
    g_autofree int *records = g_new(int, n);
    for (guint order = 0; order < N_ORDERS; order++) {
        GRand *rand = g_rand_new_with_seed(order);
        LhSortedSet set;
        gsize bytes;
        lh_sorted_set_init(&set, compare);
        for (guint i = 0; i < n; i++) {
            records[i] = order == UP     ? (int)i
                         : order == DOWN ? -(int)i
                         : order == INTO_THE_MIDDLE
                             ? (int)(i < n / 2 ? i + (i >= n / 4 ? n : 0) : i)
                             : (int)g_rand_int(rand);
            lh_sorted_set_put(&set, lh_sorted_set_find(&set, &records[i]), &records[i]);
        }
        for (guint i = 0; order == SHRUNK && i < n / 10 * 9; i++)
            lh_sorted_set_take(&set, lh_sorted_set_find(&set, &records[i]));
        bytes = set.n_blocks * 512 / set.n;
        if (bytes >= most[order])
            fail_msg("order %u: %" G_GSIZE_FORMAT " bytes for each", order, bytes);
        lh_sorted_set_clear(&set);
        g_rand_free(rand);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_a_sorted_array_is),
        cmocka_unit_test(blocks_are_full_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

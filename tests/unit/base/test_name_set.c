/*
 * base/name_set against a GHashTable: random histories of putting and taking, at all sizes.
 */
#include "base/name_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    int before; /* the name does not come first */
    const char *name;
} Record;

#define N_NAMES 3000

static void assert_same(const LhNameSet *set, GHashTable *model)
{
    guint n = 0;
    const Record *record;
    for (gsize at = 0; (record = lh_name_set_next(set, &at)) != NULL; n++)
        assert_ptr_equal(g_hash_table_lookup(model, record->name), record);
    assert_int_equal(n, g_hash_table_size(model));
    assert_int_equal(set->n, n);
}

static void it_is_what_a_hash_table_is(void **state)
{
    (void)state;
    GRand *rand = g_rand_new_with_seed(2);
    g_autofree Record *records = g_new0(Record, 2 * N_NAMES);
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GHashTable) model = g_hash_table_new(g_str_hash, g_str_equal);
    LhNameSet set;
    lh_name_set_init(&set, offsetof(Record, name));
    assert_null(lh_name_set_get(&set, "x"));
    assert_null(lh_name_set_take(&set, "x"));
    for (guint i = 0; i < N_NAMES; i++) {
        char *name = g_strdup_printf("%.*s%u", (int)(i % 20), "a-name-of-some-length", i);
        g_ptr_array_add(names, name);
        records[i].name = records[N_NAMES + i].name = name; /* two of each name */
    }
    for (guint step = 0; step < 300000; step++) {
        /* Mostly putting, then mostly taking. */
        gboolean grow = g_rand_int_range(rand, 0, 100) < (step / 50000 % 2 == 0 ? 70 : 30);
        Record *record = &records[g_rand_int_range(rand, 0, 2 * N_NAMES)];
        gpointer known = g_hash_table_lookup(model, record->name);
        assert_ptr_equal(lh_name_set_get(&set, record->name), known);
        if (grow) {
            assert_ptr_equal(lh_name_set_put(&set, record), known);
            g_hash_table_replace(model, (gpointer)record->name, record);
        } else {
            assert_ptr_equal(lh_name_set_take(&set, record->name), known);
            g_hash_table_remove(model, record->name);
        }
        if (step % 10000 == 0)
            assert_same(&set, model);
    }
    assert_same(&set, model);
    for (guint i = 0; i < N_NAMES; i++)
        lh_name_set_take(&set, records[i].name);
    assert_int_equal(set.n, 0);
    assert_true(set.places < 64); /* its memory came back */
    lh_name_set_clear(&set);
    g_rand_free(rand);
}

static void a_name_may_be_part_of_a_text(void **state)
{
    (void)state;
    Record a = {.name = "abc"}, b = {.name = "abcd"};
    LhNameSet set;
    lh_name_set_init(&set, offsetof(Record, name));
    assert_null(lh_name_set_put(&set, &a));
    assert_null(lh_name_set_put(&set, &b));
    assert_ptr_equal(lh_name_set_get_n(&set, "abcdef", 3), &a);
    assert_ptr_equal(lh_name_set_get_n(&set, "abcdef", 4), &b);
    assert_null(lh_name_set_get_n(&set, "abcdef", 5));
    assert_null(lh_name_set_get_n(&set, "abcdef", 0));
    lh_name_set_clear(&set);
    assert_null(lh_name_set_get(&set, "abc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_a_hash_table_is),
        cmocka_unit_test(a_name_may_be_part_of_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

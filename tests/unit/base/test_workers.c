/*
 * base/workers: everything runs once, on the right thread, and nothing is forgotten when they are freed.
 */
#include "base/workers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* suite: threads */

typedef struct {
    LhWorkers *workers;
    GThread *loop;
    gint started, wrong_thread; /* atomic */
    guint delivered, dropped, order;
    gboolean free_when_delivered;
} Fixture;

typedef struct {
    Fixture *f;
    guint n;
    guint made; /* on the thread, read on the loop */
} Item;

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->workers = lh_workers_new(3);
    f->loop = g_thread_self();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_workers_free(f->workers);
    g_free(f);
    return 0;
}

static void deliver(gpointer data)
{
    Item *item = data;
    Fixture *f = item->f;
    f->wrong_thread += g_thread_self() != f->loop;
    assert_int_equal(item->made, item->n * 2);
    f->delivered++;
    g_free(item);
    if (f->free_when_delivered) {
        lh_workers_free(f->workers);
        f->workers = NULL;
    }
}

static void drop(gpointer data)
{
    ((Item *)data)->f->dropped++;
    g_free(data);
}

static void work(gpointer data)
{
    Item *item = data;
    if (g_thread_self() == item->f->loop)
        g_atomic_int_inc(&item->f->wrong_thread);
    item->made = item->n * 2;
    g_atomic_int_inc(&item->f->started);
    lh_workers_post(item->f->workers, deliver, item, drop);
}

static void give(Fixture *f, guint n)
{
    for (guint i = 0; i < n; i++) {
        Item *item = g_new0(Item, 1);
        item->f = f;
        item->n = i;
        lh_workers_run(f->workers, work, item);
    }
}

static void run_until(Fixture *f, guint delivered)
{
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (f->delivered < delivered && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(f->delivered, delivered);
    assert_int_equal(g_atomic_int_get(&f->wrong_thread), 0);
}

static void all_is_done_and_delivered(void **state)
{
    Fixture *f = *state;
    give(f, 1000);
    assert_int_equal(f->delivered, 0);
    run_until(f, 1000);
    give(f, 10);
    run_until(f, 1010);
}

static void in_order(gpointer data)
{
    Item *item = data;
    assert_int_equal(item->n, item->f->order++);
    item->f->delivered++;
    g_free(item);
}

static void posted_in_its_order(void **state)
{
    Fixture *f = *state;
    for (guint i = 0; i < 100; i++) {
        Item *item = g_new0(Item, 1);
        item->f = f;
        item->n = i;
        lh_workers_post(f->workers, in_order, item, g_free);
    }
    assert_int_equal(f->delivered, 0);
    run_until(f, 100);
}

static void freed_it_waits_and_drops(void **state)
{
    Fixture *f = *state;
    give(f, 200);
    lh_workers_free(f->workers);
    f->workers = NULL;
    assert_int_equal(g_atomic_int_get(&f->started), 200);
    assert_int_equal(f->dropped, 200);
    while (g_main_context_iteration(NULL, FALSE))
        ;
    assert_int_equal(f->delivered, 0);
}

static void freed_by_what_it_delivers(void **state)
{
    Fixture *f = *state;
    f->free_when_delivered = TRUE;
    give(f, 50);
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (f->workers != NULL && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(f->delivered, 1);
    assert_int_equal(f->dropped, 49);
    while (g_main_context_iteration(NULL, FALSE))
        ;
}

static void nothing_to_free(void **state)
{
    (void)state;
    lh_workers_free(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(all_is_done_and_delivered), TEST(posted_in_its_order), TEST(freed_it_waits_and_drops),
        TEST(freed_by_what_it_delivers), TEST(nothing_to_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

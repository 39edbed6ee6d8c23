/*
 * agent: etcd is restored from a backup that knows the node, and its revision has passed the old one before
 * the node hears of it. Whatever the backup lacks, the node must not go on with what it knew; and what only
 * looks like it must not make it leave.
 */
#include "agent_fixture.h"

/* links: fakes */

static int setup(void **state)
{
    *state = fixture_new(17, NULL);
    return 0;
}

static int teardown(void **state)
{
    fixture_free(*state);
    return 0;
}

static gboolean has_left(Fixture *f)
{
    return f->left->len > 0;
}

static gboolean is_another(Fixture *f)
{
    return f->ids->len > 1 && is_registered(f);
}

static void others_write(Fixture *f, guint n)
{
    for (guint i = 0; i < n; i++)
        fake_etcd_put(f->server, PREFIX "published/else", "{}", 0);
}

/* The agent hears nothing while etcd is restored and others write until @n revisions have passed. */
static void restore_unheard(Fixture *f, FakeEtcdBackup *backup, guint n, gboolean compacted)
{
    gint64 before = fake_etcd_revision(f->server);
    f->strict = FALSE;
    fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
    fake_etcd_restore(f->server, backup);
    fake_etcd_backup_free(backup);
    others_write(f, n);
    assert_true(fake_etcd_revision(f->server) > before);
    if (compacted)
        assert_true(fake_etcd_compact(f->server, fake_etcd_revision(f->server)));
    run_ms(f, 100);
    fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
    fake_etcd_client_reset(f->client);
}

static void assert_starts_anew(Fixture *f)
{
    assert_true(run_until(f, is_another, 60000));
    assert_int_equal(f->left->len, 1);
    assert_int_equal(g_array_index(f->left, LhAgentLeft, 0), LH_LEFT_ETCD_CHANGED);
    assert_int_equal(f->work->drops, 1);
}

static void live(Fixture *f, const char *item)
{
    order(f, item, "load");
    run_ms(f, 2000);
    g_autofree char *state = item_field(f, item, "state");
    assert_string_equal(state, "live");
}

/* An order of a revision that was heard of, and ended, comes back. */
static void an_ended_order_comes_back(void **state)
{
    for (guint compacted = 0; compacted < 2; compacted++) {
        Fixture *f = *state;
        f->work->fail_loads = "no room";
        registered(f);
        order(f, "a", "load");
        run_ms(f, 1000);
        FakeEtcdBackup *backup = fake_etcd_backup(f->server);
        unassign(f, "a");
        run_ms(f, 1000);
        guint loads = f->work->loads;
        restore_unheard(f, backup, 50, compacted);
        assert_starts_anew(f);
        assert_int_equal(f->work->loads, loads);
        teardown(state);
        setup(state);
    }
}

/* All orders are there; the last answer is not. */
static void an_answer_is_lost(void **state)
{
    for (guint compacted = 0; compacted < 2; compacted++) {
        Fixture *f = *state;
        f->work->release_ms = 1000;
        registered(f);
        live(f, "a");
        order(f, "a", "evict");
        run_ms(f, 2500); /* the grace is over: it is being released */
        g_autofree char *then = item_field(f, "a", "state");
        assert_string_equal(then, "evicting");
        FakeEtcdBackup *backup = fake_etcd_backup(f->server);
        run_ms(f, 2000);
        g_autofree char *now = item_field(f, "a", "state");
        assert_string_equal(now, "evicted");
        restore_unheard(f, backup, 50, compacted);
        assert_starts_anew(f);
        teardown(state);
        setup(state);
    }
}

/* The order is there, the item that answers it is not at all. */
static void a_first_answer_is_lost(void **state)
{
    Fixture *f = *state;
    registered(f);
    live(f, "a");
    order(f, "b", "load");
    FakeEtcdBackup *backup = fake_etcd_backup(f->server);
    run_ms(f, 2000);
    restore_unheard(f, backup, 50, FALSE);
    assert_starts_anew(f);
}

static void order_task(Fixture *f)
{
    g_autofree char *key = g_strdup_printf(PREFIX "decided/assignments/recovery/%s/t", node_id(f));
    fake_etcd_put(f->server, key,
                  "{\"action\":\"load\",\"since\":1,\"controller\":\"c\",\"epoch\":1,"
                  "\"rule\":\"r\",\"reason\":\"x\",\"partition\":\"p\",\"startOffset\":0,"
                  "\"endOffset\":9}",
                  0);
}

static void assert_task(const Fixture *f, const char *state)
{
    g_autofree char *key = g_strdup_printf(PREFIX "actual/items/recovery/%s/t", node_id(f));
    g_autofree char *is = field(fake_etcd_get(f->server, key, 0), "state");
    assert_string_equal(is != NULL ? is : "absent", state);
}

static void a_recovery_node(Fixture *f)
{
    f->work->finish = TRUE;
    f->work->load_ms = 1000;
    start_agent(f, "recovery");
    assert_true(run_until(f, is_registered, 5000));
}

/* What is done outlives the node's lease, so that its controller may have taken it; here it has not. */
static void a_done_is_lost(void **state)
{
    for (guint compacted = 0; compacted < 2; compacted++) {
        Fixture *f = *state;
        a_recovery_node(f);
        order_task(f);
        run_ms(f, 500);
        assert_task(f, "loading");
        FakeEtcdBackup *backup = fake_etcd_backup(f->server);
        run_ms(f, 2000);
        assert_task(f, "done");
        restore_unheard(f, backup, 50, compacted);
        assert_starts_anew(f);
        teardown(state);
        setup(state);
    }
}

/* … and here nothing of it was written yet: it is said again. */
static void a_done_that_is_not_there_is_said_again(void **state)
{
    for (guint compacted = 0; compacted < 2; compacted++) {
        Fixture *f = *state;
        a_recovery_node(f);
        order_task(f);
        FakeEtcdBackup *backup = fake_etcd_backup(f->server);
        run_ms(f, 2000);
        assert_task(f, "done");
        restore_unheard(f, backup, 50, compacted);
        run_ms(f, 10000);
        assert_task(f, "done");
        assert_false(has_left(f));
        assert_int_equal(f->work->loads, 1);
        teardown(state);
        setup(state);
    }
}

/* The controller took it, and the node has not heard of that yet: it is not raised from the dead. */
static void a_done_that_was_taken_stays_away(void **state)
{
    Fixture *f = *state;
    a_recovery_node(f);
    order_task(f);
    run_ms(f, 2000);
    assert_task(f, "done");
    for (guint round = 0; round < 20; round++) {
        g_autofree char *item = g_strdup_printf(PREFIX "actual/items/recovery/%s/t", node_id(f));
        g_autofree char *order = g_strdup_printf(PREFIX "decided/assignments/recovery/%s/t",
                                                 node_id(f));
        fake_etcd_client_slow(f->client, 0, 1000);
        fake_etcd_client_close_streams(f->client);
        run_ms(f, 50 * round);
        fake_etcd_delete(f->server, order, NULL);
        fake_etcd_delete(f->server, item, NULL);
        run_ms(f, 10000);
        assert_task(f, "absent");
        assert_false(has_left(f));
        fake_etcd_client_slow(f->client, 0, 0);
        order_task(f);
        run_ms(f, 10000);
        assert_task(f, "done");
    }
}

/* An item comes back that was erased; nothing else is there to tell of it. */
static void an_erased_item_comes_back(void **state)
{
    Fixture *f = *state;
    registered(f);
    order(f, "a", "evict");
    run_ms(f, 1000);
    unassign(f, "a");
    run_ms(f, 1);
    g_autofree char *told = item_field(f, "a", "state");
    assert_string_equal(told, "evicted");
    FakeEtcdBackup *backup = fake_etcd_backup(f->server);
    run_ms(f, 1000);
    g_autofree char *erased = item_field(f, "a", "state");
    assert_null(erased);
    restore_unheard(f, backup, 50, TRUE);
    assert_starts_anew(f);
}

/* A copy that was given up and forgotten comes back with its search key, and is ordered away or loaded once
 * more before the node has found out what etcd is. Whatever it says of it, the search key goes (f->strict). */
static void what_comes_back_is_not_left_searchable(void **state)
{
    static const char *const actions[] = {"evict", "load"};
    for (guint i = 0; i < G_N_ELEMENTS(actions); i++) {
        Fixture *f = *state;
        registered(f);
        live(f, "a");
        FakeEtcdBackup *backup = fake_etcd_backup(f->server);
        order(f, "a", "evict");
        run_ms(f, 5000);
        unassign(f, "a");
        run_ms(f, 1000);
        g_autofree char *erased = item_field(f, "a", "state");
        assert_null(erased);
        fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
        fake_etcd_restore(f->server, backup);
        fake_etcd_backup_free(backup);
        others_write(f, 50);
        order(f, "a", actions[i]);
        assert_true(fake_etcd_compact(f->server, fake_etcd_revision(f->server)));
        assert_true(has_search(f, "a"));
        guint said = f->states->len;
        run_ms(f, 100);
        fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
        fake_etcd_client_reset(f->client);
        run_ms(f, 10000);
        assert_true(f->states->len > said);
        assert_string_equal(g_ptr_array_index(f->states, said), i == 0 ? "a=evicted" : "a=loading");
        assert_int_equal(has_search(f, "a"), i == 1);
        teardown(state);
        setup(state);
    }
}

/* An order that could not be answered yet: at its revision there is another one. */
static void a_revision_says_something_else(void **state)
{
    Fixture *f = *state;
    registered(f);
    FakeEtcdBackup *backup = fake_etcd_backup(f->server);
    fake_etcd_client_cut(f->client, FAKE_CUT_REQUESTS);
    gint64 first = order(f, "a", "load");
    run_ms(f, 100);
    assert_int_equal(f->work->loads, 1);
    f->strict = FALSE;
    fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
    fake_etcd_restore(f->server, backup);
    fake_etcd_backup_free(backup);
    assert_int_equal(order(f, "a", "evict"), first);
    others_write(f, 50);
    fake_etcd_compact(f->server, fake_etcd_revision(f->server));
    fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
    fake_etcd_client_reset(f->client);
    assert_starts_anew(f);
}

/* The watch lost its place, a list said that there is nothing new, and nothing has come since: an order below
 * the list's revision is of another history. */
static void an_order_below_a_list_is_not_missed(void **state)
{
    Fixture *f = *state;
    registered(f);
    live(f, "a");
    FakeEtcdBackup *backup = fake_etcd_backup(f->server);
    fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
    others_write(f, 5);
    assert_true(fake_etcd_compact(f->server, fake_etcd_revision(f->server)));
    fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
    fake_etcd_client_reset(f->client);
    run_ms(f, 20000);
    assert_false(has_left(f));
    f->strict = FALSE;
    gint64 before = fake_etcd_revision(f->server);
    fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
    fake_etcd_restore(f->server, backup);
    fake_etcd_backup_free(backup);
    assert_true(order(f, "b", "load") <= before);
    others_write(f, 50);
    fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
    fake_etcd_client_reset(f->client);
    assert_starts_anew(f);
}

/* A gap without a restore: nothing happens, whatever else has been written and compacted. */
static void the_same_etcd_is_no_other(void **state)
{
    Fixture *f = *state;
    registered(f);
    live(f, "a");
    order(f, "b", "evict");
    run_ms(f, 1000);
    unassign(f, "b");
    run_ms(f, 1000);
    fake_etcd_client_slow(f->client, 300, 20);
    for (guint round = 0; round < 60; round++) {
        order(f, "c", round % 2 == 0 ? "load" : "evict");
        run_ms(f, (gint64)(round * 13));
        fake_etcd_client_close_streams(f->client);
        others_write(f, round % 5);
        if (round % 3 == 0)
            fake_etcd_compact(f->server, fake_etcd_revision(f->server));
        run_ms(f, (gint64)(round * 29));
    }
    run_ms(f, 20000);
    assert_false(has_left(f));
    assert_int_equal(f->ids->len, 1);
}

/* Somebody else's value in an item is no other history; it is written again. */
static void what_was_written_over_is_written_again(void **state)
{
    Fixture *f = *state;
    registered(f);
    live(f, "a");
    g_autofree char *key = key_of(f, "actual/items", "a");
    fake_etcd_put(f->server, key, "junk", 0);
    fake_etcd_client_close_streams(f->client);
    run_ms(f, 10000);
    assert_false(has_left(f));
    g_autofree char *now = item_field(f, "a", "state");
    assert_string_equal(now, "live");
}

/* Most of what is asked is refused for a while. */
static void the_question_is_asked_until_it_is_answered(void **state)
{
    const FakeFaultRates rates = {.refused = 4000};
    for (guint64 seed = 1; seed <= 10; seed++) {
        teardown(state);
        Fixture *f = *state = fixture_new(seed, NULL);
        f->work->release_ms = 1000;
        registered(f);
        live(f, "a");
        order(f, "a", "evict");
        run_ms(f, 2500);
        FakeEtcdBackup *backup = fake_etcd_backup(f->server);
        run_ms(f, 2000);
        fake_etcd_client_fault_rates(f->client, &rates);
        restore_unheard(f, backup, 50, TRUE);
        assert_starts_anew(f);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_ended_order_comes_back),
        TEST(an_answer_is_lost),
        TEST(a_first_answer_is_lost),
        TEST(a_done_is_lost),
        TEST(a_done_that_is_not_there_is_said_again),
        TEST(a_done_that_was_taken_stays_away),
        TEST(an_erased_item_comes_back),
        TEST(what_comes_back_is_not_left_searchable),
        TEST(a_revision_says_something_else),
        TEST(an_order_below_a_list_is_not_missed),
        TEST(the_same_etcd_is_no_other),
        TEST(what_was_written_over_is_written_again),
        TEST(the_question_is_asked_until_it_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

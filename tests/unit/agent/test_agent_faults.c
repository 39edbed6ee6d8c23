/*
 * agent: the same protocol while requests are refused, lost, answered late or never, and streams break.
 * Every commit is checked by the fixture; at the end all orders are answered, and nothing else is there.
 */
#include "agent_fixture.h"

/* links: fakes */
/* suite: slow */

#define SEEDS 150
#define ITEMS 6

static int setup(void **state)
{
    *state = fixture_new(11, NULL);
    return 0;
}

static int teardown(void **state)
{
    fixture_free(*state);
    return 0;
}

/* Each kind of fault at each of the first transactions of an item's life. */
static void any_fault_at_any_write(void **state)
{
    (void)state;
    const FakeFault faults[] = {FAKE_FAULT_REFUSED, FAKE_FAULT_OVERLOADED, FAKE_FAULT_REQUEST_LOST,
                                FAKE_FAULT_REPLY_LOST, FAKE_FAULT_LATE_COMMIT};
    const char *const actions[] = {"load", "evict"};
    for (gsize k = 0; k < G_N_ELEMENTS(faults); k++) {
        for (guint after_ms = 0; after_ms < 2600; after_ms += 40) {
            Fixture *f = fixture_new(after_ms + 1, NULL);
            registered(f);
            run_ms(f, 700); /* between two keepalives */
            gint64 load = order(f, "a", actions[0]);
            guint at = 0;
            for (; at < after_ms && at < 400; at += 40)
                run_ms(f, 40);
            gint64 evict = 0;
            if (after_ms >= 400) {
                evict = order(f, "a", actions[1]);
                run_ms(f, after_ms - 400);
            }
            fake_etcd_client_fault_next(f->client, faults[k], 1);
            run_ms(f, 40000);
            assert_item(f, "a", evict != 0 ? "evicted" : "live", evict != 0 ? evict : load);
            assert_int_equal(has_search(f, "a"), evict == 0);
            unassign(f, "a");
            run_ms(f, 40000);
            assert_item(f, "a", NULL, 0);
            assert_int_equal(f->ids->len, 1);
            fixture_free(f);
        }
    }
}

/* A creation that etcd carries out long after the item's life has ended must not bring it back. */
static void a_late_creation_raises_no_dead(void **state)
{
    (void)state;
    guint late = 0;
    for (guint64 seed = 1; seed <= 60; seed++) {
        Fixture *f = fixture_new(seed, NULL);
        registered(f);
        run_ms(f, 700);
        f->work->load_ms = 10;
        f->work->release_ms = 10;
        order(f, "a", "load");
        fake_etcd_client_fault_next(f->client, FAKE_FAULT_LATE_COMMIT, 1);
        run_ms(f, 500);
        order(f, "a", "evict");
        run_ms(f, 2500);
        unassign(f, "a");
        run_ms(f, 60000);
        assert_item(f, "a", NULL, 0);
        assert_false(has_search(f, "a"));
        late += fake_etcd_stats(f->server)->late_commits > 0;
        fixture_free(f);
    }
    assert_true(late > 30);
}

typedef struct {
    gint64 rev;
    const char *action; /* NULL: none */
} Wanted;

static void random_order(Fixture *f, Wanted *wanted)
{
    guint i = (guint)sim_world_below(f->world, ITEMS);
    char name[2] = {(char)('a' + i), '\0'};
    guint what = (guint)sim_world_below(f->world, 8);
    if (what < 4) {
        wanted[i].action = "load";
        wanted[i].rev = order(f, name, "load");
    } else if (what < 6) {
        wanted[i].action = "evict";
        wanted[i].rev = order(f, name, "evict");
    } else if (what == 6 && wanted[i].action != NULL) {
        unassign(f, name);
        wanted[i].action = NULL;
    } else if (what == 7) {
        f->work->fail_loads = sim_world_below(f->world, 3) == 0 ? "no" : NULL;
        f->work->fail_releases = (guint)sim_world_below(f->world, 3);
    }
}

static void random_fault(Fixture *f)
{
    switch (sim_world_below(f->world, 12)) {
    case 0:
        fake_etcd_client_reset(f->client);
        break;
    case 1:
        fake_etcd_client_close_streams(f->client);
        break;
    case 2:
        fake_etcd_compact(f->server, fake_etcd_revision(f->server));
        break;
    case 3:
        fake_etcd_elect(f->server, 500);
        break;
    case 4:
        sim_machine_pause(f->env);
        run_ms(f, (gint64)sim_world_below(f->world, 2000));
        sim_machine_resume(f->env);
        break;
    default:
        break;
    }
}

static void check_answers(const Fixture *f, const Wanted *wanted)
{
    for (guint i = 0; i < ITEMS; i++) {
        char name[2] = {(char)('a' + i), '\0'};
        g_autofree char *state = item_field(f, name, "state");
        if (wanted[i].action == NULL) {
            assert_item(f, name, NULL, 0);
        } else if (strcmp(wanted[i].action, "evict") == 0) {
            assert_item(f, name, "evicted", wanted[i].rev);
        } else {
            assert_item(f, name, g_strcmp0(state, "failed") == 0 ? "failed" : "live",
                        wanted[i].rev);
        }
        assert_int_equal(has_search(f, name), g_strcmp0(state, "live") == 0);
        assert_int_equal(virtual_served(f->work, name), g_strcmp0(state, "live") == 0);
    }
}

static void everything_converges(void **state)
{
    (void)state;
    guint64 unknown = 0, broken = 0;
    for (guint64 seed = 1; seed <= SEEDS; seed++) {
        FakeEtcdOptions options = {.delay_max_ms = 20, .fragment_events = 3, .lag_permille = 100};
        Fixture *f = fixture_new(seed * 7919, &options);
        Wanted wanted[ITEMS] = {0};
        registered(f);
        FakeFaultRates rates = {.refused = 300,
                                .overloaded = 300,
                                .request_lost = 200,
                                .reply_lost = 300,
                                .late_commit = 300,
                                .stream_closed = 300};
        fake_etcd_client_fault_rates(f->client, &rates);
        for (guint step = 0; step < 60; step++) {
            random_order(f, wanted);
            run_ms(f, (gint64)sim_world_below(f->world, 600));
            random_fault(f);
            if (f->ids->len > 1)
                break; /* the lease was lost: another test's matter */
        }
        fake_etcd_client_fault_rates(f->client, NULL);
        run_ms(f, 180000);
        if (f->ids->len == 1)
            check_answers(f, wanted);
        else
            broken++;
        const FakeEtcdStats *stats = fake_etcd_stats(f->server);
        unknown += stats->replies_lost + stats->late_commits + stats->requests_lost;
        fixture_free(f);
    }
    assert_true(unknown > 5 * SEEDS); /* it was not a walk in the park */
    assert_true(broken < SEEDS / 3);
}

static void cut(Fixture *f, guint64 seed)
{
    const FakeCut cuts[] = {FAKE_CUT_BOTH, FAKE_CUT_REQUESTS, FAKE_CUT_REPLIES};
    fake_etcd_client_cut(f->client, cuts[seed % 3]);
    run_ms(f, 3000 + (gint64)sim_world_below(f->world, 20000));
    fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
}

/* Cut off in the middle of things, for less or more than the lease; then back, one node, no leftovers. */
static void it_comes_back_from_any_cut(void **state)
{
    (void)state;
    guint others = 0;
    for (guint64 seed = 1; seed <= SEEDS; seed++) {
        Fixture *f = fixture_new(seed * 104729, NULL);
        registered(f);
        order(f, "a", "load");
        run_ms(f, (gint64)sim_world_below(f->world, 400));
        order(f, "b", "load");
        if (seed % 2 == 0) {
            run_ms(f, (gint64)sim_world_below(f->world, 600));
            order(f, "a", "evict");
        }
        f->strict = FALSE; /* a lease's end takes keys in one commit, in any order */
        cut(f, seed);
        run_ms(f, 60000);
        assert_int_equal(count_keys(f, PREFIX "actual/nodes/"), 1);
        gint64 rev = order(f, "z", "load");
        run_ms(f, 20000);
        assert_item(f, "z", "live", rev);
        others += f->ids->len > 1;
        g_autofree char *items = key_of(f, "actual/items", "");
        assert_int_equal(count_keys(f, PREFIX "actual/items/"), count_keys(f, items));
        fixture_free(f);
    }
    assert_true(others > SEEDS / 4 && others < SEEDS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(any_fault_at_any_write),
        TEST(a_late_creation_raises_no_dead),
        TEST(everything_converges),
        TEST(it_comes_back_from_any_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

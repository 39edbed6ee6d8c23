/*
 * agent: registering, losing the registration in each way there is, coming back, stopping. CONTRACT.md
 * section 2, "When its lease is in doubt".
 */
#include "agent_fixture.h"

/* links: fakes */

#define TTL_MS 5000

static int setup(void **state)
{
    *state = fixture_new(7, NULL);
    return 0;
}

static int teardown(void **state)
{
    fixture_free(*state);
    return 0;
}

static void live_item(Fixture *f, const char *item)
{
    gint64 rev = order(f, item, "load");
    run_ms(f, 1000);
    assert_item(f, item, "live", rev);
}

static void assert_left(const Fixture *f, guint n, LhAgentLeft why)
{
    assert_int_equal(f->left->len, n);
    assert_int_equal(g_array_index(f->left, LhAgentLeft, n - 1), why);
}

/* Nothing of any id but the present one is left. */
static void assert_only_present_id(Fixture *f)
{
    for (guint i = 0; i + 1 < f->ids->len; i++) {
        const char *id = g_ptr_array_index(f->ids, i);
        const char *const kinds[] = {"items", "search"};
        g_autofree char *node = g_strdup_printf(PREFIX "actual/nodes/cache/%s", id);
        assert_null(fake_etcd_get(f->server, node, 0));
        for (gsize k = 0; k < G_N_ELEMENTS(kinds); k++) {
            g_autofree char *prefix = g_strdup_printf(PREFIX "actual/%s/cache/%s/", kinds[k], id);
            assert_int_equal(count_keys(f, prefix), 0);
        }
    }
}

static gboolean is_another(Fixture *f)
{
    return f->ids->len > 1 && lh_agent_id(f->agent) != NULL;
}

/* ---- registering ---- */

static void registers_with_all_that_is_known(void **state)
{
    Fixture *f = *state;
    const char *const warm[] = {"s1", "s2", NULL};
    f->work->warm = warm;
    registered(f);
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    const LhKv *kv = fake_etcd_get(f->server, key, 0);
    assert_non_null(kv);
    g_autofree char *name = field(kv, "name"), *url = field(kv, "url"),
                    *ttl = field(kv, "leaseTtl");
    g_autofree char *lease = field(kv, "lease"), *list = field(kv, "warm");
    g_autofree char *hex = g_strdup_printf("%016" G_GINT64_MODIFIER "x", (guint64)kv->lease);
    assert_string_equal(name, "node");
    assert_string_equal(url, "http://node");
    assert_string_equal(ttl, "5s");
    assert_string_equal(lease, hex);
    assert_string_equal(list, "[\"s1\",\"s2\"]");
    g_autofree char *node_name = lh_node_name_of(node_id(f));
    assert_string_equal(node_name, "node");
}

static void warm_is_limited(void **state)
{
    Fixture *f = *state;
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < 600; i++)
        g_ptr_array_add(names, g_strdup_printf("s%u", i));
    g_ptr_array_add(names, NULL);
    f->work->warm = (const char *const *)names->pdata;
    registered(f);
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    const LhKv *kv = fake_etcd_get(f->server, key, 0);
    assert_non_null(strstr(kv->value, "\"s499\"]"));
    assert_null(strstr(kv->value, "\"s500\""));
}

static void warm_is_limited_in_bytes(void **state)
{
    Fixture *f = *state;
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < 400; i++)
        g_ptr_array_add(names, g_strdup_printf("s%0175u", i));
    g_ptr_array_add(names, NULL);
    f->work->warm = (const char *const *)names->pdata;
    registered(f);
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    const LhKv *kv = fake_etcd_get(f->server, key, 0);
    g_autofree char *list = field(kv, "warm");
    assert_true(strlen(list) <= 32 * 1024);
    assert_true(strlen(list) > 31 * 1024);
}

static void watches_are_open_before_it_registers(void **state)
{
    (void)state;
    for (guint64 seed = 1; seed <= 50; seed++) {
        FakeEtcdOptions options = {.delay_max_ms = 50};
        Fixture *f = fixture_new(seed, &options);
        registered(f);
        assert_int_equal(f->spy->watches_at_first_txn, 3);
        fixture_free(f);
    }
}

static void order_at_registration(const FakeCommit *commit, gpointer data)
{
    if (fake_commit_prev(commit, 0) == NULL &&
        strstr(fake_commit_event(commit, 0)->kv.key, "actual/nodes/"))
        *(gboolean *)data = TRUE;
}

/* A controller that is quicker than the answer to the registration. */
static void an_order_at_once_is_not_missed(void **state)
{
    (void)state;
    for (guint64 seed = 1; seed <= 100; seed++) {
        FakeEtcdOptions options = {.delay_max_ms = 100};
        Fixture *f = fixture_new(seed, &options);
        gboolean there = FALSE;
        fake_etcd_on_commit(f->server, order_at_registration, &there);
        start_agent(f, "cache");
        while (!there)
            sim_world_step(f->world);
        const LhEtcdEvent *e = fake_commit_event(fake_etcd_history_at(f->server, 0), 0);
        g_ptr_array_add(f->ids, g_strdup(leaf(e->kv.key)));
        gint64 rev = order(f, "a", "load");
        if (seed % 2 == 0)
            fake_etcd_client_close_streams(f->client);
        run_ms(f, 8000);
        assert_item(f, "a", "live", rev);
        fixture_free(f);
    }
}

static void orders_older_than_the_registration_count(void **state)
{
    Fixture *f = *state;
    start_agent(f, "cache");
    while (f->spy->first_watch_key == NULL)
        sim_world_step(f->world);
    /* Its id is known to us before it registers: an order that no watch of it can report. */
    g_ptr_array_add(f->ids, g_strdup(leaf(f->spy->first_watch_key)));
    gint64 rev = order(f, "a", "load");
    run_ms(f, 3000);
    assert_item(f, "a", "live", rev);
}

static void occupy(const char *key, gpointer data)
{
    Fixture *f = data;
    f->spy->on_watch = NULL;
    fake_etcd_put(f->server, key, "{\"name\":\"thief\"}", 0);
}

static void an_id_that_is_taken_is_not_taken_over(void **state)
{
    Fixture *f = *state;
    f->spy->on_watch = occupy;
    f->spy->on_watch_data = f;
    start_agent(f, "cache");
    assert_true(run_until(f, is_registered, 20000));
    assert_string_not_equal(node_id(f), leaf(f->spy->first_watch_key));
    assert_string_equal(fake_etcd_get(f->server, f->spy->first_watch_key, 0)->value,
                        "{\"name\":\"thief\"}");
}

static void a_lost_answer_to_the_registration_is_found_out(void **state)
{
    (void)state;
    const FakeFault faults[] = {FAKE_FAULT_REPLY_LOST, FAKE_FAULT_REQUEST_LOST, FAKE_FAULT_REFUSED,
                                FAKE_FAULT_OVERLOADED, FAKE_FAULT_LATE_COMMIT};
    for (gsize i = 0; i < G_N_ELEMENTS(faults); i++) {
        Fixture *f = fixture_new(3, NULL);
        start_agent(f, "cache");
        while (f->spy->created < 3)
            sim_world_step(f->world);
        lh_agent_free(f->agent);
        f->agent = NULL;
        fixture_free(f);
        /* The same seed again, with the fault at the first transaction. */
        f = fixture_new(3, NULL);
        start_agent(f, "cache");
        while (f->spy->created < 2)
            sim_world_step(f->world);
        fake_etcd_client_fault_next(f->client, faults[i], 1);
        assert_true(run_until(f, is_registered, 40000));
        run_ms(f, 25000);
        assert_int_equal(f->ids->len, 1);
        assert_int_equal(count_keys(f, PREFIX "actual/nodes/cache/"), 1);
        live_item(f, "a");
        fixture_free(f);
    }
}

static void etcd_away_at_the_start(void **state)
{
    Fixture *f = *state;
    fake_etcd_stop(f->server);
    start_agent(f, "cache");
    run_ms(f, 120000);
    assert_false(is_registered(f));
    fake_etcd_start(f->server);
    assert_true(run_until(f, is_registered, 10000));
    live_item(f, "a");
}

/* ---- losing it ---- */

static void cut_off_it_serves_until_it_knows(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    const char *const warm[] = {"snap-a", NULL};
    f->work->warm = warm;
    fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
    run_ms(f, 60000);
    /* Long gone in etcd; here nothing has changed. */
    assert_int_equal(count_keys(f, PREFIX "actual/"), 0);
    assert_int_equal(f->work->drops, 0);
    assert_true(virtual_served(f->work, "a"));
    assert_int_equal(f->left->len, 0);

    fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
    assert_true(run_until(f, is_another, 20000));
    assert_int_equal(f->work->drops, 1);
    assert_int_equal(f->left->len, 1);
    assert_only_present_id(f);
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    g_autofree char *list = field(fake_etcd_get(f->server, key, 0), "warm");
    assert_string_equal(list, "[\"snap-a\"]");
    live_item(f, "a");
}

static void a_short_cut_changes_nothing(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    for (guint i = 0; i < 5; i++) {
        fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
        run_ms(f, 2500);
        fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
        run_ms(f, 4000);
    }
    assert_int_equal(f->ids->len, 1);
    assert_true(has_search(f, "a"));
    gint64 rev = order(f, "b", "load");
    run_ms(f, 15000);
    assert_item(f, "b", "live", rev);
}

static void etcd_restarted_changes_nothing(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    fake_etcd_stop(f->server);
    run_ms(f, 20000);
    assert_true(virtual_served(f->work, "a"));
    fake_etcd_start(f->server);
    run_ms(f, 20000);
    assert_int_equal(f->ids->len, 1); /* its lease was extended */
    assert_int_equal(f->work->drops, 0);
    assert_true(has_search(f, "a"));
    live_item(f, "b");
}

static void paused_past_the_lease(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    sim_machine_pause(f->env);
    run_ms(f, 30000);
    assert_int_equal(count_keys(f, PREFIX "actual/"), 0);
    sim_machine_resume(f->env);
    assert_true(run_until(f, is_another, 20000));
    assert_only_present_id(f);
    run_ms(f, 5000);
    assert_int_equal(count_keys(f, PREFIX "actual/items/"), 0);
}

static void registration_deleted(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    fake_etcd_delete(f->server, key, NULL);
    assert_true(run_until(f, is_another, 20000));
    assert_left(f, 1, LH_LEFT_REGISTRATION_GONE);
    assert_only_present_id(f); /* items and search went with the revoked lease */
    assert_int_equal(f->work->drops, 1);
    live_item(f, "a");
}

static void registration_taken_over(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    fake_etcd_put(f->server, key, "{}", 0);
    assert_true(run_until(f, is_another, 20000));
    assert_left(f, 1, LH_LEFT_REGISTRATION_GONE);
    assert_int_equal(count_keys(f, PREFIX "actual/items/"), 0);
    assert_int_equal(count_keys(f, PREFIX "actual/search/"), 0);
}

static void deleted_again_and_again_it_slows_down(void **state)
{
    Fixture *f = *state;
    registered(f);
    for (guint i = 0; i < 300; i++) {
        fake_etcd_delete(f->server, PREFIX "actual/nodes/", PREFIX "actual/nodes0");
        run_ms(f, 200);
    }
    assert_true(f->ids->len > 3);
    assert_true(f->ids->len < 20); /* in a minute */
}

static void lease_revoked(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    fake_etcd_revoke(f->server, fake_etcd_get(f->server, key, 0)->lease);
    assert_true(run_until(f, is_another, 20000));
    assert_only_present_id(f);
    live_item(f, "a");
}

static void put_health(Fixture *f, const char *state)
{
    g_autofree char *key = g_strdup_printf(PREFIX "decided/health/cache/%s", node_id(f));
    g_autofree char *value = g_strdup_printf("{\"state\":\"%s\",\"since\":1,\"reason\":\"x\"}",
                                             state);
    fake_etcd_put(f->server, key, value, 0);
}

static void health_failed(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    put_health(f, "failed");
    assert_true(run_until(f, is_another, 20000));
    assert_left(f, 1, LH_LEFT_HEALTH_FAILED);
    assert_only_present_id(f);
}

static void other_health_changes_nothing(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    const char *const states[] = {"healthy", "probation", "failure", "nonsense"};
    for (gsize i = 0; i < G_N_ELEMENTS(states); i++) {
        put_health(f, states[i]);
        run_ms(f, 1000);
    }
    g_autofree char *key = g_strdup_printf(PREFIX "decided/health/cache/%s", node_id(f));
    fake_etcd_put(f->server, key, "failed", 0);
    run_ms(f, 1000);
    fake_etcd_delete(f->server, key, NULL);
    run_ms(f, 1000);
    assert_int_equal(f->ids->len, 1);
    assert_true(has_search(f, "a"));
}

/* ---- the watch ---- */

static void compacted_while_cut_off(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    live_item(f, "b");
    live_item(f, "d");
    fake_etcd_client_close_streams(f->client);
    FakeFaultRates dead = {.stream_closed = 10000};
    fake_etcd_client_fault_rates(f->client, &dead);
    run_ms(f, 100);
    unassign(f, "a");
    gint64 evict = order(f, "b", "evict");
    gint64 load = order(f, "c", "load");
    fake_etcd_compact(f->server, fake_etcd_revision(f->server));
    fake_etcd_client_fault_rates(f->client, NULL);
    run_ms(f, 20000);
    assert_item(f, "a", NULL, 0);
    assert_item(f, "b", "evicted", evict);
    assert_item(f, "c", "live", load);
    assert_true(has_search(f, "d"));
    assert_int_equal(f->work->loads, 4);
    assert_int_equal(f->ids->len, 1);
}

static void registration_deleted_and_compacted_while_cut_off(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    FakeFaultRates dead = {.stream_closed = 10000};
    fake_etcd_client_fault_rates(f->client, &dead);
    fake_etcd_client_close_streams(f->client);
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    fake_etcd_delete(f->server, key, NULL);
    fake_etcd_compact(f->server, fake_etcd_revision(f->server));
    fake_etcd_client_fault_rates(f->client, NULL);
    assert_true(run_until(f, is_another, 20000));
    assert_only_present_id(f);
}

static void order_copy(Fixture *f, const char *item)
{
    g_autofree char *key = key_of(f, "decided/assignments", item);
    fake_etcd_put(
        f->server, key,
        "{\"action\":\"load\",\"since\":1,\"controller\":\"c\",\"epoch\":1,\"rule\":\"r\","
        "\"reason\":\"x\",\"snapshot\":\"snap-a\",\"uri\":\"file:///data/s/\",\"sizeBytes\":1000,"
        "\"set\":\"default\",\"evictGrace\":\"2s\"}",
        0);
}

/* A copy that failed is forgotten while another of the same snapshot becomes live; writes overtake each
 * other. */
static void a_copy_that_goes_leaves_the_search_key_of_the_other(void **state)
{
    for (guint64 seed = 1; seed <= 60; seed++) {
        teardown(state);
        Fixture *f = *state = fixture_new(seed, NULL);
        f->strict = FALSE;
        registered(f);
        f->work->fail_loads = "checksum";
        order_copy(f, "a");
        run_ms(f, 1000);
        f->work->fail_loads = NULL;
        f->work->load_ms = 10;
        fake_etcd_client_slow(f->client, 400, 0);
        order_copy(f, "b");
        run_ms(f, (gint64)(seed * 13));
        unassign(f, "a");
        run_ms(f, 30000);
        g_autofree char *search = g_strdup_printf(PREFIX "actual/search/cache/%s/snap-a",
                                                  node_id(f));
        g_autofree char *of = field(fake_etcd_get(f->server, search, 0), "replica");
        if (g_strcmp0(of, "b") != 0)
            fail_msg("seed %u: the search key is of %s", (guint)seed, of != NULL ? of : "nobody");
    }
}

static void etcd_restored_from_a_backup(void **state)
{
    Fixture *f = *state;
    FakeEtcdBackup *before = fake_etcd_backup(f->server);
    registered(f);
    live_item(f, "a");
    f->strict = FALSE;
    fake_etcd_restore(f->server, before);
    fake_etcd_backup_free(before);
    assert_true(run_until(f, is_another, 60000));
    assert_int_equal(f->work->drops, 1);
    run_ms(f, 1000);
    assert_int_equal(count_keys(f, PREFIX "actual/nodes/"), 1);
    live_item(f, "a");
}

/* The registration and the lease are in the backup, so nothing seems lost; but what was heard since
 * then never was. */
static void etcd_restored_from_a_backup_that_knows_the_node(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    FakeEtcdBackup *before = fake_etcd_backup(f->server);
    for (guint i = 0; i < 20; i++)
        live_item(f, "b");
    f->strict = FALSE;
    fake_etcd_restore(f->server, before);
    fake_etcd_backup_free(before);
    assert_true(run_until(f, is_another, 60000));
    assert_left(f, 1, LH_LEFT_ETCD_CHANGED);
    run_ms(f, 5000);
    assert_only_present_id(f);
    live_item(f, "a");
    live_item(f, "b");
}

/* ---- exclusive pools ---- */

static void exclusive_work_stops_before_the_lease_may_end(void **state)
{
    (void)state;
    for (guint64 seed = 1; seed <= 20; seed++) {
        Fixture *f = fixture_new(seed, NULL);
        f->strict = FALSE;
        start_agent(f, "recovery");
        assert_true(run_until(f, is_registered, 5000));
        run_ms(f, (gint64)(seed * 333));
        gint64 cut_ms = sim_world_now_ms(f->world);
        fake_etcd_client_cut(f->client, seed % 2 == 0 ? FAKE_CUT_BOTH : FAKE_CUT_REPLIES);
        run_ms(f, 30000);
        assert_true(f->work->drops > 0);
        gint64 dropped = f->work->dropped_ms - sim_machine_mono_offset(f->env);
        assert_true(dropped < cut_ms + TTL_MS);
        /* A watchdog would have ended it a little later, and in time. */
        gint64 told = f->work->deadline_ms - sim_machine_mono_offset(f->env);
        assert_true(dropped < told && told < cut_ms + TTL_MS);
        assert_left(f, 1, LH_LEFT_DEADLINE);
        fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
        assert_true(run_until(f, is_another, 30000));
        fixture_free(f);
    }
}

static void exclusive_work_goes_on_while_the_lease_does(void **state)
{
    Fixture *f = *state;
    start_agent(f, "recovery");
    for (guint i = 0; i < 120; i++) {
        run_ms(f, 1000);
        gint64 told = f->work->deadline_ms - lh_mono_ms(f->env);
        assert_true(told > TTL_MS / 3 && told < TTL_MS);
    }
    assert_int_equal(f->work->drops, 0);
    assert_int_equal(f->ids->len, 1);
}

/* A cache node serves on: nothing ends its work but itself. */
static void cache_work_has_no_deadline(void **state)
{
    Fixture *f = *state;
    registered(f);
    run_ms(f, 20000);
    assert_int_equal(f->work->deadline_ms, 0);
}

static const LhKv *recovery_item(const Fixture *f)
{
    g_autofree char *key = g_strdup_printf(PREFIX "actual/items/recovery/%s/t", node_id(f));
    return fake_etcd_get(f->server, key, 0);
}

static void begin_task(Fixture *f)
{
    f->work->finish = TRUE;
    f->work->load_ms = 1000;
    start_agent(f, "recovery");
    assert_true(run_until(f, is_registered, 5000));
    g_autofree char *key = g_strdup_printf(PREFIX "decided/assignments/recovery/%s/t", node_id(f));
    fake_etcd_put(f->server, key,
                  "{\"action\":\"load\",\"partition\":\"p\",\"startOffset\":0,\"endOffset\":9}", 0);
    run_ms(f, 500);
    assert_true(recovery_item(f)->lease != 0); /* loading */
}

static void what_is_done_outlives_its_node(void **state)
{
    Fixture *f = *state;
    begin_task(f);
    run_ms(f, 1000);
    g_autofree char *state_said = field(recovery_item(f), "state");
    assert_string_equal(state_said, "done");
    assert_int_equal(recovery_item(f)->lease, 0);
    sim_machine_crash(f->env);
    run_ms(f, 30000);
    assert_int_equal(count_keys(f, PREFIX "actual/nodes/"), 0);
    assert_non_null(recovery_item(f));
}

/* It is put only while registration and order are as they were. */
static void done_is_not_said_of_another_order(void **state)
{
    Fixture *f = *state;
    begin_task(f);
    g_autofree char *key = g_strdup_printf(PREFIX "decided/assignments/recovery/%s/t", node_id(f));
    fake_etcd_client_cut(f->client, FAKE_CUT_BOTH);
    fake_etcd_delete(f->server, key, NULL);
    run_ms(f, 1500); /* the work ends meanwhile */
    fake_etcd_client_cut(f->client, FAKE_CUT_NONE);
    run_ms(f, 20000);
    assert_null(recovery_item(f));
}

/* ---- stopping ---- */

static gboolean is_stopped(Fixture *f)
{
    return f->stopped > 0;
}

static void sigterm(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    f->work->load_ms = 100000;
    order(f, "b", "load");
    run_ms(f, 500);
    f->strict = FALSE;
    gsize before = fake_etcd_history_len(f->server);
    lh_agent_stop(f->agent);
    lh_agent_stop(f->agent);
    assert_int_equal(f->stopped, 0); /* never inside the call */
    assert_true(run_until(f, is_stopped, 2000));
    run_ms(f, 60000);
    assert_int_equal(f->stopped, 1);
    assert_int_equal(f->work->drops, 1);
    assert_left(f, 1, LH_LEFT_STOPPED);
    assert_int_equal(count_keys(f, PREFIX "actual/"), 0);
    /* First the search keys alone, then the rest with the lease. */
    assert_int_equal(fake_etcd_history_len(f->server), before + 2);
    const FakeCommit *first = fake_etcd_history_at(f->server, before);
    assert_int_equal(first->n_events, 1);
    assert_non_null(strstr(fake_commit_event(first, 0)->kv.key, "actual/search/"));
    assert_int_equal(fake_etcd_history_at(f->server, before + 1)->cause, FAKE_BY_REVOKE);
}

static void sigterm_with_etcd_away_is_bounded(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    fake_etcd_freeze(f->server);
    gint64 now = sim_world_now_ms(f->world);
    lh_agent_stop(f->agent);
    run_ms(f, 60000);
    assert_int_equal(f->stopped, 1);
    assert_true(f->stopped_ms - now <= LH_AGENT_STOP_MS);
    assert_int_equal(f->work->drops, 1);
}

static void sigterm_at_any_time(void **state)
{
    (void)state;
    for (guint64 i = 0; i < 120; i++) {
        FakeEtcdOptions options = {.delay_max_ms = 30};
        Fixture *f = fixture_new(i, &options);
        f->strict = FALSE;
        start_agent(f, "cache");
        run_ms(f, (gint64)(i * 3));
        if (i % 3 == 0 && f->ids->len > 0) { /* while it is leaving */
            put_health(f, "failed");
            run_ms(f, (gint64)(i % 50));
        } else if (f->ids->len > 0) {
            order(f, "a", "load");
            run_ms(f, (gint64)(i % 50) * 10);
        }
        lh_agent_stop(f->agent);
        assert_true(run_until(f, is_stopped, LH_AGENT_STOP_MS));
        run_ms(f, 30000);
        assert_int_equal(f->stopped, 1);
        assert_int_equal(count_keys(f, PREFIX "actual/"), 0);
        fixture_free(f);
    }
}

static void freed_it_sends_nothing(void **state)
{
    (void)state;
    for (guint64 i = 0; i < 60; i++) {
        Fixture *f = fixture_new(i, NULL);
        start_agent(f, "cache");
        run_ms(f, (gint64)i * 2);
        if (f->ids->len > 0)
            order(f, "a", "load");
        run_ms(f, (gint64)i * 10);
        f->strict = FALSE;
        sim_machine_crash(f->env);
        guint64 txns = fake_etcd_stats(f->server)->txns;
        guint64 revokes = fake_etcd_stats(f->server)->revokes;
        lh_agent_free(f->agent);
        f->agent = NULL;
        run_ms(f, 30000);
        assert_true(fake_etcd_stats(f->server)->txns <= txns + 1); /* what was on its way */
        assert_int_equal(fake_etcd_stats(f->server)->revokes, revokes);
        assert_int_equal(count_keys(f, PREFIX "actual/"), 0);
        fixture_free(f);
    }
}

static void freed_while_a_release_waits_to_be_tried_again(void **state)
{
    Fixture *f = *state;
    registered(f);
    live_item(f, "a");
    f->work->fail_releases = 1;
    gint64 evict = order(f, "a", "evict");
    run_ms(f, 2200);
    assert_item(f, "a", "evicting", evict);
    guint releases = f->work->releases;
    assert_int_equal(releases, 1);
    f->strict = FALSE;
    lh_agent_stop(f->agent);
    run_ms(f, 60000);
    assert_int_equal(f->work->releases, releases);
}

/* ---- warm ---- */

static void what_left_the_disk_is_not_called_warm(void **state)
{
    Fixture *f = *state;
    const char *const both[] = {"snap-a", "snap-b", NULL};
    const char *const one[] = {"snap-b", NULL};
    f->work->warm = both;
    registered(f);
    g_autofree char *key = g_strdup_printf(PREFIX "actual/nodes/cache/%s", node_id(f));
    live_item(f, "a");
    gint64 unchanged = fake_etcd_get(f->server, key, 0)->mod_rev;
    order(f, "a", "evict");
    run_ms(f, 1000);
    f->work->warm = one;
    run_ms(f, 10000);
    const LhKv *kv = fake_etcd_get(f->server, key, 0);
    g_autofree char *list = field(kv, "warm");
    assert_string_equal(list, "[\"snap-b\"]");
    assert_true(kv->mod_rev > unchanged && kv->lease != 0);
    assert_int_equal(f->ids->len, 1);
    /* Loads and releases that change nothing of it write nothing. */
    unchanged = kv->mod_rev;
    live_item(f, "c");
    order(f, "c", "evict");
    run_ms(f, 10000);
    assert_int_equal(fake_etcd_get(f->server, key, 0)->mod_rev, unchanged);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(registers_with_all_that_is_known),
        TEST(warm_is_limited),
        TEST(warm_is_limited_in_bytes),
        TEST(watches_are_open_before_it_registers),
        TEST(an_order_at_once_is_not_missed),
        TEST(orders_older_than_the_registration_count),
        TEST(an_id_that_is_taken_is_not_taken_over),
        TEST(a_lost_answer_to_the_registration_is_found_out),
        TEST(etcd_away_at_the_start),
        TEST(cut_off_it_serves_until_it_knows),
        TEST(a_short_cut_changes_nothing),
        TEST(etcd_restarted_changes_nothing),
        TEST(paused_past_the_lease),
        TEST(registration_deleted),
        TEST(registration_taken_over),
        TEST(deleted_again_and_again_it_slows_down),
        TEST(lease_revoked),
        TEST(health_failed),
        TEST(other_health_changes_nothing),
        TEST(compacted_while_cut_off),
        TEST(registration_deleted_and_compacted_while_cut_off),
        TEST(a_copy_that_goes_leaves_the_search_key_of_the_other),
        TEST(etcd_restored_from_a_backup),
        TEST(etcd_restored_from_a_backup_that_knows_the_node),
        TEST(freed_while_a_release_waits_to_be_tried_again),
        TEST(exclusive_work_stops_before_the_lease_may_end),
        TEST(exclusive_work_goes_on_while_the_lease_does),
        TEST(cache_work_has_no_deadline),
        TEST(what_is_done_outlives_its_node),
        TEST(done_is_not_said_of_another_order),
        TEST(sigterm),
        TEST(sigterm_with_etcd_away_is_bounded),
        TEST(sigterm_at_any_time),
        TEST(freed_it_sends_nothing),
        TEST(what_left_the_disk_is_not_called_warm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* links: fakes */
/*
 * runtime/events: what people are told, counted instead of repeated, apart from decisions, under the
 * fence, on leases of their own. lab.h checks the fence of every events transaction.
 */
#include "lab.h"

static Lab *lab_with_events(guint64 seed, Manager **manager)
{
    Lab *lab = lab_new(seed);

    script.events = TRUE;
    lab->may_repeat = TRUE;
    *manager = lab_manager(lab, "m0");
    wait_for(lab, one_leads, 1000);
    pass(lab, 1000);
    return lab;
}

typedef struct {
    guint n;
    gint64 count;           /* of all */
    GHashTable *of_lease;   /* lease -> number of events */
    const char *reason;     /* only these; NULL: all */
    char *message, *object; /* of the last */
    guint most;
    gint64 time; /* of the last */
} Told;

static void note_event(const LhKv *kv, gpointer data)
{
    Told *told = data;
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_EVENT, kv->key + strlen(P "events/"),
                                                 kv->value, kv->value_len, kv->create_rev,
                                                 kv->mod_rev, kv->lease);
    const LhEvent *event = (const LhEvent *)object;

    assert_true(lh_object_known(object));
    assert_string_equal(event->controller, NAME);
    gint64 lease = lh_object_lease(object);
    guint on_lease = GPOINTER_TO_UINT(g_hash_table_lookup(told->of_lease, &lease)) + 1;
    g_hash_table_insert(told->of_lease, g_memdup2(&lease, sizeof lease),
                        GUINT_TO_POINTER(on_lease));
    told->most = MAX(told->most, on_lease);
    if (told->reason != NULL && strcmp(event->reason, told->reason) != 0)
        return;
    told->n++;
    told->count += event->count;
    g_free(told->message);
    told->message = g_strdup(event->message);
    g_free(told->object);
    told->object = g_strdup(event->object);
    told->time = event->time;
}

static Told what_was_told(Lab *lab, const char *reason)
{
    Told told = {.reason = reason,
                 .of_lease = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL)};

    fake_etcd_foreach(lab->server, P "events/", P "events0", 0, note_event, &told);
    return told;
}

static void told_clear(Told *told)
{
    g_hash_table_unref(told->of_lease);
    g_free(told->message);
    g_free(told->object);
}

static void an_event_is_told_once_committed(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(1, &manager);

    publish(lab, 0, 1);
    wait_for(lab, quiet, 1000);
    gint64 now_ms = lh_wall_ms(manager->env);
    assert_int_equal(n_keys(lab, "events/"), 0); /* not in the decision's transaction */
    pass(lab, 2500);
    Told told = what_was_told(lab, NULL);
    assert_int_equal(told.n, 1);
    assert_int_equal(told.count, 1);
    assert_string_equal(told.message, "for snap-00000");
    assert_string_equal(told.object, "replicas/snap-00000.default.0");
    /* When it was, not when it is written. */
    assert_true(told.time <= now_ms);
    assert_true(told.time >= now_ms - 1000);
    assert_int_equal(g_hash_table_size(told.of_lease), 1);
    assert_false(g_hash_table_contains(told.of_lease, &(gint64){0}));
    told_clear(&told);
    /* The lease is nobody's but the events': an hour later they are gone. */
    pass(lab, 3700 * 1000);
    assert_int_equal(n_keys(lab, "events/"), 0);
    lab_free(lab);
}

static void what_is_repeated_is_counted(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(2, &manager);

    for (guint i = 0; i < 20; i++) {
        publish(lab, 0, 1);
        pass(lab, 5000);
        unpublish(lab, 0, 1);
        pass(lab, 5000);
    }
    Told created = what_was_told(lab, "ReplicaCreated"),
         deleted = what_was_told(lab, "ReplicaDeleted");
    assert_int_equal(created.n, 1);
    assert_int_equal(created.count, 20);
    assert_int_equal(deleted.n, 1);
    assert_int_equal(deleted.count, 20);
    told_clear(&created);
    told_clear(&deleted);
    /* After ten minutes it is another event. */
    pass(lab, 500 * 1000);
    publish(lab, 0, 1);
    pass(lab, 5000);
    created = what_was_told(lab, "ReplicaCreated");
    assert_int_equal(created.n, 2);
    assert_int_equal(created.count, 21);
    told_clear(&created);
    lab_free(lab);
}

static void many_are_limited(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(3, &manager);
    guint before;

    publish(lab, 0, 1000);
    wait_for(lab, quiet, 2000);
    pass(lab, 900);
    for (guint i = 0; i < 10; i++) { /* at most so many in a second */
        before = lab->events;
        pass(lab, 1000);
        assert_true(lab->events - before <= 120);
    }
    assert_int_equal(n_keys(lab, "events/"), 150); /* the others were dropped */
    pass(lab, 20000);
    assert_int_equal(n_keys(lab, "events/"), 150);
    lab_free(lab);
}

/* However much goes well at the same time. */
static void warnings_have_room(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(3, &manager);

    publish(lab, 0, 1000);
    wait_for(lab, quiet, 2000);
    assert_int_equal(n_keys(lab, "events/"), 0); /* all of it is still to be told */
    script.warnings = TRUE;
    publish(lab, 1000, 30);
    wait_for(lab, quiet, 2000);
    pass(lab, 20000);
    assert_int_equal(n_keys(lab, "events/"), 180);
    lab_free(lab);
}

static void a_lease_holds_at_most_a_thousand(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(4, &manager);

    for (guint i = 0; i < 60; i++) {
        publish(lab, i * 50, 50);
        pass(lab, 2000);
    }
    pass(lab, 10000);
    Told told = what_was_told(lab, NULL);
    assert_int_equal(told.n, 3000);
    assert_true(told.most <= 1000);
    assert_in_range(g_hash_table_size(told.of_lease), 3, 5);
    told_clear(&told);
    lab_free(lab);
}

static void a_young_lease_for_what_is_young(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(5, &manager);

    publish(lab, 0, 1);
    pass(lab, 3500 * 1000);
    publish(lab, 1, 1);
    pass(lab, 200 * 1000); /* the first lease has run out, the second event lives */
    Told told = what_was_told(lab, NULL);
    assert_int_equal(told.n, 1);
    assert_string_equal(told.object, "replicas/snap-00001.default.0");
    told_clear(&told);
    lab_free(lab);
}

/* Whoever leads no more tells nothing: what it had to say is dropped, and the fence holds the rest. */
static void a_past_leader_tells_nothing(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(6, &manager);

    lab_manager(lab, "m1");
    pass(lab, 1000);
    publish(lab, 0, 10);
    wait_for(lab, quiet, 1000);
    g_autofree char *key = leader_key(manager);
    fake_etcd_delete(lab->server, key, NULL);
    pass(lab, 10000);
    assert_int_equal(n_keys(lab, "events/"), 0);
    publish(lab, 10, 10); /* the other one does */
    pass(lab, 10000);
    assert_int_equal(n_keys(lab, "events/"), 10);
    lab_free(lab);
}

/* Events' leases are gone: after one loss it goes on with another lease, for what is counted too. */
static void a_lost_lease_is_replaced(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(7, &manager);

    publish(lab, 0, 1);
    pass(lab, 3000);
    Told told = what_was_told(lab, NULL);
    GHashTableIter iter;
    gpointer lease;
    g_hash_table_iter_init(&iter, told.of_lease);
    assert_true(g_hash_table_iter_next(&iter, &lease, NULL));
    assert_true(fake_etcd_revoke(lab->server, *(gint64 *)lease));
    told_clear(&told);
    guint64 grants = fake_etcd_stats(lab->server)->grants;
    for (guint i = 0; i < 5; i++) {
        unpublish(lab, 0, 1);
        pass(lab, 3000);
        publish(lab, 0, 1);
        pass(lab, 3000);
    }
    Told created = what_was_told(lab, "ReplicaCreated");
    assert_int_equal(created.n, 1);
    assert_int_equal(created.count, 6);
    assert_int_equal(fake_etcd_stats(lab->server)->grants, grants + 1);
    told_clear(&created);
    lab_free(lab);
}

static FakeFault no_space_for_puts(G_GNUC_UNUSED Tap *tap, const LhTxnRequest *request)
{
    return request->success[0].type == LH_TXN_DELETE ? FAKE_FAULT_NONE : FAKE_FAULT_OVERLOADED;
}

/* No lease to be had for a quarter of an hour, while the same event comes again and again. */
static void what_waits_for_a_lease_may_come_again(void **state)
{
    Manager *manager;
    Lab *lab = lab_with_events(8, &manager);

    script.events = FALSE;
    publish(lab, 0, 40);
    wait_for(lab, quiet, 1000);
    script.events = TRUE;
    fake_etcd_set_nospace(lab->server, TRUE, 0); /* deletions go through, grants do not */
    manager->tap->fault = no_space_for_puts;
    for (guint i = 0; i < 20; i++) {
        unpublish(lab, i, 1);
        pass(lab, 60 * 1000);
    }
    assert_int_equal(n_keys(lab, "decided/replicas/"), 20);
    fake_etcd_set_nospace(lab->server, FALSE, 0);
    manager->tap->fault = NULL;
    unpublish(lab, 20, 1);
    pass(lab, 5000);
    Told told = what_was_told(lab, NULL);
    assert_int_equal(told.n, 1);
    assert_int_equal(told.count, 21);
    told_clear(&told);
    lab_free(lab);
}

static void it_can_be_freed_with_events_on_their_way(void **state)
{
    for (guint ms = 0; ms < 40; ms++) {
        Manager *manager;
        Lab *lab = lab_with_events(9, &manager);
        publish(lab, 0, 300);
        pass(lab, 1045 + ms);
        manager_crash(manager);
        pass(lab, 10000);
        lab_free(lab);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_told_once_committed),
        cmocka_unit_test(what_is_repeated_is_counted),
        cmocka_unit_test(many_are_limited),
        cmocka_unit_test(warnings_have_room),
        cmocka_unit_test(a_lease_holds_at_most_a_thousand),
        cmocka_unit_test(a_young_lease_for_what_is_young),
        cmocka_unit_test(a_past_leader_tells_nothing),
        cmocka_unit_test(a_lost_lease_is_replaced),
        cmocka_unit_test(what_waits_for_a_lease_may_come_again),
        cmocka_unit_test(it_can_be_freed_with_events_on_their_way),
    };

    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}

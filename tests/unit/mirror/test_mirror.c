/* links: fakes */
/*
 * mirror/mirror: etcd's state at one revision, told in order, through a list and a watch that go well.
 * What happens when they do not is test_resync.c's.
 */
#include "lab.h"

static void the_first_list_is_told_and_applied_once(void **state)
{
    Lab lab = lab_new(1, NULL);
    gint64 a = put_snapshot(&lab, "a", 1), b = put_snapshot(&lab, "b", 2);

    assert_int_equal(lh_mirror_revision(lab.mirror), 0);
    assert_false(lh_mirror_synced(lab.mirror));
    assert_int_equal(lh_mirror_staleness_ms(lab.mirror), 0);
    lab_start(&lab);
    assert_int_equal(lab.told->len, 0); /* never inside the call */
    pass(&lab, 100);
    g_autofree char *wanted = g_strdup_printf(
        "+snapshots/a@%" G_GINT64_FORMAT " +snapshots/b@%" G_GINT64_FORMAT " =%" G_GINT64_FORMAT, a,
        b, b);
    expect_told(&lab, wanted);
    assert_true(lh_mirror_synced(lab.mirror));
    assert_int_equal(lh_mirror_cluster_id(lab.mirror), fake_etcd_cluster_id(lab.server));
    check_agrees(&lab);
    lab_free(&lab);
}

static void an_empty_etcd_is_applied_too(void **state)
{
    Lab lab = lab_new(2, NULL);

    lab_start(&lab);
    pass(&lab, 100);
    expect_told(&lab, "=1");
    assert_true(lh_mirror_synced(lab.mirror));
    lab_free(&lab);
}

static void changes_are_watched(void **state)
{
    Lab lab = lab_new(3, NULL);

    lab_start(&lab);
    pass(&lab, 100);
    expect_told(&lab, "=1");
    put_snapshot(&lab, "a", 1);
    pass(&lab, 100);
    expect_told(&lab, "+snapshots/a@2 =2");
    put_snapshot(&lab, "a", 2);
    pass(&lab, 100);
    expect_told(&lab, "~snapshots/a@3 =3");
    const LhSnapshot *a = (const LhSnapshot *)lh_mirror_get(lab.mirror, LH_KIND_SNAPSHOT, "a");
    assert_int_equal(a->size_bytes, 2);
    assert_int_equal(a->o.create_rev, 2);
    drop_key(&lab, "published/snapshots/a");
    pass(&lab, 100);
    expect_told(&lab, "-snapshots/a =4");
    assert_null(lh_mirror_get(lab.mirror, LH_KIND_SNAPSHOT, "a"));
    /* Outside the prefix nothing is heard, and a deletion of nothing is none. */
    fake_etcd_put(lab.server, "/leasehole/x", "1", 0);
    fake_etcd_put(lab.server, "/leasehold", "1", 0);
    pass(&lab, 100);
    expect_told(&lab, "");
    lab_free(&lab);
}

/* Deletes a range: many keys, one revision, in one applied. */
static void a_revision_is_applied_whole(void **state)
{
    FakeEtcdOptions options = {.fragment_events = 2};
    Lab lab = lab_new(4, &options);

    for (guint i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s%u", i);
        put_snapshot(&lab, name, 1);
    }
    lab_start(&lab);
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    fake_etcd_delete(lab.server, P "published/snapshots/", P "published/snapshots0");
    pass(&lab, 100);
    expect_told(&lab, "-snapshots/s0 -snapshots/s1 -snapshots/s2 -snapshots/s3 -snapshots/s4 =7");
    assert_true(fake_etcd_stats(lab.server)->fragments > 0);
    lab_free(&lab);
}

static void every_kind_is_typed(void **state)
{
    static const struct {
        LhKind kind;
        const char *name, *value;
    } rows[] = {
        {LH_KIND_SERVICE, "api-logs", "{\"spec\":{\"owner\":\"team\"}}"},
        {LH_KIND_SETTINGS, "cache-evictor", "{\"spec\":{\"paused\":true}}"},
        {LH_KIND_ACCEPTED, "services/api-logs", "{\"revision\":7,\"spec\":{\"owner\":\"team\"}}"},
        {LH_KIND_REPLICA, "snap-1.default.0",
         "{\"snapshot\":\"snap-1\",\"service\":\"api-logs\",\"set\":\"default\",\"expiresAt\":5}"},
        {LH_KIND_ASSIGNMENT, "cache/node-a-0123abcd/snap-1.default.0", "{\"action\":\"load\"}"},
        {LH_KIND_NODE, "cache/node-a-0123abcd", "{\"name\":\"node-a\"}"},
        {LH_KIND_ITEM, "cache/node-a-0123abcd/snap-1.default.0", "{\"state\":\"live\"}"},
        {LH_KIND_LEADER, "cache-evictor/0123456789abcdef", "{}"},
        {LH_KIND_EVENT, "0001", "{\"time\":1}"},
    };
    Lab lab = lab_new(5, NULL);

    lab_start(&lab);
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *key = lh_key(rows[i].kind, rows[i].name);
        if (i == 4)
            pass(&lab, 100); /* some are listed, some watched */
        put(&lab, key, rows[i].value);
    }
    pass(&lab, 100);
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        const LhObject *object = lh_mirror_get(lab.mirror, rows[i].kind, rows[i].name);
        assert_non_null(object);
        assert_true(lh_object_known(object));
        assert_int_equal(object->kind, rows[i].kind);
        assert_int_equal(lh_mirror_count(lab.mirror, rows[i].kind), 1);
        assert_int_equal(lh_mirror_invalid(lab.mirror, rows[i].kind), 0);
    }
    check_agrees(&lab);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_N_KINDS), 0);
    lab_free(&lab);
}

static void unknown_is_not_absent_and_is_counted(void **state)
{
    Lab lab = lab_new(6, NULL);

    put(&lab, "published/snapshots/bad", "{\"sizeBytes\":-1}");
    lab_start(&lab);
    pass(&lab, 100);
    expect_told(&lab, "+snapshots/bad@2 =2");
    put_snapshot(&lab, "good", 1);
    put(&lab, "published/snapshots/text", "no json");
    put(&lab, "published/snapshots/-name", "{}"); /* a known kind, but no valid name */
    put(&lab, "published/snapshots/", "{}");      /* a key without a name */
    pass(&lab, 100);
    assert_int_equal(lh_mirror_count(lab.mirror, LH_KIND_SNAPSHOT), 5);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_KIND_SNAPSHOT), 4);
    assert_false(lh_object_known(lh_mirror_get(lab.mirror, LH_KIND_SNAPSHOT, "bad")));
    /* good → unknown → good → gone */
    put(&lab, "published/snapshots/good", "[");
    pass(&lab, 100);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_KIND_SNAPSHOT), 5);
    assert_int_equal(lh_mirror_count(lab.mirror, LH_KIND_SNAPSHOT), 5);
    put_snapshot(&lab, "good", 1);
    put_snapshot(&lab, "bad", 1);
    drop_key(&lab, "published/snapshots/text");
    drop_key(&lab, "published/snapshots/-name");
    drop_key(&lab, "published/snapshots/");
    pass(&lab, 100);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_KIND_SNAPSHOT), 0);
    assert_int_equal(lh_mirror_count(lab.mirror, LH_KIND_SNAPSHOT), 2);
    check_agrees(&lab);
    lab_free(&lab);
}

static void keys_of_no_kind_are_counted_and_not_told(void **state)
{
    Lab lab = lab_new(7, NULL);

    put(&lab, "nonsense", "x");
    put(&lab, "desired/unheard/x", "x");
    lab_start(&lab);
    pass(&lab, 100);
    expect_told(&lab, "=3");
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_N_KINDS), 2);
    put(&lab, "published/", "x");
    put(&lab, "nonsense", "again");
    pass(&lab, 100);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_N_KINDS), 3);
    drop_key(&lab, "nonsense");
    drop_key(&lab, "published/");
    pass(&lab, 100);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_N_KINDS), 1);
    /* What became foreign while nobody watched is seen by the next list, and what went is gone. */
    fake_etcd_client_cut(lab.etcd, FAKE_CUT_BOTH);
    drop_key(&lab, "desired/unheard/x");
    put(&lab, "other", "x");
    put(&lab, "another", "x");
    fake_etcd_compact(lab.server, fake_etcd_revision(lab.server));
    pass(&lab, 30000);
    fake_etcd_client_cut(lab.etcd, FAKE_CUT_NONE);
    pass(&lab, 30000);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_N_KINDS), 2);
    lab_free(&lab);
}

static void append_name(const LhObject *object, gpointer data)
{
    g_string_append_printf(data, "%s ", object->name);
}

static void kinds_can_be_read(void **state)
{
    Lab lab = lab_new(8, NULL);
    g_autoptr(GString) names = g_string_new(NULL);

    put_snapshot(&lab, "c", 1);
    put_snapshot(&lab, "a", 1);
    put_snapshot(&lab, "b", 1);
    lab_start(&lab);
    pass(&lab, 100);
    GPtrArray *all = lh_mirror_list(lab.mirror, LH_KIND_SNAPSHOT);
    drop_key(&lab, "published/snapshots/b");
    pass(&lab, 100);
    /* The list keeps its objects alive. */
    assert_int_equal(all->len, 3);
    assert_string_equal(((const LhObject *)all->pdata[0])->name, "a");
    assert_string_equal(((const LhObject *)all->pdata[1])->name, "b");
    assert_string_equal(((const LhObject *)all->pdata[2])->name, "c");
    g_ptr_array_unref(all);
    lh_mirror_foreach(lab.mirror, LH_KIND_SNAPSHOT, append_name, names);
    assert_int_equal(names->len, 4);
    assert_string_equal(lh_mirror_prefix(lab.mirror), P);
    lab_free(&lab);
}

static void listeners_come_and_go(void **state)
{
    Lab lab = lab_new(9, NULL);
    Lab other = {.told = g_string_new(NULL), .mirror = lab.mirror};

    lab_start(&lab);
    lh_mirror_listen(lab.mirror, &lab_funcs, &other);
    pass(&lab, 100);
    assert_string_equal(other.told->str, "=1 ");
    lh_mirror_unlisten(lab.mirror, &lab_funcs, &other);
    put_snapshot(&lab, "a", 1);
    pass(&lab, 100);
    assert_string_equal(other.told->str, "=1 ");
    expect_told(&lab, "=1 +snapshots/a@2 =2");
    g_string_free(other.told, TRUE);
    lab_free(&lab);
}

static void replayed_inputs_need_no_etcd(void **state)
{
    g_autofree char *value = snapshot_value(1);
    Lab lab = {.told = g_string_new(NULL), .mirror = lh_mirror_new(NULL, NULL, P)};

    lh_mirror_listen(lab.mirror, &lab_funcs, &lab);
    lh_mirror_load(lab.mirror, "published/snapshots/a", value, strlen(value), 5, 6, 0);
    lh_mirror_load(lab.mirror, "published/snapshots/b", "bad", 3, 7, 7, 0);
    lh_mirror_load(lab.mirror, "published/snapshots/b", NULL, 0, 0, 8, 0);
    lh_mirror_loaded(lab.mirror, 9);
    expect_told(&lab, "+snapshots/a@6 +snapshots/b@7 -snapshots/b =9");
    assert_false(lh_mirror_synced(lab.mirror));
    assert_int_equal(lh_mirror_staleness_ms(lab.mirror), 0);
    lh_mirror_free(lab.mirror);
    g_string_free(lab.told, TRUE);
}

/* ---- keys that no operator could put into the fake ---- */

typedef struct {
    LhEtcd etcd; /* first */
    LhEnv *env;
    LhRangeFunc func;
    gpointer data;
    LhWatchReplyFunc on_reply;
    gpointer watch_data;
} Stub;

#define KEY(text) P text, sizeof(P text) - 1

static const LhKv strange[] = {
    {KEY("x/a"), "1", 1, 2, 2, 1, 0},
    {KEY("x\0a"), "1", 1, 3, 3, 1, 0},
    {KEY("x\0a\0"), "1", 1, 4, 4, 1, 0},
    {KEY("published/snapshots/a\0b"), "1", 1, 5, 5, 1, 0},
    {KEY("published/snapshots/a\xff"), "1", 1, 6, 6, 1, 0},
};

static const LhEtcdHeader stub_header = {.cluster_id = 1, .revision = 6};

static void stub_answer(gpointer data)
{
    Stub *stub = data;
    LhRangeReply reply = {
        .header = stub_header, .kvs = strange, .n_kvs = G_N_ELEMENTS(strange), .count = 5};

    stub->func(&reply, NULL, stub->data);
}

static LhCallId stub_range(LhEtcd *etcd, G_GNUC_UNUSED const LhRangeRequest *request,
                           G_GNUC_UNUSED gint64 deadline_ms, LhRangeFunc func, gpointer data)
{
    Stub *stub = (Stub *)etcd;

    stub->func = func;
    stub->data = data;
    lh_timer_in(stub->env, 1, stub_answer, stub);
    return 1;
}

static void stub_cancel(G_GNUC_UNUSED LhEtcd *etcd, G_GNUC_UNUSED LhCallId call)
{
}

static LhEtcdStream *stub_watch(LhEtcd *etcd, G_GNUC_UNUSED const LhWatchRequest *request,
                                LhWatchReplyFunc on_reply,
                                G_GNUC_UNUSED LhWatchClosedFunc on_closed, gpointer data)
{
    ((Stub *)etcd)->on_reply = on_reply;
    ((Stub *)etcd)->watch_data = data;
    return (LhEtcdStream *)etcd;
}

static void stub_watch_call(G_GNUC_UNUSED LhEtcd *etcd, G_GNUC_UNUSED LhEtcdStream *stream)
{
}

static const LhEtcdVtable stub_vtable = {.range = stub_range,
                                         .cancel = stub_cancel,
                                         .watch = stub_watch,
                                         .watch_progress = stub_watch_call,
                                         .watch_close = stub_watch_call};

/* A NUL parts keys that would be one string; each is a foreign key of its own. */
static void keys_with_nuls_are_keys_of_their_own(void **state)
{
    SimWorld *world = sim_world_new(10);
    Stub stub = {.etcd = {&stub_vtable}, .env = sim_machine_new(world, "m")};
    LhMirror *mirror = lh_mirror_new(stub.env, &stub.etcd, P);
    LhEtcdEvent gone = {.is_delete = TRUE, .kv = strange[1]};
    LhWatchReply reply = {.header = stub_header, .events = &gone, .n_events = 1};

    lh_mirror_start(mirror);
    sim_world_run_until(world, 10);
    assert_int_equal(lh_mirror_invalid(mirror, LH_N_KINDS), 4);
    assert_int_equal(lh_mirror_count(mirror, LH_KIND_SNAPSHOT), 1);
    assert_int_equal(lh_mirror_invalid(mirror, LH_KIND_SNAPSHOT), 1);
    gone.kv.mod_rev = 7;
    stub.on_reply(&reply, stub.watch_data);
    assert_int_equal(lh_mirror_invalid(mirror, LH_N_KINDS), 3);
    gone.kv = strange[3];
    gone.kv.mod_rev = 8;
    stub.on_reply(&reply, stub.watch_data);
    assert_int_equal(lh_mirror_invalid(mirror, LH_N_KINDS), 2);
    assert_int_equal(lh_mirror_count(mirror, LH_KIND_SNAPSHOT), 1);
    assert_int_equal(lh_mirror_revision(mirror), 8);
    lh_mirror_free(mirror);
    sim_world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_list_is_told_and_applied_once),
        cmocka_unit_test(an_empty_etcd_is_applied_too),
        cmocka_unit_test(changes_are_watched),
        cmocka_unit_test(a_revision_is_applied_whole),
        cmocka_unit_test(every_kind_is_typed),
        cmocka_unit_test(unknown_is_not_absent_and_is_counted),
        cmocka_unit_test(keys_of_no_kind_are_counted_and_not_told),
        cmocka_unit_test(keys_with_nuls_are_keys_of_their_own),
        cmocka_unit_test(kinds_can_be_read),
        cmocka_unit_test(listeners_come_and_go),
        cmocka_unit_test(replayed_inputs_need_no_etcd),
    };

    return cmocka_run_group_tests_name("mirror", tests, NULL, NULL);
}

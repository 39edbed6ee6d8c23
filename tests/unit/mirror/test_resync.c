/* links: fakes */
/*
 * mirror/mirror when the watch is lost: interruptions, compaction, restored backups, an unreachable etcd;
 * and being freed in the middle of anything.
 */
#include "lab.h"

/* The client is away for so long that all connections are given up. */
static void away(Lab *lab)
{
    fake_etcd_client_cut(lab->etcd, FAKE_CUT_BOTH);
    pass(lab, 30000);
}

static void back(Lab *lab)
{
    fake_etcd_client_cut(lab->etcd, FAKE_CUT_NONE);
    pass(lab, 30000);
}

static void an_interrupted_watch_resumes_where_it_was(void **state)
{
    Lab lab = lab_new(11, NULL);

    put_snapshot(&lab, "z", 1);
    lab_start(&lab);
    pass(&lab, 100);
    expect_told(&lab, "+snapshots/z@2 =2");
    for (guint i = 0; i < 3; i++) {
        fake_etcd_client_close_streams(lab.etcd);
        put_snapshot(&lab, "a", i);
        put_snapshot(&lab, "a", i);
        pass(&lab, 5); /* heard of, not yet open again */
        assert_false(lh_mirror_synced(lab.mirror));
        pass(&lab, 10000);
        assert_true(lh_mirror_synced(lab.mirror));
    }
    expect_told(&lab, "+snapshots/a@3 ~snapshots/a@4 =4 ~snapshots/a@5 ~snapshots/a@6 =6 "
                      "~snapshots/a@7 ~snapshots/a@8 =8");
    /* Never listed again: what the list showed is read for the first two streams, then what was heard. */
    assert_int_equal(fake_etcd_stats(lab.server)->ranges, 1 + 1 + 1 + 2 + 3);
    lab_free(&lab);
}

/* What is written while the list is on its way, before the watch is open, is in one or the other. */
static void nothing_is_missed_between_list_and_watch(void **state)
{
    for (guint64 seed = 30; seed < 40; seed++) {
        Lab lab = lab_new(seed, NULL);
        lab_start(&lab);
        for (guint i = 0; i < 20; i++) {
            g_autofree char *name = g_strdup_printf("s%u", i);
            put_snapshot(&lab, name, 1);
            pass(&lab, 1);
        }
        pass(&lab, 100);
        check_agrees(&lab);
        assert_int_equal(lh_mirror_revision(lab.mirror), 21);
        lab_free(&lab);
    }
}

static void after_a_compaction_only_differences_are_told(void **state)
{
    Lab lab = lab_new(12, NULL);

    put_snapshot(&lab, "same", 1);
    put_snapshot(&lab, "edited", 1);
    put_snapshot(&lab, "gone", 1);
    put_snapshot(&lab, "replaced", 1);
    put(&lab, "published/snapshots/bad", "bad");
    put(&lab, "published/snapshots/mended", "bad");
    lab_start(&lab);
    pass(&lab, 100);
    const LhObject *same = lh_mirror_get(lab.mirror, LH_KIND_SNAPSHOT, "same");
    g_string_truncate(lab.told, 0);
    away(&lab);
    put_snapshot(&lab, "edited", 2);
    drop_key(&lab, "published/snapshots/gone");
    drop_key(&lab, "published/snapshots/replaced");
    put_snapshot(&lab, "replaced", 2);
    put_snapshot(&lab, "mended", 1);
    put_snapshot(&lab, "new", 1);
    put_snapshot(&lab, "never seen", 1);
    drop_key(&lab, "published/snapshots/never seen");
    assert_true(fake_etcd_compact(lab.server, fake_etcd_revision(lab.server)));
    back(&lab);
    expect_told(&lab,
                "~snapshots/edited@8 ~snapshots/mended@12 +snapshots/new@13 ~snapshots/replaced@11 "
                "-snapshots/gone =15");
    assert_ptr_equal(lh_mirror_get(lab.mirror, LH_KIND_SNAPSHOT, "same"), same);
    assert_int_equal(lh_mirror_invalid(lab.mirror, LH_KIND_SNAPSHOT), 1);
    check_agrees(&lab);
    /* And it watches on. */
    put_snapshot(&lab, "new", 2);
    pass(&lab, 100);
    expect_told(&lab, "~snapshots/new@16 =16");
    lab_free(&lab);
}

/* Three pages: the third is asked for when the first has been told. */
#define MANY        15000
#define VALUE_BYTES 8000

typedef struct {
    Lab *lab;
    GHashTable *names; /* as told */
    guint told, applied;
} First;

static void first_change(const LhObject *before, const LhObject *after, gpointer data)
{
    First *first = data;
    const LhObject *object = after != NULL ? after : before;

    first->told++;
    assert_int_equal(before != NULL, g_hash_table_contains(first->names, object->name));
    if (after == NULL)
        g_hash_table_remove(first->names, object->name);
    else
        g_hash_table_add(first->names, g_strdup(object->name));
    assert_ptr_equal(lh_mirror_get(first->lab->mirror, LH_KIND_SNAPSHOT, object->name), after);
}

static void first_applied(G_GNUC_UNUSED gint64 revision, gpointer data)
{
    ((First *)data)->applied++;
}

/* What was told of a list that did not end is taken back where it no longer holds. */
static void a_first_list_that_begins_again_is_mended(void **state)
{
    static const LhMirrorFuncs funcs = {.change = first_change, .applied = first_applied};
    Lab lab = lab_new(19, NULL);
    First first = {.lab = &lab,
                   .names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL)};

    for (guint i = 0; i < MANY; i++) {
        g_autofree char *key = g_strdup_printf("published/snapshots/s%05u", i);
        g_autofree char *value = snapshot_value(1),
                        *padded = g_strdup_printf("%-*s", VALUE_BYTES, value);
        put(&lab, key, padded);
    }
    lh_mirror_unlisten(lab.mirror, &lab_funcs, &lab);
    lh_mirror_listen(lab.mirror, &funcs, &first);
    lh_mirror_start(lab.mirror);
    while (first.told == 0) {
        assert_true(sim_world_step(lab.world));
        assert_int_equal(lh_mirror_revision(lab.mirror), 0);
        assert_int_equal(lh_mirror_count(lab.mirror, LH_KIND_SNAPSHOT), 0);
    }
    assert_null(lh_mirror_get(lab.mirror, LH_KIND_SNAPSHOT, "s00000"));
    drop_key(&lab, "published/snapshots/s00000");
    put_snapshot(&lab, "s00001", 2);
    assert_true(fake_etcd_compact(lab.server, fake_etcd_revision(lab.server)));
    pass(&lab, 5000);
    assert_int_equal(first.applied, 1);
    assert_int_equal(lh_mirror_count(lab.mirror, LH_KIND_SNAPSHOT), MANY - 1);
    assert_int_equal(g_hash_table_size(first.names), MANY - 1);
    assert_false(g_hash_table_contains(first.names, "s00000"));
    check_agrees(&lab);
    lh_mirror_unlisten(lab.mirror, &funcs, &first);
    g_hash_table_unref(first.names);
    lab_free(&lab);
}

static void a_restored_backup_is_told_and_parsed_again(void **state)
{
    Lab lab = lab_new(13, NULL);

    put_snapshot(&lab, "old", 1); /* 2 */
    lab_start(&lab);
    pass(&lab, 100);
    FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
    put_snapshot(&lab, "a", 1);   /* 3 */
    put_snapshot(&lab, "b", 1);   /* 4 */
    put_snapshot(&lab, "old", 2); /* 5 */
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    fake_etcd_restore(lab.server, backup);
    put_snapshot(&lab, "a", 7); /* 3 again, and another value */
    pass(&lab, 30000);
    expect_told(&lab, "!5>3 ~snapshots/a@3 ~snapshots/old@2 -snapshots/b =3");
    const LhSnapshot *a = (const LhSnapshot *)lh_mirror_get(lab.mirror, LH_KIND_SNAPSHOT, "a");
    assert_int_equal(a->size_bytes, 7);
    check_agrees(&lab);
    assert_int_equal(lh_mirror_revision(lab.mirror), 3);
    fake_etcd_backup_free(backup);
    lab_free(&lab);
}

/* The mirror hears nothing until etcd's revision has passed its own and all before is compacted. */
static void restore_unheard(Lab *lab, FakeEtcdBackup *backup, const char *first)
{
    fake_etcd_client_cut(lab->etcd, FAKE_CUT_BOTH);
    fake_etcd_restore(lab->server, backup);
    fake_etcd_backup_free(backup);
    for (guint i = 0; i < 5; i++)
        put_snapshot(lab, i == 0 ? first : "b", 100 + i);
    assert_true(fake_etcd_compact(lab->server, fake_etcd_revision(lab->server)));
    pass(lab, 100);
    fake_etcd_client_cut(lab->etcd, FAKE_CUT_NONE);
    fake_etcd_client_reset(lab->etcd);
    pass(lab, 30000);
}

/* No revision goes back, but what was put and deleted is there again; then an older value; then a key whose
 * value is another at the same revision. */
static void a_restore_that_was_overtaken_is_told(void **state)
{
    for (guint how = 0; how < 3; how++) {
        Lab lab = lab_new(16, NULL);
        put_snapshot(&lab, "a", 1); /* 2 */
        put_snapshot(&lab, "b", 1); /* 3 */
        lab_start(&lab);
        pass(&lab, 100);
        FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
        if (how == 0)
            drop_key(&lab, "published/snapshots/a"); /* 4 */
        else
            put_snapshot(&lab, how == 1 ? "a" : "c", 2); /* 4 */
        pass(&lab, 100);
        g_string_truncate(lab.told, 0);
        restore_unheard(&lab, backup, how == 2 ? "c" : "b");
        if (how == 0)
            expect_told(&lab, "!4>8 +snapshots/a@2 ~snapshots/b@8 =8");
        else if (how == 1)
            expect_told(&lab, "!4>8 ~snapshots/a@2 ~snapshots/b@8 =8");
        else
            expect_told(&lab, "!4>8 ~snapshots/b@8 ~snapshots/c@4 =8");
        check_agrees(&lab);
        lab_free(&lab);
    }
}

/* The client is cut off, etcd goes back to @backup, and others write until the mirror's revision has passed;
 * nothing is compacted. */
static void restore_and_overtake(Lab *lab, FakeEtcdBackup *backup, const char *const *keys)
{
    fake_etcd_client_cut(lab->etcd, FAKE_CUT_BOTH);
    fake_etcd_restore(lab->server, backup);
    fake_etcd_backup_free(backup);
    for (guint i = 0; keys[i] != NULL; i++)
        put_snapshot(lab, keys[i], 100 + i);
    fake_etcd_client_cut(lab->etcd, FAKE_CUT_NONE);
    fake_etcd_client_reset(lab->etcd);
    pass(lab, 30000);
}

/* In both histories the mirror's last revision is a put of the same key, with the same number of puts before
 * it: only the value differs. */
static void a_restore_that_wrote_the_same_key_is_seen(void **state)
{
    static const char *const keys[] = {"b", "c", "d", NULL};
    Lab lab = lab_new(21, NULL);

    put_snapshot(&lab, "a", 1); /* 2 */
    lab_start(&lab);
    pass(&lab, 100);
    FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
    drop_key(&lab, "published/snapshots/a"); /* 3 */
    put_snapshot(&lab, "c", 1);              /* 4 */
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    restore_and_overtake(&lab, backup, keys);
    expect_told(&lab, "!4>5 +snapshots/a@2 +snapshots/b@3 ~snapshots/c@4 +snapshots/d@5 =5");
    check_agrees(&lab);
    lab_free(&lab);
}

/* … the same value, too, and what was put before it has been put again since: no list shows the difference,
 * but the revision before the last does. */
static void a_restore_that_wrote_the_same_value_is_seen(void **state)
{
    static const char *const keys[] = {"b", "c", "b", NULL};
    Lab lab = lab_new(22, NULL);

    put_snapshot(&lab, "a", 1); /* 2 */
    put_snapshot(&lab, "b", 1); /* 3 */
    lab_start(&lab);
    pass(&lab, 100);
    FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
    put_snapshot(&lab, "b", 7);   /* 4 */
    put_snapshot(&lab, "c", 101); /* 5 */
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    restore_and_overtake(&lab, backup, keys);
    expect_told(&lab, "!5>6 ~snapshots/b@6 =6");
    check_agrees(&lab);
    lab_free(&lab);
}

/* The list showed nothing, so nothing can be looked up. */
static void a_restore_after_an_empty_list_is_seen(void **state)
{
    static const char *const keys[] = {"b", "c", NULL};
    Lab lab = lab_new(23, NULL);

    put_snapshot(&lab, "a", 1); /* 2 */
    FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
    drop_key(&lab, "published/snapshots/a"); /* 3 */
    lab_start(&lab);
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    restore_and_overtake(&lab, backup, keys);
    expect_told(&lab, "!3>4 +snapshots/a@2 +snapshots/b@3 +snapshots/c@4 =4");
    check_agrees(&lab);
    lab_free(&lab);
}

/* Progress moved the mirror's revision over writes elsewhere; the other history has its own there. */
static void a_restore_below_the_progress_is_seen(void **state)
{
    static const char *const keys[] = {"b", "c", "d", "e", NULL};
    Lab lab = lab_new(24, NULL);

    put_snapshot(&lab, "a", 1); /* 2 */
    lh_mirror_set_version(lab.mirror, "3.5.21");
    lab_start(&lab);
    pass(&lab, 100);
    put_snapshot(&lab, "a", 2); /* 3 */
    FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
    fake_etcd_put(lab.server, "elsewhere", "x", 0);
    fake_etcd_put(lab.server, "elsewhere", "x", 0);
    pass(&lab, 60000);
    assert_int_equal(lh_mirror_revision(lab.mirror), 5);
    g_string_truncate(lab.told, 0);
    restore_and_overtake(&lab, backup, keys);
    expect_told(&lab, "!5>7 +snapshots/b@4 +snapshots/c@5 +snapshots/d@6 +snapshots/e@7 =7");
    check_agrees(&lab);
    lab_free(&lab);
}

/* Before the first event after a list: what the list does not show is the last deletion, and what tells it
 * from another history may be compacted there. */
static void a_restore_just_after_a_list_is_seen(void **state)
{
    for (guint compacted = 0; compacted < 2; compacted++) {
        Lab lab = lab_new(18, NULL);
        put_snapshot(&lab, "a", 1); /* 2 */
        put_snapshot(&lab, "b", 1); /* 3 */
        FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
        if (compacted)
            put_snapshot(&lab, "c", 1); /* 4 */
        else
            drop_key(&lab, "published/snapshots/a"); /* 4 */
        lab_start(&lab);
        pass(&lab, 100);
        g_string_truncate(lab.told, 0);
        fake_etcd_client_cut(lab.etcd, FAKE_CUT_BOTH);
        fake_etcd_restore(lab.server, backup);
        fake_etcd_backup_free(backup);
        for (guint i = 0; i < 5; i++)
            put_snapshot(&lab, "b", 100 + i);
        if (compacted)
            assert_true(fake_etcd_compact(lab.server, 5));
        fake_etcd_client_cut(lab.etcd, FAKE_CUT_NONE);
        fake_etcd_client_reset(lab.etcd);
        pass(&lab, 30000);
        expect_told(&lab, compacted ? "~snapshots/b@8 -snapshots/c =8"
                                    : "!4>8 +snapshots/a@2 ~snapshots/b@8 =8");
        check_agrees(&lab);
        lab_free(&lab);
    }
}

/* What was written and compacted meanwhile is no other history. */
static void a_compaction_is_not_told_as_regressed(void **state)
{
    Lab lab = lab_new(17, NULL);

    put_snapshot(&lab, "a", 1); /* 2 */
    put_snapshot(&lab, "b", 1); /* 3 */
    lab_start(&lab);
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    fake_etcd_client_cut(lab.etcd, FAKE_CUT_BOTH);
    drop_key(&lab, "published/snapshots/a"); /* 4 */
    put_snapshot(&lab, "b", 2);              /* 5 */
    put_snapshot(&lab, "c", 1);              /* 6 */
    assert_true(fake_etcd_compact(lab.server, fake_etcd_revision(lab.server)));
    pass(&lab, 100);
    fake_etcd_client_cut(lab.etcd, FAKE_CUT_NONE);
    fake_etcd_client_reset(lab.etcd);
    pass(&lab, 30000);
    expect_told(&lab, "~snapshots/b@5 +snapshots/c@6 -snapshots/a =6");
    lab_free(&lab);
}

static void another_cluster_is_told_as_regressed(void **state)
{
    Lab lab = lab_new(14, NULL);

    put_snapshot(&lab, "a", 1);
    lab_start(&lab);
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    fake_etcd_set_cluster_id(lab.server, 4711);
    fake_etcd_client_close_streams(lab.etcd);
    pass(&lab, 30000);
    expect_told(&lab, "!2>2 =2");
    assert_int_equal(lh_mirror_cluster_id(lab.mirror), 4711);
    lab_free(&lab);
}

/* Who has proof that etcd went back says so, and it counts, even if etcd has caught up by the list. */
static void a_mirror_in_doubt_lists_and_tells(void **state)
{
    Lab lab = lab_new(15, NULL);

    put_snapshot(&lab, "a", 1);
    lab_start(&lab);
    pass(&lab, 100);
    g_string_truncate(lab.told, 0);
    assert_false(lh_mirror_in_doubt(lab.mirror));
    lh_mirror_doubt(lab.mirror);
    lh_mirror_doubt(lab.mirror); /* one list */
    assert_true(lh_mirror_in_doubt(lab.mirror));
    expect_told(&lab, "");
    pass(&lab, 30000);
    expect_told(&lab, "!2>2 =2");
    assert_false(lh_mirror_in_doubt(lab.mirror));
    put_snapshot(&lab, "b", 1);
    pass(&lab, 100);
    check_agrees(&lab);
    lab_free(&lab);
}

static void on_lease(gint64 lease, G_GNUC_UNUSED gint64 ttl_s, const GError *error, gpointer data)
{
    assert_null(error);
    *(gint64 *)data = lease;
}

/* Revisions and value coincide after the restore, the lease does not. */
static void the_lease_of_a_key_is_part_of_it(void **state)
{
    static const char key[] = P "leaders/admission/0000000000000001";
    Lab lab = lab_new(15, NULL);
    gint64 lease = 0;

    lab.etcd->v->lease_grant(lab.etcd, 600, 5000, on_lease, &lease);
    pass(&lab, 100);
    FakeEtcdBackup *backup = fake_etcd_backup(lab.server);
    fake_etcd_put(lab.server, key, "{}", 0);
    fake_etcd_put(lab.server, P "published/x", "", 0);
    lab_start(&lab);
    pass(&lab, 100);
    fake_etcd_restore(lab.server, backup);
    fake_etcd_put(lab.server, key, "{}", lease);
    pass(&lab, 30000);
    expect_told(&lab, "+leaders/admission/0000000000000001@2 =3 !3>2 "
                      "~leaders/admission/0000000000000001@2 =2");
    assert_int_equal(
        lh_object_lease(lh_mirror_get(lab.mirror, LH_KIND_LEADER, "admission/0000000000000001")),
        lease);
    fake_etcd_backup_free(backup);
    lab_free(&lab);
}

static void an_etcd_that_is_away_at_start_is_waited_for(void **state)
{
    Lab lab = lab_new(16, NULL);

    put_snapshot(&lab, "a", 1);
    fake_etcd_stop(lab.server);
    lab_start(&lab);
    pass(&lab, 60000);
    expect_told(&lab, "");
    assert_int_equal(lh_mirror_revision(lab.mirror), 0);
    assert_int_equal(lh_mirror_staleness_ms(lab.mirror), 0);
    fake_etcd_start(lab.server);
    pass(&lab, 15000);
    expect_told(&lab, "+snapshots/a@2 =2");
    assert_true(lh_mirror_synced(lab.mirror));
    lab_free(&lab);
}

static void progress_counts_when_etcd_can_be_trusted_with_it(void **state)
{
    static const char *const versions[] = {"3.4.23", "3.5.21"};
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(versions); i++) {
        Lab lab = lab_new(20, NULL);
        lh_mirror_set_version(lab.mirror, versions[i]);
        lab_start(&lab);
        pass(&lab, 100);
        gint64 listed = lh_mirror_revision(lab.mirror);
        fake_etcd_put(lab.server, "elsewhere", "x", 0);
        pass(&lab, 60000);
        assert_int_equal(lh_mirror_revision(lab.mirror),
                         i == 0 ? listed : fake_etcd_revision(lab.server));
        lab_free(&lab);
    }
}

static void staleness_grows_while_nothing_is_heard(void **state)
{
    Lab lab = lab_new(17, NULL);

    lab_start(&lab);
    for (guint i = 0; i < 20; i++) {
        pass(&lab, 1000); /* progress is asked for: quiet is not stale */
        assert_in_range(lh_mirror_staleness_ms(lab.mirror), 0, 5100);
    }
    fake_etcd_freeze(lab.server);
    pass(&lab, 30000);
    assert_in_range(lh_mirror_staleness_ms(lab.mirror), 29900, 35100);
    fake_etcd_thaw(lab.server);
    pass(&lab, 10000);
    assert_in_range(lh_mirror_staleness_ms(lab.mirror), 0, 5100);
    /* And while it has to list again, with no watch at all. */
    fake_etcd_client_cut(lab.etcd, FAKE_CUT_BOTH);
    put_snapshot(&lab, "a", 1);
    fake_etcd_compact(lab.server, fake_etcd_revision(lab.server));
    pass(&lab, 30000);
    assert_in_range(lh_mirror_staleness_ms(lab.mirror), 29900, 35100);
    lab_free(&lab);
}

/* Runs one timer after the other and frees the mirror after @steps of them. */
static gboolean freed_after(guint64 seed, guint steps)
{
    FakeEtcdOptions options = {.fragment_events = 2};
    Lab lab = lab_new(seed, &options);
    gboolean more = TRUE;

    for (guint i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s%u", i);
        put_snapshot(&lab, name, 1);
    }
    lab_start(&lab);
    for (guint i = 0; i < steps && more; i++) {
        if (i == 40)
            fake_etcd_client_close_streams(lab.etcd);
        if (i == 60)
            fake_etcd_delete(lab.server, P "published/snapshots/", P "published/snapshots0");
        if (i == 80) {
            fake_etcd_client_close_streams(lab.etcd);
            put_snapshot(&lab, "late", 1);
            fake_etcd_compact(lab.server, fake_etcd_revision(lab.server));
        }
        if (i == 100)
            fake_etcd_stop(lab.server);
        if (i == 140)
            fake_etcd_start(lab.server);
        more = sim_world_step(lab.world);
    }
    lab_drop(&lab);
    pass(&lab, 60000); /* nothing fires any more */
    lab_free(&lab);
    return more;
}

static void it_can_be_freed_at_any_step(void **state)
{
    for (guint steps = 0; steps < 200; steps++)
        freed_after(100 + steps % 3, steps);
    lh_mirror_free(NULL);
}

static void free_inside(guint64 seed, gboolean at_change, gboolean watched, gboolean relisted)
{
    Lab lab = lab_new(seed, NULL);

    put_snapshot(&lab, "a", 1);
    put_snapshot(&lab, "b", 1);
    lab_start(&lab);
    if (watched || relisted)
        pass(&lab, 100);
    if (relisted)
        away(&lab);
    lab.free_at_change = at_change;
    lab.free_at_applied = !at_change;
    fake_etcd_delete(lab.server, P "published/snapshots/", P "published/snapshots0");
    put_snapshot(&lab, "c", 1);
    put_snapshot(&lab, "d", 1);
    if (relisted) {
        fake_etcd_compact(lab.server, fake_etcd_revision(lab.server));
        back(&lab);
    }
    pass(&lab, 1000);
    assert_null(lab.mirror);
    lab_free(&lab);
}

static void it_can_be_freed_inside_its_callbacks(void **state)
{
    for (guint at_change = 0; at_change < 2; at_change++) {
        free_inside(20, at_change, FALSE, FALSE);
        free_inside(21, at_change, TRUE, FALSE);
        free_inside(22, at_change, FALSE, TRUE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupted_watch_resumes_where_it_was),
        cmocka_unit_test(nothing_is_missed_between_list_and_watch),
        cmocka_unit_test(after_a_compaction_only_differences_are_told),
        cmocka_unit_test(a_first_list_that_begins_again_is_mended),
        cmocka_unit_test(a_restored_backup_is_told_and_parsed_again),
        cmocka_unit_test(a_restore_that_was_overtaken_is_told),
        cmocka_unit_test(a_restore_that_wrote_the_same_key_is_seen),
        cmocka_unit_test(a_restore_that_wrote_the_same_value_is_seen),
        cmocka_unit_test(a_restore_after_an_empty_list_is_seen),
        cmocka_unit_test(a_restore_below_the_progress_is_seen),
        cmocka_unit_test(a_restore_just_after_a_list_is_seen),
        cmocka_unit_test(a_compaction_is_not_told_as_regressed),
        cmocka_unit_test(another_cluster_is_told_as_regressed),
        cmocka_unit_test(a_mirror_in_doubt_lists_and_tells),
        cmocka_unit_test(the_lease_of_a_key_is_part_of_it),
        cmocka_unit_test(an_etcd_that_is_away_at_start_is_waited_for),
        cmocka_unit_test(progress_counts_when_etcd_can_be_trusted_with_it),
        cmocka_unit_test(staleness_grows_while_nothing_is_heard),
        cmocka_unit_test(it_can_be_freed_at_any_step),
        cmocka_unit_test(it_can_be_freed_inside_its_callbacks),
    };

    return cmocka_run_group_tests_name("resync", tests, NULL, NULL);
}

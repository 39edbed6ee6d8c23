/*
 * snapshot-cleaner with real processes: data is deleted in its order and to the last object, over a killed
 * leader too; what nobody knows is found; and everything that should hold it back does. Swift and files.
 */
#include "harness.h"
#include "objectstore/objectstore.h"
#include "s3_snapshots.h"
#include "tests/fakes/s3_process.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#define BUCKET "snapshots"
#define HOUR   3600000
#define DAY    (24 * HOUR)

static S3Process *swift;

/* ---- roots ---- */

static Proc *manager_with(World *world, const char *name, const char *root, const char *more,
                          const char *value)
{
    const char *const extra[] = {"--object-store-roots", root, more, value, NULL};
    return manager_start(world, name, extra);
}

static Proc *manager_on_files(World *world, const char *name)
{
    g_autofree char *root = g_strdup_printf("file://%s/", world->objects);
    return manager_with(world, name, root, NULL, NULL);
}

static void put_service(World *world, const char *name, const char *window, const char *retention)
{
    g_autofree char *key = g_strconcat("desired/services/", name, NULL);
    world_putf(world, key,
               "{\"spec\":{\"owner\":\"a\",\"retention\":\"%s\",\"cache\":{\"window\":\"%s\"}}}",
               retention, window);
}

static void put_settings(World *world, const char *more)
{
    world_putf(world, "desired/settings/snapshot-cleaner", "{\"spec\":{\"buffer\":\"0s\"%s}}",
               more);
}

/* @n snapshots of a day ago. */
static void publish_old(World *world, const char *service, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s-%02u", service, i);
        snapshot_publish(world, name, service, world->now_ms - DAY, 2, 300);
    }
}

static gboolean file_is_there(World *world, const char *rest)
{
    g_autofree char *path = g_build_filename(world->objects, rest, NULL);
    return g_file_test(path, G_FILE_TEST_EXISTS);
}

static void write_there(World *world, const char *rest, const char *text)
{
    g_autofree char *path = g_build_filename(world->objects, rest, NULL);
    g_autofree char *above = g_path_get_dirname(path);
    assert_int_equal(g_mkdir_with_parents(above, 0755), 0);
    assert_true(g_file_set_contents(path, text, -1, NULL));
}

/* ---- what is waited for ---- */

static gboolean snapshots_are(World *world, gpointer n)
{
    return lh_mirror_count(world->mirror, LH_KIND_SNAPSHOT) == *(guint *)n;
}

static void count_done(const LhObject *object, gpointer n)
{
    if (lh_object_known(object) && ((const LhDeletion *)object)->data_deleted_at >= 0)
        ++*(guint *)n;
}

static guint done(World *world)
{
    guint n = 0;
    lh_mirror_foreach(world->mirror, LH_KIND_DELETION, count_done, &n);
    return n;
}

static gboolean some_are_done(World *world, gpointer n)
{
    return done(world) >= *(guint *)n;
}

static gboolean brake_says(World *world, gpointer words)
{
    const LhBrake *brake = world_get(world, LH_KIND_BRAKE, "snapshot-cleaner");
    return brake != NULL && lh_object_known(&brake->o) && brake->message != NULL &&
           strstr(brake->message, words) != NULL;
}

static gboolean marked(World *world, gpointer data)
{
    return file_is_there(world, ".leasehold");
}

static gboolean no_brake(World *world, gpointer data)
{
    return world_get(world, LH_KIND_BRAKE, "snapshot-cleaner") == NULL;
}

static gboolean root_is_confirmed(World *world, gpointer data)
{
    const LhBrake *brake = world_get(world, LH_KIND_BRAKE, "snapshot-cleaner");
    return brake == NULL || (lh_object_known(&brake->o) && brake->cause != LH_BRAKE_RESTORED);
}

/* The root had no marker, and was not empty, or not known to be. */
static void confirm_root(World *world, Proc *manager)
{
    world_wait(world, brake_says, (gpointer) "has no marker", "the root is not taken unasked");
    const LhBrake *brake = world_get(world, LH_KIND_BRAKE, "snapshot-cleaner");
    g_autofree char *hash = g_strdup(brake->plan_hash);
    g_autoptr(Run) run = cli(manager, "confirm", "snapshot-cleaner", "--plan", hash, NULL);
    assert_string_equal(run->err, "");
    world_wait(world, root_is_confirmed, NULL, "somebody has confirmed that it is the right one");
}

/* For each deleted snapshot: its replicas went, then came the Deletion, then the snapshot went in the
 * revision that said that its data is deleted; and each Deletion was written twice, by create and update. */
static guint check_order(World *world)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GHashTable) decided = g_hash_table_new(g_str_hash, g_str_equal);
    guint retired = 0;
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        const char *name = strrchr(kv->key, '/') + 1;
        if (g_str_has_prefix(kv->key, "decided/deletions/") && !kv->is_delete) {
            if (kv->create_rev == kv->mod_rev)
                assert_true(g_hash_table_insert(decided, (gpointer)name, (gpointer)kv));
        } else if (g_str_has_prefix(kv->key, "published/snapshots/") && kv->is_delete) {
            const LhDeletion *deletion = world_get(world, LH_KIND_DELETION, "%s", name);
            const Kv *intent = g_hash_table_lookup(decided, name);
            assert_non_null(intent);
            assert_int_equal(deletion->o.mod_rev, kv->mod_rev);
            retired++;
        } else if (g_str_has_prefix(kv->key, "decided/replicas/")) {
            g_autofree char *snapshot = g_strndup(name, strcspn(name, "."));
            if (g_hash_table_contains(decided, snapshot))
                fail_msg("%s was written after the Deletion", kv->key);
        }
    }
    return retired;
}

/* ---- the story ---- */

typedef struct {
    guint answers;
    GString *names;
    gint64 objects;
} Bucket;

static void on_page(const LhStoreObject *objects, gsize n, gpointer data)
{
    Bucket *bucket = data;
    for (gsize i = 0; i < n; i++)
        g_string_append_printf(bucket->names, "%s ", objects[i].name);
}

static void on_walked(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Bucket *bucket = data;
    if (error != NULL)
        fail_msg("%s", error->message);
    bucket->objects = answer->objects;
    bucket->answers++;
}

static gboolean has_answered(World *world, gpointer bucket)
{
    return ((Bucket *)bucket)->answers > 0;
}

static gboolean is_told(World *world, gpointer data)
{
    const char *const *words = data;
    const guint *wanted = (const guint *)words[2];
    const LhEvent *event = world_event(world, words[0], words[1]);
    return event != NULL && event->count == *wanted;
}

/* Who watches the events of service x and of its snapshots reads all that befell them, in its order: an event's
 * name begins with the time of when it was first told. @n: of how many snapshots. */
static void check_told(World *world, guint n)
{
    static const char *const story[] = {"ReplicaCreated", "Assigned", "Live",
                                        "Evicting",       "Evicted",  "DeletionDecided",
                                        "DataDeleted"};
    g_autofree char *before = NULL;
    gint64 revision = 0;
    guint one = 1;
    for (gsize i = 0; i < G_N_ELEMENTS(story); i++) {
        const char *words[] = {story[i], "services/x", (const char *)&n};
        if (strcmp(story[i], "Live") == 0)
            world_wait_event(world, "Live", "services/x"); /* together or one by one */
        else
            world_wait(world, is_told, words, "%u times %s", n, story[i]);
        const LhEvent *event = world_event(world, story[i], "services/x");
        if (before != NULL && strncmp(event->o.name, before, 12) < 0)
            fail_msg("%s was told before what comes before it", story[i]);
        if (event->o.create_rev < revision)
            fail_msg("%s was written before what comes before it", story[i]);
        revision = event->o.create_rev;
        assert_int_equal(event->type, LH_EVENT_NORMAL);
        g_free(before);
        before = g_strndup(event->o.name, 12);
    }
    for (guint i = 0; i < n; i++) {
        g_autofree char *object = g_strdup_printf("snapshots/s3-%u", i);
        const char *words[] = {"SnapshotDeleted", object, (const char *)&one};
        world_wait(world, is_told, words, "SnapshotDeleted of %s", object);
    }
}

/* What is in the bucket below root/, as "a b ". g_free. */
static char *in_bucket(World *world, const char *access, const char *secret)
{
    static const char *const roots[] = {"s3://" BUCKET "/kept/", NULL};
    const LhObjectStoreOptions options = {.roots = roots,
                                          .endpoint = s3_process_endpoint(swift),
                                          .access_key_file = access,
                                          .secret_key_file = secret};
    g_autoptr(GError) error = NULL;
    LhObjectStore *store = lh_objectstore_new(world->env, &options, &error);
    Bucket bucket = {.names = g_string_new(NULL)};
    assert_non_null(store);
    lh_store_walk(store, roots[0], on_page, on_walked, &bucket);
    world_poll(world, has_answered, &bucket, "the bucket is listed");
    lh_store_free(store);
    return g_string_free(bucket.names, FALSE);
}

/* A retention of seconds, from publish to the bucket being empty again but for the marker. */
static void from_publish_to_an_empty_bucket(void **state)
{
    static const S3File files[] = {{"part-0", 5000}, {"deep/er/part-1", 70000}};
    World *world = *state;
    g_autofree char *access = s3_secret_file(world, "access", s3_process_access_key(swift));
    g_autofree char *secret = s3_secret_file(world, "secret", s3_process_secret_key(swift));
    const char *const extra[] = {"--object-store-roots",
                                 "s3://" BUCKET "/kept/",
                                 "--object-store-endpoint",
                                 s3_process_endpoint(swift),
                                 "--object-store-access-key-file",
                                 access,
                                 "--object-store-secret-key-file",
                                 secret,
                                 NULL};
    guint none = 0;
    put_settings(world, ",\"brakePercent\":100");
    put_service(world, "x", "85s", "90s");
    s3_agent(world, "a1", "default", s3_process_endpoint(swift), "s3://" BUCKET "/kept/", access,
             secret);
    Proc *manager = manager_start(world, "manager", extra);
    /* An empty root is taken unasked. */
    gint64 late_us = g_get_monotonic_time() + WAIT_MS * 1000;
    for (g_autofree char *marked = NULL; g_strcmp0(marked, ".leasehold ") != 0;) {
        assert_true(g_get_monotonic_time() < late_us);
        g_free(marked);
        marked = in_bucket(world, access, secret);
    }
    for (guint i = 0; i < 4; i++) {
        g_autofree char *name = g_strdup_printf("s3-%u", i);
        g_autofree char *uri = g_strdup_printf("s3://" BUCKET "/kept/day/%s/", name);
        for (gsize f = 0; f < G_N_ELEMENTS(files); f++) {
            g_autofree char *key = g_strdup_printf("kept/day/%s/%s", name, files[f].name);
            g_autofree guint8 *data = s3_bytes(uri, &files[f]);
            s3_process_put(swift, BUCKET, key, data, files[f].bytes);
        }
        s3_publish(world, name, s3_snapshot(world, uri, files, G_N_ELEMENTS(files)));
    }
    s3_process_put(swift, BUCKET, "beside/x", "kept", 4);
    world_wait_live(world, "s3-",
                    4); /* their end was a minute ago: less than half of one in the cache */
    world_wait(world, snapshots_are, &none, "all data is deleted, all snapshots are retired");
    assert_int_equal(check_order(world), 4);
    assert_int_equal(done(world), 4);
    check_told(world, 4);
    g_autofree char *left = in_bucket(world, access, secret);
    assert_string_equal(left, ".leasehold ");
    s3_check_secret(world, manager, s3_process_secret_key(swift));
    assert_true(metric(manager, "deletions_pending") == 0);
}

/* ---- kill -9 ---- */

static void a_killed_leader_is_followed_in_the_middle(void **state)
{
    World *world = *state;
    guint few = 3, kept = 2, n = 14;
    put_settings(world, ",\"brakePercent\":100,\"deletesPerSecond\":3");
    put_service(world, "old", "10m", "1h");
    put_service(world, "kept", "10m", "7d");
    publish_old(world, "old", n);
    publish_old(world, "kept", 2);
    Proc *first = manager_on_files(world, "first");
    confirm_root(world, first);
    world_wait(world, some_are_done, &few, "a few are deleted");
    proc_kill(first);
    assert_true(done(world) < n);
    manager_on_files(world, "second");
    world_wait(world, snapshots_are, &kept, "the rest is deleted by another leader");
    assert_int_equal(check_order(world), n);
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("old-%02u", i);
        assert_false(file_is_there(world, name));
    }
    assert_true(file_is_there(world, "kept-00"));
    assert_true(file_is_there(world, "kept-01"));
}

/* ---- orphans and missing data ---- */

static gboolean is_gone(World *world, gpointer rest)
{
    return !file_is_there(world, rest);
}

static gboolean is_missing(World *world, gpointer wanted)
{
    const LhCondition *condition = world_condition(world, "snapshots/here-00/snapshot-cleaner",
                                                   "DataMissing");
    return (condition != NULL && condition->status == LH_CONDITION_TRUE) == *(gboolean *)wanted;
}

typedef struct {
    Proc *manager;
    const char *series;
    double value;
} Metric;

static gboolean metric_is(World *world, gpointer data)
{
    const Metric *wanted = data;
    return metric(wanted->manager, wanted->series) == wanted->value;
}

static void orphans_go_and_missing_data_is_said(void **state)
{
    World *world = *state;
    gboolean yes = TRUE, no = FALSE;
    put_settings(world, ",\"reconcileInterval\":\"300ms\",\"orphanGrace\":\"2s\","
                        "\"brakePercent\":100");
    put_service(world, "here", "10m", "7d");
    publish_old(world, "here", 2);
    write_there(world, "stray/deep/file", "nobody's");
    write_there(world, "here-01/not-in-the-digests", "the snapshot's all the same");
    write_there(world, "README", "in the root itself");
    Proc *manager = manager_on_files(world, "manager");
    confirm_root(world, manager);
    Metric orphaned = {manager, "objectstore_orphaned_objects", 2};
    world_poll(world, metric_is, &orphaned, "the metric counts two");
    world_poll(world, is_gone, (gpointer) "stray/deep", "what nobody knows is deleted");
    world_wait_event(world, "OrphanDeleted", NULL);
    orphaned.value = 1;
    world_poll(world, metric_is, &orphaned, "and then one");
    assert_true(file_is_there(world, "README"));
    assert_true(file_is_there(world, "here-01/not-in-the-digests"));
    assert_true(file_is_there(world, ".leasehold"));
    /* Its intent was committed first: seen, then decided. */
    g_autoptr(GPtrArray) orphans = lh_mirror_list(world->mirror, LH_KIND_ORPHAN);
    assert_int_equal(orphans->len, 1);
    const LhOrphan *orphan = g_ptr_array_index(orphans, 0);
    assert_true(orphan->second_seen >= orphan->first_seen + 2000);
    assert_true(orphan->decided_at >= 0);

    g_autofree char *path = g_build_filename(world->objects, "here-00", NULL);
    g_autofree char *away = g_strconcat(world->objects, "-away", NULL);
    assert_int_equal(g_rename(path, away), 0);
    world_wait(world, is_missing, &yes, "DataMissing is said");
    world_wait_event(world, "DataMissing", "snapshots/here-00");
    Metric missing = {manager, "snapshots_missing_data", 1};
    world_poll(world, metric_is, &missing, "the metric says 1");
    assert_int_equal(g_rename(away, path), 0);
    world_wait(world, is_missing, &no, "and taken back");
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_SNAPSHOT), 2);
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
}

/* ---- what holds it back ---- */

static void the_brake_holds_until_it_is_confirmed(void **state)
{
    World *world = *state;
    guint none = 0;
    put_settings(world, "");
    put_service(world, "old", "10m", "1h");
    publish_old(world, "old", 12);
    Proc *manager = manager_on_files(world, "manager");
    confirm_root(world, manager);
    world_wait(world, brake_says, (gpointer) "service old", "the cleaner brakes");
    world_wait_event(world, "Braked", "settings/snapshot-cleaner");
    Metric braked = {manager, "brake{controller=\"snapshot-cleaner\"}", 1};
    world_poll(world, metric_is, &braked, "the metric says so");
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
    const LhBrake *brake = world_get(world, LH_KIND_BRAKE, "snapshot-cleaner");
    assert_int_equal(brake->eligible, 12);
    g_autofree char *hash = g_strdup(brake->plan_hash);
    g_autoptr(Run) wrong = cli(manager, "confirm", "snapshot-cleaner", "--plan", "0011223344556677",
                               NULL);
    assert_int_not_equal(wrong->code, 0);
    g_autoptr(Run) right = cli(manager, "confirm", "snapshot-cleaner", "--plan", hash, NULL);
    assert_string_equal(right->err, "");
    world_wait(world, snapshots_are, &none, "what was confirmed is deleted");
    world_wait(world, no_brake, NULL, "the Brake goes");
    assert_int_equal(check_order(world), 12);
}

static void a_foreign_marker_holds_everything(void **state)
{
    World *world = *state;
    guint none = 0;
    put_settings(world, "");
    put_service(world, "old", "10m", "1h");
    publish_old(world, "old", 3);
    write_there(world, ".leasehold",
                "{\"prefix\":\"/other/\",\"clusterId\":\"0123456789abcdef\",\"revision\":7}\n");
    Proc *manager = manager_on_files(world, "manager");
    world_wait(world, brake_says, (gpointer) "another cluster or prefix", "the cleaner holds");
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
    assert_true(file_is_there(world, "old-00"));
    g_autofree char *marker = g_build_filename(world->objects, ".leasehold", NULL);
    assert_int_equal(g_unlink(marker), 0); /* a person has looked, and it is a mistake */
    confirm_root(world, manager); /* and that the root is this one's: it then writes its own */
    gboolean gone = world_until(world, snapshots_are, &none, 2 * WAIT_MS);
    assert_true(gone);
    assert_true(file_is_there(world, ".leasehold"));
}

/* Astra: a list that came back empty: everything would be deleted. Here the root is not what it was. */
static void an_empty_listing_holds_everything(void **state)
{
    World *world = *state;
    guint kept = 1;
    g_autofree char *away = g_strconcat(world->objects, "-away", NULL);
    put_settings(world, ",\"reconcileInterval\":\"300ms\"");
    put_service(world, "old", "10m", "1h");
    put_service(world, "kept", "10m", "7d");
    publish_old(world, "old", 3);
    publish_old(world, "kept", 1);
    assert_int_equal(g_rename(world->objects, away), 0);
    assert_int_equal(g_mkdir(world->objects, 0755), 0);
    Proc *manager = manager_on_files(world, "manager");
    confirm_root(world, manager); /* without having looked */
    world_wait(world, brake_says, (gpointer) "its listing is empty", "the cleaner holds");
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
    g_autofree char *marker = g_build_filename(world->objects, ".leasehold", NULL);
    g_unlink(marker);
    assert_int_equal(g_rmdir(world->objects), 0);
    world_wait(world, brake_says, (gpointer) "listing failed", "a root that is gone holds it too");
    assert_int_equal(g_rename(away, world->objects), 0);
    confirm_root(world, manager);
    gboolean gone = world_until(world, snapshots_are, &kept, 2 * WAIT_MS);
    assert_true(gone);
    assert_false(file_is_there(world, "old-00"));
    assert_true(file_is_there(world, "kept-00"));
}

static int setup_tls(void **state)
{
    *state = world_new_with(&(WorldOptions){.tls = TRUE});
    return 0;
}

static void copy_file(const char *from, const char *to)
{
    g_autofree char *text = NULL;
    assert_true(g_file_get_contents(from, &text, NULL, NULL));
    assert_true(g_file_set_contents(to, text, -1, NULL));
}

/* etcd's clock is asked over TLS with etcd's own authority, which is read anew each time. With another one
 * there is no clock, and nothing goes by ours alone. */
static void a_clock_that_is_not_trusted_holds_everything(void **state)
{
    World *world = *state;
    guint none = 0;
    g_auto(CertFiles) other = certs_authority(world->certs, "other-ca");
    g_autofree char *good = g_build_filename(world->certs, "good.crt", NULL);
    const char *why = "unable to get local issuer certificate";
    copy_file(world->ca.cert, good);
    put_settings(world, "");
    put_service(world, "old", "10m", "1h");
    Proc *manager = manager_on_files(world, "manager");
    world_poll(world, marked, NULL, "the root is taken");
    copy_file(other.cert, world->ca.cert);
    publish_old(world, "old", 3);
    world_wait(world, brake_says, (gpointer) "etcd's clock cannot be read", "the cleaner holds");
    Said reason = {manager, why};
    world_poll(world, proc_has_said, &reason, "the log says why");
    g_autofree char *log = proc_log(manager);
    const char *line = strstr(log, "errand failed");
    assert_non_null(line);
    assert_non_null(g_strstr_len(line, (gssize)strcspn(line, "\n"), why));
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
    assert_true(file_is_there(world, "old-00"));
    copy_file(good, world->ca.cert);
    gboolean gone = world_until(world, snapshots_are, &none, 2 * WAIT_MS);
    assert_true(gone);
    assert_int_equal(check_order(world), 3);
}

static gboolean is_kept(World *world, gpointer data)
{
    const LhCondition *condition = world_condition(world, "snapshots/old-00/snapshot-cleaner",
                                                   "Deletable");
    return condition != NULL && condition->status == LH_CONDITION_FALSE;
}

static gboolean dry_run_says(World *world, gpointer words)
{
    const LhCondition *condition = world_condition(
        world, "settings/snapshot-cleaner/snapshot-cleaner", "DryRun");
    return condition != NULL && condition->status == LH_CONDITION_TRUE &&
           strstr(condition->message, words) != NULL;
}

/* Its Status and the plan say what would go, and nothing goes, is decided or marked; then it does. */
static void a_dry_run_says_and_deletes_nothing(void **state)
{
    World *world = *state;
    guint kept = 1;
    put_settings(world, ",\"dryRun\":true,\"reconcileInterval\":\"300ms\",\"orphanGrace\":\"1s\"");
    put_service(world, "old", "10m", "1h");
    put_service(world, "kept", "10m", "7d");
    publish_old(world, "old", 3);
    publish_old(world, "kept", 1);
    write_there(world, "stray/file", "nobody's");
    Proc *manager = manager_on_files(world, "manager");
    confirm_root(world, manager);
    world_wait(world, dry_run_says, (gpointer) "3 snapshots", "it is said what would go");
    g_autoptr(Run) plan = cli(manager, "plan", "snapshot-cleaner", NULL);
    assert_non_null(strstr(plan->out, "dry-run"));
    assert_non_null(strstr(plan->out, "old-02"));
    assert_null(strstr(plan->out, "kept-00"));
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_ORPHAN), 0);
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_SNAPSHOT), 4);
    for (guint i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("old-%02u", i);
        assert_true(file_is_there(world, name));
    }
    assert_true(file_is_there(world, "stray/file"));
    assert_false(file_is_there(world, ".leasehold"));
    put_settings(world, "");
    confirm_root(world, manager); /* which may have been written to meanwhile */
    world_wait(world, snapshots_are, &kept, "without it they are deleted");
    assert_int_equal(check_order(world), 3);
}

/* Nothing is deleted without roots, nor what lies outside of them. */
static void without_roots_nothing_goes(void **state)
{
    World *world = *state;
    put_settings(world, "");
    put_service(world, "old", "10m", "1h");
    publish_old(world, "old", 3);
    Proc *manager = manager_ready(world, "without");
    put_service(world, "sign", "24h", "7d");
    agents_start(world, 1);
    snapshot_publish(world, "sign-0", "sign", world->now_ms - 60000, 1, 500);
    world_wait_live(world, "sign-0", 1);
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
    assert_int_equal(proc_stop(manager), 0);
    g_autofree char *other = g_strdup_printf("file://%s/elsewhere/", world->dir);
    g_autofree char *path = g_build_filename(world->dir, "elsewhere", NULL);
    assert_int_equal(g_mkdir(path, 0755), 0);
    manager_with(world, "other", other, NULL, NULL);
    world_wait(world, is_kept, NULL, "Deletable=False is said");
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_DELETION), 0);
    assert_true(file_is_there(world, "old-00"));
}

static int start_swift(void **state)
{
    g_autoptr(GError) error = NULL;
    (void)state;
    swift = s3_process_new(&error);
    if (swift == NULL)
        fail_msg("%s", error->message);
    s3_process_make_bucket(swift, BUCKET);
    return 0;
}

static int stop_swift(void **state)
{
    (void)state;
    s3_process_free(swift);
    return 0;
}

#define STORY(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

/* With an argument, 0 or 1, every second story: they mostly wait, and so two programs take half of the time. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        STORY(from_publish_to_an_empty_bucket),
        STORY(a_killed_leader_is_followed_in_the_middle),
        STORY(orphans_go_and_missing_data_is_said),
        STORY(the_brake_holds_until_it_is_confirmed),
        STORY(a_foreign_marker_holds_everything),
        STORY(an_empty_listing_holds_everything),
        cmocka_unit_test_setup_teardown(a_clock_that_is_not_trusted_holds_everything, setup_tls,
                                        world_teardown),
        STORY(a_dry_run_says_and_deletes_nothing),
        STORY(without_roots_nothing_goes),
    };
    struct CMUnitTest mine[G_N_ELEMENTS(tests)];
    guint n = 0;

    for (guint i = 0; i < G_N_ELEMENTS(tests); i++)
        if (argc < 2 || i % 2 == (guint)(argv[1][0] - '0'))
            mine[n++] = tests[i];
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return _cmocka_run_group_tests("integration-cleaner", mine, n, start_swift, stop_swift);
}

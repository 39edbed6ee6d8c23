/*
 * outside/sweeper: whose a root is, and what a marker says; each errand by itself, on a store in memory.
 */
#include "base/errors.h"
#include "base/log.h"
#include "controllers/cleaner.h"
#include "controllers/registry.h"
#include "outside/sweeper.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* links: fakes */

#define P    "/leasehold/"
#define ROOT "s3://bucket/"
#define C    LH_CLEANER

typedef struct {
    SimWorld *world;
    LhEnv *env;
    FakeEtcd *server;
    LhEtcd *etcd;
    LhMirror *mirror;
    LhMetrics *metrics;
    LhRuntime *runtime;
    LhObjectStore base; /* the store */
    GTree *objects;     /* uri -> text; each is as old as 1970 */
    char *meddler;      /* what somebody else writes into the marker just before we do */
    guint writes, erases;
    LhSweeper *sweeper;
    gint64 token;
} Lab;

/* ---- the store ---- */

typedef struct {
    Lab *lab;
    LhStoreRequest request;
    char *uri, *name, *text, *over;
    LhStorePageFunc page;
    LhStoreDoneFunc done;
    gpointer data;
    LhTimer *timer;
} Op;

static GHashTable *ops; /* id -> Op */
static LhStoreOp next_op = 1;

static void op_free(gpointer data)
{
    Op *op = data;

    lh_timer_clear(op->lab->env, &op->timer);
    g_free(op->uri);
    g_free(op->name);
    g_free(op->text);
    g_free(op->over);
    g_free(op);
}

static Lab *lab_of(LhObjectStore *base)
{
    return (Lab *)((char *)base - G_STRUCT_OFFSET(Lab, base));
}

static void answer(Op *op, LhStoreAnswer told, LhErrorCode code, const char *why)
{
    g_autoptr(GError) error = why == NULL ? NULL : g_error_new(LH_ERROR, (gint)code, "%s", why);

    op->done(why == NULL ? &told : NULL, error, op->data);
}

static gint64 erase(Op *op)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new_with_free_func(g_free);

    for (GTreeNode *n = g_tree_node_first(op->lab->objects); n != NULL; n = g_tree_node_next(n))
        if (g_str_has_prefix(g_tree_node_key(n), op->uri))
            g_ptr_array_add(found, g_strdup(g_tree_node_key(n)));
    for (guint i = 0; i < found->len; i++)
        g_tree_remove(op->lab->objects, found->pdata[i]);
    op->lab->erases++;
    return found->len;
}

static gint64 walk(Op *op)
{
    gint64 count = 0;

    for (GTreeNode *n = g_tree_node_first(op->lab->objects); n != NULL; n = g_tree_node_next(n)) {
        const char *key = g_tree_node_key(n);
        const LhStoreObject object = {key + strlen(op->uri), 1, 0};
        if (!g_str_has_prefix(key, op->uri))
            continue;
        op->page(&object, 1, op->data);
        count++;
    }
    return count;
}

static void act(gpointer data)
{
    Op *op = data;
    Lab *lab = op->lab;
    g_autofree char *key = g_strconcat(op->uri, op->name, NULL);
    LhStoreAnswer told = {
        .objects = 1, .bytes = -1, .clock_ms = lh_wall_ms(lab->env), .text = NULL};
    const char *why = NULL, *present;
    LhErrorCode code = LH_ERR_NOT_FOUND;

    op->timer = NULL;
    if (op->request.work == LH_STORE_WRITE && lab->meddler != NULL)
        g_tree_replace(lab->objects, g_strdup(key), g_steal_pointer(&lab->meddler));
    present = g_tree_lookup(lab->objects, key);
    if (op->request.work == LH_STORE_READ) {
        told.text = told.version = present;
        why = present == NULL ? "there is none" : NULL;
    } else if (op->request.work == LH_STORE_WRITE) {
        lab->writes++;
        code = LH_ERR_CONFLICT;
        why = op->over != NULL && strcmp(op->over, present == NULL ? "" : present) != 0
                  ? "it is not"
                  : NULL;
        if (why == NULL)
            g_tree_replace(lab->objects, g_strdup(key), g_strdup(op->text));
    } else if (op->request.work == LH_STORE_WALK) {
        told.objects = walk(op);
    } else if (op->request.work != LH_STORE_CLOCK) {
        told.objects = erase(op);
    }
    answer(op, told, code, why);
}

static LhStoreOp store_work(LhObjectStore *base, const LhStoreRequest *request,
                            LhStorePageFunc page, LhStoreDoneFunc done, gpointer data)
{
    Lab *lab = lab_of(base);
    Op *op = g_new0(Op, 1);
    LhStoreOp id = next_op++;

    *op = (Op){.lab = lab,
               .request = *request,
               .uri = g_strdup(request->uri),
               .name = g_strdup(request->name),
               .text = g_strdup(request->text),
               .over = g_strdup(request->over),
               .page = page,
               .done = done,
               .data = data};
    op->timer = lh_timer_in(lab->env, 1, act, op);
    g_hash_table_insert(ops, GSIZE_TO_POINTER(id), op);
    return id;
}

static void store_cancel(LhObjectStore *base, LhStoreOp id)
{
    (void)base;
    g_hash_table_remove(ops, GSIZE_TO_POINTER(id));
}

/* ---- a lab ---- */

static void no_clock(gpointer data, void (*done)(gint64, const GError *, gpointer),
                     gpointer done_data)
{
    (void)data;
    (void)done;
    (void)done_data;
}

static void no_cancel(gpointer data)
{
    (void)data;
}

static void quiet(const char *line, gpointer data)
{
    (void)line;
    (void)data;
}

static gint by_text(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(a, b);
}

static void pass(Lab *lab, gint64 ms)
{
    sim_world_run_until(lab->world, sim_world_now_ms(lab->world) + ms);
}

static void sweeper_on(Lab *lab, const char *const *roots)
{
    const LhSweeperOptions options = {
        .env = lab->env,
        .mirror = lab->mirror,
        .runtime = lab->runtime,
        .store = &lab->base,
        .roots = roots,
        .etcd_clock = {no_clock, no_cancel, NULL},
    };

    lh_sweeper_free(lab->sweeper);
    lab->sweeper = lh_sweeper_new(&options);
}

static int setup(void **state)
{
    static const LhObjectStoreVtable vtable = {.work = store_work, .cancel = store_cancel};
    static const char *const roots[] = {ROOT, NULL};
    const LhRuntimeOptions options = {
        .instance = "m", .host = "h", .url = "http://m/", .version = "1", .lease_ttl_s = 5};
    Lab *lab = g_new0(Lab, 1);

    lh_log_set_sink(quiet, NULL);
    ops = g_hash_table_new_full(NULL, NULL, NULL, op_free);
    lab->objects = g_tree_new_full(by_text, NULL, g_free, g_free);
    lab->world = sim_world_new(1);
    lab->env = sim_machine_new(lab->world, "m");
    lab->server = fake_etcd_new(sim_machine_new(lab->world, "etcd"), NULL);
    lab->etcd = fake_etcd_connect(lab->server, lab->env, "m");
    lab->mirror = lh_mirror_new(lab->env, lab->etcd, P);
    lab->metrics = lh_metrics_new();
    lh_runtime_declare_metrics(lab->metrics);
    lab->runtime = lh_runtime_new(lab->env, lab->etcd, lab->mirror, lab->metrics, lh_controllers(),
                                  &options);
    lab->base.v = &vtable;
    sweeper_on(lab, roots);
    lh_mirror_start(lab->mirror);
    pass(lab, 1000);
    assert_true(lh_mirror_cluster_id(lab->mirror) != 0);
    *state = lab;
    return 0;
}

static int teardown(void **state)
{
    Lab *lab = *state;

    lh_sweeper_free(lab->sweeper);
    lh_runtime_free(lab->runtime);
    lh_mirror_free(lab->mirror);
    lh_metrics_free(lab->metrics);
    lh_etcd_free(lab->etcd);
    fake_etcd_free(lab->server);
    g_hash_table_unref(ops);
    sim_world_free(lab->world);
    g_tree_unref(lab->objects);
    g_free(lab->meddler);
    g_free(lab);
    return 0;
}

static void put_object(Lab *lab, const char *uri, const char *text)
{
    g_tree_replace(lab->objects, g_strdup(uri), g_strdup(text));
}

static const char *object_at(Lab *lab, const char *uri)
{
    return g_tree_lookup(lab->objects, uri);
}

/* As somebody writes it who may delete in @root. */
static char *marker(Lab *lab, const char *root, gint64 revision)
{
    return g_strdup_printf("{\"prefix\":\"" P "\",\"clusterId\":\"%016" G_GINT64_MODIFIER
                           "x\",\"root\":\"%s\",\"revision\":%" G_GINT64_FORMAT "}\n",
                           lh_mirror_cluster_id(lab->mirror), root, revision);
}

static void put_marker(Lab *lab, const char *in, const char *root, gint64 revision)
{
    g_autofree char *uri = g_strconcat(in, LH_CLEANER_MARKER, NULL);

    g_tree_replace(lab->objects, g_steal_pointer(&uri), marker(lab, root, revision));
}

static void put_key(Lab *lab, const char *key, const char *value)
{
    g_autofree char *whole = g_strconcat(P, key, NULL);

    fake_etcd_put(lab->server, whole, value, 0);
    pass(lab, 1000);
}

/* Does one errand, and returns what was seen. */
static const LhObservation *errand(Lab *lab, const char *id, const char *what, const char *uri,
                                   gint64 number)
{
    const LhErrand wanted = {
        .id = id, .what = what, .uri = uri, .token = ++lab->token, .number = number};
    g_autofree char *name = g_strconcat(C "/", id, NULL);
    const LhObservation *seen;

    lh_sweeper_outside.set(C, &wanted, 1, lab->sweeper);
    pass(lab, 1000);
    seen = (const LhObservation *)lh_mirror_get(lab->mirror, LH_KIND_OBSERVATION, name);
    assert_non_null(seen);
    assert_int_equal(seen->token, lab->token);
    return seen;
}

static const char *look_with(Lab *lab, const char *what, const char *root, gint64 number)
{
    g_autofree char *id = lh_cleaner_errand(LH_CLEANER_LOOK, root);
    const LhObservation *seen = errand(lab, id, what, root, number);

    assert_null(seen->error);
    return seen->state;
}

static const char *look(Lab *lab, gint64 number)
{
    return look_with(lab, LH_CLEANER_LOOK, ROOT, number);
}

/* ---- the marker ---- */

static void a_marker_is_made_and_raised(void **state)
{
    Lab *lab = *state;
    g_autofree char *seven = marker(lab, ROOT, 7), *nine = marker(lab, ROOT, 9);

    assert_string_equal(look(lab, -1), "none");
    assert_int_equal(lab->writes, 0);
    assert_string_equal(look(lab, 7), "new");
    assert_string_equal(object_at(lab, ROOT LH_CLEANER_MARKER), seven);
    assert_string_equal(look(lab, 7), "ours");
    assert_string_equal(look(lab, 9), "ours");
    assert_string_equal(object_at(lab, ROOT LH_CLEANER_MARKER), nine);
    assert_string_equal(look(lab, 8), "newer");
    assert_string_equal(object_at(lab, ROOT LH_CLEANER_MARKER), nine);
    assert_string_equal(look_with(lab, LH_CLEANER_CLAIM, ROOT, 8), "ours");
    assert_string_not_equal(object_at(lab, ROOT LH_CLEANER_MARKER), nine);
}

/* Another leader, one that knows more or is no more, writes between our reading and our writing. */
static void a_marker_is_not_written_over_a_later_one(void **state)
{
    Lab *lab = *state;

    put_marker(lab, ROOT, ROOT, 5);
    lab->meddler = marker(lab, ROOT, 99);
    assert_string_equal(look(lab, 7), "newer");
    assert_non_null(strstr(object_at(lab, ROOT LH_CLEANER_MARKER), "99"));
    put_marker(lab, ROOT, ROOT, 5);
    lab->meddler = marker(lab, ROOT, 6);
    assert_string_equal(look(lab, 7), "ours");
    assert_int_equal(lab->writes, 3); /* once refused, and then over that one */
}

/* One directory under two names: what lies there is somebody's under one, and nobody's under the other. */
static void one_place_under_two_names_is_foreign(void **state)
{
    Lab *lab = *state;

    put_marker(lab, ROOT, "s3://alias/", 5);
    assert_string_equal(look(lab, 7), "foreign");
    put_object(lab, ROOT LH_CLEANER_MARKER, "{\"prefix\":\"" P "\",\"revision\":5}");
    assert_string_equal(look(lab, 7), "foreign");
    assert_int_equal(lab->writes, 0);
    assert_string_equal(look_with(lab, LH_CLEANER_CLAIM, ROOT, 7), "foreign");
    put_marker(lab, ROOT, ROOT, 5);
    assert_string_equal(look(lab, 7), "ours");
}

/* ---- a root without a marker ---- */

static const char snapshot_value[] = "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,"
                                     "\"sizeBytes\":1,\"uri\":\"%s\"}";

/* The wrong bucket, or one that has been somebody's for long. */
static void a_root_with_things_in_it_is_not_taken(void **state)
{
    Lab *lab = *state;

    put_object(lab, ROOT "what/is-this", "1");
    assert_string_equal(look(lab, -1), "none");
    assert_string_equal(look(lab, 7), "unmarked");
    assert_string_equal(look(lab, 7), "unmarked"); /* and stays so, for any leader */
    assert_int_equal(lab->writes, 0);
    assert_string_equal(look_with(lab, LH_CLEANER_CLAIM, ROOT, 7), "new");
    assert_string_equal(look(lab, 7), "ours");
}

/* Before there are snapshots, and for longer than anybody leads: each is looked at when it is folded. */
static void the_roots_are_known_from_the_beginning(void **state)
{
    Lab *lab = *state;
    const LhObservation *seen;

    for (guint i = 0; i < 2; i++) {
        seen = (const LhObservation *)lh_mirror_get(lab->mirror, LH_KIND_OBSERVATION,
                                                    LH_CLEANER_ROOTS);
        assert_non_null(seen);
        assert_true(lh_object_known(&seen->o));
        assert_string_equal(seen->uris[0], ROOT);
        assert_null(seen->error);
        lh_mirror_forget(lab->mirror, LH_CLEANER);
    }
}

/* A volume that is not mounted, a bucket that was swapped: it is empty, and must not be. */
static void a_root_whose_snapshots_are_known_is_not_made_anew(void **state)
{
    Lab *lab = *state;
    g_autofree char *inside = g_strdup_printf(snapshot_value, ROOT "a/");
    g_autofree char *outside = g_strdup_printf(snapshot_value, "s3://other/a/");

    put_key(lab, "published/snapshots/a", inside);
    assert_string_equal(look(lab, 7), "unmarked");
    put_key(lab, "published/snapshots/a", "what is this");
    assert_string_equal(look(lab, 7), "unmarked");
    put_key(lab, "published/snapshots/a", outside);
    put_key(lab, "decided/deletions/b",
            "{\"uri\":\"" ROOT "b/\",\"snapshotRevision\":5,\"decidedAt\":6}");
    assert_string_equal(look(lab, 7), "unmarked");
    put_key(lab, "decided/deletions/b",
            "{\"uri\":\"" ROOT "b/\",\"snapshotRevision\":5,\"decidedAt\":6,\"dataDeletedAt\":7}");
    assert_string_equal(look(lab, 7), "new");
}

/* ---- deleting ---- */

/* The last look is some seconds old: what goes now goes where our marker is now. */
static void nothing_goes_without_our_marker(void **state)
{
    Lab *lab = *state;
    const LhObservation *seen;

    put_object(lab, ROOT "a/x", "1");
    seen = errand(lab, "delete.a", LH_CLEANER_DELETE, ROOT "a/", 0);
    assert_non_null(strstr(seen->error, "marker"));
    put_marker(lab, ROOT, "s3://alias/", 5);
    seen = errand(lab, "delete.a", LH_CLEANER_DELETE, ROOT "a/", 0);
    assert_non_null(strstr(seen->error, "marker"));
    assert_null(seen->state);
    seen = errand(lab, "delete.a", LH_CLEANER_DELETE, "s3://other/a/", 0);
    assert_non_null(seen->error);
    assert_int_equal(lab->erases, 0);
    put_marker(lab, ROOT, ROOT, 5);
    seen = errand(lab, "delete.a", LH_CLEANER_DELETE, ROOT "a/", 0);
    assert_null(seen->error);
    assert_int_equal(seen->objects, 1);
    assert_null(object_at(lab, ROOT "a/x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_roots_are_known_from_the_beginning, setup, teardown),
        cmocka_unit_test_setup_teardown(a_marker_is_made_and_raised, setup, teardown),
        cmocka_unit_test_setup_teardown(a_marker_is_not_written_over_a_later_one, setup, teardown),
        cmocka_unit_test_setup_teardown(one_place_under_two_names_is_foreign, setup, teardown),
        cmocka_unit_test_setup_teardown(a_root_with_things_in_it_is_not_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(a_root_whose_snapshots_are_known_is_not_made_anew, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nothing_goes_without_our_marker, setup, teardown),
    };

    return cmocka_run_group_tests_name("sweeper", tests, NULL, NULL);
}

/*
 * The users that deploy/etcd-roles makes, on an etcd with authentication: all that they need works, and
 * etcd itself refuses the rest, whether asked by etcdctl or by the product's own client.
 */
#include "base/errors.h"
#include "harness.h"

#include <string.h>

static int setup(void **state)
{
    *state = world_new_with(&(WorldOptions){.users = TRUE});
    return 0;
}

/* ---- the script ---- */

static void must_roles(World *world)
{
    g_autoptr(Run) done = etcd_roles(world, "roles", NULL);
    if (done->code != 0) {
        world_fail(world, "etcd-roles roles: %d %s", done->code, done->err);
    }
}

/* All that etcd knows of roles and users. */
static char *all_rights(World *world)
{
    static const char *const roles[] = {"people",       "publisher",     "manager",
                                        "node-cache",   "node-recovery", "node-indexer",
                                        "node-manager", "node-worker"};
    GString *text = g_string_new(NULL);
    g_autoptr(Run) users = etcdctl_as(world, "root", "user", "list", NULL);
    g_autoptr(Run) cache = etcdctl_as(world, "root", "user", "get", "cache", NULL);
    g_string_append_printf(text, "%s%s", users->out, cache->out);
    for (guint i = 0; i < G_N_ELEMENTS(roles); i++) {
        g_autoptr(Run) role = etcdctl_as(world, "root", "role", "get", roles[i], NULL);
        assert_int_equal(role->code, 0);
        g_string_append(text, role->out);
    }
    return g_string_free(text, FALSE);
}

static void the_script_twice_changes_nothing(void **state)
{
    World *world = *state;
    must_roles(world);
    world_user(world, "cache", "node-cache");
    g_autofree char *before = all_rights(world);
    assert_non_null(strstr(before, "/leasehold/actual/items/cache/"));
    must_roles(world);
    world_user(world, "cache", "node-cache");
    g_autofree char *after = all_rights(world);
    assert_string_equal(after, before);
}

static guint lines_in(const char *text)
{
    guint n = 0;
    for (; *text != '\0'; text++) {
        n += *text == '\n';
    }
    return n;
}

static void must_refuse(World *world, const Run *run, const char *says)
{
    if (run->code != 2 || lines_in(run->err) != 1 || !g_str_has_prefix(run->err, "etcd-roles: ") ||
        strstr(run->err, says) == NULL || *run->out != '\0') {
        world_fail(world, "exit code %d, \"%s\" for \"%s\"", run->code, run->err, says);
    }
}

static void bad_arguments_are_refused(void **state)
{
    World *world = *state;
    g_autofree char *empty = g_build_filename(world->dir, "empty", NULL);
    g_autofree char *parted = g_build_filename(world->dir, "parted", NULL);
    assert_true(g_file_set_contents(empty, "", -1, NULL));
    assert_true(g_file_set_contents(parted, "two words\n", -1, NULL));
    must_roles(world);
    g_autofree char *before = all_rights(world);
    const char *const all[][6] = {
        {"usage", NULL},
        {"usage", "rolls", NULL},
        {"usage", "user", "x", NULL},
        {"usage", "user", "x", "people", empty, "more"},
        {"pool \"Cache\"", "roles", "Cache", NULL},
        {"--prefix", "--prefix", "leasehold", "roles", NULL},
        {"--prefix", "--prefix", NULL},
        {"role nobody", "user", "x", "nobody", NULL},
        {"user \"x:y\"", "user", "x:y", "people", NULL},
        {"cannot be read", "user", "x", "people", "/nowhere"},
        {"is empty", "user", "x", "people", empty},
        {"white space", "user", "x", "people", parted},
    };
    for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
        const char *const *a = all[i];
        guint n = 1;
        while (n < 6 && a[n] != NULL) {
            n++;
        }
        g_autoptr(Run) run = n == 6 ? etcd_roles(world, a[1], a[2], a[3], a[4], a[5], NULL)
                                    : etcd_roles(world, a[1], a[2], a[3], a[4], NULL);
        must_refuse(world, run, a[0]);
    }
    g_autofree char *after = all_rights(world);
    assert_string_equal(after, before);
}

/* ---- a product of users ---- */

static void must(World *world, Run *run, const char *what)
{
    g_autoptr(Run) done = run;
    if (done->code != 0) {
        world_fail(world, "%s: %d %s", what, done->code, done->err);
    }
}

static void publish(World *world, const char *name)
{
    g_autofree char *key = g_strconcat(PREFIX "published/snapshots/", name, NULL);
    snapshot_files(world, name, 1, 1000);
    g_autofree char *value = snapshot_value(world, name, "x", world->now_ms);
    must(world, etcdctl_as(world, "publisher", "put", key, value, NULL), key);
}

static void start_all(World *world)
{
    must_roles(world);
    world_user(world, "m", "manager");
    world_user(world, "node", "node-cache");
    world_user(world, "person", "people");
    world_user(world, "publisher", "publisher");
    world_as(world, "m");
    manager_start(world, "manager", NULL);
    world_as(world, "node");
    agents_start(world, 1);
    must(world,
         etcdctl_as(world, "person", "put", PREFIX "desired/services/x",
                    "{\"spec\":{\"owner\":\"a\"}}", NULL),
         "people");
    publish(world, "s-1");
    world_wait_live(world, NULL, 1);
}

/* ---- what is refused ---- */

typedef struct {
    gboolean done;
    int code; /* LhErrorCode; -1: it was done */
    char *error;
} Answer;

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Answer *answer = data;
    (void)reply;
    answer->done = TRUE;
    answer->code = error != NULL ? error->code : -1;
    answer->error = g_strdup(error != NULL ? error->message : "");
}

static gboolean is_done(World *world, gpointer data)
{
    (void)world;
    return ((Answer *)data)->done;
}

static Answer ask(World *world, LhEtcd *etcd, const LhTxnRequest *txn)
{
    Answer answer = {0};
    lh_etcd_txn(etcd, txn, on_txn, &answer);
    world_wait(world, is_done, &answer, "etcd answers");
    return answer;
}

static void must_deny(World *world, LhEtcd *etcd, const LhTxnRequest *txn, const char *what)
{
    Answer answer = ask(world, etcd, txn);
    g_autofree char *error = answer.error;
    if (answer.code != LH_ERR_FORBIDDEN || strstr(error, "permission denied") == NULL) {
        world_fail(world, "%s: code %d, \"%s\"", what, answer.code, error);
    }
}

/* By the product's client: a put, a delete, and either in the branch that is not taken. */
static void client_is_denied(World *world, LhEtcd *etcd, const char *key)
{
    const LhTxnOp put = lh_txn_put(key, "{}", 0), del = lh_txn_delete(key),
                  read = lh_txn_range(key);
    const LhCompare never = lh_compare_create(key, 1 << 30);
    must_deny(world, etcd, &(LhTxnRequest){.success = &put, .n_success = 1}, key);
    must_deny(world, etcd, &(LhTxnRequest){.success = &del, .n_success = 1}, key);
    must_deny(world, etcd,
              &(LhTxnRequest){.compares = &never,
                              .n_compares = 1,
                              .success = &read,
                              .n_success = 1,
                              .failure = &put,
                              .n_failure = 1},
              key);
    must_deny(world, etcd,
              &(LhTxnRequest){.compares = &never,
                              .n_compares = 1,
                              .success = &read,
                              .n_success = 1,
                              .failure = &del,
                              .n_failure = 1},
              key);
}

static void etcdctl_is_denied(World *world, const char *user, const char *key)
{
    const char *const args[][3] = {
        {"put", key, "{}"}, {"del", key, NULL}, {"del", key, "--prefix"}};
    for (guint i = 0; i < G_N_ELEMENTS(args); i++) {
        g_autoptr(Run) run = etcdctl_as(world, user, args[i][0], args[i][1], args[i][2], NULL);
        if (run->code == 0 || strstr(run->err, "permission denied") == NULL) {
            world_fail(world, "%s %s of %s: %d %s", args[i][0], key, user, run->code, run->err);
        }
    }
}

static void are_denied(World *world, const char *user, GPtrArray *keys)
{
    LhEtcd *etcd = etcd_client_as(world, user);
    for (guint i = 0; i < keys->len; i++) {
        client_is_denied(world, etcd, keys->pdata[i]);
        etcdctl_is_denied(world, user, keys->pdata[i]);
    }
    lh_etcd_free(etcd);
}

/* Is allowed to write @key, and to delete it. */
static void is_allowed(World *world, const char *user, const char *key)
{
    LhEtcd *etcd = etcd_client_as(world, user);
    const LhTxnOp put = lh_txn_put(key, "{}", 0), del = lh_txn_delete(key);
    const LhTxnOp *const ops[] = {&put, &del};
    for (guint i = 0; i < G_N_ELEMENTS(ops); i++) {
        Answer answer = ask(world, etcd, &(LhTxnRequest){.success = ops[i], .n_success = 1});
        g_autofree char *error = answer.error;
        if (answer.code != -1) {
            world_fail(world, "%s of %s: %s", key, user, error);
        }
    }
    lh_etcd_free(etcd);
    must(world, etcdctl_as(world, user, "put", key, "{}", NULL), key);
    must(world, etcdctl_as(world, user, "del", key, NULL), key);
}

/* One that is there, below @prefix, as a whole key. */
static char *present(World *world, const char *prefix)
{
    g_autoptr(GPtrArray) keys = world_range(world, prefix);
    if (keys->len == 0) {
        world_fail(world, "there is nothing below %s", prefix);
    }
    return g_strconcat(PREFIX, ((Kv *)keys->pdata[0])->key, NULL);
}

/* Keys that are there and keys that are not, in an array of texts. */
static GPtrArray *keys_of(World *world, const char *const *below, const char *const *absent)
{
    GPtrArray *keys = g_ptr_array_new_with_free_func(g_free);
    for (; *below != NULL; below++) {
        g_ptr_array_add(keys, present(world, *below));
    }
    for (; *absent != NULL; absent++) {
        g_ptr_array_add(keys, g_strconcat(PREFIX, *absent, NULL));
    }
    return keys;
}

/* "KEY CREATED CHANGED" of each of @keys that is there: what nobody may have changed. */
static char *state_of(World *world, GPtrArray *keys)
{
    GString *text = g_string_new(NULL);
    g_autoptr(GPtrArray) kvs = world_range(world, "");
    for (guint i = 0; i < kvs->len; i++) {
        const Kv *kv = kvs->pdata[i];
        for (guint j = 0; j < keys->len; j++) {
            const char *key = keys->pdata[j];
            if (strcmp(key + strlen(PREFIX), kv->key) == 0) {
                g_string_append_printf(text, "%s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n", key,
                                       kv->create_rev, kv->mod_rev);
            }
        }
    }
    return g_string_free(text, FALSE);
}

static void check_denied(World *world, const char *user, const char *const *below,
                         const char *const *absent)
{
    g_autoptr(GPtrArray) keys = keys_of(world, below, absent);
    g_autofree char *before = state_of(world, keys);
    are_denied(world, user, keys);
    g_autofree char *after = state_of(world, keys);
    assert_string_equal(after, before);
}

static void a_node_writes_nothing_but_its_pool(void **state)
{
    static const char *const below[] = {"decided/assignments/cache/", "decided/replicas/",
                                        "decided/accepted/",          "decided/status/",
                                        "desired/services/",          "published/snapshots/",
                                        "leaders/cache-assigner/",    NULL};
    static const char *const absent[] = {
        "decided/assignments/cache/other-00000001/i", "desired/nodepolicies/cache/agent-1",
        "desired/confirmations/cache-evictor", "published/snapshots/s-2",
        "leaders/cache-assigner/0000000000000001", "events/00000000000000000001",
        /* of other pools */
        "actual/nodes/recovery/n-00000001", "actual/items/recovery/n-00000001/i",
        "actual/search/recovery/n-00000001/i",
        /* a pool whose name only begins as its own */
        "actual/nodes/cache2/n-00000001", NULL};
    World *world = *state;
    start_all(world);
    check_denied(world, "node", below, absent);
    is_allowed(world, "node", PREFIX "actual/nodes/cache/n-00000001");
    is_allowed(world, "node", PREFIX "actual/items/cache/n-00000001/i");
    is_allowed(world, "node", PREFIX "actual/search/cache/n-00000001/s");
    /* And nobody outside the prefix. */
    g_autoptr(Run) outside = etcdctl_as(world, "m", "put", "/elsewhere", "x", NULL);
    assert_non_null(strstr(outside->err, "permission denied"));
    g_autoptr(Run) read = etcdctl_as(world, "node", "get", "/elsewhere", NULL);
    assert_non_null(strstr(read->err, "permission denied"));
}

static void people_and_publishers_keep_to_their_own(void **state)
{
    static const char *const not_of_people[] = {"published/snapshots/", "decided/replicas/",
                                                "actual/nodes/cache/", "leaders/", NULL};
    static const char *const not_of_publishers[] = {"desired/services/", "decided/replicas/",
                                                    "actual/nodes/cache/", "leaders/", NULL};
    static const char *const absent_people[] = {"published/snapshots/s-2", "decided/brakes/x",
                                                NULL};
    static const char *const absent_publishers[] = {"desired/services/y", "decided/brakes/x", NULL};
    World *world = *state;
    start_all(world);
    check_denied(world, "person", not_of_people, absent_people);
    check_denied(world, "publisher", not_of_publishers, absent_publishers);
    is_allowed(world, "person", PREFIX "desired/services/y");
    is_allowed(world, "publisher", PREFIX "published/recoverytasks/t");
    is_allowed(world, "m", PREFIX "decided/brakes/x");
    is_allowed(world, "m", PREFIX "desired/settings/x");
}

/* Every change of users and roles makes etcd forget all tokens. */
static void rights_changed_while_all_run(void **state)
{
    World *world = *state;
    start_all(world);
    for (guint i = 2; i < 6; i++) {
        g_autofree char *name = g_strdup_printf("s-%u", i);
        must_roles(world);
        publish(world, name);
        world_wait_live(world, NULL, i);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_script_twice_changes_nothing),   TEST(bad_arguments_are_refused),
        TEST(a_node_writes_nothing_but_its_pool), TEST(people_and_publishers_keep_to_their_own),
        TEST(rights_changed_while_all_run),
    };
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return cmocka_run_group_tests_name("integration-roles", tests, NULL, NULL);
}

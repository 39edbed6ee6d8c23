/*
 * Bad values under every prefix: nothing stops, nothing is written over, each is counted, and what
 * people and the data plane wrote says in its Status what is wrong.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LONG 60000
#define DEEP 5000

/* ---- the values ---- */

typedef enum {
    SURE,  /* the contract refuses it */
    MAYBE, /* it need not: but nothing may stop */
} Certainty;

typedef struct {
    const char *key;
    const char *value; /* NULL: see data */
    Certainty certainty;
} Bad;

/* With these, each kind is tried under a key of its own. */
static const Bad of_every_kind[] = {
    {"not-json", "{\"spec\":", SURE},
    {"empty", "", SURE},
    {"null", "null", SURE},
    {"array", "[]", SURE},
    {"text", "\"text\"", SURE},
    {"number", "7", SURE},
    {"twice", "{}{}", SURE},
    {"int-spec", "{\"spec\":3,\"service\":3,\"state\":3,\"action\":3,\"snapshot\":3}", MAYBE},
};

/* Kinds with a valid name to hang a bad value on; %s is unique. */
static const char *const keys[] = {
    "desired/services/%s",
    "desired/seeds/%s",
    "desired/throttles/%s",
    "desired/partitions/%s",
    "desired/restores/%s",
    "desired/nodepolicies/cache/%s",
    "published/snapshots/%s",
    "published/recoverytasks/%s",
    "decided/accepted/services/%s",
    "decided/replicas/%s.default.0",
    "decided/assignments/cache/nowhere-00000000/%s.default.0",
    "decided/retries/cache/%s",
    "decided/partitionplans/%s",
    "decided/restoreprogress/%s",
    "decided/health/cache/%s-00000000",
    "decided/deletions/%s",
    "decided/status/services/%s/cluster-monitor",
    "actual/nodes/cache/%s-00000000",
    "actual/items/cache/nowhere-00000000/%s.default.0",
    "actual/search/cache/nowhere-00000000/%s",
    "events/%s",
};

static const Bad single[] = {
    {"desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"fast\"}}", SURE},
    {"desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":-2}}", SURE},
    {"desired/settings/nobody", "{\"spec\":{}}", MAYBE},
    {"desired/confirmations/cache-evictor", "{\"spec\":{\"planHash\":7}}", SURE},
    {"desired/services/wrong-type", "{\"spec\":{\"owner\":7}}", SURE},
    {"desired/services/no-owner", "{\"spec\":{}}", SURE},
    {"desired/services/negative-replicas",
     "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":-1}}}", SURE},
    {"desired/services/half-replicas", "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":1.5}}}",
     SURE},
    {"desired/services/negative-size",
     "{\"spec\":{\"owner\":\"a\",\"throughputBytesPerSecond\":-1}}", SURE},
    {"desired/services/too-large",
     "{\"spec\":{\"owner\":\"a\",\"throughputBytesPerSecond\":9007199254740993}}", SURE},
    {"desired/services/bad-window", "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"soon\"}}}",
     SURE},
    {"desired/services/long-window",
     "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"8d\"},\"retention\":\"7d\"}}", SURE},
    {"desired/services/bad-set", "{\"spec\":{\"owner\":\"a\",\"cache\":{\"sets\":[\"NO.SUCH\"]}}}",
     SURE},
    {"desired/services/other-kind", "{\"kind\":\"Seed\",\"spec\":{\"owner\":\"a\"}}", SURE},
    {"desired/services/other-name", "{\"metadata\":{\"name\":\"b\"},\"spec\":{\"owner\":\"a\"}}",
     SURE},
    {"desired/restores/year-9999",
     "{\"spec\":{\"service\":\"*\",\"startTime\":\"9999-12-31T23:59:59Z\","
     "\"endTime\":\"9999-12-31T23:59:59Z\"}}",
     MAYBE},
    {"published/snapshots/negative-size",
     "{\"service\":\"good\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":-1,\"uri\":\"file:///n/\"}",
     SURE},
    {"published/snapshots/year-9999",
     "{\"service\":\"good\",\"startTime\":\"9999-12-31T23:59:59Z\",\"endTime\":"
     "\"9999-12-31T23:59:59.999Z\",\"sizeBytes\":1,\"uri\":\"file:///y/\"}",
     MAYBE},
    {"published/snapshots/dots",
     "{\"service\":\"good\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,"
     "\"uri\":\"file:///a/../b/\"}",
     SURE},
    {"published/snapshots/no-slash",
     "{\"service\":\"good\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":\"file:///a\"}",
     SURE},
    {"published/snapshots/ends-before",
     "{\"service\":\"good\",\"startTime\":2,\"endTime\":1,\"sizeBytes\":1,\"uri\":\"file:///e/\"}",
     SURE},
    /* names that are none */
    {"desired/services/", "{\"spec\":{\"owner\":\"a\"}}", SURE},
    {"desired/services/-x-", "{\"spec\":{\"owner\":\"a\"}}", SURE},
    {"desired/services/a b", "{\"spec\":{\"owner\":\"a\"}}", SURE},
    {"desired/services/a/b", "{\"spec\":{\"owner\":\"a\"}}", SURE},
    {"desired/services/\xff\xfe", "{\"spec\":{\"owner\":\"a\"}}", SURE},
    {"published/snapshots/", "{}", SURE},
    {"decided/replicas/", "{}", SURE},
    {"decided/assignments/cache/", "{}", SURE},
    {"actual/nodes/", "{}", SURE},
    {"decided/orphans/xyz", "{}", SURE},
    {"leaders/cache-assigner", "{}", SURE},
    {"leaders/nobody/xyz", "not json", SURE},
    /* kinds that are none */
    {"desired/widgets/x", "{\"spec\":{}}", SURE},
    {"desired/", "", SURE},
    {"elsewhere", "\xff", SURE},
    {"decided/ghosts/a/b/c", "{}", SURE},
};

/* ---- putting them ---- */

typedef struct {
    GHashTable *values;  /* key → GBytes */
    GHashTable *sure;    /* plural → how many at least */
    GHashTable *all;     /* plural → how many at most */
    GPtrArray *statuses; /* "services/x": must say Valid=False */
} Ledger;

static void count(GHashTable *table, const char *plural)
{
    guint n = GPOINTER_TO_UINT(g_hash_table_lookup(table, plural));
    g_hash_table_insert(table, (gpointer)plural, GUINT_TO_POINTER(n + 1));
}

static void put_bad(World *world, Ledger *ledger, const char *key, GBytes *value,
                    Certainty certainty)
{
    LhKind kind = LH_N_KINDS;
    const char *name = NULL, *plural = "unknown";
    gsize len;
    const void *data = g_bytes_get_data(value, &len);
    if (lh_key_split(key, &kind, &name)) {
        plural = lh_kind_info(kind)->plural;
    }
    world_put_bytes(world, key, data, len);
    /* What controllers and nodes wrote and can be read may be tidied up. */
    if (certainty == SURE || g_str_has_prefix(key, "desired/") ||
        g_str_has_prefix(key, "published/")) {
        g_hash_table_insert(ledger->values, g_strdup(key), g_bytes_ref(value));
    }
    count(ledger->all, plural);
    if (certainty == SURE) {
        count(ledger->sure, plural);
        if (kind != LH_N_KINDS && lh_kind_name_valid(kind, name) &&
            lh_kind_info(kind)->area <= LH_AREA_PUBLISHED && kind != LH_KIND_RECOVERYTASK) {
            g_ptr_array_add(ledger->statuses, g_strdup_printf("%s/%s", plural, name));
        }
    }
}

static void put_text(World *world, Ledger *ledger, const char *key, const char *value,
                     Certainty certainty)
{
    g_autoptr(GBytes) bytes = g_bytes_new(value, strlen(value));
    put_bad(world, ledger, key, bytes, certainty);
}

static GBytes *long_text(void)
{
    GString *text = g_string_new("{\"spec\":{\"owner\":\"");
    for (guint i = 0; i < LONG; i++) {
        g_string_append_c(text, 'a');
    }
    g_string_append(text, "\"},\"service\":3,\"extra\":7}");
    return g_string_free_to_bytes(text);
}

static GBytes *deep_text(void)
{
    GString *text = g_string_new("{\"spec\":");
    for (guint i = 0; i < DEEP; i++) {
        g_string_append_c(text, '[');
    }
    for (guint i = 0; i < DEEP; i++) {
        g_string_append_c(text, ']');
    }
    g_string_append_c(text, '}');
    return g_string_free_to_bytes(text);
}

/* Of one kind: the values of the table, and those that no C string holds. */
static void put_kind(World *world, Ledger *ledger, const char *format)
{
    static const char invalid[] = "{\"spec\":{\"owner\":\"\xff\xfe\x80\"}}";
    static const char zero[] = "{\"spec\":{\"owner\":\"a\0b\"}}";
    const struct {
        const char *name;
        GBytes *value;
        Certainty certainty;
    } more[] = {
        {"long", long_text(), MAYBE},
        {"deep", deep_text(), SURE},
        {"utf8", g_bytes_new_static(invalid, sizeof invalid - 1), SURE},
        {"nul", g_bytes_new_static(zero, sizeof zero - 1), SURE},
    };
    g_auto(GStrv) parts = g_strsplit(format, "%s", 2);
    for (guint i = 0; i < G_N_ELEMENTS(of_every_kind); i++) {
        const Bad *bad = &of_every_kind[i];
        g_autofree char *key = g_strconcat(parts[0], "bad-", bad->key, parts[1], NULL);
        put_text(world, ledger, key, bad->value, bad->certainty);
    }
    for (guint i = 0; i < G_N_ELEMENTS(more); i++) {
        g_autofree char *key = g_strconcat(parts[0], "bad-", more[i].name, parts[1], NULL);
        put_bad(world, ledger, key, more[i].value, more[i].certainty);
        g_bytes_unref(more[i].value);
    }
}

static void put_everything(World *world, Ledger *ledger)
{
    for (guint i = 0; i < G_N_ELEMENTS(keys); i++) {
        put_kind(world, ledger, keys[i]);
    }
    for (guint i = 0; i < G_N_ELEMENTS(single); i++) {
        put_text(world, ledger, single[i].key, single[i].value, single[i].certainty);
    }
}

/* ---- what must be so afterwards ---- */

static void tell_missing(const Ledger *ledger, GPtrArray *now)
{
    g_autoptr(GHashTable) there = g_hash_table_new(g_str_hash, g_str_equal);
    GHashTableIter iter;
    gpointer key;
    for (guint i = 0; i < now->len; i++) {
        g_hash_table_add(there, ((Kv *)g_ptr_array_index(now, i))->key);
    }
    g_hash_table_iter_init(&iter, ledger->values);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        if (!g_hash_table_contains(there, key)) {
            print_error("%s is gone\n", (char *)key);
        }
    }
}

static void check_unchanged(World *world, const Ledger *ledger)
{
    g_autoptr(GPtrArray) now = world_range(world, "");
    guint same = 0, wrong = 0;
    for (guint i = 0; i < now->len; i++) {
        const Kv *kv = g_ptr_array_index(now, i);
        GBytes *was = g_hash_table_lookup(ledger->values, kv->key);
        if (was == NULL) {
            continue;
        }
        g_autoptr(GBytes) is = g_bytes_new(kv->value, kv->len);
        same++;
        if (!g_bytes_equal(was, is) || kv->create_rev != kv->mod_rev) {
            print_error("%s was written over: %.80s\n", kv->key, kv->value);
            wrong++;
        }
    }
    if (same != g_hash_table_size(ledger->values) || wrong > 0) {
        tell_missing(ledger, now);
        world_fail(world, "of %u bad values %u are there, and %u of them changed",
                   g_hash_table_size(ledger->values), same, wrong);
    }
}

static void check_metric(Proc *manager, const Ledger *ledger)
{
    GHashTableIter iter;
    gpointer plural, most;
    guint wrong = 0;
    g_hash_table_iter_init(&iter, ledger->all);
    while (g_hash_table_iter_next(&iter, &plural, &most)) {
        g_autofree char *series = g_strdup_printf("invalid_objects{kind=\"%s\"}", (char *)plural);
        guint least = GPOINTER_TO_UINT(g_hash_table_lookup(ledger->sure, plural));
        double is = metric(manager, series);
        if (!(is >= least && is <= GPOINTER_TO_UINT(most))) {
            print_error("%s is %g, should be %u to %u\n", series, is, least,
                        GPOINTER_TO_UINT(most));
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static gboolean is_said(World *world, const char *subject)
{
    g_autofree char *name = g_strconcat(subject, "/admission", NULL);
    const LhCondition *valid = world_condition(world, name, "Valid");
    return valid != NULL && valid->status == LH_CONDITION_FALSE && valid->message != NULL &&
           valid->message[0] != '\0' && valid->reason != NULL;
}

static gboolean all_said(World *world, gpointer data)
{
    const Ledger *ledger = data;
    for (guint i = 0; i < ledger->statuses->len; i++) {
        if (!is_said(world, g_ptr_array_index(ledger->statuses, i))) {
            return FALSE;
        }
    }
    return TRUE;
}

static void check_statuses(World *world, Ledger *ledger)
{
    if (world_until(world, all_said, ledger, WAIT_MS / 3)) {
        return;
    }
    for (guint i = 0; i < ledger->statuses->len; i++) {
        const char *subject = g_ptr_array_index(ledger->statuses, i);
        if (!is_said(world, subject)) {
            print_error("%s does not say Valid=False\n", subject);
        }
    }
    world_fail(world, "not all Statuses say what is wrong");
}

/* Whatever is in etcd, the API answers with JSON. */
static void check_lists(Proc *manager)
{
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        g_autofree char *path = g_strdup_printf("/v1/%s", lh_kind_info((LhKind)kind)->plural);
        g_autoptr(Reply) list = http(manager, "GET", path, NULL);
        reply_must(list, 200);
        assert_non_null(list->json);
        assert_true(g_utf8_validate(list->body->str, (gssize)list->body->len, NULL));
    }
    static const char *const paths[] = {"/v1/cluster", "/v1/plan", "/readyz", "/healthz"};
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_autoptr(Reply) reply = http(manager, "GET", paths[i], NULL);
        reply_must(reply, 200);
    }
}

static void check_work_goes_on(World *world, const char *snapshots)
{
    for (guint i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("%s-%u", snapshots, i);
        snapshot_publish(world, name, "good", world->now_ms - (gint64)i * 1000, 1, 1000);
    }
    world_wait_live(world, snapshots, 3);
}

static void bad_values_hurt_nothing(void **state)
{
    World *world = *state;
    Ledger ledger = {
        .values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                        (GDestroyNotify)g_bytes_unref),
        .sure = g_hash_table_new(g_str_hash, g_str_equal),
        .all = g_hash_table_new(g_str_hash, g_str_equal),
        .statuses = g_ptr_array_new_with_free_func(g_free),
    };
    Proc *manager = manager_start(world, "manager", NULL);
    agents_start(world, 2);
    world_put(world, "desired/services/good", "{\"spec\":{\"owner\":\"a\"}}");
    check_work_goes_on(world, "before");
    put_everything(world, &ledger);
    check_statuses(world, &ledger);
    check_work_goes_on(world, "after");
    check_metric(manager, &ledger);
    check_lists(manager);
    check_unchanged(world, &ledger);

    assert_int_equal(proc_stop(manager), 0);
    manager = manager_ready(world, "successor");
    agent_start(world, &(AgentOptions){.name = "late"});
    check_work_goes_on(world, "later");
    check_metric(manager, &ledger);
    check_unchanged(world, &ledger);
    assert_int_equal(world_live(world, NULL), 9);
    g_hash_table_unref(ledger.values);
    g_hash_table_unref(ledger.sure);
    g_hash_table_unref(ledger.all);
    g_ptr_array_unref(ledger.statuses);
}

static gboolean task_says_it(World *world, gpointer data)
{
    return is_said(world, "recoverytasks/bad");
}

/* Apart from the others, so that it hides nothing of them. */
static void a_bad_recovery_task_says_it(void **state)
{
    World *world = *state;
    manager_ready(world, "manager");
    world_put(world, "published/recoverytasks/bad", "{\"partition\":7}");
    world_wait(world, task_says_it, NULL, "the Status of a bad recovery task says Valid=False");
}

/* ---- an edit that is nonsense ---- */

static gboolean is_invalid(World *world, gpointer data)
{
    const LhCondition *valid = world_condition(world, "services/edited/admission", "Valid");
    const LhStatus *status = world_get(world, LH_KIND_STATUS, "services/edited/admission");
    return valid != NULL && valid->status == LH_CONDITION_FALSE &&
           status->observed_revision == *(gint64 *)data;
}

static void publish_edited(World *world, const char *name)
{
    snapshot_publish(world, name, "edited", world->now_ms - 60000, 1, 1000);
}

static void the_last_good_service_stays_in_force(void **state)
{
    static const char *const nonsense[] = {
        "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":-1}}}",
        "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"9d\"}}}",
        "all copies, please",
        "",
    };
    World *world = *state;
    Proc *managers[] = {manager_ready(world, "m1"), manager_ready(world, "m2")};
    agents_start(world, 2);
    world_put(world, "desired/services/edited",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":2}}}");
    world_put(world, "desired/services/good", "{\"spec\":{\"owner\":\"a\"}}");
    publish_edited(world, "e-0");
    world_wait_live(world, "e-", 2);
    gint64 before = world_revision(world);
    for (guint i = 0; i < G_N_ELEMENTS(nonsense); i++) {
        gint64 revision = world_put(world, "desired/services/edited", nonsense[i]);
        world_wait(world, is_invalid, &revision, "Valid=False for \"%s\"", nonsense[i]);
    }
    assert_int_equal(proc_stop(managers[0]), 0);
    assert_int_equal(proc_stop(managers[1]), 0);
    manager_ready(world, "m3");
    manager_ready(world, "m4");
    check_work_goes_on(world, "after");
    /* A new snapshot of it gets what the last good one says. */
    publish_edited(world, "e-1");
    world_wait_live(world, "e-1", 2);
    assert_int_equal(world_live(world, "e-0"), 2);
    g_autoptr(GPtrArray) history = world_history(world, before);
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (strstr(kv->key, "/e-0.") != NULL && kv->is_delete) {
            world_fail(world, "%s was deleted", kv->key);
        }
    }
}

/* ---- stray keys in an election ---- */

/* Not bound to an instance's lease: no candidate, so it must not keep others from leading. */
static void stray_leader_keys_stop_no_election(void **state)
{
    World *world = *state;
    world_put(world, "leaders/cache-assigner/xyz", "not json");
    world_put(world, "leaders/replica-creator/0000000000000001", "not json");
    world_put(world, "desired/services/good", "{\"spec\":{\"owner\":\"a\"}}");
    manager_start(world, "manager", NULL);
    agents_start(world, 1);
    check_work_goes_on(world, "s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bad_values_hurt_nothing, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_bad_recovery_task_says_it, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(the_last_good_service_stays_in_force, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(stray_leader_keys_stop_no_election, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-bad-values", tests, NULL, NULL);
}

/*
 * etcd/list over a scripted etcd and virtual time: pages of one revision, each key once, and a list that
 * failed never looks like a short one.
 */
/* links: fakes */
#include "etcd/list.h"
#include "tests/fakes/env_sim.h"
#include "tests/unit/etcd/script.h"

typedef struct {
    SimWorld *world;
    LhEnv *env;
    Script *etcd;
    LhList *list;
    GString *seen;
    gboolean cancel_in_page, cancel_in_restart;
} Fixture;

static void on_restart(gpointer data)
{
    Fixture *f = data;
    g_string_append(f->seen, "restart\n");
    if (f->cancel_in_restart)
        g_clear_pointer(&f->list, lh_list_cancel);
}

static void on_page(const LhKv *kvs, gsize n, gpointer data)
{
    Fixture *f = data;
    g_string_append(f->seen, "page");
    for (gsize i = 0; i < n; i++)
        g_string_append_printf(f->seen, " %s", kvs[i].key);
    g_string_append(f->seen, "\n");
    if (f->cancel_in_page)
        g_clear_pointer(&f->list, lh_list_cancel);
}

static void on_done(const LhEtcdHeader *header, const GError *error, gpointer data)
{
    Fixture *f = data;
    if (error != NULL)
        g_string_append_printf(f->seen, "failed: %s\n", lh_error_name((LhErrorCode)error->code));
    else
        g_string_append_printf(f->seen, "done %" G_GINT64_FORMAT "\n", header->revision);
    assert_true((error == NULL) == (header != NULL));
    f->list = NULL;
}

static void start(Fixture *f, gint64 revision, gint64 page_keys)
{
    static const LhListFuncs funcs = {.restart = on_restart, .page = on_page, .done = on_done};
    f->list = lh_list_start(f->env, &f->etcd->base, "/p/", revision, page_keys, &funcs, f);
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->world = sim_world_new(1);
    f->env = sim_machine_new(f->world, "m");
    f->etcd = script_new();
    f->seen = g_string_new(NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_list_cancel(f->list);
    script_free(f->etcd);
    assert_int_equal(sim_world_pending(f->world), 0);
    sim_world_free(f->world);
    g_string_free(f->seen, TRUE);
    g_free(f);
    return 0;
}

static void expect(Fixture *f, const char *text)
{
    assert_string_equal(f->seen->str, text);
    g_string_truncate(f->seen, 0);
}

/* Answers with these keys (space-separated) of a store at @revision. */
static void answer(Fixture *f, const char *keys, gint64 revision, gboolean more)
{
    g_auto(GStrv) names = g_strsplit(keys, " ", 0);
    LhKv kvs[16] = {0};
    gsize n = 0;
    for (; names[n] != NULL && names[n][0] != '\0'; n++)
        kvs[n] = (LhKv){.key = names[n], .key_len = strlen(names[n]), .value = ""};
    script_answer_range(f->etcd,
                        &(LhRangeReply){.header = {.cluster_id = CLUSTER, .revision = revision},
                                        .kvs = kvs,
                                        .n_kvs = n,
                                        .more = more});
}

static void expect_request(Fixture *f, const char *key, gint64 revision, gint64 limit)
{
    const ScriptCall *call = script_peek(f->etcd, S_RANGE);
    assert_string_equal(call->key, key);
    assert_string_equal(call->range_end, "/p0");
    assert_int_equal(call->revision, revision);
    assert_int_equal(call->limit, limit);
    assert_false(call->serializable);
    assert_false(call->keys_only);
    assert_int_equal(f->etcd->calls.length, 1);
}

static void empty(void **state)
{
    Fixture *f = *state;
    start(f, 0, 2);
    expect_request(f, "/p/", 0, 2);
    answer(f, "", 9, FALSE);
    expect(f, "done 9\n");
}

static void pages_of_one_revision(void **state)
{
    Fixture *f = *state;
    start(f, 0, 2);
    answer(f, "/p/a /p/b", 9, TRUE);
    expect(f, "page /p/a /p/b\n");
    /* From the last key, which comes again and is not handed over twice. */
    expect_request(f, "/p/b", 9, 3);
    answer(f, "/p/b /p/c /p/d", 12, TRUE);
    expect(f, "page /p/c /p/d\n");
    /* Deleted meanwhile is impossible at one revision, but a page must not depend on it. */
    answer(f, "/p/e", 15, FALSE);
    expect(f, "page /p/e\ndone 9\n");
}

static void last_page_with_nothing_new(void **state)
{
    Fixture *f = *state;
    start(f, 0, 2);
    answer(f, "/p/a /p/b", 9, TRUE);
    answer(f, "/p/b", 9, FALSE);
    expect(f, "page /p/a /p/b\ndone 9\n");
}

static void at_a_given_revision(void **state)
{
    Fixture *f = *state;
    start(f, 7, 2);
    expect_request(f, "/p/", 7, 2);
    answer(f, "/p/a /p/b", 9, TRUE);
    expect_request(f, "/p/b", 7, 3);
    answer(f, "/p/b /p/c", 9, FALSE);
    expect(f, "page /p/a /p/b\npage /p/c\ndone 7\n");
}

static void compacted_in_between_begins_again(void **state)
{
    Fixture *f = *state;
    start(f, 0, 1);
    answer(f, "/p/a", 9, TRUE);
    script_fail(f->etcd, S_RANGE, LH_ERR_COMPACTED);
    expect(f, "page /p/a\nrestart\n");
    expect_request(f, "/p/", 0, 1);
    answer(f, "/p/b", 20, FALSE);
    expect(f, "page /p/b\ndone 20\n");
}

static void compacted_for_ever_fails(void **state)
{
    Fixture *f = *state;
    start(f, 0, 1);
    for (guint i = 0; i < 5; i++) {
        answer(f, "/p/a", 9, TRUE);
        script_fail(f->etcd, S_RANGE, LH_ERR_COMPACTED);
        expect(f, "page /p/a\nrestart\n");
    }
    answer(f, "/p/a", 9, TRUE);
    script_fail(f->etcd, S_RANGE, LH_ERR_COMPACTED);
    expect(f, "page /p/a\nfailed: compacted\n");
}

static void given_revision_compacted_fails(void **state)
{
    Fixture *f = *state;
    start(f, 7, 1);
    script_fail(f->etcd, S_RANGE, LH_ERR_COMPACTED);
    expect(f, "failed: compacted\n");
}

static void a_page_is_asked_for_again(void **state)
{
    Fixture *f = *state;
    start(f, 0, 1);
    answer(f, "/p/a", 9, TRUE);
    for (guint i = 0; i < 5; i++) {
        script_fail(f->etcd, S_RANGE, i % 2 == 0 ? LH_ERR_UNAVAILABLE : LH_ERR_OVERLOADED);
        assert_int_equal(f->etcd->calls.length, 0);
        sim_world_run_until(f->world, sim_world_now_ms(f->world) + (100 << i));
        expect_request(f, "/p/a", 9, 2);
    }
    answer(f, "/p/a /p/b", 9, TRUE);
    expect(f, "page /p/a\npage /p/b\n");
    for (guint i = 0; i < 5; i++) {
        script_fail(f->etcd, S_RANGE, LH_ERR_UNAVAILABLE);
        sim_world_step(f->world);
    }
    script_fail(f->etcd, S_RANGE, LH_ERR_UNAVAILABLE);
    expect(f, "failed: unavailable\n");
}

static void what_does_not_pass_fails_at_once(void **state)
{
    Fixture *f = *state;
    const LhErrorCode codes[] = {LH_ERR_INVALID, LH_ERR_AUTH, LH_ERR_FORBIDDEN, LH_ERR_INTERNAL};
    for (guint i = 0; i < G_N_ELEMENTS(codes); i++) {
        start(f, 0, 1);
        script_fail(f->etcd, S_RANGE, codes[i]);
        g_autofree char *text = g_strdup_printf("failed: %s\n", lh_error_name(codes[i]));
        expect(f, text);
    }
}

static void another_cluster_fails(void **state)
{
    Fixture *f = *state;
    start(f, 0, 1);
    answer(f, "/p/a", 9, TRUE);
    LhKv kv = {.key = "/p/b", .key_len = 4, .value = ""};
    script_answer_range(
        f->etcd, &(LhRangeReply){
                     .header = {.cluster_id = CLUSTER + 1, .revision = 9}, .kvs = &kv, .n_kvs = 1});
    expect(f, "page /p/a\nfailed: unavailable\n");
}

static void a_page_without_a_new_key_fails(void **state)
{
    Fixture *f = *state;
    start(f, 0, 1);
    answer(f, "/p/a", 9, TRUE);
    answer(f, "/p/a", 9, TRUE);
    expect(f, "page /p/a\nfailed: internal\n");
}

/* A request's key is a string: such a page begins before the key, and what is known is left out. */
static void key_with_a_zero_byte(void **state)
{
    Fixture *f = *state;
    start(f, 0, 2);
    LhKv kvs[] = {{.key = "/p/a", .key_len = 4, .value = ""},
                  {.key = "/p/a\0x", .key_len = 6, .value = ""},
                  {.key = "/p/a\0y", .key_len = 6, .value = ""}};
    script_answer_range(f->etcd, &(LhRangeReply){.header = {.cluster_id = CLUSTER, .revision = 9},
                                                 .kvs = kvs,
                                                 .n_kvs = 2,
                                                 .more = TRUE});
    expect_request(f, "/p/a", 9, 3);
    script_answer_range(
        f->etcd,
        &(LhRangeReply){.header = {.cluster_id = CLUSTER, .revision = 9}, .kvs = kvs, .n_kvs = 3});
    expect(f, "page /p/a /p/a\npage /p/a\ndone 9\n");
}

static void pages_adapt_to_the_values(void **state)
{
    Fixture *f = *state;
    start(f, 0, 0);
    expect_request(f, "/p/", 0, 10000);
    LhKv kv = {.key = "/p/a", .key_len = 4, .value = "", .value_len = 64 * 1024};
    LhRangeReply reply = {
        .header = {.cluster_id = CLUSTER, .revision = 9}, .kvs = &kv, .n_kvs = 1, .more = TRUE};
    script_answer_range(f->etcd, &reply);
    assert_in_range(script_peek(f->etcd, S_RANGE)->limit, 1000, 1025);
    kv = (LhKv){.key = "/p/b", .key_len = 4, .value = "", .value_len = 300};
    script_answer_range(f->etcd, &reply);
    assert_in_range(script_peek(f->etcd, S_RANGE)->limit, 75000, 100000);
    kv = (LhKv){.key = "/p/c", .key_len = 4, .value = ""};
    script_answer_range(f->etcd, &reply);
    assert_int_equal(script_peek(f->etcd, S_RANGE)->limit, 250001);
    answer(f, "", 9, FALSE);
}

/* --- a large range --- */

#define VALUE_BYTES 8000 /* then a page has about 4,000 keys */

typedef struct {
    GPtrArray *keys; /* sorted */
    guint told, requests;
    gint64 walked;
} Large;

static Large large;

static gint compare_keys(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void on_large_page(const LhKv *kvs, gsize n, G_GNUC_UNUSED gpointer data)
{
    for (gsize i = 0; i < n; i++) {
        assert_string_equal(kvs[i].key, g_ptr_array_index(large.keys, large.told));
        assert_int_equal(kvs[i].value_len, VALUE_BYTES);
        assert_int_equal(kvs[i].value[VALUE_BYTES - 1], 'v');
        large.told++;
    }
}

/* Answers as an etcd that holds large.keys. */
static void answer_large(Fixture *f)
{
    static char value[VALUE_BYTES + 1];
    memset(value, 'v', VALUE_BYTES);
    const ScriptCall *call = script_peek(f->etcd, S_RANGE);
    guint n = 0, count = 0;
    g_autofree LhKv *kvs = g_new0(LhKv, (gsize)call->limit);
    for (guint i = 0; i < large.keys->len; i++) {
        const char *key = g_ptr_array_index(large.keys, i);
        if (strcmp(key, call->key) < 0 || strcmp(key, call->range_end) >= 0)
            continue;
        if (n < call->limit)
            kvs[n++] = (LhKv){
                .key = key, .key_len = strlen(key), .value = value, .value_len = VALUE_BYTES};
        count++;
    }
    large.requests++;
    large.walked += count;
    script_answer_range(f->etcd, &(LhRangeReply){.header = {.cluster_id = CLUSTER, .revision = 9},
                                                 .kvs = kvs,
                                                 .n_kvs = n,
                                                 .count = count,
                                                 .more = count > n});
}

static char *make_key(GRand *rand, guint shape, guint i)
{
    switch (shape) {
    case 0: /* names with gaps */
        return g_strdup_printf("/p/published/svc-%02u-202609%02u-%04u", i % 7, 1 + i / 7 % 9, i);
    case 1: /* dense */
        return g_strdup_printf("/p/%08u", i);
    case 2: /* nearly all with one beginning, one far behind */
        return g_strdup_printf("/p/%s/%u", i == 0 ? "\xff\xff" : "a/very/long/beginning", i);
    default: /* any bytes */
        return g_strdup_printf("/p/%c%c%c%u", g_rand_int_range(rand, 1, 256),
                               g_rand_int_range(rand, 1, 256), g_rand_int_range(rand, 1, 256), i);
    }
}

static void a_large_range_comes_whole_and_in_order(void **state)
{
    Fixture *f = *state;
    static const LhListFuncs funcs = {.page = on_large_page, .done = on_done};
    GRand *rand = g_rand_new_with_seed(1);
    for (guint shape = 0; shape < 4; shape++) {
        large = (Large){.keys = g_ptr_array_new_with_free_func(g_free)};
        for (guint i = 0; i < 40000; i++)
            g_ptr_array_add(large.keys, make_key(rand, shape, i));
        g_ptr_array_sort(large.keys, compare_keys);
        f->list = lh_list_start(f->env, &f->etcd->base, "/p/", 0, 0, &funcs, f);
        while (f->list != NULL) {
            if (f->etcd->calls.length > 0)
                answer_large(f);
            else
                assert_true(sim_world_step(f->world));
        }
        expect(f, "done 9\n");
        assert_int_equal(large.told, 40000);
        /* 12 pages without an end would walk 230,000 keys. */
        assert_true(large.requests < 100);
        assert_true(large.walked < 150000);
        g_ptr_array_unref(large.keys);
    }
    g_rand_free(rand);
}

static void cancelled_at_any_time(void **state)
{
    Fixture *f = *state;
    start(f, 0, 1);
    g_clear_pointer(&f->list, lh_list_cancel);
    f->cancel_in_page = TRUE;
    start(f, 0, 1);
    answer(f, "/p/a", 9, TRUE); /* the next page is under way already */
    expect(f, "page /p/a\n");
    start(f, 0, 1);
    answer(f, "/p/a", 9, FALSE);
    expect(f, "page /p/a\n");
    f->cancel_in_page = FALSE;
    f->cancel_in_restart = TRUE;
    start(f, 0, 1);
    answer(f, "/p/a", 9, TRUE);
    script_fail(f->etcd, S_RANGE, LH_ERR_COMPACTED);
    expect(f, "page /p/a\nrestart\n");
    start(f, 0, 1);
    script_fail(f->etcd, S_RANGE, LH_ERR_UNAVAILABLE);
    g_clear_pointer(&f->list, lh_list_cancel);
    lh_list_cancel(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(empty),
        TEST(pages_of_one_revision),
        TEST(last_page_with_nothing_new),
        TEST(at_a_given_revision),
        TEST(compacted_in_between_begins_again),
        TEST(compacted_for_ever_fails),
        TEST(given_revision_compacted_fails),
        TEST(a_page_is_asked_for_again),
        TEST(what_does_not_pass_fails_at_once),
        TEST(another_cluster_fails),
        TEST(a_page_without_a_new_key_fails),
        TEST(key_with_a_zero_byte),
        TEST(pages_adapt_to_the_values),
        TEST(a_large_range_comes_whole_and_in_order),
        TEST(cancelled_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

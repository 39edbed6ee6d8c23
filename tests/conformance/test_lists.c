/*
 * list.h on both servers: pages of one revision, whatever is written meanwhile.
 */
#include "etcd/list.h"
#include "suite.h"

typedef struct {
    LhList *list;
    GHashTable *seen; /* key -> value */
    guint pages, restarts, done;
    gint64 revision;
    int error;
    void (*during)(guint page); /* called in each page, counted over restarts */
    guint all_pages;
    gboolean cancel;
} Listing;

static void on_restart(gpointer data)
{
    Listing *listing = data;
    listing->restarts++;
    listing->pages = 0;
    g_hash_table_remove_all(listing->seen);
}

static void on_page(const LhKv *kvs, gsize n, gpointer data)
{
    Listing *listing = data;
    listing->pages++;
    listing->all_pages++;
    for (gsize i = 0; i < n; i++) {
        assert_true(
            g_hash_table_insert(listing->seen, g_strdup(kvs[i].key), g_strdup(kvs[i].value)));
    }
    if (listing->during != NULL) {
        listing->during(listing->all_pages);
    }
    if (listing->cancel) {
        lh_list_cancel(g_steal_pointer(&listing->list));
    }
}

static void on_done(const LhEtcdHeader *header, const GError *error, gpointer data)
{
    Listing *listing = data;
    listing->done++;
    listing->list = NULL;
    listing->error = error != NULL ? error->code : -1;
    listing->revision = header != NULL && error == NULL ? header->revision : 0;
}

static const LhListFuncs list_funcs = {on_restart, on_page, on_done};

static gboolean is_done(gpointer data)
{
    return ((Listing *)data)->done > 0;
}

static void listing_end(gpointer data)
{
    Listing *listing = data;
    lh_list_cancel(listing->list);
    g_hash_table_destroy(listing->seen);
}

static Listing *listing_new(void)
{
    Listing *listing = scratch(sizeof(Listing));
    listing->error = -1;
    listing->seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    at_end(listing_end, listing);
    return listing;
}

static void run_list(Listing *listing, const char *prefix, gint64 at_revision, gint64 page_keys)
{
    listing->list = lh_list_start(driver->env, driver->etcd, prefix, at_revision, page_keys,
                                  &list_funcs, listing);
    wait_for(is_done, listing);
    assert_int_equal(listing->done, 1);
}

static void put_items(guint from, guint to, const char *value)
{
    for (guint i = from; i < to; i++) {
        g_autofree char *name = g_strdup_printf("l/%03u", i);
        put(k(name), value);
    }
}

static void assert_items(const Listing *listing, guint n, const char *value)
{
    assert_int_equal(g_hash_table_size(listing->seen), n);
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("l/%03u", i);
        const char *seen = g_hash_table_lookup(listing->seen, k(name));
        assert_non_null(seen);
        assert_string_equal(seen, value);
    }
}

static void list_of_nothing(void **state)
{
    Listing *listing = listing_new();
    gint64 now = revision();
    run_list(listing, k("l/"), 0, 10);
    assert_int_equal(listing->error, -1);
    assert_int_equal(listing->revision, now);
    assert_int_equal(g_hash_table_size(listing->seen), 0);
}

static void list_in_pages_is_whole(void **state)
{
    put_items(0, 10, "v");
    put(k("l0"), "beside");
    const gint64 sizes[] = {1, 3, 5, 9, 10, 11, 0};
    for (gsize i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Listing *listing = listing_new();
        run_list(listing, k("l/"), 0, sizes[i]);
        assert_int_equal(listing->error, -1);
        assert_items(listing, 10, "v");
    }
}

/* Not waited for: callbacks do not nest. */
static void write_at(const LhTxnOp *list, gsize n)
{
    const LhTxnRequest request = {.success = list, .n_success = n};
    start_txn(&request, LH_ETCD_DEADLINE_MS);
}

static void change_things(guint page)
{
    g_autofree char *changed = g_strdup_printf("l/%03u", (page * 3) % 20);
    g_autofree char *deleted = g_strdup_printf("l/%03u", 19 - page % 10);
    g_autofree char *added = g_strdup_printf("l/%03u-new", page);
    const LhTxnOp list[] = {lh_txn_put(k(changed), "changed", 0), lh_txn_put(k(added), "new", 0)};
    const LhTxnOp gone[] = {lh_txn_delete(k(deleted))};
    write_at(list, 2);
    write_at(gone, 1);
}

static void list_is_of_one_revision_while_writes_go_on(void **state)
{
    put_items(0, 20, "v");
    gint64 now = revision();
    Listing *listing = listing_new();
    listing->during = change_things;
    run_list(listing, k("l/"), 0, 3);
    assert_int_equal(listing->error, -1);
    assert_int_equal(listing->revision, now);
    assert_items(listing, 20, "v");
    assert_true(listing->all_pages >= 7);
}

static void list_at_an_old_revision(void **state)
{
    put_items(0, 5, "old");
    gint64 then = revision();
    put_items(0, 8, "new");
    Listing *listing = listing_new();
    run_list(listing, k("l/"), then, 2);
    assert_int_equal(listing->error, -1);
    assert_items(listing, 5, "old");
}

static gint64 compact_to;

static void compact_at_second_page(guint page)
{
    if (page == 2) {
        driver->compact(driver, compact_to);
    }
}

static gint64 list_from;
static Answer *overwrite; /* of the first item */

/* Writes in the first page, and compacts in the first one that comes after the answer. */
static void write_then_compact(guint page)
{
    if (page == 1) {
        const LhTxnOp op = lh_txn_put(k("l/000"), "new", 0);
        const LhTxnRequest request = {.success = &op, .n_success = 1};
        overwrite = start_txn(&request, LH_ETCD_DEADLINE_MS);
        compact_to = 0;
    } else if (compact_to == 0 && answered(overwrite)) {
        compact_to = list_from + 1;
        driver->compact(driver, compact_to);
    }
}

static void list_restarts_when_its_revision_is_compacted(void **state)
{
    put_items(0, 60, "v");
    list_from = revision();
    Listing *listing = listing_new();
    listing->during = write_then_compact;
    run_list(listing, k("l/"), 0, 1);
    assert_int_equal(listing->error, -1);
    assert_int_not_equal(compact_to, 0);
    assert_true(listing->restarts >= 1);
    assert_int_equal(listing->revision, list_from + 1);
    assert_string_equal(g_hash_table_lookup(listing->seen, k("l/000")), "new");
    assert_int_equal(g_hash_table_size(listing->seen), 60);
}

static void list_survives_a_compaction_at_its_revision(void **state)
{
    put_items(0, 6, "v");
    compact_to = revision();
    Listing *listing = listing_new();
    listing->during = compact_at_second_page;
    run_list(listing, k("l/"), 0, 1);
    assert_int_equal(listing->error, -1);
    assert_int_equal(listing->restarts, 0);
    assert_items(listing, 6, "v");
}

static void list_cancelled_is_silent(void **state)
{
    put_items(0, 6, "v");
    Listing *listing = listing_new();
    listing->cancel = TRUE;
    listing->list = lh_list_start(driver->env, driver->etcd, k("l/"), 0, 2, &list_funcs, listing);
    let_pass(300);
    assert_int_equal(listing->all_pages, 1);
    assert_int_equal(listing->done, 0);
    listing->list = lh_list_start(driver->env, driver->etcd, k("l/"), 0, 2, &list_funcs, listing);
    lh_list_cancel(g_steal_pointer(&listing->list));
    let_pass(300);
    assert_int_equal(listing->all_pages, 1);
    assert_int_equal(listing->done, 0);
}

const struct CMUnitTest list_tests[] = {
    TEST(list_of_nothing),
    TEST(list_in_pages_is_whole),
    TEST(list_is_of_one_revision_while_writes_go_on),
    TEST(list_at_an_old_revision),
    TEST(list_restarts_when_its_revision_is_compacted),
    TEST(list_survives_a_compaction_at_its_revision),
    TEST(list_cancelled_is_silent),
    NO_MORE_TESTS,
};

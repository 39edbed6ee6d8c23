/*
 * Loading a snapshot: what is wanted is read, what is there is verified, room is made, the rest is copied and
 * sealed.
 *
 * Each step starts one asynchronous thing and goes on in its callback; what is under way can always
 * be ended (lh_holding_stop). The only ways out of a load are ready, fail and release. Hooks:
 * cache_hooks.c.
 */
#include "agent/cache_internal.h"
#include "base/errors.h"
#include "base/log.h"

#include <string.h>
#include <unistd.h>

#define RETRY_FIRST_MS  200
#define RETRY_CAP_MS    5000
#define MAX_SHOWN_BYTES 500

static void make_room(Holding *h);
static void fetch_more(Holding *h);

/* ---- after the data is there ---- */

static void loaded(const char *url, const GError *error, gpointer data)
{
    Holding *h = data;
    if (error != NULL) {
        lh_holding_fail(h, error);
        return;
    }
    h->work->funcs->ready(h->item, url, h->work->data);
}

static void have_data(Holding *h)
{
    lh_cache_hook_load(h, loaded);
}

/* ---- copying ---- */

static void sealed(gpointer input G_GNUC_UNUSED, const GError *error, gpointer data)
{
    Holding *h = data;
    h->job = NULL;
    g_autoptr(GError) local = NULL;
    if (error != NULL) {
        lh_holding_fail(h, error);
        return;
    }
    LhCacheEntry *there = lh_cache_store_find(h->work->store, h->draft->snapshot);
    if (there != NULL) { /* another replica of the same snapshot was faster */
        lh_holding_discard(h, NULL, NULL);
        lh_holding_hold(h, there);
    } else if (lh_cache_store_adopt(h->work->store, h->dir, h->draft, &local)) {
        lh_holding_hold(h, g_steal_pointer(&h->draft));
        g_clear_pointer(&h->dir, g_free);
    } else {
        lh_holding_fail(h, local);
        return;
    }
    have_data(h);
}

static void tell_progress(Holding *h)
{
    gint64 bytes = h->done_bytes;
    for (guint i = 0; i < LH_CACHE_FETCHES; i++)
        bytes += h->fetches[i].bytes;
    h->work->funcs->progress(h->item, bytes, h->work->data);
}

static gboolean is_expected(Holding *h, const LhCacheFile *file, const char *sha256)
{
    const char *expected = g_hash_table_lookup(h->sha256, file->name);
    return expected == NULL || strcmp(expected, sha256) == 0;
}

static void on_fetched(gint64 bytes, const char *sha256, const GError *error, gpointer data)
{
    Fetch *fetch = data;
    Holding *h = fetch->holding;
    LhCacheFile *file = g_ptr_array_index(h->draft->files, fetch->file);
    g_autofree char *part = g_steal_pointer(&fetch->part);
    g_autoptr(GError) local = NULL;
    fetch->op = 0;
    fetch->bytes = 0;
    if (error != NULL) {
        lh_holding_fail(h, error);
        return;
    }
    h->work->copied_bytes += bytes;
    if (bytes != file->size) {
        unlink(part);
        lh_holding_fail_with(h, LH_ERR_CHECKSUM,
                             "%s%s: has %" G_GINT64_FORMAT
                             " bytes, was listed with %" G_GINT64_FORMAT,
                             h->assignment->uri, file->name, bytes, file->size);
    } else if (!is_expected(h, file, sha256)) {
        unlink(part);
        lh_holding_fail_with(h, LH_ERR_CHECKSUM, "%s%s: its sha256 is %s, must be %s",
                             h->assignment->uri, file->name, sha256,
                             (char *)g_hash_table_lookup(h->sha256, file->name));
    } else if (!lh_cache_store_place(h->dir, file->name, part, &local)) {
        unlink(part);
        lh_holding_fail(h, local);
    } else {
        h->done_bytes += bytes;
        file->sha256 = g_strdup(sha256);
        fetch_more(h);
    }
}

static void on_progress(gint64 bytes_done, gpointer data)
{
    Fetch *fetch = data;
    fetch->bytes = bytes_done;
    tell_progress(fetch->holding);
}

/* The next file that is not there yet; NULL: none. */
static const LhCacheFile *next_missing(Holding *h)
{
    while (h->next_file < h->draft->files->len) {
        const LhCacheFile *file = g_ptr_array_index(h->draft->files, h->next_file);
        if (file->sha256 == NULL)
            return file;
        h->next_file++;
    }
    return NULL;
}

static void fetch_more(Holding *h)
{
    LhCacheWork *work = h->work;
    gboolean busy = FALSE;
    for (guint i = 0; i < LH_CACHE_FETCHES; i++) {
        Fetch *fetch = &h->fetches[i];
        const LhCacheFile *file = fetch->op == 0 ? next_missing(h) : NULL;
        if (file != NULL) {
            fetch->holding = h;
            fetch->file = h->next_file++;
            fetch->part = lh_cache_store_part_path(work->store);
            fetch->op = lh_store_fetch(work->objects, h->assignment->uri, file->name, fetch->part,
                                       on_progress, on_fetched, fetch);
        }
        busy = busy || fetch->op != 0;
    }
    tell_progress(h);
    if (!busy) {
        h->draft->loaded_at = lh_wall_ms(work->env);
        h->job = lh_cache_store_seal(work->store, h->dir, h->draft, sealed, h);
    }
}

/* ---- what an earlier load has left ---- */

static void rechecked(gpointer input, const GError *error, gpointer data)
{
    Holding *h = data;
    h->job = NULL;
    if (error != NULL) {
        lh_holding_fail(h, error);
        return;
    }
    const LhCacheEntry *kept = lh_cache_store_kept(input);
    guint n = 0;
    h->done_bytes = 0;
    for (guint i = 0; i < kept->files->len; i++) {
        const LhCacheFile *there = g_ptr_array_index(kept->files, i);
        LhCacheFile *file = g_ptr_array_index(h->draft->files, i);
        /* What is not as published is fetched over it. */
        if (there->sha256 == NULL || !is_expected(h, file, there->sha256))
            continue;
        file->sha256 = g_strdup(there->sha256);
        h->done_bytes += file->size;
        n++;
    }
    lh_log(LH_LOG_INFO, "going on with an interrupted load", "item", h->item, "snapshot",
           h->assignment->snapshot, "files", lh_fmt("%u of %u", n, kept->files->len), NULL);
    fetch_more(h);
}

/* Takes up what is parked for this load, if something is. */
static void resume_copy(Holding *h)
{
    if (h->dir != NULL)
        return;
    g_autoptr(LhCacheEntry) origin = lh_holding_origin(h);
    h->dir = lh_cache_store_resume(h->work->store, origin, &h->done_bytes);
}

/* What is listed must be what was published, before a byte is copied. */
static gboolean check_list(Holding *h)
{
    gint64 sum = 0;
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    for (guint i = 0; i < h->draft->files->len; i++) {
        const LhCacheFile *file = g_ptr_array_index(h->draft->files, i);
        sum += file->size;
        g_hash_table_add(names, file->name);
    }
    GHashTableIter iter;
    gpointer name;
    g_hash_table_iter_init(&iter, h->sha256);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        if (!g_hash_table_contains(names, name)) {
            lh_holding_fail_with(h, LH_ERR_NOT_FOUND,
                                 "%s%s: is missing, but has a published sha256", h->assignment->uri,
                                 (const char *)name);
            return FALSE;
        }
    }
    if (sum != h->snapshot->size_bytes) {
        lh_holding_fail_with(h, LH_ERR_CHECKSUM,
                             "%s: its files have %" G_GINT64_FORMAT
                             " bytes, must be %" G_GINT64_FORMAT " (sizeBytes of snapshot %s)",
                             h->assignment->uri, sum, h->snapshot->size_bytes,
                             h->assignment->snapshot);
        return FALSE;
    }
    return TRUE;
}

static void on_listed(const LhStoreEntry *entries, gsize n, const GError *error, gpointer data)
{
    Holding *h = data;
    h->op = 0;
    if (error != NULL) {
        lh_holding_fail(h, error);
        return;
    }
    h->draft = lh_cache_entry_new(h->assignment->snapshot, h->assignment->uri,
                                  h->snapshot->size_bytes, h->snapshot->o.create_rev, 0);
    for (gsize i = 0; i < n; i++)
        lh_cache_entry_add(h->draft, entries[i].name, entries[i].size, NULL);
    if (!check_list(h))
        return;
    h->next_file = 0;
    if (h->dir != NULL) {
        h->job = lh_cache_store_recheck(h->work->store, h->dir, h->draft, rechecked, h);
        return;
    }
    g_autoptr(GError) local = NULL;
    h->dir = lh_cache_store_begin(h->work->store, h->draft, &local);
    if (h->dir == NULL)
        lh_holding_fail(h, local);
    else
        fetch_more(h);
}

/* ---- room ---- */

/* Bytes that are or will be on the disk for others than @h; *@unwritten: those still to be
 * written. */
static gint64 taken_bytes(const Holding *h, gint64 *unwritten)
{
    gint64 bytes = lh_cache_store_bytes(h->work->store);
    *unwritten = 0;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, h->work->holdings);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Holding *other = value;
        if (other == h)
            continue;
        bytes += MAX(other->reserved, other->dir != NULL ? other->done_bytes : 0);
        *unwritten += MAX(other->reserved - other->done_bytes, 0);
    }
    return bytes;
}

static void make_room(Holding *h)
{
    LhCacheWork *work = h->work;
    resume_copy(h);
    gint64 unwritten = 0;
    gint64 taken = taken_bytes(h, &unwritten);
    gint64 size = h->snapshot->size_bytes;
    gint64 disk_free = lh_cache_store_disk_free(work->store);
    gboolean fits = taken <= work->capacity_bytes - size;
    gint64 there = h->dir != NULL ? h->done_bytes : 0;
    gboolean fits_disk = disk_free - unwritten >= size - there;
    if (fits && fits_disk) {
        h->waits_for_room = FALSE;
        h->reserved = size;
        h->op = lh_store_list(work->objects, h->assignment->uri, on_listed, h);
        return;
    }
    LhCacheEntry *victim = lh_cache_store_oldest_unheld(work->store);
    if (lh_cache_store_removing(work->store)) {
        h->waits_for_room = TRUE;
    } else if (lh_cache_store_discard_parked(work->store)) {
        h->waits_for_room = TRUE;
    } else if (victim != NULL) {
        lh_log(LH_LOG_INFO, "removing data that nobody holds, to make room", "snapshot",
               victim->snapshot, "for", h->item, NULL);
        h->waits_for_room = TRUE;
        lh_cache_store_remove(work->store, victim, NULL, NULL);
    } else if (!fits) {
        lh_holding_fail_with(h, LH_ERR_NO_SPACE,
                             "no room: %" G_GINT64_FORMAT " bytes are taken, %" G_GINT64_FORMAT
                             " wanted, capacity is %" G_GINT64_FORMAT,
                             taken, size, work->capacity_bytes);
    } else {
        lh_holding_fail_with(h, LH_ERR_NO_SPACE,
                             "disk full: %" G_GINT64_FORMAT " bytes are free, %" G_GINT64_FORMAT
                             " promised to other loads, %" G_GINT64_FORMAT " wanted",
                             disk_free, unwritten, size);
    }
}

void lh_cache_load_room(gpointer data)
{
    LhCacheWork *work = data;
    g_autoptr(GPtrArray) waiting = g_ptr_array_new();
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, work->holdings);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        if (((Holding *)value)->waits_for_room)
            g_ptr_array_add(waiting, value);
    }
    /* make_room frees no holding: failing is answered at a later turn. */
    for (guint i = 0; i < waiting->len; i++)
        make_room(g_ptr_array_index(waiting, i));
}

/* ---- what is to be loaded, and whether it is there ---- */

static void on_verified(gpointer input G_GNUC_UNUSED, const GError *error, gpointer data)
{
    Holding *h = data;
    h->job = NULL;
    if (error == NULL) {
        have_data(h);
        return;
    }
    lh_log(LH_LOG_WARNING, "data on disk is not whole", "snapshot", h->assignment->snapshot, "why",
           error->message, NULL);
    LhCacheEntry *entry = h->entry;
    if (entry->held > 1) {
        lh_holding_fail(h, error);
        return;
    }
    lh_holding_unhold(h);
    lh_cache_store_remove(h->work->store, entry, NULL, NULL);
    make_room(h);
}

static void find_or_copy(Holding *h)
{
    LhCacheStore *store = h->work->store;
    LhCacheEntry *entry = lh_cache_store_find(store, h->assignment->snapshot);
    if (entry == NULL) {
        make_room(h);
        return;
    }
    gboolean same = strcmp(entry->uri, h->assignment->uri) == 0 &&
                    entry->size_bytes == h->snapshot->size_bytes &&
                    entry->snapshot_rev == h->snapshot->o.create_rev;
    if (same) {
        lh_holding_hold(h, entry);
        h->job = lh_cache_store_verify(store, entry, on_verified, h);
    } else if (entry->held > 0) {
        lh_holding_fail_with(h, LH_ERR_CONFLICT,
                             "another item holds other data under the name of snapshot %s",
                             entry->snapshot);
    } else {
        lh_cache_store_remove(store, entry, NULL, NULL);
        make_room(h);
    }
}

static void fail_elsewhere(Holding *h, const char *uri)
{
    g_autofree char *published = lh_error_text(uri, MAX_SHOWN_BYTES);
    g_autofree char *ordered = lh_error_text(h->assignment->uri, MAX_SHOWN_BYTES);
    lh_holding_fail_with(h, LH_ERR_INVALID, "snapshot %s: is published at %s, but ordered from %s",
                         h->assignment->snapshot, published, ordered);
}

/* Does what is published agree with what is ordered? Fails the load if not. */
static gboolean check_snapshot(Holding *h, const LhObject *object)
{
    const char *name = h->assignment->snapshot;
    const LhSnapshot *snapshot = (const LhSnapshot *)object;
    g_autofree char *uri = lh_uri_text(&snapshot->uri);
    if (!lh_object_known(object))
        lh_holding_fail_with(h, LH_ERR_INVALID,
                             "snapshot %s: its published object is not understood: %s", name,
                             lh_object_error(object));
    else if (snapshot->live)
        lh_holding_fail_with(h, LH_ERR_INVALID, "snapshot %s: is still being written", name);
    else if (strcmp(uri, h->assignment->uri) != 0)
        fail_elsewhere(h, uri);
    else if (snapshot->size_bytes != h->assignment->size_bytes)
        lh_holding_fail_with(h, LH_ERR_INVALID,
                             "snapshot %s: is published with %" G_GINT64_FORMAT
                             " bytes, but ordered with %" G_GINT64_FORMAT,
                             name, snapshot->size_bytes, h->assignment->size_bytes);
    else
        return TRUE;
    return FALSE;
}

static void on_snapshot(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Holding *h = data;
    const char *name = h->assignment->snapshot;
    h->range = 0;
    if (error != NULL) { /* unknown is not absent */
        gint64 pause = lh_backoff_ms(h->work->env, h->attempt++, RETRY_FIRST_MS, RETRY_CAP_MS);
        h->timer = lh_timer_in(h->work->env, pause, lh_cache_load, h);
        return;
    }
    if (reply->n_kvs == 0) {
        lh_holding_fail_with(h, LH_ERR_NOT_FOUND, "snapshot %s: is not published", name);
        return;
    }
    const LhKv *kv = &reply->kvs[0];
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_SNAPSHOT, name, kv->value, kv->value_len,
                                                 kv->create_rev, kv->mod_rev, kv->lease);
    if (!check_snapshot(h, object))
        return;
    h->snapshot = (const LhSnapshot *)g_steal_pointer(&object);
    const char *file;
    char hex[65];
    for (const guint8 *at = h->snapshot->sha256; lh_digests_next(&at, &file, hex);)
        g_hash_table_insert(h->sha256, g_strdup(file), g_strdup(hex));
    find_or_copy(h);
}

void lh_cache_load(gpointer data)
{
    Holding *h = data;
    h->timer = NULL;
    if (h->assignment->snapshot == NULL || h->assignment->uri == NULL) {
        lh_holding_fail_with(h, LH_ERR_INVALID, "the assignment names no snapshot or no uri");
        return;
    }
    g_autofree char *key = g_strdup_printf("%spublished/snapshots/%s", h->work->prefix,
                                           h->assignment->snapshot);
    const LhRangeRequest request = {.key = key};
    h->range = lh_etcd_range(h->work->etcd, &request, on_snapshot, h);
}

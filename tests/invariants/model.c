/*
 * The typed model of etcd, built from commits alone, and what is kept of their order and time. What it
 * keeps from change to change is counted anew now and then.
 */
#include "invariants.h"

#include <string.h>

#define VERIFY_EVERY 400 /* changes of assignments */

static gint64 *boxed(gint64 value)
{
    return g_memdup2(&value, sizeof value);
}

static GHashTable *table_of(GDestroyNotify destroy)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, destroy);
}

void inv_init(Inv *inv, const InvOptions *options)
{
    const LhSettings *settings = lh_settings_default("cache-assigner");
    *inv = (Inv){
        .options = *options,
        .hosts = table_of(g_free),
        .items = table_of((GDestroyNotify)g_ptr_array_unref),
        .pairs = table_of(NULL),
        .verify_in = VERIFY_EVERY,
        .bytes = table_of(g_free),
        .uris = table_of(g_free),
        .sizes = table_of((GDestroyNotify)lh_object_unref),
        .gone_ms = table_of(g_free),
        .cordoned_ms = table_of(g_free),
        .edited_ms = table_of(g_free),
        .ids = table_of(NULL),
        .epochs = table_of(NULL),
        .ordered_ms = g_array_new(FALSE, FALSE, sizeof(gint64)),
        .deleted_ms = g_array_new(FALSE, FALSE, sizeof(gint64)),
        .assigned = g_array_new(FALSE, FALSE, sizeof(InvCount)),
        .marks = g_array_new(FALSE, FALSE, sizeof(InvMark)),
        .said_ms = table_of(g_free),
        .moved_ms = table_of(g_free),
        .large_ms = table_of(g_free),
        .condoned_ms = G_MININT64 / 2,
        .least_grace_ms = settings->failure_grace_ms,
        .first_live = table_of(g_free),
        .created = table_of(NULL),
        .left = table_of(g_free),
        .least_reserve = settings->restore_reserve_percent,
        .most_reserve = settings->restore_reserve_percent,
        .least_stuck_ms = lh_settings_default("cluster-monitor")->stuck_loading_ms,
    };
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        inv->kinds[kind] = table_of((GDestroyNotify)lh_object_unref);
    if (options->grace_ms >= 0)
        inv->least_grace_ms = options->grace_ms;
    if (options->reserve >= 0)
        inv->least_reserve = inv->most_reserve = options->reserve;
}

void inv_clear(Inv *inv)
{
    GHashTable *tables[] = {
        inv->hosts,   inv->items,       inv->pairs,   inv->bytes,    inv->sizes,      inv->uris,
        inv->gone_ms, inv->cordoned_ms, inv->ids,     inv->epochs,   inv->first_live, inv->created,
        inv->left,    inv->edited_ms,   inv->said_ms, inv->moved_ms, inv->large_ms};
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        g_hash_table_unref(inv->kinds[kind]);
    for (guint i = 0; i < G_N_ELEMENTS(tables); i++)
        g_hash_table_unref(tables[i]);
    g_array_unref(inv->ordered_ms);
    g_array_unref(inv->deleted_ms);
    g_array_unref(inv->assigned);
    g_array_unref(inv->marks);
}

/* ---- what a commit means beyond the objects ---- */

static void note_size(Inv *inv, const LhObject *object)
{
    const LhNode *node = (const LhNode *)object;
    if (!lh_object_known(object) || !inv_is_cache(object->name))
        return;
    const LhObject *last = g_hash_table_lookup(inv->sizes, node->node_name);
    if (last == NULL || last->create_rev <= object->create_rev)
        g_hash_table_replace(inv->sizes, g_strdup(node->node_name), lh_object_ref(object));
}

static void note_node(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    if (change->after == NULL && commit->by_hand)
        g_hash_table_remove(inv->ids, change->name); /* perhaps before its node knew of it */
    if (change->after != NULL) {
        g_hash_table_remove(inv->gone_ms, change->name);
        g_hash_table_add(inv->ids, g_strdup(change->name));
        note_size(inv, change->after);
    } else {
        g_hash_table_replace(inv->gone_ms, g_strdup(change->name), boxed(commit->earliest_ms));
    }
}

static void note_cordon(Inv *inv, const InvChange *change)
{
    const LhNodePolicy *policy = lh_accepted_spec(change->after, LH_KIND_NODEPOLICY);
    const char *prefix = "nodepolicies/" INV_POOL "/";
    if (!g_str_has_prefix(change->name, prefix))
        return;
    const char *host = change->name + strlen(prefix);
    if (policy == NULL || !(policy->cordon || policy->drain))
        g_hash_table_remove(inv->cordoned_ms, host);
    else if (!g_hash_table_contains(inv->cordoned_ms, host))
        g_hash_table_replace(inv->cordoned_ms, g_strdup(host), boxed(inv->now_ms));
}

/* What a service needs of partitions. */
static void note_edit(Inv *inv, const InvChange *change)
{
    const LhService *was = lh_accepted_spec(change->before, LH_KIND_SERVICE);
    const LhService *is = lh_accepted_spec(change->after, LH_KIND_SERVICE);
    if (!g_str_has_prefix(change->name, "services/"))
        return;
    if (was == NULL || is == NULL ||
        was->throughput_bytes_per_second != is->throughput_bytes_per_second ||
        was->partitions_dedicated != is->partitions_dedicated)
        g_hash_table_replace(inv->edited_ms, g_strdup(change->name), boxed(inv->now_ms));
}

/* What was accepted once may still be what somebody decides by. */
static void note_settings(Inv *inv, const InvChange *change)
{
    const LhSettings *settings = lh_accepted_spec(change->after, LH_KIND_SETTINGS);
    if (settings != NULL && strcmp(change->name, "settings/cluster-monitor") == 0)
        inv->least_stuck_ms = MIN(inv->least_stuck_ms, settings->stuck_loading_ms);
    if (settings == NULL || strcmp(change->name, "settings/cache-assigner") != 0)
        return;
    if (inv->options.grace_ms < 0)
        inv->least_grace_ms = MIN(inv->least_grace_ms, settings->failure_grace_ms);
    if (inv->options.reserve < 0)
        inv->least_reserve = MIN(inv->least_reserve, settings->restore_reserve_percent);
    if (inv->options.reserve < 0)
        inv->most_reserve = MAX(inv->most_reserve, settings->restore_reserve_percent);
}

/* ---- restored replicas ---- */

static void note_item(Inv *inv, const InvChange *change)
{
    const LhItem *item = (const LhItem *)change->after;
    g_autofree char *name = lh_name_part(change->name, 2);
    if (item == NULL || !lh_object_known(&item->o) || item->state != LH_ITEM_LIVE || name == NULL ||
        !inv_is_restored(name))
        return;
    const gint64 *first = g_hash_table_lookup(inv->first_live, name);
    if (first == NULL || item->since < *first)
        g_hash_table_replace(inv->first_live, g_strdup(name), boxed(item->since));
}

static void note_replica(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    char *snapshot = inv_snapshot_of(change->name);
    if (change->after == NULL && snapshot != NULL)
        g_hash_table_replace(inv->left, g_strdup(snapshot), boxed(commit->revision));
    if (change->after == NULL)
        g_hash_table_remove(inv->first_live, change->name);
    g_free(snapshot);
}

/* ---- assignments by node name, item and snapshot ---- */

gboolean inv_place(const char *assignment, InvPlace *out)
{
    *out = (InvPlace){lh_name_part(assignment, 1), lh_name_part(assignment, 2), NULL};
    if (out->node != NULL && out->item != NULL)
        out->host = lh_node_name_of(out->node);
    return out->host != NULL;
}

void inv_place_clear(InvPlace *place)
{
    g_free(place->node);
    g_free(place->item);
    g_free(place->host);
}

static void add_pair(Inv *inv, const InvPlace *place, gint sign)
{
    g_autofree char *snapshot = inv_snapshot_of(place->item);
    if (snapshot == NULL)
        return;
    char *pair = g_strconcat(place->host, "/", snapshot, NULL);
    gint n = GPOINTER_TO_INT(g_hash_table_lookup(inv->pairs, pair)) + sign;
    if (n == 0)
        g_hash_table_remove(inv->pairs, pair);
    else
        g_hash_table_replace(inv->pairs, g_strdup(pair), GINT_TO_POINTER(n));
    g_free(pair);
}

static void add_item(Inv *inv, const char *name, const InvPlace *place, gboolean add)
{
    g_autofree char *pool = lh_name_part(name, 0), *key = g_strjoin("/", pool, place->item, NULL);
    GPtrArray *names = g_hash_table_lookup(inv->items, key);
    guint at;
    if (names == NULL) {
        names = g_ptr_array_new_with_free_func(g_free);
        g_hash_table_insert(inv->items, g_strdup(key), names);
    }
    if (add)
        g_ptr_array_add(names, g_strdup(name));
    else if (g_ptr_array_find_with_equal_func(names, name, g_str_equal, &at))
        g_ptr_array_remove_index(names, at);
    if (names->len == 0)
        g_hash_table_remove(inv->items, key);
}

/* @items: 1 it came, -1 it went, 0 only its bytes have changed. */
static void add_use(Inv *inv, const char *name, gint64 bytes, gint items)
{
    g_auto(InvPlace) place = {0};
    if (!inv_place(name, &place))
        return;
    if (items != 0)
        add_item(inv, name, &place, items > 0);
    if (!inv_is_cache(name))
        return;
    InvUse *use = g_hash_table_lookup(inv->hosts, place.host);
    if (use == NULL) {
        use = g_new0(InvUse, 1);
        g_hash_table_insert(inv->hosts, g_strdup(place.host), use);
    }
    *(inv_is_restored(place.item) ? &use->restored_bytes : &use->bytes) += bytes;
    *(inv_is_restored(place.item) ? &use->restored_items : &use->items) += items;
    if (items != 0)
        add_pair(inv, &place, items);
}

InvUse inv_use(const Inv *inv, const char *host)
{
    const InvUse *use = g_hash_table_lookup(inv->hosts, host);
    return use == NULL ? (InvUse){0} : *use;
}

const GPtrArray *inv_assignments_of(const Inv *inv, const char *pool, const char *item)
{
    g_autofree char *key = g_strjoin("/", pool, item, NULL);
    return g_hash_table_lookup(inv->items, key);
}

guint inv_pair(const Inv *inv, const char *host, const char *snapshot)
{
    g_autofree char *pair = g_strconcat(host, "/", snapshot, NULL);
    return GPOINTER_TO_UINT(g_hash_table_lookup(inv->pairs, pair));
}

static void note_assignment(Inv *inv, const InvChange *change)
{
    const LhAssignment *assignment = (const LhAssignment *)change->after;
    gboolean was = inv_get(inv, LH_KIND_ASSIGNMENT, change->name) != NULL;
    gint64 before = inv_assignment_bytes(inv, change->name);
    if (assignment == NULL)
        g_hash_table_remove(inv->bytes, change->name);
    else if (lh_object_known(change->after))
        g_hash_table_replace(inv->bytes, g_strdup(change->name), boxed(assignment->size_bytes));
    add_use(inv, change->name, inv_assignment_bytes(inv, change->name) - before,
            (assignment != NULL) - was);
}

static void note_snapshot(Inv *inv, const InvChange *change)
{
    const LhSnapshot *snapshot = (const LhSnapshot *)change->after;
    if (snapshot == NULL || !lh_object_known(change->after))
        g_hash_table_remove(inv->uris, change->name);
    else
        g_hash_table_replace(inv->uris, g_strdup(change->name), lh_uri_text(&snapshot->uri));
}

/* What was kept from change to change is what one finds when one counts. */
static void verify(Inv *inv)
{
    g_autoptr(GHashTable) hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_ASSIGNMENT]);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        g_auto(InvPlace) place = {0};
        if (!inv_is_cache(key) || !inv_place(key, &place))
            continue;
        InvUse *use = g_hash_table_lookup(hosts, place.host);
        if (use == NULL) {
            use = g_new0(InvUse, 1);
            g_hash_table_insert(hosts, g_strdup(place.host), use);
        }
        gboolean restored = inv_is_restored(place.item);
        *(restored ? &use->restored_bytes : &use->bytes) += inv_assignment_bytes(inv, key);
        *(restored ? &use->restored_items : &use->items) += 1;
        const GPtrArray *names = inv_assignments_of(inv, INV_POOL, place.item);
        g_autofree char *snapshot = inv_snapshot_of(place.item);
        if (names == NULL ||
            !g_ptr_array_find_with_equal_func((GPtrArray *)names, key, g_str_equal, NULL))
            inv_fail(inv, INV_MODEL, "%s is not among the assignments of its item", (char *)key);
        if (snapshot != NULL && inv_pair(inv, place.host, snapshot) == 0)
            inv_fail(inv, INV_MODEL, "%s is not among those of its snapshot", (char *)key);
    }
    g_hash_table_iter_init(&iter, inv->hosts);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const InvUse none = {0}, *kept = value, *found = g_hash_table_lookup(hosts, key);
        if (memcmp(kept, found == NULL ? &none : found, sizeof none) != 0)
            inv_fail(inv, INV_MODEL, "%s: what it holds was counted wrongly", (char *)key);
    }
    inv->verify_in = VERIFY_EVERY;
}

/* ---- commits ---- */

void inv_apply(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_N_KINDS)
            continue;
        if (change->kind == LH_KIND_NODE) {
            note_node(inv, commit, change);
        } else if (change->kind == LH_KIND_ACCEPTED) {
            note_cordon(inv, change);
            note_settings(inv, change);
            note_edit(inv, change);
        } else if (change->kind == LH_KIND_SNAPSHOT) {
            note_snapshot(inv, change);
        } else if (change->kind == LH_KIND_ASSIGNMENT) {
            note_assignment(inv, change);
            inv->verify_in -= inv->verify_in > 0;
        } else if (change->kind == LH_KIND_ITEM) {
            note_item(inv, change);
        } else if (change->kind == LH_KIND_REPLICA) {
            note_replica(inv, commit, change);
        }
        if (change->after == NULL)
            g_hash_table_remove(inv->kinds[change->kind], change->name);
        else
            g_hash_table_replace(inv->kinds[change->kind], g_strdup(change->name),
                                 lh_object_ref(change->after));
    }
    if (inv->verify_in == 0)
        verify(inv);
}

void inv_restored(Inv *inv, gint64 now_ms, gint64 wall_ms)
{
    GHashTable *tables[] = {inv->hosts,      inv->items,   inv->pairs,       inv->bytes,
                            inv->uris,       inv->gone_ms, inv->cordoned_ms, inv->ids,
                            inv->first_live, inv->created, inv->left,        inv->said_ms,
                            inv->moved_ms,   inv->large_ms};
    inv->now_ms = now_ms;
    inv->wall_ms = wall_ms;
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        g_hash_table_remove_all(inv->kinds[kind]);
    for (guint i = 0; i < G_N_ELEMENTS(tables); i++)
        g_hash_table_remove_all(tables[i]);
    g_array_set_size(inv->ordered_ms, 0);
    g_array_set_size(inv->deleted_ms, 0);
    g_array_set_size(inv->marks, 0);
}

InvChange inv_restored_key(Inv *inv, const LhKv *kv)
{
    const LhEtcdEvent event = {.kv = *kv};
    InvChange change = inv_change(inv, &event, NULL);
    change.event = NULL;
    change.prev = kv;
    if (change.kind == LH_N_KINDS)
        return change;
    if (change.kind == LH_KIND_ACCEPTED) {
        note_cordon(inv, &change);
        note_settings(inv, &change);
        note_edit(inv, &change);
    } else if (change.kind == LH_KIND_SNAPSHOT) {
        note_snapshot(inv, &change);
    } else if (change.kind == LH_KIND_ASSIGNMENT) {
        note_assignment(inv, &change);
    } else if (change.kind == LH_KIND_NODE && strchr(change.name, '/') != NULL) {
        g_hash_table_add(inv->ids, g_strdup(strchr(change.name, '/') + 1));
        note_size(inv, change.after);
    } else if (change.kind == LH_KIND_ITEM) {
        note_item(inv, &change);
    }
    g_hash_table_replace(inv->kinds[change.kind], g_strdup(change.name),
                         lh_object_ref(change.after));
    return change;
}

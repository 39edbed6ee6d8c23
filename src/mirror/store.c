/*
 * Objects by kind and name: one hash set for each kind, keyed by the object's own name, so that a name is
 * stored once. Keeps the counts of unknown objects. It must not parse and must not tell anybody.
 */
#include "mirror/store.h"

static guint object_hash(gconstpointer object)
{
    return g_str_hash(((const LhObject *)object)->name);
}

static gboolean object_equal(gconstpointer a, gconstpointer b)
{
    return g_str_equal(((const LhObject *)a)->name, ((const LhObject *)b)->name);
}

GHashTable *lh_mirror_foreign_new(void)
{
    return g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, NULL);
}

void lh_mirror_store_init(LhStore *store)
{
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        store->kinds[kind] = g_hash_table_new(object_hash, object_equal);
    memset(store->invalid, 0, sizeof store->invalid);
    store->foreign = lh_mirror_foreign_new();
}

static gboolean drop_object(gpointer object, gpointer value, gpointer data)
{
    (void)value;
    (void)data;
    lh_object_unref(object);
    return TRUE;
}

void lh_mirror_store_clear(LhStore *store)
{
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        g_hash_table_foreach_steal(store->kinds[kind], drop_object, NULL);
        g_clear_pointer(&store->kinds[kind], g_hash_table_unref);
    }
    g_clear_pointer(&store->foreign, g_hash_table_unref);
}

const LhObject *lh_mirror_store_get(const LhStore *store, LhKind kind, const char *name)
{
    LhObject wanted = {.name = name};

    return g_hash_table_lookup(store->kinds[kind], &wanted);
}

LhObject *lh_mirror_store_put(LhStore *store, LhObject *object)
{
    LhObject *before = lh_mirror_store_remove(store, object->kind, object->name);

    g_hash_table_add(store->kinds[object->kind], object);
    if (!lh_object_known(object))
        store->invalid[object->kind]++;
    return before;
}

LhObject *lh_mirror_store_remove(LhStore *store, LhKind kind, const char *name)
{
    LhObject *before = (LhObject *)lh_mirror_store_get(store, kind, name);

    if (before == NULL)
        return NULL;
    g_hash_table_remove(store->kinds[kind], before);
    if (!lh_object_known(before))
        store->invalid[kind]--;
    return before;
}

/*
 * Objects by kind and name: one set for each kind, keyed by the object's own name, so that a name is stored
 * once. Keeps the counts of unknown objects. It must not parse and must not tell anybody.
 */
#include "mirror/store.h"

#include <string.h>

GHashTable *lh_mirror_foreign_new(void)
{
    return g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, NULL);
}

void lh_mirror_store_init(LhStore *store)
{
    for (guint kind = 0; kind < LH_N_ALL_KINDS; kind++)
        lh_name_set_init(&store->kinds[kind], offsetof(LhObject, name));
    memset(store->invalid, 0, sizeof store->invalid);
    store->foreign = lh_mirror_foreign_new();
}

void lh_mirror_store_clear(LhStore *store)
{
    for (guint kind = 0; kind < LH_N_ALL_KINDS; kind++) {
        LhObject *object;
        for (gsize at = 0; (object = lh_name_set_next(&store->kinds[kind], &at)) != NULL;)
            lh_object_unref(object);
        lh_name_set_clear(&store->kinds[kind]);
    }
    g_clear_pointer(&store->foreign, g_hash_table_unref);
}

const LhObject *lh_mirror_store_get(const LhStore *store, LhKind kind, const char *name)
{
    return lh_name_set_get(&store->kinds[kind], name);
}

LhObject *lh_mirror_store_put(LhStore *store, LhObject *object)
{
    LhObject *before = lh_name_set_put(&store->kinds[object->kind], object);

    if (before != NULL && !lh_object_known(before))
        store->invalid[object->kind]--;
    if (!lh_object_known(object))
        store->invalid[object->kind]++;
    return before;
}

LhObject *lh_mirror_store_remove(LhStore *store, LhKind kind, const char *name)
{
    LhObject *before = lh_name_set_take(&store->kinds[kind], name);

    if (before != NULL && !lh_object_known(before))
        store->invalid[kind]--;
    return before;
}

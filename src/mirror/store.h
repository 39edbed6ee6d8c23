/*
 * The mirror's memory: objects by kind and name, and keys of no known kind. No etcd, no events.
 * Private to src/mirror/.
 */
#pragma once

#include "api/object.h"
#include "base/name_set.h"

typedef struct {
    LhNameSet kinds[LH_N_ALL_KINDS]; /* of LhObject; that of LH_N_KINDS is empty */
    guint invalid[LH_N_ALL_KINDS];
    GHashTable *foreign; /* set of GBytes: whole keys of no known kind; they may hold NULs */
} LhStore;

GHashTable *lh_mirror_foreign_new(void);
void lh_mirror_store_init(LhStore *store);
void lh_mirror_store_clear(LhStore *store);
const LhObject *lh_mirror_store_get(const LhStore *store, LhKind kind, const char *name);
/* Takes the reference of @object. The one it replaces is returned with its reference, or NULL. */
LhObject *lh_mirror_store_put(LhStore *store, LhObject *object);
LhObject *lh_mirror_store_remove(LhStore *store, LhKind kind, const char *name);

/*
 * Which controller may write what under decided/. A controller that is added adds its row.
 */
#include "invariants.h"

#include <string.h>

#define BIT(kind) (G_GUINT64_CONSTANT(1) << LH_KIND_##kind)

static const struct {
    const char *controller;
    guint64 puts, deletes;
    const char *pool; /* of assignments, items and retries; "": any; NULL: writes none */
} rights[] = {
    {"admission", BIT(ACCEPTED) | BIT(STATUS), BIT(ACCEPTED) | BIT(STATUS), NULL},
    {"replica-creator", BIT(REPLICA) | BIT(STATUS), BIT(STATUS), NULL},
    {"cache-assigner", BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS),
     BIT(ASSIGNMENT) | BIT(RETRY) | BIT(REPLICA) | BIT(STATUS), "cache/"},
    {"cache-evictor", BIT(ASSIGNMENT) | BIT(BRAKE) | BIT(STATUS), BIT(BRAKE) | BIT(STATUS),
     "cache/"},
    {"recovery-assigner", BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS),
     BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS) | BIT(RECOVERYTASK) | BIT(ITEM), "recovery/"},
    {"partition-allocator", BIT(PARTITIONPLAN) | BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS),
     BIT(PARTITIONPLAN) | BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS) | BIT(ITEM), "indexer/"},
    {"seed-allocator", BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS),
     BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS) | BIT(ITEM), "manager/"},
    {"restore-manager", BIT(REPLICA) | BIT(RESTOREPROGRESS) | BIT(STATUS),
     BIT(RESTOREPROGRESS) | BIT(STATUS), NULL},
    {"snapshot-cleaner", BIT(DELETION) | BIT(ORPHAN) | BIT(BRAKE) | BIT(STATUS),
     BIT(SNAPSHOT) | BIT(ORPHAN) | BIT(BRAKE) | BIT(STATUS), NULL},
    {"cluster-monitor", BIT(ASSIGNMENT) | BIT(STATUS), BIT(STATUS) | BIT(DELETION) | BIT(ORPHAN),
     ""},
    {"failure-detector", BIT(HEALTH) | BIT(BRAKE) | BIT(STATUS),
     BIT(HEALTH) | BIT(BRAKE) | BIT(STATUS), NULL},
};

/* An assignment, an item and a retry name their pool. */
static gboolean is_in_pool(const char *pool, const InvChange *change)
{
    gboolean pooled = change->kind == LH_KIND_ASSIGNMENT || change->kind == LH_KIND_RETRY ||
                      change->kind == LH_KIND_ITEM;
    return !pooled || (pool != NULL && g_str_has_prefix(change->name, pool));
}

/* A Status and an event name their writer. */
static gboolean is_named(const char *controller, const InvChange *change)
{
    if (change->kind == LH_KIND_STATUS) {
        const char *slash = strrchr(change->name, '/');
        return slash != NULL && strcmp(slash + 1, controller) == 0;
    }
    if (change->kind == LH_KIND_EVENT && lh_object_known(change->after))
        return g_strcmp0(((const LhEvent *)change->after)->controller, controller) == 0;
    return TRUE;
}

guint inv_rights(const InvChange *change)
{
    guint bits = 0;
    if (change->kind == LH_N_KINDS)
        return 0;
    for (guint i = 0; i < G_N_ELEMENTS(rights); i++) {
        guint64 kinds = change->event->is_delete ? rights[i].deletes : rights[i].puts;
        gboolean event = change->kind == LH_KIND_EVENT && !change->event->is_delete;
        if ((event || (kinds >> change->kind & 1)) && is_named(rights[i].controller, change) &&
            is_in_pool(rights[i].pool, change))
            bits |= 1u << i;
    }
    return bits;
}

const char *inv_rights_name(guint bit)
{
    return bit < G_N_ELEMENTS(rights) ? rights[bit].controller : NULL;
}

/* `leasehold retry` ends an item's wait, `leasehold leaders move` takes a leadership away. */
gboolean inv_people_may(const InvChange *change)
{
    return change->event->is_delete &&
           (change->kind == LH_KIND_RETRY || change->kind == LH_KIND_LEADER);
}

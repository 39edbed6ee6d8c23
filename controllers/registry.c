/* The list of controllers; nothing else. */
#include "controllers/registry.h"

#include <string.h>

static const LhController *const controllers[] = {
    &lh_admission,        &lh_replica_creator, &lh_cache_assigner,    &lh_cache_evictor,
    &lh_snapshot_cleaner, &lh_restore_manager, &lh_recovery_assigner, &lh_partition_allocator,
    &lh_seed_allocator,   &lh_cluster_monitor, &lh_failure_detector,  NULL,
};

const LhController *const *lh_controllers(void)
{
    return controllers;
}

const LhController *lh_controller_find(const char *name)
{
    for (guint i = 0; controllers[i] != NULL; i++)
        if (strcmp(controllers[i]->name, name) == 0)
            return controllers[i];
    return NULL;
}

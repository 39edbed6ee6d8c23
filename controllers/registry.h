/*
 * The list of controllers. A new one is a file of its own and a row here.
 */
#pragma once

#include "runtime/controller.h"

extern const LhController lh_admission;
extern const LhController lh_replica_creator;
extern const LhController lh_cache_assigner;
extern const LhController lh_cache_evictor;
extern const LhController lh_restore_manager;
extern const LhController lh_snapshot_cleaner;
extern const LhController lh_cluster_monitor;
extern const LhController lh_failure_detector;
extern const LhController lh_recovery_assigner;
extern const LhController lh_partition_allocator;
extern const LhController lh_seed_allocator;

/* NULL-ended, in the order in which people read them. */
const LhController *const *lh_controllers(void);
/* NULL if there is none of that name. */
const LhController *lh_controller_find(const char *name);

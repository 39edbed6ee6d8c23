/*
 * Three managers and three agents on a world's etcd, under a steady load of snapshots: what a trouble of
 * etcd may cost, which is nothing. Leases are those of CONTRACT.md: 5 s.
 */
#pragma once

#include "harness.h"

#define FLEET_MANAGERS 3
#define FLEET_AGENTS   3

typedef struct Fleet Fleet;

/* Starts it all. Returns when each controller has its candidates, each agent is registered, and the first
 * snapshots are live: from then on it is looked whether leases are kept. */
Fleet *fleet_start(World *world);
/* The same, with users (managers: "m", agents: "node"), whom it makes. */
Fleet *fleet_start_as_users(World *world);
void fleet_free(Fleet *fleet);
Proc *fleet_manager(Fleet *fleet, guint i);

/* Lets the load go on until so many more snapshots have been published. */
void fleet_publish(Fleet *fleet, guint n);
/* Lets it go on for so long: for what lasts. */
void fleet_pass(Fleet *fleet, gint64 ms);
/* No load for so long. */
void fleet_rest(Fleet *fleet, gint64 ms);
/* Ends the load, waits until all that was published is live, and fails unless: no program ended; no
 * manager's leader keys and no agent's registration ever were another; no key that is written once was
 * written twice; no item was assigned to two nodes. */
void fleet_check(Fleet *fleet);
/* The member that a manager uses for all but leases. */
guint fleet_member_of(Fleet *fleet, guint manager);

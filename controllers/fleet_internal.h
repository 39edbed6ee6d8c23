/*
 * Between the files of the fleet index only: records (fleet_records.c), what follows for the sets
 * (fleet_touch.c), overlapping uris (fleet_uri.c), the fold that calls them (fleet.c).
 */
#pragma once

#include "controllers/fleet.h"

/* ---- records: found or made; dropped again when nothing refers to them ---- */
LhFleetService *lh_fleet_service(LhFleet *fleet, const char *name);
LhFleetSnapshot *lh_fleet_snapshot(LhFleet *fleet, const char *name);
LhFleetReplica *lh_fleet_replica(LhFleet *fleet, const char *name);
LhFleetAssignment *lh_fleet_assignment(LhFleet *fleet, const char *node, const char *item);
LhFleetNode *lh_fleet_node(LhFleet *fleet, const char *id);
LhFleetHost *lh_fleet_host(LhFleet *fleet, const char *name);
LhFleetSubject *lh_fleet_subject(LhFleet *fleet, LhKind kind, const char *key);
LhFleetPresence *lh_fleet_presence(LhFleet *fleet, const char *key);

void lh_fleet_drop_service(LhFleet *fleet, LhFleetService *service);
void lh_fleet_drop_snapshot(LhFleet *fleet, LhFleetSnapshot *snapshot);
void lh_fleet_drop_replica(LhFleet *fleet, LhFleetReplica *replica);
void lh_fleet_drop_assignment(LhFleet *fleet, LhFleetAssignment *assignment);
void lh_fleet_drop_node(LhFleet *fleet, LhFleetNode *node);
void lh_fleet_drop_host(LhFleet *fleet, LhFleetHost *host);
void lh_fleet_drop_subject(LhFleet *fleet, LhFleetSubject *subject);
void lh_fleet_drop_presence(LhFleet *fleet, LhFleetPresence *presence);

/* Whether it has any status. */
gboolean lh_fleet_described(const LhFleet *fleet, const char *plural, const char *name);
/* Puts a reference to @object (may be NULL) into *slot in place of what is there. */
void lh_fleet_hold(const LhObject **slot, const LhObject *object);
void lh_fleet_link_service(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *service);
/* The same for a replica whose snapshot is gone; NULL: it is no orphan. */
void lh_fleet_link_orphan(LhFleet *fleet, LhFleetReplica *replica, const char *service);

void lh_fleet_hold_snapshot(LhFleetSnapshot *snapshot, const LhObject *object);

/* ---- touch: bring the sets to what the present objects say ---- */
void lh_fleet_touch_service(LhFleet *fleet, LhFleetService *service);
void lh_fleet_touch_snapshot(LhFleet *fleet, LhFleetSnapshot *snapshot);
void lh_fleet_touch_replica(LhFleet *fleet, LhFleetReplica *replica);
void lh_fleet_touch_assignment(LhFleet *fleet, LhFleetAssignment *assignment); /* and its replica */
void lh_fleet_touch_node(LhFleet *fleet, LhFleetNode *node);
void lh_fleet_touch_host(LhFleet *fleet, LhFleetHost *host); /* its policy, or what is said of it */
/* Its registration or health, what is said of it, or the detector's Settings. */
void lh_fleet_touch_failing(LhFleet *fleet, LhFleetNode *node);
void lh_fleet_touch_counts(LhFleet *fleet, LhFleetService *service);
void lh_fleet_touch_subject(LhFleet *fleet, LhFleetSubject *subject);
void lh_fleet_touch_presence(LhFleet *fleet, LhFleetPresence *presence);
/* @id: "<pool>.<node>"; @seen may be NULL: it is forgotten. */
void lh_fleet_fold_probe(LhFleet *fleet, const char *id, const LhObject *seen);
void lh_fleet_fold_revoked(LhFleet *fleet, const LhObject *before, const LhObject *after);
/* Takes what an assignment counts for off its host and node again. */
void lh_fleet_uncount(LhFleet *fleet, LhFleetAssignment *assignment);
void lh_fleet_trees_init(LhFleet *fleet);
void lh_fleet_trees_clear(LhFleet *fleet);

/* ---- restores (fleet_restores.c) ---- */
void lh_fleet_restores_init(LhFleet *fleet);
void lh_fleet_restores_clear(LhFleet *fleet);
void lh_fleet_fold_restore(LhFleet *fleet, const char *name, const LhObject *accepted);
void lh_fleet_fold_progress(LhFleet *fleet, const char *name, const LhObject *progress);
/* Its Status changed. */
void lh_fleet_touch_restore(LhFleet *fleet, const char *name);
/* Brings @replica->restored to what its object says: before its fate is asked for. */
void lh_fleet_link_restored(LhFleet *fleet, LhFleetReplica *replica);
/* … and the sets that it is in. */
void lh_fleet_touch_restored(LhFleet *fleet, LhFleetReplica *replica);
/* The fate of a restored replica that nothing else decides. */
LhFate lh_fleet_restored_fate(const LhFleetReplica *replica);
int lh_fleet_time_order(gconstpointer record, gconstpointer key);
/* @snapshot's object is about to change (FALSE), or has changed (TRUE); its service is linked. */
void lh_fleet_time_set(LhFleetSnapshot *snapshot, gboolean in);
/* ---- what may be deleted ---- */
void lh_fleet_clean_init(LhFleet *fleet);
void lh_fleet_clean_clear(LhFleet *fleet);
/* Before its object or its service changes. */
void lh_fleet_clean_leave(LhFleetSnapshot *snapshot);
/* A Snapshot that does not parse came, changed or went: what its uri overlaps is touched. */
void lh_fleet_clean_unknown(LhFleet *fleet, const LhObject *before, const LhObject *after);
/* @invalid: why it is not valid, NULL: it is. */
void lh_fleet_clean_touch(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *invalid);
/* Its first replica came, or its last one went. */
void lh_fleet_clean_dotted(LhFleet *fleet, const char *snapshot, int delta);
void lh_fleet_clean_deletion(LhFleet *fleet, const LhObject *before, const LhObject *after);
gboolean lh_fleet_fold_orphan(LhFleet *fleet, const LhObject *before, const LhObject *after);
gboolean lh_fleet_fold_observation(LhFleet *fleet, const LhObject *before, const LhObject *after);
int lh_fleet_end_order(gconstpointer record, gconstpointer key);

/* ---- the heap of what to create ---- */
/* In it or not, under another time. */
void lh_fleet_heap_set(GPtrArray *heap, LhFleetSnapshot *snapshot, gboolean want, gint64 sort_time);

/* ---- uris ---- */
/* A uri that two snapshots hold, or one, while others lie in it. */
typedef struct {
    const char *name;        /* text */
    guint below;             /* how many lie in it, at any depth */
    guint holders;           /* how many hold it, 1 or more */
    LhFleetSnapshot *oldest; /* of those in it; NULL, while there are any: has to be searched for */
    char text[];
} LhFleetContest;

/* The order of LhFleet.by_uri. */
int lh_fleet_uri_order(gconstpointer record, gconstpointer key);
/* Of a known snapshot. Adding: it holds its new object already. Removing: still the old one. FALSE: the
 * validity of others is surely not changed. */
gboolean lh_fleet_uri_add(LhFleet *fleet, LhFleetSnapshot *snapshot);
gboolean lh_fleet_uri_remove(LhFleet *fleet, const LhFleetSnapshot *snapshot);
/* Equals, lies in or contains what a Deletion or a decided Orphan deletes, now or again. *@inside (may be
 * NULL): rather equals or lies in it. */
gboolean lh_fleet_uri_taken(const LhFleet *fleet, const char *uri, gboolean *inside);
/* @table: taken_uris or taken_flat. */
void lh_fleet_uri_take(LhFleet *fleet, GHashTable *table, const char *uri, gint delta);
/* Touches all snapshots (but one, which may be NULL) whose validity @uri may have changed. */
void lh_fleet_uri_touch(LhFleet *fleet, const char *uri, const LhFleetSnapshot *but);
void lh_fleet_uris_clear(LhFleet *fleet);

/*
 * The tables of the kinds, and what they are written with. Private to api/.
 *
 * One line is one field: type, struct, member, JSON name, flags, min, max, fallback (kind.h says
 * what each means). A table ends with LH_FIELDS_END.
 */
#pragma once

#include "api/actual.h"
#include "api/codec.h"
#include "api/decided.h"
#include "api/desired.h"
#include "api/observed.h"
#include "api/published.h"

#define LH_FIELD(type_, struct_, member_, json_, flags_, min_, max_, fallback_)                  \
    {                                                                                            \
        json_, LH_F_##type_, flags_, (guint32)offsetof(struct_, member_), min_, max_, fallback_, \
            NULL, 0                                                                              \
    }
/* ENUM: names; STRUCT, ARRAY: LhStructInfo */
#define LH_FIELD_SUB(type_, struct_, member_, json_, flags_, min_, max_, fallback_, sub_)        \
    {                                                                                            \
        json_, LH_F_##type_, flags_, (guint32)offsetof(struct_, member_), min_, max_, fallback_, \
            sub_, 0                                                                              \
    }
/* LH_SPARSE, but always printed with the member @with_ */
#define LH_FIELD_WITH(type_, struct_, member_, json_, min_, max_, with_)                       \
    {                                                                                          \
        json_, LH_F_##type_, LH_SPARSE, (guint32)offsetof(struct_, member_), min_, max_, NULL, \
            NULL, (guint32)offsetof(struct_, with_)                                            \
    }
/* A JSON object whose members lie in the same struct: offsets in its table count from the outer
 * one. */
#define LH_FIELD_INLINE(json_, sub_)                  \
    {                                                 \
        json_, LH_F_STRUCT, 0, 0, 0, 0, NULL, sub_, 0 \
    }
#define LH_FIELDS_END                             \
    {                                             \
        NULL, LH_F_STR, 0, 0, 0, 0, NULL, NULL, 0 \
    }

#define LH_SECOND G_GINT64_CONSTANT(1000)
#define LH_DAY    (86400 * LH_SECOND)
/* The times and durations of data: their sums stay below the year 9999, which no RFC 3339 text of
 * ours can reach. */
#define LH_DATA_TIME_MAX_MS     (G_GINT64_CONSTANT(221845392000000) - 1) /* the end of 8999 */
#define LH_DATA_DURATION_MAX_MS (36500 * LH_DAY)
#define LH_DURATION_MAX_MS      (3650 * LH_DAY)
#define LH_SNAPSHOT_NAME_MAX    180
#define LH_NODE_NAME_MAX        244

extern const LhField lh_service_fields[];
extern const LhField lh_seed_fields[];
extern const LhField lh_throttle_fields[];
extern const LhField lh_partition_fields[];
extern const LhField lh_restore_fields[];
extern const LhField lh_nodepolicy_fields[];
extern const LhField lh_settings_all_fields[];
extern const LhField lh_confirmation_fields[];
extern const LhField lh_snapshot_fields[];
extern const LhField lh_recoverytask_fields[];
extern const LhField lh_accepted_fields[];
extern const LhField lh_replica_fields[];
extern const LhField lh_assignment_fields[];
extern const LhField lh_retry_fields[];
extern const LhField lh_partitionplan_fields[];
extern const LhField lh_restoreprogress_fields[];
extern const LhField lh_health_fields[];
extern const LhField lh_deletion_fields[];
extern const LhField lh_orphan_fields[];
extern const LhField lh_brake_fields[];
extern const LhField lh_status_fields[];
extern const LhField lh_node_fields[];
extern const LhField lh_item_fields[];
extern const LhField lh_search_fields[];
extern const LhField lh_leader_fields[];
extern const LhField lh_event_fields[];
extern const LhField lh_observation_fields[];

gboolean lh_service_check(const LhObject *object, GError **error);
gboolean lh_seed_check(const LhObject *object, GError **error);
gboolean lh_throttle_check(const LhObject *object, GError **error);
gboolean lh_restore_check(const LhObject *object, GError **error);
gboolean lh_settings_check(const LhObject *object, GError **error);
gboolean lh_confirmation_check(const LhObject *object, GError **error);
gboolean lh_snapshot_check(const LhObject *object, GError **error);
gboolean lh_recoverytask_check(const LhObject *object, GError **error);
gboolean lh_replica_check(const LhObject *object, GError **error);
gboolean lh_partitionplan_check(const LhObject *object, GError **error);
gboolean lh_deletion_check(const LhObject *object, GError **error);
gboolean lh_node_check(const LhObject *object, GError **error);

/*
 * The kinds under decided/ and events/, what controllers conclude: fields, and the names of
 * replicas.
 *
 * These are written by leasehold itself, but read like any other input: a value that contradicts
 * its key or itself is refused, so that nobody acts on half of it.
 */
#include "api/tables.h"
#include "base/errors.h"
#include "base/units.h"

#include <string.h>

#define ORDINAL_DIGITS 9

/* --- Accepted --- */

const LhField lh_accepted_fields[] = {
    LH_FIELD(INT, LhAccepted, revision, "revision", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(TIME, LhAccepted, accepted_at, "acceptedAt", 0, 0, 0, NULL),
    LH_FIELD(MAP, LhAccepted, labels, "labels", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(RAW, LhAccepted, spec, "spec", LH_REQUIRED | LH_OBJECT, 0, 0, NULL),
    LH_FIELDS_END,
};

const void *lh_accepted_spec(const LhObject *object, LhKind kind)
{
    if (object == NULL || object->kind != LH_KIND_ACCEPTED || !lh_object_known(object))
        return NULL;
    const LhObject *parsed = ((const LhAccepted *)object)->parsed;
    return parsed->kind == kind ? parsed : NULL;
}

/* --- Replica --- */

const LhField lh_replica_fields[] = {
    LH_FIELD(STR, LhReplica, snapshot, "snapshot", LH_REQUIRED | LH_NAME, 0, LH_SNAPSHOT_NAME_MAX,
             NULL),
    LH_FIELD(ATOM, LhReplica, service, "service", LH_REQUIRED | LH_NAME, 0, 0, NULL),
    LH_FIELD(ATOM, LhReplica, set, "set", LH_REQUIRED | LH_POOL_NAME, 0, 0, NULL),
    LH_FIELD(INT, LhReplica, ordinal, "ordinal", 0, 0, 999999999, NULL),
    LH_FIELD(BOOL, LhReplica, restored, "restored", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhReplica, created_at, "createdAt", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhReplica, expires_at, "expiresAt", 0, 0, 0, NULL),
    LH_FIELD(ATOM, LhReplica, restore, "restore", LH_NAME, 0, 0, NULL),
    LH_FIELD(INT, LhReplica, restore_revision, "restoreRevision", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(DURATION, LhReplica, ttl_ms, "ttl", LH_SPARSE, 0, LH_DURATION_MAX_MS, NULL),
    LH_FIELDS_END,
};

char *lh_replica_name(const char *snapshot, const char *set, gint64 ordinal, gboolean restored)
{
    return g_strdup_printf("%s.%s.%s%" G_GINT64_FORMAT, snapshot, set, restored ? "r" : "",
                           ordinal);
}

gboolean lh_replica_name_split(const char *name, char **snapshot, char **set, gint64 *ordinal,
                               gboolean *restored)
{
    const char *end = strrchr(name, '.');
    const char *middle = end != NULL ? g_strrstr_len(name, end - name, ".") : NULL;
    if (middle == NULL)
        return FALSE;
    const char *digits = end + 1;
    gboolean r = *digits == 'r';
    digits += r;
    gsize n = strlen(digits);
    if (n == 0 || n > ORDINAL_DIGITS || strspn(digits, "0123456789") != n ||
        (n > 1 && digits[0] == '0'))
        return FALSE;
    g_autofree char *set_part = g_strndup(middle + 1, (gsize)(end - middle - 1));
    g_autofree char *snapshot_part = g_strndup(name, (gsize)(middle - name));
    if (!lh_pool_name_valid(set_part) || !lh_name_valid(snapshot_part, LH_SNAPSHOT_NAME_MAX))
        return FALSE;
    if (snapshot != NULL)
        *snapshot = g_steal_pointer(&snapshot_part);
    if (set != NULL)
        *set = g_steal_pointer(&set_part);
    if (ordinal != NULL)
        *ordinal = g_ascii_strtoll(digits, NULL, 10);
    if (restored != NULL)
        *restored = r;
    return TRUE;
}

gboolean lh_replica_check(const LhObject *object, GError **error)
{
    const LhReplica *replica = (const LhReplica *)object;
    if (replica->expires_at < 0 && !replica->restored)
        return lh_refuse(error, NULL, "expiresAt: is required unless the replica is restored");
    char buf[512]; /* more than 180 + 63 + 9 + 4; this runs for a million objects */
    g_snprintf(buf, sizeof buf, "%s.%s.%s%" G_GINT64_FORMAT, replica->snapshot, replica->set,
               replica->restored ? "r" : "", replica->ordinal);
    if (strcmp(buf, object->name) == 0)
        return TRUE;
    g_autofree char *quoted = lh_quote(buf);
    return lh_refuse(error, NULL,
                     "snapshot: with set, ordinal and restored it names %s, which is not the key's",
                     quoted);
}

/* --- Assignment, Retry --- */

static const char *const actions[] = {"load", "evict", "prepare", NULL};

const char *lh_action_name(int action)
{
    return lh_enum_name(actions, action);
}

const LhField lh_assignment_fields[] = {
    LH_FIELD_SUB(ENUM, LhAssignment, action, "action", LH_REQUIRED, 0, 0, NULL, actions),
    LH_FIELD(TIME, LhAssignment, since, "since", 0, 0, 0, NULL),
    LH_FIELD(ATOM, LhAssignment, controller, "controller", 0, 0, 0, NULL),
    LH_FIELD(INT, LhAssignment, epoch, "epoch", 0, 0, 0, NULL),
    LH_FIELD(ATOM, LhAssignment, rule, "rule", 0, 0, 0, NULL),
    LH_FIELD(STR, LhAssignment, reason, "reason", 0, 0, 0, NULL),
    LH_FIELD(STR, LhAssignment, snapshot, "snapshot", LH_NAME, 0, LH_SNAPSHOT_NAME_MAX, NULL),
    LH_FIELD(STR, LhAssignment, uri, "uri", 0, 0, 0, NULL),
    LH_FIELD_WITH(SIZE, LhAssignment, size_bytes, "sizeBytes", 0, 0, snapshot),
    LH_FIELD(ATOM, LhAssignment, set, "set", LH_POOL_NAME, 0, 0, NULL),
    LH_FIELD(DURATION, LhAssignment, evict_grace_ms, "evictGrace", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(STR, LhAssignment, partition, "partition", LH_NAME, 0, 0, NULL),
    LH_FIELD_WITH(INT, LhAssignment, start_offset, "startOffset", 0, 0, partition),
    LH_FIELD_WITH(INT, LhAssignment, end_offset, "endOffset", 0, 0, partition),
    LH_FIELD(RAW, LhAssignment, seed, "seed", LH_OBJECT, 0, 0, NULL),
    LH_FIELD(RAW, LhAssignment, window, "window", LH_OBJECT, 0, 0, NULL),
    LH_FIELDS_END,
};

const LhField lh_retry_fields[] = {
    LH_FIELD(INT, LhRetry, attempt, "attempt", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhRetry, not_before, "notBefore", 0, 0, 0, NULL),
    LH_FIELD(BOOL, LhRetry, parked, "parked", 0, 0, 0, NULL),
    LH_FIELD(STR, LhRetry, message, "message", 0, 0, 0, NULL),
    LH_FIELD(STR, LhRetry, node, "node", 0, 0, 0, NULL),
    LH_FIELDS_END,
};

/* --- PartitionPlan --- */

static const LhField interval_fields[] = {
    LH_FIELD(TIME, LhPartitionInterval, start, "start", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(TIME, LhPartitionInterval, end, "end", LH_PRINT_NULL, 0, 0, NULL),
    LH_FIELD(STRV, LhPartitionInterval, partitions, "partitions", LH_NAME, 0, 0, NULL),
    LH_FIELDS_END,
};
static const LhStructInfo interval = {interval_fields, sizeof(LhPartitionInterval)};

const LhField lh_partitionplan_fields[] = {
    LH_FIELD_SUB(ARRAY, LhPartitionPlan, history, "history", 0, 0, 0, NULL, &interval),
    LH_FIELDS_END,
};

gboolean lh_partitionplan_check(const LhObject *object, GError **error)
{
    const LhArray *history = ((const LhPartitionPlan *)object)->history;
    for (guint i = 0; i < history->n; i++) {
        const LhPartitionInterval *now = lh_array_at(history, i);
        const LhPartitionInterval *next = i + 1 < history->n ? lh_array_at(history, i + 1) : NULL;
        if (next == NULL && now->end < 0)
            return TRUE;
        if (now->end < 0)
            return lh_refuse(error, NULL, "history[%u].end: is null, only the last may be", i);
        if (now->end < now->start)
            return lh_refuse(error, NULL, "history[%u].end: must not be before start", i);
        if (next == NULL)
            return lh_refuse(error, NULL, "history[%u].end: must be null in the last", i);
        if (next->start != now->end)
            return lh_refuse(error, NULL, "history[%u].start: must be the end of the one before",
                             i + 1);
    }
    return TRUE;
}

/* --- RestoreProgress, NodeHealth --- */

static const char *const phases[] = {"Pending", "Active", "Completed", "Refused", NULL};

const char *lh_restore_phase_name(int phase)
{
    return lh_enum_name(phases, phase);
}

const LhField lh_restoreprogress_fields[] = {
    LH_FIELD_SUB(ENUM, LhRestoreProgress, phase, "phase", LH_REQUIRED, 0, 0, NULL, phases),
    LH_FIELD(INT, LhRestoreProgress, observed_revision, "observedRevision", 0, 0, 0, NULL),
    LH_FIELD(INT, LhRestoreProgress, replicas, "replicas", 0, 0, 0, NULL),
    LH_FIELD(INT, LhRestoreProgress, live, "live", 0, 0, 0, NULL),
    LH_FIELD(INT, LhRestoreProgress, given_up, "givenUp", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(TIME, LhRestoreProgress, until, "until", 0, 0, 0, NULL),
    LH_FIELD(STR, LhRestoreProgress, message, "message", 0, 0, 0, NULL),
    LH_FIELDS_END,
};

static const char *const health_states[] = {"healthy", "probation", "failure", "failed", NULL};

const char *lh_health_state_name(int state)
{
    return lh_enum_name(health_states, state);
}

const LhField lh_health_fields[] = {
    LH_FIELD_SUB(ENUM, LhHealth, state, "state", LH_REQUIRED, 0, 0, NULL, health_states),
    LH_FIELD(TIME, LhHealth, since, "since", 0, 0, 0, NULL),
    LH_FIELD(STR, LhHealth, reason, "reason", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhHealth, missing_since, "missingSince", 0, 0, 0, NULL),
    LH_FIELD(BOOL, LhHealth, revoking, "revoking", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(DURATION, LhHealth, lease_ttl_ms, "leaseTtl", LH_SPARSE, 0, 0, NULL),
    LH_FIELDS_END,
};

/* --- Deletion, Orphan, Brake --- */

const LhField lh_deletion_fields[] = {
    LH_FIELD(STR, LhDeletion, uri, "uri", LH_REQUIRED, 1, 0, NULL),
    LH_FIELD(INT, LhDeletion, snapshot_revision, "snapshotRevision", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(TIME, LhDeletion, decided_at, "decidedAt", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(TIME, LhDeletion, data_deleted_at, "dataDeletedAt", 0, 0, 0, NULL),
    LH_FIELD(STR, LhDeletion, service, "service", 0, 0, 0, NULL),
    LH_FIELD(STR, LhDeletion, plan_hash, "planHash", 0, 0, 256, NULL),
    LH_FIELDS_END,
};

const LhField lh_orphan_fields[] = {
    LH_FIELD(STR, LhOrphan, uri, "uri", LH_REQUIRED, 1, 0, NULL),
    LH_FIELD(INT, LhOrphan, objects, "objects", 0, 0, 0, NULL),
    LH_FIELD(SIZE, LhOrphan, bytes, "bytes", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhOrphan, first_seen, "firstSeen", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(TIME, LhOrphan, second_seen, "secondSeen", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhOrphan, decided_at, "decidedAt", 0, 0, 0, NULL),
    LH_FIELD(INT, LhOrphan, erased, "erased", 0, 0, 0, NULL),
    LH_FIELD(STR, LhOrphan, plan_hash, "planHash", 0, 0, 256, NULL),
    LH_FIELDS_END,
};

static const char *const brake_causes[] = {"much", "restored", "hold", NULL};

const char *lh_brake_cause_name(int cause)
{
    return lh_enum_name(brake_causes, cause);
}

const LhField lh_brake_fields[] = {
    LH_FIELD(INT, LhBrake, revision, "revision", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(TIME, LhBrake, since, "since", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(STR, LhBrake, plan_hash, "planHash", LH_REQUIRED, 1, 256, NULL),
    LH_FIELD(INT, LhBrake, eligible, "eligible", 0, 0, 0, NULL),
    LH_FIELD(INT, LhBrake, of, "of", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhBrake, confirmed_at, "confirmedAt", 0, 0, 0, NULL),
    LH_FIELD(STR, LhBrake, message, "message", 0, 0, 0, NULL),
    LH_FIELD_SUB(ENUM, LhBrake, cause, "cause", 0, 0, 0, NULL, brake_causes),
    LH_FIELD(STR, LhBrake, basis, "basis", 0, 0, 256, NULL),
    LH_FIELD(STRV, LhBrake, markers, "markers", LH_SPARSE, 0, 0, NULL),
    LH_FIELDS_END,
};

/* --- Status --- */

static const char *const condition_statuses[] = {"True", "False", "Unknown", NULL};

const char *lh_condition_status_name(int status)
{
    return lh_enum_name(condition_statuses, status);
}

static const LhField condition_fields[] = {
    LH_FIELD(STR, LhCondition, type, "type", LH_REQUIRED, 1, 253, NULL),
    LH_FIELD_SUB(ENUM, LhCondition, status, "status", LH_REQUIRED, 0, 0, NULL, condition_statuses),
    LH_FIELD(STR, LhCondition, reason, "reason", 0, 0, 0, NULL),
    LH_FIELD(STR, LhCondition, message, "message", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhCondition, since, "since", 0, 0, 0, NULL),
    LH_FIELDS_END,
};
static const LhStructInfo condition = {condition_fields, sizeof(LhCondition)};

static const LhField ordered_fields[] = {
    LH_FIELD(TIME, LhOrdered, at, "at", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(INT, LhOrdered, count, "count", LH_REQUIRED, 0, 0, NULL),
    LH_FIELDS_END,
};
static const LhStructInfo ordered = {ordered_fields, sizeof(LhOrdered)};

const LhField lh_status_fields[] = {
    LH_FIELD(INT, LhStatus, observed_revision, "observedRevision", 0, 0, 0, NULL),
    LH_FIELD_SUB(ARRAY, LhStatus, conditions, "conditions", LH_SORTED | LH_SPARSE, 0, 0, NULL,
                 &condition),
    LH_FIELD(INT, LhStatus, snapshots, "snapshots", LH_SPARSE, 0, 0, "-1"),
    LH_FIELD(INT, LhStatus, replicas_desired, "replicasDesired", LH_SPARSE, 0, 0, "-1"),
    LH_FIELD(INT, LhStatus, replicas_live, "replicasLive", LH_SPARSE, 0, 0, "-1"),
    LH_FIELD(STR, LhStatus, owner, "owner", 0, 0, 0, NULL),
    LH_FIELD(STR, LhStatus, state, "state", 0, 0, 0, NULL),
    LH_FIELD_SUB(ARRAY, LhStatus, recent, "recent", LH_SPARSE, 0, 0, NULL, &ordered),
    LH_FIELD(INT, LhStatus, reserved, "reserved", LH_SPARSE, 0, 0, NULL),
    LH_FIELDS_END,
};

/* --- Event --- */

static const char *const event_types[] = {"Normal", "Warning", NULL};

const LhField lh_event_fields[] = {
    LH_FIELD(TIME, LhEvent, time, "time", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(ATOM, LhEvent, controller, "controller", 0, 0, 0, NULL),
    LH_FIELD_SUB(ENUM, LhEvent, type, "type", 0, 0, 0, NULL, event_types),
    LH_FIELD(STR, LhEvent, reason, "reason", 0, 0, 0, NULL),
    LH_FIELD(STR, LhEvent, object, "object", 0, 0, 0, NULL),
    LH_FIELD(STR, LhEvent, message, "message", 0, 0, 0, NULL),
    LH_FIELD(INT, LhEvent, count, "count", 0, 0, 0, "1"),
    LH_FIELDS_END,
};

/*
 * The table of kinds, and what follows from it: names of kinds, keys, names of objects.
 *
 * CONTRACT.md section 1 in a form that the compiler checks. What a kind's fields are lies in
 * desired.c, settings.c, published.c, decided.c and actual.c. Names and keys are input: nothing
 * here may assume that they are text.
 */
#include "api/tables.h"
#include "base/units.h"

#include <string.h>

#define MAX_NAME      253
#define NAME_PART_MAX 253 /* of any shape */

/* kind, struct, plural, directory, shape, parts, fields, fields_of, check */
#define KIND(id_, type_, name_, area_, dir_, plural_, shape_, parts_, fields_, fields_of_, check_) \
    [LH_KIND_##id_] = {LH_KIND_##id_,    name_,  plural_, LH_AREA_##area_, dir_,                   \
                       sizeof(dir_) - 1, shape_, parts_,  sizeof(type_),   fields_,                \
                       fields_of_,       check_}

static const LhKindInfo kinds[LH_N_ALL_KINDS] = {
    KIND(SERVICE, LhService, "Service", DESIRED, "desired/services/", "services", "n", 1,
         lh_service_fields, NULL, lh_service_check),
    KIND(SEED, LhSeed, "Seed", DESIRED, "desired/seeds/", "seeds", "n", 1, lh_seed_fields, NULL,
         lh_seed_check),
    KIND(THROTTLE, LhThrottle, "ThrottlePolicy", DESIRED, "desired/throttles/", "throttles", "n", 1,
         lh_throttle_fields, NULL, lh_throttle_check),
    KIND(PARTITION, LhPartition, "Partition", DESIRED, "desired/partitions/", "partitions", "n", 1,
         lh_partition_fields, NULL, NULL),
    KIND(RESTORE, LhRestore, "Restore", DESIRED, "desired/restores/", "restores", "n", 1,
         lh_restore_fields, NULL, lh_restore_check),
    KIND(NODEPOLICY, LhNodePolicy, "NodePolicy", DESIRED, "desired/nodepolicies/", "nodepolicies",
         "pm", 2, lh_nodepolicy_fields, NULL, NULL),
    KIND(SETTINGS, LhSettings, "Settings", DESIRED, "desired/settings/", "settings", "n", 1,
         lh_settings_all_fields, lh_settings_fields, lh_settings_check),
    KIND(CONFIRMATION, LhConfirmation, "Confirmation", DESIRED, "desired/confirmations/",
         "confirmations", "n", 1, lh_confirmation_fields, NULL, lh_confirmation_check),
    KIND(SNAPSHOT, LhSnapshot, "Snapshot", PUBLISHED, "published/snapshots/", "snapshots", "s", 1,
         lh_snapshot_fields, NULL, lh_snapshot_check),
    KIND(RECOVERYTASK, LhRecoveryTask, "RecoveryTask", PUBLISHED, "published/recoverytasks/",
         "recoverytasks", "n", 1, lh_recoverytask_fields, NULL, lh_recoverytask_check),
    KIND(ACCEPTED, LhAccepted, "Accepted", DECIDED, "decided/accepted/", "accepted", "D", 0,
         lh_accepted_fields, NULL, NULL),
    KIND(REPLICA, LhReplica, "Replica", DECIDED, "decided/replicas/", "replicas", "n", 1,
         lh_replica_fields, NULL, lh_replica_check),
    KIND(ASSIGNMENT, LhAssignment, "Assignment", DECIDED, "decided/assignments/", "assignments",
         "pin", 3, lh_assignment_fields, NULL, NULL),
    KIND(RETRY, LhRetry, "Retry", DECIDED, "decided/retries/", "retries", "pn", 2, lh_retry_fields,
         NULL, NULL),
    KIND(PARTITIONPLAN, LhPartitionPlan, "PartitionPlan", DECIDED, "decided/partitionplans/",
         "partitionplans", "n", 1, lh_partitionplan_fields, NULL, lh_partitionplan_check),
    KIND(RESTOREPROGRESS, LhRestoreProgress, "RestoreProgress", DECIDED, "decided/restoreprogress/",
         "restoreprogress", "n", 1, lh_restoreprogress_fields, NULL, NULL),
    KIND(HEALTH, LhHealth, "NodeHealth", DECIDED, "decided/health/", "health", "pi", 2,
         lh_health_fields, NULL, NULL),
    KIND(DELETION, LhDeletion, "Deletion", DECIDED, "decided/deletions/", "deletions", "s", 1,
         lh_deletion_fields, NULL, lh_deletion_check),
    KIND(ORPHAN, LhOrphan, "Orphan", DECIDED, "decided/orphans/", "orphans", "h", 1,
         lh_orphan_fields, NULL, NULL),
    KIND(BRAKE, LhBrake, "Brake", DECIDED, "decided/brakes/", "brakes", "n", 1, lh_brake_fields,
         NULL, NULL),
    KIND(STATUS, LhStatus, "Status", DECIDED, "decided/status/", "status", "X", 0, lh_status_fields,
         NULL, NULL),
    KIND(NODE, LhNode, "Node", ACTUAL, "actual/nodes/", "nodes", "pi", 2, lh_node_fields, NULL,
         lh_node_check),
    KIND(ITEM, LhItem, "Item", ACTUAL, "actual/items/", "items", "pin", 3, lh_item_fields, NULL,
         NULL),
    KIND(SEARCH, LhSearch, "Search", ACTUAL, "actual/search/", "search", "pis", 3, lh_search_fields,
         NULL, NULL),
    KIND(LEADER, LhLeader, "Leader", LEADERS, "leaders/", "leaders", "nl", 2, lh_leader_fields,
         NULL, NULL),
    KIND(EVENT, LhEvent, "Event", EVENTS, "events/", "events", "n", 1, lh_event_fields, NULL, NULL),
    KIND(OBSERVATION, LhObservation, "Observation", OBSERVED, "observed/", "observations", "nn", 2,
         lh_observation_fields, NULL, NULL),
};

const LhKindInfo *lh_kind_info(LhKind kind)
{
    return (guint)kind < LH_N_ALL_KINDS && kind != LH_N_KINDS ? &kinds[kind] : NULL;
}

/* True when @name is @word with the ending @from replaced by @to, in any case. */
static gboolean is_inflected(const char *name, const char *word, const char *from, const char *to)
{
    gsize stem = strlen(word);
    if (!g_str_has_suffix(word, from))
        return FALSE;
    stem -= strlen(from);
    return g_ascii_strncasecmp(name, word, stem) == 0 && g_ascii_strcasecmp(name + stem, to) == 0;
}

LhKind lh_kind_lookup(const char *name)
{
    for (guint i = 0; name != NULL && i < LH_N_KINDS; i++) {
        if (g_ascii_strcasecmp(name, kinds[i].name) == 0 ||
            g_ascii_strcasecmp(name, kinds[i].plural) == 0)
            return (LhKind)i;
    }
    for (guint i = 0; name != NULL && i < LH_N_KINDS; i++) {
        if (is_inflected(name, kinds[i].name, "", "s") ||
            is_inflected(name, kinds[i].name, "y", "ies") ||
            is_inflected(name, kinds[i].plural, "s", ""))
            return (LhKind)i;
    }
    return LH_N_KINDS;
}

/* --- keys --- */

gboolean lh_key_split(const char *key, LhKind *kind, const char **name)
{
    for (guint i = 0; i < LH_N_KINDS; i++) {
        if (strncmp(key, kinds[i].prefix, kinds[i].prefix_len) == 0) {
            *kind = (LhKind)i;
            *name = key + kinds[i].prefix_len;
            return TRUE;
        }
    }
    return FALSE;
}

char *lh_key(LhKind kind, const char *name)
{
    return g_strconcat(kinds[kind].prefix, name, NULL);
}

char *lh_keyf(LhKind kind, const char *name_format, ...)
{
    GString *key = g_string_new(kinds[kind].prefix);
    va_list args;
    va_start(args, name_format);
    g_string_append_vprintf(key, name_format, args);
    va_end(args);
    return g_string_free(key, FALSE);
}

/* --- names --- */

static gboolean is_hex(const char *text, gsize len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

static gboolean part_valid(char shape, const char *part)
{
    switch (shape) {
    case 'n':
    case 'i':
        return lh_name_valid(part, MAX_NAME);
    case 's':
        return lh_name_valid(part, LH_SNAPSHOT_NAME_MAX);
    case 'm':
        return lh_name_valid(part, LH_NODE_NAME_MAX);
    case 'p':
        return lh_pool_name_valid(part);
    case 'l':
        return is_hex(part, 16);
    case 'h':
        return is_hex(part, 64);
    default: /* a char, not an enum */
        g_assert_not_reached();
    }
}

static gboolean parts_valid(const char *shape, const char *name)
{
    char part[NAME_PART_MAX + 1];
    for (; shape[1] != '\0'; shape++) {
        const char *slash = strchr(name, '/');
        gsize len = slash != NULL ? (gsize)(slash - name) : 0;
        if (slash == NULL || len > NAME_PART_MAX)
            return FALSE;
        memcpy(part, name, len);
        part[len] = '\0';
        if (!part_valid(*shape, part))
            return FALSE;
        name = slash + 1;
    }
    return part_valid(*shape, name);
}

gboolean lh_subject_split(const char *name, LhKind *kind, const char **rest)
{
    const char *slash = strchr(name, '/');
    gsize len = slash != NULL ? (gsize)(slash - name) : 0;
    for (guint i = 0; slash != NULL && i < LH_N_KINDS; i++) {
        if (strncmp(kinds[i].plural, name, len) == 0 && kinds[i].plural[len] == '\0') {
            if (kind != NULL)
                *kind = (LhKind)i;
            if (rest != NULL)
                *rest = slash + 1;
            return TRUE;
        }
    }
    return FALSE;
}

gboolean lh_status_name_split(const char *name, LhKind *kind, char **subject,
                              const char **controller)
{
    LhKind of;
    const char *rest;
    const char *slash = strrchr(name, '/');
    if (!lh_subject_split(name, &of, &rest) || rest > slash || of == LH_KIND_STATUS ||
        of == LH_KIND_ACCEPTED || !lh_name_valid(slash + 1, MAX_NAME))
        return FALSE;
    g_autofree char *middle = g_strndup(rest, (gsize)(slash - rest));
    if (!parts_valid(kinds[of].shape, middle))
        return FALSE;
    if (kind != NULL)
        *kind = of;
    if (subject != NULL)
        *subject = g_steal_pointer(&middle);
    if (controller != NULL)
        *controller = slash + 1;
    return TRUE;
}

gboolean lh_kind_name_valid(LhKind kind, const char *name)
{
    const char *shape = kinds[kind].shape;
    LhKind of;
    const char *rest;
    if (shape[0] == 'X')
        return lh_status_name_split(name, NULL, NULL, NULL);
    if (shape[0] == 'D')
        return lh_subject_split(name, &of, &rest) && kinds[of].area == LH_AREA_DESIRED &&
               parts_valid(kinds[of].shape, rest);
    return parts_valid(shape, name);
}

char *lh_name_part(const char *name, guint index)
{
    for (; index > 0; index--) {
        name = strchr(name, '/');
        if (name == NULL)
            return NULL;
        name++;
    }
    return g_strndup(name, strcspn(name, "/"));
}

char *lh_node_name_of(const char *node_id)
{
    gsize len = node_id != NULL ? strlen(node_id) : 0;
    if (len < 10 || node_id[len - 9] != '-' || !is_hex(node_id + len - 8, 8))
        return NULL;
    g_autofree char *name = g_strndup(node_id, len - 9);
    return lh_name_valid(name, LH_NODE_NAME_MAX) ? g_steal_pointer(&name) : NULL;
}

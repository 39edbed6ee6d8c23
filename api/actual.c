/*
 * The kinds that vanish with their writer: actual/ (nodes) and leaders/ (manager instances).
 *
 * Most fields are optional: a node that says less than it could is still a node, and a leader key
 * that another tool wrote still takes part in its election.
 */
#include "api/tables.h"
#include "base/errors.h"

#include <string.h>

/* --- Node --- */

static const char *const node_states[] = {"online", "waiting", "paused", "error", NULL};

const char *lh_node_state_name(int state)
{
    return lh_enum_name(node_states, state);
}

const LhField lh_node_fields[] = {
    LH_FIELD(STR, LhNode, node_name, "name", LH_REQUIRED | LH_NAME, 0, LH_NODE_NAME_MAX, NULL),
    LH_FIELD(STR, LhNode, host, "host", 0, 0, 0, NULL),
    LH_FIELD(STR, LhNode, url, "url", 0, 0, 0, NULL),
    LH_FIELD(ATOM, LhNode, set, "set", LH_POOL_NAME, 0, 0, "\"default\""),
    LH_FIELD(ATOM, LhNode, zone, "zone", 0, 1, 253, NULL),
    LH_FIELD(SIZE, LhNode, capacity_bytes, "capacityBytes", 0, 0, 0, NULL),
    LH_FIELD(INT, LhNode, capacity_items, "capacityItems", 0, 0, 0, NULL),
    LH_FIELD(MAP, LhNode, labels, "labels", LH_SPARSE, 0, 0, NULL),
    LH_FIELD_SUB(ENUM, LhNode, state, "state", 0, 0, 0, NULL, node_states),
    LH_FIELD(TIME, LhNode, started_at, "startedAt", 0, 0, 0, NULL),
    LH_FIELD(STR, LhNode, version, "version", 0, 0, 0, NULL),
    LH_FIELD(STR, LhNode, lease, "lease", 0, 0, 0, NULL),
    LH_FIELD(DURATION, LhNode, lease_ttl_ms, "leaseTtl", 0, 0, 0, NULL),
    LH_FIELD(STRV, LhNode, warm, "warm", LH_NAME | LH_SPARSE, 0, LH_WARM_MAX, NULL),
    LH_FIELDS_END,
};

gboolean lh_node_check(const LhObject *object, GError **error)
{
    const LhNode *node = (const LhNode *)object;
    g_autofree char *id = lh_name_part(object->name, 1);
    g_autofree char *name = lh_node_name_of(id);
    gsize warm_bytes = 0;
    if (g_strcmp0(name, node->node_name) != 0) {
        g_autofree char *quoted = lh_quote(id);
        return lh_refuse(error, NULL,
                         "name: is \"%s\", the key of its node must then end in "
                         "\"%s-<8 hexadecimal digits>\", not %s",
                         node->node_name, node->node_name, quoted);
    }
    for (guint i = 0; node->warm[i] != NULL; i++)
        warm_bytes += strlen(node->warm[i]) + 3; /* quotes and comma */
    if (warm_bytes > LH_WARM_MAX_BYTES)
        return lh_refuse(error, NULL, "warm: is %" G_GSIZE_FORMAT " bytes long, must be at most %d",
                         warm_bytes, LH_WARM_MAX_BYTES);
    return TRUE;
}

/* --- Item, Search, Leader --- */

static const char *const item_states[] = {
    "loading", "live", "evicting", "evicted", "failed", "done", NULL,
};

const char *lh_item_state_name(int state)
{
    return lh_enum_name(item_states, state);
}

const LhField lh_item_fields[] = {
    LH_FIELD_SUB(ENUM, LhItem, state, "state", LH_REQUIRED, 0, 0, NULL, item_states),
    LH_FIELD(TIME, LhItem, since, "since", 0, 0, 0, NULL),
    LH_FIELD(INT, LhItem, assignment, "assignment", 0, 0, 0, NULL),
    LH_FIELD(SIZE, LhItem, bytes_done, "bytesDone", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(SIZE, LhItem, bytes_total, "bytesTotal", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(STR, LhItem, url, "url", 0, 0, 0, NULL),
    LH_FIELD(STR, LhItem, message, "message", 0, 0, 0, NULL),
    LH_FIELD(RAW, LhItem, window, "window", LH_OBJECT, 0, 0, NULL),
    LH_FIELDS_END,
};

const LhField lh_search_fields[] = {
    LH_FIELD(STR, LhSearch, snapshot, "snapshot", 0, 0, 0, NULL),
    LH_FIELD(STR, LhSearch, replica, "replica", 0, 0, 0, NULL),
    LH_FIELD(STR, LhSearch, node, "node", 0, 0, 0, NULL),
    LH_FIELD(STR, LhSearch, url, "url", 0, 0, 0, NULL),
    LH_FIELDS_END,
};

const LhField lh_leader_fields[] = {
    LH_FIELD(STR, LhLeader, instance, "instance", 0, 0, 0, NULL),
    LH_FIELD(STR, LhLeader, host, "host", 0, 0, 0, NULL),
    LH_FIELD(STR, LhLeader, url, "url", 0, 0, 0, NULL),
    LH_FIELD(INT, LhLeader, pid, "pid", 0, 0, 0, NULL),
    LH_FIELD(STR, LhLeader, version, "version", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhLeader, started_at, "startedAt", 0, 0, 0, NULL),
    LH_FIELDS_END,
};

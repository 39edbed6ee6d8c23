/* The kinds that vanish with their writer: actual/ (nodes) and leaders/ (manager instances). */
#pragma once

#include "api/object.h"

/* What a Node's "warm" may hold: elements, and bytes of them as JSON. */
#define LH_WARM_MAX       500
#define LH_WARM_MAX_BYTES (32 * 1024)

typedef enum { LH_NODE_ONLINE, LH_NODE_WAITING, LH_NODE_PAUSED, LH_NODE_ERROR } LhNodeState;
const char *lh_node_state_name(int state);

typedef struct {
    LhObject o;            /* name: "<pool>/<node>", node = "<node name>-<8 hex>" */
    const char *node_name; /* JSON "name" */
    const char *host, *url;
    const char *set;  /* atom; "default" */
    const char *zone; /* atom; NULL: none */
    gint64 capacity_bytes;
    gint64 capacity_items; /* 0: no limit */
    const LhStrMap *labels;
    int state;
    gint64 started_at;
    const char *version;
    const char *lease;       /* 16 hex digits */
    gint64 lease_ttl_ms;     /* JSON leaseTtl: duration */
    const char *const *warm; /* snapshots still on its disk; see LH_WARM_MAX */
} LhNode;

typedef enum {
    LH_ITEM_LOADING,
    LH_ITEM_LIVE,
    LH_ITEM_EVICTING,
    LH_ITEM_EVICTED,
    LH_ITEM_FAILED,
    LH_ITEM_DONE,
} LhItemState;

typedef struct {
    LhObject o; /* name: "<pool>/<node>/<item>" */
    int state;
    gint64 since;
    gint64 assignment; /* the mod revision of the assignment that it answers */
    gint64 bytes_done, bytes_total;
    const char *url;
    const char *message;
    const char *window; /* evicted seeds with a throttle: what was granted (window.h), raw JSON */
} LhItem;

const char *lh_item_state_name(int state);

typedef struct {
    LhObject o; /* name: "cache/<node>/<snapshot>" */
    const char *snapshot, *replica, *node, *url;
} LhSearch;

typedef struct {
    LhObject o; /* name: "<controller>/<lease id>" */
    const char *instance, *host, *url;
    gint64 pid;
    const char *version;
    gint64 started_at;
} LhLeader;

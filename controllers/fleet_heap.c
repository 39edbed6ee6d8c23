/*
 * Which snapshots have replicas to create, the last to expire first. A heap: those past their expiry, which
 * nobody will ever look at again, may be a million, and cost 8 bytes each; what is due first is at the top,
 * and a walk from there looks at twice as many as it takes. Pure.
 */
#include "controllers/fleet_internal.h"

#include <string.h>

#define at(heap, i) ((LhFleetSnapshot *)g_ptr_array_index(heap, i))

static gboolean comes_before(const LhFleetSnapshot *a, const LhFleetSnapshot *b)
{
    if (a->sort_time != b->sort_time)
        return a->sort_time > b->sort_time;
    return strcmp(a->name, b->name) < 0;
}

/* @tracked: the records know their places (the heap itself); else it is the fringe of a walk. */
static void put(GPtrArray *heap, guint i, LhFleetSnapshot *snapshot, gboolean tracked)
{
    g_ptr_array_index(heap, i) = snapshot;
    if (tracked)
        snapshot->heap_slot = (i + 1) & LH_HEAP_SLOT_MAX;
}

static void rise(GPtrArray *heap, guint i, LhFleetSnapshot *snapshot, gboolean tracked)
{
    for (; i > 0 && comes_before(snapshot, at(heap, (i - 1) / 2)); i = (i - 1) / 2)
        put(heap, i, at(heap, (i - 1) / 2), tracked);
    put(heap, i, snapshot, tracked);
}

static void sink(GPtrArray *heap, guint i, LhFleetSnapshot *snapshot, gboolean tracked)
{
    for (guint child = 2 * i + 1; child < heap->len; child = 2 * i + 1) {
        if (child + 1 < heap->len && comes_before(at(heap, child + 1), at(heap, child)))
            child++;
        if (!comes_before(at(heap, child), snapshot))
            break;
        put(heap, i, at(heap, child), tracked);
        i = child;
    }
    put(heap, i, snapshot, tracked);
}

static void add(GPtrArray *heap, LhFleetSnapshot *snapshot, gboolean tracked)
{
    g_assert(heap->len < LH_HEAP_SLOT_MAX);
    g_ptr_array_add(heap, snapshot);
    rise(heap, heap->len - 1, snapshot, tracked);
}

static void take(GPtrArray *heap, guint i, gboolean tracked)
{
    LhFleetSnapshot *last = at(heap, heap->len - 1);

    g_ptr_array_set_size(heap, (gint)heap->len - 1);
    if (i == heap->len)
        return;
    if (i > 0 && comes_before(last, at(heap, (i - 1) / 2)))
        rise(heap, i, last, tracked);
    else
        sink(heap, i, last, tracked);
}

void lh_fleet_heap_set(GPtrArray *heap, LhFleetSnapshot *snapshot, gboolean want, gint64 sort_time)
{
    if (snapshot->heap_slot != 0 && (!want || sort_time != snapshot->sort_time)) {
        take(heap, snapshot->heap_slot - 1, TRUE);
        snapshot->heap_slot = 0;
    }
    snapshot->sort_time = sort_time;
    if (want && snapshot->heap_slot == 0)
        add(heap, snapshot, TRUE);
}

/* ---- the walk: beside the heap, the fringe of what has been walked is a heap too ---- */

void lh_fleet_walk_begin(LhFleetWalk *walk, const GPtrArray *heap)
{
    walk->heap = heap;
    walk->fringe = g_ptr_array_new();
    if (heap->len > 0)
        g_ptr_array_add(walk->fringe, at(heap, 0));
}

const LhFleetSnapshot *lh_fleet_walk_next(LhFleetWalk *walk)
{
    LhFleetSnapshot *next;

    if (walk->fringe->len == 0)
        return NULL;
    next = at(walk->fringe, 0);
    take(walk->fringe, 0, FALSE);
    for (guint child = 2 * next->heap_slot - 1;
         child <= 2 * next->heap_slot && child < walk->heap->len; child++)
        add(walk->fringe, at(walk->heap, child), FALSE);
    return next;
}

void lh_fleet_walk_end(LhFleetWalk *walk)
{
    g_clear_pointer(&walk->fringe, g_ptr_array_unref);
}

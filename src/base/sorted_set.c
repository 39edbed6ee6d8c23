/*
 * Blocks of up to 63 records; none is empty. A full one is cut in two halves, but between two full ones, and at
 * the end, a new one begins, so that what comes in order fills them. Two neighbours that would fit into three quarters
 * of a block become one. A place is normal when a record lies behind it in its block; only the end of the set
 * is not.
 */
#include "base/sorted_set.h"

#include <string.h>

#define BLOCK_RECORDS 63

struct LhSortedBlock {
    gsize n;
    gpointer records[BLOCK_RECORDS];
};

void lh_sorted_set_init(LhSortedSet *set, LhSortedCompare compare)
{
    *set = (LhSortedSet){.compare = compare};
}

void lh_sorted_set_clear(LhSortedSet *set)
{
    for (guint i = 0; i < set->n_blocks; i++)
        lh_slab_free(set->blocks[i]);
    lh_slab_clear(&set->slab);
    g_free(set->blocks);
    lh_sorted_set_init(set, set->compare);
}

/* ---- places ---- */

static LhSortedPlace normal(const LhSortedSet *set, LhSortedPlace place)
{
    if (place.block < set->n_blocks && place.at >= set->blocks[place.block]->n)
        return (LhSortedPlace){place.block + 1, 0};
    return place;
}

gpointer lh_sorted_set_at(const LhSortedSet *set, LhSortedPlace place)
{
    return place.block < set->n_blocks ? set->blocks[place.block]->records[place.at] : NULL;
}

gpointer lh_sorted_set_next(const LhSortedSet *set, LhSortedPlace *place)
{
    gpointer record = lh_sorted_set_at(set, *place);
    if (record != NULL)
        *place = normal(set, (LhSortedPlace){place->block, place->at + 1});
    return record;
}

gpointer lh_sorted_set_back(const LhSortedSet *set, LhSortedPlace *place)
{
    if (place->at > 0)
        place->at--;
    else if (place->block > 0)
        *place = (LhSortedPlace){place->block - 1, (guint)set->blocks[place->block - 1]->n - 1};
    else
        return NULL;
    return lh_sorted_set_at(set, *place);
}

static gboolean comes_before(const LhSortedSet *set, gconstpointer record, gconstpointer key)
{
    return set->compare(record, key) < 0;
}

/* Right behind the record that was put last? */
static gboolean find_behind_latest(const LhSortedSet *set, gconstpointer key, LhSortedPlace *out)
{
    LhSortedPlace place = set->latest;
    if (place.block >= set->n_blocks || place.at >= set->blocks[place.block]->n ||
        !comes_before(set, lh_sorted_set_next(set, &place), key))
        return FALSE;
    gconstpointer behind = lh_sorted_set_at(set, place);
    if (behind != NULL && comes_before(set, behind, key))
        return FALSE;
    *out = place;
    return TRUE;
}

LhSortedPlace lh_sorted_set_find(const LhSortedSet *set, gconstpointer key)
{
    LhSortedPlace place = {0, 0};
    if (find_behind_latest(set, key, &place))
        return place;
    /* The last block whose first record comes before the key, or the first block. */
    for (guint end = set->n_blocks; place.block + 1 < end;) {
        guint middle = place.block + (end - place.block) / 2;
        if (comes_before(set, set->blocks[middle]->records[0], key))
            place.block = middle;
        else
            end = middle;
    }
    if (set->n_blocks == 0)
        return place;
    const LhSortedBlock *block = set->blocks[place.block];
    for (guint end = (guint)block->n; place.at < end;) {
        guint middle = place.at + (end - place.at) / 2;
        if (comes_before(set, block->records[middle], key))
            place.at = middle + 1;
        else
            end = middle;
    }
    return normal(set, place);
}

/* ---- putting in and taking out ---- */

G_STATIC_ASSERT(sizeof(LhSortedBlock) <= LH_SLAB_MAX_BYTES);

static LhSortedBlock *insert_block(LhSortedSet *set, guint at)
{
    if (set->n_blocks == set->room) {
        set->room = MAX(16, set->room * 2);
        set->blocks = g_renew(LhSortedBlock *, set->blocks, set->room);
    }
    memmove(set->blocks + at + 1, set->blocks + at, (set->n_blocks - at) * sizeof *set->blocks);
    set->n_blocks++;
    set->blocks[at] = lh_slab_alloc(&set->slab, sizeof(LhSortedBlock));
    set->blocks[at]->n = 0;
    return set->blocks[at];
}

static void remove_block(LhSortedSet *set, guint at)
{
    lh_slab_free(set->blocks[at]);
    set->n_blocks--;
    memmove(set->blocks + at, set->blocks + at + 1, (set->n_blocks - at) * sizeof *set->blocks);
}

static void move_tail(LhSortedBlock *to, LhSortedBlock *from, gsize keep)
{
    memcpy(to->records + to->n, from->records + keep, (from->n - keep) * sizeof *to->records);
    to->n += from->n - keep;
    from->n = keep;
}

static gboolean has_room(const LhSortedSet *set, guint block)
{
    return block < set->n_blocks && set->blocks[block]->n < BLOCK_RECORDS;
}

/* Of the same place, the one in a block with room. */
static LhSortedPlace make_room(LhSortedSet *set, LhSortedPlace place)
{
    gboolean between = place.at == 0 && place.block > 0;
    if (between && has_room(set, place.block - 1))
        return (LhSortedPlace){place.block - 1, (guint)set->blocks[place.block - 1]->n};
    if (has_room(set, place.block))
        return place;
    if (between || place.block == set->n_blocks) {
        insert_block(set, place.block);
        return place;
    }
    move_tail(insert_block(set, place.block + 1), set->blocks[place.block], BLOCK_RECORDS / 2);
    if (place.at <= BLOCK_RECORDS / 2)
        return place;
    return (LhSortedPlace){place.block + 1, place.at - BLOCK_RECORDS / 2};
}

LhSortedPlace lh_sorted_set_put(LhSortedSet *set, LhSortedPlace place, gpointer record)
{
    place = make_room(set, place);
    LhSortedBlock *block = set->blocks[place.block];
    memmove(block->records + place.at + 1, block->records + place.at,
            (block->n - place.at) * sizeof *block->records);
    block->records[place.at] = record;
    block->n++;
    set->n++;
    set->latest = place;
    return place;
}

/* Joins @at with the one behind it, if both together leave room. */
static void join(LhSortedSet *set, guint at)
{
    if (at + 1 >= set->n_blocks ||
        set->blocks[at]->n + set->blocks[at + 1]->n > BLOCK_RECORDS * 3 / 4)
        return;
    move_tail(set->blocks[at], set->blocks[at + 1], 0);
    remove_block(set, at + 1);
}

void lh_sorted_set_take(LhSortedSet *set, LhSortedPlace place)
{
    LhSortedBlock *block = set->blocks[place.block];
    block->n--;
    set->n--;
    memmove(block->records + place.at, block->records + place.at + 1,
            (block->n - place.at) * sizeof *block->records);
    if (block->n == 0) {
        remove_block(set, place.block);
        return;
    }
    join(set, place.block);
    if (place.block > 0)
        join(set, place.block - 1);
}

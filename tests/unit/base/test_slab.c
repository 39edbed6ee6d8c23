/*
 * base/slab: blocks that do not overlap, of any sizes, in any order; and memory that comes back.
 */
#include "base/slab.h"
#include "tests/fakes/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N_BLOCKS 20000

typedef struct {
    guint8 *data;
    gsize size;
    guint8 mark;
} Block;

static void fill(LhSlab *slab, Block *block, GRand *rand)
{
    block->size = (gsize)g_rand_int_range(rand, 1, LH_SLAB_MAX_BYTES + 1);
    block->mark = (guint8)g_rand_int(rand);
    block->data = lh_slab_alloc(slab, block->size);
    assert_int_equal((guintptr)block->data % 8, 0);
    memset(block->data, block->mark, block->size);
}

static void empty(Block *block)
{
    for (gsize i = 0; i < block->size; i++)
        assert_int_equal(block->data[i], block->mark);
    lh_slab_free(block->data);
    block->data = NULL;
}

static void blocks_keep_what_is_in_them(void **state)
{
    (void)state;
    g_autofree Block *blocks = g_new0(Block, N_BLOCKS);
    GRand *rand = g_rand_new_with_seed(1);
    LhSlab slab = {0};
    for (guint i = 0; i < 10 * N_BLOCKS; i++) {
        Block *block = &blocks[g_rand_int_range(rand, 0, N_BLOCKS)];
        if (block->data == NULL)
            fill(&slab, block, rand);
        else
            empty(block);
    }
    for (guint i = 0; i < N_BLOCKS; i++) {
        if (blocks[i].data != NULL)
            empty(&blocks[i]);
    }
    lh_slab_free(NULL);
    lh_slab_clear(&slab);
    g_rand_free(rand);
}

static void a_block_costs_its_size(void **state)
{
    (void)state;
    g_autofree gpointer *blocks = g_new(gpointer, 10 * N_BLOCKS);
    LhSlab slab = {0};
    gsize before = heap_bytes();
    for (guint i = 0; i < 10 * N_BLOCKS; i++)
        blocks[i] = lh_slab_alloc(&slab, 137);
    gsize cost = heap_bytes() - before;
    if (heap_is_counted())
        assert_in_range(cost / (10 * N_BLOCKS), 144, 155); /* up to a region is not used yet */
    /* Every other one: nothing can go back, and all of it is used again. */
    for (guint i = 0; i < 10 * N_BLOCKS; i += 2)
        lh_slab_free(blocks[i]);
    for (guint i = 0; i < 10 * N_BLOCKS; i += 2)
        blocks[i] = lh_slab_alloc(&slab, 137);
    if (heap_is_counted())
        assert_int_equal(heap_bytes() - before, cost);
    for (guint i = 0; i < 10 * N_BLOCKS; i++)
        lh_slab_free(blocks[i]);
    if (heap_is_counted())
        assert_true(heap_bytes() < before + 4 * 1024 * 1024);
    lh_slab_clear(&slab);
    if (heap_is_counted())
        assert_true(heap_bytes() < before + 64 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_keep_what_is_in_them),
        cmocka_unit_test(a_block_costs_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Why an item is where it is, or why it is nowhere: its present state in words, then what the controllers
 * would do with it now and why, taken from their own plans. Pure.
 */
#pragma once

#include "controllers/pool.h"
#include "runtime/controller.h"

/* Lines of text about item @item of pool @pool; NULL when nothing is known of it. *state: one word
 * ("Live", "Loading", "Waiting" …), static storage. Free with g_ptr_array_unref (frees the lines). */
GPtrArray *lh_explain(gconstpointer index, const LhPlanContext *context, const char *pool,
                      const char *item, const char **state);
/* The same for the exclusive pools; @index: LhPools. */
GPtrArray *lh_explain_pool(gconstpointer index, const LhPlanContext *context, const char *pool,
                           const char *item, const char **state);
/* That word alone; *owner: the node that has it, or NULL. Static storage, and the index's. */
const char *lh_pool_item_state(const LhPoolItem *item, const char **owner);

/*
 * Why an item is where it is, or why it is nowhere: its present state in words, then what the controllers
 * would do with it now and why, taken from their own plans. Pure.
 */
#pragma once

#include "runtime/controller.h"

/* The index that knows about items of @pool; lh_explain is given one of this type. */
const LhIndexType *lh_explain_index(const char *pool);

/* Lines of text about item @item of pool @pool; NULL when nothing is known of it. *state: one word
 * ("Live", "Loading", "Waiting" …), static storage. Free with g_ptr_array_unref (frees the lines). */
GPtrArray *lh_explain(gconstpointer index, const LhPlanContext *context, const char *pool,
                      const char *item, const char **state);

/* Between explain.c and explain_pool.c: the exclusive pools, and what both need. */
GPtrArray *lh_explain_in_pool(gconstpointer index, const LhPlanContext *context, const char *pool,
                              const char *item, const char **state);
void lh_explain_line(GPtrArray *lines, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* What the controllers of the index @type say of an item in their own plans: notes about @object
 * ("<plural>/<name>"), and ops on keys that @concerns. *rule: of the last note. */
void lh_explain_plans(const LhIndexType *type, gconstpointer index, const LhPlanContext *context,
                      const char *object, gboolean (*concerns)(const LhOp *op, gconstpointer data),
                      gconstpointer data, GPtrArray *lines, const char **rule);

/*
 * Plans as plain arrays over one string chunk. Pure. Groups refer to ranges of the arrays, so building a
 * plan of 100,000 ops makes no allocation for each of them.
 */
#include "runtime/plan.h"

#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES 16384

LhPlan *lh_plan_new(gboolean explain)
{
    LhPlan *plan = g_new0(LhPlan, 1);

    plan->ops = g_array_new(FALSE, FALSE, sizeof(LhOp));
    plan->reliances = g_array_new(FALSE, FALSE, sizeof(LhReliance));
    plan->events = g_array_new(FALSE, FALSE, sizeof(LhPlanEvent));
    plan->groups = g_array_new(FALSE, FALSE, sizeof(LhGroup));
    plan->notes = g_array_new(FALSE, FALSE, sizeof(LhPlanNote));
    plan->strings = g_string_chunk_new(CHUNK_BYTES);
    plan->scratch = g_string_new(NULL);
    plan->explain = explain;
    return plan;
}

void lh_plan_free(LhPlan *plan)
{
    if (plan == NULL)
        return;
    g_array_unref(plan->ops);
    g_array_unref(plan->reliances);
    g_array_unref(plan->events);
    g_array_unref(plan->groups);
    g_array_unref(plan->notes);
    g_string_chunk_free(plan->strings);
    g_string_free(plan->scratch, TRUE);
    g_free(plan);
}

guint lh_plan_groups(const LhPlan *plan)
{
    return plan->groups->len;
}

const LhGroup *lh_plan_group(const LhPlan *plan, guint i)
{
    return &g_array_index(plan->groups, LhGroup, i);
}

const LhOp *lh_plan_op(const LhPlan *plan, const LhGroup *group, guint i)
{
    return &g_array_index(plan->ops, LhOp, group->first_op + i);
}

static const char *keep(LhPlan *plan, const char *text)
{
    return g_string_chunk_insert(plan->strings, text);
}

static const char *keep_scratch(LhPlan *plan)
{
    return g_string_chunk_insert_len(plan->strings, plan->scratch->str, (gssize)plan->scratch->len);
}

G_GNUC_PRINTF(2, 0)
static const char *keep_vformat(LhPlan *plan, const char *format, va_list args)
{
    char text[256];
    va_list again;
    int len;

    if (strcmp(format, "%s") == 0)
        return keep(plan, va_arg(args, const char *));
    va_copy(again, args);
    len = vsnprintf(text, sizeof text, format, args);
    if (len < 0 || (gsize)len >= sizeof text)
        g_string_vprintf(plan->scratch, format, again);
    va_end(again);
    return len < 0 || (gsize)len >= sizeof text ? keep_scratch(plan) : keep(plan, text);
}

/* "@first@second@third". */
static const char *keep_joined(LhPlan *plan, const char *first, const char *second,
                               const char *third)
{
    g_string_assign(plan->scratch, first);
    g_string_append(plan->scratch, second);
    g_string_append(plan->scratch, third);
    return keep_scratch(plan);
}

/* The key under the prefix; *out_name is its tail. */
static const char *keep_key(LhPlan *plan, LhKind kind, const char *name, const char **out_name)
{
    const char *prefix = lh_kind_info(kind)->prefix;
    const char *key = keep_joined(plan, prefix, name, "");

    if (out_name != NULL)
        *out_name = key + strlen(prefix);
    return key;
}

static LhGroup *open_group(LhPlan *plan)
{
    g_assert(plan->open);
    return &g_array_index(plan->groups, LhGroup, plan->groups->len - 1);
}

void lh_plan_begin(LhPlan *plan)
{
    LhGroup group = {
        .first_op = plan->ops->len,
        .first_reliance = plan->reliances->len,
        .first_event = plan->events->len,
    };

    g_assert(!plan->open);
    plan->open = TRUE;
    g_array_append_val(plan->groups, group);
}

void lh_plan_put(LhPlan *plan, LhKind kind, const char *name, const void *object, gint64 expect_rev,
                 const char *rule, const char *reason_format, ...)
{
    LhOp op = {.type = LH_OP_PUT, .kind = kind, .expect_rev = expect_rev, .rule = rule};
    va_list args;

    op.key = keep_key(plan, kind, name, &op.name);
    g_string_truncate(plan->scratch, 0);
    lh_object_append(kind, object, plan->scratch);
    op.value = keep_scratch(plan);
    va_start(args, reason_format);
    op.reason = keep_vformat(plan, reason_format, args);
    va_end(args);
    open_group(plan)->n_ops++;
    g_array_append_val(plan->ops, op);
}

void lh_plan_delete(LhPlan *plan, LhKind kind, const char *name, gint64 expect_rev,
                    const char *rule, const char *reason_format, ...)
{
    LhOp op = {.type = LH_OP_DELETE, .kind = kind, .expect_rev = expect_rev, .rule = rule};
    va_list args;

    g_assert(expect_rev > 0);
    op.key = keep_key(plan, kind, name, &op.name);
    va_start(args, reason_format);
    op.reason = keep_vformat(plan, reason_format, args);
    va_end(args);
    open_group(plan)->n_ops++;
    g_array_append_val(plan->ops, op);
}

static void add_reliance(LhPlan *plan, LhReliance reliance)
{
    open_group(plan)->n_reliances++;
    g_array_append_val(plan->reliances, reliance);
}

void lh_plan_rely(LhPlan *plan, LhKind kind, const char *name, gint64 mod_rev)
{
    add_reliance(plan, (LhReliance){.key = keep_key(plan, kind, name, NULL), .mod_rev = mod_rev});
}

void lh_plan_rely_none(LhPlan *plan, LhKind kind, const char *name_prefix)
{
    add_reliance(plan,
                 (LhReliance){.key = keep_key(plan, kind, name_prefix, NULL), .none_below = TRUE});
}

void lh_plan_event(LhPlan *plan, LhEventType type, const char *reason, LhKind kind,
                   const char *name, const char *message_format, ...)
{
    LhPlanEvent event = {.type = (int)type, .reason = reason};
    va_list args;

    event.object = keep_joined(plan, lh_kind_info(kind)->plural, "/", name);
    va_start(args, message_format);
    event.message = keep_vformat(plan, message_format, args);
    va_end(args);
    g_assert(plan->groups->len > 0);
    g_array_index(plan->groups, LhGroup, plan->groups->len - 1).n_events++;
    g_array_append_val(plan->events, event);
}

void lh_plan_throttle(LhPlan *plan)
{
    LhGroup *group = open_group(plan);

    g_assert(group->n_ops > 0);
    group->throttle = g_array_index(plan->ops, LhOp, plan->ops->len - 1).key;
}

void lh_plan_end(LhPlan *plan)
{
    LhGroup *group = open_group(plan);

    plan->open = FALSE;
    if (group->n_ops == 0) {
        g_array_set_size(plan->reliances, group->first_reliance);
        g_array_set_size(plan->events, group->first_event);
        g_array_set_size(plan->groups, plan->groups->len - 1);
    } else if (plan->ended != NULL) {
        plan->ended(plan->ended_data);
    }
}

void lh_plan_wake(LhPlan *plan, gint64 at_ms)
{
    if (plan->wake_ms == 0 || at_ms < plan->wake_ms)
        plan->wake_ms = at_ms;
}

void lh_plan_note(LhPlan *plan, LhKind kind, const char *name, const char *rule, const char *format,
                  ...)
{
    LhPlanNote note = {.rule = rule};
    va_list args;

    if (!plan->explain)
        return;
    note.object = keep_joined(plan, lh_kind_info(kind)->plural, "/", name);
    va_start(args, format);
    note.reason = keep_vformat(plan, format, args);
    va_end(args);
    g_array_append_val(plan->notes, note);
}

/* ---- statuses ---- */

static const LhCondition *find_condition(const LhStatus *status, const char *type)
{
    for (guint i = 0; status != NULL && status->conditions != NULL && i < status->conditions->n;
         i++) {
        const LhCondition *condition = lh_array_at(status->conditions, i);
        if (g_strcmp0(condition->type, type) == 0)
            return condition;
    }
    return NULL;
}

gboolean lh_status_differs(const LhObject *present, gint64 observed_revision,
                           const LhCondition *conditions, guint n)
{
    const LhStatus *status = (const LhStatus *)present;

    if (present == NULL)
        return n != 0;
    if (!lh_object_known(present))
        return FALSE;
    if (n == 0 || status->conditions->n != n || status->observed_revision != observed_revision)
        return TRUE;
    for (guint i = 0; i < n; i++) {
        const LhCondition *was = find_condition(status, conditions[i].type);
        if (was == NULL || was->status != conditions[i].status ||
            g_strcmp0(was->reason, conditions[i].reason) != 0 ||
            g_strcmp0(was->message, conditions[i].message) != 0)
            return TRUE;
    }
    return FALSE;
}

static gint by_type(gconstpointer a, gconstpointer b)
{
    return strcmp(((const LhCondition *)a)->type, ((const LhCondition *)b)->type);
}

gboolean lh_plan_status(LhPlan *plan, const LhObject *present, const char *name,
                        gint64 observed_revision, const LhCondition *conditions, guint n,
                        gint64 now_ms)
{
    if (!lh_status_differs(present, observed_revision, conditions, n))
        return FALSE;
    lh_plan_begin(plan);
    open_group(plan)->throttle = keep_key(plan, LH_KIND_STATUS, name, NULL);
    if (n == 0) {
        lh_plan_delete(plan, LH_KIND_STATUS, name, present->mod_rev, "status",
                       "nothing left to say");
        lh_plan_end(plan);
        return TRUE;
    }
    g_autoptr(GArray) sorted = g_array_sized_new(FALSE, FALSE, sizeof(LhCondition), n);
    g_array_append_vals(sorted, conditions, n);
    g_array_sort(sorted, by_type);
    g_autoptr(GString) said = g_string_new(NULL);
    for (guint i = 0; i < n; i++) {
        static const char *const words[] = {"True", "False", "Unknown"};
        LhCondition *condition = &g_array_index(sorted, LhCondition, i);
        const LhCondition *was = find_condition((const LhStatus *)present, condition->type);
        condition->since = was != NULL && was->status == condition->status ? was->since : now_ms;
        g_string_append_printf(said, "%s%s=%s", i == 0 ? "" : " ", condition->type,
                               words[condition->status]);
    }
    LhArray array = {.n = n, .size = sizeof(LhCondition), .items = sorted->data};
    LhStatus status = {
        .observed_revision = observed_revision,
        .conditions = &array,
        .snapshots = -1,
        .replicas_desired = -1,
        .replicas_live = -1,
    };
    lh_plan_put(plan, LH_KIND_STATUS, name, &status, present == NULL ? 0 : present->mod_rev,
                "status", "%s", said->str);
    lh_plan_end(plan);
    return TRUE;
}

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *lh_plan_hash(const LhPlan *plan)
{
    g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);

    for (guint i = 0; i < plan->ops->len; i++) {
        const LhOp *op = &g_array_index(plan->ops, LhOp, i);
        g_ptr_array_add(lines, g_strconcat(op->type == LH_OP_PUT ? "put " : "delete ", op->key, " ",
                                           op->rule, "\n", NULL));
    }
    g_ptr_array_sort(lines, by_text);
    for (guint i = 0; i < lines->len; i++)
        g_checksum_update(sum, g_ptr_array_index(lines, i), -1);
    return g_strndup(g_checksum_get_string(sum), 16);
}

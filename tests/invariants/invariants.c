/*
 * The groups, in order, and what they share.
 */
#include "invariants.h"

#include <string.h>

static const InvGroup *const groups[] = {
#define X(id, variable, name) &inv_##variable,
    INV_GROUPS(X)
#undef X
};

static const char *const names[] = {
#define X(id, variable, name) name,
    INV_GROUPS(X)
#undef X
        "model",
};

const char *inv_group_name(InvGroupId group)
{
    return names[group];
}

void inv_fail(Inv *inv, InvGroupId group, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    inv->options.fail(group, text, inv->options.data);
}

const char *inv_who(const InvCommit *commit)
{
    static const char *const writers[] = {"nobody known", "a manager", "an agent"};
    return commit->facts != NULL ? commit->facts->client : writers[commit->by];
}

gboolean inv_compares(const LhCompare *compares, gsize n, const char *key, LhCompareTarget target,
                      gint64 *number)
{
    for (gsize i = 0; i < n; i++) {
        const LhCompare *compare = &compares[i];
        if (compare->target == target && compare->result == LH_CMP_EQUAL &&
            compare->range_end == NULL && strcmp(compare->key, key) == 0) {
            *number = compare->number;
            return TRUE;
        }
    }
    return FALSE;
}

gboolean inv_relied_on(Inv *inv, InvGroupId group, const InvCommit *commit, LhKind kind,
                       const char *name, gint64 mod_rev)
{
    const InvFacts *facts = inv_facts(inv, group, commit);
    gint64 number;
    if (facts == NULL)
        return TRUE;
    g_autofree char *key = lh_key(kind, name);
    g_autofree char *whole = g_strconcat(inv->options.prefix, key, NULL);
    return inv_compares(facts->compares, facts->n_compares, whole, LH_CMP_MOD, &number) &&
           number == mod_rev;
}

InvChange inv_change(const Inv *inv, const LhEtcdEvent *event, const LhKv *prev)
{
    const LhKv *kv = &event->kv;
    gboolean ours = g_str_has_prefix(kv->key, inv->options.prefix);
    InvChange change = {
        .event = event,
        .prev = prev,
        .key = ours ? kv->key + strlen(inv->options.prefix) : kv->key,
    };
    if (!lh_key_split(change.key, &change.kind, &change.name)) {
        change.kind = LH_N_KINDS;
        change.name = change.key;
        return change;
    }
    change.before = lh_object_ref(inv_get(inv, change.kind, change.name));
    if (!event->is_delete)
        change.after = inv->options.parse != NULL
                           ? inv->options.parse(change.kind, change.name, kv, inv->options.data)
                           : lh_object_parse(change.kind, change.name, kv->value, kv->value_len,
                                             kv->create_rev, kv->mod_rev, kv->lease);
    return change;
}

void inv_change_clear(InvChange *change)
{
    lh_object_unref(change->before);
    lh_object_unref(change->after);
    change->before = change->after = NULL;
}

void inv_before(Inv *inv, const InvCommit *commit)
{
    inv->now_ms = commit->now_ms;
    inv->wall_ms = commit->wall_ms;
    for (guint i = 0; i < G_N_ELEMENTS(groups); i++)
        if (groups[i]->commit != NULL)
            groups[i]->commit(inv, commit);
}

void inv_after(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < G_N_ELEMENTS(groups); i++)
        if (groups[i]->after != NULL)
            groups[i]->after(inv, commit);
}

/*
 * Each manager's mirror is etcd's state at the mirror's revision, whole, and never goes back; and its
 * index, folded one change at a time, gives the plan that an index folded anew gives, byte for byte.
 */
#include "runtime/record.h"
#include "sim.h"

#include <string.h>

#define GROUP      "mirror"
#define ONE_IN     150 /* of the mirror's steps are compared object by object */
#define FEW        1000
#define PARSE_IN   4 /* of those by value too */
#define FOLD_GROUP "fold"

typedef struct {
    SimProcess *process;
    gboolean values;
    guint known[LH_N_KINDS + 1];
} Compare;

static void compare_value(Compare *compare, const LhObject *object, const LhKv *kv)
{
    g_autoptr(LhObject) fresh = lh_object_parse((LhKind)object->kind, object->name, kv->value,
                                                kv->value_len, kv->create_rev, kv->mod_rev,
                                                kv->lease);
    if (lh_object_known(fresh) != lh_object_known(object) ||
        (lh_object_known(fresh) && !lh_object_same((LhKind)object->kind, fresh, object)))
        sim_fail(compare->process->sim, GROUP, "%s: %s is not what etcd has",
                 compare->process->client, kv->key);
}

static void compare_key(const LhKv *kv, gpointer data)
{
    Compare *compare = data;
    const char *name;
    LhKind kind;
    if (!lh_key_split(kv->key + strlen(SIM_PREFIX), &kind, &name)) {
        compare->known[LH_N_KINDS]++;
        return;
    }
    const LhObject *object = lh_mirror_get(compare->process->mirror, kind, name);
    compare->known[kind]++;
    if (object == NULL || object->mod_rev != kv->mod_rev || object->create_rev != kv->create_rev ||
        lh_object_lease(object) != kv->lease) {
        sim_fail(compare->process->sim, GROUP,
                 "%s has %s at %" G_GINT64_FORMAT ", etcd at %" G_GINT64_FORMAT
                 " (mirror revision %" G_GINT64_FORMAT ")",
                 compare->process->client, kv->key, object == NULL ? 0 : object->mod_rev,
                 kv->mod_rev, lh_mirror_revision(compare->process->mirror));
        return;
    }
    if (compare->values)
        compare_value(compare, object, kv);
}

static void compare_mirror(SimProcess *process)
{
    Sim *sim = process->sim;
    gint64 revision = lh_mirror_revision(process->mirror);
    g_autofree char *end = lh_etcd_prefix_end(SIM_PREFIX);
    Compare compare = {.process = process, .values = sim_check_below(sim, PARSE_IN) == 0};
    if (revision < fake_etcd_compacted(sim->server))
        return; /* what it shows cannot be read any more */
    fake_etcd_foreach(sim->server, SIM_PREFIX, end, revision, compare_key, &compare);
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        if (lh_mirror_count(process->mirror, (LhKind)kind) != compare.known[kind])
            sim_fail(sim, GROUP, "%s has %u %s, etcd %u (mirror revision %" G_GINT64_FORMAT ")",
                     process->client, lh_mirror_count(process->mirror, (LhKind)kind),
                     lh_kind_info((LhKind)kind)->plural, compare.known[kind], revision);
    if (lh_mirror_invalid(process->mirror, LH_N_KINDS) != compare.known[LH_N_KINDS])
        sim_fail(sim, GROUP, "%s counts other keys of no kind than etcd has", process->client);
}

static guint objects_in(const LhMirror *mirror)
{
    guint n = lh_mirror_invalid(mirror, LH_N_KINDS);
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        n += lh_mirror_count(mirror, (LhKind)kind);
    return n;
}

void sim_check_mirror_still(SimProcess *process)
{
    if (process->applied > 0 && objects_in(process->mirror) != process->mirrored)
        sim_fail(process->sim, GROUP, "%s shows %u objects, and at the same revision %u before",
                 process->client, objects_in(process->mirror), process->mirrored);
}

void sim_check_mirror_applied(SimProcess *process, gint64 revision)
{
    Sim *sim = process->sim;
    gint64 shown = lh_mirror_revision(process->mirror);
    if (revision < process->mirror_rev || revision != shown)
        sim_fail(sim, GROUP, "%s went from revision %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT,
                 process->client, process->mirror_rev, revision);
    if (revision > fake_etcd_revision(sim->server))
        sim_fail(sim, GROUP, "%s is ahead of etcd", process->client);
    gboolean again = revision == process->mirror_rev &&
                     lh_mirror_count(process->mirror, LH_KIND_OBSERVATION) == 0;
    process->mirror_rev = revision;
    process->timeline = fake_etcd_timeline(sim->server);
    process->mirrored = objects_in(process->mirror);
    /* What it told of its changes adds up to what etcd had at this revision … */
    guint64 digest;
    if (sim_digest_at(sim, revision, &digest) && digest != process->digest) {
        compare_mirror(process);
        sim_fail(sim, GROUP, "%s told other changes than etcd had up to revision %" G_GINT64_FORMAT,
                 process->client, revision);
    }
    sim->counters.mirror_checks++;
    /* … and after a list, and now and then, it shows what it told. */
    guint one_in = MAX(ONE_IN, process->mirrored / 2); /* it looks at each object */
    if (process->applied++ == 0 || (again && process->mirrored < FEW) ||
        sim_check_below(sim, one_in) == 0)
        compare_mirror(process);
}

void sim_check_mirror_regressed(SimProcess *process, gint64 from, gint64 to)
{
    if (process->timeline == fake_etcd_timeline(process->sim->server))
        sim_fail(process->sim, GROUP,
                 "%s takes etcd for restored: from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT,
                 process->client, from, to);
    process->mirror_rev = to;
    for (int i = 0; i < SIM_BRAKES; i++) {
        process->regressed[i] = TRUE;
        process->regressed_rev[i] = to;
    }
}

/* ---- fold = rebuild ---- */

static gpointer fold_anew(const LhMirror *mirror, const LhIndexType *type)
{
    gpointer index = type->new ();
    for (guint kind = 0; kind < LH_N_ALL_KINDS; kind++) {
        g_autoptr(GPtrArray) objects = lh_mirror_list(mirror, (LhKind)kind);
        for (guint i = 0; i < objects->len; i++)
            type->fold(index, NULL, g_ptr_array_index(objects, i));
    }
    return index;
}

static char *plan_text(const LhController *controller, gconstpointer index,
                       const LhPlanContext *context)
{
    g_autoptr(LhPlan) plan = lh_plan_new(TRUE);
    GString *text = g_string_new(NULL);
    controller->plan(index, context, plan);
    lh_plan_append_json(text, controller, plan, FALSE, FALSE, NULL);
    return g_string_free(text, FALSE);
}

void sim_check_fold(SimProcess *process)
{
    Sim *sim = process->sim;
    const LhController *const *controllers = lh_controllers();
    if (process->state != SIM_UP || lh_mirror_revision(process->mirror) == 0)
        return;
    if (process->timeline == fake_etcd_timeline(sim->server))
        compare_mirror(process);
    const LhIndexType *type = NULL;
    gpointer anew = NULL;
    sim->counters.fold_checks++;
    for (guint i = 0; controllers[i] != NULL; i++) {
        LhPlanContext context;
        gconstpointer index = lh_runtime_index(process->runtime, controllers[i], &context);
        if (controllers[i]->index != type) {
            if (type != NULL)
                type->free(anew);
            type = controllers[i]->index;
            anew = fold_anew(process->mirror, type);
        }
        g_autofree char *grown = plan_text(controllers[i], index, &context);
        g_autofree char *rebuilt = plan_text(controllers[i], anew, &context);
        if (strcmp(grown, rebuilt) != 0)
            sim_fail(sim, FOLD_GROUP, "%s, %s: the plans differ\n  grown   %s\n  rebuilt %s",
                     process->client, controllers[i]->name, grown, rebuilt);
    }
    type->free(anew);
}

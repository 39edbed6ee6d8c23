/*
 * An agent's work without files: loads and releases take virtual time, sometimes fail, and data is a
 * row in the machine's disk table, which outlives processes. Checks that the agent keeps its side of
 * agent/work.h, and that orders reach the work at most once and in the order of their revisions.
 */
#include "base/errors.h"
#include "sim.h"

#include <string.h>

#define BYTES_PER_MS  (40 * SIM_MIB / 1000)
#define PROGRESS_MS   400
#define FAIL_PERCENT  6
#define STICK_PERCENT 4 /* releases that fail at first */

typedef enum { THING_LOADING, THING_READY, THING_RELEASING } ThingState;

typedef struct {
    SimWork *work;
    char *item, *snapshot, *uri;
    gint64 bytes, done;
    ThingState state;
    gboolean served, fails;
    LhTimer *timer;
} Thing;

struct SimWork {
    LhAgentWork base;
    SimProcess *process;
    LhEnv *env;
    const LhWorkFuncs *funcs;
    gpointer data;
    GHashTable *things;  /* item → Thing */
    GHashTable *ordered; /* item → gint64, the newest revision that was loaded; until a drop */
};

#define GROUP "protocol"

/* ---- the disk ---- */

static void data_free(gpointer data)
{
    g_free(((SimData *)data)->uri);
    g_free(data);
}

GHashTable *sim_disk_new(void)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, data_free);
}

static gboolean is_held(SimWork *work, const char *snapshot)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, work->things);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        if (strcmp(((Thing *)value)->snapshot, snapshot) == 0)
            return TRUE;
    return FALSE;
}

/* Data that nobody holds goes, the longest unused first, until @bytes more have room. */
static gboolean make_room(SimWork *work, gint64 bytes)
{
    for (;;) {
        const char *oldest = NULL;
        gint64 oldest_ms = G_MAXINT64, used = 0;
        GHashTableIter iter;
        gpointer key, value;
        g_hash_table_iter_init(&iter, work->process->disk);
        while (g_hash_table_iter_next(&iter, &key, &value)) {
            const SimData *data = value;
            used += data->bytes;
            if (!is_held(work, key) && (data->used_ms < oldest_ms ||
                                        (data->used_ms == oldest_ms && strcmp(key, oldest) < 0))) {
                oldest = key;
                oldest_ms = data->used_ms;
            }
        }
        if (work->process->disk_full)
            return FALSE;
        if (used + bytes <= work->process->capacity_bytes)
            return TRUE;
        if (oldest == NULL)
            return FALSE;
        g_hash_table_remove(work->process->disk, oldest);
    }
}

/* ---- things ---- */

static void thing_free(gpointer data)
{
    Thing *thing = data;
    lh_timer_clear(thing->work->env, &thing->timer);
    g_free(thing->item);
    g_free(thing->snapshot);
    g_free(thing->uri);
    g_free(thing);
}

static void on_step(gpointer data);

static void step_in(Thing *thing, gint64 ms)
{
    thing->timer = lh_timer_in(thing->work->env, ms, on_step, thing);
}

static SimData *data_of(const Thing *thing)
{
    return g_hash_table_lookup(thing->work->process->disk, thing->snapshot);
}

static void end_load(Thing *thing)
{
    SimWork *work = thing->work;
    Sim *sim = work->process->sim;
    g_autofree char *item = g_strdup(thing->item);
    SimData *data = data_of(thing);
    if (thing->fails || data == NULL) {
        g_autoptr(GError) error = g_error_new_literal(LH_ERROR, LH_ERR_CHECKSUM,
                                                      data == NULL ? "no room" : "checksum");
        sim->counters.load_failures++;
        if (data != NULL && !data->complete)
            g_hash_table_remove(work->process->disk, thing->snapshot);
        g_hash_table_remove(work->things, item);
        work->funcs->failed(item, error, work->data);
        return;
    }
    data->complete = TRUE;
    data->used_ms = sim_now(sim);
    thing->state = THING_READY;
    g_autofree char *url = g_strconcat("http://", work->process->name, "/v1/files/", item, "/",
                                       NULL);
    work->funcs->ready(item, url, work->data);
}

/* Search goes first, then the data. */
static void check_hidden(const Thing *thing)
{
    const SimProcess *process = thing->work->process;
    const char *id = lh_agent_id(process->agent);
    if (process->timeline != fake_etcd_timeline(process->sim->server))
        return; /* what it had hidden came back with a backup */
    g_autofree char *key = g_strdup_printf(LH_SIM_POOL "/%s/%s", id, thing->snapshot);
    const LhSearch *search = (const LhSearch *)sim_get(process->sim, LH_KIND_SEARCH, key);
    if (id != NULL && search != NULL && lh_object_known(&search->o) &&
        strcmp(search->replica, thing->item) == 0)
        sim_fail(process->sim, GROUP, "%s gives up %s, which is searchable", process->client,
                 thing->item);
}

static void end_release(Thing *thing)
{
    SimWork *work = thing->work;
    Sim *sim = work->process->sim;
    g_autofree char *item = g_strdup(thing->item);
    if (!sim->calm && !sim_off(sim, SIM_PART_WORK_FAULTS) && sim_chance(sim, STICK_PERCENT)) {
        g_autoptr(GError) error = g_error_new_literal(LH_ERROR, LH_ERR_IO, "busy");
        thing->state = THING_READY;
        work->funcs->released(item, error, work->data);
        return;
    }
    check_hidden(thing);
    g_autofree char *snapshot = g_strdup(thing->snapshot);
    g_hash_table_remove(work->things, item);
    if (!is_held(work, snapshot)) /* by another replica of it */
        g_hash_table_remove(work->process->disk, snapshot);
    work->funcs->released(item, NULL, work->data);
}

static void on_step(gpointer data)
{
    Thing *thing = data;
    SimWork *work = thing->work;
    thing->timer = NULL;
    if (thing->state == THING_RELEASING) {
        end_release(thing);
        return;
    }
    if (work->process->disk_full && thing->done < thing->bytes)
        thing->fails = TRUE;
    thing->done = thing->fails && work->process->disk_full
                      ? thing->bytes
                      : MIN(thing->bytes,
                            thing->done + PROGRESS_MS * BYTES_PER_MS / work->process->disk_slow);
    if (thing->done == thing->bytes) {
        end_load(thing);
        return;
    }
    step_in(thing, PROGRESS_MS);
    work->funcs->progress(thing->item, thing->done, work->data);
}

/* ---- the vtable ---- */

static void work_attach(LhAgentWork *base, const LhWorkFuncs *funcs, gpointer data)
{
    SimWork *work = (SimWork *)base;
    work->funcs = funcs;
    work->data = data;
}

static void check_order(SimWork *work, const char *item, gint64 revision)
{
    gint64 *newest = g_hash_table_lookup(work->ordered, item);
    if (newest != NULL && revision <= *newest)
        sim_fail(work->process->sim, GROUP,
                 "%s was told to load %s of revision %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT,
                 work->process->client, item, revision, *newest);
    g_hash_table_replace(work->ordered, g_strdup(item), g_memdup2(&revision, sizeof revision));
}

static void work_load(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    SimWork *work = (SimWork *)base;
    Sim *sim = work->process->sim;
    Thing *thing = g_new0(Thing, 1);
    if (g_hash_table_contains(work->things, item))
        sim_fail(sim, GROUP, "%s was told to load %s, which it holds", work->process->client, item);
    check_order(work, item, assignment->o.mod_rev);
    thing->work = work;
    thing->item = g_strdup(item);
    thing->snapshot = g_strdup(assignment->snapshot);
    thing->uri = g_strdup(assignment->uri);
    thing->bytes = MAX(1, assignment->size_bytes);
    thing->fails = !sim->calm && !sim_off(sim, SIM_PART_WORK_FAULTS) &&
                   sim_chance(sim, FAIL_PERCENT);
    g_hash_table_insert(work->things, thing->item, thing);
    const SimData *present = data_of(thing);
    if (present != NULL && present->complete && present->bytes == thing->bytes &&
        strcmp(present->uri, thing->uri) == 0) {
        thing->done = thing->bytes; /* warm: only checked */
    } else {
        g_hash_table_remove(work->process->disk, thing->snapshot);
        if (make_room(work, thing->bytes)) {
            SimData *data = g_new0(SimData, 1);
            data->uri = g_strdup(thing->uri);
            data->bytes = thing->bytes;
            data->used_ms = sim_now(sim);
            g_hash_table_insert(work->process->disk, g_strdup(thing->snapshot), data);
        }
    }
    step_in(thing, sim_between(sim, 20, PROGRESS_MS));
}

static gboolean work_update(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    SimWork *work = (SimWork *)base;
    const Thing *thing = g_hash_table_lookup(work->things, item);
    if (thing == NULL) {
        sim_fail(work->process->sim, GROUP, "%s updates %s, which it does not hold",
                 work->process->client, item);
        return FALSE;
    }
    return g_strcmp0(thing->uri, assignment->uri) == 0 &&
           thing->bytes == MAX(1, assignment->size_bytes);
}

static void work_serve(LhAgentWork *base, const char *item, gboolean on)
{
    SimWork *work = (SimWork *)base;
    Thing *thing = g_hash_table_lookup(work->things, item);
    if (thing == NULL || (on && thing->state != THING_READY) || thing->served == on)
        sim_fail(work->process->sim, GROUP, "%s serves %s: %s", work->process->client, item,
                 thing == NULL ? "it does not hold it" : "it is not ready, or it did already");
    else
        thing->served = on;
}

static void work_release(LhAgentWork *base, const char *item)
{
    SimWork *work = (SimWork *)base;
    Thing *thing = g_hash_table_lookup(work->things, item);
    if (thing == NULL || thing->state == THING_RELEASING || thing->served) {
        sim_fail(work->process->sim, GROUP, "%s releases %s, which it %s", work->process->client,
                 item, thing == NULL ? "does not hold" : "serves or releases");
        return;
    }
    lh_timer_clear(work->env, &thing->timer);
    thing->state = THING_RELEASING;
    step_in(thing, sim_between(work->process->sim, 5, 400));
}

/* What was half there is forgotten, what is whole stays on the disk. */
static void work_drop(LhAgentWork *base)
{
    SimWork *work = (SimWork *)base;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_remove_all(work->things);
    g_hash_table_remove_all(work->ordered);
    g_hash_table_iter_init(&iter, work->process->disk);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        if (!((SimData *)value)->complete)
            g_hash_table_iter_remove(&iter);
}

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **work_warm(LhAgentWork *base)
{
    SimWork *work = (SimWork *)base;
    GPtrArray *names = g_ptr_array_new();
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, work->process->disk);
    while (g_hash_table_iter_next(&iter, &key, &value))
        if (((SimData *)value)->complete)
            g_ptr_array_add(names, g_strdup(key));
    g_ptr_array_sort(names, by_text);
    g_ptr_array_add(names, NULL);
    return (char **)g_ptr_array_free(names, FALSE);
}

SimWork *sim_work_new(SimProcess *process)
{
    static const LhAgentWorkVtable vtable = {
        .attach = work_attach,
        .load = work_load,
        .update = work_update,
        .serve = work_serve,
        .release = work_release,
        .drop = work_drop,
        .warm = work_warm,
    };
    SimWork *work = g_new0(SimWork, 1);
    work->base.v = &vtable;
    work->process = process;
    work->env = process->env;
    work->things = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, thing_free);
    work->ordered = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    return work;
}

void sim_work_free(SimWork *work)
{
    if (work == NULL)
        return;
    g_hash_table_unref(work->things);
    g_hash_table_unref(work->ordered);
    g_free(work);
}

LhAgentWork *sim_work_base(SimWork *work)
{
    return &work->base;
}

gboolean sim_work_holds(SimWork *work, const char *item)
{
    return g_hash_table_contains(work->things, item);
}

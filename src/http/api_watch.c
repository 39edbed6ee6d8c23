/*
 * Watches as server-sent events: a ring of the last changes, each under the revision at which it was
 * applied, from which a client resumes after Last-Event-ID. All events of one revision but the last carry
 * the id of the revision before, so a stream that breaks in between repeats and never skips.
 *
 * An object is shown with what controllers say of it, so a change of that is a change of the object too.
 */
#include "base/json.h"
#include "controllers/fleet.h"
#include "controllers/pool.h"
#include "http/api_internal.h"

#include <stdlib.h>
#include <string.h>

#define RING 20000

typedef struct {
    gint64 revision; /* applied; 0 while the batch is not whole */
    gint64 previous; /* the revision before */
    const LhObject *before, *after;
} Change;

typedef struct {
    LhWatchHub *hub;
    LhHttpStream *stream;
    LhKind kind;
    LhRole role; /* of the client when it began */
    LhSelector *selector;
} Watch;

struct LhWatchHub {
    LhApi *api;
    GQueue changes;   /* Change, oldest first */
    GPtrArray *batch; /* Change, of the revision being applied */
    gint64 revision;
    gint64 oldest; /* a client that has seen this revision can be resumed */
    GPtrArray *watches;
};

static void change_free(gpointer data)
{
    Change *change = data;

    lh_object_unref(change->before);
    lh_object_unref(change->after);
    g_free(change);
}

/* Of what else an object is shown with. */
typedef struct {
    LhKind kind;
    const char *pool; /* NULL: any, and the name is the shown object's */
    guint part;       /* else which part of the name */
    LhKind shown;
} Shown;

static const Shown shown[] = {
    {LH_KIND_HEALTH, NULL, 0, LH_KIND_NODE},
    {LH_KIND_RESTOREPROGRESS, NULL, 0, LH_KIND_RESTORE},
    {LH_KIND_ASSIGNMENT, LH_POOL_RECOVERY, 2, LH_KIND_RECOVERYTASK},
    {LH_KIND_ITEM, LH_POOL_RECOVERY, 2, LH_KIND_RECOVERYTASK},
    {LH_KIND_RETRY, LH_POOL_RECOVERY, 1, LH_KIND_RECOVERYTASK},
    {LH_KIND_ASSIGNMENT, LH_POOL_MANAGER, 2, LH_KIND_SEED},
    {LH_KIND_ITEM, LH_POOL_MANAGER, 2, LH_KIND_SEED},
    {LH_KIND_RETRY, LH_POOL_MANAGER, 1, LH_KIND_SEED},
    {LH_KIND_ITEM, LH_POOL_CACHE, 2, LH_KIND_SNAPSHOT},
    {LH_KIND_REPLICA, NULL, 0, LH_KIND_SNAPSHOT},
};

/* "<snapshot>.<set>.<ordinal>", to the snapshot's. */
static char *without_place(char *replica)
{
    for (guint i = 0; i < 2; i++) {
        char *dot = replica == NULL ? NULL : strrchr(replica, '.');
        if (dot != NULL)
            *dot = '\0';
    }
    return replica;
}

/* A snapshot is shown with what is live of it: what has been copied so far is nothing to it. */
static gboolean only_goes_on(const Watch *watch, const Change *change)
{
    const LhItem *before = (const LhItem *)change->before, *after = (const LhItem *)change->after;

    return watch->kind == LH_KIND_SNAPSHOT && before != NULL && after != NULL &&
           before->o.kind == LH_KIND_ITEM && lh_object_known(&before->o) &&
           lh_object_known(&after->o) && before->state == after->state;
}

static const LhObject *shown_with(const Watch *watch, const LhObject *object)
{
    const LhMirror *mirror = watch->hub->api->options.mirror;

    for (gsize i = 0; i < G_N_ELEMENTS(shown); i++) {
        if (shown[i].kind != (LhKind)object->kind || shown[i].shown != watch->kind)
            continue;
        g_autofree char *pool = lh_name_part(object->name, 0);
        g_autofree char *name = shown[i].pool == NULL ? g_strdup(object->name)
                                                      : lh_name_part(object->name, shown[i].part);
        if (watch->kind == LH_KIND_SNAPSHOT)
            without_place(name);
        if (name != NULL && (shown[i].pool == NULL || g_strcmp0(pool, shown[i].pool) == 0))
            return lh_mirror_get(mirror, watch->kind, name);
    }
    return NULL;
}

/* The object of the watched kind that is shown with what @object says. */
static const LhObject *subject_of(const Watch *watch, const LhObject *object)
{
    const char *plural = lh_kind_info(watch->kind)->plural, *end = strrchr(object->name, '/');
    gsize len = strlen(plural);

    if (object->kind != LH_KIND_STATUS)
        return shown_with(watch, object);
    /* "<plural>/<name>/<controller>" */
    if (strncmp(object->name, plural, len) != 0 || object->name[len] != '/' ||
        end == object->name + len)
        return NULL;
    g_autofree char *name = g_strndup(object->name + len + 1,
                                      (gsize)(end - object->name) - len - 1);
    return lh_mirror_get(watch->hub->api->options.mirror, watch->kind, name);
}

/* What @change is to @watch: an object to show, or one that is gone or no longer selected. */
static const LhObject *as_put(const Watch *watch, const Change *change)
{
    const LhObject *object = change->after;

    if (object == NULL || (LhKind)object->kind != watch->kind)
        object = only_goes_on(watch, change)
                     ? NULL
                     : subject_of(watch, object != NULL ? object : change->before);
    return object != NULL && lh_selector_match(watch->selector, object) ? object : NULL;
}

static const LhObject *as_delete(const Watch *watch, const Change *change)
{
    return change->before != NULL && (LhKind)change->before->kind == watch->kind &&
                   lh_selector_match(watch->selector, change->before)
               ? change->before
               : NULL;
}

static void send_change(Watch *watch, const Change *change, gint64 id)
{
    const LhObject *put = as_put(watch, change);
    g_autofree char *text = lh_view_text(watch->hub->api,
                                         put != NULL ? put : as_delete(watch, change), watch->role);

    lh_http_stream_send(watch->stream, id, put != NULL ? "PUT" : "DELETE", text);
}

static gboolean concerns(const Watch *watch, const Change *change)
{
    return as_put(watch, change) != NULL || as_delete(watch, change) != NULL;
}

/* Sends those of @changes that concern @watch and are after @seen. */
static void send_changes(Watch *watch, GPtrArray *changes)
{
    for (guint i = 0; i < changes->len; i++) {
        const Change *change = g_ptr_array_index(changes, i);
        const Change *next = i + 1 < changes->len ? g_ptr_array_index(changes, i + 1) : NULL;
        gboolean last = next == NULL || next->revision != change->revision;
        send_change(watch, change, last ? change->revision : change->previous);
    }
}

static void on_change(const LhObject *before, const LhObject *after, gpointer data)
{
    LhWatchHub *hub = data;
    Change *change;

    if ((after != NULL ? after : before)->kind == LH_KIND_OBSERVATION)
        return; /* no key: nobody can watch it */
    if (hub->revision == 0)
        return; /* the first list: nobody has seen anything that this would follow */
    change = g_new0(Change, 1);
    change->before = before == NULL ? NULL : lh_object_ref(before);
    change->after = after == NULL ? NULL : lh_object_ref(after);
    g_ptr_array_add(hub->batch, change);
}

static void tell_watch(Watch *watch, GPtrArray *batch)
{
    g_autoptr(GPtrArray) mine = g_ptr_array_new();

    for (guint i = 0; i < batch->len; i++)
        if (concerns(watch, g_ptr_array_index(batch, i)))
            g_ptr_array_add(mine, g_ptr_array_index(batch, i));
    send_changes(watch, mine);
}

static void on_applied(gint64 revision, gpointer data)
{
    LhWatchHub *hub = data;

    if (hub->revision == 0)
        hub->oldest = revision;
    for (guint i = 0; i < hub->batch->len; i++) {
        Change *change = g_ptr_array_index(hub->batch, i);
        change->revision = revision;
        change->previous = hub->revision;
    }
    hub->revision = revision;
    /* tell_watch may lose a watch that is too slow: the array shrinks only from the stream's own callback,
     * which comes from the loop. */
    for (guint i = 0; i < hub->watches->len; i++)
        tell_watch(g_ptr_array_index(hub->watches, i), hub->batch);
    for (guint i = 0; i < hub->batch->len; i++)
        g_queue_push_tail(&hub->changes, g_ptr_array_index(hub->batch, i));
    g_ptr_array_set_size(hub->batch, 0);
    while (hub->changes.length > RING) {
        Change *change = g_queue_pop_head(&hub->changes);
        hub->oldest = change->revision;
        change_free(change);
    }
}

static void on_regressed(gint64 from_revision, gint64 to_revision, gpointer data)
{
    LhWatchHub *hub = data;

    (void)from_revision;
    /* Revisions are given out again: nobody can be resumed. */
    g_queue_clear_full(&hub->changes, change_free);
    hub->oldest = to_revision;
}

static const LhMirrorFuncs mirror_funcs = {
    .change = on_change,
    .applied = on_applied,
    .regressed = on_regressed,
};

LhWatchHub *lh_hub_new(LhApi *api)
{
    LhWatchHub *hub = g_new0(LhWatchHub, 1);

    hub->api = api;
    g_queue_init(&hub->changes);
    hub->batch = g_ptr_array_new();
    hub->watches = g_ptr_array_new();
    lh_mirror_listen(api->options.mirror, &mirror_funcs, hub);
    return hub;
}

static void watch_free(Watch *watch)
{
    lh_selector_free(watch->selector);
    g_free(watch);
}

void lh_hub_free(LhWatchHub *hub)
{
    lh_mirror_unlisten(hub->api->options.mirror, &mirror_funcs, hub);
    g_queue_clear_full(&hub->changes, change_free);
    g_ptr_array_foreach(hub->batch, (GFunc)(void (*)(void))change_free, NULL);
    g_ptr_array_unref(hub->batch);
    g_ptr_array_foreach(hub->watches, (GFunc)(void (*)(void))watch_free, NULL);
    g_ptr_array_unref(hub->watches);
    g_free(hub);
}

static void on_closed(gpointer data)
{
    Watch *watch = data;

    g_ptr_array_remove_fast(watch->hub->watches, watch);
    watch_free(watch);
}

/* From ?revision= or Last-Event-ID, the later of the two; -1: from now; -2: not a number. */
static gint64 start_of(LhHttpRequest *request)
{
    const char *texts[] = {lh_http_query(request, "revision"),
                           lh_http_header(request, "Last-Event-ID")};
    gint64 start = -1;

    for (guint i = 0; i < 2; i++) {
        guint64 value;
        if (texts[i] == NULL || texts[i][0] == '\0')
            continue;
        if (!g_ascii_string_to_unsigned(texts[i], 10, 0, LH_JSON_MAX_INT, &value, NULL))
            return -2;
        start = MAX(start, (gint64)value);
    }
    return start;
}

void lh_hub_watch(LhWatchHub *hub, LhHttpRequest *request, LhKind kind, LhSelector *selector)
{
    gint64 start = start_of(request);
    g_autoptr(GPtrArray) missed = g_ptr_array_new();
    Watch *watch;

    if (start == -2 || (start >= 0 && start < hub->oldest)) {
        if (start == -2)
            lh_http_reply_problem(request, 400, "revision", "must be a revision");
        else
            lh_http_reply_problem(request, 410, "revision", "that revision is gone, list again");
        lh_selector_free(selector);
        return;
    }
    watch = g_new0(Watch, 1);
    *watch = (Watch){.hub = hub, .kind = kind, .role = lh_http_role(request), .selector = selector};
    watch->stream = lh_http_stream_open(request, on_closed, watch);
    if (watch->stream == NULL) {
        watch_free(watch);
        return;
    }
    g_ptr_array_add(hub->watches, watch);
    if (start < 0)
        return;
    for (GList *l = hub->changes.head; l != NULL; l = l->next) {
        Change *change = l->data;
        if (change->revision > start && concerns(watch, change))
            g_ptr_array_add(missed, change);
    }
    send_changes(watch, missed);
}

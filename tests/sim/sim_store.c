/*
 * A bucket that all managers share, in virtual time: what people put there, what managers delete. Each
 * manager reaches it through a store of its own, whose work ends when the process dies. Faults: lists that
 * fail, stop half-way or say that there is nothing, deletions that fail half-way, a clock that is off, a marker
 * that is gone or another's.
 *
 * The first thing here that is checked is each deletion, at the moment at which it happens: that it was
 * committed for exactly this uri, and that nothing else lies there that somebody still has a right to.
 */
#include "base/errors.h"
#include "controllers/cleaner.h"
#include "objectstore/objectstore.h"
#include "sim.h"

#include <string.h>

#define GROUP "cleaner"
#define PAGE  5
#define OLD_MS \
    30000 /* what has been there for so long, a listing that began since must have seen */
#define LIE_MS 90000 /* after a lie what it told may still be said */

typedef struct {
    gint64 size, modified_ms;
    char *text; /* of a marker */
} Object;

struct SimBucket {
    GTree *objects; /* "s3://bucket/key" -> Object */
    gboolean lists_fail, lists_lie, erases_fail, foreign;
    gint64 clock_off_ms, etcd_off_ms, lied_ms;
};

typedef struct {
    LhObjectStore base;
    SimProcess *process;
    GHashTable *ops; /* id -> Op */
    LhStoreOp next;
} Store;

typedef struct {
    Store *store;
    LhStoreOp id;
    LhStoreWork work;
    char *uri, *name, *text, *over, *last;
    LhStorePageFunc page;
    LhStoreDoneFunc done;
    gpointer data;
    LhTimer *timer;
    gint64 count, bytes;
    LhStoreKnown known; /* of a flat erase */
    gboolean looked;    /* … which has found that */
} Op;

static gint by_key(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(a, b);
}

static void object_free(gpointer data)
{
    Object *object = data;
    g_free(object->text);
    g_free(object);
}

SimBucket *sim_bucket_new(void)
{
    SimBucket *bucket = g_new0(SimBucket, 1);
    bucket->objects = g_tree_new_full(by_key, NULL, g_free, object_free);
    bucket->lied_ms = -LIE_MS;
    return bucket;
}

void sim_bucket_free(SimBucket *bucket)
{
    if (bucket == NULL)
        return;
    g_tree_unref(bucket->objects);
    g_free(bucket);
}

static void put(Sim *sim, const char *uri, const char *name, gint64 size, const char *text)
{
    Object *object = g_new0(Object, 1);
    *object = (Object){size, sim_wall(sim), g_strdup(text)};
    g_tree_replace(sim->bucket->objects, g_strconcat(uri, name, NULL), object);
}

void sim_bucket_put(Sim *sim, const char *uri)
{
    put(sim, uri, "part-0", 10, NULL);
    put(sim, uri, "deep/part-1", 10, NULL);
}

void sim_bucket_put_part(Sim *sim, const char *uri, guint part)
{
    g_autofree char *name = g_strdup_printf("%spart-%u", part % 2 == 0 ? "" : "deep/", part);
    put(sim, uri, name, 10, NULL);
}

/* The first object below @uri after @last (NULL: of all); NULL: none. */
static GTreeNode *next_below(SimBucket *bucket, const char *uri, const char *last)
{
    GTreeNode *node = g_tree_upper_bound(bucket->objects, last != NULL ? last : uri);
    return node != NULL && g_str_has_prefix(g_tree_node_key(node), uri) ? node : NULL;
}

/* ---- what is checked ---- */

static gint64 intent_of(Sim *sim, const char *uri, LhStoreWork work, const char **snapshot)
{
    GHashTableIter iter;
    gpointer key, value;
    LhKind kind = work == LH_STORE_ERASE ? LH_KIND_DELETION : LH_KIND_ORPHAN;
    g_hash_table_iter_init(&iter, sim->model.kinds[kind]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const LhObject *object = value;
        if (!lh_object_known(object))
            continue;
        if (kind == LH_KIND_DELETION && strcmp(((const LhDeletion *)object)->uri, uri) == 0) {
            *snapshot = key;
            return object->create_rev;
        }
        if (kind == LH_KIND_ORPHAN && strcmp(((const LhOrphan *)object)->uri, uri) == 0 &&
            ((const LhOrphan *)object)->decided_at >= 0)
            return object->mod_rev;
    }
    return 0;
}

/* No other snapshot's, that was there before it was decided. */
static void check_others(Sim *sim, const char *uri, gint64 decided, const char *own, gboolean deep)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_SNAPSHOT]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const LhSnapshot *snapshot = value;
        g_autofree char *other = lh_object_known(&snapshot->o) ? lh_uri_text(&snapshot->uri) : NULL;
        if (other == NULL || g_strcmp0(key, own) == 0 || snapshot->o.create_rev > decided)
            continue;
        if (g_str_has_prefix(uri, other) || (deep && g_str_has_prefix(other, uri)))
            sim_fail(sim, GROUP, "%s is deleted, which snapshot %s has a right to", uri,
                     (char *)key);
    }
}

static void check_erase(SimProcess *process, const char *uri, LhStoreWork work)
{
    Sim *sim = process->sim;
    const char *own = NULL;
    gint64 decided = intent_of(sim, uri, work, &own);
    const LhSnapshot *snapshot = own == NULL
                                     ? NULL
                                     : (const LhSnapshot *)sim_get(sim, LH_KIND_SNAPSHOT, own);
    g_autofree char *prefix = own == NULL ? NULL : g_strconcat(own, ".", NULL);
    GHashTableIter iter;
    gpointer key;
    if (process->timeline != fake_etcd_timeline(sim->server))
        return; /* etcd was restored a moment ago, and it cannot know */
    sim->counters.erased++;
    if (!g_str_has_prefix(uri, SIM_ROOT) || strlen(uri) <= strlen(SIM_ROOT))
        sim_fail(sim, GROUP, "%s is deleted, outside the root", uri);
    if (decided == 0) {
        sim_fail(sim, GROUP, "%s is deleted by %s without an intent", uri, process->client);
        return;
    }
    if (snapshot != NULL && lh_object_known(&snapshot->o) && snapshot->live)
        sim_fail(sim, GROUP, "%s is deleted, and its snapshot is live", uri);
    check_others(sim, uri, decided, own, work == LH_STORE_ERASE);
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_REPLICA]);
    while (prefix != NULL && g_hash_table_iter_next(&iter, &key, NULL))
        if (g_str_has_prefix(key, prefix))
            sim_fail(sim, GROUP, "%s is deleted, and there is replica %s", uri, (char *)key);
}

/* What nobody knows is let alone for a grace: whoever uploads first and publishes then has so much time. */
static void check_age(SimProcess *process, const char *key, const Object *object)
{
    Sim *sim = process->sim;
    gint64 grace_ms = inv_settings(&sim->model, LH_CLEANER)->orphan_grace_ms;
    if (process->timeline == fake_etcd_timeline(sim->server) &&
        object->modified_ms + grace_ms > sim_wall(sim))
        sim_fail(sim, GROUP,
                 "%s is deleted by %s as nobody's, %" G_GINT64_FORMAT " ms after it came", key,
                 process->client, sim_wall(sim) - object->modified_ms);
}

/* When it begins: at that moment the root is marked as ours. */
static void check_marker(SimProcess *process, const char *uri)
{
    const Object *marker = g_tree_lookup(process->sim->bucket->objects, SIM_ROOT LH_CLEANER_MARKER);
    if (marker == NULL || strstr(marker->text, "\"root\":\"" SIM_ROOT "\"") == NULL)
        sim_fail(process->sim, GROUP, "%s is deleted by %s, and the root's marker is %s", uri,
                 process->client, marker == NULL ? "not there" : marker->text);
}

/* Data that is there is not called missing. */
static void check_missing(Sim *sim, const SimChange *change)
{
    const LhStatus *status = (const LhStatus *)change->after;
    g_autofree char *name = NULL;
    LhKind kind;
    if (!lh_object_known(&status->o) || status->conditions->n == 0 ||
        strcmp(((const LhCondition *)lh_array_at(status->conditions, 0))->type, "DataMissing") !=
            0 ||
        !lh_status_name_split(change->name, &kind, &name, NULL) || kind != LH_KIND_SNAPSHOT)
        return;
    const LhSnapshot *snapshot = (const LhSnapshot *)sim_get(sim, LH_KIND_SNAPSHOT, name);
    if (snapshot == NULL || !lh_object_known(&snapshot->o) ||
        sim->bucket->lied_ms + LIE_MS > sim_now(sim))
        return;
    sim->counters.missing++;
    g_autofree char *uri = lh_uri_text(&snapshot->uri);
    GTreeNode *node = next_below(sim->bucket, uri, NULL);
    if (node != NULL && ((Object *)g_tree_node_value(node))->modified_ms + OLD_MS < sim_wall(sim))
        sim_fail(sim, GROUP, "%s says that data is missing, which is there", change->key);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_STATUS && change->after != NULL &&
            g_str_has_suffix(change->name, "/" LH_CLEANER))
            check_missing(sim, change);
        sim->counters.deletions += change->kind == LH_KIND_DELETION && change->before == NULL;
        sim->counters.orphans += change->kind == LH_KIND_ORPHAN && change->after != NULL &&
                                 lh_object_known(change->after) &&
                                 ((const LhOrphan *)change->after)->decided_at >= 0;
    }
}

const SimInvariants sim_invariants_cleaner = {GROUP, on_commit, NULL};

/* ---- a manager's store ---- */

static void op_free(gpointer data)
{
    Op *op = data;
    lh_timer_clear(op->store->process->env, &op->timer);
    g_free(op->uri);
    g_free(op->name);
    g_free(op->text);
    g_free(op->over);
    g_free(op->last);
    g_free(op);
}

static void finish(Op *op, const LhStoreAnswer *answer, LhErrorCode code, const char *why)
{
    g_autoptr(GError) error = why == NULL
                                  ? NULL
                                  : g_error_new(LH_ERROR, (gint)code, "%s: %s", op->uri, why);
    g_hash_table_steal(op->store->ops, &op->id);
    op->done(answer, error, op->data);
    op_free(op);
}

static void step(gpointer data);

static void again(Op *op)
{
    LhEnv *env = op->store->process->env;
    op->timer = lh_timer_in(env, 1 + (gint64)lh_random_below(env, 40), step, op);
}

static void walk(Op *op, SimBucket *bucket)
{
    LhStoreObject page[PAGE];
    guint n = 0;
    gboolean lies = bucket->lists_lie && op->count >= 2 * PAGE; /* the rest is left out */
    if (bucket->lists_fail) {
        finish(op, NULL, LH_ERR_UNAVAILABLE, "it has failed");
        return;
    }
    for (GTreeNode *node = next_below(bucket, op->uri, op->last); node != NULL && n < PAGE && !lies;
         node = next_below(bucket, op->uri, op->last)) {
        const Object *object = g_tree_node_value(node);
        g_free(op->last);
        op->last = g_strdup(g_tree_node_key(node));
        page[n++] = (LhStoreObject){(const char *)g_tree_node_key(node) + strlen(op->uri),
                                    object->size, object->modified_ms};
        op->bytes += object->size;
    }
    op->count += n;
    if (n > 0)
        op->page(page, n, op->data);
    if (n == PAGE)
        again(op);
    else
        finish(op, &(LhStoreAnswer){.objects = op->count, .bytes = op->bytes, .clock_ms = -1},
               LH_ERR_IO, NULL);
}

/* The next one directly in it. */
static GTreeNode *next_in(SimBucket *bucket, const char *uri, const char *last)
{
    GTreeNode *node = next_below(bucket, uri, last);
    while (node != NULL && strchr((const char *)g_tree_node_key(node) + strlen(uri), '/') != NULL)
        node = next_below(bucket, uri, g_tree_node_key(node));
    return node;
}

/* Whether there is no more, and nothing younger, than was known. */
static gboolean is_known(const Op *op, SimBucket *bucket)
{
    LhStoreKnown found = {0};
    gboolean known = TRUE;
    for (GTreeNode *node = next_in(bucket, op->uri, NULL); node != NULL;
         node = next_in(bucket, op->uri, g_tree_node_key(node))) {
        const Object *object = g_tree_node_value(node);
        found.objects++;
        found.bytes += object->size;
        known &= object->modified_ms <= op->known.until_ms;
    }
    return known && found.objects <= op->known.objects && found.bytes <= op->known.bytes;
}

/* One object at a time, so that anything may come between. */
static void erase(Op *op, Sim *sim)
{
    gboolean flat = op->work == LH_STORE_ERASE_FLAT;
    GTreeNode *node = flat ? next_in(sim->bucket, op->uri, NULL)
                           : next_below(sim->bucket, op->uri, op->last);
    const Object *object = node == NULL ? NULL : g_tree_node_value(node);
    if (flat && ((!op->looked && !is_known(op, sim->bucket)) ||
                 (object != NULL && object->modified_ms > op->known.until_ms))) {
        sim->counters.left_young++;
        finish(op, NULL, LH_ERR_CONFLICT, "it is not what was known");
        return;
    }
    if (flat && !op->looked) {
        op->looked = TRUE;
        again(op);
        return;
    }
    if (node == NULL) {
        finish(op, &(LhStoreAnswer){.objects = op->count, .bytes = -1, .clock_ms = -1}, LH_ERR_IO,
               NULL);
        return;
    }
    check_erase(op->store->process, op->uri, op->work);
    if (flat)
        check_age(op->store->process, g_tree_node_key(node), object);
    sim_trace(sim, "%s deletes %s", op->store->process->client, (char *)g_tree_node_key(node));
    g_tree_remove(sim->bucket->objects, g_tree_node_key(node));
    op->count++;
    if (sim->bucket->erases_fail)
        finish(op, NULL, LH_ERR_UNAVAILABLE, "it has failed in the middle");
    else
        again(op);
}

static gint64 marker_revision(const char *text)
{
    const char *at = strstr(text, "\"revision\":");
    return at == NULL ? -1 : g_ascii_strtoll(at + strlen("\"revision\":"), NULL, 10);
}

static void step(gpointer data)
{
    Op *op = data;
    Sim *sim = op->store->process->sim;
    SimBucket *bucket = sim->bucket;
    LhStoreAnswer answer = {
        .objects = 1, .bytes = -1, .clock_ms = sim_wall(sim) + bucket->clock_off_ms};
    g_autofree char *key = g_strconcat(op->uri, op->name == NULL ? "" : op->name, NULL);
    const Object *object = g_tree_lookup(bucket->objects, key);
    op->timer = NULL;
    switch (op->work) {
    case LH_STORE_WALK:
        walk(op, bucket);
        break;
    case LH_STORE_ERASE:
    case LH_STORE_ERASE_FLAT:
        erase(op, sim);
        break;
    case LH_STORE_READ:
        if (object != NULL && object->text != NULL)
            sim_check_newer_marker(op->store->process, marker_revision(object->text));
        answer.text = answer.version = object == NULL ? NULL : object->text;
        finish(op, object == NULL ? NULL : &answer, LH_ERR_NOT_FOUND,
               object == NULL ? "there is no such object" : NULL);
        break;
    case LH_STORE_WRITE:
        if (op->over != NULL && strcmp(op->over, object == NULL ? "" : object->text) != 0) {
            finish(op, NULL, LH_ERR_CONFLICT, "somebody else has written it");
            break;
        }
        put(sim, op->uri, op->name, (gint64)strlen(op->text), op->text);
        finish(op, &answer, LH_ERR_IO, NULL);
        break;
    case LH_STORE_CLOCK:
        finish(op, &answer, LH_ERR_IO, NULL);
        break;
    }
}

static LhStoreOp store_work(LhObjectStore *base, const LhStoreRequest *request,
                            LhStorePageFunc page, LhStoreDoneFunc done, gpointer data)
{
    Store *store = (Store *)base;
    Op *op = g_new0(Op, 1);
    *op = (Op){
        .store = store,
        .id = store->next++,
        .work = request->work,
        .uri = g_strdup(request->uri),
        .name = g_strdup(request->name),
        .text = g_strdup(request->text),
        .over = g_strdup(request->over),
        .known = request->known,
        .page = page,
        .done = done,
        .data = data,
    };
    if (op->work == LH_STORE_ERASE || op->work == LH_STORE_ERASE_FLAT)
        check_marker(store->process, op->uri);
    g_hash_table_insert(store->ops, &op->id, op);
    again(op);
    return op->id;
}

static void store_cancel(LhObjectStore *base, LhStoreOp id)
{
    g_hash_table_remove(((Store *)base)->ops, &id);
}

static void store_free(LhObjectStore *base)
{
    g_hash_table_unref(((Store *)base)->ops);
    g_free(base);
}

LhObjectStore *sim_store_new(SimProcess *process)
{
    static const LhObjectStoreVtable vtable = {
        .work = store_work, .cancel = store_cancel, .free = store_free};
    Store *store = g_new0(Store, 1);
    store->base.v = &vtable;
    store->process = process;
    store->next = 1;
    store->ops = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, op_free);
    return &store->base;
}

/* ---- faults ---- */

static void mend(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    (void)number;
    sim_trace(sim, "the bucket is well again");
    if (sim->bucket->lists_lie)
        sim->bucket->lied_ms = sim_now(sim);
    sim->bucket->lists_fail = sim->bucket->lists_lie = sim->bucket->erases_fail = FALSE;
    sim->bucket->clock_off_ms = sim->bucket->etcd_off_ms = 0;
    if (sim->bucket->foreign) /* somebody who knows that it is the right bucket */
        g_tree_remove(sim->bucket->objects, SIM_ROOT LH_CLEANER_MARKER);
    sim->bucket->foreign = FALSE;
}

gint64 sim_etcd_wall(const Sim *sim)
{
    return sim_wall(sim) + sim->bucket->etcd_off_ms;
}

/* Far enough to be noticed by whoever's own clock is nearly right. */
static gint64 off(Sim *sim)
{
    gint64 ms = sim_between(sim, 70000, 200000);
    return sim_chance(sim, 50) ? ms : -ms;
}

void sim_store_trouble(Sim *sim)
{
    SimBucket *bucket = sim->bucket;
    guint which = (guint)sim_below(sim, 7);
    if (bucket->lists_fail || bucket->lists_lie || bucket->erases_fail ||
        bucket->clock_off_ms != 0 || bucket->etcd_off_ms != 0 || bucket->foreign)
        return;
    bucket->lists_fail = which == 0;
    bucket->lists_lie = which == 1;
    bucket->erases_fail = which == 2;
    bucket->clock_off_ms = which == 3 ? off(sim) : 0;
    bucket->etcd_off_ms = which == 4 ? off(sim) : 0;
    bucket->foreign = which == 5;
    if (which == 5)
        put(sim, SIM_ROOT, LH_CLEANER_MARKER, 1, "{\"root\":\"s3://alias/\",\"revision\":1}");
    if (which == 6)
        g_tree_remove(bucket->objects, SIM_ROOT LH_CLEANER_MARKER);
    if (bucket->lists_lie)
        bucket->lied_ms = sim_now(sim) + 60000;
    sim->counters.bucket_troubles++;
    sim_trace(sim, "the bucket is in trouble: %u", which);
    sim_later(sim, sim_between(sim, 3000, 60000), mend, NULL, NULL, 0);
}

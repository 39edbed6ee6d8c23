/*
 * The items of one registration: carries out what orders.c decides.
 *
 * An item exists here from its first order until its key has been erased after its assignment's
 * deletion. It must not decide what an order means (orders.c), nor how a write is made sure of
 * (item_writer.c).
 */
#include "agent/items.h"

#include "agent/item_writer.h"
#include "agent/orders.h"
#include "agent/written.h"
#include "base/log.h"

#define PROGRESS_WRITES  9 /* after the first "loading": ten writes for one load */
#define PROGRESS_GAP_MS  500
#define RELEASE_FIRST_MS 1000
#define RELEASE_CAP_MS   60000
#define MESSAGE_BYTES    1000

struct LhItems {
    LhItemsOptions o;
    char *prefix, *pool, *id, *registration_key;
    LhItemScope scope;
    GHashTable *table; /* item name → Item */
    LhWritten *written;
};

typedef struct {
    LhItems *set;
    char *name;
    LhOrder order;
    const LhAssignment *assignment; /* the newest one, referenced; stays when it is deleted */
    const LhAssignment *held;       /* the one that was loaded last, referenced; NULL: none yet */
    LhItemWriter *writer;
    gint64 since;
    LhItemState since_state;
    char *url, *message;
    gint64 bytes_done, bytes_said;
    guint progress_writes;
    gint64 progress_ms; /* monotonic time of the last write while loading */
    gboolean served;
    gboolean announced; /* a search key may be there */
    LhTimer *grace;
    LhTimer *again; /* another try to release */
    guint release_attempt;
} Item;

static void act(Item *item, guint acts);

static void set_assignment(const LhAssignment **slot, const LhAssignment *assignment)
{
    if (assignment != NULL)
        lh_object_ref(&assignment->o);
    if (*slot != NULL)
        lh_object_unref(&(*slot)->o);
    *slot = assignment;
}

static void item_free(gpointer data)
{
    Item *item = data;
    LhEnv *env = item->set->o.env;
    lh_timer_clear(env, &item->grace);
    lh_timer_clear(env, &item->again);
    lh_item_writer_free(item->writer);
    set_assignment(&item->assignment, NULL);
    set_assignment(&item->held, NULL);
    g_free(item->url);
    g_free(item->message);
    g_free(item->name);
    g_free(item);
}

static void set_message(Item *item, const char *message)
{
    g_free(item->message);
    item->message = NULL;
    if (message != NULL) {
        g_autofree char *cut = g_strndup(message, MESSAGE_BYTES);
        item->message = g_utf8_make_valid(cut, -1);
    }
}

/* ---- what is known of an item ---- */

static char *search_value(const Item *item)
{
    const LhSearch search = {
        .snapshot = item->held->snapshot,
        .replica = item->name,
        .node = item->set->id,
        .url = item->url,
    };
    return lh_object_print(LH_KIND_SEARCH, &search);
}

/* Whose search key is the item's; NULL: none's. What is only ordered away was perhaps held once. */
static const char *snapshot_of(const Item *item)
{
    const LhAssignment *about = item->held != NULL ? item->held : item->assignment;
    return about != NULL ? about->snapshot : NULL;
}

/* Another item of this node that serves the same snapshot: the search key is then its. */
static const Item *other_of_snapshot(const Item *item)
{
    const char *snapshot = snapshot_of(item);
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, item->set->table);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Item *other = value;
        if (other != item && other->announced && other->order.phase == LH_PHASE_LIVE &&
            g_strcmp0(other->held->snapshot, snapshot) == 0)
            return other;
    }
    return NULL;
}

static void compose_search(Item *item, LhItemWrite *write)
{
    const char *snapshot = snapshot_of(item);
    gboolean live = !write->erase && write->state == LH_ITEM_LIVE;
    /* What gives it up takes the search key away whether we know of one or not: it comes back when etcd
     * is restored from a backup, also to a node that has forgotten the item. */
    gboolean loading = !write->erase && write->state == LH_ITEM_LOADING;
    if (!item->set->o.search || snapshot == NULL || (loading && !item->announced))
        return;
    write->search_key = g_strdup_printf("%sactual/search/cache/%s/%s", item->set->prefix,
                                        item->set->id, snapshot);
    const Item *of = live ? item : other_of_snapshot(item);
    write->search = of != NULL ? LH_SEARCH_PUT : LH_SEARCH_DELETE;
    if (of != NULL)
        write->search_value = search_value(of);
    item->announced |= live;
}

static gboolean is_told(LhItemState state)
{
    return state == LH_ITEM_EVICTED || state == LH_ITEM_FAILED || state == LH_ITEM_DONE;
}

static void compose(LhItemWrite *write, gpointer data)
{
    Item *item = data;
    LhEnv *env = item->set->o.env;
    write->erase = item->order.phase == LH_PHASE_NONE;
    write->assignment_rev = item->order.want == LH_WANT_GONE ? 0 : item->order.assignment;
    if (!write->erase) {
        write->state = lh_order_state(&item->order);
        if (item->since == 0 || item->since_state != write->state) {
            item->since = lh_wall_ms(env);
            item->since_state = write->state;
        }
        gboolean live = write->state == LH_ITEM_LIVE;
        /* What is done is not lost when this node is, right after it; the controller takes it away. */
        write->leaseless = item->set->o.exclusive && write->state == LH_ITEM_DONE;
        const LhAssignment *about = item->held != NULL ? item->held : item->assignment;
        gint64 total = about->size_bytes;
        LhAgentWork *work = item->set->o.work;
        g_autofree char *window = is_told(write->state) && work->v->window != NULL
                                      ? work->v->window(work, item->name)
                                      : NULL;
        const LhItem content = {
            .state = (int)write->state,
            .since = item->since,
            .assignment = item->order.assignment,
            .bytes_done = live                              ? total
                          : write->state == LH_ITEM_LOADING ? item->bytes_done
                                                            : 0,
            .bytes_total = total,
            .url = live ? item->url : NULL,
            .message = item->message,
            .window = window,
        };
        write->value = lh_object_print(LH_KIND_ITEM, &content);
        if (write->state == LH_ITEM_LOADING) {
            item->bytes_said = item->bytes_done;
            item->progress_ms = lh_mono_ms(env);
        }
    }
    compose_search(item, write);
}

/* What deleted the search key may have been sent before another item of the snapshot announced itself, and
 * committed after it. */
static void announce_others(const Item *item)
{
    const char *snapshot = snapshot_of(item);
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, item->set->table);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Item *other = value;
        if (other != item && lh_order_served(&other->order) && other->held != NULL &&
            g_strcmp0(other->held->snapshot, snapshot) == 0)
            lh_item_writer_touch(other->writer);
    }
}

/* With an item that is not ours as we wrote it there may be a search key. */
static void moved(gpointer data)
{
    ((Item *)data)->announced = TRUE;
}

static gboolean committed(const LhItemWrite *write, gpointer data)
{
    Item *item = data;
    LhAgentWork *work = item->set->o.work;
    if (write->search == LH_SEARCH_DELETE)
        announce_others(item);
    if (write->search == LH_SEARCH_DELETE ||
        (write->search == LH_SEARCH_PUT && write->state != LH_ITEM_LIVE))
        item->announced = FALSE;
    if (write->erase) {
        if (item->order.phase != LH_PHASE_NONE)
            return TRUE;
        if (work->v->forget != NULL)
            work->v->forget(work, item->name);
        g_hash_table_remove(item->set->table, item->name);
        return FALSE;
    }
    if (is_told(write->state) && work->v->told != NULL)
        work->v->told(work, item->name);
    if (item->order.phase != LH_PHASE_NONE && write->state == lh_order_state(&item->order))
        act(item, lh_order_input(&item->order, LH_IN_SAID));
    return TRUE;
}

/* ---- carrying out ---- */

static void input(Item *item, LhInput in)
{
    LhPhase before = item->order.phase;
    guint acts = lh_order_input(&item->order, in);
    lh_log(LH_LOG_DEBUG, "item", "item", item->name, "from", lh_phase_name(before), "to",
           lh_phase_name(item->order.phase), NULL);
    act(item, acts);
}

static void grace_over(gpointer data)
{
    Item *item = data;
    item->grace = NULL;
    input(item, LH_IN_GRACE_OVER);
}

static void release_again(gpointer data)
{
    Item *item = data;
    item->again = NULL;
    item->set->o.work->v->release(item->set->o.work, item->name);
}

static void start_load(Item *item)
{
    LhAgentWork *work = item->set->o.work;
    set_message(item, NULL);
    set_assignment(&item->held, item->assignment);
    g_clear_pointer(&item->url, g_free);
    item->bytes_done = item->bytes_said = 0;
    item->progress_writes = 0;
    item->release_attempt = 0;
    item->order.want = LH_WANT_HELD; /* what was "other" is now what is being loaded */
    if (item->assignment->snapshot != NULL)
        lh_log(LH_LOG_INFO, "loading", "item", item->name, "snapshot", item->assignment->snapshot,
               "uri", item->assignment->uri, "bytes",
               lh_fmt("%" G_GINT64_FORMAT, item->assignment->size_bytes), NULL);
    else
        lh_log(LH_LOG_INFO, "loading", "item", item->name, NULL);
    work->v->load(work, item->name, item->assignment);
}

static void act(Item *item, guint acts)
{
    LhAgentWork *work = item->set->o.work;
    if (acts & LH_ACT_STAY)
        lh_timer_clear(item->set->o.env, &item->grace);
    if (acts & LH_ACT_GRACE)
        item->grace = lh_timer_in(item->set->o.env, item->assignment->evict_grace_ms, grace_over,
                                  item);
    gboolean serve = lh_order_served(&item->order);
    if (serve != item->served && work->v->serve != NULL)
        work->v->serve(work, item->name, serve);
    item->served = serve;
    if (acts & LH_ACT_LOAD)
        start_load(item);
    if (acts & LH_ACT_RELEASE)
        work->v->release(work, item->name);
    if (acts & (LH_ACT_SAY | LH_ACT_ERASE))
        lh_item_writer_touch(item->writer);
}

/* ---- orders ---- */

static Item *item_new(LhItems *items, const char *name)
{
    static const LhItemWriterFuncs funcs = {
        .compose = compose, .moved = moved, .committed = committed};
    Item *item = g_new0(Item, 1);
    item->set = items;
    item->name = g_strdup(name);
    g_autofree char *key = g_strdup_printf("%sactual/items/%s/%s/%s", items->prefix, items->pool,
                                           items->id, name);
    g_autofree char *assignment = g_strdup_printf("%sdecided/assignments/%s/%s/%s", items->prefix,
                                                  items->pool, items->id, name);
    item->writer = lh_item_writer_new(&items->scope, key, assignment, &funcs, item);
    g_hash_table_insert(items->table, item->name, item);
    return item;
}

static LhWant want_of(Item *item, const LhAssignment *assignment)
{
    LhAgentWork *work = item->set->o.work;
    if (assignment->action == LH_ACTION_EVICT)
        return LH_WANT_EVICTED;
    switch (item->order.phase) {
    case LH_PHASE_LOADING:
    case LH_PHASE_READY:
    case LH_PHASE_LIVE:
    case LH_PHASE_HIDING:
    case LH_PHASE_GRACE:
        if (g_strcmp0(item->held->snapshot, assignment->snapshot) != 0)
            return LH_WANT_OTHER;
        return work->v->update(work, item->name, assignment) ? LH_WANT_HELD : LH_WANT_OTHER;
    case LH_PHASE_NONE:
    case LH_PHASE_RELEASING:
    case LH_PHASE_TOLD:
    case LH_N_PHASES:
        return LH_WANT_HELD;
    }
    g_assert_not_reached();
}

static void order(Item *item, LhWant want, gint64 rev)
{
    LhAgentWork *work = item->set->o.work;
    LhPhase before = item->order.phase;
    if (work->v->ordered != NULL && rev > item->order.order_rev)
        work->v->ordered(work, item->name, want == LH_WANT_HELD);
    guint acts = lh_order_want(&item->order, want, rev);
    lh_log(LH_LOG_INFO, "order", "item", item->name, "want",
           ((const char *const[]){"load", "load other", "evict", "gone"})[want], "revision",
           lh_fmt("%" G_GINT64_FORMAT, rev), "from", lh_phase_name(before), "to",
           lh_phase_name(item->order.phase), NULL);
    act(item, acts);
    lh_item_writer_hurry(item->writer);
}

void lh_items_put(LhItems *items, const char *name, const LhKv *kv)
{
    g_autofree char *full = g_strdup_printf("%s/%s/%s", items->pool, items->id, name);
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_ASSIGNMENT, full, kv->value, kv->value_len,
                                                 kv->create_rev, kv->mod_rev, kv->lease);
    const LhAssignment *assignment = (const LhAssignment *)object;
    Item *item = g_hash_table_lookup(items->table, name);
    if (!lh_object_known(object) || assignment->action == LH_ACTION_PREPARE) {
        lh_log(LH_LOG_WARNING, "assignment not understood; nothing is changed because of it",
               "item", name, "why",
               lh_object_known(object) ? "action prepare" : lh_object_error(object), NULL);
        return;
    }
    if (item == NULL)
        item = item_new(items, name);
    if (kv->mod_rev <= item->order.order_rev)
        return;
    LhWant want = want_of(item, assignment);
    set_assignment(&item->assignment, assignment);
    order(item, want, kv->mod_rev);
}

void lh_items_gone(LhItems *items, const char *name, gint64 rev)
{
    Item *item = g_hash_table_lookup(items->table, name);
    if (item != NULL && rev > item->order.order_rev)
        order(item, LH_WANT_GONE, rev);
}

/* ---- the work's answers ---- */

void lh_items_work_progress(LhItems *items, const char *name, gint64 bytes_done)
{
    Item *item = g_hash_table_lookup(items->table, name);
    if (item == NULL || item->order.phase != LH_PHASE_LOADING)
        return;
    item->bytes_done = bytes_done;
    gint64 step = item->held->size_bytes / (PROGRESS_WRITES + 1);
    if (item->progress_writes >= PROGRESS_WRITES || bytes_done - item->bytes_said < MAX(step, 1) ||
        lh_mono_ms(items->o.env) - item->progress_ms < PROGRESS_GAP_MS)
        return;
    item->progress_writes++;
    item->progress_ms = lh_mono_ms(items->o.env);
    lh_item_writer_touch(item->writer);
}

static void count_load(LhItems *items, const char *result)
{
    if (items->o.metrics == NULL)
        return;
    g_autofree char *labels = lh_labels("result", result, NULL);
    lh_counter_add(items->o.metrics, "agent_loads_total", labels, 1);
}

void lh_items_work_ready(LhItems *items, const char *name, const char *url)
{
    Item *item = g_hash_table_lookup(items->table, name);
    if (item == NULL)
        return;
    g_free(item->url);
    item->url = g_strdup(url);
    count_load(items, "ready");
    input(item, LH_IN_READY);
}

void lh_items_work_finished(LhItems *items, const char *name)
{
    Item *item = g_hash_table_lookup(items->table, name);
    if (item == NULL)
        return;
    count_load(items, "done");
    input(item, LH_IN_FINISHED);
}

void lh_items_work_failed(LhItems *items, const char *name, const GError *error)
{
    Item *item = g_hash_table_lookup(items->table, name);
    if (item == NULL)
        return;
    lh_log(LH_LOG_WARNING, "item failed; the controller decides what is next", "item", name,
           "error", error->message, NULL);
    set_message(item, error->message);
    count_load(items, "failed");
    input(item, LH_IN_FAILED);
}

void lh_items_work_released(LhItems *items, const char *name, const GError *error)
{
    Item *item = g_hash_table_lookup(items->table, name);
    if (item == NULL || item->order.phase != LH_PHASE_RELEASING)
        return;
    if (error == NULL) {
        set_message(item, NULL);
        input(item, LH_IN_RELEASED);
        return;
    }
    gint64 pause = lh_backoff_ms(items->o.env, item->release_attempt++, RELEASE_FIRST_MS,
                                 RELEASE_CAP_MS);
    lh_log(LH_LOG_WARNING, "not released yet; trying again", "item", name, "error", error->message,
           "again_in_ms", lh_fmt("%" G_GINT64_FORMAT, pause), NULL);
    set_message(item, error->message);
    lh_item_writer_touch(item->writer);
    if (item->again == NULL)
        item->again = lh_timer_in(items->o.env, pause, release_again, item);
}

static gint64 revision_of(const char *name, gpointer data)
{
    const Item *item = g_hash_table_lookup(((LhItems *)data)->table, name);
    return item != NULL ? lh_item_writer_revision(item->writer) : 0;
}

static void foreach_name(void (*func)(const char *name, gpointer data), gpointer func_data,
                         gpointer data)
{
    GHashTableIter iter;
    gpointer name;
    g_hash_table_iter_init(&iter, ((LhItems *)data)->table);
    while (g_hash_table_iter_next(&iter, &name, NULL))
        func(name, func_data);
}

static gboolean given_away(const char *name, gpointer data)
{
    const Item *item = g_hash_table_lookup(((LhItems *)data)->table, name);
    return item != NULL && lh_item_writer_given_away(item->writer);
}

static void written_over(const char *name, gpointer data)
{
    Item *item = g_hash_table_lookup(((LhItems *)data)->table, name);
    lh_item_writer_touch(item->writer);
}

static void written_lost(gpointer data)
{
    LhItems *items = data;
    items->o.lost(items->o.data);
}

void lh_items_verify(LhItems *items)
{
    lh_written_verify(items->written);
}

guint lh_items_count(const LhItems *items, LhItemState state)
{
    guint n = 0;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, items->table);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Item *item = value;
        if (item->order.phase != LH_PHASE_NONE && lh_order_state(&item->order) == state)
            n++;
    }
    return n;
}

LhItems *lh_items_new(const LhItemsOptions *options)
{
    LhItems *items = g_new0(LhItems, 1);
    items->o = *options;
    items->prefix = g_strdup(options->prefix);
    items->pool = g_strdup(options->pool);
    items->id = g_strdup(options->id);
    items->registration_key = g_strdup(options->registration_key);
    items->scope = (LhItemScope){
        .env = options->env,
        .etcd = options->etcd,
        .lease = options->lease,
        .registration_key = items->registration_key,
        .unregistered = options->unregistered,
        .data = options->data,
    };
    items->table = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, item_free);
    g_autofree char *below = g_strdup_printf("%sactual/items/%s/%s/", items->prefix, items->pool,
                                             items->id);
    const LhWrittenFuncs funcs = {.foreach = foreach_name,
                                  .revision = revision_of,
                                  .given_away = given_away,
                                  .over = written_over,
                                  .lost = written_lost};
    items->written = lh_written_new(options->env, options->etcd, below, options->lease, &funcs,
                                    items);
    return items;
}

void lh_items_free(LhItems *items)
{
    if (items == NULL)
        return;
    lh_written_free(items->written);
    g_hash_table_unref(items->table);
    g_free(items->prefix);
    g_free(items->pool);
    g_free(items->id);
    g_free(items->registration_key);
    g_free(items);
}

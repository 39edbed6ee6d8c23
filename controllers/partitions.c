/*
 * The fold of services and partitions: records are made when first named, and dropped when nothing refers to
 * them any more. A change of one service touches the partitions that it has or had, and of the other services
 * only those for which that makes a difference.
 */
#include "controllers/partitions.h"

#include "api/published.h"
#include "base/units.h"
#include "runtime/plan.h"

#include <string.h>

/* ---- small questions about records ---- */

const LhPartitionRecord *lh_partitions_record(const LhPartitions *partitions, const char *name)
{
    return g_hash_table_lookup(partitions->partitions, name);
}

const LhService *lh_partition_service_spec(const LhPartitionService *service)
{
    return lh_accepted_spec(service->accepted, LH_KIND_SERVICE);
}

const LhArray *lh_partition_service_history(const LhPartitionService *service)
{
    const LhPartitionPlan *plan = (const LhPartitionPlan *)service->plan;

    return plan != NULL && lh_object_known(&plan->o) && plan->history->n > 0 ? plan->history : NULL;
}

const LhPartitionInterval *lh_partition_last(const LhArray *history)
{
    return lh_array_at(history, history->n - 1);
}

gboolean lh_partition_service_wants(const LhPartitionService *service)
{
    const LhService *spec = lh_partition_service_spec(service);
    const LhArray *history = lh_partition_service_history(service);

    return spec != NULL && (spec->throughput_bytes_per_second > 0 ||
                            (history != NULL && lh_partition_last(history)->partitions[0] != NULL));
}

gboolean lh_partition_service_edited(const LhPartitionService *service)
{
    const LhStatus *status = (const LhStatus *)service->status;
    const LhAccepted *accepted = (const LhAccepted *)service->accepted;

    return status == NULL ||
           (lh_object_known(&status->o) && status->observed_revision != accepted->revision);
}

LhPartitionAsk lh_partition_service_ask(const LhPartitionService *service,
                                        const LhPartitionUse *held, guint n_held)
{
    const LhService *spec = lh_partition_service_spec(service);

    return (LhPartitionAsk){
        .throughput = MIN(spec->throughput_bytes_per_second, LH_PARTITION_MOST),
        .min = spec->partitions_min,
        .dedicated = spec->partitions_dedicated,
        .held = held,
        .n_held = n_held,
    };
}

LhCondition lh_partition_allocated(const LhPartitionService *service)
{
    const LhPartitionInterval *last = lh_partition_last(lh_partition_service_history(service));
    g_autofree char *since = lh_time_format(last->start);

    return (LhCondition){
        .type = "Allocated",
        .status = LH_CONDITION_TRUE,
        .reason = "Allocated",
        .message = g_strdup_printf("%u partitions from %s on",
                                   g_strv_length((GStrv)last->partitions), since),
    };
}

/* ---- uses ---- */

typedef struct {
    const LhPartitions *partitions;
    GArray *uses;
    GHashTable *places; /* seat + 1 -> place in uses + 1 */
    LhPartitionUse use; /* what all have in common */
} Using;

static LhPartitionUse *find_use(const Using *using, guint seat)
{
    guint place = GPOINTER_TO_UINT(g_hash_table_lookup(using->places, GUINT_TO_POINTER(seat + 1)));

    return place == 0 ? NULL : &g_array_index(using->uses, LhPartitionUse, place - 1);
}

static void add_use(Using *using, LhPartitionUse use)
{
    g_array_append_val(using->uses, use);
    g_hash_table_insert(using->places, GUINT_TO_POINTER(use.seat + 1),
                        GUINT_TO_POINTER(using->uses->len));
}

static guint count_distinct(const char *const *names)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);

    for (guint i = 0; names[i] != NULL; i++)
        g_hash_table_add(seen, (gpointer)names[i]);
    return g_hash_table_size(seen);
}

static void use_interval(Using *using, const LhPartitionInterval *interval, gboolean last,
                         gint64 throughput)
{
    guint n = count_distinct(interval->partitions);
    gint64 share = n == 0 ? 0 : lh_partition_share(throughput, n);

    for (guint i = 0; interval->partitions[i] != NULL; i++) {
        const LhPartitionRecord *record = lh_partitions_record(using->partitions,
                                                               interval->partitions[i]);
        LhPartitionUse *use, another = using->use;
        if (record == NULL)
            continue;
        use = find_use(using, record->seat);
        another.seat = record->seat;
        another.last = last;
        another.used = last ? share : 0;
        another.leaving = last ? 0 : share;
        if (use == NULL)
            add_use(using, another);
        else if (!last)
            use->leaving = MAX(use->leaving, share - use->used);
    }
}

static gint by_id(gconstpointer a, gconstpointer b, gpointer room)
{
    return strcmp(lh_partition_room_id(room, ((const LhPartitionUse *)a)->seat),
                  lh_partition_room_id(room, ((const LhPartitionUse *)b)->seat));
}

GArray *lh_partition_uses(const LhPartitions *partitions, const LhPartitionService *service,
                          const LhArray *history, gint64 now_ms)
{
    const LhService *spec = lh_partition_service_spec(service);
    gint64 throughput = spec == NULL ? 0
                                     : MIN(spec->throughput_bytes_per_second, LH_PARTITION_MOST);
    Using using = {
        .partitions = partitions,
        .uses = g_array_new(FALSE, FALSE, sizeof(LhPartitionUse)),
        .use = {.dedicated = spec != NULL && spec->partitions_dedicated, .unsized = spec == NULL},
    };

    if (history == NULL || history->n == 0)
        return using.uses;
    using.places = g_hash_table_new(NULL, NULL);
    use_interval(&using, lh_partition_last(history), TRUE, throughput);
    for (guint i = history->n - 1; i > 0; i--) {
        const LhPartitionInterval *earlier = lh_array_at(history, i - 1);
        if (earlier->end <= now_ms)
            break;
        use_interval(&using, earlier, FALSE, throughput);
    }
    g_hash_table_unref(using.places);
    g_array_sort_with_data(using.uses, by_id, partitions->room);
    return using.uses;
}

/* ---- records ---- */

static void hold(const LhObject **slot, const LhObject *object)
{
    const LhObject *before = *slot;

    *slot = object == NULL ? NULL : lh_object_ref(object);
    lh_object_unref(before);
}

static LhPartitionService *service_of(LhPartitions *partitions, const char *name)
{
    LhPartitionService *service = g_hash_table_lookup(partitions->services, name);

    if (service == NULL) {
        service = g_new0(LhPartitionService, 1);
        service->name = g_strdup(name);
        service->uses = g_array_new(FALSE, FALSE, sizeof(LhPartitionUse));
        service->last_start = -1;
        g_hash_table_insert(partitions->services, service->name, service);
    }
    return service;
}

static void drop_service(LhPartitions *partitions, LhPartitionService *service)
{
    if (service->desired != NULL || service->accepted != NULL || service->plan != NULL ||
        service->status != NULL || service->snapshots != 0)
        return;
    g_assert(!service->is_todo && service->last_start < 0 && service->uses->len == 0);
    g_hash_table_remove(partitions->services, service->name);
    g_array_unref(service->uses);
    g_free(service->name);
    g_free(service);
}

static LhPartitionRecord *record_of(LhPartitions *partitions, const char *name)
{
    LhPartitionRecord *record = g_hash_table_lookup(partitions->partitions, name);

    if (record == NULL) {
        record = g_new0(LhPartitionRecord, 1);
        record->name = g_strdup(name);
        record->seat = lh_partition_room_add(partitions->room, record->name);
        record->users = g_ptr_array_new();
        g_hash_table_insert(partitions->partitions, record->name, record);
    }
    return record;
}

static void drop_record(LhPartitions *partitions, LhPartitionRecord *record)
{
    if (record->accepted != NULL || record->status != NULL || record->users->len != 0)
        return;
    lh_partition_room_remove(partitions->room, record->seat);
    g_hash_table_remove(partitions->partitions, record->name);
    g_ptr_array_unref(record->users);
    g_free(record->name);
    g_free(record);
}

/* ---- the sets ---- */

static gboolean set_member(GTree *tree, gpointer record, gboolean is, gboolean want)
{
    if (is && !want)
        g_tree_remove(tree, record);
    else if (!is && want)
        g_tree_insert(tree, record, record);
    return want;
}

/* Nothing is to be done or said about it, whatever the time is. */
static gboolean settled(const LhPartitions *partitions, const LhPartitionService *service)
{
    LhPartitionAsk ask;
    LhCondition condition;
    gboolean differs;

    if (service->accepted == NULL)
        return service->plan == NULL && service->status == NULL;
    if (lh_partition_service_spec(service) == NULL ||
        (service->plan != NULL && !lh_object_known(service->plan)))
        return FALSE;
    if (!lh_partition_service_wants(service))
        return service->status == NULL;
    if (lh_partition_service_history(service) == NULL || lh_partition_service_edited(service))
        return FALSE;
    ask = lh_partition_service_ask(service, (const LhPartitionUse *)service->uses->data,
                                   service->uses->len);
    if (!lh_partition_room_keeps(partitions->room, &ask))
        return FALSE;
    condition = lh_partition_allocated(service);
    differs = lh_status_differs(service->status, ((const LhAccepted *)service->accepted)->revision,
                                &condition, 1);
    g_free((char *)condition.message);
    return !differs;
}

static void touch_todo(LhPartitions *partitions, LhPartitionService *service)
{
    service->is_todo = set_member(partitions->todo, service, service->is_todo,
                                  !settled(partitions, service));
}

/* What others see of a partition. */
typedef struct {
    LhPartitionRecord *record;
    gboolean over;
    guint users;
} Seen;

static void look(const LhPartitions *partitions, const GArray *uses, GArray *seen)
{
    for (guint i = 0; i < uses->len; i++) {
        const char *id = lh_partition_room_id(partitions->room,
                                              g_array_index(uses, LhPartitionUse, i).seat);
        LhPartitionRecord *record = g_hash_table_lookup(partitions->partitions, id);
        Seen now = {record, lh_partition_room_over(partitions->room, record->seat),
                    lh_partition_room_users(partitions->room, record->seat)};
        g_array_append_val(seen, now);
    }
}

static void touch_users(LhPartitions *partitions, const LhPartitionRecord *record, gboolean all)
{
    for (guint i = 0; i < record->users->len; i++) {
        LhPartitionService *service = g_ptr_array_index(record->users, i);
        const LhService *spec = lh_partition_service_spec(service);
        if (all || (spec != NULL && spec->partitions_dedicated))
            touch_todo(partitions, service);
    }
}

static void set_uses(LhPartitions *partitions, LhPartitionService *service, GArray *uses)
{
    g_autoptr(GArray) old = service->uses;
    g_autoptr(GArray) seen = g_array_new(FALSE, FALSE, sizeof(Seen));

    look(partitions, old, seen);
    look(partitions, uses, seen);
    lh_partition_room_lift(partitions->room, (const LhPartitionUse *)old->data, old->len);
    lh_partition_room_put(partitions->room, (const LhPartitionUse *)uses->data, uses->len);
    service->uses = g_array_ref(uses);
    for (guint i = 0; i < old->len; i++)
        g_ptr_array_remove_fast(g_array_index(seen, Seen, i).record->users, service);
    for (guint i = old->len; i < seen->len; i++)
        g_ptr_array_add(g_array_index(seen, Seen, i).record->users, service);
    for (guint i = 0; i < seen->len; i++) {
        const Seen *was = &g_array_index(seen, Seen, i);
        gboolean over = lh_partition_room_over(partitions->room, was->record->seat);
        if (over != was->over ||
            lh_partition_room_users(partitions->room, was->record->seat) != was->users)
            touch_users(partitions, was->record, over != was->over);
    }
    for (guint i = 0; i < old->len; i++)
        drop_record(partitions, g_array_index(seen, Seen, i).record);
}

static void touch_service(LhPartitions *partitions, LhPartitionService *service)
{
    const LhArray *history = lh_partition_service_history(service);
    g_autoptr(GArray) uses = NULL;
    /* Before its first interval there is nothing that could end. */
    gint64 start = history == NULL || history->n < 2 ? -1 : lh_partition_last(history)->start;

    for (guint i = 0; history != NULL && lh_partition_last(history)->partitions[i] != NULL; i++)
        record_of(partitions, lh_partition_last(history)->partitions[i]);
    uses = lh_partition_uses(partitions, service, history, G_MAXINT64);
    set_uses(partitions, service, uses);
    if (service->last_start != start) {
        set_member(partitions->by_start, service, service->last_start >= 0, FALSE);
        service->last_start = start;
        set_member(partitions->by_start, service, FALSE, start >= 0);
    }
    touch_todo(partitions, service);
    drop_service(partitions, service);
}

/* ---- the fold, kind by kind ---- */

static gboolean fold_partition(LhPartitions *partitions, const char *name, const LhObject *after)
{
    LhPartitionRecord *record = record_of(partitions, name);
    const LhPartition *spec = lh_accepted_spec(after, LH_KIND_PARTITION);

    hold(&record->accepted, after);
    lh_partition_room_set_capacity(
        partitions->room, record->seat,
        spec == NULL ? -1 : MIN(spec->capacity_bytes_per_second, LH_PARTITION_MOST));
    touch_users(partitions, record, TRUE);
    drop_record(partitions, record);
    return TRUE;
}

static gboolean fold_accepted(LhPartitions *partitions, const char *name, const LhObject *after)
{
    LhPartitionService *service;
    const char *rest;
    LhKind kind;

    if (!lh_subject_split(name, &kind, &rest))
        return FALSE;
    if (kind == LH_KIND_PARTITION)
        return fold_partition(partitions, rest, after);
    if (kind != LH_KIND_SERVICE)
        return kind == LH_KIND_SETTINGS;
    service = service_of(partitions, rest);
    hold(&service->accepted, after);
    touch_service(partitions, service);
    return TRUE;
}

static gboolean fold_service(LhPartitions *partitions, const char *name, const LhObject *after)
{
    LhPartitionService *service = service_of(partitions, name);
    gboolean matters = (service->desired == NULL) != (after == NULL);

    hold(&service->desired, after);
    touch_service(partitions, service);
    return matters;
}

static gboolean fold_plan(LhPartitions *partitions, const char *name, const LhObject *before,
                          const LhObject *after)
{
    LhPartitionService *service = service_of(partitions, name);

    partitions->unknown_plans += after != NULL && !lh_object_known(after);
    partitions->unknown_plans -= before != NULL && !lh_object_known(before);
    hold(&service->plan, after);
    touch_service(partitions, service);
    return TRUE;
}

static gboolean fold_status(LhPartitions *partitions, const char *name, const LhObject *after)
{
    g_autofree char *subject = NULL;
    const char *controller;
    LhKind kind;

    if (!lh_status_name_split(name, &kind, &subject, &controller) ||
        strcmp(controller, "partition-allocator") != 0)
        return FALSE;
    if (kind == LH_KIND_SERVICE) {
        LhPartitionService *service = service_of(partitions, subject);
        hold(&service->status, after);
        touch_todo(partitions, service);
        drop_service(partitions, service);
    } else if (kind == LH_KIND_PARTITION) {
        LhPartitionRecord *record = record_of(partitions, subject);
        hold(&record->status, after);
        drop_record(partitions, record);
    }
    return TRUE;
}

static gboolean count_snapshot(LhPartitions *partitions, const LhObject *object, int sign)
{
    LhPartitionService *service;

    if (object == NULL)
        return FALSE;
    if (!lh_object_known(object)) {
        partitions->unknown_snapshots += (guint)sign;
        return partitions->unknown_snapshots == 0;
    }
    service = service_of(partitions, ((const LhSnapshot *)object)->service);
    service->snapshots += (guint)sign;
    if (service->snapshots > 0)
        return FALSE;
    drop_service(partitions, service);
    return TRUE;
}

gboolean lh_partitions_fold(LhPartitions *partitions, const LhObject *before, const LhObject *after)
{
    const LhObject *object = after != NULL ? after : before;

    switch ((int)object->kind) {
    case LH_KIND_SERVICE:
        return fold_service(partitions, object->name, after);
    case LH_KIND_ACCEPTED:
        return fold_accepted(partitions, object->name, after);
    case LH_KIND_PARTITIONPLAN:
        return fold_plan(partitions, object->name, before, after);
    case LH_KIND_STATUS:
        return fold_status(partitions, object->name, after);
    case LH_KIND_SNAPSHOT:
        count_snapshot(partitions, after, 1); /* first: the record need not go and come back */
        return count_snapshot(partitions, before, -1);
    default: /* every other kind concerns the pools alone */
        return FALSE;
    }
}

static gint by_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhPartitionService *)a)->name, ((const LhPartitionService *)b)->name);
}

static gint by_start(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhPartitionService *left = a, *right = b;

    if (left->last_start != right->last_start)
        return left->last_start < right->last_start ? -1 : 1;
    return by_name(a, b, data);
}

LhPartitions *lh_partitions_new(void)
{
    LhPartitions *partitions = g_new0(LhPartitions, 1);

    partitions->services = g_hash_table_new(g_str_hash, g_str_equal);
    partitions->partitions = g_hash_table_new(g_str_hash, g_str_equal);
    partitions->room = lh_partition_room_new();
    partitions->todo = g_tree_new_full(by_name, NULL, NULL, NULL);
    partitions->by_start = g_tree_new_full(by_start, NULL, NULL, NULL);
    return partitions;
}

void lh_partitions_free(LhPartitions *partitions)
{
    GHashTableIter iter;
    gpointer at;

    g_tree_unref(partitions->todo);
    g_tree_unref(partitions->by_start);
    lh_partition_room_free(partitions->room);
    g_hash_table_iter_init(&iter, partitions->services);
    while (g_hash_table_iter_next(&iter, NULL, &at)) {
        LhPartitionService *service = at;
        lh_object_unref(service->desired);
        lh_object_unref(service->accepted);
        lh_object_unref(service->plan);
        lh_object_unref(service->status);
        g_array_unref(service->uses);
        g_free(service->name);
        g_free(service);
    }
    g_hash_table_iter_init(&iter, partitions->partitions);
    while (g_hash_table_iter_next(&iter, NULL, &at)) {
        LhPartitionRecord *record = at;
        lh_object_unref(record->accepted);
        lh_object_unref(record->status);
        g_ptr_array_unref(record->users);
        g_free(record->name);
        g_free(record);
    }
    g_hash_table_unref(partitions->services);
    g_hash_table_unref(partitions->partitions);
    g_free(partitions);
}

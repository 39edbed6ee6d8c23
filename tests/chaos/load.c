/*
 * People and publishers: snapshots come and go, services and settings are edited, sometimes wrongly, and
 * brakes are released by those who look after them.
 *
 * A write whose outcome is not known is sent again as it was; while one is under way nothing else is
 * written to its key.
 */
#include "base/units.h"
#include "chaos.h"

#include <string.h>

#define TICK_MS   400
#define AGAIN_MS  200
#define SERVICES  4
#define MOST      56 /* snapshots */
#define HOUR_MS   3600000
#define MAX_FILES 2

#define OLD_SERVICE "svc-old" /* what it publishes is past its retention */

typedef struct {
    guint replicas, window; /* window: in windows[] */
    gboolean second;
} ServiceEdit;

struct Load {
    Chaos *chaos;
    GRand *rand;
    guint tick, made, in_flight;
    GHashTable *busy;     /* keys that are being written */
    GPtrArray *snapshots; /* char*: names of those that are published */
    GHashTable *values;   /* by name */
    ServiceEdit services[SERVICES];
    char *confirmed;                 /* the plan hash */
    char *spoilt_key, *spoilt_value; /* what somebody has written rubbish over, and what it was */
    gint64 mend_ms;
};

static const char *const windows[] = {"6h", "12h", "24h"};

/* ---- writes ---- */

typedef struct {
    Load *load;
    char *key, *value; /* value NULL: it is deleted */
    gboolean create;
    char *snapshot; /* that there is afterwards, and is not deleted by itself; NULL: none */
} Write;

static void write_free(Write *w)
{
    g_hash_table_remove(w->load->busy, w->key);
    w->load->in_flight--;
    g_free(w->key);
    g_free(w->value);
    g_free(w->snapshot);
    g_free(w);
}

static void send_write(Write *w);

static gboolean on_again(gpointer data)
{
    send_write(data);
    return G_SOURCE_REMOVE;
}

static void on_written(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Write *w = data;
    (void)reply;
    if (error != NULL) {
        g_timeout_add(AGAIN_MS, on_again, w);
        return;
    }
    if (w->snapshot != NULL) {
        g_ptr_array_add(w->load->snapshots, g_steal_pointer(&w->snapshot));
    }
    write_free(w);
}

static void send_write(Write *w)
{
    const LhCompare absent = lh_compare_create(w->key, 0);
    const LhTxnOp op = w->value != NULL ? lh_txn_put(w->key, w->value, 0) : lh_txn_delete(w->key);
    lh_etcd_txn(
        w->load->chaos->world->client,
        &(LhTxnRequest){
            .compares = &absent, .n_compares = w->create ? 1 : 0, .success = &op, .n_success = 1},
        on_written, w);
}

/* Takes @value. FALSE: the key is busy. */
static gboolean write_key_as(Load *load, const char *key, char *value, gboolean create,
                             const char *snapshot)
{
    g_autofree char *whole = g_strconcat(PREFIX, key, NULL);
    if (g_hash_table_contains(load->busy, whole)) {
        g_free(value);
        return FALSE;
    }
    Write *w = g_new0(Write, 1);
    w->load = load;
    w->key = g_steal_pointer(&whole);
    w->value = value;
    w->create = create;
    w->snapshot = g_strdup(snapshot);
    g_hash_table_add(load->busy, g_strdup(w->key));
    load->in_flight++;
    send_write(w);
    return TRUE;
}

static gboolean write_key(Load *load, const char *key, char *value, const char *snapshot)
{
    return write_key_as(load, key, value, snapshot != NULL, snapshot);
}

static gint32 below(Load *load, gint32 n)
{
    return g_rand_int_range(load->rand, 0, n);
}

/* ---- snapshots ---- */

const S3File *load_files(const char *name, guint *n)
{
    static S3File files[MAX_FILES] = {{"part-0", 0}, {"part-1", 0}};
    guint hash = g_str_hash(name);
    files[0].bytes = 3000 + hash % 6000;
    files[1].bytes = hash % 7 == 0 ? 1500000 : 40000 + hash % 30000;
    *n = MAX_FILES;
    return files;
}

static void put_files(Load *load, const char *uri, const S3File *files, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = g_strconcat(uri + strlen("s3://" CHAOS_BUCKET "/"), files[i].name,
                                           NULL);
        g_autofree guint8 *data = s3_bytes(uri, &files[i]);
        s3_process_put(load->chaos->s3, CHAOS_BUCKET, key, data, files[i].bytes);
    }
}

/* Ages lie far from where a window ends, so that what is wanted does not change by itself. */
static gint64 choose_end(Load *load)
{
    static const gint64 oldest[] = {2, 10, 20};
    gint64 now_ms = g_get_real_time() / 1000;
    return now_ms - oldest[below(load, 3)] * HOUR_MS + g_rand_int_range(load->rand, 0, HOUR_MS);
}

static void replace_text(cJSON *object, const char *name, const char *text)
{
    cJSON_ReplaceItemInObjectCaseSensitive(object, name, cJSON_CreateString(text));
}

/* @old: past its retention, so that its data is to be deleted. */
static void publish(Load *load, gboolean old)
{
    guint n;
    gint64 end_ms = old ? g_get_real_time() / 1000 - 48 * HOUR_MS : choose_end(load);
    g_autofree char *name = g_strdup_printf("s-%05u", load->made++);
    g_autofree char *service = old ? g_strdup(OLD_SERVICE)
                                   : g_strdup_printf("svc-%d", below(load, SERVICES));
    g_autofree char *uri = g_strdup_printf("s3://" CHAOS_BUCKET "/%s/%s/", service, name);
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
    g_autofree char *start = lh_time_format(end_ms - 60000);
    g_autofree char *end = lh_time_format(end_ms);
    const S3File *files = load_files(name, &n);
    put_files(load, uri, files, n);
    cJSON *snapshot = s3_snapshot(load->chaos->world, uri, files, n);
    replace_text(snapshot, "service", service);
    replace_text(snapshot, "startTime", start);
    replace_text(snapshot, "endTime", end);
    char *printed = cJSON_PrintUnformatted(snapshot);
    if (!old) {
        g_hash_table_replace(load->values, g_strdup(name), g_strdup(printed));
    }
    load->chaos->counters.published += write_key_as(load, key, g_strdup(printed), TRUE,
                                                    old ? NULL : name);
    cJSON_free(printed);
    cJSON_Delete(snapshot);
}

static void retire(Load *load)
{
    if (load->snapshots->len == 0) {
        return;
    }
    guint i = (guint)below(load, (gint32)load->snapshots->len);
    g_autofree char *key = g_strconcat("published/snapshots/", load->snapshots->pdata[i], NULL);
    if (g_strcmp0(key, load->spoilt_key) != 0 && write_key(load, key, NULL, NULL)) {
        g_hash_table_remove(load->values, load->snapshots->pdata[i]);
        g_ptr_array_remove_index_fast(load->snapshots, i);
        load->chaos->counters.retired++;
    }
}

/* Rubbish instead of a snapshot that is live: unknown is not absent, so nothing may happen to it. */
static void spoil(Load *load)
{
    if (load->spoilt_key != NULL || load->snapshots->len == 0) {
        return;
    }
    const char *name = load->snapshots->pdata[below(load, (gint32)load->snapshots->len)];
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
    g_autofree char *value = g_strdup(g_hash_table_lookup(load->values, name));
    if (write_key(load, key, g_strdup("{\"service\":"), NULL)) {
        load->spoilt_key = g_steal_pointer(&key);
        load->spoilt_value = g_steal_pointer(&value);
        load->mend_ms = chaos_ms(load->chaos) + 1500 + below(load, 4000);
        load->chaos->counters.bad_values++;
    }
}

static void mend(Load *load)
{
    if (load->spoilt_key != NULL &&
        write_key(load, load->spoilt_key, g_strdup(load->spoilt_value), NULL)) {
        g_clear_pointer(&load->spoilt_key, g_free);
        g_clear_pointer(&load->spoilt_value, g_free);
    }
}

/* ---- edits ---- */

static gboolean put_service(Load *load, guint i, const char *window)
{
    const ServiceEdit *s = &load->services[i];
    g_autofree char *key = g_strdup_printf("desired/services/svc-%u", i);
    return write_key(
        load, key,
        g_strdup_printf("{\"spec\":{\"owner\":\"team-%u\",\"cache\":{\"window\":\"%s\","
                        "\"replicas\":%u,\"sets\":[\"default\"%s]}}}",
                        i, window, s->replicas, s->second ? ",\"second\"" : ""),
        NULL);
}

static void edit_service(Load *load)
{
    guint i = (guint)below(load, SERVICES);
    ServiceEdit *s = &load->services[i];
    switch (below(load, 3)) {
    case 0:
        s->replicas = 3 - s->replicas;
        break;
    case 1:
        s->second = !s->second;
        break;
    default:
        s->window = (guint)below(load, G_N_ELEMENTS(windows));
        break;
    }
    load->chaos->counters.edits += put_service(load, i, windows[s->window]);
}

/* A window that is longer than the retention, or no JSON at all: what was accepted before stays. */
static void edit_wrongly(Load *load)
{
    guint i = (guint)below(load, SERVICES);
    g_autofree char *key = g_strdup_printf("desired/services/svc-%u", i);
    gboolean written = below(load, 2) == 0 ? put_service(load, i, "30d")
                                           : write_key(load, key, g_strdup("{\"spec\":{"), NULL);
    load->chaos->counters.invalid_edits += written;
}

static void edit_settings(Load *load)
{
    gboolean written = write_key(
        load, "desired/settings/cache-assigner",
        g_strdup_printf("{\"spec\":{\"failureGrace\":\"6s\",\"maxConcurrentLoads\":%d,"
                        "\"strategy\":\"%s\"}}",
                        2 + below(load, 6), below(load, 2) == 0 ? "spread" : "pack"),
        NULL);
    load->chaos->counters.settings_edits += written;
}

void load_confirm(Load *load)
{
    World *world = load->chaos->world;
    g_autoptr(GPtrArray) brakes = lh_mirror_list(world->mirror, LH_KIND_BRAKE);
    for (guint i = 0; i < brakes->len; i++) {
        const LhBrake *brake = brakes->pdata[i];
        /* A Brake that is written again wants to be confirmed again, even of the same plan. */
        g_autofree char *this_one = g_strdup_printf("%s at %" G_GINT64_FORMAT, brake->o.name,
                                                    brake->o.mod_rev);
        if (!lh_object_known(&brake->o) || brake->confirmed_at >= 0 ||
            g_strcmp0(load->confirmed, this_one) == 0) {
            continue;
        }
        g_autofree char *key = g_strconcat("desired/confirmations/", brake->o.name, NULL);
        if (write_key(load, key,
                      g_strdup_printf("{\"spec\":{\"planHash\":\"%s\"}}", brake->plan_hash),
                      NULL)) {
            g_free(load->confirmed);
            load->confirmed = g_steal_pointer(&this_one);
            load->chaos->counters.confirmations++;
        }
    }
}

/* ---- all the time ---- */

static gboolean on_tick(gpointer data)
{
    Load *load = data;
    gint32 dice = below(load, 100);
    if (load->in_flight > 20) {
        return G_SOURCE_CONTINUE;
    }
    if (dice < 56) {
        publish(load, dice < 12);
    } else if (dice < 70 || load->snapshots->len > MOST) {
        retire(load);
    } else if (dice < 84) {
        edit_service(load);
    } else if (dice < 90) {
        spoil(load);
    } else if (dice < 95) {
        edit_wrongly(load);
    } else {
        edit_settings(load);
    }
    if (chaos_ms(load->chaos) >= load->mend_ms) {
        mend(load);
    }
    load_confirm(load);
    return G_SOURCE_CONTINUE;
}

static gboolean is_idle(World *world, gpointer data)
{
    return ((Load *)data)->in_flight == 0;
}

void load_begin(Load *load)
{
    write_key(load, "desired/settings/replica-creator",
              g_strdup("{\"spec\":{\"debounce\":\"200ms\"}}"), NULL);
    write_key(load, "desired/settings/cache-evictor",
              g_strdup("{\"spec\":{\"evictGrace\":\"1s\"}}"), NULL);
    write_key(load, "desired/settings/snapshot-cleaner",
              g_strdup("{\"spec\":{\"buffer\":\"0s\",\"reconcileInterval\":\"5s\","
                       "\"brakePercent\":100}}"),
              NULL);
    /* Who leads in a namespace of its own reaches etcd by links, and no node: probes prove nothing here. */
    write_key(load, "desired/settings/failure-detector",
              g_strdup("{\"spec\":{\"probation\":\"3s\",\"probeMisses\":1000}}"), NULL);
    write_key(load, "desired/services/" OLD_SERVICE,
              g_strdup("{\"spec\":{\"owner\":\"chaos\",\"retention\":\"1h\","
                       "\"cache\":{\"window\":\"10m\"}}}"),
              NULL);
    edit_settings(load);
    for (guint i = 0; i < SERVICES; i++) {
        put_service(load, i, windows[load->services[i].window]);
    }
    for (const char *const *key = crawl_keys(); *key != NULL; key += 2) {
        write_key(load, key[0], g_strdup(key[1]), NULL);
    }
    world_poll(load->chaos->world, is_idle, load, "the first settings are written");
}

Load *load_new(Chaos *chaos)
{
    Load *load = g_new0(Load, 1);
    load->chaos = chaos;
    load->rand = g_rand_new_with_seed((guint32)chaos->options.seed + 1);
    load->busy = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    load->snapshots = g_ptr_array_new_with_free_func(g_free);
    load->values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    for (guint i = 0; i < SERVICES; i++) {
        load->services[i] = (ServiceEdit){.replicas = 1 + i % 2, .window = 2, .second = i == 0};
    }
    return load;
}

void load_start(Load *load)
{
    load->tick = g_timeout_add(TICK_MS, on_tick, load);
}

void load_halt(Load *load)
{
    if (load->tick != 0) {
        g_source_remove(load->tick);
    }
    load->tick = 0;
}

void load_stop(Load *load)
{
    load_halt(load);
    world_poll(load->chaos->world, is_idle, load, "all writes are answered");
    /* The last word is a valid one. */
    mend(load);
    for (guint i = 0; i < SERVICES; i++) {
        put_service(load, i, windows[load->services[i].window]);
    }
    world_poll(load->chaos->world, is_idle, load, "all services are written");
}

void load_free(Load *load)
{
    if (load == NULL) {
        return;
    }
    load_halt(load);
    g_rand_free(load->rand);
    g_hash_table_unref(load->busy);
    g_ptr_array_unref(load->snapshots);
    g_hash_table_unref(load->values);
    g_free(load->spoilt_key);
    g_free(load->spoilt_value);
    g_free(load->confirmed);
    g_free(load);
}

/*
 * Those who search: a thread reads from the agents, all the time, what etcd says can be read there. Bytes
 * that come must be right. An answer other than 200 is wrong if etcd had the search key at that moment, which
 * a read of etcd afterwards shows: it is the same key still, and the agent the same process. An agent that
 * cannot be reached says nothing: it may be dead, or stand still.
 */
#include "chaos.h"

#include <curl/curl.h>
#include <string.h>

#define TICK_MS 250
#define MOST_MS 3000L

struct Reader {
    Chaos *chaos;
    GThreadPool *pool;
    GRand *rand;
    guint tick;
    guint going;
};

typedef struct {
    Reader *reader;
    char *url, *key, *uri;
    gint64 mod_rev;
    const Proc *proc;
    S3File file;
    GString *body;
    long status; /* 0: no answer */
} Read;

static void read_free(Read *r)
{
    r->reader->going--;
    g_free(r->url);
    g_free(r->key);
    g_free(r->uri);
    g_string_free(r->body, TRUE);
    g_free(r);
}

/* ---- on the thread ---- */

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    g_string_append_len(((Read *)user)->body, data, (gssize)(size * n));
    return size * n;
}

static gboolean on_read(gpointer data);

static void fetch(gpointer data, gpointer user_data)
{
    Read *r = data;
    CURL *curl = curl_easy_init();
    (void)user_data;
    curl_easy_setopt(curl, CURLOPT_URL, r->url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, MOST_MS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
    if (curl_easy_perform(curl) == CURLE_OK) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &r->status);
    }
    curl_easy_cleanup(curl);
    g_idle_add(on_read, r);
}

/* ---- on the loop ---- */

static gboolean is_same_process(const Read *r)
{
    return !r->proc->ended;
}

static void on_key(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Read *r = data;
    if (error == NULL && reply->n_kvs == 1 && reply->kvs[0].mod_rev == r->mod_rev &&
        is_same_process(r)) {
        chaos_wrong(r->reader->chaos, "%s is answered with %ld, but etcd has %s", r->url, r->status,
                    r->key);
    }
    read_free(r);
}

static gboolean on_read(gpointer data)
{
    Read *r = data;
    Chaos *chaos = r->reader->chaos;
    if (r->status == 0 || !is_same_process(r)) {
        read_free(r);
        return G_SOURCE_REMOVE;
    }
    if (r->status != 200) {
        lh_etcd_range(chaos->world->client, &(LhRangeRequest){.key = r->key}, on_key, r);
        return G_SOURCE_REMOVE;
    }
    g_autofree guint8 *data_put = s3_bytes(r->uri, &r->file);
    chaos->counters.reads++;
    if (r->body->len != r->file.bytes || memcmp(r->body->str, data_put, r->file.bytes) != 0) {
        chaos_wrong(chaos, "%s: %zu bytes are served, which are not the %zu that were put", r->url,
                    r->body->len, r->file.bytes);
    }
    read_free(r);
    return G_SOURCE_REMOVE;
}

static const Proc *server_of(const Chaos *chaos, const char *url)
{
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        const Proc *proc = chaos->machines[i].proc;
        gsize n = proc->url != NULL ? strlen(proc->url) : 0;
        if (n > 0 && !proc->ended && strncmp(url, proc->url, n) == 0 && url[n] == '/') {
            return proc;
        }
    }
    return NULL;
}

static void read_one(Reader *reader, const LhSearch *search)
{
    const LhSnapshot *snapshot = world_get(reader->chaos->world, LH_KIND_SNAPSHOT, "%s",
                                           search->snapshot);
    const Proc *proc = server_of(reader->chaos, search->url);
    guint n;
    if (snapshot == NULL || !lh_object_known(&snapshot->o) || proc == NULL) {
        return;
    }
    Read *r = g_new0(Read, 1);
    const S3File *files = load_files(search->snapshot, &n);
    r->reader = reader;
    r->file = files[0];
    r->url = g_strconcat(search->url, files[0].name, NULL);
    g_autofree char *key = lh_key(LH_KIND_SEARCH, search->o.name);
    r->key = g_strconcat(PREFIX, key, NULL);
    r->uri = lh_uri_text(&snapshot->uri);
    r->mod_rev = search->o.mod_rev;
    r->proc = proc;
    r->body = g_string_new(NULL);
    reader->going++;
    g_thread_pool_push(reader->pool, r, NULL);
}

static gboolean on_tick(gpointer data)
{
    Reader *reader = data;
    g_autoptr(GPtrArray) all = lh_mirror_list(reader->chaos->world->mirror, LH_KIND_SEARCH);
    if (all->len > 0 && reader->going < 4) {
        const LhSearch *search = all->pdata[g_rand_int_range(reader->rand, 0, (gint32)all->len)];
        if (lh_object_known(&search->o) && search->url != NULL) {
            read_one(reader, search);
        }
    }
    return G_SOURCE_CONTINUE;
}

static gboolean is_idle(World *world, gpointer data)
{
    return ((Reader *)data)->going == 0;
}

Reader *reader_new(Chaos *chaos)
{
    Reader *reader = g_new0(Reader, 1);
    reader->chaos = chaos;
    reader->rand = g_rand_new_with_seed((guint32)chaos->options.seed + 2);
    reader->pool = g_thread_pool_new(fetch, NULL, 2, TRUE, NULL);
    return reader;
}

void reader_start(Reader *reader)
{
    reader->tick = g_timeout_add(TICK_MS, on_tick, reader);
}

void reader_halt(Reader *reader)
{
    if (reader->tick != 0) {
        g_source_remove(reader->tick);
    }
    reader->tick = 0;
}

void reader_stop(Reader *reader)
{
    reader_halt(reader);
    world_poll(reader->chaos->world, is_idle, reader, "all reads have ended");
}

void reader_free(Reader *reader)
{
    if (reader == NULL) {
        return;
    }
    reader_halt(reader);
    g_thread_pool_free(reader->pool, TRUE, TRUE);
    g_rand_free(reader->rand);
    g_free(reader);
}

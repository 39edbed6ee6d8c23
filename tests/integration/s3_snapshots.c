/* The bytes of a file are a stream that its address seeds, so nobody has to keep them. */
#include "s3_snapshots.h"

#include "base/units.h"

#include <string.h>

static gboolean write_secret(const char *path, const char *text)
{
    return g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_CONSISTENT, 0600, NULL);
}

guint8 *s3_bytes(const char *uri, const S3File *file)
{
    g_autofree char *address = g_strconcat(uri, file->name, NULL);
    guint32 seed = g_str_hash(address) | 1;
    guint8 *data = g_malloc(file->bytes + 1);
    for (gsize i = 0; i < file->bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = (guint8)(seed >> 24);
    }
    return data;
}

cJSON *s3_snapshot(World *world, const char *uri, const S3File *files, gsize n)
{
    g_autofree char *start = lh_time_format(world->now_ms - 120000);
    g_autofree char *end = lh_time_format(world->now_ms - 60000);
    cJSON *snapshot = cJSON_CreateObject(), *sums = cJSON_CreateObject();
    gsize total = 0;
    cJSON_AddStringToObject(snapshot, "service", "x");
    cJSON_AddStringToObject(snapshot, "partition", "p0");
    cJSON_AddStringToObject(snapshot, "startTime", start);
    cJSON_AddStringToObject(snapshot, "endTime", end);
    cJSON_AddNumberToObject(snapshot, "maxOffset", 9);
    cJSON_AddStringToObject(snapshot, "uri", uri);
    for (gsize i = 0; i < n; i++) {
        g_autofree guint8 *data = s3_bytes(uri, &files[i]);
        g_autofree char *sum = g_compute_checksum_for_data(G_CHECKSUM_SHA256, data, files[i].bytes);
        cJSON_AddStringToObject(sums, files[i].name, sum);
        total += files[i].bytes;
    }
    cJSON_AddNumberToObject(snapshot, "sizeBytes", (double)total);
    cJSON_AddItemToObject(snapshot, "sha256", sums);
    return snapshot;
}

void s3_publish(World *world, const char *name, cJSON *snapshot)
{
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
    char *value = cJSON_PrintUnformatted(snapshot);
    world_put(world, key, value);
    cJSON_free(value);
    cJSON_Delete(snapshot);
}

/* ---- what nodes serve ---- */

static void check_file(const Identity *who, const char *base, const char *uri, const S3File *file)
{
    g_autofree char *escaped = g_uri_escape_string(file->name, "/", FALSE);
    g_autofree char *url = g_strconcat(base, escaped, NULL);
    g_autofree guint8 *data = s3_bytes(uri, file);
    g_autoptr(Reply) reply = http_send_as(who, "GET", url, NULL, NULL);
    reply_must(reply, 200);
    if (reply->body->len != file->bytes || memcmp(reply->body->str, data, file->bytes) != 0) {
        fail_msg("%s: %zu bytes are served, which are not the %zu that were put", url,
                 reply->body->len, file->bytes);
    }
}

void s3_check_served(World *world, const Identity *who, const char *name, const char *uri,
                     const S3File *files, gsize n, guint nodes)
{
    g_autoptr(GPtrArray) keys = lh_mirror_list(world->mirror, LH_KIND_SEARCH);
    guint found = 0;
    for (guint i = 0; i < keys->len; i++) {
        const LhSearch *search = g_ptr_array_index(keys, i);
        if (!lh_object_known(&search->o) || strcmp(search->snapshot, name) != 0) {
            continue;
        }
        for (gsize j = 0; j < n; j++) {
            check_file(who, search->url, uri, &files[j]);
        }
        found++;
    }
    assert_true(found >= nodes);
}

/* ---- retries ---- */

const LhRetry *s3_retry(World *world, const char *name, const char *set)
{
    const LhRetry *retry = world_get(world, LH_KIND_RETRY, "cache/%s.%s.0", name, set);
    return retry != NULL && lh_object_known(&retry->o) ? retry : NULL;
}

typedef struct {
    const char *name, *set;
    gint64 attempt;
} Wanted;

static gboolean has_retry(World *world, gpointer data)
{
    const Wanted *wanted = data;
    const LhRetry *retry = s3_retry(world, wanted->name, wanted->set);
    return retry != NULL && retry->attempt >= wanted->attempt;
}

const LhRetry *s3_wait_retry(World *world, const char *name, const char *set, gint64 attempt)
{
    Wanted wanted = {name, set, attempt};
    world_wait(world, has_retry, &wanted, "attempt %" G_GINT64_FORMAT " at %s in set %s has failed",
               attempt, name, set);
    return s3_retry(world, name, set);
}

/* ---- agents ---- */

char *s3_secret_file(World *world, const char *name, const char *text)
{
    char *path = g_build_filename(world->dir, name, NULL);
    assert_true(write_secret(path, text));
    return path;
}

Proc *s3_agent(World *world, const char *name, const char *set, const char *endpoint,
               const char *roots, const char *access_file, const char *secret_file)
{
    const char *const extra[] = {"--object-store-roots",
                                 roots,
                                 "--object-store-endpoint",
                                 endpoint,
                                 access_file != NULL ? "--object-store-access-key-file" : NULL,
                                 access_file,
                                 "--object-store-secret-key-file",
                                 secret_file,
                                 NULL};
    return agent_start(world, &(AgentOptions){.name = name, .set = set, .extra = extra});
}

/* ---- secrets ---- */

static void check_text(const char *where, const char *text, gsize len, const char *secret)
{
    if (memmem(text, len, secret, strlen(secret)) != NULL) {
        fail_msg("a secret is in %s", where);
    }
}

static void check_process(const Proc *proc, const char *secret)
{
    g_autofree char *log = proc_log(proc);
    g_autofree char *path = g_strdup_printf("/proc/%s/cmdline", proc->pid_text);
    g_autofree char *arguments = NULL;
    gsize len = 0;
    check_text(proc->log, log, strlen(log), secret);
    if (!proc->ended && g_file_get_contents(path, &arguments, &len, NULL)) {
        assert_true(len > 0);
        check_text(path, arguments, len, secret);
    }
}

void s3_check_secret(World *world, Proc *manager, const char *secret)
{
    g_autoptr(GPtrArray) kvs = world_history(world, 0);
    g_autoptr(Reply) cluster = http(manager, "GET", "/v1/cluster", NULL);
    reply_must(cluster, 200);
    check_text("/v1/cluster", cluster->body->str, cluster->body->len, secret);
    for (guint i = 0; i < world->procs->len; i++) {
        check_process(g_ptr_array_index(world->procs, i), secret);
    }
    assert_true(kvs->len > 0);
    for (guint i = 0; i < kvs->len; i++) {
        const Kv *kv = g_ptr_array_index(kvs, i);
        if (!kv->is_delete) {
            check_text(kv->key, kv->value, kv->len, secret);
        }
    }
}

/*
 * Listing: page after page of ListObjectsV2, each key checked before it may become a local path.
 *
 * A listing is whole or an error. What S3 can hold and a directory cannot (an object "a" beside one
 * "a/b") is an error too.
 */
#include "base/errors.h"
#include "objectstore/beneath.h"
#include "objectstore/objectstore_s3.h"
#include "objectstore/s3_url.h"
#include "objectstore/s3_xml.h"

#include <string.h>

#define MAX_PAGE_BYTES      (16 * 1024 * 1024)
#define MAX_PAGES           10000
#define MAX_COMPONENT_BYTES 255

typedef struct {
    LhStoreTask *task;
    const LhStoreJob *job;
    LhS3Place place;
    GHashTable *names; /* of all entries, owned */
    GHashTable *dirs;  /* of all directories above them, owned */
    gboolean exists;   /* there was an object of its own for the prefix or one below it */
} Listing;

/* NULL: @name may be a file's. */
static const char *name_problem(const char *name)
{
    if (!lh_relative_path_valid(name))
        return "has an empty, \".\" or \"..\" part";
    guint depth = 0;
    gsize component = 0;
    for (const char *at = name; *at != '\0'; at++) {
        component = *at == '/' ? 0 : component + 1;
        depth += *at == '/';
        if (g_ascii_iscntrl(*at))
            return "has a control character";
        if (component > MAX_COMPONENT_BYTES)
            return "has a part of more than 255 bytes";
    }
    return depth > LH_STORE_MAX_DEPTH ? "is more than 32 directories deep" : NULL;
}

static gboolean refuse(const Listing *l, const char *name, const char *why, GError **error)
{
    g_autofree char *shown = g_strdup(name);
    for (char *at = shown; *at != '\0'; at++)
        *at = g_ascii_iscntrl(*at) ? '?' : *at;
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: the key below it \"%.300s\" %s", l->job->uri,
                shown, why);
    return FALSE;
}

/* An object below the prefix; @name is what follows it. */
static gboolean add_object(Listing *l, const char *name, gint64 size, GError **error)
{
    gsize n = strlen(name);
    l->exists = TRUE;
    if (n == 0 || name[n - 1] == '/') { /* a directory that some tool has marked */
        if (size == 0)
            return TRUE;
        return refuse(l, name, "ends with '/', but has data", error);
    }
    const char *problem = name_problem(name);
    if (problem != NULL)
        return refuse(l, name, problem, error);
    if (!g_hash_table_add(l->names, g_strdup(name)))
        return refuse(l, name, "is listed twice", error);
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
        g_hash_table_add(l->dirs, g_strndup(name, (gsize)(slash - name)));
    return lh_task_add_entry(l->task, name, size, error);
}

static gboolean add_page(Listing *l, const LhS3Page *page, GError **error)
{
    gsize skip = strlen(l->place.prefix);
    for (guint i = 0; i < page->objects->len; i++) {
        const LhS3Object *object = g_ptr_array_index(page->objects, i);
        if (!g_str_has_prefix(object->key, l->place.prefix)) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "%s: the listing cannot be used: it has a key that is not below it",
                        l->job->uri);
            return FALSE;
        }
        if (!add_object(l, object->key + skip, object->size, error))
            return FALSE;
    }
    return TRUE;
}

static char *page_query(const Listing *l, const LhS3Tuning *tuning, const char *token)
{
    g_autofree char *max_keys = g_strdup_printf("%u", tuning->max_keys);
    const LhS3Param params[] = {
        {"list-type", "2"},          {"encoding-type", "url"},      {"max-keys", max_keys},
        {"prefix", l->place.prefix}, {"continuation-token", token},
    };
    return lh_s3_query(params, G_N_ELEMENTS(params) - (token == NULL));
}

/* Asks for one page, again while that may help. */
static gboolean get_page(Listing *l, LhS3Session *session, LhS3Exchange *e, LhS3Patience *patience,
                         GError **error)
{
    if (!lh_s3_ask(session, e, patience, l->task, "", error))
        return FALSE;
    if (e->status == 200 && e->body != NULL)
        return TRUE;
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: the answer is no listing (HTTP %ld)",
                l->job->uri, e->status);
    return FALSE;
}

static gboolean list_pages(Listing *l, LhS3Session *session, LhS3Exchange *e,
                           LhS3Patience *patience, GError **error)
{
    g_autofree char *token = NULL;
    for (guint n = 0; n < MAX_PAGES; n++) {
        g_autofree char *query = page_query(l, patience->tuning, token);
        g_auto(LhS3Page) page = {0};
        e->query = query;
        if (!get_page(l, session, e, patience, error))
            return FALSE;
        if (!lh_s3_page_parse(e->body->str, e->body->len, &page, error)) {
            g_prefix_error(error, "%s: ", l->job->uri);
            return FALSE;
        }
        if (!add_page(l, &page, error))
            return FALSE;
        if (page.next_token == NULL)
            return TRUE;
        if (g_strcmp0(page.next_token, token) == 0) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "%s: the listing cannot be used: a page is followed by itself",
                        l->job->uri);
            return FALSE;
        }
        g_free(token);
        token = g_steal_pointer(&page.next_token);
    }
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: its listing has more than %d pages",
                l->job->uri, MAX_PAGES);
    return FALSE;
}

static gboolean check_whole(Listing *l, GError **error)
{
    if (!l->exists) {
        g_set_error(error, LH_ERROR, LH_ERR_NOT_FOUND, "%s: there is no object below it",
                    l->job->uri);
        return FALSE;
    }
    GHashTableIter iter;
    gpointer dir;
    g_hash_table_iter_init(&iter, l->dirs);
    while (g_hash_table_iter_next(&iter, &dir, NULL)) {
        if (g_hash_table_contains(l->names, dir))
            return refuse(l, dir, "is an object, and has objects below it", error);
    }
    return TRUE;
}

gboolean lh_s3_list(LhS3Client *client, LhStoreTask *task, GError **error)
{
    Listing l = {.task = task, .job = lh_task_job(task)};
    if (!lh_s3_place_of(l.job->uri, &l.place, error))
        return FALSE;
    l.names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    l.dirs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    LhS3Patience patience = {
        .tuning = lh_s3_client_tuning(client),
        .rand = g_rand_new_with_seed(l.job->seed),
    };
    LhS3Exchange exchange = {
        .bucket = l.place.bucket,
        .first = -1,
        .body_limit = MAX_PAGE_BYTES,
    };
    LhS3Session *session = lh_s3_session_take(client, task);
    gboolean ok = list_pages(&l, session, &exchange, &patience, error) && check_whole(&l, error);
    lh_s3_exchange_clear(&exchange);
    lh_s3_session_give(session);
    g_rand_free(patience.rand);
    g_hash_table_unref(l.names);
    g_hash_table_unref(l.dirs);
    lh_s3_place_clear(&l.place);
    return ok;
}

/*
 * Work on roots of the s3:// backend: walking, erasing, small objects, the clock.
 *
 * A listing is trusted only as far as it is in order and below its prefix. Erasing lists and deletes, a few
 * at a time, until a listing has nothing more: what is there no more counts as deleted, every other refusal
 * is an error. Must not delete a key that does not begin with the uri's own prefix.
 */
#include "base/errors.h"
#include "objectstore/objectstore_s3.h"
#include "objectstore/s3_url.h"
#include "objectstore/s3_xml.h"

#include <string.h>

#define MAX_PAGE_BYTES (16 * 1024 * 1024)
#define MAX_PASSES     5

#define HTTP_NOT_IMPLEMENTED 501

typedef struct {
    LhStoreTask *task;
    const LhStoreJob *job;
    LhS3Place place; /* of the uri; the prefix may be "" for a root */
    LhS3Session *session;
    LhS3Patience patience;
    char *last; /* key of the listing so far */
} Work;

static gboolean unusable(const Work *w, const char *why, GError **error)
{
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: the listing cannot be used: %s", w->job->uri,
                why);
    return FALSE;
}

/* ---- listing ---- */

/* @flat: a server that heeds no delimiter lists what lies deeper as well, and is not believed. */
static gboolean check_page(Work *w, const LhS3Page *page, gboolean flat, GError **error)
{
    for (guint i = 0; i < page->objects->len; i++) {
        const LhS3Object *object = g_ptr_array_index(page->objects, i);
        if (!g_str_has_prefix(object->key, w->place.prefix))
            return unusable(w, "it has a key that is not below it", error);
        if (flat && strchr(object->key + strlen(w->place.prefix), '/') != NULL)
            return unusable(w, "it has a key that lies deeper than was asked for", error);
        if (w->last != NULL && strcmp(object->key, w->last) <= 0)
            return unusable(w, "its keys are not in order", error);
        g_free(w->last);
        w->last = g_strdup(object->key);
    }
    return TRUE;
}

/* One page; @token NULL: the first. */
static gboolean get_page(Work *w, const char *token, gboolean flat, LhS3Page *out, GError **error)
{
    g_autofree char *max_keys = g_strdup_printf("%u", w->patience.tuning->max_keys);
    LhS3Param params[6] = {{"list-type", "2"}, {"encoding-type", "url"}, {"max-keys", max_keys}};
    gsize n = 3;
    if (*w->place.prefix != '\0')
        params[n++] = (LhS3Param){"prefix", w->place.prefix};
    if (token != NULL)
        params[n++] = (LhS3Param){"continuation-token", token};
    if (flat)
        params[n++] = (LhS3Param){"delimiter", "/"};
    g_autofree char *query = lh_s3_query(params, n);
    LhS3Exchange e = {
        .bucket = w->place.bucket, .query = query, .first = -1, .body_limit = MAX_PAGE_BYTES};
    gboolean ok = lh_s3_ask(w->session, &e, &w->patience, w->task, "", error);
    if (ok && (e.status != 200 || e.body == NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: the answer is no listing (HTTP %ld)",
                    w->job->uri, e.status);
        ok = FALSE;
    } else if (ok && !lh_s3_page_parse(e.body->str, e.body->len, out, error)) {
        g_prefix_error(error, "%s: ", w->job->uri);
        ok = FALSE;
    }
    lh_s3_exchange_clear(&e);
    if (ok && token != NULL && g_strcmp0(out->next_token, token) == 0)
        ok = unusable(w, "a page is followed by itself", error);
    return ok && check_page(w, out, flat, error);
}

/* ---- walk ---- */

static gboolean walk(Work *w, GError **error)
{
    g_autofree char *token = NULL;
    gsize skip = strlen(w->place.prefix);
    do {
        g_auto(LhS3Page) page = {0};
        if (!get_page(w, token, FALSE, &page, error))
            return FALSE;
        for (guint i = 0; i < page.objects->len; i++) {
            const LhS3Object *object = g_ptr_array_index(page.objects, i);
            if (!lh_task_add_object(w->task, object->key + skip, object->size, object->modified_ms,
                                    error))
                return FALSE;
        }
        g_free(token);
        token = g_steal_pointer(&page.next_token);
    } while (token != NULL);
    return TRUE;
}

/* ---- erase ---- */

/* Gone counts as deleted. */
static gboolean deleted(Work *w, const LhS3Exchange *e, GError **error)
{
    gint64 after_ms = 0;
    const char *name = e->key + strlen(w->place.prefix);
    g_autoptr(GError) local = NULL;
    switch (lh_s3_exchange_verdict(e, w->job->uri, name, &after_ms, &local)) {
    case LH_S3_OK:
        return TRUE;
    case LH_S3_AGAIN: { /* by itself, with patience */
        LhS3Exchange again = {.bucket = e->bucket,
                              .key = e->key,
                              .method = "DELETE",
                              .first = -1,
                              .body_limit = 4096};
        g_clear_error(&local);
        gboolean ok = lh_s3_ask(w->session, &again, &w->patience, w->task, name, &local);
        lh_s3_exchange_clear(&again);
        if (ok)
            return TRUE;
        break;
    }
    case LH_S3_FAILED:
        break;
    }
    if (g_error_matches(local, LH_ERROR, LH_ERR_NOT_FOUND))
        return TRUE;
    g_propagate_error(error, g_steal_pointer(&local));
    return FALSE;
}

/* A few side by side. */
static gboolean delete_some(Work *w, GPtrArray *objects, guint from, guint n, GError **error)
{
    LhS3Exchange exchanges[LH_S3_MAX_PARTS];
    guint started = 0, ended = 0;
    gboolean ok = TRUE;
    for (; ok && started < n; started++) {
        const LhS3Object *object = g_ptr_array_index(objects, from + started);
        exchanges[started] = (LhS3Exchange){.bucket = w->place.bucket,
                                            .key = object->key,
                                            .method = "DELETE",
                                            .first = -1,
                                            .body_limit = 4096};
        ok = lh_s3_exchange_start(w->session, &exchanges[started], error);
    }
    while (ok && ended < started && lh_s3_session_run(w->session, G_MAXINT64) != NULL)
        ended++;
    if (ok && lh_task_cancelled(w->task)) {
        g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s: cancelled", w->job->uri);
        ok = FALSE;
    }
    for (guint i = 0; ok && i < started; i++)
        ok = deleted(w, &exchanges[i], error);
    for (guint i = 0; i < started; i++)
        lh_s3_exchange_clear(&exchanges[i]);
    return ok;
}

static gboolean expected(Work *w, const LhS3Page *page, LhStoreKnown *found, GError **error)
{
    for (guint i = 0; i < page->objects->len; i++) {
        const LhS3Object *object = g_ptr_array_index(page->objects, i);
        if (!lh_task_expects(w->task, found, object->key + strlen(w->place.prefix), object->size,
                             object->modified_ms, error))
            return FALSE;
    }
    return TRUE;
}

/* Lists once to the end; with @count, deletes on the way. */
static gboolean erase_pass(Work *w, gboolean flat, gint64 *count, GError **error)
{
    g_autofree char *token = NULL;
    LhStoreKnown found = {0};
    g_clear_pointer(&w->last, g_free);
    do {
        g_auto(LhS3Page) page = {0};
        if (!get_page(w, token, flat, &page, error))
            return FALSE;
        if (flat && !expected(w, &page, &found, error))
            return FALSE;
        for (guint i = 0; count != NULL && i < page.objects->len; i += LH_S3_MAX_PARTS) {
            guint n = MIN(LH_S3_MAX_PARTS, page.objects->len - i);
            if (!delete_some(w, page.objects, i, n, error))
                return FALSE;
            *count += n;
        }
        g_free(token);
        token = g_steal_pointer(&page.next_token);
    } while (token != NULL);
    return TRUE;
}

static gboolean erase(Work *w, gboolean flat, GError **error)
{
    gint64 total = 0;
    g_assert(g_str_has_suffix(w->place.prefix, "/"));
    if (flat && !erase_pass(w, TRUE, NULL, error)) /* all of it is looked at before anything goes */
        return FALSE;
    for (guint pass = 0; pass < MAX_PASSES; pass++) {
        gint64 count = 0;
        if (!erase_pass(w, flat, &count, error))
            return FALSE;
        if (count == 0) {
            lh_task_answer(w->task, total, -1, NULL);
            return TRUE;
        }
        total = pass == 0 ? count : total;
    }
    g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "%s: what was deleted is still listed",
                w->job->uri);
    return FALSE;
}

/* ---- small objects, the clock ---- */

static gboolean ask_small(Work *w, LhS3Exchange *e, GError **error)
{
    const char *over = w->job->over;
    g_autoptr(GError) local = NULL;
    if (over != NULL && *over == '\0')
        e->if_none_match = "*";
    else
        e->if_match = over;
    if (lh_s3_ask(w->session, e, &w->patience, w->task, w->job->name, &local))
        return TRUE;
    if (over != NULL && e->status == HTTP_NOT_IMPLEMENTED) {
        e->if_match = e->if_none_match = NULL;
        return lh_s3_ask(w->session, e, &w->patience, w->task, w->job->name, error);
    }
    g_propagate_error(error, g_steal_pointer(&local));
    return FALSE;
}

static gboolean small(Work *w, GError **error)
{
    gboolean writes = w->job->work == LH_STORE_WRITE;
    g_autofree char *key = g_strconcat(w->place.prefix, w->job->name, NULL);
    LhS3Exchange e = {.bucket = w->place.bucket,
                      .key = key,
                      .method = writes ? "PUT" : NULL,
                      .send = writes ? w->job->text : NULL,
                      .first = -1,
                      .body_limit = LH_STORE_MAX_SMALL};
    gboolean ok = ask_small(w, &e, error);
    if (ok) {
        lh_task_answer(w->task, 1, e.date_s > 0 ? e.date_s * 1000 : -1,
                       writes           ? NULL
                       : e.body == NULL ? g_strdup("")
                                        : g_strdup(e.body->str));
        lh_task_answer_version(w->task, writes ? NULL : g_strdup(e.etag));
    }
    lh_s3_exchange_clear(&e);
    return ok;
}

static gboolean read_clock(Work *w, GError **error)
{
    const LhS3Param params[] = {{"list-type", "2"}, {"max-keys", "1"}, {"prefix", w->place.prefix}};
    g_autofree char *query = lh_s3_query(params, *w->place.prefix != '\0' ? 3 : 2);
    LhS3Exchange e = {
        .bucket = w->place.bucket, .query = query, .first = -1, .body_limit = MAX_PAGE_BYTES};
    gboolean ok = lh_s3_ask(w->session, &e, &w->patience, w->task, "", error);
    if (ok && e.date_s <= 0) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: the server does not say its Date",
                    w->job->uri);
        ok = FALSE;
    } else if (ok) {
        lh_task_answer(w->task, -1, e.date_s * 1000, NULL);
    }
    lh_s3_exchange_clear(&e);
    return ok;
}

static gboolean work(Work *w, GError **error)
{
    switch (w->job->work) {
    case LH_STORE_WALK:
        return walk(w, error);
    case LH_STORE_ERASE:
        return erase(w, FALSE, error);
    case LH_STORE_ERASE_FLAT:
        return erase(w, TRUE, error);
    case LH_STORE_READ:
    case LH_STORE_WRITE:
        return small(w, error);
    case LH_STORE_CLOCK:
        return read_clock(w, error);
    }
    g_assert_not_reached();
}

gboolean lh_s3_work(LhS3Client *client, LhStoreTask *task, GError **error)
{
    Work w = {.task = task, .job = lh_task_job(task)};
    if (!lh_s3_place_of(w.job->uri, &w.place, error))
        return FALSE;
    w.patience = (LhS3Patience){.tuning = lh_s3_client_tuning(client),
                                .rand = g_rand_new_with_seed(w.job->seed)};
    w.session = lh_s3_session_take(client, task);
    gboolean ok = work(&w, error);
    lh_s3_session_give(w.session);
    g_rand_free(w.patience.rand);
    g_free(w.last);
    lh_s3_place_clear(&w.place);
    return ok;
}

/*
 * Listing: page after page of ListObjectsV2. A listing is whole or an error; what its keys may be as local
 * paths is s3_names.c's.
 */
#include "base/errors.h"
#include "objectstore/objectstore_s3.h"
#include "objectstore/s3_names.h"
#include "objectstore/s3_url.h"
#include "objectstore/s3_xml.h"

#define MAX_PAGE_BYTES (16 * 1024 * 1024)
#define MAX_PAGES      10000

typedef struct {
    LhStoreTask *task;
    const LhStoreJob *job;
    LhS3Place place;
    LhS3Names *names;
} Listing;

static gboolean add_entry(const char *name, gint64 size, gpointer data, GError **error)
{
    return lh_task_add_entry(data, name, size, error);
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

static gboolean cancelled(const LhStoreJob *job, GError **error)
{
    g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s: cancelled", job->uri);
    return FALSE;
}

/* Asks for one page, again while that may help. */
static gboolean get_page(Listing *l, LhS3Session *session, LhS3Exchange *e, LhS3Patience *patience,
                         GError **error)
{
    patience->failures = 0;
    for (;;) {
        gint64 after_ms = 0;
        g_autoptr(GError) local = NULL;
        if (!lh_s3_exchange_start(session, e, error))
            return FALSE;
        if (lh_s3_session_run(session, G_MAXINT64) == NULL)
            return cancelled(l->job, error);
        LhS3Verdict verdict = lh_s3_exchange_verdict(e, l->job->uri, "", &after_ms, &local);
        if (verdict == LH_S3_OK && (e->status != 200 || e->body == NULL))
            g_set_error(&local, LH_ERROR, LH_ERR_INVALID, "%s: the answer is no listing (HTTP %ld)",
                        l->job->uri, e->status);
        else if (verdict == LH_S3_OK)
            return TRUE;
        gint64 until = 0;
        if (verdict == LH_S3_AGAIN)
            until = lh_s3_patience_next(patience, after_ms, &local);
        if (until == 0) {
            g_propagate_error(error, g_steal_pointer(&local));
            return FALSE;
        }
        lh_s3_session_run(session, until);
        if (lh_task_cancelled(l->task))
            return cancelled(l->job, error);
    }
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
        if (!lh_s3_names_add(l->names, &page, add_entry, l->task, error))
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

gboolean lh_s3_list(LhS3Client *client, LhStoreTask *task, GError **error)
{
    Listing l = {.task = task, .job = lh_task_job(task)};
    if (!lh_s3_place_of(l.job->uri, &l.place, error))
        return FALSE;
    l.names = lh_s3_names_new(l.job->uri, l.place.prefix);
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
    gboolean ok = list_pages(&l, session, &exchange, &patience, error) &&
                  lh_s3_names_end(l.names, error);
    lh_s3_exchange_clear(&exchange);
    lh_s3_session_give(session);
    g_rand_free(patience.rand);
    lh_s3_names_free(l.names);
    lh_s3_place_clear(&l.place);
    return ok;
}

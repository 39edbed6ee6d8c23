/*
 * A list in pages: the first page fixes the revision, every later page asks for that revision.
 *
 * The next page is asked for before the present one is handed over, so that etcd works while the owner
 * parses. A page that fails in a way that passes by itself is asked for again, with backoff; the list
 * as a whole is not, because a list that failed must never look like a short one.
 */
#include "etcd/list.h"

#include "base/errors.h"

#include <string.h>

/* Values may have 64 KiB: the first page is small, the others have as many keys as make a page. etcd
 * 3.4 walks all keys that remain for each page, so small pages of a large range are quadratic. */
#define FIRST_PAGE_KEYS  10000
#define FEWEST_PAGE_KEYS 1000
#define MOST_PAGE_KEYS   250000
#define PAGE_BYTES       (64 * 1024 * 1024)
#define PAGE_DEADLINE_MS 30000
#define MAX_ATTEMPTS     6 /* of one page: about 5 s of backoff */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_CAP_MS   5000
#define MAX_RESTARTS     5

struct LhList {
    LhEnv *env;
    LhEtcd *etcd;
    char *prefix, *range_end;
    char *from;     /* where the present page begins */
    char *last_key; /* the greatest key that was handed over, NULL: none; may hold any bytes */
    gsize last_key_len;
    gint64 wanted_revision, page_keys;
    gboolean adapt;      /* page_keys */
    LhEtcdHeader header; /* of the first page; revision 0: not yet */
    guint attempt, restarts;
    gboolean cancelled, in_callback;
    LhCallId call;
    LhTimer *timer;
    LhListFuncs funcs;
    gpointer data;
};

static void ask(LhList *list);

static void set_from(LhList *list, const char *key)
{
    g_free(list->from);
    list->from = g_strdup(key);
}

static void list_free(LhList *list)
{
    lh_etcd_cancel(list->etcd, &list->call);
    lh_timer_clear(list->env, &list->timer);
    g_free(list->prefix);
    g_free(list->range_end);
    g_free(list->from);
    g_free(list->last_key);
    g_free(list);
}

static void finish(LhList *list, const GError *error)
{
    LhListFuncs funcs = list->funcs;
    gpointer data = list->data;
    LhEtcdHeader header = list->header;
    list_free(list);
    funcs.done(error == NULL ? &header : NULL, error, data);
}

static void finish_new(LhList *list, LhErrorCode code, const char *message)
{
    g_autoptr(GError) error = g_error_new(LH_ERROR, (gint)code, "list of %s: %s", list->prefix,
                                          message);
    finish(list, error);
}

static void on_timer(gpointer data)
{
    LhList *list = data;
    list->timer = NULL;
    ask(list);
}

static int compare_bytes(const char *a, gsize a_len, const char *b, gsize b_len)
{
    int order = memcmp(a, b, MIN(a_len, b_len));
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

/* A page begins with the last key of the one before: a key that follows it directly ("…\0") cannot be
 * written as a string. */
static gsize count_known(const LhList *list, const LhRangeReply *reply)
{
    gsize n = 0;
    while (list->last_key != NULL && n < reply->n_kvs &&
           compare_bytes(reply->kvs[n].key, reply->kvs[n].key_len, list->last_key,
                         list->last_key_len) <= 0)
        n++;
    return n;
}

static void adapt_page(LhList *list, const LhKv *kvs, gsize n)
{
    gsize sum = 0;
    for (gsize i = 0; i < n; i++)
        sum += kvs[i].key_len + kvs[i].value_len + sizeof *kvs;
    gint64 keys = (gint64)(PAGE_BYTES / (sum / n));
    list->page_keys = CLAMP(keys, FEWEST_PAGE_KEYS, MOST_PAGE_KEYS);
}

static void start_over(LhList *list, const GError *error)
{
    if (list->wanted_revision != 0 || list->restarts == MAX_RESTARTS) {
        finish(list, error);
        return;
    }
    list->restarts++;
    gboolean had_pages = list->last_key != NULL;
    list->header = (LhEtcdHeader){0};
    g_clear_pointer(&list->last_key, g_free);
    set_from(list, list->prefix);
    ask(list);
    if (had_pages && list->funcs.restart != NULL)
        list->funcs.restart(list->data);
}

static void failed(LhList *list, const GError *error)
{
    if (g_error_matches(error, LH_ERROR, LH_ERR_COMPACTED)) {
        start_over(list, error);
    } else if (lh_gerror_class(error) == LH_CLASS_RETRY && ++list->attempt < MAX_ATTEMPTS) {
        gint64 delay_ms = lh_backoff_ms(list->env, list->attempt - 1, BACKOFF_FIRST_MS,
                                        BACKOFF_CAP_MS);
        list->timer = lh_timer_in(list->env, delay_ms, on_timer, list);
    } else {
        finish(list, error);
    }
}

static void on_page(const LhRangeReply *reply, const GError *error, gpointer data)
{
    LhList *list = data;
    list->call = 0;
    if (error != NULL) {
        failed(list, error);
        return;
    }
    gboolean first = list->header.revision == 0;
    if (!first && reply->header.cluster_id != list->header.cluster_id) {
        finish_new(list, LH_ERR_UNAVAILABLE, "another cluster answers");
        return;
    }
    if (first) {
        list->header = reply->header;
        if (list->wanted_revision != 0)
            list->header.revision = list->wanted_revision;
    }
    gsize known = count_known(list, reply);
    gsize n = reply->n_kvs - known;
    if (reply->more && n == 0) {
        finish_new(list, LH_ERR_INTERNAL, "a page brought no new key");
        return;
    }
    list->attempt = 0;
    if (reply->more) {
        const LhKv *last = &reply->kvs[reply->n_kvs - 1];
        g_free(list->last_key);
        list->last_key = g_memdup2(last->key, last->key_len + 1);
        list->last_key_len = last->key_len;
        if (list->adapt)
            adapt_page(list, reply->kvs, reply->n_kvs);
        set_from(list, list->last_key);
        ask(list);
    }
    gboolean more = reply->more;
    if (n > 0) {
        list->in_callback = TRUE;
        list->funcs.page(reply->kvs + known, n, list->data);
        list->in_callback = FALSE;
    }
    if (list->cancelled)
        list_free(list);
    else if (!more)
        finish(list, NULL);
}

static void ask(LhList *list)
{
    /* One more than a page for the key that is known already. */
    LhRangeRequest request = {.key = list->from,
                              .range_end = list->range_end,
                              .revision = list->header.revision != 0 ? list->header.revision
                                                                     : list->wanted_revision,
                              .limit = list->page_keys + (list->last_key != NULL)};
    list->call = list->etcd->v->range(list->etcd, &request, PAGE_DEADLINE_MS, on_page, list);
}

LhList *lh_list_start(LhEnv *env, LhEtcd *etcd, const char *prefix, gint64 revision,
                      gint64 page_keys, const LhListFuncs *funcs, gpointer data)
{
    LhList *list = g_new0(LhList, 1);
    list->env = env;
    list->etcd = etcd;
    list->prefix = g_strdup(prefix);
    list->range_end = lh_etcd_prefix_end(prefix);
    list->from = g_strdup(prefix);
    list->wanted_revision = revision;
    list->page_keys = page_keys > 0 ? page_keys : FIRST_PAGE_KEYS;
    list->adapt = page_keys <= 0;
    list->funcs = *funcs;
    list->data = data;
    ask(list);
    return list;
}

void lh_list_cancel(LhList *list)
{
    if (list == NULL)
        return;
    if (!list->in_callback) {
        list_free(list);
        return;
    }
    list->cancelled = TRUE;
    lh_etcd_cancel(list->etcd, &list->call);
}

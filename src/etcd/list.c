/*
 * A list in pages: the first page fixes the revision, every later page asks for that revision.
 *
 * The next page is asked for before the present one is handed over, and a large page is handed over in
 * slices, between which the loop runs: so etcd, the thread that decodes, and the owner work at the same time,
 * and timers are not kept waiting. etcd 3.4 walks all keys of the range for each page of it: so a page of
 * many has an end, guessed from the keys of the one before; a bad guess costs a request. A page that fails in a way that passes by itself is asked for again, with backoff; the list
 * as a whole is not, because a list that failed must never look like a short one.
 */
#include "etcd/list.h"

#include "base/errors.h"

#include <string.h>

/* Values may have 64 KiB: the first page is small, the others have as many keys as make a page. */
#define FIRST_PAGE_KEYS  10000
#define FEWEST_PAGE_KEYS 1000
#define MOST_PAGE_KEYS   250000
#define PAGE_BYTES       (32 * 1024 * 1024)
#define SLICE_KEYS       512
#define GUESS_FROM_KEYS  1000 /* fewer in a page, and the rest is asked for without an end */
#define PAGE_DEADLINE_MS 30000
#define MAX_ATTEMPTS     6 /* of one page: about 5 s of backoff */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_CAP_MS   5000
#define MAX_RESTARTS     5

/* A copy of what is still to be handed over of a page. */
typedef struct Page Page;
struct Page {
    Page *next;
    gsize room; /* bytes */
    gsize n, at;
    LhKv kvs[]; /* their keys and values follow */
};

struct LhList {
    LhEnv *env;
    LhEtcd *etcd;
    char *prefix, *range_end;
    char *from;     /* where the present page begins */
    char *to;       /* where it ends; NULL: range_end */
    gsize level;    /* the byte of a key, with the one behind it, that the guess counts in */
    guint step;     /* by how much */
    guint gaps;     /* pages of few keys, one after another */
    gint64 left;    /* keys, as the first page counted them: a hint */
    char *last_key; /* the greatest key that was handed over, NULL: none; may hold any bytes */
    gsize last_key_len;
    gint64 wanted_revision, page_keys;
    gboolean adapt;      /* page_keys */
    LhEtcdHeader header; /* of the first page; revision 0: not yet */
    guint attempt, restarts;
    gboolean cancelled, in_callback;
    LhCallId call;
    LhTimer *timer;
    Page *pages, **pages_tail; /* two at most */
    Page *spare;               /* the last one that was handed over: memory for the next */
    LhTimer *pump;             /* while there are any */
    gboolean owed;             /* a page has to be asked for when one has been handed over */
    gboolean complete;
    LhListFuncs funcs;
    gpointer data;
};

static void ask(LhList *list);

static void set_text(char **text, const char *to)
{
    g_free(*text);
    *text = g_strdup(to);
}

static void drop_pages(LhList *list)
{
    for (Page *page = NULL; (page = list->pages) != NULL;) {
        list->pages = page->next;
        g_free(page);
    }
    list->pages_tail = &list->pages;
    lh_timer_clear(list->env, &list->pump);
}

static void list_free(LhList *list)
{
    lh_etcd_cancel(list->etcd, &list->call);
    lh_timer_clear(list->env, &list->timer);
    drop_pages(list);
    g_free(list->spare);
    g_free(list->to);
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
    set_text(&list->from, list->prefix);
    g_clear_pointer(&list->to, g_free);
    list->owed = FALSE;
    drop_pages(list);
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

/* --- where the next page ends --- */

static guint value_at(const char *key, gsize level)
{
    gsize len = strlen(key);
    return (guint)(level < len ? (guchar)key[level] : 0) * 256 +
           (level + 1 < len ? (guchar)key[level + 1] : 0);
}

/* A page tells how keys lie, at the first byte in which those of its second half differ: about as many as make
 * three quarters of a page then lie within one step. */
static void learn(LhList *list, const LhKv *kvs, gsize n)
{
    const char *first = kvs[n / 2].key, *last = kvs[n - 1].key;
    gsize level = 0;
    while (first[level] != '\0' && first[level] == last[level])
        level++;
    guint span = value_at(last, level) - value_at(first, level);
    guint64 step = (guint64)span * (guint64)list->page_keys * 3 / 4 / (n - n / 2);
    list->level = level;
    list->step = (guint)CLAMP(step, 1, 0xffff);
}

/* The next page begins at @from. */
static void guess_end(LhList *list, const char *from)
{
    g_clear_pointer(&list->to, g_free);
    list->level = MIN(list->level, strlen(from) - 1);
    if (list->level < strlen(list->prefix))
        return;
    guint end = value_at(from, list->level) + list->step;
    if (end > 0xffff)
        return;
    GString *to = g_string_new_len(from, (gssize)list->level);
    g_string_append_c(to, (char)(end >> 8));
    if ((end & 0xff) != 0)
        g_string_append_c(to, (char)(end & 0xff));
    list->to = g_string_free(to, FALSE);
    if (strcmp(list->to, from) <= 0)
        g_clear_pointer(&list->to, g_free);
}

/* --- handing over --- */

static void hand_over(LhList *list, const LhKv *kvs, gsize n)
{
    list->in_callback = TRUE;
    list->funcs.page(kvs, n, list->data);
    list->in_callback = FALSE;
}

static void on_pump(gpointer data)
{
    LhList *list = data;
    Page *page = list->pages;
    list->pump = NULL;
    gsize n = MIN(page->n - page->at, SLICE_KEYS);
    page->at += n;
    hand_over(list, page->kvs + page->at - n, n);
    if (list->cancelled) {
        list_free(list);
        return;
    }
    if (page->at == page->n) {
        list->pages = page->next;
        if (list->pages == NULL)
            list->pages_tail = &list->pages;
        g_free(list->spare);
        list->spare = page;
        if (list->owed) {
            list->owed = FALSE;
            ask(list);
        }
    }
    if (list->pages != NULL)
        list->pump = lh_timer_in(list->env, 0, on_pump, list);
    else if (list->complete)
        finish(list, NULL);
}

static char *copy_text(char **at, const char *text, gsize len)
{
    char *copy = memcpy(*at, text, len);
    copy[len] = '\0';
    *at += len + 1;
    return copy;
}

static void queue_page(LhList *list, const LhKv *kvs, gsize n)
{
    gsize size = sizeof(Page) + n * sizeof *kvs;
    for (gsize i = 0; i < n; i++)
        size += kvs[i].key_len + kvs[i].value_len + 2;
    Page *page = g_steal_pointer(&list->spare);
    if (page == NULL || page->room < size) {
        g_free(page);
        page = g_malloc(size);
        page->room = size;
    }
    *page = (Page){.room = page->room, .n = n};
    char *at = (char *)(page->kvs + n);
    for (gsize i = 0; i < n; i++) {
        page->kvs[i] = kvs[i];
        page->kvs[i].key = copy_text(&at, kvs[i].key, kvs[i].key_len);
        page->kvs[i].value = copy_text(&at, kvs[i].value, kvs[i].value_len);
    }
    *list->pages_tail = page;
    list->pages_tail = &page->next;
    if (list->pump == NULL)
        list->pump = lh_timer_in(list->env, 0, on_pump, list);
}

/* --- a page has come --- */

/* Begins and ends the next page, after this one. */
static void move_on(LhList *list, const LhRangeReply *reply)
{
    g_autofree char *from = g_strdup(reply->more ? list->last_key : list->to);
    gint64 n = (gint64)reply->n_kvs, rest = reply->count - n;
    if (list->adapt && n > 0)
        adapt_page(list, reply->kvs, reply->n_kvs);
    if (list->left < list->page_keys) {
        g_clear_pointer(&list->to, g_free);
    } else if (reply->more && list->adapt && rest > list->page_keys * 2 && n >= GUESS_FROM_KEYS) {
        learn(list, reply->kvs, reply->n_kvs);
        guess_end(list, from);
    } else if (!reply->more) {
        /* In a gap the guess counts in the byte before, after two steps in each. */
        list->gaps = reply->count < list->page_keys / 8 ? list->gaps + 1 : 0;
        list->level -= list->gaps % 2 == 1 && list->level > 0;
        list->step = list->gaps > 0 ? 1 : list->step;
        guess_end(list, from);
    }
    set_text(&list->from, from);
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
        list->left = reply->count;
    }
    gsize known = count_known(list, reply);
    gsize n = reply->n_kvs - known;
    if (reply->more && n == 0) {
        finish_new(list, LH_ERR_INTERNAL, "a page brought no new key");
        return;
    }
    list->attempt = 0;
    list->left -= (gint64)n;
    if (reply->n_kvs > 0) {
        const LhKv *last = &reply->kvs[reply->n_kvs - 1];
        g_free(list->last_key);
        list->last_key = g_memdup2(last->key, last->key_len + 1);
        list->last_key_len = last->key_len;
    }
    gboolean complete = !reply->more && list->to == NULL;
    if (!complete) {
        move_on(list, reply);
        list->owed = list->pages != NULL; /* the page before this one is still being handed over */
        if (!list->owed)
            ask(list);
    }
    if (n > SLICE_KEYS || (n > 0 && list->pages != NULL)) {
        queue_page(list, reply->kvs + known, n);
        list->complete = complete;
        return;
    }
    if (n > 0)
        hand_over(list, reply->kvs + known, n);
    list->complete = complete;
    if (list->cancelled)
        list_free(list);
    else if (complete && list->pages == NULL)
        finish(list, NULL);
}

static void ask(LhList *list)
{
    /* One more than a page for the key that is known already. */
    LhRangeRequest request = {.key = list->from,
                              .range_end = list->to != NULL ? list->to : list->range_end,
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
    list->pages_tail = &list->pages;
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

/*
 * Grants as a ring of (time, number), oldest first:
 *
 *   head … first … tail      before `first`: not counted any more; kept while there is room, for a policy
 *                            that is given a longer period
 *
 * A grant at t, as the clock is cut to milliseconds, counts while now <= t + period: then no window of that
 * length holds it and a later one, wherever within their milliseconds they lay. What leaves the ring raises
 * `forgot_ms`: of anything up to then nothing is known, and no permit is granted while a period reaches back
 * so far. A limiter that begins without knowledge is one that has just forgotten all.
 */
#include "agent/permits.h"

#include <string.h>

#define FIRST_ROOM 64 /* a power of two, doubled */
#define MOST_ROOM  16384
#define PARTS      4096 /* of a period, when times are not exact */
#define NEVER      G_MININT64

typedef struct {
    gint64 time_ms, n;
} Grant;

typedef struct {
    guint64 id;
    gint64 time_ms;
    char *seed, *worker; /* interned GRefString; worker may be NULL */
    GList link;
} Permit;

struct LhPermits {
    LhPermitLimits limits;
    LhPermitsRandom random;
    gpointer data;
    gint64 now_ms;

    Grant *ring;
    guint room, head, length;
    guint first;    /* from head on */
    gint64 counted; /* from first on */
    gint64 forgot_ms;

    GHashTable *by_id; /* Permit */
    GQueue order;      /* the same, oldest first */
    GArray *handed;    /* of Grant, oldest first: held by permits of holders before */
    gint64 handed_n;   /* of them */
    gint64 held_forgot_ms;
};

/* ---- the ring ---- */

static Grant *at(const LhPermits *p, guint i)
{
    return &p->ring[(p->head + i) & (p->room - 1)];
}

static void drop_oldest(LhPermits *p)
{
    p->forgot_ms = MAX(p->forgot_ms, at(p, 0)->time_ms);
    p->head = (p->head + 1) & (p->room - 1);
    p->length--;
    p->first--;
}

static void grow(LhPermits *p)
{
    guint room = p->room * 2;
    Grant *ring = g_new(Grant, room);
    for (guint i = 0; i < p->length; i++)
        ring[i] = *at(p, i);
    g_free(p->ring);
    p->ring = ring;
    p->room = room;
    p->head = 0;
}

/* Two become one, as late as the later. */
static void join_oldest(LhPermits *p)
{
    at(p, 1)->n += at(p, 0)->n;
    p->head = (p->head + 1) & (p->room - 1);
    p->length--;
}

static void make_room(LhPermits *p)
{
    if (p->length < p->room)
        return;
    if (p->first > 0)
        drop_oldest(p);
    else if (p->room < MOST_ROOM)
        grow(p);
    else
        join_oldest(p);
}

/* Not before the last: what would be is counted as late as that. */
static void push(LhPermits *p, gint64 time_ms, gint64 n)
{
    Grant *last = p->length > 0 ? at(p, p->length - 1) : NULL;
    p->counted += n;
    if (last != NULL && last->time_ms >= time_ms) {
        last->n += n; /* it is counted: it is not older than what is granted now */
        return;
    }
    make_room(p);
    *at(p, p->length++) = (Grant){.time_ms = time_ms, .n = n};
}

/* Beyond what is exact: up to the next of PARTS parts of the period. */
static gint64 rounded_up(const LhPermits *p, gint64 time_ms)
{
    gint64 part = p->limits.requests > LH_PERMITS_EXACT ? p->limits.period_ms / PARTS : 1;
    return part <= 1 ? time_ms : (time_ms / part + 1) * part;
}

static void forget_grants(LhPermits *p)
{
    while (p->first < p->length && at(p, p->first)->time_ms + p->limits.period_ms < p->now_ms)
        p->counted -= at(p, p->first++)->n;
}

static void count_anew(LhPermits *p)
{
    p->first = 0;
    p->counted = 0;
    for (guint i = 0; i < p->length; i++)
        p->counted += at(p, i)->n;
    forget_grants(p);
}

/* ---- what is out ---- */

static void permit_free(LhPermits *p, Permit *permit)
{
    g_hash_table_remove(p->by_id, &permit->id);
    g_queue_unlink(&p->order, &permit->link);
    g_ref_string_release(permit->seed);
    if (permit->worker != NULL)
        g_ref_string_release(permit->worker);
    g_free(permit);
}

static Permit *oldest(const LhPermits *p)
{
    return p->order.head != NULL ? p->order.head->data : NULL;
}

static void end_permits(LhPermits *p)
{
    gint64 before = p->now_ms - LH_PERMIT_LIFE_MS;
    while (oldest(p) != NULL && oldest(p)->time_ms < before)
        permit_free(p, oldest(p));
    guint ended = 0;
    for (; ended < p->handed->len; ended++) {
        const Grant *grant = &g_array_index(p->handed, Grant, ended);
        if (grant->time_ms >= before)
            break;
        p->handed_n -= grant->n;
    }
    if (ended > 0)
        g_array_remove_range(p->handed, 0, ended);
}

static gint64 in_use(const LhPermits *p)
{
    return p->order.length + p->handed_n;
}

static guint64 new_id(LhPermits *p)
{
    guint64 id = 0;
    while (id == 0 || g_hash_table_contains(p->by_id, &id))
        id = p->random(p->data);
    return id;
}

static guint64 permit_new(LhPermits *p, char *seed, char *worker)
{
    if (p->limits.max_concurrent == 0 && p->order.length >= LH_PERMITS_LOOSE) {
        p->held_forgot_ms = MAX(p->held_forgot_ms, oldest(p)->time_ms);
        permit_free(p, oldest(p));
    }
    Permit *permit = g_new0(Permit, 1);
    permit->id = new_id(p);
    permit->time_ms = p->now_ms;
    permit->seed = g_ref_string_acquire(seed);
    permit->worker = worker != NULL ? g_ref_string_acquire(worker) : NULL;
    permit->link.data = permit;
    g_queue_push_tail_link(&p->order, &permit->link);
    g_hash_table_insert(p->by_id, &permit->id, permit);
    return permit->id;
}

static void advance(LhPermits *p, gint64 now_ms)
{
    p->now_ms = MAX(p->now_ms, now_ms);
    forget_grants(p);
    end_permits(p);
}

/* ---- granting ---- */

/* When what is counted of @forgot_ms and before ends; 0 or less: it does not count any more. */
static gint64 blind_for(const LhPermits *p, gint64 forgot_ms, gint64 span_ms)
{
    return forgot_ms == NEVER ? 0 : forgot_ms + span_ms + 1 - p->now_ms;
}

/* Until the sliding window has room for one. */
static gint64 window_wait(const LhPermits *p)
{
    if (p->limits.requests == 0)
        return 0;
    gint64 wait = MAX(0, blind_for(p, p->forgot_ms, p->limits.period_ms));
    gint64 left = p->counted;
    for (guint i = p->first; i < p->length && left >= p->limits.requests; i++) {
        left -= at(p, i)->n;
        wait = MAX(wait, at(p, i)->time_ms + p->limits.period_ms + 1 - p->now_ms);
    }
    return wait;
}

/* Until a slot is free by itself. Those that were handed over and those of our own end in their order. */
static gint64 slot_wait(const LhPermits *p)
{
    if (p->limits.max_concurrent == 0)
        return 0;
    gint64 wait = MAX(0, blind_for(p, p->held_forgot_ms, LH_PERMIT_LIFE_MS));
    gint64 left = in_use(p);
    const GList *own = p->order.head;
    guint handed = 0;
    while (left >= p->limits.max_concurrent && (handed < p->handed->len || own != NULL)) {
        const Permit *permit = own != NULL ? own->data : NULL;
        const Grant *grant = handed < p->handed->len ? &g_array_index(p->handed, Grant, handed)
                                                     : NULL;
        gint64 time_ms;
        if (grant != NULL && (permit == NULL || grant->time_ms <= permit->time_ms)) {
            time_ms = grant->time_ms;
            left -= grant->n;
            handed++;
        } else {
            g_assert(permit != NULL);
            time_ms = permit->time_ms;
            left--;
            own = own->next;
        }
        wait = MAX(wait, time_ms + LH_PERMIT_LIFE_MS + 1 - p->now_ms);
    }
    return wait;
}

static gint64 free_now(const LhPermits *p)
{
    gint64 n = LH_PERMITS_AT_ONCE;
    if (p->limits.requests > 0)
        n = blind_for(p, p->forgot_ms, p->limits.period_ms) > 0
                ? 0
                : MIN(n, p->limits.requests - p->counted);
    if (p->limits.max_concurrent > 0)
        n = blind_for(p, p->held_forgot_ms, LH_PERMIT_LIFE_MS) > 0
                ? 0
                : MIN(n, p->limits.max_concurrent - in_use(p));
    return MAX(n, 0);
}

static void remember(LhPermits *p, guint n)
{
    if (p->limits.requests > 0)
        push(p, rounded_up(p, p->now_ms), n);
    else /* nobody counts them; whoever will, does not know */
        p->forgot_ms = p->now_ms;
}

guint lh_permits_take(LhPermits *p, const char *seed, const char *worker, guint n, gint64 now_ms,
                      guint64 *ids, gint64 *retry_ms)
{
    advance(p, now_ms);
    guint granted = (guint)MIN((gint64)n, free_now(p));
    if (granted > 0) {
        char *seed_ref = g_ref_string_new_intern(seed);
        char *worker_ref = worker != NULL ? g_ref_string_new_intern(worker) : NULL;
        for (guint i = 0; i < granted; i++)
            ids[i] = permit_new(p, seed_ref, worker_ref);
        g_ref_string_release(seed_ref);
        if (worker_ref != NULL)
            g_ref_string_release(worker_ref);
        remember(p, granted);
    }
    *retry_ms = MAX(window_wait(p), slot_wait(p));
    return granted;
}

gboolean lh_permits_return(LhPermits *p, const char *seed, guint64 id, gint64 now_ms)
{
    advance(p, now_ms);
    Permit *permit = g_hash_table_lookup(p->by_id, &id);
    if (permit == NULL || strcmp(permit->seed, seed) != 0)
        return FALSE;
    permit_free(p, permit);
    return TRUE;
}

guint lh_permits_take_back(LhPermits *p, const char *worker, gint64 now_ms, LhPermitsFunc func,
                           gpointer data)
{
    guint n = 0;
    advance(p, now_ms);
    for (GList *link = p->order.head, *next; link != NULL; link = next) {
        Permit *permit = link->data;
        next = link->next;
        if (g_strcmp0(permit->worker, worker) != 0)
            continue;
        func(permit->seed, permit->id, data);
        permit_free(p, permit);
        n++;
    }
    return n;
}

gint64 lh_permits_in_use(LhPermits *p, gint64 now_ms)
{
    advance(p, now_ms);
    return in_use(p);
}

/* ---- handing over ---- */

static gint compare_age(gconstpointer a, gconstpointer b)
{
    gint64 x = ((const LhWindowPair *)a)->age_ms, y = ((const LhWindowPair *)b)->age_ms;
    return (x < y) - (x > y);
}

/* A millisecond younger, because the next holder's clock cuts its milliseconds elsewhere. */
static gint64 age_of(const LhPermits *p, gint64 time_ms)
{
    return MAX(p->now_ms - time_ms - 1, 0);
}

static void add_pair(const LhPermits *p, GArray *pairs, gint64 time_ms, gint64 n)
{
    const LhWindowPair pair = {.age_ms = age_of(p, time_ms), .n = n};
    g_array_append_val(pairs, pair);
}

void lh_permits_window(LhPermits *p, gint64 now_ms, LhWindow *out)
{
    advance(p, now_ms);
    *out = (LhWindow){0};
    g_autoptr(GArray) granted = g_array_new(FALSE, FALSE, sizeof(LhWindowPair));
    g_autoptr(GArray) held = g_array_new(FALSE, FALSE, sizeof(LhWindowPair));
    for (guint i = p->first; i < p->length; i++)
        add_pair(p, granted, at(p, i)->time_ms, at(p, i)->n);
    for (guint i = 0; i < p->handed->len; i++) {
        const Grant *grant = &g_array_index(p->handed, Grant, i);
        add_pair(p, held, grant->time_ms, grant->n);
    }
    for (const GList *link = p->order.head; link != NULL; link = link->next)
        add_pair(p, held, ((const Permit *)link->data)->time_ms, 1);
    g_array_sort(held, compare_age);
    out->n_granted = lh_window_fit((const LhWindowPair *)(gpointer)granted->data, granted->len,
                                   out->granted);
    out->n_held = lh_window_fit((const LhWindowPair *)(gpointer)held->data, held->len, out->held);
    gint64 forgot = p->first > 0 ? MAX(p->forgot_ms, at(p, p->first - 1)->time_ms) : p->forgot_ms;
    out->granted_partial = forgot != NEVER;
    out->granted_known_ms = forgot != NEVER ? age_of(p, forgot) : 0;
    out->held_partial = p->held_forgot_ms != NEVER;
    out->held_known_ms = out->held_partial ? age_of(p, p->held_forgot_ms) : 0;
}

static gint compare_grant(gconstpointer a, gconstpointer b)
{
    gint64 x = ((const Grant *)a)->time_ms, y = ((const Grant *)b)->time_ms;
    return (x > y) - (x < y);
}

static void add_granted(LhPermits *p, const LhWindow *w)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(Grant));
    for (guint i = 0; i < p->length; i++)
        g_array_append_val(all, *at(p, i));
    for (guint i = 0; i < w->n_granted; i++) {
        const Grant grant = {.time_ms = p->now_ms - w->granted[i].age_ms, .n = w->granted[i].n};
        g_array_append_val(all, grant);
    }
    g_array_sort(all, compare_grant);
    p->length = p->first = 0;
    for (guint i = 0; i < all->len; i++)
        push(p, g_array_index(all, Grant, i).time_ms, g_array_index(all, Grant, i).n);
    count_anew(p);
}

static void add_held(LhPermits *p, const LhWindow *w)
{
    for (guint i = 0; i < w->n_held; i++) {
        const Grant grant = {.time_ms = p->now_ms - w->held[i].age_ms, .n = w->held[i].n};
        g_array_append_val(p->handed, grant);
        p->handed_n += grant.n;
    }
    g_array_sort(p->handed, compare_grant);
    end_permits(p);
}

void lh_permits_add(LhPermits *p, const LhWindow *window, gint64 now_ms)
{
    advance(p, now_ms);
    if (window == NULL) {
        p->forgot_ms = p->held_forgot_ms = p->now_ms;
        return;
    }
    add_granted(p, window);
    add_held(p, window);
    if (window->granted_partial)
        p->forgot_ms = MAX(p->forgot_ms, p->now_ms - window->granted_known_ms);
    if (window->held_partial)
        p->held_forgot_ms = MAX(p->held_forgot_ms, p->now_ms - window->held_known_ms);
}

void lh_permits_limit(LhPermits *p, const LhPermitLimits *limits, gint64 now_ms)
{
    advance(p, now_ms);
    p->limits = *limits;
    count_anew(p);
}

LhPermits *lh_permits_new(const LhPermitLimits *limits, const LhWindow *window, gint64 now_ms,
                          LhPermitsRandom random, gpointer data)
{
    LhPermits *p = g_new0(LhPermits, 1);
    p->limits = *limits;
    p->random = random;
    p->data = data;
    p->now_ms = now_ms;
    p->room = FIRST_ROOM;
    p->ring = g_new(Grant, p->room);
    p->forgot_ms = p->held_forgot_ms = NEVER;
    p->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_queue_init(&p->order);
    p->handed = g_array_new(FALSE, FALSE, sizeof(Grant));
    lh_permits_add(p, window, now_ms);
    return p;
}

void lh_permits_free(LhPermits *p)
{
    if (p == NULL)
        return;
    while (oldest(p) != NULL)
        permit_free(p, oldest(p));
    g_hash_table_unref(p->by_id);
    g_array_unref(p->handed);
    g_free(p->ring);
    g_free(p);
}

/*
 * The lease that renews itself: grant until granted, keepalive every TTL/3, doubt when the local
 * deadline passes, lost only when etcd says so.
 *
 * A keepalive without an answer after TTL/6 is followed by another, and goes on waiting: the transport
 * may ask another member with it, and a late answer counts, from when its own request was sent.
 * Callbacks are the last thing each path does: an owner may free or restart the lease in any of them.
 */
#include "etcd/lease.h"

#include "base/errors.h"
#include "base/log.h"

#define BACKOFF_FIRST_MS     100
#define GRANT_BACKOFF_CAP_MS 5000
/* A lease that is being renewed has no time for long backoffs. */
#define RENEW_BACKOFF_CAP_MS 1000
#define SHORTEST_DEADLINE_MS 500
/* Each waits for 2/3 of the TTL at most, and the next is sent after 1/6. */
#define ASKS_AT_MOST 4

typedef enum { L_IDLE, L_GRANTING, L_HELD, L_DOUBT, L_REVOKING, N_L_STATES } State;

static const struct {
    const char *name;
    guint next; /* bit set of State */
} states[N_L_STATES] = {
    [L_IDLE] = {"idle", 1 << L_GRANTING | 1 << L_REVOKING},
    [L_GRANTING] = {"granting", 1 << L_HELD | 1 << L_REVOKING},
    [L_HELD] = {"held", 1 << L_DOUBT | 1 << L_IDLE | 1 << L_REVOKING},
    [L_DOUBT] = {"doubt", 1 << L_HELD | 1 << L_IDLE | 1 << L_REVOKING},
    [L_REVOKING] = {"revoking", 1 << L_IDLE},
};

/* A request without an answer yet. */
typedef struct {
    LhLease *lease;
    LhCallId call; /* 0: none */
    gint64 sent_ms;
} Ask;

struct LhLease {
    LhEnv *env;
    LhEtcd *etcd;
    gint64 wanted_ttl_s;
    LhLeaseFuncs funcs;
    gpointer data;

    State state;
    gint64 id;
    gint64 ttl_ms;
    gint64 deadline_ms;
    Ask asks[ASKS_AT_MOST];
    guint attempt;
    int said;       /* code of the error that was logged last in this row of failures */
    LhTimer *next;  /* the next request; L_REVOKING without a lease: the report */
    LhTimer *doubt; /* at the deadline; late is not set back, it looks again when it fires */
    void (*revoked)(gpointer data);
    gpointer revoked_data;
};

static void set_state(LhLease *lease, State state)
{
    g_assert(states[lease->state].next & 1u << state);
    lease->state = state;
}

/* Those that were sent at @until_ms or before. */
static void cancel_asks(LhLease *lease, gint64 until_ms)
{
    for (guint i = 0; i < ASKS_AT_MOST; i++) {
        if (lease->asks[i].sent_ms <= until_ms)
            lh_etcd_cancel(lease->etcd, &lease->asks[i].call);
    }
}

static Ask *free_ask(LhLease *lease)
{
    for (guint i = 0; i < ASKS_AT_MOST; i++) {
        if (lease->asks[i].call == 0)
            return &lease->asks[i];
    }
    return NULL;
}

static gboolean is_asking(const LhLease *lease)
{
    for (guint i = 0; i < ASKS_AT_MOST; i++) {
        if (lease->asks[i].call != 0)
            return TRUE;
    }
    return FALSE;
}

static void quiet(LhLease *lease)
{
    cancel_asks(lease, G_MAXINT64);
    lh_timer_clear(lease->env, &lease->next);
    lh_timer_clear(lease->env, &lease->doubt);
}

static void forget(LhLease *lease)
{
    quiet(lease);
    lease->id = 0;
    lease->deadline_ms = 0;
    lease->attempt = 0;
}

static void on_next(gpointer data);

static void retry_later(LhLease *lease, const GError *error, const char *what, gint64 cap_ms)
{
    gint64 delay_ms = lh_backoff_ms(lease->env, lease->attempt, BACKOFF_FIRST_MS, cap_ms);
    /* Each kind of error once, and then at every sixteenth attempt: an outage must not fill the log. */
    if (lease->attempt % 16 == 0 || error->code != lease->said)
        lh_log(LH_LOG_WARNING, what, "lease",
               lh_fmt("%016" G_GINT64_MODIFIER "x", (guint64)lease->id), "state",
               states[lease->state].name, "error", error->message, "next",
               lh_fmt("asks again in %" G_GINT64_FORMAT " ms", delay_ms), NULL);
    lease->said = error->code;
    lease->attempt++;
    lh_timer_clear(lease->env, &lease->next);
    lease->next = lh_timer_in(lease->env, delay_ms, on_next, lease);
}

static void on_doubt(gpointer data)
{
    LhLease *lease = data;
    lease->doubt = NULL;
    if (lease->state == L_DOUBT)
        return;
    if (lh_mono_ms(lease->env) < lease->deadline_ms) {
        lease->doubt = lh_timer_at(lease->env, lease->deadline_ms, on_doubt, lease);
        return;
    }
    set_state(lease, L_DOUBT);
    if (lease->funcs.doubt != NULL)
        lease->funcs.doubt(lease->data);
}

/* An answer to what was sent at @sent_ms: the lease lives for @ttl_s from then on. */
static void extend(LhLease *lease, gint64 sent_ms, gint64 ttl_s)
{
    cancel_asks(lease, sent_ms);
    lease->attempt = 0;
    lease->ttl_ms = ttl_s * 1000;
    lease->deadline_ms = sent_ms + lease->ttl_ms;
    if (lease->doubt == NULL)
        lease->doubt = lh_timer_at(lease->env, lease->deadline_ms, on_doubt, lease);
    lh_timer_clear(lease->env, &lease->next);
    lease->next = lh_timer_at(lease->env, sent_ms + lease->ttl_ms / 3, on_next, lease);
    if (lease->funcs.extended != NULL)
        lease->funcs.extended(lease->data);
}

static void on_granted(gint64 id, gint64 ttl_s, const GError *error, gpointer data)
{
    Ask *ask = data;
    LhLease *lease = ask->lease;
    ask->call = 0;
    if (error != NULL) {
        retry_later(lease, error, "lease not granted", GRANT_BACKOFF_CAP_MS);
        return;
    }
    lease->id = id;
    set_state(lease, L_HELD);
    extend(lease, ask->sent_ms, ttl_s);
    lease->funcs.granted(id, ttl_s, lease->data);
}

static void on_renewed(G_GNUC_UNUSED gint64 id, gint64 ttl_s, const GError *error, gpointer data)
{
    Ask *ask = data;
    LhLease *lease = ask->lease;
    ask->call = 0;
    gboolean lost = error == NULL ? ttl_s <= 0
                                  : g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST);
    if (lost) {
        set_state(lease, L_IDLE);
        forget(lease);
        lease->funcs.lost(lease->data);
        return;
    }
    if (error != NULL) {
        /* While another is under way, the next comes at its time. */
        if (!is_asking(lease))
            retry_later(lease, error, "lease not renewed", RENEW_BACKOFF_CAP_MS);
        return;
    }
    gboolean was_over = !lh_lease_alive(lease);
    extend(lease, ask->sent_ms, ttl_s);
    /* An answer that comes after its own deadline proves nothing about now. */
    if (!was_over || lh_mono_ms(lease->env) >= lease->deadline_ms)
        return;
    /* After a stop of the process it may come before the doubt itself is noticed. */
    if (lease->state == L_DOUBT)
        set_state(lease, L_HELD);
    if (lease->funcs.renewed != NULL)
        lease->funcs.renewed(lease->data);
}

static void send_next(LhLease *lease)
{
    gint64 now_ms = lh_mono_ms(lease->env);
    Ask *ask = free_ask(lease);
    if (lease->state == L_GRANTING) {
        ask->sent_ms = now_ms;
        /* An answer later than the TTL would be of a lease that is over. */
        gint64 limit_ms = MIN(LH_ETCD_DEADLINE_MS, lease->wanted_ttl_s * 1000);
        ask->call = lease->etcd->v->lease_grant(lease->etcd, lease->wanted_ttl_s, limit_ms,
                                                on_granted, ask);
        return;
    }
    lease->next = lh_timer_at(lease->env, now_ms + MAX(lease->ttl_ms / 6, 1), on_next, lease);
    if (ask == NULL)
        return;
    ask->sent_ms = now_ms;
    gint64 limit_ms = MAX(lease->ttl_ms * 2 / 3, SHORTEST_DEADLINE_MS);
    ask->call = lease->etcd->v->lease_keepalive(lease->etcd, lease->id, limit_ms, on_renewed, ask);
}

static void report_revoked(LhLease *lease)
{
    void (*done)(gpointer data) = lease->revoked;
    gpointer data = lease->revoked_data;
    lease->revoked = NULL;
    set_state(lease, L_IDLE);
    forget(lease);
    if (done != NULL)
        done(data);
}

static void on_revoked(G_GNUC_UNUSED gint64 id, G_GNUC_UNUSED gint64 ttl_s, const GError *error,
                       gpointer data)
{
    Ask *ask = data;
    LhLease *lease = ask->lease;
    ask->call = 0;
    if (error != NULL && !g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST))
        lh_log(LH_LOG_WARNING, "lease not revoked", "lease",
               lh_fmt("%016" G_GINT64_MODIFIER "x", (guint64)lease->id), "error", error->message,
               "next", "etcd lets it expire", NULL);
    report_revoked(lease);
}

static void on_next(gpointer data)
{
    LhLease *lease = data;
    lease->next = NULL;
    if (lease->state == L_REVOKING)
        report_revoked(lease);
    else
        send_next(lease);
}

LhLease *lh_lease_start(LhEnv *env, LhEtcd *etcd, gint64 ttl_s, const LhLeaseFuncs *funcs,
                        gpointer data)
{
    LhLease *lease = g_new0(LhLease, 1);
    lease->env = env;
    lease->etcd = etcd;
    lease->wanted_ttl_s = ttl_s;
    lease->funcs = *funcs;
    lease->data = data;
    for (guint i = 0; i < ASKS_AT_MOST; i++)
        lease->asks[i].lease = lease;
    lh_lease_restart(lease);
    return lease;
}

void lh_lease_restart(LhLease *lease)
{
    if (lease->state != L_IDLE)
        return;
    set_state(lease, L_GRANTING);
    send_next(lease);
}

gint64 lh_lease_id(const LhLease *lease)
{
    return lease->id;
}

gint64 lh_lease_deadline_ms(const LhLease *lease)
{
    return lease->deadline_ms;
}

gboolean lh_lease_alive(const LhLease *lease)
{
    return lease->state == L_HELD && lh_mono_ms(lease->env) < lease->deadline_ms;
}

void lh_lease_revoke(LhLease *lease, void (*done)(gpointer data), gpointer data)
{
    /* A grant in flight is given up: a lease that nobody knows expires by itself. */
    quiet(lease);
    set_state(lease, L_REVOKING);
    lease->revoked = done;
    lease->revoked_data = data;
    if (lease->id == 0) {
        lease->next = lh_timer_in(lease->env, 0, on_next, lease);
        return;
    }
    Ask *ask = free_ask(lease);
    ask->call = lease->etcd->v->lease_revoke(
        lease->etcd, lease->id, MIN(LH_ETCD_DEADLINE_MS, lease->ttl_ms), on_revoked, ask);
}

void lh_lease_free(LhLease *lease)
{
    if (lease == NULL)
        return;
    quiet(lease);
    g_free(lease);
}

char *lh_lease_hex(gint64 lease)
{
    return g_strdup_printf("%016" G_GINT64_MODIFIER "x", (guint64)lease);
}

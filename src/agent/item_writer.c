/*
 * Writing one item: compose, send, and find out what became of it.
 *
 *   idle ──touch──▶ sending ──committed──▶ idle (or sending, if touched meanwhile)
 *                     │ compare failed: adopt what is there, pause if need be, compose anew
 *                     │ surely not applied: pause, compose anew
 *                     └ unknown: pause, read back, then one of the above
 */
#include "agent/item_writer.h"

#include "base/errors.h"
#include "base/log.h"

#include <string.h>

#define PAUSE_FIRST_MS 100
#define PAUSE_CAP_MS   5000
/* How long to wait for the watch to bring the assignment that etcd already has. */
#define PAUSE_FOR_ORDER_MS 1000

struct LhItemWriter {
    const LhItemScope *scope;
    const LhItemWriterFuncs *funcs;
    gpointer data;
    char *item_key, *assignment_key;
    gint64 mod_rev;      /* of the item key; 0: it does not exist */
    gboolean touched;    /* the newest content has not been sent */
    gboolean unsure;     /* an attempt of `write` may have been applied */
    gboolean given_away; /* what is committed has no lease: a controller takes it away */
    gboolean must_read;  /* … and nothing may be sent before reading back */
    LhItemWrite write;   /* the one in flight, or the last */
    guint attempt;
    LhCallId call;
    LhTimer *pause;
};

static void kick(LhItemWriter *w);

static void write_clear(LhItemWrite *write)
{
    g_free(write->value);
    g_free(write->search_key);
    g_free(write->search_value);
    *write = (LhItemWrite){0};
}

static void pause_over(gpointer data)
{
    LhItemWriter *w = data;
    w->pause = NULL;
    kick(w);
}

static void pause_for(LhItemWriter *w, gint64 ms)
{
    if (w->pause == NULL)
        w->pause = lh_timer_in(w->scope->env, ms, pause_over, w);
}

static void back_off(LhItemWriter *w)
{
    pause_for(w, lh_backoff_ms(w->scope->env, w->attempt++, PAUSE_FIRST_MS, PAUSE_CAP_MS));
}

/* The last thing a reply handler does: `committed` may free @w. */
static void settle(LhItemWriter *w, gint64 mod_rev)
{
    w->mod_rev = mod_rev;
    w->attempt = 0;
    w->unsure = w->must_read = FALSE;
    LhItemWrite done = w->write;
    w->write = (LhItemWrite){0};
    w->given_away = done.leaseless;
    if (w->funcs->committed(&done, w->data))
        kick(w);
    write_clear(&done);
}

static gint64 item_lease(const LhItemWriter *w)
{
    return w->write.leaseless ? 0 : w->scope->lease;
}

static const LhKv *kv_of(const LhTxnReply *reply, gsize i)
{
    return i < reply->n_ops && reply->ops[i].range.n_kvs > 0 ? &reply->ops[i].range.kvs[0] : NULL;
}

/* The write did not go through, or may have: @reply holds item, registration and assignment as they
 * are. The write in `w->write` is over after this, one way or the other. */
static void look(LhItemWriter *w, const LhTxnReply *reply)
{
    const LhKv *item = kv_of(reply, 0);
    const LhKv *registration = kv_of(reply, 1);
    const LhKv *assignment = kv_of(reply, 2);
    gint64 present = item != NULL ? item->mod_rev : 0;
    gboolean landed = w->write.erase
                          ? item == NULL
                          : w->unsure && item != NULL && item->lease == item_lease(w) &&
                                item->value_len == strlen(w->write.value) &&
                                memcmp(item->value, w->write.value, item->value_len) == 0;
    gboolean waits_for_order = !w->write.erase && (assignment != NULL ? assignment->mod_rev : 0) !=
                                                      w->write.assignment_rev;
    gboolean moved = present != w->mod_rev;
    w->must_read = FALSE;
    if (registration == NULL || registration->lease != w->scope->lease) {
        w->touched = TRUE;
        back_off(w);
        w->scope->unregistered(w->scope->data);
        return;
    }
    if (landed) {
        settle(w, present);
        return;
    }
    if (moved)
        w->funcs->moved(w->data);
    if (moved && !w->unsure)
        lh_log(LH_LOG_INFO, "item is not at the revision last written; writing it again", "key",
               w->item_key, "revision", lh_fmt("%" G_GINT64_FORMAT, present), NULL);
    w->mod_rev = present;
    w->unsure = FALSE;
    gboolean has_news = w->touched;
    w->touched = TRUE;
    if (waits_for_order && !has_news)
        pause_for(w, PAUSE_FOR_ORDER_MS);
    else if (w->attempt++ > 0)
        back_off(w);
    kick(w);
}

static void on_reply(const LhTxnReply *reply, const GError *error, gpointer data)
{
    LhItemWriter *w = data;
    gboolean was_reading = w->must_read;
    w->call = 0;
    if (error != NULL) {
        lh_log(LH_LOG_DEBUG, "item write not confirmed; trying again", "key", w->item_key, "error",
               error->message, NULL);
        gboolean surely_not = error->domain == LH_ERROR && (error->code == LH_ERR_UNAVAILABLE ||
                                                            error->code == LH_ERR_OVERLOADED ||
                                                            error->code == LH_ERR_LEASE_LOST);
        if (!was_reading && surely_not)
            w->touched = TRUE;
        else
            w->must_read = w->unsure = TRUE;
        back_off(w);
        if (g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST))
            w->scope->unregistered(w->scope->data);
    } else if (was_reading || !reply->succeeded) {
        look(w, reply);
    } else {
        settle(w, w->write.erase ? 0 : reply->header.revision);
    }
}

static void read_back(LhItemWriter *w)
{
    const LhTxnOp reads[] = {
        lh_txn_range(w->item_key),
        lh_txn_range(w->scope->registration_key),
        lh_txn_range(w->assignment_key),
    };
    LhTxnRequest request = {.success = reads, .n_success = G_N_ELEMENTS(reads)};
    w->call = lh_etcd_txn(w->scope->etcd, &request, on_reply, w);
}

static void send(LhItemWriter *w)
{
    LhItemWrite *write = &w->write;
    write_clear(write);
    w->unsure = w->touched = FALSE;
    w->funcs->compose(write, w->data);

    LhCompare compares[3] = {
        {.key = w->scope->registration_key,
         .target = LH_CMP_LEASE,
         .result = LH_CMP_EQUAL,
         .number = w->scope->lease},
        lh_compare_mod(w->item_key, w->mod_rev),
        lh_compare_mod(w->assignment_key, write->assignment_rev),
    };
    LhTxnOp ops[2];
    gsize n_ops = 0;
    ops[n_ops++] = write->erase ? lh_txn_delete(w->item_key)
                                : lh_txn_put(w->item_key, write->value, item_lease(w));
    if (write->search == LH_SEARCH_PUT)
        ops[n_ops++] = lh_txn_put(write->search_key, write->search_value, w->scope->lease);
    else if (write->search == LH_SEARCH_DELETE)
        ops[n_ops++] = lh_txn_delete(write->search_key);
    const LhTxnOp reads[] = {
        lh_txn_range(w->item_key),
        lh_txn_range(w->scope->registration_key),
        lh_txn_range(w->assignment_key),
    };
    LhTxnRequest request = {
        .compares = compares,
        /* An erasure is right whatever has become of the assignment. */
        .n_compares = write->erase ? 2 : 3,
        .success = ops,
        .n_success = n_ops,
        .failure = reads,
        .n_failure = G_N_ELEMENTS(reads),
    };
    w->call = lh_etcd_txn(w->scope->etcd, &request, on_reply, w);
}

static void kick(LhItemWriter *w)
{
    if (w->call != 0 || w->pause != NULL)
        return;
    if (w->must_read)
        read_back(w);
    else if (w->touched)
        send(w);
}

LhItemWriter *lh_item_writer_new(const LhItemScope *scope, const char *item_key,
                                 const char *assignment_key, const LhItemWriterFuncs *funcs,
                                 gpointer data)
{
    LhItemWriter *w = g_new0(LhItemWriter, 1);
    w->scope = scope;
    w->funcs = funcs;
    w->data = data;
    w->item_key = g_strdup(item_key);
    w->assignment_key = g_strdup(assignment_key);
    return w;
}

void lh_item_writer_touch(LhItemWriter *w)
{
    w->touched = TRUE;
    kick(w);
}

void lh_item_writer_hurry(LhItemWriter *w)
{
    if (!w->must_read)
        lh_timer_clear(w->scope->env, &w->pause);
    kick(w);
}

gint64 lh_item_writer_revision(const LhItemWriter *w)
{
    return w->call != 0 || w->unsure || w->must_read ? -1 : w->mod_rev;
}

gboolean lh_item_writer_given_away(const LhItemWriter *w)
{
    return w->given_away;
}

void lh_item_writer_free(LhItemWriter *w)
{
    if (w == NULL)
        return;
    lh_timer_clear(w->scope->env, &w->pause);
    lh_etcd_cancel(w->scope->etcd, &w->call);
    write_clear(&w->write);
    g_free(w->item_key);
    g_free(w->assignment_key);
    g_free(w);
}

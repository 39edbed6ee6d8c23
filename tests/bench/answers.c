/* See answers.h. */
#include "answers.h"

#define FLIGHT    8
#define ANSWER_MS (2 * 60 * 1000) /* for one transaction */

typedef struct {
    char *key, *value; /* value NULL: delete */
    gint64 lease;
} Write;

struct Answers {
    GQueue *writes; /* Write */
    guint in_flight, idle;
    guint64 taken;
};

typedef struct {
    Answers *answers;
    guint n;
} Sent;

static void send_some(Answers *answers);

static void on_written(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Sent *sent = data;
    Answers *answers = sent->answers;

    bench_must(error, "the answer of a node");
    if (!reply->succeeded)
        bench_fail("etcd refused the answer of a node");
    answers->in_flight--;
    answers->taken += sent->n;
    g_free(sent);
    send_some(answers);
}

static void write_free(gpointer data)
{
    Write *write = data;

    g_free(write->key);
    g_free(write->value);
    g_free(write);
}

static void send_one(Answers *answers)
{
    LhTxnOp ops[LH_ETCD_MAX_TXN_OPS];
    Write *writes[LH_ETCD_MAX_TXN_OPS];
    Sent *sent = g_new0(Sent, 1);

    sent->answers = answers;
    for (; sent->n < G_N_ELEMENTS(ops) && !g_queue_is_empty(answers->writes); sent->n++) {
        Write *write = writes[sent->n] = g_queue_pop_head(answers->writes);
        ops[sent->n] = write->value == NULL ? lh_txn_delete(write->key)
                                            : lh_txn_put(write->key, write->value, write->lease);
    }
    answers->in_flight++;
    bench.client->v->txn(bench.client, &(LhTxnRequest){.success = ops, .n_success = sent->n},
                         ANSWER_MS, on_written, sent);
    for (guint n = sent->n; n > 0; n--)
        write_free(writes[n - 1]);
}

static void send_some(Answers *answers)
{
    while (answers->in_flight < FLIGHT && !g_queue_is_empty(answers->writes))
        send_one(answers);
}

static gboolean on_idle(gpointer data)
{
    Answers *answers = data;

    answers->idle = 0;
    send_some(answers);
    return G_SOURCE_REMOVE;
}

void answers_add(Answers *answers, char *key, char *value, gint64 lease)
{
    Write *write = g_new0(Write, 1);

    *write = (Write){key, value, lease};
    g_queue_push_tail(answers->writes, write);
    if (answers->idle == 0)
        answers->idle = g_idle_add(on_idle, answers);
}

Answers *answers_new(void)
{
    Answers *answers = g_new0(Answers, 1);

    answers->writes = g_queue_new();
    return answers;
}

gboolean answers_taken(const Answers *answers)
{
    return answers->in_flight == 0 && g_queue_is_empty(answers->writes);
}

guint64 answers_count(const Answers *answers)
{
    return answers->taken;
}

guint answers_waiting(const Answers *answers)
{
    return g_queue_get_length(answers->writes);
}

static gboolean all_taken(gpointer data)
{
    return answers_taken(data);
}

static guint64 progress(gpointer data)
{
    return answers_count(data);
}

void answers_free(Answers *answers)
{
    bench_wait_going(all_taken, progress, answers, ANSWER_MS, "etcd takes the nodes' answers");
    if (answers->idle != 0)
        g_source_remove(answers->idle);
    g_queue_free_full(answers->writes, write_free);
    g_free(answers);
}

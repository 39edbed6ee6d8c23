/*
 * See ledger.h. A thread and a connection for each server. Who does not hold a seed is asked for it less often,
 * but is asked. Permits of policies with maxConcurrent are kept for a while and returned to who granted them.
 */
#include "ledger.h"

#include "api/window.h"
#include "base/json.h"

#include <curl/curl.h>
#include <string.h>

#define ROUND_US  (150 * 1000)
#define KEPT_US   (250 * 1000)
#define ASKED     "{\"n\":5}"
#define AGAIN     4 /* who holds nothing of a seed is asked in each so many-th round */
#define ANSWER_MS 60000L

typedef struct {
    char *name;
    guint policy;
} Seed;

typedef struct {
    guint policy;
    gint64 from_us, to_us; /* it was out all that time */
} Out;

typedef struct {
    guint seed;
    gint64 asked_us, granted_us; /* between these */
    char *id;
} Kept;

typedef struct {
    Ledger *ledger;
    guint number;
    char *url;
    GThread *thread;
    gboolean paused, idle;
    GArray *answers; /* LedgerAnswer */
    GArray *outs;    /* Out */
    /* of the thread alone */
    CURL *curl;
    struct curl_slist *headers;
    GString *body;
    GQueue kept;    /* Kept, oldest first */
    gboolean *held; /* by seed: the last answer was 200 */
} Client;

struct Ledger {
    const LedgerPolicy *policies;
    guint n_policies;
    GArray *seeds; /* Seed */
    GPtrArray *clients;
    GMutex mutex;
    GCond changed;
    gboolean stopping, stopped;
    GArray *answers, *outs; /* of all, once it has stopped */
};

gint64 ledger_now_us(void)
{
    return g_get_monotonic_time();
}

static const Seed *seed_at(const Ledger *ledger, guint i)
{
    return &g_array_index(ledger->seeds, Seed, i);
}

/* ---- one request ---- */

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    g_string_append_len(user, data, (gssize)(size * n));
    return size * n;
}

static int request(Client *client, const char *method, const char *path, const char *body)
{
    g_autofree char *url = g_strconcat(client->url, "/v1/permits/", path, NULL);
    long status = 0;

    g_string_set_size(client->body, 0);
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, body != NULL ? body : "");
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    if (curl_easy_perform(client->curl) == CURLE_OK)
        curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

/* Under the lock. FALSE: the end. Waits while it is paused. */
static gboolean may_go_on(Client *client)
{
    Ledger *ledger = client->ledger;

    while (client->paused && !ledger->stopping) {
        client->idle = TRUE;
        g_cond_broadcast(&ledger->changed);
        g_cond_wait(&ledger->changed, &ledger->mutex);
    }
    client->idle = ledger->stopping;
    return !ledger->stopping;
}

static gboolean begin(Client *client)
{
    g_mutex_lock(&client->ledger->mutex);
    gboolean go = may_go_on(client);
    g_mutex_unlock(&client->ledger->mutex);
    return go;
}

static void keep(Client *client, const LedgerAnswer *answer, const cJSON *ids)
{
    const cJSON *id;
    const Seed *seed = seed_at(client->ledger, answer->seed);

    if (client->ledger->policies[seed->policy].max_concurrent == 0)
        return;
    cJSON_ArrayForEach(id, ids) {
        Kept *kept = g_new0(Kept, 1);
        *kept = (Kept){answer->seed, answer->from_us, answer->to_us, g_strdup(id->valuestring)};
        g_queue_push_tail(&client->kept, kept);
    }
}

static void ask(Client *client, guint i)
{
    LedgerAnswer answer = {.client = client->number, .seed = i, .from_us = ledger_now_us()};
    gint64 granted = 0;

    answer.status = request(client, "POST", seed_at(client->ledger, i)->name, ASKED);
    answer.to_us = ledger_now_us();
    client->held[i] = answer.status == 200;
    if (answer.status == 200) {
        g_autoptr(cJSON) json = cJSON_ParseWithLength(client->body->str, client->body->len);
        if (!lh_json_int(cJSON_GetObjectItemCaseSensitive(json, "granted"), &granted))
            g_error("%s: %s", client->url, client->body->str);
        answer.granted = (guint)granted;
        keep(client, &answer, cJSON_GetObjectItemCaseSensitive(json, "ids"));
    }
    g_mutex_lock(&client->ledger->mutex);
    g_array_append_val(client->answers, answer);
    g_mutex_unlock(&client->ledger->mutex);
}

/* @returned_us: when that was begun; 0: it never was. */
static void note_out(Client *client, const Kept *kept, gint64 returned_us, int status)
{
    Out out = {seed_at(client->ledger, kept->seed)->policy, kept->granted_us, returned_us};

    /* Not taken back: then it ends by itself, counted from some moment after it was asked for. */
    if (returned_us == 0 || (status != 204 && status != 0))
        out.to_us = kept->asked_us + LH_PERMIT_LIFE_MS * 1000;
    g_mutex_lock(&client->ledger->mutex);
    g_array_append_val(client->outs, out);
    g_mutex_unlock(&client->ledger->mutex);
}

static void kept_free(Kept *kept)
{
    g_free(kept->id);
    g_free(kept);
}

static void give_back(Client *client)
{
    for (Kept *kept; (kept = g_queue_peek_head(&client->kept)) != NULL &&
                     kept->granted_us + KEPT_US <= ledger_now_us() && begin(client);) {
        g_autofree char *path = g_strdup_printf("%s/%s", seed_at(client->ledger, kept->seed)->name,
                                                kept->id);
        gint64 returned_us = ledger_now_us();
        note_out(client, kept, returned_us, request(client, "DELETE", path, NULL));
        g_queue_pop_head(&client->kept);
        kept_free(kept);
    }
}

/* ---- the threads ---- */

static void rest(Client *client, gint64 until_us)
{
    Ledger *ledger = client->ledger;

    g_mutex_lock(&ledger->mutex);
    client->idle = TRUE;
    g_cond_broadcast(&ledger->changed);
    while (!ledger->stopping && g_cond_wait_until(&ledger->changed, &ledger->mutex, until_us))
        ;
    may_go_on(client);
    g_mutex_unlock(&ledger->mutex);
}

static gpointer run(gpointer data)
{
    Client *client = data;
    guint n = client->ledger->seeds->len;

    for (guint round = client->number; begin(client); round++) {
        gint64 next_us = ledger_now_us() + ROUND_US;
        for (guint i = 0; i < n; i++)
            if ((client->held[i] || (i + round) % AGAIN == 0) && begin(client))
                ask(client, i);
        give_back(client);
        rest(client, next_us);
    }
    for (Kept *kept; (kept = g_queue_pop_head(&client->kept)) != NULL; kept_free(kept))
        note_out(client, kept, 0, 0);
    return NULL;
}

static void set_up(Client *client)
{
    CURL *curl = curl_easy_init();

    client->curl = curl;
    client->headers = curl_slist_append(NULL, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ANSWER_MS);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, client->body);
}

guint ledger_client(Ledger *ledger, const char *url)
{
    Client *client = g_new0(Client, 1);

    client->ledger = ledger;
    client->number = ledger->clients->len;
    client->url = g_strdup(url);
    client->answers = g_array_new(FALSE, FALSE, sizeof(LedgerAnswer));
    client->outs = g_array_new(FALSE, FALSE, sizeof(Out));
    client->body = g_string_new(NULL);
    client->held = g_new0(gboolean, ledger->seeds->len);
    g_queue_init(&client->kept);
    set_up(client);
    g_ptr_array_add(ledger->clients, client);
    client->thread = g_thread_new("crawler", run, client);
    return client->number;
}

static void client_free(gpointer data)
{
    Client *client = data;

    curl_easy_cleanup(client->curl);
    curl_slist_free_all(client->headers);
    g_string_free(client->body, TRUE);
    g_array_unref(client->answers);
    g_array_unref(client->outs);
    g_free(client->held);
    g_free(client->url);
    g_free(client);
}

void ledger_pause(Ledger *ledger, guint number)
{
    Client *client = ledger->clients->pdata[number];

    g_mutex_lock(&ledger->mutex);
    client->paused = TRUE;
    g_cond_broadcast(&ledger->changed);
    while (!client->idle)
        g_cond_wait(&ledger->changed, &ledger->mutex);
    g_mutex_unlock(&ledger->mutex);
}

void ledger_resume(Ledger *ledger, guint number)
{
    Client *client = ledger->clients->pdata[number];

    g_mutex_lock(&ledger->mutex);
    client->paused = FALSE;
    g_cond_broadcast(&ledger->changed);
    g_mutex_unlock(&ledger->mutex);
}

guint ledger_answered(Ledger *ledger, guint number)
{
    Client *client = ledger->clients->pdata[number];

    g_mutex_lock(&ledger->mutex);
    guint n = client->answers->len;
    g_mutex_unlock(&ledger->mutex);
    return n;
}

guint ledger_granted(Ledger *ledger, guint seed, gint64 since_us)
{
    guint n = 0;

    g_mutex_lock(&ledger->mutex);
    for (guint c = 0; c < ledger->clients->len; c++) {
        const GArray *answers = ((Client *)ledger->clients->pdata[c])->answers;
        for (guint i = 0; i < answers->len; i++) {
            const LedgerAnswer *answer = &g_array_index(answers, LedgerAnswer, i);
            n += answer->seed == seed && answer->from_us >= since_us ? answer->granted : 0;
        }
    }
    g_mutex_unlock(&ledger->mutex);
    return n;
}

/* ---- making and ending ---- */

static void seed_clear(gpointer data)
{
    g_free(((Seed *)data)->name);
}

Ledger *ledger_new(const LedgerPolicy *policies, guint n)
{
    Ledger *ledger = g_new0(Ledger, 1);

    curl_global_init(CURL_GLOBAL_DEFAULT);
    ledger->policies = policies;
    ledger->n_policies = n;
    ledger->seeds = g_array_new(FALSE, FALSE, sizeof(Seed));
    g_array_set_clear_func(ledger->seeds, seed_clear);
    ledger->clients = g_ptr_array_new_with_free_func(client_free);
    ledger->answers = g_array_new(FALSE, FALSE, sizeof(LedgerAnswer));
    ledger->outs = g_array_new(FALSE, FALSE, sizeof(Out));
    g_mutex_init(&ledger->mutex);
    g_cond_init(&ledger->changed);
    return ledger;
}

guint ledger_seed(Ledger *ledger, const char *name, guint policy)
{
    const Seed seed = {g_strdup(name), policy};

    g_array_append_val(ledger->seeds, seed);
    return ledger->seeds->len - 1;
}

void ledger_stop(Ledger *ledger)
{
    g_mutex_lock(&ledger->mutex);
    ledger->stopping = TRUE;
    g_cond_broadcast(&ledger->changed);
    g_mutex_unlock(&ledger->mutex);
    for (guint i = 0; i < ledger->clients->len && !ledger->stopped; i++) {
        Client *client = ledger->clients->pdata[i];
        g_thread_join(client->thread);
        g_array_append_vals(ledger->answers, client->answers->data, client->answers->len);
        g_array_append_vals(ledger->outs, client->outs->data, client->outs->len);
    }
    ledger->stopped = TRUE;
}

void ledger_free(Ledger *ledger)
{
    ledger_stop(ledger);
    g_ptr_array_unref(ledger->clients);
    g_array_unref(ledger->seeds);
    g_array_unref(ledger->answers);
    g_array_unref(ledger->outs);
    g_mutex_clear(&ledger->mutex);
    g_cond_clear(&ledger->changed);
    g_free(ledger);
}

/* ---- the verdict ---- */

const GArray *ledger_answers(const Ledger *ledger)
{
    return ledger->answers;
}

static gint by_begin(gconstpointer a, gconstpointer b)
{
    gint64 x = ((const LedgerAnswer *)a)->from_us, y = ((const LedgerAnswer *)b)->from_us;

    return (x > y) - (x < y);
}

/* What was granted of the policy, by the beginning of the request. */
static GArray *grants_of(const Ledger *ledger, guint policy)
{
    GArray *grants = g_array_new(FALSE, FALSE, sizeof(LedgerAnswer));

    for (guint i = 0; i < ledger->answers->len; i++) {
        const LedgerAnswer *answer = &g_array_index(ledger->answers, LedgerAnswer, i);
        if (answer->granted > 0 && seed_at(ledger, answer->seed)->policy == policy)
            g_array_append_val(grants, *answer);
    }
    g_array_sort(grants, by_begin);
    return grants;
}

/* Within the window of @period_us that begins with the @first. */
static gint64 within(const GArray *grants, guint first, gint64 period_us)
{
    gint64 end_us = g_array_index(grants, LedgerAnswer, first).from_us + period_us, n = 0;

    for (guint i = first; i < grants->len; i++) {
        const LedgerAnswer *answer = &g_array_index(grants, LedgerAnswer, i);
        if (answer->from_us >= end_us)
            break;
        n += answer->to_us < end_us ? answer->granted : 0;
    }
    return n;
}

/* When the @i-th of the policy was granted for certain. */
static gint64 at_once(const Ledger *ledger, guint policy, gint64 at_us)
{
    gint64 n = 0;

    for (guint i = 0; i < ledger->outs->len; i++) {
        const Out *out = &g_array_index(ledger->outs, Out, i);
        n += out->policy == policy && out->from_us <= at_us && at_us < out->to_us;
    }
    return n;
}

LedgerMost ledger_most(const Ledger *ledger, guint policy)
{
    const LedgerPolicy *limits = &ledger->policies[policy];
    g_autoptr(GArray) grants = grants_of(ledger, policy);
    LedgerMost most = {0};

    for (guint i = 0; i < grants->len; i++) {
        most.granted += g_array_index(grants, LedgerAnswer, i).granted;
        most.within = MAX(most.within, within(grants, i, limits->period_ms * 1000));
    }
    for (guint i = 0; i < ledger->outs->len; i++) {
        const Out *out = &g_array_index(ledger->outs, Out, i);
        if (out->policy == policy)
            most.at_once = MAX(most.at_once, at_once(ledger, policy, out->from_us));
    }
    return most;
}

char *ledger_exceeded(const Ledger *ledger)
{
    for (guint i = 0; i < ledger->n_policies; i++) {
        const LedgerPolicy *limits = &ledger->policies[i];
        LedgerMost most = ledger_most(ledger, i);
        if (limits->requests > 0 && most.within > limits->requests)
            return g_strdup_printf("%" G_GINT64_FORMAT " permits of %s within %" G_GINT64_FORMAT
                                   " ms; it may be %" G_GINT64_FORMAT,
                                   most.within, limits->name, limits->period_ms, limits->requests);
        if (limits->max_concurrent > 0 && most.at_once > limits->max_concurrent)
            return g_strdup_printf("%" G_GINT64_FORMAT " permits of %s out at once; it may be "
                                   "%" G_GINT64_FORMAT,
                                   most.at_once, limits->name, limits->max_concurrent);
    }
    return NULL;
}

/*
 * The conformance tests' tools: see suite.h.
 */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_MS 15000

Driver *driver;

static GPtrArray *pool; /* what the test was given */
typedef struct {
    GDestroyNotify func;
    gpointer data;
} AtEnd;

static GArray *ends;         /* AtEnd */
static GPtrArray *watchings; /* its streams */
static GPtrArray *answers;   /* to its calls */
static guint serial;
static char *prefix;

gpointer scratch(gsize size)
{
    gpointer memory = g_malloc0(size);
    g_ptr_array_add(pool, memory);
    return memory;
}

static char *pooled_bytes(const char *bytes, gsize len)
{
    char *copy = scratch(len + 1);
    if (len > 0) {
        memcpy(copy, bytes, len);
    }
    return copy;
}

int suite_setup(void **state)
{
    (void)state;
    pool = g_ptr_array_new_with_free_func(g_free);
    ends = g_array_new(FALSE, FALSE, sizeof(AtEnd));
    watchings = g_ptr_array_new();
    answers = g_ptr_array_new();
    prefix = g_strdup_printf("/conformance/%d.%u/", (int)getpid(), ++serial);
    return 0;
}

int suite_teardown(void **state)
{
    (void)state;
    for (guint i = ends->len; i > 0; i--) {
        const AtEnd *end = &g_array_index(ends, AtEnd, i - 1);
        end->func(end->data);
    }
    g_array_free(ends, TRUE);
    for (guint i = 0; i < watchings->len; i++) {
        Watching *watching = watchings->pdata[i];
        unwatch(watching);
        g_ptr_array_free(watching->replies, TRUE);
        g_ptr_array_free(watching->events, TRUE);
    }
    g_ptr_array_free(watchings, TRUE);
    for (guint i = 0; i < answers->len; i++) {
        Answer *answer = answers->pdata[i];
        lh_etcd_cancel(driver->etcd, &answer->call);
    }
    g_ptr_array_free(answers, TRUE);
    g_ptr_array_free(pool, TRUE);
    g_free(prefix);
    return 0;
}

static gboolean is_skipped(const char *name, const char *const *skip)
{
    for (; skip != NULL && *skip != NULL; skip++) {
        if (g_str_has_prefix(name, *skip)) {
            return TRUE;
        }
    }
    return FALSE;
}

int suite_run(Driver *with, const char *name, const char *const *skip)
{
    const struct CMUnitTest *const lists[] = {range_tests, compare_tests, txn_tests,
                                              lease_tests, watch_tests,   call_tests,
                                              list_tests,  watcher_tests, keeper_tests};
    const char *only = g_getenv("LEASEHOLD_TEST_ONLY");
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct CMUnitTest));
    for (gsize i = 0; i < G_N_ELEMENTS(lists); i++) {
        for (const struct CMUnitTest *test = lists[i]; test->name != NULL; test++) {
            if ((only == NULL || strstr(test->name, only) != NULL) &&
                !is_skipped(test->name, skip)) {
                g_array_append_vals(all, test, 1);
            }
        }
    }
    driver = with;
    return _cmocka_run_group_tests(name, (const struct CMUnitTest *)(gpointer)all->data, all->len,
                                   NULL, NULL);
}

/* ---- names and waiting ---- */

const char *keep(char *text)
{
    g_ptr_array_add(pool, text);
    return text;
}

const char *k(const char *name)
{
    return keep(g_strconcat(prefix, name, NULL));
}

const char *kend(const char *name)
{
    return keep(lh_etcd_prefix_end(k(name)));
}

void at_end(GDestroyNotify func, gpointer data)
{
    const AtEnd end = {func, data};
    g_array_append_val(ends, end);
}

static void thaw_server(gpointer data)
{
    driver->thaw(data);
}

void freeze_server(void)
{
    at_end(thaw_server, driver);
    driver->freeze(driver);
}

static void empty_server(gpointer data)
{
    driver->set_nospace(data, FALSE);
}

void fill_server(void)
{
    at_end(empty_server, driver);
    driver->set_nospace(driver, TRUE);
}

void wait_for(Condition condition, gpointer data)
{
    if (!driver->run_until(driver, condition, data, WAIT_MS)) {
        fail_msg("waited for %d ms in vain", WAIT_MS);
    }
}

static gboolean never(gpointer data)
{
    (void)data;
    return FALSE;
}

void let_pass(gint64 ms)
{
    driver->run_until(driver, never, NULL, ms);
}

gint64 now_ms(void)
{
    return lh_mono_ms(driver->env);
}

gboolean version_before(const char *version)
{
    int ours[3] = {0};
    int asked[3] = {0};
    sscanf(driver->version, "%d.%d.%d", &ours[0], &ours[1], &ours[2]);
    sscanf(version, "%d.%d.%d", &asked[0], &asked[1], &asked[2]);
    for (int i = 0; i < 3; i++) {
        if (ours[i] != asked[i]) {
            return ours[i] < asked[i];
        }
    }
    return FALSE;
}

/* ---- answers ---- */

static void copy_kv(Kv *to, const LhKv *from)
{
    to->key = pooled_bytes(from->key, from->key_len);
    to->key_len = from->key_len;
    to->value = pooled_bytes(from->value, from->value_len);
    to->value_len = from->value_len;
    to->create_rev = from->create_rev;
    to->mod_rev = from->mod_rev;
    to->version = from->version;
    to->lease = from->lease;
    /* NUL-terminated copies (etcd.h) */
    assert_int_equal(from->key[from->key_len], 0);
    assert_true(from->value_len == 0 || from->value[from->value_len] == '\0');
}

static Kv *copy_kvs(const LhKv *kvs, gsize n)
{
    Kv *copies = scratch((n + 1) * sizeof(Kv));
    for (gsize i = 0; i < n; i++) {
        copy_kv(&copies[i], &kvs[i]);
    }
    return copies;
}

static Answer *answer_new(void)
{
    Answer *answer = scratch(sizeof(Answer));
    answer->error = -1;
    g_ptr_array_add(answers, answer);
    return answer;
}

static gboolean note(Answer *answer, const GError *error)
{
    assert_int_not_equal(answer->call, 0); /* not inside the call that started it */
    answer->times++;
    if (error != NULL) {
        assert_int_equal(error->domain, LH_ERROR);
        answer->error = error->code;
        answer->message = pooled_bytes(error->message, strlen(error->message));
        return FALSE;
    }
    answer->ok = TRUE;
    return TRUE;
}

gboolean answered(gpointer answer)
{
    return ((Answer *)answer)->times > 0;
}

static void on_range(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Answer *answer = data;
    if (note(answer, error)) {
        answer->header = reply->header;
        answer->n = (guint)reply->n_kvs;
        answer->kvs = copy_kvs(reply->kvs, reply->n_kvs);
        answer->count = reply->count;
        answer->more = reply->more;
    }
}

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Answer *answer = data;
    if (!note(answer, error)) {
        return;
    }
    answer->header = reply->header;
    answer->succeeded = reply->succeeded;
    answer->n_ops = (guint)reply->n_ops;
    answer->ops = scratch((reply->n_ops + 1) * sizeof(Op));
    for (guint i = 0; i < reply->n_ops; i++) {
        const LhTxnOpReply *from = &reply->ops[i];
        answer->ops[i] = (Op){.type = from->type,
                              .deleted = from->deleted,
                              .revision = from->range.header.revision,
                              .count = from->range.count,
                              .more = from->range.more,
                              .n = (guint)from->range.n_kvs,
                              .kvs = copy_kvs(from->range.kvs, from->range.n_kvs)};
    }
}

static void on_lease(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    Answer *answer = data;
    if (!note(answer, error)) {
        assert_int_equal(lease, 0);
        assert_int_equal(ttl_s, 0);
    }
    answer->lease = lease;
    answer->ttl_s = ttl_s;
}

static void on_status(const LhStatusReply *reply, const GError *error, gpointer data)
{
    Answer *answer = data;
    if (note(answer, error)) {
        answer->status = *reply;
        answer->header = reply->header;
    }
}

Answer *start_range(const LhRangeRequest *request, gint64 deadline_ms)
{
    Answer *answer = answer_new();
    answer->call = driver->etcd->v->range(driver->etcd, request, deadline_ms, on_range, answer);
    return answer;
}

Answer *start_txn(const LhTxnRequest *request, gint64 deadline_ms)
{
    Answer *answer = answer_new();
    answer->call = driver->etcd->v->txn(driver->etcd, request, deadline_ms, on_txn, answer);
    return answer;
}

Answer *start_grant(gint64 ttl_s, gint64 deadline_ms)
{
    Answer *answer = answer_new();
    answer->call = driver->etcd->v->lease_grant(driver->etcd, ttl_s, deadline_ms, on_lease, answer);
    return answer;
}

Answer *start_keepalive(gint64 lease, gint64 deadline_ms)
{
    Answer *answer = answer_new();
    answer->call = driver->etcd->v->lease_keepalive(driver->etcd, lease, deadline_ms, on_lease,
                                                    answer);
    return answer;
}

Answer *start_revoke(gint64 lease, gint64 deadline_ms)
{
    Answer *answer = answer_new();
    answer->call = driver->etcd->v->lease_revoke(driver->etcd, lease, deadline_ms, on_lease,
                                                 answer);
    return answer;
}

Answer *start_status(gint64 deadline_ms)
{
    Answer *answer = answer_new();
    answer->call = driver->etcd->v->status(driver->etcd, deadline_ms, on_status, answer);
    return answer;
}

static Answer *finish(Answer *answer)
{
    wait_for(answered, answer);
    assert_int_equal(answer->times, 1);
    return answer;
}

static Answer *must(Answer *answer)
{
    finish(answer);
    if (!answer->ok) {
        fail_msg("failed: %s (%s)", lh_error_name((LhErrorCode)answer->error), answer->message);
    }
    return answer;
}

Answer *range(const LhRangeRequest *request)
{
    return finish(start_range(request, LH_ETCD_DEADLINE_MS));
}

Answer *get(const char *key, gint64 at_revision)
{
    const LhRangeRequest request = {.key = key, .revision = at_revision};
    return range(&request);
}

Answer *txn(const LhTxnRequest *request)
{
    return finish(start_txn(request, LH_ETCD_DEADLINE_MS));
}

Answer *ops(const LhTxnOp *list, gsize n)
{
    const LhTxnRequest request = {.success = list, .n_success = n};
    return txn(&request);
}

gint64 put_leased(const char *key, const char *value, gint64 lease)
{
    const LhTxnOp op = lh_txn_put(key, value, lease);
    const LhTxnRequest request = {.success = &op, .n_success = 1};
    return must(start_txn(&request, LH_ETCD_DEADLINE_MS))->header.revision;
}

gint64 put(const char *key, const char *value)
{
    return put_leased(key, value, 0);
}

gint64 del(const char *key, const char *range_end)
{
    const LhTxnOp op = {.type = LH_TXN_DELETE, .key = key, .range_end = range_end};
    const LhTxnRequest request = {.success = &op, .n_success = 1};
    return must(start_txn(&request, LH_ETCD_DEADLINE_MS))->header.revision;
}

gint64 revision(void)
{
    const LhRangeRequest request = {.key = k("none")};
    return must(start_range(&request, LH_ETCD_DEADLINE_MS))->header.revision;
}

gint64 grant(gint64 ttl_s)
{
    Answer *answer = must(start_grant(ttl_s, LH_ETCD_DEADLINE_MS));
    assert_true(answer->lease > 0);
    return answer->lease;
}

Answer *keepalive(gint64 lease)
{
    return finish(start_keepalive(lease, LH_ETCD_DEADLINE_MS));
}

Answer *drop_lease(gint64 lease)
{
    return finish(start_revoke(lease, LH_ETCD_DEADLINE_MS));
}

void assert_fails(const Answer *answer, LhErrorCode code)
{
    if (answer->ok || answer->error != (int)code) {
        fail_msg("expected %s, got %s (%s)", lh_error_name(code),
                 answer->ok ? "success" : lh_error_name((LhErrorCode)answer->error),
                 answer->message != NULL ? answer->message : "");
    }
}

void assert_keys(const Kv *kvs, guint n, const char *names)
{
    g_autoptr(GString) got = g_string_new(NULL);
    for (guint i = 0; i < n; i++) {
        assert_true(g_str_has_prefix(kvs[i].key, prefix));
        g_string_append_printf(got, "%s%s", i > 0 ? " " : "", kvs[i].key + strlen(prefix));
    }
    assert_string_equal(got->str, names);
}

/* ---- watches ---- */

static void on_reply(const LhWatchReply *reply, gpointer data)
{
    Watching *watching = data;
    Reply *copy = scratch(sizeof(Reply));
    assert_non_null(watching->stream); /* not inside the call that opened it */
    assert_int_equal(watching->closed, 0);
    *copy = (Reply){.header = reply->header,
                    .created = reply->created,
                    .canceled = reply->canceled,
                    .fragment = reply->fragment,
                    .progress = reply->progress,
                    .compact_revision = reply->compact_revision,
                    .n = (guint)reply->n_events,
                    .events = scratch((reply->n_events + 1) * sizeof(Kv))};
    for (guint i = 0; i < copy->n; i++) {
        copy_kv(&copy->events[i], &reply->events[i].kv);
        copy->events[i].is_delete = reply->events[i].is_delete;
        g_ptr_array_add(watching->events, &copy->events[i]);
    }
    watching->created += copy->created ? 1 : 0;
    g_ptr_array_add(watching->replies, copy);
}

static void on_closed(const GError *error, gpointer data)
{
    Watching *watching = data;
    watching->closed++;
    watching->error = error->code;
    watching->stream = NULL;
}

Watching *watch(const char *key, const char *range_end, gint64 start_revision)
{
    Watching *watching = scratch(sizeof(Watching));
    const LhWatchRequest request = {key, range_end, start_revision};
    watching->replies = g_ptr_array_new();
    watching->events = g_ptr_array_new();
    g_ptr_array_add(watchings, watching);
    watching->stream = driver->etcd->v->watch(driver->etcd, &request, on_reply, on_closed,
                                              watching);
    return watching;
}

static gboolean is_created(gpointer data)
{
    return ((Watching *)data)->created > 0;
}

Watching *watch_created(const char *key, const char *range_end, gint64 start_revision)
{
    Watching *watching = watch(key, range_end, start_revision);
    wait_for(is_created, watching);
    return watching;
}

typedef struct {
    Watching *watching;
    guint n;
} Awaited;

static gboolean has_events(gpointer data)
{
    const Awaited *awaited = data;
    return awaited->watching->events->len >= awaited->n;
}

void wait_events(Watching *watching, guint n)
{
    Awaited awaited = {watching, n};
    wait_for(has_events, &awaited);
    assert_int_equal(watching->events->len, n);
}

void unwatch(Watching *watching)
{
    if (watching->stream != NULL) {
        driver->etcd->v->watch_close(driver->etcd, g_steal_pointer(&watching->stream));
    }
}

const Kv *event_at(const Watching *watching, guint i)
{
    assert_true(i < watching->events->len);
    return watching->events->pdata[i];
}

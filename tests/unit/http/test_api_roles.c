/* links: fakes */
/* links: httpapi */
/*
 * http/api: what each route of a manager asks of its client, and that it is reached by those who may.
 */
#include "base/json.h"
#include "controllers/registry.h"
#include "http/api.h"
#include "http/api_docs.h"
#include "runtime/runtime.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"
#include "tests/unit/http/fixture.h"

typedef struct {
    Fixture *f;
    SimWorld *world;
    FakeEtcd *etcd;
    LhEtcd *client;
    LhMetrics *metrics;
    LhMirror *mirror;
    LhRuntime *runtime;
    LhApi *api;
    char *tokens;
} Manager;

static int setup_manager(void **state)
{
    Manager *m = g_new0(Manager, 1);
    void *fixture;
    const char *const roles[] = {"viewer", "operator", "admin"};
    g_autoptr(GString) tokens = g_string_new(NULL);
    for (guint i = 0; i < G_N_ELEMENTS(roles); i++) {
        g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, roles[i], -1);
        g_string_append_printf(tokens, "%s %s sha256:%s\n", roles[i], roles[i], digest);
    }
    m->tokens = g_strdup_printf("%s/lh-roles-%d", g_get_tmp_dir(), (int)getpid());
    assert_true(g_file_set_contents(m->tokens, tokens->str, -1, NULL));
    const LhHttpOptions options = {.listen = "127.0.0.1:0", .tokens_file = m->tokens};
    setup_with(&fixture, &options);
    m->f = fixture;

    m->world = sim_world_new(1);
    m->etcd = fake_etcd_new(sim_machine_new(m->world, "etcd"), &(FakeEtcdOptions){0});
    LhEnv *env = sim_machine_new(m->world, "manager");
    m->client = fake_etcd_connect(m->etcd, env, "manager");
    m->metrics = lh_metrics_new();
    lh_runtime_declare_metrics(m->metrics);
    m->mirror = lh_mirror_new(env, m->client, "/leasehold/");
    const LhRuntimeOptions runtime = {
        .instance = "m0", .host = "h", .url = "http://h", .version = "0", .lease_ttl_s = 5};
    m->runtime = lh_runtime_new(env, m->client, m->mirror, m->metrics, lh_controllers(), &runtime);
    const LhApiOptions api = {.env = env,
                              .etcd = m->client,
                              .mirror = m->mirror,
                              .runtime = m->runtime,
                              .metrics = m->metrics,
                              .version = "0"};
    m->api = lh_api_new(m->f->server, &api);
    lh_mirror_start(m->mirror);
    lh_runtime_start(m->runtime);
    sim_world_run_until(m->world, sim_world_now_ms(m->world) + 10000);
    *state = m;
    return 0;
}

static int teardown_manager(void **state)
{
    Manager *m = *state;
    void *fixture = m->f;
    teardown(&fixture);
    lh_api_free(m->api);
    lh_runtime_free(m->runtime);
    lh_mirror_free(m->mirror);
    lh_metrics_free(m->metrics);
    lh_etcd_free(m->client);
    fake_etcd_free(m->etcd);
    sim_world_free(m->world);
    unlink(m->tokens);
    g_free(m->tokens);
    g_free(m);
    return 0;
}

/* As ask, while etcd's time goes on. */
static Client *ask_as(Manager *m, LhRole role, const char *method, const char *path,
                      const char *body)
{
    static const char *const headers[] = {"X-A: b", "Authorization: Bearer viewer",
                                          "Authorization: Bearer operator",
                                          "Authorization: Bearer admin"};
    Client *client = client_new(m->f);
    g_autofree char *request = g_strdup_printf("%s %s HTTP/1.1\n%s\nContent-Type: application/json",
                                               method, path, headers[role]);
    client_ask(m->f, client, request, body);
    for (guint turns = 0; !reply_complete(client) && !client->eof; turns++) {
        assert_true(turns < 10000);
        settle();
        sim_world_run_until(m->world, sim_world_now_ms(m->world) + 10);
    }
    return client;
}

static void client_drop(Manager *m, Client *client)
{
    client_close(client);
    g_string_free(client->in, TRUE);
    m->f->n_clients--;
}

static void test_routes(void **state)
{
    Manager *m = *state;
    static const struct {
        const char *method, *path, *body;
        LhRole role;
        int status;
        const char *says;
    } rows[] = {
        {"GET", "/healthz", NULL, LH_ROLE_ANYONE, 200, "ok"},
        {"GET", "/readyz", NULL, LH_ROLE_ANYONE, 200, "ok"},
        {"GET", "/metrics", NULL, LH_ROLE_VIEWER, 200, "leasehold_"},
        {"GET", "/v1/cluster", NULL, LH_ROLE_VIEWER, 200, "\"instances\""},
        {"GET", "/v1/plan", NULL, LH_ROLE_VIEWER, 200, "\"controllers\""},
        {"GET", "/v1/plan/admission", NULL, LH_ROLE_VIEWER, 200, "\"admission\""},
        {"GET", "/v1/plan/input", NULL, LH_ROLE_OPERATOR, 200, "\"input\":\"leasehold/v1\""},
        {"GET", "/v1/explain/cache/x", NULL, LH_ROLE_VIEWER, 404, "nothing is known"},
        {"GET", "/v1/services", NULL, LH_ROLE_VIEWER, 200, "\"ServiceList\""},
        {"GET", "/v1/services/none", NULL, LH_ROLE_VIEWER, 404, "does not exist"},
        {"GET", "/v1/confirmations", NULL, LH_ROLE_VIEWER, 200, "\"ConfirmationList\""},
        {"PUT", "/v1/services/a", "{\"spec\":{\"owner\":\"me\"}}", LH_ROLE_OPERATOR, 0,
         "\"owner\""},
        {"DELETE", "/v1/services/none", NULL, LH_ROLE_OPERATOR, 404, "does not exist"},
        {"PUT", "/v1/replicas/r", "{}", LH_ROLE_OPERATOR, 405, "not written by people"},
        {"PUT", "/v1/confirmations/cache-evictor", "{\"spec\":{\"planHash\":\"0123456789abcdef\"}}",
         LH_ROLE_ADMIN, 0, "planHash"},
        {"DELETE", "/v1/confirmations/none", NULL, LH_ROLE_ADMIN, 404, "does not exist"},
        {"POST", "/v1/restores", "{\"spec\":{\"snapshots\":[\"a\"]}}", LH_ROLE_OPERATOR, 201,
         "\"name\":\"restore-"},
        {"POST", "/v1/restores", "{\"spec\":{\"service\":\"a\",\"startTime\":1}}", LH_ROLE_OPERATOR,
         422, "\"field\":\"spec.endTime\""},
        {"POST", "/v1/restores", "{\"metadata\":{\"name\":\"a b\"},\"spec\":{}}", LH_ROLE_OPERATOR,
         422, "\"field\":\"metadata.name\""},
        {"POST", "/v1/restores", "{\"metadata\":{\"name\":7},\"spec\":{}}", LH_ROLE_OPERATOR, 422,
         "\"field\":\"metadata.name\""},
        {"POST", "/v1/restores", "nonsense", LH_ROLE_OPERATOR, 400, "JSON"},
        {"POST", "/v1/retries/cache/x:retry", NULL, LH_ROLE_OPERATOR, 404, "no failed attempts"},
        {"POST", "/v1/nodepolicies/cache/n:cordon", NULL, LH_ROLE_OPERATOR, 0, "\"cordon\":true"},
        {"POST", "/v1/nodepolicies/cache/n:uncordon", NULL, LH_ROLE_OPERATOR, 0, "\"cordon\""},
        {"POST", "/v1/nodepolicies/cache/n:drain", NULL, LH_ROLE_OPERATOR, 0, "\"drain\":true"},
        {"POST", "/v1/controllers/cache-evictor:confirm", "{\"planHash\":\"x\"}", LH_ROLE_ADMIN,
         404, "not on its brake"},
        {"POST", "/v1/leaders/admission:move", "{\"instance\":\"m9\"}", LH_ROLE_ADMIN, 404,
         "no candidate"},
        {"POST", "/v1/pools/manager:rebalance", NULL, LH_ROLE_ADMIN, 200,
         "\"object\":\"settings/seed-allocator\""},
        {"POST", "/v1/pools/cache:rebalance", "{}", LH_ROLE_ADMIN, 409, "only for a reason"},
        {"POST", "/v1/pools/indexer:rebalance", "{}", LH_ROLE_ADMIN, 409, "by their throughput"},
        {"POST", "/v1/pools/recovery:rebalance", "{}", LH_ROLE_ADMIN, 409, "until it is done"},
        {"POST", "/v1/pools/worker:rebalance", "{}", LH_ROLE_ADMIN, 409, "until it is done"},
        {"POST", "/v1/pools/nimbus:rebalance", "{}", LH_ROLE_ADMIN, 404, "there is no pool nimbus"},
        {"POST", "/v1/pools/manager:drain", "{}", LH_ROLE_ADMIN, 404, "the only verb here"},
        {"POST", "/v1/pools/manager", "{}", LH_ROLE_ADMIN, 404, "the only verb here"},
        {"GET", "/docs", NULL, LH_ROLE_VIEWER, 308, ""},
        {"GET", "/docs/", NULL, LH_ROLE_VIEWER, 200, "/v1/pools/{pool}:rebalance"},
        {"GET", "/docs/openapi.yaml", NULL, LH_ROLE_VIEWER, 200, "openapi: 3.0"},
        {"GET", "/docs/nothing", NULL, LH_ROLE_VIEWER, 404, "no such path"},
        {"GET", "/nothing", NULL, LH_ROLE_VIEWER, 404, "no such path"},
        {"POST", "/v1/services", "{}", LH_ROLE_VIEWER, 405, "does not have this method"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        for (int role = LH_ROLE_ANYONE; role <= LH_ROLE_ADMIN; role++) {
            Client *client = ask_as(m, (LhRole)role, rows[i].method, rows[i].path, rows[i].body);
            int status = reply_status(client);
            gboolean may = role >= (int)rows[i].role;
            gboolean good = !may                  ? status == (role == LH_ROLE_ANYONE ? 401 : 403)
                            : rows[i].status == 0 ? status == 200 || status == 201
                                                  : status == rows[i].status;
            if (!good || (may && strstr(reply_body(client), rows[i].says) == NULL)) {
                fail_msg("%s %s as %s:\n%s", rows[i].method, rows[i].path,
                         lh_role_name((LhRole)role), client->in->str);
            }
            client_drop(m, client);
        }
    }
}

static void expect_as(Manager *m, LhRole role, const char *method, const char *path,
                      const char *body, int status, const char *says)
{
    Client *client = ask_as(m, role, method, path, body);
    if (reply_status(client) != status || strstr(reply_body(client), says) == NULL)
        fail_msg("%s %s %s: not %d %s:\n%s", method, path, body, status, says, client->in->str);
    client_drop(m, client);
}

static void expect(Manager *m, const char *method, const char *path, const char *body, int status,
                   const char *says)
{
    expect_as(m, LH_ROLE_OPERATOR, method, path, body, status, says);
}

/* A restore is created once, under the name that is given. */
static void test_restores_are_created(void **state)
{
    Manager *m = *state;
    static const char body[] = "{\"metadata\":{\"name\":\"r\"},\"spec\":{\"service\":\"a\","
                               "\"startTime\":1,\"endTime\":2}}";
    expect(m, "POST", "/v1/restores?dryRun=true", body, 200, "\"r\"");
    expect(m, "GET", "/v1/restores/r", NULL, 404, "does not exist");
    expect(m, "POST", "/v1/restores", body, 201, "\"ttl\":\"1h\"");
    expect(m, "GET", "/v1/restores/r", NULL, 200, "\"service\":\"a\"");
    expect(m, "POST", "/v1/restores", body, 412, "Restore r exists already");
    expect(m, "POST", "/v1/services", body, 405, "does not have this method");
}

/* Who may not write has not written. */
static void test_refused_writes(void **state)
{
    Manager *m = *state;
    client_drop(
        m, ask_as(m, LH_ROLE_VIEWER, "PUT", "/v1/services/a", "{\"spec\":{\"owner\":\"me\"}}"));
    Client *client = ask_as(m, LH_ROLE_VIEWER, "GET", "/v1/services/a", NULL);
    assert_int_equal(reply_status(client), 404);
    client_drop(m, client);
}

/* ---- rebalance ---- */

#define REBALANCE "/v1/pools/manager:rebalance"
#define ALLOCATOR "/v1/settings/seed-allocator"

/* The value that etcd has; g_free. */
static void on_value(const LhRangeReply *reply, const GError *error, gpointer data)
{
    assert_null(error);
    *(char **)data = g_strdup(reply->n_kvs == 1 ? reply->kvs[0].value : "none");
}

static char *value_of(Manager *m, const char *key)
{
    char *value = NULL;
    guint turns = 0;
    const LhRangeRequest range = {.key = key};
    lh_etcd_range(m->client, &range, on_value, &value);
    while (value == NULL) {
        assert_true(turns++ < 1000);
        sim_world_run_until(m->world, sim_world_now_ms(m->world) + 10);
    }
    return value;
}

static void on_put(const LhTxnReply *reply, const GError *error, gpointer data)
{
    (void)data;
    assert_null(error);
    assert_true(reply->succeeded);
}

static void store(Manager *m, const char *name, const char *value)
{
    g_autofree char *key = g_strconcat("/leasehold/", name, NULL);
    LhTxnOp op = lh_txn_put(key, value, 0);
    const LhTxnRequest txn = {.success = &op, .n_success = 1};
    lh_etcd_txn(m->client, &txn, on_put, NULL);
    sim_world_run_until(m->world, sim_world_now_ms(m->world) + 1000);
}

static gint64 asked_at(Manager *m)
{
    g_autofree char *value = value_of(m, "/leasehold/desired/settings/seed-allocator");
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_SETTINGS, "seed-allocator", value,
                                                 strlen(value), 0, 0, 0);
    assert_true(lh_object_known(object));
    return ((const LhSettings *)object)->rebalance_at;
}

/* Where a person wrote nothing, the request makes the object, and a dry run makes none. */
static void test_rebalance_creates(void **state)
{
    Manager *m = *state;
    expect_as(m, LH_ROLE_ADMIN, "POST", REBALANCE "?dryRun=true", "{}", 200, "\"dryRun\":true");
    expect_as(m, LH_ROLE_ADMIN, "GET", ALLOCATOR, NULL, 404, "does not exist");
    expect_as(m, LH_ROLE_OPERATOR, "POST", REBALANCE, "{}", 403, "the role admin is needed");
    expect_as(m, LH_ROLE_ADMIN, "GET", ALLOCATOR, NULL, 404, "does not exist");
    expect_as(m, LH_ROLE_ADMIN, "POST", REBALANCE, "{}", 200, "\"rebalanceAt\":\"");
    gint64 first = asked_at(m);
    assert_true(first > 0);
    expect_as(m, LH_ROLE_ADMIN, "POST", REBALANCE, "{}", 200, "\"revision\":");
    assert_true(asked_at(m) > first);
}

/* All else is as the person wrote it, even what nobody knows; the answer's revision is the object's. */
static void test_rebalance_keeps(void **state)
{
    Manager *m = *state;
    expect(m, "PUT", ALLOCATOR,
           "{\"metadata\":{\"labels\":{\"team\":\"crawl\"}},\"spec\":{\"autoRebalance\":false,"
           "\"rebalanceAt\":\"2200-01-01T00:00:00Z\",\"theirs\":[1,2]}}",
           201, "crawl");
    Client *client = ask_as(m, LH_ROLE_ADMIN, "POST", REBALANCE, "{}");
    assert_int_equal(reply_status(client), 200);
    g_autoptr(cJSON) reply = cJSON_Parse(reply_body(client));
    gint64 revision = lh_json_get_int(reply, "revision", 0);
    client_drop(m, client);
    g_autofree char *value = value_of(m, "/leasehold/desired/settings/seed-allocator");
    /* Later than the request before, although that is of a clock far ahead. */
    assert_string_equal(value, "{\"metadata\":{\"labels\":{\"team\":\"crawl\"}},\"spec\":{"
                               "\"autoRebalance\":false,\"theirs\":[1,2],\"rebalanceAt\":"
                               "\"2200-01-01T00:00:00.001Z\"}}");
    g_autofree char *says = g_strdup_printf("\"revision\":%" G_GINT64_FORMAT ",", revision);
    expect(m, "GET", ALLOCATOR, NULL, 200, says);
}

/* Nothing is written over what does not parse. */
static void test_rebalance_refuses(void **state)
{
    Manager *m = *state;
    static const char key[] = "/leasehold/desired/settings/seed-allocator";
    static const char bad[] = "{\"spec\":{\"autoRebalance\":3}}";
    store(m, "desired/settings/seed-allocator", bad);
    expect_as(m, LH_ROLE_ADMIN, "POST", REBALANCE, "{}", 409, "spec.autoRebalance");
    g_autofree char *value = value_of(m, key);
    assert_string_equal(value, bad);
}

/* ---- crawl fleets ---- */

/* The values of a seed's config are for those who may write it; where a secret is, and keys, for all. */
static void test_config_is_hidden(void **state)
{
    Manager *m = *state;
    store(
        m, "desired/seeds/s",
        "{\"spec\":{\"connector\":\"wiki\",\"config\":{\"space\":\"K1\",\"pin\":7731,"
        "\"token\":{\"fromFile\":\"/etc/t\"},\"deep\":[{\"fromFile\":\"K2\",\"more\":\"K3\"},\"K4\"]}}}");
    store(m, "desired/seeds/bad", "{\"spec\":{\"config\":{\"a\":\"K5\"}}}");
    store(
        m, "decided/assignments/manager/n-00000001/s",
        "{\"action\":\"load\",\"since\":1,\"controller\":\"seed-allocator\",\"epoch\":1,\"rule\":\"r\","
        "\"reason\":\"r\",\"seed\":{\"connector\":\"wiki\",\"config\":{\"space\":\"K6\"}}}");
    static const char *const paths[] = {"/v1/seeds",       "/v1/seeds?limit=10",
                                        "/v1/seeds/s",     "/v1/seeds/bad",
                                        "/v1/accepted",    "/v1/accepted/seeds/s",
                                        "/v1/assignments", "/v1/assignments/manager/n-00000001/s"};
    static const char *const secrets[] = {"K1", "K2", "K3", "K4", "K5", "K6", "7731"};
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        Client *viewer = ask_as(m, LH_ROLE_VIEWER, "GET", paths[i], NULL);
        assert_int_equal(reply_status(viewer), 200);
        for (guint j = 0; j < G_N_ELEMENTS(secrets); j++)
            if (strstr(reply_body(viewer), secrets[j]) != NULL)
                fail_msg("%s shows %s: %s", paths[i], secrets[j], reply_body(viewer));
        client_drop(m, viewer);
    }
    expect_as(
        m, LH_ROLE_VIEWER, "GET", "/v1/seeds/s", NULL, 200,
        "\"config\":{\"space\":\"(hidden)\",\"pin\":\"(hidden)\",\"token\":{\"fromFile\":\"/etc/t\"},"
        "\"deep\":[{\"fromFile\":\"(hidden)\",\"more\":\"(hidden)\"},\"(hidden)\"]}");
    /* Who edits it must get what was written. */
    expect(m, "GET", "/v1/seeds/s", NULL, 200, "\"space\":\"K1\",\"pin\":7731");
    expect(m, "GET", "/v1/seeds/bad", NULL, 200, "K5");
    expect(m, "GET", "/v1/accepted/seeds/s", NULL, 200, "K1");
}

static void test_crawl_status(void **state)
{
    Manager *m = *state;
    store(m, "desired/throttles/t", "{\"spec\":{\"maxConcurrent\":2}}");
    expect(m, "GET", "/v1/throttles/t", NULL, 200, "\"seeds\":0");
    store(m, "desired/seeds/a", "{\"spec\":{\"url\":\"http://a\",\"throttle\":\"t\"}}");
    store(m, "desired/seeds/b", "{\"spec\":{\"url\":\"http://b\",\"throttle\":\"t\"}}");
    store(m, "desired/seeds/c", "{\"spec\":{\"url\":\"http://c\"}}");
    expect(m, "GET", "/v1/throttles/t", NULL, 200, "\"seeds\":2");
    store(m, "actual/nodes/manager/n-00000001",
          "{\"name\":\"n\",\"lease\":\"1\",\"capacityItems\":4}");
    /* seed-allocator has given them to it. */
    expect(m, "GET", "/v1/throttles/t", NULL, 200, "\"seeds\":2,\"holder\":\"n-00000001\"");
    expect(m, "GET", "/v1/seeds/b", NULL, 200, "\"owner\":\"n-00000001\"");
    expect(m, "GET", "/v1/seeds/b", NULL, 200, "\"since\":\"2026-01-01T00:00:");
    expect(m, "GET", "/v1/seeds/b", NULL, 200, "\"reason\":\"the manager ");
    expect(m, "GET", "/v1/seeds/b", NULL, 200, "\"window\":\"");
    expect(m, "GET", "/v1/cluster", NULL, 200,
           "{\"pool\":\"manager\",\"nodes\":1,\"items\":3,\"capacityItems\":4,\"waitingItems\":0}");
    store(m, "actual/nodes/manager/o-00000002", "{\"name\":\"o\",\"lease\":\"2\"}");
    expect(m, "GET", "/v1/cluster", NULL, 200,
           "{\"pool\":\"manager\",\"nodes\":2,\"items\":3,\"capacityItems\":0,\"waitingItems\":0}");
    store(m, "decided/health/manager/n-00000001",
          "{\"state\":\"probation\",\"since\":5000,\"reason\":\"was away\"}");
    expect(m, "GET", "/v1/nodes/manager/n-00000001", NULL, 200,
           "\"health\":\"probation\",\"healthSince\":\"1970-01-01T00:00:05.000Z\","
           "\"healthReason\":\"was away\"");
}

/* Whoever watches an object is told what becomes of it, not only what is written to it. */
static void test_watch_of_status(void **state)
{
    Manager *m = *state;
    Client *client = client_new(m->f);
    client_ask(m->f, client, "GET /v1/services?watch=true HTTP/1.1\nAuthorization: Bearer viewer",
               NULL);
    Client *other = client_new(m->f);
    client_ask(m->f, other, "GET /v1/seeds?watch=true HTTP/1.1\nAuthorization: Bearer viewer",
               NULL);
    wait_for(reply_body(client) != NULL && reply_body(other) != NULL);
    store(m, "desired/services/a", "{\"spec\":{\"owner\":\"me\"}}");
    store(m, "decided/status/services/none/admission",
          "{\"observedRevision\":1,\"conditions\":[]}");
    /* First the object, then what admission says of it: both are the object's events. */
    wait_for(strstr(client->in->str, "\"Valid\"") != NULL);
    assert_null(strstr(client->in->str, "none"));
    assert_null(strstr(other->in->str, "event:"));
    client_drop(m, client);
    client_drop(m, other);
}

static guint count_of(const char *text, const char *words)
{
    guint n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

/* A recovery task's state and a seed's follow from orders and answers, a restore's from its progress. */
static void test_watch_of_what_follows(void **state)
{
    static const struct {
        const char *plural, *key, *value, *says;
    } rows[] = {
        {"recoverytasks", "decided/retries/recovery/t",
         "{\"attempt\":1,\"notBefore\":1,\"message\":\"m\",\"parked\":true}",
         "\"state\":\"Parked\""},
        {"recoverytasks", "decided/assignments/recovery/n-00000001/u",
         "{\"action\":\"load\",\"since\":1000,\"controller\":\"recovery-assigner\",\"epoch\":1,"
         "\"rule\":\"r\",\"reason\":\"because\",\"partition\":\"p\",\"startOffset\":3,"
         "\"endOffset\":4}",
         "\"owner\":\"n-00000001\""},
        {"seeds", "decided/retries/manager/a",
         "{\"attempt\":1,\"notBefore\":1,\"message\":\"m\",\"parked\":true}", "\"name\":\"a\""},
        {"restores", "decided/restoreprogress/r",
         "{\"phase\":\"Active\",\"observedRevision\":1,\"replicas\":3,\"live\":2}", "\"live\":2"},
    };
    Manager *m = *state;
    Client *clients[G_N_ELEMENTS(rows)];
    store(m, "published/recoverytasks/t",
          "{\"partition\":\"p\",\"startOffset\":1,\"endOffset\":2}");
    store(m, "published/recoverytasks/u",
          "{\"partition\":\"p\",\"startOffset\":3,\"endOffset\":4}");
    store(m, "desired/seeds/a", "{\"spec\":{\"url\":\"http://a\"}}");
    store(m, "desired/restores/r", "{\"spec\":{\"snapshots\":[\"s\"]}}");
    expect(m, "GET", "/v1/seeds/a", NULL, 200, "\"Valid\"");
    store(m, "desired/settings/all", "{\"spec\":{\"paused\":true}}");
    expect(m, "GET", "/v1/settings/all", NULL, 200, "\"Valid\"");
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *ask = g_strdup_printf(
            "GET /v1/%s?watch=true HTTP/1.1\nAuthorization: Bearer viewer", rows[i].plural);
        clients[i] = client_new(m->f);
        client_ask(m->f, clients[i], ask, NULL);
        wait_for(reply_body(clients[i]) != NULL);
    }
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        store(m, rows[i].key, rows[i].value);
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        wait_for(strstr(clients[i]->in->str, rows[i].says) != NULL);
    /* What is nobody's is no event. */
    store(m, "decided/retries/recovery/none", "{\"attempt\":1,\"notBefore\":1,\"message\":\"m\"}");
    store(m, "decided/retries/cache/t", "{\"attempt\":1,\"notBefore\":1,\"message\":\"cached\"}");
    store(m, "decided/retries/recovery/t",
          "{\"attempt\":2,\"notBefore\":1,\"message\":\"again\",\"parked\":true}");
    wait_for(count_of(clients[0]->in->str, "event: PUT") == 3);
    assert_int_equal(count_of(clients[2]->in->str, "event: PUT"), 1);
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        client_drop(m, clients[i]);
}

/* How many replicas of it are live is shown, and whoever watches it sees it change: once for each. */
static void test_watch_of_replicas(void **state)
{
    static const char item[] = "actual/items/cache/n-00000001/a.b.default.0";
    Manager *m = *state;
    store(m, "desired/settings/all", "{\"spec\":{\"paused\":true}}");
    expect(m, "GET", "/v1/settings/all", NULL, 200, "\"Valid\"");
    store(m, "published/snapshots/a.b",
          "{\"service\":\"x\",\"partition\":\"p\",\"startTime\":1000,\"endTime\":2000,"
          "\"sizeBytes\":1,\"uri\":\"s3://b/a/\"}");
    Client *client = client_new(m->f);
    client_ask(m->f, client, "GET /v1/snapshots?watch=true HTTP/1.1\nAuthorization: Bearer viewer",
               NULL);
    wait_for(reply_body(client) != NULL);
    store(m, "decided/replicas/a.b.default.0",
          "{\"snapshot\":\"a.b\",\"service\":\"x\",\"set\":\"default\",\"ordinal\":0,"
          "\"createdAt\":1000,\"expiresAt\":32500000000000}");
    wait_for(strstr(client->in->str, "\"replicas\":1,\"replicasLive\":0") != NULL);
    store(m, "decided/assignments/cache/n-00000001/a.b.default.0",
          "{\"action\":\"load\",\"since\":1000,\"controller\":\"cache-assigner\",\"epoch\":1,"
          "\"rule\":\"r\",\"reason\":\"because\",\"snapshot\":\"a.b\",\"uri\":\"s3://b/a/\","
          "\"sizeBytes\":1,\"set\":\"default\"}");
    const LhObject *order = NULL;
    wait_for((order = lh_mirror_get(m->mirror, LH_KIND_ASSIGNMENT,
                                    "cache/n-00000001/a.b.default.0")) != NULL);
    for (guint i = 0; i < 3; i++) {
        g_autofree char *value = g_strdup_printf(
            "{\"state\":\"%s\",\"since\":%u,\"assignment\":%" G_GINT64_FORMAT
            ",\"bytesDone\":%u,\"bytesTotal\":3}",
            i == 2 ? "live" : "loading", i == 2 ? 2000 : 1000, order->mod_rev, i);
        store(m, item, value);
    }
    wait_for(strstr(client->in->str, "\"replicas\":1,\"replicasLive\":1") != NULL);
    assert_int_equal(count_of(client->in->str, "event: PUT"), 3); /* bytes that come are no event */
    expect(m, "GET", "/v1/snapshots/a.b", NULL, 200, "\"replicasLive\":1");
    client_drop(m, client);
}

/* ---- docs ---- */

static Client *ask_docs(Manager *m, const char *method, const char *path, const char *tag)
{
    Client *client = client_new(m->f);
    g_autofree char *request = g_strdup_printf("%s %s HTTP/1.1\nAuthorization: Bearer viewer%s%s",
                                               method, path, tag != NULL ? "\nIf-None-Match: " : "",
                                               tag != NULL ? tag : "");
    client_ask(m->f, client, request, NULL);
    wait_for(reply_body(client) != NULL &&
             (strcmp(method, "HEAD") == 0 || tag != NULL || reply_complete(client)));
    return client;
}

/* Whole, unchanged, and not sent twice to those who have it. */
static void test_docs(void **state)
{
    Manager *m = *state;
    static const char *const paths[] = {"/docs/", "/docs/openapi.yaml"};
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        Client *whole = ask_docs(m, "GET", paths[i], NULL);
        g_autofree char *etag = reply_header(whole, "ETag");
        g_autofree char *length = reply_header(whole, "Content-Length");
        assert_int_equal(reply_status(whole), 200);
        assert_non_null(etag);
        /* Nothing from outside. */
        assert_null(strstr(reply_body(whole), "src="));
        assert_null(strstr(reply_body(whole), "<link"));
        client_drop(m, whole);
        Client *head = ask_docs(m, "HEAD", paths[i], NULL);
        assert_int_equal(reply_status(head), 200);
        assert_header(head, "ETag", etag);
        assert_header(head, "Content-Length", length);
        assert_string_equal(reply_body(head), "");
        client_drop(m, head);
        Client *known = ask_docs(m, "GET", paths[i], etag);
        assert_int_equal(reply_status(known), 304);
        assert_string_equal(reply_body(known), "");
        client_drop(m, known);
        Client *other = ask_docs(m, "GET", paths[i], "\"other\"");
        assert_int_equal(reply_status(other), 200);
        client_drop(m, other);
    }
}

/* What is no description of an API has no page; what it says of others cannot break out of the page. */
static void test_page(void **state)
{
    static const char *const bad[] = {"", "a: [", "info: {title: x}", "paths: 3"};
    static const char good[] =
        "info: {title: <t>}\n"
        "paths: {/x: {get: {summary: 'a & b', x-role: admin, parameters: "
        "[{$ref: '#/components/parameters/p'}], responses: {'200': {description: fine}}}}}\n"
        "components: {parameters: {p: {name: pp, in: query, description: of p}}}\n";
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++)
        assert_null(lh_openapi_page(bad[i], strlen(bad[i])));
    g_autofree char *page = lh_openapi_page(good, strlen(good));
    static const char *const says[] = {"&lt;t&gt;", "GET",  "/x",  "a &amp; b", "admin",
                                       "pp",        "of p", "200", "fine"};
    for (guint i = 0; i < G_N_ELEMENTS(says); i++)
        assert_non_null(strstr(page, says[i]));
    assert_null(strstr(page, "<t>"));
}

#define manager_case(name) cmocka_unit_test_setup_teardown(name, setup_manager, teardown_manager)

int main(void)
{
    const struct CMUnitTest tests[] = {
        manager_case(test_routes),
        manager_case(test_restores_are_created),
        manager_case(test_refused_writes),
        manager_case(test_rebalance_creates),
        manager_case(test_rebalance_keeps),
        manager_case(test_rebalance_refuses),
        manager_case(test_config_is_hidden),
        manager_case(test_crawl_status),
        manager_case(test_watch_of_status),
        manager_case(test_watch_of_what_follows),
        manager_case(test_watch_of_replicas),
        manager_case(test_docs),
        cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests_name("http/api_roles", tests, NULL, NULL);
}

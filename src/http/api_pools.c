/*
 * POST /v1/pools/<pool>:rebalance. Only the pool manager can be asked: the request is `rebalanceAt` in the
 * Settings of its assigner, put there by compare-and-set into what a person wrote; the controller carries it
 * out and says so in its Status. The value is read from etcd, not from the mirror, so that a conflict
 * means a real one.
 */
#include "base/errors.h"
#include "base/json.h"
#include "base/units.h"
#include "controllers/fleet.h"
#include "controllers/pool.h"
#include "http/api_internal.h"

#include <string.h>

#define ASSIGNER "seed-allocator"

static const struct {
    const char *pool;
    const char *refusal; /* NULL: it can be rebalanced on request */
} pools[] = {
    {LH_POOL_MANAGER, NULL},
    {LH_POOL_CACHE,
     "replicas are moved only for a reason: a failed, cordoned or drained node, or an edited service"},
    {LH_POOL_INDEXER, "partitions are placed by their throughput, and move on their own"},
    {LH_POOL_RECOVERY, "a recovery task stays where it is until it is done"},
    {"worker", "a batch stays where it is until it is done"},
};

typedef struct {
    LhApi *api;
    LhHttpRequest *request;
    gboolean dry_run;
    char *key;
    gint64 at_ms;    /* the rebalanceAt that is asked for */
    gint64 revision; /* of the Settings that it goes into; 0: none */
} Rebalance;

static void rebalance_free(Rebalance *rebalance)
{
    g_free(rebalance->key);
    g_free(rebalance);
}

/* ---- the value ---- */

/* What a person wrote, to be added to; NULL: it is not valid, which is @error's matter. */
static cJSON *present_value(const LhKv *kv, gint64 *last_ms, GError **error)
{
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_SETTINGS, ASSIGNER, kv->value,
                                                 kv->value_len, kv->create_rev, kv->mod_rev, 0);
    if (!lh_object_known(object)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s", lh_object_error(object));
        return NULL;
    }
    *last_ms = ((const LhSettings *)object)->rebalance_at;
    return lh_json_parse(kv->value, kv->value_len, LH_JSON_MAX_BYTES, error);
}

static cJSON *new_value(void)
{
    cJSON *value = cJSON_CreateObject();
    cJSON_AddStringToObject(value, "apiVersion", LH_API_VERSION);
    cJSON_AddStringToObject(value, "kind", lh_kind_info(LH_KIND_SETTINGS)->name);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(value, "metadata"), "name", ASSIGNER);
    cJSON_AddObjectToObject(value, "spec");
    return value;
}

/* The value to be written; NULL: the Settings that are there are not valid, or have no room. */
static char *value_with_request(Rebalance *rebalance, const LhRangeReply *reply, GError **error)
{
    gint64 last_ms = -1;
    g_autoptr(cJSON) value = reply->n_kvs == 0 ? new_value()
                                               : present_value(&reply->kvs[0], &last_ms, error);
    if (value == NULL)
        return NULL;
    /* Each request is later than the one before, whatever the clocks of the instances say. */
    rebalance->at_ms = MAX(lh_wall_ms(rebalance->api->options.env), last_ms + 1);
    rebalance->revision = reply->n_kvs == 0 ? 0 : reply->kvs[0].mod_rev;

    g_autofree char *at = lh_time_format(rebalance->at_ms);
    cJSON *spec = cJSON_GetObjectItemCaseSensitive(value, "spec");
    cJSON_DeleteItemFromObjectCaseSensitive(spec, "rebalanceAt");
    cJSON_AddStringToObject(spec, "rebalanceAt", at);

    g_autofree char *text = lh_json_print(value);
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_SETTINGS, ASSIGNER, text, strlen(text), 0,
                                                 0, 0);
    if (!lh_object_known(object)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s", lh_object_error(object));
        return NULL;
    }
    return g_steal_pointer(&text);
}

/* ---- the request ---- */

static void reply_asked(const Rebalance *rebalance, gint64 revision)
{
    g_autofree char *at = lh_time_format(rebalance->at_ms);
    GString *out = g_string_new("{");

    lh_json_append_key(out, "pool");
    lh_json_append_string(out, LH_POOL_MANAGER);
    lh_json_append_key(out, "object");
    lh_json_append_string(out, "settings/" ASSIGNER);
    lh_json_append_key(out, "rebalanceAt");
    lh_json_append_string(out, at);
    lh_json_append_key(out, "revision");
    lh_json_append_int(out, revision);
    if (rebalance->dry_run)
        g_string_append(out, ",\"dryRun\":true");
    g_string_append_c(out, '}');
    lh_http_reply_json(rebalance->request, 200, g_string_free(out, FALSE), NULL);
}

static void on_asked(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Rebalance *rebalance = data;

    if (error != NULL)
        lh_http_reply_error(rebalance->request, error);
    else if (!reply->succeeded)
        lh_http_reply_problem(rebalance->request, 409, NULL,
                              "settings/" ASSIGNER ": it was changed meanwhile; ask again");
    else
        reply_asked(rebalance, reply->header.revision);
    rebalance_free(rebalance);
}

static void on_read(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Rebalance *rebalance = data;
    g_autoptr(GError) invalid = NULL;
    g_autofree char *value = NULL;

    if (error != NULL) {
        lh_http_reply_error(rebalance->request, error);
        rebalance_free(rebalance);
        return;
    }
    value = value_with_request(rebalance, reply, &invalid);
    if (value == NULL) {
        lh_http_reply_problem(rebalance->request, 409, NULL,
                              "settings/" ASSIGNER " is not valid (%s): mend it first",
                              invalid != NULL ? invalid->message : "no reason given");
        rebalance_free(rebalance);
        return;
    }
    if (rebalance->dry_run) {
        reply_asked(rebalance, rebalance->revision);
        rebalance_free(rebalance);
        return;
    }
    LhCompare compare = lh_compare_mod(rebalance->key, rebalance->revision);
    LhTxnOp op = lh_txn_put(rebalance->key, value, 0);
    LhTxnRequest txn = {.compares = &compare, .n_compares = 1, .success = &op, .n_success = 1};
    lh_etcd_txn(rebalance->api->options.etcd, &txn, on_asked, rebalance);
}

static void ask(LhApi *api, LhHttpRequest *request)
{
    Rebalance *rebalance = g_new0(Rebalance, 1);

    rebalance->api = api;
    rebalance->request = request;
    rebalance->dry_run = lh_api_wants_dry_run(request);
    rebalance->key = lh_api_etcd_key(api, LH_KIND_SETTINGS, ASSIGNER);
    LhRangeRequest range = {.key = rebalance->key};
    lh_etcd_range(api->options.etcd, &range, on_read, rebalance);
}

static void handle_pools(LhHttpRequest *request, gpointer data)
{
    const char *verb = NULL;
    g_autofree char *pool = lh_api_verb_of(lh_http_rest(request), &verb);

    if (pool == NULL || strcmp(verb, "rebalance") != 0) {
        lh_http_reply_problem(request, 404, NULL, "the only verb here is :rebalance");
        return;
    }
    for (guint i = 0; i < G_N_ELEMENTS(pools); i++) {
        if (strcmp(pool, pools[i].pool) != 0)
            continue;
        if (pools[i].refusal == NULL)
            ask(data, request);
        else
            lh_http_reply_problem(request, 409, NULL, "pool %s is not rebalanced on request: %s",
                                  pool, pools[i].refusal);
        return;
    }
    lh_http_reply_problem(request, 404, NULL, "there is no pool %s", pool);
}

void lh_api_pools_routes(LhApi *api)
{
    lh_http_server_route(api->server, "POST", "/v1/pools/*", LH_ROLE_ADMIN, handle_pools, api);
}

/*
 * What an operator asks for besides editing desired state: plans and explanations, retry, confirm, cordon,
 * and handing over leadership. Each write compares what it was decided on.
 */
#include "base/errors.h"
#include "base/json.h"
#include "controllers/explain.h"
#include "controllers/fleet.h"
#include "http/api_internal.h"
#include "runtime/record.h"

#include <string.h>

/* ---- plans ---- */

static char *combined_hash(GPtrArray *hashes)
{
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);

    for (guint i = 0; i < hashes->len; i++)
        g_checksum_update(sum, g_ptr_array_index(hashes, i), -1);
    return g_strndup(g_checksum_get_string(sum), 16);
}

static gboolean is_paused(const LhApi *api, const LhController *controller)
{
    LhPlanContext context;
    gconstpointer index = lh_runtime_index(api->options.runtime, controller, &context);

    return lh_controller_paused(controller, index);
}

static void reply_plans(LhApi *api, LhHttpRequest *request, const char *only)
{
    const LhController *const *controllers = lh_runtime_controllers(api->options.runtime);
    g_autoptr(GPtrArray) hashes = g_ptr_array_new_with_free_func(g_free);
    GString *out;
    g_autofree char *hash = NULL;

    if (lh_mirror_revision(api->options.mirror) == 0) {
        lh_http_reply_problem(request, 503, NULL, "the mirror has not caught up with etcd yet");
        return;
    }
    out = g_string_new("{\"revision\":");
    lh_json_append_int(out, lh_mirror_revision(api->options.mirror));
    lh_json_append_key(out, "controllers");
    g_string_append_c(out, '[');
    for (guint i = 0; controllers[i] != NULL; i++) {
        if (only != NULL && strcmp(controllers[i]->name, only) != 0)
            continue;
        g_autoptr(LhPlan) plan = lh_runtime_plan(api->options.runtime, controllers[i], TRUE);
        if (hashes->len > 0)
            g_string_append_c(out, ',');
        g_ptr_array_add(hashes, lh_plan_hash(plan));
        lh_plan_append_json(
            out, controllers[i], plan, lh_runtime_leads(api->options.runtime, controllers[i]->name),
            is_paused(api, controllers[i]),
            lh_mirror_get(api->options.mirror, LH_KIND_BRAKE, controllers[i]->name));
    }
    g_string_append_c(out, ']');
    hash = combined_hash(hashes);
    lh_json_append_key(out, "hash");
    lh_json_append_string(out, hash);
    g_string_append_c(out, '}');
    if (hashes->len == 0) {
        g_string_free(out, TRUE);
        lh_http_reply_problem(request, 404, NULL, "no controller is called %s", only);
        return;
    }
    lh_http_reply_json(request, 200, g_string_free(out, FALSE), NULL);
}

static void handle_plans(LhHttpRequest *request, gpointer data)
{
    reply_plans(data, request, NULL);
}

static void handle_input(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    gsize len;
    g_autofree char *text = lh_record_dump(api->options.mirror, lh_wall_ms(api->options.env), &len);

    lh_http_reply(request, 200, "application/x-ndjson", text, (gssize)len);
}

static void handle_plan(LhHttpRequest *request, gpointer data)
{
    reply_plans(data, request, lh_http_rest(request));
}

/* ---- explain: /v1/explain/<pool>/<item> ---- */

static void handle_explain(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    const char *rest = lh_http_rest(request), *slash = strchr(rest, '/'), *state = NULL;
    g_autofree char *pool = slash == NULL ? NULL : g_strndup(rest, (gsize)(slash - rest));
    LhPlanContext context;
    gboolean cache = g_strcmp0(pool, LH_POOL_CACHE) == 0;
    gconstpointer index = cache ? lh_runtime_index(api->options.runtime,
                                                   lh_runtime_controllers(api->options.runtime)[0],
                                                   &context)
                                : lh_api_pools(api, &context);
    g_autoptr(GPtrArray) lines = NULL;
    GString *out;

    if (slash != NULL && index != NULL)
        lines = cache ? lh_explain(index, &context, pool, slash + 1, &state)
                      : lh_explain_pool(index, &context, pool, slash + 1, &state);

    if (lines == NULL) {
        lh_http_reply_problem(request, 404, NULL, "nothing is known of item %s", rest);
        return;
    }
    out = g_string_new("{");
    lh_json_append_key(out, "pool");
    lh_json_append_string(out, pool);
    lh_json_append_key(out, "item");
    lh_json_append_string(out, slash + 1);
    lh_json_append_key(out, "state");
    lh_json_append_string(out, state);
    lh_json_append_key(out, "reason");
    lh_json_append_string(out, g_ptr_array_index(lines, lines->len - 1));
    lh_json_append_key(out, "lines");
    g_string_append_c(out, '[');
    for (guint i = 0; i < lines->len; i++) {
        if (i > 0)
            g_string_append_c(out, ',');
        lh_json_append_string(out, g_ptr_array_index(lines, i));
    }
    g_string_append(out, "]}");
    lh_http_reply_json(request, 200, g_string_free(out, FALSE), NULL);
}

/* ---- "<name>:<verb>" ---- */

char *lh_api_verb_of(const char *rest, const char **verb)
{
    const char *colon = strrchr(rest, ':');

    if (colon == NULL)
        return NULL;
    *verb = colon + 1;
    return g_strndup(rest, (gsize)(colon - rest));
}

/* ---- retry ---- */

typedef struct {
    LhHttpRequest *request;
    char *what;
} Action;

static void on_action(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Action *action = data;

    if (error != NULL)
        lh_http_reply_error(action->request, error);
    else if (!reply->succeeded)
        lh_http_reply_problem(action->request, 409, NULL, "%s: it was changed meanwhile",
                              action->what);
    else
        lh_http_reply_json(
            action->request, 200,
            g_strdup_printf("{\"revision\":%" G_GINT64_FORMAT "}", reply->header.revision), NULL);
    g_free(action->what);
    g_free(action);
}

static void run_action(LhApi *api, LhHttpRequest *request, const LhTxnRequest *txn, char *what)
{
    Action *action = g_new0(Action, 1);

    action->request = request;
    action->what = what;
    lh_etcd_txn(api->options.etcd, txn, on_action, action);
}

static void handle_retry(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    const char *verb = NULL;
    g_autofree char *name = lh_api_verb_of(lh_http_rest(request), &verb);
    const LhObject *retry;

    if (name == NULL || strcmp(verb, "retry") != 0) {
        lh_http_reply_problem(request, 404, NULL, "the only verb here is :retry");
        return;
    }
    retry = lh_mirror_get(api->options.mirror, LH_KIND_RETRY, name);
    if (retry == NULL) {
        lh_http_reply_problem(request, 404, NULL, "%s has no failed attempts", name);
        return;
    }
    g_autofree char *key = lh_api_etcd_key(api, LH_KIND_RETRY, name);
    LhCompare compare = lh_compare_mod(key, retry->mod_rev);
    LhTxnOp op = lh_txn_delete(key);
    LhTxnRequest txn = {.compares = &compare, .n_compares = 1, .success = &op, .n_success = 1};
    run_action(api, request, &txn, g_strconcat("retry ", name, NULL));
}

/* ---- confirm ---- */

static void handle_confirm(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    const char *verb = NULL, *hash;
    g_autofree char *name = lh_api_verb_of(lh_http_rest(request), &verb);
    gsize len;
    const char *body = lh_http_body(request, &len);
    g_autoptr(cJSON) json = lh_json_parse(body, len, LH_JSON_MAX_BYTES, NULL);
    const LhBrake *brake;
    GString *value;

    if (name == NULL || strcmp(verb, "confirm") != 0) {
        lh_http_reply_problem(request, 404, NULL, "the only verb here is :confirm");
        return;
    }
    hash = lh_json_get_string(json, "planHash", NULL);
    if (hash == NULL) {
        lh_http_reply_problem(request, 422, "planHash", "must be a string");
        return;
    }
    brake = (const LhBrake *)lh_mirror_get(api->options.mirror, LH_KIND_BRAKE, name);
    if (brake == NULL || !lh_object_known(&brake->o)) {
        lh_http_reply_problem(request, 404, NULL, "%s is not on its brake", name);
        return;
    }
    if (g_strcmp0(hash, brake->plan_hash) != 0) {
        lh_http_reply_problem(request, 409, "planHash", "the braked plan is %s", brake->plan_hash);
        return;
    }
    value = g_string_new("{\"spec\":{\"planHash\":");
    lh_json_append_string(value, hash);
    g_string_append(value, "}}");
    lh_api_put_desired(api, request, LH_KIND_CONFIRMATION, name, g_string_free(value, FALSE), NULL);
}

/* ---- cordon, uncordon, drain ---- */

static void handle_nodepolicy(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    const char *verb = NULL;
    g_autofree char *name = lh_api_verb_of(lh_http_rest(request), &verb);
    gboolean cordon, drain;

    if (name == NULL || (strcmp(verb, "cordon") != 0 && strcmp(verb, "uncordon") != 0 &&
                         strcmp(verb, "drain") != 0)) {
        lh_http_reply_problem(request, 404, NULL,
                              "the verbs here are :cordon, :uncordon and :drain");
        return;
    }
    if (!lh_kind_name_valid(LH_KIND_NODEPOLICY, name)) {
        lh_http_reply_problem(request, 422, "name", "%s is not POOL/NODE-NAME", name);
        return;
    }
    drain = strcmp(verb, "drain") == 0;
    cordon = drain || strcmp(verb, "cordon") == 0;
    lh_api_put_desired(api, request, LH_KIND_NODEPOLICY, name,
                       g_strdup_printf("{\"spec\":{\"cordon\":%s,\"drain\":%s}}",
                                       cordon ? "true" : "false", drain ? "true" : "false"),
                       NULL);
}

/* ---- leaders move ---- */

typedef struct {
    const char *controller, *instance;
    const LhObject *target;
    GPtrArray *all;
} Candidates;

static void find_candidates(const LhObject *object, gpointer data)
{
    Candidates *candidates = data;
    gsize len = strlen(candidates->controller);

    if (strncmp(object->name, candidates->controller, len) != 0 || object->name[len] != '/')
        return;
    g_ptr_array_add(candidates->all, (gpointer)object);
    if (lh_object_known(object) &&
        g_strcmp0(((const LhLeader *)object)->instance, candidates->instance) == 0)
        candidates->target = object;
}

/* One transaction: the target exists, and all older keys go. */
static void move_leader(LhApi *api, LhHttpRequest *request, const Candidates *candidates)
{
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) ops = g_array_new(FALSE, FALSE, sizeof(LhTxnOp));
    g_autofree char *target = lh_api_etcd_key(api, LH_KIND_LEADER, candidates->target->name);
    LhCompare compare = lh_compare_create(target, candidates->target->create_rev);
    LhTxnRequest txn = {.compares = &compare, .n_compares = 1};

    for (guint i = 0; i < candidates->all->len && ops->len < LH_ETCD_MAX_TXN_OPS; i++) {
        const LhObject *object = g_ptr_array_index(candidates->all, i);
        if (object->create_rev < candidates->target->create_rev) {
            char *key = lh_api_etcd_key(api, LH_KIND_LEADER, object->name);
            LhTxnOp op = lh_txn_delete(key);
            g_ptr_array_add(keys, key);
            g_array_append_val(ops, op);
        }
    }
    txn.success = (LhTxnOp *)ops->data;
    txn.n_success = ops->len;
    run_action(api, request, &txn,
               g_strdup_printf("move %s to %s", candidates->controller, candidates->instance));
}

static void handle_leaders(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    const char *verb = NULL;
    g_autofree char *controller = lh_api_verb_of(lh_http_rest(request), &verb);
    gsize len;
    const char *body = lh_http_body(request, &len);
    g_autoptr(cJSON) json = lh_json_parse(body, len, LH_JSON_MAX_BYTES, NULL);
    g_autoptr(GPtrArray) all = g_ptr_array_new();
    Candidates candidates = {.all = all};

    if (controller == NULL || strcmp(verb, "move") != 0) {
        lh_http_reply_problem(request, 404, NULL, "the only verb here is :move");
        return;
    }
    candidates.controller = controller;
    candidates.instance = lh_json_get_string(json, "instance", NULL);
    if (candidates.instance == NULL) {
        lh_http_reply_problem(request, 422, "instance", "must be a string");
        return;
    }
    lh_mirror_foreach(api->options.mirror, LH_KIND_LEADER, find_candidates, &candidates);
    if (candidates.target == NULL)
        lh_http_reply_problem(request, 404, "instance", "%s is no candidate for %s",
                              candidates.instance, controller);
    else
        move_leader(api, request, &candidates);
}

void lh_api_actions_routes(LhApi *api)
{
    static const struct {
        const char *method, *path;
        LhRole role;
        LhHttpHandler handler;
    } rows[] = {
        {"GET", "/v1/plan", LH_ROLE_VIEWER, handle_plans},
        /* All inputs as they are, with what is in the config of seeds. */
        {"GET", "/v1/plan/input", LH_ROLE_OPERATOR, handle_input},
        {"GET", "/v1/plan/*", LH_ROLE_VIEWER, handle_plan},
        {"GET", "/v1/explain/*", LH_ROLE_VIEWER, handle_explain},
        {"POST", "/v1/retries/*", LH_ROLE_OPERATOR, handle_retry},
        {"POST", "/v1/controllers/*", LH_ROLE_ADMIN, handle_confirm},
        {"POST", "/v1/nodepolicies/*", LH_ROLE_OPERATOR, handle_nodepolicy},
        {"POST", "/v1/leaders/*", LH_ROLE_ADMIN, handle_leaders},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        lh_http_server_route(api->server, rows[i].method, rows[i].path, rows[i].role,
                             rows[i].handler, api);
}

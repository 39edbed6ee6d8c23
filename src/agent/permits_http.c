/*
 * Permits over HTTP. A crawler of many requests asks often: small bodies are read without a heap, and the
 * reply is one string.
 */
#include "agent/permits_http.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/units.h"

#include <string.h>

#define MAX_BODY_BYTES 4096
#define ID_DIGITS      16

static void refuse(LhHttpRequest *request, LhPermitsAnswer why, const char *seed,
                   const char *worker)
{
    switch (why) {
    case LH_PERMITS_UNKNOWN:
        lh_http_reply_problem(request, 404, NULL, "seed %s is not on this node", seed);
        break;
    case LH_PERMITS_NOT_LIVE:
        lh_http_reply_problem(request, 409, NULL,
                              "seed %s is not live on this node: it is being loaded or released",
                              seed);
        break;
    case LH_PERMITS_PAUSED:
        lh_http_reply_problem(request, 409, NULL, "seed %s is paused", seed);
        break;
    case LH_PERMITS_WORKER_FAILED:
        lh_http_reply_problem(request, 409, "worker",
                              "worker %s has failed; it must come back under a new id", worker);
        break;
    case LH_PERMITS_IN_DOUBT:
        lh_http_reply_problem(request, 503, NULL,
                              "this node is not registered, or its lease is in doubt");
        break;
    case LH_PERMITS_ANSWERED:
    case LH_N_PERMITS_ANSWERS:
        g_assert_not_reached();
    }
}

static const char *check_member(const cJSON *member, guint *n, const char **worker,
                                const char **field)
{
    *field = member->string;
    gint64 number;
    if (strcmp(member->string, "n") == 0) {
        if (!lh_json_int(member, &number) || number < 1 || number > LH_PERMITS_AT_ONCE)
            return "must be an integer from 1 to 100";
        *n = (guint)number;
    } else if (strcmp(member->string, "worker") == 0) {
        *worker = cJSON_IsString(member) ? member->valuestring : "";
        if (!lh_name_valid(*worker, 253))
            return "must be the node id of a worker";
    } else {
        return "is not known; there are n and worker";
    }
    return NULL;
}

/* NULL: fine; else what is wrong with *@field. */
static const char *check_body(const cJSON *body, guint *n, const char **worker, const char **field)
{
    const cJSON *member;
    *field = NULL;
    if (!cJSON_IsObject(body))
        return "the body must be an object";
    cJSON_ArrayForEach(member, body) {
        const char *why = check_member(member, n, worker, field);
        if (why != NULL)
            return why;
    }
    *field = "n";
    return *n == 0 ? "is required" : NULL;
}

static char *granted_text(const guint64 *ids, guint n, gint64 retry_ms)
{
    GString *text = g_string_sized_new(48 + (gsize)n * (ID_DIGITS + 3));
    g_string_append(text, "{\"granted\":");
    lh_json_append_int(text, n);
    g_string_append(text, ",\"ids\":[");
    for (guint i = 0; i < n; i++) {
        char id[ID_DIGITS + 4];
        g_snprintf(id, sizeof id, "%s\"%016" G_GINT64_MODIFIER "x\"", i > 0 ? "," : "", ids[i]);
        g_string_append(text, id);
    }
    g_string_append(text, "],\"retryAfterMs\":");
    lh_json_append_int(text, retry_ms);
    g_string_append_c(text, '}');
    return g_string_free(text, FALSE);
}

static void take(LhHttpRequest *request, LhManagerWork *work, const char *seed, const cJSON *body)
{
    guint n = 0;
    const char *worker = NULL, *field;
    const char *why = check_body(body, &n, &worker, &field);
    if (why != NULL) {
        lh_http_reply_problem(request, 400, field, "%s%s%s", field != NULL ? field : "",
                              field != NULL ? ": " : "", why);
        return;
    }
    guint64 ids[LH_PERMITS_AT_ONCE];
    gint64 retry_ms = 0;
    LhPermitsAnswer answer = lh_manager_work_take(work, seed, worker, &n, ids, &retry_ms);
    if (answer == LH_PERMITS_ANSWERED)
        lh_http_reply_json(request, 200, granted_text(ids, n, retry_ms), NULL);
    else
        refuse(request, answer, seed, worker);
}

static void post_permits(LhHttpRequest *request, gpointer data)
{
    gsize len;
    const char *seed = lh_http_rest(request), *body = lh_http_body(request, &len);
    lh_http_unaudited(request);
    if (!lh_name_valid(seed, 253)) {
        lh_http_reply_problem(request, 404, NULL, "permits are at " LH_PERMITS_PATH "SEED");
        return;
    }
    if (len > MAX_BODY_BYTES) {
        lh_http_reply_problem(request, 413, NULL, "the body must be at most %d bytes",
                              MAX_BODY_BYTES);
        return;
    }
    LhJsonRoom room;
    const cJSON *plain = lh_json_parse_plain(&room, body, len);
    if (plain != NULL) {
        take(request, data, seed, plain);
        return;
    }
    g_autoptr(GError) error = NULL;
    g_autoptr(cJSON) json = lh_json_parse(body, len, MAX_BODY_BYTES, &error);
    if (json == NULL)
        lh_http_reply_error(request, error);
    else
        take(request, data, seed, json);
}

static gboolean parse_id(const char *text, guint64 *id)
{
    if (strlen(text) != ID_DIGITS || strspn(text, "0123456789abcdef") != ID_DIGITS)
        return FALSE;
    *id = g_ascii_strtoull(text, NULL, 16);
    return TRUE;
}

static void delete_permit(LhHttpRequest *request, gpointer data)
{
    const char *rest = lh_http_rest(request), *slash = strchr(rest, '/');
    guint64 id = 0;
    lh_http_unaudited(request);
    if (slash == NULL || !parse_id(slash + 1, &id)) {
        lh_http_reply_problem(request, 404, NULL,
                              "a permit is at " LH_PERMITS_PATH "SEED/ID, 16 hex digits");
        return;
    }
    g_autofree char *seed = g_strndup(rest, (gsize)(slash - rest));
    if (lh_manager_work_return(data, seed, id) == LH_PERMITS_ANSWERED)
        lh_http_reply(request, 204, "text/plain", "", 0);
    else
        lh_http_reply_problem(request, 404, NULL,
                              "no such permit of seed %s is out: it was returned, or has ended, or "
                              "was granted by another node",
                              seed);
}

void lh_permits_routes(LhHttpServer *server, LhManagerWork *work)
{
    lh_http_server_route(server, "POST", LH_PERMITS_PATH "*", LH_ROLE_OPERATOR, post_permits, work);
    lh_http_server_route(server, "DELETE", LH_PERMITS_PATH "*", LH_ROLE_OPERATOR, delete_permit,
                         work);
}

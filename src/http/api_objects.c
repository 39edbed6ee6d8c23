/*
 * Get, list, put, create (restores) and delete of objects. Lists without a limit show the mirror's revision; lists in pages
 * read etcd at one revision, which is what makes them consistent. Only desired kinds can be written, with
 * a compare where the client gave one.
 */
#include "base/errors.h"
#include "base/json.h"
#include "http/api_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PAGE 10000

char *lh_api_etcd_key(const LhApi *api, LhKind kind, const char *name)
{
    g_autofree char *key = lh_key(kind, name);

    return g_strconcat(lh_mirror_prefix(api->options.mirror), key, NULL);
}

void lh_api_reply_invalid(LhHttpRequest *request, const GError *error)
{
    const char *colon = strstr(error->message, ": ");
    g_autofree char *field = colon == NULL
                                 ? NULL
                                 : g_strndup(error->message, (gsize)(colon - error->message));

    if (!g_error_matches(error, LH_ERROR, LH_ERR_INVALID) || field == NULL ||
        strchr(field, ' ') != NULL)
        lh_http_reply_error(request, error);
    else
        lh_http_reply_problem(request, 422, field, "%s", colon + 2);
}

/* ---- list ---- */

static char *list_kind(LhKind kind)
{
    return g_strconcat(lh_kind_info(kind)->name, "List", NULL);
}

static GString *list_begin(LhKind kind, gint64 revision)
{
    GString *out = g_string_new("{");
    g_autofree char *name = list_kind(kind);

    lh_json_append_key(out, "kind");
    lh_json_append_string(out, name);
    lh_json_append_key(out, "revision");
    lh_json_append_int(out, revision);
    lh_json_append_key(out, "items");
    g_string_append_c(out, '[');
    return out;
}

static void list_add(LhApi *api, const LhHttpRequest *request, GString *out, const LhObject *object)
{
    g_autofree char *text = lh_view_text(api, object, lh_http_role(request));

    if (out->str[out->len - 1] != '[')
        g_string_append_c(out, ',');
    g_string_append(out, text);
}

static void list_whole(LhApi *api, LhHttpRequest *request, LhKind kind, LhSelector *selector)
{
    LhMirror *mirror = api->options.mirror;
    g_autoptr(GPtrArray) objects = lh_mirror_list(mirror, kind);
    GString *out = list_begin(kind, lh_mirror_revision(mirror));

    for (guint i = 0; i < objects->len; i++)
        if (lh_selector_match(selector, g_ptr_array_index(objects, i)))
            list_add(api, request, out, g_ptr_array_index(objects, i));
    g_string_append(out, "]}");
    lh_selector_free(selector);
    lh_http_reply_json(request, 200, g_string_free(out, FALSE), NULL);
}

typedef struct {
    LhApi *api;
    LhHttpRequest *request;
    LhKind kind;
    LhSelector *selector;
    gint64 revision; /* 0: newest */
} Page;

static void page_free(Page *page)
{
    lh_selector_free(page->selector);
    g_free(page);
}

static void on_page(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Page *page = data;
    gsize prefix = strlen(lh_mirror_prefix(page->api->options.mirror)) +
                   strlen(lh_kind_info(page->kind)->prefix);
    GString *out;

    if (error != NULL && g_error_matches(error, LH_ERROR, LH_ERR_COMPACTED)) {
        lh_http_reply_problem(page->request, 410, "continue", "that revision is gone, list again");
        page_free(page);
        return;
    }
    if (error != NULL) {
        lh_http_reply_error(page->request, error);
        page_free(page);
        return;
    }
    out = list_begin(page->kind, page->revision != 0 ? page->revision : reply->header.revision);
    for (gsize i = 0; i < reply->n_kvs; i++) {
        const LhKv *kv = &reply->kvs[i];
        g_autoptr(LhObject) object = lh_object_parse(page->kind, kv->key + prefix, kv->value,
                                                     kv->value_len, kv->create_rev, kv->mod_rev,
                                                     kv->lease);
        if (lh_selector_match(page->selector, object))
            list_add(page->api, page->request, out, object);
    }
    g_string_append_c(out, ']');
    if (reply->more) {
        g_autofree char *token = g_strdup_printf("%" G_GINT64_FORMAT ":%s",
                                                 page->revision != 0 ? page->revision
                                                                     : reply->header.revision,
                                                 reply->kvs[reply->n_kvs - 1].key + prefix);
        lh_json_append_key(out, "continue");
        lh_json_append_string(out, token);
    }
    g_string_append_c(out, '}');
    lh_http_reply_json(page->request, 200, g_string_free(out, FALSE), NULL);
    page_free(page);
}

static gboolean parse_number(const char *text, gint64 max, gint64 *out)
{
    char *end = NULL;

    errno = 0;
    *out = g_ascii_strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *out >= 0 && *out <= max;
}

static void list_page(LhApi *api, LhHttpRequest *request, LhKind kind, LhSelector *selector)
{
    const char *token = lh_http_query(request, "continue"),
               *limit_text = lh_http_query(request, "limit");
    const char *colon = token == NULL ? NULL : strchr(token, ':');
    gint64 limit = MAX_PAGE, revision = 0;
    g_autofree char *digits = colon == NULL ? NULL : g_strndup(token, (gsize)(colon - token));
    g_autofree char *first = NULL, *from = lh_api_etcd_key(api, kind, "");
    g_autofree char *end = lh_etcd_prefix_end(from);
    LhRangeRequest range = {.range_end = end};
    Page *page;

    if (limit_text != NULL && (!parse_number(limit_text, MAX_PAGE, &limit) || limit == 0)) {
        lh_http_reply_problem(request, 400, "limit", "must be 1 to %d", MAX_PAGE);
        lh_selector_free(selector);
        return;
    }
    if (token != NULL && (colon == NULL || !parse_number(digits, LH_JSON_MAX_INT, &revision))) {
        lh_http_reply_problem(request, 400, "continue", "is not a token of a list");
        lh_selector_free(selector);
        return;
    }
    /* The key right after the last one shown: keys hold no NUL, so the next one ends in \x01 at least. */
    first = colon == NULL ? g_strdup(from) : g_strconcat(from, colon + 1, "\x01", NULL);
    page = g_new0(Page, 1);
    *page = (Page){api, request, kind, selector, revision};
    range.key = first;
    range.revision = revision;
    range.limit = limit;
    lh_etcd_range(api->options.etcd, &range, on_page, page);
}

static void handle_list(LhApi *api, LhHttpRequest *request, LhKind kind)
{
    const char *watch = lh_http_query(request, "watch");
    g_autoptr(GError) error = NULL;
    LhSelector *selector = lh_selector_parse(lh_http_query(request, "labelSelector"), &error);

    if (selector == NULL) {
        lh_api_reply_invalid(request, error);
        return;
    }
    if (lh_mirror_revision(api->options.mirror) == 0) {
        lh_http_reply_problem(request, 503, NULL, "the mirror has not caught up with etcd yet");
        lh_selector_free(selector);
        return;
    }
    if (watch != NULL && strcmp(watch, "false") != 0 && strcmp(watch, "0") != 0)
        lh_hub_watch(api->hub, request, kind, selector);
    else if (lh_http_query(request, "limit") != NULL || lh_http_query(request, "continue") != NULL)
        list_page(api, request, kind, selector);
    else
        list_whole(api, request, kind, selector);
}

/* ---- one object ---- */

static void reply_object(LhApi *api, LhHttpRequest *request, guint status, const LhObject *object)
{
    g_autofree char *etag = g_strdup_printf("\"%" G_GINT64_FORMAT "\"", object->mod_rev);

    lh_http_reply_json(request, status, lh_view_text(api, object, lh_http_role(request)), etag);
}

static void handle_get(LhApi *api, LhHttpRequest *request, LhKind kind, const char *name)
{
    const LhObject *object = lh_mirror_get(api->options.mirror, kind, name);

    if (lh_mirror_revision(api->options.mirror) == 0)
        lh_http_reply_problem(request, 503, NULL, "the mirror has not caught up with etcd yet");
    else if (object == NULL)
        lh_http_reply_problem(request, 404, NULL, "%s %s does not exist", lh_kind_info(kind)->name,
                              name);
    else
        reply_object(api, request, 200, object);
}

/* If-Match: "N" or *, If-None-Match: *. False: answered with 400. *present: a compare was asked for. */
static gboolean precondition(LhHttpRequest *request, const char *key, LhCompare *out,
                             gboolean *present)
{
    const char *match = lh_http_header(request, "If-Match");
    const char *none = lh_http_header(request, "If-None-Match");
    g_autofree char *digits = NULL;
    gint64 revision;

    *present = match != NULL || none != NULL;
    if (!*present)
        return TRUE;
    if (none != NULL && match == NULL && strcmp(none, "*") == 0) {
        *out = lh_compare_mod(key, 0);
        return TRUE;
    }
    if (match != NULL && none == NULL && strcmp(match, "*") == 0) {
        *out = lh_compare_mod(key, 0);
        out->result = LH_CMP_GREATER;
        return TRUE;
    }
    if (match != NULL && none == NULL) {
        gsize len = strlen(match);
        digits = len > 2 && match[0] == '"' && match[len - 1] == '"' ? g_strndup(match + 1, len - 2)
                                                                     : g_strdup(match);
        if (parse_number(digits, LH_JSON_MAX_INT, &revision)) {
            *out = lh_compare_mod(key, revision);
            return TRUE;
        }
    }
    lh_http_reply_problem(request, 400, NULL,
                          "If-Match must be an ETag or *, If-None-Match must be *");
    return FALSE;
}

char *lh_api_desired_value(LhKind kind, const char *name, const char *body, gsize len,
                           GError **error)
{
    g_autoptr(cJSON) json = lh_json_parse(body, len, LH_JSON_MAX_BYTES, error);
    g_autoptr(LhObject) object = NULL;
    cJSON *metadata;
    char *value;

    if (json == NULL)
        return NULL;
    if (!cJSON_IsObject(json)) {
        g_set_error_literal(error, LH_ERROR, LH_ERR_INVALID, "body: must be an object");
        return NULL;
    }
    if (!lh_kind_name_valid(kind, name)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "metadata.name: \"%s\" is not a valid name of a %s", name,
                    lh_kind_info(kind)->name);
        return NULL;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(json, "status");
    metadata = cJSON_GetObjectItemCaseSensitive(json, "metadata");
    if (cJSON_IsObject(metadata)) {
        cJSON_DeleteItemFromObjectCaseSensitive(metadata, "revision");
        cJSON_DeleteItemFromObjectCaseSensitive(metadata, "createRevision");
    }
    value = lh_json_print(json);
    object = lh_object_parse(kind, name, value, strlen(value), 0, 0, 0);
    if (!lh_object_known(object)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s", lh_object_error(object));
        g_clear_pointer(&value, g_free);
    }
    return value;
}

typedef struct {
    LhApi *api;
    LhHttpRequest *request;
    LhKind kind;
    char *name, *value;
    gboolean deleting;
    gboolean creating; /* it must not exist */
} Write;

static void write_free(Write *write)
{
    g_free(write->name);
    g_free(write->value);
    g_free(write);
}

static void on_written(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Write *write = data;

    if (error != NULL) {
        lh_http_reply_error(write->request, error);
    } else if (!reply->succeeded) {
        lh_http_reply_problem(write->request, 412, NULL,
                              write->creating ? "%s %s exists already"
                                              : "%s %s was changed or does not exist",
                              lh_kind_info(write->kind)->name, write->name);
    } else if (write->deleting) {
        lh_http_reply_json(
            write->request, 200,
            g_strdup_printf("{\"deleted\":%s}", reply->ops[0].deleted > 0 ? "true" : "false"),
            NULL);
    } else {
        const LhRangeReply *now = &reply->ops[1].range;
        g_autoptr(LhObject) object = lh_object_parse(
            write->kind, write->name, write->value, strlen(write->value),
            now->n_kvs == 1 ? now->kvs[0].create_rev : 0, reply->header.revision, 0);
        reply_object(write->api, write->request, object->create_rev == object->mod_rev ? 201 : 200,
                     object);
    }
    write_free(write);
}

void lh_api_put_desired(LhApi *api, LhHttpRequest *request, LhKind kind, const char *name,
                        char *value, const LhCompare *compare)
{
    g_autofree char *key = lh_api_etcd_key(api, kind, name);
    LhTxnOp ops[] = {lh_txn_put(key, value, 0), lh_txn_range(key)};
    LhTxnRequest txn = {
        .compares = compare, .n_compares = compare == NULL ? 0 : 1, .success = ops, .n_success = 2};
    Write *write = g_new0(Write, 1);

    *write = (Write){
        .api = api,
        .request = request,
        .kind = kind,
        .name = g_strdup(name),
        .value = value,
        .creating = compare != NULL && compare->result == LH_CMP_EQUAL && compare->number == 0,
    };
    lh_etcd_txn(api->options.etcd, &txn, on_written, write);
}

gboolean lh_api_wants_dry_run(LhHttpRequest *request)
{
    const char *text = lh_http_query(request, "dryRun");

    return text != NULL && strcmp(text, "false") != 0 && strcmp(text, "0") != 0;
}

/* @create: it must not exist, whether or not the client says so. */
static void put_body(LhApi *api, LhHttpRequest *request, LhKind kind, const char *name,
                     gboolean create)
{
    g_autofree char *key = lh_api_etcd_key(api, kind, name);
    g_autoptr(GError) error = NULL;
    LhCompare compare;
    gboolean compared;
    gsize len;
    const char *body = lh_http_body(request, &len);
    char *value;

    if (!precondition(request, key, &compare, &compared))
        return;
    if (create && !compared) {
        compare = lh_compare_mod(key, 0);
        compared = TRUE;
    }
    value = lh_api_desired_value(kind, name, body, len, &error);
    if (value == NULL) {
        lh_api_reply_invalid(request, error);
    } else if (lh_api_wants_dry_run(request)) {
        const LhObject *present = lh_mirror_get(api->options.mirror, kind, name);
        g_autoptr(LhObject) object = lh_object_parse(kind, name, value, strlen(value),
                                                     present == NULL ? 0 : present->create_rev,
                                                     present == NULL ? 0 : present->mod_rev, 0);
        reply_object(api, request, 200, object);
        g_free(value);
    } else {
        lh_api_put_desired(api, request, kind, name, value, compared ? &compare : NULL);
    }
}

static void handle_put(LhApi *api, LhHttpRequest *request, LhKind kind, const char *name)
{
    put_body(api, request, kind, name, FALSE);
}

/* POST: under the name that the body gives, or a new one: "restore-20261120-093000-1f3a". */
static void handle_create(LhApi *api, LhHttpRequest *request, LhKind kind)
{
    gsize len;
    const char *body = lh_http_body(request, &len);
    g_autoptr(cJSON) json = lh_json_parse(body, len, LH_JSON_MAX_BYTES, NULL);
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(json, "metadata");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(metadata, "name");
    const char *given = cJSON_IsString(name) ? name->valuestring : NULL;
    g_autofree char *made = NULL;

    if (name != NULL && !cJSON_IsNull(name) && given == NULL) {
        lh_http_reply_problem(request, 422, "metadata.name", "must be a string");
        return;
    }
    if (given == NULL) {
        g_autoptr(GDateTime) now = g_date_time_new_from_unix_utc(lh_wall_ms(api->options.env) /
                                                                 1000);
        g_autofree char *time = g_date_time_format(now, "%Y%m%d-%H%M%S");
        made = g_strdup_printf("restore-%s-%04x", time,
                               (guint)lh_random_below(api->options.env, 0x10000));
    }
    put_body(api, request, kind, made != NULL ? made : given, TRUE);
}

static void handle_delete(LhApi *api, LhHttpRequest *request, LhKind kind, const char *name)
{
    g_autofree char *key = lh_api_etcd_key(api, kind, name);
    LhTxnOp op = lh_txn_delete(key);
    LhTxnRequest txn = {.success = &op, .n_success = 1};
    LhCompare compare;
    gboolean compared;
    Write *write;

    if (!precondition(request, key, &compare, &compared))
        return;
    if (lh_mirror_get(api->options.mirror, kind, name) == NULL) {
        lh_http_reply_problem(request, 404, NULL, "%s %s does not exist", lh_kind_info(kind)->name,
                              name);
        return;
    }
    if (lh_api_wants_dry_run(request)) {
        lh_http_reply_json(request, 200, g_strdup("{\"deleted\":false,\"dryRun\":true}"), NULL);
        return;
    }
    txn.compares = &compare;
    txn.n_compares = compared ? 1 : 0;
    write = g_new0(Write, 1);
    *write = (Write){
        .api = api, .request = request, .kind = kind, .name = g_strdup(name), .deleting = TRUE};
    lh_etcd_txn(api->options.etcd, &txn, on_written, write);
}

/* ---- dispatch: /v1/<plural>[/<name>] ---- */

/* Not lh_http_rest: a kind may have routes of its own, which end later. */
static void handle(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    const char *rest = lh_http_path(request) + strlen("/v1/"), *slash = strchr(rest, '/');
    const char *method = lh_http_method(request);
    g_autofree char *plural = slash == NULL ? g_strdup(rest)
                                            : g_strndup(rest, (gsize)(slash - rest));
    gboolean reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    LhKind kind = lh_kind_lookup(plural);

    if (kind == LH_N_KINDS || strcmp(lh_kind_info(kind)->plural, plural) != 0) {
        lh_http_reply_problem(request, 404, NULL, "there is no kind %s", plural);
        return;
    }
    if (slash == NULL || slash[1] == '\0') {
        if (reads)
            handle_list(api, request, kind);
        else if (strcmp(method, "POST") == 0 && kind == LH_KIND_RESTORE)
            handle_create(api, request, kind);
        else
            lh_http_reply_problem(request, 405, NULL, "a list can only be read");
        return;
    }
    if (reads)
        handle_get(api, request, kind, slash + 1);
    else if (!lh_kind_is_desired(kind))
        lh_http_reply_problem(request, 405, NULL, "a %s is not written by people",
                              lh_kind_info(kind)->name);
    else if (strcmp(method, "PUT") == 0)
        handle_put(api, request, kind, slash + 1);
    else
        handle_delete(api, request, kind, slash + 1);
}

/* A Confirmation lifts a brake, whichever way it is written. */
void lh_api_objects_routes(LhApi *api)
{
    static const struct {
        const char *method, *path;
        LhRole role;
    } rows[] = {
        {"GET", "/v1/*", LH_ROLE_VIEWER},
        {"PUT", "/v1/confirmations/*", LH_ROLE_ADMIN},
        {"DELETE", "/v1/confirmations/*", LH_ROLE_ADMIN},
        {"POST", "/v1/restores", LH_ROLE_OPERATOR},
        {"PUT", "/v1/*", LH_ROLE_OPERATOR},
        {"DELETE", "/v1/*", LH_ROLE_OPERATOR},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        lh_http_server_route(api->server, rows[i].method, rows[i].path, rows[i].role, handle, api);
}

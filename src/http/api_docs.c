/*
 * /docs/: the API's own description, for people as a page and for programs as /docs/openapi.yaml. The page is
 * made from the document when it is first asked for; it uses nothing from outside: no script, no font, no image.
 */
#include "http/api_docs.h"

#include "http/api_internal.h"

#include <string.h>
#include <yaml.h>

typedef struct {
    yaml_document_t *document;
    GString *out;
} Page;

/* ---- the document ---- */

static const char *text_of(const yaml_node_t *node)
{
    return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
                                                          : NULL;
}

static const yaml_node_t *member(const Page *page, const yaml_node_t *node, const char *name)
{
    if (node == NULL || node->type != YAML_MAPPING_NODE)
        return NULL;
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const char *key = text_of(yaml_document_get_node(page->document, pair->key));
        if (g_strcmp0(key, name) == 0)
            return yaml_document_get_node(page->document, pair->value);
    }
    return NULL;
}

static const char *member_text(const Page *page, const yaml_node_t *node, const char *name)
{
    return text_of(member(page, node, name));
}

/* "#/components/parameters/plural" → what stands there; what is no reference is itself. */
static const yaml_node_t *resolve(const Page *page, const yaml_node_t *node)
{
    const char *ref = member_text(page, node, "$ref");
    if (ref == NULL || !g_str_has_prefix(ref, "#/"))
        return node;
    g_auto(GStrv) names = g_strsplit(ref + 2, "/", -1);
    const yaml_node_t *there = yaml_document_get_root_node(page->document);
    for (guint i = 0; names[i] != NULL; i++)
        there = member(page, there, names[i]);
    return there;
}

/* ---- the page ---- */

static void append(const Page *page, const char *before, const char *text, const char *after)
{
    g_autofree char *escaped = g_markup_escape_text(text != NULL ? text : "", -1);
    g_string_append_printf(page->out, "%s%s%s", before, escaped, after);
}

static void append_parameters(const Page *page, const yaml_node_t *list)
{
    if (list == NULL || list->type != YAML_SEQUENCE_NODE)
        return;
    for (const yaml_node_item_t *item = list->data.sequence.items.start;
         item < list->data.sequence.items.top; item++) {
        const yaml_node_t *parameter = resolve(page, yaml_document_get_node(page->document, *item));
        append(page, "<dt><code>", member_text(page, parameter, "name"), "</code> ");
        append(page, "<small>", member_text(page, parameter, "in"), "</small></dt>");
        append(page, "<dd>", member_text(page, parameter, "description"), "</dd>\n");
    }
}

static void append_responses(const Page *page, const yaml_node_t *responses)
{
    if (responses == NULL || responses->type != YAML_MAPPING_NODE)
        return;
    for (const yaml_node_pair_t *pair = responses->data.mapping.pairs.start;
         pair < responses->data.mapping.pairs.top; pair++) {
        const yaml_node_t *response = resolve(page,
                                              yaml_document_get_node(page->document, pair->value));
        append(page, "<dt>", text_of(yaml_document_get_node(page->document, pair->key)), "</dt>");
        append(page, "<dd>", member_text(page, response, "description"), "</dd>\n");
    }
}

static void append_operation(const Page *page, const char *path, const char *method,
                             const yaml_node_t *shared, const yaml_node_t *operation)
{
    const char *role = member_text(page, operation, "x-role");
    const char *description = member_text(page, operation, "description");
    g_autofree char *upper = g_ascii_strup(method, -1);

    append(page, "<section><h2><b>", upper, "</b> ");
    append(page, "<code>", path, "</code> ");
    append(page, "<small>", role != NULL ? role : "anybody", "</small></h2>\n");
    append(page, "<p>", member_text(page, operation, "summary"), "</p>\n");
    if (description != NULL)
        append(page, "<p>", description, "</p>\n");
    g_string_append(page->out, "<dl>\n");
    append_parameters(page, shared);
    append_parameters(page, member(page, operation, "parameters"));
    append_responses(page, member(page, operation, "responses"));
    g_string_append(page->out, "</dl></section>\n");
}

static void append_path(const Page *page, const char *path, const yaml_node_t *item)
{
    static const char *const methods[] = {"get", "put", "post", "delete"};
    for (guint i = 0; i < G_N_ELEMENTS(methods); i++) {
        const yaml_node_t *operation = member(page, item, methods[i]);
        if (operation != NULL)
            append_operation(page, path, methods[i], member(page, item, "parameters"), operation);
    }
}

static gboolean append_document(const Page *page)
{
    const yaml_node_t *root = yaml_document_get_root_node(page->document);
    const yaml_node_t *info = member(page, root, "info"), *paths = member(page, root, "paths");

    if (paths == NULL || paths->type != YAML_MAPPING_NODE)
        return FALSE;
    g_string_append(page->out,
                    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                    "<meta name=\"viewport\" content=\"width=device-width\">\n"
                    "<title>leasehold: API</title><style>"
                    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
                    "h2{font-size:1.1em;border-top:1px solid;padding-top:.6em;margin-bottom:0}"
                    "h2 small{float:right;font-weight:normal}p{margin:.3em 0}"
                    "dl{display:grid;grid-template-columns:12em 1fr;gap:.1em 1em;font-size:.9em}"
                    "dd{margin:0}</style></head><body>\n");
    append(page, "<h1>", member_text(page, info, "title"), " ");
    append(page, "<small>", member_text(page, info, "version"), "</small></h1>\n");
    append(page, "<p>", member_text(page, info, "description"), "</p>\n");
    g_string_append(
        page->out,
        "<p>For programs: <a href=\"openapi.yaml\">openapi.yaml</a>. On the right of each "
        "route: the role that it needs.</p>\n");
    for (const yaml_node_pair_t *pair = paths->data.mapping.pairs.start;
         pair < paths->data.mapping.pairs.top; pair++)
        append_path(page, text_of(yaml_document_get_node(page->document, pair->key)),
                    yaml_document_get_node(page->document, pair->value));
    g_string_append(page->out, "</body></html>\n");
    return TRUE;
}

char *lh_openapi_page(const char *text, gsize len)
{
    yaml_parser_t parser;
    yaml_document_t document;
    g_autoptr(GString) out = g_string_new(NULL);
    gboolean good = FALSE;

    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (yaml_parser_load(&parser, &document)) {
        good = append_document(&(Page){&document, out});
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return good ? g_string_free(g_steal_pointer(&out), FALSE) : NULL;
}

/* ---- the routes ---- */

/* Whether the client has this very text already. */
static gboolean has_it(LhHttpRequest *request, const char *etag)
{
    const char *given = lh_http_header(request, "If-None-Match");
    g_auto(GStrv) tags = g_strsplit(given != NULL ? given : "", ",", -1);

    for (guint i = 0; tags[i] != NULL; i++) {
        const char *tag = g_strstrip(tags[i]);
        if (g_str_has_prefix(tag, "W/"))
            tag += 2;
        if (strcmp(tag, etag) == 0 || strcmp(tag, "*") == 0)
            return TRUE;
    }
    return FALSE;
}

static void reply_text(LhHttpRequest *request, const char *content_type, const char *text)
{
    g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
    g_autofree char *etag = g_strdup_printf("\"%.16s\"", sum);

    lh_http_set_header(request, "ETag", etag);
    lh_http_set_header(request, "Cache-Control", "no-cache");
    if (has_it(request, etag)) {
        lh_http_reply(request, 304, NULL, NULL, 0);
        return;
    }
    lh_http_set_header(request, "Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'");
    lh_http_reply(request, 200, content_type, text, -1);
}

static void handle_page(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;

    if (api->docs_page == NULL)
        api->docs_page = lh_openapi_page(lh_openapi, lh_openapi_len);
    if (api->docs_page == NULL)
        lh_http_reply_problem(request, 500, NULL, "this program's own description does not parse");
    else
        reply_text(request, "text/html; charset=utf-8", api->docs_page);
}

static void handle_document(LhHttpRequest *request, gpointer data)
{
    (void)data;
    reply_text(request, "application/yaml; charset=utf-8", lh_openapi);
}

static void handle_no_slash(LhHttpRequest *request, gpointer data)
{
    (void)data;
    lh_http_set_header(request, "Location", "/docs/");
    lh_http_reply(request, 308, NULL, NULL, 0);
}

void lh_api_docs_routes(LhApi *api)
{
    lh_http_server_route(api->server, "GET", "/docs", LH_ROLE_VIEWER, handle_no_slash, api);
    lh_http_server_route(api->server, "GET", "/docs/", LH_ROLE_VIEWER, handle_page, api);
    lh_http_server_route(api->server, "GET", "/docs/openapi.yaml", LH_ROLE_VIEWER, handle_document,
                         api);
}

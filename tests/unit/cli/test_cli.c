/* links: http */
/*
 * The commands against a small server in another thread: what they ask, what they write, how they
 * exit. The server keeps objects as text and checks revisions; it knows no kinds.
 */
#include "base/env.h"
#include "base/errors.h"
#include "base/json.h"
#include "cli/cli.h"
#include "http/server.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE 2

typedef struct {
    GMutex lock;
    GThread *thread;
    GMainContext *context;
    GMainLoop *loop;
    LhEnv *env;
    LhHttpServer *server;
    char *url;
    /* Under the lock: */
    GHashTable *objects; /* "services/a" → text with metadata.revision */
    GHashTable *canned;  /* "GET plan" → "200 {…}" */
    GPtrArray *requests; /* "PUT services/a?dryRun=true [If-Match] body" */
    GHashTable *events;  /* "services" → lines "PUT 12 {…}" that a watch gets */
    gint64 revision;
    int conflicts; /* writes that fail first */
    char *token;   /* NULL: none asked for */
    guint n_watches;
    char *late_key, *late_text; /* put without an event when a watch begins */
    gboolean refuses;           /* watches that nothing is prepared for */
    /* Of the last command: */
    char *out, *err;
    char *dir;
} World;

/* ---- the server's side ---- */

static void note_request(World *world, LhHttpRequest *request)
{
    GString *line = g_string_new(NULL);
    g_string_append_printf(line, "%s %s", lh_http_method(request), lh_http_rest(request));
    static const char *const params[] = {"dryRun", "labelSelector", "watch"};
    for (guint i = 0; i < G_N_ELEMENTS(params); i++) {
        const char *value = lh_http_query(request, params[i]);
        if (value != NULL) {
            g_string_append_printf(line, " %s=%s", params[i], value);
        }
    }
    static const char *const headers[] = {"If-Match", "If-None-Match"};
    for (guint i = 0; i < G_N_ELEMENTS(headers); i++) {
        const char *value = lh_http_header(request, headers[i]);
        if (value != NULL) {
            g_string_append_printf(line, " %s:%s", headers[i], value);
        }
    }
    if (lh_http_body(request, NULL)[0] != '\0') {
        g_string_append_printf(line, " %s", lh_http_body(request, NULL));
    }
    g_ptr_array_add(world->requests, g_string_free(line, FALSE));
}

static int compare_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Two objects on a page; the continue token is the next index. */
static void reply_list(World *world, LhHttpRequest *request, const char *plural)
{
    g_autoptr(GPtrArray) keys = g_ptr_array_new();
    g_autofree char *prefix = g_strconcat(plural, "/", NULL);
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init(&iter, world->objects);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        if (g_str_has_prefix(key, prefix)) {
            g_ptr_array_add(keys, key);
        }
    }
    g_ptr_array_sort(keys, compare_text);
    const char *token = lh_http_query(request, "continue");
    guint from = token != NULL ? (guint)atoi(token) : 0;
    GString *text = g_string_new(NULL);
    g_string_append_printf(text, "{\"kind\":\"List\",\"revision\":%" G_GINT64_FORMAT ",\"items\":[",
                           world->revision);
    for (guint i = from; i < MIN(from + PAGE, keys->len); i++) {
        g_string_append_printf(text, "%s%s", i > from ? "," : "",
                               (char *)g_hash_table_lookup(world->objects, keys->pdata[i]));
    }
    g_string_append(text, "]");
    if (from + PAGE < keys->len) {
        g_string_append_printf(text, ",\"continue\":\"%u\"", from + PAGE);
    }
    g_string_append(text, "}");
    lh_http_reply_json(request, 200, g_string_free(text, FALSE), NULL);
}

/* Sends what is prepared once, then stays open. */
static void reply_watch(World *world, LhHttpRequest *request, const char *plural)
{
    LhHttpStream *stream = lh_http_stream_open(request, NULL, NULL);
    const char *lines = g_hash_table_lookup(world->events, plural);
    g_auto(GStrv) events = g_strsplit(lines != NULL ? lines : "", "\n", -1);
    gboolean close = FALSE;
    world->n_watches++;
    if (world->late_key != NULL) {
        g_hash_table_insert(world->objects, g_steal_pointer(&world->late_key),
                            g_steal_pointer(&world->late_text));
    }
    for (guint i = 0; events[i] != NULL; i++) {
        g_auto(GStrv) words = g_strsplit(events[i], " ", 3);
        close = strcmp(events[i], "close") == 0;
        if (g_strv_length(words) == 3) {
            lh_http_stream_send(stream, g_ascii_strtoll(words[1], NULL, 10), words[0], words[2]);
        }
    }
    g_hash_table_remove(world->events, plural);
    if (close) {
        lh_http_stream_close(stream);
    }
}

static void reply_put(World *world, LhHttpRequest *request, const char *key)
{
    const char *old = g_hash_table_lookup(world->objects, key);
    const char *match = lh_http_header(request, "If-Match");
    g_autoptr(cJSON) before = old != NULL ? cJSON_Parse(old) : NULL;
    g_autoptr(cJSON) object = cJSON_Parse(lh_http_body(request, NULL));
    gint64 revision = lh_json_get_int(cJSON_GetObjectItem(before, "metadata"), "revision", 0);
    g_autofree char *etag = g_strdup_printf("\"%" G_GINT64_FORMAT "\"", revision);
    if (world->conflicts > 0) {
        world->conflicts--;
        lh_http_reply_problem(request, 412, NULL, "%s was changed", key);
        return;
    }
    if ((match != NULL && strcmp(match, etag) != 0) ||
        (old != NULL && lh_http_header(request, "If-None-Match") != NULL)) {
        lh_http_reply_problem(request, 412, NULL, "%s: not revision %s", key, etag);
        return;
    }
    if (strstr(lh_http_body(request, NULL), "\"bad\"") != NULL) {
        lh_http_reply_problem(request, 400, "spec.owner", "must not be bad");
        return;
    }
    /* As the real one, it fills in defaults. */
    cJSON *spec = cJSON_GetObjectItem(object, "spec");
    if (cJSON_IsObject(spec) && cJSON_GetObjectItem(spec, "retention") == NULL) {
        cJSON_AddStringToObject(spec, "retention", "7d");
    }
    gint64 now = lh_http_query(request, "dryRun") != NULL ? revision : world->revision + 1;
    cJSON_AddNumberToObject(cJSON_GetObjectItem(object, "metadata"), "revision", (double)now);
    g_autofree char *text = lh_json_print(object);
    if (lh_http_query(request, "dryRun") == NULL) {
        world->revision = now;
        g_hash_table_insert(world->objects, g_strdup(key), g_strdup(text));
    }
    lh_http_reply_json(request, old != NULL ? 200 : 201, g_steal_pointer(&text), NULL);
}

static void reply_canned(LhHttpRequest *request, const char *canned)
{
    const char *body = strchr(canned, ' ') + 1;
    guint status = (guint)atoi(canned);
    lh_http_reply(request, status, status < 300 ? "application/json" : "application/problem+json",
                  body, -1);
}

static void reply_object(World *world, LhHttpRequest *request, const char *method, const char *key)
{
    const char *text = g_hash_table_lookup(world->objects, key);
    if (strcmp(method, "PUT") == 0) {
        reply_put(world, request, key);
    } else if (text == NULL) {
        lh_http_reply_problem(request, 404, NULL, "no such object");
    } else if (strcmp(method, "GET") == 0) {
        lh_http_reply_json(request, 200, g_strdup(text), NULL);
    } else {
        if (lh_http_query(request, "dryRun") == NULL) {
            g_hash_table_remove(world->objects, key);
        }
        lh_http_reply(request, 204, NULL, NULL, 0);
    }
}

static void handle(LhHttpRequest *request, gpointer data)
{
    World *world = data;
    const char *rest = lh_http_rest(request), *method = lh_http_method(request);
    g_mutex_lock(&world->lock);
    note_request(world, request);
    g_autofree char *route = g_strdup_printf("%s %s", method, rest);
    g_autofree char *bearer = g_strdup_printf("Bearer %s", world->token);
    const char *canned = g_hash_table_lookup(world->canned, route);
    const char *authorization = lh_http_header(request, "Authorization");
    if (world->token != NULL && g_strcmp0(authorization, bearer) != 0) {
        lh_http_reply_problem(request, 401, NULL, "no valid token");
    } else if (lh_http_query(request, "watch") != NULL) {
        g_autofree char *watch = g_strconcat("WATCH ", rest, NULL);
        const char *refusal = g_hash_table_lookup(world->canned, watch);
        if (world->refuses && g_hash_table_lookup(world->events, rest) == NULL) {
            lh_http_reply_problem(request, 403, NULL, "enough");
        } else if (refusal != NULL) {
            reply_canned(request, refusal);
            g_hash_table_remove(world->canned, watch);
        } else {
            reply_watch(world, request, rest);
        }
    } else if (canned != NULL) {
        reply_canned(request, canned);
    } else if (strchr(rest, '/') == NULL && strcmp(method, "GET") == 0) {
        reply_list(world, request, rest);
    } else {
        reply_object(world, request, method, rest);
    }
    g_mutex_unlock(&world->lock);
}

static gpointer serve(gpointer data)
{
    World *world = data;
    g_main_context_push_thread_default(world->context);
    g_main_loop_run(world->loop);
    lh_http_server_free(world->server);
    g_main_context_pop_thread_default(world->context);
    return NULL;
}

/* ---- the fixture ---- */

static int setup(void **state)
{
    World *world = g_new0(World, 1);
    g_autoptr(GError) error = NULL;
    LhHttpOptions options = {.listen = "127.0.0.1:0"};
    g_mutex_init(&world->lock);
    world->objects = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    world->canned = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    world->events = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    world->requests = g_ptr_array_new_with_free_func(g_free);
    world->revision = 100;
    world->context = g_main_context_new();
    world->loop = g_main_loop_new(world->context, FALSE);
    world->env = lh_env_glib_new(world->context);
    world->server = lh_http_server_new(world->env, world->context, &options, &error);
    assert_null(error);
    static const char *const methods[] = {"GET", "PUT", "DELETE", "POST"};
    for (guint i = 0; i < G_N_ELEMENTS(methods); i++) {
        lh_http_server_route(world->server, methods[i], "/v1/*", LH_ROLE_VIEWER, handle, world);
    }
    world->url = g_strconcat("http://", lh_http_server_address(world->server), NULL);
    world->thread = g_thread_new("server", serve, world);
    world->dir = g_dir_make_tmp("lh-cli-XXXXXX", NULL);
    g_setenv("LEASEHOLD_SERVER", world->url, TRUE);
    g_unsetenv("LEASEHOLD_TOKEN");
    *state = world;
    return 0;
}

static gboolean quit(gpointer data)
{
    g_main_loop_quit(data);
    return G_SOURCE_REMOVE;
}

static int teardown(void **state)
{
    World *world = *state;
    g_main_context_invoke(world->context, quit, world->loop);
    g_thread_join(world->thread);
    lh_env_free(world->env);
    g_main_loop_unref(world->loop);
    g_main_context_unref(world->context);
    g_hash_table_unref(world->objects);
    g_hash_table_unref(world->canned);
    g_hash_table_unref(world->events);
    g_ptr_array_unref(world->requests);
    g_autoptr(GDir) dir = g_dir_open(world->dir, 0, NULL);
    const char *name;
    while ((name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = g_build_filename(world->dir, name, NULL);
        g_unlink(path);
    }
    g_rmdir(world->dir);
    free(world->out);
    free(world->err);
    g_free(world->token);
    g_free(world->dir);
    g_free(world->url);
    g_mutex_clear(&world->lock);
    g_free(world);
    return 0;
}

/* The exit code of `leasehold <arguments>`; NULL ends them. */
static int run(World *world, ...) G_GNUC_NULL_TERMINATED;
static int run(World *world, ...)
{
    g_autoptr(GPtrArray) args = g_ptr_array_new();
    va_list list;
    va_start(list, world);
    g_ptr_array_add(args, (gpointer) "leasehold");
    for (const char *arg; (arg = va_arg(list, const char *)) != NULL;) {
        g_ptr_array_add(args, (gpointer)arg);
    }
    va_end(list);
    free(world->out);
    free(world->err);
    size_t out_len, err_len;
    FILE *out = open_memstream(&world->out, &out_len);
    FILE *err = open_memstream(&world->err, &err_len);
    int code = lh_cli_run((int)args->len, (char **)args->pdata, out, err);
    fclose(out);
    fclose(err);
    return code;
}

static void has(World *world, const char *key, const char *text)
{
    g_mutex_lock(&world->lock);
    g_hash_table_insert(world->objects, g_strdup(key), g_strdup(text));
    g_mutex_unlock(&world->lock);
}

static void answers(World *world, const char *route, const char *reply)
{
    g_mutex_lock(&world->lock);
    g_hash_table_insert(world->canned, g_strdup(route), g_strdup(reply));
    g_mutex_unlock(&world->lock);
}

static void sends(World *world, const char *plural, const char *events)
{
    g_mutex_lock(&world->lock);
    g_hash_table_insert(world->events, g_strdup(plural), g_strdup(events));
    g_mutex_unlock(&world->lock);
}

/* A service as the server has it. */
static void has_service(World *world, const char *name, const char *owner, int revision)
{
    g_autofree char *key = g_strconcat("services/", name, NULL);
    g_autofree char *text = g_strdup_printf(
        "{\"apiVersion\":\"leasehold/v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"%s\","
        "\"labels\":{},\"revision\":%d},\"spec\":{\"owner\":\"%s\",\"retention\":\"7d\"}}",
        name, revision, owner);
    has(world, key, text);
}

static char *file(World *world, const char *name, const char *content)
{
    char *path = g_build_filename(world->dir, name, NULL);
    assert_true(g_file_set_contents(path, content, -1, NULL));
    return path;
}

static gboolean was_asked(World *world, const char *start)
{
    gboolean found = FALSE;
    g_mutex_lock(&world->lock);
    for (guint i = 0; i < world->requests->len; i++) {
        found |= g_str_has_prefix(world->requests->pdata[i], start);
    }
    g_mutex_unlock(&world->lock);
    return found;
}

#define assert_run(code, ...)                                                                    \
    do {                                                                                         \
        int got = run(world, __VA_ARGS__, NULL);                                                 \
        if (got != (code)) {                                                                     \
            fail_msg("%s: exit %d, expected %d\nout: %serr: %s", #__VA_ARGS__, got, (int)(code), \
                     world->out, world->err);                                                    \
        }                                                                                        \
    } while (0)

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", part, text);
    }
}

/* ---- usage, exit codes, errors ---- */

static void test_usage(void **state)
{
    World *world = *state;
    assert_run(0, "--help");
    assert_contains(world->out, "\n  apply ");
    assert_contains(world->out, "\n  manager ");
    assert_run(0, "help");
    assert_run(0, "help", "wait");
    assert_contains(world->out, "condition=TYPE");
    assert_run(0, "wait", "--help");
    assert_contains(world->out, "--timeout DURATION");
    assert_int_equal(run(world, NULL), 2);
    assert_contains(world->err, "usage: leasehold");
    static const struct {
        const char *args[4], *message;
    } cases[] = {
        {{"gte", "services"}, "leasehold: gte: unknown command; did you mean \"get\"?\n"},
        {{"desc"}, "leasehold: desc: unknown command; did you mean \"describe\"?\n"},
        {{"zzzzzzzz"}, "leasehold: zzzzzzzz: unknown command; see \"leasehold --help\"\n"},
        {{"help", "gte"}, "did you mean \"get\"?\n"},
        {{"get"}, "leasehold: get: wrong arguments; usage: leasehold get KIND [NAME…]\n"},
        {{"get", "services", "--nope"}, "leasehold: get: Unknown option --nope\n"},
        {{"get", "services", "-o", "xml"}, "leasehold: -o xml: must be table"},
        {{"get", "services", "-ojsonpath={.a"}, "leasehold: jsonpath {.a: expected }"},
        {{"get", "widgets"}, "leasehold: kind widgets: unknown; there are services, "},
        {{"get", "services", "a", "-lx=y"}, "leasehold: get: -l and names"},
        {{"apply"}, "leasehold: apply: -f FILE is missing\n"},
        {{"apply", "-f", "/nonexistent.yaml"}, "leasehold: /nonexistent.yaml: No such file"},
        {{"delete", "service"}, "leasehold: delete: give either"},
        {{"explain", "cache"}, "leasehold: explain: cache: must be POOL/ITEM\n"},
        {{"wait", "service", "a"}, "leasehold: wait: --for is missing"},
        {{"wait", "service", "a", "--for=x"}, "leasehold: wait: --for x: must be live"},
        {{"wait", "service", "--for=jsonpath={.a}b", "a"}, "must be jsonpath={PATH}"},
        {{"confirm", "cache-evictor"}, "leasehold: confirm: --plan HASH is missing"},
        {{"cordon", "cache"}, "usage: leasehold cordon POOL/NODE-NAME\n"},
        {{"retry", "cache/a/b"}, "usage: leasehold retry POOL/ITEM\n"},
        {{"get", "services", "--server", "ftp://x"}, "leasehold: server ftp://x: must be http"},
        {{"get", "services", "--server=http://u@x/"}, "must be http://address:port"},
        {{"events", "--for", "a"}, "leasehold: events: --for a: must be KIND/NAME\n"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *const *a = cases[i].args;
        assert_run(2, a[0], a[1], a[2], a[3]);
        assert_contains(world->err, cases[i].message);
        assert_string_equal(world->out, "");
    }
    assert_int_equal(world->requests->len, 0);
}

static void test_exit_codes(void **state)
{
    World *world = *state;
    static const struct {
        int status, code;
    } cases[] = {
        {400, 2}, {401, 3}, {403, 4}, {404, 4}, {405, 4}, {409, 4}, {410, 4}, {412, 4}, {413, 2},
        {415, 2}, {422, 2}, {429, 3}, {500, 1}, {502, 3}, {503, 3}, {504, 3}, {507, 3}, {302, 1},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *reply = g_strdup_printf("%d {\"title\":\"T\",\"detail\":\"because\"}",
                                                 cases[i].status);
        answers(world, "GET services/a", reply);
        assert_run(cases[i].code, "get", "service", "a");
        assert_string_equal(world->err, "leasehold: services/a: because\n");
    }
    answers(world, "GET services/a", "503 <html>");
    assert_run(3, "get", "service", "a");
    assert_string_equal(world->err, "leasehold: services/a: the server answered 503\n");
    answers(world, "GET services/a", "200 nonsense");
    assert_run(1, "get", "service", "a");
    answers(world, "GET services", "200 {\"items\":7}");
    assert_run(1, "get", "service");

    assert_run(3, "--server", "http://127.0.0.1:1", "get", "services");
    assert_true(g_str_has_prefix(world->err, "leasehold: server http://127.0.0.1:1: "));
    assert_run(3, "get", "services", "--server", "http://127.0.0.1:1/", "-o", "json");
    g_autoptr(cJSON) problem = cJSON_Parse(world->err);
    assert_string_equal(lh_json_get_string(problem, "title", ""), "Unreachable");
}

static void test_problems_as_json(void **state)
{
    World *world = *state;
    answers(world, "GET services/a",
            "400 {\"type\":\"about:blank\",\"status\":400,\"detail\":\"too long\",\"field\":"
            "\"spec.owner\"}");
    assert_run(2, "get", "service", "a");
    assert_string_equal(world->err, "leasehold: services/a: spec.owner: too long\n");
    assert_run(2, "get", "service", "a", "-o", "json");
    assert_string_equal(world->err, "{\"type\":\"about:blank\",\"status\":400,\"detail\":"
                                    "\"too long\",\"field\":\"spec.owner\","
                                    "\"instance\":\"/v1/services/a\"}\n");
    assert_run(2, "get", "widgets", "-ojson");
    assert_true(g_str_has_prefix(world->err,
                                 "{\"type\":\"about:blank\",\"title\":\"Invalid input\","
                                 "\"detail\":\"kind widgets: unknown"));
    answers(world, "GET services/a", "400 {\"detail\":\"a\\nb\\u001b[2J\"}");
    assert_run(2, "get", "service", "a");
    assert_string_equal(world->err, "leasehold: services/a: a b?[2J\n");
}

static void test_token(void **state)
{
    World *world = *state;
    world->token = g_strdup("s3cret");
    assert_run(3, "get", "services");
    g_autofree char *path = file(world, "token", "s3cret\n");
    assert_run(0, "get", "services", "--token-file", path);
    g_setenv("LEASEHOLD_TOKEN", "s3cret", TRUE);
    assert_run(0, "get", "services");
    g_setenv("LEASEHOLD_TOKEN", "a\r\nX-B: c", TRUE);
    assert_run(2, "get", "services");
    g_unsetenv("LEASEHOLD_TOKEN");
    g_autofree char *empty = file(world, "empty", "\n");
    assert_run(2, "get", "services", "--token-file", empty);
    assert_run(2, "get", "services", "--token-file", "/nonexistent");
}

/* ---- get, describe, explain ---- */

static void test_get(void **state)
{
    World *world = *state;
    for (int i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        has_service(world, name, "me", 10 + i);
    }
    assert_run(0, "get", "services", "-o", "name");
    assert_string_equal(world->out,
                        "services/s0\nservices/s1\nservices/s2\nservices/s3\nservices/s4\n");
    assert_run(0, "get", "Service", "-o", "json");
    g_autoptr(cJSON) list = cJSON_Parse(world->out);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(list, "items")), 5);
    assert_int_equal(lh_json_get_int(list, "revision", 0), 100);
    assert_null(cJSON_GetObjectItem(list, "continue"));
    assert_run(0, "get", "services", "-o", "jsonpath={.items[*].metadata.revision}");
    assert_string_equal(world->out, "10 11 12 13 14");
    assert_run(0, "get", "service", "s1", "-o", "yaml");
    assert_contains(world->out, "kind: Service\nmetadata:\n  name: s1\n");
    assert_run(0, "get", "service", "s1", "s3");
    assert_contains(world->out, "\ns1 ");
    assert_contains(world->out, "\ns3 ");
    assert_run(0, "get", "services", "-l", "a=b,c!=d e");
    assert_true(was_asked(world, "GET services labelSelector=a=b,c!=d e"));
    assert_run(0, "get", "seeds");
    assert_string_equal(world->out, "");
    assert_string_equal(world->err, "no seeds found\n");
    assert_run(4, "get", "service", "s1", "absent");
    /* Names go into the path as they are, and the server refuses what is none. */
    assert_run(2, "get", "service", "../x");
    has(world, "services/a b?", "{\"metadata\":{\"name\":\"a b?\"}}");
    assert_run(0, "get", "service", "a b?");
}

/* A list whose revision is gone on its second page is begun again. */
static void test_list_again(void **state)
{
    World *world = *state;
    answers(world, "GET seeds", "410 {\"detail\":\"compacted\"}");
    assert_run(4, "get", "seeds");
    assert_int_equal(world->requests->len, 1);
}

static void test_describe(void **state)
{
    World *world = *state;
    has(world, "services/a",
        "{\"kind\":\"Service\",\"metadata\":{\"name\":\"a\",\"revision\":7,\"labels\":{\"x\":\"y\"}},"
        "\"spec\":{\"owner\":\"me\",\"retention\":\"7d\"},\"status\":{\"snapshots\":2,\"conditions\":"
        "[{\"type\":\"Valid\",\"status\":\"False\",\"reason\":\"TooLong\",\"message\":\"no\"}]}}");
    has(world, "events/1",
        "{\"metadata\":{\"name\":\"1\"},\"object\":\"services/a\",\"reason\":"
        "\"Seen\",\"type\":\"Normal\",\"count\":1,\"message\":\"hello\"}");
    has(world, "events/2",
        "{\"metadata\":{\"name\":\"2\"},\"object\":\"services/b\",\"reason\":"
        "\"Other\"}");
    assert_run(0, "describe", "service", "a");
    assert_string_equal(world->out, "Name:      a\nKind:      Service\nRevision:  7\n"
                                    "Labels:\n  x: 'y'\n"
                                    "Spec:\n  owner: me\n  retention: 7d\n"
                                    "Status:\n  snapshots: 2\n"
                                    "Conditions:\n"
                                    "  CONDITION   STATUS   FOR   REASON    MESSAGE\n"
                                    "  Valid       False    -     TooLong   no\n"
                                    "Events:\n"
                                    "LAST   TYPE     REASON   OBJECT       COUNT   MESSAGE\n"
                                    "-      Normal   Seen     services/a   1       hello\n");
    assert_run(0, "describe", "service", "a", "-o", "jsonpath={.spec.owner}");
    assert_string_equal(world->out, "me");
    assert_run(4, "describe", "service", "b");
}

static void test_explain(void **state)
{
    World *world = *state;
    answers(world, "GET explain/cache/s.default.0",
            "200 {\"pool\":\"cache\",\"state\":\"Free\",\"reason\":\"no room\",\"lines\":[\"one\","
            "\"two \\u001b\"]}");
    assert_run(0, "explain", "cache/s.default.0");
    assert_string_equal(world->out, "one\ntwo ?\n");
    assert_run(0, "explain", "cache/s.default.0", "-o", "jsonpath={.state}");
    assert_string_equal(world->out, "Free");
    assert_run(4, "explain", "cache/other");
}

/* ---- apply, delete ---- */

static const char two_services[] =
    "apiVersion: leasehold/v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  owner: me\n---\n"
    "kind: Service\nmetadata: {name: b, labels: {app: x}}\nspec: {owner: yes}\n";

static void test_apply(void **state)
{
    World *world = *state;
    g_autofree char *path = file(world, "two.yaml", two_services);
    assert_run(0, "apply", "-f", path, "--dry-run");
    assert_string_equal(world->out, "services/a created (dry run)\nservices/b created (dry run)\n");
    assert_int_equal(g_hash_table_size(world->objects), 0);
    assert_run(0, "apply", "-f", path);
    assert_string_equal(world->out, "services/a created\nservices/b created\n");
    assert_true(was_asked(world, "PUT services/a If-None-Match:* {"));
    assert_contains(g_hash_table_lookup(world->objects, "services/b"),
                    "{\"owner\":\"yes\",\"retention\":\"7d\"}");
    assert_run(0, "apply", "-f", path);
    assert_string_equal(world->out, "services/a unchanged\nservices/b unchanged\n");

    g_autofree char *changed = file(world, "b.json",
                                    "{\"kind\":\"service\",\"metadata\":{\"name\":"
                                    "\"b\"},\"spec\":{\"owner\":\"yes\"}}");
    assert_run(0, "apply", "-f", changed, "-o", "json");
    g_autoptr(cJSON) results = cJSON_Parse(world->out);
    const cJSON *first = cJSON_GetObjectItem(results, "results")->child;
    assert_string_equal(lh_json_get_string(first, "result", ""), "configured");
    assert_int_equal(lh_json_get_int(first, "revision", 0), 103);
    assert_true(was_asked(world, "PUT services/b If-Match:\"102\" {"));

    world->conflicts = 2;
    assert_run(0, "apply", "-f", path);
    assert_string_equal(world->out, "services/a unchanged\nservices/b configured\n");
    world->conflicts = 99;
    g_autofree char *third = file(world, "c.yaml", "kind: Service\nmetadata: {name: c}\n");
    assert_run(4, "apply", "-f", third);
    assert_string_equal(world->err, "leasehold: services/c: services/c was changed\n");
}

static void test_apply_errors(void **state)
{
    World *world = *state;
    static const struct {
        const char *yaml, *message;
    } cases[] = {
        {"kind: Widget\nmetadata: {name: a}\n", "f.yaml:1: kind: Widget is unknown"},
        {"kind: Replica\nmetadata: {name: a}\n",
         "f.yaml:1: kind: Replica is not written by people"},
        {"metadata: {name: a}\n", "f.yaml:1: kind: is missing"},
        {"kind: Seed\n---\nkind: Seed\n", "f.yaml:1: metadata.name is missing"},
        {"kind: Seed\nmetadata: {name: a}\n---\nkind: Seed\nmetadata: {name: a}\n",
         "f.yaml:4: seeds/a is there twice"},
        {"a: &x 1\n", "f.yaml:1: anchors are not supported"},
        {"# empty\n", "f.yaml: no objects in it"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = file(world, "f.yaml", cases[i].yaml);
        assert_run(2, "apply", "-f", path);
        assert_contains(world->err, cases[i].message);
    }
    assert_int_equal(world->requests->len, 0);

    /* One refused object does not stop the others. */
    g_autofree char *path = file(world, "f.yaml",
                                 "kind: Service\nmetadata: {name: a}\nspec: {owner: bad}\n---\n"
                                 "kind: Service\nmetadata: {name: b}\nspec: {owner: good}\n");
    assert_run(2, "apply", "-f", path);
    assert_string_equal(world->out, "services/b created\n");
    assert_contains(world->err, "f.yaml:1: services/a: spec.owner: must not be bad\n");
}

static void test_prune(void **state)
{
    World *world = *state;
    has_service(world, "a", "me", 10);
    has_service(world, "old", "me", 11);
    has(world, "seeds/old", "{\"metadata\":{\"name\":\"old\",\"revision\":12}}");
    has(world, "snapshots/s", "{\"metadata\":{\"name\":\"s\",\"revision\":13}}");
    g_autofree char *path = file(world, "two.yaml", two_services);
    assert_run(2, "apply", "-f", path, "--prune");
    assert_run(2, "apply", "-f", path, "--prune", "-l", "");
    assert_run(2, "apply", "-f", path, "-l", "a=b");
    assert_run(0, "apply", "-f", path, "--prune", "-l", "a=b");
    assert_string_equal(world->out, "services/a unchanged\nservices/b created\n"
                                    "services/old pruned\nseeds/old pruned\n");
    assert_true(was_asked(world, "GET services labelSelector=a=b"));
    assert_true(was_asked(world, "DELETE services/old If-Match:\"11\""));
    assert_non_null(g_hash_table_lookup(world->objects, "snapshots/s"));

    has_service(world, "old", "me", 11);
    g_autofree char *bad = file(world, "bad.yaml",
                                "kind: Service\nmetadata: {name: a}\nspec: {owner: bad}\n");
    assert_run(2, "apply", "-f", bad, "--prune", "-l", "a=b");
    assert_contains(world->err, "nothing was pruned");
    assert_non_null(g_hash_table_lookup(world->objects, "services/old"));
}

static void test_delete(void **state)
{
    World *world = *state;
    has_service(world, "a", "me", 10);
    has_service(world, "b", "me", 11);
    has_service(world, "c", "me", 12);
    assert_run(0, "delete", "service", "a", "--dry-run");
    assert_string_equal(world->out, "services/a deleted (dry run)\n");
    assert_run(4, "delete", "service", "a", "absent", "c");
    assert_string_equal(world->out, "services/a deleted\nservices/c deleted\n");
    assert_string_equal(world->err, "leasehold: services/absent: no such object\n");
    g_autofree char *path = file(world, "two.yaml", "kind: Service\nmetadata: {name: b}\n");
    assert_run(0, "delete", "-f", path, "-o", "name");
    assert_string_equal(world->out, "services/b\n");
    assert_run(2, "delete", "service", "a", "-f", path);
    assert_int_equal(g_hash_table_size(world->objects), 0);
}

static void test_actions(void **state)
{
    World *world = *state;
    answers(world, "POST nodepolicies/cache/n:cordon", "200 {}");
    answers(world, "POST nodepolicies/cache/n:uncordon", "200 {}");
    answers(world, "POST retries/cache/s.default.0:retry", "200 {}");
    answers(world, "POST controllers/cache-evictor:confirm", "200 {}");
    assert_run(0, "cordon", "cache/n");
    assert_string_equal(world->out, "nodepolicies/cache/n cordoned\n");
    assert_run(0, "uncordon", "cache/n");
    assert_string_equal(world->out, "nodepolicies/cache/n uncordoned\n");
    assert_run(0, "retry", "cache/s.default.0");
    assert_run(0, "confirm", "cache-evictor", "--plan", "ab\"c");
    assert_true(
        was_asked(world, "POST controllers/cache-evictor:confirm {\"planHash\":\"ab\\\"c\"}"));
    answers(world, "POST retries/cache/x:retry", "404 {\"detail\":\"no such object\"}");
    assert_run(4, "retry", "cache/x");
}

/* ---- plan, leaders, events, version ---- */

static const char plan_text[] =
    "{\"revision\":9,\"hash\":\"ff\",\"controllers\":[{\"controller\":\"replica-creator\",\"hash\":"
    "\"ee\",\"leader\":true,\"ops\":[{\"op\":\"put\",\"key\":\"decided/replicas/x\",\"kind\":"
    "\"Replica\",\"name\":\"x\",\"rule\":\"create\",\"reason\":\"window\"}],\"notes\":[]},"
    "{\"controller\":\"cache-evictor\",\"hash\":\"dd\",\"leader\":false,\"braked\":true,\"planHash\":\"dd\",\"ops\":[],"
    "\"notes\":[{\"object\":\"replicas/y\",\"rule\":\"keep\",\"reason\":\"fresh\"}]}]}";

static int plan_stub(const char *path, const char *controller, FILE *out, GError **error)
{
    if (strcmp(path, "bad") == 0) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "bad: line 3: no");
        return -1;
    }
    fprintf(out, "{\"revision\":1,\"hash\":\"%s\",\"controllers\":[]}",
            controller != NULL ? controller : "all");
    return 0;
}

static void test_plan(void **state)
{
    World *world = *state;
    g_autofree char *reply = g_strconcat("200 ", plan_text, NULL);
    answers(world, "GET plan", reply);
    assert_run(0, "plan");
    assert_string_equal(
        world->out,
        "revision 9, hash ff\n"
        "replica-creator: 1 op, hash ee\n"
        "  OP    OBJECT       RULE     REASON\n"
        "  put   replicas/x   create   window\n"
        "cache-evictor: 0 ops, led by another instance, braked (leasehold confirm cache-evictor "
        "--plan dd)\n"
        "  NOTHING FOR   RULE   REASON\n"
        "  replicas/y    keep   fresh\n");
    assert_run(0, "plan", "-o", "jsonpath={.controllers[*].ops[*].key}");
    assert_string_equal(world->out, "decided/replicas/x");
    answers(world, "GET plan/nobody", "404 {\"detail\":\"no such controller\"}");
    assert_run(4, "plan", "nobody");

    assert_run(1, "plan", "--from", "x");
    lh_cli_set_plan_from_file(plan_stub);
    assert_run(0, "plan", "--from", "x", "cache-evictor", "-o", "jsonpath={.hash}");
    assert_string_equal(world->out, "cache-evictor");
    assert_run(2, "plan", "--from", "bad");
    assert_string_equal(world->err, "leasehold: bad: line 3: no\n");
    lh_cli_set_plan_from_file(NULL);

    answers(world, "GET plan/input", "200 recorded\nbytes");
    g_autofree char *path = g_build_filename(world->dir, "input", NULL);
    assert_run(0, "plan", "--record", path);
    g_autofree char *content = NULL;
    assert_true(g_file_get_contents(path, &content, NULL, NULL));
    assert_string_equal(content, "recorded\nbytes");
    answers(world, "GET plan/input", "403 {\"detail\":\"admins only\"}");
    assert_run(4, "plan", "--record", path);
    assert_string_equal(world->err, "leasehold: plan/input: admins only\n");
}

static void test_leaders(void **state)
{
    World *world = *state;
    has(world, "leaders/b/01",
        "{\"metadata\":{\"name\":\"b/01\",\"createRevision\":9,\"revision\":90},"
        "\"instance\":\"one\",\"host\":\"h1\"}");
    has(world, "leaders/b/02",
        "{\"metadata\":{\"name\":\"b/02\",\"createRevision\":8,\"revision\":95},"
        "\"instance\":\"two\",\"host\":\"h2\"}");
    has(world, "leaders/a/02",
        "{\"metadata\":{\"name\":\"a/02\",\"revision\":5},\"instance\":\"two\"}");
    assert_run(0, "leaders");
    assert_string_equal(world->out, "CONTROLLER   LEADER   HOST   UP   STANDBYS\n"
                                    "a            two      -      -    0\n"
                                    "b            two      h2     -    1\n");
    answers(world, "POST leaders/a:move", "200 {\"revision\":7}");
    assert_run(0, "leaders", "move", "a", "two");
    assert_true(was_asked(world, "POST leaders/a:move {\"instance\":\"two\"}"));
    assert_run(2, "leaders", "move", "a");
    assert_run(2, "leaders", "shove", "a", "two");
}

static void test_events(void **state)
{
    World *world = *state;
    has(world, "events/1",
        "{\"metadata\":{\"name\":\"1\"},\"time\":\"2026-05-02T00:00:00Z\",\"object\":"
        "\"services/a\",\"reason\":\"Later\"}");
    has(world, "events/2",
        "{\"metadata\":{\"name\":\"2\"},\"time\":1777593600000,\"object\":"
        "\"services/a\",\"reason\":\"Sooner\"}");
    has(world, "events/3",
        "{\"metadata\":{\"name\":\"3\"},\"object\":\"seeds/a\",\"reason\":\"First\"}");
    assert_run(0, "events", "-o", "jsonpath={.items[*].reason}");
    assert_string_equal(world->out, "First Sooner Later");
    assert_run(0, "events", "--for", "Service/a", "-o", "jsonpath={.items[*].reason}");
    assert_string_equal(world->out, "Sooner Later");
}

static void test_version(void **state)
{
    World *world = *state;
    answers(world, "GET cluster",
            "200 {\"instances\":[{\"instance\":\"m1\",\"version\":\"9.9\"}]}");
    assert_run(0, "version");
    assert_true(g_str_has_prefix(world->out, "leasehold "));
    assert_contains(world->out, "\nserver m1: 9.9\n");
    assert_run(0, "version", "--server", "http://127.0.0.1:1");
}

/* ---- watching ---- */

/* The server serves one watch and refuses the next one, which ends the command. */
static void watch_once(World *world, const char *plural, const char *events)
{
    g_autofree char *text = g_strconcat(events, "\nclose", NULL);
    sends(world, plural, text);
}

static void test_get_watch(void **state)
{
    World *world = *state;
    static const char events[] =
        "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"owner\":\"you\"}}\n"
        "OTHER 102 {}\n"
        "PUT 102 {\"metadata\":{\"name\":\"b\"}}\n"
        "DELETE 103 {\"metadata\":{\"name\":\"a\"}}";
    has_service(world, "a", "me", 10);
    world->refuses = TRUE;

    watch_once(world, "services", events);
    assert_run(4, "get", "services", "-w", "-o", "name");
    assert_string_equal(world->out, "services/a\nservices/a\nservices/b\nservices/a deleted\n");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "a", "-w", "-o", "jsonpath={.spec.owner}");
    assert_string_equal(world->out, "me\nyou\n\n");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "b", "-w", "-o", "json");
    assert_string_equal(world->out, "{\"event\":\"PUT\",\"revision\":102,\"object\":"
                                    "{\"metadata\":{\"name\":\"b\"}}}\n");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "a", "-w");
    g_auto(GStrv) lines = g_strsplit(world->out, "\n", -1);
    assert_int_equal(g_strv_length(lines), 5);
    assert_true(g_str_has_prefix(lines[0], "EVENT   NAME   OWNER   WINDOW"));
    assert_true(g_str_has_prefix(lines[1], "LIST    a      me "));
    assert_true(g_str_has_prefix(lines[2], "PUT     a      you "));
    assert_true(g_str_has_prefix(lines[3], "DELETE   a      - "));
    assert_string_equal(world->err, "leasehold: services: enough\n");

    /* Forgotten: listed again. */
    answers(world, "WATCH services", "410 {\"detail\":\"compacted\"}");
    watch_once(world, "services", events);
    assert_run(4, "get", "services", "a", "-w", "-o", "name");
    assert_string_equal(world->out, "services/a\nservices/a\nservices/a\nservices/a deleted\n");
    assert_contains(world->err, "forgotten revision 100; listing again\n");

    /* Nonsense ends it. */
    watch_once(world, "services", "PUT 101 {nonsense");
    assert_run(1, "get", "services", "-w");
}

static void test_events_watch(void **state)
{
    World *world = *state;
    has(world, "events/1",
        "{\"metadata\":{\"name\":\"1\",\"revision\":50},\"object\":"
        "\"services/a\",\"reason\":\"Old\"}");
    world->refuses = TRUE;
    watch_once(world, "events",
               "PUT 101 {\"object\":\"services/b\",\"reason\":\"Other\"}\n"
               "PUT 102 {\"object\":\"services/a\",\"reason\":\"New\"}\n"
               "DELETE 103 {\"object\":\"services/a\"}");
    assert_run(4, "events", "-w", "--for", "services/a", "-o", "json");
    assert_contains(world->out, "\"Old\"}\n{\"object\":\"services/a\",\"reason\":\"New\"}\n");
    assert_null(strstr(world->out, "Other"));
}

static const char live_item[] =
    "PUT 101 {\"metadata\":{\"name\":\"cache/n/s.default.0\"},\"state\":\"live\"}";

static void test_wait_object(void **state)
{
    World *world = *state;
    has(world, "services/a",
        "{\"metadata\":{\"name\":\"a\",\"revision\":10},\"spec\":{\"n\":3},"
        "\"status\":{\"observedRevision\":10,\"state\":\"started\",\"conditions\":"
        "[{\"type\":\"Valid\",\"status\":\"True\"},{\"type\":\"Ready\",\"status\":"
        "\"False\",\"reason\":\"R\",\"message\":\"m\"}]}}");
    assert_run(0, "wait", "service", "a", "--for", "condition=Valid");
    assert_string_equal(world->out, "services/a condition met\n");
    assert_run(0, "wait", "service", "a", "--for=condition=Ready=False");
    assert_run(0, "wait", "service", "a", "--for=state=Started");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=3");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}");
    assert_run(0, "wait", "service", "gone", "--for=delete");
    assert_run(4, "wait", "service", "gone", "--for=condition=Valid");
    assert_run(1, "wait", "service", "a", "--for=condition=Ready", "--timeout=50ms");
    assert_string_equal(world->err, "leasehold: services/a: condition=Ready not met within 50ms: "
                                    "Ready=False: R: m\n");
    assert_run(2, "wait", "service", "a", "--for=delete", "--timeout=soon");

    sends(world, "services",
          "PUT 101 {\"metadata\":{\"name\":\"b\"},\"spec\":{\"n\":4}}\n"
          "PUT 102 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":4}}");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=4");
    sends(world, "services", "DELETE 103 {\"metadata\":{\"name\":\"a\"}}");
    assert_run(0, "wait", "service", "a", "--for=delete");
    sends(world, "services", "DELETE 103 {\"metadata\":{\"name\":\"a\"}}");
    assert_run(1, "wait", "service", "a", "--for=condition=Ready");
    assert_contains(world->err, "cannot come true: it was deleted\n");
}

static void test_wait_hopeless(void **state)
{
    World *world = *state;
    has(world, "services/a",
        "{\"metadata\":{\"name\":\"a\",\"revision\":10},\"status\":{"
        "\"observedRevision\":9,\"conditions\":[{\"type\":\"Valid\",\"status\":"
        "\"False\",\"reason\":\"R\",\"message\":\"m\"}]}}");
    /* Of an older revision: says nothing, neither good nor bad. */
    assert_run(1, "wait", "service", "a", "--for=condition=Valid=False", "--timeout=50ms");
    assert_contains(world->err, "not met within 50ms: Valid is not known yet");
    sends(
        world, "services",
        "PUT 101 {\"metadata\":{\"name\":\"a\",\"revision\":10},\"status\":{\"observedRevision\":10,"
        "\"conditions\":[{\"type\":\"Valid\",\"status\":\"False\",\"reason\":\"R\",\"message\":\"m\"}]}}");
    assert_run(1, "wait", "service", "a", "--for=condition=Ready");
    assert_string_equal(world->err, "leasehold: services/a: condition=Ready cannot come true: "
                                    "Valid=False: R: m\n");
    has(world, "restoreprogress/r",
        "{\"metadata\":{\"name\":\"r\"},\"phase\":\"Refused\","
        "\"message\":\"no such service\"}");
    assert_run(1, "wait", "restoreprogress", "r", "--for=state=Completed");
    assert_contains(world->err, "Refused: no such service\n");
    assert_run(0, "wait", "restoreprogress", "r", "--for=state=refused");
}

static void test_wait_live(void **state)
{
    World *world = *state;
    /* The replica does not exist yet; its item becomes live. */
    sends(world, "items", live_item);
    assert_run(0, "wait", "replica", "s.default.0", "--for=live");
    sends(world, "items", live_item);
    assert_run(0, "wait", "snapshot", "s", "--for=Live");
    /* Somebody else's. */
    sends(world, "items", live_item);
    assert_run(1, "wait", "replica", "t.default.0", "--for=live", "--timeout=200ms");
    sends(world, "items", live_item);
    assert_run(1, "wait", "snapshot", "s.default", "--for=live", "--timeout=200ms");
    /* Already so. */
    has(world, "items/cache/n/u.v.default.1",
        "{\"metadata\":{\"name\":\"cache/n/u.v.default.1\"},\"state\":\"live\"}");
    assert_run(0, "wait", "snapshot", "u.v", "--for=live");
    assert_run(1, "wait", "snapshot", "u", "--for=live", "--timeout=50ms");
    assert_run(0, "wait", "replica", "u.v.default.1", "--for=state=live");
    /* Failed, but tried again; then for good. */
    sends(world, "items",
          "PUT 101 {\"metadata\":{\"name\":\"cache/n/w.default.0\"},\"state\":\"failed\"}");
    assert_run(1, "wait", "replica", "w.default.0", "--for=live", "--timeout=200ms");
    assert_contains(world->err, "not met within 200ms: item cache/n/w.default.0 is failed\n");
    sends(world, "retries",
          "PUT 101 {\"metadata\":{\"name\":\"cache/w.default.0\"},\"attempt\":1}\n"
          "PUT 102 {\"metadata\":{\"name\":\"cache/w.default.0\"},\"parked\":true,"
          "\"message\":\"disk full\"}");
    assert_run(1, "wait", "replica", "w.default.0", "--for=live");
    assert_contains(world->err,
                    "cannot come true: cache/w.default.0 has failed for good: disk full\n");
    has(world, "replicas/x.default.0", "{\"metadata\":{\"name\":\"x.default.0\"}}");
    sends(world, "replicas", "DELETE 101 {\"metadata\":{\"name\":\"x.default.0\"}}");
    assert_run(1, "wait", "replica", "x.default.0", "--for=live");
    assert_contains(world->err, "it was deleted\n");
}

/* What changes after the first look and before the watch is seen. */
static void test_wait_gap(void **state)
{
    World *world = *state;
    has(world, "services/a", "{\"metadata\":{\"name\":\"a\"}}");
    world->late_key = g_strdup("services/a");
    world->late_text = g_strdup("{\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":4}}");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=4");
}

/* Connections that end, and revisions that are forgotten, do not end a wait. */
static void test_wait_again(void **state)
{
    World *world = *state;
    has(world, "services/a", "{\"metadata\":{\"name\":\"a\"}}");
    answers(world, "WATCH services", "410 {\"detail\":\"compacted\"}");
    sends(world, "services", "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":4}}");
    assert_run(0, "wait", "service", "a", "--for=jsonpath={.spec.n}=4");
    assert_int_equal(world->n_watches, 1);

    sends(world, "services", "PUT 101 {\"metadata\":{\"name\":\"a\"},\"spec\":{\"n\":5}}\nclose");
    assert_run(1, "wait", "service", "a", "--for=jsonpath={.spec.n}=6", "--timeout=1500ms");
    assert_int_equal(world->n_watches, 3);
    answers(world, "WATCH services", "403 {\"detail\":\"viewers may not\"}");
    assert_run(4, "wait", "service", "a", "--for=delete");
    assert_string_equal(world->err, "leasehold: services: viewers may not\n");
}

#define test_case(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_usage),        test_case(test_exit_codes),  test_case(test_problems_as_json),
        test_case(test_token),        test_case(test_get),         test_case(test_list_again),
        test_case(test_describe),     test_case(test_explain),     test_case(test_apply),
        test_case(test_apply_errors), test_case(test_prune),       test_case(test_delete),
        test_case(test_actions),      test_case(test_plan),        test_case(test_leaders),
        test_case(test_events),       test_case(test_version),     test_case(test_get_watch),
        test_case(test_events_watch), test_case(test_wait_object), test_case(test_wait_hopeless),
        test_case(test_wait_live),    test_case(test_wait_gap),    test_case(test_wait_again),
    };
    return cmocka_run_group_tests_name("cli/cli", tests, NULL, NULL);
}

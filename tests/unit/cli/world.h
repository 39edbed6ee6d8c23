/*
 * For the tests of the commands: a small server in another thread, and runs of the program against it.
 * The server keeps objects as text and checks revisions; it knows no kinds.
 */
#pragma once

#include "base/env.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"
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

static inline void note_request(World *world, LhHttpRequest *request)
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

static inline int compare_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Two objects on a page; the continue token is the next index. */
static inline void reply_list(World *world, LhHttpRequest *request, const char *plural)
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
static inline void reply_watch(World *world, LhHttpRequest *request, const char *plural)
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

static inline void reply_put(World *world, LhHttpRequest *request, const char *key)
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

static inline void reply_canned(LhHttpRequest *request, const char *canned)
{
    const char *body = strchr(canned, ' ') + 1;
    guint status = (guint)atoi(canned);
    lh_http_reply(request, status, status < 300 ? "application/json" : "application/problem+json",
                  body, -1);
}

static inline void reply_object(World *world, LhHttpRequest *request, const char *method,
                                const char *key)
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

static inline void handle(LhHttpRequest *request, gpointer data)
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

static inline gpointer serve(gpointer data)
{
    World *world = data;
    g_main_context_push_thread_default(world->context);
    g_main_loop_run(world->loop);
    lh_http_server_free(world->server);
    g_main_context_pop_thread_default(world->context);
    return NULL;
}

/* ---- the fixture ---- */

static inline void drop_line(const char *line, gpointer data)
{
    (void)line;
    (void)data;
}

/* @options: what is served with, but for the address. */
static inline int setup_with(void **state, LhHttpOptions options)
{
    World *world = g_new0(World, 1);
    g_autoptr(GError) error = NULL;
    options.listen = "127.0.0.1:0";
    lh_log_set_sink(drop_line, NULL);
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
        lh_http_server_route(world->server, methods[i], "/v1/*",
                             i == 0 ? LH_ROLE_VIEWER : LH_ROLE_OPERATOR, handle, world);
    }
    world->url = g_strconcat(lh_http_server_scheme(world->server), "://",
                             lh_http_server_address(world->server), NULL);
    world->thread = g_thread_new("server", serve, world);
    world->dir = g_dir_make_tmp("lh-cli-XXXXXX", NULL);
    g_setenv("LEASEHOLD_SERVER", world->url, TRUE);
    static const char *const variables[] = {"LEASEHOLD_TOKEN", "LEASEHOLD_CACERT", "LEASEHOLD_CERT",
                                            "LEASEHOLD_KEY"};
    for (guint i = 0; i < G_N_ELEMENTS(variables); i++) {
        g_unsetenv(variables[i]);
    }
    *state = world;
    return 0;
}

static inline int setup(void **state)
{
    return setup_with(state, (LhHttpOptions){0});
}

static inline gboolean quit(gpointer data)
{
    g_main_loop_quit(data);
    return G_SOURCE_REMOVE;
}

static inline int teardown(void **state)
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
static inline int run(World *world, ...) G_GNUC_NULL_TERMINATED;
static inline int run(World *world, ...)
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

static inline void has(World *world, const char *key, const char *text)
{
    g_mutex_lock(&world->lock);
    g_hash_table_insert(world->objects, g_strdup(key), g_strdup(text));
    g_mutex_unlock(&world->lock);
}

static inline void answers(World *world, const char *route, const char *reply)
{
    g_mutex_lock(&world->lock);
    g_hash_table_insert(world->canned, g_strdup(route), g_strdup(reply));
    g_mutex_unlock(&world->lock);
}

static inline void sends(World *world, const char *plural, const char *events)
{
    g_mutex_lock(&world->lock);
    g_hash_table_insert(world->events, g_strdup(plural), g_strdup(events));
    g_mutex_unlock(&world->lock);
}

/* A service as the server has it. */
static inline void has_service(World *world, const char *name, const char *owner, int revision)
{
    g_autofree char *key = g_strconcat("services/", name, NULL);
    g_autofree char *text = g_strdup_printf(
        "{\"apiVersion\":\"leasehold/v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"%s\","
        "\"labels\":{},\"revision\":%d},\"spec\":{\"owner\":\"%s\",\"retention\":\"7d\"}}",
        name, revision, owner);
    has(world, key, text);
}

static inline char *file(World *world, const char *name, const char *content)
{
    char *path = g_build_filename(world->dir, name, NULL);
    assert_true(g_file_set_contents(path, content, -1, NULL));
    return path;
}

static inline gboolean was_asked(World *world, const char *start)
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

static inline void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", part, text);
    }
}

#define test_case(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

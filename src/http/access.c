/*
 * Who asks, whether that is enough for what they ask for, and the line in the log about it.
 *
 * A token, where one is sent, decides; else the client's certificate. Lines about requests that
 * nobody vouches for are limited, so that strangers cannot fill the log; what was left out is counted.
 */
#include "base/errors.h"
#include "base/log.h"
#include "http/internal.h"

#include <string.h>

#define AUDIT_PERIOD_MS 10000
#define AUDIT_STRANGERS 20 /* lines in a period */

/* ---- tokens ---- */

static gboolean tokens_load(LhHttpServer *server, gboolean *changed, GError **error)
{
    gsize len;
    g_autoptr(GError) local = NULL;
    char *text = lh_watched_read(&server->tokens_file, &len, changed, error);
    if (text == NULL) {
        return FALSE;
    }
    LhTokens *tokens = *changed ? lh_tokens_parse(text, len, &local) : NULL;
    lh_watched_free_text(text);
    if (local != NULL) {
        g_set_error(error, LH_ERROR, local->code, "%s %s: %s", server->tokens_file.setting,
                    server->tokens_file.path, local->message);
        return FALSE;
    }
    if (tokens != NULL) {
        lh_tokens_free(server->tokens);
        server->tokens = tokens;
    }
    return TRUE;
}

gboolean lh_http_access_init(LhHttpServer *server, const LhHttpOptions *options, GError **error)
{
    gboolean changed = FALSE;
    server->authenticates = options->client_ca != NULL || options->tokens_file != NULL;
    if (options->tokens_file == NULL) {
        return TRUE;
    }
    lh_watched_init(&server->tokens_file, "auth.tokensFile", options->tokens_file);
    server->tokens_looked_ms = lh_mono_ms(server->env);
    return tokens_load(server, &changed, error);
}

static void tokens_refresh(LhHttpServer *server, gint64 now_ms)
{
    gboolean changed = FALSE;
    g_autoptr(GError) error = NULL;
    if (now_ms < server->tokens_looked_ms + LH_WATCHED_PERIOD_MS) {
        return;
    }
    server->tokens_looked_ms = now_ms;
    tokens_load(server, &changed, &error);
    if (changed) {
        lh_watched_log(&server->tokens_file, error);
    }
}

/* ---- who it is ---- */

static void become(LhHttpRequest *request, const char *who, LhRole role, const char *why)
{
    char *copy = g_strdup(who);
    g_free(request->who);
    request->who = copy;
    request->role = role;
    request->why = why;
}

static void by_token(LhHttpRequest *request, const char *authorization)
{
    LhHttpServer *server = request->server;
    const char *token = lh_bearer_token(authorization), *name;
    LhRole role;
    if (token == NULL) {
        become(request, NULL, LH_ROLE_ANYONE, "Authorization must be Bearer and a token");
    } else if (server->tokens == NULL || !lh_tokens_find(server->tokens, token, &name, &role)) {
        become(request, NULL, LH_ROLE_ANYONE, "the token is not known");
    } else {
        become(request, name, role, NULL);
    }
}

static void by_certificate(LhHttpRequest *request, gint64 now_ms)
{
    LhHttpServer *server = request->server;
    LhTlsPeer *peer = &request->connection->peer;
    if (server->tls != NULL) {
        lh_tls_peer_update(server->tls, request->connection->session, now_ms, peer);
    }
    if (peer->name != NULL) {
        become(request, peer->name, peer->role, NULL);
    } else {
        become(request, NULL, LH_ROLE_ANYONE,
               peer->why != NULL ? peer->why : "a token or a client certificate is needed");
    }
}

void lh_http_identify(LhHttpRequest *request)
{
    LhHttpServer *server = request->server;
    gint64 now_ms = lh_mono_ms(server->env);
    const char *authorization = NULL;
    guint n = 0;
    if (!server->authenticates) {
        become(request, NULL, LH_ROLE_ADMIN, NULL);
        return;
    }
    for (guint i = 0; i < request->headers->len; i += 2) {
        if (g_ascii_strcasecmp(request->headers->pdata[i], "Authorization") == 0) {
            authorization = request->headers->pdata[i + 1];
            n++;
        }
    }
    if (server->tokens != NULL) {
        tokens_refresh(server, now_ms);
    }
    if (server->tls != NULL) {
        lh_tls_refresh(server->tls, now_ms);
    }
    if (n > 1) {
        become(request, NULL, LH_ROLE_ANYONE, "more than one Authorization header");
    } else if (n == 1) {
        by_token(request, authorization);
    } else {
        by_certificate(request, now_ms);
    }
}

guint lh_http_guard_role(const LhHttpRequest *request, LhRole needed, const char **why)
{
    static const char *const needs[] = {NULL, "the role viewer is needed",
                                        "the role operator is needed", "the role admin is needed"};
    if (request->role >= needed) {
        return 0;
    }
    if (request->role == LH_ROLE_ANYONE) {
        *why = request->why;
        return 401;
    }
    *why = needs[needed];
    return 403;
}

gboolean lh_http_access_lost(LhHttpRequest *request)
{
    const char *why = NULL;
    if (!request->server->authenticates || request->route->role == LH_ROLE_ANYONE) {
        return FALSE;
    }
    g_autofree char *who = g_strdup(lh_http_who(request));
    lh_http_identify(request);
    if (lh_http_guard_role(request, request->route->role, &why) == 0) {
        return FALSE;
    }
    lh_log(LH_LOG_INFO, "a stream is ended", "who", who, "from", request->peer, "path",
           request->path, "why", why, NULL);
    return TRUE;
}

const char *lh_http_who(const LhHttpRequest *request)
{
    return request->who != NULL ? request->who : "anonymous";
}

/* ---- the log ---- */

static void audit_period_end(LhHttpServer *server)
{
    if (server->audit_left_out > 0) {
        lh_log(LH_LOG_WARNING, "audit lines left out", "count",
               lh_fmt("%" G_GUINT64_FORMAT, server->audit_left_out), "why",
               "too many requests were refused", NULL);
    }
    server->audit_lines = 0;
    server->audit_left_out = 0;
}

static void on_audit_period(gpointer data)
{
    LhHttpServer *server = data;
    server->audit_timer = NULL;
    audit_period_end(server);
}

static gboolean audit_has_room(LhHttpServer *server)
{
    if (server->audit_timer == NULL) {
        server->audit_timer = lh_timer_in(server->env, AUDIT_PERIOD_MS, on_audit_period, server);
    }
    if (server->audit_lines >= AUDIT_STRANGERS) {
        server->audit_left_out++;
        return FALSE;
    }
    server->audit_lines++;
    return TRUE;
}

void lh_http_access_clear(LhHttpServer *server)
{
    lh_timer_clear(server->env, &server->audit_timer);
    audit_period_end(server);
    lh_tokens_free(server->tokens);
    lh_watched_clear(&server->tokens_file);
}

void lh_http_unaudited(LhHttpRequest *request)
{
    request->audited = TRUE;
}

/* A reading request leaves a line only when it was refused for what its client is. */
void lh_http_audit(LhHttpServer *server, LhHttpRequest *request, const char *status)
{
    gboolean reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    /* A refused write of somebody who is known is what an audit is for. */
    gboolean limited = request->role == LH_ROLE_ANYONE || (reads && request->denied);
    if ((reads && !request->denied) || request->audited) {
        return;
    }
    request->audited = TRUE;
    if (limited && server != NULL && !audit_has_room(server)) {
        return;
    }
    lh_log(LH_LOG_INFO, "audit", "who", lh_http_who(request), "role", lh_role_name(request->role),
           "from", request->peer, "method", request->method, "path", request->path, "status",
           status, request->denied ? "why" : NULL, request->why, NULL);
}

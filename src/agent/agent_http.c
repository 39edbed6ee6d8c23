/* The agent's HTTP routes. What may be read is decided by cache_work.c; paths are resolved below
 * one snapshot's directory, without links. */
#include "agent/agent_http.h"

#include "base/units.h"

#include <string.h>
#include <unistd.h>

static void get_health(LhHttpRequest *request, gpointer data G_GNUC_UNUSED)
{
    lh_http_reply_json(request, 200, g_strdup("{\"status\":\"healthy\"}"), NULL);
}

static void get_healthz(LhHttpRequest *request, gpointer data G_GNUC_UNUSED)
{
    lh_http_reply(request, 200, "text/plain", "ok\n", -1);
}

static void get_readyz(LhHttpRequest *request, gpointer data)
{
    const LhAgentHttp *http = data;
    if (http->registered)
        lh_http_reply(request, 200, "text/plain", "ok\n", -1);
    else
        lh_http_reply_problem(request, 503, NULL, "the node is not registered");
}

static void get_metrics(LhHttpRequest *request, gpointer data)
{
    const LhAgentHttp *http = data;
    g_autofree char *text = lh_metrics_text(http->metrics);
    lh_http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", text, -1);
}

static void get_file(LhHttpRequest *request, gpointer data)
{
    const LhAgentHttp *http = data;
    const char *rest = lh_http_rest(request);
    const char *slash = strchr(rest, '/');
    if (slash == NULL || http->cache == NULL) {
        lh_http_reply_problem(request, 404, NULL, "files are at " LH_FILES_PATH "SNAPSHOT/FILE");
        return;
    }
    g_autofree char *snapshot = g_strndup(rest, (gsize)(slash - rest));
    if (!lh_name_valid(snapshot, 253)) {
        lh_http_reply_problem(request, 404, NULL, "that is not the name of a snapshot");
        return;
    }
    if (slash[1] == '\0') {
        char *manifest = lh_cache_work_manifest(http->cache, snapshot);
        if (manifest != NULL)
            lh_http_reply_json(request, 200, manifest, NULL);
        else
            lh_http_reply_problem(request, 404, NULL, "snapshot %s is not live on this node",
                                  snapshot);
        return;
    }
    int fd = lh_cache_work_open_file(http->cache, snapshot, slash + 1);
    if (fd >= 0)
        lh_http_reply_fd(request, fd, "application/octet-stream");
    else
        lh_http_reply_problem(request, 404, NULL,
                              "no such file in a snapshot that is live on this node");
}

void lh_agent_http_routes(LhHttpServer *server, LhAgentHttp *http)
{
    lh_http_server_route(server, "GET", "/healthz", LH_ROLE_ANYONE, get_healthz, http);
    lh_http_server_route(server, "GET", "/readyz", LH_ROLE_ANYONE, get_readyz, http);
    lh_http_server_route(server, "GET", "/get_health_status", LH_ROLE_ANYONE, get_health, http);
    lh_http_server_route(server, "GET", "/metrics", LH_ROLE_VIEWER, get_metrics, http);
    lh_http_server_route(server, "GET", LH_FILES_PATH "*", LH_ROLE_VIEWER, get_file, http);
}

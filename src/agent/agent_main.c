/*
 * `leasehold agent`: reads the settings, wires env, etcd, object store, hooks, work, HTTP and agent
 * together, and runs the loop until it is told to stop. Nothing is decided here but what bad usage
 * is.
 */
#include "agent/agent_main.h"

#include "agent/agent.h"
#include "agent/agent_http.h"
#include "agent/cache_work.h"
#include "agent/manager_work.h"
#include "agent/permits_http.h"
#include "agent/program_work.h"
#include "agent/worker_watch.h"
#include "base/config.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/units.h"
#include "etcd/contact.h"

#include <errno.h>
#include <glib-unix.h>
#include <stdio.h>
#include <string.h>

#ifndef LEASEHOLD_VERSION
#define LEASEHOLD_VERSION "unversioned"
#endif

#define MAX_NODE_NAME    244
#define MAX_LEASE_TTL_MS (10 * 60 * 1000)
#define STOP_MS          10000 /* from SIGTERM to SIGKILL when an item is released */

static const LhSetting agent_settings[] = {
    {"pool", LH_SET_STRING, NULL, "POOL",
     "pool that this node belongs to: cache, recovery, indexer, manager, worker"},
    {"name", LH_SET_STRING, NULL, "NAME",
     "name of the node; its id adds 8 hex digits at each start"},
    {"dataDir", LH_SET_STRING, NULL, "DIR",
     "cache: where snapshots are kept, one agent for each directory; else where programs run"},
    {"capacity", LH_SET_SIZE, NULL, "100Gi",
     "bytes of snapshots it may hold (what its file system has)"},
    {"capacityItems", LH_SET_INT, "0", "N", "items it may hold; 0 is no limit"},
    {"set", LH_SET_STRING, "default", "SET", "replica set that it serves"},
    {"zone", LH_SET_STRING, NULL, "ZONE", "zone that it fails with"},
    {"listen", LH_SET_STRING, "127.0.0.1:0", "HOST:PORT", "address to serve on; port 0 is any"},
    {"advertiseUrl", LH_SET_STRING, NULL, "URL", "where others reach it (the address served on)"},
    {"onLoad", LH_SET_STRING, NULL, "CMD",
     "program run when a snapshot is on the disk, or to prepare an item; no shell"},
    {"onEvict", LH_SET_STRING, NULL, "CMD",
     "program run before a snapshot is removed, or to release an item; no shell"},
    {"exec", LH_SET_STRING, NULL, "CMD",
     "recovery, worker: program run once for each item; indexer, manager: as long as it is held; "
     "manager: exit 0 is done"},
    {"onWorkerFailed", LH_SET_STRING, NULL, "CMD",
     "manager: program run when a worker has failed that held permits; no shell"},
    {"execTimeout", LH_SET_DURATION, "24h", NULL,
     "recovery, worker: after it a program of exec is killed; 0s is never"},
    {"hookTimeout", LH_SET_DURATION, "60s", NULL,
     "after it a program of on-load, on-evict or on-worker-failed is killed"},
    {NULL, LH_SET_STRING, NULL, NULL, NULL},
};

typedef struct {
    LhConfig *config;
    GMainLoop *loop;
    LhEnv *env;
    LhMetrics *metrics;
    LhHttpServer *server;
    LhAgentHttp http;
    char *url, *prefix;
    char *permits_url;
    char **on_load, **on_evict, **exec, **on_worker_failed;
    const LhPool *pool;
    LhEtcd *etcd;
    LhContact *contact;
    LhObjectStore *objects;
    LhHooks *hooks;
    LhCacheWork *cache; /* one of the two */
    LhProgramWork *programs;
    LhManagerWork *manager; /* around the programs, in the pool manager */
    LhWorkerWatch *workers; /* the same */
    LhAgent *agent;
    gboolean stopping;
    GError *refused;
} Program;

static int complain(const GError *error)
{
    fprintf(stderr, "leasehold: %s\n", error->message);
    return lh_gerror_exit_code(error);
}

G_GNUC_PRINTF(3, 4)
static gboolean bad(GError **error, const char *what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *why = g_strdup_vprintf(format, args);
    va_end(args);
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s", what, why);
    return FALSE;
}

/* ---- settings ---- */

static gboolean check_pool(const LhConfig *c, GError **error)
{
    const char *name = lh_config_string(c, "pool");
    if (name == NULL)
        return bad(error, "--pool", "is needed");
    const LhPool *pool = lh_pool_find(name);
    if (pool == NULL)
        return bad(error, lh_config_source(c, "pool"), "\"%.64s\" is not a pool", name);
    if (!pool->supported)
        return bad(error, lh_config_source(c, "pool"), "the pool %s is not supported by this build",
                   name);
    return TRUE;
}

/* Which programs the pool has a use for. */
static gboolean check_programs(const LhConfig *c, GError **error)
{
    const LhPool *pool = lh_pool_find(lh_config_string(c, "pool"));
    if (!pool->permits && lh_config_is_set(c, "onWorkerFailed"))
        return bad(error, lh_config_source(c, "onWorkerFailed"), "has no use in the pool %s",
                   pool->name);
    if (pool->permits) /* grants permits without any program, too */
        return TRUE;
    if (!pool->exclusive) {
        if (lh_config_is_set(c, "exec"))
            return bad(error, lh_config_source(c, "exec"), "has no use in the pool %s", pool->name);
        return lh_config_is_set(c, "dataDir") ||
               bad(error, "--data-dir", "is needed in the pool %s", pool->name);
    }
    if (pool->ends) {
        for (guint i = 0; i < 2; i++) {
            const char *hook = ((const char *const[]){"onLoad", "onEvict"})[i];
            if (lh_config_is_set(c, hook))
                return bad(error, lh_config_source(c, hook),
                           "has no use in the pool %s, whose items end by themselves", pool->name);
        }
        return lh_config_is_set(c, "exec") ||
               bad(error, "--exec", "is needed in the pool %s", pool->name);
    }
    return lh_config_is_set(c, "exec") || lh_config_is_set(c, "onLoad") ||
           bad(error, "--exec", "or --on-load is needed in the pool %s", pool->name);
}

static gboolean check_settings(const LhConfig *c, GError **error)
{
    if (!check_pool(c, error))
        return FALSE;
    const char *name = lh_config_string(c, "name");
    if (name == NULL)
        return bad(error, "--name", "is needed");
    if (!lh_name_valid(name, MAX_NODE_NAME))
        return bad(error, lh_config_source(c, "name"),
                   "\"%.64s\" must be at most %d letters, digits, '.', '_', '-', "
                   "first and last a letter or digit",
                   name, MAX_NODE_NAME);
    if (!lh_pool_name_valid(lh_config_string(c, "set")))
        return bad(error, lh_config_source(c, "set"), "must be [a-z0-9-]{1,63}");
    const char *zone = lh_config_string(c, "zone");
    if (zone != NULL && !lh_name_valid(zone, 253))
        return bad(error, lh_config_source(c, "zone"), "\"%.64s\" is not a valid name", zone);
    if (!check_programs(c, error))
        return FALSE;
    gint64 ttl = lh_config_int(c, "leaseTtl");
    if (ttl < 1000 || ttl > MAX_LEASE_TTL_MS)
        return bad(error, lh_config_source(c, "leaseTtl"), "must be from 1s to 10m");
    if (lh_config_is_set(c, "capacity") && lh_config_int(c, "capacity") == 0)
        return bad(error, lh_config_source(c, "capacity"), "must be more than 0");
    if (lh_config_int(c, "hookTimeout") < 1)
        return bad(error, lh_config_source(c, "hookTimeout"), "must be more than 0");
    if (lh_config_list(c, "etcd.endpoints")[0] == NULL)
        return bad(error, lh_config_source(c, "etcd.endpoints"), "names no endpoint");
    return TRUE;
}

static gboolean split_hook(const LhConfig *c, const char *path, char ***argv, GError **error)
{
    const char *command = lh_config_string(c, path);
    if (command == NULL)
        return TRUE;
    *argv = lh_hook_split(command, error);
    if (*argv == NULL)
        g_prefix_error(error, "%s: ", lh_config_source(c, path));
    return *argv != NULL;
}

/* Where others reach us: as set, or the address listened on. */
static gboolean find_url(Program *p, GError **error)
{
    const char *set = lh_config_string(p->config, "advertiseUrl");
    if (set != NULL) {
        if (!g_str_has_prefix(set, "http://") && !g_str_has_prefix(set, "https://"))
            return bad(error, lh_config_source(p->config, "advertiseUrl"),
                       "must be http://… or https://…");
        gsize n = strlen(set);
        while (n > 0 && set[n - 1] == '/')
            n--;
        p->url = g_strndup(set, n);
        return TRUE;
    }
    p->url = lh_http_server_url(p->server);
    return TRUE;
}

static char *with_slash(const char *prefix)
{
    return g_str_has_suffix(prefix, "/") ? g_strdup(prefix) : g_strconcat(prefix, "/", NULL);
}

/* ---- running ---- */

static void on_registered(const char *id, gpointer data)
{
    Program *p = data;
    if (p->cache != NULL)
        lh_cache_work_set_node(p->cache, id);
    else
        lh_program_work_set_node(p->programs, id);
    if (p->manager != NULL)
        lh_manager_work_set_node(p->manager, id);
    p->http.registered = TRUE;
}

static void on_left(const char *id, LhAgentLeft why, gpointer data)
{
    Program *p = data;
    (void)id;
    (void)why;
    p->http.registered = FALSE;
}

static void on_stopped(gpointer data)
{
    Program *p = data;
    g_main_loop_quit(p->loop);
}

static gboolean on_signal(gpointer data)
{
    Program *p = data;
    if (p->stopping) {
        lh_log(LH_LOG_WARNING, "told to stop twice; ending at once", NULL);
        g_main_loop_quit(p->loop);
    } else if (p->agent == NULL) {
        lh_log(LH_LOG_INFO, "stopping", "next", "end; etcd was never reached", NULL);
        g_main_loop_quit(p->loop);
    } else {
        p->stopping = TRUE;
        lh_agent_stop(p->agent);
    }
    return G_SOURCE_CONTINUE;
}

static gboolean start_server(Program *p, GError **error)
{
    LhHttpOptions options = {0};
    if (!lh_http_options_read(p->config, &options, error))
        return FALSE;
    options.advertised = lh_config_string(p->config, "advertiseUrl");
    p->server = lh_http_server_new(p->env, NULL, &options, error);
    if (p->server == NULL)
        return FALSE;
    p->http.metrics = p->metrics;
    lh_agent_http_routes(p->server, &p->http);
    return find_url(p, error);
}

static void worker_failed(const char *worker, gpointer data)
{
    lh_manager_work_worker_failed(((Program *)data)->manager, worker);
}

static void worker_forgotten(const char *worker, gpointer data)
{
    lh_manager_work_worker_forgotten(((Program *)data)->manager, worker);
}

/* Around the programs, which are there. */
static void start_manager(Program *p)
{
    p->hooks = lh_hooks_new(p->env);
    const LhManagerWorkOptions options = {
        .permits_url = p->permits_url,
        .hooks = p->hooks,
        .on_worker_failed = (const char *const *)p->on_worker_failed,
        .hook_timeout_ms = lh_config_int(p->config, "hookTimeout"),
        .metrics = p->metrics,
    };
    p->manager = lh_manager_work_new(p->env, lh_program_work_base(p->programs), &options);
    lh_permits_routes(p->server, p->manager);
}

static gboolean start_programs(Program *p, GError **error)
{
    const LhConfig *c = p->config;
    const char *directory = lh_config_string(c, "dataDir");
    if (p->pool->permits)
        p->permits_url = g_strconcat(p->url, LH_PERMITS_PATH, NULL);
    const LhProgramWorkOptions options = {
        .pool = p->pool->name,
        .ends = p->pool->ends,
        .may_end = p->pool->permits,
        .permits_url = p->permits_url,
        .exec = (const char *const *)p->exec,
        .on_load = (const char *const *)p->on_load,
        .on_evict = (const char *const *)p->on_evict,
        .directory = directory,
        .hook_timeout_ms = lh_config_int(c, "hookTimeout"),
        .exec_timeout_ms = lh_config_int(c, "execTimeout"),
        .stop_ms = STOP_MS,
    };
    if (directory != NULL && g_mkdir_with_parents(directory, 0755) != 0)
        return bad(error, lh_config_source(c, "dataDir"), "%s: %s", directory, g_strerror(errno));
    p->programs = lh_program_work_new(p->env, &options);
    if (p->pool->permits)
        start_manager(p);
    return TRUE;
}

static gboolean start_cache(Program *p, GError **error)
{
    const LhConfig *c = p->config;
    LhObjectStoreOptions objects = {0};
    if (!lh_objectstore_options_read(c, &objects, error))
        return FALSE;
    p->objects = lh_objectstore_new(p->env, &objects, error);
    if (p->objects == NULL)
        return FALSE;
    p->hooks = lh_hooks_new(p->env);
    const LhCacheWorkOptions options = {
        .prefix = p->prefix,
        .data_dir = lh_config_string(c, "dataDir"),
        .url = p->url,
        .capacity_bytes = lh_config_int(c, "capacity"),
        .on_load = (const char *const *)p->on_load,
        .on_evict = (const char *const *)p->on_evict,
        .hook_timeout_ms = lh_config_int(c, "hookTimeout"),
        .metrics = p->metrics,
    };
    p->cache = lh_cache_work_new(p->env, p->etcd, p->objects, p->hooks, &options, error);
    if (p->cache == NULL) {
        g_prefix_error(error, "%s: ", lh_config_source(c, "dataDir"));
        return FALSE;
    }
    p->http.cache = p->cache;
    return TRUE;
}

static LhAgentWork *work_of(const Program *p)
{
    if (p->cache != NULL)
        return lh_cache_work_base(p->cache);
    return p->manager != NULL ? lh_manager_work_base(p->manager)
                              : lh_program_work_base(p->programs);
}

/* Registers, now that etcd is known to take us. */
static void on_reached(gpointer data)
{
    Program *p = data;
    static const LhAgentFuncs funcs = {
        .registered = on_registered, .left = on_left, .stopped = on_stopped};
    const LhConfig *c = p->config;
    const LhAgentOptions options = {
        .prefix = p->prefix,
        .pool = lh_config_string(c, "pool"),
        .name = lh_config_string(c, "name"),
        .host = g_get_host_name(),
        .url = p->url,
        .set = lh_config_string(c, "set"),
        .zone = lh_config_string(c, "zone"),
        .version = LEASEHOLD_VERSION,
        .capacity_bytes = p->cache != NULL ? lh_cache_work_capacity(p->cache)
                                           : lh_config_int(c, "capacity"),
        .capacity_items = lh_config_int(c, "capacityItems"),
        .lease_ttl_s = (lh_config_int(c, "leaseTtl") + 999) / 1000,
        .metrics = p->metrics,
    };
    static const LhWorkerWatchFuncs watch = {.failed = worker_failed,
                                             .forgotten = worker_forgotten};
    if (p->manager != NULL)
        p->workers = lh_worker_watch_new(p->env, p->etcd, p->prefix, &watch, p);
    p->agent = lh_agent_new(p->env, p->etcd, &options, work_of(p), &funcs, p);
}

static void on_refused(const GError *error, gpointer data)
{
    Program *p = data;
    p->refused = g_error_copy(error);
    g_main_loop_quit(p->loop);
}

static gboolean start_etcd(Program *p, GError **error)
{
    static const LhContactFuncs funcs = {.reached = on_reached, .refused = on_refused};
    LhEtcdOptions options = {0};
    if (!lh_etcd_options_read(p->config, &options, error))
        return FALSE;
    p->etcd = lh_etcd_grpc_new(&options, NULL, error);
    if (p->etcd == NULL) {
        g_prefix_error(error, "%s: ", lh_config_source(p->config, "etcd.endpoints"));
        return FALSE;
    }
    p->contact = lh_contact_start(p->env, p->etcd, &options, p->prefix, &funcs, p);
    return TRUE;
}

static void program_clear(Program *p)
{
    lh_agent_free(p->agent);
    lh_http_server_free(p->server);
    lh_cache_work_free(p->cache);
    lh_worker_watch_free(p->workers);
    lh_manager_work_free(p->manager);
    lh_program_work_free(p->programs);
    lh_hooks_free(p->hooks);
    lh_store_free(p->objects);
    lh_contact_free(p->contact);
    lh_etcd_free(p->etcd);
    lh_env_free(p->env);
    lh_metrics_free(p->metrics);
    g_clear_pointer(&p->loop, g_main_loop_unref);
    g_strfreev(p->on_load);
    g_strfreev(p->on_evict);
    g_strfreev(p->exec);
    g_strfreev(p->on_worker_failed);
    g_free(p->permits_url);
    g_free(p->url);
    g_free(p->prefix);
    g_clear_error(&p->refused);
    lh_config_free(p->config);
}

static gboolean start(Program *p, GError **error)
{
    if (!lh_config_setup_log(p->config, error) || !check_settings(p->config, error) ||
        !split_hook(p->config, "onLoad", &p->on_load, error) ||
        !split_hook(p->config, "onEvict", &p->on_evict, error) ||
        !split_hook(p->config, "exec", &p->exec, error) ||
        !split_hook(p->config, "onWorkerFailed", &p->on_worker_failed, error))
        return FALSE;
    p->pool = lh_pool_find(lh_config_string(p->config, "pool"));
    p->prefix = with_slash(lh_config_string(p->config, "etcd.prefix"));
    p->env = lh_env_glib_new(NULL);
    p->loop = g_main_loop_new(NULL, FALSE);
    p->metrics = lh_metrics_new();
    lh_metrics_declare(p->metrics, LH_GAUGE, "build_info", "1, with the version.", NULL);
    g_autofree char *version = lh_labels("version", LEASEHOLD_VERSION, NULL);
    lh_gauge_set(p->metrics, "build_info", version, 1);
    /* The port is open before anybody can hear of it. */
    if (!start_server(p, error) || !start_etcd(p, error) ||
        !(p->pool->exclusive ? start_programs(p, error) : start_cache(p, error)))
        return FALSE;
    lh_log(LH_LOG_INFO, "serving", "address", lh_http_server_address(p->server), "url", p->url,
           NULL);
    return TRUE;
}

int lh_agent_main(int argc, char **argv)
{
    static const LhSetting *const tables[] = {lh_shared_settings, agent_settings, NULL};
    g_autoptr(GError) error = NULL;
    Program p = {0};
    p.config = lh_config_load(tables, "agent --pool POOL --name NAME", argc, argv, &error);
    if (p.config == NULL)
        return complain(error);
    int code = 0;
    if (start(&p, &error)) {
        guint term = g_unix_signal_add(SIGTERM, on_signal, &p);
        guint interrupt = g_unix_signal_add(SIGINT, on_signal, &p);
        g_main_loop_run(p.loop);
        g_source_remove(term);
        g_source_remove(interrupt);
        if (p.refused == NULL)
            lh_log(LH_LOG_INFO, "stopped", NULL);
        error = g_steal_pointer(&p.refused);
    }
    if (error != NULL)
        code = complain(error);
    program_clear(&p);
    return code;
}

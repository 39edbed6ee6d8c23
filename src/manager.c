/*
 * `leasehold manager`: one manager instance. Reads the settings and wires etcd, mirror, runtime, API and
 * metrics together on the main loop; decides nothing.
 */
#include "base/config.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/memory.h"
#include "controllers/registry.h"
#include "etcd/contact.h"
#include "http/api.h"
#include "outside/etcd_clock.h"
#include "outside/prober.h"
#include "outside/sweeper.h"
#include "programs.h"
#include "runtime/runtime.h"

#include <glib-unix.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIN_TTL_MS 2000
#define MAX_TTL_MS (60 * 1000)

static const LhSetting manager_settings[] = {
    {"instance", LH_SET_STRING, NULL, "NAME",
     "name of this instance (host name, pid and a random part)"},
    {"advertiseUrl", LH_SET_STRING, NULL, "URL",
     "where others reach its API (the address served on)"},
#ifdef LH_TEST_FAULTS
    {"faultNoDeadline", LH_SET_BOOL, NULL, NULL, NULL},
    {"faultNoLeaderWatch", LH_SET_BOOL, NULL, NULL, NULL},
#endif
    {NULL, LH_SET_STRING, NULL, NULL, NULL},
};

typedef struct {
    LhConfig *config;
    GMainLoop *loop;
    LhEnv *env;
    LhMetrics *metrics;
    LhHttpServer *server;
    LhEtcd *etcd;
    LhContact *contact;
    LhMirror *mirror;
    LhRuntime *runtime;
    LhObjectStore *store;
    gint64 until_ms; /* monotonic, atomic: nothing is changed in the store after it */
    LhEtcdClock *clock;
    LhSweeper *sweeper;
    LhProber *prober;
    LhApi *api;
    char *prefix, *instance, *url;
    gboolean begun; /* etcd has been reached: mirror and runtime are at work */
    gboolean stopping;
    GError *refused;
} Manager;

static gboolean check_settings(const LhConfig *config, GError **error)
{
    gint64 ttl = lh_config_int(config, "leaseTtl");
    const char *url = lh_config_string(config, "advertiseUrl");

    if (url != NULL && !g_str_has_prefix(url, "http://") && !g_str_has_prefix(url, "https://")) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: must be http://… or https://…",
                    lh_config_source(config, "advertiseUrl"));
        return FALSE;
    }
    if (ttl < MIN_TTL_MS || ttl > MAX_TTL_MS) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: must be from 2s to 60s",
                    lh_config_source(config, "leaseTtl"));
        return FALSE;
    }
    return TRUE;
}

static void name_instance(Manager *manager)
{
    const char *set = lh_config_string(manager->config, "instance");
    const char *url = lh_config_string(manager->config, "advertiseUrl");

    manager->instance = set != NULL
                            ? g_strdup(set)
                            : g_strdup_printf("%s-%d-%04x", g_get_host_name(), (int)getpid(),
                                              (guint)(lh_random(manager->env) & 0xffff));
    manager->url = url != NULL ? g_strdup(url) : lh_http_server_url(manager->server);
}

static gboolean start_server(Manager *manager, GError **error)
{
    LhHttpOptions options = {0};

    if (!lh_http_options_read(manager->config, &options, error))
        return FALSE;
    options.advertised = lh_config_string(manager->config, "advertiseUrl");
    manager->server = lh_http_server_new(manager->env, NULL, &options, error);
    return manager->server != NULL;
}

static void make_runtime(Manager *manager)
{
    LhRuntimeOptions options = {
        .instance = manager->instance,
        .host = g_get_host_name(),
        .url = manager->url,
        .version = LEASEHOLD_VERSION,
        .pid = getpid(),
        .lease_ttl_s = (lh_config_int(manager->config, "leaseTtl") + 999) / 1000,
    };

#ifdef LH_TEST_FAULTS
    options.fault_no_deadline = lh_config_bool(manager->config, "faultNoDeadline");
    options.fault_no_leader_watch = lh_config_bool(manager->config, "faultNoLeaderWatch");
#endif
    manager->mirror = lh_mirror_new(manager->env, manager->etcd, manager->prefix);
    manager->runtime = lh_runtime_new(manager->env, manager->etcd, manager->mirror,
                                      manager->metrics, lh_controllers(), &options);
    LhApiOptions api = {
        .env = manager->env,
        .etcd = manager->etcd,
        .contact = manager->contact,
        .mirror = manager->mirror,
        .runtime = manager->runtime,
        .metrics = manager->metrics,
        .version = LEASEHOLD_VERSION,
    };
    manager->api = lh_api_new(manager->server, &api);
}

static char *etcd_endpoint(gpointer data)
{
    return g_strdup(lh_etcd_grpc_endpoint(((Manager *)data)->etcd));
}

/* Each looks at what is its own. */
static void set_errands(const char *controller, const LhErrand *errands, guint n, gpointer data)
{
    Manager *manager = data;

    lh_sweeper_outside.set(controller, errands, n, manager->sweeper);
    lh_prober_outside.set(controller, errands, n, manager->prober);
}

static void set_until(gint64 mono_ms, gpointer data)
{
    __atomic_store_n(&((Manager *)data)->until_ms, mono_ms, __ATOMIC_RELAXED);
}

static const LhOutside manager_outside = {.set = set_errands, .until = set_until};

/* On the store's threads. */
static gboolean may_change(gpointer data)
{
    Manager *manager = data;

    return lh_mono_ms(manager->env) < __atomic_load_n(&manager->until_ms, __ATOMIC_RELAXED);
}

/* Nodes are known by tls.clientCa, as they are as clients; without it by the CA of etcd. */
static void make_prober(Manager *manager, const char *etcd_cacert)
{
    const char *ca = lh_config_string(manager->config, "tls.clientCa");
    LhProberOptions options = {
        .env = manager->env,
        .mirror = manager->mirror,
        .etcd = manager->etcd,
        .metrics = manager->metrics,
        .cacert = ca != NULL ? ca : etcd_cacert,
    };

    manager->prober = lh_prober_new(&options);
}

/* Also without roots: then it says so, and nothing is ever deleted. */
static gboolean make_outside(Manager *manager, GError **error)
{
    LhObjectStoreOptions store = {0};
    LhEtcdOptions etcd = {0};

    if (!lh_objectstore_options_read(manager->config, &store, error) ||
        !lh_etcd_options_read(manager->config, &etcd, error))
        return FALSE;
    g_auto(GStrv) roots = lh_store_roots(store.roots, error);
    if (roots == NULL)
        return FALSE;
    if (!lh_store_roots_deletable((const char *const *)roots, error)) {
        g_prefix_error(error, "%s: ", lh_config_source(manager->config, "objectStore.roots"));
        return FALSE;
    }
    manager->store = lh_objectstore_new(manager->env, &store, error);
    if (manager->store == NULL)
        return FALSE;
    lh_store_set_guard(manager->store, may_change, manager);
    manager->clock = lh_etcd_clock_new(etcd_endpoint, manager, etcd.cacert, etcd.cert, etcd.key);
    LhSweeperOptions options = {
        .env = manager->env,
        .mirror = manager->mirror,
        .runtime = manager->runtime,
        .store = manager->store,
        .roots = (const char *const *)roots,
        .etcd_clock = lh_etcd_clock_source(manager->clock),
    };
    manager->sweeper = lh_sweeper_new(&options);
    make_prober(manager, etcd.cacert);
    lh_runtime_set_outside(manager->runtime, &manager_outside, manager);
    return TRUE;
}

static void on_reached(gpointer data)
{
    Manager *manager = data;

    manager->begun = TRUE;
    lh_mirror_set_version(manager->mirror, lh_contact_status(manager->contact)->version);
    lh_mirror_start(manager->mirror);
    lh_runtime_start(manager->runtime);
}

static void on_refused(const GError *error, gpointer data)
{
    Manager *manager = data;

    manager->refused = g_error_copy(error);
    g_main_loop_quit(manager->loop);
}

static gboolean start_etcd(Manager *manager, GError **error)
{
    static const LhContactFuncs funcs = {.reached = on_reached, .refused = on_refused};
    LhEtcdOptions options = {0};

    if (!lh_etcd_options_read(manager->config, &options, error))
        return FALSE;
    manager->etcd = lh_etcd_grpc_new(&options, NULL, error);
    if (manager->etcd == NULL) {
        g_prefix_error(error, "%s: ", lh_config_source(manager->config, "etcd.endpoints"));
        return FALSE;
    }
    manager->contact = lh_contact_start(manager->env, manager->etcd, &options, manager->prefix,
                                        &funcs, manager);
    return TRUE;
}

static gboolean start(Manager *manager, GError **error)
{
    const LhConfig *config = manager->config;
    const char *prefix = lh_config_string(config, "etcd.prefix");
    g_autofree char *labels = lh_labels("version", LEASEHOLD_VERSION, NULL);

    if (!lh_config_setup_log(config, error) || !check_settings(config, error))
        return FALSE;
    manager->prefix = g_str_has_suffix(prefix, "/") ? g_strdup(prefix)
                                                    : g_strconcat(prefix, "/", NULL);
    manager->env = lh_env_glib_new(NULL);
    manager->loop = g_main_loop_new(NULL, FALSE);
    manager->metrics = lh_metrics_new();
    lh_runtime_declare_metrics(manager->metrics);
    lh_metrics_declare(manager->metrics, LH_GAUGE, "build_info", "1, with the version.", NULL);
    lh_gauge_set(manager->metrics, "build_info", labels, 1);
    if (!start_server(manager, error) || !start_etcd(manager, error))
        return FALSE;
    name_instance(manager);
    make_runtime(manager);
    if (!make_outside(manager, error))
        return FALSE;
    lh_log(LH_LOG_INFO, "serving", "address", lh_http_server_address(manager->server), "url",
           manager->url, "instance", manager->instance, "version", LEASEHOLD_VERSION, NULL);
    return TRUE;
}

static void on_stopped(gpointer data)
{
    g_main_loop_quit(((Manager *)data)->loop);
}

static gboolean on_signal(gpointer data)
{
    Manager *manager = data;

    if (manager->stopping) {
        lh_log(LH_LOG_WARNING, "told to stop twice; ending at once", NULL);
        g_main_loop_quit(manager->loop);
        return G_SOURCE_CONTINUE;
    }
    manager->stopping = TRUE;
    if (!manager->begun) {
        lh_log(LH_LOG_INFO, "stopping", "next", "end; etcd was never reached", NULL);
        g_main_loop_quit(manager->loop);
        return G_SOURCE_CONTINUE;
    }
    lh_log(LH_LOG_INFO, "stopping", "next", "let what is in flight end, then revoke the lease",
           NULL);
    lh_runtime_stop(manager->runtime, on_stopped, manager);
    return G_SOURCE_CONTINUE;
}

static void clear(Manager *manager)
{
    lh_http_server_free(manager->server);
    lh_api_free(manager->api);
    lh_sweeper_free(manager->sweeper);
    lh_prober_free(manager->prober);
    lh_etcd_clock_free(manager->clock);
    lh_store_free(manager->store);
    lh_runtime_free(manager->runtime);
    lh_mirror_free(manager->mirror);
    lh_contact_free(manager->contact);
    lh_etcd_free(manager->etcd);
    lh_metrics_free(manager->metrics);
    lh_env_free(manager->env);
    g_clear_pointer(&manager->loop, g_main_loop_unref);
    lh_config_free(manager->config);
    g_free(manager->prefix);
    g_free(manager->instance);
    g_free(manager->url);
    g_clear_error(&manager->refused);
}

int lh_manager_main(int argc, char **argv)
{
    const LhSetting *const tables[] = {lh_shared_settings, manager_settings, NULL};
    g_autoptr(GError) error = NULL;
    lh_memory_init();
    Manager manager = {.config = lh_config_load(tables, "manager", argc, argv, &error)};
    int code = 0;

    if (manager.config != NULL && start(&manager, &error)) {
        guint term = g_unix_signal_add(SIGTERM, on_signal, &manager);
        guint interrupt = g_unix_signal_add(SIGINT, on_signal, &manager);
        g_main_loop_run(manager.loop);
        g_source_remove(term);
        g_source_remove(interrupt);
        error = g_steal_pointer(&manager.refused);
    }
    if (error != NULL) {
        fprintf(stderr, "leasehold: %s\n", error->message);
        code = lh_gerror_exit_code(error);
    }
    clear(&manager);
    return code;
}

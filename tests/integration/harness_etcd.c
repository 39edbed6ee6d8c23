/*
 * The etcd of a world: one or a cluster, its certificates and its users, and etcdctl.
 */
#include "harness_internal.h"

#include <glib/gstdio.h>

static const CertSpec server_spec = {.cn = "etcd", .names = "IP:127.0.0.1"};

/* Whatever else a world keeps until its end. */
static const char *keep(World *world, char *text)
{
    g_ptr_array_add(world->texts, text);
    return text;
}

static void make_certificates(World *world)
{
    world->certs = g_build_filename(world->dir, "certs", NULL);
    g_assert(g_mkdir(world->certs, 0755) == 0);
    world->ca = certs_authority(world->certs, "ca");
    world->server = certs_issue(world->certs, "server", &world->ca, &server_spec);
}

static const char *password_file(World *world, const char *name, const char *password)
{
    g_autofree char *file = g_strdup_printf("%s.password", name);
    char *path = g_build_filename(world->dir, file, NULL);
    g_autofree char *line = g_strconcat(password, "\n", NULL);
    g_assert(g_file_set_contents_full(path, line, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    return keep(world, path);
}

static void start(World *world, const WorldOptions *options, GError **error)
{
    const EtcdClusterOptions all = {
        .members = options->members,
        .each = {.args = options->args,
                 .server = options->tls ? &world->server : NULL,
                 .root_password = options->users ? ROOT_PASSWORD : NULL},
        .relayed = options->relayed,
    };
    if (options->members == 0) {
        world->etcd = etcd_process_new_with(&all.each, error);
        world->endpoints = g_strdup(world->etcd != NULL ? etcd_process_endpoint(world->etcd) : "");
        return;
    }
    world->cluster = etcd_cluster_new_with(&all, error);
    if (world->cluster != NULL) {
        world->etcd = etcd_cluster_member(world->cluster, 0);
        world->endpoints = g_strjoinv(",", (char **)etcd_cluster_endpoints(world->cluster));
    }
}

void etcd_start(World *world, const WorldOptions *options)
{
    g_autoptr(GError) error = NULL;
    world->texts = g_ptr_array_new_with_free_func(g_free);
    world->users = options->users;
    if (options->tls) {
        make_certificates(world);
    }
    start(world, options, &error);
    if (world->etcd == NULL) {
        fail_msg("%s", error->message);
    }
    world->access = (EtcdAccess){.endpoints = world->endpoints, .cacert = world->ca.cert};
}

LhEtcd *etcd_client_as(World *world, const char *user)
{
    g_autoptr(GError) error = NULL;
    g_auto(GStrv) endpoints = g_strsplit(world->endpoints, ",", -1);
    g_autofree char *password = g_strcmp0(user, "root") == 0 ? g_strdup(ROOT_PASSWORD)
                                                             : world_password(user);
    const LhEtcdOptions options = {
        .endpoints = (const char *const *)endpoints,
        .cacert = world->ca.cert,
        .user = user,
        .password_file = user != NULL ? password_file(world, user, password) : NULL,
    };
    LhEtcd *client = lh_etcd_grpc_new(&options, NULL, &error);
    g_assert_no_error(error);
    return client;
}

void etcd_end(World *world)
{
    if (world->cluster != NULL) {
        etcd_cluster_free(world->cluster);
    } else {
        etcd_process_free(world->etcd);
    }
    g_free(world->endpoints);
    g_free(world->certs);
    certs_clear(&world->ca);
    certs_clear(&world->server);
    g_ptr_array_unref(world->texts);
}

void world_new_certificate(World *world, const CertSpec *spec)
{
    CertFiles files = certs_issue(world->certs, "server", &world->ca,
                                  spec != NULL ? spec : &server_spec);
    certs_clear(&files);
}

/* ---- users ---- */

char *world_password(const char *user)
{
    return user != NULL ? g_strdup_printf("%s-secret-4711", user) : NULL;
}

const char *world_user(World *world, const char *name, const char *role)
{
    g_autofree char *password = world_password(name);
    const char *file = password_file(world, name, password);
    g_autoptr(Run) made = etcd_roles(world, "user", name, role, file, NULL);
    if (made->code != 0) {
        world_fail(world, "etcd-roles user %s: %s", name, made->err);
    }
    return file;
}

void world_as(World *world, const char *name)
{
    g_autofree char *file = g_strdup_printf("%s.password", name);
    world->access.user = name;
    world->access.password_file = name == NULL
                                      ? NULL
                                      : keep(world, g_build_filename(world->dir, file, NULL));
}

/* ---- etcdctl ---- */

/* As the user: etcdctl reads it from its environment. */
static Run *run_as(World *world, const char *user, GPtrArray *argv)
{
    g_autofree char *password = g_strcmp0(user, "root") == 0 ? g_strdup(ROOT_PASSWORD)
                                                             : world_password(user);
    g_autofree char *endpoints = g_strconcat("ETCDCTL_ENDPOINTS=", world->endpoints, NULL);
    /* An empty variable is none. */
    g_autofree char *cacert = g_strconcat("ETCDCTL_CACERT=", world->ca.cert, NULL);
    g_autofree char *who = user != NULL ? g_strdup_printf("ETCDCTL_USER=%s:%s", user, password)
                                        : g_strdup("ETCDCTL_USER=");
    g_autoptr(GPtrArray) all = g_ptr_array_new();
    g_ptr_array_add(all, (gpointer) "env");
    g_ptr_array_add(all, endpoints);
    g_ptr_array_add(all, cacert);
    g_ptr_array_add(all, who);
    for (guint i = 0; i < argv->len; i++) {
        g_ptr_array_add(all, argv->pdata[i]);
    }
    g_ptr_array_add(all, NULL);
    return run_argv(world, (const char *const *)all->pdata);
}

Run *etcdctl_as(World *world, const char *user, ...)
{
    va_list args;
    va_start(args, user);
    g_autoptr(GPtrArray) argv = argv_of("etcdctl", args);
    va_end(args);
    return run_as(world, user, argv);
}

Run *etcd_roles(World *world, ...)
{
    g_autofree char *script = g_build_filename(g_getenv("LEASEHOLD_SOURCE_ROOT"), "deploy",
                                               "etcd-roles", NULL);
    va_list args;
    va_start(args, world);
    g_autoptr(GPtrArray) argv = argv_of(script, args);
    va_end(args);
    return run_as(world, world->users ? "root" : NULL, argv);
}

void etcdctl(World *world, ...)
{
    va_list args;
    va_start(args, world);
    g_autoptr(GPtrArray) argv = argv_of("etcdctl", args);
    va_end(args);
    g_autoptr(Run) done = run_as(world, world->users ? "root" : NULL, argv);
    if (done->code != 0) {
        world_fail(world, "etcdctl: %s", done->err);
    }
}

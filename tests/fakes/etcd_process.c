/*
 * Starts, stops, freezes and kills one real etcd of our own.
 *
 * Must not touch any process but its own child, nor listen on anything but loopback.
 */
#include "etcd_process.h"

#include "base/errors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS 20000
#define STOP_MS  10000
#define ATTEMPTS 5

struct EtcdProcess {
    char *binary, *name, *dir, *endpoint, *version, *cluster;
    char **args;
    char *cert, *key, *client_ca, *root_password; /* each may be NULL */
    /* With TLS the gateway has a port of its own: ours has no certificate. */
    guint16 client_port, gateway_port, peer_port;
    guint16 peer_seen; /* peer_port, for the others */
    gboolean auth_on;
    gboolean joins; /* a cluster that is there already */
    pid_t pid;
};

/* ---- HTTP on loopback ---- */

guint16 etcd_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert(fd >= 0);
    g_assert(bind(fd, (struct sockaddr *)&address, len) == 0);
    g_assert(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

static int connect_to(guint16 port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval timeout = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* HTTP/1.0, so that the answer is neither chunked nor kept open. NULL: no answer at all. */
static char *http(guint16 port, const char *method, const char *path, const char *token,
                  const char *body)
{
    g_autofree char *request = g_strdup_printf(
        "%s %s HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "%s%s%sContent-Length: %zu\r\n\r\n%s",
        method, path, token != NULL ? "Authorization: " : "", token != NULL ? token : "",
        token != NULL ? "\r\n" : "", strlen(body), body);
    gsize len = strlen(request);
    gsize sent = 0;
    int fd = connect_to(port);
    if (fd < 0) {
        return NULL;
    }
    while (sent < len) {
        ssize_t n = send(fd, request + sent, len - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            close(fd);
            return NULL;
        }
        sent += (gsize)n;
    }
    GString *reply = g_string_new(NULL);
    char buffer[4096];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
        g_string_append_len(reply, buffer, n);
    }
    close(fd);
    return g_string_free(reply, FALSE);
}

static char *body_if_ok(const char *reply)
{
    const char *body = reply != NULL ? strstr(reply, "\r\n\r\n") : NULL;
    const char *status = reply != NULL ? strchr(reply, ' ') : NULL;
    if (body == NULL || status == NULL || !g_str_has_prefix(status, " 200")) {
        return NULL;
    }
    return g_strdup(body + 4);
}

/* The text of a member of a JSON object, or NULL. */
static char *text_in(const char *json, const char *name)
{
    g_autofree char *start = g_strdup_printf("\"%s\":\"", name);
    const char *at = json != NULL ? strstr(json, start) : NULL;
    if (at == NULL) {
        return NULL;
    }
    at += strlen(start);
    return g_strndup(at, strcspn(at, "\""));
}

/* A new one each time: tokens may be short-lived. */
static char *fetch_token(const EtcdProcess *etcd)
{
    if (!etcd->auth_on) {
        return NULL;
    }
    g_autofree char *body = g_strdup_printf("{\"name\":\"root\",\"password\":\"%s\"}",
                                            etcd->root_password);
    g_autofree char *reply = http(etcd->gateway_port, "POST", "/v3/auth/authenticate", NULL, body);
    return text_in(reply, "token");
}

char *etcd_process_post(const EtcdProcess *etcd, const char *path, const char *body, GError **error)
{
    g_autofree char *token = fetch_token(etcd);
    g_autofree char *reply = http(etcd->gateway_port, "POST", path, token, body);
    char *answer = body_if_ok(reply);
    if (answer == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "etcd %s %s: %s", path, body,
                    reply != NULL ? reply : "no answer");
    }
    return answer;
}

/* ---- the child ---- */

static void die_with_parent(gpointer parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)GPOINTER_TO_INT(parent)) {
        _exit(127);
    }
}

static char **argv_of(const EtcdProcess *etcd)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
#define ADD(...) g_ptr_array_add(argv, g_strdup_printf(__VA_ARGS__))
    ADD("%s", etcd->binary);
    ADD("--name=%s", etcd->name);
    ADD("--data-dir=%s/data", etcd->dir);
    if (etcd->cert != NULL) {
        ADD("--listen-client-urls=%s,http://127.0.0.1:%u", etcd->endpoint, etcd->gateway_port);
        ADD("--advertise-client-urls=%s", etcd->endpoint);
        ADD("--cert-file=%s", etcd->cert);
        ADD("--key-file=%s", etcd->key);
    } else {
        ADD("--listen-client-urls=http://%s", etcd->endpoint);
        ADD("--advertise-client-urls=http://%s", etcd->endpoint);
    }
    if (etcd->client_ca != NULL) {
        ADD("--client-cert-auth");
        ADD("--trusted-ca-file=%s", etcd->client_ca);
    }
    if (etcd->root_password != NULL) {
        ADD("--bcrypt-cost=4");
    }
    ADD("--listen-peer-urls=http://127.0.0.1:%u", etcd->peer_port);
    ADD("--initial-advertise-peer-urls=http://127.0.0.1:%u", etcd->peer_seen);
    ADD("--initial-cluster=%s", etcd->cluster);
    ADD("--initial-cluster-state=%s", etcd->joins ? "existing" : "new");
    ADD("--logger=zap");
    ADD("--log-outputs=%s/log", etcd->dir);
    for (char **arg = etcd->args; arg != NULL && *arg != NULL; arg++) {
        ADD("%s", *arg);
    }
#undef ADD
    g_ptr_array_add(argv, NULL);
    return (char **)g_ptr_array_steal(argv, NULL);
}

static gboolean has_ended(EtcdProcess *etcd)
{
    int status;
    if (etcd->pid != 0 && waitpid(etcd->pid, &status, WNOHANG) == etcd->pid) {
        etcd->pid = 0;
    }
    return etcd->pid == 0;
}

gboolean etcd_process_answers(const EtcdProcess *etcd)
{
    g_autofree char *health = http(etcd->gateway_port, "GET", "/health", NULL, "");
    return health != NULL && strstr(health, "\"true\"") != NULL;
}

/* What is waited for is in another process: it has no descriptor of ours. */
static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

gboolean etcd_process_spawn(EtcdProcess *etcd, GError **error)
{
    g_auto(GStrv) argv = argv_of(etcd);
    GPid pid;
    if (!g_spawn_async(NULL, argv, NULL,
                       G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL |
                           G_SPAWN_STDERR_TO_DEV_NULL,
                       die_with_parent, GINT_TO_POINTER((int)getpid()), &pid, error)) {
        return FALSE;
    }
    etcd->pid = pid;
    return TRUE;
}

static gboolean learn_version(EtcdProcess *etcd, GError **error)
{
    if (etcd->version != NULL) {
        return TRUE;
    }
    g_autofree char *reply = http(etcd->gateway_port, "GET", "/version", NULL, "");
    etcd->version = text_in(reply, "etcdserver");
    if (etcd->version == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INTERNAL, "%s does not say its version", etcd->binary);
        return FALSE;
    }
    return TRUE;
}

gboolean etcd_process_wait(EtcdProcess *etcd, GError **error)
{
    gint64 deadline = g_get_monotonic_time() + READY_MS * 1000;
    while (!etcd_process_answers(etcd)) {
        if (has_ended(etcd)) {
            g_set_error(error, LH_ERROR, LH_ERR_IO, "%s ended at once; see %s/log", etcd->binary,
                        etcd->dir);
            return FALSE;
        }
        if (g_get_monotonic_time() > deadline) {
            etcd_process_kill(etcd);
            g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "%s is not ready after %d ms",
                        etcd->binary, READY_MS);
            return FALSE;
        }
        pause_ms(10);
    }
    return learn_version(etcd, error);
}

gboolean etcd_process_enable_auth(EtcdProcess *etcd, GError **error)
{
    g_autofree char *user = g_strdup_printf("{\"name\":\"root\",\"password\":\"%s\"}",
                                            etcd->root_password);
    const char *const requests[][2] = {
        {"/v3/auth/user/add", user},
        {"/v3/auth/role/add", "{\"name\":\"root\"}"},
        {"/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}"},
        {"/v3/auth/enable", "{}"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(requests); i++) {
        g_autofree char *reply = etcd_process_post(etcd, requests[i][0], requests[i][1], error);
        if (reply == NULL) {
            return FALSE;
        }
    }
    etcd->auth_on = TRUE;
    return TRUE;
}

gboolean etcd_process_wait_auth(EtcdProcess *etcd, GError **error)
{
    gint64 deadline = g_get_monotonic_time() + READY_MS * 1000;
    etcd->auth_on = TRUE;
    for (;;) {
        g_autofree char *token = fetch_token(etcd);
        if (token != NULL) {
            return TRUE;
        }
        if (g_get_monotonic_time() > deadline) {
            g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "%s gives no token after %d ms",
                        etcd->binary, READY_MS);
            return FALSE;
        }
        pause_ms(10);
    }
}

static gboolean launch(EtcdProcess *etcd, GError **error)
{
    return etcd_process_spawn(etcd, error) && etcd_process_wait(etcd, error) &&
           (etcd->root_password == NULL || etcd->auth_on || etcd_process_enable_auth(etcd, error));
}

static void remove_tree(const char *path)
{
    GDir *dir = g_dir_open(path, 0, NULL);
    const char *name;
    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *child = g_build_filename(path, name, NULL);
        if (!g_file_test(child, G_FILE_TEST_IS_SYMLINK) && g_file_test(child, G_FILE_TEST_IS_DIR)) {
            remove_tree(child);
        } else {
            g_unlink(child);
        }
    }
    if (dir != NULL) {
        g_dir_close(dir);
    }
    g_rmdir(path);
}

EtcdProcess *etcd_process_prepare(const EtcdProcessOptions *options, const char *name,
                                  GError **error)
{
    const char *wanted = g_getenv("LEASEHOLD_TEST_ETCD");
    wanted = wanted != NULL && *wanted != '\0' ? wanted : "etcd";
    g_autofree char *binary = g_find_program_in_path(wanted);
    if (binary == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_NOT_FOUND, "no etcd at '%s'", wanted);
        return NULL;
    }
    EtcdProcess *etcd = g_new0(EtcdProcess, 1);
    etcd->binary = g_steal_pointer(&binary);
    etcd->name = g_strdup(name);
    etcd->args = g_strdupv((char **)options->args);
    if (options->server != NULL) {
        etcd->cert = g_strdup(options->server->cert);
        etcd->key = g_strdup(options->server->key);
        etcd->client_ca = g_strdup(options->client_ca);
    }
    etcd->root_password = g_strdup(options->root_password);
    etcd->dir = g_dir_make_tmp("leasehold-etcd-XXXXXX", error);
    etcd->client_port = etcd_free_port();
    etcd->gateway_port = etcd->cert != NULL ? etcd_free_port() : etcd->client_port;
    etcd->peer_port = etcd->peer_seen = etcd_free_port();
    etcd->endpoint = g_strdup_printf("%s127.0.0.1:%u", etcd->cert != NULL ? "https://" : "",
                                     etcd->client_port);
    etcd->cluster = etcd_process_peer(etcd);
    if (etcd->dir == NULL) {
        g_clear_pointer(&etcd, etcd_process_free);
    }
    return etcd;
}

char *etcd_process_peer(const EtcdProcess *etcd)
{
    return g_strdup_printf("%s=http://127.0.0.1:%u", etcd->name, etcd->peer_seen);
}

void etcd_process_set_peer_port(EtcdProcess *etcd, guint16 port)
{
    etcd->peer_seen = port;
}

guint16 etcd_process_peer_port(const EtcdProcess *etcd)
{
    return etcd->peer_port;
}

void etcd_process_set_cluster(EtcdProcess *etcd, const char *initial_cluster)
{
    g_free(etcd->cluster);
    etcd->cluster = g_strdup(initial_cluster);
}

EtcdProcess *etcd_process_new_with(const EtcdProcessOptions *options, GError **error)
{
    for (int attempt = 1;; attempt++) {
        g_autoptr(GError) local = NULL;
        EtcdProcess *etcd = etcd_process_prepare(options, "t", &local);
        if (etcd != NULL && launch(etcd, &local)) {
            return etcd;
        }
        etcd_process_free(etcd);
        /* Somebody may have taken a port in between. */
        if (attempt == ATTEMPTS || local->code != LH_ERR_IO) {
            g_propagate_error(error, g_steal_pointer(&local));
            return NULL;
        }
    }
}

EtcdProcess *etcd_process_new(const char *const *args, GError **error)
{
    return etcd_process_new_with(&(EtcdProcessOptions){.args = args}, error);
}

void etcd_process_free(EtcdProcess *etcd)
{
    if (etcd == NULL) {
        return;
    }
    etcd_process_kill(etcd);
    if (etcd->dir != NULL) {
        remove_tree(etcd->dir);
    }
    g_strfreev(etcd->args);
    g_free(etcd->binary);
    g_free(etcd->name);
    g_free(etcd->cluster);
    g_free(etcd->cert);
    g_free(etcd->key);
    g_free(etcd->client_ca);
    g_free(etcd->root_password);
    g_free(etcd->dir);
    g_free(etcd->endpoint);
    g_free(etcd->version);
    g_free(etcd);
}

const char *etcd_process_endpoint(const EtcdProcess *etcd)
{
    return etcd->endpoint;
}

const char *etcd_process_version(const EtcdProcess *etcd)
{
    return etcd->version;
}

const char *etcd_process_dir(const EtcdProcess *etcd)
{
    return etcd->dir;
}

pid_t etcd_process_pid(const EtcdProcess *etcd)
{
    return etcd->pid;
}

/* ---- signals ---- */

static void signal_it(EtcdProcess *etcd, int number)
{
    if (!has_ended(etcd)) {
        kill(etcd->pid, number);
    }
}

static void reap(EtcdProcess *etcd)
{
    while (etcd->pid != 0 && waitpid(etcd->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    etcd->pid = 0;
}

void etcd_process_kill(EtcdProcess *etcd)
{
    signal_it(etcd, SIGKILL);
    reap(etcd);
}

void etcd_process_stop(EtcdProcess *etcd)
{
    gint64 deadline = g_get_monotonic_time() + STOP_MS * 1000;
    signal_it(etcd, SIGCONT);
    signal_it(etcd, SIGTERM);
    while (!has_ended(etcd) && g_get_monotonic_time() < deadline) {
        pause_ms(5);
    }
    etcd_process_kill(etcd);
}

/* The signal alone is not enough: until all its threads have stopped, it may still answer. */
void etcd_process_freeze(EtcdProcess *etcd)
{
    int status = 0;
    signal_it(etcd, SIGSTOP);
    while (etcd->pid != 0 && !WIFSTOPPED(status)) {
        pid_t pid = waitpid(etcd->pid, &status, WUNTRACED);
        if (pid < 0 && errno == EINTR) {
            continue;
        }
        if (pid != etcd->pid || WIFEXITED(status) || WIFSIGNALED(status)) {
            etcd->pid = 0;
        }
    }
}

void etcd_process_thaw(EtcdProcess *etcd)
{
    signal_it(etcd, SIGCONT);
}

gboolean etcd_process_restart(EtcdProcess *etcd, GError **error)
{
    etcd_process_kill(etcd);
    return launch(etcd, error);
}

gboolean etcd_process_restart_empty(EtcdProcess *etcd, GError **error)
{
    g_autofree char *data = g_build_filename(etcd->dir, "data", NULL);
    etcd_process_kill(etcd);
    remove_tree(data);
    etcd->auth_on = FALSE;
    return launch(etcd, error);
}

static gboolean copy_tree(const EtcdProcess *etcd, const char *from, const char *to, GError **error)
{
    g_autofree char *source = g_build_filename(etcd->dir, from, NULL);
    g_autofree char *target = g_build_filename(etcd->dir, to, NULL);
    const char *const argv[] = {"cp", "-a", "--", source, target, NULL};
    gint status = 0;
    remove_tree(target);
    return g_spawn_sync(NULL, (char **)(guintptr)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL,
                        NULL, &status, error) &&
           g_spawn_check_wait_status(status, error);
}

gboolean etcd_process_back_up(EtcdProcess *etcd, GError **error)
{
    etcd_process_stop(etcd);
    return copy_tree(etcd, "data", "backup", error) && launch(etcd, error);
}

gboolean etcd_process_restore(EtcdProcess *etcd, GError **error)
{
    etcd_process_kill(etcd);
    return copy_tree(etcd, "backup", "data", error) && launch(etcd, error);
}

gboolean etcd_process_rejoin(EtcdProcess *etcd, GError **error)
{
    g_autofree char *data = g_build_filename(etcd->dir, "data", NULL);
    etcd_process_kill(etcd);
    remove_tree(data);
    etcd->joins = TRUE;
    return etcd_process_spawn(etcd, error);
}

/* ---- what the client interface does not offer ---- */

gboolean etcd_process_compact(EtcdProcess *etcd, gint64 revision, GError **error)
{
    g_autofree char *body = g_strdup_printf(
        "{\"revision\":\"%" G_GINT64_FORMAT "\",\"physical\":true}", revision);
    g_autofree char *reply = etcd_process_post(etcd, "/v3/kv/compaction", body, error);
    return reply != NULL;
}

gboolean etcd_process_set_nospace(EtcdProcess *etcd, gboolean on, GError **error)
{
    g_autofree char *status = etcd_process_post(etcd, "/v3/maintenance/status", "{}", error);
    g_autofree char *member = text_in(status, "member_id");
    if (member == NULL) {
        return FALSE;
    }
    g_autofree char *body = g_strdup_printf(
        "{\"action\":\"%s\",\"memberID\":\"%s\",\"alarm\":\"NOSPACE\"}",
        on ? "ACTIVATE" : "DEACTIVATE", member);
    g_autofree char *reply = etcd_process_post(etcd, "/v3/maintenance/alarm", body, error);
    return reply != NULL;
}

/*
 * Starts and stops one Swift: memcached, three storage servers, and the proxy that speaks S3.
 *
 * Must not touch any process but its own children, nor listen on anything but loopback.
 */
#include "s3_process.h"

#include "base/errors.h"
#include "etcd_process.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS 30000
#define ATTEMPTS 3

enum { PROXY, OBJECT, CONTAINER, ACCOUNT, MEMCACHED, N_SERVERS };

static const char *const names[N_SERVERS] = {"proxy", "object", "container", "account",
                                             "memcached"};

struct S3Process {
    char *dir, *endpoint, *by_name, *token;
    char *access_key, *secret_key, *stranger, *stranger_secret;
    guint16 ports[N_SERVERS];
    GPid pids[N_SERVERS]; /* 0: not running */
    CURL *curl;
};

/* ---- files ---- */

static void write_config(const S3Process *s3, const char *name, const char *text)
{
    g_autofree char *path = g_build_filename(s3->dir, name, NULL);
    g_assert(g_file_set_contents(path, text, -1, NULL));
}

static void write_storage_config(const S3Process *s3, int which)
{
    g_autofree char *file = g_strdup_printf("%s-server.conf", names[which]);
    g_autofree char *text = g_strdup_printf("[DEFAULT]\n"
                                            "devices = %s/disk\n"
                                            "mount_check = false\n"
                                            "bind_ip = 127.0.0.1\n"
                                            "bind_port = %u\n"
                                            "workers = 0\n"
                                            "user = %s\n"
                                            "swift_dir = %s\n"
                                            "log_level = WARNING\n"
                                            "[pipeline:main]\n"
                                            "pipeline = %s-server\n"
                                            "[app:%s-server]\n"
                                            "conn_timeout = 30\n"
                                            "node_timeout = 60\n"
                                            "use = egg:swift#%s\n%s",
                                            s3->dir, s3->ports[which], g_get_user_name(), s3->dir,
                                            names[which], names[which], names[which],
                                            which == OBJECT ? "[object-replicator]\n" : "");
    write_config(s3, file, text);
}

static void write_proxy_config(const S3Process *s3)
{
    g_autofree char *text = g_strdup_printf(
        "[DEFAULT]\n"
        "bind_ip = 127.0.0.1\n"
        "bind_port = %u\n"
        "workers = 0\n"
        "user = %s\n"
        "swift_dir = %s\n"
        "log_level = WARNING\n"
        "[pipeline:main]\n"
        "pipeline = catch_errors cache s3api tempauth proxy-server\n"
        "[app:proxy-server]\n"
        "use = egg:swift#proxy\n"
        "account_autocreate = true\n"
        /* A machine that is busy is no reason to think a server dead. */
        "conn_timeout = 30\n"
        "node_timeout = 60\n"
        "recoverable_node_timeout = 60\n"
        "client_timeout = 60\n"
        "error_suppression_limit = 1000000\n"
        "[filter:catch_errors]\n"
        "use = egg:swift#catch_errors\n"
        "[filter:cache]\n"
        "use = egg:swift#memcache\n"
        "memcache_servers = 127.0.0.1:%u\n"
        "[filter:s3api]\n"
        "use = egg:swift#s3api\n"
        "s3_acl = false\n"
        "location = " S3_PROCESS_REGION "\n"
        "storage_domain = localhost\n"
        "check_bucket_owner = false\n"
        "[filter:tempauth]\n"
        "use = egg:swift#tempauth\n"
        "user_test_owner = %s .admin\n"
        "user_test_stranger = %s\n",
        s3->ports[PROXY], g_get_user_name(), s3->dir, s3->ports[MEMCACHED], s3->secret_key,
        s3->stranger_secret);
    write_config(s3, "proxy-server.conf", text);
}

/* All rings in one Python, which takes a tenth of what swift-ring-builder takes. */
static gboolean build_rings(const S3Process *s3, GError **error)
{
    static const char script[] =
        "import sys\n"
        "from swift.common.ring import RingBuilder\n"
        "for arg in sys.argv[2:]:\n"
        "    name, port = arg.split('=')\n"
        "    b = RingBuilder(4, 1, 1)\n"
        "    b.add_dev(dict(id=0, region=1, zone=1, weight=1, ip='127.0.0.1', port=int(port),\n"
        "        replication_ip='127.0.0.1', replication_port=int(port), device='d1'))\n"
        "    b.rebalance()\n"
        "    b.get_ring().save('%s/%s.ring.gz' % (sys.argv[1], name))\n";
    g_autofree char *object = g_strdup_printf("object=%u", s3->ports[OBJECT]);
    g_autofree char *container = g_strdup_printf("container=%u", s3->ports[CONTAINER]);
    g_autofree char *account = g_strdup_printf("account=%u", s3->ports[ACCOUNT]);
    /* The distribution's Python, which has the distribution's Swift. */
    const char *argv[] = {"/usr/bin/python3", "-c",    script, s3->dir, object,
                          container,          account, NULL};
    g_autofree char *said = NULL;
    int status = 0;
    if (!g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL,
                      &said, &status, error))
        return FALSE;
    if (status == 0)
        return TRUE;
    g_set_error(error, LH_ERROR, LH_ERR_INTERNAL, "building Swift's rings: %s", said);
    return FALSE;
}

static gboolean write_configs(const S3Process *s3, GError **error)
{
    g_autofree char *disk = g_build_filename(s3->dir, "disk", "d1", NULL);
    g_assert(g_mkdir_with_parents(disk, 0755) == 0);
    write_config(s3, "swift.conf",
                 "[swift-hash]\n"
                 "swift_hash_path_suffix = leasehold\n"
                 "swift_hash_path_prefix = test\n"
                 "[storage-policy:0]\n"
                 "name = Policy-0\n"
                 "default = yes\n");
    write_config(s3, "mime.types", "");
    for (int which = OBJECT; which <= ACCOUNT; which++)
        write_storage_config(s3, which);
    write_proxy_config(s3);
    return build_rings(s3, error);
}

/* ---- processes ---- */

static void die_with_parent(gpointer parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)GPOINTER_TO_INT(parent))
        _exit(127);
}

static gboolean launch(S3Process *s3, int which, GError **error)
{
    g_autofree char *program = which == MEMCACHED
                                   ? g_strdup("memcached")
                                   : g_strdup_printf("swift-%s-server", names[which]);
    g_autofree char *config = g_strdup_printf("%s/%s-server.conf", s3->dir, names[which]);
    g_autofree char *port = g_strdup_printf("%u", s3->ports[which]);
    g_autofree char *binary = g_find_program_in_path(program);
    if (binary == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_NOT_FOUND, "no %s in the PATH; see tools/packages",
                    program);
        return FALSE;
    }
    const char *swift[] = {binary, config, NULL};
    const char *memcached[] = {
        binary, "-u", g_get_user_name(), "-l", "127.0.0.1", "-U", "0", "-p", port, "-m",
        "16",   NULL};
    return g_spawn_async(s3->dir, (char **)(which == MEMCACHED ? memcached : swift), NULL,
                         G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL |
                             G_SPAWN_STDERR_TO_DEV_NULL,
                         die_with_parent, GINT_TO_POINTER((int)getpid()), &s3->pids[which], error);
}

static gboolean has_ended(S3Process *s3, int which)
{
    if (s3->pids[which] != 0 && waitpid(s3->pids[which], NULL, WNOHANG) == s3->pids[which])
        s3->pids[which] = 0;
    return s3->pids[which] == 0;
}

/* ---- HTTP ---- */

static size_t ignore(char *data, size_t size, size_t n, void *user_data)
{
    (void)data;
    (void)user_data;
    return size * n;
}

static size_t find_token(char *data, size_t size, size_t n, void *user_data)
{
    S3Process *s3 = user_data;
    g_autofree char *line = g_strndup(data, size * n);
    if (g_ascii_strncasecmp(line, "x-auth-token:", strlen("x-auth-token:")) == 0) {
        g_free(s3->token);
        s3->token = g_strdup(g_strstrip(line + strlen("x-auth-token:")));
    }
    return size * n;
}

static void set_common(S3Process *s3, const char *url)
{
    curl_easy_reset(s3->curl);
    curl_easy_setopt(s3->curl, CURLOPT_URL, url);
    curl_easy_setopt(s3->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(s3->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s3->curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(s3->curl, CURLOPT_TIMEOUT, 60L);
    curl_easy_setopt(s3->curl, CURLOPT_WRITEFUNCTION, ignore);
}

static glong perform(S3Process *s3)
{
    glong status = 0;
    if (curl_easy_perform(s3->curl) == CURLE_OK)
        curl_easy_getinfo(s3->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static gboolean log_in(S3Process *s3)
{
    g_autofree char *url = g_strdup_printf("%s/auth/v1.0", s3->endpoint);
    g_autofree char *user = g_strdup_printf("X-Storage-User: %s", s3->access_key);
    g_autofree char *pass = g_strdup_printf("X-Storage-Pass: %s", s3->secret_key);
    struct curl_slist *headers = curl_slist_append(curl_slist_append(NULL, user), pass);
    set_common(s3, url);
    curl_easy_setopt(s3->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(s3->curl, CURLOPT_HEADERFUNCTION, find_token);
    curl_easy_setopt(s3->curl, CURLOPT_HEADERDATA, s3);
    glong status = perform(s3);
    curl_slist_free_all(headers);
    return status == 200 && s3->token != NULL;
}

typedef struct {
    const char *data;
    gsize left;
} Upload;

static size_t read_upload(char *to, size_t size, size_t n, void *user_data)
{
    Upload *upload = user_data;
    gsize len = MIN(size * n, upload->left);
    memcpy(to, upload->data, len);
    upload->data += len;
    upload->left -= len;
    return len;
}

/* One request of Swift's own interface. @body: NULL: none. */
static glong request(S3Process *s3, const char *method, const char *bucket, const char *key,
                     const void *body, gsize n)
{
    char *escaped = key != NULL ? curl_easy_escape(s3->curl, key, 0) : NULL;
    g_autofree char *url = g_strdup_printf("%s/v1/AUTH_test/%s%s%s", s3->endpoint, bucket,
                                           key != NULL ? "/" : "", key != NULL ? escaped : "");
    g_autofree char *token = g_strdup_printf("X-Auth-Token: %s", s3->token);
    struct curl_slist *headers = curl_slist_append(curl_slist_append(NULL, token), "Expect:");
    Upload upload = {.data = body, .left = n};
    set_common(s3, url);
    curl_easy_setopt(s3->curl, CURLOPT_HTTPHEADER, headers);
    if (body != NULL) {
        curl_easy_setopt(s3->curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(s3->curl, CURLOPT_READFUNCTION, read_upload);
        curl_easy_setopt(s3->curl, CURLOPT_READDATA, &upload);
        curl_easy_setopt(s3->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)n);
    }
    curl_easy_setopt(s3->curl, CURLOPT_CUSTOMREQUEST, method);
    glong status = perform(s3);
    curl_slist_free_all(headers);
    curl_free(escaped);
    return status;
}

/* ---- the whole ---- */

static gboolean all_listen(const S3Process *s3)
{
    gboolean all = TRUE;
    for (int which = 0; all && which < N_SERVERS; which++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons(s3->ports[which]),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        all = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
        close(fd);
    }
    return all;
}

/* Until an object could be written: then all five work. */
static gboolean wait_until_ready(S3Process *s3, GError **error)
{
    gint64 deadline = g_get_monotonic_time() + READY_MS * 1000;
    for (;;) {
        if (all_listen(s3) && log_in(s3) && request(s3, "PUT", "ready", NULL, "", 0) / 100 == 2 &&
            request(s3, "PUT", "ready", "x", "x", 1) == 201)
            return TRUE;
        for (int which = 0; which < N_SERVERS; which++) {
            if (has_ended(s3, which)) {
                g_set_error(error, LH_ERROR, LH_ERR_IO, "Swift's %s ended at once", names[which]);
                return FALSE;
            }
        }
        if (g_get_monotonic_time() > deadline) {
            g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "Swift is not ready after %d ms",
                        READY_MS);
            return FALSE;
        }
        poll(NULL, 0, 20); /* what is waited for has no descriptor of ours */
    }
}

static char *random_word(void)
{
    return g_strdup_printf("%08x%08x", g_random_int(), g_random_int());
}

static S3Process *start(GError **error)
{
    S3Process *s3 = g_new0(S3Process, 1);
    s3->dir = g_dir_make_tmp("leasehold-s3-XXXXXX", error);
    if (s3->dir == NULL) {
        s3_process_free(s3);
        return NULL;
    }
    s3->curl = curl_easy_init();
    s3->access_key = g_strdup("test:owner");
    s3->stranger = g_strdup("test:stranger");
    s3->secret_key = random_word();
    s3->stranger_secret = random_word();
    for (int which = 0; which < N_SERVERS; which++)
        s3->ports[which] = etcd_free_port();
    s3->endpoint = g_strdup_printf("http://127.0.0.1:%u", s3->ports[PROXY]);
    s3->by_name = g_strdup_printf("http://localhost:%u", s3->ports[PROXY]);
    gboolean ok = write_configs(s3, error);
    for (int which = 0; ok && which < N_SERVERS; which++)
        ok = launch(s3, which, error);
    if (ok && wait_until_ready(s3, error))
        return s3;
    s3_process_free(s3);
    return NULL;
}

S3Process *s3_process_new(GError **error)
{
    g_autofree char *swift = g_find_program_in_path("swift-proxy-server");
    g_autofree char *memcached = g_find_program_in_path("memcached");
    if (swift == NULL || memcached == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_NOT_FOUND, "no %s in the PATH; see tools/packages",
                    swift == NULL ? "swift-proxy-server" : "memcached");
        return NULL;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    for (int attempt = 1;; attempt++) {
        g_autoptr(GError) local = NULL;
        S3Process *s3 = start(&local);
        if (s3 != NULL)
            return s3;
        /* Somebody may have taken a port in between. */
        if (attempt == ATTEMPTS || !g_error_matches(local, LH_ERROR, LH_ERR_IO)) {
            g_propagate_error(error, g_steal_pointer(&local));
            return NULL;
        }
    }
}

void s3_process_free(S3Process *s3)
{
    if (s3 == NULL)
        return;
    for (int which = 0; which < N_SERVERS; which++) {
        if (!has_ended(s3, which))
            kill(s3->pids[which], SIGKILL);
    }
    for (int which = 0; which < N_SERVERS; which++) {
        if (s3->pids[which] != 0)
            waitpid(s3->pids[which], NULL, 0);
    }
    if (s3->dir != NULL) {
        const char *argv[] = {"rm", "-rf", s3->dir, NULL};
        g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL,
                     NULL);
    }
    if (s3->curl != NULL)
        curl_easy_cleanup(s3->curl);
    g_free(s3->dir);
    g_free(s3->endpoint);
    g_free(s3->by_name);
    g_free(s3->token);
    g_free(s3->access_key);
    g_free(s3->secret_key);
    g_free(s3->stranger);
    g_free(s3->stranger_secret);
    g_free(s3);
}

const char *s3_process_endpoint(const S3Process *s3)
{
    return s3->endpoint;
}

const char *s3_process_by_name(const S3Process *s3)
{
    return s3->by_name;
}

const char *s3_process_access_key(const S3Process *s3)
{
    return s3->access_key;
}

const char *s3_process_secret_key(const S3Process *s3)
{
    return s3->secret_key;
}

const char *s3_process_stranger(const S3Process *s3)
{
    return s3->stranger;
}

const char *s3_process_stranger_secret(const S3Process *s3)
{
    return s3->stranger_secret;
}

void s3_process_make_bucket(S3Process *s3, const char *bucket)
{
    g_assert(request(s3, "PUT", bucket, NULL, "", 0) / 100 == 2);
}

void s3_process_put(S3Process *s3, const char *bucket, const char *key, const void *data, gsize n)
{
    g_assert(request(s3, "PUT", bucket, key, n > 0 ? data : "", n) == 201);
}

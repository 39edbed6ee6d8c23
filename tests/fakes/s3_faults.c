/*
 * A small HTTP/1.1 server: one thread accepts, one serves each connection.
 *
 * GET, PUT and DELETE. What it knows of S3 is what the client needs: ranges, If-Match, listings.
 */
#include "s3_faults.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
    GBytes *data;
    guint version;      /* its ETag */
    gint64 modified_us; /* epoch */
} Object;

typedef struct {
    S3Fault f;
    char *path, *match, *code, *header, *body;
} Fault;

typedef struct {
    S3Faults *server;
    GThread *thread;
    int fd;
} Connection;

struct S3Faults {
    int listener;
    guint16 port;
    char *endpoint;
    GThread *thread;
    GMutex mutex; /* what follows */
    gboolean stopping;
    GPtrArray *connections; /* of Connection */
    GHashTable *objects;    /* path → Object */
    GQueue faults;          /* of Fault */
    GString *heads;
};

/* One request and the answer to be given. */
typedef struct {
    char *method, *path, *query, *range, *if_match, *if_none_match;
    char *body;   /* text; "" if there is none */
    Fault *fault; /* NULL: none; freed by the request */
} Request;

static void object_free(gpointer data)
{
    Object *object = data;
    g_bytes_unref(object->data);
    g_free(object);
}

static void fault_free(gpointer data)
{
    Fault *fault = data;
    g_free(fault->path);
    g_free(fault->match);
    g_free(fault->code);
    g_free(fault->header);
    g_free(fault->body);
    g_free(fault);
}

static Fault *fault_copy(const S3Fault *f)
{
    Fault *fault = g_new0(Fault, 1);
    fault->f = *f;
    fault->path = g_strdup(f->path);
    fault->match = g_strdup(f->match);
    fault->code = g_strdup(f->code);
    fault->header = g_strdup(f->header);
    fault->body = g_strdup(f->body);
    fault->f.path = fault->path;
    fault->f.match = fault->match;
    fault->f.code = fault->code;
    fault->f.header = fault->header;
    fault->f.body = fault->body;
    return fault;
}

/* ---- sending ---- */

static gboolean send_all(int fd, const char *data, gsize n)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return FALSE;
        data += sent;
        n -= (gsize)sent;
    }
    return TRUE;
}

static void wait_for_the_end(int fd)
{
    char byte;
    while (recv(fd, &byte, 1, 0) > 0)
        ;
}

static char *http_date(void)
{
    g_autoptr(GDateTime) now = g_date_time_new_now_utc();
    return g_date_time_format(now, "%a, %d %b %Y %H:%M:%S GMT");
}

static gboolean send_reply(int fd, int status, const char *header, const char *type,
                           const char *body)
{
    g_autofree char *date = http_date();
    gboolean own_date = header != NULL && g_str_has_prefix(header, "Date:");
    g_autofree char *text = g_strdup_printf(
        "HTTP/1.1 %d x\r\n%s%s%sContent-Type: %s\r\nContent-Length: %zu\r\n%s%s\r\n%s", status,
        own_date ? "" : "Date: ", own_date ? "" : date, own_date ? "" : "\r\n", type, strlen(body),
        header != NULL ? header : "", header != NULL ? "\r\n" : "", body);
    return send_all(fd, text, strlen(text));
}

static gboolean send_error(int fd, int status, const char *code, const char *header)
{
    g_autofree char *body = code == NULL
                                ? g_strdup("")
                                : g_strdup_printf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                                                  "<Error><Code>%s</Code><Message>m</Message>"
                                                  "</Error>",
                                                  code);
    return send_reply(fd, status, header, "application/xml", body);
}

/* ---- answers ---- */

/* The plain value of a parameter of @query; "" if there is none. g_free. */
static char *param_of(const char *query, const char *name)
{
    g_auto(GStrv) params = g_strsplit(query, "&", -1);
    gsize n = strlen(name);
    for (char **param = params; *param != NULL; param++)
        if (strncmp(*param, name, n) == 0 && (*param)[n] == '=')
            return g_uri_unescape_string(*param + n + 1, NULL);
    return g_strdup("");
}

static gint by_path(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The paths below @start, sorted; the server is locked. */
static GPtrArray *paths_below(S3Faults *server, const char *start)
{
    GPtrArray *paths = g_ptr_array_new();
    GHashTableIter iter;
    gpointer path;
    g_hash_table_iter_init(&iter, server->objects);
    while (g_hash_table_iter_next(&iter, &path, NULL))
        if (g_str_has_prefix(path, start))
            g_ptr_array_add(paths, path);
    g_ptr_array_sort(paths, by_path);
    return paths;
}

static char *time_text(gint64 us)
{
    g_autoptr(GDateTime) time = g_date_time_new_from_unix_utc(us / 1000000);
    g_autofree char *seconds = g_date_time_format(time, "%Y-%m-%dT%H:%M:%S");
    return g_strdup_printf("%s.%03dZ", seconds, (int)(us / 1000 % 1000));
}

static gint64 fault_after(const Request *request, S3FaultKind kind)
{
    return request->fault != NULL && request->fault->f.kind == kind ? request->fault->f.after : 0;
}

static gboolean has_fault(const Request *request, S3FaultKind kind)
{
    return request->fault != NULL && request->fault->f.kind == kind;
}

/* A continuation token is the last key of the page before. */
static char *listing(S3Faults *server, const Request *request)
{
    g_autofree char *prefix = param_of(request->query, "prefix");
    g_autofree char *token = param_of(request->query, "continuation-token");
    g_autofree char *delimiter = param_of(request->query, "delimiter");
    g_autofree char *max_keys = param_of(request->query, "max-keys");
    g_autofree char *start = g_strdup_printf("%s/%s", request->path, prefix);
    guint most = *max_keys != '\0' ? (guint)g_ascii_strtoull(max_keys, NULL, 10) : 1000, n = 0;
    gsize skip = strlen(request->path) + 1;
    const char *last = NULL;
    gboolean more = FALSE;
    g_autoptr(GString) contents = g_string_new(NULL);
    g_mutex_lock(&server->mutex);
    g_autoptr(GPtrArray) paths = paths_below(server, start);
    for (guint i = 0; i < paths->len; i++) {
        const char *path = paths->pdata[i];
        const Object *object = g_hash_table_lookup(server->objects, path);
        if (strcmp(path + skip, token) <= 0 ||
            (*delimiter != '\0' && !has_fault(request, S3_FAULT_DEEP) &&
             strchr(path + strlen(start), '/') != NULL))
            continue;
        more = n == most;
        if (more)
            break;
        g_autofree char *modified = time_text(object->modified_us);
        g_string_append_printf(contents,
                               "<Contents><Key>%s</Key><LastModified>%s</LastModified>"
                               "<Size>%zu</Size></Contents>",
                               path + skip, modified, g_bytes_get_size(object->data));
        last = path + skip;
        n++;
    }
    char *xml = g_strdup_printf(
        "<ListBucketResult><IsTruncated>%s</IsTruncated>%s%s%s<EncodingType>url</EncodingType>%s"
        "</ListBucketResult>",
        more ? "true" : "false", more ? "<NextContinuationToken>" : "", more ? last : "",
        more ? "</NextContinuationToken>" : "", contents->str);
    g_mutex_unlock(&server->mutex);
    return xml;
}

/* The head of a 200 or 206 for [first, last] of @total. */
static char *head_of(const Request *request, gboolean partial, gint64 first, gint64 last,
                     gint64 total, guint version)
{
    g_autofree char *date = http_date();
    GString *head = g_string_new(NULL);
    g_string_append_printf(head, "HTTP/1.1 %s\r\nDate: %s\r\n", partial ? "206 Partial" : "200 OK",
                           date);
    if (has_fault(request, S3_FAULT_CHUNKED))
        g_string_append(head, "Transfer-Encoding: chunked\r\n");
    else
        g_string_append_printf(head, "Content-Length: %" G_GINT64_FORMAT "\r\n",
                               last - first + 1 + fault_after(request, S3_FAULT_LENGTH));
    gint64 shift = fault_after(request, S3_FAULT_RANGE);
    if (partial)
        g_string_append_printf(head,
                               "Content-Range: bytes %" G_GINT64_FORMAT "-%" G_GINT64_FORMAT
                               "/%" G_GINT64_FORMAT "\r\n",
                               first + shift, last + shift,
                               total + fault_after(request, S3_FAULT_TOTAL));
    if (!has_fault(request, S3_FAULT_NO_ETAG))
        g_string_append_printf(head, "ETag: \"v%u\"\r\n",
                               version + (has_fault(request, S3_FAULT_ETAG) ? 1000 : 0));
    g_string_append(head, "\r\n");
    return g_string_free(head, FALSE);
}

static gboolean send_body(int fd, const Request *request, const char *data, gint64 n)
{
    if (has_fault(request, S3_FAULT_CHUNKED)) {
        gint64 more = request->fault->f.after;
        gint64 len = n + more;
        g_autofree char *body = g_malloc0((gsize)len + 1);
        memcpy(body, data, (gsize)MIN(n, len));
        g_autofree char *size = g_strdup_printf("%lx\r\n", (gulong)len);
        return send_all(fd, size, strlen(size)) && send_all(fd, body, (gsize)len) &&
               send_all(fd, "\r\n0\r\n\r\n", 7);
    }
    if (has_fault(request, S3_FAULT_LENGTH)) {
        send_all(fd, data, (gsize)n);
        return FALSE;
    }
    if (has_fault(request, S3_FAULT_CUT) || has_fault(request, S3_FAULT_STALL)) {
        if (send_all(fd, data, (gsize)MIN(n, request->fault->f.after)) &&
            has_fault(request, S3_FAULT_STALL))
            wait_for_the_end(fd);
        return FALSE;
    }
    return send_all(fd, data, (gsize)n);
}

static gboolean send_object(S3Faults *server, int fd, const Request *request)
{
    g_mutex_lock(&server->mutex);
    Object *object = g_hash_table_lookup(server->objects, request->path);
    if (object != NULL && has_fault(request, S3_FAULT_CHANGE))
        object->version += 1000;
    g_autoptr(GBytes) bytes = object != NULL ? g_bytes_ref(object->data) : NULL;
    guint version = object != NULL ? object->version : 0;
    g_mutex_unlock(&server->mutex);
    if (bytes == NULL)
        return send_error(fd, 404, "NoSuchKey", NULL);
    g_autofree char *etag = g_strdup_printf("\"v%u\"", version);
    if (request->if_match != NULL && strcmp(request->if_match, etag) != 0 &&
        !has_fault(request, S3_FAULT_ETAG))
        return send_error(fd, 412, "PreconditionFailed", NULL);
    gint64 total = (gint64)g_bytes_get_size(bytes);
    gint64 first = 0, last = total - 1;
    gboolean partial = request->range != NULL && !has_fault(request, S3_FAULT_WHOLE);
    if (partial) {
        char *end;
        first = g_ascii_strtoll(request->range, &end, 10);
        if (*end == '-' && g_ascii_isdigit(end[1]))
            last = MIN(g_ascii_strtoll(end + 1, NULL, 10), total - 1);
        if (first >= total) {
            g_autofree char *range = g_strdup_printf("Content-Range: bytes */%" G_GINT64_FORMAT,
                                                     total);
            return send_error(fd, 416, "InvalidRange", range);
        }
    }
    g_autofree char *head = head_of(request, partial, first, last, total, version);
    const char *data = g_bytes_get_data(bytes, NULL);
    return send_all(fd, head, strlen(head)) &&
           send_body(fd, request, data != NULL ? data + first : "", last - first + 1);
}

/* 204 whether it was there or not. */
static gboolean delete_object(S3Faults *server, int fd, const Request *request)
{
    static const char reply[] = "HTTP/1.1 204 x\r\n\r\n";
    g_mutex_lock(&server->mutex);
    if (!has_fault(request, S3_FAULT_KEEP))
        g_hash_table_remove(server->objects, request->path);
    g_mutex_unlock(&server->mutex);
    return send_all(fd, reply, sizeof reply - 1);
}

/* If-Match: that ETag; If-None-Match: nothing there. */
static gboolean meets_conditions(S3Faults *server, const Request *request)
{
    g_mutex_lock(&server->mutex);
    const Object *object = g_hash_table_lookup(server->objects, request->path);
    g_autofree char *etag = object == NULL ? NULL : g_strdup_printf("\"v%u\"", object->version);
    gboolean meets = (request->if_match == NULL || g_strcmp0(request->if_match, etag) == 0) &&
                     (request->if_none_match == NULL || object == NULL);
    g_mutex_unlock(&server->mutex);
    return meets;
}

static gboolean answer(S3Faults *server, int fd, const Request *request)
{
    if (has_fault(request, S3_FAULT_REPLY)) {
        const S3Fault *f = &request->fault->f;
        return f->body != NULL ? send_reply(fd, f->status, f->header, "application/xml", f->body)
                               : send_error(fd, f->status, f->code, f->header);
    }
    if (request->method[0] == 'D')
        return delete_object(server, fd, request);
    if (request->method[0] == 'P') {
        if (!meets_conditions(server, request))
            return send_error(fd, 412, "PreconditionFailed", NULL);
        s3_faults_put(server, request->path, request->body, strlen(request->body));
        return send_reply(fd, 200, NULL, "text/plain", "");
    }
    if (strstr(request->query, "list-type=2") != NULL) {
        g_autofree char *xml = listing(server, request);
        return send_reply(fd, 200, NULL, "application/xml", xml);
    }
    return send_object(server, fd, request);
}

/* ---- requests ---- */

static char *header_of(const char *head, const char *name)
{
    g_auto(GStrv) lines = g_strsplit(head, "\r\n", -1);
    gsize n = strlen(name);
    for (char **line = lines; *line != NULL; line++) {
        if (g_ascii_strncasecmp(*line, name, n) == 0 && (*line)[n] == ':')
            return g_strstrip(g_strdup(*line + n + 1));
    }
    return NULL;
}

/* Until the empty line. NULL: the connection has ended. */
static char *read_head(int fd)
{
    GString *head = g_string_new(NULL);
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) {
        g_string_append_c(head, byte);
        if (g_str_has_suffix(head->str, "\r\n\r\n"))
            return g_string_free(head, FALSE);
    }
    g_string_free(head, TRUE);
    return NULL;
}

static char *read_body(int fd, const char *head)
{
    g_autofree char *length = header_of(head, "Content-Length");
    gsize n = length != NULL ? (gsize)g_ascii_strtoull(length, NULL, 10) : 0, done = 0;
    char *body = g_malloc0(n + 1);
    while (done < n) {
        ssize_t got = recv(fd, body + done, n - done, 0);
        if (got <= 0)
            break;
        done += (gsize)got;
    }
    return body;
}

static Fault *take_fault(S3Faults *server, const char *head, const char *path)
{
    for (GList *link = server->faults.head; link != NULL; link = link->next) {
        Fault *fault = link->data;
        if (fault->match != NULL && strstr(head, fault->match) == NULL)
            continue;
        if (fault->path != NULL && strcmp(path, fault->path) != 0)
            continue;
        Fault *used = fault_copy(&fault->f);
        if (--fault->f.times == 0) {
            fault_free(fault);
            g_queue_delete_link(&server->faults, link);
        }
        return used;
    }
    return NULL;
}

static gboolean serve_one(S3Faults *server, int fd)
{
    g_autofree char *head = read_head(fd);
    if (head == NULL)
        return FALSE;
    g_auto(GStrv) words = g_strsplit(head, " ", 3);
    if (g_strv_length(words) < 3)
        return FALSE;
    g_autofree char *body = read_body(fd, head);
    g_mutex_lock(&server->mutex);
    g_string_append(server->heads, head);
    g_auto(GStrv) target = g_strsplit(words[1], "?", 2);
    Request request = {.path = target[0], .fault = take_fault(server, head, target[0])};
    g_mutex_unlock(&server->mutex);
    request.method = words[0];
    request.body = body;
    request.query = target[1] != NULL ? target[1] : (char *)"";
    g_autofree char *range = header_of(head, "Range");
    g_autofree char *if_match = header_of(head, "If-Match");
    g_autofree char *if_none_match = header_of(head, "If-None-Match");
    request.range = range != NULL && g_str_has_prefix(range, "bytes=") ? range + 6 : NULL;
    request.if_match = if_match;
    request.if_none_match = if_none_match;
    gboolean go_on = answer(server, fd, &request);
    g_clear_pointer(&request.fault, fault_free);
    return go_on;
}

static gpointer serve(gpointer data)
{
    Connection *connection = data;
    while (serve_one(connection->server, connection->fd))
        ;
    shutdown(connection->fd, SHUT_RDWR);
    return NULL;
}

static gpointer accept_all(gpointer data)
{
    S3Faults *server = data;
    for (;;) {
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0)
            return NULL;
        g_mutex_lock(&server->mutex);
        if (server->stopping) {
            close(fd);
        } else {
            Connection *connection = g_new0(Connection, 1);
            connection->server = server;
            connection->fd = fd;
            connection->thread = g_thread_new("s3-faults", serve, connection);
            g_ptr_array_add(server->connections, connection);
        }
        g_mutex_unlock(&server->mutex);
    }
}

/* ---- the interface ---- */

S3Faults *s3_faults_new(void)
{
    S3Faults *server = g_new0(S3Faults, 1);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    g_mutex_init(&server->mutex);
    g_queue_init(&server->faults);
    server->heads = g_string_new(NULL);
    server->connections = g_ptr_array_new();
    server->objects = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, object_free);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert(bind(server->listener, (struct sockaddr *)&address, len) == 0);
    g_assert(listen(server->listener, 128) == 0);
    g_assert(getsockname(server->listener, (struct sockaddr *)&address, &len) == 0);
    server->port = ntohs(address.sin_port);
    server->endpoint = g_strdup_printf("http://127.0.0.1:%u", server->port);
    server->thread = g_thread_new("s3-faults-accept", accept_all, server);
    return server;
}

void s3_faults_free(S3Faults *server)
{
    g_mutex_lock(&server->mutex);
    server->stopping = TRUE;
    g_mutex_unlock(&server->mutex);
    shutdown(server->listener, SHUT_RDWR);
    g_thread_join(server->thread);
    close(server->listener);
    for (guint i = 0; i < server->connections->len; i++) {
        Connection *connection = g_ptr_array_index(server->connections, i);
        shutdown(connection->fd, SHUT_RDWR);
        g_thread_join(connection->thread);
        close(connection->fd);
        g_free(connection);
    }
    g_ptr_array_unref(server->connections);
    g_hash_table_unref(server->objects);
    g_queue_clear_full(&server->faults, fault_free);
    g_string_free(server->heads, TRUE);
    g_mutex_clear(&server->mutex);
    g_free(server->endpoint);
    g_free(server);
}

const char *s3_faults_endpoint(const S3Faults *server)
{
    return server->endpoint;
}

guint16 s3_faults_port(const S3Faults *server)
{
    return server->port;
}

void s3_faults_put(S3Faults *server, const char *path, const void *data, gsize n)
{
    Object *object = g_new0(Object, 1);
    object->data = g_bytes_new(data, n);
    g_mutex_lock(&server->mutex);
    const Object *old = g_hash_table_lookup(server->objects, path);
    object->version = old != NULL ? old->version + 1 : 1;
    object->modified_us = g_get_real_time();
    g_hash_table_replace(server->objects, g_strdup(path), object);
    g_mutex_unlock(&server->mutex);
}

void s3_faults_add(S3Faults *server, const S3Fault *fault)
{
    g_mutex_lock(&server->mutex);
    g_queue_push_tail(&server->faults, fault_copy(fault));
    g_mutex_unlock(&server->mutex);
}

guint s3_faults_count(S3Faults *server, const char *match)
{
    guint n = 0;
    g_autofree char *heads = s3_faults_heads(server);
    g_auto(GStrv) each = g_strsplit(heads, "\r\n\r\n", -1);
    for (char **head = each; *head != NULL; head++)
        n += strstr(*head, match) != NULL;
    return n;
}

char *s3_faults_heads(S3Faults *server)
{
    g_mutex_lock(&server->mutex);
    char *heads = g_strdup(server->heads->str);
    g_mutex_unlock(&server->mutex);
    return heads;
}

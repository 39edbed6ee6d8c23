/*
 * One thread and one epoll set. A stream is a socket whose request was sent and whose bytes are thrown
 * away; a request goes out on the next idle one of a few kept connections, on the clock.
 */
#include "http_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEPT       8
#define OPENING    64   /* streams that wait for their answer at a time */
#define OPEN_MS    3000 /* without any being answered: no more will be */
#define SOURCES    8    /* addresses that streams come from */
#define ANSWER_MAX (64 * 1024)
#define ONE_GET_S  10
#define EVENTS     256

typedef struct {
    int fd;
    gboolean stream, answered, busy;
    GString *in; /* of a kept connection: what has come of the answer */
} Connection;

struct HttpLoad {
    GThread *thread;
    GMutex lock;
    GCond opened;
    guint16 port;
    guint wanted, started, requests_per_s;
    char *watch_request, *request;
    gboolean is_open, stop;
    HttpLoadCounts counts;
    /* The thread's own. */
    int epoll;
    GPtrArray *connections; /* Connection: the kept ones first */
    guint opening, next_kept;
};

/* ---- sockets ---- */

/* From 127.0.0.@host: a server may limit what one address opens, and watchers come from many. */
static int connect_to(guint16 port, guint host)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffU) + host)};
    const struct timeval timeout = {.tv_sec = ONE_GET_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (bind(fd, (struct sockaddr *)&from, sizeof from) != 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static char *request_text(guint16 port, const char *path, const char *more)
{
    return g_strdup_printf("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s\r\n", path, port, more);
}

static gboolean send_all(int fd, const char *text)
{
    gsize len = strlen(text);

    return send(fd, text, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static int status_of(const char *text)
{
    int status = 0;

    return sscanf(text, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

int http_get(guint16 port, const char *path)
{
    g_autofree char *request = request_text(port, path, "Connection: close\r\n");
    char answer[64] = "";
    int fd = connect_to(port, 1), status = 0;

    if (fd < 0)
        return 0;
    if (send_all(fd, request) && recv(fd, answer, sizeof answer - 1, MSG_WAITALL) > 0)
        status = status_of(answer);
    close(fd);
    return status;
}

struct HttpPost {
    int fd;
    guint16 port;
    char in[16 * 1024];
};

HttpPost *http_post_open(guint16 port)
{
    int fd = connect_to(port, 1);
    HttpPost *post = fd < 0 ? NULL : g_new0(HttpPost, 1);

    if (post != NULL)
        *post = (HttpPost){.fd = fd, .port = port};
    return post;
}

void http_post_close(HttpPost *post)
{
    close(post->fd);
    g_free(post);
}

/* The body of a whole answer in @text; NULL: it is not whole. */
static const char *whole_body(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");

    if (end == NULL || length == NULL || length > end)
        return NULL;
    return strlen(end + 4) >= g_ascii_strtoull(length + 16, NULL, 10) ? end + 4 : NULL;
}

gboolean http_post(HttpPost *post, const char *path, const char *body, const char *want)
{
    g_autofree char *request = g_strdup_printf(
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        path, post->port, strlen(body), body);
    const char *answer = NULL;
    gsize len = 0;

    if (!send_all(post->fd, request))
        return FALSE;
    while (answer == NULL && len < sizeof post->in - 1) {
        ssize_t n = recv(post->fd, post->in + len, sizeof post->in - 1 - len, 0);
        if (n <= 0)
            return FALSE;
        len += (gsize)n;
        post->in[len] = '\0';
        answer = whole_body(post->in);
    }
    return answer != NULL && status_of(post->in) == 200 && g_str_has_prefix(answer, want);
}

guint64 raise_file_limit(void)
{
    struct rlimit limit = {0, 0};

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

/* ---- the thread ---- */

static void connection_open(HttpLoad *load, Connection *connection)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = connection}};

    connection->fd = connect_to(load->port, 1 + load->started % SOURCES);
    if (connection->fd >= 0)
        epoll_ctl(load->epoll, EPOLL_CTL_ADD, connection->fd, &event);
}

static Connection *connection_new(HttpLoad *load, gboolean stream)
{
    Connection *connection = g_new0(Connection, 1);

    connection->fd = -1;
    connection->stream = stream;
    connection->in = stream ? NULL : g_string_new(NULL);
    g_ptr_array_add(load->connections, connection);
    return connection;
}

static void connection_close(HttpLoad *load, Connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
    if (connection->stream) {
        load->counts.refused++;
        if (connection->answered)
            load->counts.watchers--;
        else
            load->opening--;
        connection->answered = FALSE;
    } else if (connection->busy) {
        load->counts.failed++;
        connection->busy = FALSE;
    }
}

static void connection_free(gpointer data)
{
    Connection *connection = data;

    if (connection->fd >= 0)
        close(connection->fd);
    if (connection->in != NULL)
        g_string_free(connection->in, TRUE);
    g_free(connection);
}

static void read_stream(HttpLoad *load, Connection *connection)
{
    char buffer[16384];
    ssize_t n = recv(connection->fd, buffer, sizeof buffer - 1, MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    buffer[MAX(n, 0)] = '\0';
    if (n <= 0 || (!connection->answered && status_of(buffer) != 200)) {
        connection_close(load, connection);
        return;
    }
    load->counts.bytes += (guint64)n;
    if (!connection->answered) {
        connection->answered = TRUE;
        load->counts.watchers++;
        load->opening--;
    }
}

/* Whether a whole answer with a Content-Length has come. */
static gboolean is_whole(const GString *in)
{
    const char *end = strstr(in->str, "\r\n\r\n");
    g_autofree char *head = end == NULL ? NULL : g_ascii_strdown(in->str, end - in->str);
    const char *length = head == NULL ? NULL : strstr(head, "content-length:");

    return length != NULL &&
           in->len >= (gsize)(end - in->str) + 4 +
                          (gsize)g_ascii_strtoull(length + strlen("content-length:"), NULL, 10);
}

static void read_answer(HttpLoad *load, Connection *connection)
{
    char buffer[16384];
    ssize_t n = recv(connection->fd, buffer, sizeof buffer, MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 || connection->in->len > ANSWER_MAX) {
        connection_close(load, connection);
        return;
    }
    g_string_append_len(connection->in, buffer, n);
    if (!is_whole(connection->in))
        return;
    if (status_of(connection->in->str) == 200)
        load->counts.answered++;
    else
        load->counts.failed++;
    g_string_truncate(connection->in, 0);
    connection->busy = FALSE;
}

static void send_request(HttpLoad *load)
{
    for (guint i = 0; i < KEPT; i++) {
        guint at = load->next_kept++ % KEPT;
        Connection *connection = g_ptr_array_index(load->connections, at);
        if (connection->busy)
            continue;
        if (connection->fd < 0)
            connection_open(load, connection);
        connection->busy = TRUE;
        if (connection->fd < 0 || !send_all(connection->fd, load->request))
            connection_close(load, connection);
        return;
    }
    load->counts.failed++; /* all of them wait: the server is behind */
}

static void open_streams(HttpLoad *load)
{
    while (load->started < load->wanted && load->opening < OPENING) {
        Connection *connection = connection_new(load, TRUE);
        load->started++;
        load->opening++;
        connection_open(load, connection);
        if (connection->fd < 0 || !send_all(connection->fd, load->watch_request))
            connection_close(load, connection);
    }
}

/* Under the lock, but while it waits for something to read. */
static void turn(HttpLoad *load, int wait_ms)
{
    struct epoll_event events[EVENTS];
    int n;

    g_mutex_unlock(&load->lock);
    n = epoll_wait(load->epoll, events, EVENTS, wait_ms);
    g_mutex_lock(&load->lock);
    for (int i = 0; i < n; i++) {
        Connection *connection = events[i].data.ptr;
        if (connection->fd < 0)
            continue;
        if (connection->stream)
            read_stream(load, connection);
        else
            read_answer(load, connection);
    }
}

/* Those that the server lets wait in its backlog are not going to be answered. */
static void give_up_unanswered(HttpLoad *load)
{
    for (guint i = KEPT; i < load->connections->len; i++) {
        Connection *connection = g_ptr_array_index(load->connections, i);
        if (connection->fd >= 0 && !connection->answered)
            connection_close(load, connection);
    }
    load->counts.refused += load->wanted - load->started;
    load->started = load->wanted;
}

static gpointer run(gpointer data)
{
    HttpLoad *load = data;
    gint64 quiet_at, due;
    guint answered = 0;

    g_mutex_lock(&load->lock);
    quiet_at = g_get_monotonic_time() + OPEN_MS * 1000;
    while (!load->stop && (load->started < load->wanted || load->opening > 0)) {
        open_streams(load);
        turn(load, 10);
        if (load->counts.watchers != answered)
            quiet_at = g_get_monotonic_time() + OPEN_MS * 1000;
        answered = load->counts.watchers;
        if (g_get_monotonic_time() > quiet_at)
            give_up_unanswered(load);
    }
    load->is_open = TRUE;
    g_cond_signal(&load->opened);
    due = g_get_monotonic_time();
    while (!load->stop) {
        gint64 now = g_get_monotonic_time();
        if (load->requests_per_s > 0 && now >= due) {
            send_request(load);
            due += G_USEC_PER_SEC / load->requests_per_s;
            continue;
        }
        turn(load, load->requests_per_s > 0 ? (int)MAX(1, (due - now) / 1000) : 100);
    }
    g_mutex_unlock(&load->lock);
    return NULL;
}

/* ---- from outside ---- */

HttpLoad *http_load_start(guint16 port, guint watchers, const char *watch_path,
                          guint requests_per_s, const char *path)
{
    HttpLoad *load = g_new0(HttpLoad, 1);

    g_mutex_init(&load->lock);
    g_cond_init(&load->opened);
    load->port = port;
    load->wanted = watchers;
    load->requests_per_s = requests_per_s;
    load->watch_request = request_text(port, watch_path, "Accept: text/event-stream\r\n");
    load->request = request_text(port, path, "");
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    load->connections = g_ptr_array_new_with_free_func(connection_free);
    for (guint i = 0; i < KEPT; i++)
        connection_open(load, connection_new(load, FALSE));
    load->thread = g_thread_new("http-load", run, load);
    g_mutex_lock(&load->lock);
    while (!load->is_open)
        g_cond_wait(&load->opened, &load->lock);
    g_mutex_unlock(&load->lock);
    return load;
}

HttpLoadCounts http_load_counts(HttpLoad *load)
{
    HttpLoadCounts counts;

    g_mutex_lock(&load->lock);
    counts = load->counts;
    g_mutex_unlock(&load->lock);
    return counts;
}

void http_load_stop(HttpLoad *load)
{
    g_mutex_lock(&load->lock);
    load->stop = TRUE;
    g_mutex_unlock(&load->lock);
    g_thread_join(load->thread);
    g_ptr_array_unref(load->connections);
    close(load->epoll);
    g_mutex_clear(&load->lock);
    g_cond_clear(&load->opened);
    g_free(load->watch_request);
    g_free(load->request);
    g_free(load);
}

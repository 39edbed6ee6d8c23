/* See probe_server.h. Who is asked is known by the address that the connection came to; a request is looked at
 * only for where it ends. */
#include "probe_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST   ((127U << 24) + (1U << 16)) /* 127.1.0.0 is node 0 */
#define EVENTS  256
#define BACKLOG 4096
#define REQUEST 4096
#define ANSWER                                                                                    \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"status\":" \
    "\"healthy\"}"

typedef struct {
    int fd;
    guint node;
    guint matched; /* bytes of the empty line that ends a request */
} Connection;

struct ProbeServer {
    GThread *thread;
    GMutex lock; /* of all below but the thread's own */
    guint nodes, one_of;
    guint16 port;
    gboolean stop;
    ProbeCounts counts;
    gint64 *asked_us; /* of each node: when last; 0: not since counting began */
    gint64 slice;     /* the present one, and how many it has */
    guint in_slice;
    /* The thread's own. */
    int listener, wake, epoll;
    GHashTable *connections;
};

/* ---- one request ---- */

static gboolean hangs(const ProbeServer *server, guint node)
{
    return server->one_of > 0 && node % server->one_of == 0;
}

/* TRUE: it shall be answered. */
static gboolean note(ProbeServer *server, guint node)
{
    gint64 now = g_get_monotonic_time(), slice = now / (PROBE_SLICE_MS * 1000);
    ProbeCounts *counts = &server->counts;
    gboolean answer;

    g_mutex_lock(&server->lock);
    answer = !hangs(server, node);
    counts->requests++;
    counts->answered += answer;
    server->in_slice = slice == server->slice ? server->in_slice + 1 : 1;
    server->slice = slice;
    counts->most = MAX(counts->most, server->in_slice);
    if (server->asked_us[node] != 0)
        counts->longest_gap_us = MAX(counts->longest_gap_us, now - server->asked_us[node]);
    counts->asked += server->asked_us[node] == 0;
    server->asked_us[node] = now;
    g_mutex_unlock(&server->lock);
    return answer;
}

/* How many requests end in what has come. */
static guint ends_in(Connection *connection, const char *data, gsize len)
{
    static const char line[] = "\r\n\r\n";
    guint n = 0;

    for (gsize i = 0; i < len; i++) {
        connection->matched = data[i] == line[connection->matched] ? connection->matched + 1
                                                                   : data[i] == line[0];
        if (connection->matched == strlen(line)) {
            connection->matched = 0;
            n++;
        }
    }
    return n;
}

/* FALSE: it is over. */
static gboolean serve(ProbeServer *server, Connection *connection)
{
    char data[REQUEST];
    ssize_t got = recv(connection->fd, data, sizeof data, 0);

    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    for (guint n = ends_in(connection, data, (gsize)got); n > 0; n--)
        if (note(server, connection->node) &&
            send(connection->fd, ANSWER, strlen(ANSWER), MSG_NOSIGNAL) != (ssize_t)strlen(ANSWER))
            return FALSE;
    return TRUE;
}

/* ---- connections ---- */

static void count_open(ProbeServer *server, gboolean more)
{
    g_mutex_lock(&server->lock);
    server->counts.accepted += more;
    server->counts.open = g_hash_table_size(server->connections);
    server->counts.most_open = MAX(server->counts.most_open, server->counts.open);
    g_mutex_unlock(&server->lock);
}

static void connection_free(gpointer data)
{
    Connection *connection = data;

    close(connection->fd);
    g_free(connection);
}

static void accept_all(ProbeServer *server)
{
    int fd;

    while ((fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct sockaddr_in to;
        socklen_t len = sizeof to;
        Connection *connection = g_new0(Connection, 1);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        connection->fd = fd;
        if (getsockname(fd, (struct sockaddr *)&to, &len) == 0)
            connection->node = ntohl(to.sin_addr.s_addr) - FIRST;
        if (connection->node >= server->nodes ||
            epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
            connection_free(connection);
            continue;
        }
        g_hash_table_add(server->connections, connection);
        count_open(server, TRUE);
    }
}

static gboolean stopped(ProbeServer *server)
{
    g_mutex_lock(&server->lock);
    gboolean stop = server->stop;
    g_mutex_unlock(&server->lock);
    return stop;
}

static gpointer run(gpointer data)
{
    ProbeServer *server = data;
    struct epoll_event events[EVENTS];

    while (!stopped(server)) {
        int n = epoll_wait(server->epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &server->wake)
                continue; /* it is to stop */
            if (events[i].data.ptr == &server->listener) {
                accept_all(server);
            } else if (!serve(server, events[i].data.ptr)) {
                g_hash_table_remove(server->connections, events[i].data.ptr);
                count_open(server, FALSE);
            }
        }
    }
    return NULL;
}

/* ---- life ---- */

/* Any address of the loopback device, and of no other. */
static int listen_on_loopback(guint16 *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof "lo") != 0 ||
        bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

static void watch_fd(const ProbeServer *server, int fd, gconstpointer what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = (gpointer)what};

    epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event);
}

ProbeServer *probe_server_new(guint nodes, const char **why)
{
    guint16 port = 0;
    int listener = listen_on_loopback(&port);
    ProbeServer *server;

    if (listener < 0) {
        *why = g_strerror(errno);
        return NULL;
    }
    server = g_new0(ProbeServer, 1);
    server->nodes = nodes;
    server->port = port;
    server->asked_us = g_new0(gint64, nodes);
    server->listener = listener;
    server->wake = eventfd(0, EFD_CLOEXEC);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->connections = g_hash_table_new_full(NULL, NULL, connection_free, NULL);
    g_mutex_init(&server->lock);
    watch_fd(server, server->listener, &server->listener);
    watch_fd(server, server->wake, &server->wake);
    server->thread = g_thread_new("probes", run, server);
    return server;
}

char *probe_server_url(const ProbeServer *server, guint node)
{
    guint at = FIRST + node;

    return g_strdup_printf("http://%u.%u.%u.%u:%u", at >> 24, at >> 16 & 255, at >> 8 & 255,
                           at & 255, server->port);
}

void probe_server_hang(ProbeServer *server, guint one_of)
{
    g_mutex_lock(&server->lock);
    server->one_of = one_of;
    g_mutex_unlock(&server->lock);
}

void probe_server_forget(ProbeServer *server)
{
    g_mutex_lock(&server->lock);
    server->counts = (ProbeCounts){.open = server->counts.open, .most_open = server->counts.open};
    memset(server->asked_us, 0, server->nodes * sizeof *server->asked_us);
    server->in_slice = 0;
    g_mutex_unlock(&server->lock);
}

ProbeCounts probe_server_counts(ProbeServer *server)
{
    g_mutex_lock(&server->lock);
    ProbeCounts counts = server->counts;
    g_mutex_unlock(&server->lock);
    return counts;
}

void probe_server_free(ProbeServer *server)
{
    const guint64 one = 1;

    g_mutex_lock(&server->lock);
    server->stop = TRUE;
    g_mutex_unlock(&server->lock);
    if (write(server->wake, &one, sizeof one) != sizeof one)
        g_error("an eventfd takes no number");
    g_thread_join(server->thread);
    g_hash_table_unref(server->connections);
    close(server->listener);
    close(server->wake);
    close(server->epoll);
    g_mutex_clear(&server->lock);
    g_free(server->asked_us);
    g_free(server);
}

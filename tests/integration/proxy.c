/*
 * See proxy.h. Every connection is a pair of sockets; pieces are passed on as they come. Writes block: both
 * ends are on this machine and read what they are sent.
 */
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (256 * 1024)

typedef struct {
    Proxy *proxy;
    int client, server; /* -1: closed */
    guint client_source, server_source;
    GString *held; /* NULL: passes on */
} Pair;

struct Proxy {
    int fd, port;
    guint source;
    guint16 etcd_port;
    char *endpoint, *marker;
    GPtrArray *pairs;
    Pair *holding;
    gboolean released;
    gsize answered;
};

static struct sockaddr_in loopback(guint16 port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void close_side(int *fd, guint *source)
{
    if (*source != 0)
        g_source_remove(*source);
    *source = 0;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void pair_free(gpointer data)
{
    Pair *pair = data;

    close_side(&pair->client, &pair->client_source);
    close_side(&pair->server, &pair->server_source);
    if (pair->held != NULL)
        g_string_free(pair->held, TRUE);
    g_free(pair);
}

static gboolean send_all(int fd, const char *data, gsize len)
{
    while (len > 0) {
        gssize n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return FALSE;
        data += n;
        len -= (gsize)n;
    }
    return TRUE;
}

static gboolean on_client(gint fd, GIOCondition condition, gpointer data)
{
    Pair *pair = data;
    Proxy *proxy = pair->proxy;
    g_autofree char *piece = g_malloc(PIECE);
    gssize n = recv(fd, piece, PIECE, 0);

    if (n <= 0) {
        /* The other side of a held connection stays: what is held is still to be delivered. */
        pair->client_source = 0;
        close_side(&pair->client, &pair->client_source);
        if (pair->held == NULL)
            close_side(&pair->server, &pair->server_source);
        return G_SOURCE_REMOVE;
    }
    if (pair->held == NULL && proxy->marker != NULL && proxy->holding == NULL &&
        memmem(piece, (gsize)n, proxy->marker, strlen(proxy->marker)) != NULL) {
        pair->held = g_string_new(NULL);
        proxy->holding = pair;
    }
    if (pair->held != NULL)
        g_string_append_len(pair->held, piece, n);
    else if (pair->server < 0 || !send_all(pair->server, piece, (gsize)n))
        close_side(&pair->server, &pair->server_source);
    return G_SOURCE_CONTINUE;
}

static gboolean on_server(gint fd, GIOCondition condition, gpointer data)
{
    Pair *pair = data;
    Proxy *proxy = pair->proxy;
    g_autofree char *piece = g_malloc(PIECE);
    gssize n = recv(fd, piece, PIECE, 0);

    if (n <= 0) {
        pair->server_source = 0;
        close_side(&pair->server, &pair->server_source);
        close_side(&pair->client, &pair->client_source);
        return G_SOURCE_REMOVE;
    }
    if (pair == proxy->holding && proxy->released)
        proxy->answered += (gsize)n;
    if (pair->client >= 0)
        send_all(pair->client, piece, (gsize)n);
    return G_SOURCE_CONTINUE;
}

static gboolean on_connection(gint fd, GIOCondition condition, gpointer data)
{
    Proxy *proxy = data;
    struct sockaddr_in etcd = loopback(proxy->etcd_port);
    Pair *pair = g_new0(Pair, 1);

    pair->proxy = proxy;
    pair->client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    pair->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pair->client < 0 || connect(pair->server, (struct sockaddr *)&etcd, sizeof etcd) != 0) {
        pair_free(pair);
        return G_SOURCE_CONTINUE;
    }
    pair->client_source = g_unix_fd_add(pair->client, G_IO_IN | G_IO_HUP | G_IO_ERR, on_client,
                                        pair);
    pair->server_source = g_unix_fd_add(pair->server, G_IO_IN | G_IO_HUP | G_IO_ERR, on_server,
                                        pair);
    g_ptr_array_add(proxy->pairs, pair);
    return G_SOURCE_CONTINUE;
}

Proxy *proxy_new(const char *endpoint)
{
    Proxy *proxy = g_new0(Proxy, 1);
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;

    proxy->etcd_port = (guint16)g_ascii_strtoull(strrchr(endpoint, ':') + 1, NULL, 10);
    proxy->pairs = g_ptr_array_new_with_free_func(pair_free);
    proxy->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert(bind(proxy->fd, (struct sockaddr *)&address, sizeof address) == 0);
    g_assert(listen(proxy->fd, 16) == 0);
    g_assert(getsockname(proxy->fd, (struct sockaddr *)&address, &len) == 0);
    proxy->endpoint = g_strdup_printf("127.0.0.1:%d", ntohs(address.sin_port));
    proxy->source = g_unix_fd_add(proxy->fd, G_IO_IN, on_connection, proxy);
    return proxy;
}

void proxy_free(Proxy *proxy)
{
    if (proxy == NULL)
        return;
    close_side(&proxy->fd, &proxy->source);
    g_ptr_array_unref(proxy->pairs);
    g_free(proxy->endpoint);
    g_free(proxy->marker);
    g_free(proxy);
}

const char *proxy_endpoint(const Proxy *proxy)
{
    return proxy->endpoint;
}

void proxy_hold(Proxy *proxy, const char *marker)
{
    g_free(proxy->marker);
    proxy->marker = g_strdup(marker);
}

gboolean proxy_is_holding(const Proxy *proxy)
{
    return proxy->holding != NULL;
}

void proxy_cut(Proxy *proxy)
{
    close_side(&proxy->holding->client, &proxy->holding->client_source);
}

void proxy_release(Proxy *proxy)
{
    Pair *pair = proxy->holding;

    proxy->released = TRUE;
    g_assert(send_all(pair->server, pair->held->str, pair->held->len));
    g_string_truncate(pair->held, 0);
}

gsize proxy_answered(const Proxy *proxy)
{
    return proxy->answered;
}

/*
 * One thread with a main context of its own; each connection is a pair of sockets. Writes block: both
 * ends are on this machine and read what they are sent. What functions and the thread share is under one
 * lock, which the thread holds while it handles a piece.
 */
#include "relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE       (64 * 1024)
#define FIRST_WORDS 4096

typedef struct {
    Relay *relay;
    int client, server; /* -1: ended */
    GSource *client_source, *server_source;
    GString *words; /* the first of the client */
    gboolean muted;
} Pair;

struct Relay {
    int fd;
    guint16 port, server_port;
    GThread *thread;
    GMainContext *context;
    GMainLoop *loop;
    GSource *source;
    GMutex lock;
    GPtrArray *pairs;
    char *mute, *refuse;
    gsize withheld;
    guint seen;
};

static struct sockaddr_in loopback(guint16 port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void close_side(int *fd, GSource **source)
{
    if (*source != NULL) {
        g_source_destroy(*source);
        g_clear_pointer(source, g_source_unref);
    }
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void close_pair(Pair *pair)
{
    close_side(&pair->client, &pair->client_source);
    close_side(&pair->server, &pair->server_source);
}

static void pair_free(gpointer data)
{
    Pair *pair = data;
    close_pair(pair);
    g_string_free(pair->words, TRUE);
    g_free(pair);
}

static gboolean send_all(int fd, const char *data, gsize len)
{
    while (len > 0) {
        gssize n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return FALSE;
        }
        data += n;
        len -= (gsize)n;
    }
    return TRUE;
}

static gboolean holds(const char *data, gsize len, const char *marker)
{
    return marker != NULL && memmem(data, len, marker, strlen(marker)) != NULL;
}

/* ---- the thread ---- */

/* 0: the connection has ended. */
static gssize receive(int fd, char *piece)
{
    gssize n;
    do {
        n = recv(fd, piece, PIECE, 0);
    } while (n < 0 && errno == EINTR);
    return MAX(n, 0);
}

static void from_client(Pair *pair)
{
    Relay *relay = pair->relay;
    g_autofree char *piece = g_malloc(PIECE);
    gssize n = receive(pair->client, piece);
    if (pair->words->len < FIRST_WORDS) {
        g_string_append_len(pair->words, piece, MIN(n, FIRST_WORDS));
    }
    if (holds(piece, (gsize)n, relay->mute)) {
        pair->muted = TRUE;
        relay->seen++;
    }
    if (n == 0 || holds(pair->words->str, pair->words->len, relay->refuse) ||
        !send_all(pair->server, piece, (gsize)n)) {
        close_pair(pair);
    }
}

static void from_server(Pair *pair)
{
    g_autofree char *piece = g_malloc(PIECE);
    gssize n = receive(pair->server, piece);
    if (n > 0 && pair->muted) {
        pair->relay->withheld += (gsize)n;
    } else if (n == 0 || !send_all(pair->client, piece, (gsize)n)) {
        close_pair(pair);
    }
}

static gboolean on_readable(gint fd, GIOCondition condition, gpointer data)
{
    Pair *pair = data;
    Relay *relay = pair->relay;
    (void)condition;
    g_mutex_lock(&relay->lock);
    if (fd == pair->client) {
        from_client(pair);
    } else if (fd == pair->server) {
        from_server(pair);
    }
    g_mutex_unlock(&relay->lock);
    return G_SOURCE_CONTINUE;
}

static GSource *watch(Relay *relay, int fd, GUnixFDSourceFunc func, gpointer data)
{
    GSource *source = g_unix_fd_source_new(fd, G_IO_IN | G_IO_HUP | G_IO_ERR);
    g_source_set_callback(source, G_SOURCE_FUNC(func), data, NULL);
    g_source_attach(source, relay->context);
    return source;
}

static gboolean on_connection(gint fd, GIOCondition condition, gpointer data)
{
    Relay *relay = data;
    struct sockaddr_in server = loopback(relay->server_port);
    Pair *pair = g_new0(Pair, 1);
    (void)condition;
    g_mutex_lock(&relay->lock);
    pair->relay = relay;
    pair->words = g_string_new(NULL);
    pair->client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    pair->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pair->client < 0 || g_strcmp0(relay->refuse, "") == 0 ||
        connect(pair->server, (struct sockaddr *)&server, sizeof(server)) != 0) {
        pair_free(pair);
    } else {
        pair->client_source = watch(relay, pair->client, on_readable, pair);
        pair->server_source = watch(relay, pair->server, on_readable, pair);
        g_ptr_array_add(relay->pairs, pair);
    }
    g_mutex_unlock(&relay->lock);
    return G_SOURCE_CONTINUE;
}

static gpointer run(gpointer data)
{
    Relay *relay = data;
    g_main_context_push_thread_default(relay->context);
    g_main_loop_run(relay->loop);
    g_main_context_pop_thread_default(relay->context);
    return NULL;
}

/* ---- its user's ---- */

Relay *relay_new(guint16 server_port)
{
    Relay *relay = g_new0(Relay, 1);
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof(address);
    g_mutex_init(&relay->lock);
    relay->server_port = server_port;
    relay->pairs = g_ptr_array_new_with_free_func(pair_free);
    relay->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert(bind(relay->fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    g_assert(listen(relay->fd, 64) == 0);
    g_assert(getsockname(relay->fd, (struct sockaddr *)&address, &len) == 0);
    relay->port = ntohs(address.sin_port);
    relay->context = g_main_context_new();
    relay->loop = g_main_loop_new(relay->context, FALSE);
    relay->source = watch(relay, relay->fd, on_connection, relay);
    relay->thread = g_thread_new("relay", run, relay);
    return relay;
}

static gboolean on_end(gpointer data)
{
    g_main_loop_quit(((Relay *)data)->loop);
    return G_SOURCE_REMOVE;
}

void relay_free(Relay *relay)
{
    if (relay == NULL) {
        return;
    }
    /* By its own loop: one that does not run yet would not hear of a quit. */
    GSource *end = g_idle_source_new();
    g_source_set_callback(end, on_end, relay, NULL);
    g_source_attach(end, relay->context);
    g_source_unref(end);
    g_thread_join(relay->thread);
    close_side(&relay->fd, &relay->source);
    g_ptr_array_unref(relay->pairs);
    g_main_loop_unref(relay->loop);
    g_main_context_unref(relay->context);
    g_mutex_clear(&relay->lock);
    g_free(relay->mute);
    g_free(relay->refuse);
    g_free(relay);
}

guint16 relay_port(const Relay *relay)
{
    return relay->port;
}

void relay_mute(Relay *relay, const char *marker)
{
    g_mutex_lock(&relay->lock);
    g_free(relay->mute);
    relay->mute = g_strdup(marker);
    g_mutex_unlock(&relay->lock);
}

gsize relay_withheld(Relay *relay)
{
    g_mutex_lock(&relay->lock);
    gsize n = relay->withheld;
    g_mutex_unlock(&relay->lock);
    return n;
}

guint relay_seen(Relay *relay)
{
    g_mutex_lock(&relay->lock);
    guint n = relay->seen;
    g_mutex_unlock(&relay->lock);
    return n;
}

void relay_cut_muted(Relay *relay)
{
    g_mutex_lock(&relay->lock);
    for (guint i = 0; i < relay->pairs->len; i++) {
        Pair *pair = relay->pairs->pdata[i];
        if (pair->muted) {
            close_pair(pair);
        }
    }
    g_mutex_unlock(&relay->lock);
}

void relay_refuse(Relay *relay, const char *marker)
{
    g_mutex_lock(&relay->lock);
    g_free(relay->refuse);
    relay->refuse = g_strdup(marker);
    for (guint i = 0; i < relay->pairs->len; i++) {
        Pair *pair = relay->pairs->pdata[i];
        if (holds(pair->words->str, pair->words->len, marker)) {
            close_pair(pair);
        }
    }
    g_mutex_unlock(&relay->lock);
}

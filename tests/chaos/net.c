/*
 * See net.h. One thread polls all sockets, which do not block; a connection has two flows, each a queue of
 * pieces with the time at which they are due. What functions and the thread share is under one lock, which
 * the thread holds whenever it does not wait.
 */
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE     (32 * 1024)
#define MOST      (1024 * 1024) /* queued in one flow; then its sender waits */
#define TO_SERVER 0
#define TO_CLIENT 1

typedef struct {
    gint64 due_us;
    gsize len, sent;
    char data[];
} Piece;

typedef struct {
    GQueue pieces;
    gsize queued;
    gboolean held;     /* its sender has been found waiting in this hold */
    gboolean ended;    /* nothing more comes */
    short wants;       /* what the last poll asked: POLLIN of the source */
    guint read, write; /* places in the poll array; 0: none */
} Flow;

typedef struct {
    int fds[2]; /* client, server */
    Flow flows[2];
    gboolean spoiled; /* bytes of it were lost */
    gsize passed;     /* bytes of the server since the truncation began */
    gboolean dead;
} Pair;

struct Link {
    Net *net;
    int fd;
    guint16 port, server_port;
    const char *server_address;
    guint place; /* in the poll array */
    GPtrArray *pairs;
    gint64 delay_us[2];
    gboolean hold[2], drop[2], refuse;
    char *answer;
    gssize truncate; /* -1: no */
    guint64 touched;
};

struct Net {
    GThread *thread;
    GMutex lock;
    GPtrArray *links;
    int wake[2];
    gboolean ending;
};

/* ---- sockets ---- */

static void set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL, 0);
    g_assert(flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

static struct sockaddr_in address_of(const char *address, guint16 port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    g_assert(inet_pton(AF_INET, address, &in.sin_addr) == 1);
    return in;
}

static void pair_free(gpointer data)
{
    Pair *pair = data;
    for (guint i = 0; i < 2; i++) {
        if (pair->fds[i] >= 0) {
            close(pair->fds[i]);
        }
        g_queue_clear_full(&pair->flows[i].pieces, g_free);
    }
    g_free(pair);
}

/* Blocks no longer than a connection on loopback takes. */
static int connect_to(const char *address, guint16 port)
{
    struct sockaddr_in in = address_of(address, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert(fd >= 0);
    if (connect(fd, (struct sockaddr *)&in, sizeof(in)) != 0) {
        close(fd);
        return -1;
    }
    set_nonblocking(fd);
    return fd;
}

static void accept_one(Link *link)
{
    int client = accept4(link->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) {
        return;
    }
    link->touched += link->refuse;
    int server = link->refuse ? -1 : connect_to(link->server_address, link->server_port);
    if (server < 0) {
        close(client);
        return;
    }
    Pair *pair = g_new0(Pair, 1);
    pair->fds[0] = client;
    pair->fds[1] = server;
    g_queue_init(&pair->flows[0].pieces);
    g_queue_init(&pair->flows[1].pieces);
    g_ptr_array_add(link->pairs, pair);
}

/* ---- flows ---- */

static void answer_it(Link *link, Pair *pair)
{
    link->touched++;
    /* The client's socket is empty but for what it waits for: this fits. */
    if (send(pair->fds[0], link->answer, strlen(link->answer), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        pair->spoiled = TRUE;
    }
    pair->dead = TRUE;
}

/* How much of @n bytes of the server still come. */
static gsize cut_short(Link *link, Pair *pair, gsize n)
{
    if (link->truncate < 0) {
        return n;
    }
    gsize left = (gsize)link->truncate > pair->passed ? (gsize)link->truncate - pair->passed : 0;
    pair->passed += n;
    if (n <= left) {
        return n;
    }
    link->touched++;
    pair->flows[TO_CLIENT].ended = TRUE;
    return left;
}

static void take(Link *link, Pair *pair, guint direction)
{
    Flow *flow = &pair->flows[direction];
    char data[PIECE];
    ssize_t n = recv(pair->fds[direction == TO_SERVER ? 0 : 1], data, sizeof(data), 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n <= 0) {
        flow->ended = TRUE;
        return;
    }
    if (direction == TO_SERVER && link->answer != NULL) {
        answer_it(link, pair);
        return;
    }
    if (link->drop[direction]) {
        pair->spoiled = TRUE;
        link->touched++;
        return;
    }
    gsize len = direction == TO_CLIENT ? cut_short(link, pair, (gsize)n) : (gsize)n;
    if (len == 0) {
        return;
    }
    Piece *piece = g_malloc(sizeof(Piece) + len);
    *piece = (Piece){.due_us = g_get_monotonic_time() + link->delay_us[direction], .len = len};
    memcpy(piece->data, data, len);
    link->touched += link->delay_us[direction] > 0;
    g_queue_push_tail(&flow->pieces, piece);
    flow->queued += len;
}

static void give(Pair *pair, guint direction, gint64 now_us)
{
    Flow *flow = &pair->flows[direction];
    Piece *piece;
    while ((piece = g_queue_peek_head(&flow->pieces)) != NULL && piece->due_us <= now_us) {
        ssize_t n = send(pair->fds[direction == TO_SERVER ? 1 : 0], piece->data + piece->sent,
                         piece->len - piece->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n < 0) {
            pair->dead = TRUE;
            return;
        }
        piece->sent += (gsize)n;
        flow->queued -= (gsize)n;
        if (piece->sent == piece->len) {
            g_free(g_queue_pop_head(&flow->pieces));
        }
    }
}

/* Either side has ended, and all that it sent has been passed on. */
static gboolean is_over(const Link *link, const Pair *pair)
{
    for (guint i = 0; i < 2; i++) {
        if (pair->flows[i].ended && !link->hold[i] && pair->flows[i].queued == 0) {
            return TRUE;
        }
    }
    return pair->dead;
}

/* ---- the thread ---- */

typedef struct {
    GArray *polls; /* struct pollfd */
    gint64 next_us;
} Round;

static guint ask(Round *round, int fd, short events)
{
    struct pollfd one = {.fd = fd, .events = events};
    g_array_append_val(round->polls, one);
    return round->polls->len - 1;
}

static void ask_flow(Round *round, Link *link, Pair *pair, guint direction, gint64 now_us)
{
    Flow *flow = &pair->flows[direction];
    const Piece *piece = g_queue_peek_head(&flow->pieces);
    flow->read = flow->write = 0;
    if (!flow->ended && flow->queued < MOST && !(link->hold[direction] && flow->held)) {
        flow->read = ask(round, pair->fds[direction == TO_SERVER ? 0 : 1], POLLIN);
    }
    if (piece == NULL || link->hold[direction]) {
        return;
    }
    if (piece->due_us <= now_us) {
        flow->write = ask(round, pair->fds[direction == TO_SERVER ? 1 : 0], POLLOUT);
    } else {
        round->next_us = MIN(round->next_us, piece->due_us);
    }
}

static gboolean is_set(const Round *round, guint place)
{
    return place != 0 && g_array_index(round->polls, struct pollfd, place).revents != 0;
}

static void act_flow(Round *round, Link *link, Pair *pair, guint direction, gint64 now_us)
{
    Flow *flow = &pair->flows[direction];
    if (is_set(round, flow->read) && !pair->dead) {
        if (link->hold[direction]) {
            /* That it is held is proved; what it sends stays in its socket. */
            flow->held = TRUE;
            link->touched++;
        } else {
            take(link, pair, direction);
        }
    }
    if (!link->hold[direction] && !pair->dead && (flow->write == 0 || is_set(round, flow->write))) {
        give(pair, direction, now_us);
    }
}

static void ask_all(Net *net, Round *round, gint64 now_us)
{
    g_array_set_size(round->polls, 0);
    round->next_us = now_us + G_USEC_PER_SEC;
    ask(round, net->wake[0], POLLIN);
    for (guint i = 0; i < net->links->len; i++) {
        Link *link = net->links->pdata[i];
        link->place = ask(round, link->fd, POLLIN);
        for (guint j = 0; j < link->pairs->len; j++) {
            for (guint d = 0; d < 2; d++) {
                ask_flow(round, link, link->pairs->pdata[j], d, now_us);
            }
        }
    }
}

static void act_all(Net *net, Round *round, guint known, gint64 now_us)
{
    for (guint i = 0; i < known; i++) {
        Link *link = net->links->pdata[i];
        for (guint j = link->pairs->len; j > 0; j--) {
            Pair *pair = link->pairs->pdata[j - 1];
            act_flow(round, link, pair, TO_SERVER, now_us);
            act_flow(round, link, pair, TO_CLIENT, now_us);
            if (is_over(link, pair)) {
                g_ptr_array_remove_index(link->pairs, j - 1);
            }
        }
        if (is_set(round, link->place)) {
            accept_one(link);
        }
    }
}

static gpointer run(gpointer data)
{
    Net *net = data;
    Round round = {.polls = g_array_new(FALSE, TRUE, sizeof(struct pollfd))};
    g_mutex_lock(&net->lock);
    while (!net->ending) {
        gint64 now_us = g_get_monotonic_time();
        guint known = net->links->len;
        char rest[64];
        ask_all(net, &round, now_us);
        g_mutex_unlock(&net->lock);
        gint64 wait_ms = (round.next_us - now_us) / 1000 + 1;
        poll((struct pollfd *)(void *)round.polls->data, round.polls->len, (int)wait_ms);
        while (read(net->wake[0], rest, sizeof(rest)) > 0) {
        }
        g_mutex_lock(&net->lock);
        act_all(net, &round, known, g_get_monotonic_time());
    }
    g_mutex_unlock(&net->lock);
    g_array_unref(round.polls);
    return NULL;
}

/* ---- its user's ---- */

static void link_free(gpointer data)
{
    Link *link = data;
    close(link->fd);
    g_ptr_array_unref(link->pairs);
    g_free(link->answer);
    g_free(link);
}

Net *net_new(void)
{
    Net *net = g_new0(Net, 1);
    g_mutex_init(&net->lock);
    net->links = g_ptr_array_new_with_free_func(link_free);
    g_assert(pipe2(net->wake, O_CLOEXEC | O_NONBLOCK) == 0);
    net->thread = g_thread_new("net", run, net);
    return net;
}

/* Locked; the thread looks at everything anew. */
static void wake(Net *net)
{
    char byte = 0;
    if (write(net->wake[1], &byte, 1) < 0) {
        g_assert(errno == EAGAIN); /* it has enough to wake up for */
    }
}

void net_free(Net *net)
{
    if (net == NULL) {
        return;
    }
    g_mutex_lock(&net->lock);
    net->ending = TRUE;
    wake(net);
    g_mutex_unlock(&net->lock);
    g_thread_join(net->thread);
    g_ptr_array_unref(net->links);
    close(net->wake[0]);
    close(net->wake[1]);
    g_mutex_clear(&net->lock);
    g_free(net);
}

Link *net_link(Net *net, const char *address, guint16 server_port)
{
    struct sockaddr_in in = address_of(address, 0);
    socklen_t len = sizeof(in);
    Link *link = g_new0(Link, 1);
    link->net = net;
    link->server_port = server_port;
    link->server_address = "127.0.0.1";
    link->truncate = -1;
    link->pairs = g_ptr_array_new_with_free_func(pair_free);
    link->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    g_assert(bind(link->fd, (struct sockaddr *)&in, sizeof(in)) == 0);
    g_assert(listen(link->fd, 64) == 0);
    g_assert(getsockname(link->fd, (struct sockaddr *)&in, &len) == 0);
    link->port = ntohs(in.sin_port);
    g_mutex_lock(&net->lock);
    g_ptr_array_add(net->links, link);
    wake(net);
    g_mutex_unlock(&net->lock);
    return link;
}

guint16 link_port(const Link *link)
{
    return link->port;
}

static void change(Link *link)
{
    g_mutex_lock(&link->net->lock);
}

static void changed(Link *link)
{
    wake(link->net);
    g_mutex_unlock(&link->net->lock);
}

void link_to(Link *link, const char *address, guint16 port)
{
    change(link);
    link->server_address = address;
    link->server_port = port;
    changed(link);
}

void link_delay(Link *link, guint directions, gint64 ms)
{
    change(link);
    for (guint d = 0; d < 2; d++) {
        link->delay_us[d] = (directions & (1U << d)) != 0 ? ms * 1000 : 0;
    }
    changed(link);
}

void link_hold(Link *link, guint directions)
{
    change(link);
    for (guint d = 0; d < 2; d++) {
        link->hold[d] = (directions & (1U << d)) != 0;
    }
    changed(link);
}

void link_drop(Link *link, guint directions)
{
    change(link);
    for (guint d = 0; d < 2; d++) {
        link->drop[d] = (directions & (1U << d)) != 0;
    }
    changed(link);
}

void link_refuse(Link *link)
{
    change(link);
    link->refuse = TRUE;
    link->touched += link->pairs->len;
    g_ptr_array_set_size(link->pairs, 0);
    changed(link);
}

void link_answer(Link *link, const char *text)
{
    change(link);
    g_free(link->answer);
    link->answer = g_strdup(text);
    changed(link);
}

void link_truncate(Link *link, gsize bytes)
{
    change(link);
    link->truncate = (gssize)bytes;
    for (guint i = 0; i < link->pairs->len; i++) {
        ((Pair *)link->pairs->pdata[i])->passed = 0;
    }
    changed(link);
}

void link_heal(Link *link)
{
    change(link);
    for (guint d = 0; d < 2; d++) {
        link->delay_us[d] = 0;
        link->hold[d] = link->drop[d] = FALSE;
    }
    link->refuse = FALSE;
    g_clear_pointer(&link->answer, g_free);
    link->truncate = -1;
    link->touched = 0;
    for (guint i = link->pairs->len; i > 0; i--) {
        Pair *pair = link->pairs->pdata[i - 1];
        pair->flows[0].held = pair->flows[1].held = FALSE;
        if (pair->spoiled) {
            g_ptr_array_remove_index(link->pairs, i - 1);
        }
    }
    changed(link);
}

guint64 link_touched(Link *link)
{
    g_mutex_lock(&link->net->lock);
    guint64 n = link->touched;
    g_mutex_unlock(&link->net->lock);
    return n;
}

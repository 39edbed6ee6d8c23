/*
 * Connections: their deadlines, and noticing that the peer has gone.
 *
 * A connection waits for a complete request at most HTTP_REQUEST_TIMEOUT_MS, however busily it
 * trickles. libmicrohttpd does not look at suspended connections; an epoll set of our own does,
 * edge-triggered, and only for the peer's end.
 *
 * It does not notice either that a TLS handshake has to wait for its peer, but tries again and again
 * without a pause. So handshakes are suspended ("parked") whenever it has run, and resumed when our
 * epoll set says that there is something for them.
 */
#include "http/internal.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Also says it anew when that is so already. */
static void watch(LhHttpConnection *connection, int op, guint32 events)
{
    struct epoll_event event = {.events = events | EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    epoll_ctl(connection->server->hangup_fd, op, connection->fd, &event);
}

static void handshake_add(LhHttpConnection *connection)
{
    connection->handshake_on = TRUE;
    g_queue_push_tail_link(&connection->server->handshakes, &connection->handshake_link);
}

static void handshake_remove(LhHttpConnection *connection)
{
    if (connection->handshake_on) {
        connection->handshake_on = FALSE;
        g_queue_unlink(&connection->server->handshakes, &connection->handshake_link);
    }
}

static void unpark(LhHttpConnection *connection)
{
    if (connection->parked) {
        connection->parked = FALSE;
        watch(connection, EPOLL_CTL_MOD, 0);
        handshake_add(connection);
        lh_http_connection_resume(connection);
    }
}

void lh_http_handshakes_park(LhHttpServer *server)
{
    GList *head;
    while ((head = server->handshakes.head) != NULL) {
        LhHttpConnection *connection = head->data;
        handshake_remove(connection);
        if (!connection->handshaken) {
            connection->parked = TRUE;
            MHD_suspend_connection(connection->connection);
            watch(connection, EPOLL_CTL_MOD,
                  lh_tls_wants_write(connection->session) ? EPOLLOUT : EPOLLIN);
        }
    }
}

void lh_http_connection_cut(LhHttpConnection *connection)
{
    connection->cut = TRUE;
    shutdown(connection->fd, SHUT_RDWR);
    unpark(connection);
}

/* Without threads, libmicrohttpd does not make its epoll descriptor readable for this. */
void lh_http_connection_resume(LhHttpConnection *connection)
{
    connection->server->again = TRUE;
    MHD_resume_connection(connection->connection);
}

static void deadline_arm(LhHttpServer *server);

static void connection_expire(LhHttpConnection *connection)
{
    static const char reply[] = "HTTP/1.1 408 Request Timeout\r\n"
                                "Connection: close\r\nContent-Length: 0\r\n\r\n";
    /* Nothing else is being written: the previous reply is complete, this one has not begun. */
    if (connection->target != NULL) {
        if (connection->session != NULL) {
            lh_tls_send(connection->session, reply, sizeof reply - 1);
        } else {
            ssize_t sent = send(connection->fd, reply, sizeof reply - 1,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
            (void)sent;
        }
    }
    lh_http_connection_cut(connection);
}

void lh_http_connection_stop_waiting(LhHttpConnection *connection)
{
    if (connection->waiting) {
        connection->waiting = FALSE;
        g_queue_unlink(&connection->server->waiting, &connection->waiting_link);
    }
}

void lh_http_connection_wait(LhHttpConnection *connection)
{
    LhHttpServer *server = connection->server;
    gint64 timeout_ms = connection->peer_closed ? HTTP_CLOSED_TIMEOUT_MS : HTTP_REQUEST_TIMEOUT_MS;
    lh_http_connection_stop_waiting(connection);
    connection->waiting = TRUE;
    connection->deadline_ms = lh_mono_ms(server->env) + timeout_ms;
    GList *before = connection->peer_closed ? server->waiting.head : NULL;
    while (before != NULL &&
           ((LhHttpConnection *)before->data)->deadline_ms <= connection->deadline_ms) {
        before = before->next;
    }
    g_queue_insert_before_link(&server->waiting, before, &connection->waiting_link);
    deadline_arm(server);
}

static void on_deadline(gpointer data)
{
    LhHttpServer *server = data;
    server->deadline_timer = NULL;
    gint64 now = lh_mono_ms(server->env);
    GList *head;
    while ((head = server->waiting.head) != NULL &&
           ((LhHttpConnection *)head->data)->deadline_ms <= now) {
        LhHttpConnection *connection = head->data;
        lh_http_connection_stop_waiting(connection);
        connection_expire(connection);
    }
    deadline_arm(server);
}

/* The queue is in the order of deadlines. A timer that comes too early does no harm. */
static void deadline_arm(LhHttpServer *server)
{
    GList *head = server->waiting.head;
    gint64 deadline_ms = head != NULL ? ((LhHttpConnection *)head->data)->deadline_ms : 0;
    if (head != NULL && deadline_ms < server->deadline_timer_ms) {
        lh_timer_clear(server->env, &server->deadline_timer);
    }
    if (head != NULL && server->deadline_timer == NULL) {
        server->deadline_timer_ms = deadline_ms;
        server->deadline_timer = lh_timer_at(server->env, deadline_ms, on_deadline, server);
    }
}

void lh_http_on_connection(void *data, struct MHD_Connection *mhd, void **context,
                           enum MHD_ConnectionNotificationCode code)
{
    LhHttpServer *server = data;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        LhHttpConnection *connection = g_new0(LhHttpConnection, 1);
        connection->server = server;
        connection->connection = mhd;
        connection->fd =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        if (server->tls != NULL) {
            connection->session =
                MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session;
            lh_tls_refresh(server->tls, lh_mono_ms(server->env));
            connection->credentials = lh_tls_begin(server->tls, connection->session,
                                                   &connection->handshaken);
            connection->handshake_link.data = connection;
            handshake_add(connection);
        }
        connection->link.data = connection->waiting_link.data = connection;
        g_queue_push_tail_link(&server->connections, &connection->link);
        watch(connection, EPOLL_CTL_ADD, 0);
        *context = connection;
        lh_http_connection_wait(connection);
        return;
    }
    LhHttpConnection *connection = *context;
    /* At its limit libmicrohttpd does not listen, and it begins again only when it runs. */
    server->again = TRUE;
    lh_http_connection_stop_waiting(connection);
    handshake_remove(connection);
    g_queue_unlink(&server->connections, &connection->link);
    lh_tls_credentials_unref(connection->credentials);
    lh_tls_peer_clear(&connection->peer);
    g_free(connection->target);
    g_free(connection);
}

LhHttpConnection *lh_http_connection_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

void lh_http_connection_lost(LhHttpConnection *connection)
{
    LhHttpRequest *request = connection->request;
    connection->peer_closed = TRUE;
    if (connection->waiting) {
        /* What it had still sent may make a request. libmicrohttpd does not always see the end when
         * it came together with data. */
        lh_http_connection_wait(connection);
    }
    if (request == NULL) {
        return;
    }
    if (request->stream != NULL) {
        if (request->stream->suspended) {
            lh_http_stream_kill(request->stream);
        }
    } else if (request->state == REQUEST_HANDLING && request->suspended) {
        request->suspended = FALSE;
        lh_http_connection_resume(connection);
        lh_http_request_gone(request);
    }
}

void lh_http_hangups_read(LhHttpServer *server)
{
    struct epoll_event events[64];
    int n = epoll_wait(server->hangup_fd, events, G_N_ELEMENTS(events), 0);
    for (int i = 0; i < n; i++) {
        LhHttpConnection *connection = events[i].data.ptr;
        unpark(connection);
        if ((events[i].events & ~(guint32)(EPOLLIN | EPOLLOUT)) != 0) {
            lh_http_connection_lost(connection);
        }
    }
}

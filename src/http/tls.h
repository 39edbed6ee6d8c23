/*
 * TLS for the server: our certificate, the authority of clients, and who a client's certificate says
 * that it is. GnuTLS, because libmicrohttpd's sessions are; nothing else includes it.
 *
 * A client may show a certificate or not; the handshake accepts any, and each request is checked
 * against the authority as it is then. New sessions get the credentials of that moment and hold them
 * until they end. Loop thread.
 */
#pragma once

#include "http/auth.h"

#include <glib.h>

typedef struct LhTls LhTls;
typedef struct LhTlsCredentials LhTlsCredentials; /* what one session was begun with */

/* TLS 1.2 and 1.3, authenticated encryption or CBC, always with forward secrecy. */
#define LH_TLS_PRIORITIES "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:%SERVER_PRECEDENCE"

/* @client_ca may be NULL. Errors: LH_ERR_INVALID with setting and file. */
LhTls *lh_tls_new(const char *cert, const char *key, const char *client_ca, GError **error);
/* Sessions may outlive it. Accepts NULL. */
void lh_tls_free(LhTls *tls);
/* Looks at the files, if it has not for LH_WATCHED_PERIOD_MS; what is not good is logged, once, and the
 * last good stays. */
void lh_tls_refresh(LhTls *tls, gint64 now_ms);

/* Before the handshake; @session is a gnutls_session_t. For lh_tls_credentials_unref. *@done, which must
 * last as long as the session, becomes TRUE when all of the client's part has come. */
LhTlsCredentials *lh_tls_begin(LhTls *tls, gpointer session, gboolean *done);
/* An interrupted handshake goes on when its socket is writable (FALSE: readable). */
gboolean lh_tls_wants_write(gpointer session);
void lh_tls_credentials_unref(LhTlsCredentials *credentials); /* accepts NULL */
/* After the handshake; as much as goes out at once. */
void lh_tls_send(gpointer session, const char *data, gsize len);

typedef struct {
    char *name;      /* NULL: no certificate, or not a good one */
    LhRole role;     /* LH_ROLE_ANYONE without a name */
    const char *why; /* it is not good; NULL: it is, or there is none; static */
    guint generation;
    gint64 until_ms; /* looked at again after it, and when the authority changes */
} LhTlsPeer;

/* Brings @peer (zeroed before the first call) up to date. */
void lh_tls_peer_update(LhTls *tls, gpointer session, gint64 now_ms, LhTlsPeer *peer);
void lh_tls_peer_clear(LhTlsPeer *peer);

/* For libmicrohttpd, which wants to know a certificate before there is a session: gives none. */
int lh_tls_no_certificate(void);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhTls, lh_tls_free)

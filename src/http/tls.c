/*
 * TLS with GnuTLS; see tls.h.
 *
 * The certificate with its key, and the authority, are replaced independently of each other: a broken
 * certificate must not keep a withdrawn authority in force. Each session's credentials are built from
 * both. The server must not decide what a peer's bytes mean beyond its subject.
 */
#include "http/tls.h"

#include "base/errors.h"
#include "http/watched.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>

#define MAX_CHAIN       10
#define MAX_NAME_BYTES  256
#define PEER_PERIOD_MS  10000 /* a certificate may expire while its connection lasts */
#define ROLE_PREFIX     "leasehold:"
#define VERIFY_STRENGTH GNUTLS_PROFILE_TO_VFLAGS(GNUTLS_PROFILE_MEDIUM)

struct LhTlsCredentials {
    guint refs;
    gnutls_certificate_credentials_t handle;
};

struct LhTls {
    LhWatched cert, key, ca;
    char *cert_text, *key_text, *ca_text; /* the last good ones; ca_text NULL: no authority */
    LhTlsCredentials *current;
    gnutls_x509_trust_list_t trust; /* NULL: no authority */
    guint generation;               /* of trust */
    gint64 looked_ms;
};

/* ---- credentials ---- */

void lh_tls_credentials_unref(LhTlsCredentials *credentials)
{
    if (credentials != NULL && --credentials->refs == 0) {
        gnutls_certificate_free_credentials(credentials->handle);
        g_free(credentials);
    }
}

static gnutls_datum_t datum(const char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

static const char *pair_problem(int code)
{
    return code == GNUTLS_E_CERTIFICATE_KEY_MISMATCH ? "the key is not that of the certificate"
                                                     : gnutls_strerror(code);
}

/* The authority is named to clients, so that they can choose a certificate. */
static LhTlsCredentials *credentials_new(LhTls *tls, const char *cert_text, const char *key_text,
                                         const char *ca_text, GError **error)
{
    LhTlsCredentials *credentials = g_new0(LhTlsCredentials, 1);
    gnutls_datum_t cert = datum(cert_text), key = datum(key_text);
    credentials->refs = 1;
    gnutls_certificate_allocate_credentials(&credentials->handle);
    int code = gnutls_certificate_set_x509_key_mem2(credentials->handle, &cert, &key,
                                                    GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code < 0) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s %s, %s %s: %s", tls->cert.setting,
                    tls->cert.path, tls->key.setting, tls->key.path, pair_problem(code));
        lh_tls_credentials_unref(credentials);
        return NULL;
    }
    if (ca_text != NULL) {
        gnutls_datum_t ca = datum(ca_text);
        gnutls_certificate_set_x509_trust_mem(credentials->handle, &ca, GNUTLS_X509_FMT_PEM);
    }
    return credentials;
}

static void take_credentials(LhTls *tls, LhTlsCredentials *credentials)
{
    lh_tls_credentials_unref(tls->current);
    tls->current = credentials;
}

/* TRUE: looked at, and there is nothing to complain of. */
static gboolean pair_load(LhTls *tls, gboolean *changed, GError **error)
{
    gsize cert_len, key_len;
    gboolean good = TRUE;
    g_autoptr(GError) key_error = NULL;
    char *cert = lh_watched_read(&tls->cert, &cert_len, changed, error);
    char *key = lh_watched_read(&tls->key, &key_len, changed, cert != NULL ? error : &key_error);
    if (cert == NULL || key == NULL) {
        good = FALSE;
    } else if (*changed) {
        LhTlsCredentials *credentials = credentials_new(tls, cert, key, tls->ca_text, error);
        good = credentials != NULL;
        if (good) {
            take_credentials(tls, credentials);
            lh_watched_free_text(tls->cert_text);
            lh_watched_free_text(tls->key_text);
            tls->cert_text = g_steal_pointer(&cert);
            tls->key_text = g_steal_pointer(&key);
        }
    }
    lh_watched_free_text(cert);
    lh_watched_free_text(key);
    return good;
}

/* ---- the authority ---- */

static gnutls_x509_trust_list_t trust_parse(const LhWatched *file, const char *text, GError **error)
{
    gnutls_x509_trust_list_t trust = NULL;
    gnutls_datum_t pem = datum(text);
    gnutls_x509_trust_list_init(&trust, 0);
    int n = gnutls_x509_trust_list_add_trust_mem(trust, &pem, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    if (n > 0) {
        return trust;
    }
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s %s: %s", file->setting, file->path,
                n < 0 ? gnutls_strerror(n) : "holds no certificate");
    gnutls_x509_trust_list_deinit(trust, 1);
    return NULL;
}

static gboolean authority_load(LhTls *tls, gboolean *changed, GError **error)
{
    gsize len;
    char *text = lh_watched_read(&tls->ca, &len, changed, error);
    gboolean good = text != NULL;
    if (good && *changed) {
        gnutls_x509_trust_list_t trust = trust_parse(&tls->ca, text, error);
        good = trust != NULL;
        if (good) {
            if (tls->trust != NULL) {
                gnutls_x509_trust_list_deinit(tls->trust, 1);
            }
            tls->trust = trust;
            tls->generation++;
            g_free(tls->ca_text);
            tls->ca_text = g_steal_pointer(&text);
            if (tls->current != NULL) {
                take_credentials(
                    tls, credentials_new(tls, tls->cert_text, tls->key_text, tls->ca_text, NULL));
            }
        }
    }
    lh_watched_free_text(text);
    return good;
}

/* ---- life ---- */

LhTls *lh_tls_new(const char *cert, const char *key, const char *client_ca, GError **error)
{
    g_autoptr(LhTls) tls = g_new0(LhTls, 1);
    gboolean changed = FALSE;
    tls->looked_ms = G_MININT64;
    lh_watched_init(&tls->cert, "tls.cert", cert);
    lh_watched_init(&tls->key, "tls.key", key);
    lh_watched_init(&tls->ca, "tls.clientCa", client_ca);
    if ((client_ca != NULL && !authority_load(tls, &changed, error)) ||
        !pair_load(tls, &changed, error)) {
        return NULL;
    }
    return g_steal_pointer(&tls);
}

void lh_tls_free(LhTls *tls)
{
    if (tls == NULL) {
        return;
    }
    lh_tls_credentials_unref(tls->current);
    if (tls->trust != NULL) {
        gnutls_x509_trust_list_deinit(tls->trust, 1);
    }
    lh_watched_clear(&tls->cert);
    lh_watched_clear(&tls->key);
    lh_watched_clear(&tls->ca);
    lh_watched_free_text(tls->cert_text);
    lh_watched_free_text(tls->key_text);
    g_free(tls->ca_text);
    g_free(tls);
}

void lh_tls_refresh(LhTls *tls, gint64 now_ms)
{
    g_autoptr(GError) pair_error = NULL, ca_error = NULL;
    gboolean pair_changed = FALSE, ca_changed = FALSE;
    if (now_ms < tls->looked_ms + LH_WATCHED_PERIOD_MS && tls->looked_ms != G_MININT64) {
        return;
    }
    tls->looked_ms = now_ms;
    pair_load(tls, &pair_changed, &pair_error);
    if (pair_changed) {
        lh_watched_log(&tls->cert, pair_error);
    }
    if (tls->ca.path != NULL) {
        authority_load(tls, &ca_changed, &ca_error);
    }
    if (ca_changed) {
        lh_watched_log(&tls->ca, ca_error);
    }
}

/* ---- sessions ---- */

int lh_tls_no_certificate(void)
{
    return -1;
}

static int on_finished(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                       const gnutls_datum_t *message)
{
    (void)type;
    (void)when;
    (void)message;
    if (incoming != 0) {
        *(gboolean *)gnutls_session_get_ptr(session) = TRUE;
    }
    return 0;
}

gboolean lh_tls_wants_write(gpointer session)
{
    return gnutls_record_get_direction(session) == 1;
}

/* libmicrohttpd uses the session's pointer for pre-shared keys only. */
LhTlsCredentials *lh_tls_begin(LhTls *tls, gpointer session, gboolean *done)
{
    gnutls_session_set_ptr(session, done);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST,
                                       on_finished);
    tls->current->refs++;
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, tls->current->handle);
    gnutls_certificate_server_set_request(session, tls->trust != NULL ? GNUTLS_CERT_REQUEST
                                                                      : GNUTLS_CERT_IGNORE);
    return tls->current;
}

void lh_tls_send(gpointer session, const char *data, gsize len)
{
    ssize_t sent = gnutls_record_send(session, data, len);
    (void)sent;
}

/* ---- peers ---- */

static const char *verify_problem(unsigned status)
{
    if (status == 0) {
        return NULL;
    }
    if ((status & GNUTLS_CERT_EXPIRED) != 0) {
        return "the client certificate has expired";
    }
    if ((status & GNUTLS_CERT_NOT_ACTIVATED) != 0) {
        return "the client certificate is not valid yet";
    }
    if ((status & GNUTLS_CERT_PURPOSE_MISMATCH) != 0) {
        return "the client certificate is not one for clients";
    }
    return "the client certificate is not signed by the authority of clients";
}

/* A part of the subject that is text as people write it; NULL: there is none (at @index). */
static char *subject_part(gnutls_x509_crt_t cert, const char *oid, unsigned index, gboolean *more)
{
    char text[MAX_NAME_BYTES + 1];
    size_t size = sizeof text;
    int code = gnutls_x509_crt_get_dn_by_oid(cert, oid, index, 0, text, &size);
    *more = code != GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE;
    if (code < 0 || size == 0 || strnlen(text, sizeof text) != size ||
        !g_utf8_validate(text, (gssize)size, NULL)) {
        return NULL;
    }
    for (const char *p = text; *p != '\0'; p = g_utf8_next_char(p)) {
        if (!g_unichar_isprint(g_utf8_get_char(p))) {
            return NULL;
        }
    }
    return g_strdup(text);
}

static LhRole role_of(gnutls_x509_crt_t cert)
{
    LhRole highest = LH_ROLE_VIEWER;
    gboolean more = TRUE;
    for (unsigned i = 0; more; i++) {
        g_autofree char *o = subject_part(cert, GNUTLS_OID_X520_ORGANIZATION_NAME, i, &more);
        if (o == NULL || !g_str_has_prefix(o, ROLE_PREFIX)) {
            continue;
        }
        for (int role = highest; role <= LH_ROLE_ADMIN; role++) {
            if (strcmp(o + strlen(ROLE_PREFIX), lh_role_name((LhRole)role)) == 0) {
                highest = (LhRole)role;
            }
        }
    }
    return highest;
}

/* "anonymous" is what the log calls those without a name. */
static void peer_read(LhTls *tls, gnutls_x509_crt_t *chain, unsigned n, LhTlsPeer *peer)
{
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned status = 0;
    gboolean more;
    int code = gnutls_x509_trust_list_verify_crt2(tls->trust, chain, n, &purpose, 1,
                                                  VERIFY_STRENGTH, &status, NULL);
    peer->why = code < 0 ? "the client certificate cannot be checked" : verify_problem(status);
    if (peer->why != NULL) {
        return;
    }
    g_autofree char *name = subject_part(chain[0], GNUTLS_OID_X520_COMMON_NAME, 0, &more);
    if (name == NULL || strcmp(name, "anonymous") == 0) {
        peer->why = "the client certificate's subject has no usable CN";
        return;
    }
    peer->name = g_steal_pointer(&name);
    peer->role = role_of(chain[0]);
}

void lh_tls_peer_clear(LhTlsPeer *peer)
{
    g_free(peer->name);
    *peer = (LhTlsPeer){0};
}

void lh_tls_peer_update(LhTls *tls, gpointer session, gint64 now_ms, LhTlsPeer *peer)
{
    gnutls_x509_crt_t chain[MAX_CHAIN] = {NULL};
    unsigned n = 0, sent = 0;
    int code = 0;
    if (peer->until_ms > now_ms && peer->generation == tls->generation) {
        return;
    }
    lh_tls_peer_clear(peer);
    peer->generation = tls->generation;
    peer->until_ms = now_ms + PEER_PERIOD_MS;
    const gnutls_datum_t *raw = tls->trust != NULL ? gnutls_certificate_get_peers(session, &sent)
                                                   : NULL;
    if (raw == NULL || sent == 0) {
        return;
    }
    while (code >= 0 && n < MIN(sent, MAX_CHAIN)) {
        gnutls_x509_crt_init(&chain[n]);
        code = gnutls_x509_crt_import(chain[n], &raw[n], GNUTLS_X509_FMT_DER);
        n++;
    }
    if (code < 0 || sent > MAX_CHAIN) {
        peer->why = "the client certificate cannot be read";
    } else {
        peer_read(tls, chain, n, peer);
    }
    while (n > 0) {
        gnutls_x509_crt_deinit(chain[--n]);
    }
}

/*
 * One connection with libcurl, and what its codes mean.
 *
 * In TLS 1.3 a client has finished its handshake before the server has looked at its certificate, so a
 * refusal comes as an alert afterwards: OpenSSL's info callback sees it. Nothing is sent until then: a
 * server that closes with a request unread resets the connection, and the alert with it.
 */
#include "etcd/tls_probe.h"

#include <curl/curl.h>
#include <openssl/ssl.h>
#include <poll.h>

#define CONNECT_MS 2000
/* For an alert. */
#define WORDS_MS 1000

static void on_info(const SSL *ssl, int where, int value)
{
    int *alert = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    if ((where & SSL_CB_READ_ALERT) == SSL_CB_READ_ALERT && value >> 8 == SSL3_AL_FATAL)
        *alert = value;
}

static CURLcode on_context(CURL *curl, void *context, void *alert)
{
    (void)curl;
    SSL_CTX_set_app_data(context, alert);
    SSL_CTX_set_info_callback(context, on_info);
    return CURLE_OK;
}

static int on_progress(void *cancel, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return g_atomic_int_get((gint *)cancel);
}

/* FALSE: the connection ended. Silence is consent: who has been asked nothing says nothing else. */
static gboolean hears_nothing_bad(CURL *curl)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    curl_easy_getinfo(curl, CURLINFO_ACTIVESOCKET, &fd);
    gint64 until_us = g_get_monotonic_time() + WORDS_MS * 1000;
    for (;;) {
        char byte = 0;
        size_t n = 0;
        CURLcode code = curl_easy_recv(curl, &byte, 1, &n);
        gint64 left_ms = (until_us - g_get_monotonic_time()) / 1000;
        if (code == CURLE_OK)
            return n > 0;
        if (code != CURLE_AGAIN)
            return FALSE;
        if (left_ms <= 0)
            return TRUE;
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        poll(&readable, 1, (int)left_ms);
    }
}

static char *describe_certificate(long verdict)
{
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return g_strdup("its certificate has expired");
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return g_strdup("its certificate is not valid yet");
    case X509_V_ERR_CERT_REVOKED:
        return g_strdup("its certificate has been revoked");
    /* libcurl compares the name itself, once the chain is in order and before it notes so. */
    case X509_V_OK:
    case X509_V_ERR_UNSPECIFIED:
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return g_strdup("its certificate is for another host name or address");
    default:
        return g_strdup_printf("its certificate is not trusted: %s",
                               X509_verify_cert_error_string(verdict));
    }
}

static gboolean is_refusal(int alert)
{
    switch (alert & 0xff) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
        return TRUE;
    default:
        return FALSE;
    }
}

static LhProbeVerdict judge(CURL *curl, CURLcode code, const int *alert, gboolean has_cert,
                            char **why)
{
    long verdict = X509_V_OK;
    if (code == CURLE_OK && hears_nothing_bad(curl))
        return LH_PROBE_FINE;
    if (code == CURLE_PEER_FAILED_VERIFICATION) {
        curl_easy_getinfo(curl, CURLINFO_SSL_VERIFYRESULT, &verdict);
        *why = describe_certificate(verdict);
        return LH_PROBE_REFUSED;
    }
    if (*alert != 0 && is_refusal(*alert)) {
        *why = g_strdup_printf("it refuses %s (TLS alert: %s)",
                               has_cert ? "our certificate" : "us without a client certificate",
                               SSL_alert_desc_string_long(*alert));
        return LH_PROBE_REFUSED;
    }
    *why = g_strdup(code == CURLE_OK ? "the connection ended at once" : curl_easy_strerror(code));
    return LH_PROBE_SILENT;
}

LhProbeVerdict lh_tls_probe(const char *url, const char *cacert, const char *cert, const char *key,
                            gint *cancel, char **why)
{
    int alert = 0;
    CURL *curl = curl_easy_init();
    g_assert(curl != NULL);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CONNECT_ONLY, 1L);
    /* libcurl cannot receive by hand where it has agreed on HTTP/2: it crashes. */
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, cancel);
    curl_easy_setopt(curl, CURLOPT_SSL_CTX_FUNCTION, on_context);
    curl_easy_setopt(curl, CURLOPT_SSL_CTX_DATA, &alert);
    if (cacert != NULL) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, cacert);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    }
    if (cert != NULL) {
        curl_easy_setopt(curl, CURLOPT_SSLCERT, cert);
        curl_easy_setopt(curl, CURLOPT_SSLKEY, key);
    }
    CURLcode code = curl_easy_perform(curl);
    LhProbeVerdict verdict = judge(curl, code, &alert, cert != NULL, why);
    curl_easy_cleanup(curl);
    /* What OpenSSL keeps for a thread: this one may live on, in a pool, until the process ends. */
    OPENSSL_thread_stop();
    return verdict;
}

/*
 * The server's options: from the settings, and which of them may go together.
 *
 * Whoever can be reached from other machines must know who asks. The files that are named here are
 * opened elsewhere.
 */
#include "base/errors.h"
#include "http/internal.h"

#include <string.h>

static gboolean refuse(const char *source, const char *why, GError **error)
{
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s", source, why);
    return FALSE;
}

gboolean lh_http_options_read(const LhConfig *config, LhHttpOptions *out, GError **error)
{
    const char *cert = lh_config_string(config, "tls.cert");
    const char *key = lh_config_string(config, "tls.key");
    const char *client_ca = lh_config_string(config, "tls.clientCa");
    if (cert != NULL && key == NULL) {
        return refuse(lh_config_source(config, "tls.cert"), "needs tls.key too", error);
    }
    if (cert == NULL && key != NULL) {
        return refuse(lh_config_source(config, "tls.key"), "needs tls.cert too", error);
    }
    if (cert == NULL && client_ca != NULL) {
        return refuse(lh_config_source(config, "tls.clientCa"),
                      "client certificates need tls.cert and tls.key too", error);
    }
    gint64 max_connections = lh_config_int(config, "httpMaxConnections");
    if (max_connections < 4 || max_connections > 1000000) {
        return refuse(lh_config_source(config, "httpMaxConnections"), "must be from 4 to 1000000",
                      error);
    }
    *out = (LhHttpOptions){
        .listen = lh_config_string(config, "listen"),
        .insecure = lh_config_bool(config, "insecure"),
        .cert = cert,
        .key = key,
        .client_ca = client_ca,
        .tokens_file = lh_config_string(config, "auth.tokensFile"),
        .max_connections = (guint)max_connections,
    };
    return TRUE;
}

static GSocketAddress *address_parse(const char *listen, GError **error)
{
    const char *colon = listen != NULL ? strrchr(listen, ':') : NULL;
    guint64 port = 0;
    if (colon == NULL || !g_ascii_string_to_unsigned(colon + 1, 10, 0, G_MAXUINT16, &port, NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "listen %s: must be address:port",
                    listen != NULL ? listen : "(none)");
        return NULL;
    }
    g_autofree char *host = g_strndup(listen, (gsize)(colon - listen));
    gsize len = strlen(host);
    const char *text = host;
    if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        text = host + 1;
    } else if (strcmp(host, "localhost") == 0) {
        text = "127.0.0.1";
    } else if (strchr(host, ':') != NULL) {
        text = "";
    }
    GSocketAddress *address = g_inet_socket_address_new_from_string(text, (guint)port);
    if (address == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "listen %s: must be a numeric address (IPv6 in brackets) and a port", listen);
    }
    return address;
}

GSocketAddress *lh_http_options_address(const LhHttpOptions *options, gboolean *loopback,
                                        GError **error)
{
    g_autoptr(GSocketAddress) address = address_parse(options->listen, error);
    if (address == NULL) {
        return NULL;
    }
    *loopback = g_inet_address_get_is_loopback(
        g_inet_socket_address_get_address(G_INET_SOCKET_ADDRESS(address)));
    gboolean tls = options->cert != NULL && options->key != NULL;
    gboolean authenticates = options->client_ca != NULL || options->tokens_file != NULL;
    if (!*loopback && !options->insecure && !(tls && authenticates)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "listen %s: not a loopback address, which needs tls.cert and tls.key, and "
                    "tls.clientCa or auth.tokensFile; or --insecure",
                    options->listen);
        return NULL;
    }
    if (!tls && (options->cert != NULL || options->key != NULL || options->client_ca != NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "listen %s: TLS and client certificates need both tls.cert and tls.key",
                    options->listen);
        return NULL;
    }
    return g_steal_pointer(&address);
}

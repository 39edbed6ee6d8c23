/*
 * Channels, their settings and their credentials.
 *
 * TLS goes through gRPC's own certificate provider, which reads the files every second: a connection
 * made after a change uses the new ones, an open one is left alone. No session is resumed, so an
 * authority that was removed is not trusted by a ticket.
 */
#include "etcd/transport_channels.h"

#include "base/log.h"

#include <grpc/grpc_security.h>

#define FILES_READ_EVERY_S 1
/* Between two lines about moves; the others are for debugging. */
#define SAY_EVERY_US (10 * G_USEC_PER_SEC)

struct LhChannels {
    const LhRpcMethod *methods;
    guint n_methods, n;
    char **urls, **targets;
    grpc_channel_credentials *credentials;
    LhLane lanes[2]; /* leases: 1 */
};

static grpc_channel_credentials *make_credentials(const LhRpcServers *servers)
{
    if (!servers->tls)
        return grpc_insecure_credentials_create();
    grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
    if (servers->cacert != NULL || servers->cert != NULL) {
        grpc_tls_certificate_provider *provider = grpc_tls_certificate_provider_file_watcher_create(
            servers->key, servers->cert, servers->cacert, FILES_READ_EVERY_S);
        grpc_tls_credentials_options_set_certificate_provider(options, provider);
        grpc_tls_certificate_provider_release(provider);
    }
    if (servers->cacert != NULL)
        grpc_tls_credentials_options_watch_root_certs(options);
    if (servers->cert != NULL)
        grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
    return grpc_tls_credentials_create(options);
}

static grpc_channel *make_channel(const char *target, grpc_channel_credentials *credentials)
{
    static const struct {
        const char *name;
        int value;
    } settings[] = {
        {GRPC_ARG_KEEPALIVE_TIME_MS, 10000},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        /* The least time that one attempt gets; attempts that fail at once do not wait for it. */
        {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000},
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1},
        {GRPC_ARG_ENABLE_RETRIES, 0},                    /* nothing is retried below etcd.h */
        {GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1}, /* no TXT lookups */
        {GRPC_ARG_ENABLE_HTTP_PROXY, 0},                 /* http_proxy is for other traffic */
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},         /* else the lanes share a connection */
    };
    grpc_arg args[G_N_ELEMENTS(settings)];
    for (gsize i = 0; i < G_N_ELEMENTS(settings); i++) {
        args[i].type = GRPC_ARG_INTEGER;
        args[i].key = (char *)(guintptr)settings[i].name;
        args[i].value.integer = settings[i].value;
    }
    grpc_channel_args all = {.num_args = G_N_ELEMENTS(args), .args = args};
    return grpc_channel_create(target, credentials, &all);
}

LhChannels *lh_channels_new(const LhRpcServers *servers, const LhRpcMethod *methods,
                            guint n_methods)
{
    LhChannels *channels = g_new0(LhChannels, 1);
    channels->methods = methods;
    channels->n_methods = n_methods;
    channels->urls = g_strdupv((char **)(guintptr)servers->urls);
    channels->targets = g_strdupv((char **)(guintptr)servers->targets);
    channels->n = g_strv_length(channels->targets);
    channels->credentials = make_credentials(servers);
    /* Anywhere, so that many instances spread over the members. */
    guint start = (guint)g_random_int_range(0, (gint32)channels->n);
    for (guint i = 0; i < G_N_ELEMENTS(channels->lanes); i++) {
        channels->lanes[i].queue = grpc_completion_queue_create_for_next(NULL);
        channels->lanes[i].channels = g_new0(LhChannel, channels->n);
        channels->lanes[i].current = start;
    }
    return channels;
}

void lh_channels_close(LhChannels *channels)
{
    for (guint i = 0; i < G_N_ELEMENTS(channels->lanes); i++) {
        for (guint j = 0; j < channels->n; j++) {
            LhChannel *channel = &channels->lanes[i].channels[j];
            g_clear_pointer(&channel->channel, grpc_channel_destroy);
            g_clear_pointer(&channel->registered, g_free);
        }
    }
}

void lh_channels_free(LhChannels *channels)
{
    for (guint i = 0; i < G_N_ELEMENTS(channels->lanes); i++) {
        grpc_completion_queue_destroy(channels->lanes[i].queue);
        g_free(channels->lanes[i].channels);
    }
    grpc_channel_credentials_release(channels->credentials);
    g_strfreev(channels->urls);
    g_strfreev(channels->targets);
    g_free(channels);
}

guint lh_channels_n(const LhChannels *channels)
{
    return channels->n;
}

const char *lh_channels_url(const LhChannels *channels, guint endpoint)
{
    return channels->urls[endpoint];
}

LhLane *lh_channels_lane(LhChannels *channels, gboolean lease)
{
    return &channels->lanes[lease ? 1 : 0];
}

LhChannel *lh_channels_get(LhChannels *channels, LhLane *lane, guint endpoint)
{
    LhChannel *channel = &lane->channels[endpoint];
    if (channel->channel != NULL)
        return channel;
    channel->channel = make_channel(channels->targets[endpoint], channels->credentials);
    channel->registered = g_new(void *, channels->n_methods);
    for (guint i = 0; i < channels->n_methods; i++)
        channel->registered[i] = grpc_channel_register_call(channel->channel,
                                                            channels->methods[i].path, NULL, NULL);
    return channel;
}

void lh_channels_move(LhChannels *channels, LhLane *lane, const char *why)
{
    guint from = lane->current;
    lane->current = (from + 1) % channels->n;
    lane->moves++;
    gint64 now_us = g_get_monotonic_time();
    gboolean say = lane->said_us == 0 || now_us - lane->said_us >= SAY_EVERY_US;
    if (say)
        lane->said_us = now_us;
    lh_log(say ? LH_LOG_INFO : LH_LOG_DEBUG, "another etcd endpoint", "for",
           lane == &channels->lanes[1] ? "leases" : "all but leases", "from", channels->urls[from],
           "to", channels->urls[lane->current], "why", why, NULL);
}

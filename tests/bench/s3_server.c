/* A server that somebody else runs; nothing is started, and nothing on it is removed. */
#include "s3_server.h"

struct S3Server {
    char *endpoint, *access_key, *secret_key;
};

S3Server *s3_server_new(char **why)
{
    const char *endpoint = g_getenv("LEASEHOLD_BENCH_S3");
    const char *access = g_getenv("AWS_ACCESS_KEY_ID"), *secret = g_getenv("AWS_SECRET_ACCESS_KEY");
    S3Server *server;

    if (endpoint == NULL || access == NULL || secret == NULL) {
        *why = g_strdup("no S3 server: LEASEHOLD_BENCH_S3, AWS_ACCESS_KEY_ID and "
                        "AWS_SECRET_ACCESS_KEY name one");
        return NULL;
    }
    server = g_new0(S3Server, 1);
    server->endpoint = g_strdup(endpoint);
    server->access_key = g_strdup(access);
    server->secret_key = g_strdup(secret);
    return server;
}

void s3_server_free(S3Server *server)
{
    g_free(server->endpoint);
    g_free(server->access_key);
    g_free(server->secret_key);
    g_free(server);
}

const char *s3_server_endpoint(const S3Server *server)
{
    return server->endpoint;
}

const char *s3_server_access_key(const S3Server *server)
{
    return server->access_key;
}

const char *s3_server_secret_key(const S3Server *server)
{
    return server->secret_key;
}

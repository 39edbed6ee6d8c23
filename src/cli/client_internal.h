/*
 * What client.c and watch.c share: one server, how a handle is set up, what a failure means.
 */
#pragma once

#include "cli/client.h"

#include <curl/curl.h>

struct LhClient {
    LhEnv *env;
    CURL *curl;
    char *server; /* without a slash at the end */
    struct curl_slist *auth;
    char *cacert, *cert, *key;
    gboolean tls;
    gboolean direct; /* a loopback address: no proxy */
    cJSON *problem;  /* of the last failed request */
};

/* Options that every request has. */
void lh_client_setup(const LhClient *client, CURL *curl, const char *path);
/* The error of a reply that is not 2xx; keeps its problem. */
void lh_client_refused(LhClient *client, const char *path, guint status, const GString *body,
                       GError **error);
/* The error of a transfer on @curl without an answer. */
void lh_client_unreachable(const LhClient *client, CURL *curl, CURLcode code, const char *details,
                           GError **error);
/* Whether another try could end otherwise. */
gboolean lh_client_is_final(CURLcode code);

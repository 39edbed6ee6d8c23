/*
 * What an etcd option must look like, and lh_etcd_options_read.
 *
 * Files are checked with OpenSSL before gRPC sees them: gRPC would only say, at every attempt, that the
 * handshake failed.
 */
#include "etcd/endpoints.h"

#include "base/errors.h"
#include "etcd/auth.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>

typedef struct {
    LhEtcdSource source;
    gconstpointer data;
    GError **error;
} Check;

static const char *source_of(const Check *check, const char *path)
{
    return check->source != NULL ? check->source(check->data, path) : path;
}

static gboolean refuse(const Check *check, const char *path, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

static gboolean refuse(const Check *check, const char *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *why = g_strdup_vprintf(format, args);
    va_end(args);
    ERR_clear_error();
    g_set_error(check->error, LH_ERROR, LH_ERR_INVALID, "%s: %s", source_of(check, path), why);
    return FALSE;
}

/* --- files --- */

static BIO *open_file(const Check *check, const char *path, const char *file)
{
    g_autofree char *text = NULL;
    g_autoptr(GError) cause = NULL;
    gsize len = 0;
    if (!g_file_get_contents(file, &text, &len, &cause)) {
        refuse(check, path, "%s: cannot be read: %s", file, cause->message);
        return NULL;
    }
    BIO *bio = BIO_new(BIO_s_mem());
    g_assert(bio != NULL && BIO_write(bio, text, (int)MIN(len, G_MAXINT)) >= 0);
    explicit_bzero(text, len);
    return bio;
}

/* The first certificate of the file. */
static X509 *read_certificate(const Check *check, const char *path, const char *file)
{
    BIO *bio = open_file(check, path, file);
    if (bio == NULL)
        return NULL;
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    if (certificate == NULL)
        refuse(check, path, "%s: holds no certificate in PEM form", file);
    return certificate;
}

/* Never asks for one. */
static int no_passphrase(char *buffer, int size, int writing, void *data)
{
    (void)buffer, (void)size, (void)writing, (void)data;
    return -1;
}

static EVP_PKEY *read_key(const Check *check, const char *path, const char *file)
{
    BIO *bio = open_file(check, path, file);
    if (bio == NULL)
        return NULL;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    BIO_free(bio);
    if (key == NULL)
        refuse(check, path, "%s: holds no private key in PEM form without a passphrase", file);
    return key;
}

static gboolean check_files(const Check *check, const LhEtcdOptions *options)
{
    if (options->cacert != NULL) {
        X509 *authority = read_certificate(check, "etcd.cacert", options->cacert);
        if (authority == NULL)
            return FALSE;
        X509_free(authority);
    }
    if (options->cert == NULL)
        return TRUE;
    X509 *certificate = read_certificate(check, "etcd.cert", options->cert);
    EVP_PKEY *key = certificate != NULL ? read_key(check, "etcd.key", options->key) : NULL;
    gboolean fits = key != NULL && X509_check_private_key(certificate, key) == 1;
    if (key != NULL && !fits)
        refuse(check, "etcd.key", "%s: does not belong to the certificate in %s", options->key,
               options->cert);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return fits;
}

/* --- endpoints --- */

/* A name or an address; g_uri_parse lets more pass. */
static gboolean is_host(const char *host)
{
    return host != NULL && *host != '\0' &&
           host[strspn(host, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "._-:")] == '\0';
}

static gboolean parse_endpoint(const Check *check, const char *endpoint, const char *scheme,
                               GPtrArray *urls, GPtrArray *targets)
{
    g_autoptr(GError) cause = NULL;
    g_autofree char *uri = strstr(endpoint, "://") != NULL
                               ? g_strdup(endpoint)
                               : g_strconcat(scheme, "://", endpoint, NULL);
    g_autoptr(GUri) parsed = g_uri_parse(uri, G_URI_FLAGS_NONE, &cause);
    const char *wrong = NULL;
    if (parsed == NULL)
        wrong = cause->message;
    else if (strcmp(g_uri_get_scheme(parsed), "http") != 0 &&
             strcmp(g_uri_get_scheme(parsed), "https") != 0)
        wrong = "must be http:// or https://, or host:port";
    else if (!is_host(g_uri_get_host(parsed)) || g_uri_get_port(parsed) <= 0)
        wrong = "must be host:port";
    else if (strlen(g_uri_get_path(parsed)) > 1 || g_uri_get_query(parsed) != NULL ||
             g_uri_get_fragment(parsed) != NULL || g_uri_get_userinfo(parsed) != NULL)
        wrong = "must be host:port and nothing else";
    if (wrong != NULL)
        return refuse(check, "etcd.endpoints", "etcd endpoint %s: %s", endpoint, wrong);
    const char *host = g_uri_get_host(parsed);
    gboolean v6 = strchr(host, ':') != NULL;
    g_autofree char *place = g_strdup_printf("%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "",
                                             g_uri_get_port(parsed));
    g_ptr_array_add(urls, g_strconcat(g_uri_get_scheme(parsed), "://", place, NULL));
    g_ptr_array_add(targets, g_strconcat("dns:///", place, NULL));
    return TRUE;
}

static gboolean parse_endpoints(const Check *check, const LhEtcdOptions *options, GPtrArray *urls,
                                GPtrArray *targets, gboolean *tls)
{
    gboolean files = options->cacert != NULL || options->cert != NULL;
    if (options->endpoints == NULL || options->endpoints[0] == NULL)
        return refuse(check, "etcd.endpoints", "no endpoint");
    for (guint i = 0; options->endpoints[i] != NULL; i++) {
        if (!parse_endpoint(check, options->endpoints[i], files ? "https" : "http", urls, targets))
            return FALSE;
        gboolean secure = g_str_has_prefix(urls->pdata[i], "https:");
        if (i > 0 && secure != *tls)
            return refuse(check, "etcd.endpoints",
                          "%s and %s: all endpoints must be https:// or none",
                          (char *)urls->pdata[0], (char *)urls->pdata[i]);
        *tls = secure;
        for (guint j = 0; j < i; j++) {
            if (g_str_equal(urls->pdata[i], urls->pdata[j]))
                return refuse(check, "etcd.endpoints", "%s is given twice", (char *)urls->pdata[i]);
        }
    }
    return TRUE;
}

/* Both or none. */
static gboolean check_pair(const Check *check, const char *a, const char *a_path, const char *b,
                           const char *b_path)
{
    if (a != NULL && b == NULL)
        return refuse(check, a_path, "needs %s too", b_path);
    if (b != NULL && a == NULL)
        return refuse(check, b_path, "needs %s too", a_path);
    return TRUE;
}

static gboolean check_password(const Check *check, const LhEtcdOptions *options)
{
    g_autoptr(GError) cause = NULL;
    if (options->user == NULL)
        return TRUE;
    if (*options->user == '\0')
        return refuse(check, "etcd.user", "must not be empty");
    char *password = lh_password_read(options->password_file, &cause);
    if (password == NULL)
        return refuse(check, "etcd.passwordFile", "%s", cause->message);
    lh_password_free(password);
    return TRUE;
}

static gboolean check_all(const Check *check, const LhEtcdOptions *options, GPtrArray *urls,
                          GPtrArray *targets, gboolean *tls)
{
    if (!check_pair(check, options->cert, "etcd.cert", options->key, "etcd.key") ||
        !check_pair(check, options->user, "etcd.user", options->password_file,
                    "etcd.passwordFile") ||
        !parse_endpoints(check, options, urls, targets, tls))
        return FALSE;
    const char *unused = options->cacert != NULL ? "etcd.cacert"
                         : options->cert != NULL ? "etcd.cert"
                                                 : NULL;
    if (!*tls && unused != NULL)
        return refuse(check, unused, "is of no use for %s", (char *)urls->pdata[0]);
    return check_files(check, options) && check_password(check, options);
}

static void give(GPtrArray *urls, GPtrArray *targets, gboolean tls, LhEndpoints *out)
{
    g_ptr_array_add(urls, NULL);
    g_ptr_array_add(targets, NULL);
    *out = (LhEndpoints){.tls = tls,
                         .urls = (char **)g_ptr_array_steal(urls, NULL),
                         .targets = (char **)g_ptr_array_steal(targets, NULL)};
}

gboolean lh_endpoints_check(const LhEtcdOptions *options, LhEtcdSource source, gconstpointer data,
                            LhEndpoints *out, GError **error)
{
    const Check check = {source, data, error};
    g_autoptr(GPtrArray) urls = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GPtrArray) targets = g_ptr_array_new_with_free_func(g_free);
    gboolean tls = FALSE;
    if (!check_all(&check, options, urls, targets, &tls))
        return FALSE;
    give(urls, targets, tls, out);
    return TRUE;
}

void lh_endpoints_parse(const LhEtcdOptions *options, LhEndpoints *out)
{
    g_autoptr(GError) ignored = NULL;
    const Check check = {.error = &ignored};
    g_autoptr(GPtrArray) urls = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GPtrArray) targets = g_ptr_array_new_with_free_func(g_free);
    gboolean tls = FALSE;
    if (parse_endpoints(&check, options, urls, targets, &tls))
        give(urls, targets, tls, out);
}

void lh_endpoints_clear(LhEndpoints *endpoints)
{
    g_clear_pointer(&endpoints->urls, g_strfreev);
    g_clear_pointer(&endpoints->targets, g_strfreev);
}

static const char *config_source(gconstpointer config, const char *path)
{
    return lh_config_source(config, path);
}

gboolean lh_etcd_options_read(const LhConfig *config, LhEtcdOptions *out, GError **error)
{
    g_auto(LhEndpoints) endpoints = {0};
    const LhEtcdOptions options = {
        .endpoints = lh_config_list(config, "etcd.endpoints"),
        .cacert = lh_config_string(config, "etcd.cacert"),
        .cert = lh_config_string(config, "etcd.cert"),
        .key = lh_config_string(config, "etcd.key"),
        .user = lh_config_string(config, "etcd.user"),
        .password_file = lh_config_string(config, "etcd.passwordFile"),
    };
    if (!lh_endpoints_check(&options, config_source, config, &endpoints, error))
        return FALSE;
    *out = options;
    return TRUE;
}

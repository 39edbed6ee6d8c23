/*
 * Keys and certificates with OpenSSL's own functions. Must not write outside the directory it is given.
 */
#include "certs.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#define HOUR_S 3600
#define DAY_S  (24 * HOUR_S)

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    g_assert(extension != NULL);
    g_assert(X509_add_ext(cert, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

static void add_name(X509_NAME *name, const char *field, const char *value)
{
    g_assert(X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, (const guchar *)value, -1, -1,
                                        0) == 1);
}

static X509 *make_cert(EVP_PKEY *key, const CertSpec *spec)
{
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);
    guint64 serial = 0;
    gboolean usual = spec->from_s == 0 && spec->to_s == 0;

    g_assert(RAND_bytes((guchar *)&serial, sizeof(serial)) == 1);
    X509_set_version(cert, X509_VERSION_3);
    ASN1_INTEGER_set_uint64(X509_get_serialNumber(cert), serial >> 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), usual ? -HOUR_S : (long)spec->from_s);
    X509_gmtime_adj(X509_getm_notAfter(cert), usual ? DAY_S : (long)spec->to_s);
    X509_set_pubkey(cert, key);
    add_name(subject, "CN", spec->cn);
    g_auto(GStrv) parts = g_strsplit(spec->organizations != NULL ? spec->organizations : "", ",",
                                     -1);
    for (char **part = parts; *part != NULL; part++)
        add_name(subject, "O", *part);
    return cert;
}

static FILE *create(const char *path, int mode)
{
    int fd = g_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    g_assert(fd >= 0);
    FILE *file = fdopen(fd, "w");
    g_assert(file != NULL);
    return file;
}

static void finish(FILE *file, const char *temporary, const char *path)
{
    g_assert(fclose(file) == 0);
    g_assert(g_rename(temporary, path) == 0);
}

/* The key first: who reads both in between sees a pair that does not fit, and tries again. */
static CertFiles write_files(const char *dir, const char *name, X509 *cert, EVP_PKEY *key)
{
    CertFiles files = {g_strdup_printf("%s/%s.crt", dir, name),
                       g_strdup_printf("%s/%s.key", dir, name)};
    g_autofree char *temporary = g_strdup_printf("%s/.%s.new", dir, name);

    FILE *file = create(temporary, 0600);
    g_assert(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    finish(file, temporary, files.key);
    file = create(temporary, 0644);
    g_assert(PEM_write_X509(file, cert) == 1);
    finish(file, temporary, files.cert);
    return files;
}

CertFiles certs_authority(const char *dir, const char *name)
{
    const CertSpec spec = {.cn = name};
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_cert(key, &spec);

    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
    add_extension(cert, cert, NID_subject_key_identifier, "hash");
    g_assert(X509_sign(cert, key, EVP_sha256()) > 0);
    CertFiles files = write_files(dir, name, cert, key);
    X509_free(cert);
    EVP_PKEY_free(key);
    return files;
}

CertFiles certs_issue(const char *dir, const char *name, const CertFiles *authority,
                      const CertSpec *spec)
{
    FILE *file = g_fopen(authority->cert, "re");
    X509 *issuer = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    file = g_fopen(authority->key, "re");
    EVP_PKEY *issuer_key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);
    g_assert(issuer != NULL && issuer_key != NULL);

    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_cert(key, spec);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    add_extension(cert, issuer, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(cert, issuer, NID_ext_key_usage,
                  spec->purposes != NULL ? spec->purposes : "serverAuth,clientAuth");
    add_extension(cert, issuer, NID_subject_key_identifier, "hash");
    add_extension(cert, issuer, NID_authority_key_identifier, "keyid");
    if (spec->names != NULL)
        add_extension(cert, issuer, NID_subject_alt_name, spec->names);
    g_assert(X509_sign(cert, issuer_key, EVP_sha256()) > 0);
    CertFiles files = write_files(dir, name, cert, key);
    X509_free(cert);
    X509_free(issuer);
    EVP_PKEY_free(key);
    EVP_PKEY_free(issuer_key);
    return files;
}

void certs_clear(CertFiles *files)
{
    g_clear_pointer(&files->cert, g_free);
    g_clear_pointer(&files->key, g_free);
}

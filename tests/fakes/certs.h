/*
 * Certificates for tests: authorities, and what they sign, as PEM files below a directory.
 *
 * Keys are EC P-256. Any thread; what cannot work fails an assertion.
 */
#pragma once

#include <glib.h>

typedef struct {
    const char *cn;
    const char *organizations; /* of the subject, comma-separated; NULL: none */
    const char *names; /* subjectAltName as OpenSSL writes it: "IP:127.0.0.1,DNS:localhost"; NULL */
    const char *purposes; /* extendedKeyUsage; NULL: "serverAuth,clientAuth" */
    gint64 from_s, to_s;  /* validity, seconds from now; both 0: from an hour ago for a day */
} CertSpec;

typedef struct {
    char *cert, *key; /* paths: "<dir>/<name>.crt", "<dir>/<name>.key" (mode 0600) */
} CertFiles;

/* A self-signed authority. */
CertFiles certs_authority(const char *dir, const char *name);
/* Signed by @authority, for servers and clients. Files of the same name are replaced, each by a
 * rename. */
CertFiles certs_issue(const char *dir, const char *name, const CertFiles *authority,
                      const CertSpec *spec);
void certs_clear(CertFiles *files);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(CertFiles, certs_clear)

/*
 * Whether the other side's TLS accepts us and we accept it, by code: libcurl's result, OpenSSL's verdict
 * on the certificate, the alert that the other side sent. gRPC only has words for all of them.
 *
 * Blocks for up to 3 s: any thread but the loop's.
 */
#pragma once

#include <glib.h>

typedef enum {
    LH_PROBE_FINE,    /* TLS is in order, whatever was answered */
    LH_PROBE_REFUSED, /* by us or by them: no waiting heals it */
    LH_PROBE_SILENT,  /* no connection, or it ended without a reason */
} LhProbeVerdict;

/* Connects to @url, and asks nothing. @cancel (atomic) not 0: returns soon. *@why is set unless it is fine, without the
 * URL; g_free. */
LhProbeVerdict lh_tls_probe(const char *url, const char *cacert, const char *cert, const char *key,
                            gint *cancel, char **why);

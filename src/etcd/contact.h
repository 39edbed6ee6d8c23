/*
 * The contact of a program with its etcd: the first one, and afterwards what etcd says of itself.
 *
 * Asks until etcd answers, and says so while it does not. The first answer to a read of the prefix
 * proves address, certificates, user and permission; only then should anything else begin. What no
 * waiting heals (etcd's certificate is not trusted or has expired, ours is refused, a wrong password, a
 * user that may not read the prefix) ends the program at the start, and is a line in the log later.
 *
 * On first contact it logs etcd's version, and in one warning all that is at risk on it (facts by
 * version: contact.c). After that it asks for the status every 10 s, and logs alarms when they come and
 * go. Loop thread.
 */
#pragma once

#include "base/env.h"
#include "etcd/transport_grpc.h"

typedef struct LhContact LhContact;

typedef struct {
    /* Once: begin. The status is known. */
    void (*reached)(gpointer data);
    /* Instead of reached: LH_ERR_AUTH (not trusted, refused, wrong password) or LH_ERR_FORBIDDEN (may
     * not read the prefix). Nothing is asked any more. The message is one line that names the endpoint
     * or the user. */
    void (*refused)(const GError *error, gpointer data);
} LhContactFuncs;

/* @options of the transport behind @etcd: what its certificates are checked with once more, by code and
 * not by gRPC's words, when https endpoints do not answer. Copied. @etcd must outlive the contact. */
LhContact *lh_contact_start(LhEnv *env, LhEtcd *etcd, const LhEtcdOptions *options,
                            const char *prefix, const LhContactFuncs *funcs, gpointer data);
/* The newest answer; NULL: none yet. Valid until the loop runs again. */
const LhStatusReply *lh_contact_status(const LhContact *contact);
/* NULL: etcd answered the last time. */
const char *lh_contact_trouble(const LhContact *contact);
void lh_contact_free(LhContact *contact); /* accepts NULL; may be called inside a callback */

/* "lease renewal may succeed on a revoked lease (fixed in 3.4.38, 3.5.23); …" of "3.4.23"; NULL: nothing
 * that we know of. g_free. Pure. */
char *lh_etcd_version_risks(const char *version);

/*
 * A real etcd for tests: one member, its own data directory, free ports on loopback.
 *
 * The binary is $LEASEHOLD_TEST_ETCD, or `etcd` from the PATH. It dies with this process (and with
 * the thread that started it: start it from the main thread), and only its own pid is ever
 * signalled. All calls block; start and restart return when it answers reads and writes.
 */
#pragma once

#include "tests/fakes/certs.h"

#include <glib.h>
#include <sys/types.h>

typedef struct EtcdProcess EtcdProcess;

typedef struct {
    const char *const *args; /* more arguments for etcd, NULL-ended or NULL */
    const CertFiles *server; /* clients come over https, and see this certificate */
    const char *client_ca;   /* with server: clients need a certificate that it has signed */
    /* Authentication is on, with this password of the user root. Further users: etcd_process_post. */
    const char *root_password;
} EtcdProcessOptions;

/* @args: as above. NULL with LH_ERR_NOT_FOUND: no binary. */
EtcdProcess *etcd_process_new(const char *const *args, GError **error);
/* What @options points to is copied, the files are not. */
EtcdProcess *etcd_process_new_with(const EtcdProcessOptions *options, GError **error);
void etcd_process_free(EtcdProcess *etcd); /* kills it, removes its data; accepts NULL */

const char *etcd_process_endpoint(
    const EtcdProcess *etcd); /* "127.0.0.1:PORT", with TLS "https://…"; the same for ever */
const char *etcd_process_version(const EtcdProcess *etcd); /* "3.4.23" */
const char *etcd_process_dir(const EtcdProcess *etcd);     /* holds data/ and log */
pid_t etcd_process_pid(const EtcdProcess *etcd);           /* 0: not running */

void etcd_process_stop(EtcdProcess *etcd);   /* SIGTERM, and waits for its end */
void etcd_process_kill(EtcdProcess *etcd);   /* SIGKILL, and waits for its end */
void etcd_process_freeze(EtcdProcess *etcd); /* SIGSTOP */
void etcd_process_thaw(EtcdProcess *etcd);   /* SIGCONT */
/* Starts it again on the same data and ports. */
gboolean etcd_process_restart(EtcdProcess *etcd, GError **error);
/* Wipes the data first: another cluster on the same port. */
gboolean etcd_process_restart_empty(EtcdProcess *etcd, GError **error);
/* Stops it, keeps a copy of its data (of the last time only), and starts it again. */
gboolean etcd_process_back_up(EtcdProcess *etcd, GError **error);
/* Puts that copy in place of its data: the same cluster and member ids, and an older revision. */
gboolean etcd_process_restore(EtcdProcess *etcd, GError **error);

gboolean etcd_process_compact(EtcdProcess *etcd, gint64 revision, GError **error);
gboolean etcd_process_set_nospace(EtcdProcess *etcd, gboolean on, GError **error);

/* POST of JSON to etcd's gateway ("/v3/kv/range"), over a plain port of its own, as root where there
 * is authentication; the body of the answer, NULL unless it is 200. Free with g_free. */
char *etcd_process_post(const EtcdProcess *etcd, const char *path, const char *body,
                        GError **error);

/* Members of one cluster (etcd_cluster.h): the parts of etcd_process_new_with. */
EtcdProcess *etcd_process_prepare(const EtcdProcessOptions *options, const char *name,
                                  GError **error);
char *etcd_process_peer(const EtcdProcess *etcd); /* "NAME=http://127.0.0.1:PORT"; g_free */
/* Before etcd_process_peer: where the others reach it, if not at its own port. */
void etcd_process_set_peer_port(EtcdProcess *etcd, guint16 port);
guint16 etcd_process_peer_port(const EtcdProcess *etcd); /* its own */
void etcd_process_set_cluster(EtcdProcess *etcd, const char *initial_cluster);
gboolean etcd_process_spawn(EtcdProcess *etcd, GError **error); /* does not wait */
/* The same without its data, as a new member of a cluster that is there already. */
gboolean etcd_process_rejoin(EtcdProcess *etcd, GError **error);
gboolean etcd_process_answers(const EtcdProcess *etcd); /* at once, or within a second or so */
gboolean etcd_process_wait(EtcdProcess *etcd, GError **error); /* until it answers */
/* With a root_password: switches authentication on, through one member; and waits until it is on at
 * another. */
gboolean etcd_process_enable_auth(EtcdProcess *etcd, GError **error);
gboolean etcd_process_wait_auth(EtcdProcess *etcd, GError **error);

/* A port of 127.0.0.1 that nobody listens on. */
guint16 etcd_free_port(void);

/*
 * A world of real processes for integration tests: an etcd or a cluster of them, managers, agents,
 * etcdctl, curl and the command line, and a mirror of etcd to wait on.
 *
 * Everything listens on loopback ports of its own and lives below one temporary directory. Children
 * die with the test (PDEATHSIG) and are signalled by their pid only; at the end of a world each of
 * them must have ended with exit code 0 and without a sanitizer's report, and no process that
 * inherited the world's mark may be left.
 *
 * Calls block and run the main loop meanwhile. What is wrong fails the test (cmocka's fail_msg),
 * with the last lines of every log. Keys are given without the prefix /leasehold/.
 */
#pragma once

#include "base/json.h"
#include "etcd/transport_grpc.h"
#include "mirror/mirror.h"
#include "tests/fakes/etcd_cluster.h"

#include <gio/gio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PREFIX  "/leasehold/"
#define WAIT_MS 60000 /* how long something may take that takes a moment; a sanitizer is slow */

typedef struct World World;
typedef struct Proc Proc;

/* What a program is told of etcd: its --etcd-… arguments. NULL: it is not told. */
typedef struct {
    const char *endpoints, *cacert, *cert, *key, *user, *password_file;
} EtcdAccess;

typedef struct {
    guint members;           /* 0: one etcd that is no cluster */
    const char *const *args; /* more arguments for etcd, NULL-ended or NULL */
    gboolean tls;            /* its clients come over https */
    gboolean users;          /* authentication is on; world_user makes users */
    gboolean relayed;        /* of a cluster: etcd_cluster_isolate */
} WorldOptions;

struct World {
    EtcdProcess *etcd;    /* of a cluster: the first member */
    EtcdCluster *cluster; /* NULL: none */
    EtcdAccess access;    /* what managers and agents that are started from now on are told */
    char *endpoints;      /* all of etcd's; at first access.endpoints */
    char *certs;          /* directory of the certificates */
    CertFiles ca, server; /* with TLS */
    gboolean users;
    GPtrArray *texts; /* what lives as long as the world */
    LhEnv *env;
    LhEtcd *client;
    LhMirror *mirror;
    char *dir;     /* everything that is not etcd's */
    char *objects; /* root of the snapshots' files */
    char *mark;    /* LEASEHOLD_TEST_WORLD=…, in the environment of every child */
    GPtrArray *procs;
    gint64 now_ms; /* wall clock at the beginning */
};

World *world_new(void);
World *world_new_with(const WorldOptions *options);
/* NULL when everything ended as it should, else what did not; free with g_free. */
char *world_free(World *world);
/* For cmocka: *state is the World. */
int world_setup(void **state);
int world_teardown(void **state);

/* ---- users of etcd ---- */

#define ROOT_PASSWORD "root's pass"
/* deploy/etcd-roles ARGUMENTS as root, to its end. */
typedef struct Run Run;
Run *etcd_roles(World *world, ...) G_GNUC_NULL_TERMINATED;
/* A user of etcd, by deploy/etcd-roles, which must succeed. Returns the file of the password, which
 * holds nothing but "NAME-secret-4711". */
const char *world_user(World *world, const char *name, const char *role);
char *world_password(const char *user); /* that; g_free */
/* etcd's client in the product, as this user, "root" or (NULL) none. lh_etcd_free. */
LhEtcd *etcd_client_as(World *world, const char *user);
/* Replaces etcd's certificate, of the same authority (world->ca). NULL: by a good one. */
void world_new_certificate(World *world, const CertSpec *spec);
/* Programs started from now on are this user; NULL: none. */
void world_as(World *world, const char *name);

/* ---- waiting ---- */

typedef gboolean (*Check)(World *world, gpointer data);

/* Checks after each change that the mirror or a child's end makes. False: not within @within_ms. */
gboolean world_until(World *world, Check check, gpointer data, gint64 within_ms);
/* Fails the test when it is not so within WAIT_MS; the words say what "it" is. */
void world_wait(World *world, Check check, gpointer data, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* For what etcd does not show (a log, a metric, a file): looks every 50 ms. */
void world_poll(World *world, Check check, gpointer data, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* Until the mirror has reached @revision. */
void world_catch_up(World *world, gint64 revision);
G_NORETURN void world_fail(World *world, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* ---- etcd, as one who may do anything ---- */

/* Each returns the revision that it made. */
gint64 world_put(World *world, const char *key, const char *value);
gint64 world_putf(World *world, const char *key, const char *format, ...) G_GNUC_PRINTF(3, 4);
gint64 world_put_bytes(World *world, const char *key, const void *value, gsize len);
gint64 world_delete(World *world, const char *key);

/* A key at one moment, or one change of it. */
typedef struct {
    char *key; /* without the prefix */
    gboolean is_delete;
    char *value; /* NUL-terminated */
    gsize len;
    gint64 create_rev, mod_rev, lease;
} Kv;

/* All keys below @prefix ("", "desired/"), sorted; g_ptr_array_unref. */
GPtrArray *world_range(World *world, const char *prefix);
/* All changes after @revision until now, in order; g_ptr_array_unref. */
GPtrArray *world_history(World *world, gint64 after_revision);
gint64 world_revision(World *world); /* the newest */

/* ---- what the mirror shows ---- */

const void *world_get(World *world, LhKind kind, const char *name_format, ...) G_GNUC_PRINTF(3, 4);
/* Live means: the item answers its present assignment, which says load, and Search has it. Those of
 * snapshots whose name begins with @snapshots (NULL: all). */
guint world_live(World *world, const char *snapshots);
void world_wait_live(World *world, const char *snapshots, guint n);
/* The condition of a Status ("services/x/admission"); NULL: there is none. */
const LhCondition *world_condition(World *world, const char *status, const char *type);
/* The newest event of this reason (and object, or NULL); NULL: none. */
const LhEvent *world_event(World *world, const char *reason, const char *object);
/* The same, waited for. */
const LhEvent *world_wait_event(World *world, const char *reason, const char *object);
/* Replica names of the snapshot that are assigned to a node or (assigned FALSE) to none. */
GPtrArray *world_replicas(World *world, gboolean assigned);

/* ---- snapshots ---- */

/* Makes @files files of @bytes each below the root; their bytes follow from the name. */
void snapshot_files(World *world, const char *name, guint files, gsize bytes);
/* The value for what is on the disk now, with sizes and checksums. g_free. */
char *snapshot_value(World *world, const char *name, const char *service, gint64 end_ms);
/* Both, and puts it. */
void snapshot_publish(World *world, const char *name, const char *service, gint64 end_ms,
                      guint files, gsize bytes);
char *snapshot_path(World *world, const char *name, const char *file); /* g_free */

/* ---- processes ---- */

struct Proc {
    World *world;
    char *name, *log;
    char *url; /* http://127.0.0.1:PORT or https://…, of a server */
    char *pid_text;
    GSubprocess *process;
    gboolean ended, excused; /* excused: how it ends is the test's business */
    int status;              /* of wait(2) */
};

/* @argv[0] "leasehold" is the program under test. */
Proc *proc_start(World *world, const char *name, const char *const *argv);
/* @extra: more arguments, NULL-ended or NULL. Returns when it serves. */
Proc *manager_start(World *world, const char *name, const char *const *extra);
/* @program: "leasehold", or "leasehold-faults", which has the settings that switch guards off. */
Proc *manager_start_program(World *world, const char *program, const char *name,
                            const char *const *extra);
/* ... and /readyz says 200 */
Proc *manager_ready(World *world, const char *name);
typedef struct {
    const char *name;
    const char *pool;     /* NULL: cache */
    const char *capacity; /* NULL: 1Gi */
    const char *items;    /* NULL: no limit */
    const char *set, *zone;
    const char *const *extra;
} AgentOptions;
/* Its data directory follows from its name: a later one of the same name finds it. */
Proc *agent_start(World *world, const AgentOptions *options);
void agents_start(World *world, guint n); /* agent-1 … */
/* Whether the server @proc serves already, or has ended; then (if not at once) proc->url is known. */
gboolean proc_serves(World *world, gpointer proc);
pid_t proc_pid(const Proc *proc);
char *proc_log(const Proc *proc);                       /* all that it has written; g_free */
guint count_words(const char *text, const char *words); /* how often */
guint proc_logged(const Proc *proc, const char *words); /* how often so far */
/* For world_poll: whether it has logged that. */
typedef struct {
    const Proc *proc;
    const char *words;
} Said;
gboolean proc_has_said(World *world, gpointer said);
/* Waits for its end; the exit code, or minus the signal. */
int proc_wait(Proc *proc);
int proc_stop(Proc *proc);  /* SIGTERM, and waits */
void proc_kill(Proc *proc); /* SIGKILL, and waits */
/* Pids of all processes of this world (etcd excepted), in a GArray of pid_t. */
GArray *world_pids(World *world);

/* A program that is run to its end. */
struct Run {
    int code; /* exit code */
    char *out, *err;
};

Run *run_argv(World *world, const char *const *argv);
Run *run(World *world, const char *program, ...) G_GNUC_NULL_TERMINATED;
/* `leasehold ARGUMENTS` against @server. */
Run *cli(Proc *server, ...) G_GNUC_NULL_TERMINATED;
/* Who asks, and which authority it trusts; what is NULL is left out. */
typedef struct {
    const char *cacert, *cert, *key; /* PEM files */
    const char *token, *token_file;  /* both or none */
} Identity;

Run *cli_as(Proc *server, const Identity *who, ...) G_GNUC_NULL_TERMINATED;
void run_free(Run *run);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Run, run_free)
/* etcdctl --endpoints … ARGUMENTS; must succeed. */
void etcdctl(World *world, ...) G_GNUC_NULL_TERMINATED;
/* The same as a user of world_user, or "root"; may fail. */
Run *etcdctl_as(World *world, const char *user, ...) G_GNUC_NULL_TERMINATED;

/* ---- HTTP ---- */

typedef struct {
    int status; /* 0: no answer */
    char *etag, *type;
    GString *body;
    cJSON *json; /* NULL: the body is none */
} Reply;

/* @headers: "Name: value", NULL-ended or NULL; a body is sent as JSON. */
Reply *http_send(const char *method, const char *url, const char *body, const char *const *headers);
/* "GET", "/v1/…" */
Reply *http(Proc *server, const char *method, const char *path, const char *body);
Reply *http_with(Proc *server, const char *method, const char *path, const char *body,
                 const char *header);
Reply *http_as(Proc *server, const Identity *who, const char *method, const char *path,
               const char *body);
/* Any url, a body of JSON or none. */
Reply *http_send_as(const Identity *who, const char *method, const char *url, const char *body,
                    const char *const *headers);
void reply_free(Reply *reply);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Reply, reply_free)
/* Fails the test unless the status is that. */
void reply_must(const Reply *reply, int status);
/* "status.conditions" → the value there; NULL: none. */
const cJSON *json_at(const cJSON *json, const char *path);
const char *json_text(const cJSON *json, const char *path); /* "" if there is no string */
/* "brake{controller=\"cache-evictor\"}" without leasehold_; NAN if there is none. */
double metric(Proc *server, const char *series);

/*
 * What the conformance tests are written with: one driver (the fake under virtual time, or a real
 * etcd), calls that wait for their answer, and recorders for watches.
 *
 * Every test works under a prefix of its own, k("name"), because all share one server. Whatever
 * these functions return lives until the end of the test.
 */
#pragma once

#include "base/env.h"
#include "base/errors.h"
#include "etcd/etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef gboolean (*Condition)(gpointer data);

typedef struct Driver Driver;
struct Driver {
    const char *version; /* of the server */
    LhEnv *env;
    LhEtcd *etcd;
    LhEtcd *(*connect)(Driver *driver);
    /* Runs the loop until @condition holds (TRUE) or @within_ms have passed (FALSE). */
    gboolean (*run_until)(Driver *driver, Condition condition, gpointer data, gint64 within_ms);
    void (*compact)(Driver *driver, gint64 revision);
    void (*freeze)(Driver *driver);
    void (*thaw)(Driver *driver);
    void (*restart)(Driver *driver); /* kill -9 and start on the same data */
    void (*back_up)(Driver *driver);
    void (*restore)(Driver *driver); /* what was there at the last back_up */
    void (*set_nospace)(Driver *driver, gboolean on);
};

extern Driver *driver;

/* Each file's tests; NULL-name-ended. */
extern const struct CMUnitTest range_tests[];
extern const struct CMUnitTest txn_tests[];
extern const struct CMUnitTest compare_tests[];
extern const struct CMUnitTest lease_tests[];
extern const struct CMUnitTest watch_tests[];
extern const struct CMUnitTest call_tests[];
extern const struct CMUnitTest list_tests[];
extern const struct CMUnitTest watcher_tests[];
extern const struct CMUnitTest keeper_tests[];

int suite_setup(void **state);
int suite_teardown(void **state);
#define TEST(function)                                         \
    {                                                          \
#function, function, suite_setup, suite_teardown, NULL \
    }
#define NO_MORE_TESTS                \
    {                                \
        NULL, NULL, NULL, NULL, NULL \
    }
/* Runs them as one group, but for those whose name begins with a text of @skip (NULL-ended, or NULL);
 * the exit status. */
int suite_run(Driver *with, const char *name, const char *const *skip);

/* ---- names and waiting ---- */

const char *k(const char *name);    /* a key of this test */
const char *kend(const char *name); /* the end of the range of the prefix k(name); "" for all */
const char *keep(char *text);       /* frees it at the end of the test */
gpointer scratch(gsize size);       /* zeros, freed at the end of the test */
/* Runs at the end of the test, even if it fails; the last one first, before anything is freed. */
void at_end(GDestroyNotify func, gpointer data);
void freeze_server(void); /* thawed at the end of the test at the latest */
void fill_server(void);   /* NOSPACE, until the end of the test at the latest */

void wait_for(Condition condition, gpointer data); /* fails the test after 15 s */
/* Lets time pass in which something must not happen. */
void let_pass(gint64 ms);
gint64 now_ms(void);
/* "3.4.23" < "3.4.38" */
gboolean version_before(const char *version);

/* ---- calls ---- */

typedef struct {
    char *key, *value;
    gsize key_len, value_len;
    gint64 create_rev, mod_rev, version, lease;
    gboolean is_delete;
} Kv;

typedef struct {
    gint64 revision;
    gint64 deleted, count;
    gboolean more;
    guint n;
    Kv *kvs;
    LhTxnOpType type;
} Op;

typedef struct {
    guint times; /* called back */
    gboolean ok; /* without error */
    int error;   /* LhErrorCode, -1 for none */
    char *message;
    LhEtcdHeader header;
    gint64 count;
    gboolean more;
    guint n;
    Kv *kvs;
    gboolean succeeded;
    guint n_ops;
    Op *ops;
    gint64 lease, ttl_s;
    LhStatusReply status;
    LhCallId call;
} Answer;

gboolean answered(gpointer answer); /* a Condition */

/* Started, not waited for. */
Answer *start_range(const LhRangeRequest *request, gint64 deadline_ms);
Answer *start_txn(const LhTxnRequest *request, gint64 deadline_ms);
Answer *start_grant(gint64 ttl_s, gint64 deadline_ms);
Answer *start_keepalive(gint64 lease, gint64 deadline_ms);
Answer *start_revoke(gint64 lease, gint64 deadline_ms);
Answer *start_status(gint64 deadline_ms);

/* Waited for; whatever the answer. */
Answer *range(const LhRangeRequest *request);
Answer *get(const char *key, gint64 revision);
Answer *txn(const LhTxnRequest *request);
/* Only success ops; may fail. */
Answer *ops(const LhTxnOp *list, gsize n);
/* Must succeed; the revision. */
gint64 put(const char *key, const char *value);
gint64 put_leased(const char *key, const char *value, gint64 lease);
gint64 del(const char *key, const char *range_end);
gint64 revision(void);
gint64 grant(gint64 ttl_s);
Answer *keepalive(gint64 lease);
Answer *drop_lease(gint64 lease);

void assert_fails(const Answer *answer, LhErrorCode code);
void assert_keys(const Kv *kvs, guint n, const char *names); /* "a b c": of k() */

/* ---- watches ---- */

typedef struct {
    LhEtcdHeader header;
    gboolean created, canceled, fragment, progress;
    gint64 compact_revision;
    guint n;
    Kv *events;
} Reply;

typedef struct {
    LhEtcdStream *stream;
    GPtrArray *replies; /* Reply* */
    GPtrArray *events;  /* Kv* of all replies */
    guint created, closed;
    int error;
} Watching;

Watching *watch(const char *key, const char *range_end, gint64 start_revision);
Watching *watch_created(const char *key, const char *range_end, gint64 start_revision); /* waits */
void wait_events(Watching *watching, guint n); /* and that there are no more than @n */
void unwatch(Watching *watching);
const Kv *event_at(const Watching *watching, guint i);

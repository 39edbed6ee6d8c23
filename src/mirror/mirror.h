/*
 * The mirror: etcd's keys under one prefix as typed objects, exactly as etcd had them at one revision.
 *
 * One list and one watch of the whole prefix give one cursor and one total order. After a compaction, or
 * when etcd went back in time, the mirror lists again and reports the differences, deletions included, as
 * if they had been watched. A value that does not parse is an unknown object, never an absent one.
 *
 * Loop thread only. Objects are immutable and reference-counted; a pointer got from the mirror is valid
 * until the mirror's next change, take a reference to keep it. Must not decide anything.
 */
#pragma once

#include "api/actual.h"
#include "api/decided.h"
#include "api/desired.h"
#include "api/object.h"
#include "api/observed.h"
#include "api/published.h"
#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhMirror LhMirror;

typedef struct {
    /* One key changed: created (before NULL), deleted (after NULL) or both there. The mirror shows the new
     * state of this key already, and perhaps not yet that of others of the same revision. Of the first list
     * changes are told as pages come, and the mirror shows nothing to others until it is whole. */
    void (*change)(const LhObject *before, const LhObject *after, gpointer data);
    /* The mirror is etcd's state at @revision, whole. Also called once after the first list. */
    void (*applied)(gint64 revision, gpointer data);
    /* The revision went back, the cluster id changed, or a list says something else of a revision that the
     * mirror had: etcd was restored. Called before the changes of the new list. May be NULL. */
    void (*regressed)(gint64 from_revision, gint64 to_revision, gpointer data);
    /* Inside lh_mirror_doubt(). May be NULL. */
    void (*doubt)(gpointer data);
} LhMirrorFuncs;

/* @prefix ends with '/'; copied. Nothing happens before lh_mirror_start. */
LhMirror *lh_mirror_new(LhEnv *env, LhEtcd *etcd, const char *prefix);
void lh_mirror_free(
    LhMirror *mirror); /* accepts NULL; may be called inside a listener's callback */

/* Listeners are called in the order in which they were added. */
void lh_mirror_listen(LhMirror *mirror, const LhMirrorFuncs *funcs, gpointer data);
void lh_mirror_unlisten(LhMirror *mirror, const LhMirrorFuncs *funcs, gpointer data);
/* Which etcd answers ("3.4.23"), when that is known; for watches that are opened from then on. */
void lh_mirror_set_version(LhMirror *mirror, const char *version);
void lh_mirror_start(LhMirror *mirror);
/* In lh_object_parse()'s place: returns a reference to an object equal to what that would make. For many
 * mirrors in one process, which may share objects. */
typedef LhObject *(*LhMirrorParse)(LhKind kind, const char *name, const LhKv *kv, gpointer data);
void lh_mirror_set_parser(LhMirror *mirror, LhMirrorParse func, gpointer data);

/* What was seen outside etcd: an Observation of this name ("<controller>/<errand>", valid for the kind) in
 * place of an older one, or (@seen NULL) none any more. @seen: the fields, on the stack. Listeners are told
 * of it like of any change, at the present revision; its own revisions are 0. Lists and comparisons with
 * etcd leave observations alone. */
void lh_mirror_observe(LhMirror *mirror, const char *name, const LhObservation *seen);
/* Around many of these: listeners are told of each, and that all are applied once. */
void lh_mirror_observe_begin(LhMirror *mirror);
void lh_mirror_observe_end(LhMirror *mirror);
/* Takes back all that @controller has been told. */
void lh_mirror_forget(LhMirror *mirror, const char *controller);

/* Puts one key's value in (@value NULL: deletes it) without any etcd: replaying recorded inputs. */
void lh_mirror_load(LhMirror *mirror, const char *key, const char *value, gsize len,
                    gint64 create_rev, gint64 mod_rev, gint64 lease);
/* Ends a replay: reports @revision as applied. */
void lh_mirror_loaded(LhMirror *mirror, gint64 revision);

/* An answer of etcd proves that it is not where this mirror is: it went back in time, and the watch has
 * not noticed yet. Lists again; until that is done the mirror is in doubt, and nothing should be decided
 * from it. */
void lh_mirror_doubt(LhMirror *mirror);
gboolean lh_mirror_in_doubt(const LhMirror *mirror);

const char *lh_mirror_prefix(const LhMirror *mirror);
/* 0 until the first list is complete. */
gint64 lh_mirror_revision(const LhMirror *mirror);
guint64 lh_mirror_cluster_id(const LhMirror *mirror);
/* Listed, and the watch is open. */
gboolean lh_mirror_synced(const LhMirror *mirror);
/* Milliseconds since etcd was last heard; 0 while the list is running for the first time. */
gint64 lh_mirror_staleness_ms(const LhMirror *mirror);

const LhObject *lh_mirror_get(const LhMirror *mirror, LhKind kind, const char *name);
guint lh_mirror_count(const LhMirror *mirror, LhKind kind); /* unknown ones included */
/* Unknown objects of @kind; LH_N_KINDS: keys of no known kind, "observed/…" among them. */
guint lh_mirror_invalid(const LhMirror *mirror, LhKind kind);
/* In no order. The mirror must not change meanwhile. */
void lh_mirror_foreach(const LhMirror *mirror, LhKind kind,
                       void (*func)(const LhObject *object, gpointer data), gpointer data);
/* All objects of a kind sorted by name, each with a reference; free with g_ptr_array_unref. */
GPtrArray *lh_mirror_list(const LhMirror *mirror, LhKind kind);

/*
 * Work without files for tests of the agent: loads and releases take virtual time, or fail, as the test
 * says; checks on its own that the agent keeps its side of agent/work.h.
 */
#pragma once

#include "agent/work.h"
#include "base/env.h"
#include "base/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    LhAgentWork base;
    LhEnv *env;
    const LhWorkFuncs *funcs;
    gpointer data;
    GHashTable *things; /* item → VirtualThing */
    gint64 load_ms, release_ms;
    guint progress_steps;   /* told in so many steps while loading */
    const char *fail_loads; /* the message; NULL: they succeed */
    guint fail_releases;    /* so many times */
    gboolean finish;        /* loads end by "done" */
    guint loads, releases, drops, updates;
    gint64 dropped_ms;
    gint64 deadline_ms; /* told last; 0: none */
    const char *const *warm;
} VirtualWork;

typedef enum { VIRTUAL_LOADING, VIRTUAL_READY, VIRTUAL_RELEASING, VIRTUAL_GONE } VirtualState;

typedef struct {
    VirtualWork *work;
    char *item, *uri;
    gint64 size;
    VirtualState state;
    gboolean served;
    guint step;
    LhTimer *timer;
} VirtualThing;

static inline void virtual_thing_free(gpointer data)
{
    VirtualThing *t = data;
    lh_timer_clear(t->work->env, &t->timer);
    g_free(t->item);
    g_free(t->uri);
    g_free(t);
}

static inline void virtual_step(gpointer data)
{
    VirtualThing *t = data;
    VirtualWork *w = t->work;
    t->timer = NULL;
    if (t->state == VIRTUAL_LOADING && t->step < w->progress_steps) {
        t->step++;
        t->timer = lh_timer_in(w->env, w->load_ms / (w->progress_steps + 1), virtual_step, t);
        w->funcs->progress(t->item, t->size * t->step / (w->progress_steps + 1), w->data);
        return;
    }
    g_autofree char *item = g_strdup(t->item);
    if (t->state == VIRTUAL_LOADING && w->fail_loads != NULL) {
        g_autoptr(GError) error = g_error_new_literal(LH_ERROR, LH_ERR_CHECKSUM, w->fail_loads);
        g_hash_table_remove(w->things, item);
        w->funcs->failed(item, error, w->data);
    } else if (t->state == VIRTUAL_LOADING && w->finish) {
        g_hash_table_remove(w->things, item);
        w->funcs->finished(item, w->data);
    } else if (t->state == VIRTUAL_LOADING) {
        t->state = VIRTUAL_READY;
        g_autofree char *url = g_strconcat("http://node/v1/files/", item, "/", NULL);
        w->funcs->ready(item, url, w->data);
    } else if (w->fail_releases > 0) {
        w->fail_releases--;
        t->state = VIRTUAL_READY;
        g_autoptr(GError) error = g_error_new_literal(LH_ERROR, LH_ERR_IO, "busy");
        w->funcs->released(item, error, w->data);
    } else {
        g_hash_table_remove(w->things, item);
        w->funcs->released(item, NULL, w->data);
    }
}

static inline void virtual_attach(LhAgentWork *base, const LhWorkFuncs *funcs, gpointer data)
{
    VirtualWork *w = (VirtualWork *)base;
    w->funcs = funcs;
    w->data = data;
}

static inline void virtual_load(LhAgentWork *base, const char *item, const LhAssignment *a)
{
    VirtualWork *w = (VirtualWork *)base;
    assert_null(g_hash_table_lookup(w->things, item)); /* never over what is held */
    VirtualThing *t = g_new0(VirtualThing, 1);
    t->work = w;
    t->item = g_strdup(item);
    t->uri = g_strdup(a->uri);
    t->size = a->size_bytes;
    g_hash_table_insert(w->things, t->item, t);
    w->loads++;
    t->timer = lh_timer_in(w->env, w->load_ms / (w->progress_steps + 1), virtual_step, t);
}

static inline gboolean virtual_update(LhAgentWork *base, const char *item, const LhAssignment *a)
{
    VirtualWork *w = (VirtualWork *)base;
    const VirtualThing *t = g_hash_table_lookup(w->things, item);
    assert_non_null(t);
    w->updates++;
    return g_strcmp0(t->uri, a->uri) == 0;
}

static inline void virtual_serve(LhAgentWork *base, const char *item, gboolean on)
{
    VirtualThing *t = g_hash_table_lookup(((VirtualWork *)base)->things, item);
    assert_non_null(t);
    assert_true(t->state == VIRTUAL_READY && t->served != on);
    t->served = on;
}

static inline void virtual_release(LhAgentWork *base, const char *item)
{
    VirtualWork *w = (VirtualWork *)base;
    VirtualThing *t = g_hash_table_lookup(w->things, item);
    assert_non_null(t);
    assert_true(t->state != VIRTUAL_RELEASING && !t->served);
    lh_timer_clear(w->env, &t->timer);
    t->state = VIRTUAL_RELEASING;
    w->releases++;
    t->timer = lh_timer_in(w->env, w->release_ms, virtual_step, t);
}

static inline void virtual_deadline(LhAgentWork *base, gint64 mono_ms)
{
    VirtualWork *w = (VirtualWork *)base;
    assert_true(mono_ms >= w->deadline_ms);
    w->deadline_ms = mono_ms;
}

static inline void virtual_drop(LhAgentWork *base)
{
    VirtualWork *w = (VirtualWork *)base;
    w->drops++;
    w->dropped_ms = lh_mono_ms(w->env);
    g_hash_table_remove_all(w->things);
}

static inline char **virtual_warm(LhAgentWork *base)
{
    return g_strdupv((char **)((VirtualWork *)base)->warm);
}

static inline VirtualWork *virtual_work_new(LhEnv *env)
{
    static const LhAgentWorkVtable vtable = {
        .attach = virtual_attach,
        .load = virtual_load,
        .update = virtual_update,
        .serve = virtual_serve,
        .release = virtual_release,
        .deadline = virtual_deadline,
        .drop = virtual_drop,
        .warm = virtual_warm,
    };
    VirtualWork *w = g_new0(VirtualWork, 1);
    w->base.v = &vtable;
    w->env = env;
    w->things = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, virtual_thing_free);
    w->load_ms = 200;
    w->release_ms = 50;
    return w;
}

static inline void virtual_work_free(VirtualWork *w)
{
    g_hash_table_unref(w->things);
    g_free(w);
}

static inline gboolean virtual_served(VirtualWork *w, const char *item)
{
    const VirtualThing *t = g_hash_table_lookup(w->things, item);
    return t != NULL && t->served;
}

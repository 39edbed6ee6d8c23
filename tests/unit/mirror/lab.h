/*
 * For the tests of the mirror: one mirror on the fake etcd in virtual time, and a listener that writes
 * down what it is told, one line for each:
 *
 *   +snapshots/a@12      created          -snapshots/a   deleted
 *   ~snapshots/a@14      changed          =14            applied at revision 14
 *   !14>12               went back
 */
#pragma once

#include "base/errors.h"
#include "base/log.h"
#include "mirror/mirror.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define P "/leasehold/"

typedef struct {
    SimWorld *world;
    FakeEtcd *server;
    LhEnv *env;
    LhEtcd *etcd;
    LhMirror *mirror;
    GString *told;
    gboolean free_at_change, free_at_applied;
} Lab;

static void lab_drop(Lab *lab)
{
    g_clear_pointer(&lab->mirror, lh_mirror_free);
}

static void on_change(const LhObject *before, const LhObject *after, gpointer data)
{
    Lab *lab = data;
    const LhObject *object = after != NULL ? after : before;
    const LhObject *shown = lh_mirror_get(lab->mirror, (LhKind)object->kind, object->name);

    assert_ptr_equal(shown, after);
    g_string_append_printf(lab->told, "%c%s/%s", before == NULL ? '+' : (after == NULL ? '-' : '~'),
                           lh_kind_info((LhKind)object->kind)->plural, object->name);
    if (after != NULL)
        g_string_append_printf(lab->told, "@%" G_GINT64_FORMAT, after->mod_rev);
    g_string_append_c(lab->told, ' ');
    if (lab->free_at_change)
        lab_drop(lab);
}

static void on_applied(gint64 revision, gpointer data)
{
    Lab *lab = data;

    assert_int_equal(revision, lh_mirror_revision(lab->mirror));
    g_string_append_printf(lab->told, "=%" G_GINT64_FORMAT " ", revision);
    if (lab->free_at_applied)
        lab_drop(lab);
}

static void on_regressed(gint64 from, gint64 to, gpointer data)
{
    g_string_append_printf(((Lab *)data)->told, "!%" G_GINT64_FORMAT ">%" G_GINT64_FORMAT " ", from,
                           to);
}

static const LhMirrorFuncs lab_funcs = {.change = on_change,
                                        .applied = on_applied,
                                        .regressed = on_regressed};

static void quiet_log(G_GNUC_UNUSED const char *line, G_GNUC_UNUSED gpointer data)
{
}

static Lab lab_new(guint64 seed, const FakeEtcdOptions *options)
{
    Lab lab = {.world = sim_world_new(seed), .told = g_string_new(NULL)};

    lh_log_set_sink(quiet_log, NULL);
    lab.server = fake_etcd_new(sim_machine_new(lab.world, "etcd"), options);
    lab.env = sim_machine_new(lab.world, "manager");
    lab.etcd = fake_etcd_connect(lab.server, lab.env, "manager");
    lab.mirror = lh_mirror_new(lab.env, lab.etcd, P);
    return lab;
}

/* @lab stays where it is from here on. */
static void lab_start(Lab *lab)
{
    lh_mirror_listen(lab->mirror, &lab_funcs, lab);
    lh_mirror_start(lab->mirror);
}

static void lab_free(Lab *lab)
{
    lab_drop(lab);
    lh_etcd_free(lab->etcd);
    fake_etcd_free(lab->server);
    sim_world_free(lab->world);
    g_string_free(lab->told, TRUE);
}

static void pass(Lab *lab, gint64 ms)
{
    sim_world_run_until(lab->world, sim_world_now_ms(lab->world) + ms);
}

/* What was told since the last time. */
static void expect_told(Lab *lab, const char *wanted)
{
    g_strchomp(lab->told->str);
    assert_string_equal(lab->told->str, wanted);
    g_string_truncate(lab->told, 0);
}

static gint64 put(Lab *lab, const char *key, const char *value)
{
    g_autofree char *whole = g_strconcat(P, key, NULL);

    return fake_etcd_put(lab->server, whole, value, 0);
}

static void drop_key(Lab *lab, const char *key)
{
    g_autofree char *whole = g_strconcat(P, key, NULL);

    assert_int_equal(fake_etcd_delete(lab->server, whole, NULL), 1);
}

static char *snapshot_value(gint64 size)
{
    return g_strdup_printf("{\"service\":\"api-logs\",\"startTime\":1000,\"endTime\":2000,"
                           "\"sizeBytes\":%" G_GINT64_FORMAT ",\"uri\":\"s3://bucket/a/\"}",
                           size);
}

static gint64 put_snapshot(Lab *lab, const char *name, gint64 size)
{
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
    g_autofree char *value = snapshot_value(size);

    return put(lab, key, value);
}

typedef struct {
    Lab *lab;
    guint n;
} Agreement;

/* The mirror's object of the key and etcd's key are one. */
static void check_key(const LhKv *kv, gpointer data)
{
    Agreement *agreement = data;
    LhKind kind;
    const char *name;

    if (!lh_key_split(kv->key + strlen(P), &kind, &name))
        return;
    const LhObject *object = lh_mirror_get(agreement->lab->mirror, kind, name);
    assert_non_null(object);
    assert_int_equal(object->mod_rev, kv->mod_rev);
    assert_int_equal(object->create_rev, kv->create_rev);
    g_autoptr(LhObject) fresh = lh_object_parse(kind, name, kv->value, kv->value_len,
                                                kv->create_rev, kv->mod_rev, kv->lease);
    assert_int_equal(lh_object_known(object), lh_object_known(fresh));
    assert_true(lh_object_same(kind, object, fresh));
    agreement->n++;
}

/* The mirror is etcd's state: same keys, same values, nothing more. */
static void check_agrees(Lab *lab)
{
    g_autofree char *end = lh_etcd_prefix_end(P);
    Agreement agreement = {lab, 0};
    guint n = 0;

    fake_etcd_foreach(lab->server, P, end, 0, check_key, &agreement);
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        n += lh_mirror_count(lab->mirror, (LhKind)kind);
    assert_int_equal(n, agreement.n);
}

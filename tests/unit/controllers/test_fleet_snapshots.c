/*
 * controllers/fleet: which snapshots' uris collide, and what there is to create in which order, against what a
 * simple reading of all present objects says; over random histories of snapshots alone.
 */
#include "controllers/fleet.h"
#include "tests/unit/every.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N_NAMES 40
#define STEPS   6000

typedef struct {
    gpointer index;
    LhObject *present[N_NAMES];
    gint64 revision;
    GRand *rand;
} Lab;

static void fold(Lab *lab, LhObject **slot, LhObject *after)
{
    lh_fleet_index.fold(lab->index, *slot, after);
    lh_object_unref(*slot);
    *slot = after;
}

static gint some(Lab *lab, gint n)
{
    return g_rand_int_range(lab->rand, 0, n);
}

/* Mostly a uri that ends in the name, in a directory of others; often one that holds others or lies within. */
static char *make_uri(Lab *lab, const char *name)
{
    switch (some(lab, 5)) {
    case 0:
        return g_strdup_printf("s3://b/d%d/", some(lab, 3));
    case 1:
        return g_strdup_printf("s3://b/d%d/s%d/", some(lab, 3), some(lab, N_NAMES));
    case 2:
        return g_strdup_printf("s3://b/d%d/s%d/x/", some(lab, 3), some(lab, N_NAMES));
    default:
        return g_strdup_printf("s3://b/d%d/%s%s/", some(lab, 3), some(lab, 2) == 0 ? "e/" : "",
                               name);
    }
}

static LhObject *make_snapshot(Lab *lab, const char *name, const LhObject *before)
{
    g_autofree char *uri = make_uri(lab, name);
    g_autofree char *value =
        some(lab, 12) == 0 ? g_strdup("not JSON")
                           : g_strdup_printf("{\"service\":\"a\",\"startTime\":1,\"endTime\":%d,"
                                             "\"sizeBytes\":1,\"uri\":\"%s\"}",
                                             1 + some(lab, 20), uri);
    gint64 revision = ++lab->revision;
    /* Now and then two of one transaction. */
    gint64 create = before != NULL ? before->create_rev : revision - some(lab, 2);
    return lh_object_parse(LH_KIND_SNAPSHOT, name, value, strlen(value), create, revision, 0);
}

static const LhSnapshot *known(const LhObject *object)
{
    return object != NULL && lh_object_known(object) ? (const LhSnapshot *)object : NULL;
}

static gboolean older(const LhObject *a, const LhObject *b)
{
    return a->create_rev != b->create_rev ? a->create_rev < b->create_rev
                                          : strcmp(a->name, b->name) < 0;
}

static const LhObject *collides(Lab *lab, const LhSnapshot *self)
{
    g_autofree char *uri = lh_uri_text(&self->uri);
    const LhObject *oldest = NULL;
    for (guint i = 0; i < N_NAMES; i++) {
        const LhSnapshot *other = known(lab->present[i]);
        g_autofree char *other_uri = other == NULL ? NULL : lh_uri_text(&other->uri);
        if (other == NULL || other == self || !older(&other->o, &self->o) ||
            !(g_str_has_prefix(uri, other_uri) || g_str_has_prefix(other_uri, uri)))
            continue;
        if (oldest == NULL || older(&other->o, oldest))
            oldest = &other->o;
    }
    return oldest;
}

static void check(Lab *lab, GHashTable *wanted)
{
    const LhFleet *fleet = lab->index;
    guint present = 0;
    g_hash_table_remove_all(wanted);
    for (guint i = 0; i < N_NAMES; i++) {
        const LhSnapshot *object = known(lab->present[i]);
        if (lab->present[i] == NULL)
            continue;
        present++;
        const LhFleetSnapshot *record = lh_name_set_get(&fleet->snapshots, lab->present[i]->name);
        assert_non_null(record);
        assert_ptr_equal(record->object, lab->present[i]);
        g_autofree char *invalid = lh_fleet_snapshot_invalid(fleet, record);
        const LhObject *holder = object == NULL ? NULL : collides(lab, object);
        if (object == NULL) {
            assert_string_equal(invalid, lh_object_error(lab->present[i]));
        } else if (holder == NULL) {
            assert_null(invalid);
            g_hash_table_add(wanted, (gpointer)record);
        } else {
            g_autofree char *text = g_strdup_printf(
                "uri: overlaps that of snapshot %s, which is older", holder->name);
            assert_string_equal(invalid, text);
        }
        assert_int_equal(record->valid_todo, invalid != NULL);
    }
    assert_int_equal(fleet->snapshots.n, present);
}

static void check_walk(Lab *lab, GHashTable *wanted)
{
    const LhFleet *fleet = lab->index;
    const LhFleetSnapshot *snapshot, *before = NULL;
    guint n = 0;
    g_auto(LhFleetWalk) walk = {.heap = NULL};
    lh_fleet_walk_begin(&walk, fleet->create_todo);
    while ((snapshot = lh_fleet_walk_next(&walk)) != NULL) {
        assert_true(g_hash_table_contains(wanted, snapshot));
        if (before != NULL)
            assert_true(before->sort_time > snapshot->sort_time ||
                        (before->sort_time == snapshot->sort_time &&
                         strcmp(before->name, snapshot->name) < 0));
        before = snapshot;
        n++;
    }
    assert_int_equal(n, g_hash_table_size(wanted));
}

static void random_histories_agree_with_a_simple_reading(void **state)
{
    (void)state;
    static const char accepted[] = "{\"revision\":1,\"acceptedAt\":1,\"labels\":{},\"spec\":"
                                   "{\"owner\":\"o\",\"cache\":{\"window\":\"1h\"}}}";
    g_autoptr(GHashTable) wanted = g_hash_table_new(NULL, NULL);
    for (guint seed = 0; seed < 3; seed++) {
        Lab lab = {
            .index = lh_fleet_index.new(), .revision = 2, .rand = g_rand_new_with_seed(seed)};
        LhObject *service = NULL;
        guint collisions = 0, steps = 0, all = STEPS / every();
        fold(&lab, &service,
             lh_object_parse(LH_KIND_ACCEPTED, "services/a", accepted, strlen(accepted), 2, 2, 0));
        assert_true(lh_object_known(service));
        for (; steps < all; steps++) {
            guint i = (guint)some(&lab, N_NAMES);
            g_autofree char *name = g_strdup_printf("s%u", i);
            LhObject *before = lab.present[i];
            if (before == NULL && some(&lab, 2) == 0)
                continue;
            gboolean drop = before != NULL && some(&lab, 2) == 0;
            fold(&lab, &lab.present[i], drop ? NULL : make_snapshot(&lab, name, before));
            check(&lab, wanted);
            check_walk(&lab, wanted);
            collisions += g_tree_nnodes(((LhFleet *)lab.index)->valid_todo) > 0;
        }
        assert_true(collisions > all / 10);
        for (guint i = 0; i < N_NAMES; i++) {
            if (lab.present[i] != NULL)
                fold(&lab, &lab.present[i], NULL);
        }
        assert_int_equal(((LhFleet *)lab.index)->snapshots.n, 0);
        assert_int_equal(((LhFleet *)lab.index)->by_uri.n, 0);
        assert_int_equal(((LhFleet *)lab.index)->contests.n, 0);
        fold(&lab, &service, NULL);
        lh_fleet_index.free(lab.index);
        g_rand_free(lab.rand);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_agree_with_a_simple_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

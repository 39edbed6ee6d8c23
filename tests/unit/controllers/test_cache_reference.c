/*
 * cache-assigner on random fleets, against what must hold of any good answer, looked for slowly: no node beyond
 * its capacity, never two replicas of a snapshot on a host, the freshest first (what waits fits nowhere beside
 * what is fresher alone), zones apart while there is room in another, spread, and nothing moves afterwards.
 *
 * LEASEHOLD_SEED=N runs that fleet alone.
 */
#include "tests/unit/controllers/harness.h"
#include "tests/unit/every.h"

#define FLEETS    400
#define MAX_NODES 8

typedef struct {
    char *id, *name, *zone;
    gint64 bytes, items; /* items 0: no limit */
} Node;

typedef struct {
    const LhReplica *replica;
    const LhSnapshot *snapshot;
    const Node *node; /* NULL: waits */
} Placed;

typedef struct {
    guint seed;
    World *world;
    GRand *rand;
    Node nodes[MAX_NODES];
    guint n_nodes;
    GArray *placed; /* Placed */
} Case;

static struct {
    guint placed, waiting, other_zone, copies;
} seen;

#define CHECK(c, condition, ...)                                 \
    do {                                                         \
        if (!(condition))                                        \
            broken(c, #condition, g_strdup_printf(__VA_ARGS__)); \
    } while (0)

static void broken(const Case *c, const char *condition, char *what)
{
    fail_msg("LEASEHOLD_SEED=%u: %s: %s", c->seed, what, condition);
}

/* ---- a fleet ---- */

static void make_nodes(Case *c)
{
    gboolean zones = g_rand_boolean(c->rand);

    c->n_nodes = (guint)g_rand_int_range(c->rand, 1, MAX_NODES + 1);
    for (guint i = 0; i < c->n_nodes; i++) {
        Node *node = &c->nodes[i];
        g_autofree char *more = NULL;
        node->id = g_strdup_printf("n%u-00000001", i);
        node->name = g_strdup_printf("n%u", i);
        node->zone = zones ? g_strdup_printf("z%d", g_rand_int_range(c->rand, 0, 3)) : NULL;
        node->bytes = g_rand_int_range(c->rand, 0, 60);
        node->items = g_rand_boolean(c->rand) ? g_rand_int_range(c->rand, 1, 8) : 0;
        more = node->zone == NULL ? g_strdup("") : g_strdup_printf(",\"zone\":\"%s\"", node->zone);
        put_node(c->world, node->id, node->bytes, node->items, more);
    }
}

static void make_snapshots(Case *c, const char *prefix, gint64 from_ms, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s%03u", prefix, i);
        put_snapshot(c->world, name, "api", from_ms - (gint64)i * SECOND,
                     g_rand_int_range(c->rand, 1, 20));
    }
}

/* ---- what is decided, read from the keys ---- */

static const Node *node_called(const Case *c, const char *id)
{
    for (guint i = 0; i < c->n_nodes; i++)
        if (g_strcmp0(c->nodes[i].id, id) == 0)
            return &c->nodes[i];
    return NULL;
}

static void read_placed(Case *c)
{
    g_autoptr(GPtrArray) keys = keys_below(c->world, "decided/replicas/");

    g_array_set_size(c->placed, 0);
    for (guint i = 0; i < keys->len; i++) {
        const LhReplica *replica = look(c->world, keys->pdata[i]);
        g_autofree char *node = node_of(c->world, replica->o.name);
        Placed one = {.replica = replica,
                      .snapshot = lookf(c->world, "published/snapshots/%s", replica->snapshot),
                      .node = node_called(c, node)};
        CHECK(c, node == NULL || one.node != NULL, "%s is on %s", replica->o.name, node);
        g_array_append_val(c->placed, one);
    }
}

static const Placed *placed_at(const Case *c, guint i)
{
    return &g_array_index(c->placed, Placed, i);
}

/* Fresher, or of the same snapshot and not behind it. */
static gboolean comes_before(const Placed *a, const Placed *b)
{
    if (a->snapshot->end_time != b->snapshot->end_time)
        return a->snapshot->end_time > b->snapshot->end_time;
    return a->replica->ordinal < b->replica->ordinal;
}

/* What is on @node; @than: only what comes before it. */
static void load_of(const Case *c, const Node *node, const Placed *than, gint64 *bytes,
                    gint64 *items)
{
    *bytes = *items = 0;
    for (guint i = 0; i < c->placed->len; i++) {
        const Placed *one = placed_at(c, i);
        if (one->node != node || (than != NULL && !comes_before(one, than)))
            continue;
        *bytes += one->snapshot->size_bytes;
        *items += 1;
    }
}

static gboolean fits(const Case *c, const Node *node, const Placed *one, gint64 bytes, gint64 items)
{
    for (guint i = 0; i < c->placed->len; i++) {
        const Placed *other = placed_at(c, i);
        if (other != one && other->snapshot == one->snapshot && other->node == node)
            return FALSE;
    }
    return bytes + one->snapshot->size_bytes <= node->bytes &&
           (node->items == 0 || items + 1 <= node->items);
}

/* ---- what must hold ---- */

static void check_capacity(const Case *c)
{
    for (guint i = 0; i < c->n_nodes; i++) {
        const Node *node = &c->nodes[i];
        gint64 bytes, items;
        load_of(c, node, NULL, &bytes, &items);
        CHECK(c, bytes <= node->bytes && (node->items == 0 || items <= node->items),
              "%s holds %" PRId64 " bytes, %" PRId64 " items", node->id, bytes, items);
    }
}

static void check_apart(const Case *c)
{
    for (guint i = 0; i < c->placed->len; i++)
        for (guint k = 0; k < i; k++) {
            const Placed *a = placed_at(c, i), *b = placed_at(c, k);
            if (a->snapshot != b->snapshot || a->node == NULL || b->node == NULL)
                continue;
            CHECK(c, a->node != b->node, "two of %s on %s", a->replica->snapshot, a->node->id);
            seen.copies++;
        }
}

/* TRUE: the snapshot of @one has a replica that comes before it in @zone. */
static gboolean zone_taken(const Case *c, const Placed *one, const char *zone)
{
    for (guint i = 0; i < c->placed->len; i++) {
        const Placed *other = placed_at(c, i);
        if (other->snapshot == one->snapshot && other->node != NULL && comes_before(other, one) &&
            zone != NULL && g_strcmp0(other->node->zone, zone) == 0)
            return TRUE;
    }
    return FALSE;
}

/* As a share of a node's capacity, once @one is there too. */
static double fill_of(const Node *node, const Placed *one, gint64 bytes, gint64 items)
{
    double share = (double)(bytes + one->snapshot->size_bytes) / (double)node->bytes;
    double count = node->items == 0 ? 0 : (double)(items + 1) / (double)node->items;

    return MAX(share, count);
}

/* Each replica once more, beside those alone that come before it. */
static void check_one(const Case *c, const Placed *one)
{
    gint64 own_bytes = 0, own_items = 0;

    if (one->node != NULL)
        load_of(c, one->node, one, &own_bytes, &own_items);
    for (guint i = 0; i < c->n_nodes; i++) {
        const Node *node = &c->nodes[i];
        gint64 bytes, items;
        load_of(c, node, one, &bytes, &items);
        if (node == one->node || !fits(c, node, one, bytes, items))
            continue;
        CHECK(c, one->node != NULL, "%s waits, %s has room", one->replica->o.name, node->id);
        gboolean taken = zone_taken(c, one, one->node->zone),
                 other = zone_taken(c, one, node->zone);
        CHECK(c, !taken || other, "%s on %s, whose zone has one, not on %s", one->replica->o.name,
              one->node->id, node->id);
        seen.other_zone += other && !taken;
        if (taken == other)
            CHECK(c,
                  fill_of(one->node, one, own_bytes, own_items) <= fill_of(node, one, bytes, items),
                  "%s on %s, %s is emptier", one->replica->o.name, one->node->id, node->id);
    }
    *(one->node != NULL ? &seen.placed : &seen.waiting) += 1;
}

static char *assignments_of(const World *world)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/assignments/");
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < keys->len; i++)
        g_string_append_printf(text, "%s@%" PRId64 "\n", (const char *)keys->pdata[i],
                               mod_rev(world, keys->pdata[i]));
    return g_string_free(text, FALSE);
}

/* Fresher snapshots come: what is placed stays where it is. */
static void check_stays(Case *c)
{
    g_autofree char *before = assignments_of(c->world), *after = NULL;
    g_auto(GStrv) lines = g_strsplit(before, "\n", -1);

    make_snapshots(c, "t", T0 - SECOND, 10);
    run(c->world, "replica-creator");
    run(c->world, "cache-assigner");
    after = assignments_of(c->world);
    for (guint i = 0; lines[i] != NULL; i++)
        CHECK(c, strstr(after, lines[i]) != NULL, "%s has moved", lines[i]);
    read_placed(c);
    check_capacity(c);
    check_apart(c);
}

static void check_fleet(guint seed)
{
    Case c = {.seed = seed, .world = world_new(), .rand = g_rand_new_with_seed(seed)};

    c.placed = g_array_new(FALSE, FALSE, sizeof(Placed));
    put_service(c.world, "api", "\"cache\":{\"replicas\":%d}", g_rand_int_range(c.rand, 1, 4));
    put_settings(c.world, "cache-assigner",
                 "\"restoreReservePercent\":0,\"maxConcurrentLoads\":1000");
    make_nodes(&c);
    make_snapshots(&c, "s", T0 - MINUTE, (guint)g_rand_int_range(c.rand, 1, 30));
    run(c.world, "replica-creator");
    run(c.world, "cache-assigner");
    read_placed(&c);
    check_capacity(&c);
    check_apart(&c);
    for (guint i = 0; i < c.placed->len; i++)
        check_one(&c, placed_at(&c, i));
    check_stays(&c);
    for (guint i = 0; i < c.n_nodes; i++) {
        g_free(c.nodes[i].id);
        g_free(c.nodes[i].name);
        g_free(c.nodes[i].zone);
    }
    g_array_unref(c.placed);
    g_rand_free(c.rand);
    world_free(c.world);
}

static void random_fleets_are_placed_as_they_must(void **state)
{
    const char *one = g_getenv("LEASEHOLD_SEED");
    guint fleets = FLEETS / every();

    (void)state;
    if (one != NULL) {
        check_fleet((guint)g_ascii_strtoull(one, NULL, 10));
        return;
    }
    for (guint seed = 1; seed <= fleets; seed++)
        check_fleet(seed);
    print_message(
        "seeds 1..%u: %u replicas placed, %u wait, %u pairs of copies, %u in another zone\n",
        fleets, seen.placed, seen.waiting, seen.copies, seen.other_zone);
    assert_true(seen.placed > 10 * fleets && seen.waiting > 2 * fleets);
    assert_true(seen.copies > fleets && seen.other_zone > fleets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_fleets_are_placed_as_they_must),
    };

    return cmocka_run_group_tests_name("cache_reference", tests, NULL, NULL);
}

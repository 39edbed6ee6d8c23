/*
 * placement: the rules of placement.h one by one, then random small cases against a reference that does
 * what the header says in the slowest and plainest way.
 */
#include "placement/placement.h"
#include "tests/unit/every.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static LhPlaceNode node_of(const char *id, gint64 bytes)
{
    return (LhPlaceNode){
        .id = id, .host = id, .set = "default", .capacity_bytes = bytes, .load_slots = 100};
}

static LhPlaceItem item_of(gint64 bytes)
{
    return (LhPlaceItem){.set = "default", .size_bytes = bytes};
}

static LhPlacement *placement_with(LhPlaceStrategy strategy, gint64 reserve,
                                   const LhPlaceNode *nodes, guint n)
{
    LhPlacement *placement = lh_placement_new(strategy, reserve);

    for (guint i = 0; i < n; i++)
        lh_placement_add(placement, &nodes[i]);
    return placement;
}

static LhPlaceAnswer place_once(LhPlaceStrategy strategy, gint64 reserve, const LhPlaceNode *nodes,
                                guint n, const LhPlaceItem *item)
{
    g_autoptr(LhPlacement) placement = placement_with(strategy, reserve, nodes, n);

    return lh_placement_place(placement, item);
}

static void an_unknown_set_has_no_nodes(void **state)
{
    g_autoptr(LhPlacement) placement = lh_placement_new(LH_PLACE_SPREAD, 0);
    LhPlaceItem item = item_of(1);

    (void)state;
    assert_int_equal(lh_placement_place(placement, &item).rule, LH_WAIT_NODES);
    assert_false(lh_placement_take_slot(placement, "default", "a"));
    assert_false(lh_placement_give_up(placement, "default", "a", 1, FALSE));
}

static void bytes_and_items_are_limits(void **state)
{
    LhPlaceNode node = node_of("a", 10);
    LhPlaceItem item = item_of(10), big = item_of(11), empty = item_of(0);

    (void)state;
    assert_int_equal(place_once(LH_PLACE_SPREAD, 0, &node, 1, &big).rule, LH_WAIT_BYTES);
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, &node, 1, &item).node_id, "a");
    node.capacity_items = 2;
    node.used_items = 2;
    assert_int_equal(place_once(LH_PLACE_SPREAD, 0, &node, 1, &item).rule, LH_WAIT_ITEMS);
    node.capacity_bytes = 0;
    node.capacity_items = 0;
    assert_int_equal(place_once(LH_PLACE_SPREAD, 0, &node, 1, &item).rule, LH_WAIT_BYTES);
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, &node, 1, &empty).node_id, "a");
}

static void each_answer_is_booked(void **state)
{
    LhPlaceNode node = node_of("a", 25);
    g_autoptr(LhPlacement) placement = placement_with(LH_PLACE_SPREAD, 0, &node, 1);
    LhPlaceItem item = item_of(10);

    (void)state;
    assert_int_equal(lh_placement_place(placement, &item).rule, LH_PLACED_STRATEGY);
    assert_int_equal(lh_placement_place(placement, &item).rule, LH_PLACED_STRATEGY);
    assert_int_equal(lh_placement_place(placement, &item).rule, LH_WAIT_BYTES);
}

static void reserve_is_for_restored_items_alone(void **state)
{
    LhPlaceNode node = node_of("a", 1005);

    (void)state;
    node.capacity_items = 25;
    assert_int_equal(lh_place_free_bytes(&node, 10, FALSE), 905);
    assert_int_equal(lh_place_free_bytes(&node, 10, TRUE), 100);
    assert_int_equal(lh_place_free_items(&node, 10, FALSE), 23);
    assert_int_equal(lh_place_free_items(&node, 10, TRUE), 2);
    assert_int_equal(lh_place_free_bytes(&node, 0, TRUE), 0);
    assert_int_equal(lh_place_free_bytes(&node, 0, FALSE), 1005);
    assert_int_equal(lh_place_free_bytes(&node, 100, TRUE), 1005);
    assert_int_equal(lh_place_free_bytes(&node, 100, FALSE), 0);
    node.used_bytes = 900;
    node.restored_bytes = 99;
    assert_int_equal(lh_place_free_bytes(&node, 10, FALSE), 5);
    assert_int_equal(lh_place_free_bytes(&node, 10, TRUE), 1);
    node.used_bytes = 906;
    assert_int_equal(lh_place_free_bytes(&node, 10, FALSE), 0);
    node.capacity_items = 0;
    assert_true(lh_place_free_items(&node, 10, FALSE) == G_MAXINT64);
    /* The greatest capacity there is does not overflow. */
    node.capacity_bytes = (G_GINT64_CONSTANT(1) << 53) - 1;
    node.used_bytes = node.restored_bytes = 0;
    assert_true(lh_place_free_bytes(&node, 10, FALSE) + lh_place_free_bytes(&node, 10, TRUE) ==
                node.capacity_bytes);
}

/* A reserve that is raised later does not make room that is not there. */
static void the_whole_is_a_limit_too(void **state)
{
    LhPlaceNode node = node_of("a", 100);

    (void)state;
    node.used_bytes = 95;
    node.capacity_items = 10;
    node.used_items = 10;
    assert_int_equal(lh_place_free_bytes(&node, 50, TRUE), 5);
    assert_int_equal(lh_place_free_items(&node, 50, TRUE), 0);
    node.used_bytes = 0;
    node.restored_bytes = 100;
    assert_int_equal(lh_place_free_bytes(&node, 10, FALSE), 0);
}

static void never_two_of_a_group_on_a_host(void **state)
{
    LhPlaceNode nodes[] = {node_of("a", 100), node_of("b", 100)};
    const char *hosts[] = {"a", NULL}, *both[] = {"b", "a", NULL};
    LhPlaceItem item = item_of(1);

    (void)state;
    nodes[1].used_bytes = 90;
    item.holder_hosts = hosts;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 2, &item).node_id, "b");
    item.holder_hosts = both;
    assert_int_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 2, &item).rule, LH_WAIT_DISTINCT);
}

static void zones_come_before_warm_data(void **state)
{
    LhPlaceNode nodes[] = {node_of("a", 100), node_of("b", 100), node_of("c", 100)};
    const char *zones[] = {"z1", NULL}, *warm[] = {"a", NULL};
    LhPlaceItem item = item_of(1);

    (void)state;
    nodes[0].zone = "z1";
    nodes[1].zone = "z2";
    nodes[1].used_bytes = 50;
    nodes[2].zone = "z1";
    item.warm_ids = warm;
    assert_int_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 3, &item).rule, LH_PLACED_WARM);
    item.holder_zones = zones;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 3, &item).node_id, "b");
    assert_int_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 3, &item).rule, LH_PLACED_STRATEGY);
    /* No room in the other zone: the same zone is better than none. */
    nodes[1].used_bytes = 100;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 3, &item).node_id, "a");
    /* Nodes without a zone share no zone. */
    nodes[1].used_bytes = 50;
    nodes[1].zone = NULL;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 3, &item).node_id, "b");
}

static void warm_data_comes_before_the_last_failure(void **state)
{
    LhPlaceNode nodes[] = {node_of("a", 100), node_of("b", 100)};
    const char *warm[] = {"a", "gone", NULL};
    LhPlaceItem item = item_of(1);

    (void)state;
    item.avoid_host = "a";
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 2, &item).node_id, "b");
    item.warm_ids = warm;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 2, &item).node_id, "a");
    item.warm_ids = NULL;
    nodes[1].used_bytes = 100;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 2, &item).node_id, "a");
}

static void spread_takes_the_emptiest_pack_the_fullest(void **state)
{
    LhPlaceNode nodes[] = {node_of("a", 100), node_of("b", 100), node_of("c", 1000)};
    LhPlaceItem item = item_of(10);

    (void)state;
    nodes[0].used_bytes = 20;
    nodes[1].used_bytes = 50;
    nodes[2].used_bytes = 100;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 3, &item).node_id, "c");
    assert_string_equal(place_once(LH_PLACE_PACK, 0, nodes, 3, &item).node_id, "b");
    /* The share of items counts where it is the greater one. */
    nodes[2].capacity_items = 10;
    nodes[2].used_items = 8;
    assert_string_equal(place_once(LH_PLACE_PACK, 0, nodes, 3, &item).node_id, "c");
}

static void ties_go_to_fewer_items_then_the_smaller_id(void **state)
{
    LhPlaceNode nodes[] = {node_of("c", 100), node_of("b", 100), node_of("a", 100)};
    LhPlaceItem item = item_of(10);

    (void)state;
    assert_string_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 3, &item).node_id, "a");
    nodes[2].used_items = nodes[1].used_items = 1;
    assert_string_equal(place_once(LH_PLACE_PACK, 0, nodes, 3, &item).node_id, "c");
}

static void an_item_waits_for_a_slot_of_the_best(void **state)
{
    LhPlaceNode nodes[] = {node_of("a", 100), node_of("b", 100)};
    const char *warm[] = {"a", NULL};
    g_autoptr(LhPlacement) placement = NULL;
    LhPlaceItem item = item_of(10);

    (void)state;
    nodes[0].load_slots = 0;
    nodes[1].load_slots = 1;
    item.warm_ids = warm;
    assert_int_equal(place_once(LH_PLACE_SPREAD, 0, nodes, 2, &item).rule, LH_WAIT_SLOT);
    item.warm_ids = NULL;
    placement = placement_with(LH_PLACE_SPREAD, 0, nodes, 2);
    assert_string_equal(lh_placement_place(placement, &item).node_id, "b");
    assert_int_equal(lh_placement_place(placement, &item).rule, LH_WAIT_SLOT);
}

static void slots_are_taken_for_those_that_return(void **state)
{
    LhPlaceNode nodes[] = {node_of("a", 100), node_of("b", 100)};
    g_autoptr(LhPlacement) placement = NULL;

    (void)state;
    nodes[0].load_slots = 1;
    nodes[1].load_slots = -3; /* more begun than may be, after the setting was lowered */
    placement = placement_with(LH_PLACE_SPREAD, 0, nodes, 2);
    assert_true(lh_placement_take_slot(placement, "default", "a"));
    assert_false(lh_placement_take_slot(placement, "default", "a"));
    assert_false(lh_placement_take_slot(placement, "default", "b"));
    assert_false(lh_placement_take_slot(placement, "default", "c"));
}

static void a_node_that_came_back_smaller_gives_up_what_does_not_fit(void **state)
{
    LhPlaceNode node = node_of("a", 100);
    g_autoptr(LhPlacement) placement = NULL;

    (void)state;
    node.used_bytes = 115;
    node.used_items = 3;
    node.restored_bytes = 5;
    node.restored_items = 1;
    placement = placement_with(LH_PLACE_SPREAD, 0, &node, 1);
    assert_true(lh_placement_give_up(placement, "default", "a", 5, TRUE));
    assert_true(lh_placement_give_up(placement, "default", "a", 15, FALSE));
    assert_false(lh_placement_give_up(placement, "default", "a", 50, FALSE));
}

/* The reserve is for restored items alone, and all that they have. */
static void what_came_back_keeps_to_its_share(void **state)
{
    LhPlaceNode node = node_of("a", 100);
    g_autoptr(LhPlacement) placement = NULL;

    (void)state;
    node.capacity_items = 20;
    node.used_bytes = 85;
    node.used_items = 18;
    node.restored_bytes = 12;
    node.restored_items = 1;
    placement = placement_with(LH_PLACE_SPREAD, 20, &node, 1);
    assert_false(lh_placement_give_up(placement, "default", "a", 12, TRUE));
    assert_true(lh_placement_give_up(placement, "default", "a", 5, FALSE)); /* 80 of 80 bytes */
    assert_true(lh_placement_give_up(placement, "default", "a", 0, FALSE)); /* 16 of 16 items */
    assert_false(lh_placement_give_up(placement, "default", "a", 5, FALSE));
    g_clear_pointer(&placement, lh_placement_free);
    node.used_bytes = 0;
    placement = placement_with(LH_PLACE_SPREAD, 10, &node, 1);
    assert_true(lh_placement_give_up(placement, "default", "a", 12, TRUE));
    assert_false(lh_placement_give_up(placement, "default", "a", 0, TRUE));
}

/* a on probation and b, which has no room, in a set of @n nodes. */
static void half_of_an_equal_share_on_probation(void **state)
{
    static const struct {
        gint64 used_bytes, used_items, restored_bytes, restored_items; /* of a */
        gint64 size, bytes, items;                                     /* … all of the set */
        guint nodes;
        gboolean placed;
    } rows[] = {
        {0, 0, 0, 0, 10, 40, 4, 2, TRUE},     {0, 0, 0, 0, 11, 40, 4, 2, FALSE},
        {0, 0, 0, 0, 10, 40, 3, 2, FALSE},    {0, 0, 0, 0, 10, 60, 6, 3, TRUE},
        {0, 0, 0, 0, 10, 59, 6, 3, FALSE},    {10, 1, 0, 0, 10, 80, 8, 2, TRUE},
        {10, 1, 0, 0, 10, 79, 8, 2, FALSE},   {10, 1, 0, 0, 10, 80, 7, 2, FALSE},
        {0, 0, 10, 1, 10, 79, 8, 2, FALSE},   {0, 0, 10, 1, 10, 80, 8, 2, TRUE},
        {90, 9, 0, 0, 0, 400, 40, 2, TRUE},   {101, 9, 0, 0, 0, 400, 40, 2, FALSE},
        {90, 10, 0, 0, 0, 400, 40, 2, FALSE}, {0, 0, 0, 0, 0, 0, 0, 2, FALSE},
    };

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        LhPlaceNode nodes[] = {node_of("a", 1000), node_of("b", 1000), node_of("c", 1000)};
        g_autoptr(LhPlacement) placement = NULL;
        LhPlaceItem item = item_of(rows[i].size);
        LhPlaceAnswer answer;
        nodes[0].probation = TRUE;
        nodes[0].used_bytes = rows[i].used_bytes;
        nodes[0].used_items = rows[i].used_items;
        nodes[0].restored_bytes = rows[i].restored_bytes;
        nodes[0].restored_items = rows[i].restored_items;
        for (guint k = 1; k < 3; k++) {
            nodes[k].capacity_items = 1;
            nodes[k].used_items = 1;
        }
        placement = placement_with(LH_PLACE_SPREAD, 0, nodes, rows[i].nodes);
        lh_placement_limit(placement, "default", rows[i].bytes, rows[i].items);
        answer = lh_placement_place(placement, &item);
        if ((answer.node_id != NULL) != rows[i].placed ||
            (!rows[i].placed && answer.rule != LH_WAIT_PROBATION))
            fail_msg("row %u: %s", i, lh_place_rule_id(answer.rule));
    }
}

static void who_is_limited(void **state)
{
    static const struct {
        const char *set; /* limited */
        gboolean a, b;   /* on probation */
        LhPlaceRule rule;
    } rows[] = {
        {"default", TRUE, FALSE, LH_WAIT_PROBATION},
        {"default", TRUE, TRUE, LH_PLACED_STRATEGY}, /* nobody is there to wait for */
        {"default", FALSE, TRUE, LH_PLACED_STRATEGY},
        {"blue", TRUE, FALSE, LH_PLACED_STRATEGY},
    };

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        LhPlaceNode nodes[] = {node_of("a", 1000), node_of("b", 5)};
        g_autoptr(LhPlacement) placement = NULL;
        LhPlaceItem item = item_of(10);
        nodes[0].probation = rows[i].a;
        nodes[1].probation = rows[i].b;
        placement = placement_with(LH_PLACE_SPREAD, 0, nodes, 2);
        lh_placement_limit(placement, rows[i].set, 10, 1);
        assert_int_equal(lh_placement_place(placement, &item).rule, rows[i].rule);
    }
}

static void a_limited_node_is_no_better_place_to_wait_for(void **state)
{
    LhPlaceNode nodes[] = {node_of("a", 1000), node_of("b", 1000)};
    const char *warm[] = {"a", NULL};
    g_autoptr(LhPlacement) placement = NULL;
    LhPlaceItem item = item_of(10);

    (void)state;
    nodes[0].probation = TRUE;
    placement = placement_with(LH_PLACE_SPREAD, 0, nodes, 2);
    lh_placement_limit(placement, "default", 40, 4);
    item.warm_ids = warm;
    assert_string_equal(lh_placement_place(placement, &item).node_id, "a");
    assert_string_equal(lh_placement_place(placement, &item).node_id, "b");
}

static void rule_ids_are_distinct(void **state)
{
    (void)state;
    for (int a = 0; a <= LH_WAIT_NODES; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(lh_place_rule_id((LhPlaceRule)a),
                                    lh_place_rule_id((LhPlaceRule)b));
}

/* ---- against the reference ---- */

#define MAX_NODES 6
#define MANY      48 /* and enough questions for an index */

typedef struct {
    LhPlaceNode nodes[MANY];
    guint n;
    LhPlaceStrategy strategy;
    gint64 reserve;
    gint64 demand_bytes, demand_items; /* of each set */
} Model;

/* Half of an equal share for those on probation, unless all of the set are. */
static gboolean beyond_limit(const Model *model, const LhPlaceNode *node, const LhPlaceItem *item)
{
    gint64 n = 0, well = 0;

    for (guint i = 0; i < model->n; i++) {
        n += strcmp(model->nodes[i].set, node->set) == 0;
        well += strcmp(model->nodes[i].set, node->set) == 0 && !model->nodes[i].probation;
    }
    if (!node->probation || well == 0)
        return FALSE;
    return node->used_bytes + node->restored_bytes + item->size_bytes >
               model->demand_bytes / (2 * n) ||
           node->used_items + node->restored_items + 1 > model->demand_items / (2 * n);
}

static void limit(LhPlacement *placement, const Model *model)
{
    lh_placement_limit(placement, "default", model->demand_bytes, model->demand_items);
    lh_placement_limit(placement, "blue", model->demand_bytes, model->demand_items);
}

static gboolean in_list(const char *const *list, const char *text)
{
    return list != NULL && text != NULL && g_strv_contains(list, text);
}

static gboolean has_room(const Model *model, const LhPlaceNode *node, const LhPlaceItem *item)
{
    gint64 byte_reserve = node->capacity_bytes * model->reserve / 100;
    gint64 item_reserve = node->capacity_items * model->reserve / 100;
    gint64 bytes = node->used_bytes + node->restored_bytes + item->size_bytes;

    if (strcmp(node->set, item->set) != 0 || in_list(item->holder_hosts, node->host) ||
        beyond_limit(model, node, item))
        return FALSE;
    if (item->size_bytes > 0 &&
        (bytes > node->capacity_bytes ||
         (item->restored
              ? node->restored_bytes + item->size_bytes > byte_reserve
              : node->used_bytes + item->size_bytes > node->capacity_bytes - byte_reserve)))
        return FALSE;
    if (node->capacity_items == 0)
        return TRUE;
    return node->used_items + node->restored_items + 1 <= node->capacity_items &&
           (item->restored ? node->restored_items + 1 <= item_reserve
                           : node->used_items + 1 <= node->capacity_items - item_reserve);
}

static double fill(const LhPlaceNode *node, gint64 size)
{
    double bytes = node->capacity_bytes == 0
                       ? 0
                       : (double)(node->used_bytes + node->restored_bytes + size) /
                             (double)node->capacity_bytes;
    double items = node->capacity_items == 0
                       ? 0
                       : (double)(node->used_items + node->restored_items + 1) /
                             (double)node->capacity_items;

    return bytes > items ? bytes : items;
}

/* < 0: @a is better by rules 2 to 4, and with @all by 5 and 6. */
static int compare(const Model *model, const LhPlaceItem *item, const LhPlaceNode *a,
                   const LhPlaceNode *b, gboolean all)
{
    int zone = in_list(item->holder_zones, a->zone) - in_list(item->holder_zones, b->zone);
    int warm = in_list(item->warm_ids, b->id) - in_list(item->warm_ids, a->id);
    int avoid = (g_strcmp0(a->host, item->avoid_host) == 0) -
                (g_strcmp0(b->host, item->avoid_host) == 0);
    double fill_a = fill(a, item->size_bytes), fill_b = fill(b, item->size_bytes);
    gint64 items_a = a->used_items + a->restored_items, items_b = b->used_items + b->restored_items;

    if (zone != 0 || warm != 0 || avoid != 0 || !all)
        return zone != 0 ? zone : warm != 0 ? warm : avoid;
    if (fill_a < fill_b || fill_a > fill_b)
        return (fill_a < fill_b) == (model->strategy == LH_PLACE_SPREAD) ? -1 : 1;
    if (items_a != items_b)
        return items_a < items_b ? -1 : 1;
    return strcmp(a->id, b->id);
}

/* The node that the header's rules name, or NULL. */
static LhPlaceNode *expected(Model *model, const LhPlaceItem *item)
{
    LhPlaceNode *best = NULL;

    for (guint i = 0; i < model->n; i++) {
        LhPlaceNode *node = &model->nodes[i];
        gboolean beaten = FALSE;
        if (!has_room(model, node, item) || node->load_slots <= 0)
            continue;
        for (guint j = 0; j < model->n; j++)
            beaten = beaten || (has_room(model, &model->nodes[j], item) &&
                                compare(model, item, &model->nodes[j], node, FALSE) < 0);
        if (!beaten && (best == NULL || compare(model, item, node, best, TRUE) < 0))
            best = node;
    }
    return best;
}

static const char *const ids[] = {"n0", "n1", "n2", "n3", "n4", "n5"};
static const char *const zone_names[] = {NULL, "z0", "z1"};

static void random_model(GRand *rand, Model *model)
{
    model->n = (guint)g_rand_int_range(rand, 1, MAX_NODES + 1);
    model->strategy = g_rand_boolean(rand) ? LH_PLACE_SPREAD : LH_PLACE_PACK;
    model->reserve = g_rand_int_range(rand, 0, 5) * 25;
    model->demand_bytes = g_rand_int_range(rand, 0, 300);
    model->demand_items = g_rand_int_range(rand, 0, 80);
    for (guint i = 0; i < model->n; i++)
        model->nodes[i] = (LhPlaceNode){
            .id = ids[i],
            .host = ids[i],
            .set = g_rand_int_range(rand, 0, 4) == 0 ? "blue" : "default",
            .zone = zone_names[g_rand_int_range(rand, 0, 3)],
            .capacity_bytes = g_rand_int_range(rand, 0, 40),
            .capacity_items = g_rand_int_range(rand, 0, 2) * g_rand_int_range(rand, 1, 8),
            .used_bytes = g_rand_int_range(rand, 0, 20),
            .used_items = g_rand_int_range(rand, 0, 3),
            .restored_bytes = g_rand_int_range(rand, 0, 8),
            .restored_items = g_rand_int_range(rand, 0, 2),
            .load_slots = g_rand_int_range(rand, -1, 5),
            .probation = g_rand_int_range(rand, 0, 3) == 0,
        };
}

static void random_list(GRand *rand, const char *const *from, guint n, const char **out)
{
    guint used = 0;

    for (guint i = 0; i < n; i++)
        if (from[i] != NULL && g_rand_int_range(rand, 0, 4) == 0)
            out[used++] = from[i];
    out[used] = NULL;
}

static guint random_case(guint seed)
{
    GRand *rand = g_rand_new_with_seed(seed);
    const char *hosts[MAX_NODES + 1], *zones[4], *warm[MAX_NODES + 1];
    guint placed = 0;
    Model model;

    random_model(rand, &model);
    g_autoptr(LhPlacement) placement = placement_with(model.strategy, model.reserve, model.nodes,
                                                      model.n);
    limit(placement, &model);
    for (guint i = 0; i < 25; i++) {
        LhPlaceItem item = item_of(g_rand_int_range(rand, 0, 12));
        item.restored = g_rand_int_range(rand, 0, 3) == 0;
        random_list(rand, ids, MAX_NODES, hosts);
        random_list(rand, zone_names, 3, zones);
        random_list(rand, ids, MAX_NODES, warm);
        item.holder_hosts = hosts;
        item.holder_zones = zones;
        item.warm_ids = warm;
        item.avoid_host = g_rand_boolean(rand) ? ids[g_rand_int_range(rand, 0, MAX_NODES)] : NULL;
        LhPlaceNode *want = expected(&model, &item);
        LhPlaceAnswer got = lh_placement_place(placement, &item);
        if (g_strcmp0(got.node_id, want == NULL ? NULL : want->id) != 0)
            fail_msg("seed %u item %u: placed on %s, the rules say %s", seed, i, got.node_id,
                     want == NULL ? NULL : want->id);
        if (want == NULL)
            continue;
        placed++;
        assert_int_equal(got.rule, in_list(warm, want->id) ? LH_PLACED_WARM : LH_PLACED_STRATEGY);
        *(item.restored ? &want->restored_bytes : &want->used_bytes) += item.size_bytes;
        *(item.restored ? &want->restored_items : &want->used_items) += 1;
        want->load_slots--;
    }
    g_rand_free(rand);
    return placed;
}

static void random_cases_follow_the_rules(void **state)
{
    guint placed = 0;

    (void)state;
    for (guint seed = 1; seed <= 20000; seed += every())
        placed += random_case(seed);
    assert_true(placed > 20000 / every());
}

/* ---- many items on many nodes: the index gives the same answers ---- */

static char many_ids[MANY][8], many_hosts[MANY][8];

/* Few different capacities and zones, restarts of one host beside each other, full and empty nodes; now and
 * then as large as sizes may be, where shares that differ by a byte are doubles next to each other. */
static void random_fleet(GRand *rand, Model *model)
{
    gint64 unit = g_rand_int_range(rand, 0, 4) == 0 ? (G_GINT64_CONSTANT(1) << 53) / 60 : 1;
    gint64 capacities[] = {unit * 60, unit * 60, unit * 37, 0};
    gboolean limits_items = g_rand_boolean(rand), empty = g_rand_boolean(rand);
    gint32 ill = g_rand_int_range(rand, 0, 2) * g_rand_int_range(rand, 0, 21); /* of 20 */

    model->n = (guint)g_rand_int_range(rand, 1, MANY + 1);
    model->strategy = g_rand_boolean(rand) ? LH_PLACE_SPREAD : LH_PLACE_PACK;
    model->reserve = g_rand_int_range(rand, 0, 3) * 25;
    model->demand_bytes = g_rand_int_range(rand, 0, 60 * MANY) * unit;
    model->demand_items = g_rand_int_range(rand, 0, 16 * MANY);
    for (guint i = 0; i < model->n; i++) {
        g_snprintf(many_ids[i], sizeof many_ids[i], "n%02u", (i * 29) % MANY);
        g_snprintf(many_hosts[i], sizeof many_hosts[i], "h%02u", i / 2 * 2 + (i % 8 != 1 && i % 2));
        model->nodes[i] = (LhPlaceNode){
            .id = many_ids[i],
            .host = many_hosts[i],
            .set = g_rand_int_range(rand, 0, 20) == 0 ? "blue" : "default",
            .zone = zone_names[g_rand_int_range(rand, 0, 3)],
            .capacity_bytes = capacities[g_rand_int_range(rand, 0, 4)],
            .capacity_items = limits_items ? g_rand_int_range(rand, 0, 3) * 7 : 0,
            .load_slots = g_rand_int_range(rand, 0, 12),
            .probation = g_rand_int_range(rand, 0, 20) < ill,
        };
        if (empty)
            continue;
        model->nodes[i].used_bytes = g_rand_int_range(rand, 0, 40) * unit +
                                     g_rand_int_range(rand, 0, 3);
        model->nodes[i].used_items = g_rand_int_range(rand, 0, 6);
        model->nodes[i].restored_bytes = g_rand_int_range(rand, 0, 12) * unit;
        model->nodes[i].restored_items = g_rand_int_range(rand, 0, 3);
    }
}

static gint64 random_size(GRand *rand, const Model *model)
{
    gint64 most = 12;

    for (guint i = 0; i < model->n; i++)
        most = MAX(most, model->nodes[i].capacity_bytes / 6);
    return g_rand_int_range(rand, 0, 4) == 0 ? 0 : (gint64)(g_rand_double(rand) * (double)most);
}

static void some_of(GRand *rand, const Model *model, gboolean hosts, const char **out)
{
    guint used = 0, n = g_rand_int_range(rand, 0, 3) == 0 ? (guint)g_rand_int_range(rand, 0, 6) : 0;

    for (guint i = 0; i < n; i++) {
        const LhPlaceNode *node = &model->nodes[g_rand_int_range(rand, 0, (gint)model->n)];
        out[used++] = hosts ? node->host : node->id;
    }
    out[used] = NULL;
}

/* Why nothing was placed, as the rules of placement.h have it. */
static LhPlaceRule expected_wait(Model *model, const LhPlaceItem *item)
{
    gboolean nodes = FALSE, bytes = FALSE, items = FALSE, distinct = FALSE, allowed = FALSE;

    for (guint i = 0; i < model->n; i++) {
        const LhPlaceNode *node = &model->nodes[i];
        gboolean fits, holds = in_list(item->holder_hosts, node->host);
        if (strcmp(node->set, item->set) != 0)
            continue;
        nodes = TRUE;
        fits = lh_place_free_bytes(node, model->reserve, item->restored) >= item->size_bytes;
        bytes = bytes || fits;
        fits = fits && lh_place_free_items(node, model->reserve, item->restored) >= 1;
        items = items || fits;
        distinct = distinct || (fits && !holds);
        allowed = allowed || (fits && !holds && !beyond_limit(model, node, item));
    }
    return !nodes      ? LH_WAIT_NODES
           : !bytes    ? LH_WAIT_BYTES
           : !items    ? LH_WAIT_ITEMS
           : !distinct ? LH_WAIT_DISTINCT
           : !allowed  ? LH_WAIT_PROBATION
                       : LH_WAIT_SLOT;
}

/* A node takes a slot or gives something up between the items, as those do whose items come back. */
static void disturb(GRand *rand, Model *model, LhPlacement *placement)
{
    LhPlaceNode *node = &model->nodes[g_rand_int_range(rand, 0, (gint)model->n)];
    gint64 size = MIN(node->used_bytes, 3);

    if (g_rand_boolean(rand)) {
        assert_true(lh_placement_take_slot(placement, node->set, node->id) ==
                    (node->load_slots > 0));
        node->load_slots -= node->load_slots > 0;
    } else if (lh_placement_give_up(placement, node->set, node->id, size, FALSE)) {
        node->used_bytes -= size;
        node->used_items--;
    }
}

static guint random_run(guint seed, guint *waits)
{
    GRand *rand = g_rand_new_with_seed(seed);
    const char *hosts[8], *zones[4], *warm[8];
    guint placed = 0;
    Model model;

    random_fleet(rand, &model);
    g_autoptr(LhPlacement) placement = placement_with(model.strategy, model.reserve, model.nodes,
                                                      model.n);
    limit(placement, &model);
    for (guint i = 0; i < 150; i++) {
        LhPlaceItem item = item_of(random_size(rand, &model));
        item.set = g_rand_int_range(rand, 0, 30) == 0  ? "green"
                   : g_rand_int_range(rand, 0, 6) == 0 ? "blue"
                                                       : "default";
        item.restored = g_rand_int_range(rand, 0, 4) == 0;
        some_of(rand, &model, TRUE, hosts);
        some_of(rand, &model, FALSE, warm);
        random_list(rand, zone_names, 3, zones);
        item.holder_hosts = hosts;
        item.holder_zones = zones;
        item.warm_ids = warm;
        item.avoid_host = g_rand_boolean(rand)
                              ? model.nodes[g_rand_int_range(rand, 0, (gint)model.n)].host
                              : NULL;
        LhPlaceNode *want = expected(&model, &item);
        LhPlaceAnswer got = lh_placement_place(placement, &item);
        if (g_strcmp0(got.node_id, want == NULL ? NULL : want->id) != 0)
            fail_msg("seed %u item %u: placed on %s, the rules say %s", seed, i, got.node_id,
                     want == NULL ? NULL : want->id);
        if (want == NULL && got.rule != expected_wait(&model, &item))
            fail_msg("seed %u item %u: waits by %s", seed, i, lh_place_rule_id(got.rule));
        *waits |= 1U << got.rule;
        if (want != NULL) {
            placed++;
            *(item.restored ? &want->restored_bytes : &want->used_bytes) += item.size_bytes;
            *(item.restored ? &want->restored_items : &want->used_items) += 1;
            want->load_slots--;
        }
        if (g_rand_int_range(rand, 0, 10) == 0)
            disturb(rand, &model, placement);
    }
    g_rand_free(rand);
    return placed;
}

static void many_items_follow_the_same_rules(void **state)
{
    guint placed = 0, rules = 0;

    (void)state;
    for (guint seed = 1; seed <= 600; seed += every())
        placed += random_run(seed, &rules);
    assert_true(placed > 20000 / every());
    assert_true(rules == (1U << (LH_WAIT_NODES + 1)) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_set_has_no_nodes),
        cmocka_unit_test(bytes_and_items_are_limits),
        cmocka_unit_test(each_answer_is_booked),
        cmocka_unit_test(reserve_is_for_restored_items_alone),
        cmocka_unit_test(the_whole_is_a_limit_too),
        cmocka_unit_test(never_two_of_a_group_on_a_host),
        cmocka_unit_test(zones_come_before_warm_data),
        cmocka_unit_test(warm_data_comes_before_the_last_failure),
        cmocka_unit_test(spread_takes_the_emptiest_pack_the_fullest),
        cmocka_unit_test(ties_go_to_fewer_items_then_the_smaller_id),
        cmocka_unit_test(an_item_waits_for_a_slot_of_the_best),
        cmocka_unit_test(slots_are_taken_for_those_that_return),
        cmocka_unit_test(a_node_that_came_back_smaller_gives_up_what_does_not_fit),
        cmocka_unit_test(what_came_back_keeps_to_its_share),
        cmocka_unit_test(half_of_an_equal_share_on_probation),
        cmocka_unit_test(who_is_limited),
        cmocka_unit_test(a_limited_node_is_no_better_place_to_wait_for),
        cmocka_unit_test(rule_ids_are_distinct),
        cmocka_unit_test(random_cases_follow_the_rules),
        cmocka_unit_test(many_items_follow_the_same_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * seed-allocator: how even it makes crawl managers, and with how few moves. First one fleet after the other, then
 * properties of random ones: whole policies and seeds without one, on managers with and without limits.
 */
#include "tests/unit/controllers/seed_world.h"

#define MANUAL     "{\"autoRebalance\":false}"
#define ASKED(day) "{\"autoRebalance\":false,\"rebalanceAt\":\"2026-01-0" #day "T00:00:00Z\"}"

static void cordon(World *world, const char *host, gboolean on)
{
    g_autofree char *key = g_strconcat("decided/accepted/nodepolicies/manager/", host, NULL);

    putf(world, key, "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"cordon\":%s}}",
         on ? "true" : "false");
}

/* A policy of that name with @size seeds, "<policy>-00" and so on. */
static void accept_group(World *world, const char *policy, guint size)
{
    accept_throttle(world, policy, "{\"requests\":5,\"period\":\"1s\"}");
    for (guint i = 0; i < size; i++) {
        g_autofree char *name = g_strdup_printf("%s-%02u", policy, i);
        accept_seed(world, name, policy, "started");
    }
}

static void accept_free(World *world, const char *prefix, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s-%03u", prefix, i);
        accept_seed(world, name, NULL, "started");
    }
}

static guint on(const World *world, const char *id)
{
    g_autofree char *below = g_strdup_printf("decided/assignments/manager/%s/", id);

    return count_below(world, below);
}

/* A group of two and one without a policy; a group of one; nothing. */
static void a_seed_moves_for_the_sake_of_the_total(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    guint loads;

    (void)state;
    settings(world, MANUAL);
    accept_group(world, "two", 2);
    accept_free(world, "f", 1);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "one", 1);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m2-00000001", "");
    settle_seeds(world);
    assert_int_equal(on(world, "m0-00000001"), 3);
    assert_int_equal(on(world, "m1-00000001"), 1);
    loads = world->loads;
    settings(world, ASKED(1));
    settle_seeds(world);
    assert_on(world, "f-000", "m2-00000001");
    assert_int_equal(world->loads, loads + 1);
    settings(world, ASKED(2));
    settle_seeds(world);
    assert_int_equal(world->loads, loads + 1);
}

/* What cannot be moved for its size does not keep the others from being made even. */
static void the_largest_policy_does_not_hide_the_others(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    guint loads;

    (void)state;
    settings(world, MANUAL);
    accept_group(world, "huge", 20);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    for (guint i = 0; i < 5; i++) {
        g_autofree char *policy = g_strdup_printf("p%u", i);
        accept_group(world, policy, 2);
    }
    settle_seeds(world);
    assert_int_equal(on(world, "m1-00000001"), 10);
    join_pool(world, LH_POOL_MANAGER, "m2-00000001", "");
    loads = world->loads;
    settings(world, ASKED(1));
    settle_seeds(world);
    assert_int_equal(on(world, "m0-00000001"), 20);
    assert_int_equal(on(world, "m2-00000001"), 4);
    assert_int_equal(world->loads, loads + 4);
}

/* Nobody evens seeds without a policy: then the fewest seeds are the fewest of all. */
static void without_rebalancing_a_policy_goes_to_the_fewest_of_all(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    settings(world, MANUAL);
    accept_free(world, "f", 10);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "one", 2);
    settle_seeds(world);
    accept_group(world, "two", 2);
    settle_seeds(world);
    assert_int_equal(on(world, "m1-00000001"), 4);
}

/* With rebalancing, the seeds that are to be moved away do not count. */
static void with_rebalancing_a_policy_goes_where_it_can_stay(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_free(world, "f", 10);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "one", 2);
    accept_group(world, "two", 2);
    run(world, NAME);
    settle_seeds(world);
    assert_int_equal(on(world, "m0-00000001"), 7);
    assert_int_equal(on(world, "m1-00000001"), 7);
}

static void assert_live(const World *world, const char *id, guint n)
{
    g_autofree char *below = g_strdup_printf("actual/items/manager/%s/", id);
    g_autoptr(GPtrArray) items = keys_below(world, below);

    assert_int_equal(on(world, id), n);
    assert_int_equal(items->len, n);
    for (guint i = 0; i < items->len; i++)
        assert_int_equal(((const LhItem *)look(world, items->pdata[i]))->state, LH_ITEM_LIVE);
}

/* Their own orders take the room at home until they are placed. */
static void what_was_to_move_can_stay_where_it_was(void **state)
{
    (void)state;
    for (gint of = 0; of < 2; of++) {
        g_autoptr(World) world = world_new();
        join_pool(world, LH_POOL_MANAGER, "m0-00000001", ",\"capacityItems\":4");
        if (of == 0)
            accept_group(world, "one", 4);
        else
            accept_free(world, "f", 4);
        settle_seeds(world);
        join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
        put(world, "decided/accepted/nodepolicies/manager/m0",
            "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}");
        run(world, NAME);
        cordon(world, "m1", TRUE);
        cordon(world, "m0", FALSE);
        settle_seeds(world);
        assert_live(world, "m0-00000001", 4);
    }
}

/* 2 and 3; 2, 2 and 1; nothing. What has given a policy is not given one in the same plan: that would be five. */
static void a_manager_gives_policies_or_gets_some(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    guint loads;

    (void)state;
    settings(world, MANUAL);
    accept_group(world, "a", 2);
    accept_group(world, "b", 3);
    settle_seeds(world);
    cordon(world, "m0", TRUE);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "c", 2);
    accept_group(world, "d", 2);
    accept_group(world, "e", 1);
    settle_seeds(world);
    cordon(world, "m0", FALSE);
    join_pool(world, LH_POOL_MANAGER, "m2-00000001", "");
    loads = world->loads;
    settings(world, ASKED(1));
    settle_seeds(world);
    assert_int_equal(world->loads, loads + 4);
    assert_int_equal(on(world, "m2-00000001"), 3);
}

/* With three of them the policy would leave room for only two seeds without. */
static void a_policy_takes_no_room_of_seeds_without(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_group(world, "a", 3);
    accept_group(world, "b", 3);
    accept_free(world, "f", 6);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", ",\"capacityItems\":5");
    settle_seeds(world);
    assert_int_equal(on(world, "m0-00000001"), 9);
    assert_int_equal(on(world, "m1-00000001"), 3);
}

/* Its manager takes nothing new, for as long as people want: the others are made even meanwhile. */
static void who_waits_for_his_manager_holds_up_nobody(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    settings(world, MANUAL);
    accept_group(world, "a", 1);
    settle_seeds(world);
    cordon(world, "m0", TRUE);
    accept_seed(world, "late", "a", "started");
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "b", 2);
    accept_group(world, "c", 2);
    accept_free(world, "f", 1);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m2-00000001", "");
    settings(world, ASKED(1));
    settle_seeds(world);
    assert_on(world, "late", NULL);
    assert_int_equal(on(world, "m1-00000001"), 3);
    assert_int_equal(on(world, "m2-00000001"), 2);
    assert_int_equal(condition_of(world, "settings/" NAME "/" NAME, "Rebalanced")->status,
                     LH_CONDITION_TRUE);
}

/* ---- properties ---- */

typedef struct {
    World *world;
    GRand *rand;
    gboolean limits, hasty;        /* managers with a limit; not all of them answer at once */
    guint managers, groups, frees; /* made so far */
    guint level, total, group;     /* seeds that were moved, by why */
} Fleet;

typedef struct {
    const char *id;
    gint64 free, groups, room;
} Count;

static gint64 all_of(const Count *count)
{
    return count->free + count->groups;
}

/* The managers that take seeds, by name; free with g_array_unref. */
static GArray *counts_of(const World *world)
{
    g_autoptr(GArray) takers = lh_pool_takers(view_in(world, LH_POOL_MANAGER));
    GArray *counts = g_array_new(FALSE, FALSE, sizeof(Count));

    for (guint i = 0; i < takers->len; i++) {
        const LhPoolTaker *taker = &g_array_index(takers, LhPoolTaker, i);
        Count count = {taker->node->id, taker->node->free_seeds, taker->node->group_seeds,
                       taker->limit - taker->held};
        g_array_append_val(counts, count);
    }
    return counts;
}

static const Count *count_at(const GArray *counts, const char *id)
{
    for (guint i = 0; i < counts->len; i++)
        if (strcmp(g_array_index(counts, Count, i).id, id) == 0)
            return &g_array_index(counts, Count, i);
    fail_msg("%s takes no seeds", id);
    return NULL;
}

static gint64 size_of(const World *world, const char *policy)
{
    g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/manager/");
    g_autofree char *part = g_strdup_printf("/%s-", policy);
    gint64 n = 0;

    for (guint i = 0; i < orders->len; i++)
        n += strstr(orders->pdata[i], part) != NULL;
    return n;
}

/* A move of a whole policy makes two managers differ less; asked where nobody has a limit. */
static void check_group_move(const Fleet *fleet, const GArray *counts, const Count *from,
                             const char *item)
{
    g_autofree char *policy = g_strndup(item, strcspn(item, "-"));
    gint64 size = size_of(fleet->world, policy), least = G_MAXINT64;

    for (guint i = 0; i < counts->len; i++)
        least = MIN(least, g_array_index(counts, Count, i).groups);
    if (!fleet->limits && size >= from->groups - least)
        fail_msg("policy %s of %" PRId64 " is moved from %" PRId64 " with %" PRId64 " elsewhere",
                 policy, size, from->groups, least);
}

static void check_total_move(const GArray *counts, const Count *from)
{
    gboolean better = FALSE;

    for (guint i = 0; i < counts->len; i++) {
        const Count *to = &g_array_index(counts, Count, i);
        better = better || (to->free < from->free && all_of(from) - all_of(to) > 1);
    }
    assert_true(better);
}

/* Each move that the plan begins has a reason that the counts before it bear out. */
static void check_moves(Fleet *fleet, const LhPlan *plan, const GArray *counts)
{
    for (guint i = 0; i < plan->ops->len; i++) {
        const LhOp *op = &g_array_index(plan->ops, LhOp, i);
        if (op->kind != LH_KIND_ASSIGNMENT || strcmp(op->rule, "rebalance") != 0)
            continue;
        g_autofree char *id = lh_name_part(op->name, 1);
        g_autofree char *item = lh_name_part(op->name, 2);
        const Count *from = count_at(counts, id);
        if (g_str_has_suffix(op->reason, "without throttle")) {
            fleet->level++;
        } else if (g_str_has_suffix(op->reason, "in all")) {
            fleet->total++;
            check_total_move(counts, from);
        } else {
            fleet->group++;
            check_group_move(fleet, counts, from, item);
        }
    }
}

static void settle_fleet(Fleet *fleet)
{
    for (int round = 0; round < 400; round++) {
        g_autoptr(GArray) counts = counts_of(fleet->world);
        g_autoptr(LhPlan) plan = plan_of(fleet->world, NAME);
        gboolean lively = fleet->hasty && round < 50;
        check_moves(fleet, plan, counts);
        for (guint i = 0; i < lh_plan_groups(plan); i++) {
            apply_group(fleet->world, plan, i);
            assert_not_split(fleet->world);
        }
        if (!managers_answer(fleet->world, lively ? fleet->rand : NULL) && !lively &&
            lh_plan_groups(plan) == 0)
            return;
    }
    fail_msg("it does not settle");
}

static void add_manager(Fleet *fleet)
{
    g_autofree char *id = g_strdup_printf("m%02u-00000001", fleet->managers++);
    g_autofree char *limit = g_strdup_printf(",\"capacityItems\":%d",
                                             g_rand_int_range(fleet->rand, 1, 40));

    join_pool(fleet->world, LH_POOL_MANAGER, id,
              fleet->limits && fleet->managers > 1 && g_rand_boolean(fleet->rand) ? limit : "");
}

static void add_group(Fleet *fleet)
{
    g_autofree char *policy = g_strdup_printf("p%u", fleet->groups++);

    accept_group(fleet->world, policy, (guint)g_rand_int_range(fleet->rand, 1, 12));
}

static void add_free(Fleet *fleet, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("f%u", fleet->frees++);
        accept_seed(fleet->world, name, NULL, "started");
    }
}

/* The group on @from that a single move to @to would make them differ less. */
static void check_no_better_group(const World *world, const Count *from, const Count *to)
{
    const LhSeeds *seeds = ((const LhPools *)world->pools)->seeds;

    for (GTreeNode *n = g_tree_node_first(seeds->groups); n != NULL; n = g_tree_node_next(n)) {
        const LhSeedGroup *group = g_tree_node_key(n);
        gint64 size = g_tree_nnodes(group->orders);
        GTreeNode *first = g_tree_node_first(group->orders);
        if (first == NULL || to->room < size ||
            strcmp(((const LhPoolAssignment *)g_tree_node_key(first))->node->id, from->id) != 0)
            continue;
        if (all_of(from) - all_of(to) > MAX(1, size))
            fail_msg("policy %s of %" PRId64 " stays at %" PRId64 ", with %" PRId64 " elsewhere",
                     group->name, size, all_of(from), all_of(to));
    }
}

/* As even as one move could make them. */
static void check_even(const Fleet *fleet)
{
    g_autoptr(GArray) counts = counts_of(fleet->world);

    for (guint i = 0; i < counts->len; i++)
        for (guint j = 0; j < counts->len; j++) {
            const Count *from = &g_array_index(counts, Count, i);
            const Count *to = &g_array_index(counts, Count, j);
            if (to->room < 1)
                continue;
            if (from->free - to->free > 1)
                fail_msg("%s has %" PRId64 " without throttle, %s has %" PRId64, from->id,
                         from->free, to->id, to->free);
            if (from->free > to->free && all_of(from) - all_of(to) > 1)
                fail_msg("%s has %" PRId64 ", %s has %" PRId64, from->id, all_of(from), to->id,
                         all_of(to));
            check_no_better_group(fleet->world, from, to);
        }
}

static void ask(Fleet *fleet, const char *day, gboolean automatic)
{
    g_autofree char *spec = g_strdup_printf(
        "{\"autoRebalance\":%s,\"rebalanceAt\":\"2026-01-%sT00:00:00Z\"}",
        automatic ? "true" : "false", day);

    settings(fleet->world, spec);
}

/* The fewest seeds without throttle that have to leave their managers when there is one more. */
static gint64 fewest_for_one_more(const GArray *counts)
{
    gint64 total = 0, q, rest, keep = 0, fewest = 0;

    for (guint i = 0; i < counts->len; i++)
        total += g_array_index(counts, Count, i).free;
    q = total / (counts->len + 1);
    rest = total % (counts->len + 1);
    for (guint i = 0; i < counts->len; i++) {
        fewest += MAX(0, g_array_index(counts, Count, i).free - q);
        keep += g_array_index(counts, Count, i).free > q;
    }
    return fewest - MIN(rest, keep);
}

static void one_more_joins(Fleet *fleet)
{
    g_autoptr(GArray) counts = counts_of(fleet->world);
    gint64 fewest = fewest_for_one_more(counts);
    guint level = fleet->level;

    add_manager(fleet);
    settle_fleet(fleet);
    check_even(fleet);
    if (!fleet->limits)
        assert_int_equal(fleet->level - level, fewest);
}

/* Without rebalancing nothing else moves at all; with it, no seed without throttle has to. */
static void one_dies(Fleet *fleet, gboolean automatic)
{
    g_autofree char *id = g_strdup_printf(
        "m%02d-00000001", g_rand_int_range(fleet->rand, 0, (gint32)fleet->managers));
    guint held = on(fleet->world, id), loads = fleet->world->loads, level = fleet->level;
    guint others = fleet->total + fleet->group;

    settings(fleet->world, automatic ? "{}" : MANUAL);
    leave_pool(fleet->world, LH_POOL_MANAGER, id);
    say_health(fleet->world, LH_POOL_MANAGER, id, "failed");
    settle_fleet(fleet);
    others = fleet->total + fleet->group - others;
    if (!automatic)
        assert_int_equal(others, 0);
    if (fleet->limits)
        return;
    assert_int_equal(fleet->level, level);
    assert_int_equal(fleet->world->loads - loads, held + others);
}

static void a_random_fleet(guint32 seed, guint *done)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
    g_autoptr(World) world = world_new();
    Fleet fleet = {.world = world, .rand = rand, .limits = seed % 3 == 0, .hasty = seed % 2 == 0};
    guint n = (guint)g_rand_int_range(rand, 2, 7), groups = (guint)g_rand_int_range(rand, 0, 9);
    guint loads;

    for (guint i = 0; i < n; i++)
        add_manager(&fleet);
    add_free(&fleet, (guint)g_rand_int_range(rand, 0, 15));
    for (guint i = 0; i < groups; i++)
        add_group(&fleet);
    add_free(&fleet, (guint)g_rand_int_range(rand, 0, 15));
    settle_fleet(&fleet);
    check_even(&fleet);
    if (!fleet.limits)
        assert_int_equal(world->loads, count_below(world, "decided/assignments/manager/"));
    one_more_joins(&fleet);
    one_dies(&fleet, g_rand_boolean(rand));
    ask(&fleet, "01", g_rand_boolean(rand));
    settle_fleet(&fleet);
    check_even(&fleet);
    loads = world->loads;
    ask(&fleet, "02", g_rand_boolean(rand));
    settle_fleet(&fleet);
    assert_int_equal(world->loads, loads);
    done[0] += fleet.level;
    done[1] += fleet.total;
    done[2] += fleet.group;
}

static guint32 playing;

static int say_which(void **state)
{
    (void)state;
    print_message("the last fleet was %u\n", playing);
    return 0;
}

static void random_fleets_are_even(void **state)
{
    guint done[3] = {0};

    (void)state;
    released = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (guint32 seed = 1; seed <= 120; seed++) {
        g_hash_table_remove_all(released);
        playing = seed;
        a_random_fleet(seed, done);
    }
    g_clear_pointer(&released, g_hash_table_unref);
    print_message("moved: %u to be level, %u for totals, %u with their policies\n", done[0],
                  done[1], done[2]);
    assert_true(done[0] > 100 && done[1] > 10 && done[2] > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_moves_for_the_sake_of_the_total),
        cmocka_unit_test(the_largest_policy_does_not_hide_the_others),
        cmocka_unit_test(without_rebalancing_a_policy_goes_to_the_fewest_of_all),
        cmocka_unit_test(with_rebalancing_a_policy_goes_where_it_can_stay),
        cmocka_unit_test(what_was_to_move_can_stay_where_it_was),
        cmocka_unit_test(a_manager_gives_policies_or_gets_some),
        cmocka_unit_test(a_policy_takes_no_room_of_seeds_without),
        cmocka_unit_test(who_waits_for_his_manager_holds_up_nobody),
        cmocka_unit_test_teardown(random_fleets_are_even, say_which),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

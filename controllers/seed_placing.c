/* See seed_plan.h: where those go that wait: the most urgent first, a whole policy before single seeds. */
#include "controllers/seed_plan.h"

#include <string.h>

static gint by_urgency(gconstpointer a, gconstpointer b)
{
    const LhSeedUnit *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return strcmp(x->one.item->name, y->one.item->name);
}

static void end_one(LhSeedRound *round, const LhPoolAssignment *assignment)
{
    if (lh_pool_answer(assignment) == LH_ITEM_DONE)
        lh_seed_take_done(round, assignment);
    else
        lh_seed_take(round, assignment, "evicted", "nothing of it is held there");
    g_hash_table_add(round->told, assignment->of);
}

/* It stays where it was: what is there ends first, then it is loaded anew. What the first seed leaves may be of
 * another policy. */
static void end_all(LhSeedRound *round, const LhSeedUnit *unit)
{
    const LhSeedGroup *group = unit->group == NULL ? NULL : unit->group->group;

    if (group == NULL || unit->one.ended->group != group)
        end_one(round, unit->one.ended);
    for (GTreeNode *n = group == NULL ? NULL : g_tree_node_first(group->orders);
         n != NULL && !lh_seed_plan_full(round); n = g_tree_node_next(n))
        end_one(round, g_tree_node_key(n));
}

/* Orders of the unit that still take room, and where. */
static void set_home(LhSeedRound *round, const LhSeedUnit *unit, LhSeedWish *wish)
{
    const GArray *all = unit->group == NULL ? NULL : unit->group->pending;

    for (guint i = 0; i < (all == NULL ? 1 : all->len); i++) {
        const LhPoolAssignment *ended = all == NULL ? unit->one.ended
                                                    : g_array_index(all, LhSeedPending, i).ended;
        if (ended == NULL)
            continue;
        if (wish->home == NULL)
            wish->home = lh_seed_places_find(round->places, ended->node);
        wish->home_held += wish->home != NULL && wish->home->node == ended->node;
    }
}

static LhSeedPlace *place_for(LhSeedRound *round, const LhSeedUnit *unit, const LhSeedWish *wish)
{
    const LhPoolAssignment *ended = unit->one.ended;
    LhSeedPlace *place = NULL;
    gint64 until;

    if (ended != NULL && lh_seed_plan_grace(round, ended, &until)) {
        place = lh_seed_places_find(round->places, lh_pool_host_takes(ended->node->host, NULL));
        if (place != NULL && place->limit - place->held < unit->size)
            place = NULL;
    }
    return place != NULL ? place : lh_seed_places_best(round->places, wish);
}

static void plan_unit(LhSeedRound *round, const LhSeedUnit *unit)
{
    const LhRetry *retry = lh_pool_retry(unit->one.item, NULL);
    LhSeedWish wish = {.group = unit->group != NULL,
                       .size = unit->size,
                       .avoid = retry == NULL ? NULL : retry->node};
    LhSeedPlace *place;

    set_home(round, unit, &wish);
    place = place_for(round, unit, &wish);
    if (place == NULL) {
        round->missing += unit->size;
        if (unit->group != NULL)
            lh_seed_plan_note_all(round, unit->group, "wait-capacity",
                                  round->nowhere != NULL
                                      ? round->nowhere
                                      : "no manager has room for all seeds of its policy");
        else
            lh_seed_plan_note(round, unit->one.item, "wait-capacity",
                              round->nowhere != NULL ? round->nowhere
                                                     : "no manager takes another seed");
        return;
    }
    lh_seed_places_add(place, unit->group != NULL, unit->size);
    if (unit->one.ended != NULL && unit->one.ended->node == place->node)
        end_all(round, unit);
    else
        lh_seed_load(round, unit->group, &unit->one, place->node, unit->group != NULL);
}

void lh_seed_plan_units(LhSeedRound *round)
{
    gint64 coming = round->leaving;

    for (guint i = 0; i < round->units->len; i++)
        coming += g_array_index(round->units, LhSeedUnit, i).group == NULL;
    lh_seed_places_level(round->places, coming, &round->borne, round->balances);
    g_array_sort(round->units, by_urgency);
    for (guint i = 0; i < round->units->len && !lh_seed_plan_full(round); i++)
        plan_unit(round, &g_array_index(round->units, LhSeedUnit, i));
}

/*
 * The state machine of one item: an ordered rule table; the first row that fits fires.
 *
 * Level-triggered where it matters: what happens after a release depends on the newest want, not on
 * the one that caused the release. No clock, no I/O, no memory but LhOrder.
 */
#include "agent/orders.h"

#include "base/planted.h"

#define P(name)   (1u << LH_PHASE_##name)
#define I(name)   (1u << LH_IN_##name)
#define W(name)   (1u << LH_WANT_##name)
#define ANY_PHASE ((1u << LH_N_PHASES) - 1)
#define ANY_INPUT ((1u << LH_N_INPUTS) - 1)
#define ANY_WANT  ((1u << LH_N_WANTS) - 1)
#define LOADS     (W(HELD) | W(OTHER))
#define LEAVES    (W(OTHER) | W(EVICTED) | W(GONE))
#define SAME      LH_N_PHASES
#define AWAY      (P(NONE) | P(TOLD))
#define HERE      (P(LOADING) | P(READY) | P(LIVE))

/* clang-format off */
const LhOrderRule lh_order_rules[] = {
    /* nothing is held */
    {AWAY, I(ORDER), LOADS, LH_PHASE_LOADING, LH_ACT_LOAD | LH_ACT_SAY, -1, "load"},
    {AWAY, I(ORDER), W(EVICTED), LH_PHASE_TOLD, LH_ACT_SAY, LH_ITEM_EVICTED, "evict-not-held"},
    {AWAY, I(ORDER), W(GONE), LH_PHASE_NONE, LH_ACT_ERASE, -1, "forget"},
    /* it is being loaded */
    {P(LOADING), I(ORDER), W(HELD), SAME, LH_ACT_SAY, -1, "update-loading"},
    {P(LOADING), I(ORDER), LEAVES, LH_PHASE_RELEASING, LH_ACT_RELEASE, -1, "cancel-load"},
    {P(LOADING), I(READY), ANY_WANT, LH_PHASE_READY, LH_ACT_SAY, -1, "announce"},
    /* it is held */
    {P(READY) | P(LIVE), I(ORDER), W(HELD), SAME, LH_ACT_SAY, -1, "update-live"},
    {P(READY) | P(LIVE), I(ORDER), LEAVES, LH_PHASE_HIDING, LH_ACT_SAY, -1, "hide"},
    {P(READY), I(SAID), ANY_WANT, LH_PHASE_LIVE, 0, -1, "live"},
    {HERE, I(FAILED), ANY_WANT, LH_PHASE_TOLD, LH_ACT_SAY, LH_ITEM_FAILED, "failed"},
    {HERE, I(FINISHED), ANY_WANT, LH_PHASE_TOLD, LH_ACT_SAY, LH_ITEM_DONE, "done"},
    /* it is on its way out; what has begun is ended before a newer load counts */
    {P(HIDING) | P(RELEASING), I(ORDER), ANY_WANT, SAME, LH_ACT_SAY, -1, "update-leaving"},
    {P(HIDING), I(SAID), W(HELD), LH_PHASE_READY, LH_ACT_SAY, -1, "announce-again"},
    {P(HIDING), I(SAID), LEAVES, LH_PHASE_GRACE, LH_ACT_GRACE, -1, "grace"},
    {P(GRACE), I(ORDER), W(HELD), LH_PHASE_READY, LH_ACT_STAY | LH_ACT_SAY, -1, "stay"},
    {P(GRACE), I(ORDER), LEAVES, SAME, LH_ACT_SAY, -1, "update-grace"},
    {P(GRACE), I(GRACE_OVER), ANY_WANT, LH_PHASE_RELEASING, LH_ACT_RELEASE, -1, "release"},
    {P(RELEASING), I(RELEASED), LOADS, LH_PHASE_LOADING, LH_ACT_LOAD | LH_ACT_SAY, -1, "reload"},
    {P(RELEASING), I(RELEASED), W(EVICTED), LH_PHASE_TOLD, LH_ACT_SAY, LH_ITEM_EVICTED, "evicted"},
    {P(RELEASING), I(RELEASED), W(GONE), LH_PHASE_NONE, LH_ACT_ERASE, -1, "released-and-forgotten"},
    /* Work that broke or ended by itself while it was being hidden: hiding and releasing go on, and
     * releasing what is not there any more is quickly done. A write that ended after its phase did,
     * and any answer that comes late: nothing. */
    {ANY_PHASE, ANY_INPUT, ANY_WANT, SAME, 0, -1, "late"},
    {0, 0, 0, SAME, 0, -1, NULL},
};
/* clang-format on */

guint lh_order_input(LhOrder *order, LhInput input)
{
    for (const LhOrderRule *rule = lh_order_rules; rule->id != NULL; rule++) {
        if ((rule->phases >> order->phase & 1) == 0 || (rule->inputs >> input & 1) == 0 ||
            (rule->wants >> order->want & 1) == 0)
            continue;
        if (rule->next != SAME)
            order->phase = rule->next;
        if (rule->told >= 0)
            order->told = (LhItemState)rule->told;
        return rule->acts;
    }
    g_assert_not_reached();
}

guint lh_order_want(LhOrder *order, LhWant want, gint64 rev)
{
    if (rev <= order->order_rev)
        return 0;
    order->order_rev = rev;
    order->want = want;
    if (want != LH_WANT_GONE)
        order->assignment = rev;
    return lh_order_input(order, LH_IN_ORDER);
}

LhItemState lh_order_state(const LhOrder *order)
{
    switch (order->phase) {
    case LH_PHASE_LOADING:
        return LH_BUG(LIVE_WHILE_LOADING) ? LH_ITEM_LIVE : LH_ITEM_LOADING;
    case LH_PHASE_READY:
    case LH_PHASE_LIVE:
        return LH_ITEM_LIVE;
    case LH_PHASE_HIDING:
    case LH_PHASE_GRACE:
    case LH_PHASE_RELEASING:
        return LH_BUG(EVICTED_TOO_SOON) && order->phase == LH_PHASE_RELEASING &&
                       order->want == LH_WANT_EVICTED
                   ? LH_ITEM_EVICTED
                   : LH_ITEM_EVICTING;
    case LH_PHASE_TOLD:
        return order->told;
    case LH_PHASE_NONE:
    case LH_N_PHASES:
        break;
    }
    g_assert_not_reached();
}

gboolean lh_order_served(const LhOrder *order)
{
    return (1u << order->phase & (P(READY) | P(LIVE) | P(HIDING) | P(GRACE))) != 0;
}

const char *lh_phase_name(LhPhase phase)
{
    static const char *const names[] = {"none",   "loading", "ready",     "live",
                                        "hiding", "grace",   "releasing", "told"};
    return phase < LH_N_PHASES ? names[phase] : "?";
}

/* Brakes: the object and who lifts it; see brake.h. */
#include "controllers/brake.h"

#include "base/planted.h"

#include <string.h>

#define MORE_THAN 10
#define STANDS_MS (30 * 60 * 1000)

char *lh_brake_hash(const char *const *names, guint n)
{
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);

    for (guint i = 0; i < n; i++)
        g_checksum_update(sum, (const guchar *)names[i], (gssize)(strlen(names[i]) + 1));
    return g_strndup(g_checksum_get_string(sum), 16);
}

gboolean lh_brake_exceeds(gint64 count, gint64 whole, gint64 percent)
{
    return count > MORE_THAN && count * 100 > percent * whole;
}

char *lh_brake_restored_hash(const LhBraking *braking, const char *const *markers)
{
    g_autofree char *revision = g_strdup_printf("%" G_GINT64_FORMAT, braking->context->revision);
    g_autoptr(GPtrArray) names = g_ptr_array_new();

    g_ptr_array_add(names, (gpointer) "restored");
    g_ptr_array_add(names, revision);
    for (guint i = 0; markers != NULL && markers[i] != NULL; i++)
        g_ptr_array_add(names, (gpointer)markers[i]);
    return lh_brake_hash((const char *const *)names->pdata, names->len);
}

gboolean lh_brake_came_back(const LhBraking *braking)
{
    return braking->present != NULL && braking->context->regressed &&
           !LH_BUG(OLD_CONFIRMATION_COUNTS) &&
           lh_brake_is_old(braking->present, braking->context->regressed_rev);
}

gboolean lh_brake_stands(const LhBraking *braking, LhBrakeCause cause, gint64 extra_ms)
{
    const LhBrake *brake = braking->present;

    return brake != NULL && brake->confirmed_at >= 0 && brake->cause == (int)cause &&
           !lh_brake_came_back(braking) &&
           braking->context->now_ms - brake->confirmed_at <= STANDS_MS + extra_ms;
}

/* Of the same plan, and given lately: its revision; 0: there is none. */
static gint64 confirmed_rev(const LhBraking *braking)
{
    const LhAccepted *accepted = g_hash_table_lookup(braking->fleet->confirmations,
                                                     braking->controller);
    const LhConfirmation *confirmation = lh_accepted_spec((const LhObject *)accepted,
                                                          LH_KIND_CONFIRMATION);

    return confirmation != NULL && braking->present->cause != LH_BRAKE_HOLD &&
                   g_strcmp0(confirmation->plan_hash, braking->present->plan_hash) == 0 &&
                   braking->context->now_ms - accepted->accepted_at <= LH_BRAKE_WINDOW_MS
               ? accepted->revision
               : 0;
}

gboolean lh_brake_is_confirmed(const LhBraking *braking)
{
    return confirmed_rev(braking) > braking->present->revision; /* clocks differ */
}

char *lh_brake_words(const LhBraking *braking)
{
    const LhBrake *brake = braking->present;
    const char *message = brake->message == NULL ? "" : brake->message;
    gint64 revision = brake->confirmed_at >= 0 ? 0 : confirmed_rev(braking);

    return revision > 0 && revision <= brake->revision
               ? g_strconcat(message,
                             " once more: it was confirmed before it was put anew, and something "
                             "of it had changed",
                             NULL)
               : g_strdup(message);
}

void lh_brake_confirm(const LhBraking *braking)
{
    LhBrake object = *braking->present;

    object.confirmed_at = braking->context->now_ms;
    lh_plan_begin(braking->plan);
    lh_plan_put(braking->plan, LH_KIND_BRAKE, braking->controller, &object,
                braking->present->o.mod_rev, "confirmed", "plan %s was confirmed",
                object.plan_hash);
    lh_plan_event(braking->plan, LH_EVENT_NORMAL, "Confirmed", LH_KIND_SETTINGS,
                  braking->controller, "plan %s was confirmed", object.plan_hash);
    lh_plan_end(braking->plan);
}

void lh_brake_put(const LhBraking *braking, LhBrake made)
{
    const LhObject *present = g_hash_table_lookup(braking->fleet->brakes, braking->controller);

    made.o = (LhObject){0};
    made.revision = braking->context->revision;
    made.since = braking->context->now_ms;
    made.confirmed_at = -1;
    lh_plan_put(braking->plan, LH_KIND_BRAKE, braking->controller, &made,
                present == NULL ? 0 : present->mod_rev, "brake", "%s", made.message);
    lh_plan_event(braking->plan, LH_EVENT_WARNING, "Braked", LH_KIND_SETTINGS, braking->controller,
                  "%s", made.message);
}

void lh_brake_remove(const LhBraking *braking, const char *rule, const char *reason)
{
    lh_plan_delete(braking->plan, LH_KIND_BRAKE, braking->controller, braking->present->o.mod_rev,
                   rule, "%s", reason);
    lh_plan_event(braking->plan, LH_EVENT_NORMAL, "BrakeReleased", LH_KIND_SETTINGS,
                  braking->controller, "%s", reason);
}

/* Brakes: the object and who lifts it; see brake.h. */
#include "controllers/brake.h"

#include <string.h>

#define MORE_THAN 10

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

gboolean lh_brake_is_confirmed(const LhBraking *braking)
{
    const LhAccepted *accepted = g_hash_table_lookup(braking->fleet->confirmations,
                                                     braking->controller);
    const LhConfirmation *confirmation = lh_accepted_spec((const LhObject *)accepted,
                                                          LH_KIND_CONFIRMATION);

    return confirmation != NULL &&
           g_strcmp0(confirmation->plan_hash, braking->present->plan_hash) == 0 &&
           accepted->revision > braking->present->revision && /* clocks differ */
           braking->context->now_ms - accepted->accepted_at <= LH_BRAKE_WINDOW_MS;
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

void lh_brake_put(const LhBraking *braking, const char *hash, gint64 eligible, gint64 of,
                  const char *message)
{
    const LhObject *present = g_hash_table_lookup(braking->fleet->brakes, braking->controller);
    LhBrake object = {
        .revision = braking->context->revision,
        .since = braking->context->now_ms,
        .plan_hash = hash,
        .eligible = eligible,
        .of = of,
        .confirmed_at = -1,
        .message = message,
    };

    lh_plan_put(braking->plan, LH_KIND_BRAKE, braking->controller, &object,
                present == NULL ? 0 : present->mod_rev, "brake", "%s", message);
    lh_plan_event(braking->plan, LH_EVENT_WARNING, "Braked", LH_KIND_SETTINGS, braking->controller,
                  "%s", message);
}

void lh_brake_remove(const LhBraking *braking, const char *rule, const char *reason)
{
    lh_plan_delete(braking->plan, LH_KIND_BRAKE, braking->controller, braking->present->o.mod_rev,
                   rule, "%s", reason);
    lh_plan_event(braking->plan, LH_EVENT_NORMAL, "BrakeReleased", LH_KIND_SETTINGS,
                  braking->controller, "%s", reason);
}

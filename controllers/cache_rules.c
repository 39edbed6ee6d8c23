/* The words and the compares that belong to a replica's fate; one table of rules. Pure. */
#include "controllers/cache_rules.h"

#include <string.h>

static const struct {
    const char *rule, *text;
} texts[] = {
    {"expired", "its time is over"},
    {"set-removed", "its service names this set no more"},
    {"surplus", "its service wants fewer copies"},
    {"service-deleted", "its service was deleted"},
    {"service-not-accepted", "its service was never valid"},
    {"service-unknown", "what is in force of its service does not parse"},
    {"service-paused", "its service is paused"},
    {"snapshot-gone", "its snapshot is gone"},
    {"snapshot-unknown", "its snapshot does not parse"},
    {"snapshot-live", "its snapshot is still being written"},
    {"no-replica", "there is no such replica"},
    {"replica-unknown", "it does not parse"},
    {"restore-unknown", "what is decided of its Restore does not parse"},
};

const char *lh_cache_fate_text(const LhFate *fate)
{
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
        if (strcmp(texts[i].rule, fate->rule) == 0)
            return texts[i].text;
    return fate->rule;
}

/* That it is not Pending: until then nothing of it goes. */
static void rely_on_restore(LhPlan *plan, const LhFleetRestore *restore)
{
    lh_plan_rely(plan, LH_KIND_RESTOREPROGRESS, restore->name,
                 restore->progress == NULL ? 0 : restore->progress->mod_rev);
    if (restore->progress == NULL || restore->accepted == NULL) {
        g_autofree char *accepted = g_strconcat("restores/", restore->name, NULL);
        lh_plan_rely(plan, LH_KIND_ACCEPTED, accepted,
                     restore->accepted == NULL ? 0 : restore->accepted->mod_rev);
    }
}

void lh_cache_rely_on_fate(LhPlan *plan, const LhFleet *fleet, const LhFleetReplica *replica)
{
    const LhFleetSnapshot *snapshot = replica->snapshot;
    const LhReplica *object = (const LhReplica *)replica->object;
    const char *service_name = snapshot->service != NULL ? snapshot->service->name
                               : object != NULL          ? object->service
                                                         : NULL;
    const LhFleetService *service = service_name == NULL
                                        ? NULL
                                        : g_hash_table_lookup(fleet->services, service_name);

    lh_plan_rely(plan, LH_KIND_SNAPSHOT, snapshot->name,
                 snapshot->object == NULL ? 0 : snapshot->object->mod_rev);
    if (service_name != NULL) {
        g_autofree char *accepted = g_strconcat("services/", service_name, NULL);
        lh_plan_rely(plan, LH_KIND_ACCEPTED, accepted,
                     service == NULL || service->accepted == NULL ? 0 : service->accepted->mod_rev);
    }
    if (strcmp(replica->fate.rule, "service-deleted") == 0)
        lh_plan_rely(plan, LH_KIND_SERVICE, service_name, 0);
    if (replica->restored != NULL && replica->restored->restore != NULL)
        rely_on_restore(plan, replica->restored->restore);
}

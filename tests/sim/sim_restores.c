/*
 * People who ask for old snapshots, change their minds and withdraw; and what must have become of every
 * Restore once the noise is over.
 */
#include "base/units.h"
#include "sim.h"

#include <string.h>

#define RESTORES 6
#define SERVICES 5 /* of sim_people.c */

static char *restore_key(Sim *sim)
{
    return g_strdup_printf("desired/restores/r%" G_GUINT64_FORMAT, sim_below(sim, RESTORES));
}

static char *some_snapshots(Sim *sim)
{
    g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(sim->model.kinds[LH_KIND_SNAPSHOT]),
                                         (GCompareFunc)strcmp);
    guint n = g_list_length(names), from = n == 0 ? 0 : (guint)sim_below(sim, n);
    GString *text = g_string_new("\"snapshots\":[\"s0-gone\"");
    for (guint i = from; i < MIN(from + 3, n); i++)
        if (lh_kind_name_valid(LH_KIND_SNAPSHOT, g_list_nth_data(names, i)))
            g_string_append_printf(text, ",\"%s\"", (char *)g_list_nth_data(names, i));
    g_string_append_c(text, ']');
    return g_string_free(text, FALSE);
}

static char *some_window(Sim *sim)
{
    gint64 start = sim_wall(sim) - sim_between(sim, 0, 600000);
    g_autofree char *from = lh_time_format(start);
    g_autofree char *to = lh_time_format(start + sim_between(sim, 0, 200000));
    g_autofree char *service = sim_chance(sim, 20) ? g_strdup("*")
                                                   : g_strdup_printf("svc-%" G_GUINT64_FORMAT,
                                                                     sim_below(sim, SERVICES));
    return g_strdup_printf("\"service\":\"%s\",\"startTime\":\"%s\",\"endTime\":\"%s\"", service,
                           from, to);
}

void sim_restores_ask(Sim *sim)
{
    static const char *const ttls[] = {"20s", "90s", "5m", "2h"};
    g_autofree char *key = restore_key(sim);
    g_autofree char *what = sim_chance(sim, 30) ? some_snapshots(sim) : some_window(sim);
    g_autofree char *value = g_strdup_printf("{\"spec\":{%s,\"ttl\":\"%s\"}}", what,
                                             ttls[sim_below(sim, G_N_ELEMENTS(ttls))]);
    if (sim_chance(sim, 8)) {
        sim->counters.invalid_edits++;
        sim_put(sim, key, "{\"spec\":{\"service\":\"svc-0\",\"startTime\":9,\"endTime\":1}}", 0);
        return;
    }
    sim->counters.restores_asked++;
    sim_put(sim, key, value, 0);
}

void sim_restores_withdraw(Sim *sim)
{
    g_autofree char *key = restore_key(sim);
    if (sim_kv(sim, key) == NULL)
        return;
    sim->counters.restores_withdrawn++;
    sim_delete(sim, key);
}

void sim_restores_begin(Sim *sim)
{
    sim_put(sim, "desired/settings/restore-manager", "{\"spec\":{\"maxReplicasPerRestore\":9}}", 0);
}

/* ---- in the end ---- */

/* Something that it asks for belongs to a service of which nothing is created for now. */
static gboolean is_held(const Sim *sim, const LhAccepted *restore)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_SNAPSHOT]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhSnapshot *snapshot = value;
        if (!lh_object_known(&snapshot->o) || !inv_restore_asks(restore, snapshot))
            continue;
        g_autofree char *name = g_strconcat("services/", snapshot->service, NULL);
        const LhService *spec = lh_accepted_spec(sim_get(sim, LH_KIND_ACCEPTED, name),
                                                 LH_KIND_SERVICE);
        if (spec == NULL || spec->paused)
            return TRUE;
    }
    return FALSE;
}

static guint own_replicas(const Sim *sim, const char *restore)
{
    GHashTableIter iter;
    gpointer value;
    guint n = 0;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_REPLICA]);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        n += lh_object_known(value) && g_strcmp0(((const LhReplica *)value)->restore, restore) == 0;
    return n;
}

static char *check_one(Sim *sim, const char *name, const LhAccepted *restore)
{
    const LhRestoreProgress *progress = inv_progress(&sim->model, name);
    guint own = own_replicas(sim, name);
    if (progress == NULL || progress->observed_revision != restore->revision)
        return g_strdup_printf("restore %s is not decided", name);
    switch ((LhRestorePhase)progress->phase) {
    case LH_RESTORE_PENDING:
        return is_held(sim, restore) ? NULL : g_strdup_printf("restore %s is Pending", name);
    case LH_RESTORE_ACTIVE:
        return own > 0 ? NULL : g_strdup_printf("restore %s is Active and has nothing", name);
    case LH_RESTORE_COMPLETED:
        return own == 0 ? NULL : g_strdup_printf("restore %s is Completed and has %u", name, own);
    case LH_RESTORE_REFUSED:
        return NULL;
    }
    return NULL;
}

char *sim_restores_check(Sim *sim)
{
    GHashTableIter iter;
    gpointer key;
    char *why = NULL;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_ACCEPTED]);
    while (why == NULL && g_hash_table_iter_next(&iter, &key, NULL)) {
        const char *name = (const char *)key + strlen("restores/");
        const LhAccepted *restore = g_str_has_prefix(key, "restores/")
                                        ? inv_restore(&sim->model, name)
                                        : NULL;
        if (restore != NULL)
            why = check_one(sim, name, restore);
    }
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_RESTOREPROGRESS]);
    while (why == NULL && g_hash_table_iter_next(&iter, &key, NULL))
        if (inv_restore(&sim->model, key) == NULL)
            why = g_strdup_printf("the progress of restore %s is left over", (char *)key);
    return why;
}

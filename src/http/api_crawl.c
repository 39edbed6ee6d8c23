/*
 * What the API says of crawl fleets beyond what is stored: where a seed is and since when, who holds a
 * throttle and for how many seeds, what failure-detector thinks of a node; and which values of a seed's
 * config viewers do not see.
 */
#include "base/json.h"
#include "base/units.h"
#include "controllers/pool.h"
#include "http/api_internal.h"

#include <string.h>

#define HIDDEN "(hidden)"

/* ---- what viewers do not see ---- */

/* {"fromFile": …} names where a secret is; any other value may be one. */
static void hide_values(cJSON *config)
{
    cJSON *next;

    for (cJSON *value = config->child; value != NULL; value = next) {
        next = value->next;
        if (cJSON_IsObject(config) && strcmp(value->string, "fromFile") == 0 &&
            cJSON_IsString(value) && next == NULL && value == config->child)
            continue;
        if (cJSON_IsObject(value) || cJSON_IsArray(value))
            hide_values(value);
        else if (cJSON_IsObject(config))
            cJSON_ReplaceItemInObjectCaseSensitive(config, value->string,
                                                   cJSON_CreateString(HIDDEN));
        else
            cJSON_ReplaceItemViaPointer(config, value, cJSON_CreateString(HIDDEN));
    }
}

void lh_view_hide(cJSON *view, const LhObject *object)
{
    static const char *const places[] = {"spec", "seed"};
    gboolean seed =
        object->kind == LH_KIND_SEED ||
        (object->kind == LH_KIND_ACCEPTED && g_str_has_prefix(object->name, "seeds/")) ||
        (object->kind == LH_KIND_ASSIGNMENT && g_str_has_prefix(object->name, LH_POOL_MANAGER "/"));

    if (!seed)
        return;
    /* What does not parse is shown as it was written: nobody knows what in it is a secret. */
    cJSON_DeleteItemFromObjectCaseSensitive(view, "value");
    for (guint i = 0; i < G_N_ELEMENTS(places); i++) {
        const cJSON *place = cJSON_GetObjectItemCaseSensitive(view, places[i]);
        cJSON *config = cJSON_GetObjectItemCaseSensitive(place, "config");
        if (config != NULL)
            hide_values(config);
    }
}

/* ---- seeds ---- */

static void add_time(cJSON *status, const char *name, gint64 at_ms)
{
    g_autofree char *text = lh_time_format(at_ms);

    cJSON_AddStringToObject(status, name, text);
}

/* What the node that gets it knows of the requests that its throttle has granted already. */
static const char *window_state(const LhAssignment *assignment)
{
    if (assignment->window == NULL)
        return "Unknown";
    return strcmp(assignment->window, "{}") == 0 ? "Empty" : "HandedOver";
}

cJSON *lh_view_seed(const LhApi *api, const LhObject *seed, cJSON *status)
{
    const char *owner = lh_json_get_string(status, "owner", NULL);
    if (owner == NULL)
        return status;
    g_autofree char *name = g_strdup_printf(LH_POOL_MANAGER "/%s/%s", owner, seed->name);
    const LhObject *item = lh_mirror_get(api->options.mirror, LH_KIND_ITEM, name);
    const LhObject *object = lh_mirror_get(api->options.mirror, LH_KIND_ASSIGNMENT, name);
    const LhAssignment *assignment = object != NULL && lh_object_known(object)
                                         ? (const LhAssignment *)object
                                         : NULL;
    if (item != NULL && lh_object_known(item))
        add_time(status, "since", ((const LhItem *)item)->since);
    else if (assignment != NULL)
        add_time(status, "since", assignment->since);
    if (assignment == NULL)
        return status;
    if (assignment->reason != NULL)
        cJSON_AddStringToObject(status, "reason", assignment->reason);
    if (((const LhSeed *)seed)->throttle != NULL)
        cJSON_AddStringToObject(status, "window", window_state(assignment));
    return status;
}

/* ---- throttles ---- */

typedef struct {
    gint64 seeds;
    char *holder; /* NULL: none of them is on a node */
} Holding;

static void holding_free(gpointer data)
{
    g_free(((Holding *)data)->holder);
    g_free(data);
}

static void count_seed(const LhObject *object, gpointer data)
{
    LhApi *api = data;
    const char *throttle = lh_object_known(object) ? ((const LhSeed *)object)->throttle : NULL;
    if (throttle == NULL)
        return;
    Holding *holding = g_hash_table_lookup(api->holdings, throttle);
    if (holding == NULL) {
        holding = g_new0(Holding, 1);
        g_hash_table_insert(api->holdings, g_strdup(throttle), holding);
    }
    holding->seeds++;
    if (holding->holder != NULL)
        return;
    g_autofree char *name = g_strdup_printf("seeds/%s/seed-allocator", object->name);
    const LhObject *status = lh_mirror_get(api->options.mirror, LH_KIND_STATUS, name);
    if (status != NULL && lh_object_known(status))
        holding->holder = g_strdup(((const LhStatus *)status)->owner);
}

/* Counted once for each revision: a list of throttles walks the seeds once. */
static const Holding *holding_of(LhApi *api, const char *throttle)
{
    gint64 revision = lh_mirror_revision(api->options.mirror);

    if (api->holdings == NULL)
        api->holdings = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, holding_free);
    if (api->holdings_revision != revision) {
        api->holdings_revision = revision;
        g_hash_table_remove_all(api->holdings);
        lh_mirror_foreach(api->options.mirror, LH_KIND_SEED, count_seed, api);
    }
    return g_hash_table_lookup(api->holdings, throttle);
}

cJSON *lh_view_throttle(LhApi *api, const LhObject *throttle, cJSON *status)
{
    const Holding *holding = holding_of(api, throttle->name);

    if (status == NULL)
        status = cJSON_CreateObject();
    cJSON_AddNumberToObject(status, "seeds", holding == NULL ? 0 : (double)holding->seeds);
    if (holding != NULL && holding->holder != NULL)
        cJSON_AddStringToObject(status, "holder", holding->holder);
    return status;
}

/* ---- nodes ---- */

cJSON *lh_view_node(const LhApi *api, const LhObject *node, cJSON *status)
{
    const LhObject *object = lh_mirror_get(api->options.mirror, LH_KIND_HEALTH, node->name);
    const LhHealth *health = (const LhHealth *)object;

    if (object == NULL || !lh_object_known(object))
        return status;
    if (status == NULL)
        status = cJSON_CreateObject();
    cJSON_AddStringToObject(status, "health", lh_health_state_name(health->state));
    add_time(status, "healthSince", health->since);
    if (health->reason != NULL)
        cJSON_AddStringToObject(status, "healthReason", health->reason);
    return status;
}

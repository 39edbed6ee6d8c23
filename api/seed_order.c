/*
 * A seed as a crawl manager is given it.
 */
#include "api/seed_order.h"

#include "api/nested.h"
#include "base/json.h"
#include "base/units.h"

#include <string.h>

#define refuse(error, ...) lh_nested_refuse(error, "seed", __VA_ARGS__)

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static gboolean parse_limit(const cJSON *throttle, const char *name, gint64 *out, GError **error)
{
    const cJSON *item = member(throttle, name);
    if (item != NULL && (!lh_json_int(item, out) || *out < 0))
        return refuse(error, ".throttle.%s: must be an integer of 0 or more", name);
    return TRUE;
}

static gboolean parse_period(const cJSON *throttle, gint64 *out, GError **error)
{
    const cJSON *item = member(throttle, "period");
    if (item == NULL)
        return TRUE;
    if (!cJSON_IsString(item))
        return refuse(error, ".throttle.period: must be a duration like 1m");
    GError *why = NULL;
    if (!lh_duration_parse(item->valuestring, out, &why)) {
        g_propagate_prefixed_error(error, why, "seed.throttle.period: ");
        return FALSE;
    }
    return *out > 0 || refuse(error, ".throttle.period: must be more than 0");
}

static gboolean parse_throttle(const cJSON *throttle, LhSeedOrder *order, GError **error)
{
    if (!cJSON_IsObject(throttle))
        return refuse(error, ".throttle: must be an object, the policy with its name");
    const char *name = lh_json_get_string(throttle, "name", "");
    if (*name == '\0')
        return refuse(error, ".throttle.name: is required");
    if (!parse_limit(throttle, "requests", &order->requests, error) ||
        !parse_limit(throttle, "maxConcurrent", &order->max_concurrent, error) ||
        !parse_period(throttle, &order->period_ms, error))
        return FALSE;
    if ((order->requests > 0) != (order->period_ms > 0))
        return refuse(error, ".throttle.requests: is required with period, and period with it");
    order->throttle = g_strdup(name);
    return TRUE;
}

gboolean lh_seed_order_parse(const char *json, LhSeedOrder *out, GError **error)
{
    g_autoptr(cJSON) object = lh_nested_parse(json, LH_JSON_MAX_BYTES, "seed", error);
    if (object == NULL)
        return FALSE;
    LhSeedOrder order = {.paused = strcmp(lh_json_get_string(object, "state", ""), "paused") == 0};
    const cJSON *throttle = member(object, "throttle");
    if (throttle != NULL && !cJSON_IsNull(throttle) && !parse_throttle(throttle, &order, error))
        return FALSE;
    *out = order;
    return TRUE;
}

void lh_seed_order_clear(LhSeedOrder *order)
{
    g_free(order->throttle);
    *order = (LhSeedOrder){0};
}

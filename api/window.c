/*
 * The text of a window, and fitting it into few pairs: the time that it spans is cut into equal parts, and
 * what lies in one part is counted as young as the youngest of it.
 */
#include "api/window.h"

#include "api/nested.h"
#include "base/json.h"

#include <string.h>

#define refuse(error, ...) lh_nested_refuse(error, "window", __VA_ARGS__)

static gboolean parse_pair(const cJSON *item, const char *list, guint at, LhWindowPair *out,
                           GError **error)
{
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 2)
        return refuse(error, ".%s[%u]: must be [age in ms, number]", list, at);
    if (!lh_json_int(cJSON_GetArrayItem(item, 0), &out->age_ms) || out->age_ms < 0)
        return refuse(error, ".%s[%u][0]: must be an integer of 0 or more", list, at);
    if (!lh_json_int(cJSON_GetArrayItem(item, 1), &out->n) || out->n < 1)
        return refuse(error, ".%s[%u][1]: must be an integer of 1 or more", list, at);
    return TRUE;
}

static gboolean parse_list(const cJSON *array, LhWindowPair *pairs, guint *n, GError **error)
{
    if (!cJSON_IsArray(array))
        return refuse(error, ".%s: must be an array", array->string);
    if (cJSON_GetArraySize(array) > LH_WINDOW_PAIRS)
        return refuse(error, ".%s: has %d pairs, must be at most %d", array->string,
                      cJSON_GetArraySize(array), LH_WINDOW_PAIRS);
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (!parse_pair(item, array->string, *n, &pairs[*n], error))
            return FALSE;
        if (*n > 0 && pairs[*n].age_ms >= pairs[*n - 1].age_ms)
            return refuse(error, ".%s[%u][0]: must be less than the age before it", array->string,
                          *n);
        (*n)++;
    }
    return TRUE;
}

static gboolean parse_known(const cJSON *item, gboolean *partial, gint64 *known_ms, GError **error)
{
    if (!lh_json_int(item, known_ms) || *known_ms < 0)
        return refuse(error, ".%s: must be an integer of 0 or more", item->string);
    *partial = TRUE;
    return TRUE;
}

static gboolean parse_member(const cJSON *member, LhWindow *w, GError **error)
{
    if (strcmp(member->string, "granted") == 0)
        return parse_list(member, w->granted, &w->n_granted, error);
    if (strcmp(member->string, "held") == 0)
        return parse_list(member, w->held, &w->n_held, error);
    if (strcmp(member->string, "grantedKnown") == 0)
        return parse_known(member, &w->granted_partial, &w->granted_known_ms, error);
    if (strcmp(member->string, "heldKnown") == 0)
        return parse_known(member, &w->held_partial, &w->held_known_ms, error);
    return refuse(error, ": an unknown field \"%.64s\"", member->string);
}

gboolean lh_window_parse(const char *json, LhWindow *out, GError **error)
{
    g_autoptr(cJSON) object = lh_nested_parse(json, LH_WINDOW_MAX_BYTES, "window", error);
    if (object == NULL)
        return FALSE;
    LhWindow window = {0};
    const cJSON *member;
    cJSON_ArrayForEach(member, object) {
        if (!parse_member(member, &window, error))
            return FALSE;
    }
    *out = window;
    return TRUE;
}

static void print_list(GString *text, const char *name, const LhWindowPair *pairs, guint n)
{
    if (n == 0)
        return;
    lh_json_append_key(text, name);
    g_string_append_c(text, '[');
    for (guint i = 0; i < n; i++) {
        lh_json_append_key(text, NULL);
        g_string_append_c(text, '[');
        lh_json_append_int(text, pairs[i].age_ms);
        g_string_append_c(text, ',');
        lh_json_append_int(text, pairs[i].n);
        g_string_append_c(text, ']');
    }
    g_string_append_c(text, ']');
}

static void print_known(GString *text, const char *name, gboolean partial, gint64 known_ms)
{
    if (!partial)
        return;
    lh_json_append_key(text, name);
    lh_json_append_int(text, known_ms);
}

char *lh_window_print(const LhWindow *window)
{
    GString *text = g_string_new("{");
    print_list(text, "granted", window->granted, window->n_granted);
    print_list(text, "held", window->held, window->n_held);
    print_known(text, "grantedKnown", window->granted_partial, window->granted_known_ms);
    print_known(text, "heldKnown", window->held_partial, window->held_known_ms);
    g_string_append_c(text, '}');
    return g_string_free(text, FALSE);
}

static gboolean all_ages_fit(const LhWindowPair *pairs, gsize n)
{
    gsize ages = 0;
    for (gsize i = 0; i < n; i++)
        if (i == 0 || pairs[i].age_ms != pairs[i - 1].age_ms)
            ages++;
    return ages <= LH_WINDOW_PAIRS;
}

guint lh_window_fit(const LhWindowPair *pairs, gsize n, LhWindowPair out[LH_WINDOW_PAIRS])
{
    if (n == 0)
        return 0;
    gint64 youngest = pairs[n - 1].age_ms;
    gint64 part = all_ages_fit(pairs, n)
                      ? 1
                      : (pairs[0].age_ms - youngest + LH_WINDOW_PAIRS) / LH_WINDOW_PAIRS;
    guint used = 0;
    gint64 last = -1; /* the part that out[used - 1] is of */
    for (gsize i = 0; i < n; i++) {
        gint64 of = (pairs[i].age_ms - youngest) / part;
        if (of != last)
            out[used++] = (LhWindowPair){0};
        out[used - 1].age_ms = pairs[i].age_ms;
        out[used - 1].n += pairs[i].n;
        last = of;
    }
    return used;
}

gint64 lh_window_quiet_ms(gint64 requests, gint64 period_ms, gint64 max_concurrent)
{
    return MAX(requests > 0 ? period_ms : 0, max_concurrent > 0 ? LH_PERMIT_LIFE_MS : 0);
}

/*
 * --on-load and --on-evict of the cache pool: what they are told, and what their answer means.
 *
 * --on-load may print {"url": …}, where the snapshot is served instead of by the agent itself.
 */
#include "agent/cache_internal.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"

#include <string.h>

#define MAX_URL_BYTES 2048

static char *own_url(const Holding *h)
{
    return g_strdup_printf("%s" LH_FILES_PATH "%s/", h->work->url, h->assignment->snapshot);
}

/* The url that --on-load printed; NULL: none. */
static char *printed_url(const Holding *h, const char *output)
{
    g_autofree char *text = g_strstrip(g_strdup(output));
    if (*text == '\0')
        return NULL;
    g_autoptr(GError) error = NULL;
    g_autoptr(cJSON) json = lh_json_parse(text, strlen(text), LH_JSON_MAX_BYTES, &error);
    const char *url = json != NULL ? lh_json_get_string(json, "url", NULL) : NULL;
    if (url == NULL || *url == '\0' || strlen(url) > MAX_URL_BYTES) {
        lh_log(LH_LOG_INFO, "what on-load printed is no {\"url\": …}; it is ignored", "item",
               h->item, NULL);
        return NULL;
    }
    return g_strdup(url);
}

static void run(Holding *h, char **argv, const char *action, LhHookDone done)
{
    LhCacheWork *work = h->work;
    gboolean load = strcmp(action, "load") == 0;
    LhAssignment told = *h->assignment;
    told.action = load ? LH_ACTION_LOAD : LH_ACTION_EVICT;
    g_autofree char *input = lh_object_print(LH_KIND_ASSIGNMENT, &told);
    g_autofree char *dir = lh_cache_store_data_path(work->store, h->assignment->snapshot);
    g_autofree char *url = own_url(h);
    g_autofree char *size = g_strdup_printf("%" G_GINT64_FORMAT, h->assignment->size_bytes);
    const char *const environment[] = {
        "LEASEHOLD_POOL",
        "cache",
        "LEASEHOLD_NODE",
        work->node != NULL ? work->node : "",
        "LEASEHOLD_ITEM",
        h->item,
        "LEASEHOLD_ACTION",
        action,
        "LEASEHOLD_SNAPSHOT",
        h->assignment->snapshot,
        "LEASEHOLD_URI",
        h->assignment->uri,
        "LEASEHOLD_SIZE_BYTES",
        size,
        "LEASEHOLD_SET",
        h->assignment->set != NULL ? h->assignment->set : "",
        "LEASEHOLD_DIR",
        dir,
        "LEASEHOLD_URL",
        url,
        NULL,
    };
    const LhHookCall call = {
        .argv = (const char *const *)argv,
        .environment = environment,
        .input = input,
        .timeout_ms = work->hook_timeout_ms,
    };
    h->hook = lh_hooks_run(work->hooks, &call, done, h);
}

static void load_ended(const char *output, const GError *error, gpointer data)
{
    Holding *h = data;
    h->hook = 0;
    if (error != NULL) {
        h->hooked = FALSE; /* it says that it has not taken it */
        g_autoptr(GError) named = g_error_copy(error);
        g_prefix_error(&named, "on-load: ");
        h->hook_end(NULL, named, h);
        return;
    }
    g_autofree char *printed = printed_url(h, output);
    g_autofree char *own = own_url(h);
    h->hook_end(printed != NULL ? printed : own, NULL, h);
}

static void no_hook(gpointer data)
{
    Holding *h = data;
    h->timer = NULL;
    g_autofree char *own = own_url(h);
    h->hook_end(own, NULL, h);
}

void lh_cache_hook_load(Holding *h, HookEnd end)
{
    h->hook_end = end;
    h->hooked = TRUE;
    if (h->work->on_load == NULL)
        h->timer = lh_timer_in(h->work->env, 0, no_hook, h);
    else
        run(h, h->work->on_load, "load", load_ended);
}

static void evict_ended(const char *output G_GNUC_UNUSED, const GError *error, gpointer data)
{
    Holding *h = data;
    h->hook = 0;
    g_autoptr(GError) named = error != NULL ? g_error_copy(error) : NULL;
    if (named != NULL)
        g_prefix_error(&named, "on-evict: ");
    else
        h->hooked = FALSE;
    h->hook_end(NULL, named, h);
}

void lh_cache_hook_evict(Holding *h, HookEnd end)
{
    h->hook_end = end;
    if (h->work->on_evict == NULL || !h->hooked)
        end(NULL, NULL, h);
    else
        run(h, h->work->on_evict, "evict", evict_ended);
}

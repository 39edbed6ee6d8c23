/* See waiting.h. */
#include "cli/waiting.h"

#include "base/errors.h"
#include "base/units.h"

static gboolean begin_at_present(LhCli *cli, const LhWaiting *waiting, gint64 from, GError **error)
{
    if (from == 0 && waiting->first_listed > 0) {
        g_autofree char *path = g_strdup_printf("/v1/%s?limit=1", waiting->watches[0].plural);
        g_autoptr(cJSON) list = lh_client_get(cli->client, path, error);
        if (list == NULL) {
            return FALSE;
        }
        from = lh_json_get_int(list, "revision", 0);
    }
    for (guint i = 0; i < waiting->first_listed; i++) {
        waiting->watches[i].revision = from;
    }
    return TRUE;
}

static gboolean read_list(LhCli *cli, const LhWaiting *waiting, LhWatch *watch, GError **error)
{
    g_autoptr(cJSON) list = lh_client_list(cli->client, watch->plural, watch->selector, error);
    const cJSON *object;
    if (list == NULL) {
        return FALSE;
    }
    watch->revision = lh_json_get_int(list, "revision", 0);
    cJSON_ArrayForEach(object, cJSON_GetObjectItemCaseSensitive(list, "items")) {
        if (!waiting->is_over(waiting->data)) {
            watch->func("PUT", watch->revision, object, watch->data);
        }
    }
    return TRUE;
}

/* What there is; afterwards every watch has its revision, unless it is over. */
static gboolean read_all(LhCli *cli, const LhWaiting *waiting, gint64 from, GError **error)
{
    if (!begin_at_present(cli, waiting, from, error)) {
        return FALSE;
    }
    for (guint i = waiting->first_listed; i < waiting->n; i++) {
        if (!waiting->is_over(waiting->data) &&
            !read_list(cli, waiting, &waiting->watches[i], error)) {
            return FALSE;
        }
    }
    return waiting->look == NULL || waiting->is_over(waiting->data) ||
           waiting->look(waiting->data, error);
}

gboolean lh_wait_for(LhCli *cli, const LhWaiting *waiting, gint64 deadline_ms, GError **error)
{
    for (gint64 from = waiting->from;; from = 0) {
        if (!read_all(cli, waiting, from, error)) {
            return FALSE;
        }
        if (waiting->is_over(waiting->data)) {
            return TRUE;
        }
        switch (lh_client_watch(cli->client, waiting->watches, waiting->n, deadline_ms, error)) {
        case LH_WATCH_ENDED:
        case LH_WATCH_TIMEOUT:
            return TRUE;
        case LH_WATCH_EXPIRED:
            break;
        case LH_WATCH_ERROR:
            return FALSE;
        }
    }
}

gboolean lh_wait_deadline(const LhCli *cli, const char *standard, gint64 *deadline_ms,
                          GError **error)
{
    const char *timeout = cli->o.timeout != NULL ? cli->o.timeout : standard;
    g_autoptr(GError) local = NULL;
    gint64 timeout_ms;
    *deadline_ms = -1;
    if (timeout == NULL) {
        return TRUE;
    }
    if (!lh_duration_parse(timeout, &timeout_ms, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: --timeout %s: %s", cli->command->name,
                    timeout, local->message);
        return FALSE;
    }
    *deadline_ms = lh_mono_ms(cli->env) + timeout_ms;
    return TRUE;
}

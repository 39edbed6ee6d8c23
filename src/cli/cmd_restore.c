/*
 * restore SERVICE --from --to: asks for old snapshots, and with --wait stays until they are live.
 *
 * It waits on the RestoreProgress of the revision that it has made, on the Restore (somebody may delete it)
 * and on retries that were given up. What is watched is read again when the watch is open, so that nothing
 * falls between.
 */
#include "base/errors.h"
#include "base/units.h"
#include "cli/internal.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/waiting.h"

#include <string.h>

typedef enum { OPEN, DONE, FAILED, REFUSED } Outcome;

typedef struct {
    LhCli *cli;
    char *name;
    gint64 revision; /* of the Restore */
    LhProgress progress;
    gboolean quiet; /* -o json and the like: no lines between */
    Outcome outcome;
    char *last; /* what is the case, for the message */
} Waiter;

/* ---- the request ---- */

/* A time, or a duration: so long ago. */
static gboolean time_of(const LhCli *cli, const char *option, const char *text, gint64 *out,
                        GError **error)
{
    gint64 ago;
    char *end = NULL;
    gint64 number = text == NULL ? 0 : g_ascii_strtoll(text, &end, 10);
    if (text == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "restore: %s TIME is missing", option);
        return FALSE;
    }
    if (end != text && *end == '\0' && number >= 0 && number <= LH_JSON_MAX_INT) {
        *out = number;
        return TRUE;
    }
    if (lh_time_parse(text, out, NULL)) {
        return TRUE;
    }
    if (lh_duration_parse(text, &ago, NULL)) {
        *out = MAX(0, cli->now_ms - ago);
        return TRUE;
    }
    g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                "restore: %s %s: must be a time like 2026-11-20T09:30:00Z, or so long ago: 7d",
                option, text);
    return FALSE;
}

static char *body_of(const LhCli *cli, const char *service, GError **error)
{
    gint64 from, to, ttl;
    g_autoptr(GError) local = NULL;
    if (!time_of(cli, "--from", cli->o.from, &from, error) ||
        !time_of(cli, "--to", cli->o.to, &to, error)) {
        return NULL;
    }
    if (from > to) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "restore: --from must not be later than --to");
        return NULL;
    }
    if (cli->o.ttl != NULL && !lh_duration_parse(cli->o.ttl, &ttl, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "restore: --ttl %s: %s", cli->o.ttl,
                    local->message);
        return NULL;
    }
    g_autofree char *from_text = lh_time_format(from);
    g_autofree char *to_text = lh_time_format(to);
    g_autoptr(cJSON) body = cJSON_CreateObject();
    if (cli->o.name != NULL) {
        cJSON_AddStringToObject(cJSON_AddObjectToObject(body, "metadata"), "name", cli->o.name);
    }
    cJSON *spec = cJSON_AddObjectToObject(body, "spec");
    cJSON_AddStringToObject(spec, "service", service);
    cJSON_AddStringToObject(spec, "startTime", from_text);
    cJSON_AddStringToObject(spec, "endTime", to_text);
    if (cli->o.ttl != NULL) {
        cJSON_AddStringToObject(spec, "ttl", cli->o.ttl);
    }
    return lh_json_print(body);
}

/* ---- what has become of it ---- */

static void note(Waiter *waiter, Outcome outcome, const char *format, ...) G_GNUC_PRINTF(3, 4);
static void note(Waiter *waiter, Outcome outcome, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_free(waiter->last);
    waiter->last = g_strdup_vprintf(format, args);
    va_end(args);
    waiter->outcome = outcome;
}

static void on_numbers(Waiter *waiter, const char *phase, gint64 replicas, gint64 live,
                       gint64 given_up, const char *message)
{
    gboolean pending = strcmp(phase, "Pending") == 0;
    g_autofree char *text = g_strdup_printf("live, %s%s%s", phase, message[0] != '\0' ? ": " : "",
                                            message);
    if (strcmp(phase, "Refused") == 0) {
        note(waiter, REFUSED, "%s", message);
        return;
    }
    note(waiter, OPEN, "%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " %s", live, replicas, text);
    if (!waiter->quiet) {
        lh_progress_show(&waiter->progress, live, replicas, text);
    }
    if (strcmp(phase, "Completed") == 0) {
        waiter->outcome = given_up == 0 ? DONE : FAILED;
    } else if (!pending && live + given_up >= replicas) {
        waiter->outcome = given_up == 0 ? DONE : FAILED;
    }
}

static gboolean on_progress(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    (void)revision;
    if (waiter->outcome == OPEN && strcmp(event, "PUT") == 0 &&
        strcmp(lh_object_name(object), waiter->name) == 0 &&
        lh_json_get_int(object, "observedRevision", 0) >= waiter->revision) {
        on_numbers(waiter, lh_json_get_string(object, "phase", ""),
                   lh_json_get_int(object, "replicas", 0), lh_json_get_int(object, "live", 0),
                   lh_json_get_int(object, "givenUp", 0),
                   lh_json_get_string(object, "message", ""));
    }
    return waiter->outcome != OPEN;
}

static gboolean on_restore(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    (void)revision;
    if (waiter->outcome == OPEN && strcmp(event, "DELETE") == 0 &&
        strcmp(lh_object_name(object), waiter->name) == 0) {
        note(waiter, FAILED, "it was deleted");
    }
    return waiter->outcome != OPEN;
}

/* A replica of ours that has failed for good. */
static gboolean on_retry(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    const char *name = lh_object_name(object), *item = strchr(name, '/');
    (void)revision;
    if (waiter->outcome != OPEN || strcmp(event, "PUT") != 0 || item == NULL ||
        !lh_json_get_bool(object, "parked", FALSE)) {
        return waiter->outcome != OPEN;
    }
    g_autofree char *path = lh_client_path("replicas", item + 1);
    g_autoptr(cJSON) replica = lh_client_get(waiter->cli->client, path, NULL);
    if (strcmp(lh_json_get_string(replica, "restore", ""), waiter->name) == 0) {
        note(waiter, FAILED, "%s has failed for good: %s", name,
             lh_json_get_string(object, "message", ""));
    }
    return waiter->outcome != OPEN;
}

/* ---- waiting ---- */

static gboolean still_there(gpointer data, GError **error)
{
    Waiter *waiter = data;
    g_autofree char *path = lh_client_path("restores", waiter->name);
    g_autoptr(GError) local = NULL;
    g_autoptr(cJSON) object = lh_client_get(waiter->cli->client, path, &local);
    if (object == NULL && g_error_matches(local, LH_ERROR, LH_ERR_NOT_FOUND)) {
        note(waiter, FAILED, "it was deleted");
        return TRUE;
    }
    if (object == NULL) {
        g_propagate_error(error, g_steal_pointer(&local));
    }
    return object != NULL;
}

static int outcome_code(Waiter *waiter, GError **error)
{
    lh_progress_end(&waiter->progress);
    const char *last = waiter->last != NULL ? waiter->last : "nothing is known of it yet";
    g_autofree char *object = g_strdup_printf("restores/%s", waiter->name);
    int code = waiter->outcome == REFUSED ? LH_EXIT_REFUSED : LH_EXIT_FAILED;
    switch (waiter->outcome) {
    case DONE:
        lh_result_add(waiter->cli, object, "restored", waiter->revision);
        return LH_EXIT_DONE;
    case FAILED:
    case REFUSED:
        g_set_error(error, LH_CLI_ERROR, code, "%s: %s: %s", object,
                    waiter->outcome == REFUSED ? "refused" : "failed", last);
        break;
    case OPEN:
        g_set_error(error, LH_CLI_ERROR, code, "%s: not restored within %s: %s", object,
                    waiter->cli->o.timeout, last);
        break;
    }
    return code;
}

static gboolean is_over(gconstpointer data)
{
    return ((const Waiter *)data)->outcome != OPEN;
}

/* What the lists do not tell the watches will. */
static int wait_for(Waiter *waiter, gint64 deadline_ms, GError **error)
{
    LhWatch watches[] = {
        {.plural = "restoreprogress", .func = on_progress, .data = waiter},
        {.plural = "restores", .func = on_restore, .data = waiter},
        {.plural = "retries", .func = on_retry, .data = waiter},
    };
    const LhWaiting waiting = {
        .watches = watches,
        .n = G_N_ELEMENTS(watches),
        .look = still_there,
        .is_over = is_over,
        .data = waiter,
    };
    return lh_wait_for(waiter->cli, &waiting, deadline_ms, error) ? outcome_code(waiter, error)
                                                                  : LH_EXIT_FAILED;
}

static int create_and_wait(LhCli *cli, const char *body, gint64 deadline_ms, GError **error)
{
    g_autoptr(cJSON) made = lh_client_call(cli->client, "POST", "/v1/restores", body, NULL, NULL,
                                           error);
    if (made == NULL) {
        return LH_EXIT_FAILED;
    }
    Waiter waiter = {
        .cli = cli,
        .name = g_strdup(lh_object_name(made)),
        .revision = lh_json_get_int(lh_value_at(made, "metadata"), "revision", 0),
        .quiet = cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE,
    };
    g_autofree char *object = g_strdup_printf("restores/%s", waiter.name);
    int code = LH_EXIT_DONE;
    if (!cli->o.wait || !waiter.quiet) {
        lh_result_add(cli, object, "created", waiter.revision);
    }
    if (cli->o.wait) {
        fflush(cli->out);
        lh_progress_init(&waiter.progress, cli->out);
        code = wait_for(&waiter, deadline_ms, error);
        lh_progress_end(&waiter.progress);
    }
    g_free(waiter.name);
    g_free(waiter.last);
    return code;
}

int lh_cmd_restore(LhCli *cli, char **args, GError **error)
{
    g_autofree char *body = body_of(cli, args[0], error);
    gint64 deadline_ms;
    if (body == NULL || !lh_wait_deadline(cli, NULL, &deadline_ms, error)) {
        return LH_EXIT_USAGE;
    }
    return create_and_wait(cli, body, deadline_ms, error);
}

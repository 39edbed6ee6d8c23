/*
 * rebalance POOL: asks for one, and with --wait stays until its controller says that it is done.
 *
 * The answer is the condition Rebalanced of the Settings that the request went into, once it speaks of the
 * request's revision or a later one; what is True from an earlier request is not the answer.
 */
#include "base/errors.h"
#include "base/units.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <string.h>

typedef enum { OPEN, DONE, FAILED } Outcome;

typedef struct {
    LhCli *cli;
    char *plural, *name; /* of the object that the request went into */
    gint64 revision;
    Outcome outcome;
    char *last; /* what is the case, for the message */
} Waiter;

static void note(Waiter *waiter, Outcome outcome, const char *text)
{
    g_free(waiter->last);
    waiter->last = g_strdup(text);
    waiter->outcome = outcome;
}

static void look_at(Waiter *waiter, const cJSON *object)
{
    const cJSON *valid = lh_object_condition(object, "Valid");
    const cJSON *condition = lh_object_condition(object, "Rebalanced");
    gboolean answers = lh_json_get_int(condition, "observedRevision", 0) >= waiter->revision;
    const char *message = lh_json_get_string(condition, "message", "");

    if (answers && strcmp(lh_json_get_string(condition, "status", ""), "True") == 0) {
        note(waiter, DONE, message);
    } else if (strcmp(lh_json_get_string(valid, "status", ""), "False") == 0 &&
               lh_json_get_int(valid, "observedRevision", 0) >= waiter->revision) {
        note(waiter, FAILED, lh_json_get_string(valid, "message", "it is not valid"));
    } else if (answers && condition != NULL) {
        note(waiter, OPEN, message);
    }
}

static gboolean on_object(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    (void)revision;
    if (strcmp(lh_object_name(object), waiter->name) == 0) {
        if (strcmp(event, "DELETE") == 0) {
            note(waiter, FAILED, "it was deleted");
        } else {
            look_at(waiter, object);
        }
    }
    return waiter->outcome != OPEN;
}

static gboolean read_object(Waiter *waiter, GError **error)
{
    g_autofree char *path = lh_client_path(waiter->plural, waiter->name);
    g_autoptr(cJSON) object = lh_client_get(waiter->cli->client, path, error);
    if (object != NULL) {
        look_at(waiter, object);
    }
    return object != NULL;
}

/* What happened between the request and the watch. */
static gboolean look_again(gpointer data)
{
    Waiter *waiter = data;
    g_autoptr(GError) error = NULL;
    if (!read_object(waiter, &error)) {
        /* Deleted, or the server is away: if it stays so, the watch says it. */
        gboolean absent = g_error_matches(error, LH_ERROR, LH_ERR_NOT_FOUND);
        note(waiter, absent ? FAILED : OPEN, absent ? "it was deleted" : error->message);
    }
    return waiter->outcome != OPEN;
}

static int outcome_code(Waiter *waiter, GError **error)
{
    LhCli *cli = waiter->cli;
    const char *last = waiter->last != NULL ? waiter->last : "its controller has not answered yet";
    g_autofree char *object = g_strdup_printf("%s/%s", waiter->plural, waiter->name);
    g_autofree char *done = g_strdup_printf("rebalanced%s%s", last[0] != '\0' ? ": " : "", last);
    switch (waiter->outcome) {
    case DONE:
        lh_result_add(cli, object, done, waiter->revision);
        return LH_EXIT_DONE;
    case FAILED:
        g_set_error(error, LH_CLI_ERROR, LH_EXIT_FAILED, "%s: cannot be rebalanced: %s", object,
                    last);
        break;
    case OPEN:
        g_set_error(error, LH_CLI_ERROR, LH_EXIT_FAILED, "%s: not rebalanced within %s: %s", object,
                    cli->o.timeout, last);
        break;
    }
    return LH_EXIT_FAILED;
}

static int wait_for(Waiter *waiter, gint64 timeout_ms, GError **error)
{
    LhCli *cli = waiter->cli;
    gint64 deadline_ms = timeout_ms < 0 ? -1 : lh_mono_ms(cli->env) + timeout_ms;
    LhWatch watch = {
        .plural = waiter->plural, .opened = look_again, .func = on_object, .data = waiter};
    g_autofree char *path = g_strdup_printf("/v1/%s?limit=1", waiter->plural);
    for (;;) {
        g_autoptr(cJSON) list = lh_client_get(cli->client, path, error);
        if (list == NULL) {
            return LH_EXIT_FAILED;
        }
        watch.revision = lh_json_get_int(list, "revision", 0);
        switch (lh_client_watch(cli->client, &watch, 1, deadline_ms, error)) {
        case LH_WATCH_ENDED:
        case LH_WATCH_TIMEOUT:
            return outcome_code(waiter, error);
        case LH_WATCH_EXPIRED:
            break;
        case LH_WATCH_ERROR:
            return LH_EXIT_FAILED;
        }
    }
}

/* ---- the request ---- */

/* "settings/seed-allocator", as the server named it; FALSE: it did not. */
static gboolean take_object(Waiter *waiter, const cJSON *reply)
{
    const char *object = lh_json_get_string(reply, "object", "");
    const char *slash = strchr(object, '/');
    if (slash == NULL) {
        return FALSE;
    }
    waiter->plural = g_strndup(object, (gsize)(slash - object));
    waiter->name = g_strdup(slash + 1);
    waiter->revision = lh_json_get_int(reply, "revision", 0);
    return TRUE;
}

static int ask_and_wait(LhCli *cli, const char *pool, gint64 timeout_ms, GError **error)
{
    g_autofree char *pool_path = lh_client_path("pools", pool);
    g_autofree char *path = g_strconcat(pool_path, ":rebalance",
                                        cli->o.dry_run ? "?dryRun=true" : "", NULL);
    g_autoptr(cJSON) reply = lh_client_call(cli->client, "POST", path, "{}", NULL, NULL, error);
    Waiter waiter = {.cli = cli};
    int code = LH_EXIT_DONE;
    gboolean quiet = cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE;
    if (reply == NULL) {
        return LH_EXIT_FAILED;
    }
    if (!take_object(&waiter, reply)) {
        g_set_error(error, LH_ERROR, LH_ERR_INTERNAL, "pools/%s: the answer names no object", pool);
        return LH_EXIT_FAILED;
    }
    if (!cli->o.wait || !quiet) {
        g_autofree char *subject = g_strdup_printf("pools/%s", pool);
        lh_result_add(cli, subject, "asked to rebalance", waiter.revision);
    }
    if (cli->o.wait) {
        fflush(cli->out);
        code = wait_for(&waiter, timeout_ms, error);
    }
    g_free(waiter.plural);
    g_free(waiter.name);
    g_free(waiter.last);
    return code;
}

int lh_cmd_rebalance(LhCli *cli, char **args, GError **error)
{
    g_autoptr(GError) local = NULL;
    gint64 timeout_ms = -1;
    if (args[0][0] == '\0' || strchr(args[0], '/') != NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "rebalance: %s: must be the name of a pool",
                    args[0]);
        return LH_EXIT_USAGE;
    }
    if (cli->o.wait && cli->o.dry_run) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "rebalance: --wait and --dry-run exclude each other");
        return LH_EXIT_USAGE;
    }
    if (cli->o.timeout != NULL && !lh_duration_parse(cli->o.timeout, &timeout_ms, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "rebalance: --timeout %s: %s", cli->o.timeout,
                    local->message);
        return LH_EXIT_USAGE;
    }
    return ask_and_wait(cli, args[0], timeout_ms, error);
}

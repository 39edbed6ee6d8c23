/*
 * rebalance POOL: asks for one, and with --wait stays until its controller says that it is done.
 *
 * The answer is the condition Rebalanced of the Settings that the request went into, once it speaks of the
 * request's revision or a later one; what is True from an earlier request is not the answer. How many seeds
 * moved is what it saw meanwhile: the seeds that were ordered off a manager for balance.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"
#include "cli/waiting.h"

#include <string.h>

typedef enum { OPEN, DONE, FAILED } Outcome;

typedef struct {
    LhCli *cli;
    char *plural, *name; /* of the object that the request went into */
    gint64 revision;
    const char *pool;
    Outcome outcome;
    gboolean counts;   /* the orders are watched */
    guint starts;      /* of the watches; more than one: something may have been missed between */
    GHashTable *moved; /* names of seeds */
    char *last;        /* what is the case, for the message */
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

/* Done is not over until the orders that led there could be seen. */
static gboolean is_over(gconstpointer data)
{
    const Waiter *waiter = data;
    return waiter->outcome == FAILED || (waiter->outcome == DONE && waiter->counts);
}

static gboolean on_object(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    (void)revision;
    if (waiter->outcome == OPEN && strcmp(lh_object_name(object), waiter->name) == 0) {
        if (strcmp(event, "DELETE") == 0) {
            note(waiter, FAILED, "it was deleted");
        } else {
            look_at(waiter, object);
        }
    }
    return is_over(waiter);
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
    if (waiter->outcome == OPEN && !read_object(waiter, &error)) {
        /* Deleted, or the server is away: if it stays so, the watch says it. */
        gboolean absent = g_error_matches(error, LH_ERROR, LH_ERR_NOT_FOUND);
        note(waiter, absent ? FAILED : OPEN, absent ? "it was deleted" : error->message);
    }
    return is_over(waiter);
}

static gboolean on_order(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    static const char *const rules[] = {"rebalance", "moved-with-policy", NULL};
    Waiter *waiter = data;
    const char *name = lh_object_name(object), *item = strrchr(name, '/');
    gsize pool = strlen(waiter->pool);
    (void)revision;
    if (strcmp(event, "PUT") == 0 && item != NULL && strncmp(name, waiter->pool, pool) == 0 &&
        name[pool] == '/' && strcmp(lh_json_get_string(object, "action", ""), "evict") == 0 &&
        g_strv_contains(rules, lh_json_get_string(object, "rule", ""))) {
        g_hash_table_add(waiter->moved, g_strdup(item + 1));
    }
    return is_over(waiter);
}

static gboolean orders_opened(gpointer data)
{
    Waiter *waiter = data;
    waiter->counts = TRUE;
    return is_over(waiter);
}

static gboolean count_start(gpointer data, GError **error)
{
    (void)error;
    ((Waiter *)data)->starts++;
    return TRUE;
}

/* g_free. */
static char *done_text(const Waiter *waiter)
{
    guint n = g_hash_table_size(waiter->moved);
    const char *least = waiter->starts > 1 ? "at least " : "";
    return n == 1 ? g_strdup_printf("rebalanced: %s1 seed moved", least)
                  : g_strdup_printf("rebalanced: %s%u seeds moved", least, n);
}

static int outcome_code(Waiter *waiter, GError **error)
{
    LhCli *cli = waiter->cli;
    const char *last = waiter->last != NULL ? waiter->last : "its controller has not answered yet";
    g_autofree char *object = g_strdup_printf("%s/%s", waiter->plural, waiter->name);
    g_autofree char *done = done_text(waiter);
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

static int wait_for(Waiter *waiter, gint64 deadline_ms, GError **error)
{
    LhWatch watches[] = {
        {.plural = waiter->plural, .opened = look_again, .func = on_object, .data = waiter},
        {.plural = "assignments", .opened = orders_opened, .func = on_order, .data = waiter},
    };
    const LhWaiting waiting = {
        .watches = watches,
        .n = G_N_ELEMENTS(watches),
        .first_listed = G_N_ELEMENTS(watches),
        .from = waiter->revision,
        .look = count_start,
        .is_over = is_over,
        .data = waiter,
    };
    return lh_wait_for(waiter->cli, &waiting, deadline_ms, error) ? outcome_code(waiter, error)
                                                                  : LH_EXIT_FAILED;
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

static int ask_and_wait(LhCli *cli, const char *pool, gint64 deadline_ms, GError **error)
{
    g_autofree char *pool_path = lh_client_path("pools", pool);
    g_autofree char *path = g_strconcat(pool_path, ":rebalance",
                                        cli->o.dry_run ? "?dryRun=true" : "", NULL);
    g_autoptr(cJSON) reply = lh_client_call(cli->client, "POST", path, "{}", NULL, NULL, error);
    Waiter waiter = {.cli = cli, .pool = pool};
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
        waiter.moved = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        code = wait_for(&waiter, deadline_ms, error);
    }
    g_free(waiter.plural);
    g_free(waiter.name);
    g_free(waiter.last);
    g_clear_pointer(&waiter.moved, g_hash_table_unref);
    return code;
}

int lh_cmd_rebalance(LhCli *cli, char **args, GError **error)
{
    gint64 deadline_ms;
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
    if (!lh_wait_deadline(cli, NULL, &deadline_ms, error)) {
        return LH_EXIT_USAGE;
    }
    return ask_and_wait(cli, args[0], deadline_ms, error);
}

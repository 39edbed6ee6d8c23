/*
 * drain POOL/NODE-NAME: takes a node out of use, and with --wait stays until nothing is assigned to it.
 *
 * It waits for the condition Drained of the NodePolicy at the revision that it has written. The object is
 * read again when the watches are open and whenever a Status of it changes, so nothing falls between. It
 * ends early when somebody undoes the drain; a node that is gone is drained as soon as what it had is elsewhere.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"
#include "cli/waiting.h"

#include <string.h>

typedef enum { OPEN, DRAINED, UNDONE } Outcome;

typedef struct {
    LhCli *cli;
    const char *name; /* "<pool>/<node name>" */
    gint64 revision;  /* of what we wrote */
    gboolean quiet;
    Outcome outcome;
    char *last; /* what is the case, for the message */
} Waiter;

static void note(Waiter *waiter, const char *text)
{
    if (g_strcmp0(waiter->last, text) == 0) {
        return;
    }
    g_free(waiter->last);
    waiter->last = g_strdup(text);
    if (!waiter->quiet) {
        fprintf(waiter->cli->out, "%s: %s\n", waiter->name, text);
        fflush(waiter->cli->out);
    }
}

/* What is said of an older revision may be said of a drain before this one. */
static gboolean is_ours(const Waiter *waiter, const cJSON *object, const cJSON *condition)
{
    gint64 observed = 0;
    const cJSON *own = lh_value_at(condition, "observedRevision");
    if (own == NULL) {
        own = lh_value_at(object, "status.observedRevision");
    }
    return condition != NULL && lh_json_int(own, &observed) && observed >= waiter->revision;
}

static void look_at(Waiter *waiter, const cJSON *object)
{
    gint64 revision = lh_json_get_int(lh_value_at(object, "metadata"), "revision", 0);
    const cJSON *condition = lh_object_condition(object, "Drained");
    if (revision < waiter->revision) {
        return; /* as it was before */
    }
    if (!cJSON_IsTrue(lh_value_at(object, "spec.drain"))) {
        note(waiter, "the drain was undone");
        waiter->outcome = UNDONE;
    } else if (is_ours(waiter, object, condition)) {
        note(waiter, lh_json_get_string(condition, "message", ""));
        if (strcmp(lh_json_get_string(condition, "status", ""), "True") == 0) {
            waiter->outcome = DRAINED;
        }
    }
}

static gboolean on_policy(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    if (strcmp(lh_object_name(object), waiter->name) != 0) {
        return FALSE;
    }
    if (strcmp(event, "PUT") == 0) {
        look_at(waiter, object);
    } else if (revision > waiter->revision) {
        note(waiter, "the drain was undone");
        waiter->outcome = UNDONE;
    }
    return waiter->outcome != OPEN;
}

static gboolean read_policy(gpointer data, GError **error)
{
    Waiter *waiter = data;
    g_autoptr(GError) local = NULL;
    g_autofree char *path = lh_client_path("nodepolicies", waiter->name);
    g_autoptr(cJSON) object = lh_client_get(waiter->cli->client, path, &local);
    if (object != NULL) {
        look_at(waiter, object);
        return TRUE;
    }
    /* A server that has not caught up with our write does not know it yet: the watch tells. */
    if (!g_error_matches(local, LH_ERROR, LH_ERR_NOT_FOUND)) {
        g_propagate_error(error, g_steal_pointer(&local));
        return FALSE;
    }
    return TRUE;
}

static gboolean look_again(gpointer data)
{
    Waiter *waiter = data;
    g_autoptr(GError) error = NULL;
    read_policy(waiter, &error); /* events and the deadline go on */
    return waiter->outcome != OPEN;
}

/* What controllers say of it is in keys of their own, "nodepolicies/<pool>/<node name>/<controller>". */
static gboolean on_status(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    g_autofree char *below = g_strdup_printf("nodepolicies/%s/", waiter->name);
    return g_str_has_prefix(lh_object_name(object), below) && look_again(waiter);
}

static int outcome_code(const Waiter *waiter, GError **error)
{
    g_autofree char *object = g_strdup_printf("nodepolicies/%s", waiter->name);
    switch (waiter->outcome) {
    case DRAINED:
        lh_result_add(waiter->cli, object, "is empty", 0);
        return LH_EXIT_DONE;
    case UNDONE:
        g_set_error(error, LH_CLI_ERROR, LH_EXIT_FAILED, "%s: the drain was undone", object);
        break;
    case OPEN:
        g_set_error(error, LH_CLI_ERROR, LH_EXIT_FAILED, "%s: not drained within %s: %s", object,
                    waiter->cli->o.timeout,
                    waiter->last != NULL ? waiter->last : "no controller has said anything of it");
        break;
    }
    return LH_EXIT_FAILED;
}

static gboolean is_over(gconstpointer data)
{
    return ((const Waiter *)data)->outcome != OPEN;
}

static int wait_for(Waiter *waiter, gint64 deadline_ms, GError **error)
{
    LhWatch watches[] = {
        {.plural = "nodepolicies", .func = on_policy, .opened = look_again, .data = waiter},
        {.plural = "status", .func = on_status, .opened = look_again, .data = waiter},
    };
    const LhWaiting waiting = {
        .watches = watches,
        .n = G_N_ELEMENTS(watches),
        .first_listed = G_N_ELEMENTS(watches),
        .look = read_policy,
        .is_over = is_over,
        .data = waiter,
    };
    return lh_wait_for(waiter->cli, &waiting, deadline_ms, error) ? outcome_code(waiter, error)
                                                                  : LH_EXIT_FAILED;
}

static int drain_and_wait(LhCli *cli, const char *name, gint64 deadline_ms, GError **error)
{
    g_autofree char *object_path = lh_client_path("nodepolicies", name);
    g_autofree char *path = g_strconcat(object_path, ":drain", NULL);
    g_autofree char *object = g_strconcat("nodepolicies/", name, NULL);
    g_autoptr(cJSON) made = lh_client_call(cli->client, "POST", path, "{}", NULL, NULL, error);
    gboolean quiet = cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE;
    if (made == NULL) {
        return LH_EXIT_FAILED;
    }
    if (!cli->o.wait || !quiet) {
        lh_result_add(cli, object, "is being drained", 0);
    }
    if (!cli->o.wait) {
        return LH_EXIT_DONE;
    }
    Waiter waiter = {
        .cli = cli,
        .name = name,
        .revision = lh_json_get_int(lh_value_at(made, "metadata"), "revision", 0),
        .quiet = quiet,
    };
    fflush(cli->out);
    int code = wait_for(&waiter, deadline_ms, error);
    g_free(waiter.last);
    return code;
}

int lh_cmd_drain(LhCli *cli, char **args, GError **error)
{
    const char *slash = strchr(args[0], '/');
    gint64 deadline_ms;
    if (slash == NULL || slash == args[0] || slash[1] == '\0' || strchr(slash + 1, '/') != NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "drain: %s: usage: leasehold drain %s",
                    args[0], cli->command->arguments);
        return LH_EXIT_USAGE;
    }
    if (!lh_wait_deadline(cli, NULL, &deadline_ms, error)) {
        return LH_EXIT_USAGE;
    }
    return drain_and_wait(cli, args[0], deadline_ms, error);
}

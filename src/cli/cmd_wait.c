/*
 * wait KIND NAME --for COND: ends when it is true, and as soon as it cannot come true.
 *
 * The object is read, watched, and read again when the watch is open; for a replica or a snapshot,
 * the items that hold it and their retries are watched from the revision of their lists. So nothing
 * falls between.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"
#include "cli/waiting.h"

#include <string.h>

typedef enum { WANT_STATE, WANT_CONDITION, WANT_DELETE, WANT_JSONPATH } Want;

typedef enum { OPEN, MET, FAILED } Outcome;

typedef struct {
    LhCli *cli;
    const LhKindView *view;
    const char *name;
    Want want;
    char *key;   /* CONDITION: the type */
    char *value; /* STATE, CONDITION; JSONPATH: NULL is any */
    LhJsonPath *path;
    gboolean by_items; /* the state is that of the items */
    gboolean seen;
    Outcome outcome;
    char *last; /* what is the case, for the message */
} Waiter;

/* ---- the condition ---- */

static gboolean want_jsonpath(Waiter *waiter, const char *text, GError **error)
{
    const char *close = strrchr(text, '}');
    if (text[0] != '{' || close == NULL || (close[1] != '\0' && close[1] != '=')) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "wait: --for jsonpath=%s: must be jsonpath={PATH} or jsonpath={PATH}=VALUE",
                    text);
        return FALSE;
    }
    g_autofree char *template = g_strndup(text, (gsize)(close + 1 - text));
    waiter->want = WANT_JSONPATH;
    waiter->value = close[1] == '=' ? g_strdup(close + 2) : NULL;
    waiter->path = lh_jsonpath_new(template, error);
    return waiter->path != NULL;
}

static gboolean want_parse(Waiter *waiter, const char *text, GError **error)
{
    if (text == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "wait: --for is missing; see \"leasehold help wait\"");
        return FALSE;
    }
    const char *value = strchr(text, '=');
    value = value != NULL ? value + 1 : "";
    if (strcmp(text, "delete") == 0) {
        waiter->want = WANT_DELETE;
    } else if (g_ascii_strcasecmp(text, "live") == 0) {
        waiter->want = WANT_STATE;
        waiter->value = g_strdup("live");
    } else if (g_str_has_prefix(text, "state=") && value[0] != '\0') {
        waiter->want = WANT_STATE;
        waiter->value = g_strdup(value);
    } else if (g_str_has_prefix(text, "condition=") && value[0] != '\0') {
        gsize len = strcspn(value, "=");
        waiter->want = WANT_CONDITION;
        waiter->key = g_strndup(value, len);
        waiter->value = g_strdup(value[len] == '=' ? value + len + 1 : "True");
    } else if (g_str_has_prefix(text, "jsonpath=")) {
        return want_jsonpath(waiter, value, error);
    } else {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "wait: --for %s: must be live, delete, condition=…, state=… or jsonpath={…}",
                    text);
        return FALSE;
    }
    gboolean placed = strcmp(waiter->view->plural, "replicas") == 0 ||
                      strcmp(waiter->view->plural, "snapshots") == 0;
    waiter->by_items = placed && waiter->want == WANT_STATE;
    return TRUE;
}

/* ---- looking at what there is ---- */

static void note(Waiter *waiter, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void note(Waiter *waiter, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_free(waiter->last);
    waiter->last = g_strdup_vprintf(format, args);
    va_end(args);
}

static void note_condition(Waiter *waiter, const cJSON *condition)
{
    note(waiter, "%s=%s: %s: %s", lh_json_get_string(condition, "type", "?"),
         lh_json_get_string(condition, "status", "?"), lh_json_get_string(condition, "reason", "-"),
         lh_json_get_string(condition, "message", ""));
}

/* NULL, too, for Valid while it speaks of an older revision than the object's. The other
 * conditions' controllers need not look at every revision. */
static const cJSON *fresh_condition(const cJSON *object, const char *type)
{
    const cJSON *condition = lh_object_condition(object, type);
    gint64 revision = lh_json_get_int(lh_value_at(object, "metadata"), "revision", 0), observed;
    const cJSON *own = lh_value_at(condition, "observedRevision");
    gboolean known = lh_json_int(own != NULL ? own : lh_value_at(object, "status.observedRevision"),
                                 &observed);
    return strcmp(type, "Valid") == 0 && known && observed < revision ? NULL : condition;
}

static const char *state_of(const cJSON *object)
{
    static const char *const paths[] = {"status.state", "state", "status.phase", "phase"};
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        const cJSON *value = lh_value_at(object, paths[i]);
        if (cJSON_IsString(value)) {
            return value->valuestring;
        }
    }
    return "none";
}

/* A reason why what is wanted cannot come by itself. */
static gboolean is_hopeless(Waiter *waiter, const cJSON *object)
{
    static const char *const fatal[][2] = {{"Valid", "False"}, {"Parked", "True"}};
    for (guint i = 0; i < G_N_ELEMENTS(fatal); i++) {
        const cJSON *condition = fresh_condition(object, fatal[i][0]);
        gboolean asked = waiter->want == WANT_CONDITION && strcmp(waiter->key, fatal[i][0]) == 0 &&
                         strcmp(waiter->value, fatal[i][1]) == 0;
        if (!asked && strcmp(lh_json_get_string(condition, "status", ""), fatal[i][1]) == 0) {
            note_condition(waiter, condition);
            return TRUE;
        }
    }
    if (waiter->want == WANT_STATE && g_ascii_strcasecmp(state_of(object), "Refused") == 0) {
        note(waiter, "Refused: %s", lh_json_get_string(object, "message", ""));
        return TRUE;
    }
    return FALSE;
}

static gboolean is_met(Waiter *waiter, const cJSON *object)
{
    switch (waiter->want) {
    case WANT_DELETE:
        note(waiter, "it exists");
        return FALSE;
    case WANT_STATE:
        if (waiter->by_items) {
            return FALSE;
        }
        note(waiter, "state %s", state_of(object));
        return g_ascii_strcasecmp(state_of(object), waiter->value) == 0;
    case WANT_CONDITION: {
        const cJSON *condition = fresh_condition(object, waiter->key);
        if (condition == NULL) {
            note(waiter, "%s is not known yet", waiter->key);
            return FALSE;
        }
        note_condition(waiter, condition);
        return g_ascii_strcasecmp(lh_json_get_string(condition, "status", ""), waiter->value) == 0;
    }
    case WANT_JSONPATH: {
        g_autoptr(GString) text = g_string_new(NULL);
        lh_jsonpath_eval(waiter->path, object, text);
        note(waiter, "it is \"%s\"", text->str);
        return waiter->value != NULL ? strcmp(text->str, waiter->value) == 0 : text->len > 0;
    }
    }
    return FALSE;
}

static gboolean on_object(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    if (strcmp(lh_object_name(object), waiter->name) != 0) {
        return FALSE;
    }
    if (strcmp(event, "DELETE") == 0) {
        note(waiter, "it was deleted");
        waiter->outcome = waiter->want == WANT_DELETE ? MET : FAILED;
    } else {
        waiter->seen = TRUE;
        if (is_met(waiter, object)) {
            waiter->outcome = MET;
        } else if (waiter->want != WANT_DELETE && is_hopeless(waiter, object)) {
            waiter->outcome = FAILED;
        }
    }
    return waiter->outcome != OPEN;
}

/* Does "cache/node/<item>" or "cache/<item>" hold what is waited for? */
static gboolean is_ours(const Waiter *waiter, const cJSON *object)
{
    const char *name = lh_object_name(object), *item = strrchr(name, '/');
    if (item == NULL || !g_str_has_prefix(name, "cache/")) {
        return FALSE;
    }
    item++;
    if (strcmp(waiter->view->plural, "replicas") == 0) {
        return strcmp(item, waiter->name) == 0;
    }
    /* <snapshot>.<set>.<ordinal>, and only the snapshot's name may have dots. */
    g_autofree char *snapshot = g_strdup(item);
    for (int i = 0; i < 2; i++) {
        char *dot = strrchr(snapshot, '.');
        if (dot == NULL) {
            return FALSE;
        }
        *dot = '\0';
    }
    return strcmp(snapshot, waiter->name) == 0;
}

static gboolean on_item(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    if (is_ours(waiter, object) && strcmp(event, "PUT") == 0) {
        note(waiter, "item %s is %s", lh_object_name(object), state_of(object));
        if (g_ascii_strcasecmp(state_of(object), waiter->value) == 0) {
            waiter->outcome = MET;
        }
    }
    return waiter->outcome != OPEN;
}

static gboolean on_retry(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Waiter *waiter = data;
    if (is_ours(waiter, object) && strcmp(event, "PUT") == 0 &&
        lh_json_get_bool(object, "parked", FALSE)) {
        note(waiter, "%s has failed for good: %s", lh_object_name(object),
             lh_json_get_string(object, "message", ""));
        waiter->outcome = FAILED;
    }
    return waiter->outcome != OPEN;
}

/* ---- reading, then watching ---- */

static gboolean read_object(gpointer data, GError **error)
{
    Waiter *waiter = data;
    g_autoptr(GError) local = NULL;
    g_autofree char *path = lh_client_path(waiter->view->plural, waiter->name);
    g_autoptr(cJSON) object = lh_client_get(waiter->cli->client, path, &local);
    if (object != NULL) {
        on_object("PUT", 0, object, waiter);
        return TRUE;
    }
    gboolean absent = g_error_matches(local, LH_ERROR, LH_ERR_NOT_FOUND);
    if (absent && waiter->want == WANT_DELETE) {
        waiter->outcome = MET;
    } else if (absent && waiter->seen) {
        note(waiter, "it was deleted");
        waiter->outcome = FAILED;
    } else if (!absent || waiter->view->desired) {
        /* What people write must be there; what controllers and nodes write may come. */
        g_propagate_error(error, g_steal_pointer(&local));
        return FALSE;
    } else if (waiter->last == NULL) {
        note(waiter, "it does not exist yet");
    }
    return TRUE;
}

/* What happened between the first look and the watch. */
static gboolean look_again(gpointer data)
{
    Waiter *waiter = data;
    g_autoptr(GError) error = NULL;
    if (!read_object(waiter, &error)) {
        note(waiter, "%s", error->message); /* events and the deadline go on */
    }
    return waiter->outcome != OPEN;
}

static int outcome_code(const Waiter *waiter, const char *object, const char *timeout,
                        GError **error)
{
    const char *last = waiter->last != NULL ? waiter->last : "nothing is known";
    switch (waiter->outcome) {
    case MET:
        lh_result_add(waiter->cli, object, "condition met", 0);
        return LH_EXIT_DONE;
    case FAILED:
        g_set_error(error, LH_CLI_ERROR, LH_EXIT_FAILED, "%s: %s cannot come true: %s", object,
                    waiter->cli->o.condition, last);
        break;
    case OPEN:
        g_set_error(error, LH_CLI_ERROR, LH_EXIT_FAILED, "%s: %s not met within %s: %s", object,
                    waiter->cli->o.condition, timeout, last);
        break;
    }
    return LH_EXIT_FAILED;
}

static gboolean is_over(gconstpointer data)
{
    return ((const Waiter *)data)->outcome != OPEN;
}

static int wait_for(Waiter *waiter, gint64 deadline_ms, const char *timeout, GError **error)
{
    g_autofree char *object = g_strdup_printf("%s/%s", waiter->view->plural, waiter->name);
    LhWatch watches[] = {
        {.plural = waiter->view->plural, .func = on_object, .opened = look_again, .data = waiter},
        {.plural = "items", .func = on_item, .data = waiter},
        {.plural = "retries", .func = on_retry, .data = waiter},
    };
    const LhWaiting waiting = {
        .watches = watches,
        .n = waiter->by_items ? G_N_ELEMENTS(watches) : 1,
        .first_listed = 1,
        .look = read_object,
        .is_over = is_over,
        .data = waiter,
    };
    return lh_wait_for(waiter->cli, &waiting, deadline_ms, error)
               ? outcome_code(waiter, object, timeout, error)
               : LH_EXIT_FAILED;
}

int lh_cmd_wait(LhCli *cli, char **args, GError **error)
{
    const char *timeout = cli->o.timeout != NULL ? cli->o.timeout : "30s";
    gint64 deadline_ms;
    Waiter waiter = {.cli = cli, .view = lh_kind_view_or(args[0], error), .name = args[1]};
    if (waiter.view == NULL || !lh_wait_deadline(cli, timeout, &deadline_ms, error)) {
        return LH_EXIT_USAGE;
    }
    int code = LH_EXIT_USAGE;
    if (want_parse(&waiter, cli->o.condition, error)) {
        code = wait_for(&waiter, deadline_ms, timeout, error);
    }
    g_free(waiter.key);
    g_free(waiter.value);
    g_free(waiter.last);
    lh_jsonpath_free(waiter.path);
    return code;
}

/*
 * Objects as people see them: the envelope with defaults filled in and every controller's Status merged
 * for desired kinds, flat fields for the others; and label selectors. Must not change anything.
 */
#include "base/errors.h"
#include "base/json.h"
#include "controllers/explain.h"
#include "controllers/fleet.h"
#include "etcd/lease.h"
#include "http/api_internal.h"

#include <string.h>

/* What the person wrote wins; what was left out is added. */
static void add_missing(cJSON *to, const cJSON *from)
{
    for (const cJSON *member = from->child; member != NULL; member = member->next) {
        cJSON *there = cJSON_GetObjectItemCaseSensitive(to, member->string);
        if (there == NULL)
            cJSON_AddItemToObject(to, member->string, cJSON_Duplicate(member, TRUE));
        else if (cJSON_IsObject(there) && cJSON_IsObject(member))
            add_missing(there, member);
    }
}

static cJSON *labels_json(const LhStrMap *labels)
{
    cJSON *object = cJSON_CreateObject();

    for (guint i = 0; i < labels->n; i++)
        cJSON_AddStringToObject(object, labels->pairs[2 * i], labels->pairs[2 * i + 1]);
    return object;
}

static void add_int(cJSON *object, const char *name, gint64 value)
{
    g_autofree char *text = g_strdup_printf("%" G_GINT64_FORMAT, value);

    cJSON_AddRawToObject(object, name, text);
}

static cJSON *parse_text(const char *text)
{
    return lh_json_parse(text, strlen(text), 4 * LH_JSON_MAX_BYTES, NULL);
}

static cJSON *printed(LhKind kind, const void *object)
{
    g_autofree char *text = lh_object_print(kind, object);

    return parse_text(text);
}

/* All controllers' Status of one object in one: conditions side by side, counts added. */
static cJSON *merged_status(const LhApi *api, const LhObject *object)
{
    const LhController *const *controllers = lh_runtime_controllers(api->options.runtime);
    cJSON *status = NULL, *conditions = NULL;
    gint64 observed = 0;

    for (guint i = 0; controllers[i] != NULL; i++) {
        g_autofree char *name = g_strconcat(lh_kind_info((LhKind)object->kind)->plural, "/",
                                            object->name, "/", controllers[i]->name, NULL);
        const LhObject *part = lh_mirror_get(api->options.mirror, LH_KIND_STATUS, name);
        g_autoptr(cJSON) json = part != NULL && lh_object_known(part)
                                    ? printed(LH_KIND_STATUS, part)
                                    : NULL;
        if (json == NULL)
            continue;
        if (status == NULL) {
            status = cJSON_CreateObject();
            conditions = cJSON_CreateArray();
        }
        observed = MAX(observed, ((const LhStatus *)part)->observed_revision);
        cJSON *theirs = cJSON_DetachItemFromObjectCaseSensitive(json, "conditions");
        for (cJSON *c = theirs == NULL ? NULL : theirs->child; c != NULL; c = c->next) {
            cJSON *copy = cJSON_Duplicate(c, TRUE);
            add_int(copy, "observedRevision", ((const LhStatus *)part)->observed_revision);
            cJSON_AddItemToArray(conditions, copy);
        }
        cJSON_Delete(theirs);
        cJSON_DeleteItemFromObjectCaseSensitive(json, "observedRevision");
        add_missing(status, json);
    }
    if (status != NULL) {
        add_int(status, "observedRevision", observed);
        cJSON_AddItemToObject(status, "conditions", conditions);
    }
    return status;
}

gconstpointer lh_api_pools(const LhApi *api, LhPlanContext *context)
{
    const LhController *const *controllers = lh_runtime_controllers(api->options.runtime);

    for (guint i = 0; controllers[i] != NULL; i++)
        if (controllers[i]->index == &lh_pools_index)
            return lh_runtime_index(api->options.runtime, controllers[i], context);
    return NULL;
}

/* Where a recovery task is: that is in no Status, it follows from what exists. */
static cJSON *add_place(const LhApi *api, const LhObject *task, cJSON *status)
{
    LhPlanContext context;
    gconstpointer pools = lh_api_pools(api, &context);
    const LhPoolView *view = pools == NULL ? NULL : lh_pools_view(pools, LH_POOL_RECOVERY);
    const LhPoolItem *item = view == NULL ? NULL : lh_pool_item(view, task->name);
    const char *owner;

    if (item == NULL)
        return status;
    if (status == NULL)
        status = cJSON_CreateObject();
    cJSON_AddStringToObject(status, "state", lh_pool_item_state(item, &owner));
    if (owner != NULL)
        cJSON_AddStringToObject(status, "owner", owner);
    return status;
}

static gconstpointer fleet_of(const LhApi *api)
{
    const LhController *const *controllers = lh_runtime_controllers(api->options.runtime);
    LhPlanContext context;

    for (guint i = 0; controllers[i] != NULL; i++)
        if (controllers[i]->index == &lh_fleet_index)
            return lh_runtime_index(api->options.runtime, controllers[i], &context);
    return NULL;
}

/* How many replicas of a snapshot there are, and how many of them are live. */
static cJSON *with_replicas(const LhApi *api, const LhObject *object, cJSON *status)
{
    const LhFleet *fleet = fleet_of(api);
    const LhFleetSnapshot *snapshot = fleet == NULL
                                          ? NULL
                                          : lh_name_set_get(&fleet->snapshots, object->name);
    gint64 replicas = 0, live = 0;

    for (guint i = 0; snapshot != NULL && snapshot->replicas != NULL && i < snapshot->replicas->len;
         i++) {
        const LhFleetReplica *replica = snapshot->replicas->pdata[i];
        replicas += replica->object != NULL;
        live += lh_fleet_replica_live(replica) != NULL;
    }
    if (replicas == 0)
        return status;
    if (status == NULL)
        status = cJSON_CreateObject();
    add_int(status, "replicas", replicas);
    add_int(status, "replicasLive", live);
    return status;
}

/* What has become of a Restore: its RestoreProgress, beside the conditions. */
static cJSON *with_progress(const LhApi *api, const LhObject *object, cJSON *status)
{
    const LhObject *progress = lh_mirror_get(api->options.mirror, LH_KIND_RESTOREPROGRESS,
                                             object->name);
    g_autoptr(cJSON) json = progress != NULL && lh_object_known(progress)
                                ? printed(LH_KIND_RESTOREPROGRESS, progress)
                                : NULL;

    if (json == NULL)
        return status;
    if (status == NULL)
        status = cJSON_CreateObject();
    add_missing(status, json);
    return status;
}

/* What people asked for its node name. */
static cJSON *with_policy(const LhApi *api, const LhObject *node, cJSON *status)
{
    g_autofree char *pool = lh_name_part(node->name, 0), *id = lh_name_part(node->name, 1);
    g_autofree char *host = id == NULL ? NULL : lh_node_name_of(id);
    g_autofree char *policy_name = host == NULL ? NULL : g_strdup_printf("%s/%s", pool, host);
    g_autofree char *accepted = g_strdup_printf("nodepolicies/%s", policy_name);
    const LhNodePolicy *policy = lh_accepted_spec(
        lh_mirror_get(api->options.mirror, LH_KIND_ACCEPTED, accepted), LH_KIND_NODEPOLICY);

    if (policy_name == NULL || policy == NULL || !(policy->cordon || policy->drain))
        return status;
    if (status == NULL)
        status = cJSON_CreateObject();
    cJSON_AddStringToObject(status, "policy", policy->drain ? "drain" : "cordon");
    return status;
}

static void add_metadata(cJSON *view, const LhObject *object, gboolean labels)
{
    cJSON *metadata = cJSON_AddObjectToObject(view, "metadata");

    g_autofree char *name = g_utf8_make_valid(object->name, -1);
    cJSON_AddStringToObject(metadata, "name", name);
    if (labels)
        cJSON_AddItemToObject(metadata, "labels", labels_json(lh_object_labels(object)));
    add_int(metadata, "revision", object->mod_rev);
    add_int(metadata, "createRevision", object->create_rev);
    if (lh_object_lease(object) != 0) {
        g_autofree char *lease = lh_lease_hex(lh_object_lease(object));
        cJSON_AddStringToObject(metadata, "lease", lease);
    }
}

static void add_spec(cJSON *view, const LhObject *object)
{
    gsize len = 0;
    const char *raw = lh_object_raw(object, &len);
    g_autoptr(cJSON) written = raw == NULL ? NULL
                                           : lh_json_parse(raw, len, LH_JSON_MAX_BYTES, NULL);
    cJSON *spec = written == NULL ? NULL : cJSON_DetachItemFromObjectCaseSensitive(written, "spec");
    g_autoptr(cJSON) complete = printed((LhKind)object->kind, object);

    if (!cJSON_IsObject(spec)) {
        cJSON_Delete(spec);
        spec = cJSON_CreateObject();
    }
    if (complete != NULL)
        add_missing(spec, complete);
    cJSON_AddItemToObject(view, "spec", spec);
}

static void add_error(cJSON *view, const LhObject *object)
{
    gsize len = 0;
    const char *raw = lh_object_raw(object, &len);
    g_autofree char *text = raw == NULL ? NULL : g_utf8_make_valid(raw, (gssize)MIN(len, 1024));

    cJSON_AddStringToObject(view, "error", lh_object_error(object));
    if (text != NULL)
        cJSON_AddStringToObject(view, "value", text);
}

cJSON *lh_view_object(LhApi *api, const LhObject *object, LhRole role)
{
    const LhKindInfo *info = lh_kind_info((LhKind)object->kind);
    gboolean desired = info->area == LH_AREA_DESIRED;
    cJSON *view, *status;

    if (desired || !lh_object_known(object)) {
        view = cJSON_CreateObject();
        if (desired)
            cJSON_AddStringToObject(view, "apiVersion", LH_API_VERSION);
        cJSON_AddStringToObject(view, "kind", info->name);
        add_metadata(view, object, desired && lh_object_known(object));
        if (!lh_object_known(object))
            add_error(view, object);
        else
            add_spec(view, object);
    } else {
        view = printed((LhKind)object->kind, object);
        if (view == NULL)
            view = cJSON_CreateObject();
        cJSON_AddStringToObject(view, "kind", info->name);
        add_metadata(view, object, FALSE);
    }
    status = merged_status(api, object);
    if (object->kind == LH_KIND_RECOVERYTASK && lh_object_known(object))
        status = add_place(api, object, status);
    if (object->kind == LH_KIND_SNAPSHOT && lh_object_known(object))
        status = with_replicas(api, object, status);
    if (object->kind == LH_KIND_RESTORE)
        status = with_progress(api, object, status);
    if (object->kind == LH_KIND_SEED && lh_object_known(object))
        status = lh_view_seed(api, object, status);
    if (object->kind == LH_KIND_THROTTLE)
        status = lh_view_throttle(api, object, status);
    if (object->kind == LH_KIND_NODE)
        status = with_policy(api, object, lh_view_node(api, object, status));
    if (status != NULL)
        cJSON_AddItemToObject(view, "status", status);
    if (role < LH_ROLE_OPERATOR)
        lh_view_hide(view, object);
    return view;
}

char *lh_view_text(LhApi *api, const LhObject *object, LhRole role)
{
    g_autoptr(cJSON) view = lh_view_object(api, object, role);

    return lh_json_print(view);
}

/* ---- selectors ---- */

typedef enum { EQUAL, NOT_EQUAL, EXISTS, ABSENT } Relation;

typedef struct {
    char *key, *value;
    Relation relation;
} Term;

struct LhSelector {
    GArray *terms; /* Term */
};

static void term_clear(gpointer data)
{
    Term *term = data;

    g_free(term->key);
    g_free(term->value);
}

static Term parse_term(const char *text)
{
    const char *not_equal = strstr(text, "!="), *equal = strchr(text, '=');

    if (not_equal != NULL)
        return (Term){g_strndup(text, (gsize)(not_equal - text)), g_strdup(not_equal + 2),
                      NOT_EQUAL};
    if (equal != NULL)
        return (Term){g_strndup(text, (gsize)(equal - text)),
                      g_strdup(equal[1] == '=' ? equal + 2 : equal + 1), EQUAL};
    if (text[0] == '!')
        return (Term){g_strdup(text + 1), NULL, ABSENT};
    return (Term){g_strdup(text), NULL, EXISTS};
}

LhSelector *lh_selector_parse(const char *text, GError **error)
{
    LhSelector *selector = g_new0(LhSelector, 1);
    g_auto(GStrv) parts = g_strsplit(text == NULL ? "" : text, ",", -1);

    selector->terms = g_array_new(FALSE, FALSE, sizeof(Term));
    g_array_set_clear_func(selector->terms, term_clear);
    for (guint i = 0; parts[i] != NULL; i++) {
        Term term;
        g_strstrip(parts[i]);
        if (parts[i][0] == '\0' && g_strv_length(parts) == 1)
            break;
        term = parse_term(parts[i]);
        g_strstrip(term.key);
        if (term.value != NULL)
            g_strstrip(term.value);
        g_array_append_val(selector->terms, term);
        if (term.key[0] == '\0') {
            g_autoptr(GString) quoted = g_string_new(NULL);
            lh_json_append_string(quoted, parts[i]);
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "labelSelector: %s names no key",
                        quoted->str);
            lh_selector_free(selector);
            return NULL;
        }
    }
    return selector;
}

void lh_selector_free(LhSelector *selector)
{
    if (selector == NULL)
        return;
    g_array_unref(selector->terms);
    g_free(selector);
}

static const char *label(const LhStrMap *labels, const char *key)
{
    for (guint i = 0; i < labels->n; i++)
        if (strcmp(labels->pairs[2 * i], key) == 0)
            return labels->pairs[2 * i + 1];
    return NULL;
}

/* A top-level field as text; NULL when it is absent, an object or a list. */
static char *field_text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    if (item == NULL || cJSON_IsObject(item) || cJSON_IsArray(item) || cJSON_IsNull(item))
        return NULL;
    return cJSON_IsString(item) ? g_strdup(item->valuestring) : lh_json_print(item);
}

static gboolean holds(const Term *term, const char *value)
{
    switch (term->relation) {
    case EQUAL:
        return value != NULL && strcmp(value, term->value) == 0;
    case NOT_EQUAL:
        return value == NULL || strcmp(value, term->value) != 0;
    case EXISTS:
        return value != NULL;
    case ABSENT:
        return value == NULL;
    }
    return FALSE;
}

gboolean lh_selector_match(const LhSelector *selector, const LhObject *object)
{
    g_autoptr(cJSON) flat = NULL;

    if (object == NULL)
        return FALSE;
    if (selector->terms->len == 0)
        return TRUE;
    if (!lh_object_known(object))
        return FALSE;
    if (!lh_kind_is_desired((LhKind)object->kind))
        flat = printed((LhKind)object->kind, object);
    for (guint i = 0; i < selector->terms->len; i++) {
        const Term *term = &g_array_index(selector->terms, Term, i);
        g_autofree char *field = flat == NULL ? NULL : field_text(flat, term->key);
        if (!holds(term, flat == NULL ? label(lh_object_labels(object), term->key) : field))
            return FALSE;
    }
    return TRUE;
}

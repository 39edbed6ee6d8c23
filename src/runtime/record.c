/* Dump and replay of plan inputs; see record.h. No etcd and no clock: the recorded moment is the moment. */
#include "runtime/record.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/units.h"

#include <string.h>

#define MAX_LINE (8 * LH_JSON_MAX_BYTES) /* a value may be escaped, six bytes for one */

static void append_member(GString *out, const char *name, const char *value)
{
    lh_json_append_key(out, name);
    lh_json_append_string(out, value);
}

/* ---- secrets ---- */

#define REDACTED "(redacted)"

/* {"fromFile": path} names a secret and is none. */
static gboolean is_reference(const cJSON *item)
{
    const cJSON *member = cJSON_IsObject(item) ? item->child : NULL;

    return member != NULL && member->next == NULL && strcmp(member->string, "fromFile") == 0 &&
           cJSON_IsString(member);
}

static void redact_strings(cJSON *item)
{
    if (cJSON_IsString(item))
        cJSON_SetValuestring(item, REDACTED);
    else if (!is_reference(item))
        for (cJSON *child = item->child; child != NULL; child = child->next)
            redact_strings(child);
}

/* Wherever a "config" stands: what is not laid out as it should be is recorded too. */
static gboolean redact_configs(cJSON *item)
{
    gboolean found = FALSE;

    for (cJSON *child = item->child; child != NULL; child = child->next) {
        const char *name = child->string != NULL ? child->string : "";
        if (g_ascii_strcasecmp(name, "config") == 0) {
            redact_strings(child);
            found = TRUE;
        } else if (strcmp(name, "metadata") != 0 && strcmp(name, "labels") != 0) {
            found |= redact_configs(child);
        }
    }
    return found;
}

/* Kinds that carry a Seed's spec. */
static gboolean may_hold_secrets(LhKind kind, const char *name)
{
    if (kind == LH_KIND_ACCEPTED)
        return g_str_has_prefix(name, "seeds/");
    if (kind == LH_KIND_ASSIGNMENT)
        return g_str_has_prefix(name, "manager/");
    return kind == LH_KIND_SEED;
}

/* The value without the strings of a Seed's config; NULL: it may be shown as it is. What is no JSON
 * object becomes something that is none either. */
static char *redacted(LhKind kind, const char *name, const char *value, gsize len)
{
    g_autoptr(cJSON) json = NULL;

    if (!may_hold_secrets(kind, name))
        return NULL;
    json = lh_json_parse(value, len, LH_JSON_MAX_BYTES, NULL);
    if (!cJSON_IsObject(json))
        return g_strdup(REDACTED);
    return redact_configs(json) ? lh_json_print(json) : NULL;
}

static void dump_object(GString *out, const LhObject *object)
{
    g_autofree char *key = lh_key((LhKind)object->kind, object->name);
    gsize len = 0;
    const char *raw = lh_object_raw(object, &len);
    g_autofree char *printed = raw == NULL ? lh_object_print((LhKind)object->kind, object) : NULL;
    g_autofree char *hidden = redacted((LhKind)object->kind, object->name,
                                       raw == NULL ? printed : raw,
                                       raw == NULL ? strlen(printed) : len);

    g_string_append_c(out, '{');
    lh_json_append_key(out, "key");
    lh_json_append_string(out, key);
    lh_json_append_key(out, "create");
    lh_json_append_int(out, object->create_rev);
    lh_json_append_key(out, "mod");
    lh_json_append_int(out, object->mod_rev);
    lh_json_append_key(out, "lease");
    /* A lease id has 63 bits, more than a JSON number holds. */
    g_string_append_printf(out, "\"%016" G_GINT64_MODIFIER "x\"", (guint64)lh_object_lease(object));
    if (hidden != NULL || raw == NULL) {
        append_member(out, "value", hidden != NULL ? hidden : printed);
    } else if (g_utf8_validate_len(raw, len, NULL)) {
        /* What was kept of a longer value must not parse where the whole did not. */
        gboolean cut = !lh_object_known(object) && len == LH_JSON_MAX_BYTES;
        g_autofree char *text = g_strdup_printf("%.*s%s", (int)len, raw, cut ? " " : "");
        append_member(out, "value", text);
    } else {
        g_autofree char *base64 = g_base64_encode((const guchar *)raw, len);
        append_member(out, "base64", base64);
    }
    g_string_append(out, "}\n");
}

char *lh_record_dump(const LhMirror *mirror, gint64 now_ms, gsize *len)
{
    GString *out = g_string_new("{\"input\":\"leasehold/v1\"");

    lh_json_append_key(out, "prefix");
    lh_json_append_string(out, lh_mirror_prefix(mirror));
    lh_json_append_key(out, "revision");
    lh_json_append_int(out, lh_mirror_revision(mirror));
    lh_json_append_key(out, "now");
    lh_json_append_int(out, now_ms);
    g_string_append(out, "}\n");
    for (guint kind = 0; kind < LH_N_ALL_KINDS; kind++) {
        g_autoptr(GPtrArray) objects = lh_mirror_list(mirror, (LhKind)kind);
        for (guint i = 0; i < objects->len; i++)
            dump_object(out, g_ptr_array_index(objects, i));
    }
    *len = out->len;
    return g_string_free(out, FALSE);
}

static gboolean load_header(const cJSON *line, LhRecord *out, char **prefix, GError **error)
{
    const char *version = lh_json_get_string(line, "input", NULL);

    if (g_strcmp0(version, "leasehold/v1") != 0) {
        g_set_error_literal(error, LH_ERROR, LH_ERR_INVALID,
                            "line 1: not a recorded plan input (\"input\":\"leasehold/v1\")");
        return FALSE;
    }
    if (!g_str_has_suffix(lh_json_get_string(line, "prefix", "/leasehold/"), "/")) {
        g_set_error_literal(error, LH_ERROR, LH_ERR_INVALID, "line 1: prefix: must end with /");
        return FALSE;
    }
    *prefix = g_strdup(lh_json_get_string(line, "prefix", "/leasehold/"));
    out->revision = lh_json_get_int(line, "revision", 0);
    out->now_ms = lh_json_get_int(line, "now", 0);
    return TRUE;
}

static gboolean load_line(LhMirror *mirror, const cJSON *line, guint number, GError **error)
{
    const char *key = lh_json_get_string(line, "key", NULL);
    const char *value = lh_json_get_string(line, "value", NULL);
    const char *base64 = lh_json_get_string(line, "base64", NULL);
    const char *lease = lh_json_get_string(line, "lease", "0");
    g_autofree guchar *bytes = NULL;
    gsize len = value == NULL ? 0 : strlen(value);

    if (key == NULL || (value == NULL && base64 == NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "line %u: key and value must be strings",
                    number);
        return FALSE;
    }
    if (value == NULL)
        value = (const char *)(bytes = g_base64_decode(base64, &len));
    lh_mirror_load(mirror, key, value, len, lh_json_get_int(line, "create", 0),
                   lh_json_get_int(line, "mod", 0), (gint64)g_ascii_strtoull(lease, NULL, 16));
    return TRUE;
}

gboolean lh_record_load(const char *text, gsize len,
                        void (*listen)(LhMirror *mirror, gpointer data), gpointer data,
                        LhRecord *out, GError **error)
{
    const char *end = text + len;
    guint number = 0;

    out->mirror = NULL;
    for (const char *start = text; start < end; number++) {
        const char *newline = memchr(start, '\n', (gsize)(end - start));
        gsize size = (gsize)((newline == NULL ? end : newline) - start);
        g_autoptr(GError) why = NULL;
        g_autoptr(cJSON) line = lh_json_parse(start, size, MAX_LINE, &why);
        g_autofree char *prefix = NULL;
        gboolean good;
        if (line == NULL) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "line %u: %s", number + 1, why->message);
            good = FALSE;
        } else if (number == 0) {
            good = load_header(line, out, &prefix, error);
            if (good) {
                out->mirror = lh_mirror_new(NULL, NULL, prefix);
                listen(out->mirror, data);
            }
        } else {
            good = load_line(out->mirror, line, number + 1, error);
        }
        if (!good) {
            g_clear_pointer(&out->mirror, lh_mirror_free);
            return FALSE;
        }
        start = newline == NULL ? end : newline + 1;
    }
    if (out->mirror == NULL) {
        g_set_error_literal(error, LH_ERROR, LH_ERR_INVALID, "line 1: the file is empty");
        return FALSE;
    }
    lh_mirror_loaded(out->mirror, out->revision);
    return TRUE;
}

/* ---- plans as JSON ---- */

static void append_op(GString *out, const LhOp *op)
{
    g_string_append_c(out, '{');
    append_member(out, "op", op->type == LH_OP_PUT ? "put" : "delete");
    append_member(out, "key", op->key);
    append_member(out, "kind", lh_kind_info(op->kind)->name);
    append_member(out, "name", op->name);
    append_member(out, "rule", op->rule);
    append_member(out, "reason", op->reason);
    if (op->value != NULL) {
        g_autofree char *hidden = redacted(op->kind, op->name, op->value, strlen(op->value));
        lh_json_append_key(out, "value");
        g_string_append(out, hidden != NULL ? hidden : op->value);
    }
    g_string_append_c(out, '}');
}

static void append_notes(GString *out, const LhPlan *plan)
{
    lh_json_append_key(out, "notes");
    g_string_append_c(out, '[');
    for (guint i = 0; i < plan->notes->len; i++) {
        const LhPlanNote *note = &g_array_index(plan->notes, LhPlanNote, i);
        g_string_append(out, i == 0 ? "{" : ",{");
        append_member(out, "object", note->object);
        append_member(out, "rule", note->rule);
        append_member(out, "reason", note->reason);
        g_string_append_c(out, '}');
    }
    g_string_append_c(out, ']');
}

void lh_plan_append_json(GString *out, const LhController *controller, const LhPlan *plan,
                         gboolean leader, gboolean paused, const LhObject *brake)
{
    g_autofree char *hash = lh_plan_hash(plan);

    g_string_append_c(out, '{');
    append_member(out, "controller", controller->name);
    append_member(out, "hash", hash);
    lh_json_append_key(out, "leader");
    g_string_append(out, leader ? "true" : "false");
    lh_json_append_key(out, "paused");
    g_string_append(out, paused ? "true" : "false");
    if (brake != NULL) {
        lh_json_append_key(out, "braked");
        g_string_append(out, "true");
        append_member(out, "planHash",
                      lh_object_known(brake) ? ((const LhBrake *)brake)->plan_hash : NULL);
    }
    lh_json_append_key(out, "more");
    g_string_append(out, plan->more ? "true" : "false");
    lh_json_append_key(out, "ops");
    g_string_append_c(out, '[');
    for (guint i = 0; i < plan->ops->len; i++) {
        if (i > 0)
            g_string_append_c(out, ',');
        append_op(out, &g_array_index(plan->ops, LhOp, i));
    }
    g_string_append_c(out, ']');
    append_notes(out, plan);
    if (plan->wake_ms != 0) {
        g_autofree char *next = lh_time_format(MAX(0, plan->wake_ms));
        append_member(out, "nextAt", next);
    }
    g_string_append_c(out, '}');
}

/* ---- replay ---- */

typedef struct {
    GPtrArray *types;   /* LhIndexType */
    GPtrArray *indexes; /* the index of each */
} Replay;

static void on_replay_change(const LhObject *before, const LhObject *after, gpointer data)
{
    Replay *replay = data;

    for (guint i = 0; i < replay->types->len; i++) {
        const LhIndexType *type = g_ptr_array_index(replay->types, i);
        type->fold(g_ptr_array_index(replay->indexes, i), before, after);
    }
}

static const LhMirrorFuncs replay_funcs = {.change = on_replay_change};

static void listen_replay(LhMirror *mirror, gpointer data)
{
    lh_mirror_listen(mirror, &replay_funcs, data);
}

static gpointer replay_index(Replay *replay, const LhIndexType *type)
{
    for (guint i = 0; i < replay->types->len; i++)
        if (g_ptr_array_index(replay->types, i) == type)
            return g_ptr_array_index(replay->indexes, i);
    g_ptr_array_add(replay->types, (gpointer)type);
    g_ptr_array_add(replay->indexes, type->new ());
    return g_ptr_array_index(replay->indexes, replay->indexes->len - 1);
}

static void replay_clear(Replay *replay)
{
    for (guint i = 0; i < replay->types->len; i++)
        ((const LhIndexType *)g_ptr_array_index(replay->types, i))
            ->free(g_ptr_array_index(replay->indexes, i));
    g_ptr_array_unref(replay->types);
    g_ptr_array_unref(replay->indexes);
}

static void append_plans(Replay *replay, const LhRecord *record,
                         const LhController *const *controllers, const char *only, GString *out)
{
    gboolean first = TRUE;

    g_string_append(out, "{\"revision\":");
    lh_json_append_int(out, record->revision);
    lh_json_append_key(out, "controllers");
    g_string_append_c(out, '[');
    for (guint i = 0; controllers[i] != NULL; i++) {
        LhPlanContext context = {.now_ms = record->now_ms,
                                 .revision = record->revision,
                                 .led_ms = record->now_ms,
                                 .max_groups = G_MAXUINT,
                                 .also = controllers[i]->also == NULL
                                             ? NULL
                                             : replay_index(replay, controllers[i]->also)};
        gpointer index = replay_index(replay, controllers[i]->index);
        g_autoptr(LhPlan) plan = lh_plan_new(TRUE);
        if (only != NULL && strcmp(controllers[i]->name, only) != 0)
            continue;
        controllers[i]->plan(index, &context, plan);
        if (!first)
            g_string_append_c(out, ',');
        first = FALSE;
        lh_plan_append_json(out, controllers[i], plan, FALSE,
                            lh_controller_paused(controllers[i], index),
                            lh_mirror_get(record->mirror, LH_KIND_BRAKE, controllers[i]->name));
    }
    g_string_append(out, "]}");
}

gboolean lh_record_plan(const char *text, gsize len, const LhController *const *controllers,
                        const char *only, GString *out, GError **error)
{
    Replay replay = {g_ptr_array_new(), g_ptr_array_new()};
    LhRecord record = {0};
    gboolean known = only == NULL, good;

    for (guint i = 0; controllers[i] != NULL; i++) {
        replay_index(&replay, controllers[i]->index);
        if (controllers[i]->also != NULL)
            replay_index(&replay, controllers[i]->also);
        known = known || strcmp(controllers[i]->name, only) == 0;
    }
    if (!known) {
        g_set_error(error, LH_ERROR, LH_ERR_NOT_FOUND, "no controller is called %s", only);
        good = FALSE;
    } else {
        good = lh_record_load(text, len, listen_replay, &replay, &record, error);
    }
    if (good)
        append_plans(&replay, &record, controllers, only, out);
    lh_mirror_free(record.mirror);
    replay_clear(&replay);
    return good;
}

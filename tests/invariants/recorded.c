/*
 * See recorded.h: the history in memory and on paper.
 */
#include "base/errors.h"
#include "base/json.h"
#include "recorded_internal.h"

#include <errno.h>
#include <string.h>

static void kv_clear(LhKv *kv)
{
    g_free((char *)kv->key);
    g_free((char *)kv->value);
}

static void revision_free(gpointer data)
{
    RecordedRevision *revision = data;
    for (gsize i = 0; i < revision->n; i++)
        kv_clear(&revision->events[i].kv);
    g_free(revision->events);
    g_free(revision);
}

Recorded *recorded_new(const char *prefix)
{
    Recorded *recorded = g_new0(Recorded, 1);
    recorded->prefix = g_strdup(prefix);
    recorded->revisions = g_ptr_array_new_with_free_func(revision_free);
    recorded->by_hand = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    return recorded;
}

void recorded_free(Recorded *recorded)
{
    if (recorded == NULL)
        return;
    g_free(recorded->prefix);
    g_ptr_array_unref(recorded->revisions);
    g_hash_table_unref(recorded->by_hand);
    g_free(recorded);
}

static char *copy(const char *bytes, gsize len)
{
    char *out = g_malloc(len + 1);
    memcpy(out, len == 0 ? "" : bytes, len);
    out[len] = '\0';
    return out;
}

void recorded_add(Recorded *recorded, const LhEtcdEvent *events, gsize n, gint64 since_ms,
                  gint64 time_ms)
{
    RecordedRevision *revision = g_new0(RecordedRevision, 1);
    *revision = (RecordedRevision){
        .revision = events[0].kv.mod_rev,
        .since_ms = since_ms,
        .time_ms = time_ms,
        .events = g_memdup2(events, n * sizeof *events),
        .n = n,
    };
    for (gsize i = 0; i < n; i++) {
        LhKv *kv = &revision->events[i].kv;
        kv->key = copy(kv->key, kv->key_len);
        kv->value = copy(kv->value, kv->value_len);
    }
    g_ptr_array_add(recorded->revisions, revision);
}

void recorded_by_hand(Recorded *recorded, gint64 revision)
{
    g_hash_table_add(recorded->by_hand, g_memdup2(&revision, sizeof revision));
}

const char *recorded_prefix(const Recorded *recorded)
{
    return recorded->prefix;
}

gsize recorded_len(const Recorded *recorded)
{
    return recorded->revisions->len;
}

gint64 recorded_revision(const Recorded *recorded)
{
    guint n = recorded->revisions->len;
    return n == 0 ? 0
                  : ((RecordedRevision *)g_ptr_array_index(recorded->revisions, n - 1))->revision;
}

/* ---- lines ---- */

static void append_bytes(GString *out, const char *name, const char *bytes, gsize len)
{
    if (g_utf8_validate(bytes, (gssize)len, NULL)) { /* a NUL is not valid to it */
        lh_json_append_key(out, name);
        lh_json_append_string(out, bytes);
        return;
    }
    g_autofree char *name64 = g_strconcat(name, "64", NULL);
    g_autofree char *text = g_base64_encode((const guchar *)bytes, len);
    lh_json_append_key(out, name64);
    lh_json_append_string(out, text);
}

static void append_int(GString *out, const char *name, gint64 value)
{
    lh_json_append_key(out, name);
    lh_json_append_int(out, value);
}

static void append_event(GString *out, const LhEtcdEvent *event)
{
    const LhKv *kv = &event->kv;
    lh_json_append_key(out, NULL);
    g_string_append_c(out, '{');
    append_bytes(out, "key", kv->key, kv->key_len);
    append_int(out, "mod", kv->mod_rev);
    if (event->is_delete) {
        g_string_append(out, ",\"delete\":true}");
        return;
    }
    append_int(out, "create", kv->create_rev);
    append_int(out, "version", kv->version);
    if (kv->lease != 0)
        g_string_append_printf(out, ",\"lease\":\"%016" G_GINT64_MODIFIER "x\"",
                               (guint64)kv->lease);
    append_bytes(out, "value", kv->value, kv->value_len);
    g_string_append_c(out, '}');
}

char *recorded_head_line(const Recorded *recorded)
{
    GString *out = g_string_new("{");
    lh_json_append_key(out, "prefix");
    lh_json_append_string(out, recorded->prefix);
    return g_string_free(g_string_append(out, "}\n"), FALSE);
}

char *recorded_line(const Recorded *recorded, gsize i)
{
    const RecordedRevision *revision = g_ptr_array_index(recorded->revisions, i);
    GString *out = g_string_new("{");
    append_int(out, "revision", revision->revision);
    append_int(out, "since", revision->since_ms);
    append_int(out, "time", revision->time_ms);
    g_string_append(out, ",\"events\":[");
    for (gsize e = 0; e < revision->n; e++)
        append_event(out, &revision->events[e]);
    return g_string_free(g_string_append(out, "]}\n"), FALSE);
}

char *recorded_hand_line(gint64 revision)
{
    return g_strdup_printf("{\"hand\":%" G_GINT64_FORMAT "}\n", revision);
}

gboolean recorded_save(const Recorded *recorded, const char *path, GError **error)
{
    GString *text = g_string_new(NULL);
    g_autofree char *head = recorded_head_line(recorded);
    GHashTableIter iter;
    gpointer key;
    g_string_append(text, head);
    for (gsize i = 0; i < recorded_len(recorded); i++) {
        g_autofree char *line = recorded_line(recorded, i);
        g_string_append(text, line);
    }
    g_hash_table_iter_init(&iter, recorded->by_hand);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        g_autofree char *line = recorded_hand_line(*(gint64 *)key);
        g_string_append(text, line);
    }
    gboolean ok = g_file_set_contents(path, text->str, (gssize)text->len, error);
    g_string_free(text, TRUE);
    return ok;
}

/* ---- reading ---- */

/* A member or its base64 form; NULL: neither. */
static char *read_bytes(const cJSON *object, const char *name, gsize *len)
{
    g_autofree char *name64 = g_strconcat(name, "64", NULL);
    const char *text = lh_json_get_string(object, name, NULL);
    const char *base64 = lh_json_get_string(object, name64, NULL);
    if (text != NULL) {
        *len = strlen(text);
        return g_strdup(text);
    }
    if (base64 == NULL)
        return NULL;
    g_autofree guchar *bytes = g_base64_decode(base64, len);
    return copy((const char *)bytes, *len);
}

static gboolean read_lease(const cJSON *object, gint64 *lease)
{
    const char *text = lh_json_get_string(object, "lease", NULL);
    guint64 number = 0;
    *lease = 0;
    if (cJSON_GetObjectItemCaseSensitive(object, "lease") == NULL)
        return TRUE;
    if (text == NULL || !g_ascii_string_to_unsigned(text, 16, 1, G_MAXUINT64, &number, NULL))
        return FALSE;
    *lease = (gint64)number;
    return TRUE;
}

/* NULL, or what is wrong with it. */
static const char *read_event(const cJSON *object, gint64 revision, LhEtcdEvent *event)
{
    LhKv *kv = &event->kv;
    event->is_delete = lh_json_get_bool(object, "delete", FALSE);
    kv->key = read_bytes(object, "key", &kv->key_len);
    kv->value = read_bytes(object, "value", &kv->value_len);
    kv->mod_rev = lh_json_get_int(object, "mod", 0);
    kv->create_rev = lh_json_get_int(object, "create", 0);
    kv->version = lh_json_get_int(object, "version", 0);
    if (kv->key == NULL)
        return "an event without a key";
    if (kv->mod_rev != revision)
        return "an event of another revision";
    if (!event->is_delete && (kv->value == NULL || kv->create_rev <= 0 || kv->version <= 0))
        return "an event without value, create or version";
    if (!read_lease(object, &kv->lease))
        return "a lease that is not hexadecimal";
    return NULL;
}

static const char *read_events(Recorded *recorded, const cJSON *line, gint64 revision)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, "events"), *item;
    gint64 since_ms = lh_json_get_int(line, "since", -1);
    gint64 time_ms = lh_json_get_int(line, "time", -1);
    g_autoptr(GArray) events = g_array_new(FALSE, TRUE, sizeof(LhEtcdEvent));
    const char *wrong = NULL;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) == 0)
        return "a revision without events";
    if (since_ms < 0 || time_ms < since_ms)
        return "a revision without since and a time that is not before it";
    if (revision <= recorded_revision(recorded))
        return "revisions must rise";
    cJSON_ArrayForEach(item, list) {
        LhEtcdEvent event = {.is_delete = FALSE};
        const char *said = read_event(item, revision, &event);
        wrong = wrong != NULL ? wrong : said;
        g_array_append_val(events, event);
    }
    if (wrong == NULL)
        recorded_add(recorded, (LhEtcdEvent *)events->data, events->len, since_ms, time_ms);
    for (guint i = 0; i < events->len; i++)
        kv_clear(&g_array_index(events, LhEtcdEvent, i).kv);
    return wrong;
}

static const char *read_line(Recorded **recorded, const cJSON *line)
{
    gint64 revision = lh_json_get_int(line, "revision", 0);
    gint64 hand = lh_json_get_int(line, "hand", 0);
    const char *prefix = lh_json_get_string(line, "prefix", NULL);
    if (*recorded == NULL) {
        if (prefix == NULL || !g_str_has_suffix(prefix, "/"))
            return "the first line must have a prefix that ends in /";
        *recorded = recorded_new(prefix);
        return NULL;
    }
    if (hand > 0) {
        recorded_by_hand(*recorded, hand);
        return NULL;
    }
    return revision > 0 ? read_events(*recorded, line, revision) : "neither a revision nor a hand";
}

static gboolean read_text(Recorded **recorded, char *text, gsize len, GError **error)
{
    const char *end = text + len;
    guint number = 0;
    for (char *at = text; at < end;) {
        char *stop = memchr(at, '\n', (gsize)(end - at));
        gsize size = (gsize)((stop != NULL ? stop : end) - at);
        const char *wrong = NULL;
        number++;
        /* A last line without its end was being written when the recorder died. */
        if (size > 0 && stop != NULL) {
            g_autoptr(GError) parse = NULL;
            g_autoptr(cJSON) line = lh_json_parse(at, size, size, &parse);
            wrong = line == NULL ? parse->message : read_line(recorded, line);
            if (wrong != NULL) {
                g_set_error(error, LH_ERROR, LH_ERR_INVALID, "line %u: %s", number, wrong);
                return FALSE;
            }
        }
        at += size + 1;
    }
    if (*recorded == NULL)
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "line 1: there is none");
    return *recorded != NULL;
}

Recorded *recorded_load(const char *path, GError **error)
{
    g_autoptr(Recorded) recorded = NULL;
    g_autofree char *text = NULL;
    gsize len;
    if (!g_file_get_contents(path, &text, &len, error))
        return NULL;
    if (!read_text(&recorded, text, len, error)) {
        g_prefix_error(error, "%s: ", path);
        return NULL;
    }
    return g_steal_pointer(&recorded);
}

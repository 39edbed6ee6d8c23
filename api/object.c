/*
 * Objects: from an etcd value to one immutable block, and back to nothing.
 *
 * Decides what the envelope of desired kinds means, what becomes of a value that does not parse (an
 * unknown object, never an absent one), and who holds what. How single fields are read is
 * codec.c's.
 *
 * A block is: the struct, what few objects have (its lease, when its key is bound to one; an Extra, of
 * desired kinds, unknown objects and those with warnings), arrays, strings, the name first.
 */
#include "api/tables.h"
#include "base/errors.h"

#include <string.h>

#define API_VERSION   "leasehold/v1"
#define RAW_MAX_BYTES LH_JSON_MAX_BYTES
/* What a desired object may become in an Accepted: less than an etcd value, because a seed's spec is
 * also copied into an Assignment. Printing can escape one byte as six. */
#define ACCEPTED_MAX_BYTES (60 * 1024)
#define SURELY_FITS_BYTES  (8 * 1024)

typedef struct {
    const LhStrMap *labels;
    const char *raw;
    gsize raw_len;
    const char *warning;
    const char *error;
} Extra;

/* LhObject.parts */
enum {
    HAS_LEASE = 1 << 0,
    HAS_EXTRA = 1 << 1,
    IN_SLAB = 1 << 2,
};

/* Of the loop thread, as objects are. */
static LhSlab slab;

/* What is being read. */
typedef struct {
    const LhKindInfo *info;
    const LhField *fields;
    const char *name;
    const cJSON *envelope; /* desired kinds: NULL when there is none; others: NULL */
    const cJSON *json;     /* the spec, or the flat object */
    const char *raw;       /* to keep, or NULL */
    gsize raw_len;
    gint64 lease;
} Source;

static gsize struct_size(LhKind kind)
{
    return lh_kind_info(kind) != NULL ? lh_kind_info(kind)->size : sizeof(LhObject);
}

static gsize extra_place(const LhObject *object)
{
    return struct_size(object->kind) + ((object->parts & HAS_LEASE) != 0 ? sizeof(gint64) : 0);
}

static const Extra *get_extra(const LhObject *object)
{
    return (object->parts & HAS_EXTRA) != 0
               ? (const Extra *)((const char *)object + extra_place(object))
               : NULL;
}

/* How many bytes are padding at the end of a struct whose last member is half a word: of kinds without structs
 * in them, where that member is a field. */
static gsize struct_spare(LhKind kind)
{
    static gint8 known[LH_N_ALL_KINDS]; /* plus 1; 0: not yet */
    gsize size = struct_size(kind);
    if (known[kind] == 0) {
        gboolean half = FALSE, other = FALSE;
        for (const LhField *f = lh_kind_info(kind) != NULL ? lh_kind_info(kind)->fields : NULL;
             f != NULL && f->name != NULL; f++) {
            gboolean narrow = f->type == LH_F_BOOL || f->type == LH_F_ENUM;
            half |= narrow && f->offset == size - 2 * sizeof(int);
            other |= f->type == LH_F_STRUCT || f->offset > size - 2 * sizeof(int);
        }
        known[kind] = half && !other ? 1 + sizeof(int) : 1;
    }
    return (gsize)known[kind] - 1;
}

/* Lays out the struct and what comes right behind it. Returns the place of the Extra. */
static guint32 begin_block(LhBuilder *b, LhKind kind, gsize size, const char *name, gint64 lease,
                           gboolean with_extra)
{
    lh_builder_words(b, size);
    guint32 lease_place = lease != 0 ? lh_builder_words(b, sizeof lease) : 0;
    guint32 extra = with_extra ? lh_builder_words(b, sizeof(Extra)) : 0;
    if (lease == 0 && !with_extra)
        lh_builder_spare(b, struct_spare(kind));
    LhObject *header = lh_builder_at(b, 0);
    header->refs = 1;
    header->kind = (guint8)kind;
    header->parts = (guint8)((lease != 0 ? HAS_LEASE : 0) | (with_extra ? HAS_EXTRA : 0));
    if (lease != 0)
        memcpy(lh_builder_at(b, lease_place), &lease, sizeof lease);
    lh_builder_set_string(b, (guint32)offsetof(LhObject, name), name, strlen(name));
    return extra;
}

static gpointer finish_block(LhBuilder *b)
{
    gboolean in_slab;
    LhObject *object = lh_builder_finish(b, &slab, &in_slab);
    if (in_slab)
        object->parts |= IN_SLAB;
    return object;
}

static guint32 in_extra(guint32 extra, gsize offset)
{
    return extra + (guint32)offset;
}

/* --- the envelope --- */

static const LhField labels_field = LH_FIELD(MAP, Extra, labels, "labels", 0, 0, 0, NULL);

/* @json (NULL: not given) must be the string @wanted. */
static gboolean check_agrees(const cJSON *json, const char *wanted, const char *why,
                             const LhPath *path, GError **error)
{
    if (json == NULL || cJSON_IsNull(json) ||
        (cJSON_IsString(json) && strcmp(json->valuestring, wanted) == 0))
        return TRUE;
    g_autofree char *text = cJSON_IsString(json) ? lh_quote(json->valuestring) : NULL;
    g_autofree char *quoted = lh_quote(wanted);
    return lh_refuse(error, path, "is %s, must be %s%s", text != NULL ? text : "not a string",
                     quoted, why);
}

static gboolean read_metadata(const Source *source, const cJSON *metadata, LhBuilder *b,
                              guint32 extra, LhUnknown *unknown, GError **error)
{
    const LhPath path = {.name = "metadata"};
    const cJSON *member;
    if (cJSON_IsNull(metadata))
        return TRUE;
    if (!cJSON_IsObject(metadata))
        return lh_refuse(error, &path, "must be an object");
    cJSON_ArrayForEach(member, metadata) {
        const LhPath at = {.up = &path, .name = member->string};
        if (strcmp(member->string, "name") == 0) {
            if (!check_agrees(member, source->name, " as the key says", &at, error))
                return FALSE;
        } else if (strcmp(member->string, "labels") == 0) {
            if (!cJSON_IsNull(member) &&
                !lh_codec_field(b, &labels_field, extra, member, &at, unknown, error))
                return FALSE;
        } else if (strcmp(member->string, "revision") != 0) { /* the API adds it: not an input */
            lh_unknown_add(unknown, &at);
        }
    }
    return TRUE;
}

static gboolean read_envelope(const Source *source, LhBuilder *b, guint32 extra, LhUnknown *unknown,
                              GError **error)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, source->envelope) {
        const LhPath at = {.name = member->string};
        gboolean ok = TRUE;
        if (strcmp(member->string, "apiVersion") == 0)
            ok = check_agrees(member, API_VERSION, "", &at, error);
        else if (strcmp(member->string, "kind") == 0)
            ok = check_agrees(member, source->info->name, " as the key says", &at, error);
        else if (strcmp(member->string, "metadata") == 0)
            ok = read_metadata(source, member, b, extra, unknown, error);
        else if (strcmp(member->string, "spec") != 0 && strcmp(member->string, "status") != 0)
            lh_unknown_add(unknown, &at);
        if (!ok)
            return FALSE;
    }
    return TRUE;
}

/* --- one object --- */

/* Fills @b. With @with_extra false, and unknown fields found, the caller has to begin again. */
static gboolean build(const Source *source, gboolean with_extra, LhBuilder *b, LhUnknown *unknown,
                      GError **error)
{
    const LhPath spec = {.name = "spec"};
    const LhPath *path = source->info->area == LH_AREA_DESIRED ? &spec : NULL;
    guint32 extra = begin_block(b, source->info->kind, source->info->size, source->name,
                                source->lease, with_extra);
    lh_codec_blank(source->info->fields, lh_builder_at(b, 0));
    if (with_extra) {
        lh_builder_set_static(b, in_extra(extra, offsetof(Extra, labels)), &lh_empty_map);
        if (!read_envelope(source, b, extra, unknown, error))
            return FALSE;
    }
    if (!lh_codec_struct(b, source->fields, 0, source->json, path, unknown, error))
        return FALSE;
    if (!with_extra)
        return TRUE;
    g_autofree char *warning = lh_unknown_text(unknown);
    if (warning != NULL) {
        ((LhObject *)lh_builder_at(b, 0))->warned = TRUE;
        lh_builder_set_string(b, in_extra(extra, offsetof(Extra, warning)), warning,
                              strlen(warning));
    }
    if (source->raw != NULL) {
        ((Extra *)lh_builder_at(b, extra))->raw_len = source->raw_len;
        lh_builder_set_string(b, in_extra(extra, offsetof(Extra, raw)), source->raw,
                              source->raw_len);
    }
    return TRUE;
}

/* Reads the spec that an Accepted holds, for its subject's kind. */
static gboolean attach_parsed(LhAccepted *accepted, const cJSON *json, GError **error)
{
    LhKind kind;
    const char *name;
    if (!lh_subject_split(accepted->o.name, &kind, &name))
        return lh_refuse(error, NULL, "metadata.name: names no kind");
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(json, "spec");
    accepted->parsed = lh_object_parse_spec(kind, name, spec, NULL, error);
    return accepted->parsed != NULL;
}

/* Refuses what could be read here, but not as the Accepted that admission makes of it. */
static gboolean check_fits(const LhObject *object, const Source *source, GError **error)
{
    if (source->raw_len <= SURELY_FITS_BYTES)
        return TRUE;
    g_autofree char *spec = lh_object_print(source->info->kind, object);
    const LhAccepted accepted = {
        .revision = LH_JSON_MAX_INT, .labels = lh_object_labels(object), .spec = spec};
    g_autofree char *text = lh_object_print(LH_KIND_ACCEPTED, &accepted);
    gsize len = strlen(text);
    if (len <= ACCEPTED_MAX_BYTES)
        return TRUE;
    return lh_refuse(error, NULL,
                     "spec: is %" G_GSIZE_FORMAT " bytes long with defaults, labels and escapes, "
                     "must be at most %d",
                     len, ACCEPTED_MAX_BYTES);
}

static LhObject *finish(const Source *source, LhBuilder *b, GError **error)
{
    LhObject *object = finish_block(b);
    gboolean ok = source->info->check == NULL || source->info->check(object, error);
    ok = ok && check_fits(object, source, error);
    if (ok && source->info->kind == LH_KIND_ACCEPTED)
        ok = attach_parsed((LhAccepted *)object, source->json, error);
    if (ok)
        return object;
    lh_object_unref(object);
    return NULL;
}

static LhObject *make(const Source *source, char **warning, GError **error)
{
    gboolean with_extra = source->info->area == LH_AREA_DESIRED;
    LhUnknown unknown = {0};
    LhBuilder b;
    lh_builder_init(&b);
    gboolean ok = build(source, with_extra, &b, &unknown, error);
    if (ok && unknown.n > 0 && !with_extra) {
        g_clear_pointer(&unknown.first, g_free);
        unknown.n = 0;
        lh_builder_clear(&b);
        ok = build(source, TRUE, &b, &unknown, error);
    }
    LhObject *object = ok ? finish(source, &b, error) : NULL;
    if (object != NULL && warning != NULL)
        *warning = lh_unknown_text(&unknown);
    g_free(unknown.first);
    lh_builder_clear(&b);
    return object;
}

/* Sets info and fields, once kind and name are found good. */
static gboolean open_source(Source *source, LhKind kind, const char *name, GError **error)
{
    const LhKindInfo *info = lh_kind_info(kind);
    if (info == NULL) {
        lh_refuse(error, NULL, "the key is of no known kind");
        return FALSE;
    }
    gboolean valid = lh_kind_name_valid(kind, name);
    source->info = info;
    source->name = name;
    source->fields = info->fields_of != NULL ? info->fields_of(name) : info->fields;
    if (valid && source->fields != NULL)
        return TRUE;
    g_autofree char *quoted = lh_quote(name);
    if (valid)
        lh_refuse(error, NULL, "metadata.name: no controller is called %s", quoted);
    else
        lh_refuse(error, NULL, "metadata.name: %s is not a valid name of a %s", quoted, info->name);
    return FALSE;
}

static LhObject *parse_known(LhKind kind, const char *name, const char *value, gsize len,
                             gint64 lease, GError **error)
{
    const LhPath spec = {.name = "spec"};
    Source source = {.lease = lease};
    if (!open_source(&source, kind, name, error))
        return NULL;
    LhJsonRoom room;
    g_autoptr(cJSON) tree = NULL;
    const cJSON *json = lh_json_parse_plain(&room, value, len);
    if (json == NULL)
        json = tree = lh_json_parse(value, len, LH_JSON_MAX_BYTES, error);
    if (json == NULL)
        return NULL;
    if (!cJSON_IsObject(json)) {
        lh_refuse(error, NULL, "the value must be a JSON object");
        return NULL;
    }
    source.json = json;
    if (source.info->area == LH_AREA_DESIRED) {
        source.envelope = json;
        source.json = cJSON_GetObjectItemCaseSensitive(json, "spec");
        source.raw = value;
        source.raw_len = len;
        if (!cJSON_IsObject(source.json)) {
            lh_refuse(error, &spec,
                      source.json == NULL || cJSON_IsNull(source.json) ? "is required"
                                                                       : "must be an object");
            return NULL;
        }
    }
    return make(&source, NULL, error);
}

static LhObject *unknown_new(LhKind kind, const char *name, const char *value, gsize len,
                             gint64 lease, const char *why)
{
    LhBuilder b;
    lh_builder_init(&b);
    guint32 extra = begin_block(&b, kind, struct_size(kind), name, lease, TRUE);
    LhObject *header = lh_builder_at(&b, 0);
    header->unknown = TRUE;
    if (lh_kind_info(kind) != NULL)
        lh_codec_blank(lh_kind_info(kind)->fields, header);
    ((Extra *)lh_builder_at(&b, extra))->raw_len = len = MIN(len, RAW_MAX_BYTES);
    lh_builder_set_static(&b, in_extra(extra, offsetof(Extra, labels)), &lh_empty_map);
    lh_builder_set_string(&b, in_extra(extra, offsetof(Extra, error)), why, strlen(why));
    lh_builder_set_string(&b, in_extra(extra, offsetof(Extra, raw)), len > 0 ? value : "", len);
    LhObject *object = finish_block(&b);
    lh_builder_clear(&b);
    return object;
}

LhObject *lh_object_parse(LhKind kind, const char *name, const char *value, gsize len,
                          gint64 create_rev, gint64 mod_rev, gint64 lease)
{
    g_autoptr(GError) error = NULL;
    LhObject *object = parse_known(kind, name, value, len, lease, &error);
    if (object == NULL)
        object = unknown_new(kind, name, value, len, lease, error->message);
    object->create_rev = create_rev;
    object->mod_rev = mod_rev;
    if (kind == LH_KIND_ACCEPTED && lh_object_known(object)) {
        LhObject *parsed = (LhObject *)((LhAccepted *)object)->parsed;
        parsed->create_rev = create_rev;
        parsed->mod_rev = mod_rev;
    }
    return object;
}

LhObject *lh_object_parse_spec(LhKind kind, const char *name, const cJSON *spec, char **warning,
                               GError **error)
{
    const LhPath path = {.name = "spec"};
    Source source = {.json = spec};
    if (!open_source(&source, kind, name, error))
        return NULL;
    if (!cJSON_IsObject(spec)) {
        lh_refuse(error, &path,
                  spec == NULL || cJSON_IsNull(spec) ? "is required" : "must be an object");
        return NULL;
    }
    return make(&source, warning, error);
}

/* --- holding and looking --- */

LhObject *lh_object_ref(const LhObject *object)
{
    LhObject *mine = (LhObject *)object;
    if (mine != NULL)
        mine->refs++;
    return mine;
}

void lh_object_unref(const LhObject *object)
{
    LhObject *mine = (LhObject *)object;
    if (mine == NULL || --mine->refs > 0)
        return;
    if (lh_kind_info(mine->kind) != NULL)
        lh_codec_release(lh_kind_info(mine->kind)->fields, mine);
    if (mine->kind == LH_KIND_ACCEPTED)
        lh_object_unref(((LhAccepted *)mine)->parsed);
    if ((mine->parts & IN_SLAB) != 0)
        lh_slab_free(mine);
    else
        g_free(mine);
}

const char *lh_object_error(const LhObject *object)
{
    return object->unknown ? get_extra(object)->error : NULL;
}

gint64 lh_object_lease(const LhObject *object)
{
    gint64 lease = 0;
    if ((object->parts & HAS_LEASE) != 0)
        memcpy(&lease, (const char *)object + struct_size(object->kind), sizeof lease);
    return lease;
}

const char *lh_object_warning(const LhObject *object)
{
    const Extra *extra = get_extra(object);
    return extra != NULL ? extra->warning : NULL;
}

const LhStrMap *lh_object_labels(const LhObject *object)
{
    const Extra *extra = get_extra(object);
    if (object->kind == LH_KIND_ACCEPTED)
        return ((const LhAccepted *)object)->labels;
    if (object->kind == LH_KIND_NODE)
        return ((const LhNode *)object)->labels;
    return extra != NULL ? extra->labels : &lh_empty_map;
}

const char *lh_object_raw(const LhObject *object, gsize *len)
{
    const Extra *extra = get_extra(object);
    if (len != NULL)
        *len = extra != NULL ? extra->raw_len : 0;
    return extra != NULL ? extra->raw : NULL;
}

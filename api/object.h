/*
 * Typed objects: immutable, reference-counted, each in one block of memory.
 *
 * Loop thread only (the count is not atomic). An object is made by parsing an etcd value, lives in
 * the mirror and in indexes, and is never changed. One that does not parse is an *unknown* object of
 * its kind: it has a name and revisions, and an error instead of fields. Unknown is not absent.
 *
 * For printing, controllers fill a struct of the kind on the stack (header zeroed) and call
 * lh_object_print: fields only, the header is not looked at.
 */
#pragma once

#include "api/kind.h"

typedef struct LhObject {
    gint64 create_rev, mod_rev;
    const char *name; /* "api-logs", or composite "cache/node-1a2b3c4d/replica" */
    guint32 refs;
    guint8 kind;
    guint8 unknown; /* does not parse: lh_object_error says why */
    guint8 warned;  /* has unknown fields: lh_object_warning says which */
    guint8 parts;   /* object.c's own */
} LhObject;

/* Parses a value of @kind. Never fails on input: what does not parse, or whose name is not valid for
 * the kind (LH_N_KINDS: a key of no known kind), is returned as an unknown object. Desired kinds:
 * with or without the envelope; what the envelope says must agree with the key. Defaults are filled
 * in. */
LhObject *lh_object_parse(LhKind kind, const char *name, const char *value, gsize len,
                          gint64 create_rev, gint64 mod_rev, gint64 lease);
LhObject *lh_object_ref(const LhObject *object); /* accepts NULL */
void lh_object_unref(const LhObject *object);    /* accepts NULL */

static inline gboolean lh_object_known(const LhObject *object)
{
    return !object->unknown;
}

/* Of an unknown object: why it does not parse (field and reason); else NULL. Lives as long as the object. */
const char *lh_object_error(const LhObject *object);
/* The lease that its key is bound to; 0: none. */
gint64 lh_object_lease(const LhObject *object);

/* "unknown field spec.cahce and 2 more": one line, for a Status; NULL if none. Lives as long as the
 * object. */
const char *lh_object_warning(const LhObject *object);
/* metadata.labels of a desired object, labels of an Accepted or a Node; never NULL. */
const LhStrMap *lh_object_labels(const LhObject *object);
/* The value as it was written, NUL-terminated: of desired kinds, and of unknown objects (there at most
 * 64 KiB of it). Else NULL, also for an object of lh_object_parse_spec. @len may be NULL. */
const char *lh_object_raw(const LhObject *object, gsize *len);

/* The fields as compact JSON, in table order: {"service":…}; for desired kinds the spec alone.
 * @object: any struct of the kind, also one on the stack. Absent strings and times are left out;
 * maps, lists and arrays may be NULL. Of Settings, the header's name (if not NULL) chooses the
 * controller's fields; no other header field is looked at. Free with g_free. */
char *lh_object_print(LhKind kind, const void *object);
void lh_object_append(LhKind kind, const void *object, GString *out);
/* True when all fields (not the header) are equal. NULL maps, lists and arrays equal empty ones. */
gboolean lh_object_same(LhKind kind, const void *a, const void *b);

/* Parses the spec of a desired kind outside an envelope (the "spec" of an Accepted, a manifest).
 * Returns NULL and an error that begins with the field. @warning (may be NULL): unknown fields or
 * NULL, g_free. */
LhObject *lh_object_parse_spec(LhKind kind, const char *name, const cJSON *spec, char **warning,
                               GError **error);

/* "api-logs" of "services/api-logs"; the kind of an Accepted's or a Status's subject. Of a Status's
 * name *rest still ends in "/<controller>": see lh_status_name_split. Either out may be NULL. */
gboolean lh_subject_split(const char *name, LhKind *kind, const char **rest);
/* "services/api-logs/admission" → SERVICE, "api-logs" (g_free), "admission" (points into @name). Any
 * out may be NULL. False, outputs untouched, when it is no such name. */
gboolean lh_status_name_split(const char *name, LhKind *kind, char **subject,
                              const char **controller);

/* Composite names: "pool/node/item". Each returns NULL when @index is out of range; g_free. */
char *lh_name_part(const char *name, guint index);
/* "<node name>-<8 hex digits>" → node name; NULL if it is not such an id. g_free. */
char *lh_node_name_of(const char *node_id);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhObject, lh_object_unref)

/*
 * JSON ↔ structs by tables of LhField. Private to api/; pure.
 *
 * Reading goes through cJSON; another reader of JSON would replace codec.c alone. Errors begin with
 * the path of the field: `spec.cache.window: is 12, must be a duration like 15m`.
 */
#pragma once

#include "api/builder.h"
#include "base/json.h"

#define LH_TIME_MAX_MS \
    (G_GINT64_CONSTANT(253370764800000) - 1) /* the end of 9998, as units.h says */

/* Where in a document; a list on the stack. Names are printed cut and without control characters.
 */
typedef struct LhPath {
    const struct LhPath *up;
    const char *name; /* NULL: an element, @index */
    guint index;
} LhPath;

/* Unknown fields met while reading. */
typedef struct {
    char *first; /* path; g_free */
    guint n;
} LhUnknown;

extern const LhStrMap lh_empty_map;
extern const LhArray lh_empty_array;
extern const char *const lh_empty_strv[];
extern const guint8 lh_empty_digests[];

char *lh_path_text(const LhPath *path);
/* Notes that @path is unknown. */
void lh_unknown_add(LhUnknown *unknown, const LhPath *path);
/* "unknown field a.b and 2 more"; NULL if there are none. g_free. */
char *lh_unknown_text(const LhUnknown *unknown);
/* Sets "<path>: <format…>", LH_ERR_INVALID; returns FALSE. */
gboolean lh_refuse(GError **error, const LhPath *path, const char *format, ...) G_GNUC_PRINTF(3, 4);
/* The text in quotes, escaped, at most 64 bytes of it; for messages. g_free. */
char *lh_quote(const char *text);

/* Reads the members of @json (NULL: none) into the struct (blank) at @base; absent ones get their
 * defaults.
 * @json must outlive lh_builder_finish. */
gboolean lh_codec_struct(LhBuilder *b, const LhField *fields, guint32 base, const cJSON *json,
                         const LhPath *path, LhUnknown *unknown, GError **error);
/* Reads one field. */
gboolean lh_codec_field(LhBuilder *b, const LhField *field, guint32 base, const cJSON *json,
                        const LhPath *path, LhUnknown *unknown, GError **error);
/* Reads a value of INT, BOOL, TIME, DURATION, SIZE or ENUM, without looking at the bounds. */
gboolean lh_codec_scalar(const LhField *field, const cJSON *json, gint64 *out, const LhPath *path,
                         GError **error);
/* The field's fallback, parsed; static storage. NULL if it has none. */
const cJSON *lh_codec_fallback(const LhField *field);
/* Makes a zeroed struct safe to read: empty maps and lists, times of -1. */
void lh_codec_blank(const LhField *fields, gpointer data);
/* Releases the atoms of a finished struct. */
void lh_codec_release(const LhField *fields, gpointer data);
#define LH_DIGEST_BYTES 32
/* 64 hexadecimal digits of either case → 32 bytes. False, @out undefined, when @hex is anything
 * else. */
gboolean lh_digest_pack(const char *hex, guint8 *out);
/* Length of a LH_F_DIGESTS value without the byte that ends it. */
gsize lh_digests_length(const guint8 *digests);
/* The name of @value, "unknown" when it has none. */
const char *lh_enum_name(const char *const *names, int value);

/*
 * JSON with limits, on cJSON. Pure; any thread.
 *
 * Integers go through lh_json_int, because cJSON's numbers are doubles and its valueint has 32
 * bits. Output is written into a GString by the append functions, integers raw.
 */
#pragma once

#include <cjson/cJSON.h>
#include <glib.h>

#define LH_JSON_MAX_BYTES (64 * 1024) /* an etcd value (CONTRACT.md, section 1) */
#define LH_JSON_MAX_DEPTH 32
#define LH_JSON_MAX_INT   ((G_GINT64_CONSTANT(1) << 53) - 1)

/* Parses exactly one JSON value in valid UTF-8 of at most @max_bytes and LH_JSON_MAX_DEPTH levels;
 * nothing but white space after it; no NUL inside, \u0000 included; strictly RFC 8259. An object
 * with the same key twice is refused, and so is a number of more than 63 characters or beyond a
 * double.
 * @data need not be terminated. Free with cJSON_Delete. Errors: LH_ERR_INVALID. */
cJSON *lh_json_parse(const char *data, gsize len, gsize max_bytes, GError **error);

/* Memory for a small tree, of the caller's; not initialised. */
typedef struct {
    cJSON items[64];
    char text[2048];
} LhJsonRoom;

/* The same tree, built in @room: it lives as long as that, and is not freed. For values that are small and
 * plain (ASCII without escapes, integers of at most 15 digits). NULL: not plain, or not valid; then
 * lh_json_parse reads it, or says what is wrong. */
const cJSON *lh_json_parse_plain(LhJsonRoom *room, const char *data, gsize len);

/* True and *@out when @item (or NULL) is a number without fraction within ±LH_JSON_MAX_INT. 1e3 is
 * one too; a fraction that a double cannot hold (2^52 + 0.1) is not seen. */
gboolean lh_json_int(const cJSON *item, gint64 *out);

/* Members of an object, with a default when absent or of another type. @object may be NULL. */
const char *lh_json_get_string(const cJSON *object, const char *name, const char *fallback);
gint64 lh_json_get_int(const cJSON *object, const char *name, gint64 fallback);
gboolean lh_json_get_bool(const cJSON *object, const char *name, gboolean fallback);

/* "text" with quotes and escapes (DEL and C1 too, so that logs are safe on a terminal); invalid
 * UTF-8 becomes U+FFFD. NULL is written as null. */
void lh_json_append_string(GString *out, const char *text);
/* ["name":] with a comma first unless *out is empty or ends in '{' or '['. @name NULL: only the
 * comma, for the elements of an array. */
void lh_json_append_key(GString *out, const char *name);
void lh_json_append_int(GString *out, gint64 value);
/* The shortest text that reads back as @value; integers within ±LH_JSON_MAX_INT without exponent;
 * null for NaN and infinities. */
void lh_json_append_double(GString *out, double value);

/* Compact text of any cJSON tree (NULL: null); integers beyond 2^31 raw and exact; cJSON_Raw as it
 * is. Free with g_free. */
char *lh_json_print(const cJSON *item);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(cJSON, cJSON_Delete)

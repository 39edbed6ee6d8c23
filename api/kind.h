/*
 * The kinds: one table of names, keys and fields, from which every kind is parsed, defaulted,
 * validated, printed and compared. Pure; any thread.
 *
 * A kind is a C struct that begins with an LhObject (object.h), a table of LhField that describes
 * its JSON, and, where fields depend on each other, a check function. There is no code for a single
 * field.
 */
#pragma once

#include <cjson/cJSON.h>
#include <glib.h>

typedef enum {
    LH_KIND_SERVICE,
    LH_KIND_SEED,
    LH_KIND_THROTTLE,
    LH_KIND_PARTITION,
    LH_KIND_RESTORE,
    LH_KIND_NODEPOLICY,
    LH_KIND_SETTINGS,
    LH_KIND_CONFIRMATION,
    LH_KIND_SNAPSHOT,
    LH_KIND_RECOVERYTASK,
    LH_KIND_ACCEPTED,
    LH_KIND_REPLICA,
    LH_KIND_ASSIGNMENT,
    LH_KIND_RETRY,
    LH_KIND_PARTITIONPLAN,
    LH_KIND_RESTOREPROGRESS,
    LH_KIND_HEALTH,
    LH_KIND_DELETION,
    LH_KIND_ORPHAN,
    LH_KIND_BRAKE,
    LH_KIND_STATUS,
    LH_KIND_NODE,
    LH_KIND_ITEM,
    LH_KIND_SEARCH,
    LH_KIND_LEADER,
    LH_KIND_EVENT,
    LH_N_KINDS, /* of etcd's keys; also: "a key of no known kind" */
    /* What comes from outside etcd (mirror.h): typed and told like the others, but never a key. */
    LH_KIND_OBSERVATION,
    LH_N_ALL_KINDS,
} LhKind;

typedef enum {
    LH_AREA_DESIRED,
    LH_AREA_PUBLISHED,
    LH_AREA_DECIDED,
    LH_AREA_ACTUAL,
    LH_AREA_LEADERS,
    LH_AREA_EVENTS,
    LH_AREA_OBSERVED, /* not in etcd */
    LH_N_AREAS,
} LhArea;

typedef enum {
    LH_F_STR,  /* const char *: any string (limits in bytes: min, max) */
    LH_F_ATOM, /* const char *: a string that many objects share; interned, compared by pointer */
    LH_F_INT,  /* gint64 within min..max */
    LH_F_BOOL, /* gboolean */
    LH_F_TIME, /* gint64 epoch ms; RFC 3339 or integer read, RFC 3339 written; -1: null or absent */
    LH_F_DURATION, /* gint64 ms; "15m" */
    LH_F_SIZE,     /* gint64 bytes; integer or "15Gi" read, integer written */
    LH_F_ENUM,     /* int; sub: const char *const * (NULL-ended names, index = value) */
    LH_F_STRV,     /* const char *const * (NULL-ended); never NULL after parsing */
    LH_F_MAP,      /* const LhStrMap *: sorted by key; never NULL after parsing */
    LH_F_DIGESTS,  /* const guint8 *: file name → SHA-256, packed (lh_digests_next); never NULL */
    LH_F_URI,      /* LhUri: a uri that lh_uri_check accepts (limits in bytes: min, max) */
    LH_F_RAW,      /* const char *: any JSON value as compact text; NULL when absent */
    LH_F_STRUCT,   /* an embedded struct at this offset; sub: const LhStructInfo * */
    LH_F_ARRAY,    /* const LhArray *: structs; sub: const LhStructInfo * */
} LhFieldType;

enum {
    LH_REQUIRED = 1 << 0,   /* absent or null is refused */
    LH_NAME = 1 << 1,       /* STR, ATOM, elements of STRV: must be a valid name (units.h) */
    LH_POOL_NAME = 1 << 2,  /* STR, ATOM, elements of STRV: must be a valid pool or set name */
    LH_SPARSE = 1 << 3,     /* not printed when it has its default (but see LhField.with) */
    LH_UNIQUE = 1 << 4,     /* STRV: no element twice */
    LH_SORTED = 1 << 5,     /* ARRAY: sorted by its first field (a required STR), none twice */
    LH_OBJECT = 1 << 6,     /* RAW: must be a JSON object */
    LH_PRINT_NULL = 1 << 7, /* STR, ATOM, RAW, TIME: absent is printed as null, not left out */
};

typedef struct {
    const char *name; /* of the JSON member */
    LhFieldType type;
    guint32 flags;
    guint32 offset;
    /* INT, SIZE, DURATION: bounds (0,0: 0..2^53-1); the fallback may lie outside. TIME: bounds, if
     * not 0,0. STR, ATOM: bytes (max 0: any; with LH_NAME 253). STRV, ARRAY: elements (max 0: any).
     */
    gint64 min, max;
    /* The default as JSON text ("\"24h\"", "1", "[\"default\"]"); NULL: 0/NULL/empty, TIME -1. */
    const char *fallback;
    const void *sub;
    /* SPARSE: printed all the same when the pointer at this offset is set (0: none) */
    guint32 with;
} LhField;

typedef struct {
    const LhField *fields; /* ended by a NULL name */
    gsize size;
} LhStructInfo;

typedef struct {
    guint n;
    const char *const *pairs; /* key, value, key, value …; sorted by key */
} LhStrMap;

/* A uri that ends in '/', in up to three parts, because many lie in the same directories: the text is dir,
 * or, when last is not NULL, dir middle last "/". Which parts a parsed one has is chance: ask the functions
 * below. */
typedef struct {
    const char *dir;    /* with last: an atom, ends in '/'. NULL: absent */
    const char *middle; /* NULL: none; "x/y/": an atom; "/x/y/": the same text, but the uri's own */
    const char *last;   /* without '/' */
} LhUri;

char *lh_uri_text(const LhUri *uri); /* NULL when absent; g_free */
gboolean lh_uri_is(const LhUri *uri, const char *text);
/* Of two that are not absent: the sign is strcmp's. An absolute value of LH_URI_INSIDE: the shorter one is
 * the beginning of the other, which thus lies in it; else of LH_URI_APART. 0: they are equal. */
enum { LH_URI_INSIDE = 1, LH_URI_APART = 2 };
int lh_uri_compare(const LhUri *a, const LhUri *b);

typedef struct {
    guint n;
    gsize size; /* of one */
    const void *items;
} LhArray;

static inline const void *lh_array_at(const LhArray *array, guint i)
{
    return (const char *)array->items + (gsize)i * array->size;
}

/* Steps through a LH_F_DIGESTS value, sorted by file name. *@at begins as the value and moves on.
 * *@file points into the value; @hex gets 64 lower-case digits. False at the end (and for NULL).
 *     for (const guint8 *at = snapshot->sha256; lh_digests_next(&at, &file, hex);) … */
gboolean lh_digests_next(const guint8 **at, const char **file, char hex[65]);

struct LhObject;

typedef struct {
    LhKind kind;
    const char *name;   /* "Service" */
    const char *plural; /* "services" */
    LhArea area;
    const char *prefix; /* under the etcd prefix, ends with '/': "desired/services/" */
    guint prefix_len;
    /* One letter for each '/'-separated part of a name: n name (253), s snapshot (180), m node name
     * (244), i node id (253), p pool, l lease (16 hex digits), h SHA-256 (64 hex digits). "D": a
     * subject "<plural>/<name>" of a desired kind; "X": a subject of any kind, "/<controller>". */
    const char *shape;
    guint parts; /* how many '/'-separated parts a name has: 1, 2 or 3; 0: it depends (D, X) */
    gsize size;  /* of the struct */
    const LhField *fields; /* of the spec (desired kinds) or of the flat object */
    /* Settings: which of the fields an object of this name has; NULL: no object may have it. */
    const LhField *(*fields_of)(const char *name);
    /* What single fields cannot say; NULL: nothing. True, or an error that begins with the field */
    gboolean (*check)(const struct LhObject *object, GError **error);
} LhKindInfo;

const LhKindInfo *lh_kind_info(LhKind kind); /* NULL for LH_N_KINDS */
/* "Service", "services", "service", any case; also the unambiguous plural forms of CONTRACT.md's
 * table, their singular ("throttle") and a kind's regular plural ("throttlepolicies"). LH_N_KINDS if
 * there is none. */
LhKind lh_kind_lookup(const char *name);
static inline gboolean lh_kind_is_desired(LhKind kind)
{
    return kind < LH_N_KINDS && lh_kind_info(kind)->area == LH_AREA_DESIRED;
}

/* Splits a key *without* the etcd prefix. True when its kind is known: *kind, and *name points to
 * what follows the kind's prefix (may be "" or otherwise invalid: see lh_kind_name_valid). What begins
 * with observed/ is a key of no kind. */
gboolean lh_key_split(const char *key, LhKind *kind, const char **name);
/* Parts, characters and lengths as CONTRACT.md section 1 says for this kind. */
gboolean lh_kind_name_valid(LhKind kind, const char *name);
/* "decided/replicas/x"; free with g_free. */
char *lh_key(LhKind kind, const char *name);
char *lh_keyf(LhKind kind, const char *name_format, ...) G_GNUC_PRINTF(2, 3);

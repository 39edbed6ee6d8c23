/*
 * Each value is parsed once for all who see it: the managers' mirrors and the model. An object is immutable
 * and depends on nothing but what it was parsed of, so whoever is given the same gets the same; now and
 * then it is parsed again all the same, and compared. What is known is forgotten when it is much.
 */
#include "sim.h"

#include <string.h>

#define GROUP     "parse"
#define MOST      20000
#define VERIFY_IN 200

typedef struct {
    LhKind kind;
    const char *name; /* of the object, or the caller's */
    const LhKv *kv;   /* the caller's; NULL in the table */
    char *value;
    gsize len;
    LhObject *object; /* NULL: asked for */
} Parsed;

static guint hash_parsed(gconstpointer key)
{
    const Parsed *parsed = key;
    gint64 mod_rev = parsed->kv != NULL ? parsed->kv->mod_rev : parsed->object->mod_rev;
    return g_str_hash(parsed->name) + (guint)parsed->kind + (guint)mod_rev * 2654435761U;
}

/* GHashTable asks with the one that is looked for second. */
static gboolean equal_parsed(gconstpointer known, gconstpointer asked)
{
    const Parsed *a = known, *b = asked;
    if (a->kv != NULL) {
        a = asked;
        b = known;
    }
    const LhKv *kv = b->kv;
    return kv != NULL && a->kind == b->kind && a->object->mod_rev == kv->mod_rev &&
           a->object->create_rev == kv->create_rev && lh_object_lease(a->object) == kv->lease &&
           a->len == kv->value_len && (a->len == 0 || memcmp(a->value, kv->value, a->len) == 0) &&
           strcmp(a->name, b->name) == 0;
}

static void parsed_free(gpointer data)
{
    Parsed *parsed = data;
    lh_object_unref(parsed->object);
    g_free(parsed->value);
    g_free(parsed);
}

GHashTable *sim_parsed_new(void)
{
    return g_hash_table_new_full(hash_parsed, equal_parsed, parsed_free, NULL);
}

static LhObject *parse(LhKind kind, const char *name, const LhKv *kv)
{
    return lh_object_parse(kind, name, kv->value, kv->value_len, kv->create_rev, kv->mod_rev,
                           kv->lease);
}

static void verify(Sim *sim, const Parsed *parsed, const LhKv *kv)
{
    g_autoptr(LhObject) fresh = parse(parsed->kind, parsed->name, kv);
    if (lh_object_known(fresh) != lh_object_known(parsed->object) ||
        (lh_object_known(fresh) && !lh_object_same(parsed->kind, fresh, parsed->object)))
        sim_fail(sim, GROUP, "%s is not what its value says any more", kv->key);
}

LhObject *sim_parse(LhKind kind, const char *name, const LhKv *kv, gpointer data)
{
    Sim *sim = data;
    const Parsed wanted = {.kind = kind, .name = name, .kv = kv};
    gpointer found;
    if (g_hash_table_lookup_extended(sim->parsed, &wanted, &found, NULL)) {
        const Parsed *parsed = found;
        if (sim_check_below(sim, VERIFY_IN) == 0)
            verify(sim, parsed, kv);
        return lh_object_ref(parsed->object);
    }
    if (g_hash_table_size(sim->parsed) >= MOST)
        g_hash_table_remove_all(sim->parsed);
    Parsed *parsed = g_new0(Parsed, 1);
    parsed->kind = kind;
    parsed->object = parse(kind, name, kv);
    parsed->name = parsed->object->name;
    parsed->value = g_memdup2(kv->value, kv->value_len);
    parsed->len = kv->value_len;
    g_hash_table_add(sim->parsed, parsed);
    return lh_object_ref(parsed->object);
}

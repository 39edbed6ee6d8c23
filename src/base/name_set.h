/*
 * A set of records by their names, in 12 bytes for each place: 14 to 17 for each record.
 *
 * A record is any struct with a `const char *` member that holds its name; where that member lies is told
 * at the start. The name belongs to the record and must not change while it is in the set, but the pointer
 * may come to point at an equal one. Pure; one thread at a time.
 */
#pragma once

#include <glib.h>

typedef struct {
    gpointer *records; /* by place */
    guint32 *hashes;   /* by place: of the name; 0: free */
    gsize places, n;
    gsize name_at; /* offset of the name in a record */
} LhNameSet;

typedef struct {
    gsize at;
    guint32 hash;
} LhNamePlace;

/* No memory is used before the first record. */
void lh_name_set_init(LhNameSet *set, gsize name_at);
void lh_name_set_clear(LhNameSet *set); /* the set becomes empty; records are not touched */

/* NULL if there is none. */
gpointer lh_name_set_get(const LhNameSet *set, const char *name);
gpointer lh_name_set_get_n(const LhNameSet *set, const char *name, gsize len);
/* The same, and where one of that name would be put; *place is valid until the set changes. */
gpointer lh_name_set_find(const LhNameSet *set, const char *name, LhNamePlace *place);
/* Puts @record where its name was looked for and not found. */
void lh_name_set_put_at(LhNameSet *set, LhNamePlace place, gpointer record);
/* Returns the record of that name which it replaces, or NULL. */
gpointer lh_name_set_put(LhNameSet *set, gpointer record);
/* Returns what it took out, or NULL. */
gpointer lh_name_set_take(LhNameSet *set, const char *name);

/* In no order; *at begins as 0. NULL at the end. The set must not change meanwhile.
 *     for (gsize at = 0; (record = lh_name_set_next(set, &at)) != NULL;) … */
gpointer lh_name_set_next(const LhNameSet *set, gsize *at);

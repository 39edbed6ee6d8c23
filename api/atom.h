/*
 * Atoms: texts of which each is kept once, however many objects have it, with a count of them. Private to
 * api/; loop thread, as objects are.
 *
 * They lie together in a slab: among other blocks of malloc, many that live long would keep as many pages
 * from going back to the system.
 */
#pragma once

#include <glib.h>

/* The atom of the first @len bytes of @text, which have no NUL, with a reference for the caller. */
const char *lh_atom_ref(const char *text, gsize len);
void lh_atom_unref(const char *atom); /* accepts NULL */

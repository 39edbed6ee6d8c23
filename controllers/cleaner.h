/*
 * snapshot-cleaner's errands and observations: the words that it and who does its errands share. Pure.
 *
 *   look.<root>    the store's clock, and whose the marker is; number: etcd's revision, to be written into
 *                  it (-1: do not write). state: "ours", "new" (there was none; written), "none" (there is
 *                  none), "newer" (ours, of a later revision than etcd's), "foreign" (not of this cluster,
 *                  prefix and root uri), "unmarked" (there is none, and what lies there is not nothing, or is
 *                  known not to be: not written but by a claim)
 *   list.<root>    all objects: objects, bytes, clock, missing, orphans. Before it, with its token, come
 *   missing.<snapshot>   a snapshot below it without any object; revision: the snapshot's
 *   orphan.<sha-256>     a directory with objects that are nobody's: uri, objects, bytes, newest, clock
 *   delete.<snapshot>    erase all below uri; token: the Deletion's create revision
 *   erase.<sha-256>      erase what lies in uri directly, not younger than number and not more than the
 *                        Orphan says; token: its create revision. state "changed", with an error: there is
 *   etcd           clock: what etcd says the time is
 *
 * LH_CLEANER_ROOTS is no errand: which roots the object store has (uris), told by whoever makes the mirror and
 * before its first list, so that each snapshot is looked at once, when it is folded; of no controller, so that it
 * stays when leadership goes. Roots that were told of a million snapshots that are there already would keep the
 * loop for half a second.
 *
 * Of missing and orphan the state is the id of the listing that told it. <root>: the first 16 digits of the SHA-256 of its uri.
 */
#pragma once

#include "controllers/fleet.h"

#define LH_CLEANER         "snapshot-cleaner"
#define LH_CLEANER_ROOTS   "objectstore/roots"
#define LH_CLEANER_LOOK    "look."
#define LH_CLEANER_CLAIM   "claim" /* the word of a look that may also write over "newer" */
#define LH_CLEANER_LIST    "list."
#define LH_CLEANER_MISSING "missing."
#define LH_CLEANER_ORPHAN  "orphan."
#define LH_CLEANER_DELETE  "delete."
#define LH_CLEANER_ERASE   "erase."
#define LH_CLEANER_ETCD    "etcd"
#define LH_CLEANER_CHANGED "changed"

#define LH_CLEANER_MARKER ".leasehold" /* lies in each root */

/* "<kind><first 16 digits of the SHA-256 of @uri>"; g_free. */
char *lh_cleaner_errand(const char *kind, const char *uri);

/*
 * The hosts that take work, as placement sees them, kept beside the fleet index: a plan reads them in one
 * piece and need not look at each host, its nodes, their health and policy.
 *
 * A cache: the fold says which hosts it touched, and whoever reads has those looked at again first. What
 * is read follows from the present objects alone. Pure.
 */
#pragma once

#include "placement/placement.h"

struct LhFleetHost;
typedef struct LhPlaces LhPlaces;

LhPlaces *lh_places_new(void);
void lh_places_free(LhPlaces *places);
/* Something of @host has changed: its nodes, their registration or health, its policy, what it holds. */
void lh_places_touch(LhPlaces *places, const struct LhFleetHost *host);
/* @host goes. */
void lh_places_forget(LhPlaces *places, const struct LhFleetHost *host);

/* Calls @func for each set, in no order. load_slots is minus the loads under way: add the settings'
 * maxConcurrentLoads. What the nodes point to lives as long as the index is not folded. */
typedef void (*LhPlacesFunc)(const char *set, const LhPlaceNode *nodes, guint n, gpointer data);
void lh_places_foreach(LhPlaces *places, LhPlacesFunc func, gpointer data);

/*
 * What brakes have in common: the Brake object, its hash, its confirmation. When to brake, and what is
 * carried out then, is each controller's own. Pure.
 */
#pragma once

#include "controllers/fleet.h"

#define LH_BRAKE_WINDOW_MS (10 * 60 * 1000)

typedef struct {
    const char *controller;
    const LhFleet *fleet;
    const LhPlanContext *context;
    const LhBrake *present; /* the known one; NULL: none */
    LhPlan *plan;
} LhBraking;

/* Over the sorted names of what is to go; g_free. */
char *lh_brake_hash(const char *const *names, guint n);
/* More than ten, and more than @percent of @whole. */
gboolean lh_brake_exceeds(gint64 count, gint64 whole, gint64 percent);
/* Somebody has confirmed exactly that plan, after it was made and within ten minutes. */
gboolean lh_brake_is_confirmed(const LhBraking *braking);

/* A group of its own. */
void lh_brake_confirm(const LhBraking *braking);
/* Into the open group, with the event. */
void lh_brake_put(const LhBraking *braking, const char *hash, gint64 eligible, gint64 of,
                  const char *message);
void lh_brake_remove(const LhBraking *braking, const char *rule, const char *reason);

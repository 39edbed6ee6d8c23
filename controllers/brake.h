/*
 * What brakes have in common: the Brake object, its cause, its hash, its confirmation. When to brake, and
 * what is carried out then, is each controller's own. Pure.
 *
 * Rules of all: a Confirmation for one cause confirms no other. RESTORED is never released without one that
 * was given after it and for it; that carries nothing out, it only lets things go their way again, MUCH
 * included. MUCH is released by itself when what it holds is within the limit again, but not because other
 * things came of which that is a smaller share.
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
/* … of a restoration, for a Brake that is to be put: that one and no other. @markers may be NULL. */
char *lh_brake_restored_hash(const LhBraking *braking, const char *const *markers);
/* Somebody has confirmed exactly that plan, after it was made and within ten minutes. */
gboolean lh_brake_is_confirmed(const LhBraking *braking);
/* Its message; where a Confirmation of its plan came before it was put, also that this one does not count:
 * that a Brake was put anew says that something of it had changed, and the names are the same. g_free. */
char *lh_brake_words(const LhBraking *braking);
/* It is confirmed, as a Brake of @cause, was not made before etcd went back, and is not too old: it counts for
 * half an hour, and @extra_ms. */
gboolean lh_brake_stands(const LhBraking *braking, LhBrakeCause cause, gint64 extra_ms);
/* It was made before etcd went back: it stands for nothing. */
gboolean lh_brake_came_back(const LhBraking *braking);

/* A group of its own. */
void lh_brake_confirm(const LhBraking *braking);
/* Into the open group, with the event. Of @made what is the controller's: cause, plan_hash, eligible, of,
 * message, basis, markers. */
void lh_brake_put(const LhBraking *braking, LhBrake made);
void lh_brake_remove(const LhBraking *braking, const char *rule, const char *reason);

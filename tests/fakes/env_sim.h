/*
 * Virtual time: one scheduler (SimWorld), many machines (each an LhEnv of base/env.h), one thread.
 *
 * Nothing happens by itself: sim_world_step() runs the next due timer of any machine and moves the
 * time to it. Timers that are due at the same millisecond run in an order that the seed chooses
 * between machines, and in the order of their creation on one machine. The same seed and the same
 * calls give the same run. A machine's own monotonic clock has an offset of its own, so that
 * comparing two machines' monotonic times is found out; the world's time starts at 0.
 *
 * A *machine* here is one process: after a crash make a new one (sim_machine_new) for its
 * successor.
 */
#pragma once

#include "base/env.h"

typedef struct SimWorld SimWorld;

#define SIM_WALL_START_MS \
    G_GINT64_CONSTANT(1767225600000) /* 2026-01-01T00:00:00Z at world time 0 */

SimWorld *sim_world_new(guint64 seed);
/* Frees all machines too. Free what lives on them before. Accepts NULL. */
void sim_world_free(SimWorld *world);

gint64 sim_world_now_ms(const SimWorld *world);
guint64 sim_world_random(SimWorld *world); /* the world's own generator, for the test's choices */
guint64 sim_world_below(SimWorld *world, guint64 n);
guint64 sim_world_steps(const SimWorld *world); /* timers run so far */
guint sim_world_pending(
    const SimWorld *world); /* timers waiting, those of paused machines included */

/* Runs one timer. FALSE: nothing is left to run (paused machines' timers do not count). */
gboolean sim_world_step(SimWorld *world);
/* Runs everything due up to and including @now_ms; the time is @now_ms afterwards. */
void sim_world_run_until(SimWorld *world, gint64 now_ms);
/* Time of the next runnable timer, G_MAXINT64 if there is none. */
gint64 sim_world_next_ms(SimWorld *world);

/* lh_env_free() on the result frees the machine early; otherwise sim_world_free does. */
LhEnv *sim_machine_new(SimWorld *world, const char *name);
const char *sim_machine_name(const LhEnv *env);

/* SIGSTOP: its timers and deliveries wait; its clocks go on. After resume all that was missed runs
 * at once, in the order of the times at which it was due. */
void sim_machine_pause(LhEnv *env);
void sim_machine_resume(LhEnv *env);
gboolean sim_machine_paused(const LhEnv *env);
/* kill -9: no timer of it fires any more, new ones neither. Handles stay valid for timer_cancel, so
 * that what lived on it can be freed as usual afterwards. */
void sim_machine_crash(LhEnv *env);
gboolean sim_machine_crashed(const LhEnv *env);
/* The wall clock shows SIM_WALL_START_MS + world time + offset. */
void sim_machine_set_wall_offset(LhEnv *env, gint64 offset_ms);
/* For converting a machine's monotonic time to the world's: world = mono - offset. */
gint64 sim_machine_mono_offset(const LhEnv *env);

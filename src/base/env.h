/*
 * The outside world that leasehold's own code may not touch directly: clocks, timers, randomness.
 *
 * One vtable, two implementations: the GLib main loop of a process (lh_env_glib_new) and the
 * simulation's virtual time. All calls on the loop thread. A timer fires at most once, never inside
 * lh_timer_at; cancelling it guarantees that it will not fire. Timers fire by due time, then in the
 * order they were made. A timer function may cancel other timers, make new ones, or free the env.
 */
#pragma once

#include <glib.h>

typedef struct LhEnv LhEnv;
typedef struct LhTimer LhTimer;
typedef void (*LhTimerFunc)(gpointer data);

typedef struct {
    gint64 (*wall_ms)(LhEnv *env); /* UTC, milliseconds since 1970; may jump */
    gint64 (*mono_ms)(LhEnv *env); /* never jumps, counts suspend (CLOCK_BOOTTIME) */
    guint64 (*random)(LhEnv *env);
    LhTimer *(*timer_at)(LhEnv *env, gint64 mono_ms, LhTimerFunc func, gpointer data);
    void (*timer_cancel)(LhEnv *env, LhTimer *timer);
    void (*free)(LhEnv *env);
} LhEnvVtable;

struct LhEnv {
    const LhEnvVtable *v;
};

static inline gint64 lh_wall_ms(LhEnv *env)
{
    return env->v->wall_ms(env);
}
static inline gint64 lh_mono_ms(LhEnv *env)
{
    return env->v->mono_ms(env);
}
static inline guint64 lh_random(LhEnv *env)
{
    return env->v->random(env);
}

/* Runs @func once when mono_ms() >= @mono_ms (at the next turn of the loop if that is past).
 * The handle is valid until it fired or was cancelled. */
static inline LhTimer *lh_timer_at(LhEnv *env, gint64 mono_ms, LhTimerFunc func, gpointer data)
{
    return env->v->timer_at(env, mono_ms, func, data);
}
static inline LhTimer *lh_timer_in(LhEnv *env, gint64 delay_ms, LhTimerFunc func, gpointer data)
{
    gint64 now = env->v->mono_ms(env);
    gint64 at = delay_ms > G_MAXINT64 - now ? G_MAXINT64 : now + delay_ms;
    return env->v->timer_at(env, at, func, data);
}

/* Cancels *@timer if it is not NULL, and sets it to NULL. A timer function must set the handle that
 * its owner keeps to NULL itself when it fires. */
static inline void lh_timer_clear(LhEnv *env, LhTimer **timer)
{
    if (*timer != NULL) {
        env->v->timer_cancel(env, *timer);
        *timer = NULL;
    }
}

/* Uniform in [0, n). n > 0. */
static inline guint64 lh_random_below(LhEnv *env, guint64 n)
{
    return env->v->random(env) % n;
}

/* Full-jitter exponential backoff: uniform in [base/2, base] where base = min(cap, first <<
 * attempt). attempt counts from 0 and may be anything. Milliseconds; 0 when first or cap is not
 * positive. */
gint64 lh_backoff_ms(LhEnv *env, guint attempt, gint64 first_ms, gint64 cap_ms);

/* The real one, on @context (NULL: the default one), with a timerfd of its own. The context must be
 * the one that the calling thread runs. Freeing it drops its timers without firing them. */
LhEnv *lh_env_glib_new(GMainContext *context);
void lh_env_free(LhEnv *env); /* accepts NULL */

/*
 * The real LhEnv: kernel clocks, getrandom(2), and timers as one GSource on a main context.
 *
 * All timers of an env share one timerfd on CLOCK_BOOTTIME, so a timer that came due while the
 * machine was suspended fires right after it wakes; GLib's own timeouts count CLOCK_MONOTONIC,
 * which stands still meanwhile. A turn of the loop takes out all that is due first and runs it
 * then, so a timer made by a timer waits for the next turn. Loop thread only; no locks.
 */
#include "base/env.h"

#include <errno.h>
#include <glib-unix.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define DISARMED G_MAXINT64

struct LhTimer {
    gint64 due_ms;
    guint64 serial; /* timers that are due at the same time fire in the order they were made */
    LhTimerFunc func;
    gpointer data;
    GSequenceIter *waiting; /* NULL once it was moved to the batch that is being fired */
    GList link;             /* in the batch */
};

/* Holds everything a turn needs: GLib keeps the source alive while it dispatches, so a timer may
 * free the env. */
typedef struct {
    GSource base;
    int fd;
    gint64 armed_ms;
    guint64 next_serial;
    GSequence *waiting; /* LhTimer, by due_ms, serial */
    GQueue firing;      /* LhTimer.link */
} TimerSource;

typedef struct {
    LhEnv base;
    TimerSource *timers;
} GlibEnv;

static gint64 read_clock_ms(clockid_t id)
{
    struct timespec ts;
    int r = clock_gettime(id, &ts);
    g_assert(r == 0);
    return (gint64)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static gint64 wall_ms(G_GNUC_UNUSED LhEnv *env)
{
    return read_clock_ms(CLOCK_REALTIME);
}

static gint64 mono_ms(G_GNUC_UNUSED LhEnv *env)
{
    return read_clock_ms(CLOCK_BOOTTIME);
}

static guint64 random_u64(G_GNUC_UNUSED LhEnv *env)
{
    guint64 value;
    ssize_t n;
    do {
        n = getrandom(&value, sizeof value, 0);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof value)
        g_error("getrandom: %s", n < 0 ? g_strerror(errno) : "short read");
    return value;
}

static gint compare_timers(gconstpointer a, gconstpointer b, G_GNUC_UNUSED gpointer data)
{
    const LhTimer *x = a;
    const LhTimer *y = b;
    if (x->due_ms != y->due_ms)
        return x->due_ms < y->due_ms ? -1 : 1;
    return x->serial < y->serial ? -1 : x->serial > y->serial;
}

static LhTimer *first_waiting(TimerSource *source)
{
    GSequenceIter *iter = g_sequence_get_begin_iter(source->waiting);
    return g_sequence_iter_is_end(iter) ? NULL : g_sequence_get(iter);
}

static gboolean is_due(TimerSource *source)
{
    LhTimer *first = first_waiting(source);
    return first != NULL && first->due_ms <= read_clock_ms(CLOCK_BOOTTIME);
}

/* Nobody reads the timerfd: setting it makes it unreadable again, and one that expired is set anew
 * before the next poll, because by then the timer that it was armed for has fired or is cancelled. */
static void arm(TimerSource *source, gint64 at_ms)
{
    if (source->armed_ms == at_ms)
        return;
    struct itimerspec spec = {0};
    if (at_ms != DISARMED) {
        spec.it_value.tv_sec = (time_t)(at_ms / 1000);
        spec.it_value.tv_nsec = (long)(at_ms % 1000) * 1000000;
    }
    if (timerfd_settime(source->fd, TFD_TIMER_ABSTIME, &spec, NULL) != 0)
        g_error("timerfd_settime: %s", g_strerror(errno));
    source->armed_ms = at_ms;
}

static gboolean timers_prepare(GSource *base, gint *timeout_ms)
{
    TimerSource *source = (TimerSource *)base;
    *timeout_ms = -1;
    if (is_due(source))
        return TRUE;
    /* Not due means due_ms > now >= 0, so the value cannot be the 0 that disarms. */
    LhTimer *first = first_waiting(source);
    arm(source, first != NULL ? first->due_ms : DISARMED);
    return FALSE;
}

static gboolean timers_check(GSource *base)
{
    return is_due((TimerSource *)base);
}

static gboolean timers_dispatch(GSource *base, G_GNUC_UNUSED GSourceFunc callback,
                                G_GNUC_UNUSED gpointer data)
{
    TimerSource *source = (TimerSource *)base;
    gint64 now = read_clock_ms(CLOCK_BOOTTIME);
    LhTimer *timer;
    while ((timer = first_waiting(source)) != NULL && timer->due_ms <= now) {
        g_sequence_remove(g_steal_pointer(&timer->waiting));
        g_queue_push_tail_link(&source->firing, &timer->link);
    }
    /* A timer may cancel others of this batch, or free the env, which empties it. */
    while ((timer = g_queue_peek_head(&source->firing)) != NULL) {
        LhTimerFunc func = timer->func;
        gpointer func_data = timer->data;
        g_queue_unlink(&source->firing, &timer->link);
        g_free(timer);
        func(func_data);
    }
    return G_SOURCE_CONTINUE;
}

static void timers_finalize(GSource *base)
{
    TimerSource *source = (TimerSource *)base;
    g_sequence_free(source->waiting);
    close(source->fd);
}

static GSourceFuncs timer_funcs = {
    .prepare = timers_prepare,
    .check = timers_check,
    .dispatch = timers_dispatch,
    .finalize = timers_finalize,
};

static LhTimer *timer_at(LhEnv *base, gint64 due_ms, LhTimerFunc func, gpointer data)
{
    TimerSource *source = ((GlibEnv *)base)->timers;
    LhTimer *timer = g_new0(LhTimer, 1);
    timer->due_ms = due_ms;
    timer->serial = source->next_serial++;
    timer->func = func;
    timer->data = data;
    timer->link.data = timer;
    timer->waiting = g_sequence_insert_sorted(source->waiting, timer, compare_timers, NULL);
    return timer;
}

static void discard(TimerSource *source, LhTimer *timer)
{
    if (timer->waiting != NULL)
        g_sequence_remove(timer->waiting);
    else
        g_queue_unlink(&source->firing, &timer->link);
    g_free(timer);
}

static void timer_cancel(LhEnv *base, LhTimer *timer)
{
    discard(((GlibEnv *)base)->timers, timer);
}

static void env_glib_free(LhEnv *base)
{
    GlibEnv *env = (GlibEnv *)base;
    LhTimer *timer;
    while ((timer = first_waiting(env->timers)) != NULL)
        discard(env->timers, timer);
    while ((timer = g_queue_peek_head(&env->timers->firing)) != NULL)
        discard(env->timers, timer);
    g_source_destroy(&env->timers->base);
    g_source_unref(&env->timers->base);
    g_free(env);
}

static const LhEnvVtable vtable = {
    .wall_ms = wall_ms,
    .mono_ms = mono_ms,
    .random = random_u64,
    .timer_at = timer_at,
    .timer_cancel = timer_cancel,
    .free = env_glib_free,
};

LhEnv *lh_env_glib_new(GMainContext *context)
{
    int fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0)
        g_error("timerfd_create: %s", g_strerror(errno));
    TimerSource *source = (TimerSource *)g_source_new(&timer_funcs, sizeof *source);
    g_source_set_name(&source->base, "leasehold timers");
    source->fd = fd;
    g_source_add_unix_fd(&source->base, fd, G_IO_IN);
    source->armed_ms = DISARMED;
    source->waiting = g_sequence_new(NULL);
    g_queue_init(&source->firing);
    g_source_attach(&source->base, context);

    GlibEnv *env = g_new0(GlibEnv, 1);
    env->base.v = &vtable;
    env->timers = source;
    return &env->base;
}

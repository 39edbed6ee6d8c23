/*
 * base/env_glib: timers on a real main context. Each test has a context of its own and turns it
 * until its condition holds; a watchdog ends a test that hangs. No sleeping.
 */
#include "base/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WATCHDOG_SECONDS 20

typedef struct {
    GMainContext *context;
    LhEnv *env;
    GString *log; /* what fired, in order */
} Fixture;

typedef struct Probe Probe;
struct Probe {
    Fixture *f;
    char name;
    gint64 due_ms;
    LhTimer *timer;
    LhTimer **victim; /* cancelled when this one fires */
    Probe *spawn;     /* set for now when this one fires */
    gboolean free_env;
};

static int setup(void **state)
{
    alarm(WATCHDOG_SECONDS);
    Fixture *f = g_new0(Fixture, 1);
    f->context = g_main_context_new();
    f->env = lh_env_glib_new(f->context);
    f->log = g_string_new(NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_env_free(f->env);
    g_main_context_unref(f->context);
    g_string_free(f->log, TRUE);
    g_free(f);
    alarm(0);
    return 0;
}

static void start(Probe *probe, gint64 at_ms);

static void fired(gpointer data)
{
    Probe *probe = data;
    Fixture *f = probe->f;
    probe->timer = NULL;
    assert_true(lh_mono_ms(f->env) >= probe->due_ms);
    g_string_append_c(f->log, probe->name);
    if (probe->victim != NULL)
        lh_timer_clear(f->env, probe->victim);
    if (probe->spawn != NULL)
        start(probe->spawn, lh_mono_ms(f->env));
    if (probe->free_env)
        lh_env_free(g_steal_pointer(&f->env));
}

static void start(Probe *probe, gint64 at_ms)
{
    gsize before = probe->f->log->len;
    probe->due_ms = at_ms;
    probe->timer = lh_timer_at(probe->f->env, at_ms, fired, probe);
    assert_non_null(probe->timer);
    assert_int_equal(probe->f->log->len, before); /* never inside lh_timer_at */
}

static void run_until(Fixture *f, gsize n_fired)
{
    while (f->log->len < n_fired)
        g_main_context_iteration(f->context, TRUE);
}

static void clocks_are_the_kernels(void **state)
{
    Fixture *f = *state;
    struct timespec boot;
    assert_int_equal(clock_gettime(CLOCK_BOOTTIME, &boot), 0);
    gint64 boot_ms = (gint64)boot.tv_sec * 1000 + boot.tv_nsec / 1000000;
    gint64 mono = lh_mono_ms(f->env);
    assert_true(mono >= boot_ms && mono - boot_ms < 10000);
    assert_true(lh_mono_ms(f->env) >= mono);
    gint64 wall = lh_wall_ms(f->env);
    assert_true(ABS(wall - g_get_real_time() / 1000) < 10000);
}

static void random_numbers_use_all_bits(void **state)
{
    Fixture *f = *state;
    guint64 ones = 0;
    guint64 zeros = 0;
    for (guint i = 0; i < 200; i++) {
        guint64 value = lh_random(f->env);
        ones |= value;
        zeros |= ~value;
        assert_true(lh_random_below(f->env, 7) < 7);
        assert_int_equal(lh_random_below(f->env, 1), 0);
    }
    assert_true(ones == G_MAXUINT64 && zeros == G_MAXUINT64);
}

static void timers_fire_by_due_time_then_by_age(void **state)
{
    Fixture *f = *state;
    gint64 t = lh_mono_ms(f->env) + 5;
    Probe p[] = {{.f = f, .name = 'e'},
                 {.f = f, .name = 'a'},
                 {.f = f, .name = 'c'},
                 {.f = f, .name = 'b'},
                 {.f = f, .name = 'd'}};
    start(&p[0], t + 9);
    start(&p[1], t - 100000); /* past */
    start(&p[2], t + 3);
    start(&p[3], t);
    start(&p[4], t + 3); /* as p[2]: the older one first */
    run_until(f, 5);
    assert_string_equal(f->log->str, "abcde");
}

static void simultaneous_timers_fire_in_the_order_they_were_made(void **state)
{
    Fixture *f = *state;
    Probe p[20];
    gint64 t = lh_mono_ms(f->env) + 2;
    for (guint i = 0; i < G_N_ELEMENTS(p); i++) {
        p[i] = (Probe){.f = f, .name = (char)('a' + i)};
        start(&p[i], t);
    }
    run_until(f, G_N_ELEMENTS(p));
    assert_string_equal(f->log->str, "abcdefghijklmnopqrst");
}

static void a_timer_fires_once_and_not_early(void **state)
{
    Fixture *f = *state;
    Probe once = {.f = f, .name = 'x'};
    Probe last = {.f = f, .name = 'y'};
    gint64 now = lh_mono_ms(f->env);
    start(&once, now + 3);
    start(&last, now + 15);
    run_until(f, 2); /* fired() checks the clock */
    while (g_main_context_iteration(f->context, FALSE)) {
    }
    assert_string_equal(f->log->str, "xy");
}

static void a_cancelled_timer_never_fires(void **state)
{
    Fixture *f = *state;
    Probe gone = {.f = f, .name = 'g'};
    Probe stays = {.f = f, .name = 's'};
    gint64 now = lh_mono_ms(f->env);
    start(&gone, now);
    start(&stays, now + 5);
    lh_timer_clear(f->env, &gone.timer);
    assert_null(gone.timer);
    lh_timer_clear(f->env, &gone.timer);
    run_until(f, 1);
    assert_string_equal(f->log->str, "s");
}

/* Whichever fires first cancels the other, although both are due in the same turn. */
static void timers_due_together_can_cancel_each_other(void **state)
{
    Fixture *f = *state;
    Probe a = {.f = f, .name = 'a'};
    Probe b = {.f = f, .name = 'b'};
    Probe c = {.f = f, .name = 'c'};
    a.victim = &b.timer;
    b.victim = &a.timer;
    gint64 now = lh_mono_ms(f->env);
    start(&a, now - 2);
    start(&b, now - 1);
    start(&c, now);
    run_until(f, 2);
    assert_string_equal(f->log->str, "ac");
    assert_null(b.timer);
}

static void a_timer_can_cancel_a_later_one(void **state)
{
    Fixture *f = *state;
    Probe a = {.f = f, .name = 'a'};
    Probe b = {.f = f, .name = 'b'};
    Probe c = {.f = f, .name = 'c'};
    a.victim = &b.timer;
    gint64 now = lh_mono_ms(f->env);
    start(&a, now);
    start(&b, now + 4);
    start(&c, now + 8);
    run_until(f, 2);
    assert_string_equal(f->log->str, "ac");
}

/* A timer set by a timer for "now" waits for the next turn: others due in this turn go first, and
 * other sources of the loop get their turn. */
static void a_timer_made_by_a_timer_waits_for_the_next_turn(void **state)
{
    Fixture *f = *state;
    Probe child = {.f = f, .name = 'n'};
    Probe a = {.f = f, .name = 'a'};
    Probe b = {.f = f, .name = 'b'};
    a.spawn = &child;
    gint64 now = lh_mono_ms(f->env);
    start(&a, now - 10);
    start(&b, now - 5);
    assert_true(g_main_context_iteration(f->context, TRUE));
    assert_string_equal(f->log->str, "ab");
    assert_non_null(child.timer);
    assert_true(g_main_context_iteration(f->context, TRUE));
    assert_string_equal(f->log->str, "abn");
}

static void an_earlier_timer_is_not_kept_waiting(void **state)
{
    Fixture *f = *state;
    Probe far = {.f = f, .name = 'f'};
    Probe near = {.f = f, .name = 'n'};
    start(&far, lh_mono_ms(f->env) + 3600 * 1000);
    g_main_context_iteration(f->context, FALSE); /* armed for the far one */
    start(&near, lh_mono_ms(f->env) + 3);
    run_until(f, 1);
    assert_string_equal(f->log->str, "n");
    lh_timer_clear(f->env, &far.timer);
}

static gboolean note_turn(gpointer data)
{
    (*(guint *)data)++;
    return G_SOURCE_REMOVE;
}

/* An expired descriptor stays readable: a loop that does not set it anew spins until the next timer. */
static void a_wake_up_for_a_cancelled_timer_does_not_spin(void **state)
{
    Fixture *f = *state;
    Probe gone = {.f = f, .name = 'g'};
    Probe last = {.f = f, .name = 'l'};
    gint64 now = lh_mono_ms(f->env);
    start(&gone, now + 2);
    g_main_context_iteration(f->context, FALSE); /* armed for it */
    lh_timer_clear(f->env, &gone.timer);
    gint64 t = lh_mono_ms(f->env) + 60;
    while (lh_mono_ms(f->env) < now + 4) { /* let it expire */
    }
    start(&last, t);
    guint turns = 0;
    while (f->log->len < 1) {
        g_main_context_iteration(f->context, TRUE);
        turns++;
    }
    assert_true(turns <= 4);
}

static void extreme_due_times_are_harmless(void **state)
{
    Fixture *f = *state;
    Probe never = {.f = f, .name = 'n'};
    Probe almost = {.f = f, .name = 'm'};
    Probe first = {.f = f, .name = 'a'};
    Probe zero = {.f = f, .name = 'b'};
    start(&never, G_MAXINT64);
    start(&almost, G_MAXINT64 - 1);
    g_main_context_iteration(f->context, FALSE);
    start(&zero, 0);
    start(&first, G_MININT64);
    run_until(f, 2);
    assert_false(g_main_context_iteration(f->context, FALSE));
    assert_string_equal(f->log->str, "ab");
}

static void freeing_drops_what_waits(void **state)
{
    Fixture *f = *state;
    Probe p[] = {{.f = f, .name = 'a'}, {.f = f, .name = 'b'}};
    start(&p[0], lh_mono_ms(f->env));
    start(&p[1], lh_mono_ms(f->env) + 1000000);
    lh_env_free(g_steal_pointer(&f->env));
    while (g_main_context_iteration(f->context, FALSE)) {
    }
    assert_int_equal(f->log->len, 0);
}

static void a_timer_may_free_the_env(void **state)
{
    Fixture *f = *state;
    Probe a = {.f = f, .name = 'a'};
    Probe b = {.f = f, .name = 'b'};
    Probe c = {.f = f, .name = 'c'};
    a.free_env = TRUE;
    gint64 now = lh_mono_ms(f->env);
    start(&a, now - 1);
    start(&b, now);
    start(&c, now + 1000000);
    run_until(f, 1);
    while (g_main_context_iteration(f->context, FALSE)) {
    }
    assert_string_equal(f->log->str, "a");
    assert_null(f->env);
}

static void an_env_without_timers_lets_the_loop_sleep(void **state)
{
    Fixture *f = *state;
    Probe a = {.f = f, .name = 'a'};
    start(&a, lh_mono_ms(f->env));
    run_until(f, 1);
    guint turns = 0;
    GSource *wake = g_timeout_source_new(10);
    g_source_set_callback(wake, note_turn, &turns, NULL);
    g_source_attach(wake, f->context);
    guint iterations = 0;
    while (turns == 0) {
        g_main_context_iteration(f->context, TRUE);
        iterations++;
    }
    g_source_unref(wake);
    assert_true(iterations <= 3);
}

static void many_timers_random_order(void **state)
{
    Fixture *f = *state;
    enum { N = 2000 };
    g_autofree Probe *p = g_new0(Probe, N);
    gint64 now = lh_mono_ms(f->env);
    guint kept = 0;
    for (guint i = 0; i < N; i++) {
        p[i] = (Probe){.f = f, .name = 'x'};
        start(&p[i], now + (gint64)lh_random_below(f->env, 20));
    }
    for (guint i = 0; i < N; i++) {
        if (i % 3 == 0)
            lh_timer_clear(f->env, &p[i].timer);
        else
            kept++;
    }
    run_until(f, kept);
    assert_int_equal(f->log->len, kept);
    for (guint i = 0; i < N; i++)
        assert_null(p[i].timer);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(clocks_are_the_kernels),
        T(random_numbers_use_all_bits),
        T(timers_fire_by_due_time_then_by_age),
        T(simultaneous_timers_fire_in_the_order_they_were_made),
        T(a_timer_fires_once_and_not_early),
        T(a_cancelled_timer_never_fires),
        T(timers_due_together_can_cancel_each_other),
        T(a_timer_can_cancel_a_later_one),
        T(a_timer_made_by_a_timer_waits_for_the_next_turn),
        T(an_earlier_timer_is_not_kept_waiting),
        T(a_wake_up_for_a_cancelled_timer_does_not_spin),
        T(extreme_due_times_are_harmless),
        T(freeing_drops_what_waits),
        T(a_timer_may_free_the_env),
        T(an_env_without_timers_lets_the_loop_sleep),
        T(many_timers_random_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

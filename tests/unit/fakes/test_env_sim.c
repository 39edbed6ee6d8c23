/*
 * tests/fakes/env_sim: order, pausing, crashing, clocks, and that a seed is a run.
 */
#include "tests/fakes/env_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct {
    LhEnv *env;
    GString *log;
    const char *name;
    LhTimer *timer;
} Note;

static void note(gpointer data)
{
    Note *n = data;
    n->timer = NULL;
    g_string_append(n->log, n->name);
}

static void timers_run_in_order_of_time(void **state)
{
    SimWorld *world = sim_world_new(1);
    LhEnv *env = sim_machine_new(world, "m");
    g_autoptr(GString) log = g_string_new(NULL);
    Note notes[] = {{env, log, "c", NULL},
                    {env, log, "a", NULL},
                    {env, log, "b", NULL},
                    {env, log, "d", NULL},
                    {env, log, "0", NULL}};
    gint64 start = lh_mono_ms(env);
    notes[0].timer = lh_timer_in(env, 30, note, &notes[0]);
    notes[1].timer = lh_timer_in(env, 10, note, &notes[1]);
    notes[2].timer = lh_timer_in(env, 20, note, &notes[2]);
    notes[3].timer = lh_timer_in(env, 30, note, &notes[3]); /* same time: order of creation */
    notes[4].timer = lh_timer_at(env, start - 100, note, &notes[4]);
    assert_int_equal(sim_world_next_ms(world), 0);
    sim_world_run_until(world, 20);
    assert_string_equal(log->str, "0ab");
    assert_int_equal(lh_mono_ms(env) - start, 20);
    sim_world_run_until(world, 29);
    assert_string_equal(log->str, "0ab");
    assert_int_equal(sim_world_now_ms(world), 29);
    assert_true(sim_world_step(world));
    assert_true(sim_world_step(world));
    assert_false(sim_world_step(world));
    assert_string_equal(log->str, "0abcd");
    assert_int_equal(sim_world_steps(world), 5);
    sim_world_free(world);
}

static void timer_cancelled_does_not_run(void **state)
{
    SimWorld *world = sim_world_new(1);
    LhEnv *env = sim_machine_new(world, "m");
    g_autoptr(GString) log = g_string_new(NULL);
    Note notes[] = {{env, log, "a", NULL}, {env, log, "b", NULL}, {env, log, "c", NULL}};
    for (gsize i = 0; i < 3; i++) {
        notes[i].timer = lh_timer_in(env, (gint64)i, note, &notes[i]);
    }
    lh_timer_clear(env, &notes[1].timer);
    assert_int_equal(sim_world_pending(world), 2);
    sim_world_run_until(world, 10);
    assert_string_equal(log->str, "ac");
    sim_world_free(world);
}

static void paused_machine_runs_late_and_in_order(void **state)
{
    SimWorld *world = sim_world_new(1);
    LhEnv *a = sim_machine_new(world, "a");
    LhEnv *b = sim_machine_new(world, "b");
    g_autoptr(GString) log = g_string_new(NULL);
    Note notes[] = {{a, log, "2", NULL},
                    {a, log, "1", NULL},
                    {b, log, "b", NULL},
                    {a, log, "x", NULL},
                    {a, log, "3", NULL}};
    notes[0].timer = lh_timer_in(a, 20, note, &notes[0]);
    notes[1].timer = lh_timer_in(a, 10, note, &notes[1]);
    notes[2].timer = lh_timer_in(b, 15, note, &notes[2]);
    notes[3].timer = lh_timer_in(a, 12, note, &notes[3]);
    notes[4].timer = lh_timer_in(a, 120, note, &notes[4]);
    sim_machine_pause(a);
    assert_true(sim_machine_paused(a));
    sim_world_run_until(world, 100);
    assert_string_equal(log->str, "b");
    assert_false(sim_world_step(world)); /* what is left belongs to a paused machine */
    lh_timer_clear(a, &notes[3].timer);  /* held ones can be cancelled */
    sim_machine_resume(a);
    assert_int_equal(sim_world_next_ms(world), 100);
    sim_world_run_until(world, 100);
    assert_string_equal(log->str, "b12");
    sim_world_run_until(world, 200);
    assert_string_equal(log->str, "b123");
    sim_world_free(world);
}

static void crashed_machine_is_silent_and_can_be_cleaned_up(void **state)
{
    SimWorld *world = sim_world_new(1);
    LhEnv *a = sim_machine_new(world, "a");
    LhEnv *b = sim_machine_new(world, "b");
    g_autoptr(GString) log = g_string_new(NULL);
    Note notes[] = {
        {a, log, "1", NULL}, {a, log, "2", NULL}, {b, log, "b", NULL}, {a, log, "3", NULL}};
    notes[0].timer = lh_timer_in(a, 10, note, &notes[0]);
    notes[1].timer = lh_timer_in(a, 20, note, &notes[1]);
    notes[2].timer = lh_timer_in(b, 30, note, &notes[2]);
    sim_machine_pause(a);
    sim_world_run_until(world, 15); /* one is held, one is not due yet */
    sim_machine_crash(a);
    sim_machine_resume(a);
    notes[3].timer = lh_timer_in(a, 5, note, &notes[3]);
    sim_world_run_until(world, 100);
    assert_string_equal(log->str, "b");
    assert_true(sim_machine_crashed(a));
    lh_timer_clear(a, &notes[0].timer);
    lh_timer_clear(a, &notes[3].timer);
    lh_env_free(a); /* with one timer left */
    assert_int_equal(sim_world_pending(world), 0);
    sim_world_free(world);
}

static void clocks_have_offsets(void **state)
{
    SimWorld *world = sim_world_new(1);
    LhEnv *a = sim_machine_new(world, "a");
    LhEnv *b = sim_machine_new(world, "b");
    assert_int_not_equal(lh_mono_ms(a), lh_mono_ms(b));
    assert_int_equal(lh_mono_ms(a) - sim_machine_mono_offset(a), 0);
    assert_int_equal(lh_wall_ms(a), SIM_WALL_START_MS);
    sim_machine_set_wall_offset(b, -60000);
    sim_world_run_until(world, 5);
    assert_int_equal(lh_wall_ms(a), SIM_WALL_START_MS + 5);
    assert_int_equal(lh_wall_ms(b), SIM_WALL_START_MS + 5 - 60000);
    assert_int_equal(lh_mono_ms(b) - sim_machine_mono_offset(b), 5);
    assert_string_equal(sim_machine_name(b), "b");
    sim_world_free(world);
}

/* ---- a storm of timers, against what a plain list says ---- */

typedef struct {
    SimWorld *world;
    LhEnv *machines[4];
    guint64 hash;
    guint fired;
    gint64 last_ms;
    GPtrArray *live;
} Storm;

typedef struct {
    Storm *storm;
    LhEnv *env;
    gint64 due_ms;
    guint id;
    LhTimer *timer;
} Drop;

static void add_drop(Storm *storm, guint id);

static void on_drop(gpointer data)
{
    Drop *drop = data;
    Storm *storm = drop->storm;
    gint64 now = sim_world_now_ms(storm->world);
    assert_int_equal(now, drop->due_ms);
    assert_true(now >= storm->last_ms);
    storm->last_ms = now;
    storm->hash = (storm->hash ^ drop->id) * G_GUINT64_CONSTANT(1099511628211);
    storm->fired++;
    g_ptr_array_remove_fast(storm->live, drop);
    if (storm->fired < 20000) {
        add_drop(storm, drop->id + 1000);
    }
    if (storm->live->len > 0 && lh_random_below(drop->env, 4) == 0) {
        guint64 i = lh_random_below(drop->env, storm->live->len);
        Drop *victim = storm->live->pdata[i];
        lh_timer_clear(victim->env, &victim->timer);
        add_drop(storm, victim->id + 7);
        g_ptr_array_remove_fast(storm->live, victim);
        g_free(victim);
    }
    g_free(drop);
}

static void add_drop(Storm *storm, guint id)
{
    Drop *drop = g_new0(Drop, 1);
    drop->storm = storm;
    drop->id = id;
    drop->env = storm->machines[sim_world_below(storm->world, 4)];
    gint64 delay = (gint64)sim_world_below(storm->world, 50);
    drop->due_ms = sim_world_now_ms(storm->world) + delay;
    drop->timer = lh_timer_in(drop->env, delay, on_drop, drop);
    g_ptr_array_add(storm->live, drop);
}

static guint64 run_storm(guint64 seed)
{
    Storm storm = {.world = sim_world_new(seed), .live = g_ptr_array_new()};
    for (guint i = 0; i < 4; i++) {
        storm.machines[i] = sim_machine_new(storm.world, "m");
    }
    for (guint i = 0; i < 200; i++) {
        add_drop(&storm, i);
    }
    while (sim_world_step(storm.world)) {
    }
    assert_true(storm.fired >= 20000);
    assert_int_equal(storm.live->len, 0);
    g_ptr_array_free(storm.live, TRUE);
    sim_world_free(storm.world);
    return storm.hash;
}

static void storm_is_ordered_and_a_function_of_its_seed(void **state)
{
    guint64 one = run_storm(1);
    assert_true(one == run_storm(1));
    assert_true(one != run_storm(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_run_in_order_of_time),
        cmocka_unit_test(timer_cancelled_does_not_run),
        cmocka_unit_test(paused_machine_runs_late_and_in_order),
        cmocka_unit_test(crashed_machine_is_silent_and_can_be_cleaned_up),
        cmocka_unit_test(clocks_have_offsets),
        cmocka_unit_test(storm_is_ordered_and_a_function_of_its_seed),
    };
    return cmocka_run_group_tests_name("env-sim", tests, NULL, NULL);
}

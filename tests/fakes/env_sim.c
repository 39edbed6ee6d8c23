/*
 * The simulation's scheduler: one indexed binary heap of all runnable timers, one for each paused
 * machine, and a list for each machine so that a crash finds its timers.
 *
 * Must not read a real clock or any randomness but the seed: a run is a function of the seed.
 */
#include "env_sim.h"

typedef struct {
    GPtrArray *timers; /* LhTimer*, a binary heap; each timer knows its place */
} SimHeap;

typedef struct SimMachine {
    LhEnv env;
    SimWorld *world;
    char *name;
    guint64 random_state;
    guint id;
    gint64 wall_offset_ms, mono_offset_ms;
    gboolean paused, crashed;
    SimHeap held;  /* timers that came due while paused */
    GQueue timers; /* all its timers; their own links */
} SimMachine;

struct LhTimer {
    SimMachine *machine;
    gint64 at_ms; /* world time */
    guint64 order, seq;
    LhTimerFunc func;
    gpointer data;
    SimHeap *heap; /* NULL: dead */
    guint place;
    GList link;
};

struct SimWorld {
    gint64 now_ms;
    guint64 seed, random_state, next_seq, steps;
    SimHeap heap;
    GPtrArray *machines;
    guint next_machine, pending;
};

static guint64 mix(guint64 x)
{
    x = (x ^ (x >> 30)) * G_GUINT64_CONSTANT(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * G_GUINT64_CONSTANT(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static guint64 next_random(guint64 *state) /* splitmix64 */
{
    *state += G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    return mix(*state);
}

static gboolean before(const LhTimer *a, const LhTimer *b)
{
    if (a->at_ms != b->at_ms) {
        return a->at_ms < b->at_ms;
    }
    if (a->order != b->order) {
        return a->order < b->order;
    }
    return a->seq < b->seq;
}

static void place(SimHeap *heap, guint at, LhTimer *timer)
{
    heap->timers->pdata[at] = timer;
    timer->place = at;
}

static void sift_up(SimHeap *heap, guint at)
{
    LhTimer *timer = heap->timers->pdata[at];
    while (at > 0) {
        guint parent = (at - 1) / 2;
        if (!before(timer, heap->timers->pdata[parent])) {
            break;
        }
        place(heap, at, heap->timers->pdata[parent]);
        at = parent;
    }
    place(heap, at, timer);
}

static void sift_down(SimHeap *heap, guint at)
{
    LhTimer *timer = heap->timers->pdata[at];
    for (;;) {
        guint child = 2 * at + 1;
        if (child >= heap->timers->len) {
            break;
        }
        if (child + 1 < heap->timers->len &&
            before(heap->timers->pdata[child + 1], heap->timers->pdata[child])) {
            child++;
        }
        if (!before(heap->timers->pdata[child], timer)) {
            break;
        }
        place(heap, at, heap->timers->pdata[child]);
        at = child;
    }
    place(heap, at, timer);
}

static void heap_add(SimHeap *heap, LhTimer *timer)
{
    g_ptr_array_add(heap->timers, timer);
    timer->heap = heap;
    sift_up(heap, heap->timers->len - 1);
}

static void heap_remove(LhTimer *timer)
{
    SimHeap *heap = timer->heap;
    guint at = timer->place;
    LhTimer *last = heap->timers->pdata[heap->timers->len - 1];
    g_ptr_array_set_size(heap->timers, (int)heap->timers->len - 1);
    timer->heap = NULL;
    if (last != timer) {
        place(heap, at, last);
        sift_up(heap, at);
        sift_down(heap, last->place);
    }
}

static LhTimer *heap_first(const SimHeap *heap)
{
    return heap->timers->len > 0 ? heap->timers->pdata[0] : NULL;
}

/* ---- one machine's LhEnv ---- */

static gint64 sim_wall_ms(LhEnv *env)
{
    SimMachine *machine = (SimMachine *)env;
    return SIM_WALL_START_MS + machine->world->now_ms + machine->wall_offset_ms;
}

static gint64 sim_mono_ms(LhEnv *env)
{
    SimMachine *machine = (SimMachine *)env;
    return machine->world->now_ms + machine->mono_offset_ms;
}

static guint64 sim_random(LhEnv *env)
{
    return next_random(&((SimMachine *)env)->random_state);
}

static LhTimer *sim_timer_at(LhEnv *env, gint64 mono_ms, LhTimerFunc func, gpointer data)
{
    SimMachine *machine = (SimMachine *)env;
    SimWorld *world = machine->world;
    LhTimer *timer = g_new0(LhTimer, 1);
    timer->machine = machine;
    timer->at_ms = MAX(mono_ms - machine->mono_offset_ms, world->now_ms);
    timer->order = mix(world->seed ^ mix((guint64)timer->at_ms ^ ((guint64)machine->id << 44)));
    timer->seq = world->next_seq++;
    timer->func = func;
    timer->data = data;
    timer->link.data = timer;
    g_queue_push_tail_link(&machine->timers, &timer->link);
    world->pending++;
    if (!machine->crashed) {
        heap_add(&world->heap, timer);
    }
    return timer;
}

static void timer_free(LhTimer *timer)
{
    if (timer->heap != NULL) {
        heap_remove(timer);
    }
    timer->machine->world->pending--;
    g_queue_unlink(&timer->machine->timers, &timer->link);
    g_free(timer);
}

static void sim_timer_cancel(LhEnv *env, LhTimer *timer)
{
    g_assert(timer->machine == (SimMachine *)env);
    timer_free(timer);
}

static void sim_machine_free(LhEnv *env)
{
    SimMachine *machine = (SimMachine *)env;
    while (machine->timers.head != NULL) {
        timer_free(machine->timers.head->data);
    }
    g_ptr_array_free(machine->held.timers, TRUE);
    g_ptr_array_remove(machine->world->machines, machine);
    g_free(machine->name);
    g_free(machine);
}

static const LhEnvVtable sim_vtable = {
    .wall_ms = sim_wall_ms,
    .mono_ms = sim_mono_ms,
    .random = sim_random,
    .timer_at = sim_timer_at,
    .timer_cancel = sim_timer_cancel,
    .free = sim_machine_free,
};

static SimMachine *machine_of(const LhEnv *env)
{
    g_assert(env->v == &sim_vtable);
    return (SimMachine *)env;
}

LhEnv *sim_machine_new(SimWorld *world, const char *name)
{
    SimMachine *machine = g_new0(SimMachine, 1);
    machine->env.v = &sim_vtable;
    machine->world = world;
    machine->name = g_strdup(name);
    machine->id = ++world->next_machine;
    machine->random_state = mix(world->seed + machine->id);
    machine->mono_offset_ms = (gint64)machine->id * 10000000;
    machine->held.timers = g_ptr_array_new();
    g_queue_init(&machine->timers);
    g_ptr_array_add(world->machines, machine);
    return &machine->env;
}

const char *sim_machine_name(const LhEnv *env)
{
    return machine_of(env)->name;
}

void sim_machine_pause(LhEnv *env)
{
    machine_of(env)->paused = TRUE;
}

void sim_machine_resume(LhEnv *env)
{
    SimMachine *machine = machine_of(env);
    LhTimer *timer;
    machine->paused = FALSE;
    while ((timer = heap_first(&machine->held)) != NULL) {
        heap_remove(timer);
        heap_add(&machine->world->heap, timer);
    }
}

gboolean sim_machine_paused(const LhEnv *env)
{
    return machine_of(env)->paused;
}

void sim_machine_crash(LhEnv *env)
{
    SimMachine *machine = machine_of(env);
    machine->crashed = TRUE;
    for (GList *l = machine->timers.head; l != NULL; l = l->next) {
        LhTimer *timer = l->data;
        if (timer->heap != NULL) {
            heap_remove(timer);
        }
    }
}

gboolean sim_machine_crashed(const LhEnv *env)
{
    return machine_of(env)->crashed;
}

void sim_machine_set_wall_offset(LhEnv *env, gint64 offset_ms)
{
    machine_of(env)->wall_offset_ms = offset_ms;
}

gint64 sim_machine_mono_offset(const LhEnv *env)
{
    return machine_of(env)->mono_offset_ms;
}

/* ---- the world ---- */

SimWorld *sim_world_new(guint64 seed)
{
    SimWorld *world = g_new0(SimWorld, 1);
    world->seed = mix(seed + 1);
    world->random_state = mix(world->seed);
    world->heap.timers = g_ptr_array_new();
    world->machines = g_ptr_array_new();
    return world;
}

void sim_world_free(SimWorld *world)
{
    if (world == NULL) {
        return;
    }
    while (world->machines->len > 0) {
        sim_machine_free(world->machines->pdata[world->machines->len - 1]);
    }
    g_ptr_array_free(world->machines, TRUE);
    g_ptr_array_free(world->heap.timers, TRUE);
    g_free(world);
}

gint64 sim_world_now_ms(const SimWorld *world)
{
    return world->now_ms;
}

guint64 sim_world_random(SimWorld *world)
{
    return next_random(&world->random_state);
}

guint64 sim_world_below(SimWorld *world, guint64 n)
{
    return sim_world_random(world) % n;
}

guint64 sim_world_steps(const SimWorld *world)
{
    return world->steps;
}

guint sim_world_pending(const SimWorld *world)
{
    return world->pending;
}

/* The next runnable timer; those of paused machines are put aside on the way. */
static LhTimer *first_runnable(SimWorld *world)
{
    LhTimer *timer;
    while ((timer = heap_first(&world->heap)) != NULL && timer->machine->paused) {
        heap_remove(timer);
        heap_add(&timer->machine->held, timer);
    }
    return timer;
}

gboolean sim_world_step(SimWorld *world)
{
    LhTimer *timer = first_runnable(world);
    if (timer == NULL) {
        return FALSE;
    }
    LhTimerFunc func = timer->func;
    gpointer data = timer->data;
    world->now_ms = MAX(world->now_ms, timer->at_ms);
    world->steps++;
    timer_free(timer);
    func(data);
    return TRUE;
}

gint64 sim_world_next_ms(SimWorld *world)
{
    LhTimer *timer = first_runnable(world);
    return timer != NULL ? MAX(timer->at_ms, world->now_ms) : G_MAXINT64;
}

void sim_world_run_until(SimWorld *world, gint64 now_ms)
{
    while (sim_world_next_ms(world) <= now_ms) {
        sim_world_step(world);
    }
    world->now_ms = MAX(world->now_ms, now_ms);
}

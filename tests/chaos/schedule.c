/*
 * Which fault comes when: rounds, in each of which every kind happens as often as a run of CI's size wants,
 * in an order that the seed chooses, one every few seconds; several last at a time, but of etcd's own only
 * one. What cannot begin now waits for its turn.
 */
#include "chaos.h"

#include <string.h>

#define LOOK_MS  100
#define LEAST_MS 300
#define MOST_MS  3400

typedef struct {
    const Fault *fault;
    guint count;
    gboolean wanted;
} Row;

struct Schedule {
    Chaos *chaos;
    GArray *rows;     /* Row, in the order of the tables */
    GArray *round;    /* guint: rows that are still to come in this round */
    GPtrArray *going; /* Occurrence */
    guint tick;
    gint64 next_ms;
};

/* ---- which there are ---- */

static void add_table(GArray *rows, const Fault *table)
{
    for (; table->name != NULL; table++) {
        Row row = {.fault = table};
        g_array_append_val(rows, row);
    }
}

static GArray *all_rows(void)
{
    GArray *rows = g_array_new(FALSE, TRUE, sizeof(Row));
    add_table(rows, faults_of_processes);
    add_table(rows, faults_of_etcd);
    return rows;
}

static Row *row_at(GArray *rows, guint i)
{
    return &g_array_index(rows, Row, i);
}

const char *schedule_unknown(char *const *only)
{
    g_autoptr(GArray) rows = all_rows();
    for (; only != NULL && *only != NULL; only++) {
        gboolean known = FALSE;
        for (guint i = 0; i < rows->len; i++) {
            known |= strcmp(*only, row_at(rows, i)->fault->name) == 0;
        }
        if (!known) {
            return *only;
        }
    }
    return NULL;
}

void schedule_list(void)
{
    g_autoptr(GArray) rows = all_rows();
    for (guint i = 0; i < rows->len; i++) {
        const Fault *fault = row_at(rows, i)->fault;
        g_print("%-18s %s\n", fault->name, fault->what);
    }
}

Schedule *schedule_new(Chaos *chaos)
{
    char **only = chaos->options.only;
    Schedule *schedule = g_new0(Schedule, 1);
    schedule->chaos = chaos;
    schedule->rows = all_rows();
    schedule->round = g_array_new(FALSE, FALSE, sizeof(guint));
    schedule->going = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < schedule->rows->len; i++) {
        Row *row = row_at(schedule->rows, i);
        row->wanted = (only == NULL ||
                       g_strv_contains((const char *const *)only, row->fault->name)) &&
                      (row->fault->needs != FAULT_ISLAND || chaos->no_islands == NULL);
    }
    return schedule;
}

void schedule_free(Schedule *schedule)
{
    if (schedule == NULL) {
        return;
    }
    if (schedule->tick != 0) {
        g_source_remove(schedule->tick);
    }
    g_array_unref(schedule->rows);
    g_array_unref(schedule->round);
    g_ptr_array_unref(schedule->going);
    g_free(schedule);
}

/* ---- when ---- */

static void fill_round(Schedule *schedule)
{
    GRand *rand = schedule->chaos->rand;
    GArray *round = schedule->round;
    for (guint i = 0; i < schedule->rows->len; i++) {
        const Row *row = row_at(schedule->rows, i);
        for (guint n = 0; row->wanted && n < row->fault->least; n++) {
            g_array_append_val(round, i);
        }
    }
    for (guint i = round->len; i > 1; i--) {
        guint *at = (guint *)(void *)round->data, j = (guint)g_rand_int_range(rand, 0, (gint32)i);
        guint swap = at[i - 1];
        at[i - 1] = at[j];
        at[j] = swap;
    }
}

static gboolean may_begin(Schedule *schedule, const Fault *fault)
{
    for (guint i = 0; i < schedule->going->len; i++) {
        const Occurrence *o = schedule->going->pdata[i];
        if (o->fault == fault || (o->fault->needs == fault->needs &&
                                  (fault->needs == FAULT_ETCD || fault->needs == FAULT_S3))) {
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean begin(Schedule *schedule, guint row)
{
    Chaos *chaos = schedule->chaos;
    const Fault *fault = row_at(schedule->rows, row)->fault;
    if (!may_begin(schedule, fault)) {
        return FALSE;
    }
    Occurrence *o = g_new0(Occurrence, 1);
    o->fault = fault;
    o->choice = g_rand_int(chaos->rand) >> 1;
    o->began_ms = chaos_ms(chaos);
    o->until_ms = o->began_ms + fault->min_ms +
                  (gint64)(g_rand_double(chaos->rand) * (double)(fault->max_ms - fault->min_ms));
    if (!fault->begin(chaos, o)) {
        g_free(o);
        return FALSE;
    }
    chaos_say(chaos, "%s %s begins, for %" G_GINT64_FORMAT " ms", fault->name,
              o->machine != NULL ? o->machine->name : "", o->until_ms - o->began_ms);
    g_ptr_array_add(schedule->going, o);
    return TRUE;
}

static void begin_next(Schedule *schedule)
{
    if (schedule->round->len == 0) {
        fill_round(schedule);
    }
    for (guint i = 0; i < schedule->round->len; i++) {
        if (begin(schedule, g_array_index(schedule->round, guint, i))) {
            g_array_remove_index(schedule->round, i);
            return;
        }
    }
}

static void end_due(Schedule *schedule)
{
    Chaos *chaos = schedule->chaos;
    for (guint i = schedule->going->len; i > 0; i--) {
        Occurrence *o = schedule->going->pdata[i - 1];
        if (chaos_ms(chaos) < o->until_ms || !o->fault->end(chaos, o)) {
            continue;
        }
        for (guint j = 0; j < schedule->rows->len; j++) {
            Row *row = row_at(schedule->rows, j);
            row->count += row->fault == o->fault && o->touched > 0;
        }
        chaos_say(chaos, "%s %s ends%s", o->fault->name, o->machine != NULL ? o->machine->name : "",
                  o->touched == 0 ? ", and has met nothing" : "");
        g_ptr_array_remove_index(schedule->going, i - 1);
    }
}

static gboolean on_tick(gpointer data)
{
    Schedule *schedule = data;
    Chaos *chaos = schedule->chaos;
    end_due(schedule);
    machines_look(chaos);
    if (!chaos->calm && chaos_ms(chaos) >= schedule->next_ms) {
        begin_next(schedule);
        schedule->next_ms = chaos_ms(chaos) + g_rand_int_range(chaos->rand, LEAST_MS, MOST_MS);
    }
    return G_SOURCE_CONTINUE;
}

void schedule_start(Schedule *schedule)
{
    schedule->tick = g_timeout_add(LOOK_MS, on_tick, schedule);
}

void schedule_stop(Schedule *schedule)
{
    schedule->chaos->calm = TRUE;
    for (guint i = 0; i < schedule->going->len; i++) {
        Occurrence *o = schedule->going->pdata[i];
        o->until_ms = 0;
    }
}

gboolean schedule_is_calm(World *world, gpointer data)
{
    return ((Schedule *)data)->going->len == 0;
}

const char *schedule_going(const Schedule *schedule)
{
    const Occurrence *o = schedule->going->len > 0 ? schedule->going->pdata[0] : NULL;
    return o != NULL ? o->fault->name : "none";
}

gboolean schedule_is_enough(const Schedule *schedule)
{
    for (guint i = 0; i < schedule->rows->len; i++) {
        const Row *row = row_at(schedule->rows, i);
        if (row->wanted && row->count < row->fault->least) {
            return FALSE;
        }
    }
    return TRUE;
}

/* ---- what was done ---- */

void schedule_print(Schedule *schedule, GString *lack)
{
    const char *no_islands = schedule->chaos->no_islands;
    for (guint i = 0; i < schedule->rows->len; i++) {
        const Row *row = row_at(schedule->rows, i);
        const Fault *fault = row->fault;
        if (fault->needs == FAULT_ISLAND && no_islands != NULL) {
            g_print("# %-18s %8s  %s (%s)\n", fault->name, "skipped", fault->what, no_islands);
            continue;
        }
        g_print("# %-18s %8u  %s\n", fault->name, row->count, fault->what);
        if (row->wanted && row->count < fault->least) {
            g_string_append_printf(lack, "%s happened %u times, which should be %u; ", fault->name,
                                   row->count, fault->least);
        }
    }
}

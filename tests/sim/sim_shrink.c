/*
 * Makes a failing run short: as long as it still fails in the same way, time is cut, parts are switched
 * off, single occurrences are left out (halves first, then smaller pieces), and agents and managers are
 * taken away. Deterministic: the same failure gives the same scenario.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define MOST_RUNS 600

typedef struct {
    SimOptions options; /* the shortest so far; only: own */
    char *kind;         /* of the violation */
    char *violation;
    guint runs;
    gint64 ended_ms;
    GPtrArray *happened;
} Shrink;

/* The group and the words of a violation that name nothing: "fence: … was written by … without a fence". */
static char *kind_of(const char *violation)
{
    g_auto(GStrv) words = g_strsplit_set(violation, " \n", -1);
    GString *kind = g_string_new(NULL);
    for (guint i = 0; words[i] != NULL; i++) {
        gboolean names = strpbrk(words[i], "0123456789/#") != NULL;
        if (!names)
            g_string_append_printf(kind, "%s ", words[i]);
    }
    return g_string_free(kind, FALSE);
}

static GHashTable *set_of(const GPtrArray *names, guint from, guint to)
{
    GHashTable *set = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (guint i = 0; i < names->len; i++)
        if (i < from || i >= to)
            g_hash_table_add(set, g_strdup(names->pdata[i]));
    return set;
}

/* TRUE: @options fails in the same way, and are the shortest now. */
static gboolean try(Shrink *shrink, const SimOptions *options)
{
    SimResult result;
    SimOptions mine = *options;
    if (shrink->runs++ >= MOST_RUNS)
        return FALSE;
    mine.record = TRUE;
    mine.trace = FALSE;
    sim_run(&mine, &result);
    g_autofree char *kind = result.failed ? kind_of(result.violation) : NULL;
    gboolean same = kind != NULL && (shrink->kind == NULL || strcmp(kind, shrink->kind) == 0);
    if (same) {
        shrink->options = *options;
        shrink->ended_ms = result.ended_ms;
        if (shrink->kind == NULL)
            shrink->kind = g_steal_pointer(&kind);
        g_free(shrink->violation);
        shrink->violation = g_steal_pointer(&result.violation);
        if (shrink->happened != NULL)
            g_ptr_array_unref(shrink->happened);
        shrink->happened = g_steal_pointer(&result.happened);
    }
    sim_result_clear(&result);
    return same;
}

static void cut_time(Shrink *shrink)
{
    SimOptions options = shrink->options;
    options.chaos_ms = MIN(options.chaos_ms, shrink->ended_ms + 1);
    if (options.chaos_ms < shrink->options.chaos_ms)
        try(shrink, &options);
    for (gint64 part = 2; part <= 16; part *= 2) { /* what fails while it settles */
        options = shrink->options;
        options.chaos_ms -= options.chaos_ms / part;
        while (options.chaos_ms > 1000 && try(shrink, &options))
            options.chaos_ms -= options.chaos_ms / part;
    }
}

static void switch_off(Shrink *shrink)
{
    for (guint i = 0; i < SIM_N_PARTS; i++) {
        SimOptions options = shrink->options;
        options.off |= 1u << i;
        if (options.off != shrink->options.off)
            try(shrink, &options);
    }
}

/* Leaves out the occurrences [from, to) of those that happened. */
static gboolean leave_out(Shrink *shrink, guint from, guint to)
{
    SimOptions options = shrink->options;
    GHashTable *before = shrink->options.only, *only = set_of(shrink->happened, from, to);
    options.only = only;
    if (!try(shrink, &options)) {
        g_hash_table_unref(only);
        return FALSE;
    }
    if (before != NULL)
        g_hash_table_unref(before);
    return TRUE;
}

/* Pieces of a half, a quarter … of what happens; each round ends when no piece can be left out. */
static void thin_out(Shrink *shrink)
{
    for (guint piece = MAX(1, shrink->happened->len / 2);; piece = MAX(1, piece / 2)) {
        gboolean left_out = FALSE;
        for (guint from = 0; from < shrink->happened->len;) {
            if (leave_out(shrink, from, MIN(from + piece, shrink->happened->len)))
                left_out = TRUE;
            else
                from += piece;
        }
        if ((piece == 1 && !left_out) || shrink->runs >= MOST_RUNS)
            return;
    }
}

static void take_away(Shrink *shrink)
{
    SimOptions options = shrink->options;
    while (options.agents > 1 && (options.agents--, try(shrink, &options)))
        ;
    options = shrink->options;
    while (options.managers > 1 && (options.managers--, try(shrink, &options)))
        ;
}

int sim_shrink(const SimOptions *options, const char *bug, const char *path)
{
    Shrink shrink = {.kind = NULL};
    g_autoptr(GError) error = NULL;
    g_autofree char *command = sim_command(options, bug);
    if (!try(&shrink, options)) {
        printf("it does not fail: %s\n", command);
        return 1;
    }
    printf("it fails: %s\n", shrink.violation);
    guint before = shrink.happened->len;
    if (options->only != NULL) /* ours from here on */
        shrink.options.only = set_of(shrink.happened, 0, 0);
    cut_time(&shrink);
    take_away(&shrink);
    switch_off(&shrink);
    thin_out(&shrink);
    switch_off(&shrink);
    cut_time(&shrink);
    g_autofree char *text = sim_scenario_print(&shrink.options, bug);
    printf("after %u runs: %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
           " ms, %u of %u occurrences\n%s\n\n%s\n",
           shrink.runs, shrink.options.chaos_ms, options->chaos_ms, shrink.happened->len, before,
           shrink.violation, text);
    gboolean written = g_file_set_contents(path, text, -1, &error);
    if (written)
        printf("replay: build/tests/sim/%s --replay %s --trace\n", bug == NULL ? "sim" : "sim-bugs",
               path);
    else
        fprintf(stderr, "sim: %s\n", error->message);
    if (shrink.options.only != NULL)
        g_hash_table_unref(shrink.options.only);
    g_ptr_array_unref(shrink.happened);
    g_free(shrink.kind);
    g_free(shrink.violation);
    return !written;
}

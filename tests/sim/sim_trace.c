/*
 * The trace: readable lines in a ring, of which a failing seed prints the last ones, and a hash over
 * all of them, which proves that a seed decides everything. Log lines of the product are shown with
 * --trace and are no part of the hash.
 */
#include "base/log.h"
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define RING_LINES  120
#define VALUE_BYTES 700

static void add_hash(Sim *sim, const char *text)
{
    for (const char *p = text; *p != '\0'; p++)
        sim->hash = (sim->hash ^ (guint8)*p) * G_GUINT64_CONSTANT(1099511628211);
}

/* Takes @line. */
static void keep(Sim *sim, char *line)
{
    if (sim->options.trace)
        puts(line);
    g_free(sim->trace->pdata[sim->trace_next]);
    sim->trace->pdata[sim->trace_next] = line;
    sim->trace_next = (sim->trace_next + 1) % RING_LINES;
}

static char *line_of(const Sim *sim, const char *text)
{
    gint64 now = sim_now(sim);
    return g_strdup_printf("%5" G_GINT64_FORMAT ".%03d %s", now / 1000, (int)(now % 1000), text);
}

void sim_trace(Sim *sim, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    char *line = line_of(sim, text);
    add_hash(sim, line);
    keep(sim, line);
}

static void append_change(GString *text, const SimChange *change)
{
    const LhKv *kv = &change->event->kv;
    g_string_append_printf(text, "\n            %s %s", change->event->is_delete ? "del" : "put",
                           change->key);
    if (!change->event->is_delete) {
        g_autofree char *value = g_strndup(kv->value, MIN(kv->value_len, VALUE_BYTES));
        g_autofree char *valid = g_utf8_make_valid(value, -1);
        g_string_append_printf(text, " %s", g_strdelimit(valid, "\n", ' '));
    }
}

void sim_trace_commit(Sim *sim, const SimCommit *commit)
{
    static const char *const causes[] = {"", " revoked", " expired", ""};
    const FakeCommit *c = commit->commit;
    g_autoptr(GString) text = g_string_new(NULL);
    g_string_append_printf(text, "r%" G_GINT64_FORMAT " %s%s%s%s", c->revision,
                           *c->client != '\0' ? c->client : "etcd", causes[c->cause],
                           c->late ? " LATE" : "",
                           c->cause == FAKE_BY_TXN && !c->succeeded ? " (else)" : "");
    for (guint i = 0; i < commit->n; i++)
        append_change(text, &commit->changes[i]);
    char *line = line_of(sim, text->str);
    add_hash(sim, line);
    keep(sim, line);
}

void sim_fail(Sim *sim, const char *group, const char *format, ...)
{
    if (sim->failed)
        return;
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    sim->failed = TRUE;
    sim->violation = g_strdup_printf("%s: at %" G_GINT64_FORMAT " ms, revision %" G_GINT64_FORMAT
                                     ": %s",
                                     group, sim_now(sim), fake_etcd_revision(sim->server), text);
    sim_trace(sim, "VIOLATION %s", sim->violation);
}

char *sim_trace_tail(const Sim *sim)
{
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < RING_LINES; i++) {
        const char *line = sim->trace->pdata[(sim->trace_next + i) % RING_LINES];
        if (line != NULL)
            g_string_append_printf(text, "%s\n", line);
    }
    return g_string_free(text, FALSE);
}

static void on_log(const char *line, gpointer data)
{
    const Sim *sim = data;
    const char *level = strstr(line, "level=");
    if (sim->options.trace && level != NULL)
        printf("%5" G_GINT64_FORMAT ".%03d       %s\n", sim_now(sim) / 1000,
               (int)(sim_now(sim) % 1000), level);
}

void sim_trace_setup(Sim *sim)
{
    sim->trace = g_ptr_array_new_with_free_func(g_free);
    g_ptr_array_set_size(sim->trace, RING_LINES);
    sim->hash = G_GUINT64_CONSTANT(14695981039346656037);
    lh_log_setup(sim->options.trace ? LH_LOG_INFO : LH_LOG_ERROR, LH_LOG_TEXT);
    lh_log_set_sink(on_log, sim);
}

void sim_trace_clear(Sim *sim)
{
    lh_log_set_sink(NULL, NULL);
    g_ptr_array_unref(sim->trace);
}

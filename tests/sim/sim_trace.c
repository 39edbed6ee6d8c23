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

static void free_line(gpointer line)
{
    if (line != NULL)
        g_string_free(line, TRUE);
}

static void add_hash(Sim *sim, const GString *text)
{
    gsize i = 0;
    for (; i + sizeof(guint64) <= text->len; i += sizeof(guint64)) {
        guint64 word;
        memcpy(&word, text->str + i, sizeof word);
        sim->hash = (sim->hash ^ word) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
        sim->hash ^= sim->hash >> 29;
    }
    for (; i < text->len; i++)
        sim->hash = (sim->hash ^ (guint8)text->str[i]) * G_GUINT64_CONSTANT(1099511628211);
}

/* As it may be shown: values are bytes of any kind. */
static char *readable(const GString *text)
{
    g_autofree char *copy = g_strndup(text->str, text->len);
    for (gsize i = 0; i < text->len; i++)
        if (copy[i] == '\0')
            copy[i] = '?';
    return g_utf8_make_valid(copy, -1);
}

/* Takes @line. */
static void keep(Sim *sim, GString *line)
{
    add_hash(sim, line);
    if (sim->options.trace) {
        g_autofree char *text = readable(line);
        puts(text);
    }
    free_line(sim->trace->pdata[sim->trace_next]);
    sim->trace->pdata[sim->trace_next] = line;
    sim->trace_next = (sim->trace_next + 1) % RING_LINES;
}

static void append_time(const Sim *sim, GString *text)
{
    gint64 now = sim_now(sim);
    g_string_append_printf(text, "%5" G_GINT64_FORMAT ".%03d ", now / 1000, (int)(now % 1000));
}

void sim_trace(Sim *sim, const char *format, ...)
{
    GString *text = g_string_new(NULL);
    va_list args;
    append_time(sim, text);
    va_start(args, format);
    g_string_append_vprintf(text, format, args);
    va_end(args);
    keep(sim, text);
}

static void append_change(GString *text, const SimChange *change)
{
    const LhKv *kv = &change->event->kv;
    g_string_append(text, change->event->is_delete ? "\n            del " : "\n            put ");
    g_string_append(text, change->key);
    if (change->event->is_delete)
        return;
    g_string_append_c(text, ' ');
    g_string_append_len(text, kv->value, (gssize)MIN(kv->value_len, VALUE_BYTES));
}

void sim_trace_commit(Sim *sim, const SimCommit *commit)
{
    static const char *const causes[] = {"", " revoked", " expired", ""};
    const FakeCommit *c = commit->commit;
    GString *text = g_string_sized_new(1024);
    append_time(sim, text);
    g_string_append_printf(text, "r%" G_GINT64_FORMAT " %s%s%s%s", c->revision,
                           *c->client != '\0' ? c->client : "etcd", causes[c->cause],
                           c->late ? " LATE" : "",
                           c->cause == FAKE_BY_TXN && !c->succeeded ? " (else)" : "");
    for (guint i = 0; i < commit->n; i++)
        append_change(text, &commit->changes[i]);
    keep(sim, text);
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
        const GString *line = sim->trace->pdata[(sim->trace_next + i) % RING_LINES];
        g_autofree char *shown = line != NULL ? readable(line) : NULL;
        if (shown != NULL)
            g_string_append_printf(text, "%s\n", shown);
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
    sim->trace = g_ptr_array_new_with_free_func(free_line);
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

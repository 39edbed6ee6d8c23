/*
 * Scenarios on paper: the options of one run as lines of text, for --replay; and as a command line where
 * that says it all. What is not written has its usual value.
 */
#include "base/errors.h"
#include "sim.h"

#include <string.h>

static const char *const parts[] = {
#define X(name, text) text,
    SIM_PARTS(X)
#undef X
};

static const char *const injections[] = {
#define X(name, text) text,
    SIM_INJECTIONS(X)
#undef X
};

SimOptions sim_options_normal(guint64 seed)
{
    return (SimOptions){
        .seed = seed, .managers = SIM_MANAGERS, .agents = SIM_AGENTS, .chaos_ms = SIM_CHAOS_MS};
}

char *sim_scenario_print(const SimOptions *options, const char *bug)
{
    GString *text = g_string_new("# a run of the simulation: sim --replay FILE --trace\n");
    g_string_append_printf(text,
                           "seed %" G_GUINT64_FORMAT "\nmanagers %u\nagents %u\nsnapshots %u\n"
                           "chaos-ms %" G_GINT64_FORMAT "\n",
                           options->seed, options->managers, options->agents, options->snapshots,
                           options->chaos_ms);
    if (bug != NULL)
        g_string_append_printf(text, "bug %s\n", bug);
    for (guint i = 0; i < SIM_N_PARTS; i++)
        if (options->off >> i & 1)
            g_string_append_printf(text, "off %s\n", parts[i]);
    if (options->inject != SIM_INJECT_NONE)
        g_string_append_printf(text, "inject %s %" G_GUINT64_FORMAT "\n",
                               injections[options->inject], options->inject_write);
    if (options->only != NULL) {
        g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(options->only),
                                             (GCompareFunc)strcmp);
        g_string_append(text, "# nothing happens but this:\nonly\n");
        for (GList *l = names; l != NULL; l = l->next)
            g_string_append_printf(text, "happens %s\n", (char *)l->data);
    }
    return g_string_free(text, FALSE);
}

static gboolean index_in(const char *const *texts, guint n, const char *text, guint *out)
{
    for (*out = 0; *out < n; (*out)++)
        if (strcmp(texts[*out], text) == 0)
            return TRUE;
    return FALSE;
}

static gboolean parse_injection(SimOptions *options, const char *value)
{
    g_auto(GStrv) words = g_strsplit(value, " ", 2);
    guint i;
    if (words[0] == NULL || words[1] == NULL ||
        !index_in(injections, SIM_N_INJECTIONS, words[0], &i))
        return FALSE;
    options->inject = (SimInjection)i;
    return g_ascii_string_to_unsigned(words[1], 10, 1, G_MAXINT64, &options->inject_write, NULL);
}

static gboolean parse_number(const char *value, guint64 low, guint64 high, guint64 *out)
{
    return g_ascii_string_to_unsigned(value, 10, low, high, out, NULL);
}

gboolean sim_scenario_set(SimOptions *options, char **bug, const char *word, const char *value)
{
    guint64 number = 0;
    guint i;
    gboolean ok = TRUE;
    if (strcmp(word, "seed") == 0) {
        ok = parse_number(value, 0, G_MAXUINT64, &options->seed);
    } else if (strcmp(word, "managers") == 0) {
        ok = parse_number(value, 1, SIM_MAX_PROCESSES / 2, &number);
        options->managers = (guint)number;
    } else if (strcmp(word, "agents") == 0) {
        ok = parse_number(value, 1, SIM_MAX_PROCESSES / 2, &number);
        options->agents = (guint)number;
    } else if (strcmp(word, "snapshots") == 0) {
        ok = parse_number(value, 0, 100000, &number);
        options->snapshots = (guint)number;
    } else if (strcmp(word, "chaos-ms") == 0) {
        ok = parse_number(value, 0, G_MAXINT64 / 2, &number);
        options->chaos_ms = (gint64)number;
    } else if (strcmp(word, "bug") == 0) {
        g_free(*bug);
        *bug = g_strdup(value);
    } else if (strcmp(word, "off") == 0) {
        ok = index_in(parts, SIM_N_PARTS, value, &i);
        options->off |= ok ? 1u << i : 0;
    } else if (strcmp(word, "inject") == 0) {
        ok = parse_injection(options, value);
    } else if (strcmp(word, "only") == 0 || strcmp(word, "happens") == 0) {
        if (options->only == NULL)
            options->only = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        if (*value != '\0')
            g_hash_table_add(options->only, g_strdup(value));
    } else {
        ok = FALSE;
    }
    return ok;
}

gboolean sim_scenario_load(const char *path, SimOptions *options, char **bug, GError **error)
{
    g_autofree char *text = NULL;
    *options = sim_options_normal(1);
    *bug = NULL;
    if (!g_file_get_contents(path, &text, NULL, error))
        return FALSE;
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++) {
        char *line = g_strstrip(lines[i]), *space = strchr(line, ' ');
        g_autofree char *word = space == NULL ? g_strdup(line)
                                              : g_strndup(line, (gsize)(space - line));
        if (*line == '\0' || *line == '#')
            continue;
        if (!sim_scenario_set(options, bug, word, space == NULL ? "" : space + 1)) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: line %u is not understood: %s", path,
                        i + 1, line);
            return FALSE;
        }
    }
    return TRUE;
}

char *sim_command(const SimOptions *options, const char *bug)
{
    GString *text = g_string_new(NULL);
    g_string_append_printf(text, "build/tests/sim/%s --seed %" G_GUINT64_FORMAT,
                           bug == NULL ? "sim" : "sim-bugs", options->seed);
    if (bug != NULL)
        g_string_append_printf(text, " --bug %s", bug);
    if (options->managers != SIM_MANAGERS)
        g_string_append_printf(text, " --managers %u", options->managers);
    if (options->agents != SIM_AGENTS)
        g_string_append_printf(text, " --agents %u", options->agents);
    if (options->snapshots != 0)
        g_string_append_printf(text, " --snapshots %u", options->snapshots);
    if (options->chaos_ms != SIM_CHAOS_MS)
        g_string_append_printf(text, " --minutes %.10g", (double)options->chaos_ms / 60000);
    if (options->recorded)
        g_string_append(text, " --recorded");
    for (guint i = 0; i < SIM_N_PARTS; i++)
        if (options->off >> i & 1)
            g_string_append_printf(text, " --off %s", parts[i]);
    if (options->inject != SIM_INJECT_NONE)
        g_string_append_printf(text, " --at %" G_GUINT64_FORMAT " --do %s", options->inject_write,
                               injections[options->inject]);
    return g_string_free(text, FALSE);
}

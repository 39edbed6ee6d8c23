/*
 * The options of all commands: one table, from which GOption's entries and the help are made.
 *
 * Values are not converted here; the command that uses one says what is wrong with it.
 */
#include "base/errors.h"
#include "base/units.h"
#include "cli/internal.h"

#include <string.h>

typedef struct {
    const char *name;
    char letter;
    GOptionArg type; /* FILENAME: bytes as they are */
    gsize offset;
    const char *value, *help;
    gboolean global;
} Option;

#define AT(member) G_STRUCT_OFFSET(LhCliOptions, member)

/* clang-format off */
static const Option options[] = {
    {"server", 0, G_OPTION_ARG_FILENAME, AT(server), "URL",
     "address of a manager (LEASEHOLD_SERVER; http://127.0.0.1:8083)", TRUE},
    {"token-file", 0, G_OPTION_ARG_FILENAME, AT(token_file), "FILE",
     "file that holds the token (LEASEHOLD_TOKEN)", TRUE},
    {"cacert", 0, G_OPTION_ARG_FILENAME, AT(cacert), "FILE",
     "authority of the server's certificate (LEASEHOLD_CACERT)", TRUE},
    {"cert", 0, G_OPTION_ARG_FILENAME, AT(cert), "FILE",
     "certificate to show to the server (LEASEHOLD_CERT)", TRUE},
    {"key", 0, G_OPTION_ARG_FILENAME, AT(key), "FILE", "its key (LEASEHOLD_KEY)", TRUE},
    {"output", 'o', G_OPTION_ARG_FILENAME, AT(output), "FORMAT",
     "table, wide, json, yaml, name or jsonpath=TEMPLATE", TRUE},
    {"help", 'h', G_OPTION_ARG_NONE, AT(help), NULL, "this text", TRUE},
    {"filename", 'f', G_OPTION_ARG_FILENAME_ARRAY, AT(files), "FILE",
     "manifest: a file, a directory or - (repeatable)", FALSE},
    {"selector", 'l', G_OPTION_ARG_FILENAME, AT(selector), "SELECTOR",
     "only objects with these labels (flat kinds: fields)", FALSE},
    {"watch", 'w', G_OPTION_ARG_NONE, AT(watch), NULL, "go on with what changes", FALSE},
    {"dry-run", 0, G_OPTION_ARG_NONE, AT(dry_run), NULL, "let the server check, change nothing",
     FALSE},
    {"prune", 0, G_OPTION_ARG_NONE, AT(prune), NULL,
     "delete what -l selects and the manifests do not have", FALSE},
    {"for", 0, G_OPTION_ARG_FILENAME, AT(condition), "WHAT", NULL, FALSE},
    {"timeout", 0, G_OPTION_ARG_FILENAME, AT(timeout), "DURATION", "give up after", FALSE},
    {"plan", 0, G_OPTION_ARG_FILENAME, AT(plan), "HASH", "hash of the plan that is meant", FALSE},
    {"from", 0, G_OPTION_ARG_FILENAME, AT(from), "FROM", NULL, FALSE},
    {"to", 0, G_OPTION_ARG_FILENAME, AT(to), "TIME", NULL, FALSE},
    {"ttl", 0, G_OPTION_ARG_FILENAME, AT(ttl), "DURATION",
     "how long each replica lives from when it is live (1h)", FALSE},
    {"name", 0, G_OPTION_ARG_FILENAME, AT(name), "NAME", "name of the object (a new one)", FALSE},
    {"wait", 0, G_OPTION_ARG_NONE, AT(wait), NULL, "until it is done, or has failed", FALSE},
    {"record", 0, G_OPTION_ARG_FILENAME, AT(record), "FILE", "save the inputs of the present plan",
     FALSE},
};
/* clang-format on */

static gboolean is_wanted(const Option *option, const char *names)
{
    if (option->global) {
        return TRUE;
    }
    g_auto(GStrv) wanted = g_strsplit(names != NULL ? names : "", ",", -1);
    return g_strv_contains((const char *const *)wanted, option->name);
}

static const Option *option_of(const char *arg)
{
    for (guint i = 0; i < G_N_ELEMENTS(options); i++) {
        gboolean matches = arg[1] == '-' ? strcmp(arg + 2, options[i].name) == 0
                                         : arg[1] != '\0' && arg[1] == options[i].letter;
        if (matches) {
            return &options[i];
        }
    }
    return NULL;
}

/* GOption knows "-o json" only: "-ojson" and "-o=json" are made that. *args is replaced. */
static void split_letters(char ***args, gboolean leading)
{
    g_autoptr(GPtrArray) out = g_ptr_array_new();
    char **old = *args;
    gboolean value = TRUE; /* the program's name */
    gboolean over = FALSE;
    for (guint i = 0; old[i] != NULL; i++) {
        char *arg = old[i];
        gboolean is_option = !value && !over && arg[0] == '-' && arg[1] != '\0';
        const Option *option = is_option ? option_of(arg) : NULL;
        over = over || (is_option && strcmp(arg, "--") == 0) || (leading && !value && !is_option);
        value = option != NULL && option->type != G_OPTION_ARG_NONE;
        if (value && arg[1] != '-' && arg[2] != '\0') {
            g_ptr_array_add(out, g_strndup(arg, 2));
            g_ptr_array_add(out, g_strdup(arg[2] == '=' ? arg + 3 : arg + 2));
            value = FALSE;
        } else {
            g_ptr_array_add(out, g_strdup(arg));
        }
    }
    g_ptr_array_add(out, NULL);
    g_strfreev(old);
    *args = (char **)g_ptr_array_free(g_steal_pointer(&out), FALSE);
}

gboolean lh_options_parse(LhCliOptions *values, const char *names, gboolean leading, char ***args,
                          GError **error)
{
    g_autoptr(GArray) entries = g_array_new(TRUE, TRUE, sizeof(GOptionEntry));
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autoptr(GError) local = NULL;
    for (guint i = 0; i < G_N_ELEMENTS(options); i++) {
        const Option *option = &options[i];
        if (is_wanted(option, names)) {
            GOptionEntry entry = {.long_name = option->name,
                                  .short_name = option->letter,
                                  .arg = option->type,
                                  .arg_data = (char *)values + option->offset};
            g_array_append_val(entries, entry);
        }
    }
    g_option_context_add_main_entries(context, (GOptionEntry *)entries->data, NULL);
    g_option_context_set_help_enabled(context, FALSE);
    g_option_context_set_strict_posix(context, leading);
    split_letters(args, leading);
    if (!g_option_context_parse_strv(context, args, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s", local->message);
        return FALSE;
    }
    return TRUE;
}

void lh_options_help(const char *names, FILE *out)
{
    for (int global = 0; global <= 1; global++) {
        for (guint i = 0; i < G_N_ELEMENTS(options); i++) {
            const Option *option = &options[i];
            if (option->global != global || !is_wanted(option, names)) {
                continue;
            }
            g_autofree char *letter = option->letter != 0 ? g_strdup_printf("-%c, ", option->letter)
                                                          : g_strdup("    ");
            g_autofree char *name = g_strdup_printf("%s--%s%s%s", letter, option->name,
                                                    option->value ? " " : "",
                                                    option->value ? option->value : "");
            g_autofree char *left = lh_text_pad(name, 28);
            fprintf(out, "  %s%s\n", left, option->help != NULL ? option->help : "see above");
        }
    }
}

void lh_options_clear(LhCliOptions *values)
{
    for (guint i = 0; i < G_N_ELEMENTS(options); i++) {
        gpointer member = (char *)values + options[i].offset;
        if (options[i].type == G_OPTION_ARG_FILENAME) {
            g_clear_pointer((char **)member, g_free);
        } else if (options[i].type == G_OPTION_ARG_FILENAME_ARRAY) {
            g_clear_pointer((char ***)member, g_strfreev);
        }
    }
}

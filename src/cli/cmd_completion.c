/*
 * completion bash|zsh|fish: a script that completes commands, kinds and options, made from the tables of
 * this program. Names of objects are not completed: that would ask a server at each key.
 */
#include "base/errors.h"
#include "cli/internal.h"

#include <string.h>

static char *command_names(void)
{
    GString *text = g_string_new(NULL);
    for (const LhCliCommand *command = lh_cli_commands(); command->name != NULL; command++) {
        g_string_append_printf(text, "%s%s", text->len > 0 ? " " : "", command->name);
    }
    return g_string_free(text, FALSE);
}

static char *kind_names(void)
{
    GString *text = g_string_new(NULL);
    guint n;
    const LhKindView *views = lh_kind_views(&n);
    for (guint i = 0; i < n; i++) {
        g_string_append_printf(text, "%s%s", i > 0 ? " " : "", views[i].plural);
    }
    return g_string_free(text, FALSE);
}

/* Commands whose first argument is a kind. */
static char *kind_commands(const char *separator)
{
    GString *text = g_string_new(NULL);
    for (const LhCliCommand *command = lh_cli_commands(); command->name != NULL; command++) {
        if (g_str_has_prefix(command->arguments, "KIND")) {
            g_string_append_printf(text, "%s%s", text->len > 0 ? separator : "", command->name);
        }
    }
    return g_string_free(text, FALSE);
}

static char *options_of(const LhCliCommand *command)
{
    GString *text = g_string_new("--server --token-file --cacert --cert --key --output --help");
    g_auto(GStrv) names = g_strsplit(command->options != NULL ? command->options : "", ",", -1);
    for (guint i = 0; names[i] != NULL && names[i][0] != '\0'; i++) {
        g_string_append_printf(text, " --%s", names[i]);
    }
    return g_string_free(text, FALSE);
}

static void print_bash(FILE *out, gboolean zsh)
{
    g_autofree char *commands = command_names(), *kinds = kind_names(), *with = kind_commands("|");
    if (zsh) {
        fputs("#compdef leasehold\nautoload -U +X bashcompinit && bashcompinit\n", out);
    }
    fprintf(out,
            "_leasehold() {\n"
            "    local word=${COMP_WORDS[COMP_CWORD]} list=\n"
            "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
            "        list='%s'\n"
            "    elif [[ $word == -* ]]; then\n"
            "        case ${COMP_WORDS[1]} in\n",
            commands);
    for (const LhCliCommand *command = lh_cli_commands(); command->name != NULL; command++) {
        g_autofree char *options = options_of(command);
        if (command->run != NULL) {
            fprintf(out, "        %s) list='%s' ;;\n", command->name, options);
        }
    }
    fprintf(out,
            "        esac\n"
            "    elif [ \"$COMP_CWORD\" -eq 2 ]; then\n"
            "        case ${COMP_WORDS[1]} in\n"
            "        %s) list='%s' ;;\n"
            "        help) list='%s' ;;\n"
            "        completion) list='bash zsh fish' ;;\n"
            "        esac\n"
            "    fi\n"
            "    COMPREPLY=($(compgen -W \"$list\" -- \"$word\"))\n"
            "}\n"
            "complete -o default -F _leasehold leasehold\n",
            with, kinds, commands);
}

static void print_fish(FILE *out)
{
    g_autofree char *kinds = kind_names(), *with = kind_commands(" ");
    fputs("complete -c leasehold -f\n", out);
    for (const LhCliCommand *command = lh_cli_commands(); command->name != NULL; command++) {
        g_autofree char *options = options_of(command);
        g_auto(GStrv) words = g_strsplit(options, " ", -1);
        fprintf(out, "complete -c leasehold -n __fish_use_subcommand -a %s -d '%s'\n",
                command->name, command->summary);
        for (guint i = 0; command->run != NULL && words[i] != NULL; i++) {
            fprintf(out, "complete -c leasehold -n '__fish_seen_subcommand_from %s' -l %s\n",
                    command->name, words[i] + strlen("--"));
        }
    }
    fprintf(out, "complete -c leasehold -n '__fish_seen_subcommand_from %s' -a '%s'\n", with,
            kinds);
}

int lh_cmd_completion(LhCli *cli, char **args, GError **error)
{
    if (strcmp(args[0], "bash") == 0 || strcmp(args[0], "zsh") == 0) {
        print_bash(cli->out, args[0][0] == 'z');
    } else if (strcmp(args[0], "fish") == 0) {
        print_fish(cli->out);
    } else {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "completion: %s: must be bash, zsh or fish",
                    args[0]);
        return LH_EXIT_USAGE;
    }
    return LH_EXIT_DONE;
}

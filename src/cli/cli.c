/*
 * From the arguments to a command, and from its outcome to an exit code. The table of commands.
 */
#include "cli/cli.h"

#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <errno.h>
#include <locale.h>
#include <string.h>

#define DEFAULT_SERVER  "http://127.0.0.1:8083"
#define MAX_TOKEN_BYTES 8192

/* clang-format off */
static const LhCliCommand commands[] = {
    {"dev", "[--data-dir D] [--agents N] [--demo]",
     "an etcd, a manager and agents in one terminal", NULL, 0, 0, NULL, NULL},
    {"manager", "[--config F]", "a manager: controllers and API", NULL, 0, 0, NULL, NULL},
    {"agent", "--pool P --name N", "a node: takes orders and does the work", NULL, 0, 0, NULL,
     NULL},
    {"apply", "-f FILE", "create or update objects", "filename,dry-run,prune,selector", 0, 0,
     "--prune also deletes every object of a desired/ kind that -l selects and the manifests do\n"
     "not name. It deletes nothing if a single object could not be applied.", lh_cmd_apply},
    {"get", "KIND [NAME…]", "list or watch objects", "selector,watch", 1, G_MAXUINT, NULL,
     lh_cmd_get},
    {"describe", "KIND NAME", "one object, its conditions and its events", NULL, 2, 2, NULL,
     lh_cmd_describe},
    {"delete", "KIND NAME… | -f FILE", "delete objects", "filename,dry-run", 0, G_MAXUINT, NULL,
     lh_cmd_delete},
    {"edit", "KIND NAME", "change an object in your editor", NULL, 2, 2,
     "The editor is $VISUAL, $EDITOR or vi. What is not accepted, or was changed meanwhile by\n"
     "somebody else, is kept in a file.", lh_cmd_edit},
    {"diff", "-f FILE", "what apply would change", "filename", 0, 0,
     "Exits 0 when nothing differs and 1 when something does.", lh_cmd_diff},
    {"plan", "[CONTROLLER]", "what each controller would write now, and why", "from,record", 0, 1,
     "Writes nothing. Exits 0 whether or not there is something to do.\n"
     "--from FILE plans from recorded inputs, offline.", lh_cmd_plan},
    {"explain", "POOL/ITEM", "why an item is where it is, or nowhere", NULL, 1, 1, NULL,
     lh_cmd_explain},
    {"wait", "KIND NAME --for COND", "wait until something is true", "for,timeout", 2, 2,
     "COND is one of\n"
     "  live                      a replica, or one of a snapshot's, is live on a node\n"
     "  condition=TYPE[=STATUS]   the condition has the status (True)\n"
     "  state=VALUE               the object's state, or phase; of a replica: its item's\n"
     "  delete                    the object does not exist\n"
     "  jsonpath={PATH}[=VALUE]   the path has the value, or any\n"
     "Ends with 1 as soon as it cannot come true: the object is deleted or not valid, or its item\n"
     "has failed for good. Gives up after 30s, or --timeout.", lh_cmd_wait},
    {"restore", "SERVICE --from TIME --to TIME", "bring old snapshots back for a while",
     "from,to,ttl,name,wait,timeout", 1, 1,
     "SERVICE is a service's name, or * for all. TIME is 2026-11-20T09:30:00Z, milliseconds since\n"
     "1970, or so long ago: 7d. Every final snapshot that overlaps gets a replica in each set that\n"
     "has none. --wait ends when all of them are live, and with 1 when one has failed for good;\n"
     "without --timeout it waits as long as the manager tries. 4: the request was refused.",
     lh_cmd_restore},
    {"leaders", "[move CONTROLLER INSTANCE]", "which instance leads which controller", NULL, 0, 3,
     "move hands a controller over to another instance without a restart.", lh_cmd_leaders},
    {"events", "", "what happened, and why", "watch,for", 0, 0,
     "--for KIND/NAME shows the events of one object only.", lh_cmd_events},
    {"retry", "POOL/ITEM", "try an item again that has failed for good", NULL, 1, 1, NULL,
     lh_cmd_retry},
    {"confirm", "CONTROLLER --plan HASH", "let a controller carry out the plan that it braked",
     "plan", 1, 1, NULL, lh_cmd_confirm},
    {"cordon", "POOL/NODE-NAME", "place nothing more on a node", NULL, 1, 1, NULL, lh_cmd_cordon},
    {"uncordon", "POOL/NODE-NAME", "place items on a node again", NULL, 1, 1,
     "Undoes a drain, too: what has moved stays where it is.", lh_cmd_cordon},
    {"drain", "POOL/NODE-NAME [--wait]", "move what a node has elsewhere, and place nothing more there",
     "wait,timeout", 1, 1,
     "Cache replicas are live elsewhere before they leave; partitions move one at a time; a running\n"
     "recovery task is let run to its end. What has no room elsewhere stays. --wait ends when nothing\n"
     "is assigned to any node of that name, and with 1 when the drain is undone, or after --timeout.",
     lh_cmd_drain},
    {"top", "", "pools with capacity and use", NULL, 0, 0, NULL, lh_cmd_top},
    {"completion", "bash|zsh|fish", "a script that completes this program's words", NULL, 1, 1,
     "leasehold completion bash > /etc/bash_completion.d/leasehold", lh_cmd_completion},
    {"version", "", "version of this program and of the server", NULL, 0, 0, NULL, lh_cmd_version},
    {"help", "[COMMAND]", "this text, or a command's", NULL, 0, 1, NULL, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, NULL, NULL},
};
/* clang-format on */

static LhCliPlanFromFile plan_from_file;

void lh_cli_set_plan_from_file(LhCliPlanFromFile func)
{
    plan_from_file = func;
}

const LhCliCommand *lh_cli_commands(void)
{
    return commands;
}

/* ---- finding a command ---- */

static const LhCliCommand *command_find(const char *name)
{
    for (const LhCliCommand *command = commands; command->name != NULL; command++) {
        if (strcmp(command->name, name) == 0) {
            return command;
        }
    }
    return NULL;
}

/* Levenshtein's distance. */
static guint distance(const char *a, const char *b)
{
    gsize n = strlen(b);
    g_autofree guint *row = g_new(guint, n + 1);
    for (guint j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (guint i = 1; a[i - 1] != '\0'; i++) {
        guint diagonal = row[0];
        row[0] = i;
        for (guint j = 1; j <= n; j++) {
            guint replace = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = MIN(replace, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

static void unknown_command(const char *name, GError **error)
{
    const char *best = NULL;
    guint best_distance = 3;
    for (const LhCliCommand *command = commands; strlen(name) < 64 && command->name != NULL;
         command++) {
        gboolean begins = strlen(name) > 1 && g_str_has_prefix(command->name, name);
        guint d = begins ? 0 : distance(name, command->name);
        if (d < best_distance) {
            best = command->name;
            best_distance = d;
        }
    }
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: unknown command; %s%s%s", name,
                best != NULL ? "did you mean \"" : "see \"leasehold --help\"",
                best != NULL ? best : "", best != NULL ? "\"?" : "");
}

/* ---- help ---- */

static void help_all(FILE *out)
{
    fputs("leasehold keeps what should be and what is the same.\n\n"
          "usage: leasehold COMMAND [ARGUMENTS] [OPTIONS]\n\n",
          out);
    for (const LhCliCommand *command = commands; command->name != NULL; command++) {
        fprintf(out, "  %-10s%s\n", command->name, command->summary);
    }
    fputs("\noptions of every command:\n", out);
    lh_options_help(NULL, out);
    fputs("\nexit codes: 0 done; 1 differs, not met or failed; 2 bad usage or invalid input;\n"
          "            3 server unreachable or not authenticated; 4 refused\n",
          out);
}

static void help_command(const LhCliCommand *command, FILE *out)
{
    fprintf(out, "leasehold %s: %s\n\nusage: leasehold %s%s%s\n", command->name, command->summary,
            command->name, command->arguments[0] != '\0' ? " " : "", command->arguments);
    if (command->details != NULL) {
        fprintf(out, "\n%s\n", command->details);
    }
    if (command->run != NULL) {
        fputs("\noptions:\n", out);
        lh_options_help(command->options, out);
    }
}

static int help(char **args, FILE *out, GError **error)
{
    if (args[0] == NULL) {
        help_all(out);
        return LH_EXIT_DONE;
    }
    const LhCliCommand *command = command_find(args[0]);
    if (command == NULL) {
        unknown_command(args[0], error);
        return LH_EXIT_USAGE;
    }
    help_command(command, out);
    return LH_EXIT_DONE;
}

/* ---- errors ---- */

G_DEFINE_QUARK(lh - cli - error, lh_cli_error)

static int exit_code_of(const GError *error)
{
    static const int codes[LH_N_ERRORS] = {
        [LH_ERR_INVALID] = LH_EXIT_USAGE,
        [LH_ERR_NOT_FOUND] = LH_EXIT_REFUSED,
        [LH_ERR_CONFLICT] = LH_EXIT_REFUSED,
        [LH_ERR_FENCED] = LH_EXIT_FAILED,
        [LH_ERR_UNAVAILABLE] = LH_EXIT_UNREACHABLE,
        [LH_ERR_UNKNOWN_OUTCOME] = LH_EXIT_UNREACHABLE,
        [LH_ERR_OVERLOADED] = LH_EXIT_UNREACHABLE,
        [LH_ERR_COMPACTED] = LH_EXIT_REFUSED,
        [LH_ERR_NO_SPACE] = LH_EXIT_UNREACHABLE,
        [LH_ERR_CANCELLED] = LH_EXIT_FAILED,
        [LH_ERR_AUTH] = LH_EXIT_UNREACHABLE,
        [LH_ERR_FORBIDDEN] = LH_EXIT_REFUSED,
        [LH_ERR_IO] = LH_EXIT_USAGE,
        [LH_ERR_CHECKSUM] = LH_EXIT_FAILED,
        [LH_ERR_LEASE_LOST] = LH_EXIT_FAILED,
        [LH_ERR_INTERNAL] = LH_EXIT_FAILED,
    };
    if (error->domain == LH_CLI_ERROR) {
        return error->code;
    }
    return error->domain == LH_ERROR ? codes[error->code] : LH_EXIT_FAILED;
}

static const char *title_of(int code)
{
    static const char *const titles[] = {"Done", "Failed", "Invalid input", "Unreachable",
                                         "Refused"};
    return titles[code];
}

int lh_cli_report(LhCli *cli, const GError *error)
{
    int code = exit_code_of(error);
    if (cli->format == LH_OUTPUT_JSON) {
        const cJSON *theirs = cli->client != NULL ? lh_client_problem(cli->client, error->message)
                                                  : NULL;
        cJSON *problem = theirs != NULL ? cJSON_Duplicate(theirs, TRUE) : cJSON_CreateObject();
        if (theirs == NULL) {
            cJSON_AddStringToObject(problem, "type", "about:blank");
            cJSON_AddStringToObject(problem, "title", title_of(code));
            cJSON_AddStringToObject(problem, "detail", error->message);
        }
        g_autofree char *text = lh_json_print(problem);
        fprintf(cli->err, "%s\n", text);
        cJSON_Delete(problem);
    } else {
        g_autofree char *line = g_strdelimit(g_strdup(error->message), "\n", ' ');
        fputs("leasehold: ", cli->err);
        lh_output_text(cli->err, line);
        fputc('\n', cli->err);
    }
    return code;
}

/* ---- one invocation ---- */

static gboolean format_parse(LhCli *cli, GError **error)
{
    static const char *const names[] = {"table", "wide", "json", "yaml", "name"};
    const char *text = cli->o.output;
    if (text == NULL) {
        return TRUE;
    }
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            cli->format = (LhOutputFormat)i;
            return TRUE;
        }
    }
    if (g_str_has_prefix(text, "jsonpath=")) {
        cli->format = LH_OUTPUT_JSONPATH;
        cli->jsonpath = lh_jsonpath_new(text + strlen("jsonpath="), error);
        return cli->jsonpath != NULL;
    }
    g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                "-o %s: must be table, wide, json, yaml, name or jsonpath=TEMPLATE", text);
    return FALSE;
}

/* The token without the newline that editors put at the end; NULL: there is none. */
static gboolean token_read(const LhCli *cli, char **token, GError **error)
{
    const char *environment = g_getenv("LEASEHOLD_TOKEN");
    *token = NULL;
    if (cli->o.token_file != NULL) {
        gsize len = 0;
        g_autoptr(GError) local = NULL;
        if (!g_file_get_contents(cli->o.token_file, token, &len, &local)) {
            g_set_error(error, LH_ERROR, LH_ERR_IO, "--token-file %s: cannot be read",
                        cli->o.token_file);
            return FALSE;
        }
        g_strchomp(*token);
        if (len > MAX_TOKEN_BYTES || strlen(*token) == 0) {
            g_clear_pointer(token, g_free);
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "--token-file %s: empty or too long",
                        cli->o.token_file);
            return FALSE;
        }
    } else if (environment != NULL && environment[0] != '\0') {
        *token = g_strdup(environment);
    }
    return TRUE;
}

/* An empty variable is as good as none. */
static const char *either(const char *option, const char *variable)
{
    const char *value = option != NULL ? option : g_getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static gboolean client_open(LhCli *cli, GError **error)
{
    g_autofree char *token = NULL;
    if (!token_read(cli, &token, error)) {
        return FALSE;
    }
    const char *server = either(cli->o.server, "LEASEHOLD_SERVER");
    const LhClientOptions options = {
        .server = server != NULL ? server : DEFAULT_SERVER,
        .token = token,
        .cacert = either(cli->o.cacert, "LEASEHOLD_CACERT"),
        .cert = either(cli->o.cert, "LEASEHOLD_CERT"),
        .key = either(cli->o.key, "LEASEHOLD_KEY"),
    };
    cli->client = lh_client_new(cli->env, &options, error);
    return cli->client != NULL;
}

static int command_run(LhCli *cli, char ***args, GError **error)
{
    const LhCliCommand *command = cli->command;
    g_autoptr(GError) local = NULL;
    if (!lh_options_parse(&cli->o, command->options, FALSE, args, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s", command->name, local->message);
        return LH_EXIT_USAGE;
    }
    if (cli->o.help) {
        help_command(command, cli->out);
        return LH_EXIT_DONE;
    }
    if (!format_parse(cli, error)) {
        return LH_EXIT_USAGE;
    }
    guint n = g_strv_length(*args + 1);
    if (n < command->min_args || n > command->max_args) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: wrong arguments; usage: leasehold %s %s",
                    command->name, command->name, command->arguments);
        return LH_EXIT_USAGE;
    }
    if (strcmp(command->name, "help") == 0) {
        return help(*args + 1, cli->out, error);
    }
    if (command->run == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INTERNAL, "%s: not part of this program",
                    command->name);
        return LH_EXIT_FAILED;
    }
    if (!client_open(cli, error)) {
        return LH_EXIT_USAGE;
    }
    int code = command->run(cli, *args + 1, error);
    lh_results_flush(cli);
    return code;
}

/* Takes the program's name and leading options off *args. */
static int find_and_run(LhCli *cli, char ***args, GError **error)
{
    if (!lh_options_parse(&cli->o, NULL, TRUE, args, error)) {
        return LH_EXIT_USAGE;
    }
    char **rest = *args;
    const char *name = rest[0] != NULL ? rest[1] : NULL;
    if (name == NULL) {
        help_all(cli->o.help ? cli->out : cli->err);
        return cli->o.help ? LH_EXIT_DONE : LH_EXIT_USAGE;
    }
    cli->command = command_find(name);
    if (cli->command == NULL) {
        unknown_command(name, error);
        return LH_EXIT_USAGE;
    }
    g_free(rest[0]);
    memmove(rest, rest + 1, sizeof *rest * g_strv_length(rest + 1) + sizeof *rest);
    return command_run(cli, args, error);
}

int lh_cli_run(int argc, char **argv, FILE *out, FILE *err)
{
    LhCli cli = {.out = out, .err = err, .plan_from_file = plan_from_file};
    char **args = g_new0(char *, (gsize)argc + 1);
    g_autoptr(GError) error = NULL;
    for (int i = 0; i < argc; i++) {
        args[i] = g_strdup(argv[i]);
    }
    cli.env = lh_env_glib_new(NULL);
    cli.now_ms = lh_wall_ms(cli.env);
    int code = find_and_run(&cli, &args, &error);
    if (error == NULL && (fflush(out) != 0 || ferror(out))) {
        g_set_error(&error, LH_ERROR, LH_ERR_INTERNAL, "standard output: %s", g_strerror(errno));
    }
    if (error != NULL) {
        code = lh_cli_report(&cli, error);
    }
    g_strfreev(args);
    lh_options_clear(&cli.o);
    lh_jsonpath_free(cli.jsonpath);
    lh_client_free(cli.client);
    cJSON_Delete(cli.results);
    lh_env_free(cli.env);
    return code;
}

int lh_cli_main(int argc, char **argv)
{
    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C");
    return lh_cli_run(argc, argv, stdout, stderr);
}

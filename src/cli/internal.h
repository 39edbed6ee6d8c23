/*
 * What the commands share: one invocation's options and streams, the table of commands, errors.
 *
 * A command returns an exit code, or fills its error; lh_cli_run turns that into the message and
 * the code. Nothing here outlives one lh_cli_run.
 */
#pragma once

#include "base/env.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/jsonpath.h"
#include "cli/kinds.h"

#include <cjson/cJSON.h>
#include <glib.h>
#include <stdio.h>

#ifndef LEASEHOLD_VERSION
#define LEASEHOLD_VERSION "unversioned"
#endif

/* An outcome that is no LH_ERROR; the code is the exit code. */
#define LH_CLI_ERROR (lh_cli_error_quark())
GQuark lh_cli_error_quark(void);

enum {
    LH_EXIT_DONE,
    LH_EXIT_FAILED,
    LH_EXIT_USAGE,
    LH_EXIT_UNREACHABLE,
    LH_EXIT_REFUSED,
};

typedef enum {
    LH_OUTPUT_TABLE,
    LH_OUTPUT_WIDE,
    LH_OUTPUT_JSON,
    LH_OUTPUT_YAML,
    LH_OUTPUT_NAME,
    LH_OUTPUT_JSONPATH,
} LhOutputFormat;

/* One member for each option of options.c. */
typedef struct {
    char *server, *token_file, *cacert, *cert, *key, *output, *selector, *from, *record, *condition,
        *timeout, *plan, *to, *ttl, *name;
    char **files;
    gboolean help, watch, dry_run, prune, wait;
} LhCliOptions;

typedef struct LhCli LhCli;

typedef struct {
    const char *name;
    const char *arguments; /* as in the usage line */
    const char *summary;
    const char *options; /* names of options.c besides the global ones, comma-separated */
    guint min_args, max_args;
    const char *details; /* further lines of its help; may be NULL */
    int (*run)(LhCli *cli, char **args, GError **error); /* NULL: not done by this layer */
} LhCliCommand;

struct LhCli {
    FILE *out, *err;
    LhEnv *env;
    gint64 now_ms;
    LhCliOptions o;
    const LhCliCommand *command;
    LhOutputFormat format;
    LhJsonPath *jsonpath;
    LhClient *client;
    cJSON *results; /* what was done, for -o json and yaml: see lh_result_add */
    LhCliPlanFromFile plan_from_file;
};

/* cli.c */
const LhCliCommand *lh_cli_commands(void); /* ended by a NULL name */
/* Writes the message of @error; the exit code that fits. For commands that go on after an error. */
int lh_cli_report(LhCli *cli, const GError *error);

/* options.c: takes options out of *args; what is left are the arguments. @names: of further options
 * besides the global ones; with @leading only those before the first argument. */
gboolean lh_options_parse(LhCliOptions *options, const char *names, gboolean leading, char ***args,
                          GError **error);
void lh_options_help(const char *names, FILE *out);
void lh_options_clear(LhCliOptions *options);

/* The commands: cmd_<name>.c */
int lh_cmd_apply(LhCli *cli, char **args, GError **error);
int lh_cmd_completion(LhCli *cli, char **args, GError **error);
int lh_cmd_confirm(LhCli *cli, char **args, GError **error);
int lh_cmd_cordon(LhCli *cli, char **args, GError **error);
int lh_cmd_delete(LhCli *cli, char **args, GError **error);
int lh_cmd_describe(LhCli *cli, char **args, GError **error);
int lh_cmd_diff(LhCli *cli, char **args, GError **error);
int lh_cmd_drain(LhCli *cli, char **args, GError **error);
int lh_cmd_edit(LhCli *cli, char **args, GError **error);
int lh_cmd_events(LhCli *cli, char **args, GError **error);
int lh_cmd_explain(LhCli *cli, char **args, GError **error);
int lh_cmd_get(LhCli *cli, char **args, GError **error);
int lh_cmd_leaders(LhCli *cli, char **args, GError **error);
int lh_cmd_plan(LhCli *cli, char **args, GError **error);
int lh_cmd_restore(LhCli *cli, char **args, GError **error);
int lh_cmd_retry(LhCli *cli, char **args, GError **error);
int lh_cmd_top(LhCli *cli, char **args, GError **error);
int lh_cmd_version(LhCli *cli, char **args, GError **error);
int lh_cmd_wait(LhCli *cli, char **args, GError **error);

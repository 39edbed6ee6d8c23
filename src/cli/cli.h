/*
 * The command line: every command that speaks to a server, only HTTP (CONTRACT.md section 3).
 *
 * Single-threaded and blocking; one call for each process (tests may call it repeatedly). Output
 * goes to standard output, errors as one line `leasehold: <what>: <why>` (with -o json: a problem
 * object) to standard error. Returns the exit code: 0 done, 1 not met or failed, 2 bad usage or
 * invalid input, 3 unreachable or not authenticated, 4 refused.
 */
#pragma once

#include <glib.h>
#include <stdio.h>

/* @argv[0] is the program, @argv[1] the command. dev, manager and agent are in its help only:
 * whoever calls this has carried them out already. */
int lh_cli_main(int argc, char **argv);

/* The same with other streams. */
int lh_cli_run(int argc, char **argv, FILE *out, FILE *err);

/* `plan --from FILE`, which needs what this layer may not know. Writes to @out what GET /v1/plan
 * would answer for recorded inputs (@controller NULL: all); 0, or -1 and an error. */
typedef int (*LhCliPlanFromFile)(const char *path, const char *controller, FILE *out,
                                 GError **error);
void lh_cli_set_plan_from_file(LhCliPlanFromFile func);

/*
 * The programs of the one binary that are not of a layer of their own. Each takes the arguments from the
 * command's name on and returns the exit code (CONTRACT.md, section 3).
 */
#pragma once

#include <glib.h>
#include <stdio.h>

int lh_manager_main(int argc, char **argv);
int lh_dev_main(int argc, char **argv);

/* For lh_cli_set_plan_from_file. */
int lh_replay_plan(const char *path, const char *controller, FILE *out, GError **error);

/* Between the files of the harness only. */
#pragma once

#include "harness.h"

#define MARK "LEASEHOLD_TEST_WORLD"

void proc_free(gpointer proc);
/* Ends all processes; what was wrong with one is added to @wrong. */
void procs_end(World *world, GString *wrong);
/* The last lines of every log, and what is assigned and said, as TAP comments. g_free. */
char *procs_tails(World *world);
char *mirror_text(World *world);

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

/* Starts the etcd of a new world, and makes what belongs to it; and the end of all that. */
void etcd_start(World *world, const WorldOptions *options);
void etcd_end(World *world);
/* @first and what follows until NULL. */
GPtrArray *argv_of(const char *first, va_list args);

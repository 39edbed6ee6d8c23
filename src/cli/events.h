/*
 * The list of events as the commands use it.
 */
#pragma once

#include "cli/internal.h"

/* A list, oldest first; of one object ("services/a") or, @object NULL, of all. */
cJSON *lh_events_list(LhCli *cli, const char *object, GError **error);

/*
 * Commands that are one POST: "/v1/<plural>/<name>:<verb>".
 */
#pragma once

#include "cli/internal.h"

/* @name is checked for one slash and no more when @pair. @body: JSON. Says "<object> <done>". */
int lh_action(LhCli *cli, const char *plural, const char *name, gboolean pair, const char *verb,
              const char *body, const char *done, GError **error);

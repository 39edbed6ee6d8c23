/*
 * Shared by recorded.c and recorded_check.c.
 */
#pragma once

#include "tests/invariants/recorded.h"

typedef struct {
    gint64 revision, since_ms, time_ms;
    LhEtcdEvent *events;
    gsize n;
} RecordedRevision;

struct Recorded {
    char *prefix;
    GPtrArray *revisions; /* RecordedRevision */
    GHashTable *by_hand;  /* gint64 */
};

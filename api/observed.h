/*
 * What is seen outside etcd: answers to errands (runtime/controller.h). An Observation is no key: it lives
 * in the mirror of the instance that leads, and in recorded inputs, so that decisions stay a fold.
 */
#pragma once

#include "api/object.h"

typedef struct {
    LhObject o; /* name: "<controller>/<errand>"; revisions 0 */
    gint64 at;  /* epoch ms by this instance's clock, when it was seen */
    /* Of the errand that it answers. */
    gint64 token, attempt;
    const char *error; /* why it failed; NULL: it was done */
    /* What it is about, as far as the errand tells; -1 and NULL: nothing. */
    const char *uri;
    gint64 clock; /* epoch ms, what the other side's clock said at that time */
    gint64 objects, bytes;
    gint64 revision;
    const char *state;       /* a word */
    const char *const *uris; /* never NULL after parsing */
} LhObservation;

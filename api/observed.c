/* The kind Observation: fields only. Who sees what, and what follows from it, is not known here. */
#include "api/tables.h"

const LhField lh_observation_fields[] = {
    LH_FIELD(TIME, LhObservation, at, "at", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(INT, LhObservation, token, "token", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(INT, LhObservation, attempt, "attempt", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(STR, LhObservation, error, "error", 0, 0, 0, NULL),
    LH_FIELD(STR, LhObservation, uri, "uri", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhObservation, clock, "clock", 0, 0, 0, NULL),
    LH_FIELD(INT, LhObservation, objects, "objects", LH_SPARSE, 0, 0, "-1"),
    LH_FIELD(INT, LhObservation, bytes, "bytes", LH_SPARSE, 0, 0, "-1"),
    LH_FIELD(INT, LhObservation, revision, "revision", LH_SPARSE, 0, 0, "-1"),
    LH_FIELD(ATOM, LhObservation, state, "state", 0, 0, 0, NULL),
    LH_FIELD(STRV, LhObservation, uris, "uris", LH_SPARSE, 0, 0, NULL),
    LH_FIELDS_END,
};

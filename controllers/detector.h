/*
 * failure-detector's errands and observations: the words that it and who does its errands share. Pure.
 *
 *   probe.<pool>.<node>    GET uri each period_ms, until it is not wanted any more. Observed when it first
 *                          succeeds after a miss or at all (missing 0), and at each miss up to `most` of them
 *                          in a row (missing: how many; error: the last one). token: the registration
 *   revoke.<pool>.<node>   revoke the lease `number`. token: the NodeHealth that says so
 */
#pragma once

#define LH_DETECTOR        "failure-detector"
#define LH_DETECTOR_PROBE  "probe"
#define LH_DETECTOR_REVOKE "revoke"

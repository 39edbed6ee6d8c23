/*
 * Planted bugs: mistakes that the simulation must find, so that we know that it can.
 *
 * In all that ships LH_BUG() is the constant 0 and leaves no code. The test program sim-bugs (option
 * planted_bugs, tests/sim/meson.build) compiles the files that have a planted bug once more with
 * LH_PLANTED_BUGS, and chooses one at run time; tests/sim/sim_bugs.c runs each and fails when it is not
 * found within its number of seeds. A bug changes what one line does, and never crashes by itself.
 */
#pragma once

#include <glib.h>

/* X(name in code, name on the command line, seeds within which it must be found, what is wrong) */
#define LH_PLANTED_BUG_TABLE(X)                                                                    \
    X(UNFENCED_WRITE, "unfenced-write", 1, "a transaction goes without the fence")                 \
    X(FENCE_CREATE_ONLY, "fence-create-only", 1, "the fence compares the create revision only")    \
    X(OUTCOME_NOT_VOIDED, "outcome-not-voided", 12, "an unknown outcome is not voided")            \
    X(EARLY_FIRST_PLAN, "early-first-plan", 2,                                                     \
      "a new leader plans before its mirror has caught up")                                        \
    X(RELIANCES_DROPPED, "reliances-dropped", 1, "what a decision relied on is not compared")      \
    X(LOST_DELETION, "lost-deletion", 12, "a relist does not see what was deleted meanwhile")      \
    X(LIST_ERROR_EMPTY, "list-error-empty", 12, "a list that failed is taken for an empty one")    \
    X(WATCH_SKIPS_ONE, "watch-skips-one", 12, "a watch resumes one revision too late")             \
    X(TORN_REVISION, "torn-revision", 12, "a fragment is taken for a whole revision")              \
    X(REGRESSION_IGNORED, "regression-ignored", 12, "a restored etcd puts nothing on the brake")   \
    X(OLD_CONFIRMATION_COUNTS, "old-confirmation-counts", 120,                                     \
      "what was confirmed before etcd went back is confirmed")                                     \
    X(OLD_ANSWER_COUNTS, "old-answer-counts", 120, "an answer to an older order counts")           \
    X(END_WITHOUT_ANSWER, "end-without-answer", 3, "an evicted assignment goes unanswered")        \
    X(LOST_NODE_UNCHECKED, "lost-node-unchecked", 3, "a lost node's registration is not compared") \
    X(NO_FAILURE_GRACE, "no-failure-grace", 3, "a lost node's items do not wait for its return")   \
    X(RETRY_AT_ONCE, "retry-at-once", 3, "a failed load does not wait before the next attempt")    \
    X(EVICTING_IS_FREE, "evicting-is-free", 3, "what is being evicted counts as free room")        \
    X(UNKNOWN_IS_ABSENT, "unknown-is-absent", 12, "a snapshot that does not parse counts as gone") \
    X(BRAKE_AFTER_LIMIT, "brake-after-limit", 3, "the brake counts after a rate limit")            \
    X(BRAKE_FORGETS, "brake-forgets", 3, "a new leader forgets what was evicted lately")           \
    X(LAST_GOOD_FORGOTTEN, "last-good-forgotten", 12,                                              \
      "a new leader withdraws the last good value")                                                \
    X(RESTORE_LETS_GO, "restore-lets-go", 12, "what a Pending restore created expires")            \
    X(RESTORE_TTL_AT_ONCE, "restore-ttl-at-once", 12, "a ttl is counted from the creation")        \
    X(RESTORE_IN_REGULAR, "restore-in-regular", 3, "restored replicas are placed as regular ones") \
    X(FAILED_TOO_SOON, "failed-too-soon", 3, "a lost node is called failed at once")               \
    X(LIVE_WHILE_LOADING, "live-while-loading", 3, "a node says live while it loads")              \
    X(EVICTED_TOO_SOON, "evicted-too-soon", 3, "a node says evicted while it holds the data")      \
    X(WARM_UNCOMPARED, "warm-uncompared", 3, "a registration is written over without comparing")   \
    X(PARTITION_PAST, "partition-past", 3, "an interval of a plan that has begun is replaced")     \
    X(PARTITION_OVERFULL, "partition-overfull", 12, "what leaves a partition counts as gone")      \
    X(WORKS_PAST_DEADLINE, "works-past-deadline", 24,                                              \
      "an exclusive node works on past its lease's deadline")                                      \
    X(LOST_NODE_NOT_FAILED, "lost-node-not-failed", 3,                                             \
      "a lost node's task is given away before the node has failed")                               \
    X(DELETED_UNDECIDED, "deleted-undecided", 12, "data is deleted before that is decided")        \
    X(RESTORATION_FORGOTTEN, "restoration-forgotten", 24,                                          \
      "who did not see that etcd was restored deletes on")                                         \
    X(MASSES_UNBRAKED, "masses-unbraked", 24, "the brake of deletions counts nothing")             \
    X(LISTING_ERROR_EMPTY, "listing-error-empty", 12,                                              \
      "a bucket's listing that failed is taken for an empty one")                                  \
    X(PERMIT_BUCKET, "permit-bucket", 3,                                                           \
      "a throttle is a bucket that is filled at each period's beginning: twice the burst")         \
    X(WINDOW_FORGOTTEN, "window-forgotten", 3,                                                     \
      "a policy is handed on as if nothing had been granted")                                      \
    X(QUIET_FORGOTTEN, "quiet-forgotten", 3, "who does not know what was granted grants at once")  \
    X(JOINS_MOVING, "joins-moving", 12, "a seed joins a policy's group that is being moved")       \
    X(GROUP_SPLIT, "group-split", 3,                                                               \
      "a policy's group is loaded elsewhere before all of it were evicted")                        \
    X(FAILED_EVICTED_FIRST, "failed-evicted-first", 12,                                            \
      "a node in failure loses its copy before another is live")                                   \
    X(MISS_TWICE, "miss-twice", 12, "a probe that was missed counts twice")                        \
    X(PROBES_UNBRAKED, "probes-unbraked", 12,                                                      \
      "a fleet that misses its probes is condemned at once")                                       \
    X(FAILURE_TAKES, "failure-takes", 12, "a node in failure gets new work")                       \
    X(OLD_MISSES, "old-misses", 24, "what was observed under an earlier leadership counts")

typedef enum {
#define X(name, text, seeds, what) LH_BUG_##name,
    LH_PLANTED_BUG_TABLE(X)
#undef X
        LH_N_BUGS,
} LhPlantedBug;

#ifdef LH_PLANTED_BUGS
extern LhPlantedBug lh_planted_bug; /* LH_N_BUGS: none */
#define LH_BUG(name) (lh_planted_bug == LH_BUG_##name)
#else
#define LH_BUG(name) (FALSE)
#endif

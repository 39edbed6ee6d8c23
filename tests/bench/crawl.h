/*
 * A fleet that crawls: seeds, throttle policies of many sizes, and crawl managers, all by number; and the
 * least number of seeds that anybody would have to move. Keys are below the prefix. No etcd.
 *
 * Nine of ten seeds ask for a policy: policy p has (p mod 19 + 1) units of them, so that policies are of 19
 * sizes, the largest 19 times the smallest. The others have none.
 */
#pragma once

#include "api/object.h"
#include "bench.h"

typedef struct {
    guint seeds, policies, managers;
    guint *policy_of; /* of each seed; policies: none */
} Crawl;

Crawl *crawl_new(guint seeds, guint policies, guint managers);
void crawl_free(Crawl *crawl);

/* "seeds/…" and "throttles/…" and their specs; g_free. */
void crawl_seed(const Crawl *crawl, guint i, char **subject, char **spec);
void crawl_policy(const Crawl *crawl, guint i, char **subject, char **spec);
/* A node that starts again is another node of the same name; @start counts them. */
char *crawl_manager_id(guint i, guint start);
/* @lease: of its registration; NULL: none is said. */
void crawl_manager(guint i, guint start, const char *lease, gint64 ttl_ms, char **key,
                   char **value);
/* What a crawl manager answers @object, a known Assignment, with. */
void crawl_item(const LhObject *object, char **key, char **value);

/* ---- what has to move ---- */

/* Seeds of one throttle policy on one manager. */
typedef struct {
    guint manager, seeds;
} CrawlGroup;

typedef struct {
    guint managers;
    guint *free, *grouped; /* seeds without and with a policy, of each manager */
    GArray *groups;        /* CrawlGroup */
} CrawlHeld;

CrawlHeld *crawl_held_new(guint managers);
void crawl_held_free(CrawlHeld *held);
/* The most of any of them, and the fewest. */
guint crawl_most(const guint *of, guint n);
guint crawl_fewest(const guint *of, guint n);
/*
 * The least number of seeds that must leave their managers when one joins that holds nothing:
 *
 * - of those without a policy, so that all are within 1 of each other: exact. With q = total / managers and
 *   r = the rest, a manager keeps at most q, and r of them q + 1; what nobody can keep must move.
 * - of those with one: a lower bound for ending as even as @after. The newcomer must get what the emptiest
 *   has there; and every other must lose whole policies until it has no more than the fullest there: for each
 *   the least sum of its policies' sizes that is enough (all subsets are tried, by a table of reachable sums).
 *   The larger of the two. No way of moving policies that ends as even can do with less; whether one does
 *   with so little is not said.
 */
guint crawl_least_free(const CrawlHeld *before);
guint crawl_least_grouped(const CrawlHeld *before, const CrawlHeld *after);

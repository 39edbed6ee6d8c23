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

/* Seeds of one throttle policy, all on one manager. */
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
guint crawl_total(const CrawlHeld *held, guint manager);
/* Of totals: the most, and the fewest. */
guint crawl_most(const CrawlHeld *held);
guint crawl_fewest(const CrawlHeld *held);
/*
 * When one joins that holds nothing: how many seeds must leave their managers at least, for ending as even as
 * @after, with whole policies. A lower bound, the larger of two; whether so few are enough is not said.
 *
 * - What the newcomer gets. Of seeds without a policy everybody then has q or q + 1 (q = all of them / managers):
 *   a manager keeps q of its own, and some keep q + 1; what nobody can keep moves, which is exact. The others
 *   make the newcomer's total what the emptiest has in @after, so there are at least that less q + 1 of them.
 * - What the others lose: each has to come down to the most in @after, by whole policies and single seeds. Of
 *   each the least sum that is enough: all subsets are tried, by a table of the sums that can be reached.
 */
guint crawl_least(const CrawlHeld *before, const CrawlHeld *after);

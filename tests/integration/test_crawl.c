/*
 * A crawl with real processes: a thousand seeds, twenty throttle policies, five crawl managers, two managers.
 * A sixth crawl manager joins, one is killed, the leader is killed meanwhile, one is stopped for longer than its
 * lease and goes on. All the while crawlers ask every crawl manager for permits of every policy.
 *
 * What must hold: no policy and no seed has two holders at any revision of etcd; no policy exceeds its limits, by
 * what all crawlers together were really granted; whoever is not concerned is answered all the time; as few
 * move as must.
 */
#include "holders.h"
#include "ledger.h"

#include <signal.h>
#include <string.h>

#define FREE     800 /* seeds without a policy */
#define POLICIES 20
#define MEMBERS  10 /* seeds of each policy */
#define SEEDS    (FREE + POLICIES * MEMBERS)
#define CRAWLERS 5 /* crawl managers in the beginning */
#define MOST     8
#define LEASE_MS 3000
#define PERIOD   2000

/* A holder that nobody has heard of waits for a permit's life when its policy has maxConcurrent. */
#define LIMITED(name_)                                     \
    {                                                      \
        .name = name_, .requests = 20, .period_ms = PERIOD \
    }
#define CONCURRENT(name_)                  \
    {                                      \
        .name = name_, .max_concurrent = 4 \
    }
#define BOTH(name_)                                                             \
    {                                                                           \
        .name = name_, .requests = 25, .period_ms = PERIOD, .max_concurrent = 6 \
    }

static const LedgerPolicy policies[POLICIES] = {
    LIMITED("p-00"), LIMITED("p-01"), LIMITED("p-02"),    LIMITED("p-03"),    LIMITED("p-04"),
    LIMITED("p-05"), LIMITED("p-06"), LIMITED("p-07"),    LIMITED("p-08"),    LIMITED("p-09"),
    LIMITED("p-10"), LIMITED("p-11"), LIMITED("p-12"),    LIMITED("p-13"),    LIMITED("p-14"),
    LIMITED("p-15"), LIMITED("p-16"), CONCURRENT("p-17"), CONCURRENT("p-18"), BOTH("p-19"),
};

static const char *const lease_arg[] = {"--lease-ttl", "3s", NULL};

typedef struct {
    World *world;
    Ledger *ledger;
    Proc *crawlers[MOST];
    guint clients[MOST];
    guint n;
} Crawl;

/* ---- the fleet ---- */

static void publish(World *world)
{
    for (guint i = 0; i < POLICIES; i++) {
        const LedgerPolicy *p = &policies[i];
        g_autofree char *key = g_strconcat("desired/throttles/", p->name, NULL);
        g_autoptr(GString) spec = g_string_new(NULL);
        if (p->requests > 0)
            g_string_append_printf(
                spec, "\"requests\":%" G_GINT64_FORMAT ",\"period\":\"%" G_GINT64_FORMAT "s\"",
                p->requests, p->period_ms / 1000);
        if (p->max_concurrent > 0)
            g_string_append_printf(spec, "%s\"maxConcurrent\":%" G_GINT64_FORMAT,
                                   spec->len > 0 ? "," : "", p->max_concurrent);
        world_putf(world, key, "{\"spec\":{%s}}", spec->str);
    }
    for (guint i = 0; i < POLICIES * MEMBERS; i++) {
        const char *policy = policies[i % POLICIES].name;
        g_autofree char *key = g_strdup_printf("desired/seeds/%s-%02u", policy, i / POLICIES);
        world_putf(world, key,
                   "{\"spec\":{\"url\":\"https://example.org/%u\",\"throttle\":\"%s\"}}", i,
                   policy);
    }
    for (guint i = 0; i < FREE; i++) {
        g_autofree char *key = g_strdup_printf("desired/seeds/free-%03u", i);
        world_putf(world, key, "{\"spec\":{\"url\":\"https://example.net/%u\"}}", i);
    }
}

static Proc *crawler_start(Crawl *crawl)
{
    g_autofree char *name = g_strdup_printf("c-%u", crawl->n + 1);
    Proc *proc = agent_start(crawl->world,
                             &(AgentOptions){.name = name, .pool = "manager", .extra = lease_arg});

    crawl->crawlers[crawl->n] = proc;
    crawl->clients[crawl->n++] = ledger_client(crawl->ledger, proc->url);
    return proc;
}

/* ---- who has what ---- */

typedef struct {
    const char *id;
    guint free, grouped;
} Share;

typedef struct {
    World *world;
    guint live;
    GHashTable *shares; /* node id → Share, of nodes that are registered */
    GHashTable *owners; /* policy → node id */
    gboolean split, elsewhere;
} Shares;

static void add_node(const LhObject *object, gpointer data)
{
    Shares *shares = data;
    Share *share = g_new0(Share, 1);

    share->id = strchr(object->name, '/') + 1;
    g_hash_table_insert(shares->shares, (gpointer)share->id, share);
}

/* "p-07-03" is of p-07; NULL: of none. g_free. */
static char *policy_of(const char *seed)
{
    return g_str_has_prefix(seed, "p-") ? g_strndup(seed, strlen("p-00")) : NULL;
}

static void add_assignment(const LhObject *object, gpointer data)
{
    Shares *shares = data;
    g_autofree char *id = lh_name_part(object->name, 1), *seed = lh_name_part(object->name, 2);
    g_autofree char *policy = policy_of(seed);
    const LhItem *item = world_get(shares->world, LH_KIND_ITEM, "%s", object->name);
    Share *share = g_hash_table_lookup(shares->shares, id);
    const char *owner;

    if (((const LhAssignment *)object)->action != LH_ACTION_LOAD || share == NULL) {
        shares->elsewhere = TRUE;
        return;
    }
    if (policy != NULL)
        share->grouped++;
    else
        share->free++;
    shares->live += item != NULL && item->state == LH_ITEM_LIVE &&
                    item->assignment == object->mod_rev;
    if (policy == NULL)
        return;
    owner = g_hash_table_lookup(shares->owners, policy);
    shares->split = shares->split || (owner != NULL && strcmp(owner, share->id) != 0);
    g_hash_table_replace(shares->owners, g_steal_pointer(&policy), (gpointer)share->id);
}

static Shares shares_of(World *world)
{
    Shares shares = {
        .world = world,
        .shares = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free),
        .owners = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
    };

    lh_mirror_foreach(world->mirror, LH_KIND_NODE, add_node, &shares);
    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, add_assignment, &shares);
    return shares;
}

static void shares_clear(Shares *shares)
{
    g_hash_table_unref(shares->shares);
    g_hash_table_unref(shares->owners);
}

/* All seeds are live on so many nodes, evenly: those without a policy within 1 of each other, and policies
 * within one policy. */
static gboolean is_even(World *world, gpointer data)
{
    guint least = G_MAXUINT, most = 0, least_grouped = G_MAXUINT, most_grouped = 0;
    Shares shares = shares_of(world);
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, shares.shares);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Share *share = value;
        least = MIN(least, share->free);
        most = MAX(most, share->free);
        least_grouped = MIN(least_grouped, share->grouped);
        most_grouped = MAX(most_grouped, share->grouped);
    }
    gboolean even = g_hash_table_size(shares.shares) == GPOINTER_TO_UINT(data) &&
                    shares.live == SEEDS && !shares.elsewhere && !shares.split &&
                    most - least <= 1 && most_grouped - least_grouped <= MEMBERS;
    shares_clear(&shares);
    return even;
}

/* All seeds are live, on whomever. */
static gboolean all_live(World *world, gpointer data)
{
    Shares shares = shares_of(world);
    gboolean live = shares.live == SEEDS && !shares.elsewhere && !shares.split;

    (void)data;
    shares_clear(&shares);
    return live;
}

static void print_shares(World *world, const char *when)
{
    Shares shares = shares_of(world);
    g_autoptr(GList) ids = g_list_sort(g_hash_table_get_keys(shares.shares), (GCompareFunc)strcmp);

    print_message("# %s:", when);
    for (const GList *link = ids; link != NULL; link = link->next) {
        const Share *share = g_hash_table_lookup(shares.shares, link->data);
        print_message(" %s %u+%u", share->id, share->free, share->grouped);
    }
    print_message("\n");
    shares_clear(&shares);
}

static void wait_even(Crawl *crawl, guint n, const char *when)
{
    world_poll(crawl->world, is_even, GUINT_TO_POINTER(n), "%s: all is live and even", when);
    print_shares(crawl->world, when);
}

/* ---- phases ---- */

/* From one revision and moment to another. */
typedef struct {
    const char *name;
    gint64 from_rev, to_rev, from_us, to_us;
} Phase;

static Phase phase_begin(Crawl *crawl, const char *name)
{
    return (Phase){
        .name = name, .from_rev = world_revision(crawl->world), .from_us = ledger_now_us()};
}

static void phase_end(Crawl *crawl, Phase *phase)
{
    phase->to_us = ledger_now_us();
    phase->to_rev = world_revision(crawl->world);
}

static gboolean time_is_up(World *world, gpointer until_us)
{
    (void)world;
    return ledger_now_us() >= *(gint64 *)until_us;
}

/* The load goes on meanwhile. */
static void pass(Crawl *crawl, gint64 ms)
{
    gint64 until_us = ledger_now_us() + ms * 1000;

    world_poll(crawl->world, time_is_up, &until_us, "time passes");
}

/* ---- what moved ---- */

typedef struct {
    guint free, policies, loads; /* loads: of all seeds */
    GHashTable *moved;           /* set of policies */
} Moves;

/* In the phase, from nodes whose id begins with @from to such as begin with @to; "": any. */
static Moves moves_in(GPtrArray *loads, const Phase *phase, const char *from, const char *to)
{
    Moves moves = {.moved = g_hash_table_new(g_str_hash, g_str_equal)};

    for (guint i = 0; i < loads->len; i++) {
        const Load *load = loads->pdata[i];
        if (load->revision <= phase->from_rev || load->revision > phase->to_rev)
            continue;
        if (!g_str_has_prefix(load->before, from) || !g_str_has_prefix(load->node, to))
            continue;
        moves.loads++;
        moves.free += *load->policy == '\0';
        if (*load->policy != '\0')
            g_hash_table_add(moves.moved, load->policy);
    }
    moves.policies = g_hash_table_size(moves.moved);
    return moves;
}

/* Only from @from to @to, and no more than these. */
static GHashTable *check_moves(World *world, GPtrArray *loads, const Phase *phase, const char *from,
                               const char *to, guint most_free, guint most_policies)
{
    Moves all = moves_in(loads, phase, "", ""), wanted = moves_in(loads, phase, from, to);

    print_message("# %s: %u seeds moved, of these %u without a policy, and %u policies\n",
                  phase->name, all.loads, all.free, all.policies);
    if (wanted.loads != all.loads)
        world_fail(world, "%s: %u seeds moved, but %u not from %s to %s", phase->name, all.loads,
                   all.loads - wanted.loads, from, to);
    if (all.free > most_free || all.policies > most_policies ||
        all.loads != all.free + all.policies * MEMBERS)
        world_fail(world, "%s: %u seeds and %u policies moved (%u loads)", phase->name, all.free,
                   all.policies, all.loads);
    g_hash_table_unref(wanted.moved);
    return all.moved;
}

/* ---- who was answered ---- */

/* Of policies that did not move every answer of the holder was one, at most a lease's time apart. */
static void check_answered(Crawl *crawl, const Phase *phase, GHashTable *moved)
{
    const GArray *answers = ledger_answers(crawl->ledger);
    gint64 longest_us = 0;
    guint n = 0;

    for (guint p = 0; p < POLICIES; p++) {
        gint64 last_us = phase->from_us;
        guint holders = 0, of_holder = 0;
        if (g_hash_table_contains(moved, policies[p].name))
            continue;
        for (guint c = 0; c < crawl->n; c++) {
            guint good = 0, bad = 0;
            for (guint i = 0; i < answers->len; i++) { /* in order: they are of one client */
                const LedgerAnswer *answer = &g_array_index(answers, LedgerAnswer, i);
                if (answer->client != c || answer->seed != p || answer->from_us < phase->from_us ||
                    answer->to_us > phase->to_us)
                    continue;
                good += answer->status == 200;
                bad += answer->status != 200;
                if (answer->status == 200) {
                    longest_us = MAX(longest_us, answer->to_us - last_us);
                    last_us = answer->to_us;
                }
            }
            if (good > 0 && bad > 0)
                world_fail(crawl->world, "%s: %s stayed on c-%u, which refused %u of %u requests",
                           phase->name, policies[p].name, c + 1, bad, good + bad);
            holders += good > 0;
            of_holder += good;
        }
        if (holders != 1)
            world_fail(crawl->world, "%s: %s did not move, and %u answered for it", phase->name,
                       policies[p].name, holders);
        longest_us = MAX(longest_us, phase->to_us - last_us);
        n += of_holder;
    }
    print_message("# %s: %u answers for policies that did not move, at most %.1f ms apart\n",
                  phase->name, n, (double)longest_us / 1e3);
    if (longest_us > LEASE_MS * 1000)
        world_fail(crawl->world, "%s: policies that did not move were not answered", phase->name);
}

/* ---- the story ---- */

typedef struct {
    const char *name, *not_id;
    char *id;
} Named;

static void find_named(const LhObject *object, gpointer data)
{
    Named *named = data;
    g_autofree char *id = lh_name_part(object->name, 1), *name = lh_node_name_of(id);

    if (strcmp(name, named->name) == 0 && g_strcmp0(id, named->not_id) != 0 && named->id == NULL)
        named->id = g_steal_pointer(&id);
}

static gboolean is_registered(World *world, gpointer data)
{
    lh_mirror_foreach(world->mirror, LH_KIND_NODE, find_named, data);
    return ((Named *)data)->id != NULL;
}

/* Registered under another id than @not_id. g_free. */
static char *node_id(World *world, const char *name, const char *not_id)
{
    Named named = {name, not_id, NULL};

    world_wait(world, is_registered, &named, "%s is registered", name);
    return named.id;
}

static gboolean has_none(World *world, gpointer id)
{
    g_autofree char *prefix = g_strdup_printf("decided/assignments/manager/%s/", (char *)id);
    g_autoptr(GPtrArray) keys = world_range(world, prefix);

    return keys->len == 0;
}

/* Its seeds go elsewhere, and are live there, not before its lease and then as long again are over. */
static void wait_taken_over(Crawl *crawl, const char *id, gint64 lost_us, guint left)
{
    gint64 after_ms;

    world_poll(crawl->world, has_none, (gpointer)id, "the seeds of %s are elsewhere", id);
    after_ms = (ledger_now_us() - lost_us) / 1000;
    world_poll(crawl->world, all_live, NULL, "all seeds are live without %s", id);
    print_message("# %s: its seeds are elsewhere %" G_GINT64_FORMAT " ms after its loss\n", id,
                  after_ms);
    wait_even(crawl, left, "without it");
}

typedef struct {
    Crawl *crawl;
    guint client, wanted;
} Hearing;

static gboolean has_heard(World *world, gpointer data)
{
    const Hearing *hearing = data;

    (void)world;
    return ledger_answered(hearing->crawl->ledger, hearing->client) >= hearing->wanted;
}

/* So many more answers come from it. */
static void wait_answers(Crawl *crawl, guint client, guint n)
{
    Hearing hearing = {crawl, client, ledger_answered(crawl->ledger, client) + n};

    world_poll(crawl->world, has_heard, &hearing, "client %u hears %u answers", client, n);
}

static Crawl *crawl_begin(World *world)
{
    Crawl *crawl = g_new0(Crawl, 1);

    crawl->world = world;
    crawl->ledger = ledger_new(policies, POLICIES);
    for (guint i = 0; i < POLICIES; i++) {
        g_autofree char *seed = g_strconcat(policies[i].name, "-03", NULL);
        ledger_seed(crawl->ledger, seed, i);
    }
    publish(world);
    for (guint i = 0; i < CRAWLERS; i++)
        crawler_start(crawl);
    return crawl;
}

static Phase one_joins(Crawl *crawl)
{
    Phase phase = phase_begin(crawl, "a sixth joins");

    crawler_start(crawl);
    wait_even(crawl, CRAWLERS + 1, phase.name);
    pass(crawl, PERIOD);
    phase_end(crawl, &phase);
    return phase;
}

/* And, while it is known to be gone and not yet to have failed, the leader, too. */
static Phase one_is_killed(Crawl *crawl, char **id, Proc *leader)
{
    Phase phase = phase_begin(crawl, "one is killed, and the leader");

    *id = node_id(crawl->world, "c-1", NULL);
    gint64 lost_us = ledger_now_us();
    proc_kill(crawl->crawlers[0]);
    pass(crawl, LEASE_MS);
    proc_kill(leader);
    wait_taken_over(crawl, *id, lost_us, CRAWLERS);
    pass(crawl, 2 * PERIOD);
    phase_end(crawl, &phase);
    return phase;
}

/* Its requests wait for it; @stopped_us and @let_us: when it was let go again, and when it got seeds again. */
static Phase one_is_stopped(Crawl *crawl, char **id, gint64 *stopped_us, gint64 *let_us)
{
    Phase phase = phase_begin(crawl, "one is stopped");
    Proc *proc = crawl->crawlers[1];
    guint client = crawl->clients[1];

    *id = node_id(crawl->world, "c-2", NULL);
    /* So that it is given nothing once it is back: whatever it grants then is wrong. */
    world_put(crawl->world, "desired/nodepolicies/manager/c-2", "{\"spec\":{\"cordon\":true}}");
    ledger_pause(crawl->ledger, client);
    kill(proc_pid(proc), SIGSTOP);
    *stopped_us = ledger_now_us();
    ledger_resume(crawl->ledger, client);
    world_poll(crawl->world, has_none, *id, "the seeds of %s are elsewhere", *id);
    world_poll(crawl->world, all_live, NULL, "all seeds are live without %s", *id);
    kill(proc_pid(proc), SIGCONT);
    g_free(node_id(crawl->world, "c-2", *id));
    wait_answers(crawl, client, 2 * POLICIES);
    pass(crawl, PERIOD);
    phase_end(crawl, &phase);
    *let_us = ledger_now_us();
    world_delete(crawl->world, "desired/nodepolicies/manager/c-2");
    wait_even(crawl, CRAWLERS, "the stopped one is back");
    return phase;
}

static void check_stopped(Crawl *crawl, gint64 stopped_us, gint64 let_us)
{
    const GArray *answers = ledger_answers(crawl->ledger);
    guint n = 0, waited = 0;

    for (guint i = 0; i < answers->len; i++) {
        const LedgerAnswer *answer = &g_array_index(answers, LedgerAnswer, i);
        if (answer->client != crawl->clients[1] || answer->from_us < stopped_us ||
            answer->to_us > let_us)
            continue;
        n += answer->status != 0;
        waited += answer->status != 0 && answer->to_us - answer->from_us > LEASE_MS * 1000;
        if (answer->granted > 0)
            world_fail(crawl->world, "c-2 grants %u permits although its lease is over",
                       answer->granted);
    }
    print_message("# c-2 refused %u requests after it had been stopped, %u of them of that time\n",
                  n, waited);
    assert_true(waited > 0);
    assert_true(n > POLICIES);
}

/* Twice: there is nothing to move. */
static Phase rebalanced(Crawl *crawl, Proc *manager)
{
    Phase phase = phase_begin(crawl, "rebalanced");

    for (guint i = 0; i < 2; i++) {
        g_autoptr(Reply) reply = http(manager, "POST", "/v1/pools/manager:rebalance", "{}");
        assert_true(reply->status >= 200 && reply->status < 300);
        pass(crawl, 500);
    }
    phase_end(crawl, &phase);
    return phase;
}

static void check_limits(Crawl *crawl)
{
    g_autofree char *exceeded = ledger_exceeded(crawl->ledger);

    for (guint i = 0; i < POLICIES; i++) {
        const LedgerPolicy *p = &policies[i];
        LedgerMost most = ledger_most(crawl->ledger, i);
        print_message(
            "# %s: %" G_GINT64_FORMAT " permits; at most %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
            " within its period, %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " at once\n",
            p->name, most.granted, most.within, p->requests, most.at_once, p->max_concurrent);
        /* The crawlers wanted more than they got: else this says nothing. */
        if (p->max_concurrent == 0)
            assert_int_equal(most.within, p->requests);
        else
            assert_true(most.at_once == p->max_concurrent || most.within == p->requests);
    }
    if (exceeded != NULL)
        world_fail(crawl->world, "%s", exceeded);
}

static void a_crawl(void **state)
{
    World *world = *state;
    gint64 stopped_us, let_us;
    g_autofree char *killed = NULL, *stopped = NULL, *wrong = NULL;
    Crawl *crawl = crawl_begin(world);
    Proc *first = manager_start(world, "m-1", lease_arg);
    Proc *second = manager_start(world, "m-2", lease_arg);

    wait_even(crawl, CRAWLERS, "in the beginning");
    pass(crawl, PERIOD);
    Phase join = one_joins(crawl);
    Phase kill = one_is_killed(crawl, &killed, first);
    manager_start(world, "m-3", lease_arg);
    Phase stop = one_is_stopped(crawl, &stopped, &stopped_us, &let_us);
    pass(crawl, PERIOD);
    Phase quiet = rebalanced(crawl, second);
    ledger_stop(crawl->ledger);

    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GPtrArray) loads = holders_read(history, "manager", &wrong);
    if (wrong != NULL)
        world_fail(world, "two holders: %s", wrong);
    print_message("# %u changes, %u loads\n", history->len, loads->len);
    const guint share = FREE / (CRAWLERS + 1) + 1;
    g_autoptr(GHashTable) joined = check_moves(world, loads, &join, "", "c-6-", share, 3);
    g_autoptr(GHashTable) dead = check_moves(world, loads, &kill, killed, "", share, 4);
    g_autoptr(GHashTable) frozen = check_moves(world, loads, &stop, stopped, "",
                                               FREE / CRAWLERS + 1, 4);
    g_autoptr(GHashTable) none = check_moves(world, loads, &quiet, "", "", 0, 0);
    check_answered(crawl, &join, joined);
    check_answered(crawl, &kill, dead);
    check_answered(crawl, &stop, frozen);
    check_answered(crawl, &quiet, none);
    check_stopped(crawl, stopped_us, let_us);
    check_limits(crawl);
    ledger_free(crawl->ledger);
    g_free(crawl);
}

/* ---- a policy whose seeds are not let go at the same time ---- */

#define SLOW_POLICIES 4
#define SLOW_MEMBERS  3

static const char *const slow_args[] = {
    "--lease-ttl", "3s",         "--on-load",
    "true",        "--on-evict", "sh -c 'case $LEASEHOLD_ITEM in *-01) sleep 1 ;; esac'",
    NULL};

typedef struct {
    World *world;
    guint evicting;
    char *policy; /* of one that is; g_free */
} Leaving;

static void find_leaving(const LhObject *object, gpointer data)
{
    Leaving *leaving = data;
    g_autofree char *seed = lh_name_part(object->name, 2);

    if (((const LhAssignment *)object)->action != LH_ACTION_EVICT)
        return;
    leaving->evicting++;
    g_free(leaving->policy);
    leaving->policy = policy_of(seed);
}

static gboolean one_leaves(World *world, gpointer data)
{
    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, find_leaving, data);
    return ((Leaving *)data)->evicting > 0;
}

typedef struct {
    guint live;       /* wanted */
    const char *none; /* the node that has nothing */
} Settled;

static gboolean is_settled(World *world, gpointer data)
{
    const Settled *settled = data;
    Shares shares = shares_of(world);
    const Share *share = g_hash_table_lookup(shares.shares, settled->none);
    gboolean good = shares.live == settled->live && !shares.elsewhere && !shares.split &&
                    (share == NULL || share->grouped == 0);

    shares_clear(&shares);
    return good;
}

static void put_slow_seed(World *world, const char *policy, const char *number)
{
    g_autofree char *key = g_strdup_printf("desired/seeds/%s-%s", policy, number);

    world_putf(world, key, "{\"spec\":{\"url\":\"https://example.org/\",\"throttle\":\"%s\"}}",
               policy);
}

/* A manager is drained, policy by policy; another seed comes to one that is on its way. */
static void all_of_a_policy_moves(void **state)
{
    World *world = *state;
    Leaving leaving = {.world = world};
    g_autofree char *wrong = NULL;

    manager_start(world, "m-1", lease_arg);
    agent_start(world, &(AgentOptions){.name = "c-1", .pool = "manager", .extra = slow_args});
    g_autofree char *from = node_id(world, "c-1", NULL);
    for (guint i = 0; i < SLOW_POLICIES; i++) {
        g_autofree char *key = g_strconcat("desired/throttles/", policies[i].name, NULL);
        world_put(world, key, "{\"spec\":{\"requests\":5,\"period\":\"1m\"}}");
        for (guint j = 0; j < SLOW_MEMBERS; j++) {
            g_autofree char *number = g_strdup_printf("%02u", j);
            put_slow_seed(world, policies[i].name, number);
        }
    }
    world_poll(world, is_settled, &(Settled){SLOW_POLICIES * SLOW_MEMBERS, ""}, "all is live");
    world_put(world, "desired/settings/seed-allocator", "{\"spec\":{\"autoRebalance\":false}}");
    agent_start(world, &(AgentOptions){.name = "c-2", .pool = "manager", .extra = slow_args});
    world_put(world, "desired/nodepolicies/manager/c-1", "{\"spec\":{\"drain\":true}}");
    world_wait(world, one_leaves, &leaving, "seeds are on their way");
    put_slow_seed(world, leaving.policy, "99");
    world_poll(world, is_settled, &(Settled){SLOW_POLICIES * SLOW_MEMBERS + 1, from},
               "all is live elsewhere");

    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GPtrArray) loads = holders_read(history, "manager", &wrong);
    if (wrong != NULL)
        world_fail(world, "two holders: %s", wrong);
    print_message("# %u changes, %u loads\n", history->len, loads->len);
    assert_int_equal(loads->len, 2 * SLOW_POLICIES * SLOW_MEMBERS + 1);
    g_free(leaving.policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_a_policy_moves, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_crawl, world_setup, world_teardown),
    };

    return cmocka_run_group_tests_name("crawl", tests, NULL, NULL);
}

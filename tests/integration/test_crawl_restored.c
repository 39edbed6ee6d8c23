/*
 * Throttle policies across a restoration of etcd: what crawl managers granted in the history that is lost counts
 * on, although nothing of it is written anywhere. The backup is a copy of etcd's data; crawlers ask all the time.
 *
 *   backup      "late" exists, and nobody has ever held it; "moved" is held by c-1
 *   after it    "late" gets a seed and is held; c-1 is drained, and c-2 gets "moved"; both are granted in full
 *   restored    as at the backup; people put the seed of "late" again
 */
#include "harness.h"
#include "ledger.h"

#include <glib/gstdio.h>
#include <string.h>

#define PERIOD_S 12

enum { LATE, MOVED, N_POLICIES };

static const LedgerPolicy policies[N_POLICIES] = {
    [LATE] = {.name = "late", .requests = 20, .period_ms = PERIOD_S * 1000},
    [MOVED] = {.name = "moved", .requests = 20, .period_ms = PERIOD_S * 1000},
};

static const char *const lease_arg[] = {"--lease-ttl", "3s", NULL};

/* ---- the backup ---- */

static void copy(World *world, const char *from, const char *to)
{
    g_autoptr(Run) cp = run(world, "cp", "-a", from, to, NULL);

    if (cp->code != 0)
        world_fail(world, "cp %s %s: %s", from, to, cp->err);
}

static void back_up(World *world)
{
    g_autofree char *data = g_build_filename(etcd_process_dir(world->etcd), "data", NULL);
    g_autofree char *backup = g_build_filename(world->dir, "backup", NULL);

    etcd_process_freeze(world->etcd);
    copy(world, data, backup);
    etcd_process_thaw(world->etcd);
}

typedef struct {
    gboolean asked, answered;
} Asking;

static void on_range(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Asking *asking = data;

    (void)reply;
    asking->asked = FALSE;
    asking->answered = error == NULL;
}

static gboolean answers(World *world, gpointer data)
{
    Asking *asking = data;
    const LhRangeRequest request = {.key = "/", .limit = 1};

    if (!asking->asked && !asking->answered) {
        asking->asked = TRUE;
        world->client->v->range(world->client, &request, 1000, on_range, asking);
    }
    return asking->answered;
}

static void restore(World *world)
{
    Asking asking = {0};
    g_autofree char *data = g_build_filename(etcd_process_dir(world->etcd), "data", NULL);
    g_autofree char *lost = g_build_filename(world->dir, "lost", NULL);
    g_autofree char *backup = g_build_filename(world->dir, "backup", NULL);
    g_autoptr(GError) error = NULL;

    etcd_process_kill(world->etcd);
    copy(world, data, lost);
    g_autoptr(Run) rm = run(world, "rm", "-r", data, NULL);
    assert_int_equal(rm->code, 0);
    copy(world, backup, data);
    if (!etcd_process_restart(world->etcd, &error))
        world_fail(world, "etcd: %s", error->message);
    world_poll(world, answers, &asking, "etcd answers again");
}

/* ---- who has what ---- */

typedef struct {
    const char *seed, *on; /* on: name of its node; NULL: any */
    gboolean live;
} Wanted;

static void find_live(const LhObject *object, gpointer data)
{
    Wanted *wanted = data;
    g_autofree char *id = lh_name_part(object->name, 1), *seed = lh_name_part(object->name, 2);
    g_autofree char *name = lh_node_name_of(id);

    if (strcmp(seed, wanted->seed) == 0 && (wanted->on == NULL || strcmp(name, wanted->on) == 0))
        wanted->live = wanted->live || ((const LhItem *)object)->state == LH_ITEM_LIVE;
}

static gboolean is_live(World *world, gpointer data)
{
    Wanted *wanted = data;

    wanted->live = FALSE;
    lh_mirror_foreach(world->mirror, LH_KIND_ITEM, find_live, wanted);
    return wanted->live;
}

static void wait_live(World *world, const char *seed, const char *on)
{
    Wanted wanted = {seed, on, FALSE};

    world_wait(world, is_live, &wanted, "%s is live on %s", seed, on != NULL ? on : "a node");
}

static gboolean is_idle(World *world, gpointer data)
{
    Wanted *wanted = data;

    return !is_live(world, wanted);
}

typedef struct {
    Ledger *ledger;
    gint64 since_us;
    guint seed, n;
} Granted;

static gboolean has_granted(World *world, gpointer data)
{
    const Granted *granted = data;

    (void)world;
    return ledger_granted(granted->ledger, granted->seed, granted->since_us) >= granted->n;
}

static void wait_granted(World *world, Ledger *ledger, guint seed, gint64 since_us, guint n)
{
    Granted granted = {.ledger = ledger, .since_us = since_us, .seed = seed, .n = n};

    world_poll(world, has_granted, &granted, "%u permits of %s", n, policies[seed].name);
}

static void count_healthy(const LhObject *object, gpointer data)
{
    *(guint *)data += ((const LhHealth *)object)->state == LH_HEALTH_HEALTHY;
}

/* How long their leases live is in the backup, too: else a lost one is waited for as long as any lease may live. */
static gboolean are_known(World *world, gpointer data)
{
    guint n = 0;

    lh_mirror_foreach(world->mirror, LH_KIND_HEALTH, count_healthy, &n);
    return n == *(const guint *)data;
}

static void put_seed(World *world, const char *name)
{
    g_autofree char *key = g_strdup_printf("desired/seeds/%s-1", name);

    world_putf(world, key, "{\"spec\":{\"url\":\"https://example.org/\",\"throttle\":\"%s\"}}",
               name);
}

static void what_was_granted_counts_on(void **state)
{
    World *world = *state;
    Ledger *ledger = ledger_new(policies, N_POLICIES);
    Proc *crawlers[2];
    static const char *const names[] = {"c-1", "c-2"};

    for (guint i = 0; i < N_POLICIES; i++) {
        g_autofree char *seed = g_strconcat(policies[i].name, "-1", NULL);
        g_autofree char *key = g_strconcat("desired/throttles/", policies[i].name, NULL);
        ledger_seed(ledger, seed, i);
        world_putf(world, key, "{\"spec\":{\"requests\":20,\"period\":\"%us\"}}", PERIOD_S);
    }
    manager_start(world, "m-1", lease_arg);
    for (guint i = 0; i < G_N_ELEMENTS(crawlers); i++) {
        crawlers[i] = agent_start(
            world, &(AgentOptions){.name = names[i], .pool = "manager", .extra = lease_arg});
        ledger_client(ledger, crawlers[i]->url);
        if (i == 0) { /* the only one yet */
            put_seed(world, "moved");
            wait_live(world, "moved-1", "c-1");
        }
    }
    world_wait(world, is_idle, &(Wanted){.seed = "late-1"}, "nobody has late");
    world_wait(world, are_known, &(guint){G_N_ELEMENTS(crawlers)}, "both are healthy");
    back_up(world);

    gint64 begun_us = ledger_now_us();
    put_seed(world, "late");
    world_put(world, "desired/nodepolicies/manager/c-1", "{\"spec\":{\"drain\":true}}");
    wait_live(world, "late-1", NULL);
    wait_live(world, "moved-1", "c-2");
    wait_granted(world, ledger, LATE, begun_us, 20);
    wait_granted(world, ledger, MOVED, begun_us, 20);

    gint64 restored_us = ledger_now_us();
    restore(world);
    put_seed(world, "late");
    wait_granted(world, ledger, LATE, restored_us, 20);
    wait_granted(world, ledger, MOVED, restored_us, 20);
    ledger_stop(ledger);
    for (guint i = 0; i < N_POLICIES; i++) {
        LedgerMost most = ledger_most(ledger, i);
        print_message("# %s: %" G_GINT64_FORMAT " permits, at most %" G_GINT64_FORMAT
                      " within its period\n",
                      policies[i].name, most.granted, most.within);
    }
    g_autofree char *exceeded = ledger_exceeded(ledger);
    if (exceeded != NULL)
        world_fail(world, "%s", exceeded);
    ledger_free(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_granted_counts_on, world_setup, world_teardown),
    };

    return cmocka_run_group_tests_name("crawl-restored", tests, NULL, NULL);
}

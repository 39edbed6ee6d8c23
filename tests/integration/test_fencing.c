/*
 * Self-fencing with real processes: work that appends a line every 10 ms, on nodes that are lost in every way
 * that there is. What must hold each time: the last line on the node that is lost comes before its lease
 * may end, and before the first line anywhere else. Cache nodes serve on. What was seen is printed.
 */
#include "base/units.h"
#include "etcd/lease.h"
#include "history.h"
#include "tests/chaos/chaos.h"
#include "tests/fakes/s3_faults.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEASE_MS 3000
/* Less than is left of any lease that is being renewed. */
#define AT_ONCE_MS 1500
/* Less than is left of the worst of them, and of the margin before its end. */
#define SLOW_MS 800
#define TICK_NS (10 * 1000 * 1000)

static const char *const lease_arg[] = {"--lease-ttl", "3s", NULL};
static const char *no_islands; /* why there are none; NULL: there are */

static gint64 boottime_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (gint64)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- the work: this program, as an agent's --exec ---- */

static int tick(int fd, const char *finish)
{
    const struct timespec pause = {.tv_nsec = TICK_NS};

    while (access(finish, F_OK) != 0) {
        char line[32];
        int n = g_snprintf(line, sizeof line, "%" G_GINT64_FORMAT "\n", boottime_us());
        if (write(fd, line, (gsize)n) != n)
            return 1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Twice at once: also from a session of its own, where nothing but the watchdog finds it. */
static int work(const char *dir)
{
    g_autofree char *finish = g_build_filename(dir, "finish", NULL);
    g_autofree char *path = g_strdup_printf("%s/ticks-%s-%s", dir, g_getenv("LEASEHOLD_ITEM"),
                                            g_getenv("LEASEHOLD_NODE"));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    pid_t child = fork();

    if (fd < 0 || child < 0)
        return 1;
    if (child == 0) {
        setsid();
        _exit(fork() == 0 ? tick(fd, finish) : 0);
    }
    waitpid(child, NULL, 0);
    return tick(fd, finish);
}

/* The words of --exec. g_free. */
static char *working(World *world)
{
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);

    assert_non_null(self);
    return g_strdup_printf("%s --work %s", self, world->dir);
}

/* ---- what it has written ---- */

typedef struct {
    gint64 first, last; /* microseconds; 0: nothing yet */
} Lines;

static Lines lines_of(World *world, const char *task, const char *node)
{
    g_autofree char *path = g_strdup_printf("%s/ticks-%s-%s", world->dir, task, node);
    g_autofree char *text = NULL;
    Lines lines = {0, 0};
    char *end;

    if (!g_file_get_contents(path, &text, NULL, NULL) || (end = strrchr(text, '\n')) == NULL)
        return lines;
    *end = '\0';
    end = strrchr(text, '\n');
    lines.first = g_ascii_strtoll(text, NULL, 10);
    lines.last = g_ascii_strtoll(end == NULL ? text : end + 1, NULL, 10);
    return lines;
}

/* How many were written from @from to @to. */
static guint lines_between(World *world, const char *task, const char *node, gint64 from, gint64 to)
{
    g_autofree char *path = g_strdup_printf("%s/ticks-%s-%s", world->dir, task, node);
    g_autofree char *text = NULL;
    guint n = 0;

    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n") + 1) {
        gint64 when = g_ascii_strtoll(at, NULL, 10);
        n += when >= from && when <= to;
        if (strchr(at, '\n') == NULL)
            break;
    }
    return n;
}

/* ---- tasks and who has them ---- */

typedef struct {
    const char *pool;
    const char *node; /* name of the agent; "": any other than @not_id */
    const char *not_id;
    char *task, *id; /* found; g_free */
} Holder;

static void find_holder(const LhObject *object, gpointer data)
{
    Holder *holder = data;
    g_autofree char *pool = lh_name_part(object->name, 0);
    g_autofree char *id = lh_name_part(object->name, 1);
    g_autofree char *task = lh_name_part(object->name, 2);
    g_autofree char *node = lh_node_name_of(id);

    if (strcmp(pool, holder->pool) != 0 || holder->id != NULL ||
        (holder->task != NULL && strcmp(task, holder->task) != 0) ||
        (*holder->node != '\0' && strcmp(node, holder->node) != 0) ||
        g_strcmp0(id, holder->not_id) == 0)
        return;
    holder->id = g_steal_pointer(&id);
    if (holder->task == NULL)
        holder->task = g_steal_pointer(&task);
}

static gboolean is_found(World *world, gpointer data)
{
    Holder *holder = data;

    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, find_holder, holder);
    return holder->id != NULL;
}

/* A node with one task. */
typedef struct {
    const char *pool, *name;
    Proc *proc;
    Link *link;
    char *task, *id; /* its first task, and its id then */
    gint64 lost_us;  /* when it was lost */
} Worker;

static gboolean writes(World *world, gpointer data)
{
    const Worker *worker = data;

    return lines_of(world, worker->task, worker->id).first != 0;
}

/* Returns when its task is begun. */
static void wait_works(World *world, Worker *worker)
{
    Holder holder = {.pool = worker->pool, .node = worker->name};

    world_wait(world, is_found, &holder, "%s has a task", worker->name);
    worker->task = holder.task;
    worker->id = holder.id;
    world_poll(world, writes, worker, "%s works", worker->name);
}

static void worker_clear(Worker *worker)
{
    g_free(worker->task);
    g_free(worker->id);
}

static void publish_tasks(World *world, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = g_strdup_printf("published/recoverytasks/t-%u", i);
        world_putf(world, key,
                   "{\"partition\":\"p%u\",\"startOffset\":10,\"endOffset\":19,"
                   "\"createdAt\":%" G_GINT64_FORMAT "}",
                   i, world->now_ms + i);
    }
}

/* For the indexers: two, the fewest that a service has. */
static void publish_partitions(World *world)
{
    for (guint i = 1; i <= 2; i++) {
        g_autofree char *key = g_strdup_printf("desired/partitions/p_%u", i);
        world_putf(world, key,
                   "{\"spec\":{\"capacityBytesPerSecond\":5000,\"topic\":\"logs\","
                   "\"kafkaPartition\":%u}}",
                   i);
    }
    world_put(world, "desired/services/logs",
              "{\"spec\":{\"owner\":\"me\",\"throughputBytesPerSecond\":8000}}");
}

/* @endpoint NULL: etcd itself. */
static Proc *working_agent(World *world, const char *pool, const char *name, const char *endpoint)
{
    g_autofree char *exec = working(world);
    const char *const extra[] = {"--exec", exec, lease_arg[0], lease_arg[1], NULL};
    const char *direct = world->access.endpoints;
    Proc *proc;

    if (endpoint != NULL)
        world->access.endpoints = endpoint;
    proc = agent_start(world, &(AgentOptions){.name = name, .pool = pool, .extra = extra});
    world->access.endpoints = direct;
    return proc;
}

/* A node takes one task at a time. */
static void spares(World *world, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("spare-%u", i);
        working_agent(world, "recovery", name, NULL);
    }
}

static guint16 etcd_port(World *world)
{
    return (guint16)g_ascii_strtoull(strrchr(world->endpoints, ':') + 1, NULL, 10);
}

/* A link to etcd from this address, and its endpoint. g_free. */
static char *link_to_etcd(World *world, Net *net, const char *address, Link **link)
{
    *link = net_link(net, address, etcd_port(world));
    return g_strdup_printf("%s:%u", address, link_port(*link));
}

/* ---- the verdict ---- */

/* The task goes on elsewhere; the lost node's last line was before the first one there, and came within this
 * time of the loss. */
static void check_fenced(World *world, const Worker *lost, gint64 within_ms)
{
    Holder holder = {.pool = lost->pool, .node = "", .not_id = lost->id, .task = lost->task};
    Worker next = {.name = "the next", .task = lost->task};
    gint64 last, first;

    world_wait(world, is_found, &holder, "the task of %s is elsewhere", lost->name);
    next.id = holder.id;
    world_poll(world, writes, &next, "the task of %s goes on elsewhere", lost->name);
    last = lines_of(world, lost->task, lost->id).last;
    first = lines_of(world, lost->task, next.id).first;
    print_message("# %-9s last line %7.1f ms after the loss, first line on %s %7.1f ms after it: "
                  "%.1f ms between\n",
                  lost->name, (double)(last - lost->lost_us) / 1e3, next.id,
                  (double)(first - lost->lost_us) / 1e3, (double)(first - last) / 1e3);
    if (last >= first)
        world_fail(world, "%s still worked when %s had begun", lost->name, next.id);
    if (last >= lost->lost_us + within_ms * 1000)
        world_fail(world, "%s worked on for more than %" G_GINT64_FORMAT " ms", lost->name,
                   within_ms);
    g_free(next.id);
}

static gboolean nothing_is_left(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_RECOVERYTASK) == 0;
}

/* All work ends by itself, and all tasks are done. */
static void finish(World *world)
{
    g_autofree char *path = g_build_filename(world->dir, "finish", NULL);

    assert_true(g_file_set_contents(path, "", 0, NULL));
    world_wait(world, nothing_is_left, NULL, "all tasks are done");
}

/* ---- exclusive nodes ---- */

enum { KILLED, STOPPED, CUT, DEAF, REVOKED, CUT_INDEXER, SLOW, N_FAULTS };

/* The failure-detector revokes it then. */
static void revoke_lease(World *world, const Worker *worker)
{
    g_autofree char *health = g_strconcat("decided/health/recovery/", worker->id, NULL);

    world_put(world, health,
              "{\"state\":\"failure\",\"since\":\"2026-01-01T00:00:00Z\",\"reason\":\"hangs\","
              "\"leaseTtl\":\"3s\",\"revoking\":true}");
}

static void lose(World *world, Worker *worker, guint fault)
{
    worker->lost_us = boottime_us();
    if (fault == KILLED)
        proc_kill(worker->proc);
    else if (fault == STOPPED || fault == SLOW)
        kill(proc_pid(worker->proc), SIGSTOP);
    else if (fault == CUT || fault == CUT_INDEXER)
        link_drop(worker->link, LINK_BOTH);
    else if (fault == DEAF)
        link_drop(worker->link, LINK_TO_CLIENT);
    else
        revoke_lease(world, worker);
}

static gboolean time_is_up(World *world, gpointer until_us)
{
    return boottime_us() >= *(gint64 *)until_us;
}

/* It has worked on all the time, and alone. */
static void check_goes_on(World *world, const Worker *slow)
{
    Holder other = {.pool = slow->pool, .node = "", .not_id = slow->id, .task = slow->task};
    guint during = lines_between(world, slow->task, slow->id, slow->lost_us,
                                 slow->lost_us + SLOW_MS * 1000);

    print_message("# %-9s %u lines in the %d ms of the stop; works on\n", slow->name, during,
                  SLOW_MS);
    assert_true(during > 0);
    assert_false(is_found(world, &other));
    assert_true(lines_of(world, slow->task, slow->id).last > slow->lost_us + 2 * LEASE_MS * 1000);
    assert_int_equal(proc_logged(slow->proc, "registered node="), 1);
}

static gboolean is_gone(World *world, gpointer data)
{
    const Worker *worker = data;

    return world_get(world, LH_KIND_NODE, "%s/%s", worker->pool, worker->id) == NULL;
}

typedef struct {
    const char *name, *id;
} Anew;

static void find_anew(const LhObject *object, gpointer data)
{
    Anew *anew = data;
    g_autofree char *id = lh_name_part(object->name, 1);
    g_autofree char *name = lh_node_name_of(id);

    if (anew->name != NULL && strcmp(name, anew->name) == 0 && strcmp(id, anew->id) != 0)
        anew->name = NULL;
}

static gboolean is_there_anew(World *world, gpointer data)
{
    Anew anew = *(Anew *)data;

    lh_mirror_foreach(world->mirror, LH_KIND_NODE, find_anew, &anew);
    return anew.name == NULL;
}

static void wait_anew(World *world, const char *name, const char *id)
{
    world_wait(world, is_there_anew, &(Anew){name, id}, "%s is there under a new id", name);
}

static void an_exclusive_node_is_lost(void **state)
{
    static const char *const names[N_FAULTS] = {"killed",  "stopped", "cut", "deaf",
                                                "revoked", "indexer", "slow"};
    World *world = *state;
    Net *net = net_new();
    Worker workers[N_FAULTS] = {{0}};

    manager_start(world, "manager", lease_arg);
    for (guint i = 0; i < N_FAULTS; i++) {
        Worker *worker = &workers[i];
        g_autofree char *endpoint = link_to_etcd(world, net, "127.0.0.1", &worker->link);
        worker->name = names[i];
        worker->pool = i == CUT_INDEXER ? "indexer" : "recovery";
        worker->proc = working_agent(world, worker->pool, names[i], endpoint);
    }
    publish_tasks(world, N_FAULTS - 1);
    publish_partitions(world);
    for (guint i = 0; i < N_FAULTS; i++)
        wait_works(world, &workers[i]);
    spares(world, CUT_INDEXER);
    for (guint i = 0; i < N_FAULTS; i++)
        lose(world, &workers[i], i);
    gint64 until_us = workers[SLOW].lost_us + SLOW_MS * 1000;
    world_poll(world, time_is_up, &until_us, "the stop is over");
    kill(proc_pid(workers[SLOW].proc), SIGCONT);
    /* Not before: it would get half of the partitions at once. */
    working_agent(world, "indexer", "spare-indexer", NULL);
    /* What is known ends at once, and not with the lease. */
    for (guint i = 0; i < SLOW; i++)
        check_fenced(world, &workers[i], i == KILLED || i == REVOKED ? AT_ONCE_MS : LEASE_MS);
    until_us = workers[SLOW].lost_us + (2 * LEASE_MS + 500) * 1000;
    world_poll(world, time_is_up, &until_us, "two leases have passed");
    check_goes_on(world, &workers[SLOW]);
    /* What was stopped past its lease, and heals, comes back as somebody else. */
    kill(proc_pid(workers[STOPPED].proc), SIGCONT);
    link_heal(workers[CUT].link);
    link_heal(workers[DEAF].link);
    link_heal(workers[CUT_INDEXER].link);
    for (guint i = STOPPED; i < SLOW; i++) {
        world_wait(world, is_gone, &workers[i], "%s is gone", workers[i].id);
        wait_anew(world, workers[i].name, workers[i].id);
    }
    finish(world);
    for (guint i = 0; i < N_FAULTS; i++) {
        if (i != KILLED)
            assert_int_equal(proc_stop(workers[i].proc), 0);
        worker_clear(&workers[i]);
    }
    net_free(net);
}

/* ---- in networks of their own ---- */

static Proc *island_agent(World *world, const char *name, Island *island, const char *endpoint)
{
    const char *root = g_getenv("LEASEHOLD_BUILD_ROOT"), *const *enter = island_enter(island);
    g_autofree char *binary = g_build_filename(root != NULL ? root : "build", "leasehold", NULL);
    g_autofree char *exec = working(world), *dir = g_build_filename(world->dir, name, NULL);
    g_autofree char *listen = g_strdup_printf("%s:0", island_inside(island));
    const char *const argv[] = {
        enter[0],   enter[1], binary,        "agent",      "--pool",     "recovery",
        "--name",   name,     "--data-dir",  dir,          "--exec",     exec,
        "--listen", listen,   "--lease-ttl", lease_arg[1], "--insecure", "--etcd-endpoints",
        endpoint,   NULL};
    Proc *proc = proc_start(world, name, argv);

    world_poll(world, proc_serves, proc, "%s serves", name);
    assert_non_null(proc->url);
    return proc;
}

/* A link that is down, and one on which only the way to the node is cut. */
static void an_exclusive_node_loses_its_network(void **state)
{
    static const char *const names[] = {"link-down", "one-way"};
    World *world = *state;
    Net *net;
    Worker workers[G_N_ELEMENTS(names)] = {{0}};

    if (no_islands != NULL) {
        print_message("# skipped: no network namespaces: %s\n", no_islands);
        skip();
    }
    net = net_new();
    manager_start(world, "manager", lease_arg);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *endpoint = link_to_etcd(world, net, island_outside(island_nth(i)),
                                                 &workers[i].link);
        workers[i].pool = "recovery";
        workers[i].name = names[i];
        workers[i].proc = island_agent(world, names[i], island_nth(i), endpoint);
    }
    publish_tasks(world, G_N_ELEMENTS(names));
    for (guint i = 0; i < G_N_ELEMENTS(names); i++)
        wait_works(world, &workers[i]);
    spares(world, G_N_ELEMENTS(names));
    workers[0].lost_us = workers[1].lost_us = boottime_us();
    island_cut(island_nth(0));
    island_cut_inwards(island_nth(1));
    for (guint i = 0; i < G_N_ELEMENTS(names); i++)
        check_fenced(world, &workers[i], LEASE_MS);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        island_join(island_nth(i));
        wait_anew(world, workers[i].name, workers[i].id);
    }
    finish(world);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_int_equal(proc_stop(workers[i].proc), 0);
        worker_clear(&workers[i]);
    }
    net_free(net);
}

/* ---- a cache node ---- */

#define SNAPSHOTS 3

static gboolean serves(World *world, gpointer urls)
{
    const GPtrArray *all = urls;

    for (guint i = 0; i < all->len; i++) {
        g_autofree char *file = g_strconcat(all->pdata[i], "part-0", NULL);
        g_autoptr(Reply) reply = http_send("GET", file, NULL, NULL);
        if (reply->status != 200 || reply->body->len != 4000)
            return FALSE;
    }
    return all->len == SNAPSHOTS;
}

/* What etcd says can be read. g_ptr_array_unref. */
static GPtrArray *search_urls(World *world)
{
    g_autoptr(GPtrArray) keys = lh_mirror_list(world->mirror, LH_KIND_SEARCH);
    GPtrArray *urls = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < keys->len; i++)
        g_ptr_array_add(urls, g_strdup(((const LhSearch *)keys->pdata[i])->url));
    return urls;
}

static void find_id(const LhObject *object, gpointer id)
{
    if (g_str_has_prefix(object->name, "cache/"))
        *(char **)id = lh_name_part(object->name, 1);
}

/* Of the only cache node. g_free. */
static char *cache_id(World *world)
{
    char *id = NULL;

    lh_mirror_foreach(world->mirror, LH_KIND_NODE, find_id, &id);
    assert_non_null(id);
    return id;
}

typedef struct {
    GPtrArray *urls;
    gint64 until_us;
    const char *id; /* waits for its end, too; NULL: for the time alone */
    guint looks;
} Outage;

static gboolean outage_is_over(World *world, gpointer data)
{
    Outage *outage = data;

    if (!serves(world, outage->urls))
        world_fail(world, "the cache node does not serve during the outage");
    outage->looks++;
    return boottime_us() >= outage->until_us &&
           (outage->id == NULL || world_get(world, LH_KIND_NODE, "cache/%s", outage->id) == NULL);
}

static void serve_through(World *world, GPtrArray *urls, const char *id, const char *what)
{
    gint64 began = boottime_us();
    Outage outage = {urls, began + (LEASE_MS + 1000) * 1000, id, 0};

    world_poll(world, outage_is_over, &outage, "the outage lasts longer than a lease");
    print_message("# cache node: %u snapshots read %u times in %.1f ms of %s\n", urls->len,
                  outage.looks, (double)(boottime_us() - began) / 1e3, what);
}

static gboolean is_back(World *world, gpointer data)
{
    g_autoptr(GPtrArray) urls = search_urls(world);

    return urls->len == SNAPSHOTS && world_live(world, NULL) == SNAPSHOTS && serves(world, urls);
}

/* Under a new id, with all its data, which cannot have been copied: its source is away. */
static void comes_back(World *world, const char *id)
{
    wait_anew(world, "c", id);
    world_wait(world, is_back, NULL, "all is live and served again");
    g_autoptr(GPtrArray) keys = lh_mirror_list(world->mirror, LH_KIND_SEARCH);
    for (guint i = 0; i < keys->len; i++)
        if (strcmp(((const LhSearch *)keys->pdata[i])->node, id) == 0)
            world_fail(world, "%s is still found by searches", id);
}

static void a_cache_node_serves_on(void **state)
{
    World *world = *state;
    Net *net = net_new();
    Link *link;
    g_autofree char *endpoint = link_to_etcd(world, net, "127.0.0.1", &link);
    g_autofree char *away = g_strconcat(world->objects, "-away", NULL);

    manager_start(world, "manager", lease_arg);
    world->access.endpoints = endpoint;
    Proc *agent = agent_start(world, &(AgentOptions){.name = "c", .extra = lease_arg});
    world->access.endpoints = world->endpoints;
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"failureGrace\":\"0s\"}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("s-%03u", i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 1, 4000);
    }
    world_wait_live(world, NULL, SNAPSHOTS);
    assert_int_equal(g_rename(world->objects, away), 0);

    /* Cut off until its registration is gone. */
    g_autoptr(GPtrArray) urls = search_urls(world);
    g_autofree char *first = cache_id(world);
    link_drop(link, LINK_BOTH);
    serve_through(world, urls, first, "a cut");
    link_heal(link);
    comes_back(world, first);

    /* Its registration is deleted while it hears of it; and then it is said to have failed. */
    g_autofree char *second = cache_id(world),
                    *key = g_strconcat("actual/nodes/cache/", second, NULL);
    world_delete(world, key);
    comes_back(world, second);
    g_autofree char *third = cache_id(world),
                    *health = g_strconcat("decided/health/cache/", third, NULL);
    world_put(world, health,
              "{\"state\":\"failed\",\"since\":\"2026-01-01T00:00:00Z\",\"reason\":\"said so\","
              "\"leaseTtl\":\"3s\"}");
    comes_back(world, third);

    /* etcd stands still for longer than its lease; whether that has survived is etcd's business. */
    g_autoptr(GPtrArray) again = search_urls(world);
    etcd_process_freeze(world->etcd);
    serve_through(world, again, NULL, "a standing etcd");
    etcd_process_thaw(world->etcd);
    world_wait(world, is_back, NULL, "all is live and served again");
    assert_int_equal(g_rename(away, world->objects), 0);
    assert_int_equal(proc_stop(agent), 0);
    net_free(net);
}

/* ---- a leader ---- */

#define CLEANER  "snapshot-cleaner"
#define ROUND_MS 300 /* until a deletion is answered */
#define BIG      120 /* objects of one snapshot: their deletion takes longer than a lease */
#define FEW      4   /* and of one whose deletion ends, and is to be said, after the cut */

typedef struct {
    S3Faults *store;
    char *host; /* line of the requests that are the first leader's */
    const char *next;
    guint deletions;
    gint64 last_us; /* when the last of them was seen */
} Leading;

/* How many deletions with that line have come. */
static guint deletions_of(S3Faults *store, const char *host)
{
    g_autofree char *heads = s3_faults_heads(store);
    g_auto(GStrv) all = g_strsplit(heads, "\r\n\r\n", -1);
    guint n = 0;

    for (guint i = 0; all[i] != NULL; i++)
        n += g_str_has_prefix(all[i], "DELETE ") && strstr(all[i], host) != NULL;
    return n;
}

static gboolean deletes(World *world, gpointer data)
{
    const Leading *leading = data;

    return deletions_of(leading->store, leading->host) > 0;
}

/* Looks at the deletions of the first leader meanwhile. */
static gboolean next_leads(World *world, gpointer data)
{
    Leading *leading = data;
    guint n = deletions_of(leading->store, leading->host);

    if (n != leading->deletions)
        leading->last_us = boottime_us();
    leading->deletions = n;
    g_autoptr(GPtrArray) all = lh_mirror_list(world->mirror, LH_KIND_LEADER);
    const LhLeader *oldest = NULL;
    for (guint i = 0; i < all->len; i++) {
        const LhLeader *leader = all->pdata[i];
        if (g_str_has_prefix(leader->o.name, CLEANER "/") &&
            (oldest == NULL || leader->o.create_rev < oldest->o.create_rev))
            oldest = leader;
    }
    return oldest != NULL && strcmp(oldest->instance, leading->next) == 0;
}

/* A manager whose store is behind this link. */
static Proc *cleaning(World *world, const char *name, Link *store)
{
    g_autofree char *access = s3_secret_file(world, "access", "somebody");
    g_autofree char *secret = s3_secret_file(world, "secret", "something");
    g_autofree char *endpoint = g_strdup_printf("http://127.0.0.1:%u", link_port(store));
    const char *const extra[] = {lease_arg[0],
                                 lease_arg[1],
                                 "--object-store-roots",
                                 "s3://b/kept/",
                                 "--object-store-endpoint",
                                 endpoint,
                                 "--object-store-access-key-file",
                                 access,
                                 "--object-store-secret-key-file",
                                 secret,
                                 NULL};

    return manager_start(world, name, extra);
}

static void publish_objects(World *world, S3Faults *store, const char *name, guint n)
{
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
    g_autofree char *start = lh_time_format(world->now_ms - 7200000);
    g_autofree char *end = lh_time_format(world->now_ms - 3600000);

    for (guint i = 0; i < n; i++) {
        g_autofree char *path = g_strdup_printf("/b/kept/%s/part-%u", name, i);
        s3_faults_put(store, path, "data", 4);
    }
    world_putf(world, key,
               "{\"service\":\"x\",\"partition\":\"p0\",\"startTime\":\"%s\",\"endTime\":\"%s\","
               "\"maxOffset\":9,\"sizeBytes\":%u,\"uri\":\"s3://b/kept/%s/\"}",
               start, end, 4 * n, name);
}

static gboolean is_marked(World *world, gpointer store)
{
    return s3_faults_count(store, "PUT /b/kept/.leasehold") > 0;
}

static gboolean all_retired(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_SNAPSHOT) == 0;
}

/* Two managers, of which the first has begun to delete, a few objects at a time. */
typedef struct {
    Net *net;
    S3Faults *store;
    Link *etcd; /* the first one's */
    Proc *first, *second;
    Leading leading;
} Deleting;

static void begin_deleting(World *world, Deleting *d)
{
    *d = (Deleting){.net = net_new(), .store = s3_faults_new()};
    Link *slow = net_link(d->net, "127.0.0.1", s3_faults_port(d->store));
    Link *quick = net_link(d->net, "127.0.0.1", s3_faults_port(d->store));
    g_autofree char *endpoint = link_to_etcd(world, d->net, "127.0.0.1", &d->etcd);

    d->leading = (Leading){.store = d->store, .next = "m-1"};
    d->leading.host = g_strdup_printf("127.0.0.1:%u", link_port(slow));
    world_put(world, "desired/settings/" CLEANER,
              "{\"spec\":{\"buffer\":\"0s\",\"brakePercent\":100,\"deletesPerSecond\":100}}");
    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"retention\":\"10m\",\"cache\":{\"window\":\"5m\"}}}");
    world->access.endpoints = endpoint;
    d->first = cleaning(world, "m-1", slow);
    world->access.endpoints = world->endpoints;
    world_wait(world, next_leads, &d->leading, "m-1 leads");
    world_poll(world, is_marked, d->store, "the root is taken");
    d->leading.next = "m-2";
    d->second = cleaning(world, "m-2", quick);
    link_delay(slow, LINK_TO_CLIENT, ROUND_MS);
    publish_objects(world, d->store, "few", FEW);
    publish_objects(world, d->store, "big", BIG);
    world_poll(world, deletes, &d->leading, "m-1 deletes data");
}

/* The second one leads and does the rest, and the first one, which is cut off or stopped since @lost_us, has
 * deleted nothing since then; *@before: how much before. Returns when. */
static gint64 goes_over(World *world, Deleting *d, gint64 lost_us, guint *before)
{
    world_poll(world, next_leads, &d->leading, "m-2 leads");
    gint64 led_us = boottime_us();
    *before = d->leading.deletions;
    print_message(
        "# leader: %u deletions, the last %.1f ms after the loss; the next one leads %.1f ms "
        "after it\n",
        *before, (double)(d->leading.last_us - lost_us) / 1e3, (double)(led_us - lost_us) / 1e3);
    assert_true(*before > 0);
    assert_true(*before < BIG + FEW);
    assert_true(d->leading.last_us < led_us);
    return led_us;
}

static void end_deleting(World *world, Deleting *d)
{
    gint64 takeover = 0;
    Said again = {d->first, "lease lost"};

    world_poll(world, proc_has_said, &again, "m-1 hears that its lease is gone");
    g_autofree char *wrong = history_no_writes_of(world, CLEANER, "m-1", &takeover);
    if (wrong != NULL)
        world_fail(world, "%s", wrong);
    assert_true(takeover > 0);
    assert_int_equal(proc_stop(d->first), 0);
    assert_int_equal(proc_stop(d->second), 0);
    net_free(d->net);
    s3_faults_free(d->store);
    g_free(d->leading.host);
}

/* Cut off by a network that keeps what it sends, and delivers it much later: no deletion goes to the object
 * store once another leads, and no write of it is taken. */
static void a_leader_is_cut_off(void **state)
{
    World *world = *state;
    Deleting d;
    guint before;

    begin_deleting(world, &d);
    link_hold(d.etcd, LINK_BOTH);
    gint64 led_us = goes_over(world, &d, boottime_us(), &before);
    assert_true(link_touched(d.etcd) > 0);
    world_wait(world, all_retired, NULL, "m-2 has deleted the rest");
    /* Still cut: nothing but its own clock has told it. Three of its rounds of deletions. */
    led_us += 3 * ROUND_MS * 1000;
    world_poll(world, time_is_up, &led_us, "m-1 could have gone on");
    assert_int_equal(deletions_of(d.store, d.leading.host), before);
    link_heal(d.etcd);
    /* What it wrote of that into the cut came, and was refused. */
    Said again = {d.first, "lease lost"};
    world_poll(world, proc_has_said, &again, "m-1 hears that its lease is gone");
    assert_int_equal(proc_logged(d.first, "errand=delete.few"), 1);
    end_deleting(world, &d);
}

/* Stopped in the middle of it, past its lease: when it wakes, its threads are as far as its loop, and each of
 * them asks the clock alone before it sends a deletion. */
static void a_leader_is_stopped(void **state)
{
    World *world = *state;
    Deleting d;
    guint before;

    begin_deleting(world, &d);
    kill(proc_pid(d.first), SIGSTOP);
    gint64 led_us = goes_over(world, &d, boottime_us(), &before);
    kill(proc_pid(d.first), SIGCONT);
    led_us = boottime_us() + 3 * ROUND_MS * 1000;
    world_poll(world, time_is_up, &led_us, "m-1 could have gone on");
    assert_int_equal(deletions_of(d.store, d.leading.host), before);
    world_wait(world, all_retired, NULL, "m-2 has deleted the rest");
    end_deleting(world, &d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_exclusive_node_is_lost, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(an_exclusive_node_loses_its_network, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_cache_node_serves_on, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_leader_is_cut_off, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_leader_is_stopped, world_setup, world_teardown),
    };
    char *why = NULL;
    int failed;

    if (argc == 3 && strcmp(argv[1], "--work") == 0)
        return work(argv[2]);
    if (!islands_begin(2, &why))
        no_islands = why;
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    failed = cmocka_run_group_tests_name("fencing", tests, NULL, NULL);
    islands_end();
    g_free(why);
    return failed;
}

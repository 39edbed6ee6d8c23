/*
 * Faults of processes, of their networks and of S3. A fault of a link counts only when something went over
 * the link meanwhile: it is kept up for a while longer until it has met something.
 */
#include "chaos.h"

#define LONGER_MS 15000

static Machine *choose(Chaos *chaos, Occurrence *o, gboolean manager, gboolean agent)
{
    o->machine = machine_choose(chaos, manager, agent);
    if (o->machine != NULL) {
        o->machine->taken = TRUE;
    }
    return o->machine;
}

static gboolean give_back(Occurrence *o)
{
    o->machine->taken = FALSE;
    return TRUE;
}

/* ---- processes ---- */

static gboolean kill_one(Chaos *chaos, Occurrence *o, gboolean manager)
{
    if (choose(chaos, o, manager, !manager) == NULL) {
        return FALSE;
    }
    o->machine->down = TRUE;
    machine_kill(o->machine);
    o->touched = 1;
    return TRUE;
}

static gboolean kill_manager(Chaos *chaos, Occurrence *o)
{
    return kill_one(chaos, o, TRUE);
}

static gboolean kill_agent(Chaos *chaos, Occurrence *o)
{
    return kill_one(chaos, o, FALSE);
}

static gboolean let_start(Chaos *chaos, Occurrence *o)
{
    o->machine->down = FALSE;
    return give_back(o);
}

static gboolean freeze_one(Chaos *chaos, Occurrence *o, gboolean manager)
{
    if (choose(chaos, o, manager, !manager) == NULL) {
        return FALSE;
    }
    machine_freeze(o->machine);
    o->touched = 1;
    return TRUE;
}

static gboolean freeze_manager(Chaos *chaos, Occurrence *o)
{
    return freeze_one(chaos, o, TRUE);
}

static gboolean freeze_agent(Chaos *chaos, Occurrence *o)
{
    return freeze_one(chaos, o, FALSE);
}

static gboolean thaw(Chaos *chaos, Occurrence *o)
{
    machine_thaw(o->machine);
    return give_back(o);
}

/* ---- links to etcd ---- */

/* Of all links of the machine to etcd, in time. */
static gboolean has_met(Chaos *chaos, Occurrence *o, Link *const *links, guint n)
{
    o->touched = 0;
    for (guint i = 0; i < n; i++) {
        o->touched += link_touched(links[i]);
    }
    return o->touched > 0 || chaos_ms(chaos) > o->until_ms + LONGER_MS;
}

static gboolean cut(Chaos *chaos, Occurrence *o)
{
    if (choose(chaos, o, TRUE, TRUE) == NULL) {
        return FALSE;
    }
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        link_refuse(o->machine->etcd[i]);
    }
    return TRUE;
}

static gboolean one_way(Chaos *chaos, Occurrence *o, guint direction, gboolean lost)
{
    if (choose(chaos, o, TRUE, TRUE) == NULL) {
        return FALSE;
    }
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        if (lost) {
            link_drop(o->machine->etcd[i], direction);
        } else {
            link_hold(o->machine->etcd[i], direction);
        }
    }
    return TRUE;
}

static gboolean hold_requests(Chaos *chaos, Occurrence *o)
{
    return one_way(chaos, o, LINK_TO_SERVER, FALSE);
}

static gboolean hold_answers(Chaos *chaos, Occurrence *o)
{
    return one_way(chaos, o, LINK_TO_CLIENT, FALSE);
}

static gboolean drop_requests(Chaos *chaos, Occurrence *o)
{
    return one_way(chaos, o, LINK_TO_SERVER, TRUE);
}

static gboolean drop_answers(Chaos *chaos, Occurrence *o)
{
    return one_way(chaos, o, LINK_TO_CLIENT, TRUE);
}

static gboolean delay(Chaos *chaos, Occurrence *o)
{
    if (choose(chaos, o, TRUE, TRUE) == NULL) {
        return FALSE;
    }
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        link_delay(o->machine->etcd[i], LINK_BOTH, 50 + o->choice % 700);
    }
    return TRUE;
}

static gboolean heal_etcd(Chaos *chaos, Occurrence *o)
{
    if (!has_met(chaos, o, o->machine->etcd, CHAOS_MEMBERS)) {
        return FALSE;
    }
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        link_heal(o->machine->etcd[i]);
    }
    return give_back(o);
}

/* ---- namespaces ---- */

static gboolean cut_island(Chaos *chaos, Occurrence *o, void (*how)(Island *island))
{
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        Machine *machine = &chaos->machines[(i + o->choice) % CHAOS_MACHINES];
        if (machine->island != NULL && !machine->taken && machine_url(machine) != NULL) {
            o->machine = machine;
            machine->taken = TRUE;
            how(machine->island);
            o->touched = 1;
            return TRUE;
        }
    }
    return FALSE;
}

static gboolean cut_namespace(Chaos *chaos, Occurrence *o)
{
    return cut_island(chaos, o, island_cut);
}

static gboolean cut_namespace_inwards(Chaos *chaos, Occurrence *o)
{
    return cut_island(chaos, o, island_cut_inwards);
}

static gboolean join_namespace(Chaos *chaos, Occurrence *o)
{
    island_join(o->machine->island);
    return give_back(o);
}

/* ---- S3: all agents' links at once, so that it meets somebody's load ---- */

static gboolean each_s3(Chaos *chaos, Occurrence *o, void (*how)(Link *link, guint choice))
{
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        how(chaos->machines[i].s3, o->choice);
    }
    return TRUE;
}

static void answer_500(Link *link, guint choice)
{
    static const char *const answers[] = {
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\nConnection: "
         "close\r\n\r\n<html></html>"),
    };
    link_answer(link, answers[choice % 4 < 2 ? 0 : choice % 4 - 1]);
}

static void hang(Link *link, guint choice)
{
    (void)choice;
    link_hold(link, LINK_TO_CLIENT);
}

static void truncate_bodies(Link *link, guint choice)
{
    link_truncate(link, 600 + choice % 40000);
}

static void refuse(Link *link, guint choice)
{
    (void)choice;
    link_refuse(link);
}

static gboolean s3_500(Chaos *chaos, Occurrence *o)
{
    return each_s3(chaos, o, answer_500);
}

static gboolean s3_hangs(Chaos *chaos, Occurrence *o)
{
    return each_s3(chaos, o, hang);
}

static gboolean s3_truncates(Chaos *chaos, Occurrence *o)
{
    return each_s3(chaos, o, truncate_bodies);
}

static gboolean s3_refuses(Chaos *chaos, Occurrence *o)
{
    return each_s3(chaos, o, refuse);
}

static gboolean heal_s3(Chaos *chaos, Occurrence *o)
{
    Link *links[CHAOS_MACHINES];
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        links[i] = chaos->machines[i].s3;
    }
    if (!has_met(chaos, o, links, CHAOS_MACHINES)) {
        return FALSE;
    }
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        link_heal(links[i]);
    }
    return TRUE;
}

/* ---- the table ---- */

const Fault faults_of_processes[] = {
    {"kill-manager", "a manager: kill -9", FAULT_ANY, 100, 3000, 2, kill_manager, let_start},
    {"kill-agent", "an agent: kill -9", FAULT_ANY, 100, 12000, 2, kill_agent, let_start},
    {"stop-manager", "a manager stands still for longer than its lease", FAULT_ANY, 6500, 9000, 1,
     freeze_manager, thaw},
    {"stop-agent", "an agent stands still for longer than its lease", FAULT_ANY, 6500, 9000, 1,
     freeze_agent, thaw},
    {"cut", "a process cannot reach etcd", FAULT_ANY, 500, 8000, 1, cut, heal_etcd},
    {"hold-requests", "what a process sends to etcd comes late", FAULT_ANY, 2000, 9500, 1,
     hold_requests, heal_etcd},
    {"hold-answers", "what etcd sends to a process comes late", FAULT_ANY, 1000, 8000, 1,
     hold_answers, heal_etcd},
    {"drop-requests", "what a process sends to etcd is lost", FAULT_ANY, 500, 7000, 1,
     drop_requests, heal_etcd},
    {"drop-answers", "what etcd sends to a process is lost", FAULT_ANY, 500, 7000, 1, drop_answers,
     heal_etcd},
    {"delay", "each piece between a process and etcd is delayed", FAULT_ANY, 3000, 9000, 1, delay,
     heal_etcd},
    {"namespace-cut", "a namespace is cut off", FAULT_ISLAND, 1000, 8000, 1, cut_namespace,
     join_namespace},
    {"namespace-one-way", "nothing reaches a namespace", FAULT_ISLAND, 1000, 8000, 1,
     cut_namespace_inwards, join_namespace},
    {"s3-500", "S3 answers with errors", FAULT_S3, 500, 2500, 1, s3_500, heal_s3},
    {"s3-hang", "S3 does not answer", FAULT_S3, 1000, 5000, 1, s3_hangs, heal_s3},
    {"s3-truncate", "S3 breaks off", FAULT_S3, 500, 3000, 1, s3_truncates, heal_s3},
    {"s3-refuse", "S3 cannot be reached", FAULT_S3, 500, 3000, 1, s3_refuses, heal_s3},
    {NULL, NULL, FAULT_ANY, 0, 0, 0, NULL, NULL},
};

/*
 * Probes of real agents, each behind a link of the test's own: what they say when a node answers wrongly, not at
 * all, or well again; what becomes of what it holds; and that nobody is condemned when all are silent at once.
 */
#include "base/units.h"
#include "harness.h"
#include "holders.h"
#include "lines.h"
#include "tests/chaos/net.h"

#include <string.h>

#define LEASE_MS     3000
#define PROBATION_MS 2000
#define SNAPSHOTS    6
/* A node on loopback answers who asks for a loopback address and its port: a link has the same one. */
#define OUTSIDE "127.0.0.2"
#define INSIDE  "127.0.0.3"
#define SETTINGS \
    "\"probePeriod\":\"200ms\",\"probeTimeout\":\"1500ms\",\"probeMisses\":3,\"probation\":\"2s\""
#define ILL(status, body) \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body

static const char *const lease_arg[] = {"--lease-ttl", "3s", NULL};

static void put_settings(World *world, const char *more)
{
    world_putf(world, "desired/settings/failure-detector", "{\"spec\":{" SETTINGS "%s}}", more);
}

/* ---- nodes ---- */

typedef struct {
    const char *pool;
    char *name, *id; /* g_free */
    Proc *proc;
    Link *link;
} Patient;

typedef struct {
    const Patient *patient;
    const char *not_id;
    char *id;
} Wanted;

static void find_id(const LhObject *object, gpointer data)
{
    Wanted *wanted = data;
    g_autofree char *id = lh_name_part(object->name, 1), *name = lh_node_name_of(id);

    if (wanted->id == NULL && strcmp(name, wanted->patient->name) == 0 &&
        g_strcmp0(id, wanted->not_id) != 0)
        wanted->id = g_steal_pointer(&id);
}

static gboolean is_registered(World *world, gpointer data)
{
    lh_mirror_foreach(world->mirror, LH_KIND_NODE, find_id, data);
    return ((Wanted *)data)->id != NULL;
}

/* Under another id than it had; its old one is freed. */
static void wait_registered(World *world, Patient *patient)
{
    Wanted wanted = {patient, patient->id, NULL};

    world_wait(world, is_registered, &wanted, "%s is registered", patient->name);
    g_free(patient->id);
    patient->id = wanted.id;
}

/* ---- what is said of them ---- */

static const LhHealth *health_of(World *world, const Patient *patient)
{
    const LhHealth *health = world_get(world, LH_KIND_HEALTH, "%s/%s", patient->pool, patient->id);

    return health != NULL && lh_object_known(&health->o) ? health : NULL;
}

typedef struct {
    const Patient *patient;
    int state;
    const char *words; /* of its reason */
} Condition;

static gboolean is_so(World *world, gpointer data)
{
    const Condition *wanted = data;
    const LhHealth *health = health_of(world, wanted->patient);

    return health != NULL && health->state == wanted->state &&
           strstr(health->reason, wanted->words) != NULL;
}

/* Returns since when, epoch ms. */
static gint64 wait_health(World *world, const Patient *patient, int state, const char *words)
{
    Condition wanted = {patient, state, words};

    world_wait(world, is_so, &wanted, "%s is in %s: %s", patient->name, lh_health_state_name(state),
               words);
    return health_of(world, patient)->since;
}

/* @net NULL: nothing lies between. */
static Patient patient_start(World *world, Net *net, const char *pool, const char *name,
                             const char *exec)
{
    Patient patient = {.pool = pool, .name = g_strdup(name)};
    g_autofree char *url = NULL, *listen = NULL;
    const char *extra[10] = {lease_arg[0], lease_arg[1]};
    guint n = 2;

    if (net != NULL) {
        patient.link = net_link(net, OUTSIDE, 0);
        url = g_strdup_printf("http://" OUTSIDE ":%u", link_port(patient.link));
        listen = g_strdup_printf(INSIDE ":%u", link_port(patient.link));
        link_to(patient.link, INSIDE, link_port(patient.link));
        extra[n++] = "--advertise-url";
        extra[n++] = url;
        extra[n++] = "--listen";
        extra[n++] = listen;
    }
    if (exec != NULL) {
        extra[n++] = "--exec";
        extra[n++] = exec;
    }
    patient.proc = agent_start(world, &(AgentOptions){.name = name, .pool = pool, .extra = extra});
    wait_registered(world, &patient);
    wait_health(world, &patient, LH_HEALTH_HEALTHY, "registered");
    return patient;
}

static void patient_clear(Patient *patient)
{
    g_free(patient->name);
    g_free(patient->id);
}

/* One write of a NodeHealth. */
typedef struct {
    char *state, *reason;
    gboolean revoking;
    gint64 since_ms, missing_ms, revision;
} Saying;

static void saying_free(gpointer data)
{
    Saying *said = data;

    g_free(said->state);
    g_free(said->reason);
    g_free(said);
}

static gint64 time_in(const cJSON *json, const char *name)
{
    gint64 ms = -1;

    lh_time_parse(json_text(json, name), &ms, NULL);
    return ms;
}

/* All that was said of the node, in order; g_ptr_array_unref. */
static GPtrArray *all_said(GPtrArray *history, const Patient *patient)
{
    g_autofree char *key = g_strdup_printf("decided/health/%s/%s", patient->pool, patient->id);
    GPtrArray *all = g_ptr_array_new_with_free_func(saying_free);

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = history->pdata[i];
        if (kv->is_delete || strcmp(kv->key, key) != 0)
            continue;
        g_autoptr(cJSON) json = cJSON_ParseWithLength(kv->value, kv->len);
        Saying *said = g_new0(Saying, 1);
        said->state = g_strdup(json_text(json, "state"));
        said->reason = g_strdup(json_text(json, "reason"));
        said->revoking = cJSON_IsTrue(json_at(json, "revoking"));
        said->since_ms = time_in(json, "since");
        said->missing_ms = time_in(json, "missingSince");
        said->revision = kv->mod_rev;
        g_ptr_array_add(all, said);
    }
    return all;
}

static gboolean is_never(GPtrArray *history, const Patient *patient, const char *state)
{
    g_autoptr(GPtrArray) all = all_said(history, patient);

    for (guint i = 0; i < all->len; i++)
        if (strcmp(((Saying *)all->pdata[i])->state, state) == 0)
            return FALSE;
    return all->len > 0;
}

/* ---- a node that answers wrongly, and well again ---- */

static void says_500(Link *link)
{
    link_answer(link, ILL("500 No", "{\"status\":\"healthy\"}"));
}

static void says_ill(Link *link)
{
    link_answer(link, ILL("200 OK", "{\"status\":\"ill\"}"));
}

static void hangs(Link *link)
{
    link_hold(link, LINK_TO_CLIENT);
}

static const struct {
    const char *name;
    void (*begin)(Link *link);
    const char *why;
} symptoms[] = {
    {"500", says_500, "probe: answered 500"},
    {"the wrong body", says_ill, "probe: did not answer status healthy"},
    {"no answer", hangs, "probe: timed out"},
    {"a closed port", link_refuse, "probe: "},
};

static void falls_ill_and_recovers(World *world, const Patient *patient, guint i, gboolean relapses)
{
    g_autofree char *reason = NULL;
    gint64 probation, healthy;

    symptoms[i].begin(patient->link);
    wait_health(world, patient, LH_HEALTH_FAILURE, symptoms[i].why);
    reason = g_strdup(health_of(world, patient)->reason);
    print_message("# %s: %s\n", symptoms[i].name, reason);
    assert_true(g_str_has_suffix(reason, " 3 times"));
    assert_true(link_touched(patient->link) >= 3);
    link_heal(patient->link);
    if (relapses) {
        wait_health(world, patient, LH_HEALTH_PROBATION, "succeeds again");
        symptoms[i].begin(patient->link);
        wait_health(world, patient, LH_HEALTH_FAILURE, "in probation");
        link_heal(patient->link);
    }
    probation = wait_health(world, patient, LH_HEALTH_PROBATION, "succeeds again");
    healthy = wait_health(world, patient, LH_HEALTH_HEALTHY, "clean through its probation");
    assert_true(healthy - probation >= PROBATION_MS);
}

/* Of the snapshots whose names begin so, as etcd says: on this node. */
static guint found_on(World *world, const Patient *patient, const char *snapshots)
{
    g_autoptr(GPtrArray) all = lh_mirror_list(world->mirror, LH_KIND_SEARCH);
    guint n = 0;

    for (guint i = 0; i < all->len; i++) {
        const LhSearch *search = all->pdata[i];
        n += strcmp(search->node, patient->id) == 0 &&
             g_str_has_prefix(search->snapshot, snapshots);
    }
    return n;
}

static gboolean has_nothing(World *world, gpointer patient)
{
    return found_on(world, patient, "") == 0 && world_live(world, "before") == SNAPSHOTS;
}

static void publish(World *world, const char *prefix)
{
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("%s-%03u", prefix, i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 1, 400);
    }
    world_wait_live(world, prefix, SNAPSHOTS);
}

static void check_story(GPtrArray *history, const Patient *patient)
{
    /* The first one relapses. */
    static const char *const one[] = {"failure", "probation", "failure", "probation", "healthy"};
    g_autoptr(GPtrArray) all = all_said(history, patient);
    guint at = 0;

    assert_string_equal(((Saying *)all->pdata[at++])->state, "healthy");
    for (guint i = 0; i < G_N_ELEMENTS(symptoms); i++)
        for (guint j = i == 0 ? 0 : 2; j < G_N_ELEMENTS(one); j++)
            assert_string_equal(((Saying *)all->pdata[at++])->state, one[j]);
    assert_int_equal(at, all->len);
}

static void a_node_falls_ill(void **state)
{
    World *world = *state;
    Net *net = net_new();
    Proc *manager = manager_start(world, "manager", NULL);

    put_settings(world, "");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    Patient direct = patient_start(world, NULL, "cache", "direct", NULL);
    Patient well = patient_start(world, net, "cache", "well", NULL);
    Patient ill = patient_start(world, net, "cache", "ill", NULL);
    publish(world, "before");
    assert_int_equal(found_on(world, &ill, "before"), SNAPSHOTS / 3); /* its share */
    says_500(ill.link);
    wait_health(world, &ill, LH_HEALTH_FAILURE, "answered 500");
    publish(world, "during");
    assert_int_equal(found_on(world, &ill, "during"), 0);
    world_wait(world, has_nothing, &ill, "what it had is elsewhere");
    assert_int_equal(world_live(world, NULL), 2 * SNAPSHOTS);
    assert_non_null(world_get(world, LH_KIND_NODE, "cache/%s", ill.id));
    falls_ill_and_recovers(world, &ill, 0, TRUE);
    for (guint i = 1; i < G_N_ELEMENTS(symptoms); i++)
        falls_ill_and_recovers(world, &ill, i, FALSE);

    g_autoptr(GPtrArray) history = world_history(world, 0);
    check_story(history, &ill);
    assert_true(is_never(history, &well, "failure"));
    assert_true(is_never(history, &direct, "failure"));
    assert_true(metric(manager, "probes_total{result=\"miss\"}") >= 3 * G_N_ELEMENTS(symptoms));
    assert_true(metric(manager, "probes_total{result=\"healthy\"}") > 0);
    assert_true(metric(manager, "probe_duration_seconds_count") > 0);
    assert_true(metric(manager, "brake{controller=\"failure-detector\"}") == 0);
    g_autofree char *name = g_strconcat("Node/cache/", ill.id, NULL);
    g_autoptr(Run) events = cli(manager, "events", "--for", name, NULL);
    assert_int_equal(events->code, 0);
    static const char *const words[] = {"NodeFailure", "NodeProbation", "NodeHealthy"};
    for (guint i = 0; i < G_N_ELEMENTS(words); i++)
        if (strstr(events->out, words[i]) == NULL)
            world_fail(world, "no %s in the events:\n%s", words[i], events->out);
    patient_clear(&direct);
    patient_clear(&well);
    patient_clear(&ill);
    net_free(net);
}

/* ---- what is exclusive ---- */

typedef struct {
    const char *not_id;
    char *task, *id;
} Holder;

static void find_holder(const LhObject *object, gpointer data)
{
    Holder *holder = data;
    g_autofree char *id = lh_name_part(object->name, 1), *task = lh_name_part(object->name, 2);

    if (holder->id != NULL || g_strcmp0(id, holder->not_id) == 0 ||
        (holder->task != NULL && strcmp(task, holder->task) != 0))
        return;
    holder->id = g_steal_pointer(&id);
    if (holder->task == NULL)
        holder->task = g_steal_pointer(&task);
}

static gboolean is_held(World *world, gpointer data)
{
    Holder *holder = data;

    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, find_holder, holder);
    return holder->id != NULL;
}

static gboolean writes(World *world, gpointer data)
{
    const Holder *holder = data;

    return lines_of(world->dir, holder->task, holder->id).n > 0;
}

static gboolean time_is_up(World *world, gpointer until_us)
{
    (void)world;
    return lines_now_us() >= *(gint64 *)until_us;
}

static void pass(World *world, gint64 ms)
{
    gint64 until_us = lines_now_us() + ms * 1000;

    world_poll(world, time_is_up, &until_us, "time passes");
}

static gboolean is_gone(World *world, gpointer data)
{
    const Patient *patient = data;

    return world_get(world, LH_KIND_NODE, "%s/%s", patient->pool, patient->id) == NULL;
}

static gboolean nothing_is_left(World *world, gpointer data)
{
    (void)data;
    return lh_mirror_count(world->mirror, LH_KIND_RECOVERYTASK) == 0;
}

/* In failure, then said to be revoked, then gone, and failed a lease's time after that; not else. */
static void check_revoked(GPtrArray *history, const Patient *patient)
{
    g_autoptr(GPtrArray) all = all_said(history, patient);
    const Saying *failure = all->pdata[1], *revoking = all->pdata[2], *gone = all->pdata[3],
                 *failed = all->pdata[4];

    assert_int_equal(all->len, 5);
    assert_string_equal(failure->state, "failure");
    assert_false(failure->revoking);
    assert_true(revoking->revoking);
    assert_true(gone->missing_ms > 0);
    assert_string_equal(failed->state, "failed");
    assert_true(failed->since_ms - failed->missing_ms >= LEASE_MS);
    print_message("# failed %" G_GINT64_FORMAT " ms after its registration was gone\n",
                  failed->since_ms - failed->missing_ms);
}

static void what_it_has_alone_goes_elsewhere(void **state)
{
    World *world = *state;
    Net *net = net_new();
    g_autofree char *exec = lines_exec(world->dir), *wrong = NULL;
    Holder first = {0};
    Proc *manager = manager_start(world, "manager", lease_arg);

    put_settings(world, ",\"onFailure\":\"keep\"");
    Patient ill = patient_start(world, net, "recovery", "ill", exec);
    world_putf(world, "published/recoverytasks/t-0",
               "{\"partition\":\"p0\",\"startOffset\":10,\"endOffset\":19,"
               "\"createdAt\":%" G_GINT64_FORMAT "}",
               world->now_ms);
    world_wait(world, is_held, &first, "it has a task");
    world_poll(world, writes, &first, "it works");
    Patient spare = patient_start(world, net, "recovery", "spare", exec);

    /* Kept: it works on. */
    hangs(ill.link);
    wait_health(world, &ill, LH_HEALTH_FAILURE, "timed out 3 times");
    gint64 before_us = lines_now_us();
    pass(world, 2 * LEASE_MS / 3);
    assert_non_null(world_get(world, LH_KIND_NODE, "recovery/%s", ill.id));
    assert_true(lines_of(world->dir, first.task, first.id).last_us > before_us);

    put_settings(world, "");
    world_wait(world, is_gone, &ill, "its lease is revoked");
    link_heal(ill.link);
    Holder next = {.not_id = first.id, .task = g_strdup(first.task)};
    world_wait(world, is_held, &next, "its task is elsewhere");
    world_poll(world, writes, &next, "and is worked on");
    gint64 last_us = lines_of(world->dir, first.task, first.id).last_us;
    gint64 begun_us = lines_of(world->dir, next.task, next.id).first_us;
    print_message("# %.1f ms between the last line of one and the first of the other\n",
                  (double)(begun_us - last_us) / 1e3);
    assert_true(begun_us - last_us >= LEASE_MS * 1000); /* it stops at once when it is revoked */

    g_autoptr(GPtrArray) history = world_history(world, 0);
    check_revoked(history, &ill);
    g_autoptr(GPtrArray) loads = holders_read(history, "recovery", &wrong);
    assert_null(wrong);
    assert_int_equal(loads->len, 2);
    assert_true(is_never(history, &spare, "failure"));
    g_autofree char *of = g_strconcat("nodes/recovery/", ill.id, NULL);
    world_wait_event(world, "LeaseRevoked", of);
    world_wait_event(world, "NodeFailed", of);
    assert_true(metric(manager, "probes_total{result=\"miss\"}") >= 3);
    /* It comes back as somebody else, who is well. */
    wait_registered(world, &ill);
    wait_health(world, &ill, LH_HEALTH_HEALTHY, "");
    g_autofree char *finish = g_build_filename(world->dir, "finish", NULL);
    assert_true(g_file_set_contents(finish, "", 0, NULL));
    world_wait(world, nothing_is_left, NULL, "the task is done");
    g_free(first.id);
    g_free(first.task);
    g_free(next.id);
    g_free(next.task);
    patient_clear(&ill);
    patient_clear(&spare);
    net_free(net);
}

/* ---- what a node says of itself ---- */

static void put_node(World *world, const char *said)
{
    world_putf(world, "actual/nodes/cache/self-00000001",
               "{\"name\":\"self\",\"host\":\"h\",\"set\":\"default\",\"capacityBytes\":1000,"
               "\"state\":\"%s\",\"startedAt\":%" G_GINT64_FORMAT
               ",\"version\":\"0\",\"lease\":\"1\",\"leaseTtl\":\"3s\"}",
               said, world->now_ms);
}

static void its_own_word(void **state)
{
    World *world = *state;
    const Patient self = {.pool = "cache", .name = (char *)"self", .id = (char *)"self-00000001"};
    gint64 probation, healthy;

    manager_start(world, "manager", NULL);
    put_settings(world, "");
    put_node(world, "online");
    wait_health(world, &self, LH_HEALTH_HEALTHY, "registered");
    put_node(world, "error");
    wait_health(world, &self, LH_HEALTH_FAILURE, "its own word: error");
    put_node(world, "online");
    probation = wait_health(world, &self, LH_HEALTH_PROBATION, "reports no error any more");
    put_node(world, "error");
    wait_health(world, &self, LH_HEALTH_FAILURE, "its own word: error");
    put_node(world, "online");
    probation = wait_health(world, &self, LH_HEALTH_PROBATION, "reports no error any more");
    healthy = wait_health(world, &self, LH_HEALTH_HEALTHY, "clean through its probation");
    assert_true(healthy - probation >= PROBATION_MS);
}

/* ---- the brake ---- */

#define FLEET 5

static gboolean has_brake(World *world, gpointer wanted)
{
    const LhBrake *brake = world_get(world, LH_KIND_BRAKE, "failure-detector");

    return (brake != NULL) == GPOINTER_TO_INT(wanted);
}

static gboolean shows_brake(World *world, gpointer manager)
{
    (void)world;
    return metric(manager, "brake{controller=\"failure-detector\"}") == 1;
}

/* The manager hears of no node, and of etcd all the time: it is the one that is cut off. */
static void all_are_silent_at_once(void **state)
{
    World *world = *state;
    Net *net = net_new();
    Proc *manager = manager_start(world, "manager", NULL);
    Patient fleet[FLEET];

    put_settings(world, "");
    for (guint i = 0; i < FLEET; i++) {
        g_autofree char *name = g_strdup_printf("n-%u", i);
        fleet[i] = patient_start(world, net, "cache", name, NULL);
        wait_health(world, &fleet[i], LH_HEALTH_HEALTHY, "");
    }
    pass(world, 1000);
    for (guint i = 0; i < FLEET; i++)
        link_drop(fleet[i].link, LINK_BOTH);
    world_wait(world, has_brake, GINT_TO_POINTER(TRUE), "the brake is on");
    world_poll(world, shows_brake, manager, "the metric says so");
    world_wait_event(world, "Braked", NULL);
    pass(world, 2000);
    for (guint i = 0; i < FLEET; i++) {
        assert_true(link_touched(fleet[i].link) > 0);
        link_heal(fleet[i].link);
    }
    world_wait(world, has_brake, GINT_TO_POINTER(FALSE), "the brake is off");
    world_wait_event(world, "BrakeReleased", NULL);

    /* One alone may always be ill. */
    pass(world, 1000);
    says_500(fleet[3].link);
    wait_health(world, &fleet[3], LH_HEALTH_FAILURE, "answered 500 3 times");
    g_autoptr(GPtrArray) history = world_history(world, 0);
    for (guint i = 0; i < FLEET; i++)
        if (i != 3 && !is_never(history, &fleet[i], "failure"))
            world_fail(world, "%s was condemned", fleet[i].id);
    g_autoptr(GPtrArray) said = all_said(history, &fleet[3]);
    assert_int_equal(said->len, 2); /* healthy all the time before */
    for (guint i = 0; i < FLEET; i++)
        patient_clear(&fleet[i]);
    net_free(net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_node_falls_ill, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_it_has_alone_goes_elsewhere, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(its_own_word, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(all_are_silent_at_once, world_setup, world_teardown),
    };

    if (argc == 3 && strcmp(argv[1], "--lines") == 0)
        return lines_work(argv[2]);
    return cmocka_run_group_tests_name("probes", tests, NULL, NULL);
}

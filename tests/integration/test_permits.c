/*
 * A crawl manager as a process: permits over HTTP, a policy that goes from one to the next, one that is killed,
 * one whose etcd answers no more, and a worker that fails. The orders are the test's own.
 */
#include "harness.h"

#include <string.h>

#define SEED_KEY "decided/assignments/manager/%s/%s"

/* ---- orders ---- */

static Proc *start(World *world, const char *name, const char *const *extra)
{
    return agent_start(world, &(AgentOptions){.name = name, .pool = "manager", .extra = extra});
}

typedef struct {
    const char *name; /* of a node */
    char *id;
} Wanted;

static void find_node(const LhObject *object, gpointer data)
{
    Wanted *wanted = data;

    if (strcmp(((const LhNode *)object)->node_name, wanted->name) == 0) {
        g_free(wanted->id);
        wanted->id = lh_name_part(object->name, 1);
    }
}

static gboolean is_registered(World *world, gpointer data)
{
    lh_mirror_foreach(world->mirror, LH_KIND_NODE, find_node, data);
    return ((Wanted *)data)->id != NULL;
}

/* g_free. */
static char *node_id(World *world, const char *name)
{
    Wanted wanted = {name, NULL};

    world_wait(world, is_registered, &wanted, "%s is registered", name);
    return wanted.id;
}

static void order(World *world, const char *node, const char *seed, const char *action,
                  const char *spec, const char *window)
{
    g_autofree char *key = g_strdup_printf(SEED_KEY, node, seed);

    world_putf(world, key,
               "{\"action\":\"%s\",\"since\":1,\"controller\":\"seed-allocator\",\"epoch\":1,"
               "\"rule\":\"r\",\"reason\":\"the test\",\"seed\":%s%s%s}",
               action, spec, window != NULL ? ",\"window\":" : "", window != NULL ? window : "");
}

typedef struct {
    const char *node, *seed;
    int state;
} Expected;

static gboolean item_is(World *world, gpointer data)
{
    const Expected *expected = data;
    const LhItem *item = world_get(world, LH_KIND_ITEM, "manager/%s/%s", expected->node,
                                   expected->seed);

    return item != NULL && item->state == expected->state;
}

static const LhItem *wait_item(World *world, const char *node, const char *seed, int state)
{
    Expected expected = {node, seed, state};

    world_wait(world, item_is, &expected, "%s on %s is %s", seed, node, lh_item_state_name(state));
    return world_get(world, LH_KIND_ITEM, "manager/%s/%s", node, seed);
}

/* ---- permits ---- */

static Reply *ask(Proc *agent, const char *seed, const char *body)
{
    g_autofree char *path = g_strconcat("/v1/permits/", seed, NULL);

    return http(agent, "POST", path, body);
}

static gint64 granted(const Reply *reply)
{
    gint64 n = -1;

    reply_must(reply, 200);
    assert_true(lh_json_int(json_at(reply->json, "granted"), &n));
    assert_int_equal(cJSON_GetArraySize(json_at(reply->json, "ids")), n);
    return n;
}

static gint64 take(Proc *agent, const char *seed, guint n)
{
    g_autofree char *body = g_strdup_printf("{\"n\":%u}", n);
    g_autoptr(Reply) reply = ask(agent, seed, body);

    return granted(reply);
}

static const char *id_at(const Reply *reply, int i)
{
    return cJSON_GetArrayItem(json_at(reply->json, "ids"), i)->valuestring;
}

static int give_back(Proc *agent, const char *seed, const char *id)
{
    g_autofree char *path = g_strdup_printf("/v1/permits/%s/%s", seed, id);
    g_autoptr(Reply) reply = http(agent, "DELETE", path, NULL);

    return reply->status;
}

#define POLITE                                                                             \
    "{\"url\":\"https://example.org/\",\"throttle\":{\"name\":\"polite\",\"requests\":10," \
    "\"period\":\"1h\",\"maxConcurrent\":4}}"

static void refused(Proc *agent, const char *seed, const char *body, int status, const char *words)
{
    g_autoptr(Reply) reply = ask(agent, seed, body);

    reply_must(reply, status);
    if (strstr(json_text(reply->json, "detail"), words) == NULL)
        fail_msg("%s: %s", body, reply->body->str);
}

static void test_grants_and_returns(void **state)
{
    World *world = *state;
    Proc *agent = start(world, "m-1", NULL);
    g_autofree char *node = node_id(world, "m-1");

    refused(agent, "s-1", "{\"n\":1}", 404, "is not on this node");
    order(world, node, "s-1", "load", POLITE, "{}");
    order(world, node, "s-2", "load", POLITE, NULL); /* the policy is here already */
    order(world, node, "free", "load", "{\"url\":\"https://example.net/\"}", NULL);
    const LhItem *item = wait_item(world, node, "s-1", LH_ITEM_LIVE);
    assert_non_null(strstr(item->url, "/v1/permits/s-1"));
    wait_item(world, node, "s-2", LH_ITEM_LIVE);
    wait_item(world, node, "free", LH_ITEM_LIVE);

    refused(agent, "s-1", "{}", 400, "n: is required");
    refused(agent, "s-1", "{\"n\":0}", 400, "n: must be an integer from 1 to 100");
    refused(agent, "s-1", "{\"n\":101}", 400, "n: must be");
    refused(agent, "s-1", "{\"n\":1,\"m\":2}", 400, "m: is not known");
    refused(agent, "s-1", "{\"n\":1,\"worker\":\"a b\"}", 400, "worker: must be");
    refused(agent, "s-1", "[", 400, "JSON");

    g_autoptr(Reply) first = ask(agent, "s-1", "{\"n\":3}");
    assert_int_equal(granted(first), 3);
    g_autoptr(Reply) second = ask(agent, "s-2", "{\"n\":3,\"worker\":\"w-1-00000001\"}");
    assert_int_equal(granted(second), 1); /* maxConcurrent, of both seeds */
    gint64 retry_ms = 0;
    assert_true(lh_json_int(json_at(second->json, "retryAfterMs"), &retry_ms));
    assert_in_range(retry_ms, 1, 60001);
    assert_int_equal(give_back(agent, "s-2", id_at(first, 0)), 404); /* it is of another seed */
    assert_int_equal(give_back(agent, "s-1", id_at(first, 0)), 204);
    assert_int_equal(give_back(agent, "s-1", id_at(first, 0)), 404);
    assert_int_equal(give_back(agent, "s-1", "nonsense"), 404);
    assert_int_equal(take(agent, "s-2", 5), 1);
    assert_int_equal(take(agent, "free", 100), 100);

    assert_true(metric(agent, "permits_granted_total{policy=\"polite\"}") == 5);
    assert_true(metric(agent, "permits_in_use") == 104);
    assert_true(metric(agent, "permits_refused_total{reason=\"unknown\"}") == 1);

    assert_int_equal(proc_logged(agent, "audit"), 0);
}

typedef struct {
    Proc *agent;
    const char *seed, *body;
    int status;
} Asked;

static gboolean is_answered(World *world, gpointer data)
{
    const Asked *asked = data;
    g_autoptr(Reply) reply = ask(asked->agent, asked->seed, asked->body);

    (void)world;
    return reply->status == asked->status;
}

static void wait_answer(Proc *agent, const char *seed, const char *body, int status)
{
    world_poll(agent->world, is_answered, &(Asked){agent, seed, body, status}, "%s is answered %d",
               seed, status);
}

#define THROTTLED(requests, period, state)                                                         \
    "{\"url\":\"https://example.org/\",\"state\":\"" state "\",\"throttle\":{\"name\":\"polite\"," \
    "\"requests\":" requests ",\"period\":\"" period "\"}}"

static void test_edits_in_place(void **state)
{
    static const char *const exec[] = {"--exec", "sleep 600", NULL};
    World *world = *state;
    Proc *agent = start(world, "m-1", exec);
    g_autofree char *node = node_id(world, "m-1");

    order(world, node, "s", "load", THROTTLED("3", "1h", "started"), "{}");
    wait_item(world, node, "s", LH_ITEM_LIVE);
    assert_int_equal(take(agent, "s", 9), 3);
    order(world, node, "s", "load", THROTTLED("3", "1h", "paused"), "{}");
    wait_answer(agent, "s", "{\"n\":1}", 409);
    refused(agent, "s", "{\"n\":1}", 409, "is paused");
    order(world, node, "s", "load", THROTTLED("5", "1h", "started"), "{}");
    wait_answer(agent, "s", "{\"n\":1}", 200);
    assert_int_equal(take(agent, "s", 9), 1);             /* what was granted counts on */
    assert_int_equal(proc_logged(agent, "to=hiding"), 0); /* its program ran all the time */
    /* another url: the program begins anew, the limiter does not */
    order(world, node, "s", "load",
          "{\"url\":\"https://example.net/\",\"throttle\":{\"name\":\"polite\",\"requests\":7,"
          "\"period\":\"1h\"}}",
          "{}");
    world_poll(world, proc_has_said, &(Said){agent, "to=hiding"}, "it is let go");
    wait_answer(agent, "s", "{\"n\":1}", 200);
    assert_int_equal(take(agent, "s", 9), 1);
}

static void test_a_seed_ends(void **state)
{
    static const char *const exec[] = {
        "--exec",
        "sh -c 'case $LEASEHOLD_SEED in good) exit 0 ;; bad) echo broken >&2; exit 3 ;; esac'",
        NULL};
    World *world = *state;

    start(world, "m-1", exec);
    g_autofree char *node = node_id(world, "m-1");
    order(world, node, "good", "load", POLITE, "{}");
    order(world, node, "bad", "load", POLITE, "{}");
    order(world, node, "odd", "load", "{\"throttle\":\"polite\"}", "{}");
    wait_item(world, node, "good", LH_ITEM_DONE);
    const LhItem *bad = wait_item(world, node, "bad", LH_ITEM_FAILED);
    assert_non_null(strstr(bad->message, "broken"));
    assert_string_equal(bad->window, "{}");
    const LhItem *odd = wait_item(world, node, "odd", LH_ITEM_FAILED);
    assert_non_null(strstr(odd->message, "seed.throttle: must be an object"));
}

/* ---- from one to the next ---- */

static void test_hand_over(void **state)
{
    static const char *const evict[] = {"--on-load", "true", "--on-evict", "true", NULL};
    World *world = *state;
    Proc *first = start(world, "m-1", evict), *second = start(world, "m-2", NULL);
    g_autofree char *from = node_id(world, "m-1"), *to = node_id(world, "m-2");

    order(world, from, "s-1", "load", POLITE, "{}");
    order(world, from, "s-2", "load", POLITE, "{}");
    wait_item(world, from, "s-1", LH_ITEM_LIVE);
    wait_item(world, from, "s-2", LH_ITEM_LIVE);
    assert_int_equal(take(first, "s-1", 2), 2);
    g_autoptr(Reply) returned = ask(first, "s-2", "{\"n\":2}");
    assert_int_equal(granted(returned), 2);
    assert_int_equal(give_back(first, "s-2", id_at(returned, 0)), 204);
    assert_int_equal(take(first, "s-2", 1), 1); /* 5 of 10 granted, 4 of 4 out */

    order(world, from, "s-1", "evict", POLITE, NULL);
    order(world, from, "s-2", "evict", POLITE, NULL);
    const LhItem *one = wait_item(world, from, "s-1", LH_ITEM_EVICTED);
    const LhItem *two = wait_item(world, from, "s-2", LH_ITEM_EVICTED);
    refused(first, "s-1", "{\"n\":1}", 404, "is not on this node");
    one = world_get(world, LH_KIND_ITEM, "manager/%s/s-1", from);
    const char *window = (one->o.mod_rev > two->o.mod_rev ? one : two)->window;
    assert_non_null(window);
    order(world, to, "s-2", "load", POLITE, window);
    order(world, to, "s-1", "load", POLITE, "{}"); /* the first of them said it */
    wait_item(world, to, "s-1", LH_ITEM_LIVE);
    wait_item(world, to, "s-2", LH_ITEM_LIVE);
    assert_int_equal(take(second, "s-1", 9), 0); /* 4 are out */
    order(world, to, "s-1", "load",
          "{\"url\":\"https://example.org/\",\"throttle\":{\"name\":\"polite\",\"requests\":10,"
          "\"period\":\"1h\"}}",
          NULL);
    wait_answer(second, "s-1", "{\"n\":1}", 200);
    gint64 more = take(second, "s-2", 99);
    assert_in_range(more, 0, 5);
    assert_int_equal(take(second, "s-2", 99), 0);
    gint64 all = (gint64)metric(second, "permits_granted_total{policy=\"polite\"}");
    assert_int_equal(all, 5);
}

/* One that was killed tells nothing: its successor waits for one period. */
static void test_killed(void **state)
{
    World *world = *state;
    Proc *first = start(world, "m-1", NULL), *second = start(world, "m-2", NULL);
    g_autofree char *from = node_id(world, "m-1"), *to = node_id(world, "m-2");

    order(world, from, "s", "load", THROTTLED("5", "3s", "started"), "{}");
    wait_item(world, from, "s", LH_ITEM_LIVE);
    assert_int_equal(take(first, "s", 5), 5);
    proc_kill(first);
    gint64 before = g_get_monotonic_time() / 1000;
    order(world, to, "s", "load", THROTTLED("5", "3s", "started"), NULL);
    wait_item(world, to, "s", LH_ITEM_LIVE);
    gint64 n = 0, asked = 0;
    while (n == 0) {
        n = take(second, "s", 5);
        asked++;
    }
    assert_true(g_get_monotonic_time() / 1000 - before >= 3000);
    assert_int_equal(n, 5);
    assert_true(asked > 1);
}

/* ---- what is not to be ---- */

static gboolean grants_nothing(World *world, gpointer data)
{
    g_autoptr(Reply) reply = ask(data, "s", "{\"n\":1}");

    (void)world;
    return reply->status != 200;
}

static void test_etcd_answers_no_more(void **state)
{
    static const char *const lease[] = {"--lease-ttl", "3s", NULL};
    World *world = *state;
    Proc *agent = start(world, "m-1", lease);
    g_autofree char *node = node_id(world, "m-1");

    order(world, node, "s", "load", "{\"url\":\"https://example.org/\"}", NULL);
    wait_item(world, node, "s", LH_ITEM_LIVE);
    gint64 frozen = g_get_monotonic_time() / 1000;
    etcd_process_freeze(world->etcd);
    world_poll(world, grants_nothing, agent, "nothing is granted any more");
    gint64 stopped = g_get_monotonic_time() / 1000;
    assert_true(stopped - frozen < 3000); /* its lease has not ended */
    refused(agent, "s", "{\"n\":1}", 503, "lease is in doubt");
    etcd_process_thaw(world->etcd);
}

static gboolean file_is_there(World *world, gpointer data)
{
    g_autofree char *text = NULL;

    (void)world;
    return g_file_get_contents(data, &text, NULL, NULL) && strchr(text, '\n') != NULL;
}

static void test_a_worker_fails(void **state)
{
    World *world = *state;
    g_autofree char *path = g_strdup_printf("%s/given-back", world->dir);
    g_autofree char *hook = g_strdup_printf("sh -c 'echo $LEASEHOLD_WORKER $(cat) >> \"$0\"' '%s'",
                                            path);
    const char *const extra[] = {"--on-worker-failed", hook, NULL};

    world_put(world, "decided/health/worker/w-0-00000000", "{\"state\":\"failed\",\"since\":1}");
    Proc *agent = start(world, "m-1", extra);
    g_autofree char *node = node_id(world, "m-1");
    order(world, node, "s-1", "load", POLITE, "{}");
    order(world, node, "s-2", "load", POLITE, "{}");
    wait_item(world, node, "s-1", LH_ITEM_LIVE);
    wait_item(world, node, "s-2", LH_ITEM_LIVE);
    wait_answer(agent, "s-1", "{\"n\":1,\"worker\":\"w-0-00000000\"}", 409);
    g_autoptr(Reply) one = ask(agent, "s-1", "{\"n\":2,\"worker\":\"w-1-00000001\"}");
    g_autoptr(Reply) two = ask(agent, "s-2", "{\"n\":1,\"worker\":\"w-1-00000001\"}");
    g_autoptr(Reply) other = ask(agent, "s-2", "{\"n\":1,\"worker\":\"w-2-00000001\"}");
    assert_int_equal(granted(one) + granted(two) + granted(other), 4);
    assert_int_equal(take(agent, "s-1", 1), 0);
    assert_int_equal(give_back(agent, "s-1", id_at(one, 0)), 204);
    world_put(world, "decided/health/worker/w-1-00000001", "{\"state\":\"failure\",\"since\":1}");
    world_put(world, "decided/health/worker/w-1-00000001", "{\"state\":\"failed\",\"since\":2}");
    world_put(world, "decided/health/worker/w-1-00000001", "{\"state\":\"failed\",\"since\":3}");
    world_poll(world, file_is_there, path, "the hook has run");
    g_autofree char *text = NULL;
    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_autofree char *want = g_strdup_printf(
        "w-1-00000001 {\"worker\":\"w-1-00000001\",\"seeds\":[{\"seed\":\"s-1\",\"permits\":[\"%s\"]},"
        "{\"seed\":\"s-2\",\"permits\":[\"%s\"]}]}\n",
        id_at(one, 1), id_at(two, 0));
    assert_string_equal(text, want);
    refused(agent, "s-1", "{\"n\":1,\"worker\":\"w-1-00000001\"}", 409, "has failed");
    assert_int_equal(give_back(agent, "s-2", id_at(two, 0)), 404);
    assert_int_equal(take(agent, "s-1", 9), 3); /* the slots are free */
    assert_true(metric(agent, "permits_taken_back_total") == 2);
    assert_int_equal(proc_logged(agent, "a worker has failed"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grants_and_returns, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_edits_in_place, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_a_seed_ends, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_hand_over, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_killed, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_etcd_answers_no_more, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_a_worker_fails, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* links: http */
/*
 * rebalance: what is asked, and when waiting ends.
 */
#include "world.h"

#define SETTINGS(revision_, conditions_)                                                       \
    "{\"kind\":\"Settings\",\"metadata\":{\"name\":\"seed-allocator\",\"revision\":" revision_ \
    "},\"spec\":{},\"status\":{\"conditions\":[" conditions_ "]}}"
#define CONDITION(type_, status_, revision_, message_)                                            \
    "{\"type\":\"" type_ "\",\"status\":\"" status_ "\",\"reason\":\"X\",\"message\":\"" message_ \
    "\",\"observedRevision\":" revision_ "}"
#define ORDER(name_, action_, rule_) \
    "{\"metadata\":{\"name\":\"" name_ "\"},\"action\":\"" action_ "\",\"rule\":\"" rule_ "\"}"
#define ASKED                                                                           \
    "200 {\"pool\":\"manager\",\"object\":\"settings/seed-allocator\",\"rebalanceAt\":" \
    "\"2026-11-20T21:00:00.000Z\",\"revision\":50}"

static void test_asks(void **state)
{
    World *world = *state;
    answers(world, "POST pools/manager:rebalance", ASKED);
    assert_run(0, "rebalance", "manager");
    assert_string_equal(world->out, "pools/manager asked to rebalance\n");
    assert_true(was_asked(world, "POST pools/manager:rebalance {}"));
    assert_run(0, "rebalance", "manager", "-o", "json");
    g_autoptr(cJSON) json = cJSON_Parse(world->out);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "results"), 0);
    assert_int_equal(lh_json_get_int(first, "revision", 0), 50);
    assert_run(0, "rebalance", "manager", "--dry-run");
    assert_string_equal(world->out, "pools/manager asked to rebalance (dry run)\n");
    assert_true(was_asked(world, "POST pools/manager:rebalance dryRun=true {}"));
    assert_int_equal(world->n_watches, 0);
}

static void test_refusals(void **state)
{
    World *world = *state;
    answers(world, "POST pools/cache:rebalance",
            "409 {\"detail\":\"pool cache is not rebalanced\"}");
    answers(world, "POST pools/none:rebalance", "404 {\"detail\":\"there is no pool none\"}");
    answers(world, "POST pools/manager:rebalance", "403 {\"detail\":\"admin is needed\"}");
    assert_run(4, "rebalance", "cache");
    assert_string_equal(world->err,
                        "leasehold: pools/cache:rebalance: pool cache is not rebalanced\n");
    assert_run(4, "rebalance", "none", "--wait");
    assert_run(4, "rebalance", "manager", "--wait");
    assert_contains(world->err, "admin is needed");
    assert_run(2, "rebalance");
    assert_run(2, "rebalance", "manager/x");
    assert_contains(world->err, "must be the name of a pool");
    assert_run(2, "rebalance", "manager", "--timeout", "soon");
    assert_run(2, "rebalance", "manager", "--wait", "--dry-run");
    assert_contains(world->err, "exclude each other");
    answers(world, "POST pools/odd:rebalance", "200 {}");
    assert_run(1, "rebalance", "odd");
    assert_contains(world->err, "names no object");
}

/* What was True before the request is not the answer to it. */
static void test_waits(void **state)
{
    World *world = *state;
    answers(world, "POST pools/manager:rebalance", ASKED);
    has(world, "settings/seed-allocator",
        SETTINGS("50", CONDITION("Rebalanced", "True", "40", "old news")));
    sends(
        world, "settings",
        "PUT 51 " SETTINGS(
            "50",
            CONDITION("Valid", "False", "40",
                      "wrong")) "\n"
                                "PUT 52 " SETTINGS(
                                    "50",
                                    CONDITION(
                                        "Rebalanced", "False", "50",
                                        "asked for")) "\n"
                                                      "PUT 53 {\"metadata\":{\"name\":\"other\"}}\n"
                                                      "PUT 54 " SETTINGS(
                                                          "50", CONDITION("Rebalanced", "True",
                                                                          "50", "asked for")));
    sends(
        world, "assignments",
        "PUT 51 " ORDER(
            "manager/m-1/a", "evict",
            "rebalance") "\n"
                         "PUT 51 " ORDER(
                             "manager/m-1/b", "evict",
                             "moved-with-policy") "\n"
                                                  "PUT 51 " ORDER(
                                                      "manager/m-1/c", "evict",
                                                      "drained") "\n"
                                                                 "PUT 51 " ORDER(
                                                                     "manager/m-2/d", "load",
                                                                     "fewest-seeds") "\n"
                                                                                     "PUT 51 " ORDER(
                                                                                         "managers/m-1/e",
                                                                                         "evict",
                                                                                         "rebalance") "\n"
                                                                                                      "PUT 52 " ORDER(
                                                                                                          "manager/m-1/a",
                                                                                                          "evict",
                                                                                                          "rebalance") "\n"
                                                                                                                       "DELETE 53 {\"name\":\"manager/m-1/a\"}");
    assert_run(0, "rebalance", "manager", "--wait");
    assert_string_equal(world->out, "pools/manager asked to rebalance\n"
                                    "settings/seed-allocator rebalanced: 2 seeds moved\n");
    assert_true(was_asked(world, "GET assignments watch=true"));
    /* Done before anybody could watch: an answer about a later revision counts too. */
    has(world, "settings/seed-allocator",
        SETTINGS("60", CONDITION("Rebalanced", "True", "60", "asked for")));
    sends(world, "assignments", "PUT 51 " ORDER("manager/m-1/a", "evict", "rebalance"));
    assert_run(0, "rebalance", "manager", "--wait");
    assert_contains(world->out, "settings/seed-allocator rebalanced: 1 seed moved\n");
    assert_run(0, "rebalance", "manager", "--wait");
    assert_contains(world->out, "settings/seed-allocator rebalanced: 0 seeds moved\n");
    assert_run(0, "rebalance", "manager", "--wait", "-o", "name");
    assert_string_equal(world->out, "settings/seed-allocator\n");
}

static void test_waits_in_vain(void **state)
{
    World *world = *state;
    answers(world, "POST pools/manager:rebalance", ASKED);
    has(world, "settings/seed-allocator", SETTINGS("50", ""));
    assert_run(1, "rebalance", "manager", "--wait", "--timeout", "50ms");
    assert_contains(world->err, "not rebalanced within 50ms: its controller has not answered yet");
    has(world, "settings/seed-allocator",
        SETTINGS("50", CONDITION("Rebalanced", "False", "50", "one throttle still moves")));
    assert_run(1, "rebalance", "manager", "--wait", "--timeout", "50ms");
    assert_contains(world->err, "within 50ms: one throttle still moves");
    has(world, "settings/seed-allocator",
        SETTINGS("50", CONDITION("Valid", "False", "50", "spec.brakePercent is 0")));
    assert_run(1, "rebalance", "manager", "--wait");
    assert_contains(world->err, "cannot be rebalanced: spec.brakePercent is 0");
    has(world, "settings/seed-allocator", SETTINGS("50", ""));
    sends(world, "settings", "DELETE 55 {\"metadata\":{\"name\":\"seed-allocator\"}}");
    assert_run(1, "rebalance", "manager", "--wait");
    assert_contains(world->err, "it was deleted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_asks),
        test_case(test_refusals),
        test_case(test_waits),
        test_case(test_waits_in_vain),
    };
    return cmocka_run_group_tests_name("cli/rebalance", tests, NULL, NULL);
}

/* links: http */
/*
 * The commands that read and write objects: get, describe, explain, apply, delete.
 */
#include "world.h"

/* ---- get, describe, explain ---- */

static void test_get(void **state)
{
    World *world = *state;
    for (int i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        has_service(world, name, "me", 10 + i);
    }
    assert_run(0, "get", "services", "-o", "name");
    assert_string_equal(world->out,
                        "services/s0\nservices/s1\nservices/s2\nservices/s3\nservices/s4\n");
    assert_run(0, "get", "Service", "-o", "json");
    g_autoptr(cJSON) list = cJSON_Parse(world->out);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(list, "items")), 5);
    assert_int_equal(lh_json_get_int(list, "revision", 0), 100);
    assert_null(cJSON_GetObjectItem(list, "continue"));
    assert_run(0, "get", "services", "-o", "jsonpath={.items[*].metadata.revision}");
    assert_string_equal(world->out, "10 11 12 13 14");
    assert_run(0, "get", "service", "s1", "-o", "yaml");
    assert_contains(world->out, "kind: Service\nmetadata:\n  name: s1\n");
    assert_run(0, "get", "service", "s1", "s3");
    assert_contains(world->out, "\ns1 ");
    assert_contains(world->out, "\ns3 ");
    assert_run(0, "get", "services", "-l", "a=b,c!=d e");
    assert_true(was_asked(world, "GET services labelSelector=a=b,c!=d e"));
    assert_run(0, "get", "seeds");
    assert_string_equal(world->out, "");
    assert_string_equal(world->err, "no seeds found\n");
    assert_run(4, "get", "service", "s1", "absent");
    /* Names go into the path as they are, and the server refuses what is none. */
    assert_run(2, "get", "service", "../x");
    has(world, "services/a b?", "{\"metadata\":{\"name\":\"a b?\"}}");
    assert_run(0, "get", "service", "a b?");
}

/* A list whose revision is gone on its second page is begun again. */
static void test_list_again(void **state)
{
    World *world = *state;
    answers(world, "GET seeds", "410 {\"detail\":\"compacted\"}");
    assert_run(4, "get", "seeds");
    assert_int_equal(world->requests->len, 1);
}

static void test_describe(void **state)
{
    World *world = *state;
    has(world, "services/a",
        "{\"kind\":\"Service\",\"metadata\":{\"name\":\"a\",\"revision\":7,\"labels\":{\"x\":\"y\"}},"
        "\"spec\":{\"owner\":\"me\",\"retention\":\"7d\"},\"status\":{\"snapshots\":2,\"conditions\":"
        "[{\"type\":\"Valid\",\"status\":\"False\",\"reason\":\"TooLong\",\"message\":\"no\"}]}}");
    has(world, "events/1",
        "{\"metadata\":{\"name\":\"1\"},\"object\":\"services/a\",\"reason\":"
        "\"Seen\",\"type\":\"Normal\",\"count\":1,\"message\":\"hello\"}");
    has(world, "events/2",
        "{\"metadata\":{\"name\":\"2\"},\"object\":\"services/b\",\"reason\":"
        "\"Other\"}");
    assert_run(0, "describe", "service", "a");
    assert_string_equal(world->out, "Name:      a\nKind:      Service\nRevision:  7\n"
                                    "Labels:\n  x: 'y'\n"
                                    "Spec:\n  owner: me\n  retention: 7d\n"
                                    "Status:\n  snapshots: 2\n"
                                    "Conditions:\n"
                                    "  CONDITION   STATUS   FOR   REASON    MESSAGE\n"
                                    "  Valid       False    -     TooLong   no\n"
                                    "Events:\n"
                                    "LAST   TYPE     REASON   OBJECT       COUNT   MESSAGE\n"
                                    "-      Normal   Seen     services/a   1       hello\n");
    assert_run(0, "describe", "service", "a", "-o", "jsonpath={.spec.owner}");
    assert_string_equal(world->out, "me");
    assert_run(4, "describe", "service", "b");
}

static void test_explain(void **state)
{
    World *world = *state;
    answers(world, "GET explain/cache/s.default.0",
            "200 {\"pool\":\"cache\",\"state\":\"Free\",\"reason\":\"no room\",\"lines\":[\"one\","
            "\"two \\u001b\"]}");
    assert_run(0, "explain", "cache/s.default.0");
    assert_string_equal(world->out, "one\ntwo ?\n");
    assert_run(0, "explain", "cache/s.default.0", "-o", "jsonpath={.state}");
    assert_string_equal(world->out, "Free");
    assert_run(4, "explain", "cache/other");
}

/* ---- apply, delete ---- */

static const char two_services[] =
    "apiVersion: leasehold/v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  owner: me\n---\n"
    "kind: Service\nmetadata: {name: b, labels: {app: x}}\nspec: {owner: yes}\n";

static void test_apply(void **state)
{
    World *world = *state;
    g_autofree char *path = file(world, "two.yaml", two_services);
    assert_run(0, "apply", "-f", path, "--dry-run");
    assert_string_equal(world->out, "services/a created (dry run)\nservices/b created (dry run)\n");
    assert_int_equal(g_hash_table_size(world->objects), 0);
    assert_run(0, "apply", "-f", path);
    assert_string_equal(world->out, "services/a created\nservices/b created\n");
    assert_true(was_asked(world, "PUT services/a If-None-Match:* {"));
    assert_contains(g_hash_table_lookup(world->objects, "services/b"),
                    "{\"owner\":\"yes\",\"retention\":\"7d\"}");
    assert_run(0, "apply", "-f", path);
    assert_string_equal(world->out, "services/a unchanged\nservices/b unchanged\n");

    g_autofree char *changed = file(world, "b.json",
                                    "{\"kind\":\"service\",\"metadata\":{\"name\":"
                                    "\"b\"},\"spec\":{\"owner\":\"yes\"}}");
    assert_run(0, "apply", "-f", changed, "-o", "json");
    g_autoptr(cJSON) results = cJSON_Parse(world->out);
    const cJSON *first = cJSON_GetObjectItem(results, "results")->child;
    assert_string_equal(lh_json_get_string(first, "result", ""), "configured");
    assert_int_equal(lh_json_get_int(first, "revision", 0), 103);
    assert_true(was_asked(world, "PUT services/b If-Match:\"102\" {"));

    world->conflicts = 2;
    assert_run(0, "apply", "-f", path);
    assert_string_equal(world->out, "services/a unchanged\nservices/b configured\n");
    world->conflicts = 99;
    g_autofree char *third = file(world, "c.yaml", "kind: Service\nmetadata: {name: c}\n");
    assert_run(4, "apply", "-f", third);
    assert_string_equal(world->err, "leasehold: services/c: services/c was changed\n");
}

static void test_apply_errors(void **state)
{
    World *world = *state;
    static const struct {
        const char *yaml, *message;
    } cases[] = {
        {"kind: Widget\nmetadata: {name: a}\n", "f.yaml:1: kind: Widget is unknown"},
        {"kind: Replica\nmetadata: {name: a}\n",
         "f.yaml:1: kind: Replica is not written by people"},
        {"metadata: {name: a}\n", "f.yaml:1: kind: is missing"},
        {"kind: Seed\n---\nkind: Seed\n", "f.yaml:1: metadata.name is missing"},
        {"kind: Seed\nmetadata: {name: a}\n---\nkind: Seed\nmetadata: {name: a}\n",
         "f.yaml:4: seeds/a is there twice"},
        {"a: &x 1\n", "f.yaml:1: anchors are not supported"},
        {"# empty\n", "f.yaml: no objects in it"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = file(world, "f.yaml", cases[i].yaml);
        assert_run(2, "apply", "-f", path);
        assert_contains(world->err, cases[i].message);
    }
    assert_int_equal(world->requests->len, 0);

    /* One refused object does not stop the others. */
    g_autofree char *path = file(world, "f.yaml",
                                 "kind: Service\nmetadata: {name: a}\nspec: {owner: bad}\n---\n"
                                 "kind: Service\nmetadata: {name: b}\nspec: {owner: good}\n");
    assert_run(2, "apply", "-f", path);
    assert_string_equal(world->out, "services/b created\n");
    assert_contains(world->err, "f.yaml:1: services/a: spec.owner: must not be bad\n");
}

static void test_prune(void **state)
{
    World *world = *state;
    has_service(world, "a", "me", 10);
    has_service(world, "old", "me", 11);
    has(world, "seeds/old", "{\"metadata\":{\"name\":\"old\",\"revision\":12}}");
    has(world, "snapshots/s", "{\"metadata\":{\"name\":\"s\",\"revision\":13}}");
    g_autofree char *path = file(world, "two.yaml", two_services);
    assert_run(2, "apply", "-f", path, "--prune");
    assert_run(2, "apply", "-f", path, "--prune", "-l", "");
    assert_run(2, "apply", "-f", path, "-l", "a=b");
    assert_run(0, "apply", "-f", path, "--prune", "-l", "a=b");
    assert_string_equal(world->out, "services/a unchanged\nservices/b created\n"
                                    "services/old pruned\nseeds/old pruned\n");
    assert_true(was_asked(world, "GET services labelSelector=a=b"));
    assert_true(was_asked(world, "DELETE services/old If-Match:\"11\""));
    assert_non_null(g_hash_table_lookup(world->objects, "snapshots/s"));

    has_service(world, "old", "me", 11);
    g_autofree char *bad = file(world, "bad.yaml",
                                "kind: Service\nmetadata: {name: a}\nspec: {owner: bad}\n");
    assert_run(2, "apply", "-f", bad, "--prune", "-l", "a=b");
    assert_contains(world->err, "nothing was pruned");
    assert_non_null(g_hash_table_lookup(world->objects, "services/old"));
}

static void test_delete(void **state)
{
    World *world = *state;
    has_service(world, "a", "me", 10);
    has_service(world, "b", "me", 11);
    has_service(world, "c", "me", 12);
    assert_run(0, "delete", "service", "a", "--dry-run");
    assert_string_equal(world->out, "services/a deleted (dry run)\n");
    assert_run(4, "delete", "service", "a", "absent", "c");
    assert_string_equal(world->out, "services/a deleted\nservices/c deleted\n");
    assert_string_equal(world->err, "leasehold: services/absent: no such object\n");
    g_autofree char *path = file(world, "two.yaml", "kind: Service\nmetadata: {name: b}\n");
    assert_run(0, "delete", "-f", path, "-o", "name");
    assert_string_equal(world->out, "services/b\n");
    assert_run(2, "delete", "service", "a", "-f", path);
    assert_int_equal(g_hash_table_size(world->objects), 0);
}

static void test_actions(void **state)
{
    World *world = *state;
    answers(world, "POST nodepolicies/cache/n:cordon", "200 {}");
    answers(world, "POST nodepolicies/cache/n:uncordon", "200 {}");
    answers(world, "POST retries/cache/s.default.0:retry", "200 {}");
    answers(world, "POST controllers/cache-evictor:confirm", "200 {}");
    assert_run(0, "cordon", "cache/n");
    assert_string_equal(world->out, "nodepolicies/cache/n cordoned\n");
    assert_run(0, "uncordon", "cache/n");
    assert_string_equal(world->out, "nodepolicies/cache/n uncordoned\n");
    answers(world, "POST nodepolicies/cache/n:drain", "200 {}");
    assert_run(0, "drain", "cache/n");
    assert_string_equal(world->out, "nodepolicies/cache/n is being drained\n");
    assert_run(2, "drain", "n");
    assert_string_equal(world->err,
                        "leasehold: drain: n: usage: leasehold drain POOL/NODE-NAME [--wait]\n");
    assert_run(2, "drain", "cache/n", "--wait", "--timeout", "soon");
    assert_non_null(strstr(world->err, "leasehold: drain: --timeout soon: "));
    assert_run(0, "retry", "cache/s.default.0");
    assert_run(0, "confirm", "cache-evictor", "--plan", "ab\"c");
    assert_true(
        was_asked(world, "POST controllers/cache-evictor:confirm {\"planHash\":\"ab\\\"c\"}"));
    answers(world, "POST retries/cache/x:retry", "404 {\"detail\":\"no such object\"}");
    assert_run(4, "retry", "cache/x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_get),     test_case(test_list_again), test_case(test_describe),
        test_case(test_explain), test_case(test_apply),      test_case(test_apply_errors),
        test_case(test_prune),   test_case(test_delete),     test_case(test_actions),
    };
    return cmocka_run_group_tests_name("cli/objects", tests, NULL, NULL);
}

/*
 * Restores: old data asked for on the command line and by HTTP comes back on the nodes' reserve, in every
 * set, goes on over the kill of a leader, is refused above the limit, and goes when its time ends.
 */
#include "harness.h"

#include <string.h>

#define HOUR G_GINT64_CONSTANT(3600000)
#define DAY  (24 * HOUR)

static const char *const short_lease[] = {"--lease-ttl", "2s", NULL};

static void put_service(World *world, const char *name, const char *more)
{
    g_autofree char *key = g_strconcat("desired/services/", name, NULL);
    world_putf(world, key,
               "{\"spec\":{\"owner\":\"a\",\"retention\":\"90d\",\"cache\":{\"window\":\"1h\","
               "\"sets\":[\"default\",\"extra\"]}%s}}",
               more);
}

/* <service>-0 … end so many hours before 30 days ago. */
static void publish_old(World *world, const char *service, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s-%u", service, i);
        snapshot_publish(world, name, service, world->now_ms - 30 * DAY - (gint64)i * 2 * HOUR, 1,
                         500);
    }
}

static char *days_ago(World *world, gint64 hours_more)
{
    GDateTime *time = g_date_time_new_from_unix_utc((world->now_ms - 30 * DAY - hours_more * HOUR) /
                                                    1000);
    char *text = g_date_time_format(time, "%Y-%m-%dT%H:%M:%SZ");
    g_date_time_unref(time);
    return text;
}

static void start_nodes(World *world)
{
    agent_start(world, &(AgentOptions){.name = "agent-1"});
    agent_start(world, &(AgentOptions){.name = "agent-2", .set = "extra"});
}

static gboolean has_phase(World *world, gpointer data)
{
    const LhRestoreProgress *wanted = data;
    const LhRestoreProgress *progress = world_get(world, LH_KIND_RESTOREPROGRESS, "%s",
                                                  wanted->o.name);
    return progress != NULL && lh_object_known(&progress->o) && progress->phase == wanted->phase &&
           progress->live == wanted->live && progress->replicas == wanted->replicas;
}

static void wait_phase(World *world, const char *name, LhRestorePhase phase, gint64 replicas,
                       gint64 live)
{
    LhRestoreProgress wanted = {.o.name = name, .phase = phase, .replicas = replicas, .live = live};
    world_wait(world, has_phase, &wanted, "restore %s is %s, %d of %d live", name,
               lh_restore_phase_name(phase), (int)live, (int)replicas);
}

/* How often each restored replica was created after @revision: never twice. */
static guint created_once(World *world, gint64 revision)
{
    g_autoptr(GPtrArray) history = world_history(world, revision);
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (g_str_has_prefix(kv->key, "decided/replicas/") && !kv->is_delete &&
            kv->create_rev == kv->mod_rev && !g_hash_table_add(seen, kv->key))
            fail_msg("%s was created twice", kv->key);
    }
    return g_hash_table_size(seen);
}

static gboolean has_replicas(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_REPLICA) == GPOINTER_TO_UINT(data);
}

static void old_data_comes_back_and_goes_again(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    world_put(world, "desired/settings/cache-evictor", "{\"spec\":{\"evictGrace\":\"0s\"}}");
    start_nodes(world);
    put_service(world, "api", "");
    publish_old(world, "api", 5);
    g_autofree char *from = days_ago(world, 4), *to = days_ago(world, 0);
    gint64 before = world_revision(world);
    /* api-0, -1 and -2, in two sets. */
    g_autoptr(Run) asked = cli(manager, "restore", "api", "--from", from, "--to", to, "--ttl",
                               "10s", "--name", "old", "--wait", NULL);
    assert_string_equal(asked->err, "");
    assert_int_equal(asked->code, 0);
    assert_true(g_str_has_prefix(asked->out, "restores/old created\n"));
    assert_true(g_str_has_suffix(asked->out, "6/6 live, Active\nrestores/old restored\n"));
    assert_int_equal(world_live(world, "api-"), 6);
    g_autoptr(Run) table = cli(manager, "get", "restores", NULL);
    assert_non_null(strstr(table->out, "Active"));
    assert_non_null(strstr(table->out, "6/6"));
    g_autoptr(Reply) object = http(manager, "GET", "/v1/restores/old", NULL);
    assert_string_equal(json_text(object->json, "status.phase"), "Active");
    g_autoptr(Reply) one = http(manager, "GET", "/v1/replicas/api-1.extra.r0", NULL);
    reply_must(one, 200);
    assert_string_equal(json_text(one->json, "restore"), "old");
    assert_string_not_equal(json_text(one->json, "expiresAt"), "");

    world_wait(world, has_replicas, GUINT_TO_POINTER(0), "the replicas go when their time ends");
    wait_phase(world, "old", LH_RESTORE_COMPLETED, 6, 0);
    assert_int_equal(world_live(world, NULL), 0);
    assert_int_equal(created_once(world, before), 6);
    world_wait_event(world, "RestoreCompleted", "restores/old");
    /* The same name again is refused, and a new one brings them back. */
    g_autoptr(Run) again = cli(manager, "restore", "api", "--from", from, "--to", to, "--name",
                               "old", NULL);
    assert_int_equal(again->code, 4);
    g_autoptr(Run) other = cli(manager, "restore", "*", "--from", from, "--to", to, "--wait", NULL);
    assert_int_equal(other->code, 0);
    assert_int_equal(world_live(world, "api-"), 6);
}

/* Two requests: one that is Pending, one that loads, when the leader is killed. */
static void a_killed_leader_loses_no_request(void **state)
{
    World *world = *state;
    Proc *first = manager_start(world, "m-1", short_lease);
    put_service(world, "api", "");
    put_service(world, "web", ",\"paused\":true");
    publish_old(world, "api", 4);
    publish_old(world, "web", 2);
    g_autofree char *from = days_ago(world, 2), *to = days_ago(world, 0);
    gint64 before = world_revision(world);
    world_putf(world, "desired/restores/pending",
               "{\"spec\":{\"service\":\"web\",\"startTime\":\"%s\",\"endTime\":\"%s\"}}", from,
               to);
    wait_phase(world, "pending", LH_RESTORE_PENDING, 4, 0);
    Proc *second = manager_start(world, "m-2", short_lease);
    g_autofree char *server = g_strdup(second->url);
    const char *const argv[] = {"leasehold", "restore", "api",    "--from",   from,   "--to", to,
                                "--name",    "loading", "--wait", "--server", server, NULL};
    Proc *waiting = proc_start(world, "waiting", argv);
    wait_phase(world, "loading", LH_RESTORE_ACTIVE, 4, 0); /* there is no node yet */
    proc_kill(first);
    start_nodes(world);
    assert_int_equal(proc_wait(waiting), 0);
    wait_phase(world, "loading", LH_RESTORE_ACTIVE, 4, 4);
    const LhRestoreProgress *progress = world_get(world, LH_KIND_RESTOREPROGRESS, "pending");
    assert_int_equal(progress->phase, LH_RESTORE_PENDING);
    put_service(world, "web", "");
    wait_phase(world, "pending", LH_RESTORE_ACTIVE, 4, 4);
    assert_int_equal(created_once(world, before), 8);
}

static void the_limit_is_exact(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    world_put(world, "desired/settings/restore-manager",
              "{\"spec\":{\"maxReplicasPerRestore\":4}}");
    start_nodes(world);
    put_service(world, "api", "");
    publish_old(world, "api", 3);
    g_autofree char *all = days_ago(world, 4), *two = days_ago(world, 2), *to = days_ago(world, 0);
    gint64 before = world_revision(world);
    g_autoptr(Run) refused = cli(manager, "restore", "api", "--from", all, "--to", to, "--name",
                                 "more", "--wait", NULL);
    assert_int_equal(refused->code, 4);
    assert_string_equal(refused->err, "leasehold: restores/more: refused: it needs 6 replicas, "
                                      "maxReplicasPerRestore is 4\n");
    assert_int_equal(created_once(world, before), 0);
    g_autofree char *body = g_strdup_printf(
        "{\"metadata\":{\"name\":\"at\"},\"spec\":{\"service\":\"api\",\"startTime\":\"%s\","
        "\"endTime\":\"%s\"}}",
        two, to);
    g_autoptr(Reply) created = http(manager, "POST", "/v1/restores", body);
    reply_must(created, 201);
    wait_phase(world, "at", LH_RESTORE_ACTIVE, 4, 4);
    g_autoptr(Reply) bad = http(manager, "POST", "/v1/restores",
                                "{\"spec\":{\"service\":\"api\",\"startTime\":5,\"endTime\":1}}");
    reply_must(bad, 422);
    assert_string_equal(json_text(bad->json, "field"), "spec.endTime");
    /* An invalid edit, past the API, touches nothing. */
    gint64 edited = world_put(world, "desired/restores/at", "{\"spec\":{\"service\":7}}");
    world_catch_up(world, edited);
    world_put(world, "desired/services/late", "{\"spec\":{\"owner\":\"a\"}}");
    wait_phase(world, "at", LH_RESTORE_ACTIVE, 4, 4);
    assert_int_equal(created_once(world, before), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(old_data_comes_back_and_goes_again, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_killed_leader_loses_no_request, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(the_limit_is_exact, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-restore", tests, NULL, NULL);
}

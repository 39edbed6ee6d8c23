/* links: http */
/*
 * diff, edit, top, completion.
 */
#include "world.h"

static char *write_file(World *world, const char *name, const char *text)
{
    char *path = g_build_filename(world->dir, name, NULL);
    assert_true(g_file_set_contents(path, text, -1, NULL));
    return path;
}

static void test_diff(void **state)
{
    World *world = *state;
    g_autofree char *same = write_file(world, "same.yaml",
                                       "kind: Service\nmetadata: {name: a}\nspec: {owner: me}\n");
    g_autofree char *other = write_file(world, "other.yaml",
                                        "kind: Service\nmetadata: {name: a}\nspec: {owner: you}\n");
    has_service(world, "a", "me", 10);
    assert_run(0, "diff", "-f", same);
    assert_string_equal(world->out, "");
    assert_run(1, "diff", "-f", other);
    assert_contains(world->out, "--- services/a\n");
    assert_contains(world->out, "-  owner: me\n");
    assert_contains(world->out, "+  owner: you\n");
    assert_string_equal(world->err, "");
    assert_run(1, "diff", "-f", other, "-o", "name");
    assert_string_equal(world->out, "services/a\n");
    g_autofree char *fresh = write_file(world, "fresh.yaml",
                                        "kind: Service\nmetadata: {name: b}\nspec: {owner: me}\n");
    assert_run(1, "diff", "-f", fresh);
    assert_contains(world->out, "--- services/b (does not exist)\n");
    assert_run(2, "diff");
    g_autofree char *bad = write_file(world, "bad.yaml", "kind: Nonsense\n");
    assert_run(2, "diff", "-f", bad);
    /* Nothing was written. */
    assert_run(0, "get", "service", "a", "-o", "jsonpath={.spec.owner}");
    assert_string_equal(world->out, "me");
    assert_run(4, "get", "service", "b");
}

static void set_editor(World *world, const char *script)
{
    g_autofree char *text = g_strdup_printf("#!/bin/sh\n%s\n", script);
    g_autofree char *path = write_file(world, "editor", text);
    assert_int_equal(g_chmod(path, 0700), 0);
    g_setenv("EDITOR", path, TRUE);
    g_unsetenv("VISUAL");
}

static void drop_kept(const World *world)
{
    const char *kept = strstr(world->err, "the edit is kept in ");
    assert_non_null(kept);
    g_autofree char *path = g_strchomp(g_strdup(kept + strlen("the edit is kept in ")));
    g_autofree char *dir = g_path_get_dirname(path);
    assert_int_equal(g_unlink(path), 0);
    assert_int_equal(g_rmdir(dir), 0);
}

static void test_edit(void **state)
{
    World *world = *state;
    has_service(world, "a", "me", 10);
    set_editor(world, "sed -i 's/owner: me/owner: you/' \"$1\"");
    assert_run(0, "edit", "service", "a");
    assert_string_equal(world->out, "services/a edited\n");
    assert_run(0, "get", "service", "a", "-o", "jsonpath={.spec.owner}");
    assert_string_equal(world->out, "you");
    set_editor(world, "true");
    assert_run(0, "edit", "service", "a");
    assert_string_equal(world->out, "services/a unchanged\n");
    set_editor(world, "sed -i 's/owner: you/owner: them/' \"$1\"");
    world->conflicts = 1;
    assert_run(4, "edit", "service", "a");
    assert_contains(world->err, "services/a: somebody changed it meanwhile; nothing was written");
    drop_kept(world);
    set_editor(world, "echo 'kind: Seed' > \"$1\"");
    assert_run(2, "edit", "service", "a");
    assert_contains(world->err, "must be one Service that is called a");
    drop_kept(world);
    set_editor(world, "exit 3");
    assert_run(1, "edit", "service", "a");
    drop_kept(world);
    assert_run(4, "edit", "service", "none");
    assert_run(2, "edit", "replicas", "x");
    assert_contains(world->err, "a Replica is not written by people");
}

static void test_top(void **state)
{
    World *world = *state;
    answers(
        world, "GET cluster",
        "200 {\"pools\":[{\"pool\":\"cache\",\"set\":\"default\",\"nodes\":2,\"capacityBytes\":"
        "2048,\"usedBytes\":512,\"waitingItems\":3,\"waitingBytes\":9,\"missingBytes\":1024},"
        "{\"pool\":\"manager\",\"nodes\":3,\"items\":6,\"capacityItems\":24,\"waitingItems\":1},"
        "{\"pool\":\"worker\",\"nodes\":1,\"items\":0,\"capacityItems\":0,\"waitingItems\":0}]}");
    assert_run(0, "top");
    assert_string_equal(
        world->out,
        "POOL      SET       NODES   ITEMS   CAPACITY   USED    USE   WAITING   MISSING\n"
        "cache     default   2       -       2 KiB      512 B   25%   3         1 KiB\n"
        "manager   -         3       6       -          -       25%   1         -\n"
        "worker    -         1       0       -          -       -     0         -\n");
    answers(world, "GET cluster", "200 {\"pools\":[{\"pool\":\"cache\",\"set\":\"x\"}]}");
    assert_run(0, "top", "-o", "jsonpath={[0].set}");
    assert_string_equal(world->out, "x");
    answers(world, "GET cluster", "200 {\"pools\":[]}");
    assert_run(0, "top");
    assert_string_equal(world->err, "no pools with nodes or items\n");
}

/* The script is one that bash takes, and it completes. */
static void test_completion(void **state)
{
    World *world = *state;
    assert_run(0, "completion", "bash");
    g_autofree char *try = g_strdup_printf(
        "%s\nfor words in 'leasehold res' 'leasehold get rest' 'leasehold restore api --tt'; do\n"
        "COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _leasehold\n"
        "echo \"${COMPREPLY[@]}\"; done\n",
        world->out);
    g_autofree char *path = write_file(world, "completion", try), *out = NULL;
    const char *const argv[] = {"bash", path, NULL};
    int status;
    assert_true(g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, NULL,
                             &status, NULL));
    assert_int_equal(status, 0);
    assert_string_equal(out, "restore\nrestores restoreprogress\n--ttl\n");
    assert_run(0, "completion", "zsh");
    assert_true(g_str_has_prefix(world->out, "#compdef leasehold\n"));
    assert_run(0, "completion", "fish");
    assert_contains(world->out, "__fish_seen_subcommand_from restore' -l ttl\n");
    assert_run(2, "completion", "tcsh");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_diff),
        test_case(test_edit),
        test_case(test_top),
        test_case(test_completion),
    };
    return cmocka_run_group_tests_name("cli/more", tests, NULL, NULL);
}

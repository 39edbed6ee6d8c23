/*
 * The recorder over the fake etcd: everything is there once, in order, between the times that are said of it,
 * whatever happens to connections; and the file holds the same.
 */
/* links: fakes */
#include "base/errors.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"
#include "tests/invariants/recorded_internal.h"
#include "tests/invariants/recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PREFIX "/leasehold/"

typedef struct {
    SimWorld *world;
    FakeEtcd *server;
    LhEnv *server_env, *env;
    LhEtcd *etcd;
    Recorder *recorder;
    char *path;
} Fixture;

static void start(Fixture *f, const FakeEtcdOptions *options)
{
    g_autoptr(GError) error = NULL;
    int fd = g_file_open_tmp("recorder-XXXXXX", &f->path, NULL);
    assert_true(fd >= 0 && close(fd) == 0);
    f->world = sim_world_new(7);
    f->server_env = sim_machine_new(f->world, "etcd");
    f->server = fake_etcd_new(f->server_env, options);
    f->env = sim_machine_new(f->world, "recorder");
    f->etcd = fake_etcd_connect(f->server, f->env, "recorder");
    fake_etcd_put(f->server, "/leasehold/desired/services/first", "1", 0);
    f->recorder = recorder_start(f->env, f->etcd, PREFIX, f->path, &error);
    assert_null(error);
}

static void stop(Fixture *f)
{
    recorder_free(f->recorder);
    lh_etcd_free(f->etcd);
    fake_etcd_free(f->server);
    sim_world_free(f->world);
    remove(f->path);
    g_free(f->path);
}

static void pass(Fixture *f, gint64 ms)
{
    sim_world_run_until(f->world, sim_world_now_ms(f->world) + ms);
}

/* Every commit below the prefix, as the server has it in its own history. */
static void assert_whole(const Fixture *f, const Recorded *recorded)
{
    gsize at = 0;
    for (gsize i = 0; i < fake_etcd_history_len(f->server); i++) {
        const FakeCommit *commit = fake_etcd_history_at(f->server, i);
        gint64 wall = commit->time_ms - sim_machine_mono_offset(f->server_env) + SIM_WALL_START_MS;
        if (!g_str_has_prefix(fake_commit_event(commit, 0)->kv.key, PREFIX))
            continue;
        assert_true(at < recorded->revisions->len);
        const RecordedRevision *revision = g_ptr_array_index(recorded->revisions, at++);
        assert_int_equal(revision->revision, commit->revision);
        assert_int_equal(revision->n, commit->n_events);
        assert_true(revision->since_ms <= wall && wall <= revision->time_ms);
        for (gsize e = 0; e < revision->n; e++) {
            const LhEtcdEvent *is = &revision->events[e], *was = fake_commit_event(commit, e);
            assert_string_equal(is->kv.key, was->kv.key);
            assert_int_equal(is->is_delete, was->is_delete);
            assert_int_equal(is->kv.value_len, was->kv.value_len);
            assert_memory_equal(is->kv.value, was->is_delete ? "" : was->kv.value,
                                was->kv.value_len);
            assert_int_equal(is->kv.create_rev, was->kv.create_rev);
            assert_int_equal(is->kv.version, was->kv.version);
            assert_int_equal(is->kv.lease, was->kv.lease);
        }
    }
    assert_int_equal(at, recorded->revisions->len);
}

static void assert_file(const Fixture *f)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(Recorded) loaded = recorded_load(f->path, &error);
    if (loaded == NULL)
        fail_msg("%s", error->message);
    assert_whole(f, loaded);
    assert_string_equal(recorded_prefix(loaded), PREFIX);
}

static void write_some(Fixture *f, guint n)
{
    static guint number;
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = g_strdup_printf("/leasehold/desired/services/s%u", number++ % 5);
        if (number % 7 == 0)
            fake_etcd_delete(f->server, key, NULL);
        else
            fake_etcd_put(f->server, key, "{\"spec\":{}}\n\"\xc3\xa9", 0);
        if (number % 3 == 0)
            fake_etcd_put(f->server, "/other/key", "x", 0);
        pass(f, 1 + (gint64)sim_world_below(f->world, 300));
    }
}

static gint64 last_of(const Fixture *f)
{
    const LhKv *kv = fake_etcd_get(f->server, "/leasehold/end", 0);
    return kv == NULL ? -1 : kv->mod_rev;
}

/* What is written last is heard of within some time. */
static void hear_all(Fixture *f)
{
    fake_etcd_put(f->server, "/leasehold/end", "", 0);
    for (guint i = 0; i < 600 && recorder_revision(f->recorder) < last_of(f); i++)
        pass(f, 100);
    assert_null(recorder_error(f->recorder));
    assert_int_equal(recorder_revision(f->recorder), last_of(f));
}

static void quiet_times_are_narrow(void **state)
{
    (void)state;
    Fixture f;
    start(&f, NULL);
    pass(&f, 1000);
    write_some(&f, 200);
    hear_all(&f);
    const Recorded *recorded = recorder_history(f.recorder);
    assert_whole(&f, recorded);
    assert_file(&f);
    for (gsize i = 1; i < recorded_len(recorded); i++) { /* the first was there before it */
        const RecordedRevision *revision = g_ptr_array_index(recorded->revisions, i);
        assert_true(revision->time_ms - revision->since_ms < 500);
    }
    stop(&f);
}

static void it_survives_what_happens_to_connections(void **state)
{
    (void)state;
    Fixture f;
    const FakeEtcdOptions options = {.fragment_events = 2, .lag_permille = 100};
    start(&f, &options);
    for (guint round = 0; round < 30; round++) {
        write_some(&f, 10);
        switch (round % 5) {
        case 0:
            fake_etcd_client_reset(f.etcd);
            break;
        case 1:
            fake_etcd_client_close_streams(f.etcd);
            break;
        case 2:
            fake_etcd_client_cut(f.etcd, FAKE_CUT_BOTH);
            write_some(&f, 100);
            fake_etcd_client_cut(f.etcd, FAKE_CUT_NONE);
            break;
        case 3:
            fake_etcd_elect(f.server, 6000);
            break;
        default:
            fake_etcd_client_slow(f.etcd, 300, 8000);
        }
    }
    fake_etcd_client_slow(f.etcd, 0, 0);
    hear_all(&f);
    assert_whole(&f, recorder_history(f.recorder));
    assert_file(&f);
    stop(&f);
}

static void compaction_of_what_was_heard_does_no_harm(void **state)
{
    (void)state;
    Fixture f;
    start(&f, NULL);
    write_some(&f, 30);
    hear_all(&f);
    assert_true(fake_etcd_compact(f.server, fake_etcd_revision(f.server)));
    fake_etcd_client_reset(f.etcd);
    write_some(&f, 30);
    hear_all(&f);
    assert_whole(&f, recorder_history(f.recorder));
    stop(&f);
}

static void compaction_of_what_was_not_heard_is_said(void **state)
{
    (void)state;
    Fixture f;
    start(&f, NULL);
    write_some(&f, 10);
    hear_all(&f);
    fake_etcd_client_cut(f.etcd, FAKE_CUT_BOTH);
    write_some(&f, 200);
    assert_true(fake_etcd_compact(f.server, fake_etcd_revision(f.server)));
    fake_etcd_client_cut(f.etcd, FAKE_CUT_NONE);
    for (guint i = 0; i < 600 && recorder_error(f.recorder) == NULL; i++)
        pass(&f, 100);
    assert_non_null(recorder_error(f.recorder));
    assert_non_null(strstr(recorder_error(f.recorder), "etcd was compacted at revision"));
    stop(&f);
}

static void restored_etcd_is_said(void **state)
{
    (void)state;
    Fixture f;
    start(&f, NULL);
    write_some(&f, 10);
    hear_all(&f);
    FakeEtcdBackup *backup = fake_etcd_backup(f.server);
    write_some(&f, 10);
    hear_all(&f);
    fake_etcd_restore(f.server, backup);
    fake_etcd_backup_free(backup);
    for (guint i = 0; i < 600 && recorder_error(f.recorder) == NULL; i++)
        pass(&f, 100);
    assert_non_null(recorder_error(f.recorder));
    assert_non_null(strstr(recorder_error(f.recorder), "etcd went back"));
    stop(&f);
}

static void by_hand_is_in_the_file(void **state)
{
    (void)state;
    Fixture f;
    start(&f, NULL);
    recorder_by_hand(f.recorder, 2); /* before it was heard of */
    write_some(&f, 3);
    hear_all(&f);
    g_autoptr(Recorded) loaded = recorded_load(f.path, NULL);
    gint64 hand = 2, other = 3;
    assert_true(g_hash_table_contains(loaded->by_hand, &hand));
    assert_false(g_hash_table_contains(loaded->by_hand, &other));
    assert_true(g_hash_table_contains(recorder_history(f.recorder)->by_hand, &hand));
    stop(&f);
}

static void file_that_cannot_be_made(void **state)
{
    (void)state;
    Fixture f;
    g_autoptr(GError) error = NULL;
    start(&f, NULL);
    assert_null(recorder_start(f.env, f.etcd, PREFIX, "/nowhere/at/all", &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_non_null(strstr(error->message, "/nowhere/at/all"));
    stop(&f);
}

/* ---- the file ---- */

static void any_bytes_survive(void **state)
{
    (void)state;
    static const char key[] = "/leasehold/\xff\xfe", value[] = "a\0b\xff";
    const LhEtcdEvent events[] = {
        {.kv = {.key = key,
                .key_len = sizeof key - 1,
                .value = value,
                .value_len = sizeof value - 1,
                .create_rev = 5,
                .mod_rev = 5,
                .version = 1,
                .lease = G_MAXINT64 - 1}},
        {.is_delete = TRUE, .kv = {.key = "/leasehold/x\n", .key_len = 13, .mod_rev = 5}},
    };
    g_autoptr(Recorded) recorded = recorded_new(PREFIX);
    g_autofree char *path = NULL;
    int fd = g_file_open_tmp("recorded-XXXXXX", &path, NULL);
    assert_true(fd >= 0 && close(fd) == 0);
    recorded_add(recorded, events, 2, 10, 20);
    recorded_by_hand(recorded, 5);
    assert_true(recorded_save(recorded, path, NULL));
    g_autoptr(Recorded) loaded = recorded_load(path, NULL);
    remove(path);
    assert_non_null(loaded);
    const RecordedRevision *revision = g_ptr_array_index(loaded->revisions, 0);
    assert_int_equal(revision->since_ms, 10);
    assert_int_equal(revision->time_ms, 20);
    assert_int_equal(revision->events[0].kv.lease, G_MAXINT64 - 1);
    assert_int_equal(revision->events[0].kv.key_len, sizeof key - 1);
    assert_memory_equal(revision->events[0].kv.key, key, sizeof key);
    assert_int_equal(revision->events[0].kv.value_len, sizeof value - 1);
    assert_memory_equal(revision->events[0].kv.value, value, sizeof value);
    assert_true(revision->events[1].is_delete);
    assert_string_equal(revision->events[1].kv.key, "/leasehold/x\n");
    assert_int_equal(g_hash_table_size(loaded->by_hand), 1);
}

#define HEAD  "{\"prefix\":\"/leasehold/\"}\n"
#define EVENT "{\"key\":\"/leasehold/x\",\"value\":\"\",\"create\":2,\"mod\":2,\"version\":1}"
#define LINE  "{\"revision\":2,\"since\":1,\"time\":1,\"events\":[" EVENT "]}\n"

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says; /* NULL: it is good */
    } files[] = {
        {"", "line 1: there is none"},
        {"{}\n", "line 1: the first line must have a prefix that ends in /"},
        {LINE, "line 1: the first line must have a prefix"},
        {HEAD LINE, NULL},
        {HEAD LINE "{\"revision\":3,\"since", NULL}, /* cut while it was written */
        {HEAD "{\"revision\"\n", "line 2: "},
        {HEAD LINE LINE, "line 3: revisions must rise"},
        {HEAD "{}\n", "line 2: neither a revision nor a hand"},
        {HEAD "{\"revision\":2,\"since\":1,\"time\":1,\"events\":[]}\n",
         "line 2: a revision without events"},
        {HEAD "{\"revision\":2,\"time\":1,\"events\":[" EVENT "]}\n",
         "line 2: a revision without since"},
        {HEAD "{\"revision\":2,\"since\":2,\"time\":1,\"events\":[" EVENT "]}\n",
         "line 2: a revision without since"},
        {HEAD "{\"revision\":3,\"since\":1,\"time\":1,\"events\":[" EVENT "]}\n",
         "line 2: an event of another revision"},
        {HEAD "{\"revision\":2,\"since\":1,\"time\":1,\"events\":[{\"mod\":2}]}\n",
         "line 2: an event without a key"},
        {HEAD "{\"revision\":2,\"since\":1,\"time\":1,\"events\":[{\"key\":\"x\",\"mod\":2}]}\n",
         "line 2: an event without value, create or version"},
        {HEAD "{\"revision\":2,\"since\":1,\"time\":1,\"events\":[{\"key\":\"x\",\"mod\":2,"
              "\"create\":2,\"version\":1,\"value\":\"\",\"lease\":\"no\"}]}\n",
         "line 2: a lease that is not hexadecimal"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(files); i++) {
        g_autofree char *path = NULL;
        g_autoptr(GError) error = NULL;
        int fd = g_file_open_tmp("recorded-XXXXXX", &path, NULL);
        assert_true(fd >= 0 && close(fd) == 0);
        assert_true(g_file_set_contents(path, files[i].text, -1, NULL));
        g_autoptr(Recorded) recorded = recorded_load(path, &error);
        remove(path);
        assert_true((recorded != NULL) == (files[i].says == NULL));
        if (files[i].says != NULL && strstr(error->message, files[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error->message, files[i].says);
        if (recorded != NULL)
            assert_int_equal(recorded_revision(recorded), 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_times_are_narrow),
        cmocka_unit_test(it_survives_what_happens_to_connections),
        cmocka_unit_test(compaction_of_what_was_heard_does_no_harm),
        cmocka_unit_test(compaction_of_what_was_not_heard_is_said),
        cmocka_unit_test(restored_etcd_is_said),
        cmocka_unit_test(by_hand_is_in_the_file),
        cmocka_unit_test(file_that_cannot_be_made),
        cmocka_unit_test(any_bytes_survive),
        cmocka_unit_test(bad_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

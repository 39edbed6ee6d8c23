/*
 * etcd/contact over a scripted etcd and virtual time, and which versions are at risk of what.
 * test_secure.c has the rest, with a real etcd.
 */
/* links: fakes */
#include "base/log.h"
#include "etcd/contact.h"
#include "tests/fakes/env_sim.h"
#include "tests/unit/etcd/script.h"

typedef struct {
    SimWorld *world;
    LhEnv *env;
    Script *etcd;
    LhContact *contact;
    GString *seen, *log;
    gboolean free_in_callback;
} Fixture;

static void note(Fixture *f, const char *text)
{
    g_string_append_printf(f->seen, "%s\n", text);
    if (f->free_in_callback)
        g_clear_pointer(&f->contact, lh_contact_free);
}

static void on_reached(gpointer data)
{
    note(data, "reached");
}

static void on_refused(const GError *error, gpointer data)
{
    note(data, error->code == LH_ERR_AUTH ? "refused: auth" : "refused: forbidden");
}

static void take_line(const char *line, gpointer data)
{
    g_string_append_printf(((Fixture *)data)->log, "%s\n", line);
}

static int setup(void **state)
{
    static const LhContactFuncs funcs = {.reached = on_reached, .refused = on_refused};
    Fixture *f = g_new0(Fixture, 1);
    const LhEtcdOptions options = {.endpoints = (const char *const[]){"a:1", "b:2", NULL}};
    f->log = g_string_new(NULL);
    f->seen = g_string_new(NULL);
    lh_log_set_sink(take_line, f);
    f->world = sim_world_new(1);
    f->env = sim_machine_new(f->world, "m");
    f->etcd = script_new();
    f->contact = lh_contact_start(f->env, &f->etcd->base, &options, "/p/", &funcs, f);
    assert_int_equal(f->etcd->calls.length, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_contact_free(f->contact);
    script_free(f->etcd);
    assert_int_equal(sim_world_pending(f->world), 0);
    sim_world_free(f->world);
    g_string_free(f->seen, TRUE);
    g_string_free(f->log, TRUE);
    lh_log_set_sink(NULL, NULL);
    g_free(f);
    return 0;
}

static void pass(Fixture *f, gint64 ms)
{
    sim_world_run_until(f->world, sim_world_now_ms(f->world) + ms);
}

static void expect(Fixture *f, const char *text)
{
    assert_string_equal(f->seen->str, text);
    g_string_truncate(f->seen, 0);
}

static guint count(const Fixture *f, const char *text)
{
    guint n = 0;
    for (const char *at = f->log->str; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

static void answer_range(Fixture *f)
{
    script_answer_range(f->etcd, &(LhRangeReply){.header.revision = 5});
}

static void answer_status(Fixture *f, LhStatusReply reply)
{
    if (reply.version[0] == '\0')
        g_strlcpy(reply.version, "3.4.40", sizeof reply.version);
    script_answer_status(f->etcd, &reply);
}

static void reach(Fixture *f)
{
    pass(f, 0);
    answer_range(f);
    answer_status(f, (LhStatusReply){.leader = 1});
    expect(f, "reached\n");
}

static void reads_the_prefix_first(void **state)
{
    Fixture *f = *state;
    pass(f, 0);
    const ScriptCall *call = script_peek(f->etcd, S_RANGE);
    assert_string_equal(call->key, "/p/");
    assert_string_equal(call->range_end, "/p0");
    assert_false(call->serializable);
    assert_int_equal(call->limit, 1);
    assert_null(lh_contact_status(f->contact));
    answer_range(f);
    expect(f, "");
    answer_status(f, (LhStatusReply){.leader = 1, .version = "3.4.23"});
    expect(f, "reached\n");
    assert_string_equal(lh_contact_status(f->contact)->version, "3.4.23");
    assert_null(lh_contact_trouble(f->contact));
    assert_int_equal(count(f, "lease renewal may succeed on a revoked lease"), 1);
    assert_int_equal(count(f, "level=warning"), 1);
    assert_int_equal(count(f, "endpoints=http://a:1,http://b:2"), 1);
}

static void asks_until_it_answers(void **state)
{
    Fixture *f = *state;
    for (guint i = 0; i < 33; i++) {
        pass(f, 5000);
        script_fail(f->etcd, S_RANGE, i % 2 == 0 ? LH_ERR_UNAVAILABLE : LH_ERR_OVERLOADED);
        assert_non_null(lh_contact_trouble(f->contact));
    }
    assert_int_equal(count(f, "etcd not reached yet"), 3); /* the 1st, 17th, 33rd */
    pass(f, 5000);
    answer_range(f);
    script_fail(f->etcd, S_STATUS, LH_ERR_UNAVAILABLE);
    pass(f, 5000);
    answer_range(f);
    answer_status(f, (LhStatusReply){.leader = 0}); /* no leader: not yet */
    expect(f, "");
    pass(f, 5000);
    reach(f);
}

static void refused_twice_is_refused(void **state)
{
    Fixture *f = *state;
    pass(f, 0);
    script_fail(f->etcd, S_RANGE, LH_ERR_FORBIDDEN);
    expect(f, "");
    pass(f, 1000);
    script_fail(f->etcd, S_RANGE, LH_ERR_UNAVAILABLE); /* not in a row */
    pass(f, 1000);
    script_fail(f->etcd, S_RANGE, LH_ERR_AUTH);
    expect(f, "");
    pass(f, 1000);
    script_fail(f->etcd, S_RANGE, LH_ERR_AUTH);
    expect(f, "refused: auth\n");
    pass(f, 60000);
    assert_int_equal(f->etcd->calls.length, 0);
    assert_non_null(lh_contact_trouble(f->contact));
}

static void refused_later_is_a_line(void **state)
{
    Fixture *f = *state;
    reach(f);
    pass(f, 10000);
    for (guint i = 0; i < 5; i++) {
        script_fail(f->etcd, S_STATUS, LH_ERR_AUTH);
        pass(f, 5000);
    }
    expect(f, "");
    assert_int_equal(count(f, "etcd does not answer"), 1);
    assert_non_null(lh_contact_trouble(f->contact));
    assert_non_null(lh_contact_status(f->contact));
    answer_status(f, (LhStatusReply){.leader = 1});
    assert_null(lh_contact_trouble(f->contact));
    assert_int_equal(count(f, "etcd answers again"), 1);
    assert_int_equal(count(f, "etcd reached"), 1);
}

static void status_every_ten_seconds(void **state)
{
    Fixture *f = *state;
    reach(f);
    for (guint i = 0; i < 10; i++) {
        pass(f, 9999);
        assert_int_equal(f->etcd->calls.length, 0);
        pass(f, 1);
        answer_status(f, (LhStatusReply){.leader = 1, .db_size_bytes = i});
        assert_int_equal(lh_contact_status(f->contact)->db_size_bytes, i);
    }
    expect(f, "");
}

static void alarms_come_and_go(void **state)
{
    Fixture *f = *state;
    reach(f);
    const LhStatusReply replies[] = {
        {.leader = 1, .alarm_nospace = TRUE},
        {.leader = 1, .alarm_nospace = TRUE},
        {.leader = 0}, /* not known */
        {.leader = 1, .alarm_nospace = TRUE, .alarm_corrupt = TRUE},
        {.leader = 1, .alarm_corrupt = TRUE},
    };
    for (guint i = 0; i < G_N_ELEMENTS(replies); i++) {
        pass(f, 10000);
        answer_status(f, replies[i]);
    }
    assert_int_equal(count(f, "etcd raises an alarm"), 2);
    assert_int_equal(count(f, "alarm=NOSPACE"), 2);
    assert_int_equal(count(f, "alarm=CORRUPT"), 1);
    assert_int_equal(count(f, "alarm is gone"), 1);
    assert_true(lh_contact_status(f->contact)->alarm_corrupt);
}

static void a_new_version_is_said(void **state)
{
    Fixture *f = *state;
    reach(f);
    pass(f, 10000);
    answer_status(f, (LhStatusReply){.leader = 1, .version = "3.5.30"});
    assert_int_equal(count(f, "version=3.4.40"), 1);
    assert_int_equal(count(f, "version=3.5.30"), 1);
}

static void freed_inside_its_callbacks(void **state)
{
    Fixture *f = *state;
    f->free_in_callback = TRUE;
    reach(f);
    assert_null(f->contact);
}

static void freed_inside_refused(void **state)
{
    Fixture *f = *state;
    f->free_in_callback = TRUE;
    for (guint i = 0; i < 2; i++) {
        pass(f, 1000);
        script_fail(f->etcd, S_RANGE, LH_ERR_FORBIDDEN);
    }
    expect(f, "refused: forbidden\n");
    assert_null(f->contact);
}

static guint n_risks(const char *version)
{
    g_autofree char *text = lh_etcd_version_risks(version);
    guint n = 0;
    for (const char *at = text; at != NULL && (at = strstr(at, "fixed in")) != NULL; at++)
        n++;
    return n;
}

static void risks_by_version(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        guint n;
    } rows[] = {
        {"3.4.23", 5},      {"3.4.24", 5},   {"3.4.25", 4}, {"3.4.31", 3}, {"3.4.36", 2},
        {"3.4.38", 0},      {"3.5.0", 5},    {"3.5.8", 4},  {"3.5.13", 3}, {"3.5.18", 2},
        {"3.5.22", 1},      {"3.5.23", 0},   {"3.6.0", 0},  {"3.3.27", 5}, {"4.0.0", 0},
        {"3.4.38-rc.1", 2}, {"3.5.23+x", 0}, {"", 0},       {"three", 0},  {"3", 0},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        if (n_risks(rows[i].version) != rows[i].n)
            fail_msg("%s: %u risks", rows[i].version, n_risks(rows[i].version));
    }
    g_autofree char *text = lh_etcd_version_risks("3.5.22");
    assert_string_equal(text,
                        "lease renewal may succeed on a revoked lease (fixed in 3.4.38, 3.5.23)");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_the_prefix_first),   TEST(asks_until_it_answers),
        TEST(refused_twice_is_refused), TEST(refused_later_is_a_line),
        TEST(status_every_ten_seconds), TEST(alarms_come_and_go),
        TEST(a_new_version_is_said),    TEST(freed_inside_its_callbacks),
        TEST(freed_inside_refused),     cmocka_unit_test(risks_by_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

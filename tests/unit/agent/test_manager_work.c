/* links: fakes */
/*
 * agent/manager_work: one limiter for a policy's seeds, whatever order they come and go in; what is told when,
 * and what a failed worker held. The programs are the test's own.
 */
#include "agent/manager_work.h"
#include "base/errors.h"
#include "tests/fakes/env_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* What programs do for an item is said by the test. */
typedef struct {
    LhAgentWork base;
    const LhWorkFuncs *funcs;
    gpointer data;
    GString *log;
    gboolean another; /* an update is another thing */
} Programs;

typedef struct {
    SimWorld *world;
    LhEnv *env;
    Programs programs;
    LhHooks hooks;
    GString *hooked; /* inputs */
    LhManagerWork *work;
    LhAgentWork *base;
    GString *log;               /* answers */
    const char *load_in_answer; /* an item that is loaded again inside released */
    const char *load_order;
    guint64 ids[LH_PERMITS_AT_ONCE];
    guint n;
    gint64 retry_ms;
} Fixture;

static void programs_attach(LhAgentWork *base, const LhWorkFuncs *funcs, gpointer data)
{
    ((Programs *)base)->funcs = funcs;
    ((Programs *)base)->data = data;
}

static void programs_load(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    (void)assignment;
    g_string_append_printf(((Programs *)base)->log, "load:%s ", item);
}

static gboolean programs_update(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    (void)item;
    (void)assignment;
    return !((Programs *)base)->another;
}

static void programs_release(LhAgentWork *base, const char *item)
{
    g_string_append_printf(((Programs *)base)->log, "release:%s ", item);
}

static void programs_deadline(LhAgentWork *base, gint64 mono_ms)
{
    (void)base;
    (void)mono_ms;
}

static void programs_drop(LhAgentWork *base)
{
    g_string_append(((Programs *)base)->log, "drop ");
}

static LhHookRun hooks_run(LhHooks *hooks, const LhHookCall *call, LhHookDone done, gpointer data)
{
    Fixture *f = (Fixture *)(gpointer)((char *)hooks - offsetof(Fixture, hooks));
    (void)done;
    (void)data;
    g_string_append_printf(f->hooked, "%s %s\n", call->argv[0], call->input);
    return 1;
}

static void hooks_cancel(LhHooks *hooks, LhHookRun run)
{
    (void)hooks;
    (void)run;
}

static LhAssignment *parse_order(const char *item, const char *value)
{
    g_autofree char *name = g_strconcat("manager/n-00000001/", item, NULL);
    LhObject *object = lh_object_parse(LH_KIND_ASSIGNMENT, name, value, strlen(value), 1, 1, 0);
    if (!lh_object_known(object))
        fail_msg("%s", lh_object_error(object));
    return (LhAssignment *)object;
}

static void load(Fixture *f, const char *item, const char *value)
{
    LhAssignment *order = parse_order(item, value);
    f->base->v->load(f->base, item, order);
    lh_object_unref(&order->o);
}

static gboolean update(Fixture *f, const char *item, const char *value)
{
    LhAssignment *order = parse_order(item, value);
    gboolean same = f->base->v->update(f->base, item, order);
    lh_object_unref(&order->o);
    return same;
}

static void on_progress(const char *item, gint64 bytes, gpointer data)
{
    (void)item;
    (void)bytes;
    (void)data;
}

static void on_ready(const char *item, const char *url, gpointer data)
{
    g_string_append_printf(((Fixture *)data)->log, "ready:%s:%s ", item, url);
}

static void on_finished(const char *item, gpointer data)
{
    g_string_append_printf(((Fixture *)data)->log, "done:%s ", item);
}

static void on_failed(const char *item, const GError *error, gpointer data)
{
    g_string_append_printf(((Fixture *)data)->log, "failed:%s:%s ", item, error->message);
}

static void on_released(const char *item, const GError *error, gpointer data)
{
    Fixture *f = data;
    g_string_append_printf(f->log, "%s:%s ", error != NULL ? "stuck" : "released", item);
    if (error == NULL && g_strcmp0(f->load_in_answer, item) == 0)
        load(f, item, f->load_order);
}

static int setup(void **state)
{
    static const LhAgentWorkVtable programs = {
        .attach = programs_attach,
        .load = programs_load,
        .update = programs_update,
        .release = programs_release,
        .deadline = programs_deadline,
        .drop = programs_drop,
    };
    static const LhWorkFuncs funcs = {.progress = on_progress,
                                      .ready = on_ready,
                                      .finished = on_finished,
                                      .failed = on_failed,
                                      .released = on_released};
    static const LhHooksVtable hooks = {.run = hooks_run, .cancel = hooks_cancel};
    static const char *const hook[] = {"give-back", NULL};
    Fixture *f = g_new0(Fixture, 1);
    f->world = sim_world_new(1);
    f->env = sim_machine_new(f->world, "node");
    f->programs.base.v = &programs;
    f->programs.log = g_string_new(NULL);
    f->hooks.v = &hooks;
    f->hooked = g_string_new(NULL);
    f->log = g_string_new(NULL);
    const LhManagerWorkOptions options = {.permits_url = "http://h/v1/permits/",
                                          .hooks = &f->hooks,
                                          .on_worker_failed = hook,
                                          .hook_timeout_ms = 1000};
    f->work = lh_manager_work_new(f->env, &f->programs.base, &options);
    f->base = lh_manager_work_base(f->work);
    f->base->v->attach(f->base, &funcs, f);
    f->base->v->deadline(f->base, lh_mono_ms(f->env) + 1000000);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_manager_work_free(f->work);
    sim_world_free(f->world);
    g_string_free(f->programs.log, TRUE);
    g_string_free(f->hooked, TRUE);
    g_string_free(f->log, TRUE);
    g_free(f);
    return 0;
}

static void pass(Fixture *f, gint64 ms)
{
    sim_world_run_until(f->world, sim_world_now_ms(f->world) + ms);
}

static void expect(Fixture *f, const char *log)
{
    pass(f, 1);
    assert_string_equal(f->log->str, log);
    g_string_truncate(f->log, 0);
}

static void ready(Fixture *f, const char *item)
{
    f->programs.funcs->ready(item, NULL, f->programs.data);
    g_string_truncate(f->log, 0);
}

static void released(Fixture *f, const char *item)
{
    f->programs.funcs->released(item, NULL, f->programs.data);
}

/* An order to let it go is heard, and after a while it is released. */
static void let_go(Fixture *f, const char *item)
{
    f->base->v->ordered(f->base, item, FALSE);
    f->base->v->release(f->base, item);
}

static void told(Fixture *f, const char *item)
{
    f->base->v->told(f->base, item);
}

static LhPermitsAnswer ask(Fixture *f, const char *item, guint n)
{
    f->n = n;
    return lh_manager_work_take(f->work, item, NULL, &f->n, f->ids, &f->retry_ms);
}

static guint take(Fixture *f, const char *item, guint n)
{
    assert_int_equal(ask(f, item, n), LH_PERMITS_ANSWERED);
    return f->n;
}

/* How many granted permits the item's window tells of; -1: it has none. */
static gint64 tells(Fixture *f, const char *item)
{
    g_autofree char *text = f->base->v->window(f->base, item);
    LhWindow window;
    gint64 n = 0;
    if (text == NULL)
        return -1;
    assert_true(lh_window_parse(text, &window, NULL));
    for (guint i = 0; i < window.n_granted; i++)
        n += window.granted[i].n;
    return n;
}

#define ORDER(policy, requests, window)                                                   \
    "{\"action\":\"load\",\"seed\":{\"url\":\"u\",\"throttle\":{\"name\":\"" policy "\"," \
    "\"requests\":" requests ",\"period\":\"1h\"}}" window "}"
#define KNOWN(requests)   ORDER("p", requests, ",\"window\":{}")
#define UNKNOWN(requests) ORDER("p", requests, "")
#define SPENT(requests)   ORDER("p", requests, ",\"window\":{\"granted\":[[5,3]]}")

static void test_live_when_it_is_ready(void **state)
{
    Fixture *f = *state;
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_UNKNOWN);
    load(f, "a", KNOWN("10"));
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_NOT_LIVE);
    f->programs.funcs->ready("a", NULL, f->programs.data);
    expect(f, "ready:a:http://h/v1/permits/a ");
    assert_int_equal(take(f, "a", 4), 4);
    f->base->v->ordered(f->base, "a", FALSE); /* from here on, before anything is released */
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_NOT_LIVE);
    f->base->v->ordered(f->base, "a", TRUE);
    assert_int_equal(take(f, "a", 1), 1);
    let_go(f, "a");
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_NOT_LIVE);
    expect(f, "");
    released(f, "a");
    expect(f, "released:a ");
    assert_int_equal(tells(f, "a"), 5);
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_UNKNOWN);
    told(f, "a");
    assert_int_equal(tells(f, "a"), 5);
    f->base->v->forget(f->base, "a");
    assert_int_equal(tells(f, "a"), -1);
}

static void test_one_limiter_for_a_policy(void **state)
{
    Fixture *f = *state;
    load(f, "a", SPENT("10"));
    load(f, "b", UNKNOWN("10"));
    load(f, "other", ORDER("q", "2", ",\"window\":{}"));
    load(f, "free", "{\"action\":\"load\",\"seed\":{\"url\":\"u\"}}");
    ready(f, "a");
    ready(f, "b");
    ready(f, "other");
    ready(f, "free");
    assert_int_equal(take(f, "a", 4), 4);
    assert_int_equal(take(f, "b", 4), 3);
    assert_int_equal(take(f, "other", 4), 2);
    assert_int_equal(take(f, "free", 100), 100);
    assert_int_equal(tells(f, "free"), -1);
    assert_true(update(f, "b", UNKNOWN("12")));
    assert_int_equal(take(f, "a", 9), 2);
    assert_true(update(f, "a", UNKNOWN("4")));
    assert_int_equal(take(f, "a", 9), 0);
}

static void test_unknown_is_quiet(void **state)
{
    Fixture *f = *state;
    load(f, "a", UNKNOWN("10"));
    load(f, "b", ORDER("q", "10", ",\"window\":{\"given\":[]}"));
    ready(f, "a");
    ready(f, "b");
    assert_int_equal(take(f, "a", 1), 0);
    assert_in_range(f->retry_ms, 3599000, 3600001);
    assert_int_equal(take(f, "b", 1), 0);
}

/* What was written first may be committed last: then it must not be what is believed. */
static void test_the_last_one_told_tells_all(void **state)
{
    Fixture *f = *state;
    load(f, "a", KNOWN("10"));
    load(f, "b", UNKNOWN("10"));
    load(f, "c", UNKNOWN("10"));
    ready(f, "a");
    ready(f, "b");
    ready(f, "c");
    assert_int_equal(take(f, "a", 1), 1);
    let_go(f, "a");
    released(f, "a");
    expect(f, "released:a "); /* while b and c go on */
    assert_int_equal(take(f, "b", 2), 2);
    let_go(f, "b");
    let_go(f, "c");
    released(f, "c");
    released(f, "b");
    expect(f, ""); /* what a tells is on its way */
    told(f, "a");
    pass(f, 1);
    assert_non_null(strstr(f->log->str, "released:b "));
    assert_non_null(strstr(f->log->str, "released:c "));
    g_string_truncate(f->log, 0);
    assert_int_equal(tells(f, "b"), 3);
    assert_int_equal(tells(f, "c"), 3);
    told(f, "c");
    told(f, "b");
    expect(f, "");
}

static void test_an_early_one_that_comes_back(void **state)
{
    Fixture *f = *state;
    load(f, "a", KNOWN("10"));
    load(f, "b", UNKNOWN("10"));
    ready(f, "a");
    ready(f, "b");
    let_go(f, "a");
    released(f, "a");
    expect(f, "released:a ");
    load(f, "a", KNOWN("10")); /* before it was told: nobody waits for that any more */
    ready(f, "a");
    let_go(f, "a");
    let_go(f, "b");
    released(f, "b");
    expect(f, "released:b ");
    f->programs.funcs->failed("a", &(GError){LH_ERROR, 0, (char *)"x"}, f->programs.data);
    expect(f, "failed:a:x ");
    f->base->v->release(f->base, "a"); /* it was on its way out, and is asked to go all the same */
    expect(f, "released:a ");
}

static void test_told_and_back_begins_with_the_order(void **state)
{
    Fixture *f = *state;
    load(f, "a", KNOWN("10"));
    ready(f, "a");
    assert_int_equal(take(f, "a", 4), 4);
    let_go(f, "a");
    released(f, "a");
    expect(f, "released:a ");
    told(f, "a");
    load(f, "a", SPENT("10")); /* 3, of somebody who knew the 4 or better */
    ready(f, "a");
    assert_int_equal(take(f, "a", 99), 7);
}

static void test_untold_and_back_counts_both(void **state)
{
    Fixture *f = *state;
    load(f, "a", KNOWN("10"));
    ready(f, "a");
    assert_int_equal(take(f, "a", 4), 4);
    let_go(f, "a");
    released(f, "a");
    expect(f, "released:a ");
    load(f, "a", SPENT("10")); /* it may be committed, or not */
    ready(f, "a");
    assert_int_equal(take(f, "a", 99), 3);
}

static void test_another_thing_keeps_the_limiter(void **state)
{
    Fixture *f = *state;
    load(f, "a", KNOWN("10"));
    ready(f, "a");
    assert_int_equal(take(f, "a", 4), 4);
    f->programs.another = TRUE;
    assert_false(update(f, "a", KNOWN("12")));
    let_go(f, "a");
    f->load_in_answer = "a";
    f->load_order = KNOWN("12");
    released(f, "a");
    expect(f, "released:a ");
    assert_string_equal(f->programs.log->str, "load:a release:a load:a ");
    ready(f, "a");
    assert_int_equal(take(f, "a", 99), 8);
    /* another policy: what is in the order is of the one before */
    let_go(f, "a");
    f->load_order = ORDER("q", "50", ",\"window\":{}");
    released(f, "a");
    expect(f, "released:a ");
    ready(f, "a");
    assert_int_equal(take(f, "a", 99), 0);
}

static void test_another_policy_in_place(void **state)
{
    Fixture *f = *state;
    load(f, "a", KNOWN("10"));
    load(f, "b", ORDER("q", "5", ",\"window\":{}"));
    ready(f, "a");
    ready(f, "b");
    assert_true(update(f, "a", ORDER("q", "5", ",\"window\":{}")));
    assert_int_equal(take(f, "a", 9), 5); /* that of b */
    assert_int_equal(take(f, "b", 9), 0);
    assert_true(update(f, "a", ORDER("r", "5", ",\"window\":{}")));
    assert_int_equal(take(f, "a", 9), 0); /* nobody knows */
    assert_true(update(f, "a", "{\"action\":\"load\",\"seed\":{\"url\":\"u\"}}"));
    assert_int_equal(take(f, "a", 9), 9);
    assert_true(
        update(f, "a", "{\"action\":\"load\",\"seed\":{\"url\":\"u\",\"state\":\"paused\"}}"));
    assert_int_equal(ask(f, "a", 9), LH_PERMITS_PAUSED);
}

static void test_not_past_the_deadline(void **state)
{
    Fixture *f = *state;
    load(f, "a", KNOWN("10"));
    ready(f, "a");
    f->base->v->deadline(f->base, lh_mono_ms(f->env) + 100);
    pass(f, 99);
    assert_int_equal(take(f, "a", 1), 1);
    pass(f, 1);
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_IN_DOUBT);
    f->base->v->deadline(f->base, lh_mono_ms(f->env) + 100);
    assert_int_equal(take(f, "a", 1), 1);
    f->base->v->drop(f->base);
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_IN_DOUBT);
    f->base->v->deadline(f->base, lh_mono_ms(f->env) + 100); /* as another node */
    assert_int_equal(ask(f, "a", 1), LH_PERMITS_UNKNOWN);
}

static void test_an_order_that_is_not_understood(void **state)
{
    Fixture *f = *state;
    load(f, "a", "{\"action\":\"load\",\"seed\":{\"throttle\":\"p\"}}");
    load(f, "b", "{\"action\":\"load\"}");
    pass(f, 1);
    assert_non_null(strstr(f->log->str, "failed:a:seed.throttle: must be an object"));
    assert_non_null(strstr(f->log->str, "failed:b:seed: is required"));
    assert_int_equal(tells(f, "a"), -1);
    assert_string_equal(f->programs.log->str, "");
}

static void test_a_worker_fails_once(void **state)
{
    Fixture *f = *state;
    guint64 ids[2];
    guint n = 2;
    gint64 retry_ms;
    load(f, "a", KNOWN("10"));
    ready(f, "a");
    assert_int_equal(lh_manager_work_take(f->work, "a", "w-1", &n, ids, &retry_ms),
                     LH_PERMITS_ANSWERED);
    assert_int_equal(n, 2);
    assert_int_equal(lh_manager_work_return(f->work, "a", ids[0]), LH_PERMITS_ANSWERED);
    lh_manager_work_worker_failed(f->work, "w-2"); /* it held nothing */
    assert_string_equal(f->hooked->str, "");
    lh_manager_work_worker_failed(f->work, "w-1");
    lh_manager_work_worker_failed(f->work, "w-1");
    g_autofree char *want = g_strdup_printf(
        "give-back {\"worker\":\"w-1\",\"seeds\":[{\"seed\":\"a\",\"permits\":[\"%016" G_GINT64_MODIFIER
        "x\"]}]}\n",
        ids[1]);
    assert_string_equal(f->hooked->str, want);
    assert_int_equal(lh_manager_work_return(f->work, "a", ids[1]), LH_PERMITS_UNKNOWN);
    n = 1;
    assert_int_equal(lh_manager_work_take(f->work, "a", "w-1", &n, ids, &retry_ms),
                     LH_PERMITS_WORKER_FAILED);
    lh_manager_work_worker_forgotten(f->work, "w-1");
    assert_int_equal(lh_manager_work_take(f->work, "a", "w-1", &n, ids, &retry_ms),
                     LH_PERMITS_ANSWERED);
    assert_int_equal(lh_manager_work_take(f->work, "a", "w-2", &n, ids, &retry_ms),
                     LH_PERMITS_WORKER_FAILED);
    lh_manager_work_worker_forgotten(f->work, NULL);
    assert_int_equal(lh_manager_work_take(f->work, "a", "w-2", &n, ids, &retry_ms),
                     LH_PERMITS_ANSWERED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_live_when_it_is_ready),
        TEST(test_one_limiter_for_a_policy),
        TEST(test_unknown_is_quiet),
        TEST(test_the_last_one_told_tells_all),
        TEST(test_an_early_one_that_comes_back),
        TEST(test_told_and_back_begins_with_the_order),
        TEST(test_untold_and_back_counts_both),
        TEST(test_another_thing_keeps_the_limiter),
        TEST(test_another_policy_in_place),
        TEST(test_not_past_the_deadline),
        TEST(test_an_order_that_is_not_understood),
        TEST(test_a_worker_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

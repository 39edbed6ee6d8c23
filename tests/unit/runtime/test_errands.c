/* links: fakes */
/*
 * runtime/errands and the mirror's observations: what a controller wants done outside etcd is asked for
 * while it leads and may act, cancelled when it may not, and what was seen is told like any change, leaves
 * with leadership, and makes the same plan again when it is replayed.
 */
#include "lab.h"
#include "runtime/record.h"

/* ---- the outside ---- */

typedef struct {
    LhMirror *mirror;
    guint sets;
    GString *wanted; /* "probe:7/1 " of the last list */
    gint64 until_ms; /* as it was said last */
} Outside;

static Outside outsides[MAX_LAB];

static void on_set(const char *controller_name, const LhErrand *errands, guint n, gpointer data)
{
    Outside *outside = data;

    assert_string_equal(controller_name, NAME);
    outside->sets++;
    g_string_truncate(outside->wanted, 0);
    for (guint i = 0; i < n; i++)
        g_string_append_printf(outside->wanted, "%s:%" G_GINT64_FORMAT "/%" G_GINT64_FORMAT " ",
                               errands[i].id, errands[i].token, errands[i].attempt);
}

static void on_until(gint64 mono_ms, gpointer data)
{
    ((Outside *)data)->until_ms = mono_ms;
}

static const LhOutside funcs = {.set = on_set, .until = on_until};

/* ---- a controller that wants a probe until it has been answered well ---- */

static const LhObservation *seen(const Index *index)
{
    return (const LhObservation *)find(index, LH_KIND_OBSERVATION, NAME "/probe");
}

static void want(gconstpointer index, const LhPlanContext *context, LhErrands *errands)
{
    const LhObservation *last = seen(index);

    if (last == NULL)
        lh_errands_add(errands,
                       (LhErrand){.id = "probe", .what = "probe", .token = 7, .attempt = 1});
    else if (last->error != NULL && context->now_ms >= last->at + 1000)
        lh_errands_add(
            errands,
            (LhErrand){.id = "probe", .what = "probe", .token = 7, .attempt = last->attempt + 1});
    else if (last->error != NULL)
        lh_errands_wake(errands, last->at + 1000);
}

static void plan_from_seen(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    const LhObservation *last = seen(index);

    (void)context;
    lh_plan_note(plan, LH_KIND_SERVICE, "s", "seen", "%s %" G_GINT64_FORMAT,
                 last == NULL          ? "nothing"
                 : last->error != NULL ? last->error
                                       : "well",
                 last == NULL ? 0 : last->attempt);
}

static LhController with_errands;
static const LhController *const table[] = {&with_errands, NULL};

static Manager *outside_manager(Lab *lab, const char *name)
{
    LhRuntimeOptions options = lab_options(name);
    Outside *outside = &outsides[lab->n];
    Manager *manager;

    with_errands = controller;
    with_errands.errands = want;
    with_errands.kinds |= LH_KIND_BIT(LH_KIND_OBSERVATION);
    script.plan = plan_from_seen;
    manager = lab_manager_with(lab, table, &options);
    *outside = (Outside){.mirror = manager->mirror, .wanted = g_string_new(NULL)};
    lh_runtime_set_outside(manager->runtime, &funcs, outside);
    return manager;
}

static void outside_end(Lab *lab)
{
    for (guint i = 0; i < MAX_LAB; i++)
        if (outsides[i].wanted != NULL)
            g_string_free(outsides[i].wanted, TRUE);
    memset(outsides, 0, sizeof outsides);
    lab_free(lab);
}

static void answer(const Manager *manager, gint64 attempt, const char *error)
{
    LhObservation what = {.at = lh_wall_ms(manager->env),
                          .token = 7,
                          .attempt = attempt,
                          .error = error,
                          .clock = -1};

    lh_mirror_observe(manager->mirror, NAME "/probe", &what);
}

/* ---- tests ---- */

static guint64 digest_of_seen(gconstpointer index)
{
    const LhObservation *last = seen(index);

    return last == NULL ? 1 : 2 + (guint64)last->attempt;
}

/* Plans come and go; the outside hears what is new, at the time that was named too, and after a pause all. */
static void what_has_not_changed_is_not_told_again(void **state)
{
    Lab *lab = lab_new(1);
    Manager *manager = outside_manager(lab, "m0");

    with_errands.errands_digest = digest_of_seen;
    wait_for(lab, one_leads, 10000);
    pass(lab, 500);
    guint sets = outsides[0].sets;
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 ");
    for (guint i = 0; i < 5; i++) {
        guint plans = script.plans;
        publish(lab, i, 1);
        pass(lab, 1000);
        assert_true(script.plans > plans);
    }
    assert_int_equal(outsides[0].sets, sets);
    answer(manager, 1, "refused");
    pass(lab, 500);
    assert_int_equal(outsides[0].sets, sets + 1);
    publish(lab, 6, 1);
    pass(lab, 700);
    assert_int_equal(outsides[0].sets, sets + 2); /* its time had come */
    assert_string_equal(outsides[0].wanted->str, "probe:7/2 ");
    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":true}}");
    pass(lab, 1000);
    assert_string_equal(outsides[0].wanted->str, "");
    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":false}}");
    pass(lab, 1000);
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 "); /* what was seen is forgotten */
    outside_end(lab);
}

static void an_errand_is_asked_for_until_it_is_answered(void **state)
{
    Lab *lab = lab_new(1);
    Manager *manager = outside_manager(lab, "m0");

    wait_for(lab, one_leads, 10000);
    pass(lab, 500);
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 ");
    gint64 revision = lh_mirror_revision(manager->mirror);
    answer(manager, 1, "refused");
    assert_int_equal(lh_mirror_revision(manager->mirror), revision);
    assert_int_equal(lh_mirror_count(manager->mirror, LH_KIND_OBSERVATION), 1);
    pass(lab, 500);
    assert_string_equal(outsides[0].wanted->str, "");
    pass(lab, 700); /* woken by the errands' own time */
    assert_string_equal(outsides[0].wanted->str, "probe:7/2 ");
    answer(manager, 2, NULL);
    pass(lab, 5000);
    assert_string_equal(outsides[0].wanted->str, "");
    outside_end(lab);
}

static void nothing_is_wanted_without_leadership(void **state)
{
    Lab *lab = lab_new(2);
    Manager *first = outside_manager(lab, "m0");

    wait_for(lab, one_leads, 10000);
    Manager *second = outside_manager(lab, "m1");
    pass(lab, 1000);
    assert_int_equal(outsides[1].sets, 0); /* it does not lead */
    answer(first, 1, "refused");
    pass(lab, 3000);
    assert_string_equal(outsides[0].wanted->str, "probe:7/2 ");
    g_autofree char *key = leader_key(first);
    fake_etcd_delete(lab->server, key, NULL);
    pass(lab, 1000);
    assert_false(leads(first));
    assert_true(leads(second));
    assert_string_equal(outsides[0].wanted->str, "");
    assert_int_equal(lh_mirror_count(first->mirror, LH_KIND_OBSERVATION), 0);
    assert_string_equal(outsides[1].wanted->str, "probe:7/1 "); /* a new leader observes anew */
    outside_end(lab);
}

/* Cut off from etcd: cancelled at the local deadline, before anybody else can lead. */
static void errands_end_at_the_deadline(void **state)
{
    Lab *lab = lab_new(3);
    Manager *manager = outside_manager(lab, "m0");

    wait_for(lab, one_leads, 10000);
    pass(lab, 1000);
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 ");
    assert_true(outsides[0].until_ms > lh_mono_ms(manager->env));
    fake_etcd_client_cut(manager->tap->inner, FAKE_CUT_BOTH);
    gint64 start = sim_world_now_ms(lab->world), until_ms = outsides[0].until_ms;
    while (outsides[0].wanted->len != 0 && sim_world_now_ms(lab->world) < start + 20000)
        sim_world_step(lab->world);
    assert_int_equal(outsides[0].wanted->len, 0);
    assert_true(sim_world_now_ms(lab->world) <= start + TTL_S * 1000);
    /* What asks nobody but its own clock ends then too. */
    assert_int_equal(outsides[0].until_ms, until_ms);
    assert_true(lh_mono_ms(manager->env) >= until_ms);
    outside_end(lab);
}

static void a_paused_or_stopping_controller_wants_nothing(void **state)
{
    Lab *lab = lab_new(4);
    Manager *manager = outside_manager(lab, "m0");

    wait_for(lab, one_leads, 10000);
    pass(lab, 1000);
    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":true}}");
    pass(lab, 500);
    assert_string_equal(outsides[0].wanted->str, "");
    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":false}}");
    pass(lab, 500);
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 ");
    lh_runtime_stop(manager->runtime, on_stopped, manager);
    assert_string_equal(outsides[0].wanted->str, "");
    pass(lab, 10000);
    assert_int_equal(manager->stopped, 1);
    outside_end(lab);
}

/* An answer proves that etcd was restored, and the watch does not know yet. */
static void errands_end_when_the_mirror_is_in_doubt(void **state)
{
    Lab *lab = lab_new(6);
    Manager *manager = outside_manager(lab, "m0");

    wait_for(lab, one_leads, 10000);
    pass(lab, 1000);
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 ");
    lh_mirror_doubt(manager->mirror);
    assert_string_equal(outsides[0].wanted->str, "");
    pass(lab, 20000);
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 "); /* it leads anew, and looks anew */
    outside_end(lab);
}

static void plan_a_write(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    (void)index;
    (void)context;
    lh_plan_begin(plan);
    lh_plan_delete(plan, LH_KIND_REPLICA, "x.default.0", 1, "any", "any");
    lh_plan_end(plan);
}

/* Plans fail, and wait ever longer; what is not wanted any more ends all the same. */
static void errands_do_not_wait_for_a_plan(void **state)
{
    Lab *lab = lab_new(7);
    Manager *manager = outside_manager(lab, "m0");

    wait_for(lab, one_leads, 10000);
    script.plan = plan_a_write;
    fake_etcd_set_nospace(lab->server, TRUE, 0);
    lab->may_repeat = TRUE;
    publish(lab, 0, 1);
    pass(lab, 60000);
    guint plans = script.plans;
    while (script.plans == plans)
        sim_world_step(lab->world);
    pass(lab, 100);
    plans = script.plans;
    assert_string_equal(outsides[0].wanted->str, "probe:7/1 ");
    pass(lab, 300);
    answer(manager, 1, NULL);
    pass(lab, 100);
    assert_int_equal(script.plans, plans);
    assert_string_equal(outsides[0].wanted->str, "");
    outside_end(lab);
}

/* A list brings what etcd has; what etcd never had stays. A key of that name is of no kind. */
static void a_relist_leaves_observations_alone(void **state)
{
    Lab *lab = lab_new(5);
    Manager *manager = outside_manager(lab, "m0");

    wait_for(lab, one_leads, 10000);
    answer(manager, 1, "refused");
    put(lab, "observed/" NAME "/probe", "{\"at\":1}");
    pass(lab, 100);
    assert_int_equal(lh_mirror_invalid(manager->mirror, LH_N_KINDS), 1);
    fake_etcd_client_close_streams(manager->tap->inner);
    publish(lab, 0, 3);
    fake_etcd_compact(lab->server, fake_etcd_revision(lab->server));
    pass(lab, 3000);
    assert_int_equal(lh_mirror_count(manager->mirror, LH_KIND_SNAPSHOT), 3);
    const LhObservation *kept = (const LhObservation *)lh_mirror_get(
        manager->mirror, LH_KIND_OBSERVATION, NAME "/probe");
    assert_non_null(kept);
    assert_string_equal(kept->error, "refused");
    assert_int_equal(lh_mirror_invalid(manager->mirror, LH_N_KINDS), 1);
    outside_end(lab);
}

static void a_replayed_observation_gives_the_same_plan(void **state)
{
    Lab *lab = lab_new(6);
    Manager *manager = outside_manager(lab, "m0");
    g_autoptr(GString) replayed = g_string_new(NULL), live = g_string_new(NULL);
    g_autoptr(GError) error = NULL;
    gsize len = 0;

    wait_for(lab, one_leads, 10000);
    answer(manager, 3, "a \"bad\" answer\n");
    pass(lab, 100);
    g_autoptr(LhPlan) plan = lh_runtime_plan(manager->runtime, &with_errands, TRUE);
    lh_plan_append_json(live, &with_errands, plan, FALSE, FALSE, NULL);
    g_autofree char *text = lh_record_dump(manager->mirror, lh_wall_ms(manager->env), &len);
    assert_true(lh_record_plan(text, len, table, NULL, replayed, &error));
    assert_non_null(strstr(live->str, "bad"));
    assert_non_null(strstr(replayed->str, live->str));
    outside_end(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_errand_is_asked_for_until_it_is_answered),
        cmocka_unit_test(what_has_not_changed_is_not_told_again),
        cmocka_unit_test(nothing_is_wanted_without_leadership),
        cmocka_unit_test(errands_end_at_the_deadline),
        cmocka_unit_test(errands_end_when_the_mirror_is_in_doubt),
        cmocka_unit_test(errands_do_not_wait_for_a_plan),
        cmocka_unit_test(a_paused_or_stopping_controller_wants_nothing),
        cmocka_unit_test(a_relist_leaves_observations_alone),
        cmocka_unit_test(a_replayed_observation_gives_the_same_plan),
    };

    return cmocka_run_group_tests_name("errands", tests, NULL, NULL);
}

/*
 * runtime/plan: groups and their ranges, keys, wakes and notes, statuses that are written only when they
 * say something else, and the hash of a plan.
 */
#include "runtime/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void put_retry(LhPlan *plan, const char *name, gint64 attempt, gint64 expect_rev,
                      const char *rule)
{
    LhRetry retry = {.attempt = attempt, .not_before = -1};

    lh_plan_put(plan, LH_KIND_RETRY, name, &retry, expect_rev, rule, "attempt %d", (int)attempt);
}

static void groups_are_ranges(void **state)
{
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    (void)state;
    lh_plan_begin(plan);
    put_retry(plan, "cache/a", 1, 0, "one");
    lh_plan_rely(plan, LH_KIND_SNAPSHOT, "a", 7);
    lh_plan_end(plan);
    lh_plan_begin(plan);
    lh_plan_delete(plan, LH_KIND_RETRY, "cache/b", 9, "two", "because %s", "of it");
    put_retry(plan, "cache/c", 2, 3, "three");
    lh_plan_rely_none(plan, LH_KIND_REPLICA, "snap.");
    lh_plan_rely(plan, LH_KIND_NODE, "cache/n", 0);
    lh_plan_event(plan, LH_EVENT_WARNING, "Odd", LH_KIND_REPLICA, "r", "it is %d", 3);
    lh_plan_end(plan);

    assert_int_equal(lh_plan_groups(plan), 2);
    const LhGroup *first = lh_plan_group(plan, 0), *second = lh_plan_group(plan, 1);
    assert_int_equal(first->n_ops, 1);
    assert_int_equal(first->n_reliances, 1);
    assert_int_equal(first->n_events, 0);
    assert_null(first->throttle);
    assert_int_equal(second->n_ops, 2);
    assert_int_equal(second->n_reliances, 2);
    assert_int_equal(second->n_events, 1);
    const LhOp *op = lh_plan_op(plan, first, 0);
    assert_int_equal(op->type, LH_OP_PUT);
    assert_string_equal(op->key, "decided/retries/cache/a");
    assert_string_equal(op->name, "cache/a");
    assert_string_equal(op->rule, "one");
    assert_string_equal(op->reason, "attempt 1");
    assert_non_null(strstr(op->value, "\"attempt\":1"));
    assert_int_equal(op->expect_rev, 0);
    op = lh_plan_op(plan, second, 0);
    assert_int_equal(op->type, LH_OP_DELETE);
    assert_null(op->value);
    assert_int_equal(op->expect_rev, 9);
    assert_string_equal(op->reason, "because of it");
    assert_string_equal(lh_plan_op(plan, second, 1)->key, "decided/retries/cache/c");
    const LhReliance *r = &g_array_index(plan->reliances, LhReliance, second->first_reliance);
    assert_string_equal(r->key, "decided/replicas/snap.");
    assert_true(r->none_below);
    assert_false(r[1].none_below);
    assert_int_equal(r[1].mod_rev, 0);
    const LhPlanEvent *event = &g_array_index(plan->events, LhPlanEvent, second->first_event);
    assert_string_equal(event->object, "replicas/r");
    assert_string_equal(event->message, "it is 3");
}

static void an_empty_group_leaves_no_trace(void **state)
{
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    (void)state;
    lh_plan_begin(plan);
    put_retry(plan, "cache/a", 1, 0, "one");
    lh_plan_end(plan);
    lh_plan_begin(plan);
    lh_plan_rely(plan, LH_KIND_SNAPSHOT, "a", 7);
    lh_plan_event(plan, LH_EVENT_NORMAL, "Never", LH_KIND_REPLICA, "r", "said");
    lh_plan_end(plan);
    assert_int_equal(lh_plan_groups(plan), 1);
    assert_int_equal(plan->reliances->len, 0);
    assert_int_equal(plan->events->len, 0);
    /* An event after the end belongs to the group that was ended last. */
    lh_plan_event(plan, LH_EVENT_NORMAL, "Said", LH_KIND_REPLICA, "r", "it");
    assert_int_equal(lh_plan_group(plan, 0)->n_events, 1);
}

static void the_earliest_wake_counts(void **state)
{
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    (void)state;
    assert_int_equal(plan->wake_ms, 0);
    lh_plan_wake(plan, 50);
    lh_plan_wake(plan, 20);
    lh_plan_wake(plan, 30);
    assert_int_equal(plan->wake_ms, 20);
}

static void notes_only_when_it_explains(void **state)
{
    g_autoptr(LhPlan) silent = lh_plan_new(FALSE), talking = lh_plan_new(TRUE);

    (void)state;
    lh_plan_note(silent, LH_KIND_REPLICA, "r", "rule", "why %d", 1);
    lh_plan_note(talking, LH_KIND_REPLICA, "r", "rule", "why %d", 1);
    assert_int_equal(silent->notes->len, 0);
    assert_int_equal(talking->notes->len, 1);
    const LhPlanNote *note = &g_array_index(talking->notes, LhPlanNote, 0);
    assert_string_equal(note->object, "replicas/r");
    assert_string_equal(note->reason, "why 1");
}

/* ---- statuses ---- */

#define STATUS "services/x/admission"

static LhCondition condition_of(const char *type, LhConditionStatus status, const char *message)
{
    return (LhCondition){.type = type, .status = (int)status, .reason = "Why", .message = message};
}

/* What the plan's only group would leave in etcd. */
static LhObject *committed(const LhPlan *plan, gint64 mod_rev)
{
    const LhOp *op = lh_plan_op(plan, lh_plan_group(plan, 0), 0);
    LhObject *object = lh_object_parse(op->kind, op->name, op->value, strlen(op->value), 1, mod_rev,
                                       0);

    assert_int_equal(lh_plan_groups(plan), 1);
    assert_true(lh_object_known(object));
    return object;
}

static LhObject *first_status(gint64 now_ms)
{
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);
    LhCondition both[] = {condition_of("Valid", LH_CONDITION_TRUE, NULL),
                          condition_of("Braked", LH_CONDITION_FALSE, "no")};

    assert_true(lh_plan_status(plan, NULL, STATUS, 5, both, 2, now_ms));
    assert_string_equal(lh_plan_group(plan, 0)->throttle, "decided/status/" STATUS);
    assert_int_equal(lh_plan_op(plan, lh_plan_group(plan, 0), 0)->expect_rev, 0);
    assert_int_equal(both[0].since, 0); /* the caller's are not touched */
    return committed(plan, 40);
}

static void a_status_is_sorted_and_written_once(void **state)
{
    g_autoptr(LhObject) present = first_status(1000);
    const LhStatus *status = (const LhStatus *)present;
    LhCondition same[] = {condition_of("Braked", LH_CONDITION_FALSE, "no"),
                          condition_of("Valid", LH_CONDITION_TRUE, NULL)};
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    (void)state;
    assert_int_equal(status->observed_revision, 5);
    assert_string_equal(((const LhCondition *)lh_array_at(status->conditions, 0))->type, "Braked");
    assert_int_equal(status->snapshots, -1);
    assert_false(lh_status_differs(present, 5, same, 2));
    assert_false(lh_plan_status(plan, present, STATUS, 5, same, 2, 9999));
    assert_int_equal(lh_plan_groups(plan), 0);
}

static void since_stays_while_the_status_stays(void **state)
{
    g_autoptr(LhObject) present = first_status(1000);
    LhCondition next[] = {condition_of("Valid", LH_CONDITION_TRUE, "another message"),
                          condition_of("Braked", LH_CONDITION_TRUE, "yes")};
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);
    g_autoptr(LhObject) after = NULL;
    const LhArray *conditions;

    (void)state;
    assert_true(lh_plan_status(plan, present, STATUS, 6, next, 2, 2000));
    assert_int_equal(lh_plan_op(plan, lh_plan_group(plan, 0), 0)->expect_rev, 40);
    after = committed(plan, 41);
    conditions = ((const LhStatus *)after)->conditions;
    assert_int_equal(((const LhCondition *)lh_array_at(conditions, 0))->since,
                     2000); /* Braked turned */
    assert_int_equal(((const LhCondition *)lh_array_at(conditions, 1))->since, 1000);
}

static void each_difference_is_seen(void **state)
{
    g_autoptr(LhObject) present = first_status(1000);
    LhCondition c[] = {condition_of("Valid", LH_CONDITION_TRUE, NULL),
                       condition_of("Braked", LH_CONDITION_FALSE, "no")};

    (void)state;
    assert_false(lh_status_differs(present, 5, c, 2));
    assert_true(lh_status_differs(present, 6, c, 2));
    assert_true(lh_status_differs(present, 5, c, 1));
    assert_true(lh_status_differs(present, 5, c, 0));
    c[0].reason = "Other";
    assert_true(lh_status_differs(present, 5, c, 2));
    c[0].reason = "Why";
    c[0].type = "Capacity";
    assert_true(lh_status_differs(present, 5, c, 2));
    c[0].type = "Valid";
    c[1].message = NULL;
    assert_true(lh_status_differs(present, 5, c, 2));
    assert_true(lh_status_differs(NULL, 0, c, 2));
    assert_false(lh_status_differs(NULL, 5, c, 0));
}

static void nothing_left_to_say_deletes_it(void **state)
{
    g_autoptr(LhObject) present = first_status(1000);
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    (void)state;
    assert_true(lh_plan_status(plan, present, STATUS, 0, NULL, 0, 2000));
    assert_int_equal(lh_plan_op(plan, lh_plan_group(plan, 0), 0)->type, LH_OP_DELETE);
    assert_false(lh_plan_status(plan, NULL, STATUS, 0, NULL, 0, 2000));
    assert_int_equal(lh_plan_groups(plan), 1);
}

static void nothing_is_written_over_an_unknown_status(void **state)
{
    g_autoptr(LhObject) unknown = lh_object_parse(LH_KIND_STATUS, STATUS, "?", 1, 1, 2, 0);
    LhCondition c = condition_of("Valid", LH_CONDITION_TRUE, NULL);
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    (void)state;
    assert_false(lh_plan_status(plan, unknown, STATUS, 1, &c, 1, 2000));
    assert_false(lh_plan_status(plan, unknown, STATUS, 1, NULL, 0, 2000));
    assert_int_equal(lh_plan_groups(plan), 0);
}

/* ---- the hash ---- */

static char *hash_of(const char *const *names, gint64 attempt, const char *rule, gboolean deleted)
{
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    for (guint i = 0; names[i] != NULL; i++) {
        lh_plan_begin(plan);
        if (deleted)
            lh_plan_delete(plan, LH_KIND_RETRY, names[i], 1, rule, "x");
        else
            put_retry(plan, names[i], attempt, 0, rule);
        lh_plan_end(plan);
    }
    return lh_plan_hash(plan);
}

static void equal_plans_have_equal_hashes(void **state)
{
    const char *ab[] = {"cache/a", "cache/b", NULL}, *ba[] = {"cache/b", "cache/a", NULL};
    const char *a[] = {"cache/a", NULL}, *none[] = {NULL};
    g_autofree char *base = hash_of(ab, 1, "r", FALSE), *turned = hash_of(ba, 2, "r", FALSE);
    g_autofree char *rule = hash_of(ab, 1, "s", FALSE), *fewer = hash_of(a, 1, "r", FALSE);
    g_autofree char *type = hash_of(ab, 1, "r", TRUE), *empty = hash_of(none, 1, "r", TRUE);

    (void)state;
    assert_int_equal(strlen(base), 16);
    assert_string_equal(base, turned);
    assert_string_not_equal(base, rule);
    assert_string_not_equal(base, fewer);
    assert_string_not_equal(base, type);
    assert_string_not_equal(base, empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_ranges),
        cmocka_unit_test(an_empty_group_leaves_no_trace),
        cmocka_unit_test(the_earliest_wake_counts),
        cmocka_unit_test(notes_only_when_it_explains),
        cmocka_unit_test(a_status_is_sorted_and_written_once),
        cmocka_unit_test(since_stays_while_the_status_stays),
        cmocka_unit_test(each_difference_is_seen),
        cmocka_unit_test(nothing_left_to_say_deletes_it),
        cmocka_unit_test(nothing_is_written_over_an_unknown_status),
        cmocka_unit_test(equal_plans_have_equal_hashes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The rounds of a controller: dirty → debounce → plan → execute → wait for the mirror. A round moves through
 * the states of LhRoundState by the table below, through enter(), or is reset when the runner steps down.
 * Must not know what any controller decides, nor who leads.
 *
 *   idle ─ dirty, debounced, leads ─▶ executing ─ all ended ─┬─▶ catching ─▶ idle (or plan again at once)
 *    ▲                                                       ├─▶ voiding ─▶ catching
 *    └────────────── step down, from anywhere ◀──────────────┴─▶ backoff ─▶ idle
 */
#include "base/errors.h"
#include "base/log.h"
#include "base/planted.h"
#include "runtime/internal.h"

#include <string.h>

#define BACKOFF_FIRST_MS 100
#define BACKOFF_CAP_MS   10000
#define CONFLICT_WAIT_MS \
    100                     /* for the mirror, when the revision in the way is outside the prefix */
#define CONFLICTS_AT_ONCE 6 /* rounds in a row that only met conflicts, before backing off */
#define CONFLICT_CAP_MS   1000
#define LONGEST_SLEEP_MS  60000 /* then look again: the wall clock may have jumped */
#define CLOCK_JUMP_MS     1000  /* more than any clock that is slewed gains in a wait */
#define ERRANDS_EVERY_MS  250 /* while no plan can be made; the errands of a large index take time */
#define LONGEST_DEBOUNCE  2   /* times debounce, for a stream of changes that does not pause */

static const guint8 allowed[] = {
    [LH_ROUND_IDLE] = 1 << LH_ROUND_EXECUTING | 1 << LH_ROUND_VOIDING,
    [LH_ROUND_EXECUTING] = 1 << LH_ROUND_VOIDING | 1 << LH_ROUND_CATCHING | 1 << LH_ROUND_BACKOFF |
                           1 << LH_ROUND_IDLE,
    [LH_ROUND_VOIDING] = 1 << LH_ROUND_CATCHING | 1 << LH_ROUND_IDLE,
    [LH_ROUND_CATCHING] = 1 << LH_ROUND_IDLE,
    [LH_ROUND_BACKOFF] = 1 << LH_ROUND_IDLE,
};

static void enter(Runner *runner, LhRoundState state)
{
    g_assert(runner->state == state || (allowed[runner->state] & 1 << state) != 0);
    runner->state = state;
}

/* ---- triggers ---- */

static void clear_triggers(Runner *runner)
{
    for (guint i = 0; i < LH_TRIGGERS_KEPT; i++)
        g_clear_pointer(&runner->triggers[i], g_free);
    runner->n_triggers = 0;
    runner->event_ms = 0;
    runner->dirty = FALSE;
}

void lh_runner_dirty(Runner *runner, const LhObject *cause)
{
    gint64 now = lh_mono_ms(runner->runtime->env);

    if (cause != NULL) {
        if (runner->n_triggers < LH_TRIGGERS_KEPT)
            runner->triggers[runner->n_triggers] = g_strconcat(lh_kind_info(cause->kind)->plural,
                                                               "/", cause->name, NULL);
        runner->n_triggers++;
        if (runner->event_ms == 0)
            runner->event_ms = now;
    }
    if (!runner->dirty)
        runner->dirty_first_ms = now;
    runner->dirty = TRUE;
    runner->dirty_last_ms = now;
}

static char *trigger_text(const Runner *runner)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < MIN(runner->n_triggers, LH_TRIGGERS_KEPT); i++)
        g_string_append_printf(text, "%s%s", i == 0 ? "" : ",", runner->triggers[i]);
    if (runner->n_triggers > LH_TRIGGERS_KEPT)
        g_string_append_printf(text, " and %u more", runner->n_triggers - LH_TRIGGERS_KEPT);
    return g_string_free(text, FALSE);
}

/* ---- rounds ---- */

void lh_runner_leads_since(Runner *runner)
{
    runner->led_ms = lh_wall_ms(runner->runtime->env);
    runner->led_mono_ms = lh_mono_ms(runner->runtime->env);
}

static gint64 wall_ahead_ms(const Runner *runner)
{
    const LhRuntime *runtime = runner->runtime;

    return lh_wall_ms(runtime->env) - runner->led_ms -
           (lh_mono_ms(runtime->env) - runner->led_mono_ms);
}

/* After a jump of the wall clock what its times are compared with means nothing: its own waits begin anew. */
static gboolean clock_jumped(Runner *runner)
{
    if (!runner->leads || ABS(wall_ahead_ms(runner)) < CLOCK_JUMP_MS)
        return FALSE;
    lh_log(LH_LOG_WARNING, "the wall clock jumped", "controller", runner->controller->name, "by_ms",
           lh_fmt("%" G_GINT64_FORMAT, wall_ahead_ms(runner)), "next", "its waits begin anew",
           NULL);
    lh_runner_leads_since(runner);
    runner->errands_wake_ms = runner->led_ms;
    return TRUE;
}

LhPlanContext lh_runner_context(Runner *runner)
{
    const LhRuntime *runtime = runner->runtime;

    clock_jumped(runner);
    return (LhPlanContext){
        .now_ms = lh_wall_ms(runtime->env),
        .revision = lh_mirror_revision(runtime->mirror),
        .epoch = runner->leads ? runner->key_create : 0,
        .led_ms = runner->leads ? runner->led_ms : lh_wall_ms(runtime->env),
        .ahead_ms = runner->leads ? wall_ahead_ms(runner) : 0,
        .regressed = runner->regressed,
        .regressed_rev = runner->regressed_rev,
        .max_groups = runtime->options.max_groups,
        .also = runner->also,
    };
}

static void count_round(Runner *runner, const char *result)
{
    g_autofree char *labels = lh_labels("controller", runner->controller->name, "result", result,
                                        NULL);

    lh_counter_add(runner->runtime->metrics, "reconcile_total", labels, 1);
}

/* @labels: of the runner's own, as this is what happens most. */
static void round_succeeded(Runner *runner, const char *labels)
{
    LhRuntime *runtime = runner->runtime;

    runner->attempts = 0;
    lh_counter_add(runtime->metrics, "reconcile_total", labels, 1);
    lh_gauge_set(runtime->metrics, "last_successful_reconcile_timestamp_seconds", runner->labels,
                 (double)lh_wall_ms(runtime->env) / 1000);
}

static void on_timer(gpointer data);

static void set_timer(Runner *runner, gint64 mono_ms)
{
    lh_timer_clear(runner->runtime->env, &runner->timer);
    runner->timer = lh_timer_at(runner->runtime->env, mono_ms, on_timer, runner);
}

static void run_round(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;
    LhPlanContext context = lh_runner_context(runner);
    LhPlan *plan = lh_plan_new(FALSE);
    LhExecution *execution = lh_execution_new(runner, plan);
    g_autofree char *why = NULL;
    gint64 before = lh_mono_ms(runtime->env);

    runner->controller->plan(runner->index, &context, plan);
    runner->planned_ms = before;
    if (runner->round_event_ms == 0)
        runner->round_event_ms = runner->event_ms;
    runner->wake_wall_ms = plan->wake_ms;
    runner->again = plan->more;
    lh_runner_errands(runner, &context);
    lh_histogram_observe(runtime->metrics, "reconcile_duration_seconds", runner->labels,
                         (double)(lh_mono_ms(runtime->env) - before) / 1000);
    if (lh_plan_groups(plan) > 0)
        why = trigger_text(runner);
    clear_triggers(runner);
    if (lh_plan_groups(plan) == 0) {
        lh_execution_free(execution);
        runner->round_event_ms = 0;
        round_succeeded(runner, runner->nothing_labels);
        /* In a turn of its own, also when it says that there is more: the lease needs the loop. */
        if (runner->again)
            set_timer(runner, before);
        else if (runner->wake_wall_ms != 0)
            set_timer(runner, before + MIN(MAX(0, runner->wake_wall_ms - context.now_ms),
                                           LONGEST_SLEEP_MS));
        return;
    }
    lh_log(LH_LOG_INFO, "plan", "controller", runner->controller->name, "groups",
           lh_fmt("%u", lh_plan_groups(plan)), "revision",
           lh_fmt("%" G_GINT64_FORMAT, context.revision), "because", why, NULL);
    enter(runner, LH_ROUND_EXECUTING);
    runner->execution = execution;
    lh_execution_start(execution);
}

static gint64 debounce_until(const Runner *runner)
{
    const LhSettings *settings = runner->controller->settings(runner->index,
                                                              runner->controller->name);
    gint64 quiet = MAX(settings->debounce_ms, runner->controller->quiet_ms);
    gint64 longest = settings->period_ms > 0 ? settings->period_ms : LONGEST_DEBOUNCE * quiet;

    return MIN(runner->dirty_last_ms + quiet, runner->dirty_first_ms + longest);
}

static gboolean paused(const Runner *runner)
{
    return !runner->controller->plans_paused &&
           lh_controller_paused(runner->controller, runner->index);
}

static void on_timer(gpointer data)
{
    Runner *runner = data;

    runner->timer = NULL;
    if (runner->state == LH_ROUND_BACKOFF || runner->state == LH_ROUND_CATCHING) {
        enter(runner, LH_ROUND_IDLE);
        lh_runner_dirty(runner, NULL);
        runner->again = TRUE;
    }
    lh_runner_schedule(runner);
}

/* An idle runner: plans if it is time to, else sets the timer for when it will be. */
static void schedule_idle(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;
    gint64 now = lh_mono_ms(runtime->env), wall = lh_wall_ms(runtime->env), due = 0;

    if (paused(runner))
        lh_runner_errands_end(runner);
    if (!lh_election_may_act(runner) || paused(runner) || lh_mirror_in_doubt(runtime->mirror) ||
        lh_mirror_revision(runtime->mirror) < runner->wait_rev)
        return;
    if (clock_jumped(runner) || (runner->wake_wall_ms != 0 && runner->wake_wall_ms <= wall)) {
        runner->wake_wall_ms = 0;
        runner->again = TRUE;
    }
    if (runner->again) {
        runner->again = FALSE;
        due = now;
    } else if (runner->dirty) {
        due = debounce_until(runner);
    }
    if (due != 0 && due <= now) {
        lh_timer_clear(runtime->env, &runner->timer);
        run_round(runner);
        return;
    }
    if (runner->wake_wall_ms != 0 && (due == 0 || now + runner->wake_wall_ms - wall < due))
        due = now + MIN(runner->wake_wall_ms - wall, LONGEST_SLEEP_MS);
    if (due != 0)
        set_timer(runner, due);
}

/* A plan may be long in coming; what is not wanted outside any more ends without it. */
static void refresh_errands(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;
    gint64 now = lh_mono_ms(runtime->env);
    LhPlanContext context;

    if (runner->state == LH_ROUND_IDLE || !runner->has_errands)
        return;
    if (paused(runner)) {
        lh_runner_errands_end(runner);
    } else if (runner->dirty && lh_election_may_act(runner) &&
               !lh_mirror_in_doubt(runtime->mirror) &&
               now >= runner->errands_ms + ERRANDS_EVERY_MS) {
        context = lh_runner_context(runner);
        lh_runner_errands(runner, &context);
    }
}

void lh_runner_schedule(Runner *runner)
{
    refresh_errands(runner);
    if (runner->state == LH_ROUND_CATCHING &&
        lh_mirror_revision(runner->runtime->mirror) >= MAX(runner->wait_rev, runner->hope_rev)) {
        lh_timer_clear(runner->runtime->env, &runner->timer);
        enter(runner, LH_ROUND_IDLE);
    }
    if (runner->state == LH_ROUND_IDLE)
        schedule_idle(runner);
}

/* Waits for the mirror: for the own writes always, for @hope_rev (0: nothing) not for long. */
static void catch_up(Runner *runner, gint64 hope_rev)
{
    enter(runner, LH_ROUND_CATCHING);
    runner->hope_rev = hope_rev;
    if (hope_rev != 0)
        set_timer(runner, lh_mono_ms(runner->runtime->env) + CONFLICT_WAIT_MS);
    lh_runner_schedule(runner);
}

/* Fewer groups share the fate of the next one that is refused. */
static void pack_smaller(Runner *runner)
{
    runner->pack = MAX(1, MIN(runner->pack, 64) / 2);
}

static void back_off(Runner *runner, const GError *error)
{
    LhRuntime *runtime = runner->runtime;
    gint64 wait = lh_backoff_ms(runtime->env, runner->attempts++, BACKOFF_FIRST_MS, BACKOFF_CAP_MS);

    if (lh_gerror_class(error) == LH_CLASS_TERMINAL)
        pack_smaller(runner);
    count_round(runner, lh_error_name((LhErrorCode)error->code));
    lh_log(LH_LOG_WARNING, "round failed", "controller", runner->controller->name, "why",
           error->message, "next", "plan again", "in_ms", lh_fmt("%" G_GINT64_FORMAT, wait), NULL);
    enter(runner, LH_ROUND_BACKOFF);
    set_timer(runner, lh_mono_ms(runtime->env) + wait);
}

/* What conflicts with a mirror that is up to date would conflict for ever: not at once every time. */
static void meet_conflict(Runner *runner, const LhRoundResult *result)
{
    LhRuntime *runtime = runner->runtime;
    gint64 wait;

    pack_smaller(runner);
    count_round(runner, "conflict");
    runner->again = TRUE;
    if (result->committed == 0)
        runner->attempts++;
    if (runner->attempts <= CONFLICTS_AT_ONCE) {
        catch_up(runner, result->conflict_rev);
        return;
    }
    wait = lh_backoff_ms(runtime->env, runner->attempts - CONFLICTS_AT_ONCE, BACKOFF_FIRST_MS,
                         CONFLICT_CAP_MS);
    enter(runner, LH_ROUND_BACKOFF);
    set_timer(runner, lh_mono_ms(runtime->env) + wait);
}

static void observe_latency(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;

    if (runner->round_event_ms != 0)
        lh_histogram_observe(runtime->metrics, "event_to_commit_duration_seconds", runner->labels,
                             (double)(lh_mono_ms(runtime->env) - runner->round_event_ms) / 1000);
    runner->round_event_ms = 0;
}

void lh_runner_executed(Runner *runner, const LhRoundResult *result)
{
    LhRuntime *runtime = runner->runtime;

    if (result->committed > 0) {
        observe_latency(runner);
        runner->attempts = 0;
    }
    if (runtime->stopping) {
        enter(runner, LH_ROUND_IDLE);
        lh_runtime_maybe_stopped(runtime);
        return;
    }
    if (result->fenced) {
        count_round(runner, "fenced");
        enter(runner, LH_ROUND_IDLE);
        lh_election_superseded(runner, "etcd refused a write: superseded");
        return;
    }
    runner->again = runner->again || result->unsent;
    if (result->unknown > 0) {
        count_round(runner, "unknown_outcome");
        if (LH_BUG(OUTCOME_NOT_VOIDED)) {
            runner->again = TRUE;
            catch_up(runner, 0);
            return;
        }
        lh_election_void(runner);
        return;
    }
    if (result->failed > 0) {
        back_off(runner, result->error);
        return;
    }
    if (result->conflicts > 0) {
        meet_conflict(runner, result);
        return;
    }
    runner->pack = G_MAXUINT;
    round_succeeded(runner, runner->ok_labels);
    catch_up(runner, 0);
}

void lh_runner_reset_round(Runner *runner)
{
    if (lh_execution_in_doubt(runner->execution) || runner->state == LH_ROUND_VOIDING)
        runner->tainted = TRUE;
    g_clear_pointer(&runner->execution, lh_execution_free);
    lh_etcd_cancel(runner->runtime->etcd, &runner->void_call);
    lh_timer_clear(runner->runtime->env, &runner->timer);
    runner->state = LH_ROUND_IDLE;
    runner->hope_rev = runner->wake_wall_ms =
        0; /* wait_rev stays: it is about writes, not rounds */
    runner->again = FALSE;
    runner->attempts = 0;
    runner->pack = G_MAXUINT;
    clear_triggers(runner);
}

/*
 * Items as programs. A program that is being killed keeps its Run until nothing of it is left, and the same
 * item is not begun before: on one machine, too, an item is in one hand.
 *
 *   load ─▶ [on-load] ─▶ [exec] ─▶ ready … release ─▶ SIGTERM ─▶ [on-evict] ─▶ leftovers killed ─▶ released
 *                           └▶ (a pool whose items end) done or failed
 *
 * An end that comes after the deadline is not answered while it is past: it was the watchdog's doing, and
 * the agent is about to leave.
 */
#include "agent/program_work.h"

#include "agent/guard.h"
#include "agent/hooks.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"

#include <string.h>

#define MAX_URL_BYTES 2048
#define END_MS        2000
#define LATE_MS       1000 /* before an end after the deadline is looked at again */
/* Between the beginnings of two programs: hundreds at once would keep the loop, and the lease with it, waiting. */
#define APART_MS 5

typedef enum { ON_LOAD, EXEC, ON_EVICT, N_PROGRAMS } Program;

typedef struct Holding Holding;

/* A program that runs, or is being killed. */
typedef struct {
    LhProgramWork *work;
    Holding *holding; /* NULL: nobody waits for it, but its item's next load */
    char *item;
    Program program;
    LhGuard *guard;
} Run;

struct Holding {
    LhProgramWork *work;
    char *item;
    const LhAssignment
        *assignment; /* referenced; NULL: there is nothing but its release to answer */
    Run *runs[N_PROGRAMS];
    gboolean releasing;
    gboolean waits;    /* for what is being killed */
    gboolean prepared; /* on-load was begun: on-evict has something to release */
    gboolean ready;    /* said */
    gboolean answers;  /* its end has been decided: what it still has is being killed */
    GError *error;     /* of that end; NULL: done, or released */
    char *url;         /* printed by on-load */
    gboolean queued;   /* for its turn */
    LhTimer *timer;    /* to answer, past the deadline */
};

struct LhProgramWork {
    LhAgentWork base;
    LhEnv *env;
    LhProgramWorkOptions o;
    const LhWorkFuncs *funcs;
    gpointer data;
    char *node;
    gint64 deadline_ms;
    GHashTable *holdings; /* item → Holding */
    GPtrArray *runs;      /* Run */
    GQueue waiting;       /* Holding: to begin a program, one at a turn */
    LhTimer *turn;        /* of the next; after one there is none for APART_MS */
};

static void begin(Holding *h);
static void go_on(Holding *h);
static void start(Holding *h, Program program);

/* ---- runs ---- */

static gboolean is_late(const LhProgramWork *work)
{
    return lh_mono_ms(work->env) >= work->deadline_ms;
}

static void run_free(Run *run)
{
    if (run->holding != NULL)
        run->holding->runs[run->program] = NULL;
    g_ptr_array_remove_fast(run->work->runs, run);
    g_free(run->item);
    g_free(run);
}

static gboolean is_dying(const LhProgramWork *work, const char *item)
{
    for (guint i = 0; i < work->runs->len; i++) {
        const Run *run = work->runs->pdata[i];
        if (run->holding == NULL && strcmp(run->item, item) == 0)
            return TRUE;
    }
    return FALSE;
}

/* Kills what @h still has; each answers when nothing of it is left. */
static gboolean kill_runs(Holding *h)
{
    gboolean any = FALSE;
    for (guint i = 0; i < N_PROGRAMS; i++) {
        if (h->runs[i] == NULL)
            continue;
        lh_guard_kill(h->runs[i]->guard);
        any = TRUE;
    }
    return any;
}

static void holding_free(gpointer data)
{
    Holding *h = data;
    kill_runs(h);
    for (guint i = 0; i < N_PROGRAMS; i++)
        if (h->runs[i] != NULL)
            h->runs[i]->holding = NULL;
    if (h->queued)
        g_queue_remove(&h->work->waiting, h);
    lh_timer_clear(h->work->env, &h->timer);
    if (h->assignment != NULL)
        lh_object_unref(&h->assignment->o);
    g_clear_error(&h->error);
    g_free(h->url);
    g_free(h->item);
    g_free(h);
}

/* ---- ends ---- */

static void answer(Holding *h);

static void answer_later(gpointer data)
{
    Holding *h = data;
    h->timer = NULL;
    answer(h);
}

/* Answers, when nothing of it is left: exec ends first, then on-evict runs, then the rest is killed. */
static void answer(Holding *h)
{
    LhProgramWork *work = h->work;
    if (h->runs[EXEC] != NULL) {
        lh_guard_kill(h->runs[EXEC]->guard);
        return;
    }
    if (h->prepared && work->o.on_evict != NULL) {
        h->prepared = FALSE;
        start(h, ON_EVICT);
    }
    if (h->runs[ON_EVICT] != NULL || kill_runs(h))
        return;
    if (is_late(work)) {
        lh_timer_clear(work->env, &h->timer);
        h->timer = lh_timer_in(work->env, LATE_MS, answer_later, h);
        return;
    }
    g_autofree char *item = g_strdup(h->item);
    g_autoptr(GError) error = g_steal_pointer(&h->error);
    gboolean releasing = h->releasing;
    g_hash_table_remove(work->holdings, item);
    if (releasing)
        work->funcs->released(item, NULL, work->data);
    else if (error == NULL)
        work->funcs->finished(item, work->data);
    else
        work->funcs->failed(item, error, work->data);
}

/* @error NULL: done, or released. */
static void end(Holding *h, const GError *error)
{
    h->answers = TRUE;
    h->error = error == NULL ? NULL : g_error_copy(error);
    answer(h);
}

static void end_with(Holding *h, const char *prefix, const GError *error)
{
    g_autoptr(GError) named = g_error_copy(error);
    g_prefix_error(&named, "%s: ", prefix);
    end(h, named);
}

/* ---- the programs' answers ---- */

/* What on-load printed as {"url": …}; NULL: nothing of the kind. */
static char *printed_url(const Holding *h, const char *output)
{
    g_autofree char *text = g_strstrip(g_strdup(output));
    if (*text == '\0')
        return NULL;
    g_autoptr(cJSON) json = lh_json_parse(text, strlen(text), LH_JSON_MAX_BYTES, NULL);
    const char *url = json != NULL ? lh_json_get_string(json, "url", NULL) : NULL;
    if (url != NULL && *url != '\0' && strlen(url) <= MAX_URL_BYTES)
        return g_strdup(url);
    lh_log(LH_LOG_INFO, "what on-load printed is no {\"url\": …}; it is ignored", "item", h->item,
           NULL);
    return NULL;
}

static void on_load_ended(Holding *h, const char *output, const GError *error)
{
    if (h->releasing || h->answers)
        return; /* it has been killed */
    if (error != NULL) {
        h->prepared = FALSE; /* it says that it has prepared nothing */
        end_with(h, "on-load", error);
        return;
    }
    h->url = printed_url(h, output);
    go_on(h);
}

static void exec_ended(Holding *h, const GError *error)
{
    if (h->releasing || h->answers)
        return;
    if (error != NULL) {
        end(h, error);
    } else if (h->work->o.ends || h->work->o.may_end) {
        end(h, NULL);
    } else {
        g_autoptr(GError) early = g_error_new(
            LH_ERROR, LH_ERR_IO, "%s: ended by itself while the item was held", h->work->o.exec[0]);
        end(h, early);
    }
}

/* One that failed leaves something held: the agent asks again. */
static void on_evict_ended(Holding *h, const GError *error)
{
    LhProgramWork *work = h->work;
    if (error == NULL) {
        h->prepared = FALSE;
        return;
    }
    g_autoptr(GError) named = g_error_copy(error);
    g_prefix_error(&named, "on-evict: ");
    if (h->answers) {
        lh_log(LH_LOG_WARNING, "the item has ended, but was not released in order", "item", h->item,
               "error", named->message, NULL);
        return;
    }
    h->releasing = FALSE;
    work->funcs->released(h->item, named, work->data);
}

static void guard_started(gpointer data)
{
    Run *run = data;
    Holding *h = run->holding;
    if (h == NULL || run->program != EXEC || h->work->o.ends || h->releasing || h->answers)
        return;
    h->ready = TRUE;
    h->work->funcs->ready(h->item, h->url, h->work->data);
}

static void guard_ended(const char *output, const GError *error, gpointer data)
{
    Run *run = data;
    Holding *h = run->holding;
    if (h == NULL)
        return;
    if (run->program == ON_LOAD)
        on_load_ended(h, output, error);
    else if (run->program == EXEC)
        exec_ended(h, error);
    else
        on_evict_ended(h, error);
}

static void guard_over(gpointer data)
{
    Run *run = data;
    LhProgramWork *work = run->work;
    Holding *h = run->holding;
    gboolean prepared = run->program == ON_LOAD;
    g_autofree char *item = g_strdup(run->item);
    run_free(run);
    if (h == NULL) {
        h = g_hash_table_lookup(work->holdings, item);
        if (h != NULL && h->waits && !is_dying(work, item)) {
            h->waits = FALSE;
            begin(h);
        }
    } else if (h->answers) {
        answer(h);
    } else if (h->releasing) {
        go_on(h);
    } else if (prepared) {
        g_autoptr(GError) error = g_error_new_literal(
            LH_ERROR, LH_ERR_IO, "on-load: the watchdog of what it started was killed");
        end(h, error);
    }
}

/* ---- starting programs ---- */

static const char *const *argv_of(const LhProgramWork *work, Program program)
{
    return program == ON_LOAD ? work->o.on_load : program == EXEC ? work->o.exec : work->o.on_evict;
}

static GPtrArray *environment_of(const Holding *h, Program program)
{
    const LhAssignment *a = h->assignment;
    GPtrArray *list = g_ptr_array_new_with_free_func(g_free);
    const char *const plain[] = {
        "LEASEHOLD_POOL",   h->work->o.pool,
        "LEASEHOLD_NODE",   h->work->node != NULL ? h->work->node : "",
        "LEASEHOLD_ITEM",   h->item,
        "LEASEHOLD_ACTION", program == ON_EVICT ? "evict" : "load",
    };
    for (guint i = 0; i < G_N_ELEMENTS(plain); i++)
        g_ptr_array_add(list, g_strdup(plain[i]));
    if (a->partition != NULL) {
        g_ptr_array_add(list, g_strdup("LEASEHOLD_PARTITION"));
        g_ptr_array_add(list, g_strdup(a->partition));
        g_ptr_array_add(list, g_strdup("LEASEHOLD_START_OFFSET"));
        g_ptr_array_add(list, g_strdup_printf("%" G_GINT64_FORMAT, a->start_offset));
        g_ptr_array_add(list, g_strdup("LEASEHOLD_END_OFFSET"));
        g_ptr_array_add(list, g_strdup_printf("%" G_GINT64_FORMAT, a->end_offset));
    }
    if (a->seed != NULL) {
        g_ptr_array_add(list, g_strdup("LEASEHOLD_SEED"));
        g_ptr_array_add(list, g_strdup(h->item));
    }
    if (a->seed != NULL && h->work->o.permits_url != NULL) {
        g_ptr_array_add(list, g_strdup("LEASEHOLD_PERMITS_URL"));
        g_ptr_array_add(list, g_strconcat(h->work->o.permits_url, h->item, NULL));
    }
    g_ptr_array_add(list, NULL);
    return list;
}

static void start(Holding *h, Program program)
{
    static const LhGuardFuncs funcs = {
        .started = guard_started, .ended = guard_ended, .over = guard_over};
    LhProgramWork *work = h->work;
    LhAssignment told = *h->assignment;
    g_autoptr(GPtrArray) environment = environment_of(h, program);
    told.action = program == ON_EVICT ? LH_ACTION_EVICT : LH_ACTION_LOAD;
    g_autofree char *input = lh_object_print(LH_KIND_ASSIGNMENT, &told);
    const LhGuardCall call = {
        .argv = argv_of(work, program),
        .environment = (const char *const *)environment->pdata,
        .input = input,
        .directory = work->o.directory,
        .deadline_ms = work->deadline_ms,
        .timeout_ms = program != EXEC ? work->o.hook_timeout_ms
                      : work->o.ends  ? work->o.exec_timeout_ms
                                      : 0,
        .hold = program == ON_LOAD,
        .capture = program == ON_LOAD,
    };
    Run *run = g_new0(Run, 1);
    run->work = work;
    run->holding = h;
    run->item = g_strdup(h->item);
    run->program = program;
    g_ptr_array_add(work->runs, run);
    h->runs[program] = run;
    run->guard = lh_guard_start(work->env, &call, &funcs, run);
}

/* ---- one step after the other ---- */

/* All is prepared, or there was nothing to prepare. */
static void go_on_loading(Holding *h)
{
    LhProgramWork *work = h->work;
    if (work->o.exec != NULL) {
        start(h, EXEC);
        return;
    }
    h->ready = TRUE;
    work->funcs->ready(h->item, h->url, work->data);
}

/* Exec first, then on-evict, then what on-load left running. */
static void go_on_releasing(Holding *h)
{
    if (h->runs[EXEC] != NULL) {
        lh_guard_stop(h->runs[EXEC]->guard, h->work->o.stop_ms);
    } else if (h->runs[ON_EVICT] != NULL) {
        return;
    } else if (h->prepared && h->work->o.on_evict != NULL) {
        start(h, ON_EVICT);
    } else {
        end(h, NULL);
    }
}

static void go_on(Holding *h)
{
    if (h->releasing)
        go_on_releasing(h);
    else
        go_on_loading(h);
}

/* Not begun yet, what is to be released leaves nothing: go_on() says so. */
static void on_turn(gpointer data)
{
    LhProgramWork *work = data;
    Holding *h = g_queue_pop_head(&work->waiting);

    work->turn = h != NULL ? lh_timer_in(work->env, APART_MS, on_turn, work) : NULL;
    if (h == NULL)
        return;
    h->queued = FALSE;
    if (h->releasing || work->o.on_load == NULL) {
        go_on(h);
    } else {
        h->prepared = TRUE;
        start(h, ON_LOAD);
    }
}

static void begin(Holding *h)
{
    LhProgramWork *work = h->work;

    h->queued = TRUE;
    g_queue_push_tail(&work->waiting, h);
    if (work->turn == NULL)
        work->turn = lh_timer_in(work->env, 0, on_turn, work);
}

/* ---- the vtable ---- */

static void work_attach(LhAgentWork *base, const LhWorkFuncs *funcs, gpointer data)
{
    LhProgramWork *work = (LhProgramWork *)base;
    work->funcs = funcs;
    work->data = data;
}

static Holding *holding_new(LhProgramWork *work, const char *item)
{
    Holding *h = g_new0(Holding, 1);
    h->work = work;
    h->item = g_strdup(item);
    g_hash_table_insert(work->holdings, h->item, h);
    return h;
}

static void work_load(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    LhProgramWork *work = (LhProgramWork *)base;
    Holding *h = holding_new(work, item);
    h->assignment = (const LhAssignment *)lh_object_ref(&assignment->o);
    h->waits = is_dying(work, item);
    if (!h->waits)
        begin(h);
}

/* What a program is told of a seed when it begins; the rest may change while it runs. */
static cJSON *essence_of(const char *seed)
{
    static const char *const others[] = {"throttle", "state", "priority"};
    cJSON *json = lh_json_parse(seed, strlen(seed), LH_JSON_MAX_BYTES, NULL);
    for (guint i = 0; json != NULL && i < G_N_ELEMENTS(others); i++)
        cJSON_DeleteItemFromObjectCaseSensitive(json, others[i]);
    return json;
}

static gboolean same_seed(const char *a, const char *b)
{
    if (a == NULL || b == NULL || strcmp(a, b) == 0)
        return a == b || (a != NULL && b != NULL);
    g_autoptr(cJSON) x = essence_of(a);
    g_autoptr(cJSON) y = essence_of(b);
    return x != NULL && y != NULL && cJSON_Compare(x, y, TRUE);
}

static gboolean work_update(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    LhProgramWork *work = (LhProgramWork *)base;
    Holding *h = g_hash_table_lookup(work->holdings, item);
    if (h == NULL || g_strcmp0(h->assignment->partition, assignment->partition) != 0 ||
        h->assignment->start_offset != assignment->start_offset ||
        h->assignment->end_offset != assignment->end_offset ||
        !same_seed(h->assignment->seed, assignment->seed))
        return FALSE;
    lh_object_ref(&assignment->o);
    lh_object_unref(&h->assignment->o);
    h->assignment = assignment;
    return TRUE;
}

static void work_release(LhAgentWork *base, const char *item)
{
    LhProgramWork *work = (LhProgramWork *)base;
    Holding *h = g_hash_table_lookup(work->holdings, item);
    if (h == NULL) /* it has ended by itself, which the agent had no use for any more */
        h = holding_new(work, item);
    if (h->releasing)
        return;
    h->releasing = TRUE;
    h->waits = FALSE;
    if (h->answers) /* it had ended by itself, and what it left is being killed */
        return;
    if (h->runs[ON_LOAD] != NULL && !h->ready && h->runs[EXEC] == NULL)
        lh_guard_stop(h->runs[ON_LOAD]->guard, work->o.stop_ms); /* over goes on */
    else if (h->runs[EXEC] != NULL)
        go_on_releasing(h);
    else if (!h->queued)
        begin(h);
}

static void work_deadline(LhAgentWork *base, gint64 mono_ms)
{
    LhProgramWork *work = (LhProgramWork *)base;
    work->deadline_ms = mono_ms;
    for (guint i = 0; i < work->runs->len; i++) {
        Run *run = work->runs->pdata[i];
        if (run->holding != NULL)
            lh_guard_deadline(run->guard, mono_ms);
    }
}

static void work_drop(LhAgentWork *base)
{
    g_hash_table_remove_all(((LhProgramWork *)base)->holdings);
}

static char **work_warm(LhAgentWork *base G_GNUC_UNUSED)
{
    return NULL;
}

LhProgramWork *lh_program_work_new(LhEnv *env, const LhProgramWorkOptions *options)
{
    static const LhAgentWorkVtable vtable = {
        .attach = work_attach,
        .load = work_load,
        .update = work_update,
        .release = work_release,
        .deadline = work_deadline,
        .drop = work_drop,
        .warm = work_warm,
    };
    LhProgramWork *work = g_new0(LhProgramWork, 1);
    work->base.v = &vtable;
    work->env = env;
    work->o = *options;
    work->holdings = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, holding_free);
    work->runs = g_ptr_array_new();
    return work;
}

void lh_program_work_set_node(LhProgramWork *work, const char *node)
{
    g_free(work->node);
    work->node = g_strdup(node);
}

LhAgentWork *lh_program_work_base(LhProgramWork *work)
{
    return &work->base;
}

static void wake(gpointer data)
{
    *(LhTimer **)data = NULL;
}

/* For what has been killed: who waits for this process to end may begin the same work. */
static void wait_for_ends(LhProgramWork *work)
{
    LhTimer *limit = lh_timer_in(work->env, END_MS, wake, &limit);
    while (work->runs->len > 0 && limit != NULL)
        g_main_context_iteration(NULL, TRUE);
    lh_timer_clear(work->env, &limit);
}

void lh_program_work_free(LhProgramWork *work)
{
    if (work == NULL)
        return;
    g_hash_table_remove_all(work->holdings);
    wait_for_ends(work);
    g_hash_table_unref(work->holdings);
    lh_timer_clear(work->env, &work->turn);
    while (work->runs->len > 0) {
        Run *run = work->runs->pdata[0];
        lh_guard_abandon(run->guard);
        run_free(run);
    }
    g_ptr_array_unref(work->runs);
    g_free(work->node);
    g_free(work);
}

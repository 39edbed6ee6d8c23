/*
 * Asking until etcd answers, and asking for its status from then on; one question at a time.
 *
 * Before the first contact a refusal counts when it came twice in a row: a member that lags, or a
 * certificate that is just being replaced, may refuse once. Callbacks are the last thing each path does.
 */
#include "etcd/contact.h"

#include "base/errors.h"
#include "base/log.h"
#include "base/workers.h"
#include "etcd/endpoints.h"
#include "etcd/tls_probe.h"

#include <string.h>

#define FIRST_DEADLINE_MS 3000
#define BACKOFF_FIRST_MS  100
#define BACKOFF_CAP_MS    5000
#define STATUS_EVERY_MS   10000
#define SAY_EVERY         16 /* attempts */
#define REFUSALS          2

typedef struct Probe Probe;

struct LhContact {
    LhEnv *env;
    LhEtcd *etcd;
    LhEndpoints endpoints;
    char *where; /* all of them */
    char *cacert, *cert, *key, *prefix, *prefix_end;
    char *user; /* NULL: none */
    LhContactFuncs funcs;
    gpointer data;

    gboolean reached, over;
    guint attempt;  /* failures in a row */
    guint refusals; /* in a row, before the first contact */
    char *trouble;
    gboolean has_status;
    LhStatusReply status;
    char said_version[sizeof(((LhStatusReply *)NULL)->version)];
    LhCallId call;
    LhTimer *next;
    LhWorkers *workers; /* for probes; NULL: none was needed yet */
    Probe *probe;       /* under way */
};

/* --- what versions are at risk of --- */

typedef struct {
    guint minor, patch; /* 3.x.y has the fix */
} Fix;

static const struct {
    const char *risk;
    Fix fixed[2];
} risks[] = {
    {"lease renewal may succeed on a revoked lease", {{4, 38}, {5, 23}}},
    {"a watch may begin with old events", {{4, 38}, {5, 22}}},
    {"a watch from the compacted revision may miss a deletion", {{4, 36}, {5, 18}}},
    {"a deposed leader may revoke leases that live, and watch events may be lost after a "
     "compaction",
     {{4, 31}, {5, 13}}},
    {"progress notifications may overtake events", {{4, 25}, {5, 8}}},
};

static gboolean parse_version(const char *version, guint64 *major, guint64 *minor, guint64 *patch)
{
    char *end = NULL;
    *major = g_ascii_strtoull(version, &end, 10);
    if (end == version || *end != '.' || !g_ascii_isdigit(end[1]))
        return FALSE;
    *minor = g_ascii_strtoull(end + 1, &end, 10);
    *patch = 0;
    if (*end == '.' && g_ascii_isdigit(end[1]))
        *patch = g_ascii_strtoull(end + 1, &end, 10);
    /* A release candidate is older than its release. */
    if (*end == '-' && *patch > 0)
        (*patch)--;
    return TRUE;
}

char *lh_etcd_version_risks(const char *version)
{
    guint64 major = 0, minor = 0, patch = 0;
    if (!parse_version(version, &major, &minor, &patch) || major > 3)
        return NULL;
    g_autoptr(GString) text = g_string_new(NULL);
    for (gsize i = 0; i < G_N_ELEMENTS(risks); i++) {
        const Fix *fixed = risks[i].fixed;
        gboolean safe = major == 3 && (minor > fixed[1].minor ||
                                       (minor == fixed[1].minor && patch >= fixed[1].patch) ||
                                       (minor == fixed[0].minor && patch >= fixed[0].patch));
        if (!safe)
            g_string_append_printf(text, "%s%s (fixed in 3.%u.%u, 3.%u.%u)",
                                   text->len > 0 ? "; " : "", risks[i].risk, fixed[0].minor,
                                   fixed[0].patch, fixed[1].minor, fixed[1].patch);
    }
    return text->len > 0 ? g_string_free(g_steal_pointer(&text), FALSE) : NULL;
}

/* --- when it fails --- */

static void on_next(gpointer data);

static void ask_in(LhContact *contact, gint64 delay_ms)
{
    lh_timer_clear(contact->env, &contact->next);
    contact->next = lh_timer_in(contact->env, delay_ms, on_next, contact);
}

static void fail_with(LhContact *contact, const char *trouble)
{
    gint64 delay_ms = lh_backoff_ms(contact->env, contact->attempt, BACKOFF_FIRST_MS,
                                    BACKOFF_CAP_MS);
    g_autofree char *text = g_strdup(trouble);
    if (contact->attempt % SAY_EVERY == 0)
        lh_log(LH_LOG_WARNING, contact->reached ? "etcd does not answer" : "etcd not reached yet",
               "endpoints", contact->where, "error", text, "next",
               lh_fmt("asks again in %" G_GINT64_FORMAT " ms", delay_ms), NULL);
    contact->attempt++;
    g_free(contact->trouble);
    contact->trouble = g_steal_pointer(&text);
    ask_in(contact, delay_ms);
}

/* No waiting heals it. The last thing that its caller does. */
static void refuse(LhContact *contact, const GError *error)
{
    contact->refusals++;
    if (contact->reached || contact->refusals < REFUSALS) {
        fail_with(contact, error->message);
        return;
    }
    contact->over = TRUE;
    g_free(contact->trouble);
    contact->trouble = g_strdup(error->message);
    contact->funcs.refused(error, contact->data);
}

/* --- probes --- */

/* On the worker's thread until it is posted back. */
struct Probe {
    LhContact *contact; /* the loop's */
    LhWorkers *workers;
    char **urls, *cacert, *cert, *key;
    char *cause; /* why there is a probe at all */
    gint cancel; /* atomic */
    GString *refused;
    guint n_refused, n_fine;
};

static void probe_free(gpointer data)
{
    Probe *probe = data;
    g_strfreev(probe->urls);
    g_free(probe->cacert);
    g_free(probe->cert);
    g_free(probe->key);
    g_free(probe->cause);
    g_string_free(probe->refused, TRUE);
    g_free(probe);
}

static void on_probed(gpointer data)
{
    Probe *probe = data;
    LhContact *contact = probe->contact;
    contact->probe = NULL;
    if (probe->n_refused > 0 && probe->n_fine == 0) {
        g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_AUTH, "etcd at %s",
                                              probe->refused->str);
        probe_free(probe);
        refuse(contact, error);
        return;
    }
    contact->refusals = 0;
    g_autofree char *some = g_strdup_printf("%s; etcd at %s", probe->cause, probe->refused->str);
    fail_with(contact, probe->n_refused > 0 ? some : probe->cause);
    probe_free(probe);
}

static void run_probe(gpointer data)
{
    Probe *probe = data;
    for (guint i = 0; probe->urls[i] != NULL && g_atomic_int_get(&probe->cancel) == 0; i++) {
        g_autofree char *why = NULL;
        LhProbeVerdict verdict = lh_tls_probe(probe->urls[i], probe->cacert, probe->cert,
                                              probe->key, &probe->cancel, &why);
        if (verdict == LH_PROBE_FINE) {
            probe->n_fine++;
        } else if (verdict == LH_PROBE_REFUSED) {
            g_string_append_printf(probe->refused, "%s%s: %s", probe->n_refused > 0 ? "; " : "",
                                   probe->urls[i], why);
            probe->n_refused++;
        }
    }
    lh_workers_post(probe->workers, on_probed, probe, probe_free);
}

static void start_probe(LhContact *contact, const char *cause)
{
    if (contact->workers == NULL)
        contact->workers = lh_workers_new(1);
    Probe *probe = g_new0(Probe, 1);
    probe->contact = contact;
    probe->workers = contact->workers;
    probe->urls = g_strdupv(contact->endpoints.urls);
    probe->cacert = g_strdup(contact->cacert);
    probe->cert = g_strdup(contact->cert);
    probe->key = g_strdup(contact->key);
    probe->cause = g_strdup(cause);
    probe->refused = g_string_new(NULL);
    contact->probe = probe;
    lh_workers_run(contact->workers, run_probe, probe);
}

/* The last thing that its caller does. */
static void fail(LhContact *contact, const GError *error)
{
    if (g_error_matches(error, LH_ERROR, LH_ERR_AUTH) ||
        g_error_matches(error, LH_ERROR, LH_ERR_FORBIDDEN)) {
        /* Who asks for a token says itself whom it was refused. */
        gboolean named = contact->user == NULL || error->code != LH_ERR_FORBIDDEN;
        g_autoptr(GError) said = g_error_new(
            LH_ERROR, error->code, "etcd at %s: %s%s%s%s", contact->where, named ? "" : "user ",
            named ? "" : contact->user, named ? "" : ": ", error->message);
        refuse(contact, said);
        return;
    }
    if (contact->endpoints.tls && g_error_matches(error, LH_ERROR, LH_ERR_UNAVAILABLE)) {
        start_probe(contact, error->message);
        return;
    }
    contact->refusals = 0;
    fail_with(contact, error->message);
}

/* --- when it answers --- */

static void say_version(LhContact *contact, const LhStatusReply *status)
{
    if (strcmp(contact->said_version, status->version) == 0)
        return;
    g_strlcpy(contact->said_version, status->version, sizeof contact->said_version);
    g_autofree char *at_risk = lh_etcd_version_risks(status->version);
    lh_log(LH_LOG_INFO, "etcd reached", "endpoints", contact->where, "version", status->version,
           "cluster", lh_fmt("%016" G_GINT64_MODIFIER "x", status->header.cluster_id), NULL);
    if (at_risk != NULL)
        lh_log(LH_LOG_WARNING, "this version of etcd has known faults", "version", status->version,
               "faults", at_risk, "next", "leasehold works around what it can; upgrade etcd", NULL);
}

static void say_alarm(const char *name, gboolean before, gboolean after, const char *meaning)
{
    if (after && !before)
        lh_log(LH_LOG_WARNING, "etcd raises an alarm", "alarm", name, "meaning", meaning, NULL);
    else if (before && !after)
        lh_log(LH_LOG_INFO, "etcd's alarm is gone", "alarm", name, NULL);
}

static void on_status(const LhStatusReply *status, const GError *error, gpointer data)
{
    LhContact *contact = data;
    contact->call = 0;
    if (error != NULL) {
        fail(contact, error);
        return;
    }
    LhStatusReply before = contact->status;
    contact->status = *status;
    contact->has_status = TRUE;
    if (status->leader == 0) { /* the alarms are not known */
        contact->status.alarm_nospace = before.alarm_nospace;
        contact->status.alarm_corrupt = before.alarm_corrupt;
        fail_with(contact, "the member has no leader");
        return;
    }
    if (contact->reached && contact->attempt > 0)
        lh_log(LH_LOG_INFO, "etcd answers again", "endpoints", contact->where, NULL);
    contact->attempt = 0;
    contact->refusals = 0;
    g_clear_pointer(&contact->trouble, g_free);
    say_version(contact, status);
    say_alarm("NOSPACE", before.alarm_nospace, status->alarm_nospace,
              "etcd takes no writes until it has space and the alarm is disarmed");
    say_alarm("CORRUPT", before.alarm_corrupt, status->alarm_corrupt,
              "the data of etcd's members differ");
    ask_in(contact, STATUS_EVERY_MS);
    if (contact->reached)
        return;
    contact->reached = TRUE;
    contact->funcs.reached(contact->data);
}

static void on_read(const LhRangeReply *reply, const GError *error, gpointer data)
{
    (void)reply;
    LhContact *contact = data;
    contact->call = 0;
    if (error != NULL)
        fail(contact, error);
    else
        contact->call = contact->etcd->v->status(contact->etcd, FIRST_DEADLINE_MS, on_status,
                                                 contact);
}

static void on_next(gpointer data)
{
    LhContact *contact = data;
    contact->next = NULL;
    if (contact->reached) {
        contact->call = lh_etcd_status(contact->etcd, on_status, contact);
        return;
    }
    const LhRangeRequest request = {
        .key = contact->prefix, .range_end = contact->prefix_end, .limit = 1, .keys_only = TRUE};
    contact->call = contact->etcd->v->range(contact->etcd, &request, FIRST_DEADLINE_MS, on_read,
                                            contact);
}

/* --- the whole --- */

LhContact *lh_contact_start(LhEnv *env, LhEtcd *etcd, const LhEtcdOptions *options,
                            const char *prefix, const LhContactFuncs *funcs, gpointer data)
{
    LhContact *contact = g_new0(LhContact, 1);
    contact->env = env;
    contact->etcd = etcd;
    /* The transport accepted them: only what it made of them is wanted here. */
    lh_endpoints_parse(options, &contact->endpoints);
    contact->where = g_strjoinv(",", contact->endpoints.urls);
    contact->cacert = g_strdup(options->cacert);
    contact->cert = g_strdup(options->cert);
    contact->key = g_strdup(options->key);
    contact->user = g_strdup(options->user);
    contact->prefix = g_strdup(prefix);
    contact->prefix_end = lh_etcd_prefix_end(prefix);
    contact->funcs = *funcs;
    contact->data = data;
    ask_in(contact, 0);
    return contact;
}

const LhStatusReply *lh_contact_status(const LhContact *contact)
{
    return contact->has_status ? &contact->status : NULL;
}

const char *lh_contact_trouble(const LhContact *contact)
{
    return contact->trouble;
}

void lh_contact_free(LhContact *contact)
{
    if (contact == NULL)
        return;
    lh_etcd_cancel(contact->etcd, &contact->call);
    lh_timer_clear(contact->env, &contact->next);
    if (contact->probe != NULL)
        g_atomic_int_set(&contact->probe->cancel, 1);
    lh_workers_free(contact->workers);
    lh_endpoints_clear(&contact->endpoints);
    g_free(contact->where);
    g_free(contact->cacert);
    g_free(contact->cert);
    g_free(contact->key);
    g_free(contact->user);
    g_free(contact->prefix);
    g_free(contact->prefix_end);
    g_free(contact->trouble);
    g_free(contact);
}

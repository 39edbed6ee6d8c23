/*
 * Plan inputs on paper: the mirror at one revision as JSON lines, from which any controller's plan can be
 * made again offline, byte for byte. And plans as JSON, for the API, the CLI and golden tests.
 *
 * First line {"input":"leasehold/v1","prefix":…,"revision":…,"now":…}, then one line for each key, sorted:
 * {"key":…,"create":…,"mod":…,"lease":…,"value":…}; value is the text of the key's value. One that is not
 * text (invalid UTF-8, a NUL) has "base64" instead, so that what is unknown stays unknown. Observations,
 * which are no keys, follow as "observed/…" with revisions 0.
 *
 * Strings in a Seed's config may be secrets: in Seeds, their Accepted and the assignments of the pool
 * manager they are "(redacted)", here and in plans; {"fromFile": path} stays. Of a value of these that
 * is no JSON nothing is shown.
 */
#pragma once

#include "mirror/mirror.h"
#include "runtime/controller.h"

/* Free with g_free. Holds what the mirror holds: raw text where it keeps it, else the printed object. */
char *lh_record_dump(const LhMirror *mirror, gint64 now_ms, gsize *len);

typedef struct {
    LhMirror *mirror; /* replayed into it; owned by the caller */
    gint64 now_ms, revision;
} LhRecord;

/* Makes a mirror without etcd, lets @listen add listeners, and replays @text into it. Errors: LH_ERR_INVALID
 * with the line's number. */
gboolean lh_record_load(const char *text, gsize len,
                        void (*listen)(LhMirror *mirror, gpointer data), gpointer data,
                        LhRecord *out, GError **error);

/* {"controller":…,"hash":…,…,"ops":[…],"notes":[…],"nextAt":…} appended to @out. @leader, @paused as they
 * are; on its brake (@brake not NULL) also "braked" and the "planHash" that a Confirmation must name. */
void lh_plan_append_json(GString *out, const LhController *controller, const LhPlan *plan,
                         gboolean leader, gboolean paused, const LhObject *brake);

/* Reads a recorded input and appends {"revision":…,"hash":…,"controllers":[…]} with the plan of each of
 * @controllers (all, or the one named @only). Errors: LH_ERR_INVALID, LH_ERR_NOT_FOUND. */
gboolean lh_record_plan(const char *text, gsize len, const LhController *const *controllers,
                        const char *only, GString *out, GError **error);

/*
 * Between the files of the API only: api.c (wiring, health, cluster), api_view.c (objects as JSON,
 * selectors), api_objects.c (get, list, put, delete), api_watch.c, api_actions.c, api_pools.c (rebalance),
 * api_docs.c (the API's own description), api_crawl.c (what it says of crawl fleets).
 */
#pragma once

#include "http/api.h"

#define LH_API_VERSION "leasehold/v1"

typedef struct LhWatchHub LhWatchHub;

struct LhApi {
    LhApiOptions options;
    LhHttpServer *server;
    LhWatchHub *hub;
    char *docs_page;      /* made when it is first asked for */
    GHashTable *holdings; /* throttle → who holds it: api_crawl.c */
    gint64 holdings_revision;
};

/* ---- view ---- */
/* The object as the API shows it to who has @role. Free with cJSON_Delete. */
cJSON *lh_view_object(LhApi *api, const LhObject *object, LhRole role);
char *lh_view_text(LhApi *api, const LhObject *object, LhRole role); /* the same as text; g_free */

/* ---- crawl fleets: they add to @status (which may be NULL) and return it ---- */
cJSON *lh_view_seed(const LhApi *api, const LhObject *seed, cJSON *status);
cJSON *lh_view_throttle(LhApi *api, const LhObject *throttle, cJSON *status);
cJSON *lh_view_node(const LhApi *api, const LhObject *node, cJSON *status);
/* Takes out what viewers do not see: values in the config of a seed, but not {"fromFile": …}. */
void lh_view_hide(cJSON *view, const LhObject *object);

/* The index of the exclusive pools, and a context for it; NULL: no controller of this runtime reads one. */
gconstpointer lh_api_pools(const LhApi *api, LhPlanContext *context);

typedef struct LhSelector LhSelector;
/* "a=b,c!=d,e,!f"; NULL or "": selects all. Errors: LH_ERR_INVALID. */
LhSelector *lh_selector_parse(const char *text, GError **error);
void lh_selector_free(LhSelector *selector); /* accepts NULL */
/* By labels for desired kinds, by top-level fields for flat ones. @object may be NULL: FALSE. */
gboolean lh_selector_match(const LhSelector *selector, const LhObject *object);

/* ---- handlers ---- */
void lh_api_objects_routes(LhApi *api);
void lh_api_actions_routes(LhApi *api);
void lh_api_pools_routes(LhApi *api);
void lh_api_docs_routes(LhApi *api);
/* Splits "<name>:<verb>" at the last colon: the name, g_free; NULL when there is none. */
char *lh_api_verb_of(const char *rest, const char **verb);
gboolean lh_api_wants_dry_run(LhHttpRequest *request);
/* The value to store for a desired object: @body without status and revision. Validated as admission
 * validates single objects. NULL and an error whose message begins with the field. */
char *lh_api_desired_value(LhKind kind, const char *name, const char *body, gsize len,
                           GError **error);
/* Puts @value at desired @kind/@name under @compare (may be NULL) and answers with the object. Takes
 * @value. */
void lh_api_put_desired(LhApi *api, LhHttpRequest *request, LhKind kind, const char *name,
                        char *value, const LhCompare *compare);
char *lh_api_etcd_key(const LhApi *api, LhKind kind, const char *name);
/* "field: reason" in @error split into the problem's field and detail; 422 for LH_ERR_INVALID. */
void lh_api_reply_invalid(LhHttpRequest *request, const GError *error);

/* ---- watch ---- */
LhWatchHub *lh_hub_new(LhApi *api);
void lh_hub_free(LhWatchHub *hub);
/* Takes @selector. */
void lh_hub_watch(LhWatchHub *hub, LhHttpRequest *request, LhKind kind, LhSelector *selector);

/*
 * The token of a user: fetched with the password, and fetched anew when it is no longer fresh, when
 * etcd does not accept it, and by itself every two minutes (etcd forgets one after five).
 *
 * Loop thread. The password's file is read at every fetch; the password goes into that one request and
 * nowhere else. A server that has no authentication is spoken to without a token.
 */
#pragma once

#include "etcd/rpc.h"

typedef struct LhAuth LhAuth;
typedef struct LhAuthWait LhAuthWait;

/* @error NULL: there is a new token (or the server wants none). */
typedef void (*LhAuthFunc)(const GError *error, gpointer data);

/* Gives its tokens to @rpc; @method is Authenticate. Fetches nothing by itself yet. */
LhAuth *lh_auth_new(LhRpc *rpc, guint method, const char *user, const char *password_file,
                    GMainContext *context);
/* After lh_rpc_free. No callback runs. Accepts NULL. */
void lh_auth_free(LhAuth *auth);

/* Of the present token; 0: none has been fetched. */
guint lh_auth_number(const LhAuth *auth);
/* Calls may go out with the present token. */
gboolean lh_auth_ready(const LhAuth *auth);
/* Streams may: it has been fetched lately. */
gboolean lh_auth_fresh(const LhAuth *auth);
/* etcd did not accept token @number: neither ready nor fresh, unless there is a newer one. */
void lh_auth_refused(LhAuth *auth, guint number);
/* Fetches a token, if that is not under way already, and calls back once: with LH_ERR_AUTH (wrong
 * password), or LH_ERR_UNAVAILABLE, at @deadline_us (monotonic) at the latest. */
LhAuthWait *lh_auth_wait(LhAuth *auth, gint64 deadline_us, LhAuthFunc func, gpointer data);
void lh_auth_cancel(LhAuth *auth, LhAuthWait *wait);

/* The password in @path, without one trailing newline. Errors: LH_ERR_INVALID. The caller frees it with
 * lh_password_free. */
char *lh_password_read(const char *path, GError **error);
void lh_password_free(char *password); /* wipes it; accepts NULL */

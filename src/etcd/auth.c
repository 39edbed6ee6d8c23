/*
 * One fetch at a time, and who waits for it.
 *
 * Waiters are taken off their queue before their callback runs: callbacks may wait again, or free all.
 */
#include "etcd/auth.h"

#include "base/errors.h"
#include "base/log.h"

#include <string.h>

#define FRESH_US    (60 * G_USEC_PER_SEC)
#define RENEW_US    (120 * G_USEC_PER_SEC)
#define AGAIN_US    (10 * G_USEC_PER_SEC) /* after a renewal that failed */
#define DEADLINE_MS 5000
#define MOST_BYTES  4096 /* of a password */

struct LhAuthWait {
    gint64 deadline_us;
    LhAuthFunc func;
    gpointer data;
};

struct LhAuth {
    LhRpc *rpc;
    guint method;
    char *user, *password_file;
    LhRpcCall *fetch;
    GQueue waiting;    /* of LhAuthWait */
    guint number;      /* of the present token */
    gboolean accepted; /* it was not refused since */
    gint64 fetched_us;
    gint64 renew_us; /* 0: nobody has asked for a token yet */
    GSource *timer;
};

char *lh_password_read(const char *path, GError **error)
{
    g_autoptr(GError) cause = NULL;
    char *text = NULL;
    gsize len = 0;
    const char *wrong = NULL;
    if (!g_file_get_contents(path, &text, &len, &cause)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: cannot be read: %s", path,
                    cause->message);
        return NULL;
    }
    if (len > 0 && text[len - 1] == '\n')
        text[--len] = '\0';
    if (len == 0)
        wrong = "holds no password";
    else if (len > MOST_BYTES || strlen(text) != len || !g_utf8_validate(text, (gssize)len, NULL))
        wrong = "holds no password of at most 4096 bytes of UTF-8";
    if (wrong == NULL)
        return text;
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s", path, wrong);
    explicit_bzero(text, len);
    g_free(text);
    return NULL;
}

void lh_password_free(char *password)
{
    if (password != NULL)
        explicit_bzero(password, strlen(password));
    g_free(password);
}

static void set_timer(LhAuth *auth)
{
    gint64 due_us = auth->renew_us > 0 && auth->fetch == NULL ? auth->renew_us : G_MAXINT64;
    for (const GList *link = auth->waiting.head; link != NULL; link = link->next)
        due_us = MIN(due_us, ((const LhAuthWait *)link->data)->deadline_us);
    g_source_set_ready_time(auth->timer, due_us == G_MAXINT64 ? -1 : due_us);
}

/* All that wait now; not those who begin to in a callback. */
static void tell(LhAuth *auth, const GError *error)
{
    LhAuth *kept = g_rc_box_acquire(auth);
    for (guint n = auth->waiting.length; n > 0 && auth->waiting.length > 0; n--) {
        g_autofree LhAuthWait *wait = g_queue_pop_head(&auth->waiting);
        wait->func(error, wait->data);
    }
    g_rc_box_release(kept);
}

static void on_token(gpointer reply, const GError *error, gpointer data)
{
    LhAuth *auth = data;
    gint64 now_us = g_get_monotonic_time();
    /* As etcdctl does: a password may be configured before authentication is switched on. */
    gboolean unwanted = g_error_matches(error, LH_ERROR, LH_ERR_NOT_FOUND);
    auth->fetch = NULL;
    auth->renew_us = now_us + (error == NULL || unwanted ? RENEW_US : AGAIN_US);
    if (error == NULL || unwanted) {
        auth->number++;
        auth->accepted = TRUE;
        auth->fetched_us = now_us;
        lh_rpc_set_token(auth->rpc, reply);
        set_timer(auth);
        tell(auth, NULL);
        return;
    }
    g_autoptr(GError) named = g_error_new(error->domain, error->code, "user %s: %s", auth->user,
                                          error->message);
    if (auth->waiting.length == 0)
        lh_log(LH_LOG_WARNING, "etcd token not renewed", "error", named->message, "next",
               "the present one is used until etcd refuses it", NULL);
    set_timer(auth);
    tell(auth, named);
}

static void fetch(LhAuth *auth)
{
    g_autoptr(GError) error = NULL;
    char *password = lh_password_read(auth->password_file, &error);
    if (password == NULL) {
        /* It may be about to be replaced; and it was good when the program started. */
        error->code = LH_ERR_UNAVAILABLE;
        auth->fetch = lh_rpc_refuse(auth->rpc, g_steal_pointer(&error), on_token, auth);
        return;
    }
    auth->fetch = lh_rpc_call(auth->rpc, auth->method, lh_codec_authenticate(auth->user, password),
                              DEADLINE_MS, on_token, auth);
    lh_password_free(password);
}

typedef struct {
    GSource base;
    LhAuth *auth;
} Timer;

static LhAuthWait *take_overdue(LhAuth *auth, gint64 now_us)
{
    for (GList *link = auth->waiting.head; link != NULL; link = link->next) {
        LhAuthWait *wait = link->data;
        if (wait->deadline_us <= now_us) {
            g_queue_delete_link(&auth->waiting, link);
            return wait;
        }
    }
    return NULL;
}

static gboolean dispatch_timer(GSource *source, G_GNUC_UNUSED GSourceFunc func,
                               G_GNUC_UNUSED gpointer data)
{
    LhAuth *auth = g_rc_box_acquire(((Timer *)source)->auth);
    gint64 now_us = g_get_monotonic_time();
    if (auth->renew_us > 0 && auth->renew_us <= now_us && auth->fetch == NULL)
        fetch(auth);
    g_autoptr(GError) late = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE,
                                         "etcd: no token before the deadline; not sent");
    for (LhAuthWait *wait = NULL; (wait = take_overdue(auth, now_us)) != NULL; g_free(wait))
        wait->func(late, wait->data);
    if (!g_source_is_destroyed(source))
        set_timer(auth);
    g_rc_box_release(auth);
    return G_SOURCE_CONTINUE;
}

LhAuth *lh_auth_new(LhRpc *rpc, guint method, const char *user, const char *password_file,
                    GMainContext *context)
{
    static GSourceFuncs funcs = {.dispatch = dispatch_timer};
    LhAuth *auth = g_rc_box_new0(LhAuth);
    auth->rpc = rpc;
    auth->method = method;
    auth->user = g_strdup(user);
    auth->password_file = g_strdup(password_file);
    g_queue_init(&auth->waiting);
    auth->timer = g_source_new(&funcs, sizeof(Timer));
    ((Timer *)auth->timer)->auth = auth;
    g_source_set_static_name(auth->timer, "etcd token");
    g_source_attach(auth->timer, context);
    return auth;
}

void lh_auth_free(LhAuth *auth)
{
    if (auth == NULL)
        return;
    g_source_destroy(auth->timer);
    g_clear_pointer(&auth->timer, g_source_unref);
    g_queue_clear_full(&auth->waiting, g_free);
    g_clear_pointer(&auth->user, g_free);
    g_clear_pointer(&auth->password_file, g_free);
    g_rc_box_release(auth);
}

guint lh_auth_number(const LhAuth *auth)
{
    return auth->number;
}

gboolean lh_auth_ready(const LhAuth *auth)
{
    return auth->number > 0 && auth->accepted;
}

gboolean lh_auth_fresh(const LhAuth *auth)
{
    return lh_auth_ready(auth) && g_get_monotonic_time() - auth->fetched_us < FRESH_US;
}

void lh_auth_refused(LhAuth *auth, guint number)
{
    if (number == auth->number)
        auth->accepted = FALSE;
}

LhAuthWait *lh_auth_wait(LhAuth *auth, gint64 deadline_us, LhAuthFunc func, gpointer data)
{
    LhAuthWait *wait = g_new(LhAuthWait, 1);
    *wait = (LhAuthWait){.deadline_us = deadline_us, .func = func, .data = data};
    g_queue_push_tail(&auth->waiting, wait);
    if (auth->fetch == NULL)
        fetch(auth);
    set_timer(auth);
    return wait;
}

void lh_auth_cancel(LhAuth *auth, LhAuthWait *wait)
{
    g_queue_remove(&auth->waiting, wait);
    g_free(wait);
}

/*
 * What an answer of S3 means: by its <Code>, else by the HTTP status, else by libcurl's result.
 *
 * The first of three tables that knows it decides. Texts of the server get into an error only on
 * one line, cut, and without our access key in them.
 */
#include "base/errors.h"
#include "objectstore/s3_client.h"
#include "objectstore/s3_xml.h"

#include <string.h>

/* Servers refuse at 15 min; from here on it is worth a word. */
#define SKEW_WORTH_SAYING_S 300

typedef struct {
    const char *code;
    LhErrorCode error;
    gboolean again;
    const char *words;
} CodeRow;

static const CodeRow codes[] = {
    {"SignatureDoesNotMatch", LH_ERR_AUTH, FALSE, "the secret key does not fit the access key"},
    {"InvalidAccessKeyId", LH_ERR_AUTH, FALSE, "the access key is not known there"},
    {"ExpiredToken", LH_ERR_AUTH, FALSE, "the session token has expired"},
    {"InvalidToken", LH_ERR_AUTH, FALSE, "the session token is not accepted"},
    {"AuthorizationHeaderMalformed", LH_ERR_AUTH, FALSE, "it is signed for another region"},
    {"RequestTimeTooSkewed", LH_ERR_AUTH, FALSE, "the clocks differ too much"},
    {"RequestExpired", LH_ERR_AUTH, FALSE, "the clocks differ too much"},
    {"AccessDenied", LH_ERR_FORBIDDEN, FALSE, "access is denied"},
    {"AllAccessDisabled", LH_ERR_FORBIDDEN, FALSE, "access is denied"},
    {"AccountProblem", LH_ERR_FORBIDDEN, FALSE, "access is denied"},
    {"InvalidObjectState", LH_ERR_FORBIDDEN, FALSE, "it is archived, and must be restored first"},
    {"NoSuchBucket", LH_ERR_NOT_FOUND, FALSE, "there is no such bucket"},
    {"NoSuchKey", LH_ERR_NOT_FOUND, FALSE, "there is no such object"},
    {"PreconditionFailed", LH_ERR_CONFLICT, FALSE, "it has changed while it was copied"},
    {"PermanentRedirect", LH_ERR_INVALID, FALSE,
     "the bucket is served elsewhere; see objectStore.endpoint and objectStore.region"},
    {"TemporaryRedirect", LH_ERR_UNAVAILABLE, TRUE, "the bucket is served elsewhere for now"},
    {"SlowDown", LH_ERR_OVERLOADED, TRUE, "it asks to slow down"},
    {"ServiceUnavailable", LH_ERR_OVERLOADED, TRUE, "it asks to slow down"},
    {"Throttling", LH_ERR_OVERLOADED, TRUE, "it asks to slow down"},
    {"ThrottlingException", LH_ERR_OVERLOADED, TRUE, "it asks to slow down"},
    {"TooManyRequests", LH_ERR_OVERLOADED, TRUE, "it asks to slow down"},
    {"RequestLimitExceeded", LH_ERR_OVERLOADED, TRUE, "it asks to slow down"},
    {"InternalError", LH_ERR_UNAVAILABLE, TRUE, "it has failed"},
    {"RequestTimeout", LH_ERR_UNAVAILABLE, TRUE, "it has waited too long"},
};

/* Not in the table, or an answer without a Code. */
static CodeRow row_of_status(glong status)
{
    if (status == 401)
        return (CodeRow){NULL, LH_ERR_AUTH, FALSE, "who we are is not accepted"};
    if (status == 403)
        return (CodeRow){NULL, LH_ERR_FORBIDDEN, FALSE, "access is denied"};
    if (status == 404)
        return (CodeRow){NULL, LH_ERR_NOT_FOUND, FALSE, "it is not there"};
    if (status == 412)
        return (CodeRow){NULL, LH_ERR_CONFLICT, FALSE, "it has changed while it was copied"};
    if (status == 408)
        return (CodeRow){NULL, LH_ERR_UNAVAILABLE, TRUE, "it has waited too long"};
    if (status == 429 || status == 503)
        return (CodeRow){NULL, LH_ERR_OVERLOADED, TRUE, "it asks to slow down"};
    if (status == 501)
        return (CodeRow){NULL, LH_ERR_INVALID, FALSE, "it does not know how to do that"};
    if (status >= 500)
        return (CodeRow){NULL, LH_ERR_UNAVAILABLE, TRUE, "it has failed"};
    if (status >= 300 && status < 400)
        return (CodeRow){NULL, LH_ERR_INVALID, FALSE, "it redirects, which is not followed"};
    return (CodeRow){NULL, LH_ERR_INVALID, FALSE, "the request is refused"};
}

static CodeRow row_of(const char *code, glong status)
{
    for (gsize i = 0; code != NULL && i < G_N_ELEMENTS(codes); i++) {
        if (strcmp(codes[i].code, code) == 0)
            return codes[i];
    }
    return row_of_status(status);
}

/* "; this machine's clock is 3600 s ahead of the server's" when that may be why. */
static void append_skew(GString *text, const LhS3Exchange *e, LhErrorCode code)
{
    if ((code != LH_ERR_AUTH && code != LH_ERR_FORBIDDEN) || e->signed_s == 0 || e->date_s == 0)
        return;
    gint64 ahead = e->signed_s - e->date_s;
    if (ABS(ahead) >= SKEW_WORTH_SAYING_S)
        g_string_append_printf(text,
                               "; this machine's clock is %" G_GINT64_FORMAT " s %s the server's",
                               ABS(ahead), ahead > 0 ? "ahead of" : "behind");
}

static LhS3Verdict refused(const LhS3Exchange *e, const char *uri, const char *name, GError **error)
{
    g_auto(LhS3Error) said = {0};
    if (e->body != NULL)
        lh_s3_error_parse(e->body->str, e->body->len, &said);
    CodeRow row = row_of(said.code, e->status);
    g_autoptr(GString) text = g_string_new(row.words);
    const char *region = said.region != NULL ? said.region : e->bucket_region;
    if (region != NULL && e->status < 500 && row.error != LH_ERR_NOT_FOUND &&
        row.error != LH_ERR_CONFLICT)
        g_string_append_printf(text, " (the bucket's region is %s)", region);
    if (row.code == NULL && said.message != NULL &&
        (e->access_key == NULL || strstr(said.message, e->access_key) == NULL))
        g_string_append_printf(text, ": %s", said.message);
    append_skew(text, e, row.error);
    g_set_error(error, LH_ERROR, (gint)row.error, "%s%s: %s (HTTP %ld%s%s)", uri, name, text->str,
                e->status, said.code != NULL ? " " : "", said.code != NULL ? said.code : "");
    return row.again ? LH_S3_AGAIN : LH_S3_FAILED;
}

static LhS3Verdict broken(const LhS3Exchange *e, const char *uri, const char *name, GError **error)
{
    const char *why = e->message[0] != '\0' ? e->message : curl_easy_strerror(e->result);
    switch ((int)e->result) {
    case CURLE_ABORTED_BY_CALLBACK: /* lh_task_may_change said no */
        g_set_error(error, LH_ERROR, LH_ERR_CANCELLED,
                    "%s%s: left: this process may not act any more", uri, name);
        return LH_S3_FAILED;
    case CURLE_PEER_FAILED_VERIFICATION:
        g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE,
                    "%s%s: the server's certificate is not trusted: %s", uri, name, why);
        return LH_S3_FAILED;
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: objectStore.cacert: %s", uri, name,
                    why);
        return LH_S3_FAILED;
    case CURLE_OUT_OF_MEMORY:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_BAD_FUNCTION_ARGUMENT:
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: cannot be asked for: %s", uri, name,
                    why);
        return LH_S3_FAILED;
    case CURLE_OPERATION_TIMEDOUT:
        g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "%s%s: the server does not go on: %s", uri,
                    name, why);
        return LH_S3_AGAIN;
    default:
        g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "%s%s: the connection failed: %s", uri,
                    name, why);
        return LH_S3_AGAIN;
    }
}

LhS3Verdict lh_s3_exchange_verdict(const LhS3Exchange *e, const char *uri, const char *name,
                                   gint64 *after_ms, GError **error)
{
    *after_ms = 0;
    if (e->status >= 300) { /* whether its body came to an end does not matter */
        *after_ms = CLAMP((gint64)e->retry_after_s, 0, G_MAXINT) * 1000;
        return refused(e, uri, name, error);
    }
    if (e->too_big) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: the answer is longer than %zu bytes",
                    uri, name, e->body_limit);
        return LH_S3_FAILED;
    }
    if (e->result != CURLE_OK)
        return broken(e, uri, name, error);
    if (e->status >= 200)
        return LH_S3_OK;
    g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "%s%s: the answer has no status", uri, name);
    return LH_S3_AGAIN;
}

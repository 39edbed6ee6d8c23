/*
 * Credentials: found once, read again every ten seconds.
 *
 * No error may hold a line of a file: GLib's own words about a file that is no key file do.
 */
#include "objectstore/s3_credentials.h"

#include "base/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define REREAD_US      (10 * G_USEC_PER_SEC)
#define MAX_KEY_BYTES  4096
#define MAX_FILE_BYTES (1024 * 1024)

typedef enum { FROM_FILES, FROM_ENVIRONMENT, FROM_PROFILE } Source;

struct LhS3Credentials {
    Source source;
    char *access_key_file, *secret_key_file;
    char *shared_file, *profile;
    gboolean asked_for; /* the shared file or the profile were named by somebody */
    GMutex mutex;       /* what follows */
    gboolean have;
    gint64 read_us;
    LhS3Identity identity;
};

static void scrub(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    g_free(secret);
}

void lh_s3_identity_clear(LhS3Identity *identity)
{
    g_clear_pointer(&identity->access_key, g_free);
    g_clear_pointer(&identity->secret_key, scrub);
    g_clear_pointer(&identity->session_token, scrub);
}

/* An empty variable is as good as none. */
static char *variable(const char *name)
{
    const char *value = g_getenv(name);
    return value != NULL && *value != '\0' ? g_strdup(value) : NULL;
}

static gboolean from_environment(LhS3Credentials *c, GError **error)
{
    LhS3Identity identity = {
        .access_key = variable("AWS_ACCESS_KEY_ID"),
        .secret_key = variable("AWS_SECRET_ACCESS_KEY"),
        .session_token = variable("AWS_SESSION_TOKEN"),
    };
    if ((identity.access_key == NULL) != (identity.secret_key == NULL)) {
        gboolean has_id = identity.access_key != NULL;
        lh_s3_identity_clear(&identity);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s is set, but %s is not",
                    has_id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                    has_id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
        return FALSE;
    }
    if (identity.access_key == NULL) {
        lh_s3_identity_clear(&identity);
        return TRUE;
    }
    c->source = FROM_ENVIRONMENT;
    c->identity = identity;
    c->have = TRUE;
    return TRUE;
}

LhS3Credentials *lh_s3_credentials_new(const char *access_key_file, const char *secret_key_file,
                                       GError **error)
{
    if ((access_key_file == NULL) != (secret_key_file == NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "objectStore.%s is set, but objectStore.%s is not",
                    access_key_file != NULL ? "accessKeyFile" : "secretKeyFile",
                    access_key_file != NULL ? "secretKeyFile" : "accessKeyFile");
        return NULL;
    }
    LhS3Credentials *c = g_new0(LhS3Credentials, 1);
    g_mutex_init(&c->mutex);
    if (access_key_file != NULL) {
        c->source = FROM_FILES;
        c->access_key_file = g_strdup(access_key_file);
        c->secret_key_file = g_strdup(secret_key_file);
        return c;
    }
    if (!from_environment(c, error)) {
        lh_s3_credentials_free(c);
        return NULL;
    }
    if (c->source == FROM_ENVIRONMENT)
        return c;
    c->source = FROM_PROFILE;
    c->shared_file = variable("AWS_SHARED_CREDENTIALS_FILE");
    c->profile = variable("AWS_PROFILE");
    c->asked_for = c->shared_file != NULL || c->profile != NULL;
    if (c->shared_file == NULL)
        c->shared_file = g_build_filename(g_get_home_dir(), ".aws", "credentials", NULL);
    if (c->profile == NULL)
        c->profile = g_strdup("default");
    return c;
}

void lh_s3_credentials_free(LhS3Credentials *c)
{
    if (c == NULL)
        return;
    lh_s3_identity_clear(&c->identity);
    g_mutex_clear(&c->mutex);
    g_free(c->access_key_file);
    g_free(c->secret_key_file);
    g_free(c->shared_file);
    g_free(c->profile);
    g_free(c);
}

/* ---- reading ---- */

/* The whole file, at most @limit bytes. NULL: *@saved_errno; EFBIG for more. */
static char *read_file(const char *path, gsize limit, int *saved_errno)
{
    /* O_NONBLOCK: a pipe without a writer must not hang. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char *text = g_malloc0(limit + 2);
    gsize len = 0;
    gssize n = fd < 0 ? -1 : 1;
    while (n > 0 && len <= limit) {
        n = read(fd, text + len, limit + 1 - len);
        if (n > 0)
            len += (gsize)n;
    }
    *saved_errno = len > limit ? EFBIG : errno;
    if (fd >= 0)
        close(fd);
    if (n >= 0 && len <= limit && strlen(text) == len)
        return text;
    if (n >= 0 && len <= limit)
        *saved_errno = EILSEQ; /* a NUL in it */
    explicit_bzero(text, limit + 2);
    g_free(text);
    return NULL;
}

static char *read_key(const char *setting, const char *path, GError **error)
{
    int saved = 0;
    char *text = read_file(path, MAX_KEY_BYTES, &saved);
    if (text == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: %s: %s", setting, path, g_strerror(saved));
        return NULL;
    }
    g_strstrip(text);
    const char *problem = NULL;
    if (*text == '\0')
        problem = "is empty";
    for (const char *at = text; *at != '\0'; at++) {
        if (g_ascii_iscntrl(*at))
            problem = "must be one line";
    }
    if (problem == NULL)
        return text;
    scrub(text);
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s: %s", setting, path, problem);
    return NULL;
}

/* GLib's key files know neither comments that begin with ';' nor settings that are indented below
 * another one; Amazon's tools know both. */
static char *without_extras(const char *text)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    GString *plain = g_string_new(NULL);
    for (char **line = lines; *line != NULL; line++) {
        if (**line != ';' && !g_ascii_isspace(**line))
            g_string_append_printf(plain, "%s\n", *line);
        explicit_bzero(*line, strlen(*line));
    }
    return g_string_free(plain, FALSE);
}

/* An empty identity when there is no such file or profile and nobody has asked for it. */
static gboolean read_profile(const LhS3Credentials *c, LhS3Identity *out, GError **error)
{
    int saved = 0;
    char *text = read_file(c->shared_file, MAX_FILE_BYTES, &saved);
    if (text == NULL) {
        if (!c->asked_for && (saved == ENOENT || saved == ENOTDIR))
            return TRUE;
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: %s", c->shared_file, g_strerror(saved));
        return FALSE;
    }
    g_autoptr(GKeyFile) file = g_key_file_new();
    char *plain = without_extras(text);
    gboolean is_key_file = g_key_file_load_from_data(file, plain, strlen(plain), G_KEY_FILE_NONE,
                                                     NULL);
    scrub(text);
    scrub(plain);
    if (!is_key_file) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "%s: is not a file of [profiles] with name = value", c->shared_file);
        return FALSE;
    }
    if (!g_key_file_has_group(file, c->profile) && !c->asked_for)
        return TRUE;
    out->access_key = g_key_file_get_value(file, c->profile, "aws_access_key_id", NULL);
    out->secret_key = g_key_file_get_value(file, c->profile, "aws_secret_access_key", NULL);
    out->session_token = g_key_file_get_value(file, c->profile, "aws_session_token", NULL);
    if (out->access_key != NULL && *out->access_key != '\0' && out->secret_key != NULL &&
        *out->secret_key != '\0')
        return TRUE;
    lh_s3_identity_clear(out);
    g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                "%s: profile %s: must have aws_access_key_id and aws_secret_access_key",
                c->shared_file, c->profile);
    return FALSE;
}

static gboolean read_again(const LhS3Credentials *c, LhS3Identity *out, GError **error)
{
    switch (c->source) {
    case FROM_FILES:
        out->access_key = read_key("objectStore.accessKeyFile", c->access_key_file, error);
        if (out->access_key != NULL)
            out->secret_key = read_key("objectStore.secretKeyFile", c->secret_key_file, error);
        return out->secret_key != NULL;
    case FROM_PROFILE:
        return read_profile(c, out, error);
    case FROM_ENVIRONMENT:
        break;
    }
    return TRUE;
}

gboolean lh_s3_credentials_get(LhS3Credentials *c, gint64 now_us, LhS3Identity *out, GError **error)
{
    gboolean ok = TRUE;
    g_mutex_lock(&c->mutex);
    if (!c->have || (c->source != FROM_ENVIRONMENT && now_us - c->read_us >= REREAD_US)) {
        g_auto(LhS3Identity) fresh = {0};
        ok = read_again(c, &fresh, error);
        if (ok) {
            lh_s3_identity_clear(&c->identity);
            c->identity = fresh;
            fresh = (LhS3Identity){0};
            c->have = TRUE;
            c->read_us = now_us;
        }
    }
    if (ok)
        *out = (LhS3Identity){
            .access_key = g_strdup(c->identity.access_key),
            .secret_key = g_strdup(c->identity.secret_key),
            .session_token = g_strdup(c->identity.session_token),
        };
    g_mutex_unlock(&c->mutex);
    return ok;
}

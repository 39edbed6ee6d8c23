/*
 * The kinds under published/, what the data plane says exists: fields, and what a snapshot must be
 * so that nothing which copies, serves or deletes its files can be led outside of them.
 *
 * Whether two snapshots overlap is admission's to say, not this file's.
 */
#include "api/tables.h"
#include "base/errors.h"

#include <string.h>

#define URI_MAX 4096

const LhField lh_snapshot_fields[] = {
    LH_FIELD(ATOM, LhSnapshot, service, "service", LH_REQUIRED | LH_NAME, 0, 0, NULL),
    LH_FIELD(ATOM, LhSnapshot, partition, "partition", LH_NAME, 0, 0, NULL),
    LH_FIELD(TIME, LhSnapshot, start_time, "startTime", LH_REQUIRED, 0, LH_DATA_TIME_MAX_MS, NULL),
    LH_FIELD(TIME, LhSnapshot, end_time, "endTime", 0, 0, LH_DATA_TIME_MAX_MS, NULL),
    LH_FIELD(INT, LhSnapshot, max_offset, "maxOffset", 0, 0, 0, NULL),
    LH_FIELD(SIZE, LhSnapshot, size_bytes, "sizeBytes", LH_SPARSE, 0, 0, "-1"),
    LH_FIELD(URI, LhSnapshot, uri, "uri", LH_REQUIRED, 1, URI_MAX, NULL),
    LH_FIELD(DIGESTS, LhSnapshot, sha256, "sha256", LH_SPARSE, 0, 0, NULL),
    LH_FIELD(BOOL, LhSnapshot, live, "live", LH_SPARSE, 0, 0, NULL),
    LH_FIELDS_END,
};

const LhField lh_recoverytask_fields[] = {
    LH_FIELD(STR, LhRecoveryTask, partition, "partition", LH_REQUIRED | LH_NAME, 0, 0, NULL),
    LH_FIELD(INT, LhRecoveryTask, start_offset, "startOffset", LH_REQUIRED, 0, 0, NULL),
    LH_FIELD(INT, LhRecoveryTask, end_offset, "endOffset", LH_REQUIRED, -1, LH_JSON_MAX_INT, NULL),
    LH_FIELD(TIME, LhRecoveryTask, created_at, "createdAt", 0, 0, 0, NULL),
    LH_FIELDS_END,
};

/* True when no segment of @path is empty, "." or "..", and no byte is a control character. A final
 * '/' ends the last segment; it does not begin an empty one. */
static gboolean segments_ok(const char *path)
{
    while (*path != '\0') {
        gsize n = strcspn(path, "/");
        if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && memcmp(path, "..", 2) == 0))
            return FALSE;
        path += n;
        if (*path == '/')
            path++;
    }
    return TRUE;
}

static gboolean has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        if (g_ascii_iscntrl(*text))
            return TRUE;
    }
    return FALSE;
}

/* One pass over what nearly all are: a bucket or "file:///", segments of ordinary characters, none of which
 * begins with '.', no "..". FALSE says nothing. */
static gboolean is_plain_uri(const char *uri)
{
    gboolean s3 = strncmp(uri, "s3://", 5) == 0;
    const char *at = uri + (s3 ? 5 : 8);
    guint segments = 0;
    if (!s3 && strncmp(uri, "file:///", 8) != 0)
        return FALSE;
    for (guchar before = '/'; *at != '\0'; before = (guchar)*at++) {
        guchar c = (guchar)*at;
        if (c < 0x20 || c == 0x7f || ((c == '/' || c == '.') && before == '/') ||
            (c == '.' && before == '.'))
            return FALSE;
        segments += c == '/';
    }
    return at[-1] == '/' && segments >= (s3 ? 2 : 1);
}

gboolean lh_uri_check(const char *uri, GError **error)
{
    if (is_plain_uri(uri))
        return TRUE;
    const char *why = NULL;
    const char *path = uri + MIN(strlen(uri), strlen("file:///"));
    gboolean s3 = g_str_has_prefix(uri, "s3://");
    if (s3) {
        path = uri + strlen("s3://");
        path += strcspn(path, "/");
        if (path == uri + strlen("s3://"))
            why = "has no bucket";
        if (*path == '/')
            path++;
    } else if (!g_str_has_prefix(uri, "file:///")) {
        why = "must begin with s3:// or file:///";
    }
    if (why == NULL && (*uri == '\0' || uri[strlen(uri) - 1] != '/'))
        why = "must end in /";
    if (why == NULL && *path == '\0')
        why = s3 ? "must lie below the bucket" : "must lie below /";
    if (why == NULL && strstr(uri, "..") != NULL)
        why = "must not contain ..";
    if (why == NULL && !segments_ok(s3 ? uri + strlen("s3://") : path)) /* the bucket is one, too */
        why = "must not have an empty segment or .";
    if (why == NULL && has_control(uri))
        why = "must not contain control characters";
    if (why == NULL)
        return TRUE;
    g_autofree char *quoted = lh_quote(uri);
    return lh_refuse(error, NULL, "%s %s", quoted, why);
}

static gboolean check_files(const guint8 *digests, GError **error)
{
    const LhPath field = {.name = "sha256"};
    const char *name;
    char hex[2 * LH_DIGEST_BYTES + 1];
    while (lh_digests_next(&digests, &name, hex)) {
        if (name[strlen(name) - 1] != '/' && segments_ok(name) && !has_control(name))
            continue;
        g_autofree char *quoted = lh_quote(name);
        return lh_refuse(error, &field,
                         "%s is no file below the uri: must be relative, without empty segments, . "
                         "and ..",
                         quoted);
    }
    return TRUE;
}

gboolean lh_snapshot_check(const LhObject *object, GError **error)
{
    const LhSnapshot *snapshot = (const LhSnapshot *)object;
    if (!snapshot->live && snapshot->end_time < 0)
        return lh_refuse(error, NULL, "endTime: is required, unless live");
    if (!snapshot->live && snapshot->size_bytes < 0)
        return lh_refuse(error, NULL, "sizeBytes: is required, unless live");
    if (snapshot->end_time >= 0 && snapshot->end_time < snapshot->start_time)
        return lh_refuse(error, NULL, "endTime: must not be before startTime");
    return check_files(snapshot->sha256, error);
}

gboolean lh_recoverytask_check(const LhObject *object, GError **error)
{
    const LhRecoveryTask *task = (const LhRecoveryTask *)object;
    /* One less is how an inclusive range is written that holds nothing; any other is a mistake, and what
     * people meant by it must not be taken for done. */
    if (task->end_offset < task->start_offset - 1)
        return lh_refuse(error, NULL,
                         "endOffset: must not be less than startOffset - 1 (an empty range)");
    return TRUE;
}

gboolean lh_deletion_check(const LhObject *object, GError **error)
{
    g_autoptr(GError) why = NULL;
    return lh_uri_check(((const LhDeletion *)object)->uri, &why) ||
           lh_refuse(error, NULL, "uri: %s", why->message);
}

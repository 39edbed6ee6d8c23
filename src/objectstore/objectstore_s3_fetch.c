/*
 * Fetching one object: in parts side by side, each asked for again from the byte it had reached.
 *
 *   first answer → size and ETag → parts [0,n) [n,2n) … up to four on their way, all If-Match
 *   a part breaks → pause → Range from where it was
 *
 * All bytes of a file are of one version: every answer must have the ETag and the size of the
 * first. The digest follows in order, from memory where it can, else read back.
 */
#include "base/errors.h"
#include "objectstore/local_file.h"
#include "objectstore/objectstore_s3.h"

#include <string.h>

#define BUFFER_BYTES     (256 * 1024)
#define DIGEST_STEP      (4 * 1024 * 1024) /* then the connections get a turn */
#define PROGRESS_BYTES   (1024 * 1024)     /* so much more, and failures are forgotten */
#define MAX_OBJECT_BYTES (G_GINT64_CONSTANT(64) << 40)

typedef struct Fetch Fetch;

typedef struct {
    Fetch *fetch;
    LhS3Exchange exchange;
    gboolean in_use, running, head_seen;
    gint64 begin, end; /* of its bytes; the first part's end is a guess until the first answer */
    gint64 at;         /* the next byte that comes */
    gint64 asked;      /* the first byte that was asked for this time */
    gint64 start_us;   /* not before */
    guint8 *buffer;    /* what lies before @at, and is not in the file yet */
    gsize buffered;
} Part;

struct Fetch {
    LhStoreTask *task;
    const LhStoreJob *job;
    LhS3Client *client;
    LhS3Session *session;
    LhS3Patience patience;
    LhLocalFile *file;
    gint64 part_bytes;
    gint64 total; /* -1: no answer yet */
    char *etag;
    gboolean plain;   /* without a Range: of an empty object there is none */
    gint64 next;      /* the first byte that no part has */
    guint8 *done;     /* by part: all of it is in the file */
    gint64 received;  /* in all */
    gint64 forgotten; /* received when failures were last forgotten */
    Part parts[LH_S3_MAX_PARTS];
    GError *error;
};

static gboolean fail(Fetch *f, LhErrorCode code, const char *why)
{
    if (f->error == NULL)
        g_set_error(&f->error, LH_ERROR, (gint)code, "%s%s: %s", f->job->uri, f->job->name, why);
    return FALSE;
}

/* ---- bytes ---- */

static gboolean flush(Part *part)
{
    Fetch *f = part->fetch;
    gsize n = part->buffered;
    part->buffered = 0;
    return n == 0 || lh_local_file_write(f->file, part->at - (gint64)n, part->buffer, n, &f->error);
}

static gboolean take_bytes(Part *part, const guint8 *data, gsize n)
{
    Fetch *f = part->fetch;
    if (lh_local_file_digested(f->file) == part->at)
        lh_local_file_digest(f->file, data, n);
    f->received += (gint64)n;
    while (n > 0) {
        gsize piece = MIN(n, BUFFER_BYTES - part->buffered);
        memcpy(part->buffer + part->buffered, data, piece);
        part->buffered += piece;
        part->at += (gint64)piece;
        data += piece;
        n -= piece;
        if (part->buffered == BUFFER_BYTES && !flush(part))
            return FALSE;
    }
    lh_task_progress(f->task, f->received);
    return TRUE;
}

/* The end of what is in the file without a gap from the digest's place on. */
static gint64 readable_end(const Fetch *f)
{
    gint64 end = lh_local_file_digested(f->file);
    while (f->total >= 0 && end < f->total) {
        gint64 index = end / f->part_bytes;
        if (f->done[index]) {
            end = MIN((index + 1) * f->part_bytes, f->total);
            continue;
        }
        for (guint i = 0; i < LH_S3_MAX_PARTS; i++) {
            const Part *part = &f->parts[i];
            if (part->in_use && part->begin == index * f->part_bytes)
                end = MAX(end, part->at - (gint64)part->buffered);
        }
        break;
    }
    return end;
}

/* Lets the digest follow for a while. FALSE: failed. *@more: there is more to do at once. */
static gboolean follow(Fetch *f, gboolean *more)
{
    gint64 digested = lh_local_file_digested(f->file);
    gint64 end = readable_end(f);
    gint64 stop = MIN(end, digested + DIGEST_STEP);
    *more = stop < end;
    if (stop > digested && !lh_local_file_digest_to(f->file, stop, &f->error))
        return FALSE;
    /* Level with a part but for its buffer: what is in the buffer, so that it is level again. */
    for (guint i = 0; stop == end && i < LH_S3_MAX_PARTS; i++) {
        const Part *part = &f->parts[i];
        if (part->in_use && part->buffered > 0 &&
            part->at - (gint64)part->buffered == lh_local_file_digested(f->file))
            lh_local_file_digest(f->file, part->buffer, part->buffered);
    }
    return TRUE;
}

/* ---- heads of answers ---- */

/* What the first answer says holds for all. */
static gboolean learn(Part *part, gint64 total)
{
    Fetch *f = part->fetch;
    const LhS3Exchange *e = &part->exchange;
    if (total < 0)
        return fail(f, LH_ERR_INVALID, "the server does not say its size");
    if (total > MAX_OBJECT_BYTES)
        return fail(f, LH_ERR_INVALID, "the server says a size that is not possible");
    if (e->status == 200)
        f->part_bytes = MAX(total, 1); /* all comes in one piece */
    f->total = total;
    f->etag = g_strdup(e->etag);
    part->end = MIN(f->part_bytes, total);
    f->next = part->end;
    f->done = g_malloc0((gsize)(total / f->part_bytes) + 1);
    return TRUE;
}

static gboolean check_part_head(Part *part)
{
    Fetch *f = part->fetch;
    const LhS3Exchange *e = &part->exchange;
    gint64 last = MIN(part->end, e->range.total) - 1;
    gint64 length = e->range.last - e->range.first + 1;
    if (e->range.first != part->asked || e->range.last != last ||
        (e->content_length >= 0 && e->content_length != length))
        return fail(f, LH_ERR_INVALID, "the server sends another range than was asked for");
    if (f->total < 0)
        return learn(part, e->range.total);
    if (e->range.total != f->total)
        return fail(f, LH_ERR_CONFLICT, "it has changed while it was copied: its size");
    return TRUE;
}

static gboolean check_head(Part *part)
{
    Fetch *f = part->fetch;
    const LhS3Exchange *e = &part->exchange;
    if (part->head_seen)
        return f->error == NULL;
    part->head_seen = TRUE;
    if (f->total >= 0 && g_strcmp0(e->etag, f->etag) != 0)
        return fail(f, LH_ERR_CONFLICT, "it has changed while it was copied: its ETag");
    if (e->status == 206)
        return check_part_head(part);
    if (e->status != 200)
        return fail(f, LH_ERR_INVALID, "the server answers with an unexpected status");
    if (part->asked != 0 || f->total >= 0)
        return fail(f, LH_ERR_INVALID, "the server sends all of it where a part was asked for");
    return learn(part, e->content_length);
}

static gboolean on_data(LhS3Exchange *e, const guint8 *data, gsize n)
{
    Part *part = e->data;
    if (lh_task_cancelled(part->fetch->task) || !check_head(part))
        return FALSE;
    if ((gint64)n > part->end - part->at)
        return fail(part->fetch, LH_ERR_CHECKSUM, "the server sends more bytes than it announced");
    return take_bytes(part, data, n);
}

/* ---- parts ---- */

static gboolean start_part(Part *part)
{
    Fetch *f = part->fetch;
    LhS3Exchange *e = &part->exchange;
    /* A weak ETag never matches; the answer's is compared all the same. */
    gboolean strong = f->etag != NULL && f->etag[0] == '"';
    part->asked = part->at;
    part->head_seen = FALSE;
    part->running = TRUE;
    e->first = f->plain ? -1 : part->at;
    e->last = part->end - 1;
    e->if_match = strong ? f->etag : NULL;
    if (f->total >= 0 && f->etag == NULL)
        return fail(f, LH_ERR_INVALID,
                    "the server gives no ETag, without which it cannot be asked for twice");
    return lh_s3_exchange_start(f->session, e, &f->error);
}

static void new_part(Fetch *f, Part *part, gint64 begin, gint64 end)
{
    if (part->buffer == NULL)
        part->buffer = g_malloc(BUFFER_BYTES);
    part->in_use = TRUE;
    part->begin = part->at = begin;
    part->end = end;
    part->start_us = 0;
    f->next = end;
}

/* Gives free slots something to do, and starts what is due. */
static gboolean start_parts(Fetch *f)
{
    const LhS3Tuning *tuning = f->patience.tuning;
    gint64 now = g_get_monotonic_time();
    for (guint i = 0; i < MIN(tuning->parts_at_once, (guint)LH_S3_MAX_PARTS); i++) {
        Part *part = &f->parts[i];
        if (!part->in_use && f->total >= 0 && f->next < f->total)
            new_part(f, part, f->next, MIN(f->next + f->part_bytes, f->total));
        if (part->in_use && !part->running && part->start_us <= now && !start_part(part))
            return FALSE;
    }
    return TRUE;
}

/* When the next pause of a part ends. */
static gint64 next_start_us(const Fetch *f)
{
    gint64 at = G_MAXINT64;
    for (guint i = 0; i < LH_S3_MAX_PARTS; i++) {
        if (f->parts[i].in_use && !f->parts[i].running)
            at = MIN(at, f->parts[i].start_us);
    }
    return at;
}

static gboolean part_done(Part *part)
{
    Fetch *f = part->fetch;
    part->in_use = FALSE;
    if (!flush(part))
        return FALSE;
    f->done[part->begin / f->part_bytes] = TRUE;
    return TRUE;
}

static gboolean try_again(Part *part, gint64 after_ms, GError *why)
{
    Fetch *f = part->fetch;
    if (f->received - f->forgotten >= PROGRESS_BYTES) {
        f->forgotten = f->received;
        f->patience.failures = 0;
    }
    part->start_us = lh_s3_patience_next(&f->patience, after_ms, &why);
    if (part->start_us == 0) {
        f->error = why;
        return FALSE;
    }
    g_clear_error(&why);
    return TRUE;
}

static gboolean part_ended(Part *part)
{
    Fetch *f = part->fetch;
    const LhS3Exchange *e = &part->exchange;
    gint64 after_ms = 0;
    g_autoptr(GError) why = NULL;
    part->running = FALSE;
    if (f->error != NULL || !flush(part))
        return FALSE;
    LhS3Verdict verdict = lh_s3_exchange_verdict(e, f->job->uri, f->job->name, &after_ms, &why);
    if (e->status == 416 && f->total < 0 && !f->plain && e->range.total <= 0) {
        f->plain = TRUE; /* it is empty, it seems */
        return TRUE;
    }
    if (verdict == LH_S3_FAILED) {
        f->error = g_steal_pointer(&why);
        return FALSE;
    }
    if (verdict == LH_S3_OK && !check_head(part))
        return FALSE;
    if (f->total >= 0 && part->at == part->end) /* however the connection ended */
        return part_done(part);
    if (verdict == LH_S3_OK)
        g_set_error(&why, LH_ERROR, LH_ERR_UNAVAILABLE,
                    "%s%s: the server sends fewer bytes than it announced", f->job->uri,
                    f->job->name);
    f->plain = FALSE;
    return try_again(part, after_ms, g_steal_pointer(&why));
}

/* ---- the whole ---- */

static gboolean has_ended(const Fetch *f)
{
    if (f->total < 0 || lh_local_file_digested(f->file) < f->total)
        return FALSE;
    for (guint i = 0; i < LH_S3_MAX_PARTS; i++) {
        if (f->parts[i].in_use) /* its last bytes may not be in the file yet */
            return FALSE;
    }
    return TRUE;
}

static gboolean run(Fetch *f)
{
    new_part(f, &f->parts[0], 0, f->part_bytes);
    for (;;) {
        gboolean more = FALSE;
        if (!start_parts(f) || !follow(f, &more))
            return FALSE;
        if (has_ended(f))
            return TRUE;
        LhS3Exchange *ended = lh_s3_session_run(f->session, more ? 0 : next_start_us(f));
        if (lh_task_cancelled(f->task))
            return fail(f, LH_ERR_CANCELLED, "cancelled");
        if (ended != NULL && !part_ended(ended->data))
            return FALSE;
    }
}

char *lh_s3_fetch(LhS3Client *client, LhStoreTask *task, GError **error)
{
    g_auto(LhS3Place) place = {0};
    const LhStoreJob *job = lh_task_job(task);
    if (!lh_s3_place_of(job->uri, &place, error))
        return NULL;
    g_autofree char *key = g_strconcat(place.prefix, job->name, NULL);
    g_autoptr(LhLocalFile) file = lh_local_file_new(job->to_path, error);
    if (file == NULL)
        return NULL;
    const LhS3Tuning *tuning = lh_s3_client_tuning(client);
    Fetch *f = g_new0(Fetch, 1);
    f->task = task;
    f->job = job;
    f->client = client;
    f->file = file;
    f->part_bytes = tuning->part_bytes;
    f->total = -1;
    f->patience = (LhS3Patience){.tuning = tuning, .rand = g_rand_new_with_seed(job->seed)};
    f->session = lh_s3_session_take(client, task);
    for (guint i = 0; i < LH_S3_MAX_PARTS; i++) {
        Part *part = &f->parts[i];
        part->fetch = f;
        part->exchange = (LhS3Exchange){
            .bucket = place.bucket, .key = key, .on_data = on_data, .data = part};
    }
    char *sha256 = run(f) ? lh_local_file_finish(file, &f->error) : NULL;
    for (guint i = 0; i < LH_S3_MAX_PARTS; i++) {
        lh_s3_exchange_clear(&f->parts[i].exchange);
        g_free(f->parts[i].buffer);
    }
    lh_s3_session_give(f->session);
    g_rand_free(f->patience.rand);
    if (f->error != NULL)
        g_propagate_error(error, f->error);
    g_free(f->done);
    g_free(f->etag);
    g_free(f);
    return sha256;
}

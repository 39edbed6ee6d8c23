/*
 * Replies from a regular file: whole, or one byte range (RFC 9110, section 14).
 *
 * libmicrohttpd sends from the descriptor itself. Several ranges in one request, other units and a
 * range whose If-Range does not hold get the whole file, which the standard permits.
 */
#include "http/internal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "12-34" → numbers; -1 where there is none. False: not of that form. */
static gboolean range_parse(const char *spec, gint64 *first, gint64 *last)
{
    const char *dash = strchr(spec, '-');
    if (dash == NULL || (dash == spec && dash[1] == '\0')) {
        return FALSE;
    }
    g_autofree char *head = g_strndup(spec, (gsize)(dash - spec));
    guint64 value = 0;
    *first = *last = -1;
    if (head[0] != '\0') {
        if (!g_ascii_string_to_unsigned(head, 10, 0, G_MAXINT64, &value, NULL)) {
            return FALSE;
        }
        *first = (gint64)value;
    }
    if (dash[1] != '\0') {
        if (!g_ascii_string_to_unsigned(dash + 1, 10, 0, G_MAXINT64, &value, NULL)) {
            return FALSE;
        }
        *last = (gint64)value;
    }
    return *first < 0 || *last < 0 || *first <= *last;
}

typedef enum { RANGE_NONE, RANGE_PART, RANGE_UNSATISFIABLE } Range;

static Range range_of(const LhHttpRequest *request, const char *etag, gint64 size, gint64 *offset,
                      gint64 *len)
{
    const char *range = lh_http_header(request, "Range");
    const char *if_range = lh_http_header(request, "If-Range");
    gint64 first = 0, last = 0;
    *offset = 0;
    *len = size;
    if (range == NULL || (if_range != NULL && strcmp(if_range, etag) != 0) ||
        g_ascii_strncasecmp(range, "bytes=", 6) != 0 || !range_parse(range + 6, &first, &last)) {
        return RANGE_NONE;
    }
    if (first < 0) {
        *offset = MAX(size - last, 0);
        *len = size - *offset;
        return last == 0 || size == 0 ? RANGE_UNSATISFIABLE : RANGE_PART;
    }
    if (first >= size) {
        return RANGE_UNSATISFIABLE;
    }
    *offset = first;
    *len = (last < 0 ? size - 1 : MIN(last, size - 1)) - first + 1;
    return RANGE_PART;
}

void lh_http_reply_fd(LhHttpRequest *request, int fd, const char *content_type)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        lh_http_reply_problem(request, 404, NULL, "%s: not a regular file", lh_http_path(request));
        return;
    }
    gint64 size = st.st_size, offset = 0, len = 0;
    g_autofree char *etag = g_strdup_printf(
        "\"%llx-%llx-%llx.%lx\"", (unsigned long long)st.st_ino, (unsigned long long)size,
        (unsigned long long)st.st_mtim.tv_sec, (unsigned long)st.st_mtim.tv_nsec);
    Range range = range_of(request, etag, size, &offset, &len);
    if (range == RANGE_UNSATISFIABLE) {
        close(fd);
        g_autofree char *text = g_strdup_printf("bytes */%" G_GINT64_FORMAT, size);
        lh_http_set_header(request, MHD_HTTP_HEADER_CONTENT_RANGE, text);
        lh_http_reply_problem(request, 416, NULL, "the file has %" G_GINT64_FORMAT " bytes", size);
        return;
    }
    struct MHD_Response *response = MHD_create_response_from_fd_at_offset64((guint64)len, fd,
                                                                            (guint64)offset);
    if (range == RANGE_PART) {
        g_autofree char *text = g_strdup_printf("bytes %" G_GINT64_FORMAT "-%" G_GINT64_FORMAT
                                                "/%" G_GINT64_FORMAT,
                                                offset, offset + len - 1, size);
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, text);
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    lh_http_request_answer(request, range == RANGE_PART ? 206 : 200, response);
}

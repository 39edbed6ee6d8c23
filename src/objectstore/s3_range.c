/*
 * Content-Range and Content-Length; see s3_range.h. Must not judge what they say.
 */
#include "objectstore/s3_range.h"

#include <string.h>

static gboolean take_number(const char **at, gint64 *out)
{
    char *end;
    if (!g_ascii_isdigit(**at))
        return FALSE;
    guint64 value = g_ascii_strtoull(*at, &end, 10);
    if (value >= (guint64)1 << 53)
        return FALSE;
    *out = (gint64)value;
    *at = end;
    return TRUE;
}

gboolean lh_s3_range_parse(const char *text, LhS3Range *out)
{
    LhS3Range range = LH_S3_RANGE_NONE;
    const char *at = text;
    if (!g_str_has_prefix(at, "bytes "))
        return FALSE;
    at += strlen("bytes ");
    if (*at == '*')
        at++;
    else if (!take_number(&at, &range.first) || *at++ != '-' || !take_number(&at, &range.last))
        return FALSE;
    if (*at++ != '/' || !take_number(&at, &range.total) || *at != '\0')
        return FALSE;
    *out = range;
    return TRUE;
}

gint64 lh_s3_length_parse(const char *text)
{
    gint64 length;
    return take_number(&text, &length) && *text == '\0' ? length : -1;
}

/*
 * The headers that say which bytes an answer of S3 holds: the first line as Content-Range, the second as
 * Content-Length. Against regular expressions and comparisons of digits; what is printed reads back.
 */
#include "objectstore/s3_range.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* -1: not below 2^53. By its digits alone. */
static gint64 slow_number(const char *digits)
{
    static const char most[] = "9007199254740991";
    gint64 value = 0;

    while (*digits == '0')
        digits++;
    if (strlen(digits) > strlen(most) ||
        (strlen(digits) == strlen(most) && strcmp(digits, most) > 0))
        return -1;
    for (; *digits != '\0'; digits++)
        value = value * 10 + (*digits - '0');
    return value;
}

static gboolean slow_range(const char *text, LhS3Range *out)
{
    g_autoptr(GRegex) form = g_regex_new("\\Abytes (?:\\*|([0-9]+)-([0-9]+))/([0-9]+)\\z",
                                         G_REGEX_RAW, 0, NULL);
    g_autoptr(GMatchInfo) match = NULL;

    *out = LH_S3_RANGE_NONE;
    if (!g_regex_match(form, text, 0, &match))
        return FALSE;
    g_autofree char *first = g_match_info_fetch(match, 1), *last = g_match_info_fetch(match, 2);
    g_autofree char *total = g_match_info_fetch(match, 3);
    out->total = slow_number(total);
    if (text[strlen("bytes ")] == '*')
        return out->total >= 0;
    out->first = slow_number(first);
    out->last = slow_number(last);
    return out->first >= 0 && out->last >= 0 && out->total >= 0;
}

static void check_range(const char *text)
{
    LhS3Range range = {7, 8, 9}, slow, again;

    if (!slow_range(text, &slow)) {
        FUZZ_CHECK(!lh_s3_range_parse(text, &range), "%s", text);
        FUZZ_CHECK(range.first == 7 && range.last == 8 && range.total == 9, "%s", text);
        return;
    }
    FUZZ_CHECK(lh_s3_range_parse(text, &range), "%s", text);
    FUZZ_CHECK(memcmp(&range, &slow, sizeof range) == 0, "%s", text);
    g_autofree char *printed = range.first < 0
                                   ? g_strdup_printf("bytes */%" G_GINT64_FORMAT, range.total)
                                   : g_strdup_printf("bytes %" G_GINT64_FORMAT "-%" G_GINT64_FORMAT
                                                     "/%" G_GINT64_FORMAT,
                                                     range.first, range.last, range.total);
    FUZZ_CHECK(lh_s3_range_parse(printed, &again), "%s", printed);
    FUZZ_CHECK(memcmp(&range, &again, sizeof range) == 0, "%s", printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    g_autofree char *range = fuzz_line(&bytes), *length = fuzz_line(&bytes);
    gboolean digits = *length != '\0' && strspn(length, "0123456789") == strlen(length);

    check_range(range);
    FUZZ_CHECK(lh_s3_length_parse(length) == (digits ? slow_number(length) : -1), "%s", length);
    return 0;
}

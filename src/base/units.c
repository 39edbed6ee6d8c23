/*
 * Durations, sizes, times and names, read strictly and written exactly.
 *
 * Everything read here was typed by a person or sent by a program: every sum is checked, every
 * message quotes what was wrong. It must not depend on locale or time zone.
 */
#include "base/units.h"

#include "base/errors.h"
#include "base/json.h"

#include <string.h>
#include <time.h>

#define MAX_VALUE      ((guint64)LH_JSON_MAX_INT)
#define QUOTED_BYTES   64
#define END_OF_9998_MS G_GINT64_CONSTANT(253370764800000) /* 9999-01-01T00:00:00Z */

typedef struct {
    const char *suffix;
    guint64 factor;
} Unit;

/* Largest first: durations are read and written in this order. */
static const Unit duration_units[] = {
    {"w", 7 * 24 * 3600 * 1000ull},
    {"d", 24 * 3600 * 1000ull},
    {"h", 3600 * 1000ull},
    {"m", 60 * 1000ull},
    {"s", 1000ull},
    {"ms", 1ull},
};

static const Unit size_units[] = {
    {"", 1ull},           {"K", 1000ull},          {"M", 1000000ull},
    {"G", 1000000000ull}, {"T", 1000000000000ull}, {"P", 1000000000000000ull},
    {"Ki", 1ull << 10},   {"Mi", 1ull << 20},      {"Gi", 1ull << 30},
    {"Ti", 1ull << 40},   {"Pi", 1ull << 50},
};

G_GNUC_PRINTF(4, 5)
static gboolean refuse(GError **error, const char *what, const char *text, const char *format, ...)
{
    g_autoptr(GString) quoted = g_string_new(NULL);
    if (text == NULL) {
        g_string_append(quoted, "(none)");
    } else {
        g_autofree char *head = g_strndup(text, QUOTED_BYTES);
        lh_json_append_string(quoted, head);
        if (strlen(text) > QUOTED_BYTES)
            g_string_append(quoted, "…");
    }
    va_list args;
    va_start(args, format);
    g_autofree char *why = g_strdup_vprintf(format, args);
    va_end(args);
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s %s: %s", what, quoted->str, why);
    return FALSE;
}

/* Reads decimal digits at *@text. False when there are none, or the number exceeds MAX_VALUE
 * (*@too_large then). */
static gboolean read_digits(const char **text, guint64 *out, gboolean *too_large)
{
    const char *p = *text;
    guint64 value = 0;
    *too_large = FALSE;
    for (; g_ascii_isdigit(*p); p++) {
        value = value * 10 + (guint64)(*p - '0');
        if (value > MAX_VALUE) {
            *too_large = TRUE;
            return FALSE;
        }
    }
    if (p == *text)
        return FALSE;
    *text = p;
    *out = value;
    return TRUE;
}

/* *@total += @count * @factor, unless that exceeds MAX_VALUE. */
static gboolean add_product(guint64 *total, guint64 count, guint64 factor)
{
    if (count > (MAX_VALUE - *total) / factor)
        return FALSE;
    *total += count * factor;
    return TRUE;
}

gboolean lh_duration_parse(const char *text, gint64 *out_ms, GError **error)
{
    static const char what[] = "duration";
    if (text == NULL || *text == '\0')
        return refuse(error, what, text, "must be like 90s, 15m or 1d12h");
    guint64 total = 0;
    guint smallest_allowed = 0; /* index into duration_units: each unit is smaller than the last */
    for (const char *p = text; *p != '\0';) {
        guint64 count;
        gboolean too_large;
        if (!read_digits(&p, &count, &too_large))
            return refuse(error, what, text,
                          too_large ? "is too large" : "must be digits, each followed by a unit");
        gsize n = strcspn(p, "0123456789");
        guint i;
        for (i = 0; i < G_N_ELEMENTS(duration_units); i++) {
            if (strlen(duration_units[i].suffix) == n &&
                strncmp(p, duration_units[i].suffix, n) == 0)
                break;
        }
        if (i == G_N_ELEMENTS(duration_units))
            return refuse(error, what, text, "units are w, d, h, m, s and ms");
        if (i < smallest_allowed)
            return refuse(error, what, text, "each unit once, larger ones first");
        if (!add_product(&total, count, duration_units[i].factor))
            return refuse(error, what, text, "is too large");
        smallest_allowed = i + 1;
        p += n;
    }
    *out_ms = (gint64)total;
    return TRUE;
}

static void append_count(GString *out, guint64 count, const char *suffix)
{
    char digits[24], *first = digits + sizeof digits;
    for (; count > 0; count /= 10)
        *--first = (char)('0' + count % 10);
    g_string_append_len(out, first, digits + sizeof digits - first);
    g_string_append(out, suffix);
}

char *lh_duration_format(gint64 ms)
{
    if (ms == 0)
        return g_strdup("0s");
    GString *out = g_string_new(ms < 0 ? "-" : NULL);
    guint64 rest = ms < 0 ? -(guint64)ms : (guint64)ms;
    /* Weeks only where nothing else is needed, and from two on: people say 7d, 10d, 2w. */
    gboolean weeks = rest % duration_units[0].factor == 0 && rest > duration_units[0].factor;
    for (guint i = weeks ? 0 : 1; i < G_N_ELEMENTS(duration_units); i++) {
        guint64 count = rest / duration_units[i].factor;
        if (count > 0)
            append_count(out, count, duration_units[i].suffix);
        rest %= duration_units[i].factor;
    }
    return g_string_free(out, FALSE);
}

gboolean lh_size_parse(const char *text, gint64 *out_bytes, GError **error)
{
    static const char what[] = "size";
    const char *p = text;
    guint64 count;
    gboolean too_large = FALSE;
    if (p == NULL || !read_digits(&p, &count, &too_large))
        return refuse(error, what, text,
                      too_large ? "is too large" : "must be like 1000, 500M or 15Gi");
    for (guint i = 0; i < G_N_ELEMENTS(size_units); i++) {
        if (strcmp(p, size_units[i].suffix) != 0)
            continue;
        guint64 total = 0;
        if (!add_product(&total, count, size_units[i].factor))
            return refuse(error, what, text, "is too large");
        *out_bytes = (gint64)total;
        return TRUE;
    }
    return refuse(error, what, text, "units are K, M, G, T, P, Ki, Mi, Gi, Ti and Pi");
}

char *lh_size_format(gint64 bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const char *sign = bytes < 0 ? "-" : "";
    guint64 n = bytes < 0 ? -(guint64)bytes : (guint64)bytes;
    if (n < 1024)
        return g_strdup_printf("%s%" G_GUINT64_FORMAT " B", sign, n);
    guint i = 0;
    guint64 tenths;
    do {
        i++;
        guint64 unit = 1ull << (10 * i);
        /* The remainder is below 2^60, so ten times it stays below 2^64. */
        tenths = n / unit * 10 + (n % unit * 10 + unit / 2) / unit;
    } while (tenths >= 10240 && i + 1 < G_N_ELEMENTS(names));
    if (tenths % 10 == 0)
        return g_strdup_printf("%s%" G_GUINT64_FORMAT " %s", sign, tenths / 10, names[i]);
    return g_strdup_printf("%s%" G_GUINT64_FORMAT ".%" G_GUINT64_FORMAT " %s", sign, tenths / 10,
                           tenths % 10, names[i]);
}

/* Reads exactly @n digits at *@text. */
static gboolean read_field(const char **text, guint n, gint *out)
{
    gint value = 0;
    const char *p = *text;
    for (guint i = 0; i < n; i++, p++) {
        if (!g_ascii_isdigit(*p))
            return FALSE;
        value = value * 10 + (*p - '0');
    }
    *text = p;
    *out = value;
    return TRUE;
}

static gboolean read_char(const char **text, const char *allowed)
{
    if (**text == '\0' || strchr(allowed, **text) == NULL)
        return FALSE;
    (*text)++;
    return TRUE;
}

/* ".123456789" → 123; digits after the third are cut off, so that a time never moves up. */
static gboolean read_fraction(const char **text, gint *out_ms)
{
    *out_ms = 0;
    if (!read_char(text, "."))
        return TRUE;
    gint digits = 0;
    gint value = 0;
    for (; g_ascii_isdigit(**text); (*text)++, digits++) {
        if (digits < 3)
            value = value * 10 + (**text - '0');
    }
    for (gint i = digits; i < 3; i++)
        value *= 10;
    *out_ms = value;
    return digits >= 1 && digits <= 9;
}

static gboolean read_offset(const char **text, gint *out_minutes)
{
    *out_minutes = 0;
    if (read_char(text, "Zz"))
        return TRUE;
    gboolean west = **text == '-';
    gint hours;
    gint minutes;
    if (!read_char(text, "+-") || !read_field(text, 2, &hours) || !read_char(text, ":") ||
        !read_field(text, 2, &minutes) || hours > 23 || minutes > 59)
        return FALSE;
    *out_minutes = (hours * 60 + minutes) * (west ? -1 : 1);
    return TRUE;
}

/* Gregorian. Counted from the first of March, so that a leap day ends a year. */
static gint64 days_from_1970(gint year, gint month, gint day)
{
    gint64 years = month > 2 ? year : year - 1;
    gint64 months = (month + 9) % 12;
    return years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day -
           719469;
}

gboolean lh_time_parse(const char *text, gint64 *out_ms, GError **error)
{
    static const char what[] = "time";
    gint year, month, day, hour, minute, second, ms, offset;
    const char *p = text;
    if (p == NULL || !read_field(&p, 4, &year) || !read_char(&p, "-") ||
        !read_field(&p, 2, &month) || !read_char(&p, "-") || !read_field(&p, 2, &day) ||
        !read_char(&p, "Tt") || !read_field(&p, 2, &hour) || !read_char(&p, ":") ||
        !read_field(&p, 2, &minute) || !read_char(&p, ":") || !read_field(&p, 2, &second) ||
        !read_fraction(&p, &ms) || !read_offset(&p, &offset) || *p != '\0')
        return refuse(error, what, text, "must be RFC 3339, like 2026-05-01T12:00:00.000Z");
    if (!g_date_valid_dmy((GDateDay)day, (GDateMonth)month, (GDateYear)year))
        return refuse(error, what, text, "there is no such day");
    if (hour > 23 || minute > 59 || second > 60)
        return refuse(error, what, text, "there is no such time of day");

    gint64 start_of_minute = days_from_1970(year, month, day) * 86400 + hour * 3600 +
                             (minute - offset) * 60;
    /* A leap second ends a UTC day; POSIX time gives it the number of the second after it. */
    if (second == 60 && (start_of_minute + 60) % 86400 != 0)
        return refuse(error, what, text, "there is no such time of day");
    gint64 total = (start_of_minute + second) * 1000 + ms;
    if (total < 0 || total >= END_OF_9998_MS)
        return refuse(error, what, text, "must be within the years 1970 to 9998");
    *out_ms = total;
    return TRUE;
}

static void write_digits(char *at, int n, int value)
{
    while (n-- > 0) {
        at[n] = (char)('0' + value % 10);
        value /= 10;
    }
}

char *lh_time_format(gint64 epoch_ms)
{
    epoch_ms = CLAMP(epoch_ms, 0, END_OF_9998_MS - 1);
    time_t seconds = (time_t)(epoch_ms / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    char *text = g_strdup("0000-00-00T00:00:00.000Z");
    write_digits(text, 4, tm.tm_year + 1900);
    write_digits(text + 5, 2, tm.tm_mon + 1);
    write_digits(text + 8, 2, tm.tm_mday);
    write_digits(text + 11, 2, tm.tm_hour);
    write_digits(text + 14, 2, tm.tm_min);
    write_digits(text + 17, 2, tm.tm_sec);
    write_digits(text + 20, 3, (int)(epoch_ms % 1000));
    return text;
}

gboolean lh_name_valid(const char *name, gsize max_len)
{
    if (name == NULL)
        return FALSE;
    gsize n = 0;
    for (; name[n] != '\0'; n++) {
        if (n >= max_len ||
            !(g_ascii_isalnum(name[n]) || name[n] == '.' || name[n] == '_' || name[n] == '-'))
            return FALSE;
    }
    return n > 0 && g_ascii_isalnum(name[0]) && g_ascii_isalnum(name[n - 1]);
}

gboolean lh_pool_name_valid(const char *name)
{
    if (name == NULL)
        return FALSE;
    gsize n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n >= 1 && n <= 63 && name[n] == '\0';
}

char *lh_text_pad(const char *text, glong width)
{
    glong gap = MAX(width - g_utf8_strlen(text, -1), 1);
    return g_strdup_printf("%s%*s", text, (int)gap, "");
}

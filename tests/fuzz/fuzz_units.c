/*
 * base/units on any text and any number: what is read is what a slow reader finds, what is written reads
 * back as itself, and names are what one regular expression says.
 */
#include "base/json.h"
#include "base/units.h"
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Durations and sizes once more, with 128 bits and no cleverness. -1: not one. */
__extension__ typedef __int128 Wide;

static Wide slow_number(const char **text)
{
    Wide value = 0;
    const char *start = *text;

    for (; **text >= '0' && **text <= '9'; (*text)++) {
        value = value * 10 + (**text - '0');
        if (value > LH_JSON_MAX_INT)
            return -1;
    }
    return *text == start ? -1 : value;
}

static Wide slow_units(const char *text, const char *const *names, const gint64 *factors,
                       gboolean several)
{
    Wide total = 0;
    guint next = 0;

    do {
        Wide count = slow_number(&text);
        gsize len = several ? strcspn(text, "0123456789") : strlen(text);
        guint i = next;
        if (count < 0)
            return -1;
        while (names[i] != NULL && (strlen(names[i]) != len || memcmp(names[i], text, len) != 0))
            i++;
        if (names[i] == NULL)
            return -1;
        total += count * factors[i];
        if (total > LH_JSON_MAX_INT)
            return -1;
        next = i + 1;
        text += len;
    } while (*text != '\0');
    return total;
}

static void check_duration(const char *text)
{
    static const char *const names[] = {"w", "d", "h", "m", "s", "ms", NULL};
    static const gint64 factors[] = {604800000, 86400000, 3600000, 60000, 1000, 1};
    gint64 value = -7, again = -7;
    GError *error = NULL;
    gboolean good = lh_duration_parse(text, &value, &error);
    Wide slow = slow_units(text, names, factors, TRUE);

    FUZZ_CHECK(good == (slow >= 0), "duration \"%s\"", text);
    FUZZ_CHECK(value == (good ? (gint64)slow : -7), "duration \"%s\": %" PRId64, text, value);
    if (good) {
        g_autofree char *printed = lh_duration_format(value);
        g_autofree char *twice = NULL;
        FUZZ_CHECK(lh_duration_parse(printed, &again, NULL) && again == value, "%s", printed);
        twice = lh_duration_format(again);
        FUZZ_CHECK(strcmp(printed, twice) == 0, "%s, %s", printed, twice);
    } else {
        fuzz_check_error(error);
    }
}

static void check_size(const char *text)
{
    static const char *const names[] = {"",   "K",  "M",  "G",  "T",  "P",
                                        "Ki", "Mi", "Gi", "Ti", "Pi", NULL};
    static const gint64 factors[] = {1,
                                     1000,
                                     1000000,
                                     1000000000,
                                     1000000000000,
                                     1000000000000000,
                                     G_GINT64_CONSTANT(1) << 10,
                                     G_GINT64_CONSTANT(1) << 20,
                                     G_GINT64_CONSTANT(1) << 30,
                                     G_GINT64_CONSTANT(1) << 40,
                                     G_GINT64_CONSTANT(1) << 50};
    gint64 value = -7;
    GError *error = NULL;
    gboolean good = lh_size_parse(text, &value, &error);
    Wide slow = slow_units(text, names, factors, FALSE);

    FUZZ_CHECK(good == (slow >= 0), "size \"%s\"", text);
    FUZZ_CHECK(value == (good ? (gint64)slow : -7), "size \"%s\": %" PRId64, text, value);
    if (!good)
        fuzz_check_error(error);
}

static void check_time(const char *text)
{
    gint64 value = -7, again = -7;
    GError *error = NULL;

    if (!lh_time_parse(text, &value, &error)) {
        FUZZ_CHECK(value == -7, "%s", text);
        fuzz_check_error(error);
        return;
    }
    g_autofree char *printed = lh_time_format(value);
    FUZZ_CHECK(lh_time_parse(printed, &again, NULL) && again == value, "%s: %s", text, printed);
    if (strstr(text, ":60") == NULL) { /* GLib knows no leap seconds, and only capital T and Z */
        g_autofree char *upper = g_ascii_strup(text, -1);
        g_autoptr(GDateTime) slow = g_date_time_new_from_iso8601(upper, NULL);
        if (slow != NULL)
            FUZZ_CHECK(g_date_time_to_unix(slow) * 1000 +
                               g_date_time_get_microsecond(slow) / 1000 ==
                           value,
                       "time \"%s\": %" PRId64, text, value);
    }
}

static void check_number(gint64 number)
{
    g_autofree char *duration = lh_duration_format(number);
    g_autofree char *size = lh_size_format(number);
    g_autofree char *time = lh_time_format(number);
    gint64 read = -7;
    long double shown, most, step = 1,
                             exact = number < 0 ? -(long double)number : (long double)number;
    const char *units = "KMGTPE", *unit;
    char *end = NULL;

    if (number >= 0 && number <= LH_JSON_MAX_INT)
        FUZZ_CHECK(lh_duration_parse(duration, &read, NULL) && read == number, "%s", duration);
    FUZZ_CHECK(lh_time_parse(time, &read, NULL), "%s", time);
    if (number >= 0 && number <= read)
        FUZZ_CHECK(read == number, "%s is %" PRId64 ", not %" PRId64, time, read, number);

    /* The size is rounded to a tenth of the unit that it names. */
    shown = g_ascii_strtod(size + (*size == '-'), &end);
    FUZZ_CHECK(*end == ' ', "%s", size);
    unit = strchr(units, end[1]);
    FUZZ_CHECK(unit != NULL || strcmp(end, " B") == 0, "%s", size);
    for (const char *u = units; unit != NULL && u <= unit; u++)
        step *= 1024;
    most = step / 20 + step * 1e-12L + 1; /* a tenth has no exact double */
    FUZZ_CHECK(shown * step - exact <= most && exact - shown * step <= most,
               "%" PRId64 " is not %s", number, size);
}

static void check_names(const char *text)
{
    static GRegex *name, *pool;
    gsize max = 1 + strlen(text) / 2;

    if (name == NULL) {
        name = g_regex_new("\\A[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\\z", G_REGEX_RAW, 0, NULL);
        pool = g_regex_new("\\A[a-z0-9-]{1,63}\\z", G_REGEX_RAW, 0, NULL);
    }
    FUZZ_CHECK(lh_name_valid(text, 253) ==
                   (strlen(text) <= 253 && g_regex_match(name, text, 0, NULL)),
               "name \"%s\"", text);
    FUZZ_CHECK(lh_name_valid(text, max) ==
                   (strlen(text) <= max && g_regex_match(name, text, 0, NULL)),
               "name \"%s\"", text);
    FUZZ_CHECK(lh_pool_name_valid(text) == g_regex_match(pool, text, 0, NULL), "pool \"%s\"", text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    gsize len = 0;
    g_autofree char *text = fuzz_rest(&bytes, &len);
    guint64 number;

    check_duration(text);
    check_size(text);
    check_time(text);
    check_names(text);
    bytes = (FuzzBytes){data, size};
    number = fuzz_u64(&bytes);
    check_number((gint64)number);
    check_number((gint64)(number >> (size % 64)));
    return 0;
}

/*
 * One line for each event, logfmt or JSON, written with one write(2) to standard error or to a
 * sink.
 *
 * A line is always one line: what is not plain is quoted with JSON's escapes, so no value can forge
 * another field or another line. It must not fail: a line that cannot be written is lost.
 */
#include "base/log.h"

#include "base/json.h"
#include "base/units.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RING_BUFFERS 16
#define RING_BYTES   256

static gint lowest_level = LH_LOG_INFO; /* atomic */
static gint line_format = LH_LOG_TEXT;  /* atomic */

static GMutex sink_lock;
static LhLogSink sink_func;
static gpointer sink_data;

/* Of this thread, while lines are held; never longer than PIPE_BUF but for a single long line. */
static __thread GString *held;

static const char *const level_names[] = {
    [LH_LOG_DEBUG] = "debug",
    [LH_LOG_INFO] = "info",
    [LH_LOG_WARNING] = "warning",
    [LH_LOG_ERROR] = "error",
};

void lh_log_setup(LhLogLevel lowest, LhLogFormat format)
{
    g_atomic_int_set(&lowest_level, (gint)lowest);
    g_atomic_int_set(&line_format, (gint)format);
}

gboolean lh_log_level_parse(const char *text, LhLogLevel *out)
{
    if (text == NULL)
        return FALSE;
    if (strcmp(text, "warn") == 0)
        text = "warning";
    for (guint i = 0; i < G_N_ELEMENTS(level_names); i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *out = (LhLogLevel)i;
            return TRUE;
        }
    }
    return FALSE;
}

gboolean lh_log_enabled(LhLogLevel level)
{
    return (gint)level >= g_atomic_int_get(&lowest_level);
}

/* Bytes of @text to keep: all, or as many whole characters as fit into @max. */
static gsize kept_bytes(const char *text, gsize len, gsize max)
{
    if (len <= max)
        return len;
    gsize n = max;
    while (n > 0 && ((guchar)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static gboolean is_plain(const char *text)
{
    if (*text == '\0')
        return FALSE;
    for (const char *p = text; *p != '\0'; p++) {
        if (!g_ascii_isgraph(*p) || *p == '"' || *p == '=' || *p == '\\')
            return FALSE;
    }
    return TRUE;
}

static void append_field(GString *line, LhLogFormat format, const char *key, const char *value)
{
    g_autofree char *cut = NULL;
    gsize len = value != NULL ? strlen(value) : 0;
    if (len > LH_LOG_MAX_VALUE) {
        g_autofree char *head = g_strndup(value, kept_bytes(value, len, LH_LOG_MAX_VALUE));
        value = cut = g_strconcat(head, "…", NULL);
    }
    if (format == LH_LOG_JSON) {
        lh_json_append_key(line, key);
        lh_json_append_string(line, value);
        return;
    }
    if (line->len > 0)
        g_string_append_c(line, ' ');
    g_string_append(line, key);
    g_string_append_c(line, '=');
    if (value != NULL && is_plain(value))
        g_string_append(line, value);
    else
        lh_json_append_string(line, value);
}

static void write_line(const char *data, gsize len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        data += n;
        len -= (gsize)n;
    }
}

static void write_held(void)
{
    write_line(held->str, held->len);
    g_string_truncate(held, 0);
}

static void emit(GString *line)
{
    g_mutex_lock(&sink_lock);
    if (sink_func != NULL) {
        sink_func(line->str, sink_data);
        g_mutex_unlock(&sink_lock);
        return;
    }
    g_mutex_unlock(&sink_lock);
    g_string_append_c(line, '\n');
    int saved_errno = errno;
    if (held == NULL) {
        write_line(line->str, line->len);
    } else {
        if (held->len + line->len > PIPE_BUF)
            write_held();
        g_string_append_len(held, line->str, (gssize)line->len);
    }
    errno = saved_errno;
}

void lh_log_hold(void)
{
    g_assert(held == NULL);
    held = g_string_sized_new(PIPE_BUF);
}

void lh_log_release(void)
{
    int saved_errno = errno;
    write_held();
    errno = saved_errno;
    g_string_free(g_steal_pointer(&held), TRUE);
}

/* The time of a line; lines of one millisecond share the text. */
static const char *time_text(void)
{
    static __thread gint64 last_ms = -1;
    static __thread char text[40];
    gint64 now_ms = g_get_real_time() / 1000;
    if (now_ms != last_ms) {
        g_autofree char *fresh = lh_time_format(now_ms);
        g_strlcpy(text, fresh, sizeof text);
        last_ms = now_ms;
    }
    return text;
}

void lh_log(LhLogLevel level, const char *message, ...)
{
    if (!lh_log_enabled(level))
        return;
    LhLogFormat format = (LhLogFormat)g_atomic_int_get(&line_format);
    g_autoptr(GString) line = g_string_sized_new(256);
    if (format == LH_LOG_JSON)
        g_string_append_c(line, '{');
    append_field(line, format, "time", time_text());
    append_field(line, format, "level", level_names[level]);
    append_field(line, format, "msg", message);

    va_list args;
    va_start(args, message);
    const char *key;
    while ((key = va_arg(args, const char *)) != NULL) {
        const char *value = va_arg(args, const char *);
        append_field(line, format, key, value);
        if (value == NULL)
            break; /* it cannot be told from the end of the list */
    }
    va_end(args);
    if (format == LH_LOG_JSON)
        g_string_append_c(line, '}');
    emit(line);
}

const char *lh_fmt(const char *format, ...)
{
    static __thread char ring[RING_BUFFERS][RING_BYTES];
    static __thread guint next;
    char *buf = ring[next++ % RING_BUFFERS];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(buf, RING_BYTES, format, args);
    va_end(args);
    if (wanted < 0) {
        buf[0] = '\0';
    } else if (wanted >= RING_BYTES) {
        /* Full: take back a character that was cut in two. */
        const char *end;
        if (!g_utf8_validate(buf, -1, &end) && strlen(end) < 4)
            buf[end - buf] = '\0';
    }
    return buf;
}

void lh_log_set_sink(LhLogSink sink, gpointer data)
{
    g_mutex_lock(&sink_lock);
    sink_func = sink;
    sink_data = data;
    g_mutex_unlock(&sink_lock);
}

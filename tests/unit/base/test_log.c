/*
 * base/log: a line is one line whatever the values hold, levels, the ring of lh_fmt, threads.
 */
/* suite: threads */
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static GPtrArray *lines;

static void keep(const char *line, gpointer data)
{
    assert_ptr_equal(data, &lines);
    g_ptr_array_add(lines, g_strdup(line));
}

static int setup(void **state)
{
    (void)state;
    lines = g_ptr_array_new_with_free_func(g_free);
    lh_log_setup(LH_LOG_INFO, LH_LOG_TEXT);
    lh_log_set_sink(keep, &lines);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lh_log_set_sink(NULL, NULL);
    g_ptr_array_unref(lines);
    return 0;
}

/* The only line, after its time, which must be the present. */
static const char *only_line(void)
{
    assert_int_equal(lines->len, 1);
    const char *line = g_ptr_array_index(lines, 0);
    assert_true(g_str_has_prefix(line, "time="));
    g_autofree char *time = g_strndup(line + 5, 24);
    gint64 ms;
    assert_true(lh_time_parse(time, &ms, NULL));
    assert_true(ABS(ms - g_get_real_time() / 1000) < 60000);
    assert_int_equal(line[29], ' ');
    return line + 30;
}

static void a_line_has_time_level_message_and_fields(void **state)
{
    (void)state;
    lh_log(LH_LOG_INFO, "lease lost", "lease", "00ab", "next", "campaign again", NULL);
    assert_string_equal(only_line(),
                        "level=info msg=\"lease lost\" lease=00ab next=\"campaign again\"");
}

static void what_is_not_plain_is_quoted(void **state)
{
    (void)state;
    lh_log(LH_LOG_ERROR, "started", "a", "", "b", "x=y", "c", "say \"hi\"", "d", "back\\slash", "e",
           "ü", "f", "\xff", "g", "s3://b/k/?x:[]{},", NULL);
    assert_string_equal(only_line(),
                        "level=error msg=started a=\"\" b=\"x=y\" c=\"say \\\"hi\\\"\" "
                        "d=\"back\\\\slash\" e=\"ü\" f=\"\xef\xbf\xbd\" "
                        "g=s3://b/k/?x:[]{},");
}

static void values_cannot_forge_lines_or_fields(void **state)
{
    (void)state;
    lh_log(LH_LOG_INFO, "m\nlevel=error", "a", "1\r\ntime=x level=error", "b",
           "\x1b[2J\x7f\xc2\x9b", NULL);
    const char *line = only_line();
    for (const char *p = line; *p != '\0'; p++)
        assert_false(g_ascii_iscntrl(*p));
    assert_string_equal(line, "level=info msg=\"m\\nlevel=error\" a=\"1\\r\\ntime=x level=error\" "
                              "b=\"\\u001b[2J\\u007f\\u009b\"");
}

static void json_lines_parse(void **state)
{
    (void)state;
    lh_log_setup(LH_LOG_DEBUG, LH_LOG_JSON);
    lh_log(LH_LOG_DEBUG, "m \"q\"", "a", "1\n2", "b", "", "c", "\xff", NULL);
    assert_int_equal(lines->len, 1);
    const char *line = g_ptr_array_index(lines, 0);
    g_autoptr(cJSON) item = lh_json_parse(line, strlen(line), 10000, NULL);
    assert_non_null(item);
    assert_string_equal(lh_json_get_string(item, "level", ""), "debug");
    assert_string_equal(lh_json_get_string(item, "msg", ""), "m \"q\"");
    assert_string_equal(lh_json_get_string(item, "a", ""), "1\n2");
    assert_string_equal(lh_json_get_string(item, "b", "x"), "");
    assert_string_equal(lh_json_get_string(item, "c", ""), "\xef\xbf\xbd");
    assert_int_equal(cJSON_GetArraySize(item), 6);
    assert_null(strchr(line, '\n'));
}

static void a_null_value_ends_the_list(void **state)
{
    (void)state;
    const char *nothing = NULL;
    lh_log(LH_LOG_INFO, "m", "a", "1", "b", nothing, "c", "3", NULL);
    assert_string_equal(only_line(), "level=info msg=m a=1 b=null");
}

static void long_values_are_cut_between_characters(void **state)
{
    (void)state;
    g_autoptr(GString) text = g_string_new("x");
    while (text->len < LH_LOG_MAX_VALUE * 3)
        g_string_append(text, "€"); /* three bytes; 2047 is no multiple of three */
    lh_log(LH_LOG_INFO, "m", "v", text->str, "after", "1", NULL);
    const char *line = only_line();
    assert_true(g_utf8_validate(line, -1, NULL));
    assert_null(strstr(line, "\xef\xbf\xbd"));
    assert_non_null(strstr(line, "€…\" after=1"));
    gsize len = strlen(line);
    assert_true(len > LH_LOG_MAX_VALUE - 10 && len < LH_LOG_MAX_VALUE + 60);

    g_ptr_array_set_size(lines, 0);
    g_autofree char *fits = g_strnfill(LH_LOG_MAX_VALUE, 'x');
    lh_log(LH_LOG_INFO, "m", "v", fits, NULL);
    assert_non_null(strstr(only_line(), fits));
    assert_null(strstr(only_line(), "…"));
}

static void levels_are_kept_apart(void **state)
{
    (void)state;
    lh_log_setup(LH_LOG_WARNING, LH_LOG_TEXT);
    assert_false(lh_log_enabled(LH_LOG_DEBUG));
    assert_false(lh_log_enabled(LH_LOG_INFO));
    assert_true(lh_log_enabled(LH_LOG_WARNING));
    assert_true(lh_log_enabled(LH_LOG_ERROR));
    lh_log(LH_LOG_INFO, "no", NULL);
    lh_log(LH_LOG_WARNING, "yes", NULL);
    assert_string_equal(only_line(), "level=warning msg=yes");
}

static void levels_are_parsed(void **state)
{
    (void)state;
    static const char *const names[] = {"debug", "info", "warning", "error"};
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        LhLogLevel level;
        assert_true(lh_log_level_parse(names[i], &level));
        assert_int_equal(level, i);
    }
    LhLogLevel level = LH_LOG_DEBUG;
    assert_true(lh_log_level_parse("warn", &level));
    assert_int_equal(level, LH_LOG_WARNING);
    static const char *const bad[] = {"", "INFO", "inf", "info ", "4", "warnings"};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++)
        assert_false(lh_log_level_parse(bad[i], &level));
    assert_false(lh_log_level_parse(NULL, &level));
    assert_int_equal(level, LH_LOG_WARNING);
}

static void fmt_gives_sixteen_values_at_once(void **state)
{
    (void)state;
    const char *values[17];
    for (int i = 0; i < 17; i++)
        values[i] = lh_fmt("%d", i);
    for (int i = 1; i < 17; i++) {
        char expected[8];
        g_snprintf(expected, sizeof expected, "%d", i);
        assert_string_equal(values[i], expected);
    }
    assert_ptr_equal(values[0], values[16]);
}

static void fmt_cuts_long_values_between_characters(void **state)
{
    (void)state;
    g_autofree char *fill = g_strnfill(300, 'x');
    assert_int_equal(strlen(lh_fmt("%s", fill)), 255);
    assert_int_equal(strlen(lh_fmt("%.255s", fill)), 255);
    assert_int_equal(strlen(lh_fmt("%.254s€", fill)), 254);
    assert_int_equal(strlen(lh_fmt("%.253s€", fill)), 253);
    assert_int_equal(strlen(lh_fmt("%.252s€", fill)), 255);
    assert_int_equal(strlen(lh_fmt("%.253s😀", fill)), 253);
    assert_string_equal(lh_fmt("%s", ""), "");
}

static gpointer log_much(gpointer data)
{
    for (guint i = 0; i < 500; i++)
        lh_log(LH_LOG_INFO, "m", "thread", lh_fmt("%d", GPOINTER_TO_INT(data)), "i",
               lh_fmt("%u", i), NULL);
    return NULL;
}

static void threads_do_not_mix_their_lines(void **state)
{
    (void)state;
    GThread *threads[4];
    for (gint i = 0; i < 4; i++)
        threads[i] = g_thread_new("log", log_much, GINT_TO_POINTER(i));
    for (gint i = 0; i < 4; i++)
        g_thread_join(threads[i]);
    assert_int_equal(lines->len, 2000);
    guint next[4] = {0};
    for (guint i = 0; i < lines->len; i++) {
        const char *rest = (const char *)g_ptr_array_index(lines, i) + 30;
        gint thread = rest[strlen("level=info msg=m thread=")] - '0';
        assert_true(thread >= 0 && thread < 4);
        g_autofree char *expected = g_strdup_printf("level=info msg=m thread=%d i=%u", thread,
                                                    next[thread]++);
        assert_string_equal(rest, expected);
    }
}

static void without_a_sink_lines_go_to_standard_error(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    int saved = dup(STDERR_FILENO);
    lh_log_set_sink(NULL, NULL);
    assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
    errno = 1234;
    lh_log(LH_LOG_INFO, "out", "k", "v", NULL);
    assert_true(dup2(fds[0], STDERR_FILENO) >= 0); /* cannot be written */
    lh_log(LH_LOG_INFO, "lost", NULL);
    int after = errno;
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fds[1]);
    char buf[200] = {0};
    ssize_t n = read(fds[0], buf, sizeof buf - 1);
    close(fds[0]);
    assert_true(n > 0);
    assert_string_equal(buf + 30, "level=info msg=out k=v\n");
    assert_int_equal(after, 1234);
    assert_int_equal(lines->len, 0);
}

/* What comes out of a pipe when @n lines of about @bytes are held and released; *pieces: of its writes. */
static char *held_lines(guint n, guint bytes, guint *pieces)
{
    int fds[2];
    /* Packets: each read gives what one write wrote. */
    assert_int_equal(pipe2(fds, O_DIRECT | O_NONBLOCK), 0);
    int saved = dup(STDERR_FILENO);
    g_autofree char *filler = g_strnfill(bytes, 'x');
    GString *all = g_string_new(NULL);
    char buf[65536];
    ssize_t len;
    *pieces = 0;
    lh_log_set_sink(NULL, NULL);
    assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
    lh_log_hold();
    for (guint i = 0; i < n; i++)
        lh_log(LH_LOG_INFO, "held", "i", lh_fmt("%u", i), "filler", filler, NULL);
    if (n * bytes < 1000)
        assert_int_equal(read(fds[0], buf, sizeof buf), -1);
    lh_log_release();
    lh_log(LH_LOG_INFO, "after", NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    while ((len = read(fds[0], buf, sizeof buf)) > 0) {
        assert_true(buf[len - 1] == '\n' && len <= 4096);
        g_string_append_len(all, buf, len);
        (*pieces)++;
    }
    close(fds[0]);
    close(fds[1]);
    return g_string_free(all, FALSE);
}

static void held_lines_are_written_many_at_once(void **state)
{
    (void)state;
    guint pieces;
    g_autofree char *few = held_lines(20, 10, &pieces);
    assert_int_equal(pieces, 2); /* the held ones, and the one after */
    g_autofree char *many = held_lines(100, 200, &pieces);
    assert_in_range(pieces, 5, 12);
    g_auto(GStrv) split = g_strsplit(many, "\n", -1);
    assert_int_equal(g_strv_length(split), 102);
    for (guint i = 0; i < 100; i++) {
        g_autofree char *field = g_strdup_printf(" msg=held i=%u filler=x", i);
        assert_non_null(strstr(split[i], field));
    }
    assert_non_null(strstr(split[100], "msg=after"));
    assert_non_null(strstr(few, "msg=held i=19"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_line_has_time_level_message_and_fields),
        T(what_is_not_plain_is_quoted),
        T(values_cannot_forge_lines_or_fields),
        T(json_lines_parse),
        T(a_null_value_ends_the_list),
        T(long_values_are_cut_between_characters),
        T(levels_are_kept_apart),
        T(levels_are_parsed),
        T(fmt_gives_sixteen_values_at_once),
        T(fmt_cuts_long_values_between_characters),
        T(threads_do_not_mix_their_lines),
        T(without_a_sink_lines_go_to_standard_error),
        T(held_lines_are_written_many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

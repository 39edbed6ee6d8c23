/*
 * See lines.h. One file for each item on each node, "lines-NODE@ITEM"; the first line of a run begins with '+'. A
 * line that is not whole does not count.
 */
#include "lines.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS (20 * 1000 * 1000)
#define FILES   "lines-"

gint64 lines_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (gint64)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static char *file_of(const char *dir, const char *item, const char *node)
{
    return g_strdup_printf("%s/" FILES "%s@%s", dir, node, item);
}

char *lines_exec(const char *dir)
{
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);

    g_assert(self != NULL);
    return g_strdup_printf("%s --lines %s", self, dir);
}

int lines_work(const char *dir)
{
    const struct timespec pause = {.tv_nsec = TICK_NS};
    g_autofree char *finish = g_build_filename(dir, "finish", NULL);
    g_autofree char *path = file_of(dir, g_getenv("LEASEHOLD_ITEM"), g_getenv("LEASEHOLD_NODE"));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    for (const char *mark = "+"; fd >= 0 && access(finish, F_OK) != 0; mark = "") {
        char line[32];
        int n = g_snprintf(line, sizeof line, "%s%" G_GINT64_FORMAT "\n", mark, lines_now_us());
        if (write(fd, line, (gsize)n) != n)
            return 1;
        nanosleep(&pause, NULL);
    }
    return fd < 0;
}

Lines lines_of(const char *dir, const char *item, const char *node)
{
    g_autofree char *path = file_of(dir, item, node), *text = NULL;
    Lines lines = {0};
    char *end;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return lines;
    for (const char *at = text; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        lines.last_us = g_ascii_strtoll(at, NULL, 10);
        if (lines.n++ == 0)
            lines.first_us = lines.last_us;
    }
    return lines;
}

static void run_clear(gpointer data)
{
    LinesRun *run = data;

    g_free(run->item);
    g_free(run->node);
}

static void add_runs(GArray *runs, const char *text, const char *node, const char *item)
{
    const char *end;

    for (const char *at = text; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        gint64 when_us = g_ascii_strtoll(at, NULL, 10);
        if (*at == '+') {
            const LinesRun run = {g_strdup(item), g_strdup(node), when_us, when_us};
            g_array_append_val(runs, run);
        } else {
            g_array_index(runs, LinesRun, runs->len - 1).last_us = when_us;
        }
    }
}

GArray *lines_runs(const char *dir)
{
    GArray *runs = g_array_new(FALSE, FALSE, sizeof(LinesRun));
    g_autoptr(GDir) files = g_dir_open(dir, 0, NULL);
    const char *name;

    g_array_set_clear_func(runs, run_clear);
    while (files != NULL && (name = g_dir_read_name(files)) != NULL) {
        g_autofree char *path = g_build_filename(dir, name, NULL), *text = NULL;
        const char *item = strchr(name, '@');
        if (!g_str_has_prefix(name, FILES) || item == NULL ||
            !g_file_get_contents(path, &text, NULL, NULL))
            continue;
        g_autofree char *node = g_strndup(name + strlen(FILES),
                                          (gsize)(item - name) - strlen(FILES));
        add_runs(runs, text, node, item + 1);
    }
    return runs;
}

/* See lines.h. One file for each item on each node; a line that is not whole does not count. */
#include "lines.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS (20 * 1000 * 1000)

gint64 lines_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (gint64)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static char *file_of(const char *dir, const char *item, const char *node)
{
    return g_strdup_printf("%s/lines-%s-%s", dir, item, node);
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

    while (fd >= 0 && access(finish, F_OK) != 0) {
        char line[32];
        int n = g_snprintf(line, sizeof line, "%" G_GINT64_FORMAT "\n", lines_now_us());
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

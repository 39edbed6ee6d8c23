/*
 * Draws progress. On a terminal the line is written over, with spaces where the last one was longer.
 */
#include "cli/progress.h"

#include "cli/output.h"

#include <string.h>
#include <unistd.h>

#define WIDTH 30

char *lh_progress_bar(gint64 done, gint64 of, guint width)
{
    guint full = of <= 0 ? width : (guint)((double)CLAMP(done, 0, of) / (double)of * width);
    GString *bar = g_string_new("[");
    for (guint i = 0; i < width; i++) {
        g_string_append_c(bar, i < full ? '=' : i == full ? '>' : ' ');
    }
    g_string_append_c(bar, ']');
    return g_string_free(bar, FALSE);
}

void lh_progress_init(LhProgress *progress, FILE *out)
{
    int fd = fileno(out);
    *progress = (LhProgress){.out = out, .terminal = fd >= 0 && isatty(fd)};
}

void lh_progress_show(LhProgress *progress, gint64 done, gint64 of, const char *text)
{
    g_autofree char *bar = lh_progress_bar(done, of, WIDTH);
    g_autofree char *line = g_strdup_printf("%s%s%" G_GINT64_FORMAT "/%" G_GINT64_FORMAT " %s",
                                            progress->terminal ? bar : "",
                                            progress->terminal ? " " : "", done, of, text);
    gsize before = progress->last != NULL ? strlen(progress->last) : 0;
    if (g_strcmp0(line, progress->last) == 0) {
        return;
    }
    if (progress->terminal) {
        fputc('\r', progress->out);
    }
    lh_output_text(progress->out, line);
    if (progress->terminal) {
        gsize now = strlen(line);
        fprintf(progress->out, "%*s", (int)(before > now ? before - now : 0), "");
    } else {
        fputc('\n', progress->out);
    }
    fflush(progress->out);
    g_free(progress->last);
    progress->last = g_steal_pointer(&line);
}

void lh_progress_end(LhProgress *progress)
{
    if (progress->terminal && progress->last != NULL) {
        fputc('\n', progress->out);
    }
    g_clear_pointer(&progress->last, g_free);
}

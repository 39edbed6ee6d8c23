/*
 * check-history FILE [CLOCK LATE]: checks a recorded history (recorded.h) against the invariants. The
 * two are tolerances, in milliseconds. Exit status: 0 nothing is wrong, 1 something is, 2 the file or
 * the arguments are not good.
 */
#include "tests/invariants/recorded.h"

#include <stdlib.h>

static gboolean read_tolerance(char **args, RecordedTolerance *tolerance)
{
    gint64 *numbers[] = {&tolerance->clock_ms, &tolerance->late_ms};
    for (guint i = 0; i < G_N_ELEMENTS(numbers); i++)
        if (!g_ascii_string_to_signed(args[i], 10, 0, G_MAXINT32, numbers[i], NULL))
            return FALSE;
    return TRUE;
}

int main(int argc, char **argv)
{
    RecordedTolerance tolerance = RECORDED_TOLERANCE;
    g_autoptr(GError) error = NULL;
    RecordedResult result;
    if ((argc != 2 && argc != 4) || (argc == 4 && !read_tolerance(argv + 2, &tolerance))) {
        fprintf(stderr, "usage: check-history FILE [CLOCK LATE], tolerances in ms\n");
        return 2;
    }
    g_autoptr(Recorded) recorded = recorded_load(argv[1], &error);
    if (recorded == NULL) {
        fprintf(stderr, "check-history: %s\n", error->message);
        return 2;
    }
    recorded_check(recorded, &tolerance, &result);
    recorded_result_print(&result, "", stdout);
    gboolean ok = result.violations == 0;
    recorded_result_clear(&result);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

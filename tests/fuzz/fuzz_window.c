/*
 * A policy's window of any text: what is read is within the limits, and reads the same when it is printed
 * again.
 */
#include "api/window.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_list(const LhWindowPair *pairs, guint n)
{
    LhWindowPair fitted[LH_WINDOW_PAIRS];

    FUZZ_CHECK(n <= LH_WINDOW_PAIRS, "%u pairs", n);
    for (guint i = 0; i < n; i++) {
        FUZZ_CHECK(pairs[i].age_ms >= 0 && pairs[i].n > 0, "pair %u", i);
        FUZZ_CHECK(i == 0 || pairs[i].age_ms < pairs[i - 1].age_ms, "pair %u", i);
    }
    FUZZ_CHECK(lh_window_fit(pairs, n, fitted) == n &&
                   memcmp(fitted, pairs, n * sizeof *pairs) == 0,
               "what fits is changed");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    gsize len = 0;
    g_autofree char *text = fuzz_rest(&bytes, &len), *printed = NULL;
    GError *error = NULL;
    LhWindow window, again;

    if (!lh_window_parse(text, &window, &error)) {
        fuzz_check_error(error);
        return 0;
    }
    check_list(window.granted, window.n_granted);
    check_list(window.held, window.n_held);
    printed = lh_window_print(&window);
    FUZZ_CHECK(lh_window_parse(printed, &again, NULL), "%s", printed);
    FUZZ_CHECK(memcmp(&window, &again, sizeof window) == 0, "%s", printed);
    return 0;
}

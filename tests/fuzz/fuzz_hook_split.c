/*
 * Splitting a hook's command on any text: words that are quoted and joined again split into the same
 * words, and nothing is expanded.
 */
#include "agent/hooks.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static char *join(char **words)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; words[i] != NULL; i++) {
        g_autofree char *quoted = g_shell_quote(words[i]);
        g_string_append_printf(text, "%s%s", i == 0 ? "" : " \t", quoted);
    }
    return g_string_free(text, FALSE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    gsize len = 0, letters = 0;
    g_autofree char *command = fuzz_rest(&bytes, &len);
    GError *error = NULL;
    g_auto(GStrv) words = lh_hook_split(command, &error), again = NULL;
    g_autofree char *joined = NULL;

    if (words == NULL) {
        fuzz_check_error(error);
        return 0;
    }
    FUZZ_CHECK(words[0] != NULL, "a command without a program");
    for (guint i = 0; words[i] != NULL; i++)
        letters += strlen(words[i]);
    FUZZ_CHECK(letters <= strlen(command), "longer than it was");
    if (strpbrk(command, "\"'\\#") ==
        NULL) { /* nothing quoted, no comment: white space alone parts */
        g_auto(GStrv) plain = g_strsplit_set(command, " \t\n", -1);
        guint n = 0;
        for (guint i = 0; plain[i] != NULL; i++)
            if (*plain[i] != '\0') {
                FUZZ_CHECK(words[n] != NULL && strcmp(words[n], plain[i]) == 0, "%s", plain[i]);
                n++;
            }
        FUZZ_CHECK(words[n] == NULL, "%s", words[n]);
    }
    joined = join(words);
    again = lh_hook_split(joined, &error);
    FUZZ_CHECK(again != NULL, "%s: %s", joined, error->message);
    FUZZ_CHECK(g_strv_equal((const char *const *)words, (const char *const *)again), "%s", joined);
    return 0;
}

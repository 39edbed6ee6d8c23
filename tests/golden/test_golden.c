/*
 * Recorded plan inputs and the plans they must give: each <name>.jsonl here is planned by the controllers
 * and compared, byte for byte, with <name>.plan.json. LEASEHOLD_GOLDEN_UPDATE=1 writes the answers anew;
 * read the difference before it is kept.
 */
#include "controllers/registry.h"
#include "runtime/record.h"

#include <glib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char *golden_dir(void)
{
    return g_build_filename(g_getenv("LEASEHOLD_SOURCE_ROOT"), "tests", "golden", NULL);
}

static void check_one(const char *dir, const char *name)
{
    g_autofree char *input = g_build_filename(dir, name, NULL);
    g_autofree char *stem = g_strndup(input, strlen(input) - strlen(".jsonl"));
    g_autofree char *answer = g_strconcat(stem, ".plan.json", NULL);
    g_autofree char *text = NULL, *want = NULL;
    g_autoptr(GString) got = g_string_new(NULL);
    g_autoptr(GError) error = NULL;
    gsize len;

    assert_true(g_file_get_contents(input, &text, &len, &error));
    assert_true(lh_record_plan(text, len, lh_controllers(), NULL, got, &error));
    g_string_append_c(got, '\n');
    if (g_getenv("LEASEHOLD_GOLDEN_UPDATE") != NULL)
        assert_true(g_file_set_contents(answer, got->str, (gssize)got->len, &error));
    assert_true(g_file_get_contents(answer, &want, NULL, &error));
    assert_string_equal(got->str, want);
}

static void recorded_inputs_give_their_plans(void **state)
{
    g_autofree char *dir_name = golden_dir();
    g_autoptr(GDir) dir = g_dir_open(dir_name, 0, NULL);
    const char *name;
    guint n = 0;

    (void)state;
    assert_non_null(dir);
    while ((name = g_dir_read_name(dir)) != NULL) {
        if (!g_str_has_suffix(name, ".jsonl"))
            continue;
        check_one(dir_name, name);
        n++;
    }
    assert_true(n >= 1);
}

static void a_line_that_is_not_an_input_is_named(void **state)
{
    static const char text[] =
        "{\"input\":\"leasehold/v1\",\"prefix\":\"/leasehold/\",\"revision\":7,\"now\":1}\n"
        "{\"key\":\"desired/services/x\",\"value\":3}\n";
    g_autoptr(GString) out = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    (void)state;
    assert_false(lh_record_plan(text, strlen(text), lh_controllers(), NULL, out, &error));
    assert_string_equal(error->message, "line 2: key and value must be strings");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_inputs_give_their_plans),
        cmocka_unit_test(a_line_that_is_not_an_input_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

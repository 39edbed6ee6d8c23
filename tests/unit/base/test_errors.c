/*
 * base/errors: each code has a class and a name of its own, foreign domains are retried.
 */
#include "base/errors.h"

#include <glib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    LhErrorCode code;
    LhErrorClass class;
    const char *name;
} expected[] = {
    {LH_ERR_INVALID, LH_CLASS_TERMINAL, "invalid"},
    {LH_ERR_NOT_FOUND, LH_CLASS_TERMINAL, "not_found"},
    {LH_ERR_CONFLICT, LH_CLASS_CONFLICT, "conflict"},
    {LH_ERR_FENCED, LH_CLASS_FATAL, "fenced"},
    {LH_ERR_UNAVAILABLE, LH_CLASS_RETRY, "unavailable"},
    {LH_ERR_UNKNOWN_OUTCOME, LH_CLASS_CONFLICT, "unknown_outcome"},
    {LH_ERR_OVERLOADED, LH_CLASS_RETRY, "overloaded"},
    {LH_ERR_COMPACTED, LH_CLASS_CONFLICT, "compacted"},
    {LH_ERR_NO_SPACE, LH_CLASS_RETRY, "no_space"},
    {LH_ERR_CANCELLED, LH_CLASS_RETRY, "cancelled"},
    {LH_ERR_AUTH, LH_CLASS_TERMINAL, "auth"},
    {LH_ERR_FORBIDDEN, LH_CLASS_TERMINAL, "forbidden"},
    {LH_ERR_IO, LH_CLASS_RETRY, "io"},
    {LH_ERR_CHECKSUM, LH_CLASS_TERMINAL, "checksum"},
    {LH_ERR_LEASE_LOST, LH_CLASS_FATAL, "lease_lost"},
    {LH_ERR_INTERNAL, LH_CLASS_FATAL, "internal"},
};

static void every_code_has_its_class_and_name(void **state)
{
    (void)state;
    assert_int_equal(G_N_ELEMENTS(expected), LH_N_ERRORS);
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        assert_int_equal(expected[i].code, i);
        assert_int_equal(lh_error_class(expected[i].code), expected[i].class);
        assert_string_equal(lh_error_name(expected[i].code), expected[i].name);
    }
}

static void gerrors_of_ours_have_the_class_of_their_code(void **state)
{
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        g_autoptr(GError) error = g_error_new_literal(LH_ERROR, (gint)i, "x");
        assert_int_equal(lh_gerror_class(error), expected[i].class);
    }
}

static void foreign_and_unknown_errors_are_retried(void **state)
{
    (void)state;
    g_autoptr(GError) foreign = g_error_new_literal(G_FILE_ERROR, LH_ERR_FENCED, "x");
    assert_int_equal(lh_gerror_class(foreign), LH_CLASS_RETRY);
    g_autoptr(GError) beyond = g_error_new_literal(LH_ERROR, LH_N_ERRORS, "x");
    assert_int_equal(lh_gerror_class(beyond), LH_CLASS_RETRY);
    g_autoptr(GError) negative = g_error_new_literal(LH_ERROR, -1, "x");
    assert_int_equal(lh_gerror_class(negative), LH_CLASS_RETRY);
}

static void a_text_in_a_message_ends_between_characters(void **state)
{
    static const struct {
        const char *text;
        gsize most;
        const char *shown;
    } rows[] = {
        {"", 0, ""},
        {"abc", 3, "abc"},
        {"abc", 2, "ab"},
        {"a\u00e9", 3, "a\u00e9"},
        {"a\u00e9", 2, "a"},
        {"\u65e5", 2, ""},
        {"\u65e5\u65e5", 5, "\u65e5"},
        {"abc", 0, ""},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *shown = lh_error_text(rows[i].text, rows[i].most);
        assert_string_equal(shown, rows[i].shown);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_class_and_name),
        cmocka_unit_test(gerrors_of_ours_have_the_class_of_their_code),
        cmocka_unit_test(foreign_and_unknown_errors_are_retried),
        cmocka_unit_test(a_text_in_a_message_ends_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

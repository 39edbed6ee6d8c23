/*
 * http/auth: the tokens file, line by line, and the Authorization header, whatever is in it.
 */
#include "base/errors.h"
#include "http/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char *digest_of(const char *token)
{
    return g_compute_checksum_for_string(G_CHECKSUM_SHA256, token, -1);
}

static LhTokens *parse(const char *text, GError **error)
{
    return lh_tokens_parse(text, strlen(text), error);
}

static void assert_token(const LhTokens *tokens, const char *token, const char *name, LhRole role)
{
    const char *found = "untouched";
    LhRole found_role = LH_ROLE_ANYONE;
    gboolean good = lh_tokens_find(tokens, token, &found, &found_role);
    assert_int_equal(good, name != NULL);
    assert_string_equal(found, name != NULL ? name : "untouched");
    assert_int_equal(found_role, name != NULL ? role : LH_ROLE_ANYONE);
}

static void test_tokens(void **state)
{
    (void)state;
    g_autofree char *a = digest_of("alpha"), *b = digest_of("beta"), *c = digest_of("gamma");
    g_autofree char *upper = g_ascii_strup(c, -1);
    g_autofree char *text = g_strdup_printf("# people\n\n"
                                            "alice\tadmin  sha256:%s # hers\r\n"
                                            "  bob operator sha256:%s\n"
                                            "team/ci.bot-1_a@b:c viewer sha256:%s",
                                            a, b, upper);
    g_autoptr(GError) error = NULL;
    g_autoptr(LhTokens) tokens = parse(text, &error);
    assert_null(error);
    assert_token(tokens, "alpha", "alice", LH_ROLE_ADMIN);
    assert_token(tokens, "beta", "bob", LH_ROLE_OPERATOR);
    assert_token(tokens, "gamma", "team/ci.bot-1_a@b:c", LH_ROLE_VIEWER);
    assert_token(tokens, "delta", NULL, LH_ROLE_ANYONE);
    assert_token(tokens, "", NULL, LH_ROLE_ANYONE);
    assert_token(tokens, "alpha ", NULL, LH_ROLE_ANYONE);
    assert_token(tokens, "Alpha", NULL, LH_ROLE_ANYONE);
    assert_token(tokens, a, NULL, LH_ROLE_ANYONE);
}

/* A token is replaced by a second line of the same name, before the first one goes. */
static void test_two_tokens_of_one(void **state)
{
    (void)state;
    g_autofree char *a = digest_of("old"), *b = digest_of("new");
    g_autofree char *text = g_strdup_printf("ci viewer sha256:%s\nci operator sha256:%s\n", a, b);
    g_autoptr(LhTokens) tokens = parse(text, NULL);
    assert_token(tokens, "old", "ci", LH_ROLE_VIEWER);
    assert_token(tokens, "new", "ci", LH_ROLE_OPERATOR);
}

static void test_nobody(void **state)
{
    (void)state;
    static const char *const empty[] = {"", "\n", "# nobody\n", " \t\r\n#"};
    for (guint i = 0; i < G_N_ELEMENTS(empty); i++) {
        g_autoptr(LhTokens) tokens = parse(empty[i], NULL);
        assert_non_null(tokens);
        assert_token(tokens, "", NULL, LH_ROLE_ANYONE);
    }
}

static void test_bad_lines(void **state)
{
    (void)state;
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a", "line 1: must be NAME ROLE sha256:HEX"},
        {"\n\na admin", "line 3: must be NAME ROLE sha256:HEX"},
        {"a admin sha256:" HEX " x", "line 1: must be NAME ROLE sha256:HEX"},
        {"a root sha256:" HEX, "line 1: the role must be viewer, operator or admin"},
        {"a anyone sha256:" HEX, "line 1: the role must be"},
        {"a Admin sha256:" HEX, "line 1: the role must be"},
        {"a admin " HEX, "line 1: the digest must be sha256:"},
        {"a admin sha256:" HEX "0", "line 1: the digest must be"},
        {"a admin sha256:x" HEX, "line 1: the digest must be"},
        {"a admin sha256:", "line 1: the digest must be"},
        {"a admin sha512:" HEX, "line 1: the digest must be"},
        {"a admin secret-token", "line 1: the digest must be"},
        {"anonymous admin sha256:" HEX, "line 1: the name must be"},
        {"a\"b admin sha256:" HEX, "line 1: the name must be"},
        {"a=b admin sha256:" HEX, "line 1: the name must be"},
        {"\xc3\xa9 admin sha256:" HEX, "line 1: the name must be"},
        {"a admin sha256:" HEX "\nb viewer sha256:" HEX, "line 2: the same digest as in line 1"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        assert_null(parse(cases[i].text, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        if (!g_str_has_prefix(error->message, cases[i].message)) {
            fail_msg("%s: %s", cases[i].text, error->message);
        }
        /* What stands there may be a token that somebody put in the wrong place. */
        assert_null(strstr(error->message, "secret-token"));
    }
    g_autoptr(GError) error = NULL;
    assert_null(lh_tokens_parse("\na\0", 3, &error));
    assert_string_equal(error->message, "line 2: holds a NUL");
    g_autofree char *name = g_strnfill(64, 'n');
    g_autofree char *fits = g_strdup_printf("%s admin sha256:" HEX, name);
    g_autofree char *over = g_strdup_printf("n%s admin sha256:" HEX, name);
    g_autoptr(LhTokens) good = parse(fits, NULL);
    assert_non_null(good);
    assert_null(parse(over, NULL));
}

static void test_bearer(void **state)
{
    (void)state;
    static const struct {
        const char *header, *token;
    } cases[] = {
        {"Bearer abc", "abc"},
        {"bearer abc", "abc"},
        {"BEARER   a.b-c_d~e+f/g==", "a.b-c_d~e+f/g=="},
        {"Bearer !\"#$%&'()*,:;<>?@[\\]^`{|}", "!\"#$%&'()*,:;<>?@[\\]^`{|}"},
        {NULL, NULL},
        {"", NULL},
        {"Bearer", NULL},
        {"Bearer ", NULL},
        {"Bearer    ", NULL},
        {"Bearerabc", NULL},
        {"Bearer\tabc", NULL},
        {"Bearer a b", NULL},
        {"Bearer abc ", NULL},
        {"Bearer abc\t", NULL},
        {"Bearer \xc3\xa9", NULL},
        {"Bearer a\x7f", NULL},
        {" Bearer abc", NULL},
        {"Basic YTpi", NULL},
        {"Bear", NULL},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *token = lh_bearer_token(cases[i].header);
        if (g_strcmp0(token, cases[i].token) != 0) {
            fail_msg("%s: %s", cases[i].header, token);
        }
    }
}

/* Any bytes: what is taken is printable, not empty, and the end of what was sent. */
static void test_bearer_of_any_bytes(void **state)
{
    (void)state;
    g_autoptr(GRand) random = g_rand_new_with_seed(7);
    guint taken = 0;
    for (guint i = 0; i < 20000; i++) {
        char *text = g_malloc0(24);
        gsize len = (gsize)g_rand_int_range(random, 0, 24), from = 0;
        if (g_rand_boolean(random)) {
            memcpy(text, "Bearer ", 7);
            from = 7;
            len = MAX(len, from);
        }
        for (gsize j = from; j < len; j++) {
            text[j] = (char)g_rand_int_range(random, j % 3 == 0 ? 1 : 33, j % 3 == 0 ? 256 : 127);
        }
        const char *token = lh_bearer_token(text);
        if (token != NULL) {
            taken++;
            assert_true(token > text && token < text + len);
            for (const char *p = token; *p != '\0'; p++) {
                assert_in_range((guchar)*p, 33, 126);
            }
        }
        g_free(text);
    }
    assert_in_range(taken, 1, 19999);
}

static void test_roles(void **state)
{
    (void)state;
    assert_string_equal(lh_role_name(LH_ROLE_VIEWER), "viewer");
    assert_string_equal(lh_role_name(LH_ROLE_OPERATOR), "operator");
    assert_string_equal(lh_role_name(LH_ROLE_ADMIN), "admin");
    assert_true(LH_ROLE_ANYONE < LH_ROLE_VIEWER && LH_ROLE_VIEWER < LH_ROLE_OPERATOR &&
                LH_ROLE_OPERATOR < LH_ROLE_ADMIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens), cmocka_unit_test(test_two_tokens_of_one),
        cmocka_unit_test(test_nobody), cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_bearer), cmocka_unit_test(test_bearer_of_any_bytes),
        cmocka_unit_test(test_roles),
    };
    return cmocka_run_group_tests_name("http/auth", tests, NULL, NULL);
}

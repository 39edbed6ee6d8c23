/*
 * Who a client is: first line an Authorization header, then a tokens file, in which '$' stands for the digest of
 * the header's token and '!' for the digest of another one.
 *
 * Header and file are what a slow reading by words makes of them: who has a line has its name and role, nobody
 * else has any; an error names the line that is wrong, and repeats nothing of it.
 */
#include "base/errors.h"
#include "http/auth.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define BLANKS " \t\r"

typedef struct {
    char *name, *digest; /* lower case */
    LhRole role;
    guint line;
} Row;

static void row_clear(gpointer data)
{
    g_free(((Row *)data)->name);
    g_free(((Row *)data)->digest);
}

static char *digest_of(const char *token)
{
    return g_compute_checksum_for_string(G_CHECKSUM_SHA256, token, -1);
}

/* ---- the header ---- */

static char *slow_token(const char *header)
{
    g_autofree char *scheme = g_strndup(header, 7);
    const char *token = header + strlen(scheme);

    if (g_ascii_strcasecmp(scheme, "bearer ") != 0)
        return NULL;
    while (*token == ' ')
        token++;
    for (const char *at = token; *at != '\0'; at++)
        if ((guchar)*at <= ' ' || (guchar)*at >= 0x7f)
            return NULL;
    return *token == '\0' ? NULL : g_strdup(token);
}

/* ---- the file ---- */

static gboolean slow_name(const char *name)
{
    return strlen(name) <= 64 && strcmp(name, "anonymous") != 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:/") ==
               strlen(name);
}

/* 0: no line; 1: a row; -1: wrong. */
static int slow_line(const char *line, Row *out)
{
    g_autofree char *plain = g_strndup(line, strcspn(line, "#"));
    g_auto(GStrv) pieces = g_strsplit_set(plain, BLANKS, -1);
    const char *words[4], *roles[] = {"viewer", "operator", "admin"};
    guint n = 0;

    for (guint i = 0; pieces[i] != NULL && n < G_N_ELEMENTS(words); i++)
        if (*pieces[i] != '\0')
            words[n++] = pieces[i];
    if (n == 0)
        return 0;
    if (n != 3 || !slow_name(words[0]) || !g_str_has_prefix(words[2], "sha256:") ||
        strlen(words[2]) != 7 + 64 || strspn(words[2] + 7, "0123456789abcdefABCDEF") != 64)
        return -1;
    for (guint i = 0; i < G_N_ELEMENTS(roles); i++)
        if (strcmp(words[1], roles[i]) == 0) {
            *out = (Row){.name = g_strdup(words[0]),
                         .digest = g_ascii_strdown(words[2] + 7, -1),
                         .role = (LhRole)(LH_ROLE_VIEWER + i)};
            return 1;
        }
    return -1;
}

/* FALSE: the file is refused. */
static gboolean slow_file(const char *text, gsize len, GArray *rows)
{
    for (gsize at = 0, number = 1; at < len; number++) {
        gsize size = 0;
        while (at + size < len && text[at + size] != '\n')
            size++;
        g_autofree char *line = g_strndup(text + at, size);
        Row row;
        int kind = strlen(line) < size ? -1 : slow_line(line, &row); /* a NUL */
        if (kind < 0)
            return FALSE;
        row.line = (guint)number;
        if (kind > 0)
            g_array_append_val(rows, row);
        at += size + 1;
    }
    for (guint i = 0; i < rows->len; i++)
        for (guint k = 0; k < i; k++)
            if (strcmp(g_array_index(rows, Row, i).digest, g_array_index(rows, Row, k).digest) == 0)
                return FALSE;
    return TRUE;
}

/* ---- */

static GString *with_digests(const char *text, gsize len, const char *token)
{
    g_autofree char *ours = digest_of(token), *other = digest_of("another");
    GString *out = g_string_new(NULL);

    for (gsize i = 0; i < len; i++)
        if (text[i] == '$')
            g_string_append(out, ours);
        else if (text[i] == '!')
            g_string_append(out, other);
        else
            g_string_append_c(out, text[i]);
    return out;
}

static void check_find(const LhTokens *tokens, const GArray *rows, const char *token)
{
    g_autofree char *digest = digest_of(token);
    const Row *want = NULL;
    const char *name = NULL;
    LhRole role = LH_ROLE_ANYONE;

    for (guint i = 0; i < rows->len; i++)
        if (strcmp(g_array_index(rows, Row, i).digest, digest) == 0)
            want = &g_array_index(rows, Row, i);
    FUZZ_CHECK(lh_tokens_find(tokens, token, &name, &role) == (want != NULL), "%s", token);
    FUZZ_CHECK(g_strcmp0(name, want == NULL ? NULL : want->name) == 0, "%s", name);
    FUZZ_CHECK(role == (want == NULL ? LH_ROLE_ANYONE : want->role), "%s", lh_role_name(role));
}

static void check_refusal(GError *error, const char *token)
{
    g_autofree char *digest = digest_of(token);

    FUZZ_CHECK(error->code == LH_ERR_INVALID && g_str_has_prefix(error->message, "line "), "%s",
               error->message);
    FUZZ_CHECK(strstr(error->message, digest) == NULL, "%s", error->message);
    fuzz_check_error(error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    g_autofree char *header = fuzz_line(&bytes), *want = slow_token(header);
    const char *token = lh_bearer_token(header);
    gsize len = 0;
    g_autofree char *rest = fuzz_rest(&bytes, &len);
    g_autoptr(GString) text = with_digests(rest, len, want == NULL ? "" : want);
    g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(Row));
    GError *error = NULL;

    g_array_set_clear_func(rows, row_clear);
    FUZZ_CHECK(g_strcmp0(token, want) == 0, "\"%s\", not \"%s\"", token, want);
    FUZZ_CHECK(lh_bearer_token(NULL) == NULL, "a token from nothing");
    gboolean good = slow_file(text->str, text->len, rows);
    g_autoptr(LhTokens) tokens = lh_tokens_parse(text->str, text->len, &error);
    FUZZ_CHECK(good == (tokens != NULL), "%s", error != NULL ? error->message : "taken");
    if (tokens == NULL) {
        check_refusal(error, want == NULL ? "" : want);
        return 0;
    }
    check_find(tokens, rows, "");
    check_find(tokens, rows, "another");
    if (token != NULL)
        check_find(tokens, rows, token);
    return 0;
}

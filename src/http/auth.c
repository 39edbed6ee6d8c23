/*
 * The tokens file and the Authorization header; see auth.h.
 *
 * Only digests are kept, and a token that is asked about is hashed before anything is compared. It
 * must not open files or log.
 */
#include "http/auth.h"

#include "base/errors.h"

#include <openssl/crypto.h>
#include <string.h>

#define DIGEST_BYTES   32
#define MAX_NAME_BYTES 64
#define DIGEST_PREFIX  "sha256:"
#define SPACES         " \t\r"

typedef struct {
    char *name;
    LhRole role;
    guint8 digest[DIGEST_BYTES];
    guint line;
} Token;

struct LhTokens {
    GArray *list; /* Token */
};

const char *lh_role_name(LhRole role)
{
    static const char *const names[] = {"anyone", "viewer", "operator", "admin"};
    return names[role];
}

/* ---- the file ---- */

static void token_clear(gpointer data)
{
    g_free(((Token *)data)->name);
}

static gboolean role_parse(const char *text, LhRole *out)
{
    for (int role = LH_ROLE_VIEWER; role <= LH_ROLE_ADMIN; role++) {
        if (strcmp(text, lh_role_name((LhRole)role)) == 0) {
            *out = (LhRole)role;
            return TRUE;
        }
    }
    return FALSE;
}

/* Names stand in the log beside "anonymous", which nobody may be called. */
static gboolean name_fits(const char *name)
{
    gsize len = strlen(name);
    for (gsize i = 0; i < len; i++) {
        if (!g_ascii_isalnum(name[i]) && strchr("._-@:/", name[i]) == NULL) {
            return FALSE;
        }
    }
    return len <= MAX_NAME_BYTES && strcmp(name, "anonymous") != 0;
}

static gboolean digest_parse(const char *text, guint8 *out)
{
    if (!g_str_has_prefix(text, DIGEST_PREFIX)) {
        return FALSE;
    }
    text += strlen(DIGEST_PREFIX);
    if (strlen(text) != (gsize)2 * DIGEST_BYTES) {
        return FALSE;
    }
    for (guint i = 0; i < DIGEST_BYTES; i++) {
        int high = g_ascii_xdigit_value(text[2 * i]), low = g_ascii_xdigit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return FALSE;
        }
        out[i] = (guint8)(high * 16 + low);
    }
    return TRUE;
}

/* NULL: taken, or nothing in it; else what is wrong. @line is cut into its words. */
static const char *line_parse(LhTokens *tokens, char *line, guint number)
{
    char *words[4] = {NULL}, *rest = NULL;
    guint n = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, SPACES, &rest); word != NULL && n < G_N_ELEMENTS(words);
         word = strtok_r(NULL, SPACES, &rest)) {
        words[n++] = word;
    }
    if (n == 0) {
        return NULL;
    }
    Token token = {.line = number};
    if (n != 3) {
        return "must be NAME ROLE sha256:HEX";
    }
    if (!name_fits(words[0])) {
        return "the name must be 1 to 64 letters, digits, . _ - @ : or /, and not \"anonymous\"";
    }
    if (!role_parse(words[1], &token.role)) {
        return "the role must be viewer, operator or admin";
    }
    if (!digest_parse(words[2], token.digest)) {
        return "the digest must be sha256: and 64 hexadecimal digits";
    }
    token.name = g_strdup(words[0]);
    g_array_append_val(tokens->list, token);
    return NULL;
}

static int by_digest(gconstpointer a, gconstpointer b)
{
    const Token *left = a, *right = b;
    int order = memcmp(left->digest, right->digest, DIGEST_BYTES);
    return order != 0 ? order : (left->line > right->line) - (left->line < right->line);
}

/* One token has one name and one role, or the log would not say who it was. */
static gboolean all_differ(LhTokens *tokens, GError **error)
{
    g_array_sort(tokens->list, by_digest);
    for (guint i = 1; i < tokens->list->len; i++) {
        const Token *before = &g_array_index(tokens->list, Token, i - 1);
        const Token *token = &g_array_index(tokens->list, Token, i);
        if (memcmp(before->digest, token->digest, DIGEST_BYTES) == 0) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "line %u: the same digest as in line %u",
                        token->line, before->line);
            return FALSE;
        }
    }
    return TRUE;
}

LhTokens *lh_tokens_parse(const char *text, gsize len, GError **error)
{
    g_autoptr(LhTokens) tokens = g_new0(LhTokens, 1);
    guint number = 1;
    tokens->list = g_array_new(FALSE, FALSE, sizeof(Token));
    g_array_set_clear_func(tokens->list, token_clear);
    for (const char *start = text, *end = text + len; start < end; number++) {
        const char *newline = memchr(start, '\n', (gsize)(end - start));
        gsize size = (gsize)((newline != NULL ? newline : end) - start);
        g_autofree char *line = g_strndup(start, size);
        const char *why = memchr(start, '\0', size) != NULL ? "holds a NUL"
                                                            : line_parse(tokens, line, number);
        if (why != NULL) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "line %u: %s", number, why);
            return NULL;
        }
        start += size + (newline != NULL ? 1 : 0);
    }
    return all_differ(tokens, error) ? g_steal_pointer(&tokens) : NULL;
}

void lh_tokens_free(LhTokens *tokens)
{
    if (tokens == NULL) {
        return;
    }
    g_array_unref(tokens->list);
    g_free(tokens);
}

/* ---- asking ---- */

gboolean lh_tokens_find(const LhTokens *tokens, const char *token, const char **name, LhRole *role)
{
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    guint8 digest[DIGEST_BYTES];
    gsize len = sizeof digest;
    const Token *found = NULL;
    g_checksum_update(sum, (const guchar *)token, (gssize)strlen(token));
    g_checksum_get_digest(sum, digest, &len);
    for (guint i = 0; i < tokens->list->len; i++) {
        const Token *one = &g_array_index(tokens->list, Token, i);
        if (CRYPTO_memcmp(one->digest, digest, DIGEST_BYTES) == 0) {
            found = one;
        }
    }
    if (found == NULL) {
        return FALSE;
    }
    *name = found->name;
    *role = found->role;
    return TRUE;
}

const char *lh_bearer_token(const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (authorization == NULL ||
        g_ascii_strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) {
        return NULL;
    }
    const char *token = authorization + sizeof scheme - 1;
    token += strspn(token, " ");
    for (const char *p = token; *p != '\0'; p++) {
        if (!g_ascii_isgraph(*p)) {
            return NULL;
        }
    }
    return *token != '\0' ? token : NULL;
}

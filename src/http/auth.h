/*
 * Who a client is: bearer tokens and client certificates, and the roles that they have.
 *
 * The tokens file has one line for each token, `NAME ROLE sha256:HEX`, and comments after '#'. HEX is the
 * digest of the token, so the file holds no secret; a token must be random (32 bytes from a random
 * source: then a plain digest is as good as a slow one). Several lines may have one name: that is how a
 * token is replaced. A certificate's name is its subject's CN, its role the O "leasehold:viewer",
 * "leasehold:operator" or "leasehold:admin" of its subject, the highest of several; one without such an
 * O is a viewer.
 *
 * Pure: no files, no TLS. Tokens are compared in constant time and never logged. Loop thread.
 */
#pragma once

#include <glib.h>

typedef enum {
    LH_ROLE_ANYONE,   /* a route's role only: no credentials needed */
    LH_ROLE_VIEWER,   /* reads */
    LH_ROLE_OPERATOR, /* writes desired objects, restores, cordons, retries */
    LH_ROLE_ADMIN,    /* and rebalances, moves leaders, confirms brakes */
} LhRole;

const char *lh_role_name(LhRole role); /* "viewer" */

typedef struct LhTokens LhTokens;

/* Errors: LH_ERR_INVALID with the line's number and what is wrong there; the line is not repeated. An
 * empty file is valid: nobody has a token. */
LhTokens *lh_tokens_parse(const char *text, gsize len, GError **error);
void lh_tokens_free(LhTokens *tokens); /* accepts NULL */
/* Looks at every line, whichever fits. @name (borrowed from @tokens) and @role are set when TRUE. */
gboolean lh_tokens_find(const LhTokens *tokens, const char *token, const char **name, LhRole *role);
/* "Authorization" → the token after "Bearer ", NULL if it is of another form. */
const char *lh_bearer_token(const char *authorization);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhTokens, lh_tokens_free)

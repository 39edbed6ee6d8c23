/*
 * What scenarios of a secured API share: certificates and tokens of three roles, and of those who
 * have none, and managers that know them.
 */
#pragma once

#include "harness.h"
#include "tests/fakes/certs.h"

typedef enum { BY_CERT, BY_TOKEN, N_WAYS } Way;
typedef enum { VIEWER, OPERATOR, ADMIN, N_ROLES } Role;

extern const char *const role_names[N_ROLES];

typedef struct {
    World *world;
    char *dir;
    CertFiles authority, stranger; /* authorities */
    CertFiles server;
    CertFiles clients[N_ROLES], untrusted, expired;
    char *tokens[N_ROLES], *token_files[N_ROLES], *wrong_token_file;
    char *tokens_file;
    Identity who[N_WAYS][N_ROLES];
    Identity nobody; /* trusts the server, and shows nothing */
} Lab;

Lab *lab_new(World *world);
void lab_free(Lab *lab);
/* "NAME ROLE sha256:…"; g_free. */
char *lab_token_line(const char *name, const char *role, const char *token);
/* TLS, client certificates and tokens; returns when it is ready. */
Proc *lab_manager(Lab *lab, const char *name, const char *listen);
/* Fails unless the program has ended so, with one line on standard error that says that. */
void lab_refused(const Run *run, int code, const char *says);
/* No log of the world has a token, or the digest of one. */
void lab_check_logs(Lab *lab);
/* How often the log of @proc has a line with all of these (NULL-ended). */
guint lab_lines(Proc *proc, ...) G_GNUC_NULL_TERMINATED;

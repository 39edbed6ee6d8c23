/* Tokens are random for each run: a log that has one cannot have it by chance. */
#include "secure.h"

#include <string.h>

const char *const role_names[N_ROLES] = {"viewer", "operator", "admin"};

static char *write_file(Lab *lab, const char *name, const char *text)
{
    char *path = g_build_filename(lab->dir, name, NULL);
    assert_true(
        g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_CONSISTENT, 0600, NULL));
    return path;
}

char *lab_token_line(const char *name, const char *role, const char *token)
{
    g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, token, -1);
    return g_strdup_printf("%s %s sha256:%s\n", name, role, digest);
}

static void make_certificates(Lab *lab)
{
    const CertSpec server = {.cn = "server", .names = "IP:127.0.0.1,DNS:localhost"};
    const CertSpec untrusted = {.cn = "eve", .organizations = "leasehold:admin"};
    const CertSpec expired = {
        .cn = "otto", .organizations = "leasehold:admin", .from_s = -7200, .to_s = -3600};
    lab->authority = certs_authority(lab->dir, "authority");
    lab->stranger = certs_authority(lab->dir, "stranger");
    lab->server = certs_issue(lab->dir, "server", &lab->authority, &server);
    lab->untrusted = certs_issue(lab->dir, "untrusted", &lab->stranger, &untrusted);
    lab->expired = certs_issue(lab->dir, "expired", &lab->authority, &expired);
}

Lab *lab_new(World *world)
{
    Lab *lab = g_new0(Lab, 1);
    g_autoptr(GString) lines = g_string_new("# who may what\n");
    lab->world = world;
    lab->dir = world->dir;
    make_certificates(lab);
    lab->nobody = (Identity){.cacert = lab->authority.cert};
    for (int i = 0; i < N_ROLES; i++) {
        g_autofree char *cn = g_strdup_printf("cert-%s", role_names[i]);
        g_autofree char *name = g_strdup_printf("token-%s", role_names[i]);
        g_autofree char *role = g_strdup_printf("leasehold:%s", role_names[i]);
        const CertSpec spec = {.cn = cn, .organizations = role};
        lab->clients[i] = certs_issue(lab->dir, cn, &lab->authority, &spec);
        lab->tokens[i] = g_uuid_string_random();
        lab->token_files[i] = write_file(lab, name, lab->tokens[i]);
        g_autofree char *line = lab_token_line(name, role_names[i], lab->tokens[i]);
        g_string_append(lines, line);
        lab->who[BY_CERT][i] = (Identity){.cacert = lab->authority.cert,
                                          .cert = lab->clients[i].cert,
                                          .key = lab->clients[i].key};
        lab->who[BY_TOKEN][i] = (Identity){.cacert = lab->authority.cert,
                                           .token = lab->tokens[i],
                                           .token_file = lab->token_files[i]};
    }
    lab->wrong_token_file = write_file(lab, "wrong-token", "no-token-of-anybody-4711\n");
    lab->tokens_file = write_file(lab, "tokens", lines->str);
    return lab;
}

void lab_free(Lab *lab)
{
    for (int i = 0; i < N_ROLES; i++) {
        certs_clear(&lab->clients[i]);
        g_free(lab->tokens[i]);
        g_free(lab->token_files[i]);
    }
    certs_clear(&lab->authority);
    certs_clear(&lab->stranger);
    certs_clear(&lab->server);
    certs_clear(&lab->untrusted);
    certs_clear(&lab->expired);
    g_free(lab->wrong_token_file);
    g_free(lab->tokens_file);
    g_free(lab);
}

typedef struct {
    Lab *lab;
    Proc *server;
} Serving;

static gboolean is_ready(World *world, gpointer data)
{
    const Serving *serving = data;
    g_autoptr(Reply) reply = http_as(serving->server, &serving->lab->nobody, "GET", "/readyz",
                                     NULL);
    return reply->status == 200;
}

Proc *lab_manager(Lab *lab, const char *name, const char *listen)
{
    const char *const extra[] = {"--listen",
                                 listen,
                                 "--tls-cert",
                                 lab->server.cert,
                                 "--tls-key",
                                 lab->server.key,
                                 "--tls-client-ca",
                                 lab->authority.cert,
                                 "--auth-tokens-file",
                                 lab->tokens_file,
                                 NULL};
    Serving serving = {lab, manager_start(lab->world, name, extra)};
    world_poll(lab->world, is_ready, &serving, "%s is ready", name);
    return serving.server;
}

void lab_refused(const Run *run, int code, const char *says)
{
    const char *newline = strchr(run->err, '\n');
    if (run->code != code || newline == NULL || newline[1] != '\0' ||
        strstr(run->err, says) == NULL) {
        fail_msg("exit code %d instead of %d, and not one line with \"%s\": %s%s", run->code, code,
                 says, run->err, run->out);
    }
}

void lab_check_logs(Lab *lab)
{
    for (guint i = 0; i < lab->world->procs->len; i++) {
        Proc *proc = g_ptr_array_index(lab->world->procs, i);
        g_autofree char *log = proc_log(proc);
        for (int role = 0; role < N_ROLES; role++) {
            g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256,
                                                                    lab->tokens[role], -1);
            assert_null(strstr(log, lab->tokens[role]));
            assert_null(strstr(log, digest));
        }
        assert_null(strstr(log, "no-token-of-anybody"));
    }
}

guint lab_lines(Proc *proc, ...)
{
    g_autofree char *log = proc_log(proc);
    g_auto(GStrv) lines = g_strsplit(log, "\n", -1);
    guint n = 0;
    for (guint i = 0; lines[i] != NULL; i++) {
        gboolean has_all = TRUE;
        const char *part;
        va_list args;
        va_start(args, proc);
        while ((part = va_arg(args, const char *)) != NULL) {
            has_all = has_all && strstr(lines[i], part) != NULL;
        }
        va_end(args);
        n += has_all;
    }
    return n;
}

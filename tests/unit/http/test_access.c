/* links: fakes */
/* links: curl */
/*
 * http/server: who may do what. Roles by token and by certificate, credentials that are replaced or
 * withdrawn while the server runs, and the lines that it leaves in the log.
 */
#include "tls_fixture.h"

#include <malloc.h>

static int setup_all(void **state)
{
    return lab_setup(state, USE_TLS | USE_CA | USE_TOKENS, (LhHttpOptions){0});
}

static int setup_tokens(void **state)
{
    return lab_setup(state, USE_TOKENS, (LhHttpOptions){.max_body = 64 * 1024});
}

static int setup_certificates(void **state)
{
    return lab_setup(state, USE_TLS | USE_CA, (LhHttpOptions){0});
}

static int setup_open(void **state)
{
    return lab_setup(state, 0, (LhHttpOptions){0});
}

static void handle_who(LhHttpRequest *request, gpointer data)
{
    (void)data;
    lh_http_reply(request, 200, "text/plain", lh_http_who(request), -1);
}

/* A kind of route for each role that one can ask for. */
static const struct {
    const char *method, *path;
    LhRole role;
} routes[] = {
    {"GET", "/open", LH_ROLE_ANYONE},       {"HEAD", "/open", LH_ROLE_ANYONE},
    {"GET", "/view", LH_ROLE_VIEWER},       {"HEAD", "/view", LH_ROLE_VIEWER},
    {"PUT", "/operate", LH_ROLE_OPERATOR},  {"DELETE", "/operate", LH_ROLE_OPERATOR},
    {"POST", "/administer", LH_ROLE_ADMIN}, {"GET", "/administer", LH_ROLE_ADMIN},
};

static void add_routes(const Lab *lab)
{
    for (guint i = 0; i < G_N_ELEMENTS(routes); i++) {
        if (strcmp(routes[i].method, "HEAD") != 0) {
            lh_http_server_route(lab->f->server, routes[i].method, routes[i].path, routes[i].role,
                                 handle_who, NULL);
        }
    }
}

static void assert_status(Lab *lab, const char *method, const char *path, const char *token,
                          const CertFiles *client, int expected)
{
    int status = status_of(lab, method, path, token, client);
    if (status != expected) {
        fail_msg("%s %s with %s, %s: %d, expected %d", method, path,
                 token != NULL ? token : "no token",
                 client != NULL ? client->cert : "no certificate", status, expected);
    }
}

static void test_roles(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    g_auto(CertFiles) viewer = issue(lab, "eve", "leasehold:viewer");
    g_auto(CertFiles) plain = issue(lab, "paul", "Example Ltd");
    g_auto(CertFiles) operator= issue(lab, "oscar", "Example Ltd,leasehold:operator");
    g_auto(CertFiles) several = issue(lab, "sue",
                                      "leasehold:admin,leasehold:viewer,leasehold:operator");
    const struct {
        const char *token;
        const CertFiles *client;
        LhRole role;
    } clients[] = {{NULL, NULL, LH_ROLE_ANYONE}, {"token-v", NULL, LH_ROLE_VIEWER},
                   {"token-o", NULL, LH_ROLE_OPERATOR}, {"token-a", NULL, LH_ROLE_ADMIN},
                   {"token-x", NULL, LH_ROLE_ANYONE}, {NULL, &viewer, LH_ROLE_VIEWER},
                   {NULL, &plain, LH_ROLE_VIEWER},
                   {
                       NULL,
                       &operator,
                       LH_ROLE_OPERATOR },
                       {NULL, &several, LH_ROLE_ADMIN},
                       {"token-v", &several, LH_ROLE_VIEWER},
                       {"token-x", &several, LH_ROLE_ANYONE},
    };
    for (guint i = 0; i < G_N_ELEMENTS(clients); i++) {
        for (guint j = 0; j < G_N_ELEMENTS(routes); j++) {
            int expected = clients[i].role >= routes[j].role   ? 200
                           : clients[i].role == LH_ROLE_ANYONE ? 401
                                                               : 403;
            assert_status(lab, routes[j].method, routes[j].path, clients[i].token,
                          clients[i].client, expected);
        }
        /* What there is not, only those hear who are somebody. */
        gboolean known = clients[i].role != LH_ROLE_ANYONE;
        assert_status(lab, "GET", "/nothing", clients[i].token, clients[i].client,
                      known ? 404 : 401);
        assert_status(lab, "PATCH", "/view", clients[i].token, clients[i].client,
                      known ? 405 : 401);
        assert_status(lab, "PUT", "/open", clients[i].token, clients[i].client, known ? 405 : 401);
        assert_status(lab, "GET", "/a%2Fb", clients[i].token, clients[i].client, known ? 400 : 401);
    }
}

static void assert_who(Lab *lab, const char *path, const char *token, const CertFiles *client,
                       const char *who)
{
    Call *call = call_body(lab, "GET", path, token, client, NULL);
    assert_int_equal(call->status, 200);
    assert_string_equal(call->body->str, who);
    call_free(lab, call);
}

static void test_who(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    g_auto(CertFiles) client = issue(lab, "oscar", NULL);
    assert_who(lab, "/view", "token-v", NULL, "vera");
    assert_who(lab, "/view", NULL, &client, "oscar");
    assert_who(lab, "/view", "token-a", &client, "ada");
    assert_who(lab, "/open", NULL, NULL, "anonymous");
    assert_who(lab, "/open", "token-v", NULL, "anonymous"); /* not even looked at */
    assert_who(lab, "/open", "token-x", &client, "anonymous");
    Call *call = call_body(lab, "GET", "/view", NULL, NULL, NULL);
    assert_int_equal(call->status, 401);
    assert_non_null(strstr(call->head->str, "\r\nWWW-Authenticate: Bearer\r\n"));
    assert_non_null(strstr(call->head->str, "\r\nContent-Type: application/problem+json\r\n"));
    assert_non_null(strstr(call->body->str, "a token or a client certificate is needed"));
    call_free(lab, call);
    call = call_body(lab, "POST", "/administer", "token-o", NULL, "{}");
    assert_int_equal(call->status, 403);
    assert_null(strstr(call->head->str, "WWW-Authenticate"));
    assert_non_null(strstr(call->body->str, "the role admin is needed"));
    call_free(lab, call);
}

/* Without authentication everybody is admin, and nobody has a name. */
static void test_open(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    for (guint j = 0; j < G_N_ELEMENTS(routes); j++) {
        assert_status(lab, routes[j].method, routes[j].path, "token-x", NULL, 200);
    }
    assert_who(lab, "/administer", "token-v", NULL, "anonymous");
    assert_line(lab, "who=anonymous role=admin", "method=PUT path=/operate status=200");
}

/* ---- certificates ---- */

static void test_bad_certificates(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    const char *admin = "leasehold:admin";
    const CertSpec foreign = {.cn = "ada", .organizations = admin};
    const CertSpec expired = {.cn = "ada", .organizations = admin, .from_s = -7200, .to_s = -3600};
    const CertSpec early = {.cn = "ada", .organizations = admin, .from_s = 3600, .to_s = 7200};
    const CertSpec server = {.cn = "ada", .organizations = admin, .purposes = "serverAuth"};
    const CertSpec impostor = {.cn = "anonymous", .organizations = admin};
    const CertSpec strange = {.cn = "a\nb", .organizations = admin};
    g_auto(CertFiles) good = issue(lab, "good", admin);
    const struct {
        CertFiles files;
        const char *why;
    } cases[] = {
        {certs_issue(lab->dir, "foreign", &lab->stranger, &foreign), "not signed by the authority"},
        {certs_issue(lab->dir, "expired", &lab->authority, &expired), "has expired"},
        {certs_issue(lab->dir, "early", &lab->authority, &early), "not valid yet"},
        {certs_issue(lab->dir, "other", &lab->authority, &server), "not one for clients"},
        {certs_issue(lab->dir, "impostor", &lab->authority, &impostor), "no usable CN"},
        {certs_issue(lab->dir, "strange", &lab->authority, &strange), "no usable CN"},
        /* Signed by one who is no authority, but whom the authority has signed. */
        {certs_issue(lab->dir, "sub", &good, &foreign), "not signed by the authority"},
    };
    assert_status(lab, "POST", "/administer", NULL, &good, 200);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        CertFiles files = cases[i].files;
        Call *call = call_body(lab, "GET", "/view", NULL, &files, NULL);
        if (call->status != 401 || strstr(call->body->str, cases[i].why) == NULL) {
            fail_msg("%s: %ld %s", files.cert, call->status, call->body->str);
        }
        call_free(lab, call);
        /* The connection is as good as anybody's. */
        assert_status(lab, "GET", "/open", NULL, &files, 200);
        certs_clear(&files);
    }
}

/* Tokens and certificates are each other's matter: without a tokens file no token is known. */
static void test_certificates_only(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    g_auto(CertFiles) client = issue(lab, "ada", "leasehold:admin");
    assert_status(lab, "POST", "/administer", NULL, &client, 200);
    assert_status(lab, "GET", "/view", NULL, NULL, 401);
    assert_status(lab, "GET", "/view", "token-a", NULL, 401);
    assert_status(lab, "GET", "/view", "token-a", &client, 401);
}

static void test_authority_replaced(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    const CertSpec spec = {.cn = "new"};
    g_auto(CertFiles) client = issue(lab, "old", NULL);
    g_auto(CertFiles) other = certs_issue(lab->dir, "new", &lab->stranger, &spec);
    g_autofree char *authority = NULL, *stranger = NULL;
    assert_true(g_file_get_contents(lab->authority.cert, &authority, NULL, NULL));
    assert_true(g_file_get_contents(lab->stranger.cert, &stranger, NULL, NULL));
    g_autofree char *clients_file = g_strconcat(lab->dir, "/clients", NULL);
    assert_true(g_file_set_contents(clients_file, authority, -1, NULL));

    /* A server of its own, whose authority of clients is not the one of its certificate. */
    const LhHttpOptions options = {.listen = "127.0.0.1:0",
                                   .cert = lab->server.cert,
                                   .key = lab->server.key,
                                   .client_ca = clients_file};
    void *old_state = lab->f, *new_state;
    setup_with(&new_state, &options);
    lab->f = new_state;
    add_routes(lab);
    Call *kept = call_new(lab, "GET", "/view", NULL, &client);
    call_start(lab, kept);
    lab_wait_for(kept->done);
    assert_int_equal(kept->status, 200);
    assert_status(lab, "GET", "/view", NULL, &other, 401);

    assert_true(g_file_set_contents(clients_file, stranger, -1, NULL));
    clock_advance(&lab->f->clock, 5000);
    assert_status(lab, "GET", "/view", NULL, &other, 200);
    assert_status(lab, "GET", "/view", NULL, &client, 401);
    /* Also on the connection that was accepted before. */
    call_start(lab, kept);
    lab_wait_for(kept->done);
    long new_connections = -1;
    curl_easy_getinfo(kept->curl, CURLINFO_NUM_CONNECTS, &new_connections);
    assert_int_equal(new_connections, 0);
    assert_int_equal(kept->status, 401);
    call_free(lab, kept);

    assert_true(g_file_set_contents(clients_file, "nonsense", -1, NULL));
    for (guint i = 0; i < 3; i++) {
        clock_advance(&lab->f->clock, 5000);
        assert_status(lab, "GET", "/view", NULL, &other, 200);
    }
    assert_line(lab, "a replaced file is not taken", "setting=tls.clientCa");
    /* A broken certificate of the server does not keep the authority from being replaced. */
    g_autofree char *certificate = NULL;
    assert_true(g_file_get_contents(lab->server.cert, &certificate, NULL, NULL));
    assert_true(g_file_set_contents(lab->server.cert, "nonsense", -1, NULL));
    assert_true(g_file_set_contents(clients_file, authority, -1, NULL));
    clock_advance(&lab->f->clock, 5000);
    assert_status(lab, "GET", "/view", NULL, &client, 200);
    assert_status(lab, "GET", "/view", NULL, &other, 401);
    lab->f = old_state;
    teardown(&new_state);
}

/* ---- tokens ---- */

static void test_tokens_replaced(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    g_autofree char *line = token_line("zoe", "admin", "token-z");
    g_autofree char *both = g_strconcat(line, "broken line\n", NULL);
    assert_status(lab, "GET", "/view", "token-v", NULL, 200);
    assert_status(lab, "GET", "/view", "token-z", NULL, 401);
    write_tokens(lab, line);
    clock_advance(&lab->f->clock, 5000);
    assert_status(lab, "GET", "/view", "token-v", NULL, 401);
    assert_status(lab, "GET", "/administer", "token-z", NULL, 200);
    assert_line(lab, "a replaced file is in force", "setting=auth.tokensFile");

    /* What is not good, and what is not there, is not taken; each is said once. */
    for (guint bad = 0; bad < 2; bad++) {
        g_ptr_array_set_size(lab->log, 0);
        if (bad == 0) {
            write_tokens(lab, both);
        } else {
            assert_int_equal(unlink(lab->tokens_file), 0);
        }
        for (guint i = 0; i < 3; i++) {
            clock_advance(&lab->f->clock, 5000);
            assert_status(lab, "GET", "/administer", "token-z", NULL, 200);
        }
        assert_line(lab, "a replaced file is not taken",
                    bad == 0 ? "line 2: must be NAME" : "No such file");
        assert_int_equal(n_lines(lab, "broken", NULL), 0);
    }
    /* An empty one is good, and nobody's. */
    write_tokens(lab, "");
    clock_advance(&lab->f->clock, 5000);
    assert_status(lab, "GET", "/administer", "token-z", NULL, 401);
    assert_status(lab, "GET", "/open", NULL, NULL, 200);
}

/* A stream is one request, however long it lasts; its client must stay who it was. */
static void test_stream_loses_its_right(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Call *call = call_new(lab, "GET", "/events", "token-v", NULL);
    g_autofree char *line = token_line("zoe", "viewer", "token-z");
    call_start(lab, call);
    lab_wait_for(f->stream != NULL && call->body->len > 0);
    clock_advance(&f->clock, 15000);
    settle();
    assert_int_equal(f->n_closed, 0);
    write_tokens(lab, line);
    clock_advance(&f->clock, 15000);
    lab_wait_for(call->done && f->n_closed == 1);
    assert_line(lab, "a stream is ended", "who=vera");
    call_free(lab, call);
}

/* Bytes of any kind after Authorization: refused or not read at all, and nobody gets in. */
static void test_any_authorization(void **state)
{
    Lab *lab = *state;
    g_autoptr(GRand) random = g_rand_new_with_seed(11);
    static const char *const fixed[] = {
        "",
        "Bearer",
        "Bearer token-v x",
        "Bearer   token-v",
        "bearer token-v",
        "Digest",
        "Basic YWJjOmRl",
        "token-v",
        "Bearer\ttoken-v",
        "Bearer token-v,token-a",
    };
    const int expected[] = {401, 401, 401, 200, 200, 401, 401, 401, 401, 401};
    for (guint i = 0; i < G_N_ELEMENTS(fixed); i++) {
        g_autofree char *request = g_strdup_printf("GET /hello HTTP/1.1\nAuthorization: %s",
                                                   fixed[i]);
        assert_ask(lab->f, request, NULL, expected[i], NULL);
    }
    assert_ask(lab->f,
               "GET /hello HTTP/1.1\nAuthorization: Bearer token-v\nAuthorization: Bearer token-a",
               NULL, 401, "more than one Authorization header");
    for (guint i = 0; i < 300; i++) {
        GString *text = g_string_new("GET /hello HTTP/1.1\nAuthorization: ");
        if (i % 2 == 0) {
            g_string_append(text, "Bearer ");
        }
        for (int n = g_rand_int_range(random, 0, 60); n > 0; n--) {
            char c = (char)g_rand_int_range(random, 1, 256);
            g_string_append_c(text, c == '\n' || c == '\r' ? '?' : c);
        }
        Client *client = client_new(lab->f);
        client_ask(lab->f, client, text->str, NULL);
        wait_for(reply_complete(client) || client->eof);
        assert_true(reply_status(client) == 401 || reply_status(client) == 400);
        client_close(client);
        g_string_free(client->in, TRUE);
        lab->f->n_clients--;
        g_string_free(text, TRUE);
    }
    /* As long as a header may be. */
    g_autofree char *large = g_strnfill(20 * 1024, 't');
    g_autofree char *request = g_strdup_printf("GET /hello HTTP/1.1\nAuthorization: Bearer %s",
                                               large);
    assert_ask(lab->f, request, NULL, 401, NULL);
}

static void test_refused_before_the_body(void **state)
{
    Lab *lab = *state;
    Client *client = client_new(lab->f);
    client_ask(lab->f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 60000\n"
               "Expect: 100-continue",
               NULL);
    wait_for(reply_complete(client));
    assert_int_equal(reply_status(client), 401);
    /* Before it is known to be of a wrong type, or too large, or not there. */
    assert_ask(lab->f, "PUT /echo/a HTTP/1.1\nContent-Type: text/plain", "x", 401, NULL);
    g_autofree char *large = g_strnfill(100 * 1024, 'x');
    assert_ask(lab->f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json", large, 401, NULL);
    assert_ask(
        lab->f,
        "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nAuthorization: Bearer token-o",
        large, 413, NULL);
}

/* With credentials of its own a request proves more than Host could; an Origin must still fit. */
static void test_host_and_origin(void **state)
{
    Lab *lab = *state;
    static const char *const with = "Authorization: Bearer token-v\r\n";
    g_autofree char *named = g_strconcat("GET /hello HTTP/1.1\r\nHost: lh.example\r\n", with,
                                         "\r\n", NULL);
    g_autofree char *same = g_strconcat("GET /hello HTTP/1.1\r\nHost: lh.example\r\n"
                                        "Origin: http://lh.example\r\n",
                                        with, "\r\n", NULL);
    g_autofree char *other = g_strconcat("GET /hello HTTP/1.1\r\nHost: lh.example\r\n"
                                         "Origin: http://evil.example\r\n",
                                         with, "\r\n", NULL);
    assert_int_equal(status_with(lab->f, named), 200);
    assert_int_equal(status_with(lab->f, same), 200);
    assert_int_equal(status_with(lab->f, other), 403);
}

static void test_origin_over_tls(void **state)
{
    Lab *lab = *state;
    g_auto(CertFiles) client = issue(lab, "vera", NULL);
    g_autofree char *address = g_strdup(lh_http_server_address(lab->f->server));
    for (guint i = 0; i < 2; i++) {
        g_autofree char *origin = g_strdup_printf("Origin: %s://%s", i == 0 ? "https" : "http",
                                                  address);
        Call *call = call_new(lab, "GET", "/hello", NULL, &client);
        call->headers = curl_slist_append(call->headers, origin);
        call_start(lab, call);
        lab_wait_for(call->done);
        assert_int_equal(call->status, i == 0 ? 200 : 403);
        call_free(lab, call);
    }
}

/* ---- the log ---- */

static void test_audit(void **state)
{
    Lab *lab = *state;
    add_routes(lab);
    g_auto(CertFiles) client = issue(lab, "ada", "leasehold:admin");
    Call *call = call_body(lab, "PUT", "/operate?secret=query", "token-o", NULL, "\"secret body\"");
    assert_int_equal(call->status, 200);
    call_free(lab, call);
    assert_line(lab, "msg=audit who=otto role=operator from=127.0.0.1:",
                "method=PUT path=/operate status=200");
    assert_status(lab, "POST", "/administer", NULL, &client, 200);
    assert_line(lab, "who=ada role=admin", "method=POST path=/administer status=200");
    assert_status(lab, "DELETE", "/nothing/a%20b", "token-o", NULL, 404);
    assert_line(lab, "who=otto role=operator", "method=DELETE path=\"/nothing/a b\" status=404");
    assert_status(lab, "PUT", "/a%2Fb?secret", "token-o", NULL, 400);
    assert_line(lab, "who=otto role=operator", "method=PUT path=/a%2Fb status=400");
    assert_status(lab, "POST", "/administer", "token-o", NULL, 403);
    assert_line(lab, "who=otto role=operator", "path=/administer status=403 why=\"the role admin");
    assert_status(lab, "DELETE", "/operate", "token-x-secret", NULL, 401);
    assert_line(lab, "who=anonymous role=anyone",
                "path=/operate status=401 why=\"the token is not");
    guint n = n_lines(lab, "msg=audit", NULL);
    assert_int_equal(n, 6);

    /* Reading leaves no line, unless somebody may not. */
    assert_status(lab, "GET", "/view", "token-v", NULL, 200);
    assert_status(lab, "GET", "/nothing", "token-v", NULL, 404);
    assert_status(lab, "HEAD", "/open", NULL, NULL, 200);
    assert_int_equal(n_lines(lab, "msg=audit", NULL), n);
    assert_status(lab, "GET", "/view", NULL, NULL, 401);
    assert_line(lab, "who=anonymous role=anyone", "method=GET path=/view status=401");
    assert_status(lab, "GET", "/administer", "token-v", NULL, 403);
    assert_line(lab, "who=vera role=viewer", "method=GET path=/administer status=403");
    assert_int_equal(n_lines(lab, "secret", NULL) + n_lines(lab, "token-", NULL), 0);
}

static void test_audit_of_the_gone(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    lh_http_server_route(f->server, "POST", "/later", LH_ROLE_VIEWER, handle_late, f);
    static const char head[] = "Content-Type: application/json\nAuthorization: Bearer token-a";
    g_autofree char *half = g_strconcat("POST /echo/half HTTP/1.1\nContent-Length: 9\n", head,
                                        NULL);
    g_autofree char *late = g_strconcat("POST /later HTTP/1.1\n", head, NULL);
    Client *client = client_new(f);
    client_ask(f, client, half, NULL);
    client_send(client, "{", 1);
    settle();
    client_close(client);
    wait_for(n_lines(lab, "msg=audit", "path=/echo/half status=gone") == 1);

    /* What a handler has begun is told as it ends, once, though nobody waits for it any more. */
    client = client_new(f);
    client_ask(f, client, late, "{}");
    wait_for(f->held != NULL);
    client_close(client);
    wait_for(f->n_gone == 1);
    assert_int_equal(n_lines(lab, "path=/later", NULL), 0);
    lh_http_reply(g_steal_pointer(&f->held), 201, NULL, "", 0);
    assert_line(lab, "who=ada role=admin", "method=POST path=/later status=201");
    assert_int_equal(n_lines(lab, "msg=audit", NULL), 2);
}

/* Strangers cannot fill the log, nor hide what others do. */
static void test_flood(void **state)
{
    Lab *lab = *state;
    Fixture *f = lab->f;
    Client *client = client_new(f);
    static const char attempt[] = "PUT /echo/a HTTP/1.1\nContent-Type: application/json\n"
                                  "Authorization: Bearer wrong";
    lh_http_server_route(f->server, "PUT", "/operate", LH_ROLE_OPERATOR, handle_echo, f);
    for (guint i = 0; i < 500; i++) {
        g_string_truncate(client->in, 0);
        client_ask(f, client, attempt, "{}");
        wait_for(reply_complete(client));
        assert_int_equal(reply_status(client), 401);
    }
    assert_int_equal(n_lines(lab, "msg=audit", "status=401"), 20);
    assert_ask(f,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\n"
               "Authorization: Bearer token-o",
               "{}", 200, NULL);
    assert_line(lab, "who=otto", "status=200");
    assert_ask(f,
               "PUT /operate HTTP/1.1\nContent-Type: application/json\n"
               "Authorization: Bearer token-v",
               "{}", 403, NULL);
    assert_line(lab, "who=vera", "status=403");
    clock_advance(&f->clock, 10000);
    assert_line(lab, "audit lines left out", "count=480");
    clock_advance(&f->clock, 10000);
    assert_line(lab, "audit lines left out", NULL);
    assert_ask(f, attempt, "{}", 401, NULL);
    assert_int_equal(n_lines(lab, "msg=audit", "status=401"), 21);
    assert_int_equal(n_lines(lab, "wrong", NULL), 0);
}

/* Of the whole process; 0 where a sanitizer has an allocator of its own. */
static gsize allocated_bytes(void)
{
    return mallinfo2().uordblks;
}

static void knock(Lab *lab, Client *client, guint times)
{
    for (guint i = 0; i < times; i++) {
        g_autofree char *request = g_strdup_printf(
            "GET /hello/%u HTTP/1.1\nAuthorization: Bearer wrong-%u", i, i);
        g_string_truncate(client->in, 0);
        client_ask(lab->f, client, request, NULL);
        wait_for(reply_complete(client));
        clock_advance(&lab->f->clock, 1);
    }
}

static void test_flood_takes_no_memory(void **state)
{
    Lab *lab = *state;
    Client *client = client_new(lab->f);
    knock(lab, client, 1000);
    gsize before = allocated_bytes();
    knock(lab, client, 4000);
    /* Not a hundred bytes for each. */
    assert_true(allocated_bytes() < before + 400 * 1000);
    assert_in_range(n_lines(lab, "msg=audit", NULL), 20, 40);
}

/* ---- which options go together ---- */

static void test_reachable(void **state)
{
    Lab *lab = *state;
    Clock clock = {.env.v = &clock_vtable};
    const char *cert = lab->server.cert, *key = lab->server.key;
    for (guint bits = 0; bits < 32; bits++) {
        gboolean far = (bits & 1) != 0, insecure = (bits & 2) != 0, tls = (bits & 4) != 0;
        gboolean ca = (bits & 8) != 0, tokens = (bits & 16) != 0;
        const LhHttpOptions options = {
            .listen = far ? "0.0.0.0:0" : "127.0.0.1:0",
            .insecure = insecure,
            .cert = tls ? cert : NULL,
            .key = tls ? key : NULL,
            .client_ca = ca ? lab->authority.cert : NULL,
            .tokens_file = tokens ? lab->tokens_file : NULL,
        };
        gboolean good = (!ca || tls) && (!far || insecure || (tls && (ca || tokens)));
        g_autoptr(GError) error = NULL;
        LhHttpServer *server = lh_http_server_new(&clock.env, NULL, &options, &error);
        if ((server != NULL) != good) {
            fail_msg("case %u: %s", bits, error != NULL ? error->message : "works");
        }
        if (far && !good && !insecure) {
            assert_non_null(strstr(error->message, "--insecure"));
            assert_non_null(strstr(error->message, "tls.cert"));
            assert_non_null(strstr(error->message, "auth.tokensFile"));
        }
        lh_http_server_free(server);
    }
}

static LhConfig *config(const char *a, const char *b, const char *c, const char *d)
{
    const LhSetting *const tables[] = {lh_shared_settings, NULL};
    const char *argv[] = {"leasehold", a, b, c, d, NULL};
    int argc = 1;
    while (argv[argc] != NULL) {
        argc++;
    }
    LhConfig *result = lh_config_load(tables, "test", argc, (char **)argv, NULL);
    assert_non_null(result);
    return result;
}

static void test_settings(void **state)
{
    (void)state;
    LhHttpOptions options = {.listen = "untouched"};
    static const struct {
        const char *args[3], *message;
    } cases[] = {
        {{"--tls-cert=/c"}, "--tls-cert: needs tls.key too"},
        {{"--tls-key=/k"}, "--tls-key: needs tls.cert too"},
        {{"--tls-client-ca=/a"}, "--tls-client-ca: client certificates need tls.cert"},
        {{"--tls-client-ca=/a", "--tls-cert=/c"}, "--tls-cert: needs tls.key too"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *const *a = cases[i].args;
        g_autoptr(GError) error = NULL;
        g_autoptr(LhConfig) bad = config(a[0], a[1], a[2], NULL);
        assert_false(lh_http_options_read(bad, &options, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        assert_true(g_str_has_prefix(error->message, cases[i].message));
        assert_string_equal(options.listen, "untouched");
    }
    g_autoptr(LhConfig) good = config("--tls-cert=/c", "--tls-key=/k", "--tls-client-ca=/a",
                                      "--auth-tokens-file=/t");
    assert_true(lh_http_options_read(good, &options, NULL));
    assert_string_equal(options.cert, "/c");
    assert_string_equal(options.key, "/k");
    assert_string_equal(options.client_ca, "/a");
    assert_string_equal(options.tokens_file, "/t");
    assert_string_equal(options.listen, "127.0.0.1:8083");
    assert_false(options.insecure);
    g_autoptr(LhConfig) plain = config("--listen=0.0.0.0:1", "--insecure", NULL, NULL);
    assert_true(lh_http_options_read(plain, &options, NULL));
    assert_string_equal(options.listen, "0.0.0.0:1");
    assert_true(options.insecure && options.cert == NULL && options.tokens_file == NULL);
}

#define with(setup_, name) cmocka_unit_test_setup_teardown(name, setup_, lab_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with(setup_all, test_roles),
        with(setup_all, test_who),
        with(setup_open, test_open),
        with(setup_all, test_bad_certificates),
        with(setup_certificates, test_certificates_only),
        with(setup_certificates, test_authority_replaced),
        with(setup_tokens, test_tokens_replaced),
        with(setup_tokens, test_stream_loses_its_right),
        with(setup_tokens, test_any_authorization),
        with(setup_tokens, test_refused_before_the_body),
        with(setup_tokens, test_host_and_origin),
        with(setup_certificates, test_origin_over_tls),
        with(setup_all, test_audit),
        with(setup_tokens, test_audit_of_the_gone),
        with(setup_tokens, test_flood),
        with(setup_tokens, test_flood_takes_no_memory),
        with(setup_all, test_reachable),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests_name("http/access", tests, NULL, NULL);
}

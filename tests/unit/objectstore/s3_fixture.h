/*
 * A store on some S3 server, and its last answer, for tests. Every wait has a deadline.
 */
#pragma once

#include "base/errors.h"
#include "objectstore/objectstore.h"
#include "objectstore/s3_tuning.h"

#include <glib/gstdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct {
    char *dir; /* access, secret: files; out/: where copies go */
    LhEnv *env;
    LhObjectStore *store;
    LhS3Tuning tuning;
    LhObjectStoreOptions options;
    char *access_file, *secret_file;
    /* The last answer. */
    guint answers;
    GString *names; /* "a:6 b/c:0" */
    GError *error;
    gint64 bytes;
    char *sha256;
    guint progress;
    gint64 progress_bytes;
} S3Fixture;

/* ---- the fixture ---- */

static inline void write_text(const char *path, const char *text)
{
    assert_true(g_file_set_contents(path, text, -1, NULL));
}

/* Makes the store anew from f->options and f->tuning. */
static inline void open_store(S3Fixture *f)
{
    g_autoptr(GError) error = NULL;
    lh_store_free(f->store);
    f->store = lh_objectstore_new_tuned(f->env, &f->options, &f->tuning, &error);
    if (f->store == NULL)
        fail_msg("%s", error->message);
}

static inline void set_keys(S3Fixture *f, const char *access, const char *secret)
{
    write_text(f->access_file, access);
    write_text(f->secret_file, secret);
    f->options.access_key_file = f->access_file;
    f->options.secret_key_file = f->secret_file;
}

static inline S3Fixture *s3_fixture_new(const char *endpoint)
{
    S3Fixture *f = g_new0(S3Fixture, 1);
    f->dir = g_dir_make_tmp("lh-s3-XXXXXX", NULL);
    f->env = lh_env_glib_new(NULL);
    f->names = g_string_new(NULL);
    f->access_file = g_build_filename(f->dir, "access", NULL);
    f->secret_file = g_build_filename(f->dir, "secret", NULL);
    g_autofree char *out = g_build_filename(f->dir, "out", NULL);
    assert_int_equal(g_mkdir(out, 0755), 0);
    f->tuning = lh_s3_tuning_default;
    f->tuning.backoff_ms = 5;
    f->tuning.backoff_cap_ms = 20;
    f->options.endpoint = endpoint;
    return f;
}

static inline void forget(S3Fixture *f)
{
    f->answers = 0;
    g_clear_error(&f->error);
    g_string_truncate(f->names, 0);
    g_clear_pointer(&f->sha256, g_free);
    f->progress = 0;
    f->progress_bytes = 0;
}

static inline void s3_fixture_free(S3Fixture *f)
{
    lh_store_free(f->store);
    while (g_main_context_iteration(NULL, FALSE))
        ;
    forget(f);
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    lh_env_free(f->env);
    g_string_free(f->names, TRUE);
    g_free(f->access_file);
    g_free(f->secret_file);
    g_free(f->dir);
    g_free(f);
}

/* ---- calls ---- */

static inline void on_list(const LhStoreEntry *entries, gsize n, const GError *error, gpointer data)
{
    S3Fixture *f = data;
    f->answers++;
    f->error = error != NULL ? g_error_copy(error) : NULL;
    for (gsize i = 0; i < n; i++)
        g_string_append_printf(f->names, "%s%s:%" G_GINT64_FORMAT, i > 0 ? " " : "",
                               entries[i].name, entries[i].size);
}

static inline void on_fetch(gint64 bytes, const char *sha256, const GError *error, gpointer data)
{
    S3Fixture *f = data;
    f->answers++;
    g_clear_error(&f->error);
    f->error = error != NULL ? g_error_copy(error) : NULL;
    f->bytes = bytes;
    g_free(f->sha256);
    f->sha256 = g_strdup(sha256);
}

static inline void on_progress(gint64 bytes, gpointer data)
{
    S3Fixture *f = data;
    assert_true(bytes >= f->progress_bytes);
    f->progress++;
    f->progress_bytes = bytes;
}

static inline gboolean it_is_late(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_CONTINUE;
}

static inline void await_answers(S3Fixture *f, guint n)
{
    gboolean late = FALSE;
    guint timeout = g_timeout_add_seconds(40, it_is_late, &late);
    while (f->answers < n && !late)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timeout);
    assert_int_equal(f->answers, n);
}

static inline void await_answer(S3Fixture *f)
{
    await_answers(f, 1);
}

static inline void list(S3Fixture *f, const char *uri)
{
    forget(f);
    assert_true(lh_store_list(f->store, uri, on_list, f) != 0);
    await_answer(f);
}

static inline char *out_path(const S3Fixture *f, const char *out)
{
    return g_build_filename(f->dir, "out", out, NULL);
}

static inline void fetch(S3Fixture *f, const char *uri, const char *name, const char *out)
{
    forget(f);
    g_autofree char *to = out_path(f, out);
    assert_true(lh_store_fetch(f->store, uri, name, to, on_progress, on_fetch, f) != 0);
    await_answer(f);
}

static inline void assert_ok(const S3Fixture *f)
{
    if (f->error != NULL)
        fail_msg("%s: %s", lh_error_name((LhErrorCode)f->error->code), f->error->message);
}

/* The error has this code, this text in it, one line, and no secret. */
static inline void assert_error(const S3Fixture *f, LhErrorCode code, const char *text)
{
    if (f->error == NULL)
        fail_msg("succeeded, expected %s", lh_error_name(code));
    if (!g_error_matches(f->error, LH_ERROR, (gint)code) || strstr(f->error->message, text) == NULL)
        fail_msg("%s \"%s\", expected %s \"…%s…\"", lh_error_name((LhErrorCode)f->error->code),
                 f->error->message, lh_error_name(code), text);
    assert_null(strchr(f->error->message, '\n'));
    if (f->options.secret_key_file != NULL) {
        g_autofree char *secret = NULL;
        assert_true(g_file_get_contents(f->secret_file, &secret, NULL, NULL));
        assert_null(strstr(f->error->message, g_strstrip(secret)));
    }
}

static inline gboolean out_exists(const S3Fixture *f, const char *out)
{
    g_autofree char *path = out_path(f, out);
    return g_file_test(path, G_FILE_TEST_EXISTS);
}

/* What was fetched is @data, and so are its digest and its size. */
static inline void assert_fetched(const S3Fixture *f, const char *out, const void *data, gsize n)
{
    g_autofree char *path = out_path(f, out);
    g_autofree char *text = NULL;
    gsize len = 0;
    assert_ok(f);
    assert_true(g_file_get_contents(path, &text, &len, NULL));
    assert_int_equal(len, n);
    assert_int_equal(f->bytes, n);
    assert_memory_equal(text, data, n);
    g_autofree char *sha256 = g_compute_checksum_for_data(G_CHECKSUM_SHA256, data, n);
    assert_string_equal(f->sha256, sha256);
}

/* Bytes of which no two megabytes are alike. */
static inline char *noise(gsize n)
{
    char *data = g_malloc(n + 1);
    guint32 x = 2463534242u;
    for (gsize i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        data[i] = (char)(x >> 24);
    }
    return data;
}

/* No setting of whoever runs the tests may change them. */
static inline void clean_environment(void)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_CA_BUNDLE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "http_proxy",
                                        "https_proxy",
                                        "HTTPS_PROXY",
                                        "all_proxy",
                                        "ALL_PROXY"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++)
        g_unsetenv(names[i]);
    g_setenv("HOME", "/nonexistent", TRUE);
}

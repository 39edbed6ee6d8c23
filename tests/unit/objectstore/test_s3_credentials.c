/*
 * objectstore, s3://: where credentials come from, when they are read again, and that no error
 * repeats one.
 */
#include "objectstore/s3_credentials.h"
#include "s3_fixture.h"

#include <sys/stat.h>

#define SECRET "hunter2/+=HUNTER"

typedef struct {
    char *dir, *access, *secret, *shared;
} Files;

static int setup(void **state)
{
    Files *files = g_new0(Files, 1);
    clean_environment();
    files->dir = g_dir_make_tmp("lh-keys-XXXXXX", NULL);
    files->access = g_build_filename(files->dir, "access", NULL);
    files->secret = g_build_filename(files->dir, "secret", NULL);
    files->shared = g_build_filename(files->dir, "credentials", NULL);
    *state = files;
    return 0;
}

static int teardown(void **state)
{
    Files *files = *state;
    unlink(files->access);
    unlink(files->secret);
    unlink(files->shared);
    assert_int_equal(rmdir(files->dir), 0);
    g_free(files->dir);
    g_free(files->access);
    g_free(files->secret);
    g_free(files->shared);
    g_free(files);
    return 0;
}

/* "ID:SECRET:TOKEN"; "-" for what there is not. */
static void assert_identity(LhS3Credentials *credentials, gint64 now_us, const char *expected)
{
    g_auto(LhS3Identity) identity = {0};
    g_autoptr(GError) error = NULL;
    if (!lh_s3_credentials_get(credentials, now_us, &identity, &error))
        fail_msg("%s", error->message);
    g_autofree char *text = g_strdup_printf(
        "%s:%s:%s", identity.access_key != NULL ? identity.access_key : "-",
        identity.secret_key != NULL ? identity.secret_key : "-",
        identity.session_token != NULL ? identity.session_token : "-");
    assert_string_equal(text, expected);
}

static void assert_no_identity(LhS3Credentials *credentials, LhErrorCode code, const char *text)
{
    g_auto(LhS3Identity) identity = {0};
    g_autoptr(GError) error = NULL;
    assert_false(lh_s3_credentials_get(credentials, 0, &identity, &error));
    if (!g_error_matches(error, LH_ERROR, (gint)code) || strstr(error->message, text) == NULL)
        fail_msg("%s, expected %s", error->message, text);
    assert_null(strstr(error->message, "hunter2"));
    assert_null(strchr(error->message, '\n'));
    assert_null(identity.access_key);
}

static LhS3Credentials *from(const char *access, const char *secret)
{
    g_autoptr(GError) error = NULL;
    LhS3Credentials *credentials = lh_s3_credentials_new(access, secret, &error);
    if (credentials == NULL)
        fail_msg("%s", error->message);
    return credentials;
}

static void files_are_read_every_ten_seconds(void **state)
{
    const Files *files = *state;
    write_text(files->access, "ID:1\n");
    write_text(files->secret, "  " SECRET "\r\n");
    g_setenv("AWS_ACCESS_KEY_ID", "OTHER", TRUE); /* files come first */
    g_setenv("AWS_SECRET_ACCESS_KEY", "other", TRUE);
    LhS3Credentials *credentials = from(files->access, files->secret);
    assert_identity(credentials, 1000, "ID:1:" SECRET ":-");
    write_text(files->access, "ID2");
    write_text(files->secret, "s2");
    assert_identity(credentials, 1000 + 10 * G_USEC_PER_SEC - 1, "ID:1:" SECRET ":-");
    assert_identity(credentials, 1000 + 10 * G_USEC_PER_SEC, "ID2:s2:-");
    lh_s3_credentials_free(credentials);
}

static void files_that_hold_no_key(void **state)
{
    const Files *files = *state;
    const struct {
        const char *text;
        LhErrorCode code;
        const char *why;
    } rows[] = {
        {"", LH_ERR_INVALID, "is empty"},
        {" \n\n", LH_ERR_INVALID, "is empty"},
        {"hunter2\nhunter2", LH_ERR_INVALID, "must be one line"},
        {"hunter2\thunter2", LH_ERR_INVALID, "must be one line"},
        {NULL, LH_ERR_IO, "No such file"},
    };
    LhS3Credentials *credentials = from(files->access, files->secret);
    write_text(files->access, "ID");
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        unlink(files->secret);
        if (rows[i].text != NULL)
            write_text(files->secret, rows[i].text);
        g_autofree char *expected = g_strdup_printf("objectStore.secretKeyFile: %s: %s",
                                                    files->secret, rows[i].why);
        assert_no_identity(credentials, rows[i].code, expected);
    }
    g_autofree char *big = g_strnfill(10000, 'x');
    write_text(files->secret, big);
    assert_no_identity(credentials, LH_ERR_IO, "File too large");
    unlink(files->secret);
    assert_int_equal(mkfifo(files->secret, 0600), 0); /* must not hang */
    assert_no_identity(credentials, LH_ERR_INVALID, "is empty");
    lh_s3_credentials_free(credentials);
}

static void the_environment(void **state)
{
    (void)state;
    g_setenv("AWS_ACCESS_KEY_ID", "ID", TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", SECRET, TRUE);
    LhS3Credentials *credentials = from(NULL, NULL);
    assert_identity(credentials, 0, "ID:" SECRET ":-");
    assert_identity(credentials, G_MAXINT64, "ID:" SECRET ":-");
    lh_s3_credentials_free(credentials);
    g_setenv("AWS_SESSION_TOKEN", "T", TRUE);
    credentials = from(NULL, NULL);
    assert_identity(credentials, 0, "ID:" SECRET ":T");
    lh_s3_credentials_free(credentials);
    g_setenv("AWS_ACCESS_KEY_ID", "", TRUE); /* as good as none */
    g_autoptr(GError) error = NULL;
    assert_null(lh_s3_credentials_new(NULL, NULL, &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_string_equal(error->message,
                        "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not");
    clean_environment();
    credentials = from(NULL, NULL);
    assert_identity(credentials, 0, "-:-:-"); /* nobody: not signed */
    lh_s3_credentials_free(credentials);
}

static void profiles(void **state)
{
    const Files *files = *state;
    write_text(files->shared, "# comment\n; comment\n[default]\naws_access_key_id = ID\n"
                              "aws_secret_access_key=" SECRET "\ns3 =\n  max = 5\n\n[other]\n"
                              "aws_access_key_id=ID2\naws_secret_access_key = \\s2\\n\n"
                              "aws_session_token = T2\n[half]\naws_access_key_id=hunter2\n");
    g_setenv("AWS_SHARED_CREDENTIALS_FILE", files->shared, TRUE);
    LhS3Credentials *credentials = from(NULL, NULL);
    assert_identity(credentials, 0, "ID:" SECRET ":-");
    write_text(files->shared, "[default]\naws_access_key_id=X\naws_secret_access_key=Y\n[other]\n"
                              "aws_access_key_id=ID2\naws_secret_access_key = \\s2\\n\n"
                              "aws_session_token = T2\n[half]\naws_access_key_id=hunter2\n");
    assert_identity(credentials, 1, "ID:" SECRET ":-");
    assert_identity(credentials, 10 * G_USEC_PER_SEC, "X:Y:-");
    lh_s3_credentials_free(credentials);
    g_setenv("AWS_PROFILE", "other", TRUE);
    credentials = from(NULL, NULL);
    assert_identity(credentials, 0, "ID2:\\s2\\n:T2"); /* no escapes */
    lh_s3_credentials_free(credentials);
    const char *const wrong[] = {"half", "absent"};
    for (gsize i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_setenv("AWS_PROFILE", wrong[i], TRUE);
        g_autofree char *why = g_strdup_printf("profile %s: must have aws_access_key_id and",
                                               wrong[i]);
        credentials = from(NULL, NULL);
        assert_no_identity(credentials, LH_ERR_INVALID, why);
        lh_s3_credentials_free(credentials);
    }
}

static void files_of_profiles_that_are_none(void **state)
{
    const Files *files = *state;
    g_setenv("AWS_SHARED_CREDENTIALS_FILE", files->shared, TRUE);
    LhS3Credentials *credentials = from(NULL, NULL);
    assert_no_identity(credentials, LH_ERR_IO, "No such file"); /* it was asked for */
    write_text(files->shared, "[default]\nhunter2 hunter2\n");
    assert_no_identity(credentials, LH_ERR_INVALID, "is not a file of [profiles]");
    write_text(files->shared, "aws_secret_access_key = hunter2\n");
    assert_no_identity(credentials, LH_ERR_INVALID, "is not a file of [profiles]");
    lh_s3_credentials_free(credentials);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(files_are_read_every_ten_seconds),
        TEST(files_that_hold_no_key),
        TEST(the_environment),
        TEST(profiles),
        TEST(files_of_profiles_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * An error document of S3: `x` and the document as it is, or another byte and three lines, from which one is
 * written. The code and the region are words, the message one line of at most 200 bytes of UTF-8; of a
 * document that was written they are what was written, and a prefix of it when that was longer.
 */
#include "objectstore/s3_xml.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MOST_BYTES 200

static gboolean is_word(const char *text)
{
    return *text != '\0' && strlen(text) <= 64 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               strlen(text);
}

static void check_shape(const LhS3Error *error)
{
    FUZZ_CHECK(error->code == NULL || is_word(error->code), "code %s", error->code);
    FUZZ_CHECK(error->region == NULL || is_word(error->region), "region %s", error->region);
    if (error->message == NULL)
        return;
    FUZZ_CHECK(strlen(error->message) <= MOST_BYTES, "%zu bytes", strlen(error->message));
    FUZZ_CHECK(g_utf8_validate(error->message, -1, NULL), "%s", error->message);
    for (const char *at = error->message; *at != '\0'; at++)
        FUZZ_CHECK(!g_ascii_iscntrl(*at), "%s", error->message);
}

static void check_word(const char *read, const char *wrote)
{
    FUZZ_CHECK(g_strcmp0(read, is_word(wrote) ? wrote : NULL) == 0, "%s, not %s", read, wrote);
}

/* Control characters are blanks, and blanks at the ends are none of it. */
static void check_text(const char *read, const char *wrote)
{
    g_autofree char *line = g_strdup(wrote);

    if (*wrote == '\0') {
        FUZZ_CHECK(read == NULL, "%s", read);
        return;
    }
    for (char *at = line; *at != '\0'; at++)
        if (g_ascii_iscntrl(*at))
            *at = ' ';
    FUZZ_CHECK(read != NULL, "no message");
    if (strlen(line) <= MOST_BYTES)
        FUZZ_CHECK(strcmp(read, g_strstrip(line)) == 0, "\"%s\", not \"%s\"", read, line);
    else
        FUZZ_CHECK(strstr(line, read) != NULL, "\"%s\" is not in it", read);
}

static void check_written(FuzzBytes *bytes)
{
    const char *names[] = {"Code", "Message", "Region"};
    g_autoptr(GString) xml = g_string_new("<Error><RequestId>1</RequestId>");
    g_auto(LhS3Error) error = {0};
    char *texts[3];

    for (guint i = 0; i < 3; i++) {
        g_autofree char *line = fuzz_line(bytes);
        texts[i] = g_utf8_make_valid(line, -1);
        g_autofree char *escaped = g_markup_escape_text(texts[i], -1);
        g_string_append_printf(xml, "<%s>%s</%s>", names[i], escaped, names[i]);
    }
    g_string_append(xml, "</Error>");
    for (char *at = texts[1]; *at != '\0'; at++)
        *at = *at == '\r' ? ' ' : *at; /* XML has no such thing */
    lh_s3_error_parse(xml->str, xml->len, &error);
    check_shape(&error);
    check_word(error.code, texts[0]);
    check_text(error.message, texts[1]);
    check_word(error.region, texts[2]);
    for (guint i = 0; i < 3; i++)
        g_free(texts[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};

    if (fuzz_byte(&bytes) != 'x') {
        check_written(&bytes);
        return 0;
    }
    g_auto(LhS3Error) error = {0};
    lh_s3_error_parse((const char *)bytes.data, bytes.size, &error);
    check_shape(&error);
    return 0;
}

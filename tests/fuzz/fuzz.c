/*
 * What the fuzz targets share; see fuzz.h. Must not know any of the targets.
 */
#include "tests/fuzz/fuzz.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void drop_line(const char *line, gpointer data)
{
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    g_log_set_always_fatal(G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    lh_log_set_sink(drop_line, NULL);
    return 0;
}

void fuzz_broken(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "\n%s:%d: broken promise: %s\n  ", file, line, condition);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

void fuzz_check_message(const char *text)
{
    FUZZ_CHECK(text != NULL && *text != '\0', "no message");
    FUZZ_CHECK(g_utf8_validate(text, -1, NULL), "message is not UTF-8: %s", text);
    FUZZ_CHECK(strpbrk(text, "\n\r") == NULL, "message has several lines: %s", text);
}

void fuzz_check_error(GError *error)
{
    FUZZ_CHECK(error != NULL, "it failed without an error");
    fuzz_check_message(error->message);
    g_error_free(error);
}

guint8 fuzz_byte(FuzzBytes *bytes)
{
    if (bytes->size == 0)
        return 0;
    bytes->size--;
    return *bytes->data++;
}

guint fuzz_below(FuzzBytes *bytes, guint n)
{
    return fuzz_byte(bytes) % n;
}

guint64 fuzz_u64(FuzzBytes *bytes)
{
    guint64 value = 0;

    for (guint i = 0; i < 8; i++)
        value |= (guint64)fuzz_byte(bytes) << (8 * i);
    return value;
}

char *fuzz_line(FuzzBytes *bytes)
{
    const uint8_t *feed = bytes->size == 0 ? NULL : memchr(bytes->data, '\n', bytes->size);
    size_t len = feed == NULL ? bytes->size : (size_t)(feed - bytes->data);
    char *line = g_strndup((const char *)bytes->data, len);

    len += feed != NULL;
    bytes->data += len;
    bytes->size -= len;
    return line;
}

char *fuzz_rest(FuzzBytes *bytes, gsize *len)
{
    char *rest = g_malloc(bytes->size + 1);

    if (bytes->size > 0)
        memcpy(rest, bytes->data, bytes->size);
    rest[bytes->size] = '\0';
    *len = bytes->size;
    bytes->data += bytes->size;
    bytes->size = 0;
    return rest;
}

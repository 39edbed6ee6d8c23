/*
 * What the fuzz targets share: how a target is entered, how it says that a promise is broken, and how
 * it takes numbers and texts from the bytes that it was given.
 *
 * A target is a file fuzz_<name>.c with LLVMFuzzerTestOneInput, a row in meson.build and a corpus
 * (README of tests/, section "Fuzzing"). It must be deterministic: no clock, no random numbers, nothing
 * kept from one input to the next that changes what the next one does.
 */
#pragma once

#include <glib.h>
#include <stdint.h>

/* Called by libFuzzer, or by run_corpus.c for each file. 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Called once, before the first input: silences the log, makes GLib's criticals fatal. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Ends the process with a message when a promise is broken: FUZZ_CHECK(condition, "format", …). */
#define FUZZ_CHECK(condition, ...)                                    \
    do {                                                              \
        if (!(condition))                                             \
            fuzz_broken(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)
void fuzz_broken(const char *file, int line, const char *condition, const char *format, ...)
    G_GNUC_PRINTF(4, 5) G_GNUC_NORETURN;

/* An error for people: there, not empty, one line of valid UTF-8. Frees it. */
void fuzz_check_error(GError *error);
/* The same promise for a text. */
void fuzz_check_message(const char *text);

/* ---- taking the input apart ---- */

typedef struct {
    const uint8_t *data;
    size_t size;
} FuzzBytes;

/* 0 when nothing is left. */
guint8 fuzz_byte(FuzzBytes *bytes);
/* Below @n, from one byte. */
guint fuzz_below(FuzzBytes *bytes, guint n);
/* Little endian; missing bytes are 0. */
guint64 fuzz_u64(FuzzBytes *bytes);
/* Up to the next line feed, which is taken too, or to the end; cut at a NUL. g_free. */
char *fuzz_line(FuzzBytes *bytes);
/* All that is left, NUL-terminated (it may hold NULs besides). g_free. */
char *fuzz_rest(FuzzBytes *bytes, gsize *len);

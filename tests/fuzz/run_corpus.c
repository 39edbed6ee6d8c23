/*
 * Runs a fuzz target on every file of a directory: the corpus as an ordinary test, without libFuzzer.
 *
 *   fuzz_json tests/fuzz/corpus/json        (or single files)
 *
 * Fails when there is no file. Whatever ends the process names the file first.
 */
#include "tests/fuzz/fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the sanitizers' runtime; absent elsewhere. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static const char *running;

static void say_running(void)
{
    if (running != NULL) {
        (void)!write(STDERR_FILENO, "\nin ", 4);
        (void)!write(STDERR_FILENO, running, strlen(running));
        (void)!write(STDERR_FILENO, "\n", 1);
    }
}

static void on_fatal(int number)
{
    say_running();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_deaths(void)
{
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(say_running);
    } else {
        signal(SIGSEGV, on_fatal);
        signal(SIGBUS, on_fatal);
        signal(SIGFPE, on_fatal);
        signal(SIGILL, on_fatal);
    }
    signal(SIGABRT, on_fatal);
    signal(SIGTRAP, on_fatal); /* GLib's fatal messages */
    signal(SIGTERM, on_fatal); /* Meson's timeout */
}

static void run_file(const char *path)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL;
    gsize len = 0;

    if (!g_file_get_contents(path, &text, &len, &error)) {
        fprintf(stderr, "%s\n", error->message);
        exit(1);
    }
    /* Without the NUL that GLib puts after it, so that reading one byte too many is seen. */
    g_autofree guint8 *exact = g_memdup2(text, len);
    running = path;
    LLVMFuzzerTestOneInput(exact == NULL ? (const guint8 *)"" : exact, len);
    running = NULL;
}

static gint compare_texts(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static guint run_path(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);
    const char *name;

    if (dir == NULL) {
        run_file(path);
        return 1;
    }
    while ((name = g_dir_read_name(dir)) != NULL)
        g_ptr_array_add(files, g_build_filename(path, name, NULL));
    g_ptr_array_sort(files, compare_texts);
    g_ptr_array_foreach(files, (GFunc)(void (*)(void))run_file, NULL);
    return files->len;
}

int main(int argc, char **argv)
{
    guint files = 0;

    LLVMFuzzerInitialize(&argc, &argv);
    watch_deaths();
    for (int i = 1; i < argc; i++)
        files += run_path(argv[i]);
    printf("%u files\n", files);
    if (files == 0)
        fprintf(stderr, "%s: the corpus is empty\n", argc > 1 ? argv[1] : argv[0]);
    return files == 0;
}

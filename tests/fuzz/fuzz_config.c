/*
 * A settings file of any bytes: refused with one line that names it, or read, and then the same values
 * given as flags are the same settings.
 */
#include "base/config.h"
#include "base/json.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <yaml.h>

static const LhSetting program_settings[] = {
    {"pool", LH_SET_STRING, NULL, NULL, NULL},       {"capacity", LH_SET_SIZE, "100Gi", NULL, NULL},
    {"capacityItems", LH_SET_INT, NULL, NULL, NULL}, {"verbose", LH_SET_BOOL, NULL, NULL, NULL},
    {NULL, LH_SET_STRING, NULL, NULL, NULL},
};

static const LhSetting *const tables[] = {lh_shared_settings, program_settings, NULL};

/* The file in memory, under a name that can be opened. */
static const char *write_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char *path;

    if (fd < 0) {
        fd = memfd_create("settings", MFD_CLOEXEC);
        path = g_strdup_printf("/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size, "memfd");
    return path;
}

static LhConfig *load(GPtrArray *args, GError **error)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();

    g_ptr_array_add(argv, (gpointer) "leasehold");
    for (guint i = 0; i < args->len; i++)
        g_ptr_array_add(argv, args->pdata[i]);
    g_ptr_array_add(argv, NULL);
    return lh_config_load(tables, "agent", (int)argv->len - 1, (char **)argv->pdata, error);
}

static char *flag_of(const char *path)
{
    GString *flag = g_string_new("--");

    for (; *path != '\0'; path++)
        g_string_append_printf(flag, g_ascii_isupper(*path) ? "-%c" : "%c",
                               *path == '.' ? '-' : g_ascii_tolower(*path));
    return g_string_free(flag, FALSE);
}

/* What the setting would be on the command line; NULL: not there. */
static char *as_flag(const LhConfig *config, const LhSetting *row)
{
    g_autofree char *flag = flag_of(row->path), *list = NULL;
    const char *text = lh_config_string(config, row->path);

    if (!lh_config_is_set(config, row->path))
        return NULL;
    if (row->type == LH_SET_BOOL)
        return lh_config_bool(config, row->path) ? g_steal_pointer(&flag) : NULL;
    if (row->type == LH_SET_LIST)
        text = list = g_strjoinv(",", (char **)lh_config_list(config, row->path));
    return g_strconcat(flag, "=", text, NULL);
}

static void check_values(const LhConfig *config, const LhSetting *row)
{
    const char *const *list = lh_config_list(config, row->path);
    gint64 number = lh_config_int(config, row->path);

    FUZZ_CHECK(number >= 0 && number <= LH_JSON_MAX_INT, "%s: %" G_GINT64_FORMAT, row->path,
               number);
    fuzz_check_message(lh_config_source(config, row->path));
    for (guint i = 0; list[i] != NULL; i++)
        FUZZ_CHECK(*list[i] != '\0' && strchr(list[i], ',') == NULL, "%s: \"%s\"", row->path,
                   list[i]);
}

static void check_same(const LhConfig *a, const LhConfig *b, const LhSetting *row)
{
    FUZZ_CHECK(lh_config_int(a, row->path) == lh_config_int(b, row->path), "%s", row->path);
    FUZZ_CHECK(lh_config_bool(a, row->path) == lh_config_bool(b, row->path), "%s", row->path);
    FUZZ_CHECK(g_strv_equal(lh_config_list(a, row->path), lh_config_list(b, row->path)), "%s",
               row->path);
    if (row->type == LH_SET_STRING)
        FUZZ_CHECK(g_strcmp0(lh_config_string(a, row->path), lh_config_string(b, row->path)) == 0,
                   "%s: \"%s\"", row->path, lh_config_string(a, row->path));
}

/* What is accepted is one document, and no text in it goes on behind a NUL. */
static void check_stream(const uint8_t *data, size_t size)
{
    yaml_parser_t parser;
    guint documents = 0;
    gboolean end = FALSE;

    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, data, size);
    while (!end) {
        yaml_event_t event;
        FUZZ_CHECK(yaml_parser_parse(&parser, &event), "%s", parser.problem);
        end = event.type == YAML_STREAM_END_EVENT;
        documents += event.type == YAML_DOCUMENT_START_EVENT;
        if (event.type == YAML_SCALAR_EVENT)
            FUZZ_CHECK(memchr(event.data.scalar.value, '\0', event.data.scalar.length) == NULL,
                       "a NUL in \"%s\"", event.data.scalar.value);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    FUZZ_CHECK(documents <= 1, "%u documents", documents);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *file = write_file(data, size);
    g_autofree char *option = g_strconcat("--config=", file, NULL);
    g_autoptr(GPtrArray) args = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GPtrArray) none = g_ptr_array_new();
    g_autoptr(LhConfig) config = NULL;
    g_autoptr(LhConfig) again = NULL;
    GError *error = NULL;

    g_ptr_array_add(none, option);
    config = load(none, &error);
    if (config == NULL) {
        FUZZ_CHECK(g_str_has_prefix(error->message, file), "%s", error->message);
        fuzz_check_error(error);
        return 0;
    }
    check_stream(data, size);
    for (const LhSetting *const *table = tables; *table != NULL; table++)
        for (const LhSetting *row = *table; row->path != NULL; row++) {
            char *flag = as_flag(config, row);
            check_values(config, row);
            if (flag != NULL)
                g_ptr_array_add(args, flag);
        }
    again = load(args, &error);
    FUZZ_CHECK(again != NULL, "as flags: %s", error->message);
    for (const LhSetting *const *table = tables; *table != NULL; table++)
        for (const LhSetting *row = *table; row->path != NULL; row++)
            check_same(config, again, row);
    return 0;
}

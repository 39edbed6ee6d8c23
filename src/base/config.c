/*
 * Settings from flags, environment, YAML file and defaults, by a table.
 *
 * Every source yields plain text for a row; text becomes a value in one place (set_value), whoever
 * wrote it. The first source that speaks of a row wins. It must not know any single setting but
 * log.*.
 */
#include "base/config.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define MAX_FILE_BYTES (1024 * 1024)
#define MAX_DEPTH      8
#define MAX_LIST       1000

typedef struct {
    const LhSetting *row;
    char *flag_shown; /* "--lease-ttl" */
    const char *flag; /* "lease-ttl": in flag_shown */
    char *variable;   /* "LEASEHOLD_LEASE_TTL" */
    char *source;     /* NULL: nobody has spoken yet */
    char *text;
    char **list;
    gint64 number;
    gboolean truth;
    /* Where GOption leaves what it finds. */
    char *arg_text;
    char **arg_list;
    gboolean arg_bool;
} Value;

struct LhConfig {
    GPtrArray *values;   /* of Value, in table order */
    GHashTable *by_path; /* path → Value */
};

const LhSetting lh_shared_settings[] = {
    {"etcd.endpoints", LH_SET_LIST, "127.0.0.1:2379", "HOST:PORT,…", "where etcd is"},
    {"etcd.prefix", LH_SET_STRING, "/leasehold/", "PREFIX", "all keys lie below it"},
    {"etcd.cacert", LH_SET_STRING, NULL, "FILE", "certificate authority of etcd"},
    {"etcd.cert", LH_SET_STRING, NULL, "FILE", "client certificate for etcd"},
    {"etcd.key", LH_SET_STRING, NULL, "FILE", "its key"},
    {"etcd.user", LH_SET_STRING, NULL, "NAME", "user name at etcd"},
    {"etcd.passwordFile", LH_SET_STRING, NULL, "FILE", "file that holds that user's password"},
    {"listen", LH_SET_STRING, "127.0.0.1:8083", "HOST:PORT", "address to serve on"},
    {"insecure", LH_SET_BOOL, NULL, NULL,
     "serve on a non-loopback address without TLS and authentication"},
    {"httpMaxConnections", LH_SET_INT, "1024", "N",
     "connections served at a time, half of them from one address; others wait"},
    {"tls.cert", LH_SET_STRING, NULL, "FILE", "certificate to serve with"},
    {"tls.key", LH_SET_STRING, NULL, "FILE", "its key"},
    {"tls.clientCa", LH_SET_STRING, NULL, "FILE", "certificate authority of clients"},
    {"auth.tokensFile", LH_SET_STRING, NULL, "FILE", "tokens and their roles"},
    {"leaseTtl", LH_SET_DURATION, "5s", NULL,
     "how long after its last sign of life a process counts"},
    {"objectStore.roots", LH_SET_LIST, NULL, "URI,…",
     "file:///dir/ or s3://bucket/key/; only what lies below is touched"},
    {"objectStore.endpoint", LH_SET_STRING, NULL, "URL", "of the S3 service"},
    {"objectStore.region", LH_SET_STRING, NULL, "NAME", "of the S3 service"},
    {"objectStore.addressing", LH_SET_STRING, "auto", "auto|path|virtual",
     "whether the bucket is in the path or in the host name"},
    {"objectStore.cacert", LH_SET_STRING, NULL, "FILE", "certificate authority of the S3 service"},
    {"objectStore.accessKeyFile", LH_SET_STRING, NULL, "FILE", "file that holds the S3 access key"},
    {"objectStore.secretKeyFile", LH_SET_STRING, NULL, "FILE", "file that holds the S3 secret key"},
    {"log.level", LH_SET_STRING, "info", "debug|info|warning|error", "lowest level that is logged"},
    {"log.format", LH_SET_STRING, "text", "text|json", "form of the lines"},
    {NULL, LH_SET_STRING, NULL, NULL, NULL},
};

/* "objectStore.accessKeyFile" → "--object-store-access-key-file". */
static char *flag_name(const char *path)
{
    GString *out = g_string_new("--");
    for (; *path != '\0'; path++) {
        if (g_ascii_isupper(*path))
            g_string_append_c(out, '-');
        g_string_append_c(out, *path == '.' ? '-' : g_ascii_tolower(*path));
    }
    return g_string_free(out, FALSE);
}

static char *variable_name(const char *flag)
{
    g_autofree char *upper = g_ascii_strup(flag, -1);
    g_strdelimit(upper, "-", '_');
    return g_strconcat("LEASEHOLD_", upper, NULL);
}

static void value_free(gpointer data)
{
    Value *value = data;
    g_free(value->flag_shown);
    g_free(value->variable);
    g_free(value->source);
    g_free(value->text);
    g_strfreev(value->list);
    g_free(value->arg_text);
    g_strfreev(value->arg_list);
    g_free(value);
}

static LhConfig *config_new(const LhSetting *const *tables)
{
    LhConfig *config = g_new0(LhConfig, 1);
    config->values = g_ptr_array_new_with_free_func(value_free);
    config->by_path = g_hash_table_new(g_str_hash, g_str_equal);
    for (; *tables != NULL; tables++) {
        for (const LhSetting *row = *tables; row->path != NULL; row++) {
            Value *value = g_hash_table_lookup(config->by_path, row->path);
            if (value == NULL) {
                value = g_new0(Value, 1);
                value->flag_shown = flag_name(row->path);
                value->flag = value->flag_shown + 2;
                value->variable = variable_name(value->flag);
                g_ptr_array_add(config->values, value);
                g_hash_table_insert(config->by_path, (gpointer)row->path, value);
            }
            value->row = row;
        }
    }
    return config;
}

void lh_config_free(LhConfig *config)
{
    if (config == NULL)
        return;
    g_hash_table_unref(config->by_path);
    g_ptr_array_unref(config->values);
    g_free(config);
}

/* ---- text → value ---- */

/* What was read, for a message: quoted, one line, at most 64 bytes of it. g_free. */
static char *quote(const char *text)
{
    g_autofree char *head = g_strndup(text, 64);
    GString *out = g_string_new(NULL);
    lh_json_append_string(out, head);
    return g_string_free(out, FALSE);
}

static char **split_list(const char *text)
{
    g_autoptr(GPtrArray) parts = g_ptr_array_new_with_free_func(g_free);
    g_auto(GStrv) split = g_strsplit(text, ",", -1);
    for (gsize i = 0; split[i] != NULL; i++) {
        g_strstrip(split[i]);
        if (*split[i] != '\0')
            g_ptr_array_add(parts, g_strdup(split[i]));
    }
    g_ptr_array_add(parts, NULL);
    return (char **)g_ptr_array_free(g_steal_pointer(&parts), FALSE);
}

static gboolean parse_int(const char *text, gint64 *out, GError **error)
{
    guint64 number = 0;
    if (!g_ascii_string_to_unsigned(text, 10, 0, LH_JSON_MAX_INT, &number, NULL)) {
        g_autofree char *quoted = quote(text);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s must be a number from 0 to 2^53-1",
                    quoted);
        return FALSE;
    }
    *out = (gint64)number;
    return TRUE;
}

static gboolean parse_bool(const char *text, gboolean *out, GError **error)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        *out = TRUE;
    else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
        *out = FALSE;
    else {
        g_autofree char *quoted = quote(text);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s must be true or false", quoted);
        return FALSE;
    }
    return TRUE;
}

/* Gives @value its value, unless it has one. @source: who says so. */
static gboolean set_value(Value *value, const char *text, const char *source, GError **error)
{
    if (value->source != NULL)
        return TRUE;
    gboolean ok = TRUE;
    if (!g_utf8_validate(text, -1, NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: must be UTF-8 text", source);
        return FALSE;
    }
    switch (value->row->type) {
    case LH_SET_STRING:
        break;
    case LH_SET_LIST:
        value->list = split_list(text);
        break;
    case LH_SET_INT:
        ok = parse_int(text, &value->number, error);
        break;
    case LH_SET_DURATION:
        ok = lh_duration_parse(text, &value->number, error);
        break;
    case LH_SET_SIZE:
        ok = lh_size_parse(text, &value->number, error);
        break;
    case LH_SET_BOOL:
        ok = parse_bool(text, &value->truth, error);
        break;
    }
    if (!ok) {
        g_prefix_error(error, "%s: ", source);
        return FALSE;
    }
    value->text = g_strdup(text);
    value->source = g_strdup(source);
    return TRUE;
}

/* ---- flags ---- */

static void print_help(const LhConfig *config, const char *usage)
{
    printf("Usage: leasehold %s [OPTION…]\n\n", usage);
    for (guint i = 0; i < config->values->len; i++) {
        const Value *value = g_ptr_array_index(config->values, i);
        static const char *const metavars[] = {"TEXT", "LIST", "N", "DURATION", "SIZE", NULL};
        if (value->row->help == NULL)
            continue;
        const char *metavar = value->row->metavar ? value->row->metavar
                                                  : metavars[value->row->type];
        g_autofree char *left = g_strconcat(value->flag_shown, metavar ? " " : "", metavar, NULL);
        g_autofree char *padded = lh_text_pad(left, 44);
        printf("  %s%s", padded, value->row->help);
        if (value->row->fallback != NULL)
            printf(" (%s)", value->row->fallback);
        printf("\n");
    }
    printf("  %-44s%s\n", "--config FILE", "YAML file with any of these settings");
    printf("\nThe environment (LEASEHOLD_LEASE_TTL for --lease-ttl) comes after flags and before "
           "the file.\n");
}

static gboolean read_flags(LhConfig *config, const char *usage, char **argv, char **file,
                           GError **error)
{
    g_autofree GOptionEntry *entries = g_new0(GOptionEntry, config->values->len + 3);
    gboolean help = FALSE;
    guint n = 0;
    for (; n < config->values->len; n++) {
        Value *value = g_ptr_array_index(config->values, n);
        entries[n].long_name = value->flag;
        /* Not STRING, which would convert from the encoding of the locale: a service has none. */
        entries[n].arg = G_OPTION_ARG_FILENAME;
        entries[n].arg_data = &value->arg_text;
        if (value->row->type == LH_SET_LIST) {
            entries[n].arg = G_OPTION_ARG_FILENAME_ARRAY;
            entries[n].arg_data = &value->arg_list;
        } else if (value->row->type == LH_SET_BOOL) {
            entries[n].arg = G_OPTION_ARG_NONE;
            entries[n].arg_data = &value->arg_bool;
        }
    }
    entries[n++] = (GOptionEntry){
        .long_name = "config", .arg = G_OPTION_ARG_FILENAME, .arg_data = file};
    entries[n++] = (GOptionEntry){
        .long_name = "help", .short_name = 'h', .arg = G_OPTION_ARG_NONE, .arg_data = &help};

    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autoptr(GError) local = NULL;
    g_auto(GStrv) args = g_strdupv(argv);
    g_option_context_set_help_enabled(context, FALSE);
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse_strv(context, &args, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "command line: %s", local->message);
        return FALSE;
    }
    if (help) {
        print_help(config, usage);
        exit(0);
    }
    if (args[0] != NULL && args[1] != NULL) {
        g_autofree char *quoted = quote(args[1]);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "command line: unexpected %s", quoted);
        return FALSE;
    }
    for (guint i = 0; i < config->values->len; i++) {
        Value *value = g_ptr_array_index(config->values, i);
        g_autofree char *joined = value->arg_list != NULL ? g_strjoinv(",", value->arg_list) : NULL;
        const char *text = value->arg_bool ? "true" : joined != NULL ? joined : value->arg_text;
        if (text != NULL && !set_value(value, text, value->flag_shown, error))
            return FALSE;
    }
    return TRUE;
}

static gboolean read_environment(LhConfig *config, GError **error)
{
    for (guint i = 0; i < config->values->len; i++) {
        Value *value = g_ptr_array_index(config->values, i);
        const char *text = g_getenv(value->variable);
        if (text != NULL && *text != '\0' && !set_value(value, text, value->variable, error))
            return FALSE;
    }
    return TRUE;
}

/* ---- the YAML file ---- */

typedef struct {
    LhConfig *config;
    const char *file;
    yaml_document_t *document;
    GHashTable *seen; /* paths */
    GError **error;
} Reader;

G_GNUC_PRINTF(3, 4)
static gboolean refuse(const Reader *r, const yaml_node_t *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *why = g_strdup_vprintf(format, args);
    va_end(args);
    g_set_error(r->error, LH_ERROR, LH_ERR_INVALID, "%s: line %lu: %s", r->file,
                (gulong)node->start_mark.line + 1, why);
    return FALSE;
}

static gboolean has_nul(const yaml_node_t *scalar)
{
    return strlen((const char *)scalar->data.scalar.value) != scalar->data.scalar.length;
}

/* The text of a scalar; NULL when it is null or not a scalar. @list: a sequence will do too. @bad:
 * neither, or there is a NUL in it, behind which nobody would read on. */
static char *node_text(const Reader *r, const yaml_node_t *node, gboolean list, gboolean *bad)
{
    *bad = FALSE;
    if (node->type == YAML_SCALAR_NODE) {
        const char *text = (const char *)node->data.scalar.value;
        gboolean plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        *bad = has_nul(node);
        if (plain && (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0))
            return NULL;
        return g_strndup(text, node->data.scalar.length);
    }
    const yaml_node_item_t *end = node->data.sequence.items.top;
    *bad = node->type != YAML_SEQUENCE_NODE || !list ||
           end - node->data.sequence.items.start > MAX_LIST;
    if (*bad)
        return NULL;
    GString *joined = g_string_new(NULL);
    for (const yaml_node_item_t *item = node->data.sequence.items.start; item < end; item++) {
        const yaml_node_t *child = yaml_document_get_node(r->document, *item);
        if (child->type != YAML_SCALAR_NODE || has_nul(child)) {
            *bad = TRUE;
            g_string_free(joined, TRUE);
            return NULL;
        }
        g_string_append_printf(joined, "%s%s", joined->len > 0 ? "," : "",
                               (const char *)child->data.scalar.value);
    }
    return g_string_free(joined, FALSE);
}

static gboolean read_setting(Reader *r, Value *value, const yaml_node_t *node)
{
    gboolean bad = FALSE;
    g_autofree char *text = node_text(r, node, value->row->type == LH_SET_LIST, &bad);
    if (bad)
        return refuse(r, node, "%s: must be %s", value->row->path,
                      value->row->type == LH_SET_LIST ? "a list of strings"
                                                      : "a single value, without NUL");
    if (text == NULL)
        return TRUE;
    g_autofree char *source = g_strdup_printf("%s: line %lu: %s", r->file,
                                              (gulong)node->start_mark.line + 1, value->row->path);
    return set_value(value, text, source, r->error);
}

static gboolean is_section(const LhConfig *config, const char *path)
{
    g_autofree char *prefix = g_strconcat(path, ".", NULL);
    for (guint i = 0; i < config->values->len; i++) {
        const Value *value = g_ptr_array_index(config->values, i);
        if (g_str_has_prefix(value->row->path, prefix))
            return TRUE;
    }
    return FALSE;
}

static gboolean read_mapping(Reader *r, const char *path, const yaml_node_t *node, guint depth)
{
    if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0)
        return TRUE; /* "etcd:" with everything below it commented out */
    if (node->type != YAML_MAPPING_NODE || depth > MAX_DEPTH)
        return refuse(r, node, "%s: must be a mapping", *path != '\0' ? path : "the document");
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
        const yaml_node_t *child = yaml_document_get_node(r->document, pair->value);
        if (key->type != YAML_SCALAR_NODE || has_nul(key))
            return refuse(r, key, "a key must be a string");
        const char *name = (const char *)key->data.scalar.value;
        char *full = *path != '\0' ? g_strconcat(path, ".", name, NULL) : g_strdup(name);
        g_autofree char *quoted = quote(full);
        if (!g_hash_table_add(r->seen, full))
            return refuse(r, key, "%s: is there twice", name);
        Value *value = g_hash_table_lookup(r->config->by_path, full);
        gboolean ok = value != NULL                 ? read_setting(r, value, child)
                      : is_section(r->config, full) ? read_mapping(r, full, child, depth + 1)
                                                    : refuse(r, key, "unknown setting %s", quoted);
        if (!ok)
            return FALSE;
    }
    return TRUE;
}

/* After the first document nothing may come: it would be settings that nobody reads. */
static gboolean is_last_document(yaml_parser_t *parser, const char *file, GError **error)
{
    yaml_document_t next;
    gboolean loaded = yaml_parser_load(parser, &next);
    gboolean more = !loaded || yaml_document_get_root_node(&next) != NULL;
    if (more)
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: line %lu: %s", file,
                    (gulong)(loaded ? next.start_mark : parser->problem_mark).line + 1,
                    loaded                    ? "there must be one document only"
                    : parser->problem != NULL ? parser->problem
                                              : "is not YAML");
    if (loaded)
        yaml_document_delete(&next);
    return !more;
}

static gboolean parse_yaml(LhConfig *config, const char *file, const char *text, gsize len,
                           GError **error)
{
    yaml_parser_t parser;
    yaml_document_t document;
    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, (const guint8 *)text, len);
    if (!yaml_parser_load(&parser, &document)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: line %lu: %s", file,
                    (gulong)parser.problem_mark.line + 1,
                    parser.problem ? parser.problem : "is not YAML");
        yaml_parser_delete(&parser);
        return FALSE;
    }
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    Reader r = {
        .config = config, .file = file, .document = &document, .seen = seen, .error = error};
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    gboolean ok = root == NULL ||
                  (read_mapping(&r, "", root, 0) && is_last_document(&parser, file, error));
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return ok;
}

static gboolean read_file(LhConfig *config, const char *file, GError **error)
{
    g_autofree char *text = NULL;
    gsize len = 0;
    g_autoptr(GError) local = NULL;
    if (!g_file_get_contents(file, &text, &len, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "--config: %s", local->message);
        return FALSE;
    }
    if (len > MAX_FILE_BYTES || !g_utf8_validate(text, (gssize)len, NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: must be UTF-8 text of at most 1 MiB",
                    file);
        return FALSE;
    }
    return parse_yaml(config, file, text, len, error);
}

LhConfig *lh_config_load(const LhSetting *const *tables, const char *usage, int argc G_GNUC_UNUSED,
                         char **argv, GError **error)
{
    g_autoptr(LhConfig) config = config_new(tables);
    g_autofree char *file = NULL;
    if (!read_flags(config, usage, argv, &file, error) || !read_environment(config, error))
        return NULL;
    const char *named = file != NULL ? file : g_getenv("LEASEHOLD_CONFIG");
    if (named != NULL && *named != '\0' && !read_file(config, named, error))
        return NULL;
    for (guint i = 0; i < config->values->len; i++) {
        Value *value = g_ptr_array_index(config->values, i);
        const char *fallback = value->row->fallback;
        if (fallback != NULL && !set_value(value, fallback, value->flag_shown, error))
            return NULL;
    }
    return g_steal_pointer(&config);
}

/* ---- reading it ---- */

static const Value *find(const LhConfig *config, const char *path)
{
    const Value *value = g_hash_table_lookup(config->by_path, path);
    g_assert(value != NULL);
    return value;
}

gboolean lh_config_is_set(const LhConfig *config, const char *path)
{
    return find(config, path)->source != NULL;
}

const char *lh_config_string(const LhConfig *config, const char *path)
{
    return find(config, path)->text;
}

const char *const *lh_config_list(const LhConfig *config, const char *path)
{
    static const char *const empty[] = {NULL};
    const Value *value = find(config, path);
    return value->list != NULL ? (const char *const *)value->list : empty;
}

gint64 lh_config_int(const LhConfig *config, const char *path)
{
    return find(config, path)->number;
}

gboolean lh_config_bool(const LhConfig *config, const char *path)
{
    return find(config, path)->truth;
}

const char *lh_config_source(const LhConfig *config, const char *path)
{
    const Value *value = find(config, path);
    return value->source != NULL ? value->source : value->flag_shown;
}

gboolean lh_config_setup_log(const LhConfig *config, GError **error)
{
    LhLogLevel level;
    const char *name = lh_config_string(config, "log.level");
    const char *format = lh_config_string(config, "log.format");
    if (!lh_log_level_parse(name, &level)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "%s: \"%.64s\" must be debug, info, warning or error",
                    lh_config_source(config, "log.level"), name);
        return FALSE;
    }
    if (strcmp(format, "text") != 0 && strcmp(format, "json") != 0) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: \"%.64s\" must be text or json",
                    lh_config_source(config, "log.format"), format);
        return FALSE;
    }
    lh_log_setup(level, strcmp(format, "json") == 0 ? LH_LOG_JSON : LH_LOG_TEXT);
    return TRUE;
}

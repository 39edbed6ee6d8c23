/*
 * Settings of a long-running program: command line, then environment, then a YAML file, then the
 * default.
 *
 * A setting is one row of a table, named by its path in the YAML file ("etcd.endpoints",
 * "leaseTtl"). Its flag and its variable follow from the path: --etcd-endpoints,
 * LEASEHOLD_ETCD_ENDPOINTS, --lease-ttl, LEASEHOLD_LEASE_TTL. The file is named by --config or
 * LEASEHOLD_CONFIG. An empty variable is as good as none. Unknown flags, keys of the file and
 * values that do not parse are errors that name their source. Secrets are never settings, only the
 * names of files that hold them. Start of a program; not thread-safe.
 */
#pragma once

#include <glib.h>

typedef enum {
    LH_SET_STRING,
    LH_SET_LIST, /* comma-separated in flags and variables; a sequence or such a string in the file;
                      * no element may hold a comma */
    LH_SET_INT,  /* 0..2^53-1 */
    LH_SET_DURATION, /* milliseconds */
    LH_SET_SIZE,     /* bytes */
    LH_SET_BOOL,     /* a flag without a value; true or false elsewhere */
} LhSettingType;

typedef struct {
    const char *path;
    LhSettingType type;
    const char *fallback; /* as it would be written in a flag; NULL: unset */
    const char *metavar;  /* for --help; NULL: by type */
    const char *help;     /* NULL: not shown in --help */
} LhSetting;

/* What manager and agent have in common (CONTRACT.md, section 3): etcd.*, listen, insecure, tls.*,
 * auth.*, leaseTtl, objectStore.*, log.*. Ended by a NULL path. */
extern const LhSetting lh_shared_settings[];

typedef struct LhConfig LhConfig;

/* Reads everything. @tables: NULL-ended list of tables, each ended by a NULL path; the row of a
 * later table replaces one of the same path in an earlier one. @argv[0] is skipped. --help prints
 * @usage ("agent --pool P --name N") and the flags, and exits 0. Errors: LH_ERR_INVALID, "<source>:
 * <why>" on one line. */
LhConfig *lh_config_load(const LhSetting *const *tables, const char *usage, int argc, char **argv,
                         GError **error);
void lh_config_free(LhConfig *config); /* accepts NULL */

/* The value of a setting of the tables (any other path is a bug). Owned by the config. */
gboolean lh_config_is_set(const LhConfig *config,
                          const char *path); /* by someone, or by a default */
const char *lh_config_string(const LhConfig *config, const char *path);      /* NULL: unset */
const char *const *lh_config_list(const LhConfig *config, const char *path); /* never NULL */
gint64 lh_config_int(const LhConfig *config, const char *path); /* INT, DURATION, SIZE; 0: unset */
gboolean lh_config_bool(const LhConfig *config, const char *path);
/* "--lease-ttl", "LEASEHOLD_LEASE_TTL", "/etc/leasehold.yaml: leaseTtl": where a value came from,
 * for messages about it; the flag's name when it is a default or unset. */
const char *lh_config_source(const LhConfig *config, const char *path);

/* lh_log_setup by log.level and log.format. */
gboolean lh_config_setup_log(const LhConfig *config, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhConfig, lh_config_free)

/*
 * For the tests of api/: for each kind a name and the least that it needs, and assertions.
 *
 * Values of desired kinds are given without their envelope; sample_value() puts it around.
 */
#pragma once

#include "api/actual.h"
#include "api/decided.h"
#include "api/desired.h"
#include "api/published.h"
#include "base/errors.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

typedef struct {
    const char *name;
    const char *json; /* with the required fields, and those without which none may be alone */
} Sample;

static const Sample samples[LH_N_KINDS] = {
    [LH_KIND_SERVICE] = {"api-logs", "{\"owner\":\"team\"}"},
    [LH_KIND_SEED] = {"seed-1", "{\"url\":\"https://example.org/\"}"},
    [LH_KIND_THROTTLE] = {"slow", "{\"requests\":100,\"period\":\"1m\"}"},
    [LH_KIND_PARTITION] = {"p-1", "{}"},
    [LH_KIND_RESTORE] = {"r-1", "{\"service\":\"*\",\"startTime\":1,\"endTime\":2}"},
    [LH_KIND_NODEPOLICY] = {"cache/node-a", "{}"},
    [LH_KIND_SETTINGS] = {"failure-detector", "{}"},
    [LH_KIND_CONFIRMATION] = {"cache-evictor", "{\"planHash\":\"abc\"}"},
    [LH_KIND_SNAPSHOT] = {"snap-1", "{\"service\":\"api-logs\",\"startTime\":1000,\"endTime\":2000,"
                                    "\"sizeBytes\":7,\"uri\":\"s3://bucket/a/\"}"},
    [LH_KIND_RECOVERYTASK] = {"task-1",
                              "{\"partition\":\"p-1\",\"startOffset\":0,\"endOffset\":9}"},
    [LH_KIND_ACCEPTED] = {"services/api-logs", "{\"revision\":7,\"spec\":{\"owner\":\"team\"}}"},
    [LH_KIND_REPLICA] = {"snap-1.default.0",
                         "{\"snapshot\":\"snap-1\",\"service\":\"api-logs\",\"set\":\"default\","
                         "\"expiresAt\":5000}"},
    [LH_KIND_ASSIGNMENT] = {"cache/node-a-0123abcd/snap-1.default.0", "{\"action\":\"load\"}"},
    [LH_KIND_RETRY] = {"cache/snap-1.default.0", "{}"},
    [LH_KIND_PARTITIONPLAN] = {"api-logs", "{}"},
    [LH_KIND_RESTOREPROGRESS] = {"r-1", "{\"phase\":\"Active\"}"},
    [LH_KIND_HEALTH] = {"cache/node-a-0123abcd", "{\"state\":\"healthy\"}"},
    [LH_KIND_DELETION] = {"snap-1",
                          "{\"uri\":\"file:///d/\",\"snapshotRevision\":5,\"decidedAt\":6}"},
    [LH_KIND_ORPHAN] = {HEX64, "{\"uri\":\"file:///d/\",\"firstSeen\":1}"},
    [LH_KIND_BRAKE] = {"cache-evictor", "{\"revision\":1,\"since\":1,\"planHash\":\"abc\"}"},
    [LH_KIND_STATUS] = {"services/api-logs/admission", "{}"},
    [LH_KIND_NODE] = {"cache/node-a-0123abcd", "{\"name\":\"node-a\"}"},
    [LH_KIND_ITEM] = {"cache/node-a-0123abcd/snap-1.default.0", "{\"state\":\"live\"}"},
    [LH_KIND_SEARCH] = {"cache/node-a-0123abcd/snap-1", "{}"},
    [LH_KIND_LEADER] = {"cache-evictor/0123456789abcdef", "{}"},
    [LH_KIND_EVENT] = {"0001", "{\"time\":1}"},
};

/* The etcd value for the fields @json. g_free. */
static inline char *sample_value(LhKind kind, const char *json)
{
    return lh_kind_is_desired(kind) ? g_strdup_printf("{\"spec\":%s}", json) : g_strdup(json);
}

/* Parses from a heap block of exactly the text's length. */
static inline LhObject *parse_bytes(LhKind kind, const char *name, const char *value, gsize len)
{
    g_autofree char *exact = g_memdup2(value, len);
    return lh_object_parse(kind, name, exact, len, 11, 22, 33);
}

static inline LhObject *parse_value(LhKind kind, const char *name, const char *value)
{
    return parse_bytes(kind, name, value, strlen(value));
}

/* Fields as @json, under the sample's name. */
static inline LhObject *parse_fields(LhKind kind, const char *json)
{
    g_autofree char *value = sample_value(kind, json);
    return parse_value(kind, samples[kind].name, value);
}

static inline void assert_known(const LhObject *object)
{
    if (!lh_object_known(object))
        fail_msg("%s: %s", object->name, lh_object_error(object));
}

static inline LhObject *parse_known(LhKind kind, const char *json)
{
    LhObject *object = parse_fields(kind, json);
    assert_known(object);
    return object;
}

static inline void assert_error_is(const LhObject *object, const char *error)
{
    if (lh_object_known(object))
        fail_msg("accepted; should say \"%s\"", error);
    assert_string_equal(lh_object_error(object), error);
}

/* The fields @json are refused with exactly @error. */
static inline void assert_refused(LhKind kind, const char *json, const char *error)
{
    g_autoptr(LhObject) object = parse_fields(kind, json);
    assert_error_is(object, error);
}

/* The fields @json are read, and printed as @printed. */
static inline void assert_printed(LhKind kind, const char *json, const char *printed)
{
    g_autoptr(LhObject) object = parse_known(kind, json);
    g_autofree char *text = lh_object_print(kind, object);
    assert_string_equal(text, printed);
}

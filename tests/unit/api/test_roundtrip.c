/*
 * api: random structs of every kind, made from the tables, are the same after print and parse; damaged
 * texts never crash, and what is accepted of them is stable.
 *
 * Always the same random numbers: a failure repeats. Run under ASan and UBSan.
 */
#include "samples.h"
#include "tests/unit/every.h"

#define N_STRUCTS 400 /* of each kind */
#define N_DAMAGED 25000

typedef struct {
    GRand *rand;
    GPtrArray *pool; /* all memory of the structs */
} Maker;

static void maker_init(Maker *m, guint32 seed)
{
    m->rand = g_rand_new_with_seed(seed);
    m->pool = g_ptr_array_new_with_free_func(g_free);
}

static void maker_clear(Maker *m)
{
    g_rand_free(m->rand);
    g_ptr_array_unref(m->pool);
}

static guint below(Maker *m, guint n)
{
    return (guint)g_rand_int_range(m->rand, 0, (gint32)n);
}

static gpointer keep(Maker *m, gpointer data)
{
    g_ptr_array_add(m->pool, data);
    return data;
}

static gint64 int_between(Maker *m, gint64 min, gint64 max)
{
    guint64 span = (guint64)(max - min);
    guint64 any = (guint64)g_rand_int(m->rand) << 32 | g_rand_int(m->rand);
    guint few = below(m, 100);
    switch (below(m, 4)) {
    case 0:
        return min;
    case 1:
        return max;
    case 2:
        return min + (gint64)MIN(span, few);
    default:
        return min + (gint64)(span == G_MAXUINT64 ? any : any % (span + 1));
    }
}

/* --- a random struct --- */

static const char *make_name(Maker *m, guint max)
{
    static const char letters[] = "abcXYZ019";
    guint len = 1 +
                below(m, MIN(max, 12)); /* below() is never MIN's argument: it is called twice */
    char *name = g_malloc(len + 1);
    for (guint i = 0; i < len; i++)
        name[i] = letters[below(m, sizeof letters - 1)];
    if (len > 2)
        name[len / 2] = "._-"[below(m, 3)];
    name[len] = '\0';
    return keep(m, name);
}

static const char *make_pool_name(Maker *m)
{
    char *name = g_ascii_strdown(make_name(m, 12), -1);
    return keep(m, g_strdelimit(name, "._", '-'));
}

static const char *make_text(Maker *m, guint min, guint max)
{
    static const gunichar letters[] = {'a',  ' ',  '"',    '\\',    '/', '\n', 1,
                                       0x7f, 0xfc, 0x20ac, 0x1f600, '{', ',',  'z'};
    GString *text = g_string_new(NULL);
    guint n = min + below(m, 12);
    while (n-- > 0 && text->len + 4 <= max)
        g_string_append_unichar(text, letters[below(m, G_N_ELEMENTS(letters))]);
    return keep(m, g_string_free(text, FALSE));
}

static const char *make_string(Maker *m, const LhField *field)
{
    guint max = field->max > 0 ? (guint)field->max : 253;
    if ((field->flags & LH_POOL_NAME) != 0)
        return make_pool_name(m);
    if ((field->flags & LH_NAME) != 0)
        return make_name(m, max);
    return make_text(m, (guint)field->min, max);
}

static const char *const *make_strv(Maker *m, const LhField *field)
{
    guint n = (guint)field->min + below(m, 4);
    const char **strv = keep(m, g_new0(const char *, n + 1));
    for (guint i = 0; i < n; i++) {
        const char *text = (field->flags & LH_POOL_NAME) != 0 ? make_pool_name(m)
                                                              : make_name(m, 100);
        strv[i] = keep(m, g_strdup_printf("%s%u", text, i)); /* unique */
    }
    return strv;
}

static const LhStrMap *make_map(Maker *m)
{
    guint n = below(m, 4);
    LhStrMap *map = keep(m, g_new0(LhStrMap, 1));
    const char **pairs = keep(m, g_new0(const char *, 2 * n + 1));
    for (guint i = 0; i < n; i++) {
        pairs[2 * i] = keep(m, g_strdup_printf("%u%s", i, make_text(m, 0, 100)));
        pairs[2 * i + 1] = make_text(m, 0, 100);
    }
    map->n = n;
    map->pairs = pairs;
    return map;
}

static const guint8 *make_digests(Maker *m)
{
    GString *packed = g_string_new(NULL);
    guint n = below(m, 3);
    for (guint i = 0; i < n; i++) {
        g_string_append_printf(packed, "%u/%s", i, make_name(m, 20));
        g_string_append_c(packed, '\0');
        for (guint k = 0; k < 32; k++)
            g_string_append_c(packed, (char)below(m, 256));
    }
    return keep(m, g_string_free(packed, FALSE));
}

static void make_struct(Maker *m, const LhField *fields, char *data);

static const LhArray *make_array(Maker *m, const LhField *field)
{
    const LhStructInfo *info = field->sub;
    guint n = below(m, 4);
    LhArray *array = keep(m, g_new0(LhArray, 1));
    char *items = keep(m, g_malloc0(n * info->size + 1));
    for (guint i = 0; i < n; i++) {
        make_struct(m, info->fields, items + i * info->size);
        if ((field->flags & LH_SORTED) != 0)
            *(const char **)(items + i * info->size +
                             info->fields[0].offset) = keep(m, g_strdup_printf("%u", i));
    }
    array->n = n;
    array->size = info->size;
    array->items = items;
    return array;
}

static void make_field(Maker *m, const LhField *field, char *data)
{
    gboolean some = (field->flags & LH_REQUIRED) != 0 || field->fallback != NULL || below(m, 3) > 0;
    char *at = data + field->offset;
    switch (field->type) {
    case LH_F_STR:
    case LH_F_ATOM:
        *(const char **)at = some ? make_string(m, field) : NULL;
        return;
    case LH_F_INT:
    case LH_F_SIZE:
    case LH_F_DURATION:
        if (field->min == 0 && field->max == 0)
            *(gint64 *)at = int_between(m, 0, LH_JSON_MAX_INT);
        else
            *(gint64 *)at = int_between(m, field->min, field->max);
        return;
    case LH_F_BOOL:
        *(gboolean *)at = below(m, 2) == 1;
        return;
    case LH_F_TIME:
        *(gint64 *)at = !some ? -1
                              : int_between(m, 0,
                                            field->max > 0 ? field->max
                                                           : G_GINT64_CONSTANT(253370764799999));
        return;
    case LH_F_ENUM:
        *(int *)at = (int)below(m, g_strv_length((char **)field->sub));
        return;
    case LH_F_STRV:
        *(const char *const **)at = make_strv(m, field);
        return;
    case LH_F_MAP:
        *(const LhStrMap **)at = make_map(m);
        return;
    case LH_F_DIGESTS:
        *(const guint8 **)at = make_digests(m);
        return;
    case LH_F_URI: /* in one part, in two, in three */
        if (below(m, 3) == 0)
            *(LhUri *)at = (LhUri){
                .dir = keep(m, g_strdup_printf("s3://b/%s/", make_pool_name(m)))};
        else
            *(LhUri *)at = (LhUri){.dir = "s3://b/d/",
                                   .middle = (const char *[]){NULL, "m/n/", "/m/n/"}[below(m, 3)],
                                   .last = make_pool_name(m)};
        return;
    case LH_F_RAW:
        *(const char **)at = some ? "{\"a\":[1,-2.5,{\"b\":null}],\"c\":\"ü\\n\"}" : NULL;
        return;
    case LH_F_STRUCT:
        make_struct(m, ((const LhStructInfo *)field->sub)->fields, at);
        return;
    case LH_F_ARRAY:
        *(const LhArray **)at = make_array(m, field);
        return;
    }
}

static void make_struct(Maker *m, const LhField *fields, char *data)
{
    for (const LhField *field = fields; field->name != NULL; field++)
        make_field(m, field, data);
}

/* --- what several fields must say together --- */

static void mend_snapshot(LhSnapshot *snapshot, Maker *m)
{
    if (!snapshot->live && snapshot->end_time < 0)
        snapshot->end_time = snapshot->start_time;
    if (snapshot->end_time >= 0)
        snapshot->start_time = MIN(snapshot->start_time, snapshot->end_time);
    if (snapshot->live && below(m, 2) == 0)
        snapshot->size_bytes = -1;
}

static void mend_restore(LhRestore *restore)
{
    if (restore->snapshots[0] != NULL) {
        restore->service = NULL;
        restore->start_time = restore->end_time = -1;
        return;
    }
    restore->service = "*";
    restore->end_time = MAX(restore->end_time, 0);
    restore->start_time = CLAMP(restore->start_time, 0, restore->end_time);
}

static void mend_throttle(LhThrottle *throttle, Maker *m)
{
    if (below(m, 2) == 0)
        throttle->requests = throttle->period_ms = 0;
    else if (below(m, 2) == 0)
        throttle->max_concurrent = 0;
}

static void mend_history(LhPartitionPlan *plan)
{
    for (guint i = 0; i < plan->history->n; i++) {
        LhPartitionInterval *now = (LhPartitionInterval *)lh_array_at(plan->history, i);
        now->start = 10 * i;
        now->end = i + 1 < plan->history->n ? now->start + 10 : -1;
    }
}

/* Makes a random struct one that its kind's check takes; returns its name. */
static const char *mend(LhKind kind, gpointer data, Maker *m)
{
    const char *name = samples[kind].name;
    if (kind == LH_KIND_SERVICE) {
        LhService *service = data;
        if (service->cache_window_ms >= service->retention_ms)
            service->cache_window_ms = service->retention_ms - 1;
    } else if (kind == LH_KIND_SEED) {
        LhSeed *seed = data;
        if (seed->url == NULL && seed->connector == NULL)
            seed->url = "u";
        else if (seed->url != NULL)
            seed->connector = NULL;
    } else if (kind == LH_KIND_THROTTLE) {
        mend_throttle(data, m);
    } else if (kind == LH_KIND_RESTORE) {
        mend_restore(data);
    } else if (kind == LH_KIND_SETTINGS) {
        LhSettings *settings = data;
        settings->probe_path = "/x";
        settings->rebalance_at = -1; /* another controller's */
    } else if (kind == LH_KIND_SNAPSHOT) {
        mend_snapshot(data, m);
    } else if (kind == LH_KIND_RECOVERYTASK) {
        LhRecoveryTask *task = data;
        task->end_offset = MAX(task->start_offset - 1, task->end_offset);
    } else if (kind == LH_KIND_ACCEPTED) {
        ((LhAccepted *)data)->spec = "{\"owner\":\"o\",\"pattern\":\"ü\"}";
    } else if (kind == LH_KIND_REPLICA) {
        LhReplica *replica = data;
        if (!replica->restored)
            replica->expires_at = MAX(0, replica->expires_at);
        name = keep(m, lh_replica_name(replica->snapshot, replica->set, replica->ordinal,
                                       replica->restored));
    } else if (kind == LH_KIND_PARTITIONPLAN) {
        mend_history(data);
    } else if (kind == LH_KIND_DELETION) {
        ((LhDeletion *)data)->uri = "file:///d/";
    } else if (kind == LH_KIND_NODE) {
        name = keep(m, g_strdup_printf("cache/%s-01234567", ((const LhNode *)data)->node_name));
    } else if (kind == LH_KIND_ASSIGNMENT) {
        /* what is not printed without its pool's own field */
        LhAssignment *assignment = data;
        if (assignment->partition == NULL)
            assignment->start_offset = assignment->end_offset = 0;
        if (assignment->snapshot == NULL)
            assignment->size_bytes = 0;
    }
    return name;
}

/* A random valid object on the heap of @m. */
static LhObject *make_object(Maker *m, LhKind kind)
{
    const LhKindInfo *info = lh_kind_info(kind);
    LhObject *data = keep(m, g_malloc0(info->size));
    const LhField *fields = info->fields_of != NULL ? info->fields_of(samples[kind].name)
                                                    : info->fields;
    make_struct(m, fields, (char *)data);
    data->name = mend(kind, data, m);
    return data;
}

static LhObject *parse_printed(LhKind kind, const char *name, const char *text)
{
    g_autofree char *value = sample_value(kind, text);
    return parse_value(kind, name, value);
}

static void random_structs_survive_a_round_trip(void **state)
{
    (void)state;
    for (LhKind kind = 0; kind < LH_N_KINDS; kind++) {
        for (guint i = 0; i < N_STRUCTS; i += every()) {
            Maker m;
            maker_init(&m, (guint32)kind * N_STRUCTS + i);
            const LhObject *data = make_object(&m, kind);
            g_autofree char *text = lh_object_print(kind, data);
            g_autoptr(LhObject) object = parse_printed(kind, data->name, text);
            if (!lh_object_known(object))
                fail_msg("%s %s: %s", lh_kind_info(kind)->name, text, lh_object_error(object));
            g_autofree char *again = lh_object_print(kind, object);
            assert_string_equal(text, again);
            if (!lh_object_same(kind, data, object))
                fail_msg("%s %s: not the same", lh_kind_info(kind)->name, text);
            assert_null(lh_object_warning(object));
            maker_clear(&m);
        }
    }
}

/* Changes one random field: the two must differ, unless they print alike. */
static void same_sees_every_field(void **state)
{
    (void)state;
    guint differed = 0;
    for (LhKind kind = 0; kind < LH_N_KINDS; kind++) {
        for (guint i = 0; i < N_STRUCTS; i += every()) {
            Maker m;
            maker_init(&m, (guint32)kind * N_STRUCTS + i);
            const LhKindInfo *info = lh_kind_info(kind);
            LhObject *a = make_object(&m, kind);
            LhObject *b = keep(&m, g_memdup2(a, info->size));
            guint n = 0;
            while (info->fields[n].name != NULL)
                n++;
            make_field(&m, &info->fields[below(&m, n)], (char *)b);
            a->name = b->name = NULL; /* Settings: all fields */
            g_autofree char *one = lh_object_print(kind, a);
            g_autofree char *other = lh_object_print(kind, b);
            assert_int_equal(lh_object_same(kind, a, b), strcmp(one, other) == 0);
            differed += strcmp(one, other) != 0;
            maker_clear(&m);
        }
    }
    assert_true(differed > LH_N_KINDS * N_STRUCTS / 4 / every());
}

/* --- damaged texts --- */

static void damage(Maker *m, GString *text)
{
    static const char *const pieces[] = {
        "null",
        "true",
        "{}",
        "[]",
        "{\"a\":1}",
        "-1",
        "9007199254740993",
        "1e999",
        "\"\"",
        "\"",
        "\\",
        "\xff",
        ",",
        ":",
        "\\u0000",
        "\"9999-01-01T00:00:00Z\"",
        "0.5",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "\"7d\"",
        "\"../\"",
    };
    gsize at = below(m, (guint)text->len + 1);
    gsize left = text->len - at;
    gsize few = 1 + below(m, 8);
    switch (below(m, 5)) {
    case 0:
        g_string_insert(text, (gssize)at, pieces[below(m, G_N_ELEMENTS(pieces))]);
        return;
    case 1:
        g_string_erase(text, (gssize)at, (gssize)MIN(left, few));
        return;
    case 2: { /* in place of a value */
        const char *colon = strchr(text->str + at, ':');
        if (colon != NULL) {
            gsize start = (gsize)(colon - text->str) + 1;
            g_string_erase(text, (gssize)start, (gssize)strcspn(colon + 1, ",}"));
            g_string_insert(text, (gssize)start, pieces[below(m, G_N_ELEMENTS(pieces))]);
        }
        return;
    }
    case 3:
        if (left > 0)
            text->str[at] = (char)below(m, 256);
        return;
    default:
        g_string_insert_len(text, (gssize)at, text->str, (gssize)MIN(text->len, few));
    }
}

static void damaged_texts_never_crash(void **state)
{
    (void)state;
    const guint texts = N_DAMAGED / every();
    guint known = 0;
    for (guint i = 0; i < texts; i++) {
        Maker m;
        maker_init(&m, i);
        LhKind kind = (LhKind)below(&m, LH_N_KINDS);
        const LhObject *data = make_object(&m, kind);
        g_autofree char *printed = lh_object_print(kind, data);
        g_autofree char *value = sample_value(kind, printed);
        g_autoptr(GString) text = g_string_new(value);
        for (guint n = below(&m, 3) + 1; n > 0; n--)
            damage(&m, text);
        g_autoptr(LhObject) object = parse_bytes(kind, data->name, text->str, text->len);
        if (lh_object_known(object)) {
            known++;
            g_autofree char *once = lh_object_print(kind, object);
            g_autoptr(LhObject) second = parse_printed(kind, data->name, once);
            assert_known(second);
            assert_true(lh_object_same(kind, object, second));
        } else {
            assert_true(g_utf8_validate(lh_object_error(object), -1, NULL));
            assert_true(strlen(lh_object_error(object)) < 1000);
        }
        maker_clear(&m);
    }
    assert_true(known > texts / 20 && known < texts * 19 / 20);
}

static void random_bytes_never_crash(void **state)
{
    (void)state;
    Maker m;
    maker_init(&m, 7);
    for (guint i = 0; i < 5000; i++) {
        guint8 bytes[64];
        guint len = below(&m, sizeof bytes);
        for (guint k = 0; k < len; k++)
            bytes[k] = (guint8)below(&m, 256);
        char name[16];
        guint name_len = below(&m, sizeof name);
        for (guint k = 0; k < name_len; k++)
            name[k] = (char)(1 + below(&m, 255));
        name[name_len] = '\0';
        LhKind kind = (LhKind)below(&m, LH_N_KINDS + 1);
        g_autoptr(LhObject) object = parse_bytes(kind, name, (const char *)bytes, len);
        assert_false(lh_object_known(object));
        assert_string_equal(object->name, name);
    }
    maker_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_structs_survive_a_round_trip),
        cmocka_unit_test(same_sees_every_field),
        cmocka_unit_test(damaged_texts_never_crash),
        cmocka_unit_test(random_bytes_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The simulation's own view of etcd, typed and built from commits alone, and what the contract says
 * about it: which replicas are wanted, which snapshots are valid. Written from CONTRACT.md, not from
 * the controllers' code. It must not look at any mirror or index.
 */
#include "sim.h"

#include <string.h>

#define GROUP        "model"
#define VERIFY_EVERY 400 /* changes of assignments */

static gint64 *boxed(gint64 value)
{
    return g_memdup2(&value, sizeof value);
}

void sim_model_init(SimModel *model)
{
    GHashTable **numbers[] = {&model->bytes, &model->gone_ms, &model->cordoned_ms};
    GHashTable **sets[] = {&model->ids, &model->epochs};
    model->hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    model->items = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                         (GDestroyNotify)g_ptr_array_unref);
    model->pairs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    model->verify_in = VERIFY_EVERY;
    model->digests = g_array_new(FALSE, FALSE, sizeof(guint64));
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        model->kinds[kind] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                                   (GDestroyNotify)lh_object_unref);
    for (guint i = 0; i < G_N_ELEMENTS(numbers); i++)
        *numbers[i] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    for (guint i = 0; i < G_N_ELEMENTS(sets); i++)
        *sets[i] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    model->ordered_ms = g_array_new(FALSE, FALSE, sizeof(gint64));
    model->assigned = g_array_new(FALSE, FALSE, sizeof(SimCount));
}

void sim_model_clear(SimModel *model)
{
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        g_hash_table_unref(model->kinds[kind]);
    g_hash_table_unref(model->hosts);
    g_hash_table_unref(model->items);
    g_hash_table_unref(model->pairs);
    g_array_unref(model->digests);
    g_hash_table_unref(model->bytes);
    g_hash_table_unref(model->gone_ms);
    g_hash_table_unref(model->cordoned_ms);
    g_hash_table_unref(model->ids);
    g_hash_table_unref(model->epochs);
    g_array_unref(model->ordered_ms);
    g_array_unref(model->assigned);
}

const LhObject *sim_get(const Sim *sim, LhKind kind, const char *name)
{
    return g_hash_table_lookup(sim->model.kinds[kind], name);
}

/* ---- what a commit means beyond the objects ---- */

static void note_node(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const char *id = strchr(change->name, '/');
    if (id == NULL)
        return;
    if (change->after == NULL && commit->commit->cause == FAKE_BY_OPERATOR)
        g_hash_table_remove(sim->model.ids, id + 1); /* perhaps before its node knew of it */
    if (change->after == NULL) {
        g_hash_table_replace(sim->model.gone_ms, g_strdup(id + 1), boxed(sim_now(sim)));
    } else {
        g_hash_table_remove(sim->model.gone_ms, id + 1);
        g_hash_table_add(sim->model.ids, g_strdup(id + 1));
    }
}

static void note_cordon(Sim *sim, const SimChange *change)
{
    const LhNodePolicy *policy = lh_accepted_spec(change->after, LH_KIND_NODEPOLICY);
    const char *prefix = "nodepolicies/" LH_SIM_POOL "/";
    if (!g_str_has_prefix(change->name, prefix))
        return;
    const char *host = change->name + strlen(prefix);
    if (policy == NULL || !policy->cordon)
        g_hash_table_remove(sim->model.cordoned_ms, host);
    else if (!g_hash_table_contains(sim->model.cordoned_ms, host))
        g_hash_table_replace(sim->model.cordoned_ms, g_strdup(host), boxed(sim_now(sim)));
}

/* ---- assignments by node name, item and snapshot ---- */

gboolean sim_place(const char *assignment, SimPlace *out)
{
    *out = (SimPlace){lh_name_part(assignment, 1), lh_name_part(assignment, 2), NULL};
    if (out->node != NULL && out->item != NULL)
        out->host = lh_node_name_of(out->node);
    return out->host != NULL;
}

void sim_place_clear(SimPlace *place)
{
    g_free(place->node);
    g_free(place->item);
    g_free(place->host);
}

static void add_pair(SimModel *model, const SimPlace *place, gint sign)
{
    g_autofree char *snapshot = sim_snapshot_of(place->item);
    if (snapshot == NULL)
        return;
    char *pair = g_strconcat(place->host, "/", snapshot, NULL);
    gint n = GPOINTER_TO_INT(g_hash_table_lookup(model->pairs, pair)) + sign;
    if (n == 0)
        g_hash_table_remove(model->pairs, pair);
    else
        g_hash_table_replace(model->pairs, g_strdup(pair), GINT_TO_POINTER(n));
    g_free(pair);
}

static void add_item(SimModel *model, const char *name, const SimPlace *place, gboolean add)
{
    GPtrArray *names = g_hash_table_lookup(model->items, place->item);
    guint at;
    if (names == NULL) {
        names = g_ptr_array_new_with_free_func(g_free);
        g_hash_table_insert(model->items, g_strdup(place->item), names);
    }
    if (add)
        g_ptr_array_add(names, g_strdup(name));
    else if (g_ptr_array_find_with_equal_func(names, name, g_str_equal, &at))
        g_ptr_array_remove_index(names, at);
    if (names->len == 0)
        g_hash_table_remove(model->items, place->item);
}

/* @items: 1 it came, -1 it went, 0 only its bytes have changed. */
static void add_use(SimModel *model, const char *name, gint64 bytes, gint items)
{
    g_auto(SimPlace) place = {0};
    if (!sim_place(name, &place))
        return;
    SimUse *use = g_hash_table_lookup(model->hosts, place.host);
    if (use == NULL) {
        use = g_new0(SimUse, 1);
        g_hash_table_insert(model->hosts, g_strdup(place.host), use);
    }
    use->bytes += bytes;
    use->items += items;
    if (items == 0)
        return;
    add_pair(model, &place, items);
    add_item(model, name, &place, items > 0);
}

SimUse sim_use(const Sim *sim, const char *host)
{
    const SimUse *use = g_hash_table_lookup(sim->model.hosts, host);
    return use == NULL ? (SimUse){0, 0} : *use;
}

const GPtrArray *sim_assignments_of(const Sim *sim, const char *item)
{
    return g_hash_table_lookup(sim->model.items, item);
}

guint sim_pair(const Sim *sim, const char *host, const char *snapshot)
{
    g_autofree char *pair = g_strconcat(host, "/", snapshot, NULL);
    return GPOINTER_TO_UINT(g_hash_table_lookup(sim->model.pairs, pair));
}

static void note_assignment(Sim *sim, const SimChange *change)
{
    const LhAssignment *assignment = (const LhAssignment *)change->after;
    gboolean was = sim_get(sim, LH_KIND_ASSIGNMENT, change->name) != NULL;
    gint64 before = sim_assignment_bytes(sim, change->name);
    if (assignment == NULL)
        g_hash_table_remove(sim->model.bytes, change->name);
    else if (lh_object_known(change->after))
        g_hash_table_replace(sim->model.bytes, g_strdup(change->name),
                             boxed(assignment->size_bytes));
    add_use(&sim->model, change->name, sim_assignment_bytes(sim, change->name) - before,
            (assignment != NULL) - was);
}

/* What was kept from change to change is what one finds when one counts. */
static void verify(Sim *sim)
{
    g_autoptr(GHashTable) hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_ASSIGNMENT]);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        g_auto(SimPlace) place = {0};
        if (!sim_place(key, &place))
            continue;
        SimUse *use = g_hash_table_lookup(hosts, place.host);
        if (use == NULL) {
            use = g_new0(SimUse, 1);
            g_hash_table_insert(hosts, g_strdup(place.host), use);
        }
        use->bytes += sim_assignment_bytes(sim, key);
        use->items++;
        const GPtrArray *names = sim_assignments_of(sim, place.item);
        g_autofree char *snapshot = sim_snapshot_of(place.item);
        if (names == NULL ||
            !g_ptr_array_find_with_equal_func((GPtrArray *)names, key, g_str_equal, NULL))
            sim_fail(sim, GROUP, "%s is not among the assignments of its item", (char *)key);
        if (snapshot != NULL && sim_pair(sim, place.host, snapshot) == 0)
            sim_fail(sim, GROUP, "%s is not among those of its snapshot", (char *)key);
    }
    g_hash_table_iter_init(&iter, sim->model.hosts);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const SimUse *kept = value, *found = g_hash_table_lookup(hosts, key);
        if (kept->items != (found == NULL ? 0 : found->items) ||
            kept->bytes != (found == NULL ? 0 : found->bytes))
            sim_fail(sim, GROUP, "%s: what it holds was counted wrongly", (char *)key);
    }
    sim->model.verify_in = VERIFY_EVERY;
}

/* ---- one number for all that exists ---- */

static guint64 stir(guint64 sum, guint64 more)
{
    sum = (sum ^ more) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    return sum ^ sum >> 29;
}

guint64 sim_digest(LhKind kind, const char *name, gint64 create_rev, gint64 mod_rev, gint64 lease)
{
    guint64 sum = stir(g_str_hash(name), kind);
    sum = stir(sum, (guint64)create_rev);
    sum = stir(sum, (guint64)mod_rev);
    return stir(sum, (guint64)lease);
}

gboolean sim_digest_at(const Sim *sim, gint64 revision, guint64 *out)
{
    gint64 i = revision - sim->model.digest_base;
    if (i < 0 || i >= sim->model.digests->len)
        return FALSE;
    *out = g_array_index(sim->model.digests, guint64, i);
    return TRUE;
}

static guint64 digest_of(const SimChange *change, const LhKv *kv)
{
    return sim_digest(change->kind, change->name, kv->create_rev, kv->mod_rev, kv->lease);
}

static void note_digest(Sim *sim, const SimCommit *commit)
{
    SimModel *model = &sim->model;
    guint64 sum = model->digests->len == 0
                      ? 0
                      : g_array_index(model->digests, guint64, model->digests->len - 1);
    if (model->digests->len == 0)
        model->digest_base = commit->commit->revision;
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_N_KINDS)
            continue;
        if (change->prev != NULL)
            sum -= digest_of(change, change->prev);
        if (!change->event->is_delete)
            sum += digest_of(change, &change->event->kv);
    }
    g_array_append_val(model->digests, sum);
}

void sim_model_apply(Sim *sim, const SimCommit *commit)
{
    note_digest(sim, commit);
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_N_KINDS)
            continue;
        if (change->kind == LH_KIND_NODE)
            note_node(sim, commit, change);
        else if (change->kind == LH_KIND_ACCEPTED)
            note_cordon(sim, change);
        else if (change->kind == LH_KIND_ASSIGNMENT)
            note_assignment(sim, change);
        sim->model.verify_in -= change->kind == LH_KIND_ASSIGNMENT && sim->model.verify_in > 0;
        if (change->after == NULL)
            g_hash_table_remove(sim->model.kinds[change->kind], change->name);
        else
            g_hash_table_replace(sim->model.kinds[change->kind], g_strdup(change->name),
                                 lh_object_ref(change->after));
    }
    if (sim->model.verify_in == 0)
        verify(sim);
}

static void read_again(const LhKv *kv, gpointer data)
{
    Sim *sim = data;
    const char *name, *key = kv->key + strlen(SIM_PREFIX);
    LhKind kind;
    if (!lh_key_split(key, &kind, &name))
        return;
    SimChange change = {
        .prev = kv,
        .key = key,
        .kind = kind,
        .name = name,
        .after = lh_object_parse(kind, name, kv->value, kv->value_len, kv->create_rev, kv->mod_rev,
                                 kv->lease),
    };
    if (kind == LH_KIND_ACCEPTED)
        note_cordon(sim, &change);
    else if (kind == LH_KIND_ASSIGNMENT)
        note_assignment(sim, &change);
    else if (kind == LH_KIND_NODE && strchr(name, '/') != NULL)
        g_hash_table_add(sim->model.ids, g_strdup(strchr(name, '/') + 1));
    g_hash_table_replace(sim->model.kinds[kind], g_strdup(name), (gpointer)change.after);
    g_array_index(sim->model.digests, guint64, 0) += digest_of(&change, kv);
}

void sim_model_restored(Sim *sim)
{
    SimModel *model = &sim->model;
    g_autofree char *end = lh_etcd_prefix_end(SIM_PREFIX);
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        g_hash_table_remove_all(model->kinds[kind]);
    g_hash_table_remove_all(model->gone_ms);
    g_hash_table_remove_all(model->cordoned_ms);
    g_hash_table_remove_all(model->ids);
    g_array_set_size(model->ordered_ms, 0);
    g_hash_table_remove_all(model->hosts);
    g_hash_table_remove_all(model->items);
    g_hash_table_remove_all(model->pairs);
    g_hash_table_remove_all(model->bytes);
    g_array_set_size(model->digests, 0);
    g_array_set_size(model->digests, 1);
    g_array_index(model->digests, guint64, 0) = 0;
    model->digest_base = fake_etcd_revision(sim->server);
    fake_etcd_foreach(sim->server, SIM_PREFIX, end, 0, read_again, sim);
}

/* ---- questions ---- */

const LhSettings *sim_settings(const Sim *sim, const char *controller)
{
    g_autofree char *name = g_strconcat("settings/", controller, NULL);
    const LhSettings *settings = lh_accepted_spec(sim_get(sim, LH_KIND_ACCEPTED, name),
                                                  LH_KIND_SETTINGS);
    return settings != NULL ? settings : lh_settings_default(controller);
}

gint64 sim_assignment_bytes(const Sim *sim, const char *name)
{
    const gint64 *bytes = g_hash_table_lookup(sim->model.bytes, name);
    return bytes == NULL ? 0 : *bytes;
}

char *sim_snapshot_of(const char *replica)
{
    char *snapshot = NULL;
    return lh_replica_name_split(replica, &snapshot, NULL, NULL, NULL) ? snapshot : NULL;
}

static SimWant say(const char **why, SimWant want, const char *text)
{
    if (why != NULL)
        *why = text;
    return want;
}

static SimWant want_of_spec(const LhReplica *replica, const LhSnapshot *snapshot,
                            const LhService *spec, gint64 now_ms, const char **why)
{
    if (!g_strv_contains(spec->cache_sets, replica->set))
        return say(why, SIM_UNWANTED, "its set was removed");
    if (replica->ordinal >= spec->cache_replicas)
        return say(why, SIM_UNWANTED, "surplus");
    if (now_ms >= snapshot->end_time + spec->cache_window_ms)
        return say(why, SIM_EXPIRED, "its window is over");
    return say(why, SIM_WANTED, "wanted");
}

SimWant sim_want(const Sim *sim, const char *name, const LhObject *object, gint64 now_ms,
                 const char **why)
{
    const LhReplica *replica = (const LhReplica *)object;
    g_autofree char *snapshot_name = sim_snapshot_of(name);
    const LhObject *snapshot = snapshot_name == NULL
                                   ? NULL
                                   : sim_get(sim, LH_KIND_SNAPSHOT, snapshot_name);
    const LhObject *accepted = NULL, *desired = NULL;
    if (object != NULL && !lh_object_known(object))
        return say(why, SIM_UNDECIDED, "the replica does not parse");
    if (snapshot != NULL && !lh_object_known(snapshot))
        return say(why, SIM_UNDECIDED, "the snapshot does not parse");
    const char *service = snapshot != NULL  ? ((const LhSnapshot *)snapshot)->service
                          : replica != NULL ? replica->service
                                            : NULL;
    if (service != NULL) {
        g_autofree char *accepted_name = g_strconcat("services/", service, NULL);
        accepted = sim_get(sim, LH_KIND_ACCEPTED, accepted_name);
        desired = sim_get(sim, LH_KIND_SERVICE, service);
    }
    if (accepted != NULL && !lh_object_known(accepted))
        return say(why, SIM_UNDECIDED, "what is accepted of its service does not parse");
    const LhService *spec = lh_accepted_spec(accepted, LH_KIND_SERVICE);
    if (spec != NULL && spec->paused)
        return say(why, SIM_UNDECIDED, "its service is paused");
    if (object == NULL)
        return say(why, SIM_UNWANTED, "there is no such replica");
    if (snapshot == NULL)
        return say(why, SIM_UNWANTED, "its snapshot is gone");
    if (((const LhSnapshot *)snapshot)->live)
        return say(why, SIM_UNDECIDED, "its snapshot is being written");
    if (spec == NULL)
        return desired != NULL ? say(why, SIM_UNDECIDED, "its service is not accepted")
                               : say(why, SIM_UNWANTED, "its service was deleted");
    return want_of_spec(replica, (const LhSnapshot *)snapshot, spec, now_ms, why);
}

static gboolean in_the_way(const LhSnapshot *older, const LhSnapshot *snapshot)
{
    g_autofree char *first = lh_uri_text(&older->uri);
    g_autofree char *second = lh_uri_text(&snapshot->uri);
    gboolean overlap = g_str_has_prefix(first, second) || g_str_has_prefix(second, first);
    return overlap && older->o.create_rev <= snapshot->o.create_rev;
}

gboolean sim_snapshot_valid(const Sim *sim, const LhSnapshot *snapshot)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_SNAPSHOT]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhSnapshot *other = value;
        if (other != snapshot && lh_object_known(&other->o) && in_the_way(other, snapshot))
            return FALSE;
    }
    return TRUE;
}

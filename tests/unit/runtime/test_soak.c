/* suite: slow */
/* links: fakes */
/*
 * The runtime when everything happens at once: three instances, all faults of the network, pauses, cuts,
 * lost leases and leader keys, compactions, etcd without a leader or restarted. No write under a superseded
 * epoch, nothing placed twice, and once the faults stop all work is done.
 */
#include "place.h"

static void trouble(Lab *lab)
{
    Manager *manager = &lab->managers[sim_world_below(lab->world, lab->n)];
    LhEtcd *client = manager->tap->inner;

    switch (sim_world_below(lab->world, 12)) {
    case 0:
        fake_etcd_elect(lab->server, (gint64)sim_world_below(lab->world, 9000));
        break;
    case 1:
        sim_machine_pause(manager->env);
        pass(lab, (gint64)sim_world_below(lab->world, 15000));
        sim_machine_resume(manager->env);
        break;
    case 2:
        fake_etcd_client_cut(client, (FakeCut)(1 + sim_world_below(lab->world, 3)));
        pass(lab, (gint64)sim_world_below(lab->world, 20000));
        fake_etcd_client_cut(client, FAKE_CUT_NONE);
        break;
    case 3:
        fake_etcd_client_reset(client);
        break;
    case 4:
        fake_etcd_compact(lab->server, fake_etcd_revision(lab->server));
        fake_etcd_client_close_streams(client);
        break;
    case 5:
        if (lh_runtime_lease(manager->runtime) != 0)
            fake_etcd_revoke(lab->server, lh_runtime_lease(manager->runtime));
        break;
    case 6: {
        g_autofree char *key = leader_key(manager);
        fake_etcd_delete(lab->server, key, NULL);
        break;
    }
    case 7:
        fake_etcd_stop(lab->server);
        pass(lab, (gint64)sim_world_below(lab->world, 3000));
        fake_etcd_start(lab->server);
        break;
    default:
        break;
    }
}

static void whatever_happens_nothing_is_doubled(void **state)
{
    const FakeFaultRates rates = {.refused = 200,
                                  .overloaded = 200,
                                  .request_lost = 200,
                                  .reply_lost = 300,
                                  .late_commit = 300,
                                  .stream_closed = 300};
    guint64 late = 0, rewrites = 0, committed = 0;

    for (guint64 seed = 1000; seed < 1024; seed++) {
        Lab *lab = lab_new(seed);
        guint n = 0;
        script.plan = place_once;
        for (guint i = 0; i < 3; i++) {
            g_autofree char *name = g_strdup_printf("m%u", i);
            Manager *manager = lab_manager(lab, name);
            fake_etcd_client_fault_rates(manager->tap->inner, &rates);
        }
        for (guint i = 0; i < 25; i++) {
            guint more = (guint)sim_world_below(lab->world, 200);
            publish(lab, n, more);
            n += more;
            pass(lab, (gint64)sim_world_below(lab->world, 3000));
            trouble(lab);
        }
        for (guint i = 0; i < lab->n; i++) {
            fake_etcd_client_fault_rates(lab->managers[i].tap->inner, NULL);
            rewrites += lab->managers[i].tap->rewrites;
        }
        pass(lab, 60000);
        check_placed_once(lab, n);
        assert_int_equal(n_leaders(lab), 1);
        assert_true(all_idle(lab));
        late += fake_etcd_stats(lab->server)->late_commits;
        committed += lab->decisions;
        lab_free(lab);
    }
    assert_true(late > 20 && rewrites > 50 && committed > 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_nothing_is_doubled),
    };

    return cmocka_run_group_tests_name("soak", tests, NULL, NULL);
}

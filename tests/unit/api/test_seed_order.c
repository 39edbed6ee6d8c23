/*
 * A seed as a crawl manager is given it: what is read, and what is refused with which words.
 */
#include "api/seed_order.h"
#include "base/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_reads(void **state)
{
    LhSeedOrder order;
    (void)state;
    assert_true(
        lh_seed_order_parse("{\"url\":\"u\",\"state\":\"paused\",\"throttle\":{\"name\":\"p\","
                            "\"requests\":100,\"period\":\"1m\",\"maxConcurrent\":5}}",
                            &order, NULL));
    assert_string_equal(order.throttle, "p");
    assert_int_equal(order.requests, 100);
    assert_int_equal(order.period_ms, 60000);
    assert_int_equal(order.max_concurrent, 5);
    assert_true(order.paused);
    lh_seed_order_clear(&order);
    assert_true(lh_seed_order_parse(
        "{\"state\":\"started\",\"throttle\":{\"name\":\"p\",\"requests\":0,\"maxConcurrent\":5}}",
        &order, NULL));
    assert_int_equal(order.requests, 0);
    assert_int_equal(order.period_ms, 0);
    assert_false(order.paused);
    lh_seed_order_clear(&order);
    assert_true(lh_seed_order_parse("{\"url\":\"u\",\"later\":[1]}", &order, NULL));
    assert_null(order.throttle);
    assert_int_equal(order.requests + order.period_ms + order.max_concurrent, 0);
    lh_seed_order_clear(&order);
}

static void test_refuses(void **state)
{
    static const char *const cases[][2] = {
        {"[]", "seed: must be an object"},
        {"{", "seed: JSON"},
        {"{\"throttle\":\"p\"}", "seed.throttle: must be an object"},
        {"{\"throttle\":{}}", "seed.throttle.name: is required"},
        {"{\"throttle\":{\"name\":\"p\",\"requests\":-1,\"period\":\"1m\"}}",
         "seed.throttle.requests: must be"},
        {"{\"throttle\":{\"name\":\"p\",\"requests\":\"1\",\"period\":\"1m\"}}",
         "seed.throttle.requests: must be"},
        {"{\"throttle\":{\"name\":\"p\",\"maxConcurrent\":1.5}}",
         "seed.throttle.maxConcurrent: must"},
        {"{\"throttle\":{\"name\":\"p\",\"requests\":1,\"period\":60}}",
         "seed.throttle.period: must be a duration"},
        {"{\"throttle\":{\"name\":\"p\",\"requests\":1,\"period\":\"x\"}}",
         "seed.throttle.period: "},
        {"{\"throttle\":{\"name\":\"p\",\"requests\":1,\"period\":\"0s\"}}",
         "seed.throttle.period: must be more than 0"},
        {"{\"throttle\":{\"name\":\"p\",\"requests\":1}}",
         "seed.throttle.requests: is required with"},
        {"{\"throttle\":{\"name\":\"p\",\"period\":\"1m\"}}",
         "seed.throttle.requests: is required with"},
    };
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        LhSeedOrder order;
        memset(&order, 7, sizeof order);
        const LhSeedOrder before = order;
        g_autoptr(GError) error = NULL;
        assert_false(lh_seed_order_parse(cases[i][0], &order, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        if (strncmp(error->message, cases[i][1], strlen(cases[i][1])) != 0)
            fail_msg("%s: %s", cases[i][0], error->message);
        assert_memory_equal(&order, &before, sizeof order);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Histories that go wrong in one way each: the group that keeps that promise complains, and no other. And good
 * ones, of which nothing is said.
 */
#pragma once

#include "tests/unit/invariants/history.h"

typedef struct {
    const char *name;
    InvGroupId group;
    const char *says; /* part of the first violation */
    void (*go_wrong)(History *h);
} Wrong;

#define ROW(group, func, says)         \
    {                                  \
#func, INV_##group, says, func \
    }

static inline void assert_only(const Wrong *wrong, const RecordedResult *result)
{
    for (guint group = 0; group < INV_N_GROUPS; group++)
        if ((result->failed[group] > 0) != (group == wrong->group))
            fail_msg("%s: group %s complains %" G_GUINT64_FORMAT " times; first: %s", wrong->name,
                     inv_group_name(group), result->failed[group],
                     result->said->len == 0 ? "nothing" : (char *)result->said->pdata[0]);
    if (strstr(result->said->pdata[0], wrong->says) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", wrong->name, (char *)result->said->pdata[0],
                 wrong->says);
}

static inline void assert_wrongs(const Wrong *wrongs, gsize n)
{
    for (gsize i = 0; i < n; i++) {
        g_autoptr(History) h = begin();
        RecordedResult result;
        wrongs[i].go_wrong(h);
        judge(h, &result);
        assert_only(&wrongs[i], &result);
        recorded_result_clear(&result);
    }
}

static inline void assert_good(const History *h)
{
    RecordedResult result;
    judge(h, &result);
    if (result.violations > 0)
        fail_msg("%s", (char *)result.said->pdata[0]);
    recorded_result_clear(&result);
}

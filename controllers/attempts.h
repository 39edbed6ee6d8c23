/*
 * What a failed attempt leads to, the same in every pool: elsewhere after 10 s, doubling to 10 min, parked
 * after five (the pool protocol). Pure.
 */
#pragma once

#include "api/decided.h"

#define LH_ATTEMPTS_PARK     5
#define LH_ATTEMPTS_FIRST_MS 10000
#define LH_ATTEMPTS_CAP_MS   600000

/* Why, in the words of the node that said so; borrowed. */
static inline const char *lh_attempts_words(const char *said)
{
    return said != NULL && *said != '\0' ? said : "the node gave no reason";
}

/* Sets what follows from @retry->attempt, which is 1 or more, failed at @now_ms (epoch). */
static inline void lh_attempts_failed(LhRetry *retry, gint64 now_ms)
{
    gint64 delay_ms = (gint64)LH_ATTEMPTS_FIRST_MS << MIN(retry->attempt - 1, 10);

    retry->parked = retry->attempt >= LH_ATTEMPTS_PARK;
    retry->not_before = now_ms + MIN(LH_ATTEMPTS_CAP_MS, delay_ms);
}

/*
 * What every LhEnv shares, real or simulated: backoff and disposal.
 *
 * It must not read a clock or random numbers except through the vtable.
 */
#include "base/env.h"

gint64 lh_backoff_ms(LhEnv *env, guint attempt, gint64 first_ms, gint64 cap_ms)
{
    if (first_ms <= 0 || cap_ms <= 0)
        return 0;
    gint64 base = cap_ms;
    /* cap >> attempt is what first must not exceed for the shift below to stay within the cap. */
    if (attempt < 63 && first_ms <= (cap_ms >> attempt))
        base = first_ms << attempt;
    gint64 low = base / 2;
    return low + (gint64)lh_random_below(env, (guint64)(base - low) + 1);
}

void lh_env_free(LhEnv *env)
{
    if (env != NULL)
        env->v->free(env);
}

/*
 * leasehold-bugs: the product with the planted bugs of base/planted.h, of which LEASEHOLD_PLANTED_BUG names one,
 * or none. It ends at once if there is none of that name: else a run could find nothing and prove nothing.
 */
#include "base/planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

LhPlantedBug lh_planted_bug = LH_N_BUGS;

__attribute__((constructor)) static void choose(void)
{
    static const char *const names[] = {
#define X(name, text, seeds, what) text,
        LH_PLANTED_BUG_TABLE(X)
#undef X
    };
    const char *wanted = getenv("LEASEHOLD_PLANTED_BUG");
    if (g_strcmp0(wanted, "none") == 0) {
        return;
    }
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (wanted != NULL && strcmp(names[i], wanted) == 0) {
            lh_planted_bug = (LhPlantedBug)i;
            return;
        }
    }
    fprintf(stderr, "leasehold-bugs: LEASEHOLD_PLANTED_BUG: no planted bug of that name\n");
    _Exit(2);
}

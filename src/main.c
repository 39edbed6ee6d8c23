/*
 * Picks the command: the long-running programs (manager, agent, dev) here, everything else is the command
 * line's. Nothing else happens in this file.
 */
#include "agent/agent_main.h"
#include "agent/watchdog.h"
#include "cli/cli.h"
#include "programs.h"

#include <string.h>

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } programs[] = {
        {"manager", lh_manager_main},
        {"agent", lh_agent_main},
        {"dev", lh_dev_main},
        {LH_WATCHDOG_ARG, lh_watchdog_main},
    };

    for (gsize i = 0; argc > 1 && i < G_N_ELEMENTS(programs); i++)
        if (strcmp(argv[1], programs[i].name) == 0)
            return programs[i].run(argc - 1, argv + 1);
    lh_cli_set_plan_from_file(lh_replay_plan);
    return lh_cli_main(argc, argv);
}

/*
 * The command `leasehold agent`: settings, wiring, signals, exit code (CONTRACT.md, section 3).
 */
#pragma once

/* @argv[0] is skipped; the options follow. Runs until SIGTERM or SIGINT. Exit codes: 0 stopped, 1
 * could not start (disk, port), 2 bad usage or settings, 4 the data directory is another
 * agent's. */
int lh_agent_main(int argc, char **argv);

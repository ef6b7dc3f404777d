/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's commands. Each gets its own argv (argv[0] is the command's name)
 * and returns the exit code: 0 done, 1 failure, 2 usage.
 */
#ifndef FLASHSCOPE_CMDS_H
#define FLASHSCOPE_CMDS_H

#define FS_AGENT_VERSION "0.2.0"

/* SHA-256 of the sources, set by the Makefile. It differs between agents of one version. */
#ifndef FS_AGENT_BUILD
#define FS_AGENT_BUILD "unknown"
#endif

int cmd_probe(int argc, char **argv);
/*
 * record --ready-fd N: when all probes are armed and tracing is on (with
 * --paused: when probes are armed), one byte is written to N and N is closed.
 * End of file without a byte means failure; the reason is on stderr.
 */
int cmd_record(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_boot(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_knob(int argc, char **argv);
int cmd_energy(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_init(int argc, char **argv);

#endif

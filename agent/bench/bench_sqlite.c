// SPDX-License-Identifier: Apache-2.0
/* bench sqlite: runs flashscope-sqlite (sqlite/sqlite.c), a program of its own because SQLite is larger than the agent. */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define PROGRAM "flashscope-sqlite"

/* Beside the agent's own file. */
static const char *beside(char *out, size_t size)
{
	char self[FS_PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[length < 0 ? 0 : length] = '\0';
	slash = strrchr(self, '/');
	snprintf(out, size, "%.*s" PROGRAM, slash ? (int)(slash + 1 - self) : 0, self);
	return out;
}

int bench_sqlite(int argc, char **argv)
{
	char path[FS_PATH_MAX + sizeof(PROGRAM)];
	const char *program;
	int error;

	if (argc > 1 && !strcmp(argv[1], "--program")) {
		if (argc < 3)
			return fs_usage("bench sqlite: --program: its value is missing");
		program = argv[2];
		argv += 2;
	} else {
		program = beside(path, sizeof(path));
	}
	argv[0] = PROGRAM;
	execv(program, argv);
	error = errno;
	return fs_fail("%s: %s%s", program, strerror(error),
		       error == ENOENT ? "; `make sqlite` builds it: put it there, or name it with --program first" :
					 "; name a program that can be run with --program first");
}

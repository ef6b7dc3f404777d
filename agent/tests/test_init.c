// SPDX-License-Identifier: Apache-2.0
/* init refuses to run here: it mounts, formats and powers off, and only a virtual board's process 1 may. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmds.h"
#include "check.h"

int main(void)
{
	char text[400] = "";
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	if (pipe(fds))
		abort();
	pid = fork();
	if (!pid) {
		dup2(fds[1], 2);
		exit(cmd_init(1, (char *[]){ "init", NULL }));
	}
	close(fds[1]);
	waitpid(pid, &status, 0);
	n = read(fds[0], text, sizeof(text) - 1);
	close(fds[0]);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	CHECK(n > 0 && strstr(text, "only as process 1 of a virtual board"));
	CHECK(n > 0 && strchr(text, '\n') == text + n - 1);
	return check_verdict("init");
}

// SPDX-License-Identifier: Apache-2.0
#include "helper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t fs_helper_fork(struct fs_helper *helper, int type)
{
	int ends[2];

	*helper = (struct fs_helper){ .fd = -1 };
	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends))
		return -1;
	helper->pid = fork();
	if (helper->pid < 0) {
		close(ends[0]);
		close(ends[1]);
		helper->pid = 0;
		return -1;
	}
	close(ends[helper->pid ? 1 : 0]);
	helper->fd = ends[helper->pid ? 0 : 1];
	return helper->pid;
}

void fs_helper_ends_with(pid_t parent)
{
	/* A change of the user clears PR_SET_PDEATHSIG. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
}

void fs_helper_end(struct fs_helper *helper)
{
	if (!helper->pid)
		return;
	close(helper->fd);
	kill(helper->pid, SIGKILL);
	for (int i = 0; i < 50 && waitpid(helper->pid, NULL, WNOHANG) == 0; i++)
		usleep(1000);
	*helper = (struct fs_helper){ .fd = -1 };
}

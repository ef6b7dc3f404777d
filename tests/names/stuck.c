/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stuck DIR: a process whose /proc/PID/cmdline and maps never answer. It maps a file of a FUSE file system on DIR, whose server
 * answers no read. A second process reads that page through /proc/PID/mem, and holds the lock of the memory while it
 * waits. Then the first asks for more memory, and all others wait behind it. Prints "ready" just before.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static void reply(int fd, const struct fuse_in_header *in, int error, const void *data, size_t size)
{
	char out[1024];
	struct fuse_out_header header = { .len = (uint32_t)(sizeof(header) + size), .error = error, .unique = in->unique };

	memcpy(out, &header, sizeof(header));
	memcpy(out + sizeof(header), data, size);
	if (write(fd, out, sizeof(header) + size) < 0)
		_exit(3);
}

/* Node 1 is the root, 2 its only file. */
static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr attr = { .ino = node, .size = PAGE, .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0600, .nlink = 1 };

	return attr;
}

static void serve(int fd)
{
	static char buffer[1 << 18];
	const struct fuse_in_header *in = (const void *)buffer;

	while (read(fd, buffer, sizeof(buffer)) > 0 || errno == EINTR) {
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = PAGE };
		struct fuse_entry_out entry = { .nodeid = 2, .attr = attributes(2) };
		struct fuse_attr_out attr = { .attr = attributes(in->nodeid) };
		struct fuse_open_out open = { .fh = 1 };

		if (in->opcode == FUSE_INIT)
			reply(fd, in, 0, &init, sizeof(init));
		else if (in->opcode == FUSE_LOOKUP)
			reply(fd, in, 0, &entry, sizeof(entry));
		else if (in->opcode == FUSE_GETATTR)
			reply(fd, in, 0, &attr, sizeof(attr));
		else if (in->opcode == FUSE_OPEN || in->opcode == FUSE_OPENDIR)
			reply(fd, in, 0, &open, sizeof(open));
		else if (in->opcode != FUSE_READ && in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT)
			reply(fd, in, -ENOSYS, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), memory, file;
	const char *directory = argc == 2 ? argv[1] : "";
	char options[128], path[1024], byte;
	void *page;

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (fd < 0 || mount("stuck", directory, "fuse.stuck", MS_NODEV | MS_NOSUID, options)) {
		perror("stuck");
		return 1;
	}
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
		_exit(0);
	}
	close(fd);
	snprintf(path, sizeof(path), "%s/f", directory);
	file = open(path, O_RDONLY);
	page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	memory = open("/proc/self/mem", O_RDONLY);
	if (file < 0 || memory < 0 || page == MAP_FAILED) {
		perror("stuck");
		return 1;
	}
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(pread(memory, &byte, 1, (off_t)(uintptr_t)page) == 1);
	}
	usleep(300000);
	if (write(1, "ready\n", 6) != 6)
		return 1;
	mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return 2;
}

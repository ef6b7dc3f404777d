// SPDX-License-Identifier: Apache-2.0
/* The commands of a plan, except those that start processes. Only these mount, format and erase. */
#include "init.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contents.h"
#include "nand.h"
#include "ubi.h"
#include "util.h"

#define POLL_MS 10u
#define UMOUNT_TIMEOUT_NS UINT64_C(2000000000)
#define PF_KTHREAD 0x00200000ul /* include/linux/sched.h, the same from 2.6 to 7.2 */

static uint64_t number(const struct step *step, int i)
{
	uint64_t value = 0;

	plan_number(step->plan->argv[i], &value); /* the parser has seen that it is one */
	return value;
}

static int number32(struct step *step, int i, uint32_t *value)
{
	uint64_t n = number(step, i);

	if (n > UINT32_MAX)
		return step_fail(step, "%s is too large", step->plan->argv[i]);
	*value = (uint32_t)n;
	return 0;
}

/* What was done, as one JSON line of the step's output. */
static void __attribute__((format(printf, 2, 3))) report(struct step *step, const char *format, ...)
{
	struct fs_buf line = { 0 };
	va_list ap;
	char text[300];

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fs_buf_printf(&line, "%s\n", text);
	fs_frame_output(step->stream, 1, line.data, line.length);
	fs_buf_free(&line);
}

/*
 * The kernel's own words about a verb: /dev/kmsg read from where it ended when
 * the verb began.
 */
static int kmsg_open(void)
{
	int fd = open("/dev/kmsg", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		lseek(fd, 0, SEEK_END);
	return fd;
}

/* Appends what the kernel said since to `step->why`, the last lines where not all fit. */
static void kmsg_close(struct step *step, int fd, bool failed)
{
	struct fs_buf said = { 0 };
	char record[8192];
	size_t room, length = strlen(step->why);
	/*
	 * A record without a newline (UBIFS about compressors) cannot be read
	 * before another follows: one at debug level, which no console shows.
	 */
	static const char follow[] = "<7>flashscope: a verb failed";

	if (failed && fd >= 0 && write(fd, follow, sizeof(follow) - 1) < 0)
		failed = false;
	while (failed && fd >= 0) {
		ssize_t n = read(fd, record, sizeof(record) - 1);
		char *text;

		if (n < 0 && errno == EPIPE)
			continue;
		if (n <= 0)
			break;
		record[n] = '\0';
		text = strchr(record, ';');
		/* priority,sequence,…;text: from 8 on it is not the kernel that speaks */
		if (!text || strtoul(record, NULL, 10) >= 8)
			continue;
		text++;
		text[strcspn(text, "\n")] = '\0';
		fs_buf_printf(&said, "%s%s", said.length ? "; " : "", text);
	}
	room = sizeof(step->why) - length;
	if (said.length && room > 32) {
		const char *from = said.data;

		room -= 24;
		if (said.length > room)
			from += said.length - room;
		snprintf(step->why + length, sizeof(step->why) - length, " (kernel: %s%s)", from == said.data ? "" : "…",
			 from);
	}
	fs_buf_free(&said);
	if (fd >= 0)
		close(fd);
}

static int do_module(struct step *step)
{
	char **argv = step->plan->argv;
	struct fs_buf parameters = { 0 };
	int fd, failed = 0;

	fd = open(argv[0], O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return step_fail(step, "%s: %s", argv[0], strerror(errno));
	fs_buf_puts(&parameters, "");
	for (int i = 1; i < step->plan->argc; i++)
		fs_buf_printf(&parameters, "%s%s", i > 1 ? " " : "", argv[i]);
	if (syscall(SYS_finit_module, fd, parameters.length ? parameters.data : "", 0)) {
		/* Two steps may need one module; its parameters would be lost, though. */
		if (errno != EEXIST || parameters.length)
			failed = step_fail(step, "%s: %s", argv[0],
					   errno == EEXIST ? "is loaded already, without these parameters" : strerror(errno));
	}
	fs_buf_free(&parameters);
	close(fd);
	return failed;
}

static const struct {
	const char *name;
	unsigned long flag;
} mount_flags[] = {
	{ "ro", MS_RDONLY },	   { "rw", 0 },		      { "nosuid", MS_NOSUID }, { "nodev", MS_NODEV },
	{ "noexec", MS_NOEXEC },   { "noatime", MS_NOATIME }, { "sync", MS_SYNCHRONOUS }, { "remount", MS_REMOUNT },
	{ "bind", MS_BIND },	   { "nodiratime", MS_NODIRATIME }, { "relatime", MS_RELATIME },
	{ "strictatime", MS_STRICTATIME },
};

static int do_mount(struct step *step)
{
	char **argv = step->plan->argv;
	struct fs_buf data = { 0 };
	unsigned long flags = 0;
	int failed = 0;

	if (strcmp(argv[3], "-")) {
		char *rest = argv[3];
		char *option;

		while ((option = strsep(&rest, ","))) {
			size_t i;

			for (i = 0; i < ARRAY_SIZE(mount_flags) && strcmp(option, mount_flags[i].name); i++)
				;
			if (i < ARRAY_SIZE(mount_flags))
				flags |= mount_flags[i].flag;
			else
				fs_buf_printf(&data, "%s%s", data.length ? "," : "", option);
		}
	}
	if (mount(argv[0], argv[1], argv[2], flags, data.data))
		failed = step_fail(step, "cannot mount %s on %s as %s: %s", argv[0], argv[1], argv[2], strerror(errno));
	fs_buf_free(&data);
	return failed;
}

static int do_device_wait(struct step *step)
{
	const char *path = step->plan->argv[0];
	uint64_t ms = number(step, 1);
	uint64_t begin = fs_now_ns();

	while (access(path, F_OK)) {
		if ((fs_now_ns() - begin) / 1000000 >= ms)
			return step_fail(step, "%s: not there after %s ms", path, step->plan->argv[1]);
		fs_sleep_ms(POLL_MS);
	}
	return 0;
}

static int do_ubi_attach(struct step *step)
{
	uint32_t mtd;
	int ubi;

	if (number32(step, 0, &mtd) || ubi_attach(mtd, &ubi, step->why, sizeof(step->why)))
		return -1;
	report(step, "{\"verb\":\"ubi-attach\",\"mtd\":%u,\"ubi\":%d}", mtd, ubi);
	return 0;
}

static int do_ubi_mkvol(struct step *step)
{
	bool all = !strcmp(step->plan->argv[2], "all");
	uint64_t bytes = all ? 0 : number(step, 2);
	uint32_t ubi;
	int volume;

	if (!all && !bytes)
		return step_fail(step, "a volume has at least one byte");
	if (number32(step, 0, &ubi) ||
	    ubi_mkvol(ubi, step->plan->argv[1], &bytes, &volume, step->why, sizeof(step->why)))
		return -1;
	report(step, "{\"verb\":\"ubi-mkvol\",\"ubi\":%u,\"volume\":%d,\"bytes\":%llu}", ubi, volume,
	       (unsigned long long)bytes);
	return 0;
}

static int do_ubi_write(struct step *step)
{
	char **argv = step->plan->argv;
	uint64_t bytes;

	if (ubi_write(argv[0], argv[1], &bytes, step->why, sizeof(step->why)))
		return -1;
	report(step, "{\"verb\":\"ubi-write\",\"bytes\":%llu}", (unsigned long long)bytes);
	return 0;
}

static int do_ubi_detach(struct step *step)
{
	uint32_t ubi;

	return number32(step, 0, &ubi) ? -1 : ubi_detach(ubi, step->why, sizeof(step->why));
}

static int do_nand_erase(struct step *step)
{
	uint32_t mtd, first = 0, count = 0;
	struct nand_done done;

	if (number32(step, 0, &mtd))
		return -1;
	if (step->plan->argc == 3) {
		if (number32(step, 1, &first) || number32(step, 2, &count))
			return -1;
		if (!count)
			return step_fail(step, "0 blocks are nothing to erase");
	}
	if (nand_erase(mtd, first, count, &done, step->why, sizeof(step->why)))
		return -1;
	report(step, "{\"verb\":\"nand-erase\",\"mtd\":%u,\"blocks_erased\":%u,\"blocks_bad\":%u}", mtd,
	       done.blocks_erased, done.blocks_bad);
	return 0;
}

static int do_nand_write(struct step *step)
{
	uint64_t offset = step->plan->argc == 3 ? number(step, 2) : 0;
	struct nand_done done;
	uint32_t mtd;

	if (number32(step, 0, &mtd) ||
	    nand_write(mtd, step->plan->argv[1], offset, &done, step->why, sizeof(step->why)))
		return -1;
	report(step, "{\"verb\":\"nand-write\",\"mtd\":%u,\"bytes\":%llu,\"pages_programmed\":%u,\"blocks_bad\":%u}", mtd,
	       (unsigned long long)done.bytes, done.pages_programmed, done.blocks_bad);
	return 0;
}

static int do_nand_markbad(struct step *step)
{
	uint32_t mtd, block;

	if (number32(step, 0, &mtd) || number32(step, 1, &block))
		return -1;
	return nand_markbad(mtd, block, step->why, sizeof(step->why));
}

/* No other program has the device open (O_EXCL), and the page cache keeps nothing of it. */
static int do_disk_write(struct step *step)
{
	char **argv = step->plan->argv;
	uint64_t offset = step->plan->argc == 3 ? number(step, 2) : 0, bytes = 0;
	int from = open(argv[1], O_RDONLY | O_CLOEXEC);
	int to = open(argv[0], O_WRONLY | O_EXCL | O_CLOEXEC);
	char chunk[65536];
	int failed = 0;
	ssize_t got = 0;

	if (from < 0 || to < 0) {
		failed = step_fail(step, "%s: %s", argv[from < 0 ? 1 : 0], strerror(errno));
	} else {
		while (!failed && (got = read(from, chunk, sizeof(chunk))) > 0) {
			if (pwrite(to, chunk, (size_t)got, (off_t)(offset + bytes)) != got)
				failed = step_fail(step, "%s: cannot be written at %llu: %s", argv[0],
						   (unsigned long long)(offset + bytes), strerror(errno));
			bytes += (uint64_t)got;
		}
		if (!failed && (got < 0 || fsync(to) || ioctl(to, BLKFLSBUF, 0)))
			failed = step_fail(step, "%s: %s", argv[got < 0 ? 1 : 0], strerror(errno));
	}
	if (from >= 0)
		close(from);
	if (to >= 0)
		close(to);
	if (!failed)
		report(step, "{\"verb\":\"disk-write\",\"bytes\":%llu}", (unsigned long long)bytes);
	return failed;
}

static int do_create(struct step *step)
{
	char **argv = step->plan->argv;
	enum contents_kind kind;

	contents_kind_parse(argv[2], &kind);
	if (contents_create(argv[0], number(step, 1), kind, number(step, 3), NULL))
		return step_fail(step, "%s: %s", argv[0], strerror(errno));
	report(step, "{\"verb\":\"create\",\"bytes\":%s,\"contents\":\"%s\",\"seed\":%s}", argv[1], argv[2], argv[3]);
	return 0;
}

struct activity {
	unsigned int threads;
	bool running;
	uint64_t switches;
};

/* Adds one kernel thread whose name begins with `prefix`; a process of user space is none. */
static void add_thread(const char *pid, const char *prefix, struct activity *sum)
{
	char path[320];
	char *stat, *status, *name, *end, *line;
	unsigned long flags;
	char state;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	stat = fs_read_text(path, NULL);
	name = stat ? strchr(stat, '(') : NULL;
	end = stat ? strrchr(stat, ')') : NULL;
	if (!name || !end || strncmp(name + 1, prefix, strlen(prefix)) ||
	    sscanf(end + 1, " %c %*d %*d %*d %*d %*d %lu", &state, &flags) != 2 || !(flags & PF_KTHREAD)) {
		free(stat);
		return;
	}
	free(stat);
	sum->threads++;
	sum->running |= state == 'R' || state == 'D';
	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	status = fs_read_text(path, NULL);
	line = status ? strstr(status, "voluntary_ctxt_switches:") : NULL;
	while (line) {
		sum->switches += strtoull(strchr(line, ':') + 1, NULL, 10);
		line = strstr(line + 1, "voluntary_ctxt_switches:");
	}
	free(status);
}

static int look_at_threads(const char *prefix, struct activity *sum)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	memset(sum, 0, sizeof(*sum));
	if (!proc)
		return -1;
	while ((entry = readdir(proc)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			add_thread(entry->d_name, prefix, sum);
	closedir(proc);
	return 0;
}

static int do_settle(struct step *step)
{
	const char *prefix = step->plan->argv[0];
	uint64_t quiet = number(step, 1), timeout = number(step, 2);
	uint64_t begin = fs_now_ns(), last_seen = begin;
	struct activity before, now;

	if (look_at_threads(prefix, &before))
		return step_fail(step, "/proc: %s", strerror(errno));
	for (;;) {
		uint64_t t;

		if (!before.threads)
			return 0;
		fs_sleep_ms(POLL_MS);
		if (look_at_threads(prefix, &now))
			return step_fail(step, "/proc: %s", strerror(errno));
		t = fs_now_ns();
		if (now.running || now.switches != before.switches || now.threads != before.threads)
			last_seen = t;
		before = now;
		if ((t - last_seen) / 1000000 >= quiet) {
			report(step, "{\"verb\":\"settle\",\"threads\":%u,\"busy_ms\":%llu}", now.threads,
			       (unsigned long long)((last_seen - begin) / 1000000));
			return 0;
		}
		if ((t - begin) / 1000000 >= timeout)
			return step_fail(step, "kernel threads '%s…' still run after %s ms", prefix, step->plan->argv[2]);
	}
}

static int do_phase(struct step *step, enum fs_phase_kind kind)
{
	return fs_frame_phase(step->stream, fs_now_ns(), kind, 0, step->plan->argv[0])
		       ? step_fail(step, "phase '%s': %s", step->plan->argv[0], strerror(errno))
		       : 0;
}

static int do_get(struct step *step)
{
	const char *path = step->plan->argv[0];
	size_t head_length = sizeof(struct fs_file) + strlen(path) + 1;
	struct fs_file *head;
	unsigned char *chunk;
	struct stat st;
	size_t room;
	ssize_t n;
	int fd, failed = 0;

	if (head_length > fs_stream_room(step->stream) / 2)
		return step_fail(step, "a path of %zu bytes is too long", strlen(path));
	room = fs_stream_room(step->stream) - head_length;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		step_fail(step, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (S_ISDIR(st.st_mode)) {
		close(fd);
		return step_fail(step, "%s is a directory; get takes one file", path);
	}
	head = fs_alloc(head_length);
	chunk = fs_alloc(room);
	memset(head, 0, sizeof(*head));
	head->mode = st.st_mode & 07777;
	head->path_length = (uint32_t)strlen(path);
	memcpy(head + 1, path, strlen(path) + 1);
	do {
		/* A file of /proc has no size: it is read until it ends. */
		n = read(fd, chunk, room);
		if (n < 0 || (!n && head->offset))
			break;
		if (fs_frame(step->stream, FS_FILE, head, head_length, chunk, (size_t)n)) {
			failed = step_fail(step, "%s: sending: %s", path, strerror(errno));
			break;
		}
		head->offset += (uint64_t)n;
	} while (n > 0);
	if (n < 0)
		failed = step_fail(step, "%s: %s", path, strerror(errno));
	free(chunk);
	free(head);
	close(fd);
	return failed;
}

static int do_net(struct step *step)
{
	struct ifreq request = { 0 };
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
	char *iface = step->plan->argv[0], *text = step->plan->argv[1];
	char *slash = strchr(text, '/');
	uint64_t prefix;
	int fd, failed = 0;

	if (!slash || plan_number(slash + 1, &prefix) || prefix > 32)
		return step_fail(step, "'%s' is not ADDRESS/PREFIX", text);
	*slash = '\0';
	if (strlen(iface) >= sizeof(request.ifr_name))
		return step_fail(step, "'%s' is too long for a network interface", iface);
	strcpy(request.ifr_name, iface);
	address->sin_family = AF_INET;
	if (inet_pton(AF_INET, text, &address->sin_addr) != 1)
		return step_fail(step, "'%s' is not an IPv4 address", text);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return step_fail(step, "socket: %s", strerror(errno));
	if (ioctl(fd, SIOCSIFADDR, &request)) {
		failed = step_fail(step, "%s: address: %s", iface, strerror(errno));
	} else {
		address->sin_addr.s_addr = prefix ? htonl(UINT32_MAX << (32 - prefix)) : 0;
		if (ioctl(fd, SIOCSIFNETMASK, &request) || ioctl(fd, SIOCGIFFLAGS, &request)) {
			failed = step_fail(step, "%s: netmask: %s", iface, strerror(errno));
		} else {
			request.ifr_flags |= IFF_UP | IFF_RUNNING;
			if (ioctl(fd, SIOCSIFFLAGS, &request))
				failed = step_fail(step, "%s: up: %s", iface, strerror(errno));
		}
	}
	close(fd);
	return failed;
}

/*
 * Who reads a link in /proc/PID/fd holds that file's mount while it does (fs/proc/base.c, proc_pid_readlink). The recorder looks
 * for names at the lowest priority: it may stand in the middle of that when the step before ends.
 */
static int do_umount(struct step *step)
{
	const char *directory = step->plan->argv[0];
	uint64_t begin = fs_now_ns();

	while (umount2(directory, 0)) {
		if (errno != EBUSY || fs_now_ns() - begin >= UMOUNT_TIMEOUT_NS)
			return step_fail(step, "%s: %s", directory, strerror(errno));
		fs_sleep_ms(POLL_MS);
	}
	return 0;
}

static int do_verb(struct step *step)
{
	char **argv = step->plan->argv;

	switch (step->plan->verb) {
	case PLAN_MODULE:
		return do_module(step);
	case PLAN_MKDIR:
		return fs_mkdirs(argv[0], 0755) ? step_fail(step, "%s: %s", argv[0], strerror(errno)) : 0;
	case PLAN_MOUNT:
		return do_mount(step);
	case PLAN_UMOUNT:
		return do_umount(step);
	case PLAN_WRITE:
		return fs_write_text(argv[0], argv[1]) ? step_fail(step, "%s: %s", argv[0], strerror(errno)) : 0;
	case PLAN_HOSTNAME:
		return sethostname(argv[0], strlen(argv[0])) ? step_fail(step, "%s: %s", argv[0], strerror(errno)) : 0;
	case PLAN_DEVICE_WAIT:
		return do_device_wait(step);
	case PLAN_UBI_ATTACH:
		return do_ubi_attach(step);
	case PLAN_UBI_MKVOL:
		return do_ubi_mkvol(step);
	case PLAN_UBI_WRITE:
		return do_ubi_write(step);
	case PLAN_UBI_BLOCK:
		return ubi_block(step->plan->argv[0], step->why, sizeof(step->why));
	case PLAN_UBI_DETACH:
		return do_ubi_detach(step);
	case PLAN_NAND_ERASE:
		return do_nand_erase(step);
	case PLAN_NAND_WRITE:
		return do_nand_write(step);
	case PLAN_NAND_MARKBAD:
		return do_nand_markbad(step);
	case PLAN_DISK_WRITE:
		return do_disk_write(step);
	case PLAN_CREATE:
		return do_create(step);
	case PLAN_SETTLE:
		return do_settle(step);
	case PLAN_SLEEP:
		for (uint64_t left = number(step, 0); left;) {
			unsigned int ms = left > 1000000 ? 1000000 : (unsigned int)left;

			fs_sleep_ms(ms);
			left -= ms;
		}
		return 0;
	case PLAN_PHASE_BEGIN:
		return do_phase(step, FS_PHASE_BEGIN);
	case PLAN_PHASE_END:
		return do_phase(step, FS_PHASE_END);
	case PLAN_GET:
		return do_get(step);
	case PLAN_NET:
		return do_net(step);
	default:
		return step_fail(step, "is not done here");
	}
}

int verb_plain(struct step *step)
{
	int kmsg = kmsg_open();
	int failed = do_verb(step);

	kmsg_close(step, kmsg, failed != 0);
	return failed;
}

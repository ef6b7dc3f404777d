// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the script of bench replay: what it says is in docs/reference/replay-script.md, "The replay
 * script". Version 1 knows file, task and read; version 2 all calls, priorities and cgroups.
 */
#include "replay_script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define MAGIC "flashscope-replay "
#define MAX_SIZE (UINT64_C(1) << 46)
#define MAX_REQUEST UINT64_C(268435456)
/* A century: later times cannot be meant, and sums of them do not wrap. */
#define MAX_TIME UINT64_C(3155760000000000000)

static const struct {
	const char *name, *form;
} verbs[REPLAY_VERBS] = {
	[REPLAY_READ] = { "read", "read TIME_NS TASK FILE OFFSET LENGTH" },
	[REPLAY_WRITE] = { "write", "write TIME_NS TASK FILE OFFSET LENGTH" },
	[REPLAY_FSYNC] = { "fsync", "fsync TIME_NS TASK FILE" },
	[REPLAY_FDATASYNC] = { "fdatasync", "fdatasync TIME_NS TASK FILE" },
	[REPLAY_OPEN] = { "open", "open TIME_NS TASK FILE MODES" },
	[REPLAY_CREATE] = { "create", "create TIME_NS TASK FILE MODES" },
	[REPLAY_CLOSE] = { "close", "close TIME_NS TASK FILE" },
	[REPLAY_UNLINK] = { "unlink", "unlink TIME_NS TASK FILE" },
	[REPLAY_RENAME] = { "rename", "rename TIME_NS TASK FILE FILE" },
	[REPLAY_TRUNCATE] = { "truncate", "truncate TIME_NS TASK FILE SIZE" },
	[REPLAY_FAULT] = { "fault", "fault TIME_NS TASK FILE OFFSET" },
	[REPLAY_FAULT_WRITE] = { "fault-write", "fault-write TIME_NS TASK FILE OFFSET" },
};

/* Doubles an array that is full, from 16 elements on. */
static void *grown(void *array, size_t count, size_t size)
{
	if (count && (count < 16 || (count & (count - 1))))
		return array;
	return fs_realloc(array, (count < 16 ? 16 : 2 * count) * size);
}

/* The next word as a number of at most max. */
static bool number(char **rest, uint64_t max, uint64_t *out)
{
	char *word = strsep(rest, " ");

	return word && fs_parse_u64(word, max, out);
}

/* TIME, or TIME+TOOK where the script has version 2. */
static bool times(char **rest, const struct replay_script *s, uint64_t *time, uint64_t *took)
{
	char *word = strsep(rest, " ");
	char *plus = word && s->version > 1 ? strchr(word, '+') : NULL;

	*took = 0;
	if (plus)
		*plus++ = '\0';
	return word && fs_parse_u64(word, MAX_TIME, time) && (!plus || fs_parse_u64(plus, MAX_TIME, took));
}

/* Undoes %20 and its like, in place. False where a % is followed by no two hexadecimal digits. */
static bool unescape(char *text)
{
	char *to = text;

	for (char *from = text; *from; from++) {
		char digits[3] = { 0 }, *end;

		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		if (!from[1] || !from[2])
			return false;
		memcpy(digits, from + 1, 2);
		*to = (char)strtoul(digits, &end, 16);
		if (*end || !*to)
			return false;
		to++;
		from += 2;
	}
	*to = '\0';
	return true;
}

static const char *parse_file(struct replay_script *s, char *rest)
{
	char *word = strsep(&rest, " ");
	struct replay_file file = { 0 };

	file.absent = s->version > 1 && word && !strcmp(word, "-");
	if (!word || s->files == REPLAY_MAX_FILES ||
	    (!file.absent && (!fs_parse_u64(word, MAX_SIZE, &file.size) || (s->version == 1 && !file.size))))
		return s->version == 1 ? "not `file SIZE [LABEL]` with SIZE from 1 to 64 TiB, or more than 65536 of them" :
					 "not `file SIZE [LABEL]` with SIZE at most 64 TiB, or `file - [LABEL]`, or more than 65536 of them";
	file.most = file.size;
	s->file = grown(s->file, s->files, sizeof(*s->file));
	s->file[s->files++] = file;
	return NULL;
}

/* rt:N, be:N, idle */
static bool parse_ionice(const char *value, int *out)
{
	static const char *const classes[] = { "", "rt", "be", "idle" };
	const char *colon = strchrnul(value, ':');
	uint64_t level = 4;

	if (*colon && !fs_parse_u64(colon + 1, 7, &level))
		return false;
	for (size_t i = 1; i < ARRAY_SIZE(classes); i++) {
		if (strlen(classes[i]) != (size_t)(colon - value) || strncmp(classes[i], value, (size_t)(colon - value)))
			continue;
		*out = (int)(i << 13 | (i == 3 ? 0 : level));
		return true;
	}
	return false;
}

static const char *task_option(struct replay_script *s, struct replay_task *task, char *word)
{
	char *value = strchr(word, '=');
	uint64_t n;

	if (!value)
		return "a word of a task that is not KEY=VALUE (start, nice, ionice, cgroup)";
	*value++ = '\0';
	if (!strcmp(word, "start"))
		return fs_parse_u64(value, MAX_TIME, &task->start_ns) ? NULL : "start= needs nanoseconds, 0 or more";
	if (!strcmp(word, "nice")) {
		task->has_nice = fs_parse_u64(value + (*value == '-'), 20, &n) && (n < 20 || *value == '-');
		task->nice = *value == '-' ? -(int)n : (int)n;
		return task->has_nice ? NULL : "nice= needs -20 to 19";
	}
	if (!strcmp(word, "ionice"))
		return parse_ionice(value, &task->ionice) ? NULL : "ionice= needs rt:N, be:N (N 0 to 7) or idle";
	if (strcmp(word, "cgroup"))
		return "a word of a task that is none of start=, nice=, ionice=, cgroup=";
	for (uint32_t i = 0; i < s->cgroups; i++)
		if (!strcmp(value, s->cgroup[i]))
			task->cgroup = (int)i;
	return task->cgroup >= 0 ? NULL : "a cgroup that no line above declares";
}

static const char *parse_task(struct replay_script *s, char *rest)
{
	struct replay_task task = { .label = rest ? rest : "", .ionice = -1, .cgroup = -1 };

	if (s->tasks == REPLAY_MAX_TASKS)
		return "more than 256 tasks";
	if (s->version > 1) {
		char *name = strsep(&rest, " "), *word;

		if (!name || !*name || !unescape(name))
			return "not `task NAME [start=NS] [nice=N] [ionice=CLASS:N] [cgroup=NAME]`";
		task.label = name;
		while ((word = strsep(&rest, " "))) {
			const char *wrong = task_option(s, &task, word);

			if (wrong)
				return wrong;
		}
		snprintf(task.name, sizeof(task.name), "%s", name);
	} else {
		/* "NAME TID" of scripts that flashscope has made. */
		size_t length = strcspn(task.label, " ");

		snprintf(task.name, sizeof(task.name), "%.*s", (int)(length < REPLAY_NAME ? length : REPLAY_NAME - 1), task.label);
	}
	s->task = grown(s->task, s->tasks, sizeof(*s->task));
	s->task[s->tasks++] = task;
	return NULL;
}

/* A cgroup's name and its files are single names: what they are made below is the run's own. */
static bool is_name(const char *word)
{
	return *word && *word != '.' && !strchr(word, '/');
}

/* Not cgroup.procs, cgroup.kill and similar files: a script must not affect other processes. */
static bool is_limit(const char *word)
{
	static const char *const controllers[] = { "io.", "memory.", "cpu.", "pids." };

	for (size_t i = 0; i < ARRAY_SIZE(controllers); i++)
		if (!strncmp(word, controllers[i], strlen(controllers[i])))
			return is_name(word);
	return false;
}

static const char *parse_cgroup(struct replay_script *s, char *rest)
{
	char *name = strsep(&rest, " "), *word;

	if (!name || !is_name(name) || s->cgroups == REPLAY_MAX_CGROUPS)
		return "not `cgroup NAME [FILE=VALUE]…`, or more than 32 of them";
	while ((word = strsep(&rest, " "))) {
		char *value = strchr(word, '=');

		if (!value || !unescape(value))
			return "a cgroup's setting that is not FILE=VALUE";
		*value++ = '\0';
		if (!is_limit(word))
			return "a cgroup's setting of a file that is none of io.*, memory.*, cpu.* and pids.*";
		s->setting = grown(s->setting, s->settings, sizeof(*s->setting));
		s->setting[s->settings++] = (struct replay_setting){ word, value, s->cgroups };
	}
	s->cgroup = grown(s->cgroup, s->cgroups, sizeof(*s->cgroup));
	s->cgroup[s->cgroups++] = name;
	return NULL;
}

/* read,write,sync,dsync,direct,truncate,append as flags of open(). */
static bool parse_modes(char *words, uint32_t *flags)
{
	static const struct {
		const char *name;
		int flag;
	} modes[] = { { "sync", O_SYNC }, { "dsync", O_DSYNC }, { "direct", O_DIRECT }, { "truncate", O_TRUNC } };
	bool reads = false, writes = false;
	int found = 0;
	char *word;

	while ((word = strsep(&words, ","))) {
		size_t i = 0;

		if (!strcmp(word, "read")) {
			reads = true;
			continue;
		}
		if (!strcmp(word, "write")) {
			writes = true;
			continue;
		}
		while (i < ARRAY_SIZE(modes) && strcmp(word, modes[i].name))
			i++;
		if (i == ARRAY_SIZE(modes))
			return false;
		found |= modes[i].flag;
	}
	*flags = (uint32_t)(found | (reads && writes ? O_RDWR : writes ? O_WRONLY : O_RDONLY));
	return reads || writes;
}

/* What follows TIME TASK FILE. NULL, or what is wrong. */
static const char *parse_rest(struct replay_script *s, struct replay_call *call, char *rest)
{
	struct replay_file *file = &s->file[call->file];
	uint64_t length = 0, end = 0;
	char *word;

	switch (call->verb) {
	case REPLAY_READ:
	case REPLAY_WRITE:
		if (!number(&rest, MAX_SIZE, &call->offset) || !number(&rest, MAX_REQUEST, &length) || rest)
			return "";
		call->length = (uint32_t)length;
		end = call->offset + length;
		if (!length || (call->verb == REPLAY_READ && end > file->most))
			return "a read or write of 0 bytes, or a read past the end of its file";
		break;
	case REPLAY_FAULT:
	case REPLAY_FAULT_WRITE:
		if (!number(&rest, MAX_SIZE, &call->offset) || rest)
			return "";
		if (call->offset >= file->most)
			return "a fault past the end of its file";
		break;
	case REPLAY_TRUNCATE:
		if (!number(&rest, MAX_SIZE, &call->offset) || rest)
			return "";
		end = call->offset;
		break;
	case REPLAY_RENAME:
		if (!number(&rest, REPLAY_MAX_FILES, &length) || rest)
			return "";
		if (length >= s->files || length == call->file)
			return "a rename to the file itself, or to one that no line above declares";
		call->length = (uint32_t)length;
		if (s->file[length].most < file->most)
			s->file[length].most = file->most;
		break;
	case REPLAY_OPEN:
	case REPLAY_CREATE:
		word = strsep(&rest, " ");
		if (!word || rest || !parse_modes(word, &call->length))
			return "MODES are read, write, sync, dsync, direct, truncate, with commas between them, and one of the first two";
		break;
	default:
		if (rest)
			return "";
	}
	if (file->most < end)
		file->most = end;
	return NULL;
}

static const char *parse_call(struct replay_script *s, enum replay_verb verb, char *rest)
{
	static char form[192];
	struct replay_call *last = s->calls ? &s->call[s->calls - 1] : NULL;
	struct replay_call call = { .verb = verb };
	uint64_t task, file;
	const char *wrong;

	snprintf(form, sizeof(form),
		 "not `%s`, with whole numbers of 0 or more; LENGTH is at most 256 MiB, OFFSET and SIZE at most 64 TiB",
		 verbs[verb].form);
	if (!times(&rest, s, &call.time_ns, &call.took_ns) || !number(&rest, REPLAY_MAX_TASKS, &task) ||
	    !number(&rest, REPLAY_MAX_FILES, &file))
		return form;
	if (task >= s->tasks || file >= s->files)
		return "the number of a task or file that no line above declares";
	if (last && call.time_ns < last->time_ns)
		return "a time before that of the call above";
	call.task = (uint32_t)task;
	call.file = (uint32_t)file;
	wrong = parse_rest(s, &call, rest);
	if (wrong)
		return *wrong ? wrong : form;
	s->call = grown(s->call, s->calls, sizeof(*s->call));
	s->call[s->calls++] = call;
	return NULL;
}

static const char *parse_line(struct replay_script *s, char *line)
{
	char *rest = line;
	const char *verb = strsep(&rest, " ");

	if (!strcmp(verb, "file"))
		return parse_file(s, rest);
	if (!strcmp(verb, "task"))
		return parse_task(s, rest);
	if (s->version > 1 && !strcmp(verb, "cgroup"))
		return parse_cgroup(s, rest);
	for (int i = 0; i < (s->version > 1 ? REPLAY_VERBS : REPLAY_READ + 1); i++)
		if (!strcmp(verb, verbs[i].name))
			return parse_call(s, (enum replay_verb)i, rest);
	return s->version > 1 ? "not a line of a replay script (file, task, cgroup, or a call)" :
				"not a line of a replay script of version 1 (file, task, read)";
}

int replay_script_load(const char *path, struct replay_script *s)
{
	size_t length, line_number = 0;
	char *rest, *line;

	s->text = fs_read_text(path, &length);
	if (!s->text)
		return fs_fail("%s: %s; a script has at most 16 MiB", path, strerror(errno));
	rest = s->text;
	while ((line = strsep(&rest, "\n"))) {
		const char *wrong;

		if (++line_number == 1) {
			uint64_t version = 0;

			if (strncmp(line, MAGIC, strlen(MAGIC)) || !fs_parse_u64(line + strlen(MAGIC), UINT32_MAX, &version))
				return fs_usage("%s:1: its first line is not `" MAGIC "2`; is it a replay script?", path);
			if (version < 1 || version > 2)
				return fs_usage("%s:1: a replay script of version %llu; versions 1 and 2 are known: take a newer flashscope",
						path, (unsigned long long)version);
			s->version = (unsigned int)version;
			continue;
		}
		if (!*line || *line == '#')
			continue;
		wrong = parse_line(s, line);
		if (wrong)
			return fs_usage("%s:%zu: %s", path, line_number, wrong);
	}
	return s->calls ? 0 : fs_usage("%s: no calls are in it; record some with --events cache,syscall", path);
}

void replay_script_free(struct replay_script *s)
{
	free(s->text);
	free(s->file);
	free(s->task);
	free(s->cgroup);
	free(s->setting);
	free(s->call);
}

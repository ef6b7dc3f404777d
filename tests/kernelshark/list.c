/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists what KernelShark's library finds in a trace.dat: one line for each entry, its parts separated by tabs: buffer, ns, CPU,
 * pid, task, event, NAME=NUMBER of each field that could be one; of a gap (missed_events) what it says.
 *
 *   list FILE
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "libkshark-tepdata.h"

static void die(const char *what)
{
	fprintf(stderr, "list: %s\n", what);
	exit(1);
}

static void print_fields(const struct kshark_entry *entry)
{
	char **names = NULL;
	int n = kshark_get_all_event_field_names(entry, &names);

	for (int i = 0; i < n; i++) {
		int64_t value;

		if (kshark_read_event_field_int(entry, names[i], &value) >= 0)
			printf("\t%s=%" PRId64, names[i], value);
		free(names[i]);
	}
	free(names);
}

int main(int argc, char **argv)
{
	struct kshark_context *context = NULL;
	struct kshark_entry **rows = NULL;

	if (argc != 2)
		die("usage: list FILE");
	if (!kshark_instance(&context))
		die("no session");

	int top = kshark_open(context, argv[1]);

	if (top < 0)
		die("the file cannot be opened");
	if (kshark_tep_init_all_buffers(context, top) < 0)
		die("its buffers cannot be opened");

	ssize_t n = kshark_load_all_entries(context, &rows);

	if (n < 0)
		die("its entries cannot be loaded");
	for (ssize_t i = 0; i < n; i++) {
		struct kshark_data_stream *stream = kshark_get_stream_from_entry(rows[i]);
		char *task = kshark_get_task(rows[i]), *event = kshark_get_event_name(rows[i]);
		const char *buffer = kshark_tep_is_top_stream(stream) ? "" : stream->name;

		printf("%s\t%" PRId64 "\t%d\t%d\t%s\t%s", buffer, rows[i]->ts, rows[i]->cpu, kshark_get_pid(rows[i]),
		       task, event);
		if (rows[i]->event_id == KS_EVENT_OVERFLOW) {
			char *info = kshark_get_info(rows[i]);

			printf("\t%s", info);
			free(info);
		} else {
			print_fields(rows[i]);
		}
		putchar('\n');
		free(task);
		free(event);
		free(rows[i]);
	}
	free(rows);
	kshark_close_all(context);
	kshark_free(context);
	return 0;
}

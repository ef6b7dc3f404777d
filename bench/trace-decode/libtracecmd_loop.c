// SPDX-License-Identifier: Apache-2.0
/*
 * Reads every field of every event of a trace.dat through libtracecmd and prints nothing but a sum: what a C program pays
 * that wants the values. usage: libtracecmd_loop FILE
 *
 * cc -O2 libtracecmd_loop.c $(pkg-config --cflags --libs libtracecmd)
 */
#include <stdio.h>
#include <string.h>
#include <trace-cmd/trace-cmd.h>

struct sums {
	unsigned long long events, fields, sum;
};

static void all(struct tep_format_field *f, struct tep_record *record, struct sums *sums)
{
	for (; f; f = f->next) {
		unsigned long long value;

		sums->fields++;
		if (f->flags & TEP_FIELD_IS_DYNAMIC) {
			unsigned offset, length;

			if (tep_read_number_field(f, record->data, &value))
				continue;
			offset = value & 0xffff;
			length = value >> 16;
			if (f->flags & TEP_FIELD_IS_RELATIVE)
				offset += f->offset + f->size;
			if (length && offset + length <= (unsigned)record->size)
				sums->sum += length + ((unsigned char *)record->data)[offset];
		} else if (f->flags & TEP_FIELD_IS_ARRAY) {
			if (f->offset + f->size <= record->size)
				sums->sum += f->size + ((unsigned char *)record->data)[f->offset];
		} else if (!tep_read_number_field(f, record->data, &value)) {
			sums->sum += value;
		}
	}
}

/* The list of an event's fields is found by its id; nothing is looked up by name. */
static int one(struct tracecmd_input *handle, struct tep_record *record, int cpu, void *data)
{
	struct tep_handle *tep = tracecmd_get_tep(handle);
	struct tep_event *event = tep_find_event_by_record(tep, record);
	struct sums *sums = data;

	sums->events++;
	sums->sum += record->ts + (unsigned)cpu;
	if (!event)
		return 0;
	all(event->format.common_fields, record, sums);
	all(event->format.fields, record, sums);
	return 0;
}

int main(int argc, char **argv)
{
	struct sums sums = { 0 };
	struct tracecmd_input *handle;
	int buffers;

	if (argc != 2) {
		fprintf(stderr, "usage: libtracecmd_loop FILE\n");
		return 2;
	}
	handle = tracecmd_open(argv[1], TRACECMD_FL_LOAD_NO_PLUGINS);
	if (!handle) {
		fprintf(stderr, "libtracecmd_loop: %s: libtracecmd does not open it\n", argv[1]);
		return 1;
	}
	tracecmd_iterate_events(handle, NULL, 0, one, &sums);
	/* The other rings of the file: flashscope's names of tasks. */
	buffers = tracecmd_buffer_instances(handle);
	for (int i = 0; i < buffers; i++) {
		struct tracecmd_input *instance = tracecmd_buffer_instance_handle(handle, i);

		if (instance) {
			tracecmd_iterate_events(instance, NULL, 0, one, &sums);
			tracecmd_close(instance);
		}
	}
	tracecmd_close(handle);
	printf("%llu events, %llu fields, sum %016llx\n", sums.events, sums.fields, sums.sum);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * _dl_find_object (glibc 2.35, dlfcn.h) for musl: GCC's unwinder (libgcc_eh), as Debian builds it, asks for nothing else. Of one
 * static program there is one object, which dl_iterate_phdr knows.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>

/* As glibc's on x86_64, where it has neither eh_dbase nor eh_count. */
struct dl_find_object {
	unsigned long long flags;
	void *map_start;
	void *map_end;
	struct link_map *link_map;
	void *eh_frame;
	unsigned long long reserved[7];
};

int _dl_find_object(void *address, struct dl_find_object *result);

struct search {
	ElfW(Addr) address;
	struct dl_find_object *result;
};

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	struct search *search = data;
	ElfW(Addr) start = 0, end = 0, eh_frame = 0;

	(void)size;
	for (size_t n = 0; n < info->dlpi_phnum; n++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[n];
		ElfW(Addr) at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type == PT_GNU_EH_FRAME)
			eh_frame = at;
		if (segment->p_type == PT_LOAD && search->address >= at && search->address - at < segment->p_memsz) {
			start = at;
			end = at + segment->p_memsz;
		}
	}
	if (end == 0 || eh_frame == 0)
		return 0;
	*search->result = (struct dl_find_object){
		.map_start = (void *)start,
		.map_end = (void *)end,
		.eh_frame = (void *)eh_frame,
	};
	return 1;
}

int _dl_find_object(void *address, struct dl_find_object *result)
{
	struct search search = { (ElfW(Addr))address, result };

	return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

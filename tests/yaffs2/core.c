// SPDX-License-Identifier: GPL-2.0
/*
 * The YAFFS2 core that the module has, built for this host over an image in a file (pages of 2048 bytes with 64 of spare area, 64
 * a block, as nanddump --oob writes them): `core make IMAGE BLOCKS` makes one with files of all kinds, `core list IMAGE` reads one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "listing.h"
#include "yaffs_guts.h"
#include "yaffs_ecc.h"
#include "yaffs_packedtags2.h"
#include "yaffs_trace.h"

#define PAGE 2048
#define SPARE 64
#define PAGES 64
/* Where the kernel's layout for a Hamming code on large pages has its free bytes. */
#define TAGS 2
/* As kernel/yaffs2/README.md has it: above a checkpoint page's length stands how large the tnodes in it are. */
#define TNODE_SHIFT 16

unsigned int yaffs_trace_mask = YAFFS_TRACE_ALWAYS | YAFFS_TRACE_ERROR | YAFFS_TRACE_BUG;
unsigned int yaffs_wr_attempts = 64;

static uint8_t *image;

static uint8_t *page_at(int chunk)
{
	return image + (size_t)chunk * (PAGE + SPARE);
}

static int write_chunk(struct yaffs_dev *dev, int chunk, const u8 *data, const struct yaffs_ext_tags *tags)
{
	struct yaffs_packed_tags2 packed;
	uint8_t *page = page_at(chunk);

	for (int i = 0; i < PAGE + SPARE; i++)
		if (page[i] != 0xff) {
			fprintf(stderr, "FAILED: page %d is programmed twice\n", chunk);
			exit(3);
		}
	memset(&packed, 0xff, sizeof(packed));
	yaffs_pack_tags2_tags_only(&packed.t, tags);
	if (tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA)
		packed.t.n_bytes |= dev->tnode_size << TNODE_SHIFT;
	yaffs_ecc_calc_other((unsigned char *)&packed.t, sizeof(packed.t), &packed.ecc);
	if (data)
		memcpy(page, data, PAGE);
	memcpy(page + PAGE + TAGS, &packed, sizeof(packed));
	return YAFFS_OK;
}

static int read_chunk(struct yaffs_dev *dev, int chunk, u8 *data, struct yaffs_ext_tags *tags)
{
	struct yaffs_packed_tags2 packed;

	if (data)
		memcpy(data, page_at(chunk), PAGE);
	memcpy(&packed, page_at(chunk) + PAGE + TAGS, sizeof(packed));
	if (!tags)
		return YAFFS_OK;
	yaffs_unpack_tags2(tags, &packed, 1);
	/* No page of a checkpoint has the number 0. */
	if (tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA && tags->n_bytes >> TNODE_SHIFT != dev->tnode_size)
		tags->chunk_id = 0;
	return YAFFS_OK;
}

static int erase(struct yaffs_dev *dev, int block)
{
	(void)dev;
	memset(page_at(block * PAGES), 0xff, (PAGE + SPARE) * PAGES);
	return YAFFS_OK;
}

static int mark_bad(struct yaffs_dev *dev, int block)
{
	(void)dev;
	page_at(block * PAGES)[PAGE] = 0;
	return YAFFS_OK;
}

static int query(struct yaffs_dev *dev, int block, enum yaffs_block_state *state, u32 *sequence)
{
	struct yaffs_ext_tags tags;

	*sequence = 0;
	read_chunk(dev, block * PAGES, NULL, &tags);
	if (page_at(block * PAGES)[PAGE] != 0xff) {
		*state = YAFFS_BLOCK_STATE_DEAD;
	} else if (tags.chunk_used) {
		*sequence = tags.seq_number;
		*state = YAFFS_BLOCK_STATE_NEEDS_SCAN;
	} else {
		*state = YAFFS_BLOCK_STATE_EMPTY;
	}
	return YAFFS_OK;
}

static int nothing(struct yaffs_dev *dev)
{
	(void)dev;
	return YAFFS_OK;
}

static void must(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "FAILED: %s\n", what);
		exit(1);
	}
}

static struct yaffs_dev *mount_image(int blocks)
{
	struct yaffs_dev *dev = calloc(1, sizeof(*dev));
	struct yaffs_param *param = &dev->param;

	param->name = "image";
	param->is_yaffs2 = 1;
	param->total_bytes_per_chunk = PAGE;
	param->spare_bytes_per_chunk = SPARE;
	param->chunks_per_block = PAGES;
	param->end_block = blocks - 1;
	param->n_reserved_blocks = 5;
	param->n_caches = 10;
	param->use_nand_ecc = 1;
	param->write_chunk_tags_fn = write_chunk;
	param->read_chunk_tags_fn = read_chunk;
	param->erase_fn = erase;
	param->bad_block_fn = mark_bad;
	param->query_block_fn = query;
	param->initialise_flash_fn = nothing;
	must(yaffs_guts_initialise(dev) == YAFFS_OK, "the image cannot be mounted");
	return dev;
}

static void list(struct yaffs_dev *dev, struct yaffs_obj *dir, const char *path)
{
	struct list_head *at;

	list_for_each(at, &dir->variant.dir_variant.children) {
		struct yaffs_obj *name_of = list_entry(at, struct yaffs_obj, siblings);
		struct yaffs_obj *obj = yaffs_get_equivalent_obj(name_of);
		char name[YAFFS_MAX_NAME_LENGTH + 1], below[4096];
		uint64_t hash = HASH_BEGIN;
		char *target = NULL;
		struct stat st;

		yaffs_get_obj_name(name_of, name, sizeof(name));
		/* Loads what a checkpoint did not have. */
		yaffs_get_obj_name(obj, below, YAFFS_MAX_NAME_LENGTH + 1);
		snprintf(below, sizeof(below), "%s/%s", path, name);
		st = (struct stat){
			.st_mode = obj->yst_mode,
			.st_uid = obj->yst_uid,
			.st_gid = obj->yst_gid,
			.st_mtime = obj->yst_mtime,
			.st_nlink = (nlink_t)yaffs_get_obj_link_count(obj),
			.st_size = yaffs_get_obj_length(obj),
			.st_rdev = makedev(obj->yst_rdev >> 8, obj->yst_rdev & 0xff),
		};
		if (obj->variant_type == YAFFS_OBJECT_TYPE_FILE)
			for (loff_t pos = 0; pos < st.st_size; pos += PAGE) {
				u8 bytes[PAGE];
				int want = st.st_size - pos < PAGE ? (int)(st.st_size - pos) : PAGE;

				must(yaffs_file_rd(obj, bytes, pos, want) == want, below);
				hash = hash_more(hash, bytes, (size_t)want);
			}
		if (obj->variant_type == YAFFS_OBJECT_TYPE_SYMLINK)
			target = yaffs_get_symlink_alias(obj);
		list_one(below, &st, hash, target ? target : "");
		free(target);
		if (obj->variant_type == YAFFS_OBJECT_TYPE_DIRECTORY)
			list(dev, obj, below);
	}
}

static void put(struct yaffs_obj *obj, size_t length, uint32_t seed)
{
	uint8_t *bytes = malloc(length + 1);

	for (size_t i = 0; i < length; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(seed >> 24);
	}
	must(obj && yaffs_wr_file(obj, bytes, 0, (int)length, 0) == (int)length, "write");
	must(yaffs_flush_file(obj, 1, 0) == YAFFS_OK, "flush");
	free(bytes);
}

static void make(struct yaffs_dev *dev)
{
	struct yaffs_obj *root = yaffs_root(dev), *dir = yaffs_create_dir(root, "dir", S_IFDIR | 0750, 10, 20), *obj = NULL;
	static const size_t sizes[] = { 0, 1, 2047, 2048, 2049, 65536, 300001 };
	char name[300];

	must(dir != NULL, "mkdir");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(name, sizeof(name), "size-%zu", sizes[i]);
		put(yaffs_create_file(root, name, S_IFREG | 0644, 1, 2), sizes[i], (uint32_t)i);
	}
	for (uint32_t i = 0; i < 150; i++) {
		snprintf(name, sizeof(name), "file-%u", i);
		obj = yaffs_create_file(dir, name, S_IFREG | 0600, i, i);
		put(obj, i * 61, i);
		/* Every third is written again, shorter; every fifth goes; every seventh moves. */
		if (i % 3 == 0) {
			yaffs_resize_file(obj, i * 20);
			put(obj, i * 20, i + 1000);
		}
		if (i % 5 == 4)
			must(yaffs_unlinker(dir, name) == YAFFS_OK, "unlink");
		else if (i % 7 == 6) {
			char other[300];

			snprintf(other, sizeof(other), "moved-%u", i);
			must(yaffs_rename_obj(dir, name, root, other) == YAFFS_OK, "rename");
		}
	}
	must(yaffs_link_obj(root, "second name", yaffs_find_by_name(dir, "file-10")) != NULL, "link");
	must(yaffs_create_symlink(root, "link", S_IFLNK | 0777, 0, 0, "dir/file-10") != NULL, "symlink");
	must(yaffs_create_special(root, "null", S_IFCHR | 0666, 0, 0, 1 << 8 | 3) != NULL, "mknod");
	memset(name, 'n', 255);
	name[255] = 0;
	put(yaffs_create_file(root, name, S_IFREG | 0444, 0, 0), 5000, 5);
}

int main(int argc, char **argv)
{
	bool making = argc == 4 && !strcmp(argv[1], "make");
	int fd = argc > 2 ? open(argv[2], O_RDWR | (making ? O_CREAT | O_TRUNC : 0), 0644) : -1;
	struct yaffs_dev *dev;
	size_t length;

	if (fd < 0 || (!making && (argc != 3 || strcmp(argv[1], "list"))))
		return 2;
	length = making ? (size_t)atoi(argv[3]) * PAGES * (PAGE + SPARE) : (size_t)lseek(fd, 0, SEEK_END);
	if (making)
		must(!ftruncate(fd, (off_t)length), "truncate");
	/* What is only read stays as it is, whatever the core does to it. */
	image = mmap(NULL, length, PROT_READ | PROT_WRITE, making ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	must(image != MAP_FAILED, "mmap");
	if (making)
		memset(image, 0xff, length);
	dev = mount_image((int)(length / PAGES / (PAGE + SPARE)));
	if (making) {
		make(dev);
		yaffs_update_dirty_dirs(dev);
		yaffs_flush_whole_cache(dev);
		/* Only where there are YAFFS_CHECKPOINT_MIN_BLOCKS. */
		must(yaffs_checkpoint_save(dev), "checkpoint");
	} else {
		fprintf(stderr, "%s\n", dev->is_checkpointed ? "checkpoint read" : "scanned");
		list(dev, yaffs_root(dev), "");
	}
	yaffs_deinitialise(dev);
	return 0;
}

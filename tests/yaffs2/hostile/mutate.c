// SPDX-License-Identifier: GPL-2.0
/*
 * Mutations of YAFFS2 images: of headers, tags, summaries, checkpoints, links and the tree. Tags get their ECC, summaries and
 * checkpoints their sums, so that what was changed is believed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutate.h"
#include "yaffs_guts.h"
#include "yaffs_packedtags2.h"

/* Where the driver's layout has its free bytes, and what it takes for a page that ECC cannot or could restore. */
#define TAGS (PAGE + 2)
#define UNREADABLE (PAGE + 63)
#define RESTORED (PAGE + 62)
#define CHECKPOINT 0x21
#define SUMMARY 0x10
#define EXTRA 0x80000000U
#define EXTRA_SHRINK 0x40000000U
#define EXTRA_SHADOWS 0x20000000U
#define TYPE_SHIFT 28
#define NUMBER 0x0fffffffU
/* The last page of a block has the summary of the others: a header of four words, three for each page. */
#define SUMMARY_PAGE (PAGES - 1)
#define MOST (BLOCKS * PAGES)

struct list {
	unsigned int count;
	uint16_t page[MOST];
};

static uint8_t *image;
static bool inband, follow;
static uint64_t *rng;
static struct list headers, newest, used, summaries, checkpoint, unused;

uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

uint32_t random_below(uint64_t *state, uint32_t limit)
{
	return (uint32_t)(random_next(state) % limit);
}

static uint32_t below(uint32_t limit)
{
	return random_below(rng, limit);
}

static uint8_t *at(unsigned int page)
{
	return image + (size_t)page * RAW;
}

static unsigned int data_bytes(void)
{
	return inband ? PAGE - sizeof(struct yaffs_packed_tags2_tags_only) : PAGE;
}

static struct yaffs_packed_tags2_tags_only tags_of(unsigned int page)
{
	struct yaffs_packed_tags2_tags_only tags;

	memcpy(&tags, at(page) + (inband ? data_bytes() : TAGS), sizeof(tags));
	return tags;
}

static uint32_t *summary_of(unsigned int page)
{
	return (uint32_t *)at(page / PAGES * PAGES + SUMMARY_PAGE);
}

static void sum_summary(uint32_t *summary)
{
	const uint8_t *bytes = (const uint8_t *)(summary + 4);
	uint32_t sum = 0;

	for (size_t i = 0; i < SUMMARY_PAGE * 12; i++)
		sum += bytes[i];
	summary[3] = sum;
}

static bool has_summary(unsigned int page)
{
	struct yaffs_packed_tags2_tags_only tags = tags_of(page / PAGES * PAGES + SUMMARY_PAGE);

	return tags.obj_id == SUMMARY && tags.seq_number != 0xffffffff;
}

/* With ECC, and in the block's summary where this image's are to agree. */
static void put_tags(unsigned int page, const struct yaffs_packed_tags2_tags_only *tags)
{
	struct yaffs_packed_tags2 packed;

	memset(&packed, 0xff, sizeof(packed));
	packed.t = *tags;
	yaffs_ecc_calc_other((unsigned char *)&packed.t, sizeof(packed.t), &packed.ecc);
	if (inband)
		memcpy(at(page) + data_bytes(), tags, sizeof(*tags));
	else
		memcpy(at(page) + TAGS, &packed, sizeof(packed));
	if (follow && page % PAGES != SUMMARY_PAGE && has_summary(page)) {
		uint32_t *entry = summary_of(page) + 4 + page % PAGES * 3;

		entry[0] = tags->obj_id;
		entry[1] = tags->chunk_id;
		entry[2] = tags->n_bytes;
		sum_summary(summary_of(page));
	}
}

static void add(struct list *list, unsigned int page)
{
	list->page[list->count++] = (uint16_t)page;
}

/* Of each object the header that counts. */
static void survey_newest(void)
{
	newest.count = 0;
	for (unsigned int i = 0; i < headers.count; i++) {
		struct yaffs_packed_tags2_tags_only tags = tags_of(headers.page[i]);
		bool last = true;

		for (unsigned int j = 0; j < headers.count && last; j++) {
			struct yaffs_packed_tags2_tags_only other = tags_of(headers.page[j]);

			last = (other.obj_id & NUMBER) != (tags.obj_id & NUMBER) || other.seq_number < tags.seq_number ||
			       (other.seq_number == tags.seq_number && headers.page[j] <= headers.page[i]);
		}
		if (last)
			add(&newest, headers.page[i]);
	}
}

static void survey(void)
{
	headers.count = used.count = summaries.count = checkpoint.count = unused.count = 0;
	for (unsigned int page = 0; page < MOST; page++) {
		struct yaffs_packed_tags2_tags_only tags = tags_of(page);

		if (tags.seq_number == 0xffffffff) {
			add(&unused, page);
			continue;
		}
		add(&used, page);
		if (tags.seq_number == CHECKPOINT)
			add(&checkpoint, page);
		else if (tags.obj_id == SUMMARY)
			add(&summaries, page);
		else if (!tags.chunk_id || tags.chunk_id & EXTRA)
			add(&headers, page);
	}
	survey_newest();
}

static int pick(const struct list *list)
{
	return list->count ? list->page[below(list->count)] : -1;
}

static struct yaffs_obj_hdr *header_at(int page)
{
	return (struct yaffs_obj_hdr *)at((unsigned int)page);
}

/* A header: mostly one that counts. */
static int any_header(void)
{
	return pick(below(4) ? &newest : &headers);
}

/* A header of a type; -1 where there is none. */
static int pick_header(uint32_t type)
{
	const struct list *from = below(4) ? &newest : &headers;
	struct list some = { 0 };

	for (unsigned int i = 0; i < from->count; i++)
		if ((uint32_t)header_at(from->page[i])->type == type)
			add(&some, from->page[i]);
	return pick(&some);
}

static uint32_t number_of(int page)
{
	return page < 0 ? 1 : tags_of((unsigned int)page).obj_id & NUMBER;
}

/* Numbers of objects that mean something, and those that do not. */
static uint32_t odd_number(uint32_t own)
{
	static const uint32_t odd[] = { 0, 1, 2, 3, 4, SUMMARY, 0x20, CHECKPOINT, 0x3ffff, 0x40000, 0x7fffffff, 0x80000000, 0xffffffff };

	switch (below(4)) {
	case 0:
		return own;
	case 1:
		return odd[below(sizeof(odd) / sizeof(odd[0]))];
	case 2:
		return 256 + below(600);
	default:
		return number_of(any_header());
	}
}

static uint32_t odd_size(void)
{
	static const uint32_t odd[] = { 0, 1, 2047, 2048, 0x7fffffff, 0x80000000, 0xfffff000, 0xffffffff };

	return below(3) ? odd[below(sizeof(odd) / sizeof(odd[0]))] : (uint32_t)random_next(rng);
}

/* --- what is done, one of these at a time --- */

static void set_type(int page, uint32_t type, bool in_header, bool in_tags)
{
	struct yaffs_packed_tags2_tags_only tags = tags_of((unsigned int)page);

	if (in_header)
		header_at(page)->type = type;
	if (in_tags) {
		tags.obj_id = (tags.obj_id & NUMBER) | type << TYPE_SHIFT;
		put_tags((unsigned int)page, &tags);
	}
}

static void set_parent(int page, uint32_t parent, bool in_header, bool in_tags)
{
	struct yaffs_packed_tags2_tags_only tags = tags_of((unsigned int)page);

	if (in_header)
		header_at(page)->parent_obj_id = (int)parent;
	if (in_tags && tags.chunk_id & EXTRA) {
		tags.chunk_id = (tags.chunk_id & ~NUMBER) | (parent & NUMBER);
		put_tags((unsigned int)page, &tags);
	}
}

static void set_equiv(int page, uint32_t number)
{
	struct yaffs_packed_tags2_tags_only tags = tags_of((unsigned int)page);

	header_at(page)->equiv_id = (int)number;
	if (tags.chunk_id & EXTRA) {
		tags.n_bytes = number;
		put_tags((unsigned int)page, &tags);
	}
}

/* The core then has to read the header to know what it is. */
static void drop_extra(int page)
{
	struct yaffs_packed_tags2_tags_only tags = tags_of((unsigned int)page);

	tags.chunk_id = 0;
	tags.obj_id &= NUMBER;
	tags.n_bytes = below(2) ? 0 : odd_size();
	put_tags((unsigned int)page, &tags);
}

static void mutate_type(void)
{
	int page = any_header();
	uint32_t how = below(3);

	if (page < 0)
		return;
	set_type(page, below(8) ? below(7) : below(16), how != 1, how != 2);
	if (!below(3))
		drop_extra(page);
}

static void mutate_parent(void)
{
	int page = any_header();
	uint32_t how = below(3);

	if (page < 0)
		return;
	set_parent(page, odd_number(number_of(page)), how != 1, how != 2);
	if (!below(3))
		drop_extra(page);
}

static void mutate_loop(void)
{
	int first = pick_header(YAFFS_OBJECT_TYPE_DIRECTORY), page = first, next;
	uint32_t length = below(5);

	if (first < 0)
		return;
	/* The last one's parent is the first; with none between, it is its own. */
	while (length--) {
		next = pick_header(YAFFS_OBJECT_TYPE_DIRECTORY);
		set_parent(page, number_of(next), true, true);
		page = next;
	}
	set_parent(page, number_of(first), true, true);
}

static void erase_page(unsigned int page)
{
	memset(at(page), 0xff, RAW);
	if (follow && page % PAGES != SUMMARY_PAGE && has_summary(page)) {
		memset(summary_of(page) + 4 + page % PAGES * 3, 0, 12);
		sum_summary(summary_of(page));
	}
}

static void mutate_link(void)
{
	int page = pick_header(YAFFS_OBJECT_TYPE_HARDLINK);
	uint32_t target, number;

	if (page < 0)
		return;
	switch (below(4)) {
	case 0: /* what it is a name of is lost: every header of it */
		target = (uint32_t)header_at(page)->equiv_id;
		for (unsigned int i = 0; i < used.count; i++) {
			number = tags_of(used.page[i]).obj_id & NUMBER;
			if (number == target)
				erase_page(used.page[i]);
		}
		break;
	case 1: /* of a directory, of another link */
		set_equiv(page, number_of(pick_header(below(2) ? YAFFS_OBJECT_TYPE_DIRECTORY : YAFFS_OBJECT_TYPE_HARDLINK)));
		break;
	case 2: /* of what is deleted */
		for (unsigned int i = 0; i < headers.count; i++)
			if (number_of(headers.page[i]) == (uint32_t)header_at(page)->equiv_id)
				set_parent(headers.page[i], 3 + below(2), true, true);
		break;
	default:
		set_equiv(page, odd_number(number_of(page)));
	}
}

static void mutate_name(void)
{
	static const char *const names[] = { "", ".", "..", "/", "a/b", "../../etc", "lost+found", "\n", "\x1b[31m", "file-1" };
	int page = any_header();
	struct yaffs_obj_hdr *header;

	if (page < 0)
		return;
	header = header_at(page);
	switch (below(3)) {
	case 0: /* no end, and neither to the target of a symbolic link */
		memset(header->name, 'n', sizeof(header->name));
		memset(header->alias, 'a', sizeof(header->alias));
		break;
	case 1:
		for (size_t i = 0; i < sizeof(header->name); i++)
			header->name[i] = (char)below(256);
		break;
	default:
		memset(header->name, 0, sizeof(header->name));
		strcpy(header->name, names[below(sizeof(names) / sizeof(names[0]))]);
	}
}

static void mutate_size(void)
{
	int page = pick_header(YAFFS_OBJECT_TYPE_FILE);
	struct yaffs_packed_tags2_tags_only tags;

	if (page < 0)
		return;
	header_at(page)->file_size_low = odd_size();
	header_at(page)->file_size_high = below(2) ? 0 : odd_size();
	tags = tags_of((unsigned int)page);
	if (tags.chunk_id & EXTRA) {
		tags.n_bytes = below(2) ? header_at(page)->file_size_low : odd_size();
		if (!below(3))
			tags.chunk_id |= EXTRA_SHRINK;
		put_tags((unsigned int)page, &tags);
	}
	if (!below(2))
		drop_extra(page);
}

static void mutate_shadow(void)
{
	int page = any_header();
	struct yaffs_packed_tags2_tags_only tags;

	if (page < 0)
		return;
	header_at(page)->shadows_obj = (int)odd_number(number_of(page));
	header_at(page)->inband_shadowed_obj_id = (uint32_t)header_at(page)->shadows_obj;
	tags = tags_of((unsigned int)page);
	tags.chunk_id |= EXTRA | EXTRA_SHADOWS;
	put_tags((unsigned int)page, &tags);
}

static void mutate_header(void)
{
	int page = any_header();
	size_t word;

	if (page < 0)
		return;
	/* Any word of the header, among them modes, owners, times and device numbers. */
	word = below(sizeof(struct yaffs_obj_hdr) / 4);
	((uint32_t *)at((unsigned int)page))[word] = below(2) ? odd_size() : (uint32_t)random_next(rng);
}

static void mutate_tags(void)
{
	int page = pick(&used);
	struct yaffs_packed_tags2_tags_only tags;

	if (page < 0)
		return;
	tags = tags_of((unsigned int)page);
	switch (below(6)) {
	case 0:
		tags.obj_id = (tags.obj_id & ~NUMBER) | (odd_number(tags.obj_id & NUMBER) & NUMBER);
		break;
	case 1:
		tags.obj_id = odd_number(tags.obj_id);
		break;
	case 2:
		tags.chunk_id = below(2) ? below(64) : 1U << below(32);
		break;
	case 3:
		tags.chunk_id = (uint32_t)random_next(rng);
		break;
	case 4:
		tags.n_bytes = odd_size();
		break;
	default:
		tags.chunk_id ^= 1U << (28 + below(4));
	}
	put_tags((unsigned int)page, &tags);
}

static void mutate_sequence(void)
{
	static const uint32_t odd[] = { 0, CHECKPOINT, 0xfff, 0x1000, 0xeffffeff, 0xefffff00, 0xffff0000, 0xfffffffe };
	int page = pick(&used);
	uint32_t sequence, first, last;

	if (page < 0)
		return;
	sequence = below(2) ? odd[below(sizeof(odd) / sizeof(odd[0]))] : tags_of((unsigned int)pick(&used)).seq_number;
	/* Of a page, or of all of its block. */
	first = below(2) ? (uint32_t)page : (uint32_t)page / PAGES * PAGES;
	last = first == (uint32_t)page ? first : first + PAGES - 1;
	for (; first <= last; first++) {
		struct yaffs_packed_tags2_tags_only tags = tags_of(first);

		if (tags.seq_number == 0xffffffff)
			continue;
		tags.seq_number = sequence;
		put_tags(first, &tags);
	}
	if (follow && has_summary((unsigned int)page))
		summary_of((unsigned int)page)[2] = sequence;
}

static void mutate_summary(void)
{
	int page = pick(&summaries);
	uint32_t *summary, *entry;

	if (page < 0)
		return;
	summary = summary_of((unsigned int)page);
	for (uint32_t n = 1 + below(4); n; n--) {
		entry = summary + 4 + below(SUMMARY_PAGE) * 3;
		switch (below(5)) {
		case 0: /* another object, of another type */
			entry[0] = odd_number(entry[0] & NUMBER) | below(8) << TYPE_SHIFT;
			break;
		case 1: /* a header, where there is data, or the other way round */
			entry[1] ^= EXTRA;
			break;
		case 2:
			entry[1] = (entry[1] & ~NUMBER) | (odd_number(0) & NUMBER);
			break;
		case 3:
			entry[2] = odd_size();
			break;
		default: /* another page's */
			memcpy(entry, summary + 4 + below(SUMMARY_PAGE) * 3, 12);
		}
	}
	if (below(8))
		sum_summary(summary);
}

static void mutate_lost(void)
{
	int page = below(2) ? any_header() : pick(&used);

	if (page < 0)
		return;
	switch (below(4)) {
	case 0:
		erase_page((unsigned int)page);
		break;
	case 1:
		at((unsigned int)page)[UNREADABLE] = 0;
		break;
	case 2:
		at((unsigned int)page)[RESTORED] = 0;
		break;
	default: /* what comes after it in its block was not written */
		for (unsigned int next = (unsigned int)page; !next || next % PAGES; next++)
			memset(at(next), 0xff, RAW);
	}
}

static void mutate_copy(void)
{
	int from = below(4) ? any_header() : pick(&used), to = pick(below(2) ? &unused : &used);
	struct yaffs_packed_tags2_tags_only tags, there;

	if (from < 0 || to < 0)
		return;
	there = tags_of((unsigned int)to / PAGES * PAGES);
	memcpy(at((unsigned int)to), at((unsigned int)from), RAW);
	tags = tags_of((unsigned int)to);
	/* Of its new block. */
	if (there.seq_number != 0xffffffff)
		tags.seq_number = there.seq_number;
	put_tags((unsigned int)to, &tags);
}

static void mutate_block(void)
{
	static uint8_t kept[PAGES * RAW];
	uint8_t *one = at(below(BLOCKS) * PAGES), *other = at(below(BLOCKS) * PAGES);

	switch (below(3)) {
	case 0:
		memset(one, 0xff, sizeof(kept));
		break;
	case 1: /* bad */
		one[PAGE] = 0;
		break;
	default:
		memcpy(kept, one, sizeof(kept));
		memmove(one, other, sizeof(kept));
		memcpy(other, kept, sizeof(kept));
	}
}

static void mutate_noise(void)
{
	for (uint32_t n = 1 + below(16); n; n--) {
		int page = pick(&used);

		if (page >= 0)
			at((unsigned int)page)[below(RAW - 2)] ^= (uint8_t)(1U << below(8));
	}
}

/* --- the checkpoint --- */

/* Its pages in their order. */
static bool order_checkpoint(struct list *pages)
{
	memset(pages, 0, sizeof(*pages));
	for (uint32_t number = 1; number <= checkpoint.count; number++)
		for (unsigned int i = 0; i < checkpoint.count; i++)
			if (tags_of(checkpoint.page[i]).chunk_id == number) {
				add(pages, checkpoint.page[i]);
				break;
			}
	return pages->count > 0;
}

static uint8_t *byte_of(const struct list *pages, size_t offset)
{
	size_t page = offset / data_bytes();

	return page < pages->count ? at(pages->page[page]) + offset % data_bytes() : NULL;
}

static uint32_t word_of(const struct list *pages, size_t offset)
{
	uint32_t word = 0;

	for (unsigned int i = 0; i < 4; i++) {
		const uint8_t *byte = byte_of(pages, offset + i);

		word |= (uint32_t)(byte ? *byte : 0xff) << (8 * i);
	}
	return word;
}

static void put_word(const struct list *pages, size_t offset, uint32_t word)
{
	for (unsigned int i = 0; i < 4; i++) {
		uint8_t *byte = byte_of(pages, offset + i);

		if (byte)
			*byte = (uint8_t)(word >> (8 * i));
	}
}

/* What the checkpoint consists of, by where each part lies. */
struct parts {
	size_t device, blocks, bits, objects;
	size_t object[600], tnode[600];
	unsigned int object_count, tnode_count;
	/* Of all that the sum is of. */
	size_t end;
};

#define VALIDITY sizeof(struct yaffs_checkpt_validity)
#define OBJECT sizeof(struct yaffs_checkpt_obj)
#define TNODE 64

static bool take_apart(const struct list *pages, struct parts *parts)
{
	size_t offset, limit = (size_t)pages->count * data_bytes();

	memset(parts, 0, sizeof(*parts));
	parts->device = VALIDITY;
	parts->blocks = parts->device + sizeof(struct yaffs_checkpt_dev);
	parts->bits = parts->blocks + BLOCKS * sizeof(struct yaffs_block_info);
	parts->objects = parts->bits + BLOCKS * ((PAGES + 7) / 8);
	for (offset = parts->objects; offset < limit;) {
		bool file = (word_of(pages, offset + 16) & 7) == YAFFS_OBJECT_TYPE_FILE;
		bool last = word_of(pages, offset + 4) == 0xffffffff;

		if (word_of(pages, offset) != OBJECT)
			return false;
		if (!last && parts->object_count < 600)
			parts->object[parts->object_count++] = offset;
		offset += OBJECT;
		if (last) {
			parts->end = offset + VALIDITY;
			return parts->end + 4 <= limit;
		}
		if (!file)
			continue;
		while (offset < limit && word_of(pages, offset) != 0xffffffff) {
			if (parts->tnode_count < 600)
				parts->tnode[parts->tnode_count++] = offset;
			offset += 4 + TNODE;
		}
		offset += 4;
	}
	return false;
}

static uint32_t checkpoint_sum(const struct list *pages, size_t end)
{
	uint32_t sum = 0, all = 0;

	for (size_t i = 0; i < end; i++) {
		const uint8_t *byte = byte_of(pages, i);

		sum += byte ? *byte : 0;
		all ^= byte ? *byte : 0;
	}
	return sum << 8 | (all & 0xff);
}

static void mutate_object_record(const struct list *pages, const struct parts *parts)
{
	size_t record = parts->object[below(parts->object_count)], other = parts->object[below(parts->object_count)];

	switch (below(6)) {
	case 0: /* its number, its parent */
		put_word(pages, record + 4 + 4 * below(2), odd_number(word_of(pages, record + 4)));
		break;
	case 1: /* where its header is */
		put_word(pages, record + 12, below(2) ? below(BLOCKS * PAGES + 40) : odd_size());
		break;
	case 2: /* type and flags */
		put_word(pages, record + 16, word_of(pages, record + 16) ^ 1U << below(10));
		break;
	case 3: /* chunks; size, or what it is a link of */
		put_word(pages, record + 20 + 4 * below(3), odd_size());
		break;
	case 4: /* what it is a link of */
		put_word(pages, record + OBJECT - 8, odd_number(word_of(pages, record + 4)));
		break;
	default: /* twice the same */
		for (size_t i = 0; i < OBJECT; i += 4)
			put_word(pages, record + i, word_of(pages, other + i));
	}
}

static void mutate_checkpoint(void)
{
	static struct list pages;
	static struct parts parts;
	size_t offset;

	if (!order_checkpoint(&pages) || !take_apart(&pages, &parts))
		return;
	for (uint32_t n = 1 + below(3); n; n--) {
		switch (below(6)) {
		case 0:
			put_word(&pages, parts.device + 4 + 4 * below(8), below(2) ? odd_size() : below(200));
			break;
		case 1:
			offset = parts.blocks + 4 * below(BLOCKS * 2);
			put_word(&pages, offset, below(2) ? (uint32_t)random_next(rng) : word_of(&pages, offset) ^ 1U << below(32));
			break;
		case 2:
			offset = parts.bits + 4 * below(BLOCKS / 2);
			put_word(&pages, offset, below(2) ? (uint32_t)random_next(rng) : word_of(&pages, offset) ^ 1U << below(32));
			break;
		case 3:
			if (parts.tnode_count) {
				offset = parts.tnode[below(parts.tnode_count)];
				put_word(&pages, offset + 4 * below(1 + TNODE / 4),
					 below(2) ? (uint32_t)random_next(rng) : below(BLOCKS * PAGES + 40));
			}
			break;
		default:
			mutate_object_record(&pages, &parts);
		}
	}
	put_word(&pages, parts.end, checkpoint_sum(&pages, parts.end));
}

/* Where the next block of the checkpoint is said to be, and which of its pages this is. */
static void mutate_checkpoint_tags(void)
{
	int page = pick(&checkpoint);
	struct yaffs_packed_tags2_tags_only tags;

	if (page < 0)
		return;
	tags = tags_of((unsigned int)page);
	if (below(2))
		tags.obj_id = below(2) ? odd_size() : below(BLOCKS + 3);
	else
		tags.chunk_id = below(2) ? odd_size() : below(20);
	put_tags((unsigned int)page, &tags);
}

static struct {
	const char *name;
	void (*run)(void);
	unsigned int count;
} mutations[] = {
	{ "types", mutate_type, 0 },
	{ "parents", mutate_parent, 0 },
	{ "loops in the tree", mutate_loop, 0 },
	{ "links", mutate_link, 0 },
	{ "names", mutate_name, 0 },
	{ "sizes", mutate_size, 0 },
	{ "shadows", mutate_shadow, 0 },
	{ "headers", mutate_header, 0 },
	{ "tags", mutate_tags, 0 },
	{ "sequence numbers", mutate_sequence, 0 },
	{ "summaries", mutate_summary, 0 },
	{ "lost pages", mutate_lost, 0 },
	{ "copied pages", mutate_copy, 0 },
	{ "blocks", mutate_block, 0 },
	{ "flipped bits", mutate_noise, 0 },
	{ "checkpoints", mutate_checkpoint, 0 },
	{ "checkpoints again", mutate_checkpoint, 0 },
	{ "tags of checkpoints", mutate_checkpoint_tags, 0 },
};

#define KINDS (sizeof(mutations) / sizeof(mutations[0]))

static void begin(uint8_t *bytes, bool tags_in_data)
{
	image = bytes;
	inband = tags_in_data;
	survey();
}

void mutate(uint8_t *bytes, bool tags_in_data, uint64_t *state)
{
	rng = state;
	begin(bytes, tags_in_data);
	/* Mostly a summary says what the tags say. */
	follow = below(4) > 0;
	for (uint32_t n = 1 + below(8); n; n--) {
		uint32_t kind = below(KINDS);

		mutations[kind].count++;
		mutations[kind].run();
	}
}

void mutations_print(void)
{
	for (size_t i = 0; i < KINDS; i++)
		printf("%s%s %u", i ? ", " : "mutations: ", mutations[i].name, mutations[i].count);
	printf("\n");
}

bool image_is_understood(uint8_t *bytes, bool tags_in_data, unsigned int *header_count, unsigned int *summary_count,
			 unsigned int *checkpoint_count)
{
	static struct list pages;
	static struct parts parts;

	begin(bytes, tags_in_data);
	*header_count = headers.count;
	*summary_count = summaries.count;
	*checkpoint_count = checkpoint.count;
	for (unsigned int i = 0; i < used.count && !inband; i++) {
		struct yaffs_packed_tags2_tags_only tags = tags_of(used.page[i]);
		struct yaffs_ecc_other ecc, there;

		memcpy(&there, at(used.page[i]) + TAGS + sizeof(tags), sizeof(there));
		yaffs_ecc_calc_other((unsigned char *)&tags, sizeof(tags), &ecc);
		if (ecc.col_parity != there.col_parity || ecc.line_parity != there.line_parity ||
		    ecc.line_parity_prime != there.line_parity_prime)
			return false;
	}
	for (unsigned int i = 0; i < summaries.count; i++) {
		uint32_t *summary = summary_of(summaries.page[i]), sum = summary[3];

		sum_summary(summary);
		if (summary[3] != sum || summaries.page[i] % PAGES != SUMMARY_PAGE)
			return false;
	}
	if (!order_checkpoint(&pages))
		return true;
	return take_apart(&pages, &parts) && word_of(&pages, parts.end) == checkpoint_sum(&pages, parts.end);
}

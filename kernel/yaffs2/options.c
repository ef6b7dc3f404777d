// SPDX-License-Identifier: GPL-2.0
/* Mount options, by the names that YAFFS2's users know. */
#include "yaffs2.h"

enum {
	OPT_INBAND_TAGS,
	OPT_TAGS_ECC_ON,
	OPT_TAGS_ECC_OFF,
	OPT_LAZY_LOADING_ON,
	OPT_LAZY_LOADING_OFF,
	OPT_EMPTY_LOST_AND_FOUND_ON,
	OPT_EMPTY_LOST_AND_FOUND_OFF,
	OPT_DISABLE_SUMMARY,
	OPT_NO_CACHE,
	OPT_NO_CHECKPOINT_READ,
	OPT_NO_CHECKPOINT_WRITE,
	OPT_NO_CHECKPOINT,
	OPT_NO_BACKGROUND_GC,
	OPT_WRITE_THROUGH,
};

const struct fs_parameter_spec yaffs2_parameters[] = {
	fsparam_flag("inband-tags", OPT_INBAND_TAGS),
	fsparam_flag("tags-ecc-on", OPT_TAGS_ECC_ON),
	fsparam_flag("tags-ecc-off", OPT_TAGS_ECC_OFF),
	fsparam_flag("lazy-loading-on", OPT_LAZY_LOADING_ON),
	fsparam_flag("lazy-loading-off", OPT_LAZY_LOADING_OFF),
	fsparam_flag("empty-lost-and-found-on", OPT_EMPTY_LOST_AND_FOUND_ON),
	fsparam_flag("empty-lost-and-found-off", OPT_EMPTY_LOST_AND_FOUND_OFF),
	fsparam_flag("disable-summary", OPT_DISABLE_SUMMARY),
	fsparam_flag("no-cache", OPT_NO_CACHE),
	fsparam_flag("no-checkpoint-read", OPT_NO_CHECKPOINT_READ),
	fsparam_flag("no-checkpoint-write", OPT_NO_CHECKPOINT_WRITE),
	fsparam_flag("no-checkpoint", OPT_NO_CHECKPOINT),
	fsparam_flag("no-background-gc", OPT_NO_BACKGROUND_GC),
	fsparam_flag("write-through", OPT_WRITE_THROUGH),
	{}
};

static int parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct yaffs2_options *options = fc->fs_private;
	struct fs_parse_result result;
	int option = fs_parse(fc, yaffs2_parameters, param, &result);

	if (option < 0)
		return option;
	switch (option) {
	case OPT_INBAND_TAGS:
		options->inband_tags = true;
		break;
	case OPT_TAGS_ECC_ON:
	case OPT_TAGS_ECC_OFF:
		options->tags_ecc = option == OPT_TAGS_ECC_ON;
		break;
	case OPT_LAZY_LOADING_ON:
	case OPT_LAZY_LOADING_OFF:
		options->lazy_loading = option == OPT_LAZY_LOADING_ON;
		break;
	case OPT_EMPTY_LOST_AND_FOUND_ON:
	case OPT_EMPTY_LOST_AND_FOUND_OFF:
		options->empty_lost_and_found = option == OPT_EMPTY_LOST_AND_FOUND_ON;
		break;
	case OPT_DISABLE_SUMMARY:
		options->disable_summary = true;
		break;
	case OPT_NO_CACHE:
		options->no_cache = true;
		break;
	case OPT_NO_CHECKPOINT_READ:
		options->skip_checkpoint_read = true;
		break;
	case OPT_NO_CHECKPOINT_WRITE:
		options->skip_checkpoint_write = true;
		break;
	case OPT_NO_CHECKPOINT:
		options->skip_checkpoint_read = true;
		options->skip_checkpoint_write = true;
		break;
	case OPT_NO_BACKGROUND_GC:
		options->background_gc = false;
		break;
	case OPT_WRITE_THROUGH:
		options->write_through = true;
		break;
	}
	return 0;
}

static void free_context(struct fs_context *fc)
{
	kfree(fc->fs_private);
}

static const struct fs_context_operations context_operations = {
	.free = free_context,
	.parse_param = parse_param,
	.get_tree = yaffs2_get_tree,
	.reconfigure = yaffs2_reconfigure,
};

int yaffs2_init_fs_context(struct fs_context *fc)
{
	struct yaffs2_options *options = kzalloc(sizeof(*options), GFP_KERNEL);

	if (!options)
		return -ENOMEM;
	if (fc->purpose == FS_CONTEXT_FOR_RECONFIGURE) {
		*options = yaffs2_sb(fc->root->d_sb)->options;
	} else {
		options->tags_ecc = true;
		options->lazy_loading = true;
		options->background_gc = true;
	}
	fc->fs_private = options;
	fc->ops = &context_operations;
	return 0;
}

int yaffs2_show_options(struct seq_file *m, struct dentry *root)
{
	const struct yaffs2_options *options = &yaffs2_sb(root->d_sb)->options;

	if (options->inband_tags)
		seq_puts(m, ",inband-tags");
	if (!options->tags_ecc)
		seq_puts(m, ",tags-ecc-off");
	if (!options->lazy_loading)
		seq_puts(m, ",lazy-loading-off");
	if (options->empty_lost_and_found)
		seq_puts(m, ",empty-lost-and-found-on");
	if (options->disable_summary)
		seq_puts(m, ",disable-summary");
	if (options->no_cache)
		seq_puts(m, ",no-cache");
	if (options->skip_checkpoint_read)
		seq_puts(m, options->skip_checkpoint_write ? ",no-checkpoint" : ",no-checkpoint-read");
	else if (options->skip_checkpoint_write)
		seq_puts(m, ",no-checkpoint-write");
	if (!options->background_gc)
		seq_puts(m, ",no-background-gc");
	if (options->write_through)
		seq_puts(m, ",write-through");
	return 0;
}

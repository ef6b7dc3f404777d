/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that say what is to be undone or removed. Root acts on them, so they
 * are believed only where nobody else can have written them.
 */
#ifndef FLASHSCOPE_NOTES_H
#define FLASHSCOPE_NOTES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Opens NAME in the directory DIR. The directory has to be ours: no link, owned
 * by our effective user, and written by nobody else. The file has to be a
 * regular one of the same kind with one link. -1 with errno: EPERM where they
 * are not ours.
 */
int fs_note_open(const char *dir, const char *name, int flags);
/* Whole text of such a note, malloc'ed; NULL with errno. length may be NULL. */
char *fs_note_read(const char *dir, const char *name, size_t *length);
/* One more line; a note begins with "boot ID", and one of another boot is begun anew. 0, or -1 with errno. */
int fs_note_append(const char *dir, const char *name, const char *line);
/* False where the note says that it was written before the last boot. */
bool fs_note_of_this_boot(const char *text);

/* A directory in which nobody but us and root can rename what we put there. */
bool fs_dir_is_safe(const char *path);

/*
 * The directory (O_PATH) in which PATH's last part lies, and that part in NAME. -1 with errno: EPERM where a part of the path
 * is a link that others can have put into a directory (fs_open_output).
 */
int fs_open_place(const char *path, char name[NAME_MAX + 1]);

/*
 * Opens a file to be written from its begin: made where it is not there, emptied where it is. In a directory that others can
 * write to no link is followed, but those of ours and root's where the sticky bit is set, and nothing that others put there is
 * written to. -1 with errno.
 */
int fs_open_output(const char *path);

/*
 * Removes what an agent has made: PATH's last part has to be `own`, or to end
 * with a dot and `own`, and PATH is a directory (with all it holds) or a regular
 * file of our user's. Links are not followed. 0, or -1 with errno: EPERM where
 * it is not ours.
 */
int fs_remove_own(const char *path, const char *own);

#endif

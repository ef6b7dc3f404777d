/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Undo notes: files that list what has to be restored or removed. Root acts on
 * them, so a note is trusted only if no other user can have written it.
 */
#ifndef FLASHSCOPE_NOTES_H
#define FLASHSCOPE_NOTES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Opens NAME in the directory DIR. The directory must be no symbolic link, be
 * owned by our effective user and be writable by nobody else. The file must be
 * a regular file with the same owner and a link count of 1. Returns a
 * descriptor, or -1 with errno (EPERM if one of these conditions fails).
 */
int fs_note_open(const char *dir, const char *name, int flags);
/* Reads such a note; the caller frees the text. NULL with errno on failure. length may be NULL. */
char *fs_note_read(const char *dir, const char *name, size_t *length);
/* Appends a line. A note's first line is "boot ID"; a note of an earlier boot is emptied first. Returns 0, or -1 with errno. */
int fs_note_append(const char *dir, const char *name, const char *line);
/* False if the note's boot ID is that of an earlier boot. */
bool fs_note_of_this_boot(const char *text);

/* True if only we and root can rename or replace files in this directory. */
bool fs_dir_is_safe(const char *path);

/*
 * Opens (O_PATH) the directory of PATH's last component, and stores that component in NAME. Returns a descriptor, or -1 with
 * errno: EPERM if a component is a symbolic link that another user can have placed there (see fs_open_output).
 */
int fs_open_place(const char *path, char name[NAME_MAX + 1]);

/*
 * Creates or truncates a file and opens it for writing. In a directory that other users can write to, symbolic links are not
 * followed, except our own and root's where the sticky bit is set, and files of other users are not written to. Returns a
 * descriptor, or -1 with errno.
 */
int fs_open_output(const char *path);

/*
 * Removes a file or a directory tree that an agent created. PATH's last
 * component must be `own` or end with a dot and `own`, and it must be a
 * directory or a regular file of our user. Symbolic links are not followed.
 * Returns 0, or -1 with errno (EPERM if one of these conditions fails).
 */
int fs_remove_own(const char *path, const char *own);

#endif

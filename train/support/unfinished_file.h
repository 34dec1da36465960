/*
 * Unfinished files: PATH.unfinished-PID-N, beside what they will replace. Each is locked for as
 * long as its process has it open. One without a lock belongs to a process that died.
 */
#ifndef TRAIN_UNFINISHED_FILE_H
#define TRAIN_UNFINISHED_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <mimo/status.h>

/** Create one for `path`, open for reading and writing, with the permissions that the umask leaves
 *  of `mode`. The caller closes *fd, and releases *name, once the file is removed or has another
 *  name. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status unfinished_file_create(int *fd, char **name, const char *path, mode_t mode);

/** What this process creates from now on has that generation of its run in its name: the N of the
 *  first one begins with it. A run that goes on without a rank is a generation of its own, and that
 *  rank may run on another host under any process number. Not for two threads at once. */
void unfinished_file_set_generation(int64_t generation);

/** Remove those of `path`, which lies in `folder`, that process `pid` created in a generation
 *  before this one, also where it has them open: its rename then fails. What cannot be removed
 *  stays. */
void unfinished_file_remove_of(const char *folder, const char *path, long pid);

/** *out, the caller's to release, is one of the unfinished files of `path`, which lies in `folder`,
 *  that takes(context, its name) takes; NULL: there is none. MIMO_ERR_MEMORY. */
mimo_status unfinished_file_find(char **out, const char *folder, const char *path,
                                 bool (*takes)(void *context, const char *name), void *context);

/** Rename one to `path`, unless a process has it open: then that one will. What cannot be renamed
 *  stays. */
void unfinished_file_adopt(const char *name, const char *path);

/** Remove those of `path`, which lies in `folder`, that no process has open. What cannot be removed
 *  stays: it is in nobody's way. */
void unfinished_file_remove_dead(const char *folder, const char *path);

#endif

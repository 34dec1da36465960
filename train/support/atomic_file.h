/*
 * A file that appears whole or not at all: bytes go to an unfinished file in the same folder,
 * commit makes them durable and renames it into place. A full disk, a failed write or a discard
 * leaves whatever stood at the path before.
 *
 * A path that is a symbolic link stays one: what it points to is replaced. A file that was there
 * keeps its owner, group and permissions; a new one has those that the umask leaves. In a sticky
 * folder (/tmp) other users' links are not followed and other users' files are not replaced, as the
 * kernel has it (link_target.h).
 *
 * An unfinished file is called PATH.unfinished-PID-N and is locked by its process. Where a process
 * died, it stays without a lock, and the next one that writes PATH removes it.
 */
#ifndef TRAIN_ATOMIC_FILE_H
#define TRAIN_ATOMIC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/status.h>

struct atomic_file {
    int fd;          /* -1 where nothing is open */
    char *path;      /* as it was given */
    char *target;    /* the same, or what a link there points to */
    char *folder;    /* in which the target lies */
    char *temporary; /* the unfinished file */
    bool needed;     /* it stays where it cannot be put in its place: another file is useless
                        without it. The caller sets it */
};

#define ATOMIC_FILE_INIT \
    {                    \
        .fd = -1         \
    }

/* Open the unfinished file of `path`, after removing those of dead processes. Every function here:
 * MIMO_ERR_IO, with the path and the system's reason. */
mimo_status atomic_file_open(struct atomic_file *file, const char *path);

/* Append `bytes` bytes. */
mimo_status atomic_file_write(struct atomic_file *file, const void *data, size_t bytes);

/* Write at a byte offset; the append position stays. */
mimo_status atomic_file_write_at(struct atomic_file *file, const void *data, size_t bytes,
                                 int64_t offset);

/* Reserve the disk space of the first `bytes` bytes, so that a full disk shows now. */
mimo_status atomic_file_reserve(struct atomic_file *file, int64_t bytes);

/* Flush to disk under the unfinished name. */
mimo_status atomic_file_sync(struct atomic_file *file);

/* Flush to disk, rename into place, release. On failure nothing is left behind either, unless it is
 * needed. */
mimo_status atomic_file_commit(struct atomic_file *file);

/* The same, and the file stays open, at its end, for more to be written: *fd is the caller's. */
mimo_status atomic_file_publish(int *fd, struct atomic_file *file);

/* Remove the unfinished files of `path` that process `pid` has left or still has open, of an
 * earlier generation of this run (unfinished_file.h). What can't be found or removed stays. */
mimo_status atomic_file_remove_of(const char *path, long pid);

/* Remove the unfinished file, unless it is needed, and release; after a commit, or twice, it does
 * nothing. */
void atomic_file_discard(struct atomic_file *file);

/* Whether a file could be written now, as far as opening it tells. Leaves nothing behind. */
mimo_status atomic_file_probe(const char *path);

#endif

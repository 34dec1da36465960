/*
 * Memory of rings: made here, or another process's, read only.
 *
 * In memory a ring is a memfd of the name mimo-ring. It has no name in a file system, and ends with
 * the last process that has it open. Others of the same user find it as /proc/PID/fd/N. It is
 * sealed: nobody can change its size, and nobody but its maker can map it for writing. As a file it
 * outlives a process that is killed. Its maker removes it where the family has ended well.
 */
#ifndef MIMO_RING_RING_MEMORY_H
#define MIMO_RING_RING_MEMORY_H

#include <mimo/status.h>

#include "ring/ring_layout.h"

#define MIMO_RING_FILE_NAME "mimo-ring"

typedef struct mimo_ring_memory {
    char *base;
    size_t bytes;
    int fd;     /* kept open, so that others find it; -1: none */
    char *path; /* of a file that was made here; NULL: none */
} mimo_ring_memory;

/* All zero, for reading and writing. MIMO_ERR_IO, MIMO_ERR_MEMORY: this system gives none. */
mimo_status mimo_ring_memory_make(mimo_ring_memory *out, size_t bytes);

/* The same as a file FOLDER/HOST-PID-RANK.ring of this user alone. A family of the same rank that
 * is there already gets "-2", and so on. MIMO_ERR_IO: the folder takes no new file of this size. */
mimo_status mimo_ring_memory_make_file(mimo_ring_memory *out, size_t bytes, const char *folder,
                                       const mimo_ring_identity *owner, int rank);

/* Map a ring that another process has open as `fd`: MIMO_ERR_IO, with the reason in the sentence.
 * Its own fd is kept, so that the ring outlives its maker. */
mimo_status mimo_ring_memory_map(mimo_ring_memory *out, int32_t pid, int32_t fd);
/* Close a ring that stays mapped. */
void mimo_ring_memory_close(mimo_ring_memory *memory);

/* Leave a file that was made here where it is. */
void mimo_ring_memory_keep(mimo_ring_memory *memory);

/* Map a file. */
mimo_status mimo_ring_memory_map_file(mimo_ring_memory *out, const char *path);

/* Unmap and close; a file that was made here is removed, unless it is kept. */
void mimo_ring_memory_release(mimo_ring_memory *memory);

#endif

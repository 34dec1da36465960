/*
 * A wait of all ranks for files. It takes as long as a disk takes, and a slow disk is no sign of a
 * missing rank: no deadline (<mimo/comm.h>) counts meanwhile. Warnings of a long wait have its
 * name, where ranks wait in file_wait_agree or file_wait_pass.
 *
 *     TRY(file_wait_begin(&wait, world, "save of %s", path));
 *     ...
 *     file_wait_end(&wait);     whatever came of it
 *
 * A rank that dies meanwhile ends the others only through who started them, as mpirun does.
 */
#ifndef CAPTIONER_FILE_WAIT_H
#define CAPTIONER_FILE_WAIT_H

#include <mimo/comm.h>

enum { FILE_WAIT_NAME = 192 };

typedef struct file_wait {
    mimo_comm *world;
    int64_t deadline; /* in force outside; milliseconds */
    int64_t since;    /* bytes since the ranks met last */
    char name[FILE_WAIT_NAME];
} file_wait;

/** Begin once all ranks are there, for which the deadline still counts. The name is printf-like and
 *  the same on all ranks. Collective. The errors of mimo_comm_agree; then nothing is to be
 *  ended. */
MIMO_PRINTF(3, 4)
mimo_status file_wait_begin(file_wait *out, mimo_comm *world, const char *name, ...);

/** mimo_comm_agree under the name of the wait. */
mimo_status file_wait_agree(const file_wait *wait, mimo_status local);

/** One rank has written `bytes` more, which all say alike: now and then all wait for it here, and
 *  not in the next call of another name. Collective. The errors of mimo_comm_agree. */
mimo_status file_wait_pass(file_wait *wait, int64_t bytes);

/** From now on the deadline counts again. Local. */
void file_wait_end(const file_wait *wait);

#endif

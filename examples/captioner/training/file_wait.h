/*
 * A wait of all ranks for files. It takes as long as a disk takes, and a slow disk is no sign of a
 * missing rank: no deadline (<mimo/comm.h>) counts meanwhile. Warnings of a long wait have its
 * name, where ranks wait in file_wait_agree or file_wait_pass.
 *
 *     TRY(file_wait_begin(&wait, world, FILE_WAIT_LONG, "save of %s", path));
 *     ...
 *     file_wait_end(&wait);     whatever came of it
 *
 * A rank that dies meanwhile ends the others only through who started them, as mpirun does. A run
 * that shall go on without it (--survive) therefore waits for FILE_WAIT_SHORT: the deadline counts.
 * It is the longest that a disk may take between two agreements.
 */
#ifndef CAPTIONER_FILE_WAIT_H
#define CAPTIONER_FILE_WAIT_H

#include <mimo/comm.h>

enum { FILE_WAIT_NAME = 192 };

typedef enum file_wait_limit {
    FILE_WAIT_LONG,  /* no deadline counts */
    FILE_WAIT_SHORT, /* that of the communicator does */
} file_wait_limit;

typedef struct file_wait {
    mimo_comm *world;
    int64_t deadline; /* to be in force again; milliseconds; 0: nothing was changed */
    int64_t since;    /* bytes since the ranks met last */
    char name[FILE_WAIT_NAME];
} file_wait;

/** Begin once all ranks are there, for which the deadline still counts. The name is printf-like and
 *  the same on all ranks. Collective. The errors of mimo_comm_agree; then nothing is to be
 *  ended. */
MIMO_PRINTF(4, 5)
mimo_status file_wait_begin(file_wait *out, mimo_comm *world, file_wait_limit limit,
                            const char *name, ...);

/** mimo_comm_agree under the name of the wait. */
mimo_status file_wait_agree(const file_wait *wait, mimo_status local);

/** One rank has written `bytes` more, which all say alike: now and then all wait for it here, and
 *  not in the next call of another name. Collective. The errors of mimo_comm_agree. */
mimo_status file_wait_pass(file_wait *wait, int64_t bytes);

/** From now on the deadline counts again. Local. */
void file_wait_end(const file_wait *wait);

#endif

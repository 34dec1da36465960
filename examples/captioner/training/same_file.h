/*
 * Whether all ranks have opened the same file. Each rank opens what it reads by itself. A run that
 * writes a checkpoint every few steps puts a new file in the place of the old one, and between the
 * two a rank may be late. Then the model would be a mixture of two files.
 *
 * Two files are the same where their bytes are. Files that differ may have one size and one header.
 * Files that are equal may have several inodes and times: hosts without a common file system have a
 * copy each. A number inside would need no second reading of the file. But checkpoints of equal
 * trainings are equal files, so it could not be random, and files of other programs have none.
 *
 * A file that is written over in its place, not replaced, may still change between two readings.
 * The captioner never writes so (atomic_file.h).
 */
#ifndef CAPTIONER_SAME_FILE_H
#define CAPTIONER_SAME_FILE_H

#include <mimo/comm.h>

#include "train/support/input_file.h"

/** A file that this rank has open, or has read whole. */
typedef struct opened_file {
    const char *kind; /* for sentences: "the checkpoint"; the same on every rank */
    const char *path;
    struct file_content content;
    int64_t step; /* of a checkpoint, which tells users more than a hash; -1: there is none */
} opened_file;

/** Before any rank uses what it read. A file of which more is to be read stays open: by now its
 *  path may have another one. `opened` is how the opening ended on this rank, and only after
 *  MIMO_OK has `mine` a content. Collective. Errors, the same on every rank: that of the first rank
 *  whose opening failed; MIMO_ERR_MISMATCH names a rank that has another file than rank 0, and what
 *  differs; MIMO_ERR_MEMORY, MIMO_ERR_COMM. */
mimo_status same_file_agree(mimo_comm *world, mimo_status opened, const opened_file *mine);

#endif

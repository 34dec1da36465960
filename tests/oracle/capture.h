/*
 * The parts of named matrices that a rank holds. Rows and columns are numbered as in the whole
 * matrix of the one-process reference. The parts are collected on rank 0, where comparison.h puts
 * them together.
 */
#ifndef ORACLE_CAPTURE_H
#define ORACLE_CAPTURE_H

#include <stdint.h>

#include <mimo/comm.h>

#include "train/nn/ops/nn_real.h"

typedef struct oracle_capture {
    char *bytes;
    int64_t used, capacity;
    mimo_status status; /* the first error of the adds so far */
} oracle_capture;

/* `count` rows. Each holds columns [first, first + columns) of the whole's row row_of[i]. A
 * negative row_of[i] is a row that the whole does not have (of a masked sample); it is left out.
 * data[count, columns]. */
typedef struct capture_block {
    const char *name;
    const int64_t *row_of;
    int64_t count, first, columns;
    const nn_real *data;
} capture_block;

/* Copies the block. Errors are kept in capture->status. */
void capture_add(oracle_capture *capture, const capture_block *block);
/* One number. */
void capture_scalar(oracle_capture *capture, const char *name, double value);
void capture_release(oracle_capture *capture);

/* Called with every block of every rank; rows in row_of are all >= 0. */
typedef struct capture_piece {
    int rank;
    const char *name;
    const int64_t *row_of;
    int64_t count, first, columns;
    const double *data;
} capture_piece;
typedef void capture_visitor(void *context, const capture_piece *piece);

/* Visit on rank 0 what all ranks captured, then empty the captures. Collective. */
mimo_status capture_collect(oracle_capture *capture, mimo_comm *world, capture_visitor *visit,
                            void *context);

#endif

/*
 * The kernel of zero-copy: rows written into the buffers of peers, and rows that stay, in one
 * launch. Some thread blocks write remote rows, the others copy local ones: a block that did both
 * in turn would leave the link idle while it copies.
 *
 * A *program* is what one exchange does, flattened into bytes that travel as the kernel's argument
 * where they fit, so that a CUDA graph that captured the launch owns them, and lie in device memory
 * else.
 */
#ifndef MIMO_COMM_NCCL_PUSH_KERNEL_H
#define MIMO_COMM_NCCL_PUSH_KERNEL_H

#include <cuda_runtime_api.h>

#include "comm/buffer_state.h"

MIMO_BEGIN_DECLS

/* A peer that rows go to, or come from: the flags about it here, and about this rank there. */
typedef struct mimo_push_peer {
    mimo_flags *here, *there;
} mimo_push_peer;

/* n / divisor = (n * factor) >> shift, for n < 2^31. */
typedef struct mimo_push_divisor {
    uint32_t factor, shift;
} mimo_push_divisor;

/* Rows in two loops with a stride on either side, in bytes, as words of 1 << width bytes.
 *
 * All threads move a *segment* at a time, a word each: `side` rows next to each other in the inner
 * loop where rows are short, or one of `chunks` parts of a row where they are long. So where a
 * segment lies is the same arithmetic in all threads. Segments count chunks first, then the inner
 * loop, then the outer: fewer than 2^31. Pieces, runs of segments, of all blocks of a kind are
 * counted through. */
typedef struct mimo_push_block {
    char *to;
    const char *from;
    int64_t to_outer, to_inner, from_outer, from_inner;
    uint32_t segments, row_words, n_inner;
    uint32_t side, chunks, groups; /* groups: of `side` rows in one run of the inner loop */
    uint32_t width;
    uint32_t first_piece;
    int32_t target; /* whose rows these are, among the targets; local rows: -1 */
    mimo_push_divisor by_row, by_chunks, by_groups;
} mimo_push_block;

/* What a program begins with; peers and blocks follow in this order. */
typedef struct mimo_push_head {
    int32_t targets;       /* peers that rows go to, */
    int32_t sources;       /* and that push rows here */
    int32_t remote_blocks; /* first in the list, by target */
    int32_t local_blocks;
    uint32_t remote_pieces, local_pieces;
    uint32_t piece;      /* segments that a thread block moves at a time, up to MIMO_PUSH_PIECE */
    int32_t remote_ctas; /* thread blocks that write remote rows; the others copy local ones */
    int32_t idle;        /* READY is neither said nor awaited */
    uint64_t *tickets;   /* thread blocks that have ended, in device memory; 0 between launches.
                             NULL: no peers at all */
    const volatile uint32_t *abort; /* mapped host memory: not 0 ends every wait */
} mimo_push_head;

enum { MIMO_PUSH_THREADS = 512, MIMO_PUSH_PIECE = 8, MIMO_PUSH_INLINE = 3072 };

typedef struct mimo_push_program {
    int32_t bytes; /* of the image */
    int32_t ctas;
    const void *far; /* the image in device memory; NULL: it is `image` */
    union {
        mimo_push_head head;
        char bytes[MIMO_PUSH_INLINE];
    } image;
} mimo_push_program;

/* Enqueue. */
cudaError_t mimo_push_launch(const mimo_push_program *program, cudaStream_t stream);

/* Thread blocks that fit on the current device at once. */
cudaError_t mimo_push_most_ctas(int *multiprocessors, int *per_multiprocessor);

MIMO_END_DECLS

#endif

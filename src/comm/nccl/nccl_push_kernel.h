/*
 * The kernel of zero-copy: rows written into the buffers of peers, and rows that stay, in one
 * launch. Some thread blocks begin with remote rows, the others with local ones: if all did both in
 * turn, the link would be idle while they copy.
 *
 * A *program* is what one exchange does. It travels as the kernel's argument where it fits, so that
 * a CUDA graph that captured the launch owns it; longer lists lie in device memory.
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

/* Rows in two loops with a stride on either side, in bytes.
 *
 * What moves at a time is a *segment*: `side` rows next to each other in the inner loop where rows
 * are short, or one of `chunks` parts of a row where they are long, so that where it lies is the
 * same arithmetic in all threads. Segments count chunks first, then the inner loop, then the outer:
 * fewer than 2^31. Moved by words, a segment is a word of each thread, and rows are counted in
 * words of 1 << width bytes; in bulk it is head.piece bytes, and rows are counted in bytes. */
typedef struct mimo_push_block {
    char *to;
    const char *from;
    int64_t to_outer, to_inner, from_outer, from_inner;
    uint32_t segments, row_words, n_inner;
    uint32_t begin;                /* pieces of its list that come before */
    uint32_t side, chunks, groups; /* groups: of `side` rows in one run of the inner loop */
    uint32_t width;
    int32_t target; /* whose rows these are, among the targets; local rows: -1 */
    mimo_push_divisor by_row, by_chunks, by_groups;
} mimo_push_block;

/* Remote or local rows: blocks one after the other. A piece is what a thread block moves at a time:
 * by words mimo_push_head.piece segments of a block, in bulk one. */
typedef struct mimo_push_list {
    int32_t first, count;
    uint32_t pieces; /* of all; of remote rows up to MIMO_PUSH_UNIT, of local ones 2^31 - 1 */
    uint32_t ctas;   /* thread blocks that begin with this list */
} mimo_push_list;

enum { MIMO_PUSH_REMOTE, MIMO_PUSH_LOCAL, MIMO_PUSH_LISTS };

/* In mapped host memory, for the host and the kernels of a buffer. */
typedef struct mimo_push_note {
    volatile uint32_t abort; /* not 0 ends every wait: the host's word, or a call was refused */
    mimo_refusal refusal;    /* by the device */
} mimo_push_note;

/* What a program begins with. */
typedef struct mimo_push_head {
    int32_t targets;                      /* peers that rows go to, */
    int32_t sources;                      /* and that push rows here */
    mimo_push_list list[MIMO_PUSH_LISTS]; /* remote blocks come first, by target */
    uint32_t piece;  /* by words: segments, up to MIMO_PUSH_PIECE; in bulk: bytes of a segment, up
                        to MIMO_PUSH_BULK */
    int32_t idle;    /* READY is neither said nor awaited */
    mimo_flags *own; /* the own line: what a launch counts, and leaves at 0; NULL without peers */
    mimo_push_note *note; /* as the device finds it */
    uint64_t signature;   /* of READY */
} mimo_push_head;

enum {
    MIMO_PUSH_THREADS = 512,
    MIMO_PUSH_PIECE = 4,
    MIMO_PUSH_BULK = 32 << 10,
    MIMO_PUSH_SIDE = 32, /* rows of a segment in bulk, at most */
    MIMO_PUSH_NEAR_PEERS = 16,
    MIMO_PUSH_NEAR_BLOCKS = 24,
};

/* A program whose peers and blocks are few. */
typedef struct mimo_push_near {
    mimo_push_head head;
    mimo_push_peer peers[MIMO_PUSH_NEAR_PEERS];    /* targets, then sources */
    mimo_push_block blocks[MIMO_PUSH_NEAR_BLOCKS]; /* remote, then local */
} mimo_push_near;

/* Any other: both lists are in device memory. */
typedef struct mimo_push_far {
    mimo_push_head head;
    const mimo_push_peer *peers;
    const mimo_push_block *blocks;
} mimo_push_far;

typedef struct mimo_push_program {
    int32_t ctas; /* 0: nothing to do */
    bool bulk;
    void *room; /* of the lists of a far program; NULL: it is near */
    union {
        mimo_push_near near;
        mimo_push_far far;
    } as;
} mimo_push_program;

/* Enqueue a program: by words, or in bulk. */
cudaError_t mimo_push_words(const mimo_push_program *program, cudaStream_t stream);
cudaError_t mimo_push_bulk(const mimo_push_program *program, cudaStream_t stream);

/* Thread blocks in bulk that fit on a multiprocessor of the current device at once; 0 where it
 * can't do that. To be called once before such a program is launched. */
cudaError_t mimo_push_bulk_fits(int *per_multiprocessor);

MIMO_END_DECLS

#endif

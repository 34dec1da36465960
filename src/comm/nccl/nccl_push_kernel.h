/*
 * The kernels of zero-copy. One launch writes rows into the buffers of peers and copies rows that
 * stay. Some thread blocks begin with remote rows, the others with local rows. If all blocks began
 * with the same kind, the link would be idle while all of them copy local rows.
 *
 * A *program* is what one exchange does. A small program is the kernel's argument, so a CUDA graph
 * that captured the launch owns it. The lists of a large program lie in device memory. Where rows
 * lie is an argument of every launch: blocks say how far behind which base.
 */
#ifndef MIMO_COMM_NCCL_PUSH_KERNEL_H
#define MIMO_COMM_NCCL_PUSH_KERNEL_H

#include <cuda_runtime_api.h>

#include "comm/buffer_state.h"
#include "core/divisor.h"

MIMO_BEGIN_DECLS

/* A peer that rows go to or come from: its entry in this rank's page of flags, and this rank's
 * entry in the peer's page. */
typedef struct mimo_push_peer {
    mimo_flags *here, *there;
} mimo_push_peer;

/* Rows in two loops, with strides in bytes at both ends.
 *
 * Rows move in *segments*. Where rows are short, a segment is `segment_rows` rows that are
 * neighbours in the inner loop. Where they are long, it is one of the `chunks` of a row. So all
 * threads compute where a segment lies in the same way. Segments are numbered chunks first, then
 * the inner loop, then the outer loop; there are fewer than 2^31.
 *
 *   load/store kernel   a segment is one word of each thread; row_words counts words of 1 << width
 *                       bytes
 *   bulk kernel         a segment is head.piece bytes; row_words counts bytes */
typedef struct mimo_push_block {
    int64_t to, from; /* bytes behind their bases */
    int64_t to_outer, to_inner, from_outer, from_inner;
    uint32_t segments, row_words, n_inner;
    uint32_t begin;        /* the number of pieces of its list that come before */
    uint32_t segment_rows; /* rows of a segment; 1 where rows have chunks */
    uint32_t chunks;       /* of a row */
    uint32_t groups;       /* of segment_rows rows in one iteration of the outer loop */
    uint32_t width;
    int32_t target; /* the peer, among the targets; -1: local rows */
    mimo_divisor by_row, by_chunks, by_groups;
    uint16_t to_base, from_base; /* numbers of their bases */
} mimo_push_block;

/* The blocks of remote or of local rows. A *piece* is what a thread block moves at a time:
 * mimo_push_head.piece segments of a block in the load/store kernel, one segment in the bulk
 * kernel. */
typedef struct mimo_push_block_list {
    int32_t first, count;
    uint32_t pieces; /* of all blocks; up to MIMO_PUSH_UNIT of remote, 2^31 - 1 of local rows */
    uint32_t ctas;   /* thread blocks that begin with this list */
} mimo_push_block_list;

enum { MIMO_PUSH_REMOTE, MIMO_PUSH_LOCAL, MIMO_PUSH_LISTS };

/* What the host and the kernels of a buffer share, in mapped host memory. */
typedef struct mimo_push_note {
    volatile uint32_t abort; /* not 0 ends every wait: the host set it, or a call was refused */
    mimo_refusal refusal;    /* the device writes it */
} mimo_push_note;

/* Where a launch says that it has begun, and that it has ended (nccl_launches.h): two stores into
 * memory of the host, which no thread waits for. */
typedef struct mimo_push_progress {
    struct mimo_ring_launches *words; /* at their device address; NULL: nobody is told */
    uint64_t *ended;                  /* launches so far; device memory */
} mimo_push_progress;

/* What a program begins with. */
typedef struct mimo_push_head {
    int32_t targets;                            /* peers that rows go to */
    int32_t sources;                            /* peers that push rows here */
    mimo_push_block_list list[MIMO_PUSH_LISTS]; /* remote blocks come first, by target */
    uint32_t piece;  /* load/store: segments, up to MIMO_PUSH_PIECE; bulk: bytes of a segment, up to
                        MIMO_PUSH_BULK */
    int32_t idle;    /* READY is neither set nor awaited */
    mimo_flags *own; /* this rank's entry about itself, where a launch counts; NULL without peers */
    mimo_push_note *note; /* at its device address */
    uint64_t signature;   /* of READY */
    mimo_push_progress progress;
} mimo_push_head;

enum {
    MIMO_PUSH_THREADS = 512,
    MIMO_PUSH_PIECE = 4,
    MIMO_PUSH_BULK = 32 << 10,
    MIMO_PUSH_SEGMENT_ROWS = 32, /* the most rows of a segment in the bulk kernel */
    MIMO_PUSH_SMALL_PEERS = 16,
    MIMO_PUSH_SMALL_BLOCKS = 24,
    MIMO_PUSH_SMALL_BASES = 33, /* 16 tensors */
    MIMO_PUSH_MOST_BASES = 257, /* 128 tensors: 2 KiB of the 4 that a kernel's arguments have */
};

/* A program with few peers and blocks. */
typedef struct mimo_push_small {
    mimo_push_head head;
    mimo_push_peer peers[MIMO_PUSH_SMALL_PEERS];    /* targets, then sources */
    mimo_push_block blocks[MIMO_PUSH_SMALL_BLOCKS]; /* remote, then local */
    char *bases[MIMO_PUSH_SMALL_BASES];
} mimo_push_small;

/* Any other program: peers and blocks are in device memory. */
typedef struct mimo_push_large {
    mimo_push_head head;
    const mimo_push_peer *peers;
    const mimo_push_block *blocks;
    char *bases[MIMO_PUSH_MOST_BASES];
} mimo_push_large;

typedef struct mimo_push_program {
    int32_t ctas; /* 0: nothing to do */
    int32_t base_count;
    bool bulk;
    struct mimo_program_memory *lists; /* of a large program; NULL: it is small */
    union {
        mimo_push_small small;
        mimo_push_large large;
    } as;
} mimo_push_program;

/* Enqueue a program, by the load/store kernel or by the bulk kernel. */
cudaError_t mimo_push_load_store(const mimo_push_program *program, cudaStream_t stream);
cudaError_t mimo_push_bulk(const mimo_push_program *program, cudaStream_t stream);

/* Load the load/store kernel onto the current device. */
cudaError_t mimo_push_load_store_load(void);

/* How many thread blocks of the bulk kernel run on one multiprocessor of the current device at the
 * same time; 0 where the device can't run it. To be called once before the kernel is launched. */
cudaError_t mimo_push_bulk_fits(int *per_multiprocessor);

MIMO_END_DECLS

#endif

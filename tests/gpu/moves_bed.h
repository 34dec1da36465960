/* Ranks of a dispatch in one process, on one GPU: each has a stream, memory that the others write
 * into, and the tables of a route, made on the host. So the kernels of moves run among several
 * ranks on any number of GPUs; their thread blocks share one. What they must give is found by the
 * plain loops of plain_route.h. */
#ifndef MIMO_TESTS_MOVES_BED_H
#define MIMO_TESTS_MOVES_BED_H

#include <cuda_runtime_api.h>

#include "comm/nccl/nccl_moves_kernel.h"
#include "plain_route.h"
#include "same_bits.h"

enum { MOVES_MOST_RANKS = 8 };

typedef struct moves_case {
    int64_t ranks, etp, experts, top_k, alignment;
    int64_t max_tokens;
    int64_t missing; /* rows that the tiles of odd ranks have less than they need */
    int32_t fill, gated;
    int late; /* a rank that begins every call later; -1: none */
    int64_t return_bytes;
} moves_case;

typedef cudaError_t (*moves_launch)(const mimo_moves_call *, int, cudaStream_t);

typedef struct moves_rank {
    cudaStream_t stream;
    char *memory; /* the symmetric memory */
    mimo_flags *page;
    char *tables;
    mimo_moves moves;
    int32_t capacity;
} moves_rank;

typedef struct moves_bed {
    moves_case its;
    plain_route *plain;
    mimo_expert_shape shape;
    moves_rank ranks[MOVES_MOST_RANKS];
    char **memories;    /* device: [ranks] */
    mimo_flags **pages; /* device */
    mimo_push_note *note;
    int blocks; /* of a launch */
    bool hung;  /* a call was aborted by the test */
} moves_bed;

/* A tensor of a call. Rows have `width` elements of `dtype`. */
typedef struct moves_kind {
    mimo_dtype dtype;
    int64_t width; /* by pair: 1 */
    bool by_pair, flat, narrow;
} moves_kind;

moves_bed *moves_bed_new(const moves_case *its);
void moves_bed_free(moves_bed *bed);

/* Draw ids, and write the tables of all ranks. */
void moves_bed_draw(moves_bed *bed, uint64_t seed);
/* The same for given tokens of each rank, all ids random. */
void moves_bed_draw_even(moves_bed *bed, uint64_t seed, int64_t tokens);

/* The same for given ids of each rank. */
void moves_bed_set(moves_bed *bed, const int64_t *tokens, int32_t *const *ids);

/* A call's tensors on all ranks: tiles of tokens and of experts. */
typedef struct moves_tensors {
    int count;
    moves_kind kinds[MIMO_MOVES_TENSORS];
    char *tokens[MIMO_MOVES_TENSORS][MOVES_MOST_RANKS];
    char *experts[MIMO_MOVES_TENSORS][MOVES_MOST_RANKS];
    char **there[MIMO_MOVES_TENSORS]; /* device: the tiles of experts, or flat tiles */
    char *flat[MIMO_MOVES_TENSORS][MOVES_MOST_RANKS];
} moves_tensors;

moves_tensors *moves_tensors_new(moves_bed *bed, const moves_kind *kinds, int count);
void moves_tensors_free(moves_bed *bed, moves_tensors *tensors);

/* Enqueue a call, on all ranks or on one. */
void moves_enqueue(moves_bed *bed, const moves_tensors *tensors, bool combine, moves_launch launch);
void moves_enqueue_on(moves_bed *bed, const moves_tensors *tensors, bool combine,
                      moves_launch launch, int64_t rank);

/* Wait for all ranks. A call that does not end is aborted, and noted as a failure. */
void moves_wait(moves_bed *bed);

/* Fill the tiles that a call reads, and poison those that it writes, by each rank's stream. */
void moves_fill(moves_bed *bed, const moves_tensors *tensors, bool combine, uint64_t seed);

/* Compare what a call has written with the plain loops. */
bit_report moves_compare(moves_bed *bed, const moves_tensors *tensors, bool combine, uint64_t seed);

#endif

/*
 * Experts on devices: the memory that the ranks of a dispatch share, and the tables of a route.
 * This file says what lies where. Offsets are a pure function of the shape.
 *
 * Letters: P ranks, rank t + etp * x; E experts, L = E / ep of each x; N most tokens of a rank; k
 * choices of a token; a *pair* is a token's choice that names an expert. Arrays are in C order, the
 * last index moves fastest.
 *
 * Every call of a dispatch (a set of a route, rows, combine) has a number, from 1, which its ranks
 * count alike. A flag is set by storing the number of the call. So no flag is ever reset, and a
 * flag of an earlier call is no flag of this one.
 *
 * Calls of a dispatch run one after the other on a device. A rank sets READY when its earlier calls
 * have ended: from then on its peers may write here for the next call (buffer_state.h).
 */
#ifndef MIMO_COMM_EXPERT_MEMORY_H
#define MIMO_COMM_EXPERT_MEMORY_H

#include <stdint.h>

#include <mimo/status.h>

#include "core/divisor.h"

MIMO_BEGIN_DECLS

enum {
    MIMO_ROUTE_BLOCKS = 8,       /* thread blocks of the route kernel; each sets its flag */
    MIMO_EXPERT_PIECES = 8,      /* the most pieces of a row; each has its flag */
    MIMO_EXPERT_MOST_TOP_K = 14, /* a sum's program has two words (core/sum_program.h) */
    MIMO_EXPERT_MOST_ETP = 14,   /* the same */
    MIMO_EXPERT_MOST = 3000,     /* E: a thread block of the route kernel keeps 76 bytes of each */
    MIMO_ROUTE_BLOCK_PAIRS = 64512, /* the most pairs of a thread block: its counts have 16 bits */
    MIMO_EXPERT_MOST_PAIRS = MIMO_ROUTE_BLOCKS * MIMO_ROUTE_BLOCK_PAIRS, /* of a rank */
    MIMO_EXPERT_MOST_TENSORS = 16, /* of a call: they are arguments of a kernel */
    MIMO_EXPERT_STEP = 256,        /* bytes: where parts of the memory begin */
};

/* The same on all ranks. */
typedef struct mimo_expert_shape {
    int32_t ranks, etp, ep; /* P = etp * ep */
    int32_t experts, held;  /* E, L */
    mimo_divisor by_held;   /* by L */
    int32_t top_k;          /* k */
    int32_t alignment;      /* of each expert's first row, in rows */
    int32_t max_tokens;     /* N */
    mimo_divisor by_tokens; /* by N; by 1 where that is 0 */
    int32_t tensors, sums;  /* most tensors of a call, and most of these by token */
    int32_t returns;        /* R = min(k, ep) * etp: most partial sums that a token gets */
    int32_t words;          /* of a sum's program: 1 where k and etp are at most 8, otherwise 2 */
    int64_t return_bytes;   /* W: from one row of a return tile to the next, a multiple of 16 */
    int64_t flat_bytes;     /* W': the widest row of a flat tile; 0: there are none */
} mimo_expert_shape;

/*
 * Symmetric memory: one buffer of the dispatch, with these offsets on every rank. "Rank s writes"
 * means that s writes into the memory of the rank that the array is for. s may be that rank itself,
 * except in `row_flags` and `return_flags`.
 *
 *   arrived       u64 [P][8]             block b of rank s has written all that it writes of a
 *                                        route: the number of the call
 *   inbox                                what ranks tell of a route:
 *     inbox_head    mimo_inbox_head [P]
 *     inbox_count   i32 [P][E]           pairs of rank s with expert e
 *     inbox_id      u16 [P][N][k]        the expert of each pair; 0xffff: none
 *     inbox_place   u32 [P][N][k]        the pairs of rank s with the same expert that come before
 *                                        this one, by (token, choice)
 *                   The route kernel and the place kernel of one call read it, and nothing else.
 *   row_flags     u32 [tensors][P][N][8] rank s has written piece q of its token i of a tensor into
 *                                        this rank: into the token's lowest row of the tile, or
 *                                        into `pairs`. The low 32 bits of the number of the call
 *   return_flags  u32 [tensors][N][R][8] the partial sum in this slot of this rank's token is
 *                                        there, piece by piece. The same value
 *   pairs         8 bytes [tensors][P][N][k]  values by pair, f32 (in the first 4 bytes of each 8)
 *                                        or f64. In `rows`, rank s writes [s][i][0..k) for its own
 *                                        token i; row_flags [.][s][i][0] says that they are there.
 *                                        In `combine`, rank s writes [s][i][j] for the pairs of
 *                                        this rank's token i that it has a row of; return_flags
 *                                        [.][i][slot of s][0]
 *   returns       W bytes [sums][N][R]   the return tiles: partial sums of this rank's tokens. The
 *                                        slot of rank t + etp * x is n * etp + t, where n is the
 *                                        number of x' < x that the token has pairs of
 *
 *   flat          W' bytes [sums][P][N]  for tiles that peers can't write into: rank s writes the
 *                                        row of its token i of a tensor here. None where W' is 0
 *   counters      mimo_expert_counters   of this rank alone
 *
 * Row flags, return flags, pairs, return tiles and flat tiles of a tensor: those of its position in
 * the call. Tensors by token come first there.
 */
typedef struct mimo_expert_layout {
    int64_t arrived;
    int64_t inbox_head, inbox_count, inbox_id, inbox_place;
    int64_t row_flags, return_flags, pairs, returns, flat, counters;
    int64_t bytes; /* of all */
} mimo_expert_layout;

/* What a rank tells beside its ids. */
typedef struct mimo_inbox_head {
    int32_t tokens;
    int32_t capacity; /* rows of its tile */
} mimo_inbox_head;

/*
 * The tables of a route: device memory of one rank, written by the kernels of a set, and read by
 * those of the moves. With s == this rank a token is one of its own, otherwise of a peer.
 *
 *   tokens     i32 [P]         tokens of each rank. Entries of tokens i >= tokens[s] below are
 *                              unspecified
 *   capacity   i32 [P]         rows of each rank's tile
 *   needed     i32 [ep]        rows that the tiles of each x need, padding behind the last expert
 *                              included
 *   ends       i32 [L]         where the rows of this rank's experts end, padding included
 *   filled     i32 [L]         the same without padding: rows [filled[l], ends[l]) are padding,
 *                              as far as this rank's tile has them
 *   starts     i32 [P][E]      the row of the first pair of rank s with expert e, in the tiles of
 *                              the expert's x
 *   row        i32 [P][N][k]   the row of a pair in the tiles of its expert's x; -1: no pair. Of a
 *                              peer's token those of this rank's x alone: other pairs are -1. A row
 *                              >= capacity[r] does not exist in the tile of rank r: it is neither
 *                              written nor read there
 *   x          u16 [N][k]      of this rank's tokens: the x of each pair; 0xffff: no pair
 *   partial    u64 [P][N][words]  the sum of a token's rows in this rank's tile: a program whose
 *                              leaves are choices j. Its ordinal is n of `returns` above, for this
 *                              rank's x. LOST: one of these rows lies behind the end of a tile
 *                              (of any rank of this x). Then the sum is neither made nor sent
 *   total      u64 [N][words]  the sum of what this rank's token gets: a program whose leaves are
 *                              the numbers n of `returns`. Each stands for etp rows, slots n * etp
 *                              to n * etp + etp - 1, which the program `shared` adds first. Where n
 *                              is the ordinal of the token's `partial` and that has leaves, the
 *                              row of this rank itself is not in the slot: it is the sum by
 *                              `partial`, rounded as if it had travelled. LOST: the result is NaN,
 *                              and nothing is awaited for it
 *   shared     u64 [words]     the sum over the etp ranks of an x; leaves are t
 *
 * core/sum_program.h has the form of programs. One of no leaves is 0 (zeros).
 */
typedef struct mimo_route_tables {
    int32_t *tokens, *capacity, *needed, *ends, *filled, *starts, *row;
    uint16_t *x;
    uint64_t *partial, *total, *shared;
} mimo_route_tables;

/* What a dispatch counts: device memory of one rank. All start at 0. */
typedef struct mimo_expert_counters {
    uint64_t call;      /* the number of the last call that ended here */
    uint32_t finished;  /* thread blocks of a launch that have ended; the last one sets it to 0 */
    uint32_t routes;    /* sets since the last report */
    uint32_t overflows; /* of these, sets in which a tile had fewer rows than it needed */
    int32_t rows;       /* the most rows that any rank needed in one of them */
    uint32_t strays;    /* ids that were no expert, and counted as -1 */
} mimo_expert_counters;

/* What decides the sizes. */
typedef struct mimo_expert_sizes {
    int64_t ranks, etp, experts, top_k, alignment, max_tokens;
    int64_t tensors, sums;
    int64_t return_bytes, flat_bytes; /* of the widest partial sum; of the widest row */
} mimo_expert_sizes;

/* Read a shape. MIMO_ERR_UNSUPPORTED where a number is larger than kernels can take. All are > 0,
 * except max_tokens and the two numbers of bytes, which may be 0; ranks is a multiple of etp, and
 * experts of ep; a tile that all pairs of all ranks fill has less than 2^31 rows. */
mimo_status mimo_expert_shape_read(mimo_expert_shape *out, const mimo_expert_sizes *sizes);

/* Where everything lies. MIMO_ERR_OVERFLOW. */
mimo_status mimo_expert_layout_of(mimo_expert_layout *out, const mimo_expert_shape *shape);

/* Bytes of the tables of a route; the tables in memory that begins at `at`, a multiple of
 * MIMO_EXPERT_STEP. MIMO_ERR_OVERFLOW. */
mimo_status mimo_route_tables_bytes(int64_t *bytes, const mimo_expert_shape *shape);
mimo_status mimo_route_tables_place(mimo_route_tables *out, const mimo_expert_shape *shape,
                                    char *at);

MIMO_END_DECLS

#endif

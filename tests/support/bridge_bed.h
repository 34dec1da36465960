/*
 * One bridge on real ranks with tiles to move: the tiles' rows are those of the slow reference
 * layout, their elements a function of (sample, position, element), so that whatever arrives can be
 * checked by itself.
 */
#ifndef MIMO_TESTS_BRIDGE_BED_H
#define MIMO_TESTS_BRIDGE_BED_H

#include "mpi_test.h"
#include "reference_layout.h"
#include "same_bits.h"
#include "test_memory.h"

/* What moves: two sides, and the shape of the tensor. dst.partial is ignored: without a partition
 * the dst cp ranks are contributions in backward. */
typedef struct bed_case {
    layout_case src, dst;
    const char *src_letters, *dst_letters; /* the orders of src and dst follow from these */
    mimo_executor executor;
    mimo_executor backward_executor; /* AUTO: the same */
    mimo_dtype dtype;
    int64_t batch, seq;
    int64_t hidden; /* elements of a row; 0: 3, so that rows lie at any address */
    bool buffer;    /* destinations lie in a mimo_buffer, and the executor is zero-copy */
    bool idle;      /* they are, between calls */
    int ctas;       /* of the descriptor */
    bool told;      /* the descriptor tells the batch */
    bool sums;      /* backward: every contribution has its own small number; else one has all */
    int chunks;     /* bed_move: of each call; 0: calls are whole */
} bed_case;

/* On 4 ranks, in a buffer: each has a sample, and takes half of two. */
extern const bed_case bed_fan_in;

typedef struct bridge_bed {
    bed_case c;
    mimo_grid *src_grid, *dst_grid;
    mimo_bridge *bridge; /* NULL where it could not be made (noted as a failure) */
    reference_layout src, dst;
} bridge_bed;

/* Collective. */
void bed_create(bridge_bed *out, const bed_case *c);
void bed_destroy(bridge_bed *bed);

/* Collective: a ragged case's update, which bed_create does. */
void bed_update(const bridge_bed *bed);

/* A poisoned tile of this rank's on a side; one that is written, which is collective. */
test_tile bed_tile_new(const bridge_bed *bed, mimo_side side);
test_tile bed_target_new(const bridge_bed *bed, mimo_side side);

/* Write what a source tile holds, at its place too; or fetch a tile and check what it must hold. */
void bed_fill(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed);
void bed_check_source(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed);
void bed_check_target(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed);

/* Two tiles of a case beside one another. */
bit_report bed_bits(const bridge_bed *bed, const test_tile *got, const test_tile *expected);

/* Check the rows of a target that a chunk of a call brings, or that none has come. */
void bed_check_chunk(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed,
                     int chunk);
void bed_check_no_chunk(const bridge_bed *bed, const test_tile *tile, bool backward, int chunk);

/* Begin a call of bed_case.chunks chunks on the side stream. */
mimo_status bed_start_chunked(mimo_op **out, const bridge_bed *bed, bool backward,
                              const test_tile *to, const test_tile *from);

/* One whole call on these tiles: forward, or backward. */
mimo_status bed_call(const bridge_bed *bed, bool backward, const test_tile *to,
                     const test_tile *from);

/* One call each way: fill, move, check the target, each chunk as soon as it is here, and that the
 * source stayed. */
void bed_move(const bridge_bed *bed, bool backward, uint64_t seed);

/* Two tests of one body, which sets bed_case.buffer to `buffer`: SUITE/NAME with destinations
 * anywhere, and SUITE_zero_copy/NAME with destinations in a buffer. */
#define BED_TEST(suite, name)                 \
    static void bed_body_##name(bool buffer); \
    MPI_TEST(suite, name)                     \
    {                                         \
        bed_body_##name(false);               \
    }                                         \
    MPI_TEST(suite##_zero_copy, name)         \
    {                                         \
        bed_body_##name(true);                \
    }                                         \
    static void bed_body_##name(bool buffer)

/* Elements of a row. */
int64_t bed_hidden(const bed_case *c);

/* The case in words. */
const char *bed_text(const bed_case *c);

#endif

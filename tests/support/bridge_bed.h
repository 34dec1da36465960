/*
 * One bridge on real ranks, with tiles to move. The tiles' rows are those of the slow reference
 * layout. Their elements are a function of (sample, position, element), so each row that arrives
 * can be checked by itself.
 */
#ifndef MIMO_TESTS_BRIDGE_BED_H
#define MIMO_TESTS_BRIDGE_BED_H

#include "executors.h"
#include "mpi_test.h"
#include "reference_layout.h"
#include "same_bits.h"
#include "test_memory.h"

/* What moves: two sides, and the shape of the tensor. dst.partial is ignored: without a partition
 * the ranks of dst's cp contribute in backward. */
typedef struct bed_case {
    layout_case src, dst;
    const char *src_letters, *dst_letters; /* src.order and dst.order follow from these */
    executor_id executor;
    executor_id backward_executor; /* AUTO: `executor` */
    mimo_dtype dtype;
    int64_t batch, seq;
    int64_t hidden; /* elements of a row; 0: 3, so that rows lie at any address */
    bool buffer;    /* destinations lie in a mimo_buffer, and the executor is zero-copy */
    bool idle;      /* destinations are idle between calls */
    int ctas;       /* the descriptor's limit of thread blocks */
    bool given;     /* the batch is given */
    bool rows;      /* tiles are flat, S is 1, and every rank gives its rows */
    /* Backward: each contribution is a small number of its own. Otherwise one is the whole sum. */
    bool sums;
    int chunks; /* chunks of each call in bed_move; 0: whole calls */
} bed_case;

/* On 4 ranks, in a buffer: each rank has a sample, and takes half of two samples. */
extern const bed_case bed_fan_in;

/* A case between tiles of these grids and letters. The rest of it is zero. */
bed_case bed_case_of(executor_id executor, const char *src, const char *dst,
                     const char *src_letters, const char *dst_letters);

typedef struct bridge_bed {
    bed_case c;
    mimo_grid *src_grid, *dst_grid;
    mimo_bridge *bridge; /* NULL where creation failed, which is noted as a failure */
    reference_layout src, dst;
} bridge_bed;

/* Collective. */
bridge_bed bed_create(const bed_case *c);
void bed_destroy(bridge_bed *bed);

/* The update of a ragged case, or of one with rows, which bed_create does as well. Collective. */
void bed_update(const bridge_bed *bed);

/* What an update of the case points to. */
typedef struct bed_given {
    mimo_span *spans; /* the caller's, to be freed */
    mimo_batch_items items;
} bed_given;

/* What this rank gives an update of the case. */
mimo_batch_desc bed_describe(const bridge_bed *bed, bed_given *given);

/* Some dimensions in some order over a part of this launch's ranks. */
void bed_draw_grid(uint64_t *random, char text[64], int64_t *offset);

/* Poisoned tiles of this rank: one on a side, and one to be a target. They go with the bed. Making
 * a target is collective. */
test_tile bed_tile_new(const bridge_bed *bed, mimo_side side);
test_tile bed_target_new(const bridge_bed *bed, mimo_side side);

/* Write a source tile, in host memory and at its place. Or fetch a tile and check its elements. */
void bed_fill(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed);
void bed_check_source(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed);
void bed_check_target(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed);

/* Compare two tiles of a case. */
bit_report bed_bits(const bridge_bed *bed, const test_tile *got, const test_tile *expected);

/* Check the rows of a target that a chunk of a call brings, or that no row has come. */
void bed_check_chunk(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed,
                     int chunk);
void bed_check_no_chunk(const bridge_bed *bed, const test_tile *tile, bool backward, int chunk);

/* Begin a call of bed_case.chunks chunks on the side stream. */
mimo_status bed_start_chunked(mimo_op **out, const bridge_bed *bed, bool backward,
                              const test_tile *to, const test_tile *from);

/* One whole call on these tiles, forward or backward. */
mimo_status bed_call(const bridge_bed *bed, bool backward, const test_tile *to,
                     const test_tile *from);

/* One call forward or backward: fill, move, and check the target, each chunk as soon as it arrives.
 * The source must not change. */
void bed_move(const bridge_bed *bed, bool backward, uint64_t seed);

/* Two tests of one body, which sets bed_case.buffer to `buffer`. In SUITE/NAME destinations lie
 * anywhere; in SUITE_zero_copy/NAME they lie in a buffer. */
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

/* The case as text. */
const char *bed_text(const bed_case *c);

#endif

/*
 * A slow layout to compare with. It lists every local row of every rank one by one, from the
 * formulas of docs/concepts.md. Shares no code with the library.
 */
#ifndef MIMO_TESTS_REFERENCE_LAYOUT_H
#define MIMO_TESTS_REFERENCE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/plan.h>

/* A layout as a value. A case is a pair of these. */
typedef struct layout_case {
    const char *grid; /* "tp=2,cp=2,dp=2" */
    int64_t offset;
    mimo_row_order order;
    bool partition, sp;
    bool partial;      /* stages, and without a partition copies along cp, are contributions */
    uint64_t ragged;   /* 0: an even split; otherwise the seed of a random split */
    const int32_t *cu; /* packed sequences cu[0..sequences] of the partition (thd), or NULL */
    int64_t sequences;
    mimo_ragged kind; /* ragged rows: only those of spans[span_count] */
    const mimo_span *spans;
    int64_t span_count;
    const mimo_item *items; /* of kind items: those of dp coordinate d begin at first_item[d] */
    const int64_t *first_item;
    bool all_stages; /* pp > 0 holds rows as well */
} layout_case;

#define LAYOUT(text, first, rows, cut, tp_too, contributes)                                     \
    {                                                                                           \
        .grid = (text), .offset = (first), .order = (rows), .partition = (cut), .sp = (tp_too), \
        .partial = (contributes)                                                                \
    }

/* The rows of one rank. */
typedef struct reference_tile {
    int64_t rows;
    /* b[rows], s[rows]: the global row of each local row. With b -1 the row is not in the layout
     * (between the spans of a ragged one). */
    int64_t *b, *s;
    int64_t contribution;
} reference_tile;

typedef struct reference_layout {
    int64_t batch, seq;
    int64_t end;           /* one past the last rank of the span */
    int64_t classes;       /* 1 unless copies are partial */
    reference_tile *tiles; /* tiles[end]; ranks outside the span, and at pp > 0, have no rows */
} reference_layout;

/* Returns the number of samples of a dp coordinate, and sets *first to the first of them. */
int64_t reference_samples(const layout_case *layout, int64_t batch, int64_t d, int64_t *first);

/* The chunk that a row is in: its part, of `chunks` equal ones, of its dp coordinate's samples or
 * items. */
int64_t reference_chunk(const layout_case *layout, int64_t batch, int64_t sample, int64_t row,
                        int64_t chunks);

/* List all rows. The caller releases it with reference_release. */
reference_layout reference_of(const layout_case *layout, int64_t batch, int64_t seq);
void reference_release(reference_layout *reference);

/* The library's layout of a case. Asserts that creation succeeds. */
mimo_layout *layout_of(const layout_case *layout, int64_t batch, int64_t seq, mimo_grid **grid);

#endif

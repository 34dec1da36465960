/*
 * A slow layout to compare with: every local row of every rank, listed one by one from the formulas
 * of the specification. Shares no code with the library.
 */
#ifndef MIMO_TESTS_REFERENCE_LAYOUT_H
#define MIMO_TESTS_REFERENCE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/plan.h>

/* A layout as a value: a case is a pair of these. */
typedef struct layout_case {
    const char *grid; /* "tp=2,cp=2,dp=2" */
    int64_t offset;
    mimo_row_order order;
    bool partition, sp;
    bool partial;      /* cp copies without a partition, and stages, are contributions */
    uint64_t ragged;   /* not 0: samples are dealt out at random, by this seed */
    const int32_t *cu; /* packed sequences cu[0..sequences] of the partition (thd), or NULL */
    int64_t sequences;
    mimo_ragged kind; /* ragged rows: those of spans[span_count] alone */
    const mimo_span *spans;
    int64_t span_count;
    bool all_stages; /* pp > 0 holds rows too */
} layout_case;

#define LAYOUT(text, first, rows, cut, tp_too, contributes)                                     \
    {                                                                                           \
        .grid = (text), .offset = (first), .order = (rows), .partition = (cut), .sp = (tp_too), \
        .partial = (contributes)                                                                \
    }

/* What one rank holds. */
typedef struct reference_tile {
    int64_t rows;
    int64_t *b, *s; /* b[rows], s[rows]: the global row of each local one; b -1: none, so it is
                       not part of the layout (between the spans of a ragged one) */
    int64_t klass;
} reference_tile;

typedef struct reference_layout {
    int64_t batch, seq;
    int64_t end;           /* one past the last rank of the span */
    int64_t classes;       /* 1 unless copies are partial */
    reference_tile *tiles; /* tiles[end]; ranks outside the span, and at pp > 0, have no rows */
} reference_layout;

/* How many samples a dp coordinate holds, and the first of them. */
int64_t reference_samples(const layout_case *layout, int64_t batch, int64_t d, int64_t *first);

/* List all rows. The caller releases it with reference_release. */
reference_layout reference_of(const layout_case *layout, int64_t batch, int64_t seq);
void reference_release(reference_layout *reference);

/* The library's layout of a case; asserts that it can be made. */
mimo_layout *layout_of(const layout_case *layout, int64_t batch, int64_t seq, mimo_grid **grid);

#endif

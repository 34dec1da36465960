/*
 * Candidate against reference, on rank 0. Each expected tensor is put together from the pieces of
 * all ranks. Where several ranks hold copies of an element, the copy farthest from the reference
 * counts, so that no wrong copy hides behind a right one.
 */
#ifndef ORACLE_COMPARISON_H
#define ORACLE_COMPARISON_H

#include <stdbool.h>

#include "capture.h"
#include "phases.h"
#include "ref_table.h"

typedef struct checked_tensor {
    char name[64];
    oracle_phase phase;
    int64_t rows, columns;
    double *expected, *got;  /* [rows, columns] */
    double *base;            /* the start that both are measured from; zeros by default */
    unsigned char *seen;     /* [rows, columns] */
    double scale, got_scale; /* L2 norms of the reference and of the candidate */
    double error;            /* relative L2; of `zeros` absolute */
    double moved;            /* relative L2 of the reference from the base */
    double limit;   /* of the error: the phase's, or less where the reference moved little */
    bool zeros;     /* the reference is all zeros, and the candidate must be */
    bool *left_out; /* [rows] that are not compared; NULL: none is */
    int64_t ties;   /* how many these are */
    char fault[96]; /* "": none; otherwise why it fails, whatever the error */
} checked_tensor;

typedef struct oracle_comparison {
    const char *what; /* the case: "4 micro-batches" */
    checked_tensor *list;
    int count;
    char unknown[64]; /* the first tensor that is not expected; "" where there is none */
    int unknown_count;
} oracle_comparison;

/* Expect "PREFIX NAME" with these values (copied). With a base the error may be at most a hundredth
 * of the distance that the reference moved from it. So a wrong step shows even where it is short.
 * The check fails where f32 rounds by more than that hundredth: it would prove nothing. */
void comparison_expect(oracle_comparison *comparison, oracle_phase phase, const char *prefix,
                       const ref_tensor *expected, const ref_tensor *base);
/* Expect zeros of this shape: the gradient of an expert that no token with a label chose. */
void comparison_expect_zeros(oracle_comparison *comparison, oracle_phase phase, const char *prefix,
                             const ref_tensor *shape);
/* Expect choices. A row with 0 < margin <= 1e-4 is a near tie, which rounding may turn: it is left
 * out, and where more than one row of a hundred is one, the tensor fails. margins[rows]. */
void comparison_expect_choices(oracle_comparison *comparison, oracle_phase phase,
                               const ref_tensor *expected, const double *margins);
/* Expect what ranks send, with every bit: comparison_receive_sent brings it, before any piece that
 * is compared. */
void comparison_expect_sent(oracle_comparison *comparison, oracle_phase phase, const char *name,
                            int64_t rows, int64_t columns);
void comparison_expect_scalar(oracle_comparison *comparison, oracle_phase phase, const char *name,
                              double value);
/* Capture_visitors; context is the comparison. */
void comparison_receive(void *context, const capture_piece *piece);
void comparison_receive_sent(void *context, const capture_piece *piece);
void comparison_judge(oracle_comparison *comparison);
void comparison_free(oracle_comparison *comparison);

/* Results of one phase over several comparisons. */
typedef struct phase_summary {
    int tensors, failures;
    double mean, worst, limit; /* `limit` is that of the worst tensor */
    /* A faulty tensor, or that with the largest error relative to its limit. NULL: no tensors. */
    const checked_tensor *worst_tensor;
    const oracle_comparison *worst_case;
} phase_summary;

phase_summary comparison_summary(const oracle_comparison *list, int count, oracle_phase phase);
bool comparison_fails(const checked_tensor *tensor);

/* All gradients of one module together, "encoder" or "llm": their norm as a multiple of the
 * reference's, and their relative L2 error. */
typedef struct module_effect {
    double ratio, error;
} module_effect;

module_effect comparison_module(const oracle_comparison *comparison, const char *module);

#endif

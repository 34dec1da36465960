/* Backward against central finite differences of forward, for every input and every parameter. */
#ifndef MIMO_TESTS_NN_GRADIENT_CHECK_H
#define MIMO_TESTS_NN_GRADIENT_CHECK_H

#include <mimo/mimo.h>

#include "train/nn/nn.h"
#include "expect_failure.h"
#include "nn_test_memory.h"

/* A layer on one rank, as two functions of its input. Both get `layer`; tensors lie in the tested
 * memory. */
typedef struct nn_case {
    const char *name;
    void *layer;
    nn_params *params; /* sealed */
    int64_t inputs, outputs;
    mimo_status (*forward)(void *layer, nn_real *y, const nn_real *x);
    /* dx NULL where `inputs` is 0. */
    mimo_status (*backward)(void *layer, nn_real *dx, nn_real *dy);
} nn_case;

/* The objective is sum(r[i] * y[i]) with random r. Parameters are set to random values first, as
 * ones and zeros hide mistakes. Gradients start from a known offset, as backward must add to
 * them. */
void nn_check_gradients(const nn_case *c);

/* A store on rank `rank` of `size` in the tested memory, seed 7. */
nn_params *nn_test_store(int rank, int size);

/* Standard normal numbers keyed by `name`. */
void nn_test_fill(nn_real *x, int64_t n, const char *name);

#endif

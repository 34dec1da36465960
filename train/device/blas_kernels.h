/*
 * The kernels with which OpenBLAS multiplies. It chooses them when it is loaded. For a processor
 * that came after its release it falls back to its oldest ones, which are several times slower than
 * what the processor has. Only OPENBLAS_CORETYPE in the environment changes that, and OpenBLAS
 * reads it when it is loaded: the program has to begin again.
 */
#ifndef TRAIN_BLAS_KERNELS_H
#define TRAIN_BLAS_KERNELS_H

#include <stdio.h>

/** The kernels to take in place of those that OpenBLAS has chosen. `flags`: what the processor has
 *  and the system has enabled, as the words of "flags" in /proc/cpuinfo. NULL: the chosen ones
 *  stay, as they are no fallback or as the processor has no more. Pure. */
const char *blas_kernels_better(const char *chosen, const char *flags);

/** First in main(), before MPI_Init: where OpenBLAS fell back and this processor has more, sets
 *  OPENBLAS_CORETYPE and executes the program again, with the same arguments. Does nothing where
 *  the variable is set already. Each process asks the processor that it runs on. */
void blas_kernels_choose(char **argv);

/** One line: which kernels are in use, and in place of which. */
void blas_kernels_print(FILE *stream);

#endif

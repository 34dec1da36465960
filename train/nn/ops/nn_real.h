/* The element type of parameters and activations: float, or double with -DNN_REAL_F64. */
#ifndef MIMO_NN_NN_REAL_H
#define MIMO_NN_NN_REAL_H

#include <mimo/dtype.h>

#ifdef NN_REAL_F64
typedef double nn_real;
#define NN_DTYPE MIMO_F64
#else
typedef float nn_real;
#define NN_DTYPE MIMO_F32
#endif

#endif

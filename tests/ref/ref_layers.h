/*
 * Dense layers as plain loops in double precision, one sample at a time. The code is meant to show
 * what each layer computes. Backward *adds* to parameters' gradients and *writes* the input's.
 */
#ifndef REF_LAYERS_H
#define REF_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ref_param {
    const double *value;
    double *grad;
} ref_param;

/* y[rows, out] = x[rows, in] W^T + b; W [out, in]. bias.value NULL: none. With a low-rank adapter
 * of A [rank, in] and B [out, rank] it is (W + scale B A) in the place of W. */
typedef struct ref_linear {
    ref_param weight, bias;
    int64_t in, out;
    ref_param a, b; /* rank > 0 */
    int64_t rank;
    double scale;
    double *effective; /* rank > 0: W + scale B A [out, in] */
} ref_linear;

/* With an adapter: before the first forward after a change of parameters; and after the last
 * backward of a step, the gradients of A and B from that of W, which is the gradient of W + scale
 * B A. */
void ref_linear_prepare(const ref_linear *layer);
void ref_linear_finish(const ref_linear *layer);

void ref_linear_forward(const ref_linear *layer, double *y, const double *x, int64_t rows);
/* dx NULL: the gradient of the input is not computed. */
void ref_linear_backward(const ref_linear *layer, double *dx, const double *dy, const double *x,
                         int64_t rows);

/* (x - mean) / sqrt(variance + 1e-5) * scale + shift, over each row. */
typedef struct ref_norm {
    ref_param scale, shift;
    int64_t width;
} ref_norm;

void ref_norm_forward(const ref_norm *layer, double *y, const double *x, int64_t rows);
void ref_norm_backward(const ref_norm *layer, double *dx, const double *dy, const double *x,
                       int64_t rows);

/* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 and its derivative. */
double ref_gelu(double x);
double ref_gelu_slope(double x);

/* softmax(q k^T / sqrt(dh) + mask) v for each head, between the two projections. Rows of the first
 * projection's matrix are (head, query | key | value, dh). */
typedef struct ref_attention {
    ref_linear qkv, out;
    int64_t heads;
    bool causal;
    double *projected; /* [rows, 3H]; this and what follows are of the last forward */
    double *weights;   /* [heads, rows, rows] */
    double *context;   /* [rows, H] */
    double *d_projected, *d_context;
} ref_attention;

void ref_attention_forward(const ref_attention *layer, double *y, const double *x, int64_t rows);
void ref_attention_backward(const ref_attention *layer, double *dx, const double *dy,
                            const double *x, int64_t rows);

/* -ln softmax(logits)[label], and its gradient into d[n]. Both are 0 where label < 0. */
double ref_cross_entropy(double *d, const double *logits, int64_t n, int64_t label);

#endif

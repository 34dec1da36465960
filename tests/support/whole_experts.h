/*
 * A mixture of experts in whole numbers, as a dense layer without any ranks: a loop over the tokens
 * and over their choices. Nothing here is derived: a gradient is the difference of the loss for
 * other values, which is exact, because the loss is a polynomial of low degree in each of them. So
 * gradients that ranks compute in f64 have its bits.
 *
 *   z = (W1 + B1 A1) x + b1,  a = z^2 + z,  y = sum over choices of w ((W2 + B2 A2) a + b2)
 *   w = the expert's logit,   loss = sum over tokens of g . y
 *
 * Each token has its own g. The choices are given, not computed.
 */
#ifndef MIMO_TESTS_WHOLE_EXPERTS_H
#define MIMO_TESTS_WHOLE_EXPERTS_H

#include "guarded.h"

/* Of experts, choices of a token, tokens; H, F and the rank of the adapters. */
enum { EXPERTS = 24, CHOICES = 2, TOKENS = 64, WIDTH = 4, INNER = 8, LOW = 2 };

typedef struct whole_expert {
    double w1[INNER][WIDTH], b1[INNER], w2[WIDTH][INNER], b2[WIDTH];
    double lora_a1[LOW][WIDTH], lora_b1[INNER][LOW], lora_a2[LOW][INNER], lora_b2[WIDTH][LOW];
} whole_expert;

/* All that has a gradient. */
typedef struct whole_values {
    whole_expert expert[EXPERTS];
    double router_w[EXPERTS][WIDTH], router_b[EXPERTS];
    double x[TOKENS][WIDTH];
} whole_values;

enum { VALUES = sizeof(whole_values) / sizeof(double) };

typedef struct whole_layer {
    whole_values at;
    double g[TOKENS][WIDTH];
    int choice[TOKENS][CHOICES]; /* may name an expert twice */
} whole_layer;

static inline void whole_fill(double *values, int count, uint64_t seed)
{
    for (int i = 0; i < count; i++)
        values[i] = (double)(random_below(&seed, 5) - 2);
}

static inline void whole_layer_fill(whole_layer *layer, uint64_t seed)
{
    whole_fill((double *)&layer->at, VALUES, seed);
    whole_fill(layer->g[0], TOKENS * WIDTH, seed + 1);
    seed += 2;
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < CHOICES; j++)
            layer->choice[t][j] = (int)random_below(&seed, EXPERTS);
}

static inline double whole_dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y of one expert for one token, before its weight. */
static inline void whole_expert_of(double y[WIDTH], const whole_expert *e, const double x[WIDTH])
{
    double low[LOW], a[INNER];
    for (int r = 0; r < LOW; r++)
        low[r] = whole_dot(e->lora_a1[r], x, WIDTH);
    for (int f = 0; f < INNER; f++) {
        double z = whole_dot(e->w1[f], x, WIDTH) + whole_dot(e->lora_b1[f], low, LOW) + e->b1[f];
        a[f] = z * z + z;
    }
    for (int r = 0; r < LOW; r++)
        low[r] = whole_dot(e->lora_a2[r], a, INNER);
    for (int i = 0; i < WIDTH; i++)
        y[i] = whole_dot(e->w2[i], a, INNER) + whole_dot(e->lora_b2[i], low, LOW) + e->b2[i];
}

static inline double whole_weight(const whole_layer *layer, int token, int choice)
{
    int e = layer->choice[token][choice];
    return whole_dot(layer->at.router_w[e], layer->at.x[token], WIDTH) + layer->at.router_b[e];
}

static inline void whole_output(double y[WIDTH], const whole_layer *layer, int token)
{
    double one[WIDTH];
    memset(y, 0, WIDTH * sizeof *y);
    for (int j = 0; j < CHOICES; j++) {
        whole_expert_of(one, &layer->at.expert[layer->choice[token][j]], layer->at.x[token]);
        for (int i = 0; i < WIDTH; i++)
            y[i] += whole_weight(layer, token, j) * one[i];
    }
}

static inline double whole_loss(const whole_layer *layer)
{
    double y[WIDTH], sum = 0;
    for (int t = 0; t < TOKENS; t++) {
        whole_output(y, layer, t);
        sum += whole_dot(layer->g[t], y, WIDTH);
    }
    return sum;
}

/* The derivative of the loss by value i of `layer->at`: exact up to degree 4, and a token's x has
 * degree 3 (z^2 times the weight). */
static inline double whole_gradient_of(whole_layer *layer, int i)
{
    double *value = (double *)&layer->at + i, at = *value, loss[5];
    for (int step = -2; step <= 2; step++) {
        *value = at + step;
        loss[step + 2] = step == 0 ? 0 : whole_loss(layer);
    }
    *value = at;
    return (loss[0] - 8 * loss[1] + 8 * loss[3] - loss[4]) / 12;
}

#endif

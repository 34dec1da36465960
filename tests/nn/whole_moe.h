/*
 * A mixture of experts as a plain loop: no ranks, no route, no library code. A token goes through
 * its experts in the order of its choices. There is no backward: a gradient is a difference of the
 * loss, of the fourth order. The choices and the counts of the balance, which have no gradient, are
 * those of the first pass.
 *
 *   loss = sum over tokens of g . y, and the balance loss
 */
#ifndef MIMO_TESTS_WHOLE_MOE_H
#define MIMO_TESTS_WHOLE_MOE_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* S tokens of at most B samples, H, F, width of the shared expert, experts, choices, rank of the
 * adapters. */
enum { S = 6, B = 8, TOKENS = S * B, H = 4, F = 4, SHARED = 4, EXPERTS = 24, CHOICES = 3, LOW = 2 };

typedef enum whole_rule { WHOLE_CHOSEN, WHOLE_ALL, WHOLE_SIGMOID } whole_rule;

/* W1 [F, H], b1 [F], W2 [H, F], b2 [H], and adapters: W + s B A. */
typedef struct whole_mlp {
    double up[F * H], up_bias[F], down[H * F], down_bias[H];
    double up_a[LOW * H], up_b[F * LOW], down_a[LOW * F], down_b[H * LOW];
} whole_mlp;

/* What has a gradient. */
typedef struct whole_values {
    double router[EXPERTS * H];
    whole_mlp expert[EXPERTS], shared;
    double x[TOKENS * H];
} whole_values;

typedef struct whole_moe {
    whole_values at;
    double bias[EXPERTS], g[TOKENS * H];
    whole_rule rule;
    double scale, balance, adapter_scale;
    bool has_shared;
    int samples; /* at most B */
    bool masked[TOKENS];
    int choice[TOKENS][CHOICES]; /* of a masked token -1 */
    int count[B][EXPERTS];       /* of each sample */
} whole_moe;

/* Token s of sample b. */
static inline int whole_token(int s, int b)
{
    return s * B + b;
}

static inline double whole_dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ------------------------------------------ router ------------------------------------------- */

static inline void whole_scores(double s[EXPERTS], const whole_moe *moe, int token)
{
    for (int e = 0; e < EXPERTS; e++) {
        double logit = whole_dot(moe->at.router + e * H, moe->at.x + token * H, H);
        s[e] = moe->rule == WHOLE_SIGMOID ? 1 / (1 + exp(-logit)) : exp(logit);
    }
}

static inline void whole_choose(whole_moe *moe, int token)
{
    double s[EXPERTS];
    whole_scores(s, moe, token);
    for (int e = 0; e < EXPERTS; e++)
        s[e] += moe->bias[e];
    for (int j = 0; j < CHOICES; j++) {
        int best = 0;
        moe->choice[token][j] = -1;
        if (moe->masked[token])
            continue;
        for (int e = 1; e < EXPERTS; e++)
            if (s[e] > s[best])
                best = e;
        moe->choice[token][j] = best;
        moe->count[token % B][best]++;
        s[best] = -1e9;
    }
}

static inline double whole_weight(const whole_moe *moe, int token, int j)
{
    double s[EXPERTS], sum = 0;
    whole_scores(s, moe, token);
    for (int e = 0; e < EXPERTS && moe->rule == WHOLE_ALL; e++)
        sum += s[e];
    for (int i = 0; i < CHOICES && moe->rule != WHOLE_ALL; i++)
        sum += s[moe->choice[token][i]];
    return moe->scale * s[moe->choice[token][j]] / sum;
}

static inline double whole_balance(const whole_moe *moe, int token)
{
    double s[EXPERTS], all = 0, sum = 0, chosen = 0;
    whole_scores(s, moe, token);
    if (moe->masked[token])
        return 0;
    for (int e = 0; e < EXPERTS; e++) {
        all += s[e];
        chosen += moe->count[token % B][e];
    }
    for (int e = 0; e < EXPERTS; e++)
        sum += moe->count[token % B][e] / chosen * s[e] / all;
    return moe->balance * EXPERTS * sum;
}

/* ------------------------------------------ experts ------------------------------------------ */

static inline void whole_mlp_of(double y[H], const whole_mlp *mlp, const double *x, double s)
{
    double low[LOW], a[F];
    for (int r = 0; r < LOW; r++)
        low[r] = s * whole_dot(mlp->up_a + r * H, x, H);
    for (int f = 0; f < F; f++) {
        double u = whole_dot(mlp->up + f * H, x, H) + whole_dot(mlp->up_b + f * LOW, low, LOW) +
                   mlp->up_bias[f];
        a[f] = 0.5 * u * (1 + tanh(sqrt(2 / acos(-1.0)) * (u + 0.044715 * u * u * u)));
    }
    for (int r = 0; r < LOW; r++)
        low[r] = s * whole_dot(mlp->down_a + r * F, a, F);
    for (int h = 0; h < H; h++)
        y[h] = whole_dot(mlp->down + h * F, a, F) + whole_dot(mlp->down_b + h * LOW, low, LOW) +
               mlp->down_bias[h];
}

static inline void whole_output(double y[H], const whole_moe *moe, int token)
{
    double one[H];
    const double *x = moe->at.x + token * H;
    memset(y, 0, H * sizeof *y);
    if (moe->has_shared)
        whole_mlp_of(y, &moe->at.shared, x, moe->adapter_scale);
    for (int j = 0; j < CHOICES && !moe->masked[token]; j++) {
        double w = whole_weight(moe, token, j);
        whole_mlp_of(one, &moe->at.expert[moe->choice[token][j]], x, moe->adapter_scale);
        for (int h = 0; h < H; h++)
            y[h] += w * one[h];
    }
}

static inline double whole_loss_of(const whole_moe *moe, int token)
{
    double y[H];
    whole_output(y, moe, token);
    return whole_dot(y, moe->g + token * H, H) + whole_balance(moe, token);
}

static inline void whole_begin(whole_moe *moe)
{
    memset(moe->count, 0, sizeof moe->count);
    for (int token = 0; token < TOKENS; token++)
        if (token % B < moe->samples)
            whole_choose(moe, token);
}

/* Whether a value concerns a token: its own row, an expert that it chose, the router or the shared
 * expert. */
static inline bool whole_concerns(const whole_moe *moe, const double *value, int token)
{
    const whole_values *at = &moe->at;
    bool chosen = false;
    if (value >= at->x)
        return (value - at->x) / H == token;
    for (int j = 0; j < CHOICES && !moe->masked[token]; j++) {
        const double *expert = at->expert[moe->choice[token][j]].up;
        chosen = chosen || (value >= expert && value < expert + sizeof(whole_mlp) / sizeof(double));
    }
    return chosen || value < at->expert[0].up || value >= at->shared.up;
}

/* The derivative of the loss by a value of `at`. */
static inline double whole_gradient(whole_moe *moe, double *value)
{
    static const double factors[] = {1. / 12, -8. / 12, 0, 8. / 12, -1. / 12};
    const double step = 1e-3, at = *value;
    double sum = 0;
    for (int token = 0; token < TOKENS; token++)
        for (int i = 0; i < 5 && token % B < moe->samples; i++) {
            *value = at + (i - 2) * step;
            if (i != 2 && whole_concerns(moe, value, token))
                sum += factors[i] * whole_loss_of(moe, token);
        }
    *value = at;
    return sum / step;
}

#endif

#include "ref_moe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref_table.h"

void ref_moe_reserve(ref_moe *moe, int64_t rows)
{
    int64_t choices = rows * moe->top_k;
    moe->up = calloc((size_t)moe->experts, sizeof *moe->up);
    moe->down = calloc((size_t)moe->experts, sizeof *moe->down);
    moe->order = ref_room(moe->experts);
    moe->share = ref_room(moe->experts);
    moe->scores = ref_room(rows * moe->experts);
    moe->live = ref_room(choices);
    moe->margins = ref_room(rows);
    moe->ids = ref_room(choices);
    moe->weights = ref_room(choices);
    moe->losses = ref_room(rows);
    moe->activated = ref_room(choices * moe->inner);
    moe->y = ref_room(rows * moe->hidden);
}

void ref_moe_free(ref_moe *moe)
{
    double *rooms[] = {moe->order, moe->share,   moe->scores, moe->live,      moe->margins,
                       moe->ids,   moe->weights, moe->losses, moe->activated, moe->y};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        free(rooms[i]);
    free(moe->up);
    free(moe->down);
}

/* ------------------------------------------ router ------------------------------------------- */

static void score(const ref_moe *moe, double *scores, const double *x)
{
    for (int64_t e = 0; e < moe->experts; e++) {
        scores[e] = 0;
        for (int64_t h = 0; h < moe->hidden; h++)
            scores[e] += moe->router.value[e * moe->hidden + h] * x[h];
    }
}

static bool is_among(const double *ids, int64_t count, int64_t e)
{
    for (int64_t j = 0; j < count; j++)
        if ((int64_t)ids[j] == e)
            return true;
    return false;
}

/* All experts, by logit, of equals the lower id first. */
static void sort_experts(const ref_moe *moe, const double *scores)
{
    for (int64_t j = 0; j < moe->experts; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < moe->experts; e++)
            if (!is_among(moe->order, j, e) && (best < 0 || scores[e] > scores[best]))
                best = e;
        moe->order[j] = (double)best;
    }
}

static double margin_of(const ref_moe *moe, const double *scores)
{
    double largest = 0;
    if (moe->top_k == moe->experts)
        return INFINITY;
    for (int64_t e = 0; e < moe->experts; e++)
        largest = fmax(largest, fabs(scores[e]));
    int64_t last = (int64_t)moe->order[moe->top_k - 1], next = (int64_t)moe->order[moe->top_k];
    return (scores[last] - scores[next]) / largest;
}

static void choose(const ref_moe *moe, const double *x, int64_t row)
{
    int64_t k = moe->top_k, token = moe->first + row, kept = 0;
    double *scores = moe->scores + row * moe->experts, *ids = moe->ids + row * k, sum = 0;
    bool others = moe->others_every > 0 && token % moe->others_every == 0;
    score(moe, scores, x);
    sort_experts(moe, scores);
    for (int64_t e = 0; e < moe->experts; e++)
        if (is_among(moe->order, k, e))
            moe->live[row * k + kept++] = (double)e;
    moe->margins[row] = margin_of(moe, scores);
    for (int64_t j = 0; j < k; j++) {
        ids[j] = moe->order[(j + (others ? k : 0)) % moe->experts];
        sum += exp(scores[(int64_t)ids[j]]);
    }
    for (int64_t j = 0; j < k; j++)
        moe->weights[row * k + j] = exp(scores[(int64_t)ids[j]]) / sum;
}

/* dx and the router's gradient get what the gradient d of one logit brings. */
static void logit_backward(const ref_moe *moe, double *dx, double d, const double *x, int64_t e)
{
    for (int64_t h = 0; h < moe->hidden; h++) {
        dx[h] += d * moe->router.value[e * moe->hidden + h];
        moe->router.grad[e * moe->hidden + h] += d * x[h];
    }
}

/* From what the weights' gradients dw bring. */
static void choose_backward(const ref_moe *moe, double *dx, const double *dw, const double *x,
                            int64_t row)
{
    const double *ids = moe->ids + row * moe->top_k, *weights = moe->weights + row * moe->top_k;
    double mean = 0;
    for (int64_t j = 0; j < moe->top_k; j++)
        mean += weights[j] * dw[j];
    for (int64_t j = 0; j < moe->top_k; j++)
        logit_backward(moe, dx, weights[j] * (dw[j] - mean), x, (int64_t)ids[j]);
}

/* ------------------------------------------ balance ------------------------------------------ */

/* An expert's score as a part of all scores. */
static double part_of(const ref_moe *moe, int64_t row, int64_t expert)
{
    const double *scores = moe->scores + row * moe->experts;
    double sum = 0;
    for (int64_t e = 0; e < moe->experts; e++)
        sum += exp(scores[e]);
    return exp(scores[expert]) / sum;
}

static double mean_share(const ref_moe *moe, int64_t row)
{
    double sum = 0;
    for (int64_t e = 0; e < moe->experts; e++)
        sum += moe->share[e] * part_of(moe, row, e);
    return sum;
}

static void balance(const ref_moe *moe, int64_t rows)
{
    for (int64_t e = 0; e < moe->experts; e++)
        moe->share[e] = 0;
    for (int64_t i = 0; i < rows * moe->top_k; i++)
        moe->share[(int64_t)moe->ids[i]] += 1.0 / (double)(rows * moe->top_k);
    for (int64_t i = 0; i < rows; i++)
        moe->losses[i] = moe->balance * (double)moe->experts * mean_share(moe, i);
}

static void balance_backward(const ref_moe *moe, double *dx, const double *x, int64_t row)
{
    double mean = mean_share(moe, row);
    for (int64_t e = 0; e < moe->experts; e++)
        logit_backward(moe, dx,
                       moe->balance * (double)moe->experts * part_of(moe, row, e) *
                           (moe->share[e] - mean),
                       x, e);
}

/* ------------------------------------------ experts ------------------------------------------ */

/* What one expert computes for one token: two rows of `inner`, and three of H. */
typedef struct expert_room {
    double *u, *d;
    double *y, *dy, *dx;
} expert_room;

static expert_room room_of(const ref_moe *moe)
{
    return (expert_room){ref_room(moe->inner), ref_room(moe->inner), ref_room(moe->hidden),
                         ref_room(moe->hidden), ref_room(moe->hidden)};
}

static void free_room(expert_room *room)
{
    double *rooms[] = {room->u, room->d, room->y, room->dy, room->dx};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        free(rooms[i]);
}

static double *activated_of(const ref_moe *moe, int64_t choice)
{
    return moe->activated + choice * moe->inner;
}

/* `choice` is one of all rows. */
static void run_expert(const ref_moe *moe, expert_room *room, int64_t choice, const double *x)
{
    int64_t e = (int64_t)moe->ids[choice];
    ref_linear_forward(&moe->up[e], room->u, x, 1);
    for (int64_t f = 0; f < moe->inner; f++)
        activated_of(moe, choice)[f] = ref_gelu(room->u[f]);
    ref_linear_forward(&moe->down[e], room->y, activated_of(moe, choice), 1);
}

void ref_moe_forward(const ref_moe *moe, double *y, const double *x, int64_t rows)
{
    expert_room room = room_of(moe);
    int64_t hidden = moe->hidden, k = moe->top_k;
    for (int64_t i = 0; i < rows; i++) {
        choose(moe, x + i * hidden, i);
        for (int64_t h = 0; h < hidden; h++)
            moe->y[i * hidden + h] = 0;
        for (int64_t j = 0; j < k; j++) {
            run_expert(moe, &room, i * k + j, x + i * hidden);
            for (int64_t h = 0; h < hidden; h++)
                moe->y[i * hidden + h] += moe->weights[i * k + j] * room.y[h];
        }
    }
    balance(moe, rows);
    memcpy(y, moe->y, (size_t)(rows * hidden) * sizeof *y);
    free_room(&room);
}

/* From room->dy, the gradient of the expert's result, to room->dx. */
static void expert_backward(const ref_moe *moe, expert_room *room, int64_t choice, const double *x)
{
    int64_t e = (int64_t)moe->ids[choice];
    ref_linear_backward(&moe->down[e], room->d, room->dy, activated_of(moe, choice), 1);
    for (int64_t f = 0; f < moe->inner; f++)
        room->d[f] *= ref_gelu_slope(room->u[f]);
    ref_linear_backward(&moe->up[e], room->dx, room->d, x, 1);
}

/* Choice j of row i: dx gets its part of the gradient of x. The gradient of the weight. */
static double choice_backward(const ref_moe *moe, expert_room *room, double *dx, const double *dy,
                              const double *x, int64_t choice)
{
    double dw = 0;
    run_expert(moe, room, choice, x);
    for (int64_t h = 0; h < moe->hidden; h++) {
        dw += dy[h] * room->y[h];
        room->dy[h] = moe->weights[choice] * dy[h];
    }
    expert_backward(moe, room, choice, x);
    for (int64_t h = 0; h < moe->hidden; h++)
        dx[h] += room->dx[h];
    return dw;
}

void ref_moe_backward(const ref_moe *moe, double *dx, const double *dy, const double *x,
                      int64_t rows)
{
    expert_room room = room_of(moe);
    int64_t hidden = moe->hidden, k = moe->top_k;
    double *dw = ref_room(k);
    for (int64_t i = 0; i < rows; i++, x += hidden, dy += hidden, dx += hidden) {
        for (int64_t h = 0; h < hidden; h++)
            dx[h] = 0;
        for (int64_t j = 0; j < k; j++)
            dw[j] = choice_backward(moe, &room, dx, dy, x, i * k + j);
        choose_backward(moe, dx, dw, x, i);
        balance_backward(moe, dx, x, i);
    }
    free(dw);
    free_room(&room);
}

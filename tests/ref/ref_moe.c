#include "ref_moe.h"

#include <math.h>
#include <stdlib.h>

#include "ref_table.h"

void ref_moe_reserve(ref_moe *moe, int64_t rows)
{
    moe->up = calloc((size_t)moe->experts, sizeof *moe->up);
    moe->down = calloc((size_t)moe->experts, sizeof *moe->down);
    moe->ids = ref_room(rows * moe->top_k);
    moe->weights = ref_room(rows * moe->top_k);
}

void ref_moe_free(ref_moe *moe)
{
    free(moe->up);
    free(moe->down);
    free(moe->ids);
    free(moe->weights);
}

/* ------------------------------------------ router ------------------------------------------- */

static double logit(const ref_moe *moe, const double *x, int64_t e)
{
    double sum = 0;
    for (int64_t h = 0; h < moe->hidden; h++)
        sum += moe->router.value[e * moe->hidden + h] * x[h];
    return sum;
}

static bool is_chosen(const double *ids, int64_t count, int64_t e)
{
    for (int64_t j = 0; j < count; j++)
        if ((int64_t)ids[j] == e)
            return true;
    return false;
}

static void choose(const ref_moe *moe, double *ids, double *weights, const double *x)
{
    double sum = 0;
    for (int64_t j = 0; j < moe->top_k; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < moe->experts; e++)
            if (!is_chosen(ids, j, e) && (best < 0 || logit(moe, x, e) > logit(moe, x, best)))
                best = e;
        ids[j] = (double)best;
        weights[j] = exp(logit(moe, x, best));
        sum += weights[j];
    }
    for (int64_t j = 0; j < moe->top_k; j++)
        weights[j] /= sum;
}

/* dx and the router's gradient get what the weights' gradients dw bring. */
static void choose_backward(const ref_moe *moe, double *dx, const double *dw, const double *x,
                            int64_t row)
{
    const double *ids = moe->ids + row * moe->top_k, *weights = moe->weights + row * moe->top_k;
    double mean = 0;
    for (int64_t j = 0; j < moe->top_k; j++)
        mean += weights[j] * dw[j];
    for (int64_t j = 0; j < moe->top_k; j++) {
        double d = weights[j] * (dw[j] - mean);
        int64_t first = (int64_t)ids[j] * moe->hidden;
        for (int64_t h = 0; h < moe->hidden; h++) {
            dx[h] += d * moe->router.value[first + h];
            moe->router.grad[first + h] += d * x[h];
        }
    }
}

/* ------------------------------------------ experts ------------------------------------------ */

/* What one expert computes for one token: three rows of `inner`, and three of H. */
typedef struct expert_room {
    double *u, *activated, *d;
    double *y, *dy, *dx;
} expert_room;

static expert_room room_of(const ref_moe *moe)
{
    return (expert_room){ref_room(moe->inner),  ref_room(moe->inner),  ref_room(moe->inner),
                         ref_room(moe->hidden), ref_room(moe->hidden), ref_room(moe->hidden)};
}

static void free_room(expert_room *room)
{
    double *rooms[] = {room->u, room->activated, room->d, room->y, room->dy, room->dx};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        free(rooms[i]);
}

static void run_expert(const ref_moe *moe, expert_room *room, int64_t e, const double *x)
{
    ref_linear_forward(&moe->up[e], room->u, x, 1);
    for (int64_t f = 0; f < moe->inner; f++)
        room->activated[f] = ref_gelu(room->u[f]);
    ref_linear_forward(&moe->down[e], room->y, room->activated, 1);
}

void ref_moe_forward(const ref_moe *moe, double *y, const double *x, int64_t rows)
{
    expert_room room = room_of(moe);
    int64_t hidden = moe->hidden, k = moe->top_k;
    for (int64_t i = 0; i < rows; i++) {
        choose(moe, moe->ids + i * k, moe->weights + i * k, x + i * hidden);
        for (int64_t h = 0; h < hidden; h++)
            y[i * hidden + h] = 0;
        for (int64_t j = 0; j < k; j++) {
            run_expert(moe, &room, (int64_t)moe->ids[i * k + j], x + i * hidden);
            for (int64_t h = 0; h < hidden; h++)
                y[i * hidden + h] += moe->weights[i * k + j] * room.y[h];
        }
    }
    free_room(&room);
}

/* From room->dy, the gradient of the expert's result, to room->dx. */
static void expert_backward(const ref_moe *moe, expert_room *room, int64_t e, const double *x)
{
    ref_linear_backward(&moe->down[e], room->d, room->dy, room->activated, 1);
    for (int64_t f = 0; f < moe->inner; f++)
        room->d[f] *= ref_gelu_slope(room->u[f]);
    ref_linear_backward(&moe->up[e], room->dx, room->d, x, 1);
}

/* Choice j of row i: dx gets its part of the gradient of x. The gradient of the weight. */
static double choice_backward(const ref_moe *moe, expert_room *room, double *dx, const double *dy,
                              const double *x, int64_t choice)
{
    int64_t e = (int64_t)moe->ids[choice];
    double dw = 0;
    run_expert(moe, room, e, x);
    for (int64_t h = 0; h < moe->hidden; h++) {
        dw += dy[h] * room->y[h];
        room->dy[h] = moe->weights[choice] * dy[h];
    }
    expert_backward(moe, room, e, x);
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
    }
    free(dw);
    free_room(&room);
}

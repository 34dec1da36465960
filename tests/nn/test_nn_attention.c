/* Attention and the block, against finite differences and against a dense loop that shares no code
 * with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "nn_gradient_check.h"

enum { S = 6, B = 2, HIDDEN = 8, HEADS = 2, DH = HIDDEN / HEADS, N = S * B };

static const int64_t shuffled[S] = {0, 5, 1, 4, 9, 2};

typedef struct subject {
    nn_attention attention;
    nn_attention_saved attention_saved;
    nn_block block;
    nn_block_saved block_saved;
    nn_room room; /* of one of the two */
    nn_sequence sequence;
    nn_params *params;
    nn_real *x; /* of the last forward of the block */
} subject;

static void make_sequence(nn_sequence *sequence, bool causal, const int64_t *positions)
{
    nn_sequence_desc desc = {NULL, causal, S, B, positions, nn_test_runtime(), 0};
    SUCCEEDS(nn_sequence_init(sequence, &desc));
}

static void make_attention(subject *s, bool causal, const int64_t *positions)
{
    memset(s, 0, sizeof *s);
    s->params = nn_test_store(0, 1);
    nn_attention_desc desc = {.name = "attention",
                              .hidden = HIDDEN,
                              .heads = HEADS,
                              .max_rows = S + 1,
                              .max_batch = B + 1,
                              .max_parts = 0,
                              .std = 0.1,
                              .out_std = 0.1};
    SUCCEEDS(nn_attention_init(&s->attention, s->params, NULL, &desc));
    SUCCEEDS(nn_params_seal(s->params));
    NN_TEST_PLACE(s->room, nn_attention_saved_take(&s->attention_saved, &s->attention, &s->room));
    make_sequence(&s->sequence, causal, positions);
}

static void make_block(subject *s, bool causal, const int64_t *positions)
{
    memset(s, 0, sizeof *s);
    s->params = nn_test_store(0, 1);
    nn_block_desc desc = {.name = "block",
                          .hidden = HIDDEN,
                          .heads = HEADS,
                          .inner = 12,
                          .max_rows = S,
                          .max_batch = B,
                          .max_parts = 0,
                          .std = 0.1,
                          .out_std = 0.1};
    SUCCEEDS(nn_block_init(&s->block, s->params, NULL, &desc));
    SUCCEEDS(nn_params_seal(s->params));
    NN_TEST_PLACE(s->room, nn_block_saved_take(&s->block_saved, &s->block, &s->room));
    make_sequence(&s->sequence, causal, positions);
}

static void discard(subject *s)
{
    nn_attention_release(&s->attention);
    nn_block_release(&s->block);
    nn_room_release(&s->room);
    nn_sequence_release(&s->sequence);
    nn_params_destroy(s->params);
}

static mimo_status attention_forward(void *layer, nn_real *y, const nn_real *x)
{
    subject *s = layer;
    return nn_attention_forward(&s->attention, &s->attention_saved, y, x, &s->sequence);
}

static mimo_status attention_backward(void *layer, nn_real *dx, nn_real *dy)
{
    subject *s = layer;
    SUCCEEDS(nn_attention_backward_input(&s->attention, &s->attention_saved, dx, dy));
    return nn_attention_backward_params(&s->attention, &s->attention_saved);
}

static mimo_status block_forward(void *layer, nn_real *y, const nn_real *x)
{
    subject *s = layer;
    s->x = (nn_real *)(uintptr_t)x;
    return nn_block_forward(&s->block, &s->block_saved, y, x, &s->sequence);
}

/* In place: dx may be x. The check goes on with x, so it gets it back. */
static mimo_status block_backward(void *layer, nn_real *dx, nn_real *dy)
{
    subject *s = layer;
    static nn_real x[N * HIDDEN], d[N * HIDDEN];
    nn_test_read(x, s->x, N * HIDDEN);
    SUCCEEDS(nn_block_backward_input(&s->block, &s->block_saved, s->x, dy));
    SUCCEEDS(nn_block_backward_params(&s->block, &s->block_saved));
    nn_test_read(d, s->x, N * HIDDEN);
    nn_test_write(dx, d, N * HIDDEN);
    nn_test_write(s->x, x, N * HIDDEN);
    return MIMO_OK;
}

Test(nn_attention, gradients)
{
    static const int64_t *const positions[] = {NULL, shuffled};
    for (int causal = 0; causal < 2; causal++)
        for (int p = 0; p < 2; p++) {
            subject s;
            make_attention(&s, causal == 1, positions[p]);
            nn_case c = {"attention",       &s, s.params, N * HIDDEN, N * HIDDEN, attention_forward,
                         attention_backward};
            nn_check_gradients(&c);
            discard(&s);
        }
}

Test(nn_block, gradients)
{
    for (int causal = 0; causal < 2; causal++) {
        subject s;
        make_block(&s, causal == 1, shuffled);
        nn_case c = {"block", &s, s.params, N * HIDDEN, N * HIDDEN, block_forward, block_backward};
        nn_check_gradients(&c);
        discard(&s);
    }
}

typedef struct dense_weights {
    nn_real qkv[3 * HIDDEN * HIDDEN], qkv_bias[3 * HIDDEN], out[HIDDEN * HIDDEN], out_bias[HIDDEN];
} dense_weights;

/* Random weights, here and in the layer. */
static void set_weights(dense_weights *w, nn_params *params)
{
    nn_real *const parts[] = {w->qkv, w->qkv_bias, w->out, w->out_bias};
    for (int i = 0; i < 4; i++) {
        nn_test_fill(parts[i], nn_params_at(params, i)->count, "w");
        SUCCEEDS(nn_params_write(params, i, NN_VALUE, parts[i]));
    }
}

/* Computes y of x, in rooms. */
static void forward(subject *s, nn_real *y, const nn_real *x, int64_t n)
{
    nn_real *room = nn_test_room(n);
    SUCCEEDS(nn_attention_forward(&s->attention, &s->attention_saved, room, nn_test_sent(x, n),
                                  &s->sequence));
    nn_test_read(y, room, n);
    nn_test_free_rooms();
}

static double affine(const nn_real *weight, const nn_real *bias, const nn_real *x, int64_t row)
{
    double sum = (double)bias[row];
    for (int k = 0; k < HIDDEN; k++)
        sum += (double)weight[row * HIDDEN + k] * (double)x[k];
    return sum;
}

/* which: 0 query, 1 key, 2 value, of the token at `row`. */
static double projected(const dense_weights *w, const nn_real *x, int row, int head, int which,
                        int d)
{
    return affine(w->qkv, w->qkv_bias, x + row * HIDDEN, (head * 3 + which) * DH + d);
}

/* The context of one token and head, by its definition. */
static void dense_context(double *context, const dense_weights *w, const nn_real *x, int row,
                          int head, bool causal)
{
    double weight[S], total = 0;
    int b = row % B;
    for (int k = 0; k < S; k++) {
        double score = 0;
        for (int d = 0; d < DH; d++)
            score += projected(w, x, row, head, 0, d) * projected(w, x, k * B + b, head, 1, d);
        bool seen = !causal || shuffled[k] <= shuffled[row / B];
        weight[k] = seen ? exp(score / sqrt(DH)) : 0;
        total += weight[k];
    }
    for (int d = 0; d < DH; d++) {
        context[head * DH + d] = 0;
        for (int k = 0; k < S; k++)
            context[head * DH + d] += weight[k] / total * projected(w, x, k * B + b, head, 2, d);
    }
}

Test(nn_attention, equals_a_dense_loop_at_shuffled_positions)
{
    for (int causal = 0; causal < 2; causal++) {
        subject s;
        make_attention(&s, causal == 1, shuffled);
        nn_real x[N * HIDDEN], y[N * HIDDEN];
        dense_weights w;
        set_weights(&w, s.params);
        nn_test_fill(x, N * HIDDEN, "x");
        forward(&s, y, x, N * HIDDEN);
        for (int i = 0; i < N; i++) {
            double context[HIDDEN];
            for (int head = 0; head < HEADS; head++)
                dense_context(context, &w, x, i, head, causal == 1);
            for (int o = 0; o < HIDDEN; o++) {
                double expected = (double)w.out_bias[o];
                for (int k = 0; k < HIDDEN; k++)
                    expected += (double)w.out[o * HIDDEN + k] * context[k];
                cr_assert_float_eq((double)y[i * HIDDEN + o], expected, 1e-10,
                                   "causal %d, row %d, column %d: %g, dense %g", causal, i, o,
                                   (double)y[i * HIDDEN + o], expected);
            }
        }
        discard(&s);
    }
}

Test(nn_attention, later_tokens_leave_earlier_ones_alone)
{
    subject s;
    make_attention(&s, true, shuffled);
    nn_real x[N * HIDDEN], before[N * HIDDEN], after[N * HIDDEN];
    nn_test_fill(x, N * HIDDEN, "x");
    forward(&s, before, x, N * HIDDEN);
    for (int k = 0; k < B * HIDDEN; k++)
        x[3 * B * HIDDEN + k] += 1; /* local row 3 is position 4 */
    forward(&s, after, x, N * HIDDEN);
    for (int i = 0; i < S; i++) {
        bool same = memcmp(before + i * B * HIDDEN, after + i * B * HIDDEN,
                           sizeof(nn_real) * B * HIDDEN) == 0;
        cr_assert_eq(same, shuffled[i] < 4, "position %lld", (long long)shuffled[i]);
    }
    discard(&s);
}

/* Rooms are upper limits: a smaller batch gives the same rows as in rooms of its own size. */
Test(nn_attention, takes_a_smaller_batch)
{
    subject s;
    make_attention(&s, true, shuffled);
    nn_real x[N * HIDDEN], y[N * HIDDEN], one[S * HIDDEN], y_one[S * HIDDEN];
    nn_test_fill(x, N * HIDDEN, "x");
    forward(&s, y, x, N * HIDDEN);
    for (int i = 0; i < S; i++)
        memcpy(one + i * HIDDEN, x + (i * B + 1) * HIDDEN, sizeof(nn_real) * HIDDEN);
    s.sequence.batch = 1;
    forward(&s, y_one, one, S * HIDDEN);
    for (int i = 0; i < S; i++)
        for (int k = 0; k < HIDDEN; k++)
            cr_assert_float_eq((double)y_one[i * HIDDEN + k], (double)y[(i * B + 1) * HIDDEN + k],
                               1e-12, "row %d", i);
    s.sequence.batch = B + 2;
    FAILS(nn_attention_forward(&s.attention, &s.attention_saved, y, x, &s.sequence), MIMO_ERR_SHAPE,
          "6 rows, batch 4, cp 1, made for 7, 3, 1");
    discard(&s);
}

Test(nn_attention, refuses)
{
    nn_params *params = nn_test_store(0, 1);
    nn_attention layer = {0};
    nn_attention_desc desc = {.name = "attention",
                              .hidden = 8,
                              .heads = 3,
                              .max_rows = S,
                              .max_batch = B,
                              .max_parts = 0,
                              .std = 0.1,
                              .out_std = 0.1};
    FAILS(nn_attention_init(&layer, params, NULL, &desc), MIMO_ERR_ARGUMENT,
          "hidden 8 is not divisible by 3");
    desc.heads = 0;
    FAILS(nn_attention_init(&layer, params, NULL, &desc), MIMO_ERR_ARGUMENT, "heads is 0");
    nn_real x[1];
    nn_attention_saved saved = {0};
    FAILS(nn_attention_backward_input(&layer, &saved, x, x), MIMO_ERR_STATE, "before forward");
    nn_params_destroy(params);
}

Test(nn_sequence, refuses)
{
    nn_sequence sequence = {0};
    static const int64_t twice[] = {0, 3, 3}, negative[] = {0, -2, 1};
    nn_sequence_desc desc = {NULL, true, 3, 1, twice, nn_test_runtime(), 0};
    FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_ARGUMENT,
          "position 3 appears twice among 3");
    desc.positions = negative;
    FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_ARGUMENT, "positions[1] is -2");
    desc.rows = 0;
    FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_ARGUMENT, "rows is 0");
    cr_assert_null(sequence.positions);
}

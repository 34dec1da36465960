/* Cross-entropy and the greedy choice on one rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn_gradient_check.h"

enum { ROWS = 5, V = 11 };

typedef struct subject {
    nn_loss loss;
    nn_loss_saved saved;
    nn_room room;
} subject;

static void make(subject *s, int64_t rows)
{
    memset(s, 0, sizeof *s);
    SUCCEEDS(nn_loss_init(&s->loss, nn_test_runtime(), NULL, V, rows));
    NN_TEST_PLACE(s->room, nn_loss_saved_take(&s->saved, &s->loss, &s->room));
}

static void discard(subject *s)
{
    nn_loss_release(&s->loss);
    nn_room_release(&s->room);
}

static const int64_t labels[ROWS] = {3, NN_IGNORE, 0, 10, NN_IGNORE};

static mimo_status loss_forward(void *layer, nn_real *y, const nn_real *x)
{
    double sum = 0;
    int64_t tokens;
    subject *s = layer;
    mimo_status status = nn_loss_forward(&s->loss, &s->saved, x, labels, ROWS);
    if (status == MIMO_OK)
        status = nn_loss_read(&s->loss, &sum, &tokens);
    nn_real number = (nn_real)sum;
    nn_test_write(y, &number, 1);
    return status;
}

static mimo_status loss_backward(void *layer, nn_real *dx, nn_real *dy)
{
    nn_real factor, d[ROWS * V];
    subject *s = layer;
    mimo_status status = nn_loss_backward_input(&s->loss, &s->saved, dx);
    nn_test_read(&factor, dy, 1);
    nn_test_read(d, dx, ROWS * V);
    for (int i = 0; i < ROWS * V; i++)
        d[i] *= factor;
    nn_test_write(dx, d, ROWS * V);
    return status;
}

Test(nn_loss, gradients)
{
    nn_params *params = nn_test_store(0, 1);
    subject s;
    make(&s, ROWS);
    nn_case c = {"loss", &s, params, ROWS * V, 1, loss_forward, loss_backward};
    nn_check_gradients(&c);
    discard(&s);
    nn_params_destroy(params);
}

Test(nn_loss, equals_the_definition_and_skips_ignored_rows)
{
    subject s;
    make(&s, ROWS);
    nn_real logits[ROWS * V];
    double sum, expected = 0;
    int64_t tokens;
    nn_test_fill(logits, ROWS * V, "logits");
    logits[2 * V + 4] = 300; /* exp would overflow f32 unless the maximum is subtracted first */
    for (int j = 0; j < V; j++)
        logits[V + j] = NAN; /* an ignored row is not even read */
    nn_real *room = nn_test_sent(logits, ROWS * V);
    double losses[ROWS];
    SUCCEEDS(nn_loss_forward(&s.loss, &s.saved, room, labels, ROWS));
    SUCCEEDS(nn_loss_read_rows(&s.loss, &s.saved, losses));
    SUCCEEDS(nn_loss_read(&s.loss, &sum, &tokens));
    for (int i = 0; i < ROWS; i++) {
        double total = 0, row = 0;
        if (labels[i] != NN_IGNORE) {
            for (int j = 0; j < V; j++)
                total += exp((double)(logits[i * V + j] - logits[i * V + labels[i]]));
            row = log(total);
        }
        cr_assert_float_eq(losses[i], row, 1e-10, "row %d: %g, %g", i, losses[i], row);
        expected += row;
    }
    cr_assert_float_eq(sum, expected, 1e-9);
    cr_assert_eq(tokens, 3);
    SUCCEEDS(nn_loss_backward_input(&s.loss, &s.saved, room)); /* in place */
    nn_test_read(logits, room, ROWS * V);
    for (int j = 0; j < V; j++)
        cr_assert(logits[V + j] == 0 && logits[4 * V + j] == 0, "ignored rows have no gradient");
    SUCCEEDS(nn_loss_forward(&s.loss, &s.saved, NULL, NULL, 0));
    SUCCEEDS(nn_loss_read(&s.loss, &sum, &tokens));
    cr_assert(sum == 0 && tokens == 0, "no rows: sum %g, %lld tokens", sum, (long long)tokens);
    nn_test_free_rooms();
    discard(&s);
}

/* The sums grow over micro-batches until they are read. */
Test(nn_loss, adds_up_between_reads)
{
    subject s;
    make(&s, ROWS);
    nn_real logits[ROWS * V];
    double once, twice;
    int64_t tokens;
    nn_test_fill(logits, ROWS * V, "logits");
    nn_real *room = nn_test_sent(logits, ROWS * V);
    SUCCEEDS(nn_loss_forward(&s.loss, &s.saved, room, labels, ROWS));
    SUCCEEDS(nn_loss_read(&s.loss, &once, &tokens));
    SUCCEEDS(nn_loss_forward(&s.loss, &s.saved, room, labels, ROWS));
    SUCCEEDS(nn_loss_forward(&s.loss, &s.saved, room, labels, ROWS));
    SUCCEEDS(nn_loss_read(&s.loss, &twice, &tokens));
    cr_assert_eq(twice, once + once, "%g, twice %g", once, twice);
    cr_assert_eq(tokens, 6);
    nn_test_free_rooms();
    discard(&s);
}

Test(nn_loss, argmax_takes_the_lowest_of_equals)
{
    subject s;
    make(&s, ROWS);
    nn_real logits[3 * V] = {0};
    int64_t ids[3];
    logits[7] = logits[9] = 2;
    for (int j = 0; j < V; j++)
        logits[V + j] = -3;
    logits[2 * V + 10] = (nn_real)0.5;
    SUCCEEDS(nn_loss_argmax(&s.loss, nn_test_sent(logits, 3 * V), 3, ids));
    nn_test_free_rooms();
    cr_assert(ids[0] == 7 && ids[1] == 0 && ids[2] == 10, "%lld %lld %lld", (long long)ids[0],
              (long long)ids[1], (long long)ids[2]);
    discard(&s);
}

Test(nn_loss, refuses)
{
    subject s = {0};
    nn_real logits[2 * V] = {0};
    int64_t wrong[2] = {1, 11};
    FAILS(nn_loss_init(&s.loss, nn_test_runtime(), NULL, 0, ROWS), MIMO_ERR_ARGUMENT,
          "vocabulary is 0");
    FAILS(nn_loss_backward_input(&s.loss, &s.saved, logits), MIMO_ERR_STATE, "before forward");
    make(&s, 2);
    FAILS(nn_loss_forward(&s.loss, &s.saved, logits, wrong, 2), MIMO_ERR_ARGUMENT,
          "labels[1] is 11, must be 0 to 10 or -100");
    FAILS(nn_loss_forward(&s.loss, &s.saved, logits, wrong, 3), MIMO_ERR_SHAPE,
          "3 rows, must be 0 to 2");
    FAILS(nn_loss_argmax(&s.loss, logits, 3, wrong), MIMO_ERR_SHAPE, "3 rows, must be 0 to 2");
    discard(&s);
}

/* Linear, norm, mlp, embeddings: backward against finite differences, and refused arguments. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "nn_gradient_check.h"

enum { ROWS = 5, IN = 6, OUT = 9 };

/* A layer with a saved state, and perhaps a store of its own. */
#define SUBJECT(kind)            \
    typedef struct kind##_pair { \
        nn_params *params;       \
        nn_##kind layer;         \
        nn_##kind##_saved saved; \
        nn_room room;            \
    } kind##_pair

SUBJECT(linear);
SUBJECT(norm);
SUBJECT(mlp);
SUBJECT(embedding);

#define PLACE(pair, kind) \
    NN_TEST_PLACE((pair).room, nn_##kind##_saved_take(&(pair).saved, &(pair).layer, &(pair).room))

#define RELEASE(pair, kind)                 \
    do {                                    \
        nn_##kind##_release(&(pair).layer); \
        nn_room_release(&(pair).room);      \
    } while (0)

/* A pair alone in a store; behind the kind stand the further arguments of nn_KIND_init. */
#define OPEN(pair, kind, ...)                                              \
    kind##_pair pair = {.params = nn_test_store(0, 1)};                    \
    SUCCEEDS(nn_##kind##_init(&(pair).layer, (pair).params, __VA_ARGS__)); \
    SUCCEEDS(nn_params_seal((pair).params));                               \
    PLACE(pair, kind)

#define CLOSE(pair, kind)                 \
    do {                                  \
        RELEASE(pair, kind);              \
        nn_params_destroy((pair).params); \
    } while (0)

static mimo_status linear_forward(void *layer, nn_real *y, const nn_real *x)
{
    linear_pair *p = layer;
    return nn_linear_forward(&p->layer, &p->saved, y, x, ROWS, 1);
}

static mimo_status linear_backward(void *layer, nn_real *dx, nn_real *dy)
{
    linear_pair *p = layer;
    return nn_linear_backward(&p->layer, &p->saved, dx, dy);
}

Test(nn_linear, gradients_of_every_split)
{
    for (int split = NN_SPLIT_NONE; split <= NN_SPLIT_ROWS; split++)
        for (int bias = 0; bias < 2; bias++) {
            nn_linear_desc desc = {.name = "linear",
                                   .in = IN,
                                   .out = OUT,
                                   .split = (nn_split)split,
                                   .bias = bias == 1,
                                   .std = 0.1};
            OPEN(p, linear, NULL, &desc);
            cr_assert_eq(nn_params_count(p.params), 1 + bias);
            nn_case c = {"linear",       &p, p.params, ROWS * IN, ROWS * OUT, linear_forward,
                         linear_backward};
            nn_check_gradients(&c);
            CLOSE(p, linear);
        }
}

Test(nn_linear, is_the_plain_sum)
{
    nn_linear_desc desc = {
        .name = "linear", .in = IN, .out = OUT, .split = NN_SPLIT_NONE, .bias = true, .std = 0.1};
    OPEN(p, linear, NULL, &desc);
    nn_real w[OUT * IN], b[OUT], x[ROWS * IN], y[ROWS * OUT];
    nn_test_fill(x, ROWS * IN, "x");
    nn_test_fill(b, OUT, "b");
    SUCCEEDS(nn_params_read(p.params, 0, NN_VALUE, w));
    SUCCEEDS(nn_params_write(p.params, 1, NN_VALUE, b));
    nn_real *y_room = nn_test_room(ROWS * OUT);
    SUCCEEDS(nn_linear_forward(&p.layer, &p.saved, y_room, nn_test_sent(x, ROWS * IN), ROWS, 1));
    nn_test_read(y, y_room, ROWS * OUT);
    for (int i = 0; i < ROWS; i++)
        for (int o = 0; o < OUT; o++) {
            double sum = (double)b[o];
            for (int k = 0; k < IN; k++)
                sum += (double)x[i * IN + k] * (double)w[o * IN + k];
            cr_assert_float_eq((double)y[i * OUT + o], sum, 1e-12, "y[%d][%d]", i, o);
        }
    nn_test_free_rooms();
    CLOSE(p, linear);
}

/* A rank may have no rows. Then nothing is read, and gradients stay as they are. */
Test(nn_linear, no_rows)
{
    nn_params *params = nn_test_store(0, 1);
    linear_pair linear = {0};
    norm_pair norm = {0};
    mlp_pair mlp = {0};
    embedding_pair embedding = {0};
    nn_linear_desc linear_desc = {
        .name = "linear", .in = IN, .out = OUT, .split = NN_SPLIT_ROWS, .bias = true, .std = 0.1};
    nn_mlp_desc mlp_desc = {
        .name = "mlp", .hidden = IN, .inner = 11, .max_rows = ROWS, .std = 0.1, .out_std = 0.1};
    nn_real number = 42, *room = nn_test_sent(&number, 1);
    SUCCEEDS(nn_linear_init(&linear.layer, params, NULL, &linear_desc));
    SUCCEEDS(nn_norm_init(&norm.layer, params, "norm", IN, ROWS, NN_REPLICATED));
    SUCCEEDS(nn_mlp_init(&mlp.layer, params, NULL, &mlp_desc));
    SUCCEEDS(nn_embedding_init(&embedding.layer, params,
                               &(nn_embedding_desc){"tokens", 3, IN, 0.1, NN_REPLICATED, ROWS}));
    SUCCEEDS(nn_params_seal(params));
    PLACE(linear, linear);
    PLACE(norm, norm);
    PLACE(mlp, mlp);
    PLACE(embedding, embedding);
    SUCCEEDS(nn_linear_forward(&linear.layer, &linear.saved, room, room, 0, 1));
    SUCCEEDS(nn_linear_backward(&linear.layer, &linear.saved, room, room));
    SUCCEEDS(nn_norm_forward(&norm.layer, &norm.saved, room, room, 0));
    SUCCEEDS(nn_norm_backward_input(&norm.layer, &norm.saved, room, room, NULL));
    SUCCEEDS(nn_mlp_forward(&mlp.layer, &mlp.saved, room, room, 0, 1));
    SUCCEEDS(nn_mlp_backward_input(&mlp.layer, &mlp.saved, room, room));
    SUCCEEDS(nn_mlp_backward_params(&mlp.layer, &mlp.saved));
    SUCCEEDS(nn_embedding_forward(&embedding.layer, &embedding.saved, room, NULL, 0));
    SUCCEEDS(nn_embedding_backward_params(&embedding.layer, &embedding.saved, room));
    nn_test_read(&number, room, 1);
    cr_assert_eq(number, 42);
    for (int i = 0; i < nn_params_count(params); i++) {
        nn_real grad[IN * 11];
        SUCCEEDS(nn_params_read(params, i, NN_GRAD, grad));
        for (int64_t j = 0; j < nn_params_at(params, i)->count; j++)
            cr_assert_eq(grad[j], 0);
    }
    nn_test_free_rooms();
    RELEASE(linear, linear);
    RELEASE(norm, norm);
    RELEASE(mlp, mlp);
    RELEASE(embedding, embedding);
    nn_params_destroy(params);
}

Test(nn_linear, refuses)
{
    nn_params *params = nn_test_store(1, 2);
    linear_pair p = {0};
    nn_linear_desc desc = {
        .name = "head", .in = 6, .out = 9, .split = NN_SPLIT_COLUMNS, .bias = true, .std = 0.1};
    FAILS(nn_linear_init(&p.layer, params, NULL, &desc), MIMO_ERR_ARGUMENT,
          "rank 0 of 1, the store is rank 1 of 2");
    nn_params_destroy(params);
    params = nn_test_store(0, 1);
    desc.out = 0;
    FAILS(nn_linear_init(&p.layer, params, NULL, &desc), MIMO_ERR_ARGUMENT, "out is 0");
    desc.out = 9;
    SUCCEEDS(nn_linear_init(&p.layer, params, NULL, &desc));
    FAILS(nn_linear_init(&p.layer, params, NULL, &desc), MIMO_ERR_EXISTS, "head.weight");
    nn_real x[6] = {0}, y[9];
    FAILS(nn_linear_forward(&p.layer, &p.saved, y, x, 1, 1), MIMO_ERR_STATE, "sealed");
    FAILS(nn_linear_backward(&p.layer, &p.saved, x, y), MIMO_ERR_STATE, "before forward");
    SUCCEEDS(nn_params_seal(params));
    PLACE(p, linear);
    FAILS(nn_linear_forward(&p.layer, &p.saved, y, x, -1, 1), MIMO_ERR_SHAPE, "-1 rows");
    desc.name = "other";
    FAILS(nn_linear_init(&p.layer, params, NULL, &desc), MIMO_ERR_STATE, "sealed");
    RELEASE(p, linear);
    nn_params_destroy(params);
}

static mimo_status norm_forward(void *layer, nn_real *y, const nn_real *x)
{
    norm_pair *p = layer;
    return nn_norm_forward(&p->layer, &p->saved, y, x, ROWS);
}

static mimo_status norm_backward(void *layer, nn_real *dx, nn_real *dy)
{
    norm_pair *p = layer;
    return nn_norm_backward_input(&p->layer, &p->saved, dx, dy, NULL);
}

Test(nn_norm, gradients)
{
    static const int64_t widths[] = {3, 8, 19};
    for (int w = 0; w < 3; w++) {
        OPEN(p, norm, "norm", widths[w], ROWS, NN_REPLICATED);
        nn_case c = {"norm",           &p,           p.params,     ROWS * widths[w],
                     ROWS * widths[w], norm_forward, norm_backward};
        nn_check_gradients(&c);
        CLOSE(p, norm);
    }
}

/* dx may be x, dy or the residual. */
Test(nn_norm, normalises_and_adds_the_residual_in_place)
{
    enum { W = 16 };
    OPEN(p, norm, "norm", W, 1, NN_REPLICATED);
    nn_real x[W], y[W], dy[W], apart[W], residual[W], together[W];
    nn_test_fill(x, W, "x");
    nn_test_fill(dy, W, "dy");
    nn_test_fill(residual, W, "residual");
    nn_real *x_room = nn_test_sent(x, W), *y_room = nn_test_room(W), *dy_room = nn_test_sent(dy, W);
    SUCCEEDS(nn_norm_forward(&p.layer, &p.saved, y_room, x_room, 1));
    nn_test_read(y, y_room, W);
    double sum = 0, squares = 0;
    for (int j = 0; j < W; j++) {
        sum += (double)y[j];
        squares += (double)y[j] * (double)y[j];
    }
    cr_assert_float_eq(sum, 0, 1e-12);
    cr_assert_float_eq(squares / W, 1, 1e-4, "variance %g", squares / W);
    SUCCEEDS(nn_norm_backward_input(&p.layer, &p.saved, y_room, dy_room, NULL));
    nn_test_read(apart, y_room, W);
    nn_real *residual_room = nn_test_sent(residual, W);
    nn_real *const in_place[] = {x_room, dy_room, residual_room};
    for (int i = 0; i < 3; i++) {
        nn_test_write(x_room, x, W);
        nn_test_write(dy_room, dy, W);
        nn_test_write(residual_room, residual, W);
        SUCCEEDS(nn_norm_forward(&p.layer, &p.saved, y_room, x_room, 1));
        SUCCEEDS(nn_norm_backward_input(&p.layer, &p.saved, in_place[i], dy_room, residual_room));
        nn_test_read(together, in_place[i], W);
        for (int j = 0; j < W; j++)
            cr_assert_eq(together[j], residual[j] + apart[j], "place %d, element %d", i, j);
    }
    FAILS(nn_norm_backward_input(&p.layer, &p.saved, y_room, dy_room, NULL), MIMO_ERR_STATE,
          "before forward");
    FAILS(nn_norm_forward(&p.layer, &p.saved, y_room, x_room, 2), MIMO_ERR_SHAPE,
          "2 rows, must be 0 to 1");
    nn_test_free_rooms();
    RELEASE(p, norm);
    FAILS(nn_norm_backward_input(&p.layer, &p.saved, apart, dy, NULL), MIMO_ERR_STATE,
          "before forward");
    nn_params_destroy(p.params);
}

static mimo_status mlp_forward(void *layer, nn_real *y, const nn_real *x)
{
    mlp_pair *p = layer;
    return nn_mlp_forward(&p->layer, &p->saved, y, x, ROWS, 1);
}

static mimo_status mlp_backward(void *layer, nn_real *dx, nn_real *dy)
{
    mlp_pair *p = layer;
    SUCCEEDS(nn_mlp_backward_input(&p->layer, &p->saved, dx, dy));
    return nn_mlp_backward_params(&p->layer, &p->saved);
}

Test(nn_mlp, gradients)
{
    nn_mlp_desc desc = {
        .name = "mlp", .hidden = IN, .inner = 11, .max_rows = ROWS, .std = 0.1, .out_std = 0.1};
    OPEN(p, mlp, NULL, &desc);
    nn_case c = {"mlp", &p, p.params, ROWS * IN, ROWS * IN, mlp_forward, mlp_backward};
    nn_check_gradients(&c);
    CLOSE(p, mlp);
}

Test(nn_mlp, gelu_is_the_tanh_form)
{
    nn_mlp_desc desc = {
        .name = "mlp", .hidden = 1, .inner = 1, .max_rows = ROWS, .std = 0.1, .out_std = 0.1};
    OPEN(p, mlp, NULL, &desc);
    const nn_real one = 1, x[ROWS] = {-40, -1.5, 0, 0.3, 40};
    nn_real y[ROWS], *y_room = nn_test_room(ROWS);
    SUCCEEDS(nn_params_write(p.params, nn_params_find(p.params, "mlp.up.weight"), NN_VALUE, &one));
    SUCCEEDS(
        nn_params_write(p.params, nn_params_find(p.params, "mlp.down.weight"), NN_VALUE, &one));
    SUCCEEDS(nn_mlp_forward(&p.layer, &p.saved, y_room, nn_test_sent(x, ROWS), ROWS, 1));
    nn_test_read(y, y_room, ROWS);
    nn_test_free_rooms();
    for (int i = 0; i < ROWS; i++) {
        double u = (double)x[i];
        double expected = 0.5 * u * (1 + tanh(sqrt(2 / acos(-1.0)) * (u + 0.044715 * u * u * u)));
        cr_assert_float_eq((double)y[i], expected, 1e-12, "gelu(%g) is %g", u, (double)y[i]);
    }
    CLOSE(p, mlp);
}

/* Ids repeat: the gradient of an entry is the sum over its uses. */
static const int64_t ids[ROWS] = {3, 0, 3, 1, 3};

static mimo_status embedding_forward(void *layer, nn_real *y, const nn_real *x)
{
    (void)x;
    embedding_pair *p = layer;
    return nn_embedding_forward(&p->layer, &p->saved, y, ids, ROWS);
}

static mimo_status embedding_backward(void *layer, nn_real *dx, nn_real *dy)
{
    (void)dx;
    embedding_pair *p = layer;
    return nn_embedding_backward_params(&p->layer, &p->saved, dy);
}

static void copy_room(nn_real *to, const nn_real *from, int64_t n)
{
    const nn_runtime *runtime = nn_test_runtime();
    SUCCEEDS(runtime->device->copy(to, from, n * (int64_t)sizeof *to, runtime->stream));
}

/* y = x + positions, on a tile of ROWS positions and 2 samples. */
static mimo_status positions_forward(void *layer, nn_real *y, const nn_real *x)
{
    copy_room(y, x, ROWS * 2 * IN);
    embedding_pair *p = layer;
    return nn_embedding_add(&p->layer, &p->saved, y, ids, ROWS, 2);
}

static mimo_status positions_backward(void *layer, nn_real *dx, nn_real *dy)
{
    copy_room(dx, dy, ROWS * 2 * IN);
    embedding_pair *p = layer;
    return nn_embedding_backward_params(&p->layer, &p->saved, dy);
}

Test(nn_embedding, gradients)
{
    OPEN(p, embedding, &(nn_embedding_desc){"tokens", 4, IN, 0.1, NN_REPLICATED, ROWS});
    nn_case tokens = {"tokens", &p, p.params, 0, ROWS * IN, embedding_forward, embedding_backward};
    nn_check_gradients(&tokens);
    nn_case positions = {
        "positions",       &p, p.params, ROWS * 2 * IN, ROWS * 2 * IN, positions_forward,
        positions_backward};
    nn_check_gradients(&positions);
    CLOSE(p, embedding);
}

Test(nn_embedding, refuses_an_id_outside_the_table)
{
    OPEN(p, embedding, &(nn_embedding_desc){"tokens", 3, IN, 0.1, NN_REPLICATED, ROWS});
    nn_real y[ROWS * IN];
    FAILS(nn_embedding_backward_params(&p.layer, &p.saved, y), MIMO_ERR_STATE, "before forward");
    FAILS(nn_embedding_forward(&p.layer, &p.saved, y, ids, ROWS), MIMO_ERR_ARGUMENT,
          "ids[0] is 3, must be 0 to 2");
    FAILS(nn_embedding_forward(&p.layer, &p.saved, y, ids, ROWS + 1), MIMO_ERR_SHAPE,
          "6 rows, must be 0 to 5");
    CLOSE(p, embedding);
}

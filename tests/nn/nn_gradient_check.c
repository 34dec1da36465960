#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/nn/params/nn_initial.h"
#include "nn_gradient_check.h"

static const double step = 1e-5, tolerance = 1e-6, offset = 0.75;

nn_params *nn_test_store(int rank, int size)
{
    nn_params *params = NULL;
    nn_params_desc desc = {.name = "test",
                           .module = MIMO_DST,
                           .tp_rank = rank,
                           .tp_size = size,
                           .seed = 7,
                           .runtime = nn_test_runtime()};
    SUCCEEDS(nn_params_create(&params, &desc));
    return params;
}

void nn_test_fill(nn_real *x, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (nn_real)nn_normal(99, name, i);
}

/* The layer's input and output in the tested memory. r and a copy of y are in host memory. */
typedef struct probe {
    const nn_case *c;
    nn_real *x, *y, *r, *got;
} probe;

static double objective(const probe *p)
{
    double sum = 0;
    SUCCEEDS(p->c->forward(p->c->layer, p->y, p->x));
    nn_test_read(p->got, p->y, p->c->outputs);
    for (int64_t i = 0; i < p->c->outputs; i++)
        sum += (double)p->r[i] * (double)p->got[i];
    return sum;
}

static double objective_with(const probe *p, nn_real *at, double value)
{
    nn_real moved = (nn_real)value;
    nn_test_write(at, &moved, 1);
    return objective(p);
}

static double root_mean_square(const nn_real *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

static nn_real *numbers(int64_t n)
{
    return calloc((size_t)(n + 1), sizeof(nn_real));
}

/* `at` is in the tested memory, its gradient in host memory. Elements far below the tensor's
 * typical element have an absolute bound. */
static void compare(const probe *p, const char *tensor, nn_real *at, const nn_real *gradient,
                    int64_t n)
{
    double floor = 0.01 * root_mean_square(gradient, n) + 1e-4;
    nn_real *kept = numbers(n);
    nn_test_read(kept, at, n);
    for (int64_t i = 0; i < n; i++) {
        double above = objective_with(p, at + i, (double)kept[i] + step);
        double below = objective_with(p, at + i, (double)kept[i] - step);
        nn_test_write(at + i, kept + i, 1);
        double difference = (above - below) / (2 * step), written = (double)gradient[i];
        double scale = fmax(fmax(fabs(difference), fabs(written)), floor);
        cr_assert(fabs(difference - written) <= tolerance * scale,
                  "%s: gradient of %s[%lld] is %.12g, finite difference %.12g", p->c->name, tensor,
                  (long long)i, written, difference);
    }
    free(kept);
}

static void set_parameters(nn_params *params)
{
    for (int i = 0; i < nn_params_count(params); i++) {
        const nn_param *param = nn_params_at(params, i);
        nn_real *value = numbers(param->count), *grad = numbers(param->count);
        nn_test_fill(value, param->count, param->name);
        for (int64_t j = 0; j < param->count; j++) {
            value[j] *= (nn_real)0.5;
            grad[j] = (nn_real)offset;
        }
        SUCCEEDS(nn_params_write(params, i, NN_VALUE, value));
        SUCCEEDS(nn_params_write(params, i, NN_GRAD, grad));
        free(value), free(grad);
    }
}

static void compare_parameters(const probe *p)
{
    const nn_params *params = p->c->params;
    for (int i = 0; i < nn_params_count(params); i++) {
        const nn_param *param = nn_params_at(params, i);
        nn_real *grad = numbers(param->count);
        SUCCEEDS(nn_params_read(params, i, NN_GRAD, grad));
        for (int64_t j = 0; j < param->count; j++)
            grad[j] = (nn_real)((double)grad[j] - offset);
        compare(p, param->name, param->value, grad, param->count);
        free(grad);
    }
}

void nn_check_gradients(const nn_case *c)
{
    nn_real *x = numbers(c->inputs), *dx = numbers(c->inputs);
    probe p = {c, nn_test_room(c->inputs), nn_test_room(c->outputs), numbers(c->outputs),
               numbers(c->outputs)};
    set_parameters(c->params);
    nn_test_fill(x, c->inputs, "x");
    nn_test_fill(p.r, c->outputs, "r");
    nn_test_write(p.x, x, c->inputs);
    objective(&p);
    nn_real *d_room = nn_test_room(c->inputs), *r_room = nn_test_sent(p.r, c->outputs);
    SUCCEEDS(c->backward(c->layer, c->inputs ? d_room : NULL, r_room));
    nn_test_read(dx, d_room, c->inputs);
    compare(&p, "x", p.x, dx, c->inputs);
    compare_parameters(&p);
    free(x), free(dx), free(p.r), free(p.got);
    nn_test_free_rooms();
}

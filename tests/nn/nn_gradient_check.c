#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn_gradient_check.h"

static const double step = 1e-5, tolerance = 1e-6, offset = 0.75;

nn_params *nn_test_store(int rank, int size)
{
    nn_params *params = NULL;
    nn_params_desc desc = {"test", MIMO_DST, rank, size, 7, NULL};
    NN_OK(nn_params_create(&params, &desc));
    return params;
}

void nn_test_fill(nn_real *x, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (nn_real)nn_normal(99, name, i);
}

typedef struct probe {
    const nn_case *c;
    nn_real *x, *y, *r;
} probe;

static double objective(const probe *p)
{
    double sum = 0;
    NN_OK(p->c->forward(p->c->layer, p->y, p->x));
    for (int64_t i = 0; i < p->c->outputs; i++)
        sum += (double)p->r[i] * (double)p->y[i];
    return sum;
}

static double root_mean_square(const nn_real *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

/* Elements far below the tensor's typical one are held to an absolute bound. */
static void compare(const probe *p, const char *tensor, nn_real *at, const nn_real *gradient,
                    int64_t n)
{
    double floor = 0.01 * root_mean_square(gradient, n) + 1e-4;
    for (int64_t i = 0; i < n; i++) {
        nn_real kept = at[i];
        at[i] = (nn_real)((double)kept + step);
        double above = objective(p);
        at[i] = (nn_real)((double)kept - step);
        double below = objective(p);
        at[i] = kept;
        double difference = (above - below) / (2 * step), written = (double)gradient[i];
        double scale = fmax(fmax(fabs(difference), fabs(written)), floor);
        cr_assert(fabs(difference - written) <= tolerance * scale,
                  "%s: gradient of %s[%lld] is %.12g, finite difference %.12g", p->c->name, tensor,
                  (long long)i, written, difference);
    }
}

static nn_real *room(int64_t n)
{
    return calloc((size_t)(n + 1), sizeof(nn_real));
}

static void set_parameters(const nn_case *c)
{
    for (int i = 0; i < nn_params_count(c->params); i++) {
        const nn_param *param = nn_params_at(c->params, i);
        nn_test_fill(param->value, param->count, param->name);
        for (int64_t j = 0; j < param->count; j++) {
            param->value[j] *= (nn_real)0.5;
            param->grad[j] = (nn_real)offset;
        }
    }
}

void nn_check_gradients(const nn_case *c)
{
    probe p = {c, room(c->inputs), room(c->outputs), room(c->outputs)};
    nn_real *dx = room(c->inputs);
    set_parameters(c);
    nn_test_fill(p.x, c->inputs, "x");
    nn_test_fill(p.r, c->outputs, "r");
    objective(&p);
    NN_OK(c->backward(c->layer, c->inputs ? dx : NULL, p.r));
    compare(&p, "x", p.x, dx, c->inputs);
    for (int i = 0; i < nn_params_count(c->params); i++) {
        const nn_param *param = nn_params_at(c->params, i);
        nn_real *grad = room(param->count);
        for (int64_t j = 0; j < param->count; j++)
            grad[j] = (nn_real)((double)param->grad[j] - offset);
        compare(&p, param->name, param->value, grad, param->count);
        free(grad);
    }
    free(p.x), free(p.y), free(p.r), free(dx);
}

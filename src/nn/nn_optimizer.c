#include "nn/nn_optimizer.h"

#include <math.h>

#include "nn/nn_math.h"
#include "nn/nn_support.h"

/* The factors of one step, the same for every element. */
typedef struct adamw_step {
    nn_real gradient;     /* scale of the gradient: clipping */
    nn_real beta1, beta2; /* and 1 - beta */
    nn_real rest1, rest2;
    nn_real root; /* 1 / sqrt(1 - beta2^t) */
    nn_real epsilon;
    nn_real rate;  /* lr / (1 - beta1^t) */
    nn_real decay; /* lr * decay */
} adamw_step;

static adamw_step factors(const nn_adamw *rule, double norm, int64_t t)
{
    double clip = rule->clip > 0 && norm > rule->clip ? rule->clip / norm : 1;
    return (adamw_step){
        .gradient = (nn_real)clip,
        .beta1 = (nn_real)rule->beta1,
        .beta2 = (nn_real)rule->beta2,
        .rest1 = (nn_real)(1 - rule->beta1),
        .rest2 = (nn_real)(1 - rule->beta2),
        .root = (nn_real)(1 / sqrt(1 - pow(rule->beta2, (double)t))),
        .epsilon = (nn_real)rule->epsilon,
        .rate = (nn_real)(rule->lr / (1 - pow(rule->beta1, (double)t))),
        .decay = (nn_real)(rule->lr * rule->decay),
    };
}

static void update(const nn_param *param, const adamw_step *step)
{
    adamw_step s = *step;
    nn_real decay = param->decay ? s.decay : 0;
    nn_real *restrict value = param->value, *restrict m = param->m, *restrict v = param->v;
    const nn_real *restrict grad = param->grad;
    for (int64_t i = 0; i < param->count; i++) {
        nn_real g = grad[i] * s.gradient;
        m[i] = s.beta1 * m[i] + s.rest1 * g;
        v[i] = s.beta2 * v[i] + s.rest2 * g * g;
        value[i] -= s.rate * m[i] / (nn_sqrt(v[i]) * s.root + s.epsilon) + decay * value[i];
    }
}

mimo_status nn_adamw_step(const nn_adamw *rule, nn_params *params, double norm)
{
    MIMO_CHECK(rule && params, MIMO_ERR_ARGUMENT, "optimizer: NULL rule or store");
    MIMO_CHECK(nn_params_sealed(params), MIMO_ERR_STATE, "optimizer: the store is not sealed");
    MIMO_CHECK(isfinite(norm) && norm >= 0, MIMO_ERR_ARGUMENT,
               "optimizer: gradient norm %g is not a finite, non-negative number", norm);
    nn_params_set_steps(params, nn_params_steps(params) + 1);
    adamw_step step = factors(rule, norm, nn_params_steps(params));
    for (int i = 0; i < nn_params_count(params); i++)
        update(nn_params_at(params, i), &step);
    return MIMO_OK;
}

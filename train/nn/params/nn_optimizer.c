#include "train/nn/params/nn_optimizer.h"

#include <math.h>

#include "core/mutation.h"
#include "train/nn/params/nn_support.h"

static nn_adamw_factors factors(const nn_adamw *rule, double norm, int64_t t)
{
    double clip = rule->clip > 0 && norm > rule->clip ? rule->clip / norm : 1;
    return (nn_adamw_factors){
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

static mimo_status update(const nn_params *params, int index, nn_adamw_factors factors)
{
    const nn_runtime *runtime = nn_params_runtime(params);
    const nn_param *param = nn_params_at(params, index);
    if (param->frozen || !param->held)
        return MIMO_OK;
    nn_moments moments = {param->value, param->m, param->v, param->grad, param->count};
    if (!param->decay && !MIMO_MUTATED("decay-of-all"))
        factors.decay = 0;
    return runtime->ops->adamw(runtime, &moments, &factors);
}

mimo_status nn_adamw_step(const nn_adamw *rule, nn_params *params, double norm)
{
    MIMO_CHECK(rule && params, MIMO_ERR_ARGUMENT, "optimizer: NULL rule or store");
    MIMO_CHECK(nn_params_sealed(params), MIMO_ERR_STATE, "optimizer: the store is not sealed");
    MIMO_TRY(nn_params_check_unmerged(params, "optimizer"));
    MIMO_TRY(nn_params_check_settled(params, "optimizer"));
    MIMO_CHECK(isfinite(norm) && norm >= 0, MIMO_ERR_ARGUMENT,
               "optimizer: gradient norm %g is not a finite, non-negative number", norm);
    nn_params_set_steps(params, nn_params_steps(params) + 1);
    int64_t t = nn_params_steps(params);
    if (MIMO_MUTATED("next-step"))
        t++;
    nn_adamw_factors step = factors(rule, norm, t);
    for (int i = 0; i < nn_params_count(params); i++)
        MIMO_TRY(update(params, i, step));
    return MIMO_OK;
}

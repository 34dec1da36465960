#include "ref_optimizer.h"

#include <math.h>

double ref_norm_of(const ref_table *table)
{
    double sum = 0;
    for (int t = 0; t < table->count; t++)
        for (int64_t i = 0; i < table->list[t].rows * table->list[t].columns; i++)
            sum += table->list[t].data[i] * table->list[t].data[i];
    return sqrt(sum);
}

void ref_sgd(ref_table *values, const ref_table *grads, double lr)
{
    for (int t = 0; t < values->count; t++)
        for (int64_t i = 0; i < values->list[t].rows * values->list[t].columns; i++)
            values->list[t].data[i] -= lr * grads->list[t].data[i];
}

static void update(const ref_adamw *rule, ref_tensor *value, const ref_tensor *grad, int t,
                   double clip)
{
    double *m = rule->m.list[t].data, *v = rule->v.list[t].data;
    double decay = value->decays ? rule->decay : 0;
    double correction1 = 1 - pow(rule->beta1, (double)rule->steps);
    double correction2 = 1 - pow(rule->beta2, (double)rule->steps);
    for (int64_t i = 0; i < value->rows * value->columns; i++) {
        double g = grad->data[i] * clip;
        m[i] = rule->beta1 * m[i] + (1 - rule->beta1) * g;
        v[i] = rule->beta2 * v[i] + (1 - rule->beta2) * g * g;
        double direction = m[i] / correction1 / (sqrt(v[i] / correction2) + rule->epsilon);
        value->data[i] -= rule->lr * (direction + decay * value->data[i]);
    }
}

void ref_adamw_step(ref_adamw *rule, ref_table *values, const ref_table *grads)
{
    double norm = ref_norm_of(grads), clip = norm > rule->clip ? rule->clip / norm : 1;
    if (rule->steps++ == 0) {
        rule->m = ref_like(values, 0);
        rule->v = ref_like(values, 0);
    }
    for (int t = 0; t < values->count; t++)
        update(rule, &values->list[t], &grads->list[t], t, clip);
}

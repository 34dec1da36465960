/* The two update rules on the model's gradients, written from their formulas. */
#ifndef REF_OPTIMIZER_H
#define REF_OPTIMIZER_H

#include "ref_table.h"

typedef struct ref_adamw {
    double lr, beta1, beta2, epsilon;
    double decay; /* of tensors with `decays` */
    double clip;  /* of the norm over all gradients */
    ref_table m, v;
    int64_t steps;
} ref_adamw;

/* L2 norm over all tensors together. */
double ref_norm_of(const ref_table *table);

void ref_sgd(ref_table *values, const ref_table *grads, double lr);
/* The first call makes m and v. The caller frees them. */
void ref_adamw_step(ref_adamw *rule, ref_table *values, const ref_table *grads);

#endif

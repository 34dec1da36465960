/* Values that files hold must be numbers: a NaN or an infinity spreads over the whole model. */
#ifndef TRAIN_FINITE_VALUES_H
#define TRAIN_FINITE_VALUES_H

#include <stdint.h>

#include <mimo/status.h>

/* Elements [first, first + count) of a tensor, and the file that they come from or go to. */
struct finite_values {
    const char *path, *tensor;
    const float *values;
    int64_t first, count;
};

/** MIMO_ERR_IO where one of them is NaN or infinite, with the file, the tensor, the place and the
 *  value. Local. */
mimo_status finite_values_check(const struct finite_values *checked);

#endif

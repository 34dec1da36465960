#include "train/support/finite_values.h"

#include <math.h>

#include "train/support/train_support.h"

mimo_status finite_values_check(const struct finite_values *checked)
{
    for (int64_t i = 0; i < checked->count; i++)
        CHECK(isfinite(checked->values[i]), MIMO_ERR_IO,
              "%s: element %" PRId64 " of tensor %s is %g, and not a finite number", checked->path,
              checked->first + i, checked->tensor, (double)checked->values[i]);
    return MIMO_OK;
}

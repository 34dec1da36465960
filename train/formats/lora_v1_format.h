/* What the writer and the reader of LORA v1 files must agree on. */
#ifndef TRAIN_LORA_V1_FORMAT_H
#define TRAIN_LORA_V1_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

#include "train/formats/adapter_tensor.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum {
    LORA_V1_MAGIC = 0x4C4F5241,
    LORA_V1_VERSION = 1,
    LORA_V1_HEADER = 12,          /* bytes before the first tensor */
    LORA_V1_DIMS = 2,             /* of every tensor */
    LORA_V1_FIXED = 4 + 4 + 2 * 8 /* bytes of a tensor beside its name and its elements */
};

/* lora_rows must be a permutation: each row is written, and read, once. */
static inline mimo_status lora_v1_check_rows(const struct adapter_tensor *tensor)
{
    bool *seen;
    int64_t rows = tensor->shape[0], bad = -1;
    if (!tensor->lora_rows)
        return MIMO_OK;
    TRY(memory_reserve(&seen, rows, sizeof *seen));
    for (int64_t i = 0; i < rows && bad < 0; i++) {
        int64_t row = tensor->lora_rows[i];
        if (row < 0 || row >= rows || seen[row])
            bad = i;
        else
            seen[row] = true;
    }
    memory_release(seen);
    CHECK(bad < 0, MIMO_ERR_ARGUMENT,
          "row %" PRId64 " of tensor %s goes to row %" PRId64 ", which is outside of its %" PRId64
          " or taken",
          bad, tensor->name, tensor->lora_rows[bad], rows);
    return MIMO_OK;
}

#endif

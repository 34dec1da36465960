/* The tensors of a model's adapter, as the files of adapters name them. */
#ifndef TRAIN_ADAPTER_TENSOR_H
#define TRAIN_ADAPTER_TENSOR_H

#include <stdint.h>

/* A factor. */
struct adapter_tensor {
    const char *name; /* "llm.block0.mlp.up.lora_A.weight": without a prefix, unique */
    int64_t shape[2]; /* [rank, in] of an A, [out, rank] of a B */

    /* [shape[0]]: which row of the tensor in a LORA file row i is, where that file has another
     * order: queries, keys and values of all heads one after another. NULL: the same. */
    const int64_t *lora_rows;
};

struct adapter_tensors {
    const struct adapter_tensor *tensors; /* in any order */
    int64_t count;
};

#endif

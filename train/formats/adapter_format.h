/* What the writer and the reader of an adapter's folder must agree on. */
#ifndef TRAIN_ADAPTER_FORMAT_H
#define TRAIN_ADAPTER_FORMAT_H

#include <stdio.h>
#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

#define ADAPTER_CONFIG_NAME "adapter_config.json"
#define ADAPTER_TENSORS_NAME "adapter_model.safetensors"
#define ADAPTER_PREFIX "base_model.model."

/* FOLDER/NAME; the caller releases it. */
static inline mimo_status adapter_path(char **out, const char *folder, const char *name)
{
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    size_t bytes = length + 1 + strlen(name) + 1;
    CHECK(length > 0, MIMO_ERR_ARGUMENT, "the folder of an adapter has no name");
    TRY(memory_reserve(out, (int64_t)bytes, 1));
    snprintf(*out, bytes, "%s%s%s", folder, slash, name);
    return MIMO_OK;
}

/* The hash of a file of tensors is the sum, mod 2^64, of those of its tensors in the order of their
 * names: they are written in any order. */
static inline uint64_t adapter_tensor_hash(int64_t index, const void *data, int64_t bytes)
{
    return hash_bytes(hash_int(HASH_START, index), data, (size_t)bytes);
}

/* Which dimension of a factor is the rank; -1 where the name is none of a factor. */
static inline int adapter_rank_dimension(const char *name)
{
    static const char *const tails[] = {".lora_A.weight", ".lora_B.weight"};
    size_t length = strlen(name);
    for (int dim = 0; dim < 2; dim++) {
        size_t bytes = strlen(tails[dim]);
        if (length >= bytes && strcmp(name + length - bytes, tails[dim]) == 0)
            return dim;
    }
    return -1;
}

#endif

#include "train/support/train_memory.h"

#include "core/memory.h"

mimo_status memory_reserve(void *out, int64_t count, size_t size)
{
    return mimo_reserve(out, count, size);
}

mimo_status memory_regrow(void *out, int64_t old_count, int64_t count, size_t size)
{
    return mimo_regrow(out, old_count, count, size);
}

mimo_status memory_copy_string(char **out, const char *text)
{
    return mimo_copy_string(out, text);
}

void memory_release(void *pointer)
{
    mimo_release(pointer);
}

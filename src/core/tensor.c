#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <mimo/tensor.h>

#include "core/checked.h"

int mimo_tensor_ndim(const mimo_tensor *tensor)
{
    return (int)strnlen(tensor->letters, MIMO_TENSOR_DIMS);
}

int64_t mimo_tensor_size(const mimo_tensor *tensor, char letter)
{
    int ndim = mimo_tensor_ndim(tensor);
    for (int i = 0; i < ndim; i++)
        if (tensor->letters[i] == letter)
            return tensor->shape[i];
    return -1;
}

mimo_status mimo_tensor_extent(int64_t *elements, int64_t *bytes, const mimo_tensor *tensor)
{
    char text[96];
    int64_t count = 1, total;
    MIMO_CHECK(tensor, MIMO_ERR_ARGUMENT, "mimo_tensor_extent: the tensor is NULL");
    int ndim = mimo_tensor_ndim(tensor);
    size_t size = mimo_dtype_size(tensor->dtype);
    MIMO_CHECK(ndim > 0, MIMO_ERR_SHAPE, "tensor has no layout letters");
    MIMO_CHECK(memchr(tensor->letters, '\0', sizeof tensor->letters), MIMO_ERR_SHAPE,
               "the letters of a tensor, '%.*s', are not terminated: it has at most %d",
               MIMO_TENSOR_DIMS + 1, tensor->letters, MIMO_TENSOR_DIMS);
    MIMO_CHECK(size > 0, MIMO_ERR_ARGUMENT, "unknown dtype %d", (int)tensor->dtype);
    for (int i = 0; i < ndim; i++) {
        MIMO_CHECK(!strchr(tensor->letters + i + 1, tensor->letters[i]), MIMO_ERR_SHAPE,
                   "tensor %s has the letter '%c' twice",
                   mimo_tensor_text(text, sizeof text, tensor), tensor->letters[i]);
        MIMO_CHECK(tensor->shape[i] >= 0, MIMO_ERR_SHAPE, "tensor %s has a negative size",
                   mimo_tensor_text(text, sizeof text, tensor));
        MIMO_TRY(mimo_mul(&count, count, tensor->shape[i]));
    }
    MIMO_TRY(mimo_mul(&total, count, (int64_t)size));
    if (elements)
        *elements = count;
    if (bytes)
        *bytes = total;
    return MIMO_OK;
}

char *mimo_tensor_text(char *text, size_t capacity, const mimo_tensor *tensor)
{
    int ndim = mimo_tensor_ndim(tensor);
    int used =
        snprintf(text, capacity, "%s %.*s[", mimo_dtype_name(tensor->dtype), ndim, tensor->letters);
    for (int i = 0; i < ndim && used >= 0 && (size_t)used < capacity; i++)
        used += snprintf(text + used, capacity - (size_t)used, "%s%" PRId64, i ? "," : "",
                         tensor->shape[i]);
    if (used >= 0 && (size_t)used < capacity)
        snprintf(text + used, capacity - (size_t)used, "]");
    return text;
}

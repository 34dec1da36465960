#include "train/formats/safetensors_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/support/train_support.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data is little-endian, and is copied here as it lies in memory"
#endif

static const struct {
    mimo_dtype dtype;
    const char *text;
} dtypes[] = {
    {MIMO_F32, "F32"}, {MIMO_F16, "F16"}, {MIMO_BF16, "BF16"},  {MIMO_F64, "F64"},
    {MIMO_I32, "I32"}, {MIMO_I64, "I64"}, {MIMO_F8, "F8_E4M3"},
};

const char *safetensors_dtype_text(mimo_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].text;
    return NULL;
}

const char *safetensors_describe(safetensors_kind out, const struct safetensors_tensor *tensor)
{
    size_t room = sizeof(safetensors_kind);
    size_t used = (size_t)snprintf(out, room, "%s [", safetensors_dtype_text(tensor->dtype));
    for (int i = 0; i < tensor->ndim && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%" PRId64, i > 0 ? ", " : "",
                                 tensor->shape[i]);
    if (used < room)
        snprintf(out + used, room - used, "]");
    return out;
}

mimo_status safetensors_dtype_parse(mimo_dtype *out, const char *text, const char *tensor)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].text, text) == 0) {
            *out = dtypes[i].dtype;
            return MIMO_OK;
        }
    }
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "tensor \"%s\" has dtype \"%s\"", tensor, text);
}

mimo_status safetensors_elements(int64_t *out, const struct safetensors_tensor *tensor)
{
    int64_t elements = 1;
    for (int i = 0; i < tensor->ndim; i++) {
        CHECK(tensor->shape[i] >= 0, MIMO_ERR_ARGUMENT,
              "tensor \"%s\" has size %" PRId64 " in dimension %d", tensor->name, tensor->shape[i],
              i);
        TRY(size_mul(&elements, elements, tensor->shape[i]));
    }
    *out = elements;
    return MIMO_OK;
}

mimo_status safetensors_bytes(int64_t *out, const struct safetensors_tensor *tensor)
{
    int64_t elements, bytes;
    TRY(safetensors_elements(&elements, tensor));
    TRY(size_mul(&bytes, elements, (int64_t)mimo_dtype_size(tensor->dtype)));
    CHECK(bytes <= SAFETENSORS_MOST_BYTES, MIMO_ERR_OVERFLOW, "tensor \"%s\" has %" PRId64 " bytes",
          tensor->name, bytes);
    *out = bytes;
    return MIMO_OK;
}

mimo_status safetensors_check_slice(const struct safetensors_tensor *tensor, int64_t first,
                                    int64_t count)
{
    int64_t elements;
    TRY(safetensors_elements(&elements, tensor));
    CHECK(first >= 0 && count >= 0 && first <= elements && count <= elements - first,
          MIMO_ERR_ARGUMENT,
          "elements [%" PRId64 ", +%" PRId64 ") lie outside the %" PRId64 " of tensor \"%s\"",
          first, count, elements, tensor->name);
    return MIMO_OK;
}

int safetensors_by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

int safetensors_by_key(const void *a, const void *b)
{
    const struct safetensors_text *x = a, *y = b;
    return strcmp(x->key, y->key);
}

const char *safetensors_sort_texts(struct safetensors_text *texts, int64_t count)
{
    if (count > 0)
        qsort(texts, (size_t)count, sizeof *texts, safetensors_by_key);
    for (int64_t i = 1; i < count; i++)
        if (safetensors_by_key(&texts[i - 1], &texts[i]) == 0)
            return texts[i].key;
    return NULL;
}

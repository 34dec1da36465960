/* What the writer and the reader of safetensors files must agree on. */
#ifndef TRAIN_SAFETENSORS_FORMAT_H
#define TRAIN_SAFETENSORS_FORMAT_H

#include <stddef.h>

#include "train/formats/safetensors.h"

#define SAFETENSORS_METADATA "__metadata__"

enum {
    SAFETENSORS_PREFIX = 8,              /* bytes of the header's length */
    SAFETENSORS_ALIGNMENT = 8,           /* of the data */
    SAFETENSORS_MOST_HEADER = 100000000, /* the format's own bound */
};

/* JSON numbers are doubles; whole numbers up to here are printed and read back exactly. */
#define SAFETENSORS_MOST_BYTES INT64_C(999999999999999)

/* "F32", ...; NULL for an unknown dtype. */
const char *safetensors_dtype_text(mimo_dtype dtype);

/* Dtype and shape as "F32 [3, 2]", cut where they are long; returns `out`. The dtype is known. */
typedef char safetensors_kind[128];
const char *safetensors_describe(safetensors_kind out, const struct safetensors_tensor *tensor);

/* The dtype of a text; MIMO_ERR_UNSUPPORTED, naming the tensor, where mimo_dtype lacks it. */
mimo_status safetensors_dtype_parse(mimo_dtype *out, const char *text, const char *tensor);

/* Elements of a shape; MIMO_ERR_ARGUMENT for a negative size, MIMO_ERR_OVERFLOW. */
mimo_status safetensors_elements(int64_t *out, const struct safetensors_tensor *tensor);

/* Elements and bytes, at most SAFETENSORS_MOST_BYTES. */
mimo_status safetensors_bytes(int64_t *out, const struct safetensors_tensor *tensor);

/* Whether [first, first + count) lies in the tensor. */
mimo_status safetensors_check_slice(const struct safetensors_tensor *tensor, int64_t first,
                                    int64_t count);

/* Order two `struct safetensors_tensor` by name, for qsort. */
int safetensors_by_name(const void *a, const void *b);

/* Order two `struct safetensors_text` by key. */
int safetensors_by_key(const void *a, const void *b);

/* Sort texts by key; returns a key that two of them have, or NULL. */
const char *safetensors_sort_texts(struct safetensors_text *texts, int64_t count);

#endif

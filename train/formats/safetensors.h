/*
 * The safetensors file format, written and read without help.
 *
 *   8 bytes   n, the length of the header, little-endian
 *   n bytes   a JSON object, padded with spaces so that the data begins at a multiple of 8:
 *             {"__metadata__": {text: text, ...},
 *              name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
 *   the rest  the data, little-endian, row-major; offsets count from here, and together they cover
 *             it without overlap and without a hole
 *
 * Dtypes here are those of mimo_dtype; MIMO_F8 is written as F8_E4M3. Positions and lengths are in
 * elements, files are little-endian like the machines that this is built for.
 */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include <stdint.h>

#include <mimo/dtype.h>

#include "train/support/input_file.h"

struct safetensors_tensor {
    const char *name; /* printable UTF-8, unique in the file, not "__metadata__" */
    mimo_dtype dtype;
    int ndim;             /* 0 is a single value */
    const int64_t *shape; /* [ndim], each >= 0 */
};

struct safetensors_text {
    const char *key, *value;
};

/* What a file will hold. */
struct safetensors_content {
    const struct safetensors_tensor *tensors;
    int64_t tensor_count;
    const struct safetensors_text *metadata;
    int64_t metadata_count;
};

/* Writing. The file appears whole, at commit, or not at all. */

typedef struct safetensors_writer safetensors_writer;

/**
 * Begin a file: header, and room on the disk for all data. The content is copied. The caller ends
 * with safetensors_commit or safetensors_discard.
 *
 * Errors: MIMO_ERR_ARGUMENT (a name, a key, a dtype, a negative size), MIMO_ERR_EXISTS (two of one
 * name), MIMO_ERR_OVERFLOW, MIMO_ERR_IO (a full disk already here).
 */
mimo_status safetensors_create(safetensors_writer **out, const char *path,
                               const struct safetensors_content *content);

/** Write elements [first, first + count) of tensor `index` of the content, in any order of slices.
 *  MIMO_ERR_ARGUMENT outside the tensor, MIMO_ERR_IO. */
mimo_status safetensors_write(safetensors_writer *writer, int64_t index, int64_t first,
                              int64_t count, const void *data);

/** Put the file in its place and release the writer, whatever the result. MIMO_ERR_STATE where the
 *  slices of a tensor do not add up to it, MIMO_ERR_IO. NULL is fine. */
mimo_status safetensors_commit(safetensors_writer *writer);

/** Give up: leave nothing behind, release the writer. NULL is fine. */
void safetensors_discard(safetensors_writer *writer);

/* Reading. */

typedef struct safetensors_file safetensors_file;

/** Open a file and check its header against it: lengths, names, dtypes, shapes, offsets. Data is
 *  read later. MIMO_ERR_NOT_FOUND, MIMO_ERR_IO (damaged, with the numbers) or MIMO_ERR_UNSUPPORTED
 *  (a dtype that mimo_dtype lacks). */
mimo_status safetensors_open(safetensors_file **out, const char *path);

void safetensors_close(safetensors_file *file);

/** What the open file holds. Reads all of it. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status safetensors_content(struct file_content *out, const safetensors_file *file);

/** Number of tensors; tensor i, sorted by name (owned by the file); the index of a name, or -1. */
int64_t safetensors_count(const safetensors_file *file);
const struct safetensors_tensor *safetensors_at(const safetensors_file *file, int64_t index);
int64_t safetensors_find(const safetensors_file *file, const char *name);

/** The metadata under a key, owned by the file; NULL where there is none. */
const char *safetensors_metadata(const safetensors_file *file, const char *key);

/** Number of metadata; key and value of metadata i, sorted by key, owned by the file. */
int64_t safetensors_metadata_count(const safetensors_file *file);
struct safetensors_text safetensors_metadata_at(const safetensors_file *file, int64_t index);

/** Read elements [first, first + count) of tensor `index`. MIMO_ERR_ARGUMENT outside the tensor,
 *  MIMO_ERR_IO. */
mimo_status safetensors_read(const safetensors_file *file, int64_t index, int64_t first,
                             int64_t count, void *data);

/** Read rows [first, first + rows) along the first dimension. The same errors, and
 *  MIMO_ERR_ARGUMENT for a single value, which has no rows. */
mimo_status safetensors_read_rows(const safetensors_file *file, int64_t index, int64_t first,
                                  int64_t rows, void *data);

#endif

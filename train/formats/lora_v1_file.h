/*
 * A LoRA adapter in one file, in version 1 of the format that InfiniTrain writes. Little-endian:
 *
 *   u32 0x4C4F5241, u32 1, u32 number of tensors
 *   of each tensor, sorted by name:
 *     u32 length of the name, the name: "llm.block0.mlp.up.lora_A"
 *     u32 number of dimensions: 2, i64 of each, f32 of each element, row by row
 *
 * Rows of a packed B (queries, keys, values) lie in the order of adapter_tensor's lora_rows. The
 * file knows nothing of alpha. A writer takes whole tensors, a reader gives any range. All
 * functions are local.
 */
#ifndef TRAIN_LORA_V1_FILE_H
#define TRAIN_LORA_V1_FILE_H

#include <stdint.h>

#include <mimo/status.h>

#include "train/formats/adapter_tensor.h"
#include "train/support/input_file.h"

/* Writing. The file appears whole, at commit, or not at all. */

typedef struct lora_v1_writer lora_v1_writer;

/** Begin a file: everything except the elements, and room on the disk for these. The tensors are
 *  copied, except their lora_rows, which must stay until the end. The caller ends with
 *  lora_v1_commit or lora_v1_discard.
 *
 *  Errors: MIMO_ERR_ARGUMENT (a name without ".lora_A.weight" or ".lora_B.weight" at its end, a
 *  size below 1, lora_rows that are no permutation), MIMO_ERR_EXISTS (two tensors of one name),
 *  MIMO_ERR_OVERFLOW, MIMO_ERR_MEMORY, MIMO_ERR_IO. On failure *out stays as it was. */
mimo_status lora_v1_create(lora_v1_writer **out, const char *path,
                           const struct adapter_tensors *tensors);

/** Write tensor `index` of those that lora_v1_create got: f32 [shape[0], shape[1]]. In any order,
 *  each once. MIMO_ERR_ARGUMENT for another index, MIMO_ERR_MEMORY, MIMO_ERR_IO. */
mimo_status lora_v1_write(lora_v1_writer *writer, int64_t index, const float *whole);

/** Put the file in its place and release the writer, whatever the result. MIMO_ERR_STATE where a
 *  tensor was not written, MIMO_ERR_IO. NULL is fine. */
mimo_status lora_v1_commit(lora_v1_writer *writer);

/** Give up: leave nothing behind, release the writer. NULL is fine. */
void lora_v1_discard(lora_v1_writer *writer);

/* Reading. */

typedef struct lora_v1_file lora_v1_file;

/** Open a file and check that it is sound. Elements are read later.
 *
 *  Errors: MIMO_ERR_NOT_FOUND, MIMO_ERR_IO (damaged: with the byte where), MIMO_ERR_EXISTS (two
 *  tensors of one name), MIMO_ERR_SHAPE (factors of several ranks), MIMO_ERR_MEMORY. On failure
 *  *out stays as it was. */
mimo_status lora_v1_open(lora_v1_file **out, const char *path);

/** What the open file holds. Reads all of it. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status lora_v1_content(struct file_content *out, const lora_v1_file *file);

/** Number of tensors; the name of tensor i, sorted (owned by the file); the rank of all factors, 0
 *  where there is none. */
int64_t lora_v1_count(const lora_v1_file *file);
const char *lora_v1_name(const lora_v1_file *file, int64_t i);
int64_t lora_v1_rank(const lora_v1_file *file);

/** Check that the tensors are the model's: each, and no other. `tensors` is copied, except their
 *  lora_rows, which must stay until lora_v1_close. Comes before lora_v1_read.
 *
 *  Errors: MIMO_ERR_IO (a tensor is missing or unknown), MIMO_ERR_SHAPE, MIMO_ERR_ARGUMENT
 *  (lora_rows that are no permutation), MIMO_ERR_MEMORY. */
mimo_status lora_v1_match(lora_v1_file *file, const struct adapter_tensors *tensors);

/** Read elements [first, first + count) of tensor `index` of those that lora_v1_match got, in the
 *  model's order of rows, into to[count]. MIMO_ERR_ARGUMENT outside of the tensor, MIMO_ERR_IO. */
mimo_status lora_v1_read(const lora_v1_file *file, int64_t index, int64_t first, int64_t count,
                         float *to);

/** NULL is fine. */
void lora_v1_close(lora_v1_file *file);

#endif

/*
 * A LoRA adapter in a folder, the two files that PEFT reads and writes:
 *
 *   adapter_config.json          rank, alpha, targets, hashes (adapter_config.h)
 *   adapter_model.safetensors    "base_model.model." + name: both factors of each layer, F32
 *
 * No file system replaces two files at once. So the configuration has a hash of the tensors and is
 * put in its place after them. A process may die in between. Then the reader sees that the old
 * configuration is not that of the new tensors; its alpha may be another one. It takes the new one
 * from where the writer left it (adapter_pair.h). The next writer puts it in its place. Other
 * programs read the old one until then.
 *
 * Python's safetensors and PEFT write the same bytes, except the hashes. Rows of a B lie in the
 * order of the rows of the layer's weight in a checkpoint.
 *
 * Nothing here knows of ranks. A writer takes whole tensors, one at a time. A reader gives any
 * range of a tensor, so that each rank reads only what it holds. Reading is local: ranks that read
 * the same file come to the same result.
 */
#ifndef TRAIN_ADAPTER_FILE_H
#define TRAIN_ADAPTER_FILE_H

#include <stdint.h>

#include "train/formats/adapter_config.h"
#include "train/formats/adapter_tensor.h"
#include "train/support/input_file.h"

/* Writing. Each file appears whole, at commit, or not at all. */

typedef struct adapter_writer adapter_writer;

/** Begin both files in `folder`, which is made where it is missing; room on the disk is reserved
 *  for all data. Everything is copied, except the configuration's hash of the tensors, which
 *  adapter_commit knows. The caller ends with adapter_commit or adapter_discard. To
 *  find out before a training whether an adapter could be written: create, then discard.
 *
 *  Errors: MIMO_ERR_ARGUMENT (the configuration, a name, a negative size, a factor of another
 *  rank), MIMO_ERR_EXISTS (two tensors of one name), MIMO_ERR_OVERFLOW, MIMO_ERR_MEMORY,
 *  MIMO_ERR_IO (a full disk already here). After an error nothing is left behind, and *out stays as
 *  it was. */
mimo_status adapter_create(adapter_writer **out, const char *folder,
                           const struct adapter_config *config,
                           const struct adapter_tensors *tensors);

/** Write tensor `index` of those that adapter_create got: `whole` is f32 [shape[0], shape[1]], row
 *  by row. In any order, each once. MIMO_ERR_ARGUMENT for another index, MIMO_ERR_IO. */
mimo_status adapter_write(adapter_writer *writer, int64_t index, const float *whole);

/** Put the files in their places, the tensors first, and release the writer, whatever the result.
 *  MIMO_ERR_STATE where a tensor was not written, MIMO_ERR_IO. NULL is fine. */
mimo_status adapter_commit(adapter_writer *writer);

/** Give up: leave nothing behind, release the writer. NULL is fine. */
void adapter_discard(adapter_writer *writer);

/* Reading. */

typedef struct adapter_file adapter_file;

/** Read the configuration of the adapter in `folder`. *content is what its file holds; NULL: nobody
 *  asks. The caller releases *out with memory_release. Errors: those of adapter_config_read. */
mimo_status adapter_read_config(struct adapter_config **out, struct file_content *content,
                                const char *folder);

/** Open the tensors of the adapter in `folder`, and check that they are the model's: each once,
 *  with or without the prefix "base_model.model.", and no other, except factors of routers whose B
 *  is 0, which do nothing and are left out; and that they have the hash of the configuration, where
 *  it has one. `tensors` is copied.
 *
 *  Errors, each with the file and the tensor:
 *    MIMO_ERR_NOT_FOUND    there is no such file
 *    MIMO_ERR_IO           it is damaged; a tensor is missing, unknown, or has not 2 dimensions;
 *                          the configuration was saved with other tensors
 *    MIMO_ERR_EXISTS       a tensor is there with the prefix and without
 *    MIMO_ERR_SHAPE        a shape is another; a factor has another rank than the configuration
 *    MIMO_ERR_UNSUPPORTED  a dtype other than F32, F16 and BF16; a router's B that is not 0
 *    MIMO_ERR_MEMORY
 *  On failure *out stays as it was. */
mimo_status adapter_open(adapter_file **out, const char *folder,
                         const struct adapter_config *config,
                         const struct adapter_tensors *tensors);

/** The same for a file of tensors alone, wherever it lies, without a hash. */
mimo_status adapter_open_tensors(adapter_file **out, const char *path, int64_t rank,
                                 const struct adapter_tensors *tensors);

/** What the open file of tensors holds. Reads all of it. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status adapter_content(struct file_content *out, const adapter_file *file);

/** Read elements [first, first + count) of tensor `index` of those that adapter_open got, counted
 *  row by row, into to[count]. 16-bit elements are widened exactly. MIMO_ERR_ARGUMENT outside of
 *  the tensor, MIMO_ERR_IO. */
mimo_status adapter_read(const adapter_file *file, int64_t index, int64_t first, int64_t count,
                         float *to);

/** NULL is fine. */
void adapter_close(adapter_file *file);

#endif

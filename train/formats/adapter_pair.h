/*
 * The two files of an adapter belong together: the configuration has the hash of the tensors. A
 * save puts the tensors in their place first. Where its process dies in between, the new
 * configuration is still there, whole, as an unfinished file (train/support/unfinished_file.h), and
 * it alone is that of the tensors. So a reader takes it, and the next save gives it its name.
 *
 * Local, as all of the formats.
 */
#ifndef TRAIN_ADAPTER_PAIR_H
#define TRAIN_ADAPTER_PAIR_H

#include "train/formats/adapter_config.h"
#include "train/formats/safetensors.h"

/** The hash of an open file of tensors. Reads all of it. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status adapter_tensors_hash(adapter_hash out, const safetensors_file *file);

/** *out, the caller's to release, is the path of the configuration of the tensors in `folder`: the
 *  usual one, unless an unfinished one alone has their hash. MIMO_ERR_ARGUMENT (no folder),
 *  MIMO_ERR_MEMORY. */
mimo_status adapter_config_path(char **out, const char *folder);

/** Give an unfinished configuration that alone has the hash of the tensors its name, so that the
 *  pair is whole without this program as well. Nothing where there is none. MIMO_ERR_IO (a link
 *  that no save follows), MIMO_ERR_ARGUMENT (no folder), MIMO_ERR_MEMORY. */
mimo_status adapter_pair_complete(const char *folder);

#endif

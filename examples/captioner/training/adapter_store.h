/* The adapters of a model as files, from any topology to any other. A path that ends with ".lora"
 * is one file of LORA v1, any other a folder as PEFT writes it. */
#ifndef CAPTIONER_ADAPTER_STORE_H
#define CAPTIONER_ADAPTER_STORE_H

#include "train/model/bridged_model.h"
#include "captioner/training/lora_setup.h"

/** Read the factors of all adapters into a model that has its base. Each rank reads its own
 *  elements. Collective. Errors: those of adapter_open, or of lora_v1_open and lora_v1_match;
 *  those of same_file_agree; MIMO_ERR_IO for a value that is not finite; MIMO_ERR_ARGUMENT where
 *  the adapter was trained on another base, unless the setup takes it. */
mimo_status adapter_store_load(const char *path, const lora_setup *setup, bridged_model *model);

/** Write them. Collective: factors are gathered, rank 0 writes, and a file that it cannot
 *  write is everybody's error. */
mimo_status adapter_store_save(const char *path, const lora_setup *setup, bridged_model *model);

/** Whether adapter_store_save could write `path` now. Leaves nothing behind. Local: for rank 0. */
mimo_status adapter_store_probe(const char *path, const lora_setup *setup, bridged_model *model);

#endif

/*
 * Checkpoints in the safetensors format: every parameter whole, with its two Adam moments, whatever
 * the topology that wrote them; sizes, seed, batch and step as metadata.
 *
 *   encoder.block0.mlp.up.weight          [512, 128] F32
 *   encoder.block0.mlp.up.weight.adam_m   the same shape, as is .adam_v
 *
 * With the keys of Megatron-LM the LLM's tensors have other names (checkpoint_keys.h), and the
 * metadata say so: either kind is read.
 *
 * Of a frozen parameter there is its value alone. A run with adapters has them among its
 * parameters, and their rank, alpha and targets as metadata.
 *
 * A run that is resumed takes the model, and the samples where the other left them: the sizes, the
 * seed, the global batch that steps are counted in and the number of training samples must be the
 * same. The rest is its own affair: topology, micro-batches, what crosses the bridge, and the
 * schedule of the steps to come.
 */
#ifndef CAPTIONER_CHECKPOINT_H
#define CAPTIONER_CHECKPOINT_H

#include "captioner/training/train_step.h"

/** Write the model after `step` steps. Collective: tensors are gathered, rank 0 writes, and a file
 *  that it cannot write is everybody's error. */
mimo_status checkpoint_save(const char *path, const step_trainer *trainer, int64_t step);

/** Whether checkpoint_save could write `path` now: the path, and the room on the disk. Leaves
 *  nothing behind. Local: for rank 0. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status checkpoint_probe(const char *path, const step_trainer *trainer);

/** Read what was saved into the trainer's model. Every rank opens the file and reads its own
 *  slices. Collective; MIMO_ERR_SHAPE names what differs, with both values; MIMO_ERR_MISMATCH where
 *  the ranks have opened several files (same_file.h). */
mimo_status checkpoint_load(const char *path, step_trainer *trainer, int64_t *step);

/** Read the values of what is no adapter, of a run of any seed and batch, at any step: the sizes
 *  must be the same. Collective. The same errors. */
mimo_status checkpoint_load_base(const char *path, step_trainer *trainer);

/** Write those values with the adapters merged into them, for checkpoint_load_base. The model is as
 *  before when it returns. Collective. The second one is as checkpoint_probe. */
mimo_status checkpoint_save_merged(const char *path, const step_trainer *trainer, int64_t step);
mimo_status checkpoint_probe_merged(const char *path, const step_trainer *trainer);

#endif

/*
 * Checkpoints in the safetensors format: every parameter whole, with its two Adam moments, whatever
 * the topology that wrote them; sizes, seed and step as metadata. A run resumes on any topology.
 *
 *   encoder.block0.mlp.up.weight          [512, 128] F32
 *   encoder.block0.mlp.up.weight.adam_m   the same shape, as is .adam_v
 */
#ifndef CAPTIONER_CHECKPOINT_H
#define CAPTIONER_CHECKPOINT_H

#include "captioner_model.h"

/** Write the model after `step` steps. Collective: slices are gathered along tp, rank 0 writes, and
 *  a file that it cannot write is everybody's error. */
mimo_status checkpoint_save(const char *path, captioner_model *model, int64_t step);

/** Whether checkpoint_save could write `path` now: the path, and the room on the disk. Leaves
 *  nothing behind. Local: for rank 0. MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status checkpoint_probe(const char *path, const captioner_model *model);

/** Read what was saved into a model of the same sizes and seed. Every rank reads its own slices.
 *  Collective; MIMO_ERR_SHAPE names what differs. */
mimo_status checkpoint_load(const char *path, captioner_model *model, int64_t *step);

#endif

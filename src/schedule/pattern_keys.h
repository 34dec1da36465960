/*
 * Names of a model's tensors in three forms, by its pattern:
 *
 *   of layers  decoder.layers.NUMBER.mixer...: each layer counts. The model's own form, and that of
 *              checkpoints of patterns without groups
 *   of items   decoder.layers.ITEM.mixer...: a group counts once, as a transformer layer does. The
 *              form of checkpoints of patterns with groups; without groups it is that of layers
 *   of GPT     decoder.layers.self_attention...: no number. The tensor has one more axis, over the
 *              layers: the i-th attention and the i-th MLP are layer i
 *
 * The last two call the final norm decoder.final_layernorm, the first one decoder.final_norm. They
 * also leave out output_layer._extra_state, which is empty. Names of MTP parts, mtp.layers.PART...,
 * are the same in the first two. Pure.
 */
#ifndef MIMO_PATTERN_KEYS_H
#define MIMO_PATTERN_KEYS_H

#include "schedule/layer_pattern.h"

typedef enum mimo_key_form {
    MIMO_KEYS_OF_LAYERS,
    MIMO_KEYS_OF_ITEMS,
    MIMO_KEYS_OF_GPT,
} mimo_key_form;

typedef struct mimo_pattern_key {
    char text[256]; /* "": the form has no such tensor */
    int64_t place;  /* form of GPT: the index along the axis of layers; otherwise -1 */
} mimo_pattern_key;

/* The name of a tensor in another form. A name of no decoder layer stays as it is, the final norm
 * and the extra state apart. In groups and for GPT the name alone says whose a tensor is.
 *
 * MIMO_ERR_ARGUMENT: the pattern has no such layer, or no such layer has a tensor of that name;
 * the name is too long; the pattern has no GPT form (MTP, other layers than M * - E, both - and E,
 * other numbers of attentions and MLPs). */
mimo_status mimo_pattern_rename(mimo_pattern_key *out, const mimo_pattern *pattern,
                                mimo_key_form from, mimo_key_form to, const mimo_pattern_key *key);

/* The same for keys[count], into out[count]. MIMO_ERR_ARGUMENT also where two tensors get one
 * name. */
mimo_status mimo_pattern_rename_all(mimo_pattern_key *out, const mimo_pattern *pattern,
                                    mimo_key_form from, mimo_key_form to,
                                    const mimo_pattern_key *keys, int64_t count);

#endif

/* Which adapters a run trains: from the flags, and from the adapter that it starts from. */
#ifndef CAPTIONER_LORA_SETUP_H
#define CAPTIONER_LORA_SETUP_H

#include <mimo/comm.h>

#include "train/formats/adapter_config.h"
#include "train/support/input_file.h"
#include "captioner/training/file_wait.h"
#include "captioner/training/options.h"
#include "train/nn/layers/nn_lora.h"

typedef struct lora_setup {
    bool on;                       /* there are adapters */
    bool other_base;               /* an adapter of another base is taken */
    file_wait_limit waits;         /* of a save */
    struct adapter_config *config; /* rank, alpha, targets; NULL where there are none */
    nn_lora_selection choice;      /* the same for the layers */
} lora_setup;

/** What the options say of adapters, which they have. Local. *content gets that of the adapter's
 *  file where there is one. Errors: those of lora_setup_make, except same_file_agree's. */
mimo_status lora_setup_read(lora_setup *out, struct file_content *content,
                            const struct options *options);

/** Collective, the same on every rank. The caller zeroes *out before and releases it after,
 *  whatever the result. Errors: those of adapter_read_config, lora_v1_open and same_file_agree;
 *  MIMO_ERR_ARGUMENT where a flag differs from the adapter's own value, with both, and for targets
 *  that no linear layer of a model with these options has. */
mimo_status lora_setup_make(lora_setup *out, const struct options *options, mimo_comm *world);
void lora_setup_release(lora_setup *setup);

/** Whether a path names a file of LORA v1, which ends with ".lora", and no folder of PEFT. */
bool lora_is_v1(const char *path);

#endif

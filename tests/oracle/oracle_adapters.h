/* Which linear layers of the model under test have adapters, as the reference's sizes say. */
#ifndef ORACLE_ORACLE_ADAPTERS_H
#define ORACLE_ORACLE_ADAPTERS_H

#include "train/nn/layers/nn_lora.h"

#include "ref_model.h"

/* The choice, written to *room; NULL: there are none. */
static inline const nn_lora_selection *oracle_adapters(nn_lora_selection *room,
                                                       const ref_sizes *sizes)
{
    static const char *const head[] = {"head"};
    *room = (nn_lora_selection){
        .adapter = {sizes->adapter, sizes->adapter_alpha, REF_ADAPTER_STD, false},
        .targets = sizes->adapt_all ? NULL : head,
        .n_targets = 1};
    return sizes->adapter > 0 ? room : NULL;
}

#endif

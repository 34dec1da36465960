/* Loss on samples that training never saw, with their own pictures or with each other's. */
#ifndef CAPTIONER_EVALUATE_H
#define CAPTIONER_EVALUATE_H

#include "captioner/captions/caption_batch.h"

/** The mean token loss over items[count], item i with the picture of item (i + rotation) mod count.
 *  Where the model looks at pictures, a rotation costs. Collective. */
mimo_status evaluate_loss(bridged_model *model, const batch_item *items, int64_t count,
                          int64_t rotation, double *loss);

#endif

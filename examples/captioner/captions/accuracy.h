/* How often the model is right about pictures that it has not seen. */
#ifndef CAPTIONER_ACCURACY_H
#define CAPTIONER_ACCURACY_H

#include "captioner/captions/caption_batch.h"

/** Of some pictures: names that the model writes to the letter, and words. A word is right where
 *  each of its bytes, and what ends it, is the likeliest after the right ones before. */
typedef struct caption_accuracy {
    int64_t names, exact;
    int64_t words, right_words;
} caption_accuracy;

/** Measure it over items[count]. Collective; every rank gets the same. MIMO_ERR_MEMORY,
 *  MIMO_ERR_COMM. */
mimo_status accuracy_measure(caption_accuracy *out, bridged_model *model, const batch_item *items,
                             int64_t count);

/** places[i] is how many of the names of others[many] the model finds likelier for the picture of
 *  items[i] than that one's own name. Collective; every rank gets the same. Errors as above. */
mimo_status accuracy_places(int64_t *places, bridged_model *model, const batch_item *items,
                            int64_t count, const batch_item *others, int64_t many);

#endif

/* Names for pictures, greedily: the likeliest byte, then the likeliest after that. */
#ifndef CAPTIONER_GENERATE_H
#define CAPTIONER_GENERATE_H

#include "captioner/captions/caption_batch.h"

/** A generated name is at most this long, in bytes. */
enum { NAME_CAPACITY = 80 };

typedef struct generated_name {
    char bytes[NAME_CAPACITY + 1]; /* terminated; bytes that cannot be printed become '?' */
    int64_t length;
} generated_name;

/** Name the pictures of items[count] (their own names are not looked at), into names[count], the
 *  same on every rank. Runs the whole model once a byte: simple, and ten names take seconds.
 *  Collective. */
mimo_status generate_names(bridged_model *model, const batch_item *items, int64_t count,
                           generated_name *names);

#endif

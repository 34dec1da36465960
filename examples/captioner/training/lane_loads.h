/* How evenly the encoder's lanes were loaded in a run, for its log and its end. */
#ifndef CAPTIONER_LANE_LOADS_H
#define CAPTIONER_LANE_LOADS_H

#include <stdio.h>

#include "train/model/picture_deal.h"
#include "captioner/training/train_log.h"

/** Add what a step gave the lanes. */
void lane_loads_add(lane_rows *sums, const lane_rows *step);

/** Longest lanes against the mean; NAN where there were no pictures. */
struct train_log_balance lane_loads_balance(const lane_rows *rows);

/** Print it for a reader; nothing where there were no pictures. */
void lane_loads_print(const lane_rows *rows, FILE *stream);

#endif

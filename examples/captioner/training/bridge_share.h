/* What the bridge did in a run: between which grids, what a step moves, and how long that took. */
#ifndef CAPTIONER_BRIDGE_SHARE_H
#define CAPTIONER_BRIDGE_SHARE_H

#include <stdio.h>

#include "captioner/training/options.h"
#include "train/model/model_pass.h"

typedef struct bridge_share {
    int64_t steps;
    double moving, all; /* milliseconds of this rank: in moves, waits for other ranks included; and
                           in whole steps */
} bridge_share;

/** Add a step that took `ms`, the last one of the pass. */
void bridge_share_add(bridge_share *share, const model_pass *pass, double ms);

/** Print it for a reader. Rows are counted where each sample has one picture. Times are those of
 *  the host, where moves and nothing else are not layers: with one stage, and not on a device.
 *  Local. */
mimo_status bridge_share_print(const bridge_share *share, const model_pass *pass,
                               const struct options *options, FILE *stream);

#endif

/*
 * Every rank parses its own command line, and mpirun can start ranks with different ones. Ranks
 * that train with different seeds or sizes would train nonsense in silence: compare first.
 */
#ifndef CAPTIONER_OPTIONS_COMPARE_H
#define CAPTIONER_OPTIONS_COMPARE_H

#include <mimo/comm.h>

#include "captioner/training/options.h"

/** MIMO_OK where all ranks have the options of rank 0, --progress aside; otherwise
 *  MIMO_ERR_ARGUMENT on every rank, with the first option that differs, its two values and a rank
 *  that has the other one. Collective. */
mimo_status options_compare(const struct options *options, mimo_comm *world);

#endif

/* --schedule of the programs that train: what the stages of a pipeline do beside an encoder. */
#ifndef MIMO_TOOLS_OPTION_SCHEDULE_H
#define MIMO_TOOLS_OPTION_SCHEDULE_H

#include <mimo/schedule.h>

#include "tools/options/option_table.h"

/* Three phases are 1F1B with all micro-batches as one group of the encoder. */
#define OPTION_SCHEDULE_WORDS "1f1b|zero-bubble|interleaved[:V]|three-phases"
enum { OPTION_1F1B, OPTION_ZERO_BUBBLE, OPTION_INTERLEAVED, OPTION_THREE_PHASES };

/* Zeros: 1F1B, that was not given. */
typedef struct option_schedule {
    int word;
    int64_t chunks; /* of a stage: interleaved has several; 0 counts as 1 */
} option_schedule;

/* For the row of --schedule: its field is the word of an option_schedule, V is from 2 to `high`. */
mimo_status option_read_schedule(void *into, const option_row *row, const char *text);

/* What the LLM's stages do. */
mimo_schedule_kind option_schedule_kind(const option_schedule *schedule);

#endif

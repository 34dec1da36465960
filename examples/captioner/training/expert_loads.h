/* How evenly routers use their experts: the choices of a run's last steps, mixture by mixture. */
#ifndef CAPTIONER_EXPERT_LOADS_H
#define CAPTIONER_EXPERT_LOADS_H

#include <stdio.h>

#include "train/model/language.h"

enum { LOAD_STEPS = 100 }; /* the most steps that are summed */

typedef struct expert_loads {
    int64_t mixtures, experts; /* mixtures 0: there is nothing to report */
    int64_t steps;             /* that were summed */
    int64_t *counts;           /* [mixtures, experts] of this stage; once collected, of all */
    int64_t *gathered;         /* [stages, mixtures, experts] */
} expert_loads;

/** Local. The caller zeroes *out before and calls expert_loads_release after, whatever the result.
 *  MIMO_ERR_MEMORY. */
mimo_status expert_loads_make(expert_loads *out, const language_model *language, int stages);
void expert_loads_release(expert_loads *loads);

/** Add the counts of one step (language_adjust). */
void expert_loads_add(expert_loads *loads, const int64_t *counts);

/** Get the counts of all stages, from `stages`, the ranks along pp; NULL: there is one. Once, after
 *  the last step. Collective over them. MIMO_ERR_COMM. */
mimo_status expert_loads_collect(expert_loads *loads, mimo_comm *stages);

/** A line for each mixture: its busiest and its least used expert, by the mean. Nothing where no
 *  step was summed. */
void expert_loads_print(const expert_loads *loads, FILE *stream);

#endif

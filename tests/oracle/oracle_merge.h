/* Adapters merged into their weights: the logits stay, and merging can be undone bit by bit. */
#ifndef ORACLE_ORACLE_MERGE_H
#define ORACLE_ORACLE_MERGE_H

#include "oracle_candidate.h"

/* Merge, capture the logits of a step as "merged llm.logits", undo it, and capture whether any bit
 * of a parameter is another one. Collective. */
mimo_status oracle_merge_run(oracle_candidate *candidate, const synthetic_step *step,
                             oracle_capture *capture);

#endif

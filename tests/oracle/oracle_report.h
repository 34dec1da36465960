/* The results of the comparison: a table, JSON, and the full log. */
#ifndef ORACLE_ORACLE_REPORT_H
#define ORACLE_ORACLE_REPORT_H

#include "comparison.h"
#include "oracle_options.h"

typedef struct oracle_report {
    const oracle_options *options;
    int ranks;
    const oracle_comparison *list; /* [count] */
    int count;
    int failed_ranks;      /* ranks on which a call failed; then nothing was compared */
    const char *sentence;  /* the error of the first such rank */
    bool mutation_reached; /* some rank ran the mutated code */
} oracle_report;

/* The first phase that fails; ORACLE_PHASES where none does. */
oracle_phase oracle_report_first(const oracle_report *report);

/* Prints the table or JSON to `stream`, and all tensors to the log. Returns false where the log
 * can't be written. */
bool oracle_report_print(const oracle_report *report, FILE *stream);

#endif

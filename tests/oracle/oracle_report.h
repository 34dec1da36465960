/* What the comparison found: a table, JSON, and the full log. */
#ifndef ORACLE_ORACLE_REPORT_H
#define ORACLE_ORACLE_REPORT_H

#include "comparison.h"
#include "oracle_options.h"

typedef struct oracle_report {
    const oracle_options *options;
    int ranks;
    const oracle_comparison *list; /* [count] */
    int count;
    int failed_ranks;      /* on which a call failed; nothing was compared then */
    const char *sentence;  /* of the first of them */
    bool mutation_reached; /* the mutated code was run, on some rank */
} oracle_report;

/* The first phase that fails; ORACLE_PHASES where none does. */
oracle_phase oracle_report_first(const oracle_report *report);

/* The table or JSON to `stream`, all tensors to the log. Returns false where the log can't be
 * written. */
bool oracle_report_print(const oracle_report *report, FILE *stream);

#endif

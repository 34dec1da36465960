/* Several runs of mimo-oracle in one launch. */
#ifndef ORACLE_ORACLE_RUNS_H
#define ORACLE_ORACLE_RUNS_H

#include "oracle_options.h"

typedef struct oracle_runs {
    char *text;           /* the file; the options point into it */
    oracle_options *list; /* in the order of the file's lines */
    int count;
} oracle_runs;

/* Each line of the file holds one run's options as on the command line, with spaces between words.
 * Returns NULL, or what is wrong. The caller frees *out, whatever the result. */
const char *oracle_runs_read(oracle_runs *out, const char *path);
void oracle_runs_free(oracle_runs *runs);

#endif

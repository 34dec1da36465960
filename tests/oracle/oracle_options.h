/* The command line of mimo-oracle. */
#ifndef ORACLE_ORACLE_OPTIONS_H
#define ORACLE_ORACLE_OPTIONS_H

#include "oracle_topology.h"
#include "tools/options/option_schedule.h"
#include "tools/options/option_table.h"

typedef struct oracle_options {
    option_asked asked; /* --help and so on, in place of a run: see option_answer */
    oracle_spec spec;
    option_schedule schedule; /* as it was given; spec has what follows */
    mimo_memory memory;       /* where tensors lie */
    const char *mutation;     /* NULL: none */
    const char *log;
    const char *runs; /* a file of runs (oracle_runs.h); NULL: one run */
    uint64_t seed;
    int64_t train;         /* steps of a longer run instead of the comparison; 0: compare */
    int64_t micro_batches; /* of --same-bits with --train */
    bool self_test;        /* instead of the comparison: mimo_bridge_self_test */
    bool fast;             /* with --same-bits: its run in the fast order */
    bool sgd;              /* with --same-bits: its run by SGD, not by AdamW */
    bool json, list_mutations, list_order_mutations;
} oracle_options;

/* Returns NULL, or what is wrong with the arguments. */
const char *oracle_options_parse(oracle_options *out, int argc, char **argv);

/* All options, a row for each. */
const option_table *oracle_options_table(void);

/* The name that --executor takes. */
const char *oracle_executor_name(executor_id executor);

#endif

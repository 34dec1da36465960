/* Adapters through their files: what this topology writes, and what it gets back, by both ways. */
#ifndef ORACLE_ORACLE_ADAPTER_FILE_H
#define ORACLE_ORACLE_ADAPTER_FILE_H

#include "oracle_candidate.h"

/*
 * Write the adapters as they are to a folder of PEFT's files, and capture each factor:
 *   "file NAME"         as rank 0 reads it back whole
 *   "loaded NAME"       after each rank has read its own elements
 *   "distributed NAME"  after one rank of each tp group has read all of them for the others
 * The folder lies in $TMPDIR, and is removed. Collective.
 */
mimo_status oracle_adapter_file_run(oracle_candidate *candidate, oracle_capture *capture);

#endif

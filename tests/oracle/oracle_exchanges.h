/* What the layers of the model under test exchange in a step, against a formula of the sizes: so
 * many calls and bytes for each micro-batch, whether there are adapters or not. */
#ifndef ORACLE_ORACLE_EXCHANGES_H
#define ORACLE_ORACLE_EXCHANGES_H

#include "train/model/bridged_model.h"

#include "oracle_candidate.h"

enum { ORACLE_EXCHANGES = 2 * 5 * NN_EXCHANGE_KINDS };

extern const char *const oracle_exchange_names[ORACLE_EXCHANGES];

/* Of the schedule: steps that are others than its list says, and messages between stages. */
enum { ORACLE_WALK = 2 };
extern const char *const oracle_walk_names[ORACLE_WALK];

/* Set all counts to zero: before a step. */
void oracle_exchanges_reset(oracle_candidate *candidate);

/* After a step: capture, under each of these names, 1 plus how far the count is off the formula. */
void oracle_exchanges_capture(oracle_candidate *candidate, oracle_capture *capture);

/* The same of the trainer's whole model, each under "model NAME". */
void oracle_exchanges_capture_model(const oracle_candidate *candidate, const bridged_model *model,
                                    oracle_capture *capture);

#endif

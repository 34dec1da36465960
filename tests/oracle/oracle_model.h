/* The trainer's whole model on the grids of a topology, over a bridge of its own that knows cp and
 * sp: one training step on synthetic samples, by the schedule of the topology. */
#ifndef ORACLE_ORACLE_MODEL_H
#define ORACLE_ORACLE_MODEL_H

#include "oracle_candidate.h"

/* Whether there is such a model: none with experts, as nobody replays their choices, and with
 * adapters none that trains the rest as well. */
bool oracle_model_exists(const oracle_topology *topology, const ref_sizes *sizes);

/* The candidate's sizes and case, as this model takes them: pictures whose tokens no word parts,
 * which one micro-batch has anywhere and deals out; of several, every sentence begins with its own.
 */
ref_sizes oracle_model_sizes(const oracle_candidate *candidate);
oracle_case oracle_model_case(const oracle_candidate *candidate);

/* Take the step from the candidate's initial values. The capture gets gradients, loss, number of
 * tokens, norm and what the layers exchanged, all under "model NAME". Collective. */
mimo_status oracle_model_run(const oracle_candidate *candidate, const synthetic_step *step,
                             oracle_capture *capture);

#endif

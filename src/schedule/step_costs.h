/* Costs as text, of steps and of nodes: each a name with a whole number of any unit. Pure.
 *
 *   steps  "f=4,b=8,e=1,eb=2,head=1": the kinds of steps in any case, head and hop
 *   nodes  "pre=3,mlp.dw=4": a part of a layer, or of what stands around layers, for all passes or
 *          for one (.fwd, .replay, .bwd, .dw)
 *
 * Costs that a text does not name stay as they are, and all where it fails. MIMO_ERR_ARGUMENT: a
 * part of it is no cost. The sentence begins with "cost" or "node-cost", so that an option's dashes
 * fit before it. */
#ifndef MIMO_STEP_COSTS_H
#define MIMO_STEP_COSTS_H

#include <stdio.h>

#include <mimo/schedule.h>

mimo_status mimo_step_costs_parse(mimo_step_costs *out, const char *text);
mimo_status mimo_node_costs_parse(mimo_node_costs *out, const char *text);

/* In the form that mimo_step_costs_parse reads: those that a run of any kind of list is made of. */
void mimo_step_costs_print(FILE *stream, const mimo_step_costs *costs);

#endif

/* Costs as options have them, of steps and of nodes: each a name with a whole number of any unit.
 *
 *   steps  "f=4,b=8,e=1,eb=2,head=1": the kinds of steps in any case, head and hop
 *   nodes  "pre=3,mlp.dw=4": a part of a layer, or of what stands around layers, for all passes or
 *          for one (.fwd, .replay, .bwd, .dw)
 *
 * Costs that a text does not name stay as they are, and all where it fails. MIMO_ERR_ARGUMENT: a
 * part of it is no cost. The sentence names the option, which is --cost or --node-cost. */
#ifndef MIMO_TOOLS_OPTION_COSTS_H
#define MIMO_TOOLS_OPTION_COSTS_H

#include <stdio.h>

#include <mimo/schedule.h>

mimo_status option_read_step_costs(mimo_step_costs *out, const char *text);
mimo_status option_read_node_costs(mimo_node_costs *out, const char *text);

/* As --cost takes them: those that a run of any kind of list is made of. */
void option_print_step_costs(FILE *stream, const mimo_step_costs *costs);

#endif

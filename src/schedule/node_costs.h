/* Costs of nodes as text, "pre=3,mlp.dw=4": a part of a layer, or of what stands around layers,
 * with a whole number of any unit, for all passes or for one (.fwd, .replay, .bwd, .dw). Pure. */
#ifndef MIMO_NODE_COSTS_H
#define MIMO_NODE_COSTS_H

#include <mimo/schedule.h>

/* Costs that the text does not name stay as they are, and all where it fails. MIMO_ERR_ARGUMENT: a
 * part that is no cost. The sentence begins with "node-cost", so that an option's dashes fit before
 * it. */
mimo_status mimo_node_costs_parse(mimo_node_costs *out, const char *text);

#endif

/* Costs of steps as text, "f=4,b=8,e=1,eb=2,head=1": the kinds of steps in any case, head and hop,
 * each with a whole number of any unit. Pure. */
#ifndef MIMO_STEP_COSTS_H
#define MIMO_STEP_COSTS_H

#include <stdio.h>

#include <mimo/schedule.h>

/* Costs that the text does not name stay as they are, and all where it fails. MIMO_ERR_ARGUMENT: a
 * part that is no cost. The sentence begins with "cost", so that an option's dashes fit before
 * it. */
mimo_status mimo_step_costs_parse(mimo_step_costs *out, const char *text);

/* In the form that mimo_step_costs_parse reads: those that a run of any kind of list is made of. */
void mimo_step_costs_print(FILE *stream, const mimo_step_costs *costs);

#endif

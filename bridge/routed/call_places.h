/* Where the rows of a prepared call lie. */
#ifndef MIMO_BRIDGE_CALL_PLACES_H
#define MIMO_BRIDGE_CALL_PLACES_H

#include "bridge/routed/call_types.h"

/* Place both ends of each transfer behind bases, and say how much staging that takes. Then the
 * bases: those of an operation, with its staging. */
mimo_status mimo_call_reserve_bases(mimo_prepared_call *call, const mimo_comm_backend *backend);
mimo_status mimo_call_place(const mimo_call_maker *maker);
void mimo_call_set_bases(const mimo_prepared_call *call, const mimo_op *op, char *staging);

#endif

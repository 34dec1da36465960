/* The transfers of one phase as the messages, pushes and copies of one exchange. */
#ifndef MIMO_BRIDGE_ROUTED_MESSAGES_H
#define MIMO_BRIDGE_ROUTED_MESSAGES_H

#include "bridge/routed/transfer_types.h"

/* Fill maker->made from the transfers; maker is all 0 before. What was reserved is to be released,
 * also after an error. Local. MIMO_ERR_MEMORY, MIMO_ERR_OVERFLOW. */
mimo_status mimo_messages_make(mimo_message_maker *maker, const mimo_transfers *transfers);
void mimo_messages_release(mimo_message_maker *maker);

#endif

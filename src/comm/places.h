/* Where a process runs: its host, and the processors there. */
#ifndef MIMO_COMM_PLACES_H
#define MIMO_COMM_PLACES_H

#include <stdint.h>

/* The same for all processes of a host. */
uint64_t mimo_host_hash(void);

/* The same for all processes of a host that may run on the same processors. */
uint64_t mimo_place_hash(void);

/* On how many processors this thread may run; INT_MAX where the system does not say. */
int mimo_processors(void);

#endif

/* What the NCCL that runs offers beyond what every version has. */
#ifndef MIMO_COMM_NCCL_RUNTIME_H
#define MIMO_COMM_NCCL_RUNTIME_H

#include <nccl.h>

#include <mimo/export.h>

#include "comm/nccl/nccl_versions.h"

MIMO_BEGIN_DECLS

/* A function of the loaded NCCL, which an older one may not have: then NULL. `function` is the
 * address of a function pointer. */
void mimo_nccl_find_function(void *function, const char *name);

mimo_nccl_versions mimo_nccl_read_versions(void);

/* Write where a window begins on each of the ranks [0, count) of its communicator into at[count],
 * as addresses of this device: NULL where that rank is out of reach. Of NCCL 2.29 and later. */
ncclResult_t mimo_nccl_host_pointers(void **at, ncclWindow_t window, int count);

MIMO_END_DECLS

#endif

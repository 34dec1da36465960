/* Whether this process was forked from the one that made an object. The child has a copy of the
 * object, and its transport belongs to the parent. */
#ifndef MIMO_CORE_FORKS_H
#define MIMO_CORE_FORKS_H

#include <mimo/status.h>

/* Have forks counted from now on. The first call may fail with MIMO_ERR_MEMORY. Any thread. */
mimo_status mimo_forks_count(void);

/* How many forks led from the process of the first mimo_forks_count to this one. An object of an
 * earlier process has a smaller number. */
unsigned mimo_forks(void);

#endif

#include "captioner/training/options_compare.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* Rank 0 alone writes files, yet whether there is something to write is known to all. */
mimo_status options_compare(const struct options *options, mimo_comm *world)
{
    const option_table *table = options_table();
    int64_t count = option_values_count(table);
    option_value *mine = NULL;
    mimo_status status = memory_reserve(&mine, 2 * count, sizeof *mine);
    status = mimo_comm_agree(world, status);
    if (status != MIMO_OK) {
        memory_release(mine); /* another rank has no memory */
        return status;
    }
    option_value *first = mine + count;
    option_values(mine, table, options);
    memcpy(first, mine, (size_t)count * sizeof *mine);
    status = mimo_comm_broadcast(world, first, count * (int64_t)sizeof *first, 0, NULL);
    if (status == MIMO_OK)
        status = mimo_comm_agree(world, option_values_compare(table, mine, first));
    memory_release(mine);
    return status;
}

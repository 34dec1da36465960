/* Groups of a grid on the bridge's own communicator. */
#include "bridge/bridge_types.h"
#include "core/check.h"

mimo_status mimo_bridge_split(mimo_comm **out, mimo_bridge *bridge, const mimo_grid *grid,
                              const char *dim)
{
    int64_t index = -1, member = 0, first = mimo_grid_rank_offset(grid);
    if (bridge->rank >= first && bridge->rank < first + mimo_grid_size(grid))
        MIMO_TRY(mimo_grid_group_of(&index, &member, grid, dim, bridge->rank));
    return mimo_comm_split(out, bridge->comm, (int)index, (int)member);
}

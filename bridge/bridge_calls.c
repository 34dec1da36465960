/* What all calls of a bridge have in common: its title in their sentences, its groups, what a call
 * checks before it begins. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "core/check.h"

/* ------------------------------------ sentences ----------------------------------- */

void mimo_bridge_write_title(char title[MIMO_BRIDGE_TITLE], const char *name, int64_t number)
{
    static const char quotes[] = "bridge '...'";
    int space = MIMO_BRIDGE_TITLE - (int)sizeof quotes, length = space;
    if (!name) {
        snprintf(title, MIMO_BRIDGE_TITLE, "bridge %" PRId64, number);
    } else if (strlen(name) <= (size_t)space) {
        snprintf(title, MIMO_BRIDGE_TITLE, "bridge '%s'", name);
    } else {
        while (length > 0 && (name[length] & 0xc0) == 0x80) /* not inside a character of UTF-8 */
            length--;
        snprintf(title, MIMO_BRIDGE_TITLE, "bridge '%.*s...'", length, name);
    }
}

mimo_status mimo_bridge_prefix_error(const mimo_bridge *bridge, mimo_status status)
{
    const char *title = bridge->title;
    if (status == MIMO_OK || mimo_family_status(bridge->comm->family) != MIMO_OK ||
        strncmp(mimo_last_error(), title, strlen(title)) == 0)
        return status;
    return mimo_fail_prefix(status, "%s: ", title);
}

void mimo_call_append(char call[MIMO_CALL_TEXT], const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(call);
    va_start(arguments, format);
    vsnprintf(call + used, MIMO_CALL_TEXT - used, format, arguments);
    va_end(arguments);
}

/* ------------------------------------- calls -------------------------------------- */

mimo_status mimo_bridge_split(mimo_comm **out, mimo_bridge *bridge, const mimo_grid *grid,
                              const char *dim)
{
    int64_t index = -1, member = 0, first = mimo_grid_offset(grid);
    if (bridge->rank >= first && bridge->rank < first + mimo_grid_size(grid))
        MIMO_TRY(mimo_grid_group_of(grid, dim, bridge->rank, &index, &member));
    return mimo_comm_split(out, bridge->comm, (int)index, (int)member);
}

mimo_status mimo_bridge_check_idle(const mimo_bridge *bridge, const char *call)
{
    MIMO_CHECK(bridge->unwaited == 0, MIMO_ERR_STATE,
               "%s: an operation is in flight (%d were not waited for)", call, bridge->unwaited);
    return MIMO_OK;
}

/* Each bridge agrees on a communicator of its own. If one rank called bridge A and another bridge
 * B, each would wait for the other ranks of its own bridge. Over the parent the two calls meet, and
 * the ranks see that they differ. */
mimo_status mimo_bridge_compare_call(const mimo_bridge *bridge, const mimo_claim *claim)
{
    mimo_claim whole = *claim;
    whole.kind = MIMO_AGREE_ALWAYS;
    return mimo_agree_on(bridge->parent, &whole);
}

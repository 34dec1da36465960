#include "partition/packed_runs.h"

#include <inttypes.h>

#include "core/check.h"

mimo_status mimo_packed_check(const int32_t *cu, int64_t sequences, const char *name)
{
    MIMO_CHECK(cu[0] == 0, MIMO_ERR_SHAPE, "%s[0] is %" PRId32 ", it must be 0", name, cu[0]);
    for (int64_t i = 0; i < sequences; i++)
        MIMO_CHECK(cu[i + 1] >= cu[i], MIMO_ERR_SHAPE,
                   "%s decreases at sequence %" PRId64 ": %" PRId32 ", then %" PRId32, name, i,
                   cu[i], cu[i + 1]);
    return MIMO_OK;
}

mimo_status mimo_packed_check_multiple(const int32_t *cu, int64_t sequences, int64_t multiple,
                                       const char *name)
{
    for (int64_t i = 0; i < sequences; i++)
        MIMO_CHECK((cu[i + 1] - cu[i]) % multiple == 0, MIMO_ERR_SHAPE,
                   "sequence %" PRId64 " of %s has %" PRId32
                   " rows, not a multiple of 2*cp = %" PRId64,
                   i, name, cu[i + 1] - cu[i], multiple);
    return MIMO_OK;
}

int64_t mimo_packed_runs(mimo_run *runs, const int32_t *cu, int64_t sequences,
                         mimo_cp_coordinate cp)
{
    int64_t count = 0;
    for (int64_t i = 0; i < sequences; i++)
        count = mimo_zigzag_append(runs, count, cu[i], cu[i + 1] - cu[i], cp);
    return count;
}

/* Zigzag: a sequence has 2*cp chunks, and rank c keeps chunks c and 2cp-1-c. Under a causal mask
 * early rows cost little and late rows cost much. One chunk of each kind gives every rank the same
 * work. */
#include "partition/zigzag_runs.h"

static int64_t append(mimo_run *runs, int64_t count, int64_t global, int64_t length)
{
    int64_t local = mimo_run_rows(runs, count);
    if (length == 0)
        return count;
    if (count > 0 && runs[count - 1].global + runs[count - 1].length == global) {
        runs[count - 1].length += length;
        return count;
    }
    runs[count] = (mimo_run){local, global, length};
    return count + 1;
}

int64_t mimo_zigzag_append(mimo_run *runs, int64_t count, int64_t start, int64_t length,
                           mimo_cp_coordinate cp)
{
    if (cp.size == 1) /* not split: any length is right */
        return append(runs, count, start, length);
    int64_t chunk = length / (2 * cp.size);
    count = append(runs, count, start + cp.rank * chunk, chunk);
    return append(runs, count, start + (2 * cp.size - 1 - cp.rank) * chunk, chunk);
}

int64_t mimo_run_rows(const mimo_run *runs, int64_t count)
{
    return count > 0 ? runs[count - 1].local + runs[count - 1].length : 0;
}

bool mimo_run_clip(mimo_run *out, const mimo_run *run, int64_t first, int64_t rows)
{
    int64_t begin = run->local > first ? run->local : first;
    int64_t end = run->local + run->length;
    if (end > first + rows)
        end = first + rows;
    if (begin >= end)
        return false;
    *out = (mimo_run){begin - first, run->global + (begin - run->local), end - begin};
    return true;
}

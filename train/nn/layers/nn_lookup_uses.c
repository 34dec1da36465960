#include "train/nn/layers/nn_lookup_uses.h"

nn_uses nn_uses_at(const int64_t *numbers, int64_t n, int64_t count)
{
    return (nn_uses){
        .order = numbers + n, .entry = numbers + 2 * n, .begin = numbers + 3 * n, .count = count};
}

/* A counting sort over the entries that occur, in the order of their first use. */
int64_t nn_uses_fill(int64_t *numbers, int64_t *place, const int64_t *ids, int64_t n)
{
    int64_t *copied = numbers, *order = numbers + n;
    int64_t *entry = numbers + 2 * n, *begin = numbers + 3 * n;
    int64_t count = 0;
    for (int64_t k = 0; k <= n; k++)
        begin[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        copied[i] = ids[i];
        if (place[ids[i]] < 0) {
            place[ids[i]] = count;
            entry[count++] = ids[i];
        }
        begin[place[ids[i]] + 1]++;
    }
    for (int64_t k = 0; k < count; k++)
        begin[k + 1] += begin[k];
    for (int64_t i = n; i-- > 0;) /* from the last id: begin[k + 1] sinks to the start of k */
        order[--begin[place[ids[i]] + 1]] = i;
    for (int64_t k = 0; k < count; k++) {
        begin[k] = begin[k + 1];
        place[entry[k]] = -1;
    }
    begin[count] = n;
    return count;
}

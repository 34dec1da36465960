/* Positions: which of them a cell has, as runs, and which cell has a position. */
#include "layout/layout_types.h"
#include "core/search.h"

static mimo_range segment_range(const mimo_layout *layout, int64_t segment)
{
    const int64_t *first = layout->first_position;
    return first ? (mimo_range){first[segment], first[segment + 1] - first[segment]}
                 : (mimo_range){0, layout->seq};
}

/* Every cp rank holds the same share of each segment. So the local rows of a segment begin at its
 * first position divided by cp. */
int mimo_layout_cell_runs(const mimo_layout *layout, const mimo_cell *cell, int64_t segment,
                          mimo_run *runs)
{
    mimo_run zigzag[MIMO_LAYOUT_BOXES];
    mimo_range range = segment_range(layout, segment);
    int64_t whole = mimo_zigzag_append(zigzag, 0, range.first, range.count,
                                       (mimo_cp_coordinate){cell->cp, layout->dims.cp.size});
    int count = 0;
    for (int64_t i = 0; i < whole; i++) {
        zigzag[i].local += range.first / layout->dims.cp.size;
        count += mimo_run_clip(&runs[count], &zigzag[i], cell->tp * layout->shard, layout->shard);
    }
    return count;
}

/* Empty segments begin where the next one does. */
int64_t mimo_layout_segment_of(const mimo_layout *layout, int64_t position)
{
    const int64_t *first = layout->first_position;
    return first ? mimo_last_at_most(first, 1, layout->segments, position) : 0;
}

/* The inverse of the zigzag map: the cp coordinate of a position, and its row in that cp shard. */
static int64_t cp_of(const mimo_layout *layout, int64_t position, int64_t *row)
{
    int64_t cp = layout->dims.cp.size;
    mimo_range range = segment_range(layout, mimo_layout_segment_of(layout, position));
    *row = position;
    if (cp == 1)
        return 0;
    int64_t length = range.count / (2 * cp), within = position - range.first;
    int64_t chunk = within / length;
    *row = range.first / cp + within - chunk * length + (chunk < cp ? 0 : length);
    return chunk < cp ? chunk : 2 * cp - 1 - chunk;
}

void mimo_layout_locate(const mimo_layout *layout, int64_t position, mimo_cell *cell)
{
    int64_t row;
    cell->cp = cp_of(layout, position, &row);
    cell->tp = row / layout->shard;
    cell->contribution = 0;
}

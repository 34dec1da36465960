#include "train/nn/params/nn_placement.h"

int64_t nn_placement_elements(const nn_placement *placement)
{
    return placement->shape[0] * placement->shape[1];
}

int64_t nn_placement_parts(const nn_placement *placement)
{
    return placement->cut < 0 ? 1 : placement->ranks;
}

void nn_placement_local(const nn_placement *placement, int rank, int64_t local[2], int64_t *start)
{
    local[0] = placement->shape[0];
    local[1] = placement->shape[1];
    *start = 0;
    if (placement->cut < 0)
        return;
    local[placement->cut] /= placement->ranks;
    *start = rank * local[placement->cut];
}

int64_t nn_placement_runs(const nn_placement *placement)
{
    return placement->cut == 1 ? placement->shape[0] : 1;
}

nn_run nn_placement_run(const nn_placement *placement, int rank, int64_t index)
{
    int64_t local[2], start;
    nn_placement_local(placement, rank, local, &start);
    if (placement->cut == 1)
        return (nn_run){index * placement->shape[1] + start, index * local[1], local[1]};
    return (nn_run){start * placement->shape[1], 0, local[0] * local[1]};
}

int64_t nn_packing_unpacked(const nn_packing *packing, int64_t rows, int64_t row)
{
    if (packing->groups == 0)
        return row;
    int64_t unit = rows / (packing->groups * packing->pieces);
    int64_t group = row / (packing->pieces * unit), piece = row / unit % packing->pieces;
    return (piece * packing->groups + group) * unit + row % unit;
}

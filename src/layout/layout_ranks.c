/* Ranks, cells and samples: which cell a rank is in, which ranks and which samples a cell has. */
#include "layout/layout_types.h"
#include "core/search.h"

/* Ranks fit 32 bits (mimo_grid_create). Division of 32 bits is several times faster than of 64, and
 * planning consists of such divisions. */
static int64_t digit(const mimo_layout *layout, int64_t rank, mimo_axis axis)
{
    if (axis.size == 1)
        return 0;
    return (uint32_t)(rank - layout->offset) / (uint32_t)axis.stride % (uint32_t)axis.size;
}

static bool holds_rows(const mimo_layout *layout, int64_t rank)
{
    return rank >= layout->offset && rank - layout->offset < layout->ranks &&
           digit(layout, rank, layout->pp) == 0;
}

/* The index that mimo_axes_offset takes, of a rank. */
static int64_t index_along(const mimo_layout *layout, int64_t rank, const mimo_axes *axes,
                           int64_t above)
{
    int64_t index = above;
    for (int i = axes->count - 1; i >= 0; i--)
        index = index * axes->axis[i].size + digit(layout, rank, axes->axis[i]);
    return index;
}

bool mimo_layout_cell(mimo_cell *out, const mimo_layout *layout, int64_t rank)
{
    const mimo_cell_dims *dims = &layout->dims;
    if (!holds_rows(layout, rank))
        return false;
    *out = (mimo_cell){digit(layout, rank, dims->dp), digit(layout, rank, dims->cp),
                       digit(layout, rank, dims->tp),
                       index_along(layout, rank, &dims->contribution, 0)};
    return true;
}

int64_t mimo_layout_first_rank(const mimo_layout *layout, const mimo_cell *cell)
{
    const mimo_cell_dims *dims = &layout->dims;
    return layout->offset + cell->dp * dims->dp.stride + cell->cp * dims->cp.stride +
           cell->tp * dims->tp.stride + mimo_axes_offset(&dims->contribution, cell->contribution);
}

int64_t mimo_axes_offset(const mimo_axes *axes, int64_t index)
{
    int64_t offset = 0;
    uint32_t rest = (uint32_t)index;
    for (int i = 0; rest > 0; i++) {
        uint32_t size = (uint32_t)axes->axis[i].size;
        offset += rest % size * axes->axis[i].stride;
        rest /= size;
    }
    return offset;
}

bool mimo_layout_reader(int64_t *out, const mimo_layout *layout, int64_t rank)
{
    if (!holds_rows(layout, rank))
        return false;
    *out = index_along(layout, rank, &layout->readers, digit(layout, rank, layout->dims.dp));
    return true;
}

/* ----------------------------------------- samples ------------------------------------------ */

mimo_range mimo_layout_samples(const mimo_layout *layout, int64_t dp)
{
    const int64_t *first = layout->first_sample;
    if (first)
        return (mimo_range){first[dp], first[dp + 1] - first[dp]};
    int64_t least = layout->batch / layout->dims.dp.size,
            more = layout->batch % layout->dims.dp.size;
    return (mimo_range){dp * least + (dp < more ? dp : more), least + (dp < more)};
}

int64_t mimo_layout_dp_of(const mimo_layout *layout, int64_t sample)
{
    /* A coordinate without samples begins where the next one does. */
    if (layout->first_sample)
        return mimo_last_at_most(layout->first_sample, 1, layout->dims.dp.size, sample);
    int64_t least = layout->batch / layout->dims.dp.size,
            more = layout->batch % layout->dims.dp.size;
    int64_t in_larger = more * (least + 1); /* samples of the ranks that hold one more */
    if (sample < in_larger)
        return sample / (least + 1);
    return more + (sample - in_larger) / least;
}

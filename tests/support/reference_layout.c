#include "reference_layout.h"

#include <stdlib.h>

#include <criterion/criterion.h>

#include "reference_grid.h"

/* Samples are dealt out in runs: coordinate after coordinate, the first batch mod dp get one
 * more. */
static int64_t deal(int64_t batch, int64_t dp, int64_t d, int64_t *first)
{
    int64_t next = 0, count = 0;
    for (int64_t i = 0; i <= d; i++) {
        *first = next;
        count = batch / dp + (i < batch % dp ? 1 : 0);
        next += count;
    }
    return count;
}

/* `relative` counts from the grid's first rank. */
static void fill_tile(reference_tile *tile, const layout_case *layout,
                      const reference_layout *reference, int64_t relative)
{
    const char *grid = layout->grid;
    int64_t seq = reference->seq, b0 = 0, ns = seq;
    int64_t nb = deal(reference->batch, ref_size(grid, "dp"), ref_coord(grid, "dp", relative), &b0);
    if (layout->partition)
        ns = seq / ref_size(grid, "cp") / (layout->sp ? ref_size(grid, "tp") : 1);
    tile->rows = nb * ns;
    tile->b = calloc((size_t)tile->rows + 1, sizeof *tile->b);
    tile->s = calloc((size_t)tile->rows + 1, sizeof *tile->s);
    for (int64_t i = 0; i < ns; i++) {
        int64_t s = layout->partition ? ref_position(grid, relative, seq, layout->sp, i) : i;
        for (int64_t j = 0; j < nb; j++) {
            int64_t row = layout->order == MIMO_ROWS_SBH ? i * nb + j : j * ns + i;
            tile->b[row] = b0 + j;
            tile->s[row] = s;
        }
    }
    if (reference->classes > 1)
        tile->klass = ref_coord(grid, "cp", relative);
}

reference_layout reference_of(const layout_case *layout, int64_t batch, int64_t seq)
{
    reference_layout reference = {batch, seq, layout->offset + ref_ranks(layout->grid), 1, NULL};
    if (layout->partial && !layout->partition)
        reference.classes = ref_size(layout->grid, "cp");
    reference.tiles = calloc((size_t)reference.end, sizeof *reference.tiles);
    for (int64_t rank = layout->offset; rank < reference.end; rank++)
        if (ref_coord(layout->grid, "pp", rank - layout->offset) == 0)
            fill_tile(&reference.tiles[rank], layout, &reference, rank - layout->offset);
    return reference;
}

void reference_release(reference_layout *reference)
{
    for (int64_t rank = 0; rank < reference->end; rank++) {
        free(reference->tiles[rank].b);
        free(reference->tiles[rank].s);
    }
    free(reference->tiles);
}

mimo_layout *layout_of(const layout_case *layout, int64_t batch, int64_t seq, mimo_grid **grid)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *made = NULL;
    cr_assert_eq(mimo_grid_parse(grid, layout->grid, layout->offset), MIMO_OK, "%s: %s",
                 layout->grid, mimo_last_error());
    rule.sp = layout->sp;
    desc.grid = *grid;
    desc.order = layout->order;
    desc.batch = batch;
    desc.seq = seq;
    desc.partition = layout->partition ? &rule : NULL;
    desc.cp_copies = layout->partial ? MIMO_COPIES_PARTIAL : MIMO_COPIES_EQUAL;
    cr_assert_eq(mimo_layout_create(&made, &desc), MIMO_OK, "%s: %s", layout->grid,
                 mimo_last_error());
    return made;
}

/* The parser of grid specs, and the arithmetic on whatever it accepts. Input: an offset (4 bytes),
 * a rank (4 bytes), the spec, a line feed, a set of dimensions. */
#include <inttypes.h>

#include <mimo/grid.h>

#include "fuzz_input.h"

enum { MOST_MEMBERS = 1 << 16 };

/* The text of a grid is a spec of the same grid, unless the text was truncated. */
static void print_and_parse(const mimo_grid *grid, size_t spec_length)
{
    char text[512], other[512];
    mimo_grid *again = NULL;
    mimo_grid_text(text, sizeof text, grid);
    if (spec_length >= sizeof text / 2)
        return;
    mimo_status status = mimo_grid_create_text(&again, text, mimo_grid_rank_offset(grid));
    FUZZ_EXPECT(status == MIMO_OK, "the grid prints itself as '%s', which is refused", text);
    FUZZ_EXPECT(mimo_grid_ndims(again) == mimo_grid_ndims(grid), "'%s' has other dims", text);
    for (int i = 0; i < mimo_grid_ndims(grid); i++)
        FUZZ_EXPECT(strcmp(mimo_grid_dim(grid, i).name, mimo_grid_dim(again, i).name) == 0 &&
                        mimo_grid_dim(grid, i).size == mimo_grid_dim(again, i).size,
                    "dimension %d of '%s' is another", i, text);
    FUZZ_EXPECT(strcmp(mimo_grid_text(other, sizeof other, again), text) == 0,
                "'%s' prints itself as '%s'", text, other);
    mimo_grid_destroy(again);
}

static void walk_rank(const mimo_grid *grid, int64_t rank)
{
    int64_t back = -1;
    int64_t *coords = calloc((size_t)mimo_grid_ndims(grid), sizeof *coords);
    FUZZ_EXPECT(coords, "out of memory");
    mimo_status status = mimo_grid_coords(coords, grid, rank);
    FUZZ_EXPECT((status == MIMO_OK) == mimo_grid_contains(grid, rank), "rank %" PRId64, rank);
    if (status == MIMO_OK)
        FUZZ_EXPECT(mimo_grid_rank(&back, grid, coords) == MIMO_OK && back == rank,
                    "rank %" PRId64 " comes back as %" PRId64, rank, back);
    free(coords);
}

/* The group of a rank along the set holds the rank, at the index that the library returned. */
static void walk_group(const mimo_grid *grid, const char *set, int64_t rank)
{
    int64_t groups, size, index, place;
    if (mimo_grid_group_count(&groups, &size, grid, set) != MIMO_OK)
        return;
    FUZZ_EXPECT(groups * size == mimo_grid_size(grid), "%" PRId64 " groups of %" PRId64, groups,
                size);
    if (size > MOST_MEMBERS || !mimo_grid_contains(grid, rank))
        return;
    int64_t *ranks = calloc((size_t)size, sizeof *ranks);
    FUZZ_EXPECT(ranks, "out of memory");
    FUZZ_EXPECT(mimo_grid_group_of(&index, &place, grid, set, rank) == MIMO_OK && index >= 0 &&
                    index < groups && place >= 0 && place < size,
                "rank %" PRId64 " has no group along '%s'", rank, set);
    FUZZ_EXPECT(mimo_grid_group_at(ranks, grid, set, index) == MIMO_OK && ranks[place] == rank,
                "rank %" PRId64 " is not in its group along '%s'", rank, set);
    free(ranks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    mimo_grid *grid = NULL;
    int64_t offset = fuzz_word(&input), rank = fuzz_word(&input);
    char *spec = calloc(input.size + 1, 1);
    FUZZ_EXPECT(spec, "out of memory");
    memcpy(spec, input.data, input.size);
    size_t length = strcspn(spec, "\n");
    const char *set = spec[length] ? spec + length + 1 : "";
    spec[length] = '\0';
    if (mimo_grid_create_text(&grid, spec, offset) == MIMO_OK) {
        int64_t within = offset + (int64_t)((uint64_t)rank % (uint64_t)mimo_grid_size(grid));
        print_and_parse(grid, length);
        walk_rank(grid, rank);
        walk_rank(grid, within);
        walk_group(grid, set, within);
    } else {
        FUZZ_EXPECT(!grid && *mimo_last_error(), "a failure without a sentence");
    }
    mimo_grid_destroy(grid);
    free(spec);
    return 0;
}

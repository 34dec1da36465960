/* Connected grids on real ranks: members and order of every group, ranks outside the grid, views,
 * and disagreement between ranks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "mpi_test.h"

/* The test destroys it. NULL after a noted failure, which mimo_grid_destroy accepts. */
static mimo_grid *made(const char *spec, int64_t offset)
{
    mimo_grid *grid = NULL;
    MPI_EXPECT_OK(mimo_grid_create_text(&grid, spec, offset));
    return grid;
}

static mimo_grid *connected(const char *spec, int64_t offset)
{
    mimo_grid *grid = made(spec, offset);
    MPI_EXPECT_OK(mimo_grid_connect(grid, mpi_test_comm()));
    MPI_EXPECT(mimo_grid_comm(grid) == mpi_test_comm(), "not the communicator of connect");
    return grid;
}

static int64_t word_of(int64_t rank)
{
    return (int64_t)(mimo_mix64((uint64_t)rank + 1) >> 16); /* sums of 8 do not overflow */
}

/* The collectives of a group show who is in it, and in which order. */
static void check_members(const mimo_grid *grid, const char *dims, mimo_comm *group)
{
    int64_t index, place, size, mine = mpi_test_rank(), sum = word_of(mine), expected = 0;
    int64_t ranks[16], gathered[16];
    MPI_EXPECT_OK(mimo_grid_group_of(&index, &place, grid, dims, mine));
    MPI_EXPECT_OK(mimo_grid_group_count(NULL, &size, grid, dims));
    MPI_EXPECT_OK(mimo_grid_group_at(ranks, grid, dims, index));
    MPI_EXPECT(mimo_comm_size(group) == size && mimo_comm_rank(group) == place,
               "group along %s: place %d of %d, not %" PRId64 " of %" PRId64, dims,
               mimo_comm_rank(group), mimo_comm_size(group), place, size);
    if (mimo_comm_size(group) > 16)
        return;
    MPI_EXPECT_OK(mimo_comm_allgather(group, gathered, &mine, sizeof mine, NULL));
    MPI_EXPECT_OK(mimo_comm_allreduce(group, &sum, 1, MIMO_I64, MIMO_SUM, NULL));
    for (int64_t i = 0; i < size; i++) {
        expected += word_of(ranks[i]);
        MPI_EXPECT(gathered[i] == ranks[i],
                   "group along %s, place %" PRId64 ": rank %" PRId64 ", not %" PRId64, dims, i,
                   gathered[i], ranks[i]);
    }
    MPI_EXPECT(sum == expected, "sum over the group along %s: %" PRId64 ", not %" PRId64, dims, sum,
               expected);
}

/* The names of a set, such as "dp,tp", with the last dimension first: the order must not matter. */
static void write_set(char *text, const mimo_grid *grid, unsigned set)
{
    text[0] = '\0';
    for (int i = mimo_grid_ndims(grid) - 1; i >= 0; i--)
        if (set >> i & 1) {
            strcat(text, *text ? "," : "");
            strcat(text, mimo_grid_dim(grid, i).name);
        }
}

static void check_all_groups(const char *spec, int64_t offset)
{
    mimo_grid *grid = connected(spec, offset);
    char dims[64];
    bool inside = mimo_grid_contains(grid, mpi_test_rank());
    unsigned sets = 1u << mimo_grid_ndims(grid);
    for (unsigned set = 1; set < sets; set++) {
        mimo_comm *group = NULL;
        write_set(dims, grid, set);
        MPI_EXPECT_STATUS(mimo_grid_group(&group, grid, dims), MIMO_ERR_NOT_FOUND);
        MPI_EXPECT_OK(mimo_grid_create_group(grid, dims));
        MPI_EXPECT_STATUS(mimo_grid_create_group(grid, dims), MIMO_ERR_EXISTS);
    }
    for (unsigned set = 1; set < sets; set++) { /* all alive at once */
        mimo_comm *group = NULL;
        write_set(dims, grid, set);
        MPI_EXPECT_STATUS(mimo_grid_group(&group, grid, dims), inside ? MIMO_OK : MIMO_ERR_GRID);
        MPI_EXPECT(inside == (group != NULL), "group %p", (void *)group);
        if (group)
            check_members(grid, dims, group);
    }
    mimo_grid_destroy(grid);
}

MPI_TEST(grid, groups)
{
    static const char *const orders[] = {"tp=%d,cp=%d,pp=1,dp=%d", "dp=%d,x=%d,tp=%d"};
    int size = mpi_test_size();
    char spec[64];
    for (int a = 1; a <= size; a++)
        for (int b = 1; a * b <= size; b++)
            for (int o = 0; o < 2 && size % (a * b) == 0; o++) {
                snprintf(spec, sizeof spec, o ? orders[1] : orders[0], a, b, size / (a * b));
                check_all_groups(spec, 0);
            }
}

MPI_TEST(grid, ranks_outside_the_grid)
{
    int size = mpi_test_size();
    char spec[64];
    for (int offset = 0; offset < size; offset++) {
        int ranks = size - offset > 1 ? (size - offset) / 2 * 2 : 1;
        snprintf(spec, sizeof spec, "tp=%d,dp=%d", ranks > 1 ? 2 : 1, ranks > 1 ? ranks / 2 : 1);
        check_all_groups(spec, offset);
    }
}

MPI_TEST(grid, keys_ignore_the_written_order)
{
    mimo_comm *one = NULL, *other = NULL;
    char spec[64];
    snprintf(spec, sizeof spec, "tp=1,cp=1,dp=%d", mpi_test_size());
    mimo_grid *grid = connected(spec, 0);
    MPI_EXPECT_OK(mimo_grid_create_group(grid, "dp,tp"));
    MPI_FAILS(mimo_grid_create_group(grid, "tp,dp"), MIMO_ERR_EXISTS, "'tp,dp'");
    MPI_EXPECT_OK(mimo_grid_group(&one, grid, "dp,tp"));
    MPI_EXPECT_OK(mimo_grid_group(&other, grid, "tp,dp"));
    MPI_EXPECT(one && one == other, "%p and %p", (void *)one, (void *)other);
    /* The same members, but another set: a dimension of size 1 is part of the key. */
    MPI_EXPECT_STATUS(mimo_grid_group(&other, grid, "dp"), MIMO_ERR_NOT_FOUND);
    MPI_EXPECT_OK(mimo_grid_create_group(grid, "dp"));
    MPI_EXPECT_OK(mimo_grid_group(&other, grid, "dp"));
    MPI_EXPECT(one != other, "dp and tp,dp are one group");
    mimo_grid_destroy(grid);
}

MPI_TEST(grid, states)
{
    mimo_comm *comm = mpi_test_comm(), *group = NULL;
    int size = mpi_test_size();
    char spec[64], words[64];
    snprintf(spec, sizeof spec, "dp=%d", size);
    mimo_grid *grid = made(spec, 0), *large = made(spec, 3);
    MPI_FAILS(mimo_grid_create_group(grid, "dp"), MIMO_ERR_STATE, spec);
    MPI_EXPECT_STATUS(mimo_grid_group(&group, grid, "dp"), MIMO_ERR_STATE);
    MPI_EXPECT_STATUS(mimo_grid_connect(grid, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_grid_connect(NULL, comm), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_grid_connect(large, comm), MIMO_ERR_GRID);
    snprintf(words, sizeof words, "needs %d ranks, and there are %d", size + 3, size);
    MPI_EXPECT_SENTENCE(words);
    MPI_EXPECT(!mimo_grid_comm(large), "connected after a failure");
    MPI_EXPECT_OK(mimo_grid_connect(grid, comm));
    MPI_EXPECT_STATUS(mimo_grid_connect(grid, comm), MIMO_ERR_STATE);
    MPI_EXPECT_STATUS(mimo_grid_create_group(grid, "dp,dp"), MIMO_ERR_GRID);
    MPI_EXPECT_STATUS(mimo_grid_create_group(grid, ""), MIMO_ERR_GRID);
    MPI_EXPECT_STATUS(mimo_grid_create_group(grid, "cp"), MIMO_ERR_GRID);
    MPI_EXPECT_STATUS(mimo_grid_create_group(grid, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_grid_create_group(NULL, "dp"), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_grid_group(&group, grid, "cp"), MIMO_ERR_GRID);
    MPI_EXPECT_STATUS(mimo_grid_group(NULL, grid, "dp"), MIMO_ERR_ARGUMENT);
    MPI_EXPECT(!group, "a failed call set its output");
    mimo_grid_destroy(large);
    mimo_grid_destroy(grid);
}

/* Any mistake of one rank is the same error on all ranks. The next call works. */
MPI_TEST(grid, ranks_that_disagree)
{
    mimo_comm *comm = mpi_test_comm(), *group = NULL;
    int rank = mpi_test_rank(), size = mpi_test_size(), last = size - 1;
    char spec[64], words[192];
    snprintf(spec, sizeof spec, "tp=1,dp=%d", size);
    mimo_grid *grid = made(spec, 0), *other = made(rank == last ? "tp=1,dp=1" : spec, 0);
    mimo_grid *shifted = made("tp=1,dp=1", rank == last);

    MPI_EXPECT_STATUS(mimo_grid_connect(other, comm), MIMO_ERR_MISMATCH);
    snprintf(words, sizeof words,
             "rank %d called connect grid tp=1,dp=1 at offset 0, rank 0 called connect grid %s",
             last, spec);
    MPI_EXPECT_SENTENCE(words);
    MPI_FAILS(mimo_grid_connect(shifted, comm), MIMO_ERR_MISMATCH, "offset 1");
    MPI_EXPECT_STATUS(mimo_grid_connect(rank == last ? NULL : grid, comm), MIMO_ERR_ARGUMENT);

    MPI_EXPECT_OK(mimo_grid_connect(grid, comm));
    MPI_EXPECT_STATUS(mimo_grid_create_group(grid, rank == last ? "tp" : "dp"), MIMO_ERR_MISMATCH);
    snprintf(words, sizeof words,
             "rank %d called create_group 'tp' of grid %s, rank 0 called create_group 'dp'", last,
             spec);
    MPI_EXPECT_SENTENCE(words);
    MPI_EXPECT_STATUS(mimo_grid_create_group(grid, rank == last ? "dp,cp" : "dp"), MIMO_ERR_GRID);
    snprintf(words, sizeof words, "rank %d: the set of dimensions 'dp,cp' names 'cp'", last);
    MPI_EXPECT_SENTENCE(words);

    MPI_EXPECT_STATUS(mimo_grid_group(&group, grid, "dp"), MIMO_ERR_NOT_FOUND);
    MPI_EXPECT_OK(mimo_grid_create_group(grid, rank == last ? "tp,dp" : "dp,tp"));
    MPI_EXPECT_OK(mimo_grid_group(&group, grid, "dp,tp"));
    if (group)
        check_members(grid, "dp,tp", group);
    mimo_grid_destroy(shifted);
    mimo_grid_destroy(other);
    mimo_grid_destroy(grid);
}

/* What dimensions mean is part of what ranks compare, and is fixed from then on. */
MPI_TEST(grid, copies)
{
    mimo_grid *grid = made("x=2,dp=1", 0);
    if (mpi_test_rank() == 1)
        MPI_EXPECT_OK(mimo_grid_set_copies(grid, "x"));
    MPI_FAILS(mimo_grid_connect(grid, mpi_test_comm()), MIMO_ERR_MISMATCH,
              "rank 1 called connect grid x=2:copies,dp=1 at offset 0");
    MPI_EXPECT_OK(mimo_grid_set_copies(grid, "x"));
    MPI_EXPECT_OK(mimo_grid_connect(grid, mpi_test_comm()));
    MPI_FAILS(mimo_grid_set_copies(grid, ""), MIMO_ERR_STATE, "grid x=2:copies,dp=1 is connected");
    mimo_grid_destroy(grid);
}

/* Shared groups. Views that differ between ranks are found when a group is created. */
MPI_TEST(grid, views)
{
    mimo_comm *comm = mpi_test_comm(), *mine = NULL, *base_group = NULL, *experts = NULL;
    int half = mpi_test_size() / 2;
    char spec[64];
    snprintf(spec, sizeof spec, "tp=2,cp=1,dp=%d", half);
    mimo_dim dims[] = {{"ep", 2}, {"edp", 1}, {"dp", half}}, flat[] = {{"ep", 2 * half}};
    mimo_grid *base = made(spec, 0), *view = NULL, *late = NULL, *odd = NULL;
    MPI_EXPECT_OK(mimo_grid_create_view(&view, base, "experts", dims, 3));
    MPI_EXPECT_STATUS(mimo_grid_create_group(view, "dp"), MIMO_ERR_STATE);
    MPI_FAILS(mimo_grid_connect(view, comm), MIMO_ERR_STATE, "'experts'");
    MPI_EXPECT_OK(mimo_grid_connect(base, comm));
    MPI_EXPECT(mimo_grid_comm(view) == comm, "a view has its base's communicator");

    /* dp is in the base and in the view: one group, whichever of them creates it. */
    MPI_EXPECT_OK(mimo_grid_create_group(view, "dp"));
    MPI_EXPECT_STATUS(mimo_grid_create_group(base, "dp"), MIMO_ERR_EXISTS);
    MPI_EXPECT_STATUS(mimo_grid_create_group(view, "dp"), MIMO_ERR_EXISTS);
    MPI_EXPECT_OK(mimo_grid_group(&mine, view, "dp"));
    MPI_EXPECT_OK(mimo_grid_group(&base_group, base, "dp"));
    MPI_EXPECT(mine && mine == base_group, "%p and %p", (void *)mine, (void *)base_group);

    /* ep and "ep,dp" are the view's own; the base does not know them. */
    MPI_EXPECT_OK(mimo_grid_create_group(view, "dp,ep"));
    MPI_EXPECT_OK(mimo_grid_create_group(view, "ep"));
    MPI_EXPECT_STATUS(mimo_grid_group(&experts, base, "ep"), MIMO_ERR_GRID);
    MPI_EXPECT_OK(mimo_grid_group(&experts, view, "ep"));
    if (experts)
        check_members(view, "ep", experts);

    /* The same name in two views makes two keys. */
    MPI_EXPECT_OK(mimo_grid_create_view(&late, base, "late", flat, 1));
    MPI_EXPECT_STATUS(mimo_grid_group(&mine, late, "ep"), MIMO_ERR_NOT_FOUND);
    MPI_EXPECT_OK(mimo_grid_create_group(late, "ep"));
    MPI_EXPECT_OK(mimo_grid_group(&mine, late, "ep"));
    MPI_EXPECT(mine != experts && mimo_comm_size(mine) == 2 * half, "group of another view");

    /* One name and one key, with another factorisation on rank 1. */
    int64_t here = mpi_test_rank() == 1 ? 2 * half : 1;
    mimo_dim uneven[] = {{"a", here}, {"b", 2 * half / here}};
    MPI_EXPECT_OK(mimo_grid_create_view(&odd, base, "odd", uneven, 2));
    MPI_FAILS(mimo_grid_create_group(odd, "a"), MIMO_ERR_MISMATCH,
              "rank 1 called create_group 'a' of grid a=");
    mimo_grid_destroy(base);
}

/* Who speaks for each tensor of a store, and whole tensors from those and back: of layers cut over
 * tp, of experts on other ranks, of the factors of their adapters. */
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"
#include "train/nn/nn.h"
#include "train/nn/params/nn_whole.h"

enum { EXPERTS = 8, ROWS = 6, COLUMNS = 8, ELEMENTS = ROWS * COLUMNS, OF_EXPERT = 3, DENSE = 3 };
enum { TENSORS = DENSE + EXPERTS * OF_EXPERT };

/* What a store has: of the LLM's grid first, then of each expert. */
static const nn_rule dense_rules[DENSE] = {NN_REPLICATED, NN_SHARDED, NN_PARTIAL};
static const nn_rule expert_rules[OF_EXPERT] = {NN_EXPERT_REPLICATED, NN_EXPERT_SHARDED,
                                                NN_EXPERT_PARTIAL};

/* One rank's store under two grids. */
typedef struct owners_bed {
    mimo_grid *llm, *view;
    nn_params *params;
    nn_owners owners;
} owners_bed;

static int coordinate(const mimo_grid *grid, const char *dim)
{
    int64_t at = 0;
    MPI_EXPECT_OK(mimo_grid_coord(&at, grid, mpi_test_rank(), dim));
    return (int)at;
}

static void open_grids(owners_bed *bed, const char *llm, int etp, int ep)
{
    const mimo_dim dims[] = {{"etp", etp}, {"ep", ep}, {"edp", mpi_test_size() / (etp * ep)}};
    bed->llm = mpi_test_grid(llm, 0);
    MPI_EXPECT_OK(mimo_grid_create_view(&bed->view, bed->llm, NN_EXPERT_GRID, dims, 3));
}

static nn_params_desc store_of(const owners_bed *bed)
{
    return (nn_params_desc){
        .name = "llm",
        .module = MIMO_DST,
        .tp_rank = coordinate(bed->llm, "tp"),
        .tp_size = (int)mimo_grid_dim_size(bed->llm, "tp"),
        .experts = {coordinate(bed->view, "etp"), (int)mimo_grid_dim_size(bed->view, "etp"),
                    coordinate(bed->view, "ep"), (int)mimo_grid_dim_size(bed->view, "ep")},
        .seed = 5};
}

static void add_tensor(nn_params *params, int number, int expert, nn_rule rule)
{
    char name[64];
    int index;
    const nn_expert_coords *coords = nn_params_experts(params);
    snprintf(name, sizeof name, expert < 0 ? "llm.w%d" : "llm.w%d.experts.%d", number, expert);
    nn_param_desc desc = {.name = name,
                          .ndim = 2,
                          .shape = {ROWS, COLUMNS},
                          .rule = rule,
                          .shard_dim = 1,
                          .elsewhere = expert >= 0 &&
                                       expert / (EXPERTS / coords->ep_size) != coords->ep_rank,
                          .init = NN_INIT_NORMAL,
                          .std = 1};
    MPI_EXPECT_OK(nn_params_add(params, &desc, &index));
}

static nn_params *make_store(const nn_params_desc *desc)
{
    nn_params *params = NULL;
    MPI_EXPECT_OK(nn_params_create(&params, desc));
    for (int i = 0; i < DENSE; i++)
        add_tensor(params, i, -1, dense_rules[i]);
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; i < OF_EXPERT; i++)
            add_tensor(params, i, e, expert_rules[i]);
    MPI_EXPECT_OK(nn_params_seal(params));
    return params;
}

static mimo_status find_owners(owners_bed *bed)
{
    const nn_owners_desc desc = {bed->params, mpi_test_comm(), bed->llm, bed->view};
    return nn_owners_init(&bed->owners, &desc);
}

static void open_bed(owners_bed *bed, const char *llm, int etp, int ep)
{
    *bed = (owners_bed){0};
    open_grids(bed, llm, etp, ep);
    const nn_params_desc desc = store_of(bed);
    bed->params = make_store(&desc);
}

static void close_bed(owners_bed *bed)
{
    nn_owners_release(&bed->owners);
    nn_params_destroy(bed->params);
}

/* ------------------------------------------ who speaks ---------------------------------------- */

/* The ranks that speak for any part of the tensors of a rule, as a set of bits. */
static unsigned speakers(const owners_bed *bed, nn_rule rule)
{
    unsigned set = 0;
    for (int i = 0; i < nn_params_count(bed->params); i++) {
        const nn_param *param = nn_params_at(bed->params, i);
        for (int64_t part = 0; part < nn_placement_parts(&param->placement); part++)
            if (param->rule == rule)
                set |= 1u << nn_owners_rank(&bed->owners, i, part);
        bool mine = param->held &&
                    nn_owners_rank(&bed->owners, i, param->placement.cut < 0 ? 0 : param->rank) ==
                        mpi_test_rank();
        MPI_EXPECT(nn_owners_speak(&bed->owners, i) == mine, "%s", param->name);
    }
    return set;
}

/* Of the whole tensors and of those that are cut, of the LLM's grid and of experts. */
static void expect_speakers(const char *llm, int etp, int ep, const unsigned wanted[4])
{
    static const nn_rule whole[] = {NN_REPLICATED, NN_EXPERT_REPLICATED};
    static const nn_rule cut[] = {NN_SHARDED, NN_EXPERT_SHARDED};
    static const nn_rule partial[] = {NN_PARTIAL, NN_EXPERT_PARTIAL};
    owners_bed bed;
    open_bed(&bed, llm, etp, ep);
    MPI_EXPECT_OK(find_owners(&bed));
    for (int i = 0; i < 2; i++) {
        unsigned found[] = {speakers(&bed, whole[i]), speakers(&bed, cut[i]),
                            speakers(&bed, partial[i])};
        const unsigned *want = wanted + (ptrdiff_t)2 * i;
        MPI_EXPECT(found[0] == want[0] && found[2] == want[0],
                   "%s, etp=%d,ep=%d: ranks %x and %x, not %x", llm, etp, ep, found[0], found[2],
                   want[0]);
        MPI_EXPECT(found[1] == want[1], "%s, etp=%d,ep=%d: ranks %x, not %x", llm, etp, ep,
                   found[1], want[1]);
    }
    close_bed(&bed);
}

MPI_TEST(nn_owners, goldens)
{
    expect_speakers("tp=2,cp=2,dp=2", 2, 4, (unsigned[]){1, 3, 0x55, 0xff});
    expect_speakers("tp=2,cp=2,dp=2", 2, 2, (unsigned[]){1, 3, 5, 0xf});
    expect_speakers("tp=2,cp=2,dp=2", 1, 2, (unsigned[]){1, 3, 3, 3});
    expect_speakers("tp=1,cp=1,dp=8", 8, 1, (unsigned[]){1, 1, 1, 0xff});
    expect_speakers("tp=4,cp=1,dp=2", 1, 8, (unsigned[]){1, 0xf, 0xff, 0xff});
}

/* ----------------------------------------- whole tensors -------------------------------------- */

/* The whole of each tensor, on every rank, against the initial values of a store of one rank. */
static void expect_whole(const char *llm, int etp, int ep)
{
    owners_bed bed;
    nn_real whole[ELEMENTS], slices[ELEMENTS], gathered[ELEMENTS], wanted[ELEMENTS];
    const nn_whole_rooms rooms = {whole, slices, gathered};
    const nn_params_desc one = {.name = "llm", .module = MIMO_DST, .tp_size = 1, .seed = 5};
    nn_params *alone = make_store(&one);
    open_bed(&bed, llm, etp, ep);
    MPI_EXPECT_OK(find_owners(&bed));
    for (int i = 0; i < TENSORS; i++) {
        const nn_param_part from = {&bed.owners, i, NN_VALUE};
        const char *name = nn_params_at(bed.params, i)->name;
        memset(whole, 0, sizeof whole);
        MPI_EXPECT_OK(nn_whole_gather(&rooms, &from));
        MPI_EXPECT_OK(nn_params_read(alone, nn_params_find(alone, name), NN_VALUE, wanted));
        MPI_EXPECT(memcmp(whole, wanted, sizeof whole) == 0, "%s, etp=%d,ep=%d: %s", llm, etp, ep,
                   name);
    }
    nn_params_destroy(alone);
    close_bed(&bed);
}

/* Every rank takes its part of what the last rank alone has. */
static void expect_distributed(const char *llm, int etp, int ep)
{
    owners_bed bed;
    nn_real whole[ELEMENTS], local[ELEMENTS], wanted[ELEMENTS];
    int root = mpi_test_size() - 1;
    open_bed(&bed, llm, etp, ep);
    MPI_EXPECT_OK(find_owners(&bed));
    for (int i = 0; i < TENSORS; i++) {
        const nn_param_part to = {&bed.owners, i, NN_VALUE};
        const nn_param *param = nn_params_at(bed.params, i);
        for (int k = 0; k < ELEMENTS; k++)
            whole[k] = (nn_real)(1000 * i + k);
        MPI_EXPECT_OK(nn_params_distribute(&to, mpi_test_rank() == root ? whole : NULL, root));
        nn_whole_slice(wanted, whole, bed.params, i);
        if (param->held)
            MPI_EXPECT_OK(nn_params_read(bed.params, i, NN_VALUE, local));
        MPI_EXPECT(memcmp(local, wanted, (size_t)param->count * sizeof *local) == 0, "%s",
                   param->name);
    }
    close_bed(&bed);
}

MPI_TEST(nn_owners, whole_tensors)
{
    int size = mpi_test_size(), ran = 0;
    char llm[32];
    for (int tp = 1; tp <= size; tp *= 2)
        for (int etp = 1; etp <= size; etp *= 2)
            for (int ep = 1; etp * ep <= size; ep *= 2, ran++) {
                snprintf(llm, sizeof llm, "tp=%d,dp=%d", tp, size / tp);
                expect_whole(llm, etp, ep);
                expect_distributed(llm, etp, ep);
            }
    MPI_EXPECT(ran >= size, "%d ran", ran);
}

/* ------------------------------------------- refusals ----------------------------------------- */

/* Stores with other coordinates than the grids': two ranks speak for a tensor. */
MPI_TEST(nn_owners, refuses)
{
    owners_bed bed;
    open_bed(&bed, "tp=2,dp=2", 2, 2);
    nn_params_destroy(bed.params);
    nn_params_desc desc = store_of(&bed);
    desc.experts.ep_rank = 0; /* ranks 2 and 3 as well have the experts of 0 and 1 */
    bed.params = make_store(&desc);
    MPI_FAILS(find_owners(&bed), MIMO_ERR_MISMATCH,
              "export: llm.w0.experts.0 twice (ranks 0 and 2)");
    nn_params_destroy(bed.params);
    desc = store_of(&bed);
    desc.tp_rank = 1;
    bed.params = make_store(&desc);
    MPI_FAILS(find_owners(&bed), MIMO_ERR_MISMATCH, "export: llm.w1 twice (ranks 0 and 1)");
    close_bed(&bed);
}

/* A part that nobody has; experts without their view; many ranks without a grid. */
MPI_TEST(nn_owners, refuses_what_nobody_has)
{
    owners_bed bed;
    char llm[32];
    snprintf(llm, sizeof llm, "tp=1,dp=%d", mpi_test_size());
    open_bed(&bed, llm, 1, 1);
    nn_params_destroy(bed.params);
    nn_params_desc desc = store_of(&bed);
    desc.experts = (nn_expert_coords){0, 2, 0, 1}; /* as if ranks cut experts */
    bed.params = make_store(&desc);
    MPI_FAILS(find_owners(&bed), MIMO_ERR_MISMATCH, "export: no shard etp=1 of llm.w1.experts.0");
    nn_params_destroy(bed.params);
    desc.experts = (nn_expert_coords){0, 1, 1, 2}; /* as if others had experts 0 to 3 */
    bed.params = make_store(&desc);
    MPI_FAILS(find_owners(&bed), MIMO_ERR_MISMATCH, "export: no rank has llm.w0.experts.0");
    const nn_owners_desc without = {bed.params, mpi_test_comm(), bed.llm, NULL};
    MPI_FAILS(nn_owners_init(&bed.owners, &without), MIMO_ERR_ARGUMENT,
              "owners of \"llm\": \"llm.w0.experts.0\" is an expert's");
    const nn_owners_desc gridless = {bed.params, mpi_test_comm(), NULL, NULL};
    if (mpi_test_size() > 1) {
        MPI_FAILS(nn_owners_init(&bed.owners, &gridless), MIMO_ERR_ARGUMENT,
                  "2 ranks without a grid");
    }
    close_bed(&bed);
}

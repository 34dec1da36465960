/* Exchanges and gradients in the fixed order of additions, on real ranks, against one process that
 * knows what every rank has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"
#include "train/nn/nn.h"
#include "train/nn/ops/nn_ops.h"
#include "core/hash.h"
#include "train/nn/ops/nn_fixed.h"
#include "train/nn/params/nn_initial.h"
#include "train/nn/params/nn_optimizer.h"
#include "train/nn/params/nn_token_sums.h"
#include "train/nn/params/nn_whole.h"
#include "test_memory.h"

static nn_runtime runtime_of(nn_order order)
{
    nn_runtime runtime = {0};
    nn_runtime_desc desc = {test_memory(), test_stream(), NN_PRECISION_FULL, order, 0};
    MPI_EXPECT_OK(nn_runtime_init(&runtime, &desc));
    return runtime;
}

static nn_runtime make_runtime(void)
{
    return runtime_of(NN_ORDER_FIXED);
}

/* Element i of rank r: numbers of many sizes, zeros of both signs, and infinities. */
static nn_real element(int r, int64_t i)
{
    double x = nn_uniform((uint64_t)r + 7, "element", i), size = nn_uniform(3, "size", i);
    if (i % 11 == 3)
        return -0.0f;
    if (i % 97 == 5)
        return r % 2 == 1 ? INFINITY : 1;
    return (nn_real)ldexp(x, (int)(20 * size));
}

/* The tree over the ranks. */
static nn_real expected(int first, int ranks, int64_t i)
{
    if (ranks == 1)
        return element(first, i);
    return expected(first, ranks / 2, i) + expected(first + ranks / 2, ranks / 2, i);
}

static bool same(nn_real a, nn_real b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static const int64_t counts[] = {1, 2, 3, 7, 1023, 1024, 1025, 4097, 30000};
enum { COUNTS = sizeof counts / sizeof *counts, MOST = 30000 };

MPI_TEST(nn_order, sum_is_the_tree_over_ranks)
{
    mimo_comm *comm = mpi_test_comm();
    nn_runtime runtime = make_runtime();
    nn_exchange_counts counted = {0};
    nn_exchange exchange = {comm, &runtime, &counted};
    int ranks = mimo_comm_size(comm), rank = mimo_comm_rank(comm);
    nn_real *here = malloc(MOST * sizeof *here), *room;
    MPI_EXPECT_OK(nn_runtime_reserve(&runtime, &room, MOST, sizeof *room));
    int64_t bytes = 0, received = 0;
    for (int c = 0; c < COUNTS; c++) {
        for (int64_t i = 0; i < counts[c]; i++)
            here[i] = element(rank, i);
        int64_t size = counts[c] * (int64_t)sizeof *here;
        MPI_EXPECT_OK(nn_runtime_write(&runtime, room, here, size));
        MPI_EXPECT_OK(nn_exchange_sum(&exchange, room, counts[c]));
        MPI_EXPECT_OK(nn_runtime_read(&runtime, here, room, size));
        for (int64_t i = 0; i < counts[c]; i++)
            MPI_EXPECT(same(here[i], expected(0, ranks, i)), "%d of %d: %a, not %a", (int)i,
                       (int)counts[c], (double)here[i], (double)expected(0, ranks, i));
        bytes += size;
        int64_t piece = (counts[c] + ranks - 1) / ranks * (int64_t)sizeof *here;
        received += (ranks - 1) * (size <= 4096 ? size : 2 * piece); /* in one step, or in two */
    }
    int64_t calls = ranks > 1 ? COUNTS : 0;
    MPI_EXPECT(counted.calls[NN_EXCHANGE_SUM] == calls &&
                   counted.bytes[NN_EXCHANGE_SUM] == (ranks > 1 ? bytes : 0),
               "%d calls, %d bytes", (int)counted.calls[NN_EXCHANGE_SUM],
               (int)counted.bytes[NN_EXCHANGE_SUM]);
    MPI_EXPECT(counted.received[NN_EXCHANGE_SUM] == received, "%d bytes received, not %d",
               (int)counted.received[NN_EXCHANGE_SUM], (int)received);
    nn_runtime_free(&runtime, room);
    nn_runtime_release(&runtime);
    free(here);
}

MPI_TEST(nn_order, scattered_sum_is_the_tree_over_ranks)
{
    enum { EACH = 515 };
    mimo_comm *comm = mpi_test_comm();
    nn_runtime runtime = make_runtime();
    nn_exchange_counts counted = {0};
    nn_exchange exchange = {comm, &runtime, &counted};
    int ranks = mimo_comm_size(comm), rank = mimo_comm_rank(comm);
    int64_t all = (int64_t)ranks * EACH;
    nn_real *here = malloc((size_t)all * sizeof *here), *from, *to;
    MPI_EXPECT_OK(nn_runtime_reserve(&runtime, &from, all, sizeof *from));
    MPI_EXPECT_OK(nn_runtime_reserve(&runtime, &to, EACH, sizeof *to));
    for (int64_t i = 0; i < all; i++)
        here[i] = element(rank, i);
    MPI_EXPECT_OK(nn_runtime_write(&runtime, from, here, all * (int64_t)sizeof *here));
    MPI_EXPECT_OK(nn_exchange_sum_scatter(&exchange, to, from, EACH));
    MPI_EXPECT_OK(nn_runtime_read(&runtime, here, to, EACH * (int64_t)sizeof *here));
    for (int64_t i = 0; i < EACH && ranks > 1; i++)
        MPI_EXPECT(same(here[i], expected(0, ranks, rank * EACH + i)), "%d: %a, not %a", (int)i,
                   (double)here[i], (double)expected(0, ranks, rank * EACH + i));
    MPI_EXPECT(counted.received[NN_EXCHANGE_SUM_SCATTER] == (ranks - 1) * EACH * 4,
               "%d bytes received", (int)counted.received[NN_EXCHANGE_SUM_SCATTER]);
    nn_runtime_free(&runtime, from);
    nn_runtime_free(&runtime, to);
    nn_runtime_release(&runtime);
    free(here);
}

/* A store on every rank, and the objects of a step: dp over all ranks. */
typedef struct step_bed {
    nn_runtime runtime;
    nn_params *params;
    nn_gradients step;
    bool both; /* the last parameter gets the same gradient as the first */
} step_bed;

static void make_bed(step_bed *bed)
{
    int index;
    mimo_comm *comm = mpi_test_comm();
    mimo_grid *grid = mpi_test_grid_of("tp=1,dp=%d", mimo_comm_size(comm));
    *bed = (step_bed){.runtime = make_runtime()};
    nn_params_desc store = {
        .name = "llm", .module = MIMO_DST, .tp_size = 1, .runtime = &bed->runtime, .shards = 8};
    nn_param_desc bias = {.name = "llm.bias", .ndim = 1, .shape = {3, 1}};
    nn_param_desc last = {.name = "llm.last", .ndim = 1, .shape = {3, 1}};
    MPI_EXPECT_OK(nn_params_create(&bed->params, &store));
    MPI_EXPECT_OK(nn_params_add(bed->params, &bias, &index));
    MPI_EXPECT_OK(nn_params_add(bed->params, &last, &index));
    MPI_EXPECT_OK(nn_params_seal(bed->params));
    bed->step = (nn_gradients){.world = comm, .n = 1, .stores = {bed->params}};
    MPI_EXPECT_OK(mimo_gradient_create(&bed->step.gradient, comm, grid, grid));
}

static void release_bed(step_bed *bed)
{
    mimo_gradient_destroy(bed->step.gradient);
    nn_params_destroy(bed->params);
    nn_runtime_release(&bed->runtime);
}

/* One step whose gradient is `own` on this rank. */
static mimo_status finish(step_bed *bed, double *norm, const nn_real *own)
{
    nn_real *room;
    int64_t tokens;
    const nn_runtime *runtime = &bed->runtime;
    MPI_EXPECT_OK(nn_params_zero_grad(bed->params));
    MPI_EXPECT_OK(nn_runtime_reserve(runtime, &room, 3, sizeof *room));
    MPI_EXPECT_OK(nn_runtime_write(runtime, room, own, 3 * (int64_t)sizeof *own));
    for (int i = 0; i < 1 + bed->both; i++)
        MPI_EXPECT_OK(nn_sum_rows(bed->params, i, room, 1));
    mimo_gradient_reset(bed->step.gradient);
    MPI_EXPECT_OK(mimo_gradient_add(bed->step.gradient, 0, 2));
    MPI_EXPECT_OK(mimo_gradient_count(&tokens, NULL, bed->step.gradient));
    mimo_status status = nn_gradients_finish(norm, &bed->step, tokens);
    nn_runtime_free(runtime, room);
    return status;
}

/* In f32 the first element would depend on the order: 2^13 + 2^-12 is 2^13 there. */
MPI_TEST(nn_order, gradients_add_exactly)
{
    step_bed bed;
    make_bed(&bed);
    int ranks = mpi_test_size(), rank = mpi_test_rank();
    nn_real grad[3];
    double norm = 0;
    const nn_real end = rank == ranks - 1 ? -0x1p13f : 0x1p-12f;
    const nn_real own[3] = {rank == 0 ? 0x1p13f : end, 0x1p-30f, -1};
    MPI_EXPECT_OK(finish(&bed, &norm, own));
    MPI_EXPECT_OK(nn_params_read(bed.params, 0, NN_GRAD, grad));
    const nn_real sum = ranks == 1 ? 0x1p13f : 0x1p-12f * (nn_real)(ranks - 2);
    const nn_real wanted[3] = {sum / (nn_real)(2 * ranks), 0x1p-31f, -0.5f};
    double squares = 0;
    for (int i = 0; i < 3; i++) {
        MPI_EXPECT(grad[i] == wanted[i], "%d: %a, not %a", i, (double)grad[i], (double)wanted[i]);
        squares += (double)wanted[i] * (double)wanted[i];
    }
    MPI_EXPECT(norm == sqrt(squares), "norm %a, not %a", norm, sqrt(squares));
    /* again: refused on all ranks, and the gradient stays */
    MPI_EXPECT_STATUS(nn_gradients_finish(&norm, &bed.step, 1), MIMO_ERR_STATE);
    MPI_EXPECT_OK(nn_params_read(bed.params, 0, NN_GRAD, grad));
    MPI_EXPECT(grad[1] == wanted[1], "%a, not %a", (double)grad[1], (double)wanted[1]);
    MPI_EXPECT_STATUS(finish(&bed, rank == ranks - 1 ? NULL : &norm, own), MIMO_ERR_ARGUMENT);
    release_bed(&bed);
}

/* What tp cuts is gathered, and sums in fixed point are no gradient to gather. */
MPI_TEST(nn_order, sums_are_not_gathered)
{
    nn_runtime runtime = make_runtime();
    nn_params *params = NULL;
    int index, tp = mpi_test_size();
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = mpi_test_rank(),
                            .tp_size = tp,
                            .runtime = &runtime,
                            .shards = 8};
    nn_param_desc cut = {
        .name = "llm.bias", .ndim = 1, .shape = {8, 1}, .rule = NN_SHARDED, .shard_dim = 0};
    nn_real slices[8], whole[8], *gathered;
    nn_owners owners = {0};
    mimo_grid *grid = mpi_test_grid_of("tp=%d", tp);
    MPI_EXPECT_OK(nn_params_create(&params, &store));
    MPI_EXPECT_OK(nn_params_add(params, &cut, &index));
    MPI_EXPECT_OK(nn_params_seal(params));
    MPI_EXPECT_OK(nn_params_zero_grad(params));
    MPI_EXPECT_OK(nn_runtime_reserve(&runtime, &gathered, 8, sizeof *gathered));
    const nn_owners_desc who = {.params = params, .comm = mpi_test_comm(), .grid = grid};
    MPI_EXPECT_OK(nn_owners_init(&owners, &who));
    const nn_whole_rooms rooms = {.whole = whole, .slices = slices, .gathered = gathered};
    const nn_param_part part = {&owners, index, NN_GRAD};
    MPI_EXPECT_STATUS(nn_whole_gather(&rooms, &part), MIMO_ERR_STATE);
    MPI_EXPECT_OK(nn_params_settle(params, 1));
    MPI_EXPECT_OK(nn_whole_gather(&rooms, &part));
    MPI_EXPECT(whole[7] == 0, "%g", (double)whole[7]);
    nn_owners_release(&owners);
    nn_runtime_free(&runtime, gathered);
    nn_params_destroy(params);
    nn_runtime_release(&runtime);
}

/* ------------------------------------------- stages ----------------------------------------- */

/* A module over pp stages, of each rule: its ends hold the embedding and the head. */
typedef struct staged_param {
    nn_param_desc desc;
    bool last; /* of the last stage, otherwise of the first: those between hold nothing */
} staged_param;

static const staged_param staged_params[] = {
    {{.name = "llm.embed", .ndim = 2, .shape = {16, 4}, .rule = NN_SHARDED}, false},
    {{.name = "llm.position", .ndim = 2, .shape = {6, 4}, .decay = true}, false},
    {{.name = "llm.0.w", .ndim = 2, .shape = {8, 16}, .rule = NN_SHARDED, .shard_dim = 1}, true},
    {{.name = "llm.0.b", .ndim = 1, .shape = {5, 1}, .rule = NN_PARTIAL}, true},
    {{.name = "llm.1.w", .ndim = 2, .shape = {24, 8}, .rule = NN_SHARDED, .decay = true}, false},
    {{.name = "llm.1.norm", .ndim = 1, .shape = {7, 1}}, true},
    {{.name = "llm.fixed", .ndim = 1, .shape = {3, 1}, .untrained = true}, false},
};
enum { STAGED = sizeof staged_params / sizeof staged_params[0], STAGED_LARGEST = 192 };

/* One rank's place, and what it needs to finish a step: of the topology, or of one rank alone. */
typedef struct staged {
    nn_runtime runtime;
    nn_params *params;
    nn_owners owners;
    mimo_comm *world, *tp, *pp;
    int tp_rank, tp_size, pp_rank, pp_size, dp_rank, dp_size;
    nn_gradients step;
} staged;

static void make_staged_store(staged *own, const mimo_grid *llm)
{
    const mimo_grid *encoder = mpi_test_grid_of("tp=1,dp=%d", nn_comm_size(own->world));
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = own->tp_rank,
                            .tp_size = own->tp_size,
                            .pp_rank = own->pp_rank,
                            .pp_size = own->pp_size,
                            .seed = 3,
                            .runtime = &own->runtime,
                            .shards = 8};
    MPI_EXPECT_OK(nn_params_create(&own->params, &store));
    for (int i = 0; i < STAGED; i++) {
        int index;
        nn_param_desc desc = staged_params[i].desc;
        desc.init = NN_INIT_NORMAL;
        desc.std = 1;
        MPI_EXPECT_OK(
            nn_params_set_stage(own->params, staged_params[i].last ? own->pp_size - 1 : 0));
        MPI_EXPECT_OK(nn_params_add(own->params, &desc, &index));
        MPI_EXPECT(index == i, "parameter %d is number %d", i, index);
    }
    MPI_EXPECT_OK(nn_params_seal(own->params));
    const nn_owners_desc who = {.params = own->params, .comm = own->world, .grid = llm};
    MPI_EXPECT_OK(nn_owners_init(&own->owners, &who));
    own->step = (nn_gradients){
        .world = own->world, .n = 1, .stores = {own->params}, .tp = {own->tp}, .pp = {own->pp}};
    MPI_EXPECT_OK(mimo_gradient_create(&own->step.gradient, own->world, encoder, llm));
}

/* tp is the fastest dimension, dp the slowest. */
static void make_staged(staged *own, nn_order order, int tp, int pp)
{
    int rank = mpi_test_rank();
    *own = (staged){.runtime = runtime_of(order), .tp_size = tp, .pp_size = pp};
    own->dp_size = mpi_test_size() / (tp * pp);
    own->tp_rank = rank % tp, own->pp_rank = rank / tp % pp, own->dp_rank = rank / (tp * pp);
    MPI_EXPECT_OK(mimo_comm_split(&own->world, mpi_test_comm(), 0, rank));
    MPI_EXPECT_OK(mimo_comm_split(&own->tp, own->world, rank / tp, rank));
    MPI_EXPECT_OK(mimo_comm_split(&own->pp, own->world, own->dp_rank * tp + own->tp_rank, rank));
    make_staged_store(own, mpi_test_grid_of("tp=%d,pp=%d,dp=%d", tp, pp, own->dp_size));
}

static void make_alone(staged *own, nn_order order)
{
    *own = (staged){.runtime = runtime_of(order), .tp_size = 1, .pp_size = 1, .dp_size = 1};
    MPI_EXPECT_OK(mimo_comm_split(&own->world, mpi_test_comm(), mpi_test_rank(), 0));
    make_staged_store(own, mpi_test_grid("tp=1,dp=1", 0));
}

static void release_staged(staged *own)
{
    mimo_gradient_destroy(own->step.gradient);
    nn_owners_release(&own->owners);
    nn_params_destroy(own->params);
    nn_runtime_release(&own->runtime);
    mimo_comm_destroy(own->tp);
    mimo_comm_destroy(own->pp);
    mimo_comm_destroy(own->world);
}

/* What tp rank t of dp coordinate d has of an element's gradient. In the fast order whole numbers,
 * which f32 adds exactly. In the fixed order numbers of many sizes, so that the norm shows in which
 * order squares are added. */
static double part_of(const staged *own, const nn_param *param, int64_t element, int d, int t)
{
    uint64_t random = mimo_hash_int((uint64_t)nn_params_steps(own->params), d * 8 + t);
    random = mimo_hash_int(mimo_hash_bytes(random, param->name, strlen(param->name)), element);
    double whole = (double)(random % 1000) - 500;
    if (own->runtime.order == NN_ORDER_FAST)
        return whole;
    return ldexp(whole, -(int)(random >> 16 & 15)) + ldexp((double)(random >> 40), -36);
}

/* The same of a whole step, where one rank does the work of a topology: `tp` and `dp` ranks. */
static double gradient_of(const staged *own, const nn_param *param, int64_t element, int tp, int dp)
{
    double sum = 0;
    bool alone = own->world && nn_comm_size(own->world) == 1;
    for (int d = alone ? 0 : own->dp_rank; d < (alone ? dp : own->dp_rank + 1); d++) {
        bool partial = param->rule == NN_PARTIAL;
        int first = alone || !partial ? 0 : own->tp_rank, last = alone && partial ? tp : first + 1;
        for (int t = first; t < last; t++)
            sum += part_of(own, param, element, d, t);
    }
    return sum;
}

/* Write this rank's gradients of a step, as backward would leave them. */
static void write_gradients(const staged *own, int tp, int dp)
{
    MPI_EXPECT_OK(nn_params_zero_grad(own->params));
    for (int i = 0; i < STAGED; i++) {
        const nn_param *param = nn_params_at(own->params, i);
        nn_real grad[STAGED_LARGEST];
        int64_t sums[STAGED_LARGEST];
        if (!param->held || param->frozen)
            continue;
        for (int64_t r = 0; r < nn_placement_runs(&param->placement); r++) {
            nn_run run = nn_placement_run(&param->placement, own->tp_rank, r);
            for (int64_t k = 0; k < run.count; k++) {
                double value = gradient_of(own, param, run.global + k, tp, dp);
                grad[run.local + k] = (nn_real)value;
                sums[run.local + k] = (int64_t)(value * NN_FIXED_ONE);
            }
        }
        if (own->runtime.order == NN_ORDER_FIXED)
            MPI_EXPECT_OK(nn_runtime_write(&own->runtime, param->sums, sums,
                                           param->count * (int64_t)sizeof *sums));
        else
            MPI_EXPECT_OK(nn_params_write(own->params, i, NN_GRAD, grad));
    }
}

/* A step of a topology with these sizes; the last stage has the tokens. */
static double train_staged(staged *own, int tp, int dp)
{
    double norm = 0;
    nn_adamw rule = NN_ADAMW_INIT;
    int64_t tokens = own->dp_size == dp ? 2 : 2 * dp, all;
    write_gradients(own, tp, dp);
    mimo_gradient_reset(own->step.gradient);
    if (own->pp_rank == own->pp_size - 1)
        MPI_EXPECT_OK(mimo_gradient_add(own->step.gradient, 0, tokens));
    MPI_EXPECT_OK(mimo_gradient_count(&all, NULL, own->step.gradient));
    MPI_EXPECT(all == 2 * dp, "%d tokens", (int)all);
    MPI_EXPECT_OK(nn_gradients_finish(&norm, &own->step, all));
    MPI_EXPECT_OK(nn_adamw_step(&rule, own->params, norm));
    return norm;
}

/* A whole tensor of a topology, on every rank, has the bits of one rank's. */
static void expect_whole(const staged *own, const staged *alone, int index, nn_part part)
{
    nn_real whole[STAGED_LARGEST], slices[STAGED_LARGEST], expected[STAGED_LARGEST], *gathered;
    const nn_param *param = nn_params_at(alone->params, index);
    if (!nn_param_has(param, part))
        return;
    MPI_EXPECT_OK(nn_runtime_reserve(&own->runtime, &gathered, STAGED_LARGEST, sizeof *gathered));
    const nn_whole_rooms rooms = {whole, slices, gathered};
    const nn_param_part from = {&own->owners, index, part};
    MPI_EXPECT_OK(nn_whole_gather(&rooms, &from));
    MPI_EXPECT_OK(nn_params_read(alone->params, index, part, expected));
    MPI_EXPECT(memcmp(whole, expected, (size_t)param->count * sizeof *whole) == 0,
               "%s, part %d: other bits than one rank", param->name, (int)part);
    nn_runtime_free(&own->runtime, gathered);
}

/* The summands of the ranks of one dp coordinate are the hash of one rank. */
static void expect_hash(const staged *own, const staged *alone, nn_part part)
{
    uint64_t mine, expected, all[64], sum = 0;
    MPI_EXPECT_OK(nn_hash_params(&mine, own->params, part));
    MPI_EXPECT_OK(nn_hash_params(&expected, alone->params, part));
    mine = own->dp_rank == 0 ? mine : 0;
    MPI_EXPECT_OK(mimo_comm_host_allgather(own->world, all, &mine, sizeof mine));
    for (int r = 0; r < mpi_test_size(); r++)
        sum += all[r];
    MPI_EXPECT(sum == expected, "part %d: another hash than one rank's", (int)part);
}

static void stages_train_alike(nn_order order, int tp, int pp)
{
    staged own, alone;
    make_staged(&own, order, tp, pp);
    make_alone(&alone, order);
    int dp = own.dp_size;
    for (int step = 0; step < 6; step++) {
        double norm = train_staged(&own, tp, dp), expected = train_staged(&alone, tp, dp);
        double error = order == NN_ORDER_FIXED ? 0 : 1e-12 * expected;
        MPI_EXPECT(fabs(norm - expected) <= error, "tp %d pp %d: norm %a, not %a", tp, pp, norm,
                   expected);
    }
    for (int part = NN_VALUE; part <= NN_MOMENT_V && order == NN_ORDER_FIXED; part++) {
        for (int i = 0; i < STAGED; i++)
            expect_whole(&own, &alone, i, (nn_part)part);
        expect_hash(&own, &alone, (nn_part)part);
    }
    release_staged(&own);
    release_staged(&alone);
}

MPI_TEST(nn_order, stages_train_like_one_rank)
{
    for (int pp = 1; pp <= mpi_test_size(); pp *= 2)
        for (int tp = 1; tp * pp <= mpi_test_size(); tp *= 2) {
            stages_train_alike(NN_ORDER_FIXED, tp, pp);
            stages_train_alike(NN_ORDER_FAST, tp, pp);
        }
}

/* A file's tensor reaches the stage that holds it, and nothing happens on others. */
MPI_TEST(nn_order, values_for_one_stage)
{
    staged own;
    nn_real whole[STAGED_LARGEST], here[STAGED_LARGEST];
    make_staged(&own, NN_ORDER_FIXED, 1, mpi_test_size());
    for (int k = 0; k < STAGED_LARGEST; k++)
        whole[k] = (nn_real)k;
    for (int i = 0; i < STAGED; i++) {
        const nn_param *param = nn_params_at(own.params, i);
        const nn_param_part to = {&own.owners, i, NN_VALUE};
        MPI_EXPECT_OK(nn_params_distribute(&to, mpi_test_rank() == 0 ? whole : NULL, 0));
        if (param->held) {
            MPI_EXPECT_OK(nn_params_read(own.params, i, NN_VALUE, here));
            MPI_EXPECT(here[param->count - 1] == (nn_real)(param->count - 1), "%s", param->name);
        } else {
            MPI_EXPECT_STATUS(nn_params_read(own.params, i, NN_VALUE, here), MIMO_ERR_STATE);
            MPI_EXPECT(strstr(mimo_last_error(), "\" is of stage "), "%s", mimo_last_error());
        }
    }
    MPI_EXPECT_STATUS(nn_params_set_stage(own.params, own.pp_size), MIMO_ERR_ARGUMENT);
    release_staged(&own);
}

/* Sums that are no gradient yet are an error on all stages, not on the one that holds them. */
MPI_TEST(nn_order, stages_agree_on_errors)
{
    staged own;
    nn_real whole[STAGED_LARGEST], slices[STAGED_LARGEST], *gathered;
    make_staged(&own, NN_ORDER_FIXED, 1, mpi_test_size());
    MPI_EXPECT_OK(nn_params_zero_grad(own.params));
    MPI_EXPECT_OK(nn_runtime_reserve(&own.runtime, &gathered, STAGED_LARGEST, sizeof *gathered));
    const nn_whole_rooms rooms = {whole, slices, gathered};
    nn_param_part from = {&own.owners, 0, NN_GRAD};
    MPI_EXPECT_STATUS(nn_whole_gather(&rooms, &from), MIMO_ERR_STATE);
    from.index = STAGED;
    MPI_EXPECT_STATUS(nn_whole_gather(&rooms, &from), MIMO_ERR_ARGUMENT);
    nn_runtime_free(&own.runtime, gathered);
    release_staged(&own);
}

/* One rank's sum leaves the range, or is no number: every rank is told, with the tensor's name, and
 * the next step is as if nothing had happened. */
MPI_TEST(nn_order, overflow_of_one_rank)
{
    step_bed bed;
    make_bed(&bed);
    double norm = 0;
    const bool last = mpi_test_rank() == mpi_test_size() - 1;
    const int size = mpi_test_size();
    const nn_real wrong[] = {NAN, INFINITY, 0x1p22f, -0x1p30f, 0x1p23f / (nn_real)size};
    const char *const past = "no number, or left the range of fixed point, 4194304";
    char most[64];
    snprintf(most, sizeof most, "a sum of this rank is %d, and %d ranks add", (1 << 23) / size,
             size);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const nn_real own[3] = {1, last ? wrong[i] : 1, 1};
        const char *said = fabsf(wrong[i]) < 0x1p22f ? most : past;
        MPI_EXPECT_STATUS(finish(&bed, &norm, own), MIMO_ERR_OVERFLOW);
        MPI_EXPECT(strstr(mimo_last_error(), "gradient of \"llm.bias\"") &&
                       strstr(mimo_last_error(), said),
                   "%s", mimo_last_error());
    }
    bed.both = true; /* the last one is named: backward made it first */
    MPI_EXPECT_STATUS(finish(&bed, &norm, (nn_real[]){1, last ? NAN : 1, 1}), MIMO_ERR_OVERFLOW);
    MPI_EXPECT(strstr(mimo_last_error(), "gradient of \"llm.last\""), "%s", mimo_last_error());
    bed.both = false;
    const nn_real largest = 0x1p21f / (nn_real)size, own[3] = {1, largest, 1};
    MPI_EXPECT_OK(finish(&bed, &norm, own));
    release_bed(&bed);
}

/* Backward of rows of -0 over two ranks: what this rank gets is +0. */
static void expect_plain_zeros(const char *llm, mimo_algorithm algorithm)
{
    enum { TOKENS = 4, HIDDEN = 4, EACH = TOKENS * HIDDEN };
    nn_runtime runtime = make_runtime();
    mimo_grid *src = mpi_test_grid("tp=1,dp=2", 0), *dst = mpi_test_grid(llm, 0);
    mimo_bridge *bridge = NULL;
    nn_real rows[2 * EACH], got[EACH], *to = NULL, *from = NULL;
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    desc.executor.algorithm = algorithm;
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &desc));
    int64_t samples = 2 / mimo_grid_dim_size(dst, "dp"), count = samples * EACH;
    /* Of a row, the cp rank that owns it has the gradient and the others have +0. */
    bool owns = mimo_grid_dim_size(dst, "cp") == 1 || mpi_test_rank() == 0;
    for (int64_t i = 0; i < count; i++)
        rows[i] = owns ? -0.0f : 0;
    MPI_EXPECT_OK(nn_runtime_reserve(&runtime, &to, EACH, sizeof *to));
    MPI_EXPECT_OK(nn_runtime_reserve(&runtime, &from, count, sizeof *from));
    MPI_EXPECT_OK(nn_runtime_write(&runtime, from, rows, count * (int64_t)sizeof *rows));
    mimo_tensor target = mimo_tensor_3d(to, NN_DTYPE, "sbh", TOKENS, 1, HIDDEN);
    mimo_tensor source = mimo_tensor_3d(from, NN_DTYPE, "sbh", TOKENS, samples, HIDDEN);
    target.memory = source.memory = runtime.memory;
    MPI_EXPECT_OK(mimo_bridge_backward(bridge, &target, &source, 1, runtime.stream));
    MPI_EXPECT_OK(nn_plain_zeros(&runtime, to, EACH));
    MPI_EXPECT_OK(nn_runtime_read(&runtime, got, to, sizeof got));
    for (int i = 0; i < EACH; i++)
        MPI_EXPECT(same(got[i], 0), "%s, algorithm %d, element %d is %a", llm, (int)algorithm, i,
                   (double)got[i]);
    nn_runtime_free(&runtime, to);
    nn_runtime_free(&runtime, from);
    mimo_bridge_destroy(bridge);
    nn_runtime_release(&runtime);
}

/* A bridge that sums over cp makes +0 of -0, one that moves each row once leaves -0. In the fixed
 * order cp must not show. */
MPI_TEST(nn_order, minus_zero_through_the_bridge)
{
    static const char *const grids[] = {"tp=1,cp=2,dp=1", "tp=2,cp=1,dp=1", "tp=1,cp=1,dp=2"};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        expect_plain_zeros(grids[g], MIMO_ALGORITHM_COLLECTIVE);
        expect_plain_zeros(grids[g], MIMO_ALGORITHM_ROUTED);
    }
}

/* Under sp a layer that tp does not cut sees this rank's rows alone, of which tp decides how many.
 * In the fast order, on one rank, without sp and where tp cuts it, that makes no difference. */
MPI_TEST(nn_order, uncut_layer_under_sp)
{
    const int size = mpi_test_size();
    nn_runtime fixed = make_runtime(), fast = runtime_of(NN_ORDER_FAST);
    const nn_linear_desc uncut = {.name = "router", .in = 8, .out = 8, .max_rows = 8, .sp = true};
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = mpi_test_rank(),
                            .tp_size = size,
                            .shards = 8};
    for (int other = 0; other < 4; other++) {
        nn_linear_desc desc = uncut;
        nn_params *params = NULL;
        nn_linear layer;
        store.runtime = other == 1 ? &fast : &fixed;
        desc.sp = other != 2;
        desc.split = other == 3 ? NN_SPLIT_COLUMNS : NN_SPLIT_NONE;
        MPI_EXPECT_OK(nn_params_create(&params, &store));
        mimo_status status = nn_linear_init(&layer, params, mpi_test_comm(), &desc);
        bool refused = other == 0 && size > 1;
        MPI_EXPECT(status == (refused ? MIMO_ERR_UNSUPPORTED : MIMO_OK), "case %d: %s", other,
                   mimo_status_name(status));
        if (refused)
            MPI_EXPECT_SENTENCE("router: under sequence parallelism each of 2 tp ranks would sum "
                                "its own rows of a gradient");
        if (status == MIMO_OK)
            nn_linear_release(&layer);
        nn_params_destroy(params);
    }
    nn_runtime_release(&fixed);
    nn_runtime_release(&fast);
}

/* A rank's pairs of chunks are a subtree in the zigzag partition, and in a contiguous one they are
 * not. Every rank is told, also where another one's positions alone are wrong. */
MPI_TEST(nn_order, pairs_that_are_no_subtree)
{
    mimo_comm *comm = mpi_test_comm();
    nn_runtime runtime = make_runtime();
    nn_sequence sequence = {0};
    const int64_t first = 4 * mimo_comm_rank(comm);
    const int64_t contiguous[] = {first, first + 1, first + 2, first + 3};
    const int64_t zigzag[2][4] = {{0, 1, 6, 7}, {2, 3, 4, 5}};
    const int64_t swapped[2][4] = {{0, 1, 6, 7}, {4, 5, 2, 3}};
    nn_sequence_desc desc = {.cp = comm,
                             .causal = true,
                             .rows = 4,
                             .batch = 1,
                             .positions = contiguous,
                             .runtime = &runtime,
                             .pairs = 2};
    MPI_FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_UNSUPPORTED, "the zigzag partition has",
              "other partitions' pairs of chunks are no subtree of the sum");
    desc.positions = swapped[mimo_comm_rank(comm)];
    MPI_FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_UNSUPPORTED,
              "row 0 of cp rank 1 of 2 has position 4, the zigzag partition has 2");
    desc.positions = zigzag[mimo_comm_rank(comm)];
    MPI_EXPECT_OK(nn_sequence_init(&sequence, &desc));
    nn_sequence_release(&sequence);
    desc.pairs = 1;
    MPI_FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_UNSUPPORTED,
              "cp=2 is more than the 1 parts");
    nn_runtime_release(&runtime);
}

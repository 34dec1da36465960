/* Kernels that set routes: virtual ranks on one device, each on a stream of its own, against the
 * reference's route of every rank. All thread blocks of a call fit the device at the same time. */
#include <stdlib.h>
#include <string.h>

#include "cases_ran.h"
#include "comm/expert_token.h"
#include "comm/nccl/nccl_experts.h"
#include "dispatch/route/virtual_ranks.h"
#include "gpu_calls.h"
#include "plain_routing.h"

enum { MOST_RANKS = 8 };

/* ------------------------------------- a team of ranks -------------------------------------- */

/* A rank, with its memory on the device. */
typedef struct member {
    cudaStream_t stream;
    char *memory, *tables, *ids;
    mimo_route_launch launch;
    cudaGraphExec_t graph; /* of the set; NULL: none */
} member;

typedef struct team {
    int ranks;
    mimo_expert_shape shape;
    int64_t memory_bytes, tables_bytes;
    member members[MOST_RANKS];
    char **addresses; /* on the device: [ranks] of the memory, then [ranks] of the pages */
    mimo_flags *pages;
    mimo_expert_counters *counters;
    mimo_push_note *notes;
} team;

typedef struct team_case {
    int64_t ranks, etp, experts, top_k, alignment, max_tokens;
    int blocks; /* of the route kernel */
    bool wide;  /* ids of 64 bits */
} team_case;

static void *on_device(int64_t bytes, int filled_with)
{
    void *made = NULL;
    EXPECT_CUDA(cudaMalloc(&made, (size_t)bytes));
    EXPECT_CUDA(cudaMemset(made, filled_with, (size_t)bytes));
    return made;
}

static mimo_expert_shape shape_of(const team_case *it)
{
    mimo_expert_shape shape;
    const mimo_expert_sizes sizes = {.ranks = it->ranks,
                                     .etp = it->etp,
                                     .experts = it->experts,
                                     .top_k = it->top_k,
                                     .alignment = it->alignment,
                                     .max_tokens = it->max_tokens,
                                     .tensors = 1,
                                     .sums = 1,
                                     .return_bytes = 16};
    MPI_EXPECT_OK(mimo_expert_shape_read(&shape, &sizes));
    return shape;
}

static void open_member(team *x, int rank, const team_case *it)
{
    member *own = &x->members[rank];
    mimo_expert_group *group = &own->launch.group;
    const int64_t ids = it->max_tokens * it->top_k * (it->wide ? 8 : 4);
    EXPECT_CUDA(cudaStreamCreateWithFlags(&own->stream, cudaStreamNonBlocking));
    own->memory = on_device(x->memory_bytes, 0);
    own->tables = on_device(x->tables_bytes, 0xee);
    own->ids = on_device(ids + 1, 0);
    group->shape = x->shape;
    MPI_EXPECT_OK(mimo_expert_layout_of(&group->at, &x->shape));
    MPI_EXPECT_OK(mimo_route_tables_place(&own->launch.tables, &x->shape, own->tables));
    group->rank = rank;
    group->memory = x->addresses;
    group->flags = (mimo_flags *const *)(void *)(x->addresses + x->ranks);
    group->counters = x->counters + rank;
    group->signature = 0xabc00;
    EXPECT_CUDA(cudaHostGetDevicePointer((void **)&group->note, x->notes + rank, 0));
    own->launch.ids = own->ids;
    own->launch.wide = it->wide;
    own->launch.blocks = it->blocks;
}

static void tell_addresses(const team *x)
{
    const void *addresses[2 * MOST_RANKS];
    for (int rank = 0; rank < x->ranks; rank++) {
        addresses[rank] = x->members[rank].memory;
        addresses[x->ranks + rank] = x->pages + (size_t)rank * (size_t)x->ranks;
    }
    EXPECT_CUDA(cudaMemcpy(x->addresses, addresses, 2 * (size_t)x->ranks * sizeof *addresses,
                           cudaMemcpyHostToDevice));
}

static void open_team(team *x, const team_case *it)
{
    int blocks;
    mimo_expert_layout at;
    const int64_t ranks = it->ranks;
    *x = (team){.ranks = (int)ranks, .shape = shape_of(it)};
    EXPECT_CUDA(mimo_route_kernels_load(&blocks, &x->shape));
    MPI_EXPECT_OK(mimo_expert_layout_of(&at, &x->shape));
    x->memory_bytes = at.bytes;
    MPI_EXPECT_OK(mimo_route_tables_bytes(&x->tables_bytes, &x->shape));
    x->addresses = on_device(2 * ranks * (int64_t)sizeof *x->addresses, 0);
    x->pages = on_device(ranks * ranks * (int64_t)sizeof *x->pages, 0);
    x->counters = on_device(ranks * (int64_t)sizeof *x->counters, 0);
    EXPECT_CUDA(
        cudaHostAlloc((void **)&x->notes, (size_t)ranks * sizeof *x->notes, cudaHostAllocMapped));
    memset(x->notes, 0, (size_t)ranks * sizeof *x->notes);
    for (int rank = 0; rank < x->ranks; rank++)
        open_member(x, rank, it);
    tell_addresses(x);
    EXPECT_CUDA(cudaDeviceSynchronize());
}

static void close_team(team *x)
{
    for (int rank = 0; rank < x->ranks; rank++) {
        member *own = &x->members[rank];
        if (own->graph)
            cudaGraphExecDestroy(own->graph);
        cudaStreamDestroy(own->stream);
        cudaFree(own->memory);
        cudaFree(own->tables);
        cudaFree(own->ids);
    }
    cudaFree(x->addresses);
    cudaFree(x->pages);
    cudaFree(x->counters);
    cudaFreeHost(x->notes);
}

/* --------------------------------------- the reference -------------------------------------- */

typedef struct reference {
    mimo_routing routing;
    mimo_route_desc descs[MOST_RANKS];
    mimo_virtual_ranks ranks;
    mimo_route_map maps[MOST_RANKS];
} reference;

/* Capacities: what each rank needs, or less on some ranks. */
static void set_capacities(reference *it, const plain_route *plain, uint64_t seed)
{
    for (int64_t rank = 0; rank < plain->ranks; rank++) {
        int64_t rows = mimo_route_rows(&it->maps[rank], rank);
        bool small = seed % 3 == 2 && plain_random(seed, rank, 2) == 0;
        it->ranks.capacity[rank] = small ? plain_random(seed, 100 + rank, rows + 1) : rows + rank;
    }
}

static void make_reference(reference *it, const plain_route *plain, uint64_t seed)
{
    *it = (reference){0};
    it->routing = plain_routing(it->descs, plain, NULL);
    MPI_EXPECT_OK(mimo_virtual_ranks_read(&it->ranks, &it->routing, "test"));
    for (int64_t rank = 0; rank < plain->ranks; rank++)
        MPI_EXPECT_OK(mimo_virtual_ranks_route(&it->maps[rank], &it->ranks, rank));
    set_capacities(it, plain, seed);
}

static void release_reference(reference *it)
{
    for (int64_t rank = 0; rank < it->routing.rank_count; rank++)
        mimo_route_map_release(&it->maps[rank]);
    mimo_virtual_ranks_release(&it->ranks);
}

/* ---------------------------------------- one set ------------------------------------------- */

static void push_ids(const team *x, const plain_route *plain, int rank)
{
    const member *own = &x->members[rank];
    const int64_t pairs = plain->tokens[rank] * plain->top_k;
    int64_t *wide = malloc((size_t)pairs * sizeof *wide + 1);
    for (int64_t i = 0; i < pairs; i++)
        wide[i] = plain->ids[rank][i];
    if (own->launch.wide)
        EXPECT_CUDA(cudaMemcpy(own->ids, wide, (size_t)pairs * 8, cudaMemcpyHostToDevice));
    else
        EXPECT_CUDA(
            cudaMemcpy(own->ids, plain->ids[rank], (size_t)pairs * 4, cudaMemcpyHostToDevice));
    free(wide);
}

static void prepare(team *x, const plain_route *plain, const reference *expected)
{
    for (int rank = 0; rank < x->ranks; rank++) {
        x->members[rank].launch.tokens = (int32_t)plain->tokens[rank];
        x->members[rank].launch.capacity = (int32_t)expected->ranks.capacity[rank];
        push_ids(x, plain, rank);
        EXPECT_CUDA(cudaMemset(x->members[rank].tables, 0xee, (size_t)x->tables_bytes));
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
}

/* Any rank may be first. */
static void set_all(team *x, int turn)
{
    for (int i = 0; i < x->ranks; i++) {
        member *own = &x->members[(turn + i) % x->ranks];
        if (own->graph)
            EXPECT_CUDA(cudaGraphLaunch(own->graph, own->stream));
        else
            EXPECT_CUDA(mimo_route_kernels(&own->launch, own->stream));
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
}

/* ----------------------------------------- tables ------------------------------------------- */

/* The tables of a rank in host memory. */
typedef struct pulled {
    char *memory;
    mimo_route_tables at;
} pulled;

static pulled pull_tables(const team *x, int rank)
{
    pulled it = {.memory = aligned_alloc(MIMO_EXPERT_STEP, (size_t)x->tables_bytes)};
    EXPECT_CUDA(cudaMemcpy(it.memory, x->members[rank].tables, (size_t)x->tables_bytes,
                           cudaMemcpyDeviceToHost));
    MPI_EXPECT_OK(mimo_route_tables_place(&it.at, &x->shape, it.memory));
    return it;
}

/* A rank's tables, beside the reference's route. */
typedef struct comparison {
    const team *x;
    const reference *expected;
    const mimo_route_map *map;
    const mimo_route_tables *got;
    int rank, turn;
} comparison;

#define SAME(it, got, wanted, what, n)                                                           \
    MPI_EXPECT((got) == (wanted), "turn %d, rank %d of %d: %s %d is %lld, not %lld", (it)->turn, \
               (it)->rank, (it)->x->ranks, what, (int)(n), (long long)(got), (long long)(wanted))

static void compare_sizes(const comparison *it)
{
    const mimo_expert_shape *shape = &it->x->shape;
    const mimo_route_map *map = it->map;
    for (int rank = 0; rank < shape->ranks; rank++) {
        SAME(it, it->got->tokens[rank], it->expected->ranks.tokens[rank], "tokens of rank", rank);
        SAME(it, it->got->capacity[rank], it->expected->ranks.capacity[rank], "capacity", rank);
    }
    for (int x = 0; x < shape->ep; x++)
        SAME(it, it->got->needed[x], map->rows[x], "rows needed of x", x);
    for (int local = 0; local < shape->held; local++) {
        int64_t e = it->rank / shape->etp * shape->held + local;
        SAME(it, it->got->ends[local], map->ends[local], "end", local);
        SAME(it, it->got->filled[local], map->starts[e] + mimo_route_expert_rows(map, e),
             "last row of expert", e);
    }
}

static void compare_starts(const comparison *it)
{
    const mimo_expert_shape *shape = &it->x->shape;
    for (int e = 0; e < shape->experts; e++) {
        int64_t at = it->map->starts[e];
        for (int rank = 0; rank < shape->ranks; rank++) {
            SAME(it, it->got->starts[rank * shape->experts + e], at, "start of expert", e);
            at += it->map->counts[rank * shape->experts + e];
        }
    }
}

/* The rows of one rank's tokens that this rank knows: [tokens, k], -1 for no pair. */
static int32_t *rows_of(const comparison *it, int rank)
{
    const bool own = rank == it->rank;
    const mimo_route_blocks *blocks = own ? &it->map->out : &it->map->in;
    const int64_t count = it->expected->ranks.tokens[rank] * it->x->shape.top_k;
    int32_t *rows = malloc((size_t)count * sizeof *rows + 1);
    const int64_t first = own ? 0 : rank, end = own ? it->x->shape.ep : rank + 1;
    memset(rows, 0xff, (size_t)count * sizeof *rows);
    for (int64_t q = blocks->pairs[blocks->begin[first]]; q < blocks->pairs[blocks->begin[end]];
         q++)
        rows[blocks->pair[q]] = (int32_t)blocks->row[q];
    return rows;
}

typedef struct lost {
    bool any, here;
} lost;

/* Of a token, from the ids and its rows. */
static lost loses(const comparison *it, const uint16_t *ids, const int32_t *rows)
{
    const mimo_expert_shape *shape = &it->x->shape;
    lost found = {false, false};
    for (int j = 0; j < shape->top_k; j++) {
        int x = ids[j] / shape->held;
        if (rows[j] < 0 || !mimo_route_is_lost(it->map, &it->expected->ranks.ids, x, rows[j]))
            continue;
        found.any = true;
        found.here = found.here || x == it->rank / shape->etp;
    }
    return found;
}

static void compare_token(const comparison *it, int rank, int64_t token, const int32_t *rows)
{
    const mimo_expert_shape *shape = &it->x->shape;
    const mimo_route_ids *all = &it->expected->ranks.ids;
    const uint16_t *ids = all->ids + rank * all->stride + token * shape->top_k;
    const int64_t at = rank * (int64_t)shape->max_tokens + token;
    const int most = shape->words == 1 ? MIMO_PROGRAM_LEAVES_1 : MIMO_PROGRAM_LEAVES_2;
    const lost found = loses(it, ids, rows);
    mimo_token pairs;
    uint64_t program[2];
    for (int j = 0; j < shape->top_k; j++) {
        SAME(it, it->got->row[at * shape->top_k + j], rows[j], "row of token", token);
        int x = ids[j] == MIMO_TOKEN_NONE ? MIMO_TOKEN_NONE : ids[j] / shape->held;
        if (rank == it->rank)
            SAME(it, it->got->x[token * shape->top_k + j], x, "x of token", token);
    }
    mimo_token_read(&pairs, ids, shape->top_k, most);
    mimo_partial_program(program, &pairs, shape, it->rank / shape->etp, found.here, most);
    for (int w = 0; w < shape->words; w++)
        SAME(it, it->got->partial[at * shape->words + w], program[w], "partial sum of token",
             token);
    mimo_total_program(program, &pairs, shape, found.any, most);
    for (int w = 0; w < shape->words && rank == it->rank; w++)
        SAME(it, it->got->total[token * shape->words + w], program[w], "sum of token", token);
}

static void compare_tokens(const comparison *it)
{
    const mimo_expert_shape *shape = &it->x->shape;
    uint64_t shared[2];
    for (int rank = 0; rank < it->x->ranks; rank++) {
        int32_t *rows = rows_of(it, rank);
        for (int64_t token = 0; token < it->expected->ranks.tokens[rank]; token++)
            compare_token(it, rank, token, rows + token * shape->top_k);
        free(rows);
    }
    mimo_shared_program(shared, shape);
    for (int w = 0; w < shape->words; w++)
        SAME(it, it->got->shared[w], shared[w], "sum over etp, word", w);
}

static void compare_all(const team *x, const reference *expected, int turn)
{
    for (int rank = 0; rank < x->ranks; rank++) {
        pulled it = pull_tables(x, rank);
        const comparison pair = {x, expected, &expected->maps[rank], &it.at, rank, turn};
        compare_sizes(&pair);
        compare_starts(&pair);
        compare_tokens(&pair);
        free(it.memory);
    }
}

/* ----------------------------------------- routes ------------------------------------------- */

static plain_route *draw(const team_case *it, uint64_t seed)
{
    const plain_draw how = {seed, it->max_tokens, true};
    plain_route *plain =
        plain_route_create(it->ranks, it->etp, it->experts, it->top_k, it->alignment);
    plain_route_draw(plain, &how);
    return plain;
}

static void set_once(team *x, const team_case *it, int turn)
{
    plain_route *plain = draw(it, (uint64_t)turn);
    reference expected;
    make_reference(&expected, plain, (uint64_t)turn);
    prepare(x, plain, &expected);
    set_all(x, turn);
    compare_all(x, &expected, turn);
    release_reference(&expected);
    plain_route_destroy(plain);
}

static const team_case cases[] = {
    /* ranks, etp, experts, top_k, alignment, max_tokens, blocks, wide */
    {1, 1, 4, 2, 1, 9, 8, false},
    {1, 1, 256, 8, 1, 600, 8, true},
    {2, 1, 4, 2, 1, 0, 8, false},
    {2, 1, 256, 8, 16, 700, 8, false},
    {2, 2, 6, 3, 4, 100, 1, true},
    {3, 1, 48, 8, 1, 333, 8, true},
    {3, 3, 5, 5, 7, 64, 8, false},
    {4, 2, 16, 6, 1, 257, 8, false},
    {4, 1, 64, 14, 16, 300, 8, true},
    {6, 2, 9, 3, 1, 50, 8, false},
    {8, 1, 64, 8, 1, 400, 8, false},
    {8, 1, 8, 2, 16, 400, 1, false},
    {8, 4, 256, 8, 8, 130, 8, true},
    {8, 8, 3, 2, 1, 40, 8, false},
    {2, 1, 3000, 8, 1, 500, 8, false},
    {2, 1, 16, 4, 1, 20000, 8, false}, /* more pairs than one batch of each lane */
};

MPI_TEST(experts, routes)
{
    enum { TURNS = 9 };
    int ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        team x;
        open_team(&x, &cases[i]);
        for (int turn = 1; turn <= TURNS; turn++, ran++)
            set_once(&x, &cases[i], turn);
        close_team(&x);
    }
    MPI_CASES_RAN(ran, ran, 144, "sets");
}

/* A graph of each rank's set, replayed with other ids. Numbers of tokens and capacities stay. */
static void capture(team *x)
{
    for (int rank = 0; rank < x->ranks; rank++) {
        member *own = &x->members[rank];
        cudaGraph_t graph;
        EXPECT_CUDA(cudaStreamBeginCapture(own->stream, cudaStreamCaptureModeThreadLocal));
        EXPECT_CUDA(mimo_route_kernels(&own->launch, own->stream));
        EXPECT_CUDA(cudaStreamEndCapture(own->stream, &graph));
        EXPECT_CUDA(cudaGraphInstantiate(&own->graph, graph, 0));
        cudaGraphDestroy(graph);
    }
}

/* All ranks have max_tokens tokens: what a route lacks is padded with -1. */
static void pad(plain_route *plain, const team_case *it)
{
    const int64_t pairs = it->max_tokens * it->top_k;
    int32_t *ids = malloc((size_t)pairs * sizeof *ids);
    for (int64_t rank = 0; rank < it->ranks; rank++) {
        const int64_t had = plain->tokens[rank] * it->top_k;
        for (int64_t i = 0; i < pairs; i++)
            ids[i] = i < had ? plain->ids[rank][i] : -1;
        plain_route_set(plain, rank, it->max_tokens, ids);
    }
    free(ids);
}

MPI_TEST(experts, replayed)
{
    enum { REPLAYS = 1000 };
    const team_case it = {4, 1, 64, 8, 1, 96, 8, false};
    const int64_t capacity = it.ranks * it.max_tokens * it.top_k / 6; /* sometimes too small */
    team x;
    open_team(&x, &it);
    for (int rank = 0; rank < x.ranks; rank++) {
        x.members[rank].launch.tokens = (int32_t)it.max_tokens;
        x.members[rank].launch.capacity = (int32_t)capacity;
    }
    capture(&x);
    for (int turn = 1; turn <= REPLAYS; turn++) {
        plain_route *plain = draw(&it, (uint64_t)turn);
        reference expected;
        pad(plain, &it);
        make_reference(&expected, plain, 0);
        for (int rank = 0; rank < x.ranks; rank++)
            expected.ranks.capacity[rank] = capacity;
        prepare(&x, plain, &expected);
        set_all(&x, turn);
        compare_all(&x, &expected, turn);
        release_reference(&expected);
        plain_route_destroy(plain);
    }
    close_team(&x);
}

/* ----------------------------------------- counts ------------------------------------------- */

/* Ids that are no experts count as none, and the counters say how many there were. */
MPI_TEST(experts, counters)
{
    static const int32_t ids[] = {0, 9, 3, -5}, as[] = {0, -1, 3, -1};
    const team_case it = {1, 1, 4, 2, 1, 2, 8, false};
    plain_route *plain = plain_route_create(1, 1, 4, 2, 1);
    team x;
    reference expected;
    mimo_expert_counters counters;
    open_team(&x, &it);
    plain_route_set(plain, 0, 2, as);
    make_reference(&expected, plain, 0);
    for (int turn = 1; turn <= 3; turn++) {
        expected.ranks.capacity[0] = turn == 2 ? 1 : 2;
        prepare(&x, plain, &expected);
        EXPECT_CUDA(cudaMemcpy(x.members[0].ids, ids, sizeof ids, cudaMemcpyHostToDevice));
        set_all(&x, 0);
        compare_all(&x, &expected, turn);
    }
    EXPECT_CUDA(cudaMemcpy(&counters, x.counters, sizeof counters, cudaMemcpyDeviceToHost));
    MPI_EXPECT(counters.call == 3 && counters.routes == 3 && counters.overflows == 1,
               "%d calls, %d routes, %d overflows", (int)counters.call, (int)counters.routes,
               (int)counters.overflows);
    MPI_EXPECT(counters.rows == 2 && counters.strays == 6 && counters.finished == 0,
               "%d rows, %d strays, %d blocks", counters.rows, (int)counters.strays,
               (int)counters.finished);
    release_reference(&expected);
    plain_route_destroy(plain);
    close_team(&x);
}

/* ------------------------------------- waits that end --------------------------------------- */

/* Without its peers a rank waits until the host ends it. Then the route has no tokens. */
MPI_TEST(experts, aborted)
{
    const team_case it = {2, 1, 8, 2, 1, 16, 8, false};
    plain_route *plain = draw(&it, 3);
    reference expected;
    team x;
    open_team(&x, &it);
    make_reference(&expected, plain, 0);
    prepare(&x, plain, &expected);
    EXPECT_CUDA(mimo_route_kernels(&x.members[0].launch, x.members[0].stream));
    MPI_EXPECT(cudaStreamQuery(x.members[0].stream) == cudaErrorNotReady, "it did not wait");
    ((volatile mimo_push_note *)x.notes)[0].abort = 1;
    EXPECT_CUDA(cudaStreamSynchronize(x.members[0].stream));
    pulled got = pull_tables(&x, 0);
    MPI_EXPECT(got.at.tokens[0] == 0 && got.at.tokens[1] == 0 && got.at.needed[1] == 0,
               "tokens %d and %d, rows %d", got.at.tokens[0], got.at.tokens[1], got.at.needed[1]);
    free(got.memory);
    release_reference(&expected);
    plain_route_destroy(plain);
    close_team(&x);
}

/* One rank makes another call: all ranks end it, and each has a note. */
static void refuse_in_team(int ranks)
{
    const team_case it = {ranks, 1, 8, 2, 1, 16, 8, false};
    plain_route *plain = draw(&it, 5);
    reference expected;
    team x;
    open_team(&x, &it);
    make_reference(&expected, plain, 0);
    prepare(&x, plain, &expected);
    x.members[ranks - 1].launch.group.signature++;
    set_all(&x, 0);
    for (int rank = 0; rank < ranks; rank++) {
        const mimo_push_note *note = &x.notes[rank];
        int peer = rank + (int)note->refusal.distance;
        MPI_EXPECT(note->abort == 1 && note->refusal.noted == 1, "rank %d: nothing is noted", rank);
        MPI_EXPECT(peer >= 0 && peer < ranks && peer != rank, "rank %d notes rank %d", rank, peer);
        MPI_EXPECT(mimo_ready_call(note->refusal.mine) == 1, "rank %d notes call %d", rank,
                   (int)mimo_ready_call(note->refusal.mine));
    }
    release_reference(&expected);
    plain_route_destroy(plain);
    close_team(&x);
}

MPI_TEST(experts, refused)
{
    refuse_in_team(2);
    refuse_in_team(4);
}

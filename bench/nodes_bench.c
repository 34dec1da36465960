/*
 * What a step of nodes hides of its exchanges. Walks a forward beside a backward over mixtures of
 * experts, micro-batch after micro-batch, in three ways that take turns in one run:
 *
 *   T    moves are in flight while the other micro-batch computes, as --overlap trains
 *   T0   moves copy as many bytes on their own rank, and no rank waits for another one
 *   Tm   a move ends before the next node begins
 *
 *   hidden = 1 - (T - T0) / (Tm - T0)        ceiling = (Tm - T0) / Tm
 *
 * under three routings: even, Zipf(1) over the experts, and all rows to the experts of one rank. A
 * time is that of the slowest rank, and the median of the repeats.
 *
 *   mpirun -n 4 nodes_bench [--device cpu] [--hidden 256] [--inner 512] [--tokens 256] ...
 *
 * On the host moves progress in calls between products, on the thread that computes: little hides
 * there. On GPUs exchanges have streams of their own (node_lanes.h), and a time is that between two
 * events of the stream that computes. `host` is the part of T for which the host is at work, waits
 * included: near 1 it is what limits. Ids are uploaded in each forward. Above 64 KiB of them, where
 * tokens * k > 16384, CUDA may let the host wait for that.
 *
 * --same-bits computes in the fixed order, where experts take sizes from the device and the host
 * waits for no route. With --graph as well each way is captured once, after a walk that uploads the
 * ids, and launched as one CUDA graph.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/mpi.h>

#include "bench_support.h"
#include "core/check.h"
#include "core/hash.h"
#include "device/device.h"
#include "step_graph.h"
#include "train/device/blas_kernels.h"
#include "train/device/compute_device.h"
#include "train/nn/params/nn_initial.h"
#include "train/pipeline/stack_walk.h"

enum { MOST_REPEATS = 1000, MOST_LAYERS = 64, MOST_MICRO = 64, HEADS = 4, WARM = 2 };
/* Micro-batches in flight: one goes forward beside the backward of the one before it. */
enum { STATES = 2 };

typedef enum way { OVERLAP, LOCAL, SERIAL, WAYS } way;
typedef enum routing { EVEN, ZIPF, HOT, ROUTINGS } routing;
static const char *const routing_names[ROUTINGS] = {"even", "Zipf(1)", "one hot rank"};

typedef struct settings {
    mimo_memory memory;
    nn_precision precision;
    int64_t hidden, inner, experts, top_k, tokens, layers, micro_batches, repeats, ctas, capacity;
    bool carveout, same_bits, graph, json;
} settings;

typedef struct bench {
    settings s;
    mimo_comm *world;
    compute_device device;
    int ranks, rank;
    routing routes;
    nn_replay replay;
    nn_params *params;
    nn_dispatch *dispatch;
    nn_sequence sequence;
    nn_stack stack;
    nn_stack_saved saved[STATES];
    nn_room rooms[STATES];
    mimo_buffer *buffer; /* of the rooms, on a device: ranks write rows straight into it */
    int32_t *ids;        /* [tokens, k]: of every layer and micro-batch */
    nn_real *x, *dy;     /* [tokens, hidden]: of every micro-batch */
    mimo_nodes *nodes;
    stage_streams streams;
    step_clock clock;
    stack_walk walk;
    step_graph *graphs[WAYS];                              /* NULL: the way is walked */
    double times[WAYS][MOST_REPEATS], hosts[MOST_REPEATS]; /* ms; hosts: of OVERLAP */
} bench;

#define OPTION_INTO settings

static const option_row known[] = {
    OPTION_CHOICE("device", memory, "cpu|cuda", "Where tensors live (default cpu)", .letter = 'd'),
    OPTION_CHOICE("precision", precision, "f32|bf16", "Of the factors of products (default f32)"),
    OPTION_INT("ctas", "N", ctas, 1, 1024, "Thread blocks of an exchange on a GPU (default 32)"),
    OPTION_FLAG("carveout", carveout,
                "Products are cut for the multiprocessors that exchanges leave"),
    OPTION_FLAG("same-bits", same_bits, "Additions in the fixed order"),
    OPTION_FLAG("graph", graph, "Each way as a CUDA graph; with --device cuda --same-bits"),
    OPTION_INT("capacity", "N", capacity, 0, INT32_MAX,
               "Rows of a rank's experts (default 0: any choice fits)"),
    OPTION_INT("hidden", "N", hidden, HEADS, INT32_MAX, "Width of the rows (default 256)"),
    OPTION_INT("inner", "N", inner, 1, INT32_MAX, "Width inside an expert (default 512)"),
    OPTION_INT("experts", "E", experts, 1, 65535, "Experts, over the ranks (default 16)"),
    OPTION_INT("top-k", "K", top_k, 1, 64, "Experts of a token (default 2)"),
    OPTION_INT("tokens", "N", tokens, 1, INT32_MAX, "Of a micro-batch, each rank (default 256)"),
    OPTION_INT("layers", "N", layers, 1, MOST_LAYERS, "Mixtures, one behind the other (default 4)"),
    OPTION_INT("micro-batches", "M", micro_batches, 2, MOST_MICRO, "Of a step (default 4)"),
    OPTION_INT("repeats", "N", repeats, 1, MOST_REPEATS, "Timed steps of each way (default 11)"),
    OPTION_FLAG("json", json, "One JSON object a line", .letter = 'j'),
};
static const option_table table = {
    .program = "nodes_bench",
    .about = "Time exchanges of experts under products, beside local copies and one after the "
             "other.",
    OPTION_ROWS(known)};

/* ------------------------------------------- routes ------------------------------------------ */

static double uniform(uint64_t seed)
{
    return (double)(mimo_mix64(seed) >> 11) / 9007199254740992.0;
}

/* Expert e with a probability that 1 / (e + 1) is proportional to. */
static int32_t zipf(const bench *b, uint64_t seed)
{
    double sum = 0, at = 0;
    for (int64_t e = 0; e < b->s.experts; e++)
        sum += 1.0 / (double)(e + 1);
    double wanted = uniform(seed) * sum;
    for (int64_t e = 0; e < b->s.experts; e++) {
        at += 1.0 / (double)(e + 1);
        if (at > wanted)
            return (int32_t)e;
    }
    return (int32_t)b->s.experts - 1;
}

static int32_t choice(const bench *b, int64_t row, int64_t k, uint64_t seed)
{
    int64_t number = row * b->s.top_k + k;
    if (b->routes == ZIPF)
        return zipf(b, seed);
    return (int32_t)(number % (b->routes == HOT ? b->s.experts / b->ranks : b->s.experts));
}

/* Experts of a row that differ. */
static void choose(const bench *b, int32_t *ids, int64_t row)
{
    uint64_t seed = mimo_mix64((uint64_t)row + 1) + (uint64_t)b->rank * 7919;
    for (int64_t k = 0; k < b->s.top_k; k++) {
        bool taken = true;
        while (taken) {
            ids[k] = choice(b, row, k, ++seed);
            taken = false;
            for (int64_t j = 0; j < k; j++)
                taken |= ids[j] == ids[k];
        }
    }
}

static mimo_status give_ids(void *context, int32_t *ids, const char *layer,
                            const nn_row_range *rows)
{
    const bench *b = context;
    (void)layer;
    memcpy(ids, b->ids + rows->first * b->s.top_k,
           (size_t)(rows->count * b->s.top_k) * sizeof *ids);
    return MIMO_OK;
}

/* ------------------------------------------- model ------------------------------------------- */

static bool on_device(const bench *b)
{
    return b->s.memory != MIMO_MEMORY_HOST;
}

static void make_dispatch(bench *b)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = b->s.experts;
    desc.top_k = b->s.top_k;
    desc.max_tokens = b->s.tokens;
    desc.hidden = b->s.hidden;
    desc.ctas = (int)b->s.ctas;
    desc.buffers_only = on_device(b);
    must(nn_dispatch_create(&b->dispatch, &b->device.runtime, b->device.world, &desc));
}

/* The rooms lie one behind the other, at equal places of all ranks. */
static void make_buffer(bench *b)
{
    int64_t bytes = 0;
    for (int64_t m = 0; m < STATES; m++)
        bytes += b->rooms[m].used;
    must(mimo_buffer_create(&b->buffer, b->device.world, bytes));
    char *base = mimo_buffer_data(b->buffer);
    for (int64_t m = 0; m < STATES; m++)
        must(nn_room_lend(&b->rooms[m], &b->device.runtime, &base));
}

static void make_rooms(bench *b)
{
    for (int64_t m = 0; m < STATES; m++) {
        must(nn_stack_saved_init(&b->saved[m], &b->stack));
        must(nn_stack_saved_take(&b->saved[m], &b->stack, &b->rooms[m]));
    }
    if (on_device(b))
        make_buffer(b);
    for (int64_t m = 0; m < STATES; m++) {
        if (!on_device(b))
            must(nn_room_reserve(&b->rooms[m], &b->device.runtime));
        must(nn_stack_saved_take(&b->saved[m], &b->stack, &b->rooms[m]));
    }
}

/* Any numbers will do that are not all alike, as products of zeros take less power. To draw those
 * of nn_initial.h takes minutes. */
static void write_weights(const bench *b)
{
    const int64_t count = nn_params_largest(b->params);
    nn_real *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (nn_real)(0.04 * (uniform((uint64_t)i) - 0.5));
    for (int i = 0; i < nn_params_count(b->params); i++)
        if (nn_params_at(b->params, i)->held)
            must(nn_params_write(b->params, i, NN_VALUE, values));
    free(values);
}

static void make_stack(bench *b)
{
    static const nn_block_kind *kinds[MOST_LAYERS];
    b->replay = (nn_replay){give_ids, b};
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_size = 1,
                            .experts = {0, 1, b->rank, b->ranks},
                            .blank = true,
                            .runtime = &b->device.runtime};
    nn_mixture mixture = {.dispatch = b->dispatch,
                          .inner = b->s.inner,
                          .scores = NN_SCORES_ALL,
                          .capacity = b->s.capacity,
                          .replay = &b->replay};
    nn_stack_desc stack = {.name = "block",
                           .count = b->s.layers,
                           .kinds = kinds,
                           .block = {.hidden = b->s.hidden,
                                     .heads = HEADS,
                                     .inner = b->s.inner,
                                     .max_rows = b->s.tokens,
                                     .max_batch = 1,
                                     .std = 0.02,
                                     .out_std = 0.02,
                                     .mixture = &mixture}};
    for (int64_t i = 0; i < b->s.layers; i++)
        kinds[i] = &nn_block_mixed;
    must(nn_params_create(&b->params, &store));
    must(nn_stack_init(&b->stack, b->params, NULL, &stack));
    must(nn_params_seal(b->params));
    write_weights(b);
    make_rooms(b);
}

static void make_rows(bench *b)
{
    nn_sequence_desc sequence = {
        .rows = b->s.tokens, .batch = 1, .causal = true, .runtime = &b->device.runtime};
    int64_t count = b->s.tokens * b->s.hidden, bytes = count * (int64_t)sizeof(nn_real);
    nn_real *values = malloc((size_t)bytes);
    must(nn_sequence_init(&b->sequence, &sequence));
    must(nn_runtime_reserve(&b->device.runtime, &b->x, count, sizeof *b->x));
    must(nn_runtime_reserve(&b->device.runtime, &b->dy, count, sizeof *b->dy));
    for (int64_t i = 0; i < count; i++)
        values[i] = (nn_real)nn_normal(1, "x", i + b->rank * count);
    must(nn_runtime_write(&b->device.runtime, b->x, values, bytes));
    must(nn_runtime_write(&b->device.runtime, b->dy, values, bytes));
    free(values);
}

/* -------------------------------------------- walk ------------------------------------------- */

static mimo_status find(stack_pass *out, void *context, const mimo_node *node)
{
    bench *b = context;
    *out = (stack_pass){&b->stack, &b->saved[node->micro_batch % STATES]};
    return MIMO_OK;
}

static mimo_status other(void *context, const mimo_node *node)
{
    bench *b = context;
    const nn_runtime *runtime = &b->device.runtime;
    nn_stack_saved *saved = &b->saved[node->micro_batch % STATES];
    int64_t bytes = b->s.tokens * b->s.hidden * (int64_t)sizeof(nn_real);
    bool forward = node->pass == MIMO_NODE_FORWARD;
    if (node->part == MIMO_NODE_POST_PROCESS && !forward)
        return runtime->device->copy(saved->x[b->s.layers], b->dy, bytes, runtime->stream);
    if (node->part != MIMO_NODE_PRE_PROCESS || !forward)
        return MIMO_OK;
    must(runtime->device->copy(saved->x[0], b->x, bytes, runtime->stream));
    return nn_stack_begin(&b->stack, saved, &b->sequence);
}

static void make_walk(bench *b)
{
    const stack_walk_work work = {b, find, other, &b->streams, b->dispatch};
    const stage_streams_desc streams = {.runtime = &b->device.runtime, .exchanges = true};
    mimo_schedule_desc sizes = MIMO_SCHEDULE_DESC_INIT;
    mimo_node_layer layers[MOST_LAYERS];
    mimo_node_chunk chunk = {layers, b->s.layers, 0, 0};
    mimo_schedule *schedule;
    sizes.micro_batches = b->s.micro_batches;
    sizes.overlap = true;
    for (int64_t i = 0; i < b->s.layers; i++)
        layers[i] = stack_walk_layer(&nn_block_mixed, NN_RECOMPUTE_NONE);
    must(stage_streams_create(&b->streams, &streams));
    must(step_clock_create(&b->clock, &b->streams, 2));
    must(mimo_schedule_create(&schedule, &sizes));
    must(mimo_nodes_create(&b->nodes, schedule, &chunk, NULL));
    must(stack_walk_open(&b->walk, b->nodes, 0, &work));
    mimo_schedule_destroy(schedule);
}

static double slowest_of(const bench *b, double own)
{
    double *all = bench_room(b->ranks, sizeof *all), slowest = 0;
    must(mimo_comm_host_allgather(b->device.world, all, &own, sizeof own));
    for (int r = 0; r < b->ranks; r++)
        slowest = all[r] > slowest ? all[r] : slowest;
    free(all);
    return slowest;
}

static void set_way(bench *b, way by)
{
    b->walk.serial = by == SERIAL;
    must(nn_dispatch_set_local(b->dispatch, by == LOCAL));
}

static void walk_nodes(bench *b)
{
    for (int64_t at = 0; at < b->walk.count;)
        must(stack_walk_step(&at, &b->walk));
}

/* A way that was walked before. Its ids stay: an upload would belong to the graph. */
static void capture(bench *b, way by)
{
    set_way(b, by);
    b->replay.ids = NULL;
    step_graph_begin(b->device.stream);
    walk_nodes(b);
    b->graphs[by] = step_graph_end(b->device.stream);
    b->replay.ids = give_ids;
}

static void forget_graphs(bench *b)
{
    for (int by = 0; by < WAYS; by++) {
        step_graph_destroy(b->graphs[by]);
        b->graphs[by] = NULL;
    }
}

typedef struct step_time {
    double step, host; /* ms of the slowest rank */
} step_time;

/* All ranks begin together. */
static step_time time_step(bench *b, way by)
{
    set_way(b, by);
    must(nn_params_zero_grad(b->params));
    must(mimo_comm_barrier(b->device.world));
    int64_t begin = host_clock_now();
    must(step_clock_stamp(&b->clock, 0, STREAM_COMPUTE));
    if (b->graphs[by])
        step_graph_launch(b->graphs[by], b->device.stream);
    else
        walk_nodes(b);
    must(step_clock_stamp(&b->clock, 1, STREAM_COMPUTE));
    int64_t host = host_clock_now() - begin;
    must(step_clock_read(&b->clock, 2));
    return (step_time){slowest_of(b, 1e-6 * (double)b->clock.times[1]),
                       slowest_of(b, 1e-6 * (double)host)};
}

/* The first way sets the routes, which local copies keep. The last warm step of a way is the first
 * of its graph. */
static void measure(bench *b, routing routes)
{
    b->routes = routes;
    forget_graphs(b);
    for (int64_t i = 0; i < b->s.tokens; i++)
        choose(b, b->ids + i * b->s.top_k, i);
    for (int64_t repeat = -WARM; repeat < b->s.repeats; repeat++)
        for (int by = 0; by < WAYS; by++) {
            if (repeat == -1 && b->s.graph)
                capture(b, (way)by);
            step_time time = time_step(b, (way)by);
            if (repeat >= 0)
                b->times[by][repeat] = time.step;
            if (repeat >= 0 && by == OVERLAP)
                b->hosts[repeat] = time.host;
        }
    must(nn_dispatch_check(b->dispatch));
}

/* ------------------------------------------- print ------------------------------------------- */

/* The most rows that come to a rank's experts, over the mean. */
static double load_of(const bench *b)
{
    mimo_dispatch_counts counts = MIMO_DISPATCH_COUNTS_INIT;
    must(nn_dispatch_report(&counts, b->dispatch));
    return (double)counts.rows / (double)(b->s.tokens * b->s.top_k);
}

static void print_routing(bench *b, routing routes)
{
    double load = load_of(b), times[WAYS];
    for (int by = 0; by < WAYS; by++)
        times[by] = bench_median(b->times[by], b->s.repeats);
    double moves = times[SERIAL] - times[LOCAL], shown = times[OVERLAP] - times[LOCAL];
    double hidden = moves > 0 ? 1 - shown / moves : 0, ceiling = moves / times[SERIAL];
    double host = bench_median(b->hosts, b->s.repeats) / times[OVERLAP];
    if (b->rank > 0)
        return;
    if (b->s.json)
        printf("{\"routing\":\"%s\",\"load\":%.3f,\"t_ms\":%.4f,\"t0_ms\":%.4f,\"tm_ms\":%.4f,"
               "\"hidden\":%.4f,\"ceiling\":%.4f,\"host\":%.4f}\n",
               routing_names[routes], load, times[OVERLAP], times[LOCAL], times[SERIAL], hidden,
               ceiling, host);
    else
        printf("%-14s %6.2f %10.3f %10.3f %10.3f %8.3f %8.3f %10.3f %6.2f\n", routing_names[routes],
               load, times[OVERLAP], times[LOCAL], times[SERIAL], hidden, ceiling,
               times[OVERLAP] / times[SERIAL], host);
}

static void print_head(const bench *b)
{
    if (b->rank > 0 || b->s.json)
        return;
    printf("%d ranks, %" PRId64 " experts, k=%" PRId64 ", hidden %" PRId64 ", inner %" PRId64
           ", %" PRId64 " tokens a rank, %" PRId64 " layers, %" PRId64
           " micro-batches; medians of %" PRId64 ", ms of the slowest rank\n",
           b->ranks, b->s.experts, b->s.top_k, b->s.hidden, b->s.inner, b->s.tokens, b->s.layers,
           b->s.micro_batches, b->s.repeats);
    printf("%-14s %6s %10s %10s %10s %8s %8s %10s %6s\n", "routing", "load", "T", "T0", "Tm",
           "hidden", "ceiling", "T / Tm", "host");
}

/* -------------------------------------------- main ------------------------------------------- */

static mimo_status check(const bench *b)
{
    MIMO_CHECK(b->s.experts % b->ranks == 0 && b->s.top_k <= b->s.experts / b->ranks,
               MIMO_ERR_ARGUMENT,
               "--experts %" PRId64 " over %d ranks: each must have the same number, and at least "
               "--top-k %" PRId64,
               b->s.experts, b->ranks, b->s.top_k);
    MIMO_CHECK(b->s.hidden % HEADS == 0, MIMO_ERR_ARGUMENT,
               "--hidden %" PRId64 " is no multiple of %d heads", b->s.hidden, HEADS);
    MIMO_CHECK(!b->s.graph || (on_device(b) && b->s.same_bits), MIMO_ERR_ARGUMENT,
               "--graph needs --device cuda and --same-bits: otherwise the host reads each route");
    return MIMO_OK;
}

static void open_all(bench *b)
{
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    const nn_runtime_desc runtime = {.memory = b->s.memory,
                                     .precision = b->s.precision,
                                     .order = b->s.same_bits ? NN_ORDER_FIXED : NN_ORDER_FAST,
                                     .spared = b->s.carveout ? (int)b->s.ctas : 0};
    must(mimo_comm_create_mpi(&b->world, MPI_COMM_WORLD, &desc));
    b->ranks = mimo_comm_size(b->world);
    b->rank = mimo_comm_rank(b->world);
    must(check(b));
    must(compute_device_open(&b->device, b->world, &runtime));
    b->ids = bench_room(b->s.tokens * b->s.top_k, sizeof *b->ids);
    make_dispatch(b);
    make_stack(b);
    make_rows(b);
    make_walk(b);
}

static void close_all(bench *b)
{
    forget_graphs(b);
    stack_walk_close(&b->walk);
    mimo_nodes_destroy(b->nodes);
    nn_runtime_free(&b->device.runtime, b->x);
    nn_runtime_free(&b->device.runtime, b->dy);
    nn_sequence_release(&b->sequence);
    for (int64_t m = 0; m < STATES; m++) {
        nn_stack_saved_release(&b->saved[m]);
        if (!b->buffer)
            nn_room_release(&b->rooms[m]);
    }
    nn_stack_release(&b->stack);
    nn_params_destroy(b->params);
    nn_dispatch_destroy(b->dispatch);
    mimo_buffer_destroy(b->buffer);
    step_clock_destroy(&b->clock);
    stage_streams_destroy(&b->streams);
    free(b->ids);
    compute_device_close(&b->device);
    mimo_comm_destroy(b->world);
}

int main(int argc, char **argv)
{
    static bench b = {.s = {.memory = MIMO_MEMORY_HOST,
                            .precision = NN_PRECISION_FULL,
                            .hidden = 256,
                            .inner = 512,
                            .experts = 16,
                            .top_k = 2,
                            .tokens = 256,
                            .layers = 4,
                            .micro_batches = 4,
                            .repeats = 11,
                            .ctas = 32}};
    blas_kernels_choose(argv);
    bench_options(&b.s, &table, argc, argv);
    MPI_Init(&argc, &argv);
    open_all(&b);
    print_head(&b);
    for (int routes = 0; routes < ROUTINGS; routes++) {
        measure(&b, (routing)routes);
        print_routing(&b, (routing)routes);
    }
    close_all(&b);
    MPI_Finalize();
    return 0;
}

/*
 * Times the calls of a dispatch beside what they could take, and beside what users make instead: in
 * interleaved repeats of one run, between the same two events, on the slowest rank.
 *
 *   mpirun -n 2 dispatch_bench [--device cuda] [--routing even|zipf|one-rank] [--json] ...
 *
 * The floor is a push of as many bytes as the busiest rank has to send or to get: each token's row
 * once to each rank that has an expert of it, contiguous at both ends, by the library's own copies.
 * The other ways know how many rows go where beforehand; reading that back is not timed. What they
 * bring is compared bit for bit before anything is timed. On a GPU the host's launches count where
 * calls are short; with --graph every way is a CUDA graph, and they don't.
 *
 * Rows are bf16. Sums of the reduce-scatter are f32, as partial sums of a combine are without
 * --narrow: such a combine sends twice the bytes of the floor.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

#include "bench_support.h"
#include "dispatch_ways.h"

enum { MOST_REPEATS = 1000, WARM_UP = 2 };

typedef struct bench_settings {
    int64_t tokens, experts, top_k, hidden, ctas, repeats, calls;
    int device, kind; /* kind: a routing_kind + 1; 0: all */
    bool narrow, graph, json;
} bench_settings;

#define OPTION_INTO bench_settings
static const option_row rows[] = {
    OPTION_CHOICE("device", device, "cpu|cuda", "Where tensors live (default cpu)"),
    OPTION_INT("tokens", "N", tokens, 1, INT32_MAX, "Tokens of a rank (default 512)"),
    OPTION_INT("experts", "E", experts, 1, 65535, "Experts, of all ranks (default 64)"),
    OPTION_INT("top-k", "K", top_k, 1, 14, "Experts of a token (default 8)"),
    OPTION_INT("hidden", "H", hidden, 8, INT32_MAX / 4,
               "Elements of a row, a multiple of 8 (default 1024)"),
    OPTION_CHOICE("routing", kind, "all|even|zipf|one-rank",
                  "Experts alike, or by 1/(e + 1), or those of rank 0 (default all)"),
    OPTION_INT("ctas", "C", ctas, 0, INT32_MAX,
               "Thread blocks of a move on a GPU (default 0: the library's choice)"),
    OPTION_FLAG("narrow", narrow, "Partial sums of a combine in bf16"),
    OPTION_FLAG("graph", graph, "Every way as a CUDA graph"),
    OPTION_INT("repeats", "N", repeats, 1, MOST_REPEATS, "Timed repeats of each way (default 15)"),
    OPTION_INT("calls", "N", calls, 1, INT32_MAX, "Calls of a repeat (default 5)"),
    OPTION_FLAG("json", json, "One JSON object a line"),
};
static const option_table table = {
    .program = "dispatch_bench",
    .about = "Time a dispatch beside other ways to move tokens to experts and back.",
    OPTION_ROWS(rows)};

typedef struct bench_world {
    const bench_settings *settings;
    const dispatch_place *place;
    mimo_comm *comm;
    mimo_stream stream;
    int rank, ranks;
} bench_world;

/* ---------------------------------------- printing ------------------------------------ */

/* What a way is compared with; WAYS: nothing. Where no row leaves its rank there is no floor. */
static dispatch_way yardstick(dispatch_way way, const routing *its)
{
    switch (way) {
    case WAY_ROWS:
    case WAY_COMBINE:
        return its->most_link > 0 ? WAY_FLOOR : WAYS;
    case WAY_PER_PAIR:
    case WAY_ONCE:
    case WAY_GATHERED:
        return WAY_ROWS;
    case WAY_ADDED:
    case WAY_SCATTERED:
        return WAY_COMBINE;
    default:
        return WAYS;
    }
}

static void print_words(const bench_world *world, const routing *its, const double us[WAYS],
                        routing_kind kind)
{
    const routing_sizes *sizes = &its->sizes;
    double row_kib = (double)world->settings->hidden * 2 / 1024;
    printf("%s: %d ranks of %" PRId64 " tokens, E %" PRId64 ", k %" PRId64 ", H %" PRId64
           ": %.2f MiB of the busiest rank, tile of %" PRId64 " rows (mean %" PRId64 ")\n",
           routing_names[kind], world->ranks, sizes->tokens, sizes->experts, sizes->top_k,
           world->settings->hidden, (double)its->most_link * row_kib / 1024, its->most_rows,
           sizes->tokens * sizes->top_k);
    for (int way = 0; way < WAYS; way++) {
        dispatch_way beside = yardstick((dispatch_way)way, its);
        printf("    %-24s %10.1f us", way_names[way], us[way]);
        if (beside != WAYS)
            printf("  %7.2f x %s", us[way] / us[beside], way_names[beside]);
        printf("\n");
    }
}

static void print_json(const bench_world *world, const routing *its, const double us[WAYS],
                       routing_kind kind)
{
    const routing_sizes *sizes = &its->sizes;
    printf("{\"routing\":\"%s\",\"device\":\"%s\",\"ranks\":%d,\"tokens\":%" PRId64
           ",\"experts\":%" PRId64 ",\"top_k\":%" PRId64 ",\"hidden\":%" PRId64 ",\"ctas\":%" PRId64
           ",\"narrow\":%s,\"graph\":%s,\"link_bytes\":%" PRId64 ",\"tile_rows\":%" PRId64,
           routing_names[kind], world->place->memory == MIMO_MEMORY_HOST ? "cpu" : "cuda",
           world->ranks, sizes->tokens, sizes->experts, sizes->top_k, world->settings->hidden,
           world->settings->ctas, world->settings->narrow ? "true" : "false",
           world->settings->graph ? "true" : "false", its->most_link * world->settings->hidden * 2,
           its->most_rows);
    for (int way = 0; way < WAYS; way++) {
        dispatch_way beside = yardstick((dispatch_way)way, its);
        printf(",\"%s_us\":%.2f", way_keys[way], us[way]);
        if (beside != WAYS)
            printf(",\"%s_ratio\":%.3f", way_keys[way], us[way] / us[beside]);
    }
    printf("}\n");
}

/* --------------------------------------- measuring ------------------------------------ */

static void measure(double us[WAYS], dispatch_ways *ways, const bench_settings *settings)
{
    static double times[WAYS][MOST_REPEATS];
    for (int way = 0; way < WAYS; way++) {
        bench_stage(way_names[way]);
        (void)dispatch_ways_time(ways, (dispatch_way)way, WARM_UP);
    }
    for (int64_t r = 0; r < settings->repeats; r++)
        for (int way = 0; way < WAYS; way++) {
            bench_stage(way_names[way]);
            times[way][r] = dispatch_ways_time(ways, (dispatch_way)way, (int)settings->calls);
        }
    for (int way = 0; way < WAYS; way++)
        us[way] = bench_median(times[way], settings->repeats);
}

/* Whether every way brought the same. */
static bool run(const bench_world *world, routing_kind kind)
{
    double us[WAYS];
    const bench_settings *s = world->settings;
    const routing_sizes sizes = {world->ranks, s->tokens, s->experts, s->top_k};
    const ways_desc desc = {.place = world->place,
                            .comm = world->comm,
                            .stream = world->stream,
                            .hidden = s->hidden,
                            .ctas = (int)s->ctas,
                            .narrow = s->narrow,
                            .graph = s->graph};
    bench_stage(routing_names[kind]);
    routing its = routing_make(&sizes, kind, world->rank);
    dispatch_ways *ways = dispatch_ways_new(&desc, &its);
    dispatch_way differs = dispatch_ways_check(ways);
    if (differs == WAYS)
        measure(us, ways, s);
    else if (world->rank == 0)
        fprintf(stderr, "dispatch_bench: %s, %s: other rows than those of a dispatch\n",
                routing_names[kind], way_names[differs]);
    if (differs == WAYS && world->rank == 0)
        (s->json ? print_json : print_words)(world, &its, us, kind);
    fflush(stdout);
    dispatch_ways_free(ways);
    routing_free(&its);
    return differs == WAYS;
}

/* Why these settings can't run on this number of ranks; NULL: they can. Lists of rows, and MPI's
 * counts, are int. */
static const char *refusal(const bench_settings *s, int ranks)
{
    if (s->experts % ranks > 0)
        return "--experts is no multiple of the number of ranks";
    if (s->top_k > s->experts)
        return "--top-k is larger than --experts";
    if (s->hidden % 8 > 0)
        return "--hidden is no multiple of 8";
    if (s->tokens > INT32_MAX / ranks / s->top_k)
        return "--tokens times --top-k of all ranks are too many";
    if (s->device == 0 && s->tokens > INT32_MAX / (2 * s->hidden))
        return "--tokens times --hidden are too many for messages of MPI";
    if (s->device == 0 && s->graph)
        return "--graph needs --device cuda";
#ifndef MIMO_WITH_CUDA
    if (s->device > 0)
        return "this build has no CUDA";
#endif
    return NULL;
}

static const dispatch_place *place_of(const bench_settings *settings)
{
#ifdef MIMO_WITH_CUDA
    if (settings->device > 0)
        return &dispatch_place_cuda;
#endif
    (void)settings;
    return &dispatch_place_host;
}

int main(int argc, char **argv)
{
    bench_settings settings = {
        .tokens = 512, .experts = 64, .top_k = 8, .hidden = 1024, .repeats = 15, .calls = 5};
    bench_world world = {.settings = &settings};
    bool well = true;
    bench_options(&settings, &table, argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
    world.place = place_of(&settings);
    const char *why = refusal(&settings, world.ranks);
    if (why) {
        if (world.rank == 0)
            fprintf(stderr, "dispatch_bench: %d ranks: %s\n", world.ranks, why);
        MPI_Finalize();
        return 2;
    }
    world.place->open(&world.comm, &world.stream);
    for (int kind = 0; kind < ROUTING_KINDS; kind++)
        if (settings.kind == 0 || settings.kind == kind + 1)
            well = run(&world, (routing_kind)kind) && well;
    world.place->close();
    MPI_Finalize();
    return well ? 0 : 1;
}

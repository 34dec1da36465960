/*
 * Times the bridge's executors on GPUs beside their floors and bare calls, in one run. Tensors are
 * bf16 rows of the LLM's hidden size. The LLM holds zigzag shards.
 *
 *   mpirun -n 4 nccl_bench [--graph] [--chunks] [--json] [--seq N] [--pair N]
 *   mpirun -n 2 nccl_bench --hops [--json]
 *
 *   in        MiB that the busiest rank receives under the routed plan
 *   floor     the link: a kernel that writes the same bytes to the same number of peers. First the
 *             best number of thread blocks, then 32 thread blocks
 *   collect   the executor `collective`; bare: its calls of NCCL and the copies that it must make
 *             (ratio: collect / bare)
 *   p2p       the executor p2p; bare: grouped ncclSend and ncclRecv of the same bytes, and copies
 *             of what is packed and unpacked (ratio: p2p / bare, where anything is sent)
 *   zero      zero-copy (ratio: zero / floor); with 32 thread blocks (ratio: / floor with 32); with
 *             destinations known to be idle; and by the wall clock, which includes the host
 *   local     one copy of the bytes that stay on the rank
 *   staged    transport staged, destinations in no buffer (ratio: / floor); with 32 thread blocks
 *             (ratio: / floor with 32)
 *   first     with --chunks, otherwise 0: the time until the first chunk of a call in 4 chunks is
 *             here; until the last one is (all); and of a whole call (one). nccl_chunks.h says how
 *   auto      what mimo_bridge_create_fastest chose for destinations in a buffer, and its time over
 *             the best of the three executors; elsewhere: for other destinations, over the best of
 *             two
 *
 * Times are in microseconds for one call. A time is that of the slowest rank over CALLS calls in a
 * row, the median of REPEATS. The repeats of all that is timed are interleaved. Before a pass is
 * timed, the result of every way is compared with that of `collective`, bit for bit. Where one
 * differs, that pass is not timed and the exit status is 1.
 *
 * The last lines compare the host's time of small calls whose tensors stay with that of calls whose
 * tensors lie elsewhere each time (bench_addresses.h; wanted: at most 1.1 times as long).
 *
 * With --graph a CUDA graph captures the CALLS calls and is replayed. Without it the host's
 * launches bound the small cases. The wall clock never uses a graph.
 *
 * With --hops nothing but the hops of a pipeline are timed (nccl_hops.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "bench_addresses.h"
#include "bench_support.h"
#include "nccl_chunks.h"
#include "nccl_hops.h"

enum { CALLS = 20, REPEATS = 7, WARM_UP = 3 };

static const struct {
    const char *src, *dst;
    int64_t batch;
} pairs[] = {
    {"tp=1,dp=2", "tp=1,cp=2,dp=1", 2}, {"tp=2,dp=1", "tp=1,cp=2,dp=1", 2},
    {"tp=2,dp=1", "tp=1,cp=1,dp=2", 2}, {"tp=1,dp=4", "tp=1,cp=2,dp=2", 4},
    {"tp=1,dp=4", "tp=1,cp=4,dp=1", 4}, {"tp=2,dp=2", "tp=1,cp=4,dp=1", 2},
    {"tp=4,dp=1", "tp=1,cp=2,dp=2", 2}, {"tp=2,dp=2", "tp=1,cp=2,dp=2", 2},
    {"tp=1,dp=1", "tp=1,cp=1,dp=1", 1},
};

static const struct {
    int64_t seq, hidden;
} shapes[] = {{256, 1024}, {2048, 4096}, {8192, 4096}, {32768, 4096}};

static const char *const passes[] = {"forward", "backward"};

typedef struct options {
    bool graph, chunks, hops, json;
    int64_t seq, pair; /* -1: all */
} options;

/* ---------------------------------------- timing ------------------------------------------ */

static const int floor_ctas[] = {16, NCCL_FEW_CTAS, 64, 132};
enum { FLOORS = sizeof floor_ctas / sizeof floor_ctas[0], OTHERS = 5 };

/* One thing to time: `call`, or the floor where ctas > 0, or otherwise the library by `way`. */
typedef struct timed {
    const char *stage;
    void (*call)(const nccl_bed *bed, bool backward);
    nccl_way way; /* used where `call` is NULL and ctas is 0 */
    int ctas;     /* thread blocks of the floor; 0: not the floor */
    bool wall;    /* by the wall clock, without a graph */
    double *us;   /* the median is written here */
    double repeat[REPEATS];
    cudaGraphExec_t graph; /* of CALLS calls; NULL: they are enqueued one by one */
} timed;

/* All that is timed in one pass. */
typedef struct timings {
    const nccl_bed *bed;
    bool backward, graph;
    int count;
    timed list[FLOORS + NCCL_WAYS + 1 + OTHERS];
} timings;

static void run(const timings *all, const timed *it)
{
    const nccl_moves *moves = &all->bed->moves[all->backward];
    const nccl_world *world = all->bed->world;
    if (it->call)
        it->call(all->bed, all->backward);
    else if (it->ctas > 0)
        nccl_must_cuda(link_floor_push(world->floor, (size_t)moves->most_in, moves->most_peers,
                                       it->ctas, world->stream),
                       "floor");
    else
        nccl_bed_move(all->bed, it->way, all->backward);
}

static void warm_up(const timings *all, const timed *it)
{
    bench_stage(it->stage);
    for (int i = 0; i < WARM_UP; i++)
        run(all, it);
    nccl_must_cuda(cudaStreamSynchronize(all->bed->world->stream), "warm-up");
}

static void capture(const timings *all, timed *it)
{
    cudaStream_t stream = all->bed->world->stream;
    cudaGraph_t calls;
    nccl_must_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < CALLS; i++)
        run(all, it);
    nccl_must_cuda(cudaStreamEndCapture(stream, &calls), "capture");
    nccl_must_cuda(cudaGraphInstantiate(&it->graph, calls, 0), "graph");
    nccl_must_cuda(cudaGraphDestroy(calls), "graph");
    nccl_must_cuda(cudaGraphLaunch(it->graph, stream), "replay");
    nccl_must_cuda(cudaStreamSynchronize(stream), "replay");
}

static void enqueue(const timings *all, const timed *it)
{
    if (it->graph)
        nccl_must_cuda(cudaGraphLaunch(it->graph, all->bed->world->stream), "replay");
    for (int i = 0; i < CALLS && !it->graph; i++)
        run(all, it);
}

/* Microseconds of one call on this rank: CALLS calls between two events. */
static double between_events(const timings *all, const timed *it)
{
    float ms;
    cudaEvent_t begin, end;
    cudaStream_t stream = all->bed->world->stream;
    nccl_must_cuda(cudaEventCreate(&begin), "event");
    nccl_must_cuda(cudaEventCreate(&end), "event");
    MPI_Barrier(MPI_COMM_WORLD);
    nccl_must_cuda(cudaEventRecord(begin, stream), "event");
    enqueue(all, it);
    nccl_must_cuda(cudaEventRecord(end, stream), "event");
    nccl_must_cuda(cudaEventSynchronize(end), "calls");
    nccl_must_cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3 / CALLS;
}

/* The same by the wall clock: CALLS calls from the first launch to the end of the last. */
static double by_wall_clock(const timings *all, const timed *it)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    enqueue(all, it);
    nccl_must_cuda(cudaStreamSynchronize(all->bed->world->stream), "calls");
    return (MPI_Wtime() - begin) * 1e6 / CALLS;
}

/* Repeats are interleaved, so that a slow moment of the host slows all alike. Everything is called
 * once before the first capture, because staging must not move after it. */
static void take_times(timings *all)
{
    for (timed *it = all->list; it < all->list + all->count; it++)
        warm_up(all, it);
    for (timed *it = all->list; it < all->list + all->count; it++)
        if (all->graph && !it->wall)
            capture(all, it);
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (timed *it = all->list; it < all->list + all->count; it++) {
            warm_up(all, it);
            double own = it->wall ? by_wall_clock(all, it) : between_events(all, it);
            MPI_Allreduce(&own, &it->repeat[repeat], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        }
    for (timed *it = all->list; it < all->list + all->count; it++) {
        *it->us = bench_median(it->repeat, REPEATS);
        if (it->graph)
            cudaGraphExecDestroy(it->graph);
    }
}

/* --------------------------------------- one case ----------------------------------------- */

typedef struct times {
    double floors[FLOORS]; /* by floor_ctas */
    double floor, floor_few;
    double way[NCCL_WAYS], wall;
    double bare_collective, collective_copies, bare_p2p, p2p_copies, local;
    nccl_chunk_times chunks;
} times;

static void add(timings *all, timed it)
{
    all->list[all->count++] = it;
}

static void choose_floor(times *out)
{
    out->floor = out->floors[0];
    for (int i = 0; i < FLOORS; i++) {
        if (floor_ctas[i] == NCCL_FEW_CTAS)
            out->floor_few = out->floors[i];
        if (out->floors[i] < out->floor)
            out->floor = out->floors[i];
    }
}

static void measure(times *out, const nccl_bed *bed, bool backward, const options *asked)
{
    timings all = {.bed = bed, .backward = backward, .graph = asked->graph};
    const timed others[OTHERS] = {
        {"bare collectives", nccl_bed_bare_collective, .us = &out->bare_collective},
        {"copies of collective", nccl_bed_collective_copies, .us = &out->collective_copies},
        {"bare messages", nccl_bed_bare_p2p, .us = &out->bare_p2p},
        {"copies of p2p", nccl_bed_p2p_copies, .us = &out->p2p_copies},
        {"one copy", nccl_bed_local_copy, .us = &out->local}};
    *out = (times){0};
    for (int i = 0; i < FLOORS && bed->moves[backward].most_in > 0 && bed->world->floor; i++)
        add(&all, (timed){"the floor", .ctas = floor_ctas[i], .us = &out->floors[i]});
    for (int way = 0; way < NCCL_WAYS; way++)
        add(&all, (timed){"an executor", .way = (nccl_way)way, .us = &out->way[way]});
    add(&all, (timed){"zero-copy", .way = NCCL_ZERO_COPY, .wall = true, .us = &out->wall});
    for (int i = 0; i < OTHERS; i++)
        add(&all, others[i]);
    take_times(&all);
    choose_floor(out);
    if (asked->chunks) {
        bench_stage("chunks");
        nccl_chunks_time(&out->chunks, bed, backward);
    }
}

/* a / b; 0 where b is 0: not timed. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* The name of the executor that a way chose. */
static const char *chosen(const nccl_bed *bed, nccl_way way, bool backward)
{
    static const char *const names[] = {[NCCL_COLLECTIVE] = "collective",
                                        [NCCL_P2P] = "p2p",
                                        [NCCL_STAGED] = "staged",
                                        [NCCL_ZERO_COPY] = "zero-copy"};
    return names[nccl_bed_chosen(bed, way, backward)];
}

/* The best time of the executors. Zero-copy counts only where destinations lie in a buffer, and
 * staged only elsewhere. */
static double best(const double *way, bool shared)
{
    double least = way[NCCL_P2P] < way[NCCL_COLLECTIVE] ? way[NCCL_P2P] : way[NCCL_COLLECTIVE];
    double other = way[shared ? NCCL_ZERO_COPY : NCCL_STAGED];
    return other < least ? other : least;
}

static void print_json(const nccl_bed *bed, bool backward, const times *t)
{
    printf("{\"src\":\"%s\",\"dst\":\"%s\",\"batch\":%" PRId64 ",\"seq\":%" PRId64
           ",\"hidden\":%" PRId64 ",\"pass\":\"%s\",\"in_bytes\":%" PRId64
           ",\"peers\":%d,\"floor_us\":%.2f,\"floor32_us\":%.2f,\"collective_us\":%.2f,"
           "\"bare_collective_us\":%.2f,\"collective_copies_us\":%.2f,\"p2p_us\":%.2f,"
           "\"bare_p2p_us\":%.2f,\"p2p_copies_us\":%.2f,\"staged_us\":%.2f,\"staged32_us\":%.2f,"
           "\"zero_copy_us\":%.2f,"
           "\"zero_copy32_us\":%.2f,\"zero_copy_idle_us\":%.2f,\"zero_copy_wall_us\":%.2f,"
           "\"local_copy_us\":%.2f,\"chunk_first_us\":%.2f,\"chunk_all_us\":%.2f,"
           "\"chunk_whole_us\":%.2f,\"auto\":\"%s\",\"auto_us\":%.2f,"
           "\"auto_elsewhere\":\"%s\",\"auto_elsewhere_us\":%.2f}\n",
           bed->c.src, bed->c.dst, bed->c.batch, bed->c.seq, bed->c.hidden, passes[backward],
           bed->moves[backward].most_in, bed->moves[backward].most_peers, t->floor, t->floor_few,
           t->way[NCCL_COLLECTIVE], t->bare_collective, t->collective_copies, t->way[NCCL_P2P],
           t->bare_p2p, t->p2p_copies, t->way[NCCL_STAGED], t->way[NCCL_STAGED_FEW],
           t->way[NCCL_ZERO_COPY], t->way[NCCL_ZERO_COPY_FEW], t->way[NCCL_ZERO_COPY_IDLE], t->wall,
           t->local, t->chunks.first, t->chunks.all, t->chunks.whole,
           chosen(bed, NCCL_AUTO, backward), t->way[NCCL_AUTO],
           chosen(bed, NCCL_AUTO_ELSEWHERE, backward), t->way[NCCL_AUTO_ELSEWHERE]);
}

static void print_head(void)
{
    printf("%-10s%-16s%6s %-8s|%7s %7s %7s |%8s %5s |%8s %5s |%8s %5s %8s %5s %8s %8s |%7s "
           "|%8s %5s %8s %5s |%8s %8s %8s |%10s %5s %10s %5s\n",
           "src", "dst", "S", "", "in MiB", "floor", "at 32", "collect", "ratio", "p2p", "ratio",
           "zero", "ratio", "zero 32", "ratio", "idle", "wall", "local", "staged", "ratio",
           "stgd 32", "ratio", "first", "all", "one", "auto", "ratio", "elsewhere", "ratio");
}

static void print_row(const nccl_bed *bed, bool backward, const times *t)
{
    const double *way = t->way;
    printf("%-10s%-16s%6" PRId64 " %-8s|%7.2f %7.1f %7.1f |%8.1f %5.2f |%8.1f %5.2f |%8.1f %5.2f "
           "%8.1f %5.2f %8.1f %8.1f |%7.1f |%8.1f %5.2f %8.1f %5.2f |%8.1f %8.1f %8.1f |%10s %5.2f "
           "%10s %5.2f\n",
           bed->c.src, bed->c.dst, bed->c.seq, passes[backward],
           (double)bed->moves[backward].most_in / 1048576, t->floor, t->floor_few,
           way[NCCL_COLLECTIVE],
           ratio(way[NCCL_COLLECTIVE], t->bare_collective + t->collective_copies), way[NCCL_P2P],
           ratio(way[NCCL_P2P], bed->moves[backward].most_in > 0 ? t->bare_p2p + t->p2p_copies : 0),
           way[NCCL_ZERO_COPY], ratio(way[NCCL_ZERO_COPY], t->floor), way[NCCL_ZERO_COPY_FEW],
           ratio(way[NCCL_ZERO_COPY_FEW], t->floor_few), way[NCCL_ZERO_COPY_IDLE], t->wall,
           t->local, way[NCCL_STAGED], ratio(way[NCCL_STAGED], t->floor), way[NCCL_STAGED_FEW],
           ratio(way[NCCL_STAGED_FEW], t->floor_few), t->chunks.first, t->chunks.all,
           t->chunks.whole, chosen(bed, NCCL_AUTO, backward),
           ratio(way[NCCL_AUTO], best(way, true)), chosen(bed, NCCL_AUTO_ELSEWHERE, backward),
           ratio(way[NCCL_AUTO_ELSEWHERE], best(way, false)));
}

static bool fits(const char *spec, int size)
{
    mimo_grid *grid;
    bench_must(mimo_grid_create_text(&grid, spec, 0), spec);
    bool all = mimo_grid_size(grid) == size;
    mimo_grid_destroy(grid);
    return all;
}

/* Time each pass in which all ways bring the same bits. Returns whether all passes were timed. */
static bool run_case(const nccl_world *world, const nccl_case *c, const options *asked)
{
    nccl_bed bed;
    times t;
    bool same = true;
    bench_stage("making bridges and choosing executors");
    nccl_bed_create(&bed, world, c);
    for (int backward = 0; backward < 2; backward++) {
        bench_stage("comparing bits");
        nccl_way differs = nccl_bed_check(&bed, backward);
        if (differs != NCCL_WAYS) {
            if (world->rank == 0)
                fprintf(stderr,
                        "%s -> %s, S %" PRId64 ", %s: way %d brings other bits than "
                        "collective\n",
                        c->src, c->dst, c->seq, passes[backward], (int)differs);
            same = false;
            continue;
        }
        measure(&t, &bed, backward, asked);
        if (world->rank == 0)
            (asked->json ? print_json : print_row)(&bed, backward, &t);
        fflush(stdout);
    }
    nccl_bed_destroy(&bed);
    return same;
}

/* ----------------------------------------- main ------------------------------------------- */

#define OPTION_INTO options

static const option_row known[] = {
    OPTION_FLAG("graph", graph, "Capture the calls in a CUDA graph and replay it", .letter = 'g'),
    OPTION_FLAG("chunks", chunks, "Time calls in chunks too", .letter = 'c'),
    OPTION_FLAG("hops", hops, "Time hops between two ranks, and nothing else", .letter = 'h'),
    OPTION_FLAG("json", json, "One JSON object a line", .letter = 'j'),
    OPTION_INT("seq", "N", seq, 0, INT64_MAX, "The shape of this sequence length alone",
               .letter = 's'),
    OPTION_INT("pair", "N", pair, 0, INT64_MAX, "The pair of grids of this number alone, from 0",
               .letter = 'p'),
};

static ncclComm_t bare_world(int rank, int size)
{
    ncclUniqueId id;
    ncclComm_t world;
    if (rank == 0)
        nccl_must_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    nccl_must_nccl(ncclCommInitRank(&world, size, id, rank), "ncclCommInitRank");
    return world;
}

static void open_world(nccl_world *world)
{
    enum { MOST_FLOOR = 512 << 20 };
    int device;
    MPI_Comm mpi = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    bench_must(mimo_bootstrap_from_mpi(&bootstrap, &mpi), "bootstrap");
    bench_must(mimo_comm_create_nccl(&world->comm, &bootstrap, &desc), "communicator");
    bench_must(mimo_nccl_device(&device, world->comm), "device");
    nccl_must_cuda(cudaSetDevice(device), "device");
    world->rank = bootstrap.rank;
    world->size = bootstrap.ranks;
    world->bare = bare_world(bootstrap.rank, bootstrap.ranks);
    nccl_must_cuda(cudaStreamCreateWithFlags(&world->stream, cudaStreamNonBlocking), "stream");
    world->floor = link_floor_create(world->bare, MOST_FLOOR);
}

static void *device_room(int64_t bytes)
{
    void *room;
    nccl_must_cuda(cudaMalloc(&room, (size_t)bytes), "cudaMalloc");
    nccl_must_cuda(cudaMemset(room, 0x3c, (size_t)bytes), "cudaMemset");
    return room;
}

static void free_room(void *room)
{
    nccl_must_cuda(cudaFree(room), "cudaFree");
}

static void report_addresses(const nccl_world *world, bool json)
{
    const bench_memory memory = {world->comm, world->stream, device_room, free_room};
    bench_stage("fresh addresses");
    bench_fresh_addresses(&memory, json);
}

static void report_memory(const nccl_world *world, FILE *to)
{
    mimo_nccl_report held = MIMO_NCCL_REPORT_INIT;
    bench_must(mimo_nccl_report_of(&held, world->comm), "report");
    if (world->rank == 0)
        fprintf(to,
                "at the end: %d NCCL communicators of the library, %d splits shared one, %.0f "
                "MiB\n",
                held.communicators, held.shared, (double)held.device_bytes / 1048576);
}

static bool run_cases(const nccl_world *world, const options *asked)
{
    bool same = true;
    int cases = 0;
    if (world->rank == 0 && !asked->json)
        print_head();
    for (int64_t p = 0; p < (int64_t)(sizeof pairs / sizeof pairs[0]); p++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            const nccl_case c = {pairs[p].src, pairs[p].dst, pairs[p].batch, shapes[i].seq,
                                 shapes[i].hidden};
            bool wanted = (asked->seq < 0 || asked->seq == c.seq) &&
                          (asked->pair < 0 || asked->pair == p) && fits(c.src, world->size);
            if (!wanted)
                continue;
            same = run_case(world, &c, asked) && same;
            cases++;
        }
    nccl_must(cases > 0, "no case", "no pair of grids has these ranks, --pair and --seq");
    report_addresses(world, asked->json);
    return same;
}

int main(int argc, char **argv)
{
    static const option_table table = {.program = "nccl_bench",
                                       .about = "Times the bridge on GPUs beside bare NCCL calls.",
                                       OPTION_ROWS(known)};
    nccl_world world = {0};
    options asked = {.seq = -1, .pair = -1};
    bench_options(&asked, &table, argc, argv);
    MPI_Init(&argc, &argv);
    open_world(&world);
    bool same = asked.hops ? nccl_hops_time(&world, asked.json) : run_cases(&world, &asked);
    report_memory(&world, asked.json ? stderr : stdout);
    link_floor_destroy(world.floor);
    ncclCommDestroy(world.bare);
    cudaStreamDestroy(world.stream);
    mimo_comm_destroy(world.comm);
    MPI_Finalize();
    return same ? 0 : 1;
}

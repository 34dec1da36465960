/*
 * What the ring of calls costs: the same calls on one rank with MIMO_RING=off and with
 * MIMO_RING=memory, in interleaved repeats of one run. With one rank no call waits, so what is left
 * is the library's own time.
 *
 *   ring_bench [--json]
 */
#include <stdio.h>
#include <time.h>

#include <mimo/mpi.h>

#include "bench_support.h"

/* Rounds are shorter than a turn of the processor, so that a busy machine spoils few of them. */
enum { CALLS = 500, REPEATS = 2001, WAYS = 2, KINDS = 2, SEQ = 8, HIDDEN = 8 };

typedef struct ring_bed {
    mimo_comm *comm;
    mimo_grid *grid;
    mimo_bridge *bridge;
    float from[SEQ * HIDDEN], to[SEQ * HIDDEN];
} ring_bed;

typedef struct ring_options {
    bool json;
} ring_options;

#define OPTION_INTO ring_options
static const option_row rows[] = {
    OPTION_FLAG("json", json, "One JSON object a line", .letter = 'j'),
};
static const option_table table = {.program = "ring_bench",
                                   .about =
                                       "Time calls of one rank with and without the ring of calls.",
                                   OPTION_ROWS(rows)};

static const char *const kinds[KINDS] = {"barrier", "bridge forward"};

static void bed_create(ring_bed *out, int64_t ring)
{
    mimo_comm_desc comm = MIMO_COMM_DESC_INIT;
    mimo_bridge_desc bridge = MIMO_BRIDGE_DESC_INIT;
    comm.ring = ring;
    bench_must(mimo_comm_create_mpi(&out->comm, MPI_COMM_SELF, &comm), "communicator");
    bench_must(mimo_grid_create_text(&out->grid, "tp=1,dp=1", 0), "grid");
    bridge.src = bridge.dst = out->grid;
    bench_must(mimo_bridge_create(&out->bridge, out->comm, &bridge), "bridge");
}

static void bed_destroy(ring_bed *it)
{
    mimo_bridge_destroy(it->bridge);
    mimo_grid_destroy(it->grid);
    mimo_comm_destroy(it->comm);
}

static void call(ring_bed *it, int kind)
{
    const mimo_tensor from = mimo_tensor_3d(it->from, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    const mimo_tensor to = mimo_tensor_3d(it->to, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    if (kind == 0)
        bench_must(mimo_comm_barrier(it->comm), "barrier");
    else
        bench_must(mimo_bridge_forward(it->bridge, &to, &from, 1, NULL), "forward");
}

/* Nanoseconds a call. */
static double time_calls(ring_bed *it, int kind)
{
    double begin = bench_seconds();
    for (int i = 0; i < CALLS; i++)
        call(it, kind);
    return 1e9 * (bench_seconds() - begin) / CALLS;
}

/* Of one reading of the clock: each call takes two. */
static double time_clock(void)
{
    struct timespec now;
    static double times[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        double begin = bench_seconds();
        for (int i = 0; i < CALLS; i++)
            clock_gettime(CLOCK_MONOTONIC, &now);
        times[r] = 1e9 * (bench_seconds() - begin) / CALLS;
    }
    return bench_median(times, REPEATS);
}

/* Medians of the time without and with a ring, and of the difference within a repeat. */
static void measure(double out[3], ring_bed beds[WAYS], int kind)
{
    static double times[3][REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        for (int w = 0; w < WAYS; w++)
            times[(w + r) % WAYS][r] = time_calls(&beds[(w + r) % WAYS], kind);
        times[2][r] = times[1][r] - times[0][r];
    }
    for (int t = 0; t < 3; t++)
        out[t] = bench_median(times[t], REPEATS);
}

int main(int argc, char **argv)
{
    ring_options options = {false};
    ring_bed beds[WAYS] = {{0}};
    bench_options(&options, &table, argc, argv);
    MPI_Init(&argc, &argv);
    bed_create(&beds[0], MIMO_RING_OFF);
    bed_create(&beds[1], MIMO_RING_MEMORY);
    for (int kind = 0; kind < KINDS; kind++) {
        double ns[3];
        measure(ns, beds, kind);
        if (options.json)
            printf("{\"call\":\"%s\",\"off_ns\":%.1f,\"memory_ns\":%.1f,\"ring_ns\":%.1f,"
                   "\"clock_ns\":%.1f}\n",
                   kinds[kind], ns[0], ns[1], ns[2], time_clock());
        else
            printf("%-16s off %7.1f ns, memory %7.1f ns, the ring takes %6.1f ns; the clock is "
                   "read twice, in %.1f ns each\n",
                   kinds[kind], ns[0], ns[1], ns[2], time_clock());
    }
    for (int w = 0; w < WAYS; w++)
        bed_destroy(&beds[w]);
    MPI_Finalize();
    return 0;
}

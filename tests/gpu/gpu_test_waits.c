/* Ragged updates before each step, on devices: the host waits for no work of the device, and takes
 * no memory that was not there before. Nor does it wait where a call takes more than all before. */
#include "cuda_counter.h" /* first: it asks for RTLD_NEXT */

#include <stdio.h>
#include <time.h>

#include "gpu_calls.h"
#include "ragged_steps.h"

static const executor_id executors[] = {EXECUTOR_P2P, EXECUTOR_STAGED, EXECUTOR_ZERO_COPY};
enum { EXECUTORS_HERE = 3, FEW = 20, GATE_S = 5 };

/* The tiles of one pass of a step. */
typedef struct pass_tiles {
    test_tile from, to;
} pass_tiles;

static pass_tiles tiles_new(const bridge_bed *bed, bool backward)
{
    pass_tiles made = {bed_tile_new(bed, backward ? MIMO_DST : MIMO_SRC),
                       bed_target_new(bed, backward ? MIMO_SRC : MIMO_DST)};
    bed_fill(bed, &made.from, backward, 3);
    return made;
}

static void check_and_free(const bridge_bed *bed, pass_tiles *it, bool backward)
{
    bed_check_target(bed, &it->to, backward, 3);
    test_tile_free(&it->from);
    test_tile_free(&it->to);
}

static void update_and_call(const bridge_bed *bed, const pass_tiles *there, const pass_tiles *back)
{
    bed_update(bed);
    MPI_EXPECT_OK(bed_call(bed, false, &there->to, &there->from));
    MPI_EXPECT_OK(bed_call(bed, true, &back->to, &back->from));
}

static void tiles_of_update(const bridge_bed *bed, pass_tiles *there, pass_tiles *back)
{
    bed_update(bed); /* so that the bridge says what its tiles are */
    *there = tiles_new(bed, false);
    *back = tiles_new(bed, true);
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void counted_step(ragged_steps *it, int least, bool count)
{
    pass_tiles there, back;
    const bridge_bed *bed = &it->bed;
    ragged_draw(it, least, RAGGED_IMAGES);
    tiles_of_update(bed, &there, &back);
    waits_alone = true;
    if (count)
        begin_count();
    update_and_call(bed, &there, &back);
    if (count)
        end_count(&bed->c, "an update and the calls behind it");
    waits_alone = false;
    check_and_free(bed, &there, false);
    check_and_free(bed, &back, true);
}

/* After the largest batch: 100 updates, of which each is made twice. */
MPI_TEST(waits, updates_ask_for_nothing)
{
    enum { STEPS = 100 };
    for (int e = 0; e < EXECUTORS_HERE; e++) {
        ragged_steps *it = ragged_begin(executors[e], executors[e] == EXECUTOR_ZERO_COPY);
        counted_step(it, RAGGED_IMAGES, false);
        for (int i = 0; i < FEW; i++)
            counted_step(it, 0, false);
        for (int i = 0; i < STEPS; i++)
            counted_step(it, 0, true);
        ragged_end(it);
    }
}

/* ------------------------------------------ gates ------------------------------------------- */

/* Holds a stream, at most for GATE_S seconds. */
typedef struct gate {
    int open;
    bool gave_up;
} gate;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void CUDART_CB wait_at_gate(void *context)
{
    gate *it = context;
    const struct timespec pause = {0, 20000};
    double end = now() + GATE_S;
    while (!__atomic_load_n(&it->open, __ATOMIC_ACQUIRE) && now() < end)
        nanosleep(&pause, NULL);
    it->gave_up = !__atomic_load_n(&it->open, __ATOMIC_ACQUIRE);
}

/* The device stands still before a call of the last batch. The host tells the next one and enqueues
 * its calls all the same, also where that call is messages of NCCL. */
static void step_behind_a_gate(ragged_steps *it)
{
    gate held = {0, false};
    pass_tiles there, back;
    const bridge_bed *bed = &it->bed;
    ragged_draw(it, 0, RAGGED_IMAGES);
    tiles_of_update(bed, &there, &back);
    EXPECT_CUDA(cudaLaunchHostFunc(test_stream(), wait_at_gate, &held));
    MPI_EXPECT_OK(bed_call(bed, false, &there.to, &there.from));
    double begin = now();
    update_and_call(bed, &there, &back);
    double took = now() - begin;
    __atomic_store_n(&held.open, 1, __ATOMIC_RELEASE);
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_EXPECT(!held.gave_up, "%s: the host waited %.3f s for the device", bed_text(&bed->c), took);
    check_and_free(bed, &there, false);
    check_and_free(bed, &back, true);
}

/* A call with wider rows than all calls before it, which takes larger staging. */
static void wider_behind_a_gate(const bridge_bed *its, int64_t hidden)
{
    gate held = {0, false};
    bridge_bed bed = *its;
    bed.c.hidden = hidden;
    pass_tiles there = tiles_new(&bed, false), back = tiles_new(&bed, true);
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_CUDA(cudaLaunchHostFunc(test_stream(), wait_at_gate, &held));
    MPI_EXPECT_OK(bed_call(&bed, false, &there.to, &there.from));
    MPI_EXPECT_OK(bed_call(&bed, true, &back.to, &back.from));
    __atomic_store_n(&held.open, 1, __ATOMIC_RELEASE);
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_EXPECT(!held.gave_up, "%s, H %d: the host waited for the device", bed_text(&bed.c),
               (int)hidden);
    check_and_free(&bed, &there, false);
    check_and_free(&bed, &back, true);
}

/* Both sides of a message are packed, and backward adds what the cp ranks give. */
MPI_TEST(waits, larger_staging_passes_a_closed_gate)
{
    char src[32], dst[32];
    snprintf(src, sizeof src, "dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "cp=%d", mpi_test_size());
    const bed_case c = {.src = {.grid = src},
                        .dst = {.grid = dst},
                        .src_letters = "sbh",
                        .dst_letters = "sbh",
                        .executor = EXECUTOR_P2P,
                        .dtype = MIMO_F32,
                        .batch = 2 * mpi_test_size(),
                        .given = true,
                        .seq = 64,
                        .sums = true};
    bridge_bed bed = bed_create(&c);
    bed_move(&bed, false, 1); /* NCCL connects the ranks */
    bed_move(&bed, true, 2);
    for (int64_t hidden = 64; bed.bridge && hidden <= 4096; hidden *= 4)
        wider_behind_a_gate(&bed, hidden);
    bed_destroy(&bed);
}

MPI_TEST(waits, updates_pass_a_closed_gate)
{
    test_needs_reach(mpi_test_size()); /* staged sends to ranks out of reach by NCCL */
    for (int e = 0; e < EXECUTORS_HERE; e++) {
        ragged_steps *it = ragged_begin(executors[e], executors[e] == EXECUTOR_ZERO_COPY);
        counted_step(it, RAGGED_IMAGES, false);
        for (int i = 0; i < 3; i++)
            step_behind_a_gate(it);
        ragged_end(it);
    }
}

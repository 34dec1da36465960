/*
 * The kernels that move rows of experts, among ranks that share ONE GPU: what the kernels take by
 * themselves, and no number of a link. Beside them stand contiguous copies by the same pump, also
 * of all ranks at once: of the rows that go to peers, and of as many rows as a tile has.
 *
 *   moves_bench          us of a call, the slowest rank; the median of the calls of a stream
 *
 * Rows are bf16 of 7168 elements, ids are even. The thread blocks of all ranks are resident at
 * once, so each rank has a part of the multiprocessors.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/pumped_copy.h"
#include "delay.h"
#include "gpu_calls.h"
#include "moves_bed.h"

enum { WIDTH = 7168, CALLS = 20, WARM = 5, GRIDS = 4, RESIDENT = 128 };

typedef struct subject {
    const char *name;
    enum { ROWS, COMBINE, TO_PEERS, TILE } kind;
    bool narrow;
} subject;

static const subject subjects[] = {{"rows", ROWS, false},
                                   {"combine, f32", COMBINE, false},
                                   {"combine, bf16", COMBINE, true},
                                   {"copy of rows to peers", TO_PEERS, false},
                                   {"copy of a tile", TILE, false}};

typedef struct measured {
    moves_bed *bed;
    moves_tensors *tensors[2]; /* by `narrow` */
    int64_t to_peers, tile;    /* rows, of the rank with most */
} measured;

/* The tokens of a rank that each peer gets. */
static int64_t rows_to_peers(const moves_bed *bed, int64_t rank)
{
    int64_t rows = 0, k = bed->its.top_k, held = bed->its.experts / bed->its.ranks;
    for (int64_t i = 0; i < bed->plain->tokens[rank]; i++) {
        unsigned seen = 1u << rank;
        for (int64_t j = 0; j < k; j++) {
            const unsigned bit = 1u << bed->plain->ids[rank][i * k + j] / held;
            rows += !(seen & bit);
            seen |= bit;
        }
    }
    return rows;
}

static measured measured_new(int ranks, int64_t tokens, int64_t experts, int64_t top_k)
{
    const moves_case its = {.ranks = ranks,
                            .etp = 1,
                            .experts = experts,
                            .top_k = top_k,
                            .alignment = 1,
                            .max_tokens = tokens,
                            .fill = 2048,
                            .late = -1,
                            .return_bytes = 4 * WIDTH};
    measured it = {.bed = moves_bed_new(&its)};
    for (int narrow = 0; narrow < 2; narrow++) {
        const moves_kind kind = {.dtype = MIMO_BF16, .width = WIDTH, .narrow = narrow};
        it.tensors[narrow] = moves_tensors_new(it.bed, &kind, 1);
    }
    moves_bed_draw_even(it.bed, 1, tokens);
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t rows = rows_to_peers(it.bed, r), tile = it.bed->ranks[r].capacity;
        it.to_peers = rows > it.to_peers ? rows : it.to_peers;
        it.tile = tile > it.tile ? tile : it.tile;
    }
    return it;
}

static void measured_free(measured *it)
{
    moves_tensors_free(it->bed, it->tensors[0]);
    moves_tensors_free(it->bed, it->tensors[1]);
    moves_bed_free(it->bed);
}

static void enqueue(const measured *it, const subject *what, int64_t rank)
{
    const moves_tensors *tensors = it->tensors[what->narrow];
    const int64_t ranks = it->bed->its.ranks;
    const pumped_copy copy = {.to = tensors->experts[0][(rank + 1) % ranks],
                              .from = it->tensors[1]->experts[0][rank],
                              .count = what->kind == TILE ? it->tile : it->to_peers,
                              .chunk = 2 * WIDTH};
    if (what->kind == ROWS)
        moves_enqueue_on(it->bed, tensors, false, mimo_rows_launch, rank);
    else if (what->kind == COMBINE)
        moves_enqueue_on(it->bed, tensors, true, mimo_combine_launch, rank);
    else
        EXPECT_CUDA(pumped_copy_launch(&copy, it->bed->blocks, it->bed->ranks[rank].stream));
}

static int by_time(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median_of(cudaEvent_t events[CALLS + 1])
{
    float times[CALLS - WARM];
    for (int i = WARM; i < CALLS; i++)
        EXPECT_CUDA(cudaEventElapsedTime(&times[i - WARM], events[i], events[i + 1]));
    qsort(times, CALLS - WARM, sizeof times[0], by_time);
    for (int i = 0; i <= CALLS; i++)
        EXPECT_CUDA(cudaEventDestroy(events[i]));
    return 1e3 * (double)times[(CALLS - WARM) / 2];
}

/* The streams are held up while the calls are enqueued. */
static double time_of(const measured *it, const subject *what)
{
    cudaEvent_t events[MOVES_MOST_RANKS][CALLS + 1];
    const int64_t ranks = it->bed->its.ranks;
    double slowest = 0;
    for (int64_t r = 0; r < ranks; r++)
        EXPECT_CUDA(delay_stream(3000, it->bed->ranks[r].stream));
    for (int i = 0; i <= CALLS; i++)
        for (int64_t r = 0; r < ranks; r++) {
            EXPECT_CUDA(cudaEventCreate(&events[r][i]));
            EXPECT_CUDA(cudaEventRecord(events[r][i], it->bed->ranks[r].stream));
            if (i < CALLS)
                enqueue(it, what, r);
        }
    moves_wait(it->bed);
    for (int64_t r = 0; r < ranks; r++) {
        const double time = median_of(events[r]);
        slowest = time > slowest ? time : slowest;
    }
    return slowest;
}

static void measure(int ranks, int64_t tokens, int64_t experts, int64_t top_k)
{
    static const int grids[GRIDS] = {16, 32, 64, 128};
    measured it = measured_new(ranks, tokens, experts, top_k);
    printf("\n%d ranks on one GPU, %d tokens each, %d experts, k %d: %d rows to peers, tile of %d "
           "rows\n%-24s",
           ranks, (int)tokens, (int)experts, (int)top_k, (int)it.to_peers, (int)it.tile,
           "thread blocks of a rank");
    for (int g = 0; g < GRIDS; g++)
        if (grids[g] * ranks <= RESIDENT)
            printf(" %9d", grids[g]);
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        printf("\n%-24s", subjects[i].name);
        for (int g = 0; g < GRIDS; g++) {
            it.bed->blocks = grids[g];
            if (grids[g] * ranks <= RESIDENT)
                printf(" %9.1f", time_of(&it, &subjects[i]));
        }
    }
    printf("\n");
    measured_free(&it);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        fprintf(stderr, "%s takes no arguments\n", argv[0]);
        return 2;
    }
    EXPECT_CUDA(mimo_rows_load());
    EXPECT_CUDA(mimo_combine_load());
    measure(1, 4096, 128, 8);
    measure(2, 4096, 256, 8);
    measure(2, 4096, 8, 2);
    measure(4, 1024, 256, 8);
    measure(8, 512, 256, 8);
    measure(1, 128, 128, 8);
    measure(2, 128, 256, 8);
    return 0;
}

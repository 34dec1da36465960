/* The kernels that move rows of experts, among ranks that share one GPU, against plain loops. */
#include "broken_moves.h"
#include "comm/nccl/nccl_moves_bugs.h"
#include "delay.h"
#include "gpu_calls.h"
#include "meeting.h"
#include "moves_bed.h"

static void load(void)
{
    EXPECT_CUDA(mimo_rows_load());
    EXPECT_CUDA(mimo_combine_load());
}

/* One call on fresh tiles. */
static bit_report move(moves_bed *bed, moves_tensors *tensors, bool combine, uint64_t seed)
{
    moves_fill(bed, tensors, combine, seed);
    moves_enqueue(bed, tensors, combine, combine ? mimo_combine_launch : mimo_rows_launch);
    moves_wait(bed);
    return moves_compare(bed, tensors, combine, seed);
}

static const char *words_of(const moves_case *its)
{
    static char text[200];
    snprintf(
        text, sizeof text,
        "%d ranks, etp %d, %d experts, k %d, alignment %d, %d tokens, %d rows missing, late %d",
        (int)its->ranks, (int)its->etp, (int)its->experts, (int)its->top_k, (int)its->alignment,
        (int)its->max_tokens, (int)its->missing, its->late);
    return text;
}

/* Several routes, each with a call. */
static void run_case(const moves_case *its, const moves_kind *kinds, int count, bool combine)
{
    moves_bed *bed = moves_bed_new(its);
    moves_tensors *tensors = moves_tensors_new(bed, kinds, count);
    for (uint64_t seed = 1; seed <= 4 && !bed->hung; seed++) {
        moves_bed_draw(bed, seed);
        MPI_EXPECT_BITS(move(bed, tensors, combine, seed), "%s, %s, seed %d, first kind %s x %d",
                        combine ? "combine" : "rows", words_of(its), (int)seed,
                        mimo_dtype_name(kinds[0].dtype), (int)kinds[0].width);
    }
    moves_tensors_free(bed, tensors);
    moves_bed_free(bed);
}

/* Uneven and empty ranks, choices of no expert, experts twice in a token: every draw has them. */
static const moves_case cases[] = {
    {.ranks = 1, .etp = 1, .experts = 7, .top_k = 5, .alignment = 4, .max_tokens = 40, .late = -1},
    {.ranks = 2, .etp = 1, .experts = 16, .top_k = 8, .alignment = 1, .max_tokens = 90, .late = 1},
    {.ranks = 2, .etp = 2, .experts = 9, .top_k = 4, .alignment = 16, .max_tokens = 50, .late = 0},
    {.ranks = 3,
     .etp = 1,
     .experts = 48,
     .top_k = 6,
     .alignment = 16,
     .max_tokens = 60,
     .late = -1},
    {.ranks = 4, .etp = 2, .experts = 10, .top_k = 3, .alignment = 1, .max_tokens = 70, .late = 2},
    {.ranks = 4,
     .etp = 1,
     .experts = 64,
     .top_k = 14,
     .alignment = 2,
     .max_tokens = 33,
     .late = -1},
    {.ranks = 6, .etp = 2, .experts = 27, .top_k = 8, .alignment = 1, .max_tokens = 40, .late = 5},
    {.ranks = 8, .etp = 1, .experts = 64, .top_k = 8, .alignment = 16, .max_tokens = 64, .late = 3},
    {.ranks = 8, .etp = 8, .experts = 5, .top_k = 2, .alignment = 1, .max_tokens = 20, .late = -1},
    {.ranks = 4,
     .etp = 1,
     .experts = 32,
     .top_k = 8,
     .alignment = 4,
     .max_tokens = 64,
     .missing = 20,
     .late = 0},
    {.ranks = 4,
     .etp = 2,
     .experts = 6,
     .top_k = 3,
     .alignment = 1,
     .max_tokens = 40,
     .missing = 9,
     .late = -1},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* -------------------------------------------- rows ------------------------------------------ */

MPI_TEST(moves, rows)
{
    static const moves_kind kinds[] = {{.dtype = MIMO_BF16, .width = 512},
                                       {.dtype = MIMO_F8, .width = 48},
                                       {.dtype = MIMO_F32, .width = 1, .by_pair = true}};
    load();
    for (int i = 0; i < CASES; i++) {
        moves_case its = cases[i];
        its.return_bytes = 64;
        its.gated = i % 2;
        run_case(&its, kinds, 3, false);
    }
}

/* Rows that are longer than a stage, and longer than eight; rows that are no multiple of 16 bytes;
 * tiles that peers cannot write into. */
MPI_TEST(moves, rows_of_all_widths)
{
    static const struct {
        int64_t max_tokens;
        int count;
        moves_kind kinds[4];
    } calls[] = {
        {12, 2, {{.dtype = MIMO_BF16, .width = 7168}, {.dtype = MIMO_I64, .width = 1}}},
        {8,
         2,
         {{.dtype = MIMO_F64, .width = 3000}, {.dtype = MIMO_F64, .width = 1, .by_pair = true}}},
        {3, 2, {{.dtype = MIMO_F64, .width = 15400}, {.dtype = MIMO_BF16, .width = 33}}},
        {24,
         4,
         {{.dtype = MIMO_F8, .width = 7},
          {.dtype = MIMO_BF16, .width = 24, .flat = true},
          {.dtype = MIMO_F8, .width = 5, .flat = true},
          {.dtype = MIMO_I32, .width = 3}}}};
    static const int some[] = {1, 4, 9};
    load();
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 3; i++) {
            moves_case its = cases[some[i]];
            its.max_tokens = calls[n].max_tokens;
            its.return_bytes = 64;
            run_case(&its, calls[n].kinds, calls[n].count, false);
        }
}

/* ------------------------------------------ combine ----------------------------------------- */

/* A dtype's sums, with values by pair beside them. */
static void add_cases(mimo_dtype dtype, bool narrow, int64_t width, int first)
{
    const moves_kind kinds[] = {
        {.dtype = dtype, .width = width, .narrow = narrow},
        {.dtype = dtype == MIMO_F64 ? MIMO_F64 : MIMO_F32, .width = 1, .by_pair = true}};
    for (int i = first; i < CASES; i += 2) {
        moves_case its = cases[i];
        its.return_bytes = (8 * width + 15) / 16 * 16;
        its.fill = i % 3 == 0 ? 0 : 2000;
        its.gated = i / 2 % 2;
        run_case(&its, kinds, 2, true);
    }
}

MPI_TEST(moves, combine)
{
    load();
    add_cases(MIMO_BF16, false, 256, 0);
    add_cases(MIMO_BF16, true, 256, 1);
    add_cases(MIMO_F16, false, 72, 1);
    add_cases(MIMO_F16, true, 72, 0);
    add_cases(MIMO_F32, false, 36, 0);
    add_cases(MIMO_F64, false, 26, 1);
}

/* Widths that are no multiple of 16 bytes. */
MPI_TEST(moves, combine_of_odd_widths)
{
    load();
    add_cases(MIMO_BF16, false, 37, 1);
    add_cases(MIMO_F16, true, 5, 0);
    add_cases(MIMO_F32, false, 3, 1);
    add_cases(MIMO_F64, false, 1, 0);
}

/* Rows of several chunks, and two tensors of rows in a call. */
MPI_TEST(moves, combine_of_long_rows)
{
    static const moves_kind kinds[] = {{.dtype = MIMO_BF16, .width = 7168},
                                       {.dtype = MIMO_BF16, .width = 40},
                                       {.dtype = MIMO_F32, .width = 1, .by_pair = true}};
    static const int some[] = {1, 3, 4, 8};
    load();
    for (int i = 0; i < 4; i++) {
        moves_case its = cases[some[i]];
        its.max_tokens = 12;
        its.return_bytes = 4 * 7168;
        its.fill = i * 30;
        run_case(&its, kinds, 3, true);
    }
}

/* ---------------------------------------- calls in turn ------------------------------------- */

static cudaGraphExec_t capture(moves_bed *bed, const moves_tensors *rows, const moves_tensors *sums,
                               int64_t rank)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStream_t stream = bed->ranks[rank].stream;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    moves_enqueue_on(bed, rows, false, mimo_rows_launch, rank);
    moves_enqueue_on(bed, sums, true, mimo_combine_launch, rank);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return executable;
}

/* Graphs of both moves, replayed with other routes. */
MPI_TEST(moves, replays)
{
    static const moves_kind kinds[] = {{.dtype = MIMO_BF16, .width = 128}};
    moves_case its = cases[7];
    cudaGraphExec_t graphs[MOVES_MOST_RANKS];
    its.return_bytes = 512;
    load();
    moves_bed *bed = moves_bed_new(&its);
    moves_tensors *rows = moves_tensors_new(bed, kinds, 1),
                  *sums = moves_tensors_new(bed, kinds, 1);
    moves_bed_draw(bed, 1);
    for (int64_t r = 0; r < its.ranks; r++)
        graphs[r] = capture(bed, rows, sums, r);
    for (uint64_t seed = 1; seed <= 20 && !bed->hung; seed++) {
        moves_bed_draw(bed, seed);
        moves_fill(bed, rows, false, seed);
        moves_fill(bed, sums, true, seed);
        for (int64_t r = 0; r < its.ranks; r++)
            EXPECT_CUDA(cudaGraphLaunch(graphs[r], bed->ranks[r].stream));
        moves_wait(bed);
        MPI_EXPECT_BITS(moves_compare(bed, rows, false, seed), "rows, replay %d", (int)seed);
        MPI_EXPECT_BITS(moves_compare(bed, sums, true, seed), "combine, replay %d", (int)seed);
    }
    for (int64_t r = 0; r < its.ranks; r++)
        EXPECT_CUDA(cudaGraphExecDestroy(graphs[r]));
    moves_tensors_free(bed, rows);
    moves_tensors_free(bed, sums);
    moves_bed_free(bed);
}

/* ------------------------------------------- ends ------------------------------------------- */

/* A rank that makes another call is refused by all, and a rank that calls alone is aborted. */
static void end_early(bool combine, bool refused)
{
    static const moves_kind kinds[] = {{.dtype = MIMO_BF16, .width = 512}};
    moves_case its = cases[4];
    moves_launch launch = combine ? mimo_combine_launch : mimo_rows_launch;
    its.return_bytes = 2048;
    moves_bed *bed = moves_bed_new(&its);
    moves_tensors *tensors = moves_tensors_new(bed, kinds, 1);
    moves_bed_draw_even(bed, 1, 60);
    moves_fill(bed, tensors, combine, 1);
    bed->ranks[1].moves.group.signature += refused;
    for (int64_t r = 0; r < its.ranks; r++)
        if (refused || r != 1)
            moves_enqueue_on(bed, tensors, combine, launch, r);
    delay_host(20000);
    if (!refused) {
        MPI_EXPECT(cudaStreamQuery(bed->ranks[0].stream) == cudaErrorNotReady, "%s",
                   "rank 0 waits for rank 1");
        bed->note->abort = 1;
    }
    moves_wait(bed);
    MPI_EXPECT(!refused || bed->note->refusal.noted, "%s", "the refusal is noted");
    moves_tensors_free(bed, tensors);
    moves_bed_free(bed);
}

MPI_TEST(moves, refused_and_aborted)
{
    load();
    for (int i = 0; i < 4; i++)
        end_early(i % 2 == 0, i / 2 == 0);
}

/* ------------------------------------------ waits ------------------------------------------- */

/* Two ranks exchange rows, and a third one has nothing to do with them: it may be a call ahead. */
MPI_TEST(moves, idle_rank_is_ahead)
{
    enum { TOKENS = 300, CALLS = 40 };
    static const moves_kind kinds[] = {{.dtype = MIMO_BF16, .width = 2048}};
    static int32_t ids[2][TOKENS];
    int32_t *const lists[] = {ids[0], ids[1], ids[0]};
    const moves_case its = {.ranks = 3,
                            .etp = 1,
                            .experts = 3,
                            .top_k = 1,
                            .alignment = 1,
                            .max_tokens = TOKENS,
                            .late = -1,
                            .return_bytes = 8192};
    load();
    moves_bed *bed = moves_bed_new(&its);
    moves_tensors *tensors = moves_tensors_new(bed, kinds, 1);
    for (int i = 0; i < TOKENS; i++) {
        ids[0][i] = 1;
        ids[1][i] = 0;
    }
    moves_bed_set(bed, (const int64_t[]){TOKENS, TOKENS, 0}, lists);
    moves_fill(bed, tensors, true, 1);
    for (int i = 0; i < CALLS; i++) {
        const bool combine = i % 2 == 1;
        moves_enqueue(bed, tensors, combine, combine ? mimo_combine_launch : mimo_rows_launch);
    }
    moves_wait(bed);
    MPI_EXPECT(!bed->note->refusal.noted && !bed->note->abort, "%s", "no call is refused");
    moves_tensors_free(bed, tensors);
    moves_bed_free(bed);
}

/* A call whose peers are late holds one warp: others have the multiprocessors. */
MPI_TEST(moves, gate_holds_no_multiprocessors)
{
    static const moves_kind kinds[] = {{.dtype = MIMO_BF16, .width = 512}};
    moves_case its = cases[1];
    meeting *met, seen = {0};
    its.return_bytes = 2048;
    its.gated = 1;
    its.late = -1;
    load();
    moves_bed *bed = moves_bed_new(&its);
    moves_tensors *tensors = moves_tensors_new(bed, kinds, 1);
    EXPECT_CUDA(cudaMalloc((void **)&met, sizeof *met));
    /* Once, so that its kernel is loaded. */
    EXPECT_CUDA(meet(met, 8, bed->ranks[1].stream));
    EXPECT_CUDA(cudaStreamSynchronize(bed->ranks[1].stream));
    EXPECT_CUDA(cudaMemset(met, 0, sizeof *met));
    moves_bed_draw(bed, 1);
    moves_fill(bed, tensors, true, 1);
    moves_enqueue_on(bed, tensors, true, mimo_combine_launch, 0);
    delay_host(5000);
    EXPECT_CUDA(meet(met, 8, bed->ranks[1].stream));
    EXPECT_CUDA(cudaStreamSynchronize(bed->ranks[1].stream));
    EXPECT_CUDA(cudaMemcpy(&seen, met, sizeof seen, cudaMemcpyDeviceToHost));
    MPI_EXPECT(seen.missed == 0, "%d of %d thread blocks found no multiprocessor", seen.missed,
               seen.arrived);
    moves_enqueue_on(bed, tensors, true, mimo_combine_launch, 1);
    moves_wait(bed);
    MPI_EXPECT_BITS(moves_compare(bed, tensors, true, 1), "combine behind a gate");
    EXPECT_CUDA(cudaFree(met));
    moves_tensors_free(bed, tensors);
    moves_bed_free(bed);
}

/* ---------------------------------------- bugs on purpose ----------------------------------- */

/* Whether a bug shows in a few calls, for which one rank is late. */
static bool is_caught(bool combine)
{
    const moves_case its = {.ranks = 2,
                            .etp = 1,
                            .experts = 8,
                            .top_k = 4,
                            .alignment = 1,
                            .max_tokens = 64,
                            .late = 1,
                            .return_bytes = 4096};
    static const moves_kind kinds[] = {{.dtype = MIMO_BF16, .width = 1024}};
    moves_bed *bed = moves_bed_new(&its);
    moves_tensors *tensors = moves_tensors_new(bed, kinds, 1);
    bool caught = false;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        moves_bed_draw_even(bed, seed, 60);
        moves_fill(bed, tensors, combine, seed);
        moves_enqueue(bed, tensors, combine,
                      combine ? mimo_combine_launch_broken : mimo_rows_launch_broken);
        moves_wait(bed);
        caught = caught || moves_compare(bed, tensors, combine, seed).wrong > 0;
    }
    moves_tensors_free(bed, tensors);
    moves_bed_free(bed);
    return caught;
}

MPI_TEST(moves, bugs_are_caught)
{
    static const struct {
        int bug;
        bool rows, combine; /* which kernel has it */
        const char *name;
    } bugs[] = {{MIMO_BUG_NONE, false, false, "no bug"},
                {MIMO_BUG_POST_BEFORE_WRITE, true, true, "post-before-write"},
                {MIMO_BUG_FLAG_OF_THE_CALL_BEFORE, true, true, "flag-of-the-call-before"},
                {MIMO_BUG_COPY_ROW_BEFORE, true, false, "copy-row-before"},
                {MIMO_BUG_NO_READY, true, true, "no-ready"}};
    EXPECT_CUDA(mimo_rows_load_broken());
    EXPECT_CUDA(mimo_combine_load_broken());
    for (size_t i = 0; i < sizeof bugs / sizeof bugs[0]; i++) {
        EXPECT_CUDA(mimo_rows_break(bugs[i].bug));
        EXPECT_CUDA(mimo_combine_break(bugs[i].bug));
        MPI_EXPECT(is_caught(false) == bugs[i].rows, "rows: %s", bugs[i].name);
        MPI_EXPECT(is_caught(true) == bugs[i].combine, "combine: %s", bugs[i].name);
    }
}

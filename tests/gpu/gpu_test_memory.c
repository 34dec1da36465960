/* Every allocation fails in turn: of device memory, of host memory that devices see, and of the
 * library's host memory. In calls on which the ranks agree, one rank that runs short is every
 * rank's error. In calls that only enqueue work the error is the rank's own, so there all ranks run
 * short alike. In both cases nothing is lost, and the next attempt works. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executors.h"
#include "bridge_bed.h"
#include "core/check.h"
#include "core/memory.h"
#include "gpu_calls.h"

/* --------------------------------------- allocations ---------------------------------------- */

static int64_t until_failure; /* allocations until one fails; 0: none fails */
static int64_t asked_for;     /* allocations so far, failed ones included */
static int64_t alive;         /* allocations that have not been freed */

static bool must_fail(void)
{
    asked_for++;
    return until_failure > 0 && --until_failure == 0;
}

/* The next function of this name, which the definition here replaces. */
static void find_next(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memcpy(function, &found, sizeof found);
}

static cudaError_t taken(cudaError_t code)
{
    alive += code == cudaSuccess;
    return code;
}

static cudaError_t take(const char *name, void **out, size_t bytes)
{
    cudaError_t (*next)(void **, size_t);
    find_next(&next, name);
    return must_fail() ? cudaErrorMemoryAllocation : taken(next(out, bytes));
}

static cudaError_t give_back(const char *name, void *room)
{
    cudaError_t (*next)(void *);
    find_next(&next, name);
    alive -= room != NULL;
    return next(room);
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    return take("cudaMalloc", out, bytes);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return take("cudaMallocHost", out, bytes);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    cudaError_t (*next)(void **, size_t, unsigned);
    find_next(&next, "cudaHostAlloc");
    return must_fail() ? cudaErrorMemoryAllocation : taken(next(out, bytes, flags));
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    cudaError_t (*next)(void **, size_t, cudaStream_t);
    find_next(&next, "cudaMallocAsync");
    return must_fail() ? cudaErrorMemoryAllocation : taken(next(out, bytes, stream));
}

cudaError_t cudaFree(void *room)
{
    return give_back("cudaFree", room);
}

cudaError_t cudaFreeHost(void *room)
{
    return give_back("cudaFreeHost", room);
}

cudaError_t cudaFreeAsync(void *room, cudaStream_t stream)
{
    cudaError_t (*next)(void *, cudaStream_t);
    find_next(&next, "cudaFreeAsync");
    alive -= room != NULL;
    return next(room, stream);
}

/* NCCL's own way to say that there is no memory. */
ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
    if (must_fail())
        return ncclUnhandledCudaError;
    ncclResult_t code = pncclMemAlloc(out, bytes);
    alive += code == ncclSuccess;
    return code;
}

ncclResult_t ncclMemFree(void *room)
{
    alive -= room != NULL;
    return pncclMemFree(room);
}

/* ------------------------------------------ calls ------------------------------------------- */

/* In SAMPLES every rank has samples of its own, in PARTS a part of every sample, in SHARDS a part
 * of the weights. */
enum { SAMPLES, PARTS, SHARDS, GRIDS };
static char specs[GRIDS][32];
static mimo_grid *grids[GRIDS];

static void make_grids(void)
{
    static const char *const formats[] = {"tp=1,dp=%d", "tp=1,cp=%d,dp=1", "tp=%d,dp=1"};
    for (int i = 0; i < GRIDS; i++) {
        snprintf(specs[i], sizeof specs[i], formats[i], mpi_test_size());
        MPI_EXPECT_OK(mimo_grid_create_text(&grids[i], specs[i], 0));
    }
}

static void destroy_grids(void)
{
    for (int i = 0; i < GRIDS; i++)
        mimo_grid_destroy(grids[i]);
}

/* The bootstrap allocates memory for its gather first. A rank without it can't take part. */
static mimo_status communicator(void)
{
    mimo_comm *comm = NULL;
    mimo_status status = test_comm_create(&comm);
    mimo_comm_destroy(comm);
    return status;
}

static mimo_status buffer(void)
{
    mimo_buffer *made = NULL;
    mimo_status status = mimo_buffer_create(&made, mpi_test_comm(), 10000);
    mimo_buffer_destroy(made);
    return status;
}

/* More values than a communicator has memory ready for. */
static mimo_status split_and_allgather(void)
{
    enum { BYTES = 4096 };
    static char mine[BYTES];
    mimo_comm *made = NULL;
    mimo_status status = mimo_comm_split(&made, mpi_test_comm(), 0, mpi_test_rank());
    if (status == MIMO_OK) {
        char *all = calloc((size_t)mpi_test_size(), BYTES);
        status = mimo_comm_host_allgather(made, all, mine, BYTES);
        free(all);
    }
    mimo_comm_destroy(made);
    return status;
}

static mimo_status bridge(void)
{
    mimo_bridge *made = NULL;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = grids[SAMPLES];
    desc.dst = grids[PARTS];
    desc.executor = executor_of(EXECUTOR_COLLECTIVE);
    mimo_status status = mimo_bridge_create(&made, mpi_test_comm(), &desc);
    mimo_bridge_destroy(made);
    return status;
}

static mimo_status finish_step(mimo_gradient *gradient, float *weights)
{
    double norm;
    const mimo_gradient_bucket bucket = {
        sizeof(mimo_gradient_bucket), "weights", weights, 100, MIMO_F32, MIMO_DST, "tp", "", NULL};
    MIMO_TRY(mimo_gradient_add(gradient, 1, 2));
    MIMO_TRY(mimo_gradient_count(NULL, NULL, gradient));
    MIMO_TRY(mimo_gradient_finalize(gradient, &bucket, 1, test_stream()));
    return mimo_gradient_norm(&norm, gradient, &bucket, 1, test_stream());
}

static mimo_status gradient_step(void)
{
    mimo_gradient *made = NULL;
    static float *weights; /* kept: an allocation of the test itself */
    if (!weights)
        EXPECT_CUDA(cudaMalloc((void **)&weights, 100 * sizeof *weights));
    EXPECT_CUDA(cudaMemsetAsync(weights, 0, 100 * sizeof *weights, test_stream()));
    mimo_status status =
        mimo_gradient_create(&made, mpi_test_comm(), grids[SAMPLES], grids[SHARDS]);
    if (status == MIMO_OK)
        status = finish_step(made, weights);
    mimo_gradient_destroy(made);
    return status;
}

typedef enum kind {
    OF_DEVICE, /* allocations by the functions above */
    OF_HOST,   /* allocations by core/memory.h */
} kind;

/* From now on the n-th allocation fails on this rank; n 0: none. */
static bool armed;

static void arm(kind which, int n)
{
    armed = n > 0;
    if (which == OF_DEVICE)
        until_failure = n;
    else
        (void)mimo_fail_allocation(n);
}

/* Disarm. Returns whether an allocation failed on any rank. */
static bool failed_anywhere(kind which)
{
    int64_t left = which == OF_DEVICE ? until_failure : mimo_fail_allocation(0);
    int failed = armed && left == 0;
    until_failure = 0;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return failed;
}

static void expect_outcome(mimo_status status, bool failed, const char *call, int n)
{
    MPI_EXPECT(status == (failed ? MIMO_ERR_MEMORY : MIMO_OK), "%s, allocation %d: %s (%s)", call,
               n, mimo_status_name(status), mimo_last_error());
    if (failed)
        MPI_EXPECT_SENTENCE("out of ");
}

static void expect_alive(int64_t before, const char *call, int n)
{
    EXPECT_CUDA(cudaDeviceSynchronize());
    MPI_EXPECT(alive == before, "%s, allocation %d: %d allocations are alive, not %d", call, n,
               (int)alive, (int)before);
}

/* Allocations fail on the last rank alone. A first, undisturbed call fills what is kept for
 * ever. */
static void each_fails_on_one(kind which, const char *call, mimo_status (*act)(void), int least)
{
    bool here = mpi_test_rank() == mpi_test_size() - 1, failed = true;
    char words[32];
    MPI_EXPECT_OK(act());
    snprintf(words, sizeof words, "rank %d: ", mpi_test_size() - 1);
    int64_t before = alive;
    bool gathers = which == OF_HOST && act == communicator;
    for (int n = gathers ? 2 : 1; failed; n++) {
        arm(which, here ? n : 0);
        mimo_status status = act();
        failed = failed_anywhere(which);
        expect_outcome(status, failed, call, n);
        if (failed && mpi_test_size() > 1)
            MPI_EXPECT_SENTENCE(words);
        expect_alive(before, call, n);
        MPI_EXPECT(act() == MIMO_OK, "%s after allocation %d: %s", call, n, mimo_last_error());
        expect_alive(before, call, n);
        MPI_EXPECT(failed || n > least, "%s: only %d allocations", call, n - 1);
    }
}

static void all_fail_on_one(kind which)
{
    make_grids();
    MPI_EXPECT_OK(mimo_comm_set_deadline(mpi_test_comm(), 20000)); /* a hang becomes a failure */
    each_fails_on_one(which, "communicator", communicator, 2);
    each_fails_on_one(which, "buffer", buffer, 2);
    each_fails_on_one(which, "split and host allgather", split_and_allgather, 4);
    each_fails_on_one(which, "bridge", bridge, 2);
    each_fails_on_one(which, "gradient step", gradient_step, 1);
    destroy_grids();
}

MPI_TEST(memory, of_one_device)
{
    all_fail_on_one(OF_DEVICE);
}

MPI_TEST(memory, of_one_host)
{
    all_fail_on_one(OF_HOST);
}

/* ----------------------------------- calls that enqueue ------------------------------------- */

/* The first call of a bridge, whose n-th allocation fails; 0: none does. Returns the number of
 * allocations. */
static int64_t first_call(const bed_case *c, bool backward, int n)
{
    bridge_bed bed = bed_create(c);
    test_tile from = bed_tile_new(&bed, backward ? MIMO_DST : MIMO_SRC);
    test_tile to = bed_target_new(&bed, backward ? MIMO_SRC : MIMO_DST);
    bed_fill(&bed, &from, backward, 1);
    int64_t before = asked_for;
    arm(OF_DEVICE, n);
    mimo_status status = bed_call(&bed, backward, &to, &from);
    int64_t asked = asked_for - before;
    bool failed = failed_anywhere(OF_DEVICE);
    MPI_EXPECT(failed == (n > 0), "%s: allocation %d is none", bed_text(c), n);
    expect_outcome(status, failed, bed_text(c), n);
    if (failed)
        MPI_EXPECT_OK(bed_call(&bed, backward, &to, &from));
    MPI_EXPECT_OK(mimo_comm_synchronize(mpi_test_comm(), test_stream()));
    bed_check_target(&bed, &to, backward, 1);
    bed_destroy(&bed);
    test_shared_end();
    return asked;
}

/* Each allocation fails in turn. A rank with fewer allocations fails its last one. Returns the
 * number of trials. There are none where a rank allocates nothing, as it would wait for the
 * others. */
static int64_t each_fails_on_all(const bed_case *c, bool backward)
{
    (void)first_call(c, backward, 0); /* fills what is kept for ever */
    int64_t before = alive, own = first_call(c, backward, 0), least = own, most = own;
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    most = least > 0 ? most : 0;
    for (int n = 1; n <= most; n++) {
        (void)first_call(c, backward, n < own ? n : (int)own);
        expect_alive(before, bed_text(c), n);
    }
    return most;
}

MPI_TEST(memory, of_all_devices)
{
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_P2P, EXECUTOR_ZERO_COPY};
    int ranks = mpi_test_size();
    int64_t found = 0;
    make_grids();
    MPI_EXPECT_OK(mimo_comm_set_deadline(mpi_test_comm(), 20000));
    for (int i = 0; i < 6; i++) {
        bed_case c = {.src = {.grid = specs[SAMPLES]},
                      .dst = {.grid = specs[PARTS]},
                      .src_letters = "sbh",
                      .dst_letters = "sbh",
                      .executor = executors[i / 2],
                      .dtype = MIMO_BF16,
                      .buffer = executors[i / 2] == EXECUTOR_ZERO_COPY,
                      .batch = ranks,
                      .seq = 4 * ranks};
        found += each_fails_on_all(&c, i % 2);
    }
    MPI_EXPECT(ranks == 1 || found > 3, "only %d allocations", (int)found);
    destroy_grids();
}

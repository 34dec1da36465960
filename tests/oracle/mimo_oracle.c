/*
 * mimo-oracle: trains a small model like the captioner on two grids with the library, and compares
 * everything, phase by phase, with a one-process reference in f64. See docs/correctness.md.
 *
 *   mpirun -n 8 mimo-oracle --encoder tp=2,dp=4 --llm tp=2,cp=2,dp=2 [--sp] [--mutate NAME]
 */
#include <time.h>

#include <mimo/mpi.h>

#include "train/device/blas_kernels.h"
#include "case_compare.h"
#include "mutations.h"
#include "oracle_options.h"
#include "oracle_report.h"
#include "oracle_runs.h"
#include "order_training.h"
#include "test_memory.h"
#include "training.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77, END_SECONDS = 20 };

/* A run on all ranks. */
typedef struct oracle_run {
    const oracle_options *options;
    mimo_comm *host;       /* over MPI */
    compute_device device; /* where tensors lie, by --device */
} oracle_run;

static mimo_status create_topology(oracle_topology *out, const oracle_run *run)
{
    return oracle_topology_create(out, run->host, &run->device, &run->options->spec);
}

/* An interleaved schedule takes micro-batches by the number of stages. */
static bool fits(const oracle_topology *topology, const oracle_case *shape)
{
    return topology->schedule.chunks == 1 || shape->micro_batches % topology->ranks.stages == 0;
}

static mimo_status run_cases(const oracle_run *run, const oracle_case *cases,
                             oracle_comparison *comparisons)
{
    oracle_topology topology = {0};
    mimo_status status = create_topology(&topology, run);
    if (status == MIMO_OK && !fits(&topology, &cases[0]) && !fits(&topology, &cases[1]))
        status = mimo_fail(MIMO_ERR_UNSUPPORTED, "no case has micro-batches by %d stages",
                           (int)topology.ranks.stages);
    for (int i = 0; i < ORACLE_CASES && status == MIMO_OK; i++)
        if (fits(&topology, &cases[i]))
            status = case_compare(&topology, &cases[i], run->options->seed, &comparisons[i]);
    oracle_topology_destroy(&topology);
    return status;
}

/* -------------------------------------------- end -------------------------------------------- */

typedef struct rank_counts {
    int failed, reached; /* ranks whose calls failed; ranks that ran the mutated code */
} rank_counts;

/* A rank that failed alone has left the others in a call that it will never join. Then only failed
 * ranks get here, and the program ends. */
static rank_counts count_ranks(mimo_status status)
{
    rank_counts mine = {status != MIMO_OK, mutation_reached()}, all;
    int done = 0;
    MPI_Request request;
    time_t begin = time(NULL);
    MPI_Iallreduce(&mine, &all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done || time(NULL) - begin < END_SECONDS)
            continue;
        fprintf(stderr, "mimo-oracle: some ranks did not end within %d seconds of this one (%s)\n",
                END_SECONDS, mine.failed ? mimo_last_error() : "no error here");
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILED);
    }
    return all;
}

static int judge(const oracle_run *run, mimo_status status, const oracle_comparison *comparisons)
{
    char sentence[1024];
    int verdict = EXIT_FAILED;
    snprintf(sentence, sizeof sentence, "%s", mimo_last_error());
    rank_counts ranks = count_ranks(status);
    oracle_report report = {.options = run->options,
                            .ranks = mimo_comm_size(run->host),
                            .list = comparisons,
                            .count = ranks.failed > 0 ? 0 : ORACLE_CASES,
                            .failed_ranks = ranks.failed,
                            .sentence = sentence,
                            .mutation_reached = ranks.reached > 0};
    if (mimo_comm_rank(run->host) == 0) {
        bool written = oracle_report_print(&report, stdout);
        if (!written)
            fprintf(stderr, "mimo-oracle: can't write the log %s\n", run->options->log);
        if (written && oracle_report_first(&report) == ORACLE_PHASES)
            verdict = 0;
    }
    MPI_Bcast(&verdict, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return verdict;
}

static int compare(const oracle_run *run)
{
    oracle_comparison comparisons[ORACLE_CASES] = {0};
    oracle_case cases[ORACLE_CASES];
    synthetic_cases(cases, mimo_comm_size(run->host));
    mimo_status status = run_cases(run, cases, comparisons);
    int code = judge(run, status, comparisons);
    for (int i = 0; i < ORACLE_CASES; i++)
        comparison_free(&comparisons[i]);
    return code;
}

/* --same-bits with --train. */
static int train_fixed(const oracle_run *run)
{
    const oracle_options *options = run->options;
    oracle_topology topology = {0};
    oracle_case shape = synthetic_fixed_case(options->micro_batches);
    const order_run settings = {options->seed, options->train, options->sgd};
    mimo_status status = create_topology(&topology, run);
    if (status == MIMO_OK)
        status = order_training_run(&topology, &shape, &settings);
    int failed = count_ranks(status).failed;
    if (mimo_comm_rank(run->host) == 0 && failed > 0)
        printf("an error on %d of %d ranks: %s\n", failed, mimo_comm_size(run->host),
               mimo_last_error());
    oracle_topology_destroy(&topology);
    return failed > 0 ? EXIT_FAILED : 0;
}

/* --train: no comparison; a longer run of the case with 4 micro-batches. */
static int train(const oracle_run *run)
{
    const oracle_options *options = run->options;
    oracle_topology topology = {0};
    oracle_case cases[ORACLE_CASES];
    training_outcome outcome;
    synthetic_cases(cases, mimo_comm_size(run->host));
    mimo_status status = create_topology(&topology, run);
    if (status == MIMO_OK)
        status = training_run(&outcome, &topology, &cases[1], options->seed, options->train);
    int failed = count_ranks(status).failed;
    bool lead = mimo_comm_rank(run->host) == 0;
    if (lead && failed > 0)
        printf("an error on %d of %d ranks: %s\n", failed, mimo_comm_size(run->host),
               mimo_last_error());
    else if (lead)
        printf("after %d steps: loss %.3f reported, %.3f by the reference with these weights\n",
               (int)options->train, outcome.reported, outcome.judged);
    oracle_topology_destroy(&topology);
    return failed > 0 ? EXIT_FAILED : 0;
}

/* --self-test: the errors that a user's program would get at start-up. */
static int self_test(const oracle_run *run)
{
    oracle_topology topology = {0};
    mimo_status status = create_topology(&topology, run);
    if (status == MIMO_OK)
        status = mimo_bridge_self_test(topology.ranks.bridge, run->options->seed);
    int failed = count_ranks(status).failed;
    if (mimo_comm_rank(run->host) == 0 && failed > 0)
        printf("FAIL on %d of %d ranks: %s\n", failed, mimo_comm_size(run->host),
               mimo_last_error());
    else if (mimo_comm_rank(run->host) == 0)
        printf("the bridge passes its self-test\n");
    oracle_topology_destroy(&topology);
    return failed > 0 ? EXIT_FAILED : 0;
}

static int stop(const oracle_run *run, int code, const char *why)
{
    if (mimo_comm_rank(run->host) == 0)
        fprintf(stderr, "mimo-oracle: %s\n", why);
    return code;
}

static int run_mode(oracle_run *run)
{
    mimo_memory memory = run->options->memory;
    const char *lacks = memory == MIMO_MEMORY_CUDA ? test_memory_lacks() : NULL;
    if (lacks)
        return stop(run, EXIT_SKIPPED, lacks);
    nn_runtime_desc runtime = {.memory = memory,
                               .order = run->options->spec.shards > 0 && !run->options->fast
                                            ? NN_ORDER_FIXED
                                            : NN_ORDER_FAST};
    mimo_status opened = compute_device_open(&run->device, run->host, &runtime);
    if (opened != MIMO_OK)
        return stop(run, opened == MIMO_ERR_UNSUPPORTED ? EXIT_SKIPPED : EXIT_FAILED,
                    mimo_last_error());
    mutation_switch_on(run->options->mutation);
    if (run->options->self_test)
        return self_test(run); /* the bridge alone, which takes pp as well */
    if (oracle_spec_check(&run->options->spec, run->host) != MIMO_OK)
        return stop(run, EXIT_USAGE, mimo_last_error());
    if (run->options->train == 0)
        return compare(run);
    if (run->options->spec.shards == 0)
        return train(run);
    if (order_training_check(&run->options->spec) != MIMO_OK)
        return stop(run, EXIT_USAGE, mimo_last_error());
    return train_fixed(run);
}

static int run_on_ranks(const oracle_options *options)
{
    oracle_run run = {.options = options};
    if (mimo_comm_create_mpi(&run.host, MPI_COMM_WORLD, NULL) != MIMO_OK)
        return EXIT_FAILED;
    int code = run_mode(&run);
    compute_device_close(&run.device);
    mimo_comm_destroy(run.host);
    return code;
}

/* --runs: two runs share nothing except the process. The last line of a run says how it ended. A
 * run without that line died. */
static int run_all(const oracle_runs *runs)
{
    int worst = 0, rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < runs->count; i++) {
        double begin = MPI_Wtime();
        int code = run_on_ranks(&runs->list[i]);
        if (rank == 0)
            printf("run %d: exit status %d, %.3f s\n", i + 1, code, MPI_Wtime() - begin);
        fflush(stdout);
        worst = code > worst ? code : worst;
    }
    return worst;
}

/* Answers that need no MPI, and so no mpirun. */
static int answer(const oracle_options *options)
{
    if (options->asked)
        return option_answer(stdout, oracle_options_table(), options->asked) == MIMO_OK
                   ? 0
                   : EXIT_FAILED;
    (options->list_mutations ? mutation_list : mutation_list_of_order)(stdout);
    return 0;
}

static const char *read_arguments(oracle_options *options, oracle_runs *runs, int argc, char **argv)
{
    const char *wrong = oracle_options_parse(options, argc, argv);
    return wrong || !options->runs ? wrong : oracle_runs_read(runs, options->runs);
}

int main(int argc, char **argv)
{
    oracle_options options;
    oracle_runs runs = {0};
    blas_kernels_choose(argv);
    const char *wrong = read_arguments(&options, &runs, argc, argv);
    int code = wrong ? EXIT_USAGE : 0;
    if (wrong)
        fprintf(stderr, "mimo-oracle: %s\n", wrong);
    else if (options.asked || options.list_mutations || options.list_order_mutations)
        code = answer(&options);
    else if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        code = EXIT_FAILED;
    else {
        code = options.runs ? run_all(&runs) : run_on_ranks(&options);
        MPI_Finalize();
    }
    oracle_runs_free(&runs);
    return code;
}

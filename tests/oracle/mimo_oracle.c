/*
 * mimo-oracle: trains a small captioner-like model on two grids with the library, and compares
 * everything, phase by phase, with a one-process reference in f64. See docs/correctness.md.
 *
 *   mpirun -n 8 mimo-oracle --encoder tp=2,dp=4 --llm tp=2,cp=2,dp=2 [--sp] [--mutate NAME]
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mimo/mpi.h>

#include "core/check.h"

#include "comparison.h"
#include "mutations.h"
#include "oracle_candidate.h"
#include "oracle_options.h"
#include "oracle_report.h"
#include "ref_optimizer.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, ADAMW_STEPS = 5, END_SECONDS = 20 };

/* Epsilon lies well above the rounding of f32 gradients, else the elements whose true gradient is
 * zero (a key bias) would walk at random; the clip is below the norms that occur, so it works. */
static const nn_adamw adamw = {
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-3, .decay = 0.1, .clip = 0.2};

/* One case on this rank; `model` on rank 0 only. */
typedef struct case_run {
    mimo_comm *world;
    bool lead;
    ref_sizes sizes;
    oracle_case shape;
    oracle_candidate candidate;
    oracle_capture capture;
    oracle_comparison *comparison;
    ref_model *model;
    ref_table initial;
} case_run;

/* ----------------------------------------- reference ----------------------------------------- */

static oracle_phase phase_of(const char *name)
{
    static const struct {
        const char *name;
        oracle_phase phase;
    } rows[] = {
        {"encoder.d_rows", PHASE_ROWS_BACK},
        {"encoder.", PHASE_ENCODER},
        {"llm.merged", PHASE_ALIGNMENT},
        {"llm.input", PHASE_INPUT},
        {"llm.logits", PHASE_LOGITS},
        {"llm.", PHASE_LAYERS},
        {"losses", PHASE_LOSSES},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(name, rows[i].name, strlen(rows[i].name)) == 0)
            return rows[i].phase;
    return PHASE_RUN;
}

static void expect_table(case_run *run, oracle_phase phase, const char *prefix,
                         const ref_table *expected, bool from_initial)
{
    for (int i = 0; i < expected->count; i++)
        comparison_expect(run->comparison, phase, prefix, &expected->list[i],
                          from_initial ? &run->initial.list[i] : NULL);
}

static void expect_step(case_run *run, const ref_result *result)
{
    oracle_comparison *to = run->comparison;
    for (int i = 0; i < result->tensors.count; i++) {
        const ref_tensor *tensor = &result->tensors.list[i];
        comparison_expect(to, phase_of(tensor->name), "", tensor, NULL);
    }
    ref_tensor bridged = *ref_find(&result->tensors, "encoder.rows");
    strcpy(bridged.name, "bridge.rows");
    comparison_expect(to, PHASE_BRIDGE, "", &bridged, NULL);
    comparison_expect_scalar(to, PHASE_LOSS, "loss", result->loss);
    comparison_expect_scalar(to, PHASE_LOSS, "tokens", (double)result->tokens);
    expect_table(run, PHASE_GRADIENTS, "gradient of ", ref_model_grads(run->model), false);
    comparison_expect_scalar(to, PHASE_NORM, "norm", ref_norm_of(ref_model_grads(run->model)));
}

/* The reference of a step, with the weights as they are. */
static void run_reference(case_run *run, const synthetic_step *step, ref_result *result)
{
    ref_model_run(run->model, step->list, step->samples, result);
}

static void expect_first_step(case_run *run, const synthetic_step *step)
{
    ref_result result;
    run->model = ref_model_create(&run->sizes);
    run->initial = ref_like(ref_model_values(run->model), 1);
    expect_table(run, PHASE_INITIAL, "initial ", &run->initial, false);
    run_reference(run, step, &result);
    expect_step(run, &result);
    ref_free(&result.tensors);
    ref_table moved = ref_like(&run->initial, 1);
    ref_sgd(&moved, ref_model_grads(run->model), 1);
    expect_table(run, PHASE_SGD, "sgd ", &moved, true);
    ref_free(&moved);
}

/* From the gradients of the first step on. */
static void expect_adamw(case_run *run, const synthetic_step *steps)
{
    ref_table *values = ref_model_values(run->model), *grads = ref_model_grads(run->model);
    ref_adamw rule = {.lr = adamw.lr,
                      .beta1 = adamw.beta1,
                      .beta2 = adamw.beta2,
                      .epsilon = adamw.epsilon,
                      .decay = adamw.decay,
                      .clip = adamw.clip};
    for (int i = 0; i < ADAMW_STEPS; i++) {
        ref_result result = {0};
        if (i > 0)
            run_reference(run, &steps[i], &result);
        ref_free(&result.tensors);
        ref_adamw_step(&rule, values, grads);
    }
    expect_table(run, PHASE_ADAMW, "adamw ", values, true);
    ref_free(&rule.m);
    ref_free(&rule.v);
}

/* ----------------------------------------- candidate ----------------------------------------- */

static mimo_status train(case_run *run, const synthetic_step *steps)
{
    oracle_candidate *candidate = &run->candidate;
    double norm;
    oracle_candidate_capture_values(candidate, &run->capture, "initial ");
    MIMO_TRY(oracle_candidate_step(candidate, &steps[0], &run->capture, &norm));
    oracle_candidate_capture_grads(candidate, &run->capture, "gradient of ");
    oracle_candidate_sgd(candidate, 1);
    oracle_candidate_capture_values(candidate, &run->capture, "sgd ");

    oracle_candidate_reset(candidate); /* and the gradients stay */
    for (int i = 0; i < ADAMW_STEPS; i++) {
        if (i > 0)
            MIMO_TRY(oracle_candidate_step(candidate, &steps[i], NULL, &norm));
        MIMO_TRY(oracle_candidate_adamw(candidate, &adamw, norm));
    }
    oracle_candidate_capture_values(candidate, &run->capture, "adamw ");
    return MIMO_OK;
}

static mimo_status run_steps(case_run *run, const oracle_topology *topology,
                             const synthetic_step *steps)
{
    MIMO_TRY(oracle_candidate_create(&run->candidate, topology, &run->sizes, &run->shape));
    MIMO_TRY(train(run, steps));
    if (run->lead) {
        expect_first_step(run, &steps[0]);
        expect_adamw(run, steps);
    }
    MIMO_TRY(capture_collect(&run->capture, run->world, comparison_receive, run->comparison));
    if (run->lead)
        comparison_judge(run->comparison);
    return MIMO_OK;
}

static mimo_status run_case(const oracle_topology *topology, const oracle_case *shape,
                            uint64_t seed, oracle_comparison *comparison)
{
    synthetic_step steps[ADAMW_STEPS];
    case_run run = {.world = topology->world, .shape = *shape, .comparison = comparison};
    run.lead = mimo_comm_rank(topology->world) == 0;
    run.sizes = synthetic_sizes(mimo_comm_size(topology->world), seed);
    comparison->what = shape->name;
    for (int i = 0; i < ADAMW_STEPS; i++)
        synthetic_create(&steps[i], &run.sizes, shape, i);
    mimo_status status = run_steps(&run, topology, steps);
    for (int i = 0; i < ADAMW_STEPS; i++)
        synthetic_destroy(&steps[i]);
    oracle_candidate_destroy(&run.candidate);
    capture_release(&run.capture);
    ref_free(&run.initial);
    if (run.model)
        ref_model_destroy(run.model);
    return status;
}

static mimo_status run_cases(const oracle_options *options, const oracle_case *cases,
                             mimo_comm *world, oracle_comparison *comparisons)
{
    oracle_topology topology = {0};
    mimo_status status = oracle_topology_create(&topology, world, &options->spec);
    for (int i = 0; i < ORACLE_CASES && status == MIMO_OK; i++)
        status = run_case(&topology, &cases[i], options->seed, &comparisons[i]);
    oracle_topology_destroy(&topology);
    return status;
}

/* -------------------------------------------- end -------------------------------------------- */

typedef struct rank_counts {
    int failed, reached; /* ranks whose calls failed; that ran the mutated code */
} rank_counts;

/* A rank that failed alone has left the others in a call that it will never join: then nobody gets
 * here but the failed ones, and the program ends. */
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

static int judge(const oracle_options *options, mimo_comm *world, mimo_status status,
                 const oracle_comparison *comparisons)
{
    char sentence[1024];
    int verdict = EXIT_FAILED;
    snprintf(sentence, sizeof sentence, "%s", mimo_last_error());
    rank_counts ranks = count_ranks(status);
    oracle_report report = {.options = options,
                            .ranks = mimo_comm_size(world),
                            .list = comparisons,
                            .count = ranks.failed > 0 ? 0 : ORACLE_CASES,
                            .failed_ranks = ranks.failed,
                            .sentence = sentence,
                            .mutation_reached = ranks.reached > 0};
    if (mimo_comm_rank(world) == 0) {
        bool written = oracle_report_print(&report, stdout);
        if (!written)
            fprintf(stderr, "mimo-oracle: can't write the log %s\n", options->log);
        if (written && oracle_report_first(&report) == ORACLE_PHASES)
            verdict = 0;
    }
    MPI_Bcast(&verdict, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return verdict;
}

static int run(const oracle_options *options)
{
    mimo_comm *world = NULL;
    oracle_comparison comparisons[ORACLE_CASES] = {0};
    oracle_case cases[ORACLE_CASES];
    if (mimo_comm_from_mpi(&world, MPI_COMM_WORLD) != MIMO_OK)
        return EXIT_FAILED;
    synthetic_cases(cases, mimo_comm_size(world));
    if (options->mutation)
        mutation_switch_on(mutation_find(options->mutation));
    mimo_status status = run_cases(options, cases, world, comparisons);
    int code = judge(options, world, status, comparisons);
    for (int i = 0; i < ORACLE_CASES; i++)
        comparison_free(&comparisons[i]);
    mimo_comm_destroy(world);
    return code;
}

int main(int argc, char **argv)
{
    oracle_options options;
    const char *wrong = oracle_options_parse(&options, argc, argv);
    if (wrong) {
        fprintf(stderr, "mimo-oracle: %s\n", wrong);
        return EXIT_USAGE;
    }
    if (options.help || options.list_mutations) {
        if (options.help)
            oracle_options_help(stdout);
        else
            mutation_list(stdout);
        return 0;
    }
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return EXIT_FAILED;
    int code = run(&options);
    MPI_Finalize();
    return code;
}

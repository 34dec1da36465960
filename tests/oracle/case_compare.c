#include "case_compare.h"

#include <math.h>
#include <string.h>

#include "core/check.h"

#include "oracle_adapter_file.h"
#include "oracle_candidate.h"
#include "oracle_exchanges.h"
#include "oracle_merge.h"
#include "ref_optimizer.h"

enum { ADAMW_STEPS = 5 };

/* One case on this rank. Only rank 0 has `model`. */
typedef struct case_run {
    mimo_comm *host;
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
        {"llm.choices", PHASE_CHOICE},
        {"llm.weights", PHASE_ROUTER},
        {"llm.", PHASE_LAYERS},
        {"losses", PHASE_LOSSES},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(name, rows[i].name, strlen(rows[i].name)) == 0)
            return rows[i].phase;
    return PHASE_RUN;
}

/* An expert that no token with a label chose in the step before has no gradient. */
static bool is_idle(const case_run *run, const char *name)
{
    const ref_tensor *grad = ref_find(ref_model_grads(run->model), name);
    double most = 0;
    for (int64_t i = 0; i < grad->rows * grad->columns; i++)
        most = fmax(most, fabs(grad->data[i]));
    return most == 0 && strstr(name, ".mlp.experts.");
}

static void expect_table(case_run *run, oracle_phase phase, const char *prefix,
                         const ref_table *expected, bool from_initial)
{
    for (int i = 0; i < expected->count; i++) {
        const char *name = expected->list[i].name;
        bool moves = from_initial && ref_model_trains(run->model, name) && !is_idle(run, name);
        comparison_expect(run->comparison, phase, prefix, &expected->list[i],
                          moves ? &run->initial.list[i] : NULL);
    }
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
    const ref_table *grads = ref_model_grads(run->model);
    for (int i = 0; i < grads->count; i++)
        if (is_idle(run, grads->list[i].name))
            comparison_expect_zeros(to, PHASE_GRADIENTS, "gradient of ", &grads->list[i]);
        else if (ref_model_trains(run->model, grads->list[i].name))
            comparison_expect(to, PHASE_GRADIENTS, "gradient of ", &grads->list[i], NULL);
    comparison_expect_scalar(to, PHASE_NORM, "norm", ref_norm_of(ref_model_grads(run->model)));
}

static void expect_files(case_run *run)
{
    static const char *const prefixes[] = {"file ", "loaded ", "distributed "};
    for (int i = 0; i < run->initial.count; i++)
        for (int p = 0; p < 3 && strstr(run->initial.list[i].name, "lora_"); p++)
            comparison_expect(run->comparison, PHASE_ADAPTER, prefixes[p], &run->initial.list[i],
                              NULL);
}

/* A merged model computes the same, and after that has the bits that it had. */
static void expect_merged(case_run *run, const ref_result *result)
{
    ref_tensor logits = *ref_find(&result->tensors, "llm.logits");
    comparison_expect(run->comparison, PHASE_MERGED, "merged ", &logits, NULL);
    comparison_expect_scalar(run->comparison, PHASE_MERGED, "all bits as before merging", 1);
}

/* The reference of a step, with the current weights. */
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
    for (int i = 0; i < ORACLE_EXCHANGES; i++)
        comparison_expect_scalar(run->comparison, PHASE_EXCHANGES, oracle_exchange_names[i], 1);
    if (run->sizes.adapt_all) {
        expect_files(run);
        expect_merged(run, &result);
    }
    ref_free(&result.tensors);
    ref_table moved = ref_like(&run->initial, 1);
    ref_sgd(&moved, ref_model_grads(run->model), 1);
    expect_table(run, PHASE_SGD, "sgd ", &moved, true);
    ref_free(&moved);
}

/* Starts from the gradients of the first step. */
static void expect_adamw(case_run *run, const synthetic_step *steps)
{
    ref_table *values = ref_model_values(run->model), *grads = ref_model_grads(run->model);
    ref_adamw rule = {.lr = oracle_adamw.lr,
                      .beta1 = oracle_adamw.beta1,
                      .beta2 = oracle_adamw.beta2,
                      .epsilon = oracle_adamw.epsilon,
                      .decay = oracle_adamw.decay,
                      .clip = oracle_adamw.clip};
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
    oracle_step_result result;
    oracle_candidate_capture_values(candidate, &run->capture, "initial ");
    oracle_exchanges_reset(candidate);
    MIMO_TRY(oracle_candidate_step(candidate, &steps[0], &run->capture, &result));
    oracle_exchanges_capture(candidate, &run->capture);
    oracle_candidate_capture_grads(candidate, &run->capture, "gradient of ");
    MIMO_TRY(oracle_candidate_sgd(candidate, 1));
    oracle_candidate_capture_values(candidate, &run->capture, "sgd ");

    MIMO_TRY(oracle_candidate_reset(candidate)); /* the gradients stay */
    for (int i = 0; i < ADAMW_STEPS; i++) {
        if (i > 0)
            MIMO_TRY(oracle_candidate_step(candidate, &steps[i], NULL, &result));
        MIMO_TRY(oracle_candidate_adamw(candidate, &oracle_adamw, result.norm));
    }
    oracle_candidate_capture_values(candidate, &run->capture, "adamw ");
    if (!candidate->sizes.adapt_all)
        return MIMO_OK;
    MIMO_TRY(oracle_candidate_reset(candidate));
    MIMO_TRY(oracle_adapter_file_run(candidate, &run->capture));
    return oracle_merge_run(candidate, &steps[0], &run->capture);
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
    MIMO_TRY(capture_collect(&run->capture, run->host, comparison_receive, run->comparison));
    if (run->lead)
        comparison_judge(run->comparison);
    return MIMO_OK;
}

mimo_status case_compare(const oracle_topology *topology, const oracle_case *shape, uint64_t seed,
                         oracle_comparison *comparison)
{
    synthetic_step steps[ADAMW_STEPS];
    case_run run = {.host = topology->host, .shape = *shape, .comparison = comparison};
    run.lead = mimo_comm_rank(topology->world) == 0;
    run.sizes = oracle_sizes(topology, shape, seed);
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

#include "case_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"

#include "oracle_adapter_file.h"
#include "oracle_candidate.h"
#include "oracle_exchanges.h"
#include "oracle_merge.h"
#include "oracle_model.h"
#include "ref_optimizer.h"

/* Of several micro-batches, every tenth token has other experts forced on it than it chooses. */
enum { ADAMW_STEPS = 5, OTHERS_EVERY = 10 };

#define BALANCE 0.1 /* of the mixtures */

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
    oracle_replay replay; /* of the reference's choices */
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
        {"llm.scores", PHASE_ROUTER},
        {"llm.weights", PHASE_ROUTER},
        {"llm.balance", PHASE_ROUTER},
        {"llm.hidden", PHASE_EXPERTS},
        {"llm.mixed", PHASE_COMBINE},
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

static const ref_tensor *find_of_block(const ref_table *table, const char *what, int64_t block)
{
    char name[40];
    snprintf(name, sizeof name, "llm.%s%d", what, (int)block);
    return ref_find(table, name);
}

/* What the choice of each mixture leads to: its near ties are not compared, and the rows of its
 * experts are compared with those that ranks sent. */
static void expect_mixtures(case_run *run, const ref_result *result)
{
    char name[40];
    int64_t k = run->sizes.top_k;
    for (int64_t i = 0; i < run->sizes.llm_layers; i++) {
        const ref_tensor *choices = find_of_block(&result->tensors, "choices", i);
        if (!choices)
            continue;
        comparison_expect_choices(run->comparison, PHASE_CHOICE, choices,
                                  find_of_block(&result->notes, "margins", i)->data);
        snprintf(name, sizeof name, "llm.expert_rows%d", (int)i);
        comparison_expect_sent(run->comparison, PHASE_DISPATCH, name, choices->rows,
                               k * run->sizes.hidden);
        snprintf(name, sizeof name, "llm.expert_weights%d", (int)i);
        comparison_expect_sent(run->comparison, PHASE_DISPATCH, name, choices->rows, k);
    }
}

static void expect_gradients(case_run *run)
{
    oracle_comparison *to = run->comparison;
    const ref_table *grads = ref_model_grads(run->model);
    for (int i = 0; i < grads->count; i++) {
        const ref_tensor *grad = &grads->list[i];
        if (!ref_model_trains(run->model, grad->name))
            continue;
        if (is_idle(run, grad->name))
            comparison_expect_zeros(to, PHASE_GRADIENTS, "gradient of ", grad);
        else
            comparison_expect(to, PHASE_GRADIENTS, "gradient of ", grad, NULL);
    }
    comparison_expect_scalar(to, PHASE_NORM, "norm", ref_norm_of(grads));
}

static void expect_step(case_run *run, const ref_result *result)
{
    oracle_comparison *to = run->comparison;
    for (int i = 0; i < result->tensors.count; i++) {
        const ref_tensor *tensor = &result->tensors.list[i];
        if (strncmp(tensor->name, "llm.choices", strlen("llm.choices")) != 0)
            comparison_expect(to, phase_of(tensor->name), "", tensor, NULL);
    }
    expect_mixtures(run, result);
    ref_tensor bridged = *ref_find(&result->tensors, "encoder.rows");
    strcpy(bridged.name, "bridge.rows");
    comparison_expect(to, PHASE_BRIDGE, "", &bridged, NULL);
    comparison_expect_scalar(to, PHASE_LOSS, "loss", result->loss);
    comparison_expect_scalar(to, PHASE_LOSS, "tokens", (double)result->tokens);
    expect_gradients(run);
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

/* The reference of a step, with the current weights. Its choices are what the candidate's routers
 * take. */
static void run_reference(case_run *run, const synthetic_step *steps, int step, ref_result *result)
{
    ref_model_run(run->model, steps[step].list, steps[step].samples, result);
    for (int64_t i = 0; i < run->sizes.llm_layers; i++) {
        const ref_tensor *ids = find_of_block(&result->notes, "ids", i);
        if (ids)
            oracle_replay_set(&run->replay, step, i, ids->data);
    }
}

static void free_result(ref_result *result)
{
    ref_free(&result->tensors);
    ref_free(&result->notes);
}

static void expect_first_step(case_run *run, const synthetic_step *steps)
{
    ref_result result;
    run->model = ref_model_create(&run->sizes);
    run->initial = ref_like(ref_model_values(run->model), 1);
    expect_table(run, PHASE_INITIAL, "initial ", &run->initial, false);
    run_reference(run, steps, 0, &result);
    expect_step(run, &result);
    for (int i = 0; i < ORACLE_EXCHANGES; i++)
        comparison_expect_scalar(run->comparison, PHASE_EXCHANGES, oracle_exchange_names[i], 1);
    for (int i = 0; i < ORACLE_WALK; i++)
        comparison_expect_scalar(run->comparison, PHASE_SCHEDULE, oracle_walk_names[i], 1);
    if (run->candidate.topology->adapters > 0) {
        expect_files(run);
        expect_merged(run, &result);
    }
    free_result(&result);
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
            run_reference(run, steps, i, &result);
        free_result(&result);
        ref_adamw_step(&rule, values, grads);
    }
    expect_table(run, PHASE_ADAMW, "adamw ", values, true);
    ref_free(&rule.m);
    ref_free(&rule.v);
}

/* Of the trainer's whole model, whose step is another one. */
static void expect_model(case_run *run, const synthetic_step *step)
{
    const ref_sizes sizes = oracle_model_sizes(&run->candidate);
    const oracle_case shape = oracle_model_case(&run->candidate);
    oracle_comparison *to = run->comparison;
    char name[64];
    ref_result result;
    ref_model *model = ref_model_create(&sizes);
    ref_model_run(model, step->list, step->samples, &result);
    const ref_table *grads = ref_model_grads(model);
    for (int i = 0; i < grads->count; i++)
        if (ref_model_trains(model, grads->list[i].name))
            comparison_expect(to, PHASE_MODEL, "model gradient of ", &grads->list[i], NULL);
    comparison_expect_scalar(to, PHASE_MODEL, "model loss", result.loss);
    comparison_expect_scalar(to, PHASE_MODEL, "model tokens", (double)result.tokens);
    comparison_expect_scalar(to, PHASE_MODEL, "model norm", ref_norm_of(grads));
    for (int i = 0; i < ORACLE_EXCHANGES && shape.images == SYNTHETIC_FIRST; i++) {
        snprintf(name, sizeof name, "model %s", oracle_exchange_names[i]);
        comparison_expect_scalar(to, PHASE_MODEL, name, 1);
    }
    free_result(&result);
    ref_model_destroy(model);
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
        run->replay.step = i;
        if (i > 0)
            MIMO_TRY(oracle_candidate_step(candidate, &steps[i], NULL, &result));
        if (!isfinite(result.norm))
            return MIMO_OK; /* the optimizer refuses it; what is missing now fails as well */
        MIMO_TRY(oracle_candidate_adamw(candidate, &oracle_adamw, result.norm));
    }
    oracle_candidate_capture_values(candidate, &run->capture, "adamw ");
    if (candidate->topology->adapters == 0)
        return MIMO_OK;
    run->replay.step = 0;
    MIMO_TRY(oracle_candidate_reset(candidate));
    MIMO_TRY(oracle_adapter_file_run(candidate, &run->capture));
    return oracle_merge_run(candidate, &steps[0], &run->capture);
}

/* An error of it leaves its phase without tensors, so that the phases before it still say where a
 * bug is. */
static void train_model(case_run *run)
{
    synthetic_step step;
    const oracle_case shape = oracle_model_case(&run->candidate);
    if (!oracle_model_exists(run->candidate.topology, &run->sizes))
        return;
    synthetic_create(&step, &run->sizes, &shape, 0);
    if (run->lead)
        expect_model(run, &step);
    mimo_status status = oracle_model_run(&run->candidate, &step, &run->capture);
    if (mimo_comm_agree(run->host, status) != MIMO_OK && run->lead)
        fprintf(stderr, "mimo-oracle: the whole model: %s\n", mimo_last_error());
    synthetic_destroy(&step);
}

/* Room for the choices of all steps; none without mixtures. */
static mimo_status prepare_replay(case_run *run)
{
    const ref_sizes *sizes = &run->sizes;
    run->replay = (oracle_replay){.steps = ADAMW_STEPS,
                                  .blocks = sizes->experts > 0 ? sizes->llm_layers : 0,
                                  .samples = run->shape.samples,
                                  .seq = sizes->seq,
                                  .top_k = sizes->top_k};
    return oracle_replay_reserve(&run->replay);
}

/* The reference comes first, as its choices are replayed. */
static mimo_status run_steps(case_run *run, const oracle_topology *topology,
                             const synthetic_step *steps)
{
    oracle_replay *replay = run->sizes.experts > 0 ? &run->replay : NULL;
    MIMO_TRY(prepare_replay(run));
    MIMO_TRY(oracle_candidate_create(&run->candidate, topology, &run->sizes, &run->shape, replay));
    if (run->lead) {
        expect_first_step(run, steps);
        expect_adamw(run, steps);
    }
    MIMO_TRY(oracle_replay_share(&run->replay, run->host));
    MIMO_TRY(train(run, steps));
    train_model(run);
    MIMO_TRY(
        capture_collect(&run->candidate.sent, run->host, comparison_receive_sent, run->comparison));
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
    run.lead = mimo_comm_rank(topology->ranks.world) == 0;
    run.sizes = oracle_sizes(topology, shape, seed);
    run.sizes.balance = BALANCE;
    run.sizes.others_every = shape->micro_batches > 1 ? OTHERS_EVERY : 0;
    comparison->what = shape->name;
    for (int i = 0; i < ADAMW_STEPS; i++)
        synthetic_create(&steps[i], &run.sizes, shape, i);
    mimo_status status = run_steps(&run, topology, steps);
    for (int i = 0; i < ADAMW_STEPS; i++)
        synthetic_destroy(&steps[i]);
    oracle_candidate_destroy(&run.candidate);
    capture_release(&run.capture);
    oracle_replay_release(&run.replay);
    ref_free(&run.initial);
    if (run.model)
        ref_model_destroy(run.model);
    return status;
}

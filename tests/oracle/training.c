#include "training.h"

#include "core/check.h"

#include "oracle_candidate.h"

enum { ROUND = 5 };

/* The settings of a usual training run. The comparison needs others. */
static const nn_adamw rule = {
    .lr = 0.003, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 1};

static mimo_status train(oracle_candidate *candidate, const synthetic_step *data, int steps,
                         double *reported)
{
    *reported = 0;
    for (int i = 0; i < steps; i++) {
        oracle_step_result result;
        MIMO_TRY(oracle_candidate_step(candidate, &data[i % ROUND], NULL, &result));
        MIMO_TRY(oracle_candidate_adamw(candidate, &rule, result.norm));
        if (i >= steps - ROUND)
            *reported += result.loss / (steps < ROUND ? steps : ROUND);
    }
    return MIMO_OK;
}

/* A capture_visitor: copies a rank's part of a parameter into the reference's parameter. */
static void take_values(void *context, const capture_piece *piece)
{
    ref_tensor *tensor = ref_find(context, piece->name);
    for (int64_t i = 0; tensor && i < piece->count; i++)
        for (int64_t j = 0; j < piece->columns; j++)
            tensor->data[piece->row_of[i] * tensor->columns + piece->first + j] =
                piece->data[i * piece->columns + j];
}

static double judge(ref_model *model, const synthetic_step *data)
{
    double sum = 0, tokens = 0;
    for (int i = 0; i < ROUND; i++) {
        ref_result result;
        ref_model_run(model, data[i].list, data[i].samples, &result);
        sum += result.loss * (double)result.tokens;
        tokens += (double)result.tokens;
        ref_free(&result.tensors);
        ref_free(&result.notes);
    }
    return sum / tokens;
}

static mimo_status train_and_judge(training_outcome *out, oracle_candidate *candidate,
                                   const synthetic_step *data, int steps)
{
    oracle_capture capture = {0};
    mimo_comm *host = candidate->topology->host;
    MIMO_TRY(train(candidate, data, steps, &out->reported));
    oracle_candidate_capture_values(candidate, &capture, "");
    ref_model *model = ref_model_create(&candidate->sizes);
    mimo_status status = capture_collect(&capture, host, take_values, ref_model_values(model));
    if (status == MIMO_OK && mimo_comm_rank(host) == 0)
        out->judged = judge(model, data);
    ref_model_destroy(model);
    capture_release(&capture);
    return status;
}

mimo_status training_run(training_outcome *out, const oracle_topology *topology,
                         const oracle_case *shape, uint64_t seed, int steps)
{
    oracle_candidate candidate = {0};
    synthetic_step data[ROUND];
    ref_sizes sizes = oracle_sizes(topology, shape, seed);
    for (int i = 0; i < ROUND; i++)
        synthetic_create(&data[i], &sizes, shape, i);
    mimo_status status = oracle_candidate_create(&candidate, topology, &sizes, shape, NULL);
    if (status == MIMO_OK)
        status = train_and_judge(out, &candidate, data, steps);
    oracle_candidate_destroy(&candidate);
    for (int i = 0; i < ROUND; i++)
        synthetic_destroy(&data[i]);
    return status;
}

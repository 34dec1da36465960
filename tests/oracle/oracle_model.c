#include "oracle_model.h"

#include <string.h>

#include "core/check.h"
#include "train/model/model_pass.h"

#include "oracle_adapters.h"
#include "oracle_exchanges.h"

bool oracle_model_exists(const oracle_topology *topology, const ref_sizes *sizes)
{
    return topology->experts == 0 && (topology->adapters == 0 || sizes->frozen);
}

ref_sizes oracle_model_sizes(const oracle_candidate *candidate)
{
    ref_sizes sizes = candidate->sizes;
    if (candidate->topology->adapters == 0)
        sizes.adapter = 0;
    return sizes;
}

oracle_case oracle_model_case(const oracle_candidate *candidate)
{
    oracle_case shape = candidate->shape;
    shape.images = shape.micro_batches > 1 ? SYNTHETIC_FIRST : SYNTHETIC_WHOLE;
    return shape;
}

/* ------------------------------------------ samples ------------------------------------------- */

typedef struct step_samples {
    const synthetic_step *step;
    ref_sizes sizes;
} step_samples;

static int64_t list_pictures(int64_t *positions, const void *of, int64_t sample)
{
    const step_samples *own = of;
    const int64_t *ids = own->step->list[sample].ids;
    *positions = 0;
    while (ids[*positions] != own->sizes.image_id)
        ++*positions;
    return 1;
}

static void read_picture(float *rows, int64_t stride, const void *of, picture_number picture)
{
    const step_samples *own = of;
    const double *from = own->step->list[picture.sample].patches;
    for (int64_t p = 0; p < own->sizes.image_tokens; p++)
        for (int64_t i = 0; i < own->sizes.patch_values; i++)
            rows[p * stride + i] = (float)*from++;
}

static void read_sentence(int64_t *ids, int64_t *labels, const void *of, int64_t sample)
{
    const step_samples *own = of;
    size_t bytes = (size_t)own->sizes.seq * sizeof *ids;
    memcpy(ids, own->step->list[sample].ids, bytes);
    memcpy(labels, own->step->list[sample].labels, bytes);
}

/* -------------------------------------------- model ------------------------------------------- */

typedef struct whole_model {
    rank_topology ranks;
    bridged_model model;
    model_pass pass;
    nn_params *stores[ORACLE_STORES];
} whole_model;

/* Described here, so that grids may be any that a bridge takes. */
static mimo_status create_ranks(rank_topology *out, const oracle_topology *topology)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc bridge = MIMO_BRIDGE_DESC_INIT;
    const topology_desc desc = {.encoder = topology->spec->encoder,
                                .llm = topology->spec->llm,
                                .sp = topology->ranks.sp,
                                .bridge = &bridge};
    rule.sp = topology->ranks.sp;
    bridge.partition = &rule;
    return topology_create(out, topology->ranks.world, &desc);
}

static mimo_status create_model(whole_model *out, const oracle_candidate *candidate,
                                const ref_sizes *sizes, const oracle_case *shape)
{
    const oracle_topology *topology = candidate->topology;
    oracle_adapters adapters;
    bool whole = shape->images == SYNTHETIC_WHOLE;
    schedule_choice schedule = topology->schedule;
    if (schedule.group > shape->micro_batches)
        schedule.group = shape->micro_batches;
    const model_desc desc = {.hidden = sizes->hidden,
                             .heads = sizes->heads,
                             .encoder_layers = sizes->encoder_layers,
                             .llm_layers = sizes->llm_layers,
                             .tokens = sizes->image_tokens,
                             .patch_values = sizes->patch_values,
                             .seq = sizes->seq,
                             .words = {sizes->text_vocabulary, sizes->vocabulary, sizes->image_id,
                                       sizes->text_vocabulary - 1},
                             .micro_batch = shape->micro_batch,
                             .micro_batches = shape->micro_batches,
                             .most_images = whole,
                             .balanced = whole,
                             .schedule = schedule,
                             .seed = sizes->seed,
                             .runtime = topology->runtime,
                             .bridge_dtype = MIMO_F32,
                             .shards = topology->shards,
                             .pairs = topology->pairs,
                             .adapters = oracle_adapters_of(&adapters, sizes)};
    const model_pass_desc pass = {
        .backward = true, .micro_batches = shape->micro_batches, .samples = shape->micro_batch};
    MIMO_TRY(create_ranks(&out->ranks, topology));
    MIMO_TRY(model_create(&out->model, &out->ranks, &desc));
    out->stores[0] = out->model.encoder.params;
    out->stores[1] = out->model.language.params;
    MIMO_TRY(model_pass_create(&out->pass, &out->model, &pass));
    return oracle_params_reset(candidate, out->stores);
}

static mimo_status take_step(whole_model *own, const model_samples *samples)
{
    double sum;
    int64_t tokens;
    mimo_gradient_reset(own->ranks.gradient);
    for (int store = 0; store < ORACLE_STORES; store++)
        MIMO_TRY(nn_params_zero_grad(own->stores[store]));
    MIMO_TRY(model_pass_run(&own->pass, samples));
    MIMO_TRY(language_losses(&own->model.language, &sum, &tokens));
    return mimo_gradient_add(own->ranks.gradient, sum, tokens);
}

/* Sizes of messages follow the pictures of a rank, which only the first kind of case fixes. */
static mimo_status capture_step(whole_model *own, const oracle_candidate *candidate,
                                const oracle_case *shape, oracle_capture *capture)
{
    oracle_step_result result;
    MIMO_TRY(oracle_gradients_finish(&result, &own->ranks, own->stores));
    capture_scalar(capture, "model loss", result.loss);
    capture_scalar(capture, "model tokens", (double)result.tokens);
    capture_scalar(capture, "model norm", result.norm);
    oracle_params_capture(candidate, own->stores, capture, "model gradient of ", NN_GRAD);
    if (shape->images == SYNTHETIC_FIRST)
        oracle_exchanges_capture_model(candidate, &own->model, capture);
    return MIMO_OK;
}

mimo_status oracle_model_run(const oracle_candidate *candidate, const synthetic_step *step,
                             oracle_capture *capture)
{
    whole_model own = {0};
    const oracle_case shape = oracle_model_case(candidate);
    const step_samples list = {step, oracle_model_sizes(candidate)};
    const model_samples samples = {&list, step->samples, list_pictures, read_picture,
                                   read_sentence};
    mimo_status status = create_model(&own, candidate, &list.sizes, &shape);
    if (status == MIMO_OK)
        status = take_step(&own, &samples);
    if (status == MIMO_OK)
        status = capture_step(&own, candidate, &shape, capture);
    model_pass_destroy(&own.pass);
    model_destroy(&own.model);
    topology_destroy(&own.ranks);
    return status;
}

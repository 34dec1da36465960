#include "oracle_candidate.h"

#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "train/nn/params/nn_initial.h"

#include "oracle_adapters.h"
#include "oracle_mixtures.h"
#include "oracle_steps.h"

/* Epsilon is well above the rounding of f32 gradients. Otherwise the elements whose true gradient
 * is zero (a key bias) would walk at random. The clip is below the norms that occur, so it takes
 * effect. */
const nn_adamw oracle_adamw = {
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-3, .decay = 0.1, .clip = 0.2};

/* ----------------------------------------- creation ----------------------------------------- */

void oracle_set_adapters(ref_sizes *sizes, const oracle_topology *topology, bool frozen)
{
    if (topology->adapters == 0)
        return;
    sizes->adapter = topology->adapters;
    sizes->adapter_alpha = 2.0 * topology->adapters; /* a scale of 2 */
    sizes->adapted = topology->adapted;
    sizes->frozen = frozen;
}

int64_t oracle_layers(const oracle_topology *topology)
{
    return topology->ranks.stages * topology->schedule.chunks > 2 ? 5 : 2;
}

ref_sizes oracle_sizes(const oracle_topology *topology, const oracle_case *shape, uint64_t seed)
{
    int64_t unit = mimo_comm_size(topology->ranks.world);
    ref_sizes sizes = synthetic_sizes(unit > topology->shards ? unit : topology->shards, seed);
    oracle_set_adapters(&sizes, topology, shape->micro_batches > 1);
    sizes.experts = topology->experts;
    sizes.top_k = topology->top_k;
    sizes.twins = topology->experts > 1;
    sizes.llm_layers = oracle_layers(topology);
    return sizes;
}

/* Thread blocks of an exchange beside products. */
enum { OVERLAP_CTAS = 32 };

/* For the rows of all tp ranks, so that a mixture that does not cut them shows. */
static mimo_status create_dispatch(oracle_candidate *out)
{
    const ref_sizes *sizes = &out->sizes;
    const rank_topology *ranks = &out->topology->ranks;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    if (sizes->experts == 0)
        return MIMO_OK;
    desc.experts = sizes->experts;
    desc.top_k = sizes->top_k;
    desc.etp = ranks->experts.coords.etp_size;
    desc.max_tokens = sizes->seq / ranks->llm_cp * out->sentences;
    desc.hidden = sizes->hidden;
    desc.tensors = 2; /* rows, and their numbers */
    desc.ctas = out->topology->schedule.overlap ? OVERLAP_CTAS : 0;
    return nn_dispatch_create(&out->dispatch, out->topology->runtime, ranks->experts.group, &desc);
}

/* Blocks are cut as evenly as it goes. With zero-copy rows and their gradients are written straight
 * into the tiles of experts. */
static mimo_status create_language(oracle_candidate *out, const int64_t *states)
{
    const ref_sizes *sizes = &out->sizes;
    const oracle_topology *topology = out->topology;
    const rank_topology *ranks = &topology->ranks;
    oracle_adapters adapters;
    out->forced = (nn_replay){oracle_replay_ids, out->replay};
    const nn_mixture mixture = {.dispatch = out->dispatch,
                                .inner = sizes->hidden,
                                .balance = sizes->balance,
                                .replay = out->replay ? &out->forced : NULL,
                                .traced = out->replay != NULL};
    const language_desc desc = {
        .tp = ranks->llm_tp,
        .cp = ranks->llm_cp_group,
        .stage = ranks->stage,
        .stages = ranks->stages,
        .layout = &out->layout,
        .states = states,
        .runtime = topology->runtime,
        .partition = ranks->partition,
        .sp = ranks->sp,
        .seed = sizes->seed,
        .words = {sizes->text_vocabulary, sizes->vocabulary, sizes->image_id, -1},
        .seq = sizes->seq,
        .sentences = out->sentences,
        .hidden = sizes->hidden,
        .heads = sizes->heads,
        .frozen = sizes->frozen,
        .adapters = oracle_adapters_of(&adapters, sizes),
        .mixture = out->dispatch ? &mixture : NULL,
        .experts = ranks->experts.coords,
        .pushes = out->dispatch && topology->zero_copy ? ranks->experts.group : NULL,
        .shards = topology->shards,
        .pairs = topology->pairs};
    MIMO_TRY(language_create(&out->llm, &desc));
    MIMO_TRY(language_share(&out->llm));
    return language_connect(&out->llm);
}

static mimo_status create_llm(oracle_candidate *out)
{
    const layer_layout_desc layout = {.layers = out->sizes.llm_layers,
                                      .stages = out->topology->ranks.stages,
                                      .chunks = out->topology->schedule.chunks};
    int64_t *states = NULL;
    MIMO_TRY(create_dispatch(out));
    MIMO_TRY(layer_layout_create(&out->layout, &layout));
    mimo_status status = oracle_pass_states(&states, &out->train, out->topology);
    if (status == MIMO_OK)
        status = create_language(out, states);
    mimo_release(states);
    MIMO_TRY(status);
    MIMO_TRY(mimo_reserve(&out->texts, out->llm.states, sizeof *out->texts));
    for (int64_t i = 0; i < out->llm.states; i++)
        MIMO_TRY(language_text_create(&out->texts[i], &out->llm));
    return oracle_positions_create(&out->positions, out->topology, &out->sizes, &out->llm);
}

static mimo_status create_modules(oracle_candidate *out)
{
    const ref_sizes *sizes = &out->sizes;
    oracle_adapters adapters;
    encoder_desc encoder = {.tp = out->topology->ranks.encoder_tp,
                            .runtime = out->topology->runtime,
                            .seed = sizes->seed,
                            .states = out->slots,
                            .tokens = sizes->image_tokens,
                            .pictures = out->pictures,
                            .patch_values = sizes->patch_values,
                            .hidden = sizes->hidden,
                            .heads = sizes->heads,
                            .layers = sizes->encoder_layers,
                            .llm_hidden = sizes->hidden,
                            .frozen = sizes->frozen,
                            .adapters = oracle_adapters_of(&adapters, sizes),
                            .shards = out->topology->shards};
    MIMO_TRY(encoder_create(&out->encoder, &encoder));
    MIMO_TRY(create_llm(out));
    out->stores[0] = out->encoder.params;
    out->stores[1] = out->llm.params;
    return MIMO_OK;
}

/* Image rows come to the first stage. */
static mimo_status create_tiles(oracle_candidate *out)
{
    const oracle_tiles_desc desc = {.tokens = out->sizes.image_tokens,
                                    .hidden = out->sizes.hidden,
                                    .samples = {out->pictures, out->group * out->sentences},
                                    .group = out->group,
                                    .consumes = out->topology->ranks.stage == 0,
                                    .tensors = out->shape.tensors};
    MIMO_TRY(mimo_reserve(&out->tiles, out->slots, sizeof *out->tiles));
    for (int64_t i = 0; i < out->slots; i++)
        MIMO_TRY(oracle_tiles_create(&out->tiles[i], out->topology, &desc));
    return MIMO_OK;
}

/* Elements of the largest parameter on this rank. */
static int64_t largest_param(const oracle_candidate *candidate)
{
    int64_t most = 0;
    for (int store = 0; store < ORACLE_STORES; store++)
        most = mimo_larger(most, nn_params_largest(candidate->stores[store]));
    return most;
}

static mimo_status reserve_rooms(oracle_candidate *out)
{
    const ref_sizes *sizes = &out->sizes;
    int64_t patches = sizes->image_tokens * out->pictures * sizes->patch_values;
    int64_t positions = sizes->seq * (out->pictures + out->group * out->sentences);
    int64_t tile = positions * mimo_larger(sizes->hidden, sizes->vocabulary);
    int64_t mixed = oracle_mixtures_elements(&out->llm), rows = oracle_mixtures_rows(&out->llm);
    int64_t room =
        mimo_larger(mimo_larger(tile, patches), mimo_larger(mixed, 2 * largest_param(out)));
    MIMO_TRY(nn_runtime_reserve(out->topology->runtime, &out->patches, out->slots * patches,
                                sizeof *out->patches));
    MIMO_TRY(mimo_reserve(&out->on_host, room, sizeof *out->on_host));
    MIMO_TRY(mimo_reserve(&out->losses, positions, sizeof *out->losses));
    MIMO_TRY(mimo_reserve(&out->numbers, rows, sizeof *out->numbers));
    MIMO_TRY(create_tiles(out));
    return mimo_reserve(&out->row_of, mimo_larger(rows, positions + 6 * sizes->vocabulary),
                        sizeof *out->row_of);
}

/* ---------------------------------------- parameters ----------------------------------------- */

/* The index in the whole parameter of element (i, j) of this rank's part. */
static int64_t global_index(const nn_param *param, int64_t i, int64_t j)
{
    int64_t row = i + (param->placement.cut == 0 ? param->start : 0);
    int64_t column = j + (param->placement.cut == 1 ? param->start : 0);
    return row * param->placement.shape[1] + column;
}

/* The generator's values, but vectors of zeros or ones lie a little beside these. */
static mimo_status reset_param(const oracle_candidate *candidate, nn_params *params, int index)
{
    const nn_param *param = nn_params_at(params, index);
    nn_real *to = candidate->on_host;
    if (!param->held || param->init == NN_INIT_NORMAL || param->init == NN_INIT_UNIFORM)
        return MIMO_OK;
    for (int64_t i = 0; i < param->local[0]; i++)
        for (int64_t j = 0; j < param->local[1]; j++) {
            double normal =
                nn_normal(candidate->sizes.seed, param->name, global_index(param, i, j));
            *to++ = (nn_real)(param->init == NN_INIT_ONES) + (nn_real)(0.1 * normal);
        }
    return nn_params_write(params, index, NN_VALUE, candidate->on_host);
}

/* Experts 0 and 1 have equal scores: the lower id must win. */
static mimo_status make_twins(const oracle_candidate *candidate)
{
    const language_model *llm = &candidate->llm;
    nn_real *rows = candidate->on_host;
    int64_t hidden = candidate->sizes.hidden;
    for (int64_t i = 0; i < candidate->sizes.llm_layers && candidate->sizes.twins; i++) {
        const nn_moe *moe = oracle_mixture_at(llm, i);
        if (!moe)
            continue;
        int router = moe->router.linear.weight;
        MIMO_TRY(nn_params_read(llm->params, router, NN_VALUE, rows));
        memcpy(rows + hidden, rows, (size_t)hidden * sizeof *rows);
        MIMO_TRY(nn_params_write(llm->params, router, NN_VALUE, rows));
    }
    return MIMO_OK;
}

mimo_status oracle_params_reset(const oracle_candidate *candidate,
                                nn_params *const stores[ORACLE_STORES])
{
    for (int store = 0; store < ORACLE_STORES; store++) {
        MIMO_TRY(nn_params_reset(stores[store]));
        for (int i = 0; i < nn_params_count(stores[store]); i++)
            MIMO_TRY(reset_param(candidate, stores[store], i));
    }
    return MIMO_OK;
}

mimo_status oracle_candidate_reset(oracle_candidate *candidate)
{
    MIMO_TRY(oracle_params_reset(candidate, candidate->stores));
    return make_twins(candidate);
}

static void capture_param(const oracle_candidate *candidate, oracle_capture *capture,
                          const char *prefix, const nn_params *params, int index, nn_part part)
{
    char name[64];
    const nn_param *param = nn_params_at(params, index);
    if (!param->held)
        return;
    snprintf(name, sizeof name, "%s%s", prefix, param->name);
    for (int64_t i = 0; i < param->local[0]; i++)
        candidate->row_of[i] = i + (param->placement.cut == 0 ? param->start : 0);
    capture_block block = {name,
                           candidate->row_of,
                           param->local[0],
                           param->placement.cut == 1 ? param->start : 0,
                           param->local[1],
                           candidate->on_host};
    MIMO_KEEP_FIRST(capture->status, nn_params_read(params, index, part, candidate->on_host));
    capture_add(capture, &block);
}

void oracle_params_capture(const oracle_candidate *candidate,
                           nn_params *const stores[ORACLE_STORES], oracle_capture *capture,
                           const char *prefix, nn_part part)
{
    for (int store = 0; store < ORACLE_STORES; store++)
        for (int i = 0; i < nn_params_count(stores[store]); i++)
            if (nn_param_has(nn_params_at(stores[store], i), part))
                capture_param(candidate, capture, prefix, stores[store], i, part);
}

void oracle_candidate_capture_values(const oracle_candidate *candidate, oracle_capture *capture,
                                     const char *prefix)
{
    oracle_params_capture(candidate, candidate->stores, capture, prefix, NN_VALUE);
}

void oracle_candidate_capture_adapters(const oracle_candidate *candidate, oracle_capture *capture,
                                       const char *prefix)
{
    for (int store = 0; store < ORACLE_STORES; store++)
        for (int i = 0; i < nn_params_count(candidate->stores[store]); i++)
            if (nn_params_at(candidate->stores[store], i)->adapter)
                capture_param(candidate, capture, prefix, candidate->stores[store], i, NN_VALUE);
}

void oracle_candidate_capture_grads(const oracle_candidate *candidate, oracle_capture *capture,
                                    const char *prefix)
{
    oracle_params_capture(candidate, candidate->stores, capture, prefix, NN_GRAD);
}

static mimo_status sgd_param(const oracle_candidate *candidate, nn_params *params, int index,
                             double lr)
{
    const nn_param *param = nn_params_at(params, index);
    int64_t count = param->count;
    nn_real *value = candidate->on_host, *grad = value + count;
    if (param->frozen || !param->held)
        return MIMO_OK;
    MIMO_TRY(nn_params_read(params, index, NN_VALUE, value));
    MIMO_TRY(nn_params_read(params, index, NN_GRAD, grad));
    for (int64_t i = 0; i < count; i++)
        value[i] -= (nn_real)lr * grad[i];
    return nn_params_write(params, index, NN_VALUE, value);
}

mimo_status oracle_candidate_sgd(oracle_candidate *candidate, double lr)
{
    for (int store = 0; store < ORACLE_STORES; store++)
        for (int i = 0; i < nn_params_count(candidate->stores[store]); i++)
            MIMO_TRY(sgd_param(candidate, candidate->stores[store], i, lr));
    return MIMO_OK;
}

mimo_status oracle_candidate_adamw(oracle_candidate *candidate, const nn_adamw *rule, double norm)
{
    for (int store = 0; store < ORACLE_STORES; store++)
        MIMO_TRY(nn_adamw_step(rule, candidate->stores[store], norm));
    return MIMO_OK;
}

/* ------------------------------------------- life -------------------------------------------- */

static mimo_status choose_passes(oracle_candidate *out)
{
    int64_t micro_batches = out->shape.micro_batches;
    MIMO_TRY(oracle_pass_choose(&out->train, out->topology, micro_batches, true, 0));
    out->slots = out->train.sizes.encoder_alive;
    out->group = out->train.sizes.encoder_group;
    out->groups = (micro_batches + out->group - 1) / out->group;
    return oracle_pass_choose(&out->predict, out->topology, micro_batches, false, out->slots);
}

/* By nodes, where the schedule has a forward beside a backward. */
static mimo_status create_pair(oracle_candidate *out)
{
    const pair_pass_desc desc = {.language = &out->llm,
                                 .layout = &out->layout,
                                 .mixtures = out->dispatch,
                                 .stage = out->topology->ranks.stage,
                                 .stages = out->topology->ranks.stages,
                                 .schedule = out->train.schedule,
                                 .streams = &out->streams,
                                 .dispatch = out->dispatch,
                                 .work = oracle_pairs_of(out)};
    const stage_streams_desc streams = {.runtime = out->topology->runtime, .exchanges = true};
    if (!out->train.sizes.overlap)
        return MIMO_OK;
    MIMO_TRY(stage_streams_create(&out->streams, &streams));
    return pair_pass_create(&out->pair, &desc);
}

static mimo_status create_passes(oracle_candidate *out)
{
    const oracle_topology *topology = out->topology;
    const stage_hops_desc hops = {.world = topology->ranks.world,
                                  .grid = topology->ranks.llm,
                                  .rows = out->llm.own_rows,
                                  .width = out->sizes.hidden,
                                  .ring = topology->schedule.chunks > 1};
    const pipeline_work work = oracle_steps_of(out);
    MIMO_TRY(stage_hops_create(&out->hops, &hops));
    MIMO_TRY(create_pair(out));
    MIMO_TRY(oracle_pass_create(&out->train, topology, out->llm.chunk_states, out->slots,
                                &out->hops, &work));
    return oracle_pass_create(&out->predict, topology, out->llm.chunk_states, out->slots,
                              &out->hops, &work);
}

mimo_status oracle_candidate_create(oracle_candidate *out, const oracle_topology *topology,
                                    const ref_sizes *sizes, const oracle_case *shape,
                                    oracle_replay *replay)
{
    out->topology = topology;
    out->replay = replay;
    out->sizes = *sizes;
    out->shape = *shape;
    MIMO_TRY(choose_passes(out));
    MIMO_TRY(mimo_bridge_samples(&out->first_picture, &out->pictures, topology->ranks.bridge,
                                 MIMO_SRC, out->group * shape->micro_batch));
    MIMO_TRY(mimo_pairing_samples(&out->first_sentence, &out->sentences, topology->ranks.llm,
                                  mimo_comm_rank(topology->ranks.world), shape->micro_batch));
    MIMO_TRY(create_modules(out));
    MIMO_TRY(reserve_rooms(out));
    MIMO_TRY(create_passes(out));
    return oracle_candidate_reset(out);
}

void oracle_candidate_destroy(oracle_candidate *candidate)
{
    if (candidate->topology)
        nn_runtime_free(candidate->topology->runtime, candidate->patches);
    mimo_release(candidate->on_host);
    mimo_release(candidate->losses);
    pair_pass_destroy(&candidate->pair);
    oracle_pass_destroy(&candidate->train);
    oracle_pass_destroy(&candidate->predict);
    stage_hops_destroy(&candidate->hops);
    for (int64_t i = 0; i < candidate->slots && candidate->tiles; i++)
        oracle_tiles_destroy(&candidate->tiles[i]);
    mimo_release(candidate->tiles);
    mimo_release(candidate->row_of);
    mimo_release(candidate->numbers);
    capture_release(&candidate->sent);
    oracle_positions_destroy(&candidate->positions);
    for (int64_t i = 0; i < candidate->llm.states && candidate->texts; i++)
        language_text_destroy(&candidate->texts[i]);
    mimo_release(candidate->texts);
    language_destroy(&candidate->llm);
    layer_layout_release(&candidate->layout);
    nn_dispatch_destroy(candidate->dispatch);
    stage_streams_destroy(&candidate->streams);
    encoder_destroy(&candidate->encoder);
    memset(candidate, 0, sizeof *candidate);
}

/* -------------------------------------------- walks ------------------------------------------ */

static mimo_status walk(oracle_candidate *candidate, oracle_pass *pass, const synthetic_step *step,
                        oracle_capture *capture, const char *logits)
{
    candidate->pass = pass;
    candidate->step = step;
    candidate->capture = capture;
    candidate->logits = logits;
    return oracle_pass_run(pass);
}

mimo_status oracle_candidate_predict(oracle_candidate *candidate, const synthetic_step *step,
                                     oracle_capture *capture, const char *name)
{
    return walk(candidate, &candidate->predict, step, capture, name);
}

/* A planted bug: each dp rank trains on the samples of all others as well. The encoder's dp ranks
 * take those of the same sentences. */
static mimo_status train_on_others(oracle_candidate *candidate, const synthetic_step *step)
{
    int64_t size = candidate->shape.micro_batch, count = candidate->sentences;
    for (int64_t first = 0; first < size; first += count) {
        if (first > 0)
            MIMO_TRY(walk(candidate, &candidate->train, step, NULL, NULL));
        candidate->first_picture = (candidate->first_picture + count) % size;
        candidate->first_sentence = (candidate->first_sentence + count) % size;
    }
    return MIMO_OK;
}

mimo_status oracle_gradients_finish(oracle_step_result *result, const rank_topology *ranks,
                                    nn_params *const stores[ORACLE_STORES])
{
    const nn_gradients gradients = {.gradient = ranks->gradient,
                                    .world = ranks->world,
                                    .n = ORACLE_STORES,
                                    .stores = {stores[0], stores[1]},
                                    .tp = {ranks->encoder_tp, ranks->llm_tp},
                                    .pp = {NULL, ranks->llm_pp},
                                    .experts = {NULL, ranks->experts.group}};
    MIMO_TRY(mimo_gradient_count(&result->tokens, &result->loss, ranks->gradient));
    return nn_gradients_finish(&result->norm, &gradients, result->tokens);
}

static mimo_status finish(oracle_candidate *candidate, oracle_capture *capture,
                          oracle_step_result *result)
{
    MIMO_TRY(oracle_gradients_finish(result, &candidate->topology->ranks, candidate->stores));
    if (capture) {
        capture_scalar(capture, "loss", result->loss);
        capture_scalar(capture, "tokens", (double)result->tokens);
        capture_scalar(capture, "norm", result->norm);
    }
    return MIMO_OK;
}

mimo_status oracle_candidate_step(oracle_candidate *candidate, const synthetic_step *step,
                                  oracle_capture *capture, oracle_step_result *result)
{
    mimo_gradient_reset(candidate->topology->ranks.gradient);
    for (int store = 0; store < ORACLE_STORES; store++)
        MIMO_TRY(nn_params_zero_grad(candidate->stores[store]));
    MIMO_TRY(walk(candidate, &candidate->train, step, capture, NULL));
    if (MIMO_MUTATED("samples-per-rank"))
        MIMO_TRY(train_on_others(candidate, step));
    return finish(candidate, capture, result);
}

#include "oracle_candidate.h"

#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "nn/params/nn_initial.h"

#include "oracle_mixtures.h"

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
    sizes->adapt_all = true;
    sizes->frozen = frozen;
}

ref_sizes oracle_sizes(const oracle_topology *topology, const oracle_case *shape, uint64_t seed)
{
    int64_t unit = mimo_comm_size(topology->world);
    ref_sizes sizes = synthetic_sizes(unit > topology->shards ? unit : topology->shards, seed);
    oracle_set_adapters(&sizes, topology, shape->micro_batches > 1);
    sizes.experts = topology->experts;
    sizes.top_k = topology->top_k;
    sizes.twins = topology->experts > 1;
    return sizes;
}

static mimo_status create_modules(oracle_candidate *out)
{
    const ref_sizes *sizes = &out->sizes;
    nn_lora_selection adapters;
    encoder_desc encoder = {.tp = out->topology->encoder_tp,
                            .runtime = out->topology->runtime,
                            .seed = sizes->seed,
                            .tokens = sizes->image_tokens,
                            .pictures = out->pictures,
                            .patch_values = sizes->patch_values,
                            .hidden = sizes->hidden,
                            .heads = sizes->heads,
                            .layers = sizes->encoder_layers,
                            .llm_hidden = sizes->hidden,
                            .frozen = sizes->frozen,
                            .adapters = oracle_adapters(&adapters, sizes),
                            .shards = out->topology->shards};
    MIMO_TRY(encoder_create(&out->encoder, &encoder));
    MIMO_TRY(oracle_llm_create(&out->llm, out->topology, sizes, out->sentences, out->replay));
    out->stores[0] = out->encoder.params;
    out->stores[1] = out->llm.params;
    return MIMO_OK;
}

static mimo_status create_tiles(oracle_candidate *out)
{
    const oracle_tiles_desc desc = {.tokens = out->sizes.image_tokens,
                                    .hidden = out->sizes.hidden,
                                    .samples = {out->pictures, out->sentences},
                                    .tensors = out->shape.tensors};
    return oracle_tiles_create(&out->tiles, out->topology, &desc);
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Elements of the largest parameter on this rank. */
static int64_t largest_param(const oracle_candidate *candidate)
{
    int64_t most = 0;
    for (int store = 0; store < ORACLE_STORES; store++)
        most = largest(most, nn_params_largest(candidate->stores[store]));
    return most;
}

static mimo_status reserve_rooms(oracle_candidate *out)
{
    const ref_sizes *sizes = &out->sizes;
    int64_t patches = sizes->image_tokens * out->pictures * sizes->patch_values;
    int64_t positions = sizes->seq * (out->pictures + out->sentences);
    int64_t tile = positions * largest(sizes->hidden, sizes->vocabulary);
    int64_t mixed = oracle_mixtures_elements(&out->llm), rows = oracle_mixtures_rows(&out->llm);
    int64_t room = largest(largest(tile, patches), largest(mixed, 2 * largest_param(out)));
    MIMO_TRY(
        nn_runtime_reserve(out->topology->runtime, &out->patches, patches, sizeof *out->patches));
    MIMO_TRY(mimo_reserve(&out->on_host, room, sizeof *out->on_host));
    MIMO_TRY(mimo_reserve(&out->losses, positions, sizeof *out->losses));
    MIMO_TRY(mimo_reserve(&out->numbers, rows, sizeof *out->numbers));
    MIMO_TRY(create_tiles(out));
    return mimo_reserve(&out->row_of, largest(rows, positions + 6 * sizes->vocabulary),
                        sizeof *out->row_of);
}

mimo_status oracle_candidate_create(oracle_candidate *out, const oracle_topology *topology,
                                    const ref_sizes *sizes, const oracle_case *shape,
                                    oracle_replay *replay)
{
    out->topology = topology;
    out->replay = replay;
    out->sizes = *sizes;
    out->shape = *shape;
    MIMO_TRY(mimo_bridge_samples(&out->first_picture, &out->pictures, topology->bridge, MIMO_SRC,
                                 shape->micro_batch));
    MIMO_TRY(mimo_bridge_samples(&out->first_sentence, &out->sentences, topology->bridge, MIMO_DST,
                                 shape->micro_batch));
    MIMO_TRY(create_modules(out));
    MIMO_TRY(reserve_rooms(out));
    return oracle_candidate_reset(out);
}

void oracle_candidate_destroy(oracle_candidate *candidate)
{
    if (candidate->topology)
        nn_runtime_free(candidate->topology->runtime, candidate->patches);
    mimo_release(candidate->on_host);
    mimo_release(candidate->losses);
    oracle_tiles_destroy(&candidate->tiles);
    mimo_release(candidate->row_of);
    mimo_release(candidate->numbers);
    capture_release(&candidate->sent);
    oracle_llm_destroy(&candidate->llm);
    encoder_destroy(&candidate->encoder);
    memset(candidate, 0, sizeof *candidate);
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
    const oracle_llm *llm = &candidate->llm;
    nn_real *rows = candidate->on_host;
    int64_t hidden = candidate->sizes.hidden;
    for (int64_t i = 0; i < llm->blocks.count && candidate->sizes.twins; i++) {
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

mimo_status oracle_candidate_reset(oracle_candidate *candidate)
{
    for (int store = 0; store < ORACLE_STORES; store++) {
        nn_params *params = candidate->stores[store];
        MIMO_TRY(nn_params_reset(params));
        for (int i = 0; i < nn_params_count(params); i++)
            MIMO_TRY(reset_param(candidate, params, i));
    }
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

static void capture_params(const oracle_candidate *candidate, oracle_capture *capture,
                           const char *prefix, nn_part part)
{
    for (int store = 0; store < ORACLE_STORES; store++)
        for (int i = 0; i < nn_params_count(candidate->stores[store]); i++)
            if (nn_param_has(nn_params_at(candidate->stores[store], i), part))
                capture_param(candidate, capture, prefix, candidate->stores[store], i, part);
}

void oracle_candidate_capture_values(const oracle_candidate *candidate, oracle_capture *capture,
                                     const char *prefix)
{
    capture_params(candidate, capture, prefix, NN_VALUE);
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
    capture_params(candidate, capture, prefix, NN_GRAD);
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

/* ------------------------------------------ captures ----------------------------------------- */

/* A tile "sbh" of samples [first, first + batch) of micro-batch m. Row (s, b) of it is row sample *
 * length + position of the whole. */
typedef struct tile_rows {
    int64_t m, first, batch;
    int64_t local, length;    /* positions on this rank, and all of them */
    const int64_t *positions; /* [local]; NULL: all */
} tile_rows;

typedef struct tile_columns {
    int64_t first, count;
} tile_columns;

/* Capture what is in candidate->on_host. */
static void capture_here(const oracle_candidate *candidate, oracle_capture *capture,
                         const char *name, const tile_rows *rows, tile_columns columns)
{
    int64_t i = 0;
    for (int64_t s = 0; s < rows->local; s++)
        for (int64_t b = 0; b < rows->batch; b++) {
            int64_t sample = rows->m * candidate->shape.micro_batch + rows->first + b;
            int64_t position = rows->positions ? rows->positions[s] : s;
            bool exists = sample < candidate->shape.samples;
            candidate->row_of[i++] = exists ? sample * rows->length + position : -1;
        }
    capture_block block = {name,          candidate->row_of, i,
                           columns.first, columns.count,     candidate->on_host};
    capture_add(capture, &block);
}

/* Capture a tile in the memory where it was computed. */
static void capture_tile(const oracle_candidate *candidate, oracle_capture *capture,
                         const char *name, const tile_rows *rows, tile_columns columns,
                         const nn_real *data)
{
    int64_t bytes = rows->local * rows->batch * columns.count * (int64_t)sizeof *data;
    MIMO_KEEP_FIRST(capture->status,
                    nn_runtime_read(candidate->topology->runtime, candidate->on_host, data, bytes));
    capture_here(candidate, capture, name, rows, columns);
}

static tile_rows encoder_rows(const oracle_candidate *candidate, int64_t m)
{
    int64_t tokens = candidate->sizes.image_tokens;
    return (tile_rows){m, candidate->first_picture, candidate->pictures, tokens, tokens, NULL};
}

/* Positions of the LLM's tiles. NULL is the whole sequence of `local` positions. */
static tile_rows llm_rows(const oracle_candidate *candidate, int64_t m, int64_t local,
                          const int64_t *positions)
{
    int64_t length = positions ? candidate->sizes.seq : local;
    return (tile_rows){m,        candidate->first_sentence, candidate->sentences, local, length,
                       positions};
}

static void capture_encoder(const oracle_candidate *candidate, oracle_capture *capture, int64_t m)
{
    tile_rows rows = encoder_rows(candidate, m);
    tile_columns all = {0, candidate->sizes.hidden};
    const encoder_saved *saved = candidate->encoder.saved;
    nn_real *const *x = saved->blocks.x;
    int64_t layers = candidate->sizes.encoder_layers;
    char name[32];
    capture_tile(candidate, capture, "encoder.input", &rows, all, x[0]);
    for (int64_t i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "encoder.block%d", (int)i);
        capture_tile(candidate, capture, name, &rows, all, x[i + 1]);
    }
    capture_tile(candidate, capture, "encoder.norm", &rows, all, saved->normed);
    capture_tile(candidate, capture, "encoder.rows", &rows, all, candidate->tiles.tile[MIMO_SRC]);
}

static void capture_losses(const oracle_candidate *candidate, oracle_capture *capture,
                           const tile_rows *rows)
{
    const nn_loss_saved *saved = &candidate->llm.saved.loss;
    MIMO_KEEP_FIRST(capture->status,
                    nn_loss_read_rows(&candidate->llm.loss, saved, candidate->losses));
    for (int64_t i = 0; i < saved->rows; i++)
        candidate->on_host[i] = (nn_real)candidate->losses[i];
    capture_here(candidate, capture, "losses", rows, (tile_columns){0, 1});
}

void oracle_candidate_capture_logits(const oracle_candidate *candidate, oracle_capture *capture,
                                     const char *name, int64_t m)
{
    const oracle_llm *llm = &candidate->llm;
    tile_columns logits = {llm->topology->tp_rank * llm->head.out, llm->head.out};
    tile_rows share = llm_rows(candidate, m, llm->share, llm->share_positions);
    capture_tile(candidate, capture, name, &share, logits, llm->saved.logits);
}

static void capture_llm(oracle_candidate *candidate, oracle_capture *capture, int64_t m)
{
    const oracle_llm *llm = &candidate->llm;
    const ref_sizes *sizes = &candidate->sizes;
    nn_real *const *x = llm->saved.blocks.x;
    tile_columns all = {0, sizes->hidden};
    tile_rows image = llm_rows(candidate, m, sizes->image_tokens, NULL);
    tile_rows whole = llm_rows(candidate, m, sizes->seq, NULL);
    tile_rows own = llm_rows(candidate, m, llm->own, llm->own_positions);
    tile_rows share = llm_rows(candidate, m, llm->share, llm->share_positions);
    char name[32];
    capture_tile(candidate, capture, "bridge.rows", &image, all, candidate->tiles.tile[MIMO_DST]);
    capture_tile(candidate, capture, "llm.merged", &whole, all, llm->whole);
    capture_tile(candidate, capture, "llm.input", &own, all, x[0]);
    for (int64_t i = 0; i < sizes->llm_layers; i++) {
        snprintf(name, sizeof name, "llm.block%d", (int)i);
        capture_tile(candidate, capture, name, &own, all, x[i + 1]);
    }
    oracle_mixtures_capture(candidate, capture);
    capture_tile(candidate, capture, "llm.norm", &own, all, llm->saved.normed);
    oracle_candidate_capture_logits(candidate, capture, "llm.logits", m);
    capture_losses(candidate, capture, &share);
}

/* -------------------------------------------- step ------------------------------------------- */

/* This rank's pictures of a micro-batch, from sample-major [P, values] to [P, b, values]. */
static mimo_status load_patches(oracle_candidate *candidate, const synthetic_step *step, int64_t m)
{
    nn_real *to = candidate->on_host;
    int64_t tokens = candidate->sizes.image_tokens, values = candidate->sizes.patch_values;
    int64_t size = candidate->shape.micro_batch;
    for (int64_t p = 0; p < tokens; p++)
        for (int64_t b = 0; b < candidate->pictures; b++) {
            int64_t slot = m * size + (candidate->first_picture + b) % size;
            const double *from = step->patches + (slot * tokens + p) * values;
            for (int64_t i = 0; i < values; i++)
                *to++ = (nn_real)from[i];
        }
    return nn_runtime_write(candidate->topology->runtime, candidate->patches, candidate->on_host,
                            (to - candidate->on_host) * (int64_t)sizeof *to);
}

mimo_status oracle_candidate_forward(oracle_candidate *candidate, const synthetic_step *step,
                                     int64_t m)
{
    double loss_sum;
    int64_t tokens;
    int64_t slot = m * candidate->shape.micro_batch + candidate->first_sentence;
    nn_real **tile = candidate->tiles.tile;
    MIMO_TRY(load_patches(candidate, step, m));
    MIMO_TRY(encoder_forward(&candidate->encoder, 0, tile[MIMO_SRC], candidate->patches));
    MIMO_TRY(oracle_tiles_forward(&candidate->tiles));
    MIMO_TRY(oracle_mixtures_begin(candidate, m));
    MIMO_TRY(oracle_llm_forward(&candidate->llm, tile[MIMO_DST],
                                step->ids + slot * candidate->sizes.seq,
                                step->labels + slot * candidate->sizes.seq, &loss_sum, &tokens));
    return mimo_gradient_add(candidate->topology->gradient, loss_sum, tokens);
}

static mimo_status backward(oracle_candidate *candidate, oracle_capture *capture, int64_t m)
{
    nn_real **tile = candidate->tiles.tile;
    MIMO_TRY(oracle_llm_backward(&candidate->llm, tile[MIMO_DST]));
    MIMO_TRY(oracle_tiles_backward(&candidate->tiles));
    if (capture) {
        tile_rows rows = encoder_rows(candidate, m);
        tile_columns all = {0, candidate->sizes.hidden};
        capture_tile(candidate, capture, "encoder.d_rows", &rows, all, tile[MIMO_SRC]);
    }
    return encoder_backward(&candidate->encoder, 0, tile[MIMO_SRC]);
}

/* A planted bug: each dp rank trains on the samples of all others as well. The encoder's dp ranks
 * take those of the same sentences. */
static mimo_status train_on_others(oracle_candidate *candidate, const synthetic_step *step,
                                   int64_t m)
{
    int64_t size = candidate->shape.micro_batch, count = candidate->sentences;
    for (int64_t first = 0; first < size; first += count) {
        if (first > 0) {
            MIMO_TRY(oracle_candidate_forward(candidate, step, m));
            MIMO_TRY(backward(candidate, NULL, m));
        }
        candidate->first_picture = (candidate->first_picture + count) % size;
        candidate->first_sentence = (candidate->first_sentence + count) % size;
    }
    return MIMO_OK;
}

static mimo_status finish(oracle_candidate *candidate, oracle_capture *capture,
                          oracle_step_result *result)
{
    const oracle_topology *topology = candidate->topology;
    const nn_gradients gradients = {.gradient = topology->gradient,
                                    .world = topology->world,
                                    .n = ORACLE_STORES,
                                    .stores = {candidate->stores[0], candidate->stores[1]},
                                    .tp = {topology->encoder_tp, topology->tp},
                                    .experts = {NULL, topology->group}};
    MIMO_TRY(mimo_gradient_count(&result->tokens, &result->loss, topology->gradient));
    MIMO_TRY(nn_gradients_finish(&result->norm, &gradients, result->tokens));
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
    mimo_gradient_reset(candidate->topology->gradient);
    for (int store = 0; store < ORACLE_STORES; store++)
        MIMO_TRY(nn_params_zero_grad(candidate->stores[store]));
    for (int64_t m = 0; m < candidate->shape.micro_batches; m++) {
        MIMO_TRY(oracle_candidate_forward(candidate, step, m));
        if (capture) {
            capture_encoder(candidate, capture, m);
            capture_llm(candidate, capture, m);
        }
        MIMO_TRY(backward(candidate, capture, m));
        if (MIMO_MUTATED("samples-per-rank"))
            MIMO_TRY(train_on_others(candidate, step, m));
    }
    return finish(candidate, capture, result);
}

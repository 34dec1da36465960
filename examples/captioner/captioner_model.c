#include "captioner_model.h"

#include <inttypes.h>

#include "core/check.h"
#include "nn/nn_ops.h"

/* Everything that must fit, in one place and before anything is built, so that a wrong flag is
 * answered in the words of the flags. */
static mimo_status check_desc(const model_desc *desc, const rank_topology *topology)
{
    int64_t encoder_tp = mimo_grid_dim_size(topology->encoder, "tp");
    int64_t llm_tp = mimo_grid_dim_size(topology->llm, "tp");
    int64_t heads = desc->heads;
    MIMO_CHECK(desc->side % PATCH == 0 && desc->side > 0, MIMO_ERR_SHAPE,
               "--image-size %" PRId64 " is not a multiple of the patch, %d pixels", desc->side,
               PATCH);
    MIMO_CHECK(desc->hidden % heads == 0, MIMO_ERR_SHAPE,
               "hidden size %" PRId64 " does not divide into %" PRId64 " heads", desc->hidden,
               heads);
    MIMO_CHECK(heads % encoder_tp == 0, MIMO_ERR_SHAPE,
               "%" PRId64 " heads do not divide over the encoder's tp=%" PRId64, heads, encoder_tp);
    MIMO_CHECK(heads % llm_tp == 0, MIMO_ERR_SHAPE,
               "%" PRId64 " heads do not divide over the LLM's tp=%" PRId64, heads, llm_tp);
    MIMO_CHECK(PADDED_VOCABULARY % llm_tp == 0, MIMO_ERR_SHAPE,
               "the vocabulary of %d does not divide over the LLM's tp=%" PRId64, PADDED_VOCABULARY,
               llm_tp);
    MIMO_CHECK(topology->llm_cp == 1 || desc->seq % (2 * topology->llm_cp) == 0, MIMO_ERR_SHAPE,
               "--seq %" PRId64 " is not a multiple of 2*cp = %" PRId64, desc->seq,
               2 * topology->llm_cp);
    return MIMO_OK;
}

static mimo_status create_modules(captioner_model *out)
{
    const model_desc *desc = &out->desc;
    const rank_topology *topology = out->topology;
    encoder_desc encoder = {.tp = topology->encoder_tp,
                            .runtime = desc->runtime,
                            .seed = desc->seed,
                            .tokens = out->batch.tokens,
                            .pictures = out->batch.pictures,
                            .patch_values = PATCH_VALUES,
                            .hidden = desc->hidden,
                            .heads = desc->heads,
                            .layers = desc->encoder_layers,
                            .llm_hidden = desc->hidden};
    MIMO_TRY(encoder_create(&out->encoder, &encoder));
    language_desc language = {.tp = topology->llm_tp,
                              .cp = topology->llm_cp_group,
                              .runtime = desc->runtime,
                              .partition = topology->partition,
                              .seed = desc->seed,
                              .image_tokens = out->batch.tokens,
                              .seq = desc->seq,
                              .sentences = out->batch.sentences,
                              .hidden = desc->hidden,
                              .heads = desc->heads,
                              .layers = desc->llm_layers};
    return language_create(&out->language, &language);
}

static mimo_status reserve_model(captioner_model *out)
{
    const model_desc *desc = &out->desc;
    MIMO_TRY(batch_create(&out->batch, out->topology, desc->side, desc->seq, desc->micro_batch));
    MIMO_TRY(create_modules(out));
    const nn_runtime *runtime = desc->runtime;
    int64_t rows = out->batch.tokens * out->batch.pictures;
    int64_t src = rows * desc->hidden,
            dst = out->batch.tokens * out->batch.sentences * desc->hidden;
    if (nn_runtime_or_host(runtime)->memory != MIMO_MEMORY_HOST)
        MIMO_TRY(nn_runtime_reserve(runtime, &out->patches, rows * PATCH_VALUES, sizeof(nn_real)));
    MIMO_TRY(nn_runtime_reserve(runtime, &out->src_tile, src, sizeof *out->src_tile));
    MIMO_TRY(nn_runtime_reserve(runtime, &out->dst_tile, dst, sizeof *out->dst_tile));
    MIMO_TRY(nn_runtime_reserve(runtime, &out->src_half, src, sizeof *out->src_half));
    return nn_runtime_reserve(runtime, &out->dst_half, dst, sizeof *out->dst_half);
}

mimo_status model_create(captioner_model *out, const rank_topology *topology,
                         const model_desc *desc)
{
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    MIMO_TRY(check_desc(desc, topology)); /* the same answer on every rank */
    out->desc = *desc;
    out->topology = topology;
    MIMO_TRY(mimo_comm_agree(topology->world, reserve_model(out)));
    batch.batch = out->batch.total; /* told, so that on a device calls only enqueue */
    MIMO_TRY(mimo_bridge_update(topology->bridge, &batch, 1));
    return mimo_comm_agree(topology->world, language_connect(&out->language));
}

void model_destroy(captioner_model *model)
{
    nn_runtime_free(model->desc.runtime, model->patches);
    nn_runtime_free(model->desc.runtime, model->src_half);
    nn_runtime_free(model->desc.runtime, model->dst_half);
    nn_runtime_free(model->desc.runtime, model->src_tile);
    nn_runtime_free(model->desc.runtime, model->dst_tile);
    language_destroy(&model->language);
    encoder_destroy(&model->encoder);
    batch_destroy(&model->batch);
    *model = (captioner_model){0};
}

/* The tiles of both sides as the bridge sees them, in f32 or in bf16. */
static void view_tiles(captioner_model *model, mimo_tensor *src, mimo_tensor *dst)
{
    bool half = model->desc.bridge_dtype == MIMO_BF16;
    const micro_batch *batch = &model->batch;
    int64_t hidden = model->desc.hidden;
    void *src_data = half ? (void *)model->src_half : (void *)model->src_tile;
    void *dst_data = half ? (void *)model->dst_half : (void *)model->dst_tile;
    mimo_dtype dtype = model->desc.bridge_dtype;
    *src = mimo_tensor_3d(src_data, dtype, "sbh", batch->tokens, batch->pictures, hidden);
    *dst = mimo_tensor_3d(dst_data, dtype, "sbh", batch->tokens, batch->sentences, hidden);
    src->memory = dst->memory = nn_runtime_or_host(model->desc.runtime)->memory;
}

/* Between a side's tile and the one that crosses the bridge, where that is in bf16. */
static mimo_status to_bridge(const captioner_model *model, uint16_t *half, const nn_real *tile,
                             int64_t samples)
{
    const nn_runtime *runtime = nn_runtime_or_host(model->desc.runtime);
    int64_t count = model->batch.tokens * model->desc.hidden * samples;
    return model->desc.bridge_dtype == MIMO_BF16 ? runtime->ops->to_bf16(runtime, half, tile, count)
                                                 : MIMO_OK;
}

static mimo_status from_bridge(const captioner_model *model, nn_real *tile, const uint16_t *half,
                               int64_t samples)
{
    const nn_runtime *runtime = nn_runtime_or_host(model->desc.runtime);
    int64_t count = model->batch.tokens * model->desc.hidden * samples;
    return model->desc.bridge_dtype == MIMO_BF16
               ? runtime->ops->from_bf16(runtime, tile, half, count)
               : MIMO_OK;
}

/* The patches where the encoder reads them. */
static mimo_status bring_patches(captioner_model *model, const nn_real **out)
{
    const micro_batch *batch = &model->batch;
    int64_t count = batch->tokens * batch->pictures * PATCH_VALUES;
    *out = model->patches ? model->patches : batch->patches;
    return model->patches ? nn_runtime_write(model->desc.runtime, model->patches, batch->patches,
                                             count * (int64_t)sizeof *batch->patches)
                          : MIMO_OK;
}

mimo_status model_forward(captioner_model *model, double *loss_sum, int64_t *tokens)
{
    mimo_tensor src, dst;
    const nn_real *patches;
    const micro_batch *batch = &model->batch;
    mimo_stream stream = nn_runtime_or_host(model->desc.runtime)->stream;
    view_tiles(model, &src, &dst);

    mimo_status read = language_read(&model->language, batch);
    MIMO_TRY(mimo_comm_agree(model->topology->world, read));
    MIMO_TRY(bring_patches(model, &patches));
    MIMO_TRY(encoder_forward(&model->encoder, model->src_tile, patches));
    MIMO_TRY(to_bridge(model, model->src_half, model->src_tile, batch->pictures));
    MIMO_TRY(mimo_bridge_forward(model->topology->bridge, &dst, &src, 1, stream));
    MIMO_TRY(from_bridge(model, model->dst_tile, model->dst_half, batch->sentences));
    return language_forward(&model->language, model->dst_tile, batch, loss_sum, tokens);
}

mimo_status model_backward(captioner_model *model)
{
    mimo_tensor src, dst;
    const micro_batch *batch = &model->batch;
    mimo_stream stream = nn_runtime_or_host(model->desc.runtime)->stream;
    view_tiles(model, &src, &dst);

    MIMO_TRY(language_backward(&model->language, model->dst_tile));
    MIMO_TRY(to_bridge(model, model->dst_half, model->dst_tile, batch->sentences));
    MIMO_TRY(mimo_bridge_backward(model->topology->bridge, &src, &dst, 1, stream));
    MIMO_TRY(from_bridge(model, model->src_tile, model->src_half, batch->pictures));
    return encoder_backward(&model->encoder, model->src_tile);
}

#include "captioner/model/captioner_model.h"

#include <inttypes.h>

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"
#include "nn/ops/nn_ops.h"

/* What the fixed order of additions asks for beyond that. */
static mimo_status check_order(const model_desc *desc, const rank_topology *topology)
{
    int64_t shards = desc->shards, chunks = desc->pairs > 1 ? 2 * desc->pairs : 1;
    CHECK(desc->heads % shards == 0, MIMO_ERR_SHAPE,
          "--same-bits with V %" PRId64 ": %" PRId64 " heads do not divide into %" PRId64 " parts",
          shards, desc->heads, shards);
    CHECK(PADDED_VOCABULARY % shards == 0, MIMO_ERR_SHAPE,
          "--same-bits with V %" PRId64 ": the vocabulary of %d does not divide into %" PRId64
          " parts",
          shards, PADDED_VOCABULARY, shards);
    CHECK(desc->seq % chunks == 0, MIMO_ERR_SHAPE,
          "--same-bits with C %" PRId64 ": --seq %" PRId64 " is not a multiple of 2*C = %" PRId64,
          desc->pairs, desc->seq, chunks);
    TRY(nn_order_check_ranks("the encoder's tp", mimo_grid_dim_size(topology->encoder, "tp"),
                             shards));
    TRY(nn_order_check_ranks("the LLM's tp", mimo_grid_dim_size(topology->llm, "tp"), shards));
    return nn_order_check_ranks("the LLM's cp", topology->llm_cp, desc->pairs);
}

/* Everything that must fit, in one place and before anything is built, so that a wrong flag is
 * answered in the words of the flags. */
static mimo_status check_desc(const model_desc *desc, const rank_topology *topology)
{
    int64_t encoder_tp = mimo_grid_dim_size(topology->encoder, "tp");
    int64_t llm_tp = mimo_grid_dim_size(topology->llm, "tp");
    int64_t heads = desc->heads;
    CHECK(desc->side % PATCH == 0 && desc->side > 0, MIMO_ERR_SHAPE,
          "--image-size %" PRId64 " is not a multiple of the patch, %d pixels", desc->side, PATCH);
    CHECK(desc->hidden % heads == 0, MIMO_ERR_SHAPE,
          "hidden size %" PRId64 " does not divide into %" PRId64 " heads", desc->hidden, heads);
    CHECK(heads % encoder_tp == 0, MIMO_ERR_SHAPE,
          "%" PRId64 " heads do not divide over the encoder's tp=%" PRId64, heads, encoder_tp);
    CHECK(heads % llm_tp == 0, MIMO_ERR_SHAPE,
          "%" PRId64 " heads do not divide over the LLM's tp=%" PRId64, heads, llm_tp);
    CHECK(PADDED_VOCABULARY % llm_tp == 0, MIMO_ERR_SHAPE,
          "the vocabulary of %d does not divide over the LLM's tp=%" PRId64, PADDED_VOCABULARY,
          llm_tp);
    CHECK(!topology->sp || desc->seq / topology->llm_cp % llm_tp == 0, MIMO_ERR_SHAPE,
          "--sp: the %" PRId64 " positions of a cp rank do not divide over the LLM's tp=%" PRId64,
          desc->seq / topology->llm_cp, llm_tp);
    CHECK(topology->llm_cp == 1 || desc->seq % (2 * topology->llm_cp) == 0, MIMO_ERR_SHAPE,
          "--seq %" PRId64 " is not a multiple of 2*cp = %" PRId64, desc->seq,
          2 * topology->llm_cp);
    return desc->shards > 0 ? check_order(desc, topology) : MIMO_OK;
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
                            .llm_hidden = desc->hidden,
                            .frozen = desc->adapters != NULL,
                            .adapters = desc->adapters,
                            .shards = desc->shards,
                            .recompute = desc->recompute};
    TRY(encoder_create(&out->encoder, &encoder));
    language_desc language = {.tp = topology->llm_tp,
                              .cp = topology->llm_cp_group,
                              .runtime = desc->runtime,
                              .partition = topology->partition,
                              .sp = topology->sp,
                              .seed = desc->seed,
                              .image_tokens = out->batch.tokens,
                              .seq = desc->seq,
                              .sentences = out->batch.sentences,
                              .hidden = desc->hidden,
                              .heads = desc->heads,
                              .layers = desc->llm_layers,
                              .frozen = desc->adapters != NULL,
                              .adapters = desc->adapters,
                              .shards = desc->shards,
                              .pairs = desc->pairs,
                              .recompute = desc->recompute};
    return language_create(&out->language, &language);
}

/* The bridge takes rows sample after sample, the encoder gives them position after position. A
 * merge of samples that are all image rows puts them in the bridge's order, and its split back. */
static mimo_status create_order(captioner_model *out)
{
    const micro_batch *batch = &out->batch;
    int64_t image = 0, rows = batch->pictures * batch->tokens, *ids;
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    desc.modalities = 1;
    desc.special = &image;
    desc.memory = nn_runtime_or_host(out->desc.runtime)->memory;
    TRY(mimo_alignment_create(&out->order, &desc));
    TRY(memory_reserve(&ids, rows, sizeof *ids)); /* zeros: `image` */
    mimo_tensor view = mimo_tensor_2d(ids, MIMO_I64, "bs", batch->pictures, batch->tokens);
    mimo_status status =
        mimo_alignment_update(out->order, &view, nn_runtime_or_host(out->desc.runtime)->stream);
    memory_release(ids);
    return status;
}

/* Every sentence begins with its image rows, also that of a masked sample. */
static mimo_status list_spans(captioner_model *out)
{
    const micro_batch *batch = &out->batch;
    TRY(memory_reserve(&out->spans, batch->sentences, sizeof *out->spans));
    for (int64_t i = 0; i < batch->sentences; i++)
        out->spans[i] = (mimo_span){.sample = batch->first_sentence + i, .length = batch->tokens};
    return MIMO_OK;
}

static mimo_status reserve_model(captioner_model *out)
{
    const model_desc *desc = &out->desc;
    TRY(batch_create(&out->batch, out->topology, desc->side, desc->seq, desc->micro_batch));
    TRY(create_modules(out));
    TRY(language_text_create(&out->text, &out->language));
    const nn_runtime *runtime = desc->runtime;
    int64_t rows = out->batch.tokens * out->batch.pictures;
    int64_t src = rows * desc->hidden, dst = out->language.own_rows * desc->hidden;
    TRY(create_order(out));
    TRY(list_spans(out));
    if (nn_runtime_or_host(runtime)->memory != MIMO_MEMORY_HOST)
        TRY(nn_runtime_reserve(runtime, &out->patches, rows * PATCH_VALUES, sizeof(nn_real)));
    TRY(nn_runtime_reserve(runtime, &out->encoded, src, sizeof *out->encoded));
    TRY(nn_runtime_reserve(runtime, &out->src_tile, src, sizeof *out->src_tile));
    TRY(nn_runtime_reserve(runtime, &out->src_half, src, sizeof *out->src_half));
    return nn_runtime_reserve(runtime, &out->dst_half, dst, sizeof *out->dst_half);
}

static mimo_status find_owners(captioner_model *out)
{
    const rank_topology *topology = out->topology;
    const nn_owners_desc stores[MODEL_STORES] = {
        {.params = out->encoder.params, .comm = topology->world, .grid = topology->encoder},
        {.params = out->language.params, .comm = topology->world, .grid = topology->llm}};
    for (int s = 0; s < MODEL_STORES; s++)
        TRY(nn_owners_init(&out->owners[s], &stores[s]));
    return MIMO_OK;
}

mimo_status model_create(captioner_model *out, const rank_topology *topology,
                         const model_desc *desc)
{
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    TRY(check_desc(desc, topology)); /* the same answer on every rank */
    out->desc = *desc;
    out->topology = topology;
    TRY(mimo_comm_agree(topology->world, reserve_model(out)));
    TRY(find_owners(out));
    batch.batch = out->batch.total;
    batch.ragged = true;
    batch.spans = out->spans;
    batch.span_count = out->batch.sentences;
    TRY(mimo_bridge_update(topology->bridge, &batch, 1));
    return mimo_comm_agree(topology->world, language_connect(&out->language));
}

void model_destroy(captioner_model *model)
{
    nn_runtime_free(model->desc.runtime, model->patches);
    nn_runtime_free(model->desc.runtime, model->src_half);
    nn_runtime_free(model->desc.runtime, model->dst_half);
    nn_runtime_free(model->desc.runtime, model->src_tile);
    nn_runtime_free(model->desc.runtime, model->encoded);
    mimo_alignment_destroy(model->order);
    memory_release(model->spans);
    language_text_destroy(&model->text);
    for (int s = 0; s < MODEL_STORES; s++)
        nn_owners_release(&model->owners[s]);
    language_destroy(&model->language);
    encoder_destroy(&model->encoder);
    batch_destroy(&model->batch);
    *model = (captioner_model){0};
}

/* The tiles of both sides as the bridge sees them, in f32 (the LLM's at `dst_data`) or in bf16. */
static void view_tiles(captioner_model *model, mimo_tensor *src, mimo_tensor *dst,
                       nn_real *dst_data)
{
    mimo_dtype dtype = model->desc.bridge_dtype;
    bool half = dtype == MIMO_BF16;
    const micro_batch *batch = &model->batch;
    int64_t hidden = model->desc.hidden, own = model->language.own;
    *src = mimo_tensor_2d(half ? (void *)model->src_half : (void *)model->src_tile, dtype, "th",
                          batch->pictures * batch->tokens, hidden);
    *dst = mimo_tensor_3d(half ? (void *)model->dst_half : (void *)dst_data, dtype, "sbh", own,
                          batch->sentences, hidden);
    src->memory = dst->memory = nn_runtime_or_host(model->desc.runtime)->memory;
}

/* The encoder's rows in both orders, and no text. */
typedef struct order_views {
    mimo_tensor encoded, tile, text;
} order_views;

static order_views view_order(const captioner_model *model)
{
    const micro_batch *batch = &model->batch;
    int64_t hidden = model->desc.hidden;
    order_views views;
    views.encoded =
        mimo_tensor_3d(model->encoded, NN_DTYPE, "sbh", batch->tokens, batch->pictures, hidden);
    views.tile =
        mimo_tensor_3d(model->src_tile, NN_DTYPE, "bsh", batch->pictures, batch->tokens, hidden);
    views.text = mimo_tensor_2d(NULL, NN_DTYPE, "th", 0, hidden);
    views.encoded.memory = views.tile.memory = views.text.memory =
        nn_runtime_or_host(model->desc.runtime)->memory;
    return views;
}

/* Between a side's tile and the one that crosses the bridge, where that is in bf16. */
static mimo_status to_bridge(const captioner_model *model, uint16_t *half, const nn_real *tile,
                             int64_t rows)
{
    const nn_runtime *runtime = nn_runtime_or_host(model->desc.runtime);
    return model->desc.bridge_dtype == MIMO_BF16
               ? runtime->ops->to_bf16(runtime, half, tile, rows * model->desc.hidden)
               : MIMO_OK;
}

static mimo_status from_bridge(const captioner_model *model, nn_real *tile, const uint16_t *half,
                               int64_t rows)
{
    const nn_runtime *runtime = nn_runtime_or_host(model->desc.runtime);
    return model->desc.bridge_dtype == MIMO_BF16
               ? runtime->ops->from_bf16(runtime, tile, half, rows * model->desc.hidden)
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

mimo_status model_read(captioner_model *model)
{
    return mimo_comm_agree(model->topology->world,
                           language_read(&model->language, &model->text, &model->batch));
}

mimo_status model_forward(captioner_model *model, const language_text *text)
{
    mimo_tensor src, dst;
    const nn_real *patches;
    const micro_batch *batch = &model->batch;
    mimo_stream stream = nn_runtime_or_host(model->desc.runtime)->stream;
    order_views order = view_order(model);
    nn_real *tile = language_input(&model->language, 0);
    view_tiles(model, &src, &dst, tile);

    TRY(bring_patches(model, &patches));
    TRY(encoder_forward(&model->encoder, model->encoded, patches));
    TRY(mimo_alignment_merge(model->order, &order.tile, &order.encoded, &order.text, stream));
    TRY(to_bridge(model, model->src_half, model->src_tile, batch->pictures * batch->tokens));
    TRY(mimo_bridge_forward(model->topology->bridge, &dst, &src, 1, stream));
    TRY(from_bridge(model, tile, model->dst_half, model->language.own_rows));
    return language_forward(&model->language, text, 0);
}

mimo_status model_backward(captioner_model *model, const language_text *text)
{
    mimo_tensor src, dst;
    nn_real *d_tile = language_input(&model->language, 0);
    const micro_batch *batch = &model->batch;
    mimo_stream stream = nn_runtime_or_host(model->desc.runtime)->stream;
    order_views order = view_order(model);
    int64_t rows = batch->pictures * batch->tokens, hidden = model->desc.hidden;

    TRY(language_backward(&model->language, text, 0));
    if (!nn_params_trainable(model->encoder.params)) /* the same on every rank */
        return MIMO_OK;
    view_tiles(model, &src, &dst, d_tile);
    TRY(to_bridge(model, model->dst_half, d_tile, model->language.own_rows));
    TRY(mimo_bridge_backward(model->topology->bridge, &src, &dst, 1, stream));
    TRY(from_bridge(model, model->src_tile, model->src_half, rows));
    TRY(nn_plain_zeros(nn_runtime_or_host(model->desc.runtime), model->src_tile, rows * hidden));
    TRY(mimo_alignment_split(model->order, &order.encoded, &order.text, &order.tile, stream));
    return encoder_backward(&model->encoder, model->encoded);
}

model_elements model_count_elements(const captioner_model *model)
{
    model_elements count = {0, 0};
    const nn_params *stores[] = {model->encoder.params, model->language.params};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < nn_params_count(stores[s]); i++) {
            const nn_param *param = nn_params_at(stores[s], i);
            int64_t elements = nn_placement_elements(&param->placement);
            count.all += elements;
            count.trained += param->frozen ? 0 : elements;
        }
    return count;
}

model_saved model_count_saved(const captioner_model *model)
{
    const vision_encoder *encoder = &model->encoder;
    const language_model *language = &model->language;
    return (model_saved){encoder->saved.room.bytes + language->saved[0].room.bytes,
                         encoder->blocks.room.bytes + language->blocks.room.bytes};
}

static mimo_status visit_adapters(captioner_model *model, nn_lora_visit *visit)
{
    language_model *language = &model->language;
    TRY(encoder_visit(&model->encoder, visit));
    TRY(nn_stack_visit(&language->blocks, visit));
    return language->last ? nn_linear_visit(&language->head, visit) : MIMO_OK;
}

static mimo_status unmerge_merged(nn_lora *lora, int weight)
{
    return lora->unmerged ? nn_lora_unmerge(lora, weight) : MIMO_OK;
}

mimo_status model_merge(captioner_model *model)
{
    return visit_adapters(model, nn_lora_merge);
}

mimo_status model_unmerge(captioner_model *model)
{
    return visit_adapters(model, unmerge_merged);
}

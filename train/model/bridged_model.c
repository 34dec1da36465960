#include "train/model/bridged_model.h"

#include <inttypes.h>

#include "schedule/schedule_types.h"
#include "train/model/layer_widths.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/nn/ops/nn_ops.h"

/* What the fixed order of additions asks for beyond that. */
static mimo_status check_order(const model_desc *desc, const rank_topology *topology)
{
    int64_t shards = desc->shards, chunks = desc->pairs > 1 ? 2 * desc->pairs : 1;
    CHECK(desc->heads % shards == 0, MIMO_ERR_SHAPE,
          "--same-bits with V %" PRId64 ": %" PRId64 " heads do not divide into %" PRId64 " parts",
          shards, desc->heads, shards);
    CHECK(desc->words.predicted % shards == 0, MIMO_ERR_SHAPE,
          "--same-bits with V %" PRId64 ": the vocabulary of %" PRId64
          " does not divide into %" PRId64 " parts",
          shards, desc->words.predicted, shards);
    CHECK(desc->seq % chunks == 0, MIMO_ERR_SHAPE,
          "--same-bits with C %" PRId64 ": --seq %" PRId64 " is not a multiple of 2*C = %" PRId64,
          desc->pairs, desc->seq, chunks);
    TRY(nn_order_check_ranks("the encoder's tp", mimo_grid_dim_size(topology->encoder, "tp"),
                             shards));
    TRY(nn_order_check_ranks("the LLM's tp", mimo_grid_dim_size(topology->llm, "tp"), shards));
    return nn_order_check_ranks("the LLM's cp", topology->llm_cp, desc->pairs);
}

/* Blocks that a mixture may stand in have an MLP, which it replaces. */
static mimo_status check_mixtures(const layer_layout *layout)
{
    int64_t items = layout->items;
    CHECK(layer_layout_mixtures(items) > 0, MIMO_ERR_SHAPE,
          "--experts: blocks 1, 3, ... are mixtures, and the LLM has %" PRId64, items);
    for (int64_t i = 0; i < items; i++)
        CHECK(!layer_layout_mixes(i) || layer_layout_kind(layout, i) == &nn_block_dense,
              MIMO_ERR_ARGUMENT,
              "--experts: blocks 1, 3, ... are mixtures, and block %" PRId64
              " of --llm-pattern is no [*-]",
              i);
    return MIMO_OK;
}

static mimo_status check_experts(const model_desc *desc, const rank_topology *topology)
{
    const nn_expert_coords *coords = &topology->experts.coords;
    int64_t width = 4 * desc->hidden;
    CHECK(desc->experts % coords->ep_size == 0, MIMO_ERR_SHAPE,
          "--experts %" PRId64 ",%" PRId64 ": they do not divide over ep=%d", desc->experts,
          desc->top_k, coords->ep_size);
    CHECK(width % desc->top_k == 0, MIMO_ERR_SHAPE,
          "--experts %" PRId64 ",%" PRId64 ": the inner width of %" PRId64
          " does not divide over the %" PRId64 " experts of a token",
          desc->experts, desc->top_k, width, desc->top_k);
    CHECK(width / desc->top_k % coords->etp_size == 0, MIMO_ERR_SHAPE,
          "--experts %" PRId64 ",%" PRId64 ": the width of %" PRId64
          " inside an expert does not divide over etp=%d",
          desc->experts, desc->top_k, width / desc->top_k, coords->etp_size);
    CHECK(desc->shards == 0 || coords->etp_size == 1, MIMO_ERR_UNSUPPORTED,
          "--experts: same bits need etp=1, not etp=%d", coords->etp_size);
    CHECK(desc->shards == 0 || (coords->ep_size & (coords->ep_size - 1)) == 0, MIMO_ERR_UNSUPPORTED,
          "--experts: same bits need an ep that is a power of two, not ep=%d", coords->ep_size);
    return MIMO_OK;
}

/* Everything that must fit, in one place and before anything is built, so that a wrong flag is
 * answered in the words of the flags. */
static mimo_status check_desc(const model_desc *desc, const rank_topology *topology)
{
    int64_t encoder_tp = mimo_grid_dim_size(topology->encoder, "tp");
    int64_t llm_tp = mimo_grid_dim_size(topology->llm, "tp");
    int64_t heads = desc->heads;
    /* A device can't load kernels or shapes of products within a walk (model_pass.c, warm-up), and
     * experts have any number of rows. */
    CHECK(topology->stages == 1 || desc->experts == 0 ||
              nn_runtime_or_host(desc->runtime)->memory == MIMO_MEMORY_HOST,
          MIMO_ERR_UNSUPPORTED,
          "--experts with pp=%d: stages of a pipeline have experts on the host so far, not with "
          "--device cuda",
          topology->stages);
    CHECK(topology->stages > 1 || desc->schedule.chunks <= 1, MIMO_ERR_ARGUMENT,
          "--schedule interleaved:%" PRId64 " cuts stages, and --llm has none: give it pp",
          desc->schedule.chunks);
    CHECK(desc->hidden % heads == 0, MIMO_ERR_SHAPE,
          "hidden size %" PRId64 " does not divide into %" PRId64 " heads", desc->hidden, heads);
    CHECK(heads % encoder_tp == 0, MIMO_ERR_SHAPE,
          "%" PRId64 " heads do not divide over the encoder's tp=%" PRId64, heads, encoder_tp);
    CHECK(heads % llm_tp == 0, MIMO_ERR_SHAPE,
          "%" PRId64 " heads do not divide over the LLM's tp=%" PRId64, heads, llm_tp);
    CHECK(desc->words.predicted % llm_tp == 0, MIMO_ERR_SHAPE,
          "the vocabulary of %" PRId64 " does not divide over the LLM's tp=%" PRId64,
          desc->words.predicted, llm_tp);
    CHECK(!topology->sp || desc->seq / topology->llm_cp % llm_tp == 0, MIMO_ERR_SHAPE,
          "--sp: the %" PRId64 " positions of a cp rank do not divide over the LLM's tp=%" PRId64,
          desc->seq / topology->llm_cp, llm_tp);
    CHECK(topology->llm_cp == 1 || desc->seq % (2 * topology->llm_cp) == 0, MIMO_ERR_SHAPE,
          "--seq %" PRId64 " is not a multiple of 2*cp = %" PRId64, desc->seq,
          2 * topology->llm_cp);
    if (desc->experts > 0)
        TRY(check_experts(desc, topology));
    return desc->shards > 0 ? check_order(desc, topology) : MIMO_OK;
}

/* What training needs at once, of saved states and of slots for encoder groups. */
typedef struct model_needs {
    int64_t *states; /* [chunks of a stage] */
    int64_t slots;
} model_needs;

static mimo_status count_needs(model_needs *out, const bridged_model *model)
{
    mimo_schedule *schedule;
    mimo_schedule_desc sizes;
    const rank_topology *topology = model->topology;
    const schedule_need need = {
        .stages = topology->stages, .micro_batches = model->desc.micro_batches, .backward = true};
    TRY(schedule_choose(&schedule, &sizes, &model->desc.schedule, &need));
    mimo_status status = memory_reserve(&out->states, sizes.chunks, sizeof *out->states);
    if (status == MIMO_OK)
        status = mimo_schedule_states(out->states, schedule, topology->stage);
    out->slots = sizes.encoder_alive;
    mimo_schedule_destroy(schedule);
    return status;
}

static mimo_status create_encoder(bridged_model *out, const model_needs *needs)
{
    const model_desc *desc = &out->desc;
    encoder_desc encoder = {.tp = out->topology->encoder_tp,
                            .runtime = desc->runtime,
                            .seed = desc->seed,
                            .states = needs->slots,
                            .tokens = desc->tokens,
                            .pictures = out->batch.pictures,
                            .patch_values = desc->patch_values,
                            .hidden = desc->hidden,
                            .heads = desc->heads,
                            .layers = desc->encoder_layers,
                            .llm_hidden = desc->hidden,
                            .frozen = desc->adapters != NULL,
                            .adapters = desc->adapters,
                            .shards = desc->shards,
                            .recompute = desc->recompute};
    return encoder_create(&out->encoder, &encoder);
}

/* Whether rows are written straight into the experts' tiles: on devices, where they would go by way
 * of the library's memory otherwise. Blocks that are recomputed have their tiles elsewhere. */
static bool pushes_rows(const bridged_model *model)
{
    const model_desc *desc = &model->desc;
    return desc->experts > 0 && !desc->recompute &&
           nn_runtime_or_host(desc->runtime)->memory != MIMO_MEMORY_HOST;
}

static mimo_status create_language(bridged_model *out, const model_needs *needs)
{
    const model_desc *desc = &out->desc;
    const rank_topology *topology = out->topology;
    nn_mixture mixture = {0};
    if (out->dispatch)
        mixture = mixture_of(out->dispatch, 4 * desc->hidden, desc->top_k);
    mixture.capacity = desc->capacity;
    language_desc language = {.tp = topology->llm_tp,
                              .cp = topology->llm_cp_group,
                              .stage = topology->stage,
                              .stages = topology->stages,
                              .layout = &out->layout,
                              .states = needs->states,
                              .runtime = desc->runtime,
                              .partition = topology->partition,
                              .sp = topology->sp,
                              .seed = desc->seed,
                              .words = desc->words,
                              .image_tokens = desc->most_images > 0 ? 0 : desc->tokens,
                              .seq = desc->seq,
                              .sentences = out->batch.sentences,
                              .hidden = desc->hidden,
                              .heads = desc->heads,
                              .frozen = desc->adapters != NULL,
                              .adapters = desc->adapters,
                              .mixture = out->dispatch ? &mixture : NULL,
                              .experts = topology->experts.coords,
                              .pushes = pushes_rows(out) ? topology->experts.group : NULL,
                              .shards = desc->shards,
                              .pairs = desc->pairs,
                              .recompute = desc->recompute,
                              .pairs_steps = desc->schedule.overlap};
    return language_create(&out->language, &language);
}

static mimo_status create_modules(bridged_model *out)
{
    model_needs needs = {0};
    mimo_status status = count_needs(&needs, out);
    if (status == MIMO_OK)
        status = create_encoder(out, &needs);
    if (status == MIMO_OK)
        status = create_language(out, &needs);
    memory_release(needs.states);
    return status;
}

/* Local. */
static mimo_status reserve_model(bridged_model *out)
{
    const model_desc *desc = &out->desc;
    const stage_streams_desc streams = {.runtime = desc->runtime,
                                        .stages = out->topology->stages > 1,
                                        .exchanges = desc->schedule.overlap};
    TRY(stage_streams_create(&out->streams, &streams));
    TRY(create_modules(out));
    const image_rows_desc images = {.topology = out->topology,
                                    .runtime = desc->runtime,
                                    .encoder = &out->encoder,
                                    .batch = &out->batch,
                                    .dtype = desc->bridge_dtype,
                                    .hidden = desc->hidden,
                                    .own = out->language.own,
                                    .streams = &out->streams};
    return image_rows_create(&out->images, &images);
}

static mimo_status connect_model(bridged_model *out)
{
    const stage_hops_desc hops = {.world = out->topology->world,
                                  .grid = out->topology->llm,
                                  .rows = out->language.own_rows,
                                  .width = out->desc.hidden,
                                  .ring = out->desc.schedule.chunks > 1,
                                  .streams = &out->streams};
    if (out->desc.most_images == 0)
        TRY(image_rows_connect(&out->images));
    TRY(stage_hops_create(&out->hops, &hops));
    TRY(mimo_comm_agree(out->topology->world, language_share(&out->language)));
    return mimo_comm_agree(out->topology->world, language_connect(&out->language));
}

/* Thread blocks of a move of experts beside the hops and the bridge of a pipeline, or beside
 * products. */
enum { MIXTURE_CTAS = 32 };

/* What the mixtures need before they are made. Collective over the ranks that share experts. */
static mimo_status create_dispatch(bridged_model *out)
{
    const model_desc *model = &out->desc;
    const rank_topology *topology = out->topology;
    int64_t tp = mimo_grid_dim_size(topology->llm, "tp");
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    if (model->experts == 0)
        return MIMO_OK;
    desc.name = "experts";
    desc.experts = model->experts;
    desc.top_k = model->top_k;
    desc.etp = topology->experts.coords.etp_size;
    desc.hidden = model->hidden;
    /* Hops wait beside it, or bridges and sums over tp. */
    desc.ctas = topology->stages > 1 || model->schedule.overlap ? MIXTURE_CTAS : 0;
    desc.max_tokens = nn_moe_own_rows(model->seq / topology->llm_cp * out->batch.sentences, tp);
    desc.buffers_only = pushes_rows(out);
    return nn_dispatch_create(&out->dispatch, model->runtime, topology->experts.group, &desc);
}

static mimo_status find_owners(bridged_model *out)
{
    const rank_topology *topology = out->topology;
    const nn_owners_desc stores[MODEL_STORES] = {
        {.params = out->encoder.params, .comm = topology->world, .grid = topology->encoder},
        {.params = out->language.params,
         .comm = topology->world,
         .grid = topology->llm,
         .experts = topology->experts.view}};
    for (int s = 0; s < MODEL_STORES; s++)
        TRY(nn_owners_init(&out->owners[s], &stores[s]));
    return MIMO_OK;
}

/* The same answer on every rank. */
static mimo_status make_layout(layer_layout *out, const model_desc *desc, int stages)
{
    int64_t chunks = desc->schedule.chunks;
    const layer_layout_desc layout = {.pattern = desc->llm_pattern,
                                      .layers = desc->llm_layers,
                                      .stages = stages,
                                      .chunks = chunks > 0 ? chunks : 1};
    return layer_layout_create(out, &layout);
}

static mimo_status create_layout(bridged_model *out)
{
    model_desc *desc = &out->desc;
    mimo_status status = make_layout(&out->layout, desc, out->topology->stages);
    TRY(mimo_comm_agree(out->topology->world, status));
    desc->llm_layers = out->layout.items;
    return desc->experts > 0 ? check_mixtures(&out->layout) : MIMO_OK;
}

static mimo_status check_layout(const model_desc *desc, int stages)
{
    layer_layout layout = {0};
    mimo_status status = make_layout(&layout, desc, stages);
    if (status == MIMO_OK && desc->experts > 0)
        status = check_mixtures(&layout);
    layer_layout_release(&layout);
    return status;
}

mimo_status model_check(const rank_topology *topology, const model_desc *desc)
{
    mimo_schedule *schedule;
    mimo_schedule_desc sizes;
    const schedule_need need = {.stages = topology->stages,
                                .micro_batches = desc->micro_batches > 0 ? desc->micro_batches : 1,
                                .backward = true};
    TRY(check_desc(desc, topology));
    TRY(check_layout(desc, topology->stages));
    TRY(schedule_choose(&schedule, &sizes, &desc->schedule, &need));
    mimo_schedule_destroy(schedule);
    return MIMO_OK;
}

mimo_status model_create(bridged_model *out, const rank_topology *topology, const model_desc *desc)
{
    TRY(check_desc(desc, topology)); /* the same answer on every rank */
    out->desc = *desc;
    if (out->desc.micro_batches < 1)
        out->desc.micro_batches = 1;
    if (out->desc.schedule.group < 1)
        out->desc.schedule.group = 1;
    if (out->desc.schedule.chunks < 1)
        out->desc.schedule.chunks = 1;
    out->topology = topology;
    TRY(create_layout(out));
    const batch_desc batch = {.tokens = desc->tokens,
                              .patch_values = desc->patch_values,
                              .seq = desc->seq,
                              .words = desc->words,
                              .samples = desc->micro_batch,
                              .group = out->desc.schedule.group,
                              .most_images = desc->most_images};
    TRY(mimo_comm_agree(topology->world, batch_create(&out->batch, topology, &batch)));
    TRY(mimo_comm_agree(topology->world, create_dispatch(out)));
    TRY(mimo_comm_agree(topology->world, reserve_model(out)));
    TRY(find_owners(out));
    return connect_model(out);
}

void model_destroy(bridged_model *model)
{
    stage_hops_destroy(&model->hops);
    image_rows_destroy(&model->images);
    for (int s = 0; s < MODEL_STORES; s++)
        nn_owners_release(&model->owners[s]);
    language_destroy(&model->language);
    nn_dispatch_destroy(model->dispatch);
    encoder_destroy(&model->encoder);
    batch_destroy(&model->batch);
    stage_streams_destroy(&model->streams);
    layer_layout_release(&model->layout);
    *model = (bridged_model){0};
}

model_elements model_count_elements(const bridged_model *model)
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

model_saved model_count_saved(const bridged_model *model)
{
    const vision_encoder *encoder = &model->encoder;
    const language_model *language = &model->language;
    const language_saved *llm = &language->saved[0];
    return (model_saved){encoder->saved[0].room.bytes + llm->room.bytes + llm->of_blocks.bytes,
                         encoder->blocks.room.bytes + language->blocks[0].room.bytes};
}

static mimo_status visit_adapters(bridged_model *model, nn_lora_visit *visit)
{
    TRY(encoder_visit(&model->encoder, visit));
    return language_visit(&model->language, visit);
}

static mimo_status unmerge_merged(nn_lora *lora, int weight)
{
    return lora->unmerged ? nn_lora_unmerge(lora, weight) : MIMO_OK;
}

mimo_status model_merge(bridged_model *model)
{
    return visit_adapters(model, nn_lora_merge);
}

mimo_status model_unmerge(bridged_model *model)
{
    return visit_adapters(model, unmerge_merged);
}

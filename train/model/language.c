#include "train/model/language.h"

#include "core/mutation.h"

#include "train/model/layer_widths.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

static int64_t text_count(const language_model *language)
{
    return language->sentences * language->own_text;
}

static mimo_status place_first(language_saved *saved, const language_model *language)
{
    nn_room *room = &saved->room;
    TRY(nn_embedding_saved_take(&saved->text, &language->text, room));
    TRY(nn_embedding_saved_take(&saved->position, &language->position, room));
    return nn_room_take(room, &saved->text_rows, text_count(language) * language->hidden,
                        sizeof(nn_real));
}

static mimo_status place_last(language_saved *saved, const language_model *language)
{
    nn_room *room = &saved->room;
    TRY(nn_norm_saved_take(&saved->norm, &language->norm, room));
    TRY(nn_linear_saved_take(&saved->head, &language->head, room));
    TRY(nn_loss_saved_take(&saved->loss, &language->loss, room));
    TRY(nn_room_take(room, &saved->normed, language->own_rows * language->hidden, sizeof(nn_real)));
    return nn_room_take(room, &saved->logits, language->rows * language->head.out, sizeof(nn_real));
}

/* Whether a state is of the model's first chunk, and of its last one. */
static bool begins(const language_model *language, const language_saved *saved)
{
    return language->first && saved->chunk == 0;
}

static bool ends(const language_model *language, const language_saved *saved)
{
    return language->last && saved->chunk == language->chunks - 1;
}

bool language_ends(const language_model *language, int64_t state)
{
    return ends(language, &language->saved[state]);
}

static const nn_stack *blocks_of(const language_model *language, const language_saved *saved)
{
    return &language->blocks[saved->chunk];
}

static mimo_status place_blocks(language_saved *saved, const language_model *language)
{
    return nn_stack_saved_take(&saved->blocks, blocks_of(language, saved), &saved->of_blocks);
}

/* What a chunk has in front of its blocks, and behind. */
static mimo_status place_around(language_saved *saved, const language_model *language)
{
    if (begins(language, saved))
        TRY(place_first(saved, language));
    return ends(language, saved) ? place_last(saved, language) : MIMO_OK;
}

/* Blocks whose states ranks push into are measured alone. */
static mimo_status reserve_saved(language_saved *saved, const language_model *language)
{
    TRY(nn_stack_saved_init(&saved->blocks, blocks_of(language, saved)));
    TRY(place_around(saved, language));
    TRY(nn_room_reserve(&saved->room, language->runtime));
    TRY(place_around(saved, language));
    TRY(place_blocks(saved, language));
    if (language->pushes)
        return MIMO_OK;
    TRY(nn_room_reserve(&saved->of_blocks, language->runtime));
    return place_blocks(saved, language);
}

/* The states of all blocks, one behind the other: as large on all ranks of the group. */
static mimo_status place_in_buffer(language_model *language)
{
    char *base = mimo_buffer_data(language->buffer);
    for (int64_t i = 0; i < language->states; i++) {
        TRY(nn_room_lend(&language->saved[i].of_blocks, language->runtime, &base));
        TRY(place_blocks(&language->saved[i], language));
    }
    return MIMO_OK;
}

mimo_status language_share(language_model *language)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < language->states; i++)
        bytes += language->saved[i].of_blocks.used;
    if (!language->pushes || bytes == 0)
        return MIMO_OK;
    TRY(mimo_buffer_create(&language->buffer, language->pushes, bytes));
    return place_in_buffer(language);
}

/* States are released also where one of them fails. */
static mimo_status reserve_states(language_model *out, const int64_t *states)
{
    int64_t count = 0;
    TRY(memory_reserve(&out->chunk_states, out->chunks, sizeof *out->chunk_states));
    for (int64_t c = 0; c < out->chunks; c++) {
        out->chunk_states[c] = states ? states[c] : 1;
        count += out->chunk_states[c];
    }
    TRY(memory_reserve(&out->saved, count, sizeof *out->saved));
    for (int64_t c = 0; c < out->chunks; c++)
        for (int64_t i = 0; i < out->chunk_states[c]; i++) {
            language_saved *saved = &out->saved[out->states++];
            saved->chunk = c;
            TRY(reserve_saved(saved, out));
        }
    return MIMO_OK;
}

/* Whether padding is kept from experts. */
static bool masks(const language_model *language)
{
    return language->mixtures > 0 && language->words.padding >= 0;
}

static mimo_status reserve_rooms(language_model *out, const int64_t *states)
{
    TRY(memory_reserve(&out->own_ids, out->own_rows, sizeof *out->own_ids));
    TRY(memory_reserve(&out->labels_share, out->rows, sizeof *out->labels_share));
    if (masks(out))
        TRY(memory_reserve(&out->masked_rows, out->rows, sizeof *out->masked_rows));
    TRY(reserve_states(out, states));
    return nn_runtime_reserve(out->runtime, &out->d_normed, out->own_rows * out->hidden,
                              sizeof *out->d_normed);
}

/* The blocks of a chunk of the model. */
static nn_stack_desc blocks_in(const language_model *out, const language_desc *desc, int64_t chunk)
{
    const layer_layout *layout = desc->layout;
    int stages = nn_params_pp_size(out->params);
    if (MIMO_MUTATED("chunk-order-reversed"))
        chunk += (out->chunks - 1 - 2 * (chunk / stages)) * stages;
    nn_stack_desc blocks = {.name = "llm.block",
                            .first = layout->bounds[chunk],
                            .count = layout->bounds[chunk + 1] - layout->bounds[chunk],
                            .block = block_of(desc->hidden, desc->heads, layout->layers)};
    blocks.block.max_rows = out->share;
    blocks.block.max_batch = desc->sentences;
    blocks.block.max_parts = desc->cp ? mimo_comm_size(desc->cp) : 1;
    blocks.block.adapters = desc->adapters;
    blocks.block.sp = desc->sp;
    return blocks;
}

/* The kinds of all blocks. */
static mimo_status list_kinds(const nn_block_kind ***kinds, const language_desc *desc)
{
    int64_t count = desc->layout->items;
    TRY(memory_reserve(kinds, count, sizeof **kinds));
    for (int64_t i = 0; i < count; i++)
        (*kinds)[i] = layer_layout_block(desc->layout, i, desc->mixture);
    return MIMO_OK;
}

/* Of other stages' blocks the store alone has to know. */
static mimo_status add_stages(language_model *out, const language_desc *desc,
                              const nn_block_kind *const *kinds)
{
    nn_mixture mixture = desc->mixture ? *desc->mixture : (nn_mixture){0};
    int stages = nn_params_pp_size(out->params);
    mixture.cp = desc->cp;
    for (int64_t chunk = 0; chunk < out->chunks * stages; chunk++) {
        int stage = (int)(chunk % stages);
        nn_stack_desc blocks = blocks_in(out, desc, chunk);
        nn_stack other = {0};
        blocks.kinds = kinds + blocks.first;
        blocks.block.mixture = desc->mixture ? &mixture : NULL;
        bool own = stage == nn_params_pp_rank(out->params);
        if (own)
            out->first_block[chunk / stages] = blocks.first;
        blocks.recompute = own ? desc->recompute : NN_RECOMPUTE_NONE;
        blocks.in_flight = desc->pairs_steps ? 2 : 1;
        TRY(nn_params_set_stage(out->params, stage));
        mimo_status status = nn_stack_init(own ? &out->blocks[chunk / stages] : &other, out->params,
                                           desc->tp, &blocks);
        nn_stack_release(&other);
        TRY(status);
    }
    return MIMO_OK;
}

static mimo_status add_blocks(language_model *out, const language_desc *desc)
{
    const nn_block_kind **kinds = NULL;
    mimo_status status = list_kinds(&kinds, desc);
    if (status == MIMO_OK)
        status = add_stages(out, desc, kinds);
    memory_release(kinds);
    if (!desc->mixture)
        return status;
    out->mixtures = layer_layout_mixtures(desc->layout->items);
    out->experts = nn_dispatch_sizes(desc->mixture->dispatch)->experts;
    return status;
}

/* The last stage stays set for what follows. */
static mimo_status add_layers(language_model *out, const language_desc *desc)
{
    int64_t hidden = desc->hidden;
    nn_params *params = out->params;
    nn_rule rule = desc->sp ? NN_PARTIAL : NN_REPLICATED; /* of what sees a rank's own rows */
    TRY(nn_embedding_init(&out->text, params,
                          &(nn_embedding_desc){"llm.text", desc->words.text, hidden, EMBEDDING_STD,
                                               rule, text_count(out)}));
    if (MIMO_MUTATED("positions-on-every-stage"))
        TRY(nn_params_set_stage(params, desc->stage));
    TRY(nn_embedding_init(
        &out->position, params,
        &(nn_embedding_desc){"llm.position", desc->seq, hidden, EMBEDDING_STD, rule, out->own}));
    TRY(add_blocks(out, desc));
    TRY(nn_norm_init(&out->norm, params, "llm.norm", hidden, out->own_rows, rule));
    nn_linear_desc head = {.name = "llm.head",
                           .in = hidden,
                           .out = desc->words.predicted,
                           .split = NN_SPLIT_COLUMNS,
                           .std = EMBEDDING_STD,
                           .max_rows = out->rows,
                           .sp = desc->sp};
    head.lora = nn_lora_for(desc->adapters, head.name);
    TRY(nn_linear_init(&out->head, params, desc->tp, &head));
    TRY(nn_loss_init(&out->loss, desc->runtime, desc->tp, desc->words.predicted, out->rows));
    return nn_params_seal(params);
}

static mimo_status list_positions(int64_t *count, int64_t **positions,
                                  const mimo_partition *partition, mimo_content content,
                                  int64_t seq)
{
    TRY(mimo_partition_rows(count, partition, content, seq));
    TRY(memory_reserve(positions, *count, sizeof **positions));
    return mimo_partition_index(*positions, partition, content, seq);
}

/* Which positions this rank keeps of every sequence. Its share splits labels, and the mask of
 * attention needs it; its own split embeddings and ids, and the position table needs them. */
static mimo_status find_positions(language_model *out, const language_desc *desc)
{
    TRY(list_positions(&out->share, &out->positions, desc->partition, MIMO_LABELS, desc->seq));
    TRY(list_positions(&out->own, &out->own_positions, desc->partition, MIMO_EMBEDDINGS,
                       desc->seq));
    out->rows = out->share * desc->sentences;
    out->own_rows = out->own * desc->sentences;
    for (int64_t i = 0; i < out->own; i++)
        out->own_text += out->own_positions[i] >= desc->image_tokens;
    return MIMO_OK;
}

mimo_status language_create(language_model *out, const language_desc *desc)
{
    out->runtime = desc->runtime;
    out->partition = desc->partition;
    out->cp = desc->cp;
    out->pushes = desc->pushes;
    out->words = desc->words;
    out->hidden = desc->hidden;
    out->seq = desc->seq;
    out->image_tokens = desc->image_tokens;
    out->sentences = desc->sentences;
    out->pairs = desc->pairs;
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = desc->tp ? mimo_comm_rank(desc->tp) : 0,
                            .tp_size = desc->tp ? mimo_comm_size(desc->tp) : 1,
                            .pp_rank = desc->stage,
                            .pp_size = desc->stages,
                            .experts = desc->experts,
                            .seed = desc->seed,
                            .frozen = desc->frozen,
                            .runtime = desc->runtime,
                            .shards = desc->shards,
                            .pairs = desc->pairs / (desc->cp ? mimo_comm_size(desc->cp) : 1)};
    TRY(nn_params_create(&out->params, &store));
    out->first = desc->stage == 0;
    out->last = desc->stage == nn_params_pp_size(out->params) - 1;
    out->chunks = desc->layout->chunks;
    TRY(memory_reserve(&out->blocks, out->chunks, sizeof *out->blocks));
    TRY(memory_reserve(&out->first_block, out->chunks, sizeof *out->first_block));
    TRY(find_positions(out, desc));
    TRY(add_layers(out, desc));
    return reserve_rooms(out, desc->states);
}

mimo_status language_text_create(language_text *out, const language_model *language)
{
    mimo_alignment_desc alignment = MIMO_ALIGNMENT_DESC_INIT;
    alignment.modalities = 1;
    alignment.special = &language->words.image;
    alignment.vocabulary = language->words.text;
    alignment.memory = nn_runtime_or_host(language->runtime)->memory;
    TRY(mimo_alignment_create(&out->alignment, &alignment));
    TRY(memory_reserve(&out->ids, text_count(language), sizeof *out->ids));
    out->runtime = language->runtime;
    if (masks(language))
        TRY(nn_runtime_reserve(out->runtime, &out->masked, language->rows, sizeof *out->masked));
    return memory_reserve(&out->labels, language->rows, sizeof *out->labels);
}

void language_text_destroy(language_text *text)
{
    mimo_alignment_destroy(text->alignment);
    nn_runtime_free(text->runtime, text->masked);
    memory_release(text->ids);
    memory_release(text->labels);
    *text = (struct language_text){0};
}

mimo_status language_connect(language_model *language)
{
    nn_sequence_desc sequence = {.cp = language->cp,
                                 .causal = true,
                                 .rows = language->share,
                                 .batch = language->sentences,
                                 .positions = language->positions,
                                 .runtime = language->runtime,
                                 .pairs = language->pairs};
    return nn_sequence_init(&language->sequence, &sequence);
}

static void release_saved(language_saved *saved, bool shared)
{
    nn_stack_saved_release(&saved->blocks);
    nn_room_release(&saved->room);
    if (!shared)
        nn_room_release(&saved->of_blocks);
}

void language_destroy(language_model *language)
{
    nn_sequence_release(&language->sequence);
    nn_loss_release(&language->loss);
    nn_linear_release(&language->head);
    nn_norm_release(&language->norm);
    for (int64_t c = 0; language->blocks && c < language->chunks; c++)
        nn_stack_release(&language->blocks[c]);
    memory_release(language->blocks);
    memory_release(language->first_block);
    nn_embedding_release(&language->position);
    nn_embedding_release(&language->text);
    for (int64_t i = 0; i < language->states; i++)
        release_saved(&language->saved[i], language->buffer != NULL);
    mimo_buffer_destroy(language->buffer);
    memory_release(language->saved);
    memory_release(language->chunk_states);
    memory_release(language->positions);
    memory_release(language->own_positions);
    memory_release(language->own_ids);
    memory_release(language->labels_share);
    memory_release(language->masked_rows);
    nn_runtime_free(language->runtime, language->d_normed);
    nn_params_destroy(language->params);
    *language = (struct language_model){0};
}

/* The views that merge and split work on. `image` has no data: the bridge moves its rows. */
typedef struct language_views {
    mimo_tensor image, text, tile;
} language_views;

static mimo_stream stream_of(const language_model *language)
{
    return nn_runtime_or_host(language->runtime)->stream;
}

static language_views views_of(const language_model *language, const language_text *text,
                               const language_saved *saved)
{
    int64_t count = language->sentences, width = language->hidden;
    language_views views;
    views.image = mimo_tensor_2d(NULL, NN_DTYPE, "th", language->own_rows - text->count, width);
    views.text = mimo_tensor_2d(saved->text_rows, NN_DTYPE, "th", text->count, width);
    views.tile = mimo_tensor_3d(saved->blocks.x[0], NN_DTYPE, "sbh", language->own, count, width);
    views.image.memory = views.text.memory = views.tile.memory =
        nn_runtime_or_host(language->runtime)->memory;
    return views;
}

/* Split whole sentences [B, S] into this rank's part [B, rows of it], as `content` is split. */
static mimo_status split_tokens(const language_model *language, mimo_content content, int64_t *part,
                                const int64_t *whole)
{
    int64_t sentences = language->sentences;
    int64_t positions = content == MIMO_LABELS ? language->share : language->own;
    void *ids = (void *)(uintptr_t)whole; /* a source, so they stay */
    mimo_tensor from = mimo_tensor_2d(ids, MIMO_I64, "bs", sentences, language->seq);
    mimo_tensor to = mimo_tensor_2d(part, MIMO_I64, "bs", sentences, positions);
    return mimo_partition_shard(language->partition, content, &to, &from, NULL);
}

nn_real *language_input(const language_model *language, int64_t state)
{
    return language->saved[state].blocks.x[0];
}

nn_real *language_output(const language_model *language, int64_t state)
{
    const language_saved *saved = &language->saved[state];
    return saved->blocks.x[blocks_of(language, saved)->count];
}

/* Labels are split, then put in the order of the rows. */
static mimo_status split_labels(language_model *language, language_text *text,
                                const int64_t *labels)
{
    int64_t sentences = language->sentences, share = language->share;
    TRY(split_tokens(language, MIMO_LABELS, language->labels_share, labels));
    for (int64_t s = 0; s < share; s++)
        for (int64_t b = 0; b < sentences; b++)
            text->labels[s * sentences + b] = language->labels_share[b * share + s];
    return MIMO_OK;
}

/* Padding, and samples that are none. */
static mimo_status read_masked(language_model *language, language_text *text,
                               const language_sentences *from)
{
    int64_t sentences = language->sentences, share = language->share;
    text->sequence = nn_sequence_masked(&language->sequence, text->masked);
    if (!text->masked)
        return MIMO_OK;
    TRY(split_tokens(language, MIMO_LABELS, language->labels_share, from->ids));
    for (int64_t s = 0; s < share; s++)
        for (int64_t b = 0; b < sentences; b++)
            language->masked_rows[s * sentences + b] =
                b >= from->present ||
                language->labels_share[b * share + s] == language->words.padding;
    return nn_runtime_write(language->runtime, text->masked, language->masked_rows,
                            language->rows * (int64_t)sizeof *text->masked);
}

mimo_status language_read(language_model *language, language_text *text,
                          const language_sentences *sentences)
{
    TRY(split_tokens(language, MIMO_EMBEDDINGS, language->own_ids, sentences->ids));
    text->count = 0;
    for (int64_t i = 0; i < language->own_rows; i++)
        if (language->own_ids[i] != language->words.image)
            text->ids[text->count++] = language->own_ids[i];
    TRY(read_masked(language, text, sentences));
    TRY(split_labels(language, text, sentences->labels));
    mimo_tensor ids =
        mimo_tensor_2d(language->own_ids, MIMO_I64, "bs", language->sentences, language->own);
    return mimo_alignment_update(text->alignment, &ids, stream_of(language));
}

/* Text rows come between the image rows of this rank's tile. */
static mimo_status embed(language_model *language, const language_text *text, language_saved *saved)
{
    language_views views = views_of(language, text, saved);
    TRY(nn_embedding_forward(&language->text, &saved->text, saved->text_rows, text->ids,
                             text->count));
    TRY(mimo_alignment_merge(text->alignment, &views.tile, &views.image, &views.text,
                             stream_of(language)));
    return nn_embedding_add(&language->position, &saved->position, saved->blocks.x[0],
                            language->own_positions, language->own, language->sentences);
}

/* From the blocks' output to the losses. */
static mimo_status predict(language_model *language, const language_text *text,
                           language_saved *saved)
{
    TRY(nn_norm_forward(&language->norm, &saved->norm, saved->normed,
                        saved->blocks.x[blocks_of(language, saved)->count], language->own_rows));
    TRY(nn_linear_forward(&language->head, &saved->head, saved->logits, saved->normed,
                          language->own_rows, language->sentences));
    return nn_loss_forward(&language->loss, &saved->loss, saved->logits, text->labels,
                           language->rows);
}

stack_pass language_blocks(language_model *language, int64_t state)
{
    language_saved *saved = &language->saved[state];
    return (stack_pass){blocks_of(language, saved), &saved->blocks};
}

mimo_status language_embed(language_model *language, const language_text *text, int64_t state)
{
    language_saved *saved = &language->saved[state];
    return begins(language, saved) ? embed(language, text, saved) : MIMO_OK;
}

mimo_status language_lose(language_model *language, const language_text *text, int64_t state)
{
    language_saved *saved = &language->saved[state];
    return ends(language, saved) ? predict(language, text, saved) : MIMO_OK;
}

mimo_status language_forward(language_model *language, const language_text *text, int64_t state)
{
    stack_pass blocks = language_blocks(language, state);
    TRY(language_embed(language, text, state));
    TRY(nn_stack_forward(blocks.stack, blocks.saved, &text->sequence));
    return language_lose(language, text, state);
}

mimo_status language_losses(language_model *language, double *loss_sum, int64_t *tokens)
{
    return nn_loss_read(&language->loss, loss_sum, tokens);
}

static mimo_status predict_backward_input(language_model *language, language_saved *saved)
{
    nn_real *last = saved->blocks.x[blocks_of(language, saved)->count];
    TRY(nn_loss_backward_input(&language->loss, &saved->loss, saved->logits));
    TRY(nn_linear_backward_input(&language->head, &saved->head, language->d_normed, saved->logits));
    return nn_norm_backward_input(&language->norm, &saved->norm, last, language->d_normed, NULL);
}

/* The gradients of image rows stay in the tile. */
static mimo_status embed_backward_params(language_model *language, const language_text *text,
                                         language_saved *saved)
{
    language_views views = views_of(language, text, saved);
    TRY(nn_embedding_backward_params(&language->position, &saved->position, saved->blocks.x[0]));
    TRY(mimo_alignment_split(text->alignment, &views.image, &views.text, &views.tile,
                             stream_of(language)));
    return nn_embedding_backward_params(&language->text, &saved->text, saved->text_rows);
}

mimo_status language_lose_backward(language_model *language, int64_t state)
{
    language_saved *saved = &language->saved[state];
    return ends(language, saved) ? predict_backward_input(language, saved) : MIMO_OK;
}

mimo_status language_backward_input(language_model *language, int64_t state)
{
    stack_pass blocks = language_blocks(language, state);
    TRY(language_lose_backward(language, state));
    return nn_stack_backward_input(blocks.stack, blocks.saved);
}

mimo_status language_ends_backward_params(language_model *language, const language_text *text,
                                          int64_t state)
{
    language_saved *saved = &language->saved[state];
    if (ends(language, saved))
        TRY(nn_linear_backward_params(&language->head, &saved->head));
    return begins(language, saved) ? embed_backward_params(language, text, saved) : MIMO_OK;
}

mimo_status language_backward_params(language_model *language, const language_text *text,
                                     int64_t state)
{
    stack_pass blocks = language_blocks(language, state);
    TRY(nn_stack_backward_params(blocks.stack, blocks.saved));
    return language_ends_backward_params(language, text, state);
}

static mimo_status adjust_chunk(const language_model *language, int64_t chunk, mimo_comm *ranks,
                                int64_t *loads)
{
    const nn_stack *blocks = &language->blocks[chunk];
    for (int64_t i = 0; i < blocks->count; i++) {
        nn_block *block = blocks->layers[i]; /* of both kinds */
        int64_t mixture = layer_layout_mixtures(language->first_block[chunk] + i);
        if (blocks->kinds[i] == &nn_block_mixed)
            TRY(nn_router_adjust(&block->moe.router, ranks, loads + mixture * language->experts));
    }
    return MIMO_OK;
}

mimo_status language_adjust(language_model *language, mimo_comm *ranks, int64_t *loads)
{
    for (int64_t c = 0; c < language->chunks; c++)
        TRY(adjust_chunk(language, c, ranks, loads));
    return MIMO_OK;
}

int64_t language_last_state(const language_model *language)
{
    return language->states - language->chunk_states[language->chunks - 1];
}

mimo_status language_predict(language_model *language, int64_t state, int64_t *ids)
{
    return nn_loss_argmax(&language->loss, language->saved[state].logits, language->rows, ids);
}

mimo_status language_visit(language_model *language, nn_lora_visit *visit)
{
    for (int64_t c = 0; c < language->chunks; c++)
        TRY(nn_stack_visit(&language->blocks[c], visit));
    return language->last ? nn_linear_visit(&language->head, visit) : MIMO_OK;
}

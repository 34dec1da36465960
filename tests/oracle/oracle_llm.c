#include "oracle_llm.h"

#include <string.h>

#include "train/model/layer_widths.h"
#include "core/check.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "device/device.h"

enum { MOST_BLOCKS = 5 }; /* of oracle_layers */

/* ----------------------------------------- creation ----------------------------------------- */

static mimo_status find_positions(oracle_llm *out)
{
    const mimo_partition *partition = out->topology->partition;
    int64_t seq = out->sizes.seq;
    MIMO_TRY(mimo_partition_rows(&out->share, partition, MIMO_LABELS, seq));
    MIMO_TRY(mimo_partition_rows(&out->own, partition, MIMO_EMBEDDINGS, seq));
    MIMO_TRY(mimo_reserve(&out->share_positions, out->share, sizeof *out->share_positions));
    MIMO_TRY(mimo_reserve(&out->own_positions, out->own, sizeof *out->own_positions));
    MIMO_TRY(mimo_partition_index(out->share_positions, partition, MIMO_LABELS, seq));
    MIMO_TRY(mimo_partition_index(out->own_positions, partition, MIMO_EMBEDDINGS, seq));
    nn_sequence_desc sequence = {.cp = out->topology->cp,
                                 .causal = true,
                                 .rows = out->share,
                                 .batch = out->batch,
                                 .positions = out->share_positions,
                                 .runtime = out->topology->runtime,
                                 .pairs = out->topology->pairs};
    return nn_sequence_init(&out->sequence, &sequence);
}

static mimo_status create_store(oracle_llm *out)
{
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = (int)out->topology->tp_rank,
                            .tp_size = (int)out->topology->tp_size,
                            .pp_rank = (int)out->topology->stage,
                            .pp_size = (int)out->topology->stages,
                            .experts = out->topology->shared.place,
                            .seed = out->sizes.seed,
                            .frozen = out->sizes.frozen,
                            .runtime = out->topology->runtime,
                            .shards = out->topology->shards,
                            .pairs = out->topology->pairs / nn_comm_size(out->topology->cp)};
    return nn_params_create(&out->params, &store);
}

/* For the rows of all tp ranks, so that a mixture that does not cut them shows. */
static mimo_status create_dispatch(oracle_llm *out)
{
    const ref_sizes *sizes = &out->sizes;
    const oracle_topology *topology = out->topology;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    if (sizes->experts == 0)
        return MIMO_OK;
    desc.experts = sizes->experts;
    desc.top_k = sizes->top_k;
    desc.etp = topology->shared.place.etp_size;
    desc.max_tokens = out->share * out->batch;
    desc.hidden = sizes->hidden;
    return nn_dispatch_create(&out->dispatch, topology->runtime, topology->shared.group, &desc);
}

/* Blocks [*first, *end) of a chunk of the model. */
static void blocks_in(int64_t *first, int64_t *end, const oracle_llm *llm, int64_t number)
{
    int64_t chunks = llm->chunks * llm->topology->stages, layers = llm->sizes.llm_layers;
    if (MIMO_MUTATED("chunk-order-reversed"))
        number += (llm->chunks - 1 - 2 * (number / llm->topology->stages)) * llm->topology->stages;
    *first = number * layers / chunks;
    *end = (number + 1) * layers / chunks;
}

void oracle_llm_blocks(int64_t *first, int64_t *end, const oracle_llm *llm, int64_t chunk)
{
    blocks_in(first, end, llm, chunk * llm->topology->stages + llm->topology->stage);
}

/* The blocks of one chunk. Of other stages' the store alone has to know. */
static mimo_status add_chunk(oracle_llm *out, int64_t number, const nn_block_kind *const *kinds,
                             const nn_block_desc *block)
{
    int64_t first, end, stages = out->topology->stages, stage = number % stages;
    nn_stack other = {0};
    nn_stack *to = stage == out->topology->stage ? &out->blocks[number / stages] : &other;
    blocks_in(&first, &end, out, number);
    nn_stack_desc blocks = {.name = "llm.block",
                            .first = first,
                            .count = end - first,
                            .kinds = kinds + first,
                            .block = *block};
    MIMO_TRY(nn_params_set_stage(out->params, (int)stage));
    mimo_status status = nn_stack_init(to, out->params, out->topology->tp, &blocks);
    nn_stack_release(&other);
    return status;
}

static mimo_status add_blocks(oracle_llm *out)
{
    const ref_sizes *sizes = &out->sizes;
    const nn_mixture mixture = {.dispatch = out->dispatch,
                                .inner = sizes->hidden,
                                .balance = sizes->balance,
                                .cp = out->topology->cp,
                                .replay = out->replay.context ? &out->replay : NULL,
                                .traced = out->replay.context != NULL};
    const nn_block_kind *kinds[MOST_BLOCKS];
    nn_block_desc block = block_of(sizes->hidden, sizes->heads, 2 * sizes->llm_layers);
    for (int i = 0; i < MOST_BLOCKS; i++)
        kinds[i] = sizes->experts > 0 && i % 2 == 1 ? &nn_block_mixed : &nn_block_dense;
    block.max_rows = out->share;
    block.max_batch = out->batch;
    block.max_parts = out->topology->cp ? mimo_comm_size(out->topology->cp) : 1;
    block.sp = out->topology->sp;
    block.mixture = &mixture;
    block.adapters = oracle_adapters_of(&out->adapters, sizes);
    for (int64_t i = 0; i < out->chunks * out->topology->stages; i++)
        MIMO_TRY(add_chunk(out, i, kinds, &block));
    return MIMO_OK; /* the last stage stays set for what follows */
}

static int64_t text_count(const oracle_llm *llm)
{
    return llm->batch * (llm->sizes.seq - llm->sizes.image_tokens);
}

static mimo_status add_layers(oracle_llm *out)
{
    const ref_sizes *sizes = &out->sizes;
    int64_t hidden = sizes->hidden, rows = out->share * out->batch;
    nn_rule own = out->topology->sp ? NN_PARTIAL : NN_REPLICATED; /* of a rank's own rows */
    MIMO_TRY(
        nn_embedding_init(&out->text, out->params,
                          &(nn_embedding_desc){"llm.text", sizes->text_vocabulary, hidden,
                                               EMBEDDING_STD, NN_REPLICATED, text_count(out)}));
    if (MIMO_MUTATED("positions-on-every-stage"))
        MIMO_TRY(nn_params_set_stage(out->params, (int)out->topology->stage));
    MIMO_TRY(nn_embedding_init(
        &out->position, out->params,
        &(nn_embedding_desc){"llm.position", sizes->seq, hidden, EMBEDDING_STD, own, out->own}));
    MIMO_TRY(add_blocks(out));
    MIMO_TRY(nn_norm_init(&out->norm, out->params, "llm.norm", hidden, rows, own));
    nn_linear_desc head = {.name = "llm.head",
                           .in = hidden,
                           .out = sizes->vocabulary,
                           .split = NN_SPLIT_COLUMNS,
                           .std = EMBEDDING_STD,
                           .max_rows = rows,
                           .sp = out->topology->sp};
    const nn_lora_selection *adapters = oracle_adapters_of(&out->adapters, sizes);
    head.lora = nn_lora_for(adapters, head.name);
    MIMO_TRY(nn_linear_init(&out->head, out->params, out->topology->tp, &head));
    MIMO_TRY(nn_loss_init(&out->loss, out->topology->runtime, out->topology->tp, sizes->vocabulary,
                          rows));
    return nn_params_seal(out->params);
}

static mimo_status create_alignment(oracle_llm_saved *saved, const oracle_llm *llm)
{
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    desc.modalities = 1;
    desc.special = &llm->sizes.image_id;
    desc.vocabulary = llm->sizes.text_vocabulary;
    desc.memory = llm->topology->runtime->memory;
    return mimo_alignment_create(&saved->alignment, &desc);
}

static mimo_status reserve(const oracle_llm *llm, nn_real **out, int64_t count)
{
    return nn_runtime_reserve(llm->topology->runtime, out, count, sizeof **out);
}

static mimo_status place_saved(oracle_llm_saved *saved, const oracle_llm *llm)
{
    nn_room *room = &saved->room;
    int64_t hidden = llm->sizes.hidden, logits = llm->share * llm->batch * llm->head.out;
    MIMO_TRY(nn_embedding_saved_place(&saved->text, &llm->text, room));
    MIMO_TRY(nn_embedding_saved_place(&saved->position, &llm->position, room));
    MIMO_TRY(nn_stack_saved_place(&saved->blocks, &llm->blocks[saved->chunk], room));
    MIMO_TRY(nn_norm_saved_place(&saved->norm, &llm->norm, room));
    MIMO_TRY(nn_linear_saved_place(&saved->head, &llm->head, room));
    MIMO_TRY(nn_loss_saved_place(&saved->loss, &llm->loss, room));
    MIMO_TRY(nn_room_take(room, &saved->text_rows, text_count(llm) * hidden, sizeof(nn_real)));
    MIMO_TRY(nn_room_take(room, &saved->normed, llm->own * llm->batch * hidden, sizeof(nn_real)));
    return nn_room_take(room, &saved->logits, logits, sizeof(nn_real));
}

/* With zero-copy the saved state lies in a buffer of the ranks that share experts: so rows and
 * their gradients are written straight into the tiles of experts. */
static mimo_status reserve_room(oracle_llm_saved *saved, const oracle_topology *topology)
{
    nn_room *room = &saved->room;
    int64_t bytes = room->used;
    if (!topology->zero_copy || topology->experts == 0)
        return nn_room_reserve(room, topology->runtime);
    MIMO_TRY(mimo_buffer_create(&saved->buffer, topology->shared.group, bytes));
    *room = (nn_room){
        .runtime = topology->runtime, .base = mimo_buffer_data(saved->buffer), .bytes = bytes};
    return nn_runtime_zero(topology->runtime, room->base, bytes);
}

static mimo_status reserve_saved(oracle_llm_saved *saved, const oracle_llm *llm)
{
    MIMO_TRY(create_alignment(saved, llm));
    MIMO_TRY(mimo_reserve(&saved->text_ids, text_count(llm), sizeof *saved->text_ids));
    MIMO_TRY(mimo_reserve(&saved->labels, llm->share * llm->batch, sizeof *saved->labels));
    MIMO_TRY(nn_stack_saved_init(&saved->blocks, &llm->blocks[saved->chunk]));
    MIMO_TRY(place_saved(saved, llm));
    MIMO_TRY(reserve_room(saved, llm->topology));
    return place_saved(saved, llm);
}

static void release_saved(oracle_llm_saved *saved)
{
    nn_stack_saved_release(&saved->blocks);
    if (!saved->buffer)
        nn_room_release(&saved->room);
    mimo_buffer_destroy(saved->buffer);
    mimo_alignment_destroy(saved->alignment);
    mimo_release(saved->text_ids);
    mimo_release(saved->labels);
}

/* States are released also where one of them fails. */
static mimo_status reserve_states(oracle_llm *out, const int64_t *states)
{
    int64_t count = 0;
    MIMO_TRY(mimo_reserve(&out->chunk_states, out->chunks, sizeof *out->chunk_states));
    for (int64_t c = 0; c < out->chunks; c++)
        count += out->chunk_states[c] = states[c];
    MIMO_TRY(mimo_reserve(&out->saved, count, sizeof *out->saved));
    for (int64_t c = 0; c < out->chunks; c++)
        for (int64_t i = 0; i < states[c]; i++) {
            oracle_llm_saved *saved = &out->saved[out->states++];
            saved->chunk = c;
            MIMO_TRY(reserve_saved(saved, out));
        }
    return MIMO_OK;
}

static mimo_status reserve_rooms(oracle_llm *out, const int64_t *states)
{
    const ref_sizes *sizes = &out->sizes;
    MIMO_TRY(mimo_reserve(&out->labels_bs, out->share * out->batch, sizeof *out->labels_bs));
    MIMO_TRY(reserve(out, &out->whole, sizes->seq * out->batch * sizes->hidden));
    MIMO_TRY(reserve(out, &out->d_normed, out->own * out->batch * sizes->hidden));
    return reserve_states(out, states);
}

mimo_status oracle_llm_create(oracle_llm *out, const oracle_topology *topology,
                              const ref_sizes *sizes, int64_t batch, const int64_t *states,
                              oracle_replay *replay)
{
    out->topology = topology;
    out->replay = (nn_replay){oracle_replay_ids, replay};
    out->sizes = *sizes;
    out->batch = batch;
    out->first = topology->stage == 0;
    out->last = topology->stage == topology->stages - 1;
    out->chunks = topology->schedule.chunks;
    MIMO_TRY(mimo_reserve(&out->blocks, out->chunks, sizeof *out->blocks));
    MIMO_TRY(find_positions(out));
    MIMO_TRY(create_store(out));
    MIMO_TRY(create_dispatch(out));
    MIMO_TRY(add_layers(out));
    return reserve_rooms(out, states);
}

void oracle_llm_destroy(oracle_llm *llm)
{
    const nn_runtime *runtime = llm->topology ? llm->topology->runtime : NULL;
    nn_runtime_free(runtime, llm->whole);
    nn_runtime_free(runtime, llm->d_normed);
    for (int64_t i = 0; i < llm->states; i++)
        release_saved(&llm->saved[i]);
    for (int64_t c = 0; llm->blocks && c < llm->chunks; c++)
        nn_stack_release(&llm->blocks[c]);
    nn_dispatch_destroy(llm->dispatch);
    void *rooms[] = {llm->share_positions, llm->own_positions, llm->labels_bs,
                     llm->saved,           llm->blocks,        llm->chunk_states};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        mimo_release(rooms[i]);
    nn_loss_release(&llm->loss);
    nn_linear_release(&llm->head);
    nn_norm_release(&llm->norm);
    nn_embedding_release(&llm->position);
    nn_embedding_release(&llm->text);
    nn_sequence_release(&llm->sequence);
    nn_params_destroy(llm->params);
    memset(llm, 0, sizeof *llm);
}

nn_real *oracle_llm_input(const oracle_llm *llm, int64_t state)
{
    return llm->saved[state].blocks.x[0];
}

static nn_real *last_of(const oracle_llm *llm, const oracle_llm_saved *saved)
{
    return saved->blocks.x[llm->blocks[saved->chunk].count];
}

nn_real *oracle_llm_output(const oracle_llm *llm, int64_t state)
{
    return last_of(llm, &llm->saved[state]);
}

bool oracle_llm_begins(const oracle_llm *llm, int64_t state)
{
    return llm->first && llm->saved[state].chunk == 0;
}

bool oracle_llm_ends(const oracle_llm *llm, int64_t state)
{
    return llm->last && llm->saved[state].chunk == llm->chunks - 1;
}

/* ------------------------------------- rows between layouts ---------------------------------- */

typedef struct llm_views {
    mimo_tensor image, text, whole, own;
} llm_views;

static llm_views views_of(const oracle_llm *llm, const oracle_llm_saved *saved,
                          const nn_real *image)
{
    const ref_sizes *sizes = &llm->sizes;
    int64_t batch = llm->batch, hidden = sizes->hidden;
    llm_views views;
    void *rows = (void *)(uintptr_t)image;
    views.image = llm->topology->sample_major
                      ? mimo_tensor_3d(rows, NN_DTYPE, "bsh", batch, sizes->image_tokens, hidden)
                      : mimo_tensor_3d(rows, NN_DTYPE, "sbh", sizes->image_tokens, batch, hidden);
    views.text = mimo_tensor_2d(saved->text_rows, NN_DTYPE, "th", text_count(llm), hidden);
    views.whole = mimo_tensor_3d(llm->whole, NN_DTYPE, "sbh", sizes->seq, batch, hidden);
    views.own = mimo_tensor_3d(saved->blocks.x[0], NN_DTYPE, "sbh", llm->own, batch, hidden);
    views.image.memory = views.text.memory = llm->topology->runtime->memory;
    views.whole.memory = views.own.memory = llm->topology->runtime->memory;
    return views;
}

static mimo_stream stream_of(const oracle_llm *llm)
{
    return llm->topology->runtime->stream;
}

/* ------------------------------------------ forward ----------------------------------------- */

static mimo_status split_labels(oracle_llm *llm, oracle_llm_saved *saved, const int64_t *labels)
{
    mimo_tensor whole =
        mimo_tensor_2d((void *)(uintptr_t)labels, MIMO_I64, "bs", llm->batch, llm->sizes.seq);
    mimo_tensor share = mimo_tensor_2d(llm->labels_bs, MIMO_I64, "bs", llm->batch, llm->share);
    MIMO_TRY(mimo_partition_shard(llm->topology->partition, MIMO_LABELS, &share, &whole, NULL));
    for (int64_t s = 0; s < llm->share; s++)
        for (int64_t b = 0; b < llm->batch; b++)
            saved->labels[s * llm->batch + b] = llm->labels_bs[b * llm->share + s];
    return MIMO_OK;
}

mimo_status oracle_llm_read(oracle_llm *llm, int64_t state, const int64_t *ids,
                            const int64_t *labels)
{
    oracle_llm_saved *saved = &llm->saved[state];
    int64_t texts = 0, count = llm->batch * llm->sizes.seq;
    mimo_tensor view =
        mimo_tensor_2d((void *)(uintptr_t)ids, MIMO_I64, "bs", llm->batch, llm->sizes.seq);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] != llm->sizes.image_id)
            saved->text_ids[texts++] = ids[i];
    MIMO_TRY(split_labels(llm, saved, labels));
    return mimo_alignment_update(saved->alignment, &view, stream_of(llm));
}

static mimo_status embed(oracle_llm *llm, oracle_llm_saved *saved, const nn_real *image_rows)
{
    llm_views views = views_of(llm, saved, image_rows);
    MIMO_TRY(nn_embedding_forward(&llm->text, &saved->text, saved->text_rows, saved->text_ids,
                                  text_count(llm)));
    MIMO_TRY(mimo_alignment_merge(saved->alignment, &views.whole, &views.image, &views.text,
                                  stream_of(llm)));
    MIMO_TRY(mimo_partition_shard(llm->topology->partition, MIMO_EMBEDDINGS, &views.own,
                                  &views.whole, stream_of(llm)));
    return nn_embedding_add(&llm->position, &saved->position, saved->blocks.x[0],
                            llm->own_positions, llm->own, llm->batch);
}

/* From the blocks' output to the losses. */
static mimo_status predict(oracle_llm *llm, oracle_llm_saved *saved)
{
    int64_t own = llm->own * llm->batch;
    const nn_real *last = last_of(llm, saved);
    MIMO_TRY(nn_norm_forward(&llm->norm, &saved->norm, saved->normed, last, own));
    MIMO_TRY(
        nn_linear_forward(&llm->head, &saved->head, saved->logits, saved->normed, own, llm->batch));
    return nn_loss_forward(&llm->loss, &saved->loss, saved->logits, saved->labels,
                           llm->share * llm->batch);
}

mimo_status oracle_llm_forward(oracle_llm *llm, int64_t state, const nn_real *image_rows)
{
    oracle_llm_saved *saved = &llm->saved[state];
    if (oracle_llm_begins(llm, state))
        MIMO_TRY(embed(llm, saved, image_rows));
    MIMO_TRY(nn_stack_forward(&llm->blocks[saved->chunk], &saved->blocks, &llm->sequence));
    return oracle_llm_ends(llm, state) ? predict(llm, saved) : MIMO_OK;
}

/* ----------------------------------------- backward ----------------------------------------- */

static mimo_status predict_backward(oracle_llm *llm, oracle_llm_saved *saved)
{
    nn_real *last = last_of(llm, saved);
    MIMO_TRY(nn_loss_backward_input(&llm->loss, &saved->loss, saved->logits));
    MIMO_TRY(nn_linear_backward_input(&llm->head, &saved->head, llm->d_normed, saved->logits));
    return nn_norm_backward_input(&llm->norm, &saved->norm, last, llm->d_normed, NULL);
}

/* Gradients of image rows, and of text rows. */
static mimo_status embed_backward(oracle_llm *llm, oracle_llm_saved *saved, nn_real *d_image)
{
    const oracle_topology *topology = llm->topology;
    llm_views views = views_of(llm, saved, d_image);
    MIMO_TRY(mimo_partition_adjoint(topology->partition, MIMO_EMBEDDINGS, &views.whole, &views.own,
                                    topology->tp, stream_of(llm)));
    return mimo_alignment_split(saved->alignment, &views.image, &views.text, &views.whole,
                                stream_of(llm));
}

mimo_status oracle_llm_backward_input(oracle_llm *llm, int64_t state, nn_real *d_image)
{
    oracle_llm_saved *saved = &llm->saved[state];
    if (oracle_llm_ends(llm, state))
        MIMO_TRY(predict_backward(llm, saved));
    MIMO_TRY(nn_stack_backward_input(&llm->blocks[saved->chunk], &saved->blocks));
    return oracle_llm_begins(llm, state) ? embed_backward(llm, saved, d_image) : MIMO_OK;
}

mimo_status oracle_llm_backward_params(oracle_llm *llm, int64_t state)
{
    oracle_llm_saved *saved = &llm->saved[state];
    if (oracle_llm_ends(llm, state))
        MIMO_TRY(nn_linear_backward_params(&llm->head, &saved->head));
    MIMO_TRY(nn_stack_backward_params(&llm->blocks[saved->chunk], &saved->blocks));
    if (!oracle_llm_begins(llm, state))
        return MIMO_OK;
    MIMO_TRY(nn_embedding_backward_params(&llm->position, &saved->position, saved->blocks.x[0]));
    return nn_embedding_backward_params(&llm->text, &saved->text, saved->text_rows);
}

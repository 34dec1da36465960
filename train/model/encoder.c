#include "train/model/encoder.h"

#include "train/model/layer_widths.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

static mimo_status place_saved(encoder_saved *saved, const vision_encoder *encoder)
{
    nn_room *room = &saved->room;
    TRY(nn_linear_saved_take(&saved->patch, &encoder->patch, room));
    TRY(nn_embedding_saved_take(&saved->position, &encoder->position, room));
    TRY(nn_stack_saved_take(&saved->blocks, &encoder->blocks, room));
    TRY(nn_norm_saved_take(&saved->norm, &encoder->norm, room));
    TRY(nn_room_take(room, &saved->normed, encoder->rows * encoder->hidden, sizeof(nn_real)));
    return nn_linear_saved_take(&saved->project, &encoder->project, room);
}

static mimo_status reserve_saved(encoder_saved *saved, const vision_encoder *encoder)
{
    TRY(nn_stack_saved_init(&saved->blocks, &encoder->blocks));
    TRY(place_saved(saved, encoder));
    TRY(nn_room_reserve(&saved->room, encoder->runtime));
    return place_saved(saved, encoder);
}

static mimo_status reserve_rooms(vision_encoder *out, const encoder_desc *desc)
{
    int64_t states = desc->states > 0 ? desc->states : 1;
    TRY(memory_reserve(&out->places, desc->tokens, sizeof *out->places));
    for (int64_t i = 0; i < desc->tokens; i++)
        out->places[i] = i;
    TRY(memory_reserve(&out->saved, states, sizeof *out->saved));
    while (out->states < states)
        TRY(reserve_saved(&out->saved[out->states++], out)); /* released also where it fails */
    return nn_runtime_reserve(out->runtime, &out->d_normed, out->rows * out->hidden,
                              sizeof *out->d_normed);
}

static mimo_status add_blocks(vision_encoder *out, const encoder_desc *desc)
{
    nn_stack_desc blocks = {.name = "encoder.block",
                            .count = desc->layers,
                            .recompute = desc->recompute,
                            .block = block_of(desc->hidden, desc->heads, 2 * desc->layers)};
    blocks.block.max_rows = desc->tokens;
    blocks.block.max_batch = desc->pictures;
    blocks.block.adapters = desc->adapters;
    return nn_stack_init(&out->blocks, out->params, desc->tp, &blocks);
}

static mimo_status add_layers(vision_encoder *out, const encoder_desc *desc)
{
    int64_t hidden = desc->hidden;
    nn_linear_desc patch = {.name = "encoder.patch",
                            .in = desc->patch_values,
                            .out = hidden,
                            .bias = true,
                            .std = fan_in_std(desc->patch_values),
                            .max_rows = out->rows};
    patch.lora = nn_lora_for(desc->adapters, patch.name);
    TRY(nn_linear_init(&out->patch, out->params, desc->tp, &patch));
    TRY(nn_embedding_init(&out->position, out->params,
                          &(nn_embedding_desc){"encoder.position", desc->tokens, hidden,
                                               EMBEDDING_STD, NN_REPLICATED, desc->tokens}));
    TRY(add_blocks(out, desc));
    TRY(nn_norm_init(&out->norm, out->params, "encoder.norm", hidden, out->rows, NN_REPLICATED));
    nn_linear_desc project = {.name = "encoder.project",
                              .in = hidden,
                              .out = desc->llm_hidden,
                              .bias = true,
                              .std = fan_in_std(hidden),
                              .max_rows = out->rows};
    project.lora = nn_lora_for(desc->adapters, project.name);
    return nn_linear_init(&out->project, out->params, desc->tp, &project);
}

mimo_status encoder_create(vision_encoder *out, const encoder_desc *desc)
{
    nn_params_desc store = {.name = "encoder",
                            .module = MIMO_SRC,
                            .tp_rank = desc->tp ? mimo_comm_rank(desc->tp) : 0,
                            .tp_size = desc->tp ? mimo_comm_size(desc->tp) : 1,
                            .seed = desc->seed,
                            .frozen = desc->frozen,
                            .runtime = desc->runtime,
                            .shards = desc->shards};
    out->runtime = desc->runtime;
    out->hidden = desc->hidden;
    out->rows = desc->tokens * desc->pictures;
    TRY(nn_params_create(&out->params, &store));
    TRY(add_layers(out, desc));
    TRY(reserve_rooms(out, desc));
    nn_sequence_desc sequence = {
        .rows = desc->tokens, .batch = desc->pictures, .runtime = desc->runtime};
    TRY(nn_sequence_init(&out->sequence, &sequence));
    return nn_params_seal(out->params);
}

void encoder_destroy(vision_encoder *encoder)
{
    nn_sequence_release(&encoder->sequence);
    nn_linear_release(&encoder->project);
    nn_norm_release(&encoder->norm);
    nn_stack_release(&encoder->blocks);
    nn_embedding_release(&encoder->position);
    nn_linear_release(&encoder->patch);
    for (int64_t i = 0; i < encoder->states; i++) {
        nn_stack_saved_release(&encoder->saved[i].blocks);
        nn_room_release(&encoder->saved[i].room);
    }
    memory_release(encoder->saved);
    memory_release(encoder->places);
    nn_runtime_free(encoder->runtime, encoder->d_normed);
    nn_params_destroy(encoder->params);
    *encoder = (struct vision_encoder){0};
}

/* --------------------------------------- passes in pieces ------------------------------------- */

static const encoder_piece whole = {1, 1};

/* The first block behind a piece. */
static int64_t end_of(const vision_encoder *encoder, int64_t piece, int64_t of)
{
    return encoder->blocks.count * piece / of;
}

static mimo_status embed(vision_encoder *encoder, encoder_saved *saved, const nn_real *patches,
                         int64_t pictures)
{
    nn_real *first = saved->blocks.x[0];
    int64_t tokens = encoder->sequence.rows;
    TRY(nn_linear_forward(&encoder->patch, &saved->patch, first, patches, tokens * pictures,
                          pictures));
    TRY(nn_embedding_add(&encoder->position, &saved->position, first, encoder->places, tokens,
                         pictures));
    return nn_stack_begin(&encoder->blocks, &saved->blocks, &saved->sequence);
}

static mimo_status project(vision_encoder *encoder, encoder_saved *saved, nn_real *rows,
                           int64_t pictures)
{
    nn_real *last = saved->blocks.x[encoder->blocks.count];
    int64_t count = encoder->sequence.rows * pictures;
    TRY(nn_norm_forward(&encoder->norm, &saved->norm, saved->normed, last, count));
    return nn_linear_forward(&encoder->project, &saved->project, rows, saved->normed, count,
                             pictures);
}

mimo_status encoder_forward_piece(vision_encoder *encoder, int64_t state, nn_real *rows,
                                  const nn_real *patches, int64_t pictures, encoder_piece at)
{
    encoder_saved *saved = &encoder->saved[state];
    saved->sequence = encoder->sequence;
    saved->sequence.batch = pictures;
    if (pictures == 0)
        return MIMO_OK;
    if (at.piece == 1)
        TRY(embed(encoder, saved, patches, pictures));
    TRY(nn_stack_forward_blocks(&encoder->blocks, &saved->blocks,
                                end_of(encoder, at.piece, at.of)));
    return at.piece == at.of ? project(encoder, saved, rows, pictures) : MIMO_OK;
}

mimo_status encoder_forward(vision_encoder *encoder, int64_t state, nn_real *rows,
                            const nn_real *patches, int64_t pictures)
{
    return encoder_forward_piece(encoder, state, rows, patches, pictures, whole);
}

static mimo_status project_backward(vision_encoder *encoder, encoder_saved *saved, nn_real *d_rows)
{
    nn_real *last = saved->blocks.x[encoder->blocks.count];
    TRY(nn_linear_backward(&encoder->project, &saved->project, encoder->d_normed, d_rows));
    return nn_norm_backward_input(&encoder->norm, &saved->norm, last, encoder->d_normed, NULL);
}

static mimo_status embed_backward(vision_encoder *encoder, encoder_saved *saved)
{
    nn_real *first = saved->blocks.x[0];
    TRY(nn_embedding_backward_params(&encoder->position, &saved->position, first));
    return nn_linear_backward(&encoder->patch, &saved->patch, NULL, first);
}

mimo_status encoder_backward_piece(vision_encoder *encoder, int64_t state, nn_real *d_rows,
                                   encoder_piece at)
{
    encoder_saved *saved = &encoder->saved[state];
    if (at.piece == at.of)
        TRY(project_backward(encoder, saved, d_rows));
    TRY(nn_stack_backward_blocks(&encoder->blocks, &saved->blocks,
                                 end_of(encoder, at.piece - 1, at.of)));
    return at.piece == 1 ? embed_backward(encoder, saved) : MIMO_OK;
}

mimo_status encoder_backward(vision_encoder *encoder, int64_t state, nn_real *d_rows)
{
    return encoder_backward_piece(encoder, state, d_rows, whole);
}

mimo_status encoder_visit(vision_encoder *encoder, nn_lora_visit *visit)
{
    TRY(nn_linear_visit(&encoder->patch, visit));
    TRY(nn_stack_visit(&encoder->blocks, visit));
    return nn_linear_visit(&encoder->project, visit);
}

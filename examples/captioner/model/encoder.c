#include "captioner/model/encoder.h"

#include <stdio.h>

#include "captioner/model/layer_widths.h"
#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"

static mimo_status reserve_rooms(vision_encoder *out, const encoder_desc *desc)
{
    out->layers = desc->layers;
    out->hidden = desc->hidden;
    out->rows = desc->tokens * desc->pictures;
    TRY(memory_reserve(&out->blocks, desc->layers, sizeof *out->blocks));
    TRY(memory_reserve(&out->places, desc->tokens, sizeof *out->places));
    for (int64_t i = 0; i < desc->tokens; i++)
        out->places[i] = i;
    TRY(memory_reserve(&out->activations, desc->layers + 2, sizeof *out->activations));
    for (int64_t i = 0; i < desc->layers + 2; i++)
        TRY(nn_runtime_reserve(out->runtime, &out->activations[i], out->rows * out->hidden,
                               sizeof(nn_real)));
    return nn_runtime_reserve(out->runtime, &out->gradient, out->rows * out->hidden,
                              sizeof *out->gradient);
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
                                               EMBEDDING_STD, NN_REPLICATED}));
    TRY(nn_embedding_reserve(&out->position, desc->tokens));
    for (int64_t i = 0; i < desc->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "encoder.block%d", (int)i);
        nn_block_desc block = block_of(name, hidden, desc->heads, desc->layers);
        block.max_rows = desc->tokens;
        block.max_batch = desc->pictures;
        block.adapters = desc->adapters;
        TRY(nn_block_init(&out->blocks[i], out->params, desc->tp, &block));
    }
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
    TRY(nn_params_create(&out->params, &store));
    TRY(reserve_rooms(out, desc));
    TRY(add_layers(out, desc));
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
    for (int64_t i = 0; encoder->blocks && i < encoder->layers; i++)
        nn_block_release(&encoder->blocks[i]);
    nn_embedding_release(&encoder->position);
    nn_linear_release(&encoder->patch);
    for (int64_t i = 0; encoder->activations && i < encoder->layers + 2; i++)
        nn_runtime_free(encoder->runtime, encoder->activations[i]);
    memory_release(encoder->activations);
    memory_release(encoder->blocks);
    memory_release(encoder->places);
    nn_runtime_free(encoder->runtime, encoder->gradient);
    nn_params_destroy(encoder->params);
    *encoder = (struct vision_encoder){0};
}

mimo_status encoder_forward(vision_encoder *encoder, nn_real *rows, const nn_real *patches)
{
    nn_real **x = encoder->activations;
    int64_t tokens = encoder->sequence.rows, pictures = encoder->sequence.batch;
    TRY(nn_linear_forward(&encoder->patch, x[0], patches, encoder->rows, pictures));
    TRY(nn_embedding_add(&encoder->position, x[0], encoder->places, tokens, pictures));
    for (int64_t i = 0; i < encoder->layers; i++, x++)
        TRY(nn_block_forward(&encoder->blocks[i], x[1], x[0], &encoder->sequence));
    TRY(nn_norm_forward(&encoder->norm, x[1], x[0], encoder->rows));
    return nn_linear_forward(&encoder->project, rows, x[1], encoder->rows, pictures);
}

mimo_status encoder_backward(vision_encoder *encoder, const nn_real *d_rows)
{
    nn_real *d = encoder->gradient;
    TRY(nn_linear_backward(&encoder->project, d, d_rows));
    TRY(nn_norm_backward(&encoder->norm, d, d, NULL));
    for (int64_t i = encoder->layers; i-- > 0;)
        TRY(nn_block_backward(&encoder->blocks[i], d, d));
    TRY(nn_embedding_backward(&encoder->position, d));
    return nn_linear_backward(&encoder->patch, NULL, d);
}

mimo_status encoder_visit(vision_encoder *encoder, nn_linear_visit *visit)
{
    TRY(visit(&encoder->patch));
    for (int64_t i = 0; i < encoder->layers; i++)
        TRY(nn_block_visit(&encoder->blocks[i], visit));
    return visit(&encoder->project);
}

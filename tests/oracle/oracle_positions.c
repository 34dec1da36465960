#include "oracle_positions.h"

#include <string.h>

#include "core/check.h"
#include "core/memory.h"

static mimo_status create_alignments(oracle_positions *out, const ref_sizes *sizes)
{
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    desc.modalities = 1;
    desc.special = &sizes->image_id;
    desc.vocabulary = sizes->text_vocabulary;
    desc.memory = out->topology->runtime->memory;
    int64_t states = out->llm->first ? out->llm->chunk_states[0] : 0;
    MIMO_TRY(mimo_reserve(&out->of_state, states, sizeof *out->of_state));
    for (; out->states < states; out->states++)
        MIMO_TRY(mimo_alignment_create(&out->of_state[out->states], &desc));
    return MIMO_OK;
}

mimo_status oracle_positions_create(oracle_positions *out, const oracle_topology *topology,
                                    const ref_sizes *sizes, const language_model *llm)
{
    out->topology = topology;
    out->llm = llm;
    out->tokens = sizes->image_tokens;
    MIMO_TRY(create_alignments(out, sizes));
    return nn_runtime_reserve(topology->runtime, &out->whole,
                              llm->seq * llm->sentences * llm->hidden, sizeof *out->whole);
}

void oracle_positions_destroy(oracle_positions *positions)
{
    if (positions->topology)
        nn_runtime_free(positions->topology->runtime, positions->whole);
    while (positions->states > 0)
        mimo_alignment_destroy(positions->of_state[--positions->states]);
    mimo_release(positions->of_state);
    memset(positions, 0, sizeof *positions);
}

/* Text has no data: the LLM looks it up. */
typedef struct row_views {
    mimo_tensor image, text, whole, own;
} row_views;

static row_views views_of(const oracle_positions *positions, int64_t state, const nn_real *image)
{
    const language_model *llm = positions->llm;
    int64_t batch = llm->sentences, tokens = positions->tokens, hidden = llm->hidden;
    row_views views;
    void *rows = (void *)(uintptr_t)image;
    views.image = positions->topology->sample_major
                      ? mimo_tensor_3d(rows, NN_DTYPE, "bsh", batch, tokens, hidden)
                      : mimo_tensor_3d(rows, NN_DTYPE, "sbh", tokens, batch, hidden);
    views.text = mimo_tensor_2d(NULL, NN_DTYPE, "th", batch * (llm->seq - tokens), hidden);
    views.whole = mimo_tensor_3d(positions->whole, NN_DTYPE, "sbh", llm->seq, batch, hidden);
    views.own =
        mimo_tensor_3d(language_input(llm, state), NN_DTYPE, "sbh", llm->own, batch, hidden);
    views.image.memory = views.text.memory = views.whole.memory = views.own.memory =
        positions->topology->runtime->memory;
    return views;
}

mimo_status oracle_positions_put(const oracle_positions *positions, int64_t state,
                                 const nn_real *image_rows, const int64_t *ids)
{
    const language_model *llm = positions->llm;
    row_views views = views_of(positions, state, image_rows);
    mimo_stream stream = positions->topology->runtime->stream;
    mimo_tensor sentences =
        mimo_tensor_2d((void *)(uintptr_t)ids, MIMO_I64, "bs", llm->sentences, llm->seq);
    MIMO_TRY(mimo_alignment_update(positions->of_state[state], &sentences, stream));
    MIMO_TRY(mimo_alignment_merge(positions->of_state[state], &views.whole, &views.image,
                                  &views.text, stream));
    return mimo_partition_shard(llm->partition, MIMO_EMBEDDINGS, &views.own, &views.whole, stream);
}

mimo_status oracle_positions_back(const oracle_positions *positions, int64_t state,
                                  nn_real *d_image)
{
    const rank_topology *ranks = &positions->topology->ranks;
    row_views views = views_of(positions, state, d_image);
    mimo_stream stream = positions->topology->runtime->stream;
    MIMO_TRY(mimo_partition_adjoint(ranks->partition, MIMO_EMBEDDINGS, &views.whole, &views.own,
                                    ranks->llm_tp, stream));
    return mimo_alignment_split(positions->of_state[state], &views.image, &views.text, &views.whole,
                                stream);
}

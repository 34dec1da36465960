/* The captioner's LLM over pipeline stages, one on each rank, against the whole one on one rank. In
 * the fixed order every bit is the same. Several micro-batches are in flight. */
#include <stdlib.h>
#include <string.h>

#include "captioner/captions/caption_batch.h"
#include "core/check.h"
#include "mpi_test.h"
#include "train/nn/params/nn_hash.h"
#include "train/nn/params/nn_initial.h"

enum {
    SEQ = 8,
    IMAGE_TOKENS = 3,
    SENTENCES = 2,
    HIDDEN = 16,
    LAYERS = 5, /* which no number of stages divides */
    MICRO_BATCHES = 3,
    ACTIVATION = SEQ * SENTENCES * HIDDEN,
};

typedef struct staged_language {
    nn_runtime runtime;
    mimo_partition *partition;
    layer_layout layout;
    language_model language;
    language_text texts[MICRO_BATCHES];
    int stage, stages;
} staged_language;

static mimo_status build(staged_language *own)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords coords = MIMO_PARTITION_COORDS_INIT;
    const nn_runtime_desc order = {.memory = MIMO_MEMORY_HOST, .order = NN_ORDER_FIXED};
    coords.cp_size = coords.tp_size = 1;
    MIMO_TRY(nn_runtime_init(&own->runtime, &order));
    MIMO_TRY(mimo_partition_create(&own->partition, &rule, &coords));
    MIMO_TRY(layer_layout_create(
        &own->layout, &(layer_layout_desc){.layers = LAYERS, .stages = own->stages, .chunks = 1}));
    const language_desc desc = {.stage = own->stage,
                                .stages = own->stages,
                                .layout = &own->layout,
                                .states = (const int64_t[]){MICRO_BATCHES},
                                .runtime = &own->runtime,
                                .partition = own->partition,
                                .seed = 5,
                                .words = CAPTION_WORDS,
                                .image_tokens = IMAGE_TOKENS,
                                .seq = SEQ,
                                .sentences = SENTENCES,
                                .hidden = HIDDEN,
                                .heads = 8,
                                .shards = 8,
                                .pairs = 1};
    MIMO_TRY(language_create(&own->language, &desc));
    for (int m = 0; m < MICRO_BATCHES; m++)
        MIMO_TRY(language_text_create(&own->texts[m], &own->language));
    return language_connect(&own->language);
}

static void release(staged_language *own)
{
    for (int m = 0; m < MICRO_BATCHES; m++)
        language_text_destroy(&own->texts[m]);
    language_destroy(&own->language);
    layer_layout_release(&own->layout);
    mimo_partition_destroy(own->partition);
    nn_runtime_release(&own->runtime);
}

/* Names of other letters and lengths in each sentence. */
static void read_text(staged_language *own, int m)
{
    int64_t ids[SENTENCES * SEQ], labels[SENTENCES * SEQ];
    const language_sentences sentences = {ids, labels, SENTENCES};
    for (int i = 0; i < SENTENCES * SEQ; i++) {
        int letter = i % SEQ - IMAGE_TOKENS, last = 1 + (m + i / SEQ) % 3;
        ids[i] = letter < 0 ? TOKEN_IMAGE : (letter > last ? TOKEN_PAD : 'a' + m + 3 * letter);
        labels[i] = letter >= -1 && letter < last ? 'a' + m + 3 * (letter + 1) : NN_IGNORE;
    }
    MPI_EXPECT_OK(language_read(&own->language, &own->texts[m], &sentences));
}

/* Rows as an encoder may give them: all of the tile, of which text rows take their places. */
static void write_images(staged_language *own, int m)
{
    nn_real *tile = language_input(&own->language, m);
    for (int64_t i = 0; i < ACTIVATION; i++)
        tile[i] = (nn_real)nn_uniform((uint64_t)m, "image", i);
}

/* `to` of stage p + `on` gets `from` of stage p. */
static void hop(staged_language *own, int p, int on, nn_real *to, const nn_real *from)
{
    nn_real rows[ACTIVATION];
    if (own->stage == p)
        memcpy(rows, from, sizeof rows);
    MPI_EXPECT_OK(mimo_comm_broadcast(mpi_test_comm(), rows, sizeof rows, p, NULL));
    if (own->stage == p + on)
        memcpy(to, rows, sizeof rows);
}

static void forward(staged_language *own, int m)
{
    language_model *language = &own->language;
    if (own->stage == 0)
        write_images(own, m);
    for (int p = 0; p < own->stages; p++) {
        if (p == own->stage)
            MPI_EXPECT_OK(language_forward(language, &own->texts[m], m));
        if (p + 1 < own->stages)
            hop(own, p, 1, language_input(language, m), language_output(language, m));
    }
}

static void backward_input(staged_language *own, int m)
{
    language_model *language = &own->language;
    for (int p = own->stages - 1; p >= 0; p--) {
        if (p == own->stage)
            MPI_EXPECT_OK(language_backward_input(language, m));
        if (p > 0)
            hop(own, p, -1, language_output(language, m), language_input(language, m));
    }
}

/* All micro-batches' gradients of parameters come last: each state keeps what they need. */
static void backward_params(staged_language *own)
{
    for (int m = 0; m < MICRO_BATCHES; m++)
        MPI_EXPECT_OK(language_backward_params(&own->language, &own->texts[m], m));
}

/* What a step leaves: summands of the whole gradient's hash, the losses, and on stage 0 the
 * gradients of the tiles. */
typedef struct left_behind {
    uint64_t hash;
    int64_t tokens;
    double losses;
    nn_real tiles[MICRO_BATCHES][ACTIVATION];
} left_behind;

static void take_step(left_behind *out, int stage, int stages)
{
    staged_language own = {.stage = stage, .stages = stages};
    nn_params *params;
    memset(out, 0, sizeof *out);
    MPI_EXPECT_OK(build(&own));
    params = own.language.params;
    MPI_EXPECT_OK(nn_params_zero_grad(params));
    for (int m = 0; m < MICRO_BATCHES; m++)
        read_text(&own, m);
    for (int m = 0; m < MICRO_BATCHES; m++)
        forward(&own, m);
    for (int m = 0; m < MICRO_BATCHES; m++)
        backward_input(&own, m);
    backward_params(&own);
    MPI_EXPECT_OK(language_losses(&own.language, &out->losses, &out->tokens));
    MPI_EXPECT_OK(nn_params_settle(params, 1));
    MPI_EXPECT_OK(nn_hash_params(&out->hash, params, NN_GRAD));
    for (int m = 0; m < MICRO_BATCHES && stage == 0; m++)
        memcpy(out->tiles[m], language_input(&own.language, m), sizeof out->tiles[m]);
    release(&own);
}

MPI_TEST(captioner_stages, bits_of_one_rank)
{
    static left_behind own, whole;
    uint64_t hashes[16], sum = 0;
    int stage = mpi_test_rank(), stages = mpi_test_size();
    take_step(&own, stage, stages);
    MPI_EXPECT_OK(mimo_comm_host_allgather(mpi_test_comm(), hashes, &own.hash, sizeof own.hash));
    for (int p = 0; p < stages; p++)
        sum += hashes[p];
    /* alone: hops are calls of all ranks, and one stage has none */
    take_step(&whole, 0, 1);
    MPI_EXPECT(sum == whole.hash, "%d stages: gradients have other bits", stages);
    bool last = stage == stages - 1;
    MPI_EXPECT(own.tokens == (last ? whole.tokens : 0) && whole.tokens > 10, "%d tokens of %d",
               (int)own.tokens, (int)whole.tokens);
    MPI_EXPECT(own.losses == (last ? whole.losses : 0), "losses %a, not %a", own.losses,
               whole.losses);
    MPI_EXPECT(stage > 0 || memcmp(own.tiles, whole.tiles, sizeof own.tiles) == 0,
               "%d stages: gradients of the tiles have other bits", stages);
}

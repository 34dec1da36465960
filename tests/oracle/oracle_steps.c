#include "oracle_steps.h"

#include <stdio.h>

#include "core/check.h"
#include "core/mutation.h"

#include "oracle_mixtures.h"

/* ------------------------------------------ captures ----------------------------------------- */

/* A tile of `batch` samples. Row (s, b) of it is row sample * length + position of the whole. */
typedef struct tile_rows {
    bool encoder; /* samples from `first` on of group `part`; otherwise of a
                                 micro-batch */
    int64_t part, first, batch;
    int64_t local, length;    /* positions on this rank, and all of them */
    const int64_t *positions; /* [local]; NULL: all */
    bool sample_major;        /* [batch, local], not [local, batch] */
    bool images;              /* rows of image tokens alone */
} tile_rows;

typedef struct tile_columns {
    int64_t first, count;
} tile_columns;

/* Of all samples, the one in slot i of a group; -1: the last group has fewer micro-batches. Each
 * rank of the LLM has the samples of its micro-batches one after the other. */
static int64_t sample_of_group(const oracle_candidate *candidate, int64_t group, int64_t i)
{
    int64_t each = candidate->sentences, lane = each * candidate->group;
    int64_t m = group * candidate->group + i % lane / each;
    int64_t sample = i / lane * each + i % each;
    bool exists = m < candidate->shape.micro_batches;
    return exists ? m * candidate->shape.micro_batch + sample : -1;
}

static int64_t sample_at(const oracle_candidate *candidate, const tile_rows *rows, int64_t b)
{
    return rows->encoder ? sample_of_group(candidate, rows->part, rows->first + b)
                         : rows->part * candidate->shape.micro_batch + rows->first + b;
}

/* Capture what is in candidate->on_host. */
static void capture_here(const oracle_candidate *candidate, oracle_capture *capture,
                         const char *name, const tile_rows *rows, tile_columns columns)
{
    int64_t count = rows->local * rows->batch;
    for (int64_t i = 0; i < count; i++) {
        int64_t s = rows->sample_major ? i % rows->local : i / rows->batch;
        int64_t b = rows->sample_major ? i / rows->local : i % rows->batch;
        int64_t sample = sample_at(candidate, rows, b);
        int64_t position = rows->positions ? rows->positions[s] : s;
        int64_t row = sample * rows->length + position;
        bool exists = sample >= 0 && sample < candidate->shape.samples;
        if (exists && rows->images)
            exists = candidate->step->ids[row] == candidate->sizes.image_id;
        candidate->row_of[i] = exists ? row : -1;
    }
    capture_block block = {name,          candidate->row_of, count,
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

static tile_rows encoder_rows(const oracle_candidate *candidate, int64_t group)
{
    int64_t tokens = candidate->sizes.image_tokens;
    return (tile_rows){.encoder = true,
                       .part = group,
                       .first = candidate->first_picture,
                       .batch = candidate->pictures,
                       .local = tokens,
                       .length = tokens};
}

/* Positions of the LLM's tiles. NULL is the whole sequence of `local` positions. */
static tile_rows llm_rows(const oracle_candidate *candidate, int64_t m, int64_t local,
                          const int64_t *positions)
{
    return (tile_rows){.part = m,
                       .first = candidate->first_sentence,
                       .batch = candidate->sentences,
                       .local = local,
                       .length = positions ? candidate->sizes.seq : local,
                       .positions = positions};
}

static void capture_encoder(const oracle_candidate *candidate, int64_t group, int64_t slot)
{
    oracle_capture *capture = candidate->capture;
    tile_rows rows = encoder_rows(candidate, group);
    tile_columns all = {0, candidate->sizes.hidden};
    const encoder_saved *saved = &candidate->encoder.saved[slot];
    nn_real *const *x = saved->blocks.x;
    int64_t layers = candidate->sizes.encoder_layers;
    char name[32];
    capture_tile(candidate, capture, "encoder.input", &rows, all, x[0]);
    for (int64_t i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "encoder.block%d", (int)i);
        capture_tile(candidate, capture, name, &rows, all, x[i + 1]);
    }
    capture_tile(candidate, capture, "encoder.norm", &rows, all, saved->normed);
    capture_tile(candidate, capture, "encoder.rows", &rows, all,
                 candidate->tiles[slot].tile[MIMO_SRC]);
}

static void capture_losses(const oracle_candidate *candidate, const tile_rows *rows, int64_t state)
{
    oracle_capture *capture = candidate->capture;
    const nn_loss_saved *saved = &candidate->llm.saved[state].loss;
    MIMO_KEEP_FIRST(capture->status,
                    nn_loss_read_rows(&candidate->llm.loss, saved, candidate->losses));
    for (int64_t i = 0; i < saved->rows; i++)
        candidate->on_host[i] = (nn_real)candidate->losses[i];
    capture_here(candidate, capture, "losses", rows, (tile_columns){0, 1});
}

static void capture_logits(const oracle_candidate *candidate, const char *name, int64_t m,
                           int64_t state)
{
    const language_model *llm = &candidate->llm;
    tile_columns logits = {candidate->topology->ranks.llm_tp_rank * llm->head.out, llm->head.out};
    tile_rows share = llm_rows(candidate, m, llm->share, llm->positions);
    capture_tile(candidate, candidate->capture, name, &share, logits, llm->saved[state].logits);
}

/* A micro-batch's rows in the tile of its group. */
static nn_real *image_rows(const oracle_candidate *candidate, const pipeline_task *task)
{
    return oracle_tiles_part(&candidate->tiles[task->slot], task->part);
}

/* Text rows, which are sample-major, of the positions that this rank keeps. */
static void capture_text(const oracle_candidate *candidate, const pipeline_task *task)
{
    const language_model *llm = &candidate->llm;
    const language_text *text = &candidate->texts[task->state];
    int64_t first = task->index * candidate->shape.micro_batch + candidate->first_sentence;
    int64_t count = 0, bytes = text->count * llm->hidden * (int64_t)sizeof(nn_real);
    MIMO_KEEP_FIRST(candidate->capture->status,
                    nn_runtime_read(candidate->topology->runtime, candidate->on_host,
                                    llm->saved[task->state].text_rows, bytes));
    for (int64_t b = 0; b < llm->sentences; b++)
        for (int64_t s = 0; s < llm->own; s++) {
            int64_t row = (first + b) * llm->seq + llm->own_positions[s];
            bool exists = first + b < candidate->shape.samples;
            if (candidate->step->ids[row] != candidate->sizes.image_id)
                candidate->row_of[count++] = exists ? row : -1;
        }
    capture_block block = {"llm.merged", candidate->row_of, count, 0,
                           llm->hidden,  candidate->on_host};
    capture_add(candidate->capture, &block);
}

/* What comes before the blocks. */
static void capture_first(const oracle_candidate *candidate, const pipeline_task *task)
{
    const language_model *llm = &candidate->llm;
    oracle_capture *capture = candidate->capture;
    tile_columns all = {0, candidate->sizes.hidden};
    tile_rows image = llm_rows(candidate, task->index, candidate->sizes.image_tokens, NULL);
    tile_rows whole = llm_rows(candidate, task->index, candidate->sizes.seq, NULL);
    tile_rows own = llm_rows(candidate, task->index, llm->own, llm->own_positions);
    image.sample_major = candidate->topology->sample_major;
    whole.images = true;
    capture_tile(candidate, capture, "bridge.rows", &image, all, image_rows(candidate, task));
    capture_tile(candidate, capture, "llm.merged", &whole, all, candidate->positions.whole);
    capture_text(candidate, task);
    capture_tile(candidate, capture, "llm.input", &own, all, language_input(llm, task->state));
}

static void capture_blocks(oracle_candidate *candidate, const pipeline_task *task)
{
    const language_model *llm = &candidate->llm;
    tile_columns all = {0, candidate->sizes.hidden};
    tile_rows own = llm_rows(candidate, task->index, llm->own, llm->own_positions);
    char name[32];
    for (int64_t i = 0; i < llm->blocks[task->chunk].count; i++) {
        snprintf(name, sizeof name, "llm.block%d", (int)(llm->first_block[task->chunk] + i));
        capture_tile(candidate, candidate->capture, name, &own, all,
                     llm->saved[task->state].blocks.x[i + 1]);
    }
    oracle_mixtures_capture(candidate, task->state);
}

/* What comes behind them. */
static void capture_last(const oracle_candidate *candidate, const pipeline_task *task)
{
    const language_model *llm = &candidate->llm;
    tile_columns all = {0, candidate->sizes.hidden};
    tile_rows own = llm_rows(candidate, task->index, llm->own, llm->own_positions);
    tile_rows share = llm_rows(candidate, task->index, llm->share, llm->positions);
    capture_tile(candidate, candidate->capture, "llm.norm", &own, all,
                 llm->saved[task->state].normed);
    capture_logits(candidate, "llm.logits", task->index, task->state);
    capture_losses(candidate, &share, task->state);
}

static void capture_llm(oracle_candidate *candidate, const pipeline_task *task)
{
    const language_model *llm = &candidate->llm;
    if (candidate->logits) {
        if (language_ends(llm, task->state))
            capture_logits(candidate, candidate->logits, task->index, task->state);
        return;
    }
    if (task->first)
        capture_first(candidate, task);
    capture_blocks(candidate, task);
    if (language_ends(llm, task->state))
        capture_last(candidate, task);
}

/* -------------------------------------------- steps ------------------------------------------ */

/* A group's patches. */
static nn_real *patches_of(const oracle_candidate *candidate, int64_t slot)
{
    const ref_sizes *sizes = &candidate->sizes;
    return candidate->patches +
           slot * sizes->image_tokens * candidate->pictures * sizes->patch_values;
}

/* This rank's pictures of a group, from sample-major [P, values] to [P, b, values]; zeros where it
 * has none. */
static mimo_status load_patches(oracle_candidate *candidate, int64_t group, int64_t slot)
{
    nn_real *to = candidate->on_host;
    int64_t tokens = candidate->sizes.image_tokens, values = candidate->sizes.patch_values;
    int64_t size = candidate->group * candidate->shape.micro_batch;
    for (int64_t p = 0; p < tokens; p++)
        for (int64_t b = 0; b < candidate->pictures; b++) {
            int64_t sample =
                sample_of_group(candidate, group, (candidate->first_picture + b) % size);
            const double *from =
                sample < 0 ? NULL : candidate->step->patches + (sample * tokens + p) * values;
            for (int64_t i = 0; i < values; i++)
                *to++ = from ? (nn_real)from[i] : 0;
        }
    return nn_runtime_write(candidate->topology->runtime, patches_of(candidate, slot),
                            candidate->on_host, (to - candidate->on_host) * (int64_t)sizeof *to);
}

static mimo_status encode(oracle_candidate *candidate, const pipeline_task *task)
{
    MIMO_TRY(load_patches(candidate, task->index, task->slot));
    MIMO_TRY(encoder_forward(&candidate->encoder, task->slot,
                             candidate->tiles[task->slot].tile[MIMO_SRC],
                             patches_of(candidate, task->slot), candidate->pictures));
    if (candidate->capture && !candidate->logits)
        capture_encoder(candidate, task->index, task->slot);
    return MIMO_OK;
}

static mimo_status encode_backward(oracle_candidate *candidate, const pipeline_task *task)
{
    oracle_tiles *tiles = &candidate->tiles[task->slot];
    tile_rows rows = encoder_rows(candidate, task->index);
    tile_columns all = {0, candidate->sizes.hidden};
    MIMO_TRY(oracle_tiles_take_back(tiles));
    if (candidate->capture)
        capture_tile(candidate, candidate->capture, "encoder.d_rows", &rows, all,
                     tiles->tile[MIMO_SRC]);
    if (task->index == candidate->groups - 1 && MIMO_MUTATED("last-group-dropped"))
        return MIMO_OK;
    return encoder_backward(&candidate->encoder, task->slot, tiles->tile[MIMO_SRC]);
}

/* The losses stand behind the last block. A stage without them has the labels as well, and adds
 * nothing. */
static mimo_status add_losses(oracle_candidate *candidate, int64_t state)
{
    const language_model *llm = &candidate->llm;
    double sum = 0;
    int64_t tokens = llm->rows;
    if (language_ends(llm, state))
        MIMO_TRY(language_losses(&candidate->llm, &sum, &tokens));
    else if (llm->last || !MIMO_MUTATED("loss-on-every-stage"))
        return MIMO_OK;
    return mimo_gradient_add(candidate->topology->ranks.gradient, sum, tokens);
}

static const language_text *text_of(void *context, const pipeline_task *task)
{
    const oracle_candidate *candidate = context;
    return &candidate->texts[task->state];
}

static mimo_status begin_forward(void *context, const pipeline_task *task)
{
    oracle_candidate *candidate = context;
    language_model *llm = &candidate->llm;
    int64_t slot = task->index * candidate->shape.micro_batch + candidate->first_sentence;
    int64_t first = slot * candidate->sizes.seq;
    if (task->first)
        MIMO_TRY(oracle_tiles_take(&candidate->tiles[task->slot], task->part));
    const language_sentences sentences = {candidate->step->ids + first,
                                          candidate->step->labels + first, llm->sentences};
    language_text *text = &candidate->texts[task->state];
    MIMO_TRY(oracle_mixtures_begin(candidate, task->index, task->state));
    MIMO_TRY(language_read(llm, text, &sentences));
    return task->first ? oracle_positions_put(&candidate->positions, task->state,
                                              image_rows(candidate, task), sentences.ids)
                       : MIMO_OK;
}

static mimo_status end_forward(void *context, const pipeline_task *task)
{
    oracle_candidate *candidate = context;
    if (candidate->capture)
        capture_llm(candidate, task);
    return add_losses(candidate, task->state);
}

static mimo_status forward(oracle_candidate *candidate, const pipeline_task *task)
{
    MIMO_TRY(begin_forward(candidate, task));
    MIMO_TRY(language_forward(&candidate->llm, text_of(candidate, task), task->state));
    return end_forward(candidate, task);
}

static mimo_status give_rows(void *context, const pipeline_task *task)
{
    oracle_candidate *candidate = context;
    return task->first ? oracle_positions_back(&candidate->positions, task->state,
                                               image_rows(candidate, task))
                       : MIMO_OK;
}

static mimo_status backward_input(oracle_candidate *candidate, const pipeline_task *task)
{
    MIMO_TRY(language_backward_input(&candidate->llm, task->state));
    return give_rows(candidate, task);
}

/* Stage p does this half p micro-batches later than the other one: behind the last of these stand
 * the last p + 1 of this half. */
static mimo_status backward_params(oracle_candidate *candidate, const pipeline_task *task)
{
    int64_t behind = candidate->shape.micro_batches - 1 - candidate->topology->ranks.stage;
    if (task->index >= behind && MIMO_MUTATED("input-counts-as-last"))
        return MIMO_OK;
    return language_backward_params(&candidate->llm, &candidate->texts[task->state], task->state);
}

static mimo_status backward(oracle_candidate *candidate, const pipeline_task *task)
{
    MIMO_TRY(backward_input(candidate, task));
    MIMO_TRY(backward_params(candidate, task));
    return MIMO_MUTATED("weights-half-twice") ? backward_params(candidate, task) : MIMO_OK;
}

/* The half of backward that needs no other stage. */
static mimo_status weights(oracle_candidate *candidate, const pipeline_task *task)
{
    bool last = task->index == candidate->shape.micro_batches - 1;
    return last && MIMO_MUTATED("weight-of-last-dropped") ? MIMO_OK
                                                          : backward_params(candidate, task);
}

static mimo_status compute(void *context, const pipeline_task *task)
{
    oracle_pass_note(((const oracle_candidate *)context)->pass, task);
    switch (task->kind) {
    case MIMO_STEP_E:
        return encode(context, task);
    case MIMO_STEP_EB:
        return encode_backward(context, task);
    case MIMO_STEP_F:
        return forward(context, task);
    case MIMO_STEP_I:
        return backward_input(context, task);
    case MIMO_STEP_W:
        return weights(context, task);
    default:
        return backward(context, task);
    }
}

static mimo_status compute_pair(void *context, const pipeline_task *tasks, int64_t step)
{
    oracle_candidate *candidate = context;
    oracle_pass_note_pair(candidate->pass, tasks);
    return pair_pass_run(&candidate->pair, tasks, step);
}

static mimo_status begin(mimo_op **out, void *context, const pipeline_task *task)
{
    oracle_candidate *candidate = context;
    bool backward = task->kind == MIMO_STEP_BB;
    oracle_pass_note(candidate->pass, task);
    int64_t slot = task->slot, left = candidate->shape.micro_batches;
    left -= task->index * candidate->group;
    if (backward && left < candidate->group)
        MIMO_TRY(oracle_tiles_give_none(&candidate->tiles[slot], left));
    if (backward && MIMO_MUTATED("group-tile-overwritten"))
        slot = (slot + 1) % candidate->slots;
    return oracle_tiles_start(out, &candidate->tiles[slot], backward);
}

/* Where the gradient for the stage before lies. */
static nn_real *gradient(const oracle_candidate *candidate, const pipeline_task *task)
{
    int64_t state = task->state;
    if (MIMO_MUTATED("saved-of-last"))
        state = candidate->llm.states - 1;
    return language_input(&candidate->llm, state);
}

static nn_real *input(void *context, const pipeline_task *task)
{
    const oracle_candidate *candidate = context;
    int64_t state = task->state;
    if (task->kind != MIMO_STEP_F)
        return gradient(candidate, task);
    if (MIMO_MUTATED("hop-of-next-micro-batch"))
        state = (state + 1) % candidate->llm.states;
    return language_input(&candidate->llm, state);
}

static nn_real *output(void *context, const pipeline_task *task)
{
    const oracle_candidate *candidate = context;
    return language_output(&candidate->llm, task->state);
}

pipeline_work oracle_steps_of(oracle_candidate *candidate)
{
    return (pipeline_work){candidate, compute, compute_pair, begin, input, output};
}

pair_pass_work oracle_pairs_of(oracle_candidate *candidate)
{
    return (pair_pass_work){candidate, text_of, begin_forward, end_forward, give_rows, NULL};
}

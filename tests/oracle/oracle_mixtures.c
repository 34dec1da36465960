#include "oracle_mixtures.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/check.h"

/* Block i of a chunk; NULL: it is no mixture. */
static const nn_moe *mixture_in(const language_model *llm, int64_t chunk, int64_t i)
{
    const nn_stack *blocks = &llm->blocks[chunk];
    return blocks->kinds[i] == &nn_block_mixed ? &((const nn_block *)blocks->layers[i])->moe : NULL;
}

static nn_moe_saved *state_of(const language_saved *saved, int64_t i)
{
    return &((nn_block_saved *)saved->blocks.blocks[i])->moe;
}

const nn_moe *oracle_mixture_at(const language_model *llm, int64_t block)
{
    for (int64_t c = 0; c < llm->chunks; c++) {
        int64_t i = block - llm->first_block[c];
        if (i >= 0 && i < llm->blocks[c].count)
            return mixture_in(llm, c, i);
    }
    return NULL;
}

int64_t oracle_mixtures_rows(const language_model *llm)
{
    int64_t most = 0;
    for (int64_t c = 0; c < llm->chunks; c++)
        for (int64_t i = 0; i < llm->blocks[c].count; i++) {
            const nn_moe *moe = mixture_in(llm, c, i);
            most = moe && moe->capacity > most ? moe->capacity : most;
        }
    return most;
}

int64_t oracle_mixtures_elements(const language_model *llm)
{
    return oracle_mixtures_rows(llm) * llm->hidden; /* experts are H wide inside */
}

/* ------------------------------------------- begin ------------------------------------------- */

/* The tokens of the rows that this rank's blocks have. */
static void number_rows(int64_t *numbers, const oracle_candidate *candidate)
{
    const language_model *llm = &candidate->llm;
    const rank_topology *ranks = &candidate->topology->ranks;
    int64_t before = ranks->sp ? ranks->llm_tp_rank * llm->own_rows : 0;
    for (int64_t i = 0; i < llm->own_rows; i++)
        numbers[i] = oracle_replay_token(candidate->replay, before + i, llm->sentences);
}

mimo_status oracle_mixtures_begin(oracle_candidate *candidate, int64_t m, int64_t state)
{
    const language_model *llm = &candidate->llm;
    if (!candidate->replay)
        return MIMO_OK;
    candidate->replay->first = m * candidate->shape.micro_batch + candidate->first_sentence;
    candidate->replay->position = llm->positions;
    candidate->replay->positions = llm->share;
    number_rows(candidate->row_of, candidate);
    const language_saved *saved = &llm->saved[state];
    for (int64_t i = 0; i < saved->blocks.count; i++)
        if (mixture_in(llm, saved->chunk, i))
            MIMO_TRY(nn_runtime_write(llm->runtime, state_of(saved, i)->numbers, candidate->row_of,
                                      llm->own_rows * (int64_t)sizeof(int64_t)));
    return MIMO_OK;
}

/* ------------------------------------------ capture ------------------------------------------ */

/* One mixture after its forward. */
typedef struct mixture_view {
    const oracle_candidate *candidate;
    oracle_capture *capture, *sent;
    int64_t block;
    const nn_moe *moe;
    const nn_moe_saved *state;
} mixture_view;

static void read_back(const mixture_view *it, void *to, const void *from, int64_t count,
                      size_t size)
{
    MIMO_KEEP_FIRST(it->capture->status, nn_runtime_read(it->candidate->topology->runtime, to, from,
                                                         count * (int64_t)size));
}

/* Capture what is in candidate->on_host: rows [row_of] of it. */
static void capture_rows(const mixture_view *it, oracle_capture *to, const char *what,
                         const capture_block *rows)
{
    char name[32];
    capture_block block = *rows;
    snprintf(name, sizeof name, "llm.%s%d", what, (int)it->block);
    block.name = name;
    block.row_of = it->candidate->row_of;
    block.data = it->candidate->on_host;
    capture_add(to, &block);
}

/* ------------------------------------------- tokens ------------------------------------------ */

static void capture_own(const mixture_view *it, const char *what, const nn_real *from,
                        int64_t columns)
{
    const capture_block rows = {.count = it->state->kept.own.count, .columns = columns};
    read_back(it, it->candidate->on_host, from, rows.count * columns, sizeof *from);
    capture_rows(it, it->capture, what, &rows);
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The experts that the router would choose, by id. */
static void capture_choices(const mixture_view *it)
{
    int64_t k = it->moe->top_k, count = it->state->kept.own.count * k;
    int32_t *ids = (int32_t *)(void *)it->candidate->numbers;
    const capture_block rows = {.count = it->state->kept.own.count, .columns = k};
    read_back(it, ids, it->state->router.chosen, count, sizeof *ids);
    for (int64_t i = 0; i < rows.count; i++)
        qsort(ids + i * k, (size_t)k, sizeof *ids, compare_ids);
    for (int64_t i = 0; i < count; i++)
        it->candidate->on_host[i] = (nn_real)ids[i];
    capture_rows(it, it->capture, "choices", &rows);
}

static void capture_balance(const mixture_view *it)
{
    double *losses = it->candidate->losses;
    const capture_block rows = {.count = it->state->kept.own.count, .columns = 1};
    read_back(it, losses, it->state->router.losses, rows.count, sizeof *losses);
    for (int64_t i = 0; i < rows.count; i++)
        it->candidate->on_host[i] = (nn_real)losses[i];
    capture_rows(it, it->capture, "balance", &rows);
}

/* What this rank sends: a token's row for each of its choices, and the weights of these. */
static void capture_sent(const mixture_view *it)
{
    const nn_moe_saved *state = it->state;
    int64_t hidden = it->moe->hidden, first = it->moe->cut ? state->kept.own.first : 0;
    capture_block rows = {.count = state->kept.own.count, .columns = hidden};
    read_back(it, it->candidate->on_host, state->x + first * hidden, rows.count * hidden,
              sizeof *state->x);
    for (int64_t j = 0; j < it->moe->top_k; j++, rows.first += hidden)
        capture_rows(it, it->sent, "expert_rows", &rows);
    rows = (capture_block){.count = state->kept.own.count, .columns = it->moe->top_k};
    read_back(it, it->candidate->on_host, state->router.weights, rows.count * rows.columns,
              sizeof(nn_real));
    capture_rows(it, it->sent, "expert_weights", &rows);
}

static void capture_router(const mixture_view *it)
{
    const nn_router_saved *router = &it->state->router;
    const nn_row_range *own = &it->state->kept.own;
    for (int64_t i = 0; i < own->count; i++)
        it->candidate->row_of[i] =
            oracle_replay_token(it->candidate->replay, own->first + i, own->batch);
    capture_own(it, "scores", router->logits, it->moe->router.experts);
    capture_own(it, "weights", router->weights, it->moe->top_k);
    capture_choices(it);
    capture_balance(it);
    capture_sent(it);
}

/* ------------------------------------------- experts ----------------------------------------- */

/* The place of an expert among a token's choices; -1: it is none of them. */
static int64_t choice_of(const mixture_view *it, int64_t token, int64_t expert)
{
    const int32_t *ids = oracle_replay_find(it->candidate->replay, it->block, token);
    for (int64_t j = 0; ids && j < it->moe->top_k; j++)
        if (ids[j] == expert)
            return j;
    return -1;
}

/* Where rows of this rank's experts belong that are choice j of their token. A row whose expert is
 * no choice of its token goes behind the last one, where nothing is expected; it counts as the
 * first choice. */
static void find_rows(const mixture_view *it, const int32_t *ends, int64_t j)
{
    const int64_t *token = it->candidate->numbers;
    const oracle_replay *replay = it->candidate->replay;
    int64_t e = 0;
    for (int64_t i = 0; i < ends[it->moe->experts.count - 1]; i++) {
        while (ends[e] <= i)
            e++;
        int64_t choice = choice_of(it, token[i], it->moe->experts.first + e);
        it->candidate->row_of[i] = choice == j ? token[i] : -1;
        if (choice < 0 && j == 0)
            it->candidate->row_of[i] = replay->samples * replay->seq;
    }
}

/* Columns [first, first + columns) of each choice's `width`. */
typedef struct expert_columns {
    const char *what;
    const nn_real *data; /* [rows, columns] */
    int64_t width, first, columns;
} expert_columns;

static void capture_expert_rows(const mixture_view *it, const int32_t *ends,
                                const expert_columns *part)
{
    capture_block rows = {.count = ends[it->moe->experts.count - 1], .columns = part->columns};
    read_back(it, it->candidate->on_host, part->data, rows.count * rows.columns,
              sizeof *part->data);
    for (int64_t j = 0; j < it->moe->top_k; j++) {
        find_rows(it, ends, j);
        rows.first = j * part->width + part->first;
        capture_rows(it, it->capture, part->what, &rows);
    }
}

static void capture_experts(const mixture_view *it)
{
    const nn_experts *experts = &it->moe->experts;
    const nn_moe_saved *state = it->state;
    int64_t hidden = it->moe->hidden, inner = experts->inner;
    int32_t *ends = state->kept.ends;
    const int32_t *there = NULL;
    const nn_expert_coords *coords = &it->candidate->topology->ranks.experts.coords;
    const expert_columns parts[] = {{"expert_rows", state->kept.sent.x, hidden, 0, hidden},
                                    {"expert_weights", state->kept.sent.weights, 1, 0, 1},
                                    {"hidden", state->experts.activated, inner * coords->etp_size,
                                     inner * coords->etp_rank, inner}};
    MIMO_KEEP_FIRST(it->capture->status, mimo_route_ends(&there, state->kept.route));
    if (it->capture->status != MIMO_OK)
        return;
    read_back(it, ends, there, experts->count, sizeof *ends);
    read_back(it, it->candidate->numbers, state->kept.sent.numbers, ends[experts->count - 1],
              sizeof *state->kept.sent.numbers);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        capture_expert_rows(it, ends, &parts[i]);
}

/* -------------------------------------------- all -------------------------------------------- */

static void capture_result(const mixture_view *it)
{
    const capture_block rows = {.count = it->state->kept.rows, .columns = it->moe->hidden};
    number_rows(it->candidate->row_of, it->candidate);
    read_back(it, it->candidate->on_host, it->state->y, rows.count * rows.columns,
              sizeof *it->state->y);
    capture_rows(it, it->capture, "mixed", &rows);
}

void oracle_mixtures_capture(oracle_candidate *candidate, int64_t state)
{
    const language_model *llm = &candidate->llm;
    const language_saved *saved = &llm->saved[state];
    for (int64_t i = 0; i < saved->blocks.count; i++) {
        const nn_moe *moe = mixture_in(llm, saved->chunk, i);
        if (!moe)
            continue;
        const mixture_view it = {
            candidate, candidate->capture, &candidate->sent, llm->first_block[saved->chunk] + i,
            moe,       state_of(saved, i)};
        capture_router(&it);
        capture_experts(&it);
        capture_result(&it);
    }
}

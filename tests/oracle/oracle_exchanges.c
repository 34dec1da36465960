#include "oracle_exchanges.h"

#include <stdio.h>

#include "core/check.h"

#include "oracle_mixtures.h"

/* Calls and bytes of every kind, of the five groups that exchange. */
typedef struct all_counts {
    nn_exchange_counts encoder_tp, llm_tp, llm_cp, experts, loss;
} all_counts;

#define NAMES(group)                                                                        \
    group " sums", group " maxima", group " gathers", group " sum-scatters", group " rows", \
        group " combines", "bytes of " group " sums", "bytes of " group " maxima",          \
        "bytes of " group " gathers", "bytes of " group " sum-scatters",                    \
        "bytes of " group " rows", "bytes of " group " combines"

const char *const oracle_exchange_names[ORACLE_EXCHANGES] = {
    NAMES("encoder tp"), NAMES("llm tp"), NAMES("llm cp"), NAMES("experts"), NAMES("loss")};

const char *const oracle_walk_names[ORACLE_WALK] = {"steps of the schedule", "hops"};

static void add(nn_exchange_counts *counts, nn_exchange_kind kind, int64_t calls, int64_t bytes)
{
    counts->calls[kind] += calls;
    counts->bytes[kind] += calls * bytes;
}

/* Of the two sums of a loss the fixed order takes one in fixed point, so they are two calls. */
static void add_loss(nn_exchange_counts *counts, int64_t micro, int64_t rows, bool fixed)
{
    int64_t bytes = rows * (int64_t)sizeof(double);
    add(counts, NN_EXCHANGE_MAX, micro, bytes);
    add(counts, NN_EXCHANGE_SUM, fixed ? 2 * micro : micro, fixed ? bytes : 2 * bytes);
}

/* The balance loss adds the choices of whole sequences up, over tp and cp. */
static void add_balance(all_counts *counts, const oracle_candidate *candidate, int64_t mixtures)
{
    const oracle_topology *topology = candidate->topology;
    int64_t micro = candidate->sizes.balance > 0 ? candidate->shape.micro_batches * mixtures : 0;
    int64_t bytes = candidate->sentences * candidate->sizes.experts * (int64_t)sizeof(int64_t);
    if (topology->ranks.llm_tp)
        add(&counts->llm_tp, NN_EXCHANGE_SUM, micro, bytes);
    if (topology->ranks.llm_cp_group)
        add(&counts->llm_cp, NN_EXCHANGE_SUM, micro, bytes);
}

/* Each mixture sends this rank's tokens to experts and back, forward and backward; and weights once
 * each way. Where it cuts the rows, it gathers them both ways. */
static void add_mixtures(all_counts *counts, const oracle_candidate *candidate, int64_t mixtures)
{
    const oracle_topology *topology = candidate->topology;
    int64_t width = candidate->sizes.hidden * (int64_t)sizeof(nn_real);
    int64_t rows = candidate->llm.share * candidate->sentences, tp = topology->tp_size;
    int64_t micro = candidate->shape.micro_batches * mixtures;
    int64_t part = (rows + tp - 1) / tp, first = part * topology->ranks.llm_tp_rank;
    int64_t own = first >= rows ? 0 : first + part <= rows ? part : rows - first;
    int64_t weights = candidate->sizes.top_k * (int64_t)sizeof(nn_real);
    for (int kind = NN_EXCHANGE_ROWS; kind <= NN_EXCHANGE_COMBINE; kind++) {
        add(&counts->experts, (nn_exchange_kind)kind, micro, own * width);
        add(&counts->experts, (nn_exchange_kind)kind, micro, own * (width + weights));
    }
    if (topology->ranks.llm_tp && !topology->ranks.sp)
        add(&counts->llm_tp, NN_EXCHANGE_GATHER, 2 * micro, tp * part * width);
}

/* The blocks of this stage. */
static int64_t layers_of(const language_model *llm)
{
    int64_t layers = 0;
    for (int64_t c = 0; c < llm->chunks; c++)
        layers += llm->blocks[c].count;
    return layers;
}

static int64_t mixtures_of(const oracle_candidate *candidate)
{
    int64_t mixtures = 0;
    for (int64_t i = 0; i < candidate->sizes.llm_layers; i++)
        mixtures += oracle_mixture_at(&candidate->llm, i) != NULL;
    return mixtures;
}

/* A block has a column-parallel and a row-parallel layer in each of its halves. Each of the four
 * exchanges its rows once, forward or backward. Under sp it does so both ways. */
static all_counts expected(const oracle_candidate *candidate)
{
    const ref_sizes *sizes = &candidate->sizes;
    const oracle_topology *topology = candidate->topology;
    int64_t width = sizes->hidden * (int64_t)sizeof(nn_real),
            micro = candidate->shape.micro_batches;
    int64_t pictures = candidate->pictures * sizes->image_tokens;
    int64_t rows = candidate->llm.share * candidate->sentences;
    bool last = topology->ranks.stage == topology->ranks.stages - 1;
    int64_t layers = layers_of(&candidate->llm), mixtures = mixtures_of(candidate);
    int64_t linears = 4 * layers - 2 * mixtures + last; /* and the head */
    bool fixed = topology->runtime->order == NN_ORDER_FIXED;
    all_counts counts = {0};
    add_mixtures(&counts, candidate, mixtures);
    add_balance(&counts, candidate, mixtures);
    if (topology->ranks.encoder_tp)
        add(&counts.encoder_tp, NN_EXCHANGE_SUM, candidate->groups * 4 * sizes->encoder_layers,
            pictures * width);
    if (topology->ranks.sp) {
        add(&counts.llm_tp, NN_EXCHANGE_GATHER, micro * linears, rows * width);
        add(&counts.llm_tp, NN_EXCHANGE_SUM_SCATTER, micro * linears, rows * width);
    } else if (topology->ranks.llm_tp) {
        add(&counts.llm_tp, NN_EXCHANGE_SUM, micro * linears, rows * width);
    }
    if (topology->ranks.llm_cp_group) { /* keys and values of this rank's heads, of all cp ranks */
        int64_t keys =
            mimo_comm_size(topology->ranks.llm_cp_group) * rows * 2 * width / topology->tp_size;
        add(&counts.llm_cp, NN_EXCHANGE_GATHER, micro * layers, keys);
        add(&counts.llm_cp, fixed ? NN_EXCHANGE_SUM_SCATTER : NN_EXCHANGE_SUM, micro * layers,
            keys);
    }
    if (topology->ranks.llm_tp && last)
        add_loss(&counts.loss, micro, rows, fixed);
    return counts;
}

void oracle_exchanges_reset(oracle_candidate *candidate)
{
    *nn_params_exchanged(candidate->encoder.params) = (nn_params_counts){0};
    *nn_params_exchanged(candidate->llm.params) = (nn_params_counts){0};
    candidate->llm.loss.exchanged = (nn_exchange_counts){0};
    candidate->hops.calls = 0;
}

/* The list ran as it is printed, and each micro-batch went over each boundary of chunks
 * once each way. */
static void capture_walk(const oracle_candidate *candidate, oracle_capture *capture)
{
    const oracle_topology *topology = candidate->topology;
    int64_t outer =
        (topology->ranks.stage == 0) + (topology->ranks.stage == topology->ranks.stages - 1);
    int64_t hops = 2 * (2 * candidate->llm.chunks - outer) * candidate->shape.micro_batches;
    bool printed = false;
    MIMO_KEEP_FIRST(capture->status, oracle_pass_was_printed(&printed, &candidate->train));
    capture_scalar(capture, oracle_walk_names[0], printed);
    capture_scalar(capture, oracle_walk_names[1], 1 + (double)(candidate->hops.calls - hops));
}

static void capture_counts(oracle_capture *capture, const char *prefix, const all_counts *formula,
                           const all_counts *counted)
{
    char name[64];
    const nn_exchange_counts *want = &formula->encoder_tp, *got = &counted->encoder_tp;
    for (int i = 0; i < ORACLE_EXCHANGES; i++) {
        int group = i / (2 * NN_EXCHANGE_KINDS), kind = i % NN_EXCHANGE_KINDS;
        bool bytes = i / NN_EXCHANGE_KINDS % 2 == 1;
        int64_t more = bytes ? got[group].bytes[kind] - want[group].bytes[kind]
                             : got[group].calls[kind] - want[group].calls[kind];
        snprintf(name, sizeof name, "%s%s", prefix, oracle_exchange_names[i]);
        capture_scalar(capture, name, 1 + (double)more);
    }
}

static all_counts counts_of(nn_params *encoder, const language_model *llm)
{
    const nn_params_counts *counted = nn_params_exchanged(llm->params);
    return (all_counts){nn_params_exchanged(encoder)->tp, counted->tp, counted->cp,
                        counted->experts, llm->loss.exchanged};
}

void oracle_exchanges_capture(oracle_candidate *candidate, oracle_capture *capture)
{
    const all_counts formula = expected(candidate);
    const all_counts counted = counts_of(candidate->encoder.params, &candidate->llm);
    capture_counts(capture, "", &formula, &counted);
    capture_walk(candidate, capture);
}

/* An encoder of which nothing is trained has a forward alone. */
void oracle_exchanges_capture_model(const oracle_candidate *candidate, const bridged_model *model,
                                    oracle_capture *capture)
{
    all_counts formula = expected(candidate);
    const all_counts counted = counts_of(model->encoder.params, &model->language);
    if (!nn_params_trainable(model->encoder.params)) {
        formula.encoder_tp.calls[NN_EXCHANGE_SUM] /= 2;
        formula.encoder_tp.bytes[NN_EXCHANGE_SUM] /= 2;
    }
    capture_counts(capture, "model ", &formula, &counted);
}

/* Private: the choice of experts for one row, and its gradients. One thread does a row, on the host
 * and on a device. The file that includes this defines NN_ROW_EXP, an exp of its own, and
 * NN_ROW_MUTATED: MIMO_MUTATED on the host, false on a device. Sums are in f64, in the order of the
 * ids. */
#ifndef MIMO_NN_NN_CHOICE_ROWS_H
#define MIMO_NN_NN_CHOICE_ROWS_H

#include <math.h>

#include "train/nn/ops/nn_everywhere.h"
#include "train/nn/ops/nn_ops.h"

#define NN_SCORE_FLOOR 1e-20 /* of a sum of sigmoids */

/* The score s of a logit, and ds / dlogit. `most` is the largest logit of the sum. */
static inline NN_EVERYWHERE nn_real nn_score(nn_router_scores scores, nn_real logit, nn_real most)
{
    return scores == NN_SCORES_SIGMOID ? 1 / (1 + NN_ROW_EXP(-logit)) : NN_ROW_EXP(logit - most);
}

static inline NN_EVERYWHERE double nn_score_slope(nn_router_scores scores, nn_real s)
{
    return scores == NN_SCORES_SIGMOID ? (double)s * (1 - (double)s) : (double)s;
}

/* ----------------------------------------- the choice ---------------------------------------- */

/* What experts are chosen by. */
static inline NN_EVERYWHERE nn_real nn_choice_key(const nn_choices *it, const nn_real *logits,
                                                  int64_t e)
{
    if (it->scores != NN_SCORES_SIGMOID)
        return logits[e];
    nn_real s = nn_score(it->scores, logits[e], 0);
    return it->bias ? s + it->bias[e] : s;
}

/* Whether expert e, of key a, comes before expert f, of key b: the larger key, of equals the lower
 * id. */
static inline NN_EVERYWHERE bool nn_choice_before(nn_real a, int64_t e, nn_real b, int64_t f)
{
    if (NN_ROW_MUTATED("high-id-first"))
        return a > b || (a == b && e > f);
    return a > b || (a == b && e < f);
}

/* The first expert behind (key, last) in the order of the choice; -1: none, as a key is NaN. */
static inline NN_EVERYWHERE int32_t nn_choice_next(const nn_choices *it, const nn_real *logits,
                                                   nn_real key, int64_t last)
{
    nn_real best = 0;
    int32_t found = -1;
    for (int64_t e = 0; e < it->experts; e++) {
        nn_real at = nn_choice_key(it, logits, e);
        bool behind = last < 0 || nn_choice_before(key, last, at, e);
        if (isnan(at))
            return -1;
        if (behind && (found < 0 || nn_choice_before(at, e, best, found))) {
            best = at;
            found = (int32_t)e;
        }
    }
    return found;
}

static inline NN_EVERYWHERE bool nn_row_is_masked(const uint8_t *masked, int64_t row)
{
    return masked && masked[row] != 0;
}

static inline NN_EVERYWHERE void nn_row_choose(const nn_choices *it, int64_t row)
{
    const nn_real *logits = it->logits + row * it->experts;
    int32_t *chosen = it->chosen + row * it->top_k;
    nn_real key = 0;
    for (int64_t j = 0, last = -1; j < it->top_k; j++) {
        int32_t next = nn_choice_next(it, logits, key, last);
        chosen[j] = next < 0 ? (int32_t)j : next;
        last = next;
        key = next < 0 ? 0 : nn_choice_key(it, logits, next);
    }
    for (int64_t j = 0; j < it->top_k; j++) {
        int32_t id = it->forced ? it->forced[row * it->top_k + j] : chosen[j];
        it->ids[row * it->top_k + j] = nn_row_is_masked(it->masked, row) ? -1 : id;
    }
}

/* ------------------------------------- the sum of scores ------------------------------------- */

/* The scores that weights are divided by: of all experts, or of the choices of a row. */
typedef struct nn_score_set {
    nn_router_scores scores;
    const nn_real *logits; /* of the row */
    const int32_t *ids;    /* NULL: all experts */
    int64_t count;
    nn_real most; /* the largest logit of the set */
    double sum;
} nn_score_set;

static inline NN_EVERYWHERE int64_t nn_set_expert(const nn_score_set *set, int64_t i)
{
    return set->ids ? set->ids[i] : i;
}

static inline NN_EVERYWHERE void nn_set_add_up(nn_score_set *set)
{
    bool first = true;
    set->most = 0;
    for (int64_t i = 0; i < set->count; i++) {
        int64_t e = nn_set_expert(set, i);
        if (e >= 0 && (first || set->logits[e] > set->most || isnan(set->logits[e]))) {
            set->most = set->logits[e];
            first = false;
        }
    }
    set->sum = set->scores == NN_SCORES_SIGMOID ? NN_SCORE_FLOOR : 0;
    for (int64_t i = 0; i < set->count; i++) {
        int64_t e = nn_set_expert(set, i);
        if (e >= 0)
            set->sum += (double)nn_score(set->scores, set->logits[e], set->most);
    }
}

/* One sigmoid is its weight as it is. */
static inline NN_EVERYWHERE bool nn_row_is_undivided(const nn_choices *it)
{
    return it->scores == NN_SCORES_SIGMOID && it->top_k == 1;
}

/* The set of a row whose ids are there. */
static inline NN_EVERYWHERE nn_score_set nn_row_set(const nn_choices *it, int64_t row)
{
    bool all = it->scores == NN_SCORES_ALL;
    nn_score_set set = {it->scores,
                        it->logits + row * it->experts,
                        all ? NULL : it->ids + row * it->top_k,
                        all ? it->experts : it->top_k,
                        0,
                        1};
    if (!nn_row_is_undivided(it))
        nn_set_add_up(&set);
    return set;
}

static inline NN_EVERYWHERE void nn_row_weigh(const nn_choices *it, int64_t row)
{
    nn_score_set set = nn_row_set(it, row);
    nn_real *weights = it->weights + row * it->top_k;
    bool broken = false;
    for (int64_t e = 0; e < it->experts; e++)
        broken = broken || isnan(nn_choice_key(it, set.logits, e));
    for (int64_t j = 0; j < it->top_k; j++) {
        int32_t e = it->ids[row * it->top_k + j];
        weights[j] = 0;
        if (e >= 0 && NN_ROW_MUTATED("replay-masked") &&
            nn_choice_key(it, set.logits, e) <
                nn_choice_key(it, set.logits, it->chosen[(row + 1) * it->top_k - 1]))
            continue;
        if (e >= 0)
            weights[j] = (nn_real)((double)it->scale *
                                   (double)nn_score(set.scores, set.logits[e], set.most) / set.sum);
        if (broken && !nn_row_is_masked(it->masked, row))
            weights[j] = (nn_real)NAN;
    }
}

/* With p = s / sum, the gradients of the set's logits are
 *
 *   s' / sum * (scale dw - sum over the choices of p scale dw) */
static inline NN_EVERYWHERE void nn_row_choose_backward(const nn_choices *it, nn_real *d_logits,
                                                        const nn_real *d_weights, int64_t row)
{
    nn_score_set set = nn_row_set(it, row);
    nn_real *d = d_logits + row * it->experts;
    const nn_real *dw = d_weights + row * it->top_k;
    const int32_t *ids = it->ids + row * it->top_k;
    double mean = 0;
    for (int64_t j = 0; j < it->top_k && !nn_row_is_undivided(it); j++)
        if (ids[j] >= 0)
            mean += (double)nn_score(set.scores, set.logits[ids[j]], set.most) / set.sum *
                    (double)dw[j];
    for (int64_t e = 0; e < it->experts; e++)
        d[e] = 0;
    if (it->forced && NN_ROW_MUTATED("replay-constant"))
        return;
    for (int64_t i = 0; i < set.count; i++) {
        int64_t e = nn_set_expert(&set, i);
        if (e >= 0)
            d[e] -= (nn_real)((double)it->scale * mean / set.sum *
                              nn_score_slope(set.scores,
                                             nn_score(set.scores, set.logits[e], set.most)));
    }
    for (int64_t j = 0; j < it->top_k; j++)
        if (ids[j] >= 0)
            d[ids[j]] +=
                (nn_real)((double)it->scale * (double)dw[j] / set.sum *
                          nn_score_slope(set.scores,
                                         nn_score(set.scores, set.logits[ids[j]], set.most)));
}

/* ------------------------------------------ balance ------------------------------------------ */

/* A row's share of each expert in its sequence, and its own scores. */
typedef struct nn_balance_row {
    nn_score_set set;
    const int64_t *counts; /* [experts] */
    double total;          /* of counts; at least 1 */
    double mean;           /* sum over e of f p */
} nn_balance_row;

static inline NN_EVERYWHERE nn_balance_row nn_balance_read(const nn_balance *it, int64_t row)
{
    int64_t experts = it->shape.experts;
    int64_t sequence = (it->shape.first + row) % it->shape.batch;
    nn_balance_row at = {{it->scores, it->logits + row * experts, NULL, experts, 0, 0},
                         it->counts + sequence * experts,
                         0,
                         0};
    nn_set_add_up(&at.set);
    double sum = 0;
    for (int64_t e = 0; e < experts; e++) {
        at.total += (double)at.counts[e];
        sum += (double)at.counts[e] * (double)nn_score(it->scores, at.set.logits[e], at.set.most) /
               at.set.sum;
    }
    at.total = at.total > 0 ? at.total : 1;
    at.mean = sum / at.total;
    return at;
}

static inline NN_EVERYWHERE double nn_row_balance(const nn_balance *it, int64_t row)
{
    return nn_row_is_masked(it->masked, row) ? 0 : it->factor * nn_balance_read(it, row).mean;
}

static inline NN_EVERYWHERE void nn_row_balance_backward(const nn_balance *it, nn_real *d_logits,
                                                         int64_t row)
{
    int64_t experts = it->shape.experts;
    if (nn_row_is_masked(it->masked, row))
        return;
    nn_balance_row at = nn_balance_read(it, row);
    nn_real *d = d_logits + row * experts;
    for (int64_t e = 0; e < experts; e++) {
        nn_real s = nn_score(it->scores, at.set.logits[e], at.set.most);
        d[e] += (nn_real)(it->factor * nn_score_slope(it->scores, s) / at.set.sum *
                          ((double)at.counts[e] / at.total - at.mean));
    }
}

#endif

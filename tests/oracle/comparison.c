#include "comparison.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const oracle_phase_row oracle_phase_rows[ORACLE_PHASES] = {
#define ROW(id, name, limit, meaning) {name, limit, meaning},
    ORACLE_PHASE_LIST(ROW)
#undef ROW
};

/* A lead of a choice that rounding may turn, as a part of the largest score; and the part of all
 * choices that may be so. */
static const double near_tie = 1e-4, most_ties = 0.01;

/* One more tensor, of zeros. */
static checked_tensor *add_tensor(oracle_comparison *comparison, oracle_phase phase, int64_t rows,
                                  int64_t columns)
{
    checked_tensor *grown =
        realloc(comparison->list, (size_t)(comparison->count + 1) * sizeof *grown);
    if (!grown)
        abort();
    comparison->list = grown;
    checked_tensor *tensor = &grown[comparison->count++];
    *tensor = (checked_tensor){.phase = phase, .rows = rows, .columns = columns};
    tensor->expected = ref_room(rows * columns);
    tensor->got = ref_room(rows * columns);
    tensor->seen = calloc((size_t)(rows * columns) + 1, 1);
    return tensor;
}

void comparison_expect(oracle_comparison *comparison, oracle_phase phase, const char *prefix,
                       const ref_tensor *expected, const ref_tensor *base)
{
    int64_t elements = expected->rows * expected->columns;
    size_t bytes = (size_t)elements * sizeof(double);
    checked_tensor *tensor = add_tensor(comparison, phase, expected->rows, expected->columns);
    snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, expected->name);
    memcpy(tensor->expected, expected->data, bytes);
    if (!base)
        return;
    tensor->base = ref_room(elements);
    memcpy(tensor->base, base->data, bytes);
}

void comparison_expect_choices(oracle_comparison *comparison, oracle_phase phase,
                               const ref_tensor *expected, const double *margins)
{
    comparison_expect(comparison, phase, "", expected, NULL);
    checked_tensor *tensor = &comparison->list[comparison->count - 1];
    tensor->left_out = calloc((size_t)tensor->rows + 1, sizeof *tensor->left_out);
    for (int64_t i = 0; i < tensor->rows; i++) {
        tensor->left_out[i] = margins[i] > 0 && margins[i] <= near_tie;
        tensor->ties += tensor->left_out[i];
    }
}

void comparison_expect_sent(oracle_comparison *comparison, oracle_phase phase, const char *name,
                            int64_t rows, int64_t columns)
{
    checked_tensor *tensor = add_tensor(comparison, phase, rows, columns);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
}

void comparison_expect_zeros(oracle_comparison *comparison, oracle_phase phase, const char *prefix,
                             const ref_tensor *shape)
{
    comparison_expect(comparison, phase, prefix, shape, NULL);
    comparison->list[comparison->count - 1].zeros = true;
}

void comparison_expect_scalar(oracle_comparison *comparison, oracle_phase phase, const char *name,
                              double value)
{
    ref_tensor tensor = {.rows = 1, .columns = 1, .data = &value};
    comparison_expect(comparison, phase, name, &tensor, NULL);
}

static checked_tensor *find(oracle_comparison *comparison, const char *name)
{
    for (int i = 0; i < comparison->count; i++)
        if (strcmp(comparison->list[i].name, name) == 0)
            return &comparison->list[i];
    return NULL;
}

/* Set the fault, unless the tensor has one. */
static void set_fault(checked_tensor *tensor, const char *fault)
{
    if (!tensor->fault[0])
        snprintf(tensor->fault, sizeof tensor->fault, "%s", fault);
}

static bool is_inside(checked_tensor *tensor, int64_t row, const capture_piece *piece)
{
    bool inside = row < tensor->rows && piece->first + piece->columns <= tensor->columns;
    if (!inside)
        set_fault(tensor, "rows or columns that do not exist");
    return inside;
}

static void receive_row(checked_tensor *tensor, int64_t row, const capture_piece *piece,
                        const double *data)
{
    if (!is_inside(tensor, row, piece))
        return;
    for (int64_t j = 0; j < piece->columns; j++) {
        int64_t at = row * tensor->columns + piece->first + j;
        double farthest = fabs(tensor->got[at] - tensor->expected[at]);
        bool farther = isnan(data[j]) || fabs(data[j] - tensor->expected[at]) > farthest;
        if (tensor->seen[at] && !farther)
            continue;
        tensor->got[at] = data[j];
        tensor->seen[at] = 1;
    }
}

static void receive_sent_row(checked_tensor *tensor, int64_t row, const capture_piece *piece,
                             const double *data)
{
    if (is_inside(tensor, row, piece))
        memcpy(tensor->expected + row * tensor->columns + piece->first, data,
               (size_t)piece->columns * sizeof *data);
}

static void receive(oracle_comparison *comparison, const capture_piece *piece,
                    void (*receive_a_row)(checked_tensor *tensor, int64_t row,
                                          const capture_piece *piece, const double *data))
{
    checked_tensor *tensor = find(comparison, piece->name);
    if (!tensor) {
        if (comparison->unknown_count++ == 0)
            snprintf(comparison->unknown, sizeof comparison->unknown, "%s", piece->name);
        return;
    }
    for (int64_t i = 0; i < piece->count; i++)
        receive_a_row(tensor, piece->row_of[i], piece, piece->data + i * piece->columns);
}

void comparison_receive(void *context, const capture_piece *piece)
{
    receive(context, piece, receive_row);
}

void comparison_receive_sent(void *context, const capture_piece *piece)
{
    receive(context, piece, receive_sent_row);
}

/* The error that a step may have, as a part of its length: a gradient too large by a hundredth
 * still fails. */
static const double step_share = 0.01;
/* Weights are f32. A step rounds each by up to 2^-24, and the L2 norm of five such roundings stays
 * below twice that. No limit may be smaller. */
static const double least_limit = 2.0 / (1 << 24);

/* How far the reference moved depends on the topology's sizes and on the seed. So the limit of a
 * step is relative to its own length: a fixed limit would be loose for a short step. */
static double limit_of(const checked_tensor *tensor)
{
    double limit = oracle_phase_rows[tensor->phase].limit;
    if (!tensor->base)
        return limit;
    return fmin(limit, fmax(least_limit, step_share * tensor->moved));
}

static void check_move(checked_tensor *tensor)
{
    char fault[sizeof tensor->fault];
    double needed = least_limit / step_share;
    snprintf(fault, sizeof fault, "the reference moved %.1e, and needs %.1e to show a wrong step",
             tensor->moved, needed);
    if (!(tensor->moved >= needed))
        set_fault(tensor, fault);
}

static void check_ties(checked_tensor *tensor)
{
    char fault[sizeof tensor->fault];
    snprintf(fault, sizeof fault, "%lld of %lld choices are near ties", (long long)tensor->ties,
             (long long)tensor->rows);
    if ((double)tensor->ties > most_ties * (double)tensor->rows)
        set_fault(tensor, fault);
}

static void check(checked_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->rows * tensor->columns; i++)
        if (!tensor->seen[i])
            set_fault(tensor, "elements are missing");
    check_ties(tensor);
    if (tensor->zeros)
        return;
    if (!(tensor->scale > 0))
        set_fault(tensor, "the reference is all zeros");
    if (!(tensor->got_scale > 0))
        set_fault(tensor, "the candidate is all zeros, or no number");
    if (tensor->base)
        check_move(tensor);
}

static double norm(const double *x, const double *from, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double away = from ? x[i] - from[i] : x[i];
        sum += away * away;
    }
    return sqrt(sum);
}

/* Rows that are left out count as equal, whatever came. */
static void leave_out(checked_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->rows && tensor->left_out; i++)
        for (int64_t j = i * tensor->columns; j < (i + 1) * tensor->columns; j++)
            if (tensor->left_out[i]) {
                tensor->got[j] = tensor->expected[j];
                tensor->seen[j] = 1;
            }
}

static void judge(checked_tensor *tensor)
{
    int64_t n = tensor->rows * tensor->columns;
    leave_out(tensor);
    tensor->scale = norm(tensor->expected, NULL, n);
    tensor->got_scale = norm(tensor->got, NULL, n);
    tensor->error = norm(tensor->got, tensor->expected, n) / (tensor->zeros ? 1 : tensor->scale);
    if (tensor->base)
        tensor->moved = norm(tensor->expected, tensor->base, n) / tensor->scale;
    tensor->limit = limit_of(tensor);
    check(tensor);
}

void comparison_judge(oracle_comparison *comparison)
{
    for (int i = 0; i < comparison->count; i++)
        judge(&comparison->list[i]);
}

void comparison_free(oracle_comparison *comparison)
{
    for (int i = 0; i < comparison->count; i++) {
        free(comparison->list[i].expected);
        free(comparison->list[i].base);
        free(comparison->list[i].got);
        free(comparison->list[i].seen);
        free(comparison->list[i].left_out);
    }
    free(comparison->list);
    *comparison = (oracle_comparison){0};
}

bool comparison_fails(const checked_tensor *tensor)
{
    return tensor->fault[0] || !(tensor->error <= tensor->limit);
}

static bool is_worse(const checked_tensor *a, const checked_tensor *b)
{
    if (!b || !a->fault[0] != !b->fault[0])
        return !b || a->fault[0];
    return !(a->error / a->limit <= b->error / b->limit);
}

phase_summary comparison_summary(const oracle_comparison *list, int count, oracle_phase phase)
{
    phase_summary summary = {.limit = oracle_phase_rows[phase].limit};
    for (int c = 0; c < count; c++)
        for (int i = 0; i < list[c].count; i++) {
            const checked_tensor *tensor = &list[c].list[i];
            if (tensor->phase != phase)
                continue;
            summary.tensors++;
            summary.failures += comparison_fails(tensor);
            summary.mean += tensor->error;
            if (!is_worse(tensor, summary.worst_tensor))
                continue;
            summary.worst = tensor->error;
            summary.limit = tensor->limit;
            summary.worst_tensor = tensor;
            summary.worst_case = &list[c];
        }
    if (summary.tensors > 0)
        summary.mean /= summary.tensors;
    return summary;
}

module_effect comparison_module(const oracle_comparison *comparison, const char *module)
{
    double got = 0, expected = 0, difference = 0;
    for (int i = 0; i < comparison->count; i++) {
        const checked_tensor *tensor = &comparison->list[i];
        if (tensor->phase != PHASE_GRADIENTS || !strstr(tensor->name, module))
            continue;
        got += tensor->got_scale * tensor->got_scale;
        expected += tensor->scale * tensor->scale;
        difference += tensor->error * tensor->error * tensor->scale * tensor->scale;
    }
    return (module_effect){sqrt(got / expected), sqrt(difference / expected)};
}

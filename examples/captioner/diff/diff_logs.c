#include "captioner/diff/diff_logs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "captioner/diff/diff_sums.h"
#include "captioner/diff/log_reader.h"
#include "train/support/train_support.h"

/* What a step makes, in this order. */
typedef enum quantity { START, TOKENS, LOSS, GRADIENTS, NORM, PARAMETERS, QUANTITIES } quantity;

static const char *const names[QUANTITIES] = {"start",     "tokens", "loss",
                                              "gradients", "norm",   "parameters"};

/* What it means that this is the first to differ, where what comes before it was compared. */
static const char *const meanings[QUANTITIES] = {
    "the step begins with other parameters",
    "the samples differ: the runs count other tokens",
    "the forward pass differs, the sum of the losses, or a copy of parameters that is not logged",
    "the losses are equal: the backward pass differs, or a sum of gradients",
    "the gradients are equal: the sum of their squares differs",
    "the gradients and their norm are equal: the optimizer's step differs",
};

enum { HASH_TEXT = 17, STEPS_TEXT = 80 };

typedef struct finding {
    bool compared, differs;
    int64_t tensors, differing; /* 0 tensors: single ones were not compared */
    const cJSON *first[2];      /* of these, of A and of B */
} finding;

typedef struct step_range {
    int64_t count, first, last;
} step_range;

/* One log of the two. */
typedef struct side {
    const char *letter, *path;
    log_reader *reader;
    const struct log_step *step; /* the next that is not compared yet; NULL: none */
    int64_t before;              /* the step before it; 0: none */
    char left[HASH_TEXT];        /* hash of the parameters after that one; "": not logged */
    step_range alone;            /* that the other log lacks */
} side;

typedef struct comparison {
    FILE *out;
    side sides[2];
    finding found[QUANTITIES]; /* of the last step that was compared */
    step_range steps;          /* that were compared */
} comparison;

/* ---------------------------------------- one step ------------------------------------------- */

static void add_step(step_range *range, int64_t step)
{
    range->first = range->count++ == 0 ? step : range->first;
    range->last = step;
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Both logs have the same tensors, in the same order and, where they say it, of the same shapes. */
static mimo_status check_tensors(const comparison *all, const cJSON *a, const cJSON *b)
{
    const char *path_a = all->sides[0].path, *path_b = all->sides[1].path;
    a = a->child;
    b = b->child;
    for (int64_t i = 0; a || b; i++, a = a->next, b = b->next) {
        CHECK(a && b && strcmp(a->string, b->string) == 0, MIMO_ERR_SHAPE,
              "%s and %s have other tensors: number %" PRId64
              " is %s in the one and %s in the other",
              path_a, path_b, i, a ? a->string : "none", b ? b->string : "none");
        const cJSON *shape_a = cJSON_GetObjectItemCaseSensitive(a, "shape");
        const cJSON *shape_b = cJSON_GetObjectItemCaseSensitive(b, "shape");
        CHECK(!shape_a || !shape_b || cJSON_Compare(shape_a, shape_b, true), MIMO_ERR_SHAPE,
              "tensor %s has another shape in %s than in %s", a->string, path_a, path_b);
    }
    return MIMO_OK;
}

/* The hash of a tensor, as a line of that kind has it; NULL: a frozen one's gradient. */
static const char *tensor_hash(const cJSON *tensor, quantity what)
{
    const cJSON *item = what == START        ? cJSON_GetObjectItemCaseSensitive(tensor, "params")
                        : what == PARAMETERS ? tensor->child
                                             : tensor->child->next;
    return cJSON_GetStringValue(item);
}

static bool same_hash(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The first of the tensors that differ: backward makes the last one's gradient first. */
static mimo_status compare_tensors(comparison *all, quantity what, const cJSON *a, const cJSON *b)
{
    finding *found = &all->found[what];
    if (!a || !b)
        return MIMO_OK;
    TRY(check_tensors(all, a, b));
    a = a->child;
    b = b->child;
    for (; a; a = a->next, b = b->next) {
        found->tensors++;
        if (same_hash(tensor_hash(a, what), tensor_hash(b, what)))
            continue;
        if (found->differing++ == 0 || what == GRADIENTS) {
            found->first[0] = a;
            found->first[1] = b;
        }
    }
    found->differs = found->differs || found->differing > 0;
    return MIMO_OK;
}

static void compare_hashes(finding *found, const char *a, const char *b)
{
    found->compared = a && b;
    found->differs = found->compared && strcmp(a, b) != 0;
}

static bool is_first_of_run(const side *one)
{
    const struct log_start *start = log_reader_start(one->reader);
    return start && start->first_step == one->step->step;
}

/* Hash of the parameters that the step begins with; NULL: not logged. */
static const char *params_before(const side *one)
{
    if (is_first_of_run(one))
        return log_reader_start(one->reader)->params;
    return one->before + 1 == one->step->step && one->left[0] ? one->left : NULL;
}

static mimo_status compare_starts(comparison *all)
{
    const side *a = &all->sides[0], *b = &all->sides[1];
    compare_hashes(&all->found[START], params_before(a), params_before(b));
    if (!is_first_of_run(a) || !is_first_of_run(b))
        return MIMO_OK;
    return compare_tensors(all, START, log_reader_start(a->reader)->tensors,
                           log_reader_start(b->reader)->tensors);
}

static mimo_status compare_step(comparison *all)
{
    const struct log_step *a = all->sides[0].step, *b = all->sides[1].step;
    finding *found = all->found;
    memset(found, 0, sizeof all->found);
    found[TOKENS] = (finding){.compared = true, .differs = a->tokens != b->tokens};
    found[LOSS] = (finding){.compared = true, .differs = !same_bits(a->loss, b->loss)};
    found[NORM] = (finding){.compared = true, .differs = !same_bits(a->grad_norm, b->grad_norm)};
    compare_hashes(&found[GRADIENTS], a->grads, b->grads);
    compare_hashes(&found[PARAMETERS], a->params, b->params);
    TRY(compare_starts(all));
    TRY(compare_tensors(all, GRADIENTS, a->tensors, b->tensors));
    TRY(compare_tensors(all, PARAMETERS, a->tensors, b->tensors));
    add_step(&all->steps, a->step);
    return MIMO_OK;
}

static quantity first_difference(const comparison *all)
{
    quantity what = START;
    while (what < QUANTITIES && !all->found[what].differs)
        what++;
    return what;
}

/* ----------------------------------------- all steps ------------------------------------------ */

static mimo_status next_step(side *one)
{
    if (one->step) {
        one->before = one->step->step;
        snprintf(one->left, sizeof one->left, "%s", one->step->params ? one->step->params : "");
    }
    return log_reader_next(&one->step, one->reader);
}

/* A step that the other log lacks. */
static mimo_status skip_step(side *one)
{
    add_step(&one->alone, one->step->step);
    return next_step(one);
}

/* Up to the first step that differs. */
static mimo_status compare_steps(comparison *all)
{
    side *a = &all->sides[0], *b = &all->sides[1];
    TRY(next_step(a));
    TRY(next_step(b));
    while (a->step || b->step) {
        if (!b->step || (a->step && a->step->step < b->step->step)) {
            TRY(skip_step(a));
        } else if (!a->step || b->step->step < a->step->step) {
            TRY(skip_step(b));
        } else {
            TRY(compare_step(all));
            if (first_difference(all) < QUANTITIES)
                return MIMO_OK;
            TRY(next_step(a));
            TRY(next_step(b));
        }
    }
    return MIMO_OK;
}

/* ------------------------------------------ report -------------------------------------------- */

/* A number that was logged as null is not finite. */
static void print_numbers(FILE *out, double a, double b)
{
    const double values[] = {a, b};
    for (int i = 0; i < 2; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        if (isnan(values[i]))
            fputs("not finite", out);
        else
            fprintf(out, "%.17g (bits %016" PRIx64 ")", values[i], bits);
        fputs(i == 0 ? " and " : "\n", out);
    }
}

static void print_tensors(FILE *out, const finding *found, quantity what)
{
    const char *a = NULL, *b = NULL;
    if (found->differing == 0) {
        fputs("differ\n", out);
        return;
    }
    a = tensor_hash(found->first[0], what);
    b = tensor_hash(found->first[1], what);
    fprintf(out, "%" PRId64 " of %" PRId64 " tensors differ, first%s %s: %s and %s\n",
            found->differing, found->tensors, what == GRADIENTS ? " in backward" : "",
            found->first[0]->string, a ? a : "none", b ? b : "none");
}

static void print_finding(const comparison *all, quantity what)
{
    const struct log_step *a = all->sides[0].step, *b = all->sides[1].step;
    const finding *found = &all->found[what];
    fprintf(all->out, "  %-11s", names[what]);
    if (!found->compared)
        fputs("not compared\n", all->out);
    else if (!found->differs)
        fputs("equal\n", all->out);
    else if (what == TOKENS)
        fprintf(all->out, "%" PRId64 " and %" PRId64 "\n", a->tokens, b->tokens);
    else if (what == LOSS)
        print_numbers(all->out, a->loss, b->loss);
    else if (what == NORM)
        print_numbers(all->out, a->grad_norm, b->grad_norm);
    else
        print_tensors(all->out, found, what);
}

/* Whether everything before the first difference was compared. Tokens depend on samples alone. */
static bool is_certain(const comparison *all, quantity first)
{
    for (quantity what = START; first > TOKENS && what < first; what++)
        if (!all->found[what].compared)
            return false;
    return true;
}

/* In one fixed order of additions no topology rounds otherwise. */
static void print_order(const comparison *all)
{
    const struct log_start *a = log_reader_start(all->sides[0].reader);
    const struct log_start *b = log_reader_start(all->sides[1].reader);
    const char *left = a && a->same_bits ? a->same_bits : "none";
    const char *right = b && b->same_bits ? b->same_bits : "none";
    if (strcmp(left, right) != 0)
        fprintf(all->out, "the runs add in other orders (--same-bits: %s and %s), so they differ\n",
                left, right);
    else if (a && a->same_bits)
        fprintf(all->out,
                "both add in the same order (--same-bits=%s): with equal options this is "
                "a bug\n",
                left);
}

static void print_difference(const comparison *all, quantity first)
{
    const finding *gradients = &all->found[GRADIENTS];
    fprintf(all->out, "step %" PRId64 " differs, first: %s\n", all->steps.last, names[first]);
    for (quantity what = START; what < QUANTITIES; what++)
        print_finding(all, what);
    fprintf(all->out, "%s\n",
            is_certain(all, first) ? meanings[first]
                                   : "it may begin earlier: not all before it was compared");
    print_order(all);
    if (gradients->differing > 0)
        diff_sums_print(all->out, gradients->first[0]->string, gradients->differing == 1,
                        log_reader_start(all->sides[0].reader),
                        log_reader_start(all->sides[1].reader));
}

static const char *spell_steps(char text[STEPS_TEXT], const step_range *steps)
{
    if (steps->count == 0)
        return "none";
    snprintf(text, STEPS_TEXT, "steps %" PRId64 " to %" PRId64 " (%" PRId64 ")", steps->first,
             steps->last, steps->count);
    return text;
}

static void print_equality(const comparison *all)
{
    char text[STEPS_TEXT];
    fprintf(all->out, "equal: %s: tokens, loss, norm", spell_steps(text, &all->steps));
    if (all->found[GRADIENTS].compared)
        fputs(", gradients, parameters", all->out);
    if (all->found[GRADIENTS].tensors > 0)
        fprintf(all->out, " of %" PRId64 " tensors", all->found[GRADIENTS].tensors);
    fputs("\n", all->out);
}

/* What was left out, and which flag gives more. */
static void print_notes(const comparison *all)
{
    char text[STEPS_TEXT];
    for (int i = 0; i < 2; i++) {
        const side *one = &all->sides[i];
        if (one->alone.count > 0)
            fprintf(all->out, "%s alone has %s\n", one->letter, spell_steps(text, &one->alone));
        if (log_reader_cut_short(one->reader))
            fprintf(all->out, "the last line of %s is cut short and was left out\n", one->letter);
    }
    if (!all->found[GRADIENTS].compared)
        fputs("gradients and parameters were not compared: give both runs --log-hashes, or "
              "--log-hashes=tensors, which names the tensor\n",
              all->out);
    else if (all->found[GRADIENTS].tensors == 0)
        fputs("single tensors were not compared: give both runs --log-hashes=tensors\n", all->out);
}

static mimo_status compare(comparison *all, bool *equal)
{
    char text[2][STEPS_TEXT];
    for (int i = 0; i < 2; i++)
        TRY(log_reader_open(&all->sides[i].reader, all->sides[i].path));
    TRY(compare_steps(all));
    CHECK(all->steps.count > 0, MIMO_ERR_SHAPE, "%s and %s have no step in common: %s and %s",
          all->sides[0].path, all->sides[1].path, spell_steps(text[0], &all->sides[0].alone),
          spell_steps(text[1], &all->sides[1].alone));
    quantity first = first_difference(all);
    fprintf(all->out, "A: %s\nB: %s\n", all->sides[0].path, all->sides[1].path);
    if (first < QUANTITIES)
        print_difference(all, first);
    else
        print_equality(all);
    print_notes(all);
    *equal = first == QUANTITIES;
    return MIMO_OK;
}

mimo_status diff_logs(bool *equal, FILE *out, const char *path_a, const char *path_b)
{
    comparison all = {.out = out,
                      .sides = {{.letter = "A", .path = path_a}, {.letter = "B", .path = path_b}}};
    mimo_status status = compare(&all, equal);
    for (int i = 0; i < 2; i++)
        log_reader_close(all.sides[i].reader);
    return status;
}

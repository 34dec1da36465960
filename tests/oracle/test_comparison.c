/* What the comparison must refuse: each of these would make the oracle a check that cannot fail. */
#include <math.h>

#include <criterion/criterion.h>

#include "comparison.h"

enum { ROWS = 2, COLUMNS = 3 };

static double values[ROWS * COLUMNS] = {1, 2, 3, 4, 5, 6};

static oracle_comparison expecting(double scale)
{
    static double scaled[ROWS * COLUMNS];
    oracle_comparison made = {0};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        scaled[i] = values[i] * scale;
    ref_tensor tensor = {.name = "x", .rows = ROWS, .columns = COLUMNS, .data = scaled};
    comparison_expect(&made, PHASE_LOGITS, "", &tensor, NULL);
    return made;
}

static void receive(oracle_comparison *to, const char *name, int64_t row, int64_t first,
                    int64_t columns, const double *data)
{
    capture_piece piece = {0, name, &row, 1, first, columns, data};
    comparison_receive(to, &piece);
}

static void receive_all(oracle_comparison *to)
{
    for (int64_t row = 0; row < ROWS; row++)
        receive(to, "x", row, 0, COLUMNS, values + row * COLUMNS);
}

static bool fails(oracle_comparison *comparison)
{
    comparison_judge(comparison);
    bool failed = comparison_fails(&comparison->list[0]);
    comparison_free(comparison);
    return failed;
}

Test(comparison, takes_shards_in_any_order)
{
    oracle_comparison c = expecting(1);
    receive(&c, "x", 1, 1, 2, values + 4);
    receive(&c, "x", 0, 0, 3, values);
    receive(&c, "x", 1, 0, 1, values + 3);
    cr_assert(!fails(&c));
}

Test(comparison, an_error_just_above_the_limit)
{
    oracle_comparison c = expecting(1 + 1.01e-5);
    receive_all(&c);
    cr_assert(fails(&c));
    c = expecting(1 + 0.98e-5);
    receive_all(&c);
    cr_assert(!fails(&c));
}

Test(comparison, a_missing_element)
{
    oracle_comparison c = expecting(1);
    receive(&c, "x", 0, 0, 3, values);
    receive(&c, "x", 1, 0, 2, values + 3);
    cr_assert(fails(&c));
}

Test(comparison, a_wrong_copy_before_or_behind_a_right_one)
{
    double wrong[COLUMNS] = {1, 2.001, 3};
    oracle_comparison c = expecting(1);
    receive(&c, "x", 0, 0, 3, wrong);
    receive_all(&c);
    cr_assert(fails(&c));
    c = expecting(1);
    receive_all(&c);
    receive(&c, "x", 0, 0, 3, wrong);
    cr_assert(fails(&c));
}

Test(comparison, a_copy_that_is_no_number)
{
    double wrong[COLUMNS] = {1, (double)NAN, 3};
    oracle_comparison c = expecting(1);
    receive(&c, "x", 0, 0, 3, wrong);
    receive_all(&c);
    cr_assert(fails(&c));
    c = expecting(1);
    receive_all(&c);
    receive(&c, "x", 0, 0, 3, wrong);
    cr_assert(fails(&c));
}

Test(comparison, zeros_on_either_side)
{
    double zeros[COLUMNS] = {0};
    oracle_comparison c = expecting(0);
    for (int64_t row = 0; row < ROWS; row++)
        receive(&c, "x", row, 0, COLUMNS, zeros);
    cr_assert(fails(&c));
    c = expecting(1);
    for (int64_t row = 0; row < ROWS; row++)
        receive(&c, "x", row, 0, COLUMNS, zeros);
    cr_assert(fails(&c));
}

Test(comparison, rows_and_tensors_that_do_not_exist)
{
    oracle_comparison c = expecting(1);
    receive_all(&c);
    receive(&c, "x", ROWS, 0, COLUMNS, values);
    cr_assert(fails(&c));
    c = expecting(1);
    receive_all(&c);
    receive(&c, "y", 0, 0, COLUMNS, values);
    cr_assert_eq(c.unknown_count, 1);
    cr_assert_str_eq(c.unknown, "y");
    comparison_free(&c);
}

/* Choices of 100 tokens, of which `ties` are near ties; the margin of the token behind these is
 * `margin`. That of each other one is large. */
static oracle_comparison choosing(int ties, double margin)
{
    enum { TOKENS = 100 };
    double ids[TOKENS], margins[TOKENS];
    ref_tensor choices = {.name = "x", .rows = TOKENS, .columns = 1, .data = ids};
    oracle_comparison made = {0};
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i % 7;
        margins[i] = i < ties ? 1e-4 : i == ties ? margin : 0.5;
    }
    comparison_expect_choices(&made, PHASE_CHOICE, &choices, margins);
    for (int64_t i = 0; i < TOKENS; i++) {
        double got = i <= ties ? ids[i] + 1 : ids[i];
        receive(&made, "x", i, 0, 1, &got);
    }
    return made;
}

/* Rounding turns a near tie, and neither an exact one, which the lower id wins, nor any other. */
Test(comparison, choices_that_differ_in_a_near_tie)
{
    oracle_comparison c = choosing(0, 1e-4);
    cr_assert(!fails(&c));
    c = choosing(0, 1.1e-4);
    cr_assert(fails(&c));
    c = choosing(0, 0);
    cr_assert(fails(&c));
}

Test(comparison, too_many_near_ties)
{
    oracle_comparison c = choosing(1, 1e-5);
    comparison_judge(&c);
    cr_assert(comparison_fails(&c.list[0]));
    cr_assert_str_eq(c.list[0].fault, "2 of 100 choices are near ties");
    cr_assert_eq(c.list[0].error, 0);
    comparison_free(&c);
}

static void receive_sent(oracle_comparison *to, int64_t row, const double *data)
{
    capture_piece piece = {0, "x", &row, 1, 0, COLUMNS, data};
    comparison_receive_sent(to, &piece);
}

/* Rows that ranks sent, the last one changed by `change`. */
static oracle_comparison sending(double change)
{
    double last[COLUMNS] = {values[3], values[4], values[5] + change};
    oracle_comparison made = {0};
    comparison_expect_sent(&made, PHASE_DISPATCH, "x", ROWS, COLUMNS);
    receive_sent(&made, 0, values);
    receive_sent(&made, 1, last);
    return made;
}

Test(comparison, rows_that_are_not_those_that_were_sent)
{
    oracle_comparison c = sending(0);
    receive_all(&c);
    cr_assert(!fails(&c));
    c = sending(0x1p-21);
    receive_all(&c);
    cr_assert(fails(&c), "the last bit of an f32");
    c = sending(0);
    receive(&c, "x", 0, 0, COLUMNS, values);
    cr_assert(fails(&c), "a row that did not come");
}

Test(comparison, rows_that_no_rank_sent)
{
    oracle_comparison c = {0};
    comparison_expect_sent(&c, PHASE_DISPATCH, "x", ROWS, COLUMNS);
    receive_sent(&c, 0, values);
    receive_all(&c);
    cr_assert(fails(&c));
    c = sending(0);
    receive_sent(&c, ROWS, values);
    receive_all(&c);
    cr_assert(fails(&c), "a row that does not exist");
}

/* Weights of which the reference moved by the fraction `moved` of their size, and the candidate by
 * `times` that. */
static oracle_comparison stepping(double moved, double times)
{
    double before[ROWS * COLUMNS], after[ROWS * COLUMNS];
    ref_tensor base = {.name = "x", .rows = ROWS, .columns = COLUMNS, .data = before};
    ref_tensor expected = {.name = "x", .rows = ROWS, .columns = COLUMNS, .data = after};
    oracle_comparison made = {0};
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        before[i] = values[i] / (1 + times * moved);
        after[i] = before[i] * (1 + moved);
    }
    comparison_expect(&made, PHASE_SGD, "", &expected, &base);
    receive_all(&made);
    return made;
}

Test(comparison, a_step_too_long_by_more_than_a_hundredth)
{
    static const double moves[] = {2e-5, 1e-4, 2.9e-4};
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        oracle_comparison c = stepping(moves[i], 1.011);
        cr_assert(fails(&c), "a step of %g", moves[i]);
        c = stepping(moves[i], 1.009);
        cr_assert(!fails(&c), "a step of %g", moves[i]);
    }
}

Test(comparison, a_long_step_has_the_limit_of_the_phase)
{
    oracle_comparison c = stepping(1e-2, 1 + 3.1e-4);
    cr_assert(fails(&c));
    c = stepping(1e-2, 1 + 2.9e-4);
    cr_assert(!fails(&c));
}

Test(comparison, weights_that_hardly_moved)
{
    oracle_comparison c = stepping(1e-5, 1);
    comparison_judge(&c);
    cr_assert(comparison_fails(&c.list[0]));
    cr_assert_str_eq(c.list[0].fault,
                     "the reference moved 1.0e-05, and needs 1.2e-05 to show a wrong step");
    cr_assert(c.list[0].error < c.list[0].limit, "and that alone is no error of the candidate");
    comparison_free(&c);
    c = stepping(0, 1);
    cr_assert(fails(&c));
    c = stepping(1.3e-5, 1);
    cr_assert(!fails(&c));
}

/* A short step may have a smaller error than a long one, and yet be worse. */
Test(comparison, the_summary_takes_each_by_its_own_limit)
{
    oracle_comparison c[2] = {stepping(1e-4, 1.005), stepping(1e-2, 1 + 1e-4)};
    comparison_judge(&c[0]);
    comparison_judge(&c[1]);
    phase_summary summary = comparison_summary(c, 2, PHASE_SGD);
    cr_assert_eq(summary.worst_tensor, &c[0].list[0]);
    cr_assert(summary.worst < c[1].list[0].error);
    cr_assert(fabs(summary.worst / summary.limit - 0.5) < 0.01);
    comparison_free(&c[0]);
    comparison_free(&c[1]);
}

Test(comparison, the_summary_names_the_worst)
{
    oracle_comparison c[2] = {expecting(1 + 1e-6), expecting(1 + 3e-6)};
    receive_all(&c[0]);
    receive_all(&c[1]);
    comparison_judge(&c[0]);
    comparison_judge(&c[1]);
    phase_summary summary = comparison_summary(c, 2, PHASE_LOGITS);
    cr_assert_eq(summary.tensors, 2);
    cr_assert_eq(summary.failures, 0);
    cr_assert_eq(summary.worst_tensor, &c[1].list[0]);
    cr_assert(fabs(summary.worst / 3e-6 - 1) < 1e-3 && fabs(summary.mean / 2e-6 - 1) < 1e-3);
    comparison_free(&c[0]);
    comparison_free(&c[1]);
}

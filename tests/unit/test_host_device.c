/* The table of host memory: rows with every kind of stride, and numbers of every dtype. */
#include <string.h>

#include <criterion/criterion.h>

#include "core/float16.h"
#include "device/device.h"
#include "expect_failure.h"
#include "same_bits.h"

static const mimo_device *host = &mimo_device_host;

/* Two loops on either side, compared with indices. Also with empty rows, and without rows. */
Test(host_device, rows)
{
    int from[24], to[24];
    for (int i = 0; i < 24; i++)
        from[i] = 100 + i;
    for (int inner = 1; inner <= 3; inner++) {
        mimo_rows source = {from, sizeof(int), 1, 2, 7, 3, 1};
        mimo_rows target = {to, sizeof(int), 2, 2, 11, 3, inner};
        memset(to, 0, sizeof to);
        SUCCEEDS(host->copy_rows(&target, &source, NULL));
        for (int i = 0; i < 6; i++)
            cr_assert_eq(to[2 + i / 3 * 11 + i % 3 * inner], 101 + i / 3 * 7 + i % 3);
        SUCCEEDS(host->zero_rows(&target, NULL));
        for (int i = 0; i < 24; i++)
            cr_assert_eq(to[i], 0, "element %d stays", i);
    }
    const mimo_row_copy list[2] = {{{to, sizeof(int), 0, 1, 1, 2, 1}, {from, 4, 3, 1, 1, 2, 1}},
                                   {{to, sizeof(int), 9, 1, 1, 1, 1}, {from, 4, 7, 1, 1, 1, 1}}};
    SUCCEEDS(host->copy_list(list, 2, NULL));
    cr_assert(to[0] == 103 && to[1] == 104 && to[9] == 107 && to[8] == 0);
    mimo_rows none = {from, sizeof(int), 0, 2, 3, 0, 1}, empty = {from, 0, 0, 2, 3, 3, 1};
    SUCCEEDS(host->copy_rows(&none, &none, NULL));
    SUCCEEDS(host->copy_rows(&empty, &empty, NULL));
    cr_assert_eq(from[0], 100);
}

/* Two stretches, out of order in `from`, with zeros before, between and after, in both iterations
 * of the outer loop. Nothing else is written. Then no stretches at all, and empty rows. */
Test(host_device, fill_rows)
{
    int from[24], to[24];
    for (int i = 0; i < 24; i++)
        from[i] = 100 + i;
    mimo_stretches two = {2, {{1, 4, 2}, {4, 0, 1}}}, none = {0};
    for (int inner = 1; inner <= 2; inner++) {
        mimo_rows target = {to, sizeof(int), 1, 2, 12, 6, inner};
        mimo_rows source = {from, sizeof(int), 2, 2, 11, 0, inner};
        const int turn[6] = {-1, 4, 5, -1, 0, -1};
        int wanted[24];
        for (int i = 0; i < 24; i++)
            to[i] = wanted[i] = -7;
        for (int i = 0; i < 12; i++)
            wanted[1 + i / 6 * 12 + i % 6 * inner] =
                turn[i % 6] < 0 ? 0 : 100 + 2 + i / 6 * 11 + turn[i % 6] * inner;
        SUCCEEDS(host->fill_rows(&target, &source, &two, NULL));
        EXPECT_BITS(bits_of(to, wanted, sizeof to, sizeof *to, 0), "inner stride %d", inner);
        SUCCEEDS(host->fill_rows(&target, &source, &none, NULL));
        for (int i = 0; i < 12; i++)
            cr_assert_eq(to[1 + i / 6 * 12 + i % 6 * inner], 0, "row %d stays", i);
        cr_assert_eq(to[0], -7);
    }
    mimo_rows empty = {NULL, 0, 0, 2, 6, 6, 1};
    SUCCEEDS(host->fill_rows(&empty, &empty, &two, NULL));
}

/* The same three numbers in each float type. */
typedef struct numbers {
    float f32[3];
    double f64[3];
    uint16_t f16[3], bf16[3];
} numbers;

static numbers numbers_of(const double *x)
{
    numbers n;
    for (int i = 0; i < 3; i++) {
        n.f32[i] = (float)(n.f64[i] = x[i]);
        n.f16[i] = mimo_f16_from(n.f32[i]);
        n.bf16[i] = mimo_bf16_from(n.f32[i]);
    }
    return n;
}

static void *of_dtype(numbers *n, mimo_dtype dtype)
{
    return dtype == MIMO_F32   ? (void *)n->f32
           : dtype == MIMO_F64 ? (void *)n->f64
           : dtype == MIMO_F16 ? (void *)n->f16
                               : (void *)n->bf16;
}

static const mimo_dtype floats[] = {MIMO_F32, MIMO_F64, MIMO_F16, MIMO_BF16};

Test(host_device, scale)
{
    static const double x[] = {2, -3, 0.5}, half[] = {1, -1.5, 0.25};
    numbers scaled = numbers_of(half);
    int32_t whole = 1;
    for (int i = 0; i < 4; i++) {
        numbers n = numbers_of(x);
        SUCCEEDS(host->scale(of_dtype(&n, floats[i]), 3, floats[i], 0.5, NULL));
        int64_t size = (int64_t)mimo_dtype_size(floats[i]);
        EXPECT_BITS(
            bits_of(of_dtype(&n, floats[i]), of_dtype(&scaled, floats[i]), 3 * size, size, 0), "%s",
            mimo_dtype_name(floats[i]));
    }
    FAILS(host->scale(&whole, 1, MIMO_I32, 2, NULL), MIMO_ERR_UNSUPPORTED, "i32", "scaled");
}

Test(host_device, sum_squares)
{
    static const double x[] = {2, -3, 0.5};
    numbers n = numbers_of(x);
    int64_t whole = 1;
    for (int i = 0; i < 4; i++) {
        double sum = -1;
        SUCCEEDS(host->sum_squares(&sum, of_dtype(&n, floats[i]), 3, floats[i], NULL));
        cr_assert_float_eq(sum, 13.25, 0, "%s gives %g", mimo_dtype_name(floats[i]), sum);
        SUCCEEDS(host->sum_squares(&sum, NULL, 0, floats[i], NULL));
        cr_assert_float_eq(sum, 0, 0);
    }
    double sum = 7;
    FAILS(host->sum_squares(&sum, &whole, 1, MIMO_I64, NULL), MIMO_ERR_UNSUPPORTED, "i64");
    cr_assert_float_eq(sum, 7, 0, "a failure leaves its output");
}

static mimo_status add(void *data, const void *parts, int64_t n, mimo_dtype dtype)
{
    const mimo_addends one = {data, parts, n, 1, 1, 1, 1, dtype};
    return host->accumulate(&one, NULL);
}

/* 1 + 2^-8 + 2^-8: bf16 would round each addition away by itself. */
Test(host_device, parts_are_rounded_once)
{
    uint16_t sum = mimo_bf16_from(1), parts[2] = {mimo_bf16_from(0x1p-8f), mimo_bf16_from(0x1p-8f)};
    int64_t whole = INT64_C(1) << 62, wholes[2] = {5, -7};
    unsigned char byte = 1;
    SUCCEEDS(add(&sum, parts, 2, MIMO_BF16));
    cr_assert_eq(sum, mimo_bf16_from(1 + 0x1p-7f));
    SUCCEEDS(add(&whole, wholes, 2, MIMO_I64));
    cr_assert_eq(whole, (INT64_C(1) << 62) - 2);
    FAILS(add(&byte, &byte, 1, MIMO_F8), MIMO_ERR_UNSUPPORTED, "f8", "summed");
}

/* Three stretches of two elements, five apart, and two parts of twenty. The elements between
 * stay. */
Test(host_device, parts_in_stretches)
{
    int32_t data[15], parts[40];
    uint16_t halves[15], half_parts[40];
    for (int i = 0; i < 40; i++)
        half_parts[i] = mimo_f16_from((float)(parts[i] = i + 1));
    for (int i = 0; i < 15; i++)
        halves[i] = mimo_f16_from((float)(data[i] = -i));
    const mimo_addends whole = {data, parts, 2, 20, 3, 5, 2, MIMO_I32};
    const mimo_addends half = {halves, half_parts, 2, 20, 3, 5, 2, MIMO_F16};
    SUCCEEDS(host->accumulate(&whole, NULL));
    SUCCEEDS(host->accumulate(&half, NULL));
    for (int i = 0; i < 15; i++) {
        int expected = i % 5 < 2 ? -i + (i + 1) + (i + 21) : -i;
        cr_assert_eq(data[i], expected, "element %d is %d", i, (int)data[i]);
        cr_assert_eq(halves[i], mimo_f16_from((float)expected), "element %d", i);
    }
}

/* (a + b) + (c + d), one term, and none, in rows of 65 elements: more than the host adds at once.
 * Bits depend on the order: 1 and three times 2^-24 are 1 from the left, 1 + 2^-23 as a tree. */
Test(host_device, sums_of_rows_in_their_order)
{
    enum { WIDTH = 65, ROWS = 5, SUMS = 3 };
    static float from[ROWS][WIDTH], to[SUMS][WIDTH];
    static double wide_from[ROWS][WIDTH], wide_to[WIDTH];
    static uint16_t half[WIDTH];
    const int64_t begin[] = {0, 4, 5, 5}, leaf[] = {4, 1, 0, 2, 3};
    const uint8_t adds[] = {0, 1, 0, 2, 0};
    const mimo_sum_list list = {SUMS, begin, leaf, adds};
    memset(to, 0xff, sizeof to);
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < WIDTH; c++) {
            from[row][c] = row == 3 ? (float)c : (row == 4 ? 1 : 0x1p-24f);
            wide_from[row][c] = row == 4 ? 1 : 0x1p-53;
        }
    const mimo_row_sums all = {&list, 0, SUMS, WIDTH, to, from, MIMO_F32, MIMO_F32};
    const mimo_row_sums wide = {&list, 0, 1, WIDTH, wide_to, wide_from, MIMO_F64, MIMO_F64};
    const mimo_row_sums one = {&list, 1, 1, WIDTH, half, from, MIMO_BF16, MIMO_F32};
    SUCCEEDS(host->add_rows(&all, NULL));
    SUCCEEDS(host->add_rows(&wide, NULL));
    SUCCEEDS(host->add_rows(&one, NULL));
    for (int c = 0; c < WIDTH; c++) {
        cr_assert(to[0][c] == 1 + 0x1p-23f && to[1][c] == (float)c && to[2][c] == 0, "column %d",
                  c);
        cr_assert(wide_to[c] == 1 + 0x1p-52 && half[c] == mimo_bf16_from((float)c), "column %d", c);
    }
}

/* Row 1 goes to rows 3 and 4, row 0 nowhere, row 5 to row 2. */
Test(host_device, rows_that_a_tile_repeats)
{
    int tile[6][3];
    const int64_t begin[] = {0, 3, 4, 6}, row[] = {1, 3, 4, 0, 5, 2};
    const int expected[] = {0, 1, 5, 1, 1, 5};
    const mimo_row_repeats repeats = {tile, sizeof *tile, 3, begin, row};
    const mimo_row_repeats empty = {tile, 0, 3, begin, row};
    for (int i = 0; i < 18; i++)
        tile[i / 3][i % 3] = i / 3 * 10 + i % 3;
    SUCCEEDS(host->repeat_rows(&repeats, NULL));
    SUCCEEDS(host->repeat_rows(&empty, NULL));
    for (int i = 0; i < 18; i++)
        cr_assert_eq(tile[i / 3][i % 3], expected[i / 3] * 10 + i % 3, "row %d", i / 3);
}

/* A kind of memory that does not exist, or that this build lacks. */
Test(host_device, memory_without_a_device)
{
    const mimo_device *found = NULL;
    FAILS(mimo_device_for(&found, (mimo_memory)7), MIMO_ERR_ARGUMENT, "memory of kind 7");
#ifndef MIMO_WITH_CUDA
    FAILS(mimo_device_for(&found, MIMO_MEMORY_CUDA), MIMO_ERR_UNSUPPORTED,
          "this build can't handle tensors in CUDA memory");
#endif
    cr_assert_null(found);
}

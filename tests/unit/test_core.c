/* Status, dtypes, environment, tensor views, checked sizes, 16-bit floats. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <mimo/mimo.h>

#include "core/check.h"
#include "core/checked.h"
#include "core/float16.h"
#include "core/free_list.h"
#include "core/memory.h"
#include "core/visible.h"
#include "expect_failure.h"

Test(status, sentence_is_kept_and_prefixed)
{
    cr_assert_str_eq(mimo_last_error(), "");
    cr_assert_eq(mimo_fail(MIMO_ERR_GRID, "size %d", 7), MIMO_ERR_GRID);
    cr_assert_str_eq(mimo_last_error(), "size 7");
    cr_assert_eq(mimo_fail(MIMO_ERR_COMM, "again: %s", mimo_last_error()), MIMO_ERR_COMM);
    cr_assert_str_eq(mimo_last_error(), "again: size 7");
    mimo_fail_prefix(MIMO_ERR_COMM, "rank %d: ", 3);
    cr_assert_str_eq(mimo_last_error(), "rank 3: again: size 7");
}

/* Letters of one to four bytes, behind each number of bytes. */
Test(status, long_sentence_ends_with_a_whole_letter)
{
    static const char *const letters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t bytes = 1; bytes <= 4; bytes++)
        for (size_t before = 0; before < 8; before++) {
            char text[2000] = "-------";
            text[before] = '\0';
            while (strlen(text) + bytes < sizeof text)
                strcat(text, letters[bytes - 1]);
            for (int prefixed = 0; prefixed < 2; prefixed++) {
                mimo_fail(MIMO_ERR_GRID, "%s", text);
                if (prefixed)
                    mimo_fail_prefix(MIMO_ERR_GRID, "rank: ");
                size_t length = strlen(mimo_last_error()), head = prefixed ? 6 : 0;
                cr_expect(length > 1000 && (length - head - before) % bytes == 0, "%zu of %zu",
                          length, bytes);
            }
        }
}

/* Of every text that a file may have, what a terminal shows is printable, and nothing else. */
Test(visible, every_byte_and_some_letters)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"", ""},
        {"plain \\ text", "plain \\ text"},
        {"a\nb\tc\rd", "a\\nb\\tc\\rd"},
        {"\x1b[2J\x07\x7f", "\\x1b[2J\\x07\\x7f"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m"},                   /* a control sequence of one letter */
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"}, /* right to left from here */
        {"\xe2\x81\xa6", "\\xe2\\x81\\xa6"},
        {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"}, /* the end of a line */
        {"\xe2\x80\xaf\xe2\x81\xaa", "\xe2\x80\xaf\xe2\x81\xaa"},
        {"\xc3", "\\xc3"}, /* cut off, alone, too long, half of a pair, past the last */
        {"\xa9", "\\xa9"},
        {"\xc0\x9b\xe0\x9f\xbf\xf0\x8f\xbf\xbf", "\\xc0\\x9b\\xe0\\x9f\\xbf\\xf0\\x8f\\xbf\\xbf"},
        {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"},
    };
    char room[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_str_eq(mimo_visible(room, sizeof room, rows[i].text), rows[i].shown, "%zu: %s", i,
                         room);
    for (int byte = 1; byte < 256; byte++) {
        const char text[] = {(char)byte, '\0'};
        for (const char *at = mimo_visible(room, sizeof room, text); *at; at++)
            cr_expect(*at >= ' ' && *at <= '~', "byte %d: %s", byte, room);
    }
}

/* A letter or an escape that does not fit is left out whole. */
Test(visible, ends_with_a_whole_letter)
{
    char room[8];
    cr_expect_str_eq(mimo_visible(room, 6, "ab\x1b"), "ab", "%s", room);
    cr_expect_str_eq(mimo_visible(room, 7, "ab\x1b"), "ab\\x1b", "%s", room);
    cr_expect_str_eq(mimo_visible(room, 4, "ab\xc3\xa9"), "ab", "%s", room);
    cr_expect_str_eq(mimo_visible(room, 1, "ab"), "", "%s", room);
}

/* Each status has a name and a text of its own. A number that is no status has a text as well. */
Test(status, names_and_texts)
{
    static const mimo_status all[] = {
#define VALUE(name, value, text) name,
        MIMO_STATUS_LIST(VALUE)
#undef VALUE
    };
    int count = (int)(sizeof all / sizeof *all);
    cr_assert_str_eq(mimo_status_name(MIMO_ERR_SHAPE), "MIMO_ERR_SHAPE");
    cr_assert_str_eq(mimo_status_text(MIMO_OK), "success");
    for (int i = 0; i < count; i++) {
        cr_assert(strncmp(mimo_status_name(all[i]), "MIMO_", 5) == 0);
        cr_assert(*mimo_status_text(all[i]));
        for (int j = 0; j < i; j++)
            cr_assert(strcmp(mimo_status_name(all[i]), mimo_status_name(all[j])) != 0 &&
                      strcmp(mimo_status_text(all[i]), mimo_status_text(all[j])) != 0);
    }
    cr_assert_str_eq(mimo_status_name((mimo_status)4711), "MIMO_ERR_?");
    cr_assert_str_eq(mimo_status_text((mimo_status)4711), "unknown status");
}

Test(dtype, sizes_and_names_round_trip)
{
    static const mimo_dtype all[] = {MIMO_F32, MIMO_F16, MIMO_BF16, MIMO_F64,
                                     MIMO_I32, MIMO_I64, MIMO_F8};
    static const size_t bytes[] = {4, 2, 2, 8, 4, 8, 1};
    for (int i = 0; i < 7; i++) {
        mimo_dtype parsed;
        cr_assert_eq(mimo_dtype_size(all[i]), bytes[i]);
        SUCCEEDS(mimo_dtype_parse(&parsed, mimo_dtype_name(all[i])));
        cr_assert_eq(parsed, all[i]);
    }
    mimo_dtype untouched = MIMO_I64;
    FAILS(mimo_dtype_parse(&untouched, NULL), MIMO_ERR_ARGUMENT, "dtype_parse: name is NULL");
    FAILS(mimo_dtype_parse(NULL, "f32"), MIMO_ERR_ARGUMENT, "mimo_dtype_parse: out is NULL");
    cr_assert_eq(mimo_dtype_parse(&untouched, "f12"), MIMO_ERR_ARGUMENT);
    cr_assert_eq(untouched, MIMO_I64);
    cr_assert(strstr(mimo_last_error(), "f12"));
    cr_assert_eq(mimo_dtype_size((mimo_dtype)77), 0);
    cr_assert_str_eq(mimo_dtype_name((mimo_dtype)77), "?");
}

/* Reads the variable as `text`, or unset where `text` is NULL. */
static void expect_value(mimo_env_id id, const char *name, const char *text, int64_t expected)
{
    int64_t value = -1;
    if (text)
        setenv(name, text, 1);
    else
        unsetenv(name);
    SUCCEEDS(mimo_env_get(&value, id));
    cr_assert_eq(value, expected, "%s=%s", name, text ? text : "(unset)");
}

Test(env, default_value_and_nonsense)
{
    int64_t value = -1;
    expect_value(MIMO_ENV_AGREE, "MIMO_AGREE", NULL, 1);
    expect_value(MIMO_ENV_AGREE, "MIMO_AGREE", "0", 0);
    setenv("MIMO_AGREE", "yes", 1);
    FAILS(mimo_env_get(&value, MIMO_ENV_AGREE), MIMO_ERR_ARGUMENT, "MIMO_AGREE='yes'");
}

/* The values that are read are those of the table. */
Test(env, table)
{
    int count = 0;
    int64_t value;
    const mimo_env_row *rows = mimo_env_table(&count);
    cr_assert_gt(count, 0);
    for (int i = 0; i < count; i++) {
        cr_assert(strncmp(rows[i].name, "MIMO_", 5) == 0 && *rows[i].help);
        unsetenv(rows[i].name);
        if (rows[i].words && !rows[i].words[0]) /* a text */
            continue;
        SUCCEEDS(mimo_env_get(&value, (mimo_env_id)i));
        cr_assert_eq(value, rows[i].value);
    }
    cr_assert_eq(mimo_env_get(&value, (mimo_env_id)count), MIMO_ERR_ARGUMENT);
    cr_assert_eq(mimo_env_get(NULL, MIMO_ENV_AGREE), MIMO_ERR_ARGUMENT);
}

Test(env, lists_of_words)
{
    int64_t value = -1;
    expect_value(MIMO_ENV_CHECK, "MIMO_CHECK", NULL, 0);
    expect_value(MIMO_ENV_CHECK, "MIMO_CHECK", "samples,replicas",
                 MIMO_CHECK_SAMPLES | MIMO_CHECK_REPLICAS);
    expect_value(MIMO_ENV_CHECK, "MIMO_CHECK", "calls", MIMO_CHECK_CALLS);
    expect_value(MIMO_ENV_CHECK, "MIMO_CHECK", "", 0);
    setenv("MIMO_CHECK", "calls,call", 1);
    FAILS(mimo_env_get(&value, MIMO_ENV_CHECK), MIMO_ERR_ARGUMENT,
          "'call' is none of replicas,calls,samples");
    static const char *const lists[] = {",", "calls,", ",calls", "calls,,samples", " calls"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        setenv("MIMO_CHECK", lists[i], 1);
        FAILS(mimo_env_get(&value, MIMO_ENV_CHECK), MIMO_ERR_ARGUMENT, "' is none of");
    }
    cr_assert_eq(value, -1);
}

Test(env, texts)
{
    const char *text = NULL;
    int64_t value = -1;
    unsetenv("MIMO_RING_FOLDER");
    SUCCEEDS(mimo_env_text(&text, MIMO_ENV_RING_FOLDER));
    cr_assert_str_eq(text, "");
    setenv("MIMO_RING_FOLDER", "a, b", 1);
    SUCCEEDS(mimo_env_text(&text, MIMO_ENV_RING_FOLDER));
    cr_assert_str_eq(text, "a, b");
    text = NULL;
    FAILS(mimo_env_text(&text, MIMO_ENV_RING), MIMO_ERR_ARGUMENT, "MIMO_RING is no text");
    cr_assert_eq(mimo_env_text(&text, (mimo_env_id)99), MIMO_ERR_ARGUMENT);
    cr_assert_eq(mimo_env_text(NULL, MIMO_ENV_RING_FOLDER), MIMO_ERR_ARGUMENT);
    cr_assert_null(text);
    FAILS(mimo_env_get(&value, MIMO_ENV_RING_FOLDER), MIMO_ERR_ARGUMENT,
          "MIMO_RING_FOLDER is a text");
    cr_assert_eq(value, -1);
    unsetenv("MIMO_RING_FOLDER");
}

Test(env, numbers)
{
    static const char *const wrong[] = {"",  " 1", "1 ",  "+1",
                                        "-", "1x", "0x1", "99999999999999999999"};
    int64_t value = -7;
    expect_value(MIMO_ENV_AGREE, "MIMO_AGREE", "0", 0);
    expect_value(MIMO_ENV_DEADLINE, "MIMO_DEADLINE_MS", "-2", -2); /* its user checks the range */
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("MIMO_AGREE", wrong[i], 1);
        FAILS(mimo_env_get(&value, MIMO_ENV_AGREE), MIMO_ERR_ARGUMENT, "is not a whole number");
    }
    cr_assert_eq(value, -7);
}

Test(tensor, extent_size_and_text)
{
    char text[64];
    int64_t elements, bytes;
    mimo_tensor view = mimo_tensor_3d(NULL, MIMO_BF16, "sbh", 577, 4, 1024);
    SUCCEEDS(mimo_tensor_extent(&elements, &bytes, &view));
    cr_assert_eq(elements, 577 * 4 * 1024);
    cr_assert_eq(bytes, 2 * elements);
    cr_assert_eq(mimo_tensor_size(&view, 'b'), 4);
    cr_assert_eq(mimo_tensor_size(&view, 't'), -1);
    cr_assert_str_eq(mimo_tensor_text(text, sizeof text, &view), "bf16 sbh[577,4,1024]");
    cr_assert_str_eq(mimo_tensor_text(text, 9, &view), "bf16 sbh");
}

Test(tensor, errors_name_the_view)
{
    mimo_tensor huge = mimo_tensor_3d(NULL, MIMO_F64, "sbh", INT64_MAX / 2, 4, 4);
    cr_assert_eq(mimo_tensor_extent(NULL, NULL, &huge), MIMO_ERR_OVERFLOW);
    cr_assert_eq(mimo_tensor_extent(NULL, NULL, NULL), MIMO_ERR_ARGUMENT);
    mimo_tensor twice = mimo_tensor_3d(NULL, MIMO_F32, "ssh", 1, 2, 3);
    cr_assert_eq(mimo_tensor_extent(NULL, NULL, &twice), MIMO_ERR_SHAPE);
    mimo_tensor negative = mimo_tensor_2d(NULL, MIMO_F32, "th", -1, 3);
    FAILS(mimo_tensor_extent(NULL, NULL, &negative), MIMO_ERR_SHAPE, "f32 th[-1,3]");
    mimo_tensor bare = mimo_tensor_2d(NULL, MIMO_F32, "", 1, 3);
    FAILS(mimo_tensor_extent(NULL, NULL, &bare), MIMO_ERR_SHAPE, "no layout letters");
    mimo_tensor endless = mimo_tensor_3d(NULL, MIMO_F32, "bhp", 1, 2, 3);
    endless.letters[MIMO_TENSOR_DIMS] = 's'; /* found there, it would be dimension 3 of 3 */
    FAILS(mimo_tensor_extent(NULL, NULL, &endless), MIMO_ERR_SHAPE, "'bhps', are not terminated");
}

Test(checked, overflow_is_an_error)
{
    int64_t out;
    cr_assert_eq(mimo_mul(&out, INT64_C(1) << 40, INT64_C(1) << 40), MIMO_ERR_OVERFLOW);
    cr_assert_eq(mimo_add(&out, INT64_MAX, 1), MIMO_ERR_OVERFLOW);
    void *room = NULL;
    cr_assert_eq(mimo_reserve(&room, INT64_MAX, 16), MIMO_ERR_OVERFLOW);
    cr_assert_null(room);
}

Test(memory, less_than_nothing)
{
    char *room = NULL;
    FAILS(mimo_reserve(&room, -3, 8), MIMO_ERR_OVERFLOW, "cannot allocate -24 bytes");
    FAILS(mimo_reserve(&room, INT64_MAX / 4, 8), MIMO_ERR_OVERFLOW, "does not fit");
    cr_assert_null(room);
}

/* The first elements find room for four, the fifth for eight. */
Test(memory, make_room_doubles)
{
    int64_t *values = NULL, capacity = 0;
    for (int64_t count = 0; count < 6; count++) {
        SUCCEEDS(mimo_make_room(&values, &capacity, count, 4, sizeof *values));
        cr_assert_eq(capacity, count < 4 ? 4 : 8, "%ld behind %ld", (long)capacity, (long)count);
        cr_assert_eq(values[count], 0);
        values[count] = 10 + count;
    }
    for (int64_t i = 0; i < 6; i++)
        cr_assert_eq(values[i], 10 + i);
    mimo_release(values);
}

Test(memory, regrow_keeps_and_zeroes)
{
    int64_t *values;
    SUCCEEDS(mimo_reserve(&values, 2, sizeof *values));
    values[0] = 5;
    values[1] = 6;
    SUCCEEDS(mimo_regrow(&values, 2, 100, sizeof *values));
    cr_assert_eq(values[0] + values[1], 11);
    for (int i = 2; i < 100; i++)
        cr_assert_eq(values[i], 0);
    mimo_release(values);
}

Test(float16, every_word_survives_the_round_trip)
{
    for (uint32_t word = 0; word < 0x10000u; word++) {
        float half = mimo_f16_to((uint16_t)word), brain = mimo_bf16_to((uint16_t)word);
        if (isnan(half))
            cr_assert(isnan(mimo_f16_to(mimo_f16_from(half))));
        else
            cr_assert_eq(mimo_f16_from(half), word);
        if (isnan(brain))
            cr_assert(isnan(mimo_bf16_to(mimo_bf16_from(brain))));
        else
            cr_assert_eq(mimo_bf16_from(brain), word);
    }
}

/* Nearest of the two neighbouring words, ties to even: checked against doubles. */
static void check_rounding(float x, float (*to)(uint16_t), uint16_t (*from)(float), uint16_t limit)
{
    uint16_t word = from(x);
    double error = fabs((double)to(word) - x);
    uint16_t magnitude = word & 0x7fffu;
    if (magnitude >= limit)
        return; /* rounded to infinity */
    double up = magnitude + 1 < limit ? fabs((double)to((uint16_t)(word + 1)) - x) : INFINITY;
    double down = magnitude > 0 ? fabs((double)to((uint16_t)(word - 1)) - x) : INFINITY;
    cr_assert(error <= up && error <= down, "%a -> %04x", (double)x, word);
    if (error == up || error == down)
        cr_assert_eq(word & 1, 0, "tie of %a went to odd %04x", (double)x, word);
}

Test(float16, rounds_to_nearest_even)
{
    uint32_t state = 12345;
    for (int i = 0; i < 200000; i++) {
        state = state * 1664525u + 1013904223u;
        float x = mimo_bits_float(state);
        if (!isfinite(x))
            continue;
        check_rounding(x, mimo_bf16_to, mimo_bf16_from, 0x7f80u);
        float small = mimo_bits_float((state & 0x8fffffffu) | 0x30000000u); /* f16's range */
        check_rounding(small, mimo_f16_to, mimo_f16_from, 0x7c00u);
    }
    cr_assert_eq(mimo_f16_from(65519.0f), 0x7bff);
    cr_assert_eq(mimo_f16_from(65520.0f), 0x7c00);
    cr_assert_eq(mimo_f16_from(0x1p-25f), 0);
    cr_assert_eq(mimo_f16_from(0x1.8p-25f), 1);
}

/* --------------------------------------- free list --------------------------------------- */

Test(free_list, gives_the_smallest_that_fits)
{
    mimo_free_item small = {NULL, 8, 64}, large = {NULL, 8, 4096}, wide = {NULL, 32, 128};
    mimo_free_item *list = NULL;
    mimo_free_list_put(&list, &small);
    mimo_free_list_put(&list, &wide);
    mimo_free_list_put(&list, &large);
    cr_assert_null(mimo_free_list_take(&list, 0, 4097));
    cr_assert_null(mimo_free_list_take(&list, 33, 0));
    cr_assert_eq(mimo_free_list_take(&list, 8, 10), &small, "the large one is kept for others");
    cr_assert_eq(mimo_free_list_take(&list, 9, 10), &wide, "the others are too narrow");
    cr_assert_eq(mimo_free_list_take(&list, 8, 10), &large);
    cr_assert_null(list);
}

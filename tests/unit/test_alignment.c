/* Alignment: a golden, random ids with every order of rows against a slow walk over the ids, the
 * adjoint, every error. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include <criterion/criterion.h>

#include <mimo/alignment.h>

#include "expect_failure.h"
#include "guarded.h"
#include "cases_ran.h"
#include "same_bits.h"

static mimo_alignment *alignment_of(int modalities, const int64_t *special, int64_t vocabulary)
{
    mimo_alignment *alignment = NULL;
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    desc.modalities = modalities;
    desc.special = special;
    desc.vocabulary = vocabulary;
    SUCCEEDS(mimo_alignment_create(&alignment, &desc));
    return alignment;
}

/* ids [2, 4], the image id 9: sample 0 has images at 1 and 2, sample 1 at 0. H = 1. */
Test(alignment, golden)
{
    const int64_t special[] = {9};
    const int32_t ids[] = {1, 9, 9, 2, 9, 3, 4, 5};
    const float images[] = {100, 101, 102}, words[] = {1, 2, 3, 4, 5};
    const float by_sample[] = {1, 100, 101, 2, 102, 3, 4, 5};
    const float by_position[] = {1, 102, 100, 3, 101, 4, 2, 5};
    float out[8];
    int64_t count;
    mimo_alignment *alignment = alignment_of(1, special, 9);
    mimo_tensor view = mimo_tensor_2d((void *)ids, MIMO_I32, "bs", 2, 4);
    mimo_tensor rows = mimo_tensor_2d((void *)images, MIMO_F32, "th", 3, 1);
    mimo_tensor text = mimo_tensor_2d((void *)words, MIMO_F32, "th", 5, 1);
    mimo_tensor to = mimo_tensor_3d(out, MIMO_F32, "bsh", 2, 4, 1);
    SUCCEEDS(mimo_alignment_update(alignment, &view, NULL));
    SUCCEEDS(mimo_alignment_rows(&count, alignment, 0));
    cr_assert_eq(count, 3);
    SUCCEEDS(mimo_alignment_rows(&count, alignment, -1));
    cr_assert_eq(count, 5);
    SUCCEEDS(mimo_alignment_merge(alignment, &to, &rows, &text, NULL));
    EXPECT_BITS(bits_of(out, by_sample, sizeof out, sizeof *out, 0), "by_sample");
    to = mimo_tensor_3d(out, MIMO_F32, "sbh", 4, 2, 1);
    SUCCEEDS(mimo_alignment_merge(alignment, &to, &rows, &text, NULL));
    EXPECT_BITS(bits_of(out, by_position, sizeof out, sizeof *out, 0), "by_position");
    mimo_alignment_destroy(alignment);
}

/* Two samples of two rows each. In the encoder's sbh they lie as 0:(s0,b0) 1:(s0,b1) 2:(s1,b0) */
Test(alignment, golden_rows_of_sbh_are_taken_sample_major)
{
    const int64_t special[] = {9}, ids[] = {9, 9, 9, 9};
    const float images[] = {0, 10, 1, 11}, expected[] = {0, 1, 10, 11};
    float out[4];
    mimo_alignment *alignment = alignment_of(1, special, 0);
    mimo_tensor view = mimo_tensor_2d((void *)ids, MIMO_I64, "bs", 2, 2);
    mimo_tensor rows = mimo_tensor_3d((void *)images, MIMO_F32, "sbh", 2, 2, 1);
    mimo_tensor text = mimo_tensor_2d(NULL, MIMO_F32, "th", 0, 1);
    mimo_tensor to = mimo_tensor_3d(out, MIMO_F32, "bsh", 2, 2, 1);
    SUCCEEDS(mimo_alignment_update(alignment, &view, NULL));
    SUCCEEDS(mimo_alignment_merge(alignment, &to, &rows, &text, NULL));
    EXPECT_BITS(bits_of(out, expected, sizeof out, sizeof *out, 0), "expected");
    mimo_alignment_destroy(alignment);
}

/* -------------------------------------- random cases ---------------------------------------- */

enum { MOST = 4, VOCABULARY = 50 };
static const int64_t special_ids[MOST] = {7, 1000, 3, 49}; /* in and out of the vocabulary */

typedef struct random_case {
    int modalities;
    int64_t batch, seq, hidden;
    mimo_dtype dtype;
    int64_t *ids, *source, *nth; /* [B * S]: the id, its source, its index among the source's ids */
    int64_t count[MOST + 1];
    mimo_tensor rows[MOST + 1]; /* the last one is text */
    mimo_tensor tile;
} random_case;

/* The row of a source's view that is its n-th row, sample-major. */
static int64_t place_of(const mimo_tensor *view, int64_t n)
{
    if (view->letters[0] != 's')
        return n;
    int64_t b = n / view->shape[0], s = n % view->shape[0];
    return s * view->shape[1] + b;
}

static mimo_tensor draw_source(uint64_t *state, const random_case *it, int64_t n, bool text)
{
    static const char *const letters[] = {"th", "bh", "bsh", "sbh"};
    const char *order = letters[text ? 0 : random_below(state, 4)];
    if (strlen(order) == 2)
        return mimo_tensor_2d(NULL, it->dtype, order, n, it->hidden);
    int64_t b = 1 + random_below(state, 6);
    while (n % b)
        b--;
    bool by_position = order[0] == 's';
    return mimo_tensor_3d(NULL, it->dtype, order, by_position ? n / b : b, by_position ? b : n / b,
                          it->hidden);
}

static int64_t bytes_of(const mimo_tensor *view)
{
    int64_t bytes;
    SUCCEEDS(mimo_tensor_extent(NULL, &bytes, view));
    return bytes;
}

static random_case draw_case(uint64_t *state, mimo_dtype dtype)
{
    random_case it;
    memset(&it, 0, sizeof it);
    it.modalities = (int)random_below(state, MOST + 1);
    it.batch = random_below(state, 5);
    it.seq = random_below(state, 12);
    it.hidden = 1 + random_below(state, 5);
    it.dtype = dtype;
    int64_t n = it.batch * it.seq;
    it.ids = calloc((size_t)n + 1, 8);
    it.source = calloc((size_t)n + 1, 8);
    it.nth = calloc((size_t)n + 1, 8);
    for (int64_t i = 0; i < n; i++) {
        int64_t source = random_below(state, it.modalities + 1);
        /* ids 10..48 are no source's special id */
        it.ids[i] = source < it.modalities ? special_ids[source] : 10 + random_below(state, 39);
        it.source[i] = source;
        it.nth[i] = it.count[source]++;
    }
    for (int m = 0; m <= it.modalities; m++) {
        it.rows[m] = draw_source(state, &it, it.count[m], m == it.modalities);
        it.rows[m].data = guarded_new(bytes_of(&it.rows[m]));
    }
    it.tile = random_below(state, 2)
                  ? mimo_tensor_3d(NULL, dtype, "sbh", it.seq, it.batch, it.hidden)
                  : mimo_tensor_3d(NULL, dtype, "bsh", it.batch, it.seq, it.hidden);
    it.tile.data = guarded_new(bytes_of(&it.tile));
    return it;
}

static void release_case(random_case *it)
{
    for (int m = 0; m <= it->modalities; m++) {
        EXPECT_BITS(bits_of_guards(it->rows[m].data, bytes_of(&it->rows[m])),
                    "a guard band of source %d", m);
        guarded_free(it->rows[m].data);
    }
    EXPECT_BITS(bits_of_guards(it->tile.data, bytes_of(&it->tile)), "a guard band of the tile");
    guarded_free(it->tile.data);
    free(it->ids), free(it->source), free(it->nth);
}

static mimo_alignment *updated_for(const random_case *it)
{
    mimo_alignment *alignment = alignment_of(it->modalities, special_ids, VOCABULARY);
    mimo_tensor ids = mimo_tensor_2d(it->ids, MIMO_I64, "bs", it->batch, it->seq);
    SUCCEEDS(mimo_alignment_update(alignment, &ids, NULL));
    return alignment;
}

static int64_t tile_row(const random_case *it, int64_t i)
{
    int64_t b = i / it->seq, s = i % it->seq;
    return it->tile.letters[0] == 's' ? s * it->batch + b : i;
}

/* Element h of the row at position i equals that of its source's row. The call has written one
 * side. The other side holds the data of the seed: the tile with `by_tile`, otherwise the
 * source. */
static void expect_rows(const random_case *it, uint64_t seed, bool by_tile)
{
    int64_t size = (int64_t)mimo_dtype_size(it->dtype);
    for (int64_t i = 0; i < it->batch * it->seq; i++) {
        const mimo_tensor *view = by_tile ? &it->rows[it->source[i]] : &it->tile;
        bit_report report = {.element = size, .columns = it->hidden};
        int64_t in_tile = tile_row(it, i) * it->hidden;
        int64_t in_source = place_of(&it->rows[it->source[i]], it->nth[i]) * it->hidden;
        int64_t to = by_tile ? in_source : in_tile, from = by_tile ? in_tile : in_source;
        for (int64_t h = 0; h < it->hidden; h++) {
            unsigned char expected[8];
            element_of_seed(expected, seed + (by_tile ? 0 : (uint64_t)it->source[i]), from + h,
                            size);
            bits_note(&report, to + h, (const char *)view->data + (to + h) * size, expected);
        }
        EXPECT_BITS(report, "%s, position %" PRId64 " of source %" PRId64,
                    by_tile ? "the source" : "the tile", i, it->source[i]);
    }
}

Test(alignment, random_merge_and_split)
{
    uint64_t state = 5;
    int64_t with_rows = 0;
    for (int i = 0; i < 1400; i++) {
        random_case it = draw_case(&state, (mimo_dtype)(i % 7));
        int64_t size = (int64_t)mimo_dtype_size(it.dtype);
        uint64_t seed = next_random(&state);
        mimo_alignment *alignment = updated_for(&it);
        mimo_tensor *text = &it.rows[it.modalities];
        for (int m = 0; m <= it.modalities; m++)
            fill_elements(it.rows[m].data, seed + (uint64_t)m, it.count[m] * it.hidden, size);
        SUCCEEDS(mimo_alignment_merge(alignment, &it.tile, it.rows, text, NULL));
        expect_rows(&it, seed, false);
        fill_elements(it.tile.data, seed, it.batch * it.seq * it.hidden, size);
        for (int m = 0; m <= it.modalities; m++)
            memset(it.rows[m].data, GUARD_POISON, (size_t)bytes_of(&it.rows[m]));
        SUCCEEDS(mimo_alignment_split(alignment, it.rows, text, &it.tile, NULL));
        expect_rows(&it, seed, true);
        with_rows += it.batch * it.seq > 0;
        mimo_alignment_destroy(alignment);
        release_case(&it);
    }
    CASES_RAN(with_rows, 1400, 900, "random merges of rows");
}

/* A view without data is skipped; the others are written. A second update replaces the first. An
 * update that fails leaves the former one in force. */
Test(alignment, skipped_views_and_updates)
{
    const int64_t special[] = {9}, first[] = {9, 1}, second[] = {1, 9}, unknown[] = {9, -4};
    float tile[] = {5, 6}, image = 0, word = 0;
    mimo_alignment *alignment = alignment_of(1, special, 0);
    mimo_tensor ids = mimo_tensor_2d((void *)first, MIMO_I64, "bs", 1, 2);
    mimo_tensor rows = mimo_tensor_2d(NULL, MIMO_F32, "th", 1, 1);
    mimo_tensor text = mimo_tensor_2d(&word, MIMO_F32, "th", 1, 1);
    mimo_tensor from = mimo_tensor_3d(tile, MIMO_F32, "sbh", 2, 1, 1);
    SUCCEEDS(mimo_alignment_update(alignment, &ids, NULL));
    SUCCEEDS(mimo_alignment_split(alignment, &rows, &text, &from, NULL));
    cr_assert_float_eq(word, 6, 0);
    ids.data = (void *)second;
    SUCCEEDS(mimo_alignment_update(alignment, &ids, NULL));
    ids.data = (void *)unknown;
    FAILS(mimo_alignment_update(alignment, &ids, NULL), MIMO_ERR_ARGUMENT, "id -4", "sample 0",
          "position 1");
    rows.data = &image;
    SUCCEEDS(mimo_alignment_split(alignment, &rows, &text, &from, NULL));
    cr_assert(image == 6 && word == 5, "%g, %g", (double)image, (double)word);
    mimo_alignment_destroy(alignment);
}

/* A merge leaves the positions of a source without data alone: a bridge has written them. */
Test(alignment, merge_beside_rows_that_are_there)
{
    const int64_t special[] = {9}, id[] = {1, 9, 9, 1};
    float tile[] = {5, 6, 7, 8}, words[] = {1, 2}, images[] = {3, 4};
    mimo_alignment *alignment = alignment_of(1, special, 0);
    mimo_tensor ids = mimo_tensor_2d((void *)id, MIMO_I64, "bs", 2, 2);
    mimo_tensor rows = mimo_tensor_2d(NULL, MIMO_F32, "th", 2, 1);
    mimo_tensor text = mimo_tensor_2d(words, MIMO_F32, "th", 2, 1);
    const mimo_tensor to = mimo_tensor_3d(tile, MIMO_F32, "bsh", 2, 2, 1);
    const float beside_images[] = {1, 6, 7, 2}, beside_text[] = {1, 3, 4, 2};
    SUCCEEDS(mimo_alignment_update(alignment, &ids, NULL));
    SUCCEEDS(mimo_alignment_merge(alignment, &to, &rows, &text, NULL));
    EXPECT_BITS(bits_of(tile, beside_images, sizeof tile, sizeof *tile, 0), "beside images");
    rows.data = images, text.data = NULL;
    SUCCEEDS(mimo_alignment_merge(alignment, &to, &rows, &text, NULL));
    EXPECT_BITS(bits_of(tile, beside_text, sizeof tile, sizeof *tile, 0), "beside text");
    mimo_alignment_destroy(alignment);
}

/* ------------------------------------------ errors ------------------------------------------ */

static mimo_status create(int modalities, const int64_t *special, int64_t vocabulary)
{
    mimo_alignment *alignment = NULL;
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    desc.modalities = modalities;
    desc.special = special;
    desc.vocabulary = vocabulary;
    mimo_status status = mimo_alignment_create(&alignment, &desc);
    cr_assert_eq(alignment == NULL, status != MIMO_OK);
    mimo_alignment_destroy(alignment);
    return status;
}

Test(alignment, errors_of_creation)
{
    const int64_t twice[] = {5, 6, 5}, negative[] = {5, -2};
    mimo_alignment *alignment;
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    FAILS(mimo_alignment_create(NULL, &desc), MIMO_ERR_ARGUMENT, "out is NULL");
    FAILS(mimo_alignment_create(&alignment, NULL), MIMO_ERR_ARGUMENT, "desc is NULL");
    desc.size = 999;
    FAILS(mimo_alignment_create(&alignment, &desc), MIMO_ERR_ARGUMENT, "size is 999");
    FAILS(create(3, twice, 0), MIMO_ERR_ARGUMENT, "modalities 0 and 2", "id 5");
    FAILS(create(2, negative, 0), MIMO_ERR_ARGUMENT, "modality 1", "-2");
    FAILS(create(2, NULL, 0), MIMO_ERR_ARGUMENT, "NULL for 2");
    FAILS(create(-1, twice, 0), MIMO_ERR_ARGUMENT, "alignment: -1 modalities");
    FAILS(create(0, NULL, -5), MIMO_ERR_ARGUMENT, "vocabulary of -5");
    mimo_alignment_destroy(NULL);
}

Test(alignment, errors_of_ids)
{
    const int64_t special[] = {9, 100}, ids[] = {1, 9, 10, 3, 4, 5};
    mimo_alignment *alignment = alignment_of(2, special, 10);
    mimo_tensor view = mimo_tensor_2d((void *)ids, MIMO_I64, "bs", 2, 3), bad;
    int64_t rows = -7;
    FAILS(mimo_alignment_rows(&rows, alignment, 0), MIMO_ERR_STATE, "no ids");
    FAILS(mimo_alignment_update(alignment, &view, NULL), MIMO_ERR_ARGUMENT, "id 10", "sample 0",
          "position 2", "vocabulary of 10");
    bad = mimo_tensor_2d((void *)ids, MIMO_I64, "sb", 2, 3);
    FAILS(mimo_alignment_update(alignment, &bad, NULL), MIMO_ERR_SHAPE, "i64 sb[2,3]");
    bad = view, bad.dtype = MIMO_F64;
    FAILS(mimo_alignment_update(alignment, &bad, NULL), MIMO_ERR_SHAPE, "f64 bs[2,3]",
          "i32 or i64");
    bad = view, bad.memory = MIMO_MEMORY_CUDA;
    FAILS(mimo_alignment_update(alignment, &bad, NULL), MIMO_ERR_SHAPE, "bs[2,3]", "host memory");
    bad = view, bad.data = NULL;
    FAILS(mimo_alignment_update(alignment, &bad, NULL), MIMO_ERR_ARGUMENT, "bs[2,3]", "NULL");
    bad = view, bad.shape[0] = -1;
    FAILS(mimo_alignment_update(alignment, &bad, NULL), MIMO_ERR_SHAPE, "bs[-1,3]");
    FAILS(mimo_alignment_update(alignment, NULL, NULL), MIMO_ERR_ARGUMENT, "ids is NULL");
    FAILS(mimo_alignment_update(NULL, &view, NULL), MIMO_ERR_ARGUMENT, "alignment is NULL");
    FAILS(mimo_alignment_rows(&rows, alignment, 2), MIMO_ERR_ARGUMENT, "modality 2 among 2");
    FAILS(mimo_alignment_rows(&rows, alignment, -2), MIMO_ERR_ARGUMENT, "modality -2");
    FAILS(mimo_alignment_rows(&rows, NULL, 0), MIMO_ERR_ARGUMENT, "alignment is NULL");
    FAILS(mimo_alignment_rows(NULL, alignment, 0), MIMO_ERR_ARGUMENT, "rows is NULL");
    cr_assert_eq(rows, -7);
    mimo_alignment_destroy(alignment);
}

Test(alignment, errors_of_views)
{
    const int64_t special[] = {9, 8}, ids[] = {1, 9, 9, 2};
    float images[4], words[4], out[8];
    mimo_alignment *a = alignment_of(2, special, 0);
    mimo_tensor view = mimo_tensor_2d((void *)ids, MIMO_I64, "bs", 2, 2);
    const mimo_tensor image = mimo_tensor_2d(images, MIMO_F32, "th", 2, 2);
    const mimo_tensor none = mimo_tensor_2d(NULL, MIMO_F32, "th", 0, 2);
    const mimo_tensor text = mimo_tensor_2d(words, MIMO_F32, "th", 2, 2);
    const mimo_tensor to = mimo_tensor_3d(out, MIMO_F32, "sbh", 2, 2, 2);
    mimo_tensor rows[] = {image, none}, bad;
#define MERGE(to, text) mimo_alignment_merge(a, &(to), rows, &(text), NULL)
    memset(out, GUARD_POISON, sizeof out);
    FAILS(MERGE(to, text), MIMO_ERR_STATE, "no ids");
    SUCCEEDS(mimo_alignment_update(a, &view, NULL));
    rows[0].shape[0] = 1;
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "modality 0 has 1 rows", "take 2");
    rows[0] = image, rows[1] = image;
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "modality 1 has 2 rows", "take 0");
    rows[1] = none;
    rows[0] = none; /* the source of a special id has no rows */
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "modality 0 has 0 rows", "take 2");
    rows[0] = image, rows[0].shape[1] = 1;
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "modality 0", "th[2,1]", "sbh[2,2,2]");
    rows[0] = image, rows[0].dtype = MIMO_I32;
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "i32 th[2,2]", "f32 sbh");
    rows[0] = image, rows[0].memory = MIMO_MEMORY_CUDA;
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "memory must agree");
    rows[0] = image, memcpy(rows[0].letters, "bs", 2);
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "bs[2,2]", "th, bh, sbh or bsh");
    rows[0] = image, bad = text, bad.shape[0] = 3;
    FAILS(MERGE(to, bad), MIMO_ERR_SHAPE, "text has 3 rows", "take 2");
    bad = text, memcpy(bad.letters, "bh", 2);
    FAILS(MERGE(to, bad), MIMO_ERR_SHAPE, "text are f32 bh[2,2]", "must be th");
    bad = to, bad.shape[0] = 3;
    FAILS(MERGE(bad, text), MIMO_ERR_SHAPE, "sbh[3,2,2]", "B = 2 and S = 2");
    bad = to, memcpy(bad.letters, "hbs", 3);
    FAILS(MERGE(bad, text), MIMO_ERR_SHAPE, "hbs[2,2,2]", "sbh or bsh");
    bad = to, bad.data = NULL;
    FAILS(MERGE(bad, text), MIMO_ERR_ARGUMENT, "sbh[2,2,2]", "NULL");
    bad = to, bad.memory = MIMO_MEMORY_CUDA;
    FAILS(MERGE(bad, text), MIMO_ERR_SHAPE, "the merged tile lies in CUDA memory",
          "made for host memory");
    FAILS(mimo_alignment_merge(a, &to, NULL, &text, NULL), MIMO_ERR_ARGUMENT, "2 modalities");
    FAILS(mimo_alignment_merge(a, &to, rows, NULL, NULL), MIMO_ERR_ARGUMENT, "text view is NULL");
    FAILS(mimo_alignment_merge(a, NULL, rows, &text, NULL), MIMO_ERR_ARGUMENT, "tile is NULL");
    FAILS(mimo_alignment_merge(NULL, &to, rows, &text, NULL), MIMO_ERR_ARGUMENT, "alignment");
    FAILS(mimo_alignment_split(NULL, rows, &text, &to, NULL), MIMO_ERR_ARGUMENT, "alignment");
    rows[0].shape[0] = 3, rows[0].data = NULL; /* skipped, but its shape is checked */
    FAILS(mimo_alignment_split(a, rows, &text, &to, NULL), MIMO_ERR_SHAPE, "modality 0 has 3 rows");
    FAILS(MERGE(to, text), MIMO_ERR_SHAPE, "modality 0 has 3 rows");
    EXPECT_BITS(bits_of_poison(out, 0, sizeof out), "written by a failed call");
    mimo_alignment_destroy(a);
}

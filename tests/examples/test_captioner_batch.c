/* What a micro-batch holds: which samples are chosen, and every id and label of theirs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "captioner/training/turn_choice.h"

/* Every epoch takes each sample exactly once, for any batch size. Epochs differ, and so do
 * seeds. */
static void expect_permutations(int64_t samples, int64_t count, uint64_t seed)
{
    int *seen = calloc((size_t)samples, sizeof *seen);
    int64_t *chosen = calloc((size_t)count, sizeof *chosen);
    int64_t steps = 2 * samples; /* whole epochs: 2 * count of them */
    for (int64_t step = 0; step < steps; step++) {
        turn_samples(chosen, count, step, seed, samples);
        for (int64_t i = 0; i < count; i++) {
            cr_assert(chosen[i] >= 0 && chosen[i] < samples, "sample %ld of %ld", (long)chosen[i],
                      (long)samples);
            int epoch = (int)((step * count + i) / samples);
            cr_assert_eq(seen[chosen[i]]++, epoch, "sample %ld of %ld comes twice in epoch %d",
                         (long)chosen[i], (long)samples, epoch);
        }
    }
    free(seen);
    free(chosen);
}

Test(captioner_batch, epochs_are_permutations)
{
    static const int64_t samples[] = {1, 2, 3, 7, 16, 17, 100, 347};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        for (int64_t count = 1; count <= 5; count += 2)
            expect_permutations(samples[i], count, 7 + i);
}

Test(captioner_batch, seeds_and_epochs_shuffle_differently)
{
    enum { SAMPLES = 100 };
    int64_t first[SAMPLES], second[SAMPLES], other[SAMPLES];
    turn_samples(first, SAMPLES, 0, 1, SAMPLES);
    turn_samples(second, SAMPLES, 1, 1, SAMPLES);
    turn_samples(other, SAMPLES, 0, 2, SAMPLES);
    int repeated = 0, shared = 0, still = 0;
    for (int i = 0; i < SAMPLES; i++) {
        repeated += first[i] == second[i];
        shared += first[i] == other[i];
        still += first[i] == i;
    }
    cr_assert(repeated < 10 && shared < 10 && still < 10, "%d, %d and %d of %d places agree",
              repeated, shared, still, SAMPLES);
}

enum { SIDE = 16, P = 4, S = 8 };

/* A micro-batch of one rank that holds everything. */
static micro_batch whole_batch(int64_t total, float *patches, int64_t *ids, int64_t *labels)
{
    return (micro_batch){.desc = {.tokens = P,
                                  .patch_values = PATCH_VALUES,
                                  .seq = S,
                                  .words = CAPTION_WORDS,
                                  .group = 1},
                         .total = total,
                         .pictures = total,
                         .sentences = total,
                         .patches = patches,
                         .ids = ids,
                         .labels = labels};
}

static void fill_pictures(micro_batch *batch, const batch_item *items,
                          const picture_number *pictures, int64_t count)
{
    const caption_samples own = {.items = items, .count = count, .tokens = P, .seq = S};
    const model_samples samples = caption_describe(&own);
    batch_fill_pictures(batch, &samples, pictures, count);
}

Test(captioner_batch, labels_are_the_next_token_of_the_whole_sequence)
{
    static float patches[P * 4 * PATCH_VALUES];
    static uint8_t picture[SIDE * SIDE * 3];
    int64_t ids[4][S], labels[4][S];
    micro_batch batch = whole_batch(4, patches, ids[0], labels[0]); /* has three samples */
    batch_item items[] = {
        {.picture = picture, .name = "ab", .length = 2}, /* ends with padding */
        /* EOS is predicted, but there is no room to read it */
        {.picture = picture, .name = "abcd", .length = 4},
        {.picture = picture, .name = "a", .length = 1, .open = true}, /* a beginning */
    };
    const caption_samples own = {.items = items, .count = 3, .tokens = P, .seq = S};
    const model_samples samples = caption_describe(&own);
    batch_fill_sentences(&batch, &samples, 0, 3);

    enum { I = TOKEN_IMAGE, E = TOKEN_END, N = TOKEN_PAD, X = NN_IGNORE };
    static const int64_t want_ids[4][S] = {{I, I, I, I, 'a', 'b', E, N},
                                           {I, I, I, I, 'a', 'b', 'c', 'd'},
                                           {I, I, I, I, 'a', N, N, N},
                                           {I, I, I, I, N, N, N, N}};
    static const int64_t want_labels[4][S] = {{X, X, X, 'a', 'b', E, X, X},
                                              {X, X, X, 'a', 'b', 'c', 'd', E},
                                              {X, X, X, 'a', X, X, X, X},
                                              {X, X, X, X, X, X, X, X}};
    for (int b = 0; b < 4; b++)
        for (int s = 0; s < S; s++) {
            cr_assert_eq(ids[b][s], want_ids[b][s], "id %d of sample %d is %ld", s, b,
                         (long)ids[b][s]);
            cr_assert_eq(labels[b][s], want_labels[b][s], "label %d of sample %d is %ld", s, b,
                         (long)labels[b][s]);
        }
}

Test(captioner_batch, patches_lie_in_the_order_of_the_sequence)
{
    static float patches[P][2][PATCH_VALUES];
    static uint8_t picture[2][SIDE * SIDE * 3];
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < SIDE * SIDE * 3; i++)
            picture[b][i] = (uint8_t)(b * 100 + i / 3 / PATCH % 2 + i / 3 / SIDE / PATCH * 2);
    int64_t ids[2][S], labels[2][S];
    micro_batch batch = whole_batch(2, patches[0][0], ids[0], labels[0]);
    batch_item items[] = {{.picture = picture[0], .name = "a", .length = 1},
                          {.picture = picture[1], .name = "b", .length = 1}};
    picture_number pictures[] = {{0, 0}, {1, 0}};
    fill_pictures(&batch, items, pictures, 2);
    for (int p = 0; p < P; p++)
        for (int b = 0; b < 2; b++)
            for (int i = 0; i < PATCH_VALUES; i++)
                cr_assert_eq(patches[p][b][i], (float)(b * 100 + p) / 127.5f - 1.0f,
                             "value %d of patch %d, picture %d", i, p, b);

    items[1].picture = NULL;
    for (int masked = 0; masked < 2; masked++) {
        memset(patches, 0x5a, sizeof patches);
        pictures[1].sample = masked ? -1 : 1;
        fill_pictures(&batch, items, pictures, 2);
        for (int p = 0; p < P; p++)
            for (int i = 0; i < PATCH_VALUES; i++)
                cr_assert(patches[p][0][i] != 0 && patches[p][1][i] == 0, "value %d of patch %d", i,
                          p);
    }
}

/* ----------------------------------------- changes -------------------------------------------- */

/* Values of a pixel that has moved: where it was, or white. */
static void expect_pixel(const float *values, const uint8_t *picture, int64_t row, int64_t column)
{
    bool inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
    for (int c = 0; c < 3; c++) {
        int pixel = inside ? picture[(row * SIDE + column) * 3 + c] : 255;
        cr_assert_eq(values[c], (float)pixel / 127.5f - 1.0f, "row %ld, column %ld", (long)row,
                     (long)column);
    }
}

Test(captioner_batch, a_picture_moves_and_is_mirrored)
{
    static float patches[P][1][PATCH_VALUES];
    static uint8_t picture[SIDE * SIDE * 3];
    int64_t ids[1][S], labels[1][S];
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        picture[i] = (uint8_t)(i * 7);
    micro_batch batch = whole_batch(1, patches[0][0], ids[0], labels[0]);
    for (int flip = 0; flip < 2; flip++) {
        const batch_item item = {.picture = picture,
                                 .name = "a",
                                 .length = 1,
                                 .change = {.right = 3, .down = -2, .flip = flip}};
        fill_pictures(&batch, &item, &(picture_number){0, 0}, 1);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                int patch = y / PATCH * (SIDE / PATCH) + x / PATCH;
                int from = x - 3 < 0 ? -1 : flip ? SIDE - 1 - (x - 3) : x - 3;
                expect_pixel(patches[patch][0] + (y % PATCH * PATCH + x % PATCH) * 3, picture,
                             y + 2, from);
            }
    }
}

/* The one pixel of a picture. */
static void change_pixel(float values[3], const augmentation *change, const uint8_t *pixel)
{
    changed_picture changed;
    changed_picture_init(&changed, pixel, 1, change);
    changed_picture_read(values, &changed, 0, 0, 1);
}

Test(captioner_batch, a_channel_gains_ink)
{
    static const uint8_t picture[] = {255, 0, 155, 55, 255, 255};
    float values[3];
    change_pixel(values, &(augmentation){.ink = {20, -20, 64}}, picture);
    cr_assert_eq(values[0], 1, "white stays");
    cr_assert_eq(values[1], (float)(255 - 255 * 236 / 256) / 127.5f - 1.0f, "black fades");
    cr_assert_eq(values[2], (float)(255 - 125) / 127.5f - 1.0f);
    change_pixel(values, &(augmentation){.ink = {256, 0, 0}}, picture + 3);
    cr_assert_eq(values[0], -1, "no blacker than black");
}

Test(captioner_batch, a_change_is_a_function_of_its_key)
{
    enum { DRAWS = 1000, ALL = AUGMENT_SHIFT | AUGMENT_FLIP | AUGMENT_COLOUR };
    int moved = 0, flipped = 0, tinted = 0;
    for (uint64_t key = 0; key < DRAWS; key++) {
        augmentation one = augment_choose(ALL, key, 32, "fox", 3);
        augmentation again = augment_choose(ALL, key, 32, "fox", 3);
        augmentation none = augment_choose(0, key, 32, "fox", 3), zero = {0};
        cr_assert(one.right == again.right && one.down == again.down && one.flip == again.flip &&
                  memcmp(one.ink, again.ink, sizeof one.ink) == 0);
        cr_assert(none.right == zero.right && none.down == zero.down && !none.flip &&
                  memcmp(none.ink, zero.ink, sizeof none.ink) == 0);
        cr_assert(abs(one.right) <= 2 && abs(one.down) <= 2 && abs(one.ink[2]) <= 20);
        moved += one.right != 0 && one.down != 0;
        flipped += one.flip;
        tinted += one.ink[0] != one.ink[1];
    }
    cr_assert(moved > 500 && flipped > 400 && flipped < 600 && tinted > 900, "%d, %d, %d", moved,
              flipped, tinted);
}

Test(captioner_batch, a_picture_is_mirrored_where_its_name_stays_right)
{
    static const struct {
        const char *name;
        bool may;
    } cases[] = {
        {"fox", true},
        {"woman mechanic: dark skin tone", true},
        {"waving hand", true},
        {"left arrow", false},
        {"right-facing fist", false},
        {"leftwards hand", false},
        {"three o\xe2\x80\x99"
         "clock",
         false},
        {"six-thirty", false},
        {"flag: Italy", false},
        {"input latin letters", false},
        {"OK button", false},
        {"kiss: woman, man, light skin tone, dark skin tone", false},
        {"people holding hands: light skin tone, dark skin tone", false},
        {"", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(augment_may_flip(cases[i].name, (int64_t)strlen(cases[i].name)), cases[i].may,
                     "\"%s\"", cases[i].name);
}

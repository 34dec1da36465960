/* What a micro-batch holds: which samples are chosen, and every id and label of theirs. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "captioner/model/batch.h"

/* Every epoch takes each sample exactly once, for any batch size. Epochs differ, and so do
 * seeds. */
static void expect_permutations(int64_t samples, int64_t count, uint64_t seed)
{
    int *seen = calloc((size_t)samples, sizeof *seen);
    int64_t *chosen = calloc((size_t)count, sizeof *chosen);
    int64_t steps = 2 * samples; /* whole epochs: 2 * count of them */
    for (int64_t step = 0; step < steps; step++) {
        batch_choose(chosen, count, step, seed, samples);
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
    batch_choose(first, SAMPLES, 0, 1, SAMPLES);
    batch_choose(second, SAMPLES, 1, 1, SAMPLES);
    batch_choose(other, SAMPLES, 0, 2, SAMPLES);
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
    return (micro_batch){.side = SIDE,
                         .tokens = P,
                         .seq = S,
                         .group = 1,
                         .total = total,
                         .pictures = total,
                         .sentences = total,
                         .patches = patches,
                         .ids = ids,
                         .labels = labels};
}

Test(captioner_batch, labels_are_the_next_token_of_the_whole_sequence)
{
    static float patches[P * 4 * PATCH_VALUES];
    static uint8_t picture[SIDE * SIDE * 3];
    int64_t ids[4][S], labels[4][S];
    micro_batch batch = whole_batch(4, patches, ids[0], labels[0]); /* has three samples */
    batch_item items[] = {
        {picture, "ab", 2, false},   /* ends with padding */
        {picture, "abcd", 4, false}, /* EOS is predicted, but there is no room to read it */
        {picture, "a", 1, true},     /* a beginning */
    };
    batch_fill_sentences(&batch, items, 3);

    enum { I = TOKEN_IMAGE, E = TOKEN_END, N = TOKEN_PAD, X = LABEL_IGNORED };
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
    batch_item items[] = {{picture[0], "a", 1, false}, {picture[1], "b", 1, false}};
    batch_fill_pictures(&batch, items, 2);
    for (int p = 0; p < P; p++)
        for (int b = 0; b < 2; b++)
            for (int i = 0; i < PATCH_VALUES; i++)
                cr_assert_eq(patches[p][b][i], (float)(b * 100 + p) / 127.5f - 1.0f,
                             "value %d of patch %d, picture %d", i, p, b);

    batch_fill_pictures(&batch, items,
                        1); /* overwrites the batch; its second sample is now masked */
    for (int p = 0; p < P; p++)
        for (int i = 0; i < PATCH_VALUES; i++)
            cr_assert(patches[p][0][i] != 0 && patches[p][1][i] == 0, "value %d of patch %d", i, p);
}

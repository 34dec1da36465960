/* Choices are found by layer and token, whatever the order of the calls. */
#include <string.h>

#include <criterion/criterion.h>

#include "core/check.h"

#include "oracle_replay.h"

enum { STEPS = 2, BLOCKS = 4, SAMPLES = 3, SEQ = 4, K = 2, TOKENS = SAMPLES * SEQ };

static const int64_t positions[] = {3, 0};

/* What was set for choice j of a token. */
static int32_t expert(int64_t step, int64_t block, int64_t token, int64_t j)
{
    return (int32_t)(1000 * step + 100 * block + 2 * token + j);
}

/* Rows of positions 3 and 0, of samples from `first` on; blocks 1 and 3 have mixtures. */
static oracle_replay replaying(int64_t first)
{
    oracle_replay made = {.steps = STEPS,
                          .blocks = BLOCKS,
                          .samples = SAMPLES,
                          .seq = SEQ,
                          .top_k = K,
                          .first = first,
                          .position = positions,
                          .positions = 2};
    double ids[TOKENS * K];
    cr_assert_eq(oracle_replay_reserve(&made), MIMO_OK);
    for (int64_t step = 0; step < STEPS; step++)
        for (int64_t block = 1; block < BLOCKS; block += 2) {
            for (int64_t i = 0; i < TOKENS * K; i++)
                ids[i] = expert(step, block, i / K, i % K);
            oracle_replay_set(&made, step, block, ids);
        }
    return made;
}

static void expect_token(const int32_t *ids, int64_t step, int64_t block, int64_t token)
{
    for (int64_t j = 0; j < K; j++)
        cr_assert_eq(ids[j], token < 0 ? -1 : expert(step, block, token, j),
                     "token %lld: expert %d", (long long)token, (int)ids[j]);
}

Test(oracle_replay, by_layer_and_token)
{
    oracle_replay replay = replaying(1);
    const nn_row_range rows = {.first = 1,
                               .count = 3,
                               .batch = 2}; /* of (3, 1) (3, 2) | (0, 1) (0, 2) without the first */
    int32_t ids[3 * K];
    for (int64_t block = 3; block > 0; block -= 2)
        for (replay.step = 0; replay.step < STEPS; replay.step++) {
            const char *layer = block == 1 ? "llm.block1.mlp.router" : "llm.block3.mlp.router";
            cr_assert_eq(oracle_replay_ids(&replay, ids, layer, &rows), MIMO_OK);
            expect_token(ids, replay.step, block, 2 * SEQ + 3);
            expect_token(ids + K, replay.step, block, SEQ);
            expect_token(ids + 2 * K, replay.step, block, 2 * SEQ);
        }
    oracle_replay_release(&replay);
}

Test(oracle_replay, slots_without_a_sample_get_no_expert)
{
    oracle_replay replay = replaying(2);
    const nn_row_range rows = {.first = 0, .count = 2, .batch = 2};
    int32_t ids[2 * K];
    cr_assert_eq(oracle_replay_ids(&replay, ids, "llm.block1.mlp.router", &rows), MIMO_OK);
    expect_token(ids, 0, 1, 2 * SEQ + 3);
    expect_token(ids + K, 0, 1, -1);
    oracle_replay_release(&replay);
}

static void expect_missing(oracle_replay *replay, const char *layer, const char *sentence)
{
    const nn_row_range rows = {.first = 0, .count = 1, .batch = 1};
    int32_t ids[K];
    cr_assert_eq(oracle_replay_ids(replay, ids, layer, &rows), MIMO_ERR_NOT_FOUND);
    cr_assert_str_eq(mimo_last_error(), sentence);
}

Test(oracle_replay, a_key_that_is_missing)
{
    oracle_replay replay = replaying(1);
    expect_missing(&replay, "llm.block2.mlp.router",
                   "replay: llm.block2.mlp.router has no choice for token 7");
    expect_missing(&replay, "llm.block5.mlp.router",
                   "replay: llm.block5.mlp.router has no choice for token 7");
    expect_missing(&replay, "llm.block1.mlp", "replay: llm.block1.mlp has no choice for token 7");
    replay.ids[(BLOCKS + 1) * TOKENS * K + 7 * K] = ORACLE_NO_CHOICE;
    replay.step = 1;
    expect_missing(&replay, "llm.block1.mlp.router",
                   "replay: llm.block1.mlp.router has no choice for token 7");
    oracle_replay_release(&replay);
}

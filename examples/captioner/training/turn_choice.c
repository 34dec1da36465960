#include "captioner/training/turn_choice.h"

#include "train/support/train_support.h"

/* What the numbers of a run are for; turn_samples has the seed itself. */
enum { OF_CHANGES = 1, OF_TURNS = 2 };

/* And those of a sample, beside its change's own (augment.c). */
enum { OF_FURTHER_TURN = 16 };

static uint64_t key_of(const turn_choice *choice, int what, int64_t place)
{
    return hash_int(hash_int(hash_mix(choice->seed), what), place);
}

static augmentation change_of(const turn_choice *choice, uint64_t key, const batch_item *item)
{
    return augment_choose(choice->augment, key, choice->side, item->name, item->length);
}

/* Turn 1, 2, ... of the sample that begins with `first`: `count` turns in all, or as many as have
 * room. Of the last one's EOS the sentence needs the label alone. */
static void add_turns(batch_item *first, batch_item *further, const turn_choice *choice,
                      int64_t place, int64_t count)
{
    uint64_t turns = key_of(choice, OF_TURNS, place), changes = key_of(choice, OF_CHANGES, place);
    int64_t tokens = caption_tokens(choice->side);
    int64_t at = caption_turn_tokens(first, tokens);
    batch_item *last = first;
    for (int64_t i = 1; i < count; i++) {
        batch_item *turn = &further[i - 1];
        *turn = choice->items[hash_int(turns, i) % (uint64_t)choice->samples];
        turn->change = change_of(choice, hash_int(changes, OF_FURTHER_TURN + i), turn);
        at += caption_turn_tokens(turn, tokens);
        if (at - 1 > choice->seq)
            return;
        last->next = turn;
        last = turn;
    }
}

batch_item turn_choose(batch_item *further, const turn_choice *choice, int64_t chosen,
                       int64_t place)
{
    batch_item first = choice->items[chosen];
    first.change = change_of(choice, key_of(choice, OF_CHANGES, place), &first);
    if (choice->most == 0)
        return first;
    uint64_t range = (uint64_t)(choice->most - choice->least) + 1;
    int64_t count = choice->least + (int64_t)(hash_int(key_of(choice, OF_TURNS, place), 0) % range);
    if (count == 0)
        first.picture = NULL;
    add_turns(&first, further, choice, place, count);
    return first;
}

/* A keyed permutation of [0, samples): a Feistel network over the next even number of bits, walked
 * until it lands inside. No table, so no state to checkpoint. */
static int64_t permute(int64_t index, int64_t samples, uint64_t key)
{
    int half = 1;
    while ((INT64_C(1) << (2 * half)) < samples)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t x = (uint64_t)index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t mixed = left ^ (hash_mix(key + (round << 40) + right) & mask);
            left = right;
            right = mixed;
        }
        x = left << half | right;
    } while (x >= (uint64_t)samples);
    return (int64_t)x;
}

void turn_samples(int64_t *chosen, int64_t count, int64_t step, uint64_t seed, int64_t samples)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t position = step * count + i;
        uint64_t key = hash_mix(hash_mix(seed) + (uint64_t)(position / samples));
        chosen[i] = permute(position % samples, samples, key);
    }
}

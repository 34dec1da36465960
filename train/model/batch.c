#include "train/model/batch.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* The smallest size from `samples` on that the LLM's dp divides, and of which the encoder's dp
 * divides a group. */
static int64_t padded_total(const rank_topology *topology, const batch_desc *desc)
{
    int64_t encoder = topology->encoder_dp, llm = topology->llm_dp;
    int64_t total = (desc->samples + llm - 1) / llm * llm;
    while (desc->group * total % encoder != 0)
        total += llm;
    return total;
}

mimo_status batch_create(micro_batch *out, const rank_topology *topology, const batch_desc *desc)
{
    int64_t total = padded_total(topology, desc);
    out->side = desc->side;
    out->tokens = (desc->side / PATCH) * (desc->side / PATCH);
    out->seq = desc->seq;
    out->group = desc->group;
    out->total = total;
    out->most_images = desc->most_images;
    TRY(topology_samples(topology, MIMO_SRC, desc->group * total, &out->first_picture,
                         &out->pictures));
    if (desc->most_images > 0)
        out->pictures *= desc->most_images;
    TRY(topology_samples(topology, MIMO_DST, total, &out->first_sentence, &out->sentences));
    TRY(memory_reserve(&out->patches, out->tokens * out->pictures * PATCH_VALUES,
                       sizeof *out->patches));
    TRY(memory_reserve(&out->ids, out->sentences * out->seq, sizeof *out->ids));
    return memory_reserve(&out->labels, out->sentences * out->seq, sizeof *out->labels);
}

void batch_destroy(micro_batch *batch)
{
    memory_release(batch->patches);
    memory_release(batch->ids);
    memory_release(batch->labels);
    *batch = (struct micro_batch){0};
}

static const batch_item *item_at(const batch_item *items, int64_t count, int64_t i)
{
    static const batch_item masked = {0};
    return i < count ? &items[i] : &masked;
}

/* Patch p of a picture as one row of values. */
static void cut_patch(float *row, const changed_picture *from, int64_t p)
{
    int64_t across = from->side / PATCH;
    int64_t y0 = p / across * PATCH, x0 = p % across * PATCH;
    for (int64_t y = 0; y < PATCH; y++)
        changed_picture_read(row + y * PATCH * 3, from, y0 + y, x0, PATCH);
}

static void fill_picture(micro_batch *batch, const batch_item *item, int64_t b, int64_t count)
{
    changed_picture from;
    changed_picture_init(&from, item->picture, batch->side, &item->change);
    for (int64_t p = 0; p < batch->tokens; p++) {
        float *row = batch->patches + (p * count + b) * PATCH_VALUES;
        if (item->picture)
            cut_patch(row, &from, p);
        else
            memset(row, 0, PATCH_VALUES * sizeof *row);
    }
}

void batch_fill_pictures(micro_batch *batch, const batch_item *const *turns, int64_t count)
{
    for (int64_t b = 0; b < count; b++)
        fill_picture(batch, turns[b], b, count);
}

/* Image tokens of a turn. */
static int64_t image_tokens(const micro_batch *batch, const batch_item *turn)
{
    return turn->picture || batch->most_images == 0 ? batch->tokens : 0;
}

/* Where in its sample a sentence is being read. */
typedef struct sentence_place {
    const batch_item *turn; /* NULL: in the padding */
    int64_t at;             /* token of the turn */
} sentence_place;

/* The next token of a sentence. */
static int64_t read_token(const micro_batch *batch, sentence_place *place)
{
    const batch_item *turn = place->turn;
    if (!turn)
        return TOKEN_PAD;
    int64_t letter = place->at++ - image_tokens(batch, turn);
    if (letter < 0)
        return TOKEN_IMAGE;
    if (turn->name && letter < turn->length)
        return (unsigned char)turn->name[letter];
    *place = (sentence_place){turn->next, 0};
    return turn->name && !turn->open ? TOKEN_END : TOKEN_PAD;
}

/* Labels are shifted here, on the whole sequence: once cp has split it, the next position may be on
 * another rank. */
static void fill_sentence(micro_batch *batch, int64_t *ids, int64_t *labels, const batch_item *item)
{
    sentence_place place = {item, 0};
    int64_t next = read_token(batch, &place);
    for (int64_t i = 0; i < batch->seq; i++) {
        ids[i] = next;
        next = read_token(batch, &place);
        labels[i] = next <= TOKEN_END ? next : LABEL_IGNORED;
    }
}

int64_t batch_turn_tokens(const batch_item *turn, int64_t tokens)
{
    return (turn->picture ? tokens : 0) + turn->length + 1;
}

void batch_fill_sentences(micro_batch *batch, const batch_item *items, int64_t count)
{
    int64_t left = count > batch->first_sentence ? count - batch->first_sentence : 0;
    batch->present = left < batch->sentences ? left : batch->sentences;
    for (int64_t b = 0; b < batch->sentences; b++)
        fill_sentence(batch, batch->ids + b * batch->seq, batch->labels + b * batch->seq,
                      item_at(items, count, batch->first_sentence + b));
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

void batch_choose(int64_t *chosen, int64_t count, int64_t step, uint64_t seed, int64_t samples)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t position = step * count + i;
        uint64_t key = hash_mix(hash_mix(seed) + (uint64_t)(position / samples));
        chosen[i] = permute(position % samples, samples, key);
    }
}

#include "synthetic.h"

#include <stdbool.h>
#include <stdlib.h>

#include "ref_random.h"

enum { IGNORED = -100, IMAGE_TOKENS = 4, PATCH_VALUES = 12, LEAST_UNIT = 6 };

/* A multiple of the number of ranks, so that tp divides heads and vocabulary, 2cp and tp divide the
 * sequence, and dp divides the micro-batches. */
static int64_t unit_of(int64_t ranks)
{
    return (LEAST_UNIT + ranks - 1) / ranks * ranks;
}

ref_sizes synthetic_sizes(int64_t ranks, uint64_t seed)
{
    int64_t unit = unit_of(ranks);
    return (ref_sizes){.hidden = 4 * unit,
                       .heads = unit,
                       .encoder_layers = 2,
                       .llm_layers = 2,
                       .patch_values = PATCH_VALUES,
                       .image_tokens = IMAGE_TOKENS,
                       .seq = 2 * unit,
                       .text_vocabulary = 5 * unit,
                       .vocabulary = 6 * unit,
                       .image_id = 5 * unit,
                       .adapter = 3,
                       .adapter_alpha = 3,
                       .adapted = "head",
                       .seed = seed};
}

void synthetic_cases(oracle_case cases[ORACLE_CASES], int64_t ranks)
{
    int64_t unit = unit_of(ranks);
    cases[0] = (oracle_case){"1 micro-batch", 1, 2 * unit, 2 * unit - 3, 1, SYNTHETIC_PARTED};
    cases[1] =
        (oracle_case){"4 micro-batches", 4, unit, 4 * unit - unit / 2 - 1, 2, SYNTHETIC_PARTED};
}

oracle_case synthetic_fixed_case(int64_t micro_batches)
{
    enum { SLOTS = 24, SAMPLES = 21 };
    return (oracle_case){"same bits", micro_batches,   SLOTS / micro_batches, SAMPLES,
                         1,           SYNTHETIC_PARTED};
}

/* The word of the sample at position s, of a name or elsewhere. */
static int64_t word(const ref_sizes *sizes, uint64_t key, int64_t s)
{
    return (int64_t)(ref_bits(key, s) % (uint64_t)(sizes->text_vocabulary - 2));
}

static void fill_ids(int64_t *ids, int64_t *first, const ref_sizes *sizes, synthetic_images where,
                     uint64_t key)
{
    int64_t s = 0, images = 0, end = sizes->text_vocabulary - 2, padding = end + 1;
    int64_t prompt = (int64_t)(ref_bits(key, -1) % 3), split = (int64_t)(ref_bits(key, -2) % 2);
    prompt = where == SYNTHETIC_FIRST ? 0 : prompt;
    split = where == SYNTHETIC_PARTED ? split : 0;
    for (; s < prompt; s++)
        ids[s] = word(sizes, key, s);
    for (; images < sizes->image_tokens; s++) {
        bool inside = split && s == prompt + 2;
        ids[s] = inside ? word(sizes, key, s) : sizes->image_id;
        images += !inside;
    }
    int64_t room = sizes->seq - s - 1;
    int64_t length = 1 + (int64_t)(ref_bits(key, -3) % (uint64_t)room);
    *first = s;
    for (; s < *first + length; s++)
        ids[s] = word(sizes, key, s);
    for (ids[s++] = end; s < sizes->seq; s++)
        ids[s] = padding;
}

static void fill_sample(synthetic_step *step, const ref_sizes *sizes, synthetic_images where,
                        int64_t slot, uint64_t key)
{
    int64_t *ids = step->ids + slot * sizes->seq, *labels = step->labels + slot * sizes->seq;
    int64_t values = sizes->image_tokens * sizes->patch_values, first;
    for (int64_t i = 0; i < values; i++)
        step->patches[slot * values + i] = (float)ref_normal(key, 1000 + i);
    fill_ids(ids, &first, sizes, where, key);
    bool silent = slot >= step->samples || slot % 5 == 3;
    for (int64_t s = 0; s < sizes->seq; s++) {
        bool counts =
            s + 1 >= first && s + 1 < sizes->seq && ids[s + 1] <= sizes->text_vocabulary - 2;
        bool masked = ref_bits(key, 10000 + s) % 4 == 0;
        labels[s] = counts && !masked && !silent ? ids[s + 1] : IGNORED;
    }
    step->list[slot] = (ref_sample){step->patches + slot * values, ids, labels};
}

void synthetic_create(synthetic_step *out, const ref_sizes *sizes, const oracle_case *shape,
                      int64_t step)
{
    int64_t slots = shape->micro_batches * shape->micro_batch;
    out->slots = slots;
    out->samples = shape->samples;
    out->patches = ref_room(slots * sizes->image_tokens * sizes->patch_values);
    out->ids = calloc((size_t)(slots * sizes->seq), sizeof *out->ids);
    out->labels = calloc((size_t)(slots * sizes->seq), sizeof *out->labels);
    out->list = calloc((size_t)slots, sizeof *out->list);
    uint64_t data = ref_key(sizes->seed, shape->name);
    for (int64_t slot = 0; slot < slots; slot++)
        fill_sample(out, sizes, shape->images, slot, ref_bits(data, step * slots + slot));
}

void synthetic_destroy(synthetic_step *step)
{
    free(step->patches);
    free(step->ids);
    free(step->labels);
    free(step->list);
    *step = (synthetic_step){0};
}

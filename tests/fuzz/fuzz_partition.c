/* Partitions: any cumulative lengths are refused with a sentence, or are split so that the shards
 * of all ranks are the whole sequence. Then the padding helper. */
#include <inttypes.h>

#include <mimo/partition.h>

#include "fuzz_input.h"

enum { MOST_SEQUENCES = 16, MOST_ROWS = 1 << 12 };

/* Lengths as any 32 bits, or as small steps that often fit. */
static void read_lengths(int32_t *cu, int64_t count, fuzz_input *input)
{
    bool wild = fuzz_byte(input) > 250;
    int32_t step = (int32_t)fuzz_number(input, 1, 8), at = 0;
    for (int64_t i = 0; i < count; i++) {
        cu[i] = wild ? fuzz_word(input) : at;
        at += step * (int32_t)fuzz_number(input, 0, 7) - (fuzz_byte(input) > 250);
    }
}

/* Marks the rows of one rank's place in the partition. Each row may be marked once. */
static void mark(uint8_t *seen, const mimo_partition *partition, mimo_content content, int64_t seq)
{
    int64_t rows = -1;
    FUZZ_EXPECT(mimo_partition_rows(&rows, partition, content, seq) == MIMO_OK && rows >= 0 &&
                    rows <= seq,
                "%" PRId64 " rows of %" PRId64, rows, seq);
    int64_t *global = calloc((size_t)rows + 1, sizeof *global);
    FUZZ_EXPECT(global, "out of memory");
    FUZZ_EXPECT(mimo_partition_index(global, partition, content, seq) == MIMO_OK, "no index");
    for (int64_t i = 0; i < rows; i++) {
        FUZZ_EXPECT(global[i] >= 0 && global[i] < seq, "row %" PRId64 " is %" PRId64, i, global[i]);
        FUZZ_EXPECT(!seen[global[i]], "row %" PRId64 " is held twice", global[i]);
        seen[global[i]] = 1;
    }
    free(global);
}

/* All places together hold every row once: labels over cp; embeddings over cp and, under sp, over
 * tp. */
static void check_cover(const mimo_partition_rule *rule, const mimo_partition_coords *sizes,
                        mimo_content content, int64_t seq)
{
    int64_t along_tp = rule->sp && content == MIMO_EMBEDDINGS ? sizes->tp_size : 1;
    uint8_t *seen = calloc((size_t)seq + 1, 1);
    FUZZ_EXPECT(seen, "out of memory");
    for (int64_t i = 0; i < sizes->cp_size * along_tp; i++) {
        mimo_partition *partition = NULL;
        mimo_partition_coords place = {sizeof(mimo_partition_coords), i / along_tp, sizes->cp_size,
                                       i % along_tp, sizes->tp_size};
        FUZZ_EXPECT(mimo_partition_create(&partition, rule, &place) == MIMO_OK,
                    "place %" PRId64 " is refused, the first was not", i);
        mark(seen, partition, content, seq);
        mimo_partition_destroy(partition);
    }
    FUZZ_EXPECT(!memchr(seen, 0, (size_t)seq), "nobody holds row %td",
                (uint8_t *)memchr(seen, 0, (size_t)seq) - seen);
    free(seen);
}

static void split(const mimo_partition_rule *rule, const mimo_partition_coords *place, int64_t seq)
{
    mimo_partition *partition = NULL;
    int64_t rows;
    if (mimo_partition_create(&partition, rule, place) != MIMO_OK) {
        FUZZ_EXPECT(!partition && *mimo_last_error(), "a failure without a sentence");
        return;
    }
    for (int content = MIMO_EMBEDDINGS; content <= MIMO_LABELS; content++)
        if (mimo_partition_rows(&rows, partition, (mimo_content)content, seq) == MIMO_OK &&
            seq <= MOST_ROWS)
            check_cover(rule, place, (mimo_content)content, seq);
    mimo_partition_destroy(partition);
}

static void pad(const int32_t *lengths, int64_t sequences, int64_t multiple)
{
    int32_t padded[MOST_SEQUENCES + 1];
    if (mimo_partition_pad(padded, lengths, sequences, multiple) != MIMO_OK)
        return;
    FUZZ_EXPECT(padded[0] == 0, "padding begins at %" PRId32, padded[0]);
    for (int64_t i = 0; i < sequences; i++) {
        int64_t room = (int64_t)padded[i + 1] - padded[i];
        FUZZ_EXPECT(room % multiple == 0 && room >= lengths[i] && room - lengths[i] < multiple,
                    "%" PRId32 " tokens are padded to %" PRId64 " for %" PRId64, lengths[i], room,
                    multiple);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    int32_t cu[MOST_SEQUENCES + 1], cu_padded[MOST_SEQUENCES + 1];
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords place = {.size = sizeof(mimo_partition_coords),
                                   .cp_size = fuzz_number(&input, 1, 5),
                                   .tp_size = fuzz_number(&input, 1, 4)};
    uint8_t bits = fuzz_byte(&input);
    rule.format = bits & 1 ? MIMO_THD : MIMO_SBHD;
    rule.sp = bits & 2;
    rule.strict = bits & 4;
    rule.sequences = fuzz_number(&input, 0, MOST_SEQUENCES);
    read_lengths(cu, rule.sequences + 1, &input);
    if (rule.format == MIMO_THD)
        rule.cu = cu;
    if (bits & 8) {
        read_lengths(cu_padded, rule.sequences + 1, &input);
        rule.cu_padded = cu_padded;
    }
    int64_t total = (rule.cu_padded ? cu_padded : cu)[rule.sequences];
    split(&rule, &place, bits & 16 ? fuzz_word(&input) : total);
    pad(cu, rule.sequences, bits & 32 ? fuzz_word(&input) : fuzz_number(&input, 1, 32));
    return 0;
}

/* The plan builder, with two layouts made of the input's bytes. Whatever is accepted is planned,
 * and the plan checker must prove the plans of all ranks, forward and backward. */
#include <inttypes.h>

#include <mimo/plan.h>

#include "fuzz_input.h"

enum { MOST_SEQUENCES = 3, MOST_SPANS = 12, MOST_DP = 4 };

/* Everything that a layout is made of; the descriptor points to it. */
typedef struct layout_parts {
    mimo_grid *grid;
    mimo_layout_desc desc;
    mimo_partition_rule rule;
    int32_t cu[MOST_SEQUENCES + 1];
    mimo_span spans[MOST_SPANS];
    int64_t samples[MOST_DP];
} layout_parts;

/* tp, cp, pp, dp and one more, of sizes 1 to 3, in some order; at most 162 ranks. */
static void read_grid(layout_parts *parts, fuzz_input *input)
{
    static const char *const names[] = {"tp", "cp", "pp", "dp", "ep"};
    mimo_dim dims[5];
    int first = (int)fuzz_number(input, 0, 4), step = (int)fuzz_number(input, 1, 4);
    for (int i = 0; i < 5; i++) {
        const char *name = names[(first + i * step) % 5];
        int64_t most = strcmp(name, "dp") == 0 ? MOST_DP : strcmp(name, "ep") == 0 ? 2 : 3;
        dims[i] = (mimo_dim){name, fuzz_number(input, 1, most)};
    }
    FUZZ_EXPECT(mimo_grid_create(&parts->grid, dims, 5, fuzz_number(input, 0, 3)) == MIMO_OK,
                "no grid");
    FUZZ_EXPECT(mimo_grid_set_copies(parts->grid, "ep") == MIMO_OK, "no copies");
    parts->desc.grid = parts->grid;
}

static void read_partition(layout_parts *parts, fuzz_input *input)
{
    uint8_t bits = fuzz_byte(input);
    if (!(bits & 1))
        return;
    parts->rule.sp = bits & 2;
    if ((bits & 12) == 12) {
        int32_t step = (int32_t)fuzz_number(input, 1, 6);
        parts->rule.format = MIMO_THD;
        parts->rule.sequences = fuzz_number(input, 0, MOST_SEQUENCES);
        for (int64_t i = 0; i < parts->rule.sequences; i++)
            parts->cu[i + 1] = parts->cu[i] + step * (int32_t)fuzz_number(input, 0, 3);
        parts->rule.cu = parts->cu;
    }
    parts->desc.partition = &parts->rule;
}

/* Spans, most of the time in the order that the library asks for. */
static void read_spans(layout_parts *parts, fuzz_input *input)
{
    mimo_span at = {0, 0, 0, 0};
    parts->desc.ragged = (mimo_ragged)fuzz_number(input, 0, 2);
    parts->desc.spans = parts->spans;
    parts->desc.span_count = fuzz_number(input, 0, MOST_SPANS);
    for (int64_t i = 0; i < parts->desc.span_count; i++) {
        int64_t skipped = fuzz_number(input, 0, 2);
        if (skipped > 0)
            at = (mimo_span){at.sample + skipped, 0, 0, 0};
        at.row += at.length;
        at.position += at.length + fuzz_number(input, 0, 3);
        at.length = fuzz_number(input, 0, 40) - (fuzz_byte(input) > 250);
        parts->spans[i] = at;
    }
}

static void read_layout(layout_parts *parts, fuzz_input *input)
{
    uint8_t bits = fuzz_byte(input);
    *parts = (layout_parts){.desc = MIMO_LAYOUT_DESC_INIT, .rule = MIMO_PARTITION_RULE_INIT};
    read_grid(parts, input);
    parts->desc.order = bits & 1 ? MIMO_ROWS_BSH : MIMO_ROWS_SBH;
    parts->desc.cp_copies = bits & 2 ? MIMO_COPIES_PARTIAL : MIMO_COPIES_EQUAL;
    parts->desc.all_stages = bits & 4;
    read_partition(parts, input);
    if (bits & 8) {
        for (int d = 0; d < MOST_DP; d++)
            parts->samples[d] = fuzz_number(input, 0, 4);
        parts->desc.samples = parts->samples;
    }
}

/* Two layouts of the same rows: one batch, one seq, one list of spans. */
static void read_rows(layout_parts parts[2], fuzz_input *input)
{
    int64_t batch = fuzz_number(input, 0, 12), seq = fuzz_number(input, 0, 48);
    bool ragged = fuzz_bit(input);
    if (ragged)
        read_spans(&parts[0], input);
    for (int side = 0; side < 2; side++) {
        parts[side].desc.batch = batch;
        parts[side].desc.seq =
            parts[side].rule.cu ? parts[side].cu[parts[side].rule.sequences] : seq;
    }
    if (ragged) {
        parts[1].desc.ragged = (mimo_ragged)fuzz_number(input, 0, 2);
        parts[1].desc.spans = parts[0].spans;
        parts[1].desc.span_count = parts[0].desc.span_count;
    }
}

/* A number at an edge of the arithmetic, or any number. */
static int64_t read_wild(fuzz_input *input)
{
    static const int64_t edges[] = {
        INT64_MAX, INT64_MAX - 1,    INT64_MIN,        -1,        0,
        1,         INT64_C(1) << 62, INT64_C(1) << 32, INT32_MAX,
    };
    enum { EDGES = sizeof edges / sizeof *edges };
    uint8_t which = fuzz_byte(input);
    if (which % 16 < EDGES)
        return edges[which % 16];
    uint64_t high = (uint32_t)fuzz_word(input);
    return (int64_t)(high << 32 | (uint32_t)fuzz_word(input));
}

/* Sizes that no tile has: the layout is refused, or it can count its rows. */
static void try_wild_sizes(layout_parts *parts, fuzz_input *input)
{
    mimo_layout *layout = NULL;
    int64_t rows;
    parts->desc.batch = read_wild(input);
    parts->desc.seq = read_wild(input);
    if (parts->desc.samples)
        parts->samples[0] = read_wild(input);
    if (parts->desc.span_count > 0)
        parts->spans[parts->desc.span_count - 1].length = read_wild(input);
    /* Ragged layouts keep 16 bytes a sample. Large batches would test this machine's memory. */
    bool large = parts->desc.batch > 1 << 20 && parts->desc.batch < INT64_MAX / 2;
    if (parts->desc.ragged && large)
        parts->desc.batch %= 1 << 20;
    if (mimo_layout_create(&layout, &parts->desc) != MIMO_OK)
        return;
    for (int64_t rank = 0; rank < 4; rank++)
        FUZZ_EXPECT(mimo_layout_rows(&rows, layout, rank) == MIMO_OK && rows >= 0,
                    "%" PRId64 " rows", rows);
    mimo_layout_destroy(layout);
}

static void prove(const mimo_layout *src, const mimo_layout *dst)
{
    mimo_plan *plan = NULL;
    mimo_status status = mimo_plan_create(&plan, src, dst, 0);
    mimo_plan_destroy(plan);
    if (status == MIMO_ERR_SHAPE) /* not of the same rows */
        return;
    FUZZ_EXPECT(status == MIMO_OK, "no plan");
    FUZZ_EXPECT(mimo_plan_check(src, dst) == MIMO_OK, "the plans are wrong");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    layout_parts parts[2];
    mimo_layout *layouts[2] = {NULL, NULL};
    bool wild = fuzz_byte(&input) > 230;
    for (int side = 0; side < 2; side++)
        read_layout(&parts[side], &input);
    read_rows(parts, &input);
    if (wild)
        try_wild_sizes(&parts[0], &input);
    else if (mimo_layout_create(&layouts[0], &parts[0].desc) == MIMO_OK &&
             mimo_layout_create(&layouts[1], &parts[1].desc) == MIMO_OK) {
        prove(layouts[0], layouts[1]);
        prove(layouts[1], layouts[0]);
    }
    for (int side = 0; side < 2; side++) {
        mimo_layout_destroy(layouts[side]);
        mimo_grid_destroy(parts[side].grid);
    }
    return 0;
}

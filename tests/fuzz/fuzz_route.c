/* Routes of ranks whose numbers and ids are the input's bytes. Whatever is accepted is proved for
 * all ranks, and the text of one has a line for each of its experts. */
#include <inttypes.h>

#include <mimo/route.h>

#include "fuzz_input.h"

enum { MOST_RANKS = 8, MOST_IDS = 12 };

typedef struct route_parts {
    mimo_routing routing;
    mimo_route_desc ranks[MOST_RANKS];
    int32_t narrow[MOST_RANKS][MOST_IDS];
    int64_t wide[MOST_RANKS][MOST_IDS];
} route_parts;

/* Most ids are experts or none, and some are anything. */
static int32_t read_id(fuzz_input *input, int64_t experts)
{
    uint8_t byte = fuzz_byte(input);
    if (byte == 255)
        return fuzz_word(input);
    return (int32_t)(byte % (experts + 1)) - 1;
}

static void read_rank(route_parts *parts, int rank, fuzz_input *input)
{
    mimo_route_desc *desc = &parts->ranks[rank];
    int64_t top_k = parts->routing.top_k > 0 ? parts->routing.top_k : 1;
    *desc = (mimo_route_desc)MIMO_ROUTE_DESC_INIT;
    desc->tokens = top_k <= MOST_IDS ? fuzz_number(input, 0, MOST_IDS / top_k) : 0;
    desc->capacity = fuzz_number(input, 0, 40) - 1 - (fuzz_byte(input) > 250);
    for (int64_t i = 0; i < desc->tokens * top_k; i++)
        parts->wide[rank][i] = parts->narrow[rank][i] = read_id(input, parts->routing.experts);
    bool wide = fuzz_bit(input);
    desc->ids = wide ? (const void *)parts->wide[rank] : parts->narrow[rank];
    desc->id_dtype = wide ? MIMO_I64 : MIMO_I32;
}

static void read_routing(route_parts *parts, fuzz_input *input)
{
    static const int64_t wild[] = {0, -1, INT64_MAX, INT64_MIN, 65536, INT64_C(1) << 40};
    enum { WILD = sizeof wild / sizeof *wild };
    mimo_routing *it = &parts->routing;
    *it = (mimo_routing)MIMO_ROUTING_INIT;
    it->rank_count = fuzz_number(input, 1, MOST_RANKS);
    it->etp = fuzz_number(input, 1, 3);
    it->experts =
        fuzz_number(input, 1, 5) * (it->rank_count / it->etp + (it->rank_count < it->etp));
    it->top_k = fuzz_number(input, 1, 6);
    it->alignment = fuzz_number(input, 1, 5);
    if (fuzz_byte(input) > 245)
        it->alignment = wild[fuzz_byte(input) % WILD];
    if (fuzz_byte(input) > 245)
        it->top_k = wild[fuzz_byte(input) % WILD];
    for (int rank = 0; rank < it->rank_count; rank++)
        read_rank(parts, rank, input);
    if (fuzz_byte(input) > 245)
        it->experts = wild[fuzz_byte(input) % WILD];
    if (fuzz_byte(input) > 245)
        it->etp = wild[fuzz_byte(input) % WILD];
    it->ranks = parts->ranks;
}

static int64_t count_lines(const char *text, const char *begin)
{
    int64_t lines = 0;
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        lines += strncmp(at, begin, strlen(begin)) == 0;
        if (!*at)
            break;
    }
    return lines;
}

static void print(const mimo_routing *routing, int64_t rank)
{
    int64_t length;
    FUZZ_EXPECT(mimo_route_text(&length, NULL, 0, routing, rank) == MIMO_OK, "no text");
    char *text = malloc((size_t)length + 1);
    FUZZ_EXPECT(mimo_route_text(NULL, text, length + 1, routing, rank) == MIMO_OK, "no text");
    FUZZ_EXPECT((int64_t)strlen(text) == length, "%" PRId64 " characters", length);
    FUZZ_EXPECT(count_lines(text, "expert ") ==
                    routing->experts / (routing->rank_count / routing->etp),
                "%s", text);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static route_parts parts;
    fuzz_input input = {data, size};
    read_routing(&parts, &input);
    mimo_status status = mimo_route_check(&parts.routing);
    FUZZ_EXPECT(status != MIMO_ERR_INTERNAL && status != MIMO_ERR_MEMORY, "a route is wrong");
    if (status == MIMO_OK)
        print(&parts.routing, fuzz_number(&input, 0, parts.routing.rank_count - 1));
    return 0;
}

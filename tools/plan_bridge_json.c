/* mimo-plan bridge --json. It prints piece by piece and builds no cJSON document. A bridge of
 * 16,384 ranks has half a million numbers, and cJSON keeps numbers as doubles, which round large
 * counts of bytes. No text here needs an escape: names of dimensions have letters, digits, '_' and
 * '-'. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "plan_bridge.h"

static const char *const way_names[PLAN_PASSES] = {"forward", "backward"};

static void print_range(int64_t first, int64_t count)
{
    printf("[%" PRId64 ",%" PRId64 "]", first, first + count);
}

static void print_list(const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        printf("%c%" PRId64, i == 0 ? '[' : ',', numbers[i]);
    putchar(']');
}

static void print_groups(const plan_bridge *bridge)
{
    printf("\"gather_groups\":[");
    for (int64_t g = 0; g < bridge->pairing.groups; g++) {
        if (plan_bridge_group(bridge, g, bridge->group) != MIMO_OK)
            break;
        if (g > 0)
            putchar(',');
        print_list(bridge->group, bridge->pairing.group_size);
    }
    putchar(']');
}

static void print_coords(const mimo_grid *grid, int64_t rank)
{
    int64_t coord;
    if (!mimo_grid_contains(grid, rank)) {
        printf("null");
        return;
    }
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        const char *name = mimo_grid_dim(grid, i).name;
        if (mimo_grid_coord(&coord, grid, rank, name) == MIMO_OK)
            printf("%c\"%s\":%" PRId64, i == 0 ? '{' : ',', name, coord);
    }
    putchar('}');
}

static void print_tokens(const plan_bridge *bridge, int64_t rank)
{
    mimo_box boxes[2];
    int64_t count = 0;
    mimo_layout_boxes(&count, boxes, 2, bridge->layouts[MIMO_DST], rank);
    putchar('[');
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            putchar(',');
        print_range(boxes[i].s0, boxes[i].ns);
    }
    putchar(']');
}

static void print_flow(const char *name, const plan_flow *flow)
{
    printf(",\"%s\":{\"recv_bytes\":%" PRId64 ",\"send_bytes\":%" PRId64 ",\"local_bytes\":%" PRId64
           "}",
           name, flow->recv, flow->send, flow->local);
}

static void print_rank(const plan_bridge *bridge, int64_t rank)
{
    static const char *const sides[] = {"src", "dst"};
    printf("{\"rank\":%" PRId64, rank);
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        printf(",\"%s\":", sides[side]);
        print_coords(bridge->grids[side], rank);
    }
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        int64_t first, count;
        printf(",\"%s_samples\":", sides[side]);
        if (plan_bridge_samples(bridge, side, rank, &first, &count))
            print_range(first, count);
        else
            printf("null");
    }
    printf(",\"tokens\":");
    print_tokens(bridge, rank);
    for (int way = 0; way < PLAN_PASSES; way++)
        print_flow(way_names[way], &bridge->flows[rank - bridge->first][way]);
    putchar('}');
}

static void print_most(const char *name, const plan_most *most, double imbalance)
{
    printf(",\"%s\":{\"rank\":%" PRId64 ",\"bytes\":%" PRId64 ",\"imbalance\":%.6g}", name,
           most->rank, most->bytes, imbalance);
}

/* An imbalance is the most over the mean. For pairs, the mean is over those that move something.
 * For ranks, it is over all of them. */
static void print_links(const plan_bridge *bridge, int pass)
{
    const plan_links *links = &bridge->links[pass];
    printf("\"%s\":{\"bytes\":%" PRId64 ",\"pairs\":%" PRId64, way_names[pass], links->bytes,
           links->pairs);
    printf(",\"busiest\":{\"from\":%" PRId64 ",\"to\":%" PRId64 ",\"bytes\":%" PRId64
           ",\"imbalance\":%.6g}",
           links->pair.rank, links->pair.peer, links->pair.bytes,
           plan_imbalance(links->pair.bytes, links->bytes, links->pairs));
    print_most("in", &links->in, plan_imbalance(links->in.bytes, links->bytes, bridge->ranks));
    print_most("out", &links->out, plan_imbalance(links->out.bytes, links->bytes, bridge->ranks));
    putchar('}');
}

static void print_time(char before, const char *executor, double us)
{
    printf("%c\"%s\":", before, executor);
    if (isfinite(us))
        printf("%.6g", us);
    else
        printf("null");
}

static void print_times(const plan_bridge *bridge)
{
    mimo_cost cost = plan_bridge_cost(bridge);
    printf("\"estimated_us\":{");
    for (int way = 0; way < PLAN_PASSES; way++) {
        printf("%s\"%s\":", way > 0 ? "," : "", way_names[way]);
        print_time('{', "collective", cost.collective[way]);
        print_time(',', "p2p", cost.p2p[way]);
        print_time(',', "zero_copy", cost.zero_copy[way]);
        putchar('}');
    }
    printf("},");
}

/* Grids that do not pair have no fan. */
static void print_pairing(const plan_bridge *bridge)
{
    if (bridge->pairing.scale > 0)
        printf("\"fan\":\"%s\",\"scale\":%" PRId64 ",", mimo_fan_name(bridge->pairing.fan),
               bridge->pairing.scale);
    else
        printf("\"fan\":null,\"scale\":null,");
    print_groups(bridge);
}

int plan_bridge_print_json(const plan_bridge *bridge)
{
    putchar('{');
    print_pairing(bridge);
    printf(",\"links\":{");
    print_links(bridge, PLAN_FORWARD);
    putchar(',');
    print_links(bridge, PLAN_BACKWARD);
    printf("},");
    if (bridge->request->speed.gbps > 0)
        print_times(bridge);
    printf("\"ranks\":[");
    for (int64_t r = 0; r < bridge->shown; r++) {
        if (r > 0)
            putchar(',');
        print_rank(bridge, bridge->first_shown + r);
    }
    puts("]}");
    return 0;
}

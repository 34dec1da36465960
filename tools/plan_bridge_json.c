/* mimo-plan bridge --json. Written as it goes, not built as a document: a bridge of 16,384 ranks
 * has half a million numbers, and counts of bytes must not pass through doubles. No text here needs
 * an escape: names of dimensions are letters, digits, '_' and '-'. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_bridge.h"

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
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        const char *name = mimo_grid_dim(grid, i).name;
        if (mimo_grid_coord(grid, rank, name, &coord) == MIMO_OK)
            printf("%c\"%s\":%" PRId64, i == 0 ? '{' : ',', name, coord);
    }
    putchar('}');
}

static void print_tokens(const plan_bridge *bridge, int64_t rank)
{
    mimo_box boxes[2];
    int64_t count = 0;
    mimo_layout_boxes(bridge->layouts[MIMO_DST], rank, boxes, 2, &count);
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
        int64_t first = 0, count = 0;
        mimo_pairing_samples(bridge->grids[side], rank, bridge->request->batch, &first, &count);
        printf(",\"%s_samples\":", sides[side]);
        print_range(first, count);
    }
    printf(",\"tokens\":");
    print_tokens(bridge, rank);
    print_flow("forward", &bridge->flows[rank - bridge->first][PLAN_FORWARD]);
    print_flow("backward", &bridge->flows[rank - bridge->first][PLAN_BACKWARD]);
    putchar('}');
}

int plan_bridge_print_json(const plan_bridge *bridge)
{
    printf("{\"direction\":\"%s\",\"scale\":%" PRId64 ",",
           mimo_direction_name(bridge->pairing.direction), bridge->pairing.scale);
    print_groups(bridge);
    printf(",\"ranks\":[");
    for (int64_t r = 0; r < bridge->ranks; r++) {
        if (r > 0)
            putchar(',');
        print_rank(bridge, bridge->first + r);
    }
    puts("]}");
    return 0;
}

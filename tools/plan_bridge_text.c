/* mimo-plan bridge as text: the pairing, what each rank holds, and the bytes. For small grids, a
 * drawing shows who sends to whom. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "plan_bridge.h"

static const char *const pass_names[PLAN_PASSES] = {"forward", "backward"};

/* Text that is built piece by piece in fixed memory. What does not fit is left out. */
typedef struct cell_text {
    char text[96];
    size_t used;
} cell_text;

MIMO_PRINTF(2, 3) static void add(cell_text *cell, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length =
        vsnprintf(cell->text + cell->used, sizeof cell->text - cell->used, format, arguments);
    va_end(arguments);
    if (length > 0)
        cell->used += (size_t)length;
    if (cell->used >= sizeof cell->text)
        cell->used = sizeof cell->text - 1;
}

/* ----------------------------------------- head --------------------------------------------- */

static void print_head(const plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    printf("%s -> %s on ranks %" PRId64 " to %" PRId64 ": %s", request->src, request->dst,
           bridge->first, bridge->first + bridge->ranks - 1,
           bridge->pairing.scale > 0 ? mimo_fan_name(bridge->pairing.fan) : "routed alone");
    if (bridge->pairing.scale > 1)
        printf(" by %" PRId64, bridge->pairing.scale);
    printf("\nbatch %" PRId64 ", %" PRId64 " tokens, %s %s rows of %" PRId64 " bytes%s\n",
           request->batch, request->seq, request->order == MIMO_ROWS_SBH ? "sbh" : "bsh",
           request->dtype, bridge->row_bytes, request->sp ? ", sequence parallel" : "");
}

/* All groups of a small grid, only the first ones of a large grid. */
static void print_groups(const plan_bridge *bridge)
{
    int64_t groups = bridge->pairing.groups, shown = groups;
    if (groups == 0)
        return;
    if (mimo_grid_size(bridge->grids[MIMO_SRC]) > PLAN_DRAWN_RANKS && groups > 4)
        shown = 4;
    printf("\n%" PRId64 " gather groups:", groups);
    for (int64_t g = 0; g < shown; g++) {
        if (plan_bridge_group(bridge, g, bridge->group) != MIMO_OK)
            return;
        for (int64_t i = 0; i < bridge->pairing.group_size; i++)
            printf("%s%" PRId64, i == 0 ? "  {" : " ", bridge->group[i]);
        putchar('}');
    }
    puts(shown < groups ? "  ..." : "");
}

/* ----------------------------------------- ranks -------------------------------------------- */

/* "tp 0 dp 1", without the dimensions of size 1. */
static cell_text coords_of(const mimo_grid *grid, int64_t rank)
{
    cell_text cell = {.used = 0};
    int64_t coord;
    if (!mimo_grid_contains(grid, rank))
        add(&cell, "outside");
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        if (dim.size > 1 && mimo_grid_coord(&coord, grid, rank, dim.name) == MIMO_OK)
            add(&cell, "%s%s %" PRId64, cell.used > 0 ? " " : "", dim.name, coord);
    }
    return cell;
}

static cell_text samples_of(const plan_bridge *bridge, mimo_side side, int64_t rank)
{
    cell_text cell = {.used = 0};
    int64_t first, count;
    if (plan_bridge_samples(bridge, side, rank, &first, &count))
        add(&cell, "[%" PRId64 ",%" PRId64 ")", first, first + count);
    return cell;
}

static cell_text tokens_of(const plan_bridge *bridge, int64_t rank)
{
    cell_text cell = {.used = 0};
    mimo_box boxes[2];
    int64_t count = 0;
    mimo_layout_boxes(&count, boxes, 2, bridge->layouts[MIMO_DST], rank);
    for (int64_t i = 0; i < count; i++)
        add(&cell, "%s[%" PRId64 ",%" PRId64 ")", i > 0 ? " " : "", boxes[i].s0,
            boxes[i].s0 + boxes[i].ns);
    return cell;
}

static void print_ranks(const plan_bridge *bridge)
{
    printf("\n%6s  %-18s %-12s %-24s %-12s %s\n", "rank", "src", "samples", "dst", "samples",
           "tokens");
    for (int64_t rank = bridge->first_shown; rank < bridge->first_shown + bridge->shown; rank++)
        printf("%6" PRId64 "  %-18s %-12s %-24s %-12s %s\n", rank,
               coords_of(bridge->grids[MIMO_SRC], rank).text,
               samples_of(bridge, MIMO_SRC, rank).text,
               coords_of(bridge->grids[MIMO_DST], rank).text,
               samples_of(bridge, MIMO_DST, rank).text, tokens_of(bridge, rank).text);
}

/* ----------------------------------------- bytes -------------------------------------------- */

static void print_flows(const char *title, const plan_flow flows[PLAN_PASSES])
{
    printf("%6s", title);
    for (int i = 0; i < PLAN_PASSES; i++)
        printf("  %14" PRId64 " %14" PRId64 " %14" PRId64, flows[i].recv, flows[i].send,
               flows[i].local);
    putchar('\n');
}

static void print_bytes(const plan_bridge *bridge, plan_flow all[PLAN_PASSES])
{
    bool each = !bridge->request->summary;
    printf("\n%6s  %-44s  %s\n", "bytes", "forward", "backward");
    printf("%6s  %14s %14s %14s  %14s %14s %14s\n", each ? "rank" : "", "receives", "sends",
           "keeps", "receives", "sends", "keeps");
    for (int64_t rank = bridge->first_shown; rank < bridge->first_shown + bridge->shown; rank++) {
        const plan_flow *flows = bridge->flows[rank - bridge->first];
        char title[24];
        snprintf(title, sizeof title, "%" PRId64, rank);
        if (each)
            print_flows(title, flows);
        for (int i = 0; i < PLAN_PASSES; i++) {
            all[i].recv += flows[i].recv;
            all[i].send += flows[i].send;
            all[i].local += flows[i].local;
        }
    }
    if (bridge->shown > 1 || !each)
        print_flows("all", all);
}

/*
 * What one rank receives under collective, with ring algorithms. W = B/dp * S rows is the LLM's
 * whole tile, V = B/dp * S rows the encoder's.
 *
 *   forward    all-gather over k (fan-in)               (k-1)/k * W
 *   backward   all-gather of the shard over tp (sp)     (tp-1)/tp * W/cp
 *              all-reduce over cp                       2 * (cp-1)/cp * W
 *              all-gather over k (fan-out)              (k-1)/k * V
 *
 * All divisions are exact: the batch divides over both dp, S over 2cp, and S/cp over tp under sp.
 */
static void collective_bytes(const plan_bridge *bridge, int64_t bytes[PLAN_PASSES])
{
    const plan_bridge_request *request = bridge->request;
    const mimo_grid *src = bridge->grids[MIMO_SRC], *dst = bridge->grids[MIMO_DST];
    int64_t all = request->batch * request->seq * bridge->row_bytes;
    int64_t whole = all / mimo_grid_dim_size(dst, "dp");
    int64_t encoder = all / mimo_grid_dim_size(src, "dp");
    int64_t cp = mimo_grid_dim_size(dst, "cp"), tp = mimo_grid_dim_size(dst, "tp");
    int64_t k = bridge->pairing.scale;
    bytes[PLAN_FORWARD] = bridge->pairing.fan == MIMO_FAN_IN ? (k - 1) * (whole / k) : 0;
    bytes[PLAN_BACKWARD] = 2 * (cp - 1) * (whole / cp);
    if (request->sp)
        bytes[PLAN_BACKWARD] += (tp - 1) * (whole / cp / tp);
    if (bridge->pairing.fan == MIMO_FAN_OUT)
        bytes[PLAN_BACKWARD] += (k - 1) * (encoder / k);
}

static void print_comparison(const plan_bridge *bridge, const plan_flow all[PLAN_PASSES])
{
    int64_t bytes[PLAN_PASSES];
    if (bridge->pairing.scale == 0) {
        printf("\ncollective cannot be used: %s\n", bridge->broken);
        return;
    }
    collective_bytes(bridge, bytes);
    printf(
        "\nbytes received by %s: collective (gathered batches, sum over cp) against routed (each "
        "needed row once)\n",
        bridge->shown > 1 ? "all ranks" : "this rank");
    for (int i = 0; i < PLAN_PASSES; i++) {
        int64_t collective = bytes[i] * bridge->shown;
        printf("%10s  collective %14" PRId64 "  routed %14" PRId64, pass_names[i], collective,
               all[i].recv);
        if (collective > 0)
            printf("  %5.1f%%", 100.0 * (double)all[i].recv / (double)collective);
        putchar('\n');
    }
}

/* ---------------------------------------- links --------------------------------------------- */

/* For pairs, the mean is over those that move something. For ranks, it is over all of them. */
static void print_links(const plan_bridge *bridge)
{
    printf(
        "\nhow evenly the links are used: the busiest pair and the busiest ranks, in bytes and as "
        "multiples of the mean\n");
    for (int i = 0; i < PLAN_PASSES; i++) {
        const plan_links *links = &bridge->links[i];
        printf("%10s  ", pass_names[i]);
        if (links->bytes == 0) {
            puts("nothing moves");
            continue;
        }
        printf("%" PRId64 " pairs, %" PRId64 " -> %" PRId64 " moves %" PRId64
               ", x %.2f; rank %" PRId64 " receives %" PRId64 ", x %.2f; rank %" PRId64
               " sends %" PRId64 ", x %.2f\n",
               links->pairs, links->pair.rank, links->pair.peer, links->pair.bytes,
               plan_imbalance(links->pair.bytes, links->bytes, links->pairs), links->in.rank,
               links->in.bytes, plan_imbalance(links->in.bytes, links->bytes, bridge->ranks),
               links->out.rank, links->out.bytes,
               plan_imbalance(links->out.bytes, links->bytes, bridge->ranks));
    }
}

static void print_time(const char *executor, double us)
{
    if (isfinite(us))
        printf("  %s %10.1f", executor, us);
    else
        printf("  %s %10s", executor, "-");
}

static void print_times(const plan_bridge *bridge)
{
    const mimo_link_speed *speed = &bridge->request->speed;
    if (speed->gbps <= 0)
        return;
    mimo_cost cost = plan_bridge_cost(bridge);
    printf("\nestimated us a call, %g GB/s and %g us a link\n", speed->gbps, speed->latency_us);
    for (int i = 0; i < PLAN_PASSES; i++) {
        printf("%10s", pass_names[i]);
        print_time("collective", cost.collective[i]);
        print_time("p2p", cost.p2p[i]);
        print_time("zero-copy", cost.zero_copy[i]);
        putchar('\n');
    }
}

/* ---------------------------------------- drawing ------------------------------------------- */

/* Width of the widest entry. Kept bytes stand in brackets. */
static int drawing_width(const plan_bridge *bridge, const int64_t *traffic)
{
    int width = 4;
    for (int64_t i = 0; i < bridge->ranks * bridge->ranks; i++) {
        int length = snprintf(NULL, 0, "(%" PRId64 ")", traffic[i]);
        width = length > width ? length : width;
    }
    return width;
}

static void print_cell(int width, int64_t bytes, bool kept)
{
    char text[32] = ".";
    if (bytes > 0)
        snprintf(text, sizeof text, kept ? "(%" PRId64 ")" : "%" PRId64, bytes);
    printf(" %*s", width, text);
}

static void print_drawing(const plan_bridge *bridge, int pass)
{
    const int64_t *traffic = bridge->traffic[pass];
    if (!traffic)
        return;
    int width = drawing_width(bridge, traffic);
    printf("\n%s: bytes from the row's rank to the column's; (kept)\n%6s", pass_names[pass], "");
    for (int64_t to = 0; to < bridge->ranks; to++)
        printf(" %*" PRId64, width, bridge->first + to);
    putchar('\n');
    for (int64_t from = 0; from < bridge->ranks; from++) {
        printf("%6" PRId64, bridge->first + from);
        for (int64_t to = 0; to < bridge->ranks; to++)
            print_cell(width, traffic[from * bridge->ranks + to], from == to);
        putchar('\n');
    }
}

int plan_bridge_print_text(const plan_bridge *bridge)
{
    plan_flow all[PLAN_PASSES] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    print_head(bridge);
    print_groups(bridge);
    if (!bridge->request->summary)
        print_ranks(bridge);
    print_bytes(bridge, all);
    print_comparison(bridge, all);
    print_links(bridge);
    print_times(bridge);
    for (int pass = 0; pass < PLAN_PASSES && !bridge->request->summary; pass++)
        print_drawing(bridge, pass);
    return 0;
}

/* The cost model: from bytes and speeds to microseconds. Bytes are doubles here, because an
 * estimate may round but must not overflow. */
#include <math.h>
#include <stdbool.h>

#include "tools/plan_cost.h"
#include "core/checked.h"
#include "core/rows.h"

/* ------------------------------------------- loads ------------------------------------------ */

bool mimo_block_is_one_run(const mimo_block *block, mimo_block_kind end)
{
    int64_t b = end == MIMO_RECV ? block->dst_b : block->src_b;
    int64_t s = end == MIMO_RECV ? block->dst_s : block->src_s;
    mimo_rows along_positions = {.n_outer = block->nb, block->nb > 1 ? b : 0, block->ns, s};
    mimo_rows along_samples = {.n_outer = block->ns, block->ns > 1 ? s : 0, block->nb, b};
    return mimo_rows_are_one_run(&along_positions) || mimo_rows_are_one_run(&along_samples);
}

/* Count blocks of one kind, message by message. The blocks of one peer follow one another. */
static void add_messages(mimo_plan_load *load, const mimo_plan *plan, mimo_block_kind kind,
                         int64_t row_bytes)
{
    int64_t count, end;
    const mimo_block *block = mimo_plan_blocks(&count, plan, kind);
    for (int64_t first = 0; first < count; first = end) {
        int64_t rows = 0;
        for (end = first; end < count && block[end].peer == block[first].peer; end++)
            rows += block[end].nb * block[end].ns;
        if (end - first > 1 || !mimo_block_is_one_run(&block[first], kind))
            *(kind == MIMO_SEND ? &load->packed : &load->unpacked) += rows * row_bytes;
        if (kind == MIMO_SEND)
            load->pair = mimo_larger(load->pair, rows * row_bytes);
    }
}

static int64_t staged_rows(const mimo_plan *plan, mimo_block_kind kind)
{
    int64_t count, rows = 0;
    const mimo_block *block = mimo_plan_blocks(&count, plan, kind);
    for (int64_t i = 0; i < count; i++)
        if (block[i].contribution > 0)
            rows += block[i].nb * block[i].ns;
    return rows;
}

mimo_plan_load mimo_plan_load_of(const mimo_plan *plan, int64_t row_bytes)
{
    mimo_plan_load load = {.in = mimo_plan_rows(plan, MIMO_RECV) * row_bytes,
                           .out = mimo_plan_rows(plan, MIMO_SEND) * row_bytes,
                           .local = mimo_plan_rows(plan, MIMO_LOCAL) * row_bytes};
    add_messages(&load, plan, MIMO_RECV, row_bytes);
    add_messages(&load, plan, MIMO_SEND, row_bytes);
    if (mimo_plan_classes(plan) > 1)
        load.staged = (staged_rows(plan, MIMO_RECV) + staged_rows(plan, MIMO_LOCAL)) * row_bytes;
    return load;
}

void mimo_plan_load_merge(mimo_plan_load *most, const mimo_plan_load *other)
{
    most->in = mimo_larger(most->in, other->in);
    most->out = mimo_larger(most->out, other->out);
    most->local = mimo_larger(most->local, other->local);
    most->packed = mimo_larger(most->packed, other->packed);
    most->unpacked = mimo_larger(most->unpacked, other->unpacked);
    most->staged = mimo_larger(most->staged, other->staged);
    most->pair = mimo_larger(most->pair, other->pair);
}

/* ------------------------------------------- times ------------------------------------------ */

/* 10^9 bytes per second are 10^3 bytes per microsecond. */
static double link_us(const mimo_link_speed *speed, double bytes)
{
    return bytes / (1e3 * speed->gbps);
}

static double copy_us(const mimo_link_speed *speed, double bytes)
{
    double gbps = speed->copy_gbps > 0 ? speed->copy_gbps : MIMO_COPY_RATIO * speed->gbps;
    return bytes / (1e3 * gbps);
}

/* What one rank does under collective: bytes over its link, bytes copied, latencies. */
typedef struct ring_work {
    double link, copied, starts;
} ring_work;

/* Add an all-gather of `part` bytes from each of n ranks. For n = 1 it adds nothing. */
static void add_gather(ring_work *work, double part, int64_t n)
{
    work->link += (double)(n - 1) * part;
    work->starts += n > 1;
}

static double time_of(const ring_work *work, const mimo_link_speed *speed)
{
    double starts = work->starts > 0 ? work->starts : 0.5;
    return starts * speed->latency_us + link_us(speed, work->link) + copy_us(speed, work->copied);
}

/* W of plan_cost.h for the LLM's grid, V for the encoder's. */
static double tile_bytes(const mimo_cost_case *of, const mimo_grid *grid)
{
    return (double)of->batch * (double)of->seq * (double)of->row_bytes /
           (double)mimo_grid_dim_size(grid, "dp");
}

static double collective_forward(const mimo_cost_case *of, const mimo_link_speed *speed)
{
    ring_work work = {0, 0, 0};
    double whole = tile_bytes(of, of->dst), k = (double)of->pairing.scale;
    bool gathers = of->pairing.fan == MIMO_FAN_IN;
    double cp = (double)mimo_grid_dim_size(of->dst, "cp");
    double tp = of->sp ? (double)mimo_grid_dim_size(of->dst, "tp") : 1;
    if (gathers)
        add_gather(&work, whole / k, of->pairing.scale);
    if (of->cut && cp * tp > 1) /* with cp = tp = 1 the shard is the whole tile */
        work.copied += whole / (cp * tp);
    else if (!gathers || of->order[MIMO_DST] == MIMO_ROWS_SBH)
        work.copied += whole;
    return time_of(&work, speed);
}

static double collective_backward(const mimo_cost_case *of, const mimo_link_speed *speed)
{
    ring_work work = {0, 0, 0};
    double whole = tile_bytes(of, of->dst), encoder = tile_bytes(of, of->src);
    bool gathers = of->pairing.fan == MIMO_FAN_OUT;
    int64_t cp = mimo_grid_dim_size(of->dst, "cp"), tp = mimo_grid_dim_size(of->dst, "tp");
    if (of->cut && of->sp && tp > 1) {
        add_gather(&work, whole / (double)(cp * tp), tp);
        work.copied += whole / (double)cp;
    }
    work.copied += of->cut || cp > 1 ? whole : 0;
    work.link += 2 * (double)(cp - 1) / (double)cp * whole;
    work.starts += cp > 1 ? 2 : 0;
    if (gathers)
        add_gather(&work, encoder / (double)of->pairing.scale, of->pairing.scale);
    work.copied += !gathers || of->order[MIMO_SRC] == MIMO_ROWS_SBH ? encoder : 0;
    return time_of(&work, speed);
}

static double p2p_phase(const mimo_plan_load *load, const mimo_link_speed *speed)
{
    int64_t busiest = mimo_larger(load->in, load->out);
    double copied =
        (double)load->packed + (double)load->unpacked + (double)load->local + (double)load->staged;
    return (busiest > 0 ? 1 : 0.5) * speed->latency_us + link_us(speed, (double)busiest) +
           copy_us(speed, copied);
}

static double zero_copy_phase(const mimo_plan_load *load, const mimo_link_speed *speed)
{
    int64_t busiest = mimo_larger(load->in, load->out);
    double moved = link_us(speed, (double)busiest), kept = copy_us(speed, (double)load->local);
    return (busiest > 0 ? 0.75 : 0.5) * speed->latency_us + (moved > kept ? moved : kept) +
           copy_us(speed, (double)load->staged);
}

mimo_cost mimo_cost_estimate(const mimo_cost_case *of, const mimo_link_speed *speed)
{
    mimo_cost cost = {{INFINITY, INFINITY}, {0, 0}, {0, 0}};
    if (of->pairing.scale > 0) {
        cost.collective[MIMO_COST_FORWARD] = collective_forward(of, speed);
        cost.collective[MIMO_COST_BACKWARD] = collective_backward(of, speed);
    }
    for (int way = 0; way < MIMO_COST_PASSES; way++)
        for (int i = 0; i < of->load[way].phases; i++) {
            cost.p2p[way] += p2p_phase(&of->load[way].phase[i], speed);
            cost.zero_copy[way] += zero_copy_phase(&of->load[way].phase[i], speed);
        }
    return cost;
}

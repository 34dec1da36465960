#include "bench_addresses.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_support.h"
#include "executors.h"

/* 151 places of each tensor: a set of addresses comes back after 151 calls at the earliest. That is
 * more than a bridge keeps of anything. */
enum { SEQ = 32, HIDDEN = 64, MOST = 8, PLACES = 151, CALLS = 50, REPEATS = 41, WARM_UP = 4 };

typedef struct address_bed {
    const bench_memory *memory;
    mimo_grid *src, *dst;
    mimo_bridge *bridge;
    mimo_buffer *buffer;     /* of the destinations; NULL: they lie in plain memory */
    mimo_tensor from, to;    /* at the first place */
    int64_t from_step, step; /* bytes from one place to the next; `step` of destinations */
} address_bed;

static int64_t bytes_of(const mimo_tensor *view)
{
    int64_t bytes;
    bench_must(mimo_tensor_extent(NULL, &bytes, view), "extent");
    return (bytes + 255) / 256 * 256;
}

static void bed_create(address_bed *out, const bench_memory *memory, executor_id executor)
{
    char src[32], dst[32];
    int size = mimo_comm_size(memory->comm);
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    snprintf(src, sizeof src, "tp=1,dp=%d", size);
    snprintf(dst, sizeof dst, "tp=1,cp=%d,dp=1", size);
    *out = (address_bed){.memory = memory};
    bench_must(mimo_grid_create_text(&out->src, src, 0), src);
    bench_must(mimo_grid_create_text(&out->dst, dst, 0), dst);
    desc.src = out->src;
    desc.dst = out->dst;
    desc.partition = &rule;
    desc.executor = executor_of(executor);
    desc.batch = size;
    bench_must(mimo_bridge_create(&out->bridge, memory->comm, &desc), "bridge");
    out->from = mimo_tensor_3d(NULL, MIMO_BF16, "sbh", (int64_t)SEQ * size, 1, HIDDEN);
    out->to = mimo_tensor_3d(NULL, MIMO_BF16, "sbh", SEQ, size, HIDDEN);
    out->from.memory = out->to.memory = mimo_comm_memory(memory->comm);
    out->from_step = bytes_of(&out->from);
    out->step = bytes_of(&out->to);
    out->from.data = memory->reserve(PLACES * out->from_step);
    if (executor == EXECUTOR_ZERO_COPY) {
        bench_must(mimo_buffer_create(&out->buffer, memory->comm, PLACES * out->step), "buffer");
        out->to.data = mimo_buffer_data(out->buffer);
    } else {
        out->to.data = memory->reserve(PLACES * out->step);
    }
}

static void bed_destroy(address_bed *bed)
{
    mimo_bridge_destroy(bed->bridge);
    bed->memory->release(bed->from.data);
    if (!bed->buffer)
        bed->memory->release(bed->to.data);
    mimo_buffer_destroy(bed->buffer);
    mimo_grid_destroy(bed->src);
    mimo_grid_destroy(bed->dst);
}

static void call(const address_bed *bed, int n, int64_t turn)
{
    mimo_tensor from[MOST], to[MOST];
    for (int i = 0; i < n; i++) {
        from[i] = bed->from;
        to[i] = bed->to;
        from[i].data = (char *)bed->from.data + (turn * n + i) % PLACES * bed->from_step;
        to[i].data = (char *)bed->to.data + (turn * n + i) % PLACES * bed->step;
    }
    bench_must(mimo_bridge_forward(bed->bridge, to, from, n, bed->memory->stream), "forward");
}

/* Microseconds of a call. On a device the work of CALLS calls fits into its queue. */
static double time_calls(const address_bed *bed, int n, bool fresh, int64_t *turn)
{
    bench_must(mimo_comm_barrier(bed->memory->comm), "barrier");
    double begin = bench_seconds();
    for (int i = 0; i < CALLS; i++)
        call(bed, n, fresh ? ++*turn : 0);
    double took = bench_seconds() - begin;
    bench_must(mimo_comm_synchronize(bed->memory->comm, bed->memory->stream), "synchronize");
    return 1e6 * took / CALLS;
}

static void time_both(const address_bed *bed, int n, const char *name, bool json)
{
    double fixed[REPEATS], fresh[REPEATS], ratio[REPEATS];
    int64_t turn = 0;
    for (int i = -WARM_UP; i < REPEATS; i++) {
        int at = i < 0 ? 0 : i;
        bool first = at % 2;
        double times[2];
        times[first] = time_calls(bed, n, first, &turn);
        times[!first] = time_calls(bed, n, !first, &turn);
        fixed[at] = times[0];
        fresh[at] = times[1];
        ratio[at] = fresh[at] / fixed[at];
    }
    if (mimo_comm_rank(bed->memory->comm) == 0)
        printf(json ? "{\"addresses\":\"%s\",\"tensors\":%d,\"fixed_us\":%.2f,\"fresh_us\":%.2f,"
                      "\"ratio\":%.3f}\n"
                    : "addresses: %-9s %d tensors: host time of a call %.2f us fixed, %.2f us "
                      "fresh, ratio %.3f\n",
               name, n, bench_median(fixed, REPEATS), bench_median(fresh, REPEATS),
               bench_median(ratio, REPEATS));
}

void bench_fresh_addresses(const bench_memory *memory, bool json)
{
    static const executor_id executors[] = {EXECUTOR_P2P, EXECUTOR_ZERO_COPY};
    static const char *const names[] = {"p2p", "zero-copy"};
    static const int tensors[] = {1, 2, MOST};
    for (int e = 0; e < 2; e++)
        for (int i = 0; i < 3; i++) {
            address_bed bed;
            bed_create(&bed, memory, executors[e]);
            time_both(&bed, tensors[i], names[e], json);
            bed_destroy(&bed);
        }
}

/* Prints what python/mimo_bridge/_c.py must agree with, a line each: sizes and offsets of structs,
 * and values. torch_abi.py compares. */
#include <stddef.h>
#include <stdio.h>

#include <mimo/mimo.h>
#ifdef WITH_NCCL
#include <mimo/nccl.h>
#endif

#define STRUCT(type) printf("struct %s %zu\n", #type, sizeof(type))
#define FIELD(type, field)                                                \
    printf("field %s %s %zu %zu\n", #type, #field, offsetof(type, field), \
           sizeof(((type *)NULL)->field))
#define VALUE(name) printf("value %s %lld\n", #name, (long long)(name))

static void print_values(void)
{
#define STATUS(name, value, text) VALUE(name);
    MIMO_STATUS_LIST(STATUS)
#define DTYPE(name, value, text, bytes) printf("dtype %s %d\n", text, value);
    MIMO_DTYPE_LIST(DTYPE)
    VALUE(MIMO_MEMORY_HOST);
    VALUE(MIMO_MEMORY_CUDA);
    VALUE(MIMO_SRC);
    VALUE(MIMO_DST);
    VALUE(MIMO_SBHD);
    VALUE(MIMO_THD);
    VALUE(MIMO_EMBEDDINGS);
    VALUE(MIMO_LABELS);
    VALUE(MIMO_FROM_ENV);
    VALUE(MIMO_LOG_WARNING);
    VALUE(MIMO_FAN_EQUAL);
    VALUE(MIMO_FAN_IN);
    VALUE(MIMO_FAN_OUT);
    VALUE(MIMO_ALGORITHM_AUTO);
    VALUE(MIMO_ALGORITHM_COLLECTIVE);
    VALUE(MIMO_ALGORITHM_ROUTED);
    VALUE(MIMO_TRANSPORT_AUTO);
    VALUE(MIMO_TRANSPORT_P2P);
    VALUE(MIMO_TRANSPORT_ZERO_COPY);
    VALUE(MIMO_TRANSPORT_STAGED);
    VALUE(MIMO_SCHEDULE_1F1B);
    VALUE(MIMO_SCHEDULE_INTERLEAVED);
    VALUE(MIMO_SCHEDULE_ZERO_BUBBLE);
    VALUE(MIMO_SCHEDULE_FORWARD);
    VALUE(MIMO_SCHEDULE_TEXT);
    VALUE(MIMO_SCHEDULE_CSV);
    VALUE(MIMO_SCHEDULE_SVG);
    VALUE(MIMO_SCHEDULE_TRACE);
#define STEP(name, cost, what) VALUE(MIMO_STEP_##name);
    MIMO_STEP_LIST(STEP)
    VALUE(MIMO_VERSION);
}

static void print_node_values(void)
{
#define PART(name, word, lane, what) VALUE(MIMO_NODE_##name);
    MIMO_NODE_PART_LIST(PART)
#define LANE(name, word, what) VALUE(MIMO_NODE_LANE_##name);
    MIMO_NODE_LANE_LIST(LANE)
    VALUE(MIMO_NODE_LAYER_PARTS);
    VALUE(MIMO_NODE_FORWARD);
    VALUE(MIMO_NODE_REPLAY);
    VALUE(MIMO_NODE_INPUTS);
    VALUE(MIMO_NODE_WEIGHTS);
    VALUE(MIMO_RECOMPUTE_NONE);
    VALUE(MIMO_RECOMPUTE_KEEP_ROWS);
    VALUE(MIMO_RECOMPUTE_SEND_ROWS);
    VALUE(MIMO_RECOMPUTE_BY_COSTS);
}

/* Of all structures of the headers. */
static void print_structures(void)
{
#include "torch_layout_rows.h"
}

int main(void)
{
    print_values();
    print_node_values();
    print_structures();
    return 0;
}

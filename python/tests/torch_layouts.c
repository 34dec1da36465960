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

static void print_values_of_calls(void)
{
    STRUCT(mimo_executor);
    FIELD(mimo_executor, algorithm);
    FIELD(mimo_executor, transport);
    STRUCT(mimo_tensor);
    FIELD(mimo_tensor, data);
    FIELD(mimo_tensor, dtype);
    FIELD(mimo_tensor, memory);
    FIELD(mimo_tensor, letters);
    FIELD(mimo_tensor, shape);
    STRUCT(mimo_dim);
    FIELD(mimo_dim, name);
    FIELD(mimo_dim, size);
    STRUCT(mimo_span);
    FIELD(mimo_span, sample);
    FIELD(mimo_span, row);
    FIELD(mimo_span, position);
    FIELD(mimo_span, length);
}

static void print_communicators(void)
{
    STRUCT(mimo_comm_desc);
    FIELD(mimo_comm_desc, size);
    FIELD(mimo_comm_desc, agree);
    FIELD(mimo_comm_desc, checks);
    FIELD(mimo_comm_desc, deadline);
    FIELD(mimo_comm_desc, stall);
    FIELD(mimo_comm_desc, interrupted);
    FIELD(mimo_comm_desc, context);
    FIELD(mimo_comm_desc, ring);
    FIELD(mimo_comm_desc, ring_folder);
    STRUCT(mimo_verdict);
    FIELD(mimo_verdict, size);
    FIELD(mimo_verdict, waits);
    FIELD(mimo_verdict, stands);
    FIELD(mimo_verdict, rank_count);
    FIELD(mimo_verdict, ranks);
    FIELD(mimo_verdict, text);
    STRUCT(mimo_bootstrap);
    FIELD(mimo_bootstrap, size);
    FIELD(mimo_bootstrap, rank);
    FIELD(mimo_bootstrap, ranks);
    FIELD(mimo_bootstrap, allgather);
    FIELD(mimo_bootstrap, context);
    STRUCT(mimo_survivors_desc);
    FIELD(mimo_survivors_desc, size);
    FIELD(mimo_survivors_desc, least);
    FIELD(mimo_survivors_desc, timeout_ms);
    FIELD(mimo_survivors_desc, common);
    FIELD(mimo_survivors_desc, bootstrap);
    FIELD(mimo_survivors_desc, ranks);
#ifdef WITH_NCCL
    STRUCT(mimo_nccl_desc);
    FIELD(mimo_nccl_desc, size);
    FIELD(mimo_nccl_desc, device);
    FIELD(mimo_nccl_desc, common);
    FIELD(mimo_nccl_desc, min_ctas);
    FIELD(mimo_nccl_desc, max_ctas);
    FIELD(mimo_nccl_desc, blocking);
    FIELD(mimo_nccl_desc, split_share);
    FIELD(mimo_nccl_desc, reserve);
    FIELD(mimo_nccl_desc, release);
    FIELD(mimo_nccl_desc, context);
    FIELD(mimo_nccl_desc, staging_bytes);
    STRUCT(mimo_nccl_report);
    FIELD(mimo_nccl_report, size);
    FIELD(mimo_nccl_report, communicators);
    FIELD(mimo_nccl_report, shared);
    FIELD(mimo_nccl_report, device_bytes);
#endif
}

static void print_rules(void)
{
    STRUCT(mimo_partition_rule);
    FIELD(mimo_partition_rule, size);
    FIELD(mimo_partition_rule, format);
    FIELD(mimo_partition_rule, sp);
    FIELD(mimo_partition_rule, strict);
    FIELD(mimo_partition_rule, sequences);
    FIELD(mimo_partition_rule, cu);
    FIELD(mimo_partition_rule, cu_padded);
    STRUCT(mimo_partition_coords);
    FIELD(mimo_partition_coords, size);
    FIELD(mimo_partition_coords, cp_rank);
    FIELD(mimo_partition_coords, cp_size);
    FIELD(mimo_partition_coords, tp_rank);
    FIELD(mimo_partition_coords, tp_size);
    STRUCT(mimo_pairing);
    FIELD(mimo_pairing, size);
    FIELD(mimo_pairing, fan);
    FIELD(mimo_pairing, scale);
    FIELD(mimo_pairing, groups);
    FIELD(mimo_pairing, group_size);
    STRUCT(mimo_alignment_desc);
    FIELD(mimo_alignment_desc, size);
    FIELD(mimo_alignment_desc, modalities);
    FIELD(mimo_alignment_desc, special);
    FIELD(mimo_alignment_desc, vocabulary);
    FIELD(mimo_alignment_desc, memory);
    STRUCT(mimo_gradient_bucket);
    FIELD(mimo_gradient_bucket, size);
    FIELD(mimo_gradient_bucket, name);
    FIELD(mimo_gradient_bucket, grad);
    FIELD(mimo_gradient_bucket, count);
    FIELD(mimo_gradient_bucket, dtype);
    FIELD(mimo_gradient_bucket, module);
    FIELD(mimo_gradient_bucket, shard);
    FIELD(mimo_gradient_bucket, partial);
    FIELD(mimo_gradient_bucket, grid);
}

static void print_bridges(void)
{
    STRUCT(mimo_bridge_desc);
    FIELD(mimo_bridge_desc, size);
    FIELD(mimo_bridge_desc, src);
    FIELD(mimo_bridge_desc, dst);
    FIELD(mimo_bridge_desc, partition);
    FIELD(mimo_bridge_desc, executor);
    FIELD(mimo_bridge_desc, src_partition);
    FIELD(mimo_bridge_desc, all_stages);
    FIELD(mimo_bridge_desc, destinations_idle);
    FIELD(mimo_bridge_desc, ctas);
    FIELD(mimo_bridge_desc, backward_executor);
    FIELD(mimo_bridge_desc, batch);
    FIELD(mimo_bridge_desc, name);
    STRUCT(mimo_bridge_sizes);
    FIELD(mimo_bridge_sizes, size);
    FIELD(mimo_bridge_sizes, batch);
    FIELD(mimo_bridge_sizes, seq);
    FIELD(mimo_bridge_sizes, hidden);
    FIELD(mimo_bridge_sizes, dtype);
    FIELD(mimo_bridge_sizes, in_buffer);
    FIELD(mimo_bridge_sizes, src_letters);
    FIELD(mimo_bridge_sizes, dst_letters);
    FIELD(mimo_bridge_sizes, any_batch);
    STRUCT(mimo_item);
    FIELD(mimo_item, sample);
    FIELD(mimo_item, row);
    FIELD(mimo_item, rows);
}

static void print_batches(void)
{
    STRUCT(mimo_update_desc);
    FIELD(mimo_update_desc, size);
    FIELD(mimo_update_desc, bridge);
    FIELD(mimo_update_desc, descs);
    FIELD(mimo_update_desc, n);
    STRUCT(mimo_lane_images);
    FIELD(mimo_lane_images, samples);
    FIELD(mimo_lane_images, seq);
    FIELD(mimo_lane_images, patches);
    FIELD(mimo_lane_images, images);
    FIELD(mimo_lane_images, spans);
    FIELD(mimo_lane_images, span_count);
    STRUCT(mimo_packed_spans);
    FIELD(mimo_packed_spans, spans);
    FIELD(mimo_packed_spans, span_count);
    FIELD(mimo_packed_spans, cu);
    FIELD(mimo_packed_spans, sequences);
    STRUCT(mimo_image_lists);
    FIELD(mimo_image_lists, rows);
    FIELD(mimo_image_lists, patches);
    FIELD(mimo_image_lists, spans);
    STRUCT(mimo_batch_items);
    FIELD(mimo_batch_items, size);
    FIELD(mimo_batch_items, src);
    FIELD(mimo_batch_items, src_first);
    FIELD(mimo_batch_items, dst);
    FIELD(mimo_batch_items, dst_first);
    FIELD(mimo_batch_items, dst_packed);
    STRUCT(mimo_balance_desc);
    FIELD(mimo_balance_desc, size);
    FIELD(mimo_balance_desc, items);
    FIELD(mimo_balance_desc, lanes);
    FIELD(mimo_balance_desc, cost);
    FIELD(mimo_balance_desc, rows);
    FIELD(mimo_balance_desc, home);
    FIELD(mimo_balance_desc, max_rows);
    FIELD(mimo_balance_desc, slack_permille);
    FIELD(mimo_balance_desc, in_order);
    STRUCT(mimo_balance_report);
    FIELD(mimo_balance_report, size);
    FIELD(mimo_balance_report, cost);
    FIELD(mimo_balance_report, mean);
    FIELD(mimo_balance_report, bound);
    FIELD(mimo_balance_report, longest_home);
    FIELD(mimo_balance_report, longest);
    FIELD(mimo_balance_report, rows);
    FIELD(mimo_balance_report, rows_moved);
    FIELD(mimo_balance_report, rows_over);
    FIELD(mimo_balance_report, empty_lanes);
    STRUCT(mimo_batch_desc);
    FIELD(mimo_batch_desc, size);
    FIELD(mimo_batch_desc, batch);
    FIELD(mimo_batch_desc, ragged);
    FIELD(mimo_batch_desc, spans);
    FIELD(mimo_batch_desc, span_count);
    FIELD(mimo_batch_desc, src_rows);
    FIELD(mimo_batch_desc, items);
    FIELD(mimo_batch_desc, dst_rows);
    STRUCT(mimo_move_desc);
    FIELD(mimo_move_desc, size);
    FIELD(mimo_move_desc, to);
    FIELD(mimo_move_desc, from);
    FIELD(mimo_move_desc, n);
    FIELD(mimo_move_desc, chunks);
    FIELD(mimo_move_desc, stream);
}

static void print_schedules(void)
{
    STRUCT(mimo_schedule_step);
    FIELD(mimo_schedule_step, kind);
    FIELD(mimo_schedule_step, index);
    FIELD(mimo_schedule_step, chunk);
    FIELD(mimo_schedule_step, back);
    FIELD(mimo_schedule_step, back_chunk);
    STRUCT(mimo_step_costs);
    FIELD(mimo_step_costs, size);
    FIELD(mimo_step_costs, of);
    FIELD(mimo_step_costs, head);
    FIELD(mimo_step_costs, hop);
    STRUCT(mimo_schedule_desc);
    FIELD(mimo_schedule_desc, size);
    FIELD(mimo_schedule_desc, kind);
    FIELD(mimo_schedule_desc, stages);
    FIELD(mimo_schedule_desc, chunks);
    FIELD(mimo_schedule_desc, micro_batches);
    FIELD(mimo_schedule_desc, encoder_group);
    FIELD(mimo_schedule_desc, encoder_alive);
    FIELD(mimo_schedule_desc, encoder_frozen);
    FIELD(mimo_schedule_desc, overlap);
    FIELD(mimo_schedule_desc, costs);
    FIELD(mimo_schedule_desc, any_order);
    STRUCT(mimo_schedule_memory);
    FIELD(mimo_schedule_memory, size);
    FIELD(mimo_schedule_memory, encoder_alive);
    FIELD(mimo_schedule_memory, chunks_alive);
    FIELD(mimo_schedule_memory, weights_waiting);
    FIELD(mimo_schedule_memory, saved_states);
    STRUCT(mimo_schedule_report);
    FIELD(mimo_schedule_report, size);
    FIELD(mimo_schedule_report, time);
    FIELD(mimo_schedule_report, idle);
    FIELD(mimo_schedule_report, three_phases);
    FIELD(mimo_schedule_report, llm_alone);
    FIELD(mimo_schedule_report, lower_bound);
    FIELD(mimo_schedule_report, least_alive);
    FIELD(mimo_schedule_report, encoder_alive);
    FIELD(mimo_schedule_report, chunks_alive);
    FIELD(mimo_schedule_report, weights_waiting);
    FIELD(mimo_schedule_report, saved_states);
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
}

static void print_nodes(void)
{
    STRUCT(mimo_node);
    FIELD(mimo_node, part);
    FIELD(mimo_node, pass);
    FIELD(mimo_node, step);
    FIELD(mimo_node, micro_batch);
    FIELD(mimo_node, chunk);
    FIELD(mimo_node, layer);
    STRUCT(mimo_node_costs);
    FIELD(mimo_node_costs, size);
    FIELD(mimo_node_costs, of);
    STRUCT(mimo_node_layer);
    FIELD(mimo_node_layer, parts);
    FIELD(mimo_node_layer, recompute);
    FIELD(mimo_node_layer, costs);
    STRUCT(mimo_node_chunk);
    FIELD(mimo_node_chunk, layers);
    FIELD(mimo_node_chunk, count);
    FIELD(mimo_node_chunk, has);
    FIELD(mimo_node_chunk, mtp);
    STRUCT(mimo_nodes_desc);
    FIELD(mimo_nodes_desc, size);
    FIELD(mimo_nodes_desc, costs);
    FIELD(mimo_nodes_desc, multiprocessors);
    FIELD(mimo_nodes_desc, lanes);
    FIELD(mimo_nodes_desc, early);
    FIELD(mimo_nodes_desc, grad_sync);
    STRUCT(mimo_node_time);
    FIELD(mimo_node_time, begin);
    FIELD(mimo_node_time, end);
    FIELD(mimo_node_time, multiprocessors);
    STRUCT(mimo_nodes_report);
    FIELD(mimo_nodes_report, size);
    FIELD(mimo_nodes_report, time);
    FIELD(mimo_nodes_report, local);
    FIELD(mimo_nodes_report, serial);
    FIELD(mimo_nodes_report, hidden);
    FIELD(mimo_nodes_report, ceiling);
    FIELD(mimo_nodes_report, lanes);
}

static void print_dispatches(void)
{
    STRUCT(mimo_dispatch_desc);
    FIELD(mimo_dispatch_desc, size);
    FIELD(mimo_dispatch_desc, experts);
    FIELD(mimo_dispatch_desc, top_k);
    FIELD(mimo_dispatch_desc, etp);
    FIELD(mimo_dispatch_desc, max_tokens);
    FIELD(mimo_dispatch_desc, hidden);
    FIELD(mimo_dispatch_desc, alignment);
    FIELD(mimo_dispatch_desc, narrow_sums);
    FIELD(mimo_dispatch_desc, transport);
    FIELD(mimo_dispatch_desc, ctas);
    FIELD(mimo_dispatch_desc, name);
    FIELD(mimo_dispatch_desc, row_bytes);
    FIELD(mimo_dispatch_desc, tensors);
    FIELD(mimo_dispatch_desc, buffers_only);
    STRUCT(mimo_route_desc);
    FIELD(mimo_route_desc, size);
    FIELD(mimo_route_desc, ids);
    FIELD(mimo_route_desc, id_dtype);
    FIELD(mimo_route_desc, tokens);
    FIELD(mimo_route_desc, capacity);
    FIELD(mimo_route_desc, memory);
    STRUCT(mimo_route_counts);
    FIELD(mimo_route_counts, size);
    FIELD(mimo_route_counts, ranks);
    FIELD(mimo_route_counts, rows);
    FIELD(mimo_route_counts, overflows);
    STRUCT(mimo_dispatch_counts);
    FIELD(mimo_dispatch_counts, size);
    FIELD(mimo_dispatch_counts, routes);
    FIELD(mimo_dispatch_counts, rows);
    FIELD(mimo_dispatch_counts, overflows);
}

int main(void)
{
    print_values();
    print_values_of_calls();
    print_communicators();
    print_rules();
    print_bridges();
    print_batches();
    print_schedules();
    print_node_values();
    print_nodes();
    print_dispatches();
    return 0;
}

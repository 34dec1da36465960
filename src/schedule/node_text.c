/* Nodes as text and in other formats; the hash. */
#include "schedule/node_types.h"

#include <inttypes.h>

#include "core/check.h"
#include "core/hash.h"
#include "core/printed.h"

static void write_step(FILE *stream, const mimo_nodes *nodes, int64_t stage, int64_t step)
{
    const mimo_schedule *schedule = nodes->schedule;
    if (nodes->alone)
        fputs("step:", stream);
    else
        fprintf(stream, "stage %" PRId64 ", %s:", stage,
                mimo_step_name_of(schedule, &schedule->lists[stage].steps[step]).text);
}

static void write_text(FILE *stream, const mimo_nodes *nodes)
{
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++) {
        const mimo_stage_nodes *list = &nodes->stages[p];
        for (int64_t i = 0; i < list->count; i++) {
            if (i == 0 || list->nodes[i].step != list->nodes[i - 1].step)
                write_step(stream, nodes, p, list->nodes[i].step);
            fprintf(stream, " %s", mimo_node_name_of(&list->nodes[i]).text);
            if (i + 1 == list->count || list->nodes[i].step != list->nodes[i + 1].step)
                fputc('\n', stream);
        }
    }
}

mimo_status mimo_nodes_print(FILE *stream, const mimo_nodes *nodes, mimo_schedule_format format)
{
    MIMO_CHECK(nodes && stream, MIMO_ERR_ARGUMENT, "mimo_nodes_print: %s is NULL",
               nodes ? "stream" : "nodes");
    MIMO_CHECK(format == MIMO_SCHEDULE_TEXT || format == MIMO_SCHEDULE_SVG ||
                   format == MIMO_SCHEDULE_TRACE,
               MIMO_ERR_ARGUMENT, "mimo_nodes_print: format %d has no nodes", (int)format);
    if (format == MIMO_SCHEDULE_TEXT)
        write_text(stream, nodes);
    else
        MIMO_TRY(mimo_nodes_write_plan(stream, nodes, format));
    bool whole = fflush(stream) == 0 && !ferror(stream);
    MIMO_CHECK(whole, MIMO_ERR_IO, "mimo_nodes_print: the stream takes no more");
    return MIMO_OK;
}

mimo_status mimo_nodes_text(int64_t *length, char *text, int64_t capacity, const mimo_nodes *nodes,
                            mimo_schedule_format format)
{
    mimo_printed printed;
    MIMO_TRY(mimo_printed_open(&printed, text, capacity, "mimo_nodes_text"));
    return mimo_printed_close(length, text, capacity, &printed,
                              mimo_nodes_print(printed.stream, nodes, format));
}

uint64_t mimo_nodes_hash(const mimo_nodes *nodes)
{
    uint64_t hash = MIMO_HASH_START;
    hash = mimo_hash_int(hash, (int64_t)mimo_schedule_hash(nodes->schedule));
    hash = mimo_hash_int(hash, nodes->desc.multiprocessors);
    for (int lane = 0; lane < MIMO_NODE_LANES; lane++)
        hash = mimo_hash_int(hash, nodes->desc.lanes[lane]);
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < nodes->stages[p].count; i++) {
            const mimo_node *node = &nodes->stages[p].nodes[i];
            const int64_t words[] = {node->part,        node->pass,  node->step,
                                     node->micro_batch, node->chunk, node->layer};
            for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
                hash = mimo_hash_int(hash, words[k]);
        }
    return hash;
}

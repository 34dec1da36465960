/* Nodes for Criterion tests: chunks of equal layers, steps alone, lists that are altered. */
#ifndef MIMO_TESTS_NODE_BED_H
#define MIMO_TESTS_NODE_BED_H

#include "schedule/node_types.h"
#include "schedule_bed.h"

enum { MOST_LAYERS = 64 };

/* A chunk with `count` layers of these parts: one of a few, kept by the test. */
typedef struct bed_chunk {
    mimo_node_layer layers[MOST_LAYERS];
    mimo_node_chunk chunk;
} bed_chunk;

static inline const mimo_node_chunk *filled(bed_chunk *bed, int64_t count, uint32_t parts)
{
    *bed = (bed_chunk){0};
    for (int64_t i = 0; i < count; i++)
        bed->layers[i].parts = parts;
    bed->chunk.layers = bed->layers;
    bed->chunk.count = count;
    return &bed->chunk;
}

/* One step of this number of layers forward and backward; 0: the step has no such half. */
static inline mimo_nodes *step_of_layers(int64_t forward, int64_t back, uint32_t parts,
                                         const mimo_nodes_desc *desc)
{
    bed_chunk f, b;
    mimo_nodes *nodes = NULL;
    mimo_status status =
        mimo_nodes_create_step(&nodes, forward > 0 ? filled(&f, forward, parts) : NULL,
                               back > 0 ? filled(&b, back, parts) : NULL, desc);
    cr_assert_eq(status, MIMO_OK, "%s", mimo_last_error());
    return nodes;
}

static inline mimo_nodes_report nodes_report_of(const mimo_nodes *nodes)
{
    mimo_nodes_report report = MIMO_NODES_REPORT_INIT;
    SUCCEEDS(mimo_nodes_report_of(&report, nodes));
    return report;
}

BED_PRINTED(nodes_text_of, mimo_nodes, mimo_nodes_text)

/* The place of a node, by its name and micro-batch, in the list of a stage. */
static inline int64_t place_of(const mimo_nodes *nodes, int64_t stage, const char *name,
                               int64_t micro_batch)
{
    const mimo_stage_nodes *list = &nodes->stages[stage];
    for (int64_t i = 0; i < list->count; i++)
        if (list->nodes[i].micro_batch == micro_batch &&
            strcmp(mimo_node_name_of(&list->nodes[i]).text, name) == 0)
            return i;
    cr_assert(false, "stage %ld has no %s of %ld", (long)stage, name, (long)micro_batch);
    return -1;
}

/* Take node `from` out of a list and put it at place `to`. */
static inline void move_node(mimo_nodes *nodes, int64_t stage, int64_t from, int64_t to)
{
    mimo_node *all = nodes->stages[stage].nodes, moved = all[from];
    for (int64_t i = from; i < to; i++)
        all[i] = all[i + 1];
    for (int64_t i = from; i > to; i--)
        all[i] = all[i - 1];
    all[to] = moved;
    SUCCEEDS(mimo_nodes_find_waits(nodes));
}

#endif

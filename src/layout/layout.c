/* Layouts: made from a description, and released. */
#include <string.h>

#include "layout/layout_types.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "grid/grid_types.h"
#include "partition/packed_rule.h"

MIMO_DEFINE_INIT(mimo_layout_desc, MIMO_LAYOUT_DESC_INIT)

const char *const mimo_side_names[2] = {"src", "dst"};

/* The descriptor and the rule that it points to, both in this version's form. */
static mimo_status read_desc(mimo_layout_desc *own, mimo_partition_rule *rule,
                             const mimo_layout_desc *desc)
{
    MIMO_TRY(mimo_read_descriptor(own, sizeof *own, desc, "layout"));
    if (own->partition) {
        MIMO_TRY(mimo_read_descriptor(rule, sizeof *rule, own->partition, "layout partition"));
        rule->size = sizeof *rule;
        own->partition = rule;
    }
    MIMO_CHECK(own->grid, MIMO_ERR_ARGUMENT, "layout: the grid is NULL");
    MIMO_TRY(mimo_grid_check_meaning(own->grid, "layout: the"));
    MIMO_CHECK(own->order == MIMO_ROWS_SBH || own->order == MIMO_ROWS_BSH, MIMO_ERR_ARGUMENT,
               "layout: unknown row order %d", (int)own->order);
    MIMO_CHECK(own->cp_copies == MIMO_COPIES_EQUAL || own->cp_copies == MIMO_COPIES_PARTIAL,
               MIMO_ERR_ARGUMENT, "layout: unknown kind of cp copies %d", (int)own->cp_copies);
    MIMO_CHECK(own->batch >= 0 && own->seq >= 0, MIMO_ERR_ARGUMENT,
               "layout: batch %" PRId64 " and seq %" PRId64 " must not be negative", own->batch,
               own->seq);
    return MIMO_OK;
}

/* Positions of one rank, by the partition's own rules. */
static mimo_status shard_of(int64_t *out, const mimo_layout_desc *desc, const mimo_layout *layout)
{
    mimo_partition_coords coords = {.size = sizeof(mimo_partition_coords),
                                    .cp_size = layout->dims.cp.size,
                                    .tp_size = mimo_grid_dim_size(desc->grid, "tp")};
    mimo_partition *partition;
    if (!desc->partition) {
        *out = desc->seq;
        return MIMO_OK;
    }
    MIMO_TRY(mimo_partition_create(&partition, desc->partition, &coords));
    mimo_status status = mimo_partition_rows(out, partition, MIMO_EMBEDDINGS, desc->seq);
    mimo_partition_destroy(partition);
    return status;
}

/* With this check every number of rows in a plan fits 64 bits: a rank receives at most batch * seq
 * rows of each class, there are at most as many classes as src ranks, and a rank sends at most
 * batch * seq rows to each dst rank. */
static mimo_status check_rows(const mimo_layout_desc *desc)
{
    int64_t rows;
    if (mimo_mul(&rows, desc->batch, desc->seq) != MIMO_OK ||
        mimo_mul(&rows, rows, mimo_grid_size(desc->grid)) != MIMO_OK)
        return mimo_fail_prefix(
            MIMO_ERR_OVERFLOW,
            "rows of batch %" PRId64 " x seq %" PRId64 " on %" PRId64 " ranks: ", desc->batch,
            desc->seq, mimo_grid_size(desc->grid));
    return MIMO_OK;
}

static void add_axis(mimo_axes *axes, mimo_axis axis)
{
    axes->axis[axes->count++] = axis;
    axes->size *= axis.size;
}

/* What a dimension of the grid does to rows. */
typedef enum axis_role {
    AXIS_COPIES,   /* ranks along it hold equal rows */
    AXIS_SAMPLES,  /* cuts the batch */
    AXIS_SEQUENCE, /* cuts the sequence */
    AXIS_SHARD,    /* cuts a cp shard */
    AXIS_CLASS,    /* ranks along it hold contributions */
    AXIS_STAGE,    /* only coordinate 0 holds rows */
} axis_role;

static axis_role role_of(const mimo_layout_desc *desc, const char *name)
{
    axis_role shared = desc->cp_copies == MIMO_COPIES_PARTIAL ? AXIS_CLASS : AXIS_COPIES;
    if (strcmp(name, "dp") == 0)
        return AXIS_SAMPLES;
    if (strcmp(name, "pp") == 0)
        return desc->all_stages ? shared : AXIS_STAGE;
    if (strcmp(name, "cp") == 0)
        return desc->partition ? AXIS_SEQUENCE : shared;
    if (strcmp(name, "tp") == 0 && desc->partition && desc->partition->sp)
        return AXIS_SHARD;
    return AXIS_COPIES;
}

bool mimo_layout_replicates(const mimo_layout_desc *desc, const char *name)
{
    return role_of(desc, name) == AXIS_COPIES;
}

static void set_axis(mimo_layout *layout, axis_role role, mimo_axis axis)
{
    switch (role) {
    case AXIS_SAMPLES:
        layout->dims.dp = axis;
        return; /* readers are those of one sample */
    case AXIS_STAGE:
        layout->pp = axis;
        return;
    case AXIS_SEQUENCE:
        layout->dims.cp = axis;
        break;
    case AXIS_SHARD:
        layout->dims.tp = axis;
        break;
    case AXIS_CLASS:
        add_axis(&layout->dims.contribution, axis);
        break;
    case AXIS_COPIES:
        add_axis(&layout->copies, axis);
        break;
    }
    add_axis(&layout->readers, axis);
}

static void set_axes(mimo_layout *layout, const mimo_layout_desc *desc)
{
    mimo_axis whole = {1, 1};
    int64_t stride = 1;
    layout->dims.dp = layout->dims.cp = layout->dims.tp = layout->pp = whole;
    layout->copies.size = layout->readers.size = layout->dims.contribution.size = 1;
    for (int i = 0; i < mimo_grid_ndims(desc->grid); i++) {
        mimo_dim dim = mimo_grid_dim(desc->grid, i);
        set_axis(layout, role_of(desc, dim.name), (mimo_axis){dim.size, stride});
        stride *= dim.size;
    }
}

static mimo_status set_samples(mimo_layout *layout, const mimo_layout_desc *desc)
{
    int64_t dp = layout->dims.dp.size;
    if (!desc->samples)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&layout->first_sample, dp + 1, sizeof(int64_t)));
    int64_t *first = layout->first_sample;
    for (int64_t d = 0; d < dp; d++) {
        MIMO_CHECK(desc->samples[d] >= 0, MIMO_ERR_SHAPE,
                   "layout: dp coordinate %" PRId64 " has %" PRId64 " samples", d,
                   desc->samples[d]);
        MIMO_TRY(mimo_add(&first[d + 1], first[d], desc->samples[d]));
    }
    MIMO_CHECK(first[dp] == desc->batch, MIMO_ERR_SHAPE,
               "layout: dp = %" PRId64 " coordinates have %" PRId64
               " samples in all, the batch is %" PRId64,
               dp, first[dp], desc->batch);
    return MIMO_OK;
}

/* shard_of has checked the rule. */
static mimo_status set_segments(mimo_layout *layout, const mimo_partition_rule *rule)
{
    layout->segments = 1;
    if (!rule || rule->format != MIMO_THD || layout->dims.cp.size == 1)
        return MIMO_OK;
    int64_t count = rule->sequences + 1;
    MIMO_TRY(mimo_reserve(&layout->first_position, count, sizeof *layout->first_position));
    const int32_t *cu = mimo_rule_lengths(rule);
    for (int64_t i = 0; i < count; i++)
        layout->first_position[i] = cu[i];
    layout->segments = rule->sequences;
    return MIMO_OK;
}

static mimo_status fill(mimo_layout *layout, const mimo_layout_desc *desc)
{
    int ndims = mimo_grid_ndims(desc->grid);
    MIMO_TRY(mimo_reserve(&layout->copies.axis, ndims, sizeof(mimo_axis)));
    MIMO_TRY(mimo_reserve(&layout->readers.axis, ndims, sizeof(mimo_axis)));
    MIMO_TRY(mimo_reserve(&layout->dims.contribution.axis, ndims, sizeof(mimo_axis)));
    layout->order = desc->order;
    layout->batch = desc->batch;
    layout->seq = desc->seq;
    layout->offset = mimo_grid_rank_offset(desc->grid);
    layout->ranks = mimo_grid_size(desc->grid);
    set_axes(layout, desc);
    MIMO_TRY(set_samples(layout, desc));
    MIMO_TRY(shard_of(&layout->shard, desc, layout));
    MIMO_TRY(set_segments(layout, desc->partition));
    return mimo_ragged_fill(layout, desc);
}

mimo_status mimo_layout_create(mimo_layout **out, const mimo_layout_desc *desc)
{
    mimo_layout_desc own = MIMO_LAYOUT_DESC_INIT;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout *layout;
    MIMO_CHECK(out && desc, MIMO_ERR_ARGUMENT, "mimo_layout_create: %s is NULL",
               out ? "desc" : "out");
    MIMO_TRY(read_desc(&own, &rule, desc));
    MIMO_TRY(check_rows(&own));
    MIMO_TRY(mimo_reserve(&layout, 1, sizeof *layout));
    mimo_status status = fill(layout, &own);
    if (status == MIMO_OK)
        *out = layout;
    else
        mimo_layout_destroy(layout);
    return status;
}

void mimo_layout_destroy(mimo_layout *layout)
{
    if (!layout)
        return;
    mimo_release(layout->copies.axis);
    mimo_release(layout->readers.axis);
    mimo_release(layout->dims.contribution.axis);
    mimo_release(layout->first_sample);
    mimo_release(layout->first_position);
    mimo_ragged_release(&layout->ragged);
    mimo_release(layout);
}

/*
 * Groups by ncclCommSplit. First all ranks of the parent gather the colour and key of every rank,
 * so each knows all groups. Where the ranks of a group have an NCCL communicator already, the group
 * shares it. ncclCommSplit runs only where one group has none.
 */
#include <stdlib.h>

#include "comm/agreement.h"
#include "comm/nccl/nccl_split.h"
#include "core/memory.h"

/* The arguments of one rank. */
typedef struct split_arguments {
    int color, key, rank; /* rank of the parent */
} split_arguments;

static int by_key(const void *a, const void *b)
{
    const split_arguments *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->rank - y->rank;
}

/* Move the arguments of the ranks of `color` to the front, in the group's order. Returns the
 * group's size. */
static int keep_group(split_arguments *group, int size, int color)
{
    int count = 0;
    for (int i = 0; i < size; i++)
        if (group[i].color == color)
            group[count++] = group[i];
    qsort(group, (size_t)count, sizeof *group, by_key);
    return count;
}

static mimo_status gather_arguments(split_arguments *all, mimo_comm *parent, split_arguments mine)
{
    mimo_request *request;
    MIMO_TRY(mimo_nccl_host_allgather_start(&request, parent, all, &mine, (int)sizeof mine));
    return mimo_wait(parent, &request, "comm split");
}

/* Whether any rank of the parent needs a new shared communicator. */
static mimo_status any_needs(bool *out, mimo_comm *parent, bool mine)
{
    uint64_t value = mine;
    mimo_request *request;
    MIMO_TRY(mimo_nccl_host_max_start(&request, parent, &value, 1));
    MIMO_TRY(mimo_wait(parent, &request, "comm split"));
    *out = value != 0;
    return MIMO_OK;
}

/* Give `made`, which has its ranks, a shared communicator: one of the same ranks, or a new one.
 * `made` drops it in the end, also after an error. Collective over the parent. */
static mimo_status share_comm(nccl_comm *made, nccl_comm *parent, split_arguments mine)
{
    ncclComm_t none;
    nccl_family *family = parent->family;
    int size = made->base.size;
    mimo_status status = MIMO_OK;
    bool any, grouped = mine.color >= 0 && size > 1;
    made->shared = grouped ? mimo_nccl_shared_comm_find(family, made->ranks, size) : NULL;
    bool needs = grouped && !made->shared;
    if (made->shared) {
        made->shared->users++;
        family->report.shared++;
    }
    if (needs)
        status = mimo_nccl_shared_comm_add(&made->shared, family, NULL, made->ranks, size);
    MIMO_TRY(mimo_comm_agree(&parent->base, status));
    MIMO_TRY(any_needs(&any, &parent->base, needs));
    if (!any || !parent->shared)
        return MIMO_OK;
    /* A rank that needs none takes part without a colour. */
    const nccl_part part = {needs ? mine.color : NCCL_SPLIT_NOCOLOR, mine.key, NCCL_TENSORS};
    return mimo_nccl_shared_comm_split(needs ? &made->shared->handle : &none, parent, part);
}

mimo_status mimo_nccl_split(mimo_comm **out, mimo_comm *base, int color, int key)
{
    nccl_comm *parent = (nccl_comm *)base, *made = NULL;
    const split_arguments mine = {color, key, base->rank};
    split_arguments *all = NULL;
    mimo_status status = mimo_reserve(&all, base->size, sizeof *all);
    /* Each rank allocates first and agrees on that, so that no rank is missing from what
     * follows. */
    if (status == MIMO_OK)
        status = mimo_nccl_comm_add(&made, parent->family, base->size);
    MIMO_TRY_GOTO(status, done, mimo_comm_agree(base, status));
    MIMO_TRY_GOTO(status, done, gather_arguments(all, base, mine));
    int size = color < 0 ? 0 : keep_group(all, base->size, color);
    for (int i = 0; i < size; i++) {
        made->ranks[i] = parent->ranks[all[i].rank];
        made->base.renumbered = made->base.renumbered || made->ranks[i] != i;
        if (all[i].rank == base->rank)
            made->base.rank = i;
    }
    made->base.size = size;
    MIMO_TRY_GOTO(status, done, share_comm(made, parent, mine));
    *out = size > 0 ? &made->base : NULL;
    if (size > 0)
        made = NULL;
done:
    if (made)
        mimo_comm_destroy(&made->base);
    mimo_release(all);
    return status;
}

/*
 * Groups by ncclCommSplit. All ranks of the parent first learn every rank's colour and key, so each
 * knows its group; a group that has a team already takes it, and ncclCommSplit runs only where some
 * group has none.
 */
#include <stdlib.h>

#include "comm/agreement.h"
#include "comm/nccl/nccl_split.h"
#include "core/memory.h"

/* What a rank asks for. */
typedef struct wish {
    int color, key, rank; /* rank of the parent */
} wish;

static int by_key(const void *a, const void *b)
{
    const wish *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->rank - y->rank;
}

/* The group of `color`, ordered, into wishes[0..]; returns its size. */
static int keep_group(wish *wishes, int size, int color)
{
    int count = 0;
    for (int i = 0; i < size; i++)
        if (wishes[i].color == color)
            wishes[count++] = wishes[i];
    qsort(wishes, (size_t)count, sizeof *wishes, by_key);
    return count;
}

static mimo_status collect_wishes(wish *all, mimo_comm *parent, wish mine)
{
    mimo_request *request;
    MIMO_TRY(mimo_nccl_host_allgather_start(&request, parent, all, &mine, (int)sizeof mine));
    return mimo_wait(parent, &request, "comm split");
}

/* Whether any rank of the parent needs a new team. */
static mimo_status any_needs(bool *out, mimo_comm *parent, bool mine)
{
    uint64_t word = mine;
    mimo_request *request;
    MIMO_TRY(mimo_nccl_host_max_start(&request, parent, &word, 1));
    MIMO_TRY(mimo_wait(parent, &request, "comm split"));
    *out = word != 0;
    return MIMO_OK;
}

/* Collective over the parent. A rank that has its team, or wants none, comes without a colour. */
static mimo_status make_team(ncclComm_t *out, nccl_comm *parent, int color, int key)
{
    ncclConfig_t config = parent->root->config;
    int64_t before = mimo_nccl_free_bytes();
    *out = NULL;
    ncclComm_t handle = parent->team->handle;
    ncclResult_t code = ncclCommSplit(handle, color, key, out, &config);
    mimo_status status = mimo_nccl_settle(code, parent, handle, "ncclCommSplit");
    if (status == MIMO_OK && *out)
        status = mimo_nccl_settle(ncclSuccess, parent, *out, "ncclCommSplit");
    if (status != MIMO_OK) {
        if (*out)
            (void)ncclCommAbort(*out);
        *out = NULL;
        return status;
    }
    int64_t taken = before - mimo_nccl_free_bytes();
    parent->root->report.device_bytes += taken > 0 ? taken : 0;
    return MIMO_OK;
}

mimo_status mimo_nccl_team_reserve(nccl_team **out, nccl_comm *comm)
{
    MIMO_TRY(mimo_nccl_team_add(out, comm->root, NULL, comm->ranks, comm->base.size));
    (*out)->unshared = true;
    return MIMO_OK;
}

mimo_status mimo_nccl_team_open(nccl_team *team, nccl_comm *comm)
{
    return make_team(&team->handle, comm, 0, comm->base.rank);
}

/* The team of `made`, which has its ranks: an equal group's, or a new one. It is given up with
 * `made`, also after an error. Collective over the parent. */
static mimo_status find_team(nccl_comm *made, nccl_comm *parent, wish mine)
{
    ncclComm_t none;
    nccl_root *root = parent->root;
    int size = made->base.size;
    mimo_status status = MIMO_OK;
    bool any, grouped = mine.color >= 0 && size > 1;
    made->team = grouped ? mimo_nccl_team_find(root, made->ranks, size) : NULL;
    bool needs = grouped && !made->team;
    if (made->team) {
        made->team->users++;
        root->report.shared++;
    }
    if (needs)
        status = mimo_nccl_team_add(&made->team, root, NULL, made->ranks, size);
    MIMO_TRY(mimo_comm_agree(&parent->base, status));
    MIMO_TRY(any_needs(&any, &parent->base, needs));
    if (!any || !parent->team)
        return MIMO_OK;
    return make_team(needs ? &made->team->handle : &none, parent,
                     needs ? mine.color : NCCL_SPLIT_NOCOLOR, mine.key);
}

mimo_status mimo_nccl_split(mimo_comm **out, mimo_comm *base, int color, int key)
{
    nccl_comm *parent = (nccl_comm *)base, *made = NULL;
    const wish mine = {color, key, base->rank};
    wish *all = NULL;
    mimo_status status = mimo_reserve(&all, base->size, sizeof *all);
    /* memory is taken first, and agreed on, so that no rank is missing from what follows */
    if (status == MIMO_OK)
        status = mimo_nccl_comm_make(&made, parent->root, base->size);
    MIMO_TRY_GOTO(status, done, mimo_comm_agree(base, status));
    MIMO_TRY_GOTO(status, done, collect_wishes(all, base, mine));
    int size = color < 0 ? 0 : keep_group(all, base->size, color);
    for (int i = 0; i < size; i++) {
        made->ranks[i] = parent->ranks[all[i].rank];
        if (all[i].rank == base->rank)
            made->base.rank = i;
    }
    made->base.size = size;
    MIMO_TRY_GOTO(status, done, find_team(made, parent, mine));
    *out = size > 0 ? &made->base : NULL;
    if (size > 0)
        made = NULL;
done:
    if (made)
        mimo_comm_destroy(&made->base);
    mimo_release(all);
    return status;
}

/* NCCL communicators, shared by the groups that are equal. */
#include <string.h>

#include "comm/nccl/nccl_state.h"
#include "core/memory.h"

mimo_status mimo_nccl_team_add(nccl_team **out, nccl_root *root, ncclComm_t handle,
                               const int *ranks, int size)
{
    nccl_team *team;
    MIMO_TRY(mimo_reserve(&team, (int64_t)sizeof *team + size * (int64_t)sizeof *ranks, 1));
    team->handle = handle;
    team->users = 1;
    team->size = size;
    memcpy(team->ranks, ranks, (size_t)size * sizeof *ranks);
    team->next = root->teams;
    root->teams = team;
    root->report.communicators++;
    *out = team;
    return MIMO_OK;
}

nccl_team *mimo_nccl_team_find(const nccl_root *root, const int *ranks, int size)
{
    nccl_team *team = root->teams;
    while (team && (team->unshared || team->size != size ||
                    memcmp(team->ranks, ranks, (size_t)size * sizeof *ranks) != 0))
        team = team->next;
    return team;
}

static bool is_well(const nccl_team *team)
{
    ncclResult_t met = ncclSuccess;
    return !team->failed && ncclCommGetAsyncError(team->handle, &met) == ncclSuccess &&
           met == ncclSuccess;
}

/* NCCL's own destroy waits for the peers, which after an error may never come. */
static void close_handle(const nccl_team *team)
{
    ncclComm_t handle = team->handle;
    if (!handle)
        return;
    if (!is_well(team)) {
        (void)ncclCommAbort(handle);
        return;
    }
    (void)mimo_nccl_status(ncclCommFinalize(handle), NULL, handle, "ncclCommFinalize");
    (void)ncclCommDestroy(handle);
}

void mimo_nccl_team_drop(nccl_root *root, nccl_team *team)
{
    nccl_team **at = &root->teams;
    if (!team || --team->users > 0)
        return;
    while (*at != team)
        at = &(*at)->next;
    *at = team->next;
    root->report.communicators--;
    if (!team->borrowed)
        close_handle(team);
    mimo_release(team);
}

/* All at once: to give one up frees memory, for which CUDA waits for the kernels of the others. */
void mimo_nccl_teams_abort(nccl_root *root)
{
    (void)ncclGroupStart();
    for (nccl_team *team = root->teams; team; team = team->next) {
        ncclComm_t handle = team->handle;
        if (!handle || team->borrowed)
            continue;
        team->handle = NULL;
        if (!team->busy)
            (void)ncclCommAbort(handle);
    }
    (void)ncclGroupEnd();
}

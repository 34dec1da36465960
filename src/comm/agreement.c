#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <mimo/env.h>

#include "comm/agreement.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"

static void end_with(mimo_agreement *agreement, mimo_status result)
{
    agreement->comm->backend->release(agreement->request);
    agreement->request = NULL;
    mimo_release(agreement->all);
    agreement->all = NULL;
    agreement->result = result;
    agreement->stage = MIMO_AGREEMENT_DONE;
}

static void start_stage(mimo_agreement *agreement, mimo_status started, int stage)
{
    agreement->stage = stage;
    if (started != MIMO_OK)
        end_with(agreement, started);
}

void mimo_agreement_begin(mimo_agreement *agreement, mimo_comm *comm, mimo_status local,
                          uint64_t signature, const char *call, bool always)
{
    int64_t on = 1;
    memset(agreement, 0, sizeof *agreement);
    agreement->comm = comm;
    if (!always && local == MIMO_OK)
        local = mimo_env_get(MIMO_ENV_AGREE, &on);
    else if (!always)
        (void)mimo_env_get(MIMO_ENV_AGREE, &on); /* the first error is the one to report */
    if (on == 0 || comm->size == 1) {
        end_with(agreement, local);
        return;
    }
    mimo_verdict *mine = &agreement->mine;
    mine->signature = mimo_hash_int(signature, (int64_t)comm->calls++);
    mine->status = (int32_t)local;
    snprintf(mine->call, sizeof mine->call, "%s", call);
    if (local != MIMO_OK)
        snprintf(mine->sentence, sizeof mine->sentence, "%s", mimo_last_error());
    agreement->vote[0] = local == MIMO_OK ? 0 : (uint64_t)(comm->size - comm->rank);
    agreement->vote[1] = mine->signature;
    agreement->vote[2] = ~mine->signature;
    start_stage(agreement, comm->backend->vote_start(&agreement->request, comm, agreement->vote, 3),
                MIMO_AGREEMENT_VOTE);
}

/* All signatures equal: the largest of them is the complement of the largest complement. */
static bool signatures_agree(const mimo_agreement *agreement)
{
    return agreement->vote[1] == ~agreement->vote[2];
}

static void vote_ended(mimo_agreement *agreement)
{
    mimo_comm *comm = agreement->comm;
    agreement->comm->backend->release(agreement->request);
    agreement->request = NULL;
    if (agreement->vote[0] > 0) {
        int root = comm->size - (int)agreement->vote[0];
        start_stage(agreement,
                    comm->backend->tell_start(&agreement->request, comm, &agreement->mine,
                                              (int)sizeof agreement->mine, root),
                    MIMO_AGREEMENT_TELL);
        return;
    }
    if (signatures_agree(agreement)) {
        end_with(agreement, MIMO_OK);
        return;
    }
    mimo_status status = mimo_reserve(&agreement->all, comm->size, sizeof *agreement->all);
    if (status == MIMO_OK)
        status = comm->backend->collect_start(&agreement->request, comm, agreement->all,
                                              &agreement->mine, (int)sizeof agreement->mine);
    start_stage(agreement, status, MIMO_AGREEMENT_COLLECT);
}

static void tell_ended(mimo_agreement *agreement)
{
    int root = agreement->comm->size - (int)agreement->vote[0];
    mimo_status status = (mimo_status)agreement->mine.status;
    end_with(agreement, mimo_fail(status, "rank %d: %s", root, agreement->mine.sentence));
}

static void collect_ended(mimo_agreement *agreement)
{
    const mimo_verdict *all = agreement->all;
    int other = 1;
    while (other < agreement->comm->size - 1 && all[other].signature == all[0].signature)
        other++;
    const char *same = strcmp(all[other].call, all[0].call) == 0
                           ? " (the same in words: an earlier call was missing or extra, or "
                             "descriptors differ)"
                           : "";
    end_with(agreement, mimo_fail(MIMO_ERR_MISMATCH, "rank %d called %s, rank 0 called %s%s", other,
                                  all[other].call, all[0].call, same));
}

bool mimo_agreement_test(mimo_agreement *agreement)
{
    while (agreement->stage != MIMO_AGREEMENT_DONE) {
        bool done = false;
        mimo_status status = agreement->comm->backend->test(agreement->request, &done);
        if (status != MIMO_OK)
            end_with(agreement, status);
        else if (!done)
            return false;
        else if (agreement->stage == MIMO_AGREEMENT_VOTE)
            vote_ended(agreement);
        else if (agreement->stage == MIMO_AGREEMENT_TELL)
            tell_ended(agreement);
        else
            collect_ended(agreement);
    }
    return true;
}

static mimo_status wait_for(mimo_agreement *agreement)
{
    while (!mimo_agreement_test(agreement))
        mimo_pause(agreement->comm);
    return agreement->result;
}

mimo_status mimo_agree(mimo_comm *comm, mimo_status local, uint64_t signature, const char *call)
{
    mimo_agreement agreement;
    mimo_agreement_begin(&agreement, comm, local, signature, call, false);
    return wait_for(&agreement);
}

mimo_status mimo_agree_always(mimo_comm *comm, mimo_status local, uint64_t signature,
                              const char *call)
{
    mimo_agreement agreement;
    mimo_agreement_begin(&agreement, comm, local, signature, call, true);
    return wait_for(&agreement);
}

mimo_status mimo_comm_agree(mimo_comm *comm, mimo_status local)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_agree: comm is NULL");
    return mimo_agree_always(comm, local, MIMO_HASH_START, "agree");
}

/* The token count of a step: creation, the local sums, N and the reported loss. */
#include <inttypes.h>
#include <stdio.h>

#include <mimo/env.h>

#include "comm/calls.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "device/profile.h"
#include "gradient/gradient_state.h"
#include "grid/grid_types.h"

MIMO_DEFINE_INIT(mimo_gradient_bucket, MIMO_GRADIENT_BUCKET_INIT)

static mimo_status check_grids(const mimo_comm *comm, const mimo_grid *src, const mimo_grid *dst)
{
    const mimo_grid *const grids[] = {src, dst};
    MIMO_CHECK(src && dst, MIMO_ERR_ARGUMENT, "gradient: the %s grid is NULL", src ? "dst" : "src");
    for (int module = 0; module < 2; module++) {
        MIMO_TRY(mimo_grid_check_world(grids[module], comm->size));
        MIMO_TRY(mimo_rule_check_grid(grids[module], (mimo_side)module));
    }
    return MIMO_OK;
}

static uint64_t describe(char *text, const mimo_grid *src, const mimo_grid *dst, bool check_copies)
{
    char src_text[64], dst_text[64];
    uint64_t hash = mimo_hash_int(mimo_signature_start(MIMO_CALL_GRADIENT_CREATE), check_copies);
    snprintf(text, MIMO_CALL_TEXT, "gradient create");
    if (!src || !dst)
        return hash;
    snprintf(text, MIMO_CALL_TEXT, "gradient create src %s dst %s%s",
             mimo_grid_text(src_text, sizeof src_text, src),
             mimo_grid_text(dst_text, sizeof dst_text, dst),
             check_copies ? " MIMO_CHECK replicas" : "");
    return mimo_grid_hash(mimo_grid_hash(hash, src), dst);
}

mimo_status mimo_gradient_create(mimo_gradient **out, mimo_comm *comm, const mimo_grid *src,
                                 const mimo_grid *dst)
{
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    int64_t checks = 0;
    mimo_gradient *made = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "gradient: comm is NULL");
    MIMO_ENTER(comm, "gradient");
    mimo_status status = check_grids(comm, src, dst);
    if (status == MIMO_OK && !out)
        status = mimo_fail(MIMO_ERR_ARGUMENT, "gradient: out is NULL");
    if (status == MIMO_OK)
        status = mimo_comm_checks(&checks, comm);
    if (status == MIMO_OK)
        status = mimo_reserve(&made, 1, sizeof *made);
    if (status == MIMO_OK)
        status = mimo_reserve(&made->grids, 2, sizeof *made->grids);
    bool check_copies = (checks & MIMO_CHECK_REPLICAS) != 0;
    uint64_t signature = describe(call, src, dst, check_copies);
    status = mimo_agree_as(comm, MIMO_AGREE_CREATE, status, signature, call);
    if (status != MIMO_OK) {
        if (made)
            mimo_release(made->grids);
        mimo_release(made);
        return status;
    }
    made->comm = comm;
    made->grids[MIMO_SRC] = mimo_module_grid(src, MIMO_SRC);
    made->grids[MIMO_DST] = mimo_module_grid(dst, MIMO_DST);
    made->grid_count = 2;
    made->check_copies = check_copies;
    mimo_grids_retain(src, dst, MIMO_GRID_GRADIENT);
    *out = made;
    return MIMO_OK;
}

void mimo_gradient_destroy(mimo_gradient *gradient)
{
    MIMO_RANGE();
    if (!gradient)
        return;
    for (int64_t i = 0; i < gradient->group_count; i++)
        mimo_comm_destroy(gradient->groups[i].comm);
    mimo_gradient_release_grids(gradient);
    mimo_release(gradient->groups);
    mimo_release(gradient->done);
    mimo_release(gradient);
}

void mimo_gradient_reset(mimo_gradient *gradient)
{
    if (!gradient)
        return;
    gradient->loss = 0;
    gradient->tokens = 0;
    gradient->counted = gradient->finalized = gradient->late = false;
}

mimo_status mimo_gradient_add(mimo_gradient *gradient, double loss_sum, int64_t tokens)
{
    int64_t sum;
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_add: gradient is NULL");
    MIMO_CHECK(tokens >= 0, MIMO_ERR_ARGUMENT, "mimo_gradient_add: %" PRId64 " tokens", tokens);
    MIMO_TRY(mimo_add(&sum, gradient->tokens, tokens));
    if (gradient->finalized && !gradient->late)
        gradient->old_tokens = gradient->tokens;
    gradient->late = gradient->finalized;
    if (MIMO_MUTATED("last-micro-batch"))
        sum = tokens;
    gradient->tokens = sum;
    gradient->loss += loss_sum;
    gradient->counted = false;
    return MIMO_OK;
}

mimo_status mimo_gradient_gather_shares(mimo_share *all, mimo_gradient *gradient, mimo_share mine,
                                        const char *call)
{
    mimo_comm *comm = gradient->comm;
    mimo_request *request = NULL;
    MIMO_TRY(comm->backend->host_allgather_start(&request, comm, all, &mine, (int)sizeof mine));
    return mimo_wait(comm, &request, call);
}

/* Adds of the next step on top of one that was finalized. */
static mimo_status check_reset(const mimo_gradient *gradient)
{
    MIMO_CHECK(!gradient->late, MIMO_ERR_STATE,
               "gradient count: of the %" PRId64 " tokens of this rank, %" PRId64
               " are of a step that was finalized: mimo_gradient_reset was not called after it",
               gradient->tokens, gradient->old_tokens);
    return MIMO_OK;
}

mimo_status mimo_gradient_count(int64_t *tokens, double *loss, mimo_gradient *gradient)
{
    MIMO_RANGE();
    mimo_share *all = NULL, sum;
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_count: gradient is NULL");
    MIMO_ENTER(gradient->comm, "mimo_gradient_count");
    mimo_comm *comm = gradient->comm;
    gradient->counted = false;
    mimo_status status = check_reset(gradient);
    if (status == MIMO_OK)
        status = mimo_reserve(&all, comm->size, sizeof *all);
    MIMO_TRY_GOTO(status, done,
                  mimo_agree_as(comm, MIMO_AGREE_CALL, status,
                                mimo_signature_start(MIMO_CALL_GRADIENT_COUNT), "gradient count"));
    const mimo_share mine = {gradient->loss, gradient->tokens};
    MIMO_TRY_GOTO(status, done, mimo_gradient_gather_shares(all, gradient, mine, "gradient count"));
    MIMO_TRY_GOTO(status, done, mimo_gradient_sum_tokens(&sum, gradient, all));
    gradient->total = sum.count;
    gradient->mean_loss = sum.value / (double)(sum.count > 0 ? sum.count : 1);
    gradient->counted = true;
    gradient->done_count = 0;
    if (tokens)
        *tokens = gradient->total;
    if (loss)
        *loss = gradient->mean_loss;
done:
    mimo_release(all);
    return status;
}

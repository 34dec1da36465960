/* Creation and release of a mover. */
#include <mimo/env.h>

#include "comm/buffer_state.h"
#include "comm/calls.h"
#include "comm/recorder.h"
#include "core/check.h"
#include "move/op_types.h"

mimo_status mimo_mover_create(mimo_mover *mover, void *owner, const mimo_mover_hooks *hooks)
{
    mimo_op *first;
    mover->owner = owner;
    mover->hooks = hooks;
    MIMO_TRY(mimo_op_create(&first, mover));
    mimo_free_list_put(&mover->spare, &first->item);
    return MIMO_OK;
}

mimo_status mimo_mover_reserve_blocks(mimo_mover *mover, mimo_comm *parent, int blocks)
{
    if (!parent->backend->reserve_blocks)
        return MIMO_OK;
    mover->lane_comm = parent;
    return parent->backend->reserve_blocks(parent, &mover->lane, blocks);
}

void mimo_mover_release_blocks(mimo_mover *mover)
{
    if (mover->lane_comm)
        mover->lane_comm->backend->release_blocks(mover->lane_comm, &mover->lane);
    mover->lane_comm = NULL;
}

/* A communicator of all ranks of the parent, for the thread that is in a call of that. */
static mimo_status duplicate(mimo_comm **out, mimo_comm *parent)
{
    MIMO_TRY(mimo_comm_split(out, parent, 0, parent->rank));
    (*out)->used_with = parent;
    mimo_recorder_share(*out);
    return MIMO_OK;
}

mimo_status mimo_mover_connect(mimo_mover *mover, mimo_comm *parent, int64_t checks)
{
    bool on_parent = mover->hooks->on_parent;
    MIMO_TRY(duplicate(&mover->comm, parent));
    mover->staging.allocator = mover->comm->staging.allocator;
    mover->compares_calls = (checks & MIMO_CHECK_CALLS) != 0 && !on_parent;
    return on_parent && !parent->words ? duplicate(&parent->words, parent) : MIMO_OK;
}

static void move_on(void *mover)
{
    mimo_mover_progress(mover);
}

void mimo_mover_open(mimo_mover *mover, mimo_comm *parent)
{
    mover->parent = parent;
    mimo_recorder_title(mover->comm, mover->title);
    mover->callback = (mimo_progress_callback){
        .progress = move_on, .context = mover, .owner = mover->hooks->kind};
    mimo_comm_retain(parent);
    mimo_callback_add(parent, &mover->callback);
}

mimo_status mimo_mover_check_idle(const mimo_mover *mover, const char *call)
{
    MIMO_CHECK(mover->unwaited == 0, MIMO_ERR_STATE,
               "%s: an operation is in flight (%d were not waited for)", call, mover->unwaited);
    return MIMO_OK;
}

void mimo_mover_release(mimo_mover *mover)
{
    if (mover->parent)
        mimo_callback_remove(mover->parent, &mover->callback);
    for (mimo_op *op; (op = mimo_free_list_take(&mover->spare, 0, 0));)
        mimo_op_destroy(op);
    mimo_staging_release(&mover->staging);
    mimo_mover_release_blocks(mover);
    mimo_comm_destroy(mover->comm);
    if (mover->parent)
        mimo_comm_release(mover->parent);
}

void mimo_mover_look_at_reach(mimo_mover *mover, const mimo_buffer *buffer)
{
    if (mover->knows_reach)
        return;
    mover->knows_reach = true;
    mimo_buffer_warn_of_reach(buffer, mover->title, "zero-copy");
}

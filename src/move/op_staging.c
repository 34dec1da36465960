/* Staging of operations. */
#include "move/op_types.h"

static mimo_staging *staging_of(mimo_op *op)
{
    return op->mover->comm->device->enqueues ? &op->mover->staging : &op->memory.staging;
}

static mimo_staging_key key_of(const mimo_op *op, mimo_staging_use use)
{
    return (mimo_staging_key){op->mover->comm->device, op->call.stream, use};
}

mimo_status mimo_op_get_staging(void **out, mimo_op *op, mimo_staging_use use, int64_t bytes)
{
    const mimo_staging_key key = key_of(op, use);
    *out = NULL;
    return bytes > 0 ? mimo_staging_get(out, staging_of(op), &key, bytes) : MIMO_OK;
}

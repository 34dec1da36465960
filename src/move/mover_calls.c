/* The public calls of an object's passes: begun, from the start to the end, and refused. */
#include "comm/calls.h"
#include "move/op_types.h"

mimo_status mimo_mover_run(mimo_mover *mover, const mimo_op_request *request)
{
    mimo_op *op;
    MIMO_TRY(mimo_mover_begin(&op, mover, request));
    return mimo_op_finish(&op);
}

mimo_status mimo_mover_start(mimo_op **out, mimo_mover *mover, const mimo_op_request *request)
{
    MIMO_ENTER(mover->comm, mover->hooks->pass[request->backward]);
    return mimo_mover_begin(out, mover, request);
}

mimo_status mimo_mover_move(mimo_mover *mover, const mimo_op_request *request)
{
    MIMO_ENTER(mover->parent, mover->hooks->pass[request->backward]);
    return mimo_mover_run(mover, request);
}

mimo_status mimo_mover_refuse(mimo_mover *mover, const mimo_op_request *request, mimo_status local,
                              const char *call)
{
    mimo_op_request refused = *request;
    MIMO_ENTER(mover->parent, call);
    refused.read = mimo_refused_status(local, call);
    return mimo_mover_run(mover, &refused);
}

#include "core/check.h"
#include "dispatch/dispatch_executor.h"

/* Those that move less memory first. */
static const mimo_dispatch_executor *const executors[] = {&mimo_direct_executor,
                                                          &mimo_messages_executor};

mimo_status mimo_dispatch_choose_executor(const mimo_dispatch_executor **out, const mimo_comm *comm)
{
    for (size_t i = 0; i < sizeof executors / sizeof executors[0]; i++)
        if (executors[i]->moves(comm)) {
            *out = executors[i];
            return MIMO_OK;
        }
    return mimo_fail(MIMO_ERR_UNSUPPORTED,
                     "dispatch: the communicator moves %s, and no executor of a dispatch does",
                     mimo_memory_text(comm->memory));
}

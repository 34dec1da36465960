#include "captioner/training/file_wait.h"

#include <stdarg.h>
#include <stdio.h>

#include "train/support/train_support.h"

/* Below this a write is seldom a wait, and many small tensors are no reason to agree many times. */
static const int64_t bytes_between_meetings = 1 << 20;

mimo_status file_wait_begin(file_wait *out, mimo_comm *world, file_wait_limit limit,
                            const char *name, ...)
{
    va_list arguments;
    *out = (file_wait){.world = world};
    if (limit == FILE_WAIT_LONG)
        out->deadline = mimo_comm_deadline(world);
    va_start(arguments, name);
    vsnprintf(out->name, sizeof out->name, name, arguments);
    va_end(arguments);
    TRY(file_wait_agree(out, MIMO_OK));
    /* Not 0, under which calls would move the caller's memory (<mimo/comm.h>, "Deadlines"). */
    return out->deadline > 0 ? mimo_comm_set_deadline(world, MIMO_DEADLINE_MOST) : MIMO_OK;
}

mimo_status file_wait_agree(const file_wait *wait, mimo_status local)
{
    return mimo_comm_agree_named(wait->world, local, wait->name);
}

mimo_status file_wait_pass(file_wait *wait, int64_t bytes)
{
    wait->since += bytes;
    if (wait->since < bytes_between_meetings)
        return MIMO_OK;
    wait->since = 0;
    return file_wait_agree(wait, MIMO_OK);
}

void file_wait_end(const file_wait *wait)
{
    if (wait->deadline > 0)
        (void)mimo_comm_set_deadline(wait->world, wait->deadline);
}

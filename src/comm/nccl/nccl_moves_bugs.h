/* Bugs on purpose in the kernels that move rows of experts. Files of the tests define the macro,
 * include a kernel, and so have a copy of it in which a bug can be switched on. */
#ifndef MIMO_COMM_NCCL_MOVES_BUGS_H
#define MIMO_COMM_NCCL_MOVES_BUGS_H

enum {
    MIMO_BUG_NONE,
    MIMO_BUG_POST_BEFORE_WRITE,       /* a flag is set a millisecond before its row is written */
    MIMO_BUG_FLAG_OF_THE_CALL_BEFORE, /* is taken for that of this call */
    MIMO_BUG_COPY_ROW_BEFORE,         /* goes to the token's other experts, not the token's row */
    MIMO_BUG_NO_READY,                /* peers are written to before they have begun the call */
};

#ifndef MIMO_MOVES_BROKEN
#define MIMO_MOVES_BROKEN(bug) false
#endif

#endif

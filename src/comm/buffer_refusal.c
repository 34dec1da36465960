/* The error of a push that a rank refused, with its sentence. */
#include <inttypes.h>

#include "comm/buffer_state.h"
#include "core/check.h"

enum { SIGNATURE_DIGITS = MIMO_SIGNATURE_BITS / 4 };

static unsigned signature_of(uint64_t ready)
{
    return (unsigned)(ready & ((1u << MIMO_SIGNATURE_BITS) - 1));
}

static const char *title_of(const mimo_buffer *buffer)
{
    return buffer->title ? buffer->title : "zero-copy";
}

/* The numbers of calls in the sentences count the calls that move rows between the two ranks by
 * these flags. */
mimo_status mimo_buffer_check(const mimo_buffer *buffer)
{
    static const char advice[] =
        "shape, dtype, batch, chunks or the offset in the buffer differ (run with "
        "MIMO_CHECK=calls, which names both calls); nothing more is moved by it";
    const mimo_refusal *it = buffer->refusal;
    if (__atomic_load_n(&it->noted, __ATOMIC_ACQUIRE) == 0)
        return MIMO_OK;
    int peer = buffer->comm->rank + (int)it->distance;
    uint64_t call = mimo_ready_call(it->mine);
    if (it->other == 0)
        return mimo_fail(MIMO_ERR_MISMATCH,
                         "%s: rank %d wrote no rows here: its call %" PRIu64
                         " with rows for this rank was not the same call there as here (signature "
                         "%0*x here): %s",
                         title_of(buffer), peer, call, SIGNATURE_DIGITS, signature_of(it->mine),
                         advice);
    return mimo_fail(MIMO_ERR_MISMATCH,
                     "%s: no rows were written to rank %d: call %" PRIu64
                     " with rows for it was not the same call there as here (there number %" PRIu64
                     ", signature %0*x; here %0*x): %s",
                     title_of(buffer), peer, call, mimo_ready_call(it->other), SIGNATURE_DIGITS,
                     signature_of(it->other), SIGNATURE_DIGITS, signature_of(it->mine), advice);
}

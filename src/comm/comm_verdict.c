/* The verdict of a family for its caller. */
#include "comm/calls.h"
#include "comm/recorder.h"
#include "core/descriptor.h"
#include "core/letters.h"

MIMO_DEFINE_INIT(mimo_verdict, MIMO_VERDICT_INIT)

_Static_assert((int)MIMO_VERDICT_RANKS == (int)MIMO_RING_VERDICT_RANKS, "ranks of a verdict");
_Static_assert((int)MIMO_VERDICT_TEXT == (int)MIMO_RING_VERDICT_TEXT, "text of a verdict");

static void write_verdict(mimo_verdict *out, const mimo_ring_verdict *from)
{
    out->waits = from->waits;
    out->stands = from->stands;
    out->rank_count = from->count;
    for (int i = 0; i < from->count && i < MIMO_VERDICT_RANKS; i++)
        out->ranks[i] = from->ranks[i];
    mimo_copy_text(out->text, sizeof out->text, from->text);
}

mimo_status mimo_comm_verdict(mimo_verdict *out, const mimo_comm *comm)
{
    mimo_verdict made = MIMO_VERDICT_INIT;
    mimo_ring_verdict now;
    MIMO_CHECK(out && comm, MIMO_ERR_ARGUMENT, "mimo_comm_verdict: %s is NULL",
               out ? "comm" : "out");
    MIMO_TRY(mimo_check_process(comm->family, "mimo_comm_verdict"));
    const mimo_recorder *recorder = comm->family->recorder;
    if (mimo_family_status(comm->family) != MIMO_OK) {
        if (recorder && recorder->judged)
            write_verdict(&made, &recorder->verdict);
    } else if (mimo_recorder_judge(&now, comm->family)) {
        write_verdict(&made, &now);
    }
    return mimo_write_descriptor(out, &made, sizeof made, "mimo_comm_verdict");
}

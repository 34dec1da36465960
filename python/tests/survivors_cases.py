"""Going on after a communicator has ended. examples/torch/survive.py has a rank that dies."""
import torch

import mimo_bridge as mb
from mimo_bridge import _mpi
from rank_runner import case, gather, raises, same


@case(4, on="cpu")
def all_go_on(comm):
    """The ranks that are left have a communicator that works, also twice in a row."""
    ended = mb.Communicator()
    assert (ended.generation, ended.old_ranks) == (0, None)
    for generation in (1, 2):
        raises(mb.StateError, "has not ended", ended.survivors)
        gather(None)  # an abort could end the creation of another rank
        if comm.rank == 1:
            ended.abort("the loader is empty")
        raises(mb.AbortedError, "the loader is empty", ended.barrier)
        made = ended.survivors(least=4, timeout_ms=20_000)
        assert (made.rank, made.size, made.old_ranks) == (comm.rank, 4, (0, 1, 2, 3))
        assert made.generation == generation and made.timeout == ended.timeout and made.failure is None
        ended.close()
        ended = made
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("tp=4,dp=1"), comm=made, layout="bsh", batch=4)
    same(bridge(torch.full((1, 1, 1), float(comm.rank)))[:, 0, 0], torch.arange(4.0))
    made.close()


@case(4, on="cpu")
def a_rank_that_does_not_come(comm):
    """The others name it, and go on without it. It learns that when it comes."""
    ended = mb.Communicator()
    gather(None)
    ended.abort("each rank for itself")
    if comm.rank != 2:
        error = raises(mb.DeadlineError, "no sign of rank 2", ended.survivors, least=4, timeout_ms=1500)
        assert "3 of 4 ranks are left" in str(error)
    raises(mb.ArgumentError, "least 5 is not in", ended.survivors, least=5)
    gather(None)
    if comm.rank != 2:
        made = ended.survivors(timeout_ms=1500)
        assert made.old_ranks == (0, 1, 3) and made.old_ranks[made.rank] == comm.rank
        made.barrier()
        made.forget()
    gather(None)
    if comm.rank == 2:
        raises(mb.AbortedError, "ranks 0, 1, 3 went on without this one, rank 2, as generation 2", ended.survivors)
    ended.close()
    _mpi.start().complete = True  # all ranks of this launch live

"""Buffers: peers write into slots, which are used in turn."""
import gc
import logging

import torch

import mimo_bridge as mb
from mimo_bridge import _ending
from rank_runner import case, gather, raises, same
from tile_model import Side, global_rows

F64 = torch.float64


def make(comm, buffer, grads=None, **more):
    return mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, layout="bsh", buffer=buffer,
                     partition=mb.Partition(), grad_buffer=grads, **more)


def whole_of(seed):
    return global_rows(4, 8, 2, F64, seed)


def tile_of(comm, seed):
    return whole_of(seed)[comm.rank:comm.rank + 1].clone().requires_grad_()


DST = Side("cp=2,dp=2", 0, "bsh", True)


@case(4)
def slots_in_turn(comm):
    """Call n lies in slot n % slots on every rank, forward and backward, with the bits of a plain one."""
    buffer, grads = mb.Buffer(4096, 3, comm=comm), mb.Buffer(4096, 2, comm=comm)
    assert buffer.reach == 4 and buffer.bytes >= 4096
    bridge = make(comm, buffer, grads)
    for n in range(7):
        x = tile_of(comm, n)
        y = bridge(x)
        assert y.data_ptr() == buffer._address + n % 3 * buffer.bytes
        same(y.detach(), DST.tile(comm.rank, whole_of(n)))
        grad, = torch.autograd.grad(y.sum(), x)
        assert grad.data_ptr() == grads._address + n % 2 * grads.bytes
        same(grad, torch.ones_like(x))
        del y, grad


@case(4)
def shards_to_idle_destinations(comm):
    """Shards on both sides, cut otherwise; and the promise that slots are idle, kept by a barrier."""
    buffer, grads = mb.Buffer(4096, 2, comm=comm), mb.Buffer(4096, 2, comm=comm)
    specs = "cp=2,dp=2", "dp=2,cp=2"
    sides = [Side(spec, 0, "bsh", True) for spec in specs]
    bridge = mb.Bridge(*map(mb.Grid, specs), comm=comm, layout="bsh", buffer=buffer, grad_buffer=grads,
                       src_partition=mb.Partition(), partition=mb.Partition(), destinations_idle=True)
    for n in range(5):
        comm.synchronize()
        comm.barrier()
        x = sides[0].tile(comm.rank, whole_of(n)).requires_grad_()
        y = bridge(x)
        same(y.detach(), sides[1].tile(comm.rank, whole_of(n)))
        grad, = torch.autograd.grad(y, x, 3 * y.detach())
        same(grad, 3 * x.detach())
        assert y.data_ptr() == buffer._address + n % 2 * buffer.bytes
        del y, grad


@case(4)
def changed_in_place(comm):
    """A result in a slot can be changed in place, as any other."""
    bridge = make(comm, mb.Buffer(4096, 2, comm=comm))
    x = tile_of(comm, 0)
    y = bridge(x)
    y.mul_(2)
    y[:, :1].add_(1)
    same(y.detach()[:, 1:], 2 * DST.tile(comm.rank, whole_of(0))[:, 1:])
    y.sum().backward()
    same(x.grad, torch.full_like(x, 2))


@case(4)
def slot_of_a_call_that_failed(comm):
    """The exception does not keep the slot, so that the call can be made again where it is caught."""
    bridge, x = make(comm, mb.Buffer(4096, 1, comm=comm)), tile_of(comm, 0)
    try:
        bridge(x[:, :6])
    except mb.ShapeError:
        same(bridge(x).detach(), DST.tile(comm.rank, whole_of(0)))
    else:
        raise AssertionError("no ShapeError")


@case(4, on="cpu")
def slots_after_a_wrong_argument(comm):
    """A call that fails on one rank before the library counts there as well."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge, x = make(comm, buffer), tile_of(comm, 0)
    raises(mb.MimoError, "", lambda: bridge(x, batch="4" if comm.rank == 2 else None))
    assert bridge(x).data_ptr() == buffer._address + buffer.bytes


@case(4, on="cpu")
def slots_beside_other_calls(comm):
    """A call that one rank did not make counts on no rank; a prepare never does."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge, x = make(comm, buffer), tile_of(comm, 0)
    raises(mb.MismatchError, "prepare of forward", bridge.prepare if comm.rank == 2 else bridge, x)
    raises(mb.MimoError, "", bridge.prepare, x.sum() if comm.rank == 2 else x)
    same(bridge(x).detach(), DST.tile(comm.rank, whole_of(0)))
    assert set(gather(buffer._calls)) == {1}


@case(4)
def zero_copy_is_asked_for(comm):
    """executor zero_copy with a buffer; without one it is an error on every rank."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    x = tile_of(comm, 1)
    y = make(comm, buffer, executor="zero_copy", backward_executor="p2p")(x)
    same(y.detach(), DST.tile(comm.rank, whole_of(1)))
    y.sum().backward()
    raises(mb.MimoError, "buffer", make(comm, None, executor="zero_copy"), x)


@case(4)
def slot_that_is_in_use(comm):
    """Kept on every rank: an error before anything moves. Afterwards the ring goes on."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge = make(comm, buffer)
    kept = [bridge(tile_of(comm, n)) for n in range(2)]
    raises(mb.StateError, "slot 0 of 2 is in use", bridge, tile_of(comm, 2))
    for n, y in enumerate(kept):
        same(y.detach(), DST.tile(comm.rank, whole_of(n)))
    del kept, y
    gc.collect()
    y = bridge(tile_of(comm, 3))  # the refused call was counted: slot 1
    assert y.data_ptr() == buffer._address + buffer.bytes
    same(y.detach(), DST.tile(comm.rank, whole_of(3)))


@case(4, on="cpu")
def slot_that_one_rank_keeps(comm):
    """All ranks get an error, and all count the call."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge = make(comm, buffer)
    kept = bridge(tile_of(comm, 0))
    if comm.rank != 2:
        kept = None
    bridge(tile_of(comm, 1))
    raises(mb.StateError if comm.rank == 2 else mb.MimoError, "slot 0" if comm.rank == 2 else "rank 2",
           bridge, tile_of(comm, 2))
    if comm.rank == 2:
        same(kept.detach(), DST.tile(comm.rank, whole_of(0)))
    same(bridge(tile_of(comm, 3)).detach(), DST.tile(comm.rank, whole_of(3)))
    assert set(gather(buffer._calls)) == {4}
    del kept


@case(4)
def saved_activations(comm):
    """autograd saves y for the LLM's backward: its slot is in use until then."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge = make(comm, buffer)
    losses = [(bridge(tile_of(comm, n)) ** 2).sum() for n in range(2)]
    raises(mb.StateError, "in use", bridge, tile_of(comm, 2))
    for loss in losses:
        loss.backward()
    bridge(tile_of(comm, 3))


@case(4)
def sizes_of_slots(comm):
    """Ranks that ask for different sizes get the largest; what does not fit is an error."""
    buffer = mb.Buffer(64 * (comm.rank + 1), 3, comm=comm)
    assert set(gather(buffer.bytes)) == {buffer.bytes} and buffer.bytes >= 256
    large = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="bsh", buffer=buffer)
    big = torch.zeros(1, buffer.bytes, 1)
    raises(mb.ShapeError, f"{4 * buffer.bytes} bytes", large, big)
    empty = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="bsh", buffer=buffer, batch=2)
    x = torch.ones(1 if comm.rank < 2 else 0, 3, 2)
    same(empty(x).detach(), x)
    raises(mb.ShapeError, "slots", mb.Buffer, 8, 0, comm=comm)
    raises(mb.MismatchError, "slots=2 on rank 0, and slots=3 on rank 3", mb.Buffer, 8,
           3 if comm.rank == 3 else 2, comm=comm)


@case(4)
def places_in_slots(comm):
    """A ragged call copies its tile into a slot, and peers write between."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=2,tp=2"), comm=comm, layout="th", dst_layout="bsh",
                       buffer=buffer)
    batch = mb.Batch(batch=4, spans=[mb.Span(comm.rank, 0, 1, 2)])
    only = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=2,tp=2"), comm=comm, layout="th", dst_layout="bsh",
                     buffer=buffer, executor="zero_copy")
    only.update(batch)
    tile, x = torch.zeros(2, 4, 1), torch.ones(2, 1)
    raises(mb.UnsupportedError, "zero_copy", only.place, tile, x)
    with torch.no_grad():
        assert only.place(tile, x).sum() == 4
    bridge.update(batch)
    for n in range(4):
        tile = torch.full((2, 4, 1), -1.0 - n).requires_grad_()
        x = torch.tensor([[1.0], [2.0]]) + 10 * comm.rank
        y = bridge.place(tile, x)
        first = 20 * (comm.rank % 2)
        assert y[:, :, 0].tolist() == [[-1.0 - n, 1 + first + b, 2 + first + b, -1.0 - n]
                                       for b in (0, 10)], y
        y.sum().backward()
        assert tile.grad.sum() == 4
        del y


@case(4)
def chunks_in_slots(comm):
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=2,tp=2"), comm=comm, layout="bsh", buffer=buffer)
    bridge.prepare(global_rows(1, 4, 2, F64), chunks=2)
    for n in range(4):
        whole = global_rows(4, 4, 2, F64, n)
        parts = [part.clone() for part in bridge.chunks(whole[comm.rank:comm.rank + 1], 2)]
        same(torch.cat(parts), whole[2 * (comm.rank % 2):][:2])


@case(4)
def refused_calls_leave_slots(comm):
    """The exception keeps frames, and the slot is free all the same."""
    buffer = mb.Buffer(4096, 1, comm=comm)
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="bsh", buffer=buffer)
    x = global_rows(1, 4, 2, F64)
    wrong = x[:, :, :1] if comm.rank == 2 else x
    kept = [raises(mb.MimoError, "", bridge, wrong),
            raises(mb.MimoError, "", lambda: list(bridge.chunks(wrong, 2)))]
    same(bridge(x).detach(), x)
    assert all(error.__traceback__ is not None for error in kept)


@case(4)
def closing_buffers(comm):
    """Not while a tensor lies in one, on any rank; the sentence is everyone's."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    bridge = make(comm, buffer)
    y = bridge(tile_of(comm, 0))
    if comm.rank != 1:
        del y
    raises(mb.StateError, "in use", buffer.close)
    raises(mb.StateError, "in use", comm.close)
    assert not comm.closed
    y = None
    raises(mb.ArgumentError, "another communicator", with_other_communicator, buffer)
    buffer.close()
    buffer.close()
    raises(mb.StateError, "closed", bridge, tile_of(comm, 1))
    comm.close()


def with_other_communicator(buffer):
    with mb.Communicator(timeout=buffer.comm.timeout) as other:
        try:
            make(other, buffer)
        except mb.ArgumentError as error:
            caught = error
    raise caught


@case(4, on="cpu")
def tensors_that_outlive_an_abort(comm):
    """Memory in use is not freed with an aborted communicator."""
    buffer = mb.Buffer(4096, 2, comm=comm)
    y = make(comm, buffer)(tile_of(comm, 0)).detach()
    gather(None)  # by MPI: an abort ends what others wait in
    comm.abort("enough")
    comm.close()
    same(y, DST.tile(comm.rank, whole_of(0)))
    raises(mb.StateError, "closed", buffer.tensor, 0, F64, [1])


@case(1)
def warnings_of_the_library(comm):
    """They are warnings of Python's logging, which shows them where a program set nothing up."""
    seen, logger = [], logging.getLogger("mimo_bridge")
    handler, level = logging.Handler(), logger.level
    handler.emit = seen.append
    logger.addHandler(handler)
    logger.setLevel(logging.NOTSET)
    try:
        _ending._c_log(None, 1, b"bridge 1: zero-copy was chosen")
        _ending._c_log(None, 2, b"p2p was chosen")
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
    assert [(record.levelno, record.getMessage()) for record in seen] == [
        (logging.WARNING, "bridge 1: zero-copy was chosen")], seen

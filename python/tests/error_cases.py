"""What a user does wrong gets its exception on every rank, and nothing hangs."""
import copy
import datetime
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
import warnings
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

import mimo_bridge as mb
from mimo_bridge import _c, communicator
from megatron_import import process_groups
from rank_runner import case, gather, raises, same
from tile_model import global_rows

F32 = torch.float32


def make(comm, **more):
    return mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, layout="bsh",
                     partition=mb.Partition(), **more)


def tile(comm, dtype=F32):
    return global_rows(4, 8, 2, dtype)[comm.rank:comm.rank + 1]


class Subclass(torch.Tensor):
    """What torch hands to the dispatcher, where a tensor without memory chooses the fake kernel."""


class Looking(TorchDispatchMode):
    """A mode that only looks, as a profiler's."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def looked_on(call):
    with Looking():
        return call()


def same_reason(comm, wrong, kind, words, call, *arguments):
    """raises(), where one rank is wrong: what it says, the others say of that rank."""
    try:
        error = raises(kind, words, call, *arguments)
    except AssertionError:
        gather(None)  # then all fail here
        raise
    reasons = gather(str(error))
    assert None not in reasons and reasons[wrong] in str(error), reasons
    assert comm.rank == wrong or f"rank {wrong}" in str(error), str(error)
    return error


@case(4)
def wrong_on_one_rank(comm):
    """A wrong tensor on rank 2: an error on all four, and the bridge works afterwards."""
    bridge, x = make(comm), tile(comm)
    warnings.simplefilter("ignore")  # nested tensors are a prototype
    wrongs = {
        "shape": (x[:, :6], mb.ShapeError),
        "hidden": (x[:, :, :1], mb.MimoError),
        "dimensions": (x[0], mb.ShapeError),
        "dtype": (x.to(torch.complex64), mb.ArgumentError),
        "another dtype": (x.double(), mb.MimoError),
        "device": (x.to("meta"), mb.ArgumentError),
        "device of a subclass": (x.to("meta").as_subclass(Subclass), mb.ArgumentError),
        "no tensor": (x.numpy(), mb.ArgumentError),
        "nothing": (None, mb.ArgumentError),
        "layout": (x.to_sparse(), mb.ArgumentError),
        "nested": (torch.nested.nested_tensor([x[0], x[0]]), mb.ArgumentError),
    }
    for name, (wrong, kind) in wrongs.items():
        kinds = kind if comm.rank == 2 else mb.MimoError
        error = same_reason(comm, 2, kinds, "", bridge, wrong if comm.rank == 2 else x)
        assert isinstance(error, (ValueError, RuntimeError)), (name, error)
        same(bridge(x).detach(), bridge(x).detach(), name)
    sentences = gather(str(raises(mb.MimoError, "", bridge, x[:, :6] if comm.rank == 2 else x)))
    assert len(set(sentences)) == 1, sentences


@case(4)
def wrong_arguments_on_one_rank(comm):
    """What fails before the library is called, on rank 2: the others learn of it."""
    bridge, x = make(comm), tile(comm)
    flat = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, layout="th", dst_layout="bsh")
    flat.update(mb.Batch(batch=4, spans=[mb.Span(comm.rank, 0, 0, 1)]))
    text, row = torch.zeros(2, 8, 2), torch.ones(1, 2)
    calls = {
        "batch is a whole number, not '4'": lambda bad: bridge(x, batch="4" if bad else None),
        "batch is -1, and at least 0": lambda bad: bridge(x, batch=-1 if bad else None),
        "at most": lambda bad: bridge(x, batch=2**64 + 4 if bad else None),
        "seq=6": lambda bad: bridge(x, seq=6 if bad else 8),
        "seq is a whole number": lambda bad: flat(row, seq="8" if bad else 8),
        "rows=4": lambda bad: bridge(x, rows=4 if bad else None),
        "batch is -2": lambda bad: looked_on(lambda: bridge(x, batch=-2 if bad else None)),
        "the tile is a NoneType": lambda bad: flat.place(None if bad else text, row),
        "place: x is a list": lambda bad: flat.place(text, [1] if bad else row),
        "x is on meta": lambda bad: flat.place(
            text.as_subclass(Subclass) if bad else text, row.to("meta") if bad else row),
        "the tile is on meta": lambda bad: flat.place(
            text.to("meta").as_subclass(Subclass) if bad else text, row),
        "chunks: n is a whole number": lambda bad: list(bridge.chunks(x, "2" if bad else 2)),
        "x is a str": lambda bad: list(bridge.chunks("x" if bad else x, 2)),
        "prepare: chunks is 0": lambda bad: bridge.prepare(x, chunks=0 if bad else 1),
        "x is a int": lambda bad: bridge.prepare(1 if bad else x),
        "seed": lambda bad: bridge.self_test("one" if bad else 1),
        "no Batch": lambda bad: bridge.update("batch" if bad else mb.Batch(batch=4)),
    }
    for words, call in calls.items():
        error = same_reason(comm, 2, mb.MimoError, words, call, comm.rank == 2)
        assert not isinstance(error, mb.DeadlineError) and comm.failure is None, (words, error)
    same(bridge(x).detach(), make(comm)(x).detach())


@case(2)
def sizes_that_nobody_said(comm):
    """Errors that a size of the call would have spared say which."""
    def bridge(dst, layout, dst_layout):
        return mb.Bridge(mb.Grid("dp=2"), mb.Grid(dst), comm=comm, layout=layout, dst_layout=dst_layout)

    def refused(kind, words, call, *args, **more):
        error = raises(kind, words, call, *args, **more)
        assert (f"by {words}" in str(error)) == bool(words), error

    flat, samples, rows = bridge("cp=2", "th", "sbh"), torch.ones(4, 2 - comm.rank, 1), torch.ones(8, 1)
    refused(mb.ArgumentError, "seq=", flat, rows)
    refused(mb.ArgumentError, "seq=", lambda: list(flat.chunks(rows, 2)))
    refused(mb.ShapeError, "batch=", bridge("cp=2", "sbh", "sbh"), samples)
    refused(mb.ShapeError, "rows=", bridge("cp=2", "th", "th"), rows[comm.rank:])
    assert list(bridge("cp=2", "sbh", "sbh")(samples, batch=3).shape) == [4, 3, 1]
    told = raises(mb.ShapeError, "", bridge("cp=2", "sbh", "sbh"), samples, batch=4 - comm.rank)
    assert "batch=" not in str(told), told


@case(2)
def distributed_tensors(comm):
    """A DTensor is refused in words that say what to give, also where one rank alone has it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, layout="bsh")
    x = torch.ones(1, 4, 1)
    with process_groups(comm):
        whole = DTensor.from_local(x, init_device_mesh("cpu", (2,)), [Shard(0)])
        raises(mb.ArgumentError, ".to_local()", bridge, whole)
        same_reason(comm, 1, mb.ArgumentError, ".to_local()", bridge, whole if comm.rank == 1 else x)
        same(bridge(whole.to_local()).detach(), torch.ones(2, 4, 1))


@case(2)
def numbers_that_do_not_fit(comm):
    """C would take their lowest bits, or stop at a NUL: each is refused, on every rank."""
    grid, overflow = mb.Grid("dp=2"), mb.SizeOverflowError
    bridge = mb.Bridge(grid, grid, comm=comm, layout="th")
    wrongs = [
        (overflow, "ctas", lambda: mb.Bridge(grid, grid, comm=comm, ctas=2**32)),
        (overflow, "batch", lambda: mb.Bridge(grid, grid, comm=comm, batch=2**64 + 2)),
        (mb.ArgumentError, "at least 0", lambda: mb.Bridge(grid, grid, comm=comm, batch=-1)),
        (mb.ArgumentError, "'yes'", lambda: mb.Bridge(grid, grid, comm=comm, all_stages="yes")),
        (mb.ArgumentError, "'dp=2' is no Grid", lambda: mb.Bridge("dp=2", grid, comm=comm)),
        (mb.ArgumentError, "'dp=2' is no Grid", lambda: mb.explain("dp=2", grid, [], comm=comm)),
        (mb.ArgumentError, "'dp=2' is no Grid", lambda: mb.Partition().at("dp=2", comm.rank, comm)),
        (mb.MismatchError, "sp=False", lambda: mb.Partition(sp=comm.rank == 1).at(
            mb.Grid("tp=2"), comm.rank, comm)),
        (mb.ArgumentError, "no Partition", lambda: mb.Bridge(grid, grid, comm=comm, partition=True)),
        (mb.ArgumentError, "no Buffer", lambda: mb.Bridge(grid, grid, comm=comm, buffer=4096)),
        (mb.ArgumentError, "no text", lambda: mb.Bridge(grid, grid, comm=comm, name="a\0b")),
        (overflow, "2147483647", lambda: bridge.update(mb.Batch(batch=2**64 + 2))),
        (mb.ArgumentError, "-1", lambda: bridge.update(mb.Batch(batch=-1))),
        (mb.ArgumentError, "-1", lambda: bridge.update(mb.Batch(rows=(-1, -1)))),
        (overflow, "64 bits", lambda: bridge.update(mb.Batch(batch=2, spans=[(2**64, 0, 0, 1)]))),
        (overflow, "micro-batch", lambda: bridge.select(2**32)),
        (overflow, "batch", lambda: bridge.samples("src", 2**64 + 4)),
        (overflow, "batch", lambda: bridge.staging(2**64 + 4, 8, 2)),
        (mb.ArgumentError, "complex64", lambda: bridge.staging(4, 8, 2, torch.complex64)),
        (overflow, "bytes", lambda: mb.Buffer(2**64 + 8, comm=comm)),
        (overflow, "slots", lambda: mb.Buffer(2**62, 2, comm=comm)),
        (mb.ArgumentError, "8.5", lambda: mb.Buffer(8.5 if comm.rank else 8, comm=comm)),
        (mb.ArgumentError, "'2'", lambda: mb.Buffer(8, "2" if comm.rank else 2, comm=comm)),
        (mb.ArgumentError, "timedelta", lambda: setattr(comm, "timeout", 5)),
        (mb.ArgumentError, "encoder", lambda: mb.explain(grid, grid, [mb.Bucket("w", "encoder")],
                                                         comm=comm)),
        (overflow, "offset", lambda: mb.Grid("dp=2", 2**64)),
        (mb.ArgumentError, "no text", lambda: mb.Grid("dp=2\0,tp=2")),
        (overflow, "rank", lambda: grid.coords(2**64)),
        (overflow, "rank", lambda: 2**64 in grid),
        (overflow, "coordinate", lambda: grid.rank(dp=2**64)),
        (overflow, "cu", lambda: mb.Partition(cu=[0, 2**32 + 8])),
        (overflow, "length", lambda: mb.padded_lengths([2**32 + 3], 4)),
        (overflow, "multiple", lambda: mb.padded_lengths([3], 2**64 + 4)),
        (overflow, "seq", lambda: mb.Partition().at(grid, 0).rows(2**64 + 8)),
        (overflow, "special", lambda: mb.Alignment([2**64 + 7])),
        (overflow, "modality", lambda: mb.Alignment([7]).rows(2**32)),
    ]
    for kind, words, call in wrongs:
        raises(kind, words, call)
    comm.barrier()


@case(4)
def wrong_gradient_on_one_rank(comm):
    """A hook that breaks the gradient's shape is torch's error; a dtype is ours, on every rank."""
    bridge, x = make(comm), tile(comm).clone().requires_grad_()
    y = bridge(x)
    movement = bridge._movement
    good = torch.ones_like(y)
    raises(mb.MimoError, "", movement.move, True, good[:, :1] if comm.rank == 1 else good,
           tuple(x.shape), movement.call)
    y.sum().backward()
    same(x.grad, torch.ones_like(x))


@case(4)
def exception_in_backward(comm):
    """An exception of one rank in the middle of backward: the others get it by the abort."""
    bridge, x = make(comm), tile(comm).clone().requires_grad_()
    y = bridge(x)
    if comm.rank == 3:
        y.register_hook(lambda grad: 1 / 0)
        raises(ZeroDivisionError, "", y.sum().backward)
        comm.abort("rank 3 divided by 0")
        raises(mb.AbortedError, "divided", bridge, x)
    else:
        error = raises(mb.AbortedError, "", y.sum().backward)
        assert isinstance(error, RuntimeError)
        raises(mb.AbortedError, "", bridge, x)
    assert isinstance(comm.failure, mb.AbortedError)


@case(4)
def called_on_some_ranks_only(comm):
    """The deadline names the rank that is missing."""
    bridge, x = make(comm), tile(comm)
    bridge(x)
    comm.timeout = datetime.timedelta(milliseconds=300)
    if comm.rank == 1:
        gather(None)  # by MPI: returns when the others have given up
        raises(mb.DeadlineError, "", bridge, x)
    else:
        error = raises(mb.DeadlineError, "1", bridge, x)
        assert isinstance(error, TimeoutError)
        assert error.ranks == (1,) and "has not begun call" in error.verdict, (error.ranks, error.verdict)
        assert error.verdict in str(error), (error.verdict, str(error))
        gather(None)
    raises(mb.DeadlineError, "", comm.barrier)
    assert isinstance(comm.failure, mb.DeadlineError)
    bridge.close()  # waits for nobody
    comm.close()
    assert comm.closed


@case(2)
def steps_have_names(comm):
    """Ranks that agree in different calls learn of it; one that waits alone says in which."""
    bridges = [mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, layout="bsh") for _ in range(2)]
    error = raises(mb.MismatchError, "", bridges[0].close if comm.rank else bridges[0].update)
    assert "rank 1 called close of a bridge, rank 0 called bridge" in str(error), error
    x = torch.ones(1, 4, 1)
    comm.timeout = datetime.timedelta(milliseconds=300)
    error = raises(mb.DeadlineError, "", *([bridges[1].update] if comm.rank else [bridges[1], x]))
    assert "update" in str(error), error


@case(4)
def different_calls(comm):
    bridge, x = make(comm), tile(comm).clone().requires_grad_()
    y = bridge(x)
    if comm.rank == 0:
        raises(mb.MismatchError, "", bridge, x)
    else:
        raises(mb.MismatchError, "", y.sum().backward)
    same(bridge(x).detach(), y.detach())


@case(2)
def another_order_of_calls(comm):
    """Two bridges, the other way round on rank 1: both wait, each in another call, until the deadline."""
    grids = mb.Grid("dp=2"), mb.Grid("cp=2")
    bridges = [mb.Bridge(*grids, comm=comm, layout="bsh") for _ in range(2)]
    x = torch.ones(1, 4, 1)
    comm.timeout = datetime.timedelta(milliseconds=300)
    raises(mb.DeadlineError, "", bridges[comm.rank], x)
    raises(mb.DeadlineError, "", bridges[0], x)  # it is finished


@case(4)
def different_bridges(comm):
    raises(mb.MismatchError, "rank 1", make, comm, all_stages=comm.rank == 1)
    raises(mb.MismatchError, "", make, comm, name=f"rank {comm.rank}")
    buffer = mb.Buffer(256, comm=comm)
    for more in ({"differentiable": comm.rank != 2}, {"buffer": buffer if comm.rank == 2 else None}):
        error = raises(mb.MismatchError, "on rank 2", make, comm, **more)
        assert next(iter(more)) + "=" in str(error)
    error = raises(mb.ArgumentError, "hbs", lambda: mb.Bridge(
        mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="hbs" if comm.rank == 1 else "sbh"))
    assert comm.rank == 1 or "rank 1" in str(error)
    raises(mb.ArgumentError, "fastest", lambda: make(comm, executor="fastest"))
    raises(mb.GridError, "8", lambda: mb.Bridge(mb.Grid("dp=8"), mb.Grid("dp=4"), comm=comm))
    raises(mb.GridError, "tp", lambda: make(comm, executor="collective"))
    make(comm).self_test()


@case(4)
def wrong_updates(comm):
    """After an update that is refused, the last one is in force."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=2,tp=2"), comm=comm, layout="th")
    bridge.update(mb.Batch(rows=(2, 4)))
    x = torch.arange(2.0)[:, None] + 2 * comm.rank
    y = bridge(x)
    raises(mb.ShapeError, "8", bridge.update, mb.Batch(rows=(2, 5)))
    raises(mb.MimoError, "", bridge.update, *([mb.Batch(rows=(2, 4))] * (1 + (comm.rank == 2))))
    raises(Exception, "", bridge.update, mb.Batch(rows=(2, 4) if comm.rank else "no"))
    with mock.patch.object(_c.lib, "mimo_comm_agree_named", side_effect=AssertionError("a further exchange")):
        bridge.update(mb.Batch(rows=(2, 4)))
        raises(mb.ArgumentError, "-7", bridge.update, mb.Batch(rows=(2, 4) if comm.rank else (-7, 4)))
    raises(mb.ArgumentError, "", bridge.select, 1)
    same(bridge(x), y)
    shaped = make(comm)
    raises(mb.StateError, "spans", shaped.place, torch.zeros(2, 4, 2), torch.zeros(1, 1, 2))
    raises(mb.UnsupportedError, "", make(comm).update, mb.Batch(rows=(2, 4)))


@case(4)
def use_after_close(comm):
    bridge, x = make(comm), tile(comm).clone().requires_grad_()
    y = bridge(x)
    bridge.close()
    bridge.close()
    for use in (lambda: bridge(x), bridge.self_test, lambda: bridge.samples("src", 4),
                lambda: bridge.update(), lambda: list(bridge.chunks(x, 1)), lambda: bridge.executor()):
        raises(mb.StateError, "closed", use)
    raises(mb.StateError, "closed", y.sum().backward)
    other = make(comm)
    comm.close()
    comm.close()
    assert comm.closed and "closed" in repr(comm)
    for use in (lambda: other(x), comm.barrier, comm.abort, lambda: comm.timeout, lambda: make(comm),
                lambda: mb.Buffer(8, comm=comm)):
        raises(mb.StateError, "closed", use)
    other.close()


@case(4)
def forgotten(comm):
    """forget() waits for nobody; what was made from it is closed with it."""
    bridge, x = make(comm), tile(comm)
    bridge(x)
    comm.barrier()
    comm.forget()
    comm.forget()
    raises(mb.StateError, "closed", bridge, x)
    with mb.Communicator() as again:
        make(again)(x)
    assert again.closed


@case(4)
def left_with_an_exception(comm):
    """A `with` block that an exception leaves on rank 0 ends the others' calls at once."""
    def work():
        with mb.Communicator(timeout=datetime.timedelta(seconds=20)) as inner:
            bridge, x = make(inner), tile(inner)
            bridge(x)
            if inner.rank == 0:
                raise LookupError("a file is missing")
            for _ in range(2):
                bridge(x)

    if comm.rank == 0:
        raises(LookupError, "missing", work)
    else:
        raises(mb.AbortedError, "missing", work)


@case(2)
def left_with_exit_0(comm):
    """sys.exit() in a `with` block is a good end: it waits for the others, and aborts nothing."""
    def work():
        with mb.Communicator(timeout=datetime.timedelta(seconds=60)) as inner:
            if inner.rank == 0:
                raise SystemExit(0)
            time.sleep(0.1)
            assert inner.failure is None, inner.failure

    if comm.rank == 0:
        raises(SystemExit, "0", work)
    else:
        work()


@case(2)
def abort_by_another_thread(comm):
    """A watchdog ends a call that waits."""
    if comm.rank == 0:
        thread = threading.Timer(0.2, comm.abort, ["the watchdog barks"])
        thread.start()
        raises(mb.AbortedError, "barks", comm.barrier)
        thread.join()
        gather(None)
    else:
        gather(None)
        raises(mb.AbortedError, "", comm.barrier)


@case(2)
def threads_take_turns(comm):
    """Two threads with a bridge each on one communicator. While one is inside the library's call, the other
    begins its own: it waits at the lock."""
    bridges = [mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, partition=mb.Partition(),
                         layout="bsh") for _ in range(2)]
    whole, rounds = global_rows(2, 8, 2, F32), 10
    x, errors, inside = whole[comm.rank:comm.rank + 1], [], []
    # All ranks keep one order of calls: a thread begins when the other one is inside.
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    met, calls = threading.Event(), [0, 0]

    def watch(me):
        forward = bridges[me]._movement._functions[0]

        def watched(*arguments):
            if inside:
                met.set()
                raise AssertionError("two threads at once")
            inside.append(me)
            calls[me] += 1
            turns[1 - me].release()
            met.wait(0.01)  # the other one gets here, where nothing stops it
            try:
                return forward(*arguments)
            finally:
                inside.remove(me)

        bridges[me]._movement._functions = watched, None

    def run(me):
        try:
            for _ in range(rounds):
                turns[me].acquire()
                assert not errors
                same(bridges[me](x).detach(), whole[:, [0, 1, 6, 7] if comm.rank == 0 else [2, 3, 4, 5]])
        except BaseException as error:
            errors.append(error)
            turns[1 - me].release()

    threads = [threading.Thread(target=run, args=[me]) for me in range(2)]
    for me, thread in enumerate(threads):
        watch(me)
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert calls == [rounds, rounds], calls


@case(2)
def one_thread_at_a_time(comm):
    """While a thread has the communicator, another one waits."""
    entered, seen = threading.Event(), []

    def other():
        entered.set()
        with comm._turn():
            seen.append("other")

    with comm._turn():
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
        time.sleep(0.05)
        seen.append("first")
    thread.join()
    assert seen == ["first", "other"], seen


@case(2)
def forked_children(comm):
    """A child's use raises, its end does nothing, and the parent goes on."""
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"), comm=comm, layout="bsh")
    x = torch.ones(1, 2, 2)
    bridge(x)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        words = []
        uses = [lambda: bridge(x), comm.barrier, comm.abort, lambda: comm.timeout, comm.forget,
                mb.Communicator, lambda: mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"))]
        for use in uses:
            try:
                use()
                words.append("used")
            except mb.StateError as error:
                words.append("forked" if "forked" in str(error) else str(error))
        comm.close()
        mb.Grid("dp=2").coords(1)
        os.write(writing, pickle.dumps(words))
        from mimo_bridge import _ending
        _ending._end()
        os._exit(7)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        words = pickle.load(pipe)
    _, status = os.waitpid(child, 0)
    assert words == ["forked"] * 7 and os.waitstatus_to_exitcode(status) == 7, (words, status)
    same(bridge(x).detach(), x)


@case(2)
def forked_process_groups(comm):
    """A child has its parent's process groups as well, over which GPUs begin. Its own are its own."""
    with tempfile.TemporaryDirectory() as folder:
        def begin(name, rank, size):
            dist.init_process_group("gloo", store=dist.FileStore(os.path.join(folder, name), size),
                                    rank=rank, world_size=size)

        begin("one", 0, 1)
        child = os.fork()
        if child == 0:
            try:
                raises(mb.StateError, "process groups of its parent", mb.Communicator, dist.group.WORLD)
                dist.destroy_process_group()
                begin("other", 0, 1)
                communicator._refuse_forked()
                os._exit(7)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        communicator._refuse_forked()
        dist.destroy_process_group()
        assert os.waitstatus_to_exitcode(status) == 7, status


@case(2)
def copies(comm):
    """What belongs to a process, or has an object of C, says so when it is copied or pickled."""
    bridge, buffer = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"), comm=comm), mb.Buffer(8, comm=comm)
    part = mb.Partition().at(mb.Grid("cp=2"), comm.rank)
    for thing in (bridge, comm, buffer, part, mb.Alignment([7])):
        for take in (copy.copy, copy.deepcopy, pickle.dumps):
            raises(TypeError, "can't be copied", take, thing)
    raises(TypeError, "can't be copied", copy.deepcopy, torch.nn.Sequential(bridge))


@case(2)
def wrong_communicators(comm):
    raises(mb.UnsupportedError, "meta", mb.Communicator, device="meta")
    raises(mb.ArgumentError, "0:00:00", mb.Communicator, timeout=datetime.timedelta(0))
    raises(mb.ArgumentError, "", mb.Communicator, timeout=datetime.timedelta(days=40))
    assert comm.timeout == datetime.timedelta(seconds=180)
    if not torch.cuda.is_available():
        raises((mb.UnsupportedError, mb.StateError), "", mb.Communicator, device="cuda:0")


@case(2)
def wrong_communicators_on_one_rank(comm):
    """A mistake of rank 1 alone is an error of both at once, and the next communicator is made."""
    minute = datetime.timedelta(minutes=1)
    wrongs = [({"device": "meta"}, mb.UnsupportedError, "meta"), ({"device": "no such"}, RuntimeError, ""),
              ({"timeout": datetime.timedelta(0)}, mb.ArgumentError, "0:00:00"),
              ({"timeout": 5}, mb.ArgumentError, "timedelta"), ({"device": 1.5}, TypeError, ""),
              ({"timeout": datetime.timedelta(days=40)}, mb.ArgumentError, ""),
              ({"group": 5}, Exception, "")]
    for more, kind, words in wrongs:
        given = more if comm.rank == 1 else {}
        error = raises(kind if comm.rank == 1 else mb.MimoError, words if comm.rank == 1 else "rank 1",
                       lambda: mb.Communicator(**{"timeout": minute, **given}))
        assert not isinstance(error, mb.DeadlineError), (more, error)
    with mb.Communicator(timeout=minute) as other:
        other.barrier()


@case(2)
def default_communicators(comm):
    """Bridges without a communicator share one; after its end there is another."""
    one = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"))
    assert one.comm is mb.default_communicator() and one.comm.device == torch.device("cpu")
    assert one.comm.timeout == datetime.timedelta(minutes=30)
    one.comm.close()
    assert mb.Buffer(8).comm is not one.comm
    mb.default_communicator().close()


@case(2)
def interrupted_by_a_signal(comm):
    """A signal's handler runs while the call waits, which is not cut off. It can't make calls there."""
    seen = []

    def handler(*_):
        seen.append(str(raises(mb.StateError, "waits in a call", comm.barrier)))

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        if comm.rank == 0:
            time.sleep(0.5)
        else:
            threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        comm.barrier()
        assert len(seen) == comm.rank, seen
        comm.barrier()
    finally:
        signal.signal(signal.SIGUSR1, old)

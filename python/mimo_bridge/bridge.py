"""The bridge: a module that carries encoder activations into the LLM's layout, and gradients back."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import torch

from . import _c, _calls, _ops, _views
from ._movement import Batch, Items, Movement, Shapes, now, update_all
from ._placed import Placed
from .buffer import Buffer
from .communicator import Communicator, communicator_of
from .errors import ArgumentError, ShapeError, UnsupportedError
from .grid import Grid, check_grids
from .partition import Partition

__all__ = ["Batch", "Bridge", "Items"]

Tensors = list[torch.Tensor] | tuple[torch.Tensor, ...]  # that move in one call


class Bridge(torch.nn.Module):
    """y = bridge(x): this rank's encoder output becomes this rank's LLM tile. Differentiable.

    Collective, as is every call of it: all ranks of the communicator make the same calls in the same
    order, forward and backward, also ranks without rows. They pass an x that has size 0 along its
    samples, and take part in backward.

    src, dst    the grids of the encoder and of the LLM; rank r of `comm` is rank r of both
    comm        None: the default communicator
    partition   the LLM's tile is this rank's shard of each sequence. None: it holds full sequences,
                and backward adds the gradients of the ranks along the LLM's cp
    src_partition  the encoder's tile is a shard as well
    layout      letters of x, slowest first: "sbh" [S, b, H], "bsh", or flat and sample after sample
                "bh", "th" [rows, H]
    dst_layout  letters of y; None: those of `layout`
    executor    "auto", "routed", "p2p", "zero_copy", "staged" or "collective": <mimo/bridge.h>
    backward_executor  None: as `executor`
    all_stages  every pipeline stage of the LLM gets the tile, not the first alone
    batch       B of all calls: the samples of all ranks together, split evenly along dp. With it
                calls on a device only enqueue. Without it they make the ranks agree first
    buffer      where results of forward lie: peers then write straight into them. Rows to ranks out of reach
                (Buffer.reach) are sent; under executor "zero_copy" a warning of the logger "mimo_bridge"
                says so on rank 0
    grad_buffer where gradients of x lie
    destinations_idle  of <mimo/bridge.h>: a promise about buffers
    ctas        thread blocks of a call into a buffer, which are reserved (docs/gpu.md, "Kernels that wait");
                0: as MIMO_CTAS says
    differentiable  False: a frozen encoder, on every rank. Backward then ends at y
    name        of the bridge in sentences; None: its number

    Where gradients are enabled and x has a floating dtype, y needs gradients on every rank, also
    where x does not: a rank without backward would strand the others. The result must be used on
    every rank, because backward of an unused one runs nowhere.

    It has no state: nothing is in state_dict, and it can't be copied or pickled. What it holds is
    released by close(), or with its communicator.

    Errors, the same on every rank: GridError, ArgumentError, UnsupportedError, MismatchError,
    ShapeError.
    """

    def __init__(self, src: Grid, dst: Grid, *, comm: Communicator | None = None,
                 partition: Partition | None = None, src_partition: Partition | None = None,
                 layout: str = "sbh", dst_layout: str | None = None, executor: str = "auto",
                 backward_executor: str | None = None, all_stages: bool = False,
                 batch: int | None = None, buffer: Buffer | None = None,
                 grad_buffer: Buffer | None = None, destinations_idle: bool = False, ctas: int = 0,
                 differentiable: bool = True, name: str | None = None) -> None:
        super().__init__()
        self.src, self.dst = src, dst
        self.comm = communicator_of("Bridge", comm)
        self.partition, self.src_partition = partition, src_partition
        self.layout, self.dst_layout = layout, dst_layout or layout
        self.differentiable = differentiable
        self._batch = batch
        self._all_stages = all_stages
        self._zero_copy = executor == "zero_copy"

        def describe() -> _c.mimo_bridge_desc:
            check_grids("Bridge", src, dst)
            for rule in (partition, src_partition):
                if rule is not None and not isinstance(rule, Partition):
                    raise ArgumentError(f"Bridge: {rule!r} is no Partition")
            for letters in (self.layout, self.dst_layout):
                _views.check_layout(letters)
            for one in (buffer, grad_buffer):
                if one is not None and not isinstance(one, Buffer):
                    raise ArgumentError(f"Bridge: {one!r} is no Buffer")
                if one is not None and one.comm is not self.comm:
                    raise ArgumentError("Bridge: the buffer was made from another communicator")
            desc = _c.sized(_c.mimo_bridge_desc, src=src._handle, dst=dst._handle,
                            executor=_executor(executor), all_stages=all_stages,
                            destinations_idle=destinations_idle, ctas=ctas)
            if partition is not None:
                desc.partition = ctypes.pointer(partition._rule())
            if src_partition is not None:
                desc.src_partition = ctypes.pointer(src_partition._rule())
            if backward_executor is not None:
                desc.backward_executor = _executor(backward_executor)
            if batch is not None:
                desc.batch = _c.whole("Bridge: batch", batch, 0)
            if name is not None:
                desc.name = _c.text("Bridge: name", name)
            return desc

        desc = self.comm._together("Bridge", describe)
        self.comm._alike("Bridge", f"{layout} to {self.dst_layout}, differentiable={bool(differentiable)}, "
                                   f"buffer={buffer is not None}, grad_buffer={grad_buffer is not None}")
        handle = ctypes.c_void_p()
        with self.comm._turn() as parent:
            _c.lib.mimo_bridge_create(ctypes.byref(handle), parent, ctypes.byref(desc))
            self._movement = Movement(self.comm, handle, (self.layout, self.dst_layout), (buffer, grad_buffer),
                                      Placed(self.dst_layout, partition, dst, self.comm.rank))
        self._places = _Places(self)
        # the anchor and the result's shape of the last calls, by their arguments
        self._known: dict[tuple[Any, ...], tuple[torch.Tensor, tuple[int, ...]]] = {}
        self._anchor = torch.empty(0, device=self.comm.device, requires_grad=True)
        self._no_anchor = torch.empty(0, device=self.comm.device)

    # Calls.

    @overload
    def forward(self, x: torch.Tensor, *, seq: int | None = None, rows: int | None = None,
                batch: int | None = None) -> torch.Tensor: ...

    @overload
    def forward(self, x: Tensors, *, seq: int | None = None, rows: int | None = None,
                batch: int | None = None) -> list[torch.Tensor]: ...

    def forward(self, x: torch.Tensor | Tensors, *, seq: int | None = None, rows: int | None = None,
                batch: int | None = None) -> torch.Tensor | list[torch.Tensor]:
        """Move x to the LLM's layout. Collective; blocking on the host, enqueued on the current
        stream of the device.

        x       this rank's tile in the letters of `layout`, the same on all src tp ranks. Any strides:
                it is made contiguous. f16, bf16, f32, f64; without gradient also i32, i64 and bytes.
                Or a list of tiles, which move in one call: tiles of the same samples and positions
                (executor "collective": of any), each with its own H and dtype, these the same on all
                ranks. A list of as many results then. Backward is one call as well. It moves the
                gradients of all tiles of a floating dtype: 0 for results that are not used
        seq     S of full sequences, where no tile with an "s" says it: x is flat and y is not
        rows    rows of y on this rank, where both are flat and neither an update nor an even split
                says it
        batch   B, where neither the bridge nor an update says it and it is not x's samples * src dp
        returns this rank's tile in the letters of `dst_layout`, contiguous, with x's dtype. Its shape
                is shape(x.shape, ...). After a ragged update it is 0 where no row goes

        Errors, on every rank (on a device a mistake of one rank alone is that rank's error alone,
        unless MIMO_CHECK=calls): ShapeError, ArgumentError (dtype, device, no dense tensor, a size that
        is none), MismatchError, StateError (closed; a slot in use), DeadlineError, AbortedError,
        CommError; UnsupportedError under torch.func.grad and jvp.
        """
        if torch.compiler.is_compiling():
            return self._forward(x, seq, rows, batch)
        movement = self._movement
        begun = movement.begun
        try:  # as movement.guarded() does, for calls that are to keep the host for little time
            return self._forward(x, seq, rows, batch)
        except Exception as error:
            movement.tell(error, begun, (x, seq, rows, batch))
            if isinstance(error, ShapeError):
                self._advise(error, seq, rows, batch)
            raise

    if TYPE_CHECKING:  # Module says Any
        __call__ = forward

    def _forward(self, x: Any, seq: int | None, rows: int | None,
                 batch: int | None) -> torch.Tensor | list[torch.Tensor]:
        movement = self._movement
        if _calls.looked_on(x):
            if isinstance(x, (list, tuple)):
                return self._forward_all(x, seq, rows, batch)
            self._check_arguments(x, seq, rows, batch)
            if not torch.compiler.is_compiling():
                # The op would take the fake kernel for a tensor without memory, and tell nobody.
                _views.check_device("x", x, self.comm.device)
            _ops.refuse_transforms("a bridge", x)
            call = now(self._places.number)[0]
            shape = self._shape_or_nothing(x, seq, rows, batch)
            return _calls.forward(movement, self._input(x), _ops.like(x, self._anchor_of(x)), shape, call)
        if x.is_nested:  # and has no shape
            _views.check_strided("x", x)
        call = movement.call
        key = x.shape, x.dtype, seq, rows, batch, call
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _views.KINDS:
                self._known.clear()
            self._check_arguments(x, seq, rows, batch)
            known = self._known[key] = self._anchor_of(x), self._shape_or_nothing(x, seq, rows, batch)
        return _calls.eager(movement, x if self.differentiable else x.detach(), *known, call)

    def _forward_all(self, xs: Tensors, seq: int | None, rows: int | None,
                     batch: int | None) -> list[torch.Tensor]:
        shapes = self._shapes_of(xs, seq, rows, batch)
        if not torch.compiler.is_compiling():
            for i, x in enumerate(xs):
                _views.check_device(f"x[{i}]", x, self.comm.device)
        _ops.refuse_transforms("a bridge", *xs)
        call = now(self._places.number)[0]
        anchor = self._anchor if self.differentiable and _any_floating(xs) else self._no_anchor
        return _calls.forward_all(self._movement, [self._input(x) for x in xs], _ops.like(xs[0], anchor),
                                  shapes, call)

    @overload
    def place(self, tile: torch.Tensor, x: torch.Tensor) -> torch.Tensor: ...

    @overload
    def place(self, tile: Tensors, x: Tensors) -> list[torch.Tensor]: ...

    def place(self, tile: torch.Tensor | Tensors,
              x: torch.Tensor | Tensors) -> torch.Tensor | list[torch.Tensor]:
        """A copy of `tile` with the rows of x at the positions that the last ragged update gave them.
        Differentiable in both. Collective. For a bridge whose `layout` is flat.

        tile    this rank's LLM tile (text, say) in the letters of `dst_layout`, with x's dtype
        x       [rows, H], the rows of this rank's samples, sample after sample
        returns a tensor like `tile`

        Or lists, equally many tiles and xs, which move in one call, and backward in one: a list of results.
        Let backward run once after an update before it is captured in a CUDA graph.

        Errors: as those of a call; StateError where no spans are in force; UnsupportedError with
        executor "zero_copy", except under no_grad.
        """
        if torch.compiler.is_compiling():
            return self._place(tile, x)
        return self._movement.guarded(self._place, tile, x)

    def _place(self, tile: Any, x: Any) -> torch.Tensor | list[torch.Tensor]:
        several = isinstance(tile, (list, tuple)) and isinstance(x, (list, tuple))
        tiles, xs = (_listed("place: the tile", tile), _listed("place: x", x)) if several else ([tile], [x])
        if len(tiles) != len(xs):
            raise ArgumentError(f"place: {len(tiles)} tiles, and {len(xs)} tensors for them")
        if not torch.compiler.is_compiling():
            for i, pair in enumerate(zip(tiles, xs)):
                for what, one in zip(("place: the tile", "place: x"), pair):
                    name = f"{what}[{i}]" if several else what
                    _views.check_strided(name, one)
                    _views.check_device(name, one, self.comm.device)
        floating = _any_floating(tiles)
        if self._zero_copy and torch.is_grad_enabled() and floating:
            raise UnsupportedError("place: backward also moves what lies in no buffer, and executor zero_copy "
                                   "refuses that: take \"auto\", which writes into buffers as well")
        _ops.refuse_transforms("a bridge", *tiles, *xs)
        call = now(self._places.number)[0]
        # whether or not the encoder is frozen: the gradient of the tile takes all ranks as well
        anchor = _ops.like(tiles[0], self._anchor if floating else self._no_anchor)
        inputs = [self._input(one) for one in xs]
        if several:
            return _calls.place_all(self._movement, tiles, inputs, anchor, call)
        return _calls.place(self._movement, tiles[0], inputs[0], anchor, call)

    @overload
    def chunks(self, x: torch.Tensor, n: int, stream: torch.cuda.Stream | None = None, *,
               seq: int | None = None, rows: int | None = None,
               batch: int | None = None) -> Iterator[torch.Tensor]: ...

    @overload
    def chunks(self, x: Tensors, n: int, stream: torch.cuda.Stream | None = None, *,
               seq: int | None = None, rows: int | None = None,
               batch: int | None = None) -> Iterator[list[torch.Tensor]]: ...

    def chunks(self, x: torch.Tensor | Tensors, n: int, stream: torch.cuda.Stream | None = None, *,
               seq: int | None = None, rows: int | None = None,
               batch: int | None = None) -> Iterator[torch.Tensor] | Iterator[list[torch.Tensor]]:
        """Move x in n chunks, and give the parts of y, each when its rows have arrived. No gradients.

        Part i of a tile of b samples is its samples [i * b // n, (i + 1) * b // n). Work on a part
        runs beside the arrival of later ones: on a device where `stream` is another one than the
        current one. Collective from the first part to the end; every rank takes all parts. Where the
        iteration is given up, its end still waits for the call. A list of tensors gives lists of parts.
        Errors: as those of a call, at the first part.
        """
        def sizes() -> tuple[Shapes, int, int, int]:
            shapes = self._shapes_of(x, seq, rows, batch)
            length, unit = shapes[0][max(self.dst_layout.find("b"), 0)], 1
            first = _listed("x", x)[0]
            if _views.is_flat(self.dst_layout) and first.dim() == len(self.layout):
                unit = self._places.rows_of_sample(first.shape, seq) or 1
            return shapes, length // unit, unit, _c.whole("chunks: n", n, 1, 2**31 - 1)

        shapes, samples, unit, n = self._movement.guarded(sizes)
        xs = [one.detach() for one in _listed("x", x)]
        # No no_grad() here: it would hold for the caller's loop as well.
        with contextlib.closing(self._movement.chunks(xs, shapes, lambda i: i * samples // n * unit, n,
                                                      stream)) as parts:
            for part in parts:
                yield part if isinstance(x, (list, tuple)) else part[0]
                del part  # the traceback of an exception keeps this frame, but not its slot in use

    def prepare(self, x: torch.Tensor | Tensors, *, seq: int | None = None, rows: int | None = None,
                batch: int | None = None, chunks: int = 1, backward: bool | None = None) -> None:
        """Make calls like bridge(x) ready, so that the first one costs what later ones cost and can be
        captured in a CUDA graph, on the current stream. x is not read. Collective, blocking.

        chunks    of chunks(); 1: a whole call
        backward  also their backward; None: where y will need gradients

        Errors: as those of a call.
        """
        def both() -> None:
            shapes, xs = self._shapes_of(x, seq, rows, batch), _listed("x", x)
            n = _c.whole("prepare: chunks", chunks, 1, 2**31 - 1)
            self._movement.prepare(False, [one.detach() for one in xs], shapes, n)
            moved = [(one, shape) for one, shape in zip(xs, shapes) if one.is_floating_point()]
            if moved and (self.differentiable if backward is None else backward):
                self._movement.prepare(True, [one.new_empty(shape) for one, shape in moved],
                                       [one.shape for one, _ in moved], 1)

        with torch.no_grad():
            self._movement.guarded(both, prepares=True)

    def update(self, *batches: Batch) -> None:
        """Give what the next calls move: one Batch for each micro-batch. Calls move the first one
        until select() chooses another. Nothing: back to what the bridge was made with.

        Collective, blocking the host. CUDA graphs of earlier calls can't be replayed afterwards.
        Backward of an earlier forward raises StateError: so one update gives all micro-batches that
        are in flight together.

        Errors, on every rank: ArgumentError, ShapeError, UnsupportedError, MismatchError, StateError
        (chunks that have not ended). Then the last update stays in force.
        """
        self._update(lambda: batches)

    def _update(self, tell: Callable[[], Sequence[Batch]]) -> None:
        update_all([self._movement], [self._lanes()], lambda: [tell()])

    def _lanes(self) -> tuple[int, int]:
        return self.src.dim("dp"), self.dst.dim("dp")

    def select(self, micro_batch: int) -> None:
        """Let the next calls move this micro-batch of the last update. Backward belongs to the one of
        its forward, whatever is selected. Local; all ranks select alike. ArgumentError."""
        self._movement.select(micro_batch)

    def self_test(self, seed: int = 0) -> None:
        """Move a small batch both ways, and check every row and that backward is forward's adjoint.
        Collective, blocking. InternalError names the first wrong element; MismatchError where seeds
        differ."""
        number = self.comm._together("self_test", lambda: _c.whole("self_test: seed", seed))
        with self.comm._turn():
            _c.lib.mimo_bridge_self_test(self._movement.open(), number)

    # Questions.

    def samples(self, side: Literal["src", "dst"], batch: int) -> tuple[int, int]:
        """(first, count): the samples of a global batch that this rank encodes ("src") or gets
        ("dst"). Local. ShapeError where the executor can't split the batch."""
        first, count = ctypes.c_int64(), ctypes.c_int64()
        with self.comm._turn():
            _c.lib.mimo_bridge_samples(ctypes.byref(first), ctypes.byref(count), self._movement.open(),
                                       _c.side("a side", side), _c.whole("samples: batch", batch))
        return first.value, count.value

    def shape(self, x_shape: Sequence[int], *, seq: int | None = None, rows: int | None = None,
              batch: int | None = None) -> tuple[int, ...]:
        """The shape of bridge(x) on this rank for an x of this shape. Local and pure: arithmetic, also
        of symbols under torch.compile. Nothing is checked here, the call does."""
        return self._places.dst_shape(x_shape, seq, rows, batch)

    def executor(self, backward: bool = False) -> str:
        """What moves a pass: "collective", "routed" (each call chooses how its rows travel), "p2p",
        "zero_copy" or "staged". Local."""
        with self.comm._turn():
            found = _c.lib.mimo_bridge_executor(self._movement.open(), backward)
        names = {pair: name for name, pair in _c.EXECUTORS.items()}
        return names[found.algorithm, found.transport]

    def staging(self, batch: int, seq: int, hidden: int, dtype: torch.dtype = torch.bfloat16) -> int:
        """The most bytes of staging that calls of these sizes take on this rank. Local. ShapeError."""
        if dtype not in _views.DTYPES:
            raise ArgumentError(f"staging: dtype {dtype} can't be moved")
        sizes = _c.sized(_c.mimo_bridge_sizes, batch=batch, seq=seq, hidden=hidden,
                         dtype=_views.DTYPES[dtype], src_letters=self.layout.encode(),
                         dst_letters=self.dst_layout.encode(),
                         in_buffer=self._movement.buffers[0] is not None)
        found = ctypes.c_int64()
        with self.comm._turn():
            _c.lib.mimo_bridge_staging(ctypes.byref(found), self._movement.open(), ctypes.byref(sizes))
        return found.value

    # The end.

    def close(self) -> None:
        """Release the bridge on every rank. Collective, blocking. Again: nothing. StateError on every
        rank where chunks have not ended on one of them."""
        if self._movement.handle is not None and not self.comm.closed:
            self.comm._close_child(self._movement)

    def __deepcopy__(self, _memo: dict[int, Any]) -> NoReturn:
        raise TypeError("a Bridge can't be copied: it is this rank's end of something that all ranks "
                        "share. Wrappers that copy their module get the bridge from outside of it")

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError("a Bridge can't be copied or pickled. It has no state: save state_dict() of "
                        "the modules around it")

    def extra_repr(self) -> str:
        return f"{self.src} -> {self.dst}, {self.layout} -> {self.dst_layout}"

    # What calls have in common.

    def _shapes_of(self, x: torch.Tensor | Tensors, seq: int | None, rows: int | None,
                   batch: int | None) -> list[tuple[int, ...]]:
        """The shapes of the results of a tensor, or of several; 0 for one of other dimensions, as in
        _shape_or_nothing(). Raises where arguments are wrong."""
        shapes, several = [], isinstance(x, (list, tuple))
        for i, one in enumerate(_listed("x", x)):
            self._check_arguments(one, seq, rows, batch, f"x[{i}]" if several else "x")
            shape = self._shape_or_nothing(one, seq, rows, batch)
            shapes.append(shape or (0,) * len(self.dst_layout))
        return shapes

    def _check_arguments(self, x: torch.Tensor, seq: int | None, rows: int | None,
                         batch: int | None, name: str = "x") -> None:
        _views.check_strided(name, x)
        for what, value in (("seq", seq), ("rows", rows), ("batch", batch)):
            if value is not None:
                _c.whole(what, value, 0)
        if x.dim() != len(self.layout):
            return
        flat = _views.is_flat(self.layout), _views.is_flat(self.dst_layout)
        if flat == (True, False) and seq is None and self._places.packed is None:
            raise ArgumentError(f"{name} is flat ({self.layout}) and the result is {self.dst_layout}: say by "
                                "seq= how many tokens a full sequence has")
        full = self._places.full_length(x.shape, None)
        if seq is not None and full is not None and seq != full:
            raise ShapeError(f"seq={seq}, and by {name} {self.layout}{list(x.shape)} or the packing sequences "
                             f"have {full} tokens")
        if rows is not None and flat != (True, True):
            raise ArgumentError(f"rows={rows}, but that is for tiles that are flat on both sides, and these "
                                f"are {self.layout} and {self.dst_layout}")

    def _advise(self, error: ShapeError, seq: int | None, rows: int | None, batch: int | None) -> None:
        """Where ranks have unequal sizes that this call did not say, let the error say how to say them."""
        given = self._movement.given_of(self._movement.call)
        if self._places.full_length((0,) * len(self.layout), seq) is None:
            guessed = "rows" if rows is None and given.rows is None else ""
        else:
            guessed = "batch" if batch is None and given.batch is None and self._batch is None else ""
        if guessed and "at the same dp coordinate" in str(error):
            error.args = (f"{error}. Where ranks have unequal numbers of them, say by {guessed}= how many " +
                          ("this rank gets" if guessed == "rows" else "all ranks have together"),)

    def _shape_or_nothing(self, x: torch.Tensor, seq: int | None, rows: int | None,
                          batch: int | None) -> tuple[int, ...]:
        # A tensor of other dimensions is refused in the call, where the other ranks learn of it.
        if x.dim() != len(self.layout):
            return ()
        return self._places.dst_shape(x.shape, seq, rows, batch)

    def _anchor_of(self, x: torch.Tensor) -> torch.Tensor:
        return self._anchor if self.differentiable and x.is_floating_point() else self._no_anchor

    def _input(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.differentiable else x.detach()


class _Places:
    """Where this rank stands in both grids, and the arithmetic of shapes that follows. An object of
    its own, without the module: torch.compile reads its numbers."""

    def __init__(self, bridge: Bridge) -> None:
        rank, src, dst = bridge.comm.rank, bridge.src, bridge.dst
        self.number = bridge._movement.number
        self.layout, self.dst_layout = bridge.layout, bridge.dst_layout
        self.batch = -1 if bridge._batch is None else bridge._batch
        self.src_dp, self.dst_dp = src.dim("dp"), dst.dim("dp")
        self.src_cut = bridge.src_partition.cut(src) if bridge.src_partition else 1
        self.dst_cut = bridge.partition.cut(dst) if bridge.partition else 1
        packs = [rule.packed_length for rule in (bridge.partition, bridge.src_partition) if rule]
        self.packed = next((length for length in packs if length is not None), None)
        place = dst.coords(rank) if rank in dst else None
        self.dst_index = place.get("dp", 0) if place else 0
        self.consumes = place is not None and (bridge._all_stages or place.get("pp", 0) == 0)

    def full_length(self, x_shape: Sequence[int], seq: int | None) -> int | None:
        """S, or None where x is flat and nobody says it."""
        if self.packed is not None:
            return self.packed
        if not _views.is_flat(self.layout):
            return x_shape[self.layout.index("s")] * self.src_cut
        return seq

    def rows_of_sample(self, x_shape: Sequence[int], seq: int | None) -> int | None:
        """Rows of one sample in this rank's dst tile; None where S is not known."""
        full = self.full_length(x_shape, seq)
        return None if full is None else full // self.dst_cut

    def share(self, whole: int) -> int:
        """This rank's part of what dp of dst splits: the first ranks have one more."""
        if not self.consumes:
            return 0
        return whole // self.dst_dp + int(self.dst_index < whole % self.dst_dp)

    def dst_shape(self, x_shape: Sequence[int], seq: int | None, rows: int | None,
                  batch: int | None) -> tuple[int, ...]:
        _, given_batch, given_rows = now(self.number)
        hidden = x_shape[-1]
        full = self.full_length(x_shape, seq)
        if full is None:
            if rows is None:
                rows = given_rows
            if rows < 0:
                rows = self.share(x_shape[0] * self.src_dp)
            sizes = {"s": 0, "b": 0, "t": rows, "h": hidden}
            return (rows, hidden) if _views.is_flat(self.dst_layout) else tuple(
                sizes[letter] for letter in self.dst_layout)
        if batch is None:
            batch = given_batch if given_batch >= 0 else self.batch
        if batch < 0:
            batch = self._samples(x_shape, full) * self.src_dp
        here, length = self.share(batch), full // self.dst_cut
        if _views.is_flat(self.dst_layout):
            return (here * length, hidden)
        return (length, here, hidden) if self.dst_layout == "sbh" else (here, length, hidden)

    def _samples(self, x_shape: Sequence[int], full: int) -> int:
        if not _views.is_flat(self.layout):
            return x_shape[self.layout.index("b")]
        return x_shape[0] // max(full // self.src_cut, 1)


def _listed(what: str, x: torch.Tensor | Tensors) -> Sequence[torch.Tensor]:
    """A tensor, or several, as a list."""
    if not isinstance(x, (list, tuple)):
        return [x]
    if not x:
        raise ArgumentError(f"{what} is a list without tensors")
    return x


def _any_floating(xs: Sequence[torch.Tensor]) -> bool:
    return any(x.is_floating_point() for x in xs)


def _executor(name: str) -> _c.mimo_executor:
    if name not in _c.EXECUTORS:
        raise ArgumentError(f"Bridge: an executor is one of {', '.join(_c.EXECUTORS)}, not {name!r}")
    return _c.mimo_executor(*_c.EXECUTORS[name])

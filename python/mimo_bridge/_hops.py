"""Hops of a pipeline of Megatron-LM: sends that wait for nobody, each direction in a process group of its own."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator

from .communicator import Communicator
from .grid import Grid

__all__ = ["HopGroups", "Hops", "hops_of"]

CTAS = 4  # thread blocks of a hop's NCCL kernel: an inner stage has four such communicators


def hops_of(chains: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(sender, receiver) of each process group of hops, in the order in which all ranks make them.

    A group for each hop and direction. With one for both, or that of all stages, a send that waits for its receiver
    stands in front of the receive that its own receiver waits for. Even hops come first: so a rank that uses each
    group once, in this order, never waits for one that waits for it.
    """
    return [pair for parity in (0, 1) for chain in chains for p in range(parity, len(chain) - 1, 2)
            for pair in ((chain[p], chain[p + 1]), (chain[p + 1], chain[p]))]


def options_of(backend: str) -> Any:
    """Of one process group: torch writes the group's name into them."""
    if backend != "nccl":
        return None
    options = dist.ProcessGroupNCCL.Options()
    options.config.max_ctas = CTAS
    return options


class HopGroups:
    """The process groups of all hops. Collective over all ranks, blocking. Each is used once, because torch makes its
    communicator at the first use, on the host of both ends, and later these may be in different steps."""

    def __init__(self, comm: Communicator, language: Grid, backend: str) -> None:
        pairs, self.device = hops_of(language.groups("pp")), comm.device
        groups = [dist.new_group(sorted(pair), timeout=comm.timeout, backend=backend, pg_options=options_of(backend))
                  for pair in pairs]
        self.of = {pair: group for pair, group in zip(pairs, groups) if comm.rank in pair}
        word = torch.zeros(1, device=self.device)
        for (sender, receiver), group in self.of.items():
            if comm.rank == sender:
                dist.send(word, receiver, group)
            else:
                dist.recv(word, sender, group)

    def close(self) -> None:
        """Collective."""
        while self.of:
            dist.destroy_process_group(self.of.popitem()[1])


class Hops(P2PCommunicator):  # type: ignore[misc]  # Megatron has no types
    """Megatron's communicator of a pipeline, whose sends wait for nobody. Before each receive `until` does what this
    stage has to do first; it is called on the first and last stage as well."""

    def __init__(self, theirs: P2PCommunicator, groups: HopGroups, until: Callable[[str], None]) -> None:
        super().__init__(theirs.pp_group, theirs.config)
        self._groups, self._until = groups, until
        self._sent: deque[tuple[torch.Tensor, Any]] = deque()

    def _send(self, tensors: Any, peer: int, none: bool) -> None:
        while self._sent and self._sent[0][1].is_completed():
            self._sent.popleft()
        for x in () if none else tensors if isinstance(tensors, list) else [tensors]:
            x = x.detach().contiguous()  # of our own: Megatron takes the memory of its tensor away
            self._sent.append((x, dist.isend(x, peer, self._groups.of[self.rank, peer])))

    def _receive(self, kind: str, shapes: Any, peer: int, none: bool) -> list[torch.Tensor | None]:
        self._until(kind)
        return [None if none else self._received(shape, peer) for shape in shapes]

    def _received(self, shape: Sequence[int], peer: int) -> torch.Tensor:
        x = torch.empty(shape, device=self._groups.device, dtype=self.config.pipeline_dtype)
        work: Any = dist.irecv(x, peer, self._groups.of[peer, self.rank])
        work.wait()
        return x.requires_grad_()

    @property
    def rank(self) -> int:
        """Of all ranks."""
        return dist.get_rank()

    def end(self) -> None:
        """Wait for what was sent: on the host, on a device its stream."""
        while self._sent:
            self._sent.popleft()[1].wait()

    # What Megatron's loop calls.

    def recv_forward(self, tensor_shapes: Any, is_first_stage: bool) -> Any:
        return self._receive("F", tensor_shapes, self.prev_rank, is_first_stage)

    def recv_backward(self, tensor_shapes: Any, is_last_stage: bool) -> Any:
        return self._receive("B", tensor_shapes, self.next_rank, is_last_stage)

    def send_forward(self, output_tensors: Any, is_last_stage: bool) -> None:
        self._send(output_tensors, self.next_rank, is_last_stage)

    def send_backward(self, input_tensor_grads: Any, is_first_stage: bool) -> None:
        self._send(input_tensor_grads, self.prev_rank, is_first_stage)

    def send_forward_recv_backward(self, output_tensors: Any, tensor_shapes: Any, is_last_stage: bool) -> Any:
        self.send_forward(output_tensors, is_last_stage)
        got = self.recv_backward(tensor_shapes, is_last_stage)
        return got if isinstance(output_tensors, list) else got[0]

    def send_backward_recv_forward(self, input_tensor_grads: Any, tensor_shapes: Any, is_first_stage: bool) -> Any:
        self.send_backward(input_tensor_grads, is_first_stage)
        got = self.recv_forward(tensor_shapes, is_first_stage)
        return got if isinstance(input_tensor_grads, list) else got[0]

"""mimo-bridge for PyTorch: encoder activations into the LLM's layout, gradients back.

    bridge = Bridge(Grid("tp=1,dp=8"), Grid("tp=2,cp=2,dp=2"), partition=Partition(sp=True))
    y = bridge(encoder(images))

CUDA tensors move over NCCL, where torch.distributed is initialised (torchrun or mpirun). CPU tensors
move over Open MPI, under mpirun. docs/concepts.md of the project has the words and the rules.
"""
import torch as _torch  # first: it loads CUDA and NCCL, which the library then shares

from ._load import VERSION as _VERSION
from .alignment import Alignment, Span, spans_of
from .assignment import BalanceReport, balance, balance_report, image_cost
from .balanced_encoder import Balanced
from .bridge import Batch, Bridge, Items
from .buffer import Buffer
from .choice import top_k
from .communicator import Communicator, default_communicator
from .dispatch import Dispatch, DispatchReport, Route
from .errors import (
    AbortedError, ArgumentError, CommError, DeadlineError, DeviceError, ExistsError, GridError,
    InputOutputError, InternalError, MimoError, MismatchError, NotFoundError, OutOfMemoryError,
    ShapeError, SizeOverflowError, StateError, Status, UnsupportedError,
)
from .gradient import Bucket, GradientGrid, explain
from .grid import Grid, Pairing, pairing_of
from .nodes import Node, NodeLayer, Nodes, NodesReport
from .overlap import Overlap
from .partition import LocalPartition, Partition, padded_lengths
from .schedule import Schedule, ScheduleMemory, ScheduleReport, Step
from . import _ending

__version__ = ".".join(map(str, _VERSION))
__all__ = [
    "Alignment", "BalanceReport", "Balanced", "Batch", "Bridge", "Bucket", "Buffer", "Communicator",
    "Dispatch", "DispatchReport", "GradientGrid", "Grid", "Items", "LocalPartition", "Node", "NodeLayer",
    "Nodes", "NodesReport", "Overlap", "Pairing", "Partition", "Route", "Schedule", "ScheduleMemory", "ScheduleReport", "Span", "Step", "balance", "balance_report",
    "default_communicator", "explain", "image_cost", "padded_lengths", "pairing_of", "spans_of", "top_k",
    "MimoError", "Status", "AbortedError", "ArgumentError", "CommError", "DeadlineError",
    "DeviceError", "ExistsError", "GridError", "InputOutputError", "InternalError", "MismatchError",
    "NotFoundError", "OutOfMemoryError", "ShapeError", "SizeOverflowError", "StateError",
    "UnsupportedError",
]

_ending.install()

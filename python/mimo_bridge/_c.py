"""What this package calls of the C API, as ctypes sees it: structures, prototypes, and errors that become
exceptions.

Names are those of include/mimo, so that a reader finds them there. python/tests/torch_abi.py holds
structures and prototypes against the headers, and finds those that nobody calls. No torch here.
"""
from __future__ import annotations

import array
import ctypes
import operator
from collections.abc import Iterable
from ctypes import POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64
from ctypes import c_size_t, c_uint32, c_void_p
from typing import Any, TypeVar

from . import _load
from .errors import ArgumentError, MimoError, SizeOverflowError, Status, error_of

HOST, CUDA = 0, 1  # mimo_memory
SRC, DST = 0, 1  # mimo_side
SBHD, THD = 0, 1  # mimo_sequence_format
EMBEDDINGS, LABELS = 0, 1  # mimo_content
FROM_ENV = -1  # MIMO_FROM_ENV
F8 = 6  # MIMO_F8: a byte that can only be moved

# mimo_dtype, by the names of mimo_dtype_name
DTYPES = {"f32": 0, "f16": 1, "bf16": 2, "f64": 3, "i32": 4, "i64": 5, "f8": F8}
# mimo_executor, by a name: {algorithm, transport}
EXECUTORS = {"auto": (0, 0), "collective": (1, 0), "routed": (2, 0), "p2p": (2, 1),
             "zero_copy": (2, 2), "staged": (2, 3)}
# mimo_transport of a dispatch, by a name
TRANSPORTS = {name: EXECUTORS[name][1] for name in ("auto", "p2p", "zero_copy")}

# mimo_schedule_kind by a name, mimo_step_kind, mimo_schedule_format
SCHEDULE_KINDS = {"1f1b": 0, "interleaved": 1, "zero_bubble": 2, "forward": 3}
STEP_KINDS = ("F", "B", "I", "W", "FB", "E", "BF", "BB", "EB")
SCHEDULE_TEXT, SCHEDULE_CSV, SCHEDULE_SVG, SCHEDULE_TRACE = range(4)
# mimo_node_part, of which the first are parts of a layer; mimo_node_pass, mimo_node_lane, mimo_node_recompute
NODE_PARTS = ("pre", "dispatch", "shared", "mlp", "combine", "behind", "post", "pre_process", "post_process",
              "send_recv", "grad_sync", "encoder", "call")
NODE_LAYER_PARTS = 7
NODE_PASSES = ("forward", "replay", "inputs", "weights")
NODE_LANES = ("compute", "exchanges", "hops", "bridge", "sync")
RECOMPUTES = ("none", "keep_rows", "send_rows")

AllGather = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)
Reserve = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_void_p)
Release = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_void_p)
Interrupted = ctypes.CFUNCTYPE(c_int, c_void_p)
Log = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class mimo_executor(Structure):
    _fields_ = [("algorithm", c_int), ("transport", c_int)]


class mimo_tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("memory", c_int), ("letters", c_char * 4),
                ("shape", c_int64 * 3)]


class mimo_item(Structure):
    _fields_ = [("sample", c_int64), ("row", c_int64), ("rows", c_int64)]


class mimo_batch_items(Structure):
    _fields_ = [("size", c_size_t), ("src", POINTER(mimo_item)), ("src_first", POINTER(c_int64)),
                ("dst", POINTER(mimo_item)), ("dst_first", POINTER(c_int64)), ("dst_packed", c_bool)]


class mimo_dim(Structure):
    _fields_ = [("name", c_char_p), ("size", c_int64)]


class mimo_span(Structure):
    _fields_ = [("sample", c_int64), ("row", c_int64), ("position", c_int64), ("length", c_int64)]


class mimo_comm_desc(Structure):
    _fields_ = [("size", c_size_t), ("agree", c_int), ("checks", c_int), ("deadline", c_int64),
                ("stall", c_int64), ("interrupted", Interrupted), ("context", c_void_p),
                ("ring", c_int64), ("ring_folder", c_char_p)]


class mimo_verdict(Structure):
    _fields_ = [("size", c_size_t), ("waits", c_int), ("stands", c_int), ("rank_count", c_int64),
                ("ranks", c_int * 8), ("text", ctypes.c_char * 1024)]


class mimo_bootstrap(Structure):
    _fields_ = [("size", c_size_t), ("rank", c_int), ("ranks", c_int), ("allgather", AllGather),
                ("context", c_void_p)]


class mimo_survivors_desc(Structure):
    _fields_ = [("size", c_size_t), ("least", c_int), ("timeout_ms", c_int), ("common", POINTER(mimo_comm_desc)),
                ("bootstrap", POINTER(mimo_bootstrap)), ("ranks", POINTER(c_int))]


class mimo_nccl_desc(Structure):
    _fields_ = [("size", c_size_t), ("device", c_int), ("common", POINTER(mimo_comm_desc)),
                ("min_ctas", c_int), ("max_ctas", c_int), ("blocking", c_int),
                ("split_share", c_int), ("reserve", Reserve), ("release", Release),
                ("context", c_void_p), ("staging_bytes", c_int64)]


class mimo_nccl_report(Structure):
    _fields_ = [("size", c_size_t), ("communicators", c_int), ("shared", c_int),
                ("device_bytes", c_int64)]


class mimo_partition_rule(Structure):
    _fields_ = [("size", c_size_t), ("format", c_int), ("sp", c_bool), ("strict", c_bool),
                ("sequences", c_int64), ("cu", POINTER(c_int32)), ("cu_padded", POINTER(c_int32))]


class mimo_partition_coords(Structure):
    _fields_ = [("size", c_size_t), ("cp_rank", c_int64), ("cp_size", c_int64),
                ("tp_rank", c_int64), ("tp_size", c_int64)]


class mimo_pairing(Structure):
    _fields_ = [("size", c_size_t), ("fan", c_int), ("scale", c_int64), ("groups", c_int64),
                ("group_size", c_int64)]


class mimo_alignment_desc(Structure):
    _fields_ = [("size", c_size_t), ("modalities", c_int), ("special", POINTER(c_int64)),
                ("vocabulary", c_int64), ("memory", c_int)]


class mimo_bridge_desc(Structure):
    _fields_ = [("size", c_size_t), ("src", c_void_p), ("dst", c_void_p),
                ("partition", POINTER(mimo_partition_rule)), ("executor", mimo_executor),
                ("src_partition", POINTER(mimo_partition_rule)), ("all_stages", c_bool),
                ("destinations_idle", c_bool), ("ctas", c_int),
                ("backward_executor", mimo_executor), ("batch", c_int64), ("name", c_char_p)]


class mimo_bridge_sizes(Structure):
    _fields_ = [("size", c_size_t), ("batch", c_int64), ("seq", c_int64), ("hidden", c_int64),
                ("dtype", c_int), ("in_buffer", c_bool), ("src_letters", c_char_p),
                ("dst_letters", c_char_p), ("any_batch", c_bool)]


class mimo_batch_desc(Structure):
    _fields_ = [("size", c_size_t), ("batch", c_int64), ("ragged", c_bool),
                ("spans", POINTER(mimo_span)), ("span_count", c_int64), ("src_rows", c_int64),
                ("dst_rows", c_int64), ("items", POINTER(mimo_batch_items))]


class mimo_update_desc(Structure):
    _fields_ = [("size", c_size_t), ("bridge", c_void_p), ("descs", POINTER(mimo_batch_desc)), ("n", c_int)]


class mimo_lane_images(Structure):
    _fields_ = [("samples", c_int64), ("seq", c_int64), ("patches", c_void_p), ("images", c_int64),
                ("spans", c_void_p), ("span_count", c_int64)]


class mimo_packed_spans(Structure):
    _fields_ = [("spans", c_void_p), ("span_count", c_int64), ("cu", c_void_p), ("sequences", c_int64)]


class mimo_image_lists(Structure):
    _fields_ = [("rows", POINTER(mimo_item)), ("patches", POINTER(mimo_item)), ("spans", POINTER(mimo_span))]


class mimo_balance_desc(Structure):
    _fields_ = [("size", c_size_t), ("items", c_int64), ("lanes", c_int64), ("cost", POINTER(c_int64)),
                ("rows", POINTER(c_int64)), ("home", POINTER(c_int64)), ("max_rows", c_int64),
                ("slack_permille", c_int64), ("in_order", c_bool)]


class mimo_balance_report(Structure):
    _fields_ = [("size", c_size_t), ("cost", c_int64), ("mean", c_int64), ("bound", c_int64),
                ("longest_home", c_int64), ("longest", c_int64), ("rows", c_int64),
                ("rows_moved", c_int64), ("rows_over", c_int64), ("empty_lanes", c_int64)]


class mimo_move_desc(Structure):
    _fields_ = [("size", c_size_t), ("to", POINTER(mimo_tensor)), ("from", POINTER(mimo_tensor)),
                ("n", c_int), ("chunks", c_int), ("stream", c_void_p)]


class mimo_gradient_bucket(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("grad", c_void_p), ("count", c_int64),
                ("dtype", c_int), ("module", c_int), ("shard", c_char_p), ("partial", c_char_p),
                ("grid", c_char_p)]


class mimo_schedule_step(Structure):
    _fields_ = [("kind", c_int), ("index", c_int64), ("chunk", c_int64), ("back", c_int64),
                ("back_chunk", c_int64)]


class mimo_step_costs(Structure):
    _fields_ = [("size", c_size_t), ("of", c_int64 * len(STEP_KINDS)), ("head", c_int64),
                ("hop", c_int64)]


class mimo_schedule_desc(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("stages", c_int64), ("chunks", c_int64),
                ("micro_batches", c_int64), ("encoder_group", c_int64), ("encoder_alive", c_int64),
                ("encoder_frozen", c_bool), ("overlap", c_bool), ("costs", POINTER(mimo_step_costs)),
                ("any_order", c_bool)]


class mimo_schedule_memory(Structure):
    _fields_ = [("size", c_size_t), ("encoder_alive", c_int64), ("chunks_alive", c_int64),
                ("weights_waiting", c_int64), ("saved_states", c_int64)]


class mimo_schedule_report(Structure):
    _fields_ = [("size", c_size_t), ("time", c_int64), ("idle", c_int64), ("three_phases", c_int64),
                ("llm_alone", c_int64), ("lower_bound", c_int64), ("least_alive", c_int64),
                ("encoder_alive", c_int64), ("chunks_alive", c_int64), ("weights_waiting", c_int64),
                ("saved_states", c_int64)]


class mimo_node(Structure):
    _fields_ = [("part", c_int), ("pass", c_int), ("step", c_int64), ("micro_batch", c_int64), ("chunk", c_int64),
                ("layer", c_int64)]


class mimo_node_costs(Structure):
    _fields_ = [("size", c_size_t), ("of", c_int64 * len(NODE_PASSES) * len(NODE_PARTS))]


class mimo_node_layer(Structure):
    _fields_ = [("parts", c_uint32), ("recompute", c_int), ("costs", POINTER(mimo_node_costs))]


class mimo_node_chunk(Structure):
    _fields_ = [("layers", POINTER(mimo_node_layer)), ("count", c_int64), ("has", c_uint32), ("mtp", c_int64)]


class mimo_nodes_desc(Structure):
    _fields_ = [("size", c_size_t), ("costs", POINTER(mimo_node_costs)), ("multiprocessors", c_int64),
                ("lanes", c_int64 * len(NODE_LANES)), ("early", c_bool), ("grad_sync", c_bool)]


class mimo_node_time(Structure):
    _fields_ = [("begin", c_int64), ("end", c_int64), ("multiprocessors", c_int64)]


class mimo_nodes_report(Structure):
    _fields_ = [("size", c_size_t), ("time", c_int64), ("local", c_int64), ("serial", c_int64), ("hidden", c_int64),
                ("ceiling", c_int64), ("lanes", c_int64)]


class mimo_dispatch_desc(Structure):
    _fields_ = [("size", c_size_t), ("experts", c_int64), ("top_k", c_int64), ("etp", c_int64),
                ("max_tokens", c_int64), ("hidden", c_int64), ("alignment", c_int64),
                ("narrow_sums", c_bool), ("transport", c_int), ("ctas", c_int), ("name", c_char_p),
                ("row_bytes", c_int64), ("tensors", c_int64), ("buffers_only", c_bool)]


class mimo_route_desc(Structure):
    _fields_ = [("size", c_size_t), ("ids", c_void_p), ("id_dtype", c_int), ("tokens", c_int64),
                ("capacity", c_int64), ("memory", c_int)]


class mimo_route_counts(Structure):
    _fields_ = [("size", c_size_t), ("ranks", c_int64), ("rows", POINTER(c_int64)), ("overflows", c_int64)]


class mimo_dispatch_counts(Structure):
    _fields_ = [("size", c_size_t), ("routes", c_int64), ("rows", c_int64), ("overflows", c_int64)]


# name -> "result:arguments", a letter each:
#   S  a status, which becomes an exception      v  void             s  const char *, or char *
#   i  int, or an enumeration                    l  int64_t          z  size_t
#   b  bool                                      p  any other pointer, or a stream
#   E  mimo_executor                             D  mimo_dim
PROTOTYPES = {
    "mimo_version": "i:",
    "mimo_version_text": "s:",
    "mimo_last_error": "s:",
    "mimo_log_set": "v:pp",

    "mimo_comm_destroy": "v:p",
    "mimo_comm_forget": "v:p",
    "mimo_comm_rank": "i:p",
    "mimo_comm_size": "i:p",
    "mimo_comm_split": "S:ppii",
    "mimo_comm_barrier": "S:p",
    "mimo_comm_agree_named": "S:pis",
    "mimo_comm_host_allgather": "S:pppi",
    "mimo_comm_host_allgather_start": "S:ppppis",
    "mimo_comm_host_allgather_wait": "S:p",
    "mimo_comm_set_deadline": "S:pl",
    "mimo_comm_deadline": "l:p",
    "mimo_comm_abort": "S:ps",
    "mimo_comm_state": "i:p",
    "mimo_comm_verdict": "S:pp",
    "mimo_comm_synchronize": "S:pp",
    "mimo_comm_survivors": "S:ppp",
    "mimo_comm_generation": "l:p",

    "mimo_grid_create_text": "S:psl",
    "mimo_grid_set_copies": "S:ps",
    "mimo_grid_destroy": "v:p",
    "mimo_grid_text": "s:szp",
    "mimo_grid_size": "l:p",
    "mimo_grid_contains": "b:pl",
    "mimo_grid_ndims": "i:p",
    "mimo_grid_dim": "D:pi",
    "mimo_grid_coords": "S:ppl",
    "mimo_grid_rank": "S:ppp",
    "mimo_grid_group_count": "S:ppps",
    "mimo_grid_group_at": "S:ppsl",

    "mimo_pairing_of": "S:ppp",
    "mimo_pairing_group": "S:pppl",

    "mimo_partition_create": "S:ppp",
    "mimo_partition_destroy": "v:p",
    "mimo_partition_rows": "S:ppil",
    "mimo_partition_index": "S:ppil",
    "mimo_partition_positions": "S:ppil",
    "mimo_partition_shard": "S:pippp",
    "mimo_partition_adjoint": "S:pipppp",
    "mimo_partition_pad": "S:ppll",

    "mimo_alignment_create": "S:pp",
    "mimo_alignment_destroy": "v:p",
    "mimo_alignment_update": "S:ppp",
    "mimo_alignment_rows": "S:ppi",
    "mimo_alignment_merge": "S:ppppp",
    "mimo_alignment_split": "S:ppppp",

    "mimo_buffer_create": "S:ppl",
    "mimo_buffer_destroy": "v:p",
    "mimo_buffer_data": "p:p",
    "mimo_buffer_size": "l:p",
    "mimo_buffer_reach": "i:p",

    "mimo_bridge_create": "S:ppp",
    "mimo_bridge_destroy": "v:p",
    "mimo_bridge_update_all": "S:pi",
    "mimo_bridge_select": "S:pi",
    "mimo_bridge_refuse": "S:pbbi",
    "mimo_bridge_refuse_update": "S:pi",
    "mimo_bridge_forward": "S:pppip",
    "mimo_bridge_backward": "S:pppip",
    "mimo_bridge_forward_start_chunked": "S:ppp",
    "mimo_op_wait_chunk": "S:pip",
    "mimo_op_wait": "S:p",
    "mimo_bridge_self_test": "S:pl",
    "mimo_bridge_executor": "E:pb",
    "mimo_bridge_samples": "S:pppil",
    "mimo_bridge_prepare": "S:pbp",
    "mimo_bridge_tile": "S:ppip",
    "mimo_bridge_staging": "S:ppp",
    "mimo_bridge_spans": "S:pplp",

    "mimo_dispatch_create": "S:ppp",
    "mimo_dispatch_destroy": "v:p",
    "mimo_dispatch_refuse": "S:pbi",
    "mimo_dispatch_refuse_route": "S:pi",
    "mimo_dispatch_rows": "S:pppip",
    "mimo_dispatch_combine": "S:pppip",
    "mimo_dispatch_report": "S:pp",
    "mimo_route_create": "S:pp",
    "mimo_route_destroy": "v:p",
    "mimo_route_set": "S:ppp",
    "mimo_route_ends": "S:pp",
    "mimo_route_read": "S:pp",
    "mimo_balance": "S:pp",
    "mimo_balance_report_of": "S:ppp",
    "mimo_spans_find": "S:pplpl",
    "mimo_spans_pack": "S:pplpl",
    "mimo_images_find": "S:ppllb",
    "mimo_items_deal": "S:ppppll",

    "mimo_gradient_create": "S:pppp",
    "mimo_gradient_add_grid": "S:pspss",
    "mimo_gradient_destroy": "v:p",
    "mimo_gradient_text": "S:pslppi",

    "mimo_schedule_create": "S:pp",
    "mimo_schedule_create_csv": "S:pps",
    "mimo_schedule_destroy": "v:p",
    "mimo_schedule_steps": "p:ppl",
    "mimo_schedule_check": "S:p",
    "mimo_schedule_times": "S:ppplp",
    "mimo_schedule_memory_of": "S:ppl",
    "mimo_schedule_report_of": "S:ppp",
    "mimo_schedule_text": "S:pslpi",
    "mimo_schedule_hash": "l:p",

    "mimo_nodes_create": "S:pppp",
    "mimo_nodes_create_step": "S:pppp",
    "mimo_nodes_destroy": "v:p",
    "mimo_nodes_of": "p:ppl",
    "mimo_node_lane_of": "i:i",
    "mimo_nodes_waits": "S:ppll",
    "mimo_nodes_check": "S:p",
    "mimo_nodes_times": "S:ppl",
    "mimo_nodes_report_of": "S:pp",
    "mimo_nodes_text": "S:pslpi",
    "mimo_nodes_hash": "l:p",
}
# Only where the library has the backend.
NCCL_PROTOTYPES = {
    "mimo_comm_create_nccl": "S:ppp",
    "mimo_nccl_report_of": "S:pp",
}
# Of libmimo-bridge-mpi. With Open MPI an MPI_Comm is a pointer.
MPI_PROTOTYPES = {
    "mimo_comm_create_mpi": "S:ppp",
}
# Structures that begin with a size, and start from mimo_x_init.
SIZED = (mimo_comm_desc, mimo_verdict, mimo_bootstrap, mimo_survivors_desc, mimo_nccl_desc, mimo_nccl_report, mimo_partition_rule,
         mimo_partition_coords, mimo_pairing, mimo_alignment_desc, mimo_bridge_desc,
         mimo_bridge_sizes, mimo_batch_desc, mimo_batch_items, mimo_update_desc, mimo_balance_desc, mimo_balance_report,
         mimo_move_desc, mimo_gradient_bucket, mimo_step_costs, mimo_schedule_desc, mimo_schedule_memory,
         mimo_schedule_report, mimo_node_costs, mimo_nodes_desc, mimo_nodes_report, mimo_dispatch_desc, mimo_route_desc, mimo_route_counts, mimo_dispatch_counts)

LETTERS: dict[str, Any] = {
    "S": c_int, "v": None, "s": c_char_p, "i": c_int, "l": c_int64, "z": c_size_t, "b": c_bool,
    "p": c_void_p, "E": mimo_executor, "D": mimo_dim, "d": c_double,
}


def _check(status: int, _function: object, _arguments: object) -> int:
    # ctypes calls this on the thread of the call, before another call of that thread. So the
    # sentence, which is kept for each thread, is that of this failure.
    if status:
        raise error_of(status, lib.mimo_last_error().decode(errors="replace"))
    return status


def verdict_of(comm: c_void_p) -> tuple[str, tuple[int, ...]]:
    """What the rings of this host say of a communicator: in words, and the first ranks that are waited for."""
    verdict = sized(mimo_verdict)
    lib.mimo_comm_verdict(ctypes.byref(verdict), comm)
    count = min(verdict.rank_count, len(verdict.ranks))
    return verdict.text.decode(errors="replace"), tuple(verdict.ranks[:count])


def declare(library: ctypes.CDLL, prototypes: dict[str, str]) -> None:
    """Give a library's functions their types. AttributeError where one is missing."""
    for name, letters in prototypes.items():
        function = getattr(library, name)
        result, arguments = letters.split(":")
        function.restype = LETTERS[result]
        function.argtypes = [LETTERS[letter] for letter in arguments]
        if result == "S":
            function.errcheck = _check


def _open() -> ctypes.CDLL:
    library = _load.open_core()
    version = library.mimo_version()
    if version // 100 != _load.VERSION[0] * 100 + _load.VERSION[1]:
        raise ImportError(f"mimo_bridge {'.'.join(map(str, _load.VERSION))} found libmimo-bridge "
                          f"{version // 10000}.{version // 100 % 100}.{version % 100} "
                          f"({library._name}): their minor versions must be equal")
    declare(library, PROTOTYPES)
    for kind in SIZED:
        if hasattr(library, kind.__name__ + "_init"):
            declare(library, {kind.__name__ + "_init": "v:pz"})
    library.mimo_fail.argtypes = [c_int, c_char_p, c_char_p]
    if hasattr(library, "mimo_comm_create_nccl"):
        declare(library, NCCL_PROTOTYPES)
    return library


lib = _open()
has_nccl = hasattr(lib, "mimo_comm_create_nccl")

S = TypeVar("S", bound=Structure)


def whole(what: str, value: Any, least: int = -2**63, most: int = 2**63 - 1) -> int:
    """A whole number in [least, most]. ctypes itself would cut off what does not fit. ArgumentError,
    SizeOverflowError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{what} is a whole number, not {value!r}") from None
    if number < least:
        raise ArgumentError(f"{what} is {number}, and at least {least}")
    if number > most:
        raise SizeOverflowError(f"{what} is {number}, and at most {most}")
    return number


def text(what: str, value: Any) -> bytes:
    """A text as C takes it. ArgumentError, also for a NUL, at which C would stop reading."""
    if not isinstance(value, str) or "\0" in value:
        raise ArgumentError(f"{what}: {value!r} is no text")
    return value.encode(errors="replace")


def fitting(kind: type[Any], what: str, value: Any) -> int:
    """A whole number that a signed type of C holds. ArgumentError, SizeOverflowError."""
    most = 2**(8 * ctypes.sizeof(kind) - 1) - 1
    return whole(what, value, -most - 1, most)


def numbers(kind: type[c_int32] | type[c_int64], what: str, values: Iterable[Any]) -> Any:
    """An array of whole numbers, of at least one element. ArgumentError, SizeOverflowError."""
    listed = [*values] or [0]
    try:
        packed = array.array("i" if kind is c_int32 else "q", listed)
    except (TypeError, OverflowError):  # which says neither what nor how much
        packed = array.array("q", [fitting(kind, what, value) for value in listed])
    return (kind * len(packed)).from_buffer(packed)


def side(what: str, name: Any) -> int:
    """The mimo_side of "src" or "dst". ArgumentError."""
    if name not in ("src", "dst"):
        raise ArgumentError(f"{what} is src or dst, not {name!r}")
    return SRC if name == "src" else DST


# What structures begin from, and the types of their fields.
_initial: dict[type[Structure], tuple[Structure, dict[str, Any]]] = {}


def sized(kind: type[S], /, **fields: Any) -> S:
    """A structure that begins with a size, from its initializer, with these fields set. ArgumentError,
    SizeOverflowError where a number is none, or does not fit its field."""
    if kind not in _initial:
        first = kind()
        getattr(lib, kind.__name__ + "_init")(ctypes.byref(first), ctypes.sizeof(first))
        _initial[kind] = first, {field[0]: field[1] for field in kind._fields_}
    initial, kinds = _initial[kind]
    made = kind.from_buffer_copy(initial)
    for name, value in fields.items():
        if kinds[name] in (c_int, c_int64):
            value = fitting(kinds[name], name, value)
        elif kinds[name] is c_bool and value not in (False, True):
            raise ArgumentError(f"{name} is True or False, not {value!r}")
        setattr(made, name, value)
    return made


def fail(error: BaseException) -> int:
    """Record what an exception says, for the other ranks to read, and return its status."""
    ours = isinstance(error, MimoError)
    status = int(error.status) if isinstance(error, MimoError) else int(Status.ARGUMENT)
    lib.mimo_fail(status, b"%s", (str(error) if ours else repr(error)).encode(errors="replace"))
    return status

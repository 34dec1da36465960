"""The gather-narrow-sum method (docs/concepts.md) in PyTorch, as a user would have it:
torch.distributed, autograd, and the copies that Megatron makes. Prints a line of JSON for each
case, tensor order and pass.

    torchrun --nproc-per-node 4 torch_seed.py
    mpirun -n 4 python3 torch_seed.py

The bridge: fan-in gathers tiles into a list and concatenates them along the batch. Fan-out narrows
and copies. Backward sums over the LLM's cp ranks on a copy. Then it narrows, or gathers and
concatenates.

The adapter: the zigzag split works on bsh. So tensors in sbh are transposed to bsh and back.
Its backward is that of autograd.

A time is that of the slowest rank for CALLS calls between two events, the median of REPEATS. Before
that, the result of a call is compared with plain slices of the global tensor, bit for bit.
"""
import os
import time

import torch
import torch.distributed as dist

from peer_cases import CALLS, DIRECTIONS, REPEATS, WARM_UP, cases, median, options

ORDERS = ("sbh", "bsh")

# ----------------------------------------- the algorithm ------------------------------------------


class Plan:
    """What one rank needs to know of a case, and the groups that it communicates in."""

    def __init__(self, case, order, rank):
        self.order, self.batch_dim = order, order.index("b")
        self.src_batch = case.batch // case.src.dp
        self.dst_batch = case.batch // case.dst.dp
        _, _, src_dp = case.src.place(rank)
        _, self.cp_rank, dst_dp = case.dst.place(rank)
        self.cp = case.dst.cp
        self.src_first, self.dst_first = src_dp * self.src_batch, dst_dp * self.dst_batch
        self.fan_in, self.fan_out = case.src.dp > case.dst.dp, case.dst.dp > case.src.dp
        wide = case.src if self.fan_in else case.dst
        scale = max(case.src.dp, case.dst.dp) // min(case.src.dp, case.dst.dp)
        self.slot = wide.place(rank)[2] % scale
        self.gather = self.sum = None
        if scale > 1:
            self.gather = group_of(rank, wide.size, lambda r: (*wide.place(r)[:2],
                                                               wide.place(r)[2] // scale))
        if self.cp > 1:
            self.sum = group_of(rank, case.dst.size, lambda r: case.dst.place(r)[::2])


def group_of(rank, ranks, key):
    """The group of the ranks with this rank's key. Every rank makes every group: new_group is
    collective."""
    mine = None
    for value in sorted({key(r) for r in range(ranks)}):
        members = [r for r in range(ranks) if key(r) == value]
        group = dist.new_group(members)
        if rank in members:
            mine = group
    return mine


def gather_batch(tile, group, dim):
    parts = [torch.empty_like(tile) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tile, group=group)
    return torch.cat(parts, dim=dim)


def narrow_batch(tile, plan, batch):
    return tile.narrow(plan.batch_dim, plan.slot * batch, batch).contiguous()


class Bridge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tile, plan):
        ctx.plan = plan
        if plan.fan_in:
            return gather_batch(tile.contiguous(), plan.gather, plan.batch_dim)
        if plan.fan_out:
            return narrow_batch(tile, plan, plan.dst_batch)
        return tile.view_as(tile)

    @staticmethod
    def backward(ctx, gradient):
        plan = ctx.plan
        if plan.sum is not None:
            gradient = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(gradient, op=dist.ReduceOp.SUM, group=plan.sum)
        if plan.fan_in:
            return narrow_batch(gradient, plan, plan.src_batch), None
        if plan.fan_out:
            return gather_batch(gradient.contiguous(), plan.gather, plan.batch_dim), None
        return gradient, None


def split_zigzag(tile, plan, chunks):
    """This cp rank's two chunks of a bsh tile."""
    batch, seq, hidden = tile.shape
    cut = tile.view(batch, 2 * plan.cp, seq // (2 * plan.cp), hidden)
    return cut.index_select(1, chunks).reshape(batch, seq // plan.cp, hidden)


def adapt(tile, plan, chunks):
    if plan.cp == 1:
        return tile
    if plan.order == "bsh":
        return split_zigzag(tile, plan, chunks)
    whole = tile.transpose(0, 1).contiguous()
    return split_zigzag(whole, plan, chunks).transpose(0, 1).contiguous()


# ------------------------------------------- the check --------------------------------------------


def in_order(tile, order):
    return tile if order == "bsh" else tile.transpose(0, 1).contiguous()


def global_samples(case, first, count, seed, device):
    """Samples of the global tensor, bsh. The bits of an element are a hash of its index, and give a
    bf16 of normal size."""
    rows = torch.empty(count, case.seq, case.hidden, dtype=torch.int16, device=device)
    elements = case.seq * case.hidden
    for sample in range(count):
        start = (first + sample) * elements
        index = torch.arange(start, start + elements, dtype=torch.int64, device=device)
        index.mul_(2654435761).add_(seed * 40503).bitwise_right_shift_(7)
        rows[sample] = index.bitwise_and_(0x0fff).bitwise_or_(0x3000).view(case.seq, case.hidden)
    return rows.view(torch.bfloat16)


def zigzag_positions(case, plan, device):
    length = case.seq // (2 * plan.cp)
    if plan.cp == 1:
        return torch.arange(case.seq, device=device)
    starts = plan.cp_rank * length, (2 * plan.cp - 1 - plan.cp_rank) * length
    return torch.cat([torch.arange(start, start + length, device=device) for start in starts])


def expected(case, plan, direction, device):
    """What a pass must bring: slices of the global activations (seed 1) or gradient (seed 2)."""
    if direction == "forward":
        whole = global_samples(case, plan.dst_first, plan.dst_batch, 1, device)
        return in_order(whole[:, zigzag_positions(case, plan, device)], plan.order)
    return in_order(global_samples(case, plan.src_first, plan.src_batch, 2, device), plan.order)


def given(case, plan, direction, device):
    """What a pass starts from."""
    if direction == "forward":
        return in_order(global_samples(case, plan.src_first, plan.src_batch, 1, device), plan.order)
    whole = global_samples(case, plan.dst_first, plan.dst_batch, 2, device)
    return in_order(whole[:, zigzag_positions(case, plan, device)], plan.order)


def check(case, plan, direction, brought, device):
    same = torch.equal(brought.view(torch.int16), expected(case, plan, direction, device)
                       .contiguous().view(torch.int16))
    wrong = torch.tensor([0 if same else 1], device=device)
    dist.all_reduce(wrong)
    if wrong.item():
        raise SystemExit(f"{case.words()}, {plan.order}, {direction}: {wrong.item()} ranks have "
                         "other rows than slices of the global tensor")


# -------------------------------------------- timing ----------------------------------------------


def microseconds(call, device, calls=CALLS):
    """The time of one call, the mean of several, on this rank."""
    dist.barrier()
    if device.type == "cpu":
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) * 1e6 / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def timed(call, device):
    """The time of one call on the slowest rank, the median of all repeats."""
    for _ in range(WARM_UP):
        call()
    times = []
    for _ in range(REPEATS):
        slowest = torch.tensor([microseconds(call, device)], dtype=torch.float64, device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times.append(slowest.item())
    return median(times)


def run(case, order, rank, device):
    plan = Plan(case, order, rank)
    chunks = torch.tensor([plan.cp_rank, 2 * plan.cp - 1 - plan.cp_rank], device=device)
    tile = given(case, plan, "forward", device).requires_grad_()
    gradient = given(case, plan, "backward", device)

    def forward():
        return adapt(Bridge.apply(tile, plan), plan, chunks)

    shard = forward()

    def backward():
        return torch.autograd.grad(shard, tile, gradient, retain_graph=True)[0]

    for direction, call in zip(DIRECTIONS, (forward, backward)):
        check(case, plan, direction, call().detach().contiguous(), device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        taken = timed(call, device)
        peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
        if rank == 0:
            print(case.line("pytorch", direction, taken, order=order, peak_bytes=peak), flush=True)
    for group in (plan.gather, plan.sum):
        if group is not None:
            dist.destroy_process_group(group)


# -------------------------------------------- launch ----------------------------------------------


def from_launcher(names):
    """The first of these variables that torchrun or mpirun has set."""
    return next((int(os.environ[name]) for name in names if name in os.environ), None)


def set_meeting_place():
    """Where ranks of mpirun meet; torchrun has said it. Launches may run side by side."""
    job = int(os.environ.get("OMPI_MCA_ess_base_jobid", 0)) >> 16
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + job % 10000))


def main():
    asked = options(__doc__.split("\n", maxsplit=1)[0]).parse_args()
    rank = from_launcher(["RANK", "OMPI_COMM_WORLD_RANK"])
    ranks = from_launcher(["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
    local = from_launcher(["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"])
    if rank is None or ranks is None:
        raise SystemExit("start me under torchrun or mpirun")
    set_meeting_place()
    device = torch.device("cpu" if asked.device == "cpu" else f"cuda:{local}")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend, bound = ("gloo", None) if device.type == "cpu" else ("nccl", device)
    dist.init_process_group(backend, rank=rank, world_size=ranks, device_id=bound)
    for case in cases(asked, ranks):
        for order in ORDERS:
            run(case, order, rank, device)
            if device.type == "cuda":
                torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

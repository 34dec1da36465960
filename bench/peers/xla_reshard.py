"""The same rows moved by XLA: a jitted identity whose result is sharded as the other module's.
Prints a line of JSON for each case and pass.

    python3 xla_reshard.py            one process, all GPUs that it sees

Tensors are [B, S, H] in bf16. The encoder's are sharded along B by dp. The LLM's are sharded along
B by dp and along S by cp. Both are equal on tp ranks. Chunks of the sequence are contiguous, not
zigzag; the same number of bytes moves. XLA knows that backward is a permutation as well, so there
is no sum.

A time is that of the wall clock over CALLS calls, the median of REPEATS. It includes the host's
launches. Before that, the result of a call is compared with the same function of the index, made in
place, bit for bit.
"""
import os
import time

from peer_cases import CALLS, DIRECTIONS, REPEATS, WARM_UP, cases, median, options

ASKED = options(__doc__.split("\n", maxsplit=1)[0])
ASKED.add_argument("--ranks", type=int, help="devices to use (default: all; 4 with --device cpu)")
ASKED = ASKED.parse_args()
if ASKED.device == "cpu":  # before JAX looks for devices
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ASKED.ranks or 4}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def sharding_of(grid):
    """The sharding of [B, S, H] over ranks in grid order: tp varies fastest."""
    devices = np.array(jax.devices()[:grid.size]).reshape(grid.dp, grid.cp, grid.tp)
    return NamedSharding(Mesh(devices, ("dp", "cp", "tp")), PartitionSpec("dp", "cp", None))


def global_tensor(case, sharding):
    """The bits of an element are a hash of its index, and give a bf16 of normal size. Each device
    makes its own shard."""
    def make():
        shape = case.batch, case.seq, case.hidden
        b, s, h = (jax.lax.broadcasted_iota(jnp.uint32, shape, dim) for dim in range(3))
        index = (b * case.seq + s) * case.hidden + h
        bits = ((index * jnp.uint32(2654435761)) >> 16 & 0x0fff) | 0x3000
        return jax.lax.bitcast_convert_type(bits.astype(jnp.uint16), jnp.bfloat16)
    return jax.jit(make, out_shardings=sharding)()


def bits_of(tensor):
    return jax.lax.bitcast_convert_type(tensor, jnp.uint16)


def check(case, direction, brought, sharding):
    wanted = global_tensor(case, sharding)
    other = int(jax.jit(lambda a, b: jnp.sum(bits_of(a) != bits_of(b)))(brought, wanted))
    if other or not brought.sharding.is_equivalent_to(sharding, 3):
        raise SystemExit(f"{case.words()}, {direction}: {other} elements are others, and the "
                         f"sharding is {brought.sharding}")


def timed(call, tensor):
    """Microseconds of one call by the wall clock, the median of all repeats."""
    times = []
    for _ in range(WARM_UP):
        call(tensor).block_until_ready()
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            brought = call(tensor)
        brought.block_until_ready()
        times.append((time.perf_counter() - begin) * 1e6 / CALLS)
    return median(times)


def run(case):
    sides = sharding_of(case.src), sharding_of(case.dst)
    for direction, (given, wanted) in zip(DIRECTIONS, (sides, sides[::-1])):
        tensor = global_tensor(case, given)
        move = jax.jit(lambda x: x, in_shardings=given, out_shardings=wanted)
        check(case, direction, move(tensor), wanted)
        print(case.line("xla", direction, timed(move, tensor)), flush=True)


def main():
    for case in cases(ASKED, ASKED.ranks or len(jax.devices())):
        run(case)


main()

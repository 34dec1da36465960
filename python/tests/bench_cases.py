"""bench/torch_bench.py and torch_host.py on CPU tensors: every way has the bits of slices, and the table reads its lines."""
import contextlib
import importlib
import io
import json
import pathlib
import sys
import tempfile
import warnings

import torch

from megatron_import import folder, process_groups
from rank_runner import case, raises

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def loaded(name):
    if str(BENCH) not in sys.path:
        sys.path.append(str(BENCH))
    return importlib.import_module(name)


@case(2, on="cpu")
def bench_of_ways(comm):
    """Both cases with small tiles, and the table of these lines and of lines that miss a goal."""
    bench, plot = loaded("torch_bench"), loaded("plot_bench")
    megatron = ["--megatron", str(folder())] if folder() else []
    asked = bench.options().parse_args(["--device", "cpu", "--seq", "8192", "--hidden", "4", "--modes",
                                        "eager", "--repeats", "1", *megatron])
    lines = []
    with process_groups(comm), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench.measure(asked, comm, lines.append)
    ways = 3 + 3 + 2 * len(megatron[:1])
    assert len(lines) == (2 * 2 * ways if comm.rank == 0 else 0), len(lines)
    if comm.rank == 0:
        text = table_of(plot, lines)
        wanted = text.count("/ slots, autograd") == 4 and text.count("through PyTorch, us") == 1
        assert wanted and text.count("S 8192 eager forward") == 2, text
        made = [{**json.loads(line), "us": 10.0} for line in lines]
        for row in made:
            row["us"] *= 60 if row["peer"] == "megatron" else 1
        words = [line for line in table_of(plot, map(json.dumps, made)).splitlines()
                 if "Megatron / slots" in line and " 8192 " in line]
        assert len(words) == 2 and all("60.00 x" in line and "ok" in line for line in words) or not megatron, words


def table_of(plot, lines):
    with tempfile.TemporaryDirectory() as name:
        pathlib.Path(name, "torch_bench.jsonl").write_text("\n".join(lines), encoding="utf-8")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            plot.print_table(plot.Results(name))
    return out.getvalue()


@case(2, on="cpu")
def bench_of_the_host(comm):
    """bench/torch_host.py has a time of each way, also of those of torch alone, and leaves no slot in use."""
    found = loaded("torch_host").measure(comm, 1)
    assert list(found) == ["torch: nothing", "torch: one call", "bridge", "slots"], found
    assert all(len(times) == 2 and min(times) > 0 for times in found.values()), found


@case(2, on="cpu")
def bench_refuses(comm):
    """Other rows than slices of the global tensor end the bench, as do modes that are not there."""
    bench = loaded("torch_bench")

    def asked(*words):
        return bench.options().parse_args(["--device", "cpu", "--hidden", "4", "--repeats", "1", *words])

    with process_groups(comm):
        raises(SystemExit, "no graph here", bench.measure, asked("--modes", "eager,graph"), comm, print)
        raises(SystemExit, "4 does not divide", bench.measure, asked("--seq", "10", "--modes", "eager"), comm,
               print)
        setting = bench.Setting("cp", (8, 4), comm.rank, comm.size, comm.device)
        way = bench.Ours("p2p", setting, comm)
        x, g = setting.given("sbh")
        y = way(x)
        grad, = torch.autograd.grad(y, x, g)
        setting.check("ours", "sbh", y.detach(), grad)
        for wrong in ((y.detach().flip(0), grad), (y.detach(), grad * 2)):
            raises(RuntimeError, "other rows", setting.check, "ours", "sbh", *wrong)
        way.close()

"""Unusual runs: bf16 across the bridge or in products, pictures of other sizes, no steps at all; all but the last
with mixtures of experts as well."""
import math
import os
import re

from captioner_runs import Report, SMALL, TOPOLOGIES, compare, run_test

ONE_RANK = TOPOLOGIES[0]
PAIR = ("tp=1,dp=2", "tp=1,cp=2,dp=1", 2)
EXPERTS, SHARED = ["--experts", "4,2"], ["--expert-grid", "ep=2"]
VOCABULARY = 288


def check_bf16(captioner):
    """Each variant's losses are near those of f32, and no two variants have equal losses. Equal
    losses would show a flag without effect."""
    steps = [*SMALL, *EXPERTS, *SHARED, "--steps", "2"]
    plain = captioner.train(PAIR, *steps)
    short = {flag: captioner.train(PAIR, *steps, flag, "bf16") for flag in ("--dtype", "--precision")}
    wrong = sum(compare(f"{flag} bf16", seen, plain, 1e-2) for flag, seen in short.items())
    losses = [seen[0]["loss"] for seen in (plain, *short.values())]
    if len(set(losses)) < len(losses):
        print(f"bf16 does nothing: losses {losses}")
        wrong += 1
    return wrong


def check_no_steps(captioner):
    """An untrained model has the loss of a guess. There is no curve to draw."""
    done, log = captioner.run(ONE_RANK, *SMALL, "--steps", "0")
    report = Report(done.stdout)
    guess = math.log(VOCABULARY)
    sheet, curve = (os.path.exists(os.path.join(captioner.folder, name))
                    for name in ("contact-sheet.png", "loss-curve.png"))
    looks = re.fullmatch(r"evaluating on \d+ held-out emoji\n", done.stderr)
    if log or not looks or not sheet or curve or abs(report.right - guess) > 0.1:
        print(f"--steps 0: log {log}, stderr {done.stderr!r}, loss {report.right} and not "
              f"{guess:.2f}, contact sheet {sheet}, curve {curve}")
        return 1
    return 0


def check_size(captioner, side, seq):
    """Both grids agree with pictures of another size."""
    captioner.prepare(side, one_in=60)
    size = [*SMALL, *EXPERTS, "--image-size", str(side), "--seq", str(seq), "--steps", "2"]
    size += ["--global-batch", "6", "--micro-batches", "1"]
    return compare(f"{side} pixels", captioner.train(PAIR, *size, *SHARED), captioner.train(ONE_RANK, *size),
                   1e-4)


def main(captioner):
    wrong = check_no_steps(captioner)
    wrong += check_bf16(captioner)
    wrong += check_size(captioner, 8, 84)
    wrong += check_size(captioner, 40, 108)
    return wrong


run_test(main, one_in=60)

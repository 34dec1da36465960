"""3 steps, save, 2 more: the same as 5 steps, on the same topology and on others, with mixtures of experts on other
grids. Then the flags in which a resumed run may differ from the run that saved, and those in which it may not."""
import os

from captioner_runs import SMALL, TOPOLOGIES, compare, run_test

MIXED = [*SMALL, "--experts", "4,2"]
GRIDS = dict(zip(TOPOLOGIES, ("etp=1", "ep=4", "etp=2", "ep=2"))) # of experts
# The checkpoint is saved with MIXED. Each row: flags of the run to resume, and words of the
# refusal.
REFUSED = [
    (["--global-batch", "16"], "--global-batch 32, but this run has 16"),
    (["--seed", "8"], "--seed 7, but this run has 8"),
    (["--hidden", "64"], "--hidden 32, but this run has 64"),
    (["--heads", "4"], "--heads 8, but this run has 4"),
    (["--layers", "2,2"], "--encoder-layers 1, but this run has 2"),
    (["--layers", "1,3"], "--llm-layers 2, but this run has 3"),
    (["--seq", "100"], "--seq 96, but this run has 100"),
]
CHANGED = ["--micro-batches", "2", "--lr", "0.02", "--dtype", "bf16"]


def refusals(captioner, saved):
    """Number of resumed runs that were not refused in these words."""
    encoder, llm, _ = TOPOLOGIES[0]
    wrong = 0
    one = ["--encoder", encoder, "--llm", llm, "--samples", captioner.samples, *MIXED, "--steps",
           "5", "--resume", saved]
    answers = captioner.all_refused([*one, *flags] for flags, _ in REFUSED)
    for (flags, words), said in zip(REFUSED, answers):
        if f"{saved} was saved with {words}" not in said:
            print(f"{flags} should be refused with {words}: {said}")
            wrong += 1
    return wrong


def damaged(captioner, saved):
    """Number of checkpoints with steps that no run takes, which were not refused in these words. A
    run from step -1 would never end."""
    with open(saved, "rb") as file:
        whole = file.read()
    end = 8 + int.from_bytes(whole[:8], "little")
    cases = [("-1", 'its metadata say "-1" for step'),
             ("18446744073709551616", 'its metadata say "18446744073709551616" for step'),
             ("1000000001", "was saved after 1000000001 steps, and a run has at most 1000000000")]
    rows = []
    for step, _ in cases:
        header = whole[8:end].replace(b'"step":"3"', f'"step":"{step}"'.encode())
        rows.append(f"{saved}{step}")
        with open(rows[-1], "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + whole[end:])
    encoder, llm, _ = TOPOLOGIES[0]
    answers = captioner.all_refused(["--encoder", encoder, "--llm", llm, "--samples", captioner.samples,
                                     *MIXED, "--steps", "5", "--resume", row] for row in rows)
    wrong = 0
    for (step, words), said in zip(cases, answers):
        if words not in said:
            print(f"step {step} should be refused with {words}: {said}")
            wrong += 1
    return wrong


def main(captioner):
    saved = os.path.join(captioner.folder, "saved.safetensors")
    home = TOPOLOGIES[1]
    straight = captioner.train(home, *MIXED, "--expert-grid", GRIDS[home], "--steps", "5")
    captioner.train(home, *MIXED, "--expert-grid", GRIDS[home], "--steps", "3", "--save", saved)
    wrong = refusals(captioner, saved) + damaged(captioner, saved)
    for topology in (home, TOPOLOGIES[0], TOPOLOGIES[2], TOPOLOGIES[3]):
        seen = captioner.train(topology, *MIXED, "--expert-grid", GRIDS[topology], "--steps", "5", "--resume",
                               saved)
        tolerance = 1e-5 if topology is home else 1e-4
        wrong += compare(f"resumed on {topology[0]} -> {topology[1]}", seen, straight[3:],
                         tolerance)
    # The schedule covers the steps to come. The first of these has the samples of step 4.
    seen = captioner.train(TOPOLOGIES[0], *MIXED, *CHANGED, "--steps", "4", "--resume", saved)
    wrong += compare("resumed with another schedule", seen, straight[3:4], 1e-2)
    if captioner.train(TOPOLOGIES[0], *MIXED, "--steps", "2", "--resume", saved):
        wrong += 1
        print("steps were taken past --steps")
    return wrong


run_test(main, one_in=60)

"""3 steps, save, 2 more: the same as 5 steps, on the same topology and on others, with mixtures of experts on other
grids. Then the flags in which a resumed run may differ from the run that saved, and those in which it may not."""
from captioner_runs import Checks, SMALL, TOPOLOGIES, compare, read_tensors, write_tensors, run_test

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


def damaged(saved):
    """Checkpoints with steps that no run takes, as rows of refusals. A run from step -1 would never end."""
    metadata, tensors = read_tensors(saved)
    for step, words in (("-1", 'its metadata say "-1" for step'),
                        ("18446744073709551616", 'its metadata say "18446744073709551616" for step'),
                        ("1000000001", "was saved after 1000000001 steps, and a run has at most 1000000000")):
        write_tensors(saved + step, {**metadata, "step": step}, tensors)
        yield ["--resume", saved + step], words


def main(captioner):
    test = Checks(captioner)
    saved = test.path("saved.safetensors")
    home = TOPOLOGIES[1]
    straight = captioner.train(home, *MIXED, "--expert-grid", GRIDS[home], "--steps", "5")
    captioner.train(home, *MIXED, "--expert-grid", GRIDS[home], "--steps", "3", "--save", saved)
    test.expect_refused(captioner.flags_of(TOPOLOGIES[0], *MIXED, "--steps", "5", "--resume", saved),
                        [*((flags, f"{saved} was saved with {words}") for flags, words in REFUSED), *damaged(saved)])
    for topology in (home, TOPOLOGIES[0], TOPOLOGIES[2], TOPOLOGIES[3]):
        seen = captioner.train(topology, *MIXED, "--expert-grid", GRIDS[topology], "--steps", "5", "--resume",
                               saved)
        tolerance = 1e-5 if topology is home else 1e-4
        test.wrong += compare(f"resumed on {topology[0]} -> {topology[1]}", seen, straight[3:],
                              tolerance)
    # The schedule covers the steps to come. The first of these has the samples of step 4.
    seen = captioner.train(TOPOLOGIES[0], *MIXED, *CHANGED, "--steps", "4", "--resume", saved)
    test.wrong += compare("resumed with another schedule", seen, straight[3:4], 1e-2)
    test.expect(not captioner.train(TOPOLOGIES[0], *MIXED, "--steps", "2", "--resume", saved),
                "steps were taken past --steps")
    return test.wrong


run_test(main, one_in=60)

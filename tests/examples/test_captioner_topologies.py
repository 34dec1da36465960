"""The loss and the gradient norm of steps 1 to 5 agree over topologies and numbers of
micro-batches, whether or not dp divides the samples of a step. A pipeline draws its schedule and its run."""
import os
import re
import sys
import tempfile
import xml.dom.minidom

from captioner_runs import Captioner, SMALL, TOPOLOGIES, compare

PIPELINE = ("tp=2,dp=2", "tp=2,cp=1,dp=1,pp=2", 4)
STEP = re.compile(r"stage ([01]): (E|F|B|EB)[0-3], (\d+) to (\d+)")
COSTS = re.compile(r"^cost f=(\d+),b=(\d+),e=(\d+),eb=(\d+),head=(\d+)$", re.M)


def costs_of(steps):
    """What the line of costs must say of the steps of a picture."""
    def mean(kind, stages):
        times = [int(step[4]) - int(step[3]) for step in steps if step[2] == kind and step[1] in stages]
        return sum(times) // len(times)
    plain, last = ([mean(kind, stage) for kind in ("F", "B")] for stage in "01")
    return [*plain, mean("E", "01"), mean("EB", "01"), max(0, sum(last) - sum(plain)) // 3]


def picture_faults(folder, printed):
    """What is wrong with the two pictures of a pipeline of two stages and four micro-batches, in words."""
    for name in ("schedule.svg", "schedule_run.svg"):
        picture = xml.dom.minidom.parse(os.path.join(folder, name))
        titles = [title.firstChild.data for title in picture.getElementsByTagName("title")]
        steps = [STEP.fullmatch(title) for title in titles if title.startswith("stage")]
        texts = " ".join(text.firstChild.data for text in picture.getElementsByTagName("text"))
        if len(steps) != 32 or None in steps or any(int(step[3]) > int(step[4]) for step in steps):
            yield f"{name}: {titles}"
            return
        if not re.search(r"pp 2, 4 micro-batches: time \d+" + (" us," if "run" in name else ","), texts):
            yield f"{name}: {texts}"
    costs = COSTS.search(printed)
    if not costs or [int(cost) for cost in costs.groups()] != costs_of(steps):
        yield f"other costs than {costs_of(steps)}: {printed}"


def main():
    mpirun, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16, one_in=24)
        reference = captioner.train(TOPOLOGIES[0], *SMALL, "--steps", "5")
        if len(reference) != 5:
            sys.exit(f"the log has {len(reference)} lines, not 5")
        if reference[0]["loss"] == reference[4]["loss"]:
            sys.exit("the loss did not move: nothing is compared")
        wrong = 0
        for topology in TOPOLOGIES[1:]:
            seen = captioner.train(topology, *SMALL, "--steps", "5")
            wrong += compare(f"{topology[0]} -> {topology[1]}", seen, reference, 1e-4)
        done, seen = captioner.run(PIPELINE, *SMALL, "--steps", "5")
        wrong += compare("in stages", seen, reference, 1e-4)
        for fault in picture_faults(folder, done.stdout):
            print(fault)
            wrong += 1
        # One micro-batch instead of four: the same sums in another order.
        seen = captioner.train(TOPOLOGIES[1], *SMALL, "--micro-batches", "1", "--steps", "5")
        wrong += compare("one micro-batch", seen, reference, 1e-4)
        # Neither dp divides the batch or its parts, and the last of three parts is short.
        for batch, parts, topology in ((6, 1, TOPOLOGIES[1]), (13, 3, TOPOLOGIES[3])):
            odd = [*SMALL, "--global-batch", str(batch), "--micro-batches", str(parts)]
            reference = captioner.train(TOPOLOGIES[0], *odd, "--steps", "3")
            seen = captioner.train(topology, *odd, "--steps", "3")
            wrong += compare(f"batch of {batch} in {parts}, {topology[0]} -> {topology[1]}", seen,
                             reference, 1e-4)
        sys.exit(f"{wrong} values differ" if wrong else 0)


main()

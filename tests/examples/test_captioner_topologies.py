"""The loss and the gradient norm of steps 1 to 5 agree over topologies and numbers of
micro-batches, with mixtures of experts on several grids, and whether or not dp divides the samples of a step. A
pipeline draws its schedule and its run."""
import os
import re
import sys
import xml.dom.minidom

from captioner_runs import SMALL, TOPOLOGIES, compare, run_test

MIXED = [*SMALL, "--experts", "4,2"]
GRIDS = dict(zip(TOPOLOGIES, ("etp=1", "etp=2", "ep=4", "etp=2,ep=2"))) # of experts
PIPELINE = ("tp=2,dp=2", "tp=2,cp=1,dp=1,pp=2", 4)
# Of no machine: boxes of the planned picture are as long as these.
COSTS = ["--cost", "f=40,b=90,e=10,eb=20,head=7"]
LENGTHS = {("F", "0"): 40, ("F", "1"): 47, ("E", "0"): 10, ("E", "1"): 10, ("EB", "0"): 20, ("EB", "1"): 20}
STEP = re.compile(r"stage ([01]): (E|F|B|EB)[0-3], (\d+) to (\d+)")
MEASURED = re.compile(r"^cost (f=(\d+),b=(\d+),i=\d+,w=\d+,e=(\d+),eb=(\d+),head=(\d+))$", re.M)
RAN = re.compile(r"^ran time=(\d+),simulated=(\d+),saved_states=2,saved_bytes=[1-9]\d*,encoder_alive=3,"
                 r"encoder_bytes=[1-9]\d*,walked=[1-9]\d*$", re.M)


def costs_of(steps):
    """What the line of costs must say of the steps of a picture: f, b, e, eb, head."""
    def mean(kind, stages):
        times = [int(step[4]) - int(step[3]) for step in steps if step[2] == kind and step[1] in stages]
        return sum(times) // len(times)
    plain, last = ([mean(kind, stage) for kind in ("F", "B")] for stage in "01")
    return [*plain, mean("E", "01"), mean("EB", "01"), max(0, sum(last) - sum(plain)) // 3]


def drawn_steps(folder, name, unit=""):
    """The steps of a picture of two stages and four micro-batches, and what is wrong with it in words."""
    picture = xml.dom.minidom.parse(os.path.join(folder, name))
    titles = [title.firstChild.data for title in picture.getElementsByTagName("title")]
    steps = [STEP.fullmatch(title) for title in titles if title.startswith("stage")]
    texts = " ".join(text.firstChild.data for text in picture.getElementsByTagName("text"))
    faults = []
    if len(steps) != 32 or None in steps or any(int(step[3]) > int(step[4]) for step in steps):
        faults.append(f"{name}: {titles}")
    if not re.search(rf"pp 2, 4 micro-batches: time \d+{unit},", texts):
        faults.append(f"{name}: {texts}")
    return [step for step in steps if step], faults


def run_faults(printed, steps, costs):
    """What is wrong with the line about the run of the list, in words."""
    ran, most = RAN.search(printed), max(int(step[4]) for step in steps)
    forward, backward, *_ = costs
    if not ran or int(ran[1]) != most or not 4 * (forward + backward) <= int(ran[2]):
        return [f"no line says that the run took {most} us, at {costs}: {printed}"]
    return []


def schedule_faults(captioner, folder, printed):
    """What is wrong with the pictures of a pipeline and with its line of costs, in words."""
    planned, faults = drawn_steps(folder, "schedule.svg")
    for stage, kind, begin, end in (step.groups() for step in planned):
        if int(end) - int(begin) != LENGTHS.get((kind, stage), int(end) - int(begin)):
            faults.append(f"schedule.svg: a {kind} from {begin} to {end} with {COSTS}")
    steps, more = drawn_steps(folder, "schedule_run.svg", " us")
    costs = MEASURED.search(printed)
    if faults + more:
        return faults + more
    if not costs or [int(cost) for cost in costs.groups()[1:]] != costs_of(steps):
        return [f"other costs than {costs_of(steps)}: {printed}"]
    if captioner.launch(1, "--cost", costs[1], "--help").returncode != 0:
        return [f"--cost does not take {costs[1]}"]
    return run_faults(printed, steps, costs_of(steps))


def main(captioner):
    reference = captioner.train(TOPOLOGIES[0], *MIXED, "--steps", "5")
    if len(reference) != 5:
        sys.exit(f"the log has {len(reference)} lines, not 5")
    if reference[0]["loss"] == reference[4]["loss"]:
        sys.exit("the loss did not move: nothing is compared")
    wrong = 0
    for topology in TOPOLOGIES[1:]:
        seen = captioner.train(topology, *MIXED, "--expert-grid", GRIDS[topology], "--steps", "5")
        wrong += compare(f"{topology[0]} -> {topology[1]}", seen, reference, 1e-4)
    done, seen = captioner.run(PIPELINE, *MIXED, "--expert-grid", "ep=2", *COSTS, "--steps", "5")
    wrong += compare("in stages", seen, reference, 1e-4)
    for fault in schedule_faults(captioner, captioner.folder, done.stdout):
        print(fault)
        wrong += 1
    # One micro-batch instead of four: the same sums in another order.
    seen = captioner.train(TOPOLOGIES[1], *MIXED, "--micro-batches", "1", "--steps", "5")
    wrong += compare("one micro-batch", seen, reference, 1e-4)
    # Neither dp divides the batch or its parts, and the last of three parts is short.
    for batch, parts, topology in ((6, 1, TOPOLOGIES[1]), (13, 3, TOPOLOGIES[3])):
        odd = [*SMALL, "--global-batch", str(batch), "--micro-batches", str(parts)]
        reference = captioner.train(TOPOLOGIES[0], *odd, "--steps", "3")
        seen = captioner.train(topology, *odd, "--steps", "3")
        wrong += compare(f"batch of {batch} in {parts}, {topology[0]} -> {topology[1]}", seen,
                         reference, 1e-4)
    return wrong


run_test(main, one_in=60)

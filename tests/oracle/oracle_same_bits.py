"""The same bits on every topology: runs of mimo-oracle whose lines must be those of one rank.

A run prints a line for each step: the bits of the loss and of the norm, and the hashes of all
gradients and parameters. In the fixed order of additions the lines do not depend on the topology.
In the fast order they do, and so they do with any bug of the fixed order: otherwise this test sees
nothing."""
import itertools
import struct
import typing

ORDER = ["--same-bits", "8,4"]
QUANTITIES = ["loss", "grads", "norm", "params"]  # in the order in which a step makes them
CURVE_STEPS = 20
CURVES = [("SGD", ["--sgd"], 1e-5), ("AdamW", [], 1e-4)]
HOST_STEPS = 5
BUG_STEPS = 6  # the norm's bug needs five


class Topology(typing.NamedTuple):
    encoder: str
    llm: str
    more: str = ""

    def options(self):
        return ["--encoder", self.encoder, "--llm", self.llm, *self.more.split()]

    def text(self):
        return f"{self.encoder} -> {self.llm} {self.more}".rstrip()


ONE_RANK = Topology("tp=1,dp=1", "tp=1,cp=1,dp=1")
FEW = [Topology("tp=1,dp=8", "tp=8,cp=1,dp=1"),
       Topology("tp=4,dp=2", "tp=2,cp=2,dp=2", "--sp --executor routed"),
       Topology("tp=2,dp=4", "tp=2,cp=4,dp=1", "--executor zero-copy"),
       Topology("tp=1,dp=3", "tp=1,cp=1,dp=3"),
       Topology("tp=2,dp=2", "tp=1,cp=2,dp=2", "--micro-batches 3 --executor collective")]
ADAPTED_FEW = [Topology("tp=8,dp=1", "tp=4,cp=2,dp=1", "--sp --micro-batches 2")]
MANY = FEW + [Topology("tp=2,dp=1", "tp=2,cp=1,dp=1", "--sp"),
              Topology("tp=1,dp=4", "tp=4,cp=1,dp=1"),
              Topology("tp=1,dp=2", "tp=1,cp=2,dp=1"),
              Topology("tp=4,dp=1", "tp=1,cp=4,dp=1", "--executor routed"),
              Topology("tp=1,dp=2", "tp=1,cp=1,dp=2", "--executor collective"),
              Topology("tp=8,dp=1", "tp=1,cp=1,dp=8"),
              Topology("tp=1,dp=1", "tp=1,cp=1,dp=1", "--micro-batches 2"),
              Topology("tp=1,dp=1", "tp=1,cp=1,dp=1", "--micro-batches 3"),
              Topology("tp=2,dp=3", "tp=1,cp=2,dp=3", "--micro-batches 2"),
              Topology("tp=2,dp=6", "tp=2,cp=2,dp=3", "--sp --executor zero-copy"),
              Topology("tp=4,dp=2", "tp=2,cp=4,dp=1", "--sp --micro-batches 3")]
ADAPTED_MANY = ADAPTED_FEW + [Topology("tp=1,dp=8", "tp=8,cp=1,dp=1", "--sp"),
                              Topology("tp=4,dp=2", "tp=2,cp=2,dp=2", "--executor zero-copy"),
                              Topology("tp=1,dp=3", "tp=1,cp=1,dp=3", "--micro-batches 2")]


# Experts: ep 1, 2, 4 and 8, with and without tp, cp, several micro-batches and stages.
MIXED_FEW = [Topology("tp=1,dp=2", "tp=1,cp=1,dp=2", "--expert-grid etp=1,ep=2"),
             Topology("tp=2,dp=2", "tp=2,cp=2,dp=1", "--expert-grid etp=1,ep=4 --micro-batches 2"),
             Topology("tp=2,dp=4", "tp=2,cp=2,dp=2", "--expert-grid etp=1,ep=8 --sp"),
             Topology("tp=1,dp=8", "tp=4,cp=1,dp=2", "--expert-grid etp=1,ep=2"),
             Topology("tp=1,dp=3", "tp=1,cp=1,dp=3", "--expert-grid etp=1,ep=1"),
             Topology("tp=1,dp=4", "tp=1,cp=1,dp=2,pp=2",
                      "--expert-grid ep=2 --schedule zero-bubble --micro-batches 3")]

# An LLM in stages, beside one that is not.
STAGED = [Topology("tp=1,dp=2", "tp=1,cp=1,pp=2,dp=1", "--schedule zero-bubble"),
          Topology("tp=2,dp=4", "tp=2,cp=2,dp=1,pp=2", "--sp --micro-batches 3"),
          Topology("tp=1,dp=8", "tp=2,cp=1,dp=2,pp=2",
                   "--schedule zero-bubble --micro-batches 3 --encoder-alive 3"),
          Topology("tp=1,dp=4", "tp=2,pp=2", "--schedule interleaved:2 --micro-batches 2"),
          Topology("tp=1,dp=4", "tp=1,cp=1,dp=1,pp=4", "--micro-batches 2")]

# Four ranks on two hosts. Groups of tp and of cp lie within a host, and across both.
ON_HOSTS = [Topology("tp=2,dp=2", "tp=1,cp=2,dp=2", "--executor collective"),
            Topology("tp=4,dp=1", "tp=2,cp=1,dp=2", "--sp --executor routed"),
            Topology("tp=1,dp=4", "tp=2,cp=2,dp=1", "--sp --executor zero-copy")]

# Encoder and LLM are split alike, and no dp.
SPLIT = [Topology(f"tp={tp},dp=1", f"tp={tp},cp=1,dp=1") for tp in (2, 4, 8)]


def run_options(topology, steps, more):
    return [*topology.options(), *ORDER, "--train", str(steps), *more]


def lines_of(outcome):
    """{quantity: bits} of each step."""
    lines = [line.split() for line in outcome.said.splitlines() if line.startswith("step ")]
    return [dict(zip(line[2::2], line[3::2])) for line in lines]


def first_difference(ours, theirs):
    """(step, the quantities that differ in it); (0, []) where all lines are the same."""
    for step, (a, b) in enumerate(itertools.zip_longest(ours, theirs, fillvalue={}), 1):
        different = [q for q in QUANTITIES if not a or a.get(q) != b.get(q)]
        if different:
            return step, different
    return 0, []


def judge(topology, expected, outcome, same):
    step, different = first_difference(lines_of(outcome), expected)
    ended = outcome.status == 0 and len(expected) > 0
    right = ended and (step == 0) == same
    said = f"differs in step {step}: {', '.join(different)}" if step else "the same bits"
    if not ended:
        said = f"ended with status {outcome.status}: {outcome.said}{outcome.complaint}"
    print(f"{'' if right else 'WRONG: '}{topology.text():60} {said}, {outcome.seconds:.1f} s",
          flush=True)
    return right


def compare(launch_all, topologies, steps, more, same):
    """Each topology against one rank."""
    outcomes = launch_all([run_options(t, steps, more) for t in [ONE_RANK, *topologies]])
    expected = lines_of(outcomes[0])
    if outcomes[0].status != 0 or len(expected) != steps:
        print(f"one rank ended with status {outcomes[0].status}: {outcomes[0].said}"
              f"{outcomes[0].complaint}", flush=True)
        return [False]
    return [judge(t, expected, outcome, same) for t, outcome in zip(topologies, outcomes[1:])]


def check(launch_all, every):
    adapters = ["--adapters", "4"]
    steps = 100 if every else 10
    return (compare(launch_all, MANY if every else FEW, steps, [], True)
            + compare(launch_all, ADAPTED_MANY if every else ADAPTED_FEW, steps, adapters, True)
            + compare(launch_all, STAGED, steps, adapters, True)
            + compare(launch_all, MIXED_FEW, steps, ["--experts", "8,2"], True)
            + compare(launch_all, MANY if every else FEW, 2, ["--fast"], False))


def check_hosts(launch_all, launch_alone):
    """On two hosts of two ranks, where rows of a zero-copy bridge go partly through shared memory and
    partly over the network. Without a sign of that the ranks were on one host."""
    alone = launch_alone(run_options(ON_HOSTS[-1], 1, []))
    apart = "rank 0 reaches the buffers of 2 ranks out of 4" in alone.complaint
    print(f"{'' if apart else 'WRONG: '}buffers {'partly' if apart else 'not'} out of reach"
          f"{'' if apart else ': ' + alone.said + alone.complaint}", flush=True)
    return [apart] + compare(launch_all, ON_HOSTS, HOST_STEPS, [], True)


def losses_of(outcome):
    return [struct.unpack(">d", bytes.fromhex(line["loss"]))[0] for line in lines_of(outcome)]


def judge_curve(topology, name, limit, curve, outcome):
    """The largest relative gap of the losses."""
    losses = losses_of(outcome)
    gap = max((abs(a - b) / abs(b) for a, b in zip(losses, curve)), default=float("inf"))
    right = outcome.status == 0 and len(losses) == CURVE_STEPS == len(curve) and gap <= limit
    print(f"{'' if right else 'WRONG: '}{topology.text():60} {name}: {len(losses)} losses, largest "
          f"gap {gap:.1e}, limit {limit:.0e}, {outcome.seconds:.1f} s", flush=True)
    return right


def check_curves(launch_all):
    """Loss curves in the fast order, with adapters of rank 4: at tp 2, 4 and 8 as at tp 1. A curve
    that hardly moves would prove nothing."""
    verdicts = []
    for name, more, limit in CURVES:
        options = [run_options(t, CURVE_STEPS, ["--fast", "--adapters", "4", *more])
                   for t in [ONE_RANK, *SPLIT]]
        outcomes = launch_all(options)
        curve = losses_of(outcomes[0])
        moved = len(curve) > 0 and curve[-1] < 0.95 * curve[0]
        print(f"{'' if moved else 'WRONG: '}{name}: loss {curve[:1]} to {curve[-1:]}", flush=True)
        verdicts += [moved] + [judge_curve(t, name, limit, curve, outcome)
                               for t, outcome in zip(SPLIT, outcomes[1:])]
    return verdicts


def judge_bug(row, alone, outcome):
    """A bug shows first in its quantity, where the topology differs from one rank with the bug."""
    name, quantity, topology = row[:3]
    step, different = first_difference(lines_of(outcome), lines_of(alone))
    caught = alone.status == 0 and outcome.status == 0 and different[:1] == [quantity]
    said = f"first in {different[0]}, step {step}" if different else "nowhere"
    if alone.status != 0 or outcome.status != 0:
        said = f"{alone.said}{alone.complaint}{outcome.said}{outcome.complaint}"
    print(f"{name:18} {'caught' if caught else 'NOT CAUGHT in ' + quantity + ', but'} {said}; "
          f"{topology}, {outcome.seconds:.1f} s", flush=True)
    return caught


def check_bugs(launch_all, rows):
    options = []
    for name, _, topology, *_ in rows:
        more = ["--mutate", name]
        adapted = topology.split()[4:]  # behind both grids
        options += [run_options(ONE_RANK, BUG_STEPS, adapted + more),
                    [*topology.split(), *ORDER, "--train", str(BUG_STEPS), *more]]
    outcomes = launch_all(options)
    return [judge_bug(row, *outcomes[2 * i:2 * i + 2]) for i, row in enumerate(rows)]

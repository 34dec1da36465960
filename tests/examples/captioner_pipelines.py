"""With --same-bits 8 ranks under pp 2 and 4 write the checkpoint of one rank, by every schedule, in three phases, with
few encoder groups at once, with one more than the least, and without limit; also where a run goes on under another
pp, with adapters, and with mixtures of experts, there with a forward beside a backward too. For
scripts/pipeline.sh; the suite has a short form (test_captioner_same_bits.py, test_captioner_experts.py)."""
import itertools

from captioner_runs import Checks, run_test

SIZES = ["--image-size", "16", "--hidden", "32", "--layers", "1,5", "--seq", "80", "--lr", "0.01", "--global-batch",
         "13", "--seed", "7", "--same-bits=8,4"]
GRIDS = [("tp=2,dp=4", "tp=2,cp=1,dp=2,pp=2"), ("tp=1,dp=8", "tp=1,cp=2,dp=1,pp=4"),
         ("tp=1,dp=8", "pp=4,tp=1,cp=1,dp=2")]
# Three phases of a schedule are one group of all micro-batches. Few is the least limit on the grids above, or more.
SCHEDULES = [["--schedule", "three-phases"],
             *(["--schedule", kind, *limit] for kind in ("1f1b", "zero-bubble")
               for limit in (["--encoder-group", "7"], ["--encoder-alive", "4"], [], ["--encoder-alive", "0"]))]
# A multiple of pp, the last of which is not full.
RING = ["--steps", "20", "--global-batch", "23", "--micro-batches", "12"]
RING_SCHEDULES = [["--schedule", "interleaved:2", *limit]
                  for limit in (["--encoder-group", "12"], ["--encoder-alive", "8"], [], ["--encoder-alive", "0"])]
# A forward beside a backward, of which the first stage needs one group more.
OVERLAP = [["--schedule", "1f1b", "--overlap", *limit]
           for limit in (["--encoder-group", "7"], ["--encoder-alive", "5"], ["--encoder-alive", "0"])]
ADAPTERS = ["--lora-rank", "4", "--lora-targets", "all"]
EXPERTS = ["--experts", "8,2"]


def shared(schedules):
    """With experts, which two ranks of a stage share."""
    return [[*schedule, "--expert-grid", "ep=2"] for schedule in schedules]


class Pipelines(Checks):
    def train(self, name, ranks, grids, *flags):
        self.captioner.succeeds(ranks, *self.captioner.flags_of(grids, *SIZES, "--save", self.path(name), *flags))
        return self.path(name)

    def expect_same(self, one, other, words):
        same = self.same_file(one, other)
        print(f"{'ok  ' if same else 'FAIL'} {words}", flush=True)
        self.wrong += not same

    def compare(self, schedules, *flags):
        one = self.train("one", 1, ("tp=1,dp=1", "tp=1,cp=1,dp=1"), *flags)
        for grids, schedule in itertools.product(GRIDS, schedules):
            other = self.train("other", 8, grids, "--micro-batches", "7", *schedule, *flags)
            self.expect_same(one, other, f"{grids[0]} -> {grids[1]} {' '.join([*schedule, *flags])}")
        return one

    def go_on(self, one):
        """In three parts, each under another pp."""
        begun = []
        for i, (grids, steps) in enumerate(zip(GRIDS, ("6", "13", "20"))):
            path = self.train(f"part {i}", 8, grids, "--micro-batches", str(3 + i), "--steps", steps, *begun)
            begun = ["--resume", path]
        self.expect_same(one, path, "resumed under another pp, twice")


def main(captioner):
    pipelines = Pipelines(captioner)
    pipelines.go_on(pipelines.compare(SCHEDULES, "--steps", "20"))
    pipelines.compare(RING_SCHEDULES, *RING)
    pipelines.compare(SCHEDULES[::3], "--steps", "20", *ADAPTERS)
    pipelines.compare(shared(SCHEDULES), "--steps", "20", *EXPERTS)
    pipelines.compare(shared(OVERLAP), "--steps", "20", *EXPERTS)
    pipelines.compare(shared([[*RING_SCHEDULES[2], "--overlap"]]), *RING, *EXPERTS)
    pipelines.compare(shared(OVERLAP[:1]), "--steps", "20", *EXPERTS, *ADAPTERS)
    pipelines.compare(shared(RING_SCHEDULES), *RING, *EXPERTS)
    pipelines.compare(shared(SCHEDULES[::3]), "--steps", "20", *EXPERTS, *ADAPTERS)
    return pipelines.wrong


run_test(main, one_in=60)

"""The loss and the gradient norm of steps 1 to 5 agree over topologies, micro-batches included."""
import sys
import tempfile

from captioner_runs import Captioner, SMALL, TOPOLOGIES, compare


def main():
    mpirun, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16)
        reference = captioner.train(TOPOLOGIES[0], *SMALL, "--steps", "5")
        if len(reference) != 5:
            sys.exit(f"the log has {len(reference)} lines, not 5")
        if reference[0]["loss"] == reference[4]["loss"]:
            sys.exit("the loss did not move: nothing is compared")
        wrong = 0
        for topology in TOPOLOGIES[1:]:
            seen = captioner.train(topology, *SMALL, "--steps", "5")
            wrong += compare(f"{topology[0]} -> {topology[1]}", seen, reference, 1e-4)
        # One micro-batch instead of four: the same sums in another order.
        whole = [flag if flag != "4" else "1" for flag in SMALL]
        seen = captioner.train(TOPOLOGIES[1], *whole, "--steps", "5")
        wrong += compare("one micro-batch", seen, reference, 1e-4)
        sys.exit(f"{wrong} values differ" if wrong else 0)


main()

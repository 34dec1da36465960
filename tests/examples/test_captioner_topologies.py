"""The loss and the gradient norm of steps 1 to 5 agree over topologies and numbers of
micro-batches, whether or not dp divides the samples of a step."""
import sys
import tempfile

from captioner_runs import Captioner, SMALL, TOPOLOGIES, compare


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

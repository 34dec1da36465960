"""3 steps, save, 2 more: the same as 5 steps, on the same topology and on others."""
import os
import sys
import tempfile

from captioner_runs import Captioner, SMALL, TOPOLOGIES, compare


def main():
    mpirun, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16)
        saved = os.path.join(folder, "saved.safetensors")
        home = TOPOLOGIES[1]
        straight = captioner.train(home, *SMALL, "--steps", "5")
        captioner.train(home, *SMALL, "--steps", "3", "--save", saved)
        wrong = 0
        for topology in (home, TOPOLOGIES[0], TOPOLOGIES[2], TOPOLOGIES[3]):
            seen = captioner.train(topology, *SMALL, "--steps", "5", "--resume", saved)
            tolerance = 1e-5 if topology is home else 1e-4
            wrong += compare(f"resumed on {topology[0]} -> {topology[1]}", seen, straight[3:],
                             tolerance)
        sys.exit(f"{wrong} values differ" if wrong else 0)


main()

#!/usr/bin/env python3
"""Nothing that is installed contains a mutation.

    mutations_stay_out.py MIMO_ORACLE LIBRARY...

The names of --list-mutations are in the program, which has the mutations, and in no library.
"""
import subprocess
import sys


def main():
    oracle, libraries = sys.argv[1], sys.argv[2:]
    run = subprocess.run([oracle, "--list-mutations"], capture_output=True, check=True, timeout=60)
    names = [line.split(b"\t")[0] for line in run.stdout.splitlines()] + [b"mimo_mutated"]
    wrong = []
    for path in [oracle, *libraries]:
        with open(path, "rb") as f:
            content = f.read()
        for name in names:
            if (name + b"\0" in content) != (path == oracle):
                wrong.append(f"{path}: '{name.decode()}' is {'not ' * (path == oracle)}there")
    print("\n".join(wrong) or f"{len(names)} names looked for in {len(libraries)} libraries")
    return 1 if wrong or len(names) < 2 or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The switch for checks (src/core/check_off.c) is in no library.

    switch_stays_out.py PROGRAM LIBRARY...

PROGRAM contains the switch, which shows that the search would find it.
"""
import sys

NAMES = [b"MIMO_TEST_CHECK_OFF", b"MIMO_TEST_CHECK_LOG", b"mimo_check_is_off"]


def main():
    program, libraries = sys.argv[1], sys.argv[2:]
    wrong = []
    for path in [program, *libraries]:
        with open(path, "rb") as f:
            content = f.read()
        for name in NAMES:
            if (name in content) != (path == program):
                wrong.append(f"{path}: '{name.decode()}' is {'not ' * (path == program)}there")
    print("\n".join(wrong) or f"{len(NAMES)} names looked for in {len(libraries)} libraries")
    return 1 if wrong or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())

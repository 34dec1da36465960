#!/usr/bin/env python3
"""Print what the sanitizers found in a folder of reports. Exit status 1 where they found something.

A leak counts where a frame of its stack lies in this source tree. Open MPI unloads its plugins
before the leak check, so their leaks have no names that a suppression could match.
"""
import os
import re
import sys

OURS = re.compile(r"^ +#\d+ .* (?:\.\./|/.*/)(?:src|grid|bridge|tools|examples|tests|bench)/\S+:\d+",
                  re.M)


def judge(text):
    """The part of a report that concerns this source tree."""
    if "ERROR: LeakSanitizer" not in text:
        return text.strip()
    leaks = re.split(r"\n\n+", text)
    return "\n\n".join(leak for leak in leaks if " leak of " in leak and OURS.search(leak))


def main():
    found = 0
    for name in sorted(os.listdir(sys.argv[1])):
        with open(os.path.join(sys.argv[1], name), encoding="utf-8", errors="replace") as f:
            findings = judge(f.read())
        if findings:
            found += 1
            print(f"--- {name}\n{findings}\n")
    print(f"{found} processes with findings" if found else "the sanitizers found nothing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs the Python program of README.md as printed, as the README says, and compares the output.

    torch_readme.py README
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
programs = [block for block in blocks if block.startswith("import ")]  # others are lines of one
runs = re.findall(r"^\$ python ([^\n]*) program.py \| sort\n(.*?)^```", text, re.M | re.S)
if len(programs) != 1 or len(runs) != 1:
    sys.exit(f"{len(programs)} programs and {len(runs)} runs in {sys.argv[1]}")
if len(programs[0].splitlines()) > 15:
    sys.exit(f"the README's program has {len(programs[0].splitlines())} lines: more than 15")
arguments, expected = runs[0]
env = dict(os.environ)
env.pop("PYTHONUNBUFFERED", None)  # with it a line is several writes, and lines of ranks mix
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "program.py"
    path.write_text(programs[0], encoding="utf-8")
    run = subprocess.run([sys.executable, *arguments.split(), path], text=True, check=False,
                         stdout=subprocess.PIPE, env=env)
got = "".join(sorted(run.stdout.splitlines(keepends=True)))
if run.returncode or got != expected:
    sys.exit(f"exit status {run.returncode}; wanted\n{expected}and got\n{got}")

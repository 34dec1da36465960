#!/usr/bin/env python3
"""mypy --strict over the package, and over typed_calls.py, which calls it. Exit status 77 (skipped) where mypy is missing.

    torch_types.py FOLDER    FOLDER: that has mimo_bridge
"""
import importlib.util
import os
import subprocess
import sys

if not importlib.util.find_spec("mypy"):
    print("skipped: no mypy")
    sys.exit(77)
os.environ.pop("PYTHONPATH", None)
os.environ["MYPYPATH"] = os.path.dirname(os.path.abspath(__file__))
command = ["-m", "mypy", "--strict", "--config-file", "../pyproject.toml", "-p", "mimo_bridge", "-m", "typed_calls"]
sys.exit(subprocess.run([sys.executable, *command], cwd=sys.argv[1], check=False).returncode)

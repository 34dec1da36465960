"""Who waits for whom in a run that stands still: `python -m mimo_bridge.why` is mimo-why.

The wheel carries the program beside its libraries; elsewhere it is the one in PATH.
"""
from __future__ import annotations

import os
import pathlib
import shutil
import sys

__all__ = ["program"]


def program() -> str:
    """The path of mimo-why. FileNotFoundError where there is none. Local."""
    beside = pathlib.Path(__file__).parent / "lib" / "mimo-why"
    found = str(beside) if beside.exists() else shutil.which("mimo-why")
    if found is None:
        raise FileNotFoundError(f"mimo-why is neither {beside} nor in PATH")
    return found


if __name__ == "__main__":
    path = program()
    os.execv(path, ["mimo-why", *sys.argv[1:]])

"""Finds and opens the shared libraries: libmimo-bridge, and libmimo-bridge-mpi when it is asked for.

They are looked for in MIMO_BRIDGE_LIBRARY (a folder, or the file of libmimo-bridge), in `lib` of
this package, and where the dynamic linker looks.
"""
from __future__ import annotations

import ctypes
import os
import pathlib

# The release that this package belongs to. Before 1.0 the soname has the minor version.
VERSION = (0, 3, 0)
SONAME = f"{VERSION[0]}.{VERSION[1]}"


def _folders() -> list[pathlib.Path]:
    chosen = os.environ.get("MIMO_BRIDGE_LIBRARY")
    if chosen:
        path = pathlib.Path(chosen)
        return [path if path.is_dir() else path.parent]
    return [pathlib.Path(__file__).parent / "lib"]


def open_library(name: str) -> ctypes.CDLL:
    """Open lib`name`.so of this release. ImportError says where it was looked for, and why not."""
    file = f"lib{name}.so.{SONAME}"
    why = []
    for folder in _folders():
        path = folder / file
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            why.append(str(error))
    if not os.environ.get("MIMO_BRIDGE_LIBRARY"):
        try:
            return ctypes.CDLL(file)
        except OSError as error:
            why.append(str(error))
    raise ImportError(f"mimo_bridge: {file} can't be opened: {'; '.join(why)}. "
                      "MIMO_BRIDGE_LIBRARY can name its folder.")

"""Opens the shared libraries: libmimo-bridge, and libmimo-bridge-mpi from the same folder when it is asked for.

libmimo-bridge is what the environment variable MIMO_BRIDGE_LIBRARY names: a file, or a folder that has it. A
value that is neither is an error. Without the variable it is that in `lib` of this package, which a wheel has,
and in a package without `lib` that which the dynamic linker finds.
"""
from __future__ import annotations

import ctypes
import os
from typing import Any

# The release that this package belongs to. Before 1.0 the soname has the minor version.
VERSION = (0, 4, 0)
SONAME = f"{VERSION[0]}.{VERSION[1]}"
CORE, MPI = f"libmimo-bridge.so.{SONAME}", f"libmimo-bridge-mpi.so.{SONAME}"
VARIABLE = "MIMO_BRIDGE_LIBRARY"


class _Place(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def open_core() -> ctypes.CDLL:
    """Open libmimo-bridge. Its _name is an absolute path. ImportError says what was looked for, and why it is
    not the library."""
    path, named = _named() or (_packaged(), "")
    library = _open(path or CORE, named or f"{VARIABLE} can name its folder")
    try:
        file = _file_of(library.mimo_version)
    except AttributeError as error:
        raise _error(path or CORE, str(error), named) from None
    if path and not os.path.samefile(path, file):
        raise _error(path, f"it has mimo_version from {file}", named)
    return _open(file, named)  # again, by its path


def open_mpi(core: ctypes.CDLL) -> ctypes.CDLL:
    """Open the libmimo-bridge-mpi beside libmimo-bridge. ImportError where there is none, or where it would work
    with another libmimo-bridge of this process."""
    path = os.path.join(os.path.dirname(core._name), MPI)
    library = _open(path)
    if _address(library.mimo_version) != _address(core.mimo_version):
        raise _error(path, f"it works with {_file_of(library.mimo_version)}, and not with {core._name}")
    return library


def _named() -> tuple[str, str] | None:
    """The path of the file that the variable names, and words about the variable for errors."""
    value = os.environ.get(VARIABLE)
    if value is None:
        return None
    named = f"environment {VARIABLE}={value!r}"
    path = os.path.abspath(value)
    if value and os.path.isfile(path):
        return path, named
    if not value or not os.path.isdir(path):
        raise ImportError(f"mimo_bridge: {named} is neither a folder nor a file")
    file = os.path.join(path, CORE)
    if not os.path.isfile(file):
        raise ImportError(f"mimo_bridge: {named}: the folder {path} has no {CORE}")
    return file, named


def _packaged() -> str | None:
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
    return os.path.join(folder, CORE) if os.path.isdir(folder) else None


def _open(file: str, hint: str = "") -> ctypes.CDLL:
    try:
        return ctypes.CDLL(file)
    except OSError as error:
        raise _error(file, str(error).removeprefix(f"{file}: "), hint) from None


def _error(file: str, why: str, hint: str = "") -> ImportError:
    return ImportError(f"mimo_bridge: {file} can't be opened: {why}" + (f" ({hint})" if hint else ""))


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _file_of(function: Any) -> str:
    """The absolute path of the file that has a function: the library that was asked for it, or one that this needs."""
    place = _Place()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(_address(function)), ctypes.byref(place))
    return os.path.abspath(os.fsdecode(place.file))

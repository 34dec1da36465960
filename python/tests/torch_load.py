#!/usr/bin/env python3
"""Which shared libraries the package opens, and its sentence where it opens none. Needs no torch.

    torch_load.py LIBRARY [MPI-LIBRARY]

Each case is a process of its own, in a folder with copies of the libraries: both in `both`, libmimo-bridge
alone in `alone`, none in `none`. Copies of the package are in `plain`, in `wheel` with libmimo-bridge, and in `broken`
with an empty folder for it.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "mimo_bridge"
sys.path.append(str(PACKAGE))
from _load import CORE, MPI  # noqa: E402

# The package without its __init__, which imports torch.
PROGRAM = """
import ctypes, importlib, os, sys, types
sys.modules["mimo_bridge"] = package = types.ModuleType("mimo_bridge")
package.__path__ = [sys.argv[1]]
{before}
try:
    core = importlib.import_module("mimo_bridge._c").lib
    print("core", os.path.relpath(core._name))
    {between}
    print("mpi", os.path.relpath(importlib.import_module("mimo_bridge._load").open_mpi(core)._name))
except ImportError as error:
    print("ImportError", error)
"""


class Bed:
    """A folder with copies of the libraries of a build and of the package."""

    def __init__(self, folder, core, mpi=None):
        self.folder, self.mpi, self.wrong = pathlib.Path(folder).resolve(), mpi is not None, 0
        for name in "plain", "wheel", "broken":
            shutil.copytree(PACKAGE, self.folder / name / "mimo_bridge", ignore=shutil.ignore_patterns("__pycache__"))
        files = {CORE: core, MPI: mpi}
        for name, has in {"both": [CORE, MPI], "alone": [CORE], "none": [], "wheel/mimo_bridge/lib": [CORE],
                          "broken/mimo_bridge/lib": []}.items():
            (self.folder / name).mkdir()
            for file in has:
                if files[file]:
                    shutil.copy(files[file], self.folder / name / file)
        shutil.copy(core, self.folder / "both/renamed.so")

    def expect(self, wanted, value=None, linker="", package="plain", before="", between=""):
        """`value`: of MIMO_BRIDGE_LIBRARY, `linker`: of LD_LIBRARY_PATH."""
        env = {name: text for name, text in os.environ.items() if name != "MIMO_BRIDGE_LIBRARY"}
        folders = filter(None, [linker, os.environ.get("LD_LIBRARY_PATH")])  # CUDA's, for one
        env |= {"LD_LIBRARY_PATH": ":".join(folders), "PYTHONDONTWRITEBYTECODE": "1"}
        if value is not None:
            env["MIMO_BRIDGE_LIBRARY"] = value
        program = PROGRAM.format(before=before, between=between)
        run = subprocess.run([sys.executable, "-c", program, self.folder / package / "mimo_bridge"], cwd=self.folder,
                             env=env, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        got = run.stdout.replace(f"{self.folder}/", "").splitlines()
        good = len(got) == len(wanted) and all(part in line for part, line in zip(wanted, got))
        self.wrong += not good
        print("ok  " if good else "FAIL", f"{value=} {linker=} {package=}: {got}", *[] if good else [f"wanted {wanted}"])


def named(bed):
    """What the variable names is opened, or nothing."""
    both = str(bed.folder / "both")
    opened = [f"core both/{CORE}", f"mpi both/{MPI}" if bed.mpi else "ImportError mimo_bridge: both/"]
    # The linker would find another one each time.
    for value in both, "both", "both/", "none/../both", f"both/{CORE}", f"{both}/{CORE}":
        bed.expect(opened, value, linker=str(bed.folder / "alone"))
    bed.expect(["core both/renamed.so", *opened[1:]], "both/renamed.so")
    for value in "both/typo", "typo", "", f"{both}/libmimo-bridge.so.99", " both":
        bed.expect([f"ImportError mimo_bridge: environment MIMO_BRIDGE_LIBRARY={value!r}".replace(f"{bed.folder}/", "")
                    + " is neither a folder nor a file"], value, linker=both)
    for value, folder in {".": bed.folder, "none": "none"}.items():
        bed.expect([f"ImportError mimo_bridge: environment MIMO_BRIDGE_LIBRARY='{value}': the folder {folder} has no "
                    f"{CORE}"], value, linker=both)
    (bed.folder / "file").write_text("no library")
    bed.expect(["ImportError mimo_bridge: file can't be opened: file too short (environment "
                "MIMO_BRIDGE_LIBRARY='file')"], "file", linker=both)


def not_named(bed):
    """That of a wheel, otherwise that of the linker, also by a relative path."""
    both = str(bed.folder / "both")
    lib = "wheel/mimo_bridge/lib"
    bed.expect([f"core {lib}/{CORE}", f"ImportError mimo_bridge: {lib}/"], package="wheel", linker=both)
    bed.expect([f"ImportError mimo_bridge: broken/mimo_bridge/lib/{CORE} can't be opened: "], package="broken",
               linker=both)
    nowhere = "import mimo_bridge._load; mimo_bridge._load.CORE = 'libmimo-bridge.so.nowhere'"
    bed.expect(["ImportError mimo_bridge: libmimo-bridge.so.nowhere can't be opened: "], before=nowhere)
    bed.expect([f"core alone/{CORE}", "ImportError mimo_bridge: alone/"], linker="alone:both")


def one_library(bed):
    """libmimo-bridge-mpi lies beside libmimo-bridge, and works with it."""
    both = bed.folder / "both"
    moved = "os.chdir('both')"  # the linker has found it by a relative path
    bed.expect([f"core both/{CORE}", f"mpi {MPI}"], linker="both", between=moved)
    bed.expect([f"core alone/{CORE}", f"ImportError mimo_bridge: alone/{MPI} can't be opened: cannot open"], "alone",
               linker=str(both))
    another = f"another = ctypes.CDLL('{bed.folder / 'alone' / CORE}')"
    bed.expect([f"core both/{CORE}", f"ImportError mimo_bridge: both/{MPI} can't be opened: it works with "
                f"alone/{CORE}, and not with both/{CORE}"], "both", before=another)
    bed.expect([f"ImportError mimo_bridge: both/{MPI} can't be opened: it has mimo_version from both/{CORE}"],
               f"both/{MPI}", linker=str(both))


def main():
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(folder, *sys.argv[1:])
        named(bed)
        not_named(bed)
        if bed.mpi:
            one_library(bed)
    return 1 if bed.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

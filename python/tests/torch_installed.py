#!/usr/bin/env python3
"""Installs the package as its users do, and tries it there: its files, `python -m mimo_bridge`, each of its modules,
and the README's program. That one takes long: it runs where pip installs, as Meson installs the same files, or where
pip can't build and so is skipped.

    torch_installed.py pip WHAT [ARGUMENT...]    WHAT: a source tree, or a wheel; ARGUMENT: of pip install
    torch_installed.py meson BUILD               BUILD: a build folder
    torch_installed.py --without-mpi ...         as where Open MPI is missing: no ranks

Python is a fresh environment each time. It has torch, and what pip needs to build, from the Python that runs
this. Exit status 77 (skipped) where that can't build.
"""
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
ROOT = TESTS.parent.parent
SOURCE = TESTS.parent / "mimo_bridge"
sys.path.append(str(SOURCE))
from _load import CORE, MPI, VERSION  # noqa: E402


class Place:
    """A fresh environment of Python below a folder. `package` and `libraries` are set by who installs."""

    package = libraries = None

    def __init__(self, folder):
        self.folder = folder
        self.env = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "MIMO_BRIDGE_LIBRARY")}
        self.python = folder / "venv/bin/python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.site, = folder.glob("venv/lib/python*/site-packages")
        torch = pathlib.Path(importlib.util.find_spec("torch").origin)
        (self.site / "torch.pth").write_text(f"{torch.parent.parent}\n")

    def expect(self, status, words, *command):
        """The exit status of a program there, and words of what it prints."""
        done = subprocess.run([self.python, *command], env=self.env, cwd=self.folder, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(f"$ python {' '.join(map(str, command))}\n{done.stdout}", flush=True)
        missing = [word for word in words if word not in done.stdout]
        if done.returncode != status or missing:
            sys.exit(f"exit status {done.returncode}, wanted {status}; not printed: {missing}")

    def forget_bytecode(self):
        """with_torch.sh keeps bytecode for the next run, which has another folder."""
        if sys.pycache_prefix:
            shutil.rmtree(pathlib.Path(sys.pycache_prefix, *self.folder.parts[1:]), ignore_errors=True)


def pip_install(place, what, *arguments):
    pip = [sys.executable, "-m", "pip", "--python", place.python, "install", "--quiet", "--disable-pip-version-check"]
    if os.path.isdir(what):
        require_builder()
        arguments = [f"-Cbuild-dir={place.folder / 'build'}", *arguments]
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", "--no-build-isolation", what, *arguments],
                   env=place.env, cwd=place.folder, check=True)  # a folder of its own, as library_without_mpi.sh
    place.package = place.site / "mimo_bridge"
    place.libraries = place.package / "lib"
    version = ".".join(map(str, VERSION))
    if not (place.site / f"mimo_bridge-{version}.dist-info").is_dir():
        sys.exit(f"pip installed another version than {version}: {[path.name for path in place.site.iterdir()]}")


def has_builder():
    pip = importlib.metadata.version("pip")
    return importlib.util.find_spec("mesonpy") and tuple(map(int, pip.split(".")[:2])) >= (23, 1)


def require_builder():
    if not has_builder():
        print("skipped: no meson-python, or a pip before 23.1: scripts/torch_venv.sh makes an environment that has both")
        sys.exit(77)


def meson_install(place, build):
    root = place.folder / "root"
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root], check=True)
    place.package, = (file.parent for file in root.rglob("mimo_bridge/__init__.py"))
    place.libraries, = (file.parent for file in root.rglob(CORE))
    (place.site / "mimo_bridge.pth").write_text(f"{place.package.parent}\n")
    place.env["MIMO_MEGATRON"] = ""  # its import takes seconds, and pip installs the same files
    place.env["MIMO_TORCHTITAN"] = ""
    # Meson's test has set the build folder, and with_torch.sh that of CUDA.
    others = [path for path in place.env.get("LD_LIBRARY_PATH", "").split(":") if path and
              os.path.realpath(path) != os.path.realpath(build)]
    place.env["LD_LIBRARY_PATH"] = ":".join([str(place.libraries), *others])


def files_of(package):
    return {file.name: file.read_bytes() for file in package.iterdir() if file.suffix in (".py", ".typed")}


def try_it(place, with_mpi, readme):
    wanted, found = files_of(SOURCE), files_of(place.package)
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        sys.exit(f"of python/mimo_bridge these are missing or other files in {place.package}: {', '.join(wrong)}")
    if with_mpi:
        place.expect(0, ["self-test       ok: "], "-m", "mimo_bridge")
    if with_mpi and readme:
        place.expect(0, [], TESTS / "torch_readme.py", ROOT / "README.md")
    (place.libraries / MPI).unlink(missing_ok=not with_mpi)  # what remains is an installation without MPI
    version = ".".join(map(str, VERSION))
    place.expect(1, [f"package {place.package}\n", f"mimo_bridge     {version}\n",
                     f"libmimo-bridge  {version} ({place.libraries / CORE})\n", "MPI             not found",
                     "self-test       not possible: tensors in host memory need MPI"], TESTS / "installed_modules.py")


def main(words):
    with_mpi = words[0] != "--without-mpi"
    way, *arguments = words[0 if with_mpi else 1:]
    with tempfile.TemporaryDirectory() as folder:
        place = Place(pathlib.Path(folder).resolve())
        try:
            {"pip": pip_install, "meson": meson_install}[way](place, *arguments)
            try_it(place, with_mpi, way == "pip" or not has_builder())
        finally:
            place.forget_bytecode()


if __name__ == "__main__":
    main(sys.argv[1:])

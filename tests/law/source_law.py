#!/usr/bin/env python3
"""The rules that the source tree keeps, checked by reading it.

    source_law.py ROOT          check the tree; one line per broken rule, exit status 1
    source_law.py --self-test   break every rule in a small tree and see that each is noticed

Rules: who may include whom (docs/architecture.md), what examples may include and use, which folders are
pure, that no two files call each other, which file knows executors, where MPI, NCCL and CUDA may be named, unique
file names, the length of functions and of their parameter lists, switches over dtypes, which files are compiled again
for tests, that headers and Python files are installed, that every test of several ranks is launched, that public calls
of all ranks have a range for profilers, no machine paths or leftovers.
object_law.py has the rules of what files need.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

CORE, RING, DEVICE, COMM, GRID = "core", "ring", "device", "comm", "grid"
PARTITION, ALIGNMENT, LAYOUT = "partition", "alignment", "layout"
SCHEDULE, BALANCE = "schedule", "balance"
PLAN, ROUTED, COLLECTIVE = "plan", "bridge/routed", "bridge/collective"
MOVE, BATCH, VERIFY, BRIDGE = "move", "bridge/batch", "bridge/verify", "bridge"
GRADIENT = "gradient"
DISPATCH, ROUTE, MESSAGES, DIRECT = "dispatch", "dispatch/route", "dispatch/messages", "dispatch/direct"
OPS, KERNELS, EXCHANGE = "train/nn/ops", "train/nn/kernels", "train/nn/exchange"
PARAMS, LAYERS, NN = "train/nn/params", "train/nn/layers", "train/nn"
TOOLS, FORMATS, PLACE = "train/support", "train/formats", "train/device"
PIPELINE, MODEL = "train/pipeline", "train/model"
OPTIONS = "tools/options"
SUPPORT, DATA, PICTURES = "captioner/support", "captioner/data", "captioner/pictures"
DIFF, CAPTIONS, TRAINING = "captioner/diff", "captioner/captions", "captioner/training"
SURVIVAL = "captioner/survival"

# What all of the bridge may include. An operation reaches its executor by the table alone, and no
# executor knows another one.
BELOW_CALLS = {CORE, DEVICE, COMM, GRID, PARTITION, LAYOUT, MOVE, BRIDGE}
LIBRARY = BELOW_CALLS | {RING, ALIGNMENT, SCHEDULE, BALANCE, PLAN, BATCH, ROUTED, COLLECTIVE, VERIFY, GRADIENT, DISPATCH,
                         ROUTE, MESSAGES, DIRECT}
ALL_NN = {OPS, KERNELS, EXCHANGE, PARAMS, LAYERS, NN}
ALL_TRAIN = ALL_NN | {TOOLS, FORMATS, PLACE, PIPELINE, MODEL}
# Which parts of the tree the files of a part may include, and which they may need, beside their own.
MAY_INCLUDE = {
    CORE: set(),
    RING: {CORE},
    DEVICE: {CORE},
    COMM: {CORE, RING, DEVICE},
    GRID: {CORE, DEVICE, COMM},
    PARTITION: {CORE, DEVICE, COMM},
    ALIGNMENT: {CORE, DEVICE},
    SCHEDULE: {CORE},
    BALANCE: {CORE},
    LAYOUT: {CORE, GRID, PARTITION},
    PLAN: {CORE, GRID, PARTITION, LAYOUT},
    MOVE: {CORE, DEVICE, COMM, LAYOUT},
    BATCH: BELOW_CALLS,
    ROUTED: BELOW_CALLS | {PLAN, BATCH},
    COLLECTIVE: BELOW_CALLS,
    VERIFY: BELOW_CALLS,
    BRIDGE: BELOW_CALLS | {PLAN, BATCH, ROUTED, COLLECTIVE, VERIFY},
    GRADIENT: {CORE, DEVICE, COMM, GRID},
    ROUTE: {CORE},
    DISPATCH: {CORE, DEVICE, COMM, LAYOUT, MOVE, ROUTE, MESSAGES, DIRECT},
    MESSAGES: {CORE, DEVICE, COMM, LAYOUT, MOVE, ROUTE, DISPATCH},
    DIRECT: {CORE, DEVICE, COMM, LAYOUT, MOVE, DISPATCH},
    OPS: LIBRARY | {KERNELS},  # a runtime chooses its table
    KERNELS: LIBRARY | {OPS},
    EXCHANGE: LIBRARY | {OPS},
    PARAMS: LIBRARY | {OPS, EXCHANGE},
    LAYERS: LIBRARY | {OPS, EXCHANGE, PARAMS},
    NN: ALL_NN,
    OPTIONS: {CORE, SCHEDULE},
    "tools": {CORE, RING, GRID, PARTITION, LAYOUT, PLAN, SCHEDULE, BALANCE, BRIDGE, ROUTE, OPTIONS},
    TOOLS: LIBRARY,
    FORMATS: LIBRARY | {TOOLS},
    PLACE: LIBRARY | ALL_NN | {TOOLS},
    PIPELINE: LIBRARY | ALL_NN | {TOOLS, PLACE},
    MODEL: LIBRARY | ALL_NN | {TOOLS, PLACE, PIPELINE},
    # examples/captioner, beside public headers
    SUPPORT: LIBRARY | {TOOLS},
    DATA: LIBRARY | {TOOLS, SUPPORT},
    PICTURES: LIBRARY | {TOOLS, SUPPORT},
    DIFF: LIBRARY | {TOOLS, FORMATS},
    CAPTIONS: LIBRARY | ALL_TRAIN,
    TRAINING: LIBRARY | ALL_TRAIN | {SUPPORT, DATA, PICTURES, CAPTIONS, OPTIONS},
    SURVIVAL: LIBRARY | ALL_TRAIN | {TRAINING, OPTIONS},
}
# Users of the library that may name its backends.
FREE_PARTS = {"tests", "examples", "bench"}
# Tests and benches may include anything. Examples are what others copy: public headers and their own,
# directly and through what they include. The captioner may include the trainer and the table of options as well.
# The only file outside of an executor's folder that includes its headers. All others know its table.
EXECUTOR_LIST = {ROUTED: "bridge/bridge_executors.c", COLLECTIVE: "bridge/bridge_executors.c",
                 MESSAGES: "src/dispatch/dispatch_executors.c", DIRECT: "src/dispatch/dispatch_executors.c"}
EXAMPLES, LAYERED_EXAMPLE = "examples/", "examples/captioner/"
LAYERED_MAY_REACH = ("train/", "tools/options/")

# The part that a folder belongs to, the longest prefix first.
FOLDERS = [
    ("src/core/", CORE), ("src/ring/", RING), ("src/device/", DEVICE), ("src/comm/", COMM),
    ("train/nn/ops/", OPS), ("train/nn/host/", KERNELS), ("train/nn/cuda/", KERNELS),
    ("train/nn/exchange/", EXCHANGE), ("train/nn/params/", PARAMS), ("train/nn/layers/", LAYERS),
    *((f"{part}/", part) for part in (NN, TOOLS, FORMATS, PLACE, PIPELINE, MODEL)),
    ("src/partition/", PARTITION), ("src/alignment/", ALIGNMENT), ("src/schedule/", SCHEDULE),
    ("src/balance/", BALANCE),
    ("src/gradient/", GRADIENT), ("grid/", GRID),
    ("src/layout/", LAYOUT), ("src/plan/", PLAN), ("src/move/", MOVE),
    ("src/dispatch/route/", ROUTE), ("src/dispatch/messages/", MESSAGES), ("src/dispatch/direct/", DIRECT),
    ("src/dispatch/", DISPATCH),
    ("bridge/batch/", BATCH), ("bridge/routed/", ROUTED), ("bridge/collective/", COLLECTIVE),
    ("bridge/verify/", VERIFY), ("bridge/", BRIDGE), ("tools/options/", OPTIONS), ("tools/", "tools"),
    ("python/tests/", "tests"), ("tests/", "tests"),
    *((f"examples/{part}/", part) for part in (SUPPORT, DATA, PICTURES, DIFF, CAPTIONS, TRAINING, SURVIVAL)),
    ("examples/", "examples"), ("bench/", "bench"),
]
PUBLIC = "include/mimo/"
HEADERS = {
    "status": CORE, "export": CORE, "log": CORE, "dtype": CORE, "env": CORE, "tensor": CORE,
    "version": CORE,
    "buffer": COMM, "comm": COMM, "survivors": COMM, "mpi": COMM, "nccl": COMM, "grid": GRID,
    "partition": PARTITION,
    "alignment": ALIGNMENT, "pairing": LAYOUT, "plan": LAYOUT, "op": MOVE, "bridge": BRIDGE,
    "gradient": GRADIENT, "transport": COMM, "route": ROUTE, "dispatch": DISPATCH,
    "schedule": SCHEDULE, "balance": BALANCE,
}
UMBRELLA = "include/mimo/mimo.h"

# A folder is pure when any process can ask its files about every rank of any grid: arithmetic only.
# Its files name no backend, call no communicator and include no private header of another folder
# that is not pure. A folder below a pure one is pure only where it is listed here itself.
PURE_FOLDERS = {"src/core", "src/ring", "src/partition", "src/schedule", "src/balance", "grid", "src/layout", "src/plan",
                "src/dispatch/route", "tools", "tools/why", OPTIONS}
# The only files of the library that name a backend.
BACKEND_FILES = re.compile(
    r"(src/comm/(mpi|nccl)/|src/device/cuda|train/(nn/.*cuda|device/gpu_)|include/mimo/(mpi|nccl)\.h$)")
BACKEND_HEADER = re.compile(r"^(mpi\.h|mimo/mpi\.h|mimo/nccl\.h|nccl.*|cuda.*|cublas.*)$")
BACKEND_NAME = re.compile(r"\b(MPI_\w+|nccl[A-Z]\w*|cuda[A-Z]\w*|cu[A-Z]\w+)\b")

# What only the copy of the library for tests has. Files with it are compiled again (tests/meson.build).
HOOK = re.compile(r"\bMIMO_(MUTATED|MUTATIONS|TEST_HOOKS)\b")
LAUNCHED_TEST = re.compile(r"^\s*(?:MPI|BED)_TEST\((\w+), (\w+)\)", re.M)
CROSSING = re.compile(r"\b(?:mimo|nn|why|plan)_\w+")  # names of functions that cross files
PLANTED = re.compile(r"\b(MIMO|NN_ROW)_MUTATED\(")
HOOKED_LIST = re.compile(r"hooked_sources \+?= files\(([^)]*)\)")
HOOKED_PARTS = LIBRARY | ALL_TRAIN
INSTALLS = re.compile(r"\binstall_(sources|headers)\(")  # Meson installs only files that are named

# Public calls that profilers show: those that a header calls collective, and all that begin a scope.
DECLARED = re.compile(r"/\*\*(.*?)\*/|\bMIMO_API\b[^;]*?\b(mimo_\w+)\s*\([^;]*;", re.S)
SCOPE = re.compile(r"\b(MIMO_ENTER|mimo_release_enter)\(")
NO_RANGES = "src/comm/mpi/"  # a library of its own, for the host

DTYPE_SWITCH = re.compile(r"^([ \t]*)switch \([^;{]*\bdtype\) \{", re.M)

MAY_REPEAT = {"meson.build", "README.md"}
MAX_LINES, MAX_PARAMETERS, MAX_COLUMNS = 80, 6, 100
# Functions that take what their namesakes in MPI and NCCL take.
AS_IN_THE_FIELD = {"mimo_comm_reduce_scatter": 7}
SOURCE = (".c", ".h", ".cu", ".cuh")
TEXT = SOURCE + (".py", ".sh", ".md", ".build", ".txt", ".in", ".svg", ".supp", ".yml")
# Split, so that this file does not contain the text that it looks for.
LEFTOVERS = [
    (re.compile(r"(?<![\w.}])/(?:wor[k]|hom[e]|roo[t]|mn[t]|User[s])/(?!someone\b)\w"), "a machine's path"),
    (re.compile(r"/tm[p]/wt\b"), "a machine's path"),
    (re.compile(r"\b(?:FIXM[E]|TOD[O]|XX[X])\b"), "a leftover note"),
    (re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)"), "a merge conflict"),
    (re.compile(r"[ \t]+$"), "white space at the end of the line"),
]


def list_files(root):
    """Every file that belongs to the tree, as paths from its root."""
    names = []
    if os.path.exists(os.path.join(root, ".git")) and shutil.which("git"):
        git = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                              "--exclude-standard"], capture_output=True, text=True, check=False)
        names = [n for n in git.stdout.split("\0") if n]
    if not names:
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f != "out" and not f.startswith((".", "build"))]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(n for n in set(names) if os.path.isfile(os.path.join(root, n)))


def part_of(name):
    if name.startswith(PUBLIC):
        return HEADERS.get(os.path.splitext(os.path.basename(name))[0])
    for folder, part in FOLDERS:
        if name.startswith(folder):
            return part
    return None


def is_pure(name):
    return os.path.dirname(name) in PURE_FOLDERS and name.endswith(SOURCE)


def blank(text):
    """The text with comments, strings and preprocessor lines blanked. The number of lines stays."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group())

    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", spaces, text,
                  flags=re.S)
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", spaces, text, flags=re.M)


def includes(text):
    """(line, quoted or angled, name) of each include."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


def resolve(name, include, files):
    """The file of the tree that an include names, or None for files of others."""
    beside = os.path.normpath(os.path.join(os.path.dirname(name), include))
    for path in (beside, "include/" + include, "src/" + include, "examples/" + include, include):
        if path in files:
            return path
    return None


class Law:
    def __init__(self, root):
        self.files = {}
        self.findings = []
        for name in list_files(root):
            if name.endswith(TEXT) or name.startswith("scripts/"):
                with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
                    self.files[name] = f.read()
            else:
                self.files[name] = None
        self.sources = [n for n in self.files if n.endswith(SOURCE)]

    def find(self, name, line, rule):
        self.findings.append(f"{name}:{line}: {rule}")

    def check(self):
        self.unique_names()
        for name in self.sources:
            self.parts(name)
            self.executors(name)
            self.examples(name)
            self.backends(name)
            self.exchanges(name)
            self.functions(name)
            self.dtypes(name)
            self.hooks(name)
        self.circles()
        self.launches()
        self.ranges()
        self.installed()
        for name, text in self.files.items():
            if text is not None and not name.startswith("LICENSE"):
                self.leftovers(name, text)
        return self.findings

    def hooks(self, name):
        if part_of(name) not in HOOKED_PARTS or not name.endswith(".c"):
            return
        folder, base = os.path.split(name)
        build = self.files.get(f"{folder}/meson.build") or ""
        listed = any(f"'{base}'" in names for names in HOOKED_LIST.findall(build))
        has_hook = bool(HOOK.search(self.files[name]))
        if has_hook and not listed:
            self.find(name, 1, f"{folder}/meson.build must list a file with hooks in hooked_sources")
        if listed and not has_hook:
            self.find(name, 1, f"{folder}/meson.build lists a file without hooks in hooked_sources")

    def installed(self):
        for name in self.files:
            folder, base = os.path.split(name)
            build = self.files.get(f"{folder}/meson.build") or ""
            if INSTALLS.search(build) and base != "meson.build" and f"'{base}'" not in build:
                self.find(name, 1, f"{folder}/meson.build does not install it")

    def declared(self):
        """The public functions: name -> whether the comment before it says that it is collective."""
        found, comment = {}, ""
        for name in self.sources:
            if name.startswith(PUBLIC):
                for match in DECLARED.finditer(self.files[name]):
                    if match.group(1) is not None:
                        comment = match.group(1)
                    else:
                        found[match.group(2)] = bool(re.search(r"\bCollective\b", comment))
        return found

    def ranges(self):
        public = self.declared()
        for name in self.sources:
            if part_of(name) not in HOOKED_PARTS or name.startswith((PUBLIC, NO_RANGES)):
                continue
            text = self.files[name].splitlines()
            for function, line, lines, _ in scan_functions(self.files[name]):
                body = "\n".join(text[line - 1:line - 1 + lines])
                if (function in public and (public[function] or SCOPE.search(body)) and lines > 0
                        and "MIMO_RANGE()" not in body):
                    self.find(name, line, f"{function} has no MIMO_RANGE")

    def launches(self):
        """Every test that needs ranks is in a list of launches: nothing else would run it."""
        lists = "".join(text for name, text in self.files.items()
                        if name.startswith("tests/") and name.endswith("meson.build"))
        listed = set(re.findall(r"\w+", lists))
        for name in self.sources:
            for suite, test in LAUNCHED_TEST.findall(self.files[name]):
                if test not in listed:
                    self.find(name, 1, f"no meson.build of tests launches {suite}/{test}")

    def unique_names(self):
        seen = {}
        for name in self.files:
            base = os.path.basename(name)
            if base in MAY_REPEAT:
                continue
            if base in seen:
                self.find(name, 1, f"file name {base} is taken by {seen[base]}")
            seen.setdefault(base, name)

    def parts(self, name):
        part = part_of(name)
        if name == UMBRELLA or part in FREE_PARTS:
            return
        if part is None:
            self.find(name, 1, "the file belongs to no part of the tree: add it to FOLDERS or HEADERS here")
            return
        for line, _, include in includes(self.files[name]):
            target = resolve(name, include, self.files)
            if target is None:
                continue
            if target == UMBRELLA:
                if part not in ALL_TRAIN | {"tools"} and not name.startswith(EXAMPLES):
                    self.find(name, line, f"{part} includes everything by <mimo/mimo.h>")
                continue
            other = part_of(target)
            if other != part and other not in MAY_INCLUDE[part]:
                self.find(name, line, f"{part} may not include {other} ({include})")

    def executors(self, name):
        for line, _, include in includes(self.files[name]):
            other = part_of(resolve(name, include, self.files) or "")
            if other in EXECUTOR_LIST and part_of(name) not in FREE_PARTS | {other} and name != EXECUTOR_LIST[other]:
                self.find(name, line, f"only {EXECUTOR_LIST[other]} includes headers of {other}")

    def circles(self):
        """No two files call each other, directly or through others, where a source and its header are one file.
        object_law.py sees objects alone, and so no inline function."""
        texts, home = {}, {}
        for name in self.sources:
            if part_of(name) not in FREE_PARTS | {None} and not name.startswith(PUBLIC):
                stem = os.path.splitext(name)[0]
                for function, _, lines, _ in scan_functions(self.files[name]):
                    if CROSSING.match(function) and lines > 0:
                        home[function] = stem
                texts[name] = blank(self.files[name])
        needs = {}
        for name, text in texts.items():
            stem = os.path.splitext(name)[0]
            declared = {f for f, _, lines, _ in scan_functions(self.files[name]) if lines == 0}
            for function in set(CROSSING.findall(text)) - declared:
                if home.get(function, stem) != stem:
                    needs.setdefault(stem, {})[home[function]] = function
        for circle in find_circles(needs):
            name = next(n for n in texts if os.path.splitext(n)[0] == circle[0])
            self.find(name, 1, ", and ".join(
                f"{a} calls {needs[a][b]} of {b}" for a, b in zip(circle, circle[1:])))

    def examples(self, name):
        if name.startswith(EXAMPLES):
            layers = LAYERED_MAY_REACH if name.startswith(LAYERED_EXAMPLE) else ()
            chain = self.reaches_private(name, (EXAMPLES, PUBLIC) + layers, {name})
            if chain:
                self.find(name, 1, "an example reaches a private header: " + " -> ".join(chain))
            if not layers and "MIMO_EXPERIMENTAL" in self.files[name]:
                self.find(name, 1, "an example to copy uses what may change: MIMO_EXPERIMENTAL")

    def reaches_private(self, name, allowed, seen):
        """The chain of includes from a file to a header outside of the allowed folders, or None."""
        for _, _, include in includes(self.files[name]):
            target = resolve(name, include, self.files)
            if target is None or target in seen:
                continue
            seen.add(target)
            chain = [] if not target.startswith(allowed) else self.reaches_private(target, allowed, seen)
            if chain is not None:
                return [include] + chain
        return None

    def reaches_backend(self, name, seen):
        """The chain of includes from a file to a backend header, or None."""
        for _, _, include in includes(self.files[name]):
            target = resolve(name, include, self.files)
            if BACKEND_HEADER.match(include):
                return [include]
            if target and target not in seen:
                seen.add(target)
                chain = self.reaches_backend(target, seen)
                if chain:
                    return [include] + chain
        return None

    def backends(self, name):
        part = part_of(name)
        if part in FREE_PARTS or part is None or name.startswith(EXAMPLES):
            return
        if not BACKEND_FILES.match(name):
            chain = self.reaches_backend(name, {name})
            if chain:
                self.find(name, 1, "reaches a backend's header: " + " -> ".join(chain))
        if name.startswith(PUBLIC) and not BACKEND_FILES.match(name) or is_pure(name):
            for number, line in enumerate(blank(self.files[name]).splitlines(), 1):
                match = BACKEND_NAME.search(line)
                if match:
                    self.find(name, number, f"names {match.group()} of a backend")
        if is_pure(name):
            for number, _, include in includes(self.files[name]):
                target = resolve(name, include, self.files)
                if target and not target.startswith(PUBLIC) and not is_pure(target):
                    self.find(name, number, f"a pure file includes {target}, which is not pure")
            for number, line in enumerate(blank(self.files[name]).splitlines(), 1):
                match = re.search(r"\bmimo_comm_\w+\s*\(", line)
                if match:
                    self.find(name, number, "a pure file communicates: " + match.group())

    def exchanges(self, name):
        """Layers exchange through train/nn/exchange, which counts."""
        if part_of(name) not in ALL_NN:
            return
        if re.match(r"train/nn/exchange/nn_(exchange|dispatch)\.[ch]$", name):
            return
        for number, line in enumerate(blank(self.files[name]).splitlines(), 1):
            match = re.search(r"\bmimo_comm_\w+\s*\(", line)
            if match:
                self.find(name, number, "a layer calls a communicator: " + match.group())

    def functions(self, name):
        for function, line, lines, parameters in scan_functions(self.files[name]):
            if lines > MAX_LINES:
                self.find(name, line, f"{function} has {lines} lines, at most {MAX_LINES}")
            if (parameters > AS_IN_THE_FIELD.get(function, MAX_PARAMETERS)
                    and part_of(name) not in ("tests", "bench")):
                self.find(name, line,
                          f"{function} has {parameters} parameters, at most {MAX_PARAMETERS}")
            body = "\n".join(self.files[name].splitlines()[line - 1:line - 1 + lines])
            planted = len(PLANTED.findall(body))
            if planted > 1:
                self.find(name, line, f"{function} has {planted} planted bugs, at most 1")

    def dtypes(self, name):
        """A new dtype is a warning in each switch over dtypes, which a default would take away."""
        text = blank(self.files[name])
        for match in DTYPE_SWITCH.finditer(text):
            body = text[match.end():text.find("\n" + match.group(1) + "}", match.end())]
            if part_of(name) in HOOKED_PARTS and re.search(r"\bdefault\s*:", body):
                self.find(name, text.count("\n", 0, match.end()) + 1, "a switch over dtypes has a default")

    def leftovers(self, name, text):
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in LEFTOVERS:
                if pattern.search(line):
                    self.find(name, number, what)
            if name.endswith(SOURCE) and "\t" in line:
                self.find(name, number, "a tab")
            if name.endswith(SOURCE) and len(line) > MAX_COLUMNS:
                self.find(name, number, f"{len(line)} columns, at most {MAX_COLUMNS}")


def find_circles(needs):
    """Each circle once, as its files; the first one again at the end. `needs`: file -> files."""
    found, seen = [], set()
    for start in sorted(needs):
        before, queue = {start: None}, [start]
        for file in queue:
            for other in sorted(needs.get(file, ())):
                if other == start:
                    path = [file]
                    while before[path[-1]] is not None:
                        path.append(before[path[-1]])
                    if frozenset(path) not in seen:
                        seen.add(frozenset(path))
                        found.append(path[::-1] + [start])
                elif other not in before:
                    before[other] = file
                    queue.append(other)
    return found


def scan_functions(source):
    """(name, line, lines, parameters) of every function definition (and prototype: 0 lines)."""
    text = blank(source)
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)\s*", lambda m: re.sub(r"[^\n]", " ", m.group()),
                  text, flags=re.S)
    found, start, depth, opened = [], 0, 0, None
    for i, letter in enumerate(text):
        if letter == "{":
            if depth == 0:
                opened = function_head(text, start, i)
                if opened is None and re.search(r"extern\s*$", text[start:i]):
                    start = i + 1
                    continue
            depth += 1
        elif letter == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                if opened:
                    name, at, parameters = opened
                    first = text.count("\n", 0, at) + 1
                    found.append((name, first, text.count("\n", 0, i) + 2 - first, parameters))
                    opened = None
                start = i + 1
        elif letter == ";" and depth == 0:
            head = function_head(text, start, i)
            if head and not re.search(r"\b(typedef|return)\b|=", text[start:i]):
                name, at, parameters = head
                found.append((name, text.count("\n", 0, at) + 1, 0, parameters))
            start = i + 1
    return found


def function_head(text, start, end):
    """(name, position, parameters) where text[start:end] ends like the head of a function."""
    chunk = text[start:end].rstrip()
    if not chunk.endswith(")"):
        return None
    depth = commas = 0
    for i in range(len(chunk) - 1, -1, -1):
        if chunk[i] == ")":
            depth += 1
        elif chunk[i] == "(":
            depth -= 1
            if depth == 0:
                break
        elif chunk[i] == "," and depth == 1:
            commas += 1
    name = re.search(r"(\w+)\s*$", chunk[:i])
    if depth or not name or name.group(1) in ("if", "for", "while", "switch"):
        return None
    inside = chunk[i + 1:-1].strip()
    return name.group(1), start + name.start(1), 0 if inside in ("", "void") else commas + 1


LONG = "int grown(void)\n{\n" + "    step();\n" * 79 + "}\n"
# path -> text, and words of the only finding. Each entry breaks one rule.
SAMPLES = [
    ("grid/up.c", '#include "plan/plan_walk.h"\n', "grid may not include plan"),
    ("src/core/up.c", "#include <mimo/comm.h>\n", "core may not include comm"),
    ("src/partition/side.c", "#include <mimo/grid.h>\n", "partition may not include grid"),
    ("src/gradient/side.c", "#include <mimo/bridge.h>\n", "gradient may not include bridge"),
    ("bridge/net.c", '#include "train/nn/layers/linear.h"\n', "bridge may not include train/nn"),
    ("bridge/all.c", "#include <mimo/mimo.h>\n", "bridge includes everything"),
    ("src/plan/bad.c", "#include <mpi.h>\n", "reaches a backend's header: mpi.h"),
    ("src/plan/far.c", '#include "comm/mpi/mpi_inner.h"\n', "comm/mpi/mpi_inner.h -> mpi.h"),
    ("src/comm/host/far.c", '#include "comm/mpi/mpi_inner.h"\n', "comm/mpi/mpi_inner.h -> mpi.h"),
    ("grid/device.c", "#include <cuda_runtime.h>\n", "reaches a backend's header: cuda_runtime"),
    ("include/mimo/plan.h", "void f(MPI_Comm comm);\n", "names MPI_Comm"),
    ("include/mimo/bridge.h", "void f(cudaStream_t s);\n", "names cudaStream_t"),
    ("src/layout/pairing_talk.c", "void f(void)\n{\n    mimo_comm_barrier(c);\n}\n",
     "a pure file communicates"),
    ("train/nn/layers/nn_talk.c", "void f(void)\n{\n    mimo_comm_barrier(c);\n}\n",
     "a layer calls a communicator"),
    ("train/nn/params/up.c", '#include "train/nn/layers/linear.h"\n', "train/nn/params may not include train/nn/layers"),
    ("src/plan/up.c", '#include "move/steps.h"\n', "plan may not include move"),
    ("src/move/up.c", '#include "bridge/routed/phases.h"\n', "move may not include bridge/routed"),
    ("src/move/object.c", "#include <mimo/bridge.h>\n", "move may not include bridge"),
    ("src/move/planned.c", '#include "plan/plan_walk.h"\n', "move may not include plan"),
    ("bridge/verify/down.c", '#include "bridge/routed/phases.h"\n',
     "bridge/verify may not include bridge/routed"),
    ("bridge/batch/down.c", '#include "bridge/routed/phases.h"\n',
     "bridge/batch may not include bridge/routed"),
    ("bridge/verify/across.c", '#include "bridge/collective/groups.h"\n',
     "bridge/verify may not include bridge/collective"),
    ("bridge/collective/across.c", '#include "bridge/routed/phases.h"\n',
     "bridge/collective may not include bridge/routed"),
    ("bridge/collective/given.c", '#include "bridge/batch/rows.h"\n',
     "bridge/collective may not include bridge/batch"),
    ("bridge/collective/planned.c", '#include "plan/plan_walk.h"\n',
     "bridge/collective may not include plan"),
    ("bridge/routed/across.c", '#include "bridge/collective/groups.h"\n',
     "bridge/routed may not include bridge/collective"),
    ("bridge/peek.c", '#include "bridge/routed/phases.h"\n',
     "only bridge/bridge_executors.c includes headers of bridge/routed"),
    ("src/move/steps.c", '#include "move/walk.h"\nvoid mimo_step(void)\n{\n    mimo_walk();\n}\n',
     "src/move/steps calls mimo_walk of src/move/walk, and src/move/walk calls mimo_step_of of src/move/steps"),
    ("src/dispatch/route/up.c", '#include "dispatch/sums.h"\n', "dispatch/route may not include dispatch"),
    ("src/dispatch/across.c", "#include <mimo/bridge.h>\n", "dispatch may not include bridge"),
    ("src/layout/up.c", '#include "plan/plan_walk.h"\n',
     "layout may not include plan"),
    ("src/partition/wide.c", '#include "partition/shard/moves.h"\n',
     "a pure file includes src/partition/shard/moves.h"),
    ("include/mimo/stray.h", "int x;\n", "the file belongs to no part"),
    ("src/nowhere/a.c", "int x;\n", "the file belongs to no part"),
    ("bridge/linear.h", "int x;\n", "file name linear.h is taken"),
    ("examples/captioner/deep.c", '#include "move/steps.h"\n',
     "an example reaches a private header: move/steps.h"),
    ("examples/captioner/core.c", '#include "core/inner.h"\n',
     "an example reaches a private header: core/inner.h"),
    ("examples/captioner/far.c", '#include "train/nn/params/inside.h"\n',
     "an example reaches a private header: train/nn/params/inside.h -> core/inner.h"),
    ("train/support/up.c", '#include "train/model/model.h"\n', "train/support may not include train/model"),
    ("train/model/up.c", '#include "captioner/training/loop.h"\n',
     "train/model may not include captioner/training"),
    ("train/formats/layers.c", '#include "train/nn/layers/linear.h"\n',
     "train/formats may not include train/nn"),
    ("examples/captioner/data/layers.c", '#include "train/nn/layers/linear.h"\n',
     "captioner/data may not include train/nn"),
    ("examples/early.c", "#define MIMO_EXPERIMENTAL\n", "uses what may change"),
    ("examples/layers.c", '#include "train/nn/layers/linear.h"\n',
     "an example reaches a private header: train/nn/layers/linear.h"),
    ("grid/long.c", LONG, "grown has 82 lines"),
    ("grid/wide.c", "static int wide(int a, int b, int c,\n    int d, int e, int f, int g)\n{\n}\n",
     "wide has 7 parameters"),
    ("src/core/wide.h", "int wide(int a, int b, int c, int d, void (*e)(int, int), int f, int g);",
     "wide has 7 parameters"),
    ("tests/unit/long.c", LONG.replace("int grown(void)", "Test(suite, grown)"),
     "Test has 82 lines"),
    ("docs/place.md", "See /hom" + "e/somebody/notes.\n", "a machine's path"),
    ("docs/note.md", "TO" + "DO\n", "a leftover note"),
    ("docs/space.md", "text \n", "white space"),
    ("grid/tab.c", "int\tx;\n", "a tab"),
    ("grid/bug.c", 'bool b = MIMO_MUTATED("bug");\n', "must list a file with hooks"),
    ("grid/hooked.c", "int x;\n", "lists a file without hooks"),
    ("grid/hooked.c", 'int f(int a)\n{\n    return MIMO_MUTATED("a") || MIMO_MUTATED("b") ? 1 : a;\n}\n',
     "f has 2 planted bugs"),
    ("train/nn/ops/bug.h", 'int f(int a)\n{\n    return NN_ROW_MUTATED("a") || NN_ROW_MUTATED("b") ? 1 : a;\n}\n',
     "f has 2 planted bugs"),
    ("python/package/lost.py", "", "python/package/meson.build does not install it"),
    ("python/package/lost.typed", "", "python/package/meson.build does not install it"),
    ("tests/mpi/lost.c", "MPI_TEST(lost, never_run)\n{\n}\n", "launches lost/never_run"),
    ("grid/all.c", "mimo_status mimo_all(int a)\n{\n    return a;\n}\n", "mimo_all has no MIMO_RANGE"),
    ("grid/own.c", "mimo_status mimo_own(int a)\n{\n    MIMO_ENTER(a);\n    return a;\n}\n",
     "mimo_own has no MIMO_RANGE"),
    ("src/device/kinds.c", "int f(void)\n{\n    switch (it->dtype) {\n    case 1:\n        return 2;\n"
     "    default:\n        return 0;\n    }\n}\n", "a switch over dtypes has a default"),
    ("grid/broad.c", "/* " + "x" * 95 + " */\n", "101 columns"),
]
# A tree that keeps every rule, with text that looks like a broken rule.
GOOD = {
    "include/mimo/mimo.h": "#include <mimo/bridge.h>\n#include <mimo/comm.h>\n",
    "include/mimo/comm.h": "/* a cudaStream_t, an MPI_Comm */\n",
    "include/mimo/mpi.h": "#include <mpi.h>\nvoid g(MPI_Comm comm);\n",
    "include/mimo/grid.h": "#include <mimo/comm.h>\n",
    "include/mimo/gradient.h": "/** Collective. */\nMIMO_API mimo_status mimo_all(int a);\n"
                               "/** Local. */\nMIMO_API mimo_status mimo_own(int a);\n",
    "grid/groups/all_here.c": "mimo_status mimo_all(int a)\n{\n    MIMO_RANGE();\n    return a;\n}\n"
                              "mimo_status mimo_own(int a)\n{\n    return a;\n}\n",
    "include/mimo/plan.h": "#include <mimo/grid.h>\n",
    "include/mimo/bridge.h": "#include <mimo/plan.h>\n",
    "src/comm/mpi/mpi_inner.h": "#include <mpi.h>\n",
    "train/nn/layers/linear.h": "#include <mimo/mimo.h>\n",
    "train/nn/params/inside.h": '#include "core/inner.h"\n',
    "src/core/inner.h": "int z;\n",
    "train/model/model.c": '#include "train/model/model.h"\n#include "train/nn/layers/linear.h"\n',
    "train/model/model.h": "#include <mimo/mimo.h>\n",
    "examples/captioner/training/loop.h": '#include "train/model/model.h"\n#include <mpi.h>\n',
    "src/move/steps.h": "static inline int mimo_step_of(int x)\n{\n    return x;\n}\nvoid mimo_step(void);\n",
    "src/move/walk.c": '#include "move/steps.h"\nvoid mimo_walk(void)\n{\n    mimo_step_of(1);\n}\n',
    "src/dispatch/sums.h": '#include "move/steps.h"\n',
    "bridge/batch/rows.h": "int x;\n",
    "bridge/routed/phases.h": '#include "move/steps.h"\n#include "plan/plan_walk.h"\n#include "bridge/batch/rows.h"\n',
    "bridge/collective/groups.h": '#include "move/steps.h"\n',
    "bridge/bridge_executors.c": '#include "bridge/routed/phases.h"\n#include "bridge/collective/groups.h"\n',
    "tests/mpi/meson.build": "launches = [['kept/test_that_runs', [2]]]\n",
    "tests/mpi/kept.c": "MPI_TEST(kept, test_that_runs)\n{\n}\n",
    "python/package/meson.build": "python.install_sources('kept.py', 'py.typed')\n",
    "python/package/kept.py": "",
    "python/package/py.typed": "",
    "grid/meson.build": "mimo_hooked_sources += files('hooked.c')\n",
    "grid/hooked.c": "#ifdef MIMO_TEST_HOOKS\n#endif\n",
    "src/partition/shard/moves.h": "int y;\n",
    "src/plan/plan_walk.h": '#include <mimo/plan.h>\n#include <string.h>\nconst char *s = "MPI_X";\n',
    "examples/show.c": "#include <mpi.h>\n#include <mimo/mimo.h>\n",
    "grid/fits.c": LONG.replace("    step();\n", "", 2) + "struct s {\n" + "    int a;\n" * 90
                   + "};\nstatic int table[] = {\n" + "    1,\n" * 90 + "};\n"
                   + "#define TALL \\\n" + "    x; \\\n" * 90 + "    y\nint last(int (*f)(int, int))"
                   + "\n{\n    if (a) {\n    }\n    return 0;\n}\n",
}


def check_sample(files, check):
    """What check(root) says of a tree of these files, path -> text."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
            with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                f.write(text)
        return check(root)


def findings_of(files):
    return check_sample(files, lambda root: Law(root).check())


def self_test():
    wrong = [f"the good tree: {f}" for f in findings_of(GOOD)]
    for name, text, said in SAMPLES:
        found = findings_of({**GOOD, name: text})
        if not any(said in f and f.startswith(name) for f in found) and not (
                "is taken" in said and any(said in f for f in found)):
            wrong.append(f"{name}: '{said}' was not noticed; found {found}")
    return wrong


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = self_test() if sys.argv[1] == "--self-test" else Law(sys.argv[1]).check()
    print("\n".join(wrong) or "no rule is broken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

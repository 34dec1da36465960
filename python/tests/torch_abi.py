#!/usr/bin/env python3
"""Holds python/mimo_bridge/_c.py against the headers of the library. Needs no torch.

    torch_abi.py PROGRAM HEADERS...    PROGRAM: torch_layouts.c, compiled
    torch_abi.py --self-test PROGRAM HEADERS...    what is changed in _c.py must be noticed
"""
import ctypes
import importlib
import pathlib
import re
import subprocess
import sys
import types

# The package without its __init__, which imports torch.
PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "mimo_bridge"
sys.modules["mimo_bridge"] = package = types.ModuleType("mimo_bridge")
package.__path__ = [str(PACKAGE)]
_c = importlib.import_module("mimo_bridge._c")
errors = importlib.import_module("mimo_bridge.errors")

# What a C type is in PROTOTYPES; any pointer is "p".
LETTERS = {"int": "i", "int64_t": "l", "uint64_t": "l", "size_t": "z", "bool": "b", "double": "d",
           "void": "v", "mimo_stream": "p", "MPI_Comm": "p", "mimo_executor": "E", "mimo_dim": "D",
           "mimo_status": "i", "mimo_memory": "i", "mimo_content": "i", "mimo_side": "i",
           "mimo_log_function": "p", "mimo_schedule_format": "i",
           "mimo_node_part": "i", "mimo_node_lane": "i"}


def c_letters(text):
    """"const int64_t *coords" -> "p"; char pointers are "s"."""
    words = re.sub(r"\bconst\b", "", text).split("[")[0]
    if "*" in words:
        return "s" if re.match(r"\s*char\s*\*[^*]*$", words) else "p"
    return LETTERS.get(words.split()[0], "?")  # of a function that is not bound


def header_prototypes(paths):
    """name -> "result:arguments" of every function that the headers declare."""
    found = {}
    for path in paths:
        text = re.sub(r"/\*.*?\*/", "", pathlib.Path(path).read_text(encoding="utf-8"), flags=re.S)
        for match in re.finditer(r"MIMO_API\s+([^;()]*?)(mimo_\w+)\(([^;]*)\)\s*;", text):
            result, name, arguments = match.group(1), match.group(2), match.group(3).strip()
            letters = "S" if result.strip() == "mimo_status" else c_letters(result)
            parts = [] if arguments == "void" else arguments.split(",")
            found[name] = letters + ":" + "".join(c_letters(part) for part in parts if "..." not in part)
    return found


def check_prototypes(paths):
    declared = header_prototypes(paths)
    assert len(declared) > 100, f"only {len(declared)} functions found in the headers"
    findings = []
    for name, letters in {**_c.PROTOTYPES, **_c.NCCL_PROTOTYPES, **_c.MPI_PROTOTYPES}.items():
        wanted = declared.get(name)
        if wanted is None:
            if name not in {**_c.NCCL_PROTOTYPES, **_c.MPI_PROTOTYPES}:
                findings.append(f"{name}: no header declares it")
        elif letters != wanted and not (name == "mimo_comm_state" and letters == "i:p"):
            findings.append(f"{name}: {letters}, and the header says {wanted}")
    return findings


def check_used():
    """Each prototype is of a function that the package or its tests call."""
    files = [*PACKAGE.glob("*.py"), *pathlib.Path(__file__).parent.glob("*.py")]
    called = set(re.findall(r"\.(mimo_\w+)", "".join(path.read_text("utf-8") for path in files)))
    names = {**_c.PROTOTYPES, **_c.NCCL_PROTOTYPES, **_c.MPI_PROTOTYPES}
    return [f"{name}: nobody calls it" for name in names if name not in called]


def structures():
    return {name: kind for name, kind in vars(_c).items()
            if isinstance(kind, type) and issubclass(kind, ctypes.Structure)
            and name.startswith("mimo_")}


def ours():
    """The lines that torch_layouts.c should print."""
    for name, kind in structures().items():
        yield f"struct {name} {ctypes.sizeof(kind)}"
        for field, *_ in kind._fields_:
            place = getattr(kind, field)
            yield f"field {name} {field} {place.offset} {place.size}"
    for status in errors.Status:
        yield f"value {'MIMO_OK' if status == 0 else 'MIMO_ERR_' + status.name} {status.value}"
    for name, value in _c.DTYPES.items():
        yield f"dtype {name} {value}"
    values = {"MEMORY_HOST": _c.HOST, "MEMORY_CUDA": _c.CUDA, "SRC": _c.SRC, "DST": _c.DST,
              "SBHD": _c.SBHD, "THD": _c.THD, "EMBEDDINGS": _c.EMBEDDINGS, "LABELS": _c.LABELS,
              "FROM_ENV": _c.FROM_ENV, "LOG_WARNING": 1, "FAN_EQUAL": 0, "FAN_IN": 1, "FAN_OUT": 2}
    major, minor, patch = _c._load.VERSION
    values["VERSION"] = major * 10000 + minor * 100 + patch
    for kind, index in (("ALGORITHM", 0), ("TRANSPORT", 1)):
        for name, pair in (("AUTO", _c.EXECUTORS["auto"]), ("COLLECTIVE", _c.EXECUTORS["collective"]),
                           ("ROUTED", _c.EXECUTORS["routed"]), ("P2P", _c.EXECUTORS["p2p"]),
                           ("ZERO_COPY", _c.EXECUTORS["zero_copy"]), ("STAGED", _c.EXECUTORS["staged"])):
            of_algorithm = name in ("COLLECTIVE", "ROUTED")
            if name == "AUTO" or of_algorithm == (kind == "ALGORITHM"):
                values[f"{kind}_{name}"] = pair[index]
    values |= {f"SCHEDULE_{name.upper()}": value for name, value in _c.SCHEDULE_KINDS.items()}
    values |= {"SCHEDULE_TEXT": _c.SCHEDULE_TEXT, "SCHEDULE_CSV": _c.SCHEDULE_CSV,
               "SCHEDULE_SVG": _c.SCHEDULE_SVG, "SCHEDULE_TRACE": _c.SCHEDULE_TRACE}
    values |= {f"STEP_{name}": i for i, name in enumerate(_c.STEP_KINDS)}
    for prefix, names in (("NODE_", _c.NODE_PARTS), ("NODE_", _c.NODE_PASSES), ("NODE_LANE_", _c.NODE_LANES),
                          ("RECOMPUTE_", _c.RECOMPUTES)):
        values |= {prefix + name.upper(): i for i, name in enumerate(names)}
    values["NODE_LAYER_PARTS"] = _c.NODE_LAYER_PARTS
    for name, value in values.items():
        yield f"value MIMO_{name} {value}"


def check_layouts(program):
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    theirs = {line for line in lines if line.split()[0] not in ("struct", "field") or line.split()[1] in structures()}
    missing = set() if "struct mimo_nccl_desc" in "\n".join(theirs) else {"mimo_nccl_desc",
                                                                         "mimo_nccl_report"}
    mine = {line for line in ours() if line.split()[1] not in missing}
    return ([f"only in _c.py: {line}" for line in sorted(mine - theirs)]
            + [f"only in the headers: {line}" for line in sorted(theirs - mine)])


def check_initializers():
    """Each sized structure starts from its initializer, with its size and its defaults."""
    findings = []
    for kind in _c.SIZED:
        if hasattr(_c.lib, kind.__name__ + "_init"):
            if _c.sized(kind).size != ctypes.sizeof(kind):
                findings.append(f"{kind.__name__}: its initializer set another size")
    sized = {kind for kind in structures().values() if kind._fields_[0][0] == "size"
             and kind is not _c.mimo_dim}
    findings += [f"{kind.__name__} is not in SIZED" for kind in sized - set(_c.SIZED)]
    if _c.sized(_c.mimo_bridge_desc).batch != -1:
        findings.append("mimo_bridge_desc: the default of batch is not -1")
    return findings


def check(program, headers):
    return check_layouts(program) + check_prototypes(headers) + check_used() + check_initializers()


def self_test(program, headers):
    """Each change must be noticed."""
    def with_change(table, name, value):
        kept = dict(table)
        table[name] = value
        findings = check(program, headers)
        table.clear()
        table.update(kept)
        return findings

    assert not check(program, headers)
    assert with_change(_c.PROTOTYPES, "mimo_bridge_forward", "S:ppip")
    assert with_change(_c.PROTOTYPES, "mimo_comm_size", "l:p")
    assert with_change(_c.PROTOTYPES, "mimo_comm_alltoall", "S:pplpp")
    assert with_change(_c.DTYPES, "f16", 2)
    assert with_change(_c.EXECUTORS, "p2p", (2, 2))

    class shorter(ctypes.Structure):
        _fields_ = _c.mimo_batch_desc._fields_[:-1]

    class other(ctypes.Structure):
        _fields_ = [(name, ctypes.c_int64 if name == "ctas" else kind)
                    for name, kind in _c.mimo_bridge_desc._fields_]

    class without_a_byte(ctypes.Structure):  # the size, and where all others lie, stay
        _fields_ = [field for field in _c.mimo_partition_rule._fields_ if field[0] != "strict"]

    for name, kind in (("mimo_batch_desc", shorter), ("mimo_bridge_desc", other),
                       ("mimo_partition_rule", without_a_byte)):
        old = getattr(_c, name)
        setattr(_c, name, kind)
        assert check_layouts(program), name
        setattr(_c, name, old)


def main(arguments):
    if arguments[0] == "--self-test":
        self_test(arguments[1], arguments[2:])
        return 0
    findings = check(arguments[0], arguments[1:])
    print("\n".join(findings) or f"{len(structures())} structures, {len(_c.PROTOTYPES)} functions agree")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

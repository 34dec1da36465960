#!/usr/bin/env python3
"""The pages name files and functions that exist, and docs/versions.md lists what is experimental.

    page_names.py ROOT          check docs/, README.md and CONTRIBUTING.md; one line a wrong name
    page_names.py --self-test   see that a missing file and a function of another file are noticed

Three rules. A source file or script in backticks is the end of some file's path. In a table row whose
last cell holds source files and whose cell before holds names of functions, each function is in one of
these files. The list below "Experimental in" of docs/versions.md names each function of the symbol map's
experimental node, or its header, and no function of another node.
"""
import os
import re
import sys

from source_law import check_sample, list_files

FILE = re.compile(r"^(?:[\w.-]+/)*[\w.-]+\.(?:c|h|cu|cuh|py|sh)$")
NAME = re.compile(r"^[a-z]\w+$")
# Files of other projects. NAME stands for any name.
NOT_OURS = {"mpi.h", "nccl.h", "cuda_runtime.h"}


def quoted(text):
    return re.findall(r"`([^`]+)`", text)


def find_file(name, files):
    """The files whose path ends with a name that a page contains."""
    return [f for f in files if f == name or f.endswith("/" + name)]


def check_row(line, files, text_of):
    """The functions of a table row that are in none of its files."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if len(cells) < 3 or not line.startswith("|"):
        return []
    sources = [f for name in quoted(cells[-1]) if FILE.match(name) for f in find_file(name, files)]
    functions = [name for name in quoted(cells[-2]) if NAME.match(name)]
    if not sources:
        return []
    text = "".join(text_of(f) for f in sources)
    return [f"{name} is not in {', '.join(sources)}" for name in functions
            if not re.search(rf"\b{name}\(", text)]


def read_nodes(symbol_map):
    """The names that a symbol map gives to each node."""
    nodes = re.findall(r"^(MIMO_\w+).*?\{(.*?)^\}", symbol_map, re.S | re.M)
    return {node: set(re.findall(r"\b(mimo_\w+);", names)) for node, names in nodes}


def check_experimental(text_of):
    """Where the list of docs/versions.md and the symbol map differ."""
    nodes = read_nodes(text_of("src/mimo-bridge.map.in"))
    experimental = {name for node in nodes if "EXPERIMENTAL" in node for name in nodes[node]}
    listed = re.search(r"^Experimental in .*?(?=^## )", text_of("docs/versions.md"), re.S | re.M)
    named = set(quoted(listed[0]))
    headers = [text_of(f"include/{name[1:-1]}") for name in named if name.startswith("<mimo/")]
    missing = {name for name in experimental - named
               if not any(re.search(rf"\b{name}\(", header) for header in headers)}
    wrong = named & set.union(*nodes.values()) - experimental
    return [f"{name} is experimental, and not in the list" for name in sorted(missing)] + \
           [f"{name} is in the list, and not experimental" for name in sorted(wrong)]


def check(root):
    files = list_files(root)
    found = []

    def text_of(name):
        with open(os.path.join(root, name), encoding="utf-8") as f:
            return f.read()

    if "docs/versions.md" in files:
        found += [f"docs/versions.md: {what}" for what in check_experimental(text_of)]
    pages = [f for f in files if f.endswith(".md") and (f.startswith("docs/") or "/" not in f)]
    for page in pages:
        for number, line in enumerate(text_of(page).splitlines(), 1):
            wrong = [f"there is no file {name}" for name in quoted(line)
                     if FILE.match(name) and "NAME" not in name and name not in NOT_OURS
                     and not find_file(name, files)]
            wrong += check_row(line, files, text_of)
            found += [f"{page}:{number}: {what}" for what in wrong]
    return found


def self_test():
    tree = {
        "move/begin.c": "int begin(void)\n{\n    return start();\n}\n",
        "src/mimo-bridge.map.in": "MIMO_BRIDGE_1 {\nglobal:\n    mimo_old;\n};\nMIMO_BRIDGE_EXPERIMENTAL_@MINOR@ {\n"
                                  "global:\n    mimo_new;\n    mimo_x;\n};\n",
        "include/mimo/x.h": "MIMO_API int mimo_x(void);\n",
        "docs/versions.md": "Experimental in 1:\n\n- `mimo_new`, `<mimo/x.h>`;\n\n## Next\n",
        "docs/good.md": "See `move/begin.c` and `begin.c`.\n| 1 | it begins | `begin` | `move/begin.c` |\n",
    }
    bad = {"docs/bad.md": "See `op/gone.c`.\n", "docs/row.md": "| 1 | it | `other` | `begin.c` |\n",
           "docs/versions.md": "Experimental in 1:\n\n- `mimo_old`, `mimo_new`;\n\n## Next\n"}
    wrong = [f"the good tree: {f}" for f in check_sample(tree, check)]
    wrong += [f"{name}: nothing was noticed" for name, text in bad.items()
              if not check_sample({**tree, name: text}, check)]
    return wrong


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = self_test() if sys.argv[1] == "--self-test" else check(sys.argv[1])
    print("\n".join(wrong) or "every name that a page gives exists")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

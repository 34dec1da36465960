#!/usr/bin/env python3
"""The pages name files and functions that exist.

    page_names.py ROOT          check docs/, README.md and CONTRIBUTING.md; one line a wrong name
    page_names.py --self-test   see that a missing file and a function of another file are noticed

Two rules. A source file or script in backticks is the end of some file's path. In a table row whose
last cell holds source files and whose cell before holds names of functions, each function is in one of
these files.
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


def check(root):
    files = list_files(root)
    found = []

    def text_of(name):
        with open(os.path.join(root, name), encoding="utf-8") as f:
            return f.read()

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
        "docs/good.md": "See `move/begin.c` and `begin.c`.\n| 1 | it begins | `begin` | `move/begin.c` |\n",
    }
    bad = {"docs/bad.md": "See `op/gone.c`.\n", "docs/row.md": "| 1 | it | `other` | `begin.c` |\n"}
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

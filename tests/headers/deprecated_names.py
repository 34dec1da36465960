#!/usr/bin/env python3
"""Deprecated names compile with a warning that names the successor, and docs/versions.md lists them.

    deprecated_names.py ROOT COMPILER...

Each name that a public header marks with MIMO_DEPRECATED is used in a program of two lines. Under
-Werror=deprecated-declarations the compiler refuses it, and names the successor; without, it compiles.
The list behind "Deprecated now:" has the same names and successors.
"""
import os
import re
import subprocess
import sys

FUNCTION = re.compile(r'MIMO_DEPRECATED\("(\w+)"\)\s*MIMO_API\b[^;]*?\b(mimo_\w+)\s*\(')
FIELD = re.compile(r'\b(\w+) MIMO_DEPRECATED\("(\w+)"\);')
STRUCT = re.compile(r"^typedef struct (\w+) \{", re.M)
LISTED = re.compile(r"`(?:\w+\.)?(\w+)`\s\(`(\w+)`\)")


def deprecated(text):
    """(name, successor, a use) of each name that a header marks."""
    found = [(name, successor, f"void (*use)(void) = (void (*)(void)){name};")
             for successor, name in FUNCTION.findall(text)]
    for match in FIELD.finditer(text):
        struct = STRUCT.findall(text[:match.start()])[-1]
        name, successor = match.groups()
        found.append((name, successor, f"void *use({struct} *it) {{ return &it->{name}; }}"))
    return found


def compiles(compiler, root, header, use, *flags):
    """Whether a use of a name compiles, and what the compiler says."""
    program = f"#include <mimo/{header}>\n{use}\n"
    command = [*compiler, "-std=c11", "-fsyntax-only", "-I", os.path.join(root, "include"), *flags, "-xc", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


def main():
    root, compiler = sys.argv[1], sys.argv[2:]
    folder, wrong, names = os.path.join(root, "include", "mimo"), [], set()
    for header in sorted(os.listdir(folder)):
        if not header.endswith(".h"):
            continue
        with open(os.path.join(folder, header), encoding="utf-8") as f:
            text = f.read()
        found = deprecated(text)
        if len(found) != text.count("MIMO_DEPRECATED(") - text.count("#define MIMO_DEPRECATED("):
            wrong.append(f"{header}: a name that is marked could not be read")
        for name, successor, use in found:
            names.add((name, successor))
            works, said = compiles(compiler, root, header, use, "-Wno-deprecated-declarations", "-Werror")
            if not works:
                wrong.append(f"{name} does not compile: {said}")
            works, said = compiles(compiler, root, header, use, "-Werror=deprecated-declarations")
            if works or f"deprecated: {successor}" not in said and f'deprecated: "{successor}"' not in said:
                wrong.append(f"{name}: no warning names {successor}: {said or 'nothing was said'}")
    with open(os.path.join(root, "docs", "versions.md"), encoding="utf-8") as f:
        listed = set(LISTED.findall(re.search(r"^Deprecated now:.*?\n\n", f.read(), re.S | re.M)[0]))
    wrong += [f"docs/versions.md: {name} ({successor}) is listed or marked, not both"
              for name, successor in sorted(names ^ listed)]
    print("\n".join(wrong) or f"{len(names)} deprecated names: {', '.join(sorted(name for name, _ in names))}")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())

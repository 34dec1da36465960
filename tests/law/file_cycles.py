#!/usr/bin/env python3
"""No two files of the library need each other, directly or through others.

    file_cycles.py NM ARCHIVE...  check the object files of static libraries; one line a cycle
    file_cycles.py --self-test    see that a cycle of two files, and one of three, is noticed

A file needs another one where its object uses a symbol that the other's object defines. CUDA objects
count as well. Tables of functions are data: who calls through one needs only the table's header.
"""
import subprocess
import sys


def read_symbols(listing):
    """(defined, used): object -> names, from the output of `nm -g` over an archive."""
    defined, used, current = {}, {}, None
    for line in listing.splitlines():
        if line.endswith(":") and " " not in line:
            current = line[:-1]
            defined.setdefault(current, set())
            used.setdefault(current, set())
            continue
        fields = line.split()
        if current is None or len(fields) < 2:
            continue
        kind, name = fields[-2], fields[-1]
        (used if kind in "Uvw" else defined)[current].add(name)
    return defined, used


def needs_of(defined, used):
    """object -> {object that it needs: a symbol that says so}."""
    home = {name: thing for thing, names in defined.items() for name in names}
    needs = {thing: {} for thing in defined}
    for thing, names in used.items():
        for name in sorted(names):
            other = home.get(name)
            if other and other != thing:
                needs[thing].setdefault(other, name)
    return needs


def path_between(needs, start, goal):
    """The shortest path from start to goal, as objects, or None."""
    before, queue = {start: None}, [start]
    for thing in queue:
        for other in sorted(needs[thing]):
            if other == goal:
                path = [thing]
                while before[path[-1]] is not None:
                    path.append(before[path[-1]])
                return path[::-1] + [goal]
            if other not in before:
                before[other] = thing
                queue.append(other)
    return None


def find_cycles(listing):
    """One line for each file that needs itself through others, each cycle once."""
    needs = needs_of(*read_symbols(listing))
    found, seen = [], set()
    for thing in sorted(needs):
        path = path_between(needs, thing, thing)
        if path and frozenset(path) not in seen:
            seen.add(frozenset(path))
            found.append(", which needs ".join(
                f"{a} needs {needs[a][b]} of {b}" for a, b in zip(path, path[1:])))
    return found


def self_test():
    def listing(files):
        return "\n".join(f"\n{name}:\n" + "\n".join(
            ["0000000000000000 T " + d for d in has] + ["                 U " + u for u in uses])
            for name, has, uses in files)

    chain = [("a.o", ["fa"], ["fb", "memcpy"]), ("b.o", ["fb"], ["fc"]), ("c.o", ["fc"], [])]
    two = [("a.o", ["fa"], ["fb"]), ("b.o", ["fb"], ["fa"])]
    three = [("a.o", ["fa"], ["fb"]), ("b.o", ["fb"], ["fc"]), ("c.cu.o", ["fc"], ["fa"])]
    wrong = []
    if find_cycles(listing(chain)):
        wrong.append("a chain of files counts as a cycle")
    for name, files in (("two", two), ("three", three)):
        if len(find_cycles(listing(files))) != 1:
            wrong.append(f"a cycle of {name} files was not noticed")
    if read_symbols(listing(chain))[0]["a.o"] != {"fa"}:
        wrong.append("the symbols of a.o were not read")
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        wrong = self_test()
    elif len(sys.argv) >= 3:
        nm = subprocess.run([sys.argv[1], "-g", *sys.argv[2:]], capture_output=True, text=True,
                            check=True)
        if len(read_symbols(nm.stdout)[0]) < 10:
            wrong = ["almost no object files: are these the static libraries?"]
        else:
            wrong = find_cycles(nm.stdout)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(wrong) or "no two files need each other")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

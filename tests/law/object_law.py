#!/usr/bin/env python3
"""The rules that the objects of static libraries keep, by the symbols that they define and use.

    object_law.py ROOT NM ARCHIVE...  check them; one line per broken rule, exit status 1
    object_law.py --self-test         break every rule once and see that each is noticed

A file needs another one where its object uses a symbol that the other's object defines. CUDA objects
count as well. Tables of functions are data: who calls through one needs only the table's header.

Rules: no two files need each other, directly or through others; a file needs only parts of the tree
that it may include; a file of a pure folder needs no file that is not pure. Parts and pure folders are
those of source_law.py. It reads includes, so it misses a function whose prototype stands elsewhere.
"""
import os
import subprocess
import sys

import source_law


def read_symbols(listing):
    """(defined, used): object -> names, from the output of `nm -g` over an archive."""
    defined, used, current = {}, {}, None
    for line in listing.splitlines():
        if line.endswith(".o:"):
            current = os.path.basename(line[:-1])
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


def find_cycles(needs):
    """One line for each file that needs itself through others, each cycle once."""
    found, seen = [], set()
    for thing in sorted(needs):
        path = path_between(needs, thing, thing)
        if path and frozenset(path) not in seen:
            seen.add(frozenset(path))
            found.append(", which needs ".join(
                f"{a} needs {needs[a][b]} of {b}" for a, b in zip(path, path[1:])))
    return found


def source_of(thing, sources):
    """The file that an object was compiled from, or None. Meson writes the folder before the name,
    and file names are unique: "move_op_words.c.o"."""
    fits = [s for s in sources if ("_" + thing).endswith("_" + os.path.basename(s) + ".o")]
    return max(fits, key=lambda s: len(os.path.basename(s)), default=None)


def find_wrong_needs(needs, sources):
    """One line for each file that needs another one against the rules of parts and of purity."""
    files = {thing: source_of(thing, sources) for thing in needs}
    found = [f"no file of the tree is the source of {thing}"
             for thing, file in sorted(files.items()) if file is None]
    for thing, others in sorted(needs.items()):
        for other, name in sorted(others.items()):
            file, needed = files[thing], files[other]
            if file is None or needed is None:
                continue
            part, other_part = source_law.part_of(file), source_law.part_of(needed)
            said = f"{file} needs {name} of {needed}"
            if part != other_part and other_part not in source_law.MAY_INCLUDE[part]:
                found.append(f"{said}: {part} may not need {other_part}")
            if source_law.is_pure(file) and not source_law.is_pure(needed):
                found.append(f"{said}, which is not pure")
    return found


def check(listing, sources):
    needs = needs_of(*read_symbols(listing))
    return find_cycles(needs) + find_wrong_needs(needs, sources)


def self_test():
    sources = ["src/core/status.c", "src/comm/wait.c", "grid/grid.c", "grid/groups/split.c",
               "src/move/op.c", "src/move/words.c", "src/move/op_words.c", "bridge/routed/routed.c",
               "bridge/collective/collective.c", "bridge/bridge.c", "src/comm/nccl/push.cu"]
    core, wait, grid = "src_core_status.c.o", "src_comm_wait.c.o", "grid_grid.c.o"
    split, op, words = "grid_groups_split.c.o", "src_move_op.c.o", "src_move_op_words.c.o"
    routed, collective = "bridge_routed_routed.c.o", "bridge_collective_collective.c.o"
    bridge, push = "bridge_bridge.c.o", "push.cu.o"

    def found(*files):
        return check("\n".join(f"\n{name}:\n" + "\n".join(
            ["0000000000000000 T " + d for d in has] + ["                 U " + u for u in uses])
            for name, has, uses in files), sources)

    fine = [(op, ["o"], ["w", "memcpy"]), (words, ["w"], ["s"]), (grid, ["g"], ["s"]),
            (routed, ["r"], ["o", "g"]), (bridge, ["b"], ["r", "s"]), (core, ["s"], [])]
    wrong = [f"a chain of files: {f}" for f in found(*fine)]
    # What is planted, words of the only finding.
    planted = [
        ([(op, ["o"], ["w"]), (words, ["w"], ["o"])], f"{op} needs w of {words}, which needs"),
        ([(wait, ["a"], ["p"]), (push, ["p"], ["l"]), ("src_comm_wait_long.c.o", ["l"], ["a"])],
         "which needs"),
        ([(grid, ["g"], ["a"]), (wait, ["a"], [])], "which is not pure"),
        ([(grid, ["g"], ["p"]), (split, ["p"], [])],
         "grid/grid.c needs p of grid/groups/split.c, which is not pure"),
        ([(op, ["o"], ["r"]), (routed, ["r"], [])], "move may not need bridge/routed"),
        ([(collective, ["c"], ["r"]), (routed, ["r"], [])],
         "bridge/collective may not need bridge/routed"),
        ([(routed, ["r"], ["c"]), (collective, ["c"], [])],
         "bridge/routed may not need bridge/collective"),
        ([("grid_stray.c.o", ["x"], [])], "no file of the tree is the source of grid_stray.c.o"),
    ]
    for files, said in planted:
        findings = found(*files)
        if not any(said in f for f in findings):
            wrong.append(f"'{said}' was not noticed; found {findings}")
    if read_symbols("a.o:\n00 T f\n U g\n")[0]["a.o"] != {"f"}:
        wrong.append("the symbols of a.o were not read")
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        wrong = self_test()
    elif len(sys.argv) >= 4:
        nm = subprocess.run([sys.argv[2], "-g", *sys.argv[3:]], capture_output=True, text=True,
                            check=True)
        sources = [name for name in source_law.list_files(sys.argv[1])
                   if name.endswith((".c", ".cu"))
                   and source_law.part_of(name) not in source_law.FREE_PARTS]
        if len(read_symbols(nm.stdout)[0]) < 10:
            wrong = ["almost no object files: are these the static libraries?"]
        else:
            wrong = check(nm.stdout, sources)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(wrong) or "no rule is broken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

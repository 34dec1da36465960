#!/usr/bin/env python3
"""Every test has a name of its own, and every test of ranks is launched.

    test_names.py ROOT BUILD     check the tests of a build folder; one line per finding
    test_names.py --self-test    see that each rule notices when it is broken

Rules: no two tests of the build have one name, no two Criterion tests or tests of ranks have one
suite/name, no launch has a test twice, and each MPI_TEST that does not need a GPU is launched on some
number of ranks.
"""
import json
import os
import re
import sys

TEST = re.compile(r"^(Test|MPI_TEST|BED_TEST)\((\w+), *(\w+)", re.M)
ON_GPUS = "gpu"  # the folder of tests that are launched on GPUs alone


def tests_in(text):
    """(macro, "suite/name") of each test. BED_TEST makes two tests."""
    for macro, suite, name in TEST.findall(text):
        yield macro, f"{suite}/{name}"
        if macro == "BED_TEST":
            yield macro, f"{suite}_zero_copy/{name}"


def places_of(sources):
    """{"suite/name": [(file, macro)...]} of {file: text}."""
    places = {}
    for file in sorted(sources):
        for macro, test in tests_in(sources[file]):
            places.setdefault(test, []).append((file, macro))
    return places


def equal_names(names):
    return [f"{names.count(name)} tests of the build are named '{name}'"
            for name in dict.fromkeys(names) if names.count(name) > 1]


def equal_tests(places):
    return [f"{test} is in {' and in '.join(file for file, _ in found)}"
            for test, found in places.items() if len(found) > 1]


def not_launched(places, launched):
    """A launch names each of its tests behind --filter."""
    return [f"{found[0][0]}: {test} is launched on no number of ranks"
            for test, found in places.items()
            if found[0][1] != "Test" and found[0][0].split(os.sep)[0] != ON_GPUS
            and test not in launched]


def launched_by(command):
    return [test for word, test in zip(command, command[1:]) if word == "--filter"]


def launched_twice(tests):
    return [f"{name} launches {test} twice" for name, command in tests
            for test in sorted(set(launched_by(command))) if launched_by(command).count(test) > 1]


def findings_of(sources, tests):
    """tests: (name, command) of each test of the build."""
    places = places_of(sources)
    launched = {test for _, command in tests for test in launched_by(command)}
    return (equal_names([name for name, _ in tests]) + equal_tests(places)
            + launched_twice(tests) + not_launched(places, launched))


def read_sources(folder):
    sources = {}
    for path, _, files in os.walk(folder):
        for file in files:
            if file.endswith((".c", ".cu")):
                whole = os.path.join(path, file)
                with open(whole, encoding="utf-8") as f:
                    sources[os.path.relpath(whole, folder)] = f.read()
    return sources


def self_test():
    launch = ["mpirun", "-n", "2", "program", "--filter"]
    sound = ({"mpi/a.c": "MPI_TEST(a, x)\n", "unit/b.c": "Test(b, x, .timeout = 1)\n",
              "mpi/d.c": "BED_TEST(d, x)\n", "gpu/c.c": "MPI_TEST(c, x)\n"},
             [("a/x on 2", [*launch, "a/x"]), ("b", ["b"]),
              ("d on 2", [*launch, "d/x", "--filter", "d_zero_copy/x"])])
    broken = [
        ({"mpi/a.c": "MPI_TEST(a, x)\n"}, [("a on 2", [*launch, "a/x", "--filter", "a/x"])]),
        ({"unit/b.c": "Test(b, x)\n"}, [("b", ["b"]), ("b", ["c"])]),
        ({"unit/b.c": "Test(b, x)\n", "unit/c.c": "Test(b, x)\n"}, []),
        ({"mpi/a.c": "BED_TEST(a, x)\n", "mpi/b.c": "MPI_TEST(a_zero_copy, x)\n"},
         [("a/x", [*launch, "a/x"]), ("other", [*launch, "a_zero_copy/x"])]),
        ({"mpi/a.c": "MPI_TEST(a, x)\n"}, [("a/y", [*launch, "a/y"])]),
        ({"mpi/a.c": "BED_TEST(a, x)\n"}, [("a/x", [*launch, "a/x"])]),
    ]
    wrong = findings_of(*sound)
    wrong += [f"not noticed: {case}" for case in broken if len(findings_of(*case)) != 1]
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        findings = self_test()
    elif len(sys.argv) == 3:
        with open(os.path.join(sys.argv[2], "meson-info", "intro-tests.json"), encoding="utf-8") as f:
            tests = [(test["name"], test["cmd"]) for test in json.load(f)]
        sources = read_sources(os.path.join(sys.argv[1], "tests"))
        findings = findings_of(sources, tests)
        print(f"{len(tests)} tests of the build, {len(places_of(sources))} in C")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

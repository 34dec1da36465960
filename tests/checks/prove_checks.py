#!/usr/bin/env python3
"""Every check of the library has a test that fails without it.

    prove_checks.py ROOT BUILD [WORD...]    scripts/checks.sh runs this

BUILD is a build with MIMO_TEST_CHECKS (src/core/check_off.c). First the unit and MPI tests run
once, each on one number of ranks, and note which checks fail in them. Then each check is switched
off, and the tests in which it failed run again, the quickest first. When one of them fails, the
check is proven. A check that survives must be in survivors.txt with the reason. A check in
survivors.txt must survive. With WORDs, only checks with one of them in their file's name or in
their sentence are tried.
"""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time

from check_sites import find_sites, judge_list, read_list

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))


class Case:
    """One test: a launch that Meson makes, or one Criterion test of a unit program."""

    def __init__(self, name, command, test):
        self.name, self.command = name, command
        self.env = test["env"]
        self.alone = not test["is_parallel"]
        self.folder = test["workdir"]
        self.limit = test["timeout"]
        self.seconds = 0.0

    def run(self, build, **variables):
        """The exit status; None after a timeout, which ends its ranks as well."""
        started = time.monotonic()
        with subprocess.Popen(self.command, cwd=self.folder or build, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, **self.env, **variables},
                              start_new_session=True) as process:
            try:
                status = process.wait(self.limit)
            except subprocess.TimeoutExpired:
                status = None
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
        self.seconds = time.monotonic() - started
        return status


def tests_of_program(program):
    """The names suite/test of a Criterion program."""
    lines = subprocess.run([program, "--list"], capture_output=True, text=True, check=True,
                           timeout=60).stdout.splitlines()
    suite = None
    for line in lines:
        match = re.match(r"(\W*)(\w+)(?:: \d+ tests?)?", line)
        if match and not match.group(1):
            suite = match.group(2)
        elif match:
            yield f"{suite}/{match.group(2)}"


def tests_of_launch(test):
    """Each test of a launch of several (mpi_cases.py) in a launch of its own."""
    command = test["cmd"]
    at = next((i for i, word in enumerate(command) if word.endswith("mpi_cases.py")), None)
    if at is None:
        return [Case(test["name"], command, test)]
    mpirun, ranks, program, *filters = command[at + 1:]
    alone = [mpirun, "--oversubscribe", "-n", ranks, program, "--filter"]
    return [Case(f"{name} on {ranks}", [*alone, name], test) for name in filters[1::2]]


def ranks_of(name):
    """The number of ranks in the name of a launch."""
    match = re.search(r" on (\d+)$", name)
    return int(match.group(1)) if match else 0


def one_launch_each(cases):
    """The launches of a test on 4 ranks, or on the number of ranks nearest to 4."""
    best = {}
    for case in cases:
        name = re.sub(r" on \d+$", "", case.name)
        if name not in best or abs(ranks_of(case.name) - 4) < abs(ranks_of(best[name].name) - 4):
            best[name] = case
    return list(best.values())


def cases_of(build):
    """The unit and MPI tests of a build."""
    units, launches = [], []
    listed = subprocess.run(["meson", "introspect", "--tests", build], capture_output=True,
                            check=True, timeout=60)
    for test in json.loads(listed.stdout):
        suites = {suite.split(":")[-1] for suite in test["suite"]}
        command = test["cmd"]
        if " finds " in test["name"]:
            continue  # a planted bug: it must fail
        if "mpi" in suites:
            launches += tests_of_launch(test)
        elif "unit" in suites and len(command) == 1 and command[0].startswith(build):
            for name in tests_of_program(command[0]):
                units.append(Case(name, command + ["--filter", name], test))
    return units + one_launch_each(launches)


def in_parallel(job, cases):
    """job(case) of each. Cases that need the machine for themselves run last, one by one."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(job, [case for case in cases if not case.alone]))
    for case in cases:
        if case.alone:
            job(case)


class Proof:
    """Runs the tests with and without checks, and keeps the results."""

    def __init__(self, root, build):
        self.build = build
        self.sites = find_sites(root)
        self.failed_in = {site: [] for site in self.sites}
        self.broken = []
        self.at = {}
        for site in self.sites:
            for line in range(site.first, site.last + 1):
                self.at[site.path, line] = site

    def record_case(self, case):
        """Notes the checks that fail in a test."""
        log = os.path.join(self.build, "check-logs", re.sub(r"\W+", "_", case.name))
        if os.path.exists(log):
            os.remove(log)
        status = case.run(self.build, MIMO_TEST_CHECK_LOG=log)
        if status not in (0, SKIPPED):
            self.broken.append(f"{case.name} fails by itself (status {status})")
        # A test that hangs without a check meets this limit, far beyond what the test needs.
        case.limit = 20 + 10 * case.seconds
        if status != 0 or not os.path.exists(log):
            return
        with open(log, encoding="utf-8") as f:
            fired = {line.strip() for line in f}
        for place in fired:
            path, line = place.rsplit(":", 1)
            site = self.at.get((re.sub(r"^(\.\./)+", "", path), int(line)))
            if site:
                self.failed_in[site].append((case, place))

    def killer_of(self, site):
        """The name of a test that fails without the check, or None."""
        for case, place in sorted(self.failed_in[site], key=lambda pair: pair[0].seconds):
            took = case.seconds
            status = case.run(self.build, MIMO_TEST_CHECK_OFF=place)
            case.seconds = took
            if status != 0:
                return case.name
        return None


def say(text):
    print(text, flush=True)


def prove(proof, words):
    """site -> the test that fails without it, for the chosen checks."""
    os.makedirs(os.path.join(proof.build, "check-logs"), exist_ok=True)
    cases = cases_of(proof.build)
    started = time.monotonic()
    in_parallel(proof.record_case, cases)
    fired = sum(1 for site in proof.sites if proof.failed_in[site])
    say(f"{len(proof.sites)} checks; {fired} fail in one of {len(cases)} tests "
        f"({time.monotonic() - started:.0f} s)")
    chosen = [site for site in proof.sites
              if not words or any(word in site.file or word in site.sentence for word in words)]
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        killers = dict(zip(chosen, pool.map(proof.killer_of, chosen)))
    say(f"{sum(1 for k in killers.values() if k)} of {len(chosen)} are proven "
        f"({time.monotonic() - started:.0f} s)")
    return killers


def judge(proof, killers, listed):
    """What is wrong: survivors that are not listed, and listed ones that do not survive."""
    wrong = list(proof.broken)
    for site, killer in killers.items():
        entry = listed.get(site)
        if killer and entry:
            wrong.append(f"{site}\n    is in the list (line {entry.number}), and {killer} fails "
                         "without it: take it off")
        elif not killer and not entry:
            tests = [case.name for case, _ in proof.failed_in[site]]
            seen = "fails in no test" if not tests else (
                f"{len(tests)} tests pass without it, {tests[0]} among them")
            wrong.append(f"{site}\n    {seen}, and it is not in survivors.txt")
    return wrong


def main():
    root, build = (os.path.abspath(path) for path in sys.argv[1:3])
    proof = Proof(root, build)
    with open(os.path.join(HERE, "survivors.txt"), encoding="utf-8") as f:
        listed, wrong = judge_list(read_list(f.read()), proof.sites)
    if not wrong:
        killers = prove(proof, sys.argv[3:])
        with open(os.path.join(build, "check-logs", "killers.json"), "w", encoding="utf-8") as f:
            json.dump({str(site): killer for site, killer in killers.items()}, f, indent=1)
        survivors = [site for site, killer in killers.items() if not killer]
        for site in survivors:
            if site in listed:
                say(f"survives: {site}\n    {listed[site].reason}")
        wrong = judge(proof, killers, listed)
    say("\n".join(wrong) or "every check has a test that fails without it, or a reason")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

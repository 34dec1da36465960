#!/usr/bin/env python3
"""GitHub's workflow runs what CONTRIBUTING.md says.

    workflow_commands.py ROOT          check .github/workflows; one line a fault; 77 without PyYAML
    workflow_commands.py --style ROOT  what yamllint says of them; 77 without yamllint
    workflow_commands.py --self-test   see that each fault is noticed

A workflow is YAML with jobs. Each command of its steps, and of its matrices, is a line of a code block or
in backticks in CONTRIBUTING.md, except the commands of NOT_A_CONTRIBUTORS. Each script that
CONTRIBUTING.md says how to run is one that a workflow runs, except those of NOT_HERE.
"""
import os
import re
import shutil
import subprocess
import sys

from source_law import check_sample

try:
    import yaml
except ImportError:
    yaml = None

FOLDER = ".github/workflows"
NOT_A_CONTRIBUTORS = {"echo 28 >/proc/sys/vm/mmap_rnd_bits", "${{ matrix.command }}"}
# Needs a GPU's headers; stores what the law suite compares.
NOT_HERE = {"scripts/nccl_headers.sh", "scripts/abi.sh"}


def said(page):
    """The commands of a page: lines of its shell blocks without their comments, and what is in backticks."""
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, re.S | re.M))
    lines = {re.sub(r"\s+#.*", "", line).strip() for line in blocks.splitlines()}
    return lines | set(re.findall(r"`([^`\n]+)`", page))


def commands(workflow):
    for job in workflow["jobs"].values():
        yield from job.get("strategy", {}).get("matrix", {}).get("command", [])
        for step in job["steps"]:
            if "run" in step:
                yield from step["run"].strip().splitlines()
            elif "uses" not in step:
                raise ValueError(f"a step neither runs nor uses anything: {step}")


def check(root):
    def text_of(name):
        with open(os.path.join(root, name), encoding="utf-8") as f:
            return f.read()

    found, run = [], set()
    for name in sorted(os.listdir(os.path.join(root, FOLDER))):
        try:
            run |= set(commands(yaml.safe_load(text_of(f"{FOLDER}/{name}"))))
        except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
            found.append(f"{FOLDER}/{name}: not a workflow: {error!r}")
    contributors = said(text_of("CONTRIBUTING.md"))
    found += [f"{FOLDER}: '{command}' is not in CONTRIBUTING.md"
              for command in sorted(run - contributors - NOT_A_CONTRIBUTORS)]
    scripts = {word for line in contributors for word in re.findall(r"^scripts/\w+\.sh", line)}
    ran = {command.split()[0] for command in run}
    return found + [f"CONTRIBUTING.md: no workflow runs {script}" for script in sorted(scripts - ran - NOT_HERE)]


def lint(root):
    rules = "{extends: default, rules: {line-length: {max: 100}}}"
    done = subprocess.run(["yamllint", "--strict", "-f", "parsable", "-d", rules, FOLDER], cwd=root,
                          stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines() or (["yamllint failed"] if done.returncode else [])


def skip(reason):
    print(reason)
    sys.exit(77)


def self_test():
    page, job = "```sh\nscripts/a.sh   # tests\n```\nAlso `scripts/b.sh --long`.\n", f"{FOLDER}/w.yml"
    good = "jobs:\n  one:\n    steps:\n      - run: scripts/a.sh\n      - run: scripts/b.sh --long\n"
    bad = {"another command": good.replace("--long", "--short"), "no YAML": good + "  - [",
           "a missing script": good.replace("      - run: scripts/a.sh\n", ""),
           "a step without a command": good + "      - name: x\n"}
    wrong = [f"the good tree: {f}" for f in check_sample({"CONTRIBUTING.md": page, job: good}, check)]
    return wrong + [f"{what}: nothing was noticed" for what, text in bad.items()
                    if not check_sample({"CONTRIBUTING.md": page, job: text}, check)]


def main():
    style = sys.argv[1:2] == ["--style"]
    if len(sys.argv) != 2 + style:
        print(__doc__, file=sys.stderr)
        return 2
    if style and not shutil.which("yamllint"):
        skip("no yamllint: the style of the workflows is not checked")
    if not style and not yaml:
        skip("no PyYAML (Debian: python3-yaml): the workflows are not checked")
    if style:
        wrong, good = lint(sys.argv[2]), "yamllint finds no fault"
    else:
        wrong = self_test() if sys.argv[1] == "--self-test" else check(sys.argv[1])
        good = "the workflows run what CONTRIBUTING.md says"
    print("\n".join(wrong) or good)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

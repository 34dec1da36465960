"""An adapter learns other names than its base, in seconds: the base calls held-out flags "flag: ...",
the adapter calls them "Fähnchen". Then the refusals of --names, and caches of other names."""
import os
import re
import sys
import tempfile

from captioner_runs import ENDS_WELL, LIST, Captioner, Checks, Report, SMALL, SKIPPED, TOPOLOGIES

ONE_RANK = TOPOLOGIES[0]
PAIR = ("tp=2,dp=1", "tp=1,cp=2,dp=1", 2)
BATCH = ["--global-batch", "16", "--micro-batches", "1"]
BASE = [*SMALL, *BATCH, "--steps", "60"]
ADAPTER = [*SMALL, *BATCH, "--steps", "60", "--lora-rank", "4", "--lora-targets", "all", "--lr",
           "0.03"]
SAME_NAME = "Fähnchen"
LEFT_OUT = 2  # emoji: one without a name, one with a long one

REFUSED = [
    (None, "cannot open the names .*: No such file"),
    ("1F1E9 1F1EA Fahne\n", "line 1: no tab"),
    ("x\tFahne\n", "line 1: \"x\" is no list of code points"),
    ("41\tFahne\n", "none of the 1 names"),
]


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def flags_of_countries():
    if not os.path.exists(LIST):
        sys.exit(SKIPPED)
    with open(LIST, encoding="utf-8") as lines:
        return [line for line in lines if "; fully-qualified" in line and " flag: " in line]


def check_refusals(test, emoji):
    for text, words in REFUSED:
        names = test.path("refused.txt")
        if text:
            write(names, text)
        said = test.captioner.refused("--emoji-test", emoji, "--names", names, "--prepare", test.path("unmade"))
        sentences = re.findall("^captioner: .*", said, re.M)
        test.expect(len(sentences) == 1 and re.search(words, sentences[0]), f"{words}: {said}")


def check_answers(test, emoji, names):
    """Base, adapter, and the adapter again from its file."""
    captioner, base, adapter = test.captioner, test.path("base"), test.path("adapter")
    captioner.render(16, emoji)
    english = Report(captioner.run(ONE_RANK, *BASE, "--save", base)[0].stdout)
    done = captioner.render(16, emoji, "--names", names)
    test.expect(f"{LEFT_OUT} of " in done.stderr and "no name for 1 and one of more than 80 bytes"
                " for 1" in done.stderr, f"left out: {done.stderr}")
    done, _ = captioner.run(PAIR, *ADAPTER, "--base", base, "--adapter-out", adapter)
    learned = Report(done.stdout)
    print(done.stdout)
    test.expect(all(name.startswith("flag: ") for name in english.generated),
                f"the base says {english.generated}")
    test.expect(learned.base == english.generated,
                f"beside the adapter the base says {learned.base}, not {english.generated}")
    test.expect(set(learned.names) == {SAME_NAME}, f"held-out names {learned.names}")
    test.expect(set(learned.generated) == {SAME_NAME}, f"the adapter says {learned.generated}")
    again = Report(captioner.run(ONE_RANK, *SMALL, "--steps", "0", "--base", base, "--adapter",
                                 adapter)[0].stdout)
    test.expect((again.base, again.generated) == ([], learned.generated),
                f"from the file: {again.base}, {again.generated}")


def check_caches(test, emoji, names):
    """Each rank with a cache of its own, as on hosts with homes of their own. That of rank 1 is of the names that
    were in the file before."""
    captioner = test.captioner
    flags = [*SMALL, "--encoder", PAIR[0], "--llm", PAIR[1], "--emoji-test", emoji, "--names", names, "--steps", "0"]

    def with_cache(rank, *more):
        return ["-n", "1", "env", f"XDG_CACHE_HOME={captioner.folder}/cache{rank}", "sh", "-c", ENDS_WELL, "sh",
                captioner.program, *flags, *more]

    captioner.mpirun_with(with_cache(1, "--encoder", ONE_RANK[0], "--llm", ONE_RANK[1], "--resume", "/nonexistent"))
    with open(names, encoding="utf-8") as file:
        write(names, file.read().replace(SAME_NAME, SAME_NAME[::-1]))
    done = captioner.mpirun_with([*with_cache(0), ":", *with_cache(1)])
    wanted = r"^captioner: the sample file \S+/cache0/\S+ is not the same file on all ranks: rank 1 has bytes with the " \
             r"hash [0-9a-f]{16}, and rank 0 has bytes with the hash [0-9a-f]{16}\. "
    test.expect(done.stdout == 2 * "exit 1\n" and re.search(wanted, done.stderr, re.M),
                f"caches of other names: {done.stdout}{done.stderr}")


def main():
    mpirun, program = sys.argv[1:]
    countries = flags_of_countries()
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        emoji = write(os.path.join(folder, "emoji.txt"), "".join(countries) + "#EOF\n")
        codes = [line.split(";")[0].strip() for line in countries]
        rows = [f"{code}\t{SAME_NAME}\n" for code in codes[2:]]
        names = write(os.path.join(folder, "names.txt"),
                      "# no name for the first\n" + f"{codes[1]}\t{'ü' * 41}\n" + "".join(rows))
        test = Checks(captioner)
        check_answers(test, emoji, names)
        check_refusals(test, emoji)
        check_caches(test, emoji, names)
        sys.exit(f"{test.wrong} checks failed" if test.wrong else 0)


main()

"""Bad input gives one sentence with the numbers, on one rank, and a failing exit status on every
rank. It ends the run before training and leaves no files."""
import os
import re
import shutil
import sys
import tempfile

from captioner_runs import Captioner, ENDS_WELL, SMALL

TP = ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1"]
PAIR = ["--encoder", "tp=1,dp=2", "--llm", "tp=1,cp=2,dp=1"]
HOME = ["--encoder", "tp=2,dp=4", "--llm", "tp=2,cp=2,dp=2"]

# ranks, flags, words of the sentence
CASES = [
    (7, HOME, "--encoder tp=2,dp=4 is a grid of 8 ranks, but 7 were started"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,cp=2,dp=2"],
     "--llm tp=2,cp=2,dp=2 is a grid of 8 ranks, but 2 were started"),
    (2, ["--encoder", "tp=two,dp=1", "--llm", "tp=2,dp=1"], "two"),
    (6, ["--encoder", "tp=2,dp=3", "--llm", "tp=3,dp=2"], "dp"),
    (4, ["--encoder", "tp=1,cp=2,dp=2", "--llm", "tp=2,dp=2"], "cp"),
    (2, ["--no-such-flag"], "--no-such-flag"),
    (2, [*TP, "--seq", "48"], "--seq 48"),
    (3, ["--encoder", "tp=3,dp=1", "--llm", "tp=3,dp=1"], "8 heads .* tp=3"),
    (2, [*PAIR, "--seq", "90"], "90 .* 2\\*cp = 4"),
    (2, ["--device", "cuda"], "cuda"),
    (2, ["--dtype", "f64"], "f64"),
    (2, ["--precision", "tf32"], "tf32"),
    (2, [*TP, "--samples", "/nonexistent/samples"], "/nonexistent/samples"),
    (2, [*TP, "--log", "/nonexistent/log"], "/nonexistent/log"),
    (2, [*TP, "--log", "/dev/full"], "/dev/full"),
    (2, [*TP, "--save", "/nonexistent/saved"], "/nonexistent/saved"),
    (2, [*PAIR, "--save", "taken"], "cannot write taken: it exists and is no regular file"),
    (2, [*PAIR, "--out", "samples"], "cannot make the folder samples"),
    (2, [*PAIR, "--out", "taken"], "taken/loss-curve.png: it exists and is no regular file"),
    (2, [*PAIR, "--out", "new/one", "--log", "/nonexistent/log"], "/nonexistent/log"),
    (2, [*PAIR, "--out", "new/one", "--log", "new/one/log", "--save", "taken"], "cannot write taken"),
    (2, [*TP, "--resume", "/nonexistent/saved"], "/nonexistent/saved"),
]

# Rank 0 is started with the first flags, rank 1 with the second.
UNEQUAL = [
    (["--seed", "1"], ["--seed", "9"], "rank 1: --seed is 9 on this rank and 1 on rank 0"),
    (["--lr", "0.5"], ["--lr", "0.25"], "--lr is 0.25 on this rank and 0.5 on rank 0"),
    ([], ["--save", "saved"], "--save is saved on this rank and not given on rank 0"),
    (["--precision", "bf16"], [], "--precision is f32 on this rank and bf16 on rank 0"),
    ([], ["--recompute"], "--recompute is send on this rank and none on rank 0"),
    (["--help"], [], "--help is not given on this rank and given on rank 0"),
    ([], ["--no-such-flag"], "rank 1: .*--no-such-flag"),
]

# More than a gigabyte a rank. One of the two ranks may have only 400 MB, and the other must not wait
# for it. (With MALLOC_PERTURB_, which Meson sets, the C library touches all of it.)
LARGE = [*PAIR, "--global-batch", "1024", "--micro-batches", "1"]
RICH = "unset MALLOC_PERTURB_; "
POOR = RICH + "ulimit -d 400000; "


def ranks_with(captioner, ranks, flags, before="", program=None):
    """A command by which mpirun starts ranks. The shell tells each rank's exit from mpirun's
    own."""
    given = [] if "--samples" in flags else ["--samples", captioner.samples]
    return ["-n", str(ranks), "sh", "-c", before + ENDS_WELL, "sh",
            program or captioner.program, *SMALL, "--steps", "1", *given, *flags]


def program_without_pictures(captioner):
    """A copy of the program beside a module that cannot be loaded."""
    folder = os.path.join(captioner.folder, "bin")
    os.mkdir(folder)
    with open(os.path.join(folder, "captioner-pictures.so"), "w", encoding="utf-8") as module:
        module.write("no module")
    return shutil.copy(captioner.program, folder)


def files_below(folder):
    return sorted(os.path.join(place, name) for place, folders, files in os.walk(folder)
                  for name in folders + files)


def check(captioner, ranks, parts, words):
    """What is wrong with the answer of these parts; None where nothing is wrong."""
    before = files_below(captioner.folder)
    done = captioner.mpirun_with(parts)
    exits = re.findall(r"^exit (\d+)$", done.stdout, re.M)
    sentences = done.stderr.splitlines()
    if len(exits) != ranks or "0" in exits:
        return f"exits {exits}"
    if len(sentences) != 1 or not sentences[0].startswith("captioner: "):
        return f"not one sentence:\n{done.stderr}"
    if not re.search(words, sentences[0]):
        return f"does not say {words!r}: {sentences[0]}"
    if len(done.stdout.splitlines()) != ranks:
        return f"says more:\n{done.stdout}"
    if (after := files_below(captioner.folder)) != before:
        return f"left {sorted(set(after) ^ set(before))} behind"
    print(sentences[0])
    return None


def main():
    mpirun, program = sys.argv[1], os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16, one_in=24)
        truncated = os.path.join(folder, "truncated")
        with open(captioner.samples, "rb") as whole, open(truncated, "wb") as part:
            part.write(whole.read()[:10000])
        os.makedirs(os.path.join(folder, "taken", "loss-curve.png"))
        os.chdir(folder)
        cases = [(ranks, ranks_with(captioner, ranks, flags), words)
                 for ranks, flags, words in CASES]
        cases += [(2, ranks_with(captioner, 2, [*PAIR, "--samples", truncated]), "truncated")]
        cases += [(2, [*ranks_with(captioner, 1, PAIR + first), ":",
                       *ranks_with(captioner, 1, PAIR + second)], words)
                  for first, second, words in UNEQUAL]
        cases += [(2, [*ranks_with(captioner, 1, LARGE, RICH), ":",
                       *ranks_with(captioner, 1, LARGE, POOR)], "rank 1: out of memory")]
        cases += [(2, ranks_with(captioner, 2, [*PAIR, "--out", "new"],
                                 program=program_without_pictures(captioner)),
                   "cannot load .*captioner-pictures.so")]
        wrong = [(parts, why) for ranks, parts, words in cases
                 if (why := check(captioner, ranks, parts, words))]
        for parts, why in wrong:
            print(f"{' '.join(parts)}: {why}")
        sys.exit(f"{len(wrong)} of {len(cases)} answers are wrong" if wrong else 0)


main()

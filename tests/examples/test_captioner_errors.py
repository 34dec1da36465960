"""Bad input: one sentence with the numbers, on one rank, and a failing exit on every rank."""
import os
import re
import subprocess
import sys
import tempfile

from captioner_runs import Captioner, SMALL

HOME = ["--encoder", "tp=2,dp=4", "--llm", "tp=2,cp=2,dp=2"]

# ranks, flags, what the sentence must say
CASES = [
    (7, HOME, "--encoder tp=2,dp=4 is a grid of 8 ranks, but 7 were started"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,cp=2,dp=2"],
     "--llm tp=2,cp=2,dp=2 is a grid of 8 ranks, but 2 were started"),
    (2, ["--encoder", "tp=two,dp=1", "--llm", "tp=2,dp=1"], "two"),
    (6, ["--encoder", "tp=2,dp=3", "--llm", "tp=3,dp=2"], "dp"),
    (4, ["--encoder", "tp=1,cp=2,dp=2", "--llm", "tp=2,dp=2"], "cp"),
    (2, ["--no-such-flag"], "--no-such-flag"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1", "--seq", "48"], "--seq 48"),
    (3, ["--encoder", "tp=3,dp=1", "--llm", "tp=3,dp=1"], "8 heads .* tp=3"),
    (2, ["--encoder", "tp=1,dp=2", "--llm", "tp=1,cp=2,dp=1", "--seq", "90"], "90 .* 2\\*cp = 4"),
    (2, ["--device", "cuda"], "cuda"),
    (2, ["--dtype", "f64"], "f64"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1", "--samples", "/nonexistent/samples"],
     "/nonexistent/samples"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1", "--log", "/nonexistent/log"],
     "/nonexistent/log"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1", "--log", "/dev/full"], "/dev/full"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1", "--save", "/nonexistent/saved"],
     "/nonexistent/saved"),
    (2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1", "--resume", "/nonexistent/saved"],
     "/nonexistent/saved"),
]


def check(captioner, ranks, flags, words):
    """What is wrong with the answer to these flags; None where nothing is."""
    # The shell tells each rank's exit apart from mpirun's own.
    shell = ["sh", "-c", '"$@"; echo "exit $?"', "sh", captioner.program]
    given = [] if "--samples" in flags else ["--samples", captioner.samples]
    command = [captioner.mpirun, "--oversubscribe", "-n", str(ranks), *shell, *SMALL, "--steps",
               "1", *given, *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120)
    exits = re.findall(r"^exit (\d+)$", done.stdout, re.M)
    # A run that fails at its end has shown its progress.
    sentences = [line for line in done.stderr.splitlines()
                 if line.strip() and not line.startswith("step ")]
    if len(exits) != ranks or "0" in exits:
        return f"exits {exits}"
    if len(sentences) != 1 or not sentences[0].startswith("captioner: "):
        return f"not one sentence:\n{done.stderr}"
    if not re.search(words, sentences[0]):
        return f"does not say {words!r}: {sentences[0]}"
    print(sentences[0])
    return None


def main():
    mpirun, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16)
        truncated = os.path.join(folder, "truncated")
        with open(captioner.samples, "rb") as whole, open(truncated, "wb") as part:
            part.write(whole.read()[:10000])
        cases = CASES + [(2, ["--encoder", "tp=2,dp=1", "--llm", "tp=2,dp=1", "--samples",
                              truncated], "truncated")]
        wrong = [(flags, why) for ranks, flags, words in cases
                 if (why := check(captioner, ranks, flags, words))]
        for flags, why in wrong:
            print(f"{' '.join(flags)}: {why}")
        sys.exit(f"{len(wrong)} of {len(cases)} answers are wrong" if wrong else 0)


main()

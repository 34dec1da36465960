"""Launch the captioner under mpirun and read its log. Shared by the tests of this folder."""
import concurrent.futures
import filecmp
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77
LIST = "/usr/share/unicode/emoji/emoji-test.txt"

# Small enough to run in seconds. Large enough that every kind of split happens: 8 heads (tp 4), S
# that 2*cp = 8 divides, 8 samples a micro-batch (dp 8). Names differ in length, so counts of tokens
# differ between ranks, samples and micro-batches.
SMALL = ["--image-size", "16", "--hidden", "32", "--layers", "1,2", "--seq", "96", "--lr", "0.01",
         "--global-batch", "32", "--micro-batches", "4", "--seed", "7"]

# Runs a program, prints its exit status and ends with 0. Where a rank fails, mpirun waits two seconds
# before it ends.
ENDS_WELL = '"$@"; echo "exit $?"'

TOPOLOGIES = [
    ("tp=1,dp=1", "tp=1,cp=1,dp=1", 1),
    ("tp=2,dp=4", "tp=2,cp=2,dp=2", 8),
    ("tp=4,dp=2", "tp=1,cp=2,dp=4", 8),
    ("tp=1,dp=8", "tp=2,cp=4,dp=1", 8),
]


def rank_pids(word):
    """{rank: pid} of the processes of a launch whose command line has that word, without shells."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as line, open(f"/proc/{entry}/environ", "rb") as rest:
                words, environment = line.read().split(b"\0"), rest.read()
        except OSError: # it has ended
            continue
        rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", environment)
        if rank and word.encode() in words and not words[0].endswith(b"sh"):
            found[int(rank[1])] = int(entry)
    return found


class Captioner:
    def __init__(self, mpirun, program, folder):
        self.mpirun, self.program, self.folder = mpirun, program, folder
        self.samples = os.path.join(folder, "samples")

    def mpirun_with(self, words):
        """A whole launch. A launch that hangs is ended by SIGTERM, which mpirun passes on to its
        ranks. subprocess would send SIGKILL, which leaves the ranks running."""
        command = ["timeout", "120", self.mpirun, "--oversubscribe", *words]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)

    def launch(self, ranks, *flags):
        return self.mpirun_with(["-n", str(ranks), self.program, *flags])

    def succeeds(self, ranks, *flags):
        """A launch that must succeed."""
        done = self.launch(ranks, *flags)
        if done.returncode != 0:
            sys.exit(f"{' '.join(flags)}: exit {done.returncode}\n{done.stderr}")
        return done

    def flags_of(self, topology, *flags):
        """Those of a run on a topology."""
        encoder, llm, *_ = topology
        return ["--encoder", encoder, "--llm", llm, "--samples", self.samples, *flags]

    def refused(self, *flags, ranks=1):
        """A launch that must fail on all ranks: what it said, and '' where the last one succeeded."""
        shell = ["sh", "-c", ENDS_WELL, "sh", self.program]
        done = self.mpirun_with(["-n", str(ranks), *shell, *flags])
        failed = re.fullmatch(r"exit [1-9]\d*", (done.stdout.splitlines() or [""])[-1])
        return done.stderr if failed else ""

    def all_refused(self, rows):
        """The same of many launches, in order: one rank leaves a core for another launch."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda flags: self.refused(*flags), rows))

    def prepare(self, side, one_in=1):
        """Render the pictures once for all runs, of all emoji or of one in `one_in`. At its end each
        run names held-out emoji, which takes longer than a few steps: of one in 60, there are two."""
        emoji = os.path.join(self.folder, "emoji.txt")
        if not os.path.exists(LIST):
            sys.exit(SKIPPED)
        with open(LIST, encoding="utf-8") as whole, open(emoji, "w", encoding="utf-8") as part:
            rows = [line for line in whole if "; fully-qualified" in line]
            part.writelines([*rows[::one_in], "#EOF\n"])
        self.render(side, emoji)

    def render(self, side, emoji, *flags):
        """The pictures of a list. A machine without the font skips."""
        done = self.launch(1, "--image-size", str(side), "--emoji-test", emoji, "--prepare", self.samples, *flags)
        if done.returncode != 0:
            print(done.stderr)
            sys.exit(SKIPPED if "cannot open the font" in done.stderr else 1)
        return done

    def run(self, topology, *flags, pictures=True):
        """A run on a topology, with its log and pictures in the folder. Returns its output and the
        lines of its log."""
        log = os.path.join(self.folder, "log")
        if os.path.exists(log):
            os.remove(log)
        out = ["--out", self.folder] if pictures else []
        done = self.succeeds(topology[2], *self.flags_of(topology, "--log", log, *out, *flags))
        return done, self.read_log(log)

    @staticmethod
    def read_log(path):
        with open(path, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def train(self, topology, *flags):
        """The log's lines of a run on a topology."""
        return self.run(topology, *flags, pictures=False)[1]


class Checks:
    """What a test finds wrong, and its files in the captioner's folder."""

    def __init__(self, captioner):
        self.captioner, self.wrong = captioner, 0

    def path(self, name):
        return os.path.join(self.captioner.folder, name)

    def expect(self, right, words):
        if not right:
            print(f"WRONG: {words}")
            self.wrong += 1

    def same_file(self, one, other):
        return filecmp.cmp(self.path(one), self.path(other), shallow=False)

    def expect_refused(self, flags, rows):
        """One rank refuses those with the flags of each row, in the row's words."""
        answers = self.captioner.all_refused([*flags, *more] for more, _ in rows)
        for (more, words), said in zip(rows, answers):
            self.expect(words in said, f"{more} should be refused with {words}: {said}")

    def expect_refused_on(self, ranks, flags, words):
        """A launch of this number of ranks, all along dp, refuses the flags in these words."""
        grids = f"tp=1,dp={ranks}", f"tp=1,cp=1,dp={ranks}"
        said = self.captioner.refused(*self.captioner.flags_of(grids, *flags), ranks=ranks)
        self.expect(words in said, f"{flags} should be refused with {words}: {said}")


def run_test(body, one_in=1):
    """What a test's program does: `body` gets a captioner with pictures of 16 x 16, of one emoji in `one_in`, and
    the words of the command line that come behind mpirun and the program. It returns how much is wrong."""
    mpirun, program, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16, one_in)
        wrong = body(captioner, *more)
        sys.exit(f"{wrong} checks failed" if wrong else 0)


class Report:
    """What a run prints at its end: both held-out losses, held-out names and generated ones. `base`
    has those of the base, where a run with adapters starts from one, and is empty elsewhere."""

    def __init__(self, printed):
        self.right = float(re.search(r"^held-out loss with the right images +(\S+)$", printed,
                                     re.M)[1])
        self.shuffled = float(re.search(r"^held-out loss with images shuffled +(\S+)$", printed,
                                        re.M)[1])
        self.accuracy = re.search(r"^held out: (.*)$", printed, re.M)[1]
        head, *lines = printed[printed.index("\nheld-out emoji") + 1:].splitlines()
        *ends, start = [match.start() for match in re.finditer("what the", head)]
        lines = lines[:10]
        self.names = [line[:(ends or [start])[0]].strip() for line in lines]
        self.base = [line[ends[0]:start].strip() for line in lines] if ends else []
        self.generated = [line[start:] for line in lines]


def read_tensors(path):
    """The metadata of a safetensors file, and its tensors by name: dtype, shape and bytes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (row["dtype"], row["shape"], data[slice(*row["data_offsets"])])
                      for name, row in header.items()}


def write_tensors(path, metadata, tensors):
    header, end = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def compare(name, seen, expected, tolerance):
    """Number of values that differ by more than `tolerance`, relative."""
    wrong = 0
    if [row["step"] for row in seen] != [row["step"] for row in expected]:
        print(f"{name}: steps {[row['step'] for row in seen]}")
        return 1
    for row, reference in zip(seen, expected):
        if row["tokens"] != reference["tokens"]:
            print(f"{name}, step {row['step']}: {row['tokens']} tokens, not {reference['tokens']}")
            wrong += 1
        for key in ("loss", "grad_norm"):
            gap = abs(row[key] - reference[key]) / abs(reference[key])
            print(f"{name}, step {row['step']}: {key} {row[key]:.7g} and {reference[key]:.7g}, "
                  f"relative gap {gap:.1e}")
            wrong += not gap <= tolerance
    return wrong

"""The end of a run: the loss has fallen, the right images help, every topology reports the same,
and names are generated without the right answers."""
import re

from captioner_runs import Checks, Report, SMALL, TOPOLOGIES, run_test
from sample_names import rename_held_out

ONE_RANK, HOME = TOPOLOGIES[:2]
# With this number of steps, names differ from picture to picture. After fewer, all pictures get one
# name.
STEPS = ["--steps", "100", "--global-batch", "16", "--micro-batches", "1"]


ACCURACY = re.compile(r"(\d+) of (\d+) names right to the letter, (\d+) of (\d+) words; (\d+) of the (\d+) below among its "
                      r"5 likeliest of (\d+) names")


def near(seen, expected, tolerance):
    return abs(seen - expected) <= tolerance * abs(expected)


def check_training(test, done, log):
    report = Report(done.stdout)
    first, last = log[0]["loss"], log[-1]["loss"]
    print(f"loss {first} to {last}, held out {report.right}, shuffled {report.shuffled}")
    test.expect(last < 0.6 * first, f"the loss fell from {first} to {last} only")
    test.expect(report.right < report.shuffled, "the right images do not help")
    test.expect(len(set(report.names)) == 10, f"held-out names {report.names}")
    test.expect(len(set(report.generated)) > 1, f"one name for all: {report.generated[0]}")
    for picture in ("contact-sheet.png", "loss-curve.png"):
        with open(test.path(picture), "rb") as file:
            test.expect(file.read(8) == b"\x89PNG\r\n\x1a\n", f"{picture} is no PNG")
        test.expect(picture in done.stdout, f"{picture} is not told of")


def check_accuracy(test, report, right):
    """`right` of the names are what the model calls the pictures; the others are nothing that it would say."""
    exact, names, words, all_words, guessed, count, choice = map(int, ACCURACY.fullmatch(report.accuracy).groups())
    own = sum(len(name.split(" ")) for name in right)
    test.expect((exact, names, count, choice) == (len(right), 141, 10, 60), report.accuracy)
    test.expect(own <= words < all_words, f"{own} words at least: {report.accuracy}")
    test.expect(guessed > 0, f"what it would write is likely: {report.accuracy}")


def main(captioner):
    test = Checks(captioner)
    saved = test.path("saved.safetensors")
    done, log = captioner.run(ONE_RANK, *SMALL, *STEPS, "--save", saved)
    check_training(test, done, log)
    trained = Report(done.stdout)

    done, log = captioner.run(HOME, *SMALL, *STEPS, "--resume", saved)
    elsewhere = Report(done.stdout)
    test.expect(not log, "a finished run took steps")
    for words, seen, expected in (("right", elsewhere.right, trained.right),
                                  ("shuffled", elsewhere.shuffled, trained.shuffled)):
        test.expect(near(seen, expected, 1e-4), f"{words}: {seen} on 8 ranks, {expected} on 1")
    test.expect(elsewhere.generated == trained.generated,
                f"{elsewhere.generated} on 8 ranks, {trained.generated} on 1")
    test.expect(elsewhere.accuracy == trained.accuracy,
                f"{elsewhere.accuracy} on 8 ranks, {trained.accuracy} on 1")
    test.expect("evaluating on 141 held-out emoji" in done.stderr.splitlines(),
                "it does not say that it evaluates")

    # The answers change, so the losses do. The generated names must stay the same. Three of them
    # become right, and the others are written backwards.
    renamed = test.path("renamed")
    right = {name: said for name, said in zip(trained.names[::4], trained.generated[::4])}
    rename_held_out(captioner.samples, renamed, lambda name: right.get(name, name[::-1]))
    captioner.samples = renamed
    blind = Report(captioner.run(ONE_RANK, *SMALL, *STEPS, "--resume", saved)[0].stdout)
    test.expect(blind.names == [right.get(name, name[::-1]) for name in trained.names],
                "nothing was renamed")
    check_accuracy(test, blind, list(right.values()))
    test.expect(blind.right > 1.5 * trained.right, f"names backwards cost {blind.right}")
    test.expect(blind.generated == trained.generated,
                f"other answers make {blind.generated}, not {trained.generated}")
    return test.wrong


run_test(main)

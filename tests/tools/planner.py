"""mimo-plan as a user runs it, for the tests of its commands."""

import json
import os
import subprocess
import sys

SVG = "{http://www.w3.org/2000/svg}"


class Planner:
    """One command of a mimo-plan; "" is the program itself."""

    def __init__(self, program, command=""):
        self.words = [program, *command.split()]
        self.name = f"mimo-plan {command}".strip()
        self.failures = []

    def run(self, *arguments, text=""):
        done = subprocess.run([*self.words, *arguments], capture_output=True, text=True, input=text, timeout=100)
        return done.returncode, done.stdout, done.stderr

    def expect(self, condition, arguments, what):
        if not condition:
            self.failures.append(f"{self.name} {' '.join(arguments)}: {what}")

    def output(self, *arguments, text="", said=""):
        """What a call prints that must succeed, and says this on stderr."""
        status, out, err = self.run(*arguments, text=text)
        self.expect(status == 0 and err == said, arguments, f"status {status}, stderr {err!r}")
        return out

    def document(self, *arguments, text=""):
        """The same as JSON. Without any the test ends."""
        out = self.output(*arguments, "--json", text=text)
        if not out:
            self.expect(False, arguments, "no JSON")
            self.end()
        return json.loads(out)

    def expect_output(self, expected, *arguments, text=""):
        """Success with exactly this on stdout and nothing on stderr."""
        out = self.output(*arguments, text=text)
        self.expect(out == expected, arguments, f"printed\n{out}instead of\n{expected}")

    def expect_error(self, said, *arguments, text=""):
        """Status 2, nothing on stdout, and one sentence on stderr: this one, or of a list, one that has its words."""
        status, out, err = self.run(*arguments, text=text)
        self.expect(status == 2, arguments, f"status {status} instead of 2")
        self.expect(out == "", arguments, f"stdout {out!r} instead of nothing")
        if isinstance(said, str):
            self.expect(err == f"mimo-plan: {said}\n", arguments, f"stderr {err!r} instead of {said!r}")
            return
        self.expect(err.startswith("mimo-plan: ") and err.endswith("\n") and err.count("\n") == 1, arguments,
                    f"stderr {err!r} is not one sentence")
        for word in said:
            self.expect(word in err, arguments, f"no {word!r} in {err!r}")

    def full_disk(self, *arguments):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([*self.words, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=60)
        said = "mimo-plan: cannot write" in done.stderr or "the stream takes no more" in done.stderr
        self.expect(done.returncode == 2 and said, arguments,
                    f"to a full disk: status {done.returncode}, stderr {done.stderr!r}")

    def documented(self, docs, picture, command, *arguments):
        """docs/concepts.md, which must have this command, and docs/PICTURE what a call with `arguments` prints."""
        with open(os.path.join(docs, "concepts.md"), encoding="utf-8") as f:
            page = f.read()
        self.expect(f"`{self.name} {command}`" in page, [command], "is not in concepts.md")
        with open(os.path.join(docs, picture), encoding="utf-8") as f:
            self.expect(f.read() == self.output(*arguments), arguments, f"is not docs/{picture}")
        return page

    def end(self, *checks):
        for check in checks:
            check()
        print("\n".join(self.failures) or f"{self.name} is fine")
        sys.exit(bool(self.failures))

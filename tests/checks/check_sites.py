"""The checks of the library, found by reading its sources, and the list of those that may survive.

A check is a MIMO_CHECK, or a call of mimo_fail outside of one. A call that only passes on an error
from elsewhere (its format is "%s") is no check. A check is named by its sentence, which changes
least. Where several checks have the same sentence, the base name of the file decides. Where that is
not enough, the condition decides.
"""
import os
import re

ROOTS = ("src", "grid", "bridge")
# The backends need a GPU, and only GPU tests reach them. The macros and the definition of mimo_fail are
# what checks are made of.
LEFT_OUT = re.compile(r"(^|/)(nccl|cuda)_|src/core/(check\.h|check_off\.c|status\.c)$")
CALL = re.compile(r"\b(MIMO_CHECK|mimo_fail)\s*\(")


class Site:
    """One check: where it is, what it asks and what it says."""

    def __init__(self, path, first, last, condition, sentence):
        self.path, self.first, self.last = path, first, last
        self.condition, self.sentence = condition, sentence

    @property
    def file(self):
        return os.path.basename(self.path)

    def __str__(self):
        return f"{self.path}:{self.first}: {self.condition} | {self.sentence}"


def blank_comments(text):
    """The text with comments as spaces; lines and strings stay."""
    def spaces(match):
        if match.group().startswith('"'):
            return match.group()
        return re.sub(r"[^\n]", " ", match.group())

    return re.sub(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', spaces, text, flags=re.S)


def arguments_of(text, start):
    """The arguments of a call whose first one begins at `start`, and the position of its ')'."""
    found, depth, at, begin = [], 0, start, start
    while True:
        token = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|[()\[\]{},]').search(text, at)
        letter = token.group()
        at = token.end()
        if letter == "," and depth == 0 or letter == ")" and depth == 0:
            found.append(" ".join(text[begin:token.start()].split()))
            begin = at
            if letter == ")":
                return found, token.start()
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1


def sentence_of(argument):
    """The text of a format in several pieces. PRId64 and the like become d."""
    words = re.sub(r'%"\s*PRI([diuxX])\d+\s*(?="|$)', lambda m: "%" + m.group(1) + '" ', argument)
    if not re.fullmatch(r'("(?:\\.|[^"\\])*"\s*)+', words):
        return words
    return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', words))


def sites_in(path, text):
    """The checks of one file."""
    text = blank_comments(text)
    found = []
    for match in CALL.finditer(text):
        arguments, end = arguments_of(text, match.end())
        if match.group(1) == "MIMO_CHECK":
            condition, sentence = arguments[0], arguments[2]
        else:
            condition, sentence = "mimo_fail", arguments[1]
        if sentence == '"%s"':
            continue
        lines = [text.count("\n", 0, place) + 1 for place in (match.start(), end)]
        found.append(Site(path, *lines, condition, sentence_of(sentence)))
    return found


def find_sites(root):
    """Every check of the library, in the order of the files."""
    found = []
    for top in ROOTS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if path.endswith((".c", ".h")) and not LEFT_OUT.search(path):
                    with open(os.path.join(root, path), encoding="utf-8") as f:
                        found += sites_in(path, f.read())
    return found


class Entry:
    """A check that may survive. The list has `file | condition | sentence`, and below it, indented,
    the reason."""

    def __init__(self, line, number):
        parts = [part.strip() for part in line.split(" | ", 2)]
        if len(parts) != 3:
            raise ValueError(f"line {number}: '{line}' is not 'file | condition | sentence'")
        self.file, self.condition, self.sentence = parts
        self.number, self.reason = number, ""

    def find(self, sites):
        """The checks that it may mean. There is one, unless the list or the tree is wrong."""
        found = [site for site in sites if site.sentence == self.sentence]
        for part in ("file", "condition"):
            if len(found) > 1:
                found = [site for site in found if getattr(site, part) == getattr(self, part)]
        return found


def read_list(text):
    """The entries of the list of survivors."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            if not entries:
                raise ValueError(f"line {number}: a reason without a check")
            entries[-1].reason = f"{entries[-1].reason} {line.strip()}".strip()
        else:
            entries.append(Entry(line, number))
    return entries


def judge_list(entries, sites):
    """(entry of each listed site, what is wrong with the list)."""
    listed, wrong = {}, []
    for entry in entries:
        found = entry.find(sites)
        if len(found) != 1:
            wrong.append(f"line {entry.number}: {len(found)} checks are "
                         f"'{entry.file} | {entry.condition} | {entry.sentence}'")
        elif found[0] in listed:
            wrong.append(f"line {entry.number}: {found[0]} is listed twice")
        elif not entry.reason:
            wrong.append(f"line {entry.number}: no reason is given for {found[0]}")
        else:
            listed[found[0]] = entry
    return listed, wrong

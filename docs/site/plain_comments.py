#!/usr/bin/env python3
"""Doxygen's input filter: the comments of a public header are plain text, whose layout counts.

    plain_comments.py HEADER    print the header as Doxygen shall read it

A comment at the beginning of a line in column 0 that documents no declaration belongs to the file, one
behind code to that code, and one above a field to the field. "---- title ----" is the title of the comment
of the file behind it. A function right behind another one shares its comment, and so gets one that leads
there. What is declared for MIMO_EXPERIMENTAL alone says so. Enumerators that a list X(name, ...) makes are
written out, with the texts of the list. Indented lines of two columns, "term  text", are
definitions; others that are no list stay as they are. No character has a meaning for Doxygen, except lists
and names in backticks.
"""
import itertools
import pathlib
import re
import sys

LIST = re.compile(r"#define (MIMO_\w+)_LIST\(X\)((?:.*\\\n)+.*\n)")
ENUM = re.compile(r"#define (MIMO_\w+)_ENUM\((.*?)\) (.*)\n.*\n#undef .*\n")
ROW = re.compile(r"\bX\(((?:\"[^\"]*\"|[^\"()])*)\)")
COMMENT = re.compile(r"^(?P<before>[^\n]*?)/\*(?P<doc>\*?)(?P<text>.*?)\*/", re.S | re.M)
TITLE = re.compile(r" -+ ([\w ]+) -+ $")
ITEM = re.compile(r"\s*(?:-|\d+\.) ")
DECLARED = re.compile(r"^MIMO_API [^;]*?\b(mimo_\w+)\(", re.M)
EXPERIMENTAL = "Experimental: any minor release may change it."


def functions_beside(header):
    """The functions that the headers of this folder declare."""
    return {name for path in pathlib.Path(header).parent.glob("*.h") for name in DECLARED.findall(path.read_text())}


def escape(line):
    parts = re.sub(r"([\\@#<>%&$])", r"\\\1", line).split("`")
    parts[::2] = [re.sub(r"\bmimo_\w+\b(?!\(|\.\w)", link, part) for part in parts[::2]]
    parts[::2] = [re.sub(r"(?<!\w)\*(\w+)\*(?!\w)", r"<em>\1</em>", part) for part in parts[::2]]
    line = "".join(f"<tt>{part}</tt>" if i % 2 else part for i, part in enumerate(parts))
    return re.sub(r"^(\s*)\d+\. ", r"\1-# ", line)


def flow(lines):
    """Text without its ends of lines, which mean nothing; a line for each item of a list."""
    out = []
    for line in lines:
        if out and not ITEM.match(line):
            out[-1] += " " + line.strip()
        else:
            out.append(line)
    return list(map(escape, out))


def link(match):
    """Doxygen makes a link of a function's name where brackets follow."""
    return match[0] + ("()" if match[0] in FUNCTIONS else "")


def definitions(block):
    """(term, its lines) of indented lines of two columns; None where they are none."""
    at = {match.end() for match in (re.match(r"  \S.*? {2,}(?=\S)", line) for line in block) if match}
    if len(at) != 1 or re.match(r"   ", block[0]) or any(re.search(r"\S {3,}\S", line[max(at):]) for line in block):
        return None
    at, out = max(at), []
    for line in block:
        if line[:at].strip():
            out.append((line[:at].strip(), []))
        if line[:2].strip() or line[at - 1:at].strip():
            return None
        out[-1][1].append(line[at:])
    return out


def definition(term, lines):
    """A definition, which may have a list in it."""
    out = [f"<dt>{escape(term)}</dt><dd>"]
    for line in flow(lines):
        item = ITEM.match(line)
        out += ["</li>" if "<li>" in out else "<ul>", "<li>"] if item else []
        out.append(line[item.end():] if item else line)
    return out + (["</li></ul>"] if "<li>" in out else []) + ["</dd>"]


def indented(run):
    """Lines that are no text: definitions, or what stays as it is."""
    pairs = definitions(run)
    if pairs:
        return ["<dl>", *(line for pair in pairs for line in definition(*pair)), "</dl>"]
    return ["@verbatim", *run, "@endverbatim"]


def paragraphs(lines):
    """Lines of a comment: text, lists, definitions, and what stays as it is."""
    out, block = [], []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
            continue
        is_list = any(ITEM.match(text) for text in block)
        if is_list and (not block[0].startswith("  ") or ITEM.match(block[0])):
            out += flow(block)
        else:
            for inside, run in itertools.groupby(block, lambda text: text.startswith("  ")):
                out += indented(list(run)) if inside else flow(run)
        out.append("")
        block = []
    return out


def body(text):
    first, *rest = text.split("\n")
    rest = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in rest]
    base = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    if not first.strip():
        base = 0
    return paragraphs([first.strip(), *(line[base:] for line in rest)])


def convert(match, titles):
    before, doc, text = match["before"], match["doc"], match["text"]
    title = TITLE.match(text)
    titles += [title[1].capitalize()] if title else []
    if title or text.strip().startswith("Only where MIMO_EXPERIMENTAL"):
        return ""
    lines = body(text)
    kind = "/**"
    if before.strip():
        kind = "/**<"
    elif not before and not doc:
        lines = ["@file", *(f"@details <b>{title}</b>\n" for title in titles[-1:]), *lines]
    titles.clear()
    return before + kind + " " + "\n".join(lines).strip() + "\n*/"


def enumerators(match, lists):
    """The lines of an enum that a list makes, in place of its macro."""
    names, out = match[2].split(", "), []
    for row in ROW.findall(lists[match[1]]):
        values = [value.strip() for value in re.findall(r"((?:\"[^\"]*\"|[^\",])+)(?:,|$)", row)]
        code = match[3].replace("##", "")
        for name, value in zip(names, values):
            code = re.sub(rf"\b{name}\b|(?<=_){name}\b", lambda _: value, code)
        texts = ["".join(re.findall(r"\"([^\"]*)\"", value)) for value in values]
        out.append(f"    {code} /* {': '.join(filter(None, texts))} */\n")
    return "".join(out)


def write_out(text):
    """Enumerators, written out."""
    lists = {name: rows.replace("\\\n", "") for name, rows in LIST.findall(text)}
    return ENUM.sub(lambda match: enumerators(match, lists), text)


def share(text):
    """Comments for functions without one: behind another function, and those that write initial values."""
    out, named = [], None
    for part in re.split(r"(^MIMO_API [^;]*;\n)", text, flags=re.M):
        function = re.search(r"\b(mimo_\w+)\(", part) if part.startswith("MIMO_API") else None
        comment = out and out[-1].endswith("*/\n")
        initial = function and re.fullmatch(r"(mimo_\w+)_init", function[1])
        if function and not comment and initial:
            part = f"/** Write the first bytes of {initial[1].upper()}_INIT, for other languages. */\n" + part
        elif function and not comment and named:
            part = f"/** See {named}(). */\n" + part
        if part:
            named = (named if not comment and named else function[1]) if function else None
            out.append(part)
    return "".join(out)


def mark(text):
    """Say of what stands under MIMO_EXPERIMENTAL that it is experimental."""
    return re.sub(r"^#ifdef MIMO_EXPERIMENTAL\n.*?^#endif", lambda part: re.sub(
        r"\s*\*/\n(?=MIMO_API|typedef)", f"\n\n{EXPERIMENTAL}\n*/\n", part[0]), text, flags=re.S | re.M)


FUNCTIONS = functions_beside(sys.argv[1])
with open(sys.argv[1], encoding="utf-8") as header:
    found = []
    text = COMMENT.sub(lambda match: convert(match, found), write_out(header.read()))
    sys.stdout.write(mark(share(text)))
